//! A back end whose device does a part of each batch's way twice: the time of the whole then shows what the part costs.

use crate::backend::cpu::output::Tables;
use crate::backend::cuda::Gpu;
pub(crate) use crate::backend::cuda::streams::Part;
use crate::backend::cuda::streams::Queue;
use crate::backend::{self, AnyBackend, RunOptions};
use crate::device::Device;
use crate::error::Result;
use crate::ops::normalize::Normalization;
use std::sync::Arc;

/// As [`backend::open`], with `part` done twice where the device is a GPU. Kernels that work in place then make other
/// pixels.
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
