//! IDX files of raw pixels, the format of MNIST.

use super::window::read_exact_at;
use super::{MAX_ENCODED_BYTES, ReadRequest, Sample, Source, no_such_sample};
use crate::error::{Error, Result};
use crate::os::file::open_with_metadata;
use crate::raster::Size;
use flate2::read::GzDecoder;
use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest size of a file that is unpacked into memory, in bytes: 4 GiB.
const MAX_UNPACKED_BYTES: u64 = 4 << 30;

/// Raw images of 8 bits in an IDX file, such as MNIST's `train-images-idx3-ubyte`, with the labels in a second file.
///
/// The shape of the images is `[N, H, W]`, `[N, H, W, 1]`, `[N, H, W, 3]`, `[N, 1, H, W]` or `[N, 3, H, W]`. The name
/// of the labels' file has `labels` for `images` and `idx1` for `idx3` or `idx4`. Either file may be compressed (`.gz`)
/// and is then unpacked into memory.
///
/// ```
/// # use warpfeed::source::{IdxFile, Source};
/// let folder = tempfile::tempdir().unwrap();
/// let images = folder.path().join("t10k-images-idx3-ubyte");
/// // Two images, one row of three pixels each.
/// std::fs::write(&images, [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 10, 20, 30, 40, 50, 60]).unwrap();
/// std::fs::write(folder.path().join("t10k-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0, 2, 7, 9]).unwrap();
/// let source = IdxFile::open(&images)?;
/// assert_eq!((source.len(), source.label(1)), (2, Some(9)));
/// assert_eq!(source.encoded(1)?, b"P5\n3 1\n255\n\x28\x32\x3c");
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct IdxFile {
    path: PathBuf,
    pixels: Pixels,
    size: Size,
    channels: u8,
    /// Whether the file stores an image channel by channel, not pixel by pixel.
    planar: bool,
    image_bytes: usize,
    labels: Arc<[u8]>,
}

#[derive(Debug, Clone)]
enum Pixels {
    /// The file, and the offset of its first pixel.
    File(Arc<File>, u64),
    /// The unpacked file, and the offset of its first pixel.
    Memory(Arc<[u8]>, usize),
}

/// The header of a file.
struct Dimensions {
    sizes: Vec<u32>,
    /// Number of bytes of the header.
    start: u64,
    /// Number of bytes of header and contents.
    total: u64,
}

fn damaged(path: &Path, message: &str) -> Error {
    Error::decode("IDX", format!("{}: {message}", path.display()))
}

/// Reads the header of a file of unsigned bytes.
fn dimensions(path: &Path, reader: &mut impl Read) -> Result<Dimensions> {
    let mut read = |bytes: &mut [u8]| match reader.read_exact(bytes) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(damaged(path, "the file ends inside its header"))
        }
        Err(error) => Err(Error::io("read", path)(error)),
    };
    let mut magic = [0; 4];
    read(&mut magic)?;
    let count = match magic {
        [0, 0, 8, count @ 1..=4] => count,
        [0, 0, 8..=14, _] => return Err(damaged(path, "only unsigned bytes in one to four dimensions are supported")),
        _ => return Err(damaged(path, &format!("no IDX file: the bytes start with {magic:02x?}"))),
    };
    let mut sizes = Vec::with_capacity(count.into());
    for _ in 0..count {
        let mut size = [0; 4];
        read(&mut size)?;
        sizes.push(u32::from_be_bytes(size));
    }
    let start = 4 + 4 * u64::from(count);
    let content = sizes.iter().try_fold(1_u64, |product, &size| product.checked_mul(size.into()));
    let total = content.and_then(|content| content.checked_add(start));
    let total = total.ok_or_else(|| damaged(path, &format!("impossible sizes {sizes:?}")))?;
    Ok(Dimensions { sizes, start, total })
}

fn is_gz(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"))
}

/// Opens a file, which may be compressed, and reads its header. Checks the length of a file that is not compressed.
fn open(path: &Path) -> Result<(File, Dimensions)> {
    let (file, metadata) = open_with_metadata(path)?;
    let found = if is_gz(path) {
        let found = dimensions(path, &mut GzDecoder::new(&file))?;
        if found.total > MAX_UNPACKED_BYTES {
            return Err(Error::Limits {
                what: "an unpacked IDX file, in bytes,",
                got: found.total,
                limit: MAX_UNPACKED_BYTES,
                remedy: "unpack it with gunzip: uncompressed files are not held in memory",
            });
        }
        found
    } else {
        let found = dimensions(path, &mut &file)?;
        check_len(path, metadata.len(), &found)?;
        found
    };
    Ok((file, found))
}

