//! Sources of encoded samples: folders, lists, shards and files of arrays on disk, memory, streams.
//!
//! [`open`] recognizes the kind by the name. A [`Source`] has a length and is read in any order; a [`Stream`] is read
//! once, from front to back. A [`Pipeline`](crate::Pipeline) takes either.

// A data set and a stream have a trait each, because the pipeline treats them differently in order, states and
// policies. In one trait for both, some methods would have no meaning for one of them.
//
// Splits. A folder with `train` and `val` in it looks like a data set of two classes, so whoever opens such a folder
// must name a split. All splits use the classes of `train`: if validation lacks a class, the labels after it must not
// shift. ImageNet's archives of archives are a label option of tar (`folder`), not a format: the parser enters an
// archive when it finds one.
//
// Fingerprints. A source's fingerprint covers its length, its classes, the labels of 1,024 evenly spread samples, and
// the last part of their names. So it need not make 10 million names, and a folder may move. A change to other samples
// goes unnoticed.
//
// Raw pixels. Arrays in memory, IDX and CIFAR hand over pixels (`Sample::set_pixels`). Readers that need files, such as
// `pack` and audits, get PNM (`Sample::encoded`).
//
// Parquet is read with the crate `parquet`, without Arrow. Up to 32 column readers are kept, each at the place where
// it can continue. Reading in order decompresses each page once. A shuffled epoch decompresses a page for each row, so
// large sets should be packed first. Calls into the crate are guarded against panics. The crate takes the size of a
// page from its header, at most 2 GiB.

mod annotated;
#[cfg(any(feature = "parquet", feature = "zarr"))]
mod arrays;
mod cifar;
mod coco;
mod compose;
mod extent;
mod folder;
mod frame;
mod idx;
mod imagenet;
mod input;
mod list;
mod masks;
mod memory;
mod metadata;
mod names;
mod open;
pub(crate) mod packed;
#[cfg(feature = "parquet")]
mod parquet;
pub(crate) mod records;
mod sample;
mod sizes;
mod spec;
mod splits;
pub(crate) mod stream;
mod voc;
mod window;
mod yolo;
#[cfg(feature = "zarr")]
mod zarr;

pub use crate::address::without_secrets;
pub use crate::os::file::{read_limited, read_text_limited, read_up_to};
pub use cifar::CifarFiles;
pub use coco::{CocoFiles, PanopticFiles};
pub(crate) use compose::no_labels;
pub use compose::{
    AuxFolder, Bands, Concat, Described, MapLabels, SourceExt, Subset, WithFields, WithImages, WithTargets,
    split_shards,
};
pub use extent::Extent;
pub(crate) use extent::ListedFile;
pub use folder::ImageFolder;
pub use idx::IdxFile;
pub(crate) use input::Reader;
pub use input::{Input, SkippedFiles, SourceSummary};
pub use list::ListFile;
pub use masks::{MaskFolder, MaskIds, MaskOptions};
pub use memory::{DecodedImages, EncodedImages};
pub use open::{OpenOptions, SourceFormat, open, open_splits};
#[cfg(feature = "parquet")]
pub use parquet::ParquetFiles;
pub use records::{RecordFormat, RecordOptions, RecordShards};
pub use sample::{ReadRequest, Sample};
pub use sizes::ImageSizes;
#[cfg(feature = "cloud")]
pub use stream::ShardCache;
pub use stream::{
    AtEnd, RecordStream, Samples, Stream, StreamFields, StreamMix, StreamOptions, StreamSample, StreamStart,
};
pub use voc::VocFolder;
pub use yolo::YoloFolder;
#[cfg(feature = "zarr")]
pub use zarr::ZarrArray;

use crate::error::{Error, Result};
use crate::os::file::open_with_metadata;
use crate::raster::Size;
use crate::targets::{self, Target};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of the largest encoded image that is read, in bytes: 256 MiB.
pub const MAX_ENCODED_BYTES: u64 = 256 << 20;

/// A buffer that is larger than this, because of one giant file, is freed when a file below this size is read.
const KEEP_BUFFER_BYTES: usize = 16 << 20;

