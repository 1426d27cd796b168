//! Pillow's Gaussian blur, which is three box blurs.

use super::check::{pixels, range};
use super::descriptors::BoxBlurSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::error::Result;
use crate::raster::{Image, Pixel, Rect, Size};
use crate::simd::wide;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Largest radius in pixels.
const MAX_RADIUS_PX: f64 = 255.0;
/// Number of box blurs along each axis.
const PASSES: u32 = 3;

/// Pillow's `ImageFilter.GaussianBlur`, as DINO, BYOL and timm use it: three box blurs along each axis, which
/// approximate a Gaussian. [`GaussianBlur`](crate::ops::GaussianBlur) is torchvision's and gives other values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PillowGaussianBlur {
    /// Standard deviation in pixels, 0 to 255.
    pub radius: f64,
}

impl PillowGaussianBlur {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("box_blur_u8_nhwc")];

    /// A blur with this standard deviation in pixels.
    #[must_use]
    pub const fn new(radius: f64) -> Self {
        Self { radius }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.4), Self::new(1.7), Self::new(9.3)]
    }

    /// The box of each pass; `None` if the box is a single pixel.
    fn window(&self) -> Option<BoxWindow> {
        // In single precision like Pillow's C code, except for one square root.
        let variance = self.radius as f32 * self.radius as f32 / PASSES as f32;
        let length = (12.0 * f64::from(variance) + 1.0).sqrt() as f32;
        let whole = ((f64::from(length) - 1.0) / 2.0).floor() as f32;
        let rest = (2.0 * whole + 1.0) * (whole * (whole + 1.0) - 3.0 * variance);
        let radius = whole + rest / (6.0 * (variance - (whole + 1.0) * (whole + 1.0)));
        (radius != 0.0).then(|| BoxWindow::new(radius))
    }
}

/// A box blur's window: a whole number of pixels and a part of one more pixel on either side. Weights have 24
/// fractional bits.
#[derive(Debug, Clone, Copy)]
struct BoxWindow {
    /// Number of pixels on either side of the middle that have full weight.
    radius: u32,
    /// Weight of these pixels and of the middle.
    weight: u32,
    /// Weight of the two pixels next to them.
    far_weight: u32,
}

impl BoxWindow {
    fn new(radius: f32) -> Self {
        const ONE: u32 = 1 << 24;
        let weight = (ONE as f32 / (radius * 2.0 + 1.0)) as u32;
        let radius = radius as u32;
        Self { radius, weight, far_weight: (ONE - (2 * radius + 1) * weight) / 2 }
    }

    /// The blurred pixel, from the sum of the pixels with full weight and the sum of the two pixels next to them.
    #[inline(always)]
    fn value(self, sum: u32, far: u32) -> u8 {
        ((sum * self.weight + far * self.far_weight + (1 << 23)) >> 24) as u8
    }
}

impl Operation for PillowGaussianBlur {
    fn validate(&self) -> Result<()> {
        pixels(Self::NAME, "radius", self.radius, 0.0..=MAX_RADIUS_PX)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        match self.window() {
            Some(window) => Primitive::Pass(self, Reach::Around(PASSES * (window.radius + 1))),
            None => Primitive::Identity,
        }
    }

    keeps_places!();
}

impl Pass for PillowGaussianBlur {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let Some(window) = self.window() else { return Ok(()) };
        let (stored, part) = (pass.image.part(), pass.part);
        // The stored part may end where the image does not. Pixels at such an end come out wrong, and each pass carries
        // the error further in. But the stored part is larger than `part` by the reach of all passes, so `part` is
        // right.
        blur(pass.image, window);
        if part == stored {
            return Ok(());
        }
        pass.replace(part.size(), |image, out| {
            out.reset_part(image.whole(), part);
            for y in 0..part.height {
                let row = &image.row(part.y - stored.y + y)[(part.x - stored.x) as usize..];
                out.row_mut(y).copy_from_slice(&row[..part.width as usize]);
            }
        })
    }

    fn launch(&self, on: &mut dyn CallRecorder, part: Rect) -> Result<()> {
        const BOX_BLUR: KernelId = KernelId::of("box_blur_u8_nhwc");
        let Some(BoxWindow { radius, weight, far_weight }) = self.window() else { return Ok(()) };
        let (first, whole) = (on.source(), on.whole());
        let stored = Rect { x: first.x, y: first.y, width: first.width, height: first.height };
        for pass in 0..2 * PASSES {
            let source = on.source();
            let made = if pass + 1 < 2 * PASSES { stored } else { part };
            let target = on.target(whole, made)?;
            let down = u32::from(pass >= PASSES);
            on.call(BOX_BLUR, &BoxBlurSample { source, target, radius, weight, far_weight, down }, made.size());
        }
        Ok(())
    }
}

