//! States for another number of ranks: the new ranks share the positions that the old ranks have not delivered
//! (`order/segments.rs`), or a stream's parts, as lanes (`source/stream/lanes.rs`). Padding and a dropped last batch
//! start anew. The numbers by which mixed batches are drawn go on after those of the rank that is farthest ahead.

#[cfg(test)]
mod tests;

use super::setup::Setup;
use super::state::{Changes, EpochState};
use super::{Pipeline, PipelineGroup};
use crate::error::{Error, Result};
use crate::order::{Segment, segments_of};
use crate::source::stream::{LanePlace, Lanes, Place};
use std::cmp::Ordering;

/// Largest number of epochs between those of two ranks.
const MAX_APART: u64 = 10_000;
/// Largest number of ranks that an error lists.
const LISTED: usize = 20;

impl<I> Pipeline<I> {
    /// The state from which this pipeline continues a run that had another number of ranks. `states` are the last
    /// states of all its ranks, in any order. If the partitions are even
    /// ([`PipelineBuilder::equal_batches`](crate::PipelineBuilder::equal_batches)), the state of one rank is enough,
    /// and all ranks are assumed to have the same progress. All new ranks must be given the same states.
    /// [`resume`](Self::resume) continues from the result.
    ///
    /// The samples that the ranks have left of the epoch are shared by the new ones, in the order of the epoch: each is
    /// delivered once. If the number of ranks is the same, the result is this rank's own state. Padding and a dropped
    /// last batch are those of the new ranks. Mixed batches ([`PipelineBuilder::mix`](crate::PipelineBuilder::mix))
    /// have other samples than without the change, and draw their shares by numbers that no earlier batch of the epoch
    /// had.
    ///
    /// In a stream, each rank's part goes on as a lane, and the new ranks read the lanes in turns. A sample's pixels
    /// are the same as without the change. If there are more ranks than lanes, some have nothing left of the epoch:
    /// [`PipelineBuilder::lanes`](crate::PipelineBuilder::lanes) makes more of them. Each lane has a window of its own,
    /// which takes memory.
    ///
    /// Ranks that do not wait for each other may be in different epochs. The result then begins in the earliest of
    /// them, and [`EpochState::for_epoch`] has the rest of the later ones.
    ///
    /// # Errors
    /// [`Error::Parameter`] if states are missing or belong to different runs, and the errors of
    /// [`resume`](Self::resume) for each state; [`Error::Unsupported`] for
    /// [`Concat::shares`](crate::source::Concat::shares), whose batches are made for one number of ranks.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::prelude::*;
    /// # use warpfeed::Partition;
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
    /// # let builder = Pipeline::builder(source).shuffle(7).batch_size(2).transform(CenterCrop::new(8));
    /// let ranks = |ranks: u32| (0..ranks).map(move |rank| Partition::new(rank, ranks));
    /// // Two ranks deliver a batch each.
    /// let mut labels = Vec::new();
    /// let mut states = Vec::new();
    /// for partition in ranks(2) {
    ///     let batch = builder.clone().partition(partition?).build()?.epoch(0).next().unwrap()?;
    ///     labels.extend_from_slice(batch.labels()?);
    ///     states.push(batch.state());
    /// }
    /// // Three ranks deliver the rest.
    /// for partition in ranks(3) {
    ///     let pipeline = builder.clone().partition(partition?).build()?;
    ///     let state = pipeline.state_after(&states)?;
    ///     for batch in pipeline.resume(&state)? {
    ///         labels.extend_from_slice(batch?.labels()?);
    ///     }
    /// }
    /// labels.sort_unstable();
    /// assert_eq!(labels, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn state_after(&self, states: &[EpochState]) -> Result<EpochState> {
        state_after(&self.setup, states)
    }
}

impl PipelineGroup {
    /// The states from which the devices continue a run that had another number of devices or ranks, for
    /// [`resume`](Self::resume). See [`Pipeline::state_after`].
    ///
    /// # Errors
    /// The errors of [`Pipeline::state_after`].
    pub fn states_after(&self, states: &[EpochState]) -> Result<Vec<EpochState>> {
        self.pipelines().iter().map(|pipeline| pipeline.state_after(states)).collect()
    }
}

fn refused<T>(expected: impl Into<String>, got: impl ToString) -> Result<T> {
    Err(Error::parameter("state_after", "states", expected, got.to_string()))
}

