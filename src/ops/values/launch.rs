//! Kernels of the work on values. A kernel serves all types of values, and makes a pixel in all channels.

use super::{PointForm, ValueWork, common, is_held};
use crate::error::Result;
use crate::ops::affine_warp::AffineWarp;
use crate::ops::descriptors::{
    DevicePointer, PlanesBlurSample, PlanesCopySample, PlanesEraseSample, PlanesExtremeSample, PlanesImage,
    PlanesNearestSample, PlanesNoiseSample, PlanesPointsSample, PlanesResizeSample, PlanesWarpSample,
};
use crate::ops::filter::{Interpolation, Taps, Weight};
use crate::ops::gaussian_blur::{BlurAxis, all_weights, exact_weights};
use crate::ops::kernel::{Kernel, KernelId, PlanesRecorder};
use crate::ops::pad::mirrored;
use crate::ops::resize::Resampling;
use crate::ops::rotation::fixed_point;
use crate::ops::turn::Exact;
use crate::ops::{ChannelNumbers, Overwrite, noise};
use crate::raster::{Rect, Size};
use bytemuck::NoUninit;
use warpfeed_image::planes::{Element, PixelKind};

/// The kernels of all work.
pub(in crate::ops) const KERNELS: &[Kernel] = &[
    Kernel::pixels("planes_copy"),
    Kernel::pixels("planes_resize"),
    Kernel::pixels("planes_nearest"),
    Kernel::pixels("planes_warp"),
    Kernel::pixels("planes_blur_rows"),
    Kernel::pixels("planes_blur_columns"),
    Kernel::pixels("planes_extreme"),
    Kernel::pixels("planes_points"),
    Kernel::pixels("planes_noise"),
    Kernel::pixels("planes_erase"),
];

/// The place of nothing in a table of columns or rows.
const OUTSIDE: i32 = -1;

impl PlanesImage {
    /// The descriptor of the part `part` of an image, at a device address.
    pub(crate) fn new(values: DevicePointer, kind: PixelKind, whole: Size, part: Rect) -> Self {
        let element = match kind.element {
            Element::U8 => Self::U8,
            Element::U16 => Self::U16,
            Element::F32 => Self::F32,
        };
        let (Rect { x, y, width, height }, channels) = (part, kind.channels.into());
        Self { values, x, y, width, height, whole_width: whole.width, whole_height: whole.height, element, channels }
    }

    /// The type of the values, and the number of channels.
    fn kind(&self) -> PixelKind {
        let element = match self.element {
            Self::U8 => Element::U8,
            Self::U16 => Element::U16,
            _ => Element::F32,
        };
        PixelKind { element, channels: self.channels as u16 }
    }

    /// Size of the whole image.
    fn whole(&self) -> Size {
        Size::new(self.whole_width, self.whole_height)
    }

    /// Number of bytes of all values.
    pub(crate) fn len_bytes(&self) -> usize {
        self.kind().len_bytes(self.part().size().area_px()) as usize
    }

    /// The stored rectangle.
    fn part(&self) -> Rect {
        Rect { x: self.x, y: self.y, width: self.width, height: self.height }
    }
}

impl ValueWork {
    /// Queues the kernels for the part `part` of the result, whose size is `size`. `max` is the value that stands
    /// for 1.
    pub(crate) fn launch(&self, on: &mut dyn PlanesRecorder, size: Size, part: Rect, max: f32) -> Result<()> {
        let image = on.image();
        let (kind, whole) = (image.kind(), image.whole());
        match self {
            Self::Keep => Ok(()),
            Self::Turn(turn) => copy(on, size, part, &Moves::exact(turn.map(whole))),
            Self::Crop { x, y, .. } if is_held(image.part(), *x, *y, part) => {
                on.moved_to(size, part);
                Ok(())
            }
            Self::Crop { x, y, fill } => {
                let fill = put_fill(on, *fill, kind)?;
                copy(on, size, part, &Moves { fill, ..Moves::exact(Exact::translate(*x, *y)) })
            }
            Self::Mirror { left, top, mode } => {
                let axis = |before: u32, len: u32, all: u32, start: u32, shown: u32| {
                    let places = mirrored(*mode, before, len, all - before - len);
                    places.into_iter().skip(start as usize).take(shown as usize).map(|place| place as i32).collect()
                };
                let columns = axis(*left, whole.width, size.width, part.x, part.width);
                let rows = axis(*top, whole.height, size.height, part.y, part.height);
                copy(on, size, part, &Moves::tables(columns, rows))
            }
            Self::Resample { window, resampling } => match kind.element {
                Element::U8 => resample::<i32>(on, *window, resampling, size, part),
                Element::U16 | Element::F32 => resample::<f64>(on, *window, resampling, size, part),
            },
            Self::Affine(warp) => affine(on, warp, size, part),
            Self::Perspective(of) => {
                let fill = Some(of.fill);
                sample(on, (of.map, false), (of.interpolation, fill), size, part)
            }
            Self::Blur { axes } => blur(on, *axes, part),
            Self::Extreme { kernel, largest } => extreme(on, *kernel, *largest, part),
            Self::Points(form) => points(on, form),
            &Self::Noise { mean, sigma, clip, key } => {
                const NOISE: KernelId = KernelId::of("planes_noise");
                let (image, normals) = (changed(on)?, on.put(noise::normals())?);
                let sample = PlanesNoiseSample { image, normals, key, mean, sigma, max, clip: clip.into() };
                on.call(NOISE, &sample, image.part().size());
                Ok(())
            }
            Self::Erase(overwrite) => erase(on, overwrite),
            Self::Select(list) => {
                let channels: Vec<u32> = list.as_slice().iter().map(|channel| u32::from(*channel)).collect();
                copy(on, size, part, &Moves { channels, ..Moves::exact(Exact::IDENTITY) })
            }
        }
    }
}

