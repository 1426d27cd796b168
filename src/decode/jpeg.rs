//! JPEG images, through libjpeg: the Rust side of `jpeg.c`.
#![allow(unsafe_code)]

use super::{Header, lossless_jpeg, restarts};
use crate::error::{Error, Result};
use crate::memory;
use crate::raster::{Image, Rect};
use std::ffi::{CStr, c_char, c_int};
use std::ptr::{self, NonNull};

/// `wf_decoder` in `jpeg.c`.
#[repr(C)]
struct Handle {
    opaque: [u8; 0],
}

/// `wf_job` in `jpeg.c`.
#[repr(C)]
struct Job {
    bytes: *const u8,
    len_bytes: usize,
    row_starts: *const usize,
    rows: u32,
    image_width: u32,
    image_height: u32,
    x: u32,
    y: u32,
    width: u32,
    height: u32,
    strict: i32,
    to_end: i32,
    plain: i32,
    portable: i32,
    out: *mut u8,
    stride_bytes: usize,
}

const OK: c_int = 0;
const MISSING: c_int = 2;
const HEADER: c_int = 3;
const NO_MEMORY: c_int = 4;

unsafe extern "C" {
    fn wf_jpeg_decoder_new() -> *mut Handle;
    fn wf_jpeg_decoder_free(handle: *mut Handle);
    fn wf_jpeg_decoder_message(handle: *const Handle) -> *const c_char;
    fn wf_jpeg_decode(handle: *mut Handle, job: *const Job) -> c_int;
    fn wf_jpeg_skips(handle: *const Handle) -> c_int;
    fn wf_jpeg_simd() -> c_int;
}

/// Whether libjpeg was built with its assembler routines; without them it is several times slower.
pub(crate) fn simd() -> bool {
    // SAFETY: takes nothing, reads nothing.
    unsafe { wf_jpeg_simd() != 0 }
}

/// libjpeg's state, for one thread at a time.
pub(super) struct JpegDecoder {
    handle: NonNull<Handle>,
    /// Of the last image with an index of its rows: where they start.
    row_starts: Vec<usize>,
    /// Whether libjpeg's own entropy decoder is used, which ours is tested against.
    plain: bool,
    /// Whether libjpeg's inverse DCT in C is used, which its assembler is tested against.
    portable: bool,
}

// SAFETY: the handle is a heap object without thread-local state; `&mut self` keeps its use to one thread at a time.
unsafe impl Send for JpegDecoder {}

impl Drop for JpegDecoder {
    fn drop(&mut self) {
        // SAFETY: the handle came from wf_jpeg_decoder_new and is freed once.
        unsafe { wf_jpeg_decoder_free(self.handle.as_ptr()) }
    }
}

