//! Encoded images that stay in device memory from one epoch to the next.
//!
//! When an image's batch is decoded, all its data are copied to a block of the cache, until the blocks reach the limit.
//! Later epochs neither read nor hash nor upload the image. Nothing is evicted, because an epoch uses each image once.
//!
//! Copies are queued on the stream of uploads. Every batch waits for its own upload there, and so for all earlier copies.
#![allow(unsafe_code)]

use crate::backend::HeldImage;
use crate::backend::cuda::lock;
use crate::backend::cuda::streams::Streams;
use crate::cuda::driver::{self, DeviceMemory};
use crate::decode::{Baseline, DeviceBytes, Header, ImageKey};
use crate::error::Result;
use crate::ops::descriptors::DevicePointer;
use crate::os::memory;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Size of a block. An image that is larger is not cached.
const BLOCK_BYTES: usize = 64 << 20;
/// Alignment of images in a block.
const ALIGN_BYTES: usize = 128;

/// Images by the indexes of their samples.
#[derive(Default)]
pub(super) struct DeviceCache(Mutex<Contents>);

#[derive(Default)]
struct Contents {
    limit_bytes: usize,
    images: HashMap<u64, Arc<CachedImage>>,
    /// Samples that have been given room. None is given room twice.
    seen: HashSet<u64>,
    blocks: Vec<Arc<DeviceMemory>>,
    /// Used bytes of the last block.
    used_bytes: usize,
    /// Whether an image found no room.
    is_full: bool,
}

/// Room for an image's data.
pub(super) struct Room {
    block: Arc<DeviceMemory>,
    address: DevicePointer,
    index: u64,
}

/// An image whose data are on the device.
pub(crate) struct CachedImage {
    pub(crate) header: Header,
    pub(super) image: Baseline,
    /// The file up to the data of its scan.
    head: Box<[u8]>,
    /// The key of its entry points.
    key: Option<ImageKey>,
    /// Address of the data of its scan, and their number of bytes.
    pub(super) data: DevicePointer,
    data_bytes: usize,
    /// The memory that holds the data.
    block: Arc<DeviceMemory>,
}

impl DeviceCache {
    pub(super) fn new(limit_bytes: u64) -> Self {
        let limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        Self(Mutex::new(Contents { limit_bytes, ..Contents::default() }))
    }

    pub(super) fn get(&self, index: u64) -> Option<Arc<CachedImage>> {
        lock(&self.0).images.get(&index).map(Arc::clone)
    }

    /// Whether an image of `len_bytes` bytes may be given room. Data with restart markers are not cached, because their
    /// decoding begins at markers, wherever these lie.
    pub(super) fn takes(&self, index: u64, len_bytes: usize, image: &Baseline) -> bool {
        let contents = lock(&self.0);
        contents.limit_bytes > 0
            && !contents.is_full
            && image.restart_interval_mcus == 0
            && len_bytes <= BLOCK_BYTES
            && !contents.seen.contains(&index)
    }

    /// Takes room for an image's data. `None` if there is none, or if the sample was given room before.
    pub(super) fn room(&self, index: u64, data_bytes: usize, streams: &Streams) -> Option<Room> {
        let mut contents = lock(&self.0);
        let len_bytes = data_bytes.next_multiple_of(ALIGN_BYTES);
        // Another thread may have the same sample.
        if contents.is_full || contents.seen.contains(&index) {
            return None;
        }
        let last_bytes = contents.blocks.last().map_or(0, |block| block.len_bytes());
        if last_bytes - contents.used_bytes < len_bytes {
            let taken: usize = contents.blocks.iter().map(|block| block.len_bytes()).sum();
            let block_bytes = BLOCK_BYTES.min(contents.limit_bytes.saturating_sub(taken));
            // Memory that the trainer has taken is not asked for again.
            let block = (block_bytes >= len_bytes).then(|| DeviceMemory::new(&streams.context, block_bytes));
            let Some(Ok(block)) = block else {
                contents.is_full = true;
                return None;
            };
            contents.blocks.push(Arc::new(block));
            contents.used_bytes = 0;
        }
        let block = Arc::clone(contents.blocks.last()?);
        let address = block.address() + contents.used_bytes as u64;
        contents.used_bytes += len_bytes;
        contents.seen.insert(index);
        Some(Room { block, address, index })
    }

