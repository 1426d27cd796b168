//! Entry points: places in the middle of a baseline JPEG's data at which decoding can begin.
//!
//! Codes have different lengths, and a DC coefficient is the difference to the one before. So a decoder that wants a
//! part of an image has to walk through all codes before that part. An entry point stores the result of this walk: the
//! bit at which an MCU begins, and each component's last DC coefficient there. A pipeline stores entry points when it
//! first decodes an image, one about every 128 pixels. Later it skips the parts that a crop does not need, and decodes
//! several stretches at a time ([`lanes`](super::lanes)). Entry points take about a hundredth of the encoded image's
//! bytes.
//!
//! The identity of an image is a hash of all its bytes, so a file that was changed or damaged since then is decoded as
//! an unknown image. Skipped parts have been decoded before, so damage that is noticed without entry points is also
//! noticed with them. The hash is HighwayHash with a key that each process draws. So whoever supplies images cannot
//! make two images that share entry points, which would silently change an image's pixels. A checksum is not enough:
//! checksums are linear, so one can choose bytes that give any checksum.
//!
//! Entry points are learned only from data in which every byte has a meaning. JPEG allows others: fill bytes (0xFF)
//! before a stuffed 0xFF or before a marker, and unused bytes before a restart marker. Such images are decoded from the
//! front in every epoch ([`oddities`](super::oddities) makes some).

use super::Header;
use crate::raster::{Rect, Size};
use highway::{HighwayHash as _, HighwayHasher};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Number of pixels from one entry point to the next, if the MCU's width divides it.
const STEP_PX: u32 = 128;
/// Number of entry points below which they do not pay.
const MIN_POINTS: usize = 8;
/// Memory of an image's entry in addition to its points, as a generous estimate.
const OVERHEAD_BYTES: u64 = 96;
/// Largest size of a file, so that 32 bits can count the bits of its data.
pub(super) const MAX_BYTES: usize = 1 << 28;

/// `wf_entry_point` in `jpeg.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EntryPoint {
    /// Place of the next MCU's first bit: 8 times the offset of its byte in the file, plus its place in that byte,
    /// where 0 is the highest bit.
    pub bit: u32,
    /// Last DC coefficient of each component.
    pub dc: [i16; 4],
}

impl EntryPoint {
    /// Offset of the byte that contains the first bit.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn byte(self) -> usize {
        (self.bit / 8) as usize
    }
}

/// Layout of an image's MCUs and entry points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    /// Size of an MCU in pixels.
    pub mcu: Size,
    pub columns: u32,
    pub rows: u32,
    pub components: usize,
}

impl Grid {
    /// The grid of an image. `None` if the image cannot have entry points.
    pub(super) fn new(header: &Header) -> Option<Self> {
        if !matches!(header.process, 0xC0 | 0xC1) {
            return None;
        }
        let components = usize::from(header.components);
        let factors = header.sampling.get(..components)?;
        let h = factors.iter().map(|&(h, _)| h).max()?;
        let v = factors.iter().map(|&(_, v)| v).max()?;
        // libjpeg decodes more than one MCU at a time for a single component with a sampling factor.
        if h == 0 || v == 0 || (components == 1 && (h, v) != (1, 1)) {
            return None;
        }
        let mcu = Size::new(8 * u32::from(h), 8 * u32::from(v));
        let (columns, rows) = (header.size.width.div_ceil(mcu.width), header.size.height.div_ceil(mcu.height));
        Some(Self { mcu, columns, rows, components })
    }

    /// Number of MCUs from one learned entry point to the next.
    pub(super) fn step(&self) -> u32 {
        (STEP_PX / self.mcu.width).max(1)
    }

    /// Largest number of points that are learned.
    pub(super) fn most_points(&self) -> usize {
        self.rows as usize * self.columns.div_ceil(self.step()) as usize + 1
    }

    /// Whether this rectangle allows skipping a whole row or column of MCUs. The neighboring row and column are needed
    /// to interpolate chroma.
    pub(super) fn has_rest(&self, part: Rect) -> bool {
        let Size { width, height } = self.mcu;
        part.y > height || part.x > width || part.right() + width < self.columns * width
    }

