//! Feeds pictures to GPUs: decoding, augmentation and batching for Rust trainers.

mod atomic;
mod cpu;
mod decode;
mod error;
pub mod experiment;
mod npy;
mod picture;
mod recipe;
mod sampler;
mod sheet;
mod source;

pub use error::{Error, Result};
pub use npy::{write_npy_f32, write_npy_u8};
pub use picture::{Picture, Pixel, Rect, Size};
pub use recipe::op::{CustomOp, Edge, Fill, Interpolation, Op, Resize, ResizeTo};
pub use sampler::{Order, Sampler, Shard};
pub use sheet::{contact_sheet, write_png};
pub use source::{EncodedPictures, ImageFolder, ListFile, MAX_ENCODED_BYTES, Source, open};