/// Reads a whole file, unpacked if it is compressed. Its length must be the one that its header gives.
fn contents(path: &Path, mut file: &File, found: &Dimensions) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| {
        // The buffer grows with the data, not with the claim of the header.
        let limit = found.total + 1;
        if is_gz(path) {
            GzDecoder::new(file).take(limit).read_to_end(&mut bytes)
        } else {
            file.take(limit).read_to_end(&mut bytes)
        }
    });
    read.map_err(Error::io("read", path))?;
    check_len(path, bytes.len() as u64, found)?;
    Ok(bytes)
}

fn check_len(path: &Path, len_bytes: u64, found: &Dimensions) -> Result<()> {
    if len_bytes == found.total {
        return Ok(());
    }
    let than = if len_bytes < found.total { "fewer" } else { "more" };
    Err(damaged(path, &format!("{than} bytes than the {} of its sizes {:?}", found.total, found.sizes)))
}

/// Finds the file of labels that belongs to a file of images.
fn labels_of(images: &Path) -> Result<PathBuf> {
    let name = images.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let labels = plain.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1");
    let candidates = [images.with_file_name(&labels), images.with_file_name(format!("{labels}.gz"))];
    if labels != plain
        && let Some(found) = candidates.iter().find(|path| path.is_file())
    {
        return Ok(found.clone());
    }
    let expected = "a file of images whose name has `images`, with the labels beside it";
    let got = format!("{} without {labels} or {labels}.gz", images.display());
    Err(Error::parameter("IdxFile::open", "path", expected, got))
}

impl IdxFile {
    /// Opens the images at `images` and the labels that belong to them.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::Decode`] if it is not such a file, its length differs from its
    /// header or it has no images, [`Error::Parameter`] if there is no file of labels, or their number is not that of
    /// the images, [`Error::Limits`] if a compressed file unpacks to more than 4 GiB.
    pub fn open(images: impl AsRef<Path>) -> Result<Self> {
        let path = images.as_ref();
        let (file, found) = open(path)?;
        let (height, width, channels, planar) = match found.sizes[..] {
            [_, height, width] => (height, width, 1, false),
            [_, height, width, channels @ (1 | 3)] => (height, width, channels as u8, false),
            [_, channels @ (1 | 3), height, width] => (height, width, channels as u8, true),
            _ => return Err(damaged(path, &format!("sizes {:?} are no images of 1 or 3 channels", found.sizes))),
        };
        let image_bytes = u64::from(width) * u64::from(height) * u64::from(channels);
        if found.sizes[0] == 0 || !(1..=MAX_ENCODED_BYTES).contains(&image_bytes) {
            return Err(damaged(path, &format!("sizes {:?} are no images for training", found.sizes)));
        }
        let labels = labels(&labels_of(path)?, found.sizes[0], path)?;
        let pixels = if is_gz(path) {
            Pixels::Memory(contents(path, &file, &found)?.into(), found.start as usize)
        } else {
            Pixels::File(file.into(), found.start)
        };
        Ok(Self {
            path: path.to_owned(),
            pixels,
            size: Size::new(width, height),
            channels,
            planar: planar && channels > 1,
            image_bytes: image_bytes as usize,
            labels: labels.into(),
        })
    }
}

/// Replaces the content of `pixels` by pixels whose red, green and blue values are in three `planes`.
pub(super) fn interleave(planes: &[u8], pixels: &mut Vec<u8>) {
    let (red, rest) = planes.split_at(planes.len() / 3);
    let (green, blue) = rest.split_at(rest.len() / 2);
    pixels.clear();
    pixels.extend(red.iter().zip(green).zip(blue).flat_map(|((&red, &green), &blue)| [red, green, blue]));
}

/// Reads the labels in `path` for the given number of `images`, which are in the file `of`.
fn labels(path: &Path, images: u32, of: &Path) -> Result<Vec<u8>> {
    let (file, found) = open(path)?;
    let [count] = found.sizes[..] else {
        return Err(damaged(path, &format!("sizes {:?} are no labels", found.sizes)));
    };
    // Checked before reading, because a header may claim any number.
    if count != images {
        let got = format!("{count} labels and {images} images in {}", of.display());
        return Err(Error::parameter("IdxFile::open", "labels", "as many as images", got));
    }
    let mut bytes = contents(path, &file, &found)?;
    bytes.drain(..found.start as usize);
    Ok(bytes)
}

