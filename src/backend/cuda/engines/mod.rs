//! The engines of the hardware decoder, through nvJPEG.
//!
//! Workers queue images (`Engines::queue`). One thread gathers images of one subsampling from all in-flight batches
//! into calls of nvJPEG (`thread`), which a few states take in turn (`machine`). The end of a batch waits until its
//! images are with the device, and has the CPU decode the refused ones (`settle`).

mod machine;
mod memory;
mod settle;
mod thread;

pub use machine::EngineOptions;
pub(super) use machine::EngineParser;
pub(super) use settle::settle;
pub(super) use thread::{Engines, HardwareJob, Tracker};
