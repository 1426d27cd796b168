//! Each mistake is caught for some seed, and a right program never fails.

#![cfg(target_os = "linux")]

mod common;

use common::sim::Sim;
use common::{Mistake, Pinned, code, device_address, expected, kernel, launch, loader, one_block, start};
use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaSlice, DriverError, result};

/// The number of 100 seeds that give wrong bytes. None gives an error, because all accessed memory exists; only the
/// order is wrong.
fn caught(sim: &Sim, mistake: Mistake) -> usize {
    let wrong = |&seed: &u64| {
        sim.reset(seed);
        loader(mistake).unwrap_or_else(|error| panic!("seed {seed}: {error}, {}", sim.message())) != expected()
    };
    (0..100).filter(wrong).count()
}

#[test]
fn a_right_program_is_right_for_a_thousand_seeds() {
    let sim = start();
    for seed in 0..1000 {
        sim.reset(seed);
        let bytes = loader(Mistake::None).unwrap_or_else(|error| panic!("seed {seed}: {error}, {}", sim.message()));
        assert_eq!(bytes, expected(), "seed {seed}");
        let report = sim.report();
        assert_eq!((report.alive(), report.pending, report.illegal_accesses), (0, 0, 0), "seed {seed}: {report:?}");
    }
}

#[test]
fn each_missing_wait_shows_for_some_seed() {
    let sim = start();
    for mistake in [
        Mistake::NoUploadWait,
        Mistake::NoKernelWait,
        Mistake::NoReuseWait,
        Mistake::NoStagingWait,
        Mistake::NoResultWait,
    ] {
        let seeds = caught(&sim, mistake);
        println!("{mistake:?}: {seeds} of 100 seeds");
        assert!(seeds > 0, "{mistake:?} shows for no seed");
    }
}

#[test]
fn a_seed_replays() {
    let sim = start();
    let run = |seed| {
        sim.reset(seed);
        (loader(Mistake::NoUploadWait), sim.report())
    };
    let mut outcomes = Vec::new();
    for seed in 0..50 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first, second, "seed {seed}");
        outcomes.push(first.0);
    }
    assert!(outcomes.iter().any(|outcome| *outcome != outcomes[0]), "all seeds give the same schedule");
}

