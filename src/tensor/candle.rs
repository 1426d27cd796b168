//! Hand-over to candle.

use super::host::Elements;
use super::{DType, Storage, Tensor};
use crate::error::{Error, Result};
use candle_core::{Device, WithDType};
use half::{bf16, f16};

impl Tensor {
    /// Turns the tensor into one of candle 0.11, with the same shape, on `device`.
    ///
    /// candle's CPU gets it without a copy: the vector that the pipeline filled becomes the candle tensor's storage. It
    /// does not come back to the pipeline, which makes a new one for a later batch. A copy would cost more: its
    /// destination is a new vector with the same page faults.
    ///
    /// With feature `candle-cuda`, candle's tensor on the same CUDA device takes the batch's memory without a copy, and
    /// the pipeline takes other memory from the device's pool.
    ///
    /// Between devices the elements are copied, through host memory, and the batch's memory goes back to the pipeline.
    ///
    /// # Synchronization
    /// A copy is ordered before candle's later work on `device`. From a pinned batch
    /// ([`PipelineBuilder::pin_batches`](crate::PipelineBuilder::pin_batches)) it runs later, and the pipeline waits
    /// for it before it fills the memory again. Without a copy, candle's stream is made to wait for the batch.
    ///
    /// # Errors
    /// [`Error::Device`] if candle cannot copy the tensor to `device`.
    ///
    /// ```
    /// # use warpfeed::prelude::*;
    /// # use warpfeed::{ApplyOptions, apply, ops::Normalize, image::{Image, JpegOptions, encode_jpeg}};
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(4, 2)), &JpegOptions::default())?;
    /// let tensor = apply(&jpeg, &[Normalize::new([0.5; 3], [0.5; 3]).into()], &ApplyOptions::default())?;
    /// let images = tensor.into_candle(&candle_core::Device::Cpu)?;
    /// assert_eq!((images.dims(), images.dtype()), (&[1, 3, 2, 4][..], candle_core::DType::F32));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn into_candle(self, device: &Device) -> Result<candle_core::Tensor> {
        #[cfg(feature = "candle-cuda")]
        let this = match (self.storage, device) {
            (Storage::Cuda(buffer), Device::Cuda(candle)) if cuda::is_same(&buffer, candle) => {
                return cuda::adopt(buffer, self.shape, self.dtype, candle);
            }
            (storage, _) => Self { storage, ..self },
        };
        #[cfg(not(feature = "candle-cuda"))]
        let this = self;
        this.into_candle_through_host(device)
    }

    fn into_candle_through_host(self, device: &Device) -> Result<candle_core::Tensor> {
        let (shape, element_bytes) = (self.shape, self.dtype.size_bytes());
        let tensor = if device.is_cpu() {
            let len = shape.iter().product();
            let buffer = match self.storage {
                Storage::Host(buffer) => buffer,
                Storage::Cuda(_) => return self.to_host()?.into_candle_through_host(device),
            };
            let (elements, start_bytes) = buffer.into_elements();
            match elements {
                Elements::F32(vector) => adopt(vector),
                Elements::F16(vector) => adopt(vector),
                Elements::Bf16(vector) => adopt(vector),
                Elements::U8(vector) => adopt(vector),
                // candle has no 16-bit numbers without a sign.
                Elements::U16(vector) => adopt(vector.into_iter().map(u32::from).collect()),
            }
            .and_then(|vector| vector.narrow(0, start_bytes / element_bytes, len)?.reshape(&shape[..]))
        } else if let Storage::Cuda(_) = self.storage {
            return self.to_host()?.into_candle_through_host(device);
        } else {
            #[cfg(feature = "candle-cuda")]
            cuda::will_read(&self, device)?;
            match self.dtype {
                DType::F32 => candle_core::Tensor::from_slice(self.as_slice::<f32>()?, &shape[..], device),
                DType::F16 => candle_core::Tensor::from_slice(self.as_slice::<f16>()?, &shape[..], device),
                DType::Bf16 => candle_core::Tensor::from_slice(self.as_slice::<bf16>()?, &shape[..], device),
                DType::U8 => candle_core::Tensor::from_slice(self.as_slice::<u8>()?, &shape[..], device),
                DType::U16 => {
                    let numbers: Vec<u32> = self.as_slice::<u16>()?.iter().map(|number| u32::from(*number)).collect();
                    candle_core::Tensor::from_vec(numbers, &shape[..], device)
                }
            }
        };
        tensor.map_err(|error| failed("Tensor::into_candle", &error))
    }
}

