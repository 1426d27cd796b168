//! The state of an epoch, with which another process continues it.

use super::setup::Setup;
use crate::error::{Error, Result};
use crate::hex::{hex, unhex};
use crate::order::{Partition, Segment, Segments, segments_of};
use crate::source::stream::{LanePlace, Lanes, LanesOf, Place};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The version of states without segments.
const VERSION: u32 = 2;

/// The version of states with segments, which earlier programs refuse.
const VERSION_WITH_SEGMENTS: u32 = 3;

/// Largest position of a stream, whose end is not known beforehand.
const MAX_POSITION: u64 = 1 << 62;

/// State of an epoch, from a batch ([`Batch::state`](crate::Batch::state)) or the epoch
/// ([`Epoch::state`](crate::Epoch::state)). [`Pipeline::resume`](crate::Pipeline::resume) continues the epoch from it,
/// possibly in another process and with other threads, prefetch or batch size.
///
/// A state holds everything that decides about the samples and their draws: seed, order, partition and source. They
/// must be the same when it is resumed; the number of ranks may change
/// ([`Pipeline::state_after`](crate::Pipeline::state_after)). Operations, output and policies are not in it; the caller
/// keeps them. Written as JSON a state has some 200 bytes. The state of a shuffled stream also holds the places of the
/// window's samples, about 22 bytes each, so that only these samples are read again. After a change of the number of
/// ranks, a state also holds the progress of the earlier ranks: a number for each rank, or one for all of them.
///
/// ```
/// # use warpfeed::prelude::*;
/// # use warpfeed::{EpochState, image::{Image, JpegOptions, encode_jpeg}};
/// # fn source(n: u32) -> warpfeed::Result<EncodedImages> {
/// #     let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// #     Ok(EncodedImages::new((0..n).map(|label| (jpeg.clone(), label))))
/// # }
/// let pipeline = Pipeline::builder(source(10)?).shuffle(7).batch_size(4).transform(CenterCrop::new(8)).build()?;
/// let whole = pipeline.epoch(3).flat_map(|batch| batch.unwrap().indices().to_vec()).collect::<Vec<_>>();
///
/// let mut epoch = pipeline.epoch(3);
/// epoch.next().unwrap()?;
/// let state = serde_json::to_string(&epoch.state()).unwrap();
///
/// // Later, in another process:
/// let state: EpochState = serde_json::from_str(&state).unwrap();
/// assert_eq!((state.epoch(), state.position()), (3, 4));
/// let rest = pipeline.resume(&state)?.flat_map(|batch| batch.unwrap().indices().to_vec()).collect::<Vec<_>>();
/// assert_eq!(rest, whole[4..]);
///
/// let other = Pipeline::builder(source(11)?).shuffle(7).batch_size(4).transform(CenterCrop::new(8)).build()?;
/// assert!(other.resume(&state).unwrap_err().to_string().contains("10 samples"));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochState {
    version: u32,
    epoch: u64,
    /// Number of the order's positions that the consumer has been given, skipped samples and padding included.
    position: u64,
    seed: u64,
    shuffled: bool,
    /// Rank and world size.
    partition: (u32, u32),
    pub(super) equal_batches: bool,
    /// Number of shares; `None` for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shares: Option<u32>,
    samples: u64,
    /// Description of the sampler; `None` if the epoch has each sample once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sampler: Option<String>,
    /// Digest of the buckets of all samples and of the units that they make; `None` without buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    buckets: Option<String>,
    /// The shapes of batches by their places in an epoch, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shapes: Option<String>,
    /// Mixing of batches, and the batch size, which then decides about the pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mix: Option<String>,
    /// [`Source::fingerprint`](crate::source::Source::fingerprint) as 16 hexadecimal digits, since not every JSON
    /// reader keeps 64 bits.
    source: String,
    /// For a stream: [`Samples::cursor`](crate::source::Samples::cursor) in hexadecimal.
    #[serde(rename = "place", default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    /// CRC-32C of epoch, position and place (or lanes), 8 hexadecimal digits: a place belongs to one position.
    #[serde(rename = "place_crc32c", default, skip_serializing_if = "Option::is_none")]
    crc: Option<String>,
    /// Segments of this epoch and of later ones: deliveries of other numbers of ranks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) segments: Segments,
    /// For a stream that is read in lanes: the places of lanes in this epoch and in later ones, those of
    /// all ranks or of this one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    lanes: LanesOf,
}

/// Changes of the number of ranks, with what they delivered of epochs.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    pub(super) segments: Segments,
    /// Places at which a stream's lanes go on.
    pub(super) lanes: LanesOf,
}

/// The place of an epoch when a batch was delivered, from which a state can be made.
pub(super) struct Moment {
    pub(super) setup: Arc<Setup>,
    pub(super) epoch: u64,
    pub(super) changes: Arc<Changes>,
    /// The position at which the epoch was begun or resumed.
    pub(super) begun: u64,
    /// The position of the batch's first sample.
    pub(super) first: u64,
    /// The position after its last one.
    pub(super) position: u64,
    /// The place in a stream after its last one.
    pub(super) place: Place,
}

