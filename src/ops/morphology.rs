//! Dilation and erosion: the largest or smallest value in a square of pixels, for each channel.
//!
//! Equal to OpenCV's `dilate` and `erode` with a kernel of ones and the default anchor and border: output pixel x sees
//! the pixels `x - kernel / 2 .. x - kernel / 2 + kernel` inside the image.

use super::descriptors::MorphologySample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::{PixelValues, ValueWork};
use super::{CpuPass, Operation, Pass, PassOrder, Primitive, Reach, check};
use crate::error::Result;
use crate::raster::{Image, Rect, Size};
use crate::simd::wide;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// An operation that takes the largest or smallest value in a square, and its random form. `$noun` is for docs.
macro_rules! morphology {
    (
        $(#[$doc:meta])* pub struct $name:ident { largest: $largest:literal, kernels: [$rows:literal, $columns:literal] }
        $noun:literal, $random:ident
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[non_exhaustive]
        pub struct $name {
            /// Side of the square in pixels, 1 to 255.
            pub kernel: u32,
        }

        impl $name {
            pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels($rows), Kernel::pixels($columns)];

            #[doc = concat!($noun, " by a square with this side in pixels.")]
            #[must_use]
            pub const fn new(kernel: u32) -> Self {
                Self { kernel }
            }

            pub(super) fn examples(_size: Size) -> Vec<Self> {
                vec![Self::new(3), Self::new(4)]
            }
        }

        impl Operation for $name {
            fn validate(&self) -> Result<()> {
                check::kernel(Self::NAME, self.kernel)
            }

            fn primitive(&self, _input: Size) -> Primitive<'_> {
                Primitive::Pass(self, Reach::Around(self.kernel / 2))
            }

            fn values(&self, _pixels: &PixelValues, _input: Size, _size: Size, _order: PassOrder) -> Option<ValueWork> {
                Some(ValueWork::Extreme { kernel: self.kernel, largest: $largest })
            }

            keeps_places!();
        }

        impl Pass for $name {
            fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
                let part = pass.part;
                pass.replace(part.size(), |input, out| filter::<$largest>(input, self.kernel, part, out))
            }

            fn launch(&self, on: &mut dyn CallRecorder, part: Rect) -> Result<()> {
                launch(on, const { [KernelId::of($rows), KernelId::of($columns)] }, self.kernel, part)
            }
        }

        #[doc = concat!($noun, " by a square whose side is uniform in a range.")]
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $random {
            #[serde(with = "super::written::range")]
            kernel: RangeInclusive<u32>,
        }

        impl $random {
            #[doc = concat!($noun, " by a square whose side is uniform in `kernel` pixels.")]
            #[must_use]
            pub const fn new(kernel: RangeInclusive<u32>) -> Self {
                Self { kernel }
            }
        }

        impl RandomTransform for $random {
            fn validate(&self) -> Result<()> {
                check::whole_range(Self::NAME, "kernel", &self.kernel, check::MAX_KERNEL_PX, " pixels")
            }

            fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
                Some(Ok(()))
            }

            fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
                let (rng, _) = recipe.start();
                let kernel = rng.within(&self.kernel);
                recipe.push($name::new(kernel))
            }
        }
    };
}

morphology! {
    /// Replaces each value by the largest value in a square around it, for each channel: OpenCV's `dilate`.
    pub struct Dilate { largest: true, kernels: ["dilate_rows_u8_nhwc", "dilate_columns_u8_nhwc"] }
    "Dilation", RandomDilation
}

morphology! {
    /// Replaces each value by the smallest value in a square around it, for each channel: OpenCV's `erode`.
    pub struct Erode { largest: false, kernels: ["erode_rows_u8_nhwc", "erode_columns_u8_nhwc"] }
    "Erosion", RandomErosion
}

/// Queues both kernels for the rectangle `part` of the result.
fn launch(on: &mut dyn CallRecorder, [rows, columns]: [KernelId; 2], kernel: u32, part: Rect) -> Result<()> {
    let (source, whole) = (on.source(), on.whole());
    let between = Rect { x: part.x, y: source.y, width: part.width, height: source.height };
    for (pass, part) in [(rows, between), (columns, part)] {
        let source = on.source();
        let target = on.target(whole, part)?;
        on.call(pass, &MorphologySample { source, target, kernel, reserved: 0 }, part.size());
    }
    Ok(())
}

