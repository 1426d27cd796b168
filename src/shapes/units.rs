//! The order of an epoch in units: runs of positions whose samples have one shape.
//!
//! Positions are dealt to ranks in turn, so if each run of world size x batch size positions has one shape, the ranks'
//! batches of a step have equal shapes, and the ranks have equal numbers of batches, without a word between them.

use crate::rng::SampleRng;

/// What becomes of the samples of a shape that do not fill a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remainder {
    /// They are left out.
    Dropped,
    /// They are a shorter unit. The first of them are repeated up to a multiple of the number of ranks.
    Kept,
    /// They are a unit that the shape's first samples fill up.
    Padded,
}

/// Positions of an epoch whose samples have one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The position after its last one.
    pub(crate) end: u64,
    /// The number of the shape.
    pub(crate) shape: u16,
    /// Number of positions at its end that repeat samples.
    pub(crate) padding: u64,
}

/// Samples by position, and the units that they make.
#[derive(Debug, Clone)]
pub(crate) struct Units<T> {
    pub(crate) samples: Vec<T>,
    pub(crate) units: Vec<Unit>,
}

/// How a shape's samples become units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// Number of positions in a unit.
    pub(crate) unit: u64,
    /// Number of ranks.
    pub(crate) ranks: u64,
    pub(crate) remainder: Remainder,
}

impl Cut {
    /// Number of units of `samples` samples, of positions in the last one, and of those of them that repeat samples.
    pub(crate) fn of(self, samples: u64) -> (u64, u64, u64) {
        let (full, rest) = (samples / self.unit, samples % self.unit);
        if rest == 0 {
            return (full, self.unit, 0);
        }
        let last = match self.remainder {
            Remainder::Dropped => return (full, self.unit, 0),
            Remainder::Kept => rest.next_multiple_of(self.ranks),
            Remainder::Padded => self.unit,
        };
        (full + 1, last, last - rest)
    }

    /// Number of samples of `samples` that no unit has.
    pub(crate) fn dropped(self, samples: u64) -> u64 {
        if self.remainder == Remainder::Dropped { samples % self.unit } else { 0 }
    }
}

