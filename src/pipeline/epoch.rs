//! One epoch in flight: worker threads fill batches, the consumer takes them in order.
//!
//! The unit of work is a sample, so that threads stay busy to the end of a batch. A worker takes the next position of
//! the epoch under the lock, does all the work outside it, and writes its result to the sample's own slot of the batch's
//! buffer. At most `prefetch` batches are being filled or ready: a consumer that stalls stalls the workers.

use super::batch::Batch;
use super::state::EpochState;
use super::stats::{Counters, Stats};
use super::{Inner, LastBatch, OnError};
use crate::cpu::executor::{Executor, Job};
use crate::error::{Error, Result};
use crate::sampler::Order;
use crate::tensor::{HostBuffer, Tensor};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Most bad samples that are kept with their errors; all are counted.
const KEPT_BAD_SAMPLES: usize = 1_000;
/// Samples tried in the place of a bad one before the epoch ends with an error.
const SUBSTITUTES: u32 = 16;

/// A sample that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct BadSample {
    /// Its path or name.
    pub path: String,
    /// Its index in the source.
    pub index: u64,
    /// What was wrong with it.
    pub error: String,
}

/// An iterator over the batches of one epoch. Dropping it stops and joins its worker threads.
///
/// ```
/// # use warpfeed::*;
/// # fn source(n: u32) -> Result<EncodedPictures> {
/// #     let jpeg = encode_jpeg(&Picture::new(Size::new(40, 30)), &JpegOptions::default())?;
/// #     Ok(EncodedPictures::new((0..n).map(|label| (jpeg.clone(), label))))
/// # }
/// let pipeline = Pipeline::builder(source(10)?).batch_size(4).center_crop(8).build()?;
/// let mut epoch = pipeline.epoch(3);
/// assert_eq!((epoch.number(), epoch.pictures()), (3, 10));
/// let mut sizes = Vec::new();
/// for batch in epoch.by_ref() {
///     sizes.push(batch?.len());
/// }
/// assert_eq!(sizes, [4, 4, 2]);
/// assert_eq!((epoch.stats().pictures, epoch.stats().batches), (10, 3));
/// assert!(epoch.bad().is_empty());
/// # Ok::<(), Error>(())
/// ```
pub struct Epoch {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// What the consumer counts.
    stats: Stats,
    /// Positions that the consumer has been given.
    given: u64,
    finished: bool,
}

impl std::fmt::Debug for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoch").field("epoch", &self.shared.epoch).field("stats", &self.stats()).finish()
    }
}

/// What the workers and the consumer share.
struct Shared {
    inner: Arc<Inner>,
    epoch: u64,
    order: Order,
    /// Where in the order it begins: position 0 everywhere else in here is this one.
    first: u64,
    /// Positions that are delivered: fewer than the order's if the last batch is dropped.
    positions: u64,
    /// How many of them, at the end, are padding.
    padding: u64,
    counters: Counters,
    state: Mutex<State>,
    /// Workers wait here for room.
    room: Condvar,
    /// The consumer waits here for its batch.
    ready: Condvar,
}

#[derive(Default)]
struct State {
    /// The next position to work on.
    next: u64,
    /// The number of the batch at the front of `batches`.
    front: u64,
    /// Batches being filled, in order.
    batches: VecDeque<Filling>,
    bad: Vec<BadSample>,
    bad_count: u64,
    /// Positions from here on are not begun: the end of the epoch, of a batch that failed, or 0 once stopped.
    limit: u64,
}

/// A batch being filled.
struct Filling {
    slots: Slots,
    samples: Vec<Slot>,
    remaining: usize,
}

/// What became of one position of a batch.
enum Slot {
    Pending,
    Done { index: u64, label: u32 },
    Skipped,
    Failed(Error),
}

/// The buffer of a batch, written by several workers at once, each to slots of its own.
struct Slots {
    buffer: HostBuffer,
    start: *mut u8,
    slot_bytes: usize,
}

// SAFETY: `start` points into `buffer`, which is owned and never reallocated while in here; see `Slots::slot`.
#[allow(unsafe_code)]
unsafe impl Send for Slots {}

impl Slots {
    fn new(mut buffer: HostBuffer, slot_bytes: usize) -> Self {
        let start = buffer.as_bytes_mut().as_mut_ptr();
        Self { buffer, start, slot_bytes }
    }

    /// Where slot `i` lies.
    fn slot(&self, i: usize) -> SlotPointer {
        debug_assert!((i + 1) * self.slot_bytes <= self.buffer.as_bytes().len());
        SlotPointer { start: self.start.wrapping_add(i * self.slot_bytes), len_bytes: self.slot_bytes }
    }
}

