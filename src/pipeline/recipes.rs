//! Recipes: each sample's explicit operations, drawn by seed, epoch and index.

use crate::apply::field_mover::FieldMover;
use crate::apply::opening::{Opening, Stored};
use crate::decode::{Header, Input};
use crate::error::Result;
use crate::ops::Op;
use crate::ops::orientation::oriented;
use crate::ops::part::Partners;
use crate::ops::recipe::draw_recipe;
use crate::ops::transform::{SampleInfo, Transform, images_after};
use crate::plan::{Planner, Strategy, is_multiplied};
use crate::raster::{Size, check_pixels};
use crate::rng::{Pick, SampleRng};
use crate::shapes::{BatchShape, Buckets};
use crate::targets::Annotation;
use std::sync::Arc;

/// A sample of a batch: everything that its recipes depend on, besides the pipeline's settings, the epoch and, if a
/// transform sees the sample, its annotation; and how it came to its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) pick: Pick,
    pub(super) stored: Stored,
    /// The shape of its batch, if batches have shapes of their own.
    pub(super) shape: Option<BatchShape>,
    /// Index of the bad sample that this one substitutes.
    pub(super) instead_of: Option<u64>,
    /// Whether a decoder decoded the image whose pixels are not the CPU's.
    pub(super) approximate: bool,
}

impl Drawn {
    pub(super) fn new(pick: Pick, stored: Stored) -> Self {
        Self { pick, stored, shape: None, instead_of: None, approximate: false }
    }

    /// The sample in a batch of this shape.
    pub(super) fn in_batch(self, shape: Option<BatchShape>) -> Self {
        Self { shape, ..self }
    }
}

/// The recipes of a sample, one for each of its images.
pub(super) struct SampleRecipes {
    pub(super) recipes: Vec<Vec<Op>>,
    /// Whether a crop was larger than the image, so that its fill shows.
    pub(super) is_padded: bool,
}

/// The transforms of a view.
#[derive(Debug)]
pub(super) struct ViewTransforms {
    /// One list of transforms per image.
    pub(super) images: Vec<Vec<Transform>>,
    /// Number of times that the list is repeated.
    pub(super) times: usize,
}

impl ViewTransforms {
    /// The transforms of every image of the view, repetitions included.
    pub(super) fn all(&self) -> impl Iterator<Item = &Vec<Transform>> {
        (0..self.times).flat_map(|_| &self.images)
    }
}

/// Largest number of images that go into one of these views: more than one if transforms need other samples.
pub(super) fn most_images(views: &[ViewTransforms]) -> u64 {
    let images = views.iter().flat_map(|view| &view.images).map(|transforms| images_after(transforms, 1));
    images.max().unwrap_or(1)
}

/// The settings that recipes are drawn from.
pub(super) struct Recipes {
    pub(super) seed: u64,
    /// The transforms of each view.
    pub(super) views: Vec<ViewTransforms>,
    /// The deterministic operations that all views begin with.
    fixed: Vec<Op>,
    /// Whether a transform sees the sample, so that recipes depend on annotations too.
    pub(super) see_annotations: bool,
    /// Largest number of images that go into one of a batch.
    pub(super) images: u64,
    pub(super) opening: Opening,
    pub(super) planner: Planner,
    /// Whether recipes end by dropping the objects whose boxes are no longer valid.
    sanitize: bool,
    /// The rule by which images cover their buckets, if there are any.
    pub(super) buckets: Option<Buckets>,
}

