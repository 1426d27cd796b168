//! Brightness, contrast, saturation and hue at random.

use super::check::range;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Brightness, Contrast, Hue, Op, Saturation};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Brightness, contrast, saturation and hue by random factors in random order: torchvision's `ColorJitter`. A range of
/// `1..=1` (hue: `0..=0`), which is the default, leaves that change out.
///
/// ```
/// use warpfeed::ops::{ColorJitter, Transform};
///
/// Transform::from(ColorJitter::new().brightness(0.6..=1.4).hue(-0.1..=0.1)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColorJitter {
    #[serde(with = "super::written::range")]
    brightness: RangeInclusive<f64>,
    #[serde(with = "super::written::range")]
    contrast: RangeInclusive<f64>,
    #[serde(with = "super::written::range")]
    saturation: RangeInclusive<f64>,
    #[serde(with = "super::written::range")]
    hue: RangeInclusive<f64>,
}

impl Default for ColorJitter {
    fn default() -> Self {
        Self::new()
    }
}

impl ColorJitter {
    /// A jitter that changes nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { brightness: 1.0..=1.0, contrast: 1.0..=1.0, saturation: 1.0..=1.0, hue: 0.0..=0.0 }
    }

    setters! {
        /// Factors of brightness.
        brightness: RangeInclusive<f64>,
        /// Factors of contrast.
        contrast: RangeInclusive<f64>,
        /// Factors of saturation.
        saturation: RangeInclusive<f64>,
        /// Turns of hue, within -0.5 to 0.5.
        hue: RangeInclusive<f64>,
    }
}

impl RandomTransform for ColorJitter {
    fn validate(&self) -> Result<()> {
        range(Self::NAME, "brightness", &self.brightness, 0.0, f64::INFINITY)?;
        range(Self::NAME, "contrast", &self.contrast, 0.0, f64::INFINITY)?;
        range(Self::NAME, "saturation", &self.saturation, 0.0, f64::INFINITY)?;
        range(Self::NAME, "hue", &self.hue, -0.5, 0.5)
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        let only_brightness = Self { brightness: self.brightness.clone(), ..Self::new() } == *self;
        // A change that is off draws no number.
        only_brightness.then(|| Op::from(Brightness::new(*self.brightness.start())).takes(pixels))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        // All four numbers are drawn, so that leaving one change out does not alter the others.
        let mut factor = |range: &RangeInclusive<f64>, unchanged: f64| {
            let factor = rng.uniform(*range.start(), *range.end());
            (*range != (unchanged..=unchanged)).then_some(factor)
        };
        let mut jitter: [Option<Op>; 4] = [
            factor(&self.brightness, 1.0).map(|factor| Brightness::new(factor).into()),
            factor(&self.contrast, 1.0).map(|factor| Contrast::new(factor).into()),
            factor(&self.saturation, 1.0).map(|factor| Saturation::new(factor).into()),
            factor(&self.hue, 0.0).map(|factor| Hue::new(factor).into()),
        ];
        rng.shuffle(&mut jitter);
        jitter.into_iter().flatten().try_for_each(|op| recipe.push(op))
    }
}
