//! A back end whose device does one part of each batch twice: the longer total time shows the cost of the part.

use crate::backend::cpu::output::Tables;
use crate::backend::cuda::Gpu;
pub(crate) use crate::backend::cuda::streams::Part;
use crate::backend::cuda::streams::Queue;
use crate::backend::{self, AnyBackend, RunOptions};
use crate::device::Device;
use crate::error::Result;
use crate::ops::normalize::Normalization;
use std::sync::Arc;

/// Opens a back end as [`backend::open`] does. If the device is a GPU, it does `part` twice; kernels that work in place
/// then make different pixels.
pub(crate) fn open_twice(
    part: Part,
    device: Device,
    options: &Arc<RunOptions>,
    normalize: Normalization,
) -> Result<AnyBackend> {
    let Some(ordinal) = device.resolve()? else { return backend::open(device, options, normalize) };
    let queue: Queue = match part {
        Part::Transfer => |part, queue| times(if part == Part::Transfer { 2 } else { 1 }, queue),
        Part::Kernels => |part, queue| times(if part == Part::Kernels { 2 } else { 1 }, queue),
    };
    let tables = Tables::new(options.elements().dtype, normalize);
    Gpu::open_by(ordinal, options, &tables, queue).map(Box::new).map(AnyBackend::Cuda)
}

fn times(times: usize, queue: &dyn Fn() -> Result<()>) -> Result<()> {
    (0..times).try_for_each(|_| queue())
}
