//! The batches of an epoch: the positions of each, and its shape.

use crate::shapes::BatchShape;

/// The batches of an epoch. Positions count from the first one that the epoch delivers.
pub(super) struct Batches {
    batch_size: u64,
    positions: u64,
    /// Number of padding positions among them, at the end unless `shaped`.
    padding: u64,
    /// The batches, if they have shapes of their own.
    shaped: Option<Vec<ShapedBatch>>,
}

/// A batch with a shape of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShapedBatch {
    /// The position after its last one.
    pub(super) end: u64,
    pub(super) shape: BatchShape,
    /// Number of padding positions, at its end.
    pub(super) padding: u64,
}

impl Batches {
    /// Batches of `batch_size` positions, but for the last one. `padding`: number of padding positions at the end.
    pub(super) fn equal(batch_size: usize, positions: u64, padding: u64) -> Self {
        Self { batch_size: batch_size as u64, positions, padding, shaped: None }
    }

    pub(super) fn shaped(batches: Vec<ShapedBatch>) -> Self {
        let positions = batches.last().map_or(0, |last| last.end);
        let padding = batches.iter().map(|batch| batch.padding).sum();
        Self { batch_size: 1, positions, padding, shaped: Some(batches) }
    }

    /// Number of positions.
    pub(super) fn positions(&self) -> u64 {
        self.positions
    }

    /// Number of padding positions among them.
    pub(super) fn padding(&self) -> u64 {
        self.padding
    }

    /// Number of batches.
    pub(super) fn count(&self) -> u64 {
        self.shaped.as_ref().map_or(self.positions.div_ceil(self.batch_size), |batches| batches.len() as u64)
    }

    /// Number of the batches that are complete before `position`, the begun one counted as complete.
    pub(super) fn before(&self, position: u64) -> u64 {
        match &self.shaped {
            None => position.div_ceil(self.batch_size),
            Some(batches) => (batches.partition_point(|batch| batch.end < position) + usize::from(position > 0))
                .min(batches.len()) as u64,
        }
    }

    /// The number of the batch that has `position`.
    pub(super) fn at(&self, position: u64) -> u64 {
        match &self.shaped {
            None => position / self.batch_size,
            Some(batches) => batches.partition_point(|batch| batch.end <= position) as u64,
        }
    }

    /// The first position of batch `number`, or the end.
    pub(super) fn start(&self, number: u64) -> u64 {
        match &self.shaped {
            None => number.saturating_mul(self.batch_size),
            Some(batches) => match number.checked_sub(1) {
                None => 0,
                Some(before) => {
                    usize::try_from(before).ok().and_then(|at| batches.get(at)).map_or(self.positions, |b| b.end)
                }
            },
        }
    }

    /// Number of positions of batch `number`.
    pub(super) fn len(&self, number: u64) -> usize {
        (self.start(number + 1).min(self.positions) - self.start(number).min(self.positions)) as usize
    }

    /// The shape of batch `number`; `None` if all batches have one.
    pub(super) fn shape(&self, number: u64) -> Option<BatchShape> {
        self.batch(number).map(|batch| batch.shape)
    }

    /// Number of padding positions at the end of batch `number`.
    pub(super) fn padding_of(&self, number: u64) -> u64 {
        if self.shaped.is_some() {
            return self.batch(number).map_or(0, |batch| batch.padding);
        }
        let end = self.start(number + 1).min(self.positions);
        end.saturating_sub(self.positions - self.padding).min(end - self.start(number).min(end))
    }

    fn batch(&self, number: u64) -> Option<ShapedBatch> {
        self.shaped.as_ref()?.get(usize::try_from(number).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_batches_belong_together() {
        let shape = BatchShape::SeqLen(8);
        let ends = [(3, 0), (5, 1), (9, 0)];
        let listed = ends.map(|(end, padding)| ShapedBatch { end, shape, padding }).to_vec();
        for batches in [Batches::shaped(listed), Batches::equal(4, 9, 2)] {
            let (mut position, mut padding) = (0, 0);
            for number in 0..batches.count() {
                assert_eq!(batches.start(number), position);
                for _ in 0..batches.len(number) {
                    assert_eq!(batches.at(position), number);
                    position += 1;
                    assert_eq!(batches.before(position), number + 1);
                }
                padding += batches.padding_of(number);
            }
            assert_eq!((position, padding), (batches.positions(), batches.padding()));
            assert_eq!((batches.before(0), batches.len(batches.count())), (0, 0));
        }
        assert_eq!(Batches::equal(4, 9, 2).padding_of(1), 1);
        assert_eq!(Batches::shaped(Vec::new()).count(), 0);
    }
}
