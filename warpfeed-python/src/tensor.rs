//! Arrays that go to Python by DLPack.

use crate::ending::detached;
use crate::error::raise;
use crate::forks::OfProcess;
use dlpark::ffi::{DLDevice, DLManagedTensorVersioned};
use dlpark::python::ExportRequest;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};
use warpfeed::{CudaBuffer, Device, Error, FieldTensor, TargetTensor, TargetType};

/// The memory of an array.
pub(crate) enum Held {
    Images(warpfeed::Tensor),
    Targets(TargetTensor),
    Fields(FieldTensor),
}

impl Held {
    fn device(&self) -> Device {
        match self {
            Self::Images(tensor) => tensor.device(),
            Self::Targets(tensor) => tensor.device(),
            Self::Fields(tensor) => tensor.device(),
        }
    }

    fn dtype(&self) -> &'static str {
        match self {
            Self::Images(tensor) => match tensor.dtype() {
                warpfeed::DType::F32 => "float32",
                warpfeed::DType::F16 => "float16",
                warpfeed::DType::Bf16 => "bfloat16",
                warpfeed::DType::U8 => "uint8",
                warpfeed::DType::U16 => "uint16",
                _ => "unknown",
            },
            Self::Targets(tensor) => match tensor.element() {
                TargetType::F32 => "float32",
                TargetType::U32 => "uint32",
            },
            Self::Fields(tensor) => tensor.type_name(),
        }
    }

    fn cuda(&self) -> Option<&CudaBuffer> {
        match self {
            Self::Images(tensor) => tensor.cuda(),
            Self::Targets(tensor) => tensor.cuda(),
            Self::Fields(tensor) => tensor.cuda(),
        }
    }

    /// Makes the stream that the consumer names wait for the array, as Python's `__dlpack__` names it.
    ///
    /// # Errors
    /// `ParameterError` for a number that names no stream, and for a stream that captures a graph or is another
    /// device's.
    fn wait_on(&self, py: Python<'_>, stream: Option<isize>) -> PyResult<()> {
        let Some(memory) = self.cuda() else { return Ok(()) };
        let stream = match stream {
            Some(-1) => return Ok(()),
            Some(stream @ ..=0) => {
                return Err(raise(Error::Parameter {
                    operation: "__dlpack__",
                    parameter: "stream",
                    expected: "None, -1, 1, 2 or a stream's handle".to_owned(),
                    got: stream.to_string(),
                }));
            }
            None => 1,
            Some(stream) => stream,
        };
        let raw = std::ptr::with_exposed_provenance_mut(stream as usize);
        // SAFETY: Python's protocol has the consumer name a stream of its own, which outlives its tensor. One of CuPy's
        // lives as long as its object.
        #[allow(unsafe_code)]
        let waits = unsafe {
            match cupy_stream(py, stream) {
                Some(owner) => memory.on_kept_stream(raw, Arc::new(owner.unbind())),
                None => memory.on_raw_stream(raw),
            }
        };
        waits.map(drop).map_err(raise)
    }

    /// The managed tensor of an array whose consumer waits for it, by [`wait_on`](Self::wait_on) or, with -1, by
    /// itself.
    fn managed<M: ManagedTensorBase>(self, stream: Option<isize>) -> PyResult<Managed<M>> {
        let own = stream.filter(|stream| *stream == -1 && self.cuda().is_some());
        match (self, own) {
            (Self::Images(tensor), None) => tensor.into_dlpack(),
            (Self::Targets(tensor), None) => tensor.into_dlpack(),
            (Self::Fields(tensor), None) => tensor.into_dlpack(),
            // SAFETY: no stream is named.
            #[allow(unsafe_code)]
            (Self::Images(tensor), own) => unsafe { tensor.into_dlpack_on(own) },
            // SAFETY: as above.
            #[allow(unsafe_code)]
            (Self::Targets(tensor), own) => unsafe { tensor.into_dlpack_on(own) },
            // SAFETY: as above.
            #[allow(unsafe_code)]
            (Self::Fields(tensor), own) => unsafe { tensor.into_dlpack_on(own) },
        }
        .map_err(raise)
    }

    /// The array in host memory, copied if it is on a device.
    fn on_host(self) -> PyResult<Self> {
        match self {
            Self::Images(tensor) if tensor.cuda().is_some() => tensor.to_host().map(Self::Images).map_err(raise),
            Self::Targets(tensor) if tensor.cuda().is_some() => tensor.to_host().map(Self::Targets).map_err(raise),
            Self::Fields(tensor) if tensor.cuda().is_some() => tensor.to_host().map(Self::Fields).map_err(raise),
            other => Ok(other),
        }
    }
}

