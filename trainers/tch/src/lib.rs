//! ResNets trained on warpfeed's batches with libtorch: [`TchStep`] is a training step for warpfeed's experiments.

mod autocast;
mod images;
mod step;

pub use step::{Network, Precision, TchStep};
