//! Tests across operations: properties, parts and wholes, fast and plain code.

mod boxes;
mod catalog;
mod distribution;
pub(super) mod reference;

use super::affine_warp::{SampledView, bilinear_plain};
use super::needed_pixels::NeededPixels;
use super::rotation::Rotation;
use super::turn::Exact;
use super::*;
use crate::raster::Pixel;
use crate::{ApplyOptions, DType, Layout, Strategy, apply};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use sha2::{Digest, Sha256};

/// Odd sizes, single rows and columns, and sizes around the steps of loops.
const SIZES: [Size; 12] = [
    Size::new(1, 1),
    Size::new(2, 1),
    Size::new(1, 3),
    Size::new(2, 2),
    Size::new(3, 2),
    Size::new(7, 5),
    Size::new(8, 8),
    Size::new(16, 9),
    Size::new(17, 31),
    Size::new(33, 65),
    Size::new(130, 41),
    Size::new(600, 19),
];

/// Gradients, noise, flat areas and saturated bytes; `tests/reference/arrays.py` makes the same image.
fn image(size: Size, seed: u32) -> Image {
    let mut image = Image::new(size);
    let mut state = seed.wrapping_mul(2654435761).wrapping_add(1) | 1;
    for y in 0..size.height {
        for x in 0..size.width {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            let noise = state >> 24;
            let rgb = match (x / 8 + y / 8) % 4 {
                0 => [noise, (state >> 16) & 255, (state >> 8) & 255],
                1 => [(x * 3 + y) & 255, (y * 5) & 255, (x + 2 * y + noise / 32) & 255],
                2 => [255, noise / 2, 0],
                _ => [100, 100, 100 + noise / 128],
            };
            image.row_mut(y)[x as usize] = [rgb[0] as u8, rgb[1] as u8, rgb[2] as u8, 255];
        }
    }
    image
}

fn applied(op: impl Into<Op>, input: &Image) -> Image {
    let op = op.into();
    // The memory was used before, and none of its content may show.
    let (mut made, mut spare) = (input.clone(), image(Size::new(13, 77), 99));
    op.apply_reusing(PassOrder::Pillow13, &mut made, &mut spare).unwrap();
    assert_eq!(made.size(), op.output_size(input.size()).unwrap());
    made
}

fn part_of(whole: &Image, part: Rect) -> Image {
    let mut made = Image::default();
    made.reset_part(whole.size(), part);
    for y in 0..part.height {
        let row = &whole.row(part.y + y)[part.x as usize..part.right() as usize];
        made.row_mut(y).copy_from_slice(row);
    }
    made
}

fn grown(part: Rect, margin: u32, whole: Size) -> Rect {
    let (x, y) = (part.x.saturating_sub(margin), part.y.saturating_sub(margin));
    let (right, bottom) = ((part.right() + margin).min(whole.width), (part.bottom() + margin).min(whole.height));
    Rect { x, y, width: right - x, height: bottom - y }
}

/// Some rectangles inside an image, the whole and single pixels among them.
fn parts(size: Size) -> Vec<Rect> {
    let (w, h) = (size.width, size.height);
    let mut parts = vec![
        Rect::full(size),
        Rect { x: w - 1, y: h - 1, width: 1, height: 1 },
        Rect { x: 0, y: h / 2, width: w.div_ceil(2), height: 1 },
        Rect { x: w / 3, y: h / 3, width: w - w / 3, height: h.div_ceil(2).min(h - h / 3) },
    ];
    parts.dedup();
    parts
}

/// Compares red, green and blue; the fourth byte has no meaning.
#[track_caller]
fn assert_equal(got: &Image, want: &Image, context: impl std::fmt::Debug) {
    assert_eq!((got.whole(), got.part()), (want.whole(), want.part()), "{context:?}");
    let differs = |(a, b): (&Pixel, &Pixel)| a[..3] != b[..3];
    let count = got.pixels().iter().zip(want.pixels()).filter(|&pair| differs(pair)).count();
    if let Some(at) = got.pixels().iter().zip(want.pixels()).position(differs) {
        let (x, y) = (at as u32 % got.size().width, at as u32 / got.size().width);
        let (got, want) = (got.pixels()[at], want.pixels()[at]);
        panic!("{context:?}: {count} pixels differ, the first at ({x}, {y}): {got:?} for {want:?}");
    }
}

