//! Combinations of transforms.

use super::check::{probability, within};
use super::recipe::RecipeBuilder;
use super::transform::{RandomTransform, Transform, images_after};
use super::written::list;
use super::{Op, SampleRng, SizeEffect};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Largest number of repetitions of one [`Repeat`].
const MAX_REPEAT: u32 = 1_000;

/// One of several transforms: torchvision's `RandomChoice`. All are equally likely unless [`weights`](Self::weights)
/// says otherwise.
///
/// ```
/// use warpfeed::ops::{OneOf, Transform, random_grayscale, random_horizontal_flip};
///
/// let thrice = OneOf::new([random_grayscale(1.0), random_horizontal_flip(1.0)]).weights([3.0, 1.0]);
/// Transform::from(thrice).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneOf {
    #[serde(deserialize_with = "list")]
    transforms: Vec<Transform>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    weights: Vec<f64>,
}

/// All of several transforms, in random order: torchvision's `RandomOrder`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomOrder {
    #[serde(deserialize_with = "list")]
    transforms: Vec<Transform>,
}

/// All of several transforms in order, with a probability; otherwise none: torchvision's `RandomApply`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maybe {
    p: f64,
    #[serde(deserialize_with = "list")]
    transforms: Vec<Transform>,
}

/// Transforms in order, several times, each time with fresh draws. `--load` of the command uses it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    n: u32,
    #[serde(deserialize_with = "list")]
    transforms: Vec<Transform>,
}

impl OneOf {
    /// A choice of one of these transforms.
    #[must_use]
    pub fn new(transforms: impl IntoIterator<Item = Transform>) -> Self {
        Self { transforms: transforms.into_iter().collect(), weights: Vec::new() }
    }

    /// Relative probabilities, one per transform, 0 or more.
    #[must_use]
    pub fn weights(mut self, weights: impl IntoIterator<Item = f64>) -> Self {
        self.weights = weights.into_iter().collect();
        self
    }

    /// The index of the transform that is drawn. With equal chances and with weights, the draw takes one number.
    fn choose(&self, rng: &mut SampleRng) -> usize {
        if self.weights.is_empty() {
            return rng.below(self.transforms.len() as u64) as usize;
        }
        let mut left = rng.unit() * self.weights.iter().sum::<f64>();
        let chosen = self.weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        // Rounding may leave a rest; it belongs to the last transform that can be chosen.
        chosen.or_else(|| self.weights.iter().rposition(|weight| *weight > 0.0)).unwrap_or(0)
    }
}

impl RandomOrder {
    /// All of these transforms, in random order.
    #[must_use]
    pub fn new(transforms: impl IntoIterator<Item = Transform>) -> Self {
        Self { transforms: transforms.into_iter().collect() }
    }
}

impl Maybe {
    /// All of these transforms, with probability `p`.
    #[must_use]
    pub fn new(p: f64, transforms: impl IntoIterator<Item = Transform>) -> Self {
        Self { p, transforms: transforms.into_iter().collect() }
    }
}

impl Repeat {
    /// These transforms, `n` times.
    #[must_use]
    pub fn new(n: u32, transforms: impl IntoIterator<Item = Transform>) -> Self {
        Self { n, transforms: transforms.into_iter().collect() }
    }
}

impl SizeEffect {
    fn then(self, next: Self) -> Self {
        match next {
            Self::Keeps => self,
            Self::Becomes(_) | Self::Varies => next,
        }
    }

    /// The effect of several transforms, one after the other.
    fn of_all(transforms: &[Transform]) -> Self {
        transforms.iter().fold(Self::Keeps, |effect, transform| effect.then(transform.size_effect()))
    }
}

/// The effect of one of several transforms.
pub(super) fn one_effect(transforms: &[Transform]) -> SizeEffect {
    let mut effects = transforms.iter().map(Transform::size_effect);
    let first = effects.next().unwrap_or(SizeEffect::Keeps);
    if effects.all(|effect| effect == first) { first } else { SizeEffect::Varies }
}

pub(super) fn validate_nested(transforms: &[Transform]) -> Result<()> {
    transforms.iter().try_for_each(|transform| match transform {
        Transform::Explicit(Op::Normalize(_) | Op::ToFloat(_)) => Err(Error::parameter(
            "normalize",
            "place",
            "outside one_of, maybe, repeat, by_epoch and random_order",
            "inside",
        )),
        Transform::Named(_) => {
            let expected = "for items of a list: name the combination that this one is in";
            Err(Error::parameter(transform.name(), "as", expected, "a name inside a combination"))
        }
        transform => transform.validate(),
    })
}

