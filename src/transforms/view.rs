//! Borrowed pixels that are read.

use super::strides::{Form, Strides};
use crate::error::{Error, Result};
use crate::ops::check::MAX_SIDE_PX;
use crate::ops::values::PixelValues;
use crate::raster::{Image, Pixel, Rect, Size};
use crate::tensor::Layout;
use std::fmt;
use warpfeed_image::planes::{Element, PixelKind, Planes, Value};
use warpfeed_image::{layout, with_element};

/// Borrowed pixels: an image in the caller's memory, `[H, W, C]` or `[C, H, W]`, with strides.
///
/// Values of 8 bits with 1 or 3 channels are gray or RGB, and any operation takes them; gray is read as RGB with three
/// equal channels. Other images have `u8`, `u16` or `f32` values and 1 to 64 channels, and operations on them are those
/// of a pipeline for [such images](crate::PipelineBuilder::pixels).
///
/// ```
/// use warpfeed::image::Size;
/// use warpfeed::ops::{Op, Vflip};
/// use warpfeed::transforms::{View, ViewMut};
///
/// // The left half of a picture of 4 x 2 pixels.
/// let rgb: Vec<u8> = (0..24).collect();
/// let half = View::hwc(&rgb, Size::new(2, 2), 3)?.strides([12, 3, 1])?;
/// let mut out = [0_u8; 12];
/// Op::from(Vflip).apply_to(half, ViewMut::chw(&mut out, Size::new(2, 2), 3)?)?;
/// assert_eq!(out, [12, 15, 0, 3, 13, 16, 1, 4, 14, 17, 2, 5]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The values, which are aligned for their type.
    pub(super) bytes: &'a [u8],
    pub(super) element: Element,
    pub(super) form: Form,
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("kind", &self.kind()).field("form", &self.form).finish_non_exhaustive()
    }
}

impl<'a> View<'a> {
    /// Pixels whose channels lie next to each other, row by row: `[H, W, C]` without gaps. `values` may be longer.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the image is empty or has no, or more than 64, channels, or if `values` is too short.
    pub fn hwc<T: Value>(values: &'a [T], size: Size, channels: usize) -> Result<Self> {
        Self::new(values, size, channels, Layout::Nhwc)
    }

    /// Planes, one for each channel: `[C, H, W]` without gaps. `values` may be longer.
    ///
    /// # Errors
    /// See [`hwc`](Self::hwc).
    pub fn chw<T: Value>(values: &'a [T], size: Size, channels: usize) -> Result<Self> {
        Self::new(values, size, channels, Layout::Nchw)
    }

    fn new<T: Value>(values: &'a [T], size: Size, channels: usize, layout: Layout) -> Result<Self> {
        let form = Form::new("View", values.len(), size, channels, layout)?;
        Ok(Self { bytes: bytemuck::cast_slice(values), element: T::ELEMENT, form })
    }

    /// Sets the distances between neighbors, in elements, in the order of the dimensions: row, column and channel after
    /// [`hwc`](Self::hwc), channel, row and column after [`chw`](Self::chw). Rows, columns and channels may be left
    /// out and repeated that way.
    ///
    /// # Errors
    /// [`Error::Parameter`] for negative strides (copy the image in the order in which it is to be read), and for
    /// strides that lead beyond the slice.
    pub fn strides(self, strides: [i64; 3]) -> Result<Self> {
        let len = self.bytes.len() / self.element.size_bytes();
        Ok(Self { form: self.form.strided(len, strides)?, ..self })
    }

    /// The stored pixels of an image, as RGB.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the image is empty.
    pub fn of_image(image: &'a Image) -> Result<Self> {
        Self::pixels(image.pixels(), image.size())
    }

    /// RGB pixels of four bytes, row by row without gaps, as Pillow and [`Image`] have them. `pixels` may be longer.
    ///
    /// ```
    /// use warpfeed::image::Size;
    /// use warpfeed::ops::{Hflip, Op};
    /// use warpfeed::transforms::{View, ViewMut};
    ///
    /// let (size, pixels) = (Size::new(2, 1), [[1, 2, 3, 255], [4, 5, 6, 255]]);
    /// let mut mirrored = [[0; 4]; 2];
    /// Op::from(Hflip).apply_to(View::pixels(&pixels, size)?, ViewMut::pixels(&mut mirrored, size)?)?;
    /// assert_eq!(mirrored, [[4, 5, 6, 255], [1, 2, 3, 255]]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] if the image is empty, or if `pixels` is too short.
    pub fn pixels(pixels: &'a [Pixel], size: Size) -> Result<Self> {
        let form = Form::of_pixels("View", pixels.len(), size)?;
        Ok(Self { bytes: pixels.as_flattened(), element: Element::U8, form })
    }

