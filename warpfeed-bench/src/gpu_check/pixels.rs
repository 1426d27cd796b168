//! Comparison of the kernels for images that are not RGB of 8 bits with the CPU.

use super::equality::{Equality, difference, written};
use warpfeed::image::planes::{Element, PixelKind};
use warpfeed::image::{Rect, Size};
use warpfeed::ops::{
    AffineMatrix, Brightness, ChannelList, Crop, Dilate, Erase, Erode, Fill, GaussianBlur, GaussianNoise, Hflip,
    Interpolation, Invert, Normalize, Op, Pad, PadMode, Perspective, Resize, Rotate, SelectChannels, Solarize,
    random_horizontal_flip,
};
use warpfeed::source::EncodedImages;
use warpfeed::{ApplyOptions, DType, Device, Layout, Mix, Pipeline, Pixels, Result, apply};

/// Kinds with each type and each arithmetic.
const KINDS: [PixelKind; 3] = [
    PixelKind { element: Element::U8, channels: 2 },
    PixelKind { element: Element::U16, channels: 5 },
    PixelKind { element: Element::F32, channels: 1 },
];

const SIZE: Size = Size { width: 67, height: 43 };

/// Adds a case for each operation, for each type and layout of the result, and for mixed batches of 16 bits.
pub(super) fn compare(device: Device, found: &mut Equality, progress: &mut dyn FnMut(&str)) -> Result<()> {
    for kind in KINDS {
        let file = noise(kind);
        let (own, unit) = match kind.element {
            Element::U8 => (DType::U8, 255.0),
            Element::U16 => (DType::U16, 65_535.0),
            Element::F32 => (DType::F32, 1.0),
        };
        let mut cases: Vec<_> = operations(unit)?.into_iter().map(|op| (vec![op], own, Layout::Nhwc)).collect();
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let rect = Rect { x: 8, y: 2, width: 16, height: 20 };
            let erased = [Erase::new(rect).noise(1.0, 7), Erase::new(Rect { x: 10, y: 9, width: 30, height: 5 })];
            let ops: Vec<Op> = [Normalize::new(0.4, 0.3).into()].into_iter().chain(erased.map(Op::from)).collect();
            cases.extend([Layout::Nchw, Layout::Nhwc].map(|layout| (ops.clone(), dtype, layout)));
        }
        for (ops, dtype, layout) in cases {
            let name =
                format!("{kind}, {}, {dtype}, {layout:?}", ops.iter().map(written).collect::<Vec<_>>().join(", "));
            progress(&name);
            let options = ApplyOptions::default().pixels(Pixels::Own).dtype(dtype).layout(layout);
            let [want, got] = [Device::Cpu, device].map(|device| apply(&file, &ops, &options.device(device)));
            let (want, got) = (want?, got?);
            let wrong = want.as_bytes()?.iter().zip(got.as_bytes()?).filter(|(want, got)| want != got).count();
            found.cases += 1;
            if wrong > 0 {
                found.different.push(format!("{name}: {wrong} bytes differ"));
            }
        }
    }
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let name = format!("mixed, u16, {layout:?}");
        progress(&name);
        let make = |device| {
            Pipeline::builder(EncodedImages::new((0..4).map(|class| (noise(KINDS[1]), class))))
                .pixels(Pixels::Own)
                .output(DType::U16, layout)
                .transform(random_horizontal_flip(0.5))
                .transform(Resize::new(SIZE))
                .mix(Mix::torchvision(0.8, 0.0).hard_labels(true))
                .device(device)
                .build()
        };
        found.cases += 1;
        if let Some(difference) = difference(&make(Device::Cpu)?, &make(device)?, 0)? {
            found.different.push(format!("{name}: {difference}"));
        }
    }
    Ok(())
}

/// An operation for each kernel, and for each of its ways. `unit` is the value that stands for 1.
fn operations(unit: f32) -> Result<Vec<Op>> {
    let fill = Fill::from(0.6 * unit);
    let rect = Rect { x: 20, y: 11, width: 31, height: 23 };
    let noise = Erase::new(rect).value(0.5 * unit).noise(0.4 * unit, 77);
    let mut ops: Vec<Op> = vec![
        Hflip.into(),
        Crop::new(-3, 2, SIZE).fill(fill).into(),
        Crop::new(-3, 2, SIZE).fill(Fill::EDGE).into(),
        Pad::new(9).mode(PadMode::Reflect).into(),
        Rotate::new(90.0).expand(true).into(),
        SelectChannels::new(ChannelList::new(&[0, 0, 0, 0])?).into(),
        GaussianBlur::new(5, 1.3).into(),
        Dilate::new(4).into(),
        Erode::new(3).into(),
        Invert.into(),
        Brightness::new(1.7).into(),
        Solarize::new(f64::from(0.4 * unit)).into(),
        GaussianNoise::new(0.1, 5).into(),
        Erase::new(rect).value(0.3 * unit).into(),
        noise.into(),
    ];
    use Interpolation::{Bicubic, Bilinear, Lanczos, Nearest};
    for interpolation in [Nearest, Bilinear, Lanczos] {
        let sizes = [Size::new(37, 29), Size::new(37, 5)];
        ops.extend(sizes.map(|size| Op::from(Resize::new(size).interpolation(interpolation))));
    }
    for interpolation in [Nearest, Bilinear, Bicubic] {
        ops.push(Rotate::new(-4.7).interpolation(interpolation).fill(fill).into());
        // Beyond fixed point.
        let far = AffineMatrix::new([900.0, 3.0, -20.0, 0.5, 700.0, -30.0]);
        ops.push(far.interpolation(interpolation).fill(fill).into());
        let moved = [[1.0, 0.5], [9.0, 1.0], [7.0, 8.0], [-0.5, 9.5]];
        let points = [[0.0, 0.0], [9.0, 0.0], [9.0, 9.0], [0.0, 9.0]];
        ops.push(Perspective::new(points, moved).interpolation(interpolation).fill(fill).into());
    }
    ops.push(Rotate::new(33.0).interpolation(Bilinear).fill(Fill::EDGE).into());
    Ok(ops)
}

/// Noise over the whole range, as a file that NumPy writes.
fn noise(kind: PixelKind) -> Vec<u8> {
    let mut state = 1_u64;
    let mut word = || {
        // Knuth's generator (MMIX). Its upper bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 48) as u16
    };
    let descr = match kind.element {
        Element::U8 => "|u1",
        Element::U16 => "<u2",
        Element::F32 => "<f4",
    };
    let Size { width, height } = SIZE;
    let header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({height}, {width}, {}), }}\n", kind.channels);
    let mut file = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
    for _ in 0..SIZE.area_px() * u64::from(kind.channels) {
        let word = word();
        match kind.element {
            Element::U8 => file.push(word as u8),
            Element::U16 => file.extend(word.to_le_bytes()),
            Element::F32 => file.extend((f32::from(word) / 30_000.0 - 0.7).to_le_bytes()),
        }
    }
    file
}
