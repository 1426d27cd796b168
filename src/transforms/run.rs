//! Runs explicit operations on views.

use super::direct;
use super::scratch::{Scratch, room};
use super::view::{View, check_sides};
use super::view_mut::ViewMut;
use crate::backend::{Output, PixelForm, TablesOf, ValueOutput};
use crate::error::{Error, Result};
use crate::ops::part::needs_a_pipeline;
use crate::ops::values::PixelValues;
use crate::ops::{Grayscale, Op};
use crate::plan::{Plan, Planner};
use crate::raster::{Image, Size, check_pixels};

/// The plan of operations on `image`.
pub(super) fn plan<'a>(planner: &Planner, image: &View<'_>, ops: &'a [Op]) -> Result<Plan<'a>> {
    plan_for(planner, image.size(), ops)
}

/// The plan of operations on an image of this size.
pub(super) fn plan_for<'a>(planner: &Planner, size: Size, ops: &'a [Op]) -> Result<Plan<'a>> {
    check_sides(size)?;
    check_pixels(size, planner.most_stored_px())?;
    if let Some(op) = ops.iter().find(|op| op.parts().iter().any(|part| part.loaded.image.is_none())) {
        return Err(needs_a_pipeline(op.name()));
    }
    planner.plan_one(ops, size)
}

/// Copies the part of `image` that the plan needs to the memory that the plan is run in.
pub(super) fn load(scratch: &mut Scratch, plan: &Plan<'_>, image: View<'_>) -> Result<()> {
    match plan.values {
        None => image.to_image(plan.decode, scratch.pixels.image()),
        Some(_) => image.to_planes(plan.decode, scratch.pixels.planes()),
    }
}

/// Runs a plan on what was loaded, for an image of its own.
pub(super) fn to_image(scratch: &mut Scratch, plan: &Plan<'_>, to: &mut Image) -> Result<()> {
    if plan.epilogue.normalize.is_some() {
        let expected = "none where the result is an Image, which has bytes (write to a view, or make a tensor)";
        return Err(Error::parameter("normalize", "place", expected, "one"));
    }
    scratch.pixels.run(plan, &mut Output::image(to, plan.size)?)
}

/// Runs a plan on an image for the caller's memory; without an image, on the pixels that are there. `values`: those of the
/// image before the first operation.
pub(super) fn to_view(
    scratch: &mut Scratch,
    plan: &Plan<'_>,
    image: Option<View<'_>>,
    values: Option<PixelValues>,
    tables: &TablesOf,
    mut to: ViewMut<'_>,
) -> Result<()> {
    if to.size() != plan.size {
        return Err(Error::parameter("ViewMut", "size", format!("{}, as the result has it", plan.size), to.size()));
    }
    let (elements, rows) = to.rows();
    let ends = plan.values.unwrap_or(PixelValues::RGB8);
    let fitting = elements.of_pixels(&ends, plan.epilogue.normalize, plan.values.is_some())?;
    if fitting != elements || (plan.values.is_none() && !matches!(elements.channels, 1 | 3)) {
        let expected = if plan.values.is_some() { fitting.channels.to_string() } else { "1 or 3".to_owned() };
        return Err(Error::parameter("ViewMut", "channels", expected, elements.channels));
    }
    let done = match image {
        Some(image) => direct::run(plan, image, &mut to),
        None => direct::run_in_place(plan, &mut scratch.between, &mut to)?,
    };
    if done {
        scratch.shrink();
        return Ok(());
    }
    if to.form.is_pixels && values.is_none() && plan.epilogue.normalize.is_none() {
        load(scratch, plan, image.map_or_else(|| to.as_view(), Ok)?)?;
        let done = scratch.pixels.run(plan, &mut Output::pixels(to.bytes, plan.size));
        to.end_pixels();
        return done;
    }
    load(scratch, plan, image.map_or_else(|| to.as_view(), Ok)?)?;
    let packed = elements.strides(plan.size);
    match (rows, values) {
        (Some(strides), None) => {
            let mut output = Output::strided(to.bytes, plan.size, tables.get(elements.dtype), elements, strides);
            scratch.pixels.run(plan, &mut output)
        }
        (Some(strides), Some(values)) if strides == packed => {
            let len = elements.image_bytes(plan.size);
            let mut output = ValueOutput::new(&mut to.bytes[..len], elements);
            scratch.pixels.run_values(plan, values.max_value, &mut output)
        }
        _ => {
            let done = to_gapless(scratch, plan, values, tables, elements);
            if done.is_ok() {
                let len = elements.image_bytes(plan.size);
                to.scatter(&bytemuck::cast_slice(&scratch.between)[..len], elements);
            }
            scratch.shrink();
            done
        }
    }
}

/// Runs a plan for an image without gaps in the scratch memory.
pub(super) fn to_gapless(
    scratch: &mut Scratch,
    plan: &Plan<'_>,
    values: Option<PixelValues>,
    tables: &TablesOf,
    elements: PixelForm,
) -> Result<()> {
    let Scratch { pixels, between, .. } = scratch;
    let bytes = room(between, elements.image_bytes(plan.size))?;
    match values {
        None => pixels.run(plan, &mut Output::new(bytes, plan.size, tables.get(elements.dtype), elements)),
        Some(values) => pixels.run_values(plan, values.max_value, &mut ValueOutput::new(bytes, elements)),
    }
}

/// Makes operations on RGB end in one channel: puts a conversion to gray before the normalization.
pub(super) fn end_gray(ops: &mut Vec<Op>) {
    let end = ops.iter().position(|op| op.normalization().is_some()).unwrap_or(ops.len());
    ops.insert(end, Grayscale.into());
}

/// The size of an image after operations.
pub(super) fn size_after(ops: &[Op], size: Size) -> Result<Size> {
    ops.iter().try_fold(size, |size, op| op.output_size(size))
}
