//! timm's augmentations, described by its training script's text.

use super::check::ABOVE_0;
use super::filter::Interpolation;
use super::interpolations::Interpolations;
use super::recipe::RecipeBuilder;
use super::timm_kind::{Draws, TimmKind, TimmSettings};
use super::timm_policy::{self as policy, TimmPolicy};
use super::transform::RandomTransform;
use super::{Chain, Op, SampleRng, WeightedSum, affine_warp};
use crate::error::{Error, Result};
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Largest number of operations, of chains, and of operations in a chain.
const MOST: u32 = 100;
/// The highest level.
const MAX_LEVEL: u32 = 1000;
/// ImageNet's mean color, which timm uses as fill.
const IMAGENET_COLOR: [u8; 3] = [124, 116, 104];
/// Largest move, as a part of the image's side.
const TRANSLATE: f64 = 0.45;
/// Largest move of AugMix, from timm's factory of transforms.
const AUG_MIX_TRANSLATE: f64 = 0.3;

/// timm's RandAugment, AutoAugment, AugMix and 3-Augment, described by the text of timm's `--aa`, such as
/// `rand-m9-mstd0.5-inc1`.
///
/// The name comes first. Sections follow in any order, separated by dashes. Defaults are in brackets:
///
/// | name | sections |
/// | --- | --- |
/// | `rand`: operations one after the other, each left out with a probability | `m` level 0 to 10 (10), `n` how many (2), `p` probability of each (0.5), `mstd` standard deviation of the level (0; over 100: uniform from 0), `mmax` the highest level (10), `inc1` kinds that increase with the level (0), `tweights`, `t3a`, `t3aw` another set of kinds |
/// | `augmix`: chains of operations, mixed | `m` level (3), `w` chains (3), `d` operations of a chain (1 to 3, drawn), `a` the parameter of the weights (1), `mstd` as above (uniform from 0) |
/// | `v0`, `v0r`, `original`, `originalr`, `3a`: a policy's pairs | `mstd` as above |
///
/// Levels, kinds, signs and probabilities are timm's. Outside the image is [`fill`](Self::fill), where timm takes the
/// color of the mean. Operations that sample are bilinear or bicubic, drawn for each operation, unless
/// [`interpolation`](Self::interpolation) says otherwise.
///
/// ```
/// use warpfeed::ops::{Interpolation, TimmAugment, Transform};
///
/// let augment = TimmAugment::parse("rand-m9-mstd0.5-inc1")?.interpolation(Interpolation::Bicubic);
/// Transform::from(augment).validate()?;
/// let error = TimmAugment::parse("rand-m9-x3").unwrap_err().to_string();
/// assert!(error.contains(r#""x3" of "rand-m9-x3""#), "{error}");
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenTimmAugment", into = "WrittenTimmAugment")]
pub struct TimmAugment {
    config: String,
    suite: Suite,
    noise: LevelNoise,
    fill: [u8; 3],
    interpolation: Interpolations,
    translate: Option<f64>,
}

/// The augmentation that the text describes.
#[derive(Debug, Clone, PartialEq)]
enum Suite {
    Rand { level: u32, ops: u32, p: f64, kinds: Kinds },
    AugMix { level: u32, width: u32, depth: Option<u32>, alpha: f64 },
    Policy(TimmPolicy),
}

/// The kinds of operations that are drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kinds {
    /// All kinds are equally likely and may come several times.
    Even(&'static [TimmKind]),
    /// Kinds are drawn by weight and come at most once.
    Weighted(&'static [(TimmKind, f64)]),
}

/// Distribution of an operation's level.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LevelNoise {
    /// Standard deviation of the level. Infinite for a level that is uniform from 0.
    std: f64,
    highest: f64,
}

impl LevelNoise {
    fn level(self, level: f64, rng: &mut SampleRng) -> f64 {
        let level = if self.std.is_infinite() {
            rng.uniform(0.0, level)
        } else if self.std > 0.0 {
            level + self.std * rng.normal()
        } else {
            level
        };
        level.clamp(0.0, self.highest)
    }
}

