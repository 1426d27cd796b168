//! Copies: images of equal bytes, and candidates whose hashes differ in at most [`MAX_DISTANCE`] bits. Two such hashes
//! agree in one of 7 bands at least, so images are sorted by each band.

use super::finding::Finding;
use super::look::MAX_DISTANCE;
use super::row::Row;
use std::collections::HashSet;
use std::ops::Range;

const BAND_BITS: u32 = 9;
const BANDS: u32 = MAX_DISTANCE + 1;
/// Most candidates that are kept of an image. An image with more is one of many that look alike.
const MOST_CANDIDATES: u8 = 8;

/// The split and the label of an image, by its number; `None` if it has no label.
pub(super) type Place<'a> = &'a dyn Fn(u32) -> (usize, Option<u32>);

/// Whether two images have different labels.
fn other_label(a: Option<u32>, b: Option<u32>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a != b)
}

/// The images that could be read, those of equal bytes together and in their order.
pub(super) fn by_bytes(rows: &[Row]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows.len() as u32).filter(|&image| rows[image as usize].is_read()).collect();
    order.sort_unstable_by_key(|&image| (rows[image as usize].sha256, image));
    order
}

/// Runs of two images or more whose key is the same.
fn runs<'a, K: PartialEq>(order: &'a [u32], key: impl Fn(u32) -> K + 'a) -> impl Iterator<Item = &'a [u32]> {
    order.chunk_by(move |&a, &b| key(a) == key(b)).filter(|run| run.len() > 1)
}

/// Notes which images have the bytes of others. Returns each image that is a copy, with the first of its bytes.
pub(super) fn note_equal_bytes(rows: &mut [Row], order: &[u32], place: Place<'_>) -> Vec<(u32, u32)> {
    let mut copies = Vec::new();
    let found: Vec<Vec<(u32, u32)>> = runs(order, |image| rows[image as usize].sha256)
        .map(|run| {
            let mut splits = HashSet::new();
            let places: Vec<(usize, Option<u32>)> = run.iter().map(|&image| place(image)).collect();
            let of_all =
                (if places.iter().any(|place| place.0 != places[0].0) { Finding::OtherSplit.bit() } else { 0 })
                    | (if places.iter().any(|place| places.iter().any(|other| other_label(place.1, other.1))) {
                        Finding::OtherLabel.bit()
                    } else {
                        0
                    });
            let of_each = |(&image, (split, _)): (&u32, &(usize, Option<u32>))| {
                let is_copy = !splits.insert(*split);
                (image, of_all | if is_copy { Finding::Duplicate.bit() } else { 0 })
            };
            copies.extend(run[1..].iter().map(|&image| (image, run[0])));
            run.iter().zip(&places).map(of_each).collect()
        })
        .collect();
    for (image, bits) in found.into_iter().flatten() {
        rows[image as usize].found |= bits;
    }
    copies
}

/// Pairs of images whose hashes are near, each with the earlier image first. Of images with equal bytes, split and
/// label the first takes part. Returns the pairs and whether some were left out, because an image had too many.
pub(super) fn candidates(rows: &[Row], order: &[u32], place: Place<'_>) -> (Vec<(u32, u32)>, bool) {
    let look = |image: u32| rows[image as usize].look;
    let mut left_out = vec![false; rows.len()];
    for run in runs(order, |image| rows[image as usize].sha256) {
        let mut places = HashSet::new();
        run.iter().for_each(|&image| left_out[image as usize] = !places.insert(place(image)));
    }
    let takes_part = |&image: &u32| rows[image as usize].is_hashed() && !left_out[image as usize];
    let mut order: Vec<u32> = (0..rows.len() as u32).filter(takes_part).collect();
    order.sort_unstable_by_key(|&image| (look(image), image));
    let mut found = Candidates { rows, counts: vec![0; rows.len()], pairs: Vec::new(), cut: false };
    // Equal hashes: each with the first and with the one before it.
    for run in runs(&order, look) {
        for i in 1..run.len() {
            found.add(run[0], run[i]);
            if i > 1 {
                found.add(run[i - 1], run[i]);
            }
        }
    }
    // One image for each hash.
    order.dedup_by_key(|image| look(*image));
    for band in 0..BANDS {
        let bits = |image: u32| look(image) >> (BAND_BITS * band) & ((1 << BAND_BITS) - 1);
        order.sort_unstable_by_key(|&image| (bits(image), image));
        for run in runs(&order, bits) {
            let looks: Vec<u64> = run.iter().map(|&image| look(image)).collect();
            for a in 0..run.len() {
                for b in a + 1..run.len() {
                    let different = looks[a] ^ looks[b];
                    if different.count_ones() <= MAX_DISTANCE && first_band(different) == band {
                        found.add(run[a], run[b]);
                    }
                }
            }
        }
    }
    // In the order in which later images are settled.
    found.pairs.sort_unstable_by_key(|&(earlier, later)| (later, earlier));
    (found.pairs, found.cut)
}

