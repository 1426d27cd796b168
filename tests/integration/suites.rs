//! Automatic augmentations: their draws, and frequencies.

use crate::common::{as_made, jpeg};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use warpfeed::image::Size;
use warpfeed::ops::{
    AugMix, AutoAugment, AutoAugmentPolicy, CenterCrop, Interpolation, Op, RandAugment, TimmAugment, Transform,
    TrivialAugment, WeightedSum,
};
use warpfeed::{DType, Layout, Orientation, Pipeline, Strategy, apply, source::EncodedImages};

const SIZE: Size = Size::new(331, 200);

/// The recipes of one image in this number of epochs.
fn drawn(transform: impl Into<Transform>, epochs: u64) -> Vec<Vec<Op>> {
    let images = EncodedImages::new([(jpeg(SIZE.width, SIZE.height, 1), 0)]);
    // A crop of the image's size says what size batches have.
    let builder = Pipeline::builder(images).shuffle(5).transform(CenterCrop::new(SIZE)).transform(transform);
    let pipeline = builder.output(DType::U8, Layout::Nhwc).build().unwrap();
    (0..epochs).map(|epoch| pipeline.recipe(epoch, 0).unwrap().split_off(1)).collect()
}

/// The kind of an operation in torchvision's words, and the magnitude that it comes from, with its sign.
fn kind(op: &Op) -> (&'static str, f64) {
    match op {
        Op::Affine(op) if op.center == Some([0.0; 2]) && op.shear[1] == 0.0 => ("ShearX", op.shear[0]),
        Op::Affine(op) if op.center == Some([0.0; 2]) => ("ShearY", op.shear[1]),
        Op::Affine(op) if op.translate[1] == 0.0 => ("TranslateX", op.translate[0]),
        Op::Affine(op) => ("TranslateY", op.translate[1]),
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
    let tables: serde_json::Value = serde_json::from_str(include_str!("../reference/auto-augment.json")).unwrap();
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
        let [Op::WeightedSum(WeightedSum { weight, chains, .. })] = &ops[..] else { panic!("{ops:?}") };
        assert_eq!(chains.len(), 3);
        let sum: f32 = chains.iter().map(|chain| chain.weight).sum::<f32>() + weight;
        assert!((sum - 1.0).abs() < 1e-5);
        own += f64::from(*weight);
        for chain in chains {
            depths[chain.ops.len() - 1] += 1.0;
            // A shear or move by nothing does not say along which axis.
            let kind = |op| kind(op).0.trim_end_matches(['X', 'Y']);
            chain.ops.iter().map(kind).for_each(|kind| *kinds.entry(kind).or_default() += 1.0);
        }
    }
    chi_square(&depths, |_| DRAWS as f64);
    assert_eq!(kinds.len(), 11);
    let total: f64 = kinds.values().sum();
    let share: Vec<_> =
        kinds.keys().map(|kind| if ["Shear", "Translate"].contains(kind) { 2.0 } else { 1.0 }).collect();
    chi_square(&kinds.into_values().collect::<Vec<_>>(), |i| share[i] * total / 13.0);
    // Uniform in 0 to 1: six standard deviations of the mean.
    assert!((own / DRAWS as f64 - 0.5).abs() < 6.0 * (1.0 / 12.0 / DRAWS as f64).sqrt());
}

/// The kind of an operation of timm's, as timm calls it, but for what says how levels are scaled.
fn timm_kind(op: &Op) -> &'static str {
    match op {
        Op::AffineMatrix(op) => match op.matrix {
            [_, shear, ..] if shear != 0.0 => "ShearX",
            [_, _, _, shear, ..] if shear != 0.0 => "ShearY",
            [_, _, x, ..] if x != 0.0 => "TranslateX",
            _ => "TranslateY",
        },
        Op::SolarizeAdd(_) => "SolarizeAdd",
        Op::PillowGaussianBlur(_) => "GaussianBlur",
        Op::Saturation(op) if op.factor == 0.0 => "Desaturate",
        op => kind(op).0,
    }
}

