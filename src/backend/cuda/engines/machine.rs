//! nvJPEG's objects for the hardware decoder: handles, states, parsers.
#![allow(unsafe_code)]

use super::memory::EngineMemory;
use super::thread::{HardwareJob, Queued};
use crate::backend::cuda::nvjpeg::has_size;
use crate::cuda::driver::{Context, Event, Scoped, Stream};
use crate::decode::{Baseline, Header};
use crate::error::{Error, Result};
use crate::raster::Size;
use nvjpeg::{Backend, BatchState, Flags, Handle, Image, JpegStream, Library, Status};
use std::sync::Arc;

/// nvJPEG rounds the sizes of its memory up to multiples of this number of bytes.
const PADDING_BYTES: usize = 1 << 20;

/// How the engines are used. Measurements change one field at a time.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// Largest number of images in a call: a multiple of the H100's seven engines.
    pub images: usize,
    /// Number of states for each handle, and so of calls that are under way at a time.
    pub states: usize,
    /// Size for which a state's memory is allocated before its first call, which also switches on nvJPEG's pool of
    /// memory. `None`: nothing is.
    pub preallocated: Option<Size>,
    /// Whether memory comes from pools of the crate, if nvJPEG can ask for it.
    pub own_memory: bool,
    /// Whether images without subsampling have a handle without interpolation.
    pub plain_handle: bool,
    /// Whether a call has images of one subsampling.
    pub one_subsampling: bool,
    /// Whether the images of a call are sorted by area, the largest first.
    pub sorted: bool,
    /// Whether luma and chroma are decoded as planes, so that nvJPEG neither interpolates nor converts.
    pub planes: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            images: 126,
            states: 2,
            preallocated: Some(Size::new(1, 1)),
            own_memory: true,
            plain_handle: true,
            one_subsampling: true,
            sorted: true,
            planes: false,
        }
    }
}

/// The handles, one without interpolation and one with it.
pub(super) struct Machine {
    plain: Side,
    interpolating: Side,
    stream: Arc<Stream>,
    context: Context,
    options: EngineOptions,
}

/// A handle and its states, which take turns.
struct Side {
    states: Vec<State>,
    next: usize,
    handle: Handle,
}

struct State {
    batch: BatchState,
    /// Whether it decodes planes.
    planes: bool,
    /// Number of images that the state is initialized for; 0 if it must be initialized.
    initialized: usize,
    ended: Event,
}

/// The error of a device without engines.
fn absent(message: impl Into<String>) -> Error {
    Error::Device { call: "open the hardware decoder".to_owned(), message: message.into() }
}

impl Machine {
    /// Opens both handles. The context must be current.
    ///
    /// # Errors
    /// [`Error::Device`] with the missing part.
    pub(super) fn open(
        context: &Context,
        library: &Library,
        stream: Arc<Stream>,
        options: EngineOptions,
    ) -> Result<Self> {
        let memory = options.own_memory.then(|| EngineMemory::new(context, &stream).map(Arc::new)).transpose()?;
        let handle = |flags| -> nvjpeg::Result<Handle> {
            let plain = || Handle::new(library, Backend::Hardware, flags);
            let Some(memory) = &memory else { return plain() };
            match Handle::with_memory(library, Backend::Hardware, flags, Arc::<EngineMemory>::clone(memory)) {
                Err(nvjpeg::Error::MissingFunction { .. }) => plain(),
                handle => handle,
            }
        };
        let side = |flags| -> Result<Side> {
            let handle = handle(flags).or_else(|error| match error.status() {
                // Before CUDA 12.1 the flag did not exist.
                Some(Status::InvalidParameter) => handle(Flags::NONE),
                _ => Err(error),
            });
            let handle = handle.map_err(|error| {
                let reason = nvjpeg::probe_nvcuvid().err().map_or_else(
                    || "this device may have none".to_owned(),
                    |_| "libnvcuvid.so.1 is missing: a container needs the driver capability `video`".to_owned(),
                );
                absent(format!("{error}; {reason}"))
            })?;
            // Older versions allocate as much as they need.
            let _ = handle.pad_memory(PADDING_BYTES, PADDING_BYTES);
            Ok(Side { states: Vec::new(), next: 0, handle })
        };
        let (plain, interpolating) = (side(Flags::NONE)?, side(Flags::UPSAMPLING_WITH_INTERPOLATION)?);
        // Versions before CUDA 11.8 cannot tell the number of engines; they only refuse.
        if plain.handle.hardware_decoders().is_ok_and(|found| found.engines == 0) {
            return Err(absent("this device has none: use --jpeg-decoder auto"));
        }
        Ok(Self { plain, interpolating, stream, context: Arc::clone(context), options })
    }

