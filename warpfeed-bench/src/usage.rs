//! Utilization of processors, disks and GPUs, sampled by a thread.

use super::nvml::{GpuUse, Nvml};
use super::ticks::{Shares, Ticks};
use serde::Serialize;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warpfeed::internal::cards::pci_addresses;

/// Initial time between two samples.
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of samples kept: when twice as many are reached, neighbors are merged and the interval doubles.
const SAMPLES: usize = 1_000;

/// Utilization over time. All rows that are not empty have the same number of samples, each from 0 to 1 unless stated
/// otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Seconds between two samples.
    pub interval_s: f64,
    /// One row per core, counting all processes of the machine; no row if the system does not say.
    pub cores: Vec<Vec<f32>>,
    /// Utilization by this process, in cores: from 0 to their number.
    pub process: Vec<f32>,
    /// Share of the processors' time in which they were idle while something waited for a disk; empty if the system
    /// does not say.
    pub io_wait: Vec<f32>,
    /// The most active disk; empty if the system shows none.
    pub disk: Vec<f32>,
    /// One row per GPU.
    pub gpus: Vec<Vec<f32>>,
    /// One row per GPU: share of its memory in use; no row if the driver does not say.
    pub gpu_memory: Vec<Vec<f32>>,
    /// Megabytes per second that a GPU receives over PCIe; several GPUs take turns. Empty if the driver does not say.
    pub pcie_mb_per_s: Vec<f32>,
    /// One row per GPU: its video decoder; no row if the driver does not say.
    pub decoders: Vec<Vec<f32>>,
    /// One row per GPU: its JPEG decoder; no row if the driver does not say.
    pub jpeg_decoders: Vec<Vec<f32>>,
}

/// Percentiles of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Percentiles {
    /// The smallest.
    pub min: f64,
    /// Half of the samples are below.
    pub p50: f64,
    /// Nine tenths are below; `None` of fewer than 10 samples.
    pub p90: Option<f64>,
    /// 95 % are below; `None` of fewer than 20 samples.
    pub p95: Option<f64>,
    /// 99 % are below; `None` of fewer than 100 samples.
    pub p99: Option<f64>,
    /// The largest.
    pub max: f64,
}

/// Fewest values that have a p90, p95 and p99: of fewer, the largest value would be all of them.
const FEWEST: [usize; 3] = [10, 20, 100];

/// Reason why percentiles are blank.
pub(super) fn too_few(of: &str) -> String {
    let [p90, p95, p99] = FEWEST;
    format!("p90, p95 and p99 are of {p90}, {p95} and {p99} {of} or more.")
}

/// Percentiles of values by nearest rank; `None` if there are no values.
///
/// ```
/// use warpfeed_bench::usage::percentiles;
/// let values: Vec<f64> = (1..=100).map(f64::from).collect();
/// let p = percentiles(&values).unwrap();
/// assert_eq!((p.min, p.p50, p.p90, p.p95, p.p99, p.max), (1.0, 50.0, Some(90.0), Some(95.0), Some(99.0), 100.0));
/// let few = percentiles(&values[..19]).unwrap();
/// assert_eq!((few.p90, few.p95, few.p99, few.max), (Some(18.0), None, None, 19.0));
/// assert!(percentiles(&[]).is_none());
/// ```
#[must_use]
pub fn percentiles(values: &[f64]) -> Option<Percentiles> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    };
    let tail = |share: f64, fewest: usize| at(share).filter(|_| sorted.len() >= fewest);
    Some(Percentiles {
        min: at(0.0)?,
        p50: at(0.50)?,
        p90: tail(0.90, FEWEST[0]),
        p95: tail(0.95, FEWEST[1]),
        p99: tail(0.99, FEWEST[2]),
        max: at(1.0)?,
    })
}

impl Usage {
    /// Percentiles of the mean over all cores; `None` if nothing was sampled.
    #[must_use]
    pub fn cpu(&self) -> Option<Percentiles> {
        percentiles(&means(&self.cores))
    }

    /// Length of the sampled time in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.process.len() as f64 * self.interval_s
    }

    /// All rows with their names, for a heat map.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, &[f32])> {
        let mut all = Vec::new();
        for (rows, name) in [
            (&self.cores, "core"),
            (&self.gpus, "GPU"),
            (&self.decoders, "video dec."),
            (&self.jpeg_decoders, "JPEG dec."),
        ] {
            all.extend(rows.iter().enumerate().map(|(i, row)| (format!("{name} {i}"), &row[..])));
        }
        all
    }

    fn push(&mut self, shares: &Shares, gpus: &[GpuUse], received_mb_per_s: Option<f32>) {
        let add = |rows: &mut Vec<Vec<f32>>, values: Vec<f32>| {
            rows.resize(values.len().max(rows.len()), Vec::new());
            rows.iter_mut().zip(values).for_each(|(row, value)| row.push(value));
        };
        add(&mut self.cores, shares.cores.clone());
        self.process.push(shares.process);
        self.io_wait.extend(shares.io_wait);
        self.disk.extend(shares.disk);
        self.pcie_mb_per_s.extend(received_mb_per_s);
        add(&mut self.gpus, gpus.iter().map(|gpu| gpu.gpu).collect());
        add(&mut self.gpu_memory, gpus.iter().filter_map(|gpu| gpu.memory).collect());
        add(&mut self.decoders, gpus.iter().filter_map(|gpu| gpu.decoder).collect());
        add(&mut self.jpeg_decoders, gpus.iter().filter_map(|gpu| gpu.jpeg).collect());
    }

    /// Merges neighbors, so that half of the samples remain.
    fn halve(&mut self) {
        let merge =
            |row: &mut Vec<f32>| *row = row.chunks_exact(2).map(|pair| f32::midpoint(pair[0], pair[1])).collect();
        let rows = [&mut self.cores, &mut self.gpus, &mut self.gpu_memory, &mut self.decoders, &mut self.jpeg_decoders];
        let single = [&mut self.process, &mut self.io_wait, &mut self.disk, &mut self.pcie_mb_per_s];
        rows.into_iter().flatten().chain(single).for_each(merge);
        self.interval_s *= 2.0;
    }
}

