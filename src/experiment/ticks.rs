//! The system's counters of what its processors did.

use std::time::Instant;

/// The system's counters, in ticks of 10 ms.
#[derive(Debug, Clone)]
pub(super) struct Ticks {
    pub(super) at: Instant,
    pub(super) cores: Vec<Core>,
    /// Of all threads of this process.
    pub(super) process: u64,
}

/// Ticks of one core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Core {
    pub(super) busy: u64,
    /// Those that the hypervisor took not counted.
    pub(super) all: u64,
    /// Those that the hypervisor took.
    pub(super) stolen: u64,
}

impl Ticks {
    pub(super) fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self { at: Instant::now(), cores: stat.lines().filter_map(core).collect(), process: process(&own).unwrap_or(0) }
    }

    /// Shares of the time since an earlier look: of each core, and of the process in cores.
    pub(super) fn since(&self, before: &Self) -> (Vec<f32>, f32) {
        let share = |(now, before): (&Core, &Core)| {
            let (busy, all) = (now.busy.saturating_sub(before.busy), now.all.saturating_sub(before.all));
            (busy as f32 / all.max(1) as f32).min(1.0)
        };
        let cores = self.cores.iter().zip(&before.cores).map(share).collect();
        let ticks = (self.at - before.at).as_secs_f32() * 100.0;
        (cores, self.process.saturating_sub(before.process) as f32 / ticks.max(1.0))
    }
}

/// Ticks of a line `cpuN user nice system idle iowait irq softirq steal guest guest_nice` of /proc/stat. Guests' time is
/// in user and nice already.
fn core(line: &str) -> Option<Core> {
    let (name, ticks) = line.split_once(' ')?;
    if !name.strip_prefix("cpu")?.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let ticks: Vec<u64> = ticks.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, ..] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some(Core { busy, all: busy + idle + iowait, stolen: ticks.get(7).copied().unwrap_or(0) })
}

/// User and system ticks of /proc/self/stat; the name in parentheses may hold anything.
fn process(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_of_the_system_are_read() {
        assert_eq!(core("cpu3 10 1 5 80 4 2 1 7 0 0"), Some(Core { busy: 19, all: 103, stolen: 7 }));
        assert_eq!(core("cpu  10 1 5 80 4 2 1 7 0 0"), None, "the sum of all");
        assert_eq!(core("intr 1 2 3"), None);
        let stat = "42 (a) b) R 1 42 42 0 -1 4194560 100 0 0 0 250 31 0 0 20 0 3 0 1000 1 1";
        assert_eq!(process(stat), Some(281));
        assert_eq!(process("nothing"), None);
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let at = Instant::now();
        let core = |busy, all, stolen| Core { busy, all, stolen };
        let before = Ticks { at, cores: vec![core(100, 1000, 10), core(0, 1000, 0)], process: 5 };
        let now =
            Ticks { at: at + Duration::from_secs(1), cores: vec![core(170, 1080, 30), core(50, 1100, 0)], process: 75 };
        assert_eq!(now.since(&before), (vec![0.875, 0.5], 0.7));
        assert_eq!(before.since(&Ticks { at, ..now }), (vec![0.0, 0.0], 0.0), "counters that run backwards");
    }
}
