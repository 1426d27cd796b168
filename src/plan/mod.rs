//! Plans: from a sample's operations to the stages that a back end runs.
//!
//! A [`Planner`] makes the plan of a recipe, which is a list of stages. A back end knows neither strategies nor
//! recipes. The smallest rectangle that all plans of an image need is decoded once; then no plan may write to the
//! decoded image.
//!
//! Consecutive flips, quarter turns, crops, nearest rotations, and shears and translations by the nearest pixel become
//! one [`ImageView`]: an exact integer map and a list of steps in 16.16 fixed point, as in Pillow, each with its bounds
//! and its fill. Operations on single bytes become one table, which the view applies as it reads. Other operations are
//! stages. The epilogue (normalization, conversion, erasing after normalization) is done while rows are written to the
//! batch.
//!
//! Geometry that cannot be expressed in fixed point (sides over 32,767 pixels, edge fill, and matrices that Pillow
//! itself computes in doubles) becomes a stage on the whole image.
//!
//! A pass from the output backwards determines which part of each stage's result is read, down to the rectangle that
//! must be decoded. Of two bounds the tighter one counts: the box of the step, which grows with every turn, and the
//! corners followed through all steps, with a margin for rounding. Where stages sample one after the other, each makes
//! only the pixels around the points of the next one.

pub(crate) mod view;

use crate::error::{Error, Result};
use crate::ops::affine_warp::AffineWarp;
use crate::ops::byte_table::ByteTable;
use crate::ops::fill::Fill;
use crate::ops::filter::{self, Interpolation, PassOrder};
use crate::ops::needed_pixels::{NeededPixels, REACH_PX, SampledPoints};
use crate::ops::normalize::Normalization;
use crate::ops::reduce::Factors;
use crate::ops::resize::{Resample, Resampling};
use crate::ops::rotation::fixed_point;
use crate::ops::values::{PixelValues, ValueWork};
use crate::ops::{Finish, Op, Overwrite, Primitive, Reach, check};
use crate::raster::{Rect, Size, check_pixels};
use view::ImageView;

/// The way in which a recipe is run. The three strategies give a recipe the same meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// One pass per operation; every intermediate image is made. This is the specification of the other strategies, and
    /// the right load for a comparison with loaders that work this way.
    Sequential,
    /// Consecutive geometric operations become one gather, and only the part that the output needs is decoded and
    /// computed. The bytes are those of [`Sequential`](Self::Sequential).
    #[default]
    Fused,
    /// Consecutive flips, crops and rotations are multiplied into one affine map, and the image is sampled once,
    /// bilinearly. The result is sharper than with sampling for each rotation, and different. The cost does not grow
    /// with the number of rotations: on the CPU it is half of [`Fused`](Self::Fused)'s for four bilinear rotations, and
    /// no less for up to a dozen nearest ones.
    Composed,
}

choices! {
    Strategy, "strategy":
    Fused = "fused", "Neighboring operations in one pass, only for the pixels that the output needs; the bytes of sequential.";
    Sequential = "sequential", "One pass for each operation.";
    Composed = "composed", "One bilinear sampling for all rotations and flips; sharper than the other strategies' result.";
}

/// Bytes of a pixel of an RGB image in memory.
const PIXEL_BYTES: u64 = 4;

/// A stage's work on the view that it reads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StageWork<'a> {
    /// Writes the view out, for a stage that reads pixels of an image.
    Gather,
    /// Replaces each byte of the image by its value in a table; the view is plain.
    Table(Box<ByteTable>),
    /// Reduces by whole factors; the view is plain.
    Reduce(Factors),
    /// Resizes.
    Resample(Resampling),
    /// Samples through an affine map, bilinear or bicubic. The view has no steps and no table.
    Affine(AffineWarp),
    /// Runs one pass of an operation, on the part that the pass can be restricted to; the view is plain.
    Pass(&'a Op, Reach),
    /// Works on the values of an image that is not RGB of 8 bits; the view is plain.
    Values(ValueWork),
}

