//! Faults of a broken nvJPEG that programs must notice: `CUDA_SIM_NVJPEG`.

use crate::jpeg::ImageLayout;
use std::sync::LazyLock;

/// A fault of every decoder, which none of them reports.
#[derive(Clone, Copy, PartialEq)]
pub enum Fault {
    None,
    /// About every third image has one block of wrong pixels.
    Wrong,
    /// Nothing is written.
    Nothing,
    /// Every image is refused.
    Refuse,
}

pub static FAULT: LazyLock<Fault> = LazyLock::new(|| match std::env::var("CUDA_SIM_NVJPEG").as_deref() {
    Err(_) | Ok("") => Fault::None,
    Ok("wrong") => Fault::Wrong,
    Ok("nothing") => Fault::Nothing,
    Ok("refuse") => Fault::Refuse,
    Ok(other) => {
        // Like the driver: if a wrong setting were ignored, a test would pass without testing anything.
        eprintln!("cuda-sim: CUDA_SIM_NVJPEG={other}: expected wrong, nothing or refuse");
        std::process::exit(2);
    }
});

/// Error of the values in a wrong block.
const OFF: u8 = 40;

/// Makes a block of 8 x 8 pixels wrong, as far as it lies in the image, in some images. `number` determines the images
/// and the place.
pub fn spoil_a_block(layout: ImageLayout, number: u64, pixels: &mut [u8]) {
    if !number.is_multiple_of(3) {
        return;
    }
    let values = layout.row_bytes() / layout.width();
    let column = 8 * (number as usize / 3 % layout.width().div_ceil(8));
    let row = 8 * (number as usize / 7 % layout.rows().div_ceil(8));
    let columns = column..(column + 8).min(layout.width());
    for line in pixels.chunks_exact_mut(layout.row_bytes()).take(layout.rows()).skip(row).take(8) {
        for value in &mut line[columns.start * values..columns.end * values] {
            *value = if *value < 128 { *value + OFF } else { *value - OFF };
        }
    }
}
