//! Settings of stochastic gradient descent, as PyTorch defines them.

/// Stochastic gradient descent: `v = momentum * v + gradient + weight_decay * w`, `w -= rate * v`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Learning rate of epoch 0.
    pub learning_rate: f64,
    /// Share of the last change that is kept, 0 to 1.
    pub momentum: f64,
    /// Share of a weight that is added to its gradient.
    pub weight_decay: f64,
    /// Number of epochs after which the learning rate is divided by ten, again and again; 0: never.
    pub drop_every_epochs: u64,
}

impl Default for Sgd {
    /// torchvision's reference for ResNets with batches of 32 per GPU: rate 0.1, momentum 0.9, decay 1e-4, drops every
    /// 30 epochs.
    fn default() -> Self {
        Self { learning_rate: 0.1, momentum: 0.9, weight_decay: 1e-4, drop_every_epochs: 30 }
    }
}

impl Sgd {
    /// Learning rate of an epoch.
    ///
    /// ```
    /// # use warpfeed_bench::step::Sgd;
    /// let sgd = Sgd { learning_rate: 0.2, drop_every_epochs: 2, ..Sgd::default() };
    /// assert_eq!([0, 1, 2, 4].map(|epoch| sgd.learning_rate_of(epoch)), [0.2, 0.2, 0.02, 0.002]);
    /// ```
    #[must_use]
    pub fn learning_rate_of(&self, epoch: u64) -> f64 {
        let drops = epoch.checked_div(self.drop_every_epochs).unwrap_or(0);
        self.learning_rate / 10_f64.powi(drops.try_into().unwrap_or(i32::MAX))
    }
}
