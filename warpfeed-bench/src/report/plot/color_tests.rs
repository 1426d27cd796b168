//! Tests of the plots' colors.

use super::drawing::*;

/// Linear red, green and blue of a color.
fn linear(color: &str) -> [f64; 3] {
    [1, 3, 5].map(|at| {
        let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    })
}

fn times(matrix: [[f64; 3]; 3], vector: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
}

/// Contrast as WCAG 2.2 defines it.
fn contrast(a: &str, b: &str) -> f64 {
    let [a, b] = [a, b].map(|color| times([[0.2126, 0.7152, 0.0722]; 3], linear(color))[0] + 0.05);
    a.max(b) / a.min(b)
}

/// CIELAB (D65) of linear red, green and blue.
fn lab(rgb: [f64; 3]) -> [f64; 3] {
    let xyz = times([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], rgb);
    let f = |t: f64| if t > 216.0 / 24_389.0 { t.cbrt() } else { (24_389.0 / 27.0 * t + 16.0) / 116.0 };
    let [x, y, z] = [f(xyz[0] / 0.950_47), f(xyz[1]), f(xyz[2] / 1.088_83)];
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// Contrasts must satisfy WCAG 2.2. Distances of colors are computed in CIELAB as color-blind people see them,
/// simulated with the matrices of Machado, Oliveira and Fernandes (2009) at full severity.
#[test]
fn colors_stand_out_and_are_told_apart_with_any_color_vision() {
    let all = [&COLORS[..], &[PUBLISHED]].concat();
    for color in all.iter().copied().chain([BESIDE]) {
        assert!(contrast(color, "#ffffff") >= 3.0, "{color}");
    }
    for (text, ground) in [(TEXT, "#ffffff"), (TEXT, "#eef4fb"), (TEXT, "#f4f4f4"), ("#444444", "#ffffff")] {
        assert!(contrast(text, ground) >= 4.5, "{text} on {ground}");
    }
    assert!(contrast(AXIS, "#ffffff") >= 3.0);
    let visions = [
        ("all", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
        ),
        (
            "deuteranopia",
            [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_820, 0.042_940, 0.968_881]],
        ),
        (
            "tritanopia",
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        ),
    ];
    for (vision, matrix) in visions {
        let seen: Vec<_> =
            all.iter().map(|color| lab(times(matrix, linear(color)).map(|value| value.clamp(0.0, 1.0)))).collect();
        for (i, a) in seen.iter().enumerate() {
            for (j, b) in seen.iter().enumerate().skip(i + 1) {
                let distance = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
                assert!(distance >= 20.0, "{} and {} with {vision}: {distance:.1}", all[i], all[j]);
            }
        }
    }
}
