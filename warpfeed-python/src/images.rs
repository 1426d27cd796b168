//! Single images: headers, decoding and encoding, for callers that want no more.

use crate::ending::detached;
use crate::error::raise;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::RefCell;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use warpfeed::image::planes::{Element, PixelKind, Planes};
use warpfeed::image::{
    ChromaSampling, Decoder, Header, Image, JpegColor, JpegOptions, Pixel, Rect, Size, encode_jpeg, probe,
};
use warpfeed::{Error, Result};
use warpfeed_image::decode::{DecodeOptions, Pixels};
#[cfg(feature = "tiff")]
use warpfeed_image::decode::{StoredImage, TiffFile};
use warpfeed_image::encode_png;
use warpfeed_image::file::open;
use warpfeed_image::raster::luma;

/// Memory of more bytes is not kept for the next image.
const KEEP_BYTES: usize = 64 << 20;

/// As much of a file as nearly all headers take.
const HEADER_BYTES: u64 = 64 << 10;

/// The decoder of this thread, and the memory of its last image.
struct Own {
    decoder: Decoder,
    image: Image,
    planes: Planes,
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// What becomes of an image's values.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Rgb,
    Bgr,
    /// Luma of red, green and blue.
    Gray,
    /// A JPEG's own luma.
    Luma,
    /// Values and channels as they are stored.
    Own,
}

impl Mode {
    fn of(name: &str) -> PyResult<Self> {
        match name {
            "RGB" => Ok(Self::Rgb),
            "BGR" => Ok(Self::Bgr),
            "L" => Ok(Self::Gray),
            "luma" => Ok(Self::Luma),
            "own" => Ok(Self::Own),
            _ => {
                let expected = "mode must be \"RGB\", \"BGR\", \"L\", \"luma\" or \"own\"";
                Err(PyValueError::new_err(format!("{expected}, got {name:?}")))
            }
        }
    }
}

/// A header: format, width, height, channels, type, orientation, bits of a sample, whether a JPEG is progressive, and
/// whether there is an alpha channel.
type Fields = (&'static str, u32, u32, u16, &'static str, u8, u8, bool, bool);

/// The header of an image, or of the file at a path.
#[pyfunction]
pub(crate) fn image_header(py: Python<'_>, data: &Bound<'_, PyAny>, path: Option<PathBuf>) -> PyResult<Fields> {
    let header = match path {
        Some(path) => detached(py, || file_header(path)).map_err(raise)?,
        None => {
            let data = buffer(data, "data", "the bytes of an image or its path")?;
            let bytes = readable(&data)?;
            detached(py, || Ok(probe(bytes)?)).map_err(raise)?
        }
    };
    Ok(fields(&header))
}

fn fields(header: &Header) -> Fields {
    let (Size { width, height }, kind) = (header.size, header.kind);
    let element = match kind.element {
        Element::U8 => "uint8",
        Element::U16 => "uint16",
        Element::F32 => "float32",
    };
    let (orientation, bits) = (header.orientation, header.precision_bits);
    let has_alpha = header.has_alpha();
    (header.format.name(), width, height, kind.channels, element, orientation, bits, header.progressive, has_alpha)
}

/// Reads the header of a file: its beginning, and the rest only if that is not enough. A TIFF's header may be anywhere.
fn file_header(path: PathBuf) -> Result<Header> {
    let of_file = |error| Error::Io { action: "read", path: path.clone(), source: Arc::new(error) };
    let (mut file, _) = open(&path).map_err(of_file)?;
    let mut bytes = Vec::new();
    file.by_ref().take(HEADER_BYTES).read_to_end(&mut bytes).map_err(of_file)?;
    let mut header = probe(&bytes);
    if header.is_err() && bytes.len() as u64 == HEADER_BYTES {
        #[cfg(feature = "tiff")]
        if matches!(bytes[..4], [b'I', b'I', 42 | 43, 0] | [b'M', b'M', 0, 42 | 43]) {
            let file = TiffFile::open(file)?;
            return Ok(file.header().clone());
        }
        file.read_to_end(&mut bytes).map_err(of_file)?;
        header = probe(&bytes);
    }
    Ok(header?)
}

