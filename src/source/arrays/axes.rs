//! The meaning of an array's dimensions.

use crate::error::{Error, Result};
use crate::raster::Size;
use warpfeed_image::Header;
use warpfeed_image::planes::{Element, MAX_CHANNELS, PixelKind};

/// For each axis of images, the dimension of the array that it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::source) struct Axes {
    pub(in crate::source) samples: Option<usize>,
    pub(in crate::source) channels: Option<usize>,
    pub(in crate::source) rows: usize,
    pub(in crate::source) columns: usize,
}

impl Axes {
    /// Reads one of `letters` for each dimension: `n`, `c`, `h`, `w`. Messages have the name of the array and an
    /// example, which has a letter for each dimension.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a letter is missing, unknown, or not the only one of its kind.
    pub(in crate::source) fn read(text: &str, letters: &str, example: &str, array: &str) -> Result<Self> {
        let wrong = || {
            let samples = if letters.contains('n') { "n samples, " } else { "" };
            let expected = format!(
                "a letter for each dimension of {array}, such as {example}: {samples}c channels, h rows, w columns, \
                 each at most once, h and w always"
            );
            let got = if text.is_empty() { "none".to_owned() } else { format!("{text:.40?}") };
            Error::parameter("open", "axes", expected, got)
        };
        let known = text.chars().all(|letter| letters.contains(letter));
        let once = |letter: char| text.matches(letter).count() < 2;
        if text.len() != example.len() || !known || !letters.chars().all(once) {
            return Err(wrong());
        }
        let at = |letter: char| text.find(letter);
        let (rows, columns) = (at('h').ok_or_else(wrong)?, at('w').ok_or_else(wrong)?);
        Ok(Self { samples: at('n'), channels: at('c'), rows, columns })
    }

    /// The header of the images in an array of this shape.
    ///
    /// # Errors
    /// A description of the arrays that have images.
    pub(in crate::source) fn header(&self, shape: &[u64], element: Element) -> Result<Header, &'static str> {
        let side = |dimension: usize| {
            let side = u32::try_from(shape[dimension]).ok().filter(|side| *side > 0);
            side.ok_or("an array whose rows and columns are 1 to 4294967295")
        };
        let size = Size::new(side(self.columns)?, side(self.rows)?);
        let channels = self.channels.map_or(1, |dimension| shape[dimension]);
        let channels = u16::try_from(channels).ok().filter(|channels| (1..=MAX_CHANNELS).contains(channels));
        let channels = channels.ok_or("an array of 1 to 64 channels")?;
        Ok(Header::of_array(size, PixelKind { element, channels }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dimension_has_a_letter() {
        let read = |text: &str, dimensions: usize| Axes::read(text, "nchw", &"nhwc"[..dimensions], "a.zarr");
        let axes = |samples, channels, rows, columns| Axes { samples, channels, rows, columns };
        assert_eq!(read("nchw", 4).unwrap(), axes(Some(0), Some(1), 2, 3));
        assert_eq!(read("whn", 3).unwrap(), axes(Some(2), None, 1, 0));
        assert_eq!(read("hw", 2).unwrap(), axes(None, None, 0, 1));
        for (text, dimensions) in [("", 4), ("nhw", 4), ("nhwx", 4), ("nhhw", 4), ("nch", 3), ("NHW", 3), ("é", 2)] {
            let error = read(text, dimensions).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains("dimension of a.zarr, such as nh"), "{error}");
        }
        assert!(Axes::read("nhw", "chw", "hwc", "a").is_err() && Axes::read("chw", "chw", "hwc", "a").is_ok());
    }

    #[test]
    fn images_have_sides_and_channels() {
        let axes = Axes::read("chw", "chw", "hwc", "a").unwrap();
        let header = axes.header(&[13, 4, 6], Element::U16).unwrap();
        assert_eq!((header.size, header.kind.channels), (Size::new(6, 4), 13));
        for shape in [[0, 4, 6], [65, 4, 6], [3, 0, 6], [3, 4, 1 << 32]] {
            assert!(axes.header(&shape, Element::U16).is_err(), "{shape:?}");
        }
    }
}
