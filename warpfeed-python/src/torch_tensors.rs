//! Operations on torch's tensors in host memory. torch describes a tensor by a C function (DLPack's exchange interface),
//! which costs less than attributes and arrays do. That counts for small images.

use crate::error::raise;
use crate::operation::Operation;
use crate::views::each_image_at;
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDeviceType, DLPackExchangeAPI, DLTensor};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple, PyType};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use warpfeed::image::Size;
use warpfeed::transforms::{View, ViewMut};

/// The interface's major version that is known here.
const VERSION: u32 = 1;

/// Fills a tensor's description. Its shape and strides are the tensor's own, and live as long as that is not changed.
type Describe = unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> c_int;

/// The parts of torch that describing and making tensors needs.
#[pyclass(frozen)]
pub(crate) struct TorchTensors {
    /// `torch.Tensor`, `torch.empty` and `torch.empty_like`.
    class: Py<PyType>,
    empty: Py<PyAny>,
    empty_like: Py<PyAny>,
    /// The function for objects of `class`. Versions of torch before 2.10 have none.
    describe: Option<Describe>,
}

/// A tensor without gaps.
struct Described {
    address: usize,
    dtype: &'static str,
    shape: Vec<usize>,
}

#[pymethods]
impl TorchTensors {
    #[new]
    fn new(torch: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class = torch.getattr("Tensor")?.cast_into::<PyType>()?;
        let describe = class.getattr("__dlpack_c_exchange_api__").ok().and_then(|capsule| describe_of(&capsule));
        let (empty, empty_like) = (torch.getattr("empty")?.unbind(), torch.getattr("empty_like")?.unbind());
        Ok(Self { class: class.unbind(), empty, empty_like, describe })
    }

    /// The result of an operation on the images of a tensor [..., C, H, W]. `None` for a tensor of another class than
    /// torch's own, or that is empty, has gaps, values of another type, gradients or fewer dimensions, or is on a device.
    fn apply<'py>(&self, operation: &Operation, tensor: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = tensor.py();
        let Some(Described { address, dtype, shape }) = self.described(tensor) else { return Ok(None) };
        // The sign of floating-point numbers may be kept apart from them.
        if tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()?
            || dtype == "float32" && tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?
        {
            return Ok(None);
        }
        let [lead @ .., channels, height, width] = &shape[..] else { return Ok(None) };
        let (Ok(height), Ok(width)) = (u32::try_from(*height), u32::try_from(*width)) else { return Ok(None) };
        let (size, number) = (Size::new(width, height), lead.iter().product());
        let after = operation.0.output_size(size).map_err(raise)?;
        let made = if after == size {
            self.empty_like.bind(py).call1((tensor,))?
        } else {
            let sides = [*channels, after.height as usize, after.width as usize];
            let named = PyDict::new(py);
            named.set_item(intern!(py, "dtype"), tensor.getattr(intern!(py, "dtype"))?)?;
            self.empty.bind(py).call((PyTuple::new(py, [lead, &sides].concat())?,), Some(&named))?
        };
        // A mode of torch's may make something else of a call than a tensor in memory.
        let Some(out) = self.described(&made) else { return Ok(None) };
        if out.dtype != dtype || !out.shape.ends_with(&[after.height as usize, after.width as usize]) {
            return Ok(None);
        }
        let run = |image: View<'_>, out: ViewMut<'_>| operation.0.apply_to(image, out);
        each_image_at(py, [address, out.address], dtype, number, *channels, [size, after], run)?;
        Ok(Some(made))
    }
}

/// The function of a capsule with the exchange interface.
#[allow(unsafe_code)]
fn describe_of(capsule: &Bound<'_, PyAny>) -> Option<Describe> {
    let capsule = capsule.cast::<PyCapsule>().ok()?;
    let interface = capsule.pointer_checked(Some(c"dlpack_exchange_api")).ok()?.cast::<DLPackExchangeAPI>();
    // SAFETY: a capsule of this name has such an interface, which lives as long as the process. The version comes first,
    // and what follows it is known for this major version alone.
    unsafe {
        let version = (*interface.as_ptr()).header.version;
        if version.major == VERSION { (*interface.as_ptr()).dltensor_from_py_object_no_sync } else { None }
    }
}

impl TorchTensors {
    /// The description of a tensor in host memory, without gaps and not empty, of a type with arithmetic.
    #[allow(unsafe_code)]
    fn described(&self, tensor: &Bound<'_, PyAny>) -> Option<Described> {
        let describe = self.describe?;
        if !tensor.get_type().is(&self.class) {
            return None;
        }
        let mut tensor_of = MaybeUninit::<DLTensor>::uninit();
        // SAFETY: the object is of the class that has this function, which fills the description or says that it did not.
        let described = unsafe {
            if describe(tensor.as_ptr().cast(), tensor_of.as_mut_ptr()) != 0 {
                // The error that it has set says what such tensors lack.
                PyErr::take(tensor.py());
                return None;
            }
            tensor_of.assume_init()
        };
        let DLTensor { data, device, ndim, dtype, shape, strides, byte_offset } = described;
        let dtype = match dtype {
            DLDataType { code: DLDataTypeCode::UINT, bits: 8, lanes: 1 } => "uint8",
            DLDataType { code: DLDataTypeCode::UINT, bits: 16, lanes: 1 } => "uint16",
            DLDataType { code: DLDataTypeCode::FLOAT, bits: 32, lanes: 1 } => "float32",
            _ => return None,
        };
        let is_host = matches!(device.device_type, DLDeviceType::CPU | DLDeviceType::CUDAHOST);
        let dimensions = usize::try_from(ndim).ok().filter(|_| is_host && !shape.is_null() && !strides.is_null())?;
        // SAFETY: both have an entry for each dimension, and belong to the tensor, which is borrowed.
        let (shape, strides) =
            unsafe { (std::slice::from_raw_parts(shape, dimensions), std::slice::from_raw_parts(strides, dimensions)) };
        let mut step = 1_i64;
        for (side, stride) in shape.iter().zip(strides).rev() {
            if *side <= 0 || *side != 1 && *stride != step {
                return None;
            }
            step = step.checked_mul(*side)?;
        }
        let shape = shape.iter().map(|side| *side as usize).collect();
        Some(Described { address: data as usize + byte_offset as usize, dtype, shape })
    }
}
