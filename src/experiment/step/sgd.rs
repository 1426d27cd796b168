//! Stochastic gradient descent with momentum, as PyTorch defines it; candle's own has none.

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};

/// Stochastic gradient descent: `v = momentum * v + gradient + weight_decay * w`, `w -= rate * v`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// The learning rate of epoch 0.
    pub learning_rate: f64,
    /// How much of the last change goes on, 0 to 1.
    pub momentum: f64,
    /// The share of a weight that is added to its gradient.
    pub weight_decay: f64,
    /// After how many epochs, each time, the learning rate is divided by ten; never if 0.
    pub drop_every_epochs: u64,
}

impl Default for Sgd {
    /// torchvision's reference for ResNets at batch 32 a GPU: rate 0.1, momentum 0.9, decay 1e-4, drops every 30 epochs.
    fn default() -> Self {
        Self { learning_rate: 0.1, momentum: 0.9, weight_decay: 1e-4, drop_every_epochs: 30 }
    }
}

impl Sgd {
    /// The learning rate of an epoch.
    ///
    /// ```
    /// # use warpfeed::experiment::step::Sgd;
    /// let sgd = Sgd { learning_rate: 0.2, drop_every_epochs: 2, ..Sgd::default() };
    /// assert_eq!([0, 1, 2, 4].map(|epoch| sgd.learning_rate_of(epoch)), [0.2, 0.2, 0.02, 0.002]);
    /// ```
    #[must_use]
    pub fn learning_rate_of(&self, epoch: u64) -> f64 {
        let drops = epoch.checked_div(self.drop_every_epochs).unwrap_or(0);
        self.learning_rate / 10_f64.powi(drops.try_into().unwrap_or(i32::MAX))
    }
}

/// Weights, and how fast each moves.
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
            // Detached: what is computed here must not remember how, or memory would grow with every step.
            let weight = var.as_detached_tensor();
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

    /// The same numbers as `torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.01)` for the loss w * w.
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
            for (w, v) in want.iter_mut().zip(&mut velocity) {
                *v = 0.9 * *v + 2.0 * *w + 0.01 * *w;
                *w -= 0.1 / 10_f64.powi(epoch as i32) * *v;
            }
            let got = w.to_vec1::<f64>().unwrap();
            assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-12), "{got:?} {want:?}");
        }
    }
}