#[test]
fn mirrored_twice_is_unchanged() {
    for size in SIZES {
        let input = image(size, 1);
        let (right, bottom) = (size.width - 1, size.height - 1);
        let mirrors: [(Op, u32, u32); 3] =
            [(Hflip.into(), right, 0), (Vflip.into(), 0, bottom), (Rotate::new(180.0).into(), right, bottom)];
        for (op, x, y) in mirrors {
            let once = applied(op.clone(), &input);
            assert_eq!(once.row(y)[x as usize], input.row(0)[0], "{op:?} moves the first pixel");
            assert_equal(&applied(op.clone(), &once), &input, (op, size));
        }
        let both = applied(Vflip, &applied(Hflip, &input));
        assert_equal(&both, &applied(Rotate::new(180.0).interpolation(Interpolation::Bilinear), &input), size);
    }
}

#[test]
fn four_quarter_turns_are_unchanged() {
    for size in SIZES {
        let input = image(size, 2);
        let turn = |degrees| Rotate::new(degrees).expand(true);
        let mut turned = input.clone();
        for _ in 0..4 {
            let (first, width) = (turned.row(0)[turned.size().width as usize - 1], turned.size().width);
            turned = applied(turn(90.0), &turned);
            assert_eq!(turned.size().height, width);
            assert_eq!(turned.row(0)[0], first, "counter-clockwise: the right top corner becomes the left one");
        }
        assert_equal(&turned, &input, size);
        let back = applied(turn(-90.0), &applied(turn(90.0), &input));
        assert_equal(&back, &input, size);
    }
}

#[test]
fn neutral_parameters_change_nothing() {
    for size in SIZES {
        let input = image(size, 3);
        for op in [
            Op::from(Brightness::new(1.0)),
            Contrast::new(1.0).into(),
            Saturation::new(1.0).into(),
            GaussianBlur::new(1, 1.0).into(),
            Sharpness::new(1.0).into(),
            Affine::new().center([0.0; 2]).interpolation(Interpolation::Bicubic).into(),
            Dilate::new(1).into(),
            Erode::new(1).into(),
            PermuteChannels::new([0, 1, 2]).into(),
            GaussianNoise::new(0.0, 3).into(),
            Elastic::new(3).alpha([0.0; 2]).into(),
            Posterize::new(8).into(),
            CenterCrop::new(size).into(),
            Resize::new(size).interpolation(Interpolation::Lanczos).into(),
            Rotate::new(360.0).interpolation(Interpolation::Bilinear).expand(true).fill(Fill::EDGE).into(),
        ] {
            assert_equal(&applied(op.clone(), &input), &input, (op, size));
        }
    }
}

#[test]
fn flat_images_stay_flat() {
    for size in SIZES {
        let mut input = Image::new(size);
        input.pixels_mut().fill([0, 77, 255, 255]);
        let to = Size::new(size.width * 2 + 1, size.height.div_ceil(2));
        let turned = Rotate::new(33.0).expand(true).fill(Fill::EDGE);
        let mut ops: Vec<Op> = vec![
            GaussianBlur::new(9, 1.7).into(),
            GaussianBlur::new(255, 60.0).into(),
            Dilate::new(4).into(),
            Erode::new(255).into(),
            Equalize.into(),
            Autocontrast.into(),
            Sharpness::new(0.3).into(),
            PillowGaussianBlur::new(40.0).into(),
            Pad::new(9).mode(PadMode::Reflect).into(),
            Pad::new(9).mode(PadMode::Symmetric).into(),
            turned.interpolation(Interpolation::Bilinear).into(),
            turned.into(),
            Crop::new(-3, 2, 9).fill(Fill::EDGE).into(),
        ];
        use Interpolation::{Bicubic, Bilinear, Lanczos, Nearest};
        ops.extend([Nearest, Bilinear, Bicubic, Lanczos].map(|i| Op::from(Resize::new(to).interpolation(i))));
        for op in ops {
            let out = applied(op.clone(), &input);
            assert!(out.pixels().iter().all(|p| p[..3] == [0, 77, 255]), "{op:?} {size}");
        }
    }
}

