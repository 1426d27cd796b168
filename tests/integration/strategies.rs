//! The fused strategy gives the bytes of the sequential one.

use crate::common::recipes::{inside, recipe};
use crate::common::{self, Random, jpeg};
use warpfeed::{
    ApplyOptions, DType, Error, Orientation, Preset, Strategy, apply,
    image::{Rect, Size},
    ops::{
        Affine, CenterCrop, Contrast, Crop, Dilate, Erode, Fill, GaussianBlur, Grayscale, Hflip, Interpolation,
        Normalize, Op, Posterize, Resize, ResizedCrop, Rotate, Vflip,
    },
};
use warpfeed_bench::trial::Trial;

#[test]
fn fused_equals_sequential() {
    let mut random = Random(7);
    for case in 0..1_500 {
        let size = Size::new(random.within(1, 110), random.within(1, 110));
        let bytes = jpeg(size.width, size.height, case % 12);
        let ops = recipe(&mut random, size);
        let run = |strategy| {
            let options = common::as_made(&ops).strategy(strategy).orientation(Orientation::Ignore);
            apply(&bytes, &ops, &options).unwrap_or_else(|error| panic!("{strategy:?} {size} {ops:?}: {error}"))
        };
        let (want, got) = (run(Strategy::Sequential), run(Strategy::Fused));
        let replay = || format!("case {case}, {size}: {}", serde_json::to_string(&ops).unwrap());
        assert_eq!(got.shape(), want.shape(), "{}", replay());
        if got.as_bytes().unwrap() != want.as_bytes().unwrap() {
            let at = got.as_bytes().unwrap().iter().zip(want.as_bytes().unwrap()).position(|(a, b)| a != b).unwrap();
            panic!("first difference at byte {at}: {}", replay());
        }
    }
}

/// A crop at the origin moves no coordinate: what comes after it must see its edges all the same.
#[test]
fn a_crop_at_the_origin_is_a_crop() {
    let bytes = jpeg(41, 37, 4);
    let rotate = |interpolation, fill| Op::from(Rotate::new(10.0).interpolation(interpolation).fill(fill));
    for op in [
        GaussianBlur::new(7, 2.0).into(),
        Dilate::new(5).into(),
        Erode::new(4).into(),
        Contrast::new(0.5).into(),
        Grayscale.into(),
        rotate(Interpolation::Bilinear, Fill::BLACK),
        rotate(Interpolation::Bilinear, Fill::EDGE),
        rotate(Interpolation::Nearest, Fill::EDGE),
        rotate(Interpolation::Nearest, Fill::BLACK),
        Crop::new(-3, -2, Size::new(40, 30)).fill(Fill::EDGE).into(),
    ] {
        for (width, height) in [(20, 37), (41, 11), (13, 17)] {
            for before in [vec![], vec![Op::from(Hflip), Hflip.into()], vec![Grayscale.into()]] {
                let crop = Crop::new(0, 0, Size::new(width, height));
                let ops = [before, vec![crop.into(), op.clone(), CenterCrop::new(9).into()]].concat();
                let run = |strategy| apply(&bytes, &ops, &common::as_made(&ops).strategy(strategy)).unwrap();
                let (want, got) = (run(Strategy::Sequential), run(Strategy::Fused));
                assert!(
                    got.as_bytes().unwrap() == want.as_bytes().unwrap(),
                    "{}",
                    serde_json::to_string(&ops).unwrap()
                );
            }
        }
    }
}

#[test]
fn orientation_is_a_turn_before_everything() {
    use warpfeed::image::{JpegOptions, encode_jpeg};
    let image = common::image(21, 13, 3);
    for tag in 1..=8 {
        let bytes = encode_jpeg(&image, &JpegOptions { orientation: Some(tag), ..JpegOptions::default() }).unwrap();
        let ops = [Crop::new(2, 3, Size::new(8, 9)).into()];
        let run = |strategy, orientation| {
            apply(&bytes, &ops, &common::as_made(&ops).strategy(strategy).orientation(orientation)).unwrap()
        };
        let upright = run(Strategy::Fused, Orientation::Apply);
        assert_eq!(
            upright.as_bytes().unwrap(),
            run(Strategy::Sequential, Orientation::Apply).as_bytes().unwrap(),
            "tag {tag}"
        );
        let stored = run(Strategy::Fused, Orientation::Ignore);
        assert_eq!(stored.as_bytes().unwrap() == upright.as_bytes().unwrap(), tag == 1, "tag {tag}");
    }
}