/// One stage of a sample's plan. It reads an image and makes the next one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stage<'a> {
    /// ImageView of the image that the stage reads.
    pub(crate) view: ImageView,
    /// The stage's work.
    pub(crate) work: StageWork<'a>,
    /// Size of the stage's complete result.
    pub(crate) size: Size,
    /// The part of the stage's result that is needed.
    pub(crate) part: Rect,
    /// If the next stage samples through an affine map: the points where it does.
    pub(crate) sampled: Option<SampledPoints>,
}

/// The step from the last stage's image to the output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Last {
    /// The image is the output.
    Plain,
    /// The output is a view of the image.
    View(ImageView),
    /// The image is resized while the output is written.
    Resample {
        /// ImageView of the image that the resize reads.
        view: ImageView,
        resampling: Resampling,
        /// The part of the resize's result that is needed.
        part: Rect,
        columns: Mirror,
        rows: Mirror,
        /// Table for the bytes of the resize's result.
        table: Option<Box<ByteTable>>,
    },
}

/// Row or column `place` of the output is row or column `sign * place + start` of a resize's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// 1, or -1 if the output is mirrored.
    pub(crate) sign: i32,
    pub(crate) start: i32,
}

/// The plan of one sample: decode a part, run the stages, write the output in its type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan<'a> {
    /// The part of the stored image to decode.
    pub(crate) decode: Rect,
    pub(crate) stages: Vec<Stage<'a>>,
    pub(crate) last: Last,
    /// Size of the output.
    pub(crate) size: Size,
    pub(crate) epilogue: Epilogue,
    /// Order of a resize's passes.
    pub(crate) order: PassOrder,
    /// The values of the output, if they are not RGB of 8 bits.
    pub(crate) values: Option<PixelValues>,
}

/// Changes of the 8-bit result while the output is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Epilogue {
    /// Mean and standard deviation of each channel.
    pub(crate) normalize: Normalization,
    /// Rectangles that are overwritten after normalization, in this order.
    pub(crate) erasures: Vec<Overwrite>,
}

/// Splits a recipe into operations on 8-bit images and operations of the epilogue, which begin with `normalize`.
fn split_epilogue(ops: &[Op]) -> (&[Op], &[Op]) {
    ops.split_at(ops.iter().position(|op| op.normalization().is_some()).unwrap_or(ops.len()))
}

impl Epilogue {
    /// The epilogue of operations that begin with `normalize`, for an output of this size.
    ///
    /// # Errors
    /// [`Error::Parameter`] if an operation on 8-bit images is among them, or if a rectangle lies outside the output.
    fn new(ops: &[Op], size: Size, values: &PixelValues) -> Result<Self> {
        let mut epilogue = Self::default();
        for op in ops {
            op.validate()?;
            op.takes(values)?;
            match op.finish() {
                Some(Finish::Normalize(mean, std)) if epilogue.normalize.is_none() => {
                    epilogue.normalize = Some((mean, std));
                }
                Some(Finish::Overwrite(overwrite)) => epilogue.erasures.push(overwrite),
                Some(Finish::Normalize(..)) | None => {
                    return Err(Error::parameter(op.name(), "place", "before normalize", "after it"));
                }
            }
        }
        epilogue.erasures.iter().try_for_each(|erasure| check::inside("erase", erasure.rect, size))?;
        Ok(epilogue)
    }
}

/// Settings by which recipes become plans.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planner {
    pub(crate) strategy: Strategy,
    /// Order of the two passes of a resize.
    pub(crate) order: PassOrder,
    /// Limit of every image on the way, in pixels of RGB.
    pub(crate) max_px: u64,
    /// The values of images as they are decoded, if they are not RGB of 8 bits.
    pub(crate) values: Option<PixelValues>,
}

