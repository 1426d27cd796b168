//! Rows of a view, fetched through a coordinate chain without an intermediate image.

use crate::ops::fill::opaque;
use crate::ops::turn::Exact;
use crate::plan::view::{ImageView, ShownColumns};
use crate::raster::{Image, Pixel};
use std::ops::Range;

/// Fetches rows of a view.
pub(crate) struct Gather<'a> {
    view: &'a ImageView,
    /// Whether all steps are shifts.
    is_shifted: bool,
    #[cfg(target_arch = "x86_64")]
    chain: Option<avx2::CoordinateChain>,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(view: &'a ImageView) -> Self {
        Self {
            view,
            is_shifted: view.is_shifted(),
            #[cfg(target_arch = "x86_64")]
            chain: avx2::CoordinateChain::new(view),
        }
    }

    /// Writes row `y` of the view, from column `x`, to `out`. `image` must hold the part that the view reaches.
    pub(crate) fn row(&self, image: &Image, y: u32, x: u32, out: &mut [Pixel]) {
        if self.view.steps.is_empty() {
            return mapped_row(self.view.exact, image, y, x, out);
        }
        if self.is_shifted {
            return shifted_row(self.view, image, y, x, out);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(chain) = &self.chain
            && avx2::indexable(image)
        {
            return chain.row(self.view, image, y, x, out);
        }
        chain_row(self.view, image, y, x, out);
    }
}

/// The row of a plain view as a slice of the image.
pub(crate) fn plain_row<'a>(view: &ImageView, image: &'a Image, y: u32, x: u32, width: u32) -> &'a [Pixel] {
    debug_assert!(view.is_plain_rows());
    let part = image.part();
    let column = (x as i32 + view.exact.x0) as u32 - part.x;
    let row = (y as i32 + view.exact.y0) as u32 - part.y;
    &image.row(row)[column as usize..][..width as usize]
}

/// A row of a view that consists of mirrors, turns and crops only.
fn mapped_row(exact: Exact, image: &Image, y: u32, x: u32, out: &mut [Pixel]) {
    let part = image.part();
    let (x, y) = (x as i32, y as i32);
    let column = exact.xx * x + exact.xy * y + exact.x0 - part.x as i32;
    let row = exact.yx * x + exact.yy * y + exact.y0 - part.y as i32;
    let len = out.len();
    match (exact.xx, exact.yx) {
        (1, _) => out.copy_from_slice(&image.row(row as u32)[column as usize..][..len]),
        (-1, _) => {
            let source = &image.row(row as u32)[..=column as usize];
            out.iter_mut().zip(source.iter().rev()).for_each(|(out, pixel)| *out = *pixel);
        }
        (_, step) => {
            let width = part.width as usize;
            let start = row as usize * width + column as usize;
            let pixels = image.pixels();
            if step > 0 {
                out.iter_mut().zip(pixels[start..].iter().step_by(width)).for_each(|(out, pixel)| *out = *pixel);
            } else {
                let column = pixels[..=start].iter().rev().step_by(width);
                out.iter_mut().zip(column).for_each(|(out, pixel)| *out = *pixel);
            }
        }
    }
}

/// A row of a view whose steps are all shifts.
fn shifted_row(view: &ImageView, image: &Image, y: u32, x: u32, out: &mut [Pixel]) {
    let len = out.len();
    let fill = |columns: Range<usize>, color| out[columns].fill(opaque(color));
    if let Some(ShownColumns { columns, y, map }) = view.shown(y, x, len, fill) {
        let first = columns.start as u32;
        mapped_row(map, image, y as u32, first, &mut out[columns]);
    }
}

