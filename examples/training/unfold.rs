//! Doubles the sides of features by splitting channels, as transposed convolutions do. candle would copy value by
//! value.

use crate::training::layers::{values, with_values};
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

/// Makes four channels one of twice the sides: `[4 * C, N * H * W]` becomes `[C, N, 2 * H, 2 * W]`, where these are N,
/// H and W.
pub struct Unfold(pub [usize; 3]);

impl Unfold {
    /// The places of each row of the result: the first ones of its even and of its odd values in the four channels, and
    /// its own first one.
    fn rows(&self, channels: usize) -> impl Iterator<Item = ([usize; 2], usize)> {
        let Self([n, height, width]) = *self;
        let rows = (0..channels * n).flat_map(move |plane| (0..2 * height).map(move |y| (plane, y)));
        rows.enumerate().map(move |(row, (plane, y))| {
            let (channel, image) = (plane / n, plane % n);
            let first = |quarter| (((4 * channel + quarter) * n + image) * height + y / 2) * width;
            ([first(2 * (y % 2)), first(2 * (y % 2) + 1)], row * 2 * width)
        })
    }
}

impl CustomOp1 for Unfold {
    fn name(&self) -> &'static str {
        "unfold"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let Self([n, height, width]) = *self;
        let (channels, x) = (layout.shape().dims2()?.0 / 4, values(x, layout)?);
        let mut y = vec![0.0; x.len()];
        for ([even, odd], to) in self.rows(channels) {
            let (pairs, _) = y[to..to + 2 * width].as_chunks_mut::<2>();
            let values = x[even..even + width].iter().zip(&x[odd..odd + width]);
            pairs.iter_mut().zip(values).for_each(|(pair, (even, odd))| *pair = [*even, *odd]);
        }
        Ok((CpuStorage::F32(y), (channels, n, 2 * height, 2 * width).into()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let Self([_, _, width]) = *self;
        let (channels, mut of_x) = (x.dims2()?.0 / 4, vec![0.0; x.elem_count()]);
        with_values(&gradient.contiguous()?, |gradient| {
            for ([even, odd], from) in self.rows(channels) {
                let (pairs, _) = gradient[from..from + 2 * width].as_chunks::<2>();
                of_x[even..even + width].iter_mut().zip(pairs).for_each(|(x, pair)| *x = pair[0]);
                of_x[odd..odd + width].iter_mut().zip(pairs).for_each(|(x, pair)| *x = pair[1]);
            }
        })?;
        Ok(Some(Tensor::from_vec(of_x, x.shape(), x.device())?))
    }
}
