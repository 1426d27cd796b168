//! One sample's way to the device: decoded, or given to a decoder there, and its plans lowered to calls.

use super::arena::{Allocation, StagingWriter};
use super::decode::{By, Source};
use super::gpu::Gpu;
use super::in_flight::{InFlight, Prepared};
use super::lower::{DeviceImage, Lowering, packed_bytes};
use super::worker::Worker;
use crate::backend::cpu::run_to_rgb;
use crate::backend::{Encoded, Sample, Work};
use crate::error::{Error, Result};
use crate::plan::{Plan, decoded_by};
use crate::raster::Rect;
use crate::trace::{Activity, Span};
use std::time::Instant;

impl Gpu {
    /// Decodes and lowers one sample into its place of the batch.
    pub(super) fn prepare(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        encoded: Encoded,
        sample: &Sample<'_>,
    ) -> Result<Work> {
        let Sample { place, header, plans, .. } = *sample;
        if worker.staging_of != batch.number {
            (worker.staging, worker.staging_of) = (StagingWriter::default(), batch.number);
        }
        if plans.iter().any(|plan| plan.needs_cpu) {
            let (prepared, work) = self.prepare_on_cpu(worker, batch, &encoded, sample)?;
            self.keep_buffer(encoded.into_buffer());
            batch.put(place, prepared);
            return Ok(work);
        }
        let start = Instant::now();
        let decoding = Span::enter(Activity::Decode);
        let mut source = self.decode(worker, batch, encoded, sample)?;
        drop(decoding);
        let decode = start.elapsed();

        let start = Instant::now();
        let _lower = Span::enter(Activity::Lower);
        let lower = |worker: &mut Worker, source: &Source| {
            let (Worker { staging, taps, .. }, mut spare) = (worker, source.spare);
            let (arena, shared) = (&batch.arena, plans.len() > 1);
            let lower = |plan: &Plan<'_>| {
                let lowering = Lowering::new(arena, staging, taps, plan.order, source.image, shared, spare.take());
                lowering.run(plan, self.form(plan.size))
            };
            plans.iter().map(lower).collect::<Result<Vec<_>>>()
        };
        let calls = match lower(worker, &source) {
            Err(Error::OutOfDeviceMemory { .. }) if !matches!(source.by, By::Cpu) => {
                source = self.decode_again(worker, batch, source, header, decoded_by(plans))?;
                lower(worker, &source)?
            }
            calls => calls?,
        };
        let (hardware_job, jpeg_job) = match source.by {
            By::Hardware(job) => (Some(job), None),
            By::Device(job) => (None, Some(job)),
            By::Cpu | By::Hybrid => (None, None),
        };
        batch.put(place, Prepared { size: plans[0].size, calls, hardware_job, jpeg_job });
        Ok(Work { decode, augment: start.elapsed(), decoded: worker.take_decoded() })
    }

    /// Runs plans on the CPU but for their epilogues: some passes have no kernel.
    fn prepare_on_cpu(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        encoded: &Encoded,
        &Sample { header, plans, .. }: &Sample<'_>,
    ) -> Result<(Prepared, Work)> {
        let job = self.options.job(encoded.bytes(), header);
        let room = |plan: &Plan<'_>| batch.arena.piece(packed_bytes(plan.size));
        let mut pieces = plans.iter().map(room).collect::<Result<Vec<_>>>()?;
        let outs = pieces.iter_mut().map(Allocation::bytes_mut);
        let mut work = run_to_rgb(&mut worker.executor, &job, plans, outs)?;
        let start = Instant::now();
        let mut calls = Vec::with_capacity(pieces.len());
        for (&Plan { size, order, ref epilogue, .. }, pixels) in plans.iter().zip(&pieces) {
            let (address, pitch_bytes) = (pixels.address(), 3 * size.width);
            let image = DeviceImage { address, pitch_bytes, whole: size, part: Rect::full(size) };
            let Worker { staging, taps, .. } = &mut *worker;
            let lowering = Lowering::new(&batch.arena, staging, taps, order, image, false, None);
            calls.push(lowering.finish(epilogue, self.form(size))?);
        }
        work.augment += start.elapsed();
        Ok((Prepared { size: plans[0].size, calls, hardware_job: None, jpeg_job: None }, work))
    }
}
