//! The kernels that may be launched: host functions with the names of device functions.

use crate::error::{Code, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Runs a whole launch. `grid` and `block` point to three numbers each, `params` to one pointer per parameter.
pub type Launch = extern "C" fn(grid: *const u32, block: *const u32, shared_bytes: u32, params: *const *mut c_void);

/// Like `Launch`, for many kernels with one function. `data` is the pointer from registration. Returns 0, or a number
/// that says why the kernel failed.
pub type LaunchWith = extern "C" fn(
    data: *mut c_void,
    grid: *const u32,
    block: *const u32,
    shared_bytes: u32,
    params: *const *mut c_void,
) -> c_int;

#[derive(Clone, Copy)]
enum Function {
    Own(Launch),
    Shared(LaunchWith, usize),
}

struct Kernel {
    name: String,
    function: Function,
    /// Sizes of the parameters in bytes, if they were given.
    sizes: Option<Vec<usize>>,
    /// Limits of a kernel that belongs to one module's image, and cannot be found by its name alone.
    limits: Option<Limits>,
}

/// The limits of a kernel, as its image has them.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Largest number of threads in a block.
    pub most_threads: u32,
    /// Static shared memory.
    pub shared_bytes: u32,
}

static KERNELS: Mutex<Vec<Kernel>> = Mutex::new(Vec::new());

fn kernels() -> MutexGuard<'static, Vec<Kernel>> {
    KERNELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parameters of one launch, copied during the call, each aligned to 16 bytes.
pub struct Arguments(Vec<Vec<u128>>);

/// Number of parameters that are tried if it is unknown, and number of bytes copied of each: the most that CUDA passes.
const UNKNOWN_COUNT: usize = 16;
const UNKNOWN_BYTES: usize = 4096;

pub fn find(name: &CStr) -> Option<usize> {
    let name = name.to_str().ok()?;
    kernels().iter().position(|kernel| kernel.limits.is_none() && kernel.name == name)
}

/// The limits of a kernel that has other ones than the device.
pub fn limits(kernel: usize) -> Option<Limits> {
    kernels()[kernel].limits
}

/// Adds a kernel of a module's image; its number.
pub fn add(name: String, launch: LaunchWith, data: usize, sizes: Vec<usize>, limits: Limits) -> usize {
    let mut kernels = kernels();
    let function = Function::Shared(launch, data);
    kernels.push(Kernel { name, function, sizes: Some(sizes), limits: Some(limits) });
    kernels.len() - 1
}

/// Copies the parameters that `params` points at.
pub fn capture(kernel: usize, params: *const *mut c_void) -> Result<Arguments> {
    let sizes = kernels()[kernel].sizes.clone();
    let Some(sizes) = sizes else { return Ok(capture_unknown(params)) };
    if sizes.is_empty() {
        return Ok(Arguments(Vec::new()));
    }
    if params.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut copies = Vec::new();
    for (i, &size) in sizes.iter().enumerate() {
        let mut copy = vec![0u128; size.div_ceil(16)];
        // SAFETY: by the contract of cuLaunchKernel there is a pointer for each parameter of the kernel, and it points
        // to the parameter. The code that registered the kernel is responsible for its size.
        unsafe {
            let from = *params.add(i);
            if from.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), copy.as_mut_ptr().cast(), size);
        }
        copies.push(copy);
    }
    Ok(Arguments(copies))
}

/// The driver learns a kernel's parameters from its image; here they may be unknown. They must still be copied before
/// the launch returns, so everything that can be read where they could be is copied. Bytes beyond them are never used.
/// Reading through the operating system's kernel reports missing memory instead of faulting.
fn capture_unknown(params: *const *mut c_void) -> Arguments {
    static OWN: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/mem").ok());
    let Some(own) = OWN.as_ref() else {
        eprintln!("cuda-sim: /proc/self/mem cannot be read: register kernels with cuda_sim_register_kernel_sized");
        std::process::exit(2);
    };
    let read = |address: usize, into: &mut [u8]| {
        let mut taken = 0;
        while taken < into.len() {
            match own.read_at(&mut into[taken..], (address + taken) as u64) {
                Ok(bytes) if bytes > 0 => taken += bytes,
                _ => break,
            }
        }
        taken
    };
    let mut copies = Vec::new();
    let mut bytes = [0; UNKNOWN_BYTES];
    for i in 0..UNKNOWN_COUNT {
        let mut pointer = [0; size_of::<usize>()];
        let slot = (params as usize).wrapping_add(i * pointer.len());
        if params.is_null() || read(slot, &mut pointer) < pointer.len() {
            break;
        }
        let taken = match usize::from_ne_bytes(pointer) {
            // A process has no addresses in the upper half.
            address if address as isize > 0 => read(address, &mut bytes),
            _ => 0,
        };
        let words = bytes[..taken].chunks(16).map(|chunk| {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        });
        copies.push(words.collect());
    }
    Arguments(copies)
}

