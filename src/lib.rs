//! A data loader for training on images: decoding, augmentation and batching for Rust trainers.
//!
//! A [`Pipeline`] reads encoded images (JPEG, PNG, WebP) from a [source](source::Source), decodes the needed parts,
//! augments them, and delivers batches in order. Operations give the bytes of torchvision on PIL images; exceptions are
//! Gaussian blur, elastic, perspective, AugMix, and 16-bit gray PNGs. Unlike torchvision's `ImageFolder`, a pipeline
//! applies the EXIF orientation, unless [`Orientation::Ignore`] is set.
//!
//! A pipeline runs on the CPU, or on a CUDA device ([`Device::Cuda`]), where batches stay for a trainer on the same
//! device. The bytes are the same unless nvJPEG decodes ([`JpegDecoder`]).
//!
//! ```
//! use warpfeed::image::{Image, JpegOptions, encode_jpeg};
//! use warpfeed::ops::repeat;
//! use warpfeed::prelude::*;
//!
//! // Ten images in memory. `ImageFolder::open("imagenette2/train")?` reads a folder of class folders.
//! let jpeg = encode_jpeg(&Image::new(Size::new(96, 72)), &JpegOptions::default())?;
//! let images = (0..10).map(|i| (jpeg.clone(), i % 2));
//!
//! let train = Pipeline::builder(EncodedImages::new(images))
//!     .batch_size(4)
//!     .shuffle(42)
//!     .transform(repeat(2, [random_horizontal_flip(0.5), random_rotation(-5.0..=5.0)]))
//!     .transform(random_resized_crop(64))
//!     .normalize(IMAGENET_MEAN, IMAGENET_STD)
//!     .output(DType::F32, Layout::Nchw)
//!     .build()?;
//!
//! let mut images = 0;
//! for batch in train.epoch(0) {
//!     let batch = batch?;
//!     assert_eq!(batch.images().shape(), [batch.len(), 3, 64, 64]);
//!     assert_eq!(batch.images().as_slice::<f32>()?.len(), batch.len() * 3 * 64 * 64);
//!     assert_eq!(batch.labels()?.len(), batch.len());
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
//! | describing a pipeline | [`Pipeline::builder`], [`PipelineBuilder`], [`Preset`], [`Strategy`] |
//! | random transforms | [`ops`]; [`CustomTransform`](ops::CustomTransform) for your own |
//! | serving and evaluation, image by image | [`Preprocessor`], [`timm_ops`], [`hugging_face_ops`] |
//! | equal pixels in training and serving | [`contract`], [`Preprocessor::from_contract`] |
//! | several views of each image | [`PipelineBuilder::views`], [`view`](view()), [`five_crop`], [`ten_crop`] |
//! | boxes, masks and keypoints | [`fields`], [`PipelineBuilder::fields`] |
//! | images in memory, without a pipeline | [`transforms`], [`Op::apply`](ops::Op::apply) |
//! | explicit operations | [`Op`](ops::Op), [`Pipeline::recipe`], [`apply`](apply()) |
//! | running it | [`Pipeline::epoch`], [`Epoch`], [`Batch`], [`Tensor`], [`Stats`], [`ThreadTimes`] |
//! | a GPU | [`Device`], [`JpegDecoder`], [`StreamPriority`], [`CudaBuffer`], [`StreamOwner`] |
//! | batches in your own memory | [`PipelineBuilder::batch_memory`], [`BatchMemory`], [`Tensor::into_block`] |
//! | the order of samples | [`ShardedOrder`], [`Partition`], [`Rank`] for processes that train together |
//! | resuming after an interruption | [`EpochState`], [`Pipeline::resume`] |
//! | examining a batch later | [`Batch::receipts`], [`RunLog`], [`Replay`], [`Pipeline::stages`] |
//! | single images | [`image`]: decoding, JPEG encoding, PNG and NumPy files, contact sheets |
//! | packing shards | [`pack`] |
//! | checking a machine | [`doctor`](doctor()) |
//! | measuring a pipeline or a training step, synthetic images | the crate `warpfeed-bench` |
//! | the command, auditing a data set | the crate `warpfeed-cli` |
//!
//! # What is promised
//!
//! - A sample's pixels depend on the source, the operations, the seed, the epoch and the sample's index, not on
//!   threads, batch size, prefetch, ranks or the machine, and a seed keeps its meaning in later versions. Exceptions:
//!   mixed pixels ([`PipelineBuilder::mix`]) depend on the batch, those of a stream on window and rank, those that
//!   nvJPEG decodes on card and driver.
//! - [`Strategy::Fused`] gives the bytes of [`Strategy::Sequential`].
//! - Each epoch delivers every sample exactly once across all ranks, except with [`PipelineBuilder::sampler`], presets
//!   that repeat images, [`LastBatch::Drop`] and [`LastBatch::Pad`], [`PipelineBuilder::equal_batches`],
//!   [`PipelineBuilder::limit`], [`OnError::Skip`] and [`OnError::Substitute`].
//! - [`PipelineBuilder::build`] refuses wrong parameters, and from then on memory is bounded: [`Pipeline::memory`].
//!
//! # Errors
//!
//! The variants of [`Error`] are split by who is at fault. [`image::Error`] converts to it. The policy [`OnError`]
//! decides what happens to a bad sample ([`Error::is_bad_sample`]). A panic in a source or an operation becomes
//! [`Error::Panic`].
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `tiff` (default), `webp` (default) | TIFF and WebP images; without them they are bad samples |
//! | `zstd` | TIFF images with Zstandard compression |
//! | `cloud` | shards at `http://`, `https://`, `s3://`, `gs://` and `az://` |
//! | `parquet` | Parquet files of images, as Hugging Face publishes data sets |
//! | `zarr` | Zarr arrays as data sets ([other pixels](PipelineBuilder::pixels)) |
//! | `candle` | batches as tensors of candle 0.11 (`Tensor::into_candle`, `Batch::into_candle`), on the CPU without a copy |
//! | `candle-cuda` | the same on a GPU without a copy; needs the CUDA toolkit |
//! | `dlpack` | batches as DLPack tensors, without a copy (`Tensor::into_dlpack`) |
//! | `tracing` | spans of the crate `tracing` (target `warpfeed`, level trace) around the work on each sample and batch |
//! | `full` | all of these except `candle-cuda` |

