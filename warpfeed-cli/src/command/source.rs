//! Options for a command's images.

use super::output::say;
use clap::Args;
use std::path::{Path, PathBuf};
use warpfeed::fields::BoxFormat;
use warpfeed::internal::notice::is_new;
use warpfeed::source::{
    AuxFolder, Input, MaskIds, MaskOptions, OpenOptions, RecordOptions, SourceFormat, read_text_limited,
};
use warpfeed::{Error, Result};

/// Largest file of class names, in bytes.
const MAX_CLASSES_BYTES: u64 = 1 << 26;

/// Options for the split of a data set and the fields of its records.
#[derive(Args)]
pub struct FieldArgs {
    /// Split of a folder with several, of VOC or of a data.yaml: train, val, test, or the data set's own name.
    #[arg(long, value_name = "NAME")]
    split: Option<String>,
    /// Field with the image: an extension in WebDataset, a feature in TFRecord, a column in Parquet.
    #[arg(long, value_name = "NAME")]
    image_field: Option<String>,
    /// Field with the label: an extension, json.FIELD or folder in WebDataset, else a feature or column.
    ///
    /// folder is the image's folder in the archive. Features are TFRecord's, columns Parquet's.
    #[arg(long, value_name = "NAME")]
    label_field: Option<String>,
    /// File with the names of the classes, one per line, label 0 first, for labels that are names.
    ///
    /// Needed for shards that are read from front to back. Default for others: all names, sorted.
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// Format of boxes where the data do not say: XYXY, XYWH or CXCYWH.
    #[arg(long, value_name = "FORMAT")]
    box_format: Option<BoxFormat>,
    /// Annotations of the images: a file for the formats coco and panoptic, a folder for masks.
    #[arg(long, value_name = "PATH")]
    annotations: Option<PathBuf>,
    /// For the format coco: for each keypoint, the number of the one that it is in a mirror image, as 0,2,1.
    ///
    /// Default: by the names of keypoints that tell left from right: left_eye, eye_l, L Eye, leftEye.
    #[arg(long, value_name = "I,J,...", value_delimiter = ',')]
    flip_index: Option<Vec<usize>>,
    /// Auxiliary images in another folder, under the images' paths: NAME=FOLDER[,FILTER][,OLD:NEW].
    ///
    /// They become the field NAME. FILTER (nearest, bilinear, bicubic, lanczos) moves them whatever the operations' own
    /// is. OLD is the end of an image's name that they lack, NEW what stands there instead, as in
    /// disparity=disparity,_leftImg8bit:_disparity. May be given several times.
    #[arg(long, value_name = "NAME=FOLDER")]
    aux: Vec<AuxFolder>,
    /// Bands whose files are one image, in the order of its channels: patch_B02.tif and patch_B03.tif, or patch/B02.tif and
    /// patch/B03.tif, for B02,B03.
    #[arg(long, value_name = "B02,B03,...", value_delimiter = ',')]
    bands: Vec<String>,
    /// Meaning of the dimensions of a Zarr array, a letter for each: n samples, c channels, h rows, w columns, as nhwc.
    ///
    /// Images that are lists in Parquet have no n: hwc or chw.
    #[arg(long, value_name = "NHWC")]
    axes: Option<String>,
    /// Zarr array with the labels of another one: whole numbers, one for each sample.
    #[arg(long, value_name = "PATH")]
    labels: Option<PathBuf>,
    #[command(flatten)]
    masks: MaskArgs,
}

impl FieldArgs {
    /// Opens a source for access in any order.
    pub fn open(&self, spec: &Path, format: Option<SourceFormat>) -> Result<Input> {
        opened(&self.options(format)?.random_access(is_remote(spec)), spec)
    }

    /// Opens it with its own classes, whatever folders are next to it.
    pub fn open_alone(&self, spec: &Path, format: Option<SourceFormat>) -> Result<Input> {
        self.options(format)?.random_access(is_remote(spec)).open_alone(spec)
    }

