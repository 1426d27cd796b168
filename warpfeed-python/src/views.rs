//! Arrays of images in the memory of Python's libraries.

use crate::ending::detached;
use crate::error::raise;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};
use warpfeed::Result;
use warpfeed::image::Size;
use warpfeed::image::planes::Value;
use warpfeed::transforms::{View, ViewMut};

/// Calls `run` for each image of an array [N, C, H, W], or [N, H, W, C], with its number and its place in another array.
/// Values are uint8, uint16 or float32, those of the results the same or float32. So many threads share the images; with
/// 0 or 1 there is the caller's alone.
pub(crate) fn each_image(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    channels_first: bool,
    threads: usize,
    run: impl Fn(usize, View<'_>, ViewMut<'_>) -> Result<()> + Send + Sync,
) -> PyResult<()> {
    macro_rules! by_types {
        ($($from:ty => $($to:ty),+;)+) => {$(
            if let Ok(images) = PyBuffer::<$from>::get(images) {
                $(if let Ok(out) = PyBuffer::<$to>::get(out) {
                    return run_on(py, &images, out, channels_first, threads, run);
                })+
                return Err(PyTypeError::new_err("the output must have the type of the images, or float32"));
            }
        )+};
    }
    by_types! {
        u8 => u8, f32;
        u16 => u16, f32;
        f32 => f32;
    }
    Err(PyTypeError::new_err("images must be an array of uint8, uint16 or float32"))
}

fn run_on<T: Element + Value, U: Element + warpfeed::Element + Send + Sync>(
    py: Python<'_>,
    images: &PyBuffer<T>,
    mut out: PyBuffer<U>,
    channels_first: bool,
    threads: usize,
    run: impl Fn(usize, View<'_>, ViewMut<'_>) -> Result<()> + Send + Sync,
) -> PyResult<()> {
    if out.readonly() {
        return Err(PyValueError::new_err("the output must be writable"));
    }
    let (from, to) = (Images::of(images, channels_first)?, Images::of(&out, channels_first)?);
    if from.number != to.number {
        return Err(PyValueError::new_err("the output must have the number of the images"));
    }
    let (values, results) = (values(images, &from), values_mut(&mut out, &to));
    let step = if to.number == 1 { to.len } else { to.step };
    if step < to.len_of_one {
        return Err(PyValueError::new_err("the output's images must lie one after the other"));
    }
    let one = |(i, results): (usize, &mut [U])| {
        let values = &values[i * from.step..];
        let (view, out) = if channels_first {
            (View::chw(values, from.size, from.channels)?, ViewMut::chw(results, to.size, to.channels)?)
        } else {
            (View::hwc(values, from.size, from.channels)?, ViewMut::hwc(results, to.size, to.channels)?)
        };
        run(i, view.strides(from.strides)?, out.strides(to.strides)?)
    };
    detached(py, || {
        let mut work = results.chunks_mut(step).enumerate();
        let more = threads.min(from.number).saturating_sub(1);
        if more == 0 {
            return work.try_for_each(one);
        }
        let work = Mutex::new(work);
        let next = || work.lock().unwrap_or_else(PoisonError::into_inner).next();
        let share = || std::iter::from_fn(next).try_for_each(one);
        std::thread::scope(|scope| {
            // If a thread cannot be started, the call is slower, but not wrong.
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, share).ok();
            let others: Vec<_> = (0..more).map_while(start).collect();
            let own = share();
            let join = |other: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            others.into_iter().map(join).fold(own, |first, other| first.and(other))
        })
    })
    .map_err(raise)
}

/// Like [`each_image`], for memory without gaps: `number` images [C, H, W] begin at the address `images`, and their
/// results, of the size `after`, at the address `out`. Both are of the type that `dtype` names. Calls with addresses cost
/// less than those with arrays, which counts for small images.
///
/// Python must have both at these addresses, and nothing else may use the results before the call ends.
pub(crate) fn each_image_at(
    py: Python<'_>,
    [images, out]: [usize; 2],
    dtype: &str,
    number: usize,
    channels: usize,
    [size, after]: [Size; 2],
    run: impl Fn(View<'_>, ViewMut<'_>) -> Result<()> + Send + Sync,
) -> PyResult<()> {
    match dtype {
        "uint8" => run_at::<u8>(py, [images, out], number, channels, [size, after], run),
        "uint16" => run_at::<u16>(py, [images, out], number, channels, [size, after], run),
        "float32" => run_at::<f32>(py, [images, out], number, channels, [size, after], run),
        _ => Err(PyTypeError::new_err("images must be of uint8, uint16 or float32")),
    }
}

