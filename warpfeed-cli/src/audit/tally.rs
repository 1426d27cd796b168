//! Counts over all images, made while their records pass by.

use super::record::Record;
use std::collections::BTreeMap;

/// Most errors and contents that are kept, with the lowest numbers of images.
const MAX_NOTES: usize = 200;

/// Numbers of images by value.
pub(super) type Counts<T> = BTreeMap<T, u64>;

/// Counts of what records say.
#[derive(Default)]
pub(super) struct Tally {
    /// Format, coding and sampling.
    pub(super) kinds: Counts<(String, String, String)>,
    /// JPEGs by their quality.
    pub(super) qualities: Counts<u8>,
    /// Images by the decoder that takes them on `hardware`.
    pub(super) decoders: Counts<String>,
    /// Number of images that the crate's own decoder takes on a GPU.
    pub(super) device: u64,
    pub(super) long_px: Counts<u32>,
    pub(super) short_px: Counts<u32>,
    pub(super) kpx: Counts<u32>,
    pub(super) kb: Counts<u32>,
    /// The errors of the first images that have one, by the images' numbers.
    pub(super) errors: BTreeMap<u32, String>,
    /// The formats of the first images whose names say another.
    pub(super) contents: BTreeMap<u32, String>,
    /// The errors of the annotations of the first images that have one.
    pub(super) annotations: BTreeMap<u32, String>,
    /// Numbers of objects, and of images with one, by split and label.
    pub(super) objects: BTreeMap<(usize, i64), [u64; 2]>,
}

impl Tally {
    /// Counts an image of a split.
    pub(super) fn add(&mut self, record: &Record, split: usize) {
        let note = |notes: &mut BTreeMap<u32, String>, text: &String| {
            if !text.is_empty() {
                notes.insert(record.image, text.clone());
                if notes.len() > MAX_NOTES {
                    notes.pop_last();
                }
            }
        };
        note(&mut self.errors, &record.error);
        note(&mut self.contents, &record.content);
        note(&mut self.annotations, &record.annotations);
        for (label, objects) in &record.objects {
            let [all, images] = self.objects.entry((split, *label)).or_default();
            (*all, *images) = (*all + objects, *images + 1);
        }
        if record.bytes > 0 {
            *self.kb.entry(record.bytes.div_ceil(1_000)).or_default() += 1;
        }
        if record.format.is_empty() {
            return;
        }
        let kind = (record.format.clone(), record.coding.clone(), record.sampling.clone());
        *self.kinds.entry(kind).or_default() += 1;
        if record.quality > 0 {
            *self.qualities.entry(record.quality).or_default() += 1;
        }
        *self.decoders.entry(record.decoder.clone()).or_default() += 1;
        self.device += u64::from(record.device);
        let (long, short) = (record.width.max(record.height), record.width.min(record.height));
        *self.long_px.entry(long).or_default() += 1;
        *self.short_px.entry(short).or_default() += 1;
        let kpx = (u64::from(long) * u64::from(short)).div_ceil(1_000);
        *self.kpx.entry(u32::try_from(kpx).unwrap_or(u32::MAX)).or_default() += 1;
    }
}

/// The values below or at which these shares of all images are; `None` without images.
pub(super) fn quantiles<const N: usize>(counts: &Counts<u32>, shares: [f64; N]) -> Option<[u32; N]> {
    let all: u64 = counts.values().sum();
    let at = |share: f64| {
        let wanted = ((share * all as f64).ceil() as u64).max(1);
        let mut before = 0;
        counts.iter().find(|(_, count)| {
            before += **count;
            before >= wanted
        })
    };
    let mut values = [0; N];
    for (value, share) in values.iter_mut().zip(shares) {
        *value = *at(share)?.0;
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occur() {
        let counts = Counts::from([(1, 1), (5, 98), (9, 1)]);
        assert_eq!(quantiles(&counts, [0.0, 0.01, 0.02, 0.5, 0.99, 1.0]), Some([1, 1, 5, 5, 5, 9]));
        assert_eq!(quantiles(&Counts::new(), [0.5]), None);
    }
}
