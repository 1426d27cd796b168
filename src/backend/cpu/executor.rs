//! Runs plans on the CPU, from encoded bytes to the batch.

use super::gather::{Gather, plain_row};
use super::output::Output;
use super::resample;
use super::values::{ValueOutput, ValueRunner};
use crate::backend::{Decoded, PixelForm, Twice, WorkStats};
use crate::decode::{DecodeOptions, Decoder, Header, Input, Pixels, PriorKnowledge, all_bands};
use crate::error::{Error, Result};
use crate::ops::CpuPass;
use crate::ops::affine_warp::SampledView;
use crate::ops::byte_table::ByteTable;
use crate::ops::filter::PassOrder;
use crate::ops::resize::Resampling;
use crate::ops::values::PixelValues;
use crate::plan::view::ImageView;
use crate::plan::{Last, Mirror, Plan, Stage, StageWork, decoded_by};
use crate::raster::{Image, Pixel, Rect, Size};
use crate::trace::{Activity, Span};
use std::time::{Duration, Instant};
use warpfeed_image::planes::Planes;

/// Images above this many pixels free their memory after use: 16 Mpx, 64 MiB a buffer.
const KEEP_PX: usize = 16 << 20;

/// The image of one sample, and how to decode it.
pub(crate) struct Job<'a> {
    pub(crate) image: Input<'a>,
    pub(crate) header: &'a Header,
    pub(crate) how: DecodeOptions<'a>,
}

/// The times of a job's parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) decode: Duration,
    pub(crate) augment: Duration,
    /// Prior knowledge that saved decoding time.
    pub(crate) knew: PriorKnowledge,
}

impl From<Times> for WorkStats {
    fn from(Times { decode, augment, knew }: Times) -> Self {
        Self { decode, augment, decoded: by_cpu(knew), approximate: false }
    }
}

/// The counts for one image that the CPU has decoded.
fn by_cpu(knew: PriorKnowledge) -> Decoded {
    Decoded { cpu: 1, ..knew.into() }
}

/// A decoder and the memory of a worker thread, kept from sample to sample.
pub(crate) struct Executor {
    decoder: Decoder,
    /// The decoded image, if several images are made of it.
    decoded: Image,
    pub(crate) stages: StageRunner,
    /// The buffer for encoded bytes that no device reads.
    pub(super) buffer: Vec<u8>,
    /// The part of the work that is done twice, to measure its cost.
    twice: Option<Twice>,
    /// Runs plans on images that are not RGB.
    values: ValueRunner,
    /// The decoded image that is not RGB, if several images are made of it.
    decoded_values: Planes,
}

impl Executor {
    /// An executor that does a part of the work twice, if asked to.
    pub(in crate::backend) fn new(twice: Option<Twice>) -> Result<Self> {
        let (decoder, stages) = (Decoder::new()?, StageRunner::default());
        let (decoded, values, decoded_values) = (Image::default(), ValueRunner::default(), Planes::default());
        Ok(Self { decoder, decoded, stages, buffer: Vec::new(), twice, values, decoded_values })
    }

