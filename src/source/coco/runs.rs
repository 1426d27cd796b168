//! COCO's run lengths: pixels outside and inside an object in turn, by columns.

use crate::raster::Size;
use std::ops::Range;

/// The run lengths of a compressed string. Each is a number of 5 bits a character, the low ones first; bit 5 says that
/// more follow, and bit 4 of the last is the sign. From the fourth on it is the difference to the last but one.
pub(super) fn decompress(text: &[u8]) -> Result<Vec<i32>, &'static str> {
    const WRONG: &str = "its counts are no run lengths";
    let mut runs: Vec<i32> = Vec::new();
    let (mut value, mut shift) = (0_i64, 0);
    for &character in text {
        let bits = character.checked_sub(48).filter(|bits| *bits < 64).ok_or(WRONG)?;
        if shift > 30 {
            return Err(WRONG);
        }
        value |= i64::from(bits & 31) << shift;
        shift += 5;
        if bits & 32 != 0 {
            continue;
        }
        if bits & 16 != 0 {
            value |= -1 << shift;
        }
        if runs.len() > 2 {
            value += i64::from(runs[runs.len() - 2]);
        }
        runs.push(i32::try_from(value).ok().filter(|run| *run >= 0).ok_or(WRONG)?);
        (value, shift) = (0, 0);
    }
    if shift > 0 { Err("its counts end within a number") } else { Ok(runs) }
}

/// The run lengths of a plane of `size`, as a compressed string. Pixels other than 0 are inside.
pub(in crate::source) fn compress(plane: &[u8], size: Size) -> String {
    let width = size.width as usize;
    let (mut runs, mut inside) = (vec![0_i64], false);
    for column in 0..width {
        for value in plane[column..].iter().step_by(width) {
            if (*value != 0) != inside {
                inside = !inside;
                runs.push(0);
            }
            if let Some(run) = runs.last_mut() {
                *run += 1;
            }
        }
    }
    let mut text = String::new();
    for (i, run) in runs.iter().enumerate() {
        let mut value = if i > 2 { run - runs[i - 2] } else { *run };
        loop {
            let bits = value & 31;
            value >>= 5;
            // The rest is the sign, which bit 4 tells already.
            let last = value == if bits & 16 == 0 { 0 } else { -1 };
            text.push(char::from(48 + bits as u8 + if last { 0 } else { 32 }));
            if last {
                break;
            }
        }
    }
    text
}

/// Paints run lengths into a plane of `size`. In `numbers` the height and the width that they were made for come first.
///
/// # Errors
/// A message if they are of another size, or do not add up to all pixels.
pub(super) fn paint(numbers: &[i32], size: Size, plane: &mut [u8]) -> Result<(), String> {
    let [own_height, own_width, runs @ ..] = numbers else { return Err("its run lengths have no size".to_owned()) };
    if [*own_width as u32, *own_height as u32] != [size.width, size.height] {
        return Err(format!("its run lengths are of {own_width} x {own_height} pixels, and the image has {size}"));
    }
    let sum: u64 = runs.iter().map(|run| *run as u64).sum();
    if sum != size.area_px() {
        return Err(format!("its run lengths are of {sum} pixels, and the image has {}", size.area_px()));
    }
    let mut at = 0;
    for (i, run) in runs.iter().enumerate() {
        let end = at + *run as usize;
        if i % 2 == 1 {
            set(plane, size, at..end);
        }
        at = end;
    }
    Ok(())
}

/// Sets pixels of a plane of `size` to 1, counted down its columns.
pub(super) fn set(plane: &mut [u8], size: Size, pixels: Range<usize>) {
    let (width, height) = (size.width as usize, size.height as usize);
    let (mut at, end) = (pixels.start, pixels.end.min(width * height));
    while at < end {
        let (column, row) = (at / height, at % height);
        let rows = (height - row).min(end - at);
        plane[row * width + column..].iter_mut().step_by(width).take(rows).for_each(|pixel| *pixel = 1);
        at += rows;
    }
}
