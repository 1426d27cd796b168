//! Drawing of recipes.

use super::named;
use super::part::{Loaded, Part, Partner, Partners, needs_a_pipeline};
use super::placed_mask::PlacedMask;
use super::transform::{SampleInfo, Transform};
use super::{Op, Sanitize};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::raster::Size;
use crate::rng::{Pick, SampleRng};
use crate::shapes::BatchShape;
use std::sync::Arc;

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
    transforms: &'a [Transform],
    /// Whether transforms draw by name.
    by_name: bool,
    /// The number of the transform that is being drawn.
    place: usize,
    /// Reads other samples; `None` where there is no data set.
    partners: Option<&'a dyn Partners>,
}

/// Operations drawn for an image.
pub(crate) struct Recipe {
    pub(crate) ops: Vec<Op>,
    /// Whether a crop was larger than the image, so that its fill shows.
    pub(crate) is_padded: bool,
}

impl Recipe {
    /// Drops the objects whose boxes are no longer valid, after the last operation on 8-bit images.
    pub(crate) fn end_by_sanitizing(&mut self) {
        let end = self.ops.iter().position(|op| op.normalization().is_some()).unwrap_or(self.ops.len());
        self.ops.insert(end, Sanitize::new().into());
    }
}

/// Draws the recipe of one sample: the operations `opened`, which make a thumbnail and turn it upright, then the
/// explicit operations of `transforms`. `sample` is as it is stored.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) if an explicit rectangle does not fit the image,
/// [`Error::Limits`](crate::Error::Limits) if the image grows too large; the errors of reading partners.
pub(crate) fn draw_recipe(
    opened: &[Op],
    transforms: &[Transform],
    rng: &mut SampleRng,
    sample: SampleInfo<'_>,
    partners: Option<&dyn Partners>,
) -> Result<Recipe> {
    let seen = transforms.iter().any(Transform::depends_on_annotations);
    let by_name = transforms.iter().any(Transform::is_named);
    let mut recipe = RecipeBuilder::new(rng, sample, seen, transforms, by_name, partners);
    recipe.draw(opened)?;
    Ok(Recipe { ops: recipe.ops, is_padded: recipe.is_padded })
}

impl Transform {
    /// Draws the transform's operations for a sample, within a transform of the caller's own
    /// ([`CustomTransform`](super::CustomTransform)) that chooses by class, index or size. It takes 256 bits of `rng`,
    /// whatever it draws.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::ops::{CustomTransform, Op, SampleInfo, SampleRng, Transform};
    /// use warpfeed::prelude::*;
    ///
    /// /// The transform of each class.
    /// struct OfClass(Vec<Transform>);
    ///
    /// impl CustomTransform for OfClass {
    ///     fn name(&self) -> &'static str {
    ///         "of_class"
    ///     }
    ///     fn draw(&self, rng: &mut SampleRng, sample: &SampleInfo<'_>) -> warpfeed::Result<Vec<Op>> {
    ///         self.0[sample.label.unwrap_or(0) as usize].draw(rng, sample)
    ///     }
    /// }
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let source = EncodedImages::new([(jpeg.clone(), 0), (jpeg, 1)]);
    /// let of_class = OfClass(vec![random_horizontal_flip(1.0), random_rotation(-5.0..=5.0)]);
    /// let pipeline = Pipeline::builder(source).transform(of_class).transform(CenterCrop::new(8)).build()?;
    /// assert!(matches!(pipeline.recipe(0, 0)?[0], Op::Hflip(_)));
    /// assert!(matches!(pipeline.recipe(0, 1)?[0], Op::Rotate(_)));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) for a transform that is out of range or does not fit the sample;
    /// [`Error::Unsupported`](crate::Error::Unsupported) for one that joins samples.
    pub fn draw(&self, rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
        self.validate()?;
        let (mut rng, (as_stored, stored, before)) = (rng.fork(), sample.unmoved());
        let mut recipe = RecipeBuilder::new(&mut rng, as_stored, false, &[], false, None);
        (recipe.stored, recipe.moved, recipe.ops) = (stored, sample.fields.cloned(), before.to_vec());
        recipe.add(self)?;
        Ok(recipe.ops.split_off(before.len()))
    }
}

impl<'a> RecipeBuilder<'a> {
    fn new(
        rng: &'a mut SampleRng,
        sample: SampleInfo<'a>,
        sees_fields: bool,
        transforms: &'a [Transform],
        by_name: bool,
        partners: Option<&'a dyn Partners>,
    ) -> Self {
        let moved = sample.fields.filter(|_| sees_fields).map(Fields::without_masks);
        let (stored, ops) = (sample.size, Vec::with_capacity(transforms.len() + 8));
        Self { rng, region: 0, stored, sample, moved, ops, is_padded: false, transforms, by_name, place: 0, partners }
    }

    /// Draws all transforms, after the operations that images are opened with.
    fn draw(&mut self, opened: &[Op]) -> Result<()> {
        opened.iter().try_for_each(|op| self.push(op.clone()))?;
        for (place, transform) in self.transforms.iter().enumerate() {
            self.place = place;
            if self.by_name { self.add_by_name(transform)? } else { self.add(transform)? }
        }
        Ok(())
    }

    /// Draws a transform from the random numbers of its name.
    fn add_by_name(&mut self, transform: &Transform) -> Result<()> {
        let own = self.rng.named(named::key(&self.transforms[..self.place], transform));
        let numbers = std::mem::replace(self.rng, own);
        self.region = 0;
        let drawn = self.add(transform);
        *self.rng = numbers;
        drawn
    }

