//! Settings by which samples become batches.

use crate::decode::{DecodeOptions, EntryPointStore};
use crate::device::{DecodePath, StreamPriority};
use crate::raster::Size;
use crate::tensor::{DType, Layout, Storage, Tensor};
use std::sync::Arc;

/// Batches being filled or ready unless a builder says otherwise: one ready, one being filled.
const DEFAULT_PREFETCH: usize = 2;

/// Settings by which samples become batches, for a pipeline and its back end. Whoever opens a back end names those that
/// differ from [`default`](Self::default).
#[derive(Debug, Clone)]
pub(crate) struct RunOptions {
    /// What a batch has of each sample: one output for each view, or one of images of any size. They differ in size and
    /// number of images alone: tables and kernels are those of the first one's elements.
    pub(crate) outputs: Vec<OutputForm>,
    pub(crate) decode: DecodePath,
    pub(crate) accept_truncated: bool,
    /// What is known of images that were decoded before.
    pub(crate) entry_points: Option<Arc<EntryPointStore>>,
    pub(crate) batch_size: usize,
    /// Most images that a batch has: fewer than `batch_size` where an epoch has no more.
    pub(crate) batch_images: usize,
    /// Most bytes of a sample's target, numbers or not.
    pub(crate) target_bytes: u64,
    /// Batches being filled or ready ahead of the consumer.
    pub(crate) prefetch: usize,
    /// Worker threads; 0 if the consumer's does their work.
    pub(crate) threads: usize,
    /// Most device memory of the batches that are being filled or under way; a share of what is free if not given.
    pub(crate) device_memory_bytes: Option<u64>,
    /// Whether what is copied to a device is staged in pinned memory.
    pub(crate) pinned: bool,
    /// The CUDA device whose trainer copies batches from host memory, which are pinned then.
    pub(crate) pin_batches: Option<u32>,
    pub(crate) stream_priority: StreamPriority,
}

impl Default for RunOptions {
    /// A builder's defaults.
    fn default() -> Self {
        Self {
            outputs: Vec::new(),
            decode: DecodePath::default(),
            accept_truncated: false,
            entry_points: None,
            batch_size: 32,
            batch_images: 0,
            target_bytes: 0,
            prefetch: DEFAULT_PREFETCH,
            threads: 0,
            device_memory_bytes: None,
            pinned: true,
            pin_batches: None,
            stream_priority: StreamPriority::default(),
        }
    }
}

impl RunOptions {
    /// How the CPU decodes.
    pub(crate) fn how(&self) -> DecodeOptions<'_> {
        DecodeOptions { accept_truncated: self.accept_truncated, entry_points: self.entry_points.as_deref() }
    }

    /// Whether images have sizes of their own, so that each is a tensor by itself.
    pub(crate) fn is_ragged(&self) -> bool {
        self.outputs.iter().any(|output| output.size.is_none())
    }

    /// The form of all outputs' elements.
    pub(crate) fn elements(&self) -> Elements {
        self.outputs.first().map_or_else(Elements::default, |output| output.elements)
    }

    /// Most bytes of all that a batch has of one sample: its images, of which none has more than `max_px` pixels, and its
    /// target.
    pub(crate) fn sample_bytes(&self, max_px: u64) -> u64 {
        let bytes = |output: &OutputForm| {
            let area_px = output.size.map_or(max_px, Size::area_px);
            area_px.saturating_mul((output.times * output.elements.pixel_bytes()) as u64)
        };
        self.outputs.iter().map(bytes).fold(self.target_bytes, u64::saturating_add)
    }

    /// How many images a batch has of a sample.
    pub(crate) fn images_of_a_sample(&self) -> usize {
        self.outputs.iter().map(|output| output.times).sum()
    }

    /// How many tensors' memory is kept for later batches, for each output.
    pub(crate) fn kept_tensors(&self) -> usize {
        self.batches_at_a_time() * if self.is_ragged() { self.batch_images } else { 1 }
    }

    /// Batches that there may be at a time: those being filled or ready, and one that the consumer holds or a device is
    /// still at work on.
    pub(crate) fn batches_at_a_time(&self) -> usize {
        self.prefetch + 1
    }
}

/// An output: images that a batch has of each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputForm {
    /// Size of its images; `None` if each has a size of its own.
    pub(crate) size: Option<Size>,
    /// How many images of each sample.
    pub(crate) times: usize,
    pub(crate) elements: Elements,
}

impl OutputForm {
    /// Size of every image; 0 x 0 if each has a size of its own.
    pub(crate) fn one_size(&self) -> Size {
        self.size.unwrap_or(Size::new(0, 0))
    }

    /// Bytes of the images of so many samples. Of images with sizes of their own none: their memory is taken one by one.
    pub(crate) fn len_bytes(&self, samples: usize) -> usize {
        self.size.map_or(0, |size| samples * self.times * self.elements.image_bytes(size))
    }
}

/// The elements of an output's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elements {
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// 3, or 1: of gray pixels the first.
    pub(crate) channels: usize,
}

impl Default for Elements {
    fn default() -> Self {
        Self { dtype: DType::F32, layout: Layout::Nchw, channels: 3 }
    }
}

impl Elements {
    /// A tensor of so many images of a size.
    pub(crate) fn tensor(self, storage: Storage, size: Size, images: usize) -> Tensor {
        let (width, height) = (size.width as usize, size.height as usize);
        let shape = match self.layout {
            Layout::Nchw => [images, self.channels, height, width],
            Layout::Nhwc => [images, height, width, self.channels],
        };
        Tensor::new(storage, shape, self.dtype, self.layout)
    }

    /// Bytes of one image of a size.
    pub(crate) fn image_bytes(self, size: Size) -> usize {
        self.pixel_bytes() * size.area_px() as usize
    }

    fn pixel_bytes(self) -> usize {
        self.channels * self.dtype.size_bytes()
    }

    /// Whether channels lie in planes, as one alone does in either layout.
    pub(crate) fn has_planes(self) -> bool {
        self.layout == Layout::Nchw || self.channels == 1
    }
}
