//! A small network for images like MNIST's, as in posts on data loading.

use super::candle::Network;
use super::weights::Weights;
use candle_core::{Device, Result, Tensor, Var, bail};

const CHANNELS: [usize; 2] = [20, 50];
const KERNEL_PX: usize = 5;
const HIDDEN: usize = 128;
/// Side that remains of the smallest images after two convolutions and poolings.
const LEFT_PX: usize = 4;
/// Side of MNIST's images.
const SMALLEST_PX: usize = 28;

pub(super) struct TwoConvolutions {
    /// Weights `[to, from, side, side]` and biases `[to]` of the two convolutions and the first linear layer. That
    /// layer is a convolution over all that remains of the smallest images; for larger images its results are averaged.
    convolutions: [[Tensor; 2]; 3],
    /// A weight `[classes, features]` and a bias `[classes]`.
    head: [Tensor; 2],
}

impl TwoConvolutions {
    /// Makes the network, and its trainable weights, drawn from `seed`.
    pub(super) fn new(classes: usize, seed: u64, device: &Device) -> Result<(Self, Vec<Var>)> {
        let mut weights = Weights::new(seed, device);
        // He et al. 2015, for a uniform distribution.
        let mut convolution = |from: usize, to: usize, side: usize| -> Result<[Tensor; 2]> {
            let bound = (6.0 / (from * side * side) as f64).sqrt();
            Ok([weights.uniform(&[to, from, side, side], bound)?, weights.constant(to, 0.0)?])
        };
        let [first, second] = CHANNELS;
        let convolutions = [
            convolution(3, first, KERNEL_PX)?,
            convolution(first, second, KERNEL_PX)?,
            convolution(second, HIDDEN, LEFT_PX)?,
        ];
        let bound = (HIDDEN as f64).powf(-0.5);
        let head = [weights.uniform(&[classes, HIDDEN], bound)?, weights.constant(classes, 0.0)?];
        Ok((Self { convolutions, head }, weights.vars))
    }
}

impl Network for TwoConvolutions {
    fn forward(&self, images: &Tensor, _train: bool) -> Result<Tensor> {
        let (_, _, height, width) = images.dims4()?;
        if height.min(width) < SMALLEST_PX {
            bail!("two convolutions take images of {SMALLEST_PX} pixels or more, not {width} x {height}");
        }
        let mut x = images.clone();
        for (number, [weight, bias]) in self.convolutions.iter().enumerate() {
            x = x.conv2d(weight, 0, 1, 1, 1)?.broadcast_add(&bias.reshape((1, (), 1, 1))?)?.relu()?;
            if number < CHANNELS.len() {
                // The pooling ignores the last row or column of an odd size.
                let (_, _, height, width) = x.dims4()?;
                x = x.narrow(2, 0, height / 2 * 2)?.narrow(3, 0, width / 2 * 2)?.max_pool2d(2)?;
            }
        }
        let [weight, bias] = &self.head;
        x.mean((2, 3))?.matmul(&weight.t()?)?.broadcast_add(bias)
    }
}