/// Decodes an image, or the rectangle (left, top, width, height) of it, into the memory of an array. `size` asks for a
/// draft.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn decode(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    mode: &str,
    exif: bool,
    size: Option<(u32, u32)>,
    part: Option<(u32, u32, u32, u32)>,
    channels_first: bool,
) -> PyResult<()> {
    let mode = Mode::of(mode)?;
    let data = buffer(data, "data", "the bytes of an image or its path")?;
    let mut out = buffer(out, "out", "an array")?;
    let bytes = readable(&data)?;
    let out = writable(&mut out)?;
    detached(py, || {
        let (header, orientation) = draft(probe(bytes)?, exif, size);
        let whole = turned(header.size, orientation);
        let part = part.map_or(Rect::full(whole), |(x, y, width, height)| Rect { x, y, width, height });
        // A rectangle that is none is refused by the decoder, with its numbers.
        let is_inside = u64::from(part.x) + u64::from(part.width) <= u64::from(whole.width)
            && u64::from(part.y) + u64::from(part.height) <= u64::from(whole.height);
        let orientation = if is_inside { orientation } else { 1 };
        let from = stored(part, orientation, header.size);
        let kind = match mode {
            Mode::Own => header.kind,
            Mode::Gray | Mode::Luma => PixelKind { channels: 1, ..PixelKind::RGB8 },
            Mode::Rgb | Mode::Bgr => PixelKind::RGB8,
        };
        if out.len() as u64 != kind.len_bytes(part.size().area_px()) && is_inside {
            let expected = format!("{part:?} of {kind}", part = part.size());
            let got = format!("{} bytes", out.len());
            return Err(Error::Parameter { operation: "decode", parameter: "out", expected, got });
        }
        OWN.with_borrow_mut(|own| {
            let Own { decoder, image, planes } = match own {
                Some(own) => own,
                None => {
                    own.insert(Own { decoder: Decoder::new()?, image: Image::default(), planes: Planes::default() })
                }
            };
            let to = Layout { size: part.size(), orientation, channels_first };
            if mode == Mode::Own {
                decoder.decode_planes(bytes, &header, from, None, DecodeOptions::default(), planes)?;
                match kind.element.size_bytes() {
                    1 => to.planes::<1>(planes, out),
                    2 => to.planes::<2>(planes, out),
                    _ => to.planes::<4>(planes, out),
                }
                planes.shrink(KEEP_BYTES);
                return Ok(());
            }
            match mode {
                Mode::Luma => decoder.decode_luma(bytes, &header, from, image)?,
                _ => decoder.decode(bytes, &header, from, false, image)?,
            }
            match mode {
                Mode::Rgb if orientation == 1 && !channels_first => {
                    Pixels::from(&*image).to_rgb(Rect::full(part.size()), out);
                }
                Mode::Bgr => to.pixels(image, out, |[red, green, blue, _]| [blue, green, red]),
                Mode::Gray => to.pixels(image, out, |pixel| [luma(pixel)]),
                Mode::Luma => to.pixels(image, out, |[luma, ..]| [luma]),
                _ => to.pixels(image, out, |[red, green, blue, _]| [red, green, blue]),
            }
            image.shrink(KEEP_BYTES / size_of::<Pixel>());
            Ok(())
        })
    })
    .map_err(raise)
}

/// Width, height, channels and type of what [`decode`] makes of a whole image.
#[pyfunction]
pub(crate) fn decoded_shape(
    data: &Bound<'_, PyAny>,
    mode: &str,
    exif: bool,
    size: Option<(u32, u32)>,
) -> PyResult<(u32, u32, u16, &'static str)> {
    let mode = Mode::of(mode)?;
    let data = buffer(data, "data", "the bytes of an image or its path")?;
    let (header, orientation) = draft(probe(readable(&data)?).map_err(|error| raise(error.into()))?, exif, size);
    let Size { width, height } = turned(header.size, orientation);
    let (_, _, _, channels, element, ..) = fields(&header);
    Ok(match mode {
        Mode::Own => (width, height, channels, element),
        Mode::Gray | Mode::Luma => (width, height, 1, "uint8"),
        Mode::Rgb | Mode::Bgr => (width, height, 3, "uint8"),
    })
}

