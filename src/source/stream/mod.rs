//! Samples that come one after another.
//!
//! `Feed` gives the workers of an epoch the samples by position. One worker at a time pulls the next sample, without
//! the lock, so a stalled writer does not hold up a worker whose sample has come. A sample's index is its place in the
//! order of delivery, counted over all ranks in turn. Damage is a bad sample, and the rest of its shard is lost.
//!
//! The state of a shuffled stream holds the shard and byte to continue from, the place of each sample of the window,
//! the number of samples received, and the versions of these shards. On resuming, only the window is read again;
//! replaying the draws would need the size of every earlier image.
//!
//! One thread of tokio, which object_store needs, fetches remote shards (`remote`). Callers never block on that
//! runtime, so they may be inside or outside of any other.

#[cfg(feature = "cloud")]
mod cache;
mod extent;
mod feed;
mod lanes;
mod mix;
mod pipe;
mod records;
#[cfg(feature = "cloud")]
pub(crate) mod remote;
mod shards;
mod shuffle;

#[cfg(feature = "cloud")]
pub use cache::ShardCache;
pub(crate) use feed::{Feed, Place};
pub(crate) use lanes::{LanePlace, Lanes, LanesOf};
pub use mix::{AtEnd, StreamMix};
pub use records::{RecordStream, StreamOptions};
#[cfg(feature = "cloud")]
pub(super) use shards::Shards;
pub(super) use shards::is_pipe;

use super::records::fields::{FieldReader, StoredFields};
use super::{RecordFormat, RecordOptions};
use crate::decode::probe;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::order::Partition;
use crate::targets::Target;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One sample of a [`Stream`].
#[derive(Debug, Clone, PartialEq)]
pub struct StreamSample {
    /// The encoded image.
    pub bytes: Vec<u8>,
    /// The image's label; `None` if the stream has none.
    pub label: Option<u32>,
    /// The sample's path or key, for messages.
    pub name: String,
    /// The content of the requested field ([`StreamStart::target`]).
    pub target: Option<Target>,
    /// The requested fields ([`StreamStart::fields`]); `None` if the stream has none.
    pub fields: Option<StreamFields>,
}

/// Fields of a [`StreamSample`]. Those of shards are read when they are needed, so that a window holds them as they are
/// stored.
///
/// ```
/// use warpfeed::fields::Fields;
/// use warpfeed::source::StreamFields;
///
/// let fields = StreamFields::from(Fields::new().with("labels", vec![3, 17])?);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct StreamFields(Held);

#[derive(Debug, Clone, PartialEq)]
enum Held {
    Read(Fields),
    Stored(Box<Stored>),
}

/// A record's fields, with everything that is needed to read them.
#[derive(Debug, Clone, PartialEq)]
struct Stored {
    format: RecordFormat,
    options: Arc<RecordOptions>,
    names: Arc<[String]>,
    fields: StoredFields,
    /// The sample's name.
    of: String,
}

impl From<Fields> for StreamFields {
    fn from(fields: Fields) -> Self {
        Self(Held::Read(fields))
    }
}

impl StreamFields {
    /// Size in memory, in bytes, of fields as they are stored.
    fn len_bytes(&self) -> u64 {
        match &self.0 {
            Held::Read(_) => 0,
            Held::Stored(stored) => stored.fields.len_bytes(),
        }
    }

    /// The fields of a sample with this encoded image.
    fn read(self, image: &[u8]) -> Result<Fields> {
        match self.0 {
            Held::Read(fields) => Ok(fields),
            Held::Stored(stored) => {
                let Stored { format, options, names, fields, of } = *stored;
                let reader = FieldReader { storage: format.facts().field_storage, options: &options, names: &names };
                reader.read(&fields, &probe(image)?, || of.clone())
            }
        }
    }
}

/// The parameters with which an epoch of a stream begins.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StreamStart {
    /// The number of the epoch.
    pub epoch: u64,
    /// The seed for shuffling; `None` for the stream's own order.
    pub shuffle: Option<u64>,
    /// The part to read. The parts of all ranks together must be the whole stream.
    pub partition: Partition,
    /// The field whose contents are the targets ([`StreamSample::target`]); `None` if only labels are wanted.
    pub target: Option<String>,
    /// The names of the fields that are wanted ([`StreamSample::fields`]); empty if there are none.
    pub fields: Vec<String>,
    /// The position to resume from, which [`Samples::cursor`] returned in such an epoch; `None` for the beginning.
    pub cursor: Option<Vec<u8>>,
    /// Becomes true when the epoch is dropped. Dropping waits for [`Samples::next`], so code that waits in there should
    /// then return an error, which is ignored.
    pub stopped: Arc<AtomicBool>,
}

