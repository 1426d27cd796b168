//! Random recipes.

#![allow(dead_code)]

use super::Random;
use warpfeed::{
    image::{Rect, Size},
    ops::{
        Affine, Brightness, CenterCrop, Contrast, Crop, Dilate, Erase, Erode, Fill, GaussianBlur, Grayscale, Hflip,
        Hue, Interpolation, Invert, Normalize, Op, Posterize, Resize, ResizedCrop, Rotate, Saturation, Solarize, Vflip,
    },
};

/// A random recipe that fits an image of this size.
pub fn recipe(random: &mut Random, mut size: Size) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..random.within(0, 8) {
        let op = operation(random, size);
        // Bounds on what grows keep the test quick.
        match op.output_size(size) {
            Ok(after) if after.area_px() <= 1 << 18 => size = after,
            _ => continue,
        }
        ops.push(op);
    }
    if random.within(0, 1) == 1 {
        ops.push(Normalize::new([0.4, 0.5, 0.6], [0.2, 0.3, 0.25]).into());
        // One may cover another.
        for _ in 0..random.within(0, 2) {
            ops.push(erase(random, size));
        }
    }
    ops
}

pub fn inside(random: &mut Random, size: Size) -> [u32; 4] {
    let (width, height) = (random.within(1, size.width), random.within(1, size.height));
    [random.within(0, size.width - width), random.within(0, size.height - height), width, height]
}

fn erase(random: &mut Random, size: Size) -> Op {
    let [x, y, width, height] = inside(random, size);
    let plain = Erase::new(Rect { x, y, width, height }).value([1.5, -2.0, 200.0]);
    let noisy = random.within(0, 1) == 1;
    if noisy { plain.noise(random.real(0.0, 90.0) as f32, random.within(0, 99).into()).into() } else { plain.into() }
}

fn operation(random: &mut Random, size: Size) -> Op {
    let filters = [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Lanczos];
    let interpolation = filters[random.within(0, 3) as usize];
    let fill = if random.within(0, 3) == 0 { Fill::EDGE } else { Fill::Color([random.within(0, 255) as u8, 7, 99]) };
    match random.within(0, 26) {
        0 | 1 => Hflip.into(),
        2 | 3 => Vflip.into(),
        4..=7 => {
            let degrees = match random.within(0, 3) {
                0 => f64::from(random.within(0, 8)) * 90.0 - 360.0,
                1 => random.real(-400.0, 400.0),
                _ => random.real(-5.0, 5.0),
            };
            let interpolation = filters[(random.within(0, 2) / 2) as usize];
            Rotate::new(degrees).interpolation(interpolation).expand(random.within(0, 1) == 0).fill(fill).into()
        }
        8 => {
            let resize = match random.within(0, 1) {
                0 => Resize::new(Size::new(random.within(1, 120), random.within(1, 120))),
                _ => Resize::shorter_side(random.within(1, 100)),
            };
            resize.interpolation(interpolation).into()
        }
        9 | 10 => {
            // The origin is a place of its own.
            let mut place = || (random.within(0, 60) as i32 - 30) * i32::from(random.within(0, 2) > 0);
            let (x, y) = (place(), place());
            Crop::new(x, y, Size::new(random.within(1, 100), random.within(1, 100))).fill(fill).into()
        }
        11 => CenterCrop::new(Size::new(random.within(1, 100), random.within(1, 100))).into(),
        12 | 13 => {
            let [x, y, width, height] = inside(random, size);
            let (out_width, out_height) = (random.within(1, 80), random.within(1, 80));
            ResizedCrop::new(Rect { x, y, width, height }, Size::new(out_width, out_height))
                .interpolation(interpolation)
                .into()
        }
        14 => GaussianBlur::new(1 + 2 * random.within(0, 5), random.real(0.2, 3.0)).into(),
        15 => Dilate::new(random.within(1, 6)).into(),
        16 => Erode::new(random.within(1, 6)).into(),
        17 => match random.within(0, 3) {
            0 => Brightness::new(random.real(0.2, 1.8)).into(),
            1 => Contrast::new(random.real(0.2, 1.8)).into(),
            2 => Saturation::new(random.real(0.2, 1.8)).into(),
            _ => Hue::new(random.real(-0.5, 0.5)).into(),
        },
        18 => Grayscale.into(),
        23 => Affine::new()
            .degrees(random.real(-40.0, 40.0) * f64::from(random.within(0, 1)))
            .scale(if random.within(0, 2) == 0 { random.real(0.4, 2.0) } else { 1.0 })
            .shear([random.real(-40.0, 40.0), random.real(-10.0, 10.0) * f64::from(random.within(0, 1))])
            .interpolation(filters[(random.within(0, 4) / 2) as usize])
            .fill([random.within(0, 255) as u8, 7, 99])
            .into(),
        24 => {
            let translate = [random.within(0, 120) as i32 - 60, random.within(0, 20) as i32 - 10];
            Affine::new().translate(translate).fill([random.within(0, 255) as u8, 7, 99]).into()
        }
        // Tables meet fills and each other.
        25 | 26 => match random.within(0, 3) {
            0 => Brightness::new(random.real(0.2, 1.8)).into(),
            1 => Posterize::new(random.within(1, 8) as u8).into(),
            2 => Solarize::new(random.real(0.0, 255.0)).into(),
            _ => Invert.into(),
        },
        19 => erase(random, size),
        // Whatever there is, so that no operation is forgotten here.
        _ => {
            let mut examples = Op::examples(size);
            examples.retain(|op| !matches!(op, Op::Normalize(_) | Op::ToFloat(_)));
            examples.swap_remove(random.within(0, examples.len() as u32 - 1) as usize)
        }
    }
}
