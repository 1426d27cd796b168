//! Random rectangles, as torchvision draws them.

use crate::raster::{Rect, Size};
use crate::rng::SampleRng;
use std::ops::RangeInclusive;

/// Number of attempts at a rectangle before the fallback, as in torchvision.
const ATTEMPTS: u32 = 10;

/// Rounds as Python's `round`: ties to even.
fn round(value: f64) -> i64 {
    value.round_ties_even() as i64
}

fn log_uniform(rng: &mut SampleRng, range: &RangeInclusive<f64>) -> f64 {
    libm::exp(rng.uniform(libm::log(*range.start()), libm::log(*range.end())))
}

/// torchvision's `RandomResizedCrop.get_params`.
pub(super) fn resized_crop(
    rng: &mut SampleRng,
    image: Size,
    scale: &RangeInclusive<f64>,
    ratio: &RangeInclusive<f64>,
) -> Rect {
    let (w, h) = (i64::from(image.width), i64::from(image.height));
    let area = (w * h) as f64;
    for _ in 0..ATTEMPTS {
        let target_area = area * rng.uniform(*scale.start(), *scale.end());
        let aspect = log_uniform(rng, ratio);
        let width = round((target_area * aspect).sqrt());
        let height = round((target_area / aspect).sqrt());
        if (1..=w).contains(&width) && (1..=h).contains(&height) {
            let y = rng.below((h - height + 1) as u64) as u32;
            let x = rng.below((w - width + 1) as u64) as u32;
            return Rect { x, y, width: width as u32, height: height as u32 };
        }
    }
    let aspect = w as f64 / h as f64;
    let (width, height) = if aspect < *ratio.start() {
        (w, round(w as f64 / ratio.start()))
    } else if aspect > *ratio.end() {
        (round(h as f64 * ratio.end()), h)
    } else {
        (w, h)
    };
    // In a very narrow image, the side for the nearest allowed aspect may round to 0 or exceed the image.
    let (width, height) = (width.clamp(1, w), height.clamp(1, h));
    let (x, y) = (((w - width) / 2) as u32, ((h - height) / 2) as u32);
    Rect { x, y, width: width as u32, height: height as u32 }
}

/// torchvision's `RandomErasing.get_params`.
pub(super) fn erasing(
    rng: &mut SampleRng,
    image: Size,
    scale: &RangeInclusive<f64>,
    ratio: &RangeInclusive<f64>,
) -> Option<Rect> {
    let (w, h) = (i64::from(image.width), i64::from(image.height));
    let area = (w * h) as f64;
    for _ in 0..ATTEMPTS {
        let erase_area = area * rng.uniform(*scale.start(), *scale.end());
        let aspect = log_uniform(rng, ratio);
        let height = round((erase_area * aspect).sqrt());
        let width = round((erase_area / aspect).sqrt());
        if (1..h).contains(&height) && (1..w).contains(&width) {
            let y = rng.below((h - height + 1) as u64) as u32;
            let x = rng.below((w - width + 1) as u64) as u32;
            return Some(Rect { x, y, width: width as u32, height: height as u32 });
        }
    }
    None
}
