//! The effect of operations on masks and auxiliary images.

use super::filter::Interpolation;
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};

/// The mask or auxiliary image that an operation acts on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldContext {
    /// Color outside.
    pub(crate) fill: [u8; 3],
    /// The field's own filter; `None` if it has the operation's.
    interpolation: Option<Interpolation>,
    /// Sizes of the field's image and of the sample's image, both before the operation.
    own: Size,
    image: Size,
}

impl FieldContext {
    pub(crate) fn new(fill: [u8; 3], interpolation: Option<Interpolation>, own: Size, image: Size) -> Self {
        Self { fill, interpolation, own, image }
    }

    /// The filter for an operation whose own is `own` and that has no filter above `most`.
    pub(super) fn filter(&self, own: Interpolation, most: Interpolation) -> Interpolation {
        let rank = |filter: Interpolation| filter as u8;
        self.interpolation.map_or(own, |filter| if rank(filter) > rank(most) { most } else { filter })
    }

    /// Whether the field's image has another size than the sample's.
    pub(super) fn differs(&self) -> bool {
        self.own != self.image
    }

    /// Refuses the operation `name` if the field's image has another size than the sample's.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it has.
    pub(super) fn same_size(&self, name: &'static str) -> Result<()> {
        if self.differs() { Err(self.refused(name)) } else { Ok(()) }
    }

    /// A place or a distance of the sample's image in the field's image.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is not a whole number of pixels.
    pub(super) fn scaled(&self, name: &'static str, px: [i32; 2]) -> Result<[i32; 2]> {
        let axis = |px: i32, own: u32, image: u32| {
            let product = i64::from(px) * i64::from(own);
            let whole = product % i64::from(image) == 0;
            let scaled = i32::try_from(product / i64::from(image)).ok().filter(|_| whole);
            scaled.ok_or_else(|| self.refused(name))
        };
        let [x, y] = px;
        Ok([axis(x, self.own.width, self.image.width)?, axis(y, self.own.height, self.image.height)?])
    }

    /// Distances along the sample's image, which may be fractions, in the field's image.
    pub(super) fn scaled_by_ratio(&self, [across, down]: [f64; 2]) -> [f64; 2] {
        let axis = |px: f64, own: u32, image: u32| px * f64::from(own) / f64::from(image);
        [axis(across, self.own.width, self.image.width), axis(down, self.own.height, self.image.height)]
    }

    /// A size of the sample's image for the field's image.
    ///
    /// # Errors
    /// See [`scaled`](Self::scaled).
    pub(super) fn scaled_size(&self, name: &'static str, size: Size) -> Result<Size> {
        let side = |px: u32| i32::try_from(px).map_err(|_| self.refused(name));
        let [width, height] = self.scaled(name, [side(size.width)?, side(size.height)?])?;
        Ok(Size::new(width as u32, height as u32))
    }

    /// A rectangle of the sample's image in the field's image.
    ///
    /// # Errors
    /// See [`scaled`](Self::scaled).
    pub(super) fn scaled_rect(&self, name: &'static str, rect: Rect) -> Result<Rect> {
        let start = self.scaled_size(name, Size::new(rect.x, rect.y))?;
        let size = self.scaled_size(name, rect.size())?;
        Ok(Rect { x: start.width, y: start.height, width: size.width, height: size.height })
    }

    fn refused(&self, name: &'static str) -> Error {
        Error::Unsupported {
            feature: format!("{name} of a {} image with an auxiliary image of {}", self.image, self.own),
            remedy:
                "both must move by whole pixels: flip, crop, pad and resize by multiples of the ratio, or bring the \
                     auxiliary image to the image's size before"
                    .to_owned(),
        }
    }
}
