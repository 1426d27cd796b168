//! The configurations to measure.

use crate::cores::Machine;
use crate::verdict::{default_rounds, pairs};
use serde::Serialize;
use std::time::Duration;
use warpfeed::Strategy;
use warpfeed::ops::Transform;

/// Settings of the experiment.
#[derive(Debug, Clone)]
pub struct ConfigurationsSettings {
    /// Numbers of worker threads.
    pub threads: Vec<usize>,
    /// Numbers of prefetched batches.
    pub prefetch: Vec<usize>,
    /// Whether the pipeline, with its decoders and memory, is kept from epoch to epoch or built anew for each.
    pub persistent: Vec<bool>,
    /// Whether copies to a GPU are staged in pinned memory
    /// ([`PipelineBuilder::pinned`](warpfeed::PipelineBuilder::pinned)). Has no effect on the CPU.
    pub pinned: Vec<bool>,
    /// Images in a batch.
    pub batch_size: usize,
    /// Name of the operations in tables: that of a preset or a file.
    pub name: String,
    /// The operations. They must end in one size.
    pub ops: Vec<Transform>,
    /// Strategy by which they are run.
    pub strategy: Strategy,
    /// Time for each configuration and round.
    pub time: Duration,
    /// Measurements of each configuration, in turn with the others. With fewer than
    /// [`default_rounds`], smaller differences remain hidden.
    pub rounds: u32,
    /// GPUs that train. Each keeps a core or two for its trainer.
    pub gpus: usize,
    /// Whether the baseline is measured too: no worker thread, one batch at a time, everything built anew for each
    /// epoch.
    pub baseline: bool,
}

impl ConfigurationsSettings {
    /// All configurations but the baseline.
    pub(super) fn all(&self, pinned: &[Option<bool>]) -> impl Iterator<Item = Configuration> {
        let threads =
            self.threads.iter().flat_map(|&threads| self.prefetch.iter().map(move |&prefetch| (threads, prefetch)));
        let kept =
            threads.flat_map(|(threads, prefetch)| self.persistent.iter().map(move |&kept| (threads, prefetch, kept)));
        kept.flat_map(move |(threads, prefetch, persistent)| {
            pinned.iter().map(move |&pinned| Configuration { threads, prefetch, persistent, pinned })
        })
    }
}

/// One configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Configuration {
    /// Number of worker threads.
    pub threads: usize,
    /// Number of prefetched batches.
    pub prefetch: usize,
    /// Whether the pipeline is kept from epoch to epoch.
    pub persistent: bool,
    /// Whether copies to the GPU are staged in pinned memory; `None` on the CPU.
    pub pinned: Option<bool>,
}

impl Configuration {
    pub(super) fn is_baseline(self) -> bool {
        self.threads == 0
    }

    pub(super) fn name(self) -> String {
        if self.is_baseline() {
            return "baseline".to_owned();
        }
        let kept = if self.persistent { "" } else { ", built anew" };
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        let staged = if self.pageable() { ", pageable" } else { "" };
        format!("{} {threads}, prefetch {}{staged}{kept}", self.threads, self.prefetch)
    }

    pub(super) fn pageable(self) -> bool {
        self.pinned == Some(false)
    }

    /// The configuration as options of the command.
    #[must_use]
    pub fn options(self) -> String {
        let staged = if self.pageable() { " --pageable" } else { "" };
        format!("--threads {} --prefetch {}{staged}", self.threads, self.prefetch)
    }

    /// The configuration as calls of [`PipelineBuilder`](warpfeed::PipelineBuilder).
    #[must_use]
    pub fn code(self) -> String {
        let staged = if self.pageable() { ".pinned(false)" } else { "" };
        format!(".threads({}).prefetch({}){staged}", self.threads, self.prefetch)
    }
}

/// Numbers of worker threads to try on `cores` processors: 1, 2, 3, 4, 6, 8, 12, ... and all available ones. Each of
/// `gpus` trainers keeps one processor, or two if there are more than eight per trainer.
///
/// ```
/// use warpfeed_bench::configurations::worker_counts;
/// assert_eq!(worker_counts(2, 0), [1, 2]);
/// assert_eq!(worker_counts(2, 1), [1]);
/// assert_eq!(worker_counts(16, 1), [1, 2, 3, 4, 6, 8, 12, 14]);
/// assert_eq!(worker_counts(64, 8), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 56]);
/// ```
#[must_use]
pub fn worker_counts(cores: usize, gpus: usize) -> Vec<usize> {
    let most = Machine { cores, gpus }.for_images().max(1);
    let mut counts: Vec<usize> =
        (0..usize::BITS - 1).flat_map(|i| [1 << i, 3 << i]).take_while(|&count| count <= 2 * most).collect();
    counts.retain(|&count| count < most);
    counts.push(most);
    counts.sort_unstable();
    counts
}

/// Number of rounds to measure for so many configurations, the baseline included.
#[must_use]
pub fn rounds_for(configurations: usize) -> u32 {
    // Half of the level may be left for the speed of a core.
    default_rounds(2 * (pairs(configurations) + 1))
}
