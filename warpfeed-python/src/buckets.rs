//! Batches of indices by shape, for loaders of others.

use crate::ending::detached;
use crate::error::raise;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use warpfeed::image::Size;
use warpfeed::ops::BucketCrop;
use warpfeed::shapes::BucketSummary;
use warpfeed::source::{EncodedImages, ImageSizes};
use warpfeed::{Device, EntryPoints, Pipeline};

/// The order of images of known sizes in batches by shape. No image is read.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct BucketPlan(Pipeline);

#[pymethods]
impl BucketPlan {
    /// `sizes`: width and height of each image. `settings`: those that [`warpfeed::Setting`] lists, as text.
    #[new]
    fn new(py: Python<'_>, sizes: Vec<(u32, u32)>, settings: BTreeMap<String, String>) -> PyResult<Self> {
        let built = detached(py, || {
            let source = EncodedImages::new(sizes.iter().map(|_| (Vec::new(), 0)));
            let sizes = sizes.into_iter().map(|(width, height)| Size::new(width, height)).collect();
            let builder = Pipeline::builder(source)
                .image_sizes(ImageSizes::from_sizes(sizes))
                .transform(BucketCrop::new())
                .entry_points(EntryPoints::none())
                .threads(0)
                .device(Device::Cpu);
            settings.iter().try_fold(builder, |builder, (name, text)| builder.set(name, text))?.build()
        });
        built.map(Self).map_err(raise)
    }

    /// The indices of each batch of an epoch.
    fn steps(&self, py: Python<'_>, epoch: u64) -> PyResult<Vec<Vec<u64>>> {
        let steps = detached(py, || self.0.steps(epoch)).map_err(raise)?.unwrap_or_default();
        Ok(steps.into_iter().map(|step| step.indices).collect())
    }

    /// Number of batches in an epoch.
    #[getter]
    fn batches(&self) -> u64 {
        self.0.batches().unwrap_or(0)
    }

    /// Width and height of the bucket of an image; `None` if it goes to none.
    fn bucket_of(&self, index: u64) -> Option<(u32, u32)> {
        self.0.bucket_of(index).map(|size| (size.width, size.height))
    }

    /// The buckets in use.
    fn buckets(&self, py: Python<'_>) -> PyResult<Vec<Py<PyDict>>> {
        let all = self.0.buckets();
        let one = |bucket: &BucketSummary| {
            let dict = PyDict::new(py);
            dict.set_item("width", bucket.width)?;
            dict.set_item("height", bucket.height)?;
            dict.set_item("samples", bucket.samples)?;
            dict.set_item("batch_size", bucket.batch_size)?;
            dict.set_item("steps", bucket.steps)?;
            dict.set_item("dropped", bucket.dropped)?;
            dict.set_item("repeated", bucket.repeated)?;
            dict.set_item("cropped", bucket.cropped)?;
            dict.set_item("enlarged", bucket.enlarged)?;
            Ok(dict.unbind())
        };
        all.iter().map(one).collect()
    }
}
