//! A batch's images together: launches, and what becomes of images that they flag.
#![allow(unsafe_code)]

use super::job::Job;
use super::kernels::Staged;
use crate::backend::Settled;
use crate::backend::cuda::arena::StagingWriter;
use crate::backend::cuda::gpu::Gpu;
use crate::backend::cuda::in_flight::InFlight;
use crate::backend::cuda::worker::Worker;
use crate::cuda::driver::{self, Context, Event, HostMemory};
use crate::decode::Reason;
use crate::error::Result;

/// What the decoder needs of an in-flight batch.
pub(in crate::backend::cuda) struct Decoding {
    /// A word for each image of a full batch, which the device copies here: why it flags the image.
    status: HostMemory,
    /// The words are here.
    judged: Event,
    began: Event,
    ended: Event,
}

impl Decoding {
    fn new(context: &Context, images: usize) -> Result<Self> {
        Ok(Self {
            // Pinned whatever the rest is: the host would wait for a copy to pageable memory in the call.
            status: HostMemory::new(context, images * size_of::<u32>(), true)?,
            judged: Event::new(context)?,
            began: Event::timed(context)?,
            ended: Event::timed(context)?,
        })
    }

    /// How long the device took for the last batch, which it is done with.
    pub(in crate::backend::cuda) fn took_ms(&self) -> Option<f32> {
        self.ended.since_ms(&self.began)
    }
}

impl Gpu {
    /// Has the device decode what was left to it, and the CPU what the device flags.
    ///
    /// # Synchronization
    /// Waits until the device knows which images it flags. Their pixels may come later, in the order of the stream that
    /// kernels run on.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda) or another that ends the epoch, after which the batch is to be abandoned.
    pub(in crate::backend::cuda) fn decode_on_device(
        &self,
        worker: &mut Worker,
        batch: &mut InFlight,
    ) -> Result<Settled> {
        let mut jobs = Vec::new();
        for (place, sample) in batch.samples_mut().iter_mut().enumerate() {
            if let Some(job) = sample.as_mut().and_then(|sample| sample.jpeg_job.take()) {
                jobs.push((place, job));
            }
        }
        if jobs.is_empty() {
            return Ok(Settled::default());
        }
        let status = self.queue_decoding(batch, &jobs)?;
        // What this worker puts from now on is not in the copy that is under way.
        worker.staging = StagingWriter::default();
        batch.on_device = jobs.len();
        let mut bad = Vec::new();
        for ((place, job), status) in jobs.into_iter().zip(status) {
            match Reason::of_status(status) {
                None => worker.decoded.device += 1,
                Some(reason) => {
                    worker.decoded.left.add(reason);
                    let Job { image, encoded, part } = &*job;
                    // SAFETY: the pixels are the batch's and as many as the part has. All that the stream does before is
                    // this decoder's, and its readers come behind.
                    let decoded =
                        unsafe { self.decode_instead(worker, encoded.bytes(), *part, image.pixels, &self.compute) };
                    if let Err(error) = decoded {
                        bad.push((place, error));
                    }
                }
            }
            self.keep_buffer(job.encoded.into_buffer());
        }
        Ok(Settled { bad, decoded: worker.take_decoded() })
    }

    /// Queues the launches, and waits for the images' status.
    fn queue_decoding(&self, batch: &mut InFlight, jobs: &[(usize, Box<Job>)]) -> Result<Vec<u32>> {
        let mut staging = StagingWriter::default();
        let images = jobs.iter().map(|(_, job)| job.image).collect();
        let staged = Staged::new(images, &batch.arena, &mut staging)?;
        self.upload(batch)?;
        let state = match batch.decoding_mut() {
            Some(state) => state,
            none => none.insert(Decoding::new(&self.context, self.options.batch_images)?),
        };
        let (kernels, compute) = (&self.kernels.jpeg, &self.compute);
        state.began.record(compute)?;
        // SAFETY: the images and all that they point to lie in the arena, whose staging memory the stream has been made to
        // wait for, and which is used again only after the batch is done.
        unsafe { staged.judge(kernels, compute)? };
        let (status, len_bytes) = (state.status.start(), size_of::<u32>() * jobs.len());
        // SAFETY: there is a word for each image of a full batch, and nobody touches them before the event.
        unsafe { driver::download_later(status, staged.status(), len_bytes, compute)? };
        state.judged.record(compute)?;
        // SAFETY: as above.
        unsafe { staged.make(kernels, compute)? };
        state.ended.record(compute)?;
        state.judged.synchronize()?;
        // SAFETY: written by the copy that was just waited for; pinned memory begins at a page.
        Ok(unsafe { std::slice::from_raw_parts(status.cast::<u32>(), jobs.len()) }.to_vec())
    }
}
