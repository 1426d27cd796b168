//! Plans that only copy pixels and look bytes up: mirrors, turns, crops, padding and tables. They run from the one view to
//! the other, on planes or on packed channels, without the pixels of four bytes that other plans need.

use super::scratch::room;
use super::strides::{Form, Strides};
use super::view::View;
use super::view_mut::ViewMut;
use crate::error::Result;
use crate::ops::byte_table::ByteTable;
use crate::ops::fill::opaque;
use crate::ops::pad::mirrored;
use crate::ops::turn::Exact;
use crate::ops::values::{PixelValues, PointForm, ValueWork};
use crate::ops::{Op, Reach};
use crate::plan::view::{ImageView, ShownColumns};
use crate::plan::{Epilogue, Last, Plan, Stage, StageWork};
use crate::raster::{Size, luma};
use crate::simd::wide;
use crate::tensor::DType;
use std::borrow::Cow;
use std::ops::Range;
use warpfeed_image::layout::{Rows, SQUARE, mirrored_rows, transposed};
use warpfeed_image::planes::{Element, PixelKind};

/// Writes the result of a plan to `out`, whose size it has. Returns false, and writes nothing, for plans and views that
/// need the back end.
pub(super) fn run(plan: &Plan<'_>, image: View<'_>, out: &mut ViewMut<'_>) -> bool {
    let Some(copy) = Copy::of(plan, &image, out) else { return false };
    let (from, to) = (image.parts(), out.parts());
    let element = image.kind().element;
    let (Some(of), Some(on)) = (Lines::of(&from.1, element), Lines::of(&to.1, element)) else { return false };
    if of.unit != on.unit || (copy.is_turned() && of.unit != 1) {
        return false;
    }
    copy.run(Source { bytes: from.0, lines: of }, Target { bytes: to.0, lines: on });
    if copy.table.is_some() && to.1.is_pixels {
        out.end_pixels();
    }
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
    let ((bytes, form), element) = (image.parts(), image.kind().element);
    let len = form.len() * element.size_bytes();
    let kept = room(between, len)?;
    kept.copy_from_slice(&bytes[..len]);
    let kept = View::of_bytes(kept, element, form);
    Ok(run(plan, kept, out))
}

/// The lines of an image: planes' rows, or rows of packed pixels. Lengths and distances are in bytes.
#[derive(Clone, Copy)]
struct Lines {
    /// The bytes that a line has for each column: those of a value for planes, of all channels for packed pixels.
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
    fn of(form: &Form, element: Element) -> Option<Self> {
        let (channels, Strides { row, column, channel }) = (usize::from(form.channels), form.strides);
        let value = element.size_bytes();
        let row = row * value;
        match (column, channel) {
            (1, plane) => Some(Self { unit: value, planes: channels, plane: plane * value, row }),
            (4, 1) if form.is_pixels => Some(Self { unit: 4, planes: 1, plane: 0, row }),
            (pixel, 1) if pixel == channels => Some(Self { unit: pixel * value, planes: 1, plane: 0, row }),
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

    /// Fills columns of a row with a pixel, which has the bytes of all channels.
    fn fill(&mut self, row: usize, columns: Range<usize>, pixel: &[u8]) {
        let unit = self.lines.unit;
        if columns.is_empty() {
            return;
        }
        for plane in 0..self.lines.planes {
            let line = self.line(plane, row, columns.clone());
            let value = &pixel[plane * unit..][..unit];
            if value.iter().all(|byte| *byte == value[0]) {
                line.fill(value[0]);
            } else {
                line[..unit].copy_from_slice(value);
                // Each turn copies the part that is filled, and so doubles it.
                let mut done = unit;
                while done < line.len() {
                    let more = done.min(line.len() - done);
                    line.copy_within(..more, done);
                    done += more;
                }
            }
        }
    }
}

/// A plan that only copies pixels and looks bytes up.
struct Copy<'p> {
    places: Places<'p>,
    /// Table for the bytes of the image. Colors have been through it already.
    table: Option<&'p ByteTable>,
    outside: Outside,
}

/// The places that pixels are copied from.
enum Places<'p> {
    /// The places that a view shows, which has no steps, or shifts alone.
    Seen(Cow<'p, ImageView>),
    /// The columns of an image of this size, and its rows, that the result's columns and rows show.
    Listed { columns: Vec<usize>, rows: Vec<usize>, input: Size },
}

/// The pixels outside the image.
enum Outside {
    /// The colors of the view's steps.
    Colors,
    /// Their gray values.
    Gray,
    /// One pixel, with the bytes of all channels.
    Pixel(Vec<u8>),
}

impl Outside {
    /// Fills columns of a row. `color` is that of a view's step.
    fn fill(&self, color: [u8; 3], to: &mut Target<'_>, row: usize, columns: Range<usize>) {
        match self {
            // No other lines with colors have units of four bytes.
            Self::Colors if to.lines.unit == 4 => to.fill(row, columns, &opaque(color)),
            Self::Colors => to.fill(row, columns, &color),
            Self::Gray => to.fill(row, columns, &[luma(opaque(color))]),
            Self::Pixel(pixel) => to.fill(row, columns, pixel),
        }
    }
}

impl<'p> Copy<'p> {
    /// `None` if the plan has other stages, or if values change their type or their channels.
    fn of(plan: &'p Plan<'_>, image: &View<'_>, out: &ViewMut<'_>) -> Option<Self> {
        let kind = image.kind();
        let stays = match kind.element {
            Element::U8 => DType::U8,
            Element::U16 => DType::U16,
            Element::F32 => DType::F32,
        };
        let same = out.dtype() == stays && out.channels() == usize::from(kind.channels);
        if !same || plan.epilogue != Epilogue::default() {
            return None;
        }
        let copy = if plan.values.is_some() { Self::of_values(plan, kind) } else { Self::of_colors(plan, kind) };
        copy.filter(|copy| match &copy.places {
            Places::Seen(view) if view.exact.xx == 0 => view.steps.is_empty(),
            Places::Seen(view) => view.is_shifted(),
            Places::Listed { .. } => true,
        })
    }

