//! The layers of the network that the example `train_detector` trains.
//!
//! Features are `[C, N, H, W]`, channels first: a convolution is then one product of matrices for the whole batch, and
//! so are its gradients. On the CPU candle's own `conv2d` computes the gradient of its input pixel by pixel.

use candle_core::{CpuStorage, CustomOp1, Error, Layout, Result, Shape, Tensor};
use candle_nn::{BatchNorm, Init, ModuleT, VarBuilder, batch_norm, init::DEFAULT_KAIMING_NORMAL};

/// A 3 x 3 convolution with padding 1, batch normalization and ReLU.
pub struct Convolution {
    /// `[outputs, 9 * inputs]`.
    weight: Tensor,
    norm: BatchNorm,
    stride: usize,
}

impl Convolution {
    /// A convolution from `inputs` to `outputs` channels, which divides the sides by `stride`.
    pub fn new(inputs: usize, outputs: usize, stride: usize, weights: &VarBuilder) -> Result<Self> {
        let weight = weights.get_with_hints((outputs, 9 * inputs), "weight", DEFAULT_KAIMING_NORMAL)?;
        Ok(Self { weight, norm: batch_norm(outputs, 1e-5, weights.pp("norm"))?, stride })
    }
}

impl ModuleT for Convolution {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let (_, n, height, width) = x.dims4()?;
        let patches = x.contiguous()?.apply_op1(Patches { stride: self.stride })?;
        let y = self.norm.forward_t(&self.weight.matmul(&patches)?.unsqueeze(0)?, train)?.relu()?;
        y.reshape(((), n, height.div_ceil(self.stride), width.div_ceil(self.stride)))
    }
}

/// The layers that see the image: 64 channels at an eighth of its sides.
pub struct Backbone {
    /// To a half, a quarter and an eighth of the sides.
    down: [Convolution; 4],
    /// Each adds to what it sees.
    deep: [Convolution; 4],
}

impl Backbone {
    /// A backbone for images of three channels.
    pub fn new(weights: &VarBuilder) -> Result<Self> {
        let layer = |name, inputs, outputs, stride| Convolution::new(inputs, outputs, stride, &weights.pp(name));
        Ok(Self {
            down: [
                layer("down-0", 3, 16, 2)?,
                layer("down-1", 16, 32, 2)?,
                layer("down-2", 32, 32, 1)?,
                layer("down-3", 32, 64, 2)?,
            ],
            deep: [
                layer("deep-0", 64, 64, 1)?,
                layer("deep-1", 64, 64, 1)?,
                layer("deep-2", 64, 64, 1)?,
                layer("deep-3", 64, 64, 1)?,
            ],
        })
    }

    /// The features `[64, N, H / 8, W / 8]` of images `[N, 3, H, W]`.
    pub fn forward(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let x = self.down.iter().try_fold(images.transpose(0, 1)?, |x, layer| layer.forward_t(&x, train))?;
        self.deep.iter().try_fold(x, |x, layer| &x + layer.forward_t(&x, train)?)
    }
}

/// A linear layer for each pixel: a 1 x 1 convolution.
pub struct Pixelwise {
    weight: Tensor,
    bias: Tensor,
}

impl Pixelwise {
    /// A layer from `inputs` to `outputs` channels, which first gives `start` for small inputs.
    pub fn new(inputs: usize, outputs: usize, start: f64, weights: &VarBuilder) -> Result<Self> {
        let weight = weights.get_with_hints((outputs, inputs), "weight", Init::Randn { mean: 0.0, stdev: 0.01 })?;
        Ok(Self { weight, bias: weights.get_with_hints((outputs, 1), "bias", Init::Const(start))? })
    }

    /// `[outputs, N * H * W]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.weight.matmul(&x.flatten_from(1)?)?.broadcast_add(&self.bias)
    }
}

/// Learning rate of `step` of `steps`: it rises to `most` during a tenth of them, and falls to 0 along a cosine.
pub fn learning_rate(most: f64, step: u64, steps: u64) -> f64 {
    let done = (step as f64 + 0.5) / steps as f64;
    most * (done / 0.1).min(0.5 + 0.5 * (std::f64::consts::PI * done).cos())
}

/// The 3 x 3 neighbors of every pixel, as columns: `[C, N, H, W]` becomes `[9 * C, N * H / stride * W / stride]`.
struct Patches {
    stride: usize,
}

/// The gradient of [`Patches`]: adds every neighbor to the pixel that it is.
struct FromPatches {
    stride: usize,
    shape: [usize; 4],
}

/// Calls `row` for every run of neighbors in a row of the image: its first place among the patches, its first place in
/// the image, and its length. Places in the image are `stride` apart. Neighbors outside the image are left out.
fn rows([c, n, height, width]: [usize; 4], stride: usize, mut row: impl FnMut(usize, usize, usize)) {
    let (out_height, out_width) = (height.div_ceil(stride), width.div_ceil(stride));
    for (plane, (channel, dy, dx)) in
        (0..c).flat_map(|c| (0..3).flat_map(move |dy| (0..3).map(move |dx| (c, dy, dx)))).enumerate()
    {
        // The neighbor of output x lies at stride * x + dx - 1.
        let (first, last) = (usize::from(dx == 0), (width - dx) / stride);
        for image in 0..n {
            for y in (0..out_height).filter(|y| (1..=height).contains(&(stride * y + dy))) {
                let to = ((plane * n + image) * out_height + y) * out_width + first;
                let from = ((channel * n + image) * height + stride * y + dy - 1) * width + stride * first + dx - 1;
                row(to, from, last.min(out_width - 1) + 1 - first);
            }
        }
    }
}

fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (start, end) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: "patches" })?;
    Ok(&storage.as_slice::<f32>()?[start..end])
}

impl CustomOp1 for Patches {
    fn name(&self) -> &'static str {
        "patches"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let ((c, n, height, width), pixels) = (layout.shape().dims4()?, values(storage, layout)?);
        let shape = (9 * c, n * height.div_ceil(self.stride) * width.div_ceil(self.stride));
        let mut patches = vec![0.0; shape.0 * shape.1];
        rows([c, n, height, width], self.stride, |to, from, len| {
            if self.stride == 1 {
                patches[to..to + len].copy_from_slice(&pixels[from..from + len]);
            } else {
                let source = pixels[from..].iter().step_by(self.stride);
                patches[to..to + len].iter_mut().zip(source).for_each(|(to, from)| *to = *from);
            }
        });
        Ok((CpuStorage::F32(patches), shape.into()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let (c, n, height, width) = x.dims4()?;
        let shape = [c, n, height, width];
        gradient.contiguous()?.apply_op1(FromPatches { stride: self.stride, shape }).map(Some)
    }
}

impl CustomOp1 for FromPatches {
    fn name(&self) -> &'static str {
        "from-patches"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let patches = values(storage, layout)?;
        let mut pixels = vec![0.0; self.shape.iter().product()];
        rows(self.shape, self.stride, |from, to, len| {
            let patches = &patches[from..from + len];
            if self.stride == 1 {
                pixels[to..to + len].iter_mut().zip(patches).for_each(|(to, from)| *to += from);
            } else {
                pixels[to..].iter_mut().step_by(self.stride).zip(patches).for_each(|(to, from)| *to += from);
            }
        });
        Ok((CpuStorage::F32(pixels), self.shape.to_vec().into()))
    }
}