/// The pixels that a copy takes, and the channels.
struct Moves {
    exact: Exact,
    /// The column of the whole image for each column of the part that is made; empty if `exact` says it.
    columns: Vec<i32>,
    rows: Vec<i32>,
    /// Empty if they stay.
    channels: Vec<u32>,
    fill: DevicePointer,
}

impl Moves {
    fn exact(exact: Exact) -> Self {
        Self { exact, columns: Vec::new(), rows: Vec::new(), channels: Vec::new(), fill: 0 }
    }

    fn tables(columns: Vec<i32>, rows: Vec<i32>) -> Self {
        Self { columns, rows, ..Self::exact(Exact::IDENTITY) }
    }
}

/// Uploads numbers. Returns 0 for none.
fn put<T: NoUninit>(on: &mut dyn PlanesRecorder, numbers: &[T]) -> Result<DevicePointer> {
    if numbers.is_empty() { Ok(0) } else { on.put(bytemuck::cast_slice(numbers)) }
}

/// Uploads the bits of a fill. Returns 0 for the edge.
fn put_fill(on: &mut dyn PlanesRecorder, fill: Option<ChannelNumbers>, kind: PixelKind) -> Result<DevicePointer> {
    let Some(fill) = fill else { return Ok(0) };
    let bits = |number: f32| match kind.element {
        Element::U8 => u32::from(number as u8),
        Element::U16 => u32::from(number as u16),
        Element::F32 => number.to_bits(),
    };
    let bits: Vec<u32> = (0..usize::from(kind.channels)).map(|channel| bits(fill.of(channel))).collect();
    put(on, &bits)
}

/// Makes the part `part` of an image by copying pixels.
fn copy(on: &mut dyn PlanesRecorder, size: Size, part: Rect, moves: &Moves) -> Result<()> {
    const COPY: KernelId = KernelId::of("planes_copy");
    let source = on.image();
    let [columns, rows] = [put(on, &moves.columns)?, put(on, &moves.rows)?];
    let channels = put(on, &moves.channels)?;
    let count = if moves.channels.is_empty() { source.channels } else { moves.channels.len() as u32 };
    let target = on.target(PixelKind { channels: count as u16, ..source.kind() }, size, part)?;
    let (fill, exact) = (moves.fill, moves.exact.packed());
    on.call(COPY, &PlanesCopySample { source, target, columns, rows, channels, fill, exact }, part.size());
    Ok(())
}

/// The current image, to be changed in place: a copy if others read it.
fn changed(on: &mut dyn PlanesRecorder) -> Result<PlanesImage> {
    let image = on.image();
    if on.is_shared() {
        copy(on, image.whole(), image.part(), &Moves::exact(Exact::IDENTITY))?;
    }
    Ok(on.image())
}

