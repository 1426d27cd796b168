//! CUDA's driver, and the device memory of batches.
//!
//! The caller's context stays current: every entry pushes the device's primary context and pops it. A context that has
//! failed is released, so that the driver can make a new one; one that was reset is forgotten. Every object of the
//! driver is in a `Scoped`, which frees it in its own context or not at all.
//!
//! cudarc's slices remember only their last reader, so the owners of memory here order its users by their own events.
//! While a stream captures a graph, events cannot be recorded on it, and the buffer is put aside (`buffer`).
//!
//! The oldest supported driver is that of CUDA 12.0. cudarc panics at a function that the driver lacks, so only
//! functions are called that have the same name in all bindings from 12.0 on.

mod buffer;
pub(crate) mod cufile;
pub(crate) mod driver;
mod pool;
mod user;

pub use buffer::CudaBuffer;
pub(crate) use buffer::{Buffer, labels_offset, settle_aside, with_labels};
pub(crate) use pool::{Pool, VALUES_BYTES};
pub use user::StreamOwner;
pub(crate) use user::User;
