//! The CPU back end: decodes, runs a plan's stages and writes rows to the batch.

pub(crate) mod executor;
mod gather;
#[cfg(target_arch = "x86_64")]
mod horizontal;
mod normalize;
pub(crate) mod output;
mod resample;
