//! Lowering: from a sample's operations to the stages that a back end runs.
//!
//! Flips, quarter turns, crops and nearest rotations in a row become one [`View`]: a chain of integer coordinate maps
//! that finds an output pixel's source without an intermediate image. Resizing, bilinear rotation and pixel
//! operations are stages that read a view. Working backwards from the output, each stage is told which part of its
//! result the next one reads, down to the part of the encoded image that must be decoded.

use super::filter::{self, PassOrder};
use super::op::{Fill, Interpolation, Op};
use super::rotation::{Rotation, fixed_point};
use crate::error::{Error, Result};
use crate::image::{Rect, Size, check_pixels};

/// Sides above this do not fit 16.16 fixed point; such images go through whole-image stages.
const MAX_FIXED_SIDE_PX: u32 = 32_767;

/// An exact map of whole coordinates: mirrors, transpositions, translations.
/// `(x, y)` comes from `(xx x + xy y + x0, yx x + yy y + y0)`.
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
    const IDENTITY: Self = Self { xx: 1, xy: 0, x0: 0, yx: 0, yy: 1, y0: 0 };

    fn translate(x0: i32, y0: i32) -> Self {
        Self { x0, y0, ..Self::IDENTITY }
    }

    fn apply(self, x: i32, y: i32) -> (i32, i32) {
        (self.xx * x + self.xy * y + self.x0, self.yx * x + self.yy * y + self.y0)
    }

    /// The map that first applies `inner`, then `self`.
    fn after(self, inner: Self) -> Self {
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

    /// The rectangle that a non-empty rectangle of output comes from.
    fn rect(self, part: Rect) -> Rect {
        let (ax, ay) = self.apply(part.x as i32, part.y as i32);
        let (bx, by) = self.apply(part.right() as i32 - 1, part.bottom() as i32 - 1);
        let (x, y) = (ax.min(bx), ay.min(by));
        Rect { x: x as u32, y: y as u32, width: ax.abs_diff(bx) + 1, height: ay.abs_diff(by) + 1 }
    }
}

/// One step of a coordinate chain: `x' = (a0 x + a1 y + a2) >> 16`, `y' = (a3 x + a4 y + a5) >> 16`; a result outside
/// `bounds` shows `fill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// 16.16 fixed point; sums wrap, their true values fit.
    pub(crate) a: [i32; 6],
    /// Size of the image that the step reads.
    pub(crate) bounds: Size,
    /// Colour of what lies outside.
    pub(crate) fill: [u8; 3],
}

impl Step {
    /// The step preceded (on the way from the output) by an exact map.
    fn after(self, inner: Exact) -> Self {
        let fold = |a0: i32, a1: i32, a2: i32| {
            [
                a0.wrapping_mul(inner.xx).wrapping_add(a1.wrapping_mul(inner.yx)),
                a0.wrapping_mul(inner.xy).wrapping_add(a1.wrapping_mul(inner.yy)),
                a2.wrapping_add(a0.wrapping_mul(inner.x0)).wrapping_add(a1.wrapping_mul(inner.y0)),
            ]
        };
        let a = self.a;
        let ([a0, a1, a2], [a3, a4, a5]) = (fold(a[0], a[1], a[2]), fold(a[3], a[4], a[5]));
        Self { a: [a0, a1, a2, a3, a4, a5], ..self }
    }

    /// Inclusive bounds of what a box of output coordinates maps to, clipped to the image; `None` if nothing does.
    fn reach(&self, [x0, y0, x1, y1]: [i64; 4]) -> Option<[i64; 4]> {
        let a = self.a.map(i64::from);
        // The box's corners give the extremes: the map is linear and the shift monotone.
        let extremes = |a0: i64, a1: i64, a2: i64, side: u32| {
            let (low_x, high_x) = if a0 >= 0 { (x0, x1) } else { (x1, x0) };
            let (low_y, high_y) = if a1 >= 0 { (y0, y1) } else { (y1, y0) };
            let low = (a2 + a0 * low_x + a1 * low_y) >> 16;
            let high = (a2 + a0 * high_x + a1 * high_y) >> 16;
            (low.max(0), high.min(i64::from(side) - 1))
        };
        let (x_low, x_high) = extremes(a[0], a[1], a[2], self.bounds.width);
        let (y_low, y_high) = extremes(a[3], a[4], a[5], self.bounds.height);
        (x_low <= x_high && y_low <= y_high).then_some([x_low, y_low, x_high, y_high])
    }
}

