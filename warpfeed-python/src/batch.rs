//! Batches, and the fields of their images.

use crate::error::raise;
use crate::tensor::{Held, Tensor};
use pyo3::prelude::*;
use warpfeed::fields::{BatchFields, BoxFormat};
use warpfeed::image::Size;
use warpfeed::{BatchImages, EpochState, PaddedImages, Targets};

/// The images of a view.
pub(crate) enum View {
    One(warpfeed::Tensor),
    Each(Vec<warpfeed::Tensor>),
    Padded(PaddedImages),
}

/// A form of a batch's images.
pub(crate) trait Form: BatchImages + Send + 'static {
    fn view(self) -> View;
}

impl Form for warpfeed::Tensor {
    fn view(self) -> View {
        View::One(self)
    }
}

impl Form for Vec<warpfeed::Tensor> {
    fn view(self) -> View {
        View::Each(self)
    }
}

impl Form for PaddedImages {
    fn view(self) -> View {
        View::Padded(self)
    }
}

/// A batch with everything that was asked for.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct Batch {
    /// The images of each view: a tensor, or a list of tensors if images differ in size.
    #[pyo3(get)]
    views: Vec<Py<PyAny>>,
    /// For images that were padded, the sizes (height, width) without padding.
    #[pyo3(get)]
    sizes: Option<Vec<(u32, u32)>>,
    /// `[N]`, int64.
    #[pyo3(get)]
    labels: Py<Tensor>,
    /// The targets that were asked for: an array `[N, K]`, or bytes for each image.
    #[pyo3(get)]
    targets: Option<Py<PyAny>>,
    /// The fields of each view's images.
    #[pyo3(get)]
    fields: Vec<Py<Fields>>,
    /// The index of each sample in the data set: `[N]`, int64.
    #[pyo3(get)]
    indices: Py<Tensor>,
    /// Number of times that each sample came before in the epoch.
    #[pyo3(get)]
    repetitions: Vec<u32>,
    /// For mixed batches: places of the partners, their labels, and each image's own share.
    #[pyo3(get)]
    mixed: Option<(Vec<usize>, Vec<u32>, Vec<f32>)>,
    /// Number of images at the end that only fill the batch.
    #[pyo3(get)]
    padding: usize,
    state: EpochState,
}

#[pymethods]
impl Batch {
    /// The state of the epoch after this batch, as JSON.
    #[getter]
    fn state(&self) -> String {
        serde_json::to_string(&self.state).unwrap_or_default()
    }

    fn __len__(&self) -> usize {
        self.repetitions.len()
    }
}

impl Batch {
    pub(crate) fn new<I: Form>(py: Python<'_>, mut batch: warpfeed::Batch<I>) -> PyResult<Self> {
        let numbers = |numbers: Vec<i64>| Py::new(py, Tensor::fields(numbers));
        let labels = numbers(batch.labels().iter().map(|label| i64::from(*label)).collect())?;
        let indices = numbers(batch.indices().iter().map(|index| *index as i64).collect())?;
        let mut fields = Vec::new();
        while let Some(of_view) = batch.fields(fields.len()) {
            fields.push(Py::new(py, Fields(of_view.clone()))?);
        }
        let mixed = batch
            .mixed()
            .map(|mixed| (mixed.partners().to_vec(), mixed.partner_labels().to_vec(), mixed.shares().to_vec()));
        let targets = batch.take_targets().map(|targets| targets_of(py, targets)).transpose()?;
        let (repetitions, padding, state) = (batch.repetitions(), batch.padding(), batch.state());
        let (mut views, mut sizes) = (Vec::new(), None);
        for view in batch.into_views() {
            views.push(match view.view() {
                View::One(tensor) => Py::new(py, Tensor::images(tensor))?.into_any(),
                View::Each(tensors) => {
                    let tensors = tensors.into_iter().map(|tensor| Py::new(py, Tensor::images(tensor)));
                    tensors.collect::<PyResult<Vec<_>>>()?.into_pyobject(py)?.into_any().unbind()
                }
                View::Padded(images) => {
                    sizes = Some(images.sizes().iter().map(|size| (size.height, size.width)).collect());
                    Py::new(py, Tensor::images(images.into_tensor()))?.into_any()
                }
            });
        }
        Ok(Self { views, sizes, labels, targets, fields, indices, repetitions, mixed, padding, state })
    }
}

fn targets_of(py: Python<'_>, targets: Targets) -> PyResult<Py<PyAny>> {
    match targets {
        Targets::Numbers(numbers) => {
            let shape = numbers.shape();
            Ok(Py::new(py, Tensor::new(Held::Targets(numbers), shape))?.into_any())
        }
        Targets::Bytes(bytes) => {
            let each = (0..bytes.offsets().len().saturating_sub(1)).map(|i| bytes.get(i).unwrap_or_default());
            Ok(each.collect::<Vec<&[u8]>>().into_pyobject(py)?.into_any().unbind())
        }
    }
}

/// Boxes, masks, keypoints and numbers of a batch's images, of the first image first.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct Fields(BatchFields);

#[pymethods]
impl Fields {
    /// The number of the first row of each image, and the number of all rows: N + 1 numbers.
    fn offsets(&self) -> Vec<usize> {
        self.0.offsets()
    }

    /// The height and width of each image.
    fn sizes(&self) -> Vec<(u32, u32)> {
        self.0.sizes().iter().map(|size| (size.height, size.width)).collect()
    }

    /// `[T, 4]`: "xyxy", "xywh" or "cxcywh", in pixels or as shares of the images' sides.
    #[pyo3(signature = (format="xyxy", relative=false))]
    fn boxes(&self, format: &str, relative: bool) -> PyResult<Tensor> {
        let format: BoxFormat = format.parse().map_err(raise)?;
        let rows = if relative { self.0.relative_boxes(format) } else { self.0.boxes(format) };
        rows.map(Tensor::fields).map_err(raise)
    }

    /// The numbers of the objects: `[T]`, int64 or float32.
    fn numbers(&self, name: &str) -> PyResult<Tensor> {
        match self.0.integers(name) {
            Ok(rows) => Ok(Tensor::fields(rows)),
            Err(_) => self.0.floats(name).map(Tensor::fields).map_err(raise),
        }
    }

    /// x, y and visibility: `[T, K, 3]`.
    fn keypoints(&self, name: &str) -> PyResult<Tensor> {
        self.0.keypoint_tensor(name).map(Tensor::fields).map_err(raise)
    }

    /// `[N, H, W]`, or `[T, H, W]` of 0 and 1 for masks of objects. With a size (height, width) they are padded to it.
    #[pyo3(signature = (name, size=None))]
    fn masks(&self, name: &str, size: Option<(u32, u32)>) -> PyResult<Tensor> {
        let masks = match size {
            Some((height, width)) => self.0.padded_mask_tensor(name, Size::new(width, height)),
            None => self.0.mask_tensor(name),
        };
        masks.map(Tensor::fields).map_err(raise)
    }

    /// The masks of each image, which may have a size of its own.
    fn masks_of_each(&self, name: &str) -> PyResult<Vec<Tensor>> {
        let each = self.0.mask_tensors(name).map_err(raise)?;
        Ok(each.into_iter().map(Tensor::fields).collect())
    }
}
