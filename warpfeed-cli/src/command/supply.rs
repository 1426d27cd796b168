//! `warpfeed bench supply`: images per second by cores, and what training steps take.

use super::experiment::{DeviceOptions, ReportOptions, SubjectOptions};
use super::models::ModelOptions;
use super::options::PresetOptions;
use super::peers::PeersScript;
use super::setting_args::choice;
use super::values::price;
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use warpfeed::source::read_text_limited;
use warpfeed::{Result, Strategy};
use warpfeed_bench::compare::MAX_REPORT_BYTES;
use warpfeed_bench::environment::Environment;
use warpfeed_bench::subject::Subject;
use warpfeed_bench::supply::{EPOCHS, SupplySettings, supply, supply_beside_peers};
use warpfeed_bench::verdict::default_rounds;

/// Time in which a training step is measured.
const STEP_TIME: Duration = Duration::from_secs(3);

/// Options of the pipeline that this command measures by itself; the script's is `train` over all images on the CPU.
const MEASURED_ONLY_HERE: [&str; 8] =
    ["preset", "load", "transforms", "strategy", "limit", "seed", "device", "stream_priority"];

/// Measure images per second by cores, and those that training steps take: how many cores does a GPU need?
///
/// Prints how long the accelerator waits with each number of cores, and, with prices, what an epoch costs. With
/// --peers, DALI and torchvision are measured in turn with warpfeed, by benches/peers/run of warpfeed's repository: the
/// pipeline is then train, and SOURCE a folder of class folders with JPEGs.
#[derive(Args)]
pub struct Supply {
    #[command(flatten)]
    subject: SubjectOptions,
    #[command(flatten)]
    device: DeviceOptions,
    /// Numbers of cores [default: 1, 2, 4, ... and all of this machine]
    #[arg(long, value_name = "C", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    cores: Vec<u16>,
    /// Training steps: resnet18, resnet50, resnet152, milliseconds, or candle-resnet18, candle-resnet50, candle-cnn.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["resnet18", "resnet50", "resnet152"])]
    models: Vec<String>,
    #[command(flatten)]
    step: ModelOptions,
    #[command(flatten)]
    preset: PresetOptions,
    /// How operations are run.
    #[arg(long, value_parser = choice::<Strategy>("strategy"), default_value = "fused")]
    strategy: Strategy,
    /// Images in a batch.
    #[arg(long, value_name = "B", default_value_t = 32)]
    batch_size: usize,
    /// Measurements of each number of cores, in turn with the others [default: as many as the verdicts need, 16 or
    /// more]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Price of a core for an hour, in any currency.
    #[arg(long, value_name = "P", value_parser = price, requires = "price_gpu")]
    price_core: Option<f64>,
    /// Price of a GPU for an hour, in the same currency.
    #[arg(long, value_name = "P", value_parser = price, requires = "price_core")]
    price_gpu: Option<f64>,
    /// Measure DALI and torchvision too.
    #[arg(long, conflicts_with_all = MEASURED_ONLY_HERE)]
    peers: bool,
    /// With the rounds of this file, written by benches/peers/run --supply --out.
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["peers", "cores", "rounds", "batch_size"])]
    #[arg(conflicts_with_all = MEASURED_ONLY_HERE)]
    from: Option<PathBuf>,
    #[command(flatten)]
    script: PeersScript,
    #[command(flatten)]
    report: ReportOptions,
}

impl Supply {
    pub fn run(self) -> Result<()> {
        let subject = self.device.on(&self.subject)?;
        let cores = if self.cores.is_empty() {
            core_counts(Environment::here().cores)
        } else {
            let cores: BTreeSet<usize> = self.cores.iter().map(|&cores| cores.into()).collect();
            cores.into_iter().collect()
        };
        let mut models = self.models.iter().map(|name| self.step.model(name, &subject)).collect::<Result<Vec<_>>>()?;
        let curves = if self.peers { 4 } else { 2 };
        let rounds = self.rounds.unwrap_or_else(|| default_rounds(curves * cores.len() * models.len()));
        let settings = SupplySettings {
            cores,
            batch_size: self.batch_size,
            ops: self.preset.ops()?,
            strategy: self.strategy,
            rounds,
            step_time: STEP_TIME,
            prices: self.price_core.zip(self.price_gpu),
        };
        self.report.run(|progress| match self.of_peers(&subject, &settings)? {
            Some(rounds) => supply_beside_peers(&rounds, &subject, &settings, &mut models, progress),
            None => {
                let subject = subject.for_rounds(rounds, EPOCHS, self.batch_size);
                supply(&subject, &settings, &mut models, progress)
            }
        })
    }

    /// The rounds that the peers' script wrote, or writes now; `None` if they are not asked for.
    fn of_peers(&self, subject: &Subject, settings: &SupplySettings) -> Result<Option<String>> {
        if let Some(file) = &self.from {
            return read_text_limited(file, MAX_REPORT_BYTES).map(Some);
        }
        if !self.peers {
            return Ok(None);
        }
        let cores: Vec<String> = settings.cores.iter().map(usize::to_string).collect();
        let options = ["--supply".to_owned(), cores.join(","), "--batch-size".to_owned(), self.batch_size.to_string()];
        self.script.measure(Path::new(&subject.name), settings.rounds, options).map(Some)
    }
}

/// 1, 2, 4, ... and all of a machine's cores.
fn core_counts(all: usize) -> Vec<usize> {
    let doubled = std::iter::successors(Some(1_usize), |cores| cores.checked_mul(2));
    doubled.take_while(|&cores| cores < all).chain([all]).collect()
}