/// An image seen through a coordinate chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    /// Size of the image.
    pub(crate) input: Size,
    /// Size of what is seen of it.
    pub(crate) size: Size,
    /// In walking order: the step nearest the output first.
    pub(crate) steps: Vec<Step>,
    /// From the last step's coordinates to the image's.
    pub(crate) exact: Exact,
}

impl View {
    /// An image as it is.
    fn plain(size: Size) -> Self {
        Self { input: size, size, steps: Vec::new(), exact: Exact::IDENTITY }
    }

    /// Puts an exact map before everything else (it is the operation done last).
    fn exact(&mut self, map: Exact, size: Size) {
        match self.steps.first_mut() {
            Some(step) => *step = step.after(map),
            None => self.exact = self.exact.after(map),
        }
        self.size = size;
    }

    /// Puts a step before everything else.
    fn step(&mut self, a: [i32; 6], fill: [u8; 3], size: Size) {
        self.steps.insert(0, Step { a, bounds: self.size, fill });
        self.size = size;
    }

    fn hflip(&mut self) {
        self.exact(Exact { xx: -1, x0: self.size.width as i32 - 1, ..Exact::IDENTITY }, self.size);
    }

    fn vflip(&mut self) {
        self.exact(Exact { yy: -1, y0: self.size.height as i32 - 1, ..Exact::IDENTITY }, self.size);
    }

    /// A quarter turn counter-clockwise.
    fn quarter(&mut self) {
        let map = Exact { xx: 0, xy: -1, x0: self.size.width as i32 - 1, yx: 1, yy: 0, y0: 0 };
        self.exact(map, self.size.transposed());
    }

    /// Cuts out a rectangle that may reach outside. `false` if this chain cannot express it.
    fn crop(&mut self, x: i32, y: i32, size: Size, fill: [u8; 3]) -> bool {
        let inside = x >= 0
            && y >= 0
            && x as u32 as u64 + u64::from(size.width) <= u64::from(self.size.width)
            && y as u32 as u64 + u64::from(size.height) <= u64::from(self.size.height);
        if !inside {
            let far = [x, y, x + size.width as i32, y + size.height as i32];
            if !self.fits_fixed() || far.iter().any(|v| v.unsigned_abs() > MAX_FIXED_SIDE_PX) {
                return false;
            }
            self.step([1 << 16, 0, 0, 0, 1 << 16, 0], fill, self.size);
        }
        self.exact(Exact::translate(x, y), size);
        true
    }

    fn fits_fixed(&self) -> bool {
        self.size.width <= MAX_FIXED_SIDE_PX && self.size.height <= MAX_FIXED_SIDE_PX
    }

    /// Whether every row of the view is a run of a row of the image, as it is.
    pub(crate) fn is_plain_rows(&self) -> bool {
        self.steps.is_empty() && self.exact.xx == 1 && self.exact.yy == 1
    }

