//! Feeds images to GPUs: decoding, augmentation and batching for Rust trainers.
//!
//! A [`Pipeline`] reads encoded images (JPEG, PNG, WebP) from a [`Source`], decodes the parts that are needed,
//! augments them, and delivers batches in order from worker threads. Results equal those of Pillow and torchvision byte
//! for byte. It runs on the CPU, or on a CUDA device ([`Device::Cuda`]), where batches stay for a trainer on the same
//! device; with [`DecodePath::Cpu`] the bytes are the same.
//!
//! ```
//! use warpfeed::*;
//!
//! // Ten images in memory. `ImageFolder::open("imagenette2/train")?` reads a folder of class folders.
//! let jpeg = encode_jpeg(&Image::new(Size::new(96, 72)), &JpegOptions::default())?;
//! let images = (0..10).map(|i| (jpeg.clone(), i % 2));
//!
//! let train = Pipeline::builder(EncodedImages::new(images))
//!     .batch_size(4)
//!     .shuffle(42)
//!     .repeat(2, [random_horizontal_flip(0.5), random_rotation(-5.0..=5.0)])
//!     .random_resized_crop(64)
//!     .normalize(IMAGENET_MEAN, IMAGENET_STD)
//!     .output(DType::F32, Layout::Nchw)
//!     .build()?;
//!
//! let mut images = 0;
//! for batch in train.epoch(0) {
//!     let batch = batch?;
//!     assert_eq!(batch.images().shape(), [batch.len(), 3, 64, 64]);
//!     assert_eq!(batch.images().as_slice::<f32>()?.len(), batch.len() * 3 * 64 * 64);
//!     assert_eq!(batch.labels().len(), batch.len());
//!     images += batch.len();
//! }
//! assert_eq!(images, 10);
//! # Ok::<(), Error>(())
//! ```
//!
//! # Where things are
//!
//! | for | see |
//! | --- | --- |
//! | reading samples | [`ImageFolder`], [`ListFile`], [`EncodedImages`], [`DecodedImages`], [`open`], [`Source`] for your own |
//! | describing a pipeline | [`Pipeline::builder`], [`Builder`], [`Preset`], [`Strategy`] |
//! | random operations | [`random_resized_crop`] and the other functions, [`Transform`], [`CustomTransform`] for your own |
//! | explicit operations | [`Op`], [`Pipeline::recipe`], [`apply`] |
//! | running it | [`Pipeline::epoch`], [`Epoch`], [`Batch`], [`Tensor`], [`Stats`] |
//! | a GPU | [`Device`], [`DecodePath`], [`StreamPriority`], [`CudaBuffer`] |
//! | the order of samples | [`Sampler`], [`Partition`], [`Rank`] for processes that train together |
//! | going on after an end | [`EpochState`], [`Pipeline::resume`] |
//! | single images | [`probe`], [`Decoder`], [`Image`], [`encode_jpeg`], [`contact_sheet`], [`write_png`], [`write_npy`] |
//! | measuring | [`experiment`], [`doctor`](doctor()) |
//!
//! # What is promised
//!
//! - A sample's pixels depend on the source, the operations, the seed, the epoch and the sample's index. They do not
//!   depend on threads, batch size, prefetch, shards or the machine, and a seed keeps its meaning in later versions.
//! - [`Strategy::Fused`] gives the bytes of [`Strategy::Sequential`].
//! - Every sample comes once an epoch, whatever the number of shards.
//! - Wrong parameters are refused by [`Builder::build`]. Memory is bounded then: [`Pipeline::memory`].
//! - Dropping an [`Epoch`] joins its threads.
//!
//! # Errors
//!
//! There is one [`Error`], by who is at fault. What concerns a sample carries its index and name. What becomes of a bad
//! sample is the pipeline's policy, [`OnError`]; [`Error::is_bad_sample`] says which errors are meant. A panic in a
//! source or an operation becomes [`Error::Panic`].
//!
//! # Features
//!
//! `cli` (default) builds the command `warpfeed`. It implies `experiment`: the module [`experiment`], which measures
//! pipelines and makes images to measure them on. Programs that feed images to a trainer need neither:
//!
//! ```toml
//! warpfeed = { version = "0.1", default-features = false }
//! ```
//!
//! `webp` (default) decodes WebP images; without it they are bad samples.
//!
//! `parquet` reads Parquet files of images, `cloud` shards at `http://`, `https://`, `s3://`, `gs://` and `az://`.
//!
//! `candle` gives batches to candle 0.11 ([`Tensor::into_candle`], [`Batch::into_candle`]), `dlpack` to whatever speaks
//! DLPack ([`Tensor::into_dlpack`]), both without a copy.

