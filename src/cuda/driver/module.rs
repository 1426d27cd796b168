//! Modules of kernels, and launches.
#![allow(unsafe_code)]

use super::{Context, Owned, Stream, check, enter};
use crate::error::Result;
use cudarc::driver::{result, sys};
use std::ffi::{CString, c_void};

/// A loaded module of kernels.
#[derive(Debug)]
pub(crate) struct Module(Owned<sys::CUmodule>);

/// A kernel of a module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: as for the driver's other objects.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads a fat binary, a cubin, or PTX that ends in a zero byte.
    pub(crate) fn load(context: &Context, image: &[u8]) -> Result<Self> {
        let _entered = enter(context)?;
        // The driver reads the length from the image itself. Zeros stop it from reading past the end of a truncated
        // image.
        let mut padded = image.to_vec();
        padded.resize(image.len() + 4096, 0);
        // SAFETY: the image is the crate's own or one that the user has named, and zeros follow it.
        let raw = check("cuModuleLoadData", unsafe { result::module::load_data(padded.as_ptr().cast()) })?;
        // SAFETY: it was just loaded. The streams that ran its kernels have been waited for when its owner is dropped.
        Ok(Self(unsafe { Owned::of(context, raw, |module| result::module::unload(module)) }))
    }

    /// The context that the module was loaded in.
    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }

    /// Finds a kernel by name. It is valid while the module lives.
    pub(crate) fn function(&self, name: &str) -> Result<Function> {
        let c_name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is alive.
        let raw = unsafe { result::module::get_function(self.0.handle, c_name) };
        check(&format!("cuModuleGetFunction({name})"), raw).map(Function)
    }
}

/// Queues a launch of a kernel that takes one parameter.
///
/// # Safety
/// `P` is the kernel's parameter, everything that it points to is valid for the kernel's grid until the launch is done,
/// and the function's module is alive.
pub(crate) unsafe fn launch<P>(
    name: &str,
    function: Function,
    [grid_x, grid_y, grid_z]: [u32; 3],
    [block_x, block_y, block_z]: [u32; 3],
    stream: &Stream,
    parameter: &P,
) -> Result<()> {
    let mut parameters = [std::ptr::from_ref(parameter).cast_mut().cast::<c_void>()];
    let (grid, block) = ((grid_x, grid_y, grid_z), (block_x, block_y, block_z));
    // SAFETY: the driver copies the parameter before it returns; the rest is the contract.
    let launched = unsafe { result::launch_kernel(function.0, grid, block, 0, stream.raw(), &mut parameters) };
    // The name is formatted only for an error.
    launched.or_else(|error| check(&format!("cuLaunchKernel({name})"), Err(error)))
}
