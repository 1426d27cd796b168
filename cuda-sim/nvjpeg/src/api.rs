//! The exported functions, in the order of nvjpeg.h.

use crate::buffer::Buffer;
use crate::driver::driver;
use crate::fault::{FAULT, Fault};
use crate::jpeg::{How, Result, Source, checksum, decode, decode_planes};
use crate::object::{
    ALLOCATED, Allocators, DECODERS, DEVICE, DecodeParams, Decoder, HANDLES, Handle, InFlight, JpegStream, PARAMETERS,
    PINNED, Parsed, Phase, STATES, STREAMS, State, StateInner, Table, lock,
};
use crate::work::{Decoded, Destination, Work};
use nvjpeg_sys::bindings::{
    NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION, cudaStream_t, functions, libraryPropertyType, nvjpegBackend_t,
    nvjpegBufferDevice_t, nvjpegBufferPinned_t, nvjpegChromaSubsampling_t, nvjpegDecodeParams_t, nvjpegDevAllocator_t,
    nvjpegDevAllocatorV2_t, nvjpegHandle_t, nvjpegImage_t, nvjpegJpegDecoder_t, nvjpegJpegState_t, nvjpegJpegStream_t,
    nvjpegOutputFormat_t, nvjpegPinnedAllocator_t, nvjpegPinnedAllocatorV2_t, nvjpegStatus_t,
};
use std::ffi::{CStr, c_int, c_uchar, c_uint};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use warpfeed_image::{Rect, Size};

const INVALID: nvjpegStatus_t = nvjpegStatus_t::NVJPEG_STATUS_INVALID_PARAMETER;
const NOT_HERE: nvjpegStatus_t = nvjpegStatus_t::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED;
const HARDWARE: nvjpegBackend_t = nvjpegBackend_t::NVJPEG_BACKEND_HARDWARE;

/// Whether nothing is decoded and nothing queued.
static NOOP: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("CUDA_SIM_NOOP").is_some_and(|value| !value.is_empty() && value != "0"));

/// Number of the hardware's JPEG engines.
static ENGINES: LazyLock<c_uint> = LazyLock::new(|| match std::env::var("CUDA_SIM_NVJPEG_ENGINES") {
    Ok(text) if !text.is_empty() => text.parse().unwrap_or_else(|_| {
        // Like the driver: if a wrong setting were ignored, a test would pass without testing anything.
        eprintln!("cuda-sim: CUDA_SIM_NVJPEG_ENGINES={text}: expected a number");
        std::process::exit(2);
    }),
    _ => 7,
});

/// Number of images that each back end has decoded, by its number.
static DECODED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

fn count(backend: nvjpegBackend_t, images: usize) {
    if let Some(count) = DECODED.get(backend.0 as usize) {
        count.fetch_add(images as u64, Ordering::Relaxed);
    }
}

/// Number of images that the back end of this number has decoded since the process began.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_nvjpeg_decoded(backend: c_uint) -> u64 {
    DECODED.get(backend as usize).map_or(0, |count| count.load(Ordering::Relaxed))
}

/// What the hardware's engines were asked for since the process began.
#[repr(C)]
#[derive(Default)]
pub struct EngineCounts {
    /// Calls that decode a batch.
    pub batches: u64,
    /// The most images of a batch.
    pub most_images: u64,
    /// Batches by a state that had no memory before its first one.
    pub not_preallocated: u64,
    /// Batches of images with different subsamplings.
    pub mixed: u64,
    /// Batches in which an image is larger than the one before it.
    pub unsorted: u64,
    /// Batches without subsampled images on a handle that interpolates.
    pub interpolated_in_vain: u64,
    /// Allocations by callers' allocators, and memory given back to them.
    pub allocated: u64,
    pub freed: u64,
    /// Headers that were parsed without the rest of their image, and whole images.
    pub headers: u64,
    pub wholes: u64,
    /// Regions that were decoded one by one, by any back end.
    pub regions: u64,
}

static ENGINE_COUNTS: Mutex<EngineCounts> = Mutex::new(EngineCounts {
    batches: 0,
    most_images: 0,
    not_preallocated: 0,
    mixed: 0,
    unsorted: 0,
    interpolated_in_vain: 0,
    allocated: 0,
    freed: 0,
    headers: 0,
    wholes: 0,
    regions: 0,
});

