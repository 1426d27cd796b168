//! The experiments of `warpfeed bench` (docs/experiments.md) on images in memory:
//! `cargo bench --bench experiments -- augment-load`. `peers` reads `WARPFEED_PEERS`.

mod common;

use std::time::Duration;
use warpfeed::{Preset, Result, Strategy, source::EncodedImages};
use warpfeed_bench::augment_load::{self, augment_load};
use warpfeed_bench::configurations::{self, configurations, worker_counts};
use warpfeed_bench::diagnose::{self, diagnose};
use warpfeed_bench::peers::peers;
use warpfeed_bench::report::Report;
use warpfeed_bench::step::{Pace, StatedStep};
use warpfeed_bench::subject::{Model, Subject};
use warpfeed_bench::workers::{self, workers};

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|asked| name.contains(&asked[..]));
    let images = common::images().iter().map(|bytes| (bytes.clone(), 0));
    let subject = Subject::new("images in memory", EncodedImages::new(images));
    for name in ["augment-load", "workers", "configurations", "diagnose"].into_iter().filter(|name| is_asked(name)) {
        println!("== {name}\n{}", report(name, &subject)?.text());
    }
    if let Some(file) = std::env::var_os("WARPFEED_PEERS").filter(|_| is_asked("peers")) {
        let json = std::fs::read_to_string(file).expect("WARPFEED_PEERS names a file");
        println!("== peers\n{}", peers(&json)?.text());
    }
    Ok(())
}

fn report(name: &str, subject: &Subject) -> Result<Report> {
    let resnet18 = || -> Result<Model> {
        let step = Box::new(StatedStep::published("resnet18", Pace::Sleep)?);
        Ok(Model { name: "resnet18".to_owned(), step })
    };
    let progress = &mut |line: &str| eprintln!("{line}");
    let ops = Preset::Train.ops();
    match name {
        "augment-load" => augment_load(
            subject,
            &augment_load::AugmentLoadSettings::default(),
            &mut [Model::none(), resnet18()?],
            progress,
        ),
        "workers" => {
            let (counts, batch_sizes) = (vec![0, 1, 2, 4], vec![8, 32]);
            let (evaluation, others) = (None, Vec::new());
            let settings = workers::WorkersSettings {
                workers: counts,
                batch_sizes,
                epochs: 2,
                rounds: 1,
                ops,
                evaluation,
                others,
            };
            workers(subject, &settings, &mut || Ok(Model::none()), progress)
        }
        "configurations" => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let settings = configurations::ConfigurationsSettings {
                threads: worker_counts(cores, 0),
                prefetch: vec![1, 2, 4],
                persistent: vec![true, false],
                pinned: vec![true, false],
                batch_size: 32,
                name: Preset::Train.name().to_owned(),
                ops,
                strategy: Strategy::Fused,
                time: Duration::from_secs(1),
                rounds: 2,
                gpus: 0,
                baseline: true,
            };
            Ok(configurations(subject, &settings, &mut resnet18()?, &mut |_| Ok(()), progress)?.report)
        }
        _ => Ok(diagnose(subject, &diagnose::DiagnoseSettings::new(ops), &mut resnet18()?, progress)?.report),
    }
}