/// The written form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTimmAugment {
    config: String,
    #[serde(default = "imagenet_color")]
    fill: [u8; 3],
    #[serde(default = "random_interpolation")]
    interpolation: Interpolations,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    translate: Option<f64>,
}

const fn imagenet_color() -> [u8; 3] {
    IMAGENET_COLOR
}

/// timm's filter `random`.
const fn random_interpolation() -> Interpolations {
    Interpolations::Either([Interpolation::Bilinear, Interpolation::Bicubic])
}

impl TryFrom<WrittenTimmAugment> for TimmAugment {
    type Error = Error;

    fn try_from(WrittenTimmAugment { config, fill, interpolation, translate }: WrittenTimmAugment) -> Result<Self> {
        Ok(Self { fill, interpolation, translate, ..Self::parse(&config)? })
    }
}

impl From<TimmAugment> for WrittenTimmAugment {
    fn from(TimmAugment { config, fill, interpolation, translate, .. }: TimmAugment) -> Self {
        Self { config, fill, interpolation, translate }
    }
}

impl TimmAugment {
    /// Reads timm's text. Defaults: ImageNet's mean color outside the image; bilinear or bicubic, drawn.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the section that is unknown, comes twice or has a senseless value. timm itself
    /// silently ignores sections without a number.
    pub fn parse(text: &str) -> Result<Self> {
        let mut sections = Sections::of(text)?;
        let suite = match sections.name {
            "rand" => sections.rand()?,
            "augmix" => Suite::AugMix {
                level: sections.whole("m", 0..=MAX_LEVEL)?.unwrap_or(3),
                width: sections.whole("w", 1..=MOST)?.unwrap_or(3),
                depth: sections.whole("d", 1..=MOST)?,
                alpha: sections.number("a", ABOVE_0..=f64::MAX)?.unwrap_or(1.0),
            },
            "v0" => Suite::Policy(policy::V0),
            "v0r" => Suite::Policy(policy::V0R),
            "original" => Suite::Policy(policy::ORIGINAL),
            "originalr" => Suite::Policy(policy::ORIGINALR),
            "3a" => Suite::Policy(policy::THREE_AUGMENT),
            name => {
                let expected = "rand, augmix, v0, v0r, original, originalr or 3a at the beginning";
                return Err(sections.wrong(name, expected));
            }
        };
        let usual = if let Suite::AugMix { .. } = suite { f64::INFINITY } else { 0.0 };
        let mut std = sections.number("mstd", 0.0..=f64::MAX)?.unwrap_or(usual);
        let mut highest = 10;
        if let Suite::Rand { .. } = suite {
            highest = sections.whole("mmax", 1..=MAX_LEVEL)?.unwrap_or(highest);
            if std > 100.0 {
                std = f64::INFINITY;
            }
        }
        sections.end()?;
        let noise = LevelNoise { std, highest: highest.into() };
        let config = text.to_owned();
        Ok(Self { config, suite, noise, fill: IMAGENET_COLOR, interpolation: random_interpolation(), translate: None })
    }

    setters! {
        /// Color outside the image: red, green, blue. timm uses `round(255 * mean)`.
        fill: [u8; 3],
    }

    /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
    /// [`Bicubic`](Interpolation::Bicubic), or two of them; then one is drawn for each operation. Default: bilinear and
    /// bicubic.
    #[must_use]
    pub fn interpolation(mut self, interpolation: impl Into<Interpolations>) -> Self {
        self.interpolation = interpolation.into();
        self
    }

    setters! {
        /// Largest move at level 10, as a part of the image's side: timm's `translate_pct`. Default: 0.3 in `augmix`,
        /// otherwise 0.45.
        translate: f64 => Some,
    }

    fn style(&self) -> TimmSettings {
        let usual = if let Suite::AugMix { .. } = self.suite { AUG_MIX_TRANSLATE } else { TRANSLATE };
        TimmSettings { fill: self.fill, translate: self.translate.unwrap_or(usual) }
    }

