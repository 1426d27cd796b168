//! Borrowed pixels that are written.

use super::strides::{Form, Strides};
use super::view::View;
use crate::backend::{PixelForm, Strides as RowsAndPlanes};
use crate::error::{Error, Result};
use crate::raster::{Pixel, Size};
use crate::tensor::{DType, Element, Layout};
use std::fmt;
use warpfeed_image::planes::Element as ValueType;

/// Borrowed pixels that a result is written to: the caller's memory, `[H, W, C]` or `[C, H, W]`, with strides.
///
/// The type of the elements says what is written: `u8` and `u16` take values as they are, floating-point numbers take
/// normalized ones, or, without a normalization, values of 0 to 1. With one channel, RGB becomes gray.
///
/// ```
/// use warpfeed::image::Size;
/// use warpfeed::ops::{Hflip, Normalize, Op};
/// use warpfeed::transforms::{View, ViewMut};
///
/// let (size, gray) = (Size::new(2, 1), [0_u8, 255]);
/// let mut planes = [0.0_f32; 6];
/// let half = Normalize::new([0.5; 3], [0.5; 3]);
/// Op::from(half).apply_to(View::hwc(&gray, size, 1)?, ViewMut::chw(&mut planes, size, 3)?)?;
/// assert_eq!(planes, [-1.0, 1.0, -1.0, 1.0, -1.0, 1.0]);
///
/// let mut bytes = [10_u8, 20];
/// Op::from(Hflip).apply_in_place(ViewMut::hwc(&mut bytes, size, 1)?)?;
/// assert_eq!(bytes, [20, 10]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub struct ViewMut<'a> {
    /// The elements, which are aligned for their type.
    pub(super) bytes: &'a mut [u8],
    dtype: DType,
    pub(super) form: Form,
}

impl fmt::Debug for ViewMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewMut").field("dtype", &self.dtype).field("form", &self.form).finish_non_exhaustive()
    }
}

impl<'a> ViewMut<'a> {
    /// Pixels whose channels lie next to each other, row by row: `[H, W, C]` without gaps. `elements` may be longer.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the image is empty or has no, or more than 64, channels, or if `elements` is too short.
    pub fn hwc<T: Element>(elements: &'a mut [T], size: Size, channels: usize) -> Result<Self> {
        Self::new(elements, size, channels, Layout::Nhwc)
    }

    /// Planes, one for each channel: `[C, H, W]` without gaps. `elements` may be longer.
    ///
    /// # Errors
    /// See [`hwc`](Self::hwc).
    pub fn chw<T: Element>(elements: &'a mut [T], size: Size, channels: usize) -> Result<Self> {
        Self::new(elements, size, channels, Layout::Nchw)
    }

    fn new<T: Element>(elements: &'a mut [T], size: Size, channels: usize, layout: Layout) -> Result<Self> {
        let form = Form::new("ViewMut", elements.len(), size, channels, layout)?;
        Ok(Self { bytes: bytemuck::cast_slice_mut(elements), dtype: T::DTYPE, form })
    }

    /// RGB pixels of four bytes, row by row without gaps, as Pillow and [`Image`](crate::image::Image) have them. `pixels`
    /// may be longer. Fourth bytes become 255, or those of a [`View`] of such pixels, where pixels are only copied. See
    /// [`View::pixels`] for an example.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the image is empty, or if `pixels` is too short.
    pub fn pixels(pixels: &'a mut [Pixel], size: Size) -> Result<Self> {
        let form = Form::of_pixels("ViewMut", pixels.len(), size)?;
        Ok(Self { bytes: pixels.as_flattened_mut(), dtype: DType::U8, form })
    }

    /// Writes 255 to the fourth bytes of pixels.
    pub(super) fn end_pixels(&mut self) {
        let pixels = self.form.len() / 4;
        self.bytes.as_chunks_mut::<4>().0[..pixels].iter_mut().for_each(|pixel| pixel[3] = 255);
    }