/// Decides the order of the blocks of the launch that runs.
static ORDER: AtomicU64 = AtomicU64::new(0);

/// The number that decides about the order of the launch that runs.
pub fn order() -> u64 {
    ORDER.load(Ordering::Relaxed)
}

/// Runs a launch, its blocks in an order that `order` decides. Returns the kernel's name and its status, which is 0 on
/// success.
pub fn run(
    kernel: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    arguments: &Arguments,
    order: u64,
) -> (String, c_int) {
    ORDER.store(order, Ordering::Relaxed);
    let (function, name) = {
        let kernels = kernels();
        (kernels[kernel].function, kernels[kernel].name.clone())
    };
    let pointers: Vec<*mut c_void> = arguments.0.iter().map(|copy| copy.as_ptr() as *mut c_void).collect();
    let (grid, block, params) = (grid.as_ptr(), block.as_ptr(), pointers.as_ptr());
    let status = match function {
        Function::Own(launch) => {
            launch(grid, block, shared_bytes, params);
            0
        }
        Function::Shared(launch, data) => launch(data as *mut c_void, grid, block, shared_bytes, params),
    };
    (name, status)
}

fn register(name: *const c_char, function: Function, sizes: Option<Vec<usize>>) {
    // SAFETY: callers pass a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let mut kernels = kernels();
    let kernel = Kernel { name, function, sizes, limits: None };
    // Functions are identified by their index, so a kernel that is registered again keeps it.
    match kernels.iter_mut().find(|known| known.limits.is_none() && known.name == kernel.name) {
        Some(known) => *known = kernel,
        None => kernels.push(kernel),
    }
}

fn given_sizes(count: usize, sizes: *const usize) -> Option<Vec<usize>> {
    Some(match count {
        0 => Vec::new(),
        // SAFETY: callers pass `count` sizes.
        _ => unsafe { std::slice::from_raw_parts(sizes, count) }.to_vec(),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_register_kernel(name: *const c_char, launch: Launch) {
    register(name, Function::Own(launch), None);
}

/// Like `cuda_sim_register_kernel`, for a kernel with `count` parameters of these sizes in bytes. This is exact, and
/// cheaper to launch.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_register_kernel_sized(
    name: *const c_char,
    launch: Launch,
    count: usize,
    sizes: *const usize,
) {
    register(name, Function::Own(launch), given_sizes(count, sizes));
}

/// Registers one of several kernels that share a function, with `data` to distinguish them. A status other than 0 fails
/// the context with CUDA_ERROR_LAUNCH_FAILED.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_register_kernel_with(
    name: *const c_char,
    launch: LaunchWith,
    data: *mut c_void,
    count: usize,
    sizes: *const usize,
) {
    register(name, Function::Shared(launch, data as usize), given_sizes(count, sizes));
}

/// Loads the shared object of CUDA_SIM_KERNELS once, and makes it register its kernels.
pub fn load_from_environment() -> Result<()> {
    static LOADED: Mutex<bool> = Mutex::new(false);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(path) = std::env::var_os("CUDA_SIM_KERNELS").filter(|path| !path.is_empty() && !*loaded) else {
        return Ok(());
    };
    let c_path = CString::new(path.as_encoded_bytes()).map_err(|_| Code::INVALID_VALUE)?;
    // Programs load drivers for themselves alone. After this call, kernels find the driver's functions too.
    // SAFETY: a C string; nothing is loaded that is not already.
    unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_NOLOAD) };
    // SAFETY: a C string, and the library is one made to be loaded into this process; it is never unloaded.
    let library = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    let entry = match library.is_null() {
        true => std::ptr::null_mut(),
        // SAFETY: a handle that dlopen returned, and a C string.
        false => unsafe { libc::dlsym(library, c"cuda_sim_kernels".as_ptr()) },
    };
    if entry.is_null() {
        // SAFETY: dlerror returns null or a C string that stays until this thread's next call of the loader.
        let reason = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
        eprintln!("cuda-sim: CUDA_SIM_KERNELS={}: {}", path.display(), reason.unwrap_or(c"?").to_string_lossy());
        return Err(Code::SHARED_OBJECT_INIT_FAILED);
    }
    // SAFETY: the library's contract gives the symbol this type.
    let entry: extern "C" fn(extern "C" fn(*const c_char, Launch)) = unsafe { std::mem::transmute(entry) };
    entry(cuda_sim_register_kernel);
    *loaded = true;
    Ok(())
}
