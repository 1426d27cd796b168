//! One sample's image after each operation.

use super::Pipeline;
use super::partners::SourcePartners;
use super::rgb::rgb;
use crate::apply::field_mover::FieldMover;
use crate::apply::{ApplyOptions, apply_to};
use crate::decode::Input;
use crate::error::Result;
use crate::fields::Fields;
use crate::ops::Op;
use crate::ops::orientation::Orientation;
use crate::ops::part::{Loaded, LoadedImage};
use crate::pixels::Pixels;
use crate::raster::Image;
use crate::tensor::DType;
use std::sync::Arc;

/// A sample's image after one of its operations ([`Pipeline::stages`]).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stage {
    /// Number of the image among those that a batch has of the sample, view after view, from 0.
    pub image: usize,
    /// Number of the stage, from 0: the decoded image.
    pub number: usize,
    /// The name of the operation; `decoded` for the decoded image.
    pub operation: &'static str,
    /// The image after the operation. Normalization is left out, and undone after later operations.
    pub pixels: Image,
}

impl<I> Pipeline<I> {
    /// Takes sample `index` through its recipes, as it goes through them in an epoch after having come `repetition`
    /// times before, and calls `each` with the decoded image and with the image after each operation. The operations
    /// run one by one, as with [`Strategy::Sequential`](crate::Strategy::Sequential). Returns the recipes
    /// ([`recipes_of`](Self::recipes_of)). Mixing ([`PipelineBuilder::mix`](crate::PipelineBuilder::mix)), which joins
    /// whole batches, is left out.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::prelude::*;
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let pipeline = Pipeline::builder(EncodedImages::new([(jpeg, 0)]))
    ///     .transform(random_horizontal_flip(1.0))
    ///     .transform(CenterCrop::new(8))
    ///     .normalize(IMAGENET_MEAN, IMAGENET_STD)
    ///     .build()?;
    /// let mut stages = Vec::new();
    /// pipeline.stages(0, 0, 0, &mut |stage| {
    ///     stages.push((stage.operation, stage.pixels.size()));
    ///     Ok(())
    /// })?;
    /// let whole = Size::new(40, 30);
    /// assert_eq!(stages, [("decoded", whole), ("hflip", whole), ("center_crop", Size::new(8, 8))]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`recipes_of`](Self::recipes_of), of [`apply`](crate::apply()), and of `each`.
    pub fn stages(
        &self,
        epoch: u64,
        index: u64,
        repetition: u32,
        each: &mut dyn FnMut(Stage) -> Result<()>,
    ) -> Result<Vec<Vec<Op>>> {
        let source = self.setup.input.clone().into_data_set()?;
        let recipes = self.recipes_of(epoch, index, repetition)?;
        let maker =
            Maker { samples: SourcePartners { setup: &self.setup, source: &*source }, options: self.apply_options() };
        let encoded = source.encoded(index)?;
        for (image, recipe) in recipes.iter().enumerate() {
            let mut stage = |number, operation, pixels| each(Stage { image, number, operation, pixels });
            let mut before = maker.image(Input::Encoded(&encoded), &[])?;
            stage(0, "decoded", before.clone())?;
            let (mut recipe, mut done) = (recipe.clone(), 0);
            maker.load_parts(&mut recipe)?;
            for at in 0..recipe.len() {
                // What comes after normalization is run with it, from the last image before it.
                let ops = &recipe[done..=at];
                let normalizes = ops[0].normalization().is_some();
                if normalizes && ops.len() == 1 {
                    continue;
                }
                let pixels = match self.setup.options.values {
                    None => maker.image(Input::Pixels((&before).into()), ops)?,
                    // Only RGB images are decoded pixels.
                    Some(_) => maker.image(Input::Encoded(&encoded), &recipe[..=at])?,
                };
                if !normalizes && self.setup.options.values.is_none() {
                    (before, done) = (pixels.clone(), at + 1);
                }
                stage(at + 1, recipe[at].name(), pixels)?;
            }
        }
        Ok(recipes)
    }

    fn apply_options(&self) -> ApplyOptions {
        let (recipes, options) = (&self.setup.recipes, &self.setup.options);
        ApplyOptions {
            pass_order: recipes.planner.order,
            orientation: Orientation::Ignore,
            draft: recipes.opening.draft_size(),
            accept_truncated: options.accept_truncated,
            max_pixels: recipes.planner.max_px,
            pixels: options.values.map_or(Pixels::Rgb, |values| Pixels::Kind(values.kind)),
            max_value: options.values.map(|values| values.max_value),
            ..ApplyOptions::default()
        }
    }
}

/// Makes images of samples by explicit operations.
struct Maker<'a> {
    samples: SourcePartners<'a>,
    options: ApplyOptions,
}

impl Maker<'_> {
    /// An image after operations, with the normalization undone if they end with one.
    fn image(&self, image: Input<'_>, ops: &[Op]) -> Result<Image> {
        let mut options = self.options.as_made_by(ops);
        if options.pixels != Pixels::Rgb {
            // For people: values of 0 to 1 become bytes.
            options.dtype = DType::F32;
        }
        let tensor = apply_to(image, ops, &options)?;
        let normalization = ops.iter().find_map(Op::normalization);
        rgb(tensor.as_bytes()?, tensor.shape(), (tensor.dtype(), tensor.layout()), normalization)
    }

    /// Makes the images of other samples in a recipe, and moves the fields that recipes depend on.
    fn load_parts(&self, recipe: &mut [Op]) -> Result<()> {
        for part in recipe.iter_mut().flat_map(Op::parts_mut) {
            self.load_parts(&mut part.ops)?;
            let SourcePartners { setup, source } = &self.samples;
            let image = self.image(Input::Encoded(&source.encoded(part.sample)?), &part.ops)?;
            let image = LoadedImage { size: image.size(), rgb: Arc::new(image.to_rgb()) };
            let (stored, annotation) = self.samples.read(part.sample)?;
            let planner = &setup.recipes.planner;
            let follow =
                |fields: Arc<Fields>| FieldMover::default().follow((*fields).clone(), stored.size, &part.ops, planner);
            let fields = annotation.fields.map(follow).transpose()?.map(|(fields, _)| Arc::new(fields));
            part.loaded = Loaded { fields, image: Some(image) };
        }
        Ok(())
    }
}
