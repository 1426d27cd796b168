//! Settings for turning samples into batches.

use crate::decode::{DecodeOptions, EntryPointStore};
use crate::device::{JpegDecoder, StreamPriority};
use crate::error::{Error, Result};
use crate::ops::normalize::Normalization;
use crate::ops::values::PixelValues;
use crate::plan::Plan;
use crate::raster::Size;
use crate::tensor::{BatchMemory, DType, Layout, Storage, Tensor};
use std::fmt;
use std::sync::Arc;
use warpfeed_image::planes::Element;

/// Largest batch in bytes.
pub(crate) const MAX_BATCH_BYTES: u64 = 1 << 36;
/// Largest number of bytes that are kept for later tensors, if no limit of the device's memory is given.
const SPARE_BYTES: u64 = 1 << 30;
/// Default number of batches being filled or ready: one of each.
const DEFAULT_PREFETCH: usize = 2;

/// Settings for turning samples into batches, shared by a pipeline and its back end. Callers start from
/// [`default`](Self::default) and set those that differ.
#[derive(Debug, Clone)]
pub(crate) struct RunOptions {
    /// The outputs of a batch: one for each view, or a single one of images of any size. They differ only in image size
    /// and number of images; tables and kernels are made for the first one's elements.
    pub(crate) outputs: Vec<OutputForm>,
    pub(crate) jpeg_decoder: JpegDecoder,
    /// Share of the images for the hardware decoder that it gets, 0 to 1.
    pub(crate) hardware_share: f64,
    pub(crate) accept_truncated: bool,
    /// The values of images as they are decoded, if they are not RGB of 8 bits.
    pub(crate) values: Option<PixelValues>,
    /// Entry points of images that were decoded before.
    pub(crate) entry_points: Option<Arc<EntryPointStore>>,
    pub(crate) batch_size: usize,
    /// Largest number of images in a batch: less than `batch_size` if an epoch has fewer.
    pub(crate) batch_images: usize,
    /// Largest size of a sample's target in bytes, for numbers and bytes alike.
    pub(crate) target_bytes: u64,
    /// Number of batches being filled or ready ahead of the consumer.
    pub(crate) prefetch: usize,
    /// Number of fields that batches have.
    pub(crate) fields: usize,
    /// Number of worker threads. With 0 the consumer's thread does their work.
    pub(crate) threads: usize,
    /// Largest device memory of the batches being filled or in flight, in bytes. Default: a share of the free memory.
    pub(crate) device_memory_bytes: Option<u64>,
    /// Largest device memory for encoded images of earlier epochs, in bytes.
    pub(crate) device_cache_bytes: u64,
    /// Whether a device reads images past the host where it can.
    pub(crate) gpu_direct: bool,
    /// Whether memory for copies to a device is pinned.
    pub(crate) pinned: bool,
    /// The CUDA device whose trainer copies batches from host memory. The batches are then pinned.
    pub(crate) pin_batches: Option<u32>,
    /// The caller's memory for batches that the CPU makes.
    pub(crate) batch_memory: Option<CallersMemory>,
    pub(crate) stream_priority: StreamPriority,
}

impl Default for RunOptions {
    /// The defaults of a builder.
    fn default() -> Self {
        Self {
            outputs: Vec::new(),
            jpeg_decoder: JpegDecoder::default(),
            hardware_share: 0.75,
            accept_truncated: false,
            values: None,
            entry_points: None,
            batch_size: 32,
            batch_images: 0,
            target_bytes: 0,
            prefetch: DEFAULT_PREFETCH,
            fields: 0,
            threads: 0,
            device_memory_bytes: None,
            device_cache_bytes: 0,
            gpu_direct: false,
            pinned: true,
            pin_batches: None,
            batch_memory: None,
            stream_priority: StreamPriority::default(),
        }
    }
}

