//! Opens a source by its name.

use super::annotated::refuse_annotated;
use super::names::alternatives;
use super::packed::Packed;
use super::records::fields::FieldStorage;
use super::records::label;
use super::spec::{self, refuse};
use super::splits::{self, Kin, Split};
#[cfg(feature = "cloud")]
use super::stream::ShardCache;
#[cfg(feature = "cloud")]
use super::stream::Shards as _;
use super::stream::is_pipe;
#[cfg(feature = "cloud")]
use super::stream::remote::{Remote, SCANS};
use super::{
    AuxFolder, CifarFiles, CocoFiles, IdxFile, ImageFolder, Input, ListFile, MaskFolder, MaskOptions, PanopticFiles,
    RecordFormat, RecordOptions, RecordShards, RecordStream, Source, SourceExt, StreamOptions, VocFolder, YoloFolder,
    imagenet,
};
use crate::address::Address;
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The formats in which images are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceFormat {
    /// A folder of class folders: [`ImageFolder`].
    Folder,
    /// A list file: [`ListFile`].
    List,
    /// Shards of records: [`RecordShards`].
    Shards(RecordFormat),
    /// An IDX file of raw images: [`IdxFile`].
    Idx,
    /// Parquet files, with the feature `parquet`.
    Parquet,
    /// CIFAR-10's binary files: [`CifarFiles`].
    Cifar10,
    /// CIFAR-100's binary files: [`CifarFiles`].
    Cifar100,
    /// A folder of images, and COCO's annotations ([`OpenOptions::annotations`]): [`CocoFiles`].
    Coco,
    /// A folder of images, and COCO's panoptic annotations ([`OpenOptions::annotations`]), whose PNG files are in the
    /// folder of the file's name without its ending: [`PanopticFiles`].
    Panoptic,
    /// A folder of images, and a folder of masks ([`OpenOptions::annotations`], [`OpenOptions::masks`]):
    /// [`MaskFolder`]. [`RecordOptions::classes`] names the classes.
    Masks,
    /// A folder of Pascal VOC, and a split ([`OpenOptions::split`]): [`VocFolder`]. [`RecordOptions::classes`] names
    /// classes other than VOC's.
    Voc,
    /// A folder `images` with YOLO's labels next to it and [`RecordOptions::classes`], or a `data.yaml` and
    /// [`OpenOptions::split`]: [`YoloFolder`].
    Yolo,
    /// The folder of a Zarr array, and the meaning of its dimensions ([`OpenOptions::axes`]), with the feature `zarr`.
    Zarr,
}

impl SourceFormat {
    /// All formats and their names.
    fn all() -> impl Iterator<Item = (&'static str, Self)> {
        let shards = RecordFormat::ALL.iter().map(|&format| (format.name(), Self::Shards(format)));
        let others = [
            ("idx", Self::Idx),
            ("parquet", Self::Parquet),
            ("cifar10", Self::Cifar10),
            ("cifar100", Self::Cifar100),
            ("coco", Self::Coco),
            ("panoptic", Self::Panoptic),
            ("masks", Self::Masks),
            ("voc", Self::Voc),
            ("yolo", Self::Yolo),
            ("zarr", Self::Zarr),
        ];
        [("folder", Self::Folder), ("list", Self::List)].into_iter().chain(shards).chain(others)
    }

    fn name(self) -> &'static str {
        Self::all().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// Returns the format that a file's name tells, if any.
    pub(super) fn by_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        if let Some(format) = RecordFormat::by_ending(ending) {
            return Some(Self::Shards(format));
        }
        match ending {
            "parquet" => Some(Self::Parquet),
            "zarr" => Some(Self::Zarr),
            "bin" if name.starts_with("data_batch_") || name == "test_batch.bin" => Some(Self::Cifar10),
            _ if name.contains("idx3-ubyte") || name.contains("idx4-ubyte") => Some(Self::Idx),
            // TensorFlow's names of shards: train-00000-of-01024, train.tfrecord-00000-of-01024.
            _ => shard_of(&name).map(|_| Self::Shards(RecordFormat::TfRecord)),
        }
    }
}

impl FromStr for SourceFormat {
    type Err = Error;

    /// Reads `folder`, `list`, `webdataset`, `recordio`, `tfrecord`, `idx`, `parquet`, `cifar10`, `cifar100`, `coco`,
    /// `panoptic`, `masks`, `voc`, `yolo` or `zarr`.
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::all().find(|(name, _)| *name == text);
        let names = || Self::all().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        found.map(|(_, format)| format).ok_or_else(|| Error::parameter("open", "format", names(), text))
    }
}

