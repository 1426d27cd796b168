//! JPEG data that are legal but rare, or damaged, for tests and fuzz targets. All ways of decoding must give the same
//! pixels for them.

use super::entry_point_store::EntryPointStore;
use super::jpeg::{DecodeOptions, DecodeWays, JpegDecoder};
use super::{kernel_steps, probe};
use crate::raster::{Image, Pixel, Rect, Size};
use std::cell::RefCell;

/// Numbers that bytes determine: a random generator for tests, and one that a fuzzer can steer.
pub struct Choices<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Choices<'a> {
    /// Numbers that these bytes determine.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// A number below `count`; 0 once the bytes are used up.
    fn below(&mut self, count: usize) -> usize {
        let mut byte = || {
            self.at += 1;
            self.bytes.get(self.at - 1).copied().unwrap_or(0)
        };
        u16::from_le_bytes([byte(), byte()]) as usize % count.max(1)
    }

    fn part(&mut self, image: Rect) -> Rect {
        let (x, y) = (self.below(image.width as usize) as u32, self.below(image.height as usize) as u32);
        if self.below(2) == 0 {
            // Large enough for decoding with vectors to pay.
            return Rect { x: x / 8, y: y / 8, width: image.width - x / 8, height: image.height - y / 8 };
        }
        let width = 1 + self.below((image.width - x) as usize) as u32;
        let height = 1 + self.below((image.height - y) as usize) as u32;
        Rect { x, y, width, height }
    }
}

/// Puts up to four oddities into entropy-coded data.
pub fn odd(jpeg: &[u8], choices: &mut Choices<'_>) -> Vec<u8> {
    let mut jpeg = jpeg.to_vec();
    let Ok(header) = probe(&jpeg) else { return jpeg };
    let start = header.scan_offset_bytes.min(jpeg.len());
    for _ in 0..choices.below(5) {
        // One of the places where the data have 0xFF followed by a wanted byte.
        let pairs = |jpeg: &[u8], is_wanted: fn(u8) -> bool| -> Vec<usize> {
            let pairs = jpeg[start..].windows(2).enumerate();
            pairs.filter(|(_, pair)| pair[0] == 0xFF && is_wanted(pair[1])).map(|(at, _)| start + at).collect()
        };
        let kind = choices.below(10);
        let places = match kind {
            0 | 1 => pairs(&jpeg, |next| next == 0),
            2..=5 => pairs(&jpeg, |next| matches!(next, 0xD0..=0xD9)),
            _ => (start..jpeg.len()).collect(),
        };
        let number = choices.below(places.len());
        let Some(&at) = places.get(number) else { continue };
        let byte = choices.below(256) as u8;
        match kind {
            // Fill bytes before a stuffed 0xFF or a marker.
            0..=2 => drop(jpeg.splice(at..at, vec![0xFF; 1 + choices.below(4)])),
            // Unused bytes before a marker: a few, which the decoder has read already, or many.
            3 => drop(jpeg.splice(at..at, vec![byte.min(0xFE); 1 + choices.below(12)])),
            // The padding of the last byte has bits other than ones.
            4 => jpeg[at - 1] ^= byte & 7,
            // Replaces or inserts a marker.
            5 => jpeg[at + 1] = 0xD0 + byte % 10,
            6 => drop(jpeg.splice(at..at, [0xFF, 0xD0 + byte % 10])),
            7 => jpeg.extend([0xFF, 0xD9, byte]),
            8 => jpeg[at] = byte,
            _ => drop(jpeg.drain(at..(at + 1 + usize::from(byte) % 3).min(jpeg.len()))),
        }
    }
    jpeg
}

