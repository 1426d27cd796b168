//! Measurements on a device, for experiments: decoders without other work, and substitutes for training. Pipelines do
//! not use this folder.
//!
//! `decode_only` measures the speed of decoders alone (the crate's own with `alone`). `decode_whole` returns the pixels
//! that nvJPEG makes of an image. `spin` is a training step of fixed length, `fixed_work` one of a fixed amount of
//! work.

mod alone;
pub(crate) mod decode_only;
pub(crate) mod decode_whole;
mod fixed_work;
mod spin;

pub use spin::Spin;
