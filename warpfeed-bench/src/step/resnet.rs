//! ResNet in candle for training: torchvision's ResNet-18 and ResNet-50 (v1.5), of any width.

use super::Architecture;
use super::candle::Network;
use super::weights::Weights;
use candle_core::{Device, Result, Tensor, Var};
use candle_nn::{BatchNorm, ModuleT};

/// Ratio of a bottleneck's output channels to its inner channels.
const EXPANSION: usize = 4;

pub(super) struct ResNet {
    stem: ConvNorm,
    blocks: Vec<Block>,
    /// A weight `[classes, features]` and a bias `[classes]`.
    head: [Tensor; 2],
}

impl ResNet {
    /// Makes the model, and its trainable weights, drawn from `seed`.
    pub(super) fn new(
        model: Architecture,
        width: usize,
        classes: usize,
        seed: u64,
        device: &Device,
    ) -> Result<(Self, Vec<Var>)> {
        let mut weights = Weights::new(seed, device);
        let stem = ConvNorm::new(&mut weights, 3, width, 7, 2)?;
        let (mut blocks, mut channels) = (Vec::new(), width);
        for (stage, count) in model.blocks().into_iter().enumerate() {
            for i in 0..count {
                let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                let block = Block::new(&mut weights, model.bottleneck(), channels, width << stage, stride)?;
                channels = block.channels;
                blocks.push(block);
            }
        }
        // torchvision's distribution: uniform, up to one over the root of the number of features.
        let bound = (channels as f64).powf(-0.5);
        let head = [weights.uniform(&[classes, channels], bound)?, weights.uniform(&[classes], bound)?];
        Ok((Self { stem, blocks, head }, weights.vars))
    }
}

impl Network for ResNet {
    fn forward(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let mut x = max_pool_3_2(&self.stem.forward(images, train)?.relu()?)?;
        for block in &self.blocks {
            x = block.forward(&x, train)?;
        }
        let [weight, bias] = &self.head;
        x.mean((2, 3))?.matmul(&weight.t()?)?.broadcast_add(bias)
    }
}

/// Two convolutions of 3 x 3, or three of 1 x 1, 3 x 3 and 1 x 1, with a shortcut that adds the input.
struct Block {
    convolutions: Vec<ConvNorm>,
    /// Adapts the input if its shape differs from the output's.
    shortcut: Option<ConvNorm>,
    /// Number of output channels.
    channels: usize,
}

impl Block {
    fn new(weights: &mut Weights, bottleneck: bool, from: usize, width: usize, stride: usize) -> Result<Self> {
        let (channels, convolutions) = if bottleneck {
            let channels = width * EXPANSION;
            let first = ConvNorm::new(weights, from, width, 1, 1)?;
            let second = ConvNorm::new(weights, width, width, 3, stride)?;
            (channels, vec![first, second, ConvNorm::new(weights, width, channels, 1, 1)?])
        } else {
            let first = ConvNorm::new(weights, from, width, 3, stride)?;
            (width, vec![first, ConvNorm::new(weights, width, width, 3, 1)?])
        };
        let shortcut = if from != channels || stride != 1 {
            Some(ConvNorm::new(weights, from, channels, 1, stride)?)
        } else {
            None
        };
        Ok(Self { convolutions, shortcut, channels })
    }

    fn forward(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        let mut x = input.clone();
        for (i, convolution) in self.convolutions.iter().enumerate() {
            x = if i == 0 { convolution.forward(&x, train)? } else { convolution.forward(&x.relu()?, train)? };
        }
        match &self.shortcut {
            Some(shortcut) => (x + shortcut.forward(input, train)?)?.relu(),
            None => (x + input)?.relu(),
        }
    }
}

/// A convolution without bias that keeps the image's size except for its stride, then batch normalization.
struct ConvNorm {
    weight: Tensor,
    stride: usize,
    norm: BatchNorm,
}

impl ConvNorm {
    fn new(weights: &mut Weights, from: usize, to: usize, side: usize, stride: usize) -> Result<Self> {
        // He et al. 2015: variance 2 / (outputs that an input reaches), here for a uniform distribution.
        let bound = (6.0 / (to * side * side) as f64).sqrt();
        let weight = weights.uniform(&[to, from, side, side], bound)?;
        let [mean, variance] = [0_f32, 1.0].map(|value| Tensor::full(value, to, &weights.device));
        let (scale, shift) = (weights.constant(to, 1.0)?, weights.constant(to, 0.0)?);
        Ok(Self { weight, stride, norm: BatchNorm::new(to, mean?, variance?, scale, shift, 1e-5)? })
    }

    fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let padding = self.weight.dim(2)? / 2;
        self.norm.forward_t(&x.conv2d(&self.weight, padding, self.stride, 1, 1)?, train)
    }
}

/// Maximum of each 3 x 3 neighborhood, with stride 2, for values that are not negative.
///
/// candle has no gradient for overlapping pooling. So the pooling is made of operations that have one: the maximum of
/// three neighbors, keeping every second, first down, then across. The outside counts as zero, because no value is
/// smaller.
fn max_pool_3_2(x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for dim in [2, 3] {
        let half = x.dim(dim)?.div_ceil(2);
        let padded = x.pad_with_zeros(dim, 1, 2)?;
        // Keeps positions `offset`, `offset + 2`, ...
        let every_second = |offset: usize| {
            let mut shape = x.dims().to_vec();
            shape[dim] = half;
            shape.insert(dim + 1, 2);
            padded
                .narrow(dim, offset / 2 * 2, 2 * half)?
                .reshape(shape)?
                .narrow(dim + 1, offset % 2, 1)?
                .squeeze(dim + 1)
        };
        x = every_second(0)?.maximum(&every_second(1)?)?.maximum(&every_second(2)?)?;
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(shape: &[usize]) -> Var {
        let len = shape.iter().product::<usize>();
        let values = (0..len).map(|i| (i * 37 % len) as f32 + 1.0).collect();
        Var::from_vec(values, shape, &Device::Cpu).unwrap()
    }

    #[test]
    fn pooling_takes_the_greatest_and_hands_its_gradient_back_to_it() {
        for (height, width) in [(1, 1), (2, 3), (5, 4), (8, 8), (7, 7)] {
            let x = ramp(&[2, 3, height, width]);
            let pooled = max_pool_3_2(x.as_tensor()).unwrap();
            let padded = x.pad_with_zeros(2, 1, 1).unwrap().pad_with_zeros(3, 1, 1).unwrap();
            let want = padded.max_pool2d_with_stride(3, 2).unwrap();
            let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!((pooled.dims(), flat(&pooled)), (want.dims(), flat(&want)), "{height} x {width}");
            // No value occurs twice in an image, so each output's gradient goes to one input.
            let gradients = pooled.sum_all().unwrap().backward().unwrap();
            let mut counts = vec![0.0; x.elem_count()];
            let values = flat(x.as_tensor());
            for (n, plane) in flat(&pooled).chunks(pooled.dim(2).unwrap() * pooled.dim(3).unwrap()).enumerate() {
                let area = height * width;
                for value in plane {
                    let at = values[n * area..][..area].iter().position(|v| v == value).unwrap();
                    counts[n * area + at] += 1.0;
                }
            }
            assert_eq!(flat(gradients.get(&x).unwrap()), counts, "{height} x {width}");
        }
    }

    #[test]
    fn models_are_torchvisions() {
        for (model, classes, parameters) in
            [(Architecture::ResNet18, 1_000, 11_689_512), (Architecture::ResNet50, 1_000, 25_557_032)]
        {
            let (_, vars) = ResNet::new(model, 64, classes, 1, &Device::Cpu).unwrap();
            assert_eq!(vars.iter().map(|var| var.elem_count()).sum::<usize>(), parameters, "{model:?}");
        }
    }

    /// Along the gradient, the loss rises by the gradient's length per unit of distance.
    #[test]
    fn gradients_are_those_of_the_loss() {
        let images = (ramp(&[4, 3, 64, 64]).as_tensor() / 49_152.0).unwrap();
        for model in [Architecture::ResNet18, Architecture::ResNet50] {
            let (network, vars) = ResNet::new(model, 4, 5, 1, &Device::Cpu).unwrap();
            let loss = || network.forward(&images, true).unwrap().sqr().unwrap().sum_all().unwrap();
            let gradients = loss().backward().unwrap();
            let gradients: Vec<Tensor> = vars.iter().map(|var| gradients.get(var).unwrap().clone()).collect();
            let square: f32 =
                gradients.iter().map(|g| g.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap()).sum();
            let at = |way: f64| {
                for (var, gradient) in vars.iter().zip(&gradients) {
                    let step = (gradient * (way / f64::from(square.sqrt()))).unwrap();
                    var.set(&(var.as_detached_tensor() + step).unwrap()).unwrap();
                }
                f64::from(loss().to_scalar::<f32>().unwrap())
            };
            let way = 1e-4;
            let rise = (at(way) - at(-2.0 * way)) / (2.0 * way);
            let want = f64::from(square.sqrt());
            assert!((rise - want).abs() < 0.03 * want, "{model:?}: {rise} {want}");
        }
    }
}
