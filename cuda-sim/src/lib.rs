//! A simulated CUDA device: warpfeed's kernels, compiled for the host. Times here say nothing about a device.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::{Mutex, PoisonError};

unsafe extern "C" {
    fn cuda_sim_check_with(range: Range, illegal: Illegal);
    fn cuda_sim_count(counts: *mut Counts);
    fn cuda_sim_kernel_count() -> usize;
    fn cuda_sim_kernel_name(i: usize) -> *const c_char;
    fn cuda_sim_map(bytes: usize) -> *mut u8;
    fn cuda_sim_unmap(end: *mut u8, bytes: usize);
    fn cuda_sim_launch(
        kernel: usize,
        grid: *const u32,
        block: *const u32,
        parameters: *const c_void,
        order: u64,
    ) -> c_int;
}

/// The parameter of every kernel (`Launch` in kernels/descriptors.cuh), as bytes.
pub const LAUNCH_BYTES: usize = 24;

/// Finds the range of memory that contains an address; the end is excluded. Returns false if there is none.
pub type Range = extern "C" fn(address: usize, start: *mut usize, end: *mut usize) -> bool;

/// Receives a refused access: its address and bytes, and a C string that says who did what.
pub type Illegal = extern "C" fn(address: usize, bytes: usize, what: *const c_char);

/// Makes each memory access of kernels be checked before it is made, from now on. A refused access ends the launch.
///
/// # Safety
/// No kernel is running, and from now on two kernels never run at the same time.
pub unsafe fn check_with(range: Range, illegal: Illegal) {
    // SAFETY: the caller's promise. Functions stay where they are.
    unsafe { cuda_sim_check_with(range, illegal) };
}

/// Counts of the memory accesses of a launch's warps. An access is one of the host compiler's, which equals the
/// device's access for bytes and numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses of warps to device memory.
    pub accesses: u64,
    /// Sectors of 32 bytes in these accesses, counted separately for each access.
    pub sectors: u64,
    /// Accesses of warps to shared memory.
    pub shared_accesses: u64,
    /// Wavefronts of these accesses: several words of one bank need several wavefronts.
    pub shared_wavefronts: u64,
}

/// The reason why a launch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchError {
    /// The grid or block is not possible on a device, or there is no memory for the threads' stacks.
    Configuration = 1,
    /// Some threads of a block wait in `__syncthreads` for others that have ended or wait in another.
    Divergence = 2,
    /// An access to memory that the check of [`check_with`] refused.
    IllegalAccess = 3,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuration => "no device takes this grid and block",
            Self::Divergence => "some threads of a block wait for others that have ended or wait elsewhere",
            Self::IllegalAccess => "an access to memory was refused",
        })
    }
}

impl std::error::Error for LaunchError {}

/// A kernel of kernels/*.cu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel(usize);

impl Kernel {
    /// All kernels, in the order of their sources.
    pub fn all() -> impl Iterator<Item = Self> {
        // SAFETY: takes nothing and reads a constant.
        (0..unsafe { cuda_sim_kernel_count() }).map(Self)
    }

    /// The kernel with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::all().find(|kernel| kernel.name() == name)
    }

    /// The kernel's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        // SAFETY: the index is below the count, and names are constants that end in 0.
        unsafe { CStr::from_ptr(cuda_sim_kernel_name(self.0)) }.to_str().unwrap_or_default()
    }

    /// Runs the kernel to its end, its blocks in the order of their numbers.
    ///
    /// # Errors
    /// [`LaunchError`].
    ///
    /// # Safety
    /// `launch` must hold the parameters of kernels/descriptors.cuh, and everything that it points to must exist.
    pub unsafe fn launch(
        self,
        grid: [u32; 3],
        block: [u32; 3],
        launch: &[u8; LAUNCH_BYTES],
    ) -> Result<(), LaunchError> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_in_order(grid, block, launch, 0) }
    }

    /// Runs the kernel to its end, its blocks in an order that the number `order` decides.
    ///
    /// # Errors
    /// [`LaunchError`].
    ///
    /// # Safety
    /// The conditions of [`launch`](Self::launch).
    pub unsafe fn launch_in_order(
        self,
        grid: [u32; 3],
        block: [u32; 3],
        launch: &[u8; LAUNCH_BYTES],
        order: u64,
    ) -> Result<(), LaunchError> {
        #[repr(align(8))]
        struct Aligned([u8; LAUNCH_BYTES]);
        let launch = Aligned(*launch);
        // SAFETY: the index is below the count, both arrays have three numbers, the parameter is as long as the struct
        // and aligned; the rest is the caller's promise.
        match unsafe { cuda_sim_launch(self.0, grid.as_ptr(), block.as_ptr(), launch.0.as_ptr().cast(), order) } {
            0 => Ok(()),
            1 => Err(LaunchError::Configuration),
            2 => Err(LaunchError::Divergence),
            _ => Err(LaunchError::IllegalAccess),
        }
    }

    /// Runs the kernel to its end and counts its memory accesses.
    ///
    /// # Errors
    /// [`LaunchError`].
    ///
    /// # Safety
    /// The conditions of [`launch`](Self::launch). Moreover, no other kernel is running, except in this function.
    pub unsafe fn counted(
        self,
        grid: [u32; 3],
        block: [u32; 3],
        launch: &[u8; LAUNCH_BYTES],
    ) -> Result<Counts, LaunchError> {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = Counts::default();
        // SAFETY: the counts exist until they are taken back, and only this kernel runs meanwhile.
        let result = unsafe {
            cuda_sim_count(&raw mut counts);
            let result = self.launch(grid, block, launch);
            cuda_sim_count(std::ptr::null_mut());
            result
        };
        result.map(|()| counts)
    }
}

