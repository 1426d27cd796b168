//! Opens a back end for a device.

use super::cpu::{Cpu, output::Tables};
use super::cuda::{self, Gpu};
use super::{AnyBackend, RunOptions};
use crate::device::Device;
use crate::error::Result;
use crate::ops::normalize::Normalization;
use std::sync::{Arc, Once};

/// A function that opens a back end: [`open`], or an experiment's own.
pub(crate) type Open<'a> = dyn Fn(Device, &Arc<RunOptions>, Normalization) -> Result<AnyBackend> + 'a;

/// Opens the back end for `device`.
///
/// # Errors
/// [`Error::Device`] if the device does not exist; [`Error::OutOfMemory`] or [`Error::OutOfDeviceMemory`] if there is
/// no memory for one batch.
pub(crate) fn open(device: Device, options: &Arc<RunOptions>, normalize: Normalization) -> Result<AnyBackend> {
    let tables = Tables::of(options, normalize);
    match device.resolve()? {
        None => Cpu::open(options, tables).map(|cpu| AnyBackend::cpu(cpu, options, None)),
        Some(ordinal) => Gpu::open(ordinal, options, &tables).map(|gpu| AnyBackend::cuda(gpu, options)),
    }
}

impl Device {
    /// Checks whether this device can run a pipeline: a GPU has a context that works, and takes the kernels. The
    /// kernels stay loaded for the next pipeline.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) or [`Error::Cuda`](crate::Error::Cuda) with the reason if it cannot.
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
            Self::Auto => {
                let (found, reasons) = cuda::first_available();
                tell(found, &reasons);
                Ok(found)
            }
            Self::Cuda(ordinal) => cuda::available(ordinal).map(|()| Some(ordinal)),
        }
    }
}

/// Prints one line to standard error, once in a process, if `auto` skips a GPU.
fn tell(found: Option<u32>, reasons: &[String]) {
    static ONCE: Once = Once::new();
    if let Some(line) = passed_over(found, reasons) {
        ONCE.call_once(|| eprintln!("{line}"));
    }
}

fn passed_over(found: Option<u32>, reasons: &[String]) -> Option<String> {
    let device = found.map_or(Device::Cpu, Device::Cuda);
    let line = || format!("warpfeed: the device auto is {device}: {}", reasons.join("; ").replace('\n', " "));
    (!reasons.is_empty()).then(line)
}

#[cfg(test)]
mod tests {
    use super::passed_over;

    #[test]
    fn a_gpu_that_is_passed_over_is_named_with_its_reason_in_one_line() {
        let reasons = ["cuda:0 cannot be used: too\nold", "cuda:1 cannot be used: broken"].map(str::to_owned);
        let line = passed_over(None, &reasons).unwrap();
        assert_eq!(
            line,
            "warpfeed: the device auto is cpu: cuda:0 cannot be used: too old; cuda:1 cannot be used: broken"
        );
        assert!(
            passed_over(Some(1), &reasons[..1]).unwrap().starts_with("warpfeed: the device auto is cuda:1: cuda:0")
        );
        assert_eq!(passed_over(Some(0), &[]), None);
        assert_eq!(passed_over(None, &[]), None);
    }
}