/// CuPy's object for its current stream, if that is the stream with this handle. CuPy destroys a stream with its last
/// object, which may come before the tensor's end.
fn cupy_stream(py: Python<'_>, handle: isize) -> Option<Bound<'_, PyAny>> {
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let current = modules.get_item("cupy").ok()?.getattr("cuda").ok()?.call_method0("get_current_stream").ok()?;
    let is_it = current.getattr("ptr").ok()?.extract::<isize>().is_ok_and(|ptr| ptr == handle);
    is_it.then_some(current)
}

/// Tells the consumer, who has asked for a copy, that no other code has the memory.
fn as_copy(managed: Managed<DLManagedTensorVersioned>) -> PyResult<Managed<DLManagedTensorVersioned>> {
    let raw = managed.into_raw();
    // SAFETY: it is valid and used by no other code, and stays so when it says that it is a copy.
    #[allow(unsafe_code)]
    let managed = unsafe {
        (*raw).flags |= DlpackFlags::IS_COPIED;
        Managed::from_raw(raw)
    };
    managed.map_err(|error| PyBufferError::new_err(error.to_string()))
}

/// An array on a device, which is given away once: to `torch.from_dlpack`, `numpy.from_dlpack` or
/// `jax.dlpack.from_dlpack`.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct Tensor {
    held: OfProcess<Mutex<Option<Held>>>,
    /// Number of elements in each dimension.
    #[pyo3(get)]
    shape: Vec<usize>,
    /// Type of the elements, by numpy's name.
    #[pyo3(get)]
    dtype: &'static str,
    device: Device,
}

impl Tensor {
    pub(crate) fn new(held: Held, shape: impl Into<Vec<usize>>) -> Self {
        let (dtype, device) = (held.dtype(), held.device());
        Self { held: OfProcess::new(Mutex::new(Some(held))), shape: shape.into(), dtype, device }
    }

    pub(crate) fn fields(tensor: impl Into<FieldTensor>) -> Self {
        let tensor = tensor.into();
        let shape = tensor.shape().to_vec();
        Self::new(Held::Fields(tensor), shape)
    }

    pub(crate) fn images(tensor: warpfeed::Tensor) -> Self {
        let shape = tensor.shape();
        Self::new(Held::Images(tensor), shape)
    }

    fn take(&self) -> PyResult<Held> {
        self.take_if(|_| Ok(()))
    }

    /// Takes the array if `check` passes. After an error it is still there.
    fn take_if(&self, check: impl FnOnce(&Held) -> PyResult<()>) -> PyResult<Held> {
        let mut held = self.held.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(check).transpose()?;
        let held = held.take();
        held.ok_or_else(|| PyBufferError::new_err("this tensor was given away before: keep what it was given to"))
    }
}

#[pymethods]
impl Tensor {
    /// "cpu" or "cuda:I".
    #[getter]
    fn device(&self) -> String {
        self.device.to_string()
    }

    fn __dlpack_device__(&self) -> (u32, i32) {
        match self.device {
            Device::Cuda(ordinal) => (2, i32::try_from(ordinal).unwrap_or(i32::MAX)),
            _ => (1, 0),
        }
    }

    /// The object that owns the memory, which begins with the elements. It is given away in place of the tensor. `None`
    /// if the memory did not come from Python.
    fn owner(&self) -> PyResult<Option<Py<PyAny>>> {
        let block = match self.take()? {
            Held::Images(tensor) => tensor.into_block().map_err(|tensor| Held::Images(*tensor)),
            other => Err(other),
        };
        match block {
            Ok(block) => Ok(block.into_owner().downcast().ok().map(|owner| *owner)),
            Err(held) => {
                *self.held.get()?.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
                Ok(None)
            }
        }
    }

    // A copy that was asked for is not made: no other code has the memory.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let (copy, is_own) = (copy.filter(|copy| !copy), copy == Some(true));
        let handle = match self.device {
            Device::Cuda(_) => stream.filter(|stream| !stream.is_none()).map(|stream| stream.extract()).transpose()?,
            _ => None,
        };
        let device = match self.device {
            Device::Cuda(ordinal) => DLDevice::cuda(i32::try_from(ordinal).unwrap_or(i32::MAX)),
            _ => DLDevice::CPU,
        };
        let request = ExportRequest::parse(stream, max_version, dl_device, copy)?;
        let take = || self.take_if(|held| held.wait_on(py, handle));
        let legacy = || take()?.managed(handle);
        let versioned = || {
            let managed = take()?.managed(handle)?;
            if is_own { as_copy(managed) } else { Ok(managed) }
        };
        request.export_zero_copy(py, device, DlpackFlags::empty(), legacy, versioned)
    }

    /// numpy's view of it: a copy if it is on a GPU.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__(slf: &Bound<'_, Self>, dtype: Option<&Bound<'_, PyAny>>, copy: Option<bool>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let numpy = py.import("numpy")?;
        let host = match this.device {
            Device::Cuda(_) if copy == Some(false) => {
                return Err(PyRuntimeError::new_err("the tensor is on a GPU, and numpy's array needs a copy"));
            }
            Device::Cuda(_) => {
                let held = this.take()?;
                Bound::new(py, Self::new(detached(py, || held.on_host())?, this.shape.clone()))?
            }
            _ => slf.clone(),
        };
        let array = numpy.call_method1("from_dlpack", (host,))?;
        let Some(dtype) = dtype else { return Ok(array.unbind()) };
        let options = PyDict::new(py);
        options.set_item("copy", false)?;
        Ok(array.call_method("astype", (dtype,), Some(&options))?.unbind())
    }

    fn __len__(&self) -> usize {
        self.shape.first().copied().unwrap_or_default()
    }

    fn __repr__(&self) -> String {
        let Self { shape, dtype, device, .. } = self;
        format!("Tensor(shape={shape:?}, dtype={dtype}, device={device})")
    }
}
