//! Kernels of module images. CUDA_SIM_PTX names the program that compiles an image (cuda-sim/ptx).

use crate::api::sim::{cuda_sim_illegal, cuda_sim_launch_order, cuda_sim_range};
use crate::call::Out;
use crate::error::{Code, Result};
use crate::kernels::{self, Limits};
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// A module's kernels by name, each with its number among all kernels.
pub type Kernels = HashMap<String, usize>;

/// The program, if images are run.
static PROGRAM: LazyLock<Option<OsString>> =
    LazyLock::new(|| std::env::var_os("CUDA_SIM_PTX").filter(|value| !value.is_empty()));

/// A part of a memory, as in cpp/kernel.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    offset: usize,
    bytes: usize,
}

/// A kernel of a shared object, as in cpp/kernel.h.
#[repr(C)]
struct Kernel {
    name: *const c_char,
    function: *const c_void,
    most_threads: u32,
    waits: bool,
    parameters: *const Extent,
    parameter_count: usize,
    shared: *const Extent,
    shared_count: usize,
    lengths: *const u16,
    ranks: *const u16,
    first_line: usize,
}

/// Counts of a launch, as in cpp/ways.cpp.
#[repr(C)]
#[derive(Default)]
struct Ways {
    longest: u64,
    warp_instructions: u64,
    block_ways: u64,
}

type Range = extern "C" fn(usize, Out<usize>, Out<usize>) -> bool;
type Illegal = extern "C" fn(usize, usize, *const c_char);
type CountWays = unsafe extern "C" fn(*mut Ways);
type LaunchKernel = unsafe extern "C" fn(usize, *const u32, *const u32, *const c_void, u64) -> c_int;

/// The data of a kernel that `launch` needs.
struct Launched {
    name: String,
    launch: LaunchKernel,
    count: CountWays,
    index: usize,
    parameters: &'static [Extent],
}

/// The file that gets a line for each launch, if launches are counted.
static WAYS: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
    let path = std::env::var_os("CUDA_SIM_WAYS").filter(|path| !path.is_empty())?;
    match File::create(&path) {
        Ok(file) => Some(Mutex::new(file)),
        Err(error) => {
            eprintln!("cuda-sim: CUDA_SIM_WAYS={}: {error}", path.display());
            std::process::exit(2);
        }
    }
});

/// Whether images are run. If not, kernels are those that are registered.
pub fn is_on() -> bool {
    PROGRAM.is_some()
}

/// Loads the kernels of an image. An image that was loaded before gives the same kernels.
pub fn load(image: &[u8]) -> Result<Kernels> {
    static LOADED: Mutex<Vec<(Vec<u8>, Kernels)>> = Mutex::new(Vec::new());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, kernels)) = loaded.iter().find(|(other, _)| other == image) {
        return Ok(kernels.clone());
    }
    let kernels = make(image).and_then(|path| open(&path)).map_err(|what| {
        eprintln!("cuda-sim: {what}");
        Code::INVALID_IMAGE
    })?;
    loaded.push((image.to_vec(), kernels.clone()));
    Ok(kernels)
}

/// Has the program make a shared object of an image, in a folder next to the program. Returns its path.
fn make(image: &[u8]) -> std::result::Result<OsString, String> {
    let program = Path::new(PROGRAM.as_ref().ok_or("CUDA_SIM_PTX is not set")?);
    let failed = |error: std::io::Error| format!("CUDA_SIM_PTX={}: {error}", program.display());
    let mut command = Command::new(program);
    command.arg(program.with_file_name("cuda-sim-ptx-kernels")).stdin(Stdio::piped()).stdout(Stdio::piped());
    // The simulation is not for the compiler.
    command.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    let mut child = command.spawn().map_err(failed)?;
    // If it does not read, it says why.
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(image));
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err("the image cannot be run".to_owned());
    }
    written.map_err(failed)?;
    Ok(std::ffi::OsStr::from_bytes(output.stdout.trim_ascii_end()).to_owned())
}

