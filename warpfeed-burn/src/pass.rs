//! One pass of a loader over its data.

use crate::ImageBatch;
use burn::data::dataloader::{DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpfeed::{BadSample, Batch, Epoch, EpochState, Error, Result, Stats};

/// What a loader makes of a batch for burn.
pub(crate) type Then<B> = dyn Fn(ImageBatch) -> Result<B, DatasetError> + Send + Sync;

/// A pass that its iterator and the loader share.
pub(crate) type SharedPass = Arc<Mutex<Pass>>;

/// The latest passes of a loader: its own one, or those of the parts that burn has split it into since.
#[derive(Default)]
pub(crate) struct Latest {
    own: Option<SharedPass>,
    parts: Vec<Part>,
}

pub(crate) type SharedLatest = Arc<Mutex<Latest>>;

struct Part {
    /// The samples in the loader's source.
    samples: Range<u64>,
    latest: SharedLatest,
}

impl Latest {
    pub(crate) fn begin(&mut self, pass: SharedPass) {
        *self = Self { own: Some(pass), parts: Vec::new() };
    }

    /// Adds a part, in place of earlier ones with the same samples. Returns its latest passes.
    pub(crate) fn split(&mut self, samples: Range<u64>) -> SharedLatest {
        let latest = SharedLatest::default();
        self.own = None;
        self.parts.retain(|part| part.samples.end <= samples.start || samples.end <= part.samples.start);
        self.parts.push(Part { samples, latest: Arc::clone(&latest) });
        latest
    }

    pub(crate) fn state(&self) -> Option<EpochState> {
        self.own.as_ref().map(|pass| lock(pass).state())
    }

    pub(crate) fn stats(&self) -> Option<Stats> {
        let own = self.own.iter().map(|pass| lock(pass).stats());
        let parts = self.parts.iter().filter_map(|part| lock(&part.latest).stats());
        own.chain(parts).reduce(|mut sum, stats| {
            sum += stats;
            sum
        })
    }

    pub(crate) fn bad(&self) -> Vec<BadSample> {
        let mut bad = self.own.as_ref().map_or_else(Vec::new, |pass| lock(pass).bad());
        for Part { samples, latest } in &self.parts {
            bad.extend(lock(latest).bad().into_iter().map(|mut sample| {
                sample.index += samples.start;
                sample
            }));
        }
        bad
    }
}

pub(crate) enum Pass {
    Running(Box<Running>),
    /// A pass whose iterator was dropped.
    Dropped(Box<Report>),
}

/// What remains of a pass.
pub(crate) struct Report {
    state: EpochState,
    stats: Stats,
    bad: Vec<BadSample>,
}

impl Pass {
    pub(crate) fn state(&self) -> EpochState {
        match self {
            Self::Running(running) => running.state(),
            Self::Dropped(report) => report.state.clone(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        match self {
            Self::Running(running) => running.stats(),
            Self::Dropped(report) => report.stats,
        }
    }

    pub(crate) fn bad(&self) -> Vec<BadSample> {
        match self {
            Self::Running(running) => running.epoch.bad(),
            Self::Dropped(report) => report.bad.clone(),
        }
    }
}

/// An epoch that knows of each batch whether it is the last one.
///
/// burn asks for the progress before it trains on a batch, and applies the last accumulated gradients if it is
/// complete. All samples that remain may be skipped, and a stream may have ended. Then only the next batch tells.
pub(crate) struct Running {
    epoch: Epoch,
    /// The batch after the delivered one, if it has been made.
    next: Option<Result<Batch>>,
    /// The state after the delivered batch, if it is not the epoch's.
    state: Option<EpochState>,
}

/// A batch that is delivered.
struct Delivery {
    batch: Batch,
    /// Number of positions of the epoch that have been delivered.
    position: u64,
    is_last: bool,
}

impl Running {
    fn take(&mut self) -> Option<Result<Delivery>> {
        self.state = None;
        let batch = match self.next.take().or_else(|| self.epoch.next())? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        let state = batch.state();
        let position = state.position();
        let is_last = match self.epoch.size_hint() {
            (_, Some(0)) => true,
            (0, _) => {
                self.next = self.epoch.next();
                self.next.is_none()
            }
            _ => false,
        };
        self.state = self.next.is_some().then_some(state);
        Some(Ok(Delivery { batch, position, is_last }))
    }

    fn state(&self) -> EpochState {
        self.state.clone().unwrap_or_else(|| self.epoch.state())
    }

    fn stats(&self) -> Stats {
        let mut stats = self.epoch.stats();
        if let Some(Ok(batch)) = &self.next {
            stats.batches -= 1;
            stats.images -= (batch.len() - batch.padding()) as u64;
        }
        stats
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Iterator over the batches of one epoch.
pub(crate) struct Batches<'a, B> {
    pub(crate) pass: SharedPass,
    device: &'a Device,
    then: &'a Then<B>,
    /// Index of the first sample in the source of the whole loader.
    first: u64,
    counter: Counter,
}

impl<'a, B> Batches<'a, B> {
    /// `resumed`: the position at which the epoch goes on. `all`: the number of images of a whole epoch.
    pub(crate) fn new(epoch: Epoch, resumed: Option<u64>, all: u64, of: (&'a Device, &'a Then<B>, u64)) -> Self {
        let counter = Counter::new(resumed.map(|position| (position, epoch.images())), all);
        let pass = Arc::new(Mutex::new(Pass::Running(Box::new(Running { epoch, next: None, state: None }))));
        let (device, then, first) = of;
        Self { pass, device, then, first, counter }
    }
}

/// Number of images that a pass is done with. Skipped images count once a later batch is delivered.
struct Counter {
    /// The position at which the pass begins, and the number of images before it.
    begin: (u64, u64),
    done: u64,
    all: u64,
}

impl Counter {
    /// `resumed`: position and remaining images of a resumed epoch.
    fn new(resumed: Option<(u64, Option<u64>)>, all: u64) -> Self {
        let (position, done) = match resumed {
            None => (0, 0),
            // After a change of the number of ranks, positions are those of the remaining images.
            Some((position, Some(images))) => (position, all.saturating_sub(images)),
            Some((position, None)) => (position, position.min(all)),
        };
        Self { begin: (position, done), done, all }
    }

    /// Counts a batch that ends before `position`. Only the last one completes the pass.
    fn add(&mut self, position: u64, is_last: bool) {
        let (begin, done) = self.begin;
        let images = done + position.saturating_sub(begin);
        self.done = if is_last { self.all } else { images.min(self.all.saturating_sub(1)) };
    }
}

impl<B> Iterator for Batches<'_, B> {
    type Item = Result<B, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let taken = match &mut *lock(&self.pass) {
            Pass::Running(running) => running.take(),
            Pass::Dropped(_) => None,
        };
        let Some(taken) = taken else {
            self.counter.done = self.counter.all;
            return None;
        };
        let batch = taken.and_then(|Delivery { batch, position, is_last }| {
            self.counter.add(position, is_last);
            ImageBatch::new(batch, self.device)
        });
        Some(batch.map_err(DatasetError::new).and_then(|mut batch| {
            batch.indices.iter_mut().for_each(|index| *index += self.first);
            (self.then)(batch)
        }))
    }
}

/// Ends the epoch's threads, and keeps its results so far.
impl<B> Drop for Batches<'_, B> {
    fn drop(&mut self) {
        let mut pass = lock(&self.pass);
        let report = Report { state: pass.state(), stats: pass.stats(), bad: pass.bad() };
        *pass = Pass::Dropped(Box::new(report));
    }
}

impl<B> DataLoaderIterator<B> for Batches<'_, B> {
    fn progress(&self) -> Progress {
        progress(self.counter.done, self.counter.all)
    }
}

/// Iterator over a pass that cannot begin: it gives the error.
pub(crate) struct Failed<B> {
    error: Option<Error>,
    all: u64,
    batches: PhantomData<fn() -> B>,
}

impl<B> Failed<B> {
    pub(crate) fn new(error: Error, all: u64) -> Self {
        Self { error: Some(error), all, batches: PhantomData }
    }
}

impl<B> Iterator for Failed<B> {
    type Item = Result<B, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.error.take().map(|error| Err(DatasetError::new(error)))
    }
}

impl<B> DataLoaderIterator<B> for Failed<B> {
    fn progress(&self) -> Progress {
        progress(0, self.all)
    }
}

fn progress(done: u64, all: u64) -> Progress {
    let number = |images: u64| usize::try_from(images).unwrap_or(usize::MAX);
    Progress::new(number(done), number(all), Some("images".to_owned()))
}