/// A pass that makes only a part makes the same pixels as the pass that makes the whole.
#[test]
fn parts_equal_the_whole() {
    for size in SIZES {
        let input = image(size, 4);
        let mut ops = Op::examples(size);
        for kernel in [1, 2, 3, 6, 9, 31] {
            ops.extend([Op::from(Dilate::new(kernel)), Erode::new(kernel).into()]);
            ops.push(PillowGaussianBlur::new(0.4 * f64::from(kernel)).into());
            ops.extend((kernel % 2 == 1).then(|| GaussianBlur::new(kernel, 1.5).into()));
        }
        for op in ops {
            let Primitive::Pass(_, Reach::Around(margin)) = op.primitive(size) else { continue };
            let whole = applied(op.clone(), &input);
            for part in parts(size) {
                let (mut made, mut spare) = (part_of(&input, grown(part, margin, size)), image(Size::new(9, 9), 3));
                let pass = &mut CpuPass { image: &mut made, spare: &mut spare, part, order: PassOrder::default() };
                op.pass(pass).unwrap();
                assert_equal(&made, &part_of(&whole, part), (&op, size, part));
            }
        }
    }
}

const ANGLES: [f64; 13] =
    [5.0, -5.0, 0.3, 1e-9, -1e-7, 30.0, 44.99999, 90.0, 123.4, 179.9999999, 180.00001, 270.0000001, -77.7];

#[test]
fn parts_of_rotations_equal_the_whole() {
    for size in SIZES {
        let input = image(size, 5);
        for degrees in ANGLES {
            for fill in [Fill::Color([9, 99, 199]), Fill::EDGE] {
                let Rotation::Free { matrix, canvas } = Rotation::new(size, degrees, true, fill, None) else {
                    continue;
                };
                for interpolation in [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic] {
                    if interpolation == Interpolation::Bicubic && fill == Fill::EDGE {
                        continue;
                    }
                    let sampling = AffineWarp { matrix, interpolation, fill };
                    let (mut whole, mut made) = (Image::default(), Image::default());
                    sampling.make(&input, canvas, Rect::full(canvas), &mut whole);
                    for part in parts(canvas) {
                        let held = part_of(&input, sampling.reach(part, size));
                        sampling.make(&held, canvas, part, &mut made);
                        assert_equal(&made, &part_of(&whole, part), (degrees, fill, size, part));
                    }
                }
            }
        }
    }
}

#[test]
fn fast_rotation_equals_plain() {
    // Steps of a degree, and angles at which points lie on pixel centers or just next to them.
    let angles = (0..360).map(f64::from).chain(
        (0..8).flat_map(|i| [-1e-5, -1e-7, -1e-9, -1e-12, 1e-12, 1e-9, 1e-7, 1e-5].map(|d| f64::from(i) * 45.0 + d)),
    );
    let sizes = [Size::new(33, 65), Size::new(130, 41), Size::new(600, 19), Size::new(2, 2), Size::new(50, 50)];
    for (seed, degrees) in (0..).zip(angles.chain(ANGLES)) {
        let size = sizes[seed as usize % sizes.len()];
        let input = image(size, seed);
        for (expand, fill) in [(true, Fill::Color([9, 99, 199])), (false, Fill::BLACK), (true, Fill::EDGE)] {
            let Rotation::Free { matrix, canvas } = Rotation::new(size, degrees, expand, fill, None) else { continue };
            let (mut fast, mut plain) = (Image::default(), Image::default());
            let part = Rect::full(canvas);
            let sampling = AffineWarp { matrix, interpolation: Interpolation::Bilinear, fill };
            sampling.make(&input, canvas, part, &mut fast);
            plain.reset(canvas);
            let needed = NeededPixels { part, points: None };
            bilinear_plain(SampledView::whole(&input), matrix, fill, &needed, &mut plain);
            assert_equal(&fast, &plain, (degrees, size, expand, fill));
        }
    }
}

