//! Automatic augmentations: what they draw, and how often.

mod common;

use common::jpeg;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use warpfeed::image::Size;
use warpfeed::ops::{
    AugMix, AutoAugment, AutoAugmentPolicy, CenterCrop, Interpolation, Mix, Op, RandAugment, Transform, TrivialAugment,
};
use warpfeed::{ApplyOptions, DType, Layout, Orientation, Pipeline, Strategy, apply, source::EncodedImages};

const SIZE: Size = Size::new(331, 200);

/// The recipes of one image in so many epochs.
fn drawn(transform: impl Into<Transform>, epochs: u64) -> Vec<Vec<Op>> {
    let images = EncodedImages::new([(jpeg(SIZE.width, SIZE.height, 1), 0)]);
    // A crop of the image's size says what size batches have.
    let builder = Pipeline::builder(images).shuffle(5).augment(CenterCrop::new(SIZE)).augment(transform);
    let pipeline = builder.output(DType::U8, Layout::Nhwc).build().unwrap();
    (0..epochs).map(|epoch| pipeline.recipe(epoch, 0).unwrap().split_off(1)).collect()
}

/// The kind of an operation in torchvision's words, and the magnitude that it comes from, with its sign.
fn kind(op: &Op) -> (&'static str, f64) {
    match op {
        Op::Affine(op) if op.center == Some([0.0; 2]) && op.shear[1] == 0.0 => ("ShearX", op.shear[0]),
        Op::Affine(op) if op.center == Some([0.0; 2]) => ("ShearY", op.shear[1]),
        Op::Affine(op) if op.translate[1] == 0 => ("TranslateX", op.translate[0].into()),
        Op::Affine(op) => ("TranslateY", op.translate[1].into()),
        Op::Rotate(op) => ("Rotate", op.degrees),
        Op::Brightness(op) => ("Brightness", op.factor - 1.0),
        Op::Saturation(op) => ("Color", op.factor - 1.0),
        Op::Contrast(op) => ("Contrast", op.factor - 1.0),
        Op::Sharpness(op) => ("Sharpness", op.factor - 1.0),
        Op::Posterize(op) => ("Posterize", op.bits.into()),
        Op::Solarize(op) => ("Solarize", op.threshold),
        Op::Autocontrast(_) => ("AutoContrast", 0.0),
        Op::Equalize(_) => ("Equalize", 0.0),
        Op::Invert(_) => ("Invert", 0.0),
        op => panic!("{op:?}"),
    }
}

const SIGNED: [&str; 9] =
    ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness"];

/// Pearson's statistic must be below the value that one in a million exceeds, by Wilson and Hilferty.
#[track_caller]
fn chi_square(counts: &[f64], expected: impl Fn(usize) -> f64) {
    let sum: f64 = counts.iter().enumerate().map(|(i, count)| (count - expected(i)).powi(2) / expected(i)).sum();
    let (free, deviations) = ((counts.len() - 1) as f64, 4.76);
    let limit = free * (1.0 - 2.0 / (9.0 * free) + deviations * (2.0 / (9.0 * free)).sqrt()).powi(3);
    assert!(sum < limit, "{sum} of at most {limit}: {counts:?}");
}