    /// The row after the last row of MCUs that libjpeg decodes for this rectangle. Interpolation needs one row of
    /// samples below.
    pub(super) fn rows_needed(&self, part: Rect) -> u32 {
        let margin = if self.mcu.height > 8 { self.mcu.height / 8 } else { 0 };
        (part.bottom() + margin).div_ceil(self.mcu.height).min(self.rows)
    }
}

/// Entry points of an image, row by row of MCUs, and one after the last MCU.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub points: Vec<EntryPoint>,
    /// Number of MCUs from one entry point to the next. Each row begins with an entry point.
    pub step: u32,
    /// Number of entry points in a row.
    pub a_row: u32,
    /// Number of whole rows before the last point.
    pub rows: u32,
}

impl Entries {
    /// Removes all points, and prepares for an image with `columns` columns of MCUs.
    pub(super) fn reset(&mut self, columns: u32, step: u32) {
        self.points.clear();
        self.step = step;
        self.a_row = columns.div_ceil(step);
        self.rows = 0;
    }

    /// Counts the rows once all points are stored.
    pub(super) fn settle(&mut self) {
        self.rows = (self.points.len().saturating_sub(1) / self.a_row.max(1) as usize) as u32;
    }
}

/// The hash that identifies an image.
///
/// For 110 kB it takes 9 us on a Zen 5. CRC-32C takes 4 us, BLAKE3 19 and SHA-256 60.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u64; 2]);

impl Key {
    /// The key of an image. `None` if the image's entry points are not stored.
    pub(super) fn new(bytes: &[u8], header: &Header, grid: &Grid) -> Option<Self> {
        // If restarts come in the middle of a row, the data would have to be cut there.
        let interval = u32::from(header.restart_interval_mcus);
        if bytes.len() > MAX_BYTES || interval % grid.columns != 0 || grid.most_points() < MIN_POINTS {
            return None;
        }
        Some(Self(HighwayHasher::new(process_key()).hash128(bytes)))
    }
}

/// The process's secret for [`Key`]: four outputs of SipHash, whose key std draws from the operating system's random
/// numbers.
fn process_key() -> highway::Key {
    static KEY: OnceLock<[u64; 4]> = OnceLock::new();
    let drawn = || {
        let state = RandomState::new();
        [0, 1, 2, 3].map(|word: u64| state.hash_one(word))
    };
    highway::Key(*KEY.get_or_init(drawn))
}

/// Entry points of many images, for all threads of a pipeline.
///
/// Entry points are stored until there is no more room. None are ever evicted, because in shuffled epochs every image
/// is equally likely to come next.
pub struct EntryPoints {
    limit_bytes: u64,
    kept: Mutex<Kept>,
}

/// Information about an image in [`EntryPoints`].
pub(super) struct Memory {
    /// Whether the image has been seen before.
    pub is_known: bool,
    /// Whether more points may be learned: there is room for all points that the image can have, and an attempt to
    /// learn all of them has not been made yet.
    pub can_learn: bool,
}

#[derive(Default)]
struct Kept {
    images: HashMap<Key, Known>,
    bytes: u64,
}

/// An image's entry points.
#[derive(Default, Clone)]
struct Known {
    /// Two words for each point's bit, and one for each component's DC coefficient.
    words: Arc<[u16]>,
    /// Whether there are no more points: an attempt to learn all of them has been made.
    is_final: bool,
}

impl std::fmt::Debug for EntryPoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryPoints").field("limit_bytes", &self.limit_bytes).finish_non_exhaustive()
    }
}

