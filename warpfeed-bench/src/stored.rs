//! Ways to store the same images, which [`workers`](super::workers::workers) compares.

use super::published::IoStorage;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpfeed::ops::Resize;
use warpfeed::source::{Input, ReadRequest, Sample, Source};
use warpfeed::{Error, ImageCache, PipelineBuilder, Result};

/// Time after which a sleeping source looks whether it is still asked.
const NAP: Duration = Duration::from_millis(5);

/// Images stored in one way.
#[derive(Clone)]
pub struct Stored {
    /// Name in reports.
    pub name: String,
    /// The images.
    pub input: Input,
    /// Published storage that this repeats.
    pub(super) repeats: Option<IoStorage>,
    /// Length in pixels of the shorter side that images are resized to ahead of time, and the cache that holds them.
    resized: Option<(u32, ImageCache)>,
}

impl Stored {
    /// Images as a source has them.
    #[must_use]
    pub fn other(name: impl Into<String>, input: impl Into<Input>) -> Self {
        Self { name: name.into(), input: input.into(), repeats: None, resized: None }
    }

    /// The images that an experiment was given.
    pub(super) fn given(input: Input) -> Self {
        Self { repeats: Some(IoStorage::Raw), ..Self::other("as given", input) }
    }

    /// Images that are decoded and resized ahead of time, so that the shorter side has `side_px` pixels, and held
    /// unpacked in a folder of at most `size_bytes`.
    #[must_use]
    pub fn resized(input: impl Into<Input>, side_px: u32, folder: impl Into<PathBuf>, size_bytes: u64) -> Self {
        let resized = Some((side_px, ImageCache::disk(folder, size_bytes)));
        Self { repeats: Some(IoStorage::Resized), resized, ..Self::other(format!("resized to {side_px}"), input) }
    }

    /// Images that each come only after `time`, as from a slow storage.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a stream; [`Error::Parameter`] if `time` is zero.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use warpfeed_bench::stored::Stored;
    /// use warpfeed::source::EncodedImages;
    ///
    /// let slow = Stored::sleeping(EncodedImages::new([(vec![0xff, 0xd8], 7)]), Duration::from_millis(20))?;
    /// let (start, source) = (Instant::now(), slow.input.into_data_set()?);
    /// assert_eq!((source.encoded(0)?, source.label(0)), (vec![0xff, 0xd8], Some(7)));
    /// assert!(start.elapsed() >= Duration::from_millis(20));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn sleeping(input: impl Into<Input>, time: Duration) -> Result<Self> {
        if time.is_zero() {
            return Err(Error::parameter("workers", "sleep", "more than zero", "zero"));
        }
        let images = input.into().into_data_set()?;
        let name = format!("sleeping {} ms", time.as_secs_f64() * 1e3);
        let repeats = Some(IoStorage::Sleeping);
        Ok(Self { repeats, ..Self::other(name, Input::DataSet(Arc::new(Sleeping { images, time }))) })
    }

    /// Adds what is done to images before the operations.
    pub(super) fn add_to(&self, builder: PipelineBuilder) -> PipelineBuilder {
        match &self.resized {
            Some((side_px, cache)) => builder.transform(Resize::shorter_side(*side_px)).cache(cache.clone()),
            None => builder,
        }
    }

    /// Whether an epoch has to run before the images are stored so.
    pub(super) fn is_to_be_made(&self) -> bool {
        self.resized.is_some()
    }
}

/// A source whose samples each come only after a time.
struct Sleeping {
    images: Arc<dyn Source>,
    time: Duration,
}

impl Source for Sleeping {
    fn len(&self) -> u64 {
        self.images.len()
    }

    fn label(&self, index: u64) -> Option<u32> {
        self.images.label(index)
    }

    fn has_labels(&self) -> bool {
        self.images.has_labels()
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.images.name(index)
    }

    fn classes(&self) -> &[String] {
        self.images.classes()
    }

    fn check_field(&self, name: &str) -> Result<()> {
        self.images.check_field(name)
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let due = Instant::now() + self.time;
        while !want.is_stopped() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(NAP));
        }
        self.images.read(index, want, sample)
    }
}