#[test]
fn rand_augment_draws_all_kinds_and_signs_alike() {
    const DRAWS: u64 = 7_000;
    let recipes = drawn(RandAugment::new(), DRAWS);
    let mut kinds = BTreeMap::<_, f64>::new();
    let mut signs = BTreeMap::<_, [f64; 2]>::new();
    let identities = recipes.iter().map(|ops| 2 - ops.len()).sum::<usize>();
    for (kind, magnitude) in recipes.iter().flatten().map(kind) {
        *kinds.entry(kind).or_default() += 1.0;
        if SIGNED.contains(&kind) {
            signs.entry(kind).or_default()[usize::from(magnitude < 0.0)] += 1.0;
        }
        // Of an image of 331 pixels, bin 9 of 31: 45 pixels, 9 degrees, 7 bits.
        match kind {
            "TranslateX" => assert_eq!(magnitude.abs(), 45.0),
            "TranslateY" => assert_eq!(magnitude.abs(), 27.0),
            "Rotate" => assert_eq!(magnitude.abs(), 9.0),
            "Posterize" => assert_eq!(magnitude, 7.0),
            _ => {}
        }
    }
    assert_eq!(kinds.len(), 13);
    let counts: Vec<_> = kinds.into_values().chain([identities as f64]).collect();
    chi_square(&counts, |_| 2.0 * DRAWS as f64 / 14.0);
    assert_eq!(signs.len(), SIGNED.len());
    for counts in signs.values() {
        chi_square(counts, |_| (counts[0] + counts[1]) / 2.0);
    }
}

#[test]
fn trivial_augment_draws_all_kinds_and_magnitudes_alike() {
    const DRAWS: u64 = 20_000;
    let recipes = drawn(TrivialAugment::new(), DRAWS);
    let mut kinds = BTreeMap::<_, f64>::new();
    let mut degrees = BTreeMap::<_, f64>::new();
    for ops in &recipes {
        let (kind, magnitude) = ops.first().map_or(("Identity", 0.0), kind);
        *kinds.entry(kind).or_default() += 1.0;
        if kind == "Rotate" {
            *degrees.entry((magnitude * 10.0) as i32).or_default() += 1.0;
        }
    }
    assert_eq!(kinds.len(), 14);
    chi_square(&kinds.into_values().collect::<Vec<_>>(), |_| DRAWS as f64 / 14.0);
    // Bins 0 to 30 with both signs: 0 is one number.
    let total: f64 = degrees.values().sum();
    assert!(degrees.keys().copied().eq((-30..=30).map(|bin| bin * 45)));
    let expected = |i: usize| total / if i == 30 { 31.0 } else { 62.0 };
    chi_square(&degrees.into_values().collect::<Vec<_>>(), expected);
}

#[test]
fn auto_augment_draws_kinds_as_often_as_its_policy_says() {
    const DRAWS: u64 = 10_000;
    let tables: serde_json::Value = serde_json::from_str(include_str!("reference/auto-augment.json")).unwrap();
    use AutoAugmentPolicy::{Cifar10, ImageNet, Svhn};
    for (name, policy) in [("imagenet", ImageNet), ("cifar10", Cifar10), ("svhn", Svhn)] {
        let mut expected = BTreeMap::<&str, f64>::new();
        for step in tables["auto_augment"]["policies"][name]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|pair| pair.as_array().unwrap().iter())
        {
            *expected.entry(step[0].as_str().unwrap()).or_default() += step[1].as_f64().unwrap() * DRAWS as f64 / 25.0;
        }
        let mut counts = BTreeMap::<_, f64>::new();
        for (kind, _) in drawn(AutoAugment::new(policy), DRAWS).iter().flatten().map(kind) {
            *counts.entry(kind).or_default() += 1.0;
        }
        expected.retain(|_, expected| *expected > 0.0);
        assert!(counts.keys().eq(expected.keys()), "{name}");
        let expected: Vec<_> = expected.into_values().collect();
        chi_square(&counts.into_values().collect::<Vec<_>>(), |i| expected[i]);
    }
}