    /// An image of a tensor. `bytes` are aligned for their type.
    pub(super) fn of_tensor(bytes: &'a mut [u8], size: Size, elements: PixelForm) -> Result<Self> {
        let PixelForm { dtype, layout, channels } = elements;
        let form = Form::new("tensor", bytes.len() / dtype.size_bytes(), size, channels, layout)?;
        Ok(Self { bytes, dtype, form })
    }

    /// Sets the distances between neighbors, in elements, in the order of the dimensions: row, column and channel after
    /// [`hwc`](Self::hwc), channel, row and column after [`chw`](Self::chw).
    ///
    /// # Errors
    /// [`Error::Parameter`] for negative strides, for strides that lead beyond the slice, and for those with which two
    /// values might have the same place.
    pub fn strides(self, strides: [i64; 3]) -> Result<Self> {
        let len = self.bytes.len() / self.dtype.size_bytes();
        Ok(Self { form: self.form.strided(len, strides)?.apart()?, ..self })
    }

    /// Width and height in pixels.
    #[must_use]
    pub fn size(&self) -> Size {
        self.form.size
    }

    /// Number of channels.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.form.channels.into()
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes of the elements, and their form.
    pub(super) fn parts(&mut self) -> (&mut [u8], Form) {
        (self.bytes, self.form)
    }

    /// A view that reads the same pixels.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for 16-bit floating-point numbers.
    pub(super) fn as_view(&self) -> Result<View<'_>> {
        let element = match self.dtype {
            DType::U8 => ValueType::U8,
            DType::U16 => ValueType::U16,
            DType::F32 => ValueType::F32,
            DType::F16 | DType::Bf16 => {
                return Err(Error::Unsupported {
                    feature: format!("operations on images of {}", self.dtype),
                    remedy: "convert the image to f32, or to bytes".to_owned(),
                });
            }
        };
        Ok(View::of_bytes(self.bytes, element, self.form))
    }

    /// The form of the elements, and the strides in which they can be written row by row. `None` for other strides.
    pub(super) fn rows(&self) -> (PixelForm, Option<RowsAndPlanes>) {
        let Form { size, channels, layout, strides: Strides { row, column, channel }, .. } = self.form;
        let (width, height, channels) = (size.width as usize, size.height as usize, usize::from(channels));
        // Columns next to each other are planes, whatever the layout is called.
        let planes = column == 1 && row >= width && (channels == 1 || channel >= (height - 1) * row + width);
        let packed = channel == 1 && column == channels && row >= channels * width;
        let form = |layout| PixelForm { dtype: self.dtype, layout, channels };
        let plane = if channels == 1 { 0 } else { channel as u64 };
        match u32::try_from(row) {
            Ok(row) if planes => (form(Layout::Nchw), Some(RowsAndPlanes { plane, row })),
            Ok(row) if packed => (form(Layout::Nhwc), Some(RowsAndPlanes { plane: 0, row })),
            _ => (form(layout), None),
        }
    }

    /// Writes an image without gaps to the places of this one. `elements` is its form.
    pub(super) fn scatter(self, from: &[u8], elements: PixelForm) {
        match self.dtype.size_bytes() {
            1 => self.scatter_as::<u8>(from, elements),
            2 => self.scatter_as::<u16>(bytemuck::cast_slice(from), elements),
            _ => self.scatter_as::<u32>(bytemuck::cast_slice(from), elements),
        }
    }

    fn scatter_as<T: bytemuck::Pod>(self, from: &[T], elements: PixelForm) {
        let (form, to) = (self.form, bytemuck::cast_slice_mut::<u8, T>(self.bytes));
        let (width, height, channels) =
            (form.size.width as usize, form.size.height as usize, usize::from(form.channels));
        let [channel_step, column_step] = if elements.has_planes() { [width * height, 1] } else { [1, channels] };
        let row_step = if elements.has_planes() { width } else { width * channels };
        for y in 0..height {
            for channel in 0..channels {
                let from = from[y * row_step + channel * channel_step..].iter().step_by(column_step);
                let start = form.place(0, y, channel);
                (0..width).zip(from).for_each(|(x, from)| to[start + x * form.strides.column] = *from);
            }
        }
    }
}
