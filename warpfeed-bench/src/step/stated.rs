//! A training step of a stated length.

use super::{Outcome, TrainingStep};
use crate::published::{EPOCH_BATCH, EPOCH_IMAGES, seconds};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use warpfeed::internal::measure::Spin;
use warpfeed::source::read_text_limited;
use warpfeed::{Batch, CudaBuffer, Error, Result};

/// Time at the end of a step that is spun and not slept, because the system may sleep this much too long.
const SLEEP_MARGIN: Duration = Duration::from_micros(200);

/// Largest file of lengths, in bytes.
const MAX_LENGTHS_BYTES: u64 = 1 << 20;

/// How a step of a given length spends its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// Runs a kernel of that length on the batch's GPU, on a stream that waits for the batch. The kernel occupies one
    /// thread of the GPU and leaves the others to the pipeline, which real training would not. For a batch in host
    /// memory this is the same as `Sleep`.
    #[default]
    Device,
    /// Sleeps, like a thread that waits for a device, and leaves its core to the pipeline.
    Sleep,
    /// Computes, like training on the CPU, so the pipeline has one core less.
    Spin,
}

/// A step that does nothing for a given time.
///
/// ```
/// # use std::time::{Duration, Instant};
/// use warpfeed_bench::step::{Pace, StatedStep, TrainingStep};
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).transform(CenterCrop::new(8)).build()?;
/// let mut step = StatedStep::new("small", Duration::from_millis(20), Pace::Sleep)?;
/// assert_eq!(step.name(), "small, a stated 20.00 ms a batch");
/// let batch = pipeline.epoch(0).next().unwrap()?;
/// let start = Instant::now();
/// step.train(batch)?;
/// assert!(start.elapsed() >= Duration::from_millis(20));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug)]
pub struct StatedStep {
    name: String,
    length: Duration,
    /// Batch size that the length belongs to; `None`: the length holds for all sizes.
    images: Option<u32>,
    pace: Pace,
    /// The kernel on the GPU of the last batch, if it was on one.
    spin: Option<Spin>,
}

impl StatedStep {
    /// A step that takes `length` for every batch, whatever its size.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `length` is zero.
    pub fn new(name: impl Into<String>, length: Duration, pace: Pace) -> Result<Self> {
        if length.is_zero() {
            return Err(Error::parameter("StatedStep::new", "length", "more than zero", "zero"));
        }
        Ok(Self { name: name.into(), length, images: None, pace, spin: None })
    }

    /// A [`published`] step. Its length is that of 32 images, and proportional for batches of other sizes.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no published figure for `model`.
    pub fn published(model: &str, pace: Pace) -> Result<Self> {
        let length = published(model).ok_or_else(|| {
            Error::parameter("StatedStep::published", "model", "resnet18, resnet50 or resnet152", format!("{model:?}"))
        })?;
        let name = format!("{model} as published on a V100");
        Ok(Self { name, length, images: Some(EPOCH_BATCH), pace, spin: None })
    }

    /// Time that a batch of this many images takes.
    #[must_use]
    pub fn length(&self, images: usize) -> Duration {
        match self.images {
            None => self.length,
            Some(stated) => self.length.mul_f64(images as f64 / f64::from(stated)),
        }
    }

    /// The kernel that spends time on the batch's device.
    fn spin_beside(&mut self, batch: &CudaBuffer) -> Result<&mut Spin> {
        let spin = match self.spin.take() {
            Some(spin) if spin.ordinal() == batch.ordinal() => spin,
            _ => Spin::on_device_of(batch)?,
        };
        Ok(self.spin.insert(spin))
    }
}

impl TrainingStep for StatedStep {
    fn name(&self) -> String {
        let of = self.images.map_or_else(|| "batch".to_owned(), |images| format!("batch of {images}"));
        let stated = format!("{}, a stated {:.2} ms a {of}", self.name, self.length.as_secs_f64() * 1e3);
        match self.spin.as_ref().and_then(|spin| Some((spin.ordinal(), spin.mean_ms()?))) {
            Some((ordinal, ms)) => format!("{stated}; on cuda:{ordinal} a kernel, on average {ms:.2} ms by its events"),
            None => stated,
        }
    }

