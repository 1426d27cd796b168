//! Images that a back end may keep after the call.
#![allow(unsafe_code)]

use crate::backend::cuda::direct::ImageInFile;
use crate::backend::cuda::jpeg::CachedImage;
use crate::decode::{Input, Pixels, StoredImage};
use crate::error::{Error, Result};
use crate::raster::Size;
use crate::source::{Extent, ReadRequest, Reader, Sample, Source};
use crate::targets::Found;
use std::sync::Arc;

/// The image of a sample.
pub(crate) enum Given<'a> {
    Held(HeldImage),
    Pixels(Pixels<'a>),
    /// An image whose data a device has kept.
    OnDevice(Arc<CachedImage>),
    /// An image that a device reads from a file.
    InFile(Box<ImageInFile>),
}

impl Given<'_> {
    /// The image in the host's memory.
    ///
    /// # Errors
    /// [`Error::Panic`] if the host does not have it, which would be a defect of this crate.
    pub(crate) fn input(&self) -> Result<Input<'_>> {
        match self {
            Self::Held(image) => Ok(image.input()),
            Self::Pixels(pixels) => Ok(Input::Pixels(*pixels)),
            Self::OnDevice(_) | Self::InFile(_) => {
                Err(Error::Panic { message: "the host does not have an image".to_owned() })
            }
        }
    }

    /// Ends the use of the image and returns the buffer for the next sample.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Held(image) => image.into_buffer(),
            Self::Pixels(_) | Self::OnDevice(_) | Self::InFile(_) => Vec::new(),
        }
    }
}

/// Encoded bytes, or pixels, that stay at their address until a device has read them.
pub(crate) struct HeldImage {
    bytes: *const u8,
    len_bytes: usize,
    /// Size and number of channels of pixels; `None` if the bytes are encoded.
    pixels: Option<(Size, u8)>,
    /// An image that is read in parts; there are no bytes then.
    stored: Option<Arc<dyn StoredImage>>,
    buffer: Vec<u8>,
    owner: Owner,
}

/// The owner of the bytes, if the buffer does not hold them.
enum Owner {
    Buffer,
    /// A source, which may have lent its own memory.
    Source(Arc<dyn Source>),
    Others(#[expect(dead_code, reason = "kept alive")] Arc<[u8]>),
}

// SAFETY: the bytes are plain memory that is only read through this, and both owners are `Send`.
unsafe impl Send for HeldImage {}
// SAFETY: as above; through a shared reference they are only read.
unsafe impl Sync for HeldImage {}

impl HeldImage {
    /// Reads the wanted part of sample `index`, into `buffer` if the source does not lend its own memory.
    pub(crate) fn read(reader: &Reader, index: u64, want: &ReadRequest<'_>, buffer: Vec<u8>) -> Result<(Self, Found)> {
        let source = match reader {
            Reader::DataSet(source) => source,
            Reader::Stream(feed) => {
                let bytes = Self::owned(feed.read(index)?);
                return Ok((bytes, reader.found(index, want)?));
            }
        };
        let mut sample = Sample::with_buffer(buffer);
        source.read(index, want, &mut sample)?;
        let found = sample.take_found(want)?;
        let stored = sample.take_stored();
        let (bytes, len_bytes, pixels) = (sample.bytes().as_ptr(), sample.bytes().len(), sample.pixels());
        let (buffer, owner) = (sample.into_buffer(), Owner::Source(Arc::clone(source)));
        Ok((Self { bytes, len_bytes, pixels, stored, buffer, owner }, found))
    }

    /// Encoded bytes that are shared with others.
    pub(crate) fn shared(bytes: Arc<[u8]>) -> Self {
        let (start, len_bytes) = (bytes.as_ptr(), bytes.len());
        Self { bytes: start, len_bytes, pixels: None, stored: None, buffer: Vec::new(), owner: Owner::Others(bytes) }
    }

    /// All bytes of a buffer, which are encoded.
    pub(crate) fn owned(buffer: Vec<u8>) -> Self {
        let (bytes, len_bytes) = (buffer.as_ptr(), buffer.len());
        Self { bytes, len_bytes, pixels: None, stored: None, buffer, owner: Owner::Buffer }
    }

    /// The bytes as RGB pixels of an image of this size.
    pub(crate) fn into_rgb(self, size: Size) -> Self {
        debug_assert_eq!(self.len_bytes as u64, 3 * size.area_px());
        Self { pixels: Some((size, 3)), ..self }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes belong to the buffer, or to the source, which lends them for as long as it is borrowed, or
        // are shared. Their owner is kept here and they never change: the source is only borrowed, and the buffer,
        // whose contents do not move with it, is given away only after the last use of the bytes.
        unsafe { std::slice::from_raw_parts(self.bytes, self.len_bytes) }
    }

    /// The place of the image, which is sample `index` of its source, in a file.
    pub(crate) fn extent(&self, index: u64) -> Option<Extent> {
        if let Owner::Source(source) = &self.owner { source.extent(index) } else { None }
    }

    pub(crate) fn input(&self) -> Input<'_> {
        match &self.stored {
            Some(image) => Input::Stored(&**image),
            None => Input::new(self.bytes(), self.pixels),
        }
    }

    /// Ends the use of the bytes and returns the buffer for the next sample.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}
