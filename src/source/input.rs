//! A pipeline's input, and the reader of an epoch's samples.

use super::compose::{kfold_numbers, split_numbers};
use super::records::label::differs;
use super::stream::Feed;
use super::{ReadRequest, RecordStream, Sample, Source, SourceExt, Stream, StreamMix};
use crate::error::{Error, Result};
use crate::targets::{self, Found};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The input of a pipeline: a data set, which has a known number of samples that can be read in any order, or a stream,
/// whose samples come one after the other until it ends.
///
/// [`Pipeline::builder`](crate::Pipeline::builder) takes everything that converts into an input: any [`Source`], a
/// [`RecordStream`], the result of [`open`](crate::source::open), and your own [`Stream`] by [`Input::stream`].
///
/// ```
/// use warpfeed::source::{EncodedImages, Input, Source};
///
/// let input = Input::from(EncodedImages::new([(vec![0xff, 0xd8], 7)]));
/// assert!(matches!(input, Input::DataSet(_)));
/// assert_eq!(input.into_data_set()?.label(0), Some(7));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone)]
pub enum Input {
    /// A number of samples that can be read in any order.
    DataSet(Arc<dyn Source>),
    /// Samples that come one after the other.
    Stream(Arc<dyn Stream>),
}

impl Input {
    /// Makes an input of your own stream.
    #[must_use]
    pub fn stream(stream: impl Stream + 'static) -> Self {
        Self::Stream(Arc::new(stream))
    }

    /// Returns the data set, for callers that read samples by index.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the input is a stream.
    pub fn into_data_set(self) -> Result<Arc<dyn Source>> {
        match self {
            Self::DataSet(source) => Ok(source),
            Self::Stream(_) => Err(Error::Unsupported {
                feature: "reading the samples of a stream in any order".to_owned(),
                remedy: "give files without a window; remote shards are read so with random access".to_owned(),
            }),
        }
    }

    /// Splits the input into a part for training and a part for validation. The latter is a share of
    /// `0 < validation < 1`, drawn by `seed`: samples of a data set, as in [`SourceExt::split`], or whole shards of a
    /// stream.
    ///
    /// ```
    /// # use warpfeed::pack::{PackOptions, pack};
    /// # use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
    /// use warpfeed::source::{EncodedImages, OpenOptions, RecordFormat, Stream};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let shards = folder.path().join("shards");
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let images = EncodedImages::new((0..8).map(|label| (jpeg.clone(), label)));
    /// # for i in 0..8 {
    /// #     let options = PackOptions::new(RecordFormat::WebDataset);
    /// #     let packed = pack(&images, &folder.path().join(format!("part-{i}")), &options, &mut |_| {})?;
    /// #     std::fs::create_dir_all(&shards).unwrap();
    /// #     std::fs::copy(&packed.shards[0], shards.join(format!("{i}.tar"))).unwrap();
    /// # }
    ///
    /// let stream = OpenOptions::default().window(Some(1_000)).open(&shards)?;
    /// let (train, validation) = stream.split(0.25, 42)?;
    /// assert_eq!((train.into_stream()?.shards(), validation.into_stream()?.shards()), (6, 2));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] if a part would be empty; [`Error::Unsupported`] for a stream that has no parts.
    pub fn split(self, validation: f64, seed: u64) -> Result<(Self, Self)> {
        match self {
            Self::DataSet(source) => {
                source.split(validation, seed).map(|(train, held_out)| (train.into(), held_out.into()))
            }
            Self::Stream(stream) => parts(&*stream, &split_numbers(stream.shards(), "shards", validation, seed)?),
        }
    }

    /// Splits the input for cross-validation into the part for training and fold `fold` of `folds`: samples of a data
    /// set, as in [`SourceExt::kfold`], or whole shards of a stream.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are fewer than 2 folds or more than samples or shards, or if `fold` is not one of
    /// them; [`Error::Unsupported`] for a stream that has no parts.
    pub fn kfold(self, folds: u32, fold: u32, seed: u64) -> Result<(Self, Self)> {
        match self {
            Self::DataSet(source) => {
                source.kfold(folds, fold, seed).map(|(train, held_out)| (train.into(), held_out.into()))
            }
            Self::Stream(stream) => parts(&*stream, &kfold_numbers(stream.shards(), "shards", (folds, fold), seed)?),
        }
    }