    /// The operation of a step; `None` if it is left out. All numbers are drawn in any case.
    fn step(&self, (kind, p, level): (TimmKind, f64, f64), rng: &mut SampleRng, size: Size) -> Option<Op> {
        let taken = rng.chance(p);
        let level = self.noise.level(level, rng);
        let negative = rng.below(2) == 1;
        let interpolation = self.interpolation.draw(rng);
        let draws = Draws { level, negative, interpolation, unit: rng.unit() };
        taken.then(|| kind.op(draws, size, self.style())).flatten()
    }

    fn steps(&self, steps: &[(TimmKind, f64, f64)], rng: &mut SampleRng, size: Size) -> Vec<Op> {
        steps.iter().filter_map(|&step| self.step(step, rng, size)).collect()
    }

    fn mix(
        &self,
        (level, width, depth, alpha): (u32, u32, Option<u32>, f64),
        rng: &mut SampleRng,
        size: Size,
    ) -> WeightedSum {
        let weights = rng.dirichlet(alpha, width as usize);
        let blend = rng.dirichlet(alpha, 2)[0];
        let chain = |weight: f64| {
            let depth = depth.unwrap_or_else(|| 1 + rng.below(3) as u32);
            let kinds = even(policy::AUG_MIX, depth, rng);
            let steps: Vec<_> = kinds.into_iter().map(|kind| (kind, 1.0, f64::from(level))).collect();
            Chain::new(weight as f32, self.steps(&steps, rng, size))
        };
        weights.into_iter().map(chain).fold(WeightedSum::new(0.0), WeightedSum::chain).blend(blend as f32)
    }
}

impl Kinds {
    fn draw(self, count: u32, rng: &mut SampleRng) -> Vec<TimmKind> {
        match self {
            Self::Even(kinds) => even(kinds, count, rng),
            Self::Weighted(kinds) => weighted(kinds, count, rng),
        }
    }
}

fn even(kinds: &[TimmKind], count: u32, rng: &mut SampleRng) -> Vec<TimmKind> {
    (0..count).map(|_| kinds[rng.below(kinds.len() as u64) as usize]).collect()
}

/// Draws kinds in turn, each by its weight among those that are left.
fn weighted(kinds: &[(TimmKind, f64)], count: u32, rng: &mut SampleRng) -> Vec<TimmKind> {
    let mut left = kinds.to_vec();
    let draw = |_| {
        let total: f64 = left.iter().map(|(_, weight)| weight).sum();
        let mut rest = rng.unit() * total;
        let chosen = left.iter().position(|(_, weight)| {
            rest -= weight;
            rest < 0.0
        });
        // By rounding, the number may lie at the end of all weights.
        left.remove(chosen.unwrap_or(left.len() - 1)).0
    };
    (0..count).map(draw).collect()
}

impl FromStr for TimmAugment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for TimmAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.config)
    }
}

impl RandomTransform for TimmAugment {
    fn validate(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.style().translate) {
            return Err(Error::parameter(
                TimmAugment::NAME,
                "translate",
                "a part of the side, 0 to 1",
                self.style().translate,
            ));
        }
        self.interpolation.validate(|interpolation| affine_warp::validate(TimmAugment::NAME, interpolation))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, size) = recipe.start();
        let ops = match self.suite {
            Suite::Rand { level, ops, p, kinds } => {
                let kinds = kinds.draw(ops, rng);
                let steps: Vec<_> = kinds.into_iter().map(|kind| (kind, p, f64::from(level))).collect();
                self.steps(&steps, rng, size)
            }
            Suite::AugMix { level, width, depth, alpha } => {
                vec![self.mix((level, width, depth, alpha), rng, size).into()]
            }
            Suite::Policy(rows) => {
                let row = rows[rng.below(rows.len() as u64) as usize];
                self.steps(row, rng, size)
            }
        };
        ops.into_iter().try_for_each(|op| recipe.push(op))
    }

    fn most_steps(&self) -> u64 {
        match self.suite {
            Suite::Rand { ops, .. } => u64::from(ops).max(1),
            Suite::AugMix { width, depth, .. } => u64::from(width) * u64::from(depth.unwrap_or(3)),
            Suite::Policy(_) => 2,
        }
    }
}