    /// The handle for parsers.
    pub(super) fn handle(&self) -> Handle {
        self.plain.handle.clone()
    }

    /// Makes all states. One that cannot be made is tried again when it is needed.
    pub(super) fn prepare(&mut self) {
        for is_plain in [true, false] {
            let _ = self.states(is_plain);
        }
    }

    /// Whether images of this subsampling have the handle without interpolation.
    fn is_plain(&self, job: &HardwareJob) -> bool {
        self.options.planes || self.options.plain_handle && job.luma == (1, 1)
    }

    fn states(&mut self, is_plain: bool) -> Result<&mut Side> {
        let Self { plain, interpolating, context, options, .. } = self;
        let side = if is_plain { plain } else { interpolating };
        while side.states.len() < options.states.max(1) {
            let new = if options.planes { BatchState::for_planes } else { BatchState::new };
            let mut batch = new(&side.handle)?;
            if let Some(size) = options.preallocated {
                // If there is no such function, or too little memory, decoding allocates as it needs it.
                // SAFETY: the state is new.
                let _ = unsafe { batch.preallocate(options.images, size.width, size.height) };
            }
            let (ended, planes) = (Event::new(context)?, options.planes);
            side.states.push(State { batch, planes, initialized: 0, ended });
        }
        Ok(side)
    }

    /// Waits until the next call for images like this one has a state.
    pub(super) fn wait_for(&mut self, luma: (u8, u8)) -> Result<()> {
        let is_plain = self.options.planes || self.options.plain_handle && luma == (1, 1);
        let side = self.states(is_plain)?;
        side.states[side.next].ended.synchronize()
    }

    /// Queues the decoding of images on the stream, those of one handle after those of the other. Refused images say so
    /// to their batches.
    pub(super) fn decode(&mut self, images: Vec<Queued>) {
        let (plain, others): (Vec<_>, Vec<_>) = images.into_iter().partition(|image| self.is_plain(image.job()));
        for (is_plain, mut images) in [(true, plain), (false, others)] {
            if images.is_empty() {
                continue;
            }
            if self.options.sorted {
                images.sort_by_key(|image| std::cmp::Reverse(image.job().size.area_px()));
            }
            let stream = Arc::clone(&self.stream);
            let outcome = self.states(is_plain).and_then(|side| side.decode(&mut images, &stream));
            if let Err(error) = outcome {
                Queued::fail(images, &error);
            }
        }
    }
}

impl Side {
    /// Queues a call on the next state. Images that were not refused are gone from `images` afterwards.
    fn decode(&mut self, images: &mut Vec<Queued>, stream: &Stream) -> Result<()> {
        let at = self.next;
        self.next = (at + 1) % self.states.len();
        let state = &mut self.states[at];
        state.ended.synchronize()?;
        // SAFETY: the state's last call has been waited for. The jobs' bytes and destinations belong to batches that
        // wait for the stream before they reuse their memory, and destinations have been idle since the batch began.
        if unsafe { state.decode(images.iter().map(Queued::job), stream) }.is_ok() {
            return Queued::accept(std::mem::take(images), stream);
        }
        // Some images may still be running.
        stream.synchronize()?;
        state.narrow_down(std::mem::take(images), stream)
    }
}

