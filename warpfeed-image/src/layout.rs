//! Copies of pixels between three layouts: [`Pixel`]s of four bytes, packed triples of red, green and blue, and planes.
//! Also mirrored copies of triples and of a plane's bytes, and transposed squares of a plane.
//!
//! All functions but [`transposed`] copy as many pixels as the shortest argument has. Vectors of x86 are in
//! `layout/x86.rs`.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::raster::Pixel;

/// Expands packed triples to pixels.
pub fn triples_to_pixels(rgb: &[u8], to: &mut [Pixel]) {
    let len = to.len().min(rgb.len() / 3);
    let (rgb, to) = (&rgb[..3 * len], &mut to[..len]);
    #[cfg(target_arch = "x86_64")]
    let done = x86::triples_to_pixels(rgb, to);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    plain_triples_to_pixels(&rgb[3 * done..], &mut to[done..]);
}

/// Packs pixels to triples: leaves their fourth byte out.
pub fn pixels_to_triples(pixels: &[Pixel], to: &mut [u8]) {
    let len = pixels.len().min(to.len() / 3);
    let (pixels, to) = (&pixels[..len], &mut to[..3 * len]);
    #[cfg(target_arch = "x86_64")]
    let done = x86::pixels_to_triples(pixels, to);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    plain_pixels_to_triples(&pixels[done..], &mut to[3 * done..]);
}

/// Joins three planes to pixels. A gray image has the same plane three times.
pub fn planes_to_pixels(planes: [&[u8]; 3], to: &mut [Pixel]) {
    let len = planes.iter().fold(to.len(), |len, plane| len.min(plane.len()));
    let (planes, to) = (planes.map(|plane| &plane[..len]), &mut to[..len]);
    #[cfg(target_arch = "x86_64")]
    let done = x86::planes_to_pixels(planes, to);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let [red, green, blue] = planes.map(|plane| &plane[done..]);
    for (((to, red), green), blue) in to[done..].iter_mut().zip(red).zip(green).zip(blue) {
        *to = [*red, *green, *blue, 255];
    }
}

/// Copies the first `N` channels of pixels to planes.
pub fn pixels_to_planes<const N: usize>(pixels: &[Pixel], planes: [&mut [u8]; N]) {
    let len = planes.iter().fold(pixels.len(), |len, plane| len.min(plane.len()));
    let (pixels, mut planes) = (&pixels[..len], planes.map(|plane| &mut plane[..len]));
    #[cfg(target_arch = "x86_64")]
    let done = x86::pixels_to_planes(pixels, &mut planes);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    for (channel, plane) in planes.iter_mut().enumerate() {
        plane[done..].iter_mut().zip(&pixels[done..]).for_each(|(to, pixel)| *to = pixel[channel]);
    }
}

/// Copies a line of bytes from right to left: the last one of `from` becomes the first.
pub fn mirrored_bytes(from: &[u8], to: &mut [u8]) {
    let len = to.len().min(from.len());
    let (from, to) = (&from[from.len() - len..], &mut to[..len]);
    #[cfg(target_arch = "x86_64")]
    let done = x86::mirrored_bytes(from, to);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    to[done..].iter_mut().zip(from[..len - done].iter().rev()).for_each(|(to, from)| *to = *from);
}

