//! The GPU path against the CPU path, on a device: that its kernels give the CPU's bytes, and how far nvJPEG's decoding is
//! from the CPU's.

use crate::backend::cuda::decode_only::decode_only;
use crate::experiment::trial::Trial;
use crate::{
    Builder, CenterCrop, DType, DecodePath, Device, EncodedImages, Erase, Error, Fill, Hflip, IMAGENET_MEAN,
    IMAGENET_STD, Image, JpegOptions, Layout, OnError, Op, Pipeline, Preset, Rect, Resize, Result, Rotate, Sampling,
    Size, Source, Strategy, Tensor, encode_jpeg, random_horizontal_flip,
};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Sides of the images of a batch: single pixels, single rows and columns, and sides beside powers of two and beyond a
/// tile.
const SIZES: [(u32, u32); 8] = [(1, 1), (1, 7), (9, 1), (2, 3), (33, 65), (64, 64), (127, 31), (301, 211)];

/// An odd size that all images of a batch end with.
const OUTPUT: Size = Size { width: 37, height: 29 };

const STRATEGIES: [Strategy; 3] = [Strategy::Sequential, Strategy::Fused, Strategy::Composed];

/// Which of the cases of [`equality`] gave other bytes.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Equality {
    /// Batches that were made on both sides.
    pub cases: usize,
    /// Those that differ, each with how.
    pub different: Vec<String>,
}

/// Runs every operation on the device and on the CPU, decoded by the CPU on both, and compares the bytes: batches of
/// images of odd sizes, in each strategy, and in each type and layout. `progress` hears each case's name.
///
/// `thorough` is for kernels on a device; without it there is one batch an operation and strategy, for tools that slow a
/// device down a hundredfold.
///
/// # Errors
/// [`Error::Device`] if `device` is not there or fails.
///
/// ```no_run
/// use warpfeed::{Device, experiment::gpu_check::equality};
///
/// let found = equality(Device::Cuda(0), true, &mut |_case| {})?;
/// assert!(found.different.is_empty(), "{:?}", found.different);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn equality(device: Device, thorough: bool, progress: &mut dyn FnMut(&str)) -> Result<Equality> {
    let images = Arc::new(EncodedImages::new(images()?));
    let mut found = Equality { cases: 0, different: Vec::new() };
    let mut compare = |name: String, make: &dyn Fn(Device) -> Result<Pipeline>| -> Result<()> {
        progress(&name);
        found.cases += 1;
        if let Some(difference) = difference(&make(Device::Cpu)?, &make(device)?)? {
            found.different.push(format!("{name}: {difference}"));
        }
        Ok(())
    };
    let builder = |device, strategy, dtype, layout| {
        Pipeline::builder(Arc::clone(&images))
            .batch_size(SIZES.len())
            .threads(2)
            .seed(1)
            .device(device)
            .decode(DecodePath::Cpu)
            .strategy(strategy)
            .output(dtype, layout)
    };
    let (whole, center) = (Op::from(Resize::new(OUTPUT)), Op::from(CenterCrop::new(OUTPUT)));
    for ops in recipes() {
        let name = ops.iter().map(written).collect::<Vec<_>>().join(", ");
        for strategy in STRATEGIES {
            for (end, last) in [("resize", &whole), ("crop", &center)] {
                if !thorough && end == "crop" {
                    continue;
                }
                let make = |device| {
                    let builder = builder(device, strategy, DType::U8, Layout::Nhwc);
                    ops.iter().chain([last]).fold(builder, |builder, op| builder.augment(op.clone())).build()
                };
                compare(format!("{name}, {end}, {strategy:?}"), &make)?;
            }
        }
    }
    let formats = [DType::U8, DType::F32, DType::F16, DType::Bf16];
    for dtype in formats {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            for strategy in STRATEGIES {
                let make = |device| {
                    let mut builder = builder(device, strategy, dtype, layout)
                        .augment(random_horizontal_flip(0.5))
                        .random_resized_crop(31);
                    if dtype != DType::U8 {
                        let erase = Erase::new(Rect { x: 3, y: 5, width: 11, height: 7 }).value([0.5, -1.0, 2.0]);
                        builder = builder.normalize(IMAGENET_MEAN, IMAGENET_STD).augment(erase);
                    }
                    builder.build()
                };
                compare(format!("{dtype:?}, {layout:?}, {strategy:?}"), &make)?;
            }
        }
    }
    let presets = [
        ("train", Preset::Train.ops()),
        ("eval", Preset::Eval.ops()),
        ("trial-a", Trial::A { load: 12 }.ops()),
        ("trial-b", Trial::B { load: 4 }.ops()),
    ];
    for (name, ops) in presets {
        for strategy in STRATEGIES {
            // Images of a few pixels grow to many times their size in these, and are slow on slow devices.
            if thorough || strategy == Strategy::Fused {
                let make = |device| {
                    let builder = builder(device, strategy, DType::F16, Layout::Nhwc);
                    ops.iter().cloned().fold(builder, Builder::augment).build()
                };
                compare(format!("{name}, {strategy:?}"), &make)?;
            }
        }
    }
    Ok(found)
}

