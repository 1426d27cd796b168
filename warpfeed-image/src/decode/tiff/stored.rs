//! Large files. Only the parts that a crop needs are read.

use super::read_at::ReadAt;
use super::{TiffScratch, bad, decode, header};
use crate::decode::jpeg::JpegDecoder;
use crate::decode::{Header, StoredImage};
use crate::error::Result;
use crate::planes::Planes;
use crate::raster::Rect;
use std::borrow::Cow;
use std::fs::File;

/// A TIFF file that stays where it is: opening it reads its directory, and decoding a part reads the strips or tiles that
/// the part needs.
///
/// ```no_run
/// use warpfeed_image::Rect;
/// use warpfeed_image::decode::{StoredImage, TiffFile};
/// use warpfeed_image::planes::Planes;
///
/// let scene = TiffFile::open(std::fs::File::open("sentinel.tif")?)?;
/// let (part, mut planes) = (Rect { x: 4000, y: 2000, width: 256, height: 256 }, Planes::default());
/// scene.decode(part, &[3, 2, 1], &mut planes)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TiffFile {
    file: ReadFile,
    header: Header,
}

#[derive(Debug)]
struct ReadFile {
    file: File,
    len_bytes: u64,
}

impl TiffFile {
    /// Reads the directory of a file.
    ///
    /// # Errors
    /// [`Error::Decode`](crate::Error::Decode) if it is damaged, or no TIFF.
    pub fn open(file: File) -> Result<Self> {
        let len_bytes = file.metadata().map_err(|error| bad(format!("the file cannot be read: {error}")))?.len();
        let file = ReadFile { file, len_bytes };
        let header = header(&file)?;
        Ok(Self { file, header })
    }
}

impl StoredImage for TiffFile {
    fn header(&self) -> &Header {
        &self.header
    }

    fn decode(&self, part: Rect, bands: &[u16], out: &mut Planes) -> Result<()> {
        // Those of a thread's decoder keep memory, which matters for small images.
        let (mut jpeg, mut scratch) = (JpegDecoder::new()?, TiffScratch::default());
        decode(&self.file, &self.header, part, bands, &mut jpeg, &mut scratch, out)
    }
}

impl ReadAt for ReadFile {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let mut bytes = crate::memory::zeros(len, "a part of a file", crate::memory::FEWER_IMAGES)?;
        read_exact_at(&self.file, &mut bytes, offset)
            .map_err(|error| bad(format!("the file cannot be read at {offset}: {error}")))?;
        Ok(Cow::Owned(bytes))
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        (bytes, offset) = (&mut bytes[read..], offset + read as u64);
    }
    Ok(())
}
