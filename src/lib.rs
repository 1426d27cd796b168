//! Feeds images to GPUs: decoding, augmentation and batching for Rust trainers.
//!
//! A [`Pipeline`] reads encoded images (JPEG, PNG, WebP) from a [source](source::Source), decodes the parts that are needed,
//! augments them, and delivers batches in order from worker threads. Results equal those of Pillow and torchvision byte
//! for byte. It runs on the CPU, or on a CUDA device ([`Device::Cuda`]), where batches stay for a trainer on the same
//! device; with [`DecodePath::Cpu`] the bytes are the same.
//!
//! ```
//! use warpfeed::image::{Image, JpegOptions, encode_jpeg};
//! use warpfeed::prelude::*;
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
//! # Ok::<(), warpfeed::Error>(())
//! ```
//!
//! # Where things are
//!
//! | for | see |
//! | --- | --- |
//! | the names that most programs use | [`prelude`] |
//! | reading samples | [`source`]: folders, lists, shards, streams, memory; [`Source`](source::Source) for your own |
//! | describing a pipeline | [`Pipeline::builder`], [`Builder`], [`Preset`], [`Strategy`] |
//! | random transforms | [`ops`]: [`random_resized_crop`](ops::random_resized_crop) and others, [`CustomTransform`](ops::CustomTransform) for your own |
//! | serving and evaluation, image by image | [`Preprocessor`], [`timm_ops`], [`hugging_face_ops`] |
//! | several views of each image | [`Builder::views`], [`view`](view()), [`five_crop`], [`ten_crop`] |
//! | explicit operations | [`Op`](ops::Op), [`Pipeline::recipe`], [`apply`](apply()) |
//! | running it | [`Pipeline::epoch`], [`Epoch`], [`Batch`], [`Tensor`], [`Stats`] |
//! | a GPU | [`Device`], [`DecodePath`], [`StreamPriority`], [`CudaBuffer`] |
//! | the order of samples | [`Sampler`], [`Partition`], [`Rank`] for processes that train together |
//! | going on after an end | [`EpochState`], [`Pipeline::resume`] |
//! | single images | [`image`]: decoding, JPEG encoding, PNG and NumPy files, contact sheets |
//! | packing shards | [`pack`] |
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
//!
//! `tracing` gives spans of the crate of that name (target `warpfeed`, level trace) around what is done for each sample and
//! batch.

// Nightly, as docs.rs has it: each name says which feature it takes.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod apply;
mod atomic;
mod backend;
mod cuda;
mod decode;
mod device;
mod doctor;
mod encode;
mod engine;
mod error;
#[cfg(feature = "experiment")]
pub mod experiment;
mod file;
mod memory;
mod mix;
mod npy;
pub mod ops;
pub mod pack;
mod pipeline;
mod plan;
mod preprocess;
mod preset;
mod rank;
mod raster;
mod sampler;
mod sampling;
mod sheet;
pub mod source;
#[cfg(feature = "cloud")]
mod store;
mod target;
mod tensor;
mod threads;
mod trace;

// The C library behind `decode` and `encode`: named so that it is linked.
use mozjpeg_sys as _;

pub use apply::{ApplyOptions, apply};
pub use cuda::CudaBuffer;
pub use decode::LeftToCpu;
#[cfg(fuzzing)]
pub use decode::device_model;
pub use device::{DecodePath, Device, StreamPriority};
pub use doctor::{Check, doctor};
pub use error::{Error, Result};
pub use mix::{Mix, MixMode, Mixed};
pub use pipeline::{
    BadLimit, BadSample, Batch, Bottleneck, Builder, CacheUsage, Epoch, EpochState, ImageCache, LastBatch, MemoryBound,
    OnError, Orientation, Pipeline, PipelineGroup, Stats, UnequalBatch, UnequalEpoch, UnequalPipeline, View, five_crop,
    ten_crop, view,
};
pub use plan::Strategy;
pub use preprocess::{Preprocessor, PreprocessorOptions, hugging_face_ops, timm_ops};
pub use preset::{IMAGENET_MEAN, IMAGENET_STD, Preset};
pub use rank::Rank;
pub use sampler::{Even, Order, Partition, Sampler};
pub use sampling::{EpochOrder, Sampling};
pub use target::{MAX_TARGET_BYTES, Target, TargetBytes, TargetElement, TargetSpec, TargetTensor, TargetType, Targets};
pub use tensor::{DType, Element, Layout, Tensor};

/// Single images: decoding, encoding, writing.
pub mod image {
    pub use crate::decode::{Decoder, Format, Header, probe};
    pub use crate::encode::{JpegColor, JpegOptions, Sampling, encode_jpeg};
    pub use crate::npy::write_npy;
    pub use crate::raster::{Image, Pixel, Rect, Size};
    pub use crate::sheet::{contact_sheet, write_png};
}

/// What most trainers use: `use warpfeed::prelude::*;`.
pub mod prelude {
    pub use crate::image::Size;
    pub use crate::ops::{
        Interpolation, color_jitter, gaussian_blur, maybe, one_of, random_crop, random_dilation, random_erasing,
        random_erosion, random_grayscale, random_horizontal_flip, random_order, random_resized_crop, random_rotation,
        random_vertical_flip, repeat,
    };
    pub use crate::source::{EncodedImages, ImageFolder, RecordShards, Source};
    pub use crate::{
        Batch, Builder, DType, DecodePath, Device, Epoch, IMAGENET_MEAN, IMAGENET_STD, LastBatch, Layout, OnError,
        Pipeline, Preset, Rank, Strategy, view,
    };
}

/// The Rust code of README.md and docs/ compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/gpu.md")]
#[doc = include_str!("../docs/operations.md")]
#[doc = include_str!("../docs/pytorch.md")]
#[doc = include_str!("../docs/ranks.md")]
#[doc = include_str!("../docs/sources.md")]
#[doc = include_str!("../docs/streams.md")]
#[doc = include_str!("../docs/targets.md")]
#[doc = include_str!("../docs/views.md")]
struct Readme;