    fn options(&self, format: Option<SourceFormat>) -> Result<OpenOptions> {
        Ok(OpenOptions::default()
            .format(format)
            .split(self.split.clone())
            .annotations(self.annotations.clone())
            .flip_index(self.flip_index.clone())
            .aux(self.aux.clone())
            .bands(self.bands.clone())
            .axes(self.axes.clone())
            .labels(self.labels.clone())
            .masks(self.masks.options())
            .records(self.records()?))
    }

    fn records(&self) -> Result<RecordOptions> {
        let (image, label) = (self.image_field.clone(), self.label_field.clone());
        let read = |path: &PathBuf| read_text_limited(path, MAX_CLASSES_BYTES);
        let classes = self.classes.as_ref().map(read).transpose()?.unwrap_or_default();
        let classes = classes.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(RecordOptions::default().image(image).label(label).classes(classes).boxes(self.box_format))
    }
}

/// Opens a source, and says what is odd about it.
fn opened(options: &OpenOptions, spec: &Path) -> Result<Input> {
    let input = options.open(spec)?;
    for warning in input.warnings().into_iter().filter(|warning| is_new(warning)) {
        say(format!("warning: {warning}"));
    }
    Ok(input)
}

fn is_remote(spec: &Path) -> bool {
    spec.to_str().is_some_and(|spec| spec.contains("://"))
}

/// Options for --format masks.
#[derive(Args)]
struct MaskArgs {
    /// The end of an image's name that its mask's lacks, for --format masks; Cityscapes: _leftImg8bit.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    image_suffix: String,
    /// The end of a mask's name in its place, before .png; Cityscapes: _gtFine_labelIds.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    mask_suffix: String,
    /// Meaning of the numbers in masks: classes, reduce-zero, cityscapes, or pairs like 7:0,8:1.
    ///
    /// reduce-zero ignores 0 and takes 1 off the others, as for ADE20K. cityscapes takes the 19 trained classes of
    /// labelIds. Pairs are numbers and their classes; the others are ignored.
    #[arg(long, value_name = "IDS", default_value = "classes", hide_default_value = true)]
    mask_ids: MaskIds,
    /// Class of ignored pixels in masks, and of what comes into view from outside.
    #[arg(long, value_name = "CLASS", default_value_t = 255)]
    mask_ignored: u16,
    /// File with the names of the images to take, one a line without endings, for --format masks.
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
}

impl MaskArgs {
    fn options(&self) -> MaskOptions {
        MaskOptions {
            image_suffix: self.image_suffix.clone(),
            mask_suffix: self.mask_suffix.clone(),
            ids: self.mask_ids.clone(),
            ignored: self.mask_ignored,
            list: self.list.clone(),
        }
    }
}

/// Options for the images.
#[derive(Args)]
pub struct SourceArgs {
    /// Folder of class folders, list file (path, tab, label), IDX file, Zarr array, or shards (.tar, .rec, .tfrecord,
    /// .parquet).
    ///
    /// Several shards are a folder of them, or a pattern like train-{000..146}.tar or '*.tar'.
    #[arg(value_name = "SOURCE")]
    pub spec: PathBuf,
    /// Format of the source if its name does not tell.
    ///
    /// Formats: folder, list, webdataset, recordio, tfrecord, idx, parquet, cifar10, cifar100, coco, panoptic,
    /// masks, voc, yolo, zarr.
    #[arg(long, value_name = "FORMAT")]
    format: Option<SourceFormat>,
    #[command(flatten)]
    fields: FieldArgs,
    /// Read shards from front to back and shuffle in a window of W images.
    ///
    /// Default for pipes, standard input (-) and remote shards: 1000.
    #[arg(long, value_name = "W")]
    window: Option<usize>,
    /// Read remote shards in any order, with one request per image; an index is made first.
    #[arg(long, conflicts_with = "window")]
    random_access: bool,
    /// Cache the bytes of remote shards in this folder.
    #[cfg(feature = "cloud")]
    #[arg(long, value_name = "FOLDER", requires = "shard_cache_size")]
    shard_cache: Option<PathBuf>,
    /// Size of the shard cache: 500MB, 20GB, 2GiB.
    #[cfg(feature = "cloud")]
    #[arg(long, value_name = "SIZE", requires = "shard_cache", value_parser = super::values::size)]
    shard_cache_size: Option<u64>,
}