/// A view is sampled as an image that has its pixels, and only where a next stage samples.
#[test]
fn views_are_sampled_as_their_images() {
    let size = Size::new(61, 47);
    let input = image(size, 3);
    let turns = [Turn::Hflip, Turn::Vflip, Turn::Quarter, Turn::Half, Turn::ThreeQuarters];
    let turned = turns.map(|turn| (turn.map(size), turn.output_size(size)));
    let crops = [(7, 5, 40, 33), (0, 0, 20, 47), (30, 11, 2, 3)];
    let crops = crops.map(|(x, y, width, height)| (Exact::translate(x, y), Size::new(width, height)));
    let both =
        turned.map(|(exact, size)| (exact.after(Exact::translate(4, 9)), Size::new(size.width - 6, size.height - 11)));
    for (exact, size) in turned.into_iter().chain(crops).chain(both) {
        let part = exact.rect(Rect::full(size));
        let mut image = Image::new(size);
        for (i, pixel) in image.pixels_mut().iter_mut().enumerate() {
            let from = exact.rect(Rect { x: i as u32 % size.width, y: i as u32 / size.width, width: 1, height: 1 });
            *pixel = input.row(from.y)[from.x as usize];
        }
        // More than the view is stored, or no more.
        let held = [input.clone(), part_of(&input, part)];
        for degrees in [3.0, -6.5, 40.0, 185.0, 271.0] {
            for fill in [Fill::Color([9, 99, 199]), Fill::EDGE] {
                let rotation = Rotation::new(size, degrees, true, fill, None);
                let Rotation::Free { matrix, canvas } = rotation else { panic!("{rotation:?}") };
                for interpolation in [Interpolation::Bilinear, Interpolation::Bicubic] {
                    if interpolation == Interpolation::Bicubic && fill == Fill::EDGE {
                        continue;
                    }
                    let warp = AffineWarp { matrix, interpolation, fill };
                    let (mut whole, mut made) = (Image::default(), Image::default());
                    warp.make(&image, canvas, Rect::full(canvas), &mut whole);
                    for held in &held {
                        let seen = SampledView { image: held, exact, size };
                        warp.make_of_view(
                            seen,
                            canvas,
                            &NeededPixels { part: Rect::full(canvas), points: None },
                            &mut made,
                        );
                        assert_equal(&made, &whole, (exact, size, degrees, fill, interpolation));
                    }
                }
            }
        }
    }
}

/// In a row of operations that sample, each makes only the pixels that the next one reads.
#[test]
fn rows_of_rotations_make_all_that_is_read() {
    let size = Size::new(240, 171);
    let rgb = image(size, 8).to_rgb();
    let file = [format!("P6 {} {} 255\n", size.width, size.height).as_bytes(), &rgb].concat();
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    for case in 0..200 {
        let mut ops = Vec::<Op>::new();
        let fill = if case % 2 == 0 { Fill::EDGE } else { Fill::Color([9, 99, 199]) };
        for _ in 0..rng.random_range(2..=5) {
            match rng.random_range(0..8) {
                0 => ops.push(Hflip.into()),
                1 => ops.push(Vflip.into()),
                2 => ops.push(Rotate::new(90.0).expand(true).into()),
                3 => ops.push(CenterCrop::new(rng.random_range(60..90)).into()),
                _ => {}
            }
            let bicubic = fill != Fill::EDGE && rng.random_bool(0.3);
            let interpolation = if bicubic { Interpolation::Bicubic } else { Interpolation::Bilinear };
            let degrees = [5.0, rng.random_range(-180.0..180.0), rng.random_range(-8.0..8.0)][case % 3];
            let rotate = Rotate::new(degrees).expand(rng.random()).fill(fill).interpolation(interpolation);
            ops.push(rotate.into());
        }
        let now = ops.iter().fold(size, |size, op| op.output_size(size).unwrap());
        match case % 4 {
            0 => {
                // At an edge, where points lie outside of the images before.
                let side = rng.random_range(1..30);
                let place = |length: u32| [0, (length - side) as i32, (length / 3) as i32];
                let (x, y) = (place(now.width), place(now.height));
                let [x, y] = [x, y].map(|places| places[rng.random_range(0..3)]);
                ops.push(Crop::new(x, y, side).into());
            }
            1 => ops.push(Resize::new(Size::new(40, 30)).into()),
            2 => ops.extend([CenterCrop::new(50).into(), Resize::new(Size::new(40, 30)).into()]),
            _ => {}
        }
        let [fused, sequential] = [Strategy::Fused, Strategy::Sequential].map(|strategy| {
            let options = ApplyOptions::default().strategy(strategy).dtype(DType::U8).layout(Layout::Nhwc);
            apply(&file, &ops, &options).unwrap()
        });
        assert!(fused.as_slice::<u8>().unwrap() == sequential.as_slice::<u8>().unwrap(), "{ops:?}");
    }
}

/// Effects on the size have a default, so they are compared with results.
#[test]
fn effects_on_the_size_are_those_of_results() {
    for size in SIZES {
        for op in Op::examples(size).into_iter().filter(|op| !matches!(op, Op::Normalize(_))) {
            let made = applied(op.clone(), &image(size, 8)).size();
            match op.size_effect() {
                SizeEffect::Keeps => assert_eq!(made, size, "{op:?}"),
                SizeEffect::Becomes(becomes) => assert_eq!(made, becomes, "{op:?}"),
                SizeEffect::Varies => {}
            }
        }
    }
}