mod apply;
mod atomic;
mod backend;
mod decode;
mod device;
mod doctor;
mod encode;
mod error;
#[cfg(feature = "experiment")]
pub mod experiment;
mod file;
mod image;
mod memory;
mod npy;
mod ops;
pub mod pack;
mod pipeline;
mod plan;
mod preset;
mod rank;

mod sampler;
mod sheet;
mod source;
mod tensor;
mod threads;

// The C library behind `decode` and `encode`: named so that it is linked.
use mozjpeg_sys as _;

pub use self::image::{Image, Pixel, Rect, Size};
pub use apply::{ApplyOptions, apply};
pub use backend::cuda::CudaBuffer;
pub use decode::{Decoder, Format, Header, probe};
pub use device::{DecodePath, Device, StreamPriority};
pub use doctor::{Check, doctor};
pub use encode::{JpegColor, JpegOptions, Sampling, encode_jpeg};
pub use error::{Error, Result};
pub use npy::write_npy;
pub use ops::fill::{Edge, Fill};
pub use ops::filter::{Interpolation, PassOrder};
pub use ops::resize::ResizeTo;
pub use ops::rng::SampleRng;
pub use ops::transform::{
    ColorJitter, CustomTransform, Maybe, OneOf, RandomCrop, RandomDilation, RandomErasing, RandomErosion,
    RandomGaussianBlur, RandomGrayscale, RandomHorizontalFlip, RandomInvert, RandomPosterize, RandomResizedCrop,
    RandomRotation, RandomSolarize, RandomVerticalFlip, Repeat, Transform, color_jitter, gaussian_blur, maybe, one_of,
    random_crop, random_dilation, random_erasing, random_erosion, random_grayscale, random_horizontal_flip,
    random_resized_crop, random_rotation, random_vertical_flip, repeat,
};
pub use ops::{
    Brightness, CenterCrop, Contrast, Crop, Custom, Dilate, Erase, Erode, GaussianBlur, Grayscale, Hflip, Hue, Invert,
    Normalize, Op, Posterize, Resize, ResizedCrop, Rotate, Saturation, SizeEffect, Solarize, Vflip,
};
pub use pipeline::{
    BadLimit, BadSample, Batch, Bottleneck, Builder, CacheUsage, Epoch, EpochState, ImageCache, LastBatch, MemoryBound,
    OnError, Orientation, Pipeline, Stats,
};
pub use plan::Strategy;
pub use preset::{IMAGENET_MEAN, IMAGENET_STD, Preset};
pub use rank::Rank;
pub use sampler::{Even, Order, Partition, Sampler};
pub use sheet::{contact_sheet, write_png};
#[cfg(feature = "parquet")]
pub use source::ParquetFiles;
#[cfg(feature = "cloud")]
pub use source::ShardCache;
pub use source::{
    DecodedImages, EncodedImages, IdxFile, ImageFolder, Input, ListFile, MAX_ENCODED_BYTES, OpenOptions, RecordFormat,
    RecordOptions, RecordShards, RecordStream, Samples, Source, SourceFormat, Stream, StreamOptions, StreamSample,
    StreamStart, open, without_secrets,
};
pub use tensor::{DType, Element, Layout, Tensor};

/// The Rust code of README.md and docs/ compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/gpu.md")]
#[doc = include_str!("../docs/operations.md")]
#[doc = include_str!("../docs/ranks.md")]
struct Readme;
