//! Random numbers of single pixels, equal on the CPU and on the device (`kernels/noise.cuh`).
//!
//! A pixel's random words come from Philox4x32-10 (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3",
//! 2011). Its key is the operation's key, its counter the pixel's column and row. Each channel uses one word;
//! four channels share a counter, whose third part is their number. A word
//! becomes a normal deviate by the inverse of the distribution: its highest bit is the sign, and the other bits are a
//! probability between 2^-33 and 1/2. A table has the deviate at 32 places of each octave of probabilities, and values
//! in between are interpolated linearly. A deviate is within 1e-4 of the exact one.

use std::sync::LazyLock;

/// Fractional bits of a deviate in the table.
const BITS: u32 = 20;
/// Number of places in an octave, as a power of two.
const PLACE_BITS: u32 = 5;
/// Number of places in all octaves, plus one for the end of the last octave.
const PLACES: usize = (32 << PLACE_BITS) + 1;
/// Upper bound of keys. Programs that read recipes may store numbers as doubles, which are exact below it.
pub(super) const KEYS: u64 = 1 << 53;
/// Number of pixels whose words are made at once.
const BLOCK: usize = 16;

/// The deviates in order of rising probability.
static NORMALS: LazyLock<[i32; PLACES]> = LazyLock::new(|| {
    std::array::from_fn(|place| {
        let (octave, part) = (place >> PLACE_BITS, place % (1 << PLACE_BITS));
        // The first octave starts at the probability 2^-33, and the last one ends at 1/2.
        let mantissa = 1.0 + part as f64 / f64::from(1 << PLACE_BITS);
        (quantile(mantissa * 2f64.powi(octave as i32 - 33)) * f64::from(1 << BITS)).round() as i32
    })
});

/// The value that a normal deviate exceeds with this probability, which is at most 1/2, by Newton's method. Each step
/// comes closer from below.
fn quantile(probability: f64) -> f64 {
    let mut x = 0.0;
    for _ in 0..64 {
        let beyond = 0.5 * libm::erfc(x * std::f64::consts::FRAC_1_SQRT_2);
        let density = libm::exp(-0.5 * x * x) / (2.0 * std::f64::consts::PI).sqrt();
        x += (beyond - probability) / density;
    }
    x
}

/// The table of deviates, as kernels take it.
pub(crate) fn normals() -> &'static [u8] {
    bytemuck::cast_slice(&*NORMALS)
}

/// The words of `N` pixels of row `y`, starting at column `x`: the first word of each pixel, then the second, and so
/// on.
#[inline(always)]
pub(super) fn words<const N: usize>(key: u64, x: u32, y: u32) -> [[u32; N]; 4] {
    words_of_channels(key, x, y, 0)
}

/// The words of the four channels from `4 * group` on.
#[inline(always)]
fn words_of_channels<const N: usize>(key: u64, x: u32, y: u32, group: u32) -> [[u32; N]; 4] {
    let mut words = [std::array::from_fn(|i| x.wrapping_add(i as u32)), [y; N], [group; N], [0; N]];
    let (mut low, mut high) = (key as u32, (key >> 32) as u32);
    for _ in 0..10 {
        let [first, second, third, fourth] = &mut words;
        for (((first, second), third), fourth) in first.iter_mut().zip(second).zip(third).zip(fourth) {
            let (a, b) = (u64::from(*first) * 0xd251_1f53, u64::from(*third) * 0xcd9e_8d57);
            (*first, *third) = ((b >> 32) as u32 ^ *second ^ low, (a >> 32) as u32 ^ *fourth ^ high);
            (*second, *fourth) = (b as u32, a as u32);
        }
        low = low.wrapping_add(0x9e37_79b9);
        high = high.wrapping_add(0xbb67_ae85);
    }
    words
}

/// The normal deviate of a word.
#[inline(always)]
fn normal(word: u32, table: &[i32; PLACES]) -> f32 {
    let probability = word << 1 | 1;
    let zeros = probability.leading_zeros();
    let mantissa = probability << zeros;
    let place = ((31 - zeros) << PLACE_BITS) as usize + (mantissa >> (31 - PLACE_BITS)) as usize % (1 << PLACE_BITS);
    let part = (mantissa >> (15 - PLACE_BITS) & 0xffff) as i32;
    let size = table[place] + (((table[place + 1] - table[place]) * part) >> 16);
    let value = size as f32 * (1.0 / (1 << BITS) as f32);
    if word >> 31 == 0 { value } else { -value }
}

