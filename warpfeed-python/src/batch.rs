//! Batches, and the fields of their images.

use crate::ending::detached;
use crate::error::raise;
use crate::forks::OfProcess;
use crate::tensor::{Held, Tensor};
use pyo3::prelude::*;
use warpfeed::fields::{BatchFields, BoxFormat};
use warpfeed::image::Size;
use warpfeed::shapes::BatchShape;
use warpfeed::{BatchImages, DeviceOf, EpochState, FieldTensor, ImageCrop, PaddedImages, Targets};

/// The images of a view.
pub(crate) enum View {
    One(warpfeed::Tensor),
    Each(Vec<warpfeed::Tensor>),
    Padded(PaddedImages),
}

/// A form of a batch's images.
pub(crate) trait Form: BatchImages + Send + 'static {
    fn view(self) -> View;

    /// Place of the images; `None` if there are none.
    fn place(&self) -> Option<DeviceOf>;
}

impl Form for warpfeed::Tensor {
    fn view(self) -> View {
        View::One(self)
    }

    fn place(&self) -> Option<DeviceOf> {
        Some(self.into())
    }
}

impl Form for Vec<warpfeed::Tensor> {
    fn view(self) -> View {
        View::Each(self)
    }

    fn place(&self) -> Option<DeviceOf> {
        self.first().map(DeviceOf::from)
    }
}

impl Form for PaddedImages {
    fn view(self) -> View {
        View::Padded(self)
    }

    fn place(&self) -> Option<DeviceOf> {
        Some(self.tensor().into())
    }
}

/// For mixed batches: places of the partners, their labels if samples have labels, and each image's own share.
type Mixed = (Vec<usize>, Option<Vec<u32>>, Vec<f32>);

/// A batch with everything that was asked for.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct Batch {
    /// The images of each view: a tensor, or a list of tensors if images differ in size.
    #[pyo3(get)]
    views: Vec<Py<PyAny>>,
    /// For images that were padded, the sizes (height, width) without padding.
    #[pyo3(get)]
    sizes: Option<Vec<(u32, u32)>>,
    /// `[N]`, int64, where the images are; `None` if the samples have no labels.
    #[pyo3(get)]
    labels: Option<Py<Tensor>>,
    /// The targets that were asked for: an array `[N, K]`, or bytes for each image.
    #[pyo3(get)]
    targets: Option<Py<PyAny>>,
    /// The fields of each view's images.
    #[pyo3(get)]
    fields: Vec<Py<Fields>>,
    /// The index of each sample in the data set: `[N]`, int64.
    #[pyo3(get)]
    indices: Py<Tensor>,
    /// The indices as a list; unlike the array, it may be read several times.
    #[pyo3(get)]
    index_list: Vec<u64>,
    /// Number of times that each sample came before in the epoch.
    #[pyo3(get)]
    repetitions: Vec<u32>,
    #[pyo3(get)]
    mixed: Option<Mixed>,
    /// With buckets: height and width of each image in the data set, top and left of its crop, height and width of the crop;
    /// `None` without buckets, and if images are moved otherwise.
    #[pyo3(get)]
    crops: Option<Vec<[i64; 6]>>,
    /// Largest number of patches of an image, for batches of sequences.
    #[pyo3(get)]
    seq_len: Option<u32>,
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
        let place = batch.images().place();
        let labels = batch.labels().ok().map(|labels| labels.iter().map(|label| i64::from(*label)).collect::<Vec<_>>());
        let labels = labels.map(|labels| {
            let labels = detached(py, || beside(labels.into(), place.as_ref())).map_err(raise)?;
            Py::new(py, Tensor::fields(labels))
        });
        let labels = labels.transpose()?;
        let index_list = batch.indices().to_vec();
        let indices = index_list.iter().map(|index| *index as i64).collect::<Vec<_>>();
        let indices = Py::new(py, Tensor::fields(indices))?;
        let mut fields = Vec::new();
        while let Some(of_view) = batch.fields(fields.len()) {
            fields.push(Py::new(py, Fields::new(of_view.clone(), place.clone()))?);
        }
        let mixed = batch.mixed().map(|mixed| {
            (mixed.partners().to_vec(), mixed.partner_labels().map(<[u32]>::to_vec), mixed.shares().to_vec())
        });
        let targets = batch.take_targets().map(|targets| targets_of(py, targets)).transpose()?;
        let seq_len = match batch.shape() {
            Some(BatchShape::SeqLen(seq_len)) => Some(seq_len),
            _ => None,
        };
        let crops = batch.shape().and_then(|_| batch.crops().ok());
        let crops = crops.map(|crops| crops.iter().map(ImageCrop::sdxl).collect());
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
        Ok(Self {
            views,
            sizes,
            labels,
            targets,
            fields,
            indices,
            index_list,
            repetitions,
            mixed,
            crops,
            seq_len,
            padding,
            state,
        })
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