/// A data set: a number of encoded images (JPEG, PNG, WebP, PNM), with labels or without, that can be read in any order
/// and from several threads at once. Samples that can only be read one after the other are a [`Stream`].
///
/// Implement it to feed images from anywhere:
///
/// ```
/// use std::borrow::Cow;
/// use warpfeed::{Result, source::{Sample, Source, ReadRequest}};
///
/// /// One image under many labels.
/// struct Same(Vec<u8>);
///
/// impl Source for Same {
///     fn len(&self) -> u64 {
///         1000
///     }
///     fn read<'a>(&'a self, _index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
///         sample.lend(&self.0);
///         Ok(())
///     }
///     fn label(&self, index: u64) -> Option<u32> {
///         Some((index % 10) as u32)
///     }
///     fn name(&self, index: u64) -> Cow<'_, str> {
///         format!("the same, time {index}").into()
///     }
/// }
///
/// let source: Box<dyn Source> = Box::new(Same(vec![0xff, 0xd8]));
/// assert_eq!(source.encoded(999)?, [0xff, 0xd8]);
/// assert_eq!(source.label(999), Some(9));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub trait Source: Send + Sync {
    /// Number of samples.
    fn len(&self) -> u64;

    /// Whether the source has no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the parts of sample `index` that `want` names into `sample`: the image, encoded or as pixels, lent from
    /// the source's memory or read into the sample's buffer, the content of a target's field, and fields. The earlier
    /// content of `sample` does not matter. A source without fields may ignore `want`, unless reading waits for
    /// something: then it gives up soon after [`ReadRequest::is_stopped`] has become true.
    ///
    /// # Errors
    /// [`Error::Io`] if the sample cannot be read, [`Error::Limits`] if it is larger than the source's limit,
    /// [`Error::Target`] if the sample has no such field or the field is damaged, which makes the sample a bad one,
    /// [`Error::Parameter`] if there is no such sample, or if no sample of the source can have such a field.
    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()>;

    /// Returns a copy of the encoded bytes of sample `index`: a PNM file, if the source has pixels.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    fn encoded(&self, index: u64) -> Result<Vec<u8>> {
        let mut sample = Sample::default();
        self.read(index, &ReadRequest::IMAGE, &mut sample)?;
        Ok(sample.encoded().into_owned())
    }

    /// Returns the content of a field of sample `index`.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    fn target(&self, index: u64, field: &str) -> Result<Target> {
        let (mut sample, want) = (Sample::default(), ReadRequest::target(field));
        self.read(index, &want, &mut sample)?;
        sample.take_target(&want)?.ok_or_else(|| targets::missing(field))
    }

    /// Tells the source that sample `index` will probably be read soon, so that it can begin to fetch the sample if it
    /// has to. Returns at once.
    fn prefetch(&self, _index: u64) {}

    /// The place of the image of sample `index`, if a file holds its bytes as they are. Default: not known.
    #[doc(hidden)]
    fn extent(&self, _index: u64) -> Option<Extent> {
        None
    }

    /// The file that the image of sample `index` is read from, if the file holds nothing else. Default: not known.
    #[doc(hidden)]
    fn image_file(&self, _index: u64) -> Option<PathBuf> {
        None
    }

    /// A number that differs if the file or object that holds the image of sample `index` differs, and that the source
    /// knows without reading it. Default: not known.
    #[doc(hidden)]
    fn image_version(&self, _index: u64) -> Option<u64> {
        None
    }

    /// Largest number of bytes that the source holds of samples that [`prefetch`](Self::prefetch) has fetched and that
    /// have not been read. Default: 0.
    fn ahead_bytes(&self) -> u64 {
        0
    }

    /// The label of sample `index`; `None` if it has none. May panic if there is no such sample.
    fn label(&self, index: u64) -> Option<u32>;

    /// Whether the samples have labels: all that can be read, or none of them. A sample that differs is a bad one.
    /// Default: whether sample 0 has a label.
    fn has_labels(&self) -> bool {
        !self.is_empty() && self.label(0).is_some()
    }

    /// The path or key of sample `index`, for messages. May panic if there is no such sample.
    fn name(&self, index: u64) -> Cow<'_, str>;

    /// The number that the data set's own files give to the image of sample `index`, such as COCO's `image_id`; `None` if
    /// they give none. May panic if there is no such sample.
    fn image_id(&self, _index: u64) -> Option<i64> {
        None
    }

    /// The names of the labels, label 0 first; empty if labels have no names.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// The size of every image, if the source knows without reading one that all have the same, and that none has an
    /// EXIF orientation. A pipeline then needs no operation that gives images one size. An image of another size is a
    /// bad sample. Default: not known.
    fn image_size(&self) -> Option<Size> {
        None
    }

    /// Number of files among the samples that were skipped because their names are not names of images.
    fn skipped_files(&self) -> u64 {
        0
    }

    /// Number of skipped files by kind (`.txt`, or a reason), the most frequent kind first. Default: none.
    fn skipped_kinds(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Checks whether samples can have this field. Default: yes. Building a pipeline calls this, so that a field that
    /// no sample can have is reported before the first sample is read.
    ///
    /// # Errors
    /// [`Error::Parameter`] if no sample can have the field.
    fn check_field(&self, _field: &str) -> Result<()> {
        Ok(())
    }

    /// Oddities of the source that are not faults of a sample, such as a data set in which no image has labels: a
    /// sentence each, with a remedy. The command prints them. Default: none.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The names of the fields that each sample has, which an audit reads to find annotations that are wrong. Default:
    /// none.
    fn checked_fields(&self) -> Vec<String> {
        Vec::new()
    }

    /// A number that identifies this source when an epoch is resumed: the same in every process and version, and
    /// different if samples or their order differ. Called once for each pipeline.
    ///
    /// Default: 64 bits of SHA-256 over the number of samples, the classes, and the labels and names of up to 1,024
    /// samples spread evenly. Only the last part of a name counts, so that a folder may move.
    fn fingerprint(&self) -> u64 {
        fingerprint(self)
    }
}

