//! Opens a back end for a device.

use super::cpu::{Cpu, output::Tables};
use super::cuda::{self, Gpu};
use super::{AnyBackend, RunOptions};
use crate::device::Device;
use crate::error::Result;
use crate::ops::normalize::Normalization;
use std::sync::Arc;

/// A function that opens a back end: [`open`], or an experiment's own.
pub(crate) type Open<'a> = dyn Fn(Device, &Arc<RunOptions>, Normalization) -> Result<AnyBackend> + 'a;

/// Opens the back end for `device`.
///
/// # Errors
/// [`Error::Device`] if the device does not exist; [`Error::OutOfMemory`] or [`Error::OutOfDeviceMemory`] if there is
/// no memory for one batch.
pub(crate) fn open(device: Device, options: &Arc<RunOptions>, normalize: Normalization) -> Result<AnyBackend> {
    let tables = Tables::new(options.elements().dtype, normalize);
    match device.resolve()? {
        None => Cpu::open(options, tables).map(AnyBackend::Cpu),
        Some(ordinal) => Gpu::open(ordinal, options, &tables).map(Box::new).map(AnyBackend::Cuda),
    }
}

impl Device {
    /// Checks whether this device can run a pipeline.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) with the reason if it cannot.
    pub fn available(self) -> Result<()> {
        match self {
            Self::Auto | Self::Cpu => Ok(()),
            Self::Cuda(ordinal) => cuda::available(ordinal),
        }
    }

    /// The ordinal of the CUDA device to use; `None` for the CPU.
    #[doc(hidden)]
    pub fn resolve(self) -> Result<Option<u32>> {
        match self {
            Self::Cpu => Ok(None),
            Self::Auto => Ok(cuda::available(0).is_ok().then_some(0)),
            Self::Cuda(ordinal) => cuda::available(ordinal).map(|()| Some(ordinal)),
        }
    }
}
