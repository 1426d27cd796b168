//! The iterator over the batches of an epoch.

use super::batch::{Batch, BatchImages};
use super::context::{Context, FixedPicks};
use super::policy::{BadSample, OnError, Tally};
use super::schedule::{Running, Taken};
use super::setup::Setup;
use super::state::{Changes, EpochState, Moment};
use super::stats::Stats;
use super::wakeup::Wakeup;
use super::worker_threads::WorkerThreads;
use crate::backend::AnyBackend;
use crate::error::{Error, Result};
use crate::os::forks::OfProcess;
use crate::source::stream::Place;
use crate::tensor::Tensor;
use crate::trace::{Activity, Span, ThreadTimes};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An iterator over the batches of one epoch. Dropping it stops and joins its worker threads. In a forked child, which
/// does not have these threads, it does nothing, and the next batch is an error. The epochs of several devices
/// ([`PipelineGroup`](crate::PipelineGroup)) share their threads; dropping the last of these epochs joins them.
///
/// ```
/// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// # use warpfeed::prelude::*;
/// # fn source(n: u32) -> warpfeed::Result<EncodedImages> {
/// #     let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// #     Ok(EncodedImages::new((0..n).map(|label| (jpeg.clone(), label))))
/// # }
/// let pipeline = Pipeline::builder(source(10)?).batch_size(4).transform(CenterCrop::new(8)).build()?;
/// let mut epoch = pipeline.epoch(3);
/// assert_eq!((epoch.number(), epoch.images(), epoch.batches()), (3, Some(10), Some(3)));
/// let mut sizes = Vec::new();
/// for batch in epoch.by_ref() {
///     sizes.push(batch?.len());
/// }
/// assert_eq!(sizes, [4, 4, 2]);
/// assert_eq!((epoch.stats().images, epoch.stats().batches), (10, 3));
/// assert!(epoch.bad().is_empty());
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// `I` is the form of the batches' images: see [`Batch`].
pub struct Epoch<I = Tensor> {
    running: OfProcess<Arc<Running>>,
    /// `None` once the epoch has ended.
    threads: OfProcess<Option<Arc<WorkerThreads>>>,
    /// The error that left the epoch without a thread or an order.
    refused: Option<Error>,
    /// The consumer's part of the statistics.
    stats: Stats,
    tally: Tally,
    /// Number of positions that the consumer has been given.
    given: u64,
    finished: bool,
    images: PhantomData<fn() -> I>,
}

impl<I> std::fmt::Debug for Epoch<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoch").field("epoch", &self.number()).field("stats", &self.stats()).finish()
    }
}

/// Start of an epoch.
pub(super) struct EpochStart<'a> {
    pub(super) setup: &'a Arc<Setup>,
    pub(super) backend: &'a Arc<AnyBackend>,
    pub(super) epoch: u64,
    /// Changes of the number of ranks, with what they delivered of this epoch and of later ones.
    pub(super) changes: Arc<Changes>,
    /// The first position in the order, and its place in a stream.
    pub(super) first: u64,
    pub(super) place: Place,
    /// The samples of one batch that is reproduced, in place of those of the order.
    pub(super) given: Option<FixedPicks>,
}

impl<I> Epoch<I> {
    /// Starts epochs that share their worker threads.
    pub(super) fn start_all(starts: Vec<EpochStart<'_>>) -> Vec<Self> {
        let wakeup = Arc::new(Wakeup::default());
        let (mut threads, mut positions) = (0, 0_u64);
        let mut epochs: Vec<Self> = Vec::new();
        for EpochStart { setup, backend, epoch, changes, first, place, given } in starts {
            let mut context = Context::new(Arc::clone(setup), epoch, changes, (first, place), given);
            let refused = context.refused.take();
            let total = context.reader.feed().is_none().then_some(context.batches.positions());
            let is_whole = first == 0 && context.own_segments().is_empty();
            let tally = Tally::new(setup.policy.max_bad, total, is_whole);
            (threads, positions) = (setup.options.threads, positions.saturating_add(context.batches.positions()));
            context.announce_first();
            let running = Arc::new(Running::new(context, Arc::clone(backend), &wakeup));
            let stats = Stats::default();
            epochs.push(Self {
                running: OfProcess::new(running),
                threads: OfProcess::new(None),
                refused,
                stats,
                tally,
                given: 0,
                finished: false,
                images: PhantomData,
            });
        }
        let running: Vec<_> = epochs.iter().map(|epoch| Arc::clone(&*epoch.running)).collect();
        let count = threads.min(positions.try_into().unwrap_or(usize::MAX));
        let (workers, refused) = WorkerThreads::start(&running, &wakeup, count);
        let workers = Arc::new(workers);
        for epoch in &mut epochs {
            epoch.stats.threads = workers.len() as u64;
            *epoch.threads = Some(Arc::clone(&workers));
            // Without threads no epoch can make a batch.
            epoch.refused = epoch.refused.take().or_else(|| refused.clone());
        }
        epochs
    }

    fn context(&self) -> &Context {
        self.running.context()
    }

