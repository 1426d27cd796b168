//! `warpfeed tune`: finds the smallest configuration that is not slower than any other.

use super::experiment::{DeviceOptions, GridOptions, ReportOptions, SubjectOptions};
use super::models::StepOptions;
use clap::Args;
use warpfeed::Result;
use warpfeed::experiment::configurations::configurations;
use warpfeed::experiment::cores;

/// Find the fewest threads and prefetched batches that are not slower, beyond doubt, than the fastest
///
/// Prints them as options of the command and as calls of the builder. Also prints how many cores each GPU's training
/// step needs: as asked, with other loads, with packed or cached images, and with decoding on the GPU. A core or two
/// per GPU are left to the trainer.
#[derive(Args)]
pub struct Tune {
    #[command(flatten)]
    subject: SubjectOptions,
    #[command(flatten)]
    device: DeviceOptions,
    #[command(flatten)]
    grid: GridOptions,
    #[command(flatten)]
    step: StepOptions,
    #[command(flatten)]
    report: ReportOptions,
}

impl Tune {
    pub fn run(self) -> Result<()> {
        let settings = self.grid.settings(&[true], &[true], false)?;
        let subject = self.device.on(&self.subject)?;
        let mut model = self.step.chosen(&subject)?;
        let mut progress = self.report.begin()?;
        let progressed = &mut |line: &str| progress.line(line);
        let mut found = configurations(&subject, &settings, &mut model, &mut |_| Ok(()), progressed)?;
        let step = (found.step_images_per_s, self.grid.gpus());
        cores::add(&mut found.report, &subject, &settings, step, &mut |line| progress.line(line))?;
        progress.end();
        found.report.experiment = "tune";
        let (options, code) = (found.smallest.options(), found.smallest.code());
        found.report.answer.extend([format!("Options: {options}"), format!("Code: {code}")]);
        self.report.finish(found.report)
    }
}
