//! Decodes one sample, or leaves it to the device, and lowers its plans.

use super::arena::{Allocation, StagingWriter};
use super::decode::{By, Decoders, Source};
use super::in_flight::{InFlight, Prepared};
use super::kernel::Call;
use super::lower::{self, DeviceImage, Form, Lowering, packed_bytes};
use super::masks;
use super::values::{self, PlanesLowering};
use super::worker::Worker;
use crate::backend::{Executor, Given, Job, PlannedSample, RunOptions, WorkStats};
use crate::error::{Error, Result};
use crate::ops::descriptors::PlanesImage;
use crate::ops::values::PixelValues;
use crate::plan::{Plan, decoded_by};
use crate::raster::Rect;
use crate::trace::{Activity, Span};
use std::time::Instant;

/// A sample that a worker's thread is preparing for a batch.
pub(super) struct Preparation<'a> {
    options: &'a RunOptions,
    decoders: &'a Decoders,
    host: &'a mut Executor,
    worker: &'a mut Worker,
    batch: &'a InFlight,
}

impl<'a> Preparation<'a> {
    pub(super) fn new(
        options: &'a RunOptions,
        decoders: &'a Decoders,
        (host, worker): (&'a mut Executor, &'a mut Worker),
        batch: &'a InFlight,
    ) -> Self {
        if worker.staging_of != batch.number {
            (worker.staging, worker.staging_of) = (StagingWriter::default(), batch.number);
        }
        Self { options, decoders, host, worker, batch }
    }

    /// Decodes and lowers the sample, and puts it into its place of the batch.
    pub(super) fn run(mut self, image: Given<'_>, sample: &PlannedSample<'_>) -> Result<WorkStats> {
        // Masks come first: their memory cannot be given back where the image is decoded by another decoder after all.
        let start = Instant::now();
        let lower = |mask| masks::lowered(mask, (&mut self.host.stages, &mut *self.worker), &self.batch.arena);
        let masks = sample.masks.iter().map(lower).collect::<Result<Vec<_>>>()?;
        let lowered = start.elapsed();
        let (prepared, mut work) = if let Some(values) = self.options.values {
            let image = self.decoders.on_host(image)?;
            let prepared = self.with_values(&image, sample, &values)?;
            self.decoders.buffers.give(image.into_buffer());
            prepared
        } else if !sample.plans.iter().all(lower::has_kernels) {
            let image = self.decoders.on_host(image)?;
            let prepared = self.on_cpu(&image, sample)?;
            self.decoders.buffers.give(image.into_buffer());
            prepared
        } else {
            self.on_device(image, sample)?
        };
        work.augment += lowered;
        let Prepared { hardware_job, .. } = prepared;
        self.batch.put(sample.place, Prepared { masks, hardware_job: None, ..prepared });
        if let Some(job) = hardware_job {
            self.decoders.put_on_engines(self.batch, sample.place, job)?;
        }
        Ok(work)
    }

    fn on_device(&mut self, image: Given<'_>, sample: &PlannedSample<'_>) -> Result<(Prepared, WorkStats)> {
        let plans = sample.plans;
        let start = Instant::now();
        let decoding = Span::enter(Activity::Decode);
        let mut source = self.decoders.decode((&mut *self.host, &mut *self.worker), self.batch, image, sample)?;
        drop(decoding);
        let decode = start.elapsed();

        let start = Instant::now();
        let _lower = Span::enter(Activity::Lower);
        let calls = match self.lower(plans, &source) {
            Err(Error::OutOfDeviceMemory { .. }) if !matches!(source.by, By::Cpu) => {
                let part = decoded_by(plans);
                let worker = (&mut *self.host, &mut *self.worker);
                source = self.decoders.decode_again(worker, self.batch, source, sample.header, part)?;
                self.lower(plans, &source)?
            }
            calls => calls?,
        };
        let approximate = matches!(source.by, By::Hybrid);
        let (hardware_job, jpeg_job) = match source.by {
            By::Hardware(job) => (Some(job), None),
            By::Device(job) => (None, Some(job)),
            By::Cpu | By::Hybrid => (None, None),
        };
        let prepared = Prepared { size: plans[0].size, calls, masks: Vec::new(), hardware_job, jpeg_job };
        let decoded = self.worker.take_decoded();
        Ok((prepared, WorkStats { decode, augment: start.elapsed(), decoded, approximate }))
    }

    /// The calls of each plan.
    fn lower(&mut self, plans: &[Plan<'_>], source: &Source) -> Result<Vec<Vec<Call>>> {
        let (Worker { staging, taps, .. }, mut spare) = (&mut *self.worker, source.spare);
        let (arena, shared) = (&self.batch.arena, plans.len() > 1);
        let lower = |plan: &Plan<'_>| {
            let lowering = Lowering::new(arena, staging, taps, plan.order, source.image, shared, spare.take());
            lowering.run(plan, Form { size: plan.size, elements: self.options.elements() })
        };
        plans.iter().map(lower).collect()
    }