/// Whether two samples of this many draws each are of one distribution, which they are not in one case of a million.
/// Rare values count together.
#[track_caller]
fn same_distribution(got: &BTreeMap<String, f64>, want: &BTreeMap<String, f64>) {
    let keys: std::collections::BTreeSet<_> = got.keys().chain(want.keys()).collect();
    let pair = |key: &String| [got, want].map(|counts| counts.get(key).copied().unwrap_or(0.0));
    let (often, rare): (Vec<_>, Vec<_>) =
        keys.into_iter().map(pair).partition(|[got, want]: &[f64; 2]| got + want >= 20.0);
    let rare = rare.iter().fold([0.0; 2], |[a, b], [got, want]| [a + got, b + want]);
    let all: Vec<[f64; 2]> = often.into_iter().chain((rare[0] + rare[1] >= 20.0).then_some(rare)).collect();
    assert!(all.len() > 1 || all == [[20_000.0; 2]], "{got:?}");
    // Against the mean of both: half of Pearson's statistic of two samples.
    let counts: Vec<f64> = all.iter().map(|[got, want]| (got - want) / 2.0_f64.sqrt() + (got + want) / 2.0).collect();
    if all.len() > 1 {
        chi_square(&counts, |i| (all[i][0] + all[i][1]) / 2.0);
    }
}

/// Against what timm drew from the same texts (`tests/reference/timm_tables.py`).
#[test]
fn timm_augment_draws_what_timm_draws() {
    let tables: serde_json::Value = serde_json::from_str(include_str!("../reference/timm.json")).unwrap();
    let images = tables["images"].as_u64().unwrap();
    for (text, want) in tables["draws"].as_object().unwrap() {
        let mut got = BTreeMap::<&str, BTreeMap<String, f64>>::new();
        let mut add = |what, value: String| *got.entry(what).or_default().entry(value).or_default() += 1.0;
        for ops in drawn(TimmAugment::parse(text).unwrap(), images) {
            add("ops", ops.len().to_string());
            for op in &ops {
                let kind = timm_kind(op);
                add("kinds", kind.to_owned());
                match op {
                    Op::Rotate(op) => add("rotations", (op.degrees / 3.0).floor().to_string()),
                    Op::Saturation(op) if kind == "Color" && text.contains(['c', 'w']) => {
                        add("colors", ((op.factor - 1.0) / 0.09).floor().to_string());
                    }
                    _ => {}
                }
            }
        }
        for (what, counts) in want.as_object().unwrap() {
            let scale = ["Increasing", "Original", "Rel", "Rand"];
            let plain = |name: &String| scale.iter().fold(name.clone(), |name, end| name.replace(end, ""));
            let counts = counts.as_object().unwrap().iter();
            let want = counts.map(|(name, count)| (plain(name), count.as_f64().unwrap())).collect();
            same_distribution(&got[what.as_str()], &want);
        }
        assert_eq!(got.len(), want.as_object().unwrap().len(), "{text}");
    }
}

#[test]
fn timm_aug_mix_draws_weights_depths_and_levels_as_it_says() {
    const DRAWS: u64 = 3_000;
    let mut depths = [0.0; 3];
    let (mut blends, mut angles, mut turns) = (0.0, 0.0, 0.0_f64);
    for ops in drawn(TimmAugment::parse("augmix-m10-w2").unwrap(), DRAWS) {
        let [Op::WeightedSum(WeightedSum { weight: 0.0, chains, blend, .. })] = &ops[..] else { panic!("{ops:?}") };
        assert!(chains.len() == 2 && (chains[0].weight + chains[1].weight - 1.0).abs() < 1e-5);
        blends += f64::from(*blend);
        for chain in chains {
            // A level at which nothing happens may shorten a chain, one of ten thousand to nothing.
            depths[chain.ops.len().saturating_sub(1)] += 1.0;
            for op in &chain.ops {
                if let Op::Rotate(op) = op {
                    (angles, turns) = (angles + op.degrees.abs(), turns + 1.0);
                }
            }
        }
    }
    let chains: f64 = depths.iter().sum();
    chi_square(&depths, |_| chains / 3.0);
    let within =
        |mean: f64, want: f64, spread: f64, n: f64| (mean - want).abs() < 6.0 * spread / 12_f64.sqrt() / n.sqrt();
    assert!(within(blends / DRAWS as f64, 0.5, 1.0, DRAWS as f64), "{blends}");
    assert!(within(angles / turns, 15.0, 30.0, turns), "{angles} {turns}");
}

