//! Policies for bad samples, the limit on their number, and policies for the last batch.

use crate::error::{Error, Result};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of bad samples that are kept with their errors. All are counted.
const KEPT_BAD_SAMPLES: usize = 1_000;
/// Number of samples tried in place of a bad one before the epoch ends with an error.
pub(super) const SUBSTITUTES: u32 = 16;
/// Number of consecutive samples that fail with an I/O error of the system before the machine is held to be at fault.
pub(crate) const IO_FAILURES: u32 = 3;
/// Without a limit from the builder, the epoch ends if it starts with this many bad samples. In a stream, a share is
/// taken of at least this many samples.
const ALL_BAD: u64 = 100;

/// Policy for a sample that cannot be read or decoded, or exceeds a limit.
///
/// [`PipelineBuilder::max_bad`](crate::PipelineBuilder::max_bad) limits the number of such samples. Failures that would
/// hit every sample are not the sample's fault ([`Error::is_bad_sample`]) and always end the epoch: a machine without
/// memory, files that it cannot open, a server that does not answer. So do I/O errors of the system for three samples
/// in a row.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let cut = jpeg[..jpeg.len() / 2].to_vec();
/// let source = EncodedImages::new([(jpeg.clone(), 0), (cut, 1), (jpeg, 2)]);
/// let builder = |policy| Pipeline::builder(source.clone()).on_error(policy).transform(CenterCrop::new(8)).build();
///
/// let mut epoch = builder(OnError::Skip)?.epoch(0);
/// for batch in epoch.by_ref() {
///     assert_eq!(batch?.labels()?, [0, 2]);
/// }
/// assert_eq!((epoch.bad().len(), epoch.bad()[0].index), (1, 1));
///
/// let error = builder(OnError::Fail)?.epoch(0).next().unwrap().unwrap_err();
/// assert!(error.is_bad_sample() && error.to_string().contains("truncated"));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnError {
    /// The batches before it are delivered, then its error, and the epoch ends.
    #[default]
    Fail,
    /// The sample is skipped, counted and reported ([`Epoch::bad`](crate::Epoch::bad)). Its batch gets shorter,
    /// anywhere in the epoch and with every [`LastBatch`](crate::LastBatch) but [`Pad`](crate::LastBatch::Pad). So
    /// which samples share a batch does not depend on which samples are bad. If all batches must have the same size,
    /// use [`Substitute`](Self::Substitute) or `Pad`.
    Skip,
    /// Another sample, drawn from the same seed, takes its place. The bad sample is counted and reported.
    Substitute,
}

choices! {
    OnError, "on_error":
    Fail = "fail", "The epoch ends with its error.";
    Skip = "skip", "It is left out, and its batch is shorter.";
    Substitute = "substitute", "Another image takes its place.";
}

/// Policy for a last batch that is not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LastBatch {
    /// The batch is delivered, shorter than the others.
    #[default]
    Keep,
    /// The batch is dropped. A batch that [`OnError::Skip`] made shorter is still delivered, wherever it is in the
    /// epoch. For batches of equal size, substitute bad samples or pad batches.
    Drop,
    /// The batch is filled with repetitions of its last image; [`Batch::padding`](crate::Batch::padding) counts them. A
    /// batch that [`OnError::Skip`] made shorter is filled too.
    Pad,
}

choices! {
    LastBatch, "last_batch":
    Keep = "keep", "It is delivered, shorter than the others.";
    Drop = "drop", "It is left out.";
    Pad = "pad", "Its last image is repeated.";
}

/// Limit on the number of bad samples in an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BadLimit {
    /// An absolute number of samples.
    Count(u64),
    /// A share of the epoch's samples, 0 to 1. The length of a stream is not known: while it runs, the share is taken
    /// of the samples so far, or of 100 if there are fewer.
    Share(f64),
}

/// Reads a number, or a share such as `1%` or `0.01`.
impl FromStr for BadLimit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let limit = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(|percent: f64| Self::Share(percent / 100.0)),
            None if text.contains(['.', 'e']) => text.parse().ok().map(Self::Share),
            None => text.parse().ok().map(Self::Count),
        };
        let limit = limit.filter(|limit| limit.check().is_ok());
        limit.ok_or_else(|| Error::parameter("pipeline", "max_bad", "a number, or a share from 0% to 100%", text))
    }
}

text_value!(BadLimit: "a number, or a share from 0% to 100%");