/// The sections of a text that have not been read yet.
struct Sections<'a> {
    text: &'a str,
    name: &'a str,
    /// Each section: the whole of it, and the letters before its number.
    left: Vec<(&'a str, &'a str)>,
}

impl<'a> Sections<'a> {
    fn of(text: &'a str) -> Result<Self> {
        let mut words = text.split('-');
        let name = words.next().unwrap_or_default();
        let mut sections = Self { text, name, left: Vec::new() };
        for section in words {
            // The section of a set of kinds has a name; all others have a number.
            let end =
                if section.starts_with('t') { 1 } else { section.find(|c: char| c.is_ascii_digit()).unwrap_or(0) };
            let key = &section[..end];
            if key.is_empty() {
                return Err(sections.wrong(section, "sections of letters and a number, such as m9"));
            }
            if sections.left.iter().any(|(_, other)| *other == key) {
                return Err(sections.wrong(section, "each section once"));
            }
            sections.left.push((section, key));
        }
        Ok(sections)
    }

    fn wrong(&self, section: &str, expected: impl Into<String>) -> Error {
        Error::parameter(TimmAugment::NAME, "config", expected, format!("{section:?} of {:?}", self.text))
    }

    fn take(&mut self, key: &str) -> Option<(&'a str, &'a str)> {
        let (section, key) = self.left.remove(self.left.iter().position(|(_, other)| *other == key)?);
        Some((section, &section[key.len()..]))
    }

    fn read<T: FromStr + PartialOrd + fmt::Display>(
        &mut self,
        key: &str,
        range: RangeInclusive<T>,
        what: &str,
    ) -> Result<Option<T>> {
        let Some((section, value)) = self.take(key) else { return Ok(None) };
        match value.parse() {
            Ok(value) if range.contains(&value) => Ok(Some(value)),
            _ => Err(self.wrong(section, format!("{key} and {what}"))),
        }
    }

    fn whole(&mut self, key: &str, range: RangeInclusive<u32>) -> Result<Option<u32>> {
        let what = format!("a whole number, {} to {}", range.start(), range.end());
        self.read(key, range, &what)
    }

    fn number(&mut self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>> {
        let what = match (*range.start(), *range.end()) {
            (least, f64::MAX) => format!("a number, {least} or more"),
            (least, most) => format!("a number, {least} to {most}"),
        };
        self.read(key, range, &what)
    }

    fn rand(&mut self) -> Result<Suite> {
        let level = self.whole("m", 0..=MAX_LEVEL)?.unwrap_or(10);
        let p = self.number("p", 0.0..=1.0)?.unwrap_or(0.5);
        let increasing = self.whole("inc", 0..=1)? == Some(1);
        let kinds = match self.take("t") {
            None if increasing => Kinds::Even(policy::RAND_INCREASING),
            None => Kinds::Even(policy::RAND),
            Some((_, "weights")) => Kinds::Weighted(policy::WEIGHTED),
            Some((_, "3a")) => Kinds::Even(policy::RAND_3A),
            Some((_, "3aw")) => Kinds::Weighted(policy::WEIGHTED_3A),
            Some((section, _)) => return Err(self.wrong(section, "tweights, t3a or t3aw")),
        };
        let most = if let Kinds::Weighted(kinds) = kinds { kinds.len() as u32 } else { MOST };
        let ops = self.whole("n", 0..=most)?.unwrap_or(2);
        Ok(Suite::Rand { level, ops, p, kinds })
    }

    /// Fails if a section was not read.
    fn end(&self) -> Result<()> {
        let Some((section, _)) = self.left.first() else { return Ok(()) };
        Err(self.wrong(section, format!("sections that {:?} has", self.name)))
    }
}
