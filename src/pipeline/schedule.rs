//! Distribution of an epoch's positions: a worker takes the next position under the lock, works without the lock, and
//! writes the result to the sample's own place in the batch. At most `prefetch` batches are being filled or ready, so
//! workers wait for a slow consumer.

use super::assembly::{Begun, Filling, Made, Slot};
use super::context::Context;
use super::wakeup::Wakeup;
use super::worker::{Destination, ThreadMemory, Worker};
use crate::backend::AnyBackend;
use crate::error::{Error, Result};
use crate::rng::Pick;
use crate::shapes::BatchShape;
use crate::trace::{self, Span};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A batch in its turn.
pub(super) struct Taken {
    /// The position after its last one.
    pub(super) end: u64,
    pub(super) made: Result<Made>,
}

/// State that the workers and the consumer share.
pub(super) struct Running {
    context: Context,
    backend: Arc<AnyBackend>,
    state: Mutex<State>,
    /// Threads wait here when the queue is full.
    wakeup: Arc<Wakeup>,
    /// The consumer waits here for its batch, and when it clears the epoch for threads that still work.
    ready: Condvar,
    /// Number of threads that work on a position.
    busy: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The next position to work on.
    next: u64,
    /// The number of the batch at the front of `batches`.
    front: u64,
    /// Batches being filled, in order.
    batches: VecDeque<Filling>,
    /// Upper bound of the positions that are begun: the end of the epoch, or of a batch that failed; 0 once stopped.
    limit: u64,
    /// The position at which a stream has ended, once that is known.
    end: Option<u64>,
    /// The error that ends the epoch, if it belongs to no batch.
    failed: Option<Error>,
}

/// A position to work on.
struct Task {
    position: u64,
    /// The number of its batch.
    number: u64,
    /// The sample at this position.
    pick: Pick,
    batch: Arc<Begun>,
    /// The position's place in its batch.
    place: usize,
    /// Number of samples in the batch.
    samples: usize,
}

/// Result of a thread's search for work.
enum Next<'a> {
    Task(Task, Busy<'a>),
    Full,
    Done,
}

/// Counts a working thread until it is dropped.
struct Busy<'a>(&'a Running);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if self.0.busy.fetch_sub(1, SeqCst) == 1 && self.0.context.stopped.load(SeqCst) {
            // The thread that waits holds the lock between checking `busy` and waiting. Taking the lock here avoids a
            // lost wakeup.
            drop(self.0.lock());
            self.0.ready.notify_all();
        }
    }
}

/// Result of a thread's turn at an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The thread worked on a position.
    Worked,
    /// The queue is full until the consumer takes a batch.
    Full,
    /// No position is left to begin, now or later.
    Done,
}

/// A thread's share of an epoch. If it is dropped before its end, as after a panic, it fails the epoch: otherwise the
/// consumer would wait forever for the position that the thread left undone.
pub(super) struct EpochShare {
    running: Arc<Running>,
    /// The back end's decoders and memory for this thread, made when first needed.
    own: ThreadMemory,
    /// The thread's number in the epoch's times.
    number: usize,
    /// Whether the queue was full at the last turn.
    full: bool,
    done: bool,
}

impl EpochShare {
    /// Works on the next position, if there is one and the queue is not full.
    pub(super) fn take_turn(&mut self) -> Turn {
        let running = &*self.running;
        let next = running.next_task();
        self.full = matches!(next, Next::Full);
        match next {
            Next::Task(task, _busy) => {
                trace::take_times();
                running.run(task, &mut Worker::new(&running.context, &running.backend, &mut self.own));
                running.context.counters.add_times(self.number, trace::take_times());
                Turn::Worked
            }
            Next::Full => Turn::Full,
            Next::Done => Turn::Done,
        }
    }

    /// Counts time that the thread has waited, if this epoch's queue was full.
    pub(super) fn add_wait(&self, time: Duration) {
        if self.full {
            self.running.context.counters.add(|stats| stats.worker_wait += time);
        }
    }

    /// Keeps decoders and memory for the next epoch.
    pub(super) fn end(&mut self) {
        if let Some(own) = self.own.backend.take() {
            self.running.backend.give_worker(own);
        }
        self.done = true;
    }
}

impl Drop for EpochShare {
    fn drop(&mut self) {
        if !self.done {
            let message = "a thread of the pipeline ended before its work was done".to_owned();
            self.running.fail(Error::Panic { message });
        }
    }
}