impl RunOptions {
    /// The CPU decoder's options.
    pub(crate) fn how(&self) -> DecodeOptions<'_> {
        DecodeOptions { accept_truncated: self.accept_truncated, entry_points: self.entry_points.as_deref() }
    }

    /// Whether the images of a batch have sizes of their own.
    pub(crate) fn is_ragged(&self) -> bool {
        self.outputs.iter().any(|output| output.shared_size().is_none())
    }

    /// Whether each batch has a size of its own.
    pub(crate) fn is_shaped(&self) -> bool {
        self.outputs.iter().any(|output| output.largest.is_some())
    }

    /// Largest number of images in a batch.
    pub(crate) fn most_images(&self) -> usize {
        self.batch_size.max(self.batch_images)
    }

    /// Whether images with sizes of their own are padded to one tensor. Otherwise each is a tensor by itself.
    pub(crate) fn is_padded(&self) -> bool {
        self.outputs.iter().any(|output| output.padded_to.is_some())
    }

    /// The element form of all outputs.
    pub(crate) fn elements(&self) -> PixelForm {
        self.outputs.first().map_or_else(PixelForm::default, |output| output.elements)
    }

    /// Largest size in bytes of one sample in a batch: its images, each of at most `max_px` pixels, and its target.
    pub(crate) fn sample_bytes(&self, max_px: u64) -> u64 {
        let bytes = |output: &OutputForm| {
            output.most_px(max_px).saturating_mul((output.times * output.elements.pixel_bytes()) as u64)
        };
        self.outputs.iter().map(bytes).fold(self.target_bytes, u64::saturating_add)
    }

    /// Largest size in bytes of a batch's images and targets, with images of at most `max_px` pixels.
    pub(crate) fn batch_bytes(&self, max_px: u64) -> u64 {
        let images = self.batch_images as u64;
        if self.is_shaped() {
            let outputs: u64 = self.outputs.iter().map(|output| output.len_bytes(self.batch_images) as u64).sum();
            return outputs.saturating_add(images.saturating_mul(self.target_bytes));
        }
        images.saturating_mul(self.sample_bytes(max_px))
    }

    /// Largest number of pixels of the images that a batch has of a sample, each of at most `max_px`.
    pub(crate) fn pixels_of_a_sample(&self, max_px: u64) -> u64 {
        let pixels = |output: &OutputForm| output.most_px(max_px).saturating_mul(output.times as u64);
        self.outputs.iter().map(pixels).fold(0, u64::saturating_add)
    }

    /// Checks the sizes in which a sample's images end, which a source may have promised. `of_batch`: the size of its
    /// batch's images, if batches have sizes of their own.
    ///
    /// # Errors
    /// [`Error::Unfit`] for another size than the batch's.
    pub(crate) fn check_sizes(&self, plans: &[Plan<'_>], of_batch: Option<Size>) -> Result<()> {
        let size = |output: &OutputForm| std::iter::repeat_n(of_batch.or(output.size), output.times);
        let sizes = self.outputs.iter().flat_map(size);
        match plans.iter().zip(sizes).find(|(plan, size)| size.is_some_and(|size| size != plan.size)) {
            None => Ok(()),
            Some((Plan { size, .. }, wanted)) => {
                let wanted = wanted.unwrap_or(*size);
                Err(Error::unfit("pipeline", format!("the image ends in {size} pixels, and the batch has {wanted}")))
            }
        }
    }

    /// Number of images that a batch has of each sample.
    pub(crate) fn images_of_a_sample(&self) -> usize {
        self.outputs.iter().map(|output| output.times).sum()
    }

    /// Number of tensors for each output whose memory is kept for later batches.
    pub(crate) fn kept_tensors(&self) -> usize {
        self.batches_at_a_time() * if self.is_ragged() && !self.is_padded() { self.batch_images } else { 1 }
    }

    /// Largest number of bytes of unused tensors of different sizes that are kept for later batches.
    pub(crate) fn most_spare_bytes(&self) -> u64 {
        self.device_memory_bytes.map_or(SPARE_BYTES, |bytes| bytes.min(SPARE_BYTES))
    }

    /// The same of images. `None` if all batches have the same size, so that their number is the bound.
    pub(crate) fn spare_bytes(&self) -> Option<u64> {
        (self.is_ragged() || self.is_shaped()).then(|| self.most_spare_bytes())
    }

    /// Largest number of unused bytes that all pools of a pipeline keep for later batches.
    pub(crate) fn all_spare_bytes(&self, on_device: bool) -> u64 {
        let views = self.outputs.len() as u64;
        // Images have a pool for each view; on the CPU, those that are padded have one more; masks have one on a
        // device, and values that are copied to the images' device have one for each view.
        let images =
            views * u64::from(self.is_ragged() || self.is_shaped()) + u64::from(self.is_padded() && !on_device);
        let masks = u64::from(on_device && self.fields > 0);
        let values = if on_device { views * crate::cuda::VALUES_BYTES } else { 0 };
        self.most_spare_bytes().saturating_mul(images + masks).saturating_add(values)
    }

    /// Number of batches that exist at a time: those being filled or ready, and one that the consumer holds or a device
    /// is still working on.
    pub(crate) fn batches_at_a_time(&self) -> usize {
        self.prefetch + 1
    }

    /// Number of batches that threads can be finishing at a time: a thread finishes one, and no more than `prefetch`
    /// are begun.
    pub(crate) fn finished_at_a_time(&self) -> usize {
        self.threads.min(self.prefetch).max(1)
    }
}