impl Planner {
    /// Plans each of several recipes for one image of size `input`, which the first `done` operations of all recipes
    /// have made already. Several plans leave the decoded image as it is, for each other.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a parameter that is wrong or does not fit the image, [`Error::Limits`] for an
    /// intermediate image that is too large.
    pub(crate) fn plan<'a>(&self, recipes: &'a [Vec<Op>], done: usize, input: Size) -> Result<Vec<Plan<'a>>> {
        let mut plans = recipes
            .iter()
            .map(|ops| self.plan_one(ops.get(done..).unwrap_or_default(), input))
            .collect::<Result<Vec<_>>>()?;
        if plans.len() > 1 {
            plans.iter_mut().for_each(|plan| plan.keep_decoded(input));
        }
        Ok(plans)
    }

    /// Limit of an image as it is stored, in pixels. Of images that are not RGB only the part that is decoded counts.
    pub(crate) fn most_stored_px(&self) -> u64 {
        if self.values.is_some() { u64::MAX } else { self.max_px }
    }

    /// Plans the only recipe of an image of size `input`.
    ///
    /// # Errors
    /// See [`plan`](Self::plan).
    pub(crate) fn plan_one<'a>(&self, ops: &'a [Op], input: Size) -> Result<Plan<'a>> {
        if let Some(values) = self.values {
            return self.plan_values(ops, input, values);
        }
        let (pixel_ops, epilogue) = split_epilogue(ops);
        let order = self.order;
        let mut lowering =
            StageBuilder { view: ImageView::plain(input), stages: Vec::new(), affine: None, size: input, order };
        for op in pixel_ops {
            op.takes(&PixelValues::RGB8)?;
            let input = lowering.size;
            let size = op.output_size(input)?;
            check_pixels(size, self.max_px)?;
            lowering.size = size;
            match self.strategy {
                Strategy::Sequential => lowering.stage(StageWork::Pass(op, Reach::Whole), size),
                Strategy::Fused => lowering.add(op, op.primitive(input)),
                Strategy::Composed => lowering.compose(op, op.primitive(input), input),
            }
        }
        lowering.end_affine(lowering.size);
        let StageBuilder { view, mut stages, size, .. } = lowering;
        let epilogue = Epilogue::new(epilogue, size, &PixelValues::RGB8)?;
        let decode = reach_back(&mut stages, view.reach(Rect::full(size)));
        let last = last(view, &mut stages);
        Ok(Plan { decode, stages, last, size, epilogue, order, values: None })
    }

    /// Plans the only recipe of an image with these values: a stage for each operation that does something.
    fn plan_values<'a>(&self, ops: &'a [Op], input: Size, mut values: PixelValues) -> Result<Plan<'a>> {
        let (pixel_ops, epilogue) = split_epilogue(ops);
        let (mut stages, mut size) = (Vec::new(), input);
        for op in pixel_ops {
            op.takes(&values)?;
            let next = op.output_size(size)?;
            let work = op.on_values(&values, size, next, self.order).ok_or_else(|| values.refused(op.name()))?;
            values.kind = work.kind(values.kind);
            self.check_size(next, &values)?;
            if work != ValueWork::Keep {
                let (view, part) = (ImageView::plain(size), Rect::full(next));
                stages.push(Stage { view, work: StageWork::Values(work), size: next, part, sampled: None });
            }
            size = next;
        }
        let epilogue = Epilogue::new(epilogue, size, &values)?;
        let decode = reach_back(&mut stages, Rect::full(size));
        self.check_size(decode.size(), &self.values.unwrap_or(values))?;
        Ok(Plan { decode, stages, last: Last::Plain, size, epilogue, order: self.order, values: Some(values) })
    }

    /// Checks the size of an image, which may be on its way, against the limit.
    ///
    /// # Errors
    /// [`Error::Limits`] if it takes more memory than an RGB image of the largest size.
    fn check_size(&self, size: Size, values: &PixelValues) -> Result<()> {
        let most_px = self.max_px.saturating_mul(PIXEL_BYTES) / values.kind.len_bytes(1);
        Ok(check_pixels(size, most_px)?)
    }
}

