//! The store of entry points of many images, in memory and in a folder.
//!
//! The identity of an image is a hash of all its bytes (HighwayHash), so a changed file is an unknown image. Its key is
//! secret, so that whoever supplies images cannot make two that share entry points, which would silently change pixels.
//! Entry points are learned only from data in which every byte has a meaning. Images with fill bytes (0xFF) before a
//! stuffed 0xFF or a marker, or with unused bytes before a restart marker, are decoded from the front every time
//! (`oddities`).

use super::Header;
use super::entry_point_bytes::{from_bytes, to_bytes, with_starts};
use super::entry_point_folder::{EntryPointFolder, random_key};
use super::entry_point_segment::Record;
use super::entry_point_starts;
use super::entry_points::{EntryPoint, ImageEntryPoints, MAX_BYTES, McuGrid};
use super::pack_key::PackKey;
use highway::{HighwayHash as _, HighwayHasher};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Number of entry points below which they do not pay.
const MIN_POINTS: usize = 8;
/// Memory of an image's entry in addition to its points, as a generous estimate.
const OVERHEAD_BYTES: u64 = 96;
/// Largest number of bytes of entry points that a store with a folder has in memory.
const MAX_UNSAVED_BYTES: u64 = 512 << 20;
/// Bytes of new entry points from which on they are saved before the caller asks for it.
const SAVE_BYTES: u64 = 64 << 20;

/// The hash that identifies an image under a secret key.
///
/// For 110 kB it takes 9 us on a Zen 5. CRC-32C takes 4 us, BLAKE3 19 and SHA-256 60.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageKey([u64; 2]);

impl ImageKey {
    /// The first bits of the hash, fewer than 64.
    pub(super) fn first_bits(&self, bits: u32) -> u64 {
        self.0[0].checked_shr(64 - bits).unwrap_or(0)
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.0[1]) << 64 | u128::from(self.0[0])).to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Self([number as u64, (number >> 64) as u64])
    }
}

/// The secret key of stores without a folder.
fn process_key() -> [u64; 4] {
    static KEY: OnceLock<[u64; 4]> = OnceLock::new();
    *KEY.get_or_init(random_key)
}

/// Entry points of many images: a store that the caller keeps and shares between threads and decoders. It changes no
/// pixel, and hides no damage that is noticed without it.
///
/// A decoder with a store ([`DecodeOptions::entry_points`](super::DecodeOptions)) records where in a baseline JPEG it
/// can begin. It needs no names: an image is known by a hash of its bytes. Later decodes of this image skip what a
/// rectangle does not need. Entry points are stored until there is no more room. None are ever evicted from memory,
/// because in shuffled epochs every image is equally likely to come next. They take less than a hundredth of the
/// images' encoded bytes.
///
/// ```
/// use warpfeed_image::decode::{DecodeOptions, Decoder, EntryPointStore, PriorKnowledge, probe};
/// use warpfeed_image::{Image, JpegOptions, Rect, Size, encode_jpeg};
///
/// let bytes = encode_jpeg(&Image::new(Size::new(640, 480)), &JpegOptions::default())?;
/// let (header, part) = (probe(&bytes)?, Rect { x: 300, y: 200, width: 224, height: 224 });
/// let store = EntryPointStore::new(64 << 20);
/// let options = DecodeOptions { entry_points: Some(&store), ..DecodeOptions::default() };
/// let (mut decoder, mut image) = (Decoder::new()?, Image::default());
/// let first = decoder.decode_with(&bytes, &header, part, options, &mut image)?;
/// assert_eq!(first, PriorKnowledge::Nothing);
/// let later = decoder.decode_with(&bytes, &header, part, options, &mut image)?;
/// assert_eq!(later, PriorKnowledge::EntryPoints);
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
pub struct EntryPointStore {
    /// Largest number of bytes in memory.
    limit_bytes: u64,
    kept: Mutex<StoredImages>,
    folder: Option<Arc<EntryPointFolder>>,
    pack_key: Option<PackKey>,
    /// Whether starts for a device are stored with entry points.
    has_starts: OnceLock<bool>,
    /// Whether saving has failed, so that only [`save`](Self::save) tries it again.
    has_failed: AtomicBool,
    /// Reason why the points in memory are not in a folder.
    failure: Mutex<Option<String>>,
}

