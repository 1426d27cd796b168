//! The command `warpfeed`: parses, calls the library, sets the exit code.

mod apply;
mod bench;
mod check_gpu;
mod compare;
mod demo;
mod diagnose;
mod doctor;
mod experiment;
mod models;
mod options;
mod output;
mod pack;
mod preview;
mod recipe;
mod run;
mod source;
mod synth;
mod tune;
mod values;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::time::Instant;
use warpfeed::Result;

/// Feeds images to GPUs: decodes, augments and batches them, and measures how fast.
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "Exit codes: 0 done, 1 the work failed, 2 wrong use, 3 the device asked for is not there."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Run(run::Run),
    Apply(apply::Apply),
    Preview(preview::PreviewArgs),
    Recipe(recipe::Recipe),
    Pack(pack::Pack),
    Synth(synth::Synth),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
    Tune(tune::Tune),
    Compare(compare::Compare),
    CheckGpu(check_gpu::CheckGpu),
}

fn main() -> ExitCode {
    let started = Instant::now();
    match Cli::try_parse().map_or_else(not_run, |cli| run(cli.command, started)) {
        Ok(code) => code,
        Err(error) => {
            output::say(format_args!("warpfeed: {error}"));
            output::exit_code(&error)
        }
    }
}

fn run(command: Command, started: Instant) -> Result<ExitCode> {
    match command {
        Command::Demo(demo) => demo.run(),
        Command::Run(run) => run.run(started),
        Command::Apply(apply) => apply.run(),
        Command::Preview(preview) => preview.run(),
        Command::Recipe(recipe) => recipe.run(),
        Command::Pack(pack) => pack.run(),
        Command::Synth(synth) => synth.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Bench(bench) => bench.run(),
        Command::Tune(tune) => tune.run(),
        Command::Compare(compare) => compare.run(),
        Command::CheckGpu(check) => return check.run(),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Prints clap's output: text that was asked for, such as --help, or an error in the arguments.
fn not_run(instead: clap::Error) -> Result<ExitCode> {
    if !instead.use_stderr() {
        return output::written(instead.print()).map(|()| ExitCode::SUCCESS);
    }
    // Without color: `say` escapes control characters, since arguments may be names of files.
    instead.render().to_string().trim_end().lines().for_each(output::say);
    if instead.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(option)) = instead.get(ContextKind::InvalidArg)
        && let Some(feature) = missing_feature(option)
    {
        output::say(format_args!(
            "{option} is an option of builds with the feature {feature} (cargo install warpfeed --features {feature})"
        ));
    }
    Ok(ExitCode::from(2))
}

/// The feature that an unknown option needs, if it is not part of this build.
fn missing_feature(option: &str) -> Option<&'static str> {
    match option {
        "--shard-cache" | "--shard-cache-size" => (!cfg!(feature = "cloud")).then_some("cloud"),
        "--width" | "--learning-rate" => (!cfg!(feature = "candle")).then_some("candle"),
        _ => None,
    }
}