    /// Number of this epoch.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.context().epoch
    }

    /// Number of samples that this epoch delivers if none is skipped, without padding. A resumed epoch counts only the
    /// remaining samples. `None` for a stream, whose length is not known beforehand.
    #[must_use]
    pub fn images(&self) -> Option<u64> {
        let context = self.context();
        context.is_finite().then(|| context.batches.positions() - context.batches.padding())
    }

    /// Number of batches that this epoch delivers, if no whole batch is skipped. A resumed epoch counts only the
    /// remaining batches. `None` for a stream.
    #[must_use]
    pub fn batches(&self) -> Option<u64> {
        let context = self.context();
        context.is_finite().then(|| context.batches.count())
    }

    /// The state after the last batch that [`next`](Iterator::next) returned; batches that were only prefetched do not
    /// count. A batch that ended in an error counts as not delivered. Inside a `for` loop over the epoch use
    /// [`Batch::state`].
    #[must_use]
    pub fn state(&self) -> EpochState {
        self.moment(self.given).state()
    }

    /// Waits until [`next`](Iterator::next) would return at once, at most for `limit`, and returns whether it would. It
    /// is for callers that have to check something else in between, such as signals. Without worker threads `next`
    /// makes the batch itself, and this returns `true` at once.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::prelude::*;
    /// use std::time::Duration;
    ///
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
    /// let mut epoch = Pipeline::builder(source).batch_size(10).transform(CenterCrop::new(8)).build()?.epoch(0);
    /// while !epoch.wait(Duration::from_millis(50)) {
    ///     // Has the user asked to stop?
    /// }
    /// assert_eq!(epoch.next().unwrap()?.len(), 10);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        self.finished || self.refused.is_some() || self.has_lost_threads() || self.running.wait(limit)
    }

    /// The place of the epoch after a batch whose first position is `begin`.
    fn moment(&self, begin: u64) -> Moment {
        let context = self.context();
        let (first, position) = (context.first + begin, context.first + self.given);
        let place = context.reader.feed().map_or(Place::Cursor(None), |feed| feed.place(position));
        let (setup, changes) = (Arc::clone(&context.setup), Arc::clone(&context.changes));
        Moment { setup, epoch: context.epoch, changes, begun: context.first, first, position, place }
    }

    /// Counts and times of the epoch so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let context = self.context();
        let mut stats = self.stats;
        stats += context.counters.snapshot();
        if let Some(feed) = context.reader.feed() {
            (stats.displacement_sum, stats.displacement_max) = feed.moved();
        }
        stats.bad = context.bad.count();
        stats
    }

    /// What each worker thread has spent its time on so far. Without threads ([`PipelineBuilder::threads`](
    /// crate::PipelineBuilder::threads)) it is the consumer's.
    #[must_use]
    pub fn thread_times(&self) -> Vec<ThreadTimes> {
        self.context().counters.thread_times()
    }

    /// The samples so far that [`OnError::Skip`] or [`OnError::Substitute`] handled: the first 1,000, in the order of
    /// the source. [`Stats::bad`] counts all of them.
    #[must_use]
    pub fn bad(&self) -> Vec<BadSample> {
        self.context().bad.list()
    }

    /// Whether this is a forked child, and the epoch's threads are in the process that forked it.
    fn has_lost_threads(&self) -> bool {
        self.stats.threads > 0 && self.running.is_inherited()
    }

    fn stop(&mut self) {
        self.finished = true;
        if self.running.is_inherited() {
            return;
        }
        self.running.stop();
        self.running.clear();
        *self.threads = None;
        if let Some(points) = &self.context().setup.options.entry_points {
            self.running.end_epoch();
            // What cannot be written stays in memory, and costs later runs time.
            let _ = points.save();
        }
    }
}

impl<I: BatchImages> Epoch<I> {
    /// The next batch that is not empty.
    fn batch(&mut self) -> Result<Option<Batch<I>>> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        if self.has_lost_threads() {
            return Err(Error::Unsupported {
                feature: "an epoch whose worker threads are another process's".to_owned(),
                remedy: "begin the epoch in the process that takes its batches, after the fork".to_owned(),
            });
        }
        loop {
            let start = Instant::now();
            let number = self.context().batches.before(self.given);
            let handing_over = Span::of_batch(Activity::HandOver, number);
            let taken = self.running.take();
            drop(handing_over);
            self.stats.consumer_wait += start.elapsed();
            let Some(Taken { end, made }) = taken else { break };
            let made = made?;
            self.tally.add(end.saturating_sub(self.given), made.losses)?;
            let begin = std::mem::replace(&mut self.given, end);
            // `None`: every sample of the batch was skipped.
            if let Some(parts) = made.parts {
                self.stats.batches += 1;
                self.stats.images += (parts.drawn.len() - parts.padding) as u64;
                return Ok(Some(Batch::new(parts, self.moment(begin))));
            }
        }
        self.tally.end().map(|()| None)
    }
}

impl<I: BatchImages> Iterator for Epoch<I> {
    type Item = Result<Batch<I>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let next = self.batch().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.stop();
        }
        next
    }

    /// Upper bound: the remaining batches. Lower bound: 1, or 0 if all samples may be skipped or a stream may have
    /// ended.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let context = self.context();
        let left = if self.finished { 0 } else { context.batches.count() - context.batches.before(self.given) };
        let certain = context.is_finite() && context.setup.policy.on_error != OnError::Skip;
        // An error would be the last item.
        (usize::from(certain && left > 0), usize::try_from(left).ok())
    }
}

impl<I> Drop for Epoch<I> {
    fn drop(&mut self) {
        self.stop();
    }
}
