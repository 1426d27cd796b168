//! The kind of pixels that images are decoded to.

use crate::decode::{Format, Header};
use crate::error::Error;
use crate::ops::values::PixelValues;
use std::fmt;
use std::str::FromStr;
use warpfeed_image::planes::{Element, MAX_CHANNELS, PixelKind};

/// The kind of pixels that images are decoded to. As text: `rgb`, `own`, or a type and a number of channels: `u16x1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pixels {
    /// Red, green and blue of 8 bits, whatever the file has: Pillow's `convert("RGB")`. Of 16 bits the high 8 are kept,
    /// alpha is dropped, gray is copied.
    #[default]
    Rgb,
    /// As each file has them: a palette as its colors. A pipeline's images all have the kind of its first sample.
    Own,
    /// This kind, which all images have. Nothing is converted in silence: an image of another kind is a bad sample.
    Kind(PixelKind),
}

impl Pixels {
    /// The values of an image, if they are not RGB of 8 bits. `max_value`: the value that stands for 1, if it is not the
    /// type's largest.
    pub(crate) fn values_of(self, header: &Header, max_value: Option<f32>) -> Option<PixelValues> {
        let kind = match self {
            Self::Rgb => return None,
            Self::Own => header.kind,
            Self::Kind(kind) => kind,
        };
        Self::Kind(kind).values(max_value)
    }

    /// The values of all images, if they are known and not RGB of 8 bits.
    pub(crate) fn values(self, max_value: Option<f32>) -> Option<PixelValues> {
        match self {
            Self::Rgb | Self::Own | Self::Kind(PixelKind::RGB8) => None,
            Self::Kind(kind) => {
                let values = PixelValues::of(kind);
                Some(PixelValues { max_value: max_value.unwrap_or(values.max_value), ..values })
            }
        }
    }

    /// The pixels of an image by itself: its own if its format has more than 8 bits or is not made for photographs.
    #[must_use]
    pub fn usual(header: &Header) -> Self {
        match header.format {
            Format::Jpeg | Format::WebP | Format::Pnm => Self::Rgb,
            Format::Png if header.kind.element == Element::U8 => Self::Rgb,
            _ => Self::Own,
        }
    }
}

impl fmt::Display for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rgb => f.write_str("rgb"),
            Self::Own => f.write_str("own"),
            Self::Kind(PixelKind { element, channels }) => write!(f, "{element}x{channels}"),
        }
    }
}

impl FromStr for Pixels {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let kind = || {
            let (element, channels) = text.split_once('x')?;
            let element = [Element::U8, Element::U16, Element::F32].into_iter().find(|own| own.name() == element)?;
            let channels = channels.parse().ok().filter(|channels| (1..=MAX_CHANNELS).contains(channels))?;
            Some(Self::Kind(PixelKind { element, channels }))
        };
        match text {
            "rgb" => Ok(Self::Rgb),
            "own" => Ok(Self::Own),
            _ => kind().ok_or_else(|| {
                let expected =
                    format!("rgb, own, or u8, u16 or f32, an x, and 1 to {MAX_CHANNELS} channels, as u16x13");
                Error::parameter("pipeline", "pixels", expected, format!("{text:?}"))
            }),
        }
    }
}

text_value!(Pixels);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_written() {
        for text in ["rgb", "own", "u8x1", "u16x13", "f32x64"] {
            assert_eq!(text.parse::<Pixels>().unwrap().to_string(), text);
        }
        for wrong in ["", "u16", "u16x0", "f32x65", "i16x1", "RGB"] {
            assert!(wrong.parse::<Pixels>().unwrap_err().to_string().contains("u16x13"), "{wrong}");
        }
        assert_eq!("u8x3".parse::<Pixels>().unwrap().values(None), None, "the usual way");
        let values = "u16x2".parse::<Pixels>().unwrap().values(Some(4095.0)).unwrap();
        assert_eq!((values.kind.channels, values.max_value), (2, 4095.0));
    }
}