/// Recipes of one operation, each in the forms that different code serves, and some that only several together make.
fn recipes() -> Vec<Vec<Op>> {
    let size = Size::new(64, 48);
    let fits_all = |op: &Op| SIZES.iter().all(|&(width, height)| op.output_size(Size::new(width, height)).is_ok());
    // Normalization is tried in each type and layout.
    let examples = Op::examples(size).into_iter().filter(|op| !matches!(op, Op::Normalize(_)));
    // A rectangle that must lie inside the image is tried on images large enough.
    let alone = examples.map(|op| if fits_all(&op) { vec![op] } else { vec![Resize::new(size).into(), op] });
    let turned = || Rotate::new(-4.7).fill(Fill::Color([7, 130, 255])).into();
    let together = [vec![], vec![turned(), Hflip.into(), turned()]];
    alone.chain(together).collect()
}

/// An operation as it is written down.
fn written(op: &Op) -> String {
    serde_json::to_string(op).unwrap_or_else(|_| op.name().to_owned())
}

/// Images of noise, so that no misplaced pixel goes unnoticed, in JPEGs of several kinds.
fn images() -> Result<Vec<(Vec<u8>, u32)>> {
    let mut state = 1_u64;
    let mut noise = || {
        // Knuth's generator (MMIX); the upper bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let samplings = [Sampling::S444, Sampling::S420, Sampling::S422];
    let images = SIZES.iter().zip(0_u32..).map(|(&(width, height), i)| {
        let rgb: Vec<u8> = (0..3 * width * height).map(|_| noise()).collect();
        let options =
            JpegOptions { sampling: samplings[i as usize % 3], progressive: i % 4 == 3, ..Default::default() };
        Ok((encode_jpeg(&Image::from_rgb(Size::new(width, height), &rgb)?, &options)?, i))
    });
    images.collect()
}

/// Where an epoch of two pipelines differs first, in words.
fn difference(expected: &Pipeline, got: &Pipeline) -> Result<Option<String>> {
    for (expected, got) in expected.epoch(0).zip(got.epoch(0)) {
        let (expected, got) = (expected?, got?);
        let got = got.images().to_host()?;
        let bytes = expected.images().as_bytes()?.iter().zip(got.as_bytes()?);
        let wrong = bytes.enumerate().filter(|(_, (a, b))| a != b);
        if let (count, Some((at, (want, have)))) = (wrong.clone().count(), wrong.clone().next()) {
            let image = at / (got.as_bytes()?.len() / expected.len());
            return Ok(Some(format!(
                "{count} bytes differ, first byte {at}, in image {image} of {:?}: {have} instead of {want}",
                SIZES.get(image)
            )));
        }
    }
    Ok(None)
}

/// How far the pixels of one decoder are from those of the CPU's.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Differences {
    /// Who decoded.
    pub decode: String,
    /// Images compared, each by its middle.
    pub images: u64,
    /// How many of them it did itself; the others went to another decoder.
    pub decoded_by_it: u64,
    /// How many values differ by 0, 1, 2, ... 7, and by 8 or more of 255.
    pub histogram: [u64; 9],
    /// The largest difference, of 255.
    pub max: u8,
    /// The mean difference, of 255.
    pub mean: f64,
}

