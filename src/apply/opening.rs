//! Opens an image, before the first operation of its recipe.

use crate::decode::{Header, Input};
use crate::error::{Error, Result};
use crate::ops::check::MAX_SIDE_PX;
use crate::ops::orientation::{Orientation, oriented};
use crate::ops::resize::check_gap;
use crate::ops::{Interpolation, Op, Pad, PadMode, Resize};
use crate::options::TextValue;
use crate::raster::{Size, check_pixels};
use serde::{Deserialize, Serialize};

/// A thumbnail of each image, with which the recipe begins: Pillow's `Image.thumbnail`. It keeps the aspect and fits
/// into a size. An image that fits already stays as it is.
///
/// A JPEG is decoded as a draft for `reducing_gap` times the size
/// ([`PipelineBuilder::draft`](crate::PipelineBuilder::draft)). Then an image is reduced by whole factors and resized,
/// as [`Resize::reducing_gap`] says. Only the exact part of a draft that shows the image is resized: 500.5 of 501
/// columns, if 1,001 are decoded at half their size.
///
/// ```
/// use warpfeed::{Thumbnail, image::Size};
///
/// let thumbnail = Thumbnail::new(Size::new(256, 256)).reducing_gap(Some(3.0));
/// assert_eq!(thumbnail.of(Size::new(4000, 3000)), Some(Size::new(256, 192)));
/// assert_eq!(thumbnail.of(Size::new(200, 100)), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thumbnail {
    #[serde(with = "crate::ops::written::size")]
    size: Size,
    interpolation: Interpolation,
    reducing_gap: Option<f64>,
}

impl Thumbnail {
    /// A bicubic thumbnail of at most this size, with a reducing gap of 2, as in Pillow.
    #[must_use]
    pub const fn new(size: Size) -> Self {
        Self { size, interpolation: Interpolation::Bicubic, reducing_gap: Some(2.0) }
    }

    /// The filter.
    #[must_use]
    pub const fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// The least factor that is left to the filter, 1 or more. With `None` the filter does everything, and JPEGs are
    /// decoded whole.
    #[must_use]
    pub const fn reducing_gap(mut self, gap: Option<f64>) -> Self {
        self.reducing_gap = gap;
        self
    }

    /// The size of the thumbnail of an image; `None` if the image fits already.
    #[must_use]
    pub fn of(&self, Size { width, height }: Size) -> Option<Size> {
        let Size { width: x, height: y } = self.size;
        if x >= width && y >= height {
            return None;
        }
        let (x, y, aspect) = (f64::from(x), f64::from(y), f64::from(width) / f64::from(height));
        // The whole number on either side whose aspect is nearer, the lower one if both are as near.
        let nearer = |side: f64, off: &dyn Fn(f64) -> f64| {
            let (low, high) = (side.floor(), side.ceil());
            (if off(high) < off(low) { high } else { low }).max(1.0) as u32
        };
        Some(if x / y >= aspect {
            Size { width: nearer(y * aspect, &|n| (aspect - n / y).abs()), ..self.size }
        } else {
            let off = |n: f64| if n == 0.0 { 0.0 } else { (aspect - x / n).abs() };
            Size { height: nearer(x / aspect, &off), ..self.size }
        })
    }

    /// The size for which JPEGs are decoded at a smaller scale.
    fn draft(&self) -> Option<Size> {
        let side = |side: u32, gap: f64| (f64::from(side) * gap) as u32;
        self.reducing_gap.map(|gap| Size::new(side(self.size.width, gap), side(self.size.height, gap)))
    }

    fn validate(&self) -> Result<()> {
        let Size { width, height } = self.size;
        if self.size.is_empty() || width.max(height) > MAX_SIDE_PX {
            return Err(Error::parameter(
                "thumbnail",
                "size",
                format!("sides of 1 to {MAX_SIDE_PX} pixels"),
                self.size,
            ));
        }
        self.reducing_gap.map_or(Ok(()), |gap| check_gap("thumbnail", gap))
    }
}

