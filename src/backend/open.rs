//! The choice of a back end.

use super::cpu::{Cpu, output::Tables};
use super::cuda::{self, Gpu};
use super::{AnyBackend, RunOptions};
use crate::device::Device;
use crate::error::Result;
use crate::ops::normalize::Normalization;
use std::sync::Arc;

/// A function that sets up a back end: [`open`], or an experiment's own.
pub(crate) type Open<'a> = dyn Fn(Device, &Arc<RunOptions>, Normalization) -> Result<AnyBackend> + 'a;

/// Sets up the back end for `device`.
///
/// # Errors
/// [`Error::Device`] if the device asked for is not there; [`Error::OutOfMemory`] and [`Error::OutOfDeviceMemory`] if not
/// even one batch has room.
pub(crate) fn open(device: Device, options: &Arc<RunOptions>, normalize: Normalization) -> Result<AnyBackend> {
    let tables = Tables::new(options.elements().dtype, normalize);
    match device.resolve()? {
        None => Cpu::open(options, tables).map(AnyBackend::Cpu),
        Some(ordinal) => Gpu::open(ordinal, options, &tables).map(Box::new).map(AnyBackend::Cuda),
    }
}

impl Device {
    /// Says whether this device can run a pipeline, and if not, why.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) with what was looked for.
    pub fn available(self) -> Result<()> {
        match self {
            Self::Auto | Self::Cpu => Ok(()),
            Self::Cuda(ordinal) => cuda::available(ordinal),
        }
    }

    /// The CUDA device to use, if any.
    pub(crate) fn resolve(self) -> Result<Option<u32>> {
        match self {
            Self::Cpu => Ok(None),
            Self::Auto => Ok(cuda::available(0).is_ok().then_some(0)),
            Self::Cuda(ordinal) => cuda::available(ordinal).map(|()| Some(ordinal)),
        }
    }
}
