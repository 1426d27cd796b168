//! Random transforms on images in memory, for `warpfeed.transforms.Compose`.

use crate::ending::detached;
use crate::error::raise;
use crate::operation::boxes_of;
use crate::pillow::{PillowPixels, on_image};
use crate::views::each_image;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::sync::Arc;
use warpfeed::Pixels;
use warpfeed::fields::{Field, Fields, KeyPoints, Mask, MaskValues, PointConvention};
use warpfeed::image::Size;
use warpfeed::ops::{Op, TransformFile};
use warpfeed::transforms::{self, Key, TransformsOptions};

/// The field that numbers the objects, to tell which are left.
const ROWS: &str = "rows";
const POINTS: &str = "keypoints";
const MASK: &str = "mask";

/// A list of transforms for one kind of images.
#[pyclass(frozen)]
pub(crate) struct Transforms(Arc<transforms::Transforms>);

#[pymethods]
impl Transforms {
    /// Reads the written form of transforms, a JSON list. `pixels` is "rgb" for gray and RGB of 8 bits, or a kind.
    #[new]
    fn new(written: &str, pixels: &str, channels: usize, sanitize: bool) -> PyResult<Self> {
        let file = TransformFile::parse(written, "transforms").map_err(raise)?;
        let pixels: Pixels = pixels.parse().map_err(raise)?;
        let options = TransformsOptions::default().pixels(pixels).sanitize(sanitize);
        let options = if pixels == Pixels::Rgb { options.channels(channels) } else { options };
        Ok(Self(Arc::new(transforms::Transforms::from_file(file, &options).map_err(raise)?)))
    }

    /// Draws for an image of this height and width, and moves what belongs to it: boxes with their format and clamping,
    /// points with their number for each object (0 for points of the image), and masks of uint16: each is a plane of
    /// the image, or has a plane, of values to 255, for each object.
    #[allow(clippy::too_many_arguments)]
    fn draw(
        &self,
        py: Python<'_>,
        height: u32,
        width: u32,
        boxes: Option<(Vec<[f32; 4]>, String, Option<String>)>,
        points: Option<(Vec<[f32; 2]>, usize)>,
        masks: Vec<(Vec<PyBackedBytes>, bool)>,
        key: (u64, u64, u64),
    ) -> PyResult<Recipe> {
        detached(py, || {
            let size = Size::new(width, height);
            let mut fields = Fields::new();
            if let Some((rows, format, clamping)) = boxes {
                fields.insert(ROWS, (0..rows.len() as i64).collect::<Vec<_>>())?;
                fields.insert("boxes", boxes_of(rows, &format, clamping.as_deref()))?;
            }
            if let Some((rows, per_object)) = points {
                let visible = vec![2; rows.len()];
                let points = match per_object {
                    0 => KeyPoints::of_image(rows),
                    _ => KeyPoints::of_objects(per_object, rows, visible)?,
                };
                fields.insert(POINTS, points.with_convention(PointConvention::PixelIndex))?;
            }
            let values = |plane: &PyBackedBytes| -> Vec<u16> {
                plane.as_chunks::<2>().0.iter().map(|value| u16::from_ne_bytes(*value)).collect()
            };
            // Python has compared the values of objects with 255.
            let bytes = |plane| values(plane).into_iter().map(|value| value as u8).collect::<Vec<u8>>();
            for (i, (planes, of_objects)) in masks.iter().enumerate() {
                let mask = match &planes[..] {
                    [plane] if !of_objects => Mask::new(size, values(plane))?,
                    planes => Mask::of_objects(size, planes.iter().map(bytes))?,
                };
                fields.insert(mask_name(i), mask)?;
            }
            let (seed, epoch, index) = key;
            let ops = self.0.draw(size, &fields, Key::new(seed, epoch, index))?;
            let moved = self.0.move_fields(&ops, size, &fields)?;
            Ok(Recipe { ops, moved, transforms: Arc::clone(&self.0) })
        })
        .map_err(raise)
    }
}

