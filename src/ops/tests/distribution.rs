//! Tests of frequencies and independence of drawn values.

use crate::ops::recipe::draw_recipe;
use crate::ops::*;
use crate::rng::{Pick, SampleRng};
use crate::targets::Annotation;
use std::collections::BTreeMap;

const SIZE: Size = Size::new(200, 150);

/// The recipes of `samples` samples.
fn drawn(transforms: impl Into<Vec<Transform>>, samples: u64) -> Vec<Vec<Op>> {
    let transforms = transforms.into();
    transforms.iter().for_each(|transform| transform.validate().unwrap());
    let annotation = Annotation::default();
    let draw = |index| {
        let sample = SampleInfo::new(Pick { index, repetition: 0 }, SIZE, &annotation);
        draw_recipe(&[], &transforms, &mut SampleRng::for_sample(3, 0, index), sample, None).unwrap().ops
    };
    (0..samples).map(draw).collect()
}

/// Fails if Pearson's statistic exceeds the value that one in a million exceeds, by Wilson and Hilferty.
#[track_caller]
fn chi_square(counts: &[f64], expected: &[f64]) {
    let total = counts.iter().sum::<f64>() / expected.iter().sum::<f64>();
    let sum: f64 = counts.iter().zip(expected).map(|(n, p)| (n - p * total).powi(2) / (p * total)).sum();
    let (free, deviations) = ((counts.len() - 1) as f64, 4.76);
    let limit = free * (1.0 - 2.0 / (9.0 * free) + deviations * (2.0 / (9.0 * free)).sqrt()).powi(3);
    assert!(counts.len() == expected.len() && sum < limit, "{sum} of at most {limit}: {counts:?}");
}

/// The outcomes in order, and the number of times that each one comes.
fn counts<K: Ord>(outcomes: impl IntoIterator<Item = K>) -> (Vec<K>, Vec<f64>) {
    let mut counts = BTreeMap::new();
    outcomes.into_iter().for_each(|outcome| *counts.entry(outcome).or_insert(0.0) += 1.0);
    counts.into_iter().unzip()
}

fn names(ops: &[Op]) -> String {
    ops.iter().map(Op::name).collect::<Vec<_>>().join(" ")
}

#[test]
fn one_of_several_comes_as_often_as_its_weight_says() {
    let three = || [Hflip.into(), Vflip.into(), Grayscale.into()];
    let chosen = |transform: OneOf| counts(drawn([transform.into()], 6_000).iter().map(|ops| names(ops)));
    let (kinds, times) = chosen(OneOf::new(three()).weights([5.0, 1.5, 3.5]));
    assert_eq!(kinds, ["grayscale", "hflip", "vflip"]);
    chi_square(&times, &[3.5, 5.0, 1.5]);
    chi_square(&chosen(OneOf::new(three())).1, &[1.0; 3]);
    assert_eq!(chosen(OneOf::new(three()).weights([0.0, 0.3, 0.0])).0, ["vflip"]);
    for wrong in [vec![1.0], vec![0.0; 3], vec![1.0, -1.0, 1.0], vec![1.0, f64::NAN, 1.0], vec![f64::MAX; 3]] {
        assert!(Transform::from(OneOf::new(three()).weights(wrong)).validate().is_err_and(|e| e.is_parameter()));
    }
}

#[test]
fn all_orders_come_alike_and_move_no_draw() {
    let turns = || [random_rotation(-9.0..=9.0), random_grayscale(1.0), random_gaussian_blur(3, 0.1..=2.0)];
    let tail = random_rotation(10.0..=20.0);
    let recipes = drawn([random_order(turns()), tail.clone()], 6_000);
    let (orders, times) = counts(recipes.iter().map(|ops| names(&ops[..3])));
    assert_eq!(orders.len(), 6);
    chi_square(&times, &[1.0; 6]);
    // Each transform draws in its own regions, which are those that it has in `maybe`.
    let in_order = drawn([maybe(1.0, turns()), tail], 6_000);
    for (got, want) in recipes.into_iter().zip(in_order) {
        assert_eq!(got[3], want[3]);
        assert!(want.iter().all(|op| got.contains(op)), "{got:?} {want:?}");
    }
    // The last of two sizes is drawn.
    let effect = |transforms: [Transform; 2]| random_order(transforms).size_effect();
    assert_eq!(effect([Hflip.into(), CenterCrop::new(9).into()]), SizeEffect::Becomes(Size::new(9, 9)));
    assert_eq!(effect([Vflip.into(), Hflip.into()]), SizeEffect::Keeps);
    assert_eq!(effect([CenterCrop::new(8).into(), CenterCrop::new(9).into()]), SizeEffect::Varies);
}

