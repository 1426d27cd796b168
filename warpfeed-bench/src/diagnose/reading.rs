//! Reading images, and decoding them, without a pipeline.

use crate::subject::{Subject, next};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use warpfeed::image::{Decoder, Image, Rect, Size, probe};
use warpfeed::internal::threads::spawn_scoped;
use warpfeed::source::{Input, ReadRequest, Sample, Samples, Source, Stream, StreamSample, StreamStart};
use warpfeed::{Error, Order, Result, ShardedOrder};
use warpfeed_image::raster::{DEFAULT_MAX_PIXELS, check_pixels};

/// Time and images of threads that read, and possibly decode.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    images: u64,
    /// Time from the start of the first thread to the end of the last.
    wall: Duration,
    /// Time of all threads in `read`, summed up.
    reading: Duration,
    /// The part of `reading` in which threads were neither computing nor ready to compute. If the system does not say:
    /// all of it.
    blocked: Duration,
}

impl Reading {
    /// Runs `read` and adds its time.
    fn timed<T>(&mut self, read: impl FnOnce() -> T) -> T {
        let (from, start) = (scheduled(), Instant::now());
        let result = read();
        let elapsed = start.elapsed();
        self.reading += elapsed;
        self.blocked += match (from, scheduled()) {
            (Some(from), Some(to)) => elapsed.saturating_sub(to.saturating_sub(from)),
            _ => elapsed,
        };
        result
    }

    pub(super) fn images_per_s(&self) -> f64 {
        self.images as f64 / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    pub(super) fn blocked(&self) -> f64 {
        (self.blocked.as_secs_f64() / self.reading.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0)
    }
}

impl AddAssign for Reading {
    fn add_assign(&mut self, other: Self) {
        self.images += other.images;
        self.wall += other.wall;
        self.reading += other.reading;
        self.blocked += other.blocked;
    }
}

/// An endless supply of encoded images for any number of threads.
enum Images<'a> {
    /// A data set, in an epoch's order.
    DataSet { source: &'a dyn Source, order: Order, next: AtomicU64 },
    /// A stream, in its own order. The thread with the lock waits for the next sample.
    Stream { stream: &'a dyn Stream, samples: Mutex<Box<dyn Samples>> },
}

impl<'a> Images<'a> {
    fn of(subject: &'a Subject) -> Result<Self> {
        Ok(match &subject.input {
            Input::DataSet(source) => {
                let order = ShardedOrder::shuffled(source.len(), subject.seed).epoch(0);
                Self::DataSet { source: source.as_ref(), order, next: AtomicU64::new(0) }
            }
            Input::Stream(stream) => {
                let samples = Mutex::new(stream.begin(&StreamStart::whole(0))?);
                Self::Stream { stream: stream.as_ref(), samples }
            }
        })
    }

    /// Reads the next image into `sample`; `None` if there are no images at all. Adds the time, and the wait within it,
    /// to `sum`.
    fn read<'b>(&'b self, sample: &mut Sample<'b>, sum: &mut Reading) -> Option<Result<()>> {
        match self {
            Self::DataSet { source, order, next } => {
                let index = order.get(next.fetch_add(1, Relaxed) % order.len().max(1))?;
                Some(sum.timed(|| source.read(index, &ReadRequest::IMAGE, sample)))
            }
            Self::Stream { stream, samples } => {
                let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
                let found = sum.timed(|| {
                    if let Some(sample) = next(samples.as_mut())? {
                        return Ok(Some(sample));
                    }
                    *samples = stream.begin(&StreamStart::whole(0))?;
                    next(samples.as_mut())
                });
                drop(samples);
                Some(found.transpose()?.map(|StreamSample { bytes, .. }| *sample.buffer() = bytes))
            }
        }
    }
}

/// Reads images for `time` on `threads` threads, again and again, and decodes them as a whole if `decode` is set.
/// Images that cannot be used are skipped.
pub(super) fn read(subject: &Subject, threads: usize, time: Duration, decode: bool) -> Result<Reading> {
    let (images, stop) = (Images::of(subject)?, AtomicBool::new(false));
    let begin = Instant::now();
    let work = || -> Result<Reading> {
        let mut sum = Reading::default();
        let (mut sample, mut decoder, mut image) = (Sample::default(), Decoder::new()?, Image::new(Size::new(1, 1)));
        while let Some(read) = images.read(&mut sample, &mut sum) {
            let done = read.and_then(|()| {
                if decode {
                    let bytes = &sample.encoded();
                    let header = probe(bytes)?;
                    check_pixels(header.size, DEFAULT_MAX_PIXELS)?;
                    decoder.decode(bytes, &header, Rect::full(header.size), false, &mut image)?;
                }
                Ok(())
            });
            match done {
                Ok(()) => sum.images += 1,
                Err(error) if error.is_bad_sample() => {}
                Err(error) => return Err(error),
            }
            // At most one pass through the order: a source with only bad images must not keep the threads here forever.
            if begin.elapsed() >= time || stop.load(Relaxed) {
                break;
            }
        }
        Ok(sum)
    };
    let parts: Vec<Result<Reading>> = std::thread::scope(|scope| -> Result<_> {
        let start = |i| spawn_scoped(scope, format!("warpfeed-reader-{i}"), work);
        let threads = (0..threads).map(start).collect::<Result<Vec<_>>>().inspect_err(|_| stop.store(true, Relaxed))?;
        let panicked = |panic: Box<dyn std::any::Any + Send>| Err(Error::panic(panic.as_ref()));
        Ok(threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect())
    })?;
    let mut sum = Reading { wall: begin.elapsed(), ..Reading::default() };
    for part in parts {
        sum += part?;
    }
    Ok(sum)
}

/// Time that this thread has computed or was ready to compute, if the system says.
fn scheduled() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().ok());
    Some(Duration::from_nanos(fields.next()?? + fields.next()??))
}