/// Decodes four parts of an image or of a draft of it, one per epoch, in each possible way, and panics if one of them gives other pixels
/// than decoding from the front. The ways are: with and without vectors and a store for entry points, with libjpeg's
/// own entropy decoder, with its inverse DCT in C, and with the steps of the device's decoder.
pub fn decode_in_all_ways(jpeg: &[u8], choices: &mut Choices<'_>) {
    thread_local!(static WAYS: RefCell<DecodeWays> = RefCell::new(JpegDecoder::ways().expect("there is memory")));
    let Ok(mut header) = probe(jpeg) else { return };
    // Sometimes at a smaller scale.
    let denom = 1_u32 << choices.below(8).saturating_sub(4);
    header.draft(Size::new((header.size.width / denom).max(1), (header.size.height / denom).max(1)));
    let decode = |decoder: &mut JpegDecoder, part, how: DecodeOptions<'_>| -> Result<Vec<Pixel>, String> {
        let mut out = Image::default();
        decoder.decode(jpeg, &header, part, how, &mut out).map_err(|error| error.to_string())?;
        Ok(out.pixels().to_vec())
    };
    let accept_truncated = choices.below(2) == 1;
    let (from_the_front, memories) =
        (DecodeOptions { accept_truncated, entry_points: None }, [(); 3].map(|()| EntryPointStore::new(1 << 20)));
    WAYS.with_borrow_mut(|DecodeWays { one_by_one, lanes, narrow_lanes, libjpeg, portable }| {
        for epoch in 1..=4 {
            let part = choices.part(Rect::full(header.size));
            let want = decode(one_by_one, part, from_the_front);
            let compare = |what: &str, got: Result<&[Pixel], String>| {
                let wanted = want.as_deref().map_err(String::clone);
                assert!(
                    got == wanted,
                    "{what}, epoch {epoch}, {part:?}, truncated {accept_truncated}: {:?}, {:?}",
                    got.err(),
                    wanted.err()
                );
            };
            for ((what, decoder), memory) in
                [("lanes", &mut *lanes), ("lanes of AVX2", narrow_lanes), ("one by one", one_by_one)]
                    .into_iter()
                    .zip(&memories)
            {
                let got = decode(decoder, part, DecodeOptions { accept_truncated, entry_points: Some(memory) });
                compare(what, got.as_deref().map_err(String::clone));
            }
            if epoch == 1 {
                compare("inverse DCT in C", decode(portable, part, from_the_front).as_deref().map_err(String::clone));
                // libjpeg's own entropy decoder warns of fewer faults, and leaves other pixels where data are damaged.
                if !accept_truncated && want.is_ok() {
                    compare("libjpeg", decode(libjpeg, part, from_the_front).as_deref().map_err(String::clone));
                }
            }
            if let (false, Ok(steps)) = (accept_truncated, kernel_steps::decode(jpeg, &header, part)) {
                compare("the device's steps", Ok(steps.image.pixels()));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::indexed;
    use crate::encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg, to_baseline};

    use rand::rngs::ChaCha8Rng;
    use rand::{Rng as _, RngExt as _, SeedableRng as _};

    #[test]
    fn odd_data_decode_alike_in_all_ways_and_epochs() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut jpegs = Vec::new();
        for (width, height) in [(9, 150), (290, 40), (140, 90)] {
            let mut image = Image::new(Size::new(width, height));
            image.pixels_mut().iter_mut().for_each(|pixel| *pixel = rng.random());
            for color in [JpegColor::Ycc, JpegColor::Gray] {
                for (horizontal, vertical) in [(1, 1), (2, 1), (2, 2)] {
                    for restart_interval_rows in [0, 1] {
                        let sampling = ChromaSampling { horizontal, vertical };
                        let quality = rng.random_range(60..=100);
                        let options =
                            JpegOptions { quality, sampling, color, restart_interval_rows, ..JpegOptions::default() };
                        let jpeg = encode_jpeg(&image, &options).unwrap();
                        jpegs.extend(indexed(&to_baseline(&jpeg, true).unwrap()));
                        jpegs.push(jpeg);
                    }
                }
            }
        }
        for round in 0..3000 {
            let mut bytes = [0; 64];
            rng.fill_bytes(&mut bytes);
            let mut choices = Choices::new(&bytes);
            decode_in_all_ways(&odd(&jpegs[round % jpegs.len()], &mut choices), &mut choices);
        }
    }
}
