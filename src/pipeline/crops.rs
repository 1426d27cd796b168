//! Where the pixels of a batch's images come from, for models that are told it.

use super::batch::Batch;
use crate::error::{Error, Result};
use crate::fields::motion::Motion;
use crate::ops::Op;
use crate::raster::Size;

/// Size and crop of an image, as models are conditioned on them ([`Batch::crops`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageCrop {
    /// Size of the image in the source, turned upright unless the pipeline ignores EXIF orientation.
    pub original: Size,
    /// Size of the whole image after resizing, before the crop.
    pub resized: Size,
    /// Rows of the resized image above the crop; above and left of it in the image as it is delivered, so after a flip.
    pub top: i32,
    /// Columns of the resized image to the left of the crop.
    pub left: i32,
    /// Size of the crop, which is that of the image in the batch.
    pub size: Size,
    /// Whether left and right have changed places.
    pub flipped: bool,
}

impl ImageCrop {
    /// SDXL's conditioning: rows and columns of the original, top and left of the crop, rows and columns of the image.
    #[must_use]
    pub const fn sdxl(&self) -> [i64; 6] {
        [
            self.original.height as i64,
            self.original.width as i64,
            self.top as i64,
            self.left as i64,
            self.size.height as i64,
            self.size.width as i64,
        ]
    }
}

/// The part of a resized image that an image shows, in pixels along one axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    /// Length of the whole image.
    whole: f64,
    /// The first pixel that is shown.
    first: f64,
    /// Number of pixels that are shown.
    shown: u32,
    mirrored: bool,
}

impl Axis {
    fn new(side: u32) -> Self {
        Self { whole: side.into(), first: 0.0, shown: side, mirrored: false }
    }

    fn mirror(&mut self) {
        self.first = self.whole - self.first - f64::from(self.shown);
        self.mirrored = !self.mirrored;
    }

    fn scale(&mut self, part: f64, to: u32) {
        let factor = f64::from(to) / part;
        let is_whole = self.first == 0.0 && self.whole == f64::from(self.shown);
        self.whole = if is_whole { to.into() } else { self.whole * factor };
        (self.first, self.shown) = (self.first * factor, to);
    }

    fn cut(&mut self, first: f64, shown: u32) {
        self.first += first;
        self.shown = shown;
    }

    fn whole_px(&self) -> u32 {
        self.whole.round() as u32
    }

    fn first_px(&self) -> i32 {
        self.first.round() as i32
    }
}

/// The crop that a recipe makes of an upright image of size `upright`.
fn crop(original: Size, upright: Size, ops: &[Op]) -> Result<ImageCrop> {
    let [mut x, mut y] = [upright.width, upright.height].map(Axis::new);
    let mut size = upright;
    for op in ops {
        let after = op.output_size(size)?;
        match op.motion(size)? {
            Motion::Keeps if after == size => {}
            Motion::Clamp | Motion::Select(_) | Motion::Keep(_) | Motion::Unlabel => {}
            Motion::MirrorX => x.mirror(),
            Motion::MirrorY => y.mirror(),
            Motion::Shift(by) => {
                x.cut(-f64::from(by[0]), after.width);
                y.cut(-f64::from(by[1]), after.height);
            }
            Motion::Scale(shown) => {
                x.scale(shown[0], after.width);
                y.scale(shown[1], after.height);
            }
            Motion::Window(window) => {
                x.cut(f64::from(window.x), window.width);
                y.cut(f64::from(window.y), window.height);
                x.scale(window.width.into(), after.width);
                y.scale(window.height.into(), after.height);
            }
            _ => {
                return Err(Error::Unsupported {
                    feature: format!("the crop of an image after {}", op.name()),
                    remedy: "crops are those of resizes, crops and flips: leave other operations that move pixels out"
                        .to_owned(),
                });
            }
        }
        size = after;
    }
    Ok(ImageCrop {
        original,
        resized: Size::new(x.whole_px(), y.whole_px()),
        top: y.first_px(),
        left: x.first_px(),
        size,
        flipped: x.mirrored,
    })
}

impl<I> Batch<I> {
    /// The size and the crop of each image of the first view: what SDXL and other models of diffusion are conditioned on.
    /// They follow from the recipes, which are drawn once more, so that they are right after resizes, crops, flips and
    /// turns by EXIF orientation.
    ///
    /// ```
    /// use warpfeed::ops::BucketCrop;
    /// use warpfeed::{image::{Image, JpegOptions, encode_jpeg}, prelude::*, shapes::Buckets};
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(50, 30)), &JpegOptions::default())?;
    /// let pipeline = Pipeline::builder(EncodedImages::new([(jpeg, 0)]))
    ///     .buckets(Buckets::list([Size::new(64, 48)]))
    ///     .transform(BucketCrop::new())
    ///     .build()?;
    /// let crop = pipeline.epoch(0).next().unwrap()?.crops()?[0];
    /// // Resized to 80 x 48, 8 columns are cut off on either side.
    /// assert_eq!(crop.sdxl(), [30, 50, 0, 8, 48, 64]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] after operations that move pixels otherwise; the errors of [`recipes`](Self::recipes).
    pub fn crops(&self) -> Result<Vec<ImageCrop>> {
        let one = |i: usize| {
            let stored = self.drawn[i].stored;
            let opened = self.moment.setup.recipes.opening.operations(stored);
            let upright = opened.iter().try_fold(stored.size, |size, op| op.output_size(size))?;
            let recipe = self.recipes(i)?.swap_remove(0);
            // What an image is opened with turns it, and makes a thumbnail.
            crop(self.moment.setup.recipes.upright(stored)?, upright, recipe.get(opened.len()..).unwrap_or_default())
        };
        (0..self.len()).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{CenterCrop, Crop, Hflip, Invert, Pad, Resize, Rotate};

    #[test]
    fn a_flip_after_the_crop_counts_from_the_other_side() {
        let size = Size::new(100, 60);
        let resize = || Op::from(Resize::new(Size::new(50, 30)));
        let cut = || Op::from(Crop::new(5, 2, Size::new(20, 28)));
        let after = crop(size, size, &[resize(), cut(), Hflip.into(), Invert.into()]).unwrap();
        assert_eq!((after.resized, after.left, after.top, after.flipped), (Size::new(50, 30), 25, 2, true));
        let before = crop(size, size, &[resize(), Hflip.into(), cut()]).unwrap();
        assert_eq!((before.left, before.top, before.flipped), (5, 2, true));
        assert_eq!(after.sdxl(), [60, 100, 2, 25, 28, 20]);
    }

    #[test]
    fn a_resize_after_the_crop_scales_it() {
        let size = Size::new(100, 60);
        let ops = [Op::from(Crop::new(10, 0, Size::new(50, 30))), Resize::new(Size::new(100, 60)).into()];
        let found = crop(size, size, &ops).unwrap();
        assert_eq!((found.resized, found.left, found.size), (Size::new(200, 120), 20, size));
        let padded = crop(size, size, &[Pad::sides([3, 4, 0, 0]).into()]).unwrap();
        assert_eq!((padded.left, padded.top), (-3, -4));
        let center = crop(size, size, &[CenterCrop::new(20).into()]).unwrap();
        assert_eq!((center.left, center.top), (40, 20));
    }

    #[test]
    fn other_moves_are_refused() {
        let error = crop(Size::new(9, 9), Size::new(9, 9), &[Rotate::new(5.0).into()]).unwrap_err();
        assert!(error.to_string().contains("rotate"), "{error}");
    }
}
