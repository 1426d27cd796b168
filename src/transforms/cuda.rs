//! Transforms on a GPU, of images that lie in its memory.
#![allow(unsafe_code)]

use super::batch::{check_each, of_image};
use super::run::plan_for;
use super::{Key, Transforms};
use crate::backend::{ImagesOnDevice, ViewRunner};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::plan::Plan;
use crate::raster::Size;
use crate::tensor::Tensor;
use cudarc::driver::sys;
use std::fmt;

/// Images of one size in the memory of a CUDA device: values of `u8`, gray or RGB, in any order and with any distances.
/// It is a description, which keeps nothing alive.
#[derive(Debug, Clone, Copy)]
pub struct CudaView {
    images: usize,
    channels: usize,
    of: ImagesOnDevice,
}

// SAFETY: streams belong to a context, not to a thread; that of the per-thread default stream is in the contract of `new`.
unsafe impl Send for CudaView {}

impl CudaView {
    /// Describes images at a device address. `shape` and `strides` are those of `[N, C, H, W]`, whatever the order in
    /// memory, in elements. `stream` is the stream on which the values are ready, of the driver or of CUDA's runtime; null
    /// is the legacy default stream.
    ///
    /// # Safety
    /// Until the last call with this has returned:
    /// - all values that shape and strides name lie in memory of the device that [`CudaTransforms`] use;
    /// - work that is queued on `stream` at the time of a call finds the values complete;
    /// - no work is queued that frees or overwrites them, except in the order of `stream` after the call;
    /// - `stream` is alive, and if it is the default stream of a thread, this is used on that thread.
    ///
    /// # Errors
    /// [`Error::Parameter`] for empty images, for other than 1 or 3 channels, for negative strides, and for those that
    /// lead beyond the end of all memory.
    pub unsafe fn new(address: u64, shape: [usize; 4], strides: [i64; 4], stream: sys::CUstream) -> Result<Self> {
        let refused = |what, expected: &str, got: String| Err(Error::parameter("CudaView", what, expected, got));
        let [images, channels, height, width] = shape;
        let side = |side: usize| u32::try_from(side).ok().filter(|side| *side > 0);
        let (Some(width), Some(height)) = (side(width), side(height)) else {
            return refused("shape", "[N, C, H, W] with sides of 1 or more", format!("{shape:?}"));
        };
        if !matches!(channels, 1 | 3) {
            return refused("channels", "1 or 3", channels.to_string());
        }
        let [Ok(image), Ok(channel), Ok(row), Ok(column)] = strides.map(u64::try_from) else {
            return refused("strides", "0 or more", format!("{strides:?}"));
        };
        let last = shape.iter().zip([image, channel, row, column]).try_fold(address, |last, (count, stride)| {
            let far = (*count as u64).saturating_sub(1).checked_mul(stride)?;
            last.checked_add(far)
        });
        if last.is_none() {
            return refused("strides", "within memory", format!("{strides:?}"));
        }
        let channel = if channels == 1 { 0 } else { channel };
        let of = ImagesOnDevice { address, size: Size::new(width, height), image, row, column, channel, stream };
        Ok(Self { images, channels, of })
    }

    /// Number of images.
    #[must_use]
    pub fn images(&self) -> usize {
        self.images
    }

    /// Width and height of each image, in pixels.
    #[must_use]
    pub fn size(&self) -> Size {
        self.of.size
    }

    /// Number of channels: 1 or 3.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    fn sizes(&self) -> impl Iterator<Item = Size> {
        std::iter::repeat_n(self.of.size, self.images)
    }
}

/// Transforms on a CUDA device. With the same keys, tensors have the bytes that [`Transforms`] makes on the CPU.
///
/// ```no_run
/// use warpfeed::prelude::*;
/// use warpfeed::transforms::{CudaTransforms, CudaView, Key, Transforms, TransformsOptions};
///
/// # fn images_of_another_library() -> (u64, cudarc::driver::sys::CUstream) { (0, std::ptr::null_mut()) }
/// let train = Transforms::from_preset(Preset::Train, &TransformsOptions::default())?;
/// let train = CudaTransforms::new(train, 0)?;
/// let (address, stream) = images_of_another_library(); // [8, 3, 480, 640], u8
/// let (shape, strides) = ([8, 3, 480, 640], [3 * 480 * 640, 480 * 640, 640, 1]);
/// // SAFETY: the memory stays as it is until the call has returned, and was written on this stream.
/// let images = unsafe { CudaView::new(address, shape, strides, stream)? };
/// let keys: Vec<_> = (0..8).map(|index| Key::new(42, 0, index)).collect();
/// let tensor = train.apply_batch(&images, &keys)?;
/// assert_eq!((tensor.shape(), tensor.device()), ([8, 3, 224, 224], Device::Cuda(0)));
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Synchronization
/// Calls return when the work is queued. It starts when the images' stream has come to the call, and that stream waits
/// until the images have been read, so what follows there may free or overwrite them. A tensor's reader has its stream
/// wait for it ([`CudaBuffer::on_stream`](crate::CudaBuffer::on_stream), DLPack). The host waits only if the device is
/// still busy with the last two calls, or parts of calls.
pub struct CudaTransforms {
    transforms: Transforms,
    ordinal: u32,
    runner: ViewRunner,
}