/// Largest number of samples whose names and labels go into a fingerprint, so that not all names of a large source
/// have to be made.
const FINGERPRINT_SAMPLES: u64 = 1_024;

fn fingerprint(source: &(impl Source + ?Sized)) -> u64 {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    let len = source.len();
    add(&len.to_le_bytes());
    source.classes().iter().for_each(|class| add(class.as_bytes()));
    let looked_at = len.min(FINGERPRINT_SAMPLES);
    for i in 0..looked_at {
        // Includes the first and the last sample.
        let index = (u128::from(i) * u128::from(len - 1) / u128::from((looked_at - 1).max(1))) as u64;
        let name = source.name(index);
        add(name.rsplit(['/', '\\']).next().unwrap_or(&name).as_bytes());
        // 0 for no label, so that states from before labels could be missing stay valid.
        add(&source.label(index).unwrap_or(0).to_le_bytes());
    }
    hash.finalize().iter().take(8).fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// Methods of [`Source`] that are those of another source, which `$of` makes of `self`.
macro_rules! as_in {
    (|$self:ident| $of:expr; $($method:ident)*) => { $(as_in!(@$method $self, $of);)* };
    (@len $self:ident, $of:expr) => {
        fn len(&$self) -> u64 {
            $of.len()
        }
    };
    (@read $self:ident, $of:expr) => {
        fn read<'a>(&'a $self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
            $of.read(index, want, sample)
        }
    };
    (@prefetch $self:ident, $of:expr) => {
        fn prefetch(&$self, index: u64) {
            $of.prefetch(index);
        }
        fn extent(&$self, index: u64) -> Option<$crate::source::Extent> {
            $of.extent(index)
        }
        fn image_file(&$self, index: u64) -> Option<std::path::PathBuf> {
            $of.image_file(index)
        }
        fn image_version(&$self, index: u64) -> Option<u64> {
            $of.image_version(index)
        }
    };
    (@ahead_bytes $self:ident, $of:expr) => {
        fn ahead_bytes(&$self) -> u64 {
            $of.ahead_bytes()
        }
    };
    (@label $self:ident, $of:expr) => {
        fn label(&$self, index: u64) -> Option<u32> {
            $of.label(index)
        }
        fn has_labels(&$self) -> bool {
            $of.has_labels()
        }
    };
    (@name $self:ident, $of:expr) => {
        fn name(&$self, index: u64) -> Cow<'_, str> {
            $of.name(index)
        }
        fn image_id(&$self, index: u64) -> Option<i64> {
            $of.image_id(index)
        }
    };
    (@classes $self:ident, $of:expr) => {
        fn classes(&$self) -> &[String] {
            $of.classes()
        }
    };
    (@image_size $self:ident, $of:expr) => {
        fn image_size(&$self) -> Option<$crate::raster::Size> {
            $of.image_size()
        }
    };
    (@skipped $self:ident, $of:expr) => {
        fn skipped_files(&$self) -> u64 {
            $of.skipped_files()
        }
        fn skipped_kinds(&$self) -> Vec<(String, u64)> {
            $of.skipped_kinds()
        }
        fn warnings(&$self) -> Vec<String> {
            $of.warnings()
        }
    };
    (@check_field $self:ident, $of:expr) => {
        fn check_field(&$self, field: &str) -> Result<()> {
            $of.check_field(field)
        }
        fn checked_fields(&$self) -> Vec<String> {
            $of.checked_fields()
        }
    };
    (@fingerprint $self:ident, $of:expr) => {
        fn fingerprint(&$self) -> u64 {
            $of.fingerprint()
        }
    };
}
pub(crate) use as_in;

