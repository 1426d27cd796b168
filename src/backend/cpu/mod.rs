//! The CPU back end: each worker thread decodes its samples and runs their recipes to the end.
//!
//! Pixels are RGBX: four bytes, the fourth is 255, so that a pixel is one aligned load or store. Nearest rotation by
//! small angles: a step is a mirror plus a remainder that fits 16 bits, so x and y share a 32-bit lane and one
//! multiply-add moves both. Bilinear rotation: all pixels are computed in single precision, and those within 1/4096 of
//! a change of the byte again in doubles, as in Pillow.

mod batch;
pub(super) mod executor;
mod gather;
#[cfg(target_arch = "x86_64")]
mod horizontal;
mod masks;
mod mix;
mod normalize;
pub(crate) mod output;
pub(super) mod pixels;
mod resample;
pub(super) mod values;
mod vertical;

use super::{
    Backend, Decoded, End, Finished, Given, OutputForm, PlannedMask, PlannedSample, Ran, RunOptions, Settled, WorkStats,
};
use crate::cuda::driver;
use crate::decode::{Header, Input};
use crate::error::{Error, Result};
use crate::os::memory;
use crate::plan::Plan;
use crate::raster::Size;
use crate::tensor::{DType, HostBuffer, Pool, Storage, Tensor};
use batch::{HostBatch, HostView};
use executor::{Executor, Job, Times};
use output::{Output, Tables};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use values::ValueOutput;

/// Largest number of batches whose memory is tried when a pipeline is built.
const TRIED_BATCHES: usize = 8;
/// Bytes tried for each worker in addition to the batches: its stack, its decoder and an image of moderate size.
const WORKER_BYTES: usize = 8 << 20;

/// The CPU, set up for one pipeline.
pub(crate) struct Cpu {
    options: Arc<RunOptions>,
    tables: Tables,
    /// The memory of each output.
    pools: Vec<Arc<Pool>>,
    /// The memory of images before they are padded. It is apart from that of padded tensors, which are much larger.
    unpadded: Arc<Pool>,
    /// The memory of numeric targets.
    targets: Arc<Pool>,
}

impl Cpu {
    /// Opens the CPU and tries whether there is memory for the workers and for the batches that exist at a time, at
    /// most [`TRIED_BATCHES`]. This takes no time, because the system provides pages only when they are first touched.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub(super) fn open(options: &Arc<RunOptions>, tables: Tables) -> Result<Self> {
        let pins = options.pin_batches.map(driver::context).transpose()?;
        let callers = options.batch_memory.as_ref().map(|memory| &memory.0);
        let pool = |output: &OutputForm| {
            let pool = Pool::new(output.elements.dtype, options.kept_tensors()).of_bytes(options.spare_bytes());
            Arc::new(pool.pinned(pins.as_ref()).of_caller(callers))
        };
        let pools: Vec<_> = options.outputs.iter().map(pool).collect();
        // The caller's memory is taken when it is needed: taking it may start a device.
        let tried = if callers.is_some() { 0 } else { options.batches_at_a_time().min(TRIED_BATCHES) };
        let outputs = (0..tried).flat_map(|_| options.outputs.iter().zip(&pools));
        let take = |(output, pool): (&OutputForm, &Arc<Pool>)| pool.take(output.len_bytes(options.batch_images));
        let batches = outputs.map(take).collect::<Result<Vec<_>>>()?;
        let workers = options.threads.max(1).saturating_mul(WORKER_BYTES);
        drop((memory::zeros::<u8>(workers, "the workers beside the batches", memory::SMALLER_BATCHES)?, batches));
        let images = if options.is_padded() { options.batches_at_a_time() * options.batch_images } else { 0 };
        let unpadded = Arc::new(Pool::new(options.elements().dtype, images).of_bytes(options.spare_bytes()));
        let targets = Arc::new(Pool::new(DType::F32, options.batches_at_a_time()));
        Ok(Self { options: Arc::clone(options), tables, pools, unpadded, targets })
    }
}

/// A batch being filled.
pub(crate) enum Batch {
    /// Tensors that are filled, and the size of their images, if batches have sizes of their own.
    Views(HostBatch, Option<Size>),
    /// Images with sizes of their own, by their places.
    Ragged(Vec<Mutex<Option<(Size, HostBuffer)>>>),
}

