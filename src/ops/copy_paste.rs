//! Objects of another sample over an image.

use super::check::pixels;
use super::kernel::{CallRecorder, Kernel};
use super::part::{Part, needs_a_pipeline};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::{
    CpuPass, FieldContext, Interpolation, KeepObjects, Op, Operation, Pass, Primitive, Reach, Resize, Sanitize,
};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::fields::motion::{Join, Motion, Shown};
use crate::fields::region::Region;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Largest margin around pasted objects.
const MAX_MARGIN_PX: u32 = 64;

/// Pixels around an object that torchvision's blur of the mask reaches: its kernel of 5 x 5 is applied to true and
/// false.
const BLURRED_PX: u32 = 2;

/// Pastes the objects of another sample, cut out by their masks, over the image of its size. Objects below lose these
/// pixels of their masks; boxes, labels and all else of the pasted ones are added. It runs on the CPU.
/// [`RandomCopyPaste`] and [`YoloCopyPaste`](super::YoloCopyPaste) draw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CopyPaste {
    /// The other sample. All objects that its operations leave are pasted.
    pub part: Part,
    /// Pixels around the objects, along each axis, that are pasted with them, 0 to 64.
    #[serde(default)]
    pub margin: u32,
    /// Whether fully covered objects of the image are dropped, and the boxes of the others fitted to their remaining
    /// masks.
    #[serde(default = "yes")]
    pub refit: bool,
}

const fn yes() -> bool {
    true
}

impl CopyPaste {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    /// All objects of another sample, without a margin. Boxes of objects below are set anew.
    #[must_use]
    pub const fn new(part: Part) -> Self {
        Self { part, margin: 0, refit: yes() }
    }

    /// None: an example cannot have another sample.
    pub(super) fn examples(_size: Size) -> Vec<Self> {
        Vec::new()
    }
}

impl Operation for CopyPaste {
    fn validate(&self) -> Result<()> {
        pixels(Self::NAME, "margin", self.margin, 0..=MAX_MARGIN_PX)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        let others = vec![(self.part.fields(Self::NAME)?, [0; 2])];
        let Self { margin, refit, .. } = *self;
        Ok(Motion::Join(Join { at: [0; 2], others, shown: Shown::Objects { margin, refit } }))
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Err(needs_a_pipeline(Self::NAME))
    }

    fn joins(&self) -> bool {
        true
    }

    fn parts(&self) -> &[Part] {
        std::slice::from_ref(&self.part)
    }

    fn parts_mut(&mut self) -> &mut [Part] {
        std::slice::from_mut(&mut self.part)
    }

    fn has_kernels(&self) -> bool {
        false
    }
}

impl Pass for CopyPaste {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let (other, size) = (self.part.image(Self::NAME)?, pass.image.size());
        if other.size != size {
            return Err(Error::parameter(Self::NAME, "part", format!("an image of {size}"), other.size));
        }
        let region = Region::of_objects(&*self.part.fields(Self::NAME)?, self.margin);
        let region = region.ok_or_else(|| needs_a_pipeline(Self::NAME))?;
        for (row, other) in (0..size.height).zip(other.rows()) {
            for ((to, from), inside) in pass.image.row_mut(row).iter_mut().zip(other).zip(region.row(row)) {
                if *inside {
                    to[..3].copy_from_slice(from);
                }
            }
        }
        Ok(())
    }

    fn launch(&self, _on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        // Back ends run plans with this operation on the CPU (`Operation::has_kernels`).
        Err(needs_a_pipeline(Self::NAME))
    }
}

/// Pastes random objects of another sample over the image by their masks: `SimpleCopyPaste` of torchvision's
/// references. Of the other sample's n objects, n draws with repetition choose those to paste. Objects of the image
/// lose the covered pixels; fully covered objects are dropped, and the boxes of the others are fitted to their
/// remaining masks. The sample must have masks of objects among its fields.
///
/// The other is any sample of the source, after the transforms that come before this one in the pipeline, with draws of
/// its own; torchvision takes the one before in the batch. If its size differs, it is resized to the image's. If it has
/// no objects, the image stays as it is.
///
/// No transform that reads boxes may come later: the remaining objects are not known when recipes are drawn.
///
/// ```
/// use warpfeed::fields::{BoxFormat, Boxes, Fields, Mask};
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::ops::{Op, RandomCopyPaste};
/// use warpfeed::prelude::*;
///
/// let size = Size::new(16, 12);
/// let jpeg = encode_jpeg(&Image::new(size), &JpegOptions::default())?;
/// let masks = Mask::of_objects(size, [vec![1; 192]])?;
/// let boxes = Boxes::new(BoxFormat::Xyxy, vec![[0.0, 0.0, 16.0, 12.0]]);
/// let fields = Fields::new().with("boxes", boxes)?.with("masks", masks)?;
/// let source = EncodedImages::new((0..4).map(|label| (jpeg.clone(), label)));
/// let pipeline = Pipeline::builder(source.fields(["boxes", "masks"], move |_| Ok(fields.clone())))
///     .fields(["boxes", "masks"])
///     .transform(RandomCopyPaste::new())
///     .transform(CenterCrop::new(8))
///     .build()?;
/// assert!(pipeline.recipe(0, 0)?.iter().any(|op| matches!(op, Op::CopyPaste(_))));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCopyPaste {
    #[serde(default = "yes")]
    blending: bool,
    #[serde(default)]
    interpolation: Interpolation,
}

impl Default for RandomCopyPaste {
    fn default() -> Self {
        Self::new()
    }
}

impl RandomCopyPaste {
    /// torchvision's defaults: blending, and bilinear interpolation.
    #[must_use]
    pub const fn new() -> Self {
        Self { blending: yes(), interpolation: Interpolation::Bilinear }
    }

    setters! {
        /// Whether 2 pixels around the objects are pasted too. torchvision blurs the mask by 5 x 5 pixels, but as true
        /// and false: what the blur touches is pasted without mixing pixels.
        blending: bool,
        /// Filter that resizes another sample of another size.
        interpolation: Interpolation,
    }
}

impl RandomTransform for RandomCopyPaste {
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    fn depends_on_annotations(&self) -> bool {
        true
    }

    fn may_drop_objects(&self) -> bool {
        true
    }

    fn images(&self, before: u64) -> u64 {
        before.saturating_mul(2)
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let samples = recipe.partners(Self::NAME)?.samples();
        recipe.check_object_masks(Self::NAME)?;
        let (rng, size) = recipe.start();
        let (sample, mut choice, mut rng) = (rng.below(samples), rng.fork(), rng.fork());
        let mut part = recipe.partner(Self::NAME, sample, &mut rng)?;
        let objects = part.fields().map_or(0, Fields::objects);
        if objects == 0 {
            return Ok(());
        }
        let mut chosen = vec![false; objects];
        (0..objects).for_each(|_| chosen[choice.below(objects as u64) as usize] = true);
        if chosen.contains(&false) {
            part.push(KeepObjects::those(chosen).into())?;
        }
        if part.size() != size {
            part.push(Resize::new(size).interpolation(self.interpolation).into())?;
        }
        let margin = if self.blending { BLURRED_PX } else { 0 };
        recipe.push(CopyPaste { part: part.at([0; 2]), margin, refit: true })?;
        recipe.push(Sanitize::without_area())
    }
}
