//! One epoch in flight: worker threads fill batches, the consumer takes them in order.
//!
//! The unit of work is a sample, so that threads stay busy to the end of a batch. A worker takes the next position of
//! the epoch under the lock, does all the work outside it, and writes its result to the sample's own slot of the batch's
//! buffer. At most `prefetch` batches are being filled or ready: a consumer that stalls stalls the workers.

use super::batch::Batch;
use super::state::EpochState;
use super::stats::{Counters, Stats};
use super::store::{Place, Slots, Store, Target};
use super::worker::Worker;
use super::{Inner, LastBatch};
use crate::cuda::InFlight;
use crate::cuda::gpu::Gpu;
use crate::error::{Error, Result};
use crate::sampler::Order;
use crate::source::Reader;
use crate::tensor::{HostBuffer, Storage, Tensor};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Most bad samples that are kept with their errors; all are counted.
const KEPT_BAD_SAMPLES: usize = 1_000;

/// Positions from one that is worked on to one whose sample is announced to its source.
const ANNOUNCED: u64 = 64;

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
/// # fn source(n: u32) -> Result<EncodedImages> {
/// #     let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// #     Ok(EncodedImages::new((0..n).map(|label| (jpeg.clone(), label))))
/// # }
/// let pipeline = Pipeline::builder(source(10)?).batch_size(4).center_crop(8).build()?;
/// let mut epoch = pipeline.epoch(3);
/// assert_eq!((epoch.number(), epoch.images()), (3, Some(10)));
/// let mut sizes = Vec::new();
/// for batch in epoch.by_ref() {
///     sizes.push(batch?.len());
/// }
/// assert_eq!(sizes, [4, 4, 2]);
/// assert_eq!((epoch.stats().images, epoch.stats().batches), (10, 3));
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
pub(super) struct Shared {
    pub(super) inner: Arc<Inner>,
    /// Where this epoch's samples are read.
    pub(super) source: Reader,
    /// Set when the epoch is dropped: whoever waits for bytes gives up.
    pub(super) stopped: Arc<AtomicBool>,
    pub(super) epoch: u64,
    order: Order,
    /// Where in the order it begins: position 0 everywhere else in here is this one.
    first: u64,
    /// Positions that are delivered: fewer than the order's if the last batch is dropped.
    positions: u64,
    /// How many of them, at the end, are padding.
    padding: u64,
    pub(super) counters: Counters,
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
    /// Where a stream has ended, once it has.
    end: Option<u64>,
}

/// A batch being filled, or ready.
struct Filling {
    /// Where its samples go; taken by whoever makes the batch of them.
    store: Option<Store>,
    samples: Vec<Slot>,
    /// How many positions it has.
    positions: usize,
    /// How many of them are not finished.
    remaining: usize,
    /// The batch; `None` inside if every sample was skipped.
    made: Option<Result<Option<Batch>>>,
}