// Nightly, as docs.rs has it: each name says which feature it takes.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod options;

mod address;
mod apply;
mod backend;
pub mod contract;
mod cuda;
mod device;
mod doctor;
mod error;
pub mod fields;
mod hex;
mod interpolation;
mod mix;
pub mod ops;
mod order;
mod os;
mod output;
pub mod pack;
mod pipeline;
mod pixels;
mod plan;
mod preprocess;
mod preset;
mod rng;
mod sampler;
pub mod shapes;
pub mod source;
#[cfg(feature = "cloud")]
mod store;
mod targets;
mod tensor;
mod trace;
pub mod transforms;

// Under the paths that the other modules know.
use warpfeed_image::{decode, encode, raster, simd};

pub use apply::{ApplyOptions, Thumbnail, apply, apply_with_fields};
pub use backend::{CpuFallbacks, Decoded};
pub use cuda::{CudaBuffer, StreamOwner};
pub use device::{Device, JpegDecoder, StreamPriority};
pub use doctor::{Check, doctor};
pub use error::{Error, Result};
pub use mix::{Mix, MixMode, Mixed};
pub use ops::orientation::Orientation;
pub use order::{EqualBatches, Order, Partition, Rank, ShardedOrder};
pub use pipeline::{
    BadLimit, BadSample, Batch, BatchImages, Bottleneck, CacheUsage, EntryPoints, Epoch, EpochState, ImageCache,
    ImageCrop, LastBatch, LogOptions, LogSummary, MemoryBound, OnError, PaddedImages, PaddedPipeline, Pipeline,
    PipelineBuilder, PipelineGroup, RaggedPipeline, Receipt, Replay, RunLog, Setting, SettingEffect, Stage, Stats,
    View, five_crop, ten_crop, view,
};
pub use pixels::Pixels;
pub use plan::Strategy;
pub use preprocess::{Preprocessor, PreprocessorOptions, hugging_face_ops, timm_ops};
pub use preset::{IMAGENET_MEAN, IMAGENET_STD, Preset};
pub use sampler::{EpochOrder, Sampler};
pub use targets::{MAX_TARGET_BYTES, Target, TargetSpec, TargetType};
pub use tensor::{
    BatchMemory, DType, DeviceOf, Element, FieldTensor, FieldValues, Layout, MemoryBlock, TargetBytes, TargetElement,
    TargetTensor, Targets, Tensor,
};
pub use trace::ThreadTimes;