/// A size, and after a slash the reducing gap, or `none`: `256`, `256x200/3`.
impl TextValue for Thumbnail {
    fn read(text: &str) -> Result<Self, String> {
        let (size, gap) = text.split_once('/').map_or((text, None), |(size, gap)| (size, Some(gap)));
        let thumbnail = Self::new(TextValue::read(size)?);
        Ok(match gap {
            None => thumbnail,
            Some("none") => thumbnail.reducing_gap(None),
            Some(gap) => {
                let gap = gap.parse().map_err(|_| "a number, or none, after the slash".to_owned())?;
                thumbnail.reducing_gap(Some(gap))
            }
        })
    }
}

/// Properties of a stored image that its recipe depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    /// Size of the decoded image.
    pub(crate) size: Size,
    /// Size as stored, which is another for drafts.
    pub(crate) full: Size,
    /// Denominator of the scale at which the image is decoded: 1, but for drafts.
    pub(crate) scale_denom: u32,
    /// The orientation tag (EXIF).
    pub(crate) orientation: u8,
}

impl From<&Header> for Stored {
    fn from(header: &Header) -> Self {
        let (size, full, orientation) = (header.size, header.full_size(), header.orientation);
        Self { size, full, scale_denom: header.scale_denom(), orientation }
    }
}

impl Stored {
    /// The operations that a draft amounts to for fields of the image as stored.
    pub(crate) fn to_decoded(self) -> Vec<Op> {
        let Self { size, full, scale_denom, .. } = self;
        if scale_denom == 1 {
            return Vec::new();
        }
        // The last pixels of a draft may show less of the image than the others. Padded to what they would show, all of
        // it shrinks by the same factor.
        let lacking = |side: u32, full: u32| (side * scale_denom).min(MAX_SIDE_PX).saturating_sub(full);
        let pad = Pad::sides([0, 0, lacking(size.width, full.width), lacking(size.height, full.height)]);
        vec![pad.mode(PadMode::Edge).into(), Resize::new(size).into()]
    }
}

/// The first steps with every image, before its recipe's own operations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Opening {
    pub(crate) orientation: Orientation,
    /// The size for which JPEGs are decoded at a smaller scale. `None` if all are decoded whole.
    pub(crate) draft: Option<Size>,
    /// The thumbnail that recipes begin with. After a `draft` for another size it is made of that draft, as in Pillow.
    pub(crate) thumbnail: Option<Thumbnail>,
}

impl Opening {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a thumbnail without pixels or whose reducing gap is below 1.
    pub(crate) fn validate(self) -> Result<()> {
        self.thumbnail.map_or(Ok(()), |thumbnail| thumbnail.validate())
    }

    /// The size of the draft that is decoded.
    pub(crate) fn draft_size(self) -> Option<Size> {
        self.draft.or_else(|| self.thumbnail.and_then(|thumbnail| thumbnail.draft()))
    }

    /// Reads the header of an image, checks its size as stored against the limit, and makes it the header of a draft if
    /// one is wanted.
    pub(crate) fn header(self, image: Input<'_>, max_px: u64) -> Result<Header> {
        let mut header = image.header()?;
        check_pixels(header.size, max_px)?;
        if let Some(size) = self.draft_size() {
            header.draft(size);
        }
        Ok(header)
    }

    /// The operations that recipes begin with: those that make the thumbnail of a decoded image and turn it upright.
    pub(crate) fn operations(self, stored: Stored) -> Vec<Op> {
        let mut ops: Vec<Op> = self.resize(stored).map(Op::from).into_iter().collect();
        ops.extend(oriented(stored.orientation, self.orientation));
        ops
    }

    /// The resize that makes a thumbnail.
    fn resize(self, Stored { size, full, scale_denom, .. }: Stored) -> Option<Resize> {
        let thumbnail = self.thumbnail?;
        let (of, denom) = if self.draft.is_some() { (size, 1) } else { (full, scale_denom) };
        let to = thumbnail.of(of).filter(|to| *to != size)?;
        let mut resize = Resize::new(to).interpolation(thumbnail.interpolation);
        resize.reducing_gap = thumbnail.reducing_gap;
        resize.shown = (denom > 1).then(|| [of.width, of.height].map(|side| f64::from(side) / f64::from(denom)));
        Some(resize)
    }
}