    /// The random numbers of the current region, starting with the first, and the image's size so far. Transforms that
    /// draw nothing do not call this, because going to a region costs a block of the cipher.
    pub(super) fn start(&mut self) -> (&mut SampleRng, Size) {
        (self.rng.at(self.region), self.sample.size)
    }

    /// The image's size so far.
    pub(super) fn size(&self) -> Size {
        self.sample.size
    }

    /// The sample, with the image's size so far.
    pub(super) fn sample(&self) -> &SampleInfo<'a> {
        &self.sample
    }

    /// The size of the images of the sample's batch, if batches have sizes of their own.
    pub(super) fn batch_size(&self) -> Option<Size> {
        self.sample.shape.and_then(BatchShape::size)
    }

    /// The number of the epoch.
    pub(super) fn epoch(&self) -> u64 {
        self.sample.epoch
    }

    /// The sample's fields so far, without masks; `None` if it has none.
    pub(super) fn fields(&self) -> Option<&Fields> {
        self.moved.as_ref()
    }

    /// The random numbers of [`start`](Self::start), and the sample with the image's size and fields so far.
    pub(super) fn start_with_sample(&mut self) -> (&mut SampleRng, SampleInfo<'_>) {
        let sample = self.sample.after(&self.ops, self.moved.as_ref());
        (self.rng.at(self.region), sample)
    }

    /// The sample's mask of the image at this place; `None` if it has none.
    ///
    /// # Errors
    /// The errors of [`PlacedMask::new`].
    pub(super) fn mask(&self) -> Result<Option<PlacedMask>> {
        let Some(fields) = self.sample.fields else { return Ok(None) };
        PlacedMask::new(fields, &self.ops, self.stored)
    }

    /// Checks that the sample has masks of objects, for the transform `name`.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) if it has none.
    pub(super) fn check_object_masks(&self, name: &'static str) -> Result<()> {
        if self.sample.fields.is_some_and(Fields::has_object_masks) {
            return Ok(());
        }
        Err(Error::parameter(name, "fields", "with masks of objects (`PipelineBuilder::fields`, `--fields`)", "none"))
    }

    /// The reader of other samples, for the transform `name`.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if there is no data set.
    pub(super) fn partners(&self, name: &'static str) -> Result<&'a dyn Partners> {
        self.partners.ok_or_else(|| needs_a_pipeline(name))
    }

    /// Another sample for the transform `name`, after the transforms before the one that is being drawn, which draw
    /// from `rng`.
    ///
    /// # Errors
    /// The errors of reading it, and of its draws.
    pub(super) fn partner(&self, name: &'static str, sample: u64, rng: &mut SampleRng) -> Result<PartBuilder> {
        let Partner { opened, size, annotation } = self.partners(name)?.partner(sample)?;
        let info = SampleInfo::new(Pick { index: sample, repetition: 0 }, size, &annotation).in_epoch(self.epoch());
        let info = self.sample.in_same_batch(info);
        let (sees_fields, before) = (self.moved.is_some(), &self.transforms[..self.place]);
        let mut recipe = RecipeBuilder::new(rng, info, sees_fields, before, self.by_name, self.partners);
        recipe.draw(&opened)?;
        Ok(PartBuilder { sample, size: recipe.sample.size, moved: recipe.moved, ops: recipe.ops })
    }

    /// The sample itself as another one, for the transform `name`, after the operations so far.
    ///
    /// # Errors
    /// The errors of reading it.
    pub(super) fn own_part(&self, name: &'static str) -> Result<PartBuilder> {
        let SampleInfo { index, size, .. } = self.sample;
        self.partners(name)?.partner(index)?;
        Ok(PartBuilder { sample: index, size, moved: self.moved.clone(), ops: self.ops.clone() })
    }

    /// Adds an operation to the recipe.
    pub(super) fn push(&mut self, op: impl Into<Op>) -> Result<()> {
        let op = op.into();
        let before = self.sample.size;
        let after = size_after(&op, &mut self.moved, before)?;
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

/// The size of an image after an operation, through which its fields are moved.
fn size_after(op: &Op, moved: &mut Option<Fields>, before: Size) -> Result<Size> {
    match moved {
        Some(fields) => op.move_points(fields, before),
        None => op.output_size(before),
    }
}

/// Another sample in a recipe, whose operations are being drawn.
pub(super) struct PartBuilder {
    sample: u64,
    size: Size,
    /// The sample's fields so far, without masks; `None` if it has none or no transform sees them.
    moved: Option<Fields>,
    ops: Vec<Op>,
}

impl PartBuilder {
    /// The image's size so far.
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// The sample's fields so far, without masks; `None` if it has none or no transform sees them.
    pub(super) fn fields(&self) -> Option<&Fields> {
        self.moved.as_ref()
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, op: Op) -> Result<()> {
        self.size = size_after(&op, &mut self.moved, self.size)?;
        self.ops.push(op);
        Ok(())
    }

    /// The part at this column and row. It has the fields that transforms see, and not yet the image.
    pub(super) fn at(self, at: [u32; 2]) -> Part {
        let loaded = Loaded { fields: self.moved.map(Arc::new), image: None };
        Part { sample: self.sample, ops: self.ops, at, loaded }
    }
}