/// Copies a line of packed triples from right to left: the last one of `from`, which has whole triples, becomes the
/// first.
pub fn mirrored_triples(from: &[u8], to: &mut [u8]) {
    let len = to.len().min(from.len()) / 3 * 3;
    let (from, to) = (&from[from.len() - len..], &mut to[..len]);
    #[cfg(target_arch = "x86_64")]
    let done = x86::mirrored_triples(from, to);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let from = from[..len - done].as_chunks::<3>().0.iter().rev();
    to[done..].as_chunks_mut::<3>().0.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// The side of the squares of [`transposed`].
pub const SQUARE: usize = 16;

/// The columns of a square of bytes as its rows.
#[must_use]
#[inline]
pub fn transposed(rows: [[u8; SQUARE]; SQUARE]) -> [[u8; SQUARE]; SQUARE] {
    #[cfg(target_arch = "x86_64")]
    return x86::transposed(rows);
    #[cfg(not(target_arch = "x86_64"))]
    return std::array::from_fn(|column| rows.map(|row| row[column]));
}

/// Four pixels at a time: three words become four.
fn plain_triples_to_pixels(rgb: &[u8], to: &mut [Pixel]) {
    let (fours, rest) = to.as_chunks_mut::<4>();
    let (twelves, _) = rgb.as_chunks::<12>();
    for (to, from) in fours.iter_mut().zip(twelves) {
        let word = |i: usize| u32::from_le_bytes([from[i], from[i + 1], from[i + 2], from[i + 3]]);
        let (a, b, c) = (word(0), word(4), word(8));
        *to = [a, a >> 24 | b << 8, b >> 16 | c << 16, c >> 8].map(|pixel| (pixel | 0xff00_0000).to_le_bytes());
    }
    let (threes, _) = rgb[12 * fours.len()..].as_chunks::<3>();
    rest.iter_mut().zip(threes).for_each(|(to, &[r, g, b])| *to = [r, g, b, 255]);
}

/// Four pixels at a time, because their twelve bytes are three whole words.
fn plain_pixels_to_triples(pixels: &[Pixel], out: &mut [u8]) {
    let (fours, rest) = pixels.as_chunks::<4>();
    let (words, _) = out.as_chunks_mut::<12>();
    for (four, out) in fours.iter().zip(words) {
        let [a, b, c, d] = four.map(u32::from_le_bytes);
        let packed = [(a & 0xFF_FFFF) | b << 24, (b >> 8 & 0xFFFF) | c << 16, (c >> 16 & 0xFF) | d << 8];
        for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(packed) {
            *out = word.to_le_bytes();
        }
    }
    for (pixel, out) in rest.iter().zip(out[12 * fours.len()..].as_chunks_mut::<3>().0) {
        *out = [pixel[0], pixel[1], pixel[2]];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths around the number of pixels of a vector, and of several.
    #[test]
    fn each_layout_is_the_plain_one() {
        for len in (0..70).chain([127, 128, 129, 500]) {
            let rgb: Vec<u8> = (0..3 * len).map(|i| (i * 89 % 251) as u8).collect();
            let want: Vec<Pixel> = rgb.chunks_exact(3).map(|p| [p[0], p[1], p[2], 255]).collect();
            let plane = |channel: usize| -> Vec<u8> { want.iter().map(|pixel| pixel[channel]).collect() };
            let planes = [plane(0), plane(1), plane(2)];

            // One element more than there is room for shows writes beyond the end.
            let mut pixels = vec![[7; 4]; len + 1];
            triples_to_pixels(&rgb, &mut pixels[..len]);
            assert_eq!((&pixels[..len], pixels[len]), (&want[..], [7; 4]), "{len}");

            let mut pixels = vec![[7; 4]; len + 1];
            planes_to_pixels(planes.each_ref().map(Vec::as_slice), &mut pixels[..len]);
            assert_eq!((&pixels[..len], pixels[len]), (&want[..], [7; 4]), "{len}");

            // The fourth byte has no meaning.
            let pixels: Vec<Pixel> = want.iter().map(|&[r, g, b, _]| [r, g, b, r ^ 0x5a]).collect();
            let mut packed = vec![7; 3 * len + 1];
            pixels_to_triples(&pixels, &mut packed[..3 * len]);
            assert_eq!((&packed[..3 * len], packed[3 * len]), (&rgb[..], 7), "{len}");

            let mut made = [0, 1, 2].map(|_| vec![7; len + 1]);
            pixels_to_planes(&pixels, made.each_mut().map(|plane| &mut plane[..len]));
            for (made, want) in made.iter().zip(&planes) {
                assert_eq!((&made[..len], made[len]), (&want[..], 7), "{len}");
            }
        }
    }
    #[test]
    fn mirrored_copies_are_the_reverse() {
        for len in (0..140).chain([191, 192, 193, 500, 513]) {
            let bytes: Vec<u8> = (0..3 * len).map(|i| (i * 89 % 251) as u8).collect();
            // What lies before a longer source is not copied, and what lies after the target is not overwritten.
            let mut made = vec![7; len + 1];
            mirrored_bytes(&bytes[..2 * len], &mut made[..len]);
            let want: Vec<u8> = bytes[len..2 * len].iter().rev().copied().collect();
            assert_eq!((&made[..len], made[len]), (&want[..], 7), "{len}");

            let mut made = vec![7; 3 * len + 1];
            mirrored_triples(&bytes, &mut made[..3 * len]);
            let want: Vec<u8> = bytes.chunks_exact(3).rev().flatten().copied().collect();
            assert_eq!((&made[..3 * len], made[3 * len]), (&want[..], 7), "{len}");
        }
    }

    #[test]
    fn squares_are_transposed() {
        let rows: [[u8; SQUARE]; SQUARE] = std::array::from_fn(|y| std::array::from_fn(|x| (y * SQUARE + x) as u8));
        let made = transposed(rows);
        assert!((0..SQUARE * SQUARE).all(|i| made[i / SQUARE][i % SQUARE] == rows[i % SQUARE][i / SQUARE]));
    }
}
