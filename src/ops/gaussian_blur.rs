//! Gaussian blur with reflected edges, in integers. The arithmetic is exact except for three roundings, so it is the
//! same on every machine, unlike torchvision's `F.gaussian_blur` in single precision:
//!
//! 1. Weights `exp(-(i / sigma)^2 / 2)`, divided by their sum, in double precision, rounded to 24 fractional bits. The
//!    center weight makes the sum exactly `2^24`, so that a flat image stays as it is.
//! 2. Rows first: a 32-bit sum of bytes times weights, rounded to 16 fractional bits, halves up.
//! 3. Columns next: a 64-bit sum of these sums times weights, rounded to integers, ties to even.

use super::check::{ABOVE_0, MAX_KERNEL_PX, range};
use super::descriptors::BlurSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::{PixelValues, ValueWork};
use super::{CpuPass, Operation, Pass, PassOrder, Primitive, Reach};
use crate::error::{Error, Result};
use crate::raster::{Image, Pixel, Rect, Size};
use crate::simd::wide;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Gaussian blur with reflected edges.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GaussianBlur {
    /// Width of the kernel in pixels, odd.
    pub kernel: u32,
    /// Standard deviation along rows in pixels, above 0.
    pub sigma: f64,
    /// Height of the kernel, if it is not its width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_y: Option<u32>,
    /// Standard deviation along columns, if it is not that along rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigma_y: Option<f64>,
}

/// The blur along one axis: number of taps, and standard deviation.
pub(crate) type BlurAxis = (u32, f64);

impl GaussianBlur {
    pub(super) const KERNELS: &'static [Kernel] =
        &[Kernel::pixels("gaussian_blur_rows_u8_nhwc"), Kernel::pixels("gaussian_blur_columns_u8_nhwc")];

    /// A blur with a kernel of this side and this standard deviation, both in pixels.
    #[must_use]
    pub const fn new(kernel: u32, sigma: f64) -> Self {
        Self { kernel, sigma, kernel_y: None, sigma_y: None }
    }

    setters! {
        /// Height of the kernel in pixels, odd.
        kernel_y: u32 => Some,
        /// Standard deviation along columns in pixels, above 0.
        sigma_y: f64 => Some,
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(5, 1.3), Self::new(9, 1.5), Self::new(3, 2.5).kernel_y(7).sigma_y(0.9)]
    }

    /// The blurs along rows and columns.
    fn axes(&self) -> [BlurAxis; 2] {
        let Self { kernel, sigma, kernel_y, sigma_y } = *self;
        [(kernel, sigma), (kernel_y.unwrap_or(kernel), sigma_y.unwrap_or(sigma))]
    }
}

impl Operation for GaussianBlur {
    fn validate(&self) -> Result<()> {
        for (names, (kernel, sigma)) in [["kernel", "sigma"], ["kernel_y", "sigma_y"]].into_iter().zip(self.axes()) {
            if kernel.is_multiple_of(2) || kernel > MAX_KERNEL_PX {
                let expected = format!("odd, 1 to {MAX_KERNEL_PX} pixels");
                return Err(Error::parameter(Self::NAME, names[0], expected, kernel));
            }
            if !(sigma.is_finite() && sigma > 0.0) {
                return Err(Error::parameter(Self::NAME, names[1], "a finite number of pixels above 0", sigma));
            }
        }
        Ok(())
    }

    fn values(&self, _pixels: &PixelValues, _input: Size, _size: Size, _order: PassOrder) -> Option<ValueWork> {
        Some(ValueWork::Blur { axes: self.axes() })
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Around(self.axes().map(|(kernel, _)| kernel / 2).into_iter().max().unwrap_or(0)))
    }

    keeps_places!();
}

impl Pass for GaussianBlur {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let part = pass.part;
        pass.replace(part.size(), |input, out| gaussian_blur(input, self.axes(), part, out))
    }

    fn launch(&self, on: &mut dyn CallRecorder, part: Rect) -> Result<()> {
        const ROWS: KernelId = KernelId::of("gaussian_blur_rows_u8_nhwc");
        const COLUMNS: KernelId = KernelId::of("gaussian_blur_columns_u8_nhwc");
        let (source, whole) = (on.source(), on.whole());
        let [(kernel, _), (kernel_y, _)] = self.axes();
        let weights = on.put(bytemuck::cast_slice(&self.axes().map(weights).concat()))?;
        let between = on.scratch(12 * part.width as usize * source.height as usize)?;
        let target = on.target(whole, part)?;
        let sample = BlurSample { source, target, between, weights, kernel, kernel_y };
        on.call(ROWS, &sample, Size::new(part.width, source.height));
        on.call(COLUMNS, &sample, part.size());
        Ok(())
    }
}

