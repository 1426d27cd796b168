//! A kernel that only passes time, as a substitute for training.
#![allow(unsafe_code)]

use crate::backend::cuda::fatbin;
use crate::cuda::CudaBuffer;
use crate::cuda::driver::{self, Context, Event, Function, Module, Stream};
use crate::device::StreamPriority;
use crate::error::{Error, Result};
use crate::ops::descriptors::Launch;
use crate::tensor::Tensor;
use std::sync::Arc;
use std::time::Duration;

/// Kernels of given lengths on one device, one after the other, each after the batch that it is for.
#[derive(Debug)]
pub struct Spin {
    ordinal: u32,
    kernel: SpinKernel,
    stream: Stream,
    began: Event,
    ended: Event,
    /// Whether a kernel was queued since the last wait.
    queued: bool,
    /// Number of kernels that were waited for.
    count: u64,
    sum_ms: f64,
}

impl Spin {
    /// Prepares a kernel on the device of a batch.
    pub fn on_device_of(batch: &CudaBuffer) -> Result<Self> {
        let context = batch.pool().context();
        let _entered = driver::enter(context)?;
        let kernel = SpinKernel::load(context)?;
        // A training step has priority over the next batches.
        let stream = Stream::new(context, StreamPriority::High)?;
        let (began, ended) = (Event::timed(context)?, Event::timed(context)?);
        Ok(Self { ordinal: batch.ordinal(), kernel, stream, began, ended, queued: false, count: 0, sum_ms: 0.0 })
    }

    /// The ordinal of the device.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Queues a kernel after a batch on this device. The batch's memory is in use until the kernel ends.
    pub fn queue(&mut self, images: Tensor, length: Duration) -> Result<()> {
        let length_us = u32::try_from(length.as_nanos().div_ceil(1_000)).map_err(|_| {
            Error::parameter("StatedStep::train", "length", "at most 4294 s on a GPU", format!("{length:?}"))
        })?;
        let Some(buffer) = images.cuda() else { return Ok(()) };
        let _entered = self.ended.enter()?;
        // SAFETY: the stream belongs to the device's one primary context; the tensor is dropped before this returns.
        unsafe { buffer.on_raw_stream(self.stream.raw())? };
        self.began.record(&self.stream)?;
        self.kernel.launch(length_us, &self.stream)?;
        self.queued = true;
        self.ended.record(&self.stream)
    }

    /// Waits for the last kernel.
    pub fn finish(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.queued) {
            return Ok(());
        }
        let _entered = self.ended.enter()?;
        self.ended.synchronize()?;
        if let Some(ms) = self.ended.since_ms(&self.began) {
            self.count += 1;
            self.sum_ms += f64::from(ms);
        }
        Ok(())
    }

    /// Mean time of the kernels that were waited for.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ms / self.count as f64)
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        // Wait, because dropping this unloads the kernel's code.
        let _ = self.ended.enter().and_then(|_entered| self.stream.synchronize());
    }
}

/// The kernel that passes time. It belongs to no pipeline and takes no samples.
#[derive(Debug)]
struct SpinKernel {
    function: Function,
    /// Keeps the function valid.
    _module: Arc<Module>,
}

impl SpinKernel {
    fn load(context: &Context) -> Result<Self> {
        let module = fatbin::module(context)?;
        Ok(Self { function: module.function("spin")?, _module: module })
    }

    /// Queues a launch that takes `length_us` microseconds.
    fn launch(&self, length_us: u32, stream: &Stream) -> Result<()> {
        let launch = Launch { samples: 0, table: 0, count: length_us, reserved: 0 };
        // SAFETY: all kernels take this parameter, and this one touches no memory.
        unsafe { driver::launch("spin", self.function, [1; 3], [1; 3], stream, &launch) }
    }
}
