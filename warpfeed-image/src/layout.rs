//! Copies of pixels between three layouts: [`Pixel`]s of four bytes, packed triples of red, green and blue, and planes.
//! Also mirrored copies of rows of triples and of bytes, and transposed squares of a plane.
//!
//! Functions between layouts copy as many pixels as the shortest argument has. Vectors of x86 are in `layout/x86.rs`.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::raster::Pixel;
use std::ops::Range;

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

/// Rows of bytes in memory: where the first one begins, and the distance from each to the next one.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Number of the first row's first byte.
    pub first: usize,
    /// From a row's beginning to the next one's. Negative from the bottom to the top.
    pub step: isize,
}

impl Rows {
    /// The place of row `i`, if rows have `len` bytes.
    #[must_use]
    #[inline]
    pub fn row(&self, i: usize, len: usize) -> Range<usize> {
        let start = self.first.wrapping_add_signed(self.step.wrapping_mul(i as isize));
        start..start + len
    }

    /// Checks that `count` rows of `len` bytes lie in memory.
    ///
    /// # Panics
    /// If they do not.
    fn check(&self, bytes: &[u8], len: usize, count: usize) {
        let far = count.checked_sub(1).and_then(|last| isize::try_from(last).ok()?.checked_mul(self.step));
        let last = far.and_then(|far| self.first.checked_add_signed(far));
        let end = last.and_then(|last| last.max(self.first).checked_add(len));
        assert!(end.is_some_and(|end| end <= bytes.len()), "{count} rows of {len} bytes at {self:?} lie in memory");
    }
}

/// Copies `count` rows of `len` bytes from right to left: the last unit of `N` bytes of each becomes the first. `len` is a
/// multiple of `N`.
///
/// # Panics
/// If the rows do not lie in the slices.
pub fn mirrored_rows<const N: usize>(from: &[u8], of: Rows, to: &mut [u8], on: Rows, len: usize, count: usize) {
    const { assert!(N == 1 || N == 3 || N == 4, "bytes, triples and pixels") };
    if len == 0 || count == 0 {
        return;
    }
    assert!(len.is_multiple_of(N), "rows have whole units");
    of.check(from, len, count);
    on.check(to, len, count);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the rows lie in the slices.
    let done = unsafe { x86::mirrored_rows::<N>(from.as_ptr(), of, to.as_mut_ptr(), on, len, count) };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    if done < len {
        for i in 0..count {
            let units = from[of.row(i, len - done)].as_chunks::<N>().0.iter().rev();
            let to = to[on.row(i, len)][done..].as_chunks_mut::<N>().0;
            to.iter_mut().zip(units).for_each(|(to, from)| *to = *from);
        }
    }
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
        fn check<const N: usize>(units: usize, count: usize, of_gap: usize, on_gap: usize, upwards: bool) {
            let len = N * units;
            let (of_step, on_step) = (len + of_gap, len + on_gap);
            let bytes: Vec<u8> = (0..of_step * count + 3).map(|i| (i * 89 % 251) as u8).collect();
            let mut made = vec![7; on_step * count + 2];
            let of = match upwards {
                false => Rows { first: 3, step: of_step as isize },
                true => Rows { first: 3 + of_step * (count - 1), step: -(of_step as isize) },
            };
            mirrored_rows::<N>(&bytes, of, &mut made, Rows { first: 2, step: on_step as isize }, len, count);
            // The gaps between rows are not overwritten.
            let mut want = vec![7; made.len()];
            for i in 0..count {
                let row = if upwards { count - 1 - i } else { i };
                let row: Vec<u8> = bytes[3 + row * of_step..][..len].chunks_exact(N).rev().flatten().copied().collect();
                want[2 + i * on_step..][..len].copy_from_slice(&row);
            }
            assert!(made == want, "{N} {units} {count} {of_gap} {on_gap} {upwards}");
        }
        for units in (0..140).chain([191, 192, 193, 500, 513]) {
            for (count, of_gap, on_gap, upwards) in
                [(1, 0, 0, false), (3, 0, 0, true), (2, 5, 0, false), (4, 1, 7, true)]
            {
                check::<1>(units, count, of_gap, on_gap, upwards);
                check::<3>(units, count, of_gap, on_gap, upwards);
                check::<4>(units, count, of_gap, on_gap, upwards);
            }
        }
    }

    #[test]
    #[should_panic(expected = "lie in memory")]
    fn rows_beyond_the_end_are_refused() {
        let rows = |step| Rows { first: 0, step };
        mirrored_rows::<1>(&[0; 20], rows(10), &mut [0; 20], rows(11), 10, 2);
    }

    #[test]
    fn squares_are_transposed() {
        let rows: [[u8; SQUARE]; SQUARE] = std::array::from_fn(|y| std::array::from_fn(|x| (y * SQUARE + x) as u8));
        let made = transposed(rows);
        assert!((0..SQUARE * SQUARE).all(|i| made[i / SQUARE][i % SQUARE] == rows[i % SQUARE][i / SQUARE]));
    }
}
