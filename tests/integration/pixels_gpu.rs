//! The GPU path gives the CPU path's values for images of any element type and number of channels, on a real or
//! simulated device: `cuda-sim/run cargo test --test integration gpu:: -- --ignored`.

use crate::common::{Random, ragged, recipes, views};
use warpfeed::fields::{Field, Fields, Mask, MaskValues};
use warpfeed::image::planes::{Element, PixelKind};
use warpfeed::image::{Rect, Size};
use warpfeed::ops::{
    Affine, AffineMatrix, Brightness, CenterCrop, ChannelList, Crop, Dilate, Erase, ErasingNoise, Erode, Fill, Gamma,
    GaussianBlur, GaussianNoise, Hflip, Interpolation, Invert, Normalize, Op, Pad, PadMode, Perspective, Posterize,
    RandomErasing, RandomResizedCrop, Resize, ResizedCrop, Rotate, SelectChannels, Solarize, Transform, Vflip,
};
use warpfeed::prelude::*;
use warpfeed::source::EncodedImages;
use warpfeed::{ApplyOptions, DType, Device, JpegDecoder, Layout, Mix, Pixels, Tensor, apply, apply_with_fields, view};

const GPU: Device = Device::Cuda(0);

/// A file as `numpy.save` writes it: noise over the whole range, blocks of both extremes, and a ramp.
fn npy(kind: PixelKind, size: Size, seed: u64) -> Vec<u8> {
    let mut random = Random(seed * 2_654_435_761 + 1);
    let channels = usize::from(kind.channels);
    let (descr, bytes) = match kind.element {
        Element::U8 => ("|u1", 1),
        Element::U16 => ("<u2", 2),
        Element::F32 => ("<f4", 4),
    };
    let header = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}, {}, {channels}), }}\n",
        size.height, size.width
    );
    let mut file = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
    for y in 0..size.height {
        for x in 0..size.width {
            for channel in 0..channels as u32 {
                let share = match (y / 7 + channel) % 3 {
                    0 => random.real(0.0, 1.0),
                    1 => f64::from((x / 3 + y / 2 + channel) % 2),
                    _ => f64::from(x + y) / f64::from(size.width + size.height),
                };
                match kind.element {
                    Element::U8 => file.push((share * 255.0) as u8),
                    Element::U16 => file.extend(((share * 65_535.0) as u16).to_le_bytes()),
                    Element::F32 => file.extend(((share * 3.0 - 1.0) as f32).to_le_bytes()),
                }
            }
        }
    }
    assert_eq!(file.len(), 10 + header.len() + size.area_px() as usize * channels * bytes);
    file
}

fn kinds() -> impl Iterator<Item = PixelKind> {
    let kind = |element, channels| PixelKind { element, channels };
    // Three channels of 8 bits are RGB.
    let bytes = [1, 2, 4, 13].map(|channels| kind(Element::U8, channels));
    let words = [1, 3, 4, 13].map(|channels| kind(Element::U16, channels));
    bytes.into_iter().chain(words).chain([1, 3, 4, 13].map(|channels| kind(Element::F32, channels)))
}

/// Options for a result in the image's own type, interleaved.
fn own(kind: PixelKind) -> ApplyOptions {
    let dtype = match kind.element {
        Element::U8 => DType::U8,
        Element::U16 => DType::U16,
        Element::F32 => DType::F32,
    };
    ApplyOptions::default().pixels(Pixels::Own).dtype(dtype).layout(Layout::Nhwc)
}

/// Compares both devices. Returns whether the operations take such images.
#[track_caller]
fn compare(file: &[u8], ops: &[Op], options: &ApplyOptions, what: &str) -> bool {
    let Ok(want) = apply(file, ops, &options.device(Device::Cpu)) else { return false };
    let replay = || format!("{what}: {}", serde_json::to_string(ops).unwrap());
    let got = apply(file, ops, &options.device(GPU)).unwrap_or_else(|error| panic!("{error}: {}", replay()));
    assert_eq!(got.shape(), want.shape(), "{}", replay());
    let (got, want) = (got.as_bytes().unwrap(), want.as_bytes().unwrap());
    let differ = got.iter().zip(want).filter(|(got, want)| got != want).count();
    assert!(differ == 0, "{differ} bytes of {} differ, {}", want.len(), replay());
    true
}