/// Turns the vector into a one-dimensional tensor without a copy.
fn adopt<T: WithDType>(vector: Vec<T>) -> candle_core::Result<candle_core::Tensor> {
    let len = vector.len();
    candle_core::Tensor::from_vec(vector, len, &Device::Cpu)
}

/// So that `?` works in functions that return candle's errors.
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        Self::wrap(error)
    }
}

/// The error for a failed call of candle.
pub fn failed(call: &str, error: &candle_core::Error) -> Error {
    Error::Device { call: call.to_owned(), message: error.to_string() }
}

#[cfg(feature = "candle-cuda")]
mod cuda {
    //! Hand-over without a copy on a CUDA device.
    #![allow(unsafe_code)]

    use crate::cuda::CudaBuffer;
    use crate::error::{Error, Result};
    use crate::tensor::DType;
    use candle_core::cuda_backend::CudaDType;
    use candle_core::op::BackpropOp;
    use candle_core::{CudaDevice, CudaStorage, Device, Storage, Tensor};
    use half::{bf16, f16};

    /// Whether the buffer is on candle's device.
    pub(super) fn is_same(buffer: &CudaBuffer, device: &CudaDevice) -> bool {
        device.cuda_stream().context().ordinal() == buffer.ordinal() as usize
    }

    /// Names candle's stream, on which it copies a pinned tensor.
    pub(super) fn will_read(tensor: &super::Tensor, device: &Device) -> Result<()> {
        match (&tensor.storage, device) {
            (super::Storage::Host(buffer), Device::Cuda(candle))
                if buffer
                    .pin()
                    .is_some_and(|pin| pin.context().ordinal() == candle.cuda_stream().context().ordinal()) =>
            {
                tensor.read_on(&candle.cuda_stream())
            }
            _ => Ok(()),
        }
    }

    /// Makes a candle tensor of the buffer's memory.
    pub(super) fn adopt(buffer: CudaBuffer, shape: [usize; 4], dtype: DType, device: &CudaDevice) -> Result<Tensor> {
        match dtype {
            DType::F32 => adopt_as::<f32>(buffer, shape, device),
            DType::F16 => adopt_as::<f16>(buffer, shape, device),
            DType::Bf16 => adopt_as::<bf16>(buffer, shape, device),
            DType::U8 => adopt_as::<u8>(buffer, shape, device),
            DType::U16 => Err(Error::Unsupported {
                feature: "u16 of a CUDA device in candle".to_owned(),
                remedy: "deliver f32, or copy the batch to the host first (Tensor::to_host)".to_owned(),
            }),
        }
    }

    fn adopt_as<T: CudaDType>(buffer: CudaBuffer, shape: [usize; 4], device: &CudaDevice) -> Result<Tensor> {
        let stream = device.cuda_stream();
        let address = buffer.give_away(&stream)?;
        // SAFETY: the memory is the slice's from here on, holds at least as many elements of this type, and is freed
        // where the stream stands then; the stream has been made to wait for whatever wrote or read it before.
        let slice = unsafe { stream.upgrade_device_ptr::<T>(address, shape.iter().product()) };
        let storage = CudaStorage::wrap_cuda_slice(slice, device.clone());
        Ok(Tensor::from_storage(Storage::Cuda(storage), &shape[..], BackpropOp::none(), false))
    }
}
