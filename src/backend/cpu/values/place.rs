//! Copies of planes: crops, padding, mirrors and turns, and overwritten rectangles.

use super::number::Number;
use crate::ops::noise;
use crate::ops::turn::Turn;
use crate::ops::values::common;
use crate::ops::{ChannelNumbers, Overwrite};
use crate::raster::Rect;
use warpfeed_image::planes::Planes;

/// Side of the squares in which planes are transposed.
const TILE: usize = 16;

/// Copies a part of the rectangle at (`x`, `y`) to `out`. Outside the image it has the fill numbers, or the edge.
pub(super) fn crop<T: Number>(input: &Planes, x: i32, y: i32, fill: Option<ChannelNumbers>, out: &mut Planes) {
    let (whole, held, part) = (input.whole(), input.part(), out.part());
    // The rectangle's first column and row in the image.
    let (left, top) = (i64::from(part.x) + i64::from(x), i64::from(part.y) + i64::from(y));
    let (width, stride) = (part.width as usize, held.width as usize);
    // Each row has `before` values from outside, then `inside` values from column `start` on, then others from outside.
    let before = (-left).clamp(0, i64::from(part.width)) as usize;
    let start = left.clamp(0, i64::from(whole.width));
    let inside = (left + i64::from(part.width)).clamp(0, i64::from(whole.width)) - start;
    let (inside, start) = (inside.max(0) as usize, (start - i64::from(held.x)).clamp(0, stride as i64) as usize);
    for channel in 0..usize::from(input.kind().channels) {
        let from = input.plane::<T>(channel);
        let color = fill.map(|fill| T::of_number(fill.of(channel)));
        for (row, to) in (top..).zip(out.plane_mut::<T>(channel).chunks_exact_mut(width)) {
            let source = match color {
                Some(color) if row < 0 || row >= i64::from(whole.height) => {
                    to.fill(color);
                    continue;
                }
                _ => row.clamp(0, i64::from(whole.height) - 1) - i64::from(held.y),
            };
            let source = &from[source.clamp(0, i64::from(held.height) - 1) as usize * stride..][..stride];
            to[before..before + inside].copy_from_slice(&source[start..start + inside]);
            to[..before].fill(color.unwrap_or(source[0]));
            to[before + inside..].fill(color.unwrap_or(source[stride - 1]));
        }
    }
}

/// Copies the columns and rows with these indices of a complete image.
pub(super) fn gather<T: Number>(input: &Planes, columns: &[usize], rows: &[usize], out: &mut Planes) {
    let stride = input.size().width as usize;
    for channel in 0..usize::from(input.kind().channels) {
        let from = input.plane::<T>(channel);
        for (to, y) in out.plane_mut::<T>(channel).chunks_exact_mut(columns.len()).zip(rows) {
            let row = &from[y * stride..][..stride];
            to.iter_mut().zip(columns).for_each(|(to, x)| *to = row[*x]);
        }
    }
}

/// Mirrors or turns. `input` holds what `out` shows.
pub(super) fn turn<T: Number>(input: &Planes, turn: Turn, out: &mut Planes) {
    let (width, height) = (input.size().width as usize, input.size().height as usize);
    for channel in 0..usize::from(input.kind().channels) {
        let from = input.plane::<T>(channel);
        let to = out.plane_mut::<T>(channel);
        match turn {
            Turn::Hflip => {
                for (to, from) in to.chunks_exact_mut(width).zip(from.chunks_exact(width)) {
                    to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from);
                }
            }
            Turn::Vflip => {
                let rows = from.chunks_exact(width).rev();
                to.chunks_exact_mut(width).zip(rows).for_each(|(to, from)| to.copy_from_slice(from));
            }
            Turn::Half => to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from),
            Turn::Quarter => transposed(from, (width, height), to, |x| width - 1 - x, |y| y),
            Turn::ThreeQuarters => transposed(from, (width, height), to, |x| x, |y| height - 1 - y),
        }
    }
}

/// Writes the value at (x, y) to column `column(y)` of row `row(x)`.
fn transposed<T: Number>(
    from: &[T],
    (width, height): (usize, usize),
    to: &mut [T],
    row: impl Fn(usize) -> usize,
    column: impl Fn(usize) -> usize,
) {
    for top in (0..height).step_by(TILE) {
        for left in (0..width).step_by(TILE) {
            for x in left..(left + TILE).min(width) {
                let line = &mut to[row(x) * height..][..height];
                (top..(top + TILE).min(height)).for_each(|y| line[column(y)] = from[y * width + x]);
            }
        }
    }
}

/// Takes planes in this order.
pub(super) fn select<T: Number>(input: &Planes, channels: &[u8], out: &mut Planes) {
    for (to, channel) in channels.iter().enumerate() {
        out.plane_mut::<T>(to).copy_from_slice(input.plane::<T>(usize::from(*channel)));
    }
}

/// Overwrites the part of a rectangle that is held.
pub(super) fn erase<T: Number>(planes: &mut Planes, of: &Overwrite) {
    let part = planes.part();
    let Some(Rect { x, y, width, height }) = common(of.rect, part) else { return };
    for channel in 0..usize::from(planes.kind().channels) {
        let value = of.values.of(channel);
        for row in y..y + height {
            let start = ((row - part.y) * part.width + x - part.x) as usize;
            let to = &mut planes.plane_mut::<T>(channel)[start..][..width as usize];
            if of.std == 0.0 {
                to.fill(T::overwriting(value, false));
            } else {
                let each = |i: usize, deviate| to[i] = T::overwriting(value + of.std * deviate, true);
                noise::channel_row(of.key, (x, row), channel, width, each);
            }
        }
    }
}
