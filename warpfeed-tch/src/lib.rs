//! Gives warpfeed's batches to libtorch through tch: [`IntoTch`].
//!
//! With the feature `train` also ResNets trained on them with libtorch: `TchStep` is a training step for warpfeed's
//! experiments.

#[cfg(feature = "train")]
mod autocast;
#[cfg(feature = "train")]
mod step;
mod tensor;

#[cfg(feature = "train")]
pub use step::{Network, Precision, TchStep};
pub use tensor::IntoTch;
