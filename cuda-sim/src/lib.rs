//! A simulated CUDA device over host memory, for warpfeed's tests: its kernels, compiled for the host. Nothing here says
//! anything about speed.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;

unsafe extern "C" {
    fn cuda_sim_kernel_count() -> usize;
    fn cuda_sim_kernel_name(i: usize) -> *const c_char;
    fn cuda_sim_launch(kernel: usize, grid: *const u32, block: *const u32, launch: *const c_void) -> c_int;
}

/// The parameter of every kernel (`Launch` in kernels/params.cuh), as bytes.
pub const LAUNCH_BYTES: usize = 24;

/// Why a launch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchError {
    /// A grid or block that no device takes, or no memory for the threads' stacks.
    Configuration,
    /// Some threads of a block wait in `__syncthreads` for others that have ended.
    Divergence,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuration => "no device takes this grid and block",
            Self::Divergence => "some threads of a block wait for others that have ended",
        })
    }
}

impl std::error::Error for LaunchError {}

/// A kernel of kernels/*.cu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel(usize);

impl Kernel {
    /// All of them, in the order of their sources.
    pub fn all() -> impl Iterator<Item = Self> {
        // SAFETY: takes nothing and reads a constant.
        (0..unsafe { cuda_sim_kernel_count() }).map(Self)
    }

    /// The one of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::all().find(|kernel| kernel.name() == name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        // SAFETY: the index is below the count, and names are constants that end in 0.
        unsafe { CStr::from_ptr(cuda_sim_kernel_name(self.0)) }.to_str().unwrap_or_default()
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// [`LaunchError`].
    ///
    /// # Safety
    /// `launch` must hold what kernels/params.cuh asks for, and all that it points to must be there.
    pub unsafe fn launch(
        self,
        grid: [u32; 3],
        block: [u32; 3],
        launch: &[u8; LAUNCH_BYTES],
    ) -> Result<(), LaunchError> {
        #[repr(align(8))]
        struct Aligned([u8; LAUNCH_BYTES]);
        let launch = Aligned(*launch);
        // SAFETY: the index is below the count, both arrays have three numbers, the parameter is as long as the struct
        // and aligned; the rest is the caller's promise.
        match unsafe { cuda_sim_launch(self.0, grid.as_ptr(), block.as_ptr(), launch.0.as_ptr().cast()) } {
            0 => Ok(()),
            1 => Err(LaunchError::Configuration),
            _ => Err(LaunchError::Divergence),
        }
    }
}
