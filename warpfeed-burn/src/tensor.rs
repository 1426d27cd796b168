//! Conversion of warpfeed's tensors to burn's; an `AllocationController` holds the CPU's.
#![allow(unsafe_code)]

#[cfg(feature = "cuda")]
use burn::backend::Cube;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};
use std::mem::MaybeUninit;
use warpfeed::{Error, Result};

/// Converts warpfeed's tensors to burn's.
///
/// ```
/// use burn::tensor::Device;
/// use warpfeed::prelude::*;
/// use warpfeed::{ApplyOptions, apply, ops::Normalize, image::{Image, JpegOptions, encode_jpeg}};
/// use warpfeed_burn::IntoBurn;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(4, 2)), &JpegOptions::default())?;
/// let tensor = apply(&jpeg, &[Normalize::new([0.5; 3], [0.5; 3]).into()], &ApplyOptions::default())?;
/// let images = tensor.into_burn(&Device::flex())?;
/// assert_eq!(images.dims(), [1, 3, 2, 4]);
/// assert_eq!(images.into_data().try_to_vec::<f32>().unwrap(), [-1.0; 24]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub trait IntoBurn {
    /// Converts images to floats of their own type, f32, f16 or bf16, as `[N, C, H, W]` or `[N, H, W, C]`.
    ///
    /// burn's flex backend uses the memory without a copy, and the memory goes back to the pipeline when the last
    /// tensor that shares it is dropped. To a CUDA device, images are copied once from pinned memory
    /// ([`PipelineBuilder::pin_batches`](warpfeed::PipelineBuilder::pin_batches)), and twice from other memory. From a
    /// CUDA device to burn's CUDA backend on the same device they are copied once, within the device, with the feature
    /// `cuda`. Between different devices they are copied through host memory.
    ///
    /// # Synchronization
    /// The tensor may be used, and the pipeline continues, as soon as this returns. For a copy within a device, this
    /// waits for the work that burn has queued there for this thread, and for the copy.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for u8 and u16: use [`into_burn_int`](Self::into_burn_int). [`Error::Device`] if images cannot be
    /// copied from their device.
    fn into_burn(self, device: &Device) -> Result<Tensor<4>>;

    /// Converts u8 and u16 images to integers of 8 and 16 bits. Memory is handled as in [`into_burn`](Self::into_burn).
    ///
    /// # Synchronization
    /// See [`into_burn`](Self::into_burn).
    ///
    /// # Errors
    /// The errors of [`into_burn`](Self::into_burn), with [`Error::Unsupported`] for floats.
    fn into_burn_int(self, device: &Device) -> Result<Tensor<4, Int>>;
}

impl IntoBurn for warpfeed::Tensor {
    fn into_burn(self, device: &Device) -> Result<Tensor<4>> {
        let dtype = match self.dtype() {
            warpfeed::DType::F32 => DType::F32,
            warpfeed::DType::F16 => DType::F16,
            warpfeed::DType::Bf16 => DType::BF16,
            other => {
                return Err(unsupported(
                    other,
                    "call into_burn_int, or have the pipeline deliver floats (PipelineBuilder::output)",
                ));
            }
        };
        #[cfg(feature = "cuda")]
        if let Some(copy) = crate::cuda::copy(&self, device, dtype)? {
            return Ok(Tensor::from_primitive::<Cube>(copy));
        }
        Ok(Tensor::from_data(data(self, dtype)?, (device, dtype)))
    }

    fn into_burn_int(self, device: &Device) -> Result<Tensor<4, Int>> {
        let dtype = match self.dtype() {
            warpfeed::DType::U8 => DType::U8,
            warpfeed::DType::U16 => DType::U16,
            other => return Err(unsupported(other, "call into_burn")),
        };
        #[cfg(feature = "cuda")]
        if let Some(copy) = crate::cuda::copy(&self, device, dtype)? {
            return Ok(Tensor::from_primitive::<Cube>(copy));
        }
        Ok(Tensor::from_data(data(self, dtype)?, (device, dtype)))
    }
}

fn unsupported(dtype: warpfeed::DType, remedy: &str) -> Error {
    Error::Unsupported { feature: format!("{dtype} images as burn's tensor of this kind"), remedy: remedy.to_owned() }
}

/// Data for burn's tensor: the memory itself, or a copy in host memory of a tensor on a device.
fn data(tensor: warpfeed::Tensor, dtype: DType) -> Result<TensorData> {
    let tensor = if tensor.as_bytes().is_ok() { tensor } else { tensor.to_host()? };
    let (shape, len_bytes) = (tensor.shape(), tensor.as_bytes()?.len());
    // SAFETY: the controller's memory has `len_bytes` bytes, all initialized, and keeps them. It may be used and
    // dropped on any thread, as `Bytes` is: see `Lent`.
    let bytes = unsafe { Bytes::from_controller(Box::new(Lent(tensor)), len_bytes) };
    Ok(TensorData::from_bytes(bytes, shape, dtype))
}

/// A tensor in host memory, lent to burn. When dropped, it gives its memory back to the pipeline.
struct Lent(warpfeed::Tensor);

const _: () = {
    const fn is_for_any_thread<T: Send + Sync + 'static>() {}
    is_for_any_thread::<Lent>();
};

impl AllocationController for Lent {
    fn alloc_align(&self) -> usize {
        // A batch begins on a cache line.
        64
    }

    fn property(&self) -> AllocationProperty {
        // A CUDA device reads pinned memory directly.
        if self.0.is_pinned() { AllocationProperty::Pinned } else { AllocationProperty::Other }
    }

    unsafe fn memory_mut(&mut self, _policy: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let bytes = self.0.as_bytes_mut().map_err(|error| AccessError::Read(error.to_string()))?;
        // SAFETY: the same memory under the type that burn asks for, which promises to write initialized data only.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) })
    }

    fn memory(&self, _policy: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let bytes = self.0.as_bytes().map_err(|error| AccessError::Read(error.to_string()))?;
        // SAFETY: the same memory, and initialized bytes are possibly uninitialized ones.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) })
    }
}
