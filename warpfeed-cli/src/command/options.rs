//! Options that several commands share, and their values in the library.

use super::source::SourceArgs;
use super::values::{EntryPointsValue, RankName, bad_limit, entry_points, sides, size};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use warpfeed::image::Size;
use warpfeed::ops::{Resize, Transform, TransformFile};
use warpfeed::{
    BadLimit, DType, Device, EntryPoints, Error, ImageCache, JpegDecoder, LastBatch, Layout, Mix, OnError, Orientation,
    Partition, Pipeline, PipelineBuilder, Preset, Rank, Result, Sampler, Strategy, StreamPriority, TargetSpec,
    Thumbnail,
};
use warpfeed_bench::trial::{Trial, loaded};

/// The name of an option's value on the command line.
fn word(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A preset of the library, or a trial of the experiments.
#[derive(Clone, Copy)]
pub enum PresetName {
    Own(Preset),
    TrialA,
    TrialB,
}

impl Default for PresetName {
    fn default() -> Self {
        Self::Own(Preset::Train)
    }
}

impl ValueEnum for PresetName {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<PresetName>> = LazyLock::new(|| {
            Preset::ALL.iter().copied().map(PresetName::Own).chain([PresetName::TrialA, PresetName::TrialB]).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Own(preset) => PossibleValue::new(preset.name()).help(preset.description()),
            Self::TrialA => PossibleValue::new("trial-a")
                .help("Load x [flips, rotation by -5 to 5 degrees], random resized crop 224, normalize"),
            Self::TrialB => PossibleValue::new("trial-b").help(
                "Load x [both flips, rotation by 5 degrees on a growing canvas], random resized crop 256, center crop \
                 224, normalize",
            ),
        })
    }
}

/// Options for the operations.
#[derive(Args)]
pub struct PresetOptions {
    /// Pipeline. With a published recipe, run and preview also mix images, repeat samples and deliver its fields.
    #[arg(long, value_enum, default_value_t)]
    preset: PresetName,
    /// Repetitions: of the flips and the rotation in trial-a and trial-b, or of an automatic augmentation.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    load: u32,
    /// Pipeline from a file: a JSON list of transforms and operations (docs/operations.md), instead of a preset.
    ///
    /// The list itself may stand in place of FILE: '[{"transform": ...}]'.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "load"])]
    transforms: Option<PathBuf>,
}

impl PresetOptions {
    /// The preset of this name, else the file.
    pub fn of(policy: &str) -> Self {
        let preset = PresetName::from_str(policy, false).ok();
        let transforms = preset.is_none().then(|| policy.into());
        Self { preset: preset.unwrap_or_default(), load: 1, transforms }
    }

    /// The transforms, which must have only one view.
    pub fn ops(&self) -> Result<Vec<Transform>> {
        self.file()?.into_transforms()
    }

    /// Name of what was asked for, in tables: the preset with its load, or the file.
    pub fn name(&self) -> String {
        match &self.transforms {
            Some(_) if self.transforms_file().is_none() => "transforms".to_owned(),
            Some(file) => file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned(),
            None if self.load == 1 => word(&self.preset),
            None => format!("{}, load {}", word(&self.preset), self.load),
        }
    }

    /// The file of transforms, if they do not stand on the command line themselves.
    pub fn transforms_file(&self) -> Option<&Path> {
        let is_list = |path: &&Path| path.to_string_lossy().trim_start().starts_with('[');
        self.transforms.as_deref().filter(|path| !is_list(path))
    }

    /// The transforms that were given in a file or on the command line.
    fn given(&self) -> Result<Option<TransformFile>> {
        let read = |given: &PathBuf| match self.transforms_file() {
            Some(file) => TransformFile::read(file),
            None => TransformFile::parse(&given.to_string_lossy(), "--transforms"),
        };
        self.transforms.as_ref().map(read).transpose()
    }