/// Goes from the last stage back to the first, and tells each what it must make. Returns what the first one reads.
fn reach_back(stages: &mut [Stage<'_>], needed: Rect) -> Rect {
    let (mut needed, mut sampled) = (needed, None);
    for stage in stages.iter_mut().rev() {
        if matches!(stage.work, StageWork::Pass(_, Reach::Whole)) {
            (needed, sampled) = (Rect::full(stage.size), None);
        }
        (stage.part, stage.sampled) = (needed, sampled);
        (needed, sampled) = stage.needs();
    }
    needed
}

/// The smallest rectangle that contains the decoded rectangles of all plans of an image.
pub(crate) fn decoded_by(plans: &[Plan<'_>]) -> Rect {
    let around = |a: Rect, b: Rect| {
        let (x, y) = (a.x.min(b.x), a.y.min(b.y));
        Rect { x, y, width: a.right().max(b.right()) - x, height: a.bottom().max(b.bottom()) - y }
    };
    plans.iter().map(|plan| plan.decode).reduce(around).unwrap_or(Rect { x: 0, y: 0, width: 0, height: 0 })
}

impl Plan<'_> {
    /// Whether the output is the image itself.
    pub(crate) fn changes_nothing(&self) -> bool {
        self.stages.is_empty() && self.last == Last::Plain
    }

    /// Makes the plan leave the decoded image as it is. If it would work in place, it now begins with a copy of the
    /// part that it needs.
    fn keep_decoded(&mut self, size: Size) {
        let in_place = match (self.stages.first(), &self.last) {
            (Some(Stage { work: StageWork::Pass(..) | StageWork::Table(_), .. }), _) => true,
            (Some(first), _) => first.view.table.is_some(),
            (None, Last::View(view)) => view.table.is_some(),
            (None, Last::Plain | Last::Resample { .. }) => false,
        };
        if in_place {
            self.stages.insert(
                0,
                Stage { view: ImageView::plain(size), work: StageWork::Gather, size, part: self.decode, sampled: None },
            );
        }
    }
}

/// The step to the output. If the last stage is a resize, it writes its rows directly to the output, mirrored as the
/// view says.
fn last(seen: ImageView, stages: &mut Vec<Stage<'_>>) -> Last {
    if seen == ImageView::plain(seen.input)
        && !matches!(stages.last(), Some(Stage { work: StageWork::Resample(_), .. }))
    {
        return Last::Plain;
    }
    let exact = seen.exact;
    let mirrored = seen.steps.is_empty() && exact.xy == 0;
    match stages.pop_if(|stage| mirrored && matches!(stage.work, StageWork::Resample(_))) {
        Some(Stage { view, work: StageWork::Resample(resampling), part, .. }) => {
            let columns = Mirror { sign: exact.xx, start: exact.x0 };
            let rows = Mirror { sign: exact.yy, start: exact.y0 };
            Last::Resample { view, resampling, part, columns, rows, table: seen.table }
        }
        _ => Last::View(seen),
    }
}

impl Stage<'_> {
    /// The pixels of the result that are needed.
    pub(crate) fn needed(&self) -> NeededPixels<'_> {
        NeededPixels { part: self.part, points: self.sampled.as_ref() }
    }

    /// The part of the image that the stage reads, and the points of it where it samples.
    fn needs(&self) -> (Rect, Option<SampledPoints>) {
        let part = self.view.reach(self.reads());
        let StageWork::Affine(warp) = self.work else { return (part, None) };
        let exact = self.view.exact;
        // At points outside of the view, its edge is read.
        let view = exact.rect(Rect::full(self.view.size));
        let points = warp.points(&self.needed()).mapped(exact.matrix()).clamped(view);
        (points.as_ref().map_or(part, |points| points.within(REACH_PX, part)), points)
    }

    /// The part of the view that the stage reads.
    fn reads(&self) -> Rect {
        let (part, view) = (self.part, self.view.size);
        match self.work {
            StageWork::Gather | StageWork::Table(_) => part,
            StageWork::Pass(_, Reach::Whole) => Rect::full(view),
            StageWork::Pass(_, Reach::Around(margin)) => {
                let (x, y) = (part.x.saturating_sub(margin), part.y.saturating_sub(margin));
                Rect {
                    x,
                    y,
                    width: (part.right() + margin).min(view.width) - x,
                    height: (part.bottom() + margin).min(view.height) - y,
                }
            }
            StageWork::Reduce(factors) => factors.reach(part, view),
            StageWork::Resample(Resampling { columns, rows, interpolation, .. }) => {
                let columns = filter::reach(columns, part.x..part.right(), interpolation);
                let rows = filter::reach(rows, part.y..part.bottom(), interpolation);
                Rect {
                    x: columns.start,
                    y: rows.start,
                    width: columns.end - columns.start,
                    height: rows.end - rows.start,
                }
            }
            StageWork::Affine(sampling) => sampling.reach(part, view),
            StageWork::Values(ref work) => work.reads(part, view),
        }
    }
}

