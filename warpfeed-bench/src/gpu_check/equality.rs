//! Comparison of every kernel with the CPU, byte for byte.

use super::{pixels, views};
use crate::trial::Trial;
use serde::Serialize;
use std::sync::Arc;
use warpfeed::fields::{Fields, Mask};
use warpfeed::image::{ChromaSampling, Image, JpegOptions, Rect, Size, encode_jpeg};
use warpfeed::internal::keep_loaded;
use warpfeed::ops::{
    CenterCrop, Erase, Fill, Hflip, Interpolation, Normalize, Op, Resize, Rotate, Transform, random_horizontal_flip,
    random_resized_crop,
};
use warpfeed::source::{Described, EncodedImages, SourceExt};
use warpfeed::{
    DType, Device, EntryPoints, IMAGENET_MEAN, IMAGENET_STD, JpegDecoder, Layout, Mix, MixMode, Pipeline,
    PipelineBuilder, Preset, Result, Strategy,
};

/// Sizes of the images in a batch: single pixels, single rows and columns, sides next to powers of two, one that is
/// large enough for entry points, and sides beyond a tile.
pub(super) const SIZES: [(u32, u32); 9] =
    [(1, 1), (1, 7), (9, 1), (2, 3), (151, 70), (33, 65), (64, 64), (127, 31), (301, 211)];

/// Number of small sizes at the start of [`SIZES`].
const SMALL: usize = 8;

/// Names of the masks in the case for them: of the image, in 8 and in 16 bits, and of two objects.
const MASKS: [&str; 3] = ["bytes", "words", "objects"];

/// An odd size that all images of a batch end in.
pub(super) const OUTPUT: Size = Size { width: 37, height: 29 };

/// A size to which some of [`SIZES`] are resized with their columns first, and others from wide pieces.
const FLAT: Size = Size { width: 37, height: 5 };

/// A size whose row length in bytes and whose number of pixels both exceed 16 bits.
const LONG: Size = Size { width: 21_851, height: 4 };

const STRATEGIES: [Strategy; 3] = [Strategy::Sequential, Strategy::Fused, Strategy::Composed];
const DTYPES: [DType; 4] = [DType::U8, DType::F32, DType::F16, DType::Bf16];
pub(super) const LAYOUTS: [Layout; 2] = [Layout::Nchw, Layout::Nhwc];

/// Cases whose bytes differ.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Equality {
    /// Number of batches, and of images that are not RGB of 8 bits, that were made on both sides.
    pub cases: usize,
    /// The cases that differ, each with its difference.
    pub different: Vec<String>,
}

/// Runs each kernel on a small batch, and compares its bytes with the CPU's. `progress` gets each case's name. This is
/// for a first check, and for tools that slow a device down a hundredfold.
///
/// # Errors
/// [`Error::Device`](warpfeed::Error::Device) if `device` is missing or fails.
///
/// ```no_run
/// use warpfeed::Device;
/// use warpfeed_bench::gpu_check::kernels;
///
/// let found = kernels(Device::Cuda(0), &mut |_case| {})?;
/// assert!(found.different.is_empty(), "{:?}", found.different);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn kernels(device: Device, progress: &mut dyn FnMut(&str)) -> Result<Equality> {
    equality(device, for_each_kernel(), &SIZES[..SMALL], progress)
}

/// Runs every operation in each strategy, batches of each type and layout, and whole pipelines, and compares their
/// bytes with the CPU's. The CPU decodes on both sides; in some cases the crate's own decoder on the device does.
/// `progress` gets each case's name.
///
/// # Errors
/// [`Error::Device`](warpfeed::Error::Device) if `device` is missing or fails.
///
/// ```no_run
/// use warpfeed::Device;
/// use warpfeed_bench::gpu_check::operations;
///
/// let found = operations(Device::Cuda(0), &mut |_case| {})?;
/// assert!(found.different.is_empty(), "{:?}", found.different);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn operations(device: Device, progress: &mut dyn FnMut(&str)) -> Result<Equality> {
    equality(device, for_each_way(), &SIZES, progress)
}