    fn train(&mut self, batch: Batch) -> Result<Outcome> {
        let start = Instant::now();
        let length = self.length(batch.len());
        if self.pace == Pace::Device
            && let Some(buffer) = batch.images().cuda()
        {
            self.spin_beside(buffer)?.queue(batch.into_images(), length)?;
            return Ok(Outcome::default());
        }
        if self.pace != Pace::Spin {
            std::thread::sleep(length.saturating_sub(SLEEP_MARGIN));
        }
        while start.elapsed() < length {
            std::hint::spin_loop();
        }
        // The images' memory stays in use until the step ends.
        drop(batch);
        Ok(Outcome::default())
    }

    fn finish(&mut self) -> Result<()> {
        self.spin.as_mut().map_or(Ok(()), Spin::finish)
    }
}

/// Length of a training step of `resnet18`, `resnet50` or `resnet152` with 32 images on a V100, as far as published
/// figures tell: 72, 159 and 405 ms.
///
/// These are the seconds per epoch of the published augment-load experiment with augmentation on the GPU (trial B) at
/// the lowest load, divided by the 295.9 batches of Imagenette's 9,469 images. At that load the epoch was limited by
/// the GPU, and stayed within 5 % up to load 12. So these are upper bounds: they include everything that an epoch did
/// besides training.
#[must_use]
pub fn published(model: &str) -> Option<Duration> {
    let seconds = seconds(model, 1)?.trial_b_s;
    Some(Duration::from_secs_f64(seconds * f64::from(EPOCH_BATCH) / f64::from(EPOCH_IMAGES)))
}

/// Reads lengths of steps from a TOML file of names and milliseconds per batch: `"my model" = 12.5`.
///
/// # Errors
/// [`Error::Io`] if the file cannot be read; [`Error::Parameter`] if it is no such file, or a length is not greater
/// than zero.
pub fn read_lengths(path: impl AsRef<Path>) -> Result<BTreeMap<String, Duration>> {
    let path = path.as_ref();
    let text = read_text_limited(path, MAX_LENGTHS_BYTES)?;
    let wrong = |got: String| {
        let expected = "a TOML file of names and milliseconds, more than zero: resnet50 = 12.5";
        Error::parameter("step", "file", expected, format!("{}: {got}", path.display()))
    };
    let lengths: BTreeMap<String, f64> = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let duration = |(name, milliseconds): (String, f64)| match Duration::try_from_secs_f64(milliseconds / 1e3) {
        Ok(length) if !length.is_zero() => Ok((name, length)),
        _ => Err(wrong(format!("{name} = {milliseconds}"))),
    };
    lengths.into_iter().map(duration).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_lengths_make_published_epochs() {
        for (model, seconds) in [("resnet18", 21.30), ("resnet50", 46.94), ("resnet152", 119.96)] {
            let step = StatedStep::published(model, Pace::Sleep).unwrap();
            let epoch = step.length(32) * (9_469 / 32) + step.length(9_469 % 32);
            assert!((epoch.as_secs_f64() - seconds).abs() < 1e-3, "{model}");
        }
        assert!(StatedStep::published("vgg", Pace::Sleep).unwrap_err().is_parameter());
    }

    #[test]
    fn lengths_are_read_and_nonsense_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            read_lengths(file.path())
        };
        let lengths = read("vit = 12.5 # ViT-B/16\n\"my model\" = 3").unwrap();
        assert_eq!(lengths["vit"], Duration::from_micros(12_500));
        assert_eq!(lengths["my model"], Duration::from_millis(3));
        for wrong in
            ["vit = 0", "vit = -1.0", "vit = nan", "vit = inf", "vit = 1e300", "vit = \"12\"", "vit", "[vit]\nms = 1"]
        {
            assert!(read(wrong).unwrap_err().is_parameter(), "{wrong}");
        }
        assert!(matches!(read_lengths("missing.toml"), Err(Error::Io { .. })));
        assert!(StatedStep::new("none", Duration::ZERO, Pace::Spin).unwrap_err().is_parameter());
    }
}
