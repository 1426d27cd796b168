//! Epochs whose batches have shapes by their places: sizes that change over time, and lengths of sequences.

use super::batches::{Batches, ShapedBatch};
use crate::backend::Largest;
use crate::error::{Error, Result};
use crate::hex::hex;
use crate::raster::Size;
use crate::shapes::{BatchShape, SequenceBatch, SequencePlan, SizeSchedule, TokenBudget};
use sha2::{Digest, Sha256};

/// The shapes of the batches of an epoch, the same on all ranks.
pub(super) struct Planned {
    kind: Kind,
    seed: u64,
    batch_size: usize,
    /// Number of pixels in a batch, if smaller images come in larger batches.
    budget_px: Option<u64>,
    /// Whether a last batch that is not full is left out.
    drops_last: bool,
}

enum Kind {
    Sizes(SizeSchedule),
    Sequences(SequencePlan),
}

impl Planned {
    /// Sizes that change over time.
    pub(super) fn sizes(schedule: SizeSchedule, seed: u64, batch_size: usize, drops_last: bool) -> Self {
        let budget_px = schedule.pixel_budget();
        Self { kind: Kind::Sizes(schedule), seed, batch_size, budget_px, drops_last }
    }

    /// Sequences with a budget of tokens.
    ///
    /// # Errors
    /// The errors of [`SequencePlan::new`].
    pub(super) fn sequences(
        budget: &TokenBudget,
        seed: u64,
        samples: u64,
        ranks: u32,
        drops_last: bool,
    ) -> Result<Self> {
        let plan = SequencePlan::new(seed, samples, ranks.into(), budget)?;
        let most = plan.epoch(0).iter().map(|batch| batch.batch_size).max().unwrap_or(1);
        let batch_size = usize::try_from(most).ok().filter(|most| *most <= 1 << 20).ok_or_else(|| {
            Error::parameter("pipeline", "sequences", "a budget for batches of at most 1048576 images", most)
        })?;
        Ok(Self { kind: Kind::Sequences(plan), seed, batch_size, budget_px: None, drops_last })
    }

    /// The most images in a batch.
    pub(super) fn most_images(&self) -> usize {
        match &self.kind {
            Kind::Sizes(schedule) => schedule.sizes().iter().map(|size| self.images(*size)).max().unwrap_or(1) as usize,
            Kind::Sequences(_) => self.batch_size,
        }
    }

    /// Number of images of a size in a batch.
    fn images(&self, size: Size) -> u64 {
        self.budget_px.map_or(self.batch_size as u64, |budget| SizeSchedule::batch_size(size, budget, 1))
    }

    /// What states compare: everything that decides about the batches.
    pub(super) fn name(&self) -> String {
        let of = match &self.kind {
            Kind::Sizes(schedule) => format!("{schedule:?}"),
            Kind::Sequences(plan) => format!("{plan:?}"),
        };
        hex(&Sha256::digest(format!("{of} {} {}", self.batch_size, self.drops_last))[..8])
    }

    /// The largest batches, if batches have sizes.
    pub(super) fn most(&self) -> Option<Largest> {
        let Kind::Sizes(schedule) = &self.kind else { return None };
        let size = schedule.sizes().iter().copied().max_by_key(|size| size.area_px()).unwrap_or(Size::new(1, 1));
        let batch_px = schedule.sizes().iter().map(|size| size.area_px().saturating_mul(self.images(*size))).max();
        Some(Largest { size, batch_px: batch_px.unwrap_or(1) })
    }

    /// Shape and length of the batches of an epoch, without end if the last one repeats itself.
    fn all(&self, epoch: u64) -> Box<dyn Iterator<Item = (BatchShape, u64)> + '_> {
        match &self.kind {
            Kind::Sizes(schedule) => Box::new((0..).map(move |step| {
                let size = schedule.size(self.seed, epoch, step);
                (BatchShape::Size(size), self.images(size))
            })),
            Kind::Sequences(plan) => {
                let batches = plan.epoch(epoch);
                let last = batches.last().copied();
                let of = |batch: SequenceBatch| (BatchShape::SeqLen(batch.seq_len), batch.batch_size);
                Box::new(batches.into_iter().map(of).chain(last.into_iter().cycle().map(of)))
            }
        }
    }

    /// Number of batches of every epoch of `positions` positions; `None` if it differs from epoch to epoch.
    pub(super) fn count(&self, positions: u64) -> Option<u64> {
        self.budget_px.is_none().then(|| self.batches(0, 0, positions, 0).0.count())
    }

    /// The batches of `positions` positions from position `first` on, and the number of batches before them. The last
    /// `padding` positions are padding.
    pub(super) fn batches(&self, epoch: u64, first: u64, positions: u64, padding: u64) -> (Batches, u64) {
        let (mut batches, mut start, mut before) = (Vec::new(), 0_u64, 0);
        let end = first + positions;
        for (shape, len) in self.all(epoch) {
            if start >= end {
                break;
            }
            let (from, to) = (start.max(first), (start + len).min(end));
            start += len;
            if to <= first {
                before += 1;
                continue;
            }
            if self.drops_last && to - (start - len) < len {
                break;
            }
            let padding = to.saturating_sub(end - padding).min(to - from);
            batches.push(ShapedBatch { end: to - first, shape, padding });
        }
        (Batches::shaped(batches), before)
    }
}