fn equality(
    device: Device,
    cases: Vec<Case>,
    sizes: &[(u32, u32)],
    progress: &mut dyn FnMut(&str),
) -> Result<Equality> {
    // The kernels stay loaded from case to case.
    let _kernels = device.resolve()?.map(keep_loaded).transpose()?;
    // Making the images anew for each pipeline would take longer than all cases.
    let images = Arc::new(EncodedImages::new(images(sizes)?));
    let mut found = Equality { cases: cases.len(), different: Vec::new() };
    pixels::compare(device, &mut found, progress)?;
    views::compare(device, &images, &mut found, progress)?;
    for case in cases {
        progress(&case.name);
        let make = |device| case.pipeline(&images, sizes, device);
        let (expected, got) = (make(Device::Cpu)?, make(device)?);
        // From the second epoch on, a device that decodes knows entry points.
        for epoch in 0..if case.decode == JpegDecoder::Cpu { 1 } else { 2 } {
            if let Some(difference) = difference(&expected, &got, epoch)? {
                found.different.push(format!("{}, epoch {epoch}: {difference}", case.name));
            }
        }
    }
    Ok(found)
}

/// A pipeline to run on both sides.
struct Case {
    name: String,
    ops: Vec<Transform>,
    strategy: Strategy,
    dtype: DType,
    layout: Layout,
    decode: JpegDecoder,
    mix: Option<Mix>,
    /// Whether the images have [`MASKS`].
    masks: bool,
}

impl Case {
    fn pipeline(&self, images: &Arc<EncodedImages>, sizes: &[(u32, u32)], device: Device) -> Result<Pipeline> {
        let sizes = sizes.to_vec();
        let builder = if self.masks {
            let of = move |sample: Described<'_>| masks(sizes[sample.index as usize]);
            Pipeline::builder(Arc::clone(images).fields(MASKS, of)).fields(MASKS)
        } else {
            Pipeline::builder(Arc::clone(images))
        };
        let builder = builder
            .batch_size(SIZES.len())
            .threads(2)
            .entry_points(EntryPoints::memory())
            .seed(1)
            .device(device)
            .jpeg_decoder(self.decode)
            .strategy(self.strategy)
            .output(self.dtype, self.layout);
        let builder = self.mix.iter().cloned().fold(builder, PipelineBuilder::mix);
        self.ops.iter().cloned().fold(builder, PipelineBuilder::transform).build()
    }

    /// A recipe that ends in an operation which gives all images the same size.
    fn recipe(ops: &[Op], last: &Op, strategy: Strategy) -> Self {
        let name = ops.iter().chain([last]).map(written).collect::<Vec<_>>().join(", ");
        let name = format!("{name}, {strategy:?}");
        let ops = ops.iter().chain([last]).cloned().map(Transform::from).collect();
        Self {
            name,
            ops,
            strategy,
            dtype: DType::U8,
            layout: Layout::Nhwc,
            decode: JpegDecoder::Cpu,
            mix: None,
            masks: false,
        }
    }

    /// A case for a type and layout: for the kernels that write batches.
    fn format(dtype: DType, layout: Layout, strategy: Strategy) -> Self {
        let mut ops = vec![random_horizontal_flip(0.5), random_resized_crop(31)];
        if dtype != DType::U8 {
            let erase = Erase::new(Rect { x: 3, y: 5, width: 11, height: 7 }).value([0.5, -1.0, 2.0]);
            let noise = Erase::new(Rect { x: 8, y: 2, width: 16, height: 20 }).noise(1.0, 7);
            // The operations after the noise cover it.
            let last = Erase::new(Rect { x: 10, y: 9, width: 3, height: 30 - 9 }).value([-0.5, 1.0, 0.0]);
            ops.push(Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into());
            ops.extend([erase, noise, last].map(Transform::from));
        }
        let name = format!("{dtype:?}, {layout:?}, {strategy:?}");
        Self { name, ops, strategy, dtype, layout, decode: JpegDecoder::Cpu, mix: None, masks: false }
    }

