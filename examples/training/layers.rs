//! Layers of networks.
//!
//! Features are `[C, N, H, W]`, channels first: a convolution is then one product of matrices for the whole batch, and
//! so are its gradients. On the CPU candle's own `conv2d` computes the gradient of its input pixel by pixel.

use super::norm::NormRelu;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp2, Error, Layout, Result, Shape, Storage, Tensor, bail};
use candle_nn::{Init, ModuleT, VarBuilder, init::DEFAULT_KAIMING_NORMAL};

/// A 3 x 3 convolution with padding 1, batch normalization and ReLU.
pub struct Convolution {
    /// `[outputs, 9 * inputs]`.
    weight: Tensor,
    norm: NormRelu,
    stride: usize,
}

impl Convolution {
    /// A convolution from `inputs` to `outputs` channels, which divides the sides by `stride`.
    pub fn new(inputs: usize, outputs: usize, stride: usize, weights: &VarBuilder) -> Result<Self> {
        let weight = weights.get_with_hints((outputs, 9 * inputs), "weight", DEFAULT_KAIMING_NORMAL)?;
        Ok(Self { weight, norm: NormRelu::new(outputs, &weights.pp("norm"))?, stride })
    }
}

impl ModuleT for Convolution {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let (_, n, height, width) = x.dims4()?;
        let y = x.contiguous()?.apply_op2(&self.weight, Convolve { stride: self.stride })?;
        let y = self.norm.forward(&y, train)?;
        y.reshape(((), n, height.div_ceil(self.stride), width.div_ceil(self.stride)))
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

/// The product of weights `[D, 9 * C]` and the 3 x 3 neighbors of pixels `[C, N, H, W]`, for every pixel that is a
/// multiple of `stride`. It is one operation, because the neighbors take nine times the memory of the pixels: candle
/// would keep them until their gradient is there, and add that to zeros.
struct Convolve {
    stride: usize,
}

/// Calls `row` for every run of neighbors in a row of the image: its first place among the neighbors, its first place
/// in the image, and its length. Places in the image are `stride` apart. Neighbors outside the image are left out.
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

impl Convolve {
    /// The neighbors of every pixel as columns, `[9 * C, N * H / stride * W / stride]`, and their number.
    fn neighbors(&self, shape: [usize; 4], pixels: &[f32]) -> (Vec<f32>, usize) {
        let [c, n, height, width] = shape;
        let columns = n * height.div_ceil(self.stride) * width.div_ceil(self.stride);
        let mut neighbors = vec![0.0; 9 * c * columns];
        rows(shape, self.stride, |to, from, len| {
            if self.stride == 1 {
                neighbors[to..to + len].copy_from_slice(&pixels[from..from + len]);
            } else {
                let source = pixels[from..].iter().step_by(self.stride);
                neighbors[to..to + len].iter_mut().zip(source).for_each(|(to, from)| *to = *from);
            }
        });
        (neighbors, columns)
    }

    /// The gradient of the pixels: adds that of every neighbor to the pixel that it is.
    fn pixels(&self, shape: [usize; 4], neighbors: &[f32]) -> Vec<f32> {
        let mut pixels = vec![0.0; shape.iter().product()];
        rows(shape, self.stride, |from, to, len| {
            let neighbors = &neighbors[from..from + len];
            if self.stride == 1 {
                pixels[to..to + len].iter_mut().zip(neighbors).for_each(|(to, from)| *to += from);
            } else {
                pixels[to..].iter_mut().step_by(self.stride).zip(neighbors).for_each(|(to, from)| *to += from);
            }
        });
        pixels
    }
}

/// The values of a contiguous tensor in storage.
pub(super) fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (start, end) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: "values" })?;
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// Calls `of` with the values of a contiguous tensor.
pub(super) fn with_values<T>(x: &Tensor, of: impl FnOnce(&[f32]) -> T) -> Result<T> {
    let (storage, layout) = x.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => Ok(of(values(storage, layout)?)),
        _ => bail!("these layers are for the CPU"),
    }
}

impl CustomOp2 for Convolve {
    fn name(&self) -> &'static str {
        "convolve"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (c, n, height, width) = x_layout.shape().dims4()?;
        let (neighbors, columns) = self.neighbors([c, n, height, width], values(x, x_layout)?);
        let (outputs, inputs) = weight_layout.shape().dims2()?;
        let layout = Layout::contiguous((inputs, columns));
        let sizes = (1, outputs, columns, inputs);
        let y = weight.matmul(&CpuStorage::F32(neighbors), sizes, weight_layout, &layout)?;
        Ok((y, (outputs, columns).into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (c, n, height, width) = x.dims4()?;
        let shape = [c, n, height, width];
        let (neighbors, columns) = with_values(x, |x| self.neighbors(shape, x))?;
        let neighbors = Tensor::from_vec(neighbors, (9 * c, columns), x.device())?;
        let of_weight = gradient.matmul(&neighbors.t()?)?;
        let of_x = with_values(&weight.t()?.matmul(gradient)?, |neighbors| self.pixels(shape, neighbors))?;
        Ok((Some(Tensor::from_vec(of_x, x.shape(), x.device())?), Some(of_weight)))
    }
}