impl EntryPoints {
    /// A store for at most `limit_bytes` of memory.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, kept: Mutex::default() }
    }

    /// Largest number of bytes that the store takes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Finds the entry points of an image.
    pub(super) fn get(&self, key: &Key, grid: &Grid, entries: &mut Entries) -> Memory {
        entries.reset(grid.columns, grid.step());
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, bytes) = (kept.images.get(key).cloned(), kept.bytes);
        drop(kept);
        let most = grid.most_points() * (2 + grid.components) * size_of::<u16>();
        let has_room = bytes + OVERHEAD_BYTES + most as u64 <= self.limit_bytes;
        let Some(Known { words, is_final }) = known else { return Memory { is_known: false, can_learn: has_room } };
        entries.points.extend(words.chunks_exact(2 + grid.components).map(|point| {
            let mut dc = [0; 4];
            dc.iter_mut().zip(&point[2..]).for_each(|(dc, &word)| *dc = word as i16);
            EntryPoint { bit: u32::from(point[0]) << 16 | u32::from(point[1]), dc }
        }));
        entries.settle();
        Memory { is_known: true, can_learn: has_room && !is_final }
    }

    /// Stores the entry points of an image, if there is room and no more are stored already. If `points` is empty,
    /// stores that the image has been seen. `is_final` says that no more points can be learned.
    pub(super) fn put(&self, key: Key, grid: &Grid, points: &[EntryPoint], is_final: bool) {
        let words: Arc<[u16]> = points
            .iter()
            .flat_map(|point| {
                let dc = point.dc.iter().take(grid.components).map(|&dc| dc as u16);
                [(point.bit >> 16) as u16, point.bit as u16].into_iter().chain(dc)
            })
            .collect();
        let bytes = |words: &[u16]| OVERHEAD_BYTES + size_of_val(words) as u64;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.images.get(&key).map(|known| &*known.words);
        let (least, before) = known.map_or((0, 0), |words| (words.len(), bytes(words)));
        let after = kept.bytes - before + bytes(&words);
        if words.len() < least {
            // Two threads have learned the same image at the same time.
            kept.images.entry(key).and_modify(|known| known.is_final |= is_final);
        } else if after <= self.limit_bytes {
            kept.bytes = after;
            kept.images.insert(key, Known { words, is_final });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::jpeg::{How, JpegDecoder, Knew};
    use super::*;
    use crate::decode::{indexed, probe};
    use crate::encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg};
    use crate::raster::{Image, Pixel};
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    /// Partly smooth and partly noise, so that codes of all lengths occur.
    fn image(size: Size, rng: &mut ChaCha8Rng) -> Image {
        let mut image = Image::new(size);
        for y in 0..size.height {
            for (pixel, x) in image.row_mut(y).iter_mut().zip(0..) {
                let noise = if (x / 40 + y / 40) % 3 == 0 { rng.random::<u8>() / 2 } else { 0 };
                *pixel = [x + y, 2 * x + y / 2, 255 + y, 0].map(|value: u32| (value as u8).wrapping_add(noise));
            }
        }
        image
    }

    fn random_part(rng: &mut ChaCha8Rng, size: Size) -> Rect {
        let (x, y) = (rng.random_range(0..size.width), rng.random_range(0..size.height));
        Rect { x, y, width: rng.random_range(1..=size.width - x), height: rng.random_range(1..=size.height - y) }
    }

    fn decoded(
        decoder: &mut JpegDecoder,
        jpeg: &[u8],
        part: Rect,
        how: How<'_>,
    ) -> std::result::Result<(Vec<Pixel>, Knew), String> {
        let header = probe(jpeg).map_err(|error| error.to_string())?;
        let mut out = Image::default();
        let knew = decoder.decode(jpeg, &header, part, how, &mut out).map_err(|error| error.to_string())?;
        Ok((out.pixels().to_vec(), knew))
    }

    /// Decoders with lanes, if the processor supports them, and without.
    fn decoders() -> [JpegDecoder; 2] {
        let mut one_by_one = JpegDecoder::new().unwrap();
        one_by_one.without_lanes();
        [JpegDecoder::new().unwrap(), one_by_one]
    }

    #[test]
    fn what_is_remembered_changes_no_pixel() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let [mut lanes, mut one_by_one] = decoders();
        let mut known = 0;
        for (width, height) in [(131, 97), (300, 263), (400, 17), (64, 500), (777, 1100)] {
            let size = Size::new(width, height);
            let source = image(size, &mut rng);
            for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk, JpegColor::Ycck, JpegColor::Rgb] {
                for (horizontal, vertical) in [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (2, 4)] {
                    let quality = *[20, 75, 90, 98, 100].get(rng.random_range(0..5)).unwrap();
                    let restart_interval_rows = rng.random_range(0..4_u16).saturating_sub(1);
                    let sampling = ChromaSampling { horizontal, vertical };
                    let options =
                        JpegOptions { quality, sampling, color, restart_interval_rows, ..JpegOptions::default() };
                    // Four inks with the coarsest samplings have more blocks than an MCU may have.
                    let Ok(jpeg) = encode_jpeg(&source, &options) else { continue };
                    let memory = EntryPoints::new(1 << 20);
                    for round in 0..5 {
                        let part = if round == 4 { Rect::full(size) } else { random_part(&mut rng, size) };
                        let (want, _) = decoded(&mut lanes, &jpeg, part, How::default()).unwrap();
                        for decoder in [&mut lanes, &mut one_by_one] {
                            for accept_truncated in [false, true] {
                                let how = How { accept_truncated, entry_points: Some(&memory) };
                                let (got, knew) = decoded(decoder, &jpeg, part, how).unwrap();
                                assert!(got == want, "{options:?}, {part:?} of {size}, {knew:?}");
                                known += u32::from(knew == Knew::EntryPoints);
                            }
                        }
                    }
                }
            }
        }
        assert!(known > 1200, "{known}");
    }

    /// Faults of an image are found as if the image had never been seen, and a faulty image is not stored.
    #[test]
    fn damage_is_found_as_without_a_memory() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let [mut lanes, mut one_by_one] = decoders();
        let size = Size::new(300, 200);
        let jpeg = encode_jpeg(&image(size, &mut rng), &JpegOptions::default()).unwrap();
        let (scan, source_len) = (probe(&jpeg).unwrap().scan_offset_bytes, jpeg.len());
        let memory = EntryPoints::new(1 << 20);
        let (mut refused, mut taken) = (0, 0);
        for round in 0..300 {
            let mut jpeg = jpeg.clone();
            match round % 3 {
                0 => jpeg.truncate(rng.random_range(scan..jpeg.len())),
                1 => jpeg[rng.random_range(scan..source_len)] = rng.random(),
                _ => {}
            }
            for _ in 0..3 {
                let part = random_part(&mut rng, size);
                for accept_truncated in [false, true] {
                    let want = decoded(&mut lanes, &jpeg, part, How { accept_truncated, entry_points: None });
                    let want = want.map(|(pixels, _)| pixels);
                    for decoder in [&mut lanes, &mut one_by_one] {
                        let how = How { accept_truncated, entry_points: Some(&memory) };
                        let got = decoded(decoder, &jpeg, part, how).map(|(pixels, _)| pixels);
                        assert!(got == want, "round {round}, {part:?}: {:?} {:?}", got.err(), want.err());
                    }
                    *if want.is_ok() { &mut taken } else { &mut refused } += 1;
                }
            }
        }
        assert!(refused > 50 && taken > 800, "{refused} {taken}");
    }

    /// Points of other data, which only equal hashes could bring about, lead nowhere outside of memory, and lanes
    /// notice where a stretch ends.
    #[test]
    fn wrong_points_are_noticed_or_harmless() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let [mut lanes, mut one_by_one] = decoders();
        let size = Size::new(300, 200);
        let full = Rect::full(size);
        let jpeg = encode_jpeg(&image(size, &mut rng), &JpegOptions::default()).unwrap();
        let header = probe(&jpeg).unwrap();
        let grid = Grid::new(&header).unwrap();
        let key = Key::new(&jpeg, &header, &grid).unwrap();
        let memory = EntryPoints::new(1 << 20);
        let how = How { accept_truncated: false, entry_points: Some(&memory) };
        let (want, _) = decoded(&mut lanes, &jpeg, full, How::default()).unwrap();
        // Without lanes, nothing is learned if the whole image is needed.
        decoded(&mut lanes, &jpeg, Rect { width: 200, ..full }, how).unwrap();
        let mut entries = Entries::default();
        memory.get(&key, &grid, &mut entries);
        assert_eq!((entries.rows, entries.points.len()), (grid.rows, grid.most_points()));
        let mut noticed = 0;
        for round in 0..500 {
            let mut points = entries.points.clone();
            for _ in 0..=round % 3 {
                let at = rng.random_range(0..points.len());
                points[at].bit = match round % 4 {
                    0 => rng.random(),
                    1 => rng.random_range(0..9 * jpeg.len() as u32),
                    2 => points[at].bit ^ 1 << rng.random_range(0..20),
                    _ => points[rng.random_range(0..points.len())].bit,
                };
            }
            memory.put(key, &grid, &points, true);
            for decoder in [&mut lanes, &mut one_by_one] {
                let part = random_part(&mut rng, size);
                drop(decoded(decoder, &jpeg, part, how));
            }
            // The points may have been replaced.
            memory.put(key, &grid, &points, true);
            let (got, knew) = decoded(&mut lanes, &jpeg, full, how).unwrap();
            if lanes.has_lanes() && points != entries.points {
                // By chance, a code may end where the next one begins.
                if knew == Knew::Nothing {
                    noticed += 1;
                    assert!(got == want, "round {round}");
                    let again = decoded(&mut lanes, &jpeg, full, how).unwrap();
                    assert!(again == (got, Knew::EntryPoints), "round {round}: the right ones were learned");
                }
            }
        }
        assert!(!lanes.has_lanes() || noticed > 450, "{noticed}");
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let mut decoder = JpegDecoder::new().unwrap();
        let size = Size::new(320, 256);
        let jpegs = [(); 3].map(|()| encode_jpeg(&image(size, &mut rng), &JpegOptions::default()).unwrap());
        let grid = Grid::new(&probe(&jpegs[0]).unwrap()).unwrap();
        assert_eq!(grid.most_points(), 49);
        let memory = EntryPoints::new(2 * (OVERHEAD_BYTES + 49 * 10));
        let part = Rect { x: 0, y: 0, width: 300, height: 250 };
        let mut knew = || {
            jpegs.each_ref().map(|jpeg| {
                let how = How { accept_truncated: false, entry_points: Some(&memory) };
                decoded(&mut decoder, jpeg, part, how).unwrap().1
            })
        };
        assert_eq!(knew(), [Knew::Nothing; 3]);
        assert_eq!(knew(), [Knew::EntryPoints, Knew::EntryPoints, Knew::Nothing]);
        let kept = memory.kept.lock().unwrap();
        assert!(kept.images.len() == 2 && kept.bytes <= memory.limit_bytes, "{}", kept.bytes);
    }

    /// When an image is decoded further than it is known for the second time, all of its points are learned.
    #[test]
    fn twice_is_enough_to_know_an_image() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let size = Size::new(320, 256);
        let jpeg = encode_jpeg(&image(size, &mut rng), &JpegOptions::default()).unwrap();
        for mut decoder in decoders() {
            let memory = EntryPoints::new(1 << 20);
            let how = How { accept_truncated: false, entry_points: Some(&memory) };
            let mut knew = |y, height| {
                let part = Rect { x: 9, y, width: 200, height };
                decoded(&mut decoder, &jpeg, part, how).unwrap().1
            };
            assert_eq!(knew(20, 10), Knew::Nothing);
            assert_eq!(knew(0, 10), Knew::EntryPoints);
            assert_eq!(knew(100, 10), Knew::Nothing);
            assert_eq!(knew(200, 56), Knew::EntryPoints);
        }
    }

    /// An image's own index is used until its entry points are known, or if there is no room for them.
    #[test]
    fn an_index_serves_the_first_time() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let size = Size::new(320, 256);
        let options = JpegOptions { restart_interval_rows: 1, ..JpegOptions::default() };
        let jpeg = indexed(&encode_jpeg(&image(size, &mut rng), &options).unwrap()).unwrap();
        for mut decoder in decoders() {
            let (roomy, full) = (EntryPoints::new(1 << 20), EntryPoints::new(10));
            let mut knew = |memory| {
                let part = random_part(&mut rng, Size::new(200, 200));
                let (want, _) = decoded(&mut decoder, &jpeg, part, How::default()).unwrap();
                let how = How { accept_truncated: false, entry_points: Some(memory) };
                let (got, knew) = decoded(&mut decoder, &jpeg, part, how).unwrap();
                assert!(got == want);
                knew
            };
            let order = [Knew::Rows, Knew::Nothing, Knew::EntryPoints, Knew::EntryPoints];
            assert_eq!(order.map(|_| knew(&roomy)), order);
            assert_eq!([(); 3].map(|()| knew(&full)), [Knew::Rows; 3]);
        }
    }
}
