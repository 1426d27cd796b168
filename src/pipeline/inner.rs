//! What the builder has settled: all that an epoch needs beside the back end.

use super::cache::Cache;
use super::policy::{LastBatch, Policy};
use super::recipes::Recipes;
use crate::backend::RunOptions;
use crate::mix::Mix;
use crate::sampler::Sampler;
use crate::sampling::Chosen;
use crate::source::stream::Feed;
use crate::source::{Input, Reader, StreamStart};
use crate::targets::TargetSpec;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// What the builder has settled. Of several devices each has its own, which share what is large.
#[derive(Clone)]
pub(super) struct Inner {
    pub(super) input: Input,
    /// Of the input, once it has been asked for.
    pub(super) fingerprint: OnceLock<u64>,
    /// Whether epochs are shuffled.
    pub(super) shuffle: bool,
    /// Which positions of the epoch's order are delivered.
    pub(super) sampler: Sampler,
    /// Which samples are at these positions, where it is not each sample once.
    pub(super) chosen: Option<Arc<Chosen>>,
    /// Most samples an epoch.
    pub(super) limit: u64,
    pub(super) recipes: Arc<Recipes>,
    pub(super) options: Arc<RunOptions>,
    /// What is delivered beside images and labels, if anything.
    pub(super) targets: Option<TargetSpec>,
    /// How batches are mixed, if they are.
    pub(super) mix: Option<Mix>,
    pub(super) policy: Policy,
    /// Decoded images that are kept, if any are to be.
    pub(super) cache: Option<Arc<Cache>>,
}

impl Inner {
    /// Where the samples of an epoch are read, from its position `first` on, which in a stream is at `cursor`.
    pub(super) fn reader(&self, epoch: u64, first: u64, cursor: Option<Vec<u8>>, stopped: &Arc<AtomicBool>) -> Reader {
        match &self.input {
            Input::DataSet(source) => Reader::DataSet(Arc::clone(source)),
            Input::Stream(stream) => {
                let (shuffle, partition) = (self.shuffle.then_some(self.recipes.seed), self.sampler.own_partition());
                let field = self.targets.as_ref().and_then(|targets| targets.field.clone());
                let start = StreamStart { epoch, shuffle, partition, field, cursor, stopped: Arc::clone(stopped) };
                let sizes = (self.options.batch_size, self.options.prefetch, self.options.threads);
                Reader::Stream(Arc::new(Feed::new(Arc::clone(stream), start, first, sizes)))
            }
        }
    }

    /// Draws a substitute for the bad sample `index`.
    pub(super) fn substitute(&self, epoch: u64, index: u64, attempt: u32) -> Option<u64> {
        match &self.chosen {
            Some(chosen) => chosen.substitute(self.recipes.seed, epoch, index, attempt),
            None => self.sampler.substitute(epoch, index, attempt),
        }
    }

    pub(super) fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| self.input.fingerprint())
    }

    /// Positions of an epoch's order, padding included, whatever becomes of a last batch that is not full.
    pub(super) fn all_positions(&self) -> u64 {
        all_positions(&self.sampler, self.limit)
    }

    /// Positions that an epoch delivers from its position `first` on.
    pub(super) fn positions(&self, first: u64) -> u64 {
        let (rest, batch) = (self.all_positions().saturating_sub(first), self.options.batch_size as u64);
        match self.policy.last {
            LastBatch::Drop => rest / batch * batch,
            LastBatch::Keep | LastBatch::Pad => rest,
        }
    }
}

/// Positions of an epoch of so many samples at most, padding included.
pub(super) fn all_positions(sampler: &Sampler, limit: u64) -> u64 {
    (sampler.len() + sampler.padding()).min(limit)
}
