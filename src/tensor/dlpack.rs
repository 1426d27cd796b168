//! Hand-over by DLPack, from which other libraries and languages make tensors.

use super::{DType, Storage, Tensor};
use crate::cuda::CudaBuffer;
use crate::error::{Error, Result};
use cudarc::driver::sys;
use dlpark::ffi::{DLDataType, DLDevice};
use dlpark::metadata::Fixed;
use dlpark::{Managed, ManagedTensorBase};
use std::sync::Arc;

impl Tensor {
    /// Turns the tensor into a managed DLPack tensor over the same memory, which is writable. The memory goes back to
    /// the pipeline when the consumer calls the deleter, on any thread. `M` is `dlpark::versioned::Dlpack` (DLPack 1)
    /// or `dlpark::legacy::Dlpack` (before 1.0), of dlpark 0.10.
    ///
    /// Give `Managed::into_raw()` to a library that takes managed tensors by address. For Python put that address into
    /// a capsule named `dltensor_versioned` or `dltensor`, as dlpark's feature `pyo3` does: `numpy.from_dlpack`,
    /// `torch.from_dlpack` and `jax.dlpack.from_dlpack` take an object whose `__dlpack__` returns the capsule and whose
    /// `__dlpack_device__` returns `(1, 0)`. NumPy has no bf16. The elements begin on a cache line.
    ///
    /// # Synchronization
    /// If [`CudaBuffer::on_stream`](crate::CudaBuffer::on_stream) was called with some streams, this returns at once,
    /// and work queued on those streams finds the tensor complete. Otherwise the tensor is complete when this returns.
    ///
    /// The deleter gives device memory back once the work queued by then on these streams is done; if there are none,
    /// the work on the legacy default stream and on all streams that it waits for. A consumer that reads the tensor on
    /// another stream names that stream ([`into_dlpack_on`](Self::into_dlpack_on)), or finishes before it calls the
    /// deleter.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if DLPack cannot express the shape; [`Error::Device`] if the device fails.
    ///
    /// ```
    /// # use warpfeed::prelude::*;
    /// # use warpfeed::{ApplyOptions, apply, image::{Image, JpegOptions, encode_jpeg}};
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(4, 2)), &JpegOptions::default())?;
    /// let tensor = apply(&jpeg, &[], &ApplyOptions::default())?;
    /// let shared: dlpark::versioned::Dlpack = tensor.into_dlpack()?;
    /// let view = shared.validate().expect("it is well formed");
    /// assert_eq!((view.shape(), view.num_bytes()), (&[1, 3, 2, 4][..], 96));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn into_dlpack<M: ManagedTensorBase>(self) -> Result<Managed<M>> {
        self.managed(CudaBuffer::lend)
    }

    /// Makes a managed DLPack tensor for a consumer that names the stream on which it will read a tensor on a CUDA
    /// device. `stream` is the argument of Python's `__dlpack__`: 1 or `None` for the legacy default stream, 2 for the
    /// calling thread's default stream, a number above 2 for a stream's handle. With -1 the consumer waits for the
    /// tensor by itself. See [`into_dlpack`](Self::into_dlpack).
    ///
    /// # Safety
    /// A handle must belong to a stream of the tensor's device that lives until the consumer calls the deleter.
    ///
    /// # Synchronization
    /// Returns at once. Work queued on the stream after this call finds the tensor complete. The deleter gives the
    /// memory back once the work queued there by then is done; with -1, the work on the legacy default stream and on
    /// all streams that it waits for.
    ///
    /// # Errors
    /// The errors of [`into_dlpack`](Self::into_dlpack); [`Error::Parameter`] for any other number, and for every
    /// number if the tensor is in host memory.
    #[allow(unsafe_code)]
    pub unsafe fn into_dlpack_on<M: ManagedTensorBase>(self, stream: Option<isize>) -> Result<Managed<M>> {
        check_stream("Tensor::into_dlpack_on", stream, self.cuda().is_some())?;
        // SAFETY: this function's contract.
        self.managed(|buffer| unsafe { lend_on(buffer, stream) })
    }

    /// Makes the managed tensor. `lend` returns the address of device memory.
    fn managed<M: ManagedTensorBase>(self, lend: impl FnOnce(&CudaBuffer) -> Result<u64>) -> Result<Managed<M>> {
        let strides = self.strides();
        let dtype = match self.dtype {
            DType::F32 => DLDataType::F32,
            DType::F16 => DLDataType::F16,
            DType::Bf16 => DLDataType::BF16,
            DType::U8 => DLDataType::U8,
            DType::U16 => DLDataType::U16,
        };
        managed(self.storage, dtype, self.shape, strides, lend)
    }
}