fn state_after(setup: &Setup, states: &[EpochState]) -> Result<EpochState> {
    let Some(first) = states.first() else { return refused("those of all ranks of a run", "none") };
    let (own, ranks) = (setup.sampler.own_partition(), first.partition()?.world_size());
    if ranks != own.world_size() {
        check_order(setup, own.world_size(), ranks)?;
    }
    for state in states {
        let partition = state.partition()?;
        if partition.world_size() != ranks {
            return refused(format!("of {ranks} ranks, as the first of them"), format!("that of {partition}"));
        }
        state.check_but_partition(setup, partition)?;
    }
    let is_enough = first.equal_batches && states.len() == 1;
    if ranks == own.world_size() {
        let own_state = states.iter().find(|state| state.partition().is_ok_and(|partition| partition == own));
        return match own_state {
            Some(state) => Ok(state.clone()),
            None if is_enough => Ok(first.of_rank(own)),
            None => refused(format!("with that of rank {own}"), format!("{} others", states.len())),
        };
    }
    let mut states: Vec<&EpochState> = states.iter().collect();
    states.sort_unstable_by_key(|state| state.rank());
    if !is_enough {
        check_complete(&states, ranks)?;
    }
    let (mut start, mut end) = (first, first);
    for &state in &states {
        start = if state.epoch() < start.epoch() { state } else { start };
        end = if state.epoch() > end.epoch() { state } else { end };
    }
    if end.epoch() - start.epoch() > MAX_APART {
        let expected = format!("of epochs that are at most {MAX_APART} apart");
        return refused(expected, format!("epochs {} and {}", start.epoch(), end.epoch()));
    }
    let disagrees = |state: &EpochState| {
        let (own, later) = (state.epoch(), state.epoch().saturating_add(1));
        start.segments_from(own) != state.segments_from(own) || start.lanes_from(later) != state.lanes_from(later)
    };
    if states.iter().any(|state| disagrees(state)) {
        return refused("that agree on what other numbers of ranks have delivered", "those of several runs");
    }
    // No rank has begun the epochs after the last one: what earlier numbers of ranks have left of them stays.
    let (segments, lanes) = (start.segments_from(start.epoch()), start.lanes_from(end.epoch().saturating_add(1)));
    let mut changes = Changes { segments, lanes };
    for epoch in start.epoch()..=end.epoch() {
        if setup.is_stream()
            && let Some(lanes) = lanes_after(&states, setup.lanes.unwrap_or(ranks), epoch)?
        {
            changes.lanes.insert(epoch, lanes);
        }
        let segments = &mut changes.segments;
        let rest = setup.rest(epoch, segments_of(segments, epoch), ranks);
        // The part of a stream that a rank had beyond the epoch is not known.
        let most = states.iter().filter(|state| state.epoch() == epoch).map(|state| state.position()).max();
        let segment = if is_enough {
            Segment::even(ranks, first.position())
        } else {
            let delivered = |state: &&EpochState| match state.epoch().cmp(&epoch) {
                Ordering::Less => Ok(0),
                Ordering::Equal => Ok(state.position()),
                Ordering::Greater if setup.is_stream() => Ok(most.unwrap_or(0)),
                Ordering::Greater => Ok(setup.all_positions_of(state.partition()?, &rest)),
            };
            Segment::new(states.iter().map(delivered).collect::<Result<_>>()?)
        };
        if let Some(segment) = segment {
            segments.entry(epoch).or_default().push(segment);
        }
    }
    let place = changes.lanes.get(&start.epoch()).map_or(Place::Cursor(None), |lanes| Place::Lanes(lanes.clone()));
    Ok(EpochState::new(setup, start.epoch(), &changes, 0, &place))
}

/// The lanes of an epoch of a stream, from the states of all ranks in their order; `None` if the epoch has not begun.
/// `usual`: the number of lanes of an epoch about which no state says it.
fn lanes_after(states: &[&EpochState], usual: u32, epoch: u64) -> Result<Option<Lanes>> {
    let count = states.iter().find_map(|state| state.lanes_from(epoch).get(&epoch).map(Lanes::count)).unwrap_or(usual);
    let mut places = Vec::new();
    for state in states {
        let partition = state.partition()?;
        let numbers = (0..count).filter(|lane| lane % partition.world_size() == partition.rank());
        let lanes = match state.epoch().cmp(&epoch) {
            Ordering::Equal if state.position() > 0 => Some(state.own_lanes()?.dealt(partition)),
            Ordering::Equal | Ordering::Less => state.lanes_from(epoch).get(&epoch).map(|lanes| lanes.dealt(partition)),
            Ordering::Greater => Some(Lanes::new(count, numbers.clone().map(LanePlace::ended).collect())),
        };
        match lanes {
            Some(lanes) => {
                places.extend(lanes.into_places());
            }
            None => places.extend(numbers.map(|lane| LanePlace::new(lane, 0, None))),
        }
    }
    let lanes = Lanes::new(count, places);
    if !lanes.are_of(None) {
        return refused("that agree on the lanes of a stream", "those of several runs");
    }
    Ok(lanes.has_begun().then_some(lanes))
}

/// Checks that the order of an epoch is the same for both numbers of ranks.
fn check_order(setup: &Setup, own: u32, ranks: u32) -> Result<()> {
    if !setup.chosen.as_ref().is_some_and(|chosen| chosen.is_of_ranks()) {
        return Ok(());
    }
    Err(Error::Unsupported {
        feature: format!(
            "continuing an epoch of batches with a fixed share of each source with {own} ranks instead of {ranks}"
        ),
        remedy: format!(
            "deliver the rest of the epoch with {ranks} partitions; a process may have several pipelines, each with a \
             partition and its state"
        ),
    })
}

/// Checks that there is one state of each rank. `states` are in the order of the ranks.
fn check_complete(states: &[&EpochState], ranks: u32) -> Result<()> {
    if states.len() as u64 == u64::from(ranks) && (0..).zip(states).all(|(rank, state)| state.rank() == rank) {
        return Ok(());
    }
    let given: Vec<String> = states.iter().take(LISTED).map(|state| state.rank().to_string()).collect();
    let more = if states.len() > LISTED { ", ..." } else { "" };
    refused(format!("one of each of {ranks} ranks"), format!("those of rank {}{more}", given.join(", ")))
}
