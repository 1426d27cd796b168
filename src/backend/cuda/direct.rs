//! Images that are read from files to device memory, past the host (GPUDirect Storage).
//!
//! When the device has decoded an image of a shard, its header is kept. In later epochs the image is not read by the
//! thread that prepares the sample. The thread that completes the batch reads all such images of the batch: those that
//! lie close together in a shard are one run, aligned outwards to 4 KiB. A run of at least 1 MiB is read by itself,
//! shorter ones together, up to 128 at a time. Runs arrive in a registered buffer, and images are copied from there to
//! the batch's memory, where the decoder expects them at multiples of 16 bytes.
//!
//! The host identifies an image by a hash of its bytes, which it does not see here. So the file's length, times and
//! inode must be those that it had when it was listed, before a recipe is drawn and after the reads. Otherwise, and if
//! a read fails, the host reads the image as it does without this module.
#![allow(unsafe_code)]

use super::lock;
use super::streams::Streams;
use crate::backend::HeldImage;
use crate::cuda::cufile::{ALIGN_BYTES, CuFile, Read, ReadBuffer, RegisteredFile};
use crate::cuda::driver::{self, Context, Event};
use crate::decode::{DeviceBytes, Header, ImageKey};
use crate::error::{Error, Result};
use crate::ops::descriptors::DevicePointer;
use crate::os::file::{Keeper, Share, most_open, open};
use crate::os::notice;
use crate::source::{Extent, ListedFile, ReadRequest, Reader, Source};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::{io, mem};

/// Size of a buffer that runs arrive in.
pub(super) const BUFFER_BYTES: usize = 16 << 20;
/// Largest number of bytes of an image that is read so.
const MOST_BYTES: usize = 8 << 20;
/// Length from which on a run is read by itself.
const LONG_BYTES: usize = 1 << 20;
/// Largest number of bytes between two images of a run.
const GAP_BYTES: u64 = 128 << 10;
/// Largest number of bytes of all headers that are kept.
pub(crate) const KNOWN_BYTES: u64 = 512 << 20;
/// Largest number of bytes before the data of an image's scan.
const HEAD_BYTES: usize = 64 << 10;
/// Number of batches in a row whose reads have all failed, after which no more is tried.
const FAILED_BATCHES: u32 = 3;

/// Reads images of one pipeline.
pub(super) struct Direct {
    cufile: CuFile,
    context: Context,
    files: Arc<Files>,
    _share: Share,
    known: Mutex<Known>,
    buffers: Mutex<Vec<Buffer>>,
    failed_batches: AtomicU32,
    is_off: AtomicBool,
}

/// Headers by the indexes of their samples.
#[derive(Default)]
struct Known {
    images: HashMap<u64, Arc<KnownImage>>,
    len_bytes: u64,
}

/// An image whose header is known.
pub(crate) struct KnownImage {
    pub(crate) header: Header,
    /// The file up to the data of its scan.
    pub(super) head: Box<[u8]>,
    pub(super) len_bytes: usize,
    /// The key of its entry points.
    pub(super) key: Option<ImageKey>,
}

/// An image that is to be read.
pub(crate) struct ImageInFile {
    pub(crate) known: Arc<KnownImage>,
    file: Arc<OpenFile>,
    /// Offset of the image in the file.
    offset: u64,
    source: Arc<dyn Source>,
    index: u64,
}

impl ImageInFile {
    /// The image as the host reads it.
    ///
    /// # Errors
    /// The errors of its source, and [`Error::Io`] if it is another image now.
    pub(super) fn to_host(&self) -> Result<HeldImage> {
        let (KnownImage { head, len_bytes, .. }, reader) = (&*self.known, Reader::DataSet(Arc::clone(&self.source)));
        let (held, _) = HeldImage::read(&reader, self.index, &ReadRequest::IMAGE, Vec::new())?;
        if held.bytes().len() == *len_bytes && held.bytes().starts_with(head) {
            return Ok(held);
        }
        let changed = io::Error::other("the file was changed or replaced while an epoch was running");
        Err(Error::Io { action: "read", path: self.file.listed.path().to_owned(), source: changed.into() })
    }

    /// Knowledge of the file's bytes for its decoder.
    pub(super) fn bytes(&self) -> DeviceBytes<'static> {
        DeviceBytes::OnDevice { len_bytes: self.known.len_bytes, key: self.known.key }
    }

    /// Number of bytes of the image.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.known.len_bytes as u64
    }

    /// Number of bytes of the data of its scan.
    pub(super) fn data_bytes(&self) -> usize {
        self.known.len_bytes - self.known.head.len()
    }
}

