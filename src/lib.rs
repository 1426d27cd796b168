//! Feeds pictures to GPUs: decoding, augmentation and batching for Rust trainers.

mod cpu;
mod decode;
mod error;
mod picture;
mod recipe;
mod sampler;
mod source;

pub use error::{Error, Result};
pub use picture::{Picture, Pixel, Rect, Size};
pub use recipe::op::{CustomOp, Edge, Fill, Interpolation, Op, Resize, ResizeTo};
pub use sampler::{Order, Sampler, Shard};
pub use source::{EncodedPictures, ImageFolder, ListFile, MAX_ENCODED_BYTES, Source, open};