    /// Prepares an image that is not RGB. The CPU runs its plans if there is no kernel or no memory for them.
    fn with_values(
        &mut self,
        image: &Given<'_>,
        &PlannedSample { header, plans, later, .. }: &PlannedSample<'_>,
        values: &PixelValues,
    ) -> Result<(Prepared, WorkStats)> {
        let options = self.options;
        let job = options.job(image.input()?, header);
        self.decoders.leave_to_cpu(self.worker, header, later);
        let (calls, mut work) = if !values::have_kernels(plans) {
            self.made_by_cpu(&job, values, plans)?
        } else {
            match self.lower_values(&job, values, plans) {
                Err(Error::OutOfDeviceMemory { .. }) => {
                    let (calls, mut work) = self.made_by_cpu(&job, values, plans)?;
                    work.decoded.for_memory += 1;
                    (calls, work)
                }
                made => made?,
            }
        };
        work.decoded += self.worker.take_decoded();
        let size = plans[0].size;
        Ok((Prepared { size, calls, masks: Vec::new(), hardware_job: None, jpeg_job: None }, work))
    }

    /// Decodes an image that is not RGB on the CPU and lowers its plans.
    fn lower_values(
        &mut self,
        job: &Job<'_>,
        values: &PixelValues,
        plans: &[Plan<'_>],
    ) -> Result<(Vec<Vec<Call>>, WorkStats)> {
        let (arena, elements) = (&self.batch.arena, self.options.elements());
        let (start, part) = (Instant::now(), decoded_by(plans));
        let (planes, decoded) = self.host.decode_to_planes(job, values, part, |len_bytes| arena.piece(len_bytes))?;
        let (decode, start) = (start.elapsed(), Instant::now());
        let _lower = Span::enter(Activity::Lower);
        let image = PlanesImage::new(planes.address(), values.kind, job.header.size, part);
        let lower = |plan: &Plan<'_>| {
            let lowering = PlanesLowering::new(arena, &mut self.worker.staging, image, plans.len() > 1);
            lowering.run(plan, values.max_value, elements)
        };
        let calls = plans.iter().map(lower).collect::<Result<_>>()?;
        Ok((calls, WorkStats { decode, augment: start.elapsed(), decoded, approximate: false }))
    }

    /// Runs plans for an image that is not RGB on the CPU. Kernels only move the elements to their places.
    fn made_by_cpu(
        &mut self,
        job: &Job<'_>,
        values: &PixelValues,
        plans: &[Plan<'_>],
    ) -> Result<(Vec<Vec<Call>>, WorkStats)> {
        let elements = self.options.elements();
        let room = |plan: &Plan<'_>| self.batch.arena.piece(elements.image_bytes(plan.size));
        let mut pieces = plans.iter().map(room).collect::<Result<Vec<_>>>()?;
        let outs = pieces.iter_mut().map(Allocation::bytes_mut);
        let work = self.host.run_to_elements(job, values, plans, elements, outs)?;
        let place = |(plan, piece): (&Plan<'_>, &Allocation)| vec![values::place(piece.address(), plan.size, elements)];
        Ok((plans.iter().zip(&pieces).map(place).collect(), work))
    }

    /// Runs plans on the CPU without their epilogues, for passes that have no kernel.
    fn on_cpu(
        &mut self,
        image: &Given<'_>,
        &PlannedSample { header, plans, .. }: &PlannedSample<'_>,
    ) -> Result<(Prepared, WorkStats)> {
        let &mut Self { options, batch, .. } = self;
        let job = options.job(image.input()?, header);
        let room = |plan: &Plan<'_>| batch.arena.piece(packed_bytes(plan.size));
        let mut pieces = plans.iter().map(room).collect::<Result<Vec<_>>>()?;
        let outs = pieces.iter_mut().map(Allocation::bytes_mut);
        let mut work = self.host.run_to_rgb(&job, plans, outs)?;
        let start = Instant::now();
        let mut calls = Vec::with_capacity(pieces.len());
        for (&Plan { size, order, ref epilogue, .. }, pixels) in plans.iter().zip(&pieces) {
            let (address, pitch_bytes) = (pixels.address(), 3 * size.width);
            let image = DeviceImage { address, pitch_bytes, whole: size, part: Rect::full(size) };
            let Worker { staging, taps, .. } = &mut *self.worker;
            let lowering = Lowering::new(&batch.arena, staging, taps, order, image, false, None);
            calls.push(lowering.finish(epilogue, Form { size, elements: options.elements() })?);
        }
        work.augment += start.elapsed();
        let size = plans[0].size;
        Ok((Prepared { size, calls, masks: Vec::new(), hardware_job: None, jpeg_job: None }, work))
    }
}
