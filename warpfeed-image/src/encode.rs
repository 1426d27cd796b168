//! JPEG and PNG files. JPEGs are encoded with libjpeg: the Rust side of `encode.c`.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::memory;
use crate::raster::Image;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;

/// The components that a JPEG stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum JpegColor {
    /// Luma and two color differences, as in nearly all JPEGs.
    #[default]
    Ycc,
    /// Luma only.
    Gray,
    /// Four inks (CMYK), inverted, as Adobe's programs write them.
    Cmyk,
    /// Luma, two color differences and black, inverted.
    Ycck,
    /// Red, green, blue, marked as such by an Adobe segment.
    Rgb,
}

/// Chroma subsampling: the number of pixels that share one sample of the color differences (in CMYK: of all components
/// except the first and the fourth).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChromaSampling {
    /// Pixels in a row, 1 to 4.
    pub horizontal: u8,
    /// Rows, 1 to 4.
    pub vertical: u8,
}

impl ChromaSampling {
    /// 4:4:4: every pixel has its own sample.
    pub const S444: Self = Self { horizontal: 1, vertical: 1 };
    /// 4:2:2: two pixels side by side share a sample.
    pub const S422: Self = Self { horizontal: 2, vertical: 1 };
    /// 4:2:0: two by two pixels share a sample.
    pub const S420: Self = Self { horizontal: 2, vertical: 2 };
    /// 4:4:0: two pixels one above the other share a sample.
    pub const S440: Self = Self { horizontal: 1, vertical: 2 };
    /// 4:1:1: four pixels side by side share a sample.
    pub const S411: Self = Self { horizontal: 4, vertical: 1 };
}

/// Options of a JPEG file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JpegOptions {
    /// Quality in libjpeg's scale, 1 to 100.
    pub quality: u8,
    /// Chroma subsampling.
    pub sampling: ChromaSampling,
    /// Whether the JPEG is progressive.
    pub progressive: bool,
    /// Number of rows of MCUs between restart markers; 0 for no restart markers.
    pub restart_interval_rows: u16,
    /// The components that are stored.
    pub color: JpegColor,
    /// The EXIF orientation tag to write, if any. Any value is allowed, but only 1 to 8 have a meaning.
    pub orientation: Option<u16>,
}

impl Default for JpegOptions {
    /// Quality 90, 4:2:0, baseline, without restarts, YCbCr, no orientation.
    fn default() -> Self {
        Self {
            quality: 90,
            sampling: ChromaSampling::S420,
            progressive: false,
            restart_interval_rows: 0,
            color: JpegColor::Ycc,
            orientation: None,
        }
    }
}

/// `wf_encode_job` in `encode.c`.
#[repr(C)]
struct EncodeJob {
    pixels: *const u8,
    width: u32,
    height: u32,
    quality: i32,
    h: i32,
    v: i32,
    progressive: i32,
    restart_rows: i32,
    color: i32,
    exif: *const u8,
    exif_len_bytes: usize,
}

const OK: c_int = 0;
const NO_MEMORY: c_int = 2;
const ENCODER: &str = "a JPEG encoder";

unsafe extern "C" {
    fn wf_jpeg_encode(
        job: *const EncodeJob,
        out: *mut *mut u8,
        out_len_bytes: *mut usize,
        message: *mut c_char,
        message_bytes: usize,
    ) -> c_int;
    fn wf_jpeg_to_baseline(
        bytes: *const u8,
        len_bytes: usize,
        restarts: c_int,
        out: *mut *mut u8,
        out_len_bytes: *mut usize,
        message: *mut c_char,
        message_bytes: usize,
    ) -> c_int;
    fn wf_jpeg_encoded_free(bytes: *mut u8);
}