/// Every work that plans have, at all interpolations and fills.
fn works(random: &mut Random, kind: PixelKind, size: Size) -> Vec<Op> {
    let unit = kind.element.max_value();
    let (Size { width, height }, whole) = (size, kind.element != Element::F32);
    let color = |share: f32| Fill::from(share * unit);
    let to = Size::new(random.within(1, 60), random.within(1, 60));
    let [x, y, columns, rows] = recipes::inside(random, size);
    let window = Rect { x, y, width: columns, height: rows };
    let mut ops: Vec<Op> = vec![
        Hflip.into(),
        Vflip.into(),
        Crop::new(-3, 2, Size::new(width + 5, height)).fill(color(0.3)).into(),
        Crop::new(-3, 2, Size::new(width + 5, height)).fill(Fill::EDGE).into(),
        Crop::new(width as i32 + 2, 0, 5).fill(color(0.9)).into(),
        Crop::new(x as i32, y as i32, Size::new(columns, rows)).into(),
        Pad::sides([3, 0, 2 * width + 1, 5]).mode(PadMode::Reflect).into(),
        Pad::sides([3, 0, 2 * width + 1, 5]).mode(PadMode::Symmetric).into(),
        Pad::new(2).mode(PadMode::Edge).into(),
        Dilate::new(random.within(1, 6)).into(),
        Erode::new(random.within(1, 45)).into(),
        GaussianBlur::new(1 + 2 * random.within(0, 5), random.real(0.2, 3.0)).into(),
        GaussianBlur::new(51, 17.0).into(),
        Invert.into(),
        Brightness::new(random.real(0.2, 3.0)).into(),
        Solarize::new(random.real(0.0, f64::from(unit))).into(),
        GaussianNoise::new(0.1, 5).into(),
        GaussianNoise::new(0.7, 6).mean(-0.2).clip(false).into(),
        Erase::new(window).value(0.4 * unit + 0.5).into(),
        Erase::new(window).value(0.5 * unit).noise(0.4 * unit, 77).into(),
        SelectChannels::new(ChannelList::new(&[kind.channels as u8 - 1, 0]).unwrap()).into(),
    ];
    if whole {
        ops.extend([Op::from(Posterize::new(3)), Gamma::new(0.7).into()]);
    }
    for turn in [90.0, 180.0, 270.0] {
        ops.push(Rotate::new(turn).expand(true).into());
    }
    use Interpolation::{Bicubic, Bilinear, Box, Hamming, Lanczos, Nearest};
    for interpolation in [Nearest, Bilinear, Bicubic, Lanczos, Box, Hamming] {
        for to in [to, Size::new(to.width, height), Size::new(width, to.height), Size::new(width * 2, 1)] {
            ops.push(Resize::new(to).interpolation(interpolation).into());
            ops.push(ResizedCrop::new(window, to).interpolation(interpolation).into());
        }
    }
    for interpolation in [Nearest, Bilinear, Bicubic] {
        for fill in [color(0.4), Fill::EDGE] {
            if interpolation != Bicubic || fill != Fill::EDGE {
                ops.push(Rotate::new(random.real(-180.0, 180.0)).interpolation(interpolation).fill(fill).into());
            }
        }
        // By whole pixels and scales alone, nearest sums of doubles depend on one axis.
        let affine = Affine::new().interpolation(interpolation).fill(color(0.6));
        ops.push(affine.scale(random.real(0.4, 2.5)).into());
        ops.push(affine.translate([5, -3]).scale(0.8).degrees(13.0).shear([20.0, -7.0]).into());
        // Beyond fixed point.
        let far = AffineMatrix::new([900.0, 3.0, -20.0, 0.5, 700.0, -30.0]).interpolation(interpolation);
        ops.push(far.fill(color(0.1)).into());
        let points = [[0.0, 0.0], [9.0, 0.0], [9.0, 9.0], [0.0, 9.0]];
        let moved = [[1.0, 0.5], [9.0, 1.0], [7.0, 8.0], [-0.5, 9.5]];
        ops.push(Perspective::new(points, moved).interpolation(interpolation).fill(color(0.7)).into());
    }
    ops
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn every_work_equals_the_cpu_whole_and_in_part() {
    let sizes = [Size::new(23, 31), Size::new(1, 9), Size::new(37, 19), Size::new(1, 1)];
    let (mut random, mut tried) = (Random(3), 0);
    for (i, kind) in kinds().enumerate() {
        let size = sizes[i % 3];
        let (file, what) = (npy(kind, size, i as u64), format!("{kind} of {size}"));
        for op in works(&mut random, kind, size) {
            assert!(compare(&file, std::slice::from_ref(&op), &own(kind), &what), "{what}: {op:?} is refused");
            let after = op.output_size(size).unwrap();
            let (x, y) = (after.width / 3, after.height / 4);
            let part = Size::new((after.width - x) / 2 + 1, (after.height - y) / 3 + 1);
            compare(&file, &[op, Crop::new(x as i32, y as i32, part).into()], &own(kind), &what);
            tried += 1;
        }
        let pixel = npy(kind, sizes[3], i as u64);
        for op in works(&mut random, kind, sizes[3]) {
            compare(&pixel, &[op], &own(kind), &what);
        }
    }
    assert!(tried > 1_000, "{tried}");
}

/// Recipes of several operations, as they are and normalized, in all types and layouts.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn recipes_of_any_kind_equal_the_cpu() {
    let (mut random, mut tried, kinds) = (Random(5), 0, kinds().collect::<Vec<_>>());
    for case in 0..400 {
        let kind = kinds[case % kinds.len()];
        let first = Size::new(random.within(1, 90), random.within(1, 90));
        let (file, mut size, mut ops) = (npy(kind, first, case as u64), first, Vec::new());
        for _ in 0..random.within(0, 5) {
            let mut all = works(&mut random, kind, size);
            all.retain(|op| !matches!(op, Op::SelectChannels(_)));
            let op = all.swap_remove(random.within(0, all.len() as u32 - 1) as usize);
            let after = op.output_size(size).unwrap();
            if after.area_px() <= 1 << 14 {
                size = after;
                ops.push(op);
            }
        }
        let mut options = own(kind);
        if random.within(0, 1) == 1 {
            ops.push(Normalize::new(0.4, 0.3).into());
            for _ in 0..random.within(0, 3) {
                let [x, y, width, height] = recipes::inside(&mut random, size);
                let plain = Erase::new(Rect { x, y, width, height }).value(1.5);
                let std = if random.within(0, 1) == 1 { 0.7 } else { 0.0 };
                ops.push(plain.noise(std, random.within(0, 99).into()).into());
            }
            let dtype = [DType::F32, DType::F16, DType::Bf16][random.within(0, 2) as usize];
            options = options.dtype(dtype);
        }
        if random.within(0, 1) == 1 {
            options = options.layout(Layout::Nchw);
        }
        tried += u32::from(compare(&file, &ops, &options, &format!("case {case}, {kind}, {first}")));
    }
    assert_eq!(tried, 400);
}