/// One slot of a batch on its way to the worker that fills it.
struct SlotPointer {
    start: *mut u8,
    len_bytes: usize,
}

impl SlotPointer {
    /// The slot's bytes.
    ///
    /// # Safety
    /// The batch must still be filling, and no one else may use the slot meanwhile.
    #[allow(unsafe_code)]
    unsafe fn bytes<'a>(&self) -> &'a mut [u8] {
        // SAFETY: the slot lies inside the batch's buffer (`Slots::slot`), which lives and stays in place while the batch
        // is filling, and the caller is the slot's only user.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len_bytes) }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The state is consistent at every unlock, and nothing in between panics.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Epoch {
    /// Begins an epoch at position `first` of its order.
    pub(super) fn start(inner: Arc<Inner>, epoch: u64, first: u64) -> Self {
        let order = inner.sampler.epoch(epoch);
        let positions = inner.positions(first);
        let padding = (first + positions).saturating_sub(order.len() - order.padding());
        let shared = Arc::new(Shared {
            epoch,
            order,
            first,
            positions,
            padding,
            counters: Counters::default(),
            state: Mutex::new(State { limit: positions, ..State::default() }),
            room: Condvar::new(),
            ready: Condvar::new(),
            inner,
        });
        let mut workers = Vec::new();
        for i in 0..shared.inner.threads.min(positions.try_into().unwrap_or(usize::MAX)) {
            let worker = Arc::clone(&shared);
            let spawned = std::thread::Builder::new().name(format!("warpfeed-{i}")).spawn(move || worker.work());
            match spawned {
                Ok(handle) => workers.push(handle),
                // Fewer threads than asked for are slower, not wrong; none at all is an error at the first batch.
                Err(_) => break,
            }
        }
        Self { shared, workers, stats: Stats::default(), given: 0, finished: false }
    }

    /// Which epoch this is.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.shared.epoch
    }

    /// Number of samples this epoch delivers if none is skipped, padding not counted. One that was resumed has only what
    /// was left.
    #[must_use]
    pub fn pictures(&self) -> u64 {
        self.shared.positions - self.shared.padding
    }

    /// Where it stands: after the batches that [`next`](Iterator::next) has given, whatever the threads have prepared
    /// beyond them. A batch that ended in an error counts as not given.
    #[must_use]
    pub fn state(&self) -> EpochState {
        EpochState::new(&self.shared.inner, self.shared.epoch, self.shared.first + self.given)
    }