pub(super) fn regions_of(transforms: &[Transform]) -> u32 {
    transforms.iter().fold(0, |sum, transform| sum.saturating_add(transform.regions()))
}

fn most_steps_of(transforms: &[Transform]) -> u64 {
    transforms.iter().fold(1, |sum, transform| sum.saturating_add(transform.most_steps()))
}

impl RandomTransform for OneOf {
    fn validate(&self) -> Result<()> {
        if self.transforms.is_empty() {
            return Err(Error::parameter(Self::NAME, "ops", "at least one operation", "none"));
        }
        let sum: f64 = self.weights.iter().sum();
        let fit = self.weights.len() == self.transforms.len() && self.weights.iter().all(|weight| *weight >= 0.0);
        let allowed = self.weights.is_empty() || (fit && sum > 0.0 && sum.is_finite());
        if !allowed {
            let expected = format!("{} finite numbers, 0 or more and not all 0", self.transforms.len());
            return Err(Error::parameter(Self::NAME, "weights", expected, format!("{:?}", self.weights)));
        }
        validate_nested(&self.transforms)
    }

    fn size_effect(&self) -> SizeEffect {
        one_effect(&self.transforms)
    }

    /// A branch that is not taken keeps its regions.
    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let chosen = self.choose(rng);
        let Some(transform) = self.transforms.get(chosen) else { return Ok(()) };
        recipe.add_after(regions_of(&self.transforms[..chosen]).saturating_add(1), transform)
    }

    fn regions(&self) -> u32 {
        regions_of(&self.transforms).saturating_add(1)
    }

    fn parts(&self) -> &[Transform] {
        &self.transforms
    }
}

impl RandomTransform for RandomOrder {
    fn validate(&self) -> Result<()> {
        validate_nested(&self.transforms)
    }

    fn size_effect(&self) -> SizeEffect {
        let mut changes =
            self.transforms.iter().map(Transform::size_effect).filter(|effect| *effect != SizeEffect::Keeps);
        match (changes.next(), changes.next()) {
            (None, _) => SizeEffect::Keeps,
            (Some(only), None) => only,
            // The last of these transforms is drawn.
            _ => SizeEffect::Varies,
        }
    }

    /// Each transform keeps its regions, wherever it comes in the order.
    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let mut region = 1_u32;
        let mut order: Vec<_> = self
            .transforms
            .iter()
            .map(|transform| {
                let first = region;
                region = region.saturating_add(transform.regions());
                (first, transform)
            })
            .collect();
        let (rng, _) = recipe.start();
        rng.shuffle(&mut order);
        order.into_iter().try_for_each(|(first, transform)| recipe.add_after(first, transform))
    }

    fn regions(&self) -> u32 {
        regions_of(&self.transforms).saturating_add(1)
    }

    fn parts(&self) -> &[Transform] {
        &self.transforms
    }
}

impl RandomTransform for Maybe {
    fn validate(&self) -> Result<()> {
        probability(Self::NAME, self.p)?;
        validate_nested(&self.transforms)
    }

    fn size_effect(&self) -> SizeEffect {
        match SizeEffect::of_all(&self.transforms) {
            SizeEffect::Keeps => SizeEffect::Keeps,
            SizeEffect::Becomes(_) | SizeEffect::Varies => SizeEffect::Varies,
        }
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        if rng.chance(self.p) {
            recipe.skip(1);
            self.transforms.iter().try_for_each(|transform| recipe.add(transform))?;
        }
        Ok(())
    }

    fn regions(&self) -> u32 {
        regions_of(&self.transforms).saturating_add(1)
    }

    fn parts(&self) -> &[Transform] {
        &self.transforms
    }
}

impl RandomTransform for Repeat {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "n", self.n, 0..=MAX_REPEAT)?;
        validate_nested(&self.transforms)
    }

    fn size_effect(&self) -> SizeEffect {
        if self.n == 0 { SizeEffect::Keeps } else { SizeEffect::of_all(&self.transforms) }
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        (0..self.n).try_for_each(|_| self.transforms.iter().try_for_each(|transform| recipe.add(transform)))
    }

    fn regions(&self) -> u32 {
        self.n.saturating_mul(regions_of(&self.transforms))
    }

    fn parts(&self) -> &[Transform] {
        &self.transforms
    }

    fn most_steps(&self) -> u64 {
        u64::from(self.n).saturating_mul(most_steps_of(&self.transforms))
    }

    fn images(&self, before: u64) -> u64 {
        (0..self.n).fold(before, |images, _| images_after(&self.transforms, images))
    }
}