/// Writes the counts, and begins again.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_nvjpeg_engines(out: *mut EngineCounts) {
    let mut counts = std::mem::take(&mut *lock(&ENGINE_COUNTS));
    [counts.allocated, counts.freed] = ALLOCATED.each_ref().map(|count| count.swap(0, Ordering::Relaxed));
    // SAFETY: the caller's contract.
    unsafe { out.write(counts) };
}

/// Counts a batch for the engines.
fn count_batch(state: &State, images: &[Decoded]) {
    let mut counts = lock(&ENGINE_COUNTS);
    let (pairs, area) = (images.windows(2), |image: &Decoded| image.source.info.size().area_px());
    counts.batches += 1;
    counts.most_images = counts.most_images.max(images.len() as u64);
    counts.not_preallocated += u64::from(!lock(&state.inner).is_preallocated);
    let is_mixed = |pair: &[Decoded]| pair[0].source.info.subsampling() != pair[1].source.info.subsampling();
    counts.mixed += u64::from(pairs.clone().any(is_mixed));
    counts.unsorted += u64::from(pairs.clone().any(|pair| area(&pair[1]) > area(&pair[0])));
    let in_vain = state.handle.interpolates && images.iter().all(|image| image.source.info.has_whole_chroma());
    counts.interpolated_in_vain += u64::from(in_vain);
}

/// Defines exported functions with nvJPEG's types. The name is available as a C string.
macro_rules! api {
    ($(fn $name:ident($call:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the signature is nvJPEG's")]
        pub extern "C" fn $name($($argument: $type),*) -> nvjpegStatus_t {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero in it"),
            };
            let $call = Call(NAME);
            let _ = &$call;
            let run = || -> Result<()> { $body };
            run().err().unwrap_or(nvjpegStatus_t::NVJPEG_STATUS_SUCCESS)
        }
        const _: functions::$name = $name;
    )*};
}

/// A call in progress.
#[derive(Clone, Copy)]
struct Call(&'static CStr);

impl Call {
    /// Fails if a failure is drawn, like a call that makes an object.
    fn may_lack_memory(self) -> Result<()> {
        driver()?.may_fail(self.0, nvjpegStatus_t::NVJPEG_STATUS_ALLOCATOR_FAILURE, c"NVJPEG_STATUS_ALLOCATOR_FAILURE")
    }

    /// Fails if a failure is drawn, like a call that decodes.
    fn may_fail(self) -> Result<()> {
        driver()?.may_fail(self.0, nvjpegStatus_t::NVJPEG_STATUS_EXECUTION_FAILED, c"NVJPEG_STATUS_EXECUTION_FAILED")
    }

    fn misuse(self, what: &str) -> nvjpegStatus_t {
        driver().map_or_else(|status| status, |driver| driver.misuse(self.0, what))
    }

    /// Fails if queued work uses something.
    fn require_idle(self, flight: &InFlight, what: &str) -> Result<()> {
        if flight.is_under_way() {
            Err(self.misuse(&format!("{what} is in use by work that has not run")))
        } else {
            Ok(())
        }
    }

    fn enqueue(self, stream: cudaStream_t, work: Work) -> Result<()> {
        driver()?.enqueue(self.0, stream, work)
    }
}

fn set<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, so by nvJPEG's contract memory for a T.
    unsafe { out.write(value) };
    Ok(())
}

fn require_backend(backend: nvjpegBackend_t) -> Result<()> {
    match backend {
        HARDWARE if *ENGINES == 0 => Err(nvjpegStatus_t::NVJPEG_STATUS_ARCH_MISMATCH),
        nvjpegBackend_t::NVJPEG_BACKEND_DEFAULT
        | nvjpegBackend_t::NVJPEG_BACKEND_HYBRID
        | nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID
        | HARDWARE => Ok(()),
        _ => Err(NOT_HERE),
    }
}