impl Running {
    /// Begins an epoch, whose threads wait for `wakeup`.
    pub(super) fn new(context: Context, backend: Arc<AnyBackend>, wakeup: &Arc<Wakeup>) -> Self {
        let state = Mutex::new(State { limit: context.batches.positions(), ..State::default() });
        let (ready, busy) = (Condvar::new(), AtomicUsize::new(0));
        Self { context, backend, state, wakeup: Arc::clone(wakeup), ready, busy }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// The share of one more thread.
    pub(super) fn share(self: Arc<Self>) -> EpochShare {
        let number = self.context.counters.add_thread();
        EpochShare { running: self, own: ThreadMemory::default(), number, full: false, done: false }
    }

    /// Waits for the next batch; `None` at the end of the epoch.
    pub(super) fn take(self: &Arc<Self>) -> Option<Taken> {
        let options = &self.context.setup.options;
        if options.threads == 0 {
            // A panic here becomes an error of the epoch instead of unwinding into the caller.
            let _ = catch_unwind(AssertUnwindSafe(|| self.fill_front(&mut Arc::clone(self).share())));
        }
        let batches = &self.context.batches;
        let mut state = self.lock();
        let made = loop {
            if batches.start(state.front) >= state.end.unwrap_or(batches.positions()) {
                return None;
            }
            if let Some(made) = state.batches.front_mut().and_then(|front| front.made.take()) {
                break made;
            }
            if let Some(error) = state.failed.take() {
                return Some(Taken { end: batches.start(state.front), made: Err(error) });
            }
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let positions = state.batches.pop_front().map_or(0, |front| front.positions);
        let end = batches.start(state.front) + positions as u64;
        let end = state.end.map_or(end, |stream| end.min(stream));
        state.front += 1;
        drop(state);
        self.wakeup.change();
        Some(Taken { end, made })
    }

    /// Waits until `take` would return at once, at most for `limit`, and returns whether it would.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let options = &self.context.setup.options;
        if options.threads == 0 {
            return true;
        }
        let batches = &self.context.batches;
        let is_pending = |state: &mut State| {
            batches.start(state.front) < state.end.unwrap_or(batches.positions())
                && state.failed.is_none()
                && state.batches.front().is_none_or(|front| front.made.is_none())
        };
        let waited = self.ready.wait_timeout_while(self.lock(), limit, is_pending);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Has the threads begin nothing more.
    pub(super) fn stop(&self) {
        self.lock().limit = 0;
        self.context.stopped.store(true, SeqCst);
        self.wakeup.change();
    }

    /// Has the back end store the places in images that it has learned.
    pub(super) fn end_epoch(&self) {
        self.backend.end_epoch();
    }

    /// Waits for what threads are at work on, once it was stopped, and gives up batches that were begun and will not be
    /// delivered.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        while self.busy.load(SeqCst) > 0 {
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let batches = std::mem::take(&mut state.batches);
        drop(state);
        batches
            .into_iter()
            .filter_map(|mut filling| filling.take_batch())
            .for_each(|batch| self.backend.abandon(batch));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every unlock; a panic in between fails the epoch (`EpochShare`).
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the epoch with an error, after the batches that are ready.
    fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.limit = 0;
        state.failed.get_or_insert(error);
        drop(state);
        self.wakeup.change();
        self.ready.notify_all();
    }

    /// Fills the batch at the front on the consumer's thread, if there are no worker threads.
    fn fill_front(&self, share: &mut EpochShare) {
        // Positions are begun in order, so the batch at the front is the only one begun.
        while self.lock().batches.front().is_none_or(|front| front.made.is_none()) {
            if share.take_turn() != Turn::Worked {
                break;
            }
        }
        share.end();
    }

    /// Takes the next position, unless the queue is full.
    fn next_task(&self) -> Next<'_> {
        let (options, batches) = (&self.context.setup.options, &self.context.batches);
        let mut state = self.lock();
        if state.next >= state.limit {
            return Next::Done;
        }
        let number = batches.at(state.next);
        if number >= state.front + options.prefetch as u64 {
            return Next::Full;
        }
        let position = state.next;
        let Some(pick) = self.context.pick(position) else {
            drop(state);
            let message = format!("the order of the epoch has no position {position}");
            self.fail(Error::Panic { message });
            return Next::Done;
        };
        state.next += 1;
        let (batch, place) = ((number - state.front) as usize, (position - batches.start(number)) as usize);
        if batch == state.batches.len() {
            state.batches.push_back(Filling::new(batches.len(number)));
        }
        let filling = &state.batches[batch];
        let Some(storage) = &filling.storage else { return Next::Done };
        let (batch, samples) = (Arc::clone(storage), filling.positions);
        let task = Task { position, number, pick, batch, place, samples };
        self.busy.fetch_add(1, SeqCst);
        Next::Task(task, Busy(self))
    }

