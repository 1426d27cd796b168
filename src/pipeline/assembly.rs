//! Batches from samples: what became of each position, and the batch that is made of them.

use super::policy::Losses;
use crate::backend::AnyBatch;
use crate::error::{Error, Result};
use crate::mix::Mixed;
use crate::rng::Pick;
use crate::targets::Row;
use crate::tensor::{Targets, Tensor};
use std::sync::{Arc, OnceLock};

/// A batch of a back end, which the first worker to need it begins; `None` inside if that failed, which this worker's
/// slot says.
pub(super) type Begun = OnceLock<Option<AnyBatch>>;

/// A batch being filled, or ready.
pub(super) struct Filling {
    /// Where its samples go; taken by whoever makes the batch of them.
    pub(super) storage: Option<Arc<Begun>>,
    pub(super) slots: Vec<Slot>,
    /// How many positions it has.
    pub(super) positions: usize,
    /// How many of them are not finished.
    pub(super) remaining: usize,
    pub(super) made: Option<Result<Made>>,
}

impl Filling {
    pub(super) fn new(positions: usize) -> Self {
        let slots = (0..positions).map(|_| Slot::Pending).collect();
        Self { storage: Some(Arc::default()), slots, positions, remaining: positions, made: None }
    }

    /// The back end's batch, if it was begun and nobody is at work on it any more.
    pub(super) fn take_batch(&mut self) -> Option<AnyBatch> {
        Arc::into_inner(self.storage.take()?).and_then(OnceLock::into_inner).flatten()
    }
}

/// What became of one position of a batch.
pub(super) enum Slot {
    Pending,
    Done {
        pick: Pick,
        label: u32,
        /// If targets were asked for.
        target: Option<Row>,
        /// What was wrong with the sample whose place it takes.
        instead_of: Option<Box<Error>>,
    },
    Skipped(Box<Error>),
    /// The stream has ended before it.
    Ended,
    Failed(Box<Error>),
    /// The batch could not be begun, which another of its positions says.
    Unbegun,
}

/// What a batch's positions have become.
pub(super) struct Made {
    /// `None` if every sample was skipped.
    pub(super) parts: Option<Parts>,
    pub(super) losses: Losses,
}

/// What a batch consists of.
pub(super) struct Parts {
    pub(super) images: Tensor,
    /// The views after the first; or the images after the first, where each has a size of its own.
    pub(super) others: Vec<Tensor>,
    pub(super) labels: Vec<u32>,
    pub(super) indices: Vec<u64>,
    pub(super) targets: Option<Targets>,
    pub(super) mixed: Option<Mixed>,
    pub(super) padding: usize,
}

/// The samples of a batch that are delivered, in order.
#[derive(Default)]
pub(super) struct Delivered {
    pub(super) places: Vec<usize>,
    pub(super) labels: Vec<u32>,
    pub(super) indices: Vec<u64>,
    /// As many, if targets were asked for.
    pub(super) targets: Vec<Row>,
    pub(super) losses: Losses,
    /// Whether the stream ended in this batch.
    pub(super) ended: bool,
}

/// Sorts out what became of a batch's positions.
///
/// # Errors
/// That of the first position that failed.
pub(super) fn deliver(slots: Vec<Slot>) -> Result<Delivered> {
    let mut all = Delivered::default();
    for (place, slot) in slots.into_iter().enumerate() {
        match slot {
            Slot::Done { pick, label, target, instead_of } => {
                if let Some(error) = instead_of {
                    all.losses.add(error);
                }
                all.places.push(place);
                all.labels.push(label);
                all.indices.push(pick.index);
                all.targets.extend(target);
            }
            Slot::Skipped(error) => {
                all.losses.leading += u64::from(all.places.is_empty());
                all.losses.add(error);
            }
            Slot::Failed(error) => return Err(*error),
            Slot::Ended => all.ended = true,
            Slot::Pending | Slot::Unbegun => {}
        }
    }
    Ok(all)
}