impl Recipes {
    pub(super) fn new(
        seed: u64,
        views: Vec<ViewTransforms>,
        opening: Opening,
        planner: Planner,
        sanitize: bool,
        buckets: Option<Buckets>,
    ) -> Self {
        // What code of the caller's own makes has no key.
        let is_cacheable = |op: &&Op| op.finish().is_none() && !matches!(op, Op::Custom(_));
        let fixed = |transforms: &Vec<Transform>| -> Vec<Op> {
            let op = |transform: &Transform| transform.explicit().filter(is_cacheable).cloned();
            transforms.iter().map_while(op).collect()
        };
        let shared = |mut shared: Vec<Op>, next: Vec<Op>| {
            shared.truncate(shared.iter().zip(&next).take_while(|(a, b)| a == b).count());
            shared
        };
        let fixed = views.iter().flat_map(|view| &view.images).map(fixed).reduce(shared).unwrap_or_default();
        let see_annotations =
            views.iter().flat_map(|view| &view.images).flatten().any(Transform::depends_on_annotations);
        let images = most_images(&views);
        Self { seed, views, fixed, see_annotations, images, opening, planner, sanitize, buckets }
    }

    /// The size of a sample's image in the source, turned upright unless orientation is ignored.
    pub(super) fn upright(&self, stored: Stored) -> Result<Size> {
        oriented(stored.orientation, self.opening.orientation)
            .iter()
            .try_fold(stored.full, |size, op| op.output_size(size))
    }

    /// Reads the header of an image and checks it against the limits.
    pub(super) fn header(&self, image: Input<'_>) -> Result<Header> {
        self.opening.header(image, self.planner.most_stored_px())
    }

    /// An annotation whose fields lie on the decoded image, which may be a draft.
    ///
    /// # Errors
    /// See [`FieldMover::follow`].
    pub(super) fn fit(
        &self,
        mut annotation: Annotation,
        stored: Stored,
        follower: &mut FieldMover,
    ) -> Result<Annotation> {
        if let (Some(fields), true) = (&mut annotation.fields, stored.scale_denom > 1) {
            *fields = Arc::new(follower.scale_to_draft((**fields).clone(), stored, &self.planner)?);
        }
        Ok(annotation)
    }

    /// Draws the operations of every image that a batch has of a sample, view after view. `partners` reads other
    /// samples.
    pub(super) fn draw(
        &self,
        epoch: u64,
        Drawn { pick, stored, shape, .. }: Drawn,
        annotation: &Annotation,
        partners: Option<&dyn Partners>,
    ) -> Result<SampleRecipes> {
        let opened = self.opening.operations(stored);
        let (mut recipes, mut is_padded) = (Vec::new(), false);
        for (number, view) in (0..).zip(&self.views) {
            for (repetition, transforms) in (0..).zip(view.all()) {
                let mut draw = SampleRng::for_view(self.seed, epoch, pick, number, repetition);
                let sample = SampleInfo::new(pick, stored.size, annotation).in_epoch(epoch);
                let sample = sample.in_batch(shape, self.buckets.as_ref());
                let mut recipe = draw_recipe(&opened, transforms, &mut draw, sample, partners)?;
                is_padded |= recipe.is_padded;
                if self.sanitize {
                    recipe.end_by_sanitizing();
                }
                recipes.push(recipe.ops);
            }
        }
        Ok(SampleRecipes { recipes, is_padded })
    }

    /// The leading deterministic operations, which are run before an image is cached.
    pub(super) fn cached_ops(&self, stored: Stored) -> Vec<Op> {
        let mut ops = self.opening.operations(stored);
        ops.extend_from_slice(&self.fixed);
        if self.planner.strategy == Strategy::Composed {
            // An operation that is multiplied with later ones must stay with them.
            let (mut size, mut cached) = (stored.size, 0);
            for (i, op) in ops.iter().enumerate() {
                if !is_multiplied(op, size) {
                    cached = i + 1;
                }
                // An operation that does not fit ends the cached part. Drawing the recipe reports it.
                let Ok(next) = op.output_size(size) else { break };
                size = next;
            }
            ops.truncate(cached);
        }
        ops
    }

    /// The size of the cached image.
    pub(super) fn cached_size(&self, stored: Stored) -> Result<Size> {
        self.cached_ops(stored).iter().try_fold(stored.size, |size, op| {
            let size = op.output_size(size)?;
            check_pixels(size, self.planner.max_px)?;
            Ok(size)
        })
    }
}
