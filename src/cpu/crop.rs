//! Cutting out a rectangle, which may reach beyond the image.

use crate::image::{Image, Pixel, Rect, Size};
use crate::recipe::lower::center_crop_place;
use crate::recipe::op::Fill;

/// The rectangle of `size` whose top left corner is pixel (`x`, `y`) of a complete image.
pub(crate) fn crop(input: &Image, x: i32, y: i32, size: Size, fill: Fill, out: &mut Image) {
    debug_assert_eq!(input.part(), Rect::full(input.whole()));
    out.reset(size);
    let (width, height) = (i64::from(input.size().width), i64::from(input.size().height));
    let (x, y) = (i64::from(x), i64::from(y));
    // Of each row: `left` pixels from outside, then `inside` pixels starting at column `start`, then outside again.
    let left = (-x).clamp(0, i64::from(size.width)) as usize;
    let start = x.clamp(0, width) as usize;
    let inside = ((x + i64::from(size.width)).clamp(0, width) as usize).saturating_sub(start);
    for row in 0..size.height {
        let line = out.row_mut(row);
        let source = y + i64::from(row);
        let (source, color) = match fill {
            Fill::Color(color) if source < 0 || source >= height => {
                line.fill(opaque(color));
                continue;
            }
            Fill::Color(color) => (input.row(source as u32), Some(opaque(color))),
            Fill::Edge(_) => (input.row(source.clamp(0, height - 1) as u32), None),
        };
        let right = left + inside;
        line[left..right].copy_from_slice(&source[start..start + inside]);
        line[..left].fill(color.unwrap_or(source[0]));
        line[right..].fill(color.unwrap_or(source[source.len() - 1]));
    }
}

/// The centre of a complete image; what is missing is black.
pub(crate) fn center_crop(input: &Image, size: Size, out: &mut Image) {
    let (x, y) = center_crop_place(input.size(), size);
    crop(input, x, y, size, Fill::BLACK, out);
}

/// A colour as a pixel.
pub(crate) fn opaque([red, green, blue]: [u8; 3]) -> Pixel {
    [red, green, blue, 255]
}
