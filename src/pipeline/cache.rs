//! The image cache: decoded images that are kept from one epoch to the next ([`ImageCache`]), in memory as RGB pixels,
//! on disk as PNM files with a checksum. With the composed strategy it holds the image before the last operations that
//! are multiplied with the following ones.

use super::recipes::Recipes;
use super::stats::Counters;
use crate::apply::opening::Stored;
use crate::backend::{Given, HeldImage, WorkStats};
use crate::decode::{Header, Input, Pixels, pnm_header};
use crate::error::{Error, Result};
use crate::hex::hex;
use crate::ops::Op;
use crate::os::memory;
use crate::os::{atomic, file};
use crate::plan::{Planner, Strategy};
use crate::raster::Size;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Version of the cached format, a part of every key.
const VERSION: u32 = 1;
/// Generous bound of the bytes that a cached image takes besides its pixels, for its entries in two tables.
const ENTRY_BYTES: u64 = 256;

/// A cache of decoded images: its place and size.
///
/// It holds the result of decoding and of the leading deterministic operations, 3 bytes a pixel. If the pipeline begins
/// with `resize_shorter(256)`, the resized image is cached; if it begins with a random operation, the whole decoded
/// image. Batches are the same with and without a cache.
///
/// Images are cached until the cache is full. None is evicted, since in shuffled epochs each is equally likely to come
/// next. An image is found by the SHA-256 of its encoded bytes and of the operations done to it, so a changed file or
/// another operation never finds an old image. A source of random access is read only once for a cached image: it must
/// not change while the pipeline is in use.
///
/// ```
/// use warpfeed::prelude::*;
/// use warpfeed::{ImageCache, image::{Image, JpegOptions, encode_jpeg}};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(60, 50)), &JpegOptions::default())?;
/// let source = || EncodedImages::new((0..4).map(|label| (jpeg.clone(), label)));
/// let builder = || Pipeline::builder(source()).transform(Resize::shorter_side(40)).transform(random_resized_crop(32));
/// let cached = builder().cache(ImageCache::memory(1 << 20)).build()?;
/// let plain = builder().build()?;
/// for epoch in 0..2 {
///     for (a, b) in cached.epoch(epoch).zip(plain.epoch(epoch)) {
///         assert_eq!(a?.images().as_bytes()?, b?.images().as_bytes()?);
///     }
/// }
/// // All four are the same image, kept once.
/// assert_eq!(cached.cache_usage().unwrap().images, 1);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCache {
    /// `None`: in memory.
    folder: Option<PathBuf>,
    size_bytes: u64,
}

impl ImageCache {
    /// A cache in memory that lives as long as the pipeline.
    #[must_use]
    pub fn memory(size_bytes: u64) -> Self {
        Self { folder: None, size_bytes }
    }

    /// A cache in a folder, which is made if it is missing and may be removed at any time. Images from earlier
    /// processes are used, and count towards its size. Processes that fill it at the same time do not count each
    /// other's new images. It also takes up to 100 bytes of memory per sample.
    #[must_use]
    pub fn disk(folder: impl Into<PathBuf>, size_bytes: u64) -> Self {
        Self { folder: Some(folder.into()), size_bytes }
    }

    /// Largest number of bytes of memory that the cache takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        if self.folder.is_none() { self.size_bytes } else { 0 }
    }
}

/// Current contents of an [`ImageCache`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheUsage {
    /// Number of images in the cache.
    pub images: u64,
    /// Bytes of these images.
    pub bytes: u64,
    /// Largest number of bytes that the images may take.
    pub limit_bytes: u64,
    /// Whether an image did not fit any more.
    pub full: bool,
    /// The error that stopped writing to the folder, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The first 16 bytes of the SHA-256 of an image's encoded bytes and of the operations done to it.
type Key = [u8; 16];

/// The key and stored properties of a sample whose image is cached.
#[derive(Clone, Copy)]
struct Known {
    key: Key,
    stored: Stored,
}

