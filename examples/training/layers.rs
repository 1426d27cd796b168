//! Layers of networks. Features are `[C, N, H, W]`, so that a convolution and its gradients are one product of
//! matrices. candle's own `conv2d` computes its input's gradient pixel by pixel.

use super::norm::NormRelu;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp2, Error, Layout, Result, Shape, Storage, Tensor, bail};
use candle_nn::{Init, ModuleT, VarBuilder, init::DEFAULT_KAIMING_NORMAL};
use std::ops::Range;

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
/// would keep them until their gradient is there, and add that to zeros. Only a few rows' neighbors are there at a
/// time, so that they stay in the core's cache.
struct Convolve {
    stride: usize,
}

/// Number of pixels whose neighbors are in memory at a time, in addition to the rest of their last row.
const TILE_PX: usize = 512;

impl Convolve {
    /// The rows of all images' results in parts, and the length of a row.
    fn tiles(&self, [_, n, height, width]: [usize; 4]) -> (impl Iterator<Item = Range<usize>>, usize) {
        let (rows, width) = (n * height.div_ceil(self.stride), width.div_ceil(self.stride));
        let step = TILE_PX.div_ceil(width);
        ((0..rows).step_by(step).map(move |first| first..rows.min(first + step)), width)
    }

    /// Calls `run` for every run of neighbors of these rows that are in one row of an image: its first place among the
    /// neighbors, its first place in the image, and its length. Places in the image are `stride` apart. Neighbors
    /// outside the image are left out.
    fn runs(&self, [c, n, height, width]: [usize; 4], rows: &Range<usize>, mut run: impl FnMut(usize, usize, usize)) {
        let stride = self.stride;
        let (out_height, out_width) = (height.div_ceil(stride), width.div_ceil(stride));
        for plane in 0..9 * c {
            let (channel, dy, dx) = (plane / 9, plane / 3 % 3, plane % 3);
            // The neighbor of output x lies at stride * x + dx - 1.
            let (first, last) = (usize::from(dx == 0), (width - dx) / stride);
            for row in rows.clone() {
                let (image, y) = (row / out_height, stride * (row % out_height) + dy);
                if (1..=height).contains(&y) {
                    let to = (plane * rows.len() + row - rows.start) * out_width + first;
                    let from = ((channel * n + image) * height + y - 1) * width + stride * first + dx - 1;
                    run(to, from, last.min(out_width - 1) + 1 - first);
                }
            }
        }
    }

    /// The neighbors of every pixel of these rows as columns, `[9 * C, rows * W / stride]`.
    fn neighbors(&self, shape: [usize; 4], rows: &Range<usize>, pixels: &[f32]) -> Vec<f32> {
        let mut neighbors = vec![0.0; 9 * shape[0] * rows.len() * shape[3].div_ceil(self.stride)];
        self.runs(shape, rows, |to, from, len| {
            if self.stride == 1 {
                neighbors[to..to + len].copy_from_slice(&pixels[from..from + len]);
            } else {
                let source = pixels[from..].iter().step_by(self.stride);
                neighbors[to..to + len].iter_mut().zip(source).for_each(|(to, from)| *to = *from);
            }
        });
        neighbors
    }

    /// Adds the gradient of every neighbor to that of the pixel that it is.
    fn add(&self, shape: [usize; 4], rows: &Range<usize>, neighbors: &[f32], pixels: &mut [f32]) {
        self.runs(shape, rows, |from, to, len| {
            let neighbors = &neighbors[from..from + len];
            if self.stride == 1 {
                pixels[to..to + len].iter_mut().zip(neighbors).for_each(|(to, from)| *to += from);
            } else {
                pixels[to..].iter_mut().step_by(self.stride).zip(neighbors).for_each(|(to, from)| *to += from);
            }
        });
    }
}

/// The values of a contiguous tensor in storage.
pub fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (start, end) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: "values" })?;
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// Calls `of` with the values of a contiguous tensor.
pub fn with_values<T>(x: &Tensor, of: impl FnOnce(&[f32]) -> T) -> Result<T> {
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
        let (shape, pixels) = ([c, n, height, width], values(x, x_layout)?);
        let (outputs, inputs) = weight_layout.shape().dims2()?;
        let (tiles, out_width) = self.tiles(shape);
        let columns = n * height.div_ceil(self.stride) * out_width;
        let mut y = vec![0.0; outputs * columns];
        for rows in tiles {
            let neighbors = CpuStorage::F32(self.neighbors(shape, &rows, pixels));
            let (first, len) = (rows.start * out_width, rows.len() * out_width);
            let sizes = (1, outputs, len, inputs);
            let part = weight.matmul(&neighbors, sizes, weight_layout, &Layout::contiguous((inputs, len)))?;
            let lines = y.chunks_exact_mut(columns).zip(part.as_slice::<f32>()?.chunks_exact(len));
            lines.for_each(|(line, part)| line[first..first + len].copy_from_slice(part));
        }
        Ok((CpuStorage::F32(y), (outputs, columns).into()))
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
        let (tiles, out_width) = self.tiles(shape);
        let mut of_weight = weight.zeros_like()?;
        // Images need no gradient.
        let mut of_x = x.track_op().then(|| vec![0.0; x.elem_count()]);
        for rows in tiles {
            let gradient = gradient.narrow(1, rows.start * out_width, rows.len() * out_width)?;
            let neighbors = with_values(x, |x| self.neighbors(shape, &rows, x))?;
            let neighbors = Tensor::from_vec(neighbors, (9 * c, gradient.dims()[1]), x.device())?;
            of_weight = (of_weight + gradient.matmul(&neighbors.t()?)?)?;
            if let Some(of_x) = &mut of_x {
                let neighbors = weight.t()?.matmul(&gradient)?;
                with_values(&neighbors, |neighbors| self.add(shape, &rows, neighbors, of_x))?;
            }
        }
        let of_x = of_x.map(|of_x| Tensor::from_vec(of_x, x.shape(), x.device())).transpose()?;
        Ok((of_x, Some(of_weight)))
    }
}
