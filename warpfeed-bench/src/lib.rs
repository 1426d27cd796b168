//! Experiments that measure pipelines and training steps, and synthetic images to measure them on.

// Figures are medians over rounds, because times of rounds are not normally distributed: disturbances make rounds
// slower and never faster. The interval of a median is made of order statistics and needs no assumption about the
// distribution (`spread`). It is no verdict: whether cases differ is decided in one place (`verdict`). Each experiment
// makes its verdicts and sentences from rounds given as data, so that tests can give it made-up rounds.
//
// The state file of a run (`run --state`, module `run_state`) is written after every batch. It is synced once a second,
// to a second file next to it (`.NAME.synced`), because a sync costs more than a batch.
//
// Reports name the commit of the build, because the checkout may be at another commit when the program runs. build.rs
// asks git for it only in release builds: otherwise every commit would rebuild the crate.

pub mod augment_load;
pub mod busy;
pub mod compare;
pub mod configurations;
pub mod cores;
pub mod diagnose;
pub mod digest;
pub mod environment;
pub mod events;
pub mod gpu_check;
mod grid;
mod nvml;
pub mod peers;
pub mod policies;
pub mod preview;
pub mod published;
pub mod replay;
pub mod report;
pub mod run;
pub mod run_group;
pub mod run_state;
pub mod shown;
pub mod spread;
pub mod step;
pub mod stored;
pub mod subject;
pub mod supply;
pub mod synth;
mod ticks;
pub mod train;
pub mod trial;
pub mod tune;
pub mod usage;
mod utilization;
pub mod verdict;
pub mod workers;
