//! Polygons as pixels, by pycocotools' rule: an outline is walked in fifths of a pixel; where it crosses the middle
//! line of a column, it toggles the pixels below.

use super::runs::set;
use crate::raster::Size;

/// Steps in a pixel.
const STEPS: i32 = 5;
/// Largest distance of a corner from the image's, in pixels: the walk along an outline takes time for each pixel.
const MAX_PX: f64 = 1e5;

/// A coordinate in fifths of a pixel: to nearest, then towards zero. `None` if it is too far away, or no number.
pub(in crate::source) fn fifths(px: f64) -> Option<i32> {
    (px.abs() <= MAX_PX).then(|| (f64::from(STEPS) * px + 0.5) as i32)
}

/// Adds the pixels of a polygon to a plane. `corners`: x and y in fifths of a pixel in turn.
pub(in crate::source) fn fill(corners: &[i32], size: Size, plane: &mut [u8]) {
    let (width, height) = (size.width as usize, size.height as usize);
    let (corners, _) = corners.as_chunks::<2>();
    let mut toggles = Vec::new();
    let mut before: Option<[i32; 2]> = None;
    let next = corners.iter().cycle().skip(1);
    for (&from, &to) in corners.iter().zip(next) {
        walk(from, to, |point| {
            if let Some(before) = before.replace(point)
                && before[0] != point[0]
            {
                let at = before[0].min(point[0]);
                let column = at.div_euclid(STEPS);
                if at.rem_euclid(STEPS) == STEPS / 2 && (0..width as i32).contains(&column) {
                    let row = (f64::from(before[1].min(point[1]) - STEPS / 2) / f64::from(STEPS)).ceil() as i32;
                    toggles.push(column as usize * height + row.clamp(0, height as i32) as usize);
                }
            }
        });
    }
    toggles.sort_unstable();
    // Pixels are inside between a toggle and the next, in the order of columns; the last one may have no next.
    for pair in toggles.chunks(2) {
        set(plane, size, pair[0]..pair.get(1).copied().unwrap_or(usize::MAX));
    }
}

/// Calls `visit` with the points of an edge, both ends among them.
fn walk([x0, y0]: [i32; 2], [x1, y1]: [i32; 2], mut visit: impl FnMut([i32; 2])) {
    let (wide, high) = ((x1 - x0).abs(), (y1 - y0).abs());
    let steps = wide.max(high);
    if steps == 0 {
        return visit([x0, y0]);
    }
    let along_x = wide >= high;
    // The slope is taken from the end with the smaller coordinate on the longer axis.
    let back = if along_x { x0 > x1 } else { y0 > y1 };
    let ([xs, ys], [xe, ye]) = if back { ([x1, y1], [x0, y0]) } else { ([x0, y0], [x1, y1]) };
    let across = |start: i32, slope: f64, step: i32| (f64::from(start) + slope * f64::from(step) + 0.5) as i32;
    for step in 0..=steps {
        let step = if back { steps - step } else { step };
        visit(if along_x {
            [xs + step, across(ys, f64::from(ye - ys) / f64::from(wide), step)]
        } else {
            [across(xs, f64::from(xe - xs) / f64::from(high), step), ys + step]
        });
    }
}
