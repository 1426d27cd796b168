//! Moves a sample's fields through its image's recipe.

use crate::apply::opening::Stored;
use crate::backend::StageRunner;
use crate::decode::Header;
use crate::error::Result;
use crate::fields::{DroppedObjects, Fields, Mask};
use crate::ops::{Op, ops_on_mask};
use crate::plan::{Plan, Planner, Strategy};
use crate::raster::Size;
use std::borrow::Cow;

/// Memory for masks on their way through recipes, kept from one sample to the next.
#[derive(Default)]
pub(crate) struct FieldMover {
    masks: StageRunner,
    dropped: DroppedObjects,
}

impl FieldMover {
    /// Number of objects dropped since the last call, by rule.
    pub(crate) fn take_dropped(&mut self) -> DroppedObjects {
        std::mem::take(&mut self.dropped)
    }

    /// The fields of an image as stored, after a recipe that is run on it or on a draft of it.
    ///
    /// # Errors
    /// See [`follow`](Self::follow).
    pub(crate) fn follow_stored(
        &mut self,
        fields: &Fields,
        header: &Header,
        recipe: &[Op],
        planner: &Planner,
    ) -> Result<Fields> {
        let fields = self.scale_to_draft(fields.clone(), header.into(), planner)?;
        self.follow(fields, header.size, recipe, planner).map(|(fields, _)| fields)
    }

    /// The fields of a stored image, as they lie on the decoded one, which may be a draft.
    ///
    /// # Errors
    /// See [`follow`](Self::follow).
    pub(crate) fn scale_to_draft(&mut self, fields: Fields, stored: Stored, planner: &Planner) -> Result<Fields> {
        self.follow(fields, stored.full, &stored.to_decoded(), planner).map(|(fields, _)| fields)
    }

    /// The fields after a recipe that is run on an image of size `stored`, and the size of the result.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if a mask has not the image's size;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if an operation of the caller's own
    /// does not say where points go; the errors of operations.
    pub(crate) fn follow(
        &mut self,
        fields: Fields,
        stored: Size,
        recipe: &[Op],
        planner: &Planner,
    ) -> Result<(Fields, Size)> {
        let Rest { mut fields, before, ops, size } = self.up_to_masks(fields, stored, recipe, planner)?;
        self.move_masks(&mut fields, before, ops, planner)?;
        Ok((fields, size))
    }

    /// The fields after a recipe, as [`follow`](Self::follow) has them, with the size of the result, and the masks
    /// among them that are still to be moved.
    ///
    /// # Errors
    /// See [`follow`](Self::follow).
    pub(crate) fn move_except_masks(
        &mut self,
        fields: Fields,
        stored: Size,
        recipe: &[Op],
        planner: &Planner,
    ) -> Result<(Fields, Size, Vec<UnmovedMask>)> {
        let Rest { fields, before, ops, size } = self.up_to_masks(fields, stored, recipe, planner)?;
        let unmoved = unmoved(&fields, before, ops)?;
        Ok((fields, size, unmoved))
    }

    /// Moves fields through a recipe, except masks through what comes after the last operation that joins samples.
    fn up_to_masks<'a>(
        &mut self,
        mut fields: Fields,
        stored: Size,
        recipe: &'a [Op],
        planner: &Planner,
    ) -> Result<Rest<'a>> {
        let mut rest = (stored, &recipe[..0]);
        let mut size = stored;
        // An operation that joins samples needs all fields as they are at its place.
        for part in recipe.split_inclusive(Op::joins) {
            let (joins, part) = match part.split_last() {
                Some((last, before)) if last.joins() => (Some(last), before),
                _ => (None, part),
            };
            // Masks of objects that go need not be moved.
            rest = (size, part);
            size = part.iter().try_fold(size, |size, op| op.move_and_count(&mut fields, size, &mut self.dropped))?;
            if let Some(op) = joins {
                self.move_masks(&mut fields, rest.0, part, planner)?;
                size = op.move_and_count(&mut fields, size, &mut self.dropped)?;
                rest = (size, &recipe[..0]);
            }
        }
        let (before, ops) = rest;
        Ok(Rest { fields, before, ops, size })
    }

    fn move_masks(&mut self, fields: &mut Fields, stored: Size, recipe: &[Op], planner: &Planner) -> Result<()> {
        for unmoved in unmoved(fields, stored, recipe)? {
            fields.replace_mask(&unmoved.name, self.masks.run_mask(&unmoved.mask, &unmoved.plan(planner)?)?);
        }
        Ok(())
    }
}

/// The masks and auxiliary images among fields, which are still to go through a recipe on an image of size `stored`.
fn unmoved(fields: &Fields, stored: Size, recipe: &[Op]) -> Result<Vec<UnmovedMask>> {
    let unmoved = fields.masks().map(|(name, mask)| {
        let ops = ops_on_mask(mask, stored, recipe)?;
        Ok(UnmovedMask { name: name.clone(), mask: mask.clone(), ops })
    });
    unmoved.collect()
}

/// Fields whose masks are still to be moved.
struct Rest<'a> {
    fields: Fields,
    /// The size of the image that masks lie on.
    before: Size,
    /// The operations that masks are still to go through.
    ops: &'a [Op],
    /// The size of the result.
    size: Size,
}

/// A mask that is still to be moved.
pub(crate) struct UnmovedMask {
    pub(crate) name: Cow<'static, str>,
    pub(crate) mask: Mask,
    ops: Vec<Op>,
}

impl UnmovedMask {
    /// The plan that moves the mask.
    ///
    /// # Errors
    /// See [`Planner::plan_one`].
    pub(crate) fn plan(&self, planner: &Planner) -> Result<Plan<'_>> {
        // Multiplied maps are sampled bilinearly, which a mask never is.
        let strategy = if planner.strategy == Strategy::Composed { Strategy::Fused } else { planner.strategy };
        Planner { strategy, values: None, ..*planner }.plan_one(&self.ops, self.mask.size())
    }
}

/// Moves boxes and keypoints through a recipe, and drops the objects that it drops. Returns the size of the result.
///
/// # Errors
/// The errors of [`Op::move_points`].
pub(crate) fn move_points(fields: &mut Fields, stored: Size, recipe: &[Op]) -> Result<Size> {
    recipe.iter().try_fold(stored, |size, op| op.move_points(fields, size))
}