#[test]
fn one_of_two_filters_is_drawn_and_moves_nothing_else() {
    let either = [Interpolation::Bilinear, Interpolation::Bicubic];
    let pairs: [[Transform; 2]; 4] = [
        [RandomResizedCrop::new(9).into(), RandomResizedCrop::new(9).interpolation(either).into()],
        [
            RandomAffine::new(-9.0..=9.0).interpolation(Interpolation::Bilinear).into(),
            RandomAffine::new(-9.0..=9.0).interpolation(either).into(),
        ],
        [
            RandomRotation::new(-9.0..=9.0).interpolation(Interpolation::Bilinear).into(),
            RandomRotation::new(-9.0..=9.0).interpolation(either).into(),
        ],
        [RandomPerspective::new(0.5, 1.0).into(), RandomPerspective::new(0.5, 1.0).interpolation(either).into()],
    ];
    for [one, two] in pairs {
        let written = |ops: &[Op]| serde_json::to_value(ops).unwrap();
        let (one, two) = (drawn([one], 2_000), drawn([two], 2_000));
        let filters = one.iter().zip(&two).map(|(one, two)| {
            let mut two = written(two);
            let filter = std::mem::replace(&mut two[0]["interpolation"], "bilinear".into());
            assert_eq!(written(one), two);
            filter.as_str().unwrap().to_owned()
        });
        let (filters, times) = counts(filters);
        assert_eq!(filters, ["bicubic", "bilinear"]);
        chi_square(&times, &[1.0; 2]);
    }
    let wrong = RandomAffine::new(0.0..=1.0).interpolation([Interpolation::Nearest, Interpolation::Lanczos]);
    assert!(Transform::from(wrong).validate().is_err_and(|error| error.is_parameter()));
    let text = r#"{"transform": "random_resized_crop", "size": [9, 9], "interpolation": ["bilinear", "bicubic"]}"#;
    let read: Transform = serde_json::from_str(text).unwrap();
    assert_eq!(drawn([read], 50), drawn([RandomResizedCrop::new(9).interpolation(either).into()], 50));
}

fn erased(transform: RandomErasing, samples: u64) -> Vec<Vec<Erase>> {
    let erase = |op| if let Op::Erase(erase) = op { erase } else { panic!("{op:?}") };
    drawn([transform.into()], samples).into_iter().map(|ops| ops.into_iter().map(erase).collect()).collect()
}

/// As in timm, the rectangles share the area, whatever their number, and each has a color of its own.
#[test]
fn rectangles_that_are_erased_share_the_area() {
    const SAMPLES: u64 = 3_000;
    let timm = RandomErasing::new(1.0).scale(0.02..=0.3).ratio(0.3..=1.0 / 0.3);
    let recipes = erased(timm.clone().count(2..=4).noise(ErasingNoise::PerBox), SAMPLES);
    let (numbers, times) = counts(recipes.iter().map(Vec::len));
    assert_eq!(numbers, [2, 3, 4]);
    chi_square(&times, &[1.0; 3]);
    let (mut bins, mut sum) = ([0.0; 8], [0.0; 2]);
    for erased in &recipes {
        for erase in erased {
            let share = f64::from(erase.width * erase.height) / f64::from(SIZE.width * SIZE.height);
            assert!((0.85 * 0.02..1.15 * 0.3).contains(&(share * erased.len() as f64)), "{erased:?}");
            assert_eq!(erase.std, 0.0);
            for value in erase.value.three().map(f64::from) {
                // The bounds between eight equally likely ranges.
                let bounds = [-1.150_35, -0.674_49, -0.318_64, 0.0, 0.318_64, 0.674_49, 1.150_35];
                bins[bounds.partition_point(|bound| *bound < value)] += 1.0;
                (sum[0], sum[1]) = (sum[0] + value, sum[1] + value * value);
            }
        }
    }
    chi_square(&bins, &[1.0; 8]);
    let count: f64 = bins.iter().sum();
    assert!((sum[0] / count).abs() < 6.0 / count.sqrt() && (sum[1] / count - 1.0).abs() < 6.0 * (2.0 / count).sqrt());
    // Noise and the number of rectangles do not move a rectangle.
    let plain = erased(timm.clone(), 200);
    let noisy = erased(timm.noise(ErasingNoise::PerPixel).std(0.5), 200);
    for (plain, noisy) in plain.iter().flatten().zip(noisy.iter().flatten()) {
        assert_eq!((plain.rect(), plain.key, noisy.std), (noisy.rect(), 0, 0.5));
    }
    let keys: std::collections::BTreeSet<_> = noisy.iter().flatten().map(|erase| erase.key).collect();
    assert_eq!(keys.len(), noisy.iter().flatten().count());
}

