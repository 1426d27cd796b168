//! JPEG data that are legal but rare, or damaged. All ways of decoding must give the same pixels for them.

use super::entry_point_bytes::{from_bytes, to_bytes, with_starts};
use super::entry_point_store::{EntryPointStore, ImageKey};
use super::entry_points::{ImageEntryPoints, McuGrid};
use super::jpeg::{DecodeOptions, DecodeWays, JpegDecoder};
use super::pack_key::{PackKey, Seal};
use super::restarts::row_starts;
use super::{Header, packed_points, probe};
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

    /// A number below `count`. When the bytes are used up, they are used again.
    fn below(&mut self, count: usize) -> usize {
        let mut byte = || {
            self.at += 1;
            self.bytes.get((self.at - 1) % self.bytes.len().max(1)).copied().unwrap_or(0)
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

/// Entry points that anybody may have put into an image, in the form in which they are packed: the image's own, changed
/// in one way or another, those of the last image, or random bytes.
fn any_points(header: &Header, own: Option<&ImageEntryPoints>, last: &[u8], choices: &mut Choices<'_>) -> Vec<u8> {
    let (kind, grid) = (choices.below(10), McuGrid::new(header));
    let (Some(own), Some(grid), 0..8) = (own, grid, kind) else {
        let random = (0..choices.below(300)).map(|_| choices.below(256) as u8);
        return if kind == 8 { last.to_vec() } else { random.collect() };
    };
    let (mut points, mut step) = (own.points.clone(), own.step);
    let at = choices.below(points.len());
    let change = choices.below(33) as i32 - 16;
    match kind {
        // One place, or all after it, some bits away.
        1 => points[at].bit = points[at].bit.wrapping_add_signed(change),
        2 => points[at..].iter_mut().for_each(|point| point.bit = point.bit.wrapping_add_signed(change)),
        // Other colors from one place on.
        3 | 4 => {
            let component = choices.below(grid.components);
            let end = if kind == 3 { at + 1 } else { points.len() };
            points[at..end]
                .iter_mut()
                .for_each(|point| point.dc[component] = point.dc[component].wrapping_add(change as i16));
        }
        // A place that belongs elsewhere.
        5 => points[at..].rotate_left(1),
        6 => points[at] = points[choices.below(own.points.len())],
        7 => step = 1 + choices.below(grid.columns as usize) as u32,
        _ => {}
    }
    to_bytes(&points, step, &grid, header.scan_offset_bytes)
}

/// Stores that many images share, in memory and in a folder. The latter is written, and opened as by another process,
/// all the time.
struct SharedStores {
    memory: EntryPointStore,
    folder: EntryPointStore,
    path: std::path::PathBuf,
    rounds: u32,
    /// The packed points of the last image.
    last: Vec<u8>,
    /// The key that all stores trust.
    key: PackKey,
    /// A seal of the last image that has one.
    last_seal: [u8; Seal::BYTES],
}

impl SharedStores {
    fn new() -> Self {
        let name = format!("warpfeed-oddities-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        let key = PackKey::new([1, 2, 3, 4]);
        let folder = EntryPointStore::in_folder(&path, 1 << 24).expect("a writable folder").with_pack_key(key);
        let memory = EntryPointStore::new(1 << 24).with_pack_key(key);
        Self { memory, folder, path, rounds: 0, last: Vec::new(), key, last_seal: [0; Seal::BYTES] }
    }

    fn turn(&mut self) {
        self.rounds += 1;
        if self.rounds.is_multiple_of(256) {
            self.folder.save().expect("a writable folder");
            let folder = EntryPointStore::in_folder(&self.path, 1 << 24).expect("a writable folder");
            self.folder = folder.with_pack_key(self.key);
        }
        if self.rounds.is_multiple_of(1 << 14) {
            self.memory = EntryPointStore::new(1 << 24).with_pack_key(self.key);
        }
    }
}

impl Drop for SharedStores {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Decodes an image that has entry points of its own, which may be anybody's, with stores that other images use too,
/// and panics if the pixels are not those of decoding from the front.
fn decode_with_any_points(
    jpeg: &[u8],
    accept_truncated: bool,
    lanes: &mut JpegDecoder,
    one_by_one: &mut JpegDecoder,
    choices: &mut Choices<'_>,
) {
    thread_local!(static SHARED: RefCell<SharedStores> = RefCell::new(SharedStores::new()));
    SHARED.with_borrow_mut(|shared| {
        shared.turn();
        let Ok(header) = probe(jpeg) else { return };
        let mut own = ImageEntryPoints::default();
        let key = Some(&shared.key);
        let packed = lanes.with_entry_points(jpeg, &header, key, &mut Image::default()).ok().flatten();
        let has_own = packed.as_ref().is_some_and(|packed| {
            let (Ok(with), Some(grid)) = (probe(packed), McuGrid::new(&header)) else { return false };
            let points = with.packed_points.expect("they were put in");
            // Every second image has the seal of its own points, others that of an image before. It is of no use to
            // other points.
            if choices.below(2) == 0 {
                shared.last_seal.copy_from_slice(&packed[points.start..points.start + Seal::BYTES]);
            }
            let points = &packed[points.start + Seal::BYTES..points.end];
            from_bytes(points, &grid, header.scan_offset_bytes, &mut own).is_some()
        });
        let points = any_points(&header, has_own.then_some(&own), &shared.last, choices);
        let bare = packed_points::without_points(jpeg, &header).unwrap_or_else(|| jpeg.to_vec());
        let with = probe(&bare).ok().and_then(|header| packed_points::with_segment(&bare, &header, &points, None));
        let Some(mut with) = with else { return };
        shared.last = points;
        let Ok(header) = probe(&with) else { return };
        let start = header.packed_points.as_ref().expect("they were put in").start;
        with[start..start + Seal::BYTES].copy_from_slice(&shared.last_seal);
        let own_store = EntryPointStore::new(1 << 20).with_pack_key(shared.key);
        for epoch in 1..=3 {
            let part = choices.part(Rect::full(header.size));
            let decode = |decoder: &mut JpegDecoder, entry_points| {
                let (mut out, how) = (Image::default(), DecodeOptions { accept_truncated, entry_points });
                decoder.decode(&with, &header, part, how, &mut out).map_err(|error| error.to_string())?;
                Ok::<_, String>(out.pixels().to_vec())
            };
            let want = decode(one_by_one, None);
            for (what, store) in [("own", &own_store), ("memory", &shared.memory), ("folder", &shared.folder)] {
                let got = decode(lanes, Some(store));
                assert!(got == want, "{what}, epoch {epoch}, {part:?}: {:?}, {:?}", got.err(), want.err());
            }
        }
    });
}

/// Decodes a part of an image on a device, with entry points of the store; `None` if the device flags the image.
pub type OnDevice<'a> = dyn FnMut(&[u8], &Header, Rect, Option<&EntryPointStore>) -> Option<Vec<Pixel>> + 'a;

/// No device.
pub fn no_device(_: &[u8], _: &Header, _: Rect, _: Option<&EntryPointStore>) -> Option<Vec<Pixel>> {
    None
}

/// Decodes four parts of an image or of a draft of it, one per epoch, in each possible way, and panics if one of them
/// gives other pixels than decoding from the front. The ways are: with and without vectors and a store for entry
/// points, with entry points in the image that may be anybody's, with libjpeg's own entropy decoder, with its inverse
/// DCT in C, and by a device's decoder, if it does not flag the image.
pub fn decode_in_all_ways(jpeg: &[u8], choices: &mut Choices<'_>, device: &mut OnDevice<'_>) {
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
        (DecodeOptions { accept_truncated, entry_points: None }, [(); 4].map(|()| EntryPointStore::new(1 << 20)));
    memories[3].for_devices(true);
    WAYS.with_borrow_mut(|DecodeWays { one_by_one, lanes, narrow_lanes, libjpeg, portable }| {
        decode_with_any_points(jpeg, accept_truncated, lanes, one_by_one, choices);
        decode_with_any_points(jpeg, accept_truncated, narrow_lanes, one_by_one, choices);
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
            // A device's own places, and the CPU's.
            let others = [
                ("without", None, 1),
                ("with own", Some(&memories[3]), epoch),
                ("with the CPU's", Some(&memories[0]), 4),
            ];
            for (what, memory, _) in others.into_iter().filter(|(.., of_epoch)| *of_epoch == epoch) {
                if let (Some(pixels), false) = (device(jpeg, &header, part, memory), accept_truncated) {
                    compare(&format!("the device {what} places"), Ok(&pixels));
                }
            }
            let got = decode(lanes, part, DecodeOptions { accept_truncated, entry_points: Some(&memories[3]) });
            compare("lanes with the device's places", got.as_deref().map_err(String::clone));
        }
    });
}

/// An image with an index of rows whose first row has no good codes, and whose checksum fits that.
#[must_use]
pub fn with_bad_first_row(indexed: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut starts) = (indexed.to_vec(), Vec::new());
    let header = probe(indexed).ok().filter(|header| row_starts(indexed, header, &mut starts))?;
    let row = bytes.get_mut(starts[0]..starts[1] - 2)?;
    row.chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&[0xFF, 0]));
    let index = header.row_index?.start;
    let crc = crc32c::crc32c(&bytes[index + 4..]);
    bytes[index..index + 4].copy_from_slice(&crc.to_be_bytes());
    Some(bytes)
}

