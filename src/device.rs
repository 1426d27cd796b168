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

impl Device {
    /// Says whether this device can run a pipeline, and if not, why.
    ///
    /// # Errors
    /// [`Error::Device`] with what was looked for.
    pub fn available(self) -> Result<()> {
        match self {
            Self::Auto | Self::Cpu => Ok(()),
            Self::Cuda(index) => Err(Error::Device {
                call: format!("open CUDA device {index}"),
                message: "this version of warpfeed has no GPU back end yet: use --device cpu".into(),
            }),
        }
    }
}
