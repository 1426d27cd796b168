//! CUDA's driver, and batches in a device's memory: what tensors hold, and what the GPU back end fills.

mod buffer;
pub(crate) mod driver;

pub use buffer::CudaBuffer;
pub(crate) use buffer::{Buffer, Pool, labels_offset, with_labels};
