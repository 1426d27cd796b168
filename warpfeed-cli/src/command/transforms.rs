//! `warpfeed transforms`: a list of all transforms and operations.

use super::output::{print, print_json};
use clap::Args;
use std::fmt::Write;
use warpfeed::Result;
use warpfeed::ops::{CatalogEntry, catalog};

/// List all transforms and operations: how they are written in Rust and in a file of transforms
///
/// Parameters that the Rust code does not give have the values shown in the JSON, which are their defaults.
#[derive(Args)]
pub struct Transforms {
    /// Print one JSON list instead of text.
    #[arg(long)]
    json: bool,
}

impl Transforms {
    pub fn run(self) -> Result<()> {
        if self.json {
            return print_json(&catalog());
        }
        let mut text = String::new();
        for (random, title) in [(true, "Transforms, which draw random numbers"), (false, "Operations, which draw none")]
        {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{title}\n");
            for entry in catalog().into_iter().filter(|entry| entry.random == random) {
                let CatalogEntry { name, summary, constructor, written, .. } = entry;
                let _ = writeln!(text, "{name}: {summary}\n    {constructor}\n    {written}");
            }
            text.push('\n');
        }
        print(text.trim_end_matches('\n')).and_then(|()| print("\n"))
    }
}
