//! Batch normalization and ReLU in one operation; candle's own is a dozen, which is slow for narrow networks.

use super::layers::{values, with_values};
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use candle_nn::{Init, VarBuilder};
use std::cell::RefCell;

const EPSILON: f32 = 1e-5;
/// Share of a batch in the running statistics.
const MOMENTUM: f32 = 0.1;

/// Normalizes each channel to a mean and a deviation that are learned, and sets negative values to 0.
pub struct NormRelu {
    /// `[C]`, both.
    scale: Tensor,
    shift: Tensor,
    running: RefCell<Statistics>,
}

/// Mean and variance of each channel.
#[derive(Clone)]
struct Statistics {
    means: Vec<f32>,
    variances: Vec<f32>,
}

impl NormRelu {
    pub fn new(channels: usize, weights: &VarBuilder) -> Result<Self> {
        let running = Statistics { means: vec![0.0; channels], variances: vec![1.0; channels] };
        Ok(Self {
            scale: weights.get_with_hints(channels, "scale", Init::Const(1.0))?,
            shift: weights.get_with_hints(channels, "shift", Init::Const(0.0))?,
            running: RefCell::new(running),
        })
    }

    /// Normalizes features `[C, P]`. In training, statistics are the batch's.
    pub fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        if !train {
            return x.apply_op3(&self.scale, &self.shift, Apply(self.running.borrow().clone()));
        }
        let batch = Statistics::of(x)?;
        let mut running = self.running.borrow_mut();
        let Statistics { means, variances } = &mut *running;
        let pairs = means.iter_mut().zip(&batch.means).chain(variances.iter_mut().zip(&batch.variances));
        pairs.for_each(|(running, own)| *running += MOMENTUM * (own - *running));
        x.apply_op3(&self.scale, &self.shift, Apply(batch))
    }
}

impl Statistics {
    fn of(x: &Tensor) -> Result<Self> {
        let (_, count) = x.dims2()?;
        let mean = |row: &[f32], of: &dyn Fn(f32) -> f32| sum(row, row, |value, _| of(value)) / count as f32;
        let rows = |values: &[f32]| {
            let of = |row| {
                let middle = mean(row, &|value| value);
                (middle, mean(row, &|value| (value - middle) * (value - middle)))
            };
            values.chunks_exact(count).map(of).unzip()
        };
        let (means, variances) = with_values(x, rows)?;
        Ok(Self { means, variances })
    }
}

/// Sum of `of` over all pairs, in lanes that the compiler turns into vectors.
fn sum(a: &[f32], b: &[f32], of: impl Fn(f32, f32) -> f32) -> f32 {
    let (a, b) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| of(*a, *b)).sum();
    let mut lanes = [0.0_f32; 16];
    for (a, b) in a.zip(b) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += of(*a, *b));
    }
    lanes.iter().sum::<f32>() + rest
}

/// Normalization by these statistics.
struct Apply(Statistics);

impl Apply {
    /// For each channel its mean, and 1 over its deviation.
    fn each(&self) -> impl Iterator<Item = (f32, f32)> {
        self.0.means.iter().zip(&self.0.variances).map(|(mean, variance)| (*mean, 1.0 / (variance + EPSILON).sqrt()))
    }
}

impl CustomOp3 for Apply {
    fn name(&self) -> &'static str {
        "normalize-relu"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        scale: &CpuStorage,
        scale_layout: &Layout,
        shift: &CpuStorage,
        shift_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, count) = x_layout.shape().dims2()?;
        let (x, scale, shift) = (values(x, x_layout)?, values(scale, scale_layout)?, values(shift, shift_layout)?);
        let mut y = Vec::with_capacity(x.len());
        for ((row, (mean, factor)), (scale, shift)) in
            x.chunks_exact(count).zip(self.each()).zip(scale.iter().zip(shift))
        {
            let factor = factor * scale;
            y.extend(row.iter().map(|x| ((x - mean) * factor + shift).max(0.0)));
        }
        Ok((CpuStorage::F32(y), x_layout.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        scale: &Tensor,
        _: &Tensor,
        y: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (channels, count) = x.dims2()?;
        // Gradients that come through ReLU; those of `x` take their place.
        let mut of_x = gradient.flatten_all()?.to_vec1::<f32>()?;
        with_values(y, |y| of_x.iter_mut().zip(y).for_each(|(own, y)| *own = if *y > 0.0 { *own } else { 0.0 }))?;
        let (mut of_scale, mut of_shift) = (Vec::with_capacity(channels), Vec::with_capacity(channels));
        let scale = scale.to_vec1::<f32>()?;
        with_values(x, |x| {
            let rows = of_x.chunks_exact_mut(count).zip(x.chunks_exact(count));
            for ((own, x), ((mean, factor), scale)) in rows.zip(self.each().zip(scale)) {
                let all = sum(own, own, |own, _| own);
                let along = sum(own, x, |own, x| own * (x - mean)) * factor;
                let (all_mean, along_mean) = (all / count as f32, along * factor / count as f32);
                let times = factor * scale;
                own.iter_mut().zip(x).for_each(|(own, x)| *own = times * (*own - all_mean - (x - mean) * along_mean));
                of_scale.push(along);
                of_shift.push(all);
            }
        })?;
        let device = x.device();
        Ok((
            Some(Tensor::from_vec(of_x, x.shape(), device)?),
            Some(Tensor::from_vec(of_scale, channels, device)?),
            Some(Tensor::from_vec(of_shift, channels, device)?),
        ))
    }
}
