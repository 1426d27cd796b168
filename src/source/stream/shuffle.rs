//! Adapters that shuffle a stream or take one rank's samples.

use super::extent::{Extent, InOrder, Located, put, take, take_count};
use super::{Samples, StreamFields, StreamSample};
use crate::error::Result;
use crate::order::Partition;
use crate::rng::{Domain, SampleRng};
use crate::targets::Target;

/// Samples in the stream's order.
pub(super) struct Unshuffled(pub Box<dyn InOrder>);

impl Samples for Unshuffled {
    fn next(&mut self) -> Result<Option<StreamSample>> {
        self.0.next()?.map(|located| located.sample).transpose()
    }

    fn cursor(&self) -> Option<Vec<u8>> {
        let mut cursor = Vec::new();
        self.0.write(&[], &mut cursor)?;
        Some(cursor)
    }
}

/// Draws samples one by one from a window. The next sample of the stream takes the place of each drawn one.
///
/// The window is full at `window` samples or [`WINDOW_BYTES`], whichever comes first, so the order depends only on the
/// seed and the stream.
pub(super) struct Shuffled {
    samples: Box<dyn InOrder>,
    window: usize,
    held: Vec<Held>,
    held_bytes: u64,
    came_in: u64,
    ended: bool,
    draw: SampleRng,
    origin: u64,
    /// The window's samples when resuming, by number and extent, until they have been read again.
    stood: Vec<(u64, Extent)>,
}

/// A sample in the window.
struct Held {
    /// The sample's number in the stream.
    origin: u64,
    located: Located,
}

/// Encoded bytes at which a window is full. One more sample may exceed it.
pub(super) const WINDOW_BYTES: u64 = 256 << 20;

impl Shuffled {
    /// Creates a window. Each `rank` has its own draws.
    pub fn new(samples: Box<dyn InOrder>, window: usize, seed: u64, epoch: u64, rank: u32) -> Self {
        let draw = SampleRng::new(seed, epoch, Domain::Window, rank.into());
        let (held, stood) = (Vec::new(), Vec::new());
        Self { samples, window, held, held_bytes: 0, came_in: 0, ended: false, draw, origin: 0, stood }
    }

    /// Moves to a cursor, before the first sample. `None` if the cursor is damaged.
    pub fn go_on(&mut self, cursor: &mut &[u8]) -> Option<()> {
        self.came_in = take_count(cursor)?;
        // A window is not full after it has returned a sample.
        let held = take_count(cursor).filter(|&held| held < self.window as u64)?;
        // One draw was made for each sample that left the window.
        self.draw.skip(self.came_in.checked_sub(held)?);
        for _ in 0..held {
            let origin = self.came_in.checked_sub(take_count(cursor)?)?;
            let (turn, start) = (take(cursor)?.try_into().ok()?, take_count(cursor)?);
            self.stood.push((origin, Extent { turn, start, end: start + take_count(cursor)? }));
        }
        self.samples.go_on(cursor)
    }

    fn hold(&mut self, origin: u64, located: Located) {
        self.held_bytes += bytes(&located);
        self.held.push(Held { origin, located });
    }
}

fn bytes(located: &Located) -> u64 {
    located.sample.as_ref().map_or(0, |StreamSample { bytes, target, fields, .. }| {
        let fields_bytes = fields.as_ref().map_or(0, StreamFields::len_bytes);
        bytes.len() as u64 + target.as_ref().map_or(0, Target::len_bytes) + fields_bytes
    })
}

impl Samples for Shuffled {
    fn next(&mut self) -> Result<Option<StreamSample>> {
        if !self.stood.is_empty() {
            let stood = std::mem::take(&mut self.stood);
            let extents: Vec<Extent> = stood.iter().map(|&(_, extent)| extent).collect();
            for ((origin, extent), sample) in stood.into_iter().zip(self.samples.reread(&extents)?) {
                self.hold(origin, Located { extent, sample });
            }
        }
        while !self.ended && self.held.len() < self.window && self.held_bytes < WINDOW_BYTES {
            // Bad samples enter the window like others. Other errors end the stream at once.
            let Some(located) = self.samples.next()? else {
                self.ended = true;
                break;
            };
            self.hold(self.came_in, located);
            self.came_in += 1;
        }
        if self.held.is_empty() {
            return Ok(None);
        }
        let Held { origin, located } = self.held.swap_remove(self.draw.below(self.held.len() as u64) as usize);
        self.held_bytes -= bytes(&located);
        self.origin = origin;
        located.sample.map(Some)
    }

    fn origin(&self) -> Option<u64> {
        Some(self.origin)
    }

    fn cursor(&self) -> Option<Vec<u8>> {
        let mut cursor = Vec::with_capacity(16 * self.held.len());
        put(&mut cursor, self.came_in);
        put(&mut cursor, self.held.len() as u64);
        for Held { origin, located: Located { extent: Extent { turn, start, end }, .. } } in &self.held {
            for number in [self.came_in - origin, (*turn).into(), *start, end - start] {
                put(&mut cursor, number);
            }
        }
        let mut turns: Vec<u32> = self.held.iter().map(|held| held.located.extent.turn).collect();
        turns.sort_unstable();
        turns.dedup();
        self.samples.write(&turns, &mut cursor)?;
        Some(cursor)
    }
}

