//! `warpfeed recipe`: the explicit operations of one sample.

use super::options::PipelineOptions;
use super::output::print_json;
use super::source::SourceArgs;
use clap::Args;
use warpfeed::Result;

/// Print the explicit operations that a sample goes through, as JSON
///
/// They are the operations of warpfeed run with the same options. warpfeed apply --ops takes them, with --orientation
/// ignore: the EXIF orientation is already among the operations. With several views the output is a list of such lists.
#[derive(Args)]
pub struct Recipe {
    #[command(flatten)]
    source: SourceArgs,
    /// Index of the sample in the source.
    #[arg(long, value_name = "I")]
    index: u64,
    /// Number of the epoch.
    #[arg(long, value_name = "E", default_value_t = 0)]
    epoch: u64,
    #[command(flatten)]
    pipeline: PipelineOptions,
}

impl Recipe {
    pub fn run(self) -> Result<()> {
        let recipes = self.pipeline.build(&self.source)?.recipes(self.epoch, self.index)?;
        match &recipes[..] {
            [recipe] => print_json(recipe),
            recipes => print_json(&recipes),
        }
    }
}