/// Returns the N of `...-00003-of-0000N`, with or without the ending `.tfrecord`.
fn shard_of(name: &str) -> Option<usize> {
    let stem = name.strip_suffix(".tfrecord").unwrap_or(name);
    let (before, count) = stem.rsplit_once("-of-")?;
    let (_, number) = before.rsplit_once('-')?;
    let digits = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(number) && digits(count) { count.parse().ok() } else { None }
}

options! {
    /// Options for opening a source that its name does not contain. The default relies on the name alone.
    ///
    /// ```
    /// use warpfeed::source::{OpenOptions, Source, SourceFormat};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("images.rec");
    /// std::fs::write(&path, "1.jpg\t3\n").unwrap(); // a list, whatever its name says
    /// let input = OpenOptions::default().format(Some(SourceFormat::List)).open(&path)?;
    /// assert_eq!(input.into_data_set()?.label(0), Some(3));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct OpenOptions {
        /// Format of the source. Default: by its name.
        pub format: Option<SourceFormat>,
        /// Split to open in a folder that holds several: `train`, `val` (or `validation`, `valid`), `test`, or the data
        /// set's own name for it. [`open`] lists these folders. VOC's folders and `data.yaml` have splits too.
        pub split: Option<String>,
        /// The annotations of the images of a folder: a file for the formats [`Coco`](SourceFormat::Coco) and
        /// [`Panoptic`](SourceFormat::Panoptic), a folder for [`Masks`](SourceFormat::Masks).
        pub annotations: Option<PathBuf>,
        /// For the format [`Coco`](SourceFormat::Coco), the keypoints that change places in a mirror image
        /// ([`CocoFiles::flip_index`]). Default: by their names.
        pub flip_index: Option<Vec<usize>>,
        /// Folders of auxiliary images next to the images' own ([`SourceExt::aux_images`]), for images that are files
        /// in a folder.
        pub aux: Vec<AuxFolder>,
        /// Names of bands, whose files become one image ([`SourceExt::bands`]), for images that are files in a folder.
        pub bands: Vec<String>,
        /// For a Zarr array, and for images that are lists in Parquet, a letter for each dimension: `n` samples (Zarr
        /// alone), `c` channels, `h` rows, `w` columns, such as `nhwc`.
        pub axes: Option<String>,
        /// For a Zarr array, the folder of another one that has the labels.
        pub labels: Option<PathBuf>,
        /// Options for reading masks.
        pub masks: MaskOptions,
        /// Options for reading shards.
        pub records: RecordOptions,
        /// Reads shards from front to back as a [`RecordStream`] and shuffles in a window of this many samples. Sources
        /// without random access are always read in this way, by default with a window of 1,000.
        pub window: Option<usize>,
        /// Reads remote shards in any order as [`RecordShards`], with one request for each sample. Opening first builds
        /// an index from the headers of all records, and keeps it. Refused for sources without random access.
        pub random_access: bool,
        /// Cache for the fetched parts of remote shards. Default: none.
        #[cfg(feature = "cloud")]
        pub cache: Option<ShardCache>,
    }
}

impl OpenOptions {
    /// Opens the source that `spec` names: see [`open`].
    ///
    /// # Errors
    /// The errors of [`open`].
    pub fn open(&self, spec: impl AsRef<Path>) -> Result<Input> {
        self.open_as(spec.as_ref(), false)
    }

    /// Opens a source with its own classes, even if there is a training split next to it.
    #[doc(hidden)]
    pub fn open_alone(&self, spec: &Path) -> Result<Input> {
        self.open_as(spec, true)
    }

