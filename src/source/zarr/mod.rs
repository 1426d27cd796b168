//! Zarr arrays, versions 2 and 3, as data sets.
//!
//! This is a reader of our own: the crate zarrs needs Rust 1.91 and brings 118 to 133 packages, some in C. What is read
//! here are arrays of images and labels in local folders, and the codecs that zarr-python writes by default or by name:
//! null, zlib, gzip, zstd, lz4, blosc, delta, bytes, transpose, crc32c, sharding_indexed. The reference is zarr-python
//! 3.1.6 with numcodecs 0.16.

mod blosc;
mod cache;
mod chunks;
mod codecs;
mod data_type;
mod image;
mod labels;
mod metadata;
mod shards;
#[cfg(test)]
mod tests;

use super::arrays::{self, Axes};
use super::{MAX_ENCODED_BYTES, ReadRequest, Sample, Source, no_such_sample};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use chunks::{CACHE_BYTES, Chunks};
use image::{Images, ZarrImage};
use metadata::Metadata;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warpfeed_image::decode::{StoredImage, all_bands};
use warpfeed_image::planes::Planes;

/// Images in a Zarr array, version 2 or 3, in a local folder. Needs the feature `zarr`.
///
/// A pipeline of other [pixels](crate::Pixels) than RGB reads only the chunks that a crop needs. Others get each sample
/// as RGB or gray pixels of 8 bits, or as a NumPy file. The last decoded chunks, up to 64 MiB, are kept for samples
/// that share them.
///
/// ```
/// use warpfeed::source::{Source, ZarrArray};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("x.zarr");
/// # std::fs::create_dir(&path).unwrap();
/// // Two images of 2 x 3 pixels in one chunk.
/// let metadata = r#"{"zarr_format": 2, "shape": [2, 2, 3], "chunks": [2, 2, 3], "dtype": "|u1",
///     "compressor": null, "fill_value": 0, "order": "C", "filters": null}"#;
/// std::fs::write(path.join(".zarray"), metadata).unwrap();
/// std::fs::write(path.join("0.0.0"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
/// let source = ZarrArray::open(&path, "nhw")?;
/// assert_eq!(source.len(), 2);
/// assert!(source.encoded(1)?.ends_with(&[7, 8, 9, 10, 11, 12]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ZarrArray {
    path: PathBuf,
    images: Arc<Images>,
    labels: Option<Arc<[u32]>>,
}

impl ZarrArray {
    /// Opens the array in the folder `path`. `axes` has a letter for each of its dimensions: `n` samples, `c` channels,
    /// `h` rows, `w` columns, such as `nhwc`. An array without `n` is one sample.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no array, or the axes do not fit its shape, [`Error::Io`] and [`Error::Decode`]
    /// if its metadata cannot be read or are damaged, [`Error::Unsupported`] with the name of a data type, codec or
    /// extension that is not read, [`Error::Limits`] if a chunk has more than 512 MiB.
    pub fn open(path: impl AsRef<Path>, axes: &str) -> Result<Self> {
        let path = path.as_ref();
        let metadata = Metadata::read(path)?;
        let axes = read_axes(axes, &metadata.shape, path)?;
        let images = Images::new(Chunks::new(path, metadata), axes, path)?;
        Ok(Self { path: path.to_owned(), images: Arc::new(images), labels: None })
    }

    /// Takes the labels from another array: whole numbers from 0 to 4,294,967,295, one for each sample. They are read
    /// at once.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open) for that array; [`Error::Parameter`] if it has other numbers, or more or
    /// fewer than there are samples; [`Error::Decode`] if a chunk is damaged.
    pub fn with_labels(self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let labels = labels::read(&Chunks::new(path, Metadata::read(path)?), self.images.len(), path)?;
        Ok(Self { labels: Some(labels.into()), ..self })
    }

    /// Makes the whole sample pixels if it is gray or RGB of 8 bits, else a NumPy file: rows, columns, channels.
    fn write(image: &ZarrImage, sample: &mut Sample<'_>) -> Result<()> {
        let header = image.header();
        let len_bytes = header.kind.len_bytes(header.size.area_px());
        if len_bytes > MAX_ENCODED_BYTES {
            return Err(Error::Limits {
                what: "a whole sample of a Zarr array in bytes",
                got: len_bytes,
                limit: MAX_ENCODED_BYTES,
                remedy: "let a pipeline read parts of it, with pixels other than rgb",
            });
        }
        let mut planes = Planes::default();
        image.decode(Rect::full(header.size), all_bands(header.kind), &mut planes)?;
        arrays::write(&planes, sample)
    }
}

/// Reads a letter for each dimension of an array of this shape.
fn read_axes(text: &str, shape: &[u64], path: &Path) -> Result<Axes> {
    let example = match shape.len() {
        2 => "hw",
        3 => "nhw",
        4 => "nhwc",
        dimensions => {
            return Err(Error::Unsupported {
                feature: format!("a Zarr array of {dimensions} dimensions, {shape:?}, in {}", path.display()),
                remedy: "write it with 2 to 4 dimensions: samples, channels, rows and columns".to_owned(),
            });
        }
    };
    Axes::read(text, "nchw", example, &format!("the array of shape {shape:?} in {}", path.display()))
}

impl Source for ZarrArray {
    fn len(&self) -> u64 {
        self.images.len()
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("ZarrArray::read", index, self.len()));
        }
        let image = ZarrImage::new(&self.images, index);
        if !want.image {
            return Ok(());
        }
        if want.parts {
            sample.set_stored(Arc::new(image));
            return Ok(());
        }
        Self::write(&image, sample)
    }

    fn label(&self, index: u64) -> Option<u32> {
        self.labels.as_ref().map(|labels| labels[index as usize])
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("{} sample {index}", self.path.display()).into()
    }

    fn image_size(&self) -> Option<Size> {
        Some(self.images.header.size)
    }

    fn warnings(&self) -> Vec<String> {
        let chunks = &self.images.chunks;
        if chunks.are_kept() || self.len() == 1 {
            return Vec::new();
        }
        vec![format!(
            "{}: chunks of {} bytes are more than the {CACHE_BYTES} that are kept, so samples that share one decode it again; \
             write the array with smaller chunks",
            self.path.display(),
            chunks.metadata.chunk_bytes
        )]
    }
}
