//! Mirrors and quarter turns: pixels move and none changes.

use super::CpuPass;
use super::descriptors::FlipSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use crate::error::Result;
use crate::raster::{Image, Rect, Size};

/// An exact map of whole coordinates: a mirror, transposition or translation. Pixel `(x, y)` comes from `(xx x + xy y +
/// x0, yx x + yy y + y0)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exact {
    pub(crate) xx: i32,
    pub(crate) xy: i32,
    pub(crate) x0: i32,
    pub(crate) yx: i32,
    pub(crate) yy: i32,
    pub(crate) y0: i32,
}

impl Exact {
    pub(crate) const IDENTITY: Self = Self { xx: 1, xy: 0, x0: 0, yx: 0, yy: 1, y0: 0 };

    pub(crate) fn translate(x0: i32, y0: i32) -> Self {
        Self { x0, y0, ..Self::IDENTITY }
    }

    pub(super) fn apply(self, x: i32, y: i32) -> (i32, i32) {
        (self.xx * x + self.xy * y + self.x0, self.yx * x + self.yy * y + self.y0)
    }

    /// The map that first applies `inner`, then `self`.
    pub(crate) fn after(self, inner: Self) -> Self {
        let (x0, y0) = self.apply(inner.x0, inner.y0);
        Self {
            xx: self.xx * inner.xx + self.xy * inner.yx,
            xy: self.xx * inner.xy + self.xy * inner.yy,
            x0,
            yx: self.yx * inner.xx + self.yy * inner.yx,
            yy: self.yx * inner.xy + self.yy * inner.yy,
            y0,
        }
    }

    /// The map from the input back to the output.
    pub(super) fn inverse(self) -> Self {
        let Self { xx, xy, x0, yx, yy, y0 } = self;
        Self { xx, xy: yx, x0: -(xx * x0 + yx * y0), yx: xy, yy, y0: -(xy * x0 + yy * y0) }
    }

    /// Left, top, right and bottom of what a non-empty rectangle of the output comes from.
    pub(super) fn corners(self, part: Rect) -> [i32; 4] {
        let (ax, ay) = self.apply(part.x as i32, part.y as i32);
        let (bx, by) = self.apply(part.right() as i32 - 1, part.bottom() as i32 - 1);
        [ax.min(bx), ay.min(by), ax.max(bx) + 1, ay.max(by) + 1]
    }

    /// The rectangle of the input that a non-empty rectangle of the output comes from.
    pub(crate) fn rect(self, part: Rect) -> Rect {
        let [left, top, right, bottom] = self.corners(part);
        Rect { x: left as u32, y: top as u32, width: left.abs_diff(right), height: top.abs_diff(bottom) }
    }

    /// The part of the output, of size `size`, that comes from the part `held` of the input.
    pub(super) fn output_part(self, held: Rect, size: Size) -> Rect {
        let [left, top, right, bottom] = self.inverse().corners(held);
        let clamp = |v: i32, side: u32| v.clamp(0, side as i32) as u32;
        let (x, y) = (clamp(left, size.width), clamp(top, size.height));
        Rect { x, y, width: clamp(right, size.width) - x, height: clamp(bottom, size.height) - y }
    }

    /// This map for pixel centers, which lie half a pixel to the right of and below their coordinates.
    pub(crate) fn matrix(self) -> [f64; 6] {
        let center = |x: i32, y: i32, c: i32| f64::from(c) + 0.5 * f64::from(1 - x - y);
        let Self { xx, xy, x0, yx, yy, y0 } = self;
        let (x, y) = (center(xx, xy, x0), center(yx, yy, y0));
        [f64::from(xx), f64::from(xy), x, f64::from(yx), f64::from(yy), y]
    }

    /// The map as kernels take it.
    pub(crate) fn packed(self) -> [i32; 6] {
        [self.xx, self.xy, self.x0, self.yx, self.yy, self.y0]
    }
}

/// A mirror, or a counter-clockwise turn by quarters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Mirrors left and right.
    Hflip,
    /// Mirrors top and bottom.
    Vflip,
    /// Turns by 90 degrees.
    Quarter,
    /// Turns by 180 degrees.
    Half,
    /// Turns by 270 degrees.
    ThreeQuarters,
}

impl Turn {
    /// The kernel of all mirrors and turns.
    pub(crate) const KERNELS: &'static [Kernel] = &[Kernel::pixels("flip_u8_nhwc")];