/// A pipeline's cached images.
pub(super) struct Cache {
    recipes: Arc<Recipes>,
    accept_truncated: bool,
    store: Store,
    limit_bytes: u64,
    images: AtomicU64,
    bytes: AtomicU64,
    full: AtomicBool,
    failed: OnceLock<String>,
    /// Samples whose images are cached, by index, so that the source need not be read for them. `None` for a stream,
    /// whose samples have no fixed index.
    known: Option<Mutex<HashMap<u64, Known>>>,
}

enum Store {
    Memory(Mutex<HashMap<Key, Arc<[u8]>>>),
    Disk(PathBuf),
}

/// An image that recipes are run on, from the source or from the cache.
pub(super) struct Loaded {
    pub(super) image: Given<'static>,
    /// The header of `image`.
    pub(super) header: Header,
    /// The image as the source has it.
    pub(super) stored: Stored,
    /// Number of operations, from the front of each recipe, that were run before the image was cached; `None` if it
    /// comes from the source.
    pub(super) cached_ops: Option<usize>,
}

impl Cache {
    /// Opens the cache that `options` describe, for images that go through these recipes. `stream`: whether the
    /// source's samples have no fixed index.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder can neither be made nor listed.
    pub(super) fn open(
        options: &ImageCache,
        recipes: &Arc<Recipes>,
        accept_truncated: bool,
        stream: bool,
    ) -> Result<Self> {
        let (mut images, mut bytes) = (0, 0);
        let store = match &options.folder {
            None => Store::Memory(Mutex::default()),
            Some(folder) => {
                fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
                (images, bytes) = count(folder).map_err(Error::io("list", folder))?;
                Store::Disk(folder.clone())
            }
        };
        Ok(Self {
            recipes: Arc::clone(recipes),
            accept_truncated,
            store,
            limit_bytes: options.size_bytes,
            images: images.into(),
            bytes: bytes.into(),
            full: AtomicBool::new(false),
            failed: OnceLock::new(),
            known: (!stream).then(Mutex::default),
        })
    }

    pub(super) fn usage(&self) -> CacheUsage {
        CacheUsage {
            images: self.images.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            limit_bytes: self.limit_bytes,
            full: self.full.load(Relaxed),
            failed: self.failed.get().cloned(),
        }
    }