    /// The part of the image that `part` of the view shows. Where it shows nothing but fill: one pixel.
    ///
    /// Two bounds, of which the tighter counts on each side: step by step, a box of whatever box came before, clipped to
    /// the step's image; and the corners followed through all steps together, which does not grow with every turn.
    fn reach(&self, part: Rect) -> Rect {
        const NOTHING: Rect = Rect { x: 0, y: 0, width: 1, height: 1 };
        let mut boxed =
            [i64::from(part.x), i64::from(part.y), i64::from(part.right()) - 1, i64::from(part.bottom()) - 1];
        let [left, top, right, bottom] = boxed.map(|v| v as f64);
        let mut corners = [(left, top), (right, top), (left, bottom), (right, bottom)];
        for step in &self.steps {
            match step.reach(boxed) {
                Some(next) => boxed = next,
                None => return NOTHING,
            }
            // The step rounds down: on average by half a pixel, by half a pixel more or less.
            let a = step.a.map(|a| f64::from(a) / 65536.0);
            corners = corners.map(|(x, y)| (a[0] * x + a[1] * y + a[2] - 0.5, a[3] * x + a[4] * y + a[5] - 0.5));
        }
        if !self.steps.is_empty() {
            // Rotations keep the length of what earlier steps have rounded off: half a diagonal each, at most. The
            // hundredth is for fixed-point matrices that are not quite rotations, the pixel for everything else.
            let margin = 1.01 * std::f64::consts::FRAC_1_SQRT_2 * self.steps.len() as f64 + 1.0;
            let extent = |values: [f64; 4]| {
                let low = values.into_iter().fold(f64::INFINITY, f64::min) - margin;
                let high = values.into_iter().fold(f64::NEG_INFINITY, f64::max) + margin;
                (low.floor() as i64, high.ceil() as i64)
            };
            let (x, y) = (extent(corners.map(|c| c.0)), extent(corners.map(|c| c.1)));
            boxed = [boxed[0].max(x.0), boxed[1].max(y.0), boxed[2].min(x.1), boxed[3].min(y.1)];
        }
        let [x0, y0, x1, y1] = boxed;
        if x0 > x1 || y0 > y1 {
            return NOTHING;
        }
        let (width, height) = ((x1 - x0 + 1) as u32, (y1 - y0 + 1) as u32);
        self.exact.rect(Rect { x: x0 as u32, y: y0 as u32, width, height })
    }
}

/// What a stage does with the view it reads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Work {
    /// Writes the view out, for a stage that reads pixels of an image.
    Gather,
    /// Resizes.
    Resample(Resampling),
    /// Samples bilinearly through an affine map from output pixel centres; the view is plain.
    Affine { matrix: [f64; 6], canvas: Size, fill: Fill },
    /// One pixel operation on the part needed; the view is plain.
    Pixels(Op),
    /// One operation on the complete image, as the sequential strategy does it; the view is plain.
    Whole(Op),
}

/// A resize, settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resampling {
    pub(crate) size: Size,
    pub(crate) interpolation: Interpolation,
    /// Whether the vertical pass comes before the horizontal one.
    pub(crate) vertical_first: bool,
}

/// One stage of a sample's plan: reads an image, makes the next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stage {
    /// How it sees the image it reads.
    pub(crate) view: View,
    /// What it does.
    pub(crate) work: Work,
    /// Size of its complete result.
    pub(crate) size: Size,
    /// The part of its result that is needed.
    pub(crate) part: Rect,
}

/// A rectangle overwritten after normalisation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Erasure {
    pub(crate) rect: Rect,
    pub(crate) value: [f32; 3],
}

/// What is to be done for one sample: decode a part, run the stages, write the last view out as the output's type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// The part of the stored image to decode.
    pub(crate) decode: Rect,
    pub(crate) stages: Vec<Stage>,
    /// How the output sees the last stage's image.
    pub(crate) last: View,
    pub(crate) epilogue: Epilogue,
}

/// What happens to the 8-bit result on its way out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Epilogue {
    /// Mean and standard deviation of each channel.
    pub(crate) normalize: Option<([f32; 3], [f32; 3])>,
    /// What is overwritten after it.
    pub(crate) erasures: Vec<Erasure>,
}

/// Splits a recipe into operations on 8-bit images and the epilogue.
///
/// # Errors
/// [`Error::Parameter`] if anything but `erase` follows `normalize`.
pub(crate) fn split_epilogue(ops: &[Op]) -> Result<(&[Op], Epilogue)> {
    let Some(at) = ops.iter().position(|op| matches!(op, Op::Normalize { .. })) else {
        return Ok((ops, Epilogue::default()));
    };
    let mut epilogue = Epilogue::default();
    for op in &ops[at..] {
        op.validate()?;
        match *op {
            Op::Normalize { mean, std } if epilogue.normalize.is_none() => epilogue.normalize = Some((mean, std)),
            Op::Erase { x, y, width, height, value } => {
                epilogue.erasures.push(Erasure { rect: Rect { x, y, width, height }, value });
            }
            _ => return Err(Error::parameter(op.name(), "place", "before normalize", "after it")),
        }
    }
    Ok((&ops[..at], epilogue))
}

