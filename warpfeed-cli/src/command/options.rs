//! Options that several commands share, and their values in the library.

use super::setting_args::{OfPipelines, SettingArgs};
use super::source::SourceArgs;
use super::values::{EntryPointsValue, RankName, entry_points, size};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use warpfeed::ops::{Resize, Transform, TransformFile};
use warpfeed::{
    DType, Device, EntryPoints, Error, ImageCache, Mix, Partition, Pipeline, PipelineBuilder, Preset, Rank, Result,
    Sampler, TargetSpec,
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

/// The usual operations of a pipeline with buckets.
const BUCKET_TRANSFORMS: &str = r#"[{"transform": "bucket_crop"}, {"transform": "random_horizontal_flip", "p": 0.5},
    {"op": "normalize", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}]"#;

/// Options for the operations.
#[derive(Args)]
pub struct PresetOptions {
    /// Pipeline. With a published recipe, run and preview also mix images, repeat samples and deliver its fields.
    ///
    /// With --buckets the default is bucket_crop, a random horizontal flip, and values from -1 to 1.
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

    /// These options, or the usual operations for buckets if none were asked for.
    fn of_buckets(&self) -> Self {
        let is_usual = matches!(self.preset, PresetName::Own(Preset::Train)) && self.transforms.is_none();
        let transforms = if is_usual { Some(BUCKET_TRANSFORMS.into()) } else { self.transforms.clone() };
        Self { transforms, ..*self }
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

    /// Adds a published recipe's mixing, repetitions and fields. Images are mixed without their targets.
    pub fn add_recipe(&self, builder: PipelineBuilder) -> PipelineBuilder {
        let mix = self.mix().map(|mix| mix.hard_labels(true));
        let builder = mix.into_iter().fold(builder, PipelineBuilder::mix);
        let builder = builder.fields(self.fields().iter().copied()).sanitize(self.fields().is_empty());
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

/// Options for running a pipeline.
#[derive(Args)]
pub struct PipelineOptions {
    #[command(flatten)]
    pub preset: PresetOptions,
    #[command(flatten)]
    pub settings: SettingArgs<OfPipelines>,
    /// Read the part of rank R of W, positions R, R + W, R + 2W, ... of each epoch's order; or auto.
    ///
    /// auto takes the rank from torchrun, Open MPI, PMI or Slurm; without one of them it is 0/1. Of its machine, the
    /// rank uses the GPU with its local number, and leaves the other ranks their processors.
    #[arg(long, value_name = "R/W")]
    rank: Option<RankName>,
    /// Deliver images in the source's order.
    #[arg(long)]
    no_shuffle: bool,
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
    /// Use pageable staging memory for copies to a GPU; for machines where pinned memory is scarce.
    #[arg(long)]
    pageable: bool,
}

impl PipelineOptions {
    /// Opens the source and makes the pipeline's builder.
    pub fn builder(&self, source: &SourceArgs) -> Result<PipelineBuilder> {
        let rank = self.rank()?;
        let device = match (self.settings.get::<Device>("device")?, rank) {
            (Device::Auto, Some(rank)) if rank.device().available().is_ok() => rank.device(),
            (device, _) => device,
        };
        // Checked first: a missing device or wrong transforms are reported before a large folder is listed.
        device.available()?;
        self.preset.given()?;
        let input = source.open()?;
        let targets = self.preset.targets(input.classes());
        let mut builder = self.preset.add_recipe(Pipeline::builder(input)).pinned(!self.pageable);
        builder = if self.no_shuffle { builder } else { builder.shuffle(0) };
        builder = rank.map(Rank::threads).into_iter().fold(builder, PipelineBuilder::threads);
        builder = targets.into_iter().fold(builder, PipelineBuilder::targets);
        builder = self.mix()?.into_iter().fold(builder, PipelineBuilder::mix);
        builder = self.settings.given().try_fold(builder, |builder, (name, text)| builder.set(name, text))?;
        builder = builder.device(device).partition(rank.map_or(Partition::WHOLE, Rank::partition));
        builder = self.cache().into_iter().fold(builder, PipelineBuilder::cache);
        builder = builder.entry_points(EntryPointsValue::all(&self.entry_points));
        builder =
            self.resize_first.into_iter().fold(builder, |builder, side| builder.transform(Resize::shorter_side(side)));
        let dtype = self.settings.get("dtype")?;
        match self.settings.text("buckets") {
            Some(_) => self.preset.of_buckets().add_to(builder, dtype),
            None => self.preset.add_to(builder, dtype),
        }
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
        let settings = self.settings.that_decide().with("device", "cpu").with("jpeg_decoder", "cpu");
        Ok(Self {
            settings: threads.into_iter().fold(settings, |settings, threads| settings.with("threads", threads)),
            rank: Some(RankName::Given(partition.parse()?)),
            pageable: false,
            image_cache: None,
            image_cache_dir: None,
            entry_points: vec![EntryPointsValue::Place(EntryPoints::none())],
            ..self
        })
    }

    fn mix(&self) -> Result<Option<Mix>> {
        self.settings.text("mix").map_or_else(|| Ok(self.preset.mix()), |mix| mix.parse().map(Some))
    }

    /// Describes how a published recipe mixes batches over a source of these classes; `None` if it does not.
    pub fn mixing(&self, classes: &[String]) -> Result<Option<String>> {
        let Some(preset) = self.preset.published().filter(|preset| preset.mix().is_some()) else { return Ok(None) };
        let Some(mix) = self.mix()? else { return Ok(None) };
        let given = self.settings.text("targets").map(str::parse::<TargetSpec>).transpose()?;
        let targets = given.or_else(|| self.preset.targets(classes)).map_or_else(
            || {
                let targets = preset.targets(1000).map(|targets| targets.to_string()).unwrap_or_default();
                format!("none, as the source does not name its classes: with 1,000 of them give --targets {targets}")
            },
            |targets| targets.to_string(),
        );
        let times = preset.repetitions();
        Ok(Some(format!("{preset} mixes {mix}, each image comes {times} times in a row, targets are {targets}")))
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

    /// Whether the output depends on the batch size.
    pub fn is_batch_size_seen(&self) -> Result<bool> {
        let in_state = self.settings.text("buckets").is_some();
        Ok(self.settings.text("last_batch") == Some("drop") && !in_state || self.mix()?.is_some())
    }
}
