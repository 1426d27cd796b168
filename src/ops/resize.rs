//! Resizing with Pillow's arithmetic: one axis at a time, 8 bits in between, weights in 22-bit fixed point.

use super::check::{ABOVE_0, side};
use super::descriptors::ResizeSample;
use super::fill::Fill;
use super::filter::{Interpolation, PassOrder, Stretch, Taps, WEIGHT_BITS};
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::reduce::{Factors, no_kernel};
use super::{CpuPass, FieldContext, Op, Operation, Primitive, SizeEffect, crop};
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenResize", into = "WrittenResize")]
#[non_exhaustive]
pub struct Resize {
    /// The size to reach.
    pub to: ResizeTo,
    /// The filter.
    pub interpolation: Interpolation,
    /// The least factor that is left to the filter where the image shrinks by more. The image is first reduced by whole
    /// factors, to means of rectangles of pixels. `None` if the filter does everything.
    pub reducing_gap: Option<f64>,
    /// Columns and rows of the image, from its upper left corner, that are resized; they may be fractions. `None` if
    /// the whole image is.
    pub shown: Option<[f64; 2]>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reducing_gap: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shown: Option<[f64; 2]>,
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
        let WrittenResize { interpolation, reducing_gap, shown, .. } = written;
        Ok(Self { to, interpolation, reducing_gap, shown })
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
        let Resize { interpolation, reducing_gap, shown, .. } = resize;
        Self { width, height, size, max_size, interpolation, reducing_gap, shown }
    }
}

impl Resize {
    pub(super) const KERNELS: &'static [Kernel] =
        &[Kernel::pixels("resize_horizontal_u8_nhwc"), Kernel::pixels("resize_vertical_u8_nhwc")];

    /// A bilinear resize to this width and height, whatever the aspect. A `u32` as size is a square.
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Self {
        Self::to(ResizeTo::Exact(size.into()))
    }

    const fn to(to: ResizeTo) -> Self {
        Self { to, interpolation: Interpolation::Bilinear, reducing_gap: None, shown: None }
    }

    /// A bilinear resize of the shorter side, aspect kept.
    #[must_use]
    pub const fn shorter_side(side: u32) -> Self {
        Self::to(ResizeTo::ShorterSide(side))
    }

    /// A bilinear resize of the shorter side to `side` pixels, aspect kept. If that made the longer side longer than
    /// `max_size` pixels, the longer side becomes `max_size`. `max_size` is larger than `side`.
    #[must_use]
    pub const fn shorter_side_within(side: u32, max_size: u32) -> Self {
        Self::to(ResizeTo::ShorterSideWithin { size: side, max_size })
    }

    /// A bilinear resize of the longer side, aspect kept.
    #[must_use]
    pub const fn longer_side(side: u32) -> Self {
        Self::to(ResizeTo::LongerSide(side))
    }

    setters! {
        /// The filter.
        interpolation: Interpolation,
        /// The least factor that is left to the filter, 1 or more: Pillow's `reducing_gap`. A larger image is first
        /// reduced by whole factors, which takes less time. From 3 on the result hardly differs from that of the filter
        /// alone.
        ///
        /// ```
        /// use warpfeed::{ops::{Op, Resize}, image::Size};
        ///
        /// // 4,000 columns become 800 means, and these become 256 pixels.
        /// let op: Op = Resize::new(Size::new(256, 192)).reducing_gap(3.0).into();
        /// assert_eq!(op.output_size(Size::new(4000, 3000))?, Size::new(256, 192));
        /// # Ok::<(), warpfeed::Error>(())
        /// ```
        reducing_gap: f64 => Some,
        /// Columns and rows of the image, from its upper left corner, that are resized; they may be fractions: Pillow's
        /// `box` that begins at (0, 0). [`PipelineBuilder::thumbnail`](crate::PipelineBuilder::thumbnail) has use for
        /// it.
        shown: [f64; 2] => Some,
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
            Self::new(Size::new(width / 9 + 1, height / 7 + 1)).reducing_gap(1.5),
            Self::new(Size::new(width / 3 + 1, height / 5 + 1))
                .shown([f64::from(width) - 0.5, f64::from(height) - 0.25])
                .interpolation(Interpolation::Bicubic),
        ]
    }

    /// The columns and rows of an image of size `input` that are resized.
    fn shown_of(&self, input: Size) -> [f64; 2] {
        self.shown.unwrap_or([input.width, input.height].map(f64::from))
    }
}

