//! Runs recipes on the CPU: from encoded bytes to a sample's place in the batch.

use super::gather::{Gather, plain_row};
use super::output::Output;
use super::{dilate, gaussian_blur, resample, rotate};
use crate::decode::{Decoder, Header};
use crate::error::Result;
use crate::image::{Image, Pixel, Rect, Size, check_pixels};
use crate::recipe::Strategy;
use crate::recipe::filter::PassOrder;
use crate::recipe::lower::{Epilogue, Geometry, Plan, Stage, Work, plan, split_epilogue};
use crate::recipe::op::Op;
use std::time::{Duration, Instant};

/// Images above this many pixels give their memory back after use: 16 Mpx, 64 MiB a buffer.
const KEEP_PX: usize = 16 << 20;

/// One sample's work.
pub(crate) struct Job<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) header: &'a Header,
    /// The recipe, orientation included.
    pub(crate) ops: &'a [Op],
    pub(crate) strategy: Strategy,
    pub(crate) order: PassOrder,
    pub(crate) accept_truncated: bool,
    /// Limit of every image on the way, in pixels.
    pub(crate) max_px: u64,
}

/// Where a job's time went.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) decode: Duration,
    pub(crate) augment: Duration,
}

/// A decoder and the memory that a worker thread needs, kept over samples.
pub(crate) struct Executor {
    decoder: Decoder,
    current: Image,
    next: Image,
    scratch: resample::Scratch,
    line: Vec<Pixel>,
}

impl Executor {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            decoder: Decoder::new()?,
            current: Image::default(),
            next: Image::default(),
            scratch: resample::Scratch::default(),
            line: Vec::new(),
        })
    }

    /// Decodes, augments, and writes the result to `output`, whose size is the recipe's.
    ///
    /// # Errors
    /// [`Error::Decode`](crate::Error::Decode) for damaged bytes; what [`plan`] and the operations refuse.
    pub(crate) fn run(&mut self, job: &Job<'_>, output: &mut Output<'_>) -> Result<Times> {
        let times = match job.strategy {
            Strategy::Sequential => self.sequential(job, output),
            Strategy::Fused => self.planned(job, Geometry::Exact, output),
            Strategy::Composed => self.planned(job, Geometry::Composed, output),
        };
        self.current.shrink(KEEP_PX);
        self.next.shrink(KEEP_PX);
        times
    }

    fn decode(&mut self, job: &Job<'_>, part: Rect) -> Result<Duration> {
        let start = Instant::now();
        self.decoder.decode(job.bytes, job.header, part, job.accept_truncated, &mut self.current)?;
        Ok(start.elapsed())
    }

    /// One pass an operation, every intermediate image made: the specification of the other strategies.
    fn sequential(&mut self, job: &Job<'_>, output: &mut Output<'_>) -> Result<Times> {
        let (ops, epilogue) = split_epilogue(job.ops)?;
        // Before any of these images is made.
        ops.iter().try_fold(job.header.size, |size, op| {
            let size = op.output_size(size)?;
            check_pixels(size, job.max_px).map(|()| size)
        })?;
        let decode = self.decode(job, Rect::full(job.header.size))?;
        let start = Instant::now();
        for op in ops {
            self.next.reserve(op.output_size(self.current.size())?)?;
            super::apply(op, job.order, &mut self.current, &mut self.next)?;
            std::mem::swap(&mut self.current, &mut self.next);
        }
        for y in 0..self.current.size().height {
            output.row(y, self.current.row(y));
        }
        finish(&epilogue, output);
        Ok(Times { decode, augment: start.elapsed() })
    }

    fn planned(&mut self, job: &Job<'_>, geometry: Geometry, output: &mut Output<'_>) -> Result<Times> {
        let planning = Instant::now();
        let Plan { decode, stages, last, epilogue } = plan(job.ops, job.header.size, job.max_px, geometry, job.order)?;
        let planning = planning.elapsed();
        let decode = self.decode(job, decode)?;
        let start = Instant::now();
        // A resize at the end gives its rows straight to the output, mirrored as the last view says.
        let direct = last.steps.is_empty() && last.exact.xy == 0;
        let (before, resize) = match stages.split_last() {
            Some((Stage { view, work: Work::Resample(resampling), part, .. }, before)) if direct => {
                (before, Some((view, resampling, *part)))
            }
            _ => (&stages[..], None),
        };
        for stage in before {
            self.stage(stage)?;
        }
        if let Some((view, resampling, part)) = resize {
            let exact = last.exact;
            let mirrored = &mut self.line;
            let mut emit = |y: u32, row: &[Pixel]| {
                let y = (y as i32 - exact.y0) * exact.yy;
                if exact.xx < 0 {
                    mirrored.clear();
                    mirrored.extend(row.iter().rev());
                    output.row(y as u32, mirrored);
                } else {
                    output.row(y as u32, row);
                }
            };
            resample::resample(view, &self.current, resampling, part, &mut self.scratch, &mut emit);
        } else {
            let Size { width, height } = last.size;
            self.line.resize(width as usize, [0; 4]);
            let gather = Gather::new(&last);
            for y in 0..height {
                if last.is_plain_rows() {
                    output.row(y, plain_row(&last, &self.current, y, 0, width));
                } else {
                    gather.row(&self.current, y, 0, &mut self.line);
                    output.row(y, &self.line);
                }
            }
        }
        finish(&epilogue, output);
        Ok(Times { decode, augment: planning + start.elapsed() })
    }

    /// Makes the stage's part of its result the current image.
    fn stage(&mut self, stage: &Stage) -> Result<()> {
        let (part, current, next) = (stage.part, &mut self.current, &mut self.next);
        next.reserve(part.size())?;
        match &stage.work {
            Work::Gather => {
                next.reset_part(stage.size, part);
                let gather = Gather::new(&stage.view);
                for y in 0..part.height {
                    gather.row(current, part.y + y, part.x, next.row_mut(y));
                }
            }
            Work::Resample(resampling) => {
                next.reset_part(stage.size, part);
                let mut emit = |y: u32, row: &[Pixel]| next.row_mut(y - part.y).copy_from_slice(row);
                resample::resample(&stage.view, current, resampling, part, &mut self.scratch, &mut emit);
            }
            Work::Affine { matrix, canvas, fill } => {
                rotate::rotate_bilinear(current, *matrix, *canvas, *fill, part, next);
            }
            Work::Pixels(op) => match *op {
                Op::GaussianBlur { kernel, sigma } => {
                    gaussian_blur::gaussian_blur(current, kernel, sigma, part, next);
                }
                Op::Dilate { kernel } => dilate::dilate(current, kernel, part, next),
                Op::Erode { kernel } => dilate::erode(current, kernel, part, next),
                // The others work in place, on whatever part there is.
                _ => {
                    super::pointwise(op, current);
                    return Ok(());
                }
            },
            // No whole-image stage resizes.
            Work::Whole(op) => super::apply(op, PassOrder::default(), current, next)?,
        }
        std::mem::swap(&mut self.current, &mut self.next);
        Ok(())
    }
}

fn finish(epilogue: &Epilogue, output: &mut Output<'_>) {
    for erasure in &epilogue.erasures {
        output.erase(erasure);
    }
}
