//! What changes the order of a stream, or leaves out what is another rank's.

use super::{Samples, StreamSample};
use crate::error::Result;
use crate::recipe::draw::{Domain, Draw};
use crate::sampler::Shard;

/// The samples that stand in a window are drawn one by one, each making room for the next of the stream.
///
/// The window is full at `window` samples or [`WINDOW_BYTES`], whichever comes first, so what it makes of a stream
/// depends on the seed and the stream alone.
pub(super) struct Shuffled {
    samples: Box<dyn Samples>,
    window: usize,
    /// Each with its number in the stream.
    held: Vec<(u64, Result<StreamSample>)>,
    held_bytes: u64,
    came_in: u64,
    ended: bool,
    draw: Draw,
    origin: u64,
}

/// Encoded bytes in a window at which it counts as full. A sample more may stand in it.
pub(super) const WINDOW_BYTES: u64 = 256 << 20;

impl Shuffled {
    /// `rank` has draws of its own.
    pub fn new(samples: Box<dyn Samples>, window: usize, seed: u64, epoch: u64, rank: u32) -> Self {
        let draw = Draw::new(seed, epoch, Domain::Window, rank.into());
        Self { samples, window, held: Vec::new(), held_bytes: 0, came_in: 0, ended: false, draw, origin: 0 }
    }
}

fn bytes(sample: &Result<StreamSample>) -> u64 {
    sample.as_ref().map_or(0, |sample| sample.bytes.len() as u64)
}

impl Samples for Shuffled {
    fn next(&mut self) -> Result<Option<StreamSample>> {
        while !self.ended && self.held.len() < self.window && self.held_bytes < WINDOW_BYTES {
            let sample = match self.samples.next() {
                Ok(None) => {
                    self.ended = true;
                    break;
                }
                Ok(Some(sample)) => Ok(sample),
                // Bad samples stand in line as others do; what ends the stream ends it now.
                Err(error) if error.is_bad_sample() => Err(error),
                Err(error) => return Err(error),
            };
            self.held_bytes += bytes(&sample);
            self.held.push((self.came_in, sample));
            self.came_in += 1;
        }
        if self.held.is_empty() {
            return Ok(None);
        }
        let (origin, sample) = self.held.swap_remove(self.draw.below(self.held.len() as u64) as usize);
        self.held_bytes -= bytes(&sample);
        self.origin = origin;
        sample.map(Some)
    }

    fn origin(&self) -> Option<u64> {
        Some(self.origin)
    }
}

/// Every n-th sample of a stream: one rank's, where there are fewer shards than ranks.
pub(super) struct Strided {
    pub samples: Box<dyn Samples>,
    pub part: Shard,
    pub at: u64,
}

impl Samples for Strided {
    fn next(&mut self) -> Result<Option<StreamSample>> {
        loop {
            let sample = self.samples.next();
            let ends = match &sample {
                Ok(sample) => sample.is_none(),
                Err(error) => !error.is_bad_sample(),
            };
            let own = self.at % u64::from(self.part.count()) == u64::from(self.part.index());
            self.at += 1;
            if ends || own {
                return sample;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    struct Numbers(std::ops::Range<u64>);

    impl Samples for Numbers {
        fn next(&mut self) -> Result<Option<StreamSample>> {
            match self.0.next() {
                Some(7) => Err(Error::decode("picture", "seven")),
                Some(90) => Err(Error::Stream { shard: "numbers".into(), offset: 90, message: "broken".into() }),
                number => Ok(number.map(|n| StreamSample { bytes: vec![0; 10], label: n as u32, name: n.to_string() })),
            }
        }
    }

    /// What comes, bad samples as 1000, what ends a stream as 2000.
    fn all(mut samples: impl Samples) -> Vec<u32> {
        let mut all = Vec::new();
        loop {
            match samples.next() {
                Ok(Some(sample)) => all.push(sample.label),
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
        // Nothing comes more than a window too early.
        assert!(order.iter().enumerate().all(|(place, &number)| number == 1000 || number < place as u32 + 10));
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

    /// This order is a promise, as the sampler's are. Never change it.
    #[test]
    fn golden_order() {
        assert_eq!(all(shuffled(7, 4, 42)), GOLDEN);
    }

    const GOLDEN: [u32; 7] = [1, 4, 0, 2, 5, 3, 6];

    #[test]
    fn what_ends_a_stream_passes_by_the_window_and_the_stride() {
        let order = all(shuffled(100, 10, 1));
        assert_eq!((order.len(), order.last()), (82, Some(&2000)));
        let part =
            |index| all(Strided { samples: Box::new(Numbers(0..100)), part: Shard::new(index, 4).unwrap(), at: 0 });
        assert_eq!(part(3)[..3], [3, 1000, 11]);
        for index in 0..4 {
            assert_eq!(part(index).last(), Some(&2000));
        }
    }
}
