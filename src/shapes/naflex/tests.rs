//! Results of timm 1.0.31, those with many cases from the folder that `WARPFEED_SHARED` names.

use super::*;
use crate::rng::Domain;
use serde_json::Value;

/// The lines of a file of reference cases, of one kind.
pub(in crate::shapes) fn lines(name: &str, kind: &str) -> Vec<Value> {
    let lines = crate::shapes::tests::lines(name);
    let lines: Vec<Value> = lines.into_iter().filter(|line| line["kind"] == kind).collect();
    assert!(!lines.is_empty(), "{name} has no {kind}");
    lines
}

pub(in crate::shapes) fn number(value: &Value) -> u32 {
    value.as_u64().unwrap() as u32
}

#[test]
fn sizes_are_those_of_timm() {
    // Width and height of the image and of the patch, the longest sequence, the size, the size without enlarging.
    for ([width, height], [across, down], seq_len, size, small, ratio) in [
        ([500, 375], [16, 16], 64, [144, 112], [144, 112], 0.2879987197457552),
        ([500, 375], [16, 16], 784, [512, 384], [512, 384], 1.0239968660722971),
        ([500, 375], [16, 16], 1024, [576, 432], [512, 384], 1.1519978394474388),
        ([500, 375], [8, 16], 256, [200, 160], [200, 160], 0.3999958461587429),
        ([375, 500], [8, 16], 256, [152, 208], [152, 208], 0.4053304618127942),
        ([500, 375], [8, 8], 729, [248, 184], [248, 184], 0.49066643088436124),
    ] {
        let fit = |of: SequenceSize| of.of(Size::new(width, height)).unwrap();
        let of = SequenceSize::new(Size::new(across, down), seq_len);
        let [size, small] = [size, small].map(|[width, height]| Size::new(width, height));
        assert_eq!((fit(of).size, fit(of).ratio), (size, ratio));
        assert_eq!(fit(of.max_ratio(1.0)).size, small);
        assert_eq!(Size::new(fit(of).columns * across, fit(of).rows * down), size);
    }
    assert_eq!(SequenceSize::new(16, 256).of(Size::new(1, 1)).unwrap().size, Size::from(112));
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_sizes() {
    let mut compared = 0;
    for line in lines("naflex-sizes.jsonl", "size") {
        let image = Size::new(number(&line["width"]), number(&line["height"]));
        for target in line["targets"].as_array().unwrap() {
            let [down, across, seq_len, height, width, small_height, small_width] =
                [0, 1, 2, 3, 4, 5, 6].map(|i| number(&target[i]));
            let of = SequenceSize::new(Size::new(across, down), seq_len);
            let fit = of.of(image).unwrap();
            assert_eq!((fit.size, fit.ratio), (Size::new(width, height), target[7].as_f64().unwrap()), "{image}");
            let small = of.max_ratio(1.0).of(image).unwrap().size;
            assert_eq!(small, Size::new(small_width, small_height), "{image}");
            compared += 2;
        }
    }
    for line in lines("naflex-sizes.jsonl", "size_beside_exact") {
        let image = Size::new(number(&line["width"]), number(&line["height"]));
        let fit = SequenceSize::new(number(&line["patch"]), number(&line["max_seq_len"])).of(image).unwrap();
        let [height, width] = [0, 1].map(|i| number(&line["target"][i]));
        assert_eq!((fit.size, fit.ratio), (Size::new(width, height), line["ratio"].as_f64().unwrap()));
        compared += 1;
    }
    assert_eq!(compared, 6_006);
}

/// A crop with given numbers: the image's size, patch, sequence, scale, ratio, largest factor; the numbers, which are
/// all used up; rectangle and size.
type Case<'a> = ([u32; 2], [u32; 2], [f64; 4], Option<f64>, &'a [f64], [u32; 4], [u32; 2]);

