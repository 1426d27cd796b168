//! Feeds pictures to GPUs: decoding, augmentation and batching for Rust trainers.

mod cpu;
mod decode;
mod encode;
mod error;
mod picture;
mod recipe;

// The C library behind `decode` and `encode`: named so that it is linked.
use mozjpeg_sys as _;

pub use decode::{Decoder, Format, Header, probe};
pub use encode::{JpegColor, JpegOptions, Sampling, encode_jpeg};
pub use error::{Error, Result};
pub use picture::{Picture, Pixel, Rect, Size};
pub use recipe::op::{CustomOp, Edge, Fill, Interpolation, Op, Resize, ResizeTo};