#[test]
fn what_is_erased_is_rounded_and_cut() {
    let rect = Rect { x: 3, y: 4, width: 6, height: 20 };
    let erased = applied(Erase::new(rect).value([-5.0, 99.5, 300.0]), &image(Size::new(17, 31), 6));
    assert_eq!(erased.row(4)[3], [0, 100, 255, 255]);
}

#[test]
fn what_cannot_be_applied_is_refused() {
    let apply = |op: &Op| {
        let mut made = image(Size::new(7, 5), 7);
        op.apply_reusing(PassOrder::Pillow13, &mut made, &mut Image::default()).map(|()| made)
    };
    let custom = |apply: fn(&mut Image)| Custom::new("mine", apply);
    let shrink = |image: &mut Image| image.reset(Size::new(1, 1));
    for op in [
        Op::from(ResizedCrop::new(Rect { x: 1, y: 0, width: 7, height: 5 }, 2)),
        Normalize::new([0.5; 3], [0.5; 3]).into(),
        GaussianBlur::new(2, 1.0).into(),
        Posterize::new(9).into(),
        Affine::new().scale(0.0).into(),
        Jpeg::new(0).into(),
        PillowGaussianBlur::new(-1.0).into(),
        Pad::new(70_000).into(),
        PermuteChannels::new([0, 1, 1]).into(),
        GaussianNoise::new(-0.1, 0).into(),
        GaussianNoise::new(f64::NAN, 0).into(),
        GaussianNoise::new(0.1, 1 << 53).into(),
        Elastic::new(0).sigma(31.5).into(),
        Elastic::new(0).alpha([-1.0, 0.0]).into(),
        Elastic::new(0).interpolation(Interpolation::Bicubic).into(),
        Resize::shorter_side_within(9, 9).into(),
        Resize::longer_side(0).into(),
        Perspective::new([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [0.0, 3.0]], [[0.0; 2]; 4]).into(),
        WeightedSum::new(1.5).into(),
        WeightedSum::new(0.5).chain(Chain::new(0.5, [WeightedSum::new(0.5).into()])).into(),
        WeightedSum::new(0.5).chain(Chain::new(0.5, [Crop::new(0, 0, 2).into()])).into(),
        Affine::new().shear([90.0, 0.0]).into(),
        Affine::new().interpolation(Interpolation::Lanczos).into(),
        Affine::new().center([f64::NAN, 0.0]).into(),
        Rotate::new(5.0).fill(Fill::EDGE).center([0.0; 2]).into(),
        Rotate::new(5.0).fill(Fill::EDGE).interpolation(Interpolation::Bicubic).into(),
        Solarize::new(255.1).into(),
        Solarize::new(f64::NAN).into(),
        Crop::new(i32::MIN, 0, 1).into(),
        Erase::new(Rect { x: 0, y: 0, width: 8, height: 1 }).into(),
        custom(shrink).into(),
        custom(shrink).output_size(|size| Size::new(size.width, 1)).into(),
    ] {
        assert!(apply(&op).is_err_and(|error| error.is_parameter()), "{op:?}");
    }
    let made = apply(&custom(|image| image.pixels_mut()[0] = [1, 2, 3, 255]).into()).unwrap();
    assert_eq!(made.row(0)[0], [1, 2, 3, 255]);
    let made = apply(&custom(shrink).output_size(|_| Size::new(1, 1)).into()).unwrap();
    assert_eq!(made.size(), Size::new(1, 1));
}