fn open(path: &OsString) -> std::result::Result<Kernels, String> {
    let c_path = CString::new(path.as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a C string; the library is one made to be loaded into this process, and is never unloaded.
    let library = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let symbol = |name: &CStr| {
        // SAFETY: a handle that dlopen returned, and a C string.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if found.is_null() { Err(format!("{} lacks {}", path.display(), name.to_string_lossy())) } else { Ok(found) }
    };
    if library.is_null() {
        return Err(format!("{} cannot be loaded", path.display()));
    }
    let (count, kernel) = (symbol(c"cuda_sim_kernel_count")?, symbol(c"cuda_sim_kernel")?);
    let (check_with, launch_kernel) = (symbol(c"cuda_sim_check_with")?, symbol(c"cuda_sim_launch")?);
    let count_ways = symbol(c"cuda_sim_count_ways")?;
    // SAFETY: these functions of cpp/sim.cpp and cpp/ways.cpp have these types.
    let (count, kernel, check_with, launch_kernel, count_ways) = unsafe {
        (
            std::mem::transmute::<*mut c_void, extern "C" fn() -> usize>(count),
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *const Kernel>(kernel),
            std::mem::transmute::<*mut c_void, extern "C" fn(Range, Illegal)>(check_with),
            std::mem::transmute::<*mut c_void, LaunchKernel>(launch_kernel),
            std::mem::transmute::<*mut c_void, CountWays>(count_ways),
        )
    };
    check_with(cuda_sim_range, cuda_sim_illegal);
    let register = |index| {
        // SAFETY: the index is below the count, and the table is constant.
        let Kernel { name, most_threads, parameters, parameter_count, shared, shared_count, .. } =
            unsafe { kernel(index).read() };
        // SAFETY: arrays of the table, with these lengths, and a C string.
        let (name, parameters, shared) = unsafe {
            (
                CStr::from_ptr(name),
                std::slice::from_raw_parts(parameters, parameter_count),
                std::slice::from_raw_parts(shared, shared_count),
            )
        };
        let sizes = parameters.iter().map(|parameter| parameter.bytes).collect();
        let shared_bytes = shared.iter().map(|variable| variable.bytes as u32).sum();
        // For as long as the process lives.
        let name = name.to_string_lossy().into_owned();
        let launched = Launched { name: name.clone(), launch: launch_kernel, count: count_ways, index, parameters };
        let data = Box::into_raw(Box::new(launched));
        let limits = Limits { most_threads, shared_bytes };
        (name.clone(), kernels::add(name, launch, data as usize, sizes, limits))
    };
    Ok((0..count()).map(register).collect())
}

extern "C" fn launch(
    data: *mut c_void,
    grid: *const u32,
    block: *const u32,
    _shared_bytes: u32,
    params: *const *mut c_void,
) -> c_int {
    // SAFETY: the data that `open` has added the kernel with.
    let Launched { name, launch, count, index, parameters } = unsafe { &*data.cast::<Launched>() };
    let bytes = parameters.last().map_or(0, |last| last.offset + last.bytes);
    let mut values = vec![0u128; bytes.div_ceil(16)];
    for (i, parameter) in parameters.iter().enumerate() {
        // SAFETY: the driver has copied each parameter with its size, and the last one ends within the values.
        unsafe {
            let to = values.as_mut_ptr().cast::<u8>().add(parameter.offset);
            std::ptr::copy_nonoverlapping((*params.add(i)).cast::<u8>(), to, parameter.bytes);
        }
    }
    let mut ways = Ways::default();
    let counted = WAYS.as_ref();
    // SAFETY: grid and block have three numbers, and the parameters are laid out as the kernel has them. Whatever they
    // point to is checked when it is accessed. The counts live until they are taken back.
    let status = unsafe {
        if counted.is_some() {
            count(&raw mut ways);
        }
        let status = launch(*index, grid, block, values.as_ptr().cast(), cuda_sim_launch_order());
        if counted.is_some() {
            count(std::ptr::null_mut());
        }
        status
    };
    if let Some(file) = counted {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = writeln!(file, "{name}\t{}\t{}\t{}", ways.longest, ways.warp_instructions, ways.block_ways);
        if let Err(error) = written {
            eprintln!("cuda-sim: CUDA_SIM_WAYS: {error}");
            return 1;
        }
    }
    // The driver already knows of a refused access.
    if status == 3 { 0 } else { status }
}
