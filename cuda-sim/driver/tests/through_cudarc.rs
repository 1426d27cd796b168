//! Tests of the simulated driver through cudarc.

#![cfg(target_os = "linux")]

mod common;

use common::sim::{folder, through_run};
use common::{IMAGE, Pinned, code, device_address, has_symbol, kernel, launch, one_block, start};
use cudarc::driver::sys::{self, CUevent_flags, CUresult};
use cudarc::driver::{CudaContext, CudaSlice, LaunchConfig, PushKernelArg, result};
use cudarc::nvrtc::Ptx;
use std::sync::atomic::{AtomicUsize, Ordering};

/// All functions that cudarc 0.19.10 calls for CUDA 12.0. It panics if a symbol is missing.
const CALLED_BY_CUDARC: &str = "cuCtxCreate_v3 cuCtxDestroy_v2 cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetLimit
    cuCtxGetStreamPriorityRange cuCtxSetCacheConfig cuCtxSetCurrent cuCtxSetLimit cuCtxSynchronize
    cuDestroyExternalMemory cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount cuDeviceGetDefaultMemPool
    cuDeviceGetMemPool cuDeviceGetName cuDeviceGetUuid_v2 cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain
    cuDeviceSetMemPool cuDeviceTotalMem_v2 cuEventCreate cuEventDestroy_v2 cuEventElapsedTime cuEventQuery
    cuEventRecord cuEventSynchronize cuExternalMemoryGetMappedBuffer cuFuncGetAttribute cuFuncSetAttribute
    cuFuncSetCacheConfig cuGetErrorName cuGetErrorString cuGraphDestroy cuGraphExecDestroy
    cuGraphInstantiateWithFlags cuGraphLaunch cuGraphUpload cuImportExternalMemory cuInit cuLaunchCooperativeKernel
    cuLaunchHostFunc cuLaunchKernel cuMemAdvise cuMemAllocAsync cuMemAllocFromPoolAsync cuMemAllocManaged
    cuMemAlloc_v2 cuMemFreeAsync cuMemFreeHost cuMemFree_v2 cuMemGetInfo_v2 cuMemHostAlloc cuMemPoolCreate
    cuMemPoolDestroy cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolTrimTo cuMemPrefetchAsync
    cuMemcpyDtoDAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoH_v2 cuMemcpyHtoDAsync_v2 cuMemcpyHtoD_v2
    cuMemcpyPeerAsync cuMemsetD8Async cuMemsetD8_v2 cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleLoad
    cuModuleLoadData cuModuleUnload cuOccupancyAvailableDynamicSMemPerBlock
    cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialBlockSize cuOccupancyMaxPotentialBlockSizeWithFlags
    cuOccupancyMaxPotentialClusterSize cuProfilerStart cuProfilerStop cuStreamAttachMemAsync cuStreamBeginCapture_v2
    cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamEndCapture cuStreamIsCapturing
    cuStreamSynchronize cuStreamWaitEvent";