#[test]
fn a_copy_to_freed_memory_fails_the_context() {
    let sim = start();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: the mistake is the test.
    let address = unsafe { result::malloc_async(stream.cu_stream(), 100) }.unwrap();
    // SAFETY: as above.
    unsafe { result::free_async(address, stream.cu_stream()) }.unwrap();
    // SAFETY: as above.
    let copied = unsafe { result::memcpy_htod_async(address, &[1u8; 100], stream.cu_stream()) };
    assert_eq!(code(copied), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    let message = sim.message();
    assert!(message.contains("cuMemcpyHtoDAsync_v2") && message.contains("it was freed"), "{message}");
    assert!(message.contains("CUDA_SIM_SEED=0"), "{message}");
    // As in CUDA, every call fails from then on, until the context is gone.
    assert_eq!(code(stream.synchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    drop((stream, context));
    let context = CudaContext::new(0).unwrap();
    assert_eq!(
        context.default_stream().clone_htod(&[1u8]).and_then(|s| context.default_stream().clone_dtoh(&s)).unwrap(),
        [1]
    );
}

#[test]
fn memory_freed_while_another_stream_uses_it_is_caught() {
    let sim = start();
    let run = |wait: bool| -> Result<(), DriverError> {
        let context = CudaContext::new(0)?;
        // SAFETY: the streams are ordered by hand, or not.
        unsafe { context.disable_event_tracking() };
        let function = kernel(&context, "add_one")?;
        let (owner, user) = (context.new_stream()?, context.new_stream()?);
        let data: CudaSlice<u8> = owner.alloc_zeros(64)?;
        user.join(&owner)?;
        launch(&user, &function, device_address(&data), 64)?;
        if wait {
            owner.join(&user)?;
        }
        drop(data);
        context.synchronize()
    };
    let mut caught = 0;
    for seed in 0..200 {
        sim.reset(seed);
        assert_eq!(run(true), Ok(()), "seed {seed}: {}", sim.message());
        sim.reset(seed);
        if let Err(error) = run(false) {
            assert_eq!(error.0, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            assert!(sim.message().contains("cuLaunchKernel: kernel add_one"), "{}", sim.message());
            caught += 1;
        }
    }
    assert!(caught > 0);
}

#[test]
fn a_synchronous_upload_from_pageable_memory_is_not_done_when_it_returns() {
    let sim = start();
    let run = |wait: bool| {
        let context = CudaContext::new(0).unwrap();
        let other = context.new_stream().unwrap();
        let data: CudaSlice<u8> = other.alloc_zeros(32).unwrap();
        other.synchronize().unwrap();
        // SAFETY: the sizes agree.
        unsafe { result::memcpy_htod_sync(device_address(&data), &[5u8; 32]) }.unwrap();
        if wait {
            context.default_stream().synchronize().unwrap();
        }
        // A stream that does not block with the default one, like all streams that cudarc makes.
        other.clone_dtoh(&data).unwrap() == [5; 32]
    };
    let mut stale = 0;
    for seed in 0..100 {
        sim.reset(seed);
        assert!(run(true), "seed {seed}");
        sim.reset(seed);
        stale += usize::from(!run(false));
    }
    assert!(stale > 0);
}

/// A hole in cudarc 0.19.10: a slice keeps an event for its last reader only. If two streams read it, a writer waits
/// for only one of them.
#[test]
fn a_reader_that_cudarc_forgets_is_caught() {
    let sim = start();
    let mut wrong = 0;
    for seed in 0..100 {
        sim.reset(seed);
        let context = CudaContext::new(0).unwrap();
        let streams: Vec<_> = (0..3).map(|_| context.new_stream().unwrap()).collect();
        let mut data = streams[0].clone_htod(&[1u8; 16]).unwrap();
        let copies = [streams[1].clone_dtod(&data).unwrap(), streams[2].clone_dtod(&data).unwrap()];
        streams[0].memset_zeros(&mut data).unwrap();
        let second = streams[2].clone_dtoh(&copies[1]).unwrap();
        assert_eq!(second, [1; 16], "the last reader is waited for");
        wrong += usize::from(streams[1].clone_dtoh(&copies[0]).unwrap() != [1; 16]);
    }
    assert!(wrong > 0);
}

#[test]
fn memory_used_before_its_allocation_on_another_stream_is_caught() {
    let sim = start();
    let mut caught = 0;
    for seed in 0..100 {
        sim.reset(seed);
        let context = CudaContext::new(0).unwrap();
        let (owner, user) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        // SAFETY: the mistake is the test.
        let data: CudaSlice<u8> = unsafe { owner.alloc(64) }.unwrap();
        // SAFETY: as above.
        let _ = unsafe { result::memset_d8_async(device_address(&data), 1, 64, user.cu_stream()) };
        if let Err(error) = context.synchronize() {
            assert_eq!(error.0, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            assert!(sim.message().contains("before its stream-ordered allocation"), "{}", sim.message());
            caught += 1;
        }
    }
    assert!(caught > 0);
}

#[test]
fn accesses_out_of_bounds_are_caught() {
    let sim = start();
    type Program = fn(&CudaSlice<u8>, &std::sync::Arc<CudaContext>) -> Result<(), DriverError>;
    // SAFETY: in each, the mistake is the test; the memory that is touched in the end is the fence of the allocation.
    let programs: [(&str, &str, Program); 7] = [
        ("cuMemcpyHtoDAsync_v2", "run past the end", |data, _| unsafe {
            result::memcpy_htod_async(device_address(data) + 60, &[0u8; 41], data.stream().cu_stream())
        }),
        ("cuMemcpyDtoHAsync_v2", "run past the end", |data, _| unsafe {
            result::memcpy_dtoh_async(&mut [0u8; 101], device_address(data), data.stream().cu_stream())
        }),
        ("cuMemsetD8Async", "not device memory", |data, _| unsafe {
            result::memset_d8_async(device_address(data) - 1, 0, 4, data.stream().cu_stream())
        }),
        ("cuMemcpyHtoDAsync_v2", "past the end of pinned memory", |data, _| {
            let pinned = Pinned::new(10)?;
            // SAFETY: only its address and length are used.
            let longer = unsafe { std::slice::from_raw_parts(pinned.address, 11) };
            // SAFETY: refused before a byte is read.
            unsafe { result::memcpy_htod_async(device_address(data), longer, data.stream().cu_stream()) }
        }),
        ("cuLaunchKernel", "kernel add_one: an access", |data, context| {
            launch(data.stream(), &kernel(context, "add_one")?, device_address(data), 101)?;
            data.stream().synchronize()
        }),
        ("cuMemFreeAsync", "3 bytes past the end of 100 bytes", |data, context| {
            // SAFETY: freed below.
            let address = unsafe { result::malloc_async(data.stream().cu_stream(), 100) }?;
            launch(data.stream(), &kernel(context, "write_unguarded")?, address, 103)?;
            // SAFETY: allocated above.
            unsafe { result::free_async(address, data.stream().cu_stream()) }?;
            data.stream().synchronize()
        }),
        ("cuMemFree_v2", "1 bytes past the end of 100 bytes", |data, context| {
            // SAFETY: freed below.
            let address = unsafe { result::malloc_sync(100) }?;
            launch(data.stream(), &kernel(context, "write_unguarded")?, address, 101)?;
            // SAFETY: allocated above.
            unsafe { result::free_sync(address) }
        }),
    ];
    for (call, what, program) in programs {
        sim.reset(3);
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let data = stream.alloc_zeros::<u8>(100).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(code(program(&data, &context)), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "{call}, {what}");
        let message = sim.message();
        assert!(message.starts_with(call) && message.contains(what), "{what}: {message}");
        assert_eq!(sim.report().illegal_accesses, 1);
    }
}

#[test]
fn a_kernel_that_fails_is_reported_at_a_later_call() {
    let sim = start();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let (well, ill) = (kernel(&context, "status_0").unwrap(), kernel(&context, "status_2").unwrap());
    for function in [&well, &ill] {
        // SAFETY: the kernels take nothing.
        unsafe { stream.launch_builder(function).launch(one_block()) }.unwrap();
    }
    assert_eq!(code(stream.synchronize()), CUresult::CUDA_ERROR_LAUNCH_FAILED);
    assert_eq!(sim.message(), "cuLaunchKernel: kernel status_2 failed with status 2");
    assert_eq!(code(context.new_stream()), CUresult::CUDA_ERROR_LAUNCH_FAILED);
}

#[test]
fn fresh_and_freed_memory_is_poisoned() {
    let sim = start();
    sim.reset(1);
    let context = CudaContext::new(0).unwrap();
    let stream = context.default_stream();
    // SAFETY: bytes of any value are requested.
    let data: CudaSlice<u8> = unsafe { stream.alloc(1000) }.unwrap();
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [0xCB; 1000]);
    let address = device_address(&data);
    drop(data);
    context.synchronize().unwrap();
    // SAFETY: simulated device memory is this process's, and stays mapped.
    assert_eq!(unsafe { (address as *const u8).read_volatile() }, 0xDF);
    assert_eq!(Pinned::new(64).unwrap().bytes(), [0xCB; 64]);
}

#[test]
fn freeing_twice_is_refused() {
    let _sim = start();
    let _context = CudaContext::new(0).unwrap();
    // SAFETY: the mistake is the test.
    unsafe {
        let address = result::malloc_sync(10).unwrap();
        result::free_sync(address).unwrap();
        assert_eq!(code(result::free_sync(address)), CUresult::CUDA_ERROR_INVALID_VALUE);
        result::free_sync(0).unwrap();
    }
}

#[test]
fn leaks_are_counted() {
    let sim = start();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let before = sim.report();
    std::mem::forget(stream.alloc_zeros::<u8>(1000).unwrap());
    std::mem::forget(Pinned::new(10).unwrap());
    std::mem::forget(context.new_event(None).unwrap());
    let report = sim.report();
    assert_eq!((report.allocations - before.allocations, report.allocation_bytes), (1, 1000));
    assert_eq!((report.host_allocations, report.streams, report.contexts), (1, 1, 1));
    // The two events of the slice, and the single one.
    assert_eq!(report.events - before.events, 3);
    // Objects that go with the context are still counted. The forgotten objects hold the context, so it is released by
    // hand.
    drop(stream);
    // SAFETY: nothing is used after it.
    unsafe { result::primary_ctx::release(0) }.unwrap();
    assert_eq!(sim.report().lost, 6);
    std::mem::forget(context);
}

#[test]
fn a_leak_can_fail_the_process() {
    let run = |leaks: &str| {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "leak_on_purpose"])
            .env("CUDA_SIM_LEAKS", leaks)
            .output()
            .unwrap()
    };
    let output = run("fail");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(86), "{stderr}");
    assert!(stderr.contains("1 device allocations (77 bytes)"), "{stderr}");
    assert!(run("ignore").status.success());
}

#[test]
#[ignore = "leaks; a_leak_can_fail_the_process runs it in a process of its own"]
fn leak_on_purpose() {
    let _sim = start();
    let context = CudaContext::new(0).unwrap();
    // SAFETY: leaking is safe.
    let address = unsafe { result::malloc_sync(77) }.unwrap();
    assert_ne!(address, 0);
    std::mem::forget(context);
}

#[test]
fn injected_failures_come_out_as_errors_and_leave_nothing_behind() {
    let sim = start();
    let (mut failed, mut sticky, mut calls) = (0, 0, std::collections::BTreeSet::new());
    for seed in 0..1000 {
        sim.reset_with_failures(seed, 0.03);
        let outcome = loader(Mistake::None);
        let report = sim.report();
        match outcome {
            Ok(bytes) => {
                assert_eq!(bytes, expected(), "seed {seed}");
                assert_eq!(report.injected_failures, 0, "seed {seed}: {}", sim.message());
            }
            Err(error) => {
                let message = sim.message();
                let name = error.error_name().unwrap().to_str().unwrap();
                // Other calls may have failed since, as the program ended.
                let first = message.lines().next().unwrap_or_default();
                assert!(first.starts_with("cu") && first.contains(name), "seed {seed}: {error}, {message}");
                assert!(first.contains(&format!("CUDA_SIM_FAIL_SEED={seed}")), "{message}");
                calls.insert(first.split(':').next().unwrap().to_owned());
                failed += 1;
                sticky += usize::from(name.contains("LAUNCH_FAILED") || name.contains("ECC"));
            }
        }
        assert_eq!((report.alive(), report.pending, report.illegal_accesses), (0, 0, 0), "seed {seed}: {report:?}");
    }
    println!("{failed} of 1000 runs failed, {sticky} of them at a later call, in {calls:?}");
    assert!(failed > 100 && sticky > 20 && failed < 1000, "{failed} {sticky}");
    let wanted = ["cuEventCreate", "cuLaunchKernel", "cuMemAllocAsync", "cuMemHostAlloc", "cuMemcpyDtoHAsync_v2"];
    for call in wanted.iter().chain(&["cuMemcpyHtoDAsync_v2", "cuModuleLoadData", "cuStreamCreate"]) {
        assert!(calls.contains(*call), "{call} never failed: {calls:?}");
    }
}

#[test]
fn memory_of_a_pool_freed_at_once_while_a_kernel_uses_it_is_caught() {
    let sim = start();
    let run = |from_pool: bool| -> Result<(), DriverError> {
        let context = CudaContext::new(0)?;
        let function = kernel(&context, "add_one")?;
        let stream = context.new_stream()?;
        // SAFETY: freed once; that the kernel may still use it is the test.
        unsafe {
            let address =
                if from_pool { result::malloc_async(stream.cu_stream(), 64)? } else { result::malloc_sync(64)? };
            launch(&stream, &function, address, 64)?;
            result::free_sync(address)?;
        }
        context.synchronize()
    };
    let caught = |from_pool| {
        let wrong = |seed: &u64| {
            sim.reset(*seed);
            run(from_pool).is_err()
        };
        (0..100).filter(wrong).count()
    };
    assert_eq!(caught(false), 0, "the driver waits for memory that is of no pool");
    assert!(caught(true) > 0);
}

/// While a stream captures in the global mode, a potentially unsafe call of any thread is refused and the capture lost,
/// but not in a thread that has chosen the relaxed mode. A context cannot be waited for while one of its streams captures
/// (`cuThreadExchangeStreamCaptureMode`; Programming Guide, "Prohibited and Unhandled Operations").
#[test]
fn a_capture_is_lost_by_an_unsafe_call() {
    let sim = start();
    sim.reset(0);
    let context = CudaContext::new(0).unwrap();
    let (stream, event) = (context.new_stream().unwrap(), context.new_event(None).unwrap());
    let query = |mode: sys::CUstreamCaptureMode| {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                context.bind_to_thread().unwrap();
                let mut mode = mode;
                // SAFETY: the mode is read and written; the event is alive.
                unsafe {
                    sys::cuThreadExchangeStreamCaptureMode(&raw mut mode).result().unwrap();
                    result::event::query(event.cu_event())
                }
            });
            asked.join().unwrap()
        })
    };
    let capture = |mode| {
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        let asked = query(mode);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream captures; the graph is written before the call returns.
        (asked, unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph) }.result())
    };
    let (asked, ended) = capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_eq!(code(asked), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(code(ended), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED), (Ok(()), Ok(())));
    // The context cannot be waited for meanwhile, and trying to loses the capture.
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    assert_eq!(code(context.synchronize()), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let mut graph = std::ptr::null_mut();
    // SAFETY: as above.
    let ended = unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph) }.result();
    assert_eq!(code(ended), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    context.synchronize().unwrap();
}