impl Source for IdxFile {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn read<'a>(&'a self, index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("IdxFile::read", index, self.len()));
        }
        let at = index * self.image_bytes as u64;
        match &self.pixels {
            Pixels::File(file, start) => {
                let buffer = sample.buffer();
                buffer.resize(self.image_bytes, 0);
                read_exact_at(file, buffer, start + at).map_err(Error::io("read", &self.path))?;
                if self.planar {
                    interleave(&buffer.clone(), buffer);
                }
            }
            Pixels::Memory(bytes, start) => {
                let pixels = &bytes[start + at as usize..][..self.image_bytes];
                if self.planar {
                    interleave(pixels, sample.buffer());
                } else {
                    sample.lend(pixels);
                }
            }
        }
        sample.set_pixels(self.size, self.channels)
    }

    fn label(&self, index: u64) -> Option<u32> {
        Some(self.labels[index as usize].into())
    }

    fn image_size(&self) -> Option<Size> {
        Some(self.size)
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("{} image {index}", self.path.display()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::fs;
    use std::io::Write;

    fn idx(sizes: &[u32], content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, sizes.len() as u8];
        sizes.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
        [&bytes, content].concat()
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    fn opened(images: &[u8], labels: &[u8], ending: &str) -> Result<IdxFile> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("train-images-idx3-ubyte{ending}"));
        fs::write(&path, images).unwrap();
        fs::write(folder.path().join(format!("train-labels-idx1-ubyte{ending}")), labels).unwrap();
        IdxFile::open(path)
    }

    #[test]
    fn gray_and_color_plain_and_compressed() {
        let content: Vec<u8> = (0..24).collect();
        let labels = idx(&[2], &[3, 4]);
        let cases: [(&[u32], &[u8], &[u8]); 4] = [
            (&[2, 3, 4], b"P5\n4 3\n255\n", &content[12..]),
            (&[2, 3, 4, 1], b"P5\n4 3\n255\n", &content[12..]),
            (&[2, 2, 2, 3], b"P6\n2 2\n255\n", &content[12..]),
            (&[2, 3, 2, 2], b"P6\n2 2\n255\n", &[12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23]),
        ];
        for (sizes, header, pixels) in cases {
            let images = idx(sizes, &content);
            for source in [opened(&images, &labels, ""), opened(&gz(&images), &gz(&labels), ".gz")] {
                let source = source.unwrap();
                let mut sample = Sample::with_buffer(vec![9; 100]);
                source.read(1, &ReadRequest::IMAGE, &mut sample).unwrap();
                assert_eq!((sample.bytes(), &*sample.encoded()), (pixels, &[header, pixels].concat()[..]), "{sizes:?}");
                assert_eq!((source.len(), source.label(0), source.label(1)), (2, Some(3), Some(4)));
                assert!(source.encoded(2).unwrap_err().is_parameter());
            }
        }
    }

    #[test]
    fn files_that_lie_are_refused() {
        let labels = idx(&[2], &[3, 4]);
        let good = idx(&[2, 2, 2], &[0; 8]);
        for (images, says) in [
            (good[..20].to_vec(), "fewer bytes"),
            ([&good[..], &[0]].concat(), "more bytes"),
            (good[..9].to_vec(), "inside its header"),
            (idx(&[u32::MAX; 4], &[]), "impossible sizes"),
            (idx(&[u32::MAX, 2, 2], &[0; 8]), "fewer bytes"),
            (idx(&[0, 2, 2], &[]), "no images for training"),
            (idx(&[2, 2, 2, 2], &[0; 16]), "no images of 1 or 3"),
            (idx(&[2], &[0; 2]), "no images of 1 or 3"),
            (b"\x89PNG....".to_vec(), "no IDX file"),
            (vec![0, 0, 13, 3, 0, 0, 0, 0], "only unsigned bytes"),
        ] {
            for (images, labels, ending) in [(images.clone(), labels.clone(), ""), (gz(&images), gz(&labels), ".gz")] {
                let error = opened(&images, &labels, ending).unwrap_err().to_string();
                // A compressed file that claims 16 GiB is over the limit.
                assert!(error.contains(says) || error.contains("over the limit"), "{error}");
            }
        }
        let error = opened(&good, &idx(&[3], &[0; 3]), "").unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("3 labels and 2 images"), "{error}");
        assert!(opened(b"\x1f\x8b\x08rubbish", &labels, ".gz").is_err());
    }
}