    fn open_as(&self, spec: &Path, alone: bool) -> Result<Input> {
        if !self.aux.is_empty() {
            return self.open_with_aux(spec);
        }
        if !self.bands.is_empty() {
            let source = Self { bands: Vec::new(), ..self.clone() }.open_as(spec, alone)?.into_data_set()?;
            return Ok(source.bands(&self.bands)?.into());
        }
        if self.is_zarr(spec) {
            return self.open_zarr(spec);
        }
        if let Some(labels) = &self.labels {
            let got = format!("{}, with {}", labels.display(), spec.display());
            return Err(Error::parameter("open", "labels", "only with a Zarr array", got));
        }
        if let Some(source) = self.open_annotated(spec)? {
            return Ok(source);
        }
        if self.random_access && (self.window.is_some() || spec == Path::new("-")) {
            let got = if self.window.is_some() { "a window" } else { "standard input" };
            return Err(Error::parameter("open", "random_access", "without a window, of what is no pipe", got));
        }
        if spec == Path::new("-") {
            self.refuse_axes("standard input")?;
            return Ok(RecordStream::standard_input(self.stream_format(None)?, self.stream_options())?.into());
        }
        if let Some(address) = spec.to_str().and_then(Address::parse) {
            self.refuse_axes(&address.public())?;
            return self.open_url(address);
        }
        let files = spec::files(spec)?;
        if let ([folder], true) = (&files[..], self.format != Some(SourceFormat::Folder))
            && fs::metadata(folder).map_err(Error::io("open", folder))?.is_dir()
            && let Some(split) = splits::find(folder, self.split.as_deref())?
        {
            return self.open_split(split);
        }
        if let Some(split) = &self.split {
            let expected = "only for a folder that holds several splits";
            return Err(Error::parameter("open", "split", expected, format!("{split}, of {}", spec.display())));
        }
        let opened = self.open_files(files.clone())?;
        if alone || self.format == Some(SourceFormat::Folder) || opened.input.has_labels() != Some(true) {
            return Ok(opened.input);
        }
        match splits::kin(&files)? {
            Kin::Alone => Ok(opened.input),
            Kin::Train(train) => self.numbered_by(opened, train),
            Kin::Orphan(_) if !opened.own_names => Ok(opened.input),
            Kin::Orphan(split) => Err(unnumbered(&split, &files[0])),
        }
    }

    /// Opens several splits of a data set, whose labels are numbered alike.
    ///
    /// # Errors
    /// The errors of [`open`].
    pub fn open_splits<const N: usize>(&self, spec: impl AsRef<Path>, splits: [&str; N]) -> Result<[Input; N]> {
        let open = |split: &str| Self { split: Some(split.to_owned()), ..self.clone() }.open(spec.as_ref());
        let opened = splits.iter().map(|split| open(split)).collect::<Result<Vec<Input>>>()?;
        opened.try_into().map_err(|_| refuse("splits", "others"))
    }

    /// Opens a source of files with auxiliary images next to them.
    fn open_with_aux(&self, spec: &Path) -> Result<Input> {
        let source = Self { aux: Vec::new(), ..self.clone() }.open(spec)?.into_data_set()?;
        // A list or a data.yaml is next to the images that it names.
        let root = if spec.is_dir() { spec } else { spec.parent().unwrap_or(spec) };
        if source.is_empty() || !Path::new(&*source.name(0)).is_file() {
            let expected = "only with images that are files in a folder: shards hold auxiliary images as fields";
            return Err(Error::parameter("open", "aux", expected, spec.display()));
        }
        Ok(source.aux_images(root, self.aux.iter().cloned())?.into())
    }

    /// Whether the source is a Zarr array, by the format or the folder.
    fn is_zarr(&self, spec: &Path) -> bool {
        let metadata = || [spec.join("zarr.json"), spec.join(".zarray")].iter().any(|path| path.is_file());
        match self.format {
            Some(format) => format == SourceFormat::Zarr,
            None => SourceFormat::by_name(spec) == Some(SourceFormat::Zarr) || metadata(),
        }
    }

    /// Opens a Zarr array.
    fn open_zarr(&self, spec: &Path) -> Result<Input> {
        self.refuse_ignored(SourceFormat::Zarr)?;
        if let Some(address) = spec.to_str().and_then(Address::parse) {
            return Err(Error::Unsupported {
                feature: format!("reading a Zarr array at a store, {},", address.public()),
                remedy: "copy the array to a local folder, or mount the store".to_owned(),
            });
        }
        #[cfg(feature = "zarr")]
        {
            // Without axes the error names the array's shape.
            let source = super::ZarrArray::open(spec, self.axes.as_deref().unwrap_or_default())?;
            Ok(match &self.labels {
                Some(labels) => source.with_labels(labels)?.into(),
                None => source.into(),
            })
        }
        #[cfg(not(feature = "zarr"))]
        Err(Error::Unsupported {
            feature: "reading Zarr arrays in this build".to_owned(),
            remedy: "build with the feature `zarr`".to_owned(),
        })
    }