impl Operation for Resize {
    fn validate(&self) -> Result<()> {
        if let Some(gap) = self.reducing_gap {
            check_gap(Self::NAME, gap)?;
        }
        if self.shown.is_some_and(|shown| !shown.iter().all(|shown| (ABOVE_0..f64::INFINITY).contains(shown))) {
            let got = format!("{:?}", self.shown.unwrap_or_default());
            return Err(Error::parameter(Self::NAME, "shown", "two finite numbers above 0", got));
        }
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
        let [columns, rows] = self.shown_of(input);
        if columns > f64::from(input.width) || rows > f64::from(input.height) {
            let expected = format!("no more than the image has, {input}");
            return Err(Error::parameter(Self::NAME, "shown", expected, format!("{columns} x {rows}")));
        }
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
        let (shown, reducing_gap) = (self.shown_of(input), self.reducing_gap);
        Primitive::Resample(Resample { shown, reducing_gap, ..Resample::of(Rect::full(input), self.interpolation) })
    }

    fn motion(&self, input: Size) -> Result<Motion> {
        Ok(Motion::Scale(self.shown_of(input)))
    }

    fn on_field(&self, input: Size, how: &FieldContext) -> Result<Option<Op>> {
        let own = if how.differs() {
            let to = ResizeTo::Exact(how.scaled_size(Self::NAME, Operation::output_size(self, input)?)?);
            Self { to, shown: self.shown.map(|shown| how.scaled_by_ratio(shown)), ..*self }
        } else {
            *self
        };
        Ok(Some(own.interpolation(how.filter(self.interpolation, Interpolation::Lanczos)).into()))
    }

    fn has_kernels(&self) -> bool {
        // With a gap it may reduce, for which there is no kernel.
        self.reducing_gap.is_none()
    }
}

/// Checks a reducing gap.
pub(crate) fn check_gap(name: &'static str, gap: f64) -> Result<()> {
    if (1.0..f64::INFINITY).contains(&gap) {
        return Ok(());
    }
    Err(Error::parameter(name, "reducing_gap", "a finite number, 1 or more", gap))
}

/// A resize of a rectangle of an image as if it were an image of its own, but for the size to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Resample {
    /// The rectangle. It is the whole image if the resize has a reducing gap.
    pub(crate) window: Rect,
    /// Columns and rows of the rectangle, from its upper left corner, that are shown.
    shown: [f64; 2],
    reducing_gap: Option<f64>,
    interpolation: Interpolation,
}

/// A resize of an image with all its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Resampling {
    pub(crate) columns: Stretch,
    pub(crate) rows: Stretch,
    pub(crate) interpolation: Interpolation,
    /// Whether the vertical pass comes before the horizontal one.
    pub(crate) vertical_first: bool,
}

impl Resample {
    /// A resize of all of `window` by the filter alone.
    pub(super) fn of(window: Rect, interpolation: Interpolation) -> Self {
        let shown = [window.width, window.height].map(f64::from);
        Self { window, shown, reducing_gap: None, interpolation }
    }

    /// Input pixels of an output pixel, along both axes.
    pub(crate) fn scale(&self, size: Size) -> [f64; 2] {
        [self.shown[0] / f64::from(size.width), self.shown[1] / f64::from(size.height)]
    }

    /// The factors by which the rectangle is reduced, and the resize of the reduced image to `size`.
    pub(crate) fn steps(&self, size: Size, order: PassOrder) -> (Factors, Resampling) {
        let &Self { window, shown: [columns, rows], reducing_gap, interpolation } = self;
        let factor = |scale: f64| match reducing_gap {
            Some(gap) if interpolation != Interpolation::Nearest => ((scale / gap) as u32).max(1),
            _ => 1,
        };
        let [across, down] = self.scale(size).map(factor);
        let factors = Factors { columns: across, rows: down };
        let reduced = factors.reduced(window.size());
        let shown = |shown: f64, factor: u32| (shown / f64::from(factor)) as f32;
        let resampling = Resampling {
            columns: Stretch { input: reduced.width, shown: shown(columns, across), output: size.width },
            rows: Stretch { input: reduced.height, shown: shown(rows, down), output: size.height },
            interpolation,
            vertical_first: order.vertical_first(reduced, size),
        };
        (factors, resampling)
    }
}

