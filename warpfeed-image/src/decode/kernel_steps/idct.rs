//! Step 5: the inverse DCT, in the arithmetic of `idct.h`.

use super::{Baseline, DecodeWindow};
use crate::decode::baseline::ZIGZAG;

/// The samples of a component in the window.
pub struct SamplePlane {
    /// The first column and row of the window.
    pub x: u32,
    pub y: u32,
    /// Number of samples in a row.
    pub width: usize,
    pub samples: Vec<u8>,
}

pub(super) fn planes(image: &Baseline, window: &DecodeWindow, dc: &[u16], ac: &[[i16; 64]]) -> Vec<SamplePlane> {
    let plane = |columns: u32, rows: u32| {
        let width = window.columns.len() * columns as usize * 8;
        let height = window.rows.len() * rows as usize * 8;
        let (x, y) = (window.columns.start * columns * 8, window.rows.start * rows * 8);
        SamplePlane { x, y, width, samples: vec![0; width * height] }
    };
    let mut planes: Vec<SamplePlane> =
        image.components.iter().map(|component| plane(component.columns, component.rows)).collect();
    let mcu_blocks = image.mcu_blocks();
    for (row, y) in window.rows.clone().zip(0..) {
        for (column, x) in window.columns.clone().zip(0..) {
            let checked =
                (row as usize * image.mcu_columns as usize + column as usize) * mcu_blocks - window.checked.start;
            let in_window = (y * window.columns.len() + x) * mcu_blocks;
            let mut block = 0;
            for (component, plane) in image.components.iter().zip(&mut planes) {
                let (columns, rows) = (component.columns as usize, component.rows as usize);
                for place in 0..columns * rows {
                    let mut coefficients = [0; 64];
                    for (&value, to) in ac[in_window + block].iter().zip(ZIGZAG) {
                        coefficients[usize::from(to)] = value;
                    }
                    coefficients[0] = dc[checked + block] as i16;
                    let samples = inverse(&coefficients, &component.quant);
                    let (left, top) = ((x * columns + place % columns) * 8, (y * rows + place / columns) * 8);
                    for (line, from) in samples.chunks_exact(8).enumerate() {
                        plane.samples[(top + line) * plane.width + left..][..8].copy_from_slice(from);
                    }
                    block += 1;
                }
            }
        }
    }
    planes
}

/// The samples of a block, row by row.
pub(in crate::decode) fn inverse(coefficients: &[i16; 64], quant: &[u16; 64]) -> [u8; 64] {
    let mut values = [0; 64];
    for ((value, &coefficient), &step) in values.iter_mut().zip(coefficients).zip(quant) {
        *value = coefficient.wrapping_mul(step as i16);
    }
    let mut lines = [0; 64];
    if coefficients[8..].iter().all(|&coefficient| coefficient == 0) {
        // For such blocks the assembler takes a shortcut, which wraps where the full transform saturates.
        lines.chunks_exact_mut(8).for_each(|line| {
            line.iter_mut().zip(&values).for_each(|(to, value): (&mut i16, &i16)| *to = value.wrapping_mul(4));
        });
    } else {
        for column in 0..8 {
            let line = transform(std::array::from_fn(|i| values[8 * i + column]), 11);
            (0..8).for_each(|i| lines[8 * i + column] = line[i]);
        }
    }
    let mut samples = [0; 64];
    for (to, line) in samples.as_chunks_mut::<8>().0.iter_mut().zip(lines.as_chunks::<8>().0) {
        *to = transform(*line, 18).map(|value| (value.clamp(-128, 127) + 128) as u8);
    }
    samples
}

/// Transforms eight values, by the factorization of Loeffler, Ligtenberg and Moschytz with libjpeg's 13-bit constants.
/// Sums of two inputs wrap at 16 bits; sums of products fit 32.
fn transform(input: [i16; 8], shift: u32) -> [i16; 8] {
    let [in0, in1, in2, in3, in4, in5, in6, in7] = input;
    let wide = i32::from;
    let (sum, difference) = (wide(in0.wrapping_add(in4)) * 8192, wide(in0.wrapping_sub(in4)) * 8192);
    let low = wide(in2) * 10703 + wide(in6) * 4433;
    let high = wide(in2) * 4433 - wide(in6) * 10704;
    let even = [sum + low, difference + high, difference - high, sum - low];

    let (sum37, sum15) = (wide(in3.wrapping_add(in7)), wide(in1.wrapping_add(in5)));
    let z3 = sum37 * -6436 + sum15 * 9633;
    let z4 = sum37 * 9633 + sum15 * 6437;
    let odd = [
        wide(in1) * 4926 - wide(in7) * 7373 + z4,
        wide(in3) * 4177 - wide(in5) * 20995 + z3,
        wide(in3) * -20995 - wide(in5) * 4176 + z4,
        wide(in1) * -7373 - wide(in7) * 4927 + z3,
    ];

    // The value divided by 2^shift, rounded, saturated to 16 bits.
    let descale = |value: i32| ((value + (1 << (shift - 1))) >> shift).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
    let mut out = [0; 8];
    for i in 0..4 {
        out[i] = descale(even[i] + odd[i]);
        out[7 - i] = descale(even[i] - odd[i]);
    }
    out
}
