//! Sharpness: blending with a smoothed version.

use super::blend::blend;
use super::check::factor;
use super::descriptors::SharpnessSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::error::Result;
use crate::raster::{Image, Rect, Size};
use crate::simd::wide;
use serde::{Deserialize, Serialize};

/// Blends with a smoothed version: torchvision's `F.adjust_sharpness` of a PIL image. Pixels at the image's edge do not
/// change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Sharpness {
    /// 0 is smooth, 1 unchanged.
    pub factor: f64,
}

impl Sharpness {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("sharpness_u8_nhwc")];

    /// A blend with a smoothed version: factor 0 is smooth, 1 unchanged.
    #[must_use]
    pub const fn new(factor: f64) -> Self {
        Self { factor }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.25), Self::new(1.9)]
    }
}

impl Operation for Sharpness {
    fn validate(&self) -> Result<()> {
        factor(Self::NAME, self.factor)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Around(1))
    }

    keeps_places!();
}

impl Pass for Sharpness {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let part = pass.part;
        pass.replace(part.size(), |input, out| sharpen(input, self.factor as f32, part, out))
    }

    fn launch(&self, on: &mut dyn CallRecorder, part: Rect) -> Result<()> {
        const SHARPNESS: KernelId = KernelId::of("sharpness_u8_nhwc");
        let (source, whole) = (on.source(), on.whole());
        let target = on.target(whole, part)?;
        let sample = SharpnessSample { source, target, factor: self.factor as f32, reserved: 0 };
        on.call(SHARPNESS, &sample, part.size());
        Ok(())
    }
}

/// Makes the rectangle `part` of the result. `input` also holds the pixels around it.
fn sharpen(input: &Image, factor: f32, part: Rect, out: &mut Image) {
    let (whole, stored) = (input.whole(), input.part());
    out.reset_part(whole, part);
    let (left, width) = ((part.x - stored.x) as usize, part.width as usize);
    // The columns of the part, without the image's first and last column.
    let inner =
        usize::from(part.x == 0)..width - usize::from(part.right() == whole.width && width > usize::from(part.x == 0));
    for y in 0..part.height {
        let row = part.y + y - stored.y;
        let line = &input.row(row)[left..][..width];
        let to = out.row_mut(y);
        to.copy_from_slice(line);
        if part.y + y == 0 || part.y + y + 1 == whole.height || inner.is_empty() {
            continue;
        }
        // One pixel more on either side, because these columns have neighbors.
        let around = left + inner.start - 1..left + inner.end + 1;
        let [above, here, below] = [row - 1, row, row + 1].map(|y| input.row(y)[around.clone()].as_flattened());
        wide(
            #[inline(always)]
            || sharpen_row([above, here, below], factor, to[inner.clone()].as_flattened_mut()),
        );
    }
}

/// Makes the values `to`. The rows begin one pixel earlier and end one pixel later.
///
/// This is Pillow's `SMOOTH` in whole numbers: the middle counts five times, and the sum is divided by 13 and rounded
/// to nearest. As 13 is odd, there are no ties.
#[inline(always)]
fn sharpen_row([above, here, below]: [&[u8]; 3], factor: f32, to: &mut [u8]) {
    const PIXEL: usize = 4;
    let len = to.len();
    let of = |row: &'_ [u8], i: usize| u32::from(row[i]) + u32::from(row[i + PIXEL]) + u32::from(row[i + 2 * PIXEL]);
    let (above, here, below) = (&above[..len + 2 * PIXEL], &here[..len + 2 * PIXEL], &below[..len + 2 * PIXEL]);
    for (i, to) in to.iter_mut().enumerate() {
        let middle = here[i + PIXEL];
        let sum = of(above, i) + of(here, i) + of(below, i) + 4 * u32::from(middle);
        *to = blend(((2 * sum + 13) / 26) as u8, middle, factor);
    }
}

with_probability! {
    /// Sharpens or smooths with a probability: torchvision's `RandomAdjustSharpness`.
    pub struct RandomSharpness { factor: f64 }

    /// A blend with a smoothed version by `factor`, with probability `p`.
    pub fn new

    draws: Sharpness::new(factor)
}
