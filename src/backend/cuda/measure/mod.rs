//! Measurements on a device, for experiments: decoders with nothing else to do, and stand-ins for training. Only this folder
//! has them, so that the back end has none of what pipelines do not use.
//!
//! `decode_only` says how fast decoders alone are (the crate's own with `alone`), `decode_whole` what nvJPEG makes of an
//! image. `spin` is a training step of stated length, `fixed_work` one of a fixed amount of work. `twice` has a pipeline's
//! device do a part of the work twice.

mod alone;
pub(crate) mod decode_only;
pub(crate) mod decode_whole;
mod fixed_work;
mod spin;
mod twice;

pub(crate) use spin::Spin;
pub(crate) use twice::{Part, open_twice};
