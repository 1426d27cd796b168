//! Sampling of planes through maps, as Pillow does it: the points of a row are computed once for all channels.

use super::number::Number;
use crate::ops::affine_warp::{AffineWarp, inside};
use crate::ops::rotation::fixed_point;
use crate::ops::values::Projective;
use crate::ops::{ChannelNumbers, Interpolation};
use crate::raster::{Rect, Size};
use std::ops::Range;
use warpfeed_image::planes::Planes;

/// The pixels around a point: their columns, and the first pixels of their rows, in what is held.
#[derive(Debug, Clone, Copy)]
struct Around {
    columns: [u32; 4],
    rows: [u32; 4],
    dx: f64,
    dy: f64,
}

/// Memory for the points of a row.
#[derive(Debug, Default)]
pub(super) struct Points {
    around: Vec<Option<Around>>,
    nearest: Vec<Option<u32>>,
}

/// Samples through an affine map: makes the rectangle that `out` holds of a canvas of size `canvas`.
pub(super) fn affine<T: Number>(
    input: &Planes,
    warp: &AffineWarp,
    canvas: Size,
    points: &mut Points,
    out: &mut Planes,
) {
    let (m, fill) = (warp.matrix, warp.fill.values());
    if warp.interpolation == Interpolation::Nearest {
        return nearest::<T>(input, m, canvas, fill, points, out);
    }
    let rounding = if fill.is_none() { T::EDGE_ROUNDING } else { 0.0 };
    let point = |x: f64, y: f64| Some([m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]]);
    sample::<T>(input, point, warp.interpolation, (fill, rounding), points, out);
}

/// Samples through a projective map, in doubles.
pub(super) fn perspective<T: Number>(input: &Planes, of: &Projective, points: &mut Points, out: &mut Planes) {
    let [a, b, c, d, e, f, g, h] = of.map;
    let point = |x: f64, y: f64| {
        let divisor = g * x + h * y + 1.0;
        Some([(a * x + b * y + c) / divisor, (d * x + e * y + f) / divisor])
    };
    sample::<T>(input, point, of.interpolation, (Some(of.fill), 0.0), points, out);
}

/// Samples at the points of pixel centers. With the edge as fill, nothing is outside.
fn sample<T: Number>(
    input: &Planes,
    point: impl Fn(f64, f64) -> Option<[f64; 2]>,
    interpolation: Interpolation,
    (fill, rounding): (Option<ChannelNumbers>, f64),
    Points { around, .. }: &mut Points,
    out: &mut Planes,
) {
    let (whole, held, part) = (input.whole(), input.part(), out.part());
    let (width, height) = (f64::from(whole.width), f64::from(whole.height));
    let near = |first: f64, start: u32, len: u32| -> [u32; 4] {
        // Clamping to what is held equals clamping to the whole, because all pixels that are read are held.
        let first = (first as i64).saturating_sub(1);
        std::array::from_fn(|i| (first.saturating_add(i as i64) - i64::from(start)).clamp(0, i64::from(len) - 1) as u32)
    };
    for y in 0..part.height {
        around.clear();
        around.extend((0..part.width).map(|x| {
            let [x, y] = point(f64::from(part.x + x) + 0.5, f64::from(part.y + y) + 0.5)?;
            if fill.is_some() && !(x >= 0.0 && x < width && y >= 0.0 && y < height) {
                return None;
            }
            if interpolation == Interpolation::Nearest {
                let (columns, rows) =
                    (near(x.floor() + 1.0, held.x, held.width), near(y.floor() + 1.0, held.y, held.height));
                return Some(Around { columns, rows: rows.map(|row| row * held.width), dx: 0.0, dy: 0.0 });
            }
            let (x, y) = (x - 0.5, y - 0.5);
            let (left, top) = (x.floor(), y.floor());
            let rows = near(top, held.y, held.height).map(|row| row * held.width);
            Some(Around { columns: near(left, held.x, held.width), rows, dx: x - left, dy: y - top })
        }));
        for channel in 0..usize::from(input.kind().channels) {
            let from = input.plane::<T>(channel);
            let outside = T::of_number(fill.map_or(0.0, |fill| fill.of(channel)));
            let row = &mut out.plane_mut::<T>(channel)[(y * part.width) as usize..][..part.width as usize];
            let at = |row: u32, column: u32| from[(row + column) as usize];
            let value = |around: &Option<Around>| {
                let Some(Around { columns, rows, dx, dy }) = *around else { return outside };
                let value = match interpolation {
                    Interpolation::Nearest => return at(rows[0], columns[0]),
                    Interpolation::Bicubic => {
                        let across = rows.map(|row| cubic_of(columns.map(|column| at(row, column)), dx));
                        cubic(across, dy)
                    }
                    _ => {
                        let [above, below] = [rows[1], rows[2]].map(|row| {
                            let (a, b) = (at(row, columns[1]), at(row, columns[2]));
                            a.to_f64() + b.minus(a) * dx
                        });
                        above + (below - above) * dy
                    }
                };
                T::of_sampled(value + rounding)
            };
            row.iter_mut().zip(&*around).for_each(|(to, around)| *to = value(around));
        }
    }
}

