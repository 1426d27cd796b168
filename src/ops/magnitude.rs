//! Operations of automatic augmentations, by kind and bin of the magnitude, as in torchvision on PIL images.

use super::affine::Affine;
use super::check::within;
use super::fill::Fill;
use super::filter::Interpolation;
use super::recipe::RecipeBuilder;
use super::{
    Autocontrast, Brightness, Contrast, Equalize, Invert, Op, Posterize, Rotate, Saturation, Sharpness, Solarize,
};
use crate::error::Result;
use crate::raster::Size;

/// Largest number of bins of magnitudes.
const MAX_BINS: u32 = 1000;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AugmentKind {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

impl AugmentKind {
    /// The kinds of RandAugment and TrivialAugment, in torchvision's order.
    pub(super) const ALL: [Self; 14] = [
        Self::Identity,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
        Self::Rotate,
        Self::Brightness,
        Self::Color,
        Self::Contrast,
        Self::Sharpness,
        Self::Posterize,
        Self::Solarize,
        Self::AutoContrast,
        Self::Equalize,
    ];
}

/// The magnitudes of every kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Magnitudes {
    /// Number of bins, in order of strength.
    pub(super) bins: u32,
    /// Tangent of the strongest shear.
    pub(super) shear: f64,
    /// The farthest move in pixels, for a given side in pixels.
    pub(super) translate: fn(f64) -> f64,
    /// Degrees of the strongest rotation.
    pub(super) rotate: f64,
    /// Largest distance from 1 of the factors of brightness, color, contrast and sharpness.
    pub(super) enhance: f64,
    /// The most bits that posterize keeps, and the number of bits that the strongest bin keeps less.
    pub(super) posterize: (f32, f64),
}

/// The filter of operations that sample, and the color outside the image.
#[derive(Debug, Clone, Copy)]
pub(super) struct SamplingStyle {
    pub(super) interpolation: Interpolation,
    pub(super) fill: [u8; 3],
}

/// Bin `i` of `n` from `start` to `end`, as `torch.linspace` computes it in single precision.
fn linspace(start: f32, end: f32, i: u32, n: u32) -> f64 {
    let step = (end - start) / (n - 1) as f32;
    let value = if i < n / 2 { step.mul_add(i as f32, start) } else { (-step).mul_add((n - 1 - i) as f32, end) };
    f64::from(value)
}

/// Checks a number of bins.
pub(super) fn validate_bins(name: &'static str, bins: u32) -> Result<()> {
    within(name, "bins", bins, 2..=MAX_BINS)
}

impl Magnitudes {
    /// The magnitude of a bin of a kind, for an image of size `size`.
    pub(super) fn of(&self, kind: AugmentKind, bin: u32, size: Size) -> f64 {
        let from_0 = |end: f64| linspace(0.0, end as f32, bin, self.bins);
        match kind {
            AugmentKind::Identity | AugmentKind::AutoContrast | AugmentKind::Equalize | AugmentKind::Invert => 0.0,
            AugmentKind::ShearX | AugmentKind::ShearY => from_0(self.shear),
            AugmentKind::TranslateX => from_0((self.translate)(f64::from(size.width))),
            AugmentKind::TranslateY => from_0((self.translate)(f64::from(size.height))),
            AugmentKind::Rotate => from_0(self.rotate),
            AugmentKind::Brightness | AugmentKind::Color | AugmentKind::Contrast | AugmentKind::Sharpness => {
                from_0(self.enhance)
            }
            AugmentKind::Posterize => {
                let (most, fewer) = self.posterize;
                let a_bit = (f64::from(self.bins - 1) / fewer) as f32;
                f64::from(most - (bin as f32 / a_bit).round_ties_even())
            }
            AugmentKind::Solarize => linspace(255.0, 0.0, bin, self.bins),
        }
    }

    /// Adds an operation of a kind to a recipe, with the magnitude of `bin`. If `negative` and the kind has a
    /// direction, it is the opposite one. Identity adds no operation.
    pub(super) fn push(
        &self,
        recipe: &mut RecipeBuilder<'_>,
        (kind, bin, negative): (AugmentKind, u32, bool),
        style: SamplingStyle,
    ) -> Result<()> {
        let size = recipe.size();
        self.op(kind, bin, negative, size, style).map_or(Ok(()), |op| recipe.push(op))
    }

