//! All random numbers, the same in every version.
//!
//! A [`SampleRng`] is the keystream of ChaCha with 8 rounds (64-bit block counter, 64-bit nonce, as in Bernstein's
//! paper). The key has 32 bytes, and all numbers in it are little endian:
//!
//! | bytes | content |
//! | --- | --- |
//! | 0-7 | seed |
//! | 8-11 | epoch, lower half |
//! | 12-15 | epoch, upper half, XOR the number of the sample's earlier occurrences in this epoch |
//! | 16-23 | [`Domain`] tag, XOR the hash of the transform's name where transforms have names |
//! | 24-27 | `warp` XOR repetition of the view |
//! | 28-31 | `feed` XOR number of the view |
//!
//! The nonce is the sample's index (0 without a sample). The block counter starts at `region << 32`, where the region
//! is the operation's position in the pipeline.
//!
//! If a transform of a list has a name ([`Transform::named`](crate::ops::Transform::named)), each of the list has its
//! own key, and regions begin at 0. The hash is FNV-1a of 64 bits over `=` and the name, or, for a transform without a
//! name, over its kind, `#`, and its number among the nameless ones of its kind, as 32 bits. Another sample in a recipe
//! draws from a generator whose key is 32 bytes of the keystream ([`SampleRng::fork`]).
//!
//! Only the methods below make numbers from the crate's keystream, so that no release of a crate changes the meaning of
//! a seed.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng, TryRng};
use std::convert::Infallible;
use std::ops::RangeInclusive;

/// The purpose of a random number. Draws for different purposes are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// The order of an epoch.
    Order,
    /// The choice of a substitute for a bad sample.
    Substitute,
    /// The numbers of a sample's transforms.
    Recipe,
    /// Synthetic images.
    Synth,
    /// A network's first weights.
    Weights,
    /// The order of a stream's shards.
    Shards,
    /// The choice of the sample that leaves a stream's window.
    Window,
    /// The choice of the samples of a split.
    Split,
    /// The samples of an epoch, if they are drawn.
    Sampling,
    /// The mixing of a batch's images.
    Mix,
    /// The choice of the stream that the next sample comes from.
    Streams,
    /// The choice of a log's batches that are reproduced.
    Replay,
    /// The order of the units of an epoch that is batched by shape.
    Units,
    /// The lengths of the sequences of an epoch's batches.
    Sequences,
    /// The size of the images of a batch, where it changes over time.
    Sizes,
}

impl Domain {
    const fn tag(self) -> &'static [u8; 8] {
        match self {
            Self::Order => b"order\0\0\0",
            Self::Substitute => b"substitu",
            Self::Recipe => b"recipe\0\0",
            Self::Synth => b"synth\0\0\0",
            Self::Weights => b"weights\0",
            Self::Shards => b"shards\0\0",
            Self::Window => b"window\0\0",
            Self::Split => b"split\0\0\0",
            Self::Sampling => b"sampling",
            Self::Mix => b"mix\0\0\0\0\0",
            Self::Streams => b"streams\0",
            Self::Replay => b"replay\0\0",
            Self::Units => b"units\0\0\0",
            Self::Sequences => b"sequence",
            Self::Sizes => b"sizes\0\0\0",
        }
    }
}

/// One occurrence of a sample in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) index: u64,
    /// Number of earlier occurrences in the epoch.
    pub(crate) repetition: u32,
}

/// A stream of random numbers that depends on (seed, epoch, purpose, stream, region) only.
///
/// It implements the traits of `rand` 0.10, so a transform of your own can draw from the distributions of `rand` and of
/// `rand_distr`. The methods here keep their values in later versions of warpfeed; distributions of other crates may
/// change theirs with the version of that crate.
///
/// ```
/// use rand::RngExt;
/// use warpfeed::ops::SampleRng;
///
/// let mut rng = SampleRng::for_sample(42, 0, 7);
/// let degrees = rng.random_range(-10.0..=10.0);
/// assert!((-10.0..=10.0).contains(&degrees));
/// ```
pub struct SampleRng {
    words: ChaCha8Rng,
}

impl TryRng for SampleRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.words.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.bits())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.words.try_fill_bytes(bytes)
    }
}