    /// Opens a source of a format whose objects or pixels have classes; `None` for another format.
    fn open_annotated(&self, spec: &Path) -> Result<Option<Input>> {
        let wrong = |parameter, expected, got: String| Err(Error::parameter("open", parameter, expected, got));
        if self.format != Some(SourceFormat::Masks) && self.masks != MaskOptions::default() {
            return wrong("masks", "only with the format masks", format!("{:?}", self.masks));
        }
        if let (Some(flip_index), true) = (&self.flip_index, self.format != Some(SourceFormat::Coco)) {
            return wrong("flip_index", "only with the format coco", format!("{flip_index:?}"));
        }
        let classes = &self.records.classes;
        if let Some(format) = self.format {
            self.refuse_ignored(format)?;
        }
        match (self.format, &self.annotations) {
            (Some(SourceFormat::Coco), Some(file)) => {
                let coco = CocoFiles::open(spec, file)?;
                Ok(Some(match &self.flip_index {
                    Some(flip_index) => coco.flip_index(flip_index.clone())?.into(),
                    None => coco.into(),
                }))
            }
            (Some(SourceFormat::Panoptic), Some(file)) => {
                Ok(Some(PanopticFiles::open(spec, file, file.with_extension(""))?.into()))
            }
            (Some(SourceFormat::Masks), Some(folder)) => {
                Ok(Some(MaskFolder::open(spec, folder, self.masks.clone())?.with_classes(classes)?.into()))
            }
            (Some(SourceFormat::Coco | SourceFormat::Panoptic), None) => {
                wrong("annotations", "the annotation file of the formats coco and panoptic", "none".to_owned())
            }
            (Some(SourceFormat::Masks), None) => {
                wrong("annotations", "the folder of masks of the format masks", "none".to_owned())
            }
            (_, Some(annotations)) => wrong(
                "annotations",
                "only with the formats coco, panoptic and masks",
                annotations.display().to_string(),
            ),
            (Some(SourceFormat::Voc), None) => {
                let Some(split) = &self.split else {
                    return wrong("split", "the name of a list in ImageSets/Main: train, val", "none".to_owned());
                };
                let voc = VocFolder::open(spec, split)?;
                Ok(Some(if classes.is_empty() { voc } else { voc.with_classes(classes) }.into()))
            }
            (Some(SourceFormat::Yolo), None) if spec.extension().is_some_and(|end| end == "yaml" || end == "yml") => {
                if let [first, ..] = &classes[..] {
                    return wrong("classes", "none: a data.yaml has them", first.clone());
                }
                let Some(split) = &self.split else {
                    return wrong("split", "one of the data.yaml: train, val or test", "none".to_owned());
                };
                Ok(Some(YoloFolder::from_yaml(spec, split)?.into()))
            }
            (Some(SourceFormat::Yolo), None) => match &self.split {
                Some(split) => wrong("split", "only with a data.yaml", split.clone()),
                None => Ok(Some(YoloFolder::open(spec, classes)?.into())),
            },
            (_, None) => Ok(None),
        }
    }

    /// Opens a split of a data set. The split has all classes of the data set, including those without images in it.
    fn open_split(&self, split: Split) -> Result<Input> {
        let mut options = Self { split: None, format: self.format.or(split.format), ..self.clone() };
        if options.records.label.is_none() {
            options.records.label = split.label.map(str::to_owned);
        }
        if let Some(devkit) = &split.devkit {
            let images =
                Self { records: RecordOptions { label: Some(label::NONE.to_owned()), ..options.records }, ..options };
            let images = images.open_files(split.files)?.input.into_data_set()?;
            return Ok(imagenet::validation(images, devkit)?.into());
        }
        let opened = options.open_files(split.files.clone())?;
        match opened.input {
            input if input.has_labels() != Some(true) => Ok(input),
            Input::DataSet(source) if !split.classes.is_empty() && !source.classes().is_empty() => {
                aligned(source, split.classes)
            }
            input if !split.train.is_empty() => options.numbered_by(Opened { input, ..opened }, split.train),
            _ if opened.own_names && split.is_held_out() => Err(unnumbered(&split.name, &split.files[0])),
            input => Ok(input),
        }
    }

    /// Numbers the labels of a split by the classes of the training split with these files.
    fn numbered_by(&self, opened: Opened, train: Vec<PathBuf>) -> Result<Input> {
        let Input::DataSet(source) = opened.input else { return Ok(opened.input) };
        if !self.records.classes.is_empty() {
            // The given classes have numbered both.
            return Ok(source.into());
        }
        let options = Self { window: None, ..self.clone() };
        if source.classes().is_empty() {
            // One file tells whether the training split has names that a number here might stand for.
            let shards = if train[0].is_dir() { shards_in(&train[0], self.format)? } else { None };
            let first = shards.unwrap_or(train).swap_remove(0);
            if options.open_files(vec![first])?.own_names {
                let expected = "names, as in the training split, or the classes that numbers stand for (--classes)";
                return Err(Error::parameter("open", "labels", expected, "numbers"));
            }
            return Ok(source.into());
        }
        let train = options.open_files(train)?.input;
        if train.classes().is_empty() {
            let expected = "labels with names in the training split too";
            return Err(Error::parameter("open", "labels", expected, "numbers there, and names in this split"));
        }
        aligned(source, train.classes().to_vec())
    }

