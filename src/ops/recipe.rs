//! Drawing of recipes.

use super::Op;
use super::placed_mask::PlacedMask;
use super::transform::{SampleInfo, Transform};
use crate::error::Result;
use crate::fields::Fields;
use crate::raster::Size;
use crate::rng::SampleRng;

/// A recipe under construction. It draws operations and tracks the image's size through them.
pub(crate) struct RecipeBuilder<'a> {
    rng: &'a mut SampleRng,
    region: u32,
    /// Size of the image as stored.
    stored: Size,
    /// The sample, with the image's size so far.
    sample: SampleInfo<'a>,
    /// The sample's fields so far, without masks; `None` if it has none or no transform sees them.
    moved: Option<Fields>,
    ops: Vec<Op>,
    is_padded: bool,
}

/// Operations drawn for an image.
pub(crate) struct Recipe {
    pub(crate) ops: Vec<Op>,
    /// Whether a crop was larger than the image, so that its fill shows.
    pub(crate) is_padded: bool,
}

/// Draws the recipe of one sample: the operations `turned`, which turn its stored image upright, then the explicit
/// operations of `transforms`. `sample` is as it is stored.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) if an explicit rectangle does not fit the image,
/// [`Error::Limits`](crate::Error::Limits) if the image grows too large.
pub(crate) fn draw_recipe(
    turned: &[Op],
    transforms: &[Transform],
    rng: &mut SampleRng,
    sample: SampleInfo<'_>,
) -> Result<Recipe> {
    let seen = sample.fields.filter(|_| transforms.iter().any(Transform::sees_sample));
    let (moved, ops) = (seen.map(Fields::without_masks), Vec::with_capacity(transforms.len() + 8));
    let mut recipe = RecipeBuilder { rng, region: 0, stored: sample.size, sample, moved, ops, is_padded: false };
    turned.iter().try_for_each(|op| recipe.push(op.clone()))?;
    transforms.iter().try_for_each(|transform| recipe.add(transform))?;
    Ok(Recipe { ops: recipe.ops, is_padded: recipe.is_padded })
}

impl<'a> RecipeBuilder<'a> {
    /// The random numbers of the current region, starting with the first, and the image's size so far. Transforms that
    /// draw nothing do not call this, because going to a region costs a block of the cipher.
    pub(super) fn start(&mut self) -> (&mut SampleRng, Size) {
        (self.rng.at(self.region), self.sample.size)
    }

    /// The image's size so far.
    pub(super) fn size(&self) -> Size {
        self.sample.size
    }

    /// The sample's fields so far, without masks; `None` if it has none.
    pub(super) fn fields(&self) -> Option<&Fields> {
        self.moved.as_ref()
    }

    /// The random numbers as of [`start`](Self::start), and the sample with the image's size and fields so far.
    pub(super) fn start_with_sample(&mut self) -> (&mut SampleRng, SampleInfo<'_>) {
        let sample = SampleInfo { fields: self.moved.as_ref(), ..self.sample };
        (self.rng.at(self.region), sample)
    }

    /// The sample's mask of the image at this place, for the transform `name`; `None` if it has none.
    ///
    /// # Errors
    /// The errors of [`PlacedMask::new`].
    pub(super) fn mask(&self, name: &'static str) -> Result<Option<PlacedMask<'a>>> {
        let Some(fields) = self.sample.fields else { return Ok(None) };
        PlacedMask::new(name, fields, &self.ops, self.stored)
    }

    /// Adds an operation to the recipe.
    pub(super) fn push(&mut self, op: impl Into<Op>) -> Result<()> {
        let op = op.into();
        let before = self.sample.size;
        let after = match &mut self.moved {
            Some(fields) if fields.has_points() => op.move_points(fields, before)?,
            _ => op.output_size(before)?,
        };
        self.sample.size = after;
        if let Op::Crop(_) | Op::CenterCrop(_) = op {
            self.is_padded |= after.width > before.width || after.height > before.height;
        }
        self.ops.push(op);
        Ok(())
    }

    /// Draws a transform, and goes to the region after the transform's last.
    pub(super) fn add(&mut self, transform: &Transform) -> Result<()> {
        let after = self.region.saturating_add(transform.regions());
        transform.random().draw(self)?;
        self.region = after;
        Ok(())
    }

    /// Draws a transform whose regions begin `regions` after the current one. The current region stays.
    pub(super) fn add_after(&mut self, regions: u32, transform: &Transform) -> Result<()> {
        let here = self.region;
        self.region = here.saturating_add(regions);
        transform.random().draw(self)?;
        self.region = here;
        Ok(())
    }

    /// Skips `regions` regions.
    pub(super) fn skip(&mut self, regions: u32) {
        self.region = self.region.saturating_add(regions);
    }
}
