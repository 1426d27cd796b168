//! Where recipes run.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Where the operations run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// On the first GPU if there is one that can be used, otherwise on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the CUDA device with this number.
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

/// Whose work a GPU does first: a pipeline's, or a trainer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamPriority {
    /// The pipeline's streams have the lowest priority, which is also that of a stream made without one. A trainer whose
    /// stream has a higher one (`cuStreamCreateWithPriority`) is not held up by the next batches.
    #[default]
    Low,
    /// The pipeline's streams have the highest priority: for a trainer that would wait for batches otherwise.
    High,
}

/// Who decodes JPEGs if recipes run on a GPU. An image that a decoder does not take, or fails on, goes to another
/// decoder; other formats than JPEG go to the CPU. The crate's own decoder on the device makes the CPU decoder's pixels, and
/// nvJPEG's differ a little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DecodePath {
    /// nvJPEG decodes what it can, the hardware decoder first, on data-center cards. An image's header alone decides, so a
    /// run repeats itself on the same card. Where there is no nvJPEG, this is [`Exact`](Self::Exact).
    #[default]
    Auto,
    /// Each image goes where it will be done first, by the speeds of all decoders measured so far. The choice for an
    /// image, and with it its pixels, may differ from run to run. Where there is no nvJPEG, this is
    /// [`Exact`](Self::Exact).
    Fastest,
    /// The crate's own decoder on the device and the CPU share the work, by their measured speeds. The bytes are those of
    /// [`Device::Cpu`] whoever decodes.
    Exact,
    /// The crate's own decoder on the device decodes all that it takes: baseline images, gray, RGB, and with usual
    /// sampling. The bytes are those of [`Device::Cpu`].
    Device,
    /// The CPU decodes, and only the part that is needed. The bytes are those of [`Device::Cpu`].
    Cpu,
    /// nvJPEG decodes: Huffman codes on the CPU, the rest on the device.
    Hybrid,
    /// nvJPEG decodes on the device's hardware decoder, which data-center cards since the A100 have. The hybrid decoder
    /// takes what it does not.
    Hardware,
}

impl FromStr for DecodePath {
    type Err = Error;

    /// Reads `auto`, `exact`, `device`, `fastest`, `cpu`, `hybrid` or `hardware`.
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
            "exact" => Self::Exact,
            "device" => Self::Device,
            "fastest" => Self::Fastest,
            "cpu" => Self::Cpu,
            "hybrid" => Self::Hybrid,
            "hardware" => Self::Hardware,
            _ => {
                let names = "auto, exact, device, fastest, cpu, hybrid or hardware";
                return Err(Error::parameter("decode", "path", names, format!("{text:?}")));
            }
        })
    }
}