#[test]
fn erasing_that_cannot_be_is_refused() {
    let with = RandomErasing::new(0.5);
    for transform in
        [with.clone().count(0..=2), with.clone().count(1..=101), with.clone().std(-1.0), with.std(f32::NAN)]
    {
        assert!(Transform::from(transform).validate().is_err_and(|error| error.is_parameter()));
    }
    let erase = Erase::new(Rect { x: 0, y: 0, width: 1, height: 1 });
    assert!(Op::from(erase.noise(1.0, 1 << 53)).validate().is_err_and(|error| error.is_parameter()));
    assert!(Op::from(erase.noise(-1.0, 1)).validate().is_err_and(|error| error.is_parameter()));
}

#[test]
fn all_orders_of_channels_come_alike() {
    let (orders, times) = counts(drawn([RandomChannelPermutation::new().into()], 6_000).into_iter().map(|ops| {
        let [Op::PermuteChannels(PermuteChannels { order })] = ops[..] else { panic!("{ops:?}") };
        order.rgb()
    }));
    assert_eq!(orders.len(), 6);
    chi_square(&times, &[1.0; 6]);
}

/// Each of five changes comes with its probability, contrast comes at two places, and factors are uniform in their
/// ranges.
#[test]
fn colors_are_distorted_as_often_as_torchvision_does() {
    const SAMPLES: u64 = 8_000;
    let recipes = drawn([RandomPhotometricDistort::new(0.3).into()], SAMPLES);
    let all = ["brightness", "contrast", "saturation", "hue", "permute_channels"];
    let (kinds, times) = counts(recipes.iter().flatten().map(Op::name));
    assert_eq!(kinds.len(), all.len());
    for count in times {
        chi_square(&[count, SAMPLES as f64 - count], &[0.3, 0.7]);
    }
    let with_both = recipes.iter().filter_map(|ops| {
        let place = |name| ops.iter().position(|op| op.name() == name);
        Some(place("contrast")? < place("hue")?)
    });
    chi_square(&counts(with_both).1, &[1.0; 2]);
    let bins = recipes.iter().flatten().filter_map(|op| match op {
        Op::Brightness(op) => Some(((op.factor - 0.875) / 0.25 * 10.0) as u32),
        Op::Contrast(op) => Some(((op.factor - 0.5) * 10.0) as u32),
        Op::Saturation(op) => Some(((op.factor - 0.5) * 10.0) as u32),
        Op::Hue(op) => Some(((op.factor + 0.05) * 100.0) as u32),
        _ => None,
    });
    chi_square(&counts(bins).1, &[1.0; 10]);
    // A change that is left out does not alter the others.
    let always = drawn([RandomPhotometricDistort::new(1.0).into()], 200);
    for (some, all) in recipes.iter().zip(always) {
        assert!(some.iter().all(|op| all.contains(op)), "{some:?} {all:?}");
    }
}

#[test]
fn each_sample_has_noise_of_its_own() {
    for transform in [Transform::from(RandomGaussianNoise::new(0.2)), RandomElastic::new().into()] {
        let keys = drawn([transform], 4_000).into_iter().map(|ops| match &ops[..] {
            [Op::GaussianNoise(op)] => op.key,
            [Op::Elastic(op)] => op.key,
            ops => panic!("{ops:?}"),
        });
        let (keys, times) = counts(keys);
        assert!(times.iter().all(|times| *times == 1.0));
        // Keys are uniform.
        chi_square(&counts(keys.into_iter().map(|key| key >> 49)).1, &[1.0; 16]);
    }
}
