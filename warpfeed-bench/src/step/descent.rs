//! Stochastic gradient descent with momentum, which candle's own optimizer lacks.

use super::Sgd;
use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};

/// Weights and their velocities.
pub(super) struct Descent {
    settings: Sgd,
    pub(super) learning_rate: f64,
    vars: Vec<(Var, Option<Tensor>)>,
}

impl Descent {
    pub(super) fn new(settings: Sgd, vars: Vec<Var>) -> Self {
        let learning_rate = settings.learning_rate_of(0);
        Self { settings, learning_rate, vars: vars.into_iter().map(|var| (var, None)).collect() }
    }

    pub(super) fn begin_epoch(&mut self, epoch: u64) {
        self.learning_rate = self.settings.learning_rate_of(epoch);
    }

    pub(super) fn step(&mut self, gradients: &GradStore) -> Result<()> {
        let Sgd { momentum, weight_decay, .. } = self.settings;
        for (var, velocity) in &mut self.vars {
            let Some(gradient) = gradients.get(var) else { continue };
            // Values are detached: if they kept their history, memory would grow with every step. A weight's gradient
            // keeps the values that it was multiplied with.
            let (weight, gradient) = (var.as_detached_tensor(), gradient.detach());
            let mut change = (gradient + (&weight * weight_decay)?)?;
            if let Some(velocity) = velocity {
                change = (change + (&*velocity * momentum)?)?;
            }
            var.set(&(weight - (&change * self.learning_rate)?)?)?;
            *velocity = Some(change);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    /// The numbers of `torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.01)` for the loss w * w.
    #[test]
    fn it_descends_as_by_definition() {
        let w = Var::from_vec(vec![1.0_f64, -2.0], 2, &Device::Cpu).unwrap();
        let settings = Sgd { learning_rate: 0.1, momentum: 0.9, weight_decay: 0.01, drop_every_epochs: 1 };
        let mut descent = Descent::new(settings, vec![w.clone()]);
        let (mut want, mut velocity) = ([1.0, -2.0], [0.0; 2]);
        for epoch in 0..4 {
            descent.begin_epoch(epoch);
            let gradients = w.as_tensor().sqr().unwrap().sum_all().unwrap().backward().unwrap();
            descent.step(&gradients).unwrap();
            assert!(descent.vars.iter().all(|(_, velocity)| !velocity.as_ref().unwrap().track_op()), "it remembers");
            for (w, v) in want.iter_mut().zip(&mut velocity) {
                *v = 0.9 * *v + 2.0 * *w + 0.01 * *w;
                *w -= 0.1 / 10_f64.powi(epoch as i32) * *v;
            }
            let got = w.to_vec1::<f64>().unwrap();
            assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-12), "{got:?} {want:?}");
        }
    }
}
