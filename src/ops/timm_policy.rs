//! timm's sets of kinds, and its policies of pairs of operations.

use super::timm_kind::TimmKind::{
    self, AutoContrast, Brightness, BrightnessIncreasing, Color, ColorIncreasing, Contrast, ContrastIncreasing,
    Desaturate, Equalize, GaussianBlur, GaussianBlurRand, Invert, Posterize, PosterizeIncreasing, PosterizeOriginal,
    Rotate, Sharpness, SharpnessIncreasing, ShearX, ShearY, Solarize, SolarizeAdd, SolarizeIncreasing, TranslateXRel,
    TranslateYRel,
};

/// An operation's kind, its probability and its level.
pub(super) type TimmStep = (TimmKind, f64, f64);

/// A policy. One of its rows is drawn for each sample.
pub(super) type TimmPolicy = &'static [&'static [TimmStep]];

/// ImageNet's policy with which EfficientNet was trained. The argument selects the scale of posterizing.
#[rustfmt::skip]
macro_rules! v0 {
    ($posterize:ident) => {
        &[
            &[(Equalize, 0.8, 1.0), (ShearY, 0.8, 4.0)],
            &[(Color, 0.4, 9.0), (Equalize, 0.6, 3.0)],
            &[(Color, 0.4, 1.0), (Rotate, 0.6, 8.0)],
            &[(Solarize, 0.8, 3.0), (Equalize, 0.4, 7.0)],
            &[(Solarize, 0.4, 2.0), (Solarize, 0.6, 2.0)],
            &[(Color, 0.2, 0.0), (Equalize, 0.8, 8.0)],
            &[(Equalize, 0.4, 8.0), (SolarizeAdd, 0.8, 3.0)],
            &[(ShearX, 0.2, 9.0), (Rotate, 0.6, 8.0)],
            &[(Color, 0.6, 1.0), (Equalize, 1.0, 2.0)],
            &[(Invert, 0.4, 9.0), (Rotate, 0.6, 0.0)],
            &[(Equalize, 1.0, 9.0), (ShearY, 0.6, 3.0)],
            &[(Color, 0.4, 7.0), (Equalize, 0.6, 0.0)],
            &[($posterize, 0.4, 6.0), (AutoContrast, 0.4, 7.0)],
            &[(Solarize, 0.6, 8.0), (Color, 0.6, 9.0)],
            &[(Solarize, 0.2, 4.0), (Rotate, 0.8, 9.0)],
            &[(Rotate, 1.0, 7.0), (TranslateYRel, 0.8, 9.0)],
            &[(ShearX, 0.0, 0.0), (Solarize, 0.8, 4.0)],
            &[(ShearY, 0.8, 0.0), (Color, 0.6, 4.0)],
            &[(Color, 1.0, 0.0), (Rotate, 0.6, 2.0)],
            &[(Equalize, 0.8, 4.0), (Equalize, 0.0, 8.0)],
            &[(Equalize, 1.0, 4.0), (AutoContrast, 0.6, 2.0)],
            &[(ShearY, 0.4, 7.0), (SolarizeAdd, 0.6, 7.0)],
            &[($posterize, 0.8, 2.0), (Solarize, 0.6, 10.0)],
            &[(Solarize, 0.6, 8.0), (Equalize, 0.6, 1.0)],
            &[(Color, 0.8, 6.0), (Rotate, 0.4, 5.0)],
        ]
    };
}

/// ImageNet's policy in AutoAugment's paper.
#[rustfmt::skip]
macro_rules! original {
    ($posterize:ident) => {
        &[
            &[($posterize, 0.4, 8.0), (Rotate, 0.6, 9.0)],
            &[(Solarize, 0.6, 5.0), (AutoContrast, 0.6, 5.0)],
            &[(Equalize, 0.8, 8.0), (Equalize, 0.6, 3.0)],
            &[($posterize, 0.6, 7.0), ($posterize, 0.6, 6.0)],
            &[(Equalize, 0.4, 7.0), (Solarize, 0.2, 4.0)],
            &[(Equalize, 0.4, 4.0), (Rotate, 0.8, 8.0)],
            &[(Solarize, 0.6, 3.0), (Equalize, 0.6, 7.0)],
            &[($posterize, 0.8, 5.0), (Equalize, 1.0, 2.0)],
            &[(Rotate, 0.2, 3.0), (Solarize, 0.6, 8.0)],
            &[(Equalize, 0.6, 8.0), ($posterize, 0.4, 6.0)],
            &[(Rotate, 0.8, 8.0), (Color, 0.4, 0.0)],
            &[(Rotate, 0.4, 9.0), (Equalize, 0.6, 2.0)],
            &[(Equalize, 0.0, 7.0), (Equalize, 0.8, 8.0)],
            &[(Invert, 0.6, 4.0), (Equalize, 1.0, 8.0)],
            &[(Color, 0.6, 4.0), (Contrast, 1.0, 8.0)],
            &[(Rotate, 0.8, 8.0), (Color, 1.0, 2.0)],
            &[(Color, 0.8, 8.0), (Solarize, 0.8, 7.0)],
            &[(Sharpness, 0.4, 7.0), (Invert, 0.6, 8.0)],
            &[(ShearX, 0.6, 5.0), (Equalize, 1.0, 9.0)],
            &[(Color, 0.4, 0.0), (Equalize, 0.6, 3.0)],
            &[(Equalize, 0.4, 7.0), (Solarize, 0.2, 4.0)],
            &[(Solarize, 0.6, 5.0), (AutoContrast, 0.6, 5.0)],
            &[(Invert, 0.6, 4.0), (Equalize, 1.0, 8.0)],
            &[(Color, 0.6, 4.0), (Contrast, 1.0, 8.0)],
            &[(Equalize, 0.8, 8.0), (Equalize, 0.6, 3.0)],
        ]
    };
}

