//! Mixed precision: convolutions and products in bfloat16, sums and normalization in f32.
#![allow(unsafe_code)]

use std::ffi::c_int;
use warpfeed::{Error, Result};

unsafe extern "C" {
    fn warpfeed_tch_autocast(cuda: c_int, on: c_int) -> c_int;
}

/// Switches mixed precision on for this thread until it is dropped.
pub(crate) struct Autocast {
    cuda: bool,
}

impl Autocast {
    pub(crate) fn begin(cuda: bool) -> Result<Self> {
        // SAFETY: numbers in, a number out; what it changes belongs to this thread.
        match unsafe { warpfeed_tch_autocast(cuda.into(), 1) } {
            0 => Ok(Self { cuda }),
            _ => Err(Error::Device { call: "autocast".to_owned(), message: "libtorch refuses it".to_owned() }),
        }
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        // SAFETY: as above. What was turned on can be turned off.
        unsafe { warpfeed_tch_autocast(self.cuda.into(), 0) };
    }
}
