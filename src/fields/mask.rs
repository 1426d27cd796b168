//! Masks: a number for each pixel, or a bit for each pixel and object.

use super::keep_rows;
use super::region::{Region, around};
use crate::error::{Error, Result};
use crate::interpolation::Interpolation;
use crate::os::memory;
use crate::raster::Size;
use bytemuck::Zeroable;
use std::sync::Arc;

/// The values of a mask's pixels, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaskValues {
    /// 8 bits a pixel.
    U8(Vec<u8>),
    /// 16 bits a pixel.
    U16(Vec<u16>),
}

impl MaskValues {
    /// Number of pixels.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::U16(values) => values.len(),
        }
    }

    /// The values of 8 bits; `None` if they have 16.
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::U8(values) = self { Some(values) } else { None }
    }

    /// Whether there is no pixel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for MaskValues {
    fn from(values: Vec<u8>) -> Self {
        Self::U8(values)
    }
}

impl From<Vec<u16>> for MaskValues {
    fn from(values: Vec<u16>) -> Self {
        Self::U16(values)
    }
}

/// A mask of an image: one plane of classes or ids, or a plane of 0 and 1 for each object. Operations move it as the
/// image, by the nearest pixel: values are never mixed. A mask is never changed, so copies share its memory.
///
/// ```
/// use warpfeed::{fields::Mask, image::Size};
///
/// let mask = Mask::new(Size::new(3, 2), vec![0_u8, 7, 7, 0, 0, 255])?.with_fill(255);
/// assert_eq!((mask.size(), mask.fill(), mask.is_of_objects()), (Size::new(3, 2), 255, false));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Mask {
    size: Size,
    planes: Vec<Arc<MaskValues>>,
    kind: Kind,
    fill: u16,
}

/// Meaning of a mask's planes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// One plane of classes or ids.
    OfImage,
    /// A plane of 0 and 1 for each object.
    OfObjects,
    /// The channels of an auxiliary image ([`AuxImage`](super::AuxImage)), with its filter.
    Aux(Option<Interpolation>),
}

impl Mask {
    /// A mask of the image: a class or an id for each pixel, row by row. Outside it is 0.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless there is a value for each of one pixel or more.
    pub fn new(size: Size, values: impl Into<MaskValues>) -> Result<Self> {
        let values = values.into();
        check(size, values.len())?;
        Ok(Self { size, planes: vec![Arc::new(values)], kind: Kind::OfImage, fill: 0 })
    }

    /// A mask for each object: for each pixel, row by row, 0 or another number if it is the object's, which becomes 1.
    /// Outside it is 0.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless each mask has a value for each of one pixel or more.
    pub fn of_objects(size: Size, planes: impl IntoIterator<Item = Vec<u8>>) -> Result<Self> {
        let mut own = Vec::new();
        for mut plane in planes {
            check(size, plane.len())?;
            plane.iter_mut().for_each(|value| *value = u8::from(*value != 0));
            own.push(Arc::new(MaskValues::U8(plane)));
        }
        Ok(Self { size, planes: own, kind: Kind::OfObjects, fill: 0 })
    }

    /// A mask of planes that have as many values as the size has pixels, and 8 bits if they are several.
    pub(super) fn of_planes(size: Size, planes: Vec<MaskValues>, kind: Kind, fill: u16) -> Self {
        Self { size, planes: planes.into_iter().map(Arc::new).collect(), kind, fill }
    }

    /// A mask of these planes as another kind.
    pub(super) fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Meaning of the planes.
    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Sets the value outside the image, which rotations and padding bring into view: 255 where a training ignores it.
    #[must_use]
    pub fn with_fill(mut self, fill: u16) -> Self {
        self.fill = fill;
        self
    }

    /// The size in pixels.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// The value outside the image.
    #[must_use]
    pub const fn fill(&self) -> u16 {
        self.fill
    }

    /// Whether each plane belongs to an object, not to the image.
    #[must_use]
    pub const fn is_of_objects(&self) -> bool {
        matches!(self.kind, Kind::OfObjects)
    }

    /// The planes: one, or one for each object.
    #[must_use]
    pub fn planes(&self) -> &[Arc<MaskValues>] {
        &self.planes
    }