    /// Cases for mixing in batches of a type and layout: with the batch in reverse, by shares and rectangles of each
    /// image's own, and with the image before, by a share for the batch.
    fn mixed(dtype: DType, layout: Layout) -> [Self; 2] {
        [("batch in reverse", Mix::timm(0.8, 1.0).mode(MixMode::Element)), ("image before", Mix::torchvision(0.8, 0.0))]
            .map(|(partner, mix)| {
                let name = format!("mixed with the {partner}, {dtype:?}, {layout:?}");
                Self { name, mix: Some(mix.hard_labels(true)), ..Self::format(dtype, layout, Strategy::Fused) }
            })
    }

    /// A case for outputs of [`LONG`].
    fn long(layout: Layout, strategy: Strategy) -> Self {
        let ops = vec![Resize::new(LONG).interpolation(Interpolation::Nearest).into()];
        let name = format!("long rows, {layout:?}, {strategy:?}");
        Self { name, ops, ..Self::format(DType::U8, layout, strategy) }
    }

    /// A case for outputs of [`FLAT`], of a type and layout.
    fn flat(dtype: DType, layout: Layout) -> Self {
        let mut ops = vec![Resize::new(FLAT).into()];
        if dtype != DType::U8 {
            ops.push(Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into());
        }
        let name = format!("flat, {dtype:?}, {layout:?}");
        Self { name, ops, ..Self::format(dtype, layout, Strategy::Fused) }
    }

    /// A case for images with masks.
    fn masked() -> Self {
        let ops = vec![random_horizontal_flip(0.5), random_resized_crop(31)];
        Self { name: "masks".to_owned(), ops, masks: true, ..Self::format(DType::U8, Layout::Nhwc, Strategy::Fused) }
    }

    /// Cases for a decoder with the CPU's bytes: whole images, and the needed part of them for a crop.
    fn decoded(decode: JpegDecoder, strategy: Strategy) -> [Self; 2] {
        [vec![Resize::new(OUTPUT).into()], vec![random_horizontal_flip(0.5), random_resized_crop(31)]].map(|ops| {
            let name = format!("decoded by {decode:?}, {} operations, {strategy:?}", ops.len());
            Self { name, ops, strategy, dtype: DType::U8, layout: Layout::Nhwc, decode, mix: None, masks: false }
        })
    }
}

/// A case for each kernel: every operation by a pass of its own, and batches of every type and layout by both kernels
/// that write them, the one that only writes and the one that also turns and resizes.
fn for_each_kernel() -> Vec<Case> {
    let resize = Resize::new(OUTPUT).into();
    let mut cases: Vec<Case> = recipes().iter().map(|ops| Case::recipe(ops, &resize, Strategy::Sequential)).collect();
    cases.extend(Case::decoded(JpegDecoder::Device, Strategy::Fused));
    cases.push(Case::masked());
    for layout in LAYOUTS {
        cases.extend([Strategy::Sequential, Strategy::Fused].map(|strategy| Case::long(layout, strategy)));
    }
    for dtype in DTYPES {
        for layout in LAYOUTS {
            cases.extend([Strategy::Sequential, Strategy::Fused].map(|strategy| Case::format(dtype, layout, strategy)));
            cases.push(Case::flat(dtype, layout));
            cases.extend(Case::mixed(dtype, layout));
        }
    }
    cases
}

/// A case for each operation and each way to run it, for each type and layout, and for whole pipelines.
fn for_each_way() -> Vec<Case> {
    let (whole, center) = (Op::from(Resize::new(OUTPUT)), Op::from(CenterCrop::new(OUTPUT)));
    let mut cases = Vec::new();
    for ops in recipes() {
        for strategy in STRATEGIES {
            cases.extend([&whole, &center].map(|last| Case::recipe(&ops, last, strategy)));
        }
    }
    for dtype in DTYPES {
        for layout in LAYOUTS {
            cases.extend(STRATEGIES.map(|strategy| Case::format(dtype, layout, strategy)));
            cases.extend(Case::mixed(dtype, layout));
        }
    }
    for decode in [JpegDecoder::Device, JpegDecoder::Auto] {
        cases.extend(STRATEGIES.into_iter().flat_map(|strategy| Case::decoded(decode, strategy)));
    }
    let presets = [
        ("train", Preset::Train.ops()),
        ("eval", Preset::Eval.ops()),
        ("trial-a", Trial::A { load: 12 }.ops()),
        ("trial-b", Trial::B { load: 4 }.ops()),
    ];
    for (name, ops) in presets {
        let of = |strategy| {
            let name = format!("{name}, {strategy:?}");
            let (dtype, layout) = (DType::F16, Layout::Nhwc);
            Case { name, ops: ops.clone(), strategy, dtype, layout, decode: JpegDecoder::Cpu, mix: None, masks: false }
        };
        cases.extend(STRATEGIES.map(of));
    }
    cases
}

