//! The rotation kernels' sure guesses in whole numbers equal their results in doubles.

#![allow(unsafe_code)]

#[path = "../../src/ops/descriptors.rs"]
#[allow(dead_code)]
mod descriptors;
#[path = "../../src/ops/points.rs"]
mod points;
mod raster {
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Size {
        pub width: u32,
        pub height: u32,
    }
}

use cuda_sim::{Kernel, LAUNCH_BYTES, Memory};
use descriptors::{ALL_IN_DOUBT, Launch, RotateSample, SourceImage, TargetImage};
use points::FixedPoints;
use raster::Size;

const NEAREST: &str = "rotate_nearest_double_u8_nhwc";
const BILINEAR: &str = "rotate_bilinear_u8_nhwc";
const BICUBIC: &str = "rotate_bicubic_u8_nhwc";

/// A color that is in no image.
const FILL: [u8; 3] = [1, 2, 3];

/// The bytes of values without padding.
fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the value's own memory, of a struct of params.rs, which has no padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

fn upload(bytes: &[u8]) -> Memory {
    let mut memory = Memory::new(bytes.len(), 0);
    memory.bytes_mut().copy_from_slice(bytes);
    memory
}

/// Noise, gradients, and areas of one color. All values are even.
fn pixels(size: Size) -> Vec<u8> {
    let mut state = 1 + size.width * 31 + size.height;
    let mut pixels = Vec::new();
    for (y, x) in (0..size.height).flat_map(|y| (0..size.width).map(move |x| (y, x))) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let pixel = match (x / 16 + y / 16) % 3 {
            0 => state.to_le_bytes(),
            1 => [3 * x, y, 5 * x + y, 0].map(|value| value as u8),
            _ => [250, 0, 128, 0],
        };
        pixels.extend(pixel[..3].iter().map(|byte| byte & !1));
    }
    pixels
}

/// An image, and a map from a canvas of the same size.
struct Case {
    size: Size,
    matrix: [f64; 6],
    edge: bool,
}

impl Case {
    fn rotated(size: Size, degrees: f64, scale: f64, edge: bool) -> Self {
        let (sin, cos) = degrees.to_radians().sin_cos();
        let (cos, sin) = (scale * cos, scale * sin);
        let (x, y) = (f64::from(size.width) / 2.0, f64::from(size.height) / 2.0);
        let matrix = [cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y];
        Self { size, matrix, edge }
    }

    fn points(&self, kernel: &str) -> FixedPoints {
        match kernel {
            NEAREST => FixedPoints::nearest(self.matrix, self.size, self.size),
            BICUBIC => FixedPoints::bicubic(self.matrix, self.size, self.size),
            _ => FixedPoints::bilinear(self.matrix, self.size, self.size),
        }
    }

    /// The kernel's result for the pixels `input`, with `matrix` for pixels in doubt.
    fn launch(&self, input: &Memory, kernel: &str, matrix: [f64; 6], points: FixedPoints) -> Vec<u8> {
        let (Size { width, height }, FixedPoints { fixed, doubt }) = (self.size, points);
        let pitch_bytes = 3 * width;
        let output = Memory::new((pitch_bytes * height) as usize, 0);
        let [r, g, b] = FILL;
        let sample = RotateSample {
            source: SourceImage {
                pixels: input.address(),
                pitch_bytes,
                width,
                height,
                whole_width: width,
                whole_height: height,
                ..SourceImage::default()
            },
            target: TargetImage { pixels: output.address(), pitch_bytes, width, height, ..TargetImage::default() },
            matrix,
            fixed,
            fill: u32::from_le_bytes([r, g, b, 0]),
            edge: u32::from(self.edge),
            doubt,
            right: 3,
            down: pitch_bytes as i32,
            reserved: 0,
        };
        let samples = upload(bytes_of(&sample));
        let parameter = Launch { samples: samples.address(), count: 1, ..Launch::default() };
        let parameter: &[u8; LAUNCH_BYTES] = bytes_of(&parameter).try_into().unwrap();
        let grid = [width.div_ceil(32), height.div_ceil(8), 1];
        // SAFETY: all that the launch points to is there.
        unsafe { Kernel::find(kernel).unwrap().launch(grid, [32, 8, 1], parameter) }.unwrap();
        output.bytes().to_vec()
    }

