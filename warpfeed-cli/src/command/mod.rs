//! The command `warpfeed`: parses, calls the library, returns the exit code.

mod apply;
mod audit;
mod bench;
mod buckets;
mod check_gpu;
mod compare;
mod contract;
mod demo;
mod diagnose;
mod diff;
mod doctor;
mod experiment;
mod models;
mod options;
mod output;
mod pack;
mod peers;
mod preview;
mod recipe;
mod replay;
mod run;
mod run_text;
mod setting_args;
mod settings;
mod source;
mod stored;
mod supply;
mod synth;
mod transforms;
mod tune;
mod values;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Instant;
use warpfeed::{Error, Result};

/// Feeds images to GPUs: decodes, augments and batches them, and measures how fast.
#[derive(Parser)]
#[command(
    name = "warpfeed",
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
    Buckets(buckets::BucketArgs),
    Diff(diff::Diff),
    Replay(replay::ReplayArgs),
    Audit(audit::AuditArgs),
    Contract(contract::ContractArgs),
    Pack(pack::Pack),
    Synth(synth::Synth),
    Transforms(transforms::Transforms),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
    Tune(tune::Tune),
    Compare(compare::Compare),
    CheckGpu(check_gpu::CheckGpu),
}

/// The arguments after the program's name.
static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Runs the command `warpfeed`, for programs that bring it along, and returns its exit code: 0 done, 1 the work failed,
/// 2 wrong use, 3 the device asked for is not there. `arguments` are those after the program's name. A process calls
/// this once: later calls have the arguments of the first.
#[must_use]
pub fn command(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let started = Instant::now();
    let arguments = ARGUMENTS.get_or_init(|| arguments.into_iter().collect());
    let parsed = Cli::try_parse_from(std::iter::once(&OsString::from("warpfeed")).chain(arguments));
    match parsed.map_or_else(not_run, |cli| run(cli.command, started)) {
        Ok(code) => code,
        Err(error) => {
            output::say(format_args!("warpfeed: {error}"));
            if let Some(hint) = hint(&error) {
                output::say(hint);
            }
            output::exit_code(&error)
        }
    }
}

/// The arguments after the program's name, as text.
fn arguments() -> impl Iterator<Item = String> {
    ARGUMENTS.get().into_iter().flatten().map(|argument| argument.to_string_lossy().into_owned())
}

/// The settings of the `warpfeed run` with these options that decide about its output.
fn run_settings(options: &options::PipelineOptions) -> Result<String> {
    let mut command = Cli::command();
    let words = std::iter::once("warpfeed".into()).chain(ARGUMENTS.get().into_iter().flatten().cloned());
    let given = command.try_get_matches_from_mut(words);
    let run = given.as_ref().ok().and_then(|given| given.subcommand_matches("run"));
    let (Some(run), Some(command)) = (run, command.find_subcommand("run")) else {
        return Err(Error::Panic { message: "the arguments are not those of a run".to_owned() });
    };
    settings::settings(command, run, options)
}

/// Reads the arguments of a logged `warpfeed run`.
fn logged_run(arguments: &[String]) -> Result<run::Run> {
    match Cli::try_parse_from(std::iter::once("warpfeed").chain(arguments.iter().map(String::as_str))) {
        Ok(Cli { command: Command::Run(run) }) => Ok(run),
        _ => Err(Error::Unsupported {
            feature: "the log of another program, or of another version of warpfeed,".to_owned(),
            remedy: "the program that wrote it can make its batches again, with warpfeed::Replay".to_owned(),
        }),
    }
}

fn run(command: Command, started: Instant) -> Result<u8> {
    match command {
        Command::Demo(demo) => demo.run(),
        Command::Run(run) => run.run(started),
        Command::Apply(apply) => apply.run(),
        Command::Preview(preview) => preview.run(),
        Command::Recipe(recipe) => recipe.run(),
        Command::Buckets(buckets) => buckets.run(),
        Command::Diff(diff) => diff.run(),
        Command::Replay(replay) => replay.run(),
        Command::Audit(audit) => audit.run(),
        Command::Contract(contract) => return contract.run(),
        Command::Pack(pack) => pack.run(),
        Command::Synth(synth) => synth.run(),
        Command::Transforms(transforms) => transforms.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Bench(bench) => bench.run(),
        Command::Tune(tune) => tune.run(),
        Command::Compare(compare) => compare.run(),
        Command::CheckGpu(check) => return check.run(),
    }
    .map(|()| 0)
}

/// Prints clap's output: text that was asked for, such as --help, or an error in the arguments.
fn not_run(instead: clap::Error) -> Result<u8> {
    if !instead.use_stderr() {
        return output::written(instead.print()).map(|()| 0);
    }
    if let Some(hint) = list_with_blanks(arguments()) {
        output::say(hint);
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
    Ok(2)
}

/// What the command line could have said instead, for some errors.
fn hint(error: &Error) -> Option<String> {
    let has_default_policy = arguments().next().is_some_and(|command| command == "run")
        && !arguments().any(|argument| argument.starts_with("--on-error"));
    if error.is_bad_sample() && matches!(error, Error::Sample { .. }) && has_default_policy {
        return Some("--on-error skip, or substitute, goes on without it".to_owned());
    }
    list_with_blanks(arguments())
}

/// A hint for an option that takes a list and was given one with blanks, so that its second value was taken for an
/// argument.
fn list_with_blanks(arguments: impl Iterator<Item = String>) -> Option<String> {
    let arguments: Vec<String> = arguments.collect();
    let mut command = &Cli::command();
    for name in &arguments {
        command = command.find_subcommand(name).unwrap_or(command);
    }
    let takes_list = |flag: &str| {
        let option = command.get_arguments().find(|option| option.get_long() == flag.strip_prefix("--"));
        option.is_some_and(|option| option.get_value_delimiter().is_some())
    };
    let is_value = |argument: Option<&String>| argument.is_some_and(|argument| !argument.starts_with('-'));
    // What follows the list is SOURCE, unless it is a number, or one more argument follows.
    let is_second = |at: usize| {
        let is_number = |argument: &String| argument.bytes().all(|byte| byte.is_ascii_digit());
        let follows = arguments.get(at);
        is_value(follows) && (follows.is_some_and(is_number) || is_value(arguments.get(at + 1)))
    };
    let found = (0..arguments.len())
        .find(|&at| takes_list(&arguments[at]) && is_value(arguments.get(at + 1)) && is_second(at + 2));
    found.map(|at| {
        let flag = &arguments[at];
        format!("{flag} takes one list without blanks, {flag} A,B: what follows a blank is taken for SOURCE")
    })
}

/// The feature that an unknown option needs, if it is not part of this build.
fn missing_feature(option: &str) -> Option<&'static str> {
    match option {
        "--shard-cache" | "--shard-cache-size" => (!cfg!(feature = "cloud")).then_some("cloud"),
        "--width" | "--learning-rate" => (!cfg!(feature = "candle")).then_some("candle"),
        _ => None,
    }
}
