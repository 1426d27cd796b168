//! CUDA's driver, and the device memory of batches, which the GPU back end fills and tensors hold.
//!
//! Contexts. The caller's context stays current. The primary context is retained once per process, as CUDA's runtime
//! does. Every entry pushes it and pops it, because a trainer's thread may have another device's context current. A
//! context that has failed is released, so that the driver can make a new one. A context that was reset is forgotten. The
//! driver's number of a context tells it from one that has the same handle after a reset. Every object of the driver's is
//! in a `Scoped`, which frees it in its own context or not at all. A forked child can enter no context, so it frees nothing.
//!
//! Memory. cudarc's slices remember only their last reader. If one buffer has two readers on different streams, a
//! writer can overtake the reader that came first (a test of `cuda-sim/driver` shows it). So the owners of memory here
//! order its users by events of their own. An event cannot be recorded while its stream captures a graph. Until then the
//! buffer lies aside (`buffer`). Free buffers are in pools (`pool`), which keep sizes that were asked for lately.
//!
//! Drivers. The oldest supported driver is that of CUDA 12.0. cudarc looks up a function when it is called, and panics
//! if the driver lacks it. So only functions are called that have the same name in all bindings from 12.0 on.
//! `cuEventElapsedTime` has not, and is looked up here. A test runs on a driver without newer symbols, with the oldest
//! and the newest bindings. The command is built with the bindings for 12.0. The library leaves the choice to the
//! program: a program has only one cudarc, and burn's CUDA back end compiles only with newer bindings.

mod buffer;
pub(crate) mod driver;
mod pool;

pub use buffer::CudaBuffer;
pub(crate) use buffer::{Buffer, labels_offset, settle_aside, with_labels};
pub(crate) use pool::{Pool, VALUES_BYTES};