/// A file that cuFile reads.
struct OpenFile {
    registered: RegisteredFile,
    listed: Arc<ListedFile>,
}

impl OpenFile {
    fn is_unchanged(&self) -> bool {
        self.registered.file.metadata().is_ok_and(|metadata| self.listed.is(&metadata))
    }
}

/// Files that stay open. The least recently used file is closed first.
#[derive(Default)]
struct Files(Mutex<AllFiles>);

#[derive(Default)]
struct AllFiles {
    most: usize,
    /// By the addresses of their listings.
    files: HashMap<usize, Found>,
    uses: u64,
}

enum Found {
    Open(Arc<OpenFile>, u64),
    /// It cannot be read so.
    Refused(#[expect(dead_code, reason = "keeps the address")] Arc<ListedFile>),
}

impl AllFiles {
    /// Takes out the files that were not used for longest. Closing them waits for the driver, and so comes later.
    fn close_oldest(&mut self) -> Vec<Found> {
        let mut used: Vec<_> = self.files.iter().filter_map(|(&at, found)| Some((found.used()?, at))).collect();
        used.sort_unstable();
        let many = used.len().saturating_sub(self.most);
        used[..many].iter().filter_map(|(_, at)| self.files.remove(at)).collect()
    }
}

impl Found {
    fn used(&self) -> Option<u64> {
        if let Self::Open(_, used) = self { Some(*used) } else { None }
    }
}

impl Keeper for Files {
    fn keep_at_most(&self, most: usize) {
        let mut all = lock(&self.0);
        all.most = most.max(1);
        let closed = all.close_oldest();
        drop(all);
        drop(closed);
    }
}

/// A buffer, and the event after the copies from it.
struct Buffer {
    memory: ReadBuffer,
    copied: Event,
}

/// An image that is wanted: the data of its scan, at an address of the device.
pub(super) struct Wanted<'a> {
    pub(super) image: &'a ImageInFile,
    pub(super) to: DevicePointer,
}

impl Wanted<'_> {
    fn start(&self) -> u64 {
        self.image.offset + self.image.known.head.len() as u64
    }

    fn end(&self) -> u64 {
        self.image.offset + self.image.known.len_bytes as u64
    }
}

/// Images that lie close together in a file.
struct Run {
    /// The numbers of the images.
    wanted: Vec<usize>,
    /// A multiple of 4 KiB.
    start: u64,
    /// The end of the last image.
    end: u64,
    /// Offset in the buffer.
    at: u64,
}

impl Run {
    fn len_bytes(&self) -> usize {
        (self.end - self.start).next_multiple_of(ALIGN_BYTES) as usize
    }
}

/// Puts images together to runs, each shorter than a buffer.
fn runs(wanted: &[Wanted<'_>]) -> Vec<Run> {
    let file = |number: usize| Arc::as_ptr(&wanted[number].image.file).addr();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&number| (file(number), wanted[number].start()));
    let mut runs: Vec<Run> = Vec::new();
    for number in order {
        let (start, end) = (wanted[number].start(), wanted[number].end());
        let last = runs.last_mut().filter(|run| {
            let fits = end.max(run.end).next_multiple_of(ALIGN_BYTES) - run.start <= BUFFER_BYTES as u64;
            file(run.wanted[0]) == file(number) && start <= run.end + GAP_BYTES && fits
        });
        match last {
            Some(run) => {
                run.wanted.push(number);
                run.end = run.end.max(end);
            }
            None => runs.push(Run { wanted: vec![number], start: start / ALIGN_BYTES * ALIGN_BYTES, end, at: 0 }),
        }
    }
    runs
}

/// Places runs one after the other in buffers. Returns those of each filling.
fn fillings(runs: Vec<Run>) -> Vec<Vec<Run>> {
    let (mut fillings, mut used) = (Vec::<Vec<Run>>::new(), BUFFER_BYTES);
    for run in runs {
        if used + run.len_bytes() > BUFFER_BYTES {
            fillings.push(Vec::new());
            used = 0;
        }
        let at = used as u64;
        used += run.len_bytes();
        if let Some(last) = fillings.last_mut() {
            last.push(Run { at, ..run });
        }
    }
    fillings
}