/// Gaussian blur whose standard deviation is uniform in a range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomGaussianBlur {
    kernel: u32,
    #[serde(with = "super::written::range")]
    sigma: RangeInclusive<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernel_y: Option<u32>,
}

impl RandomGaussianBlur {
    /// A blur with a kernel of this side, which is odd, and a standard deviation uniform in `sigma`, both in pixels.
    #[must_use]
    pub const fn new(kernel: u32, sigma: RangeInclusive<f64>) -> Self {
        Self { kernel, sigma, kernel_y: None }
    }

    setters! {
        /// Height of the kernel in pixels, odd, if it is not its width.
        kernel_y: u32 => Some,
    }

    fn with(&self, sigma: f64) -> GaussianBlur {
        GaussianBlur { kernel_y: self.kernel_y, ..GaussianBlur::new(self.kernel, sigma) }
    }
}

impl RandomTransform for RandomGaussianBlur {
    fn validate(&self) -> Result<()> {
        range(Self::NAME, "sigma", &self.sigma, ABOVE_0, f64::INFINITY)?;
        self.with(*self.sigma.start()).validate()
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let sigma = rng.uniform(*self.sigma.start(), *self.sigma.end());
        recipe.push(self.with(sigma))
    }
}

/// Fractional bits of a weight.
pub(crate) const WEIGHT_BITS: u32 = 24;
/// Fractional bits of the first pass's sums.
pub(crate) const BETWEEN_BITS: u32 = 16;

/// The weights at distances 0, 1, ... `kernel / 2` from the center.
pub(crate) fn weights((kernel, sigma): BlurAxis) -> Vec<u32> {
    let exact: Vec<f64> = (0..=kernel / 2)
        .map(|distance| {
            let x = f64::from(distance) / sigma;
            libm::exp(-0.5 * x * x)
        })
        .collect();
    let sum = exact[0] + 2.0 * exact[1..].iter().sum::<f64>();
    let one = 1u32 << WEIGHT_BITS;
    let mut weights: Vec<u32> = exact.iter().map(|weight| (weight / sum * f64::from(one)).round() as u32).collect();
    weights[0] = one - 2 * weights[1..].iter().sum::<u32>();
    weights
}

/// The weights of all taps.
pub(crate) fn all_weights(axis: BlurAxis) -> Vec<u32> {
    let half = weights(axis);
    half[1..].iter().rev().chain(&half).copied().collect()
}

