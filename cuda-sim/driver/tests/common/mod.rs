//! The kernels and programs of the tests.

#![allow(dead_code, reason = "each test file uses some of this")]

#[path = "../../../tests/support/sim.rs"]
pub mod sim;

use cudarc::driver::sys::{CUevent_flags, CUresult};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg, result,
};
use cudarc::nvrtc::Ptx;
use libloading::os::unix::Library;
use sim::{Sim, open};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

/// An image that stands for the kernels registered here.
pub const IMAGE: &[u8] = b"cuda-sim kernels\n";

type LaunchWith = extern "C" fn(*mut c_void, *const u32, *const u32, u32, *const *mut c_void) -> c_int;
type Launch = extern "C" fn(*const u32, *const u32, u32, *const *mut c_void);

/// The driver, and its function that kernels ask before they access memory.
struct Driver {
    library: Library,
    check: extern "C" fn(*const u8, usize) -> bool,
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let library = open("libcuda_sim_driver.so");
        // SAFETY: the symbols have the types given to them here, and the library stays loaded as long as the static.
        unsafe {
            let check = *library.get(b"cuda_sim_check").unwrap();
            type Sized = extern "C" fn(*const c_char, Launch, usize, *const usize);
            let sized = library.get::<Sized>(b"cuda_sim_register_kernel_sized").unwrap();
            sized(c"add_one".as_ptr(), add_one, 2, [8usize, 8].as_ptr());
            sized(c"write_unguarded".as_ptr(), write_unguarded, 2, [8usize, 8].as_ptr());
            type With = extern "C" fn(*const c_char, LaunchWith, *mut c_void, usize, *const usize);
            let with = library.get::<With>(b"cuda_sim_register_kernel_with").unwrap();
            with(c"status_0".as_ptr(), status, std::ptr::null_mut(), 0, std::ptr::null());
            with(c"status_2".as_ptr(), status, std::ptr::without_provenance_mut(2), 0, std::ptr::null());
            let unsized_ = library.get::<extern "C" fn(*const c_char, Launch)>(b"cuda_sim_register_kernel").unwrap();
            unsized_(c"add_one_unsized".as_ptr(), add_one);
            Driver { library, check }
        }
    })
}

pub fn has_symbol(name: &str) -> bool {
    // SAFETY: only asks whether the symbol is there.
    unsafe { driver().library.get::<*const c_void>(name.as_bytes()).is_ok() }
}

/// `add_one(unsigned char *data, size_t bytes)`, which asks before it accesses memory, like kernels built for the host.
extern "C" fn add_one(_grid: *const u32, _block: *const u32, _shared_bytes: u32, params: *const *mut c_void) {
    // SAFETY: the launch passes these two parameters.
    let (data, bytes) = unsafe { ((*params).cast::<*mut u8>().read(), (*params.add(1)).cast::<usize>().read()) };
    if !(driver().check)(data, bytes) {
        return;
    }
    for i in 0..bytes {
        // SAFETY: checked just now.
        unsafe { *data.add(i) = (*data.add(i)).wrapping_add(1) };
    }
}

/// `write_unguarded(unsigned char *data, size_t bytes)`: a kernel without a bounds guard.
extern "C" fn write_unguarded(_grid: *const u32, _block: *const u32, _shared_bytes: u32, params: *const *mut c_void) {
    // SAFETY: the launch passes these two parameters. The tests go past an allocation by less than its fence.
    unsafe {
        let (data, bytes) = ((*params).cast::<*mut u8>().read(), (*params.add(1)).cast::<usize>().read());
        std::ptr::write_bytes(data, 0x11, bytes);
    }
}

/// Returns the status that it was registered with.
extern "C" fn status(
    data: *mut c_void,
    _grid: *const u32,
    _block: *const u32,
    _shared_bytes: u32,
    _params: *const *mut c_void,
) -> c_int {
    data.addr() as c_int
}

/// The simulation, with the kernels of these tests.
pub fn start() -> Sim {
    let sim = Sim::start();
    driver();
    let name = CudaContext::new(0).and_then(|context| context.name()).unwrap();
    assert_eq!(name, "simulated device", "cudarc found another driver: run the tests through cuda-sim/run");
    sim.reset(0);
    sim
}

/// The code of an error, for comparisons.
pub fn code<T: std::fmt::Debug>(result: Result<T, DriverError>) -> CUresult {
    result.expect_err("an error was expected").0
}

pub fn kernel(context: &Arc<CudaContext>, name: &str) -> Result<CudaFunction, DriverError> {
    context.load_module(Ptx::from_binary(IMAGE.to_vec()))?.load_function(name)
}

pub fn one_block() -> LaunchConfig {
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 }
}

pub fn launch(stream: &CudaStream, function: &CudaFunction, data: u64, bytes: usize) -> Result<(), DriverError> {
    // SAFETY: the kernels of these tests take an address and a size.
    unsafe { stream.launch_builder(function).arg(&data).arg(&bytes).launch(one_block()) }.map(drop)
}

