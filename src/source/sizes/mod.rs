//! The sizes of all images of a data set, from their headers.

mod kept;
mod reader;

use super::Source;
use crate::error::{Error, Result};
use crate::ops::orientation::Orientation;
use crate::os::memory;
use crate::os::threads::{MAX_THREADS, spawn_scoped};
use crate::raster::Size;
use kept::Kept;
use reader::Reader;
use std::collections::BTreeMap;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Number of samples that a thread takes at once.
const CHUNK: usize = 64;

/// Largest number of bad images whose messages are kept: those that come first.
const MAX_MESSAGES: usize = 1_000;

/// The size of an image whose header cannot be read.
const UNKNOWN: Size = Size::new(0, 0);

const FEWER_SAMPLES: &str = "use fewer samples, or allow more memory (ulimit -v, or the container's limit)";

/// The sizes of all images of a data set. Each takes 8 bytes of memory.
///
/// Only headers are read: the first 16 KiB of a file or record, and more where a header goes on. Sizes are those of
/// images that are turned upright, unless the orientation is ignored.
///
/// ```
/// use warpfeed::Orientation;
/// use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
/// use warpfeed::source::{EncodedImages, ImageSizes};
///
/// let turned = JpegOptions { orientation: Some(6), ..JpegOptions::default() };
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &turned)?;
/// let source = EncodedImages::new([(jpeg, 0), (b"no image".to_vec(), 1)]);
///
/// let sizes = ImageSizes::scan(&source, Orientation::Apply, 1)?;
/// assert_eq!((sizes.get(0), sizes.get(1)), (Some(Size::new(30, 40)), None));
/// assert_eq!((sizes.bad().len(), sizes.bad()[0].0), (1, 1));
/// assert_eq!(ImageSizes::scan(&source, Orientation::Ignore, 1)?.get(0), Some(Size::new(40, 30)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSizes {
    /// [`UNKNOWN`] for an image whose header cannot be read.
    sizes: Vec<Size>,
    bad: Vec<(u64, String)>,
    bad_count: u64,
    read_count: u64,
}

impl ImageSizes {
    /// Reads the header of every image of a data set.
    ///
    /// `orientation` is the pipeline's ([`PipelineBuilder::orientation`](crate::PipelineBuilder::orientation)): whether
    /// images are turned upright. `threads` is the number of threads, 0 for as many as there are processors. A source
    /// that knows that all images have one size ([`Source::image_size`]) is not read. A source that names neither files
    /// nor places in files reads its images whole.
    ///
    /// Images that a pipeline would find bad before decoding, such as files that are missing, empty or no images, have
    /// no size; [`bad`](Self::bad) lists them. Damage after the header is not noticed, nor is an image with too many
    /// pixels for a pipeline.
    ///
    /// # Errors
    /// [`Error::Parameter`] for too many threads; [`Error::Sample`] for a sample that cannot be read although it may be
    /// fine: no permission, a device's read failure, a server that does not answer, too many open files;
    /// [`Error::Panic`] if the source panics; [`Error::OutOfMemory`], [`Error::Thread`].
    pub fn scan(source: &dyn Source, orientation: Orientation, threads: usize) -> Result<Self> {
        catch(|| Self::scan_with(source, orientation, threads, None))
    }