    /// Whether a sample's image is known to be cached, so that the source is hardly ever read for it.
    pub(super) fn is_known(&self, index: u64) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&index))
    }

    /// The image of a sample that is known to be cached; the source need not be read. May take `buffer`.
    pub(super) fn known(&self, counters: &Counters, index: u64, buffer: &mut Vec<u8>) -> Option<Loaded> {
        let start = Instant::now();
        let known = *self.known.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).get(&index)?;
        let kept = self.find(known, buffer)?;
        counters.add_cached(start.elapsed());
        Some(kept)
    }

    /// The cached image of a sample that was read. If it is missing, `run` decodes it and it is cached now. `None` if
    /// it does not fit.
    ///
    /// # Errors
    /// Errors of decoding the image, and of the operations that come before caching.
    pub(super) fn image(
        &self,
        counters: &Counters,
        index: u64,
        image: Input<'_>,
        header: &Header,
        run: impl FnOnce(&[Op], &mut [u8]) -> Result<WorkStats>,
    ) -> Result<Option<Loaded>> {
        // A full cache in memory has only images of known samples.
        let all_known = matches!(self.store, Store::Memory(_)) && self.known.is_some();
        if all_known && self.full.load(Relaxed) {
            return Ok(None);
        }
        let start = Instant::now();
        let stored = Stored::from(header);
        let ops = self.recipes.cached_ops(stored);
        let draft = header.is_draft().then_some(header.size);
        let known = Known { key: key(&self.recipes.planner, self.accept_truncated, draft, &ops, image), stored };
        let kept = match self.find(known, &mut Vec::new()) {
            Some(kept) => {
                counters.add_cached(start.elapsed());
                kept
            }
            None => match self.make(counters, stored, &ops, run)? {
                Some(rgb) => self.keep(known, rgb)?,
                None => return Ok(None),
            },
        };
        if let Some(all) = &self.known {
            all.lock().unwrap_or_else(PoisonError::into_inner).insert(index, known);
        }
        Ok(Some(kept))
    }

    /// Finds a cached image. A file that is damaged or belongs to another image counts as missing.
    fn find(&self, known: Known, buffer: &mut Vec<u8>) -> Option<Loaded> {
        let size = self.recipes.cached_size(known.stored).ok()?;
        let rgb = match &self.store {
            Store::Memory(images) => {
                let images = images.lock().unwrap_or_else(PoisonError::into_inner);
                HeldImage::shared(Arc::clone(images.get(&known.key)?))
            }
            Store::Disk(folder) => HeldImage::owned(read(folder, &known.key, size, std::mem::take(buffer))?),
        };
        Some(self.loaded(known.stored, size, rgb))
    }

    fn loaded(&self, stored: Stored, size: Size, rgb: HeldImage) -> Loaded {
        let image = rgb.into_rgb(size);
        let header = Pixels { size, channels: 3, bytes: image.bytes() }.header();
        Loaded { image: Given::Held(image), header, stored, cached_ops: Some(self.recipes.cached_ops(stored).len()) }
    }

    /// Decodes an image into the form that is cached, if it fits.
    fn make(
        &self,
        counters: &Counters,
        stored: Stored,
        ops: &[Op],
        run: impl FnOnce(&[Op], &mut [u8]) -> Result<WorkStats>,
    ) -> Result<Option<Vec<u8>>> {
        let size = self.recipes.cached_size(stored)?;
        if !self.reserve(len_bytes(size) + ENTRY_BYTES) {
            return Ok(None);
        }
        let len = usize::try_from(3 * size.area_px()).unwrap_or(usize::MAX);
        let made = memory::zeros(len, "an image to be kept", memory::FEWER_IMAGES)
            .and_then(|mut rgb| Ok((run(ops, &mut rgb)?, rgb)));
        match made {
            Ok((work, rgb)) => {
                counters.add_work(work);
                Ok(Some(rgb))
            }
            Err(error) => {
                self.bytes.fetch_sub(len_bytes(size) + ENTRY_BYTES, Relaxed);
                Err(error)
            }
        }
    }

    /// Reserves `needed` bytes. Returns false if fewer are free.
    fn reserve(&self, needed: u64) -> bool {
        let more = |bytes: u64| bytes.checked_add(needed).filter(|bytes| *bytes <= self.limit_bytes);
        let has_room = self.failed.get().is_none() && self.bytes.fetch_update(Relaxed, Relaxed, more).is_ok();
        if !has_room {
            self.full.store(true, Relaxed);
        }
        has_room
    }

    /// Caches an image for which bytes were reserved.
    fn keep(&self, known: Known, rgb: Vec<u8>) -> Result<Loaded> {
        let size = self.recipes.cached_size(known.stored)?;
        let (rgb, is_new) = match &self.store {
            Store::Memory(images) => {
                let mut images = images.lock().unwrap_or_else(PoisonError::into_inner);
                let before = images.len();
                let kept = Arc::clone(images.entry(known.key).or_insert_with(|| rgb.into()));
                (HeldImage::shared(kept), images.len() > before)
            }
            Store::Disk(folder) => {
                let written = write(folder, &known.key, size, &rgb);
                let is_new = written.as_ref().is_ok_and(|is_new| *is_new);
                if let Err(error) = written {
                    // The epoch goes on without caching; the user is told by [`CacheUsage::failed`].
                    let _ = self.failed.set(error.to_string());
                    self.full.store(true, Relaxed);
                }
                (HeldImage::owned(rgb), is_new)
            }
        };
        // Two threads may have made the same image at the same time.
        if is_new {
            self.images.fetch_add(1, Relaxed);
        } else {
            self.bytes.fetch_sub(len_bytes(size) + ENTRY_BYTES, Relaxed);
        }
        Ok(self.loaded(known.stored, size, rgb))
    }
}

/// Size of a cached image as a file, in bytes.
fn len_bytes(size: Size) -> u64 {
    pnm_header(size, 3).len() as u64 + 3 * size.area_px()
}