    /// Refuses axes of a stream or a remote source.
    fn refuse_axes(&self, source: &str) -> Result<()> {
        self.axes.as_ref().map_or(Ok(()), |axes| {
            let expected = "only with a Zarr array or local Parquet files of lists";
            Err(Error::parameter("open", "axes", expected, format!("{axes}, with {source}")))
        })
    }

    /// Refuses options that a source of this format ignores.
    fn refuse_ignored(&self, format: SourceFormat) -> Result<()> {
        use SourceFormat::{
            Cifar10, Cifar100, Coco, Folder, Idx, List, Masks, Panoptic, Parquet, Shards, Voc, Yolo, Zarr,
        };
        let has_parts = |shards: RecordFormat| shards.facts().field_storage != FieldStorage::None;
        let records = format == Parquet || matches!(format, Shards(shards) if has_parts(shards));
        let shards = records || matches!(format, Shards(_));
        let annotated = matches!(format, Coco | Panoptic | Masks | Voc | Yolo);
        let name = format.name();
        let RecordOptions { image, label, classes, boxes, .. } = &self.records;
        let ignored = [
            ("image", !records, image.clone()),
            ("label", !shards && format != List, label.clone()),
            (
                "classes",
                matches!(format, Coco | Panoptic | Folder | List | Idx | Cifar10 | Cifar100 | Zarr),
                classes.first().cloned(),
            ),
            ("boxes", !records, boxes.map(|format| format!("{format:?}"))),
            ("split", matches!(format, Coco | Panoptic | Masks | Zarr), self.split.clone()),
            ("axes", !matches!(format, Parquet | Zarr), self.axes.clone()),
            ("annotations", format == Zarr, self.annotations.as_ref().map(|path| path.display().to_string())),
            ("window", annotated || format == Zarr, self.window.map(|window| window.to_string())),
        ];
        match ignored
            .into_iter()
            .find_map(|(option, is_ignored, got)| got.filter(|_| is_ignored).map(|got| (option, got)))
        {
            Some((option, got)) => {
                let expected = format!("none for the format {name}, which has no use for it");
                Err(Error::parameter("open", option, expected, got))
            }
            None => Ok(()),
        }
    }

    fn open_files(&self, mut files: Vec<PathBuf>) -> Result<Opened> {
        let one = files.len() == 1;
        if one && self.format != Some(SourceFormat::Folder) {
            let metadata = fs::metadata(&files[0]).map_err(Error::io("open", &files[0]))?;
            if metadata.is_dir() {
                match shards_in(&files[0], self.format)? {
                    Some(shards) => files = shards,
                    None => {
                        if self.window.is_some() {
                            let got = format!("a folder of images, {}", files[0].display());
                            return Err(Error::parameter(
                                "open",
                                "window",
                                "shards, which are read from front to back",
                                got,
                            ));
                        }
                        self.refuse_ignored(SourceFormat::Folder)?;
                        let images = ImageFolder::open(&files[0])?;
                        refuse_annotated(&images, &files[0])?;
                        return Ok(Opened::own(images));
                    }
                }
            }
        }
        let format = match self.format {
            Some(format) => format,
            None => common_format(&files)?,
        };
        self.refuse_ignored(format)?;
        if self.window.is_some() || (!self.random_access && files.iter().any(|path| is_pipe(path))) {
            let format = self.stream_format(Some(format))?;
            return Ok(Opened::fixed(RecordStream::open(format, files, self.stream_options())?));
        }
        match format {
            SourceFormat::Shards(format) => {
                let source = RecordShards::open(format, &files, &self.records)?;
                let own_names = !source.classes().is_empty() && self.records.classes.is_empty();
                Ok(Opened { input: source.with_classes(classes_of(&files)).into(), own_names })
            }
            #[cfg(feature = "parquet")]
            SourceFormat::Parquet => {
                let source = match &self.axes {
                    Some(axes) => super::ParquetFiles::open_with_axes(&files, axes, &self.records)?,
                    None => super::ParquetFiles::open(&files, &self.records)?,
                };
                let own_names = source.own_names();
                Ok(Opened { input: source.into(), own_names })
            }
            #[cfg(not(feature = "parquet"))]
            SourceFormat::Parquet => Err(Error::Unsupported {
                feature: "reading Parquet files in this build".to_owned(),
                remedy: "build with the feature `parquet`".to_owned(),
            }),
            SourceFormat::Cifar10 => Ok(Opened::fixed(CifarFiles::cifar10(&files)?)),
            SourceFormat::Cifar100 => Ok(Opened::fixed(CifarFiles::cifar100(&files)?)),
            _ if !one => {
                let got = format!("{} files, the first {}", files.len(), files[0].display());
                Err(refuse("one folder, list or IDX file, or shards of one format", got))
            }
            SourceFormat::Folder
            | SourceFormat::Coco
            | SourceFormat::Panoptic
            | SourceFormat::Masks
            | SourceFormat::Voc
            | SourceFormat::Yolo
            | SourceFormat::Zarr => Ok(Opened::own(ImageFolder::open(&files[0])?)),
            SourceFormat::List => Ok(Opened::fixed(ListFile::open_by(&files[0], self.records.label.as_deref())?)),
            SourceFormat::Idx => Ok(Opened::fixed(IdxFile::open(&files[0])?)),
        }
    }

