//! Resizing with Pillow's arithmetic: one axis at a time, 8 bits in between, weights in 22-bit fixed point.

use super::check::side;
use super::descriptors::ResizeSample;
use super::fill::Fill;
use super::filter::{Interpolation, PassOrder, Taps, WEIGHT_BITS};
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::{CpuPass, OnField, Op, Operation, Primitive, SizeEffect, crop};
use crate::error::{Error, Result};
use crate::fields::motion::Motion;
use crate::raster::{Image, Pixel, Rect, Size};
use crate::simd::wide;
use serde::{Deserialize, Serialize};

/// The size of a resized image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeTo {
    /// Exactly this width and height, whatever the aspect.
    Exact(Size),
    /// The shorter side becomes this many pixels, and the longer side `int(size * longer / shorter)`, as in
    /// torchvision.
    ShorterSide(u32),
    /// The shorter side becomes `size` pixels, as with [`ShorterSide`](Self::ShorterSide). If that made the longer side
    /// longer than `max_size` pixels, the longer side becomes `max_size` and the shorter side follows. torchvision's
    /// `max_size`, which is larger than `size`.
    ShorterSideWithin {
        /// The shorter side in pixels.
        size: u32,
        /// Largest number of pixels of the longer side.
        max_size: u32,
    },
    /// The longer side becomes this many pixels, and the shorter side `int(size * shorter / longer)`, but at least 1:
    /// torchvision's `max_size` without a size.
    LongerSide(u32),
}

/// Resizes the whole image, antialiased, with Pillow's arithmetic.
///
/// ```
/// use warpfeed::{ops::{Interpolation, Op, Resize}, image::Size};
///
/// let op: Op = Resize::shorter_side(15).interpolation(Interpolation::Bicubic).into();
/// assert_eq!(op.output_size(Size::new(40, 30))?, Size::new(20, 15));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenResize", into = "WrittenResize")]
#[non_exhaustive]
pub struct Resize {
    /// The size to reach.
    pub to: ResizeTo,
    /// The filter.
    pub interpolation: Interpolation,
}

/// The written form of [`Resize`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenResize {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_size: Option<u32>,
    #[serde(default)]
    interpolation: Interpolation,
}

impl TryFrom<WrittenResize> for Resize {
    type Error = &'static str;

    fn try_from(written: WrittenResize) -> Result<Self, Self::Error> {
        let to = match (written.width, written.height, written.size, written.max_size) {
            (Some(width), Some(height), None, None) => ResizeTo::Exact(Size { width, height }),
            (None, None, Some(size), None) => ResizeTo::ShorterSide(size),
            (None, None, Some(size), Some(max_size)) => ResizeTo::ShorterSideWithin { size, max_size },
            (None, None, None, Some(max_size)) => ResizeTo::LongerSide(max_size),
            _ => {
                return Err(
                    "resize needs either width and height, or size (the shorter side), max_size (the longer) or both",
                );
            }
        };
        Ok(Self { to, interpolation: written.interpolation })
    }
}

impl From<Resize> for WrittenResize {
    fn from(resize: Resize) -> Self {
        let (width, height, size, max_size) = match resize.to {
            ResizeTo::Exact(size) => (Some(size.width), Some(size.height), None, None),
            ResizeTo::ShorterSide(side) => (None, None, Some(side), None),
            ResizeTo::ShorterSideWithin { size, max_size } => (None, None, Some(size), Some(max_size)),
            ResizeTo::LongerSide(side) => (None, None, None, Some(side)),
        };
        Self { width, height, size, max_size, interpolation: resize.interpolation }
    }
}

impl Resize {
    pub(super) const KERNELS: &'static [Kernel] =
        &[Kernel::pixels("resize_horizontal_u8_nhwc"), Kernel::pixels("resize_vertical_u8_nhwc")];

    /// A bilinear resize to this width and height, whatever the aspect.
    #[must_use]
    pub const fn new(size: Size) -> Self {
        Self { to: ResizeTo::Exact(size), interpolation: Interpolation::Bilinear }
    }

    /// A bilinear resize of the shorter side, aspect kept.
    #[must_use]
    pub const fn shorter_side(side: u32) -> Self {
        Self { to: ResizeTo::ShorterSide(side), interpolation: Interpolation::Bilinear }
    }

    /// A bilinear resize of the shorter side to `side` pixels, aspect kept. If that made the longer side longer than
    /// `max_size` pixels, the longer side becomes `max_size`. `max_size` is larger than `side`.
    #[must_use]
    pub const fn shorter_side_within(side: u32, max_size: u32) -> Self {
        Self { to: ResizeTo::ShorterSideWithin { size: side, max_size }, interpolation: Interpolation::Bilinear }
    }

    /// A bilinear resize of the longer side, aspect kept.
    #[must_use]
    pub const fn longer_side(side: u32) -> Self {
        Self { to: ResizeTo::LongerSide(side), interpolation: Interpolation::Bilinear }
    }

    setters! {
        /// The filter.
        interpolation: Interpolation,
    }