#[allow(unsafe_code)]
fn run_at<T: Value + warpfeed::Element>(
    py: Python<'_>,
    [images, out]: [usize; 2],
    number: usize,
    channels: usize,
    [size, after]: [Size; 2],
    run: impl Fn(View<'_>, ViewMut<'_>) -> Result<()> + Send + Sync,
) -> PyResult<()> {
    let len = |size: Size| {
        let bytes = usize::try_from(size.area_px()).ok()?.checked_mul(channels)?.checked_mul(size_of::<T>())?;
        bytes.checked_mul(number).filter(|bytes| isize::try_from(*bytes).is_ok())?;
        Some(bytes / size_of::<T>())
    };
    let (Some(step), Some(step_out)) = (len(size), len(after)) else {
        return Err(PyValueError::new_err("images must have a length that memory can have"));
    };
    if [images, out].iter().any(|at| *at == 0 || !at.is_multiple_of(align_of::<T>())) {
        return Err(PyValueError::new_err("values must be aligned"));
    }
    detached(py, || {
        for i in 0..number {
            // SAFETY: Python has tensors of this form at the addresses, which are aligned, and holds them until the call
            // ends. It has made the results for this call. Their lengths fit an `isize`.
            let (values, results) = unsafe {
                (
                    std::slice::from_raw_parts((images as *const T).add(i * step), step),
                    std::slice::from_raw_parts_mut((out as *mut T).add(i * step_out), step_out),
                )
            };
            run(View::chw(values, size, channels)?, ViewMut::chw(results, after, channels)?)?;
        }
        Ok(())
    })
    .map_err(raise)
}

/// The form of an array of images. Lengths and distances are in elements.
struct Images {
    number: usize,
    /// From one image to the next.
    step: usize,
    size: Size,
    channels: usize,
    /// In the order of an image's dimensions.
    strides: [i64; 3],
    /// From the first value to the last, both included.
    len: usize,
    /// As `len`, of the first image alone.
    len_of_one: usize,
}

impl Images {
    /// # Errors
    /// `ValueError` for an array that has not four dimensions, that is empty or huge, or whose strides are negative.
    fn of<T: Element>(buffer: &PyBuffer<T>, channels_first: bool) -> PyResult<Self> {
        let wrong =
            || PyValueError::new_err("images must be a non-empty array of four dimensions and positive strides");
        let (&[number, a, b, c], strides) = (buffer.shape(), buffer.strides()) else { return Err(wrong()) };
        let mut steps = [0; 4];
        let mut len = 1_usize;
        for ((step, stride), dimension) in steps.iter_mut().zip(strides).zip([number, a, b, c]) {
            *step = usize::try_from(*stride).map_err(|_| wrong())?;
            if dimension == 0 || *step % size_of::<T>() != 0 {
                return Err(wrong());
            }
            *step /= size_of::<T>();
            len = (dimension - 1).checked_mul(*step).and_then(|last| len.checked_add(last)).ok_or_else(wrong)?;
        }
        if !(buffer.buf_ptr() as usize).is_multiple_of(align_of::<T>()) {
            return Err(PyValueError::new_err("values must be aligned"));
        }
        let (channels, height, width) = if channels_first { (a, b, c) } else { (c, a, b) };
        let side = |side: usize| u32::try_from(side).map_err(|_| wrong());
        let size = Size::new(side(width)?, side(height)?);
        let strides = [steps[1] as i64, steps[2] as i64, steps[3] as i64];
        let len_of_one = len - (number - 1) * steps[0];
        Ok(Self { number, step: steps[0], size, channels, strides, len, len_of_one })
    }
}

/// The values of images, with what lies between them.
#[allow(unsafe_code)]
fn values<'a, T: Element>(buffer: &'a PyBuffer<T>, images: &Images) -> &'a [T] {
    // SAFETY: the buffer is exported as long as it is borrowed; its pointer is aligned, and its last element is at
    // `images.len - 1`, by its own shape and strides. Its owner must not change it while it is read, as with every
    // library that reads buffers.
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), images.len) }
}

/// The memory of results, with what lies between them, which is not written.
#[allow(unsafe_code)]
fn values_mut<'a, T: Element>(buffer: &'a mut PyBuffer<T>, images: &Images) -> &'a mut [T] {
    // SAFETY: as in `values`; the buffer is writable, and Python made it for this call.
    unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast(), images.len) }
}