    /// Returns the format of a stream: the one in the options, or `told` by its name.
    fn stream_format(&self, told: Option<SourceFormat>) -> Result<RecordFormat> {
        match self.format.or(told) {
            Some(SourceFormat::Shards(format)) => Ok(format),
            other => {
                let names = alternatives(RecordFormat::ALL.iter().map(|format| format.name().to_owned()));
                let expected = format!("{names} for a stream");
                let got = other.map_or("a stream whose name does not tell it", SourceFormat::name);
                Err(Error::parameter("open", "format", expected, got))
            }
        }
    }

    fn stream_options(&self) -> StreamOptions {
        let usual = StreamOptions::default();
        StreamOptions { records: self.records.clone(), window: self.window.unwrap_or(usual.window) }
    }

    #[cfg(feature = "cloud")]
    fn open_url(&self, address: Address<'_>) -> Result<Input> {
        let by_name = |name: &str| SourceFormat::by_name(Path::new(name));
        let url = address.public();
        let (folder, pattern) = address.location.rsplit_once('/').unwrap_or((address.location, ""));
        // A folder means all shards in it.
        let pattern = if pattern.is_empty() { "*" } else { pattern };
        let remote = if pattern.contains(['*', '?', '[']) {
            if address.query.is_some() {
                return Err(refuse("a pattern without a query, which is signed for one shard", url));
            }
            let wrong = |error: glob::PatternError| refuse("a pattern of *, ? and [a-z]", format!("{url}: {error}"));
            let pattern = glob::Pattern::new(pattern).map_err(wrong)?;
            let fits = |name: &str| {
                pattern.matches_with(name, spec::WILDCARDS) && (self.format.is_some() || by_name(name).is_some())
            };
            Remote::list(Address { location: folder, ..address }, fits, self.cache.clone())?
        } else {
            Remote::new(address, self.cache.clone())?
        };
        if remote.count() == 0 {
            return Err(refuse("a pattern that some shard's name fits", url));
        }
        let names: Vec<PathBuf> = (0..remote.count()).map(|shard| remote.name(shard).into()).collect();
        let told = if self.format.is_none() { Some(common_format(&names)?) } else { None };
        let (format, options) = (self.stream_format(told)?, self.stream_options());
        let packed = remote.packed()?;
        if self.random_access {
            let open = |shard| remote.shard(shard);
            let source = RecordShards::open_each(format, remote.count(), &open, SCANS, &self.records)?;
            return Ok(source.with_classes(packed.map_or_else(Vec::new, |packed| packed.classes)).into());
        }
        Ok(RecordStream::new(format, Box::new(remote), options)?.into())
    }

    #[cfg(not(feature = "cloud"))]
    fn open_url(&self, address: Address<'_>) -> Result<Input> {
        Err(Error::Unsupported {
            feature: format!("reading {} by this build", address.public()),
            remedy: "build warpfeed with the feature cloud (cargo install warpfeed --features cloud)".to_owned(),
        })
    }
}

/// A source, before the classes of its data set number its labels.
struct Opened {
    input: Input,
    /// Whether its own labels, which are texts, are its classes: another split would number them in another way.
    own_names: bool,
}

