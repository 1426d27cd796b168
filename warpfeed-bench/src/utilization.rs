//! The table of utilization, with percentiles from the minimum to the maximum.

use super::report::{Cell, ReportTable};
use super::usage::{Percentiles, Usage, means, percentiles, too_few};
use serde_json::{Map, Value, json};

/// Something whose utilization is sampled.
struct Watched {
    name: &'static str,
    unit: &'static str,
    /// Factor from a sample to the unit.
    factor: f64,
    decimals: usize,
    samples: fn(&Usage) -> Vec<f64>,
    /// Reason why there may be no samples.
    missing: &'static str,
}

const NO_NVML: &str = "NVIDIA's management library (libnvidia-ml.so.1) shows no GPU, or does not say";

const fn share(name: &'static str, samples: fn(&Usage) -> Vec<f64>, missing: &'static str) -> Watched {
    Watched { name, unit: "%", factor: 100.0, decimals: 0, samples, missing }
}

const WATCHED: [Watched; 7] = [
    share("CPU", |usage| means(&usage.cores), "the system has no /proc/stat"),
    share("GPU", |usage| means(&usage.gpus), NO_NVML),
    share("GPU memory", |usage| means(&usage.gpu_memory), NO_NVML),
    Watched {
        name: "PCIe, received",
        unit: "MB/s",
        factor: 1.0,
        decimals: 0,
        samples: |usage| single(&usage.pcie_mb_per_s),
        missing: NO_NVML,
    },
    share("JPEG decoder", |usage| means(&usage.jpeg_decoders), NO_NVML),
    share("disk", |usage| single(&usage.disk), "the system shows no disk in /proc/diskstats"),
    Watched { decimals: 1, ..share("I/O wait", |usage| single(&usage.io_wait), "the system has no /proc/stat") },
];

/// Note that explains the rows.
pub(super) const NOTE: &str = "Utilization is the mean over all cores, or GPUs, sampled every 0.1 s in all rounds. GPU memory is \
    the share in use; PCIe is the data that a GPU receives; disk is the busiest disk. I/O wait is the time that cores were idle \
    while a process waited for a disk.";

fn single(samples: &[f32]) -> Vec<f64> {
    samples.iter().map(|&sample| f64::from(sample)).collect()
}

impl Watched {
    /// Percentiles over all runs, in the unit; `None` if nothing was sampled.
    fn percentiles(&self, runs: &[Usage]) -> Option<Percentiles> {
        let in_unit = |sample: f64| sample * self.factor;
        percentiles(&runs.iter().flat_map(self.samples).map(in_unit).collect::<Vec<_>>())
    }
}

/// Table of the cases' utilization over their rounds. `columns` are the names of the cells that identify a case.
pub(super) fn table<'a>(columns: &[&str], cases: impl IntoIterator<Item = (Vec<Cell>, &'a [Usage])>) -> ReportTable {
    let figures = ["of", "unit", "min", "p50", "p90", "p95", "p99", "max"];
    let mut table = ReportTable::new("utilization", "Utilization", &[columns, &figures].concat());
    table.in_files_only = true;
    let (mut seen, mut few) = ([false; WATCHED.len()], false);
    for (names, runs) in cases {
        for (watched, seen) in WATCHED.iter().zip(&mut seen) {
            let Some(Percentiles { min, p50, p90, p95, p99, max }) = watched.percentiles(runs) else { continue };
            *seen = true;
            few |= p99.is_none();
            let figures = [Some(min), Some(p50), p90, p95, p99, Some(max)];
            let figures = figures.map(|value| Cell::number(value, watched.decimals));
            let of = [watched.name.into(), watched.unit.into()];
            table.rows.push(names.iter().cloned().chain(of).chain(figures).collect());
        }
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (watched, _) in WATCHED.iter().zip(seen).filter(|(_, seen)| !seen) {
        match reasons.iter_mut().find(|reason| reason.0 == watched.missing) {
            Some((_, names)) => names.push(watched.name),
            None => reasons.push((watched.missing, vec![watched.name])),
        }
    }
    table.blank = reasons.into_iter().map(|(reason, names)| format!("{}: {reason}.", names.join(", "))).collect();
    table.blank.extend(few.then(|| too_few("samples")));
    table
}

/// 95th percentile of one row of the table, in its unit.
pub(super) fn p95(name: &str, runs: &[Usage]) -> Option<f64> {
    let watched = WATCHED.iter().find(|watched| watched.name == name)?;
    watched.percentiles(runs)?.p95
}

/// Utilization of one case for JSON: percentiles by name, in their unit.
pub(super) fn figures(runs: &[Usage]) -> Value {
    let of = |watched: &Watched| {
        let mut figures = json!(watched.percentiles(runs)?);
        figures["unit"] = watched.unit.into();
        Some((watched.name.to_owned(), figures))
    };
    WATCHED.iter().filter_map(of).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sampled_has_a_row_and_what_was_not_has_a_reason() {
        let usage = |core: f32| Usage {
            interval_s: 0.1,
            cores: vec![vec![core, 0.5], vec![core, 1.0]],
            process: vec![1.0, 1.0],
            io_wait: vec![0.0, 0.25],
            gpu_memory: vec![vec![0.5, 0.5]],
            pcie_mb_per_s: vec![100.0, 12_000.0],
            ..Usage::default()
        };
        let runs = [usage(0.25), usage(0.0)];
        let table = table(&["load"], [(vec![Cell::number(12.0, 0)], &runs[..]), (vec![Cell::number(1.0, 0)], &[][..])]);
        let rows: Vec<Vec<String>> = table.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        let want = [
            ["12", "CPU", "%", "0", "25", "", "", "", "75"],
            ["12", "GPU memory", "%", "50", "50", "", "", "", "50"],
            ["12", "PCIe, received", "MB/s", "100", "100", "", "", "", "12000"],
            ["12", "I/O wait", "%", "0.0", "0.0", "", "", "", "25.0"],
        ];
        assert_eq!(rows, want);
        assert!(table.blank[0].starts_with("GPU, JPEG decoder: NVIDIA's"), "{:?}", table.blank);
        assert!(table.blank[1].starts_with("disk: ") && table.blank.len() == 3, "{:?}", table.blank);
        assert!(table.blank[2].starts_with("p90, p95 and p99 are of 10, 20 and 100 samples"), "{:?}", table.blank);
        let figures = figures(&runs);
        assert_eq!((&figures["CPU"]["max"], &figures["disk"]), (&75.0.into(), &Value::Null));
        let twenty = Usage { cores: vec![(1..=20).map(|i| i as f32 / 20.0).collect()], ..Usage::default() };
        assert!((p95("CPU", &[twenty]).unwrap() - 95.0).abs() < 1e-4);
        assert_eq!((p95("CPU", &runs), p95("GPU", &runs)), (None, None), "too few samples, and none");
    }
}