#[test]
fn aug_mix_draws_weights_and_depths_as_it_says() {
    const DRAWS: u64 = 6_000;
    let mut depths = [0.0; 3];
    let (mut own, mut kinds) = (0.0, BTreeMap::<_, f64>::new());
    for ops in drawn(AugMix::new(), DRAWS) {
        let [Op::Mix(Mix { weight, chains, .. })] = &ops[..] else { panic!("{ops:?}") };
        assert_eq!(chains.len(), 3);
        let sum: f32 = chains.iter().map(|chain| chain.weight).sum::<f32>() + weight;
        assert!((sum - 1.0).abs() < 1e-5);
        own += f64::from(*weight);
        for chain in chains {
            depths[chain.ops.len() - 1] += 1.0;
            chain.ops.iter().map(kind).for_each(|(kind, _)| *kinds.entry(kind).or_default() += 1.0);
        }
    }
    chi_square(&depths, |_| DRAWS as f64);
    assert_eq!(kinds.len(), 13);
    let total: f64 = kinds.values().sum();
    chi_square(&kinds.into_values().collect::<Vec<_>>(), |_| total / 13.0);
    // Uniform in 0 to 1: six standard deviations of the mean.
    assert!((own / DRAWS as f64 - 0.5).abs() < 6.0 * (1.0 / 12.0 / DRAWS as f64).sqrt());
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    for transform in [
        Transform::from(RandAugment::new().bins(1)),
        RandAugment::new().magnitude(31).into(),
        RandAugment::new().interpolation(Interpolation::Lanczos).into(),
        TrivialAugment::new().bins(0).into(),
        AugMix::new().severity(0).into(),
        AugMix::new().severity(11).into(),
        AugMix::new().width(0).into(),
        AugMix::new().alpha(0.0).into(),
        AugMix::new().alpha(f64::NAN).into(),
    ] {
        assert!(transform.validate().is_err_and(|error| error.is_parameter()), "{transform:?}");
    }
}

/// Draws recipes for photographs and writes them down with what comes of them, for `tests/reference/suites.py`, which
/// runs them with torchvision.
#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with data/photos/; tests/reference/suites.py runs it"]
fn recipes_for_torchvision() {
    let shared = std::env::var_os("WARPFEED_SHARED").map(PathBuf::from).expect("WARPFEED_SHARED names a folder");
    let mut photos = Vec::new();
    jpegs(&shared.join("data/photos"), &mut photos);
    photos.sort();
    let bilinear = Interpolation::Bilinear;
    let suites: [Transform; 7] = [
        RandAugment::new().into(),
        RandAugment::new().ops(4).magnitude(20).fill([124, 116, 104]).into(),
        TrivialAugment::new().into(),
        TrivialAugment::new().interpolation(bilinear).into(),
        AutoAugment::new(AutoAugmentPolicy::ImageNet).into(),
        AutoAugment::new(AutoAugmentPolicy::Cifar10).fill([9, 99, 199]).into(),
        AugMix::new().severity(10).into(),
    ];
    let mut lines = String::new();
    for sample in 0..1_000 {
        let photo = &photos[sample * 7919 % photos.len()];
        let bytes = fs::read(photo).unwrap();
        let builder = Pipeline::builder(EncodedImages::new([(bytes.clone(), 0)])).orientation(Orientation::Ignore);
        let suite = suites[sample % suites.len()].clone();
        let crop = warpfeed::Preset::Train.pixel_ops();
        let pipeline = crop.into_iter().chain([suite]).fold(builder, warpfeed::Builder::augment).build().unwrap();
        let ops = pipeline.recipe(sample as u64, 0).unwrap();
        let run = |strategy| {
            let options = ApplyOptions { strategy, orientation: Orientation::Ignore, ..ApplyOptions::default() };
            apply(&bytes, &ops, &options).unwrap().as_bytes().unwrap().to_vec()
        };
        let made = run(Strategy::Fused);
        assert!(made == run(Strategy::Sequential), "{}", serde_json::to_string(&ops).unwrap());
        let sha256 = Sha256::digest(&made).iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        });
        writeln!(lines, "{}", serde_json::json!({"image": photo, "ops": ops, "sha256": sha256})).unwrap();
    }
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("recipes.jsonl"), lines).unwrap();
}

fn jpegs(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            jpegs(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "jpg" || extension == "JPEG") {
            found.push(path);
        }
    }
}
