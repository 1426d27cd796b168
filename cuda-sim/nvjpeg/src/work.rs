//! Work that is queued on streams.

use crate::fault::{FAULT, Fault};
use crate::jpeg::{ImageLayout, Source, checksum};
use crate::object::Token;
use nvjpeg_sys::bindings::nvjpegImage_t;

/// Memory that an operation accesses: the driver's `Touch`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Touch {
    address: usize,
    bytes: usize,
    /// Whether it is spoiled during the call.
    ahead: bool,
}

/// Planes to write: addresses and row pitches.
pub struct Destination {
    planes: Vec<(usize, usize)>,
    layout: ImageLayout,
    /// Whether the back end writes ahead of the stream's order.
    ahead: bool,
}

impl Destination {
    /// The destination of an image. `None` if a plane is missing or its rows overlap.
    pub fn new(image: &nvjpegImage_t, layout: ImageLayout, ahead: bool) -> Option<Self> {
        let planes: Vec<_> = (0..layout.planes()).map(|i| (image.channel[i] as usize, image.pitch[i])).collect();
        let fits = planes.iter().all(|&(address, pitch)| address != 0 && pitch >= layout.row_bytes());
        fits.then_some(Self { planes, layout, ahead: ahead && *FAULT != Fault::Nothing })
    }

    fn touches(&self) -> impl Iterator<Item = Touch> {
        let (rows, row_bytes) = (self.layout.rows(), self.layout.row_bytes());
        self.planes.iter().map(move |&(address, pitch)| {
            let bytes = ((rows - 1).saturating_mul(pitch)).saturating_add(row_bytes);
            Touch { address, bytes, ahead: self.ahead }
        })
    }

    /// # Safety
    /// The planes may be written now, and a whole image of the layout may be read at `from`.
    unsafe fn write(&self, from: *const u8) {
        if *FAULT == Fault::Nothing {
            return;
        }
        let (rows, row_bytes) = (self.layout.rows(), self.layout.row_bytes());
        for (plane, &(address, pitch)) in self.planes.iter().enumerate() {
            for row in 0..rows {
                let at = (plane * rows + row) * row_bytes;
                // SAFETY: the rows lie within the memory that the caller promises, as `touches` counts it.
                unsafe { std::ptr::copy(from.add(at), (address + row * pitch) as *mut u8, row_bytes) };
            }
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
    pub fn row_bytes(&self) -> usize {
        self.destination.layout.row_bytes()
    }

    pub fn rows(&self) -> usize {
        self.destination.layout.rows()
    }

    /// Never writes the image, as was reported of RTX 50 cards.
    pub fn forget(&mut self) {
        self.destination.planes.clear();
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
                std::iter::once(touch(*from, *bytes)).chain(destination.touches()).collect()
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
                // SAFETY: the driver has checked the buffer and the planes.
                unsafe { destination.write(from as *const u8) };
                drop(tokens);
            }
            Self::Decode { images, tokens } => {
                for mut image in images {
                    if checksum(&image.source) != image.checksum {
                        spoil(&mut image.pixels);
                    }
                    // SAFETY: the driver has checked the planes; the pixels are of the same layout.
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
