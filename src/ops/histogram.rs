//! Operations with a table for each channel from the image's histogram.

use super::CpuPass;
use super::byte_table;
use super::descriptors::{HistogramSample, SourceImage};
use super::kernel::{CallRecorder, Kernel, KernelId};
use crate::error::Result;
use crate::raster::{Pixel, Rect, Size};

/// The kernel that counts values.
pub(super) const COUNT: Kernel = Kernel::pixels("histogram_u8_nhwc");
/// Number of rows that one thread of this kernel counts.
const ROWS_A_THREAD: u32 = 16;

/// Histogram of a channel: the number of pixels with each value.
pub(super) type Histogram = [u32; 256];

/// Applies to each channel the table that `table` makes from the channel's counts.
pub(super) fn pass(pass: &mut CpuPass<'_>, table: impl Fn(&Histogram) -> [u8; 256]) {
    debug_assert_eq!(pass.image.part(), Rect::full(pass.image.whole()), "values are those of the complete image");
    let tables = count(pass.image.pixels()).map(|counts| table(&counts));
    for pixel in pass.image.pixels_mut() {
        for (value, table) in pixel.iter_mut().zip(&tables) {
            *value = table[usize::from(*value)];
        }
    }
}

/// The counts of red, green and blue.
fn count(pixels: &[Pixel]) -> [Histogram; 3] {
    // Neighboring pixels are often equal. Counting in two arrays in turn avoids waiting for the previous addition.
    let mut counts = [[[0; 256]; 3]; 2];
    let mut add = |place: usize, pixel: &Pixel| {
        for (counts, value) in counts[place].iter_mut().zip(pixel) {
            counts[usize::from(*value)] += 1;
        }
    };
    let (pairs, rest) = pixels.as_chunks::<2>();
    for [first, second] in pairs {
        add(0, first);
        add(1, second);
    }
    rest.iter().for_each(|pixel| add(0, pixel));
    let [first, second] = counts;
    std::array::from_fn(|channel| std::array::from_fn(|value| first[channel][value] + second[channel][value]))
}

/// Queues the kernels that count, make the tables, and apply them.
pub(super) fn launch(on: &mut dyn CallRecorder, make_table: KernelId) -> Result<()> {
    const HISTOGRAM: KernelId = KernelId::of(COUNT.name);
    const TABLE_BYTES: u32 = 256;
    let SourceImage { pixels, pitch_bytes, width, height, .. } = on.source();
    // The upload also sets the counts to zero.
    let counts = on.put(&[0; 3 * size_of::<Histogram>()])?;
    let table = on.scratch(3 * TABLE_BYTES as usize)?;
    let sample = HistogramSample { pixels, counts, table, pitch_bytes, width, height, reserved: 0 };
    on.call(HISTOGRAM, &sample, Size::new(width, height.div_ceil(ROWS_A_THREAD)));
    // A block of 32 x 8 threads makes the tables.
    on.call(make_table, &sample, Size::new(32, 8));
    byte_table::launch(on, table, TABLE_BYTES);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn every_pixel_counts_once() {
        let pixels: Vec<_> = (0..1001_u32).map(|i| [(i % 3) as u8, 255, (i / 4) as u8, 9]).collect();
        let [red, green, blue] = count(&pixels);
        assert_eq!((red[0], red[1], red[2]), (334, 334, 333));
        assert_eq!((green[255], green[..255].iter().sum()), (1001, 0));
        assert!(blue[..250].iter().all(|count| *count == 4) && blue[250] == 1);
    }
}