impl JpegDecoder {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: takes nothing; a null pointer means that there was no memory.
        let handle = NonNull::new(unsafe { wf_jpeg_decoder_new() });
        let handle = handle.ok_or_else(|| memory::refused::<Job>("a JPEG decoder", 1, memory::FEWER_IMAGES))?;
        Ok(Self { handle, row_starts: Vec::new(), plain: false, portable: false })
    }

    /// Decodes `part`, which lies inside the image, into `out`; whether codes were passed over by means of its index.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        part: Rect,
        accept_truncated: bool,
        out: &mut Image,
    ) -> Result<bool> {
        supported(header)?;
        if header.process == 0xC3 {
            return lossless_jpeg::decode(bytes, header, part, accept_truncated, out).map(|()| false);
        }
        let has_end = has_end(bytes, header.scan_offset_bytes);
        out.reset_part(header.size, part);
        let pixels = out.pixels_mut();
        debug_assert_eq!(pixels.len(), part.width as usize * part.height as usize);
        let is_indexed = restarts::helps(header, part) && restarts::row_starts(bytes, header, &mut self.row_starts);
        let job = Job {
            bytes: bytes.as_ptr(),
            len_bytes: bytes.len(),
            row_starts: if is_indexed { self.row_starts.as_ptr() } else { ptr::null() },
            // Of an image with at most 65,535 rows of pixels.
            rows: self.row_starts.len() as u32,
            image_width: header.size.width,
            image_height: header.size.height,
            x: part.x,
            y: part.y,
            width: part.width,
            height: part.height,
            strict: i32::from(!accept_truncated),
            to_end: i32::from(!has_end && !accept_truncated),
            plain: i32::from(self.plain),
            portable: i32::from(self.portable),
            out: pixels.as_mut_ptr().cast(),
            stride_bytes: part.width as usize * 4,
        };
        // SAFETY: the handle is ours alone (`&mut self`). `bytes`, `row_starts` and `out` outlive the call. The shim reads
        // no byte behind `len_bytes`, inside which all of the `rows` starts lie, and writes `height` rows of `4 * width`
        // bytes, `stride_bytes` apart, which is what `pixels` holds; it refuses a stream whose size is not the one given,
        // inside which the caller checked `part`.
        let status = unsafe { wf_jpeg_decode(self.handle.as_ptr(), &raw const job) };
        match status {
            // SAFETY: the handle is ours alone; the shim reads what the last call has left there.
            OK => return Ok(unsafe { wf_jpeg_skips(self.handle.as_ptr()) } != 0),
            // libjpeg does not say how much it asked for: coefficients take two bytes a sample.
            NO_MEMORY => {
                let coefficients = 2 * header.components as usize * header.size.area_px() as usize;
                return Err(memory::refused::<u8>("a JPEG decoder", coefficients, memory::FEWER_IMAGES));
            }
            _ => {}
        }
        // SAFETY: the message is a zero-terminated string inside the handle, unchanged until the next call.
        let text = unsafe { CStr::from_ptr(wf_jpeg_decoder_message(self.handle.as_ptr())) };
        let text = text.to_string_lossy();
        Err(Error::decode("JPEG", message(status, &text, bytes.len(), has_end)))
    }
}

fn message(status: c_int, text: &str, len_bytes: usize, has_end: bool) -> String {
    match status {
        MISSING if !has_end => {
            format!("truncated: the data end after {len_bytes} bytes, before the image is complete ({text})")
        }
        MISSING if text.is_empty() => "the data end before the image is complete".to_owned(),
        MISSING => format!("damaged: pixels are missing or wrong ({text})"),
        HEADER => "the header is incomplete, or not the one that was probed".to_owned(),
        _ => text.to_owned(),
    }
}

/// Refuses what libjpeg as built here cannot decode, with what to do about it.
fn supported(header: &Header) -> Result<()> {
    let kind = match header.process {
        0xC0..=0xC2 if header.precision_bits == 8 => None,
        0xC3 if header.precision_bits == 8 => None,
        0xC0..=0xC3 => Some(format!("{} bits a sample", header.precision_bits)),
        0xC9..=0xCB | 0xCD..=0xCF => Some("arithmetic coding".to_owned()),
        _ => Some("hierarchical coding".to_owned()),
    };
    let kind = kind.or_else(|| {
        (!matches!(header.components, 1 | 3 | 4)).then(|| format!("{} color components", header.components))
    });
    match kind {
        Some(kind) => {
            let remedy = "convert it to a baseline or progressive JPEG of 8 bits a sample";
            Err(Error::decode("JPEG", format!("{kind} is not supported: {remedy}")))
        }
        None => Ok(()),
    }
}