    /// Adds an image whose data were copied to their room.
    pub(super) fn add(
        &self,
        room: Room,
        header: Header,
        image: Baseline,
        (head, data_bytes, key): (&[u8], usize, Option<ImageKey>),
    ) {
        let Room { block, address, index } = room;
        let head = head.into();
        let image = CachedImage { header, image, head, key, data: address, data_bytes, block };
        let mut contents = lock(&self.0);
        if contents.blocks.iter().any(|block| Arc::ptr_eq(block, &image.block)) {
            contents.images.insert(index, Arc::new(image));
        } else {
            // The limit was lowered meanwhile. The block is freed after the lock.
            contents.seen.remove(&index);
            drop(contents);
        }
    }

    /// Says that the device has done all work, and lets go of all images, so that freeing their memory need not wait.
    pub(super) fn idle(&mut self) {
        let Contents { images, blocks, .. } = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        images.clear();
        blocks.iter_mut().filter_map(Arc::get_mut).for_each(DeviceMemory::idle);
    }

    /// Limits the cache to so many bytes from now on, and frees blocks beyond them.
    ///
    /// # Synchronization
    /// Freeing waits for the device.
    pub(super) fn limit(&self, limit_bytes: u64) {
        let mut contents = lock(&self.0);
        contents.limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        contents.is_full = false;
        let mut freed = Vec::new();
        let mut taken: usize = contents.blocks.iter().map(|block| block.len_bytes()).sum();
        while taken > contents.limit_bytes
            && let Some(block) = contents.blocks.pop()
        {
            taken -= block.len_bytes();
            contents.used_bytes = contents.blocks.last().map_or(0, |block| block.len_bytes());
            freed.push(block);
        }
        let is_freed = |image: &CachedImage| freed.iter().any(|block| Arc::ptr_eq(block, &image.block));
        let Contents { images, seen, .. } = &mut *contents;
        let gone: Vec<_> = images.extract_if(|_, image| is_freed(image)).collect();
        gone.iter().for_each(|(index, _)| {
            seen.remove(index);
        });
        drop(contents);
        // Freeing waits for the device, and so comes after the lock.
        drop((gone, freed));
    }
}

impl Room {
    /// Queues the copy of the data at `from` to the room.
    ///
    /// # Safety
    /// The data have been uploaded, or their upload is queued. They stay until the stream of copies is done.
    pub(super) unsafe fn fill(&self, from: DevicePointer, data_bytes: usize, streams: &Streams) -> Result<()> {
        // SAFETY: the room has as many bytes, which nothing uses before; the rest is the contract.
        unsafe { driver::copy(self.address, from, data_bytes, &streams.copy) }
    }
}

impl CachedImage {
    /// Knowledge of the file's bytes for its decoder.
    pub(super) fn bytes(&self) -> DeviceBytes<'static> {
        DeviceBytes::OnDevice { len_bytes: self.head.len() + self.data_bytes, key: self.key }
    }

    /// The file, for the CPU.
    ///
    /// # Synchronization
    /// Waits for the copy to the host, and for all copies before it.
    pub(super) fn to_host(&self, streams: &Streams) -> Result<HeldImage> {
        let len_bytes = self.head.len() + self.data_bytes;
        let mut bytes = memory::zeros(len_bytes, "an encoded image", memory::FEWER_IMAGES)?;
        let (head, data) = bytes.split_at_mut(self.head.len());
        head.copy_from_slice(&self.head);
        // SAFETY: the memory holds as many bytes, and the copy that wrote them comes earlier on this stream.
        unsafe { driver::download(data, self.data, &streams.copy)? };
        Ok(HeldImage::owned(bytes))
    }
}