/// Boxes, masks, keypoints and numbers of a batch's images, of the first image first. They are where the images are.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct Fields(OfProcess<(BatchFields, Option<DeviceOf>)>);

impl Fields {
    fn new(fields: BatchFields, place: Option<DeviceOf>) -> Self {
        Self(OfProcess::new((fields, place)))
    }

    /// A tensor of the fields' values, on the images' device.
    fn tensor(
        &self,
        py: Python<'_>,
        values: impl FnOnce(&BatchFields) -> warpfeed::Result<FieldTensor> + Send,
    ) -> PyResult<Tensor> {
        let (fields, place) = self.0.get()?;
        let tensor = detached(py, || beside(values(fields)?, place.as_ref()));
        tensor.map(Tensor::fields).map_err(raise)
    }
}

#[pymethods]
impl Fields {
    /// The number of the first row of each image, and the number of all rows: N + 1 numbers.
    fn offsets(&self) -> PyResult<Vec<usize>> {
        Ok(self.0.get()?.0.offsets())
    }

    /// The height and width of each image.
    fn sizes(&self) -> PyResult<Vec<(u32, u32)>> {
        Ok(self.0.get()?.0.sizes().iter().map(|size| (size.height, size.width)).collect())
    }

    /// `[T, 4]`: "xyxy", "xywh" or "cxcywh", in pixels or as shares of the images' sides.
    #[pyo3(signature = (format="xyxy", relative=false))]
    fn boxes(&self, py: Python<'_>, format: &str, relative: bool) -> PyResult<Tensor> {
        let format: BoxFormat = format.parse().map_err(raise)?;
        self.tensor(py, |fields| {
            let rows = if relative { fields.relative_boxes(format) } else { fields.boxes(format) };
            rows.map(FieldTensor::from)
        })
    }

    /// The numbers of the objects: `[T]`, int64 or float32.
    fn numbers(&self, py: Python<'_>, name: &str) -> PyResult<Tensor> {
        self.tensor(py, |fields| match fields.integers(name) {
            Ok(rows) => Ok(rows.into()),
            Err(_) => fields.floats(name).map(FieldTensor::from),
        })
    }

    /// x, y and visibility: `[T, K, 3]`.
    fn keypoints(&self, py: Python<'_>, name: &str) -> PyResult<Tensor> {
        self.tensor(py, |fields| fields.keypoint_tensor(name))
    }

    /// `[N, H, W]`, or `[T, H, W]` of 0 and 1 for masks of objects. With a size (height, width) they are padded to it.
    #[pyo3(signature = (name, size=None))]
    fn masks(&self, py: Python<'_>, name: &str, size: Option<(u32, u32)>) -> PyResult<Tensor> {
        self.tensor(py, |fields| match size {
            Some((height, width)) => fields.padded_mask_tensor(name, Size::new(width, height)),
            None => fields.mask_tensor(name),
        })
    }

    /// The auxiliary image of each image: `[1, C, H, W]`.
    fn images_of_each(&self, name: &str) -> PyResult<Vec<Tensor>> {
        let each = self.0.get()?.0.image_tensors(name).map_err(raise)?;
        Ok(each.into_iter().map(Tensor::fields).collect())
    }

    /// The masks of each image, which may have a size of its own.
    fn masks_of_each(&self, name: &str) -> PyResult<Vec<Tensor>> {
        let each = self.0.get()?.0.mask_tensors(name).map_err(raise)?;
        Ok(each.into_iter().map(Tensor::fields).collect())
    }
}

/// A tensor where the images of its batch are.
fn beside(tensor: FieldTensor, place: Option<&DeviceOf>) -> warpfeed::Result<FieldTensor> {
    match place {
        Some(place) => tensor.to_device_of(place.clone()),
        None => Ok(tensor),
    }
}
