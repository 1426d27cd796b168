//! Step 6: upsampling and color conversion, for the rectangle. libjpeg interpolates chroma for pairs of pixels ("fancy
//! upsampling"), and repeats it in all other cases. Coordinates are the whole image's. Beyond the last sample it is
//! repeated.

use super::Baseline;
use super::idct::SamplePlane;
use crate::decode::baseline::BaselineColor;
use crate::raster::{Image, Rect};

pub(super) fn rgb(image: &Baseline, planes: &[SamplePlane], part: Rect) -> Image {
    let channels: Vec<Channel<'_>> = image
        .components
        .iter()
        .zip(planes)
        .map(|(component, plane)| {
            let pixels = image.pixels_a_sample(component);
            let last = (image.size.width.div_ceil(pixels.0) - 1, image.size.height.div_ceil(pixels.1) - 1);
            Channel { plane, pixels, last }
        })
        .collect();
    let mut out = Image::default();
    out.reset_part(image.size, part);
    for y in 0..part.height {
        for (pixel, x) in out.row_mut(y).iter_mut().zip(part.x..) {
            let at = |c: usize| channels[c].pixel(x, part.y + y);
            *pixel = match image.color {
                BaselineColor::Gray => [at(0), at(0), at(0), 255],
                BaselineColor::Rgb => [at(0), at(1), at(2), 255],
                BaselineColor::Ycc => ycc(at(0), at(1), at(2)),
            };
        }
    }
    out
}

/// libjpeg's conversion, in 16-bit fixed point.
fn ycc(y: u8, cb: u8, cr: u8) -> [u8; 4] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let clamped = |chroma: i32| (y + ((chroma + 32768) >> 16)).clamp(0, 255) as u8;
    [clamped(91881 * cr), clamped(-22554 * cb - 46802 * cr), clamped(116_130 * cb), 255]
}

/// A component, addressed by pixels.
struct Channel<'a> {
    plane: &'a SamplePlane,
    /// Number of pixels that a sample covers, to the right and downwards.
    pixels: (u32, u32),
    /// The last column and row of samples that are not padding.
    last: (u32, u32),
}

impl Channel<'_> {
    fn sample(&self, x: u32, y: u32) -> u32 {
        let (x, y) = (x.min(self.last.0) - self.plane.x, y.min(self.last.1) - self.plane.y);
        self.plane.samples[y as usize * self.plane.width + x as usize].into()
    }

    fn pixel(&self, x: u32, y: u32) -> u8 {
        let (column, row) = (x / self.pixels.0, y / self.pixels.1);
        // Each pixel of a pair uses the neighbor on its own side.
        let (odd_column, odd_row) = (x % 2, y % 2);
        let beside = if odd_column == 0 { column.saturating_sub(1) } else { column + 1 };
        let over = if odd_row == 0 { row.saturating_sub(1) } else { row + 1 };
        let is_wide = self.last.0 >= 2;
        let value = match self.pixels {
            (2, 1) if is_wide => (3 * self.sample(column, row) + self.sample(beside, row) + 1 + odd_column) >> 2,
            (1, 2) => (3 * self.sample(column, row) + self.sample(column, over) + 1 + odd_row) >> 2,
            (2, 2) if is_wide => {
                let sum = |x| 3 * self.sample(x, row) + self.sample(x, over);
                (3 * sum(column) + sum(beside) + 8 - odd_column) >> 4
            }
            _ => self.sample(column, row),
        };
        value as u8
    }
}
