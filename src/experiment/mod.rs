//! Measuring: what the comparisons run on.

pub mod synth;