/// What became of one position of a batch.
pub(super) enum Slot {
    Pending,
    Done {
        index: u64,
        label: u32,
    },
    Skipped,
    /// The stream has ended before it.
    Ended,
    Failed(Error),
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The state is consistent at every unlock, and nothing in between panics.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Epoch {
    /// Begins an epoch at position `first` of its order, which in a stream is at `place`.
    pub(super) fn start(inner: Arc<Inner>, epoch: u64, first: u64, place: Option<Vec<u8>>) -> Self {
        let order = inner.sampler.epoch(epoch);
        let positions = inner.positions(first);
        let padding = (first + positions).saturating_sub(order.len() - order.padding());
        let stopped = Arc::default();
        let source = inner.reader(epoch, first, place, &stopped);
        let shared = Arc::new(Shared {
            source,
            stopped,
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
        // Before there is anybody who could read one first. A panic of the caller's comes again with a sample's work.
        let _ = catch_unwind(AssertUnwindSafe(|| (0..ANNOUNCED).for_each(|position| shared.announce(position))));
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
    /// was left. `None` for a stream, of which nobody knows.
    #[must_use]
    pub fn images(&self) -> Option<u64> {
        self.shared.inner.input.samples().map(|_| self.shared.positions - self.shared.padding)
    }

    /// Where it stands: after the batches that [`next`](Iterator::next) has given, whatever the threads have prepared
    /// beyond them. A batch that ended in an error counts as not given.
    #[must_use]
    pub fn state(&self) -> EpochState {
        let position = self.shared.first + self.given;
        let place = self.shared.source.feed().and_then(|feed| feed.place(position));
        EpochState::new(&self.shared.inner, self.shared.epoch, position, place.as_deref())
    }

    /// What has been done so far and where the time went.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats += self.shared.counters.snapshot();
        if let Some(feed) = self.shared.source.feed() {
            (stats.moved, stats.moved_most) = feed.moved();
        }
        stats.bad = lock(&self.shared.state).bad_count;
        stats
    }

    /// The samples that could not be used so far, by policy [`OnError::Skip`](crate::OnError::Skip) or
    /// [`OnError::Substitute`](crate::OnError::Substitute): the first 1,000 in the order of the source; [`Stats::bad`]
    /// counts all.
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
            if state.front * shared.inner.batch_size as u64 >= state.end.unwrap_or(shared.positions) {
                return None;
            }
            match state.batches.front() {
                Some(front) if front.made.is_some() => break state.batches.pop_front(),
                _ => state = shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        state.front += 1;
        drop(state);
        shared.room.notify_all();
        self.stats.consumer_wait += start.elapsed();
        filling
    }

    fn stop(&mut self) {
        self.finished = true;
        lock(&self.shared.state).limit = 0;
        self.shared.room.notify_all();
        self.shared.stopped.store(true, Relaxed);
        for worker in self.workers.drain(..) {
            // A worker's panic has been turned into an error of its sample.
            let _ = worker.join();
        }
        // What was begun and will not be delivered.
        for filling in lock(&self.shared.state).batches.drain(..) {
            self.shared.give_up(filling.store);
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
        while let Some(Filling { positions, made, .. }) = self.take() {
            match made {
                Some(Ok(batch)) => {
                    let end = lock(&self.shared.state).end.unwrap_or(u64::MAX);
                    self.given = (self.given + positions as u64).min(end);
                    // None: every sample of it was skipped.
                    if let Some(batch) = batch {
                        self.stats.batches += 1;
                        self.stats.images += (batch.len() - batch.padding()) as u64;
                        return Some(Ok(batch));
                    }
                }
                Some(Err(error)) => {
                    self.stop();
                    return Some(Err(error));
                }
                None => debug_assert!(false, "only made batches are taken"),
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
    place: Place,
    /// How many samples its batch has.
    samples: usize,
}

impl Shared {
    /// A worker thread's life.
    fn work(&self) {
        let mut worker = Worker::new(&self.inner);
        while let Some(task) = self.next_task() {
            self.run(task, &mut worker);
        }
        worker.end(&self.inner);
    }

    /// Without worker threads: the consumer's own fills the batch at the front.
    fn fill_front(&self) {
        let mut worker = Worker::new(&self.inner);
        // Positions are begun in order, so the batch at the front is the only one begun.
        while lock(&self.state).batches.front().is_none_or(|front| front.made.is_none()) {
            let Some(task) = self.next_task() else { break };
            self.run(task, &mut worker);
        }
        worker.end(&self.inner);
    }

    /// Says that the sample at a position will be read soon, unless the cache is known to have it.
    fn announce(&self, position: u64) {
        if position < self.positions
            && let Some(index) = self.order.get(self.first + position)
            && !self.inner.cache.as_ref().is_some_and(|cache| cache.is_known(index))
        {
            self.source.prefetch(index);
        }
    }

    /// Does the work on one position.
    fn run(&self, task: Task, worker: &mut Worker) {
        let Task { position, index, place, samples } = task;
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: `next_task` gives out each position, and so each place, once; the batch stays in `batches` until
            // this position is marked as finished below.
            #[allow(unsafe_code)]
            let target = unsafe { place.target(self.inner.gpu.as_deref(), samples) };
            self.announce(position + ANNOUNCED);
            match target {
                Ok(mut target) => worker.position(self, index, &mut target),
                Err(error) => Slot::Failed(self.sample_error(index, error)),
            }
        }));
        let result = result.unwrap_or_else(|panic| {
            // Whatever it was doing is half done.
            worker.reset();
            Slot::Failed(self.sample_error(index, Error::panic(panic.as_ref())))
        });
        // Who makes the batch needs the flight for itself.
        drop(place);
        self.finish(position, result, worker);
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
        let (batch, i) = ((position / batch_size - state.front) as usize, (position % batch_size) as usize);
        if batch == state.batches.len() {
            let positions = (self.positions - position).min(batch_size) as usize;
            let store = match &self.inner.gpu {
                Some(_) => Store::Cuda(Arc::default()),
                None => Store::Host(Slots::new(self.inner.pool.take(), self.inner.slot_bytes())),
            };
            let samples = (0..positions).map(|_| Slot::Pending).collect();
            state.batches.push_back(Filling {
                store: Some(store),
                samples,
                positions,
                remaining: positions,
                made: None,
            });
        }
        let filling = &state.batches[batch];
        let place = filling.store.as_ref()?.place(i);
        Some(Task { position, index, place, samples: filling.positions })
    }

    /// Marks a position as finished; if its batch was waiting for it alone, makes the batch.
    fn finish(&self, position: u64, result: Slot, worker: &mut Worker) {
        let batch_size = self.inner.batch_size as u64;
        let (batch, i) = (position / batch_size, (position % batch_size) as usize);
        let mut state = lock(&self.state);
        if matches!(result, Slot::Failed(_)) {
            // Nothing after this batch will be delivered: no need to begin more.
            state.limit = state.limit.min((batch + 1) * batch_size);
        }
        if matches!(result, Slot::Ended) {
            // The rest of this batch is begun all the same, so that the batch can be made.
            state.limit = state.limit.min((batch + 1) * batch_size);
            state.end = Some(state.end.map_or(position, |end| end.min(position)));
        }
        // A batch that is not made is not taken, so `front` has not passed it.
        let at = (batch - state.front) as usize;
        let filling = &mut state.batches[at];
        filling.samples[i] = result;
        filling.remaining -= 1;
        if filling.remaining > 0 {
            return;
        }
        let (store, samples) = (filling.store.take(), std::mem::take(&mut filling.samples));
        drop(state);
        let made = catch_unwind(AssertUnwindSafe(|| self.make(batch, store, samples, worker)));
        let made = made.unwrap_or_else(|panic| {
            worker.reset();
            Err(Error::panic(panic.as_ref()))
        });
        let mut state = lock(&self.state);
        if made.is_err() {
            state.limit = state.limit.min((batch + 1) * batch_size);
        }
        let at = (batch - state.front) as usize;
        state.batches[at].made = Some(made);
        self.ready.notify_one();
    }

    /// Makes a batch of what the workers left; `None` if every sample was skipped.
    fn make(
        &self,
        batch: u64,
        store: Option<Store>,
        mut samples: Vec<Slot>,
        worker: &mut Worker,
    ) -> Result<Option<Batch>> {
        let inner = &self.inner;
        let mut store = match store {
            Some(Store::Host(slots)) => Filled::Host(slots.into_buffer()),
            Some(Store::Cuda(takeoff)) => match Arc::into_inner(takeoff).and_then(OnceLock::into_inner) {
                Some(Ok(flight)) => Filled::Cuda(Box::new(flight)),
                // Its error is every sample's; or no sample got so far.
                Some(Err(_)) | None => Filled::Nothing,
            },
            None => Filled::Nothing,
        };
        if let (Filled::Cuda(flight), Some(gpu)) = (&mut store, &inner.gpu)
            && let Err(error) = self.decode_on_hardware(gpu, worker, flight, &mut samples)
        {
            self.give_up_filled(store);
            return Err(error);
        }
        let end = batch * inner.batch_size as u64 + samples.len() as u64;
        let (mut labels, mut indices) = (Vec::with_capacity(samples.len()), Vec::with_capacity(samples.len()));
        let mut places = Vec::with_capacity(samples.len());
        let mut ended = false;
        for (i, sample) in samples.into_iter().enumerate() {
            match sample {
                Slot::Done { index, label } => {
                    places.push(i);
                    labels.push(label);
                    indices.push(index);
                }
                Slot::Failed(error) => {
                    self.give_up_filled(store);
                    return Err(error);
                }
                Slot::Skipped | Slot::Pending => {}
                Slot::Ended => ended = true,
            }
        }
        if ended && inner.last == LastBatch::Drop {
            self.give_up_filled(store);
            return Ok(None);
        }
        let filled = labels.len();
        let (Some(&label), Some(&index)) = (labels.last(), indices.last()) else {
            self.give_up_filled(store);
            return Ok(None);
        };
        if inner.last == LastBatch::Pad {
            labels.resize(inner.batch_size, label);
            indices.resize(inner.batch_size, index);
        }
        // Positions that even partitions have been filled up with are padding too.
        let images = filled - (end.saturating_sub(self.positions - self.padding) as usize).min(filled);
        let repeated = labels.len() - filled;
        let storage = match (store, &inner.gpu) {
            (Filled::Host(mut buffer), _) => {
                compact(buffer.as_bytes_mut(), inner.slot_bytes(), &places, repeated);
                Storage::Host(buffer)
            }
            (Filled::Cuda(flight), Some(gpu)) => Storage::Cuda(gpu.submit(*flight, &places, &labels, repeated)?),
            _ => return Err(Error::Device { call: "make a batch".into(), message: "it has no memory".into() }),
        };
        let padding = labels.len() - images;
        let images = Tensor::new(storage, inner.shape(labels.len()), inner.dtype, inner.layout);
        Ok(Some(Batch::new(images, labels, indices, padding)))
    }

    /// Has a device's hardware decoder decode what was left to them; what they and the CPU cannot decode is dealt with as the
    /// policy says.
    fn decode_on_hardware(
        &self,
        gpu: &Gpu,
        worker: &mut Worker,
        flight: &mut InFlight,
        samples: &mut [Slot],
    ) -> Result<()> {
        let (bad, decoded) = gpu.decode_on_hardware(flight)?;
        self.counters.add_decoded(decoded);
        for (i, error) in bad {
            if let Slot::Done { index, .. } = samples[i] {
                samples[i] = worker.instead(self, index, error, &mut Target::Cuda(flight, i));
            }
        }
        Ok(())
    }

    /// Gives back what a batch was to be made of.
    fn give_up(&self, store: Option<Store>) {
        if let Some(Store::Cuda(takeoff)) = store
            && let Some(Ok(flight)) = Arc::into_inner(takeoff).and_then(OnceLock::into_inner)
        {
            self.give_up_filled(Filled::Cuda(Box::new(flight)));
        }
    }

    fn give_up_filled(&self, filled: Filled) {
        if let (Filled::Cuda(flight), Some(gpu)) = (filled, &self.inner.gpu) {
            gpu.abandon(*flight);
        }
    }

    /// Whether a stream has ended before sample `index`.
    pub(super) fn ended_before(&self, index: u64) -> bool {
        self.source.feed().is_some_and(|feed| feed.ended_before(index))
    }

    pub(super) fn sample_error(&self, index: u64, error: Error) -> Error {
        Error::Sample { index, name: self.name(index), source: Box::new(error) }
    }

    fn name(&self, index: u64) -> String {
        // A name may have to be fetched, and nobody reads the errors of an epoch that was dropped.
        if self.stopped.load(Relaxed) {
            return format!("sample {index}");
        }
        // The source may be the caller's code: not even its panic may keep an error from being delivered.
        catch_unwind(AssertUnwindSafe(|| self.source.name(index).into_owned()))
            .unwrap_or_else(|_| "its name cannot be had".to_owned())
    }

    pub(super) fn record_bad(&self, index: u64, error: &Error) {
        let bad = BadSample { path: self.name(index), index, error: error.to_string() };
        let mut state = lock(&self.state);
        state.bad_count += 1;
        if state.bad.len() < KEPT_BAD_SAMPLES {
            state.bad.push(bad);
        }
    }
}

/// All samples of a batch, each in its place.
enum Filled {
    Host(HostBuffer),
    Cuda(Box<InFlight>),
    Nothing,
}

/// Closes the gaps that skipped samples have left, and repeats the last one.
fn compact(bytes: &mut [u8], slot_bytes: usize, places: &[usize], repeated: usize) {
    for (to, from) in places.iter().enumerate() {
        if to < *from {
            bytes.copy_within(from * slot_bytes..(from + 1) * slot_bytes, to * slot_bytes);
        }
    }
    let last = places.len().saturating_sub(1) * slot_bytes;
    for i in 0..repeated {
        bytes.copy_within(last..last + slot_bytes, (places.len() + i) * slot_bytes);
    }
}