/// Which arithmetic a plan uses for geometric operations in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Geometry {
    /// Each operation's own, to the byte.
    Exact,
    /// Flips, crops and rotations multiplied into one affine map and sampled once.
    Composed,
}

/// Plans `ops` for an image of size `input`.
///
/// # Errors
/// [`Error::Parameter`] for a parameter that is wrong or does not fit the image, [`Error::Limits`] for an intermediate
/// image of more than `max_px` pixels.
pub(crate) fn plan(ops: &[Op], input: Size, max_px: u64, geometry: Geometry, order: PassOrder) -> Result<Plan> {
    let (ops, epilogue) = split_epilogue(ops)?;
    let mut lowering =
        Lowering { view: View::plain(input), stages: Vec::new(), affine: None, max_px, size: input, geometry, order };
    for op in ops {
        lowering.add(op)?;
    }
    lowering.end_affine(lowering.size);
    let Lowering { view: last, mut stages, .. } = lowering;
    for erasure in &epilogue.erasures {
        if !erasure.rect.fits(last.size) {
            let Rect { x, y, width, height } = erasure.rect;
            let got = format!("{width} x {height} at ({x}, {y})");
            return Err(Error::parameter("erase", "rectangle", format!("inside the image of {}", last.size), got));
        }
    }
    // Backwards: what each stage must make, and read.
    let mut needed = last.reach(Rect::full(last.size));
    for stage in stages.iter_mut().rev() {
        if matches!(stage.work, Work::Whole(_)) {
            needed = Rect::full(stage.size);
        }
        stage.part = needed;
        needed = stage.view.reach(stage.reads());
    }
    Ok(Plan { decode: needed, stages, last, epilogue })
}

impl Stage {
    /// The part of its view that it reads.
    pub(crate) fn reads(&self) -> Rect {
        let (part, view) = (self.part, self.view.size);
        match &self.work {
            Work::Gather => part,
            Work::Whole(_) => Rect::full(view),
            Work::Resample(Resampling { size, interpolation, .. }) => {
                let columns = filter::reach(view.width, size.width, part.x..part.right(), *interpolation);
                let rows = filter::reach(view.height, size.height, part.y..part.bottom(), *interpolation);
                Rect {
                    x: columns.start,
                    y: rows.start,
                    width: columns.end - columns.start,
                    height: rows.end - rows.start,
                }
            }
            Work::Affine { matrix, .. } => affine_reach(matrix, part, view),
            Work::Pixels(op) => {
                let margin = match *op {
                    Op::GaussianBlur { kernel, .. } | Op::Dilate { kernel } | Op::Erode { kernel } => kernel / 2,
                    _ => 0,
                };
                let (x, y) = (part.x.saturating_sub(margin), part.y.saturating_sub(margin));
                Rect {
                    x,
                    y,
                    width: (part.right() + margin).min(view.width) - x,
                    height: (part.bottom() + margin).min(view.height) - y,
                }
            }
        }
    }
}

/// The pixels that sampling of `part` through an affine map can read from an image of size `input`. Never empty.
pub(crate) fn affine_reach(m: &[f64; 6], part: Rect, input: Size) -> Rect {
    let xs = [f64::from(part.x) + 0.5, f64::from(part.right()) - 0.5];
    let ys = [f64::from(part.y) + 0.5, f64::from(part.bottom()) - 0.5];
    let axis = |a: f64, b: f64, c: f64, side: u32| {
        let corners = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, j): (usize, usize)| a * xs[i] + b * ys[j] + c);
        let low = corners.into_iter().fold(f64::INFINITY, f64::min);
        let high = corners.into_iter().fold(f64::NEG_INFINITY, f64::max);
        // A pixel more than the neighbours read on either side, against rounding.
        let last = f64::from(side) - 1.0;
        let low = (low.floor() - 2.0).clamp(0.0, last) as u32;
        let high = (high.floor() + 2.0).clamp(0.0, last) as u32;
        (low, high - low + 1)
    };
    let (x, width) = axis(m[0], m[1], m[2], input.width);
    let (y, height) = axis(m[3], m[4], m[5], input.height);
    Rect { x, y, width, height }
}