/// The weights of all taps in doubles, for values that are not bytes.
pub(crate) fn exact_weights((kernel, sigma): BlurAxis) -> Vec<f64> {
    let radius = i64::from(kernel / 2);
    let weight = |at: i64| {
        let x = at as f64 / sigma;
        libm::exp(-0.5 * x * x)
    };
    let weights: Vec<f64> = (-radius..=radius).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Position `at` of a line of `len` pixels, reflected at both ends as often as necessary. The ends themselves are not
/// repeated.
pub(crate) fn reflect(at: i64, len: u32) -> u32 {
    let last = i64::from(len) - 1;
    if last == 0 {
        return 0;
    }
    let at = at.rem_euclid(2 * last);
    at.min(2 * last - at) as u32
}

/// Makes the rectangle `part` of the blurred image. `input` holds this rectangle and half a kernel around it, as far as
/// the whole image has that.
fn gaussian_blur(input: &Image, axes: [BlurAxis; 2], part: Rect, out: &mut Image) {
    let (whole, stored) = (input.whole(), input.part());
    debug_assert!(part.fits(whole));
    out.reset_part(whole, part);
    let [across, down] = axes.map(weights);
    let ([(kernel_x, _), (kernel_y, _)], width) = (axes, part.width as usize);
    let radius = i64::from(kernel_x / 2);
    // The stored column for each column of a row with its margins.
    let columns: Vec<u32> = (-radius..i64::from(part.width) + radius)
        .map(|x| reflect(i64::from(part.x) + x, whole.width) - stored.x)
        .collect();
    let mut margined: Vec<Pixel> = vec![[0; 4]; columns.len() + STEP / 4];
    // The blurred rows around the current one; row y lies in slot y % kernel_y.
    let stride = (width * 4).next_multiple_of(STEP);
    let mut ring = vec![0u32; stride * kernel_y as usize];
    let slot = |y: u32| (y % kernel_y) as usize * stride;
    let mut rows = vec![[0; 2]; down.len()];
    let radius_y = i64::from(kernel_y / 2);
    let mut next = (i64::from(part.y) - radius_y).max(0) as u32;
    for y in part.y..part.bottom() {
        let end = (i64::from(y) + radius_y + 1).min(i64::from(whole.height)) as u32;
        for y in next..end {
            let row = input.row(y - stored.y);
            let inner = radius as usize..radius as usize + width;
            margined[inner.clone()].copy_from_slice(&row[(part.x - stored.x) as usize..][..width]);
            for x in (0..inner.start).chain(inner.end..columns.len()) {
                margined[x] = row[columns[x] as usize];
            }
            let between = &mut ring[slot(y)..][..stride];
            wide(
                #[inline(always)]
                || blur_row(margined.as_flattened(), &across, between),
            );
        }
        next = next.max(end);
        for (rows, distance) in rows.iter_mut().zip(0..) {
            *rows = [-distance, distance].map(|distance| slot(reflect(i64::from(y) + distance, whole.height)));
        }
        let to = out.row_mut(y - part.y).as_flattened_mut();
        wide(
            #[inline(always)]
            || blur_column(&ring, &rows, &down, to),
        );
    }
}

/// Number of bytes made at once, so that their sums stay in registers.
const STEP: usize = 16;

/// The first pass: makes sums with 16 fractional bits from a row with margins. `from` extends one step beyond the
/// margins.
#[inline(always)]
fn blur_row(from: &[u8], weights: &[u32], between: &mut [u32]) {
    let radius = (weights.len() - 1) * 4;
    let (steps, _) = between.as_chunks_mut::<STEP>();
    for (step, at) in steps.iter_mut().zip((radius..).step_by(STEP)) {
        let mut sums = [0; STEP];
        let center = part(from, at);
        for i in 0..STEP {
            sums[i] = u32::from(center[i]) * weights[0];
        }
        for (distance, &weight) in weights.iter().enumerate().skip(1) {
            let (before, after) = (part(from, at - distance * 4), part(from, at + distance * 4));
            for i in 0..STEP {
                sums[i] += (u32::from(before[i]) + u32::from(after[i])) * weight;
            }
        }
        // The sum is at most 255 * 2^24, so adding half a unit does not overflow.
        for i in 0..STEP {
            step[i] = (sums[i] + (1 << (WEIGHT_BITS - BETWEEN_BITS - 1))) >> (WEIGHT_BITS - BETWEEN_BITS);
        }
    }
}

/// The second pass: makes bytes from the rows above and below at each distance. `rows` has their places in the ring.
#[inline(always)]
fn blur_column(ring: &[u32], rows: &[[usize; 2]], weights: &[u32], to: &mut [u8]) {
    for (step, at) in to.chunks_mut(STEP).zip((0..).step_by(STEP)) {
        let mut sums = [0u64; STEP];
        let center = part(ring, rows[0][0] + at);
        for i in 0..STEP {
            sums[i] = u64::from(center[i]) * u64::from(weights[0]);
        }
        for (&[above, below], &weight) in rows.iter().zip(weights).skip(1) {
            let (above, below) = (part(ring, above + at), part(ring, below + at));
            for i in 0..STEP {
                sums[i] += u64::from(above[i] + below[i]) * u64::from(weight);
            }
        }
        const BITS: u32 = WEIGHT_BITS + BETWEEN_BITS;
        let mut made = [0; STEP];
        for i in 0..STEP {
            // Rounds ties to even: adds half a unit less the lowest bit, and the lowest bit again if the integer part
            // is odd.
            made[i] = ((sums[i] + (1 << (BITS - 1)) - 1 + ((sums[i] >> BITS) & 1)) >> BITS) as u8;
        }
        step.copy_from_slice(&made[..step.len()]);
    }
}

/// One step's worth of a row.
#[inline(always)]
fn part<T>(row: &[T], at: usize) -> &[T; STEP] {
    row[at..].first_chunk().expect("rows are stored in whole steps")
}
