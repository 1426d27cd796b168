//! Reducing by whole factors, as Pillow's `Image.reduce` does.

use crate::error::Error;
use crate::raster::{Image, Pixel, Rect, Size};
use crate::simd::wide;

/// Factors by which width and height shrink: numbers of columns and of rows that become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Factors {
    pub(crate) columns: u32,
    pub(crate) rows: u32,
}

impl Factors {
    /// Whether nothing changes.
    pub(crate) fn is_identity(self) -> bool {
        self == Self { columns: 1, rows: 1 }
    }

    /// The size of a reduced image. An incomplete last group of columns or rows becomes one, too.
    pub(crate) fn reduced(self, input: Size) -> Size {
        Size::new(input.width.div_ceil(self.columns), input.height.div_ceil(self.rows))
    }

    /// The part of an image of size `input` that the part `part` of the reduced image is made of.
    pub(crate) fn reach(self, part: Rect, input: Size) -> Rect {
        let (x, y) = (part.x * self.columns, part.y * self.rows);
        let (right, bottom) = (part.right() * self.columns, part.bottom() * self.rows);
        Rect { x, y, width: right.min(input.width) - x, height: bottom.min(input.height) - y }
    }

    /// Makes the part `part` of the reduced image. `input` has what [`reach`](Self::reach) says.
    pub(crate) fn reduce(self, input: &Image, part: Rect, out: &mut Image) {
        let (whole, stored) = (input.whole(), input.part());
        out.reset_part(self.reduced(whole), part);
        let read = self.reach(part, whole);
        let columns = (read.x - stored.x) as usize..(read.right() - stored.x) as usize;
        // The sums of the columns of `rows` rows.
        let mut sums = vec![[0; 4]; read.width as usize];
        for y in 0..part.height {
            let first = (part.y + y) * self.rows;
            let rows = first..(first + self.rows).min(whole.height);
            sums.fill([0; 4]);
            for row in rows.clone() {
                let row = &input.row(row - stored.y)[columns.clone()];
                wide(
                    #[inline(always)]
                    || add(row, &mut sums),
                );
            }
            // An incomplete group at the right edge is divided by fewer pixels.
            let last = read.width - (part.width - 1) * self.columns;
            let [mean, at_edge] = [self.columns, last].map(|columns| Mean::of(columns * rows.len() as u32));
            let to = out.row_mut(y);
            for (pixel, sums) in to.iter_mut().zip(sums.chunks(self.columns as usize)) {
                let mean = if sums.len() == self.columns as usize { &mean } else { &at_edge };
                *pixel = mean.pixel(sums);
            }
        }
    }
}

/// The error of a launch. Back ends run plans that reduce on the CPU.
pub(crate) fn no_kernel() -> Error {
    Error::Unsupported {
        feature: "reducing on a GPU".to_owned(),
        remedy: "resizes with a reducing gap run on the CPU".to_owned(),
    }
}

/// Adds the bytes of a row to the sums of the columns.
#[inline(always)]
fn add(row: &[Pixel], sums: &mut [[u32; 4]]) {
    for (sum, byte) in sums.as_flattened_mut().iter_mut().zip(row.as_flattened()) {
        *sum += u32::from(*byte);
    }
}

/// The mean of a number of bytes, with Pillow's arithmetic: a division is a product with the reciprocal in 24-bit fixed
/// point, which is computed in single precision. For more than 2^24 bytes the means make no sense, here and in Pillow.
struct Mean {
    half: u32,
    reciprocal: u32,
}

impl Mean {
    fn of(count: u32) -> Self {
        let largest = count.wrapping_mul(1 << 8);
        Self { half: count / 2, reciprocal: (4_294_967_296.0_f32 / largest as f32) as u32 }
    }

    /// The mean of pixels, from the sums of several columns.
    #[inline(always)]
    fn pixel(&self, columns: &[[u32; 4]]) -> Pixel {
        let mut sum = [0_u32; 4];
        for column in columns {
            sum.iter_mut().zip(column).for_each(|(sum, column)| *sum = sum.wrapping_add(*column));
        }
        sum.map(|sum| self.byte(sum))
    }

    #[inline(always)]
    fn byte(&self, sum: u32) -> u8 {
        (sum.wrapping_add(self.half).wrapping_mul(self.reciprocal) >> 24) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_that_of_the_whole() {
        let mut image = Image::new(Size::new(23, 17));
        let mut state = 1_u32;
        for pixel in image.pixels_mut() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *pixel = state.to_be_bytes();
        }
        for factors in [(1, 2), (3, 1), (4, 5), (7, 9), (40, 40)] {
            let factors = Factors { columns: factors.0, rows: factors.1 };
            let size = factors.reduced(image.size());
            let mut whole = Image::default();
            factors.reduce(&image, Rect::full(size), &mut whole);
            for (x, y) in [(0, 0), (size.width / 2, size.height / 3), (size.width - 1, size.height - 1)] {
                let part = Rect { x, y, width: size.width - x, height: 1 };
                let read = factors.reach(part, image.size());
                let mut stored = Image::default();
                stored.reset_part(image.size(), read);
                for row in 0..read.height {
                    let from = &image.row(read.y + row)[read.x as usize..read.right() as usize];
                    stored.row_mut(row).copy_from_slice(from);
                }
                let mut made = Image::default();
                factors.reduce(&stored, part, &mut made);
                assert_eq!(made.row(0), &whole.row(y)[x as usize..], "{factors:?}, {part:?}");
            }
        }
    }

    #[test]
    fn means_are_rounded_to_the_nearest_but_for_the_reciprocal() {
        for count in (1..300).chain([1_000, 4_095, 1 << 16]) {
            let mean = Mean::of(count);
            for sum in [0, 1, count / 2, count, 77 * count + count / 3, 255 * count - 1, 255 * count] {
                let rounded = f64::from(sum + count / 2) / f64::from(count);
                let off = rounded - f64::from(mean.byte(sum));
                // What the reciprocal lacks may take a whole number below it.
                assert!((0.0..1.0 + 256.0 / f64::from(mean.reciprocal)).contains(&off), "{sum} of {count}: {off}");
            }
        }
        assert_eq!(Mean::of(3).byte(764), 254);
    }
}
