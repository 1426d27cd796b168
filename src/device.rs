//! Where recipes run.

use crate::error::{Error, Result};
use std::fmt;
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

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
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

/// Who decodes JPEGs where recipes run on a GPU. Other formats, and JPEGs of a kind that a decoder does not take, go to
/// one that does; so does an image that it fails on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DecodePath {
    /// Each image where it will be done first, by what the decoders were measured to take. nvJPEG's pixels differ a
    /// little from the CPU's, and which image goes where differs from run to run.
    #[default]
    Auto,
    /// The CPU, and only the part that is needed: the bytes of [`Device::Cpu`].
    Cpu,
    /// nvJPEG: Huffman codes on the CPU, the rest on the device.
    Hybrid,
    /// nvJPEG on the device's hardware decoder, which data-centre cards since the A100 have; what they do not take goes the
    /// hybrid way.
    Hardware,
}

impl FromStr for DecodePath {
    type Err = Error;

    /// Reads `auto`, `cpu`, `hybrid` or `hardware`.
    ///
    /// ```
    /// # use warpfeed::DecodePath;
    /// assert_eq!("hybrid".parse::<DecodePath>()?, DecodePath::Hybrid);
    /// assert!("gpu".parse::<DecodePath>().is_err());
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "auto" => Self::Auto,
            "cpu" => Self::Cpu,
            "hybrid" => Self::Hybrid,
            "hardware" => Self::Hardware,
            _ => {
                return Err(Error::parameter("decode", "path", "auto, cpu, hybrid or hardware", format!("{text:?}")));
            }
        })
    }
}