/// Information about an image in [`EntryPoints`].
pub(super) struct StoreAnswer {
    /// Whether the image has been seen before.
    pub is_known: bool,
    /// Whether more points may be learned: there is room for all points that the image can have, and an attempt to
    /// learn all of them has not been made yet.
    pub can_learn: bool,
    /// Whether there is room for all points that the image can have.
    pub has_room: bool,
}

/// Size of a store: see [`EntryPointStore::usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryPointUsage {
    /// Images with entry points in memory, which are not in the folder yet.
    pub unsaved_images: u64,
    /// Bytes of memory that they take.
    pub unsaved_bytes: u64,
    /// Entries in the folder. An image may have more than one.
    pub saved_images: u64,
    /// Bytes of the folder's files.
    pub saved_bytes: u64,
}

#[derive(Default)]
struct StoredImages {
    images: HashMap<ImageKey, StoredImage>,
    bytes: u64,
}

impl StoredImages {
    /// Stores an image, if there is room and no more is stored already. A final image replaces a stored one.
    fn put(&mut self, key: ImageKey, image: StoredImage, limit_bytes: u64) {
        let known = self.images.get(&key).map(|known| &*known.points);
        let (least, before) = known.map_or((0, 0), |points| (points.len(), stored_bytes(points)));
        let after = self.bytes - before + stored_bytes(&image.points);
        if image.points.len() < least && !image.is_final {
            // Two threads have learned the same image at the same time.
            return;
        }
        if after <= limit_bytes {
            self.bytes = after;
            self.images.insert(key, image);
        }
    }
}

/// An image's entry points.
#[derive(Clone)]
struct StoredImage {
    /// The points in the form of `entry_point_bytes`.
    points: Arc<[u8]>,
    /// Whether there are no more points: an attempt to learn all of them has been made.
    is_final: bool,
}

fn stored_bytes(points: &[u8]) -> u64 {
    OVERHEAD_BYTES + points.len() as u64
}

impl std::fmt::Debug for EntryPointStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryPointStore")
            .field("limit_bytes", &self.limit_bytes)
            .field("folder", &self.folder())
            .finish_non_exhaustive()
    }
}

impl Drop for EntryPointStore {
    /// Saves the points that are not in the folder yet. [`save`](Self::save) reports failures.
    fn drop(&mut self) {
        let _ = self.save();
    }
}

