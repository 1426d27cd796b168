//! Separable, antialiased resizing of planes. Each weight times a value is added by itself, from left to right and from
//! top to bottom, in the type of the reference; between the passes values are stored in their own type.

use super::number::Number;
use crate::error::Result;
use crate::ops::filter::{Interpolation, Taps};
use crate::ops::resize::Resampling;
use crate::raster::{Rect, Size};
use crate::simd::widest;
use warpfeed_image::planes::Planes;

/// Rows that are resized together, as lanes of vectors.
const LANES: usize = 8;
/// Values of a row that are made together by the vertical pass.
const STEP: usize = 16;

/// Makes the rectangle `part` of a resize of `window`, to an image of size `size`. `input` holds what is read.
pub(super) fn resample<T: Number>(
    input: &Planes,
    window: Rect,
    resampling: &Resampling,
    (size, part): (Size, Rect),
    between: &mut Planes,
    out: &mut Planes,
) -> Result<()> {
    let &Resampling { columns: across, rows: down, interpolation, vertical_first } = resampling;
    let held = input.part();
    // First pixels of the window that are held.
    let (left, top) = (held.x - window.x, held.y - window.y);
    let (mut columns, mut rows) = (Taps::<T::Weight>::default(), Taps::<T::Weight>::default());
    columns.compute(across, part.x..part.right(), pass_filter(across.is_identity(), interpolation));
    rows.compute(down, part.y..part.bottom(), pass_filter(down.is_identity(), interpolation));
    columns.starts.iter_mut().for_each(|start| *start -= left);
    rows.starts.iter_mut().for_each(|start| *start -= top);
    out.reset_part(input.kind(), size, part)?;
    let place = |width: u32, height: u32| Size::new(width, height);
    if interpolation == Interpolation::Nearest {
        nearest::<T>(input, &columns, &rows, out);
        return Ok(());
    }
    match (across.is_identity(), down.is_identity()) {
        // A window alone.
        (true, true) => nearest::<T>(input, &columns, &rows, out),
        (false, true) => horizontal::<T>(input, &columns, rows.starts[0], out),
        (true, false) => vertical::<T>(input, &rows, columns.starts[0], out),
        (false, false) if vertical_first => {
            let whole = place(held.width, part.height);
            between.reset_part(input.kind(), whole, Rect::full(whole))?;
            vertical::<T>(input, &rows, 0, between);
            horizontal::<T>(between, &columns, 0, out);
        }
        (false, false) => {
            let whole = place(part.width, held.height);
            between.reset_part(input.kind(), whole, Rect::full(whole))?;
            horizontal::<T>(input, &columns, 0, between);
            vertical::<T>(between, &rows, 0, out);
        }
    }
    Ok(())
}

/// An axis that keeps its size has no pass: each pixel is its own.
fn pass_filter(keeps: bool, interpolation: Interpolation) -> Interpolation {
    if keeps { Interpolation::Nearest } else { interpolation }
}

/// Copies the first pixel of each column and row.
fn nearest<T: Number>(input: &Planes, columns: &Taps<T::Weight>, rows: &Taps<T::Weight>, out: &mut Planes) {
    let (stride, width) = (input.size().width as usize, out.size().width as usize);
    for channel in 0..usize::from(input.kind().channels) {
        let from = input.plane::<T>(channel);
        let to = out.plane_mut::<T>(channel);
        for (to, y) in to.chunks_exact_mut(width).zip(&rows.starts) {
            let row = &from[*y as usize * stride..][..stride];
            to.iter_mut().zip(&columns.starts).for_each(|(to, x)| *to = row[*x as usize]);
        }
    }
}

