//! Mirrors and quarter turns of complete images: pixels move, none changes.

use crate::image::{Image, Rect};

/// Mirrors left and right, in place.
pub(crate) fn horizontal(image: &mut Image) {
    debug_assert_eq!(image.part(), Rect::full(image.whole()));
    let width = image.size().width as usize;
    for row in image.pixels_mut().chunks_exact_mut(width.max(1)) {
        row.reverse();
    }
}

/// Mirrors top and bottom, in place.
pub(crate) fn vertical(image: &mut Image) {
    debug_assert_eq!(image.part(), Rect::full(image.whole()));
    let size = image.size();
    let (width, half) = (size.width as usize, size.height as usize / 2);
    let pixels = image.pixels_mut();
    let middle = pixels.len() - half * width;
    let (top, bottom) = pixels.split_at_mut(middle);
    let top = top.chunks_exact_mut(width.max(1));
    for (upper, lower) in top.zip(bottom.chunks_exact_mut(width.max(1)).rev()) {
        upper.swap_with_slice(lower);
    }
}

/// Turns by 180 degrees, in place.
pub(crate) fn half_turn(image: &mut Image) {
    debug_assert_eq!(image.part(), Rect::full(image.whole()));
    image.pixels_mut().reverse();
}

/// Turns by 90 degrees counter-clockwise.
pub(crate) fn quarter_turn(input: &Image, out: &mut Image) {
    transposed(input, out, |x, width| width - 1 - x, |y, _| y);
}

/// Turns by 270 degrees counter-clockwise.
pub(crate) fn three_quarter_turn(input: &Image, out: &mut Image) {
    transposed(input, out, |x, _| x, |y, height| height - 1 - y);
}

/// Side of the squares in which images are transposed: 16 rows of 16 pixels are 16 cache lines on either side.
const TILE: usize = 16;

/// Writes input pixel (x, y) to output column `column(y, input height)`, row `row(x, input width)`.
#[inline(always)]
fn transposed(
    input: &Image,
    out: &mut Image,
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
