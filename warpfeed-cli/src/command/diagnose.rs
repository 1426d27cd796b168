//! `warpfeed bench diagnose`: finds the bottleneck of a training.

use super::experiment::{DeviceOptions, ReportOptions, SubjectOptions};
use super::models::StepOptions;
use super::options::PresetOptions;
use super::setting_args::choice;
use super::values::seconds;
use clap::Args;
use std::time::Duration;
use warpfeed::{Result, Strategy};
use warpfeed_bench::diagnose::{DiagnoseSettings, diagnose};

/// Find the bottleneck: disk, decoding, augmentation, threads or the training step
///
/// Measures reading alone, reading and decoding, the pipeline, the pipeline with one part of its work done twice, the
/// training step alone, and everything together. Then says what to change.
#[derive(Args)]
pub struct Diagnose {
    #[command(flatten)]
    subject: SubjectOptions,
    #[command(flatten)]
    device: DeviceOptions,
    #[command(flatten)]
    preset: PresetOptions,
    /// How operations are run.
    #[arg(long, value_parser = choice::<Strategy>("strategy"), default_value = "fused")]
    strategy: Strategy,
    /// Images in a batch.
    #[arg(long, value_name = "B", default_value_t = 32)]
    batch_size: usize,
    /// Worker threads [default: one for each processor]
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    #[command(flatten)]
    step: StepOptions,
    /// Seconds for each part, over all rounds.
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// Measurements of each part, in turn with the others; the median counts.
    #[arg(long, value_name = "R", default_value_t = 8)]
    rounds: u32,
    #[command(flatten)]
    report: ReportOptions,
}

impl Diagnose {
    pub fn run(self) -> Result<()> {
        let mut settings = DiagnoseSettings::new(self.preset.ops()?);
        settings.threads = self.threads.unwrap_or(settings.threads);
        (settings.batch_size, settings.time) = (self.batch_size, self.seconds);
        settings.rounds = self.rounds;
        settings.strategy = self.strategy;
        let subject = self.device.on(&self.subject)?;
        let mut model = self.step.chosen(&subject)?;
        self.report.run(|progress| Ok(diagnose(&subject, &settings, &mut model, progress)?.report))
    }
}