    /// Works on one position.
    fn run(&self, task: Task, worker: &mut Worker<'_>) {
        let Task { position, number, pick, batch, place, samples } = task;
        let shape = self.context.batches.shape(number);
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.context.announce_ahead(position);
            let mut refused = None;
            let begin = || {
                self.backend
                    .begin(samples, shape.and_then(BatchShape::size))
                    .map_err(|error| refused = Some(Box::new(error)))
                    .ok()
            };
            match (batch.get_or_init(begin), refused) {
                (Some(batch), _) => {
                    let _sample = Span::of_sample(number, pick.index);
                    worker.position(pick, &Destination { batch, place, shape, later: true })
                }
                (None, Some(error)) => Slot::Failed(error),
                (None, None) => Slot::Unbegun,
            }
        }));
        let result = result.unwrap_or_else(|panic| {
            // The panic may have left the worker's state inconsistent.
            worker.reset();
            Slot::Failed(Box::new(self.context.sample_error(pick.index, Error::panic(panic.as_ref()))))
        });
        // The thread that makes the batch takes it out of the `Arc`, so no other reference may be left.
        drop(batch);
        self.finish(position, result, worker);
    }

    /// Marks a position as finished. If it was the last of its batch, makes the batch.
    fn finish(&self, position: u64, result: Slot, worker: &mut Worker<'_>) {
        let batches = &self.context.batches;
        let number = batches.at(position);
        let place = (position - batches.start(number)) as usize;
        let mut state = self.lock();
        // Positions after a failed batch, or after the end of a stream, will not be delivered, so none of them is
        // begun. The rest of this batch is begun all the same, so that it can be made.
        if matches!(result, Slot::Failed(_) | Slot::Unbegun | Slot::Ended) {
            state.limit = state.limit.min(batches.start(number + 1));
        }
        if matches!(result, Slot::Ended) {
            state.end = Some(state.end.map_or(position, |end| end.min(position)));
        }
        // The consumer takes a batch only when it is made, so `front` is still at or before this batch.
        let at = (number - state.front) as usize;
        let filling = &mut state.batches[at];
        filling.slots[place] = result;
        filling.remaining -= 1;
        if filling.remaining > 0 {
            return;
        }
        let (batch, slots) = (filling.take_batch(), std::mem::take(&mut filling.slots));
        drop(state);
        let made = catch_unwind(AssertUnwindSafe(|| worker.make(number, batch, slots)));
        let made = made.unwrap_or_else(|panic| {
            worker.reset();
            Err(Error::panic(panic.as_ref()))
        });
        let mut state = self.lock();
        if made.is_err() {
            state.limit = state.limit.min(batches.start(number + 1));
        }
        let at = (number - state.front) as usize;
        state.batches[at].made = Some(made);
        self.ready.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend;
    use crate::ops::CenterCrop;
    use crate::{
        Device, Pipeline,
        encode::{JpegOptions, encode_jpeg},
        raster::Size,
        source::{EncodedImages, stream::Place},
    };
    use std::sync::mpsc;

    #[test]
    fn waiting_ends_with_the_limit_the_batch_or_the_epoch() {
        let jpeg = encode_jpeg(&crate::raster::Image::new(Size::new(8, 8)), &JpegOptions::default()).unwrap();
        let builder = Pipeline::builder(EncodedImages::new([(jpeg, 0)]))
            .transform(CenterCrop::new(4))
            .threads(1)
            .device(Device::Cpu);
        let setup = Arc::clone(&builder.build().unwrap().setup);
        let cpu = backend::open(Device::Cpu, &setup.options, None).unwrap();
        let context = Context::new(setup, 0, Arc::default(), (0, Place::Cursor(None)), None);
        let shared = Arc::new(Running::new(context, Arc::new(cpu), &Arc::default()));
        assert!(!shared.wait(Duration::from_millis(1)), "no thread works on it");
        let worker = Arc::clone(&shared);
        let worker = std::thread::spawn(move || {
            let mut share = worker.share();
            while share.take_turn() == Turn::Worked {}
            share.end();
        });
        assert!(shared.wait(Duration::from_secs(30)) && shared.take().is_some());
        assert!(shared.wait(Duration::from_secs(30)) && shared.take().is_none(), "the end needs no batch");
        worker.join().unwrap();
        shared.fail(Error::Panic { message: String::new() });
        assert!(shared.wait(Duration::from_secs(30)));
    }

    #[test]
    fn a_consumer_hears_of_a_thread_that_ends_before_its_work_is_done() {
        let jpeg = encode_jpeg(&crate::raster::Image::new(Size::new(8, 8)), &JpegOptions::default()).unwrap();
        let builder = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).transform(CenterCrop::new(4)).threads(1);
        let setup = Arc::clone(&builder.device(Device::Cpu).build().unwrap().setup);
        let cpu = backend::open(Device::Cpu, &setup.options, None).unwrap();
        let context = Context::new(setup, 0, Arc::default(), (0, Place::Cursor(None)), None);
        let shared = Arc::new(Running::new(context, Arc::new(cpu), &Arc::default()));

        let (sender, receiver) = mpsc::channel();
        let consumer = Arc::clone(&shared);
        std::thread::spawn(move || sender.send(consumer.take().map(|taken| taken.made.err())));
        let worker = std::thread::spawn(move || {
            let _share = Arc::clone(&shared).share();
            // The thread has taken the only position.
            let Next::Task(..) = shared.next_task() else { return };
            panic!("whatever may go wrong between two samples")
        });
        assert!(worker.join().is_err());
        let heard = receiver.recv_timeout(Duration::from_secs(30)).expect("the consumer waits for ever");
        assert!(matches!(heard, Some(Some(Error::Panic { .. }))), "{heard:?}");
    }
}
