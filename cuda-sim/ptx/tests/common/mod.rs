//! PTX made for a test, compiled, and run on the test's memory.

#![allow(unsafe_code, dead_code, reason = "each test program uses some of this")]

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The head of every module.
pub const HEAD: &str = ".version 9.0\n.target sm_75\n.address_size 64\n";

/// A kernel with one parameter, an address of global memory in %in, and registers of all sizes.
pub fn kernel(name: &str, body: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 {name}_param)\n{{\n.reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<9>;\n\
         .reg .b64 %d<9>;\n.reg .b64 %in;\nld.param.u64 %in, [{name}_param];\n{body}\nret;\n}}\n"
    )
}

type Range = extern "C" fn(usize, *mut usize, *mut usize) -> bool;
type Illegal = extern "C" fn(usize, usize, *const c_char);

/// A compiled module. Its launches take turns.
pub struct Compiled {
    launch: unsafe extern "C" fn(usize, *const u32, *const u32, *const c_void, u64) -> c_int,
    count: unsafe extern "C" fn(*mut [u64; 3]),
    names: Vec<String>,
}

/// The memory that a kernel may access, and what was refused.
static ALLOWED: Mutex<(usize, usize)> = Mutex::new((0, 0));
static REFUSED: Mutex<String> = Mutex::new(String::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn range(address: usize, start: *mut usize, end: *mut usize) -> bool {
    let (first, last) = *lock(&ALLOWED);
    // SAFETY: the simulation passes places for both.
    unsafe {
        start.write(first);
        end.write(last);
    }
    (first..last).contains(&address)
}

extern "C" fn illegal(_address: usize, _bytes: usize, what: *const c_char) {
    // SAFETY: the simulation passes a C string.
    *lock(&REFUSED) = unsafe { CStr::from_ptr(what) }.to_string_lossy().into_owned();
}

impl Compiled {
    /// Compiles kernels that follow `HEAD`.
    pub fn new(kernels: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ptx");
        let path = cuda_sim_ptx::library(format!("{HEAD}{kernels}").as_bytes(), &folder).unwrap();
        // SAFETY: a library that was made to be loaded, with these functions; it stays loaded.
        unsafe {
            let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).unwrap();
            library.get::<extern "C" fn(Range, Illegal)>(b"cuda_sim_check_with").unwrap()(range, illegal);
            let count = library.get::<extern "C" fn() -> usize>(b"cuda_sim_kernel_count").unwrap()();
            let name = library.get::<extern "C" fn(usize) -> *const c_char>(b"cuda_sim_kernel_name").unwrap();
            let names = (0..count).map(|i| CStr::from_ptr(name(i)).to_str().unwrap().to_owned()).collect();
            let (launch, count) =
                (*library.get(b"cuda_sim_launch").unwrap(), *library.get(b"cuda_sim_count_ways").unwrap());
            std::mem::forget(library);
            Self { launch, count, names }
        }
    }

    /// The instructions on the longest way of `blocks` blocks of threads, those of all warps, and those on the ways of
    /// all blocks. For programs with one test.
    pub fn counted(&self, name: &str, blocks: u32, threads: u32) -> [u64; 3] {
        let mut ways = [0; 3];
        // SAFETY: the counts live until they are taken back.
        unsafe { (self.count)(&raw mut ways) };
        self.run(name, [blocks, 1, 1], [threads, 1, 1], 0, &mut [0]).unwrap();
        // SAFETY: null is allowed.
        unsafe { (self.count)(std::ptr::null_mut()) };
        ways
    }

    /// Runs a kernel on `memory`. Returns the refused access, if there was one.
    pub fn run(
        &self,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        order: u64,
        memory: &mut [u64],
    ) -> Result<(), String> {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = lock(&ONE);
        let index = self.names.iter().position(|other| other == name).unwrap();
        // Aligned as allocations of a device are.
        let mut aligned = vec![0u128; memory.len().div_ceil(2)];
        let (address, bytes) = (aligned.as_mut_ptr(), size_of_val(memory));
        // SAFETY: the copy is as long as the memory, or longer.
        unsafe { std::ptr::copy_nonoverlapping(memory.as_ptr().cast::<u8>(), address.cast(), bytes) };
        *lock(&ALLOWED) = (address as usize, address as usize + bytes);
        lock(&REFUSED).clear();
        // SAFETY: grid and block have three numbers, the parameter is an address, and what the kernel accesses is
        // checked.
        let status = unsafe { (self.launch)(index, grid.as_ptr(), block.as_ptr(), (&raw const address).cast(), order) };
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), memory.as_mut_ptr().cast(), bytes) };
        match status {
            0 => Ok(()),
            3 => Err(lock(&REFUSED).clone()),
            other => Err(format!("status {other}")),
        }
    }
}
