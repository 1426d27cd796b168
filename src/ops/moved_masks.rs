//! Masks and auxiliary images at a place among the transforms.

use super::filter::{Interpolation, PassOrder};
use super::{FieldContext, Op};
use crate::error::{Error, Result};
use crate::fields::{Field, Fields, Mask, MaskKind, MaskValues, carried};
use crate::raster::{Image, Rect, Size};

/// The operations that move a mask, or an auxiliary image, as a recipe moves an image of size `stored`.
///
/// # Errors
/// [`Error::Unfit`] if a mask has not the image's size; the errors of operations.
pub(crate) fn ops_on_mask(mask: &Mask, stored: Size, recipe: &[Op]) -> Result<Vec<Op>> {
    let interpolation = match mask.kind() {
        MaskKind::Aux(interpolation) => {
            refuse_blended_words(mask, interpolation)?;
            interpolation
        }
        MaskKind::OfImage | MaskKind::OfObjects if mask.size() != stored => {
            return Err(Mask::unfit(mask.size(), stored));
        }
        MaskKind::OfImage | MaskKind::OfObjects => Some(Interpolation::Nearest),
    };
    let (mut ops, mut own, mut size) = (Vec::with_capacity(recipe.len()), mask.size(), stored);
    for op in recipe {
        let how = FieldContext::new(carried::fill(mask), interpolation, own, size);
        if let Some(op) = op.on_field(size, &how)? {
            own = op.output_size(own)?;
            ops.push(op);
        }
        size = op.output_size(size)?;
    }
    Ok(ops)
}

/// Refuses other filters than the nearest pixel for values of 16 bits, which the passes of images do not compute with.
fn refuse_blended_words(mask: &Mask, interpolation: Option<Interpolation>) -> Result<()> {
    let is_wide = mask.planes().first().is_some_and(|plane| matches!(**plane, MaskValues::U16(_)));
    match interpolation {
        Some(other) if is_wide && other != Interpolation::Nearest => Err(Error::Unsupported {
            feature: format!("an auxiliary image of 16 bits with the filter {other:?}"),
            remedy: "move it by the nearest pixel (the default), or give it 8 bits".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The masks and auxiliary images among the fields of a stored image, after operations. Those of objects that
/// operations have dropped are left out.
///
/// # Errors
/// [`Error::Unsupported`] after an operation that joins samples; the errors of [`ops_on_mask`].
pub(super) fn moved(fields: &Fields, ops: &[Op], stored: Size) -> Result<Fields> {
    if let Some(op) = ops.iter().find(|op| op.joins()) {
        return Err(Error::Unsupported {
            feature: format!("looking at masks after {}", op.name()),
            remedy: "put the transform before it: masks are joined when images are".to_owned(),
        });
    }
    let mut fields = fields.clone();
    ops.iter().try_fold(stored, |size, op| op.move_points(&mut fields, size))?;
    let mut masks = Fields::new();
    for (name, mask) in fields.masks() {
        masks.insert(name.clone(), Field::of_mask(one(mask, ops, stored)?))?;
    }
    Ok(masks)
}

/// A mask or an auxiliary image of a stored image after operations.
pub(super) fn one(mask: &Mask, ops: &[Op], stored: Size) -> Result<Mask> {
    let ops = ops_on_mask(mask, stored, ops)?;
    if ops.is_empty() {
        return Ok(mask.clone());
    }
    let size = ops.iter().try_fold(mask.size(), |size, op| op.output_size(size))?;
    let (mut image, mut spare) = (Image::default(), Image::default());
    mask.moved(size, &mut Vec::new(), |group, made| {
        image.reserve(mask.size())?;
        group.load_part(mask.size(), Rect::full(mask.size()), &mut image);
        ops.iter().try_for_each(|op| op.apply_reusing(PassOrder::default(), &mut image, &mut spare))?;
        made.as_chunks_mut().0.iter_mut().zip(image.pixels()).for_each(|(to, &[a, b, c, _])| *to = [a, b, c]);
        Ok(())
    })
}