    /// Compares with doubles alone. Returns the number of pixels in doubt.
    #[track_caller]
    fn in_doubt(&self, kernel: &str) -> usize {
        let points = self.points(kernel);
        assert_ne!(points.doubt, ALL_IN_DOUBT);
        let input = upload(&pixels(self.size));
        let got = self.launch(&input, kernel, self.matrix, points);
        let want = self.launch(&input, kernel, self.matrix, FixedPoints { fixed: [0; 6], doubt: ALL_IN_DOUBT });
        let differ = got.iter().zip(&want).filter(|(got, want)| got != want).count();
        assert_eq!(differ, 0, "{kernel}: {:?} {:?} edge {}", self.size, self.matrix, self.edge);
        // If only pixels in doubt use the matrix, the others can only be the fill.
        if self.edge {
            return 0;
        }
        let nowhere = self.launch(&input, kernel, [0.0, 0.0, -1e9, 0.0, 0.0, -1e9], points);
        nowhere.chunks(3).zip(got.chunks(3)).filter(|(nowhere, got)| nowhere != got).count()
    }
}

const SIZES: [(u32, u32); 10] =
    [(1, 1), (2, 1), (1, 3), (2, 2), (7, 5), (33, 65), (130, 41), (8000, 3), (2, 8000), (301, 200)];

#[test]
fn guesses_are_what_doubles_give() {
    let close = [-1e-5, -1e-9, -1e-12, 1e-12, 1e-9, 1e-7, 1e-5];
    let angles: Vec<f64> = (0..36)
        .map(|i| f64::from(i) * 10.3)
        .chain([0.0, 45.0, 90.0, 180.0].iter().flat_map(|angle| close.map(|off| angle + off)))
        .collect();
    for kernel in [BILINEAR, NEAREST, BICUBIC] {
        for (i, degrees) in angles.iter().enumerate() {
            for (width, height) in SIZES.iter().skip(i % 5).step_by(5).copied() {
                let scale = [1.0, 0.37, 7.9][i % 3];
                // Bicubic has only a color as fill.
                let cases: &[(bool, f64)] =
                    if kernel == BICUBIC { &[(false, scale)] } else { &[(false, 1.0), (true, scale)] };
                for (edge, scale) in cases {
                    Case::rotated(Size { width, height }, *degrees, *scale, *edge).in_doubt(kernel);
                }
            }
        }
    }
}

#[test]
fn few_pixels_are_in_doubt() {
    let size = Size { width: 1000, height: 600 };
    let total = 1000 * 600;
    for degrees in [-30.0, -4.7, 0.9, 17.3, 44.0, 123.4] {
        let of = |kernel| Case::rotated(size, degrees, 1.0, false).in_doubt(kernel);
        let (bilinear, bicubic, nearest) = (of(BILINEAR), of(BICUBIC), of(NEAREST));
        // About 3 channels x 2 sides x 2^-15 in bilinear's noise and gradients, fewer elsewhere.
        assert!(bilinear > 0 && bilinear < total / 4_000, "{degrees}: {bilinear}");
        // Bicubic's doubt is four times as wide, and areas of one color overshoot at their edges.
        assert!(bicubic > 0 && bicubic < total / 150, "{degrees}: {bicubic}");
        assert!(nearest < total / 100_000, "{degrees}: {nearest}");
    }
}

/// Halving puts every second value of smooth areas on a whole number, and quarter turns put points there.
#[test]
fn exact_maps_leave_nothing_in_doubt() {
    let size = Size { width: 301, height: 200 };
    for matrix in [
        [2.0, 0.0, 0.0, 0.0, 2.0, 0.0],
        [0.5, 0.0, 3.25, 0.0, 0.5, -7.0],
        [1.0, 0.0, 0.5, 0.0, 1.0, 0.0],
        [0.0, 1.0, 50.5, -1.0, 0.0, 250.5],
    ] {
        for edge in [false, true] {
            let case = Case { size, matrix, edge };
            assert_eq!(case.points(NEAREST).doubt, 0);
            assert_eq!(case.in_doubt(NEAREST), 0);
            // Points on the image's border are in doubt.
            assert!(case.in_doubt(BILINEAR) <= 2 * (301 + 200), "{matrix:?}");
        }
    }
}

#[test]
fn what_fixed_point_cannot_hold_is_all_in_doubt() {
    let size = Size { width: 40, height: 30 };
    let [small, large] = [size, Size { width: 1 << 18, height: 1 }];
    for (matrix, canvas) in [
        ([1.0, 0.0, 3e5, 0.0, 1.0, 0.0], small),
        ([1e4, 0.0, 0.0, 0.0, 1.0, 0.0], small),
        ([1.0, 0.0, f64::NAN, 0.0, 1.0, 0.0], small),
        ([1.0, 0.0, 0.0, 0.0, f64::INFINITY, 0.0], small),
        ([0.5, 0.0, 0.0, 0.0, 0.5, 0.0], large),
    ] {
        let all = [FixedPoints::bilinear, FixedPoints::bicubic, FixedPoints::nearest];
        for points in all.map(|points| points(matrix, canvas, size)) {
            assert_eq!(points, FixedPoints { fixed: [0; 6], doubt: ALL_IN_DOUBT }, "{matrix:?}");
        }
    }
}