impl Direct {
    /// Opens cuFile on a device.
    ///
    /// # Errors
    /// [`Error::Device`] with the missing part and the remedy.
    pub(super) fn open(context: &Context) -> Result<Self> {
        let cufile = CuFile::open(context)?;
        if !cufile.is_direct {
            notice::warn(
                "GPUDirect Storage is in compatibility mode: images pass the host's memory, because the kernel module \
                 nvidia-fs is not loaded",
            );
        }
        let files = Arc::<Files>::default();
        let keeper: Weak<Files> = Arc::downgrade(&files);
        let _share = Share::begin(keeper, most_open());
        let (known, buffers) = (Mutex::default(), Mutex::default());
        let (failed_batches, is_off) = (AtomicU32::new(0), AtomicBool::new(false));
        Ok(Self { cufile, context: Context::clone(context), files, _share, known, buffers, failed_batches, is_off })
    }

    /// Whether an image that was read on the host is worth knowing: it may be read past the host later.
    pub(super) fn takes(&self, index: u64, image: &HeldImage, header: &Header) -> bool {
        let len_bytes = image.bytes().len();
        header.restart_interval_mcus == 0
            && len_bytes <= MOST_BYTES
            && header.scan_offset_bytes <= HEAD_BYTES
            && header.scan_offset_bytes < len_bytes
            && !self.is_off.load(Relaxed)
            && !lock(&self.known).images.contains_key(&index)
            && image.extent(index).is_some_and(|extent| extent.len_bytes == len_bytes as u64)
    }

    /// Keeps the header of an image that the device has decoded.
    pub(super) fn learn(&self, index: u64, header: Header, bytes: &[u8], key: Option<ImageKey>) {
        let head: Box<[u8]> = bytes[..header.scan_offset_bytes].into();
        let len_bytes = (size_of::<KnownImage>() + head.len()) as u64 + 64;
        let mut known = lock(&self.known);
        if known.len_bytes + len_bytes <= KNOWN_BYTES && !known.images.contains_key(&index) {
            known.len_bytes += len_bytes;
            known.images.insert(index, Arc::new(KnownImage { header, head, len_bytes: bytes.len(), key }));
        }
    }

    /// The image of a sample, if it can be read past the host. A context is current.
    pub(super) fn find(&self, index: u64, reader: &Reader) -> Option<ImageInFile> {
        let Reader::DataSet(source) = reader else { return None };
        if self.is_off.load(Relaxed) {
            return None;
        }
        let known = Arc::clone(lock(&self.known).images.get(&index)?);
        let Extent { file, offset, len_bytes } = source.extent(index)?;
        let file = self.file(&file).filter(|_| len_bytes == known.len_bytes as u64)?;
        let source = Arc::clone(source);
        file.is_unchanged().then(|| ImageInFile { known, file, offset, source, index })
    }

    /// The opened file. `None` if it cannot be read so.
    fn file(&self, listed: &Arc<ListedFile>) -> Option<Arc<OpenFile>> {
        let at = Arc::as_ptr(listed).addr();
        let mut all = lock(&self.files.0);
        all.uses += 1;
        let now = all.uses;
        match all.files.get_mut(&at) {
            Some(Found::Open(file, used)) => {
                *used = now;
                return Some(Arc::clone(file));
            }
            Some(Found::Refused(_)) => return None,
            None => {}
        }
        let opened = self.open_file(listed);
        let found = match &opened {
            Some(file) => Found::Open(Arc::clone(file), now),
            None => Found::Refused(Arc::clone(listed)),
        };
        all.files.insert(at, found);
        let closed = all.close_oldest();
        drop(all);
        drop(closed);
        opened
    }

    fn open_file(&self, listed: &Arc<ListedFile>) -> Option<Arc<OpenFile>> {
        // A file that is gone or another one is the host's, whose error says so.
        let (file, metadata) = open(listed.path()).ok()?;
        if !listed.is(&metadata) {
            return None;
        }
        set_direct(&file);
        match self.cufile.register_file(&self.context, file) {
            Ok(registered) => Some(Arc::new(OpenFile { registered, listed: Arc::clone(listed) })),
            Err(error) => {
                self.tell(&error.to_string());
                None
            }
        }
    }

    /// Says once in a process why images are read on the host.
    fn tell(&self, reason: &str) {
        notice::warn(&format!("GPUDirect Storage: {reason}; the host reads these images"));
    }

