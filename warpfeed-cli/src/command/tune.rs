//! `warpfeed tune`: finds the smallest configuration that is not slower than the fastest.

use super::experiment::{DeviceOptions, GridOptions, ReportOptions, SubjectOptions};
use super::models::StepOptions;
use clap::Args;
use warpfeed::Result;
use warpfeed_bench::tune::tune;

/// Find the fewest threads and prefetched batches that are as good as the fastest
///
/// Prints them as options of the command and as calls of the builder, or says that so few rounds cannot tell. Also
/// prints how many cores the training step needs: as asked, with flips and rotations before, with packed or cached
/// images, and with decoding on the GPU. A core or two per GPU are left to the trainer.
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
        self.report.run(|progress| tune(&subject, &settings, &mut model, progress))
    }
}