/// The operations that were drawn for an image, and its boxes, points and masks after them.
#[pyclass(frozen)]
pub(crate) struct Recipe {
    pub(crate) ops: Vec<Op>,
    moved: Fields,
    transforms: Arc<transforms::Transforms>,
}

#[pymethods]
impl Recipe {
    /// Height and width of the result for an image of this height and width.
    fn output_size(&self, height: u32, width: u32) -> PyResult<(u32, u32)> {
        let first = Size::new(width, height);
        let size = self.ops.iter().try_fold(first, |size, op| op.output_size(size)).map_err(raise)?;
        Ok((size.height, size.width))
    }

    /// Whether results are floating-point numbers.
    fn makes_floats(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Normalize(_) | Op::ToFloat(_)))
    }

    /// The operations' written form, a JSON list.
    fn written(&self) -> PyResult<String> {
        serde_json::to_string(&self.ops).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Makes the results of images: from an array [N, C, H, W], or [N, H, W, C], to another.
    fn run(
        &self,
        py: Python<'_>,
        images: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        channels_first: bool,
    ) -> PyResult<()> {
        each_image(py, images, out, channels_first, 1, |_, image, out| self.transforms.run(&self.ops, image, out))
    }

    /// The result for an image of Pillow's in the mode RGB or L, of this width and height, in the same mode. `None` if its
    /// memory is not to be had.
    fn on_pillow(
        &self,
        image: &Bound<'_, PyAny>,
        is_gray: bool,
        width: u32,
        height: u32,
    ) -> PyResult<Option<(PillowPixels, (u32, u32))>> {
        let (rows, columns) = self.output_size(height, width)?;
        let sizes = [Size::new(width, height), Size::new(columns, rows)];
        let made = on_image(image, is_gray, sizes, |image, out| self.transforms.run(&self.ops, image, out))?;
        Ok(made.map(|made| (made, (columns, rows))))
    }

    /// The numbers of the objects that are left.
    fn rows(&self) -> Vec<i64> {
        match self.moved.get(ROWS) {
            Some(Field::Integers(rows)) => rows.clone(),
            _ => Vec::new(),
        }
    }

    /// The boxes of these objects.
    fn boxes(&self) -> Vec<[f32; 4]> {
        self.moved.boxes().map(|boxes| boxes.rows().to_vec()).unwrap_or_default()
    }

    /// The points of these objects, or of the image.
    fn points(&self) -> Vec<[f32; 2]> {
        match self.moved.get(POINTS) {
            Some(Field::KeyPoints(points)) => points.points().to_vec(),
            _ => Vec::new(),
        }
    }

    /// The planes of mask `number`, as the bytes of uint16 values.
    fn mask<'py>(&self, py: Python<'py>, number: usize) -> Vec<Bound<'py, PyBytes>> {
        let Some(Field::Mask(mask)) = self.moved.get(&mask_name(number)) else { return Vec::new() };
        let bytes = |values: &MaskValues| -> Vec<u8> {
            match values {
                MaskValues::U8(values) => values.iter().flat_map(|value| u16::from(*value).to_ne_bytes()).collect(),
                MaskValues::U16(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
                _ => Vec::new(),
            }
        };
        mask.planes().iter().map(|plane| PyBytes::new(py, &bytes(plane))).collect()
    }
}

/// Makes the results of images, each by a recipe of its own or all by one: from an array [N, C, H, W], or [N, H, W, C], to
/// another. So many threads share them.
#[pyfunction]
pub(crate) fn run_each(
    py: Python<'_>,
    recipes: Vec<PyRef<'_, Recipe>>,
    images: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    channels_first: bool,
    threads: usize,
) -> PyResult<()> {
    let recipes: Vec<&Recipe> = recipes.iter().map(|recipe| &**recipe).collect();
    each_image(py, images, out, channels_first, threads, |i, image, out| {
        let Recipe { ops, transforms, .. } = recipes[if recipes.len() == 1 { 0 } else { i }];
        transforms.run(ops, image, out)
    })
}

/// The name of a mask. The first is the one that transforms look for.
fn mask_name(number: usize) -> String {
    if number == 0 { MASK.to_owned() } else { format!("{MASK} {number}") }
}
