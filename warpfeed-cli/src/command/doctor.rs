//! `warpfeed doctor`: checks this machine.

use super::output::{print, print_json};
use clap::Args;
use warpfeed::Result;

/// Check this machine: what it has for warpfeed, what it lacks, and the remedy
#[derive(Args)]
pub struct Doctor {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub fn run(self) -> Result<()> {
        let checks = warpfeed::doctor();
        if self.json {
            return print_json(&serde_json::json!({ "checks": checks }));
        }
        let mut text = String::new();
        for check in checks {
            let mark = if check.ok { "ok  " } else { "lack" };
            text += &format!("{mark}  {:20} {}\n", check.name, check.found);
            if let Some(remedy) = check.remedy {
                text += &format!("      {:20} -> {remedy}\n", "");
            }
        }
        print(&text)
    }
}