impl Cpu {
    /// One tensor of images of different sizes, each in the upper left corner of its place, with zeros to its right and
    /// below it. The last image is there `padding` times more.
    fn pad(&self, all: &[(Size, HostBuffer)], sizes: &[Size], padding: usize) -> Result<Tensor> {
        let (output, images) = (&self.options.outputs[0], all.len() + padding);
        let (elements, common) = (output.elements, output.common_size(sizes, images)?);
        let image_bytes = elements.image_bytes(common);
        let mut buffer = self.pools[0].take(images * image_bytes)?;
        let bytes = &mut buffer.as_bytes_mut()[..images * image_bytes];
        for ((size, image), place) in all.iter().zip(bytes.chunks_exact_mut(image_bytes)) {
            let row_bytes = |size: Size| elements.row_bytes(size);
            let planes = if elements.has_planes() { elements.channels } else { 1 };
            let from =
                image.as_bytes()[..elements.image_bytes(*size)].chunks_exact(elements.image_bytes(*size) / planes);
            for (from, to) in from.zip(place.chunks_exact_mut(image_bytes / planes)) {
                let mut rows = from.chunks_exact(row_bytes(*size));
                for to in to.chunks_exact_mut(row_bytes(common)) {
                    let row = rows.next().unwrap_or_default();
                    let (own, beside) = to.split_at_mut(row.len());
                    own.copy_from_slice(row);
                    beside.fill(0);
                }
            }
        }
        let last = (all.len() - 1) * image_bytes..all.len() * image_bytes;
        for i in all.len()..images {
            bytes.copy_within(last.clone(), i * image_bytes);
        }
        Ok(elements.tensor(Storage::Host(buffer), common, images))
    }

    /// Makes the images of a sample, one for each plan, in these bytes.
    fn images<'a>(
        &self,
        host: &mut Executor,
        job: &Job<'_>,
        plans: &[Plan<'_>],
        bytes: impl Iterator<Item = &'a mut [u8]>,
    ) -> Result<Times> {
        let elements = self.options.elements();
        if let Some(values) = &self.options.values {
            let mut outputs: Vec<_> = bytes.map(|bytes| ValueOutput::new(bytes, elements)).collect();
            return host.run_values(job, values, plans, &mut outputs);
        }
        let output = |(bytes, plan): (_, &Plan<'_>)| Output::new(bytes, plan.size, &self.tables, elements);
        let mut outputs: Vec<_> = bytes.zip(plans).map(output).collect();
        host.run(job, plans, &mut outputs)
    }

    /// Mixes the images of a batch, if `end` asks for it. Returns the time taken.
    fn mix(&self, views: &mut [HostBuffer], of_batch: Option<Size>, end: &End<'_>) -> Duration {
        let Some(plan) = end.mix.filter(|plan| plan.changes()) else { return Duration::ZERO };
        let start = Instant::now();
        for (buffer, output) in views.iter_mut().zip(&self.options.outputs) {
            let Some(size) = of_batch.or(output.size) else { continue };
            let len_bytes = plan.images.len() * output.times * output.elements.image_bytes(size);
            let bytes = &mut buffer.as_bytes_mut()[..len_bytes];
            mix::mix(bytes, plan, size, output.elements);
        }
        start.elapsed()
    }
}

impl RunOptions {
    /// The job of one image.
    pub(crate) fn job<'a>(&'a self, image: Input<'a>, header: &'a Header) -> Job<'a> {
        Job { image, header, how: self.how() }
    }
}

impl Backend for Cpu {
    type Worker = ();
    type Batch = Batch;

    fn name(&self) -> &str {
        "cpu"
    }

    fn device_bytes(&self) -> u64 {
        0
    }

    fn worker(&self) -> Result<()> {
        Ok(())
    }

    fn give_worker(&self, _worker: ()) {}

    fn buffer(&self, host: &mut Executor) -> Vec<u8> {
        std::mem::take(&mut host.buffer)
    }

    fn give_buffer(&self, host: &mut Executor, buffer: Vec<u8>) {
        if buffer.capacity() > host.buffer.capacity() {
            host.buffer = buffer;
        }
    }

