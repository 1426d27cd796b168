//! Places in images, from the device to the store of entry points.
#![allow(unsafe_code)]

use super::lower::unpacked_dc;
use super::params::JpegImage;
use crate::backend::cpu_fallbacks::UNUSED_BYTES;
use crate::backend::cuda::arena::Arena;
use crate::backend::cuda::lock;
use crate::cuda::driver::{Context, HostMemory};
use crate::decode::{DevicePoints, EntryPointStore, NewPoints};
use crate::error::Result;
use crate::ops::descriptors::DevicePointer;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Bytes that stay free in addition to those for the end of the batch.
const SPARED_BYTES: usize = 1 << 20;

/// The images of a batch whose places are found out. One copy brings the places of all.
#[derive(Debug, Default)]
pub(super) struct Learning {
    images: Vec<Image>,
    /// Address of the places of all images on the device.
    address: DevicePointer,
    len_bytes: usize,
}

/// An image whose places are found out.
#[derive(Debug)]
struct Image {
    points: NewPoints,
    /// Number of the image in the batch.
    number: usize,
    /// Offset of its DC coefficients from `address`. Those of all images come first.
    dc_at: usize,
    /// Offset of the places of its MCUs and of their end.
    mcus_at: usize,
    status: u32,
}

impl Image {
    fn dc(&self) -> Range<usize> {
        self.dc_at..self.dc_at + size_of::<u64>() * self.points.points()
    }

    fn mcus(&self) -> Range<usize> {
        self.mcus_at..self.mcus_at + size_of::<u32>() * (self.points.mcus() + 1)
    }

    /// Stores the places, unless the device has flagged the image. `bytes` are the places of the batch.
    fn store(&self, bytes: &[u8], store: &EntryPointStore) {
        match self.status {
            0 => {
                let (dc, mcus) = (&bytes[self.dc()], &bytes[self.mcus()]);
                let bits = mcus.as_chunks::<4>().0.iter().map(|bytes| u32::from_ne_bytes(*bytes));
                let dc = dc.as_chunks::<8>().0.iter().map(|dc| unpacked_dc(u64::from_ne_bytes(*dc)));
                self.points.store(store, bits, dc);
            }
            UNUSED_BYTES => self.points.store_none(store),
            // The CPU has decoded it, and has learned its places.
            _ => {}
        }
    }
}

impl Learning {
    /// Takes memory for the places of the images whose places are new. If only the `end_bytes` of the batch's end are
    /// left, no places are learned.
    pub(super) fn place<'a>(
        arena: &Arena,
        end_bytes: usize,
        images: &mut [JpegImage],
        points: impl Iterator<Item = &'a DevicePoints>,
    ) -> Self {
        let mut this = Self::default();
        for (number, points) in points.enumerate() {
            if let DevicePoints::New(points) = points {
                let image = Image { points: *points, number, dc_at: this.len_bytes, mcus_at: 0, status: 0 };
                this.len_bytes = image.dc().end;
                this.images.push(image);
            }
        }
        for image in &mut this.images {
            image.mcus_at = this.len_bytes;
            this.len_bytes = image.mcus().end;
        }
        if this.images.is_empty() {
            return this;
        }
        let Ok(address) = arena.scratch_sparing(this.len_bytes, 2 * end_bytes + SPARED_BYTES) else {
            return Self::default();
        };
        this.address = address;
        for image in &this.images {
            let to = &mut images[image.number];
            to.point_dc = address + image.dc_at as DevicePointer;
            to.mcus = address + image.mcus_at as DevicePointer;
        }
        this
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(super) fn address(&self) -> DevicePointer {
        self.address
    }

    /// Takes note of the images' status.
    pub(super) fn judge(&mut self, status: &[u32]) {
        self.images.iter_mut().for_each(|image| image.status = status[image.number]);
    }
}

/// The places that complete batches have found out, until they are stored. Storing those of a batch at once would hold
/// up all threads, which wait for the next batch; so each stores those of an image whenever it prepares one.
#[derive(Debug, Default)]
pub(super) struct UnstoredPlaces {
    waiting: Mutex<Vec<(Learning, Arc<HostMemory>)>>,
    /// Host memory whose places are stored.
    spare: Mutex<Vec<HostMemory>>,
}

impl UnstoredPlaces {
    /// Host memory for the places of a batch. Batches differ, so there is some more.
    pub(super) fn memory(&self, learning: &Learning, context: &Context, pinned: bool) -> Result<HostMemory> {
        let spare = lock(&self.spare).pop();
        let spare = spare.filter(|memory| memory.len_bytes() >= learning.len_bytes);
        spare.map_or_else(|| HostMemory::new(context, learning.len_bytes + learning.len_bytes / 4, pinned), Ok)
    }

    /// Adds the places that a complete batch has learned.
    pub(super) fn add(&self, learning: Learning, memory: HostMemory) {
        lock(&self.waiting).push((learning, Arc::new(memory)));
    }

    /// Stores the places of an image. Returns whether there was one.
    pub(super) fn store_one(&self, store: &EntryPointStore) -> bool {
        let mut waiting = lock(&self.waiting);
        let Some((learning, memory)) = waiting.last_mut() else { return false };
        let (image, memory, len_bytes) = (learning.images.pop(), Arc::clone(memory), learning.len_bytes);
        if learning.images.is_empty() {
            waiting.pop();
        }
        drop(waiting);
        if let Some(image) = image {
            // SAFETY: the device has written these bytes, and its work has been waited for. They are not written until
            // the memory is spare.
            let bytes = unsafe { std::slice::from_raw_parts(memory.start(), len_bytes) };
            image.store(bytes, store);
        }
        // Whoever is last.
        lock(&self.spare).extend(Arc::into_inner(memory));
        true
    }
}
