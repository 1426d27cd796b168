//! Rows of a view: output pixels fetched through a coordinate chain, with no intermediate picture.

use crate::picture::{Picture, Pixel};
use crate::recipe::lower::{Exact, View};

/// Row `y` of `view`, columns `x` onwards, as seen on `picture` (or the part of it that the view reaches).
pub(crate) fn row(view: &View, picture: &Picture, y: u32, x: u32, out: &mut [Pixel]) {
    if view.steps.is_empty() {
        return mapped_row(view.exact, picture, y, x, out);
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && avx2::indexable(picture) {
        return avx2::chain_row(view, picture, y, x, out);
    }
    chain_row(view, picture, y, x, out);
}

/// The row of a plain view as a slice of the picture.
pub(crate) fn plain_row<'a>(view: &View, picture: &'a Picture, y: u32, x: u32, width: u32) -> &'a [Pixel] {
    debug_assert!(view.is_plain_rows());
    let part = picture.part();
    let column = (x as i32 + view.exact.x0) as u32 - part.x;
    let row = (y as i32 + view.exact.y0) as u32 - part.y;
    &picture.row(row)[column as usize..][..width as usize]
}

/// A row seen through mirrors, turns and crops alone.
fn mapped_row(exact: Exact, picture: &Picture, y: u32, x: u32, out: &mut [Pixel]) {
    let part = picture.part();
    let (x, y) = (x as i32, y as i32);
    let column = exact.xx * x + exact.xy * y + exact.x0 - part.x as i32;
    let row = exact.yx * x + exact.yy * y + exact.y0 - part.y as i32;
    let len = out.len();
    match (exact.xx, exact.yx) {
        (1, _) => out.copy_from_slice(&picture.row(row as u32)[column as usize..][..len]),
        (-1, _) => {
            let source = &picture.row(row as u32)[..=column as usize];
            out.iter_mut().zip(source.iter().rev()).for_each(|(out, pixel)| *out = *pixel);
        }
        (_, step) => {
            let width = part.width as usize;
            let start = row as usize * width + column as usize;
            let pixels = picture.pixels();
            if step > 0 {
                out.iter_mut().zip(pixels[start..].iter().step_by(width)).for_each(|(out, pixel)| *out = *pixel);
            } else {
                let column = pixels[..=start].iter().rev().step_by(width);
                out.iter_mut().zip(column).for_each(|(out, pixel)| *out = *pixel);
            }
        }
    }
}

