//! The transforms of published recipes (`tests/reference/presets.json`).

use super::normalize;
use crate::ops::transform::{
    Transform, color_jitter, maybe, random_erasing, random_gaussian_blur, random_grayscale, random_horizontal_flip,
    random_resized_crop, random_vertical_flip, three_augment,
};
use crate::ops::written::WrittenView;
use crate::ops::{
    CenterCrop, ErasingNoise, Interpolation, Normalize, RandomAffine, RandomErasing, RandomPillowGaussianBlur,
    RandomResizedCrop, RandomSolarize, Resize, TimmAugment, ToFloat, TransformFile, TrivialAugment,
};

/// Resizes the shorter side, then cuts out the center, 224 pixels wide and high.
pub(super) fn eval(shorter_side: u32, interpolation: Interpolation) -> Vec<Transform> {
    let resize = Resize::shorter_side(shorter_side).interpolation(interpolation);
    vec![resize.into(), CenterCrop::new(224).into(), normalize()]
}

/// <https://pytorch.org/blog/how-to-train-state-of-the-art-models-using-torchvision-latest-primitives/>
pub(super) fn resnet50_v2() -> Vec<Transform> {
    vec![
        random_resized_crop(176),
        random_horizontal_flip(0.5),
        TrivialAugment::new().interpolation(Interpolation::Bilinear).into(),
        normalize(),
        random_erasing(0.1),
    ]
}

fn bicubic_crop(side: u32) -> RandomResizedCrop {
    RandomResizedCrop::new(side).interpolation(Interpolation::Bicubic)
}

/// timm's augmentation `config`, as ResNet strikes back uses it. The paper does not say how images are resized; we take
/// bicubic, as mmpretrain's configurations that reproduce it do.
pub(super) fn timm(side: u32, config: &str) -> Vec<Transform> {
    let augment = TimmAugment::parse(config).expect("the texts in this crate are right");
    vec![
        bicubic_crop(side).into(),
        random_horizontal_flip(0.5),
        augment.interpolation(Interpolation::Bicubic).into(),
        normalize(),
    ]
}

/// DeiT's and ConvNeXt's transforms.
pub(super) fn deit() -> Vec<Transform> {
    let mut ops = timm(224, "rand-m9-mstd0.5-inc1");
    let erasing = RandomErasing::new(0.25).scale(0.02..=1.0 / 3.0).ratio(0.3..=1.0 / 0.3);
    ops.push(erasing.noise(ErasingNoise::PerPixel).into());
    ops
}

pub(super) fn deit3() -> Vec<Transform> {
    vec![
        bicubic_crop(224).into(),
        random_horizontal_flip(0.5),
        three_augment(),
        color_jitter(0.3, 0.3, 0.3, 0.0),
        normalize(),
    ]
}

pub(super) fn dino() -> TransformFile {
    let view = |crop: RandomResizedCrop, rest: &[Transform], times| {
        let jitter = maybe(0.8, [color_jitter(0.4, 0.4, 0.2, 0.1)]);
        let mut transforms = vec![crop.into(), random_horizontal_flip(0.5), jitter, random_grayscale(0.2)];
        transforms.extend_from_slice(rest);
        WrittenView { transforms, times }
    };
    let global = bicubic_crop(224).scale(0.4..=1.0);
    let local = bicubic_crop(96).scale(0.05..=0.4);
    let blur = |p| maybe(p, [RandomPillowGaussianBlur::new(0.1..=2.0).into()]);
    let views = vec![
        view(global.clone(), &[blur(1.0)], 1),
        view(global, &[blur(0.1), RandomSolarize::new(128.0, 0.2).into()], 1),
        view(local, &[blur(0.5)], 8),
    ];
    TransformFile { views: Some(views), last: vec![normalize()], ..TransformFile::default() }
}

/// Normalization to values of 0 to 1, as SimCLR's networks take them.
fn values() -> Transform {
    Normalize::new([0.0; 3], [1.0; 3]).into()
}

pub(super) fn simclr() -> TransformFile {
    let transforms = vec![
        bicubic_crop(224).into(),
        random_horizontal_flip(0.5),
        maybe(0.8, [color_jitter(0.8, 0.8, 0.8, 0.2)]),
        random_grayscale(0.2),
        maybe(0.5, [random_gaussian_blur(23, 0.1..=2.0)]),
    ];
    let views = Some(vec![WrittenView { transforms, times: 2 }]);
    TransformFile { views, last: vec![values()], ..TransformFile::default() }
}

pub(super) fn simclr_eval() -> Vec<Transform> {
    let mut ops = eval(256, Interpolation::Bicubic);
    ops.pop();
    ops.push(values());
    ops
}

/// SSL4EO-S12's crops and flips (<https://arxiv.org/abs/2211.07044>), without its color jitter, which has no meaning for 13 bands.
pub(super) fn satellite() -> Vec<Transform> {
    let crop = RandomResizedCrop::new(224).scale(0.2..=1.0);
    vec![crop.into(), random_horizontal_flip(0.5), random_vertical_flip(0.5), ToFloat.into()]
}

pub(super) fn satellite_eval() -> Vec<Transform> {
    vec![Resize::shorter_side(256).into(), CenterCrop::new(224).into(), ToFloat.into()]
}

/// TorchXRayVision's (<https://github.com/mlmed/torchxrayvision>). Values of 0 to 1 become `(2 v - 1) * 1024`.
pub(super) fn xray(train: bool) -> Vec<Transform> {
    let mut all: Vec<Transform> = vec![Resize::shorter_side(224).into(), CenterCrop::new(224).into()];
    if train {
        let moves = RandomAffine::new(-45.0..=45.0).translate([0.15, 0.15]).scale(0.85..=1.15);
        all.push(moves.into());
    }
    all.push(Normalize::new(0.5, 1.0 / 2048.0).into());
    all
}