    /// Like [`scan`](Self::scan), and keeps the sizes in a file. The next scan takes from it the sizes of files and
    /// shards that have not changed, and reads the others.
    ///
    /// A file counts as unchanged if it has the same path, length, inode and times of modification and change. Where
    /// samples lie in files of their own, each file's metadata is read, without opening the file. Of shards only those
    /// metadata are compared that opening the source has read. Images without a size, and images of sources in memory
    /// or of a program's own sources, are read each time.
    ///
    /// The file takes 16 bytes a sample. It is replaced as a whole when anything has changed, also if it is damaged or
    /// of another orientation. A file with other content is never replaced.
    ///
    /// ```
    /// use warpfeed::Orientation;
    /// use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
    /// use warpfeed::source::{ImageFolder, ImageSizes};
    ///
    /// let root = tempfile::tempdir()?;
    /// std::fs::write(root.path().join("1.jpg"), encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?)?;
    /// let (source, file) = (ImageFolder::open(root.path())?, root.path().join("sizes"));
    /// let first = ImageSizes::scan_kept(&source, Orientation::Apply, 1, &file)?;
    /// let again = ImageSizes::scan_kept(&source, Orientation::Apply, 1, &file)?;
    /// assert_eq!((first.read_count(), again.read_count()), (1, 0));
    /// assert_eq!(again.get(0), Some(Size::new(40, 30)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`scan`](Self::scan); [`Error::Io`] if the file cannot be read or written; [`Error::Parameter`] if
    /// it has other content.
    pub fn scan_kept(source: &dyn Source, orientation: Orientation, threads: usize, file: &Path) -> Result<Self> {
        catch(|| Self::scan_with(source, orientation, threads, Some(file)))
    }

    /// Makes the sizes of a data set whose sizes are known, sample 0 first. An empty size stands for an image that
    /// cannot be read.
    #[must_use]
    pub fn from_sizes(sizes: Vec<Size>) -> Self {
        let unknown = || sizes.iter().enumerate().filter(|(_, size)| size.is_empty());
        let message = |(index, size): (usize, &Size)| (index as u64, format!("its size is given as {size}"));
        let bad = unknown().take(MAX_MESSAGES).map(message).collect();
        Self { bad, bad_count: unknown().count() as u64, read_count: 0, sizes }
    }

    fn scan_with(source: &dyn Source, orientation: Orientation, threads: usize, file: Option<&Path>) -> Result<Self> {
        if threads > MAX_THREADS {
            return Err(Error::parameter("ImageSizes::scan", "threads", format!("0 to {MAX_THREADS}"), threads));
        }
        let len = usize::try_from(source.len()).unwrap_or(usize::MAX);
        let mut sizes = reserved(len)?;
        sizes.resize(len, source.image_size().unwrap_or(UNKNOWN));
        if sizes.first().is_some_and(|size| !size.is_empty()) {
            return Ok(Self::from_sizes(sizes));
        }
        let kept = file.map(|file| Kept::load(file, orientation)).transpose()?;
        let versions_len = if file.is_some() { len } else { 0 };
        let mut versions = reserved(versions_len)?;
        versions.resize(versions_len, 0);
        let scan = Scan {
            source,
            orientation,
            kept: kept.as_ref(),
            found: Mutex::default(),
            failed: Mutex::default(),
            stopped: AtomicBool::new(false),
        };
        scan.run(threads, &mut sizes, &mut versions)?;
        let Found { bad, bad_count, read_count } = scan.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((file, kept)) = file.zip(kept.as_ref())
            && !kept.is(&versions, &sizes)
        {
            kept::store(file, orientation, &versions, &sizes)?;
        }
        Ok(Self { sizes, bad: bad.into_iter().collect(), bad_count, read_count })
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// Whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The size of the image of sample `index`, in pixels; `None` if its header cannot be read, or if there is no such
    /// sample.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<Size> {
        self.sizes.get(usize::try_from(index).ok()?).copied().filter(|size| !size.is_empty())
    }

    /// The sizes of all images, sample 0 first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<Size>> {
        self.sizes.iter().map(|size| Some(*size).filter(|size| !size.is_empty()))
    }

    /// The images without a size: their indices, ascending, each with the reason. Of more than 1,000 these are the
    /// first 1,000 ([`bad_count`](Self::bad_count)).
    #[must_use]
    pub fn bad(&self) -> &[(u64, String)] {
        &self.bad
    }

    /// Number of images without a size.
    #[must_use]
    pub fn bad_count(&self) -> u64 {
        self.bad_count
    }

    /// Number of images that were read by the scan, not taken from a file.
    #[must_use]
    pub fn read_count(&self) -> u64 {
        self.read_count
    }
}