impl fmt::Debug for CudaTransforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transforms, ordinal, .. } = self;
        f.debug_struct("CudaTransforms").field("transforms", transforms).field("ordinal", ordinal).finish()
    }
}

impl CudaTransforms {
    /// Opens CUDA device `ordinal` for transforms. Working memory is taken as images need it and kept: up to an eighth of
    /// the device's memory, at most 2 GiB. All transforms of a process on the device share it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for transforms of images that are not gray or RGB of 8 bits; [`Error::Device`] with the
    /// reason if the device cannot be used; [`Error::OutOfDeviceMemory`].
    pub fn new(transforms: Transforms, ordinal: u32) -> Result<Self> {
        Self::open(transforms, ordinal, None)
    }

    /// Opens a device as [`new`](Self::new) does, with a limit of working memory. Images of a call that do not fit half of
    /// it run in parts. Transforms with the same limit share the memory.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn with_device_memory(transforms: Transforms, ordinal: u32, limit_bytes: u64) -> Result<Self> {
        Self::open(transforms, ordinal, Some(limit_bytes))
    }

    fn open(transforms: Transforms, ordinal: u32, limit_bytes: Option<u64>) -> Result<Self> {
        if let Some(values) = transforms.planner.values {
            return Err(Error::Unsupported {
                feature: format!("transforms of {} images on a GPU", values.kind),
                remedy: "apply them on the CPU, or use images of u8 with 1 or 3 channels".to_owned(),
            });
        }
        let tables = transforms.tables.get(transforms.elements.dtype);
        let runner = ViewRunner::open(ordinal, limit_bytes, transforms.elements, tables)?;
        Ok(Self { transforms, ordinal, runner })
    }

    /// The transforms. They draw recipes ([`Transforms::draw`]) and move fields ([`Transforms::move_fields`]).
    #[must_use]
    pub fn transforms(&self) -> &Transforms {
        &self.transforms
    }

    /// Number of the device.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Makes a tensor of images, each with the draws of its own key: [`Transforms::apply_batch`] on the device.
    ///
    /// # Synchronization
    /// See [`CudaTransforms`].
    ///
    /// # Errors
    /// The errors of [`Transforms::apply_batch`] and [`run`](Self::run).
    pub fn apply_batch(&self, images: &CudaView, keys: &[Key]) -> Result<Tensor> {
        check_each("keys", keys.len(), images.images)?;
        self.run(&self.transforms.recipes(images.sizes(), keys)?, images)
    }

    /// Makes a tensor of images, each by its own recipe: one that was drawn, or another list of operations.
    ///
    /// # Synchronization
    /// See [`CudaTransforms`].
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are not as many recipes as images, if the images do not end in the same size, for a
    /// recipe that normalizes otherwise than the transforms do, and for a stream of another device, or one that captures a
    /// graph; [`Error::Unsupported`] for operations without a kernel: those of the caller's own, `jpeg`, resizes with a
    /// reducing gap, and those that join samples; [`Error::Limits`] for an image, or a tensor, that is too large;
    /// [`Error::OutOfDeviceMemory`] for an image that does not fit the working memory, or a tensor that does not fit the
    /// device's; [`Error::Device`] if the device fails.
    pub fn run(&self, recipes: &[impl AsRef<[Op]>], images: &CudaView) -> Result<Tensor> {
        check_each("recipes", recipes.len(), images.images)?;
        let size = self.transforms.common_size(images.sizes(), recipes)?;
        self.transforms.batch_bytes(size, images.images)?;
        let plan = |(i, recipe): (usize, _)| self.plan(recipe, images.of.size).map_err(|error| of_image(i, error));
        let plans = recipes.iter().map(AsRef::as_ref).enumerate().map(plan).collect::<Result<Vec<_>>>()?;
        // SAFETY: the contract of `CudaView::new`; there is a plan for each image.
        unsafe { self.runner.run(&images.of, &plans, size) }
    }

    fn plan<'a>(&self, recipe: &'a [Op], size: Size) -> Result<Plan<'a>> {
        let plan = plan_for(&self.transforms.planner, size, recipe)?;
        if plan.epilogue.normalize != self.transforms.tables.normalization() {
            let expected = "that of the transforms, whose tables are on the device";
            return Err(Error::parameter("CudaTransforms", "normalize", expected, "another one, or none"));
        }
        Ok(plan)
    }
}
