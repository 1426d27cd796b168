//! Random recipes.

#![allow(dead_code)]

use super::Random;
use warpfeed::{Fill, Interpolation, Op, Resize, ResizeTo, Size};

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
        ops.push(Op::Normalize { mean: [0.4, 0.5, 0.6], std: [0.2, 0.3, 0.25] });
        if random.within(0, 2) == 0 {
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
    Op::Erase { x, y, width, height, value: [1.5, -2.0, 200.0] }
}

fn operation(random: &mut Random, size: Size) -> Op {
    let filters = [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Lanczos];
    let interpolation = filters[random.within(0, 3) as usize];
    let fill = if random.within(0, 3) == 0 { Fill::EDGE } else { Fill::Color([random.within(0, 255) as u8, 7, 99]) };
    match random.within(0, 19) {
        0 | 1 => Op::Hflip,
        2 | 3 => Op::Vflip,
        4..=7 => {
            let degrees = match random.within(0, 3) {
                0 => f64::from(random.within(0, 8)) * 90.0 - 360.0,
                1 => random.real(-400.0, 400.0),
                _ => random.real(-5.0, 5.0),
            };
            let interpolation = filters[(random.within(0, 2) / 2) as usize];
            Op::Rotate { degrees, interpolation, expand: random.within(0, 1) == 0, fill }
        }
        8 => {
            let to = match random.within(0, 1) {
                0 => ResizeTo::Exact(Size::new(random.within(1, 120), random.within(1, 120))),
                _ => ResizeTo::ShorterSide(random.within(1, 100)),
            };
            Op::Resize(Resize { to, interpolation })
        }
        9 | 10 => {
            // The origin is a place of its own.
            let mut place = || (random.within(0, 60) as i32 - 30) * i32::from(random.within(0, 2) > 0);
            let (x, y) = (place(), place());
            Op::Crop { x, y, width: random.within(1, 100), height: random.within(1, 100), fill }
        }
        11 => Op::CenterCrop { width: random.within(1, 100), height: random.within(1, 100) },
        12 | 13 => {
            let [x, y, width, height] = inside(random, size);
            let (out_width, out_height) = (random.within(1, 80), random.within(1, 80));
            Op::ResizedCrop { x, y, width, height, out_width, out_height, interpolation }
        }
        14 => Op::GaussianBlur { kernel: 1 + 2 * random.within(0, 5), sigma: random.real(0.2, 3.0) },
        15 => Op::Dilate { kernel: random.within(1, 6) },
        16 => Op::Erode { kernel: random.within(1, 6) },
        17 => match random.within(0, 3) {
            0 => Op::Brightness { factor: random.real(0.2, 1.8) },
            1 => Op::Contrast { factor: random.real(0.2, 1.8) },
            2 => Op::Saturation { factor: random.real(0.2, 1.8) },
            _ => Op::Hue { factor: random.real(-0.5, 0.5) },
        },
        18 => Op::Grayscale,
        _ => erase(random, size),
    }
}