impl BadLimit {
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Share(share) if !(0.0..=1.0).contains(&share) => {
                Err(Error::parameter("pipeline", "max_bad", "a count, or a share of 0 to 1", share))
            }
            Self::Share(_) | Self::Count(_) => Ok(()),
        }
    }
}

/// The pipeline's policies, which do not depend on the back end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Policy {
    pub(super) on_error: OnError,
    pub(super) max_bad: Option<BadLimit>,
    pub(super) last: LastBatch,
}

/// A sample that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct BadSample {
    /// Path or name of the sample.
    pub path: String,
    /// Index of the sample in the source.
    pub index: u64,
    /// The error, as text.
    pub error: String,
}

/// The bad samples of an epoch, recorded by the workers.
#[derive(Default)]
pub(super) struct BadSamples {
    found: Mutex<(Vec<BadSample>, u64)>,
    /// Number of consecutive samples that failed with an I/O error of the system.
    io_failures: AtomicU32,
}

impl BadSamples {
    fn lock(&self) -> MutexGuard<'_, (Vec<BadSample>, u64)> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bad samples that are kept, in the order of the source.
    pub(super) fn list(&self) -> Vec<BadSample> {
        let mut list = self.lock().0.clone();
        list.sort_by_key(|bad| bad.index);
        list
    }

    pub(super) fn count(&self) -> u64 {
        self.lock().1
    }

    /// Notes that a sample could be used.
    pub(super) fn good(&self) {
        // Usually there is nothing to write: skipping the store saves the threads from contending for the cache line.
        if self.io_failures.load(Relaxed) > 0 {
            self.io_failures.store(0, Relaxed);
        }
    }

    /// Counts a sample that could not be used. True if the machine and not the sample is at fault: [`IO_FAILURES`]
    /// samples in a row failed with an I/O error of the system.
    fn is_machines(&self, error: &Error) -> bool {
        let row = if error.is_io_failure() { self.io_failures.fetch_add(1, Relaxed) + 1 } else { 0 };
        self.io_failures.store(row, Relaxed);
        row >= IO_FAILURES
    }

    /// Counts a bad sample, and gives its error back. `name` is called once.
    ///
    /// # Errors
    /// The error that ends the epoch, if the machine and not the sample is at fault.
    pub(super) fn record(&self, index: u64, name: impl FnOnce() -> String, error: Error) -> Result<Error> {
        if self.is_machines(&error) {
            return Err(io_failure(Error::Sample { index, name: name(), source: Box::new(error) }));
        }
        let bad = BadSample { path: name(), index, error: error.to_string() };
        let mut found = self.lock();
        found.1 += 1;
        if found.0.len() < KEPT_BAD_SAMPLES {
            found.0.push(bad);
        }
        Ok(error)
    }
}

/// The error for [`IO_FAILURES`] failed samples in a row. `error` is the last one's.
pub(crate) fn io_failure(error: Error) -> Error {
    Error::TooManyBad {
        bad: IO_FAILURES.into(),
        samples: IO_FAILURES.into(),
        remedy: "the system failed at reading them one after the other: check the disk or share, and the system's log",
        first: Box::new(error),
    }
}

/// A batch's bad samples, counted for the limit.
#[derive(Default)]
pub(crate) struct Losses {
    /// Number of bad samples, whether or not they were substituted.
    pub(crate) bad: u64,
    /// Number of them before the first sample that could be used.
    pub(crate) leading: u64,
    pub(crate) first: Option<Box<Error>>,
}

impl Losses {
    pub(super) fn add(&mut self, error: Box<Error>) {
        self.bad += 1;
        self.first.get_or_insert(error);
    }
}

/// Counts bad samples in the order of delivery and compares them with the limit. So whether an epoch ends does not
/// depend on threads.
pub(crate) struct Tally {
    limit: Option<BadLimit>,
    /// Number of samples of the epoch, if it is known.
    total: Option<u64>,
    /// Whether the epoch started at its first sample. A resumed epoch cannot tell that all samples are bad.
    whole: bool,
    samples: u64,
    losses: Losses,
}

impl Tally {
    pub(crate) fn new(limit: Option<BadLimit>, total: Option<u64>, whole: bool) -> Self {
        Self { limit, total, whole, samples: 0, losses: Losses::default() }
    }

