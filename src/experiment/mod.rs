//! Measuring pipelines, and pictures to measure them on.

pub mod run;
