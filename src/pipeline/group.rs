//! One pipeline for each of several devices, over one source.

use super::epoch::{Epoch, EpochStart};
use super::state::EpochState;
use super::{MemoryBound, Pipeline};
use crate::error::{Error, Result};

/// Pipelines for several devices of one process, with one source, one order, one image cache and one set of worker
/// threads. Each device has its own epoch, which can be moved to a thread of its own. The epochs have different samples
/// and the same number of batches. [`PipelineBuilder::build_group`](crate::PipelineBuilder::build_group) makes a group.
///
/// Device i of n delivers exactly the bytes that rank i of n delivers in a process of its own. If the builder has
/// partition r of w, device i delivers the bytes of rank r * n + i of w * n. If a device fails, only its own epoch
/// ends.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
/// // With two GPUs: [Device::Cuda(0), Device::Cuda(1)].
/// let group = Pipeline::builder(source).batch_size(2).shuffle(42).transform(CenterCrop::new(8)).build_group([Device::Cpu, Device::Cpu])?;
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
    /// Makes a group of at least one pipeline.
    pub(super) fn new(pipelines: Vec<Pipeline>) -> Self {
        Self { pipelines }
    }

    /// The pipeline of each device. An epoch started from one of them has its own threads.
    #[must_use]
    pub fn pipelines(&self) -> &[Pipeline] {
        &self.pipelines
    }

    /// Starts an epoch for each device. They share the worker threads, which start now and end with the last of these
    /// epochs.
    #[must_use]
    pub fn epochs(&self, epoch: u64) -> Vec<Epoch> {
        Epoch::start_all(self.pipelines.iter().map(|pipeline| pipeline.epoch_start(epoch)).collect())
    }

    /// Continues an epoch on each device from its state. `states` are in the order of the devices;
    /// [`states_after`](Self::states_after) makes them if the number of devices has changed. See [`Pipeline::resume`].
    ///
    /// # Errors
    /// [`Error::Parameter`] if the number of states is not the number of devices, or if they belong to different
    /// epochs; the errors of [`Pipeline::resume`].
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
        Ok(Epoch::start_all(rests.collect::<Result<Vec<EpochStart<'_>>>>()?))
    }

    /// Upper bounds of the memory that all pipelines take together. Shared memory is counted once.
    #[must_use]
    pub fn memory(&self) -> MemoryBound {
        let mut all = self.pipelines[0].memory();
        for pipeline in &self.pipelines[1..] {
            let own = pipeline.memory();
            all.batches_bytes += own.batches_bytes;
            all.fields_bytes = all.fields_bytes.saturating_add(own.fields_bytes);
            all.images_bytes = all.images_bytes.saturating_add(own.images_bytes);
            let shared_bytes = pipeline.setup.input.memory_bytes();
            all.encoded_bytes = all.encoded_bytes.saturating_add(own.encoded_bytes - shared_bytes);
            all.order_bytes = all.order_bytes.saturating_add(own.order_bytes);
            all.device_bytes += own.device_bytes;
            all.device_cache_bytes = all.device_cache_bytes.saturating_add(own.device_cache_bytes);
            all.spare_bytes += own.spare_bytes;
        }
        all
    }
}
