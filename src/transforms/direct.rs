//! Plans that only copy pixels and look bytes up: mirrors, turns, crops, padding and tables. They run from the one view to
//! the other, on planes or on packed channels, without the pixels of four bytes that other plans need.

use super::scratch::room;
use super::strides::{Form, Strides};
use super::view::View;
use super::view_mut::ViewMut;
use crate::error::Result;
use crate::ops::byte_table::ByteTable;
use crate::ops::pad::mirrored;
use crate::ops::turn::Exact;
use crate::ops::values::{PixelValues, ValueWork};
use crate::ops::{Op, Reach};
use crate::plan::view::{ImageView, ShownColumns};
use crate::plan::{Epilogue, Last, Plan, Stage, StageWork};
use crate::raster::{Size, luma};
use crate::tensor::DType;
use std::borrow::Cow;
use std::ops::Range;
use warpfeed_image::layout::{SQUARE, mirrored_bytes, mirrored_triples, transposed};

/// Bytes that are copied before a table is applied to them: they stay in the first cache.
const STEP_BYTES: usize = 4096;

/// Writes the result of a plan to `out`, whose size it has. Returns false, and writes nothing, for plans and views that
/// need the back end.
pub(super) fn run(plan: &Plan<'_>, image: View<'_>, out: &mut ViewMut<'_>) -> bool {
    let Some(copy) = Copy::of(plan, &image, out) else { return false };
    let (from, to) = (image.parts(), out.parts());
    let (Some(of), Some(on)) = (Lines::of(&from.1), Lines::of(&to.1)) else { return false };
    if of.unit != on.unit || (copy.is_turned() && of.unit != 1) {
        return false;
    }
    copy.run(Source { bytes: from.0, lines: of }, Target { bytes: to.0, lines: on });
    true
}

/// Replaces an image by the result of a plan, which has its size. Returns false, and writes nothing, for plans and views
/// that need the back end.
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no memory for a copy of the image.
pub(super) fn run_in_place(plan: &Plan<'_>, between: &mut Vec<u32>, out: &mut ViewMut<'_>) -> Result<bool> {
    let image = out.as_view()?;
    if Copy::of(plan, &image, out).is_none() {
        return Ok(false);
    }
    let (bytes, form) = image.parts();
    let kept = room(between, form.len())?;
    kept.copy_from_slice(&bytes[..form.len()]);
    let kept = View::of_bytes(kept, image.kind().element, form);
    Ok(run(plan, kept, out))
}

/// The lines of an image: planes' rows, or rows of packed pixels. Lengths and distances are in bytes.
#[derive(Clone, Copy)]
struct Lines {
    /// The bytes that a line has for each column: 1 for planes, the number of channels for packed pixels.
    unit: usize,
    /// Number of planes; 1 for packed pixels.
    planes: usize,
    /// From one plane to the next.
    plane: usize,
    /// From one row to the next.
    row: usize,
}

impl Lines {
    /// `None` if the strides leave gaps in lines.
    fn of(form: &Form) -> Option<Self> {
        let (channels, Strides { row, column, channel }) = (usize::from(form.channels), form.strides);
        match (column, channel) {
            (1, plane) => Some(Self { unit: 1, planes: channels, plane, row }),
            (unit, 1) if unit == channels => Some(Self { unit, planes: 1, plane: 0, row }),
            _ => None,
        }
    }

    /// The place of columns of a row.
    fn place(&self, plane: usize, row: usize, columns: Range<usize>) -> Range<usize> {
        let start = plane * self.plane + row * self.row;
        start + self.unit * columns.start..start + self.unit * columns.end
    }
}

struct Source<'a> {
    bytes: &'a [u8],
    lines: Lines,
}

struct Target<'a> {
    bytes: &'a mut [u8],
    lines: Lines,
}

impl Source<'_> {
    fn line(&self, plane: usize, row: usize, columns: Range<usize>) -> &[u8] {
        &self.bytes[self.lines.place(plane, row, columns)]
    }
}

impl Target<'_> {
    fn line(&mut self, plane: usize, row: usize, columns: Range<usize>) -> &mut [u8] {
        &mut self.bytes[self.lines.place(plane, row, columns)]
    }

    /// Fills columns of a row with a color.
    fn fill(&mut self, row: usize, columns: Range<usize>, color: [u8; 3]) {
        if columns.is_empty() {
            return;
        }
        for plane in 0..self.lines.planes {
            let packed = self.lines.unit == 3 && color != [color[0]; 3];
            let line = self.line(plane, row, columns.clone());
            if packed {
                line.as_chunks_mut::<3>().0.fill(color);
            } else {
                line.fill(color[plane]);
            }
        }
    }
}