/// Recipes of one operation in all forms with code of their own, and some recipes of several operations.
fn recipes() -> Vec<Vec<Op>> {
    let size = Size::new(64, 48);
    let fits_all = |op: &Op| SIZES.iter().all(|&(width, height)| op.output_size(Size::new(width, height)).is_ok());
    // Normalization is tested in each type and layout.
    let examples = Op::examples(size).into_iter().filter(|op| !matches!(op, Op::Normalize(_) | Op::ToFloat(_)));
    // A rectangle that must lie inside the image is tested on images that are large enough.
    let alone = examples.map(|op| if fits_all(&op) { vec![op] } else { vec![Resize::new(size).into(), op] });
    let turned = || Rotate::new(-4.7).fill(Fill::Color([7, 130, 255])).into();
    // Coordinates of 32,768 and more are computed in doubles.
    let long = || Resize::new(Size::new(33_000, 2)).interpolation(Interpolation::Nearest).into();
    let together = [vec![], vec![turned(), Hflip.into(), turned()], vec![long(), turned()]];
    alone.chain(together).collect()
}

/// An operation as JSON.
pub(super) fn written(op: &Op) -> String {
    serde_json::to_string(op).unwrap_or_else(|_| op.name().to_owned())
}

/// Images of noise, in which every misplaced pixel shows, as JPEGs of several kinds.
fn images(sizes: &[(u32, u32)]) -> Result<Vec<(Vec<u8>, u32)>> {
    let mut state = 1_u64;
    let mut noise = || {
        // Knuth's generator (MMIX). Its upper bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let samplings = [ChromaSampling::S444, ChromaSampling::S420, ChromaSampling::S422];
    let images = sizes.iter().zip(0_u32..).map(|(&(width, height), i)| {
        let rgb: Vec<u8> = (0..3 * width * height).map(|_| noise()).collect();
        let options =
            JpegOptions { sampling: samplings[i as usize % 3], progressive: i % 4 == 3, ..Default::default() };
        Ok((encode_jpeg(&Image::from_rgb(Size::new(width, height), &rgb)?, &options)?, i))
    });
    images.collect()
}

/// Masks of an image, in which every misplaced pixel shows.
fn masks((width, height): (u32, u32)) -> Result<Fields> {
    let size = Size::new(width, height);
    let numbers = || (0..size.area_px()).map(|at| at.wrapping_mul(40_503) >> 3);
    let object = |bit: u64| numbers().map(|number| (number >> bit & 1) as u8).collect();
    Fields::new()
        .with(MASKS[0], Mask::new(size, numbers().map(|number| number as u8).collect::<Vec<_>>())?)?
        .with(MASKS[1], Mask::new(size, numbers().map(|number| number as u16).collect::<Vec<_>>())?)?
        .with(MASKS[2], Mask::of_objects(size, [object(0), object(5)])?)
}

/// The first difference between an epoch of two pipelines, as text.
pub(super) fn difference(expected: &Pipeline, got: &Pipeline, epoch: u64) -> Result<Option<String>> {
    for (expected, got) in expected.epoch(epoch).zip(got.epoch(epoch)) {
        let (expected, got) = (expected?, got?);
        if let (Some(expected), Some(got)) = (expected.fields(0), got.fields(0)) {
            for name in MASKS {
                let [want, have] = [expected, got].map(|fields| fields.mask_tensor(name)?.to_host());
                if want?.values()? != have?.values()? {
                    return Ok(Some(format!("the mask {name} differs")));
                }
            }
        }
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