/// Composed sampling is another result, but of the same scene: near the sequential one where the image is smooth.
#[test]
fn composed_is_close_and_needs_one_sampling() {
    let size = Size::new(120, 90);
    let mut smooth = warpfeed::image::Image::new(size);
    for y in 0..size.height {
        for (x, pixel) in (0..size.width).zip(smooth.row_mut(y)) {
            *pixel = [(x * 2) as u8, (y * 2) as u8, (x + y) as u8, 255];
        }
    }
    let bytes =
        warpfeed::image::encode_jpeg(&smooth, &warpfeed::image::JpegOptions { quality: 98, ..Default::default() })
            .unwrap();
    let rotate = |degrees| Rotate::new(degrees).into();
    let ops = [
        rotate(4.0),
        Hflip.into(),
        rotate(-3.0),
        Vflip.into(),
        rotate(2.0),
        ResizedCrop::new(Rect { x: 40, y: 30, width: 40, height: 30 }, Size::new(32, 32)).into(),
    ];
    let run = |strategy| apply(&bytes, &ops, &common::as_made(&ops).strategy(strategy)).unwrap();
    let (sequential, composed) = (run(Strategy::Sequential), run(Strategy::Composed));
    let worst =
        sequential.as_bytes().unwrap().iter().zip(composed.as_bytes().unwrap()).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst <= Some(6), "off by {worst:?}");
    assert_ne!(sequential.as_bytes().unwrap(), composed.as_bytes().unwrap());
    assert_eq!(composed.dtype(), DType::U8);
}

#[test]
fn presets_have_the_size_they_promise() {
    let bytes = jpeg(300, 200, 1);
    for ops in [
        Preset::Train.ops(),
        Preset::Eval.ops(),
        Preset::AutoAugment.ops(),
        Preset::RandAugment.ops(),
        Preset::TrivialAugment.ops(),
        Preset::AugMix.ops(),
        Trial::A { load: 12 }.ops(),
        Trial::B { load: 2 }.ops(),
    ] {
        let builder = warpfeed::Pipeline::builder(warpfeed::source::EncodedImages::new([(bytes.clone(), 0)]));
        let pipeline = ops.into_iter().fold(builder, warpfeed::PipelineBuilder::transform).build().unwrap();
        assert_eq!(pipeline.image_size(), Size::new(224, 224));
        let batch = pipeline.epoch(0).next().unwrap().unwrap();
        assert_eq!(batch.images().shape(), [1, 3, 224, 224]);
        // What the pipeline drew, replayed by hand.
        let ops = pipeline.recipe(0, 0).unwrap();
        let options = common::as_made(&ops).orientation(Orientation::Ignore);
        assert_eq!(apply(&bytes, &ops, &options).unwrap().as_bytes().unwrap(), batch.images().as_bytes().unwrap());
    }
}

#[test]
fn wrong_recipes_are_refused() {
    let bytes = jpeg(40, 30, 1);
    let normalize = Op::from(Normalize::new([0.0; 3], [1.0; 3]));
    let outside = ResizedCrop::new(Rect { x: 30, y: 0, width: 20, height: 10 }, Size::new(8, 8)).into();
    let wrong = [
        vec![normalize.clone(), Hflip.into()],
        vec![normalize.clone(), normalize],
        vec![outside],
        vec![GaussianBlur::new(4, 1.0).into()],
        vec![Rotate::new(f64::NAN).into()],
    ];
    for ops in wrong {
        for strategy in [Strategy::Sequential, Strategy::Fused, Strategy::Composed] {
            let result = apply(&bytes, &ops, &common::as_made(&ops).strategy(strategy));
            assert!(matches!(result, Err(Error::Parameter { .. })), "{ops:?}");
        }
    }
}

#[test]
fn growing_without_end_is_refused() {
    let bytes = jpeg(64, 64, 1);
    let grow = Op::from(Rotate::new(45.0).expand(true));
    for strategy in [Strategy::Sequential, Strategy::Fused, Strategy::Composed] {
        let options = ApplyOptions::default().strategy(strategy).max_pixels(1 << 20);
        let result = apply(&bytes, &vec![grow.clone(); 40], &options);
        assert!(matches!(result, Err(Error::Limits { .. })));
    }
}