impl State {
    /// # Safety
    /// No earlier call of this state is running. The jobs' memory stays until the work is done, and their destinations
    /// are idle, as the host knows: Hopper's engines do not wait for work queued earlier.
    unsafe fn decode<'a>(&mut self, jobs: impl Iterator<Item = &'a HardwareJob>, stream: &Stream) -> Result<()> {
        let jobs: Vec<_> = jobs.collect();
        let encoded: Vec<&[u8]> = jobs.iter().map(|job| job.encoded.bytes()).collect();
        let image = |job: &&HardwareJob| {
            let address = |offset: usize| (job.destination + offset as u64) as *mut u8;
            if self.planes {
                Image::planes(job.planes.map(|(offset, pitch_bytes)| (address(offset), pitch_bytes)))
            } else {
                Image::interleaved(address(0), 3 * job.size.width as usize)
            }
        };
        let images: Vec<Image> = jobs.iter().map(image).collect();
        if self.initialized != jobs.len() {
            self.initialized = 0;
            // SAFETY: no call is running, by contract.
            unsafe { self.batch.initialize(jobs.len(), 1)? };
            self.initialized = jobs.len();
        }
        // SAFETY: destinations are as large as the images are by their headers, which nvJPEG itself has read
        // (`EngineParser::takes`). They do not overlap. The rest is the contract.
        let queued = unsafe { self.batch.decode(&encoded, &images, stream.raw().cast()) };
        self.ended.record(stream)?;
        if queued.is_err() {
            self.initialized = 0;
        }
        Ok(queued?)
    }

    /// Finds the refused images of a call that failed. nvJPEG does not name them, so they are decoded again by halves.
    ///
    /// # Synchronization
    /// The accepted images are decoded when this returns.
    fn narrow_down(&mut self, mut images: Vec<Queued>, stream: &Stream) -> Result<()> {
        if images.len() <= 1 {
            images.into_iter().for_each(Queued::refuse);
            return Ok(());
        }
        let back = images.split_off(images.len() / 2);
        let mut failure = None;
        for half in [images, back] {
            if let Some(error) = &failure {
                Queued::fail(half, error);
                continue;
            }
            // SAFETY: as in `Side::decode`; all work that was queued before has been waited for.
            let decoded = unsafe { self.decode(half.iter().map(Queued::job), stream) };
            match stream.synchronize() {
                Err(error) => {
                    Queued::fail(half, &error);
                    failure = Some(error);
                }
                Ok(()) if decoded.is_ok() => failure = Queued::accept(half, stream).err(),
                Ok(()) => failure = self.narrow_down(half, stream).err(),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // If this fails, the context has failed, and its work with it.
        let _ = self.stream.synchronize();
    }
}

/// A worker's parser of images for the engines.
pub(in crate::backend::cuda) struct EngineParser {
    /// `None` after a failure, which may have made it unusable.
    stream: Option<JpegStream>,
    handle: Handle,
}

impl EngineParser {
    pub(super) fn new(context: &Context, handle: &Handle) -> Scoped<Self> {
        Scoped::new(context, Self { stream: None, handle: handle.clone() })
    }

    /// Whether the engines take an image, and nvJPEG reads the same size from it. The size must match because the
    /// destination has this size.
    pub(in crate::backend::cuda) fn takes(&mut self, bytes: &[u8], header: &Header) -> bool {
        // Our own look at the header finds images of several scans.
        Baseline::new(bytes, header).is_ok() && self.is_supported(bytes, header.size).unwrap_or(false)
    }

    fn is_supported(&mut self, bytes: &[u8], size: Size) -> nvjpeg::Result<bool> {
        let mut stream = self.take_stream()?;
        let mut found = stream.parse_header(bytes).and_then(|jpeg| is_supported(&jpeg, size));
        if found.is_err() {
            // Early versions cannot parse headers alone. Later ones refuse some rotated images then, and need another
            // parser.
            if !matches!(found, Err(nvjpeg::Error::MissingFunction { .. })) {
                stream = JpegStream::new(&self.handle)?;
            }
            found = stream.parse(bytes).and_then(|jpeg| is_supported(&jpeg, size));
        }
        if found.is_ok() {
            self.stream = Some(stream);
        }
        found
    }

    fn take_stream(&mut self) -> nvjpeg::Result<JpegStream> {
        self.stream.take().map_or_else(|| JpegStream::new(&self.handle), Ok)
    }
}

fn is_supported(jpeg: &nvjpeg::Jpeg<'_>, size: Size) -> nvjpeg::Result<bool> {
    let supported = match jpeg.is_for_batches() {
        // Early versions of nvJPEG do not have this function.
        Err(nvjpeg::Error::MissingFunction { .. }) => true,
        supported => supported?,
    };
    Ok(supported && has_size(jpeg, size)?)
}
