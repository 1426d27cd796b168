//! Sentences and notes on what was measured.

use super::{EpochTimes, RunTimes};

/// Fewest batches of an epoch whose set-up needs no mention.
const MANY_BATCHES: u64 = 50;

/// Sentence about set-up, for epochs of few batches; `None` if there are many.
pub(crate) fn about_setup<'a>(runs: impl Iterator<Item = &'a RunTimes>) -> Option<String> {
    let epochs: Vec<&EpochTimes> = runs.flat_map(|run| &run.epochs).collect();
    let batches = epochs.iter().map(|epoch| epoch.batches).max().filter(|&batches| batches < MANY_BATCHES)?;
    let sum = |of: fn(&EpochTimes) -> f64| epochs.iter().map(|epoch| of(epoch)).sum::<f64>();
    let share = 100.0 * sum(|epoch| epoch.setup_s) / sum(|epoch| epoch.seconds).max(f64::MIN_POSITIVE);
    Some(match batches {
        0 | 1 => "Every epoch has a single batch. So these figures are of set-up, and say nothing of longer epochs."
            .to_owned(),
        _ => format!(
            "The longest epoch that was measured has {batches} batches, and {share:.0} % of the time was set-up: waiting for \
             the first batch. Set-up is reported separately; all other figures leave it out."
        ),
    })
}

/// Note on the epochs that figures are of.
pub(crate) fn measured_epochs(epochs: u64) -> String {
    let first = if epochs > 1 { "the first epoch, " } else { "" };
    format!(
        "Seconds per epoch, images/s and accelerator use leave out {first}set-up and the end of an epoch. Seconds per epoch \
         are for all its images."
    )
}

/// Note on samples that runs skipped; `None` if there were none.
pub(crate) fn skipped<'a>(runs: impl Iterator<Item = &'a RunTimes>) -> Option<String> {
    let bad = runs.map(|run| run.bad).sum::<u64>();
    (bad > 0).then(|| format!("Images that could not be used were skipped {bad} times: warpfeed run names them."))
}
