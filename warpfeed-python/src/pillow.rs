//! Pillow's images, read and made without a copy: by Arrow's C data interface, in which Pillow hands over its memory.
//!
//! An RGB image is an array of pixels of four bytes, one in the mode L an array of bytes.

use crate::ending::detached;
use crate::error::raise;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use warpfeed::Result;
use warpfeed::image::{Pixel, Size};
use warpfeed::transforms::{View, ViewMut};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// Arrow's description of a type.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// Arrow's description of values.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// The memory of a new image, which Pillow takes with `Image.fromarrow`.
#[pyclass]
pub(crate) struct PillowPixels(Option<Values>);

enum Values {
    Rgb(Vec<Pixel>),
    Gray(Vec<u8>),
}

/// What an array of ours owns: its values, and the list of its buffers: no map of missing values, and the values.
struct Owned {
    values: Values,
    buffers: [*const c_void; 2],
}

#[pymethods]
impl PillowPixels {
    /// Hands the memory over, once.
    #[pyo3(signature = (requested_schema=None))]
    #[allow(unsafe_code)]
    fn __arrow_c_array__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        let values = self.0.take().ok_or_else(|| PyValueError::new_err("the pixels are taken"))?;
        let (format, length, start): (_, _, *const c_void) = match &values {
            Values::Rgb(pixels) => (c"I", pixels.len(), pixels.as_ptr().cast()),
            Values::Gray(bytes) => (c"C", bytes.len(), bytes.as_ptr().cast()),
        };
        let owned = Box::into_raw(Box::new(Owned { values, buffers: [std::ptr::null(), start] }));
        let schema = ArrowSchema {
            format: format.as_ptr(),
            name: c"".as_ptr(),
            metadata: std::ptr::null(),
            flags: 0,
            n_children: 0,
            children: std::ptr::null_mut(),
            dictionary: std::ptr::null_mut(),
            release: Some(release_schema),
            private_data: std::ptr::null_mut(),
        };
        let array = ArrowArray {
            length: length as i64,
            null_count: 0,
            offset: 0,
            n_buffers: 2,
            n_children: 0,
            // SAFETY: the box is alive until the array is released.
            buffers: unsafe { (&raw mut (*owned).buffers).cast() },
            children: std::ptr::null_mut(),
            dictionary: std::ptr::null_mut(),
            release: Some(release_array),
            private_data: owned.cast(),
        };
        let (schema, array) = (Box::into_raw(Box::new(schema)), Box::into_raw(Box::new(array)));
        // SAFETY: the capsules own the boxes, and their destructors free them. Neither pointer is null.
        unsafe {
            let capsule = |start: *mut c_void, name, destructor| {
                PyCapsule::new_with_pointer_and_destructor(py, NonNull::new_unchecked(start), name, Some(destructor))
            };
            Ok((capsule(schema.cast(), SCHEMA, free_schema)?, capsule(array.cast(), ARRAY, free_array)?))
        }
    }
}

/// # Safety
/// As Arrow's interface has it: `schema` is one of ours that has not been released.
#[allow(unsafe_code)]
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: this function's contract. It owns nothing.
    unsafe { (*schema).release = None };
}

/// # Safety
/// As Arrow's interface has it: `array` is one of ours, or a copy in whose place it stands, that has not been released.
#[allow(unsafe_code)]
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: this function's contract, and `private_data` is the box that was put there.
    unsafe {
        let Owned { values, .. } = *Box::from_raw((*array).private_data.cast::<Owned>());
        drop(values);
        (*array).release = None;
    }
}

/// # Safety
/// `capsule` is one that `__arrow_c_array__` has made.
#[allow(unsafe_code)]
unsafe extern "C" fn free_schema(capsule: *mut ffi::PyObject) {
    // SAFETY: this function's contract.
    unsafe { drop(Box::from_raw(ffi::PyCapsule_GetPointer(capsule, SCHEMA.as_ptr()).cast::<ArrowSchema>())) };
}