    /// Decodes an image and runs plans without their epilogues, each to RGB bytes, row by row.
    ///
    /// # Errors
    /// See [`run`](Self::run).
    pub(crate) fn run_to_rgb<'a>(
        &mut self,
        job: &Job<'_>,
        plans: &[Plan<'_>],
        outs: impl IntoIterator<Item = &'a mut [u8]>,
    ) -> Result<WorkStats> {
        let output = |(out, plan): (_, &Plan<'_>)| Output::rgb(out, plan.size);
        let mut outputs: Vec<_> = outs.into_iter().zip(plans).map(output).collect();
        self.run(job, plans, &mut outputs).map(WorkStats::from)
    }

    /// Decodes `part` to memory from `room`, which is asked for a number of bytes: RGB bytes, row by row.
    ///
    /// # Errors
    /// [`Error::Decode`](crate::Error::Decode) for damaged bytes; the errors of `room`.
    pub(crate) fn decode_to_rgb<M: AsMut<[u8]>>(
        &mut self,
        &Job { image, header, how }: &Job<'_>,
        part: Rect,
        room: impl FnOnce(usize) -> Result<M>,
    ) -> Result<(M, Decoded)> {
        let len_bytes = 3 * part.size().area_px() as usize;
        match image {
            Input::Pixels(pixels) => {
                let mut rgb = room(len_bytes)?;
                pixels.to_rgb(part, rgb.as_mut());
                Ok((rgb, by_cpu(PriorKnowledge::Nothing)))
            }
            Input::Encoded(bytes) => {
                let image = &mut self.stages.current;
                let knew = self.decoder.decode_with(bytes, header, part, how, image)?;
                let mut rgb = room(len_bytes)?;
                Pixels::from(&*image).to_rgb(Rect::full(part.size()), rgb.as_mut());
                image.shrink(KEEP_PX);
                Ok((rgb, by_cpu(knew)))
            }
            Input::Stored(_) => Err(in_parts()),
        }
    }

    /// Decodes once. Then, for each plan, runs the stages and writes the result to its output, whose size is the
    /// plan's.
    ///
    /// # Errors
    /// [`Error::Decode`](crate::Error::Decode) for damaged bytes; the errors of operations.
    pub(super) fn run(&mut self, job: &Job<'_>, plans: &[Plan<'_>], outputs: &mut [Output<'_>]) -> Result<Times> {
        let times = self.run_plans(job, plans, outputs);
        self.decoded.shrink(KEEP_PX);
        self.stages.shrink();
        times
    }

    /// Decodes an image that is not RGB once. Then, for each plan, runs the stages and writes the result to its output.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) for an image of another kind; see [`run`](Self::run).
    pub(super) fn run_values(
        &mut self,
        job: &Job<'_>,
        wanted: &PixelValues,
        plans: &[Plan<'_>],
        outputs: &mut [ValueOutput<'_>],
    ) -> Result<Times> {
        let start = Instant::now();
        let knew = self.decode_values(job, wanted, decoded_by(plans))?;
        let Self { values, decoded_values, .. } = self;
        let (decode, start) = (start.elapsed(), Instant::now());
        let _augment = Span::enter(Activity::Augment);
        if plans.len() > 1 {
            std::mem::swap(&mut values.current, decoded_values);
        }
        for (plan, output) in plans.iter().zip(outputs) {
            if plans.len() > 1 {
                values.begin_with(decoded_values, plan.decode)?;
            }
            values.run(plan, wanted.max_value, output)?;
        }
        values.shrink();
        Ok(Times { decode, augment: start.elapsed(), knew })
    }

    /// Decodes `part` of an image that is not RGB into the current planes.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) for an image of another kind;
    /// [`Error::Decode`](crate::Error::Decode) for damaged bytes.
    fn decode_values(&mut self, job: &Job<'_>, wanted: &PixelValues, part: Rect) -> Result<PriorKnowledge> {
        let _decode = Span::enter(Activity::Decode);
        let Job { image, header, how } = *job;
        let current = &mut self.values.current;
        match image {
            Input::Encoded(bytes) if header.kind == wanted.kind => {
                Ok(self.decoder.decode_planes(bytes, header, part, None, how, current)?)
            }
            Input::Stored(image) if header.kind == wanted.kind => {
                image.decode(part, all_bands(header.kind), current)?;
                Ok(PriorKnowledge::Nothing)
            }
            _ => {
                let message = format!("the image has {}, and the pipeline's images have {}", header.kind, wanted.kind);
                Err(Error::unfit("decode", message))
            }
        }
    }

    /// Decodes `part` of an image that is not RGB to memory from `room`, which is asked for a number of bytes: the
    /// values of all planes.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) for an image of another kind;
    /// [`Error::Decode`](crate::Error::Decode) for damaged bytes; the errors of `room`.
    pub(crate) fn decode_to_planes<M: AsMut<[u8]>>(
        &mut self,
        job: &Job<'_>,
        wanted: &PixelValues,
        part: Rect,
        room: impl FnOnce(usize) -> Result<M>,
    ) -> Result<(M, Decoded)> {
        let knew = self.decode_values(job, wanted, part)?;
        let bytes = self.values.current.as_bytes();
        let mut planes = room(bytes.len())?;
        planes.as_mut().copy_from_slice(bytes);
        self.values.shrink();
        Ok((planes, by_cpu(knew)))
    }

    /// Decodes an image that is not RGB and runs plans, each to elements of a batch.
    ///
    /// # Errors
    /// See [`run_values`](Self::run_values).
    pub(crate) fn run_to_elements<'a>(
        &mut self,
        job: &Job<'_>,
        wanted: &PixelValues,
        plans: &[Plan<'_>],
        elements: PixelForm,
        outs: impl IntoIterator<Item = &'a mut [u8]>,
    ) -> Result<WorkStats> {
        let mut outputs: Vec<_> = outs.into_iter().map(|out| ValueOutput::new(out, elements)).collect();
        self.run_values(job, wanted, plans, &mut outputs).map(WorkStats::from)
    }

    fn run_plans(&mut self, job: &Job<'_>, plans: &[Plan<'_>], outputs: &mut [Output<'_>]) -> Result<Times> {
        let part = decoded_by(plans);
        if self.twice == Some(Twice::Decode) {
            self.decode(job, part)?;
        }
        let (decode, knew) = self.decode(job, part)?;
        let start = Instant::now();
        let _augment = Span::enter(Activity::Augment);
        if self.twice == Some(Twice::Operations) {
            self.run_before(plans, outputs)?;
        }
        if let [plan] = plans
            && let [output] = outputs
        {
            self.stages.run(plan, output)?;
        } else {
            std::mem::swap(&mut self.stages.current, &mut self.decoded);
            plans.iter().zip(outputs).try_for_each(|(plan, output)| self.run_on_decoded(plan, output))?;
        }
        Ok(Times { decode, augment: start.elapsed(), knew })
    }

    /// Runs the plans and leaves the decoded image as the current one.
    fn run_before(&mut self, plans: &[Plan<'_>], outputs: &mut [Output<'_>]) -> Result<()> {
        if let ([plan], [output]) = (plans, &mut *outputs)
            && changes_in_place(plan)
        {
            let decoded = self.stages.current.clone();
            self.stages.run(plan, output)?;
            self.stages.current = decoded;
            return Ok(());
        }
        std::mem::swap(&mut self.stages.current, &mut self.decoded);
        plans.iter().zip(outputs).try_for_each(|(plan, output)| self.run_on_decoded(plan, output))?;
        std::mem::swap(&mut self.stages.current, &mut self.decoded);
        Ok(())
    }

    /// Runs a plan and preserves the decoded image.
    fn run_on_decoded(&mut self, plan: &Plan<'_>, output: &mut Output<'_>) -> Result<()> {
        std::mem::swap(&mut self.stages.current, &mut self.decoded);
        let Some((first, rest)) = plan.stages.split_first() else {
            self.stages.finish(plan, output);
            std::mem::swap(&mut self.stages.current, &mut self.decoded);
            return Ok(());
        };
        self.stages.stage(first, plan.order)?;
        // The stage has swapped its input, the decoded image, into `next`. Later stages would overwrite it there.
        std::mem::swap(&mut self.stages.next, &mut self.decoded);
        rest.iter().try_for_each(|stage| self.stages.stage(stage, plan.order))?;
        self.stages.finish(plan, output);
        Ok(())
    }

    /// Decodes `part` into the current image. Returns the time taken and the store's knowledge of the image.
    fn decode(&mut self, job: &Job<'_>, part: Rect) -> Result<(Duration, PriorKnowledge)> {
        let start = Instant::now();
        let _decode = Span::enter(Activity::Decode);
        let Job { image, header, how } = *job;
        let current = &mut self.stages.current;
        let knew = match image {
            Input::Encoded(bytes) => self.decoder.decode_with(bytes, header, part, how, current)?,
            Input::Pixels(pixels) => {
                pixels.to_image(part, current)?;
                PriorKnowledge::Nothing
            }
            Input::Stored(_) => return Err(in_parts()),
        };
        Ok((start.elapsed(), knew))
    }
}

/// Runs the stages of plans, on images and on masks. Memory is kept from one to the next.
#[derive(Default)]
pub(crate) struct StageRunner {
    /// The image that the next stage reads.
    pub(super) current: Image,
    next: Image,
    scratch: resample::Scratch,
    line: Vec<Pixel>,
    /// RGB bytes of a mask's planes.
    pub(super) made: Vec<u8>,
}

impl StageRunner {
    /// Frees the memory of large images.
    pub(super) fn shrink(&mut self) {
        self.current.shrink(KEEP_PX);
        self.next.shrink(KEEP_PX);
    }

    /// Runs a plan on the current image, which holds the part that the plan begins with.
    pub(super) fn run(&mut self, plan: &Plan<'_>, output: &mut Output<'_>) -> Result<()> {
        plan.stages.iter().try_for_each(|stage| self.stage(stage, plan.order))?;
        self.finish(plan, output);
        Ok(())
    }

    /// Runs the end of a plan on the current image and writes the result out.
    fn finish(&mut self, plan: &Plan<'_>, output: &mut Output<'_>) {
        match &plan.last {
            Last::Plain => (0..plan.size.height).for_each(|y| output.row(y, self.current.row(y))),
            Last::View(view) => {
                apply(view.table.as_deref(), &mut self.current);
                self.view(view, output);
            }
            Last::Resample { view, resampling, part, columns, rows, table } => {
                self.resample(view, resampling, *part, [*columns, *rows], table.as_deref(), output);
            }
        }
        output.end(&plan.epilogue);
    }

    /// Makes the stage's part of its result the current image.
    fn stage(&mut self, stage: &Stage<'_>, order: PassOrder) -> Result<()> {
        let (part, current, next) = (stage.part, &mut self.current, &mut self.next);
        apply(stage.view.table.as_deref(), current);
        next.reserve(part.size())?;
        match &stage.work {
            StageWork::Gather => {
                next.reset_part(stage.size, part);
                let gather = Gather::new(&stage.view);
                for y in 0..part.height {
                    gather.row(current, part.y + y, part.x, next.row_mut(y));
                }
            }
            StageWork::Resample(resampling) => {
                next.reset_part(stage.size, part);
                let mut emit = |y: u32, row: &[Pixel]| next.row_mut(y - part.y).copy_from_slice(row);
                resample::resample(&stage.view, current, resampling, part, &mut self.scratch, &mut emit);
            }
            StageWork::Reduce(factors) => factors.reduce(current, part, next),
            StageWork::Table(table) => {
                apply(Some(table), current);
                return Ok(());
            }
            StageWork::Affine(warp) => {
                let seen = SampledView { image: current, exact: stage.view.exact, size: stage.view.size };
                warp.make_of_view(seen, stage.size, &stage.needed(), next);
            }
            // Such plans are run by `ValueRunner`.
            StageWork::Values(_) => return Ok(()),
            // A pass leaves its result in the current image itself.
            StageWork::Pass(op, _) => return op.pass(&mut CpuPass { image: current, spare: next, part, order }),
        }
        std::mem::swap(current, next);
        Ok(())
    }

    /// Writes a view of the current image to the output.
    fn view(&mut self, view: &ImageView, output: &mut Output<'_>) {
        let Size { width, height } = view.size;
        self.line.resize(width as usize, [0; 4]);
        let gather = Gather::new(view);
        for y in 0..height {
            if view.is_plain_rows() {
                output.row(y, plain_row(view, &self.current, y, 0, width));
            } else {
                gather.row(&self.current, y, 0, &mut self.line);
                output.row(y, &self.line);
            }
        }
    }

    /// Resizes a view of the current image. The rows go through the table straight to the output.
    fn resample(
        &mut self,
        view: &ImageView,
        resampling: &Resampling,
        part: Rect,
        [columns, rows]: [Mirror; 2],
        table: Option<&ByteTable>,
        output: &mut Output<'_>,
    ) {
        let made = &mut self.line;
        let mut emit = |y: u32, row: &[Pixel]| {
            let y = (y as i32 - rows.start) * rows.sign;
            if columns.sign > 0 && table.is_none() {
                return output.row(y as u32, row);
            }
            made.clear();
            if columns.sign < 0 {
                made.extend(row.iter().rev());
            } else {
                made.extend_from_slice(row);
            }
            if let Some(table) = table {
                table.apply(made.as_flattened_mut());
            }
            output.row(y as u32, made);
        };
        resample::resample(view, &self.current, resampling, part, &mut self.scratch, &mut emit);
    }
}

/// The error for an image that is read in parts, which RGB pipelines do not ask for.
fn in_parts() -> Error {
    Error::unfit("decode", "an image that is read in parts cannot be read as RGB".to_owned())
}

/// Whether a plan changes the decoded image where it is.
fn changes_in_place(plan: &Plan<'_>) -> bool {
    match (plan.stages.first(), &plan.last) {
        (Some(stage), _) => {
            stage.view.table.is_some() || matches!(stage.work, StageWork::Table(_) | StageWork::Pass(..))
        }
        (None, Last::View(view)) => view.table.is_some(),
        (None, _) => false,
    }
}

/// Applies a table to an image before a view of it is read. Fill colors have been through the table already.
fn apply(table: Option<&ByteTable>, image: &mut Image) {
    if let Some(table) = table {
        table.apply(image.pixels_mut().as_flattened_mut());
    }
}
