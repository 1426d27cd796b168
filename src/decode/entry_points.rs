//! Entry points: where decoding of a baseline JPEG can begin, in the middle of its data.
//!
//! Codes have different lengths, and a DC coefficient is the difference to the one before, so whoever wants a part of an
//! image has to walk through all codes in front of it. An entry point is what has been found out on the way: at which bit
//! an MCU begins, and each component's last DC coefficient there. A pipeline keeps them from the first time it decodes an
//! image, one about every 128 pixels. From then on it passes over what a crop does not need, and decodes several stretches
//! at a time ([`lanes`](super::lanes)). They take about a hundredth of the encoded image's bytes.
//!
//! An image is known by a hash of all its bytes, so a file that was changed or damaged since is decoded as one that nothing
//! is known of. What is passed over has been decoded before, and no damage goes unnoticed that was noticed without entry
//! points. The hash is HighwayHash under a key that each process draws: whoever supplies images can't make two that share
//! entry points, which would change an image's pixels in silence. Checksums do not do: they are linear, so bytes can be
//! chosen that give any of them.
//!
//! Entry points are learned only from data in which each byte means something. JPEG allows others: fill bytes (0xFF) in
//! front of a stuffed 0xFF or of a marker, and bytes that are left over in front of a restart marker. Such images are
//! decoded from the front in every epoch ([`oddities`](super::oddities) makes some).

use super::Header;
use crate::raster::{Rect, Size};
use highway::{HighwayHash as _, HighwayHasher};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Pixels from one entry point to the next, if MCUs divide them.
const STEP_PX: u32 = 128;
/// Entry points below which there is nothing to gain by them.
const MIN_POINTS: usize = 8;
/// What an image's entry points take beside themselves, counted generously.
const OVERHEAD_BYTES: u64 = 96;
/// So that 32 bits count those of the data.
pub(super) const MAX_BYTES: usize = 1 << 28;

/// `wf_entry_point` in `jpeg.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EntryPoint {
    /// Of the next MCU's first bit: 8 times its byte's offset in the file, and its place in that byte, 0 for the highest.
    pub bit: u32,
    /// Of each component: its last DC coefficient.
    pub dc: [i16; 4],
}

impl EntryPoint {
    /// The offset of the byte that the first bit is in.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn byte(self) -> usize {
        (self.bit / 8) as usize
    }
}

/// Where MCUs and entry points lie in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    /// An MCU's size in pixels.
    pub mcu: Size,
    pub columns: u32,
    pub rows: u32,
    pub components: usize,
}

impl Grid {
    /// `None` if the image can't have entry points.
    pub(super) fn new(header: &Header) -> Option<Self> {
        if !matches!(header.process, 0xC0 | 0xC1) {
            return None;
        }
        let components = usize::from(header.components);
        let factors = header.sampling.get(..components)?;
        let h = factors.iter().map(|&(h, _)| h).max()?;
        let v = factors.iter().map(|&(_, v)| v).max()?;
        // Of a single component with a sampling factor an MCU is less than what libjpeg decodes at a time.
        if h == 0 || v == 0 || (components == 1 && (h, v) != (1, 1)) {
            return None;
        }
        let mcu = Size::new(8 * u32::from(h), 8 * u32::from(v));
        let (columns, rows) = (header.size.width.div_ceil(mcu.width), header.size.height.div_ceil(mcu.height));
        Some(Self { mcu, columns, rows, components })
    }

    /// MCUs from one entry point to the next, where they are learned.
    pub(super) fn step(&self) -> u32 {
        (STEP_PX / self.mcu.width).max(1)
    }

    /// Points that are learned, at most.
    pub(super) fn most_points(&self) -> usize {
        self.rows as usize * self.columns.div_ceil(self.step()) as usize + 1
    }

    /// Whether a whole row or column of MCUs may be passed over for this rectangle. The row and the column beside it are
    /// needed to interpolate chroma.
    pub(super) fn has_rest(&self, part: Rect) -> bool {
        let Size { width, height } = self.mcu;
        part.y > height || part.x > width || part.right() + width < self.columns * width
    }