impl Moment {
    /// The state before the first batch, where an epoch of a stream goes on in the lanes of other ranks.
    pub(super) fn epoch_start(&self) -> Option<EpochState> {
        let lanes = self.changes.lanes.get(&self.epoch).filter(|_| self.first == self.begun)?;
        let place = Place::Lanes(lanes.clone());
        Some(EpochState::new(&self.setup, self.epoch, &self.changes, self.begun, &place))
    }

    pub(super) fn state(&self) -> EpochState {
        EpochState::new(&self.setup, self.epoch, &self.changes, self.position, &self.place)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "position {} of epoch {}", self.position, self.epoch)
    }
}

impl EpochState {
    /// `changes`: those of this epoch and of later ones.
    pub(super) fn new(setup: &Setup, epoch: u64, changes: &Changes, position: u64, place: &Place) -> Self {
        let (sampler, partition, mut lanes) = (&setup.sampler, setup.sampler.own_partition(), changes.lanes.clone());
        let cursor = match place {
            Place::Cursor(cursor) => cursor.as_deref().map(hex),
            Place::Lanes(now) => {
                lanes.insert(epoch, now.clone());
                None
            }
        };
        let mut state = Self {
            version: if changes.segments.is_empty() && lanes.is_empty() { VERSION } else { VERSION_WITH_SEGMENTS },
            epoch,
            position,
            seed: setup.recipes.seed,
            shuffled: setup.shuffle,
            partition: (partition.rank(), partition.world_size()),
            equal_batches: sampler.is_equal(),
            shares: sampler.several_shares(),
            // `u64::MAX` stands for a stream's unknown number of samples, as in all earlier states.
            samples: setup.input.samples().unwrap_or(u64::MAX),
            sampler: setup.chosen.as_ref().map(|chosen| chosen.name.clone()),
            buckets: setup.bucketed.as_ref().map(|bucketed| bucketed.name.clone()),
            shapes: setup.planned.as_ref().map(|planned| planned.name()),
            mix: setup.mix.as_ref().map(|mix| format!("{mix} of {} images", setup.options.batch_size)),
            source: format!("{:016x}", setup.fingerprint()),
            crc: None,
            cursor,
            segments: changes.segments.clone(),
            lanes,
        };
        state.crc = state.own_crc();
        state
    }

    /// Number of the epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of positions of the partition's order that have been delivered, skipped samples included. After a change
    /// of the number of ranks, the order is that of the samples that were left then.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The state at the beginning of a later epoch of the same run; of its own epoch, the state itself. Processes that
    /// do not wait for each other may be in different epochs when the number of ranks changes; then parts of several
    /// epochs have been delivered ([`Pipeline::state_after`](crate::Pipeline::state_after)).
    #[must_use]
    pub fn for_epoch(&self, epoch: u64) -> Self {
        if epoch == self.epoch {
            return self.clone();
        }
        let (segments, lanes) = (self.segments_from(epoch), self.lanes_from(epoch));
        let version = if segments.is_empty() && lanes.is_empty() { VERSION } else { VERSION_WITH_SEGMENTS };
        let mut later = Self { version, epoch, position: 0, cursor: None, crc: None, segments, lanes, ..self.clone() };
        later.crc = later.own_crc();
        later
    }

    /// Segments of an epoch and of later ones.
    pub(super) fn segments_from(&self, epoch: u64) -> Segments {
        self.segments.range(epoch..).map(|(epoch, segments)| (*epoch, segments.clone())).collect()
    }

    /// Places of lanes in an epoch and in later ones.
    pub(super) fn lanes_from(&self, epoch: u64) -> LanesOf {
        self.lanes.range(epoch..).map(|(epoch, lanes)| (*epoch, lanes.clone())).collect()
    }

    /// Changes of the number of ranks, with what they delivered of this epoch and of later ones.
    pub(super) fn changes(&self) -> Changes {
        Changes { segments: self.segments.clone(), lanes: self.lanes.clone() }
    }

    /// The place in the stream, as lanes of all ranks that the epoch began with.
    pub(super) fn own_lanes(&self) -> Result<Lanes> {
        if let Some(lanes) = self.lanes.get(&self.epoch) {
            return Ok(lanes.clone());
        }
        let (rank, ranks) = self.partition;
        Ok(Lanes::new(ranks, vec![LanePlace::new(rank, self.position, self.cursor()?)]))
    }

    /// The rank that wrote the state. A state from a file may have any.
    pub(super) fn rank(&self) -> u32 {
        self.partition.0
    }

