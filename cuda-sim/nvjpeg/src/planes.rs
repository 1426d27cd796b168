//! The planes of a baseline image, as NVJPEG_OUTPUT_YUV has them: libjpeg's samples before it interpolates chroma.

use warpfeed_image::decode::{Baseline, Code};

/// Place of the k-th coefficient in its block, row by row.
#[rustfmt::skip]
const ZIGZAG: [usize; 64] = [
     0,  1,  8, 16,  9,  2,  3, 10, 17, 24, 32, 25, 18, 11,  4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,  6,  7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// A component's samples without gaps between rows.
pub struct Plane {
    pub width: usize,
    pub height: usize,
    pub samples: Vec<u8>,
}

/// The bits of the entropy-coded data.
struct Bits<'a> {
    data: &'a [u8],
    held: u32,
    count: u32,
}

impl Bits<'_> {
    fn bit(&mut self) -> Option<u32> {
        if self.count == 0 {
            let (&byte, rest) = self.data.split_first()?;
            self.data = match (byte, rest) {
                (0xFF, [0, rest @ ..]) => rest,
                // A marker.
                (0xFF, _) => return None,
                _ => rest,
            };
            (self.held, self.count) = (byte.into(), 8);
        }
        self.count -= 1;
        Some(self.held >> self.count & 1)
    }

    fn symbol(&mut self, code: &Code) -> Option<u8> {
        let mut bits = 0;
        for len in 1..=16 {
            bits = bits << 1 | self.bit()?;
            if bits < code.end[len] {
                return code.symbols.get((bits as i32 + code.first[len]) as usize).copied();
            }
        }
        None
    }

    fn value(&mut self, len: u8) -> Option<i32> {
        let mut value = 0;
        for _ in 0..len {
            value = value << 1 | self.bit()? as i32;
        }
        Some(if len > 0 && value < 1 << (len - 1) { value - (1 << len) + 1 } else { value })
    }

    fn restart(&mut self) -> Option<()> {
        self.count = 0;
        let at = self.data.windows(2).position(|pair| pair[0] == 0xFF && (0xD0..=0xD7).contains(&pair[1]))?;
        self.data = &self.data[at + 2..];
        Some(())
    }
}

/// Decodes the planes. `None` for damaged data.
pub fn planes(bytes: &[u8], image: &Baseline) -> Option<Vec<Plane>> {
    let (columns, rows) = (image.mcu_columns as usize, image.mcu_rows as usize);
    let size = image.size;
    let mut planes: Vec<Plane> = image
        .components
        .iter()
        .map(|component| {
            let (across, down) = image.pixels_a_sample(component);
            let samples = vec![0; 64 * (component.columns * component.rows) as usize * columns * rows];
            Plane { width: size.width.div_ceil(across) as usize, height: size.height.div_ceil(down) as usize, samples }
        })
        .collect();
    let mut bits = Bits { data: &bytes[image.scan_offset_bytes..], held: 0, count: 0 };
    let mut dc = [0; 3];
    let interval = image.restart_interval_mcus as usize;
    for mcu in 0..columns * rows {
        if interval > 0 && mcu > 0 && mcu % interval == 0 {
            bits.restart()?;
            dc = [0; 3];
        }
        for (c, component) in image.components.iter().enumerate() {
            let (across, down) = (component.columns as usize, component.rows as usize);
            for block in 0..across * down {
                let mut coefficients = [0_i32; 64];
                let len = bits.symbol(&component.dc)?;
                dc[c] += bits.value(len)?;
                coefficients[0] = dc[c];
                let mut k = 1;
                while k < 64 {
                    let symbol = bits.symbol(&component.ac)?;
                    let (run, len) = (usize::from(symbol >> 4), symbol & 15);
                    match (run, len) {
                        (15, 0) => k += 16,
                        (_, 0) => break,
                        _ => {
                            k += run;
                            *coefficients.get_mut(*ZIGZAG.get(k)?)? = bits.value(len)?;
                            k += 1;
                        }
                    }
                }
                coefficients.iter_mut().zip(&component.quant).for_each(|(value, step)| *value *= i32::from(*step));
                let (column, row) = (mcu % columns * across + block % across, mcu / columns * down + block / across);
                let stride = 8 * across * columns;
                for (i, sample) in transformed(coefficients).into_iter().enumerate() {
                    planes[c].samples[(8 * row + i / 8) * stride + 8 * column + i % 8] = sample;
                }
            }
        }
    }
    for (plane, component) in planes.iter_mut().zip(&image.components) {
        let stride = 8 * component.columns as usize * columns;
        let rows = plane.samples.chunks_exact(stride).take(plane.height);
        plane.samples = rows.flat_map(|row| row[..plane.width].iter().copied()).collect();
    }
    Some(planes)
}

/// libjpeg's accurate integer transform, for the coefficients of real images.
fn transformed(mut block: [i32; 64]) -> [u8; 64] {
    for column in 0..8 {
        transform::<11>(&mut block, column, 8);
    }
    for row in 0..8 {
        transform::<18>(&mut block, 8 * row, 1);
    }
    block.map(|value| (value.clamp(-128, 127) + 128) as u8)
}

/// Transforms eight values, as kernels/jpeg_idct.cu does.
fn transform<const SHIFT: u32>(block: &mut [i32; 64], first: usize, step: usize) {
    let value = |i: usize| block[first + i * step];
    let [in1, in2, in3, in5, in6, in7] = [1, 2, 3, 5, 6, 7].map(value);
    let (sum, difference) = ((value(0) + value(4)) * 8192, (value(0) - value(4)) * 8192);
    let (low, high) = (in2 * 10703 + in6 * 4433, in2 * 4433 - in6 * 10704);
    let even = [sum + low, difference + high, difference - high, sum - low];
    let (sum37, sum15) = (in3 + in7, in1 + in5);
    let z3 = sum37 * -6436 + sum15 * 9633;
    let z4 = sum37 * 9633 + sum15 * 6437;
    let odd = [
        in1 * 4926 - in7 * 7373 + z4,
        in3 * 4177 - in5 * 20995 + z3,
        in3 * -20995 - in5 * 4176 + z4,
        in1 * -7373 - in7 * 4927 + z3,
    ];
    for (i, (even, odd)) in even.into_iter().zip(odd).enumerate() {
        let descaled = |value: i32| (value + (1 << (SHIFT - 1))) >> SHIFT;
        block[first + i * step] = descaled(even + odd);
        block[first + (7 - i) * step] = descaled(even - odd);
    }
}