/// Every n-th sample of a stream, for one rank if there are fewer shards than ranks.
pub(super) struct Strided {
    pub samples: Box<dyn InOrder>,
    pub part: Partition,
    pub at: u64,
}

impl InOrder for Strided {
    fn next(&mut self) -> Result<Option<Located>> {
        loop {
            let located = self.samples.next()?;
            let own = self.at % u64::from(self.part.world_size()) == u64::from(self.part.rank());
            self.at += 1;
            if located.is_none() || own {
                return Ok(located);
            }
        }
    }

    fn reread(&mut self, extents: &[Extent]) -> Result<Vec<Result<StreamSample>>> {
        self.samples.reread(extents)
    }

    fn write(&self, turns: &[u32], cursor: &mut Vec<u8>) -> Option<()> {
        put(cursor, self.at);
        self.samples.write(turns, cursor)
    }

    fn go_on(&mut self, cursor: &mut &[u8]) -> Option<()> {
        self.at = take_count(cursor)?;
        self.samples.go_on(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    struct Numbers(std::ops::Range<u64>);

    fn sample(n: u64) -> Result<StreamSample> {
        if n == 7 {
            return Err(Error::decode("image", "seven"));
        }
        Ok(StreamSample { bytes: vec![0; 10], label: Some(n as u32), name: n.to_string(), target: None, fields: None })
    }

    impl InOrder for Numbers {
        fn next(&mut self) -> Result<Option<Located>> {
            match self.0.next() {
                Some(90) => Err(Error::Stream { shard: "numbers".into(), offset: 90, message: "broken".into() }),
                number => Ok(number.map(|n| Located {
                    extent: Extent { turn: n as u32 / 10, start: n, end: n + 1 },
                    sample: sample(n),
                })),
            }
        }

        fn reread(&mut self, extents: &[Extent]) -> Result<Vec<Result<StreamSample>>> {
            Ok(extents.iter().map(|extent| sample(extent.start)).collect())
        }

        fn write(&self, turns: &[u32], cursor: &mut Vec<u8>) -> Option<()> {
            assert!(turns.is_sorted());
            put(cursor, self.0.start);
            Some(())
        }

        fn go_on(&mut self, cursor: &mut &[u8]) -> Option<()> {
            self.0.start = take(cursor)?;
            cursor.is_empty().then_some(())
        }
    }

    /// Returns all labels; 1000 stands for a bad sample, 2000 for an error that ends the stream.
    fn all(mut samples: impl Samples) -> Vec<u32> {
        let mut all = Vec::new();
        loop {
            match samples.next() {
                Ok(Some(sample)) => all.extend(sample.label),
                Ok(None) => return all,
                Err(error) if error.is_bad_sample() => all.push(1000),
                Err(_) => {
                    all.push(2000);
                    return all;
                }
            }
        }
    }

    fn shuffled(len: u64, window: usize, seed: u64) -> Shuffled {
        Shuffled::new(Box::new(Numbers(0..len)), window, seed, 3, 0)
    }

    #[test]
    fn a_window_keeps_all_and_moves_them_as_far_as_it_reaches() {
        let order = all(shuffled(60, 10, 1));
        assert_eq!(order, all(shuffled(60, 10, 1)));
        assert!(order != all(shuffled(60, 10, 2)) && order != all(shuffled(60, 11, 1)));
        // No sample comes earlier by more than the window.
        assert!(order.iter().enumerate().all(|(at, &number)| number == 1000 || number < at as u32 + 10));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..60).filter(|&n| n != 7).chain([1000]).collect::<Vec<_>>());
        assert_eq!(all(shuffled(6, 1, 1)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(all(shuffled(0, 10, 1)), [0; 0]);
        let mut samples = shuffled(60, 10, 1);
        for number in order {
            assert!(samples.next().is_err() || samples.origin() == Some(number.into()));
        }
    }

    /// This order is a promise, like those of the sampler. Never change it.
    #[test]
    fn golden_order() {
        assert_eq!(all(shuffled(7, 4, 42)), GOLDEN);
    }

    const GOLDEN: [u32; 7] = [1, 4, 0, 2, 5, 3, 6];

    #[test]
    fn a_window_goes_on_as_it_stood() {
        let whole = all(shuffled(60, 10, 1));
        let mut samples = shuffled(60, 10, 1);
        for given in 1..=60 {
            assert!(samples.next().is_ok_and(|sample| sample.is_some()) || whole[given - 1] == 1000);
            let cursor = samples.cursor().unwrap();
            let mut rest = shuffled(60, 10, 1);
            rest.go_on(&mut &cursor[..]).unwrap();
            assert_eq!(all(rest), whole[given..], "after {given}");
            for len in 0..cursor.len() {
                assert!(shuffled(60, 10, 1).go_on(&mut &cursor[..len]).is_none());
            }
        }
    }

    #[test]
    fn what_ends_a_stream_passes_by_the_window_and_the_stride() {
        let order = all(shuffled(100, 10, 1));
        assert_eq!((order.len(), order.last()), (82, Some(&2000)));
        let part = |index| {
            all(Unshuffled(Box::new(Strided {
                samples: Box::new(Numbers(0..100)),
                part: Partition::new(index, 4).unwrap(),
                at: 0,
            })))
        };
        assert_eq!(part(3)[..3], [3, 1000, 11]);
        for index in 0..4 {
            assert_eq!(part(index).last(), Some(&2000));
        }
    }
}