#[test]
fn texts_that_timm_would_not_understand_are_refused() {
    for (text, words) in [
        ("", "rand, augmix"),
        ("rant-m9", r#""rant" of"#),
        ("rand-m9-q3", r#""q3" of "rand-m9-q3""#),
        ("rand-inc", "such as m9"),
        ("rand-m9-m5", "once"),
        ("rand-m9.5", "a whole number"),
        ("rand-p1.5", "0 to 1"),
        ("rand-mmax0", "1 to 1000"),
        ("rand-w0", r#""w0""#),
        ("rand-twhatever", "tweights"),
        ("rand-tweights-n16", "0 to 15"),
        ("augmix-w0", "1 to 100"),
        ("augmix-b1", r#""b1""#),
        ("augmix-a0", "or more"),
        ("v0-m5", r#""m5""#),
        ("3a-mstdnan", "such as m9"),
        ("originalr-mstd.5", r#""mstd.5""#),
    ] {
        let error = TimmAugment::parse(text).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(words), "{text}: {error}");
    }
    for text in
        ["rand", "rand-m15-mmax20-n3-p1-inc1", "rand-mstd101", "augmix-m5-w4-d2-a0.5-mstd0", "originalr-mstd0.5"]
    {
        assert_eq!(TimmAugment::parse(text).unwrap().to_string(), text);
    }
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
        TimmAugment::parse("v0").unwrap().translate(1.5).into(),
        TimmAugment::parse("rand").unwrap().interpolation(Interpolation::Lanczos).into(),
    ] {
        assert!(transform.validate().is_err_and(|error| error.is_parameter()), "{transform:?}");
    }
}

/// Draws recipes for photographs and writes them down with the results, for `tests/reference/suites.py`, which runs
/// them with torchvision.
#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with data/photos/; tests/reference/suites.py runs it"]
fn recipes_for_torchvision() {
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
    write_recipes(&suites, 1_000, "recipes.jsonl");
}

/// The same of timm's, 1,000 of each text.
#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with data/photos/; tests/reference/suites.py runs it"]
fn recipes_for_timm() {
    let texts = [
        "rand-m9-mstd0.5-inc1",
        "rand-m8-n4-p1",
        "rand-m7-tweights-mstd101",
        "augmix-m9",
        "original",
        "v0r-mstd1",
        "3a",
    ];
    let mut suites = texts.map(|text| TimmAugment::parse(text).unwrap());
    suites[1] = suites[1].clone().interpolation(Interpolation::Nearest).fill([9, 99, 199]);
    write_recipes(&suites.map(Transform::from), 7_000, "timm-recipes.jsonl");
}

fn write_recipes(suites: &[Transform], samples: usize, file: &str) {
    let shared = std::env::var_os("WARPFEED_SHARED").map(PathBuf::from).expect("WARPFEED_SHARED names a folder");
    let mut photos = Vec::new();
    jpegs(&shared.join("data/photos"), &mut photos);
    photos.sort();
    let mut lines = String::new();
    for sample in 0..samples {
        let photo = &photos[sample * 7919 % photos.len()];
        let bytes = fs::read(photo).unwrap();
        let builder = Pipeline::builder(EncodedImages::new([(bytes.clone(), 0)])).orientation(Orientation::Ignore);
        let suite = suites[sample % suites.len()].clone();
        let crop = warpfeed::Preset::Train.pixel_ops();
        let pipeline =
            crop.into_iter().chain([suite]).fold(builder, warpfeed::PipelineBuilder::transform).build().unwrap();
        let ops = pipeline.recipe(sample as u64, 0).unwrap();
        let run = |strategy| {
            let options = as_made(&ops).strategy(strategy).orientation(Orientation::Ignore);
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
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(file), lines).unwrap();
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
