//! Encoded bytes that a back end may keep after the call.
#![allow(unsafe_code)]

use crate::error::Result;
use crate::raster::Image;
use crate::source::{ReadRequest, Reader, Sample, Source};
use crate::targets::Found;
use std::sync::Arc;

/// An image that operations are run on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Input<'a> {
    Encoded(&'a [u8]),
    /// Pixels, all that are stored of the image.
    Image(&'a Image),
}

/// The image of a sample.
pub(crate) enum Given<'a> {
    Encoded(Encoded),
    Image(&'a Image),
}

impl Given<'_> {
    pub(crate) fn input(&self) -> Input<'_> {
        match self {
            Self::Encoded(encoded) => Input::Encoded(encoded.bytes()),
            Self::Image(image) => Input::Image(image),
        }
    }

    /// Ends the use of the image and returns the buffer for the next sample.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Encoded(encoded) => encoded.into_buffer(),
            Self::Image(_) => Vec::new(),
        }
    }
}

/// Encoded bytes that stay at their address until a device has read them.
pub(crate) struct Encoded {
    bytes: *const u8,
    len_bytes: usize,
    buffer: Vec<u8>,
    _owner: Owner,
}

/// The owner of the bytes, if the buffer does not hold them.
enum Owner {
    Buffer,
    /// A source, which may have lent its own memory.
    Source(#[expect(dead_code, reason = "kept alive")] Arc<dyn Source>),
    Others(#[expect(dead_code, reason = "kept alive")] Arc<[u8]>),
}

// SAFETY: the bytes are plain memory that is only read through this, and both owners are `Send`.
unsafe impl Send for Encoded {}
// SAFETY: as above; through a shared reference they are only read.
unsafe impl Sync for Encoded {}

impl Encoded {
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
        let (bytes, len_bytes) = (sample.bytes().as_ptr(), sample.bytes().len());
        Ok((Self { bytes, len_bytes, buffer: sample.into_buffer(), _owner: Owner::Source(Arc::clone(source)) }, found))
    }

    /// Bytes that are shared with others.
    pub(crate) fn shared(bytes: Arc<[u8]>) -> Self {
        Self { bytes: bytes.as_ptr(), len_bytes: bytes.len(), buffer: Vec::new(), _owner: Owner::Others(bytes) }
    }

    /// All bytes of a buffer.
    pub(crate) fn owned(buffer: Vec<u8>) -> Self {
        Self { bytes: buffer.as_ptr(), len_bytes: buffer.len(), buffer, _owner: Owner::Buffer }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes belong to the buffer, or to the source, which lends them for as long as it is borrowed, or
        // are shared. Their owner is kept here and they never change: the source is only borrowed, and the buffer,
        // whose contents do not move with it, is given away only after the last use of the bytes.
        unsafe { std::slice::from_raw_parts(self.bytes, self.len_bytes) }
    }

    /// Ends the use of the bytes and returns the buffer for the next sample.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}