    /// The error for a mask of size `got` on an image of size `image`.
    pub(crate) fn unfit(got: Size, image: Size) -> Error {
        Error::unfit("fields", format!("the mask is {got}, and its image {image}"))
    }

    /// This mask with planes of another size.
    pub(crate) fn with_planes(&self, size: Size, planes: Vec<MaskValues>) -> Self {
        Self { size, planes: planes.into_iter().map(Arc::new).collect(), ..*self }
    }

    /// A larger mask with this one in it, whose upper left value is at column and row `at`. The other values are the
    /// fill.
    ///
    /// # Errors
    /// The errors of [`check_objects`]; [`Error::OutOfMemory`] if the memory is refused.
    pub(super) fn placed(&self, size: Size, at: [u32; 2]) -> Result<Self> {
        fn plane<T: Copy + Zeroable>(values: &[T], sizes: [Size; 2], at: [u32; 2], fill: T) -> Result<Vec<T>> {
            let mut placed = empty_plane(sizes[1])?;
            placed.fill(fill);
            copy(values, &mut placed, sizes, at);
            Ok(placed)
        }
        self.check_moved(size)?;
        let sizes = [self.size, size];
        let placed = self.planes.iter().map(|values| {
            Ok(match &**values {
                MaskValues::U8(values) => MaskValues::U8(plane(values, sizes, at, self.fill as u8)?),
                MaskValues::U16(values) => MaskValues::U16(plane(values, sizes, at, self.fill)?),
            })
        });
        Ok(self.with_planes(size, placed.collect::<Result<_>>()?))
    }

    /// Checks that this mask may become one of another size.
    ///
    /// # Errors
    /// The errors of [`check_objects`].
    pub(crate) fn check_moved(&self, size: Size) -> Result<()> {
        if self.is_of_objects() { check_objects(self.planes.len(), size) } else { Ok(()) }
    }

    /// This mask, the field `name`, in the upper left corner of one of size `size`, whose other values are the fill.
    ///
    /// # Errors
    /// [`Error::Parameter`] if this mask is larger.
    pub(super) fn padded(&self, name: &str, size: Size) -> Result<Self> {
        if self.size.width > size.width || self.size.height > size.height {
            let expected = format!("at least {}, that of the field {name}", self.size);
            return Err(Error::parameter("BatchFields", "size", expected, size));
        }
        self.placed(size, [0; 2])
    }

    /// Adds the planes of other objects, of the same size, after these.
    ///
    /// # Errors
    /// The errors of [`check_objects`].
    pub(super) fn append(&mut self, other: &Self) -> Result<()> {
        check_objects(self.planes.len() + other.planes.len(), self.size)?;
        self.planes.extend_from_slice(&other.planes);
        Ok(())
    }

    /// Overwrites the part of an image's mask that begins at column and row `at`. False if the other has not as many
    /// bits.
    pub(super) fn paste(&mut self, other: &Self, at: [u32; 2]) -> bool {
        let sizes = [other.size, self.size];
        let (Some(to), Some(from)) = (self.planes.first_mut(), other.planes.first()) else { return false };
        match (Arc::make_mut(to), &**from) {
            (MaskValues::U8(to), MaskValues::U8(from)) => copy(from, to, sizes, at),
            (MaskValues::U16(to), MaskValues::U16(from)) => copy(from, to, sizes, at),
            _ => return false,
        }
        true
    }

    /// Overwrites the pixels of an image's mask that are in a region by those of another, of the same size. False if
    /// the other has not as many bits.
    pub(super) fn paste_region(&mut self, other: &Self, region: &Region) -> bool {
        fn paste<T: Copy>(to: &mut [T], from: &[T], region: &Region) {
            let pixels = to.iter_mut().zip(from).zip(region.pixels());
            pixels.filter(|(_, inside)| **inside).for_each(|((to, from), _)| *to = *from);
        }
        let (Some(to), Some(from)) = (self.planes.first_mut(), other.planes.first()) else { return false };
        match (Arc::make_mut(to), &**from) {
            (MaskValues::U8(to), MaskValues::U8(from)) => paste(to, from, region),
            (MaskValues::U16(to), MaskValues::U16(from)) => paste(to, from, region),
            _ => return false,
        }
        true
    }