/// Decodes the middles of images, 224 x 224 pixels each, by `decode` on the device and by the CPU.
///
/// # Errors
/// [`Error::Device`] if `device` or this way of decoding is not there, or fails.
///
/// ```no_run
/// use warpfeed::{DecodePath, Device, experiment::gpu_check::differences, open};
///
/// let found = differences(Device::Cuda(0), DecodePath::Hybrid, &open("photos")?.into_data_set()?, 200)?;
/// println!("{:?}", found.histogram);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn differences(device: Device, decode: DecodePath, images: &Arc<dyn Source>, limit: u64) -> Result<Differences> {
    let make = |device| {
        Pipeline::builder(Arc::clone(images))
            .batch_size(16)
            .limit(limit)
            .device(device)
            .decode(decode)
            .on_error(OnError::Skip)
            .center_crop(224)
            .output(DType::U8, Layout::Nhwc)
            .build()
    };
    let (expected, got) = (make(Device::Cpu)?, make(device)?);
    let mut found = Differences {
        decode: format!("{decode:?}").to_lowercase(),
        images: 0,
        decoded_by_it: 0,
        histogram: [0; 9],
        max: 0,
        mean: 0.0,
    };
    let mut sum = 0_u64;
    let mut epoch = got.epoch(0);
    for (expected, got) in expected.epoch(0).zip(epoch.by_ref()) {
        let (expected, got) = (expected?, got?);
        if expected.indices() != got.indices() {
            let message = "it refuses images that the CPU takes, or takes what the CPU refuses".to_owned();
            return Err(Error::Device { call: format!("decode by {}", found.decode), message });
        }
        found.images += expected.len() as u64;
        let got: Tensor = got.images().to_host()?;
        for (a, b) in expected.images().as_bytes()?.iter().zip(got.as_bytes()?) {
            let difference = a.abs_diff(*b);
            found.histogram[usize::from(difference.min(8))] += 1;
            found.max = found.max.max(difference);
            sum += u64::from(difference);
        }
    }
    let stats = epoch.stats();
    found.decoded_by_it = match decode {
        DecodePath::Auto | DecodePath::Fastest => stats.decoded_hybrid + stats.decoded_hardware,
        DecodePath::Cpu => stats.decoded_cpu,
        DecodePath::Hybrid => stats.decoded_hybrid,
        DecodePath::Hardware => stats.decoded_hardware,
    };
    found.mean = sum as f64 / found.histogram.iter().sum::<u64>().max(1) as f64;
    Ok(found)
}

/// How many images a second nvJPEG decodes, whole, when nothing else is done: what bounds a pipeline that leaves
/// decoding to it. `decode` is [`DecodePath::Hybrid`], on `threads` threads, or [`DecodePath::Hardware`]. The first
/// `limit` images are read before the clock starts, and decoded again and again for `duration`.
///
/// # Errors
/// [`Error::Device`] if `device` is no GPU or has no such decoder, or fails; what reading an image fails with.
///
/// ```no_run
/// use std::time::Duration;
/// use warpfeed::{DecodePath, Device, experiment::gpu_check::decoding_bound, open};
///
/// let photos = open("photos")?.into_data_set()?;
/// let per_s = decoding_bound(Device::Cuda(0), DecodePath::Hybrid, &*photos, 200, 16, Duration::from_secs(2))?;
/// println!("{per_s:.0} images/s");
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn decoding_bound(
    device: Device,
    decode: DecodePath,
    images: &dyn Source,
    limit: u64,
    threads: usize,
    duration: Duration,
) -> Result<f64> {
    let ordinal = device.resolve()?.ok_or_else(|| Error::parameter("decoding_bound", "device", "a GPU", "the CPU"))?;
    let mut buffer = Vec::new();
    let encoded = (0..images.len().min(limit))
        .map(|index| Ok((images.read(index, &mut buffer)?.to_vec(), 0)))
        .collect::<Result<Vec<_>>>()?;
    decode_only(ordinal, decode, EncodedImages::new(encoded), threads, duration)
}