#[rustfmt::skip]
pub(super) const RAND: &[TimmKind] = &[
    AutoContrast, Equalize, Invert, Rotate, Posterize, Solarize, SolarizeAdd, Color, Contrast, Brightness, Sharpness,
    ShearX, ShearY, TranslateXRel, TranslateYRel,
];

#[rustfmt::skip]
pub(super) const RAND_INCREASING: &[TimmKind] = &[
    AutoContrast, Equalize, Invert, Rotate, PosterizeIncreasing, SolarizeIncreasing, SolarizeAdd, ColorIncreasing,
    ContrastIncreasing, BrightnessIncreasing, SharpnessIncreasing, ShearX, ShearY, TranslateXRel, TranslateYRel,
];

pub(super) const RAND_3A: &[TimmKind] = &[SolarizeIncreasing, Desaturate, GaussianBlur];

/// Kinds and their relative probabilities.
#[rustfmt::skip]
pub(super) const WEIGHTED_3A: &[(TimmKind, f64)] = &[
    (SolarizeIncreasing, 6.0), (Desaturate, 6.0), (GaussianBlur, 6.0), (Rotate, 3.0), (ShearX, 2.0), (ShearY, 2.0),
    (PosterizeIncreasing, 1.0), (AutoContrast, 1.0), (ColorIncreasing, 1.0), (SharpnessIncreasing, 1.0),
    (ContrastIncreasing, 1.0), (BrightnessIncreasing, 1.0), (Equalize, 1.0), (Invert, 1.0),
];

#[rustfmt::skip]
pub(super) const WEIGHTED: &[(TimmKind, f64)] = &[
    (Rotate, 3.0), (ShearX, 2.0), (ShearY, 2.0), (TranslateXRel, 1.0), (TranslateYRel, 1.0), (ColorIncreasing, 0.25),
    (SharpnessIncreasing, 0.25), (AutoContrast, 0.25), (SolarizeIncreasing, 0.05), (SolarizeAdd, 0.05),
    (ContrastIncreasing, 0.05), (BrightnessIncreasing, 0.05), (Equalize, 0.05), (PosterizeIncreasing, 0.05),
    (Invert, 0.05),
];

#[rustfmt::skip]
pub(super) const AUG_MIX: &[TimmKind] = &[
    AutoContrast, ColorIncreasing, ContrastIncreasing, BrightnessIncreasing, SharpnessIncreasing, Equalize, Rotate,
    PosterizeIncreasing, SolarizeIncreasing, ShearX, ShearY, TranslateXRel, TranslateYRel,
];

pub(super) const THREE_AUGMENT: TimmPolicy =
    &[&[(Solarize, 1.0, 5.0)], &[(Desaturate, 1.0, 10.0)], &[(GaussianBlurRand, 1.0, 10.0)]];

pub(super) const V0: TimmPolicy = v0!(Posterize);
pub(super) const V0R: TimmPolicy = v0!(PosterizeIncreasing);
pub(super) const ORIGINAL: TimmPolicy = original!(PosterizeOriginal);
pub(super) const ORIGINALR: TimmPolicy = original!(PosterizeIncreasing);

#[cfg(test)]
mod tests {
    use super::super::timm_kind::tests::{kind_of, tables};
    use super::*;
    use serde_json::Value;

    fn text(value: &Value) -> &str {
        value.as_str().unwrap()
    }

    #[test]
    fn policies_and_sets_are_those_of_timm() {
        let tables = tables();
        let step = |step: &Value| (kind_of(text(&step[0])), step[1].as_f64().unwrap(), step[2].as_f64().unwrap());
        for (name, policy) in
            [("v0", V0), ("v0r", V0R), ("original", ORIGINAL), ("originalr", ORIGINALR), ("3a", THREE_AUGMENT)]
        {
            let rows = tables["policies"][name].as_array().unwrap();
            let want: Vec<Vec<TimmStep>> =
                rows.iter().map(|row| row.as_array().unwrap().iter().map(step).collect()).collect();
            assert_eq!(policy, want, "{name}");
        }
        let set = |name: &str| tables["sets"][name].as_array().unwrap().clone();
        for (name, kinds) in [("rand", RAND), ("inc", RAND_INCREASING), ("3a", RAND_3A), ("augmix", AUG_MIX)] {
            let want: Vec<_> = set(name).iter().map(|kind| kind_of(text(kind))).collect();
            assert_eq!(kinds, want, "{name}");
        }
        for (name, kinds) in [("weights", WEIGHTED), ("3aw", WEIGHTED_3A)] {
            let want: Vec<_> = set(name).iter().map(|row| (kind_of(text(&row[0])), row[1].as_f64().unwrap())).collect();
            assert_eq!(kinds, want, "{name}");
        }
    }
}