/// The name in the list is the name in the file, a written form is read again, and unknown fields are refused.
#[test]
fn operations_are_written_down_by_their_names() {
    for op in Op::examples(Size::new(40, 30)) {
        let written = serde_json::to_value(&op).unwrap();
        assert_eq!(written["op"], op.name());
        assert_eq!(serde_json::from_value::<Op>(written.clone()).unwrap(), op);
        let mut unknown = written;
        unknown["more"] = 1.into();
        assert!(serde_json::from_value::<Op>(unknown).is_err(), "{op:?}");
    }
    // Recipes in files rely on these defaults.
    let read = |text: &str| serde_json::from_str::<Op>(text).unwrap();
    assert_eq!(read(r#"{"op": "rotate", "degrees": 5}"#), Rotate::new(5.0).into());
    assert_eq!(read(r#"{"op": "resize", "size": 9}"#), Resize::shorter_side(9).into());
    assert_eq!(read(r#"{"op": "resize", "size": 9, "max_size": 12}"#), Resize::shorter_side_within(9, 12).into());
    assert_eq!(read(r#"{"op": "resize", "max_size": 12}"#), Resize::longer_side(12).into());
    let text = r#"{"op": "resize", "width": 9, "height": 8, "reducing_gap": 2, "shown": [30.5, 20]}"#;
    assert_eq!(read(text), Resize::new(Size::new(9, 8)).reducing_gap(2.0).shown([30.5, 20.0]).into());
    for wrong in [Resize::longer_side(9).reducing_gap(0.99), Resize::longer_side(9).shown([0.0, f64::NAN])] {
        assert!(Op::from(wrong).validate().unwrap_err().is_parameter());
    }
    let beyond = Op::from(Resize::longer_side(9).shown([30.5, 20.0]));
    assert!(beyond.output_size(Size::new(30, 20)).unwrap_err().is_parameter());
    assert_eq!(read(r#"{"op": "gaussian_noise"}"#), GaussianNoise::new(0.1, 0).into());
    assert_eq!(read(r#"{"op": "elastic"}"#), Elastic::new(0).into());
    assert_eq!(read(r#"{"op": "crop", "x": -1, "y": 2, "width": 3, "height": 3}"#), Crop::new(-1, 2, 3).into());
    let erase = Erase::new(Rect { x: 1, y: 2, width: 3, height: 4 });
    assert_eq!(read(r#"{"op": "erase", "x": 1, "y": 2, "width": 3, "height": 4}"#), erase.into());
}

/// Tables equal torchvision's for all 256 values.
#[test]
fn tables_are_those_of_torchvision() {
    let mut input = Image::new(Size::new(256, 1));
    for (value, pixel) in (0..=255).zip(input.pixels_mut()) {
        *pixel = [value; 4];
    }
    let values = |op: Op| applied(op, &input).pixels().iter().map(|pixel| pixel[0]).collect::<Vec<_>>();
    assert!(values(Invert.into()).into_iter().eq((0..=255).rev()));
    for bits in 0..=8 {
        let kept = (0..=255_u16).map(|value| (value / (1 << (8 - bits)) * (1 << (8 - bits))) as u8);
        assert!(values(Posterize::new(bits).into()).into_iter().eq(kept), "{bits}");
    }
    for threshold in [0.0, 0.5, 127.5, 128.0, 255.0] {
        let want = (0..=255_u8).map(|value| if f64::from(value) < threshold { value } else { 255 - value });
        assert!(values(Solarize::new(threshold).into()).into_iter().eq(want), "{threshold}");
    }
}

/// Compares with results of Pillow, torchvision and OpenCV, written by `tests/reference/arrays.py`.
#[test]
fn results_are_those_of_pillow() {
    #[derive(serde::Deserialize)]
    struct Case {
        width: u32,
        height: u32,
        seed: u32,
        op: Op,
        sha256: String,
    }
    let cases: Vec<Case> = include_str!("../../../tests/reference/arrays.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a case a line"))
        .collect();
    assert!(cases.len() > 100);
    for case in cases {
        let input = image(Size::new(case.width, case.height), case.seed);
        let hash = Sha256::digest(applied(case.op.clone(), &input).to_rgb());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, case.sha256, "{} x {}, seed {}: {:?}", case.width, case.height, case.seed, case.op);
    }
}

/// Every operation has a case made by another program, here or in `tests/integration/reference.rs`.
#[test]
fn every_operation_has_a_reference() {
    let cases = concat!(
        include_str!("../../../tests/reference/arrays.jsonl"),
        include_str!("../../../tests/reference/cases.jsonl")
    );
    for op in Op::examples(Size::new(40, 30)) {
        // Erasing only overwrites pixels, and the others change none: there is no program to compare with.
        let of_objects = ["to_float", "clamp", "sanitize", "select_objects", "keep_objects", "unlabel_keypoints"];
        let without = op.name() == "erase" || of_objects.contains(&op.name());
        let name = format!("\"op\": \"{}\"", op.name());
        assert!(without || cases.contains(&name), "{}", op.name());
    }
}
