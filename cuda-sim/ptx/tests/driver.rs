//! A module of PTX on the simulated driver.

#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::{HEAD, kernel};
use cudarc::driver::sys::CUresult;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

fn launch(
    stream: &Arc<CudaStream>,
    function: &CudaFunction,
    memory: &CudaSlice<u32>,
    threads: u32,
    shared_mem_bytes: u32,
) -> Result<(), DriverError> {
    let config = LaunchConfig { grid_dim: (2, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes };
    // SAFETY: the kernels take an address. What they access is checked.
    unsafe { stream.launch_builder(function).arg(memory).launch(config) }.map(drop)
}

/// The one test of this program, because the driver reads its environment once.
#[test]
fn a_module_has_the_kernels_of_its_image_and_their_limits() {
    // SAFETY: no other thread of this program reads the environment.
    unsafe { std::env::set_var("CUDA_SIM_PTX", env!("CARGO_BIN_EXE_cuda-sim-ptx")) };
    let sim = sim::Sim::start();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let load = |kernels: &str| context.load_module(Ptx::from_src(format!("{HEAD}{kernels}")));

    let body = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.s32 %r0, %r1, 40, %r0; mul.wide.u32 %d0, %r0, 4;
         add.s64 %d0, %in, %d0; add.s32 %r0, %r0, 5; st.global.u32 [%d0], %r0;";
    let limited = |body: &str| {
        let shared = "{\n.shared .align 4 .b8 room[40000];\n.reg .b32 %place; mov.u32 %place, room;\n";
        kernel("number", body).replacen(")\n{\n", &format!(")\n.maxntid 40, 1, 1\n{shared}"), 1)
    };
    let module = load(&limited(body)).unwrap();
    assert_eq!(module.load_function("numbers").unwrap_err().0, CUresult::CUDA_ERROR_NOT_FOUND);
    let function = module.load_function("number").unwrap();
    let memory = stream.clone_htod(&[0u32; 80]).unwrap();
    launch(&stream, &function, &memory, 40, 0).unwrap();
    assert_eq!(stream.clone_dtoh(&memory).unwrap(), (5..85).collect::<Vec<u32>>());

    // 48 KiB are 49,152 bytes.
    launch(&stream, &function, &memory, 40, 9152).unwrap();
    for (threads, shared_bytes) in [(41, 0), (40, 9153)] {
        let refused = launch(&stream, &function, &memory, threads, shared_bytes);
        assert_eq!(refused.unwrap_err().0, CUresult::CUDA_ERROR_INVALID_VALUE, "{threads} {shared_bytes}");
    }

    // A kernel of the same name in another module is another kernel.
    let other = load(&limited("st.global.u32 [%in], 9;")).unwrap().load_function("number").unwrap();
    launch(&stream, &other, &memory, 1, 0).unwrap();
    launch(&stream, &function, &memory, 1, 0).unwrap();
    assert_eq!(stream.clone_dtoh(&memory).unwrap()[..2], [5, 6]);

    // Nothing is mapped at an address of the device.
    let own = File::open("/proc/self/mem").unwrap();
    let address = memory.device_ptr(&stream).0;
    assert!(own.read_at(&mut [0; 4], address).is_err());

    for image in [&b"cuda-sim kernels\n\0"[..], b"\x7fELF\0"] {
        let result = context.load_module(Ptx::from_binary(image.to_vec()));
        assert_eq!(result.unwrap_err().0, CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    assert_eq!(load(&kernel("odd", "activemask.b32 %r0;")).unwrap_err().0, CUresult::CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(sim.message(), "");

    // A refused access names kernel, line and the nearest allocation.
    let beyond = load(&limited("st.global.u32 [%in+320], 9;")).unwrap().load_function("number").unwrap();
    launch(&stream, &beyond, &memory, 1, 0).unwrap();
    assert_eq!(stream.synchronize().unwrap_err().0, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    let message = sim.message();
    for part in
        ["kernel number: ", "line 15, st.global.u32: a store of 4 bytes", "at offset 320 of an allocation of 320 bytes"]
    {
        assert!(message.contains(part), "{message}");
    }
}