/// # Safety
/// `capsule` is one that `__arrow_c_array__` has made.
#[allow(unsafe_code)]
unsafe extern "C" fn free_array(capsule: *mut ffi::PyObject) {
    // SAFETY: this function's contract. An array that was taken has no `release` any more.
    unsafe {
        let mut array = Box::from_raw(ffi::PyCapsule_GetPointer(capsule, ARRAY.as_ptr()).cast::<ArrowArray>());
        if let Some(release) = array.release {
            release(&raw mut *array);
        }
    }
}

/// Runs `run` on an image of Pillow's in the mode RGB or L, for a result of the size `after` in the same mode. `None` if
/// this image, or this version of Pillow, does not hand over its memory: memory in several blocks is of large images.
#[allow(unsafe_code)]
pub(crate) fn on_image(
    image: &Bound<'_, PyAny>,
    is_gray: bool,
    [size, after]: [Size; 2],
    run: impl Fn(View<'_>, ViewMut<'_>) -> Result<()> + Send + Sync,
) -> PyResult<Option<PillowPixels>> {
    let py = image.py();
    let Ok(capsules) = image.call_method0(intern!(py, "__arrow_c_array__")) else { return Ok(None) };
    let capsules = capsules.cast_into::<PyTuple>()?;
    let (schema, array) =
        (capsules.get_item(0)?.cast_into::<PyCapsule>()?, capsules.get_item(1)?.cast_into::<PyCapsule>()?);
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<ArrowSchema>();
    let whole = array.pointer_checked(Some(ARRAY))?.cast::<ArrowArray>();
    let (Ok(pixels), Ok(made)) = (usize::try_from(size.area_px()), usize::try_from(after.area_px())) else {
        return Ok(None);
    };
    // SAFETY: capsules of these names have these structures, which are alive as long as the capsules.
    let (schema, whole) = unsafe { (schema.as_ref(), whole.as_ref()) };
    // SAFETY: a format is a text with an end, and a structure has as many children as it says.
    let values = unsafe {
        match CStr::from_ptr(schema.format).to_bytes() {
            b"+w:4" if !is_gray && schema.n_children == 1 && whole.n_children == 1 => {
                let (child, format) = (&**whole.children, (**schema.children).format);
                let is_whole = whole.offset == 0 && whole.length == pixels as i64;
                if CStr::from_ptr(format).to_bytes() != b"C" || !is_whole || child.length != 4 * pixels as i64 {
                    return Ok(None);
                }
                child
            }
            b"C" if is_gray && whole.length == pixels as i64 => whole,
            _ => return Ok(None),
        }
    };
    if values.offset != 0 || values.n_buffers != 2 || values.null_count != 0 || pixels == 0 {
        return Ok(None);
    }
    // SAFETY: an array of bytes has two buffers, and the second has so many values.
    let start = unsafe { *values.buffers.add(1) };
    if start.is_null() {
        return Ok(None);
    }
    let made = if is_gray {
        // SAFETY: there are so many bytes. The capsules are held, and an image's owner must not change it meanwhile, as with
        // every library that reads buffers.
        let bytes: &[u8] = unsafe { std::slice::from_raw_parts(start.cast(), pixels) };
        let mut made = zeros(made)?;
        detached(py, || run(View::hwc(bytes, size, 1)?, ViewMut::hwc(&mut made, after, 1)?)).map_err(raise)?;
        Values::Gray(made)
    } else {
        // SAFETY: as above, of four bytes each.
        let bytes: &[Pixel] = unsafe { std::slice::from_raw_parts(start.cast(), pixels) };
        let mut made = zeros(made)?;
        detached(py, || run(View::pixels(bytes, size)?, ViewMut::pixels(&mut made, after)?)).map_err(raise)?;
        Values::Rgb(made)
    };
    Ok(Some(PillowPixels(Some(made))))
}

/// # Errors
/// `MemoryError` if there is no memory.
fn zeros<T: Copy + Default>(len: usize) -> PyResult<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| PyMemoryError::new_err("there is no memory for an image"))?;
    values.resize(len, T::default());
    Ok(values)
}
