//! One sample's way to the device: decoded, or given to a decoder there, and its recipe lowered to calls.

use super::arena::StagingWriter;
use super::decode::{By, Source};
use super::gpu::Gpu;
use super::in_flight::{InFlight, Prepared};
use super::lower::{DeviceImage, Lowering, packed_bytes};
use super::worker::Worker;
use crate::backend::cpu::run_to_rgb;
use crate::backend::{Encoded, Sample, Work};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::plan::{Epilogue, plan, split_epilogue};
use crate::raster::Rect;
use std::time::Instant;

/// Whether a recipe has an operation that only the CPU can run.
fn needs_cpu(ops: &[Op]) -> bool {
    ops.iter().any(Op::needs_cpu)
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
        let options = &self.options;
        let plan = plan(ops, header.size, options.strategy, options.pass_order, options.max_px)?;
        let planning = start.elapsed();

        let start = Instant::now();
        let mut source = self.decode(worker, batch, encoded, sample, &plan)?;
        let decode = start.elapsed();

        let start = Instant::now();
        let lower = |worker: &mut Worker, source: &Source| {
            let Worker { staging, taps, .. } = worker;
            let lowering = Lowering::new(&batch.arena, staging, taps, options.pass_order, source.image, source.spare);
            lowering.run(&plan, self.form())
        };
        let calls = match lower(worker, &source) {
            Err(Error::OutOfDeviceMemory { .. }) if !matches!(source.by, By::Cpu) => {
                source = self.decode_again(worker, batch, source, header, plan.decode)?;
                lower(worker, &source)?
            }
            calls => calls?,
        };
        let (hardware_job, jpeg_job) = match source.by {
            By::Hardware(job) => (Some(job), None),
            By::Device(job) => (None, Some(job)),
            By::Cpu | By::Hybrid => (None, None),
        };
        batch.put(place, Prepared { calls, hardware_job, jpeg_job });
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
        let form = self.form();
        let (pixel_ops, epilogue) = split_epilogue(sample.ops);
        let epilogue = Epilogue::new(epilogue, form.size)?;
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
        let lowering = Lowering::new(&batch.arena, staging, taps, self.options.pass_order, image, None);
        let calls = lowering.finish(&epilogue, form)?;
        work.augment += start.elapsed();
        Ok((Prepared { calls, hardware_job: None, jpeg_job: None }, work))
    }
}
