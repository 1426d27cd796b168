//! The simulated nvJPEG through the safe layer: decodes and mistakes.

#![cfg(target_os = "linux")]

#[path = "../../tests/support/sim.rs"]
mod sim;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DriverError};
use nvjpeg::{
    Backend, BatchState, CudaStream as Stream, DecodeParams, Decoder, DecoderState, DeviceBuffer, Error, Flags, Handle,
    Image, JpegStream, Library, MemoryKind, MemorySource, PinnedBuffer, Status,
};
use sim::{Sim, folder, through_run};
use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use warpfeed::image::{ChromaSampling, JpegColor, JpegOptions, Rect, Size, encode_jpeg, probe};

#[derive(Debug)]
enum Failure {
    Nvjpeg(Error),
    Driver(#[allow(dead_code, reason = "shown")] DriverError),
}

impl Failure {
    fn status(&self) -> Option<Status> {
        match self {
            Self::Nvjpeg(error) => error.status(),
            Self::Driver(_) => None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Nvjpeg(error)
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

type Result<T> = std::result::Result<T, Failure>;

fn jpeg(size: Size, options: &JpegOptions) -> Vec<u8> {
    let mut image = warpfeed::image::Image::new(size);
    for (i, pixel) in image.pixels_mut().iter_mut().enumerate() {
        let (x, y) = (i as u32 % size.width, i as u32 / size.width);
        *pixel = [(3 * x + y) as u8, (x * y / 7) as u8, (5 * y) as u8, 0];
    }
    encode_jpeg(&image, options).unwrap()
}

/// Images of all kinds that the hardware decoder supports and, if `progressive`, of those that only hybrid decoding
/// supports.
fn images(progressive: bool) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    for (i, sampling) in
        [ChromaSampling::S444, ChromaSampling::S422, ChromaSampling::S420, ChromaSampling::S440].into_iter().enumerate()
    {
        let size = Size::new(33 + 20 * i as u32, 61 - 9 * i as u32);
        images.push(jpeg(size, &JpegOptions { sampling, ..JpegOptions::default() }));
        if progressive {
            images.push(jpeg(size, &JpegOptions { sampling, progressive, ..JpegOptions::default() }));
        }
    }
    images.push(jpeg(Size::new(1, 1), &JpegOptions { color: JpegColor::Gray, ..JpegOptions::default() }));
    images
}

fn size(jpeg: &[u8]) -> Size {
    probe(jpeg).unwrap().size
}

/// An image, decoded by warpfeed's decoder, as RGB.
fn expected(jpeg: &[u8]) -> Vec<u8> {
    let (header, mut image) = (probe(jpeg).unwrap(), warpfeed::image::Image::default());
    let whole = Rect { x: 0, y: 0, width: header.size.width, height: header.size.height };
    warpfeed::image::Decoder::new().unwrap().decode(jpeg, &header, whole, false, &mut image).unwrap();
    image.pixels().iter().flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}

fn library() -> Library {
    Library::load_from(folder().join("libcuda_sim_nvjpeg.so")).unwrap()
}

fn handle(backend: Backend) -> nvjpeg::Result<Handle> {
    Handle::new(&library(), backend, Flags::UPSAMPLING_WITH_INTERPOLATION)
}

fn raw(stream: &CudaStream) -> Stream {
    stream.cu_stream().cast()
}

/// Memory for an RGB image, rows without gaps.
fn image(memory: &CudaSlice<u8>, width: u32) -> Image {
    Image::interleaved(memory.device_ptr(memory.stream()).0 as *mut u8, 3 * width as usize)
}

/// A stream that does not block with the default one, without the waits that cudarc would add.
fn stream() -> Result<Arc<CudaStream>> {
    let context = CudaContext::new(0)?;
    // SAFETY: the tests order their streams, or are about not doing so.
    unsafe { context.disable_event_tracking() };
    Ok(context.new_stream()?)
}

struct Worker {
    handle: Handle,
    state: DecoderState,
    parser: JpegStream,
    params: DecodeParams,
}

impl Worker {
    fn new(backend: Backend) -> Result<Self> {
        let handle = handle(backend)?;
        let mut state = DecoderState::new(&Decoder::new(&handle, backend)?)?;
        state.attach_pinned(PinnedBuffer::new(&handle)?)?;
        state.attach_device(DeviceBuffer::new(&handle)?)?;
        let (parser, params) = (JpegStream::new(&handle)?, DecodeParams::new(&handle)?);
        Ok(Self { state, parser, params, handle })
    }

    /// Queues the decoding of an image.
    fn decode(&mut self, bytes: &[u8], to: &CudaSlice<u8>, width: u32, stream: &CudaStream) -> nvjpeg::Result<()> {
        let jpeg = self.parser.parse(bytes)?;
        self.state.decode_host(&self.params, &jpeg)?;
        // SAFETY: the tests keep everything until they have synchronized, unless they test what happens otherwise.
        unsafe {
            self.state.transfer_to_device(&jpeg, raw(stream))?;
            self.state.decode_device(&image(to, width), raw(stream))
        }
    }
}

/// Decodes images one after another.
fn one_by_one(images: &[Vec<u8>], backend: Backend) -> Result<()> {
    let stream = stream()?;
    let mut worker = Worker::new(backend)?;
    for jpeg in images {
        let size = size(jpeg);
        let memory = stream.alloc_zeros::<u8>(3 * size.area_px() as usize)?;
        // The hardware does not wait for the stream.
        stream.synchronize()?;
        worker.decode(jpeg, &memory, size.width, &stream)?;
        assert!(stream.clone_dtoh(&memory)? == expected(jpeg), "{size:?}");
        stream.synchronize()?;
    }
    Ok(())
}

/// Decodes images in one batch. `before_sync` receives their compressed bytes while they are decoded.
fn batch(jpegs: &mut [Vec<u8>], backend: Backend, before_sync: impl FnOnce(&mut [Vec<u8>])) -> Result<Vec<Vec<u8>>> {
    let stream = stream()?;
    let mut state = BatchState::new(&handle(backend)?)?;
    // SAFETY: the state is new.
    unsafe { state.initialize(jpegs.len(), 1)? };
    let sizes: Vec<Size> = jpegs.iter().map(|jpeg| size(jpeg)).collect();
    let memory = sizes.iter().map(|size| stream.alloc_zeros::<u8>(3 * size.area_px() as usize));
    let memory = memory.collect::<std::result::Result<Vec<_>, _>>()?;
    stream.synchronize()?;
    let destinations: Vec<Image> = memory.iter().zip(&sizes).map(|(memory, size)| image(memory, size.width)).collect();
    let encoded: Vec<&[u8]> = jpegs.iter().map(Vec::as_slice).collect();
    // SAFETY: the destinations are idle; all is kept until the stream is synchronised.
    unsafe { state.decode(&encoded, &destinations, raw(&stream))? };
    before_sync(jpegs);
    stream.synchronize()?;
    Ok(memory.iter().map(|memory| stream.clone_dtoh(memory)).collect::<std::result::Result<_, _>>()?)
}

#[track_caller]
fn is_clean(sim: &Sim, seed: u64) {
    let report = sim.report();
    assert_eq!((report.alive(), report.pending, report.illegal_accesses), (0, 0, 0), "seed {seed}: {}", sim.message());
}

#[test]
fn images_have_the_bytes_of_warpfeeds_decoder() {
    let sim = Sim::start();
    for seed in 0..20 {
        for (backend, progressive) in [(Backend::Hybrid, true), (Backend::GpuHybrid, false), (Backend::Hardware, false)]
        {
            sim.reset(seed);
            let mut images = images(progressive);
            one_by_one(&images, backend).unwrap_or_else(|error| panic!("{seed}: {error:?}, {}", sim.message()));
            is_clean(&sim, seed);
            let want: Vec<_> = images.iter().map(|jpeg| expected(jpeg)).collect();
            assert!(batch(&mut images, backend, |_| ()).unwrap() == want, "seed {seed}, {backend:?}");
            is_clean(&sim, seed);
        }
    }
}

#[test]
fn each_back_end_refuses_what_it_cannot_decode() {
    let _sim = Sim::start();
    let plain = JpegOptions::default();
    let size = Size::new(40, 30);
    let progressive = jpeg(size, &JpegOptions { progressive: true, ..plain.clone() });
    let cmyk = jpeg(size, &JpegOptions { color: JpegColor::Cmyk, ..plain.clone() });
    let s411 = jpeg(size, &JpegOptions { sampling: ChromaSampling::S411, ..plain.clone() });
    let baseline = jpeg(size, &plain);
    let mut arithmetic = baseline.clone();
    let frame = baseline.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    arithmetic[frame + 1] = 0xC9;
    for (name, bytes, hybrid, hardware) in [
        ("baseline", &baseline, true, true),
        ("progressive", &progressive, true, false),
        ("CMYK", &cmyk, false, false),
        ("4:1:1", &s411, true, false),
        ("arithmetic", &arithmetic, false, false),
    ] {
        for (backend, taken) in [(Backend::Hybrid, hybrid), (Backend::Hardware, hardware)] {
            let handle = handle(backend).unwrap();
            let params = DecodeParams::new(&handle).unwrap();
            let mut parser = JpegStream::new(&handle).unwrap();
            let jpeg = parser.parse(bytes).unwrap();
            let decoder = Decoder::new(&handle, backend).unwrap();
            assert_eq!(decoder.supports(&jpeg, &params).unwrap(), taken, "{name}, {backend:?}");
            assert_eq!(jpeg.is_for_batches().unwrap(), taken, "{name}, {backend:?}");
            let decoded = batch(&mut [bytes.clone()], backend, |_| ());
            let status = decoded.as_ref().err().and_then(Failure::status);
            assert_eq!(status, (!taken).then_some(Status::JpegNotSupported), "{name}, {backend:?}");
        }
    }
}

#[test]
fn damaged_images_are_refused() {
    let sim = Sim::start();
    let bytes = jpeg(Size::new(40, 30), &JpegOptions::default());
    let stream = stream().unwrap();
    let memory = stream.alloc_zeros::<u8>(3 * 40 * 30).unwrap();
    let mut worker = Worker::new(Backend::Hybrid).unwrap();
    let mut status = |bytes: &[u8]| worker.decode(bytes, &memory, 40, &stream).unwrap_err().status();
    assert_eq!(status(b"no image"), Some(Status::BadJpeg));
    assert_eq!(status(&bytes[..40]), Some(Status::BadJpeg));
    let damaged = [&bytes[..bytes.len() - 40], &[0xFF, 0xD9]].concat();
    assert_eq!(status(&damaged), Some(Status::BadJpeg));
    // A truncated image decodes as far as it goes, and a good one decodes afterwards.
    worker.decode(&bytes[..bytes.len() - 40], &memory, 40, &stream).unwrap();
    stream.synchronize().unwrap();
    worker.decode(&bytes, &memory, 40, &stream).unwrap();
    assert!(stream.clone_dtoh(&memory).unwrap() == expected(&bytes));
    stream.synchronize().unwrap();
    assert_eq!(sim.message(), "");
}

/// The number of 100 seeds for which a mistake shows.
fn caught(sim: &Sim, shows: impl Fn() -> bool) -> usize {
    let seeds = (0..100).filter(|&seed| {
        sim.reset(seed);
        shows()
    });
    let seeds = seeds.count();
    println!("{seeds} of 100 seeds");
    seeds
}

#[test]
fn compressed_bytes_changed_too_early_show() {
    let sim = Sim::start();
    let spoil = |images: &mut [Vec<u8>]| images.iter_mut().for_each(|bytes| bytes.fill(0));
    let want: Vec<_> = images(false).iter().map(|jpeg| expected(jpeg)).collect();
    for backend in [Backend::Hardware, Backend::Hybrid] {
        assert!(caught(&sim, || batch(&mut images(false), backend, spoil).unwrap() != want) > 0, "{backend:?}");
    }
    // Single images too, between the phases and the end.
    let wrong = || {
        let stream = stream().unwrap();
        let mut bytes = images(false).remove(0);
        let (width, want) = (size(&bytes).width, expected(&bytes));
        let memory = stream.alloc_zeros::<u8>(want.len()).unwrap();
        let mut worker = Worker::new(Backend::Hybrid).unwrap();
        worker.decode(&bytes, &memory, width, &stream).unwrap();
        bytes.fill(0);
        stream.synchronize().unwrap();
        stream.clone_dtoh(&memory).unwrap() != want
    };
    assert!(caught(&sim, wrong) > 0);
}

/// Decodes two images with one state, and calls `between` after the first.
fn two(between: impl Fn(&CudaStream, &mut Worker) -> Option<PinnedBuffer>) -> Result<()> {
    let stream = stream()?;
    let mut worker = Worker::new(Backend::Hybrid)?;
    let bytes = jpeg(Size::new(30, 10), &JpegOptions::default());
    let memory = [stream.alloc_zeros::<u8>(900)?, stream.alloc_zeros::<u8>(900)?];
    worker.decode(&bytes, &memory[0], 30, &stream)?;
    let replaced = between(&stream, &mut worker);
    let second = worker.decode(&bytes, &memory[1], 30, &stream);
    let waited = stream.synchronize();
    drop(replaced);
    second?;
    waited?;
    for memory in &memory {
        assert!(stream.clone_dtoh(memory)? == expected(&bytes));
    }
    stream.synchronize()?;
    Ok(())
}

#[test]
fn a_state_and_a_pinned_buffer_used_too_early_are_reported() {
    let sim = Sim::start();
    let with_wait = |stream: &CudaStream, _: &mut Worker| {
        stream.synchronize().unwrap();
        None
    };
    let other_buffer = |_: &CudaStream, worker: &mut Worker| {
        let other = PinnedBuffer::new(&worker.handle).unwrap();
        worker.state.attach_pinned(other).unwrap()
    };
    for seed in 0..100 {
        sim.reset(seed);
        two(with_wait).unwrap_or_else(|error| panic!("seed {seed}: {error:?}, {}", sim.message()));
        is_clean(&sim, seed);
    }
    let reported = |result: Result<()>, what: &str| {
        let message = sim.message();
        assert_eq!(result.is_err(), !message.is_empty(), "{message}");
        message.contains(what)
    };
    let pinned = "nvjpegDecodeJpegHost: the pinned buffer is in use by work that has not run";
    assert!(caught(&sim, || reported(two(|_, _| None), pinned)) > 0);
    let state = "nvjpegDecodeJpegTransferToDevice: the state is in use by work that has not run";
    assert!(caught(&sim, || reported(two(other_buffer), state)) > 0);
}

#[test]
fn what_is_destroyed_while_work_uses_it_is_reported() {
    let sim = Sim::start();
    let reported = || {
        let stream = stream().unwrap();
        let mut worker = Worker::new(Backend::Hybrid).unwrap();
        let bytes = jpeg(Size::new(30, 10), &JpegOptions::default());
        let memory = stream.alloc_zeros::<u8>(900).unwrap();
        worker.decode(&bytes, &memory, 30, &stream).unwrap();
        drop(worker);
        sim.message().contains("nvjpegJpegStateDestroy: the state is in use by work that has not run")
    };
    assert!(caught(&sim, reported) > 0);
}

/// A copy reads an image's memory, and then an image is decoded to it, in the order of a stream alone. Returns whether
/// the copy saw the old content.
fn recycled_in_stream_order(backend: Backend) -> bool {
    let stream = stream().unwrap();
    let bytes = [jpeg(Size::new(30, 10), &JpegOptions::default())];
    let mut state = BatchState::new(&handle(backend).unwrap()).unwrap();
    // SAFETY: the state is new.
    unsafe { state.initialize(1, 1).unwrap() };
    let memory = stream.clone_htod(&[7u8; 900]).unwrap();
    let mut seen = stream.alloc_zeros::<u8>(900).unwrap();
    stream.synchronize().unwrap();
    stream.memcpy_dtod(&memory, &mut seen).unwrap();
    // SAFETY: all is kept until the stream is synchronised; that the destination is in use is what this is about.
    unsafe { state.decode(&[&bytes[0]], &[image(&memory, 30)], raw(&stream)).unwrap() };
    stream.synchronize().unwrap();
    assert!(stream.clone_dtoh(&memory).unwrap() == expected(&bytes[0]));
    stream.clone_dtoh(&seen).unwrap() == [7; 900]
}

#[test]
fn the_hardware_writes_ahead_of_its_stream() {
    let sim = Sim::start();
    assert!(caught(&sim, || !recycled_in_stream_order(Backend::Hardware)) > 0);
    assert_eq!(caught(&sim, || !recycled_in_stream_order(Backend::Hybrid)), 0);
}

#[test]
fn a_destination_that_is_too_small_is_refused() {
    let sim = Sim::start();
    let stream = stream().unwrap();
    let bytes = jpeg(Size::new(30, 10), &JpegOptions::default());
    let memory = stream.alloc_zeros::<u8>(899).unwrap();
    let mut worker = Worker::new(Backend::Hybrid).unwrap();
    let status = worker.decode(&bytes, &memory, 30, &stream).unwrap_err().status();
    assert_eq!(status, Some(Status::ExecutionFailed));
    assert!(sim.message().contains("nvjpegDecodeJpegDevice: 900 bytes"), "{}", sim.message());
}

/// Memory of the driver, which is counted.
#[derive(Default)]
struct Counted {
    alive: Mutex<Vec<(MemoryKind, usize)>>,
    /// Number of allocations that are still allowed.
    left: AtomicI64,
}

// SAFETY: the memory is the driver's.
unsafe impl MemorySource for Counted {
    fn allocate(&self, kind: MemoryKind, size_bytes: usize, _stream: Stream) -> Option<*mut c_void> {
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return None;
        }
        // SAFETY: a new allocation, of the right kind.
        let address = unsafe {
            match kind {
                MemoryKind::Device => cudarc::driver::result::malloc_sync(size_bytes).ok()? as *mut c_void,
                MemoryKind::Pinned => cudarc::driver::result::malloc_host(size_bytes, 0).ok()?,
            }
        };
        self.alive.lock().unwrap().push((kind, address as usize));
        Some(address)
    }

    unsafe fn free(&self, kind: MemoryKind, address: *mut c_void, _stream: Stream) -> bool {
        let mut alive = self.alive.lock().unwrap();
        let Some(at) = alive.iter().position(|known| *known == (kind, address as usize)) else { return false };
        alive.remove(at);
        // SAFETY: it was allocated above.
        unsafe {
            match kind {
                MemoryKind::Device => cudarc::driver::result::free_sync(address as u64).is_ok(),
                MemoryKind::Pinned => cudarc::driver::result::free_host(address).is_ok(),
            }
        }
    }
}

#[test]
fn memory_comes_from_the_caller_and_goes_back() {
    let sim = Sim::start();
    let bytes = jpeg(Size::new(30, 10), &JpegOptions::default());
    for left in 0..4 {
        let stream = stream().unwrap();
        let memory = Arc::new(Counted { left: AtomicI64::new(left), ..Counted::default() });
        let flags = Flags::UPSAMPLING_WITH_INTERPOLATION;
        let handle = Handle::with_memory(&library(), Backend::Hardware, flags, memory.clone()).unwrap();
        handle.pad_memory(1 << 16, 1 << 16).unwrap();
        let mut state = BatchState::new(&handle).unwrap();
        let image_memory = stream.alloc_zeros::<u8>(900).unwrap();
        stream.synchronize().unwrap();
        // SAFETY: the state is new; all is kept until the stream is synchronised.
        let decoded = unsafe {
            state
                .preallocate(1, 1, 1)
                .and_then(|()| state.initialize(1, 1))
                .and_then(|()| state.decode(&[&bytes], &[image(&image_memory, 30)], raw(&stream)))
        };
        stream.synchronize().unwrap();
        if left < 2 {
            assert_eq!(decoded.unwrap_err().status(), Some(Status::AllocatorFailure), "{left}");
        } else {
            // There is room for larger images in what was padded.
            decoded.unwrap();
            assert_eq!(memory.alive.lock().unwrap().len(), 2);
            assert!(stream.clone_dtoh(&image_memory).unwrap() == expected(&bytes));
            stream.synchronize().unwrap();
        }
        drop((state, handle));
        assert!(memory.alive.lock().unwrap().is_empty(), "{left}");
        assert_eq!(sim.message(), "");
    }
}

#[test]
fn memory_is_preallocated_before_the_first_batch() {
    let sim = Sim::start();
    let (stream, bytes) = (stream().unwrap(), jpeg(Size::new(30, 10), &JpegOptions::default()));
    let mut state = BatchState::new(&handle(Backend::Hardware).unwrap()).unwrap();
    let memory = stream.alloc_zeros::<u8>(900).unwrap();
    stream.synchronize().unwrap();
    // SAFETY: the state is idle; all is kept until the stream is synchronised.
    let late = unsafe {
        state.initialize(1, 1).unwrap();
        state.decode(&[&bytes], &[image(&memory, 30)], raw(&stream)).unwrap();
        stream.synchronize().unwrap();
        state.preallocate(1, 30, 10)
    };
    assert!(late.is_err() && sim.message().contains("before a state's first batch"), "{}", sim.message());
}

#[test]
fn a_header_is_for_questions_and_a_refused_one_makes_the_parser_unusable() {
    let sim = Sim::start();
    let bytes = jpeg(Size::new(30, 10), &JpegOptions::default());
    let mut worker = Worker::new(Backend::Hybrid).unwrap();
    let header = worker.parser.parse_header(&bytes).unwrap();
    assert_eq!(header.size().unwrap(), nvjpeg::Size { width_px: 30, height_px: 10 });
    assert!(header.is_for_batches().unwrap());
    assert!(worker.state.decode_host(&worker.params, &header).is_err());
    assert!(sim.message().contains("only the header was parsed"), "{}", sim.message());

    sim.reset(0);
    let mut worker = Worker::new(Backend::Hybrid).unwrap();
    assert_eq!(worker.parser.parse_header(b"no image").unwrap_err().status(), Some(Status::BadJpeg));
    assert!(worker.parser.parse(&bytes).is_err());
    assert!(sim.message().contains("unusable since it refused a header"), "{}", sim.message());
}

#[test]
fn without_interpolation_only_images_with_whole_chroma_keep_their_bytes() {
    let _sim = Sim::start();
    for sampling in [ChromaSampling::S444, ChromaSampling::S420, ChromaSampling::S422] {
        let bytes = jpeg(Size::new(30, 10), &JpegOptions { sampling, ..JpegOptions::default() });
        let stream = stream().unwrap();
        let handle = Handle::new(&library(), Backend::Hardware, Flags::NONE).unwrap();
        let (mut state, memory) = (BatchState::new(&handle).unwrap(), stream.alloc_zeros::<u8>(900).unwrap());
        stream.synchronize().unwrap();
        // SAFETY: the state is new; all is kept until the stream is synchronised.
        unsafe {
            state.initialize(1, 1).unwrap();
            state.decode(&[&bytes], &[image(&memory, 30)], raw(&stream)).unwrap();
        }
        stream.synchronize().unwrap();
        let equal = stream.clone_dtoh(&memory).unwrap() == expected(&bytes);
        assert_eq!(equal, sampling == ChromaSampling::S444, "{sampling:?}");
        stream.synchronize().unwrap();
    }
}

#[test]
fn statuses_are_injected_by_seed_and_nothing_leaks() {
    let sim = Sim::start();
    let mut statuses = 0;
    for seed in 0..200 {
        let outcome = || {
            sim.reset_with_failures(seed, 0.02);
            let outcomes = [
                one_by_one(&images(true), Backend::Hybrid),
                batch(&mut images(false), Backend::Hardware, |_| ()).map(drop),
            ];
            let report = sim.report();
            assert_eq!((report.alive(), report.pending), (0, 0), "seed {seed}: {report:?}, {}", sim.message());
            (outcomes.map(|outcome| outcome.err().and_then(|error| error.status())), sim.message())
        };
        let first = outcome();
        assert_eq!(first, outcome(), "seed {seed}");
        if first.1.contains(": injected NVJPEG_STATUS_") {
            assert!(first.1.contains("nvjpeg") && first.0.iter().any(Option::is_some), "seed {seed}: {first:?}");
            statuses += 1;
        }
    }
    assert!(statuses > 20, "{statuses} of 200 seeds");
}

#[test]
fn memory_that_is_not_given_back_is_counted() {
    let sim = Sim::start();
    let stream = stream().unwrap();
    let bytes = jpeg(Size::new(30, 10), &JpegOptions::default());
    let memory = stream.alloc_zeros::<u8>(900).unwrap();
    let mut worker = Worker::new(Backend::Hybrid).unwrap();
    worker.decode(&bytes, &memory, 30, &stream).unwrap();
    stream.synchronize().unwrap();
    let before = sim.report();
    std::mem::forget(worker);
    drop(memory);
    stream.synchronize().unwrap();
    let after = sim.report();
    assert_eq!((after.allocations, after.host_allocations), (before.allocations - 1, 1));
    assert_eq!(after.allocations, 1);
}

#[test]
fn a_card_without_hardware_decoders_has_no_hardware_back_end() {
    through_run("without_hardware_decoders", &[("CUDA_SIM_NVJPEG_ENGINES", Path::new("0"))]);
}

#[test]
#[ignore = "needs CUDA_SIM_NVJPEG_ENGINES=0; a_card_without_engines_has_no_hardware_back_end runs it"]
fn without_hardware_decoders() {
    let library = Library::load().unwrap();
    let handle = |backend| Handle::new(&library, backend, Flags::NONE);
    assert_eq!(handle(Backend::Hardware).unwrap_err().status(), Some(Status::ArchMismatch));
    assert_eq!(handle(Backend::Hybrid).unwrap().hardware_decoders().unwrap().engines, 0);
}

#[test]
fn without_work_nothing_is_written() {
    through_run("noop", &[("CUDA_SIM_NOOP", Path::new("1"))]);
}

#[test]
#[ignore = "needs CUDA_SIM_NOOP=1; without_work_nothing_is_written runs it"]
fn noop() {
    let bytes = images(false);
    let stream = stream().unwrap();
    let mut worker = Worker {
        handle: Handle::new(&Library::load().unwrap(), Backend::Hybrid, Flags::NONE).unwrap(),
        ..Worker::new(Backend::Hybrid).unwrap()
    };
    let memory = stream.alloc_zeros::<u8>(1 << 16).unwrap();
    let event = stream.record_event(None).unwrap();
    worker.decode(&bytes[0], &memory, size(&bytes[0]).width, &stream).unwrap();
    assert!(event.is_complete());
    stream.synchronize().unwrap();
    let mut bytes = [9; 1 << 16];
    stream.memcpy_dtoh(&memory, &mut bytes).unwrap();
    assert!(bytes == [9; 1 << 16]);
}