    /// The state of another rank that has come as far.
    #[doc(hidden)]
    pub fn of_rank(&self, partition: Partition) -> Self {
        Self { partition: (partition.rank(), partition.world_size()), ..self.clone() }
    }

    /// The partition of the rank that wrote the state.
    #[doc(hidden)]
    pub fn partition(&self) -> Result<Partition> {
        Partition::new(self.partition.0, self.partition.1)
    }

    /// Segments of the state's epoch.
    pub(super) fn own_segments(&self) -> &[Segment] {
        segments_of(&self.segments, self.epoch)
    }

    /// The place in the stream.
    pub(super) fn place(&self) -> Result<Place> {
        match self.lanes.get(&self.epoch) {
            Some(lanes) => Ok(Place::Lanes(lanes.clone())),
            None => self.cursor().map(Place::Cursor),
        }
    }

    /// The cursor of the stream's samples.
    fn cursor(&self) -> Result<Option<Vec<u8>>> {
        let decode = |cursor: &String| {
            unhex(cursor).ok_or_else(|| Error::parameter("resume", "state", "with a cursor in hexadecimal", cursor))
        };
        self.cursor.as_ref().map(decode).transpose()
    }

    /// Compares the state with the pipeline that is to resume it.
    pub(super) fn check(&self, setup: &Setup) -> Result<()> {
        self.check_but_partition(setup, setup.sampler.own_partition())
    }

    /// Compares the state with the pipeline that is to resume it, as if that had `partition`.
    pub(super) fn check_but_partition(&self, setup: &Setup, partition: Partition) -> Result<()> {
        let refused = |expected: String, got: String| Err(Error::parameter("resume", "state", expected, got));
        if ![VERSION, VERSION_WITH_SEGMENTS].contains(&self.version) {
            let expected = format!("of version {VERSION} or {VERSION_WITH_SEGMENTS}");
            return refused(expected, format!("version {}", self.version));
        }
        let own = Self::new(setup, self.epoch, &self.changes(), self.position, &Place::Cursor(None));
        let own = own.of_rank(partition);
        if self.version != own.version
            || self.segments.values().flatten().any(|segment| !segment.is_valid())
            || self.lanes.values().any(|lanes| !lanes.are_of(Some(partition)) && !lanes.are_of(None))
            || !setup.is_stream() && !self.lanes.is_empty()
        {
            let expected =
                "one that says what other numbers of ranks have delivered (take an earlier state)".to_owned();
            return refused(expected, "one that was damaged or edited".to_owned());
        }
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        for (own, other) in own.words().into_iter().zip(self.words()) {
            if own != other {
                expected.push(own);
                got.push(other);
            }
        }
        if !expected.is_empty() {
            return refused(format!("one of this pipeline ({})", expected.join(", ")), got.join(", "));
        }
        let rest = setup.rest(self.epoch, self.own_segments(), partition.world_size());
        let end = setup.all_positions_of(partition, &rest).min(MAX_POSITION);
        if self.position > end {
            return refused(format!("at a position up to {end}, the end of the epoch"), self.position.to_string());
        }
        if self.crc != self.own_crc() {
            let expected =
                "one whose place in the stream belongs to its position (take an earlier state, or begin anew)";
            let got = format!("position {} of epoch {}, damaged or edited", self.position, self.epoch);
            return refused(expected.to_owned(), got);
        }
        Ok(())
    }

    /// Checksum that ties the place in a stream to the position; `None` for a data set.
    fn own_crc(&self) -> Option<String> {
        let lanes = || (!self.lanes.is_empty()).then(|| serde_json::to_string(&self.lanes).unwrap_or_default());
        self.cursor.clone().or_else(lanes).map(|place| crc(self.epoch, self.position, &place))
    }

    /// The values that must agree, as text.
    fn words(&self) -> [String; 11] {
        let (rank, world_size) = self.partition;
        [
            format!("{} samples", self.samples),
            format!("source fingerprint {}", self.source),
            format!("seed {}", self.seed),
            if self.shuffled { "shuffled" } else { "not shuffled" }.to_owned(),
            format!("partition {rank}/{world_size}"),
            self.mix.as_ref().map_or("no mixing".to_owned(), |mix| format!("mixing {mix}")),
            self.sampler.as_ref().map_or("no sampler".to_owned(), |sampler| format!("sampler {sampler}")),
            self.buckets.as_ref().map_or("no buckets".to_owned(), |buckets| format!("buckets and units {buckets}")),
            self.shapes.as_ref().map_or("one shape".to_owned(), |shapes| format!("shapes {shapes}")),
            format!("{} shares", self.shares.unwrap_or(1)),
            if self.equal_batches { "even partitions" } else { "partitions as they are" }.to_owned(),
        ]
    }
}

/// Checksum that ties a place to its position.
fn crc(epoch: u64, position: u64, place: &str) -> String {
    format!("{:08x}", crc32c::crc32c(format!("{epoch} {position} {place}").as_bytes()))
}