impl EntryPointStore {
    /// A store for at most `limit_bytes` of memory.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        let (folder, has_starts, has_failed) = (None, OnceLock::new(), AtomicBool::new(false));
        let (kept, failure) = (Mutex::default(), Mutex::default());
        Self { limit_bytes, kept, folder, pack_key: None, has_starts, has_failed, failure }
    }

    /// This store, which also trusts the entry points that were put into images under this key
    /// ([`Decoder::with_entry_points`](super::Decoder::with_entry_points)).
    #[must_use]
    pub fn with_pack_key(mut self, key: PackKey) -> Self {
        self.pack_key = Some(key);
        self
    }

    pub(super) fn pack_key(&self) -> Option<&PackKey> {
        self.pack_key.as_ref()
    }

    /// A store that keeps entry points in the files of a folder, from one process to the next, and shares them with all
    /// processes that use the folder. New points are in memory, at most 512 MiB, until they are saved. The files take
    /// at most `limit_bytes`. If a folder of many data sets is full, files that this process has not used are removed,
    /// the longest unused first.
    ///
    /// Files are found by a secret key in the folder, which makes it impossible to supply two images that share entry
    /// points. Whoever can write to the folder can change pixels: give it to one user, or to users who trust each
    /// other. Damaged files, and files made with another key, are ignored.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("warpfeed-doc-{}", std::process::id()));
    /// use warpfeed_image::decode::{DecodeOptions, Decoder, EntryPointStore, PriorKnowledge, probe};
    /// use warpfeed_image::{Image, JpegOptions, Rect, Size, encode_jpeg};
    ///
    /// let bytes = encode_jpeg(&Image::new(Size::new(640, 480)), &JpegOptions::default())?;
    /// let (header, part) = (probe(&bytes)?, Rect { x: 300, y: 200, width: 224, height: 224 });
    /// let (mut decoder, mut image) = (Decoder::new()?, Image::default());
    /// for knew in [PriorKnowledge::Nothing, PriorKnowledge::EntryPoints] {
    ///     let store = EntryPointStore::in_folder(&folder, 4 << 30)?;
    ///     let options = DecodeOptions { entry_points: Some(&store), ..DecodeOptions::default() };
    ///     assert_eq!(decoder.decode_with(&bytes, &header, part, options, &mut image)?, knew);
    ///     store.save()?;
    /// }
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An error of the file system if the folder cannot be read, or has no key and cannot be written.
    pub fn in_folder(folder: impl AsRef<Path>, limit_bytes: u64) -> io::Result<Self> {
        let folder = EntryPointFolder::open(folder.as_ref(), limit_bytes)?;
        let mut store = Self::new(limit_bytes.min(MAX_UNSAVED_BYTES));
        store.folder = Some(Arc::new(folder));
        Ok(store)
    }

    /// Decides whether places between entry points are stored too, at which the threads of a device can start. Entry
    /// points alone take a hundredth of a photograph's bytes, with these places a fortieth. Only the first call counts;
    /// without any, they are not stored.
    pub fn for_devices(&self, yes: bool) {
        let _ = self.has_starts.set(yes);
    }

    fn has_starts(&self) -> bool {
        self.has_starts.get().is_some_and(|&yes| yes)
    }

    /// Number of MCUs from one place that is to be learned to the next.
    pub(super) fn learned_step(&self, grid: &McuGrid) -> u32 {
        if self.has_starts() { 1 } else { grid.step() }
    }

    /// The folder in which entry points are kept.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(|folder| folder.path())
    }

    /// Notes why this store has no folder, or trusts no packed points ([`failure`](Self::failure)).
    #[must_use]
    pub fn with_failure(self, failure: String) -> Self {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        self
    }

    /// Reason why points in memory could not be saved to the folder, or the reason that
    /// [`with_failure`](Self::with_failure) has noted.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Largest number of bytes that the store takes in memory.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Size of the store.
    #[must_use]
    pub fn usage(&self) -> EntryPointUsage {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (unsaved_images, unsaved_bytes) = (kept.images.len() as u64, kept.bytes);
        drop(kept);
        let (saved_images, saved_bytes) = self.folder.as_ref().map_or((0, 0), |folder| folder.usage());
        EntryPointUsage { unsaved_images, unsaved_bytes, saved_images, saved_bytes }
    }

    /// Moves new points from memory to a file of the folder; does nothing without a folder. Call it when an epoch ends.
    /// A file appears whole or not at all. After an error everything is in memory as before.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn save(&self) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let images = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.bytes = 0;
            std::mem::take(&mut kept.images)
        };
        if images.is_empty() {
            return Ok(());
        }
        let record = |(key, StoredImage { points, is_final })| Record { key, points, is_final };
        let mut records: Vec<_> = images.into_iter().map(record).collect();
        let saved = folder.add(&mut records);
        self.has_failed.store(saved.is_err() || !records.is_empty(), Ordering::Relaxed);
        if let Err(error) = &saved {
            let failure = format!("{} cannot be written: {error}", folder.path().display());
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for Record { key, points, is_final } in records {
            kept.put(key, StoredImage { points, is_final }, self.limit_bytes);
        }
        saved
    }

    /// The key of an image. `None` if the image's entry points are not stored.
    pub(super) fn key(&self, bytes: &[u8], header: &Header, grid: &McuGrid) -> Option<ImageKey> {
        // If restarts come in the middle of a row, the data would have to be cut there.
        let interval = u32::from(header.restart_interval_mcus);
        if bytes.len() > MAX_BYTES || interval % grid.columns != 0 || grid.most_points() < MIN_POINTS {
            return None;
        }
        let key = self.folder.as_ref().map_or_else(process_key, |folder| folder.key);
        Some(ImageKey(HighwayHasher::new(highway::Key(key)).hash128(bytes)))
    }

    /// Finds the entry points of an image.
    pub(super) fn get(
        &self,
        key: &ImageKey,
        header: &Header,
        grid: &McuGrid,
        entries: &mut ImageEntryPoints,
    ) -> StoreAnswer {
        entries.reset(grid.columns, grid.step());
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, bytes) = (kept.images.get(key).cloned(), kept.bytes);
        drop(kept);
        let mut most = grid.most_points() * (4 + 2 * grid.components);
        if self.has_starts() {
            most += 3 * grid.columns as usize * grid.rows as usize;
        }
        let has_room = bytes + OVERHEAD_BYTES + most as u64 <= self.limit_bytes;
        let mut buffer = std::mem::take(&mut entries.buffer);
        let found = match &known {
            Some(StoredImage { points, is_final }) => Some((&**points, *is_final)),
            None => {
                let found = self.folder.as_ref().and_then(|folder| folder.find(key, &mut buffer));
                found.map(|(place, is_final)| (&buffer[place], is_final))
            }
        };
        let answer = match found {
            Some((points, is_final)) if from_bytes(points, grid, header.scan_offset_bytes, entries).is_some() => {
                StoreAnswer { is_known: true, can_learn: has_room && !is_final, has_room }
            }
            _ => {
                entries.reset(grid.columns, grid.step());
                StoreAnswer { is_known: false, can_learn: has_room, has_room }
            }
        };
        entries.buffer = buffer;
        answer
    }

    /// Stores the entry points of an image, if there is room and no more are stored already. With the points comes the
    /// number of MCUs from one to the next. If there are none, stores that the image has been seen. `is_final` says
    /// that no more points can be learned.
    pub(super) fn put(
        &self,
        key: ImageKey,
        header: &Header,
        grid: &McuGrid,
        (points, step): (&[EntryPoint], u32),
        is_final: bool,
    ) {
        self.put_bytes(key, to_bytes(points, step, grid, header.scan_offset_bytes), is_final);
    }

    /// Stores the entry points of an image as [`put`](Self::put) does, and chooses starts. `mcus` are the places of all
    /// MCUs of the first rows, and of their end.
    pub(super) fn put_with_starts(
        &self,
        key: ImageKey,
        scan_offset_bytes: usize,
        grid: &McuGrid,
        mcus: &[EntryPoint],
        is_final: bool,
    ) {
        let bits: Vec<u32> = mcus.iter().map(|mcu| mcu.bit).collect();
        let dc = at_points(mcus, grid).map(|point| point.dc);
        self.put_places(key, scan_offset_bytes, grid, (&bits, dc), is_final);
    }

    /// Does the same with the bits of MCUs, and the DC coefficients at points.
    pub(super) fn put_places(
        &self,
        key: ImageKey,
        scan_offset_bytes: usize,
        grid: &McuGrid,
        (bits, dc): (&[u32], impl Iterator<Item = [i16; 4]>),
        is_final: bool,
    ) {
        let step = grid.step();
        let points = at_points(bits, grid).zip(dc).map(|(&bit, dc)| EntryPoint { bit, dc });
        let points: Vec<_> = points.collect();
        let mut bytes = to_bytes(&points, step, grid, scan_offset_bytes);
        if !points.is_empty() {
            bytes = with_starts(&bytes, &entry_point_starts::to_bytes(bits, &points, grid, step));
        }
        self.put_bytes(key, bytes, is_final);
    }

    /// Stores points as bytes of `entry_point_bytes`.
    pub(super) fn put_bytes(&self, key: ImageKey, points: Vec<u8>, is_final: bool) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.put(key, StoredImage { points: points.into(), is_final }, self.limit_bytes);
        let is_much = kept.bytes >= SAVE_BYTES.min(self.limit_bytes / 2);
        drop(kept);
        if is_much && self.folder.is_some() && !self.has_failed.load(Ordering::Relaxed) {
            // What cannot be saved stays in memory.
            let _ = self.save();
        }
    }
}

