//! Rules of the CUDA Driver API and the Programming Guide (PG), with their sources.

#![cfg(target_os = "linux")]

mod common;

use common::{code, start};
use cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use std::collections::BTreeSet;
use std::ffi::c_uint;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;

const LEGACY: sys::CUstream = null_mut();
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

fn begin(stream: sys::CUstream, mode: CUstreamCaptureMode) {
    // SAFETY: the stream is alive.
    unsafe { sys::cuStreamBeginCapture_v2(stream, mode) }.result().unwrap();
}

fn end(stream: sys::CUstream) -> Result<(), DriverError> {
    let mut graph = null_mut();
    // SAFETY: the stream is alive, and the graph is written before the call returns.
    unsafe {
        sys::cuStreamEndCapture(stream, &raw mut graph).result()?;
        sys::cuGraphDestroy(graph).result()
    }
}

fn status(stream: sys::CUstream) -> Result<u32, DriverError> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is alive, and the status is written before the call returns.
    unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) }.result().map(|()| status as u32)
}

fn made(flags: c_uint) -> sys::CUstream {
    let mut stream = null_mut();
    // SAFETY: the stream is written before the call returns.
    unsafe { sys::cuStreamCreate(&raw mut stream, flags) }.result().unwrap();
    stream
}

fn event() -> sys::CUevent {
    let mut event = null_mut();
    // SAFETY: the event is written before the call returns.
    unsafe { sys::cuEventCreate(&raw mut event, 0) }.result().unwrap();
    event
}

fn record(event: sys::CUevent, stream: sys::CUstream) -> Result<(), DriverError> {
    // SAFETY: both are alive.
    unsafe { sys::cuEventRecord(event, stream) }.result()
}

fn wait(stream: sys::CUstream, event: sys::CUevent) -> Result<(), DriverError> {
    // SAFETY: both are alive.
    unsafe { sys::cuStreamWaitEvent(stream, event, 0) }.result()
}

fn query(event: sys::CUevent) -> Result<(), DriverError> {
    // SAFETY: the event is alive.
    unsafe { sys::cuEventQuery(event) }.result()
}

/// A context that is current, with a stream that does not wait for the legacy stream.
fn context() -> (Arc<CudaContext>, Arc<CudaStream>) {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    (context, stream)
}