/// Resizes a rectangle of the image, with weights of the type `W`.
fn resample<W: Weight + NoUninit>(
    on: &mut dyn PlanesRecorder,
    window: Rect,
    &Resampling { columns: across, rows: down, interpolation, vertical_first }: &Resampling,
    size: Size,
    part: Rect,
) -> Result<()> {
    let held = on.image().part();
    // An axis that keeps its size has no pass.
    let filter = |keeps: bool| if keeps { Interpolation::Nearest } else { interpolation };
    let (mut columns, mut rows) = (Taps::<W>::default(), Taps::<W>::default());
    columns.compute(across, part.x..part.right(), filter(across.is_identity()));
    rows.compute(down, part.y..part.bottom(), filter(down.is_identity()));
    if interpolation == Interpolation::Nearest || across.is_identity() && down.is_identity() {
        let places = |starts: &[u32], first: u32| starts.iter().map(|start| (start + first) as i32).collect();
        return copy(on, size, part, &Moves::tables(places(&columns.starts, window.x), places(&rows.starts, window.y)));
    }
    // From here on places are those of stored pixels.
    columns.starts.iter_mut().for_each(|start| *start = *start + window.x - held.x);
    rows.starts.iter_mut().for_each(|start| *start = *start + window.y - held.y);
    let between = |width: u32, height: u32| (Size::new(width, height), Rect { x: 0, y: 0, width, height });
    match (across.is_identity(), down.is_identity()) {
        (_, true) => axis(on, &columns, (false, rows.starts[0]), (size, part)),
        (true, false) => axis(on, &rows, (true, columns.starts[0]), (size, part)),
        (false, false) if vertical_first => {
            axis(on, &rows, (true, 0), between(held.width, part.height))?;
            axis(on, &columns, (false, 0), (size, part))
        }
        (false, false) => {
            axis(on, &columns, (false, 0), between(part.width, held.height))?;
            axis(on, &rows, (true, 0), (size, part))
        }
    }
}

/// Resizes one axis. `first` is the first row that is read, or the first column.
fn axis<W: Weight + NoUninit>(
    on: &mut dyn PlanesRecorder,
    taps: &Taps<W>,
    (down, first): (bool, u32),
    (size, part): (Size, Rect),
) -> Result<()> {
    const RESIZE: KernelId = KernelId::of("planes_resize");
    let source = on.image();
    let (starts, offsets, weights) = taps.tables();
    let (starts, offsets) = (put(on, starts)?, put(on, offsets)?);
    let weights = put(on, weights)?;
    let target = on.target(source.kind(), size, part)?;
    let sample = PlanesResizeSample { source, target, starts, offsets, weights, first, down: down.into() };
    on.call(RESIZE, &sample, part.size());
    Ok(())
}

/// Samples through an affine map.
fn affine(on: &mut dyn PlanesRecorder, warp: &AffineWarp, canvas: Size, part: Rect) -> Result<()> {
    const NEAREST: KernelId = KernelId::of("planes_nearest");
    let (source, m, fill) = (on.image(), warp.matrix, warp.fill.values());
    if warp.interpolation != Interpolation::Nearest {
        let [a, b, c, d, e, f] = m;
        return sample(on, ([a, b, c, d, e, f, 0.0, 0.0], true), (warp.interpolation, fill), canvas, part);
    }
    let fixed = fixed_point(m, canvas);
    let fill_bits = put_fill(on, fill, source.kind())?;
    if fixed.is_none() && m[1] == 0.0 && m[3] == 0.0 {
        // Columns and rows are independent, so their sums are added up once for all pixels.
        let along = |start: f64, step: f64, end: u32, shown: u32, side: u32| -> Vec<i32> {
            let places = (0..end).scan(start, |at, _| {
                let here = *at;
                *at += step;
                let is_inside = here >= 0.0 && here < f64::from(side);
                Some(if is_inside || fill.is_none() {
                    here.floor().clamp(0.0, f64::from(side - 1)) as i32
                } else {
                    OUTSIDE
                })
            });
            places.skip((end - shown) as usize).collect()
        };
        let columns = along(m[2] + m[1] * 0.5 + m[0] * 0.5, m[0], part.right(), part.width, source.whole_width);
        let rows = along(m[5] + m[4] * 0.5 + m[3] * 0.5, m[4], part.bottom(), part.height, source.whole_height);
        return copy(on, canvas, part, &Moves { fill: fill_bits, ..Moves::tables(columns, rows) });
    }
    let target = on.target(source.kind(), canvas, part)?;
    let (is_fixed, fixed) = (u32::from(fixed.is_some()), fixed.unwrap_or_default().map(i64::from));
    let sample = PlanesNearestSample { source, target, fill: fill_bits, matrix: m, fixed, is_fixed, reserved: 0 };
    on.call(NEAREST, &sample, part.size());
    Ok(())
}

/// Samples at the points of pixel centers.
fn sample(
    on: &mut dyn PlanesRecorder,
    (map, is_affine): ([f64; 8], bool),
    (interpolation, fill): (Interpolation, Option<ChannelNumbers>),
    canvas: Size,
    part: Rect,
) -> Result<()> {
    const WARP: KernelId = KernelId::of("planes_warp");
    let source = on.image();
    let fill = put_fill(on, fill, source.kind())?;
    let interpolation = match interpolation {
        Interpolation::Nearest => PlanesWarpSample::NEAREST,
        Interpolation::Bicubic => PlanesWarpSample::BICUBIC,
        _ => PlanesWarpSample::BILINEAR,
    };
    let target = on.target(source.kind(), canvas, part)?;
    let sample = PlanesWarpSample { source, target, fill, map, interpolation, is_affine: is_affine.into() };
    on.call(WARP, &sample, part.size());
    Ok(())
}

