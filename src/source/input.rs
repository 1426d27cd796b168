//! What a pipeline reads, and where the samples of one epoch are read.

use super::stream::Feed;
use super::{RecordStream, Source, Stream};
use crate::error::{Error, Result};
use crate::target::Target;
use std::borrow::Cow;
use std::sync::Arc;

/// What a pipeline reads: a data set, whose samples are counted and can be read in any order, or a stream, whose samples
/// come one after the other until it ends.
///
/// [`Pipeline::builder`](crate::Pipeline::builder) takes whatever becomes one: any [`Source`], a [`RecordStream`], what
/// [`open`](crate::source::open) gives, and a [`Stream`] of your own by [`Input::stream`].
///
/// ```
/// use warpfeed::source::{EncodedImages, Input, Source};
///
/// let input = Input::from(EncodedImages::new([(vec![0xff, 0xd8], 7)]));
/// assert!(matches!(input, Input::DataSet(_)));
/// assert_eq!(input.into_data_set()?.label(0), 7);
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
    /// A stream of your own.
    #[must_use]
    pub fn stream(stream: impl Stream + 'static) -> Self {
        Self::Stream(Arc::new(stream))
    }

    /// The data set, for those who read samples by their index.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is a stream.
    pub fn into_data_set(self) -> Result<Arc<dyn Source>> {
        match self {
            Self::DataSet(source) => Ok(source),
            Self::Stream(_) => Err(Error::Unsupported {
                feature: "reading the samples of a stream in any order".to_owned(),
                remedy: "give files without a window; remote shards are read so with random access".to_owned(),
            }),
        }
    }

    /// The names of the labels, label 0 first; empty where labels have no names.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        match self {
            Self::DataSet(source) => source.classes(),
            Self::Stream(stream) => stream.classes(),
        }
    }

    /// What tells it from others where an epoch is resumed.
    pub(crate) fn fingerprint(&self) -> u64 {
        match self {
            Self::DataSet(source) => source.fingerprint(),
            Self::Stream(stream) => stream.fingerprint(),
        }
    }

    /// Number of samples; `None` of a stream.
    pub(crate) fn samples(&self) -> Option<u64> {
        match self {
            Self::DataSet(source) => Some(source.len()),
            Self::Stream(_) => None,
        }
    }

    /// Encoded bytes that it holds at most, beside those of the samples that are worked on.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::DataSet(source) => source.ahead_bytes(),
            Self::Stream(stream) => stream.memory_bytes(),
        }
    }
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

/// Where the samples of one epoch are read.
pub(crate) enum Reader {
    DataSet(Arc<dyn Source>),
    Stream(Arc<Feed>),
}

impl Reader {
    /// The stream, if it is one.
    pub fn feed(&self) -> Option<&Feed> {
        match self {
            Self::DataSet(_) => None,
            Self::Stream(feed) => Some(feed),
        }
    }

    /// Says that sample `index` will be read.
    pub fn prefetch(&self, index: u64) {
        if let Self::DataSet(source) = self {
            source.prefetch(index);
        }
    }

    /// The label of a sample that has been read.
    pub fn label(&self, index: u64) -> u32 {
        match self {
            Self::DataSet(source) => source.label(index),
            Self::Stream(feed) => feed.label(index),
        }
    }

    /// What a sample that has been read is trained towards: its label, or what a field has.
    pub fn target(&self, index: u64, field: Option<&str>) -> Result<Target> {
        match self {
            Self::DataSet(source) => source.target(index, field),
            Self::Stream(feed) => feed.target(index, field),
        }
    }

    /// Its path or key, for messages.
    pub fn name(&self, index: u64) -> Cow<'_, str> {
        match self {
            Self::DataSet(source) => source.name(index),
            Self::Stream(feed) => feed.name(index).into(),
        }
    }
}