/// Affine maps that the composed strategy has multiplied so far.
struct ComposedAffine {
    matrix: [f64; 6],
    fill: Fill,
}

struct StageBuilder<'a> {
    /// The image so far, as the next operation sees it.
    view: ImageView,
    stages: Vec<Stage<'a>>,
    /// Composed strategy: affine maps that follow the view and are not in a stage yet.
    affine: Option<ComposedAffine>,
    /// Size of the image so far.
    size: Size,
    order: PassOrder,
}

impl<'a> StageBuilder<'a> {
    /// Ends the view with a stage. The next operations see the stage's result.
    fn stage(&mut self, work: StageWork<'a>, size: Size) {
        let view = std::mem::replace(&mut self.view, ImageView::plain(size));
        self.stages.push(Stage { view, work, size, part: Rect::full(size), sampled: None });
    }

    /// Like [`stage`](Self::stage), for a stage that reads an image and not a view.
    fn stage_on_plain(&mut self, work: StageWork<'a>, size: Size) {
        self.write_out();
        self.stage(work, size);
    }

    /// Adds a stage that samples through an affine map.
    fn affine(&mut self, warp: AffineWarp, size: Size) {
        if !self.view.steps.is_empty() || self.view.table.is_some() {
            self.write_out();
        }
        self.stage(StageWork::Affine(warp), size);
    }

    /// Writes the view out as an image, unless it is the image itself.
    fn write_out(&mut self) {
        let (size, table) = (self.view.size, self.view.table.take());
        // A view of the image's corner has the image's coordinates, but it is not the whole image.
        if self.view != ImageView::plain(self.view.input) {
            self.view.table = table;
            self.stage(StageWork::Gather, size);
        } else if let Some(table) = table {
            self.stage(StageWork::Table(table), size);
        }
    }

    /// Adds an operation. `self.size` is already the size after it.
    fn add(&mut self, op: &'a Op, primitive: Primitive<'_>) {
        let done = match primitive {
            Primitive::Identity => true,
            Primitive::Turn(turn) => {
                self.view.turn(turn);
                true
            }
            Primitive::Crop { x, y, fill } => self.crop(x, y, fill),
            Primitive::Affine(sampling) => self.sample(sampling),
            Primitive::Resample(of) => {
                self.resample(of);
                true
            }
            Primitive::Table(table) => {
                self.view.table(&table);
                true
            }
            Primitive::Pass(_, reach) => {
                self.stage_on_plain(StageWork::Pass(op, reach), self.size);
                true
            }
        };
        // An operation that a view cannot express becomes a pass on the complete image.
        if !done {
            self.stage_on_plain(StageWork::Pass(op, Reach::Whole), self.size);
        }
    }

    fn resample(&mut self, of: Resample) {
        let (factors, resampling) = of.steps(self.size, self.order);
        if !factors.is_identity() {
            let reduced = factors.reduced(of.window.size());
            self.stage_on_plain(StageWork::Reduce(factors), reduced);
        } else {
            if self.view.table.is_some() && !resampling.is_identity() {
                self.write_out();
            }
            // The window lies inside the image, so any view can be cut there.
            self.view.crop(of.window.x as i32, of.window.y as i32, of.window.size(), [0; 3]);
        }
        if !resampling.is_identity() {
            self.stage(StageWork::Resample(resampling), self.size);
        }
    }

    fn crop(&mut self, x: i32, y: i32, fill: Fill) -> bool {
        match fill {
            Fill::Color(color) => self.view.crop(x, y, self.size, color),
            // The crop lies inside the image, so the fill does not matter.
            Fill::Values(_) => self.view.crop(x, y, self.size, fill.color()),
            Fill::Edge(_) => fits(x, y, self.size, self.view.size) && self.view.crop(x, y, self.size, [0; 3]),
        }
    }

