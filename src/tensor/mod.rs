//! Batches as tensors, and their hand-over to trainers.
//!
//! A tensor owns a batch's memory, and the memory knows its pool. So a batch can be given away without a copy, and its
//! memory still comes back, even from DLPack's deleter on another thread.
//!
//! candle's CPU tensors are vectors of exactly the element's type, and do not report when the last tensor is dropped.
//! So the pipeline's buffers are such vectors, a cache line longer so that the batch can begin on one. candle gets the
//! vector, and the pool makes a new one.

mod block;
#[cfg(feature = "candle")]
mod candle;
#[cfg(feature = "dlpack")]
mod dlpack;
mod fields;
mod host;
mod npy;
mod pinned;
mod targets;

use crate::cuda::CudaBuffer;
use crate::device::Device;
use crate::error::{Error, Result};
pub use block::{BatchMemory, MemoryBlock};
use bytemuck::Pod;
#[cfg(feature = "candle")]
pub use candle::failed as candle_failed;
use cudarc::driver::CudaStream;
pub use fields::{DeviceOf, FieldTensor, FieldValues};
use half::{bf16, f16};
pub(crate) use host::{HostBuffer, Pool};
pub use npy::write_npy;
use std::sync::Arc;
pub(crate) use targets::Annotations;
pub use targets::{TargetBytes, TargetElement, TargetTensor, Targets};

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DType {
    /// 32-bit floating point. Without normalization: `v / 255`, 0 to 1.
    F32,
    /// 16-bit floating point (IEEE): the `f32` value rounded to the nearest, ties to even.
    F16,
    /// 16-bit floating point (8-bit exponent): the `f32` value rounded to the nearest, ties to even.
    Bf16,
    /// Unsigned bytes, 0 to 255, not normalized.
    U8,
    /// Unsigned numbers of 16 bits, not normalized: of images that have them
    /// ([`PipelineBuilder::pixels`](crate::PipelineBuilder::pixels)).
    U16,
}

impl DType {
    /// Size of an element in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 | Self::U16 => 2,
            Self::U8 => 1,
        }
    }
}

choices! {
    DType, "dtype":
    F32 = "f32", "32-bit floating point.";
    F16 = "f16", "16-bit floating point, IEEE.";
    Bf16 = "bf16", "16-bit floating point with an exponent of 8 bits.";
    U8 = "u8", "Bytes, not normalized.";
    U16 = "u16", "Numbers of 16 bits, not normalized.";
}

/// The order of a batch's dimensions: N images, C = 3 channels (red, green, blue), H rows, W columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One plane for each channel.
    Nchw,
    /// The channels of a pixel side by side.
    Nhwc,
}

choices! {
    Layout, "layout":
    Nchw = "nchw", "A plane for each channel.";
    Nhwc = "nhwc", "The channels of a pixel next to each other.";
}

/// A Rust type that a tensor's elements can be read as.
pub trait Element: Pod {
    /// The matching [`DType`].
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for f16 {
    const DTYPE: DType = DType::F16;
}
impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
}
impl Element for u8 {
    const DTYPE: DType = DType::U8;
}
impl Element for u16 {
    const DTYPE: DType = DType::U16;
}

/// The memory of a tensor's elements.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Host memory. The elements begin at the start of the buffer.
    Host(HostBuffer),
    /// In device memory.
    Cuda(CudaBuffer),
}

impl Storage {
    fn cuda(&self) -> Option<&CudaBuffer> {
        match self {
            Self::Host(_) => None,
            Self::Cuda(buffer) => Some(buffer),
        }
    }

    fn device(&self) -> Device {
        self.cuda().map_or(Device::Cpu, |buffer| Device::Cuda(buffer.ordinal()))
    }

    /// The first `len_bytes` bytes, which must be in host memory.
    fn as_bytes(&self, len_bytes: usize) -> Result<&[u8]> {
        match self {
            Self::Host(buffer) => Ok(&buffer.shown()[..len_bytes]),
            Self::Cuda(_) => Err(on_device(self.device())),
        }
    }

    /// A copy of the first `len_bytes` bytes in host memory.
    fn to_host(&self, dtype: DType, len_bytes: usize) -> Result<HostBuffer> {
        let mut copy = HostBuffer::new(dtype, len_bytes)?;
        match self {
            Self::Host(buffer) => copy.as_bytes_mut().copy_from_slice(&buffer.as_bytes()[..len_bytes]),
            Self::Cuda(buffer) => buffer.read(0, copy.as_bytes_mut())?,
        }
        Ok(copy)
    }

    /// The first `len_bytes` bytes in host memory. They are copied only if they are on a device.
    pub(crate) fn into_host(self, dtype: DType, len_bytes: usize) -> Result<HostBuffer> {
        match self {
            Self::Host(buffer) => Ok(buffer),
            Self::Cuda(_) => self.to_host(dtype, len_bytes),
        }
    }
}

