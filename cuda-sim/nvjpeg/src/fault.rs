//! Faults of nvJPEG that programs must notice: `CUDA_SIM_NVJPEG`.

use std::sync::LazyLock;
use warpfeed_image::Size;

/// A fault. None of the decoders reports it.
#[derive(Clone, Copy, PartialEq)]
pub enum Fault {
    None,
    /// About every third image has one block of wrong pixels.
    Wrong,
    /// Nothing is written.
    Nothing,
    /// Every image is refused.
    Refuse,
    /// Parsing the header alone refuses images that EXIF data rotate, as nvJPEG does up to 13.2.
    Rotated,
}

pub static FAULT: LazyLock<Fault> = LazyLock::new(|| match std::env::var("CUDA_SIM_NVJPEG").as_deref() {
    Err(_) | Ok("") => Fault::None,
    Ok("wrong") => Fault::Wrong,
    Ok("nothing") => Fault::Nothing,
    Ok("refuse") => Fault::Refuse,
    Ok("rotated") => Fault::Rotated,
    Ok(other) => {
        // Like the driver: if a wrong setting were ignored, a test would pass without testing anything.
        eprintln!("cuda-sim: CUDA_SIM_NVJPEG={other}: expected wrong, nothing, refuse or rotated");
        std::process::exit(2);
    }
});

/// Error of the values in a wrong block.
const OFF: u8 = 40;

/// Makes a block of 8 x 8 pixels wrong, as far as it lies in the image, in some images. `number` determines the images
/// and the place.
pub fn spoil_a_block(size: Size, number: u64, pixels: &mut [u8]) {
    if !number.is_multiple_of(3) {
        return;
    }
    let (width, height) = (size.width as usize, size.height as usize);
    let column = 8 * (number as usize / 3 % width.div_ceil(8));
    let row = 8 * (number as usize / 7 % height.div_ceil(8));
    let columns = 3 * column..3 * (column + 8).min(width);
    for line in pixels.chunks_exact_mut(3 * width).skip(row).take(8) {
        for value in &mut line[columns.clone()] {
            *value = if *value < 128 { *value + OFF } else { *value - OFF };
        }
    }
}