/// Mean over all rows at each time.
pub(super) fn means(rows: &[Vec<f32>]) -> Vec<f64> {
    let samples = rows.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |i: usize| rows.iter().map(|row| f64::from(row[i])).sum::<f64>() / rows.len() as f64;
    (0..samples).map(mean).collect()
}

/// A thread that samples until it is stopped or dropped.
pub struct UsageMonitor {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Usage>>,
}

impl UsageMonitor {
    /// Starts sampling, at first every tenth of a second. If no thread can be started, nothing is sampled.
    ///
    /// ```
    /// let monitor = warpfeed_bench::usage::UsageMonitor::start();
    /// std::thread::sleep(std::time::Duration::from_millis(250));
    /// let usage = monitor.stop();
    /// assert!(usage.cores.iter().flatten().all(|share| (0.0..=1.0).contains(share)));
    /// ```
    #[must_use]
    pub fn start() -> Self {
        let (stop, stopped) = channel();
        let sample = move || {
            let nvml = pci_addresses().ok().and_then(|addresses| Nvml::open(&addresses).ok());
            let mut usage = Usage { interval_s: INTERVAL.as_secs_f64(), ..Usage::default() };
            let mut before = Ticks::now();
            let mut due = Instant::now();
            loop {
                due += Duration::from_secs_f64(usage.interval_s);
                let stopping = stopped.recv_timeout(due.saturating_duration_since(Instant::now()));
                if stopping != Err(RecvTimeoutError::Timeout) {
                    return usage;
                }
                let now = Ticks::now();
                let shares = now.since(&before);
                before = now;
                let gpus: Vec<GpuUse> =
                    nvml.iter().flat_map(|nvml| (0..nvml.len()).map(|i| nvml.usage(i).unwrap_or_default())).collect();
                let in_turn = usage.process.len() % gpus.len().max(1);
                let received = nvml.as_ref().and_then(|nvml| nvml.received_mb_per_s(in_turn));
                usage.push(&shares, &gpus, received);
                if usage.process.len() >= 2 * SAMPLES {
                    usage.halve();
                }
            }
        };
        let thread = std::thread::Builder::new().name("warpfeed-usage".into()).spawn(sample).ok();
        Self { stop: Some(stop), thread }
    }

    /// Stops sampling and returns the samples.
    #[must_use]
    pub fn stop(mut self) -> Usage {
        self.join()
    }

    fn join(&mut self) -> Usage {
        drop(self.stop.take());
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for UsageMonitor {
    fn drop(&mut self) {
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_keep_a_bounded_number_of_samples() {
        let mut usage = Usage { interval_s: 0.1, ..Usage::default() };
        let gpu = GpuUse { gpu: 0.5, memory: Some(0.25), decoder: None, jpeg: Some(1.0) };
        for i in 0..4 {
            let cores = vec![i as f32 / 4.0, 1.0];
            let shares = Shares { cores, process: i as f32, io_wait: Some(0.1 * i as f32), disk: None };
            usage.push(&shares, &[gpu], Some(1e3 * i as f32));
        }
        usage.halve();
        assert_eq!(usage.interval_s, 0.2);
        assert_eq!(usage.cores, [[0.125, 0.625], [1.0, 1.0]]);
        assert_eq!(usage.process, [0.5, 2.5]);
        assert_eq!((usage.gpus.len(), usage.decoders.len(), &usage.jpeg_decoders[0][..]), (1, 0, &[1.0, 1.0][..]));
        assert_eq!((&usage.gpu_memory[..], usage.seconds()), (&[vec![0.25, 0.25]][..], 0.4));
        assert_eq!((&usage.pcie_mb_per_s[..], usage.io_wait.len(), usage.disk.len()), (&[500.0, 2500.0][..], 2, 0));
        let names: Vec<String> = usage.rows().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["core 0", "core 1", "GPU 0", "JPEG dec. 0"]);
        assert_eq!(usage.cpu().unwrap().max, f64::midpoint(0.625, 1.0));
    }
}