/// The error for reading a tensor on a device as if it were in host memory.
fn on_device(device: Device) -> Error {
    Error::Unsupported {
        feature: format!("reading a tensor on {device} in place"),
        remedy: "copy it with to_host() first".to_owned(),
    }
}

/// A batch of images as numbers: contiguous, in host memory or on a device.
///
/// When a tensor is dropped, its memory goes back to the pipeline that it came from.
///
/// ```
/// use warpfeed::prelude::*;
/// use warpfeed::{ApplyOptions, apply, ops::Normalize, image::{Image, JpegOptions, encode_jpeg}};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(4, 2)), &JpegOptions::default())?;
/// let tensor = apply(&jpeg, &[Normalize::new([0.5; 3], [0.5; 3]).into()], &ApplyOptions::default())?;
/// assert_eq!((tensor.shape(), tensor.dtype(), tensor.layout()), ([1, 3, 2, 4], DType::F32, Layout::Nchw));
/// assert_eq!((tensor.strides(), tensor.device()), ([24, 8, 4, 1], Device::Cpu));
/// assert_eq!(tensor.as_slice::<f32>()?, [-1.0; 24]);
/// assert!(tensor.as_slice::<u8>().is_err());
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug)]
pub struct Tensor {
    storage: Storage,
    shape: [usize; 4],
    dtype: DType,
    layout: Layout,
}

impl Tensor {
    pub(crate) fn new(storage: Storage, shape: [usize; 4], dtype: DType, layout: Layout) -> Self {
        let tensor = Self { storage, shape, dtype, layout };
        match &tensor.storage {
            Storage::Host(buffer) => debug_assert!(tensor.len_bytes() <= buffer.as_bytes().len()),
            Storage::Cuda(buffer) => debug_assert!(tensor.len_bytes() <= buffer.len_bytes()),
        }
        tensor
    }

    /// The shape: `[N, 3, H, W]` or `[N, H, W, 3]`, depending on the [`layout`](Self::layout).
    #[must_use]
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// For each dimension, the distance between neighbors, in elements.
    #[must_use]
    pub fn strides(&self) -> [usize; 4] {
        let [_, a, b, c] = self.shape;
        [a * b * c, b * c, c, 1]
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The order of the dimensions.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The device that holds the elements. [`Device::Cpu`] is host memory.
    #[must_use]
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// Whether the elements are in pinned host memory
    /// ([`PipelineBuilder::pin_batches`](crate::PipelineBuilder::pin_batches)).
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        matches!(&self.storage, Storage::Host(buffer) if buffer.is_pinned())
    }

    /// Names a stream that reads a pinned tensor ([`PipelineBuilder::pin_batches`](crate::PipelineBuilder::pin_batches)).
    /// The pipeline fills the memory again once the work is done that is queued there when the tensor is dropped. If no
    /// stream is named, it waits for all work of the device, which ends captures of graphs. So name all streams that
    /// read it, or none. Has no effect on other tensors: [`CudaBuffer::on_stream`] is for those on a device.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a stream of another device, and for one that captures a graph.
    pub fn read_on(&self, stream: &Arc<CudaStream>) -> Result<()> {
        let Storage::Host(buffer) = &self.storage else { return Ok(()) };
        buffer.pin().map_or(Ok(()), |pin| pin.read_on(stream))
    }

    /// The device memory that holds the elements; `None` if they are in host memory.
    #[must_use]
    pub fn cuda(&self) -> Option<&CudaBuffer> {
        self.storage.cuda()
    }

    /// Waits until the elements are complete. In host memory they always are.
    ///
    /// # Synchronization
    /// The elements are complete when this returns. A trainer on the same device need not call it: its stream waits for
    /// the batch ([`CudaBuffer::on_stream`]).
    ///
    /// # Errors
    /// [`Error::Device`] if the device fails.
    pub fn synchronize(&self) -> Result<()> {
        self.cuda().map_or(Ok(()), CudaBuffer::synchronize)
    }

    /// All elements as bytes in the machine's byte order. The first image comes first.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the tensor is on a device: [`to_host`](Self::to_host) copies it.
    pub fn as_bytes(&self) -> Result<&[u8]> {
        self.storage.as_bytes(self.len_bytes())
    }

    /// All elements as bytes that can be changed in place. See [`as_bytes`](Self::as_bytes).
    ///
    /// # Synchronization
    /// A pinned tensor ([`PipelineBuilder::pin_batches`](crate::PipelineBuilder::pin_batches)) waits for the work that
    /// has been queued on its device, which may still read it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the tensor is on a device; [`Error::Device`] if a pinned tensor's device has failed.
    pub fn as_bytes_mut(&mut self) -> Result<&mut [u8]> {
        let (device, len_bytes) = (self.device(), self.len_bytes());
        match &mut self.storage {
            Storage::Host(buffer) => {
                buffer.wait_for_readers()?;
                Ok(&mut buffer.shown_mut()[..len_bytes])
            }
            Storage::Cuda(_) => Err(on_device(device)),
        }
    }

