//! Feeds pictures to GPUs: decoding, augmentation and batching for Rust trainers.

mod cpu;
mod decode;
mod error;
mod picture;
mod recipe;

pub use error::{Error, Result};
pub use picture::{Picture, Pixel, Rect, Size};
pub use recipe::op::{CustomOp, Edge, Fill, Interpolation, Op, Resize, ResizeTo};
