//! Moves the fields of a sample through the recipe of its image.

use crate::backend::masks::{self, MaskRunner};
use crate::decode::Header;
use crate::error::Result;
use crate::fields::{Field, Fields, Mask};
use crate::ops::{Op, Resize};
use crate::plan::{Planner, Strategy};
use crate::raster::Size;

/// Memory for masks on their way through recipes, kept from one sample to the next.
#[derive(Default)]
pub(crate) struct Follower {
    masks: MaskRunner,
}

impl Follower {
    /// The fields of an image as stored, after a recipe that is run on it or on a draft of it.
    ///
    /// # Errors
    /// As of [`follow`](Self::follow).
    pub(crate) fn follow_stored(
        &mut self,
        fields: &Fields,
        header: &Header,
        recipe: &[Op],
        planner: &Planner,
    ) -> Result<Fields> {
        let fields = self.scale_to_draft(fields.clone(), header.full_size(), header.size, planner)?;
        self.follow(fields, header.size, recipe, planner).map(|(fields, _)| fields)
    }

    /// The fields of an image of size `full`, as they lie on a draft of size `size`.
    ///
    /// # Errors
    /// As of [`follow`](Self::follow).
    pub(crate) fn scale_to_draft(
        &mut self,
        fields: Fields,
        full: Size,
        size: Size,
        planner: &Planner,
    ) -> Result<Fields> {
        if full == size {
            return Ok(fields);
        }
        let scale = Resize::new(size).into();
        self.follow(fields, full, &[scale], planner).map(|(fields, _)| fields)
    }

    /// The fields after a recipe that is run on an image of size `stored`, and the size of the result.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if a mask has not the image's size;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if an operation of the caller's own
    /// does not say where points go; the errors of operations.
    pub(crate) fn follow(
        &mut self,
        mut fields: Fields,
        stored: Size,
        recipe: &[Op],
        planner: &Planner,
    ) -> Result<(Fields, Size)> {
        let mut size = stored;
        // An operation that joins samples needs all fields as they are at its place.
        let none = recipe.is_empty().then_some(recipe);
        for part in recipe.split_inclusive(Op::joins).chain(none) {
            let (joins, part) = match part.split_last() {
                Some((last, before)) if last.joins() => (Some(last), before),
                _ => (None, part),
            };
            // Masks of objects that go need not be moved.
            let before = size;
            size = move_points(&mut fields, before, part)?;
            for field in fields.fields_mut() {
                if let Field::Mask(mask) = field {
                    *mask = self.move_mask(mask, before, part, planner)?;
                }
            }
            if let Some(op) = joins {
                size = op.move_points(&mut fields, size)?;
            }
        }
        Ok((fields, size))
    }

    fn move_mask(&mut self, mask: &Mask, stored: Size, recipe: &[Op], planner: &Planner) -> Result<Mask> {
        if mask.size() != stored {
            return Err(Mask::unfit(mask.size(), stored));
        }
        let (mut ops, mut size) = (Vec::with_capacity(recipe.len()), stored);
        for op in recipe {
            ops.extend(op.on_mask(size, masks::fill(mask))?);
            size = op.output_size(size)?;
        }
        // Multiplied maps are sampled bilinearly, which a mask never is.
        let strategy = if planner.strategy == Strategy::Composed { Strategy::Fused } else { planner.strategy };
        self.masks.run(mask, &Planner { strategy, ..*planner }.plan_one(&ops, stored)?)
    }
}

/// Moves boxes and keypoints through a recipe, and drops the objects that it drops. Returns the size of the result.
///
/// # Errors
/// The errors of [`Op::move_points`].
pub(crate) fn move_points(fields: &mut Fields, stored: Size, recipe: &[Op]) -> Result<Size> {
    recipe.iter().try_fold(stored, |size, op| op.move_points(fields, size))
}