    /// The operation of a kind, with the magnitude of `bin`. `None` for identity.
    pub(super) fn op(
        &self,
        kind: AugmentKind,
        bin: u32,
        negative: bool,
        size: Size,
        style: SamplingStyle,
    ) -> Option<Op> {
        let strength = self.of(kind, bin, size);
        let signed = if negative { -strength } else { strength };
        let affine = Affine::new().interpolation(style.interpolation).fill(style.fill);
        let shear = || libm::atan(signed) * (180.0 / std::f64::consts::PI);
        let factor = 1.0 + signed;
        Some(match kind {
            AugmentKind::Identity => return None,
            AugmentKind::ShearX => affine.shear([shear(), 0.0]).center([0.0; 2]).into(),
            AugmentKind::ShearY => affine.shear([0.0, shear()]).center([0.0; 2]).into(),
            AugmentKind::TranslateX => affine.translate([signed as i32, 0]).into(),
            AugmentKind::TranslateY => affine.translate([0, signed as i32]).into(),
            AugmentKind::Rotate => {
                Rotate::new(signed).interpolation(style.interpolation).fill(Fill::Color(style.fill)).into()
            }
            AugmentKind::Brightness => Brightness::new(factor).into(),
            AugmentKind::Color => Saturation::new(factor).into(),
            AugmentKind::Contrast => Contrast::new(factor).into(),
            AugmentKind::Sharpness => Sharpness::new(factor).into(),
            AugmentKind::Posterize => Posterize::new(strength as u8).into(),
            AugmentKind::Solarize => Solarize::new(strength).into(),
            AugmentKind::AutoContrast => Autocontrast.into(),
            AugmentKind::Equalize => Equalize.into(),
            AugmentKind::Invert => Invert.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{aug_mix, auto_augment, rand_augment, trivial_augment};
    use serde_json::Value;

    /// torchvision's own tables come from `tests/reference/make_tables.py`.
    #[test]
    fn magnitudes_are_those_of_torchvision() {
        let tables: Value = serde_json::from_str(include_str!("../../tests/reference/auto-augment.json")).unwrap();
        let size = Size::new(331, 331);
        let mut compared = 0;
        for (name, magnitudes) in [
            ("auto_augment", auto_augment::MAGNITUDES),
            ("rand_augment", rand_augment::magnitudes(31)),
            ("trivial_augment_wide", trivial_augment::magnitudes(31)),
            ("aug_mix", aug_mix::MAGNITUDES),
        ] {
            assert_eq!(tables[name]["num_bins"], magnitudes.bins);
            for (kind, row) in tables[name]["space"].as_object().unwrap() {
                let kind = kind_of(kind);
                let of = |bin: usize| magnitudes.of(kind, bin as u32, size);
                match &row["magnitudes"] {
                    Value::Array(values) => {
                        let got: Vec<_> = (0..values.len()).map(of).collect();
                        let want: Vec<_> = values.iter().map(|value| value.as_f64().unwrap()).collect();
                        assert_eq!(got, want, "{name} {kind:?}");
                        compared += want.len();
                    }
                    value => assert_eq!(of(0), value.as_f64().unwrap(), "{name} {kind:?}"),
                }
            }
        }
        assert!(compared > 800, "{compared}");
    }

    fn kind_of(name: &str) -> AugmentKind {
        let mut all = AugmentKind::ALL.into_iter().chain([AugmentKind::Invert]);
        all.find(|kind| format!("{kind:?}") == name).unwrap_or_else(|| panic!("{name}"))
    }

    #[test]
    fn policies_are_those_of_torchvision() {
        let tables: Value = serde_json::from_str(include_str!("../../tests/reference/auto-augment.json")).unwrap();
        use auto_augment::AutoAugmentPolicy as Policy;
        for (name, policy) in [("imagenet", Policy::ImageNet), ("cifar10", Policy::Cifar10), ("svhn", Policy::Svhn)] {
            let want = tables["auto_augment"]["policies"][name].as_array().unwrap();
            let step = |step: &Value| {
                let bin = step[2].as_u64().unwrap_or(0) as u32;
                (kind_of(step[0].as_str().unwrap()), step[1].as_f64().unwrap(), bin)
            };
            let want: Vec<_> = want.iter().map(|pair| [step(&pair[0]), step(&pair[1])]).collect();
            assert_eq!(policy.pairs().to_vec(), want, "{name}");
        }
    }
}
