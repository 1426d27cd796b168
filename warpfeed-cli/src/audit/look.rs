//! The look of an image: a hash that finds candidates (pHash, 63 bits), and the comparison that confirms them. Images
//! of little contrast have no hash, because its bits would be noise. docs/audit.md says what that finds.

use warpfeed::image::{Image, Pixel, Size};
use warpfeed::internal::oriented;
use warpfeed::ops::{Op, PassOrder, Resize};
use warpfeed::{Orientation, Result};

/// Side of the image that is hashed, in pixels.
pub(super) const HASHED_PX: u32 = 32;
/// Side of the images that are compared, in pixels.
pub(super) const COMPARED_PX: u32 = 64;
/// Most bits in which the hashes of candidates differ.
pub(super) const MAX_DISTANCE: u32 = 6;
/// Largest difference of copies, as a share of their contrast.
const MAX_DIFFERENCE: f64 = 0.2;
/// Least standard deviation of the luma of an image that has a hash, of 255.
const MIN_CONTRAST: f64 = 4.0;

/// Number of frequencies along each axis that are hashed.
const FREQUENCIES: usize = 8;
const SIDE: usize = HASHED_PX as usize;

/// The cosines of the transform.
pub(super) struct Hasher {
    cosines: [[f64; SIDE]; FREQUENCIES],
}

impl Hasher {
    pub(super) fn new() -> Self {
        let cosine = |frequency: usize, place: usize| {
            // From the crate, so that the hash is the same on every machine.
            libm::cos(std::f64::consts::PI / SIDE as f64 * (place as f64 + 0.5) * frequency as f64)
        };
        Self { cosines: std::array::from_fn(|frequency| std::array::from_fn(|place| cosine(frequency, place))) }
    }

    /// The hash of an image of 32 x 32 pixels; `None` if it has too little contrast.
    pub(super) fn hash(&self, image: &Image) -> Option<u64> {
        let luma: Vec<f64> = image.pixels().iter().map(luma).collect();
        if luma.len() != SIDE * SIDE || deviation(&luma) < MIN_CONTRAST {
            return None;
        }
        let product = |row: &[f64], cosines: &[f64]| row.iter().zip(cosines).map(|(a, b)| a * b).sum::<f64>();
        // Rows first: for each frequency, one number a row.
        let rows: [[f64; SIDE]; FREQUENCIES] = std::array::from_fn(|frequency| {
            std::array::from_fn(|y| product(&luma[y * SIDE..][..SIDE], &self.cosines[frequency]))
        });
        let pairs = (0..FREQUENCIES * FREQUENCIES).skip(1).map(|i| (i / FREQUENCIES, i % FREQUENCIES));
        let values: Vec<f64> = pairs.map(|(down, across)| product(&rows[across], &self.cosines[down])).collect();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        Some(values.iter().enumerate().fold(0, |hash, (bit, value)| hash | u64::from(*value > median) << bit))
    }
}

fn luma(pixel: &Pixel) -> f64 {
    0.299 * f64::from(pixel[0]) + 0.587 * f64::from(pixel[1]) + 0.114 * f64::from(pixel[2])
}

/// The standard deviation.
fn deviation(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// Resizes an image and turns it upright. `size` is that before it is turned.
pub(super) fn upright(image: &mut Image, spare: &mut Image, resize: Resize, orientation: u8) -> Result<()> {
    let order = PassOrder::default();
    Op::from(resize).apply_reusing(order, image, spare)?;
    oriented(orientation, Orientation::Apply).iter().try_for_each(|op| op.apply_reusing(order, image, spare))
}

/// Whether two images show the same. They are resized to the same square.
pub(super) fn show_the_same(a: &mut Image, b: &mut Image, spare: &mut Image) -> Result<bool> {
    let sides = [a.size(), b.size()].map(|size| size.width.min(size.height));
    let side = sides[0].min(sides[1]).clamp(1, COMPARED_PX);
    for image in [&mut *a, &mut *b] {
        Op::from(Resize::new(Size::from(side))).apply_reusing(PassOrder::default(), image, spare)?;
    }
    Ok(difference(a, b) <= MAX_DIFFERENCE)
}

/// The difference of two images of one size, as a share of the contrast of the one that has less; infinite if that has
/// none.
fn difference(a: &Image, b: &Image) -> f64 {
    let (mut squares, count) = (0.0, a.pixels().len().max(1) as f64);
    for (a, b) in a.pixels().iter().zip(b.pixels()) {
        for channel in 0..3 {
            squares += (f64::from(a[channel]) - f64::from(b[channel])).powi(2);
        }
    }
    let contrast = |image: &Image| deviation(&image.pixels().iter().map(luma).collect::<Vec<_>>());
    let contrast = contrast(a).min(contrast(b));
    if contrast > 0.0 { (squares / (3.0 * count)).sqrt() / contrast } else { f64::INFINITY }
}
