//! The system's counters of processor and disk activity.

use std::time::Instant;

/// The system's counters, in ticks of 10 ms.
#[derive(Debug, Clone)]
pub(super) struct Ticks {
    pub(super) at: Instant,
    pub(super) cores: Vec<Core>,
    /// Ticks of all threads of this process.
    pub(super) process: u64,
    /// Milliseconds that each disk was active.
    pub(super) disks: Vec<u64>,
}

/// Ticks of one core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Core {
    pub(super) busy: u64,
    /// Ticks in which the core was idle while something waited for a disk.
    pub(super) waiting: u64,
    /// All ticks except those that the hypervisor took.
    pub(super) all: u64,
    /// Ticks that the hypervisor took.
    pub(super) stolen: u64,
}

/// Shares of the time between two readings.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Shares {
    /// Share in which each core was busy.
    pub(super) cores: Vec<f32>,
    /// Time of this process, in cores.
    pub(super) process: f32,
    /// Share of all cores' time in which they were idle while something waited for a disk; `None` if the system does
    /// not say.
    pub(super) io_wait: Option<f32>,
    /// Share in which the most active disk was active; `None` if the system shows no disk.
    pub(super) disk: Option<f32>,
}

impl Ticks {
    pub(super) fn now() -> Self {
        let [stat, own, disks] = ["/proc/stat", "/proc/self/stat", "/proc/diskstats"]
            .map(|path| std::fs::read_to_string(path).unwrap_or_default());
        Self {
            at: Instant::now(),
            cores: stat.lines().filter_map(core).collect(),
            process: process(&own).unwrap_or(0),
            disks: disks.lines().filter_map(disk).collect(),
        }
    }

    /// Shares of the time since an earlier reading.
    pub(super) fn since(&self, before: &Self) -> Shares {
        let share = |(now, before): (&Core, &Core)| {
            let (busy, all) = (now.busy.saturating_sub(before.busy), now.all.saturating_sub(before.all));
            (busy as f32 / all.max(1) as f32).min(1.0)
        };
        let seconds = (self.at - before.at).as_secs_f32();
        let sum = |of: fn(&Core) -> u64| {
            let pairs = self.cores.iter().zip(&before.cores);
            pairs.map(|(now, before)| of(now).saturating_sub(of(before))).sum::<u64>() as f32
        };
        let at_work = |(now, before): (&u64, &u64)| now.saturating_sub(*before);
        let longest = self.disks.iter().zip(&before.disks).map(at_work).max();
        Shares {
            cores: self.cores.iter().zip(&before.cores).map(share).collect(),
            process: self.process.saturating_sub(before.process) as f32 / (100.0 * seconds).max(1.0),
            io_wait: (!self.cores.is_empty())
                .then(|| (sum(|core| core.waiting) / sum(|core| core.all).max(1.0)).min(1.0)),
            disk: longest.map(|ms| (ms as f32 / (1e3 * seconds).max(1.0)).min(1.0)),
        }
    }
}

/// Parses a line `cpuN user nice system idle iowait irq softirq steal guest guest_nice` of /proc/stat. Guests' time is
/// already included in user and nice.
fn core(line: &str) -> Option<Core> {
    let (name, ticks) = line.split_once(' ')?;
    if !name.strip_prefix("cpu")?.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let ticks: Vec<u64> = ticks.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, ..] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some(Core { busy, waiting: iowait, all: busy + idle + iowait, stolen: ticks.get(7).copied().unwrap_or(0) })
}

/// User and system ticks of /proc/self/stat. The name in parentheses may contain anything.
fn process(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Milliseconds that a disk was active, from a line of /proc/diskstats: number, minor number, name and 17 counters.
/// Disks that were never active are left out: most of them are no disks.
fn disk(line: &str) -> Option<u64> {
    line.split_whitespace().nth(12)?.parse().ok().filter(|&ms| ms > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_of_the_system_are_read() {
        assert_eq!(core("cpu3 10 1 5 80 4 2 1 7 0 0"), Some(Core { busy: 19, waiting: 4, all: 103, stolen: 7 }));
        assert_eq!(core("cpu  10 1 5 80 4 2 1 7 0 0"), None, "the sum of all");
        assert_eq!(core("intr 1 2 3"), None);
        let stat = "42 (a) b) R 1 42 42 0 -1 4194560 100 0 0 0 250 31 0 0 20 0 3 0 1000 1 1";
        assert_eq!(process(stat), Some(281));
        assert_eq!(process("nothing"), None);
        assert_eq!(
            disk(" 254  0 vda 636974 64343 153161834 1364039 988876 1094486 725370792 7376210 0 628244 8997326 8"),
            Some(628_244)
        );
        assert_eq!((disk("7 0 loop0 0 0 0 0 0 0 0 0 0 0 0"), disk("7 0 loop0")), (None, None));
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let at = Instant::now();
        let core = |busy, waiting, all| Core { busy, waiting, all, stolen: 0 };
        let before = Ticks { at, cores: vec![core(100, 0, 1000), core(0, 9, 1000)], process: 5, disks: vec![7, 1000] };
        let later = at + Duration::from_secs(1);
        let now =
            Ticks { at: later, cores: vec![core(170, 0, 1080), core(50, 27, 1100)], process: 75, disks: vec![7, 1250] };
        let shares = Shares { cores: vec![0.875, 0.5], process: 0.7, io_wait: Some(0.1), disk: Some(0.25) };
        assert_eq!(now.since(&before), shares);
        let none = Shares { cores: vec![0.0, 0.0], process: 0.0, io_wait: Some(0.0), disk: Some(0.0) };
        assert_eq!(before.since(&Ticks { at, ..now }), none, "counters that run backwards");
        let nothing = Ticks { at, cores: Vec::new(), process: 0, disks: Vec::new() };
        assert_eq!(nothing.since(&nothing), Shares::default());
    }
}