/// The specification of [`row`] for chains with steps: walks each pixel's coordinates back, a step at a time.
fn chain_row(view: &View, picture: &Picture, y: u32, x: u32, out: &mut [Pixel]) {
    let part = picture.part();
    for (column, out) in (x as i32..).zip(out.iter_mut()) {
        let (mut x, mut y) = (column, y as i32);
        let outside = view.steps.iter().find(|step| {
            let a = step.a;
            let along =
                |a0: i32, a1: i32, a2: i32| a0.wrapping_mul(x).wrapping_add(a1.wrapping_mul(y)).wrapping_add(a2) >> 16;
            (x, y) = (along(a[0], a[1], a[2]), along(a[3], a[4], a[5]));
            x as u32 >= step.bounds.width || y as u32 >= step.bounds.height
        });
        *out = match outside {
            Some(step) => [step.fill[0], step.fill[1], step.fill[2], 255],
            None => {
                let e = view.exact;
                let column = (e.xx * x + e.xy * y + e.x0) as u32 - part.x;
                let row = (e.yx * x + e.yy * y + e.y0) as u32 - part.y;
                picture.row(row)[column as usize]
            }
        };
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2 {
    use super::{Picture, Pixel, View};
    use crate::recipe::lower::Step;
    use std::arch::x86_64::*;

    /// Vectors walked side by side, so that one's multiplications hide another's.
    const VECTORS: usize = 2;
    const LANES: usize = 8;
    const BLOCK: usize = VECTORS * LANES;

    /// Whether the picture's pixels can be indexed by a signed 32-bit number.
    pub(super) fn indexable(picture: &Picture) -> bool {
        i32::try_from(picture.pixels().len()).is_ok()
    }

    /// As the plain `chain_row`.
    pub(super) fn chain_row(view: &View, picture: &Picture, y: u32, x: u32, out: &mut [Pixel]) {
        let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
        let mut column = x as i32;
        for block in blocks {
            // SAFETY: the caller has seen that the processor has AVX2 and that the pixels are indexable.
            unsafe { chain_block(view, picture, y as i32, column, block) };
            column += BLOCK as i32;
        }
        if !rest.is_empty() {
            let mut block = [[0; 4]; BLOCK];
            // SAFETY: as above.
            unsafe { chain_block(view, picture, y as i32, column, &mut block) };
            rest.copy_from_slice(&block[..rest.len()]);
        }
    }

    /// Where eight pixels come from, which of them are still inside, and what the others show.
    #[derive(Clone, Copy)]
    struct Walk {
        x: __m256i,
        y: __m256i,
        inside: __m256i,
        color: __m256i,
    }

    /// `unsigned value <= limit`, lane by lane.
    #[target_feature(enable = "avx2")]
    fn at_most(value: __m256i, limit: __m256i) -> __m256i {
        _mm256_cmpeq_epi32(_mm256_min_epu32(value, limit), value)
    }

    #[target_feature(enable = "avx2")]
    fn linear(a0: __m256i, a1: __m256i, a2: __m256i, x: __m256i, y: __m256i) -> __m256i {
        _mm256_add_epi32(_mm256_add_epi32(_mm256_mullo_epi32(a0, x), _mm256_mullo_epi32(a1, y)), a2)
    }

    #[target_feature(enable = "avx2")]
    fn step_back(step: &Step, walks: &mut [Walk; VECTORS]) {
        let a = step.a.map(|a| _mm256_set1_epi32(a));
        let last_column = _mm256_set1_epi32(step.bounds.width as i32 - 1);
        let last_row = _mm256_set1_epi32(step.bounds.height as i32 - 1);
        let fill = _mm256_set1_epi32(i32::from_le_bytes([step.fill[0], step.fill[1], step.fill[2], 255]));
        for walk in walks {
            let x = _mm256_srai_epi32::<16>(linear(a[0], a[1], a[2], walk.x, walk.y));
            let y = _mm256_srai_epi32::<16>(linear(a[3], a[4], a[5], walk.x, walk.y));
            let inside = _mm256_and_si256(at_most(x, last_column), at_most(y, last_row));
            // The colour of the first step that a pixel leaves the picture at: later ones find it outside already.
            let leaves = _mm256_andnot_si256(inside, walk.inside);
            walk.color = _mm256_blendv_epi8(walk.color, fill, leaves);
            walk.inside = _mm256_and_si256(walk.inside, inside);
            (walk.x, walk.y) = (x, y);
        }
    }

    /// # Safety
    /// The picture's number of pixels must fit an `i32`.
    #[target_feature(enable = "avx2")]
    unsafe fn chain_block(view: &View, picture: &Picture, y: i32, x: i32, out: &mut [Pixel; BLOCK]) {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mut walks =
            [Walk { x: lanes, y: _mm256_set1_epi32(y), inside: _mm256_set1_epi32(-1), color: _mm256_setzero_si256() };
                VECTORS];
        for (i, walk) in walks.iter_mut().enumerate() {
            walk.x = _mm256_add_epi32(lanes, _mm256_set1_epi32(x + (i * LANES) as i32));
        }
        for step in &view.steps {
            step_back(step, &mut walks);
        }
        let (part, e) = (picture.part(), view.exact);
        let exact = [e.xx, e.xy, e.x0 - part.x as i32, e.yx, e.yy, e.y0 - part.y as i32].map(|v| _mm256_set1_epi32(v));
        let last_column = _mm256_set1_epi32(part.width as i32 - 1);
        let last_row = _mm256_set1_epi32(part.height as i32 - 1);
        let width = _mm256_set1_epi32(part.width as i32);
        let pixels = picture.pixels().as_ptr().cast::<i32>();
        let (vectors, _) = out.as_chunks_mut::<LANES>();
        for (walk, out) in walks.iter().zip(vectors) {
            let column = linear(exact[0], exact[1], exact[2], walk.x, walk.y);
            let row = linear(exact[3], exact[4], exact[5], walk.x, walk.y);
            let stored = _mm256_and_si256(at_most(column, last_column), at_most(row, last_row));
            let inside = _mm256_and_si256(walk.inside, stored);
            let index = _mm256_add_epi32(_mm256_mullo_epi32(row, width), column);
            // SAFETY: lanes that are read have 0 <= column < width and 0 <= row < height of what is stored, so the
            // index is below the number of pixels, which fits an i32 (the caller's promise); the others are masked.
            let color = unsafe { _mm256_mask_i32gather_epi32::<4>(walk.color, pixels, index, inside) };
            // SAFETY: `out` is 8 pixels of 4 bytes; the store needs no alignment.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), color) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Rect, Size};
    use crate::recipe::lower::{Geometry, plan};
    use crate::recipe::op::{Fill, Interpolation, Op};

    #[test]
    fn vectors_equal_the_plain_walk() {
        let size = Size::new(53, 37);
        let mut picture = Picture::new(size);
        for (i, pixel) in picture.pixels_mut().iter_mut().enumerate() {
            *pixel = [i as u8, (i >> 8) as u8, (i * 7) as u8, 255];
        }
        let rotate = |degrees, expand, fill| Op::Rotate {
            degrees,
            interpolation: Interpolation::Nearest,
            expand,
            fill: Fill::Color(fill),
        };
        let ops = [
            Op::Hflip,
            rotate(17.0, false, [1, 2, 3]),
            Op::Vflip,
            rotate(-40.0, true, [4, 5, 6]),
            Op::Crop { x: -5, y: 3, width: 70, height: 50, fill: Fill::Color([7, 8, 9]) },
            rotate(3.0, false, [10, 11, 12]),
        ];
        let plan = plan(&ops, size, 1 << 20, Geometry::Exact).unwrap();
        assert!(plan.stages.is_empty());
        assert_eq!(plan.decode, Rect::full(size));
        let view = plan.last;
        for y in 0..view.size.height {
            let mut want = vec![[0; 4]; view.size.width as usize];
            let mut got = want.clone();
            chain_row(&view, &picture, y, 0, &mut want);
            row(&view, &picture, y, 0, &mut got);
            assert_eq!(got, want, "row {y}");
        }
    }
}