    /// The map from a pixel of the result to the pixel of an image of size `input` that it shows.
    pub(crate) fn map(self, input: Size) -> Exact {
        let (right, bottom) = (input.width as i32 - 1, input.height as i32 - 1);
        let [xx, xy, x0, yx, yy, y0] = match self {
            Self::Hflip => [-1, 0, right, 0, 1, 0],
            Self::Vflip => [1, 0, 0, 0, -1, bottom],
            Self::Quarter => [0, -1, right, 1, 0, 0],
            Self::Half => [-1, 0, right, 0, -1, bottom],
            Self::ThreeQuarters => [0, 1, 0, -1, 0, bottom],
        };
        Exact { xx, xy, x0, yx, yy, y0 }
    }

    /// The size of the result for an image of size `input`.
    pub(crate) fn output_size(self, input: Size) -> Size {
        match self {
            Self::Hflip | Self::Vflip | Self::Half => input,
            Self::Quarter | Self::ThreeQuarters => input.transposed(),
        }
    }

    /// Mirrors or turns on the CPU.
    pub(super) fn pass(self, pass: &mut CpuPass<'_>) -> Result<()> {
        let size = self.output_size(pass.image.size());
        match self {
            Self::Hflip => horizontal(pass.image),
            Self::Vflip => vertical(pass.image),
            Self::Quarter => return pass.replace(size, quarter_turn),
            Self::Half => half_turn(pass.image),
            Self::ThreeQuarters => return pass.replace(size, three_quarter_turn),
        }
        Ok(())
    }

    /// Queues the kernel.
    pub(super) fn launch(self, on: &mut dyn CallRecorder) -> Result<()> {
        const FLIP: KernelId = KernelId::of("flip_u8_nhwc");
        let (source, input) = (on.source(), on.whole());
        let size = self.output_size(input);
        let target = on.target(size, Rect::full(size))?;
        on.call(FLIP, &FlipSample { source, target, exact: self.map(input).packed() }, size);
        Ok(())
    }
}

/// Mirrors left and right, in place.
fn horizontal(image: &mut Image) {
    debug_assert_eq!(image.part(), Rect::full(image.whole()));
    let width = image.size().width as usize;
    for row in image.pixels_mut().chunks_exact_mut(width.max(1)) {
        row.reverse();
    }
}

/// Mirrors top and bottom, in place.
fn vertical(image: &mut Image) {
    debug_assert_eq!(image.part(), Rect::full(image.whole()));
    let size = image.size();
    let (width, half) = (size.width as usize, size.height as usize / 2);
    let pixels = image.pixels_mut();
    let middle = pixels.len() - half * width;
    let (top, bottom) = pixels.split_at_mut(middle);
    let top = top.chunks_exact_mut(width.max(1));
    for (upper, lower) in top.zip(bottom.chunks_exact_mut(width.max(1)).rev()) {
        upper.swap_with_slice(lower);
    }
}

/// Turns by 180 degrees, in place.
fn half_turn(image: &mut Image) {
    debug_assert_eq!(image.part(), Rect::full(image.whole()));
    image.pixels_mut().reverse();
}

/// Turns by 90 degrees counter-clockwise.
fn quarter_turn(input: &Image, out: &mut Image) {
    transposed(input, out, |x, width| width - 1 - x, |y, _| y);
}

/// Turns by 270 degrees counter-clockwise.
fn three_quarter_turn(input: &Image, out: &mut Image) {
    transposed(input, out, |x, _| x, |y, height| height - 1 - y);
}

/// Side of the squares in which images are transposed: 16 rows of 16 pixels are 16 cache lines on either side.
const TILE: usize = 16;

/// Writes input pixel (x, y) to output column `column(y, input height)`, row `row(x, input width)`.
#[inline(always)]
fn transposed(
    input: &Image,
    out: &mut Image,
    row: impl Fn(usize, usize) -> usize,
    column: impl Fn(usize, usize) -> usize,
) {
    debug_assert_eq!(input.part(), Rect::full(input.whole()));
    let (width, height) = (input.size().width as usize, input.size().height as usize);
    out.reset(input.size().transposed());
    let (from, to) = (input.pixels(), out.pixels_mut());
    for top in (0..height).step_by(TILE) {
        let bottom = (top + TILE).min(height);
        for left in (0..width).step_by(TILE) {
            for x in left..(left + TILE).min(width) {
                let line = &mut to[row(x, width) * height..][..height];
                for y in top..bottom {
                    line[column(y, height)] = from[y * width + x];
                }
            }
        }
    }
}