    /// The copy of a plan for gray or RGB bytes.
    fn of_colors(plan: &'p Plan<'_>, kind: PixelKind) -> Option<Self> {
        let (mut stages, mut outside) = (&plan.stages[..], Outside::Colors);
        // Of gray images a conversion to gray changes the colors of fills alone.
        if kind.channels == 1
            && let [before @ .., Stage { work: StageWork::Pass(Op::Grayscale(_), _), .. }] = stages
            && plan.last == Last::Plain
        {
            (stages, outside) = (before, Outside::Gray);
        }
        let (view, table) = match (stages, &plan.last) {
            ([], Last::Plain) => (Cow::Owned(ImageView::plain(plan.size)), None),
            ([], Last::View(view)) => (Cow::Borrowed(view), view.table.as_deref()),
            ([Stage { view, work: StageWork::Gather, .. }], Last::Plain) => {
                (Cow::Borrowed(view), view.table.as_deref())
            }
            ([Stage { view, work: StageWork::Table(table), .. }], Last::Plain) if view.table.is_none() => {
                (Cow::Borrowed(view), Some(table.as_ref()))
            }
            ([Stage { view, work: StageWork::Pass(op, Reach::Whole), size, .. }], Last::Plain)
                if matches!(op, Op::Pad(_) | Op::Crop(_) | Op::CenterCrop(_)) =>
            {
                // What it copies from beyond the edge is the same for all kinds of values.
                let work = op.on_values(&PixelValues::RGB8, view.size, *size, plan.order)?;
                return Some(Self { places: Places::listed(&work, view.size, *size)?, table: None, outside });
            }
            _ => return None,
        };
        Some(Self { places: Places::Seen(view), table, outside })
    }

    /// The copy of a plan with at most one stage for images of other kinds.
    fn of_values(plan: &'p Plan<'_>, kind: PixelKind) -> Option<Self> {
        let mut view = ImageView::plain(plan.size);
        let (mut table, mut outside) = (None, Outside::Colors);
        match &plan.stages[..] {
            [] => {}
            [Stage { view: before, work: StageWork::Values(work), size, .. }] => {
                view = ImageView::plain(before.size);
                match work {
                    ValueWork::Turn(turn) => view.turn(*turn),
                    ValueWork::Crop { x, y, fill: Some(fill) } => {
                        let number = |channel| number(kind.element, fill.of(channel));
                        outside = Outside::Pixel((0..usize::from(kind.channels)).flat_map(number).collect());
                        if !view.crop(*x, *y, *size, [0; 3]) {
                            return None;
                        }
                    }
                    ValueWork::Points(PointForm::Bytes(bytes)) => table = Some(bytes.as_ref()),
                    _ => {
                        let places = Places::listed(work, before.size, *size)?;
                        return Some(Self { places, table, outside });
                    }
                }
            }
            _ => return None,
        }
        Some(Self { places: Places::Seen(Cow::Owned(view)), table, outside })
    }

