//! Transforms that depend on the epoch.

use super::SizeEffect;
use super::combine::{one_effect, regions_of, validate_nested};
use super::recipe::RecipeBuilder;
use super::transform::{RandomTransform, Transform};
use super::written::list;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// One transform, and others from later epochs on: a schedule. Detectors of the YOLO family train their last epochs
/// without mosaics.
///
/// ```
/// use warpfeed::ops::{ByEpoch, Letterbox, RandomMosaic, Transform};
///
/// let closed_after_90 = ByEpoch::new(RandomMosaic::new(640)).then(90, Letterbox::new(640));
/// Transform::from(closed_after_90).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByEpoch {
    /// The first epoch of each transform but the first one.
    #[serde(default)]
    from: Vec<u64>,
    #[serde(deserialize_with = "list")]
    transforms: Vec<Transform>,
}

impl ByEpoch {
    /// A schedule that begins with this transform.
    #[must_use]
    pub fn new(first: impl Into<Transform>) -> Self {
        Self { from: Vec::new(), transforms: vec![first.into()] }
    }

    /// From the epoch `epoch` on, which is after all epochs that were named before, this transform takes the place of
    /// the last one.
    #[must_use]
    pub fn then(mut self, epoch: u64, transform: impl Into<Transform>) -> Self {
        self.from.push(epoch);
        self.transforms.push(transform.into());
        self
    }
}

impl RandomTransform for ByEpoch {
    fn validate(&self) -> Result<()> {
        if self.from.len() + 1 != self.transforms.len() || !self.from.is_sorted_by(|epoch, next| epoch < next) {
            let expected = "rising numbers of epochs, one for each transform but the first";
            let got = format!("{:?} for {} transforms", self.from, self.transforms.len());
            return Err(Error::parameter(Self::NAME, "from", expected, got));
        }
        validate_nested(&self.transforms)
    }

    fn size_effect(&self) -> SizeEffect {
        one_effect(&self.transforms)
    }

    /// Each transform keeps its regions, whichever is drawn.
    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let current = self.from.partition_point(|from| *from <= recipe.epoch());
        let Some(transform) = self.transforms.get(current) else { return Ok(()) };
        recipe.add_after(regions_of(&self.transforms[..current]), transform)
    }

    fn regions(&self) -> u32 {
        regions_of(&self.transforms)
    }

    fn parts(&self) -> &[Transform] {
        &self.transforms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::recipe::draw_recipe;
    use crate::ops::transform::SampleInfo;
    use crate::ops::{Hflip, Op, SampleRng, Vflip, random_rotation};
    use crate::raster::Size;
    use crate::rng::Pick;
    use crate::targets::Annotation;

    fn drawn(transforms: &[Transform], epoch: u64) -> Vec<Op> {
        let annotation = Annotation::default();
        let sample = SampleInfo::new(Pick { index: 0, repetition: 0 }, Size::new(9, 8), &annotation).in_epoch(epoch);
        draw_recipe(&[], transforms, &mut SampleRng::for_sample(1, 0, 0), sample, None).unwrap().ops
    }

    #[test]
    fn epochs_decide_and_no_branch_moves_the_numbers_of_others() {
        let turn = || random_rotation(0.0..=90.0);
        let schedule = ByEpoch::new(Hflip).then(3, turn()).then(5, Vflip);
        let of = |epoch| drawn(&[schedule.clone().into(), turn()], epoch);
        assert!([0, 2].iter().all(|epoch| of(*epoch)[0] == Hflip.into()));
        assert!(of(3) == of(4) && matches!(of(3)[0], Op::Rotate(_)));
        assert!([5, u64::MAX].iter().all(|epoch| of(*epoch)[0] == Vflip.into()));
        assert!(of(0)[1] == of(3)[1] && of(3)[1] == of(9)[1] && of(3)[0] != of(3)[1]);
    }

    #[test]
    fn each_transform_has_its_epoch() {
        assert!(ByEpoch::new(Hflip).then(3, Vflip).then(3, Hflip).validate().unwrap_err().is_parameter());
        assert!(ByEpoch { from: vec![1], transforms: vec![Hflip.into()] }.validate().unwrap_err().is_parameter());
        assert!(ByEpoch { from: Vec::new(), transforms: Vec::new() }.validate().unwrap_err().is_parameter());
    }
}
