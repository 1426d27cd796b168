//! The machine, build and data set that a report names.

use super::nvml::Nvml;
use serde::Serialize;
use std::fs::read_to_string;
use std::num::NonZero;
use std::time::{SystemTime, UNIX_EPOCH};
use warpfeed::image::probe;
use warpfeed::internal::cards::{Card, cards, pci_addresses};
use warpfeed::internal::driver_is_there;
use warpfeed::source::{Input, ReadRequest, Sample, Source, Stream, StreamStart};
use warpfeed::{Error, Result};
use warpfeed_image::decode::libjpeg_has_simd;

/// Most images that are read for the summary of a data set.
const LOOKED_AT: u64 = 1_000;
/// Most images that are read for a stream, which may come over a network.
const LOOKED_AT_OF_STREAM: u64 = 100;

/// The machine and the build.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Environment {
    /// Time when the report was begun, in UTC.
    pub date: String,
    /// Name of the processor.
    pub cpu: String,
    /// Number of processors that this process may use.
    pub cores: usize,
    /// Memory of the machine, in bytes.
    pub memory_bytes: Option<u64>,
    /// Operating system and kernel.
    pub system: String,
    /// Load average of the last minute when the report was begun. It tells about other work on the machine.
    pub load_average_1min: Option<f64>,
    /// The GPUs, in the driver's order.
    pub gpus: Vec<Gpu>,
    /// Version of NVIDIA's driver.
    pub driver: Option<String>,
    /// Reason why no GPU is named, if none is.
    pub no_gpu: Option<String>,
    /// Version of warpfeed.
    pub warpfeed: String,
    /// Commit of the build, if it is known: release builds in a git checkout know it, and builds with `WARPFEED_COMMIT`
    /// in their environment.
    pub commit: Option<String>,
    /// `release` or `debug`.
    pub build: &'static str,
    /// The JPEG decoder, if it is known.
    pub jpeg: Option<String>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Gpu {
    /// Name of the GPU by its driver. A simulated one says so.
    pub name: String,
    /// Memory of the GPU in bytes.
    pub memory_bytes: u64,
    /// Clock of its multiprocessors when the report was begun, in MHz; `None` if the driver does not say.
    pub clock_mhz: Option<u32>,
}

impl Gpu {
    fn line(&self) -> String {
        let clock = self.clock_mhz.map_or_else(String::new, |mhz| format!(", {mhz} MHz"));
        format!("{} ({:.1} GB{clock})", self.name, self.memory_bytes as f64 / 1e9)
    }
}

impl Environment {
    /// Describes this machine.
    ///
    /// ```
    /// let here = warpfeed_bench::environment::Environment::here();
    /// assert!(here.cores >= 1 && here.gpus.is_empty() == here.no_gpu.is_some());
    /// ```
    #[must_use]
    pub fn here() -> Self {
        let (cards, no_gpu) = match cards() {
            Ok(cards) if cards.is_empty() => (cards, Some("NVIDIA's driver shows no GPU".to_owned())),
            Ok(cards) => (cards, None),
            Err(error) => (Vec::new(), Some(why_no_gpu(error))),
        };
        let nvml = Nvml::open(&pci_addresses().unwrap_or_default()).ok();
        let driver = nvml.as_ref().and_then(Nvml::driver);
        let gpu = |(ordinal, card): (usize, Card)| Gpu {
            name: card.name,
            memory_bytes: card.memory_bytes as u64,
            clock_mhz: nvml.as_ref().and_then(|nvml| nvml.clock_mhz(ordinal)),
        };
        let gpus = cards.into_iter().enumerate().map(gpu).collect();
        Self {
            date: utc(SystemTime::now()),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: cores(),
            memory_bytes: kib("/proc/meminfo", "MemTotal"),
            system: read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| std::env::consts::OS.to_owned(), |release| format!("Linux {}", release.trim())),
            load_average_1min: read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next()?.parse().ok()),
            gpus,
            driver,
            no_gpu,
            warpfeed: env!("CARGO_PKG_VERSION").to_owned(),
            commit: warpfeed::internal::COMMIT.map(str::to_owned),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            jpeg: Some(format!("libjpeg-turbo {} SIMD", if libjpeg_has_simd() { "with" } else { "without" })),
        }
    }

    /// Version and commit of warpfeed, as text.
    #[must_use]
    pub fn version(&self) -> String {
        let commit = self.commit.as_deref().unwrap_or("not known");
        format!("warpfeed {} ({} build, commit {commit})", self.warpfeed, self.build)
    }

    /// Names and values, as text.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let gpus = || self.gpus.iter().map(Gpu::line).collect::<Vec<_>>().join(", ");
        let gpu = self.no_gpu.as_ref().map_or_else(gpus, |reason| format!("none: {reason}"));
        let mut lines = vec![
            ("Processor", format!("{}, {} cores for this process", self.cpu, self.cores)),
            ("Memory", self.memory_bytes.map_or_else(String::new, |b| format!("{:.1} GB", b as f64 / 1e9))),
            ("GPU", gpu),
            ("Driver", self.driver.clone().unwrap_or_default()),
            ("System", self.system.clone()),
            ("Version", self.version()),
            ("JPEG decoder", self.jpeg.clone().unwrap_or_default()),
            ("Date", self.date.clone()),
            ("Load average", self.load_average_1min.map_or_else(String::new, |load| format!("{load:.2}"))),
        ];
        lines.retain(|(_, value)| !value.is_empty());
        lines
    }
}