/// The parts of a scan's result besides sizes.
#[derive(Default)]
struct Found {
    bad: BTreeMap<u64, String>,
    bad_count: u64,
    read_count: u64,
}

/// A scan, which several threads share.
struct Scan<'a> {
    source: &'a dyn Source,
    orientation: Orientation,
    kept: Option<&'a Kept>,
    found: Mutex<Found>,
    failed: Mutex<Option<Error>>,
    stopped: AtomicBool,
}

impl Scan<'_> {
    fn run(&self, threads: usize, sizes: &mut [Size], versions: &mut [u64]) -> Result<()> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS),
            threads => threads,
        };
        let threads = threads.min(sizes.len().div_ceil(CHUNK));
        // Without a file there are no versions.
        let versions = versions.chunks_mut(CHUNK).chain(iter::repeat_with(Default::default));
        let chunks = Mutex::new(sizes.chunks_mut(CHUNK).zip(versions).enumerate());
        let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            let mut reader = Reader::new(self.source, self.orientation);
            while let Some((chunk, (sizes, versions))) = next() {
                let mut found = Found::default();
                for (place, size) in sizes.iter_mut().enumerate() {
                    if self.stopped.load(Relaxed) {
                        return;
                    }
                    let index = (chunk * CHUNK + place) as u64;
                    // The source may be the caller's own code, which can panic.
                    let read = catch(|| self.one(&mut reader, index, versions.get_mut(place), &mut found));
                    match read {
                        Ok(read) => *size = read,
                        Err(error) => return self.fail(index, error),
                    }
                }
                self.add(found);
            }
        };
        std::thread::scope(|scope| {
            (1..threads).try_for_each(|i| spawn_scoped(scope, format!("warpfeed-sizes-{i}"), work).map(drop))?;
            work();
            Ok::<(), Error>(())
        })
        .inspect_err(|_| self.stopped.store(true, Relaxed))?;
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The size of a sample's image; an empty one if its header cannot be read.
    fn one<'a>(
        &'a self,
        reader: &mut Reader<'a>,
        index: u64,
        version: Option<&mut u64>,
        found: &mut Found,
    ) -> Result<Size> {
        if let (Some(version), Some(kept)) = (version, self.kept) {
            // The version from before the read: if the file changes meanwhile, the next scan reads it again.
            *version = reader.version(index);
            if let Some(size) = kept.find(index, *version) {
                return Ok(size);
            }
        }
        found.read_count += 1;
        match reader.size(index) {
            Ok(size) => Ok(size),
            Err(error) if is_bad_image(&error) => {
                found.bad_count += 1;
                found.bad.insert(index, error.to_string());
                Ok(UNKNOWN)
            }
            Err(error) => Err(error),
        }
    }

    fn add(&self, new: Found) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.bad_count += new.bad_count;
        found.read_count += new.read_count;
        found.bad.extend(new.bad);
        while found.bad.len() > MAX_MESSAGES {
            found.bad.pop_last();
        }
    }

    /// Ends the scan with an error on a sample.
    fn fail(&self, index: u64, error: Error) {
        self.stopped.store(true, Relaxed);
        let name = catch_unwind(AssertUnwindSafe(|| self.source.name(index).into_owned()));
        let name = name.unwrap_or_else(|_| "its name cannot be had".to_owned());
        let error = Error::Sample { index, name, source: Box::new(error) };
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Whether the image is at fault, and not the machine: permissions and devices are not the image's fault.
fn is_bad_image(error: &Error) -> bool {
    let is_denied = matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied);
    error.is_bad_sample() && !error.is_io_failure() && !is_denied
}

/// Calls code that may call a caller's source, and makes its panic an error.
fn catch<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error::panic(&*panic)))
}

fn reserved<T>(len: usize) -> Result<Vec<T>> {
    let mut empty = Vec::new();
    memory::reserve(&mut empty, len, "the sizes of images", FEWER_SAMPLES)?;
    Ok(empty)
}

#[cfg(test)]
mod tests;