fn to(image: *const nvjpegImage_t, size: Size, backend: nvjpegBackend_t) -> Result<Destination> {
    // SAFETY: null, or by nvJPEG's contract an image.
    let image = unsafe { image.as_ref() }.ok_or(INVALID)?;
    Destination::new(image, size, backend == HARDWARE).ok_or(INVALID)
}

fn decode_batch(
    call: Call,
    state: &State,
    data: *const *const c_uchar,
    lengths: *const usize,
    destinations: *mut nvjpegImage_t,
    stream: cudaStream_t,
) -> Result<()> {
    if *NOOP {
        return Ok(());
    }
    let _turn = Turn::take(call, &state.handle)?;
    let (count, format) = {
        let inner = lock(&state.inner);
        (inner.batch_size, inner.format.ok_or(nvjpegStatus_t::NVJPEG_STATUS_NOT_INITIALIZED)?)
    };
    if data.is_null() || lengths.is_null() || destinations.is_null() {
        return Err(INVALID);
    }
    call.require_idle(&state.flight, "the state")?;
    call.may_fail()?;
    let backend = state.handle.backend;
    let mut images = Vec::with_capacity(count);
    for i in 0..count {
        // SAFETY: the arrays have as many elements as the state was initialized for, by nvJPEG's contract.
        let (data, len, destination) = unsafe { (*data.add(i), *lengths.add(i), destinations.add(i)) };
        let source = Source::parse(data, len, false)?;
        let checksum = checksum(&source);
        let (pixels, destination) = if format == nvjpegOutputFormat_t::NVJPEG_OUTPUT_YUV {
            let (pixels, sizes) = decode_planes(&source, backend)?;
            // SAFETY: null, or by nvJPEG's contract an image.
            let image = unsafe { destination.as_ref() }.ok_or(INVALID)?;
            (pixels, Destination::of_planes(image, &sizes, backend == HARDWARE).ok_or(INVALID)?)
        } else {
            let how = How { backend, interpolates: state.handle.interpolates, format, region: None };
            (decode(&source, how)?, to(destination, source.info.size(), backend)?)
        };
        images.push(Decoded { source, checksum, pixels, destination });
    }
    let most = images.iter().map(|image| image.destination.len_bytes()).max().unwrap_or(0);
    reserve_scratch(state, count, most, stream)?;
    lock(&state.inner).has_decoded = true;
    if backend == HARDWARE {
        count_batch(state, &images);
    }
    if backend == HARDWARE && driver()?.is_rtx_50() {
        images.iter_mut().for_each(Decoded::forget);
    }
    self::count(backend, images.len());
    call.enqueue(stream, Work::Decode { images, tokens: vec![state.flight.begin()] })
}

/// Held by the thread that queues a batch on the hardware. Batches that two threads queue at the same time are not
/// distinguished.
struct Turn<'a>(&'a Handle);