/// Encodes an array [height, width] or [height, width, 3] of uint8 as a file.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn encode<'py>(
    py: Python<'py>,
    pixels: &Bound<'py, PyAny>,
    width: u32,
    height: u32,
    channels: u8,
    format: &str,
    quality: u8,
    sampling: (u8, u8),
    progressive: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let pixels = buffer(pixels, "image", "an array of uint8")?;
    let bytes = readable(&pixels)?;
    let size = Size::new(width, height);
    if bytes.len() as u64 != size.area_px() * u64::from(channels) {
        return Err(PyValueError::new_err("image must have height x width x channels bytes"));
    }
    let file = detached(py, || {
        let mut image = Image::default();
        Pixels { size, channels, bytes }.to_image(Rect::full(size), &mut image)?;
        if format == "PNG" {
            return Ok(encode_png(&image)?);
        }
        let color = if channels == 1 { JpegColor::Gray } else { JpegColor::Ycc };
        let sampling = ChromaSampling { horizontal: sampling.0, vertical: sampling.1 };
        Ok(encode_jpeg(&image, &JpegOptions { quality, sampling, progressive, color, ..JpegOptions::default() })?)
    })
    .map_err(raise)?;
    Ok(PyBytes::new(py, &file))
}

/// The header for decoding at the reduced size that Pillow's `draft` would take, and the orientation that counts.
fn draft(mut header: Header, exif: bool, size: Option<(u32, u32)>) -> (Header, u8) {
    let orientation = if exif { header.orientation } else { 1 };
    if let Some((width, height)) = size {
        header.draft(turned(Size::new(width, height), orientation));
    }
    (header, orientation)
}

/// A size, before or after the image is turned.
fn turned(size: Size, orientation: u8) -> Size {
    if orientation >= 5 { size.transposed() } else { size }
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

/// Where the values of an image go.
struct Layout {
    /// Size of the image as it is shown.
    size: Size,
    orientation: u8,
    /// [channels, height, width] instead of [height, width, channels].
    channels_first: bool,
}

impl Layout {
    /// Calls `write(at, from)` for each pixel: its number in the shown image, and its number in the stored one.
    #[inline(always)]
    fn each(&self, mut write: impl FnMut(usize, usize)) {
        let (width, height) = (self.size.width as usize, self.size.height as usize);
        let (mirrors_x, mirrors_y, exchanges) = steps(self.orientation);
        let (stored_width, stored_height) = if exchanges { (height, width) } else { (width, height) };
        for y in 0..height {
            for x in 0..width {
                let (from_x, from_y) = if exchanges { (y, x) } else { (x, y) };
                let from_x = if mirrors_x { stored_width - 1 - from_x } else { from_x };
                let from_y = if mirrors_y { stored_height - 1 - from_y } else { from_y };
                write(y * width + x, from_y * stored_width + from_x);
            }
        }
    }

    /// Writes `C` values for each pixel.
    fn pixels<const C: usize>(&self, image: &Image, out: &mut [u8], of: impl Fn(Pixel) -> [u8; C]) {
        let (pixels, count) = (image.pixels(), out.len() / C);
        if self.orientation == 1 && !self.channels_first {
            out.as_chunks_mut::<C>().0.iter_mut().zip(pixels).for_each(|(to, pixel)| *to = of(*pixel));
        } else if self.channels_first {
            for channel in 0..C {
                let plane = &mut out[channel * count..][..count];
                if self.orientation == 1 {
                    plane.iter_mut().zip(pixels).for_each(|(to, pixel)| *to = of(*pixel)[channel]);
                } else {
                    self.each(|at, from| plane[at] = of(pixels[from])[channel]);
                }
            }
        } else {
            let (to, _) = out.as_chunks_mut::<C>();
            self.each(|at, from| to[at] = of(pixels[from]));
        }
    }

    /// Writes values of `N` bytes.
    fn planes<const N: usize>(&self, planes: &Planes, out: &mut [u8]) {
        let channels = usize::from(planes.kind().channels);
        if self.channels_first && self.orientation == 1 {
            out.copy_from_slice(planes.as_bytes());
            return;
        }
        let (from, _) = planes.as_bytes().as_chunks::<N>();
        let (to, _) = out.as_chunks_mut::<N>();
        let count = to.len() / channels;
        for (channel, plane) in from.chunks_exact(count.max(1)).enumerate() {
            if self.channels_first {
                self.each(|at, place| to[channel * count + at] = plane[place]);
            } else {
                self.each(|at, place| to[at * channels + channel] = plane[place]);
            }
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
    // SAFETY: the buffer is exported, contiguous and writable as long as it is borrowed. No other code may use the
    // array meanwhile, as with every library that writes to buffers.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}
