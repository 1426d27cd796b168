//! Kinds of operations of timm's augmentations, and the effect of a level on each kind.
//!
//! Levels are 0 to 10, or more if the text asks for it. Names and levels are those of timm's `auto_augment.py`.

use super::{
    AffineMatrix, Autocontrast, Brightness, Contrast, Equalize, Fill, Interpolation, Invert, Op, PillowGaussianBlur,
    Posterize, Rotate, Saturation, Sharpness, Solarize, SolarizeAdd,
};
use crate::raster::Size;

/// A kind of operation. Some kinds exist twice: the increasing one changes an image more with a higher level; the other
/// has its own scale, from the first implementations of AutoAugment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimmKind {
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    PosterizeIncreasing,
    PosterizeOriginal,
    Solarize,
    SolarizeIncreasing,
    SolarizeAdd,
    Color,
    ColorIncreasing,
    Contrast,
    ContrastIncreasing,
    Brightness,
    BrightnessIncreasing,
    Sharpness,
    SharpnessIncreasing,
    ShearX,
    ShearY,
    TranslateXRel,
    TranslateYRel,
    Desaturate,
    GaussianBlur,
    GaussianBlurRand,
}

/// The numbers drawn for an operation, whether its kind uses them or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draws {
    /// Level, 0 to 10 or more.
    pub(super) level: f64,
    /// Whether the opposite direction is taken, for kinds that have a direction.
    pub(super) negative: bool,
    /// Bilinear or bicubic.
    pub(super) interpolation: Interpolation,
    /// Place of a parameter in its range, 0 to 1.
    pub(super) unit: f64,
}

/// Settings that all operations of an augmentation share.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimmSettings {
    /// Fill outside the image.
    pub(super) fill: [u8; 3],
    /// Largest move at level 10, as a part of the image's side.
    pub(super) translate: f64,
}

impl TimmKind {
    /// The operation for an image of size `size`. `None` if the level leaves the image as it is.
    pub(super) fn op(self, draws: Draws, size: Size, style: TimmSettings) -> Option<Op> {
        let Draws { negative, interpolation, unit, .. } = draws;
        let share = draws.level / 10.0;
        let signed = |value: f64| if negative { -value } else { value };
        let sampled = |matrix| Some(AffineMatrix::new(matrix).interpolation(interpolation).fill(style.fill).into());
        let shear = signed(share * 0.3);
        let moved = |side: u32| signed(share * style.translate) * f64::from(side);
        let factor = share * 1.8 + 0.1;
        let increasing_factor = (1.0 + signed(share * 0.9)).max(0.1);
        let removed_bits = (share * 4.0) as i64;
        let threshold = ((share * 256.0) as i64).min(256);
        match self {
            Self::AutoContrast => Some(Autocontrast.into()),
            Self::Equalize => Some(Equalize.into()),
            Self::Invert => Some(Invert.into()),
            Self::Rotate => {
                let turn = Rotate::new(signed(share * 30.0)).interpolation(interpolation);
                Some(turn.fill(Fill::Color(style.fill)).into())
            }
            Self::Posterize => posterize(removed_bits),
            Self::PosterizeIncreasing => posterize(4 - removed_bits),
            Self::PosterizeOriginal => posterize(removed_bits + 4),
            Self::Solarize => solarize(threshold),
            Self::SolarizeIncreasing => solarize(256 - threshold),
            Self::SolarizeAdd => Some(SolarizeAdd::new((share * 110.0).min(128.0) as u8).into()),
            Self::Color => Some(Saturation::new(factor).into()),
            Self::ColorIncreasing => Some(Saturation::new(increasing_factor).into()),
            Self::Contrast => Some(Contrast::new(factor).into()),
            Self::ContrastIncreasing => Some(Contrast::new(increasing_factor).into()),
            Self::Brightness => Some(Brightness::new(factor).into()),
            Self::BrightnessIncreasing => Some(Brightness::new(increasing_factor).into()),
            Self::Sharpness => Some(Sharpness::new(factor).into()),
            Self::SharpnessIncreasing => Some(Sharpness::new(increasing_factor).into()),
            Self::ShearX => sampled([1.0, shear, 0.0, 0.0, 1.0, 0.0]),
            Self::ShearY => sampled([1.0, 0.0, 0.0, shear, 1.0, 0.0]),
            Self::TranslateXRel => sampled([1.0, 0.0, moved(size.width), 0.0, 1.0, 0.0]),
            Self::TranslateYRel => sampled([1.0, 0.0, 0.0, 0.0, 1.0, moved(size.height)]),
            Self::Desaturate => Some(Saturation::new(1.0 - between(0.5, 1.0, share)).into()),
            Self::GaussianBlur => Some(PillowGaussianBlur::new(between(0.1, 2.0, share)).into()),
            Self::GaussianBlurRand => {
                let most = 2.0 * between(0.0, 1.0, share);
                Some(PillowGaussianBlur::new(0.1 + (most - 0.1) * unit).into())
            }
        }
    }
}