    /// Reads images to the device, and queues the copies to their places on the stream of copies. Returns for each
    /// whether it was read. A context is current.
    ///
    /// # Safety
    /// The places have room for the data, and only work that is queued on the stream later uses them.
    pub(super) unsafe fn read(&self, wanted: &[Wanted<'_>], streams: &Streams) -> Result<Vec<bool>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: the contract.
        let is_read = unsafe { self.read_all(wanted, streams)? };
        if is_read.iter().any(|read| *read) {
            self.failed_batches.store(0, Relaxed);
        } else if self.failed_batches.fetch_add(1, Relaxed) + 1 >= FAILED_BATCHES {
            self.tell("all reads of several batches have failed, so it is not used any more");
            self.is_off.store(true, Relaxed);
        }
        Ok(is_read)
    }

    /// Reads images as [`read`](Self::read) does.
    ///
    /// # Safety
    /// As there.
    unsafe fn read_all(&self, wanted: &[Wanted<'_>], streams: &Streams) -> Result<Vec<bool>> {
        let mut is_read = vec![false; wanted.len()];
        let Some(buffer) = self.buffer() else { return Ok(is_read) };
        for filling in fillings(runs(wanted)) {
            // The copies of an earlier filling, or of an earlier batch.
            buffer.copied.synchronize()?;
            // SAFETY: runs do not overlap in the buffer, and its copies have been waited for.
            let Some(done) = (unsafe { self.fill(&buffer, &filling, wanted) }) else {
                self.tell("cuFile did not end its reads");
                self.is_off.store(true, Relaxed);
                // Reads may still go from these files to the buffer.
                wanted.iter().for_each(|wanted| mem::forget(Arc::clone(&wanted.image.file)));
                mem::forget(buffer);
                return Ok(is_read);
            };
            for run in filling.iter().zip(done).filter_map(|(run, done)| done.then_some(run)) {
                for &number in &run.wanted {
                    let Wanted { image, to } = &wanted[number];
                    let from = buffer.memory.address() + run.at + (wanted[number].start() - run.start);
                    // SAFETY: both ranges are as long as the data. The buffer is filled again only after the event
                    // below; the rest is the contract.
                    unsafe { driver::copy(*to, from, image.data_bytes(), &streams.copy)? };
                    is_read[number] = true;
                }
            }
            buffer.copied.record(&streams.copy)?;
        }
        lock(&self.buffers).push(buffer);
        Ok(is_read)
    }

    /// A buffer that is not in use. `None` if there is no memory for one.
    fn buffer(&self) -> Option<Buffer> {
        if let Some(spare) = lock(&self.buffers).pop() {
            return Some(spare);
        }
        let made = self.cufile.buffer(&self.context, BUFFER_BYTES);
        match made.and_then(|memory| Ok(Buffer { memory, copied: Event::new(&self.context)? })) {
            Ok(buffer) => Some(buffer),
            Err(error) => {
                self.tell(&error.to_string());
                None
            }
        }
    }

    /// Reads runs to their places in the buffer. Returns for each whether it was read; `None` if reads did not end.
    ///
    /// # Safety
    /// Their places do not overlap, and no work on the device uses the buffer.
    unsafe fn fill(&self, buffer: &Buffer, runs: &[Run], wanted: &[Wanted<'_>]) -> Option<Vec<bool>> {
        let file = |run: &Run| &wanted[run.wanted[0]].image.file;
        let read = |run: &Run| Read {
            file: &file(run).registered,
            file_offset: run.start,
            offset: run.at,
            len_bytes: run.len_bytes(),
            needed_bytes: (run.end - run.start) as usize,
        };
        let mut results: Vec<std::result::Result<(), String>> = runs.iter().map(|_| Ok(())).collect();
        let (long, short): (Vec<_>, Vec<_>) = (0..runs.len()).partition(|&run| runs[run].len_bytes() >= LONG_BYTES);
        for run in long {
            // SAFETY: the contract.
            results[run] = unsafe { self.cufile.read(&buffer.memory, &read(&runs[run])) };
        }
        for some in short.chunks(self.cufile.most_entries()) {
            let reads: Vec<_> = some.iter().map(|&run| read(&runs[run])).collect();
            // SAFETY: the contract.
            let ended = unsafe { self.cufile.read_together(&buffer.memory, &reads) }?;
            some.iter().zip(ended).for_each(|(&run, result)| results[run] = result);
        }
        let is_good = |(run, result): (&Run, std::result::Result<(), String>)| match result {
            Ok(()) => file(run).is_unchanged(),
            Err(reason) => {
                self.tell(&reason);
                false
            }
        };
        Some(runs.iter().zip(results).map(is_good).collect())
    }

    /// Says that the device has done all work.
    pub(super) fn idle(&mut self) {
        lock(&self.buffers).iter_mut().for_each(|buffer| buffer.memory.idle());
    }
}

/// Has reads of the file go past the page cache, if its file system can do so. Otherwise cuFile copies.
#[cfg(target_os = "linux")]
fn set_direct(file: &std::fs::File) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let _ = fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT));
}

#[cfg(not(target_os = "linux"))]
fn set_direct(_file: &std::fs::File) {}
