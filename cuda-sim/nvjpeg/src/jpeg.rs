//! Compressed images: their headers, the back ends that support them, and decoding.

use crate::fault::{FAULT, Fault, spoil_a_block};
use crate::planes::planes;
use nvjpeg_sys::bindings::{
    nvjpegBackend_t as Backend, nvjpegChromaSubsampling_t as Subsampling, nvjpegOutputFormat_t as Format,
    nvjpegStatus_t as Status,
};
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use warpfeed_image::decode::Baseline;
use warpfeed_image::{Decoder, Header, Image, Rect, Size, probe};

pub type Result<T> = std::result::Result<T, Status>;

const BAD: Status = Status::NVJPEG_STATUS_BAD_JPEG;
const UNSUPPORTED: Status = Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED;
const NOT_HERE: Status = Status::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED;

/// The longest side that the hardware supports, in pixels.
const MAX_HARDWARE_SIDE: u32 = 16_000;

/// A compressed image, in its owner's memory or copied.
#[derive(Clone)]
pub struct Source {
    bytes: Bytes,
    pub info: Arc<Info>,
}

#[derive(Clone)]
enum Bytes {
    Borrowed { address: usize, len: usize },
    Copied(Arc<[u8]>),
}

impl Source {
    /// Reads the header.
    pub fn parse(data: *const u8, len: usize, copy: bool) -> Result<Self> {
        if data.is_null() || len == 0 || len > isize::MAX as usize {
            return Err(Status::NVJPEG_STATUS_INVALID_PARAMETER);
        }
        // SAFETY: by nvJPEG's contract the data are readable for their length.
        let bytes = unsafe { std::slice::from_raw_parts(data, len) };
        let info = Arc::new(Info::of(bytes)?);
        let bytes = if copy { Bytes::Copied(bytes.into()) } else { Bytes::Borrowed { address: data as usize, len } };
        Ok(Self { bytes, info })
    }

    /// Address and length in the owner's memory.
    pub fn borrowed(&self) -> Option<(usize, usize)> {
        match self.bytes {
            Bytes::Borrowed { address, len } => Some((address, len)),
            Bytes::Copied(_) => None,
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            // SAFETY: by nvJPEG's contract the data stay readable until the image is decoded.
            Bytes::Borrowed { address, len } => unsafe { std::slice::from_raw_parts(*address as *const u8, *len) },
            Bytes::Copied(bytes) => bytes,
        }
    }
}

/// A number that changes when the bytes change.
pub fn checksum(source: &Source) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(source.bytes());
    hasher.finish()
}

/// The content of a header.
pub struct Info {
    header: Header,
    /// Second byte of the frame's marker.
    process: u8,
    /// Components of the first scan.
    scan_components: u8,
}

impl Info {
    fn of(bytes: &[u8]) -> Result<Self> {
        let header = probe(bytes).map_err(|_| BAD)?;
        if header.format != warpfeed_image::Format::Jpeg {
            return Err(BAD);
        }
        let (process, scan_components) = markers(bytes).ok_or(BAD)?;
        Ok(Self { header, process, scan_components })
    }

    pub fn size(&self) -> Size {
        self.header.size
    }

    /// Whether EXIF data rotate or flip the image.
    pub fn is_rotated(&self) -> bool {
        self.header.orientation > 1
    }

    /// Whether chroma has the size of luma, or there is none.
    pub fn has_whole_chroma(&self) -> bool {
        matches!(self.subsampling(), Subsampling::NVJPEG_CSS_444 | Subsampling::NVJPEG_CSS_GRAY)
    }

    pub fn subsampling(&self) -> Subsampling {
        let [luma, first, second, _] = self.header.sampling;
        match self.header.components {
            1 => Subsampling::NVJPEG_CSS_GRAY,
            3 if first == second && first.0 > 0 && first.1 > 0 => {
                let whole = luma.0.is_multiple_of(first.0) && luma.1.is_multiple_of(first.1);
                match (luma.0 / first.0, luma.1 / first.1) {
                    _ if !whole => Subsampling::NVJPEG_CSS_UNKNOWN,
                    (1, 1) => Subsampling::NVJPEG_CSS_444,
                    (2, 1) => Subsampling::NVJPEG_CSS_422,
                    (2, 2) => Subsampling::NVJPEG_CSS_420,
                    (1, 2) => Subsampling::NVJPEG_CSS_440,
                    (4, 1) => Subsampling::NVJPEG_CSS_411,
                    (4, 2) => Subsampling::NVJPEG_CSS_410,
                    (2, 4) => Subsampling::NVJPEG_CSS_410V,
                    _ => Subsampling::NVJPEG_CSS_UNKNOWN,
                }
            }
            _ => Subsampling::NVJPEG_CSS_UNKNOWN,
        }
    }

    /// Whether a back end supports the image, as far as the header tells.
    pub fn seems_taken_by(&self, backend: Backend) -> bool {
        self.is_taken(backend, true)
    }

    /// Whether a back end supports the image.
    pub fn is_taken_by(&self, backend: Backend) -> bool {
        self.is_taken(backend, self.scan_components == self.header.components)
    }