impl Opened {
    /// A source whose classes the format or its metadata fix.
    fn fixed(input: impl Into<Input>) -> Self {
        Self { input: input.into(), own_names: false }
    }

    /// A folder of class folders. It is a data set of its own if there is no training split next to it, whatever its
    /// name.
    fn own(folder: ImageFolder) -> Self {
        Self::fixed(folder)
    }
}

/// Returns the source with its labels numbered by these classes, those of the training split.
///
/// # Errors
/// [`Error::Parameter`] with the name of a class that is not among them.
fn aligned(source: Arc<dyn Source>, classes: Vec<String>) -> Result<Input> {
    if source.classes() == classes {
        return Ok(source.into());
    }
    if let Some(own) = source.classes().iter().find(|own| !classes.contains(own)) {
        let expected = "those of the training split, which numbers the labels of all splits (--classes numbers them in \
                        another way, --format folder takes a folder by itself)";
        return Err(Error::parameter(
            "open",
            "classes",
            expected,
            format!("{own:?} in a split that is not for training"),
        ));
    }
    Ok(source.align_classes(classes)?.into())
}

/// The error for a split whose labels are texts, without a training split that numbers them.
fn unnumbered(split: &str, files: &Path) -> Error {
    let expected = "given for a split whose labels are names, where no training split stands beside it: the classes of the \
                    training split, label 0 first (--classes)";
    Error::parameter("open", "classes", expected, format!("none for {split}, {}", files.display()))
}

/// Opens several splits of the data set in a folder, whose labels are numbered alike: by the classes of the training
/// split. [`open`] says which folders hold splits.
///
/// # Errors
/// The errors of [`open`].
///
/// ```
/// # use warpfeed::source::{Input, Source};
/// # let root = tempfile::tempdir().unwrap();
/// # for name in ["train/cat/1.jpg", "train/dog/1.jpg", "val/dog/2.jpg"] {
/// #     std::fs::create_dir_all(root.path().join(name).parent().unwrap()).unwrap();
/// #     std::fs::write(root.path().join(name), name).unwrap();
/// # }
/// // A folder with train/cat, train/dog and val/dog.
/// let [train, val] = warpfeed::source::open_splits(root.path(), ["train", "val"])?;
/// assert_eq!(train.classes(), val.classes());
/// assert_eq!(val.into_data_set()?.label(0), Some(1));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn open_splits<const N: usize>(spec: impl AsRef<Path>, splits: [&str; N]) -> Result<[Input; N]> {
    OpenOptions::default().open_splits(spec, splits)
}

/// Opens the source that `spec` names:
///
/// - a folder of class folders as [`ImageFolder`];
/// - a folder without folders but with shards of one format as these shards, sorted by name; refused if `warpfeed pack`
///   has not finished it;
/// - files that end in `.tar`, `.rec`, `.tfrecord`, `.tfrecords` or `-00000-of-00008` as [`RecordShards`];
/// - files that end in `.parquet`, with the feature `parquet`;
/// - a file that has `idx3-ubyte` or `idx4-ubyte` in its name as [`IdxFile`];
/// - any other file as [`ListFile`];
/// - with the feature `zarr` and [`OpenOptions::axes`], a folder that ends in `.zarr`, or that has `zarr.json` or
///   `.zarray` in it, as a Zarr array;
/// - CIFAR's `data_batch_*.bin` and `test_batch.bin` as [`CifarFiles`];
/// - pipes, and `-` for standard input, as [`RecordStream`];
/// - with the feature `cloud`, shards at `http://`, `https://`, `s3://`, `gs://` and `az://`, or all shards of a folder
///   there that can be listed, as [`RecordStream`].
///
/// [`OpenOptions`] changes these defaults. A pattern may name several shards: `train-{000000..000146}.tar`,
/// `{train,extra}-*.tar`, `part-?[0-4].rec`.
///
/// **Splits.** A folder that holds several splits of a data set needs [`OpenOptions::split`]. Such folders are:
///
/// - folders that hold only folders named `train`, `val` and `test` (or `validation` and others), with class folders or
///   shards;
/// - folders with shards whose names begin with names of splits;
/// - data sets in the cache of Hugging Face's hub (`datasets--USER--NAME`), or clones of them;
/// - CIFAR-10's and CIFAR-100's binary files, and MNIST's files;
/// - ImageNet's own archives (`ILSVRC2012_img_train.tar`, and `ILSVRC2012_img_val.tar` with its labels from
///   `ILSVRC2012_devkit_t12`).
///
/// The classes of the training split number the labels of all splits, wherever labels have names; a class that it lacks
/// is refused. That also holds for a split that is opened by itself, such as `data/val` or `val-*.tar`, if the training
/// split is next to it. If it is not, shards whose labels are names need [`RecordOptions::classes`].
///
/// With the format [`SourceFormat::Folder`], all folders in a folder are classes, whatever their names.
///
/// **Remote shards.** Credentials, region and endpoint of a store come from the variables that its own programs read
/// (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ...). A login in a URL (`https://user:password@host/...`) is sent as basic
/// authorization, and a signed query (`?X-Amz-Signature=...`, `?sig=...`) is sent unchanged. Neither is printed or
/// stored, and no credentials follow a redirect to another server. Answers of servers are bounded: a range by the
/// number of requested bytes, the listing of a folder by 128 MiB and a million shards, any other answer by 1 MiB.
/// Opening, reading and dropping work inside and outside of any async runtime; they block the calling thread, like
/// reading a file.
///
/// # Errors
/// [`Error::Io`] if the source does not exist or cannot be read, [`Error::Parameter`] if a pattern fits no file or
/// files of different formats, or a set of shards is not complete; and the errors of the kind of source.
///
/// ```
/// let folder = tempfile::tempdir().unwrap();
/// std::fs::create_dir(folder.path().join("cat")).unwrap();
/// std::fs::write(folder.path().join("cat/1.jpg"), [0xff, 0xd8]).unwrap();
/// let source = warpfeed::source::open(folder.path())?.into_data_set()?;
/// assert_eq!((source.len(), source.label(0), source.classes()), (1, Some(0), &["cat".to_owned()][..]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn open(spec: impl AsRef<Path>) -> Result<Input> {
    OpenOptions::default().open(spec)
}