/// Declares a source whose clones share one `$shared`.
macro_rules! shared_source {
    ($(#[$meta:meta])* pub struct $name:ident($shared:ident)) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $name(std::sync::Arc<$shared>);

        impl Source for $name {
            as_in! {
                |self| self.0;
                len read prefetch ahead_bytes label name classes image_size skipped check_field fingerprint
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
pub(crate) use shared_source;

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<S: Source + ?Sized> Source for $pointer {
            as_in! {
                |self| (**self);
                len read prefetch ahead_bytes label name classes image_size skipped check_field fingerprint
            }
        }
    )*};
}

forward!(Box<S>, Arc<S>, &S);

/// Adds up the numbers of files of equal kinds and returns the kinds, the most frequent first.
fn most_frequent(kinds: impl IntoIterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut counts = BTreeMap::<String, u64>::new();
    kinds.into_iter().for_each(|(kind, files)| *counts.entry(kind).or_default() += files);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, files)| Reverse(*files));
    counts
}

/// The error for a field that no sample can have. `there_are` says which fields the source has.
fn no_fields(there_are: impl std::fmt::Display, field: &str) -> Error {
    Error::parameter("targets", "field", format!("one that the source has, which has {there_are}"), field)
}

/// The error for an index beyond the last sample.
fn no_such_sample(operation: &'static str, index: u64, len: u64) -> Error {
    Error::parameter(operation, "index", format!("below {len}, the number of samples"), index)
}

/// Reads an image's file. A large TIFF stays where it is if the request takes parts.
fn read_image(path: &Path, want: &ReadRequest<'_>, sample: &mut Sample<'_>) -> Result<()> {
    #[cfg(feature = "tiff")]
    if want.parts && is_tiff(path) {
        let (file, metadata) = open_with_metadata(path)?;
        if metadata.len() >= PARTS_BYTES {
            sample.set_stored(Arc::new(crate::decode::TiffFile::open(file)?));
            return Ok(());
        }
    }
    let _ = want;
    read_file(path, sample.buffer()).map(drop)
}

/// TIFFs from this length on are read in parts. Shorter ones are read faster at once.
#[cfg(feature = "tiff")]
const PARTS_BYTES: u64 = 4 << 20;

#[cfg(feature = "tiff")]
fn is_tiff(path: &Path) -> bool {
    path.extension().and_then(|ending| crate::decode::Format::by_extension(ending.as_encoded_bytes()))
        == Some(crate::decode::Format::Tiff)
}

/// Reads a whole file of at most [`MAX_ENCODED_BYTES`] into `buffer`, replacing what it holds.
fn read_file<'a>(path: &Path, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    read_file_within(path, buffer, MAX_ENCODED_BYTES)
}