/// Encodes an image as a JPEG file. If only a part of the image is stored, encodes this part.
///
/// # Errors
/// [`Error::Parameter`] if an option is out of range, or if the image is empty or over 65,500 pixels a side;
/// [`Error::OutOfMemory`] if there is too little memory.
///
/// # Examples
/// ```
/// use warpfeed_image::{Image, JpegOptions, Size, encode_jpeg, probe};
///
/// let options = JpegOptions { progressive: true, orientation: Some(6), ..JpegOptions::default() };
/// let bytes = encode_jpeg(&Image::new(Size::new(40, 30)), &options)?;
/// let header = probe(&bytes)?;
/// assert!(header.progressive);
/// assert_eq!(header.orientation, 6);
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
pub fn encode_jpeg(image: &Image, options: &JpegOptions) -> Result<Vec<u8>> {
    let refuse = |parameter, expected: &str, got: String| Error::parameter("encode_jpeg", parameter, expected, got);
    let (size, sampling) = (image.size(), options.sampling);
    if size.is_empty() {
        return Err(refuse("image", "at least one pixel", size.to_string()));
    }
    if !(1..=100).contains(&options.quality) {
        return Err(refuse("quality", "1 to 100", options.quality.to_string()));
    }
    if !(1..=4).contains(&sampling.horizontal) || !(1..=4).contains(&sampling.vertical) {
        return Err(refuse("sampling", "1 to 4 pixels and rows", format!("{sampling:?}")));
    }
    let exif = options.orientation.map(exif);
    let pixels = image.pixels();
    assert_eq!(pixels.len() as u64, size.area_px());
    let job = EncodeJob {
        pixels: pixels.as_ptr().cast(),
        width: size.width,
        height: size.height,
        quality: options.quality.into(),
        h: sampling.horizontal.into(),
        v: sampling.vertical.into(),
        progressive: options.progressive.into(),
        restart_rows: options.restart_interval_rows.into(),
        color: match options.color {
            JpegColor::Ycc => 0,
            JpegColor::Gray => 1,
            JpegColor::Cmyk => 2,
            JpegColor::Ycck => 3,
            JpegColor::Rgb => 4,
        },
        exif: exif.as_ref().map_or(ptr::null(), |exif| exif.as_ptr()),
        exif_len_bytes: exif.as_ref().map_or(0, |exif| exif.len()),
    };
    let (mut bytes, mut len_bytes, mut message) = (ptr::null_mut(), 0, [0 as c_char; 256]);
    // SAFETY: `pixels` holds width * height pixels of four bytes, and `exif` its length in bytes; both outlive the
    // call, which only reads them. The out pointers are valid, and the message buffer has the given length.
    let status = unsafe {
        wf_jpeg_encode(&raw const job, &raw mut bytes, &raw mut len_bytes, message.as_mut_ptr(), message.len())
    };
    match status {
        // SAFETY: the shim has handed this memory over.
        OK => unsafe { taken(bytes, len_bytes) },
        NO_MEMORY => Err(memory::refused::<u8>(ENCODER, image.pixels().len() * 4, memory::FEWER_IMAGES)),
        _ => Err(refuse("options", "a combination that libjpeg can write", text(&message))),
    }
}

/// Copies the bytes that the shim has written, and frees them.
///
/// # Safety
/// `bytes` points to `len_bytes` initialized bytes that the shim has handed over, which nothing else uses.
unsafe fn taken(bytes: *mut u8, len_bytes: usize) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    let reserved = copy.try_reserve_exact(len_bytes);
    // SAFETY: as the caller promises; the memory is freed once, after the copy.
    unsafe {
        if reserved.is_ok() {
            copy.extend_from_slice(std::slice::from_raw_parts(bytes, len_bytes));
        }
        wf_jpeg_encoded_free(bytes);
    }
    reserved.map(|()| copy).map_err(|_| memory::refused::<u8>(ENCODER, len_bytes, memory::FEWER_IMAGES))
}

/// The shim's message. It is empty at first and ends in a zero.
fn text(message: &[c_char; 256]) -> String {
    // SAFETY: the buffer consists of zeros at first, and the shim leaves at least one.
    unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned()
}

