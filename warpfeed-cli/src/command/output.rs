//! Output and exit codes. Control characters, which a terminal obeys, are escaped, and URLs lose their secrets.

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;
use warpfeed::internal::message_without_secrets;
use warpfeed::{Error, Result};

/// The exit code for an error.
pub fn exit_code(error: &Error) -> u8 {
    match (error.is_device(), error.is_parameter()) {
        (true, _) => 3,
        (false, true) => 2,
        (false, false) => 1,
    }
}

/// Escapes what a terminal would obey, for names within a text.
pub use warpfeed_bench::shown::escape;

/// Writes text to standard output. A reader that has closed the pipe (`| head`) is no error.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let lines: Vec<String> = text.split('\n').map(line).collect();
    written(out.write_all(lines.join("\n").as_bytes()).and_then(|()| out.flush()))
}

/// A line as it is written.
fn line(text: impl fmt::Display) -> String {
    escape(message_without_secrets(&text.to_string()))
}

/// Turns the result of writing to standard output into ours.
pub fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::Io { action: "write", path: PathBuf::from("standard output"), source: source.into() })
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error. A failure is ignored, because it cannot be reported.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", self::line(line));
}

/// Writes one JSON object to standard output.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::Io {
        action: "write",
        path: PathBuf::from("standard output"),
        source: std::io::Error::from(error).into(),
    })?;
    print(&format!("{text}\n"))
}

/// A progress bar on standard error. Nothing is shown if that is no terminal.
pub fn progress(total: impl Into<Option<u64>>, what: &str) -> ProgressBar {
    let bar = bar(total.into(), "{msg:24} {wide_bar} {pos}/{len} images {rate:>8} {eta:>4} ");
    bar.set_message(what.to_owned());
    bar
}

/// A progress bar for a run, with a line about its current work.
pub fn live(total: Option<u64>) -> ProgressBar {
    bar(total, "{pos}/{len} images {rate:>8} {eta:>4}  {wide_msg}")
}

fn bar(total: Option<u64>, template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // The length of a stream is not known.
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(template) {
        let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
            // An error only leaves the rate out.
            let _ = write!(out, "{:.0}/s", state.per_sec());
        };
        bar.set_style(style.with_key("rate", rate));
    }
    bar
}

/// Progress of an experiment: finished parts line by line on standard error, and on a terminal the time that the
/// current part has taken.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn start() -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{elapsed} at the next") {
            bar.set_style(style);
        }
        // Once a second, so as not to disturb the measurement.
        bar.enable_steady_tick(Duration::from_secs(1));
        Self(bar)
    }

    pub fn line(&mut self, line: &str) {
        self.0.suspend(|| say(line));
        self.0.reset_elapsed();
    }

    pub fn end(self) {
        self.0.finish_and_clear();
    }
}

/// Formats a number of bytes for people.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