    /// Counts a batch of `samples` samples.
    pub(crate) fn add(&mut self, samples: u64, losses: Losses) -> Result<()> {
        if self.losses.leading == self.samples {
            self.losses.leading += losses.leading;
        }
        self.samples += samples;
        self.losses.bad += losses.bad;
        self.losses.first = self.losses.first.take().or(losses.first);
        let too_many = match self.limit {
            None => self.losses.leading >= ALL_BAD,
            Some(limit) => self.exceeds(limit, self.total.unwrap_or(self.samples.max(ALL_BAD))),
        };
        self.fail_if(too_many)
    }

    /// Checks the limit at the end of the epoch.
    pub(crate) fn end(&mut self) -> Result<()> {
        let too_many = match self.limit {
            None => self.whole && self.samples > 0 && self.losses.leading == self.samples,
            Some(limit) => self.exceeds(limit, self.total.unwrap_or(self.samples)),
        };
        self.fail_if(too_many)
    }

    fn exceeds(&self, limit: BadLimit, of: u64) -> bool {
        match limit {
            BadLimit::Count(count) => self.losses.bad > count,
            BadLimit::Share(share) => self.losses.bad as f64 > share * of as f64,
        }
    }

    fn fail_if(&mut self, too_many: bool) -> Result<()> {
        let Some(first) = self.losses.first.take_if(|_| too_many) else { return Ok(()) };
        let remedy = match self.limit {
            None => "check that the data set is there, is mounted and has images that can be decoded",
            Some(_) => "check the data set, or allow more with max_bad",
        };
        Err(Error::TooManyBad { bad: self.losses.bad, samples: self.samples, remedy, first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bad: u64, leading: u64) -> Losses {
        let first = (bad > 0).then(|| Box::new(Error::decode("JPEG", "cut")));
        Losses { bad, leading, first }
    }

    /// After how many of these batches, of ten samples each, an epoch fails; the number of batches if at its end.
    fn fails(limit: Option<BadLimit>, total: Option<u64>, batches: &[(u64, u64)]) -> Option<usize> {
        let mut tally = Tally::new(limit, total, true);
        let failed = batches.iter().position(|&(bad, leading)| tally.add(10, batch(bad, leading)).is_err());
        failed.or_else(|| tally.end().is_err().then_some(batches.len()))
    }

    #[test]
    fn too_many_bad_samples_end_an_epoch_and_some_do_not() {
        let all = [(10, 10); 30];
        let one_good = [&[(9, 4)], &all[..]].concat();
        // Without a limit: the first hundred, or all of it.
        assert_eq!(fails(None, Some(300), &all), Some(9));
        assert_eq!(fails(None, Some(50), &all[..5]), Some(5));
        assert_eq!(fails(None, Some(310), &one_good), None);
        assert_eq!(fails(None, Some(0), &[]), None);
        // 99 and then a good one.
        assert_eq!(fails(None, None, &[&all[..9], &[(9, 9)], &all[..2]].concat()), None);
        assert_eq!(fails(Some(BadLimit::Count(10)), Some(300), &all), Some(1));
        assert_eq!(fails(Some(BadLimit::Count(300)), Some(300), &all), None);
        assert_eq!(fails(Some(BadLimit::Share(0.1)), Some(300), &all), Some(3));
        assert_eq!(fails(Some(BadLimit::Share(1.0)), Some(300), &all), None);
        assert_eq!(fails(Some(BadLimit::Share(0.0)), Some(20), &[(0, 0), (1, 0)]), Some(1));
        // Of a stream: a tenth of the first hundred, then of what has come.
        let stream = Some(BadLimit::Share(0.1));
        assert_eq!(fails(stream, None, &[(5, 5), (5, 5), (1, 0)]), Some(2));
        assert_eq!(fails(stream, None, &[&[(10, 10)], &[(0, 0); 20][..]].concat()), None);
        assert_eq!(fails(stream, None, &[(2, 0)]), Some(1));
    }

    #[test]
    fn the_rest_of_an_epoch_may_be_bad_as_a_whole() {
        let mut rest = Tally::new(None, Some(20), false);
        rest.add(10, batch(10, 10)).unwrap();
        rest.end().unwrap();
    }

    #[test]
    fn the_error_names_count_first_and_remedy() {
        let mut tally = Tally::new(None, Some(200), true);
        let error = tally.add(200, batch(150, 150)).unwrap_err().to_string();
        for word in ["150 of 200 samples", "cut", "mounted"] {
            assert!(error.contains(word), "{error}");
        }
    }
}