/// Converts a JPEG to a baseline one with the same coefficients and all segments. With `restarts`, a restart marker
/// follows each row of MCUs. All coefficients are in memory at once, two bytes each: check the image's size before
/// ([`check_pixels`](crate::check_pixels)).
///
/// # Errors
/// [`Error::Decode`] if the image is damaged or not a JPEG that libjpeg decodes; [`Error::OutOfMemory`] if there is too
/// little memory.
///
/// ```
/// use warpfeed_image::{Image, JpegOptions, Size, encode_jpeg, probe, to_baseline};
///
/// let options = JpegOptions { progressive: true, ..JpegOptions::default() };
/// let progressive = encode_jpeg(&Image::new(Size::new(64, 48)), &options)?;
/// let header = probe(&to_baseline(&progressive, true)?)?;
/// assert!(!header.progressive);
/// assert_eq!(header.restart_interval_mcus, 4, "a row of MCUs of 16 pixels");
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
pub fn to_baseline(jpeg: &[u8], restarts: bool) -> Result<Vec<u8>> {
    let (mut bytes, mut len_bytes, mut message) = (ptr::null_mut(), 0, [0 as c_char; 256]);
    // SAFETY: `jpeg` outlives the call, which reads no byte after its end. The out pointers are valid, and the message
    // buffer has the given length.
    let status = unsafe {
        wf_jpeg_to_baseline(
            jpeg.as_ptr(),
            jpeg.len(),
            restarts.into(),
            &raw mut bytes,
            &raw mut len_bytes,
            message.as_mut_ptr(),
            message.len(),
        )
    };
    match status {
        // SAFETY: the shim has handed this memory over.
        OK => unsafe { taken(bytes, len_bytes) },
        NO_MEMORY => Err(memory::refused::<u8>(ENCODER, jpeg.len(), memory::FEWER_IMAGES)),
        _ => Err(Error::decode("JPEG", text(&message))),
    }
}

/// Encodes an image as an RGB PNG file. If only a part of the image is stored, encodes this part.
///
/// # Errors
/// [`Error::Parameter`] if the image is empty; [`Error::OutOfMemory`] if there is too little memory.
///
/// ```
/// use warpfeed_image::{Decoder, Image, Rect, Size, encode_png, probe};
///
/// let image = Image::from_rgb(Size::new(2, 1), &[1, 2, 3, 4, 5, 6])?;
/// let png = encode_png(&image)?;
/// let mut decoded = Image::default();
/// Decoder::new()?.decode(&png, &probe(&png)?, Rect::full(image.size()), false, &mut decoded)?;
/// assert_eq!(decoded.to_rgb(), image.to_rgb());
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
pub fn encode_png(image: &Image) -> Result<Vec<u8>> {
    let size = image.size();
    let failed = |error: png::EncodingError| {
        Error::parameter("encode_png", "image", "an image that PNG can hold", format!("{size}: {error}"))
    };
    let (mut rgb, mut bytes) = (Vec::new(), Vec::new());
    let len_bytes = 3 * image.pixels().len();
    memory::reserve(&mut rgb, len_bytes, "a PNG encoder", memory::FEWER_IMAGES)?;
    // More than the file takes: each row has a byte for its filter, and deflate stores what it cannot compress.
    let most_bytes = len_bytes + len_bytes / 64 + size.height as usize + 1024;
    memory::reserve(&mut bytes, most_bytes, "a PNG file", memory::FEWER_IMAGES)?;
    rgb.extend(image.pixels().iter().flat_map(|pixel| &pixel[..3]));
    let mut encoder = png::Encoder::new(&mut bytes, size.width, size.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::Fast);
    encoder.set_filter(png::Filter::Adaptive);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&rgb).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

/// The content of an APP1 segment with one entry, the orientation.
fn exif(orientation: u16) -> [u8; 32] {
    let mut exif = *b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\0\0\0\0\0\0\0";
    exif[24..26].copy_from_slice(&orientation.to_be_bytes());
    exif
}
