//! The sizes of a data set in a file.
//!
//! All numbers are little endian: [`MAGIC`], the orientation (`u32`: 1 if images are turned upright), a zero (`u32`), the
//! number of samples (`u64`); then the samples in their order, each as version (`u64`, 0 if it is not known), width and
//! height (`u32`, zeros if the image has no size); then the CRC-32C of all that (`u32`).

use crate::error::{Error, Result};
use crate::ops::orientation::Orientation;
use crate::os::atomic;
use crate::os::file::{if_there, open_with_metadata};
use crate::raster::Size;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::OnceLock;

/// The last byte is the version of this format and of the reader of headers.
const MAGIC: &[u8; 8] = b"wfsizes\x01";
const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
/// Number of records that are read at once.
const BLOCK: usize = 1 << 16;

/// The content of a file.
#[derive(Default)]
pub(super) struct Kept {
    records: Vec<Record>,
    /// The records by version.
    sorted: OnceLock<Vec<Record>>,
}

/// A version and the size that an image then had.
type Record = (u64, Size);

impl Kept {
    /// Loads the sizes in a file; none if there is no file, if it is damaged, or if it is of another orientation.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read; [`Error::Parameter`] if it has other content.
    pub fn load(path: &Path, orientation: Orientation) -> Result<Self> {
        let Some((file, metadata)) = if_there(open_with_metadata(path))? else { return Ok(Self::default()) };
        let mut start = Vec::new();
        let read = (&file).take(HEADER_BYTES as u64).read_to_end(&mut start);
        read.map_err(Error::io("read", path))?;
        // The format's version may be another, and a power loss may have left nothing.
        let name = &MAGIC[..MAGIC.len() - 1];
        if !name.starts_with(&start[..start.len().min(name.len())]) {
            let expected = "the name of a file with sizes, or of none";
            return Err(Error::parameter("ImageSizes::scan_kept", "file", expected, path.display()));
        }
        let Ok(header) = <[u8; HEADER_BYTES]>::try_from(start) else { return Ok(Self::default()) };
        match records(file, metadata.len(), &header, orientation) {
            Ok(records) => Ok(Self { records: records.unwrap_or_default(), sorted: OnceLock::new() }),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Self::default()),
            Err(error) => Err(Error::io("read", path)(error)),
        }
    }

    /// The size of an image of this version. It is usually that of sample `index`.
    pub fn find(&self, index: u64, version: u64) -> Option<Size> {
        if version == 0 {
            return None;
        }
        let own = usize::try_from(index).ok().and_then(|index| self.records.get(index));
        let found = own.filter(|record| record.0 == version).or_else(|| {
            // The data set may have been given other files, so that its samples have other numbers.
            let sorted = self.sorted.get_or_init(|| {
                let mut sorted = self.records.clone();
                sorted.sort_unstable_by_key(|record| record.0);
                sorted
            });
            sorted.binary_search_by_key(&version, |record| record.0).ok().map(|at| &sorted[at])
        });
        found.map(|record| record.1).filter(|size| !size.is_empty())
    }

    /// Whether this is what would be stored.
    pub fn is(&self, versions: &[u64], sizes: &[Size]) -> bool {
        versions.iter().copied().zip(sizes.iter().copied()).eq(self.records.iter().copied())
    }
}

/// The records after the header; `None` if they are damaged.
fn records(
    mut file: File,
    len_bytes: u64,
    header: &[u8; HEADER_BYTES],
    orientation: Orientation,
) -> io::Result<Option<Vec<Record>>> {
    let count = header.last_chunk().map_or(0, |count| u64::from_le_bytes(*count));
    let record_bytes = count.checked_mul(RECORD_BYTES as u64);
    let expected = record_bytes.and_then(|len| len.checked_add((HEADER_BYTES + CRC_BYTES) as u64));
    if header.first_chunk() != Some(&start(orientation)) || expected != Some(len_bytes) {
        return Ok(None);
    }
    let mut left = usize::try_from(count).map_err(io::Error::other)?;
    let mut records = Vec::new();
    records.try_reserve_exact(left)?;
    let (mut crc, mut block) = (crc32c::crc32c(header), vec![0; left.min(BLOCK) * RECORD_BYTES]);
    while left > 0 {
        let block = &mut block[..left.min(BLOCK) * RECORD_BYTES];
        file.read_exact(block)?;
        crc = crc32c::crc32c_append(crc, block);
        let found = block.as_chunks::<RECORD_BYTES>().0;
        records.extend(found.iter().map(|&[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]| {
            let (width, height) = (u32::from_le_bytes([i, j, k, l]), u32::from_le_bytes([m, n, o, p]));
            (u64::from_le_bytes([a, b, c, d, e, f, g, h]), Size::new(width, height))
        }));
        left -= found.len();
    }
    let mut stored = [0; CRC_BYTES];
    file.read_exact(&mut stored)?;
    Ok((u32::from_le_bytes(stored) == crc).then_some(records))
}

/// The first bytes of a file.
fn start(orientation: Orientation) -> [u8; HEADER_BYTES - 8] {
    let mut start = [0; HEADER_BYTES - 8];
    start[..8].copy_from_slice(MAGIC);
    start[8] = u8::from(orientation == Orientation::Apply);
    start
}

/// Stores sizes and versions.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written.
pub(super) fn store(path: &Path, orientation: Orientation, versions: &[u64], sizes: &[Size]) -> Result<()> {
    atomic::write(path, |file| {
        let mut header = start(orientation).to_vec();
        header.extend((sizes.len() as u64).to_le_bytes());
        let mut crc = crc32c::crc32c(&header);
        file.write_all(&header)?;
        for (version, size) in versions.iter().zip(sizes) {
            let mut record = [0; RECORD_BYTES];
            record[..8].copy_from_slice(&version.to_le_bytes());
            record[8..12].copy_from_slice(&size.width.to_le_bytes());
            record[12..].copy_from_slice(&size.height.to_le_bytes());
            crc = crc32c::crc32c_append(crc, &record);
            file.write_all(&record)?;
        }
        file.write_all(&crc.to_le_bytes())
    })
}
