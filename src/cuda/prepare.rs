//! One sample's way to the device: decoded, or given to a decoder there, and its recipe lowered to calls.

use super::arena::StagingWriter;
use super::gpu::Gpu;
use super::in_flight::{InFlight, Prepared};
use super::lower::{DeviceImage, Lowering, packed_bytes};
use super::worker::Worker;
use crate::backend::cpu::run_to_rgb;
use crate::backend::{Encoded, Sample, Work};
use crate::error::Result;
use crate::image::{Rect, check_pixels};
use crate::recipe::Strategy;
use crate::recipe::lower::{Geometry, plan, split_epilogue};
use crate::recipe::op::Op;
use std::time::Instant;

/// Whether a recipe has an operation that only the CPU can run.
fn needs_cpu(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Custom(_)))
}

impl Gpu {
    /// Decodes and lowers one sample into its place of the batch.
    pub(super) fn prepare(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        encoded: Encoded,
        sample: &Sample<'_>,
    ) -> Result<Work> {
        let Sample { place, header, ops, .. } = *sample;
        if worker.staging_of != batch.number {
            (worker.staging, worker.staging_of) = (StagingWriter::default(), batch.number);
        }
        let start = Instant::now();
        if needs_cpu(ops) {
            let (prepared, work) = self.prepare_on_cpu(worker, batch, &encoded, sample)?;
            self.keep_buffer(encoded.into_buffer());
            batch.put(place, prepared);
            return Ok(work);
        }
        let (options, form) = (&self.options, self.form());
        let (pixel_ops, epilogue) = split_epilogue(ops)?;
        let plan = match options.strategy {
            Strategy::Sequential => {
                pixel_ops.iter().try_fold(header.size, |size, op| {
                    let size = op.output_size(size)?;
                    check_pixels(size, options.max_px).map(|()| size)
                })?;
                None
            }
            Strategy::Fused => Some(Geometry::Exact),
            Strategy::Composed => Some(Geometry::Composed),
        }
        .map(|geometry| plan(ops, header.size, options.max_px, geometry, options.pass_order))
        .transpose()?;
        let part = plan.as_ref().map_or(Rect::full(header.size), |plan| plan.decode);
        let planning = start.elapsed();

        let start = Instant::now();
        let (image, hardware_job) = self.decode(worker, batch, encoded, sample, part)?;
        let decode = start.elapsed();

        let start = Instant::now();
        let Worker { staging, taps, .. } = worker;
        let lowering = Lowering::new(&batch.arena, staging, taps, options.pass_order, image, Vec::new());
        let calls = match &plan {
            Some(plan) => lowering.planned(plan, form)?,
            None => lowering.sequential(pixel_ops, &epilogue, form)?,
        };
        batch.put(place, Prepared { calls, hardware_job });
        Ok(Work { decode, augment: planning + start.elapsed(), decoded: worker.take_decoded() })
    }

    /// Runs a recipe on the CPU but for its end: operations of the caller's own have no kernel.
    fn prepare_on_cpu(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        encoded: &Encoded,
        sample: &Sample<'_>,
    ) -> Result<(Prepared, Work)> {
        let (pixel_ops, epilogue) = split_epilogue(sample.ops)?;
        let form = self.form();
        let mut pixels = batch.arena.piece(packed_bytes(form.size))?;
        let job = self.options.job(encoded.bytes(), sample.header, pixel_ops);
        let mut work = run_to_rgb(&mut worker.executor, &job, (form.size, pixels.bytes_mut()), &self.rgb_tables)?;
        let start = Instant::now();
        let image = DeviceImage {
            address: pixels.address(),
            pitch_bytes: 3 * form.size.width,
            whole: form.size,
            part: Rect::full(form.size),
        };
        let Worker { staging, taps, .. } = worker;
        let lowering = Lowering::new(&batch.arena, staging, taps, self.options.pass_order, image, Vec::new());
        let calls = lowering.sequential(&[], &epilogue, form)?;
        work.augment += start.elapsed();
        Ok((Prepared { calls, hardware_job: None }, work))
    }
}