/// Numbers with exponents of 0, and values that are none, go through copies bit for bit. Numbers with exponents of 0 go
/// through filters too.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn unusual_floats_stay_what_they_are() {
    let kind = PixelKind { element: Element::F32, channels: 2 };
    let file = |values: &[f32]| {
        let mut file = npy(kind, Size::new(9, 8), 1);
        let start = file.len() - 9 * 8 * 2 * 4;
        for (to, value) in file[start..].as_chunks_mut::<4>().0.iter_mut().zip(values.iter().cycle()) {
            *to = value.to_le_bytes();
        }
        file
    };
    let small = file(&[1e-42, -3e-40, 0.0, -0.0, 1.5, f32::MIN_POSITIVE]);
    let strange = file(&[f32::NAN, -f32::NAN, f32::INFINITY, 2.0, f32::from_bits(0x7f80_0001), -1e-45]);
    let copies = [Op::from(Hflip), Rotate::new(33.0).into(), Pad::new(3).mode(PadMode::Reflect).into()];
    let float = |dtype| own(kind).dtype(dtype);
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        compare(&strange, &copies, &float(dtype), "copies");
        compare(&small, &copies, &float(dtype), "copies");
    }
    for op in works(&mut Random(4), kind, Size::new(9, 8)) {
        compare(&small, &[op], &float(DType::F32), "small numbers");
    }
}

