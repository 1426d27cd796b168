//! Hands warpfeed's batches to libtorch through tch: [`IntoTch`]. The feature `train` adds the training step `TchStep`.

#[cfg(feature = "train")]
mod autocast;
#[cfg(feature = "train")]
mod step;
mod tensor;

#[cfg(feature = "train")]
pub use step::{Network, Precision, TchStep};
pub use tensor::IntoTch;
