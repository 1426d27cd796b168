//! The data of one epoch that workers and consumer need.

use super::batches::{Batches, ShapedBatch};
use super::policy::BadSamples;
use super::setup::Setup;
use super::state::Changes;
use super::stats::Counters;
use crate::backend::HeldImage;
use crate::error::{Error, Result};
use crate::order::{Order, Remaining, Segment, segments_of};
use crate::rng::Pick;
use crate::sampler::Picks;
use crate::shapes::BatchShape;
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
    samples: Samples,
    /// The error if no order could be made.
    pub(super) refused: Option<Error>,
    /// The first position of the order that this epoch delivers. Positions in all other fields and methods count from
    /// here.
    pub(super) first: u64,
    /// The batches that are delivered. Their positions are fewer than the order has if the last batch is dropped.
    pub(super) batches: Batches,
    /// Number of batches of the order before these.
    batches_before: u64,
    pub(super) counters: Counters,
    pub(super) bad: BadSamples,
}

/// The samples of an epoch by position.
enum Samples {
    /// The order's numbers are the samples.
    Order(Order),
    /// The sampler's, or those in units.
    Picks(Picks),
    /// They are given from the epoch's first position on.
    Given(Vec<Pick>),
}

/// The positions of an epoch.
struct Positions {
    samples: Samples,
    batches: Batches,
    batches_before: u64,
}

impl Positions {
    /// The positions of one batch of these samples, which stands at position `first`.
    ///
    /// # Errors
    /// The errors of the order.
    fn given(setup: &Setup, epoch: u64, rest: &Remaining, first: u64, given: FixedPicks) -> Result<Self> {
        let FixedPicks { picks, padding } = given;
        let end = picks.len() as u64;
        let (shape, batches_before) = match (&setup.bucketed, &setup.planned) {
            (Some(bucketed), _) => {
                let size = picks.first().and_then(|pick| bucketed.size_of(pick.index));
                (size.map(BatchShape::Size), bucketed.epoch(setup, epoch, rest, first)?.2)
            }
            (None, Some(planned)) => {
                let (batches, before) = planned.batches(epoch, first, end, 0);
                (batches.shape(0), before)
            }
            (None, None) => (None, first / setup.options.batch_size as u64),
        };
        let batches = match shape {
            Some(shape) => Batches::shaped(vec![ShapedBatch { end, shape, padding }]),
            None => Batches::equal(setup.options.batch_size, end, padding),
        };
        Ok(Self { samples: Samples::Given(picks), batches, batches_before })
    }

    /// No positions.
    fn none() -> Self {
        Self { samples: Samples::Given(Vec::new()), batches: Batches::shaped(Vec::new()), batches_before: 0 }
    }

    /// The positions of the rest of an epoch, from position `first` on.
    ///
    /// # Errors
    /// The errors of the order and of the sampler.
    fn new(setup: &Setup, epoch: u64, rest: Remaining, first: u64) -> Result<Self> {
        if let Some(bucketed) = &setup.bucketed {
            let (picks, batches, batches_before) = bucketed.epoch(setup, epoch, &rest, first)?;
            return Ok(Self { samples: Samples::Picks(picks), batches, batches_before });
        }
        let positions = setup.positions(&rest, first);
        if let Some(planned) = &setup.planned {
            let order = setup.sampler.order_of(epoch, rest)?;
            let padding = (first + positions).saturating_sub(order.len() - order.padding());
            let samples = match &setup.chosen {
                Some(chosen) => Samples::Picks(chosen.picks(setup.recipes.seed, setup.shuffle, epoch, &order)?),
                None => Samples::Order(order),
            };
            let (batches, batches_before) = planned.batches(epoch, first, positions, padding);
            return Ok(Self { samples, batches, batches_before });
        }
        let order = setup.sampler.order_of(epoch, rest)?;
        let padding = (first + positions).saturating_sub(order.len() - order.padding());
        let batches = Batches::equal(setup.options.batch_size, positions, padding);
        let samples = match &setup.chosen {
            Some(chosen) => Samples::Picks(chosen.picks(setup.recipes.seed, setup.shuffle, epoch, &order)?),
            None => Samples::Order(order),
        };
        let batches_before = first / setup.options.batch_size as u64;
        Ok(Self { samples, batches, batches_before })
    }
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
        let ranks = setup.sampler.own_partition().world_size();
        let rest = setup.rest(epoch, segments_of(&changes.segments, epoch), ranks);
        let made = match given {
            Some(given) => Positions::given(&setup, epoch, &rest, first, given),
            None => Positions::new(&setup, epoch, rest, first),
        };
        let (positions, refused) = made.map_or_else(|error| (Positions::none(), Some(error)), |made| (made, None));
        let Positions { samples, batches, batches_before } = positions;
        let stopped = Arc::default();
        let reader = setup.reader(epoch, first, place, &stopped);
        let (counters, bad) = (Counters::default(), BadSamples::default());
        Self { setup, reader, stopped, epoch, changes, samples, refused, first, batches, batches_before, counters, bad }
    }

    /// Segments of this epoch.
    pub(super) fn own_segments(&self) -> &[Segment] {
        segments_of(&self.changes.segments, self.epoch)
    }

    /// The sample at a position.
    pub(super) fn pick(&self, position: u64) -> Option<Pick> {
        match &self.samples {
            Samples::Given(given) => given.get(usize::try_from(position).ok()?).copied(),
            Samples::Picks(picks) => picks.get(self.first + position),
            Samples::Order(order) => order.get(self.first + position).map(|index| Pick { index, repetition: 0 }),
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
        if position < self.batches.positions()
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
        let own = self.batches_before + number;
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