/// Calls `each` with the index and the three normal deviates of `len` pixels of row `y`, starting at column `x`.
pub(crate) fn normal_row(key: u64, x: u32, y: u32, len: u32, mut each: impl FnMut(usize, [f32; 3])) {
    let table = &*NORMALS;
    for start in (0..len as usize).step_by(BLOCK) {
        let words = crate::simd::wide(
            #[inline(always)]
            || words::<BLOCK>(key, x + start as u32, y),
        );
        let deviates = |i: usize| [0, 1, 2].map(|channel| normal(words[channel][i], table));
        (0..BLOCK.min(len as usize - start)).for_each(|i| each(start + i, deviates(i)));
    }
}

/// Calls `each` with the index and the normal deviate of `len` values of a channel, from column x of row y on.
pub(crate) fn channel_row(key: u64, (x, y): (u32, u32), channel: usize, len: u32, mut each: impl FnMut(usize, f32)) {
    let table = &*NORMALS;
    for start in (0..len as usize).step_by(BLOCK) {
        let words = crate::simd::wide(
            #[inline(always)]
            || words_of_channels::<BLOCK>(key, x + start as u32, y, channel as u32 / 4),
        );
        let words = &words[channel % 4][..BLOCK.min(len as usize - start)];
        words.iter().enumerate().for_each(|(i, word)| each(start + i, normal(*word, table)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that come with the authors' library. In these, the last two words of the counter are 0.
    #[test]
    fn words_are_those_of_philox() {
        assert_eq!(words::<1>(0, 0, 0).map(|word| word[0]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        // Words made in a block equal the words of single pixels.
        let block = words::<BLOCK>(0x0123_4567_89ab_cdef, 40, 7);
        for i in 0..BLOCK {
            let one = words::<1>(0x0123_4567_89ab_cdef, 40 + i as u32, 7);
            assert_eq!(block.map(|lane| lane[i]), one.map(|lane| lane[0]));
        }
    }

    #[test]
    fn a_deviate_is_close_to_the_exact_one() {
        let mut word = 1_u32;
        for _ in 0..20_000 {
            word = word.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            // Large deviates are rare, so they are made on purpose.
            for word in [word, word >> (word % 31), !(word >> (word % 31))] {
                let exact = quantile((f64::from(word & 0x7fff_ffff) + 0.5) * 2f64.powi(-32));
                let exact = if word >> 31 == 0 { exact } else { -exact };
                assert!((f64::from(normal(word, &NORMALS)) - exact).abs() < 1e-4, "{word}");
            }
        }
        assert!((f64::from(normal(0, &NORMALS)) - 6.338).abs() < 1e-3, "{}", normal(0, &NORMALS));
    }

    /// Tests chi-square over 64 equally likely ranges, moments up to the fourth, and the correlation of neighbors and
    /// channels.
    #[test]
    fn deviates_of_pixels_are_normal_and_independent() {
        const SIDE: u32 = 400;
        const COUNT: f64 = (SIDE * SIDE * 3) as f64;
        let bounds: Vec<f64> = (1..64).map(|i| quantile_of(f64::from(i) / 64.0)).collect();
        let (mut counts, mut moments, mut shared) = ([0.0; 64], [0.0; 4], [0.0; 3]);
        let mut above = vec![[0.0; 3]; SIDE as usize];
        for y in 0..SIDE {
            let mut left = [0.0; 3];
            normal_row(31, 1000, y, SIDE, |x, deviates| {
                let deviates = deviates.map(f64::from);
                for (channel, value) in deviates.into_iter().enumerate() {
                    counts[bounds.partition_point(|bound| *bound < value)] += 1.0;
                    (1..=4).for_each(|power| moments[power as usize - 1] += value.powi(power));
                    shared[0] += value * left[channel];
                    shared[1] += value * above[x][channel];
                    shared[2] += value * deviates[(channel + 1) % 3];
                }
                (left, above[x]) = (deviates, deviates);
            });
        }
        let sum: f64 = counts.iter().map(|count| (count - COUNT / 64.0).powi(2) / (COUNT / 64.0)).sum();
        // With 63 degrees of freedom, one in a million is above 127.
        assert!(sum < 127.0, "{sum}");
        // The bound is six standard deviations; those of x, x^2, x^3 and x^4 are 1, sqrt 2, sqrt 15 and sqrt 96.
        for (moment, (want, deviation)) in moments.iter().zip([(0.0, 1.0), (1.0, 2.0), (0.0, 15.0), (3.0, 96.0_f64)]) {
            assert!((moment / COUNT - want).abs() < 6.0 * (deviation / COUNT).sqrt(), "{moments:?}");
        }
        assert!(shared.iter().all(|sum| (sum / COUNT).abs() < 6.0 / COUNT.sqrt()), "{shared:?}");
    }

    fn quantile_of(below: f64) -> f64 {
        if below < 0.5 { -quantile(below) } else { quantile(1.0 - below) }
    }
}