    /// Takes the pixels of a region from all objects. Returns the box of each object's remainder: left, top, right,
    /// bottom.
    pub(super) fn cut_out(&mut self, region: &Region) -> Vec<Option<[f32; 4]>> {
        let width = self.size.width as usize;
        let cut = |plane: &mut Arc<MaskValues>| {
            let MaskValues::U8(values) = Arc::make_mut(plane) else { return None };
            let inside = values.iter_mut().zip(region.pixels()).filter(|(_, inside)| **inside);
            inside.for_each(|(value, _)| *value = 0);
            let [columns, rows] = around(values, width)?;
            Some([columns.start, rows.start, columns.end, rows.end].map(|side| side as f32))
        };
        self.planes.iter_mut().map(cut).collect()
    }

    /// Marks the pixels of all objects.
    pub(super) fn add_to(&self, pixels: &mut [bool]) {
        for plane in &self.planes {
            if let MaskValues::U8(values) = &**plane {
                pixels.iter_mut().zip(values).for_each(|(pixel, value)| *pixel |= *value != 0);
            }
        }
    }

    pub(super) fn keep(&mut self, kept: &[bool]) {
        keep_rows(&mut self.planes, kept);
    }
}

/// Copies a plane into a larger one, so that its upper left value is at column `x` and row `y`. `sizes` are those of
/// the two planes.
fn copy<T: Copy>(from: &[T], to: &mut [T], sizes: [Size; 2], [x, y]: [u32; 2]) {
    let [from_width, to_width] = sizes.map(|size| size.width as usize);
    let rows = to.chunks_exact_mut(to_width).skip(y as usize);
    for (to, row) in rows.zip(from.chunks_exact(from_width)) {
        to[x as usize..][..row.len()].copy_from_slice(row);
    }
}

/// Largest number of bytes of the masks of an image's objects, a byte for each object and pixel.
const MAX_OBJECTS_BYTES: u64 = 1 << 30;

/// Refuses masks that would fill the memory because of their number of objects, before any of them is made.
///
/// # Errors
/// [`Error::Limits`], which is a bad sample.
pub(crate) fn check_objects(objects: usize, size: Size) -> Result<()> {
    let bytes = size.area_px().saturating_mul(objects as u64);
    if bytes <= MAX_OBJECTS_BYTES {
        return Ok(());
    }
    Err(Error::Limits {
        what: "size in bytes of the masks of an image's objects",
        got: bytes,
        limit: MAX_OBJECTS_BYTES,
        remedy: "make the image smaller, join objects, or leave the masks out",
    })
}

/// A plane of zeros.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub(crate) fn empty_plane<T: Zeroable>(size: Size) -> Result<Vec<T>> {
    memory::zeros(usize::try_from(size.area_px()).unwrap_or(usize::MAX), "a mask", memory::FEWER_IMAGES)
}

fn check(size: Size, len: usize) -> Result<()> {
    if size.is_empty() || size.area_px() != len as u64 {
        let expected = format!("one for each of {size} pixels, at least one");
        return Err(Error::parameter("mask", "values", expected, len));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_many_objects_are_refused_before_they_are_made() {
        let size = Size::new(1 << 10, 1 << 10);
        check_objects(1 << 10, size).unwrap();
        for (objects, size) in
            [(1025, size), (2, Size::new(1 << 15, 1 << 15)), (usize::MAX, Size::new(u32::MAX, u32::MAX))]
        {
            let error = check_objects(objects, size).unwrap_err();
            assert!(error.is_bad_sample() && error.to_string().contains("masks of an image's objects"), "{error}");
        }
        // Few bytes, but for a resize.
        let mut mask = Mask::of_objects(Size::new(2, 2), vec![vec![1; 4]; 600]).unwrap();
        mask.check_moved(size).unwrap();
        assert!(mask.clone().placed(Size::new(1 << 11, 1 << 11), [0; 2]).is_err());
        let planes = mask.planes.clone();
        mask.planes.extend(planes);
        assert!(mask.check_moved(size).is_err());
        Mask::new(Size::new(2, 2), vec![1_u8; 4]).unwrap().check_moved(Size::new(1 << 11, 1 << 11)).unwrap();
    }
}
