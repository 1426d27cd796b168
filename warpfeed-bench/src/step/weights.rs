//! Weights of networks that candle trains.

use candle_core::{Device, Result, Tensor, Var};
use warpfeed::internal::{Domain, SampleRng};

/// Draws weights and keeps the trainable ones.
pub(super) struct Weights {
    draw: SampleRng,
    pub(super) device: Device,
    pub(super) vars: Vec<Var>,
}

impl Weights {
    pub(super) fn new(seed: u64, device: &Device) -> Self {
        Self { draw: SampleRng::new(seed, 0, Domain::Weights, 0), device: device.clone(), vars: Vec::new() }
    }

    pub(super) fn uniform(&mut self, shape: &[usize], bound: f64) -> Result<Tensor> {
        let values = (0..shape.iter().product()).map(|_| self.draw.uniform(-bound, bound) as f32).collect();
        self.keep(values, shape)
    }

    pub(super) fn constant(&mut self, len: usize, value: f32) -> Result<Tensor> {
        self.keep(vec![value; len], &[len])
    }

    fn keep(&mut self, values: Vec<f32>, shape: &[usize]) -> Result<Tensor> {
        let var = Var::from_vec(values, shape, &self.device)?;
        let tensor = var.as_tensor().clone();
        self.vars.push(var);
        Ok(tensor)
    }
}