/// The reason why there is no GPU. Without a driver no remedy is named: experiments run what they can without a GPU.
pub(super) fn why_no_gpu(error: Error) -> String {
    match error {
        _ if !driver_is_there() => "no NVIDIA driver on this machine".to_owned(),
        Error::Device { message, .. } => message,
        error => error.to_string(),
    }
}

/// A summary of a data set.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DataSet {
    /// Path or name of the data set.
    pub name: String,
    /// Number of images; `None` for a stream.
    pub images: Option<u64>,
    /// Number of images in an epoch; `None` for a stream without a limit.
    pub images_per_epoch: Option<u64>,
    /// Number of classes; 0 if the source does not name them.
    pub classes: usize,
    /// Number of images that were read for the means: spread evenly over a data set, or the first of a stream.
    pub looked_at: u64,
    /// Number of these images that could not be read.
    pub bad: u64,
    /// Mean size of the encoded images in bytes.
    pub mean_bytes: f64,
    /// Mean size of the images in pixels.
    pub mean_px: f64,
}

impl DataSet {
    /// Reads up to 1,000 images of a data set, or the first 100 of a stream. `images_per_epoch`: number of images in an
    /// epoch.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a source without images; errors of the source that do not belong to one sample.
    pub fn of(name: impl Into<String>, input: &Input, images_per_epoch: Option<u64>) -> Result<Self> {
        let mut sum = Sum::default();
        match input {
            Input::DataSet(source) => sum.spread_over(source.as_ref())?,
            Input::Stream(stream) => sum.first_of(stream.as_ref())?,
        }
        if sum.looked_at == 0 {
            return Err(Error::parameter("bench", "source", "a source with images", "none"));
        }
        let good = (sum.looked_at - sum.bad).max(1) as f64;
        Ok(Self {
            name: name.into(),
            images: input.samples(),
            images_per_epoch,
            classes: input.classes().len(),
            looked_at: sum.looked_at,
            bad: sum.bad,
            mean_bytes: sum.bytes as f64 / good,
            mean_px: sum.pixels as f64 / good,
        })
    }

    /// The summary as one line.
    #[must_use]
    pub fn line(&self) -> String {
        let classes = if self.classes == 0 { String::new() } else { format!(" in {} classes", self.classes) };
        let images = self.images.map_or_else(|| "a stream of images".to_owned(), |images| format!("{images} images"));
        let used = match self.images_per_epoch {
            Some(used) if self.images != Some(used) => format!(", {used} of them an epoch"),
            _ => String::new(),
        };
        let bad = if self.bad == 0 { String::new() } else { format!(", {} cannot be used", self.bad) };
        let (kb, mpx) = (self.mean_bytes / 1e3, self.mean_px / 1e6);
        format!("{}: {images}{classes}{used}, mean {kb:.1} kB and {mpx:.3} Mpx (of {}{bad})", self.name, self.looked_at)
    }
}

/// Sums over the images that were read.
#[derive(Default)]
struct Sum {
    looked_at: u64,
    bad: u64,
    bytes: u64,
    pixels: u64,
}

impl Sum {
    fn spread_over(&mut self, source: &dyn Source) -> Result<()> {
        let images = source.len();
        let (looked_at, mut sample) = (images.min(LOOKED_AT), Sample::default());
        for i in 0..looked_at {
            // With 2^53 or more images the indices are rounded.
            let index = (i as f64 / looked_at as f64 * images as f64) as u64;
            let read = source.read(index, &ReadRequest::IMAGE, &mut sample);
            let encoded = sample.encoded();
            self.add(read.map(|()| &*encoded))?;
        }
        Ok(())
    }

    fn first_of(&mut self, stream: &dyn Stream) -> Result<()> {
        let mut samples = stream.begin(&StreamStart::whole(0))?;
        while self.looked_at < LOOKED_AT_OF_STREAM {
            match samples.next().transpose() {
                None => break,
                Some(Ok(sample)) => self.add(Ok(&sample.bytes))?,
                Some(Err(error)) => self.add(Err(error))?,
            }
        }
        Ok(())
    }

    /// Adds an image.
    fn add(&mut self, encoded: Result<&[u8]>) -> Result<()> {
        self.looked_at += 1;
        match encoded.and_then(|encoded| Ok((encoded.len(), probe(encoded)?.size))) {
            Ok((bytes, size)) => (self.bytes, self.pixels) = (self.bytes + bytes as u64, self.pixels + size.area_px()),
            Err(error) if error.is_bad_sample() => self.bad += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Number of processors that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Memory that is available now, in bytes.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    kib("/proc/meminfo", "MemAvailable")
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kib(path: &str, name: &str) -> Option<u64> {
    field(path, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Formats a time as `2026-11-21 05:32 UTC`.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut day, minute) = (seconds / 86_400, seconds % 86_400 / 60);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", day + 1, minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // Values from GNU `date -u`.
        for (seconds, want) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_868_799, "2000-02-29 23:59 UTC"),
            (1_798_761_599, "2026-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), want);
        }
    }
}
