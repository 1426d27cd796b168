//! Where recipes run.

use crate::error::{Error, Result};
use std::str::FromStr;

/// Where the augmentations run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// On the GPU where there is one that can be used, else on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the CUDA device of this number.
    Cuda(u32),
}

impl FromStr for Device {
    type Err = Error;

    /// Reads `auto`, `cpu`, `cuda` (device 0) or `cuda:I`.
    ///
    /// ```
    /// # use warpfeed::Device;
    /// assert_eq!("cuda:1".parse::<Device>()?, Device::Cuda(1));
    /// assert!("gpu".parse::<Device>().is_err());
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(0)),
            _ => text.strip_prefix("cuda:").and_then(|index| index.parse().ok()).map(Self::Cuda),
        }
        .ok_or_else(|| Error::parameter("device", "name", "auto, cpu, cuda or cuda:I", format!("{text:?}")))
    }
}

/// The names that the CUDA driver goes by.
const DRIVER_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

impl Device {
    /// Says whether this device can run a pipeline, and if not, why.
    ///
    /// # Errors
    /// [`Error::Device`] with what was looked for.
    pub fn available(self) -> Result<()> {
        let Self::Cuda(index) = self else { return Ok(()) };
        let call = format!("open CUDA device {index}");
        let looked_for = DRIVER_NAMES.join(" and ");
        let message = if driver_is_there() {
            "found the NVIDIA driver, but this version of warpfeed has no GPU back end yet: use Device::Cpu (--device cpu)"
                .to_owned()
        } else {
            format!(
                "no NVIDIA driver on this machine (looked for {looked_for} where the system's loader looks, \
                 LD_LIBRARY_PATH included), and this version of warpfeed has no GPU back end yet: use Device::Cpu (--device cpu)"
            )
        };
        Err(Error::Device { call, message })
    }
}

fn driver_is_there() -> bool {
    DRIVER_NAMES.iter().any(|name| {
        // SAFETY: loading NVIDIA's driver library runs its initialisers, which any program may run at any time, and
        // nothing of it is called here.
        #[allow(unsafe_code)]
        let library = unsafe { libloading::Library::new(*name) };
        library.is_ok()
    })
}