/// The larger of two values, or the smaller.
#[inline(always)]
fn pick<const LARGEST: bool, T: PartialOrd + Copy>(a: T, b: T) -> T {
    if (a > b) == LARGEST { a } else { b }
}

/// Makes the rectangle `part` of the dilated or eroded image. `input` holds all pixels that this needs.
///
/// Rows are filtered first, then columns. Windows are doubled: a window of 2n values is two adjacent windows of n
/// values, and a window of n to 2n values is two overlapping ones. So the cost grows with the logarithm of the kernel.
fn filter<const LARGEST: bool>(input: &Image, kernel: u32, part: Rect, out: &mut Image) {
    let (whole, stored) = (input.whole(), input.part());
    debug_assert!(part.fits(whole));
    out.reset_part(whole, part);
    let neutral = if LARGEST { 0 } else { 255 };
    let (kernel, anchor) = (kernel as usize, i64::from(kernel / 2));
    let (width, height) = (part.width as usize, part.height as usize);
    let stride = width * 4;

    // The rows that `part` needs, each already filtered along itself. Places outside the image stay neutral.
    let (left, top) = (i64::from(part.x) - anchor, i64::from(part.y) - anchor);
    let mut rows = vec![neutral; (height + kernel - 1) * stride];
    let mut line = vec![neutral; (width + kernel - 1) * 4];
    let clip = |start: i64, len: usize, stored_start: u32, stored_len: u32| {
        let end = (start + len as i64).min(i64::from(stored_start + stored_len));
        (start.max(i64::from(stored_start)), end)
    };
    let (first, end) = clip(left, width + kernel - 1, stored.x, stored.width);
    let (first_row, end_row) = clip(top, height + kernel - 1, stored.y, stored.height);
    for y in first_row..end_row {
        let from = &input.row((y - i64::from(stored.y)) as u32)[(first - i64::from(stored.x)) as usize..]
            [..(end - first) as usize];
        line.fill(neutral);
        line[(first - left) as usize * 4..][..from.len() * 4].copy_from_slice(from.as_flattened());
        let to = &mut rows[(y - top) as usize * stride..][..stride];
        wide(
            #[inline(always)]
            || {
                windows::<LARGEST, _>(&mut line, kernel, 4);
                to.copy_from_slice(&line[..stride]);
            },
        );
    }
    wide(
        #[inline(always)]
        || windows::<LARGEST, _>(&mut rows, kernel, stride),
    );
    out.pixels_mut().as_flattened_mut().copy_from_slice(&rows[..height * stride]);
}

/// Replaces each value by the result of a window of `kernel` values, which begins with this value and continues in
/// steps of `step`. The last `kernel - 1` steps have no whole window; their values are unspecified afterwards.
#[inline(always)]
pub(crate) fn windows<const LARGEST: bool, T: PartialOrd + Copy + Default>(
    values: &mut [T],
    kernel: usize,
    step: usize,
) {
    let mut done = 1;
    while done < kernel {
        let shift = done.min(kernel - done);
        merge::<LARGEST, _>(values, shift * step);
        done += shift;
    }
}

/// Replaces each value by the larger or smaller of itself and the value `distance` further on.
#[inline(always)]
fn merge<const LARGEST: bool, T: PartialOrd + Copy + Default>(values: &mut [T], distance: usize) {
    const STEP: usize = 64;
    let len = values.len() - distance;
    let mut at = 0;
    // Each value is read before it is overwritten, because a step is loaded before any part of it is stored.
    while at + STEP <= len {
        let mut made = [T::default(); STEP];
        let (here, further) = (&values[at..at + STEP], &values[at + distance..at + distance + STEP]);
        for i in 0..STEP {
            made[i] = pick::<LARGEST, _>(here[i], further[i]);
        }
        values[at..at + STEP].copy_from_slice(&made);
        at += STEP;
    }
    for at in at..len {
        values[at] = pick::<LARGEST, _>(values[at], values[at + distance]);
    }
}