/// The value at `share` of the way from `least` to `most`, limited to this range.
fn between(least: f64, most: f64, share: f64) -> f64 {
    (least + (most - least) * share).clamp(least, most)
}

/// Keeps `bits` bits. With 0 bits the image is black, as in the versions of Pillow that allowed 0 bits.
fn posterize(bits: i64) -> Option<Op> {
    (bits < 8).then(|| Posterize::new(bits.max(0) as u8).into())
}

fn solarize(threshold: i64) -> Option<Op> {
    (threshold < 256).then(|| Solarize::new(threshold as f64).into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::TimmKind::*;
    use super::{Draws, TimmKind, TimmSettings};
    use crate::ops::{Interpolation, Op};
    use crate::raster::Size;
    use serde_json::Value;

    const ALL: [TimmKind; 25] = [
        AutoContrast,
        Equalize,
        Invert,
        Rotate,
        Posterize,
        PosterizeIncreasing,
        PosterizeOriginal,
        Solarize,
        SolarizeIncreasing,
        SolarizeAdd,
        Color,
        ColorIncreasing,
        Contrast,
        ContrastIncreasing,
        Brightness,
        BrightnessIncreasing,
        Sharpness,
        SharpnessIncreasing,
        ShearX,
        ShearY,
        TranslateXRel,
        TranslateYRel,
        Desaturate,
        GaussianBlur,
        GaussianBlurRand,
    ];

    /// timm's own tables come from `tests/reference/timm_tables.py`.
    pub(in crate::ops) fn tables() -> Value {
        serde_json::from_str(include_str!("../../tests/reference/timm.json")).unwrap()
    }

    pub(in crate::ops) fn kind_of(name: &str) -> TimmKind {
        ALL.into_iter().find(|kind| format!("{kind:?}") == name).unwrap_or_else(|| panic!("{name}"))
    }

    const SIZE: Size = Size::new(331, 200);
    const UNIT: f64 = 0.3;

    /// The parameter of an operation that depends on the level.
    fn number(op: &Op) -> f64 {
        match op {
            Op::Rotate(op) => op.degrees,
            Op::Posterize(op) => op.bits.into(),
            Op::Solarize(op) => op.threshold,
            Op::SolarizeAdd(op) => op.add.into(),
            Op::Saturation(op) => op.factor,
            Op::Contrast(op) => op.factor,
            Op::Brightness(op) => op.factor,
            Op::Sharpness(op) => op.factor,
            Op::PillowGaussianBlur(op) => op.radius,
            Op::AffineMatrix(op) => match op.matrix {
                [1.0, shear, 0.0, 0.0, 1.0, 0.0] if shear != 0.0 => shear,
                [1.0, 0.0, 0.0, shear, 1.0, 0.0] if shear != 0.0 => shear,
                [1.0, 0.0, x, 0.0, 1.0, y] if x == 0.0 || y == 0.0 => x + y,
                matrix => panic!("{matrix:?}"),
            },
            op => panic!("{op:?}"),
        }
    }

    /// The parameter that timm's operation makes from its argument.
    fn wanted(kind: TimmKind, argument: f64) -> Option<f64> {
        match kind {
            Posterize | PosterizeIncreasing | PosterizeOriginal => (argument < 8.0).then_some(argument.max(0.0)),
            Solarize | SolarizeIncreasing => (argument < 256.0).then_some(argument),
            TranslateXRel => Some(argument * 331.0),
            TranslateYRel => Some(argument * 200.0),
            Desaturate => Some(1.0 - argument),
            GaussianBlurRand => Some(0.1 + (2.0 * argument - 0.1) * UNIT),
            _ => Some(argument),
        }
    }

    #[test]
    fn levels_are_those_of_timm() {
        let tables = tables();
        let levels: Vec<f64> =
            tables["levels"].as_array().unwrap().iter().map(|level| level.as_f64().unwrap()).collect();
        let style = TimmSettings { fill: [1, 2, 3], translate: 0.45 };
        let mut compared = 0;
        for (name, signs) in tables["arguments"].as_object().unwrap() {
            for (sign, arguments) in signs.as_object().unwrap() {
                for (&level, argument) in levels.iter().zip(arguments.as_array().unwrap()) {
                    let draws =
                        Draws { level, negative: sign == "-", interpolation: Interpolation::Bicubic, unit: UNIT };
                    let kind = kind_of(name);
                    let got = kind.op(draws, SIZE, style).as_ref().map(number);
                    assert_eq!(got, wanted(kind, argument.as_f64().unwrap()), "{name} {sign}{level}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 500, "{compared}");
    }
}
