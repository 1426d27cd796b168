//! Overwriting a rectangle.

use super::crop::opaque;
use crate::image::{Image, Rect};

/// Overwrites the rectangle `area` of the whole, as far as this part of it holds it. Values are rounded to the nearest
/// integer, halves away from 0, and cut to 0..=255.
pub(crate) fn erase(image: &mut Image, area: Rect, value: [f32; 3]) {
    let pixel = opaque(value.map(|v| v.round() as u8));
    let part = image.part();
    let (left, right) = (area.x.max(part.x), area.right().min(part.right()));
    let (top, bottom) = (area.y.max(part.y), area.bottom().min(part.bottom()));
    if left >= right {
        return;
    }
    for y in top..bottom {
        image.row_mut(y - part.y)[(left - part.x) as usize..(right - part.x) as usize].fill(pixel);
    }
}