/// Images of 16 bits of several sizes.
fn words(channels: u16) -> EncodedImages {
    let kind = PixelKind { element: Element::U16, channels };
    EncodedImages::new((0..11).map(|i| (npy(kind, Size::new(31 + i, 40 - i), i.into()), i % 3)))
}

fn builder(channels: u16) -> PipelineBuilder {
    let kind = PixelKind { element: Element::U16, channels };
    Pipeline::builder(words(channels)).shuffle(7).threads(2).batch_size(4).pixels(Pixels::Kind(kind))
}

/// The tensors of all batches on both devices.
fn both(build: impl Fn(PipelineBuilder) -> Vec<Vec<u8>>, builder: impl Fn() -> PipelineBuilder, what: &str) {
    let [want, got] = [Device::Cpu, GPU].map(|device| build(builder().device(device)));
    assert!(!want.is_empty() && want == got, "{what}");
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.to_host().unwrap().as_bytes().unwrap().to_vec()
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn batches_of_any_form_and_kind_equal_the_cpu() {
    let plain = |builder: PipelineBuilder| {
        let batches = builder.build().unwrap().epoch(2).map(|batch| bytes(batch.unwrap().images()));
        batches.collect()
    };
    let drawn = |channels| {
        builder(channels)
            .transform(random_horizontal_flip(0.5))
            .transform(random_rotation(-20.0..=20.0))
            .transform(random_resized_crop(Size::new(24, 20)))
    };
    for layout in [Layout::Nchw, Layout::Nhwc] {
        for channels in [1, 3, 13] {
            both(plain, || drawn(channels).output(DType::U16, layout), "as stored");
            for dtype in [DType::F32, DType::F16, DType::Bf16] {
                let erased = RandomErasing::new(0.7).noise(ErasingNoise::PerPixel).count(1..=3);
                let normalized = || drawn(channels).normalize(0.4, 0.3).transform(erased.clone()).output(dtype, layout);
                both(plain, normalized, "normalized and erased");
                let mix = Mix::torchvision(0.2, 1.0).hard_labels(true);
                both(plain, || normalized().mix(mix.clone()), "mixed");
            }
            let mix = Mix::torchvision(0.2, 1.0).hard_labels(true);
            both(plain, || drawn(channels).output(DType::U16, layout).mix(mix.clone()), "mixed words");
            // Sizes of their own, padded and not.
            let sized =
                || builder(channels).transform(Hflip).transform(Resize::shorter_side(17)).output(DType::U16, layout);
            let padded = |builder: PipelineBuilder| {
                let batches = builder.build_padded(16).unwrap().epoch(1);
                batches.map(|batch| bytes(batch.unwrap().images().tensor())).collect()
            };
            both(padded, sized, "padded");
            let ragged = |builder: PipelineBuilder| {
                let images = ragged::delivered(builder.build_ragged().unwrap().epoch(1));
                images.into_iter().map(|(.., bytes)| bytes).collect()
            };
            both(ragged, sized, "ragged");
        }
    }
}

/// Views share the decoded image, which each of them reads in part.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn views_of_any_kind_equal_the_cpu() {
    let crop = |size| -> Transform { RandomResizedCrop::new(size).scale(0.05..=0.4).into() };
    let all = || {
        [
            view([crop(Size::new(9, 9)), random_gaussian_blur(5, 0.1..=2.0)]).times(2),
            view([Invert.into(), CenterCrop::new(Size::new(12, 10)).into()]),
            view([Hflip.into(), CenterCrop::new(8).into()]),
            view([Rotate::new(90.0).into(), SelectChannels::new([1, 0, 1]).into(), Crop::new(3, 5, 11).into()]),
            view([GaussianNoise::new(0.1, 4).into(), Crop::new(9, 2, 6).into()]),
            view([Erase::new(Rect { x: 2, y: 2, width: 9, height: 20 }).value(9.0).into(), CenterCrop::new(16).into()]),
        ]
    };
    for kept in 1..=all().len() {
        let some = || all().into_iter().take(kept).collect::<Vec<_>>();
        let build = |device| {
            let pipeline = builder(3).views(some()).output(DType::U16, Layout::Nchw).device(device).build().unwrap();
            views::delivered(pipeline.epoch(1))
        };
        assert!(build(Device::Cpu) == build(GPU), "{kept} views");
    }
}