    /// What has been done so far and where the time went.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats += self.shared.counters.snapshot();
        stats.bad = lock(&self.shared.state).bad_count;
        stats
    }

    /// The samples that could not be used so far, by policy [`OnError::Skip`] or [`OnError::Substitute`]: the first
    /// 1,000 in the order of the source; [`Stats::bad`] counts all.
    #[must_use]
    pub fn bad(&self) -> Vec<BadSample> {
        let mut bad = lock(&self.shared.state).bad.clone();
        bad.sort_by_key(|bad| bad.index);
        bad
    }

    /// Takes the batch at the front once it is full.
    fn take(&mut self) -> Option<Filling> {
        let shared = &self.shared;
        let start = Instant::now();
        if shared.inner.threads == 0 {
            shared.fill_front();
        }
        let mut state = lock(&shared.state);
        let filling = loop {
            if state.front * shared.inner.batch_size as u64 >= shared.positions {
                return None;
            }
            match state.batches.front() {
                Some(front) if front.remaining == 0 => break state.batches.pop_front(),
                _ => state = shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        state.front += 1;
        drop(state);
        shared.room.notify_all();
        self.stats.consumer_wait += start.elapsed();
        filling
    }

    /// Makes a batch of what the workers left.
    fn batch(&mut self, filling: Filling) -> Result<Option<Batch>> {
        let inner = &self.shared.inner;
        let Filling { slots, samples, .. } = filling;
        let end = self.given + samples.len() as u64;
        let (mut buffer, slot_bytes) = (slots.buffer, slots.slot_bytes);
        let (mut labels, mut indices) = (Vec::with_capacity(samples.len()), Vec::with_capacity(samples.len()));
        for (i, sample) in samples.into_iter().enumerate() {
            match sample {
                Slot::Done { index, label } => {
                    // Close the gap that skipped samples left.
                    if labels.len() < i {
                        let from = i * slot_bytes;
                        buffer.as_bytes_mut().copy_within(from..from + slot_bytes, labels.len() * slot_bytes);
                    }
                    labels.push(label);
                    indices.push(index);
                }
                Slot::Failed(error) => {
                    inner.pool.give(buffer);
                    return Err(error);
                }
                Slot::Skipped | Slot::Pending => {}
            }
        }
        self.given = end;
        let filled = labels.len();
        let (Some(&label), Some(&index)) = (labels.last(), indices.last()) else {
            inner.pool.give(buffer);
            return Ok(None);
        };
        let pictures = filled - end.saturating_sub(self.pictures()) as usize;
        if inner.last == LastBatch::Pad {
            let last = (filled - 1) * slot_bytes;
            for i in filled..inner.batch_size {
                buffer.as_bytes_mut().copy_within(last..last + slot_bytes, i * slot_bytes);
            }
            labels.resize(inner.batch_size, label);
            indices.resize(inner.batch_size, index);
        }
        self.stats.batches += 1;
        self.stats.pictures += pictures as u64;
        let padding = labels.len() - pictures;
        let images = Tensor::new(buffer, inner.shape(labels.len()), inner.dtype, inner.layout);
        Ok(Some(Batch::new(images, labels, indices, padding, Arc::clone(&inner.pool))))
    }

    fn stop(&mut self) {
        self.finished = true;
        lock(&self.shared.state).limit = 0;
        self.shared.room.notify_all();
        for worker in self.workers.drain(..) {
            // A worker's panic has been turned into an error of its sample.
            let _ = worker.join();
        }
    }
}

impl Iterator for Epoch {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        if self.workers.is_empty() && self.shared.inner.threads > 0 && self.shared.positions > 0 {
            self.finished = true;
            let (call, message) =
                ("spawn a worker thread".into(), "the system gave none; free threads or memory".into());
            return Some(Err(Error::Device { call, message }));
        }
        while let Some(filling) = self.take() {
            match self.batch(filling) {
                Ok(Some(batch)) => return Some(Ok(batch)),
                // Every sample of it was skipped.
                Ok(None) => {}
                Err(error) => {
                    self.stop();
                    return Some(Err(error));
                }
            }
        }
        self.stop();
        None
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A position to work on, and where its result goes.
struct Task {
    position: u64,
    /// The sample there.
    index: u64,
    slot: SlotPointer,
}

impl Shared {
    /// A worker thread's life.
    fn work(&self) {
        let mut worker = self.worker();
        while let Some(task) = self.next_task() {
            self.run(task, &mut worker);
        }
        self.give_back(worker);
    }

    /// Without worker threads: the consumer's own fills the batch at the front.
    fn fill_front(&self) {
        let mut worker = self.worker();
        // Positions are begun in order, so the batch at the front is the only one begun.
        while lock(&self.state).batches.front().is_none_or(|front| front.remaining > 0) {
            let Some(task) = self.next_task() else { break };
            self.run(task, &mut worker);
        }
        self.give_back(worker);
    }

    fn worker(&self) -> Worker {
        Worker { executor: self.inner.executor(), read_buffer: Vec::new() }
    }

    fn give_back(&self, worker: Worker) {
        if let Ok(executor) = worker.executor {
            self.inner.give_executor(executor);
        }
    }

    /// Does the work on one position.
    fn run(&self, task: Task, worker: &mut Worker) {
        // SAFETY: `next_task` gives out each position, and so each slot, once; the batch stays in `batches` until this
        // position is marked as finished below.
        #[allow(unsafe_code)]
        let out = unsafe { task.slot.bytes() };
        let index = task.index;
        let result = catch_unwind(AssertUnwindSafe(|| worker.position(self, index, out))).unwrap_or_else(|panic| {
            // Whatever it was doing is half done.
            worker.executor = Executor::new();
            Slot::Failed(self.sample_error(index, Error::panic(panic.as_ref())))
        });
        self.finish(task.position, result);
    }

    /// Waits for room and takes the next position; `None` when there is none left or the epoch was stopped.
    fn next_task(&self) -> Option<Task> {
        let batch_size = self.inner.batch_size as u64;
        let mut state = lock(&self.state);
        loop {
            if state.next >= state.limit {
                return None;
            }
            let batch = state.next / batch_size;
            if batch < state.front + self.inner.prefetch as u64 {
                break;
            }
            let start = Instant::now();
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            self.counters.add_worker_wait(start.elapsed());
        }
        let position = state.next;
        let index = self.order.get(self.first + position)?;
        state.next += 1;
        let (batch, slot) = (position / batch_size - state.front, (position % batch_size) as usize);
        if batch as usize == state.batches.len() {
            let len = (self.positions - position).min(batch_size) as usize;
            let slots = Slots::new(self.inner.pool.take(), self.inner.slot_bytes());
            let samples = (0..len).map(|_| Slot::Pending).collect();
            state.batches.push_back(Filling { slots, samples, remaining: len });
        }
        let slot = state.batches[batch as usize].slots.slot(slot);
        Some(Task { position, index, slot })
    }

    /// Marks a position as finished.
    fn finish(&self, position: u64, result: Slot) {
        let batch_size = self.inner.batch_size as u64;
        let mut state = lock(&self.state);
        if matches!(result, Slot::Failed(_)) {
            // Nothing after this batch will be delivered: no need to begin more.
            state.limit = state.limit.min((position / batch_size + 1) * batch_size);
        }
        let front = state.front;
        let filling = &mut state.batches[(position / batch_size - front) as usize];
        filling.samples[(position % batch_size) as usize] = result;
        filling.remaining -= 1;
        if filling.remaining == 0 {
            self.ready.notify_one();
        }
    }

    fn sample_error(&self, index: u64, error: Error) -> Error {
        Error::Sample { index, name: self.name(index), source: Box::new(error) }
    }

    fn name(&self, index: u64) -> String {
        // The source may be the caller's code: not even its panic may keep an error from being delivered.
        catch_unwind(AssertUnwindSafe(|| self.inner.source.name(index).into_owned()))
            .unwrap_or_else(|_| "its name cannot be had".to_owned())
    }

    fn record_bad(&self, index: u64, error: &Error) {
        let bad = BadSample { path: self.name(index), index, error: error.to_string() };
        let mut state = lock(&self.state);
        state.bad_count += 1;
        if state.bad.len() < KEPT_BAD_SAMPLES {
            state.bad.push(bad);
        }
    }
}

/// One thread's decoder and memory.
struct Worker {
    executor: Result<Executor>,
    read_buffer: Vec<u8>,
}

impl Worker {
    /// Works on the sample at one position, or on what stands in for it.
    fn position(&mut self, shared: &Shared, index: u64, out: &mut [u8]) -> Slot {
        let error = match self.sample(shared, index, out) {
            Ok(label) => return Slot::Done { index, label },
            Err(error) => error,
        };
        let policy = shared.inner.on_error;
        if policy == OnError::Fail || !error.is_bad_sample() {
            return Slot::Failed(shared.sample_error(index, error));
        }
        shared.record_bad(index, &error);
        if policy == OnError::Skip {
            return Slot::Skipped;
        }
        for attempt in 0..SUBSTITUTES {
            let Some(other) = shared.inner.sampler.substitute(shared.epoch, index, attempt) else {
                let error = Error::decode("picture", format!("{error}; there is no other sample to take its place"));
                return Slot::Failed(shared.sample_error(index, error));
            };
            match self.sample(shared, other, out) {
                Ok(label) => return Slot::Done { index: other, label },
                Err(error) if error.is_bad_sample() => {}
                Err(error) => return Slot::Failed(shared.sample_error(other, error)),
            }
        }
        let error = Error::decode(
            "picture",
            format!("{error}; nor could {SUBSTITUTES} others drawn in its place be used: check the data set"),
        );
        Slot::Failed(shared.sample_error(index, error))
    }

    /// Reads, decodes and augments one sample into its slot; its label.
    fn sample(&mut self, shared: &Shared, index: u64, out: &mut [u8]) -> Result<u32> {
        let (inner, counters) = (&shared.inner, &shared.counters);
        let executor = match &mut self.executor {
            Ok(executor) => executor,
            Err(_) => {
                self.executor = Executor::new();
                return Err(Error::Device {
                    call: "create a decoder".into(),
                    message: "the decoder library gave none; free memory".into(),
                });
            }
        };
        let start = Instant::now();
        let bytes = inner.source.read(index, &mut self.read_buffer)?;
        counters.add_read(bytes.len(), start.elapsed());
        let start = Instant::now();
        let header = inner.header(bytes)?;
        counters.add_decode(start.elapsed());
        let start = Instant::now();
        let ops = inner.recipe(shared.epoch, index, &header)?;
        let drawing = start.elapsed();
        let job = Job {
            bytes,
            header: &header,
            ops: &ops,
            strategy: inner.strategy,
            order: inner.pass_order,
            accept_truncated: inner.accept_truncated,
            max_px: inner.max_px,
        };
        let mut output = inner.output(out);
        let times = executor.run(&job, &mut output)?;
        counters.add_decode(times.decode);
        counters.add_augment(drawing + times.augment);
        Ok(inner.source.label(index))
    }
}