/// The first band in which two hashes agree.
fn first_band(different: u64) -> u32 {
    let band_of = |band: u32| -> Range<u32> { BAND_BITS * band..BAND_BITS * (band + 1) };
    (0..BANDS).find(|&band| band_of(band).all(|bit| different >> bit & 1 == 0)).unwrap_or(BANDS)
}

struct Candidates<'a> {
    rows: &'a [Row],
    /// Number of pairs in which each image is the later one.
    counts: Vec<u8>,
    pairs: Vec<(u32, u32)>,
    cut: bool,
}

impl Candidates<'_> {
    fn add(&mut self, a: u32, b: u32) {
        let (earlier, later) = (a.min(b), a.max(b));
        if self.rows[earlier as usize].sha256 == self.rows[later as usize].sha256 {
            return;
        }
        let count = &mut self.counts[later as usize];
        if *count == MOST_CANDIDATES {
            self.cut = true;
            return;
        }
        *count += 1;
        self.pairs.push((earlier, later));
    }
}

/// Notes which images show the same as others: `pairs` in the order of [`candidates`]. Within a split, an image is a
/// near duplicate if it is one of an image that is none itself. Returns each near duplicate, or image with a copy in
/// another split, with the earlier image.
pub(super) fn note_pairs(rows: &mut [Row], pairs: &[(u32, u32)], order: &[u32], place: Place<'_>) -> Vec<(u32, u32)> {
    let near = Finding::NearDuplicate.bit();
    let is_copy = near | Finding::Duplicate.bit();
    let mut copies: Vec<(u32, u32)> = Vec::new();
    for &(earlier, later) in pairs {
        let (a, b) = (place(earlier), place(later));
        let mut of_both = 0;
        if other_label(a.1, b.1) {
            of_both |= Finding::OtherLabel.bit();
        }
        let mut is_told = a.0 != b.0;
        if a.0 != b.0 {
            of_both |= Finding::OtherSplit.bit();
        } else if rows[earlier as usize].found & is_copy == 0 {
            rows[later as usize].found |= near;
            is_told = true;
        }
        rows[earlier as usize].found |= of_both;
        rows[later as usize].found |= of_both;
        if is_told && copies.last().is_none_or(|last| last.0 != later) {
            copies.push((later, earlier));
        }
    }
    // Images with the bytes of one that was compared.
    let of_all = Finding::bits(&[Finding::OtherLabel, Finding::OtherSplit]);
    let mut spread = Vec::new();
    for run in runs(order, |image| rows[image as usize].sha256) {
        let common = run.iter().fold(0, |bits, &image| bits | rows[image as usize].found & of_all);
        let mut near_splits = HashSet::new();
        for &image in run {
            let split = place(image).0;
            if rows[image as usize].has(Finding::NearDuplicate) {
                near_splits.insert(split);
            }
            let near = if near_splits.contains(&split) { near } else { 0 };
            spread.push((image, common | near));
        }
    }
    for (image, bits) in spread {
        rows[image as usize].found |= bits;
    }
    copies
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpfeed::internal::SampleRng;

    /// Images with these hashes, all readable and of different bytes.
    fn rows(looks: &[u64]) -> Vec<Row> {
        let record = |(image, look): (usize, &u64)| super::super::record::Record {
            sha256: format!("{image:032x}"),
            look: format!("{look:016x}"),
            ..Default::default()
        };
        looks.iter().enumerate().map(record).map(|record| Row::new(&record, &Default::default())).collect()
    }

    fn near(looks: &[u64]) -> Vec<(u32, u32)> {
        let rows = rows(looks);
        candidates(&rows, &by_bytes(&rows), &|_| (0, Some(0))).0
    }

    #[test]
    fn all_pairs_within_the_distance_are_candidates_and_no_others() {
        let mut random = SampleRng::for_sample(1, 0, 0);
        let mut looks: Vec<u64> = (0..300).map(|_| random.bits() >> 1).collect();
        // Some that differ in up to 8 bits.
        for i in 0..100 {
            let flips = (0..i % 9).fold(0, |bits, _| bits | 1 << random.below(63));
            looks.push(looks[i as usize] ^ flips);
        }
        let mut want = Vec::new();
        for later in 0..looks.len() {
            for earlier in 0..later {
                if (looks[earlier] ^ looks[later]).count_ones() <= MAX_DISTANCE {
                    want.push((earlier as u32, later as u32));
                }
            }
        }
        assert!(want.len() > 60, "{}", want.len());
        assert_eq!(near(&looks), want);
    }

    #[test]
    fn many_equal_hashes_are_a_chain_and_not_all_pairs() {
        let pairs = near(&[7; 1_000]);
        assert_eq!(pairs.len(), 2 * 999 - 1);
    }
}
