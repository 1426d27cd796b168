//! NaFlex: the size at which an image fills a sequence of patches, and the random crop before it.
//!
//! An image keeps its ratio as far as whole patches allow: it is enlarged or shrunk by the largest factor at which its
//! patches fit the sequence, and then each side is rounded up to a whole patch.

use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use crate::rng::SampleRng;
use std::ops::RangeInclusive;

/// Largest side of a patch in pixels.
const MAX_PATCH_PX: u32 = 1_024;

/// Largest number of patches in a sequence.
pub(super) const MAX_SEQUENCE: u32 = 1 << 20;

/// The search for the factor ends when it is known within this, as in timm. An exact answer differs for one size in
/// 7,600.
const WITHIN: f64 = 1e-5;

/// Images are never enlarged by more than this factor, as in timm.
const MAX_RATIO: f64 = 100.0;

/// Number of attempts at a random crop before the fallback, as in timm and torchvision.
const ATTEMPTS: u32 = 10;

/// The size of images whose patches fit a sequence: timm's `get_image_size_for_seq`, which is transformers'
/// `get_image_size_for_max_num_patches` for square patches.
///
/// ```
/// use warpfeed::image::Size;
/// use warpfeed::shapes::SequenceSize;
///
/// let fit = SequenceSize::new(16, 256).of(Size::new(500, 375))?;
/// assert_eq!((fit.size, fit.rows, fit.columns), (Size::new(288, 224), 14, 18));
/// // Small images are enlarged, unless that is limited.
/// let small = Size::new(64, 48);
/// assert_eq!(SequenceSize::new(16, 256).of(small)?.size, Size::new(288, 224));
/// assert_eq!(SequenceSize::new(16, 256).max_ratio(1.0).of(small)?.size, small);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequenceSize {
    patch: Size,
    seq_len: u32,
    max_ratio: Option<f64>,
}

/// An image's size in whole patches.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SequenceFit {
    /// The size to resize to, in pixels. Its sides are multiples of the patch's.
    pub size: Size,
    /// Number of patches from top to bottom.
    pub rows: u32,
    /// Number of patches from left to right.
    pub columns: u32,
    /// The factor by which the image grows, before its sides are rounded up to whole patches.
    pub ratio: f64,
}

impl SequenceSize {
    /// Sequences of at most `seq_len` patches of this size in pixels. A `u32` as patch is a square.
    #[must_use]
    pub fn new(patch: impl Into<Size>, seq_len: u32) -> Self {
        Self { patch: patch.into(), seq_len, max_ratio: None }
    }

    /// The largest factor by which an image is enlarged; 1 forbids it. Sides are still rounded up to whole patches.
    /// Default: 100.
    #[must_use]
    pub const fn max_ratio(mut self, ratio: f64) -> Self {
        self.max_ratio = Some(ratio);
        self
    }

    /// The size of a patch in pixels.
    #[must_use]
    pub const fn patch(&self) -> Size {
        self.patch
    }

    /// Largest number of patches.
    #[must_use]
    pub const fn seq_len(&self) -> u32 {
        self.seq_len
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a patch without pixels or with sides over 1,024, for a sequence of 0 or over 1,048,576
    /// patches, and for a factor that is not a positive number.
    pub fn validate(&self) -> Result<()> {
        let wrong = |parameter, expected: String, got: &dyn ToString| {
            Err(Error::parameter("naflex", parameter, expected, got.to_string()))
        };
        let Size { width, height } = self.patch;
        if self.patch.is_empty() || width.max(height) > MAX_PATCH_PX {
            return wrong("patch", format!("sides of 1 to {MAX_PATCH_PX} pixels"), &self.patch);
        }
        if !(1..=MAX_SEQUENCE).contains(&self.seq_len) {
            return wrong("seq_len", format!("1 to {MAX_SEQUENCE} patches"), &self.seq_len);
        }
        match self.max_ratio {
            Some(ratio) if !(ratio > 0.0 && ratio.is_finite()) => wrong("max_ratio", "above 0".to_owned(), &ratio),
            _ => Ok(()),
        }
    }

    /// The size for an image of this size in pixels.
    ///
    /// # Errors
    /// The errors of [`validate`](Self::validate); [`Error::Unfit`] for an image without pixels, or one so large that it
    /// does not fit the sequence at a millionth of its size.
    pub fn of(&self, image: Size) -> Result<SequenceFit> {
        self.validate()?;
        if image.is_empty() {
            return Err(Error::unfit("naflex", format!("an image of {image} pixels has no patch")));
        }
        // Doubles in timm's order of operations, so that the last bit of the factor is the same.
        let (mut low, mut high) = (WITHIN / 10.0, MAX_RATIO);
        while high - low >= WITHIN {
            let middle = (low + high) / 2.0;
            if self.fits(self.at(image, middle)) {
                low = middle;
            } else {
                high = middle;
            }
        }
        let fit = self.at(image, self.max_ratio.map_or(low, |most| low.min(most)));
        if !self.fits(fit) {
            return Err(Error::unfit("naflex", format!("{image} pixels do not fit {} patches", self.seq_len)));
        }
        Ok(fit)
    }

    /// The size at a factor.
    fn at(&self, image: Size, ratio: f64) -> SequenceFit {
        let patches = |side: u32, patch: u32| (f64::from(side) * ratio / f64::from(patch)).ceil().max(1.0) as u32;
        let (rows, columns) = (patches(image.height, self.patch.height), patches(image.width, self.patch.width));
        let size = Size::new(columns.saturating_mul(self.patch.width), rows.saturating_mul(self.patch.height));
        SequenceFit { size, rows, columns, ratio }
    }

    fn fits(&self, fit: SequenceFit) -> bool {
        u64::from(fit.rows) * u64::from(fit.columns) <= self.seq_len.into()
    }
}

/// A random crop, resized to fill a sequence: timm's `RandomResizedCropToSequence` as its training transforms make it.
///
/// The crop's area is a uniform part of the image's, and its ratio is the image's own times a factor whose logarithm is
/// uniform. A crop that does not fit the image is drawn again, up to 10 times. Then the whole image is taken, or, if
/// factors do not include 1, its central part with the nearest factor. The size follows from the crop's.
///
/// Unlike timm's 1.0.31, which ignores its `max_ratio` here, a limit of the factor holds.
///
/// ```
/// use warpfeed::image::Size;
/// use warpfeed::ops::SampleRng;
/// use warpfeed::shapes::{SequenceCrop, SequenceSize};
///
/// let crop = SequenceCrop::new(SequenceSize::new(16, 256)).scale(0.5..=1.0);
/// let (rect, fit) = crop.draw(&mut SampleRng::for_sample(42, 0, 7), Size::new(500, 375))?;
/// assert!(rect.right() <= 500 && rect.bottom() <= 375);
/// assert!(fit.rows * fit.columns <= 256);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceCrop {
    size: SequenceSize,
    scale: RangeInclusive<f64>,
    ratio: RangeInclusive<f64>,
}