fn blur(on: &mut dyn PlanesRecorder, axes: [BlurAxis; 2], part: Rect) -> Result<()> {
    const ROWS: KernelId = KernelId::of("planes_blur_rows");
    const COLUMNS: KernelId = KernelId::of("planes_blur_columns");
    let source = on.image();
    let (sum_bytes, weights) = match source.kind().element {
        Element::U8 => (size_of::<u32>(), put(on, &axes.map(all_weights).concat())?),
        Element::U16 | Element::F32 => (size_of::<f64>(), put(on, &axes.map(exact_weights).concat())?),
    };
    let rows = Size::new(part.width, source.height);
    let between = on.scratch(sum_bytes * rows.area_px() as usize * source.channels as usize)?;
    let target = on.target(source.kind(), source.whole(), part)?;
    let [(kernel, _), (kernel_y, _)] = axes;
    let sample = PlanesBlurSample { source, target, between, weights, kernel, kernel_y };
    on.call(ROWS, &sample, rows);
    on.call(COLUMNS, &sample, part.size());
    Ok(())
}

/// Queues both axes of a dilation or an erosion.
fn extreme(on: &mut dyn PlanesRecorder, kernel: u32, largest: bool, part: Rect) -> Result<()> {
    const EXTREME: KernelId = KernelId::of("planes_extreme");
    let image = on.image();
    let between = Rect { x: part.x, y: image.y, width: part.width, height: image.height };
    for (down, part) in [(0, between), (1, part)] {
        let source = on.image();
        let target = on.target(image.kind(), image.whole(), part)?;
        let largest = u32::from(largest);
        on.call(EXTREME, &PlanesExtremeSample { source, target, kernel, largest, down, reserved: 0 }, part.size());
    }
    Ok(())
}

fn points(on: &mut dyn PlanesRecorder, form: &PointForm) -> Result<()> {
    const POINTS: KernelId = KernelId::of("planes_points");
    let image = changed(on)?;
    let none = PlanesPointsSample { image, ..PlanesPointsSample::default() };
    let sample = match form {
        PointForm::Bytes(table) => {
            PlanesPointsSample { form: PlanesPointsSample::TABLE, table: on.put(table.bytes())?, ..none }
        }
        PointForm::Words(table) => {
            PlanesPointsSample { form: PlanesPointsSample::TABLE, table: put(on, table)?, ..none }
        }
        PointForm::Invert { max } => PlanesPointsSample { form: PlanesPointsSample::INVERT, max: *max, ..none },
        PointForm::Solarize { threshold, max } => {
            // Values in single precision are below a number if they are below the next one in single precision.
            let near = *threshold as f32;
            let threshold = if f64::from(near) < *threshold { near.next_up() } else { near };
            PlanesPointsSample { form: PlanesPointsSample::SOLARIZE, threshold, max: *max, ..none }
        }
        PointForm::Mask(mask) => PlanesPointsSample { form: PlanesPointsSample::MASK, mask: u32::from(*mask), ..none },
        PointForm::Scale { factor, max } => {
            PlanesPointsSample { form: PlanesPointsSample::SCALE, factor: *factor, max: *max, ..none }
        }
    };
    on.call(POINTS, &sample, image.part().size());
    Ok(())
}

/// Overwrites the part of a rectangle that is stored.
fn erase(on: &mut dyn PlanesRecorder, of: &Overwrite) -> Result<()> {
    const ERASE: KernelId = KernelId::of("planes_erase");
    let image = changed(on)?;
    let Some(Rect { x, y, width, height }) = common(of.rect, image.part()) else { return Ok(()) };
    // A plain number is rounded away from zero, one with noise to even, by the kernel.
    let rounds = of.std == 0.0 && image.kind().element != Element::F32;
    let number = |channel: usize| {
        let number = of.values.of(channel);
        if rounds { number.round() } else { number }
    };
    let values: Vec<f32> = (0..image.channels as usize).map(number).collect();
    let (values, normals) = (put(on, &values)?, if of.std == 0.0 { 0 } else { on.put(noise::normals())? });
    let (key, std) = (of.key, of.std);
    let sample = PlanesEraseSample { image, values, normals, key, x, y, width, height, std, reserved: 0 };
    on.call(ERASE, &sample, Size::new(width, height));
    Ok(())
}
