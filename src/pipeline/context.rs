//! The data of one epoch that workers and consumer need.

use super::policy::BadSamples;
use super::setup::Setup;
use super::state::Changes;
use super::stats::Counters;
use crate::backend::HeldImage;
use crate::error::{Error, Result};
use crate::order::{Order, Segment, ShardedOrder, segments_of};
use crate::rng::Pick;
use crate::sampler::Picks;
use crate::source::stream::Place;
use crate::source::{ReadRequest, Reader};
use crate::targets::{Annotation, Found};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Number of positions by which a sample is announced to its source beforehand.
const ANNOUNCED: u64 = 64;

/// The samples of a batch that is reproduced.
pub(super) struct FixedPicks {
    pub(super) picks: Vec<Pick>,
    /// Number of padding samples among them, at the end.
    pub(super) padding: u64,
}

/// An epoch: its samples and their statistics.
pub(super) struct Context {
    pub(super) setup: Arc<Setup>,
    /// Reads this epoch's samples.
    pub(super) reader: Reader,
    /// Set when the epoch is dropped, so that threads stop waiting for bytes.
    pub(super) stopped: Arc<AtomicBool>,
    pub(super) epoch: u64,
    /// Changes of the number of ranks, with what they delivered of this epoch and of later ones.
    pub(super) changes: Arc<Changes>,
    order: Order,
    /// The sampler's samples by position; `None` if the order's numbers are the samples.
    picks: Option<Picks>,
    /// The samples by position, if they are given.
    given: Option<Vec<Pick>>,
    /// The error if no order could be made.
    pub(super) refused: Option<Error>,
    /// The first position of the order that this epoch delivers. Positions in all other fields and methods count from
    /// here.
    pub(super) first: u64,
    /// Number of positions that are delivered: fewer than the order has if the last batch is dropped.
    pub(super) positions: u64,
    /// Number of padding positions among them, at the end.
    pub(super) padding: u64,
    pub(super) counters: Counters,
    pub(super) bad: BadSamples,
}

impl Context {
    /// An epoch that starts at position `first` of the order that `changes` have left; `place` is that position's in a
    /// stream. `given`: the samples from `first` on, in place of the order's.
    pub(super) fn new(
        setup: Arc<Setup>,
        epoch: u64,
        changes: Arc<Changes>,
        (first, place): (u64, Place),
        given: Option<FixedPicks>,
    ) -> Self {
        let rest = setup.rest(segments_of(&changes.segments, epoch), setup.sampler.own_partition().world_size());
        let all = setup.positions(&rest, first);
        // An unused order is not made.
        let none = || ShardedOrder::sequential(0).epoch(epoch);
        let order = if given.is_some() { Ok(none()) } else { setup.sampler.order_of(epoch, rest) };
        let (order, no_order) = order.map_or_else(|error| (none(), Some(error)), |order| (order, None));
        let (seed, shuffle) = (setup.recipes.seed, setup.shuffle);
        let chosen = setup.chosen.as_ref().filter(|_| given.is_none() && no_order.is_none());
        let picks = chosen.map(|chosen| chosen.picks(seed, shuffle, epoch, &order)).transpose();
        let (picks, refused) = picks.map_or_else(|error| (None, Some(error)), |picks| (picks, no_order));
        let (positions, padding) = match &given {
            Some(given) => (given.picks.len() as u64, given.padding),
            None => {
                let positions = if refused.is_none() { all } else { 0 };
                (positions, (first + positions).saturating_sub(order.len() - order.padding()))
            }
        };
        let given = given.map(|given| given.picks);
        let stopped = Arc::default();
        let reader = setup.reader(epoch, first, place, &stopped);
        let (counters, bad) = (Counters::default(), BadSamples::default());
        Self {
            setup,
            reader,
            stopped,
            epoch,
            changes,
            order,
            picks,
            given,
            refused,
            first,
            positions,
            padding,
            counters,
            bad,
        }
    }

    /// Segments of this epoch.
    pub(super) fn own_segments(&self) -> &[Segment] {
        segments_of(&self.changes.segments, self.epoch)
    }

