//! Conversion to RGB of 8 bits, as by Pillow's `convert("RGB")`.

use super::layout::{Alpha, Color, Layout};
use crate::decode::inks::inks_to_rgb;
use crate::decode::{Format, no_rgb};
use crate::error::Result;
use crate::planes::{Element, Planes, Value};
use crate::raster::Image;

/// The channels that RGB is made of.
///
/// # Errors
/// [`Error::Decode`](crate::Error::Decode) if the image has no RGB form.
pub(super) fn bands(layout: &Layout) -> Result<&'static [u16]> {
    let is_whole = layout.kind().element != Element::F32;
    let is_associated = layout.alpha == Alpha::Associated;
    match (layout.color, layout.channels) {
        (Color::Gray, 2) if is_whole && is_associated => Ok(&[0, 1]),
        (Color::Rgb, 4) if is_whole && is_associated => Ok(&[0, 1, 2, 3]),
        (Color::Gray | Color::InvertedGray, 1 | 2) if is_whole => Ok(&[0]),
        (Color::Rgb, 3 | 4) | (Color::Ycc, 3) if is_whole => Ok(&[0, 1, 2]),
        (Color::Palette, _) => Ok(&[0, 1, 2]),
        (Color::Inks, _) => Ok(&[0, 1, 2, 3]),
        _ => Err(no_rgb(Format::Tiff, layout.kind())),
    }
}

/// Makes RGB of these channels. Values of more than 8 bits keep their high 8 bits; those of fewer bits are scaled.
/// Colors that have been multiplied by alpha are divided by it, as in Pillow.
pub(super) fn convert(layout: &Layout, planes: &Planes, out: &mut Image) {
    out.reset_part(planes.whole(), planes.part());
    let bits = if layout.color == Color::Palette { 8 } else { u32::from(layout.bits) };
    let max = (1_u32 << bits) - 1;
    let inverted = if matches!(layout.color, Color::InvertedGray | Color::Inks) { max } else { 0 };
    match planes.kind().element {
        Element::U16 => fill::<u16>(planes, out, |value| ((u32::from(value) ^ inverted) >> (bits - 8)) as u8),
        _ if bits == 8 => fill::<u8>(planes, out, |value| value ^ inverted as u8),
        _ => fill::<u8>(planes, out, |value| (((u32::from(value) ^ inverted) * 510 + max) / (2 * max)) as u8),
    }
    if layout.color == Color::Inks {
        // 255 is no ink now, as the conversion expects it.
        (0..out.size().height).for_each(|y| inks_to_rgb(out.row_mut(y)));
    } else if planes.kind().channels.is_multiple_of(2) {
        out.pixels_mut().iter_mut().for_each(|[r, g, b, alpha]| {
            if let 1..=254 = *alpha {
                let whole = |value: u8| (u32::from(value) * 255 / u32::from(*alpha)).min(255) as u8;
                (*r, *g, *b) = (whole(*r), whole(*g), whole(*b));
            } else if *alpha == 0 {
                (*r, *g, *b) = (0, 0, 0);
            }
            *alpha = 255;
        });
    }
}

/// Writes the channels of pixels: one as gray, two as gray and the fourth byte, three as colors, four as all bytes.
fn fill<T: Value>(planes: &Planes, out: &mut Image, to_byte: impl Fn(T) -> u8) {
    let channels: [usize; 4] = match planes.kind().channels {
        1 => [0, 0, 0, 0],
        2 => [0, 0, 0, 1],
        3 => [0, 1, 2, 2],
        _ => [0, 1, 2, 3],
    };
    let has_fourth = planes.kind().channels.is_multiple_of(2);
    let [r, g, b, a] = channels.map(|channel| planes.plane::<T>(channel).iter());
    for (to, (((r, g), b), a)) in out.pixels_mut().iter_mut().zip(r.zip(g).zip(b).zip(a)) {
        *to = [to_byte(*r), to_byte(*g), to_byte(*b), if has_fourth { to_byte(*a) } else { 255 }];
    }
}