    fn sample(&mut self, sampling: AffineWarp) -> bool {
        if sampling.interpolation != Interpolation::Nearest {
            self.affine(sampling, self.size);
            return true;
        }
        let fixed = fixed_point(sampling.matrix, self.size).filter(|_| self.view.fits_fixed());
        match (fixed, sampling.fill) {
            (Some(a), fill @ (Fill::Color(_) | Fill::Values(_))) => {
                self.view.step(a, fill.color(), self.size);
                true
            }
            _ => false,
        }
    }

    /// Adds an operation in the composed strategy: multiplies it if it is an affine map. `input` is the size before the
    /// operation.
    fn compose(&mut self, op: &'a Op, primitive: Primitive<'_>, input: Size) {
        let map = match primitive {
            Primitive::Identity => return,
            Primitive::Turn(turn) => Some((turn.map(input).matrix(), None)),
            Primitive::Crop { x, y, .. } if fits(x, y, self.size, input) => {
                Some(([1.0, 0.0, f64::from(x), 0.0, 1.0, f64::from(y)], None))
            }
            Primitive::Affine(sampling) => Some((sampling.matrix, Some(sampling.fill))),
            Primitive::Crop { .. } | Primitive::Resample(_) | Primitive::Table(_) | Primitive::Pass(..) => None,
        };
        match (&mut self.affine, map) {
            (Some(affine), Some((n, fill))) => {
                let m = affine.matrix;
                affine.matrix = [
                    m[0] * n[0] + m[1] * n[3],
                    m[0] * n[1] + m[1] * n[4],
                    m[0] * n[2] + m[1] * n[5] + m[2],
                    m[3] * n[0] + m[4] * n[3],
                    m[3] * n[1] + m[4] * n[4],
                    m[3] * n[2] + m[4] * n[5] + m[5],
                ];
                affine.fill = fill.unwrap_or(affine.fill);
            }
            (None, Some((matrix, Some(fill)))) => self.affine = Some(ComposedAffine { matrix, fill }),
            // Exact maps stay exact until an operation samples.
            _ => {
                self.end_affine(input);
                self.add(op, primitive);
            }
        }
    }

    /// Ends the affine map with a stage that samples through it. The result has this size.
    fn end_affine(&mut self, size: Size) {
        if let Some(ComposedAffine { matrix, fill }) = self.affine.take() {
            let sampling = AffineWarp { matrix, interpolation: Interpolation::Bilinear, fill };
            self.affine(sampling, size);
        }
    }
}

/// Whether the rectangle of this size at (`x`, `y`) lies inside an image.
fn fits(x: i32, y: i32, size: Size, image: Size) -> bool {
    x >= 0 && y >= 0 && Rect { x: x as u32, y: y as u32, width: size.width, height: size.height }.fits(image)
}