    fn is_turned(&self) -> bool {
        matches!(&self.places, Places::Seen(view) if view.exact.xx == 0)
    }

    fn run(&self, from: Source<'_>, to: Target<'_>) {
        match &self.places {
            Places::Listed { columns, rows, input } => listed(from, to, columns, rows, *input),
            Places::Seen(view) if view.exact.xx == 0 => turned(view, self.table, from, to),
            Places::Seen(view) => seen(view, self.table, &self.outside, from, to),
        }
    }
}

/// The bytes of a number as a value.
fn number(element: Element, number: f32) -> Vec<u8> {
    match element {
        Element::U8 => vec![number as u8],
        Element::U16 => (number as u16).to_ne_bytes().into(),
        Element::F32 => number.to_ne_bytes().into(),
    }
}

impl Places<'_> {
    /// The places of work that repeats pixels of the image beyond its edge.
    fn listed(work: &ValueWork, input: Size, size: Size) -> Option<Self> {
        let edge = |start: i32, len: u32, shown: u32| {
            let at = |place: u32| (i64::from(start) + i64::from(place)).clamp(0, i64::from(len) - 1) as usize;
            (0..shown).map(at).collect::<Vec<_>>()
        };
        let (columns, rows) = match *work {
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
    match table {
        Some(table) => table.apply_to(from, to),
        None => to.copy_from_slice(from),
    }
}

/// Copies `count` rows of `len` bytes from right to left, by units. The places in `from` and `to` are those of `of` and `on`.
fn mirrored_lines(unit: usize, (from, of): (&[u8], Rows), (to, on): (&mut [u8], Rows), len: usize, count: usize) {
    #[inline(always)]
    fn reverse<const N: usize>(from: &[u8], to: &mut [u8]) {
        let units = from.as_chunks::<N>().0.iter().rev();
        to.as_chunks_mut::<N>().0.iter_mut().zip(units).for_each(|(to, from)| *to = *from);
    }
    let mut each = |copy: &dyn Fn(&[u8], &mut [u8])| {
        for i in 0..count {
            copy(&from[of.row(i, len)], &mut to[on.row(i, len)]);
        }
    };
    match unit {
        1 => mirrored_rows::<1>(from, of, to, on, len, count),
        2 => each(&|from, to| {
            wide(
                #[inline(always)]
                || reverse::<2>(from, to),
            );
        }),
        3 => mirrored_rows::<3>(from, of, to, on, len, count),
        4 => mirrored_rows::<4>(from, of, to, on, len, count),
        _ => each(&|from, to| {
            let units = from.chunks_exact(unit).rev();
            to.chunks_exact_mut(unit).zip(units).for_each(|(to, from)| to.copy_from_slice(from));
        }),
    }
}

/// Copies a view whose rows are rows of the image.
fn seen(view: &ImageView, table: Option<&ByteTable>, outside: &Outside, from: Source<'_>, mut to: Target<'_>) {
    let (width, height) = (view.size.width as usize, view.size.height as usize);
    let Lines { unit, planes, .. } = to.lines;
    if view.steps.is_empty() {
        return whole(view, table, from, to);
    }
    // Where rows follow each other, what lies between two parts of the image is filled at once.
    let joined = view.steps.len() == 1 && to.lines.row == unit * width;
    let mut filled = 0;
    for y in 0..height {
        let fill = |columns: Range<usize>, color: [u8; 3]| {
            if !joined {
                outside.fill(color, &mut to, y, columns);
            }
        };
        let Some(ShownColumns { columns, y: before, map }) = view.shown(y as u32, 0, width, fill) else { continue };
        if joined {
            let start = y * width + columns.start;
            outside.fill(view.steps[0].fill, &mut to, 0, filled..start);
            filled = start + columns.len();
        }
        let row = (map.yy * before + map.y0) as usize;
        let first = (map.xx * columns.start as i32 + map.x0) as usize;
        let len = columns.len();
        for plane in 0..planes {
            let line = to.line(plane, y, columns.clone());
            if map.xx > 0 {
                copied(from.line(plane, row, first..first + len), line, table);
                continue;
            }
            let one = Rows { first: 0, step: 0 };
            mirrored_lines(unit, (from.line(plane, row, first + 1 - len..first + 1), one), (line, one), unit * len, 1);
            if let Some(table) = table {
                table.apply(line);
            }
        }
    }
    if joined {
        outside.fill(view.steps[0].fill, &mut to, 0, filled..width * height);
    }
}

/// Copies a view without steps: a part of the image, which may be mirrored.
fn whole(view: &ImageView, table: Option<&ByteTable>, from: Source<'_>, to: Target<'_>) {
    let (width, height) = (view.size.width as usize, view.size.height as usize);
    let Lines { unit, planes, .. } = to.lines;
    let (len, Exact { xx, x0, yy, y0, .. }) = (unit * width, view.exact);
    let (first, is_mirrored) = (if xx > 0 { x0 } else { x0 + 1 - width as i32 }, xx < 0);
    let (is_gapless, top) =
        (from.lines.row == len && to.lines.row == len, if yy > 0 { y0 } else { y0 + 1 - height as i32 });
    for plane in 0..planes {
        let part = from.lines.place(plane, top as usize, first as usize..first as usize + width).start;
        let source = &from.bytes[part..][..from.lines.row * (height - 1) + len];
        let target = &mut to.bytes[plane * to.lines.plane..][..to.lines.row * (height - 1) + len];
        if is_gapless && !is_mirrored && yy > 0 {
            copied(source, target, table);
            continue;
        }
        let step = from.lines.row as isize;
        let of = if yy > 0 { Rows { first: 0, step } } else { Rows { first: source.len() - len, step: -step } };
        let on = Rows { first: 0, step: to.lines.row as isize };
        if !is_mirrored {
            for y in 0..height {
                copied(&source[of.row(y, len)], &mut target[on.row(y, len)], table);
            }
            continue;
        }
        mirrored_lines(unit, (source, of), (target, on), len, height);
        match table {
            Some(table) if to.lines.row == len => table.apply(target),
            Some(table) => (0..height).for_each(|y| table.apply(&mut target[on.row(y, len)])),
            None => {}
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
                let source = |column: usize| &source[unit * columns[column]..][..unit];
                others.for_each(|column| line[unit * column..][..unit].copy_from_slice(source(column)));
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
    use super::super::run::{end_gray, load, to_gapless};
    use super::super::scratch::Scratch;
    use super::*;
    use crate::backend::{PixelForm, TablesOf};
    use crate::ops::fill::Fill;
    use crate::ops::filter::PassOrder;
    use crate::ops::{
        Brightness, CenterCrop, Crop, Gamma, Grayscale, Hflip, Interpolation, Invert, Pad, PadMode, Posterize, Rotate,
        Solarize, Vflip,
    };
    use crate::plan::{Planner, Strategy};
    use crate::raster::Image;
    use crate::rng::SampleRng;
    use crate::tensor::{Element as TensorElement, Layout};
    use warpfeed_image::planes::Value;

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

    fn view<T: Value>(values: &[T], size: Size, channels: usize, layout: Layout, strides: [i64; 3]) -> View<'_> {
        let made = match layout {
            Layout::Nhwc => View::hwc(values, size, channels),
            Layout::Nchw => View::chw(values, size, channels),
        };
        made.and_then(|view| view.strides(strides)).unwrap()
    }

    fn view_mut<T: TensorElement>(
        values: &mut [T],
        size: Size,
        channels: usize,
        layout: Layout,
        strides: [i64; 3],
    ) -> ViewMut<'_> {
        let made = match layout {
            Layout::Nhwc => ViewMut::hwc(values, size, channels),
            Layout::Nchw => ViewMut::chw(values, size, channels),
        };
        made.and_then(|view| view.strides(strides)).unwrap()
    }

    /// The result of the back end, without gaps.
    fn by_back_end<T: TensorElement>(plan: &Plan<'_>, image: View<'_>, layout: Layout) -> Vec<T> {
        let (mut scratch, tables) = (Scratch::default(), TablesOf::new(None));
        load(&mut scratch, plan, image).unwrap();
        let elements = PixelForm { dtype: T::DTYPE, layout, channels: usize::from(image.kind().channels) };
        to_gapless(&mut scratch, plan, image.values(), &tables, elements).unwrap();
        let bytes: &[u8] = bytemuck::cast_slice(&scratch.between);
        bytemuck::cast_slice(&bytes[..elements.image_bytes(plan.size)]).to_vec()
    }

    /// The elements of a view in the order of its layout.
    fn gapless<T: Value>(view: &View<'_>, layout: Layout) -> Vec<T> {
        let (bytes, form) = view.parts();
        let (width, height, channels) = (form.size.width, form.size.height, usize::from(form.channels));
        let values: &[T] = bytemuck::cast_slice(bytes);
        let at = |x: u32, y: u32, channel| values[form.place(x as usize, y as usize, channel)];
        let mut all = Vec::new();
        match layout {
            Layout::Nhwc => (0..height)
                .for_each(|y| (0..width).for_each(|x| all.extend((0..channels).map(|channel| at(x, y, channel))))),
            Layout::Nchw => (0..channels)
                .for_each(|channel| (0..height).for_each(|y| all.extend((0..width).map(|x| at(x, y, channel))))),
        }
        all
    }

    /// An image and its way to the result.
    struct Case {
        size: Size,
        channels: usize,
        layout: Layout,
        /// Whether there are gaps after the rows of the image, and of the result.
        gaps: [bool; 2],
    }

    /// Compares the result of a plan with the back end's. Returns whether a result was made at all, and in place.
    fn check<T: Value + TensorElement>(
        case: &Case,
        plan: &Plan<'_>,
        ops: &[Op],
        bytes: &mut dyn FnMut() -> u8,
        none: T,
    ) -> [bool; 2] {
        let &Case { size, channels, layout, gaps } = case;
        let what = || format!("{size} {channels} {layout:?} {gaps:?} {ops:?}");
        let (len, strides) = strided(size, channels, layout, gaps[0]);
        let mut values: Vec<T> = vec![none; len];
        bytemuck::cast_slice_mut::<T, u8>(&mut values).iter_mut().for_each(|byte| *byte = bytes());
        let image = view(&values, size, channels, layout, strides);
        let same = |got: &[T], want: &[T]| bytemuck::cast_slice::<T, u8>(got) == bytemuck::cast_slice::<T, u8>(want);
        let want: Vec<T> = by_back_end(plan, image, layout);

        let (len, to) = strided(plan.size, channels, layout, gaps[1]);
        let mut made = vec![none; len];
        let done = run(plan, image, &mut view_mut(&mut made, plan.size, channels, layout, to));
        if done {
            let got: Vec<T> = gapless(&view(&made, plan.size, channels, layout, to), layout);
            assert!(same(&got, &want), "{}", what());
            let untouched = made.iter().filter(|value| same(&[**value], &[none])).count();
            assert!(untouched >= len - want.len(), "gaps were written: {}", what());
        } else {
            assert!(made.iter().all(|value| same(&[*value], &[none])), "{}", what());
        }
        let mut again = values.clone();
        let in_place = plan.size == size && {
            let mut out = view_mut(&mut again, size, channels, layout, strides);
            run_in_place(plan, &mut Vec::new(), &mut out).unwrap()
        };
        if in_place {
            let got: Vec<T> = gapless(&view(&again, size, channels, layout, strides), layout);
            assert!(same(&got, &want), "in place: {}", what());
        }
        [done, in_place]
    }

    fn case(rng: &mut SampleRng, number: usize, channels: usize) -> Case {
        let longest = if number.is_multiple_of(10) { 300 } else { 40 };
        let size = Size::new(1 + rng.below(longest) as u32, 1 + rng.below(longest) as u32);
        let layout = if rng.chance(0.5) { Layout::Nhwc } else { Layout::Nchw };
        Case { size, channels, layout, gaps: [rng.chance(0.3), rng.chance(0.3)] }
    }

    #[test]
    fn bytes_are_those_of_pixels() {
        const CASES: usize = 6000;
        let mut rng = SampleRng::for_sample(7, 0, 0);
        let mut counts = [0; 2];
        for number in 0..CASES {
            let channels = if rng.chance(0.3) { 1 } else { 3 };
            let case = case(&mut rng, number, channels);
            let (size, single, grays) = (case.size, rng.chance(0.5), number % 50 == 0);
            let mut ops: Vec<Op> = (0..if single { 1 } else { 3 }).map(|_| drawn(&mut rng, size)).collect();
            if grays {
                ops.push(Grayscale.into());
            }
            // Without the end that `Op::apply_to` gives gray images, a fill's first channel is the result's.
            if channels == 1 && number % 20 != 0 {
                end_gray(&mut ops);
            }
            let strategy = if rng.chance(0.2) { Strategy::Sequential } else { Strategy::Fused };
            let planner = Planner { strategy, order: PassOrder::default(), max_px: 1 << 24, values: None };
            let plan = planner.plan_one(&ops, size).unwrap();
            let made = check::<u8>(&case, &plan, &ops, &mut || rng.below(256) as u8, 99);
            // A single operation needs no pixels of four bytes, unless it turns triples.
            let turns = case.layout == Layout::Nhwc && channels == 3 && matches!(&ops[0], Op::Rotate(_));
            assert!(made[0] || !single || grays || turns || strategy == Strategy::Sequential, "{size} {ops:?}");
            counts = [0, 1].map(|i| counts[i] + usize::from(made[i]));
        }
        assert!(counts[0] > CASES / 2 && counts[1] > CASES / 8, "{counts:?} of {CASES}");
    }

    #[test]
    fn values_of_other_kinds_are_those_of_planes() {
        const CASES: usize = 3000;
        let mut rng = SampleRng::for_sample(8, 0, 0);
        let mut counts = [0; 2];
        for number in 0..CASES {
            let element = [Element::U8, Element::U16, Element::F32][rng.below(3) as usize];
            let channels = [2, 4, 5, 13][rng.below(4) as usize];
            let case = case(&mut rng, number, channels);
            let values = PixelValues::of(PixelKind { element, channels: channels as u16 });
            let planner = Planner {
                strategy: Strategy::Fused,
                order: PassOrder::default(),
                max_px: 1 << 24,
                values: Some(values),
            };
            let ops = [drawn(&mut rng, case.size)];
            // A fill of three numbers, and tables of floats.
            let Ok(plan) = planner.plan_one(&ops, case.size) else { continue };
            let mut byte = || rng.below(256) as u8;
            let made = match element {
                Element::U8 => check::<u8>(&case, &plan, &ops, &mut byte, 99),
                Element::U16 => check::<u16>(&case, &plan, &ops, &mut byte, 9999),
                Element::F32 => check::<f32>(&case, &plan, &ops, &mut byte, 0.123),
            };
            counts = [0, 1].map(|i| counts[i] + usize::from(made[i]));
        }
        assert!(counts[0] > CASES / 3 && counts[1] > CASES / 8, "{counts:?} of {CASES}");
    }

    #[test]
    fn pixels_of_four_bytes_are_those_of_images() {
        let mut rng = SampleRng::for_sample(9, 0, 0);
        for number in 0..600 {
            let size = case(&mut rng, number, 3).size;
            let pixels = (0..size.area_px()).map(|_| [0; 3].map(|_| rng.below(256) as u8)).collect::<Vec<_>>();
            let image = Image::from_rgb(size, pixels.as_flattened()).unwrap();
            let op = match number % 3 {
                0 => Rotate::new(30.0).interpolation(Interpolation::Bilinear).into(),
                _ => drawn(&mut rng, size),
            };
            let want = op.apply(&image).unwrap();
            // One pixel more than there is room for shows writes beyond the end.
            let after = want.size();
            let mut made = vec![[7; 4]; after.area_px() as usize + 1];
            let len = made.len() - 1;
            let out = ViewMut::pixels(&mut made[..len], after).unwrap();
            op.apply_to(View::pixels(image.pixels(), size).unwrap(), out).unwrap();
            assert_eq!(made[len], [7; 4], "{op:?}");
            let rgb = |pixels: &[[u8; 4]]| pixels.iter().flat_map(|&[r, g, b, _]| [r, g, b]).collect::<Vec<u8>>();
            assert!(rgb(&made[..len]) == want.to_rgb(), "{size} {op:?}");
            assert!(made[..len].iter().all(|pixel| pixel[3] == 255), "{size} {op:?}");
            if after == size {
                let mut again = image.pixels().to_vec();
                op.apply_in_place(ViewMut::pixels(&mut again, size).unwrap()).unwrap();
                assert!(again == made[..len], "in place: {size} {op:?}");
            }
        }
    }
}