/// timm's `RandomResizedCropToSequence.get_params`, with these numbers in place of Python's random ones.
#[rustfmt::skip]
const CROPS: [Case<'_>; 12] = [
    ([500, 375], [16, 256], [0.08, 1.0, 0.75, 4.0 / 3.0], None, &[0.4232, 0.5094, 0.6484, 0.3829], [60, 77, 343, 256], [288, 224]),
    ([500, 375], [16, 256], [0.08, 1.0, 0.75, 4.0 / 3.0], None, &[0.0132, 0.1823, 0.4586, 0.2878], [104, 115, 139, 125], [272, 240]),
    ([375, 500], [16, 128], [0.08, 1.0, 0.75, 4.0 / 3.0], None, &[0.6017, 0.1434, 0.698, 0.4073], [43, 41, 269, 441], [144, 224]),
    ([64, 48], [16, 256], [0.08, 1.0, 0.75, 4.0 / 3.0], Some(1.0), &[0.2587, 0.7893, 0.3667, 0.6564], [17, 8, 39, 25], [48, 32]),
    ([33, 200], [14, 196], [0.9, 1.0, 0.5, 2.0], None,
        &[0.8832, 0.3329, 0.3759, 0.9583, 0.8105, 0.0036, 0.1839, 0.854, 0.654, 0.2916, 0.6134, 0.3689, 0.76, 0.0034, 0.0186, 0.2621, 0.1396, 0.7753, 0.4408, 0.3253],
        [0, 0, 33, 200], [84, 448]),
    ([33, 200], [14, 196], [0.9, 1.0, 0.5, 2.0], None,
        &[0.7951, 0.9916, 0.4147, 0.9172, 0.2783, 0.9195, 0.2068, 0.06, 0.2756, 0.3083, 0.5428, 0.5599, 0.1412, 0.6362, 0.1985, 0.5595, 0.7762, 0.0903],
        [0, 13, 33, 184], [84, 448]),
    ([1000, 10], [16, 64], [0.5, 1.0, 0.75, 4.0 / 3.0], Some(2.0), &[0.9245, 0.8261, 0.4048, 0.9339, 0.2884, 0.3876], [19, 1, 950, 7], [1024, 16]),
    ([400, 300], [16, 256], [1.0, 1.0, 1.5, 2.0], None,
        &[0.5444, 0.2432, 0.0469, 0.9075, 0.1298, 0.2887, 0.0495, 0.7704, 0.8295, 0.6661, 0.4546, 0.0972, 0.9473, 0.801, 0.3553, 0.1843, 0.0278, 0.1277, 0.4297, 0.9941],
        [0, 50, 400, 200], [352, 176]),
    ([400, 300], [16, 256], [1.0, 1.0, 0.3, 0.5], None,
        &[0.963, 0.6834, 0.2261, 0.8935, 0.9352, 0.8386, 0.8706, 0.346, 0.4934, 0.1529, 0.6836, 0.3748, 0.7755, 0.0974, 0.2347, 0.3463, 0.3649, 0.1813, 0.4017, 0.4021],
        [100, 0, 200, 300], [208, 304]),
    ([1, 1], [16, 64], [0.08, 1.0, 0.75, 4.0 / 3.0], None, &[0.8767, 0.4978, 0.2309, 0.4875], [0, 0, 1, 1], [112, 112]),
    ([641, 479], [16, 1024], [0.9, 1.0, 0.75, 4.0 / 3.0], None,
        &[0.3367, 0.0315, 0.8745, 0.7694, 0.2547, 0.8549, 0.0966, 0.1188, 0.752, 0.5145, 0.3867, 0.742], [4, 3, 636, 471], [592, 432]),
    ([641, 479], [16, 1024], [0.9, 1.0, 0.75, 4.0 / 3.0], None,
        &[0.977, 0.7867, 0.1062, 0.7407, 0.7897, 0.4612, 0.195, 0.8977], [13, 0, 627, 479], [576, 448]),
];

#[test]
fn crops_are_those_of_timm_for_the_same_numbers() {
    for ([width, height], [patch, seq_len], [low, high, least, most], max_ratio, numbers, rect, size) in CROPS {
        let mut of = SequenceSize::new(patch, seq_len);
        of.max_ratio = max_ratio;
        let crop = SequenceCrop::new(of).scale(low..=high).ratio(least..=most);
        crop.validate().unwrap();
        let mut left = numbers.iter().copied();
        let found = crop.rect(
            &mut left,
            Size::new(width, height),
            |numbers| numbers.next().unwrap(),
            |numbers, below| (numbers.next().unwrap() * below as f64) as u64,
        );
        assert_eq!(([found.x, found.y, found.width, found.height], left.next()), (rect, None));
        let found = of.of(found.size()).unwrap().size;
        assert_eq!([found.width, found.height], size);
    }
}

#[test]
fn drawn_crops_lie_inside_and_fill_the_sequence() {
    let crop = SequenceCrop::new(SequenceSize::new(16, 256));
    let mut areas = Vec::new();
    for (index, (width, height)) in (0..2_000).zip([(500, 375), (33, 200), (1, 7), (640, 480)].into_iter().cycle()) {
        let mut rng = SampleRng::new(7, 0, Domain::Recipe, index);
        let (rect, fit) = crop.draw(&mut rng, Size::new(width, height)).unwrap();
        assert!(rect.right() <= width && rect.bottom() <= height && !rect.size().is_empty());
        assert!(fit.rows * fit.columns <= 256 && fit == SequenceSize::new(16, 256).of(rect.size()).unwrap());
        if width == 640 {
            areas.push(f64::from(rect.width * rect.height) / (640.0 * 480.0));
        }
    }
    // Crops near the whole area fit less often; torchvision's mean is alike.
    let mean = areas.iter().sum::<f64>() / areas.len() as f64;
    assert!((0.45..0.55).contains(&mean) && areas.iter().all(|area| *area > 0.079), "{mean}");
    let again = |index| crop.draw(&mut SampleRng::new(7, 0, Domain::Recipe, index), Size::new(500, 375)).unwrap();
    assert!(again(3) == again(3) && again(3) != again(4));
}

#[test]
fn wrong_parameters_are_named() {
    let image = Size::new(500, 375);
    for (of, name) in [
        (SequenceSize::new(0, 64), "patch"),
        (SequenceSize::new(Size::new(16, 2_000), 64), "patch"),
        (SequenceSize::new(16, 0), "seq_len"),
        (SequenceSize::new(16, 64).max_ratio(0.0), "max_ratio"),
        (SequenceSize::new(16, 64).max_ratio(f64::NAN), "max_ratio"),
    ] {
        let error = of.of(image).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(name), "{error}");
        assert!(SequenceCrop::new(of).draw(&mut SampleRng::for_sample(1, 0, 0), image).is_err());
    }
    let crop = SequenceCrop::new(SequenceSize::new(16, 64));
    for (crop, name) in [
        (crop.clone().scale(0.0..=1.0), "scale"),
        (crop.clone().scale(0.5..=1.5), "scale"),
        (crop.clone().scale(0.5..=f64::NAN), "scale"),
        (crop.clone().ratio(2.0..=1.0), "ratio"),
        (crop.clone().ratio(1.0..=f64::INFINITY), "ratio"),
    ] {
        let error = crop.validate().unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(name), "{error}");
    }
    for image in [Size::new(0, 5), Size::new(u32::MAX, u32::MAX)] {
        assert!(SequenceSize::new(16, 64).of(image).unwrap_err().is_bad_sample());
    }
}