    /// All transforms and views.
    fn file(&self) -> Result<TransformFile> {
        Ok(match (self.given()?, self.preset) {
            (Some(given), _) => given,
            (None, PresetName::Own(preset)) if preset.suite().is_some() => loaded(preset, self.load).into(),
            (None, PresetName::Own(preset)) => preset.transforms(),
            (None, PresetName::TrialA) => Trial::A { load: self.load }.ops().into(),
            (None, PresetName::TrialB) => Trial::B { load: self.load }.ops().into(),
        })
    }

    /// Transforms and views for 8-bit images: without normalization and the operations after it in a published recipe.
    pub fn pixels(&self) -> Result<TransformFile> {
        Ok(match self.published() {
            Some(preset) => preset.pixel_transforms(),
            None => self.file()?.without_normalize(),
        })
    }

    /// The preset, if it is a published recipe.
    fn published(&self) -> Option<Preset> {
        match self.preset {
            PresetName::Own(preset) if self.transforms.is_none() && preset.link().is_some() => Some(preset),
            _ => None,
        }
    }

    /// How the preset mixes images.
    fn mix(&self) -> Option<Mix> {
        self.published().and_then(Preset::mix)
    }

    /// The fields that a published recipe's models are trained with.
    pub fn fields(&self) -> &'static [&'static str] {
        self.published().map_or(&[], Preset::fields)
    }

    /// Adds a published recipe's mixing, repetitions and fields, unless other fields are asked for. Images are mixed
    /// without their targets.
    pub fn add_recipe(&self, builder: PipelineBuilder, fields: &[String]) -> PipelineBuilder {
        let mix = self.mix().map(|mix| mix.hard_labels(true));
        let builder = mix.into_iter().fold(builder, PipelineBuilder::mix);
        let own = self.fields();
        let builder = if fields.is_empty() { builder.fields(own.iter().copied()) } else { builder.fields(fields) };
        let builder = builder.sanitize(own.is_empty());
        let times = self.published().map_or(1, Preset::repetitions);
        if times > 1 { builder.sampler(Sampler::repeated(times)) } else { builder }
    }

    /// The targets that the preset's mixing needs, for a source with these classes.
    fn targets(&self, classes: &[String]) -> Option<TargetSpec> {
        self.published().filter(|_| !classes.is_empty())?.targets(classes.len() as u32)
    }

    /// Adds the transforms and views for batches of this type.
    fn add_to(&self, builder: PipelineBuilder, dtype: DType) -> Result<PipelineBuilder> {
        Ok(builder.transforms(if dtype == DType::U8 { self.pixels()? } else { self.file()? }))
    }

    /// The transforms as text, which differs if they differ.
    pub fn settings(&self) -> Result<String> {
        if self.transforms.is_none() {
            return Ok(format!("preset {}, load {}", word(&self.preset), self.load));
        }
        let written = serde_json::to_string(&self.file()?).map_err(|error| Error::Unsupported {
            feature: format!("writing down the transforms ({error})"),
            remedy: "leave --state out".to_owned(),
        })?;
        Ok(format!("transforms {written}"))
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub enum StrategyName {
    /// Neighboring operations in one pass, only for the pixels that the output needs; the same bytes as sequential.
    #[default]
    Fused,
    /// One pass for each operation.
    Sequential,
    /// One bilinear sampling for all rotations and flips; sharper than the other strategies' result.
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

/// Priority of the pipeline's streams.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum StreamPriorityName {
    /// The training step goes first, if its stream has a higher priority.
    #[default]
    Low,
    /// The pipeline goes first.
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
    /// Leave images as they are stored.
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
pub enum DTypeName {
    F32,
    F16,
    Bf16,
    U8,
}

impl From<DTypeName> for DType {
    fn from(name: DTypeName) -> Self {
        match name {
            DTypeName::F32 => Self::F32,
            DTypeName::F16 => Self::F16,
            DTypeName::Bf16 => Self::Bf16,
            DTypeName::U8 => Self::U8,
        }
    }
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

/// Options for opening an image.
#[derive(Args)]
pub struct OpeningOptions {
    /// What to do with EXIF orientation. torchvision, timm and Hugging Face's processors ignore it.
    #[arg(long, value_enum, default_value_t)]
    pub orientation: OrientationName,
    /// Decode JPEGs at 1/2, 1/4 or 1/8 of their size, but with no side below S, or W and H: Pillow's Image.draft.
    #[arg(long, value_name = "S|WxH", value_parser = sides)]
    pub draft: Option<Size>,
    /// Begin with a thumbnail of each image that fits into S x S, or W x H: Pillow's Image.thumbnail. JPEGs are
    /// drafted.
    #[arg(long, value_name = "S|WxH", value_parser = sides)]
    pub thumbnail: Option<Size>,
    /// How much of the shrinking to a thumbnail is left to the filter at least, 1 or more.
    #[arg(long, value_name = "G", requires = "thumbnail", default_value_t = 2.0)]
    pub reducing_gap: f64,
    /// Decode truncated JPEGs as far as possible instead of refusing them.
    #[arg(long)]
    pub accept_truncated: bool,
}

impl OpeningOptions {
    /// The thumbnail that images begin with.
    pub fn thumbnail(&self) -> Option<Thumbnail> {
        self.thumbnail.map(|size| Thumbnail::new(size).reducing_gap(Some(self.reducing_gap)))
    }
}

/// Options for running a pipeline.
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
    /// Batches that are filled or ready ahead of the consumer [default: 2]
    #[arg(long, value_name = "P")]
    prefetch: Option<usize>,
    /// Seed of order and random transforms.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Read the part of rank R of W, positions R, R + W, R + 2W, ... of each epoch's order; or auto.
    ///
    /// auto takes the rank from torchrun, Open MPI, PMI or Slurm; without one of them it is 0/1. Of its machine, the
    /// rank uses the GPU with its local number, and leaves the other ranks their processors.
    #[arg(long, value_name = "R/W")]
    rank: Option<RankName>,
    /// Give every rank the same number of batches: a rank with one image fewer repeats one, as padding.
    ///
    /// With --last drop, the other ranks drop an image instead.
    #[arg(long)]
    equal_batches: bool,
    /// Read a stream in L lanes, so that up to L ranks can go on with an epoch [default: the number of ranks]
    #[arg(long, value_name = "L")]
    lanes: Option<u32>,
    /// End each epoch after K images.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Deliver targets: class=K, multi-hot=K, float=N, soft=K, soft=K/SMOOTHING or bytes.
    ///
    /// A colon and the name of their field may follow, as in multi-hot=80:json.tags. Default: none; with a published
    /// recipe that mixes, soft targets of the source's classes.
    #[arg(long, value_name = "SPEC")]
    targets: Option<TargetSpec>,
    /// Deliver these fields of the samples, which follow the operations: boxes,labels,mask,masks,keypoints and
    /// others.
    ///
    /// Default: none; with a published recipe of detection or segmentation, those that its models are trained with.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    fields: Vec<String>,
    /// Mix the images of each batch: torchvision=A/B or timm=A/B with the alphas of MixUp and CutMix.
    ///
    /// Options may follow after commas: mode=pair or elem, probability=P, switch=P, minmax=A/B, uncorrected,
    /// hard-labels. Without hard-labels, f32 targets are needed. Default: as a published recipe does, else no mixing.
    #[arg(long, value_name = "SPEC")]
    mix: Option<Mix>,
    /// Deliver images in the source's order.
    #[arg(long)]
    no_shuffle: bool,
    /// Element type of the output [u8 is not normalized]
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
    /// Fail if more images of an epoch cannot be used: a number, or a share such as 1% [default: the first 100, or all]
    #[arg(long, value_name = "N|P%", value_parser = bad_limit)]
    max_bad: Option<BadLimit>,
    #[command(flatten)]
    opening: OpeningOptions,
    /// Cache up to SIZE of decoded images in memory from one epoch to the next: 500MB, 4GB, 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    image_cache: Option<u64>,
    /// Keep the image cache in this folder, also from one run to the next.
    #[arg(long, value_name = "FOLDER", requires = "image_cache")]
    image_cache_dir: Option<PathBuf>,
    /// Entry points, which make later epochs and runs faster: a folder, `memory` or `none`; or the most bytes: 2GiB.
    ///
    /// A folder has a / in its name. Give the option twice for a folder and a size. By default they are in your cache
    /// folder, at most 4 GiB, and in 512 MiB of memory if that cannot be used. `dense` keeps closer places for a GPU
    /// too, `sparse` does not; the default is what the device needs.
    #[arg(long, value_name = "FOLDER|SIZE|memory|none|dense|sparse", value_parser = entry_points)]
    entry_points: Vec<EntryPointsValue>,
    /// Resize the shorter side to PX pixels before anything else; with --image-cache only once per image.
    #[arg(long, value_name = "PX")]
    resize_first: Option<u32>,
    /// Device for augmentations: auto, cpu, cuda, cuda:I.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
    /// JPEG decoder for a GPU: auto, device, cpu, hybrid or hardware.
    ///
    /// device decodes by our own kernels, and auto has the CPU help where the GPU is the slower of the two; both, like
    /// cpu, make the CPU's bytes. hybrid and hardware are nvJPEG's decoders, the latter on the GPU's hardware.
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub jpeg_decoder: JpegDecoder,
    /// Limit of GPU memory for in-flight batches, in bytes [default: half of the free memory]
    #[arg(long, value_name = "BYTES")]
    device_memory: Option<u64>,
    /// Use pageable staging memory for copies to a GPU; for machines where pinned memory is scarce.
    #[arg(long)]
    pageable: bool,
    /// Priority of the pipeline's streams on a GPU.
    #[arg(long, value_enum, default_value_t)]
    stream_priority: StreamPriorityName,
}

impl PipelineOptions {
    /// Opens the source and makes the pipeline's builder.
    pub fn builder(&self, source: &SourceArgs) -> Result<PipelineBuilder> {
        let rank = self.rank()?;
        let device = match (self.device, rank) {
            (Device::Auto, Some(rank)) if rank.device().available().is_ok() => rank.device(),
            (device, _) => device,
        };
        // Checked first: a missing device or wrong transforms are reported before a large folder is listed.
        device.available()?;
        self.preset.given()?;
        let input = source.open()?;
        let targets = self.targets(input.classes());
        let builder = self.preset.add_recipe(Pipeline::builder(input), &self.fields);
        let builder = if self.no_shuffle { builder.seed(self.seed) } else { builder.shuffle(self.seed) };
        let mut builder = builder
            .batch_size(self.batch_size)
            .partition(rank.map_or(Partition::WHOLE, Rank::partition))
            .equal_batches(self.equal_batches)
            .strategy(self.strategy.into())
            .orientation(self.opening.orientation.into())
            .accept_truncated(self.opening.accept_truncated)
            .device(device)
            .jpeg_decoder(self.jpeg_decoder)
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
        builder = self.threads.or(rank.map(Rank::threads)).into_iter().fold(builder, PipelineBuilder::threads);
        builder = self.prefetch.into_iter().fold(builder, PipelineBuilder::prefetch);
        builder = self.device_memory.into_iter().fold(builder, PipelineBuilder::device_memory);
        builder = self.opening.draft.into_iter().fold(builder, PipelineBuilder::draft);
        builder = self.opening.thumbnail().into_iter().fold(builder, PipelineBuilder::thumbnail);
        builder = self.max_bad.into_iter().fold(builder, PipelineBuilder::max_bad);
        builder = self.lanes.into_iter().fold(builder, PipelineBuilder::lanes);
        builder = self.limit.into_iter().fold(builder, PipelineBuilder::limit);
        builder = targets.into_iter().fold(builder, PipelineBuilder::targets);
        // Here with its targets.
        builder = self.mix().into_iter().fold(builder, PipelineBuilder::mix);
        builder = self.cache().into_iter().fold(builder, PipelineBuilder::cache);
        builder = builder.entry_points(EntryPointsValue::all(&self.entry_points));
        builder =
            self.resize_first.into_iter().fold(builder, |builder, side| builder.transform(Resize::shorter_side(side)));
        let layout = match self.layout {
            LayoutName::Nchw => Layout::Nchw,
            LayoutName::Nhwc => Layout::Nhwc,
        };
        let dtype = self.dtype.into();
        Ok(self.preset.add_to(builder, dtype)?.output(dtype, layout))
    }

    /// The options by which a logged run's batches are made again: on the CPU, for the run's part of each epoch. Of a
    /// log that somebody else may have written they have only what decides about the batches: no file is read or
    /// written, and no entry points are used, but for the source.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the transforms are in a file. `warpfeed run` writes them into the log.
    pub fn for_replay(self, partition: &str, threads: Option<usize>) -> Result<Self> {
        if let Some(file) = self.preset.transforms_file() {
            return Err(Error::Unsupported {
                feature: format!("a log that names a file of transforms ({})", file.display()),
                remedy: "warpfeed run writes the transforms themselves into its log".to_owned(),
            });
        }
        Ok(Self {
            rank: Some(RankName::Given(partition.parse()?)),
            threads,
            prefetch: None,
            device: Device::Cpu,
            jpeg_decoder: JpegDecoder::Cpu,
            device_memory: None,
            pageable: false,
            image_cache: None,
            image_cache_dir: None,
            entry_points: vec![EntryPointsValue::Place(EntryPoints::none())],
            ..self
        })
    }

    fn targets(&self, classes: &[String]) -> Option<TargetSpec> {
        self.targets.clone().or_else(|| self.preset.targets(classes))
    }

    fn mix(&self) -> Option<Mix> {
        self.mix.clone().or_else(|| self.preset.mix())
    }

    /// Describes how a published recipe mixes batches over a source of these classes; `None` if it does not.
    pub fn mixing(&self, classes: &[String]) -> Option<String> {
        let preset = self.preset.published()?;
        let (mix, times) = (self.mix().filter(|_| preset.mix().is_some())?, preset.repetitions());
        let targets = self.targets(classes).map_or_else(
            || {
                let targets = preset.targets(1000).map(|targets| targets.to_string()).unwrap_or_default();
                format!("none, as the source does not name its classes: with 1,000 of them give --targets {targets}")
            },
            |targets| targets.to_string(),
        );
        Some(format!("{preset} mixes {mix}, each image comes {times} times in a row, targets are {targets}"))
    }

    fn cache(&self) -> Option<ImageCache> {
        let size_bytes = self.image_cache?;
        Some(match &self.image_cache_dir {
            Some(folder) => ImageCache::disk(folder, size_bytes),
            None => ImageCache::memory(size_bytes),
        })
    }

    fn rank(&self) -> Result<Option<Rank>> {
        self.rank.map(RankName::rank).transpose()
    }

    /// The file's name for this rank, if each rank needs a file of its own.
    pub fn own_file(&self, path: PathBuf) -> Result<PathBuf> {
        let Some(rank) = self.rank()?.filter(|rank| rank.world_size() > 1) else { return Ok(path) };
        let mut name = path.into_os_string();
        name.push(format!(".{}", rank.rank()));
        Ok(name.into())
    }

    /// Whether images are sampled once through multiplied maps, which has a result of its own.
    pub fn is_composed(&self) -> bool {
        matches!(self.strategy, StrategyName::Composed)
    }

    /// Whether the output depends on the batch size.
    pub fn is_batch_size_seen(&self) -> bool {
        matches!(self.last, LastName::Drop) || self.mix().is_some()
    }
}