#[test]
fn every_symbol_that_cudarc_calls_is_there() {
    let _sim = start();
    let missing: Vec<&str> = CALLED_BY_CUDARC.split_whitespace().filter(|name| !has_symbol(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_device_describes_itself() {
    let _sim = start();
    assert_eq!(CudaContext::device_count().unwrap(), 1);
    let context = CudaContext::new(0).unwrap();
    assert_eq!(context.name().unwrap(), "simulated device");
    assert_eq!(context.compute_capability().unwrap(), (9, 0));
    assert_eq!(context.total_mem().unwrap(), 64 << 20);
    let multiprocessors = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    assert_eq!(context.attribute(multiprocessors).unwrap(), 132);
    assert!(context.has_async_alloc());
    assert_eq!(code(CudaContext::new(1)), CUresult::CUDA_ERROR_INVALID_DEVICE);
    let error = CudaContext::new(1).unwrap_err();
    assert_eq!(error.error_name().unwrap(), c"CUDA_ERROR_INVALID_DEVICE");
    assert!(!error.error_string().unwrap().is_empty());
}

#[test]
fn bytes_go_up_through_a_kernel_and_down() {
    let sim = start();
    for seed in 0..50 {
        sim.reset(seed);
        let context = CudaContext::new(0).unwrap();
        for stream in [context.default_stream(), context.per_thread_stream(), context.new_stream().unwrap()] {
            let bytes: Vec<u8> = (0..100).collect();
            let mut data = stream.clone_htod(&bytes).unwrap();
            for name in ["add_one", "add_one_unsized"] {
                let function = kernel(&context, name).unwrap();
                // SAFETY: the kernel takes an address and a size. The size dies before the kernel runs.
                unsafe { stream.launch_builder(&function).arg(&mut data).arg(&100usize).launch(one_block()) }.unwrap();
            }
            let copy = stream.clone_dtod(&data).unwrap();
            let expected: Vec<u8> = (2..102).collect();
            assert_eq!(stream.clone_dtoh(&data).unwrap(), expected, "seed {seed}");
            assert_eq!(stream.clone_dtoh(&copy).unwrap(), expected, "seed {seed}");
            let zeros: CudaSlice<u32> = stream.alloc_zeros(10).unwrap();
            assert_eq!(stream.clone_dtoh(&zeros).unwrap(), [0; 10]);
        }
        drop(context);
        assert_eq!(sim.report().alive(), 0);
    }
}

#[test]
fn events_order_streams() {
    let sim = start();
    for seed in 0..200 {
        sim.reset(seed);
        let context = CudaContext::new(0).unwrap();
        let (first, second) = (context.new_stream().unwrap(), context.fork_pair());
        let data = first.clone_htod(&[seed as u8; 32]).unwrap();
        // cudarc's own events make the second stream wait for the first.
        assert_eq!(second.clone_dtoh(&data).unwrap(), [seed as u8; 32], "seed {seed}");
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let start = first.record_event(timed).unwrap();
        let more: CudaSlice<u8> = first.alloc_zeros(1 << 16).unwrap();
        let end = first.record_event(timed).unwrap();
        while !end.is_complete() {}
        assert!(start.elapsed_ms(&end).unwrap() > 0.0);
        drop(more);
    }
}

trait ForkPair {
    fn fork_pair(&self) -> std::sync::Arc<cudarc::driver::CudaStream>;
}

impl ForkPair for std::sync::Arc<CudaContext> {
    fn fork_pair(&self) -> std::sync::Arc<cudarc::driver::CudaStream> {
        self.default_stream().fork().unwrap()
    }
}

#[test]
fn pinned_memory_goes_both_ways() {
    let _sim = start();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: written before it is read.
    let mut up = unsafe { context.alloc_pinned_with_flags::<u16>(50, 0) }.unwrap();
    up.as_mut_slice().unwrap().fill(0xABCD);
    let data = stream.clone_htod(&up).unwrap();
    // SAFETY: as above.
    let mut down = unsafe { context.alloc_pinned::<u16>(50) }.unwrap();
    stream.memcpy_dtoh(&data, &mut down).unwrap();
    assert_eq!(down.as_slice().unwrap(), [0xABCD; 50]);
}

#[test]
fn pageable_memory_is_read_before_the_call_returns_and_pinned_memory_is_not() {
    let sim = start();
    let mut later = 0;
    for seed in 0..100 {
        sim.reset(seed);
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let mut data: CudaSlice<u8> = stream.alloc_zeros(16).unwrap();
        let mut bytes = vec![1u8; 16];
        stream.memcpy_htod(&bytes, &mut data).unwrap();
        bytes.fill(2);
        assert_eq!(stream.clone_dtoh(&data).unwrap(), [1; 16], "seed {seed}");

        let pinned = Pinned::new(16).unwrap();
        pinned.fill(3);
        // SAFETY: the block outlives the copy.
        unsafe { result::memcpy_htod_async(device_address(&data), pinned.slice(), stream.cu_stream()) }.unwrap();
        pinned.fill(4);
        let found = stream.clone_dtoh(&data).unwrap()[0];
        assert!(found == 3 || found == 4);
        later += usize::from(found == 4);
    }
    assert!((10..100).contains(&later), "{later}");
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let sim = start();
    for seed in 0..200 {
        sim.reset(seed);
        let context = CudaContext::new(0).unwrap();
        let blocking = result::stream::create(result::stream::StreamKind::Default).unwrap();
        let mut result_bytes = [0u8; 8];
        // SAFETY: addresses and sizes are those of the allocation; the stream is destroyed once.
        unsafe {
            let address = result::malloc_sync(8).unwrap();
            result::memset_d8_async(address, 1, 8, blocking).unwrap();
            result::memset_d8_async(address, 2, 4, std::ptr::null_mut()).unwrap();
            result::memcpy_dtoh_async(&mut result_bytes, address, blocking).unwrap();
            assert_eq!(result_bytes, [2, 2, 2, 2, 1, 1, 1, 1], "seed {seed}");
            result::free_sync(address).unwrap();
            result::stream::destroy(blocking).unwrap();
        }
        drop(context);
    }
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_and_call(refused: *mut std::ffi::c_void) {
    let mut count = 0;
    // SAFETY: a call of the driver that writes an int.
    let answer = unsafe { sys::cuDeviceGetCount(&mut count) };
    // SAFETY: the test passes an AtomicUsize that outlives the stream.
    unsafe { &*refused.cast::<AtomicUsize>() }
        .fetch_add(usize::from(answer == CUresult::CUDA_ERROR_NOT_PERMITTED), Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn host_functions_run_in_stream_order_and_may_not_call_cuda() {
    let sim = start();
    for seed in 0..20 {
        sim.reset(seed);
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let before = CALLS.load(Ordering::SeqCst);
        let refused = AtomicUsize::new(0);
        for _ in 0..3 {
            // SAFETY: the function takes a pointer to the atomic, which outlives the stream's work.
            unsafe {
                sys::cuLaunchHostFunc(stream.cu_stream(), Some(count_and_call), (&raw const refused).cast_mut().cast())
            }
            .result()
            .unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(CALLS.load(Ordering::SeqCst) - before, 3);
        assert_eq!(refused.load(Ordering::SeqCst), 3);
    }
}

#[test]
fn limits_of_the_device_are_kept() {
    let sim = start();
    let context = CudaContext::new(0).unwrap();
    let stream = context.default_stream();
    let function = kernel(&context, "add_one").unwrap();
    let with = |grid_dim, block_dim, shared_mem_bytes| {
        let config = LaunchConfig { grid_dim, block_dim, shared_mem_bytes };
        // SAFETY: no byte is touched.
        unsafe { stream.launch_builder(&function).arg(&0u64).arg(&0usize).launch(config) }
    };
    with((1, 65_535, 1), (32, 32, 1), 48 << 10).unwrap();
    for wrong in [
        with((0, 1, 1), (1, 1, 1), 0),
        with((1, 65_536, 1), (1, 1, 1), 0),
        with((1, 1, 1), (32, 33, 1), 0),
        with((1, 1, 1), (1, 1, 65), 0),
        with((1, 1, 1), (1, 1, 1), (48 << 10) + 1),
    ] {
        assert_eq!(code(wrong), CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    function.set_attribute(most, 100 << 10).unwrap();
    with((1, 1, 1), (1, 1, 1), 100 << 10).unwrap();
    assert_eq!(code(kernel(&context, "no_such_kernel")), CUresult::CUDA_ERROR_NOT_FOUND);
    stream.synchronize().unwrap();

    // Memory runs out, and is freed again.
    // SAFETY: the memory is not read.
    let half: CudaSlice<u8> = unsafe { stream.alloc(40 << 20) }.unwrap();
    // SAFETY: as above.
    assert_eq!(code(unsafe { stream.alloc::<u8>(40 << 20) }), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(context.mem_get_info().unwrap(), (24 << 20, 64 << 20));
    drop(half);
    // SAFETY: as above.
    drop(unsafe { stream.alloc::<u8>(40 << 20) }.unwrap());
    assert_eq!(sim.report().peak_bytes, 40 << 20);
}

#[test]
fn several_threads_share_the_device() {
    let sim = start();
    for seed in 0..20 {
        sim.reset(seed);
        let context = CudaContext::new(0).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let context = &context;
                scope.spawn(move || {
                    let stream = context.new_stream().unwrap();
                    let function = kernel(context, "add_one").unwrap();
                    for i in 0..20u8 {
                        let data = stream.clone_htod(&[thread * 20 + i; 64]).unwrap();
                        launch(&stream, &function, device_address(&data), 64).unwrap();
                        assert_eq!(stream.clone_dtoh(&data).unwrap(), [thread * 20 + i + 1; 64]);
                    }
                });
            }
        });
        drop(context);
        assert_eq!(sim.report().alive(), 0);
    }
}

#[test]
fn kernels_come_from_a_shared_object() {
    let kernels = folder().ancestors().find_map(|folder| {
        let path = folder.join("examples/libsim_kernels.so");
        path.exists().then_some(path)
    });
    let kernels = kernels.expect("cargo test builds the example sim_kernels");
    assert!(through_run("store_and_load", &[("CUDA_SIM_KERNELS", &kernels)]).contains("on simulated device"));
}

/// This test does not load the driver: cudarc finds the one that `run` sets up.
#[test]
#[ignore = "needs CUDA_SIM_KERNELS and the script run; kernels_come_from_a_shared_object runs it"]
fn store_and_load() {
    let context = CudaContext::new(0).unwrap();
    println!("on {}", context.name().unwrap());
    let stream = context.default_stream();
    let module = context.load_module(Ptx::from_binary(IMAGE.to_vec())).unwrap();
    let (seven, store) = (module.load_function("store_seven").unwrap(), module.load_function("store").unwrap());
    let mut out: CudaSlice<i32> = stream.alloc_zeros(2).unwrap();
    // SAFETY: the kernels take these parameters.
    unsafe {
        stream.launch_builder(&seven).arg(&mut out).launch(one_block()).unwrap();
        let mut second = out.slice_mut(1..);
        stream.launch_builder(&store).arg(&mut second).arg(&8i32).launch(one_block()).unwrap();
    }
    assert_eq!(stream.clone_dtoh(&out).unwrap(), [7, 8]);
}