/// Where the stages of a plan do not fit the batch's share of memory, the CPU runs them.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn without_memory_for_stages_the_cpu_runs_them() {
    let kind = PixelKind { element: Element::F32, channels: 13 };
    let images = || EncodedImages::new((0..6).map(|i| (npy(kind, Size::new(120 + i, 90), i.into()), 0)));
    let run = |device: Device, memory: Option<u64>| {
        let builder = Pipeline::builder(images()).threads(2).batch_size(3).pixels(Pixels::Kind(kind)).device(device);
        let builder = builder.transform(GaussianBlur::new(5, 1.0)).transform(Resize::new(Size::new(9, 7)));
        let builder = memory.into_iter().fold(builder.normalize(0.1, 2.0), PipelineBuilder::device_memory);
        let mut epoch = builder.jpeg_decoder(JpegDecoder::Auto).build().unwrap().epoch(0);
        let batches: Vec<_> = epoch.by_ref().map(|batch| bytes(batch.unwrap().images())).collect();
        (batches, epoch.stats().decoded)
    };
    let (want, _) = run(Device::Cpu, None);
    let (got, decoded) = run(GPU, None);
    assert!(got == want && (decoded.cpu, decoded.for_memory) == (6, 0), "{decoded:?}");
    assert_eq!(decoded.cpu_fallbacks.iter().collect::<Vec<_>>(), [("no JPEG", 6)]);
    let (got, decoded) = run(GPU, Some((3 * 3) << 20));
    assert!(got == want && decoded.cpu == 6 && decoded.for_memory > 0, "{decoded:?}");
    assert_eq!(decoded.cpu_fallbacks.total(), 6);
}

/// An image with more rows than a grid has.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn a_long_image_is_made_by_the_cpu() {
    let kind = PixelKind { element: Element::U8, channels: 1 };
    let file = npy(kind, Size::new(1, 600_000), 3);
    let (rows, columns) = (Resize::new(Size::new(1, 50)), Resize::new(Size::new(3, 65_000)));
    for op in [Op::from(rows), columns.interpolation(Interpolation::Nearest).into(), columns.into()] {
        assert!(compare(&file, &[op], &own(kind), "long"));
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn masks_follow_pixels_of_any_kind_on_a_device() {
    let size = Size::new(30, 20);
    let mask = Mask::new(size, (0..600).map(|at| (at * 7 % 251) as u8).collect::<Vec<u8>>()).unwrap();
    let fields = Fields::new().with("mask", mask).unwrap();
    let ops = [Op::from(Rotate::new(17.0)), Hflip.into(), Crop::new(-3, 2, 18).into()];
    for kind in kinds() {
        let file = npy(kind, size, 2);
        let of = |device| {
            let (pixels, fields) = apply_with_fields(&file, &fields, &ops, &own(kind).device(device)).unwrap();
            let Some(Field::Mask(mask)) = fields.get("mask") else { panic!("no mask") };
            let MaskValues::U8(moved) = &*mask.planes()[0] else { panic!("no bytes") };
            (bytes(&pixels), moved.clone())
        };
        assert!(of(Device::Cpu) == of(GPU), "{kind}");
    }
}
