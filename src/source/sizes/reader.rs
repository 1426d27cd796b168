//! Reads the size of one image after the other.

use crate::decode::{Header, probe_parts};
use crate::error::Result;
use crate::ops::orientation::Orientation;
use crate::os::file::{Identity, open_with_metadata};
use crate::raster::Size;
use crate::source::window::read_exact_at;
use crate::source::{Extent, ListedFile, MAX_ENCODED_BYTES, ReadRequest, Sample, Source};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// Number of samples by which a sample is announced to a source that has to read it whole.
const ANNOUNCED: u64 = 64;

/// A thread's memory.
pub(super) struct Reader<'a> {
    source: &'a dyn Source,
    orientation: Orientation,
    sample: Sample<'a>,
    start: Vec<u8>,
    /// The last shard.
    shard: Option<(Arc<ListedFile>, File)>,
}

impl<'a> Reader<'a> {
    pub fn new(source: &'a dyn Source, orientation: Orientation) -> Self {
        Self { source, orientation, sample: Sample::default(), start: Vec::new(), shard: None }
    }

    /// A number that differs if the image may have another size than before; 0 if that is not known.
    pub fn version(&self, index: u64) -> u64 {
        if let Some(version) = self.source.image_version(index) {
            return version.max(1);
        }
        let Some(path) = self.source.image_file(index) else { return 0 };
        let Ok(metadata) = fs::metadata(&path) else { return 0 };
        let mut hash = Sha256::new();
        hash.update(path.as_os_str().as_encoded_bytes());
        for number in [0, metadata.len(), Identity::of(&metadata).version()] {
            hash.update(number.to_le_bytes());
        }
        hash.finalize().first_chunk().map_or(0, |start| u64::from_le_bytes(*start)).max(1)
    }

    /// The size of the image of sample `index`.
    pub fn size(&mut self, index: u64) -> Result<Size> {
        let header = match self.by_parts(index) {
            Some(header) => header,
            // The source decides about what is wrong, with its own words.
            None => self.whole(index)?,
        };
        let is_turned = self.orientation == Orientation::Apply && header.orientation >= 5;
        Ok(if is_turned { header.size.transposed() } else { header.size })
    }

    /// The header, if reading a part of a file suffices and nothing is wrong.
    fn by_parts(&mut self, index: u64) -> Option<Header> {
        if let Some(path) = self.source.image_file(index) {
            return self.of_file(&path);
        }
        let Extent { file, offset, len_bytes } = self.source.extent(index)?;
        if self.shard.as_ref().is_none_or(|(open, _)| !Arc::ptr_eq(open, &file)) {
            let (opened, metadata) = open_with_metadata(file.path()).ok()?;
            self.shard = file.is(&metadata).then_some((file, opened));
        }
        let (_, shard) = self.shard.as_ref()?;
        probe(&mut self.start, shard, offset, len_bytes)
    }

    fn of_file(&mut self, path: &Path) -> Option<Header> {
        let (file, metadata) = open_with_metadata(path).ok()?;
        let header = probe(&mut self.start, &file, 0, metadata.len());
        #[cfg(feature = "tiff")]
        if header.is_none() && matches!(self.start.first_chunk(), Some(b"II*\0" | b"MM\0*" | b"II+\0" | b"MM\0+")) {
            use crate::decode::{StoredImage, TiffFile};
            return Some(TiffFile::open(file).ok()?.header().clone()).filter(|_| metadata.len() <= MAX_ENCODED_BYTES);
        }
        header
    }

    /// The header of an image that is read whole.
    fn whole(&mut self, index: u64) -> Result<Header> {
        let len = self.source.len();
        if index == 0 {
            (0..len.min(ANNOUNCED)).for_each(|index| self.source.prefetch(index));
        }
        if len - index > ANNOUNCED {
            self.source.prefetch(index + ANNOUNCED);
        }
        // An image that can be left where it is has its header.
        self.source.read(index, &ReadRequest::IMAGE.or_parts(true), &mut self.sample)?;
        Ok(self.sample.image().header()?)
    }
}

/// The header of an image in a file, if nothing is wrong.
fn probe(start: &mut Vec<u8>, file: &File, offset: u64, len_bytes: u64) -> Option<Header> {
    if len_bytes > MAX_ENCODED_BYTES {
        start.clear();
        return None;
    }
    let read = |at: u64, part: &mut [u8]| read_exact_at(file, part, offset.saturating_add(at));
    probe_parts(len_bytes, start, read).ok().flatten()
}
