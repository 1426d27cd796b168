//! Options that several commands share, and what they mean to the library.

use super::source::SourceArgs;
use super::values::{bad_limit, decode_path, device, mix, size, targets};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use warpfeed::experiment::trial::Trial;
use warpfeed::{
    BadLimit, Builder, DType, DecodePath, Device, Error, ImageCache, LastBatch, Layout, Mix, OnError, Orientation,
    Partition, Pipeline, Preset, Rank, Result, Strategy, StreamPriority, TargetSpec,
    ops::{Op, Transform, TransformFile},
};

/// Which process of several.
#[derive(Clone, Copy)]
enum RankName {
    Auto,
    Given(Rank),
}

/// Reads a rank: `auto`, `R/W`.
fn rank(text: &str) -> std::result::Result<RankName, String> {
    match text {
        "auto" => Ok(RankName::Auto),
        _ => text.parse().map(RankName::Given).map_err(|error: warpfeed::Error| error.to_string()),
    }
}

/// The word that stands for a choice on the command line.
fn word(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub enum PresetName {
    /// Random resized crop 224, random horizontal flip, normalize.
    #[default]
    Train,
    /// As train, with AutoAugment for ImageNet before normalize.
    AutoAugment,
    /// As train, with RandAugment (2 operations of magnitude 9) before normalize.
    RandAugment,
    /// As train, with TrivialAugment before normalize.
    TrivialAugment,
    /// As train, with AugMix before normalize.
    AugMix,
    /// Shorter side to 256, center crop 224, normalize.
    Eval,
    /// Load x [flips, rotation by -5 to 5 degrees], random resized crop 224, normalize.
    TrialA,
    /// Load x [both flips, rotation by 5 degrees on a growing canvas], random resized crop 256, center crop 224, normalize.
    TrialB,
}

/// Which operations.
#[derive(Args)]
pub struct PresetOptions {
    /// The pipeline.
    #[arg(long, value_enum, default_value_t)]
    preset: PresetName,
    /// How many times trial-a and trial-b rotate and flip.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    load: u32,
    /// The pipeline as a JSON list of transforms and operations, instead of a preset: docs/operations.md.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "load"])]
    transforms: Option<PathBuf>,
}

impl PresetOptions {
    /// The operations of one view.
    pub fn ops(&self) -> Result<Vec<Transform>> {
        if let Some(file) = &self.transforms {
            return TransformFile::read(file)?.into_transforms();
        }
        Ok(match self.preset {
            PresetName::Train => Preset::Train.ops(),
            PresetName::AutoAugment => Preset::AutoAugment.ops(),
            PresetName::RandAugment => Preset::RandAugment.ops(),
            PresetName::TrivialAugment => Preset::TrivialAugment.ops(),
            PresetName::AugMix => Preset::AugMix.ops(),
            PresetName::Eval => Preset::Eval.ops(),
            PresetName::TrialA => Trial::A { load: self.load }.ops(),
            PresetName::TrialB => Trial::B { load: self.load }.ops(),
        })
    }

    /// Those on 8-bit images: all but normalization.
    pub fn pixel_ops(&self) -> Result<Vec<Transform>> {
        let mut ops = self.ops()?;
        ops.retain(|op| !matches!(op, Transform::Explicit(Op::Normalize(_))));
        Ok(ops)
    }

    /// Adds the operations, of one view or several, for batches of this type.
    fn add_to(&self, builder: Builder, dtype: DType) -> Result<Builder> {
        Ok(match &self.transforms {
            Some(file) if dtype == DType::U8 => builder.transforms(TransformFile::read(file)?.without_normalize()),
            Some(file) => builder.transforms(TransformFile::read(file)?),
            None if dtype == DType::U8 => self.pixel_ops()?.into_iter().fold(builder, Builder::augment),
            None => self.ops()?.into_iter().fold(builder, Builder::augment),
        })
    }

    /// Which they are, in words that differ where they do.
    fn settings(&self) -> Result<String> {
        let Some(file) = &self.transforms else {
            return Ok(format!("preset {}, load {}", word(&self.preset), self.load));
        };
        let written = serde_json::to_string(&TransformFile::read(file)?).map_err(|error| Error::Unsupported {
            feature: format!("writing down the transforms ({error})"),
            remedy: "leave --state out".to_owned(),
        })?;
        Ok(format!("transforms {written}"))
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub enum StrategyName {
    /// Neighboring operations in one pass, and only the pixels that the output needs; the same bytes as sequential.
    #[default]
    Fused,
    /// One pass for each operation.
    Sequential,
    /// One bilinear sampling for all rotations and flips: a different, sharper result.
    Composed,
}

impl From<StrategyName> for Strategy {
    fn from(name: StrategyName) -> Self {
        match name {
            StrategyName::Fused => Self::Fused,
            StrategyName::Sequential => Self::Sequential,
            StrategyName::Composed => Self::Composed,
        }
    }
}

/// Whose work a GPU does first.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum StreamPriorityName {
    /// The training step's, if its stream has a higher priority.
    #[default]
    Low,
    /// The pipeline's.
    High,
}

impl From<StreamPriorityName> for StreamPriority {
    fn from(name: StreamPriorityName) -> Self {
        match name {
            StreamPriorityName::Low => Self::Low,
            StreamPriorityName::High => Self::High,
        }
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub enum OrientationName {
    /// Turn images as their EXIF tag says.
    #[default]
    Apply,
    /// Take images as they are stored.
    Ignore,
}

impl From<OrientationName> for Orientation {
    fn from(name: OrientationName) -> Self {
        match name {
            OrientationName::Apply => Self::Apply,
            OrientationName::Ignore => Self::Ignore,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum DTypeName {
    F32,
    F16,
    Bf16,
    U8,
}

#[derive(Clone, Copy, ValueEnum)]
enum LayoutName {
    Nchw,
    Nhwc,
}

#[derive(Clone, Copy, ValueEnum)]
enum LastName {
    Keep,
    Drop,
    Pad,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnErrorName {
    Fail,
    Skip,
    Substitute,
}

/// How a pipeline runs.
#[derive(Args)]
pub struct PipelineOptions {
    #[command(flatten)]
    pub preset: PresetOptions,
    /// How operations are run.
    #[arg(long, value_enum, default_value_t)]
    strategy: StrategyName,
    /// Images in a batch.
    #[arg(long, value_name = "B", default_value_t = 32)]
    batch_size: usize,
    /// Worker threads [default: one for each processor]
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    /// Batches to prefetch: those being filled or ready ahead of the consumer [default: 2]
    #[arg(long, value_name = "P")]
    prefetch: Option<usize>,
    /// Seed of order and augmentations.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Read the partition of rank R of W: positions R, R + W, R + 2W, ... of each epoch's order. The rank also uses the
    /// GPU of its number on its machine, and leaves the other ranks there their processors. auto takes the rank from
    /// torchrun, Open MPI, PMI or Slurm; without them it is 0/1.
    #[arg(long, value_name = "R/W", value_parser = rank)]
    rank: Option<RankName>,
    /// Give every rank the same number of batches: a rank with one image fewer repeats one, as padding. With --last drop,
    /// ranks drop what the others lack.
    #[arg(long)]
    even: bool,
    /// End each epoch after K images.
    #[arg(long, value_name = "K")]
    limit: Option<u64>,
    /// Deliver targets beside the labels: class=K, multi-hot=K, float=N, soft=K, soft=K/SMOOTHING or bytes, and behind a
    /// colon the field that they are in, as in multi-hot=80:json.tags [default: none]
    #[arg(long, value_name = "SPEC", value_parser = targets)]
    targets: Option<TargetSpec>,
    /// Mix the images of each batch: torchvision=A/B or timm=A/B, the alphas of MixUp and CutMix, and behind commas mode=pair
    /// or elem, probability=P, switch=P, minmax=A/B, uncorrected [default: not mixed]
    #[arg(long, value_name = "SPEC", value_parser = mix)]
    mix: Option<Mix>,
    /// Keep the source's order.
    #[arg(long)]
    no_shuffle: bool,
    /// Type of the output [u8 is not normalized]
    #[arg(long, value_enum, default_value = "f32")]
    dtype: DTypeName,
    /// Layout of the output.
    #[arg(long, value_enum, default_value = "nchw")]
    layout: LayoutName,
    /// What to do with a last batch that is not full.
    #[arg(long, value_enum, default_value = "keep")]
    last: LastName,
    /// What to do with an image that cannot be used.
    #[arg(long, value_enum, default_value = "fail")]
    on_error: OnErrorName,
    /// Fail if more images of an epoch than this cannot be used: a number or, as in 1%, a share [default: fail if the
    /// first 100, or all, cannot]
    #[arg(long, value_name = "N|P%", value_parser = bad_limit)]
    max_bad: Option<BadLimit>,
    /// EXIF orientation.
    #[arg(long, value_enum, default_value_t)]
    orientation: OrientationName,
    /// Decode truncated JPEGs as far as they go, instead of refusing them.
    #[arg(long)]
    accept_truncated: bool,
    /// Image cache: keep up to SIZE of decoded images in memory from one epoch to the next: 500MB, 4GB, 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    image_cache: Option<u64>,
    /// Keep the image cache in this folder, from one run to the next.
    #[arg(long, value_name = "FOLDER", requires = "image_cache")]
    image_cache_dir: Option<PathBuf>,
    /// Resize the shorter side to PX pixels before anything else; with --image-cache only once for each image.
    #[arg(long, value_name = "PX")]
    resize_first: Option<u32>,
    /// Where augmentations run: auto, cpu, cuda, cuda:I.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
    device: Device,
    /// What decodes for a GPU: auto (nvJPEG, exact without it), exact (GPU and CPU, the CPU's bytes), device (GPU, the CPU's
    /// bytes), cpu, hybrid (nvJPEG), hardware (the GPU's hardware decoder), fastest (nvJPEG and CPU, by measured speed).
    #[arg(long, value_name = "PATH", default_value = "auto", value_parser = decode_path)]
    decode: DecodePath,
    /// Limit of a GPU's memory for in-flight batches, in bytes [default: half of what is free]
    #[arg(long, value_name = "BYTES")]
    device_memory: Option<u64>,
    /// Use pageable staging memory for copies to a GPU, where pinned memory is scarce.
    #[arg(long)]
    pageable: bool,
    /// Priority of the pipeline's streams on a GPU.
    #[arg(long, value_enum, default_value_t)]
    stream_priority: StreamPriorityName,
}

impl PipelineOptions {
    pub fn build(&self, source: &SourceArgs) -> Result<Pipeline> {
        self.builder(source)?.build()
    }

    /// The description of the pipeline, with the source open.
    pub fn builder(&self, source: &SourceArgs) -> Result<Builder> {
        let rank = self.rank()?;
        let device = match (self.device, rank) {
            (Device::Auto, Some(rank)) if rank.device().available().is_ok() => rank.device(),
            (device, _) => device,
        };
        // The device and the transforms first: whoever asks for what is not there learns it before a large folder is listed.
        device.available()?;
        if let Some(file) = &self.preset.transforms {
            TransformFile::read(file)?;
        }
        let builder = Pipeline::builder(source.open()?);
        let builder = if self.no_shuffle { builder.seed(self.seed) } else { builder.shuffle(self.seed) };
        let mut builder = builder
            .batch_size(self.batch_size)
            .partition(rank.map_or(Partition::WHOLE, Rank::partition))
            .even(self.even)
            .strategy(self.strategy.into())
            .orientation(self.orientation.into())
            .accept_truncated(self.accept_truncated)
            .device(device)
            .decode(self.decode)
            .pinned(!self.pageable)
            .stream_priority(self.stream_priority.into())
            .on_error(match self.on_error {
                OnErrorName::Fail => OnError::Fail,
                OnErrorName::Skip => OnError::Skip,
                OnErrorName::Substitute => OnError::Substitute,
            })
            .last_batch(match self.last {
                LastName::Keep => LastBatch::Keep,
                LastName::Drop => LastBatch::Drop,
                LastName::Pad => LastBatch::Pad,
            });
        builder = self.threads.or(rank.map(Rank::threads)).into_iter().fold(builder, Builder::threads);
        builder = self.prefetch.into_iter().fold(builder, Builder::prefetch);
        builder = self.device_memory.into_iter().fold(builder, Builder::device_memory);
        builder = self.max_bad.into_iter().fold(builder, Builder::max_bad);
        builder = self.limit.into_iter().fold(builder, Builder::limit);
        builder = self.targets.iter().cloned().fold(builder, Builder::targets);
        builder = self.mix.iter().cloned().fold(builder, Builder::mix);
        builder = self.cache().into_iter().fold(builder, Builder::cache);
        builder = self.resize_first.into_iter().fold(builder, Builder::resize_shorter);
        let layout = match self.layout {
            LayoutName::Nchw => Layout::Nchw,
            LayoutName::Nhwc => Layout::Nhwc,
        };
        let dtype = match self.dtype {
            DTypeName::F32 => DType::F32,
            DTypeName::F16 => DType::F16,
            DTypeName::Bf16 => DType::Bf16,
            DTypeName::U8 => DType::U8,
        };
        Ok(self.preset.add_to(builder, dtype)?.output(dtype, layout))
    }

    fn cache(&self) -> Option<ImageCache> {
        let size_bytes = self.image_cache?;
        Some(match &self.image_cache_dir {
            Some(folder) => ImageCache::disk(folder, size_bytes),
            None => ImageCache::memory(size_bytes),
        })
    }

    fn rank(&self) -> Result<Option<Rank>> {
        Ok(match self.rank {
            Some(RankName::Auto) => Some(Rank::from_environment()?.unwrap_or_default()),
            Some(RankName::Given(rank)) => Some(rank),
            None => None,
        })
    }

    /// The name that a file has where each rank needs one of its own.
    pub fn own_file(&self, path: PathBuf) -> Result<PathBuf> {
        let Some(rank) = self.rank()?.filter(|rank| rank.world_size() > 1) else { return Ok(path) };
        let mut name = path.into_os_string();
        name.push(format!(".{}", rank.rank()));
        Ok(name.into())
    }

    /// What decides about the output beside the source and what [`EpochState`](warpfeed::EpochState) holds, in words.
    pub fn settings(&self) -> Result<String> {
        let mut settings = format!(
            "{}, dtype {}, layout {}, orientation {}, last {}, on-error {}",
            self.preset.settings()?,
            word(&self.dtype),
            word(&self.layout),
            word(&self.orientation),
            word(&self.last),
            word(&self.on_error),
        );
        if matches!(self.last, LastName::Drop) {
            settings += &format!(", batch-size {}", self.batch_size);
        }
        if matches!(self.strategy, StrategyName::Composed) {
            settings += ", strategy composed";
        }
        if let Some(side) = self.resize_first {
            settings += &format!(", resize-first {side}");
        }
        if let Some(targets) = &self.targets {
            settings += &format!(", targets {targets}");
        }
        if let Some(mix) = &self.mix {
            settings += &format!(", mix {mix}, batch-size {}", self.batch_size);
        }
        if self.accept_truncated {
            settings += ", accept-truncated";
        }
        Ok(settings)
    }
}