/// The key of an image.
fn key(planner: &Planner, accept_truncated: bool, draft: Option<Size>, ops: &[Op], image: Input<'_>) -> Key {
    let mut hash = Sha256::new();
    let what = (VERSION, ops, format!("{:?}", planner.order), accept_truncated);
    // Only the composed strategy has arithmetic of its own.
    let composed = planner.strategy == Strategy::Composed;
    let mut text = serde_json::to_vec(&(what, composed)).unwrap_or_default();
    if let Some(size) = draft {
        text.extend_from_slice(format!(", draft of {size}").as_bytes());
    }
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
    match image {
        Input::Encoded(bytes) => hash.update(bytes),
        // As if they were encoded.
        Input::Pixels(pixels) => {
            hash.update(pnm_header(pixels.size, pixels.channels));
            hash.update(pixels.bytes);
        }
        // These are not cached.
        Input::Stored(image) => hash.update(format!("{:?}", image.header())),
    }
    let hash: [u8; 32] = hash.finalize().into();
    *hash.first_chunk().unwrap_or(&[0; 16])
}

fn place(folder: &Path, key: &Key) -> PathBuf {
    let name = hex(key);
    folder.join(&name[..2]).join(name + ENDING)
}

/// The files are images that other programs show too: four bytes of checksum follow the pixels.
const ENDING: &str = ".ppm";

/// The checksum covers the key, so that no image is taken for another.
fn checksum(key: &Key, header: &[u8], rgb: &[u8]) -> u32 {
    [header, rgb].iter().fold(crc32c::crc32c(key), |crc, part| crc32c::crc32c_append(crc, part))
}

/// Reads the image of this size with this key. Anything else is not read: files of another length, and pipes, which
/// would make the reader wait.
fn read(folder: &Path, key: &Key, size: Size, mut buffer: Vec<u8>) -> Option<Vec<u8>> {
    let (mut file, metadata) = file::open_with_metadata(&place(folder, key)).ok()?;
    let len = len_bytes(size).checked_add(4)?;
    if metadata.len() != len {
        return None;
    }
    let mut header = pnm_header(size, 3).into_bytes();
    file.read_exact(&mut header).ok()?;
    buffer.clear();
    memory::reserve(&mut buffer, usize::try_from(len).ok()?, "a cached image", memory::FEWER_IMAGES).ok()?;
    file.take(len).read_to_end(&mut buffer).ok()?;
    let (rgb, crc) = buffer.split_last_chunk::<4>()?;
    if checksum(key, &header, rgb) != u32::from_le_bytes(*crc) || rgb.len() as u64 != 3 * size.area_px() {
        return None;
    }
    buffer.truncate(rgb.len());
    Some(buffer)
}

/// Writes an image. True if the folder did not have it before.
fn write(folder: &Path, key: &Key, size: Size, rgb: &[u8]) -> Result<bool> {
    let path = &place(folder, key);
    let is_new = !path.exists();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
    }
    let header = pnm_header(size, 3).into_bytes();
    let crc = checksum(key, &header, rgb).to_le_bytes();
    atomic::write(path, |file| [&header[..], rgb, &crc].iter().try_for_each(|part| file.write_all(part)))?;
    Ok(is_new)
}

/// Number of images in a folder, and the bytes of all its files, half-written ones included.
fn count(folder: &Path) -> io::Result<(u64, u64)> {
    let (mut images, mut bytes) = (0, 0);
    for part in fs::read_dir(folder)? {
        let part = part?;
        if !part.file_type()?.is_dir() {
            continue;
        }
        // Leftovers that cannot be removed are counted.
        let _ = atomic::remove_leftovers(&part.path(), atomic::LEFTOVER_AGE, |name| name.ends_with(ENDING));
        for entry in fs::read_dir(part.path())? {
            let entry = entry?;
            // Another process has removed this file.
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += metadata.len() + ENTRY_BYTES;
            images += u64::from(entry.path().extension().is_some_and(|ending| ending == &ENDING[1..]));
        }
    }
    Ok((images, bytes))
}