/// Whether an end-of-image marker stands behind the start of the first scan. In whole files it is at the very end.
/// Entropy-coded data hold no such pair of bytes: a 0xFF there is followed by 0.
pub(crate) fn has_end(bytes: &[u8], scan_offset_bytes: usize) -> bool {
    let data = bytes.get(scan_offset_bytes..).unwrap_or_default();
    data.windows(2).rev().any(|pair| pair == [0xFF, 0xD9])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decode::probe,
        encode::{JpegColor, JpegOptions, Sampling, encode_jpeg},
        raster::Size,
    };
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};
    use std::fs;
    use std::path::Path;

    /// Decodes with libjpeg's own routine and with the one that is compared with it.
    fn both(plain: &mut JpegDecoder, fast: &mut JpegDecoder, bytes: &[u8], tolerant: bool) -> [Option<Image>; 2] {
        let Ok(header) = probe(bytes) else { return [None, None] };
        if header.size.area_px() > 1 << 20 {
            return [None, None];
        }
        [plain, fast].map(|decoder| {
            let mut out = Image::default();
            decoder.decode(bytes, &header, Rect::full(header.size), tolerant, &mut out).ok().map(|_| out)
        })
    }

    /// Whether a marker stands in the middle of the data. libjpeg's fast path then decodes zero bits, notices, starts
    /// again from the same place, and leaves what it wrote at first where the second attempt writes nothing. That is
    /// the one case in which ours differs.
    fn has_stray_marker(data: &[u8]) -> bool {
        data.windows(2).any(|pair| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xD9))
    }

    #[test]
    fn damaged_data_decode_as_libjpeg_decodes_them() {
        let mut plain = JpegDecoder::new().unwrap();
        plain.plain = true;
        let mut fast = JpegDecoder::new().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut source = Image::new(Size::new(93, 71));
        for pixel in source.pixels_mut() {
            *pixel = rng.random();
        }
        let (mut decoded, mut refused) = (0, 0);
        for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk] {
            for sampling in [Sampling::S444, Sampling::S420, Sampling::S440] {
                for restart_interval_rows in [0, 1] {
                    for quality in [10, 75, 100] {
                        let options =
                            JpegOptions { quality, sampling, restart_interval_rows, color, ..JpegOptions::default() };
                        let bytes = encode_jpeg(&source, &options).unwrap();
                        let scan = probe(&bytes).unwrap().scan_offset_bytes;
                        for round in 0..60 {
                            let mut bytes = bytes.clone();
                            // Round 0 is undamaged; some damage the tables, most the data.
                            for _ in 0..round.min(3) {
                                let from = if round % 10 == 9 { 2 } else { scan };
                                let at = rng.random_range(from..bytes.len());
                                bytes[at] = if rng.random_bool(0.3) { 0xFF } else { rng.random() };
                            }
                            if round % 3 == 2 {
                                bytes.truncate(rng.random_range(scan..bytes.len()));
                            }
                            let [want, got] = both(&mut plain, &mut fast, &bytes, true);
                            assert_eq!(want.is_some(), got.is_some());
                            if let (Some(want), Some(got)) = (want, got) {
                                if restart_interval_rows == 0 && has_stray_marker(&bytes[scan..]) {
                                    continue;
                                }
                                assert!(want.pixels() == got.pixels(), "{options:?}, round {round}");
                                decoded += 1;
                            }
                            // Of bad codes libjpeg's fast path says nothing: ours may refuse more, never less.
                            let [want, got] = both(&mut plain, &mut fast, &bytes, false);
                            refused += u32::from(got.is_none());
                            if let Some(got) = got {
                                assert!(want.unwrap().pixels() == got.pixels(), "{options:?}, round {round}");
                            }
                        }
                    }
                }
            }
        }
        assert!(decoded > 2000 && refused > 500, "{decoded} decoded, {refused} refused");
    }

    /// Pillow has the assembler's arithmetic, and so has every build: those without it, and those for ARM.
    #[test]
    fn absurd_coefficients_decode_alike_with_and_without_the_assembler() {
        let mut portable = JpegDecoder::new().unwrap();
        portable.portable = true;
        let mut built = JpegDecoder::new().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(16);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/images");
        let mut compared = 0;
        for name in ["absurd-baseline.jpg", "absurd-progressive.jpg", "absurd-wide.jpg", "quality-100.jpg", "ycck.jpg"]
        {
            let bytes = fs::read(folder.join(name)).unwrap();
            let scan = probe(&bytes).unwrap().scan_offset_bytes;
            for round in 0..100 {
                let mut bytes = bytes.clone();
                for _ in 0..round.min(3) {
                    let at = rng.random_range(scan..bytes.len());
                    bytes[at] = rng.random();
                }
                if let [Some(want), Some(got)] = both(&mut built, &mut portable, &bytes, true) {
                    assert!(want.pixels() == got.pixels(), "{name}, round {round}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 400, "{compared}");
    }
}
