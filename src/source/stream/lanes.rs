//! Lanes: the parts of an epoch of a stream that stay the same when the number of ranks changes. An epoch that began
//! with w partitions has w lanes. Rank r of v gets the lanes r, r + v, and so on, and always reads from the lane that
//! has delivered fewest samples.

use super::{Samples, Stream, StreamSample, StreamStart};
use crate::error::{Error, Result};
use crate::order::Partition;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The places of lanes, by the number of the epoch.
pub(crate) type LanesOf = BTreeMap<u64, Lanes>;

/// Progress of lanes of an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lanes {
    /// Number of lanes of all ranks.
    count: u32,
    /// Places of the lanes of one rank, or of all ranks, in the order of their numbers.
    places: Vec<LanePlace>,
}

/// Progress of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LanePlace {
    lane: u32,
    /// Number of samples that were delivered.
    delivered: u64,
    /// [`Samples::cursor`](super::Samples::cursor); `None` if the lane is read again from its start.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "cursor_text")]
    cursor: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "is_false")]
    ended: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_false(value: &bool) -> bool {
    !value
}

impl LanePlace {
    pub fn new(lane: u32, delivered: u64, cursor: Option<Vec<u8>>) -> Self {
        Self { lane, delivered, cursor, ended: false }
    }

    pub fn ended(lane: u32) -> Self {
        Self { lane, delivered: 0, cursor: None, ended: true }
    }
}

impl Lanes {
    /// Lanes of several ranks together. `places` may be in any order.
    pub fn new(count: u32, mut places: Vec<LanePlace>) -> Self {
        places.sort_unstable_by_key(|place| place.lane);
        Self { count, places }
    }

    /// All lanes at the start of an epoch.
    pub fn at_start(count: u32) -> Self {
        Self { count, places: (0..count).map(|lane| LanePlace::new(lane, 0, None)).collect() }
    }

    /// Number of lanes of all ranks.
    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn into_places(self) -> Vec<LanePlace> {
        self.places
    }

    /// Whether these are all lanes, or those that a rank has.
    pub fn are_of(&self, partition: Option<Partition>) -> bool {
        let is_own = |lane: &u32| partition.is_none_or(|own| lane % own.world_size() == own.rank());
        self.count > 0 && self.places.iter().map(|place| place.lane).eq((0..self.count).filter(is_own))
    }

    /// Whether anything was delivered.
    pub fn has_begun(&self) -> bool {
        self.places.iter().any(|place| place.ended || place.delivered > 0)
    }

    /// The lanes of a rank.
    pub fn dealt(&self, partition: Partition) -> Self {
        let is_own = |place: &&LanePlace| place.lane % partition.world_size() == partition.rank();
        Self { count: self.count, places: self.places.iter().filter(is_own).cloned().collect() }
    }
}

/// Cursors as text.
mod cursor_text {
    use crate::hex::{hex, unhex};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(hex).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        let wrong = || D::Error::custom("a cursor is not hexadecimal");
        Option::<String>::deserialize(from)?.map(|text| unhex(&text).ok_or_else(wrong)).transpose()
    }
}

/// Reads the lanes of a rank by turns.
pub(super) struct LaneReader {
    count: u32,
    lanes: Vec<Lane>,
}

struct Lane {
    place: LanePlace,
    /// `None` before the first sample is asked for.
    samples: Option<Box<dyn Samples>>,
}

/// A sample or the error of a bad one, and its places.
pub(super) struct Pulled {
    pub sample: Result<StreamSample>,
    /// Its index.
    pub index: u64,
    /// Distance by which it was moved from its place in the stream.
    pub moved: u64,
}

impl LaneReader {
    /// A reader of the one lane of a partition. `delivered`: the number of samples before `cursor`; 0 without one, as
    /// the caller then skips delivered samples.
    pub fn of_partition(partition: Partition, delivered: u64, cursor: Option<Vec<u8>>) -> Self {
        let place = LanePlace::new(partition.rank(), delivered, cursor);
        Self { count: partition.world_size(), lanes: vec![Lane { place, samples: None }] }
    }

    pub fn new(lanes: Lanes) -> Self {
        let lane = |place| Lane { place, samples: None };
        Self { count: lanes.count, lanes: lanes.places.into_iter().map(lane).collect() }
    }

    /// Takes the next sample; `None` when all lanes have ended. `start` is that of the epoch.
    pub fn next(&mut self, stream: &dyn Stream, start: &StreamStart) -> Result<Option<Pulled>> {
        loop {
            let open = self.lanes.iter_mut().filter(|lane| !lane.place.ended);
            let Some(lane) = open.min_by_key(|lane| (lane.place.delivered, lane.place.lane)) else { return Ok(None) };
            let samples = match &mut lane.samples {
                Some(samples) => samples,
                none => none.insert(lane.place.begin(self.count, stream, start)?),
            };
            let sample = match samples.next() {
                Ok(Some(sample)) => Ok(sample),
                Ok(None) => {
                    lane.place.ended = true;
                    continue;
                }
                Err(error) if error.is_bad_sample() => Err(error),
                Err(error) => return Err(error),
            };
            let at = lane.place.delivered;
            let moved = samples.origin().map_or(0, |origin| origin.abs_diff(at));
            lane.place.delivered += 1;
            let index = at * u64::from(self.count) + u64::from(lane.place.lane);
            return Ok(Some(Pulled { sample, index, moved }));
        }
    }

    /// The stream's cursor, with only one lane.
    pub fn cursor(&self) -> Option<Vec<u8>> {
        self.lanes.first()?.samples.as_ref()?.cursor()
    }

    /// Progress of the lanes.
    pub fn lanes(&self) -> Lanes {
        let place = |Lane { place, samples }: &Lane| match samples {
            Some(samples) => LanePlace { cursor: samples.cursor().filter(|_| !place.ended), ..place.clone() },
            None => place.clone(),
        };
        Lanes { count: self.count, places: self.lanes.iter().map(place).collect() }
    }
}

impl LanePlace {
    /// Begins to read the lane at its place. Without a cursor, delivered samples are read again and skipped.
    fn begin(&self, count: u32, stream: &dyn Stream, start: &StreamStart) -> Result<Box<dyn Samples>> {
        let partition = Partition::new(self.lane, count)?;
        let start = StreamStart { partition, cursor: self.cursor.clone(), ..start.clone() };
        let mut samples = stream.begin(&start)?;
        if self.cursor.is_none() {
            for read in 0..self.delivered {
                match samples.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => return Err(beyond(read, self.delivered)),
                    Err(error) if error.is_bad_sample() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(samples)
    }
}

/// The error for a state whose position is beyond the end of the stream.
pub(super) fn beyond(end: u64, position: u64) -> Error {
    Error::parameter("resume", "state", format!("at a position up to {end}, the end of the stream"), position)
}
