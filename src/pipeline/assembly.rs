//! Assembly of batches from the results of their positions.

use super::policy::Losses;
use super::recipes::Drawn;
use crate::backend::{AnyBatch, MasksOfView};
use crate::error::{Error, Result};
use crate::fields::{BatchFields, Fields};
use crate::mix::Mixed;
use crate::raster::Size;
use crate::targets::Annotation;
use crate::tensor::{Targets, Tensor};
use std::sync::{Arc, OnceLock};

/// A batch of the back end. The first worker that needs it begins it. The inner `None` means that this failed; the slot
/// of that worker has the error.
pub(super) type Begun = OnceLock<Option<AnyBatch>>;

/// A batch that is being filled, or is ready.
pub(super) struct Filling {
    /// The back end's batch that samples are written to. The thread that makes the batch takes it.
    pub(super) storage: Option<Arc<Begun>>,
    pub(super) slots: Vec<Slot>,
    /// Number of positions in the batch.
    pub(super) positions: usize,
    /// Number of positions that are not finished.
    pub(super) remaining: usize,
    pub(super) made: Option<Result<Made>>,
}

impl Filling {
    pub(super) fn new(positions: usize) -> Self {
        let slots = (0..positions).map(|_| Slot::Pending).collect();
        Self { storage: Some(Arc::default()), slots, positions, remaining: positions, made: None }
    }

    /// Takes the back end's batch, if it was begun and no thread works on it any more.
    pub(super) fn take_batch(&mut self) -> Option<AnyBatch> {
        Arc::into_inner(self.storage.take()?).and_then(OnceLock::into_inner).flatten()
    }
}

/// The fields of each image of a sample, and the image's size; empty if batches have no fields.
pub(super) type MovedFields = Vec<(Fields, Size)>;

/// Result of one position of a batch.
pub(super) enum Slot {
    Pending,
    Done {
        drawn: Drawn,
        annotation: Annotation,
        moved: MovedFields,
        /// The error of the bad sample that this one substitutes.
        instead_of: Option<Box<Error>>,
    },
    Skipped(Box<Error>),
    /// The stream has ended before this position.
    Ended,
    Failed(Box<Error>),
    /// The batch could not be begun; the slot of another position has the error.
    Unbegun,
}

/// A batch and its bad samples.
pub(super) struct Made {
    /// `None` if every sample was skipped.
    pub(super) parts: Option<Parts>,
    pub(super) losses: Losses,
}

/// The parts of a batch.
pub(super) struct Parts {
    /// A tensor for each view, or for each image if images differ in size.
    pub(super) images: Vec<Tensor>,
    /// The size of each image; empty if images have one size.
    pub(super) sizes: Vec<Size>,
    /// `None` if samples have no labels.
    pub(super) labels: Option<Vec<u32>>,
    pub(super) drawn: Vec<Drawn>,
    /// The annotations that recipes were drawn by; empty if recipes do not depend on them.
    pub(super) seen: Vec<Annotation>,
    pub(super) targets: Option<Targets>,
    /// The fields of each view; empty if batches have none.
    pub(super) fields: Vec<BatchFields>,
    pub(super) mixed: Option<Mixed>,
    pub(super) padding: usize,
}

/// The samples of a batch that are delivered, in order.
#[derive(Default)]
pub(super) struct Delivered {
    pub(super) places: Vec<usize>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) drawn: Vec<Drawn>,
    /// Empty if batches have no fields.
    pub(super) moved: Vec<MovedFields>,
    pub(super) losses: Losses,
    /// Whether the stream ended in this batch.
    pub(super) ended: bool,
}

/// Collects the results of a batch's positions.
///
/// # Errors
/// The error of the first position that failed.
pub(super) fn deliver(slots: Vec<Slot>) -> Result<Delivered> {
    let mut all = Delivered::default();
    for (place, slot) in slots.into_iter().enumerate() {
        match slot {
            Slot::Done { drawn, annotation, moved, instead_of } => {
                if let Some(error) = instead_of {
                    all.losses.add(error);
                }
                all.places.push(place);
                all.annotations.push(annotation);
                all.drawn.push(drawn);
                if !moved.is_empty() {
                    all.moved.push(moved);
                }
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

/// The fields of each view, from those of each sample; empty if there are none. `times`: the number of images that each
/// view has of a sample. `masks`: those of each view that the back end has moved, of the fields with these names.
pub(super) fn fields_of_views(
    moved: &[MovedFields],
    times: impl Iterator<Item = usize>,
    names: &Arc<[String]>,
    masks: Vec<MasksOfView>,
) -> Vec<BatchFields> {
    if moved.is_empty() {
        return Vec::new();
    }
    let mut first = 0;
    let view = |times: usize| {
        let images = first..first + times;
        first += times;
        // All first images of the view come before all second ones.
        let of_image = |i: usize| moved.iter().filter_map(move |sample| sample.get(i).cloned());
        BatchFields::new(images.flat_map(of_image).collect())
    };
    let mut masks = masks.into_iter();
    let with_masks = |fields: BatchFields| match masks.next() {
        Some(masks) => fields.with_masks(names, masks),
        None => fields,
    };
    times.map(view).map(with_masks).collect()
}
