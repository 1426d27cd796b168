//! Feeds pictures to GPUs: decoding, augmentation and batching for Rust trainers.

mod apply;
mod atomic;
mod cpu;
mod decode;
mod doctor;
mod encode;
mod error;
pub mod experiment;
mod npy;
mod picture;
mod pipeline;
mod recipe;
mod sampler;
mod sheet;
mod source;
mod tensor;

// The C library behind `decode` and `encode`: named so that it is linked.
use mozjpeg_sys as _;

pub use apply::{ApplyOptions, apply};
pub use decode::{Decoder, Format, Header, probe};
pub use doctor::{Check, doctor};
pub use encode::{JpegColor, JpegOptions, Sampling, encode_jpeg};
pub use error::{Error, Result};
pub use npy::write_npy;
pub use picture::{Picture, Pixel, Rect, Size};
pub use pipeline::{
    BadSample, Batch, Builder, Device, Epoch, LastBatch, MemoryBound, OnError, Orientation, Pipeline, Stats,
};
pub use recipe::Strategy;
pub use recipe::draw::Draw;
pub use recipe::op::{CustomOp, Edge, Fill, Interpolation, Op, Resize, ResizeTo};
pub use recipe::preset::{IMAGENET_MEAN, IMAGENET_STD, Preset};
pub use recipe::random::{
    Augmentation, RandomOp, color_jitter, gaussian_blur, maybe, one_of, random_crop, random_dilation, random_erasing,
    random_erosion, random_grayscale, random_horizontal_flip, random_resized_crop, random_rotation,
    random_vertical_flip, repeat,
};
pub use sampler::{Order, Sampler, Shard};
pub use sheet::{contact_sheet, write_png};
pub use source::{EncodedPictures, ImageFolder, ListFile, MAX_ENCODED_BYTES, Source, open};
pub use tensor::{DType, Element, Layout, Tensor};
