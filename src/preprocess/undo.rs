//! Fields of a tensor's image, such as a model's results, on the original image.

use super::Preprocessor;
use crate::apply::field_mover;
use crate::apply::opening::Stored;
use crate::decode::Input;
use crate::error::{Error, Result};
use crate::fields::{
    AuxImage, BoxFormat, Boxes, Clamping, Field, Fields, KEYPOINTS, KeyPoints, Mask, MaskValues, PointConvention,
};
use crate::ops::{Op, PointMap};
use crate::os::memory;
use crate::raster::Size;

impl Preprocessor {
    /// Maps fields of the tensor's image back to the encoded image as it is stored: the inverse of
    /// [`fields`](Self::fields), for a model's results.
    ///
    /// Boxes become those around their mapped corners, cut at the edges of the image unless their clamping is
    /// [`Clamping::None`]. Keypoints of a mirror image change left and right by their
    /// [`flip_index`](KeyPoints::flip_index). A pixel of a mask has the value of the mask's pixel that its center is
    /// mapped to, or the mask's fill where the tensor does not show it. No object is dropped.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::fields::{BoxFormat, Boxes, Fields};
    /// use warpfeed::prelude::*;
    /// use warpfeed::{Preprocessor, PreprocessorOptions};
    ///
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(1024, 512)), &JpegOptions::default())?;
    /// // Half the size, then the middle of the longer side.
    /// let preprocessor = Preprocessor::from_preset(Preset::Eval, &PreprocessorOptions::default())?;
    /// let found = Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, vec![[0.0, 0.0, 100.0, 24.0]]))?;
    /// let found = preprocessor.undo(&jpeg, &found)?;
    /// assert_eq!(found.boxes().unwrap().rows(), [[288.0, 32.0, 488.0, 80.0]]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of reading an image's header. [`Error::Unfit`] if a mask has not the tensor's size;
    /// [`Error::Unsupported`] if an operation moves points and is not an affine map; [`Error::OutOfMemory`] if there is
    /// no memory for a mask.
    pub fn undo(&self, image: &[u8], fields: &Fields) -> Result<Fields> {
        let recipe = self.engine.recipe();
        let header = recipe.header(Input::Encoded(image))?;
        let stored = header.full_size();
        let mut ops = Stored::from(&header).to_decoded();
        ops.extend(recipe.of(&header));
        let forth = PointMap::new(&ops, stored)?;
        let back = forth.inverse()?;
        let mirrored = is_mirrored(&ops, stored)?;

        let mut undone = Fields::new();
        for (name, field) in fields.iter() {
            let field = match field {
                Field::Boxes(boxes) => undo_boxes(boxes, &back).into(),
                Field::KeyPoints(points) => undo_points(points, &back, mirrored).into(),
                Field::Mask(mask) => undo_mask(mask, &forth, stored)?.into(),
                Field::Image(image) => AuxImage::of_moved(undo_mask(image.as_mask(), &forth, stored)?).into(),
                Field::Integers(_) | Field::Floats(_) => field.clone(),
            };
            undone.insert(name.to_owned(), field)?;
        }
        Ok(undone)
    }
}

/// Whether operations exchange the left and the right points of objects.
fn is_mirrored(ops: &[Op], stored: Size) -> Result<bool> {
    let points = KeyPoints::of_objects(2, vec![[0.0; 2]; 2], vec![1, 2])?.flip_index([1, 0])?;
    let mut probe = Fields::new().with(KEYPOINTS, points)?;
    field_mover::move_points(&mut probe, stored, ops)?;
    Ok(matches!(probe.get(KEYPOINTS), Some(Field::KeyPoints(points)) if points.visibility() == [2, 1]))
}

fn undo_boxes(boxes: &Boxes, back: &PointMap) -> Boxes {
    let [width, height] = [back.size().width, back.size().height].map(f64::from);
    let corners = boxes.to(BoxFormat::Xyxy);
    let undone = corners.rows().iter().map(|row| {
        let [left, top, right, bottom] = back.boxed(row.map(f64::from));
        let cut = match boxes.clamping() {
            Clamping::None => [left, top, right, bottom],
            Clamping::Soft => {
                [left.clamp(0.0, width), top.clamp(0.0, height), right.clamp(0.0, width), bottom.clamp(0.0, height)]
            }
        };
        cut.map(|value| value as f32)
    });
    Boxes::new(BoxFormat::Xyxy, undone.collect()).with_clamping(boxes.clamping()).to(boxes.format())
}

fn undo_points(points: &KeyPoints, back: &PointMap, mirrored: bool) -> KeyPoints {
    let center = if points.convention() == PointConvention::PixelIndex { 0.5 } else { 0.0 };
    points.mapped(mirrored, |point| {
        back.point(point.map(|value| f64::from(value) + center)).map(|value| (value - center) as f32)
    })
}

fn undo_mask(mask: &Mask, forth: &PointMap, stored: Size) -> Result<Mask> {
    if mask.size() != forth.size() {
        let message = format!("the mask is {}, and the tensor's image {}", mask.size(), forth.size());
        return Err(Error::Unfit { operation: "undo", message });
    }
    mask.check_moved(stored)?;
    let planes = mask.planes().iter().map(|plane| {
        Ok(match &**plane {
            MaskValues::U8(values) => MaskValues::U8(undo_plane(values, mask.fill() as u8, forth, stored)?),
            MaskValues::U16(values) => MaskValues::U16(undo_plane(values, mask.fill(), forth, stored)?),
        })
    });
    Ok(mask.with_planes(stored, planes.collect::<Result<_>>()?))
}

fn undo_plane<T: Copy>(values: &[T], fill: T, forth: &PointMap, stored: Size) -> Result<Vec<T>> {
    let mut undone = Vec::new();
    memory::reserve(&mut undone, stored.area_px() as usize, "a mask", "use masks of smaller images")?;
    let Size { width, height } = forth.size();
    for y in 0..stored.height {
        for x in 0..stored.width {
            let [x, y] = forth.point([f64::from(x) + 0.5, f64::from(y) + 0.5]).map(f64::floor);
            let shown = x >= 0.0 && y >= 0.0 && x < f64::from(width) && y < f64::from(height);
            undone.push(if shown { values[y as usize * width as usize + x as usize] } else { fill });
        }
    }
    Ok(undone)
}