/// Source of the caller's memory for batches.
#[derive(Clone)]
pub(crate) struct CallersMemory(pub(crate) Arc<dyn BatchMemory>);

impl fmt::Debug for CallersMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallersMemory")
    }
}

/// The form of an output, which has one or more images of each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputForm {
    /// Size of the images. `None` if each image, or each batch, has a size of its own.
    pub(crate) size: Option<Size>,
    /// The largest batches, if each batch has a size of its own, in one tensor.
    pub(crate) largest: Option<Largest>,
    /// The number that divides the sides of the tensor in which images with sizes of their own are padded. `None` if
    /// none are.
    pub(crate) padded_to: Option<u32>,
    /// Number of images of each sample.
    pub(crate) times: usize,
    pub(crate) elements: PixelForm,
}

impl OutputForm {
    /// Size of every image, or the largest of batches. 0 x 0 if each image has a size of its own.
    pub(crate) fn one_size(&self) -> Size {
        self.shared_size().unwrap_or(Size::new(0, 0))
    }

    /// Size of all images of a batch, the largest if batches have sizes of their own. `None` if each image has one.
    pub(crate) fn shared_size(&self) -> Option<Size> {
        self.size.or(self.largest.map(|largest| largest.size))
    }

    /// The smallest size that images of these sizes fit in, with sides that `padded_to` divides.
    ///
    /// # Errors
    /// [`Error::Limits`] if `images` images of this size are larger than the largest batch.
    pub(crate) fn common_size(&self, sizes: &[Size], images: usize) -> Result<Size> {
        let divisor = self.padded_to.unwrap_or(1);
        let side =
            |of: fn(&Size) -> u32| sizes.iter().map(of).max().unwrap_or(1).div_ceil(divisor).saturating_mul(divisor);
        let size = Size::new(side(|size| size.width), side(|size| size.height));
        let image_bytes = size.area_px().saturating_mul(self.elements.pixel_bytes() as u64);
        let got = image_bytes.saturating_mul(images as u64);
        if got > MAX_BATCH_BYTES {
            let remedy = "use a smaller batch_size or max_pixels";
            return Err(Error::Limits { what: "a padded batch in bytes", got, limit: MAX_BATCH_BYTES, remedy });
        }
        Ok(size)
    }