/// Returns the format that all names tell.
fn common_format(files: &[PathBuf]) -> Result<SourceFormat> {
    let format = |path: &PathBuf| SourceFormat::by_name(path).unwrap_or(SourceFormat::List);
    let first = format(&files[0]);
    if let Some(other) = files.iter().find(|path| format(path) != first) {
        let got = format!("{} and {}", files[0].display(), other.display());
        return Err(refuse("files of one format", got));
    }
    let name = files[0].to_string_lossy().to_ascii_lowercase();
    if let Some(ending) = [".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz"].iter().find(|e| name.ends_with(*e)) {
        return Err(Error::Unsupported {
            feature: format!("reading images in any order from a {ending} file"),
            remedy: "unpack it to a .tar: images are compressed already".to_owned(),
        });
    }
    Ok(first)
}

/// Returns the names of the classes if `warpfeed pack` made all these shards, otherwise none. A damaged manifest is not
/// an error here.
fn classes_of(shards: &[PathBuf]) -> Vec<String> {
    let manifest = shards[0].parent().and_then(|folder| Packed::read(folder).ok().flatten());
    let packed = |path: &PathBuf, manifest: &Packed| {
        path.parent() == shards[0].parent() && path.file_name().is_some_and(|name| manifest.names(name))
    };
    let ours = manifest.filter(|manifest| shards.iter().all(|path| packed(path, manifest)));
    ours.map_or_else(Vec::new, |manifest| manifest.classes)
}

/// Returns the shards in a folder, sorted by name, if it holds shards of one format and no folders.
fn shards_in(folder: &Path, format: Option<SourceFormat>) -> Result<Option<Vec<PathBuf>>> {
    let mut shards = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let path = entry.map_err(Error::io("list", folder))?.path();
        if path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        if path.is_dir() {
            return Ok(None);
        }
        if let Some(found) = SourceFormat::by_name(&path)
            && !matches!(found, SourceFormat::Idx | SourceFormat::Cifar10 | SourceFormat::Zarr)
            && format.is_none_or(|format| format == found)
        {
            shards.push(path);
        }
    }
    shards.sort_unstable();
    if Packed::read(folder)?.is_some_and(|manifest| !manifest.complete) {
        let got = format!("{}, which is not: run it again", folder.display());
        return Err(refuse("a folder that `warpfeed pack` has finished", got));
    }
    let Some(first) = shards.first() else { return Ok(None) };
    common_format(&shards)?;
    let of = shard_of(&first.file_name().unwrap_or_default().to_string_lossy());
    if let Some(count) = of.filter(|&count| count != shards.len()) {
        let got = format!("{} with {} of them", folder.display(), shards.len());
        return Err(refuse(&format!("a folder with all {count} shards"), got));
    }
    Ok(Some(shards))
}