    fn is_taken(&self, backend: Backend, single_scan: bool) -> bool {
        let css = self.subsampling();
        let color = matches!(self.header.components, 1 | 3) && css != Subsampling::NVJPEG_CSS_UNKNOWN;
        let sequential = matches!(self.process, 0xC0 | 0xC1);
        let common = color && self.header.precision_bits == 8;
        match backend {
            Backend::NVJPEG_BACKEND_HARDWARE => {
                let sampling = !matches!(
                    css,
                    Subsampling::NVJPEG_CSS_411 | Subsampling::NVJPEG_CSS_410 | Subsampling::NVJPEG_CSS_410V
                );
                let size = self.size().width.max(self.size().height) <= MAX_HARDWARE_SIDE;
                common && sequential && sampling && single_scan && size
            }
            Backend::NVJPEG_BACKEND_GPU_HYBRID => common && sequential,
            _ => common && (sequential || self.process == 0xC2),
        }
    }
}

/// The frame's marker, and the number of components of the first scan.
fn markers(bytes: &[u8]) -> Option<(u8, u8)> {
    let (mut at, mut process) = (2, 0);
    loop {
        while *bytes.get(at)? != 0xFF {
            at += 1;
        }
        while *bytes.get(at)? == 0xFF {
            at += 1;
        }
        let marker = bytes[at];
        at += 1;
        match marker {
            0x00 | 0x01 | 0xD0..=0xD8 => continue,
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => process = marker,
            0xDA => return Some((process, *bytes.get(at + 2)?)),
            _ => {}
        }
        at += usize::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    }
}

thread_local! {
    static DECODER: RefCell<Option<(Decoder, Image)>> = const { RefCell::new(None) };
}

/// How an image is decoded.
#[derive(Clone, Copy)]
pub struct How {
    pub backend: Backend,
    /// Whether chroma is interpolated.
    pub interpolates: bool,
    pub format: Format,
    /// The part of the image. `None`: all.
    pub region: Option<Rect>,
}

/// Decodes an image to planes of luma and chroma, those of a gray image to luma alone, one after the other. They lie as
/// the sizes say.
pub fn decode_planes(source: &Source, backend: Backend) -> Result<(Vec<u8>, Vec<Size>)> {
    let info = &source.info;
    if !info.is_taken_by(backend) || *FAULT == Fault::Refuse {
        return Err(UNSUPPORTED);
    }
    let image = Baseline::new(source.bytes(), &info.header).map_err(|_| UNSUPPORTED)?;
    let planes = planes(source.bytes(), &image).ok_or(BAD)?;
    let sizes = planes.iter().map(|plane| Size::new(plane.width as u32, plane.height as u32)).collect();
    Ok((planes.into_iter().flat_map(|plane| plane.samples).collect(), sizes))
}

/// Decodes an image or a region as the back end would, to RGB with rows without gaps. Without interpolation, pixels of
/// images with less chroma are others. With it, those at the sides of a region are, as up to nvJPEG 13.2.
pub fn decode(source: &Source, how: How) -> Result<Vec<u8>> {
    let How { backend, interpolates, format, region } = how;
    let info = &source.info;
    if !info.is_taken_by(backend) || *FAULT == Fault::Refuse {
        return Err(UNSUPPORTED);
    }
    if format != Format::NVJPEG_OUTPUT_RGBI {
        return Err(NOT_HERE);
    }
    let Size { width, height } = info.size();
    let part = region.unwrap_or(Rect { x: 0, y: 0, width, height });
    if part.width == 0 || part.height == 0 || part.x + part.width > width || part.y + part.height > height {
        return Err(Status::NVJPEG_STATUS_INVALID_PARAMETER);
    }
    DECODER.with_borrow_mut(|decoder| {
        if decoder.is_none() {
            let made = Decoder::new().map_err(|_| Status::NVJPEG_STATUS_ALLOCATOR_FAILURE)?;
            *decoder = Some((made, Image::default()));
        }
        let (decoder, image) = decoder.as_mut().ok_or(Status::NVJPEG_STATUS_INTERNAL_ERROR)?;
        let bytes = source.bytes();
        // As much as there is of a truncated image is decoded, without a message.
        let cut_off = !bytes.windows(2).rev().any(|pair| pair == [0xFF, 0xD9]);
        decoder.decode(bytes, &info.header, part, cut_off, image).map_err(|_| BAD)?;
        let mut out: Vec<u8> = image.pixels().iter().flat_map(|[red, green, blue, _]| [*red, *green, *blue]).collect();
        if !info.has_whole_chroma() {
            let sides = |x: u32, y: u32| {
                let columns = (x == 0 && part.x > 0) || (x + 1 == part.width && part.x + part.width < width);
                columns || (y == 0 && part.y > 0) || (y + 1 == part.height && part.y + part.height < height)
            };
            for (i, value) in out.iter_mut().enumerate() {
                let (x, y) = (i as u32 / 3 % part.width, i as u32 / 3 / part.width);
                *value ^= u8::from(!interpolates || sides(x, y));
            }
        }
        if *FAULT == Fault::Wrong {
            spoil_a_block(Size::new(part.width, part.height), checksum(source), &mut out);
        }
        Ok(out)
    })
}