/// A plan that only copies pixels and looks bytes up.
struct Copy<'p> {
    places: Places<'p>,
    /// Table for the bytes of the image. Colors have been through it already.
    table: Option<&'p ByteTable>,
    /// Whether colors become gray.
    is_gray: bool,
}

/// The places that pixels are copied from.
enum Places<'p> {
    /// Those of a view without steps, or with shifts alone.
    Seen(Cow<'p, ImageView>),
    /// The columns of an image of this size, and its rows, that the result's columns and rows show.
    Listed { columns: Vec<usize>, rows: Vec<usize>, input: Size },
}

impl<'p> Copy<'p> {
    /// `None` if the plan has other stages, or if one of the views is not of bytes with the other's channels.
    fn of(plan: &'p Plan<'_>, image: &View<'_>, out: &ViewMut<'_>) -> Option<Self> {
        let channels = usize::from(image.kind().channels);
        let same = image.values().is_none() && out.dtype() == DType::U8 && out.channels() == channels;
        if !same || plan.values.is_some() || plan.epilogue != Epilogue::default() {
            return None;
        }
        let mut stages = &plan.stages[..];
        // Of gray images a conversion to gray changes the colors of fills alone.
        let mut is_gray = false;
        if channels == 1
            && let [before @ .., Stage { work: StageWork::Pass(Op::Grayscale(_), _), .. }] = stages
            && plan.last == Last::Plain
        {
            (stages, is_gray) = (before, true);
        }
        let (view, table) = match (stages, &plan.last) {
            ([], Last::Plain) => (Cow::Owned(ImageView::plain(plan.size)), None),
            ([], Last::View(view)) => (Cow::Borrowed(view), None),
            ([Stage { view, work: StageWork::Gather, .. }], Last::Plain) => (Cow::Borrowed(view), None),
            ([Stage { view, work: StageWork::Table(table), .. }], Last::Plain) => {
                (Cow::Borrowed(view), Some(table.as_ref()))
            }
            ([Stage { view, work: StageWork::Pass(op, Reach::Whole), size, .. }], Last::Plain) => {
                let places = Places::listed(op, view.size, *size, plan)?;
                return Some(Self { places, table: None, is_gray });
            }
            _ => return None,
        };
        let has_table = table.is_some();
        let fits = if view.exact.xx == 0 { view.steps.is_empty() } else { view.is_shifted() };
        if !fits || (has_table && view.table.is_some()) {
            return None;
        }
        let places = Places::Seen(view);
        Some(Self { places, table, is_gray })
    }

    fn is_turned(&self) -> bool {
        matches!(&self.places, Places::Seen(view) if view.exact.xx == 0)
    }

    fn run(&self, from: Source<'_>, to: Target<'_>) {
        match &self.places {
            Places::Listed { columns, rows, input } => listed(from, to, columns, rows, *input),
            Places::Seen(view) => {
                let table = self.table.or(view.table.as_deref());
                if view.exact.xx == 0 {
                    turned(view, table, from, to);
                } else {
                    seen(view, table, self.is_gray, from, to);
                }
            }
        }
    }
}

impl Places<'_> {
    /// The places of an operation that repeats pixels of the image beyond its edge.
    fn listed(op: &Op, input: Size, size: Size, plan: &Plan<'_>) -> Option<Self> {
        if !matches!(op, Op::Pad(_) | Op::Crop(_) | Op::CenterCrop(_)) {
            return None;
        }
        let edge = |start: i32, len: u32, shown: u32| {
            let at = |place: u32| (i64::from(start) + i64::from(place)).clamp(0, i64::from(len) - 1) as usize;
            (0..shown).map(at).collect::<Vec<_>>()
        };
        let (columns, rows) = match op.on_values(&PixelValues::RGB8, input, size, plan.order)? {
            ValueWork::Mirror { left, top, mode } => (
                mirrored(mode, left, input.width, size.width - left - input.width),
                mirrored(mode, top, input.height, size.height - top - input.height),
            ),
            ValueWork::Crop { x, y, fill: None } => {
                (edge(x, input.width, size.width), edge(y, input.height, size.height))
            }
            _ => return None,
        };
        Some(Self::Listed { columns, rows, input })
    }
}

