//! Tensors of warpfeed as tensors of burn.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};
use std::mem::MaybeUninit;
use warpfeed::{Error, Result};

/// How warpfeed's tensors become burn's.
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
    /// Images as floats of the type that they have, `[N, C, H, W]` or `[N, H, W, C]`. burn's flex takes the memory as it
    /// is; it goes back to the pipeline when the last tensor that shares it is dropped.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for u8: [`into_burn_int`](Self::into_burn_int) takes them. [`Error::Device`] if images on a
    /// device cannot be copied from it.
    fn into_burn(self, device: &Device) -> Result<Tensor<4>>;

    /// u8 images as whole numbers of 8 bits.
    ///
    /// # Errors
    /// As [`into_burn`](Self::into_burn), for floats.
    fn into_burn_int(self, device: &Device) -> Result<Tensor<4, Int>>;
}

impl IntoBurn for warpfeed::Tensor {
    fn into_burn(self, device: &Device) -> Result<Tensor<4>> {
        let dtype = match self.dtype() {
            warpfeed::DType::F32 => DType::F32,
            warpfeed::DType::F16 => DType::F16,
            warpfeed::DType::Bf16 => DType::BF16,
            other => return Err(unsupported(other, "into_burn_int")),
        };
        Ok(Tensor::from_data(data(self, dtype)?, (device, dtype)))
    }

    fn into_burn_int(self, device: &Device) -> Result<Tensor<4, Int>> {
        match self.dtype() {
            warpfeed::DType::U8 => Ok(Tensor::from_data(data(self, DType::U8)?, (device, DType::U8))),
            other => Err(unsupported(other, "into_burn")),
        }
    }
}

fn unsupported(dtype: warpfeed::DType, call: &str) -> Error {
    Error::Unsupported { feature: format!("{dtype} images as this kind of tensor"), remedy: format!("call {call}") }
}

fn data(tensor: warpfeed::Tensor, dtype: DType) -> Result<TensorData> {
    let tensor = if tensor.as_bytes().is_ok() { tensor } else { tensor.to_host()? };
    let (shape, len_bytes) = (tensor.shape(), tensor.as_bytes()?.len());
    #[expect(unsafe_code, reason = "burn takes memory of others only so")]
    // SAFETY: the controller's memory has `len_bytes` bytes, all initialized, and keeps them.
    let bytes = unsafe { Bytes::from_controller(Box::new(Lent(tensor)), len_bytes) };
    Ok(TensorData::from_bytes(bytes, shape, dtype))
}

/// A tensor in host memory, lent to burn. Dropped, it gives its memory back to the pipeline.
struct Lent(warpfeed::Tensor);

impl AllocationController for Lent {
    fn alloc_align(&self) -> usize {
        // A batch begins on a cache line.
        64
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(&mut self, _policy: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let bytes = self.0.as_bytes_mut().map_err(|error| AccessError::Read(error.to_string()))?;
        #[expect(unsafe_code, reason = "no safe call makes uninitialized bytes of initialized ones")]
        // SAFETY: the same memory under the type that burn asks for, which promises to write initialized data only.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) })
    }

    fn memory(&self, _policy: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let bytes = self.0.as_bytes().map_err(|error| AccessError::Read(error.to_string()))?;
        #[expect(unsafe_code, reason = "no safe call makes uninitialized bytes of initialized ones")]
        // SAFETY: the same memory, and initialized bytes are possibly uninitialized ones.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) })
    }
}