    /// The sample at a position.
    pub(super) fn pick(&self, position: u64) -> Option<Pick> {
        if let Some(given) = &self.given {
            return given.get(usize::try_from(position).ok()?).copied();
        }
        let position = self.first + position;
        match &self.picks {
            Some(picks) => picks.get(position),
            None => self.order.get(position).map(|index| Pick { index, repetition: 0 }),
        }
    }

    /// Announces the first samples, before a worker asks for one.
    pub(super) fn announce_first(&self) {
        // A panic in the caller's source comes again when the sample is read, and is reported there.
        let announce = || (0..ANNOUNCED).for_each(|position| self.announce(position));
        let _ = catch_unwind(AssertUnwindSafe(announce));
    }

    /// Announces the sample `ANNOUNCED` positions after `position`.
    pub(super) fn announce_ahead(&self, position: u64) {
        self.announce(position + ANNOUNCED);
    }

    /// Tells the source that the sample at a position will be read soon, unless the cache is known to have it.
    fn announce(&self, position: u64) {
        if position < self.positions
            && let Some(Pick { index, .. }) = self.pick(position)
            && !self.setup.cache.as_ref().is_some_and(|cache| cache.is_known(index))
        {
            self.reader.prefetch(index);
        }
    }

    /// The number of a batch among the epoch's batches of all ranks, with ranks taken in turn. Batches of other numbers
    /// of ranks come before, as many as if each rank had come as far as the one that came farthest.
    pub(super) fn batch_of_all_ranks(&self, number: u64) -> u64 {
        let (partition, batch_size) = (self.setup.sampler.own_partition(), self.setup.options.batch_size as u64);
        let earlier =
            self.own_segments().iter().fold(0_u64, |sum, segment| sum.saturating_add(segment.batches(batch_size)));
        let own = self.first / batch_size + number;
        earlier.saturating_add(own * u64::from(partition.world_size()) + u64::from(partition.rank()))
    }

    /// The parts of a sample that are read if its image is not in the cache.
    fn want(&self) -> ReadRequest<'_> {
        let field = self.setup.targets.as_ref().and_then(|spec| spec.field.as_deref());
        let request = ReadRequest::IMAGE.and_target(field).and_fields(&self.setup.fields).unless(&self.stopped);
        // RGB images are decoded of their bytes.
        request.or_parts(self.setup.options.values.is_some())
    }

    /// Reads a sample. `buffer` is used if the source does not lend its own bytes.
    pub(super) fn read(&self, index: u64, buffer: Vec<u8>) -> Result<(HeldImage, Annotation)> {
        let (encoded, found) = HeldImage::read(&self.reader, index, &self.want(), buffer)?;
        Ok((encoded, self.annotation(index, found)?))
    }

    /// Reads everything of a sample but its image.
    pub(super) fn read_annotation(&self, index: u64) -> Result<Annotation> {
        let found = self.reader.found(index, &self.want().without_image())?;
        self.annotation(index, found)
    }

    fn annotation(&self, index: u64, found: Found) -> Result<Annotation> {
        Annotation::new(self.setup.targets.as_ref(), self.reader.checked_label(index, self.setup.has_labels)?, found)
    }

    /// Whether a stream has ended before sample `index`.
    pub(super) fn ended_before(&self, index: u64) -> bool {
        self.reader.feed().is_some_and(|feed| feed.ended_before(index))
    }

    /// The sample that was read for `pick`: where a stream is read in lanes, its index is known only then.
    pub(super) fn picked(&self, pick: Pick) -> Pick {
        self.reader.feed().map_or(pick, |feed| Pick { index: feed.index(pick.index), ..pick })
    }

    pub(super) fn sample_error(&self, index: u64, error: Error) -> Error {
        Error::Sample { index, name: self.name(index), source: Box::new(error) }
    }

    /// Whether the number of samples is known beforehand. A stream's is not.
    pub(super) fn is_finite(&self) -> bool {
        self.reader.feed().is_none()
    }

    pub(super) fn name(&self, index: u64) -> String {
        // A name may have to be fetched, and the errors of a dropped epoch are not read.
        if self.stopped.load(Relaxed) {
            return format!("sample {index}");
        }
        // The source may be the caller's code. Its panic must not prevent the error from being delivered.
        catch_unwind(AssertUnwindSafe(|| self.reader.name(index).into_owned()))
            .unwrap_or_else(|_| "its name cannot be had".to_owned())
    }
}
