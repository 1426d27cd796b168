//! Images in the memory of a CUDA device, for `warpfeed.functional` and `warpfeed.transforms.Compose`.

use crate::ending::detached;
use crate::error::raise;
use crate::forks::OfProcess;
use crate::operation::Operation;
use crate::tensor::Tensor;
use crate::transforms::Recipe;
use pyo3::prelude::*;
use warpfeed::ops::{Grayscale, Op, TransformFile};
use warpfeed::transforms::{self, CudaView, TransformsOptions};
use warpfeed::{DType, Layout};

/// Images: their address, shape and strides of [N, C, H, W] in elements, and the stream on which they are ready.
type Images = (u64, [usize; 4], [i64; 4], usize);

/// Transforms on one device, for one kind of results.
#[pyclass(frozen)]
pub(crate) struct CudaTransforms {
    own: OfProcess<transforms::CudaTransforms>,
    channels: usize,
}

#[pymethods]
impl CudaTransforms {
    /// Reads the written form of transforms, a JSON list. Results have bytes, or numbers if `floats`.
    #[new]
    fn new(
        py: Python<'_>,
        written: &str,
        device: u32,
        channels: usize,
        floats: bool,
        channels_last: bool,
    ) -> PyResult<Self> {
        let file = TransformFile::parse(written, "transforms").map_err(raise)?;
        let dtype = if floats { DType::F32 } else { DType::U8 };
        let layout = if channels_last { Layout::Nhwc } else { Layout::Nchw };
        let options = TransformsOptions::default().dtype(dtype).layout(layout).channels(channels);
        let open = || transforms::CudaTransforms::new(transforms::Transforms::from_file(file, &options)?, device);
        Ok(Self { own: OfProcess::new(detached(py, open).map_err(raise)?), channels })
    }

    /// Applies an operation to images. Their memory must be kept until the call returns, and used in the order of its
    /// stream.
    fn operation(&self, py: Python<'_>, images: Images, operation: &Operation) -> PyResult<Tensor> {
        let mut ops = vec![operation.0.clone()];
        if self.channels == 1 {
            ops.push(Grayscale.into());
        }
        self.run(py, images, &vec![&ops[..]; images.1[0]])
    }

    /// Applies recipes to images: one for each, or one for all.
    fn recipes(&self, py: Python<'_>, images: Images, recipes: Vec<PyRef<'_, Recipe>>) -> PyResult<Tensor> {
        let ops: Vec<&[Op]> = recipes.iter().map(|recipe| &recipe.ops[..]).collect();
        match ops[..] {
            [ops] => self.run(py, images, &vec![ops; images.1[0]]),
            _ => self.run(py, images, &ops),
        }
    }
}

impl CudaTransforms {
    fn run(&self, py: Python<'_>, (address, shape, strides, stream): Images, recipes: &[&[Op]]) -> PyResult<Tensor> {
        let own = self.own.get()?;
        let made = detached(py, || {
            let stream = std::ptr::with_exposed_provenance_mut(stream);
            // SAFETY: the package's own functions name a tensor's memory, which they keep during the call, and torch's
            // current stream of its device, on which it was made. torch uses the memory again in the order of that stream.
            #[allow(unsafe_code)]
            let images = unsafe { CudaView::new(address, shape, strides, stream)? };
            own.run(recipes, &images)
        });
        made.map(Tensor::images).map_err(raise)
    }
}