fn read_file_within<'a>(path: &Path, buffer: &'a mut Vec<u8>, limit: u64) -> Result<&'a [u8]> {
    let too_large = |got| Error::Limits {
        what: "an encoded image, in bytes,",
        got,
        limit,
        remedy: "files of this size are not images for training; shrink it or leave it out",
    };
    let failed = |error: io::Error| Error::io("read", path)(error);
    let (mut file, metadata) = open_with_metadata(path)?;
    let expected = metadata.len();
    if expected > limit {
        return Err(too_large(expected));
    }
    if buffer.capacity() > KEEP_BUFFER_BYTES && expected < KEEP_BUFFER_BYTES as u64 {
        *buffer = Vec::new();
    }
    // One byte more than expected, so that reading finds the end of the file without growing the buffer. The buffer
    // need not be cleared: the rest of an earlier file is overwritten or cut off.
    let wanted = expected as usize + 1;
    if buffer.len() < wanted {
        crate::os::memory::reserve(buffer, wanted, "an encoded image", crate::os::memory::FEWER_IMAGES)?;
        buffer.resize(wanted, 0);
    }
    let mut filled = 0;
    loop {
        if filled as u64 > limit {
            return Err(too_large(filled as u64));
        }
        if filled == buffer.len() {
            // The file has grown since its size was read.
            let len = filled + (filled / 2).max(64 << 10);
            crate::os::memory::lengthen(buffer, len, "an encoded image", crate::os::memory::FEWER_IMAGES)?;
        }
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

/// Returns the path with these bytes, which came from the operating system.
fn path_from_bytes(bytes: &[u8]) -> Cow<'_, Path> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        Cow::Borrowed(Path::new(std::ffi::OsStr::from_bytes(bytes)))
    }
    #[cfg(not(unix))]
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => Cow::Borrowed(Path::new(text)),
        Cow::Owned(text) => Cow::Owned(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_buffer_serves_many_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut buffer = b"left over from before".to_vec();
        for len in [5, 0, 100_000, 70_000, 1, 100_001] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read_file(&path, &mut buffer).unwrap(), bytes);
        }
        buffer.reserve(KEEP_BUFFER_BYTES * 2);
        read_file(&path, &mut buffer).unwrap();
        assert!(buffer.capacity() < 1 << 20, "a giant file's memory is given back");
    }

    #[test]
    fn too_large_files_are_refused_before_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge.jpg");
        // A sparse file, which takes no space on the disk.
        File::create(&path).unwrap().set_len(MAX_ENCODED_BYTES + 1).unwrap();
        let mut buffer = Vec::new();
        let error = read_file(&path, &mut buffer).unwrap_err();
        assert!(matches!(error, Error::Limits { got: 268_435_457, limit: 268_435_456, .. }), "{error}");
        assert!(error.is_bad_sample());
        assert_eq!(buffer.capacity(), 0);
        std::fs::write(&path, [1; 100]).unwrap();
        assert!(read_file_within(&path, &mut buffer, 99).is_err());
        assert_eq!(read_file_within(&path, &mut buffer, 100).unwrap(), [1; 100]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_may_hold_more_than_its_size_says() {
        // Files of /proc have size 0 but contents, like a file that grows while it is read.
        let path = Path::new("/proc/self/status");
        let mut buffer = Vec::new();
        assert!(read_file(path, &mut buffer).unwrap().starts_with(b"Name:"));
        let error = read_file_within(path, &mut buffer, 10).unwrap_err();
        assert!(matches!(error, Error::Limits { .. }), "{error}");
    }

    #[test]
    fn missing_files_and_folders_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.jpg");
        let error = read_file(&missing, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("missing.jpg") && error.is_bad_sample(), "{error}");
        let error = read_file(folder.path(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
        assert!(matches!(open(&missing).err(), Some(Error::Io { action: "open", .. })));
    }

    #[test]
    fn pointers_to_sources_are_sources() {
        type All = (u64, bool, Vec<u8>, Option<u32>, String, Vec<String>, u64, u64);
        fn all(source: impl Source) -> All {
            let bytes = source.encoded(0).unwrap();
            let name = source.name(0).into_owned();
            (
                source.len(),
                source.is_empty(),
                bytes,
                source.label(0),
                name,
                source.classes().to_vec(),
                source.skipped_files(),
                source.fingerprint(),
            )
        }
        let source = EncodedImages::new(vec![(vec![1, 2], 7)]).with_classes(["a", "b"]);
        let want = all(&source);
        assert_eq!(want.2, [1, 2]);
        let shared: Arc<dyn Source> = Arc::new(source);
        assert_eq!(all(Arc::clone(&shared)), want);
        assert_eq!(all(Box::new(shared) as Box<dyn Source>), want);
    }

    #[test]
    fn fingerprints_tell_sources_apart_wherever_they_lie() {
        let fingerprint = |names: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            for name in names {
                std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
                std::fs::write(folder.path().join(name), "").unwrap();
            }
            ImageFolder::open(folder.path()).unwrap().fingerprint()
        };
        let one = fingerprint(&["cat/1.jpg", "cat/2.jpg", "dog/1.jpg"]);
        assert_eq!(fingerprint(&["cat/1.jpg", "cat/2.jpg", "dog/1.jpg"]), one);
        for other in [
            &["cat/1.jpg", "cat/2.jpg"][..],
            &["cat/1.jpg", "cat/3.jpg", "dog/1.jpg"],
            &["cat/1.jpg", "dog/2.jpg", "dog/1.jpg"],
            &["cat/1.jpg", "cat/2.jpg", "elk/1.jpg"],
        ] {
            assert_ne!(fingerprint(other), one, "{other:?}");
        }
        let many = |len: u32| EncodedImages::new((0..len).map(|label| (Vec::new(), label))).fingerprint();
        assert!(many(5000) != many(5001) && many(5000) == many(5000));
        assert_eq!(many(0), EncodedImages::default().fingerprint());
        // Never change this value: saved states hold fingerprints and have to stay valid.
        assert_eq!(many(3), GOLDEN_FINGERPRINT);
    }

    const GOLDEN_FINGERPRINT: u64 = 0xa191_43b5_544f_377f;

    #[test]
    fn open_tells_folders_from_lists() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cat")).unwrap();
        std::fs::write(folder.path().join("cat/1.jpg"), "one").unwrap();
        std::fs::write(folder.path().join("list.tsv"), "cat/1.jpg\t9\n").unwrap();
        assert_eq!(open(folder.path()).unwrap().into_data_set().unwrap().label(0), Some(0));
        let list = open(folder.path().join("list.tsv")).unwrap().into_data_set().unwrap();
        assert_eq!((list.label(0), list.encoded(0).unwrap()), (Some(9), b"one".to_vec()));
    }

    #[test]
    fn options_that_a_source_ignores_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cat")).unwrap();
        std::fs::write(folder.path().join("cat/1.jpg"), "one").unwrap();
        std::fs::write(folder.path().join("list.tsv"), "cat/1.jpg\t9\n").unwrap();
        std::fs::write(folder.path().join("coco.json"), r#"{"images": [], "annotations": [], "categories": []}"#)
            .unwrap();
        let (text, usual) = (|text: &str| Some(text.to_owned()), RecordOptions::default);
        let of = |records: RecordOptions| OpenOptions { records, ..OpenOptions::default() };
        let given = [
            ("image", of(RecordOptions { image: text("jpg"), ..usual() })),
            ("label", of(RecordOptions { label: text("cls"), ..usual() })),
            ("classes", of(RecordOptions { classes: vec!["cat".to_owned()], ..usual() })),
            ("boxes", of(RecordOptions { boxes: Some(crate::fields::BoxFormat::Xyxy), ..usual() })),
            ("split", OpenOptions { split: text("train"), ..OpenOptions::default() }),
            ("window", OpenOptions { window: Some(2), ..OpenOptions::default() }),
        ];
        for (option, options) in given {
            for (spec, format) in [("", None), ("list.tsv", None), ("", Some(SourceFormat::Coco))] {
                let annotations = format.map(|_| folder.path().join("coco.json"));
                let options = OpenOptions { format, annotations, ..options.clone() };
                let error = options.open(folder.path().join(spec)).err().unwrap();
                let says = error.to_string();
                // A stream of a list is refused by its format.
                assert!(
                    error.is_parameter() && (says.contains(option) || option == "window"),
                    "{option} {spec}: {says}"
                );
            }
        }
    }

    #[test]
    fn a_split_has_the_classes_of_its_data_set() {
        let root = tempfile::tempdir().unwrap();
        for name in ["train/cat/1.jpg", "train/dog/1.jpg", "val/dog/2.jpg"] {
            std::fs::create_dir_all(root.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(root.path().join(name), name).unwrap();
        }
        let open_split =
            |split: &str| OpenOptions { split: Some(split.to_owned()), ..OpenOptions::default() }.open(root.path());
        let val = open_split("val").unwrap().into_data_set().unwrap();
        assert_eq!((val.len(), val.label(0), val.classes()), (1, Some(1), &["cat".to_owned(), "dog".to_owned()][..]));
        assert_eq!(open_split("train").unwrap().into_data_set().unwrap().len(), 2);
        // By its own path it is the same; as a folder of classes it has its own.
        let own = |format| {
            let options = OpenOptions { format, ..OpenOptions::default() };
            options.open(root.path().join("val")).unwrap().into_data_set().unwrap().label(0)
        };
        assert_eq!((own(None), own(Some(SourceFormat::Folder))), (Some(1), Some(0)));
        assert!(open(root.path()).err().unwrap().to_string().contains("one of train, val"));
        let folders = OpenOptions { format: Some(SourceFormat::Folder), ..OpenOptions::default() };
        assert_eq!(folders.open(root.path()).unwrap().classes(), ["train", "val"]);
        // A class that the training split does not have.
        std::fs::create_dir(root.path().join("val/elk")).unwrap();
        assert!(open_split("val").err().unwrap().to_string().contains("elk"));
        let other = OpenOptions { split: Some("val".to_owned()), ..OpenOptions::default() };
        assert!(other.open(root.path().join("train/cat")).err().unwrap().is_parameter());
    }
}