    /// Returns the stream, for callers that read one sample after the other.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the input is a data set.
    pub fn into_stream(self) -> Result<Arc<dyn Stream>> {
        match self {
            Self::Stream(stream) => Ok(stream),
            Self::DataSet(_) => Err(Error::Unsupported {
                feature: "reading a data set as a stream".to_owned(),
                remedy: "open shards with a window (OpenOptions::window)".to_owned(),
            }),
        }
    }

    /// The names of the labels, label 0 first; empty if labels have no names.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        match self {
            Self::DataSet(source) => source.classes(),
            Self::Stream(stream) => stream.classes(),
        }
    }

    /// Oddities of the source that are not faults of a sample ([`Source::warnings`]).
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        match self {
            Self::DataSet(source) => source.warnings(),
            Self::Stream(_) => Vec::new(),
        }
    }

    /// Whether the samples have labels; `None` for a stream, whose first sample will tell.
    #[must_use]
    pub fn has_labels(&self) -> Option<bool> {
        match self {
            Self::DataSet(source) => Some(source.has_labels()),
            Self::Stream(_) => None,
        }
    }

    /// Returns the numbers of images, classes and skipped files.
    #[must_use]
    pub fn summary(&self) -> SourceSummary {
        let (passed_over, skipped) = match self {
            Self::DataSet(source) => (source.skipped_files(), source.skipped_kinds()),
            Self::Stream(_) => (0, Vec::new()),
        };
        let kinds = skipped.into_iter().map(|(kind, files)| SkippedFiles { kind, files }).collect();
        let (images, labels, classes) = (self.samples(), self.has_labels(), self.classes().len());
        SourceSummary { images, labels, classes, passed_over, kinds, warnings: self.warnings() }
    }

    /// A number that identifies the input when an epoch is resumed.
    pub(crate) fn fingerprint(&self) -> u64 {
        match self {
            Self::DataSet(source) => source.fingerprint(),
            Self::Stream(stream) => stream.fingerprint(),
        }
    }

    /// Number of samples; `None` for a stream.
    #[must_use]
    pub fn samples(&self) -> Option<u64> {
        match self {
            Self::DataSet(source) => Some(source.len()),
            Self::Stream(_) => None,
        }
    }

    /// Largest number of encoded bytes that the input holds, without those of the samples that are being processed.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::DataSet(source) => source.ahead_bytes(),
            Self::Stream(stream) => stream.memory_bytes(),
        }
    }
}

/// Numbers of a source's images and classes, and of the files that were skipped because their names are not names of
/// images.
///
/// ```
/// use warpfeed::source::{ImageFolder, Input};
///
/// let root = tempfile::tempdir().unwrap();
/// std::fs::create_dir(root.path().join("cat")).unwrap();
/// for name in ["cat/1.jpg", "cat/notes.txt", "2.jpg"] {
///     std::fs::write(root.path().join(name), "").unwrap();
/// }
/// let summary = Input::from(ImageFolder::open(root.path())?).summary();
/// let text = "1 image, 1 class, 2 files passed over (1 .jpg beside the class folders, 1 .txt)";
/// assert_eq!(summary.to_string(), text);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct SourceSummary {
    /// Number of images; `None` for a stream.
    pub images: Option<u64>,
    /// Whether the images have labels; `None` if only the first sample of a stream will tell.
    pub labels: Option<bool>,
    /// Number of classes of the images, or of their objects if images have no labels; 0 if classes have no names.
    pub classes: usize,
    /// Number of files that were skipped.
    pub passed_over: u64,
    /// Skipped files by kind, the most frequent kind first; empty if the source does not distinguish kinds.
    pub kinds: Vec<SkippedFiles>,
    /// Oddities of the source, a sentence each ([`Source::warnings`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Skipped files of one kind.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct SkippedFiles {
    /// The kind: `.txt`, or a reason.
    pub kind: String,
    /// Number of files.
    pub files: u64,
}