/// Copies bytes through a table.
fn copied(from: &[u8], to: &mut [u8], table: Option<&ByteTable>) {
    let Some(table) = table else { return to.copy_from_slice(from) };
    for (from, to) in from.chunks(STEP_BYTES).zip(to.chunks_mut(STEP_BYTES)) {
        to.copy_from_slice(from);
        table.apply(to);
    }
}

/// Copies a view whose rows are rows of the image.
fn seen(view: &ImageView, table: Option<&ByteTable>, is_gray: bool, from: Source<'_>, mut to: Target<'_>) {
    let (width, height) = (view.size.width as usize, view.size.height as usize);
    let Lines { unit, planes, .. } = to.lines;
    let whole = view.is_plain_rows() && view.input.width == view.size.width;
    if whole && from.lines.row == unit * width && to.lines.row == unit * width {
        // The rows of a plane follow each other.
        let first = view.exact.y0 as usize;
        for plane in 0..planes {
            copied(from.line(plane, first, 0..width * height), to.line(plane, 0, 0..width * height), table);
        }
        return;
    }
    for y in 0..height {
        let fill = |columns: Range<usize>, color: [u8; 3]| {
            let color = if is_gray { [luma([color[0], color[1], color[2], 255]); 3] } else { color };
            to.fill(y, columns, color);
        };
        let Some(ShownColumns { columns, y: before, map }) = view.shown(y as u32, 0, width, fill) else { continue };
        let row = (map.yy * before + map.y0) as usize;
        let first = (map.xx * columns.start as i32 + map.x0) as usize;
        let len = columns.len();
        for plane in 0..planes {
            let line = to.line(plane, y, columns.clone());
            match (map.xx > 0, unit) {
                (true, _) => {
                    copied(from.line(plane, row, first..first + len), line, table);
                    continue;
                }
                (false, 1) => mirrored_bytes(from.line(plane, row, first + 1 - len..first + 1), line),
                (false, _) => mirrored_triples(from.line(plane, row, first + 1 - len..first + 1), line),
            }
            if let Some(table) = table {
                table.apply(line);
            }
        }
    }
}

/// Copies planes of a view that exchanges rows and columns.
fn turned(view: &ImageView, table: Option<&ByteTable>, from: Source<'_>, mut to: Target<'_>) {
    let (width, height) = (view.size.width as usize, view.size.height as usize);
    let Exact { xy, x0, yx, y0, .. } = view.exact;
    let along = |scale: i32, offset: i32, place: usize| (scale * place as i32 + offset) as usize;
    for plane in 0..to.lines.planes {
        for top in squares(height) {
            let rows = top..(top + SQUARE).min(height);
            for left in squares(width) {
                let columns = left..(left + SQUARE).min(width);
                if rows.len() < SQUARE || columns.len() < SQUARE {
                    for y in rows.clone() {
                        let column = along(xy, x0, y);
                        let line = to.line(plane, y, columns.clone());
                        for (x, to) in columns.clone().zip(line) {
                            *to = from.line(plane, along(yx, y0, x), column..column + 1)[0];
                        }
                    }
                    continue;
                }
                // The image's columns that the square's rows show, from left to right.
                let first = along(xy, x0, if xy > 0 { top } else { top + SQUARE - 1 });
                let shown = transposed(std::array::from_fn(|i| {
                    let mut row = [0; SQUARE];
                    row.copy_from_slice(from.line(plane, along(yx, y0, left + i), first..first + SQUARE));
                    row
                }));
                for (i, shown) in shown.iter().enumerate() {
                    let y = if xy > 0 { top + i } else { top + SQUARE - 1 - i };
                    to.line(plane, y, columns.clone()).copy_from_slice(shown);
                }
            }
        }
        if let Some(table) = table {
            (0..height).for_each(|y| table.apply(to.line(plane, y, 0..width)));
        }
    }
}

/// Where squares begin that cover a side. The last one may cover again what is covered.
fn squares(len: usize) -> impl Iterator<Item = usize> {
    (0..len.div_ceil(SQUARE)).map(move |i| (i * SQUARE).min(len.saturating_sub(SQUARE)))
}

/// Copies listed columns and rows. The lists have a run of neighbors in the middle, which shows the image itself.
fn listed(from: Source<'_>, mut to: Target<'_>, columns: &[usize], rows: &[usize], input: Size) {
    let Lines { unit, planes, .. } = to.lines;
    let middle = longest_run(columns, input.width as usize);
    let first = columns[middle.start];
    for (y, row) in rows.iter().enumerate() {
        for plane in 0..planes {
            let source = from.line(plane, *row, 0..input.width as usize);
            let line = to.line(plane, y, 0..columns.len());
            let run = &source[unit * first..][..unit * middle.len()];
            line[unit * middle.start..unit * middle.end].copy_from_slice(run);
            let others = (0..middle.start).chain(middle.end..columns.len());
            if unit == 1 {
                others.for_each(|column| line[column] = source[columns[column]]);
            } else {
                let (line, source) = (line.as_chunks_mut::<3>().0, source.as_chunks::<3>().0);
                others.for_each(|column| line[column] = source[columns[column]]);
            }
        }
    }
}

