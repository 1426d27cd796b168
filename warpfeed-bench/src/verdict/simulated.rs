//! Rounds of made-up cases.

use warpfeed::internal::SampleRng;

/// Noise of rounds, as shares of a figure.
#[derive(Clone, Copy)]
pub(crate) struct Noise {
    /// Standard deviation of a figure's own noise.
    pub(crate) own: f64,
    /// Standard deviation of the noise that all cases of a round share.
    pub(crate) shared: f64,
    /// Share of the figures that stall: they take 1.1 to 2.5 times as long.
    pub(crate) stalls: f64,
}

/// A machine that does nothing else. Differences of 5 % must be found with it.
pub(crate) const QUIET: Noise = Noise { own: 0.02, shared: 0.02, stalls: 0.01 };
/// A machine with other work.
pub(crate) const BUSY: Noise = Noise { own: 0.10, shared: 0.15, stalls: 0.05 };

/// Rates of cases of these median rates, in turn.
pub(crate) fn rates(report: u64, medians: &[f64], rounds: u32, noise: Noise) -> Vec<Vec<f64>> {
    let mut rng = SampleRng::for_sample(7, 0, report);
    let mut cases = vec![Vec::new(); medians.len()];
    for _ in 0..rounds {
        let shared = noise.shared * rng.normal();
        for (case, median) in cases.iter_mut().zip(medians) {
            let own = noise.own * rng.normal();
            let stall = if rng.chance(noise.stalls) { rng.uniform(1.1, 2.5) } else { 1.0 };
            case.push(median * (shared + own).exp() / stall);
        }
    }
    cases
}