/// The cubic through the middle two of four values, with the slopes of a = -1.
#[inline(always)]
fn cubic_of<T: Number>(values: [T; 4], at: f64) -> f64 {
    let (second, [third, fourth]) = (values[2].minus(values[0]), T::curvature(values));
    values[1].to_f64() + at * (second + at * (third + at * fourth))
}

#[inline(always)]
fn cubic([a, b, c, d]: [f64; 4], at: f64) -> f64 {
    let (second, third, fourth) = (c - a, 2.0 * (a - b) + c - d, b - a - c + d);
    b + at * (second + at * (third + at * fourth))
}

/// The nearest pixels, which are those of 8-bit images: 16.16 fixed point, or sums of doubles where Pillow has them.
fn nearest<T: Number>(
    input: &Planes,
    m: [f64; 6],
    canvas: Size,
    fill: Option<ChannelNumbers>,
    Points { nearest, .. }: &mut Points,
    out: &mut Planes,
) {
    let (whole, held, part) = (input.whole(), input.part(), out.part());
    let fixed = fixed_point(m, canvas).map(|fixed| fixed.map(i64::from));
    let columns = 0..part.width as usize;
    // The index of the pixel at a point, or of the nearest one that is held.
    let index = |x: i64, y: i64| {
        let clamp = |v: i64, start: u32, len: u32| (v - i64::from(start)).clamp(0, i64::from(len) - 1) as u32;
        clamp(y, held.y, held.height) * held.width + clamp(x, held.x, held.width)
    };
    let mut start = [m[2] + m[1] * 0.5 + m[0] * 0.5, m[5] + m[4] * 0.5 + m[3] * 0.5];
    for y in 0..part.bottom() {
        let is_made = y >= part.y;
        nearest.clear();
        match fixed {
            Some([a0, a1, a2, a3, a4, a5]) if is_made => {
                let (column, line) = (i64::from(part.x), i64::from(y));
                let (x, y) = (a2 + a0 * column + a1 * line, a5 + a3 * column + a4 * line);
                let shown: Range<usize> = match fill {
                    Some(_) => {
                        let a = inside::<16>(x, a0, whole.width, columns.len());
                        let b = inside::<16>(y, a3, whole.height, columns.len());
                        a.start.max(b.start)..a.end.min(b.end)
                    }
                    None => columns.clone(),
                };
                let at = |i: usize| {
                    let i = i as i64;
                    index((x + a0 * i) >> 16, (y + a3 * i) >> 16)
                };
                nearest.extend(columns.clone().map(|i| shown.contains(&i).then(|| at(i))));
            }
            Some(_) => {}
            None => {
                let [mut x_in, mut y_in] = start;
                for x in 0..part.right() {
                    if x >= part.x && is_made {
                        let (width, height) = (f64::from(whole.width), f64::from(whole.height));
                        let inside = x_in >= 0.0 && x_in < width && y_in >= 0.0 && y_in < height;
                        let shown = inside || fill.is_none();
                        nearest.push(shown.then(|| index(x_in.floor() as i64, y_in.floor() as i64)));
                    }
                    x_in += m[0];
                    y_in += m[3];
                }
                start = [start[0] + m[1], start[1] + m[4]];
            }
        }
        if is_made {
            copy_row::<T>(input, nearest, fill, y - part.y, out);
        }
    }
}

/// Writes row `y` of each plane from the pixels with these indices, or the fill.
fn copy_row<T: Number>(input: &Planes, from: &[Option<u32>], fill: Option<ChannelNumbers>, y: u32, out: &mut Planes) {
    let Rect { width, .. } = out.part();
    for channel in 0..usize::from(input.kind().channels) {
        let values = input.plane::<T>(channel);
        let outside = T::of_number(fill.map_or(0.0, |fill| fill.of(channel)));
        let row = &mut out.plane_mut::<T>(channel)[(y * width) as usize..][..width as usize];
        row.iter_mut().zip(from).for_each(|(to, from)| *to = from.map_or(outside, |from| values[from as usize]));
    }
}