    /// Bytes of the images of `samples` samples, of the largest if batches have sizes of their own. 0 if images have
    /// sizes of their own: their memory is taken one by one.
    pub(crate) fn len_bytes(&self, samples: usize) -> usize {
        let pixels = match (self.size, self.largest) {
            (Some(size), _) => samples as u64 * size.area_px(),
            (None, Some(largest)) => (samples as u64 * largest.size.area_px()).min(largest.batch_px),
            (None, None) => 0,
        };
        pixels as usize * self.times * self.elements.pixel_bytes()
    }

    /// Largest number of pixels of an image, which has at most `max_px`.
    fn most_px(&self, max_px: u64) -> u64 {
        self.shared_size().map_or(max_px, Size::area_px)
    }
}

/// The largest of the batches that have sizes of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Largest {
    /// The size of the largest images.
    pub(crate) size: Size,
    /// The most pixels of a batch, with one image of each sample.
    pub(crate) batch_px: u64,
}

/// The form of the elements of an output's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PixelForm {
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// Number of channels: 3, or 1 for the first channel of gray pixels; those of images that are not RGB.
    pub(crate) channels: usize,
}

/// Numbers of elements from one plane to the next, and from one row to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) plane: u64,
    pub(crate) row: u32,
}

impl Default for PixelForm {
    fn default() -> Self {
        Self { dtype: DType::F32, layout: Layout::Nchw, channels: 3 }
    }
}

impl PixelForm {
    /// A tensor of `images` images of this size.
    pub(crate) fn tensor(self, storage: Storage, size: Size, images: usize) -> Tensor {
        let (width, height) = (size.width as usize, size.height as usize);
        let shape = match self.layout {
            Layout::Nchw => [images, self.channels, height, width],
            Layout::Nhwc => [images, height, width, self.channels],
        };
        Tensor::new(storage, shape, self.dtype, self.layout)
    }

    /// Bytes of one image of this size.
    pub(crate) fn image_bytes(self, size: Size) -> usize {
        self.pixel_bytes() * size.area_px() as usize
    }

    /// Elements between planes (0 if there is a single one, or none) and between rows of an image of this size, or of a
    /// place in a padded tensor of this size.
    pub(crate) fn strides(self, size: Size) -> Strides {
        let (planes, channels) = (self.has_planes(), self.channels as u32);
        Strides {
            plane: if planes && channels > 1 { size.area_px() } else { 0 },
            row: if planes { size.width } else { channels * size.width },
        }
    }

    /// Bytes of a row of an image of this size, or of a plane's row.
    pub(crate) fn row_bytes(self, size: Size) -> usize {
        let channels = if self.has_planes() { 1 } else { self.channels };
        channels * self.dtype.size_bytes() * size.width as usize
    }

    fn pixel_bytes(self) -> usize {
        self.channels * self.dtype.size_bytes()
    }

    /// The elements of images that end with these values. `all`: whether these decide the channels, as of images that are
    /// not RGB.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the elements would need a conversion that the settings do not ask for.
    pub(crate) fn of_pixels(self, values: &PixelValues, normalize: Normalization, all: bool) -> Result<Self> {
        let is_whole = matches!(self.dtype, DType::U8 | DType::U16);
        if is_whole && normalize.is_some() {
            return Err(Error::parameter("output", "dtype", "f32, f16 or bf16 after normalize", self.dtype));
        }
        let fits = match self.dtype {
            DType::U8 => values.kind.element == Element::U8,
            DType::U16 => values.kind.element == Element::U16,
            DType::F32 | DType::F16 | DType::Bf16 => true,
        };
        if !fits {
            let expected = format!("{}, as the images have it, or f32, f16 or bf16", values.kind.element);
            return Err(Error::parameter("output", "dtype", expected, self.dtype));
        }
        Ok(if all { Self { channels: values.kind.channels.into(), ..self } } else { self })
    }

    /// Whether channels are stored as planes. A single channel is a plane in either layout.
    pub(crate) fn has_planes(self) -> bool {
        self.layout == Layout::Nchw || self.channels == 1
    }
}
