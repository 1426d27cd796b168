//! Reads samples of the source, and checks whether they are still those that a shard was made from, by a checksum over
//! everything that they gave. Not every source has files with times.

use super::PackOptions;
use crate::error::{Error, Result};
use crate::os::threads::spawn_scoped;
use crate::source::{ReadRequest, Sample, Source};
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Number of samples that are announced to the source before they are read, so that it can fetch them.
pub(super) const ANNOUNCED: u64 = 64;

/// The checksum over a shard's samples, from that over those before and that of one more.
pub(super) fn with(checksum: u32, sample: u32) -> u32 {
    crc32c::crc32c_append(checksum, &sample.to_le_bytes())
}

/// The checksum over the samples of two parts; the second part has `samples` samples.
pub(super) fn joined(first: u32, second: u32, samples: u64) -> u32 {
    crc32c::crc32c_combine(first, second, 4 * samples as usize)
}

/// Reads the parts of samples that are packed.
pub(super) struct SampleReader<'a> {
    pub source: &'a dyn Source,
    pub options: &'a PackOptions,
    /// Checksums of shards that were read again, by their samples.
    known: Mutex<HashMap<Range<u64>, u32>>,
}

impl<'a> SampleReader<'a> {
    pub fn new(source: &'a dyn Source, options: &'a PackOptions) -> Self {
        Self { source, options, known: Mutex::default() }
    }

    /// The parts of a sample that are packed.
    pub fn want(&self) -> ReadRequest<'a> {
        ReadRequest::IMAGE.and_target(self.options.target.as_deref()).and_fields(&self.options.fields)
    }

    /// Reads a sample, and computes its checksum.
    pub fn read(&self, index: u64) -> (u32, Result<Sample<'_>>) {
        let mut sample = Sample::default();
        let read = self.source.read(index, &self.want(), &mut sample);
        let mut sum = Sum(0);
        // A checksum cannot fail.
        let _ = match &read {
            Ok(()) => {
                sum.add(&sample.encoded());
                write!(sum, "{:?} {:?}", self.source.label(index), sample.found())
            }
            Err(error) => write!(sum, "{error}"),
        };
        (sum.0, read.map(|()| sample))
    }

    /// The checksum over samples as they are now.
    ///
    /// # Errors
    /// Errors that are not a sample's fault.
    pub fn checksum(&self, samples: Range<u64>) -> Result<u32> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sum) = known().get(&samples) {
            return Ok(*sum);
        }
        let len = samples.end.saturating_sub(samples.start);
        let sums: Vec<AtomicU32> = (0..len).map(|_| AtomicU32::new(0)).collect();
        let (next, failed) = (AtomicU64::new(samples.start), Mutex::new(None));
        (samples.start..samples.end.min(samples.start + ANNOUNCED)).for_each(|index| self.source.prefetch(index));
        let work = || {
            loop {
                let index = next.fetch_add(1, Relaxed);
                if index >= samples.end {
                    return;
                }
                if samples.end - index > ANNOUNCED {
                    self.source.prefetch(index + ANNOUNCED);
                }
                // The source may be the caller's own code, which can panic.
                let read = catch_unwind(AssertUnwindSafe(|| self.read(index)));
                let (sum, read) = read.unwrap_or_else(|panic| (0, Err(Error::panic(&*panic))));
                sums[(index - samples.start) as usize].store(sum, Relaxed);
                if let Err(error) = read
                    && !error.is_bad_sample()
                {
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    next.store(samples.end, Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            let workers = (self.options.workers as u64).min(len);
            (0..workers).try_for_each(|i| spawn_scoped(scope, format!("warpfeed-pack-{i}"), work).map(|_| ()))
        })?;
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let sum = sums.into_iter().fold(0, |sum, sample| with(sum, sample.into_inner()));
        known().insert(samples, sum);
        Ok(sum)
    }
}

/// The CRC-32C of the bytes written to it.
struct Sum(u32);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, &(bytes.len() as u64).to_le_bytes());
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }
}

impl fmt::Write for Sum {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = crc32c::crc32c_append(self.0, text.as_bytes());
        Ok(())
    }
}