/// Affine maps being multiplied, of the composed strategy.
struct Affine {
    matrix: [f64; 6],
    fill: Fill,
}

struct Lowering {
    /// The image so far, as seen from where the next operation stands.
    view: View,
    stages: Vec<Stage>,
    /// In the composed strategy, what is not yet in a stage: maps on top of the view.
    affine: Option<Affine>,
    max_px: u64,
    /// Size of the image so far.
    size: Size,
    geometry: Geometry,
    order: PassOrder,
}

impl Lowering {
    /// Ends the view with a stage; the next operations see its result.
    fn stage(&mut self, work: Work, size: Size) {
        let view = std::mem::replace(&mut self.view, View::plain(size));
        self.stages.push(Stage { view, work, size, part: Rect::full(size) });
    }

    /// Makes the view plain, for stages that read an image.
    fn make_plain(&mut self) {
        // A corner of the image is not the image, though its coordinates are the same.
        if self.view != View::plain(self.view.input) {
            self.stage(Work::Gather, self.view.size);
        }
    }

    fn whole(&mut self, op: &Op, size: Size) {
        self.make_plain();
        self.stage(Work::Whole(op.clone()), size);
    }

    fn add(&mut self, op: &Op) -> Result<()> {
        let input = self.size;
        let size = op.output_size(input)?;
        check_pixels(size, self.max_px)?;
        self.size = size;
        if self.geometry == Geometry::Composed && self.compose(op, input) {
            return Ok(());
        }
        self.end_affine(input);
        match *op {
            Op::Hflip => self.view.hflip(),
            Op::Vflip => self.view.vflip(),
            Op::Rotate { degrees, interpolation, expand, fill } => {
                self.rotate(op, Rotation::new(input, degrees, expand, fill), interpolation, fill);
            }
            Op::Crop { x, y, fill, .. } => self.crop(op, x, y, size, fill),
            Op::CenterCrop { .. } => {
                let (x, y) = center_crop_place(input, size);
                self.crop(op, x, y, size, Fill::BLACK);
            }
            Op::Resize(resize) => self.resample(size, resize.interpolation),
            Op::ResizedCrop { x, y, width, height, interpolation, .. } => {
                self.view.crop(x as i32, y as i32, Size { width, height }, [0; 3]);
                self.resample(size, interpolation);
            }
            Op::GaussianBlur { .. }
            | Op::Dilate { .. }
            | Op::Erode { .. }
            | Op::Brightness { .. }
            | Op::Saturation { .. }
            | Op::Hue { .. }
            | Op::Grayscale
            | Op::Erase { .. } => {
                self.make_plain();
                self.stage(Work::Pixels(op.clone()), size);
            }
            // Contrast needs the mean of the complete image.
            Op::Contrast { .. } | Op::Custom(_) => self.whole(op, size),
            Op::Normalize { .. } => return Err(Error::parameter("normalize", "place", "once, at the end", "twice")),
        }
        Ok(())
    }

    fn resample(&mut self, size: Size, interpolation: Interpolation) {
        if size != self.view.size {
            let vertical_first = self.order.vertical_first(self.view.size, size);
            self.stage(Work::Resample(Resampling { size, interpolation, vertical_first }), size);
        }
    }

    fn crop(&mut self, op: &Op, x: i32, y: i32, size: Size, fill: Fill) {
        let done = match fill {
            Fill::Color(color) => self.view.crop(x, y, size, color),
            // Without anything outside, the fill does not matter.
            Fill::Edge(_) => {
                x >= 0
                    && y >= 0
                    && (Rect { x: x as u32, y: y as u32, width: size.width, height: size.height }).fits(self.view.size)
                    && self.view.crop(x, y, size, [0; 3])
            }
        };
        if !done {
            self.whole(op, size);
        }
    }

