//! Plans on images that are not RGB of 8 bits. Channels are planes, so each pass is written once for any number of them,
//! and gray costs a third of RGB: `number` has the arithmetic of each element type.

mod number;
mod output;
mod place;
mod points;
mod resample;
mod warp;
mod window;

pub(crate) use output::ValueOutput;

use crate::error::Result;
use crate::ops::pad::mirrored;
use crate::ops::values::{ValueWork, is_held};
use crate::plan::{Plan, StageWork};
use crate::raster::{Rect, Size};
use warpfeed_image::planes::Planes;
use warpfeed_image::with_element;
use window::Blur;

/// Images above this many bytes free their memory after use.
const KEEP_BYTES: usize = 64 << 20;

/// Runs the stages of plans on planes. Memory is kept from one to the next.
#[derive(Default)]
pub(crate) struct ValueRunner {
    /// The image that the next stage reads.
    pub(crate) current: Planes,
    next: Planes,
    between: Planes,
    points: warp::Points,
}

impl ValueRunner {
    /// Frees the memory of large images.
    pub(crate) fn shrink(&mut self) {
        [&mut self.current, &mut self.next, &mut self.between].into_iter().for_each(|planes| planes.shrink(KEEP_BYTES));
    }

    /// Makes the part `part` of a decoded image, which holds more, the current image.
    pub(crate) fn begin_with(&mut self, decoded: &Planes, part: Rect) -> Result<()> {
        let kind = decoded.kind();
        self.current.reset_part(kind, decoded.whole(), part)?;
        with_element!(kind.element, T => place::crop::<T>(decoded, 0, 0, None, &mut self.current));
        Ok(())
    }

    /// Runs a plan on the current image, which holds the part that the plan begins with, and writes the result out.
    pub(crate) fn run(&mut self, plan: &Plan<'_>, max_value: f32, output: &mut ValueOutput<'_>) -> Result<()> {
        for stage in &plan.stages {
            if let StageWork::Values(work) = &stage.work {
                let element = self.current.kind().element;
                with_element!(element, T => self.stage::<T>(work, stage.size, stage.part, max_value))?;
            }
        }
        output.write(&self.current, max_value, &plan.epilogue);
        Ok(())
    }

    /// Makes the work's result, or the part `part` of it, the current image.
    fn stage<T: Blur>(&mut self, work: &ValueWork, size: Size, part: Rect, max: f32) -> Result<()> {
        let Self { current, next, between, points } = self;
        match work {
            ValueWork::Keep => return Ok(()),
            ValueWork::Points(form) => {
                points::apply(current, form);
                return Ok(());
            }
            ValueWork::Noise { mean, sigma, clip, key } => {
                points::noise::<T>(current, [*mean, *sigma, max], *clip, *key);
                return Ok(());
            }
            ValueWork::Erase(overwrite) => {
                place::erase::<T>(current, overwrite);
                return Ok(());
            }
            // If the rectangle lies inside the image, the pixels that the image holds are the result.
            ValueWork::Crop { x, y, .. } if is_held(current.part(), *x, *y, part) => {
                current.moved_to(size, part);
                return Ok(());
            }
            ValueWork::Resample { window, resampling } => {
                resample::resample::<T>(current, *window, resampling, (size, part), between, next)?;
            }
            _ => {
                next.reset_part(work.kind(current.kind()), size, part)?;
                made::<T>(current, work, size, points, next);
            }
        }
        std::mem::swap(current, next);
        Ok(())
    }
}

/// Makes the rectangle that `out` holds of the work's result.
fn made<T: Blur>(input: &Planes, work: &ValueWork, size: Size, points: &mut warp::Points, out: &mut Planes) {
    let part = out.part();
    match work {
        ValueWork::Turn(turn) => place::turn::<T>(input, *turn, out),
        ValueWork::Crop { x, y, fill } => place::crop::<T>(input, *x, *y, *fill, out),
        ValueWork::Mirror { left, top, mode } => {
            let whole = input.size();
            let axis = |before: u32, len: u32, all: u32, start: u32, shown: u32| -> Vec<usize> {
                let places = mirrored(*mode, before, len, all - before - len);
                places[start as usize..(start + shown) as usize].to_vec()
            };
            let columns = axis(*left, whole.width, size.width, part.x, part.width);
            let rows = axis(*top, whole.height, size.height, part.y, part.height);
            place::gather::<T>(input, &columns, &rows, out);
        }
        ValueWork::Affine(warp) => warp::affine::<T>(input, warp, size, points, out),
        ValueWork::Perspective(of) => warp::perspective::<T>(input, of, points, out),
        ValueWork::Blur { axes } => window::blur::<T>(input, *axes, out),
        ValueWork::Extreme { kernel, largest } => window::extreme::<T>(input, *kernel, *largest, out),
        ValueWork::Select(list) => place::select::<T>(input, list.as_slice(), out),
        ValueWork::Keep
        | ValueWork::Points(_)
        | ValueWork::Noise { .. }
        | ValueWork::Erase(_)
        | ValueWork::Resample { .. } => {}
    }
}
