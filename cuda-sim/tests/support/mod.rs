//! The host's half of the kernels, over the simulated device.

pub mod device;
pub mod host;