impl StreamStart {
    /// Begins epoch `epoch` at its start, unpartitioned and in the stream's own order.
    #[must_use]
    pub fn whole(epoch: u64) -> Self {
        let (partition, stopped) = (Partition::default(), Arc::default());
        Self { epoch, shuffle: None, partition, target: None, fields: Vec::new(), cursor: None, stopped }
    }
}

/// Samples that come one after another and whose number is not known beforehand, as from a pipe or over a network. For
/// a data set with a length and random access see [`Source`](crate::source::Source).
///
/// Implement it to feed images from anywhere:
///
/// ```
/// use warpfeed::{Pipeline, Result, source::{Input, Samples, Stream, StreamSample, StreamStart}, image::{Image, JpegOptions, Size}};
/// use warpfeed::ops::CenterCrop;
///
/// /// One image under three labels.
/// struct Same(Vec<u8>);
///
/// struct Labels(std::ops::Range<u32>, Vec<u8>);
///
/// impl Stream for Same {
///     fn begin(&self, start: &StreamStart) -> Result<Box<dyn Samples>> {
///         assert_eq!(start.partition.world_size(), 1);
///         Ok(Box::new(Labels(0..3, self.0.clone())))
///     }
/// }
///
/// impl Samples for Labels {
///     fn next(&mut self) -> Result<Option<StreamSample>> {
///         let sample = |label| StreamSample {
///             bytes: self.1.clone(),
///             label: Some(label),
///             name: format!("time {label}"),
///             target: None,
///             fields: None,
///         };
///         Ok(self.0.next().map(sample))
///     }
/// }
///
/// let jpeg = warpfeed::image::encode_jpeg(&Image::new(Size::new(8, 8)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(Input::stream(Same(jpeg))).transform(CenterCrop::new(8)).build()?;
/// assert_eq!(pipeline.num_samples(), None, "nobody knows before the end");
/// let labels: Vec<u32> = pipeline.epoch(0).flat_map(|batch| batch.unwrap().labels().unwrap().to_vec()).collect();
/// assert_eq!(labels, [0, 1, 2]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub trait Stream: Send + Sync {
    /// Begins an epoch. The same `start` must give the same samples in the same order.
    ///
    /// # Errors
    /// Any error that prevents the start, which ends the epoch.
    fn begin(&self, start: &StreamStart) -> Result<Box<dyn Samples>>;

    /// Largest number of encoded bytes that one epoch holds, without those of the delivered sample.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// The names of the labels, label 0 first; empty if labels have no names.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// Whether more than one epoch can be read. A pipe returns `false`: its samples are gone once they were read.
    fn repeats(&self) -> bool {
        true
    }

    /// Number of shards, from which parts can be made ([`Input::split`](crate::source::Input::split)). Default: 1.
    fn shards(&self) -> u64 {
        1
    }

    /// Returns a stream of only the shards with these numbers, counted from 0, in this order. Default: an error.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a stream without parts; [`Error::Parameter`] if there is no such shard.
    fn part(&self, _shards: &[u64]) -> Result<Arc<dyn Stream>> {
        Err(Error::Unsupported {
            feature: "a part of a stream that is no set of shards".to_owned(),
            remedy: "take parts of streams of shards, before they are mixed".to_owned(),
        })
    }

    /// A hash that identifies this stream when an epoch is resumed: the same in every process and version, and
    /// different if samples or their order differ. Called once for each pipeline. Default: a hash of the classes.
    fn fingerprint(&self) -> u64 {
        let mut hash = Sha256::new();
        self.classes().iter().for_each(|class| hash.update(format!("{class}\0")));
        hash.finalize().first_chunk().map_or(0, |start| u64::from_le_bytes(*start))
    }
}

/// The samples of one epoch of a [`Stream`].
pub trait Samples: Send {
    /// Returns the next sample; `None` at the end.
    ///
    /// # Errors
    /// An error with [`is_bad_sample`](crate::Error::is_bad_sample) stands for one sample, after which others may
    /// follow; the pipeline's [`OnError`](crate::OnError) decides about it. Any other error ends the epoch.
    fn next(&mut self) -> Result<Option<StreamSample>>;

    /// Place of the last returned sample in the stream's own order: the number of samples of this part that came before
    /// it. `None` if samples keep their places.
    fn origin(&self) -> Option<u64> {
        None
    }

    /// Returns the position after the last returned sample, from which [`StreamStart::cursor`] resumes. Only this
    /// stream understands the bytes. Called once for each batch; the epoch's state contains the result. `None` if
    /// resuming must read the stream again from the start and skip the delivered samples.
    fn cursor(&self) -> Option<Vec<u8>> {
        None
    }
}
