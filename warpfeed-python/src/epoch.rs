//! Epochs: waiting for a batch leaves Python to other threads and to signals.

use crate::batch::{Batch, Form};
use crate::ending::detached;
use crate::error::raise;
use crate::forks::OfProcess;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest time that a signal waits.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// An epoch, whatever the form of its images.
pub(crate) trait Running: Send {
    fn wait(&self, limit: Duration) -> bool;
    fn next(&mut self) -> Option<warpfeed::Result<Box<dyn Made>>>;
    fn stats(&self) -> warpfeed::Stats;
    fn bad(&self) -> Vec<warpfeed::BadSample>;
}

/// A batch that Python has not seen.
pub(crate) trait Made: Send {
    fn hand_over(self: Box<Self>, py: Python<'_>) -> PyResult<Batch>;
}

impl<I: Form> Made for warpfeed::Batch<I> {
    fn hand_over(self: Box<Self>, py: Python<'_>) -> PyResult<Batch> {
        Batch::new(py, *self)
    }
}

impl<I: Form> Running for warpfeed::Epoch<I> {
    fn wait(&self, limit: Duration) -> bool {
        self.wait(limit)
    }

    fn next(&mut self) -> Option<warpfeed::Result<Box<dyn Made>>> {
        Iterator::next(self).map(|batch| batch.map(|batch| Box::new(batch) as Box<dyn Made>))
    }

    fn stats(&self) -> warpfeed::Stats {
        self.stats()
    }

    fn bad(&self) -> Vec<warpfeed::BadSample> {
        self.bad()
    }
}

/// Counts and times of an epoch that was closed, and its bad samples.
type Ended = (warpfeed::Stats, Vec<warpfeed::BadSample>);

enum Stage {
    Running(Box<dyn Running>),
    Closed(Box<Ended>),
}

/// An iterator over the batches of an epoch. Closing it, or dropping it, joins its threads.
#[pyclass(frozen, weakref, module = "warpfeed")]
pub(crate) struct Epoch(OfProcess<Mutex<Stage>>);

impl Epoch {
    pub(crate) fn new<I: Form>(epoch: warpfeed::Epoch<I>) -> Self {
        Self(OfProcess::new(Mutex::new(Stage::Running(Box::new(epoch)))))
    }

    /// Works on the epoch without the GIL.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Stage) -> T + Send) -> PyResult<T> {
        let stage = self.0.get()?;
        Ok(detached(py, || work(&mut stage.lock().unwrap_or_else(PoisonError::into_inner))))
    }

    fn ended(&self, py: Python<'_>) -> PyResult<Ended> {
        self.with(py, |stage| match stage {
            Stage::Running(epoch) => (epoch.stats(), epoch.bad()),
            Stage::Closed(ended) => (**ended).clone(),
        })
    }
}

#[pymethods]
impl Epoch {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next batch; `StopIteration` at the end. Several threads may ask: each batch comes once.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            let next = self.with(py, |stage| match stage {
                Stage::Running(epoch) => epoch.wait(SIGNALS_EVERY).then(|| epoch.next()),
                Stage::Closed(_) => Some(None),
            })?;
            match next {
                Some(batch) => return batch.transpose().map_err(raise)?.map(|made| made.hand_over(py)).transpose(),
                None => py.check_signals()?,
            }
        }
    }

    /// Waits at most so many seconds for the next batch, or the end. Returns whether it is there.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let is_there = self.with(py, |stage| match stage {
                Stage::Running(epoch) => epoch.wait(SIGNALS_EVERY.min(left)),
                Stage::Closed(_) => true,
            })?;
            if is_there || left.is_zero() {
                return Ok(is_there);
            }
            py.check_signals()?;
        }
    }

    /// Stops and joins the threads. No batch comes after that.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.with(py, |stage| {
            let Stage::Running(epoch) = stage else { return None };
            let ended = Box::new((epoch.stats(), epoch.bad()));
            Some(std::mem::replace(stage, Stage::Closed(ended)))
        })?;
        detached(py, || drop(running));
        Ok(())
    }

    /// Counts and times so far, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let (stats, _) = self.ended(py)?;
        Ok(serde_json::to_string(&stats).unwrap_or_default())
    }

    /// Samples that were skipped or substituted: index, name, error.
    fn bad(&self, py: Python<'_>) -> PyResult<Vec<(u64, String, String)>> {
        let (_, bad) = self.ended(py)?;
        Ok(bad.into_iter().map(|sample| (sample.index, sample.path, sample.error)).collect())
    }
}