    /// All elements. The first image comes first.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `T` is not the tensor's element type; [`Error::Unsupported`] if the tensor is on a
    /// device: [`to_host`](Self::to_host) copies it.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.dtype {
            return Err(Error::parameter("Tensor::as_slice", "T", format!("the tensor's {}", self.dtype), T::DTYPE));
        }
        Ok(bytemuck::cast_slice(self.as_bytes()?))
    }

    /// The bytes of image `i` of the batch.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `i` is not below `shape()[0]`; [`Error::Unsupported`] if the tensor is on a device:
    /// [`to_host`](Self::to_host) copies it.
    pub fn image_bytes(&self, i: usize) -> Result<&[u8]> {
        let images = self.shape[0];
        if i >= images {
            return Err(Error::parameter("Tensor::image_bytes", "i", format!("below {images}"), i));
        }
        let bytes = self.len_bytes() / images;
        Ok(&self.as_bytes()?[i * bytes..][..bytes])
    }

    /// Copies the tensor to host memory. The copy is complete when this returns.
    ///
    /// # Errors
    /// [`Error::Device`] if a device fails; [`Error::OutOfMemory`] if there is no memory for the copy.
    pub fn to_host(&self) -> Result<Self> {
        let copy = self.storage.to_host(self.dtype, self.len_bytes())?;
        Ok(Self::new(Storage::Host(copy), self.shape, self.dtype, self.layout))
    }

    /// The tensor in host memory, copied only if it is on a device.
    pub(crate) fn into_host(self) -> Result<Self> {
        let Self { storage, shape, dtype, layout } = self;
        let len_bytes = shape.iter().product::<usize>() * dtype.size_bytes();
        Ok(Self::new(Storage::Host(storage.into_host(dtype, len_bytes)?), shape, dtype, layout))
    }

    /// All elements as a vector. The first image comes first. A batch in host memory gives the vector that it is stored
    /// in, without another allocation. The memory does not go back to the pipeline.
    ///
    /// ```
    /// # use warpfeed::prelude::*;
    /// # use warpfeed::{ApplyOptions, apply, image::{Image, JpegOptions, encode_jpeg}};
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(4, 2)), &JpegOptions::default())?;
    /// let tensor = apply(&jpeg, &[], &ApplyOptions::default())?;
    /// assert_eq!(tensor.into_vec::<f32>()?, [0.0; 24]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] if `T` is not the tensor's element type; the errors of [`to_host`](Self::to_host) if the
    /// tensor is on a device.
    pub fn into_vec<T: Element>(self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype {
            return Err(Error::parameter("Tensor::into_vec", "T", format!("the tensor's {}", self.dtype), T::DTYPE));
        }
        let (len, len_bytes) = (self.shape.iter().product(), self.len_bytes());
        Ok(self.storage.into_host(self.dtype, len_bytes)?.into_vec(len))
    }

    /// The caller's memory that the elements are in
    /// ([`PipelineBuilder::batch_memory`](crate::PipelineBuilder::batch_memory)), from its start on.
    ///
    /// # Errors
    /// The tensor itself, if it is in other memory.
    pub fn into_block(self) -> std::result::Result<MemoryBlock, Box<Self>> {
        let Self { storage, shape, dtype, layout } = self;
        let again = |storage| Box::new(Self { storage, shape, dtype, layout });
        match storage {
            Storage::Host(buffer) => buffer.into_block().map_err(|buffer| again(Storage::Host(buffer))),
            storage @ Storage::Cuda(_) => Err(again(storage)),
        }
    }

    fn len_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_wherever_the_tensor_went() {
        type GiveAway = fn(Tensor);
        let ways: [(&str, GiveAway, bool); _] = [
            ("dropped", drop, true),
            ("to another thread", |tensor| std::thread::spawn(|| drop(tensor)).join().unwrap(), true),
            #[cfg(feature = "dlpack")]
            ("legacy DLPack", |tensor| drop(tensor.into_dlpack::<dlpark::ffi::DLManagedTensor>().unwrap()), true),
            #[cfg(feature = "dlpack")]
            ("DLPack", |tensor| drop(tensor.into_dlpack::<dlpark::ffi::DLManagedTensorVersioned>().unwrap()), true),
            #[cfg(feature = "candle")]
            ("candle", |tensor| drop(tensor.into_candle(&candle_core::Device::Cpu).unwrap()), false),
        ];
        for (name, give_away, comes_back) in ways {
            let pool = Arc::new(Pool::new(DType::F32, 1));
            let mut buffer = pool.take(240).unwrap();
            buffer.as_bytes_mut().fill(7);
            give_away(Tensor::new(Storage::Host(buffer), [1, 3, 4, 5], DType::F32, Layout::Nchw));
            assert_eq!(Arc::strong_count(&pool), 1, "{name}");
            let want = if comes_back { 7 } else { 0 };
            assert!(pool.take(240).unwrap().as_bytes().iter().all(|byte| *byte == want), "{name}");
        }
    }
}