impl SequenceCrop {
    /// A crop of 8 to 100 % of the area, with 3/4 to 4/3 of the image's ratio.
    #[must_use]
    pub fn new(size: SequenceSize) -> Self {
        Self { size, scale: 0.08..=1.0, ratio: 3.0 / 4.0..=4.0 / 3.0 }
    }

    /// Part of the image's area, uniform in the range. The range lies within 0 to 1.
    #[must_use]
    pub fn scale(mut self, scale: RangeInclusive<f64>) -> Self {
        self.scale = scale;
        self
    }

    /// Factor of the image's ratio of width to height, log-uniform in the range.
    #[must_use]
    pub fn ratio(mut self, ratio: RangeInclusive<f64>) -> Self {
        self.ratio = ratio;
        self
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`Error::Parameter`] for the sequence's parameters ([`SequenceSize::validate`]), and for ranges that are empty, or
    /// reach outside of 0 (excluded) to 1 for the scale, or of positive numbers for the ratio.
    pub fn validate(&self) -> Result<()> {
        self.size.validate()?;
        let within = |parameter, range: &RangeInclusive<f64>, most: f64| {
            let (low, high) = (*range.start(), *range.end());
            // NaN fails this test.
            if low > 0.0 && low <= high && high <= most && high.is_finite() {
                return Ok(());
            }
            let limit = if most.is_finite() { format!(", up to {most}") } else { String::new() };
            let expected = format!("a range of numbers above 0{limit}");
            Err(Error::parameter("naflex", parameter, expected, format!("{low} to {high}")))
        };
        within("scale", &self.scale, 1.0)?;
        within("ratio", &self.ratio, f64::INFINITY)
    }

    /// Draws the rectangle of an image of this size in pixels that is cropped, and the size that it is resized to.
    ///
    /// # Errors
    /// The errors of [`validate`](Self::validate) and of [`SequenceSize::of`].
    pub fn draw(&self, rng: &mut SampleRng, image: Size) -> Result<(Rect, SequenceFit)> {
        self.validate()?;
        let rect = self.rect(rng, image, SampleRng::unit, SampleRng::below);
        Ok((rect, self.size.of(rect.size())?))
    }

    /// The rectangle by numbers within 0 to 1, and below a number.
    fn rect<R>(&self, rng: &mut R, image: Size, unit: fn(&mut R) -> f64, below: fn(&mut R, u64) -> u64) -> Rect {
        let (width, height) = (f64::from(image.width), f64::from(image.height));
        let (area, own) = (width * height, width / height);
        let factors = [libm::log(*self.ratio.start()), libm::log(*self.ratio.end())];
        let uniform = |rng: &mut R, low: f64, high: f64| low + (high - low) * unit(rng);
        for _ in 0..ATTEMPTS {
            let part = area * uniform(rng, *self.scale.start(), *self.scale.end());
            let ratio = own * libm::exp(uniform(rng, factors[0], factors[1]));
            // As Python rounds: ties to even.
            let (h, w) = ((part / ratio).sqrt().round_ties_even(), (part * ratio).sqrt().round_ties_even());
            if (1.0..=width).contains(&w) && (1.0..=height).contains(&h) {
                let (w, h) = (w as u32, h as u32);
                let y = below(rng, u64::from(image.height - h) + 1) as u32;
                let x = below(rng, u64::from(image.width - w) + 1) as u32;
                return Rect { x, y, width: w, height: h };
            }
        }
        let shorter = |side: f64| (side.round_ties_even() as u32).max(1);
        let (w, h) = match (*self.ratio.start(), *self.ratio.end()) {
            (low, _) if low > 1.0 => (image.width, shorter(width / (own * low)).min(image.height)),
            (_, high) if high < 1.0 => (shorter(height * (own * high)).min(image.width), image.height),
            _ => (image.width, image.height),
        };
        Rect { x: (image.width - w) / 2, y: (image.height - h) / 2, width: w, height: h }
    }
}

#[cfg(test)]
pub(super) mod tests;