/// The places of the longest run of neighbors, which is at most `most` long.
fn longest_run(places: &[usize], most: usize) -> Range<usize> {
    let (mut longest, mut start) = (0..1, 0);
    for end in 1..=places.len() {
        if end - start > longest.len() {
            longest = start..end;
        }
        if longest.len() == most {
            break;
        }
        if end < places.len() && places[end] != places[end - 1] + 1 {
            start = end;
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::super::run::{end_gray, load, plan, to_gapless};
    use super::super::scratch::Scratch;
    use super::*;
    use crate::backend::{PixelForm, TablesOf};
    use crate::ops::fill::Fill;
    use crate::ops::filter::PassOrder;
    use crate::ops::{
        Brightness, CenterCrop, Crop, Gamma, Grayscale, Hflip, Invert, Pad, PadMode, Posterize, Rotate, Solarize, Vflip,
    };
    use crate::plan::{Planner, Strategy};
    use crate::rng::SampleRng;
    use crate::tensor::Layout;

    /// An operation that only copies pixels or looks bytes up.
    fn drawn(rng: &mut SampleRng, size: Size) -> Op {
        let mut below = |count: u32| rng.below(u64::from(count)) as u32;
        let mode = [PadMode::Constant, PadMode::Edge, PadMode::Reflect, PadMode::Symmetric][below(4) as usize];
        let fill = match (mode, below(3)) {
            (PadMode::Constant, 0) => Fill::Color([200, 9, 99]),
            (PadMode::Constant, 1) => Fill::from(77.0),
            _ => Fill::BLACK,
        };
        let at = |low: u32, side: u32| low as i32 - side as i32;
        match below(12) {
            0 => Hflip.into(),
            1 => Vflip.into(),
            2 => Rotate::new(90.0 * f64::from(below(4))).expand(true).into(),
            3 => CenterCrop::new(Size::new(1 + below(size.width + 9), 1 + below(size.height + 9))).into(),
            4 => Pad::sides([below(9), below(9), below(9), below(9)]).mode(mode).fill(fill).into(),
            5 => Invert.into(),
            6 => Posterize::new(below(8) as u8).into(),
            7 => Solarize::new(f64::from(below(256))).into(),
            8 => Brightness::new(f64::from(below(20)) / 10.0).into(),
            9 => Gamma::new(f64::from(1 + below(20)) / 10.0).into(),
            kind => {
                let (x, y) = (at(below(2 * size.width), size.width / 2), at(below(2 * size.height), size.height / 2));
                let fill = if kind == 10 { fill } else { Fill::EDGE };
                Crop::new(x, y, Size::new(1 + below(2 * size.width), 1 + below(2 * size.height))).fill(fill).into()
            }
        }
    }

    /// The memory of an image, with gaps if `wide`, and its strides.
    fn strided(size: Size, channels: usize, layout: Layout, wide: bool) -> (usize, [i64; 3]) {
        let gap = if wide { 5 } else { 0 };
        let (width, height) = (size.width as usize, size.height as usize);
        match layout {
            Layout::Nhwc => {
                let row = width * channels + gap;
                (row * height, [row as i64, channels as i64, 1])
            }
            Layout::Nchw => {
                let (row, plane) = (width + gap, (width + gap) * (height + gap));
                (plane * channels, [plane as i64, row as i64, 1])
            }
        }
    }

    fn view(bytes: &[u8], size: Size, channels: usize, layout: Layout, strides: [i64; 3]) -> View<'_> {
        let made = match layout {
            Layout::Nhwc => View::hwc(bytes, size, channels),
            Layout::Nchw => View::chw(bytes, size, channels),
        };
        made.and_then(|view| view.strides(strides)).unwrap()
    }

    fn view_mut(bytes: &mut [u8], size: Size, channels: usize, layout: Layout, strides: [i64; 3]) -> ViewMut<'_> {
        let made = match layout {
            Layout::Nhwc => ViewMut::hwc(bytes, size, channels),
            Layout::Nchw => ViewMut::chw(bytes, size, channels),
        };
        made.and_then(|view| view.strides(strides)).unwrap()
    }

    /// The result by pixels of four bytes, without gaps.
    fn by_pixels(plan: &Plan<'_>, image: View<'_>, channels: usize, layout: Layout) -> Vec<u8> {
        let (mut scratch, tables) = (Scratch::default(), TablesOf::new(None));
        load(&mut scratch, plan, image).unwrap();
        let elements = PixelForm { dtype: DType::U8, layout, channels };
        to_gapless(&mut scratch, plan, None, &tables, elements).unwrap();
        bytemuck::cast_slice(&scratch.between)[..elements.image_bytes(plan.size)].to_vec()
    }

    /// The elements of a view in the order of its layout.
    fn gapless(view: &View<'_>, layout: Layout) -> Vec<u8> {
        let (bytes, form) = view.parts();
        let Size { width, height } = form.size;
        let channels = usize::from(form.channels);
        let at = |x, y, channel| bytes[form.place(x as usize, y as usize, channel)];
        match layout {
            Layout::Nhwc => (0..height)
                .flat_map(|y| (0..width).flat_map(move |x| (0..channels).map(move |channel| (x, y, channel))))
                .map(|(x, y, channel)| at(x, y, channel))
                .collect(),
            Layout::Nchw => (0..channels)
                .flat_map(|channel| (0..height).flat_map(move |y| (0..width).map(move |x| (x, y, channel))))
                .map(|(x, y, channel)| at(x, y, channel))
                .collect(),
        }
    }

    #[test]
    fn bytes_are_those_of_pixels() {
        let mut rng = SampleRng::for_sample(7, 0, 0);
        let (mut direct, mut in_place) = (0, 0);
        const CASES: usize = 6000;
        for case in 0..CASES {
            let longest = if case % 10 == 0 { 300 } else { 40 };
            let mut side = || 1 + rng.below(longest) as u32;
            let size = Size::new(side(), side());
            let [channels, layout, wide, wide_out, count, strategy] = std::array::from_fn(|_| rng.below(4) as usize);
            let channels = if channels == 0 { 1 } else { 3 };
            let layout = if layout < 2 { Layout::Nhwc } else { Layout::Nchw };
            let mut ops: Vec<Op> = (0..1 + count.saturating_sub(1)).map(|_| drawn(&mut rng, size)).collect();
            if case % 50 == 0 {
                ops.push(Grayscale.into());
            }
            if channels == 1 && case % 20 != 0 {
                end_gray(&mut ops);
            }
            let strategy = if strategy == 0 { Strategy::Sequential } else { Strategy::Fused };
            let planner = Planner { strategy, order: PassOrder::default(), max_px: 1 << 24, values: None };

            let (len, strides) = strided(size, channels, layout, wide == 0);
            let bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            let image = view(&bytes, size, channels, layout, strides);
            let plan = plan(&planner, &image, &ops).unwrap();
            let want = by_pixels(&plan, image, channels, layout);

            let (len, to) = strided(plan.size, channels, layout, wide_out == 0);
            let mut made = vec![99; len];
            let done = run(&plan, image, &mut view_mut(&mut made, plan.size, channels, layout, to));
            if done {
                let got = gapless(&view(&made, plan.size, channels, layout, to), layout);
                assert!(got == want, "{size} {channels} {layout:?} {ops:?}");
                let gaps = made.iter().filter(|byte| **byte == 99).count();
                assert!(gaps >= len - want.len(), "gaps were written: {ops:?}");
                direct += 1;
            } else {
                assert!(made.iter().all(|byte| *byte == 99), "{ops:?}");
            }
            // A single operation needs no pixels, unless it turns packed triples.
            let single = strategy == Strategy::Fused && count <= 1 && case % 50 != 0;
            let turns = layout == Layout::Nhwc && channels == 3 && matches!(&ops[0], Op::Rotate(_));
            assert!(done || !single || turns, "{size} {channels} {layout:?} {ops:?}");
            if plan.size == size {
                let mut made = bytes.clone();
                let mut out = view_mut(&mut made, size, channels, layout, strides);
                if run_in_place(&plan, &mut Vec::new(), &mut out).unwrap() {
                    let got = gapless(&view(&made, size, channels, layout, strides), layout);
                    assert!(got == want, "in place: {size} {channels} {layout:?} {ops:?}");
                    in_place += 1;
                }
            }
        }
        assert!(direct > CASES / 2 && in_place > CASES / 8, "{direct} {in_place} of {CASES}");
    }
}