    fn begin(&self, samples: usize, size: Option<Size>) -> Result<Batch> {
        if self.options.is_ragged() {
            return Ok(Batch::Ragged((0..samples).map(|_| Mutex::default()).collect()));
        }
        let view = |(pool, output): (&Arc<Pool>, &OutputForm)| {
            let image_bytes = output.elements.image_bytes(size.unwrap_or(output.one_size()));
            let room = if size.is_some() { samples } else { self.options.batch_images };
            let buffer = pool.take(room * output.times * image_bytes)?;
            Ok(HostView::new(buffer, image_bytes, output.times))
        };
        let views = self.pools.iter().zip(&self.options.outputs).map(view).collect::<Result<_>>()?;
        Ok(Batch::Views(HostBatch::new(views, samples), size))
    }

    fn run(
        &self,
        (host, _worker): (&mut Executor, &mut ()),
        batch: &Batch,
        image: Given<'_>,
        sample: &PlannedSample<'_>,
    ) -> Result<Ran> {
        let start = Instant::now();
        let mask = |planned: &PlannedMask<'_>| host.stages.run_mask(planned.mask, &planned.plan);
        let masks = sample.masks.iter().map(mask).collect::<Result<Vec<_>>>()?;
        let moving = start.elapsed();
        let options = &self.options;
        let job = options.job(image.input()?, sample.header);
        let plans = sample.plans;
        let elements = options.elements();
        let times = match batch {
            Batch::Views(batch, _) => {
                let mut slot = batch.slot(sample.place)?;
                self.images(host, &job, plans, slot.images())
            }
            Batch::Ragged(places) => {
                let (size, place) = (plans[0].size, &places[sample.place]);
                let len_bytes = elements.image_bytes(size);
                let pool = if options.is_padded() { &self.unpadded } else { &self.pools[0] };
                let mut buffer = pool.take(len_bytes)?;
                let bytes = &mut buffer.as_bytes_mut()[..len_bytes];
                let times = self.images(host, &job, plans, std::iter::once(bytes));
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((size, buffer));
                times
            }
        };
        self.give_buffer(host, image.into_buffer());
        let mut work = WorkStats::from(times?);
        work.augment += moving;
        Ok(Ran { work, masks })
    }

    fn take_counts(&self, _worker: &mut ()) -> Decoded {
        Decoded::default()
    }

    fn settle(&self, _worker: (&mut Executor, &mut ()), _batch: &mut Batch) -> Result<Settled> {
        Ok(Settled::default())
    }

    fn finish(&self, batch: Batch, end: &End<'_>) -> Result<Finished> {
        let mut targets = end.annotations.numbers().map(|targets| self.targets.take(targets.len())).transpose()?;
        if let (Some(buffer), Some(targets)) = (&mut targets, end.annotations.numbers()) {
            buffer.as_bytes_mut()[..targets.len()].copy_from_slice(targets);
        }
        let mut sizes = Vec::new();
        let (images, mix) = match batch {
            Batch::Views(batch, of_batch) => {
                let mut views = batch.into_buffers(end.places, end.padding);
                let mixing = self.mix(&mut views, of_batch, end);
                let samples = end.annotations.len();
                let tensor = |(buffer, output): (_, &OutputForm)| {
                    let size = of_batch.unwrap_or(output.one_size());
                    output.elements.tensor(Storage::Host(buffer), size, output.times * samples)
                };
                (views.into_iter().zip(&self.options.outputs).map(tensor).collect(), mixing)
            }
            Batch::Ragged(mut places) => {
                let image = |place: &usize| {
                    let image = places[*place].get_mut().unwrap_or_else(PoisonError::into_inner).take();
                    image.ok_or_else(|| Error::Panic { message: "a sample of the batch is missing".to_owned() })
                };
                let all: Vec<(Size, HostBuffer)> = end.places.iter().map(image).collect::<Result<_>>()?;
                sizes.extend(all.iter().map(|(size, _)| *size));
                if self.options.is_padded() {
                    (vec![self.pad(&all, &sizes, end.padding)?], Duration::ZERO)
                } else {
                    let elements = self.options.elements();
                    let tensor = |(size, buffer)| elements.tensor(Storage::Host(buffer), size, 1);
                    (all.into_iter().map(tensor).collect(), Duration::ZERO)
                }
            }
        };
        if let Some(last) = sizes.last().copied() {
            sizes.extend((0..end.padding).map(|_| last));
        }
        Ok(Finished { images, sizes, targets: targets.map(Storage::Host), masks: Vec::new(), mix })
    }

    fn abandon(&self, _batch: Batch) {}
}
