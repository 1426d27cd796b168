//! What becomes of samples that cannot be used, how many of them an epoch may have, and what becomes of the last batch.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bad samples that are kept with their errors; all are counted.
const KEPT_BAD_SAMPLES: usize = 1_000;
/// Samples tried in the place of a bad one before the epoch ends with an error.
pub(super) const SUBSTITUTES: u32 = 16;
/// Samples that fail in the machine's reading one after the other before the machine is at fault.
pub(crate) const IO_FAILURES: u32 = 3;
/// Bad samples at the start of an epoch, without a good one, that end it unless the builder says otherwise. A share is
/// taken of as many at least.
const ALL_BAD: u64 = 100;

/// What to do with a sample that cannot be read or decoded, or is over a limit.
///
/// How many there may be says [`Builder::max_bad`](crate::Builder::max_bad). What every sample would meet is none's fault
/// ([`Error::is_bad_sample`]) and ends the epoch in each case: a machine without memory, files that it cannot open, a
/// server that does not answer. So does reading that fails with the system's I/O error for three samples in a row.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let cut = jpeg[..jpeg.len() / 2].to_vec();
/// let source = EncodedImages::new([(jpeg.clone(), 0), (cut, 1), (jpeg, 2)]);
/// let builder = |policy| Pipeline::builder(source.clone()).on_error(policy).center_crop(8).build();
///
/// let mut epoch = builder(OnError::Skip)?.epoch(0);
/// for batch in epoch.by_ref() {
///     assert_eq!(batch?.labels(), [0, 2]);
/// }
/// assert_eq!((epoch.bad().len(), epoch.bad()[0].index), (1, 1));
///
/// let error = builder(OnError::Fail)?.epoch(0).next().unwrap().unwrap_err();
/// assert!(error.is_bad_sample() && error.to_string().contains("truncated"));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The batches before it are delivered, then its error, and the epoch ends.
    #[default]
    Fail,
    /// It is left out, counted and reported ([`Epoch::bad`](crate::Epoch::bad)). Its batch is that much shorter, wherever in
    /// the epoch it is and whatever [`LastBatch`](crate::LastBatch) says of the last one but for
    /// [`Pad`](crate::LastBatch::Pad): which samples come together does not depend on which of them are bad. Where every
    /// batch must have the same size, use [`Substitute`](Self::Substitute), or `Pad`.
    Skip,
    /// Another sample, drawn from the same seed, takes its place; it is counted and reported.
    Substitute,
}

/// What to do with a last batch that is not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LastBatch {
    /// It is delivered, shorter than the others.
    #[default]
    Keep,
    /// It is left out. A batch that [`OnError::Skip`] has made shorter, anywhere in the epoch, is delivered all the same:
    /// for batches of one size, bad samples must be substituted or batches padded.
    Drop,
    /// It is filled with repetitions of its last image ([`Batch::padding`](crate::Batch::padding) says how many). So is a
    /// batch that [`OnError::Skip`] has made shorter.
    Pad,
}

/// How many samples of an epoch may be bad.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BadLimit {
    /// So many.
    Count(u64),
    /// This share of its samples, 0 to 1. Of a stream, whose length is not known, it is the share of the samples so far,
    /// counted as 100 while they are fewer and more may follow.
    Share(f64),
}

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

/// What the pipeline itself does, whatever runs the recipes.
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
    /// Its path or name.
    pub path: String,
    /// Its index in the source.
    pub index: u64,
    /// What was wrong with it.
    pub error: String,
}

/// The bad samples of an epoch, as the workers meet them.
#[derive(Default)]
pub(super) struct BadSamples {
    found: Mutex<(Vec<BadSample>, u64)>,
    /// Samples in a row for which the machine's reading failed.
    io_failures: AtomicU32,
}

impl BadSamples {
    fn lock(&self) -> MutexGuard<'_, (Vec<BadSample>, u64)> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are kept, in the order of the source.
    pub(super) fn list(&self) -> Vec<BadSample> {
        let mut list = self.lock().0.clone();
        list.sort_by_key(|bad| bad.index);
        list
    }

    pub(super) fn count(&self) -> u64 {
        self.lock().1
    }

    /// A sample could be used.
    pub(super) fn good(&self) {
        // Most often there is nothing to write, which threads would wait for each other to do.
        if self.io_failures.load(Relaxed) > 0 {
            self.io_failures.store(0, Relaxed);
        }
    }

    /// A sample could not be used, and says by which error if the machine is at fault and not the sample: the system's
    /// I/O error for several in a row.
    fn is_machines(&self, error: &Error) -> bool {
        let row = if error.is_io_failure() { self.io_failures.fetch_add(1, Relaxed) + 1 } else { 0 };
        self.io_failures.store(row, Relaxed);
        row >= IO_FAILURES
    }

    /// Counts a bad sample, and gives its error back. `name` is asked for once.
    ///
    /// # Errors
    /// What ends the epoch if it is not the sample that is bad.
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

/// The error for [`IO_FAILURES`] samples in a row, of which this is the last.
pub(crate) fn io_failure(error: Error) -> Error {
    Error::TooManyBad {
        bad: IO_FAILURES.into(),
        samples: IO_FAILURES.into(),
        remedy: "the system failed at reading them one after the other: check the disk or share, and the system's log",
        first: Box::new(error),
    }
}

/// What a batch's positions came to, as far as the limit is concerned.
#[derive(Default)]
pub(crate) struct Losses {
    /// Samples that were bad, whatever came in their place.
    pub(crate) bad: u64,
    /// How many of them came before the first sample that could be used.
    pub(crate) leading: u64,
    pub(crate) first: Option<Box<Error>>,
}

impl Losses {
    pub(super) fn add(&mut self, error: Box<Error>) {
        self.bad += 1;
        self.first.get_or_insert(error);
    }
}

/// Counts bad samples in the order of delivery and holds them against the limit: when an epoch ends for too many does
/// not depend on threads.
pub(crate) struct Tally {
    limit: Option<BadLimit>,
    /// Samples of the epoch, if that is known.
    total: Option<u64>,
    /// Whether it began at its beginning, so that "all of it" has a meaning.
    whole: bool,
    samples: u64,
    losses: Losses,
}

impl Tally {
    pub(crate) fn new(limit: Option<BadLimit>, total: Option<u64>, whole: bool) -> Self {
        Self { limit, total, whole, samples: 0, losses: Losses::default() }
    }

    /// Counts a batch of so many samples.
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

    /// The epoch has no more samples.
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
