//! One pipeline for each of several devices, over one source.

use super::epoch::{Beginning, Epoch};
use super::state::EpochState;
use super::{MemoryBound, Pipeline};
use crate::error::{Error, Result};

/// Pipelines for several devices of one process: one source, one order, one image cache, and one set of worker threads. Each
/// device has an epoch of its own, with samples that no other has and as many batches as every other, which can be given to
/// a thread of its own. [`Builder::build_group`](crate::Builder::build_group) makes it.
///
/// Device i of n delivers what rank i of n delivers in a process of its own, to the byte; where the builder was given a
/// partition r of w, what rank r * n + i of w * n delivers. A device that fails ends its own epoch. The others go on.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
/// // With two GPUs: [Device::Cuda(0), Device::Cuda(1)].
/// let group = Pipeline::builder(source).batch_size(2).shuffle(42).center_crop(8).build_group([Device::Cpu, Device::Cpu])?;
/// std::thread::scope(|scope| {
///     for epoch in group.epochs(0) {
///         scope.spawn(move || assert_eq!(epoch.map(|batch| batch.unwrap().len()).sum::<usize>(), 5));
///     }
/// });
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PipelineGroup {
    pipelines: Vec<Pipeline>,
}

impl PipelineGroup {
    /// One at least.
    pub(super) fn new(pipelines: Vec<Pipeline>) -> Self {
        Self { pipelines }
    }

    /// The pipeline of each device. An epoch that is asked of one of them has threads of its own.
    #[must_use]
    pub fn pipelines(&self) -> &[Pipeline] {
        &self.pipelines
    }

    /// An epoch for each device. They share the worker threads, which start now and end with the last of the epochs.
    #[must_use]
    pub fn epochs(&self, epoch: u64) -> Vec<Epoch> {
        Epoch::start_all(self.pipelines.iter().map(|pipeline| pipeline.beginning(epoch)).collect())
    }

    /// The rest of an epoch for each device, from a state of each, in the order of the devices: see [`Pipeline::resume`].
    ///
    /// # Errors
    /// [`Error::Parameter`] for another number of states, and for states of several epochs; those of [`Pipeline::resume`].
    pub fn resume(&self, states: &[EpochState]) -> Result<Vec<Epoch>> {
        if states.len() != self.pipelines.len() {
            let expected = format!("{}, one for each device", self.pipelines.len());
            return Err(Error::parameter("resume", "states", expected, states.len()));
        }
        if let Some(other) = states.iter().find(|state| state.epoch() != states[0].epoch()) {
            let expected = format!("states of one epoch, as of {}", states[0].epoch());
            return Err(Error::parameter("resume", "states", expected, other.epoch()));
        }
        let rests = self.pipelines.iter().zip(states).map(|(pipeline, state)| pipeline.rest(state));
        Ok(Epoch::start_all(rests.collect::<Result<Vec<Beginning<'_>>>>()?))
    }

    /// The memory that it takes at most: of each pipeline, but for what they share.
    #[must_use]
    pub fn memory(&self) -> MemoryBound {
        let mut all = self.pipelines[0].memory();
        for pipeline in &self.pipelines[1..] {
            let own = pipeline.memory();
            all.batches_bytes += own.batches_bytes;
            all.images_bytes = all.images_bytes.saturating_add(own.images_bytes);
            let shared_bytes = pipeline.inner.input.memory_bytes();
            all.encoded_bytes = all.encoded_bytes.saturating_add(own.encoded_bytes - shared_bytes);
            all.order_bytes = all.order_bytes.saturating_add(own.order_bytes);
            all.device_bytes += own.device_bytes;
        }
        all
    }
}
