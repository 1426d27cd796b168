//! This crate's own JPEG decoder on the device. Its pixels equal the CPU decoder's.
//!
//! `decoder` parses an image's headers (`lower`, `params`), takes memory, and stages the data. When the batch is
//! complete, it queues the kernels (`kernels`, `batch`).
//!
//! Kernels flag everything unusual. The host waits once in each batch for one word per image, right after the Huffman
//! kernels, and decodes flagged images into the place of their pixels before other stages are queued. The Huffman
//! kernels have few threads and run for long, so those of several batches run at the same time.
//!
//! `device_cache` keeps the data of decoded images on the device for later epochs.
//!
//! If the places of an image's MCUs are known, only the part's MCUs are decoded. Otherwise they are learned
//! (`learning`): one copy per batch brings them back, and they are stored when the batch's memory is used again, or at
//! the end of the epoch.

mod batch;
mod decoder;
mod device_cache;
mod kernels;
mod learning;
mod lower;
mod params;
#[cfg(all(test, target_os = "linux"))]
mod tests;

/// Bytes that the host writes for each image at the end of a batch: its descriptor and its status.
pub(super) const DESCRIBED_BYTES: usize = size_of::<params::JpegImage>() + size_of::<u32>();

pub(super) use batch::Decoding;
pub(super) use decoder::{DeviceDecoder, Encoded, Job};
pub(crate) use device_cache::CachedImage;
pub(super) use kernels::{JpegKernels, Staged};
pub(super) use lower::{Lowered, Planes};
pub(super) use params::JpegImage;