    pub(super) fn examples(Size { width, height }: Size) -> Vec<Self> {
        vec![
            Self::new(Size::new(width / 2 + 1, height + 7)).interpolation(Interpolation::Nearest),
            Self::new(Size::new(width / 2 + 1, height / 2 + 1)),
            Self::new(Size::new(width / 5 + 1, height + 27)).interpolation(Interpolation::Bicubic),
            Self::new(Size::new(3 * width, height / 4 + 1)).interpolation(Interpolation::Lanczos),
            Self::shorter_side(height / 3 + 1),
            Self::shorter_side_within(height / 3 + 1, height / 3 + 3),
            Self::longer_side(width / 2 + 1),
        ]
    }
}

impl Operation for Resize {
    fn validate(&self) -> Result<()> {
        match self.to {
            ResizeTo::Exact(Size { width, height }) => super::check::sides(Self::NAME, width, height),
            ResizeTo::ShorterSide(size) => side(Self::NAME, "size", size),
            ResizeTo::LongerSide(size) => side(Self::NAME, "max_size", size),
            ResizeTo::ShorterSideWithin { size, max_size } => {
                if max_size <= size {
                    let expected = format!("larger than the shorter side, {size}");
                    return Err(Error::parameter(Self::NAME, "max_size", expected, max_size));
                }
                side(Self::NAME, "size", size)?;
                side(Self::NAME, "max_size", max_size)
            }
        }
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        let (short, long) = (input.width.min(input.height), input.width.max(input.height));
        // Python: int(a * b / c), with the division in double precision.
        let share = |a: u32, b: u32, c: u32| ((f64::from(a) * f64::from(b)) / f64::from(c)) as u32;
        let (short, long) = match self.to {
            ResizeTo::Exact(size) => return Ok(size),
            ResizeTo::ShorterSide(side) => (side, share(side, long, short)),
            ResizeTo::ShorterSideWithin { size, max_size } => match share(size, long, short) {
                long if long > max_size => (share(max_size, size, long).max(1), max_size),
                long => (size, long),
            },
            ResizeTo::LongerSide(side) => (share(side, short, long).max(1), side),
        };
        Ok(if input.width <= input.height { Size::new(short, long) } else { Size::new(long, short) })
    }

    fn size_effect(&self) -> SizeEffect {
        match self.to {
            ResizeTo::Exact(size) => SizeEffect::Becomes(size),
            ResizeTo::ShorterSide(_) | ResizeTo::ShorterSideWithin { .. } | ResizeTo::LongerSide(_) => {
                SizeEffect::Varies
            }
        }
    }

    fn primitive(&self, input: Size) -> Primitive<'_> {
        Primitive::Resample { window: Rect::full(input), interpolation: self.interpolation }
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::Scale)
    }

    fn on_field(&self, input: Size, how: &OnField) -> Result<Option<Op>> {
        let own = if how.differs() {
            Self::new(how.scaled_size(Self::NAME, Operation::output_size(self, input)?)?)
        } else {
            *self
        };
        Ok(Some(own.interpolation(how.filter(self.interpolation, Interpolation::Lanczos)).into()))
    }
}

/// Queues the kernels that resize the rectangle `window` of the current image, one pass per axis. The current image is
/// complete.
pub(super) fn launch(on: &mut dyn CallRecorder, window: Rect, size: Size, interpolation: Interpolation) -> Result<()> {
    const HORIZONTAL: KernelId = KernelId::of("resize_horizontal_u8_nhwc");
    const VERTICAL: KernelId = KernelId::of("resize_vertical_u8_nhwc");
    let mut input = window.size();
    if input == size {
        return crop::launch(on, window.x as i32, window.y as i32, size, Fill::BLACK);
    }
    let mut passes = [true, false];
    if on.order().vertical_first(input, size) {
        passes.reverse();
    }
    let mut source = on.source();
    source.pixels += u64::from(window.y) * u64::from(source.pitch_bytes) + 3 * u64::from(window.x);
    for horizontal in passes {
        let output = if horizontal { Size::new(size.width, input.height) } else { Size::new(input.width, size.height) };
        if output == input {
            continue;
        }
        let (kernel, axis) = if horizontal {
            (HORIZONTAL, on.axis(input.width, size.width, 0..size.width, interpolation)?)
        } else {
            (VERTICAL, on.axis(input.height, size.height, 0..size.height, interpolation)?)
        };
        let target = on.target(output, Rect::full(output))?;
        on.call(kernel, &ResizeSample { source, target, axis }, output);
        (source, input) = (on.source(), output);
    }
    Ok(())
}

/// Resizes the rectangle `window` of a pass's image.
pub(super) fn pass(pass: &mut CpuPass<'_>, window: Rect, size: Size, interpolation: Interpolation) -> Result<()> {
    let order = pass.order;
    // If there are two passes, the first makes an image of its own.
    let mut between = Image::default();
    let first = if order.vertical_first(window.size(), size) {
        Size::new(window.width, size.height)
    } else {
        Size::new(size.width, window.height)
    };
    if first != size && first != window.size() && interpolation != Interpolation::Nearest {
        between.reserve(first)?;
    }
    pass.replace(size, |input, out| resized_crop(input, window, size, interpolation, order, &mut between, out))
}

