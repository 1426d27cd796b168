//! This crate's own JPEG decoder on the device. Its pixels equal the CPU decoder's.
//!
//! `decoder` takes an image: it parses the headers, takes memory, and writes the data to staging memory. When the batch
//! is complete, it queues the kernels (`kernels`, `batch`) and decodes on the CPU the images that they flag. `lower`
//! makes descriptors (`params`). `decode::kernel_steps` has the computation of each kernel as plain code.
//!
//! The device never decides that an image is bad. Kernels flag everything unusual, and the CPU decodes flagged images.
//! It alone says whether they are bad, so `device` and `auto` have the CPU's bytes and the CPU's bad samples. For this
//! the host waits once in each batch, for one word for each image. The words are copied back right after the Huffman
//! kernels, while the transforms are queued already. Flagged images are decoded into the place of their pixels before
//! other stages are queued, so nothing runs twice. Encoded data are sent before that wait, descriptors after it. The
//! decoder's memory is one piece for each image in the batch's arena, pixels first. When the pixels are done, the rest
//! becomes memory for the recipe's stages, which follow on the same stream.
//!
//! Few threads of the Huffman kernels run for long. So those of several batches run side by side, on streams of their
//! own, and beside the transforms and augmentations of the batches before. There are as many of these streams as
//! threads can wait for the words of batches at a time. By the model this makes batches of 64 1.8 times as fast
//! (kernels/README.md). A huge image holds up its batch, but not the Huffman codes of the next one.
//!
//! An image whose places are known, from an earlier epoch or from the CPU, has stretches instead of runs: no thread searches
//! for its start, and only the part's MCUs are decoded. Of other images the places are found out (`learning`). One copy
//! brings those of a batch after its transforms, and no thread waits for it: when the batch's memory is used again, they
//! are handed over, and each thread stores those of an image whenever it prepares one. The end of an epoch stores the
//! rest.

mod batch;
mod decoder;
mod kernels;
mod learning;
mod lower;
mod params;
#[cfg(all(test, target_os = "linux"))]
mod tests;

/// What the host writes for each image at the end of a batch: its descriptor and its status.
pub(super) const DESCRIBED_BYTES: usize = size_of::<params::JpegImage>() + size_of::<u32>();

pub(super) use batch::Decoding;
pub(super) use decoder::{DeviceDecoder, Job};
pub(super) use kernels::JpegKernels;
pub(super) use {kernels::Staged, lower::Lowered};
