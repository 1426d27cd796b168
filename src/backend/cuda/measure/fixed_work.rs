//! A training step with a fixed amount of work.
#![allow(unsafe_code)]

use crate::backend::cuda::fatbin;
use crate::cuda::driver::{self, Context, Event, Function, Module, Stream};
use crate::device::StreamPriority;
use crate::error::Result;
use crate::ops::descriptors::Launch;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of repetitions in a thread, about 20 us.
const REPEATS: u32 = 8_192;
/// Number of blocks with which the search for a launch's length begins, and the largest number.
const FIRST_BLOCKS: u32 = 32;
const MAX_BLOCKS: u32 = 1 << 24;
/// Approximate length of a launch. Other work of the same priority gets its turn between two launches, so a step of
/// a single launch would let decoders do next to nothing. Layers of a network take about as long as this.
const LAUNCH: Duration = Duration::from_micros(100);
const MAX_LAUNCHES: u32 = 1 << 16;

/// The step, with a stream of its own.
pub(super) struct FixedWork {
    function: Function,
    stream: Stream,
    began: Event,
    ended: Event,
    blocks: u32,
    launches: u32,
    /// Keeps the function valid.
    _module: Arc<Module>,
}

impl FixedWork {
    /// A step that takes about `length` while the device does nothing else. Its priority is the default of a trainer's
    /// stream.
    pub(super) fn new(context: &Context, length: Duration) -> Result<Self> {
        let module = fatbin::module(context)?;
        let mut work = Self {
            function: module.function("work")?,
            stream: Stream::new(context, StreamPriority::Low)?,
            began: Event::timed(context)?,
            ended: Event::timed(context)?,
            blocks: FIRST_BLOCKS,
            launches: 1,
            _module: module,
        };
        // One more run, because the first launch waits until the kernel's code is loaded.
        work.run()?;
        while work.took()? < LAUNCH.min(length) && work.blocks < MAX_BLOCKS {
            work.blocks *= 2;
        }
        while work.took()? < length && work.launches < MAX_LAUNCHES {
            work.launches *= 2;
        }
        Ok(work)
    }

    /// The time of a step by the host's clock.
    fn took(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.run()?;
        Ok(began.elapsed())
    }

    /// Runs a step and returns its time on the device.
    fn run(&mut self) -> Result<Option<f32>> {
        let launch = Launch { samples: 0, table: 0, count: REPEATS, reserved: 0 };
        self.began.record(&self.stream)?;
        for _ in 0..self.launches {
            // SAFETY: all kernels take this parameter, and this one touches no memory.
            unsafe { driver::launch("work", self.function, [self.blocks, 1, 1], [256, 1, 1], &self.stream, &launch)? };
        }
        self.ended.record(&self.stream)?;
        self.ended.synchronize()?;
        Ok(self.ended.since_ms(&self.began))
    }

    /// Runs steps one after the other for `duration`. Returns the median of their times in milliseconds.
    pub(super) fn median_ms(&mut self, duration: Duration) -> Result<f64> {
        let (began, mut lengths) = (Instant::now(), Vec::new());
        while lengths.is_empty() || began.elapsed() < duration {
            lengths.push(self.run()?.unwrap_or_default());
        }
        lengths.sort_by(f32::total_cmp);
        Ok(f64::from(lengths[lengths.len() / 2]))
    }
}