    /// The values at `form` in bytes that are aligned for their type.
    pub(super) fn of_bytes(bytes: &'a [u8], element: Element, form: Form) -> Self {
        Self { bytes, element, form }
    }

    /// Width and height in pixels.
    #[must_use]
    pub fn size(&self) -> Size {
        self.form.size
    }

    /// The type of the values, and the number of channels.
    #[must_use]
    pub fn kind(&self) -> PixelKind {
        PixelKind { element: self.element, channels: self.form.channels }
    }

    /// The values, if they are not read as RGB of 8 bits.
    pub(super) fn values(&self) -> Option<PixelValues> {
        let is_rgb = self.element == Element::U8 && matches!(self.form.channels, 1 | 3);
        (!is_rgb).then(|| PixelValues::of(self.kind()))
    }

    /// The bytes of the values, and their form.
    pub(super) fn parts(&self) -> (&'a [u8], Form) {
        (self.bytes, self.form)
    }

    /// Copies a part of gray or RGB bytes into an image.
    pub(super) fn to_image(self, part: Rect, out: &mut Image) -> Result<()> {
        let Form { size, channels, strides: Strides { column, channel, .. }, .. } = self.form;
        out.reserve(part.size())?;
        out.reset_part(size, part);
        let width = part.width as usize;
        for y in 0..part.height {
            let start = |channel: usize| self.form.place(part.x as usize, (part.y + y) as usize, channel);
            let (bytes, to) = (self.bytes, out.row_mut(y));
            let plane = |channel: usize| &bytes[start(channel)..][..width];
            match (channels, column, channel) {
                (3, 3, 1) => layout::triples_to_pixels(&bytes[start(0)..][..3 * width], to),
                (3, 1, _) => layout::planes_to_pixels([plane(0), plane(1), plane(2)], to),
                (1, 1, _) => layout::planes_to_pixels([plane(0); 3], to),
                (3, 4, 1) if bytes.len() >= start(0) + 4 * width => {
                    let (pixels, _) = bytes[start(0)..][..4 * width].as_chunks::<4>();
                    to.iter_mut().zip(pixels).for_each(|(to, &[r, g, b, _])| *to = [r, g, b, 255]);
                }
                _ => {
                    let from: [usize; 3] = std::array::from_fn(|c| start(if channels == 1 { 0 } else { c }));
                    for (x, to) in to.iter_mut().enumerate() {
                        let [r, g, b] = from.map(|start| bytes[start + x * column]);
                        *to = [r, g, b, 255];
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies a part into planes.
    pub(super) fn to_planes(self, part: Rect, out: &mut Planes) -> Result<()> {
        out.reset_part(self.kind(), self.form.size, part)?;
        with_element!(self.element, T => self.copy_planes::<T>(part, out));
        Ok(())
    }

    fn copy_planes<T: Value>(self, part: Rect, out: &mut Planes) {
        let values: &[T] = bytemuck::cast_slice(self.bytes);
        let (width, column) = (part.width as usize, self.form.strides.column);
        for channel in 0..usize::from(self.form.channels) {
            let rows = out.plane_mut::<T>(channel).chunks_exact_mut(width);
            for (y, to) in (part.y as usize..).zip(rows) {
                let from = &values[self.form.place(part.x as usize, y, channel)..];
                if column == 1 {
                    to.copy_from_slice(&from[..width]);
                } else if column == 0 {
                    to.fill(from[0]);
                } else {
                    to.iter_mut().zip(from.iter().step_by(column)).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }
}

/// Checks an image's sides against the limit of all images.
pub(super) fn check_sides(size: Size) -> Result<()> {
    let longest = size.width.max(size.height);
    if longest <= MAX_SIDE_PX {
        return Ok(());
    }
    let (got, limit) = (u64::from(longest), u64::from(MAX_SIDE_PX));
    Err(Error::Limits { what: "a side in pixels", got, limit, remedy: "use a smaller image, or parts of it" })
}
