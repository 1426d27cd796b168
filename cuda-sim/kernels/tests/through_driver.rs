//! The real kernels on the simulated driver's memory.

#![cfg(target_os = "linux")]

#[path = "../../../src/ops/descriptors.rs"]
#[allow(dead_code)]
mod descriptors;
#[path = "../../tests/support/sim.rs"]
mod sim;

use cuda_sim::{Kernel, LAUNCH_BYTES, Memory};
use cudarc::driver::sys::CUresult;
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use descriptors::{Axis, BatchPlace, ColorSample, FusedSample, Launch, SourceImage};
use sim::{Sim, open, through_run};
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

fn start() -> Sim {
    let sim = Sim::start();
    static REGISTERED: OnceLock<()> = OnceLock::new();
    REGISTERED.get_or_init(|| {
        let kernels = open("libcuda_sim_kernels.so");
        // SAFETY: the library is this package's, and the function has this type.
        let register = unsafe { kernels.get::<extern "C" fn(*const c_void)>(b"cuda_sim_kernels") };
        register.unwrap()(std::ptr::null());
        std::mem::forget(kernels);
    });
    sim
}

// SAFETY: numbers without padding.
unsafe impl DeviceRepr for Launch {}

/// The bytes of values without padding.
fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: the values' own memory, of numbers and of structs of params.rs, which have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

