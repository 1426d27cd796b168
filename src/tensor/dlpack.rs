//! Hand-over by DLPack, which tensors of other libraries and languages are made from.

use super::{DType, Storage, Tensor};
use crate::error::{Error, Result};
use dlpark::ffi::{DLDataType, DLDevice};
use dlpark::metadata::Fixed;
use dlpark::{Managed, ManagedTensorBase};

impl Tensor {
    /// The tensor as a managed DLPack tensor over the same memory, writable, which goes back to the pipeline when the
    /// consumer calls the deleter, on whatever thread. Its form is `dlpark::versioned::Dlpack` (DLPack 1) or
    /// `dlpark::legacy::Dlpack` (before 1.0), of dlpark 0.10.
    ///
    /// A library that takes managed tensors by address is given `Managed::into_raw()`. For Python put that address into
    /// a capsule named `dltensor_versioned` or `dltensor`, as dlpark's feature `pyo3` does: `numpy.from_dlpack`,
    /// `torch.from_dlpack` and `jax.dlpack.from_dlpack` take an object whose `__dlpack__` returns the capsule and whose
    /// `__dlpack_device__` returns `(1, 0)`. NumPy has no bf16. The elements begin on a cache line.
    ///
    /// # Synchronization
    /// Host memory is complete before the batch is delivered, and there is no stream to wait on: a consumer's `stream`
    /// argument is `None` here. For a tensor on a CUDA device, call [`CudaBuffer::on_stream`](crate::CudaBuffer::on_stream)
    /// with the stream that the consumer names (1: the legacy default stream; 2: the thread's own; else a handle): work
    /// queued there finds the batch complete, and the deleter gives the memory back behind what is queued there by then.
    /// Without it this waits until the batch is complete, and the consumer must be done when it calls the deleter.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if DLPack cannot express the shape; [`Error::Device`] if a device fails at the batch.
    ///
    /// ```
    /// # use warpfeed::prelude::*;
    /// # use warpfeed::{ApplyOptions, apply, image::{Image, JpegOptions, encode_jpeg}};
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(4, 2)), &JpegOptions::default())?;
    /// let tensor = apply(&jpeg, &[], &ApplyOptions::default())?;
    /// let shared: dlpark::versioned::Dlpack = tensor.into_dlpack()?;
    /// let view = shared.validate().expect("it is well formed");
    /// assert_eq!((view.shape(), view.num_bytes()), (&[1, 2, 4, 3][..], 24));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn into_dlpack<M: ManagedTensorBase>(self) -> Result<Managed<M>> {
        let dtype = match self.dtype {
            DType::F32 => DLDataType::F32,
            DType::F16 => DLDataType::F16,
            DType::Bf16 => DLDataType::BF16,
            DType::U8 => DLDataType::U8,
        };
        let shape = self.shape;
        let prepared = Fixed::new(shape, self.strides()).prepare_as::<M>().map_err(|error| Error::Unsupported {
            feature: format!("DLPack for the shape {shape:?}"),
            remedy: error.to_string(),
        })?;
        let mut owner = Box::new(self);
        let (data, device) = match &mut owner.storage {
            Storage::Host(buffer) => (buffer.as_bytes_mut().as_mut_ptr(), DLDevice::CPU),
            Storage::Cuda(buffer) => {
                let device = DLDevice::cuda(i32::try_from(buffer.ordinal()).unwrap_or(i32::MAX));
                (buffer.address_for_consumer()? as *mut u8, device)
            }
        };
        let mut managed = prepared.initialize(owner);
        managed.set_data(data.cast()).set_device(device).set_dtype(dtype);
        // SAFETY: `data` points to at least as many elements of this type as the shape has, contiguous as the strides say
        // (`Tensor::new`), in memory that the tensor in the box owns alone and that does not move with it. The box is
        // dropped by the deleter and by nothing else; it may be dropped on any thread, since a tensor is `Send`. Shape and
        // strides were copied into the managed tensor.
        #[allow(unsafe_code)]
        Ok(unsafe { managed.finish() })
    }
}
