//! Experiments that measure pipelines and training steps, and synthetic images to measure them on. Behind the feature
//! `experiment`, which the command implies; nothing else in the library uses it.

pub mod augment_load;
pub mod busy;
pub mod compare;
pub mod configurations;
pub mod cores;
pub mod diagnose;
pub mod environment;
pub mod events;
pub mod gpu_check;
mod nvml;
pub mod peers;
pub mod preview;
pub mod published;
pub mod report;
pub mod run;
pub mod run_group;
pub mod spread;
pub mod step;
pub mod subject;
pub mod synth;
mod ticks;
pub mod train;
pub mod trial;
pub mod usage;
mod utilization;
pub mod workers;
