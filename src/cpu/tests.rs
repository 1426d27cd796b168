//! Tests across operations: properties that need no reference, parts against wholes, fast code against plain.

use super::*;
use crate::image::Pixel;
use crate::recipe::filter::PassOrder;
use crate::recipe::lower::affine_reach;
use crate::recipe::op::{CustomOp, Fill, Interpolation, Resize, ResizeTo};
use crate::recipe::rotation::Rotation;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Odd sizes, single rows and columns, and sizes around those that loops step by.
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

/// Gradients, noise, flat areas and saturated bytes. `tests/reference/arrays.py` makes the same.
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

fn applied(op: &Op, input: &Image) -> Image {
    // An output image that was used before: nothing of it may show.
    let mut out = image(Size::new(13, 77), 99);
    apply(op, PassOrder::Pillow13, &mut input.clone(), &mut out).unwrap();
    assert_eq!(out.size(), op.output_size(input.size()).unwrap());
    out
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

/// Red, green and blue: the fourth byte carries nothing.
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

fn rotation(degrees: f64, interpolation: Interpolation, expand: bool, fill: Fill) -> Op {
    Op::Rotate { degrees, interpolation, expand, fill }
}

#[test]
fn mirrored_twice_is_unchanged() {
    for size in SIZES {
        let input = image(size, 1);
        let (right, bottom) = (size.width - 1, size.height - 1);
        let half_turn = rotation(180.0, Interpolation::Nearest, false, Fill::BLACK);
        for (op, x, y) in [(Op::Hflip, right, 0), (Op::Vflip, 0, bottom), (half_turn, right, bottom)] {
            let once = applied(&op, &input);
            assert_eq!(once.row(y)[x as usize], input.row(0)[0], "{op:?} moves the first pixel");
            assert_equal(&applied(&op, &once), &input, (op, size));
        }
        let both = applied(&Op::Vflip, &applied(&Op::Hflip, &input));
        assert_equal(&both, &applied(&rotation(180.0, Interpolation::Bilinear, false, Fill::BLACK), &input), size);
    }
}

#[test]
fn four_quarter_turns_are_unchanged() {
    for size in SIZES {
        let input = image(size, 2);
        let turn = |degrees| rotation(degrees, Interpolation::Nearest, true, Fill::BLACK);
        let mut turned = input.clone();
        for _ in 0..4 {
            let (first, width) = (turned.row(0)[turned.size().width as usize - 1], turned.size().width);
            turned = applied(&turn(90.0), &turned);
            assert_eq!(turned.size().height, width);
            assert_eq!(turned.row(0)[0], first, "counter-clockwise: the right top corner becomes the left one");
        }
        assert_equal(&turned, &input, size);
        let back = applied(&turn(-90.0), &applied(&turn(90.0), &input));
        assert_equal(&back, &input, size);
    }
}

#[test]
fn neutral_parameters_change_nothing() {
    for size in SIZES {
        let input = image(size, 3);
        let exact = ResizeTo::Exact(size);
        for op in [
            Op::Brightness { factor: 1.0 },
            Op::Contrast { factor: 1.0 },
            Op::Saturation { factor: 1.0 },
            Op::GaussianBlur { kernel: 1, sigma: 1.0 },
            Op::Dilate { kernel: 1 },
            Op::Erode { kernel: 1 },
            Op::CenterCrop { width: size.width, height: size.height },
            Op::Resize(Resize { to: exact, interpolation: Interpolation::Lanczos }),
            rotation(360.0, Interpolation::Bilinear, true, Fill::EDGE),
        ] {
            assert_equal(&applied(&op, &input), &input, (op, size));
        }
    }
}

#[test]
fn flat_images_stay_flat() {
    for size in SIZES {
        let mut input = Image::new(size);
        input.pixels_mut().fill([0, 77, 255, 255]);
        let to = ResizeTo::Exact(Size::new(size.width * 2 + 1, size.height.div_ceil(2)));
        let mut ops = vec![
            Op::GaussianBlur { kernel: 9, sigma: 1.7 },
            Op::GaussianBlur { kernel: 255, sigma: 60.0 },
            Op::Dilate { kernel: 4 },
            Op::Erode { kernel: 255 },
            rotation(33.0, Interpolation::Bilinear, true, Fill::EDGE),
            rotation(33.0, Interpolation::Nearest, true, Fill::EDGE),
            Op::Crop { x: -3, y: 2, width: 9, height: 9, fill: Fill::EDGE },
        ];
        use Interpolation::{Bicubic, Bilinear, Lanczos, Nearest};
        ops.extend([Nearest, Bilinear, Bicubic, Lanczos].map(|i| Op::Resize(Resize { to, interpolation: i })));
        for op in ops {
            let out = applied(&op, &input);
            assert!(out.pixels().iter().all(|p| p[..3] == [0, 77, 255]), "{op:?} {size}");
        }
    }
}

#[test]
fn parts_equal_the_whole() {
    for size in SIZES {
        let input = image(size, 4);
        for kernel in [1, 2, 3, 6, 9, 31] {
            let mut whole = Image::default();
            let mut made = Image::default();
            for (name, filter) in [("dilate", dilate::dilate as fn(&_, _, _, &mut _)), ("erode", dilate::erode)] {
                filter(&input, kernel, Rect::full(size), &mut whole);
                for part in parts(size) {
                    filter(&part_of(&input, grown(part, kernel / 2, size)), kernel, part, &mut made);
                    assert_equal(&made, &part_of(&whole, part), (name, kernel, size, part));
                }
            }
            if kernel % 2 == 1 {
                gaussian_blur::gaussian_blur(&input, kernel, 1.5, Rect::full(size), &mut whole);
                for part in parts(size) {
                    let held = part_of(&input, grown(part, kernel / 2, size));
                    gaussian_blur::gaussian_blur(&held, kernel, 1.5, part, &mut made);
                    assert_equal(&made, &part_of(&whole, part), ("blur", kernel, size, part));
                }
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
                let Rotation::Free { matrix, canvas } = Rotation::new(size, degrees, true, fill) else { continue };
                for rotate in [rotate::rotate_nearest, rotate::rotate_bilinear] {
                    let (mut whole, mut made) = (Image::default(), Image::default());
                    rotate(&input, matrix, canvas, fill, Rect::full(canvas), &mut whole);
                    for part in parts(canvas) {
                        let held = part_of(&input, affine_reach(&matrix, part, size));
                        rotate(&held, matrix, canvas, fill, part, &mut made);
                        assert_equal(&made, &part_of(&whole, part), (degrees, fill, size, part));
                    }
                }
            }
        }
    }
}

#[test]
fn fast_rotation_equals_plain() {
    // Steps of a degree and angles at which points lie on pixels' centres or just beside them.
    let angles = (0..360).map(f64::from).chain(
        (0..8).flat_map(|i| [-1e-5, -1e-7, -1e-9, -1e-12, 1e-12, 1e-9, 1e-7, 1e-5].map(|d| f64::from(i) * 45.0 + d)),
    );
    let sizes = [Size::new(33, 65), Size::new(130, 41), Size::new(600, 19), Size::new(2, 2), Size::new(50, 50)];
    for (seed, degrees) in (0..).zip(angles.chain(ANGLES)) {
        let size = sizes[seed as usize % sizes.len()];
        let input = image(size, seed);
        for (expand, fill) in [(true, Fill::Color([9, 99, 199])), (false, Fill::BLACK), (true, Fill::EDGE)] {
            let Rotation::Free { matrix, canvas } = Rotation::new(size, degrees, expand, fill) else { continue };
            let (mut fast, mut plain) = (Image::default(), Image::default());
            let part = Rect::full(canvas);
            rotate::rotate_bilinear(&input, matrix, canvas, fill, part, &mut fast);
            plain.reset(canvas);
            rotate::bilinear(&input, matrix, fill, part, &mut plain);
            assert_equal(&fast, &plain, (degrees, size, expand, fill));
        }
    }
}

#[test]
fn erase_finds_its_place_in_a_part() {
    let size = Size::new(17, 31);
    let area = Rect { x: 3, y: 4, width: 6, height: 20 };
    let value = [-5.0, 99.5, 300.0];
    let mut whole = image(size, 6);
    erase::erase(&mut whole, area, value);
    assert_eq!(whole.row(4)[3], [0, 100, 255, 255]);
    for part in parts(size) {
        let mut held = part_of(&image(size, 6), part);
        erase::erase(&mut held, area, value);
        assert_equal(&held, &part_of(&whole, part), part);
    }
}

#[test]
fn what_cannot_be_applied_is_refused() {
    let mut out = Image::default();
    let mut apply = |op: &Op| apply(op, PassOrder::Pillow13, &mut image(Size::new(7, 5), 7), &mut out);
    let crop = Op::ResizedCrop {
        x: 1,
        y: 0,
        width: 7,
        height: 5,
        out_width: 2,
        out_height: 2,
        interpolation: Interpolation::Bilinear,
    };
    let custom = |apply: fn(&mut Image)| Op::Custom(CustomOp { name: "mine", apply: Arc::new(apply) });
    for op in [
        crop,
        Op::Normalize { mean: [0.5; 3], std: [0.5; 3] },
        Op::GaussianBlur { kernel: 2, sigma: 1.0 },
        Op::Erase { x: 0, y: 0, width: 8, height: 1, value: [0.0; 3] },
        custom(|image| image.reset(Size::new(1, 1))),
    ] {
        assert!(apply(&op).is_err_and(|error| error.is_parameter()), "{op:?}");
    }
    apply(&custom(|image| image.pixels_mut()[0] = [1, 2, 3, 255])).unwrap();
    assert_eq!(out.row(0)[0], [1, 2, 3, 255]);
}

#[test]
fn elements_are_rounded_three_times() {
    let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    for size in SIZES {
        let input = image(size, 8);
        let row = input.row(size.height - 1);
        fn check<T: normalize::Cast + std::fmt::Debug>(
            row: &[Pixel],
            normalize: Option<([f32; 3], [f32; 3])>,
            want: impl Fn(usize, u8) -> T,
        ) {
            let table = normalize::Table::<T>::new(normalize);
            let mut planes = [0, 1, 2].map(|_| vec![T::default(); row.len()]);
            table.planes(row, planes.each_mut().map(|plane| &mut plane[..]));
            let mut interleaved = vec![T::default(); 3 * row.len()];
            table.interleaved(row, &mut interleaved);
            for (x, pixel) in row.iter().enumerate() {
                for channel in 0..3 {
                    let want = want(channel, pixel[channel]);
                    assert_eq!(planes[channel][x], want);
                    assert_eq!(interleaved[3 * x + channel], want);
                }
            }
        }
        let value = |channel: usize, byte: u8| (f32::from(byte) / 255.0 - mean[channel]) / std[channel];
        let normalized = Some((mean, std));
        check(row, normalized, value);
        check(row, normalized, |channel, byte| half::f16::from_f32(value(channel, byte)));
        check(row, normalized, |channel, byte| half::bf16::from_f32(value(channel, byte)));
        check(row, None, |_, byte| f32::from(byte) / 255.0);
        check(row, None, |_, byte| byte);
        // Where arithmetic by reciprocals overflows, the table must be used.
        let (mean, std) = ([0.0, 1e30, -0.5], [1e-40, 1e-30, f32::MAX]);
        check(row, Some((mean, std)), |channel, byte| (f32::from(byte) / 255.0 - mean[channel]) / std[channel]);
    }
}

/// Compares with what Pillow, torchvision and OpenCV gave, as `tests/reference/arrays.py` wrote it down.
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
    let cases: Vec<Case> = include_str!("../../tests/reference/arrays.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a case a line"))
        .collect();
    assert!(cases.len() > 100);
    for case in cases {
        let input = image(Size::new(case.width, case.height), case.seed);
        let hash = Sha256::digest(applied(&case.op, &input).to_rgb());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, case.sha256, "{} x {}, seed {}: {:?}", case.width, case.height, case.seed, case.op);
    }
}
