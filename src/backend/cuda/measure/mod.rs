//! Measurements on a device, for experiments: decoders alone, nvJPEG's pixels of an image, and training steps of fixed
//! length (`spin`) or of fixed work (`fixed_work`).

mod alone;
pub(crate) mod decode_only;
pub(crate) mod decode_whole;
mod fixed_work;
mod spin;

pub use spin::Spin;