fn address<T>(slice: &CudaSlice<T>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

fn launch(
    stream: &Arc<CudaStream>,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    parameter: Launch,
) -> Result<(), DriverError> {
    let image = include_bytes!("../../kernels.image");
    let function = stream.context().load_module(Ptx::from_binary(image.to_vec()))?.load_function(kernel)?;
    let config = LaunchConfig { grid_dim: grid.into(), block_dim: block.into(), shared_mem_bytes: 0 };
    // SAFETY: the kernels take this parameter. What it points to is the tests' business.
    unsafe { stream.launch_builder(&function).arg(&parameter).launch(config) }.map(drop)
}

const WIDTH: u32 = 70;
const HEIGHT: u32 = 50;

/// An image, and everything for halving it with an average into an NCHW batch of one: pieces in shared memory, weights,
/// a table.
struct Halving {
    pixels: Vec<u8>,
    starts: Vec<i32>,
    offsets: Vec<i32>,
    weights: Vec<i32>,
    table: Vec<f32>,
}

impl Halving {
    fn new() -> Self {
        Self {
            pixels: (0..3 * WIDTH * HEIGHT).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
            starts: (0..(WIDTH / 2) as i32).map(|i| 2 * i).collect(),
            offsets: (0..=(WIDTH / 2) as i32).map(|i| 2 * i).collect(),
            weights: vec![1 << 21; WIDTH as usize],
            table: (0..3 * 256).map(|i| i as f32 / 100.0).collect(),
        }
    }

    fn elements(&self) -> usize {
        (3 * WIDTH / 2 * HEIGHT / 2) as usize
    }

    /// The addresses are of the pixels, starts, offsets, weights, and of the output.
    fn sample(&self, [pixels, starts, offsets, weights, elements]: [u64; 5]) -> FusedSample {
        let axis = Axis { starts, offsets, weights, first: 0, most: 2 };
        let (width, height) = (WIDTH / 2, HEIGHT / 2);
        FusedSample {
            source: SourceImage {
                pixels,
                pitch_bytes: 3 * WIDTH,
                width: WIDTH,
                height: HEIGHT,
                whole_width: WIDTH,
                whole_height: HEIGHT,
                ..SourceImage::default()
            },
            output: BatchPlace {
                elements,
                plane_stride: u64::from(width * height),
                row_stride: width,
                width,
                height,
                ..BatchPlace::default()
            },
            columns: axis,
            rows: axis,
            exact: [1, 0, 0, 0, 1, 0],
            mirror_x: 1,
            mirror_y: 1,
            ..FusedSample::default()
        }
    }

    /// 32 x 16 outputs a block.
    const GRID: [u32; 3] = [(WIDTH / 2).div_ceil(32), (HEIGHT / 2).div_ceil(16), 1];
    const BLOCK: [u32; 3] = [256, 1, 1];

    fn directly(&self) -> Vec<u8> {
        let upload = |bytes: &[u8]| {
            let mut memory = Memory::new(bytes.len(), 0);
            memory.bytes_mut().copy_from_slice(bytes);
            memory
        };
        let inputs =
            [&self.pixels, bytes_of(&self.starts), bytes_of(&self.offsets), bytes_of(&self.weights)].map(upload);
        let (table, elements) = (upload(bytes_of(&self.table)), Memory::new(4 * self.elements(), 0));
        let [pixels, starts, offsets, weights] = inputs.each_ref().map(Memory::address);
        let sample = self.sample([pixels, starts, offsets, weights, elements.address()]);
        let samples = upload(bytes_of(&[sample]));
        let parameter = Launch { samples: samples.address(), table: table.address(), count: 1, reserved: 0 };
        let parameter: &[u8; LAUNCH_BYTES] = bytes_of(std::slice::from_ref(&parameter)).try_into().unwrap();
        let kernel = Kernel::find("fused_f32_nchw").unwrap();
        // SAFETY: all that the launch points to is there.
        unsafe { kernel.launch(Self::GRID, Self::BLOCK, parameter) }.unwrap();
        elements.bytes().to_vec()
    }

    fn through_driver(&self) -> Result<Vec<u8>, DriverError> {
        let stream = CudaContext::new(0)?.new_stream()?;
        let inputs =
            [stream.clone_htod(&self.starts)?, stream.clone_htod(&self.offsets)?, stream.clone_htod(&self.weights)?];
        let (pixels, table) = (stream.clone_htod(&self.pixels)?, stream.clone_htod(&self.table)?);
        let elements = stream.alloc_zeros::<u8>(4 * self.elements())?;
        let [starts, offsets, weights] = inputs.each_ref().map(address);
        let sample = self.sample([address(&pixels), starts, offsets, weights, address(&elements)]);
        let samples = stream.clone_htod(bytes_of(&[sample]))?;
        let parameter = Launch { samples: address(&samples), table: address(&table), count: 1, reserved: 0 };
        launch(&stream, "fused_f32_nchw", Self::GRID, Self::BLOCK, parameter)?;
        stream.clone_dtoh(&elements)
    }
}

#[test]
fn a_kernel_gives_through_the_driver_what_it_gives_directly() {
    let sim = start();
    let halving = Halving::new();
    let want = halving.directly();
    for seed in 0..20 {
        sim.reset(seed);
        // Every other seed runs on a thread of its own, whose shared memory is elsewhere.
        let got = match seed % 2 {
            0 => halving.through_driver(),
            _ => std::thread::scope(|scope| scope.spawn(|| halving.through_driver()).join().unwrap()),
        };
        assert!(got.unwrap_or_else(|error| panic!("{seed}: {error}, {}", sim.message())) == want, "seed {seed}");
    }
}

/// Converts an image of 8 x 4 pixels to gray. The image has `stored_bytes` bytes, and is freed before if `freed`.
fn gray(stored_bytes: usize, freed: bool) -> Result<Vec<u8>, DriverError> {
    let stream = CudaContext::new(0)?.new_stream()?;
    let pixels = stream.clone_htod(&vec![9u8; stored_bytes])?;
    let sample =
        ColorSample { pixels: address(&pixels), pitch_bytes: 24, width: 8, height: 4, ..ColorSample::default() };
    let samples = stream.clone_htod(bytes_of(&[sample]))?;
    let parameter = Launch { samples: address(&samples), count: 1, ..Launch::default() };
    let pixels = if freed {
        drop(pixels);
        None
    } else {
        Some(pixels)
    };
    launch(&stream, "grayscale_u8_nhwc", [1, 1, 1], [32, 8, 1], parameter)?;
    stream.synchronize()?;
    pixels.map_or(Ok(Vec::new()), |pixels| stream.clone_dtoh(&pixels))
}

#[track_caller]
fn is_illegal(sim: &Sim, result: Result<Vec<u8>, DriverError>, expected: &[&str]) {
    let message = sim.message();
    assert_eq!(result.unwrap_err().0, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "{message}");
    for text in expected {
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn an_access_beyond_an_allocation_is_refused_and_named() {
    let sim = start();
    for seed in 0..20 {
        sim.reset(seed);
        assert_eq!(gray(96, false).unwrap(), [9; 96]);
        sim.reset(seed);
        let place = ["kernel grayscale_u8_nhwc", "block (0, 0, 0)", "of an allocation of 95 bytes"];
        is_illegal(&sim, gray(95, false), &place);
    }
}

#[test]
fn an_access_to_freed_memory_is_refused_and_named() {
    let sim = start();
    for seed in 0..20 {
        sim.reset(seed);
        is_illegal(&sim, gray(96, true), &["kernel grayscale_u8_nhwc", "a load of ", "it was freed"]);
    }
}

/// A launch with twice the threads that the kernel is for. The extra threads use the memory of others, between the same
/// barriers.
#[test]
fn threads_that_do_not_wait_for_each_other_are_refused_and_named() {
    let sim = start();
    let run = |threads: u32| -> Result<Vec<u8>, DriverError> {
        let stream = CudaContext::new(0)?.new_stream()?;
        // A `JpegImage` without MCUs, with one block in each MCU. `jpeg_params.cuh` asserts both numbers.
        let mut image = [0u8; 344];
        image[292] = 1;
        let images = stream.clone_htod(&image)?;
        let parameter = Launch { samples: address(&images), count: 1, ..Launch::default() };
        launch(&stream, "jpeg_dc", [1, 1, 1], [threads, 1, 1], parameter)?;
        stream.synchronize()?;
        Ok(Vec::new())
    };
    for seed in 0..20 {
        sim.reset(seed);
        run(256).unwrap();
        is_illegal(&sim, run(512), &["kernel jpeg_dc", "in shared memory: ", "since the last __syncthreads"]);
    }
}

#[test]
fn what_is_no_image_is_refused() {
    let _sim = start();
    let context = CudaContext::new(0).unwrap();
    for image in ["cuda-sim kernels\n", "// by hand\n.version 9.0\n.target sm_75\n", "\u{7f}ELF"] {
        context.load_module(Ptx::from_binary([image.as_bytes(), &[0]].concat())).unwrap();
    }
    for image in ["", "cuda-sim kernel", "// by hand\n", ".version 9.0\n", "ELF", "\n version"] {
        let result = context.load_module(Ptx::from_binary([image.as_bytes(), &[0]].concat()));
        assert_eq!(result.unwrap_err().0, CUresult::CUDA_ERROR_INVALID_IMAGE, "{image:?}");
    }
}

#[test]
fn run_gives_a_program_the_driver_and_the_kernels() {
    assert!(through_run("as_run_sets_it_up", &[]).contains("on simulated device"));
}

/// This test does not load the driver by itself.
#[test]
#[ignore = "needs the script run; run_gives_a_program_the_driver_and_the_kernels runs it"]
fn as_run_sets_it_up() {
    println!("on {}", CudaContext::new(0).unwrap().name().unwrap());
    let image = std::fs::read(std::env::var_os("WARPFEED_KERNELS").unwrap()).unwrap();
    assert_eq!(image, include_bytes!("../../kernels.image"));
    let halving = Halving::new();
    assert!(halving.through_driver().unwrap() == halving.directly());
}
