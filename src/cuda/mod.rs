//! CUDA's driver, and batches in a device's memory, which tensors hold and the GPU back end fills.
//!
//! Context. The caller's context stays current. The primary context is retained once a process, as by CUDA's runtime.
//! Every entry pushes it and pops it, because a trainer's thread may have another device's context current. A context
//! that has failed is given up, so that the driver can make a new one; a context that was reset is forgotten.
//!
//! Memory. cudarc's slices remember only their last reader. If one buffer has two readers on different streams, a
//! writer can then overtake the earlier one (a test of `cuda-sim/driver` shows it). So the owners of memory here order
//! its users by events of their own.
//!
//! Drivers. The oldest supported driver is CUDA 12.0's. cudarc looks a function up when it is called, and panics if the
//! driver lacks it. So only functions are called that have one name in all bindings from 12.0 on; `cuEventElapsedTime`,
//! which has not, is looked up here. A test runs on a driver without newer symbols, with the oldest and the newest
//! bindings. The command is bound to 12.0. The library is not: a program has only one cudarc, and burn's CUDA back end
//! compiles with newer bindings only.

mod buffer;
pub(crate) mod driver;

pub use buffer::CudaBuffer;
pub(crate) use buffer::{Buffer, Pool, labels_offset, with_labels};