impl fmt::Display for SourceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
        match self.images {
            Some(images) => write!(f, "{}", plural(images, "image", "images"))?,
            None => f.write_str("a stream of images")?,
        }
        let classes = plural(self.classes as u64, "class", "classes");
        match (self.labels, self.classes) {
            (Some(false), 0) => f.write_str(", no labels")?,
            (Some(false), _) => write!(f, ", no labels of images, {classes}")?,
            (_, 0) => f.write_str(", classes without names")?,
            _ => write!(f, ", {classes}")?,
        }
        if self.passed_over > 0 {
            write!(f, ", {} passed over", plural(self.passed_over, "file", "files"))?;
        }
        if !self.kinds.is_empty() {
            let kinds: Vec<_> = self.kinds.iter().map(|kind| format!("{} {}", kind.files, kind.kind)).collect();
            write!(f, " ({})", kinds.join(", "))?;
        }
        Ok(())
    }
}

/// Returns two parts of a stream, each by the numbers of its shards.
fn parts(stream: &dyn Stream, (train, held_out): &(Vec<u64>, Vec<u64>)) -> Result<(Input, Input)> {
    Ok((stream.part(train)?.into(), stream.part(held_out)?.into()))
}

impl<S: Source + 'static> From<S> for Input {
    fn from(source: S) -> Self {
        Self::DataSet(Arc::new(source))
    }
}

impl From<RecordStream> for Input {
    fn from(stream: RecordStream) -> Self {
        Self::stream(stream)
    }
}

impl From<StreamMix> for Input {
    fn from(mix: StreamMix) -> Self {
        Self::stream(mix)
    }
}

impl From<Arc<dyn Stream>> for Input {
    fn from(stream: Arc<dyn Stream>) -> Self {
        Self::Stream(stream)
    }
}

impl From<Box<dyn Stream>> for Input {
    fn from(stream: Box<dyn Stream>) -> Self {
        Self::Stream(stream.into())
    }
}

/// Reader of the samples of one epoch.
pub(crate) enum Reader {
    DataSet(Arc<dyn Source>),
    Stream(Arc<Feed>),
}

impl Reader {
    /// Returns the feed if the input is a stream.
    pub fn feed(&self) -> Option<&Feed> {
        match self {
            Self::DataSet(_) => None,
            Self::Stream(feed) => Some(feed),
        }
    }

    /// Tells a data set that sample `index` will be read.
    pub fn prefetch(&self, index: u64) {
        if let Self::DataSet(source) = self {
            source.prefetch(index);
        }
    }

    /// The label of a sample that has been read; `None` if it has none.
    pub fn label(&self, index: u64) -> Option<u32> {
        match self {
            Self::DataSet(source) => source.label(index),
            Self::Stream(feed) => feed.label(index),
        }
    }

    /// The label of a sample that has been read, which has one if its source `has_labels`.
    ///
    /// # Errors
    /// [`Error::Target`], which makes the sample a bad one, if it has a label and the others have none, or the reverse.
    pub fn checked_label(&self, index: u64, has_labels: Option<bool>) -> Result<Option<u32>> {
        let label = self.label(index);
        if has_labels.is_none_or(|has| has == label.is_some()) {
            return Ok(label);
        }
        Err(targets::wrong(None, format!("{}: {}", self.name(index), differs(label.is_some()))))
    }

    /// Returns the wanted parts of a sample whose image is not read.
    pub fn found(&self, index: u64, want: &ReadRequest<'_>) -> Result<Found> {
        match self {
            Self::DataSet(_) if want.is_nothing() => Ok(Found::default()),
            Self::DataSet(source) => {
                let mut sample = Sample::default();
                source.read(index, want, &mut sample)?;
                sample.take_found(want)
            }
            Self::Stream(feed) => feed.found(index, want),
        }
    }

    /// Path or key of a sample, for messages.
    pub fn name(&self, index: u64) -> Cow<'_, str> {
        match self {
            Self::DataSet(source) => source.name(index),
            Self::Stream(feed) => feed.name(index).into(),
        }
    }
}
