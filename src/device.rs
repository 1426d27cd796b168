//! The device, the priority of its streams, and the decoder of JPEGs.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The device that runs the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Device {
    /// The first usable GPU ([`available`](Self::available)), or the CPU. A line on standard error says which GPU was
    /// skipped, and why.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device with this number.
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

text_value!(Device: "auto, cpu, cuda or cuda:I");

/// Priority of the pipeline's CUDA streams compared with the trainer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamPriority {
    /// The lowest priority, which is also CUDA's default. A trainer on a stream with a higher priority
    /// (`cuStreamCreateWithPriority`) goes first and is not held up by the next batches.
    #[default]
    Low,
    /// The highest priority, for a trainer that would otherwise wait for batches.
    High,
}

choices! {
    StreamPriority, "stream_priority":
    Low = "low", "The training step goes first, if its stream has a higher priority.";
    High = "high", "The pipeline goes first.";
}

/// The decoder of JPEGs if recipes run on a GPU.
///
/// If a decoder does not support an image or fails on it, another decoder takes the image. The CPU decodes all other
/// formats. The crate's own decoder on the device makes the same pixels as the CPU decoder; nvJPEG's pixels differ a
/// little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JpegDecoder {
    /// The crate's own decoder on the device. The CPU decodes a share of the images where the device is the slower of
    /// the two, by their measured speeds. The bytes are those of [`Device::Cpu`], whichever decodes.
    #[default]
    Auto,
    /// The crate's own decoder on the device decodes all images that it supports: baseline images that are gray, RGB,
    /// or YCbCr with usual sampling. The bytes are those of [`Device::Cpu`].
    Device,
    /// The CPU decodes, and decodes only the part that is needed. The bytes are those of [`Device::Cpu`].
    Cpu,
    /// nvJPEG decodes Huffman codes on the CPU, and does the rest on the device.
    Hybrid,
    /// nvJPEG decodes a share of the images
    /// ([`PipelineBuilder::hardware_share`](crate::PipelineBuilder::hardware_share)) on the device's hardware decoder,
    /// which data-center cards have since the A100. The hybrid decoder takes the others, images that the hardware decoder
    /// does not support, gray ones, and those above two megapixels.
    Hardware,
    /// As [`Hardware`](Self::Hardware), with the crate's own decoder on the device in place of the hybrid one, so that no
    /// image costs the CPU more than handing it over.
    HardwareDevice,
}

choices! {
    JpegDecoder, "jpeg_decoder":
    Auto = "auto", "Our own kernels, helped by the CPU where the GPU is the slower of the two; the CPU's bytes.";
    Device = "device", "Our own kernels; the CPU's bytes.";
    Cpu = "cpu", "The CPU.";
    Hybrid = "hybrid", "nvJPEG, with Huffman codes on the CPU.";
    Hardware = "hardware", "nvJPEG, on the GPU's hardware decoder and as hybrid.";
    HardwareDevice = "hardware-device", "nvJPEG's hardware decoder, and our own kernels.";
}
