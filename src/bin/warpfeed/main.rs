//! The command `warpfeed`: parses, calls the library, sets the exit code.

mod apply;
mod bench;
mod check_gpu;
mod demo;
mod diagnose;
mod doctor;
mod models;
mod options;
mod output;
mod pack;
mod preview;
mod run;
mod source;
mod synth;
mod tune;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::time::Instant;

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
    Preview(preview::Preview),
    Pack(pack::Pack),
    Synth(synth::Synth),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
    Tune(tune::Tune),
    CheckGpu(check_gpu::CheckGpu),
}

fn main() -> ExitCode {
    let started = Instant::now();
    let result = match Cli::parse().command {
        Command::Demo(demo) => demo.run(),
        Command::Run(run) => run.run(started),
        Command::Apply(apply) => apply.run(),
        Command::Preview(preview) => preview.run(),
        Command::Pack(pack) => pack.run(),
        Command::Synth(synth) => synth.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Bench(bench) => bench.run(),
        Command::Tune(tune) => tune.run(),
        Command::CheckGpu(check) => check.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warpfeed: {error}");
            output::exit_code(&error)
        }
    }
}