/// Single images: decoding, encoding, writing. Most of it is the crate `warpfeed-image`.
pub mod image {
    pub use crate::output::sheet::{contact_sheet, write_image, write_png};
    pub use crate::tensor::write_npy;
    pub use warpfeed_image::planes;
    pub use warpfeed_image::{
        ChromaSampling, Decoder, Error, Format, Header, Image, JpegColor, JpegOptions, Pixel, Rect, Size, encode_jpeg,
        probe,
    };
}

/// The names that most trainers use: `use warpfeed::prelude::*;`.
pub mod prelude {
    pub use crate::image::Size;
    pub use crate::ops::{
        CenterCrop, Interpolation, Resize, color_jitter, maybe, one_of, random_crop, random_dilation, random_erasing,
        random_erosion, random_gaussian_blur, random_grayscale, random_horizontal_flip, random_order,
        random_resized_crop, random_rotation, random_vertical_flip,
    };
    #[cfg(feature = "parquet")]
    pub use crate::source::ParquetFiles;
    pub use crate::source::{
        CifarFiles, CocoFiles, DecodedImages, EncodedImages, IdxFile, ImageFolder, ListFile, MaskFolder, PanopticFiles,
        RecordShards, Source, SourceExt, VocFolder, YoloFolder, open_splits,
    };
    pub use crate::{
        Batch, DType, Device, Epoch, EpochState, IMAGENET_MEAN, IMAGENET_STD, JpegDecoder, LastBatch, Layout, OnError,
        Pipeline, PipelineBuilder, Preset, Rank, Strategy, TargetSpec, Targets,
    };
}

/// Internal items that the crates `warpfeed-bench` and `warpfeed-cli` use. They change in any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::address::message_without_secrets;
    pub use crate::backend::Twice;
    pub use crate::backend::cuda::fatbin::keep_loaded;
    pub use crate::cuda::driver::driver_is_there;
    pub use crate::ops::orientation::oriented;
    pub use crate::os::memory::reserve;
    pub use crate::pipeline::HostImages;
    pub use crate::rng::{Domain, SampleRng};
    #[cfg(feature = "candle")]
    pub use crate::tensor::candle_failed;

    /// The commit of the build, where it is known.
    pub const COMMIT: Option<&str> = option_env!("WARPFEED_COMMIT");

    pub mod atomic {
        pub use crate::os::atomic::{
            LEFTOVER_AGE, folder_of, remove_leftovers, sync_folder, write, write_output, write_synced,
        };
    }
    pub mod cards {
        pub use crate::backend::cuda::cards::{Card, cards, pci_addresses};
    }
    pub mod file {
        pub use crate::os::file::{if_there, open_by, version_of_sample};
    }
    pub mod hex {
        pub use crate::hex::{hex, unhex};
    }
    pub mod lock {
        pub use crate::os::lock::{Lock, beside, is_held, only_writer};
    }
    pub mod notice {
        pub use crate::os::notice::is_new;
    }
    pub mod measure {
        pub use crate::backend::cuda::engines::EngineOptions;
        pub use crate::backend::cuda::measure::Spin;
        pub use crate::backend::cuda::measure::decode_only::{Area, Beside, Decoders, beside_a_step, decode_only};
        pub use crate::backend::cuda::measure::decode_whole::{Whole, WholeDecoder};
    }
    pub mod route {
        pub use crate::backend::cuda::route::{is_jpeg_for_device, on_hardware};
    }
    pub mod threads {
        pub use crate::os::threads::{MAX_THREADS, spawn_scoped};
    }
}

/// The Rust code of README.md and docs/ compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/coming-from.md")]
#[doc = include_str!("../docs/contract.md")]
#[doc = include_str!("../docs/detection.md")]
#[doc = include_str!("../docs/gpu.md")]
#[doc = include_str!("../docs/operations.md")]
#[doc = include_str!("../docs/pytorch.md")]
#[doc = include_str!("../docs/ranks.md")]
#[doc = include_str!("../docs/replay.md")]
#[doc = include_str!("../docs/serving.md")]
#[doc = include_str!("../docs/sources.md")]
#[doc = include_str!("../docs/streams.md")]
#[doc = include_str!("../docs/targets.md")]
#[doc = include_str!("../docs/transforms.md")]
#[doc = include_str!("../docs/views.md")]
struct Readme;

/// The Rust code of the page for trainers of one's own compiles.
#[cfg(all(doctest, feature = "dlpack"))]
#[doc = include_str!("../docs/own-trainer.md")]
struct OwnTrainerPage;

/// The Rust code of the page for candle compiles.
#[cfg(all(doctest, feature = "candle"))]
#[doc = include_str!("../docs/candle.md")]
struct CandlePage;