/// Content of fresh memory, and of the bytes between a piece and the ends of its pages.
const POISON: u8 = 0xa5;

/// A piece of device memory. It ends less than 16 bytes before a page that must not be accessed, so a kernel that reads
/// or writes beyond it ends with a fault. Writes around it within its pages are noticed when it is dropped.
#[derive(Debug)]
pub struct Memory {
    end: *mut u8,
    /// Number of bytes requested for the pages.
    mapped: usize,
    /// Distance of the first byte from the pages' end.
    start: usize,
    len: usize,
}

// SAFETY: it owns its pages, which belong to no thread.
unsafe impl Send for Memory {}

impl Memory {
    /// `len` poisoned bytes, `misaligned` bytes beyond an address that is a multiple of 16.
    ///
    /// # Panics
    /// If the system has no memory.
    #[must_use]
    pub fn new(len: usize, misaligned: usize) -> Self {
        let mapped = len + 16;
        // SAFETY: takes any number.
        let end = unsafe { cuda_sim_map(mapped) };
        assert!(!end.is_null(), "no memory for {len} bytes");
        // The end is a multiple of 16, because it is a multiple of the page size.
        let start = len + (misaligned.wrapping_neg().wrapping_sub(len)) % 16;
        let mut memory = Self { end, mapped, start, len };
        memory.bytes_mut().fill(POISON);
        let (before, after) = memory.around();
        // SAFETY: all of `mapped` bytes before the end are ours, and no other code has them yet.
        unsafe {
            before.0.write_bytes(POISON, before.1);
            after.0.write_bytes(POISON, after.1);
        }
        memory
    }

    /// Start and length of the rest of the memory before the piece and after it.
    fn around(&self) -> ((*mut u8, usize), (*mut u8, usize)) {
        let before = self.mapped - self.start;
        let after = self.start - self.len;
        ((self.end.wrapping_sub(self.mapped), before), (self.end.wrapping_sub(after), after))
    }

    /// The address of the piece.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.end.wrapping_sub(self.start) as u64
    }

    /// The content of the piece.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start` and `len` lie within the pages, and all of it was written by `new`.
        unsafe { std::slice::from_raw_parts(self.end.sub(self.start), self.len) }
    }

    /// The content of the piece.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; fresh pages hold zeros.
        unsafe { std::slice::from_raw_parts_mut(self.end.sub(self.start), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (before, after) = self.around();
        let whole = [before, after].into_iter().all(|(start, len)| {
            // SAFETY: as in `new`, which has written it.
            unsafe { std::slice::from_raw_parts(start, len) }.iter().all(|byte| *byte == POISON)
        });
        // SAFETY: as it was mapped; no reference is left.
        unsafe { cuda_sim_unmap(self.end, self.mapped) };
        assert!(whole || std::thread::panicking(), "a kernel wrote beside its memory");
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;

    #[test]
    fn memory_is_aligned_as_asked() {
        for len in [0, 1, 15, 16, 17, 4095, 4096, 5000] {
            for misaligned in 0..16 {
                let mut memory = Memory::new(len, misaligned);
                assert_eq!(memory.address() % 16, misaligned as u64);
                memory.bytes_mut().fill(1);
                assert_eq!(memory.bytes(), vec![1; len]);
            }
        }
    }

    #[test]
    #[should_panic = "wrote beside"]
    fn a_byte_written_before_it_is_noticed() {
        let memory = Memory::new(16, 0);
        // SAFETY: the pages have a byte before the first of the piece.
        unsafe { (memory.address() as *mut u8).sub(1).write(0) };
    }
}
