//! An operation on images in memory, for `warpfeed.functional`.

use crate::error::raise;
use crate::pillow::{PillowPixels, on_image};
use crate::views::each_image;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use warpfeed::Result;
use warpfeed::fields::{BoxFormat, Boxes, Clamping, Field, Fields, KeyPoints, PointConvention};
use warpfeed::image::Size;
use warpfeed::ops::{Interpolation, Op};
use warpfeed::transforms::{Transforms, displace as displace_image};

/// Rows after an operation, and the height and width of the image that they are of.
type Moved<const N: usize> = (Vec<[f32; N]>, (u32, u32));

/// An operation.
#[pyclass(frozen)]
pub(crate) struct Operation(pub(crate) Op);

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
        each_image(py, images, out, channels_first, 1, |_, image, out| self.0.apply_to(image, out))
    }

    /// The result of the operation on an image of Pillow's in the mode RGB or L, of this width and height, in the same
    /// mode. `None` if its memory is not to be had.
    fn on_pillow(
        &self,
        image: &Bound<'_, PyAny>,
        is_gray: bool,
        width: u32,
        height: u32,
    ) -> PyResult<Option<(PillowPixels, (u32, u32))>> {
        let size = Size::new(width, height);
        let after = self.0.output_size(size).map_err(raise)?;
        let made = on_image(image, is_gray, [size, after], |image, out| self.0.apply_to(image, out))?;
        Ok(made.map(|made| (made, (after.width, after.height))))
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
        let boxes = boxes_of(rows, format, clamping);
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

/// Takes each pixel from its place plus a displacement, pairs (x, y) in pixels in an array [H, W, 2]: from an array of
/// images [N, C, H, W], or [N, H, W, C], to another of the same type.
#[pyfunction]
pub(crate) fn displace(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    channels_first: bool,
    displacement: &Bound<'_, PyAny>,
    bilinear: bool,
    fill: Option<Vec<f32>>,
) -> PyResult<()> {
    let displacement = PyBuffer::<f32>::get(displacement)?.to_vec(py)?;
    let (pairs, _) = displacement.as_chunks::<2>();
    let filter = if bilinear { Interpolation::Bilinear } else { Interpolation::Nearest };
    each_image(py, images, out, channels_first, 1, |_, image, out| {
        displace_image(image, pairs, filter, fill.as_deref(), out)
    })
}

impl Operation {
    fn moved(&self, fields: Result<Fields>, height: u32, width: u32) -> Result<(Fields, (u32, u32))> {
        let size = Size::new(width, height);
        let alone = Transforms::new([self.0.clone()])?;
        let moved = alone.move_fields(std::slice::from_ref(&self.0), size, &fields?)?;
        let after = self.0.output_size(size)?;
        Ok((moved, (after.height, after.width)))
    }
}

/// Boxes of a format, clamped softly or not at all.
pub(crate) fn boxes_of(rows: Vec<[f32; 4]>, format: &str, clamping: Option<&str>) -> Boxes {
    let format = match format {
        "xyxy" => BoxFormat::Xyxy,
        "xywh" => BoxFormat::Xywh,
        _ => BoxFormat::Cxcywh,
    };
    Boxes::new(format, rows).with_clamping(if clamping == Some("soft") { Clamping::Soft } else { Clamping::None })
}
