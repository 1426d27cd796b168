//! The load of the machine by other programs while an experiment ran.

use super::ticks::{Core, Ticks};
use serde::Serialize;

/// Share of the processors from which on a report warns of other work.
const WARNED: f64 = 0.05;

/// Work that was not this process's own, over the whole experiment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Busy {
    /// Processors that this process kept busy, on average.
    pub own_cores: f64,
    /// Processors that other processes kept busy, on average.
    pub other_cores: f64,
    /// Share of the time that the hypervisor gave to other machines, 0 to 1.
    pub stolen: f64,
    /// Processors of the machine.
    pub cores: usize,
}

impl Busy {
    /// Share of the machine's processors that was not available, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        (self.other_cores / self.cores.max(1) as f64 + self.stolen).min(1.0)
    }

    /// Warning to print above all figures; `None` if the machine was quiet.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        (self.share() >= WARNED).then(|| {
            let stolen = if self.stolen < 0.01 {
                String::new()
            } else {
                format!(", and its hypervisor gave {:.0} % of the time to other machines", 100.0 * self.stolen)
            };
            format!(
                "The machine was busy with other work: other processes kept {:.1} of {} processors busy{stolen}. Rates are lower \
                 than on a quiet machine, and small differences mean nothing.",
                self.other_cores, self.cores
            )
        })
    }
}

/// Watches the machine from its creation on.
#[derive(Debug, Clone)]
pub(super) struct Watch(Ticks);

impl Watch {
    pub(super) fn start() -> Self {
        Self(Ticks::now())
    }

    /// The load since then; `None` if the system does not say.
    pub(super) fn so_far(&self) -> Option<Busy> {
        between(&self.0, &Ticks::now())
    }
}

fn between(before: &Ticks, now: &Ticks) -> Option<Busy> {
    let sum = |of: fn(&Core) -> u64| {
        let sum = |ticks: &Ticks| ticks.cores.iter().map(of).sum::<u64>();
        sum(now).saturating_sub(sum(before)) as f64
    };
    let (busy, all, stolen) = (sum(|core| core.busy), sum(|core| core.all), sum(|core| core.stolen));
    let cores = now.cores.len();
    // Ticks of one processor.
    let one = (all + stolen) / cores as f64;
    (one > 0.0).then(|| {
        let own_cores = now.process.saturating_sub(before.process) as f64 / one;
        Busy { own_cores, other_cores: (busy / one - own_cores).max(0.0), stolen: stolen / (all + stolen), cores }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_machine_is_warned_of() {
        let of = |other_cores, stolen| Busy { own_cores: 1.0, other_cores, stolen, cores: 2 };
        assert_eq!(of(0.05, 0.0).warning(), None);
        assert!(of(1.0, 0.0).warning().unwrap().contains("1.0 of 2 processors busy. "));
        assert!(of(0.0, 0.2).warning().unwrap().contains("gave 20 % of the time"));
        assert_eq!(of(1.0, 0.25).share(), 0.75);
    }

    #[test]
    fn ticks_that_are_not_its_own_are_others() {
        let at = std::time::Instant::now();
        let core = |busy, all, stolen| Core { busy, waiting: 0, all, stolen };
        let before = Ticks { at, cores: vec![core(100, 1000, 10), core(0, 1000, 0)], process: 5, disks: Vec::new() };
        let now = Ticks { at, cores: vec![core(170, 1080, 30), core(50, 1100, 0)], process: 75, disks: Vec::new() };
        let want = Busy { own_cores: 0.7, other_cores: 0.5, stolen: 0.1, cores: 2 };
        assert_eq!(between(&before, &now), Some(want));
        assert_eq!(between(&before, &before), None, "no time passed");
    }

    #[test]
    fn own_work_is_told_from_others() {
        let watch = Watch::start();
        let begin = std::time::Instant::now();
        while begin.elapsed().as_millis() < 300 {
            std::hint::black_box(0);
        }
        if let Some(busy) = watch.so_far() {
            assert!(busy.own_cores > 0.2 && busy.other_cores >= 0.0, "{busy:?}");
            assert!((0.0..=1.0).contains(&busy.stolen) && busy.cores > 0, "{busy:?}");
        }
    }
}