/// Blurs the stored part of an image: rows three times, then columns three times.
fn blur(image: &mut Image, window: BoxWindow) {
    let (width, height) = (image.size().width as usize, image.size().height as usize);
    let mut line = vec![[0; 4]; width.max(height)];
    let pixels = image.pixels_mut();
    for row in pixels.chunks_exact_mut(width) {
        for _ in 0..PASSES {
            line[..width].copy_from_slice(row);
            blur_row(&line[..width], window, row);
        }
    }
    let mut before = pixels.to_vec();
    for _ in 0..PASSES {
        before.copy_from_slice(pixels);
        wide(
            #[inline(always)]
            || blur_columns(&before, width, window, pixels),
        );
    }
}

/// Blurs a row. Beyond its ends, its first and last pixel are repeated.
fn blur_row(from: &[Pixel], window: BoxWindow, to: &mut [Pixel]) {
    let (radius, last) = (window.radius as usize, from.len() - 1);
    let at = |place: usize| from[place.saturating_sub(radius + 1).min(last)].map(u32::from);
    // `at(place)` is the pixel `radius + 1` before `place`. The sums start as those of the window of pixel -1.
    let mut sums = [0; 4];
    for place in 0..=2 * radius {
        sums = add(sums, at(place));
    }
    for (x, to) in to.iter_mut().enumerate() {
        let (gone, next, after) = (at(x), at(x + 2 * radius + 1), at(x + 2 * radius + 2));
        sums = std::array::from_fn(|channel| sums[channel] + next[channel] - gone[channel]);
        *to = std::array::from_fn(|channel| window.value(sums[channel], gone[channel] + after[channel]));
    }
}

#[inline(always)]
fn add(a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
    std::array::from_fn(|i| a[i] + b[i])
}

/// Blurs all columns of an image with rows of `width` pixels, row by row.
#[inline(always)]
fn blur_columns(from: &[Pixel], width: usize, window: BoxWindow, to: &mut [Pixel]) {
    let (radius, last) = (window.radius as usize, from.len() / width - 1);
    let row = |place: usize| {
        let y = place.saturating_sub(radius + 1).min(last);
        from[y * width..][..width].as_flattened()
    };
    let mut sums = vec![0; 4 * width];
    for place in 0..=2 * radius {
        sums.iter_mut().zip(row(place)).for_each(|(sum, value)| *sum += u32::from(*value));
    }
    for (y, to) in to.chunks_exact_mut(width).enumerate() {
        let (gone, next, after) = (row(y), row(y + 2 * radius + 1), row(y + 2 * radius + 2));
        let values = gone.iter().zip(next).zip(after);
        for ((to, sum), ((gone, next), after)) in to.as_flattened_mut().iter_mut().zip(&mut sums).zip(values) {
            *sum = *sum + u32::from(*next) - u32::from(*gone);
            *to = window.value(*sum, u32::from(*gone) + u32::from(*after));
        }
    }
}

/// Pillow's Gaussian blur with a radius uniform in a range, as in DINO and BYOL.
///
/// ```
/// use warpfeed::ops::{RandomPillowGaussianBlur, Transform};
///
/// Transform::from(RandomPillowGaussianBlur::new(0.1..=2.0)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPillowGaussianBlur {
    #[serde(with = "super::written::range")]
    radius: RangeInclusive<f64>,
}

impl RandomPillowGaussianBlur {
    /// A blur whose standard deviation is uniform in `radius`, in pixels.
    #[must_use]
    pub const fn new(radius: RangeInclusive<f64>) -> Self {
        Self { radius }
    }
}

impl RandomTransform for RandomPillowGaussianBlur {
    fn validate(&self) -> Result<()> {
        range(Self::NAME, "radius", &self.radius, 0.0, MAX_RADIUS_PX)
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let radius = rng.uniform(*self.radius.start(), *self.radius.end());
        recipe.push(PillowGaussianBlur::new(radius))
    }
}