impl SourceArgs {
    pub fn open(&self) -> Result<Input> {
        self.other(&self.spec)
    }

    /// Opens another source with the same options.
    pub fn other(&self, spec: &Path) -> Result<Input> {
        let options = self.fields.options(self.format)?.window(self.window).random_access(self.random_access);
        #[cfg(feature = "cloud")]
        let options = options.cache(
            self.shard_cache
                .clone()
                .zip(self.shard_cache_size)
                .map(|(folder, size_bytes)| warpfeed::source::ShardCache { folder, size_bytes }),
        );
        opened(&options, spec)
    }

    /// The source of a logged run, or the one at `spec`, without the caches of the run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the log names a place that is no file or folder: whoever wrote the log would decide
    /// where this machine sends requests, and with which of its keys.
    pub fn for_replay(self, spec: Option<&Path>) -> Result<Self> {
        let logged = Self {
            #[cfg(feature = "cloud")]
            shard_cache: None,
            #[cfg(feature = "cloud")]
            shard_cache_size: None,
            ..self
        };
        match spec {
            Some(spec) => Ok(Self { spec: spec.to_owned(), ..logged }),
            None if is_remote(&logged.spec) || logged.spec == Path::new("-") => Err(Error::Unsupported {
                feature: format!("reading from {}, because a log names it,", logged.name()),
                remedy: "give the place yourself, with --source".to_owned(),
            }),
            None => Ok(logged),
        }
    }

    /// All places that the source is read from.
    pub fn places(&self) -> Vec<String> {
        let fields = &self.fields;
        let beside = [&fields.annotations, &fields.classes, &fields.labels, &fields.masks.list].into_iter().flatten();
        let beside = beside.map(PathBuf::as_path).chain(fields.aux.iter().map(AuxFolder::folder));
        let beside = beside.map(|path| path.to_string_lossy().into_owned());
        std::iter::once(self.name()).chain(beside).collect()
    }

    /// Whether the images come from a server.
    pub fn is_remote(&self) -> bool {
        is_remote(&self.spec)
    }

    /// Name of the source in reports.
    pub fn name(&self) -> String {
        let name = self.spec.to_string_lossy();
        warpfeed::source::without_secrets(&name).into_owned()
    }
}

/// Options that name one sample of a source.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct SampleArgs {
    /// Index of the sample in the source.
    #[arg(long, value_name = "I")]
    index: Option<u64>,
    /// Name of the sample, or the end of its name: cats/3.jpg.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl SampleArgs {
    /// The sample's index among `samples`, whose names `name_of` gives.
    pub fn index(&self, name_of: impl Fn(u64) -> Option<String>, samples: Option<u64>) -> Result<u64> {
        one_sample(self.index, self.name.as_deref(), name_of, samples)
    }
}

/// The index of the sample that has this index, or the only one whose name is or ends in `/` and `name`.
pub fn one_sample(
    index: Option<u64>,
    name: Option<&str>,
    name_of: impl Fn(u64) -> Option<String>,
    samples: Option<u64>,
) -> Result<u64> {
    let Some(name) = name else { return Ok(index.unwrap_or(0)) };
    let wrong = |expected: &str, got: String| Error::Parameter {
        operation: "the command",
        parameter: "--name",
        expected: expected.to_owned(),
        got,
    };
    let is_it = |own: &String| own == name || own.strip_suffix(name).is_some_and(|rest| rest.ends_with(['/', '\\']));
    let named = |&index: &u64| name_of(index).as_ref().is_some_and(is_it);
    let mut found = (0..samples.unwrap_or(0)).filter(named);
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(index),
        (None, _) => Err(wrong("the name of a sample, or its end after a slash", format!("{name}, which none has"))),
        (Some(a), Some(b)) => {
            let both = [a, b].map(|index| name_of(index).unwrap_or_default()).join(" and ");
            Err(wrong("the name of one sample alone", format!("{name}, which {both} have")))
        }
    }
}