impl SampleRng {
    /// The random numbers of a sample's transforms in an epoch: those that a pipeline with this seed passes to its
    /// first transform.
    ///
    /// ```
    /// use warpfeed::ops::SampleRng;
    ///
    /// let mut rng = SampleRng::for_sample(42, 0, 7);
    /// let first = rng.unit();
    /// assert_eq!(SampleRng::for_sample(42, 0, 7).unit(), first);
    /// ```
    #[must_use]
    pub fn for_sample(seed: u64, epoch: u64, index: u64) -> Self {
        Self::new(seed, epoch, Domain::Recipe, index)
    }

    /// The random numbers of a sample's transforms in an epoch, for one repetition of a view.
    pub(crate) fn for_view(seed: u64, epoch: u64, pick: Pick, view: u32, repetition: u32) -> Self {
        let epoch = epoch ^ u64::from(pick.repetition) << 32;
        Self::keyed(seed, epoch, Domain::Recipe, pick.index, u64::from(view) << 32 | u64::from(repetition))
    }

    /// The random numbers of `stream` (a sample's index) in `epoch`, starting with region 0.
    pub fn new(seed: u64, epoch: u64, domain: Domain, stream: u64) -> Self {
        Self::keyed(seed, epoch, domain, stream, 0)
    }

    fn keyed(seed: u64, epoch: u64, domain: Domain, stream: u64, view: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&epoch.to_le_bytes());
        key[16..24].copy_from_slice(domain.tag());
        key[24..].copy_from_slice(&(u64::from_le_bytes(*b"warpfeed") ^ view).to_le_bytes());
        let mut words = ChaCha8Rng::from_seed(key);
        words.set_stream(stream);
        Self { words }
    }

    /// Goes to the start of a region of the stream, from any place.
    pub fn at(&mut self, region: u32) -> &mut Self {
        // A region has 2^32 blocks of 2^4 words.
        self.words.set_word_pos(u128::from(region) << 36);
        self
    }

    /// A generator of its own, whose key is the next four times 64 bits, each little endian.
    pub(crate) fn fork(&mut self) -> Self {
        let mut key = [0; 32];
        key.chunks_exact_mut(8).for_each(|bytes| bytes.copy_from_slice(&self.bits().to_le_bytes()));
        Self { words: ChaCha8Rng::from_seed(key) }
    }

    /// Random numbers of a name, whose hash is `key`, independent of these.
    pub(crate) fn named(&self, key: u64) -> Self {
        let mut seed = self.words.get_seed();
        seed[16..24].iter_mut().zip(key.to_le_bytes()).for_each(|(byte, of_key)| *byte ^= of_key);
        let mut words = ChaCha8Rng::from_seed(seed);
        words.set_stream(self.words.get_stream());
        Self { words }
    }

    /// Skips the next `numbers` numbers.
    pub(crate) fn skip(&mut self, numbers: u64) {
        self.words.set_word_pos(self.words.get_word_pos() + 2 * u128::from(numbers));
    }

    /// The next 64 bits: two keystream words, the lower half first.
    pub fn bits(&mut self) -> u64 {
        let low = u64::from(self.words.next_u32());
        let high = u64::from(self.words.next_u32());
        high << 32 | low
    }

    /// A number in [0, 1): the upper 53 of the next 64 bits, times 2^-53.
    pub fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.bits() >> 11) as f64 * STEP
    }

    /// `low + (high - low) * unit()`, in that order of operations. Rounding can make it `high` itself.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number below `n`: the upper 64 of the 128 bits of `bits() * n`, and 0 for `n` = 0. No number is more
    /// likely than another by more than 2^-64, and every call takes the same 64 bits of the stream.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A whole number in the range, all equally likely.
    pub(crate) fn within(&mut self, range: &RangeInclusive<u32>) -> u32 {
        range.start() + self.below(u64::from(range.end() - range.start()) + 1) as u32
    }

    /// True with probability `p`: `unit() < p`. Never for 0, always for 1.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A draw from the normal distribution with mean 0 and standard deviation 1, from two numbers (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (above_0, turn) = (1.0 - self.unit(), self.unit());
        (-2.0 * libm::log(above_0)).sqrt() * libm::cos(std::f64::consts::TAU * turn)
    }

    /// A draw from the gamma distribution with this shape, which is above 0, and scale 1 (Marsaglia and Tsang).
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let power = libm::pow(1.0 - self.unit(), 1.0 / shape);
            return power * self.gamma(shape + 1.0);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
            let above_0 = 1.0 - self.unit();
            if v > 0.0 && libm::log(above_0) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }

    /// `n` numbers with sum 1 from Dirichlet's distribution. All its parameters are `alpha`, which is above 0.
    pub(crate) fn dirichlet(&mut self, alpha: f64, n: usize) -> Vec<f64> {
        let mut parts: Vec<_> = (0..n).map(|_| self.gamma(alpha)).collect();
        let sum: f64 = parts.iter().sum();
        if sum > 0.0 {
            parts.iter_mut().for_each(|part| *part /= sum);
        } else if let Some(part) = parts.first_mut() {
            // With a very small parameter, all numbers may be too small for a double.
            *part = 1.0;
        }
        parts
    }

    /// Fisher-Yates shuffle: each item from the last to the second changes places with item `below(its position + 1)`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ChaCha8 written out from the paper, one block.
    fn block(key: &[u8; 32], stream: u64, counter: u64) -> [u32; 16] {
        let mut state = [0_u32; 16];
        state[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
        for (word, bytes) in state[4..12].iter_mut().zip(key.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().unwrap());
        }
        state[12..].copy_from_slice(&[counter as u32, (counter >> 32) as u32, stream as u32, (stream >> 32) as u32]);
        let start = state;
        let mut quarter = |a: usize, b: usize, c: usize, d: usize| {
            for (x, y, z, turn) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
                state[x] = state[x].wrapping_add(state[y]);
                state[z] = (state[z] ^ state[x]).rotate_left(turn);
            }
        };
        for _ in 0..4 {
            for column in 0..4 {
                quarter(column, column + 4, column + 8, column + 12);
            }
            for row in 0..4 {
                quarter(row, (row + 1) % 4 + 4, (row + 2) % 4 + 8, (row + 3) % 4 + 12);
            }
        }
        std::array::from_fn(|i| state[i].wrapping_add(start[i]))
    }

    fn words(draw: &mut SampleRng, count: usize) -> Vec<u32> {
        (0..count / 2).flat_map(|_| [draw.bits()]).flat_map(|b| [b as u32, (b >> 32) as u32]).collect()
    }

    #[test]
    fn a_fork_is_the_keystream_of_a_key_from_the_keystream() {
        let mut draw = SampleRng::for_sample(1, 2, 3);
        let key: Vec<u8> = words(&mut draw, 8).into_iter().flat_map(u32::to_le_bytes).collect();
        let want = block(&key.try_into().unwrap(), 0, 0);
        assert_eq!(words(&mut SampleRng::for_sample(1, 2, 3).fork(), 16), want);
    }

    #[test]
    fn the_keystream_is_chacha8_by_the_paper() {
        let (seed, epoch, stream) = (0x0123_4567_89ab_cdef, 7, 1 << 40 | 3);
        let mut key = [0; 32];
        key[..8].copy_from_slice(&[0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01]);
        key[8] = 7;
        key[16..].copy_from_slice(b"recipe\0\0warpfeed");
        let mut draw = SampleRng::new(seed, epoch, Domain::Recipe, stream);
        for region in [0_u32, 1, 35, u32::MAX, 0] {
            let want: Vec<u32> = (0..6).flat_map(|n| block(&key, stream, (u64::from(region) << 32) + n)).collect();
            assert_eq!(words(draw.at(region), want.len()), want, "region {region}");
        }
    }

    #[test]
    fn a_new_draw_is_at_place_0() {
        let first = SampleRng::new(1, 2, Domain::Order, 3).bits();
        assert_eq!(SampleRng::new(1, 2, Domain::Order, 3).at(0).bits(), first);
    }

    /// A separate program in another language computed these numbers from the description at the head of this file.
    /// They are a promise: a seed means the same in every version. Never change them.
    #[test]
    fn golden_values() {
        let mut draw = SampleRng::new(42, 0, Domain::Recipe, 0);
        assert_eq!([draw.bits(), draw.bits()], GOLDEN_BITS);
        assert_eq!(draw.at(1).unit().to_bits(), GOLDEN_UNIT);
        assert_eq!(draw.at(2).uniform(-5.0, 5.0).to_bits(), GOLDEN_UNIFORM);
        draw.at(3);
        assert_eq!([10, 10, 10, 1 << 40, 1, 0].map(|n| draw.below(n)), GOLDEN_BELOW);
        draw.at(4);
        assert_eq!([0.5; 16].map(|p| u8::from(draw.chance(p))), GOLDEN_CHANCE);
        let mut items = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        draw.at(5).shuffle(&mut items);
        assert_eq!(items, GOLDEN_SHUFFLE);
        let other = |seed, epoch, domain, stream| SampleRng::new(seed, epoch, domain, stream).bits();
        assert_eq!(
            [
                other(43, 0, Domain::Recipe, 0),
                other(42, 1, Domain::Recipe, 0),
                other(42, 0, Domain::Recipe, 1),
                other(42, 0, Domain::Order, 0),
                other(42, 0, Domain::Substitute, 0),
                other(42, 0, Domain::Synth, 0),
            ],
            GOLDEN_OTHERS
        );
    }

    const GOLDEN_BITS: [u64; 2] = [0x8344_0ab9_5c93_da58, 0xa61d_8286_63ae_783e];
    const GOLDEN_UNIT: u64 = 0x3fe2_5ded_9eab_2003; // 0.574...
    const GOLDEN_UNIFORM: u64 = 0x4001_9b3e_bf72_e78c; // 2.200...
    const GOLDEN_BELOW: [u64; 6] = [6, 2, 7, 905_419_411_367, 0, 0];
    const GOLDEN_CHANCE: [u8; 16] = [1, 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 1, 0];
    const GOLDEN_SHUFFLE: [i32; 10] = [2, 7, 1, 9, 4, 6, 3, 8, 5, 0];
    const GOLDEN_OTHERS: [u64; 6] = [
        0x565f_93e1_99b6_4a3f,
        0x9c35_c886_309d_343e,
        0xa0fb_fb80_4577_9f03,
        0x68a7_0ee7_e017_66d8,
        0x74f1_e153_f911_a435,
        0xd89e_ef95_8541_0641,
    ];

    #[test]
    fn numbers_are_spread_evenly_and_stay_in_range() {
        let mut draw = SampleRng::new(1, 0, Domain::Recipe, 0);
        let mut counts = [0_u32; 10];
        let mut sum = 0.0;
        for _ in 0..100_000 {
            let unit = draw.unit();
            assert!((0.0..1.0).contains(&unit));
            sum += unit;
            counts[draw.below(10) as usize] += 1;
        }
        // The bounds are six standard deviations: 0.0913 % of the mean and 95 of a count.
        assert!((sum / 1e5 - 0.5).abs() < 0.0055, "mean {}", sum / 1e5);
        assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 570), "{counts:?}");
        assert!((0..1000).all(|_| !draw.chance(0.0)) && (0..1000).all(|_| draw.chance(1.0)));
    }

    /// Means and variances are those of the distributions, within six standard deviations, for 20,000 draws.
    #[test]
    fn deviates_are_distributed_as_they_say() {
        const DRAWS: f64 = 20_000.0;
        let mut draw = SampleRng::new(3, 0, Domain::Recipe, 0);
        let mut moments = |make: &mut dyn FnMut(&mut SampleRng) -> f64| {
            let values: Vec<_> = (0..DRAWS as u32).map(|_| make(&mut draw)).collect();
            let mean = values.iter().sum::<f64>() / DRAWS;
            (mean, values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / DRAWS)
        };
        let (mean, variance) = moments(&mut SampleRng::normal);
        assert!(mean.abs() < 0.043 && (variance - 1.0).abs() < 0.06, "{mean} {variance}");
        for shape in [0.3, 1.0, 4.5_f64] {
            let (mean, variance) = moments(&mut |draw| draw.gamma(shape));
            let off = 6.0 * (shape / DRAWS).sqrt();
            assert!((mean - shape).abs() < off && (variance / shape - 1.0).abs() < 0.25, "{shape}: {mean} {variance}");
        }
        // Beta(a, a) has the variance 1 / (4 (2 a + 1)).
        for alpha in [0.2, 1.0, 3.0_f64] {
            let (mean, variance) = moments(&mut |draw| draw.dirichlet(alpha, 2)[1]);
            let want = 0.25 / (2.0 * alpha + 1.0);
            assert!((mean - 0.5).abs() < 6.0 * (want / DRAWS).sqrt() && (variance / want - 1.0).abs() < 0.1, "{alpha}");
        }
        assert_eq!(draw.dirichlet(1e-300, 3), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn all_orders_of_four_come_up_equally_often() {
        let mut counts = std::collections::HashMap::new();
        let mut draw = SampleRng::new(5, 0, Domain::Order, 0);
        for _ in 0..24_000 {
            let mut items = [0, 1, 2, 3];
            draw.shuffle(&mut items);
            *counts.entry(items).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        // The bound is six standard deviations of a count of 1,000.
        assert!(counts.values().all(|c| c.abs_diff(1000) < 186), "{counts:?}");
    }
}