/// Pinned memory that nothing guards, like a loader's staging buffers.
pub struct Pinned {
    pub address: *mut u8,
    pub bytes: usize,
}

impl Pinned {
    pub fn new(bytes: usize) -> Result<Self, DriverError> {
        // SAFETY: freed once, in drop.
        let address = unsafe { result::malloc_host(bytes, 0) }?.cast();
        Ok(Pinned { address, bytes })
    }

    pub fn fill(&self, value: u8) {
        // SAFETY: the block has this size. The queue may read it at any time, which is what the tests are about; it
        // does so through raw pointers within calls of this thread.
        unsafe { std::ptr::write_bytes(self.address, value, self.bytes) };
    }

    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }.to_vec()
    }

    /// # Safety
    ///
    /// Nothing may change the memory while the slice lives; it is for passing to a call.
    pub unsafe fn slice(&self) -> &'static mut [u8] {
        // SAFETY: by the function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated in new.
        let _ = unsafe { result::free_host(self.address.cast()) };
    }
}

/// Waits that a program of the tests may leave out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mistake {
    None,
    /// The kernel does not wait for the upload.
    NoUploadWait,
    /// The download does not wait for the kernel.
    NoKernelWait,
    /// The upload does not wait until its device buffer has been downloaded.
    NoReuseWait,
    /// The host refills the staging buffer without waiting for its upload.
    NoStagingWait,
    /// The host reads the result without waiting for the download.
    NoResultWait,
}

pub const BATCHES: u8 = 5;
const BATCH_BYTES: usize = 64;

/// A small loader: batches are uploaded on one stream, go through a kernel on a second, and are downloaded on a third,
/// through two device buffers and two staging buffers. Returns the downloaded batches.
pub fn loader(mistake: Mistake) -> Result<Vec<Vec<u8>>, DriverError> {
    let context = CudaContext::new(0)?;
    // SAFETY: the program's own events order the streams, unless it is to be wrong.
    unsafe { context.disable_event_tracking() };
    let function = kernel(&context, "add_one")?;
    let (up, compute, down) = (context.new_stream()?, context.new_stream()?, context.new_stream()?);
    let mut slots = Vec::new();
    for _ in 0..2 {
        // SAFETY: written before it is read.
        let device: CudaSlice<u8> = unsafe { up.alloc(BATCH_BYTES) }?;
        slots.push((device, Pinned::new(BATCH_BYTES)?, None::<(CudaEvent, CudaEvent)>));
    }
    // From here on, every stream may use the buffers.
    up.synchronize()?;
    let results: Vec<Pinned> = (0..BATCHES).map(|_| Pinned::new(BATCH_BYTES)).collect::<Result<_, _>>()?;
    let flags = Some(CUevent_flags::CU_EVENT_DISABLE_TIMING);
    let outcome = (|| {
        for batch in 0..BATCHES {
            let (device, staging, used) = &mut slots[usize::from(batch) % 2];
            let address = device_address(device);
            if let Some((uploaded, downloaded)) = used {
                if mistake != Mistake::NoStagingWait {
                    uploaded.synchronize()?;
                }
                if mistake != Mistake::NoReuseWait {
                    up.wait(downloaded)?;
                }
            }
            staging.fill(batch * 10);
            // SAFETY: the buffers outlive the queue, which is drained below.
            unsafe { result::memcpy_htod_async(address, staging.slice(), up.cu_stream()) }?;
            let uploaded = up.record_event(flags)?;
            if mistake != Mistake::NoUploadWait {
                compute.wait(&uploaded)?;
            }
            launch(&compute, &function, address, BATCH_BYTES)?;
            let computed = compute.record_event(flags)?;
            if mistake != Mistake::NoKernelWait {
                down.wait(&computed)?;
            }
            let result = &results[usize::from(batch)];
            // SAFETY: as above.
            unsafe { result::memcpy_dtoh_async(result.slice(), address, down.cu_stream()) }?;
            *used = Some((uploaded, down.record_event(flags)?));
        }
        if mistake != Mistake::NoResultWait {
            down.synchronize()?;
        }
        Ok(results.iter().map(Pinned::bytes).collect())
    })();
    // Nothing may be freed while the queue uses it, not even if the program failed.
    let drained = context.synchronize();
    outcome.and_then(|bytes| drained.map(|()| bytes))
}

/// The result of a right `loader`.
pub fn expected() -> Vec<Vec<u8>> {
    (0..BATCHES).map(|batch| vec![batch * 10 + 1; BATCH_BYTES]).collect()
}

/// The address of a slice, without the waits that cudarc would add.
pub fn device_address<T>(slice: &CudaSlice<T>) -> u64 {
    use cudarc::driver::DevicePtr;
    let (address, guard) = slice.device_ptr(slice.stream());
    std::mem::drop(guard);
    address
}
