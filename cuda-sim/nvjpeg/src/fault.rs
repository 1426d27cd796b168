//! What a broken nvJPEG does, for programs that must notice: `CUDA_SIM_NVJPEG`.

use crate::jpeg::ImageLayout;
use std::sync::LazyLock;

/// What is wrong with every decoder, and reported by none.
#[derive(Clone, Copy, PartialEq)]
pub enum Fault {
    None,
    /// Every third image or so has one block of wrong pixels.
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
        // As the driver has it: a setting that is ignored would make a test pass that tests nothing.
        eprintln!("cuda-sim: CUDA_SIM_NVJPEG={other}: expected wrong, nothing or refuse");
        std::process::exit(2);
    }
});

/// How far the values of a wrong block are off.
const OFF: u8 = 40;

/// Spoils a block of 8 x 8 pixels, or what there is of it, in some images; which ones and where, `number` decides.
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