/// All that a store knows of the places of an image, whose key and grid come first.
fn known(store: &EntryPointStore, jpeg: &[u8]) -> Option<(ImageKey, McuGrid, ImageEntryPoints)> {
    let header = probe(jpeg).ok()?;
    let grid = McuGrid::new(&header)?;
    let (key, mut entries) = (store.key(jpeg, &header, &grid)?, ImageEntryPoints::default());
    (store.get(&key, &header, &grid, &mut entries).is_known && entries.rows == grid.rows)
        .then_some((key, grid, entries))
}

/// Whether two stores know all places of an image, and the same.
#[must_use]
pub fn know_the_same(stores: [&EntryPointStore; 2], jpeg: &[u8]) -> bool {
    let [a, b] = stores.map(|store| known(store, jpeg).map(|(.., entries)| (entries.points, entries.starts)));
    a.is_some() && a == b
}

/// A store for devices with the entry points that another one knows of an image, without the starts between them. With
/// `choices`: a store that uses what it has, in which one point is another one. `None` if nothing is known, or the
/// points stay as they are.
pub fn with_points_of(
    store: &EntryPointStore,
    jpeg: &[u8],
    choices: Option<&mut Choices<'_>>,
) -> Option<EntryPointStore> {
    let (header, (_, grid, entries)) = (probe(jpeg).ok()?, known(store, jpeg)?);
    let (mut points, mut starts) = (entries.points.clone(), None);
    let other = EntryPointStore::new(1 << 20);
    // A store for devices finds out starts that are missing.
    other.for_devices(choices.is_none());
    if let Some(choices) = choices {
        let at = choices.below(points.len() - 1);
        match choices.below(5) {
            0 => points[at].bit = choices.below(9 * jpeg.len()) as u32,
            1 => points[at].bit ^= 1 << choices.below(20),
            2 => points[at].bit = points[choices.below(points.len())].bit,
            3 => points[at].dc[0] = points[at].dc[0].wrapping_add(1 + choices.below(98) as i16),
            _ => points[at].dc[2] ^= 1 << choices.below(8),
        }
        points.iter_mut().for_each(|point| point.bit = point.bit.max(8 * header.scan_offset_bytes as u32));
        points.sort_by_key(|point| point.bit);
        if points == entries.points {
            return None;
        }
        starts = (choices.below(2) == 0).then_some(&entries.starts);
    }
    let alone = to_bytes(&points, grid.step(), &grid, header.scan_offset_bytes);
    let bytes = starts.map_or_else(|| alone.clone(), |starts| with_starts(&alone, starts));
    other.put_bytes(other.key(jpeg, &header, &grid)?, bytes, true);
    Some(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::indexed;
    use crate::encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg, to_baseline};

    use rand::rngs::ChaCha8Rng;
    use rand::{Rng as _, RngExt as _, SeedableRng as _};

    /// JPEGs of some forms. Most have entry points; progressive ones have none.
    fn jpegs(rng: &mut ChaCha8Rng) -> Vec<Vec<u8>> {
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
                        jpegs.push(encode_jpeg(&image, &JpegOptions { progressive: true, ..options }).unwrap());
                    }
                }
            }
        }
        jpegs
    }

    #[test]
    fn odd_data_decode_alike_in_all_ways_and_epochs() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let jpegs = jpegs(&mut rng);
        for round in 0..2000 {
            let mut bytes = [0; 64];
            rng.fill_bytes(&mut bytes);
            let mut choices = Choices::new(&bytes);
            decode_in_all_ways(&odd(&jpegs[round % jpegs.len()], &mut choices), &mut choices, &mut no_device);
        }
    }

    /// Packed points of other images and random ones, three epochs each with a store of its own, one in memory and one
    /// in a folder, both shared by all images; every third image has odd data.
    #[test]
    #[ignore = "takes ten minutes, and is for release builds"]
    fn a_million_points_of_anybody_change_no_pixel() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let jpegs = jpegs(&mut rng);
        let DecodeWays { mut one_by_one, mut lanes, mut narrow_lanes, .. } = JpegDecoder::ways().unwrap();
        for round in 1..=1_000_000 {
            let mut bytes = [0; 64];
            rng.fill_bytes(&mut bytes);
            let mut choices = Choices::new(&bytes);
            let mut jpeg = jpegs[rng.random_range(0..jpegs.len())].clone();
            if round % 3 == 0 {
                jpeg = odd(&jpeg, &mut choices);
            }
            let lanes = if round % 2 == 0 { &mut lanes } else { &mut narrow_lanes };
            decode_with_any_points(&jpeg, rng.random(), lanes, &mut one_by_one, &mut choices);
            if round % 10_000 == 0 {
                println!("{round} inputs");
            }
        }
    }
}
