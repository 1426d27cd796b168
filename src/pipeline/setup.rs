//! The checked settings of a pipeline, without the back end.

use super::bucketed::Bucketed;
use super::cache::Cache;
use super::planned::Planned;
use super::policy::{LastBatch, Policy};
use super::recipes::Recipes;
use crate::backend::RunOptions;
use crate::mix::Mix;
use crate::ops::normalize::Normalization;
use crate::order::{Partition, Remaining, Segment, ShardedOrder};
use crate::sampler::Chosen;
use crate::source::stream::{Feed, Lanes, Place};
use crate::source::{Input, Reader, StreamStart};
use crate::targets::TargetSpec;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The checked settings of a pipeline. In a group each device has a copy; large parts are shared.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) input: Input,
    /// Whether the samples have labels; `None` if a stream's first sample will tell.
    pub(super) has_labels: Option<bool>,
    /// Fingerprint of the input, computed when it is first needed.
    pub(super) fingerprint: OnceLock<u64>,
    /// Whether epochs are shuffled.
    pub(super) shuffle: bool,
    /// Decides which positions of the epoch's order are delivered.
    pub(super) sampler: ShardedOrder,
    /// Decides which samples are at these positions; `None` if each sample comes once.
    pub(super) chosen: Option<Arc<Chosen>>,
    /// The buckets of the samples; `None` if all batches have one shape, or none.
    pub(super) bucketed: Option<Arc<Bucketed>>,
    /// The shapes of batches by their places in an epoch; `None` if places do not decide.
    pub(super) planned: Option<Arc<Planned>>,
    /// Largest number of samples in an epoch.
    pub(super) limit: u64,
    /// Number of a stream's lanes; `None` for one of each rank.
    pub(super) lanes: Option<u32>,
    pub(super) recipes: Arc<Recipes>,
    /// The normalization of all views.
    pub(super) normalize: Normalization,
    pub(super) options: Arc<RunOptions>,
    /// Description of the targets; `None` if batches have none.
    pub(super) targets: Option<TargetSpec>,
    /// The names of the fields that batches have; empty if they have none.
    pub(super) fields: Arc<[String]>,
    /// Mixing of batches; `None` without mixing.
    pub(super) mix: Option<Mix>,
    pub(super) policy: Policy,
    /// The image cache, if there is one.
    pub(super) cache: Option<Arc<Cache>>,
}

impl Setup {
    /// Makes the reader of an epoch's samples from position `first` on. `place`: that position's in a stream.
    pub(super) fn reader(&self, epoch: u64, first: u64, place: Place, stopped: &Arc<AtomicBool>) -> Reader {
        match &self.input {
            Input::DataSet(source) => Reader::DataSet(Arc::clone(source)),
            Input::Stream(stream) => {
                let (shuffle, partition) = (self.shuffle.then_some(self.recipes.seed), self.sampler.own_partition());
                let target = self.targets.as_ref().and_then(|targets| targets.field.clone());
                let (fields, stopped) = (self.fields.to_vec(), Arc::clone(stopped));
                let (cursor, lanes) = match place {
                    Place::Cursor(cursor) => (cursor, None),
                    Place::Lanes(lanes) => (None, Some(lanes)),
                };
                let start = StreamStart { epoch, shuffle, partition, target, fields, cursor, stopped };
                let sizes = (self.options.batch_size, self.options.prefetch, self.options.threads);
                Reader::Stream(Arc::new(Feed::new(Arc::clone(stream), start, first, lanes, sizes)))
            }
        }
    }

    /// Draws a substitute for the bad sample `index`.
    pub(super) fn substitute(&self, epoch: u64, index: u64, attempt: u32) -> Option<u64> {
        let seed = self.recipes.seed;
        match (&self.bucketed, &self.chosen) {
            (Some(bucketed), _) => bucketed.substitute(seed, epoch, index, attempt),
            (None, Some(chosen)) => chosen.substitute(seed, epoch, index, attempt),
            (None, None) => self.sampler.substitute(epoch, index, attempt),
        }
    }

    pub(super) fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| self.input.fingerprint())
    }

    /// Number of lanes that a rank reads of a whole epoch.
    pub(super) fn lanes_of_a_rank(&self) -> u64 {
        let ranks = self.sampler.own_partition().world_size();
        self.lanes.map_or(1, |lanes| lanes.div_ceil(ranks)).into()
    }

    /// The place at the beginning of an epoch.
    pub(super) fn first_place(&self) -> Place {
        let lanes = |lanes| Place::Lanes(Lanes::at_start(lanes).dealt(self.sampler.own_partition()));
        self.lanes.map_or(Place::Cursor(None), lanes)
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.input, Input::Stream(_))
    }

    /// The positions that valid segments have left of epoch `epoch`. `ranks`: the number of ranks if there are no segments.
    /// The limit is of each rank that the epoch began with.
    pub(super) fn rest(&self, epoch: u64, segments: &[Segment], ranks: u32) -> Remaining {
        // A stream's lanes describe its rest.
        let segments = if self.is_stream() { &[] } else { segments };
        let ranks = segments.first().map_or(ranks, Segment::ranks);
        Remaining::new(self.all_positions_in(epoch).min(self.limit.saturating_mul(ranks.into())), segments)
    }

    /// Number of positions that a partition has of `rest`, padding and an incomplete last batch included. The limit is
    /// also of each rank that shares the rest: the memory of batches is made for it.
    pub(super) fn all_positions_of(&self, partition: Partition, rest: &Remaining) -> u64 {
        self.sampler.partition(partition).positions_of(rest).min(self.limit)
    }

    /// Number of positions that this partition delivers of `rest` from position `first` on.
    pub(super) fn positions(&self, rest: &Remaining, first: u64) -> u64 {
        let left = self.all_positions_of(self.sampler.own_partition(), rest).saturating_sub(first);
        let batch = self.options.batch_size as u64;
        match self.policy.last {
            // Units are full, or dropped.
            _ if self.bucketed.is_some() || self.planned.is_some() => left,
            LastBatch::Drop => left / batch * batch,
            LastBatch::Keep | LastBatch::Pad => left,
        }
    }

    /// Number of positions that epoch `epoch` delivers as a whole.
    pub(super) fn epoch_positions(&self, epoch: u64) -> u64 {
        self.positions(&self.rest(epoch, &[], self.sampler.own_partition().world_size()), 0)
    }

    /// Number of positions of all ranks in an epoch.
    fn all_positions_in(&self, epoch: u64) -> u64 {
        match &self.bucketed {
            // A sampler that fails does so in the epoch.
            Some(bucketed) => bucketed.positions_in(self, epoch).unwrap_or(0),
            None => self.sampler.all(),
        }
    }
}

/// Number of positions in an epoch limited to `limit` samples, padding included.
pub(super) fn all_positions(sampler: &ShardedOrder, limit: u64) -> u64 {
    (sampler.len() + sampler.padding()).min(limit)
}