/// Resizes rows, as many as `out` has, from row `first` on.
fn horizontal<T: Number>(input: &Planes, columns: &Taps<T::Weight>, first: u32, out: &mut Planes) {
    let (stride, from_rows) = (input.size().width as usize, input.size().height as usize);
    let (width, height) = (out.size().width as usize, out.size().height as usize);
    let (from, lines) = (input.values::<T>(), height * usize::from(input.kind().channels));
    // The columns that are read.
    let end = (0..columns.len()).map(|i| columns.of(i)).map(|(start, weights)| start + weights.len()).max();
    let (start, end) = (columns.starts.iter().min().map_or(0, |start| *start as usize), end.unwrap_or(0));
    let line = |i: usize| {
        let (channel, y) = (i / height, i % height + first as usize);
        &from[(channel * from_rows + y) * stride..][start..end]
    };
    let mut lanes = vec![[T::Wide::default(); LANES]; end - start];
    let to = out.values_mut::<T>();
    for block in (0..lines).step_by(LANES) {
        // A last block of fewer lines makes the last one again.
        let rows: [&[T]; LANES] = std::array::from_fn(|lane| line((block + lane).min(lines - 1)));
        let count = LANES.min(lines - block);
        let to = &mut to[block * width..][..count * width];
        widest(
            #[inline(always)]
            || {
                turned(&rows, &mut lanes);
                horizontal_rows::<T>(&lanes, columns, start, width, to);
            },
        );
    }
}

/// Puts the values of rows at one place next to each other.
#[inline(always)]
fn turned<T: Number>(rows: &[&[T]; LANES], lanes: &mut [[T::Wide; LANES]]) {
    let (blocks, rest) = lanes.as_chunks_mut::<LANES>();
    let mut at = 0;
    for block in blocks {
        let mut values = [[T::default(); LANES]; LANES];
        for lane in 0..LANES {
            let Some(row) = rows[lane][at..].first_chunk::<LANES>() else { return };
            values[lane] = *row;
        }
        for x in 0..LANES {
            for lane in 0..LANES {
                block[x][lane] = values[lane][x].wide();
            }
        }
        at += LANES;
    }
    for (x, lanes) in (at..).zip(rest) {
        for lane in 0..LANES {
            lanes[lane] = rows[lane][x].wide();
        }
    }
}

/// Resizes rows whose values at one place are next to each other, as many as `to` has.
#[inline(always)]
fn horizontal_rows<T: Number>(
    lanes: &[[T::Wide; LANES]],
    columns: &Taps<T::Weight>,
    start: usize,
    width: usize,
    to: &mut [T],
) {
    let count = to.len() / width;
    for first_x in (0..width).step_by(LANES) {
        let wide = LANES.min(width - first_x);
        let mut made = [[T::default(); LANES]; LANES];
        for x in 0..wide {
            let (first, weights) = columns.of(first_x + x);
            let mut sums = [T::START; LANES];
            for (values, weight) in lanes[first - start..][..weights.len()].iter().zip(weights) {
                for lane in 0..LANES {
                    sums[lane] = T::add(sums[lane], values[lane], *weight);
                }
            }
            for (row, sum) in made.iter_mut().zip(sums) {
                row[x] = T::of_sum(sum);
            }
        }
        for lane in 0..count {
            to[lane * width + first_x..][..wide].copy_from_slice(&made[lane][..wide]);
        }
    }
}

/// Resizes columns, as many as `out` has, from column `first` on.
fn vertical<T: Number>(input: &Planes, rows: &Taps<T::Weight>, first: u32, out: &mut Planes) {
    let stride = input.size().width as usize;
    let (width, first) = (out.size().width as usize, first as usize);
    for channel in 0..usize::from(input.kind().channels) {
        let from = input.plane::<T>(channel);
        for (y, to) in out.plane_mut::<T>(channel).chunks_exact_mut(width).enumerate() {
            let (start, weights) = rows.of(y);
            let row = |tap: usize| &from[(start + tap) * stride + first..][..width];
            widest(
                #[inline(always)]
                || vertical_row::<T>(row, weights, to),
            );
        }
    }
}

#[inline(always)]
fn vertical_row<'a, T: Number>(row: impl Fn(usize) -> &'a [T], weights: &[T::Weight], to: &mut [T]) {
    let (steps, rest) = to.as_chunks_mut::<STEP>();
    let mut at = 0;
    for step in steps {
        let mut sums = [T::START; STEP];
        for (tap, weight) in weights.iter().enumerate() {
            let Some(values) = row(tap)[at..].first_chunk::<STEP>() else { return };
            for lane in 0..STEP {
                sums[lane] = T::add(sums[lane], values[lane].wide(), *weight);
            }
        }
        for lane in 0..STEP {
            step[lane] = T::of_sum(sums[lane]);
        }
        at += STEP;
    }
    for to in rest {
        let taps = weights.iter().enumerate();
        *to = T::of_sum(taps.fold(T::START, |sum, (tap, weight)| T::add(sum, row(tap)[at].wide(), *weight)));
        at += 1;
    }
}
