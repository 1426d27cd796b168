//! One sample's way to the device: decoded, or given to a decoder there, and its recipe lowered to calls.

use super::arena::{Allocation, StagingWriter};
use super::decode::{By, Source};
use super::gpu::Gpu;
use super::in_flight::{InFlight, Prepared};
use super::lower::{DeviceImage, Lowering, packed_bytes};
use super::worker::Worker;
use crate::backend::cpu::run_to_rgb;
use crate::backend::{Encoded, Sample, Work};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::plan::{Epilogue, decoded_by, plan_all, split_epilogue};
use crate::raster::{Rect, Size};
use crate::trace::{Activity, Span};
use std::time::Instant;

/// Whether one of the recipes has an operation that only the CPU can run.
fn need_cpu(recipes: &[Vec<Op>]) -> bool {
    recipes.iter().flatten().any(Op::needs_cpu)
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
        let Sample { place, header, recipes, .. } = *sample;
        let sizes = self.options.sizes(sample)?;
        if worker.staging_of != batch.number {
            (worker.staging, worker.staging_of) = (StagingWriter::default(), batch.number);
        }
        let start = Instant::now();
        if need_cpu(recipes) {
            let (prepared, work) = self.prepare_on_cpu(worker, batch, &encoded, sample, &sizes)?;
            self.keep_buffer(encoded.into_buffer());
            batch.put(place, prepared);
            return Ok(work);
        }
        let options = &self.options;
        let plans = plan_all(recipes, header.size, options.strategy, options.pass_order, options.max_px)?;
        let shared = plans.len() > 1;
        let planning = start.elapsed();

        let start = Instant::now();
        let decoding = Span::enter(Activity::Decode);
        let mut source = self.decode(worker, batch, encoded, sample, &plans)?;
        drop(decoding);
        let decode = start.elapsed();

        let start = Instant::now();
        let _lower = Span::enter(Activity::Lower);
        let lower = |worker: &mut Worker, source: &Source| {
            let (Worker { staging, taps, .. }, mut spare) = (worker, source.spare);
            let (arena, order) = (&batch.arena, options.pass_order);
            let lower = |(plan, size): (_, &Size)| {
                let lowering = Lowering::new(arena, staging, taps, order, source.image, shared, spare.take());
                lowering.run(plan, self.form(*size))
            };
            plans.iter().zip(&sizes).map(lower).collect::<Result<Vec<_>>>()
        };
        let calls = match lower(worker, &source) {
            Err(Error::OutOfDeviceMemory { .. }) if !matches!(source.by, By::Cpu) => {
                source = self.decode_again(worker, batch, source, header, decoded_by(&plans))?;
                lower(worker, &source)?
            }
            calls => calls?,
        };
        let (hardware_job, jpeg_job) = match source.by {
            By::Hardware(job) => (Some(job), None),
            By::Device(job) => (None, Some(job)),
            By::Cpu | By::Hybrid => (None, None),
        };
        batch.put(place, Prepared { size: sizes[0], calls, hardware_job, jpeg_job });
        Ok(Work { decode, augment: planning + start.elapsed(), decoded: worker.take_decoded() })
    }

    /// Runs recipes on the CPU but for their ends: operations of the caller's own have no kernel.
    fn prepare_on_cpu(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        encoded: &Encoded,
        sample: &Sample<'_>,
        sizes: &[Size],
    ) -> Result<(Prepared, Work)> {
        let job = self.options.job(encoded.bytes(), sample.header);
        let (recipes, ends): (Vec<_>, Vec<_>) = sample.recipes.iter().map(|ops| split_epilogue(ops)).unzip();
        let room = |size: &Size| batch.arena.piece(packed_bytes(*size));
        let mut pieces = sizes.iter().map(room).collect::<Result<Vec<_>>>()?;
        let outs = sizes.iter().copied().zip(pieces.iter_mut().map(Allocation::bytes_mut));
        let mut work = run_to_rgb(&mut worker.executor, &job, &recipes, outs, &self.rgb_tables)?;
        let start = Instant::now();
        let mut calls = Vec::with_capacity(pieces.len());
        for ((&size, pixels), end) in sizes.iter().zip(&pieces).zip(ends) {
            let epilogue = Epilogue::new(end, size)?;
            let (address, pitch_bytes) = (pixels.address(), 3 * size.width);
            let image = DeviceImage { address, pitch_bytes, whole: size, part: Rect::full(size) };
            let Worker { staging, taps, .. } = &mut *worker;
            let lowering = Lowering::new(&batch.arena, staging, taps, self.options.pass_order, image, false, None);
            calls.push(lowering.finish(&epilogue, self.form(size))?);
        }
        work.augment += start.elapsed();
        Ok((Prepared { size: sizes[0], calls, hardware_job: None, jpeg_job: None }, work))
    }
}