impl<T: Copy> Units<T> {
    /// Parts samples by shape, keeping their order, cuts each part into units, and shuffles the units. `order`: the
    /// samples with the numbers of their shapes. `cuts`: one for each shape. `weights`: what a position of each shape
    /// costs; a unit that costs most comes first, so that a trainer meets its largest batch at once. Without `shuffle`
    /// units come as they are completed.
    pub(crate) fn new(
        order: impl Iterator<Item = (T, u16)>,
        cuts: &[Cut],
        weights: &[u64],
        shuffle: Option<&mut SampleRng>,
    ) -> Self {
        let mut parts: Vec<Vec<T>> = cuts.iter().map(|_| Vec::new()).collect();
        // Where the unit of a shape is completed, for an order that is not shuffled.
        let mut completed: Vec<(u64, u16, u64)> = Vec::new();
        let mut position = 0;
        for (sample, shape) in order {
            let part = &mut parts[usize::from(shape)];
            part.push(sample);
            position += 1;
            let unit = cuts[usize::from(shape)].unit;
            if (part.len() as u64).is_multiple_of(unit) {
                completed.push((position, shape, part.len() as u64 / unit - 1));
            }
        }
        for (shape, (part, cut)) in (0..).zip(parts.iter().zip(cuts)) {
            let (units, ..) = cut.of(part.len() as u64);
            if units > part.len() as u64 / cut.unit {
                completed.push((position + 1 + u64::from(shape), shape, units - 1));
            }
        }
        if let Some(rng) = shuffle {
            rng.shuffle(&mut completed);
            let cost = |&(_, shape, number): &(u64, u16, u64)| {
                let (cut, samples) = (cuts[usize::from(shape)], parts[usize::from(shape)].len() as u64);
                let (units, last, _) = cut.of(samples);
                weights[usize::from(shape)].saturating_mul(if number + 1 == units { last } else { cut.unit })
            };
            let most = completed.iter().map(cost).max();
            if let Some(first) = completed.iter().position(|unit| Some(cost(unit)) == most) {
                completed.swap(0, first);
            }
        }
        let (mut samples, mut units) = (Vec::with_capacity(position as usize), Vec::with_capacity(completed.len()));
        for (_, shape, number) in completed {
            let (cut, part) = (cuts[usize::from(shape)], &parts[usize::from(shape)]);
            let first = (number * cut.unit) as usize;
            let own = &part[first..part.len().min(first + cut.unit as usize)];
            samples.extend_from_slice(own);
            let (of_all, last, padding) = cut.of(part.len() as u64);
            let is_last = number + 1 == of_all;
            let padding = if is_last { padding } else { 0 };
            debug_assert!(!is_last || own.len() as u64 + padding == last);
            samples.extend(part.iter().cycle().take(padding as usize));
            units.push(Unit { end: samples.len() as u64, shape, padding });
        }
        Self { samples, units }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Domain;

    fn cut(unit: u64, ranks: u64, remainder: Remainder) -> Cut {
        Cut { unit, ranks, remainder }
    }

    #[test]
    fn rests_are_dropped_kept_or_padded() {
        assert_eq!(cut(8, 4, Remainder::Dropped).of(19), (2, 8, 0));
        assert_eq!(cut(8, 4, Remainder::Dropped).dropped(19), 3);
        assert_eq!(cut(8, 4, Remainder::Kept).of(19), (3, 4, 1));
        assert_eq!(cut(8, 4, Remainder::Padded).of(19), (3, 8, 5));
        assert_eq!(cut(8, 4, Remainder::Padded).of(16), (2, 8, 0));
        assert_eq!(cut(8, 4, Remainder::Kept).of(0), (0, 8, 0));
    }

    #[test]
    fn each_sample_comes_once_and_units_have_one_shape() {
        let mut draw = SampleRng::new(3, 0, Domain::Order, 0);
        for case in 0..300 {
            let (len, shapes) = (draw.below(200), 1 + draw.below(6) as usize);
            let order: Vec<(u32, u16)> =
                (0..len as u32).map(|sample| (sample, draw.below(shapes as u64) as u16)).collect();
            let ranks = 1 + draw.below(4);
            let remainder = [Remainder::Dropped, Remainder::Kept, Remainder::Padded][case % 3];
            let cuts: Vec<Cut> = (0..shapes).map(|_| cut(ranks * (1 + draw.below(5)), ranks, remainder)).collect();
            let weights: Vec<u64> = (0..shapes as u64).map(|shape| 5 + shape).collect();
            let mut rng = SampleRng::new(7, case as u64, Domain::Units, 0);
            let shuffle = (case % 2 == 0).then_some(&mut rng);
            let made = Units::new(order.iter().copied(), &cuts, &weights, shuffle);
            let (mut first, mut seen) = (0, vec![0; len as usize]);
            for unit in &made.units {
                let samples = &made.samples[first..unit.end as usize];
                assert_eq!(samples.len() as u64 % ranks, 0, "every rank has as many");
                assert!(samples.len() as u64 <= cuts[usize::from(unit.shape)].unit);
                for &sample in samples {
                    assert_eq!(order[sample as usize].1, unit.shape);
                }
                let own = samples.len() - unit.padding as usize;
                samples[..own].iter().for_each(|&sample| seen[sample as usize] += 1);
                first = unit.end as usize;
            }
            assert_eq!(first, made.samples.len());
            let lost = seen.iter().filter(|&&n| n == 0).count() as u64;
            let count = |shape: u16| order.iter().filter(|(_, of)| *of == shape).count() as u64;
            let expected: u64 = (0..).zip(&cuts).map(|(shape, cut)| cut.dropped(count(shape))).sum();
            assert!(seen.iter().all(|&n| n <= 1) && lost == expected, "{seen:?}");
            if case % 2 == 0
                && let Some(unit) = made.units.first()
            {
                let (mut start, mut most) = (0, 0);
                for unit in &made.units {
                    most = most.max((unit.end - start) * weights[usize::from(unit.shape)]);
                    start = unit.end;
                }
                assert_eq!(unit.end * weights[usize::from(unit.shape)], most, "the largest comes first");
            }
        }
    }
}