/// The host cannot query an event that was last recorded on a capturing stream, or wait for it (PG, "Prohibited and
/// Unhandled Operations").
#[test]
fn an_event_of_a_capture_cannot_be_asked_or_waited_for() {
    let sim = start();
    let (_context, stream) = context();
    let (first, event) = (stream.cu_stream(), event());
    type Ask = unsafe fn(sys::CUevent) -> CUresult;
    for ask in [sys::cuEventQuery as Ask, sys::cuEventSynchronize as Ask] {
        begin(first, RELAXED);
        record(event, first).unwrap();
        // SAFETY: the event is alive.
        assert_eq!(unsafe { ask(event) }, CUresult::CUDA_ERROR_CAPTURED_EVENT);
        assert_eq!(status(first), Ok(2), "lost");
        assert_eq!(code(record(event, first)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(code(end(first)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // It stays an event of a capture until it is recorded anew.
        assert_eq!(code(query(event)), CUresult::CUDA_ERROR_CAPTURED_EVENT);
        assert_eq!(code(wait(first, event)), CUresult::CUDA_ERROR_CAPTURED_EVENT);
    }
    record(event, first).unwrap();
    stream.synchronize().unwrap();
    assert_eq!((query(event), sim.message()), (Ok(()), String::new()));
}

/// A stream that waits for an event of a capture captures too, and must be joined before the end (PG, "Cross-stream
/// Dependencies and Events").
#[test]
fn a_stream_that_waits_for_an_event_of_a_capture_captures_too() {
    let _sim = start();
    let (context, stream) = context();
    let other = context.new_stream().unwrap();
    let (first, second) = (stream.cu_stream(), other.cu_stream());
    let (forked, joined) = (event(), event());
    for is_joined in [true, false] {
        begin(first, RELAXED);
        record(forked, first).unwrap();
        assert_eq!(status(second), Ok(0));
        wait(second, forked).unwrap();
        assert_eq!(status(second), Ok(1), "drawn in");
        record(joined, second).unwrap();
        assert_eq!(code(end(second)), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        assert_eq!(code(end(first)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        begin(first, RELAXED);
        record(forked, first).unwrap();
        wait(second, forked).unwrap();
        record(joined, second).unwrap();
        if is_joined {
            wait(first, joined).unwrap();
            end(first).unwrap();
        } else {
            assert_eq!(code(end(first)), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        }
        assert_eq!((status(first), status(second)), (Ok(0), Ok(0)));
    }
}

/// A capturing stream waits for no event from outside, and two captures do not become one. A capture ends on its stream
/// and, unless it is relaxed, on its thread (PG, "Prohibited and Unhandled Operations"; `cuStreamEndCapture`).
#[test]
fn nothing_crosses_the_boundary_of_a_capture() {
    let _sim = start();
    let (context, stream) = context();
    let other = context.new_stream().unwrap();
    let (first, second) = (stream.cu_stream(), other.cu_stream());
    let event = event();
    // An event that was never recorded is not a dependency.
    begin(first, RELAXED);
    wait(first, event).unwrap();
    end(first).unwrap();
    record(event, second).unwrap();
    begin(first, RELAXED);
    assert_eq!(code(wait(first, event)), CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    assert_eq!(code(end(first)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // Two captures do not become one.
    begin(first, RELAXED);
    begin(second, RELAXED);
    record(event, first).unwrap();
    assert_eq!(code(wait(second, event)), CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
    assert_eq!(code(end(first)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(code(end(second)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // The legacy stream cannot capture, not even by waiting.
    begin(first, RELAXED);
    record(event, first).unwrap();
    assert_eq!(code(wait(LEGACY, event)), CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    assert_eq!(code(end(first)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // SAFETY: the legacy stream always exists.
    let begun = unsafe { sys::cuStreamBeginCapture_v2(LEGACY, RELAXED) };
    assert_eq!(begun, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    // A stream that captures cannot be waited for.
    begin(first, RELAXED);
    assert_eq!(code(stream.synchronize()), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(code(end(first)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // Only the thread that has begun it ends it.
    begin(first, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            context.bind_to_thread().unwrap();
            code(end(stream.cu_stream()))
        });
        assert_eq!(elsewhere.join().unwrap(), CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    });
    end(first).unwrap();
}

/// The legacy stream cannot capture, and cannot be used while a blocking stream of its context captures. Only
/// `cuStreamIsCapturing` does not lose the capture (PG, "Prohibited and Unhandled Operations").
#[test]
fn the_legacy_stream_is_refused_while_a_blocking_stream_captures() {
    let sim = start();
    let (_context, _stream) = context();
    let event = event();
    for (flags, is_refused) in [(0, true), (1, false)] {
        let stream = made(flags);
        type Use = fn(sys::CUevent) -> Result<(), DriverError>;
        let uses: [Use; 4] = [
            |event| record(event, LEGACY),
            |event| wait(LEGACY, event),
            // SAFETY: the legacy stream always exists.
            |_| unsafe { sys::cuStreamSynchronize(LEGACY) }.result(),
            // SAFETY: as above.
            |_| unsafe { sys::cuStreamQuery(LEGACY) }.result(),
        ];
        for (i, used) in uses.into_iter().enumerate() {
            begin(stream, RELAXED);
            // This question alone leaves the capture whole.
            let asked = status(LEGACY);
            assert_eq!(asked.is_err(), is_refused);
            if is_refused {
                assert_eq!(code(asked), CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
                assert_eq!(status(stream), Ok(1));
                assert_eq!(code(used(event)), CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "use {i}");
                assert_eq!(code(end(stream)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            } else {
                let used = used(event);
                assert!(matches!(used, Ok(()) | Err(DriverError(CUresult::CUDA_ERROR_NOT_READY))), "use {i}: {used:?}");
                end(stream).unwrap();
            }
        }
        // SAFETY: made above.
        unsafe { sys::cuStreamDestroy_v2(stream) }.result().unwrap();
    }
    assert_eq!(sim.message(), "");
}

/// A destroyed object's handle must not be used: for some seeds it is another object's (`cuStreamDestroy`,
/// `cuEventDestroy`).
#[test]
fn handles_are_used_again() {
    let sim = start();
    let mut across_kinds = 0;
    for seed in 0..20 {
        sim.reset(seed);
        let (_context, stream) = context();
        let mut gone = BTreeSet::new();
        for _ in 0..10 {
            let event = event();
            // Work that was queued for the old object does not reach the new one.
            record(event, stream.cu_stream()).unwrap();
            gone.insert(event.addr());
            // SAFETY: made just now; the queued record stays.
            unsafe { sys::cuEventDestroy_v2(event) }.result().unwrap();
            let other = made(1);
            across_kinds += usize::from(gone.contains(&other.addr()));
            let new = self::event();
            assert_eq!(query(new), Ok(()), "it was never recorded");
            // SAFETY: made above, and destroyed once.
            unsafe {
                sys::cuStreamSynchronize(other).result().unwrap();
                sys::cuStreamDestroy_v2(other).result().unwrap();
                sys::cuEventDestroy_v2(new).result().unwrap();
            }
            gone.insert(other.addr());
        }
        stream.synchronize().unwrap();
        assert_eq!(sim.message(), "", "seed {seed}");
    }
    assert!(across_kinds > 20, "{across_kinds}");
}

fn retained() -> sys::CUcontext {
    let mut context = null_mut();
    // SAFETY: the context is written before the call returns.
    unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, 0) }.result().unwrap();
    context
}

fn id(context: sys::CUcontext) -> Result<u64, DriverError> {
    let mut id = 0;
    // SAFETY: the number is written before the call returns, and the driver refuses a context that is gone.
    unsafe { sys::cuCtxGetId(context, &raw mut id) }.result().map(|()| id)
}

/// A reset destroys the primary context's resources, but does not release it. Its handle is kept for some seeds; its
/// identifier is unique (`cuDevicePrimaryCtxReset`, `cuCtxGetId`).
#[test]
fn a_reset_keeps_the_handle_or_not_and_references_stay() {
    let sim = start();
    let mut kept = 0;
    for seed in 0..40 {
        sim.reset(seed);
        cudarc::driver::result::init().unwrap();
        let before = retained();
        let of_before = id(before).unwrap();
        // SAFETY: alive, and current on this thread from here on.
        unsafe { sys::cuCtxSetCurrent(before) }.result().unwrap();
        made(1);
        // SAFETY: nothing of the context is used after this.
        unsafe { sys::cuDevicePrimaryCtxReset_v2(0) }.result().unwrap();
        // SAFETY: the driver refuses it.
        let made_after = unsafe { sys::cuEventCreate(&mut null_mut(), 0) };
        assert_eq!(made_after, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert!(id(before).is_err());
        let after = retained();
        assert_ne!(id(after).unwrap(), of_before, "an identifier is never used twice");
        kept += u32::from(after == before);
        // The reference of before is still one: two releases are right, and a third is not.
        for (release, want) in [(0, true), (1, true), (2, false)] {
            assert_eq!(id(after).is_ok(), want, "release {release}");
            // SAFETY: the driver refuses the third.
            assert_eq!(unsafe { sys::cuDevicePrimaryCtxRelease_v2(0) }.result().is_ok(), want);
        }
    }
    assert!((5..35).contains(&kept), "{kept} of 40 handles were kept");
}

/// A new context is current, with its own objects and memory. After `cuCtxDestroy` it stays on other threads' stacks,
/// where calls are refused (`cuCtxCreate`, `cuCtxDestroy`).
#[test]
fn a_program_can_have_contexts_of_its_own() {
    let sim = start();
    let (_primary, _stream) = context();
    let mut address = 0;
    // SAFETY: each call writes its result, and objects are used while they are alive, unless the driver is to refuse.
    unsafe {
        let primary = retained();
        sys::cuMemAlloc_v2(&raw mut address, 1024).result().unwrap();
        let mut own = null_mut();
        sys::cuCtxCreate_v2(&raw mut own, 0, 0).result().unwrap();
        let mut current = null_mut();
        sys::cuCtxGetCurrent(&raw mut current).result().unwrap();
        assert!(current == own && own != primary && id(own) != id(primary));
        let (stream, mut owner, mut device) = (made(0), null_mut(), 7);
        sys::cuCtxGetDevice(&raw mut device).result().unwrap();
        sys::cuStreamGetCtx(stream, &raw mut owner).result().unwrap();
        assert_eq!((owner, device), (own, 0));
        // Its memory comes from the same device, but is not the other's.
        let (mut free, mut total, mut own_address) = (0, 0, 0);
        sys::cuMemAlloc_v2(&raw mut own_address, 1 << 20).result().unwrap();
        sys::cuMemGetInfo_v2(&raw mut free, &raw mut total).result().unwrap();
        assert_eq!(total - free, (1 << 20) + 1024);
        assert_eq!(sys::cuMemFree_v2(address), CUresult::CUDA_ERROR_INVALID_VALUE);
        // Objects of one context are nothing in another.
        sys::cuCtxPushCurrent_v2(primary).result().unwrap();
        assert_eq!(record(event(), stream).unwrap_err().0, CUresult::CUDA_ERROR_INVALID_HANDLE);
        sys::cuCtxPopCurrent_v2(&raw mut current).result().unwrap();
        std::thread::scope(|scope| {
            let own = own.addr();
            let (began, begin) = std::sync::mpsc::channel();
            let (gone, go_on) = std::sync::mpsc::channel::<()>();
            let other = scope.spawn(move || {
                sys::cuCtxSetCurrent(without_provenance_mut(own)).result().unwrap();
                began.send(()).unwrap();
                go_on.recv().unwrap();
                sys::cuEventCreate(&mut null_mut(), 0)
            });
            begin.recv().unwrap();
            sys::cuCtxDestroy_v2(without_provenance_mut(own)).result().unwrap();
            gone.send(()).unwrap();
            assert_eq!(other.join().unwrap(), CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        });
        sys::cuCtxGetCurrent(&raw mut current).result().unwrap();
        assert_eq!(current, primary, "the destroyed one is off this thread's stack");
        sys::cuMemFree_v2(address).result().unwrap();
        assert_eq!(sys::cuCtxDestroy_v2(primary), CUresult::CUDA_ERROR_INVALID_CONTEXT);
        sys::cuDevicePrimaryCtxRelease_v2(0).result().unwrap();
    }
    assert!(sim.message().contains("not the start of an allocation"), "{}", sim.message());
}

/// Machine code runs on cards of its major version with the same or a later minor one, PTX on cards from its
/// architecture on. A driver refuses PTX of a later version than it knows (PG, "Binary Compatibility", "PTX
/// Compatibility").
#[test]
fn images_must_fit_the_card_and_the_driver() {
    let sim = start();
    let (_context, _stream) = context();
    let load = |image: &[u8]| {
        let mut module = null_mut();
        // SAFETY: the image is whole, and ends in zeros.
        unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) }
    };
    let ptx = |version: &str, target: u32| format!(".version {version}\n.target sm_{target}\n.address_size 64\n\0");
    let fat = |pieces: &[(u16, u32)]| {
        let mut image = [0xba55_ed50_u32.to_le_bytes(), [1, 0, 16, 0]].concat();
        image.extend((72 * pieces.len() as u64).to_le_bytes());
        for (kind, architecture) in pieces {
            let mut piece = [0; 72];
            piece[..2].copy_from_slice(&kind.to_le_bytes());
            piece[4] = 64;
            piece[8] = 8;
            piece[28..32].copy_from_slice(&architecture.to_le_bytes());
            image.extend(piece);
        }
        image.extend([0; 4096]);
        image
    };
    let simulated = common::IMAGE;
    let (fits, no_binary, newer) =
        (CUresult::CUDA_SUCCESS, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    for ((major, minor), driver, image, want) in [
        ((9, 0), 13_000, simulated.to_vec(), fits),
        ((7, 0), 13_000, simulated.to_vec(), no_binary),
        ((6, 1), 13_000, simulated.to_vec(), no_binary),
        ((9, 0), 11_080, simulated.to_vec(), newer),
        ((9, 0), 13_000, ptx("9.0", 75).into_bytes(), fits),
        ((9, 0), 12_080, ptx("9.0", 75).into_bytes(), newer),
        ((9, 0), 12_080, ptx("8.7", 75).into_bytes(), fits),
        ((9, 0), 12_080, ptx("8.8", 75).into_bytes(), newer),
        ((9, 0), 12_050, ptx("8.5", 75).into_bytes(), fits),
        ((9, 0), 13_000, ptx("9.0", 100).into_bytes(), no_binary),
        // Machine code is for one major version, and for the same or a later minor one.
        ((8, 9), 13_000, fat(&[(2, 75), (2, 86)]), fits),
        ((8, 0), 13_000, fat(&[(2, 75), (2, 86)]), no_binary),
        ((9, 0), 13_000, fat(&[(2, 75), (2, 86)]), no_binary),
        ((9, 0), 13_000, fat(&[(2, 86), (1, 75)]), fits),
        ((7, 0), 13_000, fat(&[(2, 86), (1, 75)]), no_binary),
    ] {
        sim.capability(major, minor);
        sim.driver_version(driver);
        assert_eq!(load(&image), want, "{major}.{minor}, driver {driver}");
    }
}

/// Pinning fails if there is not enough memory for it (`cuMemHostAlloc`).
#[test]
fn pinned_memory_can_be_scarce() {
    let sim = start();
    let (_context, _stream) = context();
    sim.pinned_limit(8192);
    let (mut first, mut second) = (null_mut(), null_mut());
    let mut own = vec![0_u8; 4096];
    // SAFETY: results are written, and freed once; `own` outlives its registration.
    unsafe {
        sys::cuMemHostAlloc(&raw mut first, 6000, 0).result().unwrap();
        assert_eq!(sys::cuMemHostAlloc(&raw mut second, 6000, 0), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let registered = sys::cuMemHostRegister_v2(own.as_mut_ptr().cast(), own.len(), 0);
        assert_eq!(registered, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        sys::cuMemFreeHost(first).result().unwrap();
        sys::cuMemHostRegister_v2(own.as_mut_ptr().cast(), own.len(), 0).result().unwrap();
        sys::cuMemHostUnregister(own.as_mut_ptr().cast()).result().unwrap();
    }
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// A child of fork must not call the driver (`cuInit`).
#[test]
fn a_child_that_calls_the_driver_is_noticed() {
    let sim = start();
    let (_context, _stream) = context();
    let (mut count, mut status) = (0, 0);
    // SAFETY: the child makes one call, which takes no lock, and ends at once.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            let refused = sys::cuDeviceGetCount(&raw mut count) == CUresult::CUDA_ERROR_NOT_INITIALIZED;
            _exit(if refused { 0 } else { 1 })
        }
    }
    // SAFETY: the child is this process's own.
    unsafe { waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert!(sim.message().contains("1 calls in child processes"), "{}", sim.message());
    sim.reset(0);
    assert_eq!(sim.message(), "");
}

/// A pool that keeps freed memory.
fn pool() -> sys::CUmemoryPool {
    // SAFETY: zeros are valid in every field; the results are written before the calls return.
    unsafe {
        let (mut pool, mut properties) = (null_mut(), std::mem::zeroed::<sys::CUmemPoolProps>());
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        sys::cuMemPoolCreate(&raw mut pool, &raw const properties).result().unwrap();
        let mut threshold = u64::MAX;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()).result().unwrap();
        pool
    }
}

/// A pool keeps freed memory up to its threshold; the rest goes back at the next synchronization
/// (`CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`). A destroyed pool ends when the last of its memory is freed
/// (`cuMemPoolDestroy`).
#[test]
fn a_pool_keeps_what_is_freed_and_fragments() {
    const MIB: usize = 1 << 20;
    let sim = start();
    for seed in 0..20 {
        sim.reset_with_memory(seed, 8 * MIB);
        let (_context, stream) = context();
        let (raw, pool) = (stream.cu_stream(), pool());
        let free = || {
            let (mut free, mut total) = (0, 0);
            // SAFETY: both are written before the call returns.
            unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }.result().unwrap();
            free / MIB
        };
        let take = |bytes: usize| {
            let mut address = 0;
            // SAFETY: the address is written before the call returns.
            let taken = unsafe { sys::cuMemAllocFromPoolAsync(&raw mut address, bytes, pool, raw) };
            taken.result().map(|()| address)
        };
        // SAFETY: everything is freed once, on the stream that it was allocated on.
        unsafe {
            let blocks: Vec<_> = (0..7).map(|_| take(MIB).unwrap()).collect();
            for block in blocks.iter().step_by(2) {
                sys::cuMemFreeAsync(*block, raw).result().unwrap();
            }
            stream.synchronize().unwrap();
            // Four blocks are kept, which are not next to each other, and one MiB is free.
            assert_eq!(free(), 1, "seed {seed}");
            assert_eq!(code(take(2 * MIB)), CUresult::CUDA_ERROR_OUT_OF_MEMORY, "seed {seed}");
            let mut other = 0;
            assert_eq!(sys::cuMemAlloc_v2(&raw mut other, 2 * MIB), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            let again = take(MIB).unwrap();
            assert_eq!(free(), 1, "from what the pool keeps, seed {seed}");
            sys::cuMemPoolTrimTo(pool, 0).result().unwrap();
            assert_eq!(free(), 4, "seed {seed}");
            // Pools go with the last of their memory.
            sys::cuMemPoolDestroy(pool).result().unwrap();
            for block in blocks.iter().skip(1).step_by(2).chain([&again]) {
                sys::cuMemFreeAsync(*block, raw).result().unwrap();
            }
            stream.synchronize().unwrap();
            assert_eq!(free(), 8, "seed {seed}");
        }
        assert_eq!(sim.message(), "", "seed {seed}");
    }
}

#[test]
fn a_pool_without_a_threshold_gives_back_when_the_host_waits() {
    let sim = start();
    sim.reset_with_memory(0, 8 << 20);
    let (context, stream) = context();
    let mut address = 0;
    // SAFETY: allocated from the device's default pool and freed on one stream.
    unsafe {
        sys::cuMemAllocAsync(&raw mut address, 4 << 20, stream.cu_stream()).result().unwrap();
        sys::cuMemFreeAsync(address, stream.cu_stream()).result().unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(context.mem_get_info().unwrap().0, 8 << 20);
}
