//! Speed of a device's decoders alone and during a training step.

use serde::Serialize;
use std::time::Duration;
use warpfeed::image::{Rect, Size};
use warpfeed::internal::measure::{self, Beside, Decoders, EngineOptions, beside_a_step, decode_only};
use warpfeed::source::{EncodedImages, Source};
use warpfeed::{Device, Error, JpegDecoder, Result};

/// Share of each side that [`Area::Crop`] keeps. A random resized crop keeps 42 % of the area on average.
const CROP_SIDE: f64 = 0.65;

/// The part of each image that is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Area {
    /// The whole image.
    Whole,
    /// The middle 42 %, as much as a random resized crop keeps on average. Of the device's decoders only
    /// [`JpegDecoder::Device`] can skip the rest.
    Crop,
}

impl Area {
    fn of(self) -> measure::Area {
        match self {
            Self::Whole => Rect::full,
            Self::Crop => middle,
        }
    }
}

fn middle(size: Size) -> Rect {
    let side = |side_px: u32| ((f64::from(side_px) * CROP_SIDE) as u32).max(1);
    let (width, height) = (side(size.width), side(size.height));
    Rect { x: (size.width - width) / 2, y: (size.height - height) / 2, width, height }
}

/// Images per second that a decoder on the device decodes when nothing else runs: the upper bound of a pipeline that
/// decodes with it.
///
/// `decode` is [`JpegDecoder::Device`] or [`JpegDecoder::Hybrid`] on `threads` threads, or [`JpegDecoder::Hardware`].
/// The first `limit` images are read before the clock starts, and are decoded again and again for `duration`.
///
/// # Errors
/// [`Error::Device`] if `device` is no GPU, lacks this decoder, or fails; [`Error::Parameter`] if the decoder cannot
/// decode a part of an image; errors of reading an image.
///
/// ```no_run
/// use std::time::Duration;
/// use warpfeed_bench::gpu_check::{Area, decoding_bound};
/// use warpfeed::{JpegDecoder, Device, source::open};
///
/// let photos = open("photos")?.into_data_set()?;
/// let (path, area) = (JpegDecoder::Device, Area::Whole);
/// let per_s = decoding_bound(Device::Cuda(0), path, area, &*photos, 200, 16, Duration::from_secs(2))?;
/// println!("{per_s:.0} images/s");
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn decoding_bound(
    device: Device,
    decode: JpegDecoder,
    area: Area,
    images: &dyn Source,
    limit: u64,
    threads: usize,
    duration: Duration,
) -> Result<f64> {
    let (ordinal, decoders) = decoders("decoding_bound", device, decode, area, images, limit, threads)?;
    decode_only(ordinal, decoders, duration)
}

/// Times of a training step of about 5 ms, alone and while a decoder runs.
#[derive(Debug, Clone, Copy, Serialize)]
#[non_exhaustive]
pub struct StepBeside {
    /// Images per second that were decoded during the steps.
    pub images_per_s: f64,
    /// Median length of a step that runs alone, in milliseconds.
    pub alone_ms: f64,
    /// Median length of a step while the decoder runs, in milliseconds.
    pub beside_ms: f64,
    /// Share of the multiprocessors that the decoder took from the step, 0 to 1: the reduction of the step's work per
    /// time.
    pub share: f64,
}

/// Measures how much a decoder on the device slows down a training step that runs at the same time on a stream of its
/// own. The step is a fixed amount of arithmetic on all multiprocessors, about 5 ms alone. It runs again and again for
/// `duration`, once without the decoder and once with it. See [`decoding_bound`] for the other parameters.
///
/// # Errors
/// The errors of [`decoding_bound`].
///
/// ```no_run
/// use std::time::Duration;
/// use warpfeed_bench::gpu_check::{Area, step_beside_decoding};
/// use warpfeed::{JpegDecoder, Device, source::open};
///
/// let photos = open("photos")?.into_data_set()?;
/// let (path, area) = (JpegDecoder::Device, Area::Crop);
/// let found = step_beside_decoding(Device::Cuda(0), path, area, &*photos, 200, 16, Duration::from_secs(2))?;
/// println!("{:.0} images/s take {:.0} % of the device", found.images_per_s, 100.0 * found.share);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn step_beside_decoding(
    device: Device,
    decode: JpegDecoder,
    area: Area,
    images: &dyn Source,
    limit: u64,
    threads: usize,
    duration: Duration,
) -> Result<StepBeside> {
    let (ordinal, decoders) = decoders("step_beside_decoding", device, decode, area, images, limit, threads)?;
    let Beside { images_per_s, alone_ms, beside_ms } = beside_a_step(ordinal, decoders, duration)?;
    let share = if beside_ms > alone_ms { 1.0 - alone_ms / beside_ms } else { 0.0 };
    Ok(StepBeside { images_per_s, alone_ms, beside_ms, share })
}

/// The number of the device, and the decoders to run there.
pub(super) fn decoders(
    operation: &'static str,
    device: Device,
    path: JpegDecoder,
    area: Area,
    images: &dyn Source,
    limit: u64,
    threads: usize,
) -> Result<(u32, Decoders)> {
    let ordinal = device.resolve()?.ok_or_else(|| Error::parameter(operation, "device", "a GPU", "the CPU"))?;
    match path {
        JpegDecoder::Device => {}
        JpegDecoder::Hybrid | JpegDecoder::Hardware if area == Area::Whole => {}
        _ => {
            let expected = "Device, or Hybrid or Hardware with whole images";
            return Err(Error::parameter(operation, "decode", expected, format!("{path:?}, {area:?}")));
        }
    }
    let encoded =
        (0..images.len().min(limit)).map(|index| Ok((images.encoded(index)?, 0))).collect::<Result<Vec<_>>>()?;
    let (area, images, engines) = (area.of(), EncodedImages::new(encoded), EngineOptions::default());
    Ok((ordinal, Decoders { path, area, images, threads, engines, pinned: true }))
}
