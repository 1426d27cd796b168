//! The command `warpfeed`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(warpfeed_cli::command(std::env::args_os().skip(1)))
}