impl<'a> Turn<'a> {
    fn take(call: Call, handle: &'a Handle) -> Result<Self> {
        if handle.backend == HARDWARE && handle.busy.swap(true, Ordering::AcqRel) {
            return Err(call.misuse("another thread queues a batch on this handle"));
        }
        Ok(Self(handle))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

/// Reserves memory for this number of images of this size. It grows as necessary.
fn reserve_scratch(state: &State, images: usize, image_bytes: usize, stream: cudaStream_t) -> Result<()> {
    let mut inner = lock(&state.inner);
    let new = || [true, false].map(|device| Buffer::new(state.handle.clone(), device));
    let scratch = inner.scratch.get_or_insert_with(new);
    let bytes = images.saturating_mul(image_bytes).max(1);
    scratch.iter().try_for_each(|buffer| buffer.reserve(bytes, stream).map(drop))
}

/// Frees all buffers. In a failed context each reports the failure and is freed.
fn free_all(buffers: &[Buffer]) -> Result<()> {
    buffers.iter().map(Buffer::free).fold(Ok(()), Result::and)
}

/// What a stream has parsed.
fn parsed(call: Call, stream: nvjpegJpegStream_t) -> Result<Parsed> {
    match lock(&STREAMS.get(stream)?.parsed).clone() {
        Parsed::Nothing => Err(nvjpegStatus_t::NVJPEG_STATUS_NOT_INITIALIZED),
        Parsed::Unusable => Err(call.misuse("the stream is unusable since it refused a header")),
        parsed => Ok(parsed),
    }
}

/// The image that a stream has parsed as a whole.
fn parsed_whole(call: Call, stream: nvjpegJpegStream_t) -> Result<Source> {
    match parsed(call, stream)? {
        Parsed::Whole(source) => Ok(source),
        _ => Err(call.misuse("only the header was parsed")),
    }
}

/// A stream of this handle.
fn stream_of(call: Call, stream: nvjpegJpegStream_t, handle: &Arc<Handle>) -> Result<Arc<JpegStream>> {
    let stream = STREAMS.get(stream)?;
    if !Arc::ptr_eq(&stream.handle, handle) {
        return Err(call.misuse("the stream was made of another handle"));
    }
    Ok(stream)
}

fn insert_buffer<H>(
    call: Call,
    table: &Table<Buffer>,
    handle: nvjpegHandle_t,
    device: bool,
    out: *mut *mut H,
) -> Result<()> {
    let handle = HANDLES.get(handle)?;
    call.may_lack_memory()?;
    table.insert(Buffer::new(handle, device), out)
}

fn resize_buffer(call: Call, buffer: &Buffer, bytes: usize, stream: cudaStream_t) -> Result<()> {
    if *NOOP {
        return Ok(());
    }
    call.require_idle(&buffer.flight, "the buffer")?;
    call.may_lack_memory()?;
    buffer.reserve(bytes, stream).map(drop)
}

fn destroy_buffer(call: Call, buffer: &Buffer) -> Result<()> {
    let idle = call.require_idle(&buffer.flight, "the buffer");
    buffer.free().and(idle)
}

fn new_handle(
    call: Call,
    backend: nvjpegBackend_t,
    flags: c_uint,
    allocators: Option<Allocators>,
    out: *mut nvjpegHandle_t,
) -> Result<()> {
    require_backend(backend)?;
    call.may_lack_memory()?;
    let interpolates = flags & NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION != 0;
    let padding_bytes = [const { AtomicUsize::new(0) }; 2];
    HANDLES.insert(Handle { backend, interpolates, allocators, padding_bytes, busy: AtomicBool::new(false) }, out)
}

fn new_state(handle: Arc<Handle>, decoder: Option<Arc<Decoder>>) -> State {
    State { handle, decoder, inner: Default::default(), flight: InFlight::default() }
}

/// The state of a decoder, with the objects that the phases need.
fn decoder_state(
    call: Call,
    decoder: nvjpegJpegDecoder_t,
    state: nvjpegJpegState_t,
) -> Result<(Arc<Decoder>, Arc<State>)> {
    let (decoder, state) = (DECODERS.get(decoder)?, STATES.get(state)?);
    if !state.decoder.as_ref().is_some_and(|own| Arc::ptr_eq(own, &decoder)) {
        return Err(call.misuse("the state was made of another decoder"));
    }
    Ok((decoder, state))
}

fn host_phase(call: Call, decoder: &Decoder, state: &State, source: Source, parameters: &DecodeParams) -> Result<()> {
    let (format, region) = (*lock(&parameters.format), *lock(&parameters.region));
    let how = How { backend: decoder.backend, interpolates: decoder.handle.interpolates, format, region };
    let pinned = lock(&state.inner).pinned.clone().ok_or(INVALID)?;
    call.require_idle(&pinned.flight, "the pinned buffer")?;
    call.may_fail()?;
    let checksum = checksum(&source);
    lock(&state.inner).image = None;
    let How { region, .. } = how;
    let pixels = decode(&source, how)?;
    count(decoder.backend, 1);
    lock(&ENGINE_COUNTS).regions += u64::from(region.is_some());
    let size = region.map_or(source.info.size(), |part| Size::new(part.width, part.height));
    let address = pinned.reserve(pixels.len(), std::ptr::null_mut())?;
    // SAFETY: the buffer has room for these bytes, and no queued work uses it, as seen above.
    unsafe { std::ptr::copy_nonoverlapping(pixels.as_ptr(), address as *mut u8, pixels.len()) };
    lock(&state.inner).image = Some(Phase { source, checksum, size, bytes: pixels.len(), transferred_to: None });
    Ok(())
}

fn transfer_phase(call: Call, state: &State, stream: cudaStream_t) -> Result<()> {
    call.require_idle(&state.flight, "the state")?;
    call.may_fail()?;
    let (image, pinned, device) = {
        let inner = lock(&state.inner);
        (inner.image.clone(), inner.pinned.clone().ok_or(INVALID)?, inner.device.clone().ok_or(INVALID)?)
    };
    let Some(image) = image else { return Err(call.misuse("there was no host phase")) };
    let bytes = image.bytes;
    let (from, held) = pinned.memory();
    if held < bytes {
        return Err(call.misuse("the pinned buffer is not the one of the host phase"));
    }
    let to = device.reserve(bytes, stream)?;
    let tokens = vec![pinned.flight.begin(), device.flight.begin()];
    let Phase { source, checksum, .. } = image;
    call.enqueue(stream, Work::Transfer { source, checksum, from, to, bytes, tokens })?;
    if let Some(image) = &mut lock(&state.inner).image {
        image.transferred_to = Some(device);
    }
    Ok(())
}

fn device_phase(
    call: Call,
    decoder: &Decoder,
    state: &State,
    destination: *const nvjpegImage_t,
    stream: cudaStream_t,
) -> Result<()> {
    call.may_fail()?;
    let image = lock(&state.inner).image.take();
    let Some(Phase { size, bytes, transferred_to: Some(device), .. }) = image else {
        return Err(call.misuse("there was no transfer"));
    };
    let destination = to(destination, size, decoder.backend)?;
    let from = device.memory().0;
    let tokens = vec![state.flight.begin(), device.flight.begin()];
    call.enqueue(stream, Work::Finish { from, bytes, destination, tokens })
}

/// Whether a back end of a handle supports a parsed image.
fn is_supported(
    call: Call,
    handle: &Arc<Handle>,
    backend: nvjpegBackend_t,
    stream: nvjpegJpegStream_t,
    out: *mut c_int,
) -> Result<()> {
    stream_of(call, stream, handle)?;
    let taken = match parsed(call, stream)? {
        Parsed::Header(source) => source.info.seems_taken_by(backend),
        Parsed::Whole(source) => source.info.is_taken_by(backend),
        _ => return Err(INVALID),
    };
    set(out, c_int::from(!taken))
}

fn version(property: libraryPropertyType, out: *mut c_int) -> Result<()> {
    // 13.0.0, for each property.
    match property.0 {
        0 => set(out, 13),
        1 | 2 => set(out, 0),
        _ => Err(INVALID),
    }
}

api! {
    fn nvjpegGetProperty(call, property: libraryPropertyType, out: *mut c_int) {
        version(property, out)
    }
    fn nvjpegGetCudartProperty(call, property: libraryPropertyType, out: *mut c_int) {
        version(property, out)
    }
    fn nvjpegCreateEx(
        call, backend: nvjpegBackend_t, _device: *mut nvjpegDevAllocator_t, _pinned: *mut nvjpegPinnedAllocator_t,
        flags: c_uint, out: *mut nvjpegHandle_t,
    ) {
        new_handle(call, backend, flags, None, out)
    }
    fn nvjpegCreateExV2(
        call, backend: nvjpegBackend_t, device: *mut nvjpegDevAllocatorV2_t, pinned: *mut nvjpegPinnedAllocatorV2_t,
        flags: c_uint, out: *mut nvjpegHandle_t,
    ) {
        // SAFETY: null, or by nvJPEG's contract allocators.
        let allocators = unsafe { device.as_ref().zip(pinned.as_ref()) };
        new_handle(call, backend, flags, allocators.map(|(device, pinned)| Allocators(*device, *pinned)), out)
    }
    fn nvjpegSetDeviceMemoryPadding(call, padding: usize, handle: nvjpegHandle_t) {
        HANDLES.get(handle)?.padding_bytes[1].store(padding, Ordering::Relaxed);
        Ok(())
    }
    fn nvjpegSetPinnedMemoryPadding(call, padding: usize, handle: nvjpegHandle_t) {
        HANDLES.get(handle)?.padding_bytes[0].store(padding, Ordering::Relaxed);
        Ok(())
    }
    fn nvjpegDestroy(call, handle: nvjpegHandle_t) {
        let handle = HANDLES.remove(handle)?;
        match Arc::strong_count(&handle) {
            1 => Ok(()),
            users => Err(call.misuse(&format!("{} objects made of the handle are alive", users - 1))),
        }
    }
    fn nvjpegGetHardwareDecoderInfo(call, handle: nvjpegHandle_t, engines: *mut c_uint, cores: *mut c_uint) {
        HANDLES.get(handle)?;
        set(engines, *ENGINES)?;
        set(cores, u32::from(*ENGINES > 0))
    }

    fn nvjpegJpegStateCreate(call, handle: nvjpegHandle_t, out: *mut nvjpegJpegState_t) {
        let handle = HANDLES.get(handle)?;
        call.may_lack_memory()?;
        STATES.insert(new_state(handle, None), out)
    }
    fn nvjpegJpegStateDestroy(call, state: nvjpegJpegState_t) {
        let state = STATES.remove(state)?;
        let idle = call.require_idle(&state.flight, "the state");
        let scratch = lock(&state.inner).scratch.take();
        free_all(scratch.as_ref().map_or(&[], |scratch| scratch)).and(idle)
    }
    fn nvjpegDecodeBatchedInitialize(
        call, handle: nvjpegHandle_t, state: nvjpegJpegState_t, batch_size: c_int, threads: c_int,
        format: nvjpegOutputFormat_t,
    ) {
        HANDLES.get(handle)?;
        let state = STATES.get(state)?;
        let batch_size = usize::try_from(batch_size).map_err(|_| INVALID)?;
        if batch_size == 0 || threads < 1 {
            return Err(INVALID);
        }
        call.require_idle(&state.flight, "the state")?;
        call.may_lack_memory()?;
        let mut inner = lock(&state.inner);
        let StateInner { batch_size: size, format: of, .. } = &mut *inner;
        (*size, *of) = (batch_size, Some(format));
        Ok(())
    }
    fn nvjpegDecodeBatched(
        call, handle: nvjpegHandle_t, state: nvjpegJpegState_t, data: *const *const c_uchar, lengths: *const usize,
        destinations: *mut nvjpegImage_t, stream: cudaStream_t,
    ) {
        HANDLES.get(handle)?;
        decode_batch(call, &*STATES.get(state)?, data, lengths, destinations, stream)
    }
    fn nvjpegDecodeBatchedPreAllocate(
        call, handle: nvjpegHandle_t, state: nvjpegJpegState_t, batch_size: c_int, width: c_int, height: c_int,
        _subsampling: nvjpegChromaSubsampling_t, _format: nvjpegOutputFormat_t,
    ) {
        HANDLES.get(handle)?;
        let state = STATES.get(state)?;
        if batch_size < 1 || width < 1 || height < 1 {
            return Err(INVALID);
        }
        call.require_idle(&state.flight, "the state")?;
        if lock(&state.inner).has_decoded {
            return Err(call.misuse("memory is preallocated before a state's first batch"));
        }
        call.may_lack_memory()?;
        if !*NOOP {
            let image_bytes = 3 * width as usize * height as usize;
            reserve_scratch(&state, batch_size as usize, image_bytes, std::ptr::null_mut())?;
        }
        lock(&state.inner).is_preallocated = true;
        Ok(())
    }

    fn nvjpegBufferPinnedCreate(
        call, handle: nvjpegHandle_t, _allocator: *mut nvjpegPinnedAllocator_t, out: *mut nvjpegBufferPinned_t,
    ) {
        insert_buffer(call, &PINNED, handle, false, out)
    }
    fn nvjpegBufferPinnedResize(call, buffer: nvjpegBufferPinned_t, bytes: usize, stream: cudaStream_t) {
        resize_buffer(call, &*PINNED.get(buffer)?, bytes, stream)
    }
    fn nvjpegBufferPinnedDestroy(call, buffer: nvjpegBufferPinned_t) {
        destroy_buffer(call, &*PINNED.remove(buffer)?)
    }
    fn nvjpegBufferDeviceCreate(
        call, handle: nvjpegHandle_t, _allocator: *mut nvjpegDevAllocator_t, out: *mut nvjpegBufferDevice_t,
    ) {
        insert_buffer(call, &DEVICE, handle, true, out)
    }
    fn nvjpegBufferDeviceResize(call, buffer: nvjpegBufferDevice_t, bytes: usize, stream: cudaStream_t) {
        resize_buffer(call, &*DEVICE.get(buffer)?, bytes, stream)
    }
    fn nvjpegBufferDeviceDestroy(call, buffer: nvjpegBufferDevice_t) {
        destroy_buffer(call, &*DEVICE.remove(buffer)?)
    }
    fn nvjpegStateAttachPinnedBuffer(call, state: nvjpegJpegState_t, buffer: nvjpegBufferPinned_t) {
        let buffer = PINNED.get(buffer)?;
        lock(&STATES.get(state)?.inner).pinned = Some(buffer);
        Ok(())
    }
    fn nvjpegStateAttachDeviceBuffer(call, state: nvjpegJpegState_t, buffer: nvjpegBufferDevice_t) {
        let buffer = DEVICE.get(buffer)?;
        lock(&STATES.get(state)?.inner).device = Some(buffer);
        Ok(())
    }

    fn nvjpegJpegStreamCreate(call, handle: nvjpegHandle_t, out: *mut nvjpegJpegStream_t) {
        let handle = HANDLES.get(handle)?;
        call.may_lack_memory()?;
        STREAMS.insert(JpegStream { handle, parsed: Default::default() }, out)
    }
    fn nvjpegJpegStreamDestroy(call, stream: nvjpegJpegStream_t) {
        STREAMS.remove(stream).map(drop)
    }
    fn nvjpegJpegStreamParse(
        call, handle: nvjpegHandle_t, data: *const c_uchar, len: usize, _save_metadata: c_int, save_stream: c_int,
        stream: nvjpegJpegStream_t,
    ) {
        let of = stream_of(call, stream, &HANDLES.get(handle)?)?;
        if matches!(*lock(&of.parsed), Parsed::Unusable) {
            return parsed(call, stream).map(drop);
        }
        lock(&ENGINE_COUNTS).wholes += 1;
        *lock(&of.parsed) = Parsed::Nothing;
        *lock(&of.parsed) = Parsed::Whole(Source::parse(data, len, save_stream != 0)?);
        Ok(())
    }
    fn nvjpegJpegStreamParseHeader(
        call, handle: nvjpegHandle_t, data: *const c_uchar, len: usize, stream: nvjpegJpegStream_t,
    ) {
        let of = stream_of(call, stream, &HANDLES.get(handle)?)?;
        if matches!(*lock(&of.parsed), Parsed::Unusable) {
            return parsed(call, stream).map(drop);
        }
        lock(&ENGINE_COUNTS).headers += 1;
        *lock(&of.parsed) = Parsed::Unusable;
        let source = Source::parse(data, len, false)?;
        if *FAULT == Fault::Rotated && source.info.is_rotated() {
            return Err(nvjpegStatus_t::NVJPEG_STATUS_BAD_JPEG);
        }
        *lock(&of.parsed) = Parsed::Header(source);
        Ok(())
    }
    fn nvjpegJpegStreamGetFrameDimensions(
        call, stream: nvjpegJpegStream_t, width: *mut c_uint, height: *mut c_uint,
    ) {
        let size = match parsed(call, stream)? {
            Parsed::Whole(source) | Parsed::Header(source) => source.info.size(),
            _ => return Err(INVALID),
        };
        set(width, size.width)?;
        set(height, size.height)
    }

    fn nvjpegDecodeParamsCreate(call, handle: nvjpegHandle_t, out: *mut nvjpegDecodeParams_t) {
        let handle = HANDLES.get(handle)?;
        call.may_lack_memory()?;
        let format = nvjpegOutputFormat_t::NVJPEG_OUTPUT_UNCHANGED.into();
        PARAMETERS.insert(DecodeParams { _handle: handle, format, region: Default::default() }, out)
    }
    fn nvjpegDecodeParamsDestroy(call, parameters: nvjpegDecodeParams_t) {
        PARAMETERS.remove(parameters).map(drop)
    }
    fn nvjpegDecodeParamsSetOutputFormat(call, parameters: nvjpegDecodeParams_t, format: nvjpegOutputFormat_t) {
        *lock(&PARAMETERS.get(parameters)?.format) = format;
        Ok(())
    }
    fn nvjpegDecodeParamsSetROI(
        call, parameters: nvjpegDecodeParams_t, x: c_int, y: c_int, width: c_int, height: c_int,
    ) {
        let of = PARAMETERS.get(parameters)?;
        let region = if (width, height) == (-1, -1) {
            None
        } else {
            let [x, y, width, height] = [x, y, width, height].map(|number| u32::try_from(number).map_err(|_| INVALID));
            Some(Rect { x: x?, y: y?, width: width?, height: height? })
        };
        *lock(&of.region) = region;
        Ok(())
    }

    fn nvjpegDecoderCreate(
        call, handle: nvjpegHandle_t, backend: nvjpegBackend_t, out: *mut nvjpegJpegDecoder_t,
    ) {
        let handle = HANDLES.get(handle)?;
        require_backend(backend)?;
        call.may_lack_memory()?;
        DECODERS.insert(Decoder { handle, backend }, out)
    }
    fn nvjpegDecoderDestroy(call, decoder: nvjpegJpegDecoder_t) {
        DECODERS.remove(decoder).map(drop)
    }
    fn nvjpegDecoderJpegSupported(
        call, decoder: nvjpegJpegDecoder_t, stream: nvjpegJpegStream_t, parameters: nvjpegDecodeParams_t,
        out: *mut c_int,
    ) {
        PARAMETERS.get(parameters)?;
        let decoder = DECODERS.get(decoder)?;
        is_supported(call, &decoder.handle, decoder.backend, stream, out)
    }
    fn nvjpegDecodeBatchedSupported(
        call, handle: nvjpegHandle_t, stream: nvjpegJpegStream_t, out: *mut c_int,
    ) {
        let handle = HANDLES.get(handle)?;
        is_supported(call, &handle, handle.backend, stream, out)
    }
    fn nvjpegDecoderStateCreate(
        call, handle: nvjpegHandle_t, decoder: nvjpegJpegDecoder_t, out: *mut nvjpegJpegState_t,
    ) {
        let (handle, decoder) = (HANDLES.get(handle)?, DECODERS.get(decoder)?);
        if !Arc::ptr_eq(&handle, &decoder.handle) {
            return Err(call.misuse("the decoder was made of another handle"));
        }
        call.may_lack_memory()?;
        STATES.insert(new_state(handle, Some(decoder)), out)
    }
    fn nvjpegDecodeJpegHost(
        call, _handle: nvjpegHandle_t, decoder: nvjpegJpegDecoder_t, state: nvjpegJpegState_t,
        parameters: nvjpegDecodeParams_t, stream: nvjpegJpegStream_t,
    ) {
        let (decoder, state) = decoder_state(call, decoder, state)?;
        if *NOOP {
            return Ok(());
        }
        host_phase(call, &decoder, &state, parsed_whole(call, stream)?, &*PARAMETERS.get(parameters)?)
    }
    fn nvjpegDecodeJpegTransferToDevice(
        call, _handle: nvjpegHandle_t, decoder: nvjpegJpegDecoder_t, state: nvjpegJpegState_t,
        _jpeg: nvjpegJpegStream_t, stream: cudaStream_t,
    ) {
        let (_, state) = decoder_state(call, decoder, state)?;
        if *NOOP { Ok(()) } else { transfer_phase(call, &state, stream) }
    }
    fn nvjpegDecodeJpegDevice(
        call, _handle: nvjpegHandle_t, decoder: nvjpegJpegDecoder_t, state: nvjpegJpegState_t,
        destination: *mut nvjpegImage_t, stream: cudaStream_t,
    ) {
        let (decoder, state) = decoder_state(call, decoder, state)?;
        if *NOOP { Ok(()) } else { device_phase(call, &decoder, &state, destination, stream) }
    }
}