    /// One past the last row of MCUs that libjpeg decodes for this rectangle. Interpolation looks at a row of samples below.
    pub(super) fn rows_needed(&self, part: Rect) -> u32 {
        let margin = if self.mcu.height > 8 { self.mcu.height / 8 } else { 0 };
        (part.bottom() + margin).div_ceil(self.mcu.height).min(self.rows)
    }
}

/// Entry points of an image, row by row of MCUs, and one behind the last.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub points: Vec<EntryPoint>,
    /// MCUs from one to the next; the first of each row is one.
    pub step: u32,
    /// In a row.
    pub a_row: u32,
    /// Whole rows that lie before the last point.
    pub rows: u32,
}

impl Entries {
    /// Forgets all; those of an image with so many columns of MCUs are to follow.
    pub(super) fn reset(&mut self, columns: u32, step: u32) {
        self.points.clear();
        self.step = step;
        self.a_row = columns.div_ceil(step);
        self.rows = 0;
    }

    /// Counts the rows, once all points are there.
    pub(super) fn settle(&mut self) {
        self.rows = (self.points.len().saturating_sub(1) / self.a_row.max(1) as usize) as u32;
    }
}

/// The hash that an image is known by.
///
/// For 110 kB it takes 9 us on a Zen 5; CRC-32C takes 4, BLAKE3 19 and SHA-256 60.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u64; 2]);

impl Key {
    /// `None` if entry points of the image are not to be kept.
    pub(super) fn new(bytes: &[u8], header: &Header, grid: &Grid) -> Option<Self> {
        // Data with restarts in the middle of a row would have to be cut there.
        let interval = u32::from(header.restart_interval_mcus);
        if bytes.len() > MAX_BYTES || interval % grid.columns != 0 || grid.most_points() < MIN_POINTS {
            return None;
        }
        Some(Self(HighwayHasher::new(process_key()).hash128(bytes)))
    }
}

/// The process's secret for [`Key`]: four outputs of SipHash, whose key std takes from the operating system's random numbers.
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
/// They are kept until there is no more room. None are removed for others, since in shuffled epochs each image is as likely
/// to come next.
pub(crate) struct EntryPoints {
    limit_bytes: u64,
    kept: Mutex<Kept>,
}

/// What there is about an image in [`EntryPoints`].
pub(super) struct Memory {
    /// Whether it has been seen before.
    pub is_known: bool,
    /// Whether more points may be learned: there is room for all that the image can have, and they have not all been asked for
    /// in vain.
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
    /// Two words of each point's bit, and one of each component's DC coefficient.
    words: Arc<[u16]>,
    /// Whether there are no more than these: all were to be learned.
    is_final: bool,
}

impl std::fmt::Debug for EntryPoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryPoints").field("limit_bytes", &self.limit_bytes).finish_non_exhaustive()
    }
}

impl EntryPoints {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, kept: Mutex::default() }
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Finds those of an image.
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

    /// Keeps those of an image, if there is room and no more are known. Without any, that it has been seen. `is_final` says
    /// that no more can be learned.
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
            // One that is learned by two threads at a time.
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
    use crate::encode::{JpegColor, JpegOptions, Sampling, encode_jpeg};
    use crate::raster::{Image, Pixel};
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    /// Some of it smooth and some of it noise, so that codes of all lengths come.
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

    /// With lanes, where the processor has them, and without.
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
                    let sampling = Sampling { horizontal, vertical };
                    let options =
                        JpegOptions { quality, sampling, color, restart_interval_rows, ..JpegOptions::default() };
                    // Four inks at the coarsest samplings are more blocks than an MCU may have.
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

    /// What is wrong with an image is found as if it had never been seen; what was wrong is not remembered.
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

    /// Points that belong to other data, which only equal checksums could bring about, lead nowhere outside of memory; and
    /// lanes notice where a stretch ends.
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
        // Without lanes nothing is learned where all is needed.
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
            // They may have been replaced.
            memory.put(key, &grid, &points, true);
            let (got, knew) = decoded(&mut lanes, &jpeg, full, how).unwrap();
            if lanes.has_lanes() && points != entries.points {
                // By chance a code may end where the next one begins.
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

    /// The second time that an image is decoded further than it was known, all of it is learned.
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

    /// An image's own index serves until its entry points are known, or where there is no room for them.
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