    fn rotate(&mut self, op: &Op, rotation: Rotation, interpolation: Interpolation, fill: Fill) {
        match rotation {
            Rotation::None => {}
            Rotation::Quarter => self.view.quarter(),
            Rotation::Half => {
                self.view.hflip();
                self.view.vflip();
            }
            Rotation::ThreeQuarters => (0..3).for_each(|_| self.view.quarter()),
            Rotation::Free { matrix, canvas } if interpolation == Interpolation::Bilinear => {
                self.make_plain();
                self.stage(Work::Affine { matrix, canvas, fill }, canvas);
            }
            Rotation::Free { matrix, canvas } => {
                let fixed = fixed_point(matrix, canvas).filter(|_| self.view.fits_fixed());
                match (fixed, fill) {
                    (Some(a), Fill::Color(color)) => self.view.step(a, color, canvas),
                    _ => self.whole(op, canvas),
                }
            }
        }
    }

    /// Composed strategy: takes up a flip, crop or rotation into the affine map. `false` for any other operation.
    fn compose(&mut self, op: &Op, input: Size) -> bool {
        let (w, h) = (f64::from(input.width), f64::from(input.height));
        let (map, fill) = match *op {
            Op::Hflip => ([-1.0, 0.0, w, 0.0, 1.0, 0.0], None),
            Op::Vflip => ([1.0, 0.0, 0.0, 0.0, -1.0, h], None),
            Op::Crop { x, y, width, height, .. }
                if x >= 0 && y >= 0 && (Rect { x: x as u32, y: y as u32, width, height }).fits(input) =>
            {
                ([1.0, 0.0, f64::from(x), 0.0, 1.0, f64::from(y)], None)
            }
            Op::Rotate { degrees, expand, fill, .. } => match Rotation::new(input, degrees, expand, fill) {
                Rotation::Free { matrix, .. } => (matrix, Some(fill)),
                Rotation::None => return true,
                Rotation::Half => ([-1.0, 0.0, w, 0.0, -1.0, h], None),
                Rotation::Quarter => ([0.0, -1.0, w, 1.0, 0.0, 0.0], None),
                Rotation::ThreeQuarters => ([0.0, 1.0, 0.0, -1.0, 0.0, h], None),
            },
            _ => return false,
        };
        // Until something is to be sampled, exact maps stay exact.
        let Some(affine) = &mut self.affine else {
            let Some(fill) = fill else { return false };
            self.affine = Some(Affine { matrix: map, fill });
            return true;
        };
        let (m, n) = (affine.matrix, map);
        affine.matrix = [
            m[0] * n[0] + m[1] * n[3],
            m[0] * n[1] + m[1] * n[4],
            m[0] * n[2] + m[1] * n[5] + m[2],
            m[3] * n[0] + m[4] * n[3],
            m[3] * n[1] + m[4] * n[4],
            m[3] * n[2] + m[4] * n[5] + m[5],
        ];
        affine.fill = fill.unwrap_or(affine.fill);
        true
    }

    /// Ends the affine map with a stage that samples through it.
    fn end_affine(&mut self, canvas: Size) {
        if let Some(Affine { matrix, fill }) = self.affine.take() {
            self.make_plain();
            self.stage(Work::Affine { matrix, canvas, fill }, canvas);
        }
    }
}

/// Top left corner of torchvision's `center_crop`, negative where the image is smaller and is padded.
pub(crate) fn center_crop_place(input: Size, size: Size) -> (i32, i32) {
    // Padded first: (wanted - side) / 2 before, (wanted - side + 1) / 2 after. Then cropped about the centre of the
    // padded image, ties to even.
    let axis = |side: u32, wanted: u32| {
        let (side, wanted) = (i64::from(side), i64::from(wanted));
        if wanted > side {
            return (-(wanted - side) / 2) as i32;
        }
        ((side - wanted) as f64 / 2.0).round_ties_even() as i32
    };
    (axis(input.width, size.width), axis(input.height, size.height))
}
