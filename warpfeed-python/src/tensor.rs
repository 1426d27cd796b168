//! Arrays that go to Python by DLPack.

use crate::error::raise;
use crate::forks::OfProcess;
use dlpark::ffi::{DLDataType, DLDevice};
use dlpark::metadata::Dynamic;
use dlpark::python::ExportRequest;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Mutex, PoisonError};
use warpfeed::fields::MaskValues;
use warpfeed::image::Size;
use warpfeed::{Device, TargetTensor, TargetType};

/// The memory of an array.
pub(crate) enum Held {
    Images(warpfeed::Tensor),
    Targets(TargetTensor),
    I64(Vec<i64>),
    F32(Vec<f32>),
    U8(Vec<u8>),
    U16(Vec<u16>),
}

impl TryFrom<MaskValues> for Held {
    type Error = PyErr;

    fn try_from(values: MaskValues) -> PyResult<Self> {
        match values {
            MaskValues::U8(values) => Ok(Self::U8(values)),
            MaskValues::U16(values) => Ok(Self::U16(values)),
            _ => Err(PyTypeError::new_err("masks of this type are not known")),
        }
    }
}

impl Held {
    fn device(&self) -> Device {
        match self {
            Self::Images(tensor) => tensor.device(),
            Self::Targets(tensor) => tensor.device(),
            _ => Device::Cpu,
        }
    }

    fn dtype(&self) -> &'static str {
        match self {
            Self::Images(tensor) => match tensor.dtype() {
                warpfeed::DType::F32 => "float32",
                warpfeed::DType::F16 => "float16",
                warpfeed::DType::Bf16 => "bfloat16",
                warpfeed::DType::U8 => "uint8",
            },
            Self::Targets(tensor) => match tensor.element() {
                TargetType::F32 => "float32",
                TargetType::U32 => "uint32",
            },
            Self::I64(_) => "int64",
            Self::F32(_) => "float32",
            Self::U8(_) => "uint8",
            Self::U16(_) => "uint16",
        }
    }

    fn managed<M: ManagedTensorBase>(self, shape: &[usize], stream: Option<isize>) -> PyResult<Managed<M>> {
        match self {
            // SAFETY: Python's protocol has the consumer name a stream of its own, which outlives its tensor.
            #[allow(unsafe_code)]
            Self::Images(tensor) => unsafe { tensor.into_dlpack_on(stream) }.map_err(raise),
            Self::Targets(tensor) => tensor.into_dlpack().map_err(raise),
            Self::I64(values) => numbers(values, shape, DLDataType::I64),
            Self::F32(values) => numbers(values, shape, DLDataType::F32),
            Self::U8(values) => numbers(values, shape, DLDataType::U8),
            Self::U16(values) => numbers(values, shape, DLDataType::U16),
        }
    }

    /// The same in host memory.
    fn on_host(self) -> PyResult<Self> {
        match self {
            Self::Images(tensor) if tensor.cuda().is_some() => tensor.to_host().map(Self::Images).map_err(raise),
            Self::Targets(tensor) if tensor.cuda().is_some() => tensor.to_host().map(Self::Targets).map_err(raise),
            other => Ok(other),
        }
    }
}

/// A managed tensor over a vector, whose length is the product of `shape`.
fn numbers<T: Send + 'static, M: ManagedTensorBase>(
    values: Vec<T>,
    shape: &[usize],
    dtype: DLDataType,
) -> PyResult<Managed<M>> {
    if shape.iter().product::<usize>() != values.len() {
        return Err(PyBufferError::new_err(format!("{} numbers are no array of shape {shape:?}", values.len())));
    }
    let mut strides = vec![1_usize; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    let prepared = Dynamic::new(shape.to_vec(), strides).prepare_as::<M>();
    let prepared = prepared.map_err(|error| PyBufferError::new_err(error.to_string()))?;
    let mut owner = Box::new(values);
    let data = owner.as_mut_ptr();
    let mut managed = prepared.initialize(owner);
    managed.set_data(data.cast()).set_device(DLDevice::CPU).set_dtype(dtype);
    // SAFETY: `data` points to as many values of this type as the shape has, contiguous as the strides say. The vector in
    // the box owns them alone, does not move with the box, and is dropped by the deleter, on whichever thread.
    #[allow(unsafe_code)]
    Ok(unsafe { managed.finish() })
}

/// An array on a device, which is given away once: to `torch.from_dlpack`, `numpy.from_dlpack` or `jax.dlpack.from_dlpack`.
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

    /// Masks of this height and width, one after the other.
    pub(crate) fn masks(values: MaskValues, size: Size) -> PyResult<Self> {
        let held = Held::try_from(values)?;
        let all = match &held {
            Held::U8(values) => values.len(),
            Held::U16(values) => values.len(),
            _ => 0,
        };
        let (height, width) = (size.height as usize, size.width as usize);
        Ok(Self::new(held, [all.checked_div(height * width).unwrap_or_default(), height, width]))
    }

    pub(crate) fn images(tensor: warpfeed::Tensor) -> Self {
        let shape = tensor.shape();
        Self::new(Held::Images(tensor), shape)
    }

    fn take(&self) -> PyResult<Held> {
        let held = self.held.get()?.lock().unwrap_or_else(PoisonError::into_inner).take();
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

    // A copy that was asked for is not made: nobody else has the memory.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let copy = copy.filter(|copy| !copy);
        let handle = match self.device {
            Device::Cuda(_) => stream.filter(|stream| !stream.is_none()).map(|stream| stream.extract()).transpose()?,
            _ => None,
        };
        let device = match self.device {
            Device::Cuda(ordinal) => DLDevice::cuda(i32::try_from(ordinal).unwrap_or(i32::MAX)),
            _ => DLDevice::CPU,
        };
        let request = ExportRequest::parse(stream, max_version, dl_device, copy)?;
        let legacy = || self.take()?.managed(&self.shape, handle);
        let versioned = || self.take()?.managed(&self.shape, handle);
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
                Bound::new(py, Self::new(py.detach(|| held.on_host())?, this.shape.clone()))?
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