/// Whether [`Strategy::Composed`] may multiply an operation with its neighbors, on an image of size `input`.
pub(crate) fn is_multiplied(op: &Op, input: Size) -> bool {
    match op.primitive(input) {
        Primitive::Identity | Primitive::Turn(_) | Primitive::Crop { .. } | Primitive::Affine(_) => true,
        Primitive::Resample(_) | Primitive::Table(_) | Primitive::Pass(..) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{CenterCrop, Contrast, Crop, GaussianBlur, Hflip, Invert, Mosaic, Posterize, Resize, Rotate};

    fn planner(strategy: Strategy) -> Planner {
        Planner { strategy, order: PassOrder::default(), max_px: 1 << 20, values: None }
    }

    fn planned(ops: &[Op], strategy: Strategy) -> Plan<'_> {
        planner(strategy).plan_one(ops, Size::new(100, 80)).unwrap()
    }

    #[test]
    fn sequential_is_a_pass_an_operation_on_complete_images() {
        let ops: [Op; 3] =
            [Rotate::new(90.0).expand(true).into(), GaussianBlur::new(3, 1.0).into(), Crop::new(2, 3, 9).into()];
        let plan = planned(&ops, Strategy::Sequential);
        assert_eq!((plan.decode, &plan.last), (Rect::full(Size::new(100, 80)), &Last::Plain));
        let sizes = [Size::new(80, 100), Size::new(80, 100), Size::new(9, 9)];
        assert_eq!(plan.stages.len(), ops.len());
        for ((stage, op), size) in plan.stages.iter().zip(&ops).zip(sizes) {
            assert_eq!(stage.work, StageWork::Pass(op, Reach::Whole));
            assert_eq!((stage.size, stage.part), (size, Rect::full(size)));
        }
    }

    #[test]
    fn a_resize_that_comes_last_is_mirrored_on_its_way_out() {
        let ops: [Op; 3] =
            [Resize::new(Size::new(50, 40)).into(), Hflip.into(), Crop::new(5, 0, Size::new(20, 40)).into()];
        let plan = planned(&ops, Strategy::Fused);
        assert!(plan.stages.is_empty());
        let Last::Resample { part, columns, rows, .. } = plan.last else { panic!("{:?}", plan.last) };
        assert_eq!(part, Rect { x: 25, y: 0, width: 20, height: 40 });
        assert_eq!((columns, rows), (Mirror { sign: -1, start: 44 }, Mirror { sign: 1, start: 0 }));
    }

    #[test]
    fn only_what_is_read_is_decoded() {
        let blur: [Op; 2] = [GaussianBlur::new(5, 1.0).into(), CenterCrop::new(10).into()];
        assert_eq!(planned(&blur, Strategy::Fused).decode, Rect { x: 43, y: 33, width: 14, height: 14 });
        // A canvas needs what was cut out for it.
        let tile: [Op; 2] = [Crop::new(60, 0, Size::new(40, 30)).into(), Mosaic::new(200).at([9, 99]).into()];
        assert_eq!(planned(&tile, Strategy::Fused).decode, Rect { x: 60, y: 0, width: 40, height: 30 });
        // The mean needs the complete image.
        let contrast: [Op; 2] = [Contrast::new(0.5).into(), CenterCrop::new(10).into()];
        assert_eq!(planned(&contrast, Strategy::Fused).decode, Rect::full(Size::new(100, 80)));
    }

    #[test]
    fn tables_have_no_pass_of_their_own() {
        let resize = Op::from(Resize::new(Size::new(50, 40)));
        let [invert, posterize] = [Op::from(Invert), Posterize::new(2).into()];
        let ops = [resize.clone(), invert.clone(), Hflip.into(), posterize.clone()];
        let fused = planned(&ops, Strategy::Fused);
        assert!(fused.stages.is_empty());
        let Last::Resample { table: Some(table), .. } = fused.last else { panic!("{:?}", fused.last) };
        let mut bytes = [0, 100, 255];
        table.apply(&mut bytes);
        assert_eq!(bytes, [192, 128, 0]);
        // A step's fill goes only through the tables after the step.
        let step = Op::from(Crop::new(-1, 0, Size::new(100, 80)).fill(Fill::Color([255; 3])));
        let ops = [posterize.clone(), step, invert.clone()];
        let Last::View(view) = planned(&ops, Strategy::Fused).last else { panic!("no view") };
        assert_eq!((view.steps[0].fill, view.table.is_some()), ([0; 3], true));
        // The table is applied before a resize reads the bytes.
        let ops = [invert, posterize, resize];
        assert!(matches!(planned(&ops, Strategy::Fused).stages[..], [Stage { work: StageWork::Table(_), .. }]));
    }

    #[test]
    fn tables_leave_what_is_decoded_for_other_recipes() {
        let recipes = [vec![Op::from(Invert)], vec![Invert.into(), Resize::new(Size::new(50, 40)).into()]];
        let size = Size::new(100, 80);
        for plan in planner(Strategy::Fused).plan(&recipes, 0, size).unwrap() {
            let Some(Stage { work: StageWork::Gather, view, .. }) = plan.stages.first() else { panic!("{plan:?}") };
            assert!(view.table.is_none());
        }
    }

    #[test]
    fn composed_samples_once() {
        let ops: [Op; 4] =
            [Rotate::new(5.0).into(), Hflip.into(), CenterCrop::new(50).into(), Rotate::new(-3.0).into()];
        let plan = planned(&ops, Strategy::Composed);
        assert!(matches!(
            plan.stages[..],
            [Stage { work: StageWork::Affine(_), size: Size { width: 50, height: 50 }, .. }]
        ));
        assert!(ops.iter().all(|op| is_multiplied(op, Size::new(100, 80))));
    }
}