/// The specification of chains with steps: maps each pixel's coordinates back, one step at a time.
fn chain_row(view: &ImageView, image: &Image, y: u32, x: u32, out: &mut [Pixel]) {
    let part = image.part();
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
                image.row(row)[column as usize]
            }
        };
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2 {
    use super::{Image, ImageView, Pixel};
    use crate::plan::view::ViewStep;
    use std::arch::x86_64::*;

    /// Number of vectors that are processed together, so that the latencies of their multiplications overlap.
    const VECTORS: usize = 4;
    const LANES: usize = 8;
    const BLOCK: usize = VECTORS * LANES;
    /// The color outside of an image, including the fourth byte of a pixel.
    type Color = i32;

    /// Whether the image's pixels can be indexed by a signed 32-bit number.
    pub(super) fn indexable(image: &Image) -> bool {
        i32::try_from(image.pixels().len()).is_ok()
    }

    /// A chain of steps prepared for vectors.
    pub(super) enum CoordinateChain {
        /// Steps near the identity or a mirror, all with one color.
        Small(Vec<SmallStep>, Color),
        /// Any steps.
        Any,
    }

    /// A step whose linear part is a diagonal of 1 or -1 plus a remainder that fits 16 bits.
    ///
    /// A coordinate pair is one 32-bit lane, x in the lower half. Multiples of 65536 pass through the shift by 16, so
    /// `x' = +-x + ((r0 x + r1 y + a2) >> 16)`; and because `x'` fits 16 bits, it does not matter that sums wrap.
    #[derive(Clone, Copy)]
    pub(super) struct SmallStep {
        /// The remainders r0 and r1, and r3 and r4, each pair in one lane.
        remainder_x: i32,
        remainder_y: i32,
        /// The offsets a2 and a5.
        offset_x: i32,
        offset_y: i32,
        /// The signs of the diagonal, in one lane.
        signs: i32,
        /// Last column and last row, in one lane.
        last: i32,
    }

    fn pair(low: i32, high: i32) -> i32 {
        low & 0xffff | high << 16
    }

    impl SmallStep {
        /// `None` if the remainders do not fit.
        fn new(step: &ViewStep) -> Option<Self> {
            let [a0, a1, a2, a3, a4, a5] = step.a;
            let (sign_x, sign_y) = (a0.signum(), a4.signum());
            let (r0, r4) = (a0 - (sign_x << 16), a4 - (sign_y << 16));
            let fits = [r0, a1, a3, r4].into_iter().all(|r| i16::try_from(r).is_ok());
            (fits && sign_x != 0 && sign_y != 0).then(|| Self {
                remainder_x: pair(r0, a1),
                remainder_y: pair(a3, r4),
                offset_x: a2,
                offset_y: a5,
                signs: pair(sign_x, sign_y),
                last: pair(step.bounds.width as i32 - 1, step.bounds.height as i32 - 1),
            })
        }
    }

    impl CoordinateChain {
        /// `None` without AVX2.
        pub(super) fn new(view: &ImageView) -> Option<Self> {
            if !crate::simd::has_avx2() {
                return None;
            }
            let one_fill = view.steps.windows(2).all(|pair| pair[0].fill == pair[1].fill);
            let small: Option<Vec<_>> = view.steps.iter().map(SmallStep::new).collect();
            Some(match (small, view.steps.first()) {
                (Some(steps), Some(first)) if one_fill => Self::Small(steps, color(first)),
                _ => Self::Any,
            })
        }

        /// The result is that of the plain `chain_row`.
        pub(super) fn row(&self, view: &ImageView, image: &Image, y: u32, x: u32, out: &mut [Pixel]) {
            let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
            let mut column = x as i32;
            for block in blocks {
                // SAFETY: a chain exists only if the processor has AVX2; the caller has checked that the pixels are
                // indexable.
                unsafe { self.block(view, image, y as i32, column, block) };
                column += BLOCK as i32;
            }
            if !rest.is_empty() {
                let mut block = [[0; 4]; BLOCK];
                // SAFETY: as above.
                unsafe { self.block(view, image, y as i32, column, &mut block) };
                rest.copy_from_slice(&block[..rest.len()]);
            }
        }

        /// # Safety
        /// The image's number of pixels must fit an `i32`.
        #[target_feature(enable = "avx2")]
        unsafe fn block(&self, view: &ImageView, image: &Image, y: i32, x: i32, out: &mut [Pixel; BLOCK]) {
            let walks = match self {
                Self::Small(steps, color) => small_walk(steps, *color, y, x),
                Self::Any => any_walk(&view.steps, y, x),
            };
            // SAFETY: this function's contract.
            unsafe { fetch(view, image, &walks, out) };
        }
    }

    fn color(step: &ViewStep) -> Color {
        i32::from_le_bytes([step.fill[0], step.fill[1], step.fill[2], 255])
    }

    /// The source coordinates of eight pixels, which of them are still inside, and the color of the others.
    #[derive(Clone, Copy)]
    struct Walk {
        x: __m256i,
        y: __m256i,
        inside: __m256i,
        color: __m256i,
    }

    #[target_feature(enable = "avx2")]
    fn small_walk(steps: &[SmallStep], color: Color, y: i32, x: i32) -> [Walk; VECTORS] {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let first = _mm256_add_epi32(lanes, _mm256_set1_epi32(pair(x, y)));
        let mut pairs = [first; VECTORS];
        for (i, pair) in pairs.iter_mut().enumerate() {
            *pair = _mm256_add_epi16(first, _mm256_set1_epi32((i * LANES) as i32));
        }
        let mut inside = [_mm256_set1_epi32(-1); VECTORS];
        for step in steps {
            let remainder_x = _mm256_set1_epi32(step.remainder_x);
            let remainder_y = _mm256_set1_epi32(step.remainder_y);
            let offset_x = _mm256_set1_epi32(step.offset_x);
            let offset_y = _mm256_set1_epi32(step.offset_y);
            let signs = _mm256_set1_epi32(step.signs);
            let last = _mm256_set1_epi32(step.last);
            for (pair, inside) in pairs.iter_mut().zip(&mut inside) {
                let x = _mm256_add_epi32(_mm256_madd_epi16(*pair, remainder_x), offset_x);
                let y = _mm256_add_epi32(_mm256_madd_epi16(*pair, remainder_y), offset_y);
                // The upper halves of both; x goes to the lower half.
                let moved = _mm256_blend_epi16::<0b1010_1010>(_mm256_srli_epi32::<16>(x), y);
                *pair = _mm256_add_epi16(moved, _mm256_sign_epi16(*pair, signs));
                let at_most = _mm256_cmpeq_epi16(_mm256_min_epu16(*pair, last), *pair);
                *inside = _mm256_and_si256(*inside, at_most);
            }
        }
        let color = _mm256_set1_epi32(color);
        let mut walks = [Walk { x: first, y: first, inside: first, color }; VECTORS];
        for ((walk, pair), inside) in walks.iter_mut().zip(pairs).zip(inside) {
            walk.x = _mm256_and_si256(pair, _mm256_set1_epi32(0xffff));
            walk.y = _mm256_srli_epi32::<16>(pair);
            // Both halves of a lane must be inside.
            walk.inside = _mm256_cmpeq_epi32(inside, _mm256_set1_epi32(-1));
        }
        walks
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
    fn any_walk(steps: &[ViewStep], y: i32, x: i32) -> [Walk; VECTORS] {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let all = _mm256_set1_epi32(-1);
        let mut walks =
            [Walk { x: lanes, y: _mm256_set1_epi32(y), inside: all, color: _mm256_setzero_si256() }; VECTORS];
        for (i, walk) in walks.iter_mut().enumerate() {
            walk.x = _mm256_add_epi32(lanes, _mm256_set1_epi32(x + (i * LANES) as i32));
        }
        for step in steps {
            let a = step.a.map(|a| _mm256_set1_epi32(a));
            let last_column = _mm256_set1_epi32(step.bounds.width as i32 - 1);
            let last_row = _mm256_set1_epi32(step.bounds.height as i32 - 1);
            let fill = _mm256_set1_epi32(color(step));
            for walk in &mut walks {
                let x = _mm256_srai_epi32::<16>(linear(a[0], a[1], a[2], walk.x, walk.y));
                let y = _mm256_srai_epi32::<16>(linear(a[3], a[4], a[5], walk.x, walk.y));
                let inside = _mm256_and_si256(at_most(x, last_column), at_most(y, last_row));
                // A pixel gets the color of the first step at which it leaves the image; for later steps it is outside
                // already.
                let leaves = _mm256_andnot_si256(inside, walk.inside);
                walk.color = _mm256_blendv_epi8(walk.color, fill, leaves);
                walk.inside = _mm256_and_si256(walk.inside, inside);
                (walk.x, walk.y) = (x, y);
            }
        }
        walks
    }

    /// Reads the pixels that are inside.
    ///
    /// # Safety
    /// The image's number of pixels must fit an `i32`.
    #[target_feature(enable = "avx2")]
    unsafe fn fetch(view: &ImageView, image: &Image, walks: &[Walk; VECTORS], out: &mut [Pixel; BLOCK]) {
        let (part, e) = (image.part(), view.exact);
        let exact = [e.xx, e.xy, e.x0 - part.x as i32, e.yx, e.yy, e.y0 - part.y as i32].map(|v| _mm256_set1_epi32(v));
        let last_column = _mm256_set1_epi32(part.width as i32 - 1);
        let last_row = _mm256_set1_epi32(part.height as i32 - 1);
        let width = _mm256_set1_epi32(part.width as i32);
        let pixels = image.pixels().as_ptr().cast::<i32>();
        let (vectors, _) = out.as_chunks_mut::<LANES>();
        for (walk, out) in walks.iter().zip(vectors) {
            let column = linear(exact[0], exact[1], exact[2], walk.x, walk.y);
            let row = linear(exact[3], exact[4], exact[5], walk.x, walk.y);
            let stored = _mm256_and_si256(at_most(column, last_column), at_most(row, last_row));
            let inside = _mm256_and_si256(walk.inside, stored);
            let index = _mm256_add_epi32(_mm256_mullo_epi32(row, width), column);
            // Single loads are faster than a gather, if all pixels are inside.
            if _mm256_movemask_epi8(inside) == -1 {
                let mut indices = [0_u32; LANES];
                // SAFETY: `indices` is 8 numbers of 4 bytes; the store needs no alignment.
                unsafe { _mm256_storeu_si256(indices.as_mut_ptr().cast(), index) };
                for (out, index) in out.iter_mut().zip(indices) {
                    // SAFETY: all lanes have 0 <= column < width and 0 <= row < height of the stored image.
                    *out = unsafe { *image.pixels().get_unchecked(index as usize) };
                }
                continue;
            }
            // SAFETY: lanes that are read have 0 <= column < width and 0 <= row < height of the stored image, so the
            // index is below the number of pixels, which fits an i32 (this function's contract); the others are masked.
            let color = unsafe { _mm256_mask_i32gather_epi32::<4>(walk.color, pixels, index, inside) };
            // SAFETY: `out` is 8 pixels of 4 bytes; the store needs no alignment.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), color) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::fill::Fill;
    use crate::ops::filter::PassOrder;
    use crate::ops::{Crop, Hflip, Op, Rotate, Vflip};
    use crate::plan::{Last, Planner, Strategy};
    use crate::raster::Size;

    fn rotate(degrees: f64, expand: bool, fill: [u8; 3]) -> Op {
        Rotate::new(degrees).expand(expand).fill(Fill::Color(fill)).into()
    }

    /// Compares every row of a view of `ops` with the plain specification, and runs of columns of it.
    fn check(ops: &[Op], is_shifted: bool) {
        let size = Size::new(53, 37);
        let planner = Planner { strategy: Strategy::Fused, order: PassOrder::default(), max_px: 1 << 20, values: None };
        let plan = planner.plan_one(ops, size).unwrap();
        assert!(plan.stages.is_empty());
        let mut image = Image::new(size);
        image.reset_part(size, plan.decode);
        for (i, pixel) in image.pixels_mut().iter_mut().enumerate() {
            *pixel = [i as u8, (i >> 8) as u8, (i * 7) as u8, 255];
        }
        let Last::View(view) = plan.last else { panic!("{:?}", plan.last) };
        let gather = Gather::new(&view);
        assert_eq!(gather.is_shifted, is_shifted);
        let width = view.size.width as usize;
        for y in 0..view.size.height {
            let mut want = vec![[0; 4]; width];
            chain_row(&view, &image, y, 0, &mut want);
            for from in [0, 1, width / 2] {
                let mut got = vec![[0; 4]; width - from];
                gather.row(&image, y, from as u32, &mut got);
                assert_eq!(got, want[from..], "row {y} from column {from}");
            }
        }
    }

    #[test]
    fn vectors_equal_the_plain_walk_for_any_steps() {
        check(
            &[
                Hflip.into(),
                rotate(17.0, false, [1, 2, 3]),
                Vflip.into(),
                rotate(-40.0, true, [4, 5, 6]),
                Crop::new(-5, 3, Size::new(70, 50)).fill(Fill::Color([7, 8, 9])).into(),
                rotate(3.0, false, [10, 11, 12]),
            ],
            false,
        );
    }

    #[test]
    fn vectors_equal_the_plain_walk_for_small_steps() {
        let fill = [9, 8, 7];
        check(
            &[
                Hflip.into(),
                rotate(5.0, false, fill),
                Vflip.into(),
                rotate(-29.0, true, fill),
                Hflip.into(),
                Vflip.into(),
            ],
            false,
        );
        check(&[rotate(175.0, false, fill), rotate(-2.5, false, fill), Hflip.into(), rotate(0.01, true, fill)], false);
    }

    #[test]
    fn runs_of_shifts_equal_the_plain_walk() {
        let crop = |x, y, width, height, fill| -> Op {
            Crop::new(x, y, Size::new(width, height)).fill(Fill::Color(fill)).into()
        };
        for first in [None, Some(Hflip.into()), Some(rotate(90.0, true, [0; 3]))] {
            let mut ops: Vec<Op> = first.into_iter().collect();
            ops.push(crop(-5, 3, 70, 50, [1, 2, 3]));
            check(&ops, true);
            ops.extend([Hflip.into(), crop(-9, -4, 90, 80, [4, 5, 6]), Vflip.into()]);
            check(&ops, true);
            ops.extend([crop(20, 41, 60, 70, [7, 8, 9]), crop(3, -80, 61, 90, [10, 11, 12])]);
            check(&ops, true);
        }
        // Nothing of the image is left. Mirrored, this is a case for the walk.
        let beside = crop(-80, 0, 70, 30, [1, 2, 3]);
        check(std::slice::from_ref(&beside), true);
        check(&[beside, Hflip.into()], false);
    }
}
