//! `warpfeed recipe`: the explicit operations of one sample.

use super::options::PipelineOptions;
use super::output::{print_json, say};
use super::source::{SampleArgs, SourceArgs};
use clap::Args;
use warpfeed::{Pipeline, Result};

/// Print the explicit operations that a sample goes through, as JSON
///
/// They are the operations of warpfeed run with the same options. warpfeed apply --ops takes them, with --orientation
/// ignore: the EXIF orientation is already among the operations. With several views the output is a list of such lists.
/// The sample's index and name go to standard error.
#[derive(Args)]
pub struct Recipe {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    sample: SampleArgs,
    /// Number of times that the sample came before in the epoch, with a preset that repeats samples.
    #[arg(long, value_name = "N", default_value_t = 0)]
    repetition: u32,
    /// Number of the epoch.
    #[arg(long, value_name = "E", default_value_t = 0)]
    epoch: u64,
    #[command(flatten)]
    pipeline: PipelineOptions,
}

impl Recipe {
    pub fn run(self) -> Result<()> {
        let builder = self.pipeline.builder(&self.source)?;
        if builder.is_ragged() { self.print(&builder.build_ragged()?) } else { self.print(&builder.build()?) }
    }

    fn print<I>(&self, pipeline: &Pipeline<I>) -> Result<()> {
        let index = self.sample.index(|index| pipeline.name(index), pipeline.source_summary().images)?;
        let recipes = pipeline.recipes_of(self.epoch, index, self.repetition)?;
        say(format_args!("sample {index}: {}", pipeline.name(index).unwrap_or_default()));
        match &recipes[..] {
            [recipe] => print_json(recipe),
            recipes => print_json(&recipes),
        }
    }
}