/// Makes a managed tensor of the contiguous elements at the beginning of `storage`. `lend` returns the address of
/// device memory.
pub(crate) fn managed<M: ManagedTensorBase, const N: usize>(
    storage: Storage,
    dtype: DLDataType,
    shape: [usize; N],
    strides: [usize; N],
    lend: impl FnOnce(&CudaBuffer) -> Result<u64>,
) -> Result<Managed<M>> {
    let mut owner = Box::new(storage);
    let (data, device) = match &mut *owner {
        Storage::Host(buffer) => (buffer.shown_mut().as_mut_ptr(), DLDevice::CPU),
        Storage::Cuda(buffer) => (lend(buffer)? as *mut u8, device_of(buffer)),
    };
    // SAFETY: `data` points to at least as many elements of this type as the shape has, contiguous as the strides say
    // (`Tensor::new`, `Rows::finish`), in memory that the storage in the box owns alone and that does not move with it.
    #[allow(unsafe_code)]
    unsafe {
        finish(owner, (data, device), dtype, shape, strides)
    }
}

/// Makes a managed tensor of elements in device memory that others share, from an offset on. `lend` returns the
/// memory's address.
///
/// # Safety
/// The memory has all elements of this type that the shape and the strides name.
#[allow(unsafe_code)]
pub(super) unsafe fn managed_part<M: ManagedTensorBase, const N: usize>(
    (memory, offset_bytes): (Arc<CudaBuffer>, usize),
    dtype: DLDataType,
    shape: [usize; N],
    strides: [usize; N],
    lend: impl FnOnce(&CudaBuffer) -> Result<u64>,
) -> Result<Managed<M>> {
    let (data, device) = ((lend(&memory)? + offset_bytes as u64) as *mut u8, device_of(&memory));
    // SAFETY: the contract; the memory lives as long as the last that shares it.
    unsafe { finish(Box::new(memory), (data, device), dtype, shape, strides) }
}

fn device_of(buffer: &CudaBuffer) -> DLDevice {
    DLDevice::cuda(i32::try_from(buffer.ordinal()).unwrap_or(i32::MAX))
}

/// Checks the argument of Python's `__dlpack__` for a tensor on a device, or in host memory.
pub(super) fn check_stream(call: &'static str, stream: Option<isize>, on_device: bool) -> Result<()> {
    let expected = match stream {
        Some(_) if !on_device => "None for a tensor in host memory",
        Some(..=-2 | 0) => "-1, 1, 2 or a stream's handle",
        _ => return Ok(()),
    };
    let got = stream.map_or_else(|| "None".to_owned(), |stream| stream.to_string());
    Err(Error::parameter(call, "stream", expected, got))
}

/// Lends the memory to a consumer that names its stream, as [`Tensor::into_dlpack_on`] takes it.
///
/// # Safety
/// A handle belongs to a stream of the buffer's device that lives until the buffer is dropped.
#[allow(unsafe_code)]
pub(super) unsafe fn lend_on(buffer: &CudaBuffer, stream: Option<isize>) -> Result<u64> {
    match stream {
        Some(-1) => buffer.lend_unordered(),
        // SAFETY: a default stream, or the contract.
        handle => unsafe { buffer.on_raw_stream(handle.unwrap_or(1) as sys::CUstream) },
    }
}

/// Makes a managed tensor that frees `owner` when it is deleted.
///
/// # Safety
/// `data` points to all elements of this type that the shape and the strides name, in memory that `owner` keeps alive
/// and that does not move with it.
#[allow(unsafe_code)]
unsafe fn finish<M: ManagedTensorBase, T: Send + 'static, const N: usize>(
    owner: Box<T>,
    (data, device): (*mut u8, DLDevice),
    dtype: DLDataType,
    shape: [usize; N],
    strides: [usize; N],
) -> Result<Managed<M>> {
    let prepared = Fixed::new(shape, strides).prepare_as::<M>().map_err(|error| Error::Unsupported {
        feature: format!("DLPack for the shape {shape:?}"),
        remedy: error.to_string(),
    })?;
    let mut managed = prepared.initialize(owner);
    managed.set_data(data.cast()).set_device(device).set_dtype(dtype);
    // SAFETY: the contract. The box is dropped by the deleter and by nothing else; it may be dropped on any thread,
    // since the owner is `Send`. Shape and strides were copied into the managed tensor.
    Ok(unsafe { managed.finish() })
}
