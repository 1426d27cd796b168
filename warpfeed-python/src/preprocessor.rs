//! Single images, for serving and evaluation.

use crate::ending::detached;
use crate::error::raise;
use crate::forks::OfProcess;
use crate::tensor::Tensor;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use warpfeed::contract::Contract;
use warpfeed::ops::{Op, Transform, TransformFile};
use warpfeed::{DType, Layout, PreprocessorOptions};

/// Turns encoded images into a tensor, without any draw.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct Preprocessor(OfProcess<warpfeed::Preprocessor>);

impl Preprocessor {
    pub(crate) fn new(preprocessor: warpfeed::Preprocessor) -> Self {
        Self(OfProcess::new(preprocessor))
    }
}

#[pymethods]
impl Preprocessor {
    /// `ops`: JSON of operations that draw nothing; `dtype` and `layout`: as in pipelines.
    #[new]
    #[pyo3(signature = (ops, dtype, layout, max_batch, threads))]
    fn made(py: Python<'_>, ops: &str, dtype: &str, layout: &str, max_batch: usize, threads: usize) -> PyResult<Self> {
        let wrong = |error: serde_json::Error| PyValueError::new_err(error.to_string());
        let dtype: DType = serde_json::from_value(dtype.into()).map_err(wrong)?;
        let layout: Layout = serde_json::from_value(layout.into()).map_err(wrong)?;
        let options = PreprocessorOptions::default().dtype(dtype).layout(layout).max_batch(max_batch).threads(threads);
        detached(py, || {
            let transforms = TransformFile::parse(ops, "transform")?.into_transforms()?;
            let ops = transforms.into_iter().map(|transform| match transform {
                Transform::Explicit(op) => Ok(op),
                random => Err(warpfeed::Error::Parameter {
                    operation: "preprocessor",
                    parameter: "transform",
                    expected: "operations that draw nothing at random".to_owned(),
                    got: format!("{random:?}"),
                }),
            });
            warpfeed::Preprocessor::new(ops.collect::<warpfeed::Result<Vec<Op>>>()?, &options)
        })
        .map(Self::new)
        .map_err(raise)
    }

    /// One that keeps the contract in a file, and refuses to start where its pixels differ.
    #[staticmethod]
    fn from_contract(py: Python<'_>, path: PathBuf, max_batch: usize, threads: usize) -> PyResult<Self> {
        let options = PreprocessorOptions::default().max_batch(max_batch).threads(threads);
        let made = detached(py, || warpfeed::Preprocessor::from_contract(&Contract::read(path)?, &options));
        made.map(Self::new).map_err(raise)
    }

    /// Decodes images and makes a tensor of them, in their order.
    fn run(&self, py: Python<'_>, images: Vec<Bound<'_, PyBytes>>) -> PyResult<Tensor> {
        let (preprocessor, images) = (self.0.get()?, images.iter().map(|image| image.as_bytes()).collect::<Vec<_>>());
        detached(py, || preprocessor.run(&images)).map(Tensor::images).map_err(raise)
    }

    /// Height and width of every image in a tensor.
    #[getter]
    fn image_size(&self) -> PyResult<(u32, u32)> {
        let size = self.0.get()?.image_size();
        Ok((size.height, size.width))
    }
}
