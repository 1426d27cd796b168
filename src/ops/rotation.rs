//! The geometry of a rotation: its matrix, its canvas, and the angles that only transpose or mirror. If the fill is a
//! color, this is Pillow's `Image.rotate`; if it is [`Fill::EDGE`], DALI's `fn.rotate`.

use super::fill::Fill;
use super::turn::Turn;
use crate::raster::Size;

/// The effect of a rotation by a given angle on an image of a given size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rotation {
    /// The image does not change.
    None,
    /// An exact turn by a multiple of 90 degrees.
    Turn(Turn),
    /// Any other rotation: output pixel center (x + 0.5, y + 0.5) comes from `(m0 x + m1 y + m2, m3 x + m4 y + m5)`.
    Free {
        /// Map from output to input, row by row.
        matrix: [f64; 6],
        /// Size of the output.
        canvas: Size,
    },
}

impl Rotation {
    /// The rotation of an image of size `input` by `degrees` counter-clockwise, about `center`. Default: the image's
    /// center.
    ///
    /// If a center is given, Pillow samples at every angle, even at multiples of 90 degrees.
    pub(crate) fn new(input: Size, degrees: f64, expand: bool, fill: Fill, center: Option<[f64; 2]>) -> Self {
        let angle = degrees.rem_euclid(360.0);
        let square = input.width == input.height;
        if center.is_none() {
            if angle == 0.0 || angle == 360.0 {
                return Self::None;
            }
            if angle == 180.0 {
                return Self::Turn(Turn::Half);
            }
            if angle == 90.0 && (expand || square) {
                return Self::Turn(Turn::Quarter);
            }
            if angle == 270.0 && (expand || square) {
                return Self::Turn(Turn::ThreeQuarters);
            }
        }
        let radians = -(angle * (std::f64::consts::PI / 180.0));
        let (cos, sin) = (round_15(libm::cos(radians)), round_15(libm::sin(radians)));
        let (w, h) = (f64::from(input.width), f64::from(input.height));
        let map = |m: [f64; 6], x: f64, y: f64| (m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]);
        let mut matrix = [cos, sin, 0.0, -sin, cos, 0.0];
        if fill == Fill::EDGE {
            let canvas = if expand { dali_canvas(input, cos, sin) } else { input };
            let (cx, cy) = map(matrix, -0.5 * f64::from(canvas.width), -0.5 * f64::from(canvas.height));
            (matrix[2], matrix[5]) = (cx + 0.5 * w, cy + 0.5 * h);
            return Self::Free { matrix, canvas };
        }
        let [cx, cy] = center.unwrap_or([w / 2.0, h / 2.0]);
        (matrix[2], matrix[5]) = map(matrix, -cx, -cy);
        matrix[2] += cx;
        matrix[5] += cy;
        let mut canvas = input;
        if expand {
            let corners = [(0.0, 0.0), (w, 0.0), (w, h), (0.0, h)].map(|(x, y)| map(matrix, x, y));
            let extent = |values: [f64; 4]| {
                let max = values.into_iter().fold(f64::NEG_INFINITY, f64::max);
                let min = values.into_iter().fold(f64::INFINITY, f64::min);
                max.ceil() - min.floor()
            };
            let (nw, nh) = (extent(corners.map(|c| c.0)), extent(corners.map(|c| c.1)));
            (matrix[2], matrix[5]) = map(matrix, -(nw - w) / 2.0, -(nh - h) / 2.0);
            canvas = Size::new(nw as u32, nh as u32);
        }
        if matrix == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0] && canvas == input {
            return Self::None;
        }
        Self::Free { matrix, canvas }
    }

    /// Size of the output for an image of size `input`.
    pub(crate) fn canvas(self, input: Size) -> Size {
        match self {
            Self::None => input,
            Self::Turn(turn) => turn.output_size(input),
            Self::Free { canvas, .. } => canvas,
        }
    }
}

/// DALI's canvas: the bounding box less a tolerance. Each side has the parity of the input side that it comes from, so
/// that the center stays on the pixel grid.
fn dali_canvas(input: Size, cos: f64, sin: f64) -> Size {
    const TOLERANCE_PX: f64 = 0.01;
    let (cos, sin) = (cos.abs(), sin.abs());
    let (w, h) = (f64::from(input.width), f64::from(input.height));
    let side = |length: f64, parity_of: u32| {
        let side = (length - TOLERANCE_PX).ceil() as u32;
        side + (side ^ parity_of) % 2
    };
    let (like_x, like_y) = if sin <= cos { (input.width, input.height) } else { (input.height, input.width) };
    Size::new(side(cos * w + sin * h, like_x), side(sin * w + cos * h, like_y))
}

/// Python's `round(value, 15)`: the nearest decimal of 15 places, then the nearest double to that decimal.
fn round_15(value: f64) -> f64 {
    // Formatting rounds the exact binary value, ties to even. Parsing is exact and cannot fail.
    format!("{value:.15}").parse().unwrap_or(value)
}

/// The matrix in 16.16 fixed point, as Pillow's nearest sampling uses it. `None` where Pillow adds up doubles instead:
/// if the matrix only scales, or if a coordinate of the canvas' corners would not fit.
pub(crate) fn fixed_point(matrix: [f64; 6], canvas: Size) -> Option<[i32; 6]> {
    let m = matrix;
    if m[1] == 0.0 && m[3] == 0.0 {
        return None;
    }
    let fits =
        |x: f64, y: f64| (x * m[0] + y * m[1] + m[2]).abs() < 32768.0 && (x * m[3] + y * m[4] + m[5]).abs() < 32768.0;
    let (right, bottom) = (f64::from(canvas.width) - 1.0, f64::from(canvas.height) - 1.0);
    if ![(0.0, 0.0), (right, bottom), (0.0, bottom), (right, 0.0)].into_iter().all(|(x, y)| fits(x, y)) {
        return None;
    }
    let fix = |v: f64| (v * 65536.0 + 0.5).floor() as i32;
    Some([
        fix(m[0]),
        fix(m[1]),
        fix(m[2] + m[0] * 0.5 + m[1] * 0.5),
        fix(m[3]),
        fix(m[4]),
        fix(m[5] + m[3] * 0.5 + m[4] * 0.5),
    ])
}