/// Resizes the rectangle `window` of a complete image as if it were an image of its own. `between` is memory for the
/// result of the first of two passes.
pub(crate) fn resized_crop(
    input: &Image,
    window: Rect,
    size: Size,
    interpolation: Interpolation,
    order: PassOrder,
    between: &mut Image,
    out: &mut Image,
) {
    debug_assert_eq!(input.part(), Rect::full(input.whole()));
    debug_assert!(window.fits(input.size()));
    if window.size() == size {
        return crop::crop(input, window.x as i32, window.y as i32, size, Fill::BLACK, out);
    }
    if interpolation == Interpolation::Nearest {
        return repeat(input, window, size, out);
    }
    let columns = (window.width != size.width).then(|| Taps::new(window.width, size.width, interpolation));
    let rows = (window.height != size.height).then(|| Taps::new(window.height, size.height, interpolation));
    match (columns, rows) {
        (Some(columns), None) => horizontal(input, window, &columns, out),
        (None, Some(rows)) => vertical(input, window, &rows, out),
        (None, None) => {}
        (Some(columns), Some(rows)) => {
            if order.vertical_first(window.size(), size) {
                vertical(input, window, &rows, between);
                horizontal(between, Rect::full(between.size()), &columns, out);
            } else {
                horizontal(input, window, &columns, between);
                vertical(between, Rect::full(between.size()), &rows, out);
            }
        }
    }
}

/// Resizes by the nearest pixel.
fn repeat(input: &Image, window: Rect, size: Size, out: &mut Image) {
    out.reset(size);
    let columns = Taps::new(window.width, size.width, Interpolation::Nearest);
    let rows = Taps::new(window.height, size.height, Interpolation::Nearest);
    for (y, row) in rows.starts.iter().enumerate() {
        let from = &input.row(window.y + row)[window.x as usize..window.right() as usize];
        for (pixel, &column) in out.row_mut(y as u32).iter_mut().zip(&columns.starts) {
            *pixel = from[column as usize];
        }
    }
}

/// Resizes the rows of `window`.
fn horizontal(input: &Image, window: Rect, columns: &Taps, out: &mut Image) {
    out.reset(Size::new(columns.len() as u32, window.height));
    for y in 0..window.height {
        let from = &input.row(window.y + y)[window.x as usize..window.right() as usize];
        let to = out.row_mut(y);
        wide(
            #[inline(always)]
            || horizontal_row(from, columns, to),
        );
    }
}

/// Resizes one row.
#[inline(always)]
pub(crate) fn horizontal_row(from: &[Pixel], columns: &Taps, to: &mut [Pixel]) {
    for (x, pixel) in to.iter_mut().enumerate() {
        let (start, weights) = columns.of(x);
        let mut sums = [HALF; 4];
        for (tap, &weight) in from[start..start + weights.len()].iter().zip(weights) {
            for (sum, &byte) in sums.iter_mut().zip(tap) {
                *sum += i32::from(byte) * weight;
            }
        }
        *pixel = sums.map(to_byte);
    }
}

/// Resizes the columns of `window`.
fn vertical(input: &Image, window: Rect, rows: &Taps, out: &mut Image) {
    out.reset(Size::new(window.width, rows.len() as u32));
    for y in 0..rows.len() {
        let (start, weights) = rows.of(y);
        let row = |tap: usize| &input.row(window.y + (start + tap) as u32)[window.x as usize..window.right() as usize];
        let to = out.row_mut(y as u32);
        wide(
            #[inline(always)]
            || vertical_row(row, weights, to),
        );
    }
}

/// Half a unit of a sum's last place, which rounds sums to the nearest.
const HALF: i32 = 1 << (WEIGHT_BITS - 1);
/// Number of bytes made at once, so that their sums stay in registers.
const STEP: usize = 32;

/// Makes one row, of the length of `to`, as the weighted sum of several rows. There is one row per weight.
#[inline(always)]
pub(crate) fn vertical_row<'a>(row: impl Fn(usize) -> &'a [Pixel], weights: &[i32], to: &mut [Pixel]) {
    let (steps, rest) = to.as_flattened_mut().as_chunks_mut::<STEP>();
    let mut at = 0;
    for step in steps {
        let mut sums = [HALF; STEP];
        for (tap, &weight) in weights.iter().enumerate() {
            let Some(bytes) = row(tap).as_flattened()[at..].first_chunk::<STEP>() else { return };
            for i in 0..STEP {
                sums[i] += i32::from(bytes[i]) * weight;
            }
        }
        for i in 0..STEP {
            step[i] = to_byte(sums[i]);
        }
        at += STEP;
    }
    for byte in rest {
        let taps = weights.iter().enumerate();
        let sum: i32 = taps.map(|(tap, weight)| i32::from(row(tap).as_flattened()[at]) * weight).sum();
        *byte = to_byte(sum + HALF);
        at += 1;
    }
}

/// The byte of a sum: its fraction dropped, limited to 0..=255.
#[inline(always)]
pub(crate) fn to_byte(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}