/// The published load: what must be decoded is bounded through all rotations together, to the pixel.
#[test]
fn many_rotations_in_a_row() {
    let mut random = Random(11);
    for case in 0..400 {
        let size = Size::new(random.within(20, 260), random.within(20, 260));
        let bytes = jpeg(size.width, size.height, case % 6);
        let mut ops = Vec::new();
        for _ in 0..random.within(1, 30) {
            match random.within(0, 3) {
                0 => ops.push(Hflip.into()),
                1 => ops.push(Vflip.into()),
                _ => {}
            }
            let most = if case % 3 == 0 { 180.0 } else { 5.0 };
            let degrees = random.real(-most, most);
            let fill = Fill::Color([1, 2, random.within(3, 4) as u8]);
            ops.push(Rotate::new(degrees).fill(fill).into());
        }
        let [x, y, width, height] = inside(&mut random, size);
        let interpolation = Interpolation::Bilinear;
        ops.push(ResizedCrop::new(Rect { x, y, width, height }, Size::new(31, 29)).interpolation(interpolation).into());
        let run = |strategy| apply(&bytes, &ops, &common::as_made(&ops).strategy(strategy)).unwrap();
        let same = run(Strategy::Sequential).as_bytes().unwrap() == run(Strategy::Fused).as_bytes().unwrap();
        assert!(same, "case {case}, {size}: {}", serde_json::to_string(&ops).unwrap());
    }
}

/// Shears stretch what earlier steps have rounded off: the bound of what must be decoded grows with that.
#[test]
fn many_shears_in_a_row() {
    let mut random = Random(13);
    for case in 0..300 {
        let size = Size::new(random.within(20, 200), random.within(20, 200));
        let bytes = jpeg(size.width, size.height, case % 6);
        let mut ops: Vec<Op> = Vec::new();
        for _ in 0..random.within(1, 8) {
            let shear = [random.real(-50.0, 50.0), random.real(-50.0, 50.0) * f64::from(random.within(0, 1))];
            let center = [f64::from(random.within(0, size.width)), f64::from(random.within(0, size.height))];
            ops.push(Affine::new().shear(shear).center(center).fill([1, 2, random.within(3, 4) as u8]).into());
            ops.extend((random.within(0, 2) == 0).then(|| Posterize::new(5).into()));
        }
        let [x, y, width, height] = inside(&mut random, size);
        let (x, y) = (x as i32, y as i32);
        ops.push(Crop::new(x, y, Size::new(width.div_ceil(3), height.div_ceil(3))).into());
        let run = |strategy| apply(&bytes, &ops, &common::as_made(&ops).strategy(strategy)).unwrap();
        let same = run(Strategy::Sequential).as_bytes().unwrap() == run(Strategy::Fused).as_bytes().unwrap();
        assert!(same, "case {case}, {size}: {}", serde_json::to_string(&ops).unwrap());
    }
}

/// Which pass of a resize comes first shows in some bytes; these are what Pillow 12.1 and 13.0 make.
#[test]
fn both_pass_orders_equal_their_pillow() {
    use sha2::{Digest, Sha256};
    use warpfeed::ops::PassOrder;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/reference/images/baseline-420.jpg");
    let bytes = std::fs::read(path).unwrap();
    for (size, interpolation, pillow_12, pillow_13) in [
        (Size::new(154, 40), Interpolation::Bilinear, "99a6be0a95b5e8bb", "946a9c6a9d8ffa4e"),
        (Size::new(166, 60), Interpolation::Bicubic, "b13ef581108586fe", "df31d717d57d6238"),
        (Size::new(158, 11), Interpolation::Lanczos, "6b3834ec472d3a3f", "423381822928a393"),
    ] {
        let ops = [Resize::new(size).interpolation(interpolation).into()];
        for (pass_order, want) in [(PassOrder::HorizontalFirst, pillow_12), (PassOrder::Pillow13, pillow_13)] {
            for strategy in [Strategy::Sequential, Strategy::Fused] {
                let options = common::as_made(&ops).strategy(strategy).pass_order(pass_order);
                let hash = Sha256::digest(apply(&bytes, &ops, &options).unwrap().as_bytes().unwrap());
                let start: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(start, want, "{size} {interpolation:?} {pass_order:?} {strategy:?}");
            }
        }
    }
}
