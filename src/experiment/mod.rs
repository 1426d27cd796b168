//! Measuring pipelines, and pictures to measure them on.

pub mod gpu_check;
pub mod preview;
pub mod run;
pub mod step;
pub mod synth;
