//! Work that is queued on streams.

use crate::driver::host;
use crate::fault::{FAULT, Fault};
use crate::jpeg::{Source, checksum};
use crate::object::Token;
use nvjpeg_sys::bindings::nvjpegImage_t;
use warpfeed_image::Size;

/// Memory that an operation accesses: the driver's `Touch`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Touch {
    address: usize,
    bytes: usize,
    /// Whether it is spoiled during the call.
    ahead: bool,
}

/// Device memory for an image.
pub struct Destination {
    planes: Vec<Plane>,
    /// Whether the image is written at all.
    is_written: bool,
    /// Whether the back end writes ahead of the stream's order.
    ahead: bool,
}

/// Device memory for one plane: rows of bytes.
struct Plane {
    address: usize,
    pitch: usize,
    row_bytes: usize,
    rows: usize,
}

impl Destination {
    /// The destination of an image in interleaved RGB. `None` if it is missing or its rows overlap.
    pub fn new(image: &nvjpegImage_t, size: Size, ahead: bool) -> Option<Self> {
        Self::of(image, [Size::new(3 * size.width, size.height)].into_iter(), ahead)
    }

    /// The destination of planes of these sizes.
    pub fn of_planes(image: &nvjpegImage_t, sizes: &[Size], ahead: bool) -> Option<Self> {
        Self::of(image, sizes.iter().copied(), ahead)
    }

    fn of(image: &nvjpegImage_t, sizes: impl Iterator<Item = Size>, ahead: bool) -> Option<Self> {
        let is_written = *FAULT != Fault::Nothing;
        let plane = |(i, size): (usize, Size)| {
            let (address, pitch) = (*image.channel.get(i)? as usize, *image.pitch.get(i)?);
            let (row_bytes, rows) = (size.width as usize, size.height as usize);
            (address != 0 && pitch >= row_bytes).then_some(Plane { address, pitch, row_bytes, rows })
        };
        let planes = sizes.enumerate().map(plane).collect::<Option<Vec<_>>>()?;
        Some(Self { planes, is_written, ahead: ahead && is_written })
    }

    /// Bytes of all rows.
    pub fn len_bytes(&self) -> usize {
        self.planes.iter().map(|plane| plane.row_bytes * plane.rows).sum()
    }

    fn touches(&self) -> impl Iterator<Item = Touch> {
        self.planes.iter().map(|plane| {
            let bytes = (plane.rows - 1).saturating_mul(plane.pitch).saturating_add(plane.row_bytes);
            Touch { address: plane.address, bytes, ahead: self.ahead }
        })
    }

    /// # Safety
    /// The destination may be written now, and `len_bytes` bytes may be read at `from`.
    unsafe fn write(&self, from: *const u8) {
        let mut read = 0;
        for Plane { address, pitch, row_bytes, rows } in &self.planes {
            for row in (0..*rows).filter(|_| self.is_written) {
                let to = host(address + row * pitch) as *mut u8;
                // SAFETY: the rows lie within the memory that the caller promises, as `touches` counts it.
                unsafe { std::ptr::copy(from.add(read + row * row_bytes), to, *row_bytes) };
            }
            read += rows * row_bytes;
        }
    }
}

/// An image that was decoded when the call was made, and the data by which a change of its bytes is noticed.
pub struct Decoded {
    pub source: Source,
    pub checksum: u64,
    pub pixels: Vec<u8>,
    pub destination: Destination,
}

impl Decoded {
    /// Never writes the image, as was reported of RTX 50 cards.
    pub fn forget(&mut self) {
        (self.destination.is_written, self.destination.ahead) = (false, false);
    }
}

pub enum Work {
    /// Copies from a pinned buffer to a device buffer.
    Transfer { source: Source, checksum: u64, from: usize, to: usize, bytes: usize, tokens: Vec<Token> },
    /// Copies from a device buffer to the destination.
    Finish { from: usize, bytes: usize, destination: Destination, tokens: Vec<Token> },
    /// Does everything for a batch.
    Decode { images: Vec<Decoded>, tokens: Vec<Token> },
}

impl Work {
    pub fn touches(&self) -> Vec<Touch> {
        let touch = |address, bytes| Touch { address, bytes, ahead: false };
        match self {
            Self::Transfer { source, from, to, bytes, .. } => {
                let mut touches = vec![touch(*from, *bytes), touch(*to, *bytes)];
                touches.extend(source.borrowed().map(|(address, bytes)| touch(address, bytes)));
                touches
            }
            Self::Finish { from, bytes, destination, .. } => {
                let from = touch(*from, *bytes);
                destination.touches().chain([from]).collect()
            }
            Self::Decode { images, .. } => images
                .iter()
                .flat_map(|image| {
                    let read = image.source.borrowed().map(|(address, bytes)| touch(address, bytes));
                    image.destination.touches().chain(read)
                })
                .collect(),
        }
    }

    /// Does the work. The driver has checked all ranges of `touches`.
    pub fn run(self) {
        match self {
            Self::Transfer { source, checksum: expected, from, to, bytes, tokens } => {
                let (from, to) = (host(from), host(to));
                // SAFETY: both buffers have this many bytes, which the driver has checked to exist, and nothing else
                // runs.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
                if checksum(&source) != expected {
                    // SAFETY: as above.
                    spoil(unsafe { std::slice::from_raw_parts_mut(to as *mut u8, bytes) });
                }
                drop(tokens);
            }
            Self::Finish { from, destination, tokens, .. } => {
                // SAFETY: the driver has checked the buffer and the destination.
                unsafe { destination.write(host(from) as *const u8) };
                drop(tokens);
            }
            Self::Decode { images, tokens } => {
                for mut image in images {
                    if checksum(&image.source) != image.checksum {
                        spoil(&mut image.pixels);
                    }
                    // SAFETY: the driver has checked the destination; the pixels are of the same size.
                    unsafe { image.destination.write(image.pixels.as_ptr()) };
                }
                drop(tokens);
            }
        }
    }
}

/// Makes another image of it, for compressed bytes that changed before they were read.
fn spoil(pixels: &mut [u8]) {
    pixels.iter_mut().for_each(|byte| *byte ^= 0x5A);
}