impl Resampling {
    /// Whether nothing changes.
    pub(crate) fn is_identity(&self) -> bool {
        self.columns.is_identity() && self.rows.is_identity()
    }
}

/// Queues the kernels that resize the current image, one pass per axis. The current image is complete.
pub(super) fn launch(on: &mut dyn CallRecorder, of: Resample, size: Size) -> Result<()> {
    const HORIZONTAL: KernelId = KernelId::of("resize_horizontal_u8_nhwc");
    const VERTICAL: KernelId = KernelId::of("resize_vertical_u8_nhwc");
    let window = of.window;
    let (factors, Resampling { columns, rows, interpolation, vertical_first }) = of.steps(size, on.order());
    if !factors.is_identity() {
        return Err(no_kernel());
    }
    if columns.is_identity() && rows.is_identity() {
        return crop::launch(on, window.x as i32, window.y as i32, size, Fill::BLACK);
    }
    let mut passes = [(HORIZONTAL, columns), (VERTICAL, rows)];
    if vertical_first {
        passes.reverse();
    }
    let mut input = window.size();
    let mut source = on.source();
    source.pixels += u64::from(window.y) * u64::from(source.pitch_bytes) + 3 * u64::from(window.x);
    for (kernel, stretch) in passes {
        if stretch.is_identity() {
            continue;
        }
        let output = if kernel == HORIZONTAL {
            Size::new(size.width, input.height)
        } else {
            Size::new(input.width, size.height)
        };
        let axis = on.axis(stretch, 0..stretch.output, interpolation)?;
        let target = on.target(output, Rect::full(output))?;
        on.call(kernel, &ResizeSample { source, target, axis }, output);
        (source, input) = (on.source(), output);
    }
    Ok(())
}

/// Resizes a pass's image.
pub(super) fn pass(pass: &mut CpuPass<'_>, of: Resample, size: Size) -> Result<()> {
    let (factors, resampling) = of.steps(size, pass.order);
    let mut window = of.window;
    if !factors.is_identity() {
        debug_assert_eq!(window.size(), pass.image.size());
        window = Rect::full(factors.reduced(window.size()));
        pass.replace(window.size(), |input, out| factors.reduce(input, window, out))?;
    }
    // If there are two passes, the first makes an image of its own.
    let mut between = Image::default();
    let two = !resampling.columns.is_identity() && !resampling.rows.is_identity();
    if two && resampling.interpolation != Interpolation::Nearest {
        between.reserve(if resampling.vertical_first {
            Size::new(window.width, size.height)
        } else {
            Size::new(size.width, window.height)
        })?;
    }
    pass.replace(size, |input, out| resized_crop(input, window, &resampling, &mut between, out))
}

/// Resizes the rectangle `window` of a complete image as if it were an image of its own. `between` is memory for the
/// result of the first of two passes.
fn resized_crop(input: &Image, window: Rect, resampling: &Resampling, between: &mut Image, out: &mut Image) {
    let &Resampling { columns, rows, interpolation, vertical_first } = resampling;
    debug_assert_eq!(input.part(), Rect::full(input.whole()));
    debug_assert!(window.fits(input.size()));
    if resampling.is_identity() {
        return crop::crop(input, window.x as i32, window.y as i32, window.size(), Fill::BLACK, out);
    }
    if interpolation == Interpolation::Nearest {
        return repeat(input, window, columns, rows, out);
    }
    let taps = |stretch: Stretch| (!stretch.is_identity()).then(|| Taps::of_stretch(stretch, interpolation));
    match (taps(columns), taps(rows)) {
        (Some(columns), None) => horizontal(input, window, &columns, out),
        (None, Some(rows)) => vertical(input, window, &rows, out),
        (None, None) => {}
        (Some(columns), Some(rows)) => {
            if vertical_first {
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
fn repeat(input: &Image, window: Rect, columns: Stretch, rows: Stretch, out: &mut Image) {
    out.reset(Size::new(columns.output, rows.output));
    let [columns, rows] = [columns, rows].map(|stretch| Taps::<i32>::of_stretch(stretch, Interpolation::Nearest));
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
