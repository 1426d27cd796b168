//! Single images decoded to RGB, for callers that want no more.

use crate::ending::detached;
use crate::error::raise;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::cell::RefCell;
use warpfeed::Error;
use warpfeed::image::{Decoder, Header, Image, Rect, Size, probe};
use warpfeed_image::decode::Pixels;

/// Images above this many pixels do not leave their memory to the next one: 16 Mpx, 64 MiB.
const KEEP_PX: usize = 16 << 20;

thread_local! {
    /// The decoder of this thread, and the memory of its last image.
    static OWN: RefCell<Option<(Decoder, Image)>> = const { RefCell::new(None) };
}

/// Height and width of an encoded image, turned as its EXIF orientation says if `exif`.
#[pyfunction]
pub(crate) fn image_size(data: &Bound<'_, PyAny>, exif: bool) -> PyResult<(u32, u32)> {
    let data = buffer(data, "data", "the bytes of an image or its path")?;
    let header = probe(readable(&data)?).map_err(|error| raise(error.into()))?;
    let size = shown(&header, exif);
    Ok((size.height, size.width))
}

/// Decodes an image, or the rectangle (left, top, width, height) of it, into the memory of an array [H, W, 3] of uint8.
#[pyfunction]
pub(crate) fn decode(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    exif: bool,
    part: Option<(u32, u32, u32, u32)>,
) -> PyResult<()> {
    let data = buffer(data, "data", "the bytes of an image or its path")?;
    let mut out = buffer(out, "out", "an array of uint8")?;
    let (bytes, shape) = (readable(&data)?, out.shape().to_vec());
    let pixels = writable(&mut out)?;
    detached(py, || {
        let header = probe(bytes)?;
        let size = shown(&header, exif);
        let part = part.map_or(Rect::full(size), |(x, y, width, height)| Rect { x, y, width, height });
        let wanted = [part.height as usize, part.width as usize, 3];
        if shape != wanted {
            return Err(Error::Parameter {
                operation: "decode",
                parameter: "out",
                expected: format!("an array of the shape {wanted:?}"),
                got: format!("one of the shape {shape:?}"),
            });
        }
        OWN.with_borrow_mut(|own| {
            let (decoder, image) = match own {
                Some(own) => own,
                None => own.insert((Decoder::new()?, Image::default())),
            };
            // A rectangle that is none is refused by the decoder, with its numbers.
            let is_inside = u64::from(part.x) + u64::from(part.width) <= u64::from(size.width)
                && u64::from(part.y) + u64::from(part.height) <= u64::from(size.height);
            let orientation = if exif && is_inside { header.orientation } else { 1 };
            decoder.decode(bytes, &header, stored(part, orientation, header.size), false, image)?;
            if orientation == 1 {
                Pixels::from(&*image).to_rgb(Rect::full(part.size()), pixels);
            } else {
                turn(image, orientation, part.size(), pixels);
            }
            image.shrink(KEEP_PX);
            Ok(())
        })
    })
    .map_err(raise)
}

/// Size of an image as it is shown.
fn shown(header: &Header, exif: bool) -> Size {
    if exif && header.orientation >= 5 { header.size.transposed() } else { header.size }
}

/// Whether an orientation mirrors left and right, top and bottom, in the stored image, and then exchanges both axes.
fn steps(orientation: u8) -> (bool, bool, bool) {
    match orientation {
        2 => (true, false, false),
        3 => (true, true, false),
        4 => (false, true, false),
        5 => (false, false, true),
        6 => (false, true, true),
        7 => (true, true, true),
        8 => (true, false, true),
        _ => (false, false, false),
    }
}

/// The stored rectangle that a rectangle of the shown image comes from.
fn stored(part: Rect, orientation: u8, size: Size) -> Rect {
    let (mirrors_x, mirrors_y, exchanges) = steps(orientation);
    let Rect { x, y, width, height } = part;
    let (x, y, width, height) = if exchanges { (y, x, height, width) } else { (x, y, width, height) };
    let x = if mirrors_x { size.width - x - width } else { x };
    let y = if mirrors_y { size.height - y - height } else { y };
    Rect { x, y, width, height }
}

/// Writes an image out as it is shown, `size` large.
fn turn(image: &Image, orientation: u8, size: Size, out: &mut [u8]) {
    let (mirrors_x, mirrors_y, exchanges) = steps(orientation);
    let (right, bottom) = (image.size().width - 1, image.size().height - 1);
    for (y, row) in (0..).zip(out.chunks_exact_mut(3 * size.width as usize)) {
        for (x, pixel) in (0..).zip(row.as_chunks_mut::<3>().0) {
            let (x, y) = if exchanges { (y, x) } else { (x, y) };
            let (x, y) = (if mirrors_x { right - x } else { x }, if mirrors_y { bottom - y } else { y });
            let [red, green, blue, _] = image.row(y)[x as usize];
            *pixel = [red, green, blue];
        }
    }
}

/// The buffer of an argument.
///
/// # Errors
/// `TypeError` if it has none.
fn buffer(of: &Bound<'_, PyAny>, name: &str, expected: &str) -> PyResult<PyBuffer<u8>> {
    PyBuffer::get(of).map_err(|_| {
        let got = of.get_type().name().map_or_else(|_| "another object".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("{name} must be {expected}, got {got}"))
    })
}

/// The bytes of a buffer.
///
/// # Errors
/// `ValueError` for one with gaps.
#[allow(unsafe_code)]
fn readable(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("data must be contiguous"));
    }
    // SAFETY: the buffer is exported as long as it is borrowed. Its owner must not change it while it is read, as with
    // every library that reads buffers.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}

/// The memory of an array.
///
/// # Errors
/// `ValueError` for one that has gaps or cannot be written.
#[allow(unsafe_code)]
fn writable(buffer: &mut PyBuffer<u8>) -> PyResult<&mut [u8]> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("out must be contiguous and writable"));
    }
    // SAFETY: the buffer is exported, contiguous and writable as long as it is borrowed. No other code may use the array
    // meanwhile, as with every library that writes to buffers.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}
