//! Mirrors and quarter turns of complete pictures: pixels move, none changes.

use crate::picture::{Picture, Rect};

/// Mirrors left and right, in place.
pub(crate) fn horizontal(picture: &mut Picture) {
    debug_assert_eq!(picture.part(), Rect::full(picture.whole()));
    let width = picture.size().width as usize;
    for row in picture.pixels_mut().chunks_exact_mut(width.max(1)) {
        row.reverse();
    }
}

/// Mirrors top and bottom, in place.
pub(crate) fn vertical(picture: &mut Picture) {
    debug_assert_eq!(picture.part(), Rect::full(picture.whole()));
    let size = picture.size();
    let (width, half) = (size.width as usize, size.height as usize / 2);
    let pixels = picture.pixels_mut();
    let middle = pixels.len() - half * width;
    let (top, bottom) = pixels.split_at_mut(middle);
    let top = top.chunks_exact_mut(width.max(1));
    for (upper, lower) in top.zip(bottom.chunks_exact_mut(width.max(1)).rev()) {
        upper.swap_with_slice(lower);
    }
}

/// Turns by 180 degrees, in place.
pub(crate) fn half_turn(picture: &mut Picture) {
    debug_assert_eq!(picture.part(), Rect::full(picture.whole()));
    picture.pixels_mut().reverse();
}

/// Turns by 90 degrees counter-clockwise.
pub(crate) fn quarter_turn(input: &Picture, out: &mut Picture) {
    transposed(input, out, |x, width| width - 1 - x, |y, _| y);
}

/// Turns by 270 degrees counter-clockwise.
pub(crate) fn three_quarter_turn(input: &Picture, out: &mut Picture) {
    transposed(input, out, |x, _| x, |y, height| height - 1 - y);
}

/// Side of the squares in which pictures are transposed: 16 rows of 16 pixels are 16 cache lines on either side.
const TILE: usize = 16;

/// Writes input pixel (x, y) to output column `column(y, input height)`, row `row(x, input width)`.
#[inline(always)]
fn transposed(
    input: &Picture,
    out: &mut Picture,
    row: impl Fn(usize, usize) -> usize,
    column: impl Fn(usize, usize) -> usize,
) {
    debug_assert_eq!(input.part(), Rect::full(input.whole()));
    let (width, height) = (input.size().width as usize, input.size().height as usize);
    out.reset(input.size().transposed());
    let (from, to) = (input.pixels(), out.pixels_mut());
    for top in (0..height).step_by(TILE) {
        let bottom = (top + TILE).min(height);
        for left in (0..width).step_by(TILE) {
            for x in left..(left + TILE).min(width) {
                let line = &mut to[row(x, width) * height..][..height];
                for y in top..bottom {
                    line[column(y, height)] = from[y * width + x];
                }
            }
        }
    }
}
