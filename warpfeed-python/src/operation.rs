//! An operation on images in memory, for `warpfeed.functional`.

use crate::ending::detached;
use crate::error::raise;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use warpfeed::Result;
use warpfeed::fields::{BoxFormat, Boxes, Clamping, Field, Fields, KeyPoints, PointConvention};
use warpfeed::image::Size;
use warpfeed::image::planes::Value;
use warpfeed::ops::Op;
use warpfeed::transforms::{Transforms, View, ViewMut};

/// Rows after an operation, and the height and width of the image that they are of.
type Moved<const N: usize> = (Vec<[f32; N]>, (u32, u32));

/// An operation.
#[pyclass(frozen)]
pub(crate) struct Operation(Op);

#[pymethods]
impl Operation {
    /// Reads the written form of an operation, in JSON.
    #[new]
    fn new(written: &str) -> PyResult<Self> {
        serde_json::from_str(written).map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Height and width of the result for an image of this height and width.
    fn output_size(&self, height: u32, width: u32) -> PyResult<(u32, u32)> {
        let size = self.0.output_size(Size::new(width, height)).map_err(raise)?;
        Ok((size.height, size.width))
    }

    /// Runs the operation on images: from an array [N, C, H, W], or [N, H, W, C], to another of the same type.
    fn run(
        &self,
        py: Python<'_>,
        images: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        channels_first: bool,
    ) -> PyResult<()> {
        if let Ok(images) = PyBuffer::<u8>::get(images) {
            self.run_on(py, &images, out, channels_first)
        } else if let Ok(images) = PyBuffer::<u16>::get(images) {
            self.run_on(py, &images, out, channels_first)
        } else if let Ok(images) = PyBuffer::<f32>::get(images) {
            self.run_on(py, &images, out, channels_first)
        } else {
            Err(PyTypeError::new_err("images must be an array of uint8, uint16 or float32"))
        }
    }

    /// Moves boxes along.
    fn boxes(
        &self,
        rows: Vec<[f32; 4]>,
        format: &str,
        clamping: Option<&str>,
        height: u32,
        width: u32,
    ) -> PyResult<Moved<4>> {
        let format = match format {
            "xyxy" => BoxFormat::Xyxy,
            "xywh" => BoxFormat::Xywh,
            _ => BoxFormat::Cxcywh,
        };
        let clamping = if clamping == Some("soft") { Clamping::Soft } else { Clamping::None };
        let boxes = Boxes::new(format, rows).with_clamping(clamping);
        let (fields, size) = self.moved(Fields::new().with("boxes", boxes), height, width).map_err(raise)?;
        Ok((fields.boxes().map(|boxes| boxes.rows().to_vec()).unwrap_or_default(), size))
    }

    /// Moves points along, whose whole numbers are centers of pixels.
    fn points(&self, rows: Vec<[f32; 2]>, height: u32, width: u32) -> PyResult<Moved<2>> {
        let points = KeyPoints::of_image(rows).with_convention(PointConvention::PixelIndex);
        let (fields, size) = self.moved(Fields::new().with("keypoints", points), height, width).map_err(raise)?;
        let rows = match fields.get("keypoints") {
            Some(Field::KeyPoints(points)) => points.points().to_vec(),
            _ => Vec::new(),
        };
        Ok((rows, size))
    }
}

impl Operation {
    fn moved(&self, fields: Result<Fields>, height: u32, width: u32) -> Result<(Fields, (u32, u32))> {
        let size = Size::new(width, height);
        let alone = Transforms::new([self.0.clone()])?;
        let moved = alone.move_fields(std::slice::from_ref(&self.0), size, &fields?)?;
        let after = self.0.output_size(size)?;
        Ok((moved, (after.height, after.width)))
    }

    fn run_on<T: Element + Value + warpfeed::Element>(
        &self,
        py: Python<'_>,
        images: &PyBuffer<T>,
        out: &Bound<'_, PyAny>,
        channels_first: bool,
    ) -> PyResult<()> {
        let mut out =
            PyBuffer::<T>::get(out).map_err(|_| PyTypeError::new_err("the output must have the type of the images"))?;
        if out.readonly() {
            return Err(PyValueError::new_err("the output must be writable"));
        }
        let from = Images::of(images, channels_first)?;
        let to = Images::of(&out, channels_first)?;
        if from.number != to.number {
            return Err(PyValueError::new_err("the output must have the number of the images"));
        }
        let (values, results) = (values(images, &from), values_mut(&mut out, &to));
        detached(py, || {
            for i in 0..from.number {
                let (values, results) = (&values[i * from.step..], &mut results[i * to.step..]);
                let (view, out) = if channels_first {
                    (View::chw(values, from.size, from.channels)?, ViewMut::chw(results, to.size, to.channels)?)
                } else {
                    (View::hwc(values, from.size, from.channels)?, ViewMut::hwc(results, to.size, to.channels)?)
                };
                self.0.apply_to(view.strides(from.strides)?, out.strides(to.strides)?)?;
            }
            Ok(())
        })
        .map_err(raise)
    }
}

/// The form of an array of images. Lengths and distances are in elements.
struct Images {
    number: usize,
    /// From one image to the next.
    step: usize,
    size: Size,
    channels: usize,
    /// In the order of an image's dimensions.
    strides: [i64; 3],
    /// From the first value to the last, both included.
    len: usize,
}

impl Images {
    /// # Errors
    /// `ValueError` for an array that has not four dimensions, that is empty or huge, or whose strides are negative.
    fn of<T: Element>(buffer: &PyBuffer<T>, channels_first: bool) -> PyResult<Self> {
        let wrong =
            || PyValueError::new_err("images must be a non-empty array of four dimensions and positive strides");
        let (&[number, a, b, c], strides) = (buffer.shape(), buffer.strides()) else { return Err(wrong()) };
        let mut steps = [0; 4];
        let mut len = 1_usize;
        for ((step, stride), dimension) in steps.iter_mut().zip(strides).zip([number, a, b, c]) {
            *step = usize::try_from(*stride).map_err(|_| wrong())?;
            if dimension == 0 || *step % size_of::<T>() != 0 {
                return Err(wrong());
            }
            *step /= size_of::<T>();
            len = (dimension - 1).checked_mul(*step).and_then(|last| len.checked_add(last)).ok_or_else(wrong)?;
        }
        if !(buffer.buf_ptr() as usize).is_multiple_of(align_of::<T>()) {
            return Err(PyValueError::new_err("values must be aligned"));
        }
        let (channels, height, width) = if channels_first { (a, b, c) } else { (c, a, b) };
        let side = |side: usize| u32::try_from(side).map_err(|_| wrong());
        let size = Size::new(side(width)?, side(height)?);
        let strides = [steps[1] as i64, steps[2] as i64, steps[3] as i64];
        Ok(Self { number, step: steps[0], size, channels, strides, len })
    }
}

/// The values of images, with what lies between them.
#[allow(unsafe_code)]
fn values<'a, T: Element>(buffer: &'a PyBuffer<T>, images: &Images) -> &'a [T] {
    // SAFETY: the buffer is exported as long as it is borrowed; its pointer is aligned, and its last element is at
    // `images.len - 1`, by its own shape and strides. Its owner must not change it while it is read, as with every
    // library that reads buffers.
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), images.len) }
}

/// The memory of results, with what lies between them, which is not written.
#[allow(unsafe_code)]
fn values_mut<'a, T: Element>(buffer: &'a mut PyBuffer<T>, images: &Images) -> &'a mut [T] {
    // SAFETY: as in `values`; the buffer is writable, and Python made it for this call.
    unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast(), images.len) }
}