/// Values at entry points, from values for all MCUs of whole rows, and for their end. None if the rows are not whole.
pub(super) fn at_points<'a, T>(mcus: &'a [T], grid: &McuGrid) -> impl Iterator<Item = &'a T> {
    let (columns, step) = (grid.columns as usize, grid.step() as usize);
    let whole = mcus.split_last().filter(|(_, rows)| rows.len().is_multiple_of(columns));
    whole
        .into_iter()
        .flat_map(move |(end, rows)| rows.chunks(columns).flat_map(move |row| row.iter().step_by(step)).chain([end]))
}

#[cfg(test)]
mod tests {
    use super::super::jpeg::{DecodeOptions, JpegDecoder, PriorKnowledge};
    use super::*;
    use crate::decode::{indexed, probe};
    use crate::encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg};
    use crate::raster::{Image, Pixel, Rect, Size};
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
        how: DecodeOptions<'_>,
    ) -> std::result::Result<(Vec<Pixel>, PriorKnowledge), String> {
        let header = probe(jpeg).map_err(|error| error.to_string())?;
        let mut out = Image::default();
        let knew = decoder.decode(jpeg, &header, part, how, &mut out).map_err(|error| error.to_string())?;
        Ok((out.pixels().to_vec(), knew))
    }

    /// Decoders with lanes of the best kind and with AVX2's, if the processor supports them, and without.
    fn decoders() -> [JpegDecoder; 3] {
        let mut one_by_one = JpegDecoder::new().unwrap();
        one_by_one.without_lanes();
        [JpegDecoder::new().unwrap(), JpegDecoder::with_avx2().unwrap(), one_by_one]
    }

    #[test]
    fn what_is_remembered_changes_no_pixel() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let [mut lanes, mut narrow, mut one_by_one] = decoders();
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
                    let memory = EntryPointStore::new(1 << 20);
                    for round in 0..5 {
                        let part = if round == 4 { Rect::full(size) } else { random_part(&mut rng, size) };
                        let (want, _) = decoded(&mut lanes, &jpeg, part, DecodeOptions::default()).unwrap();
                        for decoder in [&mut lanes, &mut narrow, &mut one_by_one] {
                            for accept_truncated in [false, true] {
                                let how = DecodeOptions { accept_truncated, entry_points: Some(&memory) };
                                let (got, knew) = decoded(decoder, &jpeg, part, how).unwrap();
                                assert!(got == want, "{options:?}, {part:?} of {size}, {knew:?}");
                                known += u32::from(knew == PriorKnowledge::EntryPoints);
                            }
                        }
                    }
                }
            }
        }
        assert!(known > 1200, "{known}");
    }

    #[test]
    fn images_narrower_than_a_step_use_their_points() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let [mut lanes, _, mut one_by_one] = decoders();
        for width in [5, 64, 100, 127] {
            let source = image(Size::new(width, 900), &mut rng);
            let part = Rect { x: 0, y: 600, width, height: 200 };
            for sampling in [ChromaSampling::S444, ChromaSampling::S422, ChromaSampling::S420] {
                let jpeg = encode_jpeg(&source, &JpegOptions { sampling, ..JpegOptions::default() }).unwrap();
                let (want, _) = decoded(&mut one_by_one, &jpeg, part, DecodeOptions::default()).unwrap();
                for dense in [false, true] {
                    let memory = EntryPointStore::new(1 << 20);
                    memory.for_devices(dense);
                    let how = DecodeOptions { entry_points: Some(&memory), ..DecodeOptions::default() };
                    let (got, knew) = decoded(&mut one_by_one, &jpeg, part, how).unwrap();
                    assert!(got == want && knew == PriorKnowledge::Nothing, "{width} {sampling:?} {dense}");
                    for decoder in [&mut one_by_one, &mut lanes] {
                        let (got, knew) = decoded(decoder, &jpeg, part, how).unwrap();
                        assert!(got == want && knew == PriorKnowledge::EntryPoints, "{width} {sampling:?} {dense}");
                    }
                }
            }
        }
    }

    /// Parts of drafts have the pixels of the whole draft by libjpeg alone, with entry points and without.
    #[test]
    fn parts_of_drafts_are_those_of_the_whole_draft() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut libjpeg = JpegDecoder::ways().unwrap().libjpeg;
        let [mut lanes, mut narrow, mut one_by_one] = decoders();
        let (mut known, mut drafts) = (0, 0);
        for size in [(131, 97), (400, 17), (277, 500)].map(|(w, h)| Size::new(w, h)) {
            let source = image(size, &mut rng);
            for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Ycck, JpegColor::Rgb] {
                for (horizontal, vertical) in [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (2, 4)] {
                    let restart_interval_rows = rng.random_range(0..4_u16).saturating_sub(1);
                    let (quality, progressive) = (rng.random_range(20..=100), rng.random_ratio(1, 5));
                    let sampling = ChromaSampling { horizontal, vertical };
                    let options = JpegOptions {
                        quality,
                        sampling,
                        color,
                        restart_interval_rows,
                        progressive,
                        ..JpegOptions::default()
                    };
                    let Ok(jpeg) = encode_jpeg(&source, &options) else { continue };
                    let memory = EntryPointStore::new(1 << 20);
                    for denom in [2, 4, 8] {
                        let mut header = probe(&jpeg).unwrap();
                        header.draft(Size::new(size.width / denom, size.height / denom));
                        let small = Size::new(size.width.div_ceil(denom), size.height.div_ceil(denom));
                        assert_eq!((header.size, header.is_draft()), (small, true));
                        let mut decode = |decoder: &mut JpegDecoder, part, entry_points| {
                            let (how, mut out) =
                                (DecodeOptions { entry_points, ..DecodeOptions::default() }, Image::default());
                            let knew = decoder.decode(&jpeg, &header, part, how, &mut out).unwrap();
                            known += u32::from(knew == PriorKnowledge::EntryPoints);
                            out
                        };
                        let want = decode(&mut libjpeg, Rect::full(small), None);
                        for round in 0..3 {
                            let part = if round == 0 { Rect::full(small) } else { random_part(&mut rng, small) };
                            for decoder in [&mut lanes, &mut narrow, &mut one_by_one] {
                                for memory in [None, Some(&memory)] {
                                    let got = decode(decoder, part, memory);
                                    let rows = part.y..part.bottom();
                                    let row = |y| &want.row(y)[part.x as usize..part.right() as usize];
                                    let equal = rows.zip(0..).all(|(y, own)| row(y) == got.row(own));
                                    assert!(equal, "{options:?}, {part:?} of {small}, 1/{denom}");
                                    drafts += 1;
                                }
                            }
                        }
                    }
                }
            }
        }
        assert!(drafts > 2_000 && known > 100, "{drafts}, {known}");
    }

    /// Faults of an image are found as if the image had never been seen, and a faulty image is not stored.
    #[test]
    fn damage_is_found_as_without_a_memory() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let [mut lanes, mut narrow, mut one_by_one] = decoders();
        let size = Size::new(300, 200);
        let jpeg = encode_jpeg(&image(size, &mut rng), &JpegOptions::default()).unwrap();
        let (scan, source_len) = (probe(&jpeg).unwrap().scan_offset_bytes, jpeg.len());
        let memory = EntryPointStore::new(1 << 20);
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
                    let want = decoded(&mut lanes, &jpeg, part, DecodeOptions { accept_truncated, entry_points: None });
                    let want = want.map(|(pixels, _)| pixels);
                    for decoder in [&mut lanes, &mut narrow, &mut one_by_one] {
                        let how = DecodeOptions { accept_truncated, entry_points: Some(&memory) };
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
        let [mut lanes, mut narrow, mut one_by_one] = decoders();
        let size = Size::new(300, 200);
        let full = Rect::full(size);
        let jpeg = encode_jpeg(&image(size, &mut rng), &JpegOptions::default()).unwrap();
        let header = probe(&jpeg).unwrap();
        let grid = McuGrid::new(&header).unwrap();
        let memory = EntryPointStore::new(1 << 20);
        let key = memory.key(&jpeg, &header, &grid).unwrap();
        let how = DecodeOptions { accept_truncated: false, entry_points: Some(&memory) };
        let (want, _) = decoded(&mut lanes, &jpeg, full, DecodeOptions::default()).unwrap();
        // Without lanes, nothing is learned if the whole image is needed.
        decoded(&mut lanes, &jpeg, Rect { width: 200, ..full }, how).unwrap();
        let mut entries = ImageEntryPoints::default();
        memory.get(&key, &header, &grid, &mut entries);
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
            // Stored points lie in the data, and are in order.
            points.iter_mut().for_each(|point| point.bit = point.bit.max(8 * header.scan_offset_bytes as u32));
            points.sort_unstable_by_key(|point| point.bit);
            memory.put(key, &header, &grid, (&points, grid.step()), true);
            for decoder in [&mut lanes, &mut narrow, &mut one_by_one] {
                let part = random_part(&mut rng, size);
                drop(decoded(decoder, &jpeg, part, how));
            }
            // The points may have been replaced.
            memory.put(key, &header, &grid, (&points, grid.step()), true);
            let (got, knew) = decoded(&mut lanes, &jpeg, full, how).unwrap();
            if lanes.has_lanes() && points != entries.points {
                // By chance, a code may end where the next one begins.
                if knew == PriorKnowledge::Nothing {
                    noticed += 1;
                    assert!(got == want, "round {round}");
                    let again = decoded(&mut lanes, &jpeg, full, how).unwrap();
                    assert!(again == (got, PriorKnowledge::EntryPoints), "round {round}: the right ones were learned");
                }
            }
        }
        assert!(!lanes.has_lanes() || noticed > 450, "{noticed}");
    }

    /// A header that was changed, or is another image's, leads to no samples outside of memory. The image's second
    /// component has the finest sampling, and all codes are alike, so that entry points fit both headers.
    #[test]
    fn a_header_with_other_sampling_factors_changes_no_pixel() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let size = Size::new(300, 263);
        let options = JpegOptions { color: JpegColor::Rgb, ..JpegOptions::default() };
        let mut jpeg = encode_jpeg(&image(size, &mut rng), &options).unwrap();
        let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
        assert_eq!([jpeg[frame + 11], jpeg[frame + 14]], [0x22, 0x11]);
        (jpeg[frame + 11], jpeg[frame + 14]) = (0x11, 0x22);
        let header = probe(&jpeg).unwrap();
        let mut other = header.clone();
        other.sampling.swap(0, 1);
        for mut decoder in decoders() {
            let store = EntryPointStore::new(1 << 20);
            let options = DecodeOptions { accept_truncated: false, entry_points: Some(&store) };
            let mut decode = |header| {
                let mut out = Image::default();
                let knew = decoder.decode(&jpeg, header, Rect { width: 200, ..Rect::full(size) }, options, &mut out);
                (out, knew.unwrap())
            };
            let (want, _) = decode(&header);
            for header in [&other, &header, &other] {
                let (got, knew) = decode(header);
                assert!(got.pixels() == want.pixels(), "{:?}, {knew:?}", header.sampling);
            }
        }
    }

    /// A folder serves the first decode of the next process, and changes no pixel, whatever has become of its files.
    #[test]
    fn a_folder_serves_the_next_process() {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let size = Size::new(300, 263);
        let part = Rect { x: 100, y: 90, width: 150, height: 150 };
        let folder = std::env::temp_dir().join(format!("warpfeed-store-{}", std::process::id()));
        let open = || EntryPointStore::in_folder(&folder, 1 << 30).unwrap();
        let images = [JpegColor::Ycc, JpegColor::Rgb, JpegColor::Cmyk].map(|color| {
            let options = JpegOptions { color, ..JpegOptions::default() };
            encode_jpeg(&image(size, &mut rng), &options).unwrap()
        });
        for mut decoder in decoders() {
            let want =
                images.each_ref().map(|jpeg| decoded(&mut decoder, jpeg, part, DecodeOptions::default()).unwrap().0);
            let mut knew = |store: &EntryPointStore| {
                let how = DecodeOptions { accept_truncated: false, entry_points: Some(store) };
                let knew = images.iter().zip(&want).map(|(jpeg, want)| {
                    let (got, knew) = decoded(&mut decoder, jpeg, part, how).unwrap();
                    assert!(got == *want, "{knew:?}");
                    knew
                });
                knew.collect::<Vec<_>>()
            };
            let first = open();
            assert_eq!(knew(&first), [PriorKnowledge::Nothing; 3]);
            let unsaved = first.usage();
            assert_eq!((unsaved.unsaved_images, unsaved.saved_images), (3, 0));
            assert_eq!(knew(&first), [PriorKnowledge::EntryPoints; 3]);
            // Dropping a store saves it.
            drop(first);
            let second = open();
            assert_eq!(knew(&second), [PriorKnowledge::EntryPoints; 3]);
            assert_eq!((second.usage().unsaved_images, second.usage().saved_images), (0, 3));
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.extension() == Some("points".as_ref()) {
                    let mut bytes = std::fs::read(&path).unwrap();
                    bytes[90..].iter_mut().for_each(|byte| *byte ^= rng.random::<u8>() & 0x11);
                    std::fs::write(path, bytes).unwrap();
                }
            }
            assert_eq!(knew(&second), [PriorKnowledge::Nothing; 3]);
            drop(second);
            assert_eq!(knew(&open()), [PriorKnowledge::EntryPoints; 3]);
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let mut decoder = JpegDecoder::new().unwrap();
        let size = Size::new(320, 256);
        let jpegs = [(); 3].map(|()| encode_jpeg(&image(size, &mut rng), &JpegOptions::default()).unwrap());
        let grid = McuGrid::new(&probe(&jpegs[0]).unwrap()).unwrap();
        assert_eq!(grid.most_points(), 49);
        let memory = EntryPointStore::new(2 * (OVERHEAD_BYTES + 49 * 10));
        let part = Rect { x: 0, y: 0, width: 300, height: 250 };
        let mut knew = || {
            jpegs.each_ref().map(|jpeg| {
                let how = DecodeOptions { accept_truncated: false, entry_points: Some(&memory) };
                decoded(&mut decoder, jpeg, part, how).unwrap().1
            })
        };
        assert_eq!(knew(), [PriorKnowledge::Nothing; 3]);
        assert_eq!(knew(), [PriorKnowledge::EntryPoints, PriorKnowledge::EntryPoints, PriorKnowledge::Nothing]);
        let kept = memory.kept.lock().unwrap();
        assert!(kept.images.len() == 2 && kept.bytes <= memory.limit_bytes, "{}", kept.bytes);
    }

    /// When another part of an image is decoded, all points after the known ones are learned. They are those of a walk
    /// from the front.
    #[test]
    fn twice_is_enough_to_know_an_image() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let size = Size::new(320, 256);
        for (restart_interval_rows, sampling) in
            [(0, ChromaSampling::S420), (1, ChromaSampling::S444), (2, ChromaSampling::S420), (3, ChromaSampling::S422)]
        {
            let options = JpegOptions { restart_interval_rows, sampling, ..JpegOptions::default() };
            let jpeg = encode_jpeg(&image(size, &mut rng), &options).unwrap();
            let header = probe(&jpeg).unwrap();
            let grid = McuGrid::new(&header).unwrap();
            let points = |store: &EntryPointStore| {
                let mut entries = ImageEntryPoints::default();
                let answer = store.get(&store.key(&jpeg, &header, &grid).unwrap(), &header, &grid, &mut entries);
                (entries.points, answer.can_learn)
            };
            let all = EntryPointStore::new(1 << 20);
            let how = DecodeOptions { accept_truncated: false, entry_points: Some(&all) };
            let whole = Rect { x: 0, y: 0, width: 300, height: 256 };
            let want = decoded(&mut JpegDecoder::new().unwrap(), &jpeg, whole, how).unwrap().0;
            for mut decoder in decoders() {
                let memory = EntryPointStore::new(1 << 20);
                let how = DecodeOptions { accept_truncated: false, entry_points: Some(&memory) };
                let mut knew = |part| decoded(&mut decoder, &jpeg, part, how).unwrap();
                let first = Rect { x: 9, y: 20, width: 200, height: rng.random_range(1..200) };
                assert_eq!(knew(first).1, PriorKnowledge::Nothing);
                // The same part again, as in every epoch of an evaluation, needs no more.
                assert_eq!(knew(first).1, PriorKnowledge::EntryPoints);
                assert!(points(&memory).1);
                assert!(knew(whole) == (want.clone(), PriorKnowledge::EntryPoints));
                assert_eq!(points(&memory), (points(&all).0, false), "{options:?}, {first:?}");
            }
        }
    }

    /// Damage after the known part is noticed when it is needed, and not before.
    #[test]
    fn what_cannot_be_learned_of_the_rest_is_not_tried_again() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let size = Size::new(320, 256);
        let mut jpeg = encode_jpeg(&image(size, &mut rng), &JpegOptions::default()).unwrap();
        let len = jpeg.len();
        // The data end before the image is complete.
        jpeg[len * 3 / 4..][..2].copy_from_slice(&[0xFF, 0xD9]);
        let header = probe(&jpeg).unwrap();
        let grid = McuGrid::new(&header).unwrap();
        for mut decoder in decoders() {
            let memory = EntryPointStore::new(1 << 20);
            let mut decode = |height, entry_points| {
                let part = Rect { x: 9, y: 0, width: 200, height };
                decoded(&mut decoder, &jpeg, part, DecodeOptions { accept_truncated: false, entry_points })
            };
            for height in [90, 60, 90, 256] {
                let want = decode(height, None).map(|(pixels, _)| pixels);
                assert_eq!(want.is_ok(), height < 256);
                assert_eq!(decode(height, Some(&memory)).map(|(pixels, _)| pixels), want);
            }
            let key = memory.key(&jpeg, &header, &grid).unwrap();
            let answer = memory.get(&key, &header, &grid, &mut ImageEntryPoints::default());
            assert!(answer.is_known && !answer.can_learn);
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
            let (roomy, full) = (EntryPointStore::new(1 << 20), EntryPointStore::new(10));
            let mut knew = |memory| {
                let part = random_part(&mut rng, Size::new(200, 200));
                let (want, _) = decoded(&mut decoder, &jpeg, part, DecodeOptions::default()).unwrap();
                let how = DecodeOptions { accept_truncated: false, entry_points: Some(memory) };
                let (got, knew) = decoded(&mut decoder, &jpeg, part, how).unwrap();
                assert!(got == want);
                knew
            };
            let order = [
                PriorKnowledge::RowIndex,
                PriorKnowledge::Nothing,
                PriorKnowledge::EntryPoints,
                PriorKnowledge::EntryPoints,
            ];
            assert_eq!(order.map(|_| knew(&roomy)), order);
            assert_eq!([(); 3].map(|()| knew(&full)), [PriorKnowledge::RowIndex; 3]);
        }
    }
}
