//! Data sets and streams.

use crate::arrow::{ArrowImages, Buffers};
use crate::ending::detached;
use crate::error::raise;
use crate::objects::Objects;
use crate::positions::Positions;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Deserialize;
use std::ffi::{CString, OsStr};
use std::path::PathBuf;
use std::sync::Arc;
use warpfeed::image::Size;
use warpfeed::source::{
    self, AuxFolder, Concat, DecodedImages, EncodedImages, Input, ListFile, MaskOptions, OpenOptions, RecordOptions,
    SourceExt,
};

/// Samples that a pipeline reads.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct Source {
    input: Input,
    /// Arguments to open it again; `None` if it was not opened by a path.
    opened: Option<Opened>,
}

/// Arguments of `Source.open`, and the process that called it.
struct Opened {
    path: PathBuf,
    options: String,
    process: u32,
}

/// Options that the name of a source does not contain.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    format: Option<String>,
    split: Option<String>,
    annotations: Option<PathBuf>,
    image_field: Option<String>,
    label_field: Option<String>,
    classes: Vec<String>,
    window: Option<usize>,
    random_access: bool,
    mask_ids: Option<String>,
    box_format: Option<String>,
    flip_index: Option<Vec<usize>>,
    aux: Vec<String>,
    bands: Vec<String>,
    axes: Option<String>,
    labels: Option<PathBuf>,
}

impl Options {
    fn into_options(self) -> warpfeed::Result<OpenOptions> {
        let ids = self.mask_ids.map(|ids| ids.parse()).transpose()?;
        let usual = MaskOptions::default();
        let records = RecordOptions::default()
            .image(self.image_field)
            .label(self.label_field)
            .classes(self.classes)
            .boxes(self.box_format.map(|format| format.parse()).transpose()?);
        Ok(OpenOptions::default()
            .format(self.format.map(|format| format.parse()).transpose()?)
            .split(self.split)
            .annotations(self.annotations)
            .flip_index(self.flip_index)
            .aux(self.aux.iter().map(|folder| folder.parse::<AuxFolder>()).collect::<warpfeed::Result<_>>()?)
            .bands(self.bands)
            .axes(self.axes)
            .labels(self.labels)
            .masks(ids.map_or(usual.clone(), |ids| MaskOptions { ids, ..usual }))
            .records(records)
            .window(self.window)
            .random_access(self.random_access))
    }
}

impl From<Input> for Source {
    fn from(input: Input) -> Self {
        Self { input, opened: None }
    }
}

impl Source {
    /// The samples. A forked child opens a URL again: the connections, and the thread that fetches, are its parent's.
    pub(crate) fn input(&self) -> warpfeed::Result<Input> {
        match &self.opened {
            Some(opened) if opened.process != std::process::id() && opened.path.to_string_lossy().contains("://") => {
                opened.open()
            }
            _ => Ok(self.input.clone()),
        }
    }

    fn data_set(&self) -> PyResult<Arc<dyn source::Source>> {
        self.input.clone().into_data_set().map_err(raise)
    }
}

impl Opened {
    fn open(&self) -> warpfeed::Result<Input> {
        let options: Options = serde_json::from_str(&self.options).map_err(warpfeed::Error::foreign)?;
        options.into_options()?.open(&self.path)
    }
}

fn named(source: impl source::Source + 'static, classes: Vec<String>) -> Input {
    if classes.is_empty() { source.into() } else { source.map_labels(classes, |label| label).into() }
}

#[pymethods]
impl Source {
    /// The source of `warpfeed.open`; `options` are JSON.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, options: String) -> PyResult<Self> {
        serde_json::from_str::<Options>(&options).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let opened = Opened { path, options, process: std::process::id() };
        let input = detached(py, || opened.open()).map_err(raise)?;
        for warning in input.warnings().into_iter().filter(|warning| warpfeed::internal::notice::is_new(warning)) {
            let warning = CString::new(warning.replace('\0', " ")).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &warning, 1)?;
        }
        Ok(Self { input, opened: Some(opened) })
    }

    /// Pickled as what it was opened by.
    // Not a path: Python would make one slash of the two in a URL.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (&OsStr, &str))> {
        let Some(Opened { path, options, .. }) = &self.opened else {
            return Err(PyTypeError::new_err("only sources that warpfeed.open made can be pickled"));
        };
        Ok((py.get_type::<Self>().getattr("open")?, (path.as_os_str(), options)))
    }

    /// Files, each with its label, or all without.
    #[staticmethod]
    fn files(paths: Vec<PathBuf>, labels: Option<Vec<u32>>, classes: Vec<String>) -> PyResult<Self> {
        let Some(labels) = labels else { return Ok(Input::from(ListFile::unlabeled(paths)).into()) };
        same_number(paths.len(), labels.len())?;
        Ok(named(ListFile::of(paths.into_iter().zip(labels)), classes).into())
    }

    /// Encoded images, each with its label, or all without; they are copied.
    #[staticmethod]
    fn memory(images: Vec<Bound<'_, PyBytes>>, labels: Option<Vec<u32>>, classes: Vec<String>) -> PyResult<Self> {
        let bytes = images.iter().map(|image| image.as_bytes().to_vec());
        let Some(labels) = labels else { return Ok(Input::from(EncodedImages::unlabeled(bytes)).into()) };
        same_number(images.len(), labels.len())?;
        Ok(Input::from(EncodedImages::new(bytes.zip(labels)).with_classes(classes)).into())
    }

    /// Arrays of `[N, H, W, 3]` or `[N, H, W]` bytes, each image with its label, or all without; they are copied.
    #[staticmethod]
    fn pixels(
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        labels: Option<Vec<u32>>,
        classes: Vec<String>,
    ) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(array)?;
        let (shape, is_gray) = match *buffer.shape() {
            [n, height, width, 3] => ([n, height, width], false),
            [n, height, width] => ([n, height, width], true),
            _ => return Err(PyTypeError::new_err(format!("[N, H, W, 3] or [N, H, W], got {:?}", buffer.shape()))),
        };
        if buffer.item_size() != 1 {
            return Err(PyTypeError::new_err("pixels must be uint8"));
        }
        let [n, height, width] = shape;
        labels.as_ref().map_or(Ok(()), |labels| same_number(n, labels.len()))?;
        let bytes = array.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        let bytes = bytes.as_bytes();
        let side = |side: usize| u32::try_from(side).map_err(|_| PyValueError::new_err("images are too large"));
        let size = Size::new(side(width)?, side(height)?);
        let made = detached(py, || {
            let rgb =
                |image: &[u8]| if is_gray { image.iter().flat_map(|v| [*v; 3]).collect() } else { image.to_vec() };
            let image_bytes = (height * width * if is_gray { 1 } else { 3 }).max(1);
            let images = bytes.chunks(image_bytes).map(|image| (size, rgb(image)));
            match labels {
                Some(labels) => DecodedImages::new(images.zip(labels).map(|((size, rgb), label)| (size, rgb, label))),
                None => DecodedImages::unlabeled(images),
            }
        });
        Ok(Input::from(made.map_err(raise)?.with_classes(classes)).into())
    }

    /// A binary column of Arrow's.
    #[staticmethod]
    fn arrow(chunks: Vec<Buffers<'_>>, labels: Option<Vec<u32>>, classes: Vec<String>, name: String) -> PyResult<Self> {
        Ok(named(ArrowImages::new(chunks, labels, name)?, classes).into())
    }

    /// An object with `__len__` and `read(i)`.
    #[staticmethod]
    fn objects(object: Bound<'_, PyAny>, labels: Option<Vec<u32>>, classes: Vec<String>) -> PyResult<Self> {
        Objects::new(object, labels, classes).map(|objects| Input::from(objects).into())
    }

    /// Samples that Python makes, by their indices. The images of their batches are nothing.
    #[staticmethod]
    fn positions(samples: u64, name: String) -> Self {
        Input::from(Positions { samples, name }).into()
    }

    /// One data set after the other.
    #[staticmethod]
    fn concat(sources: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let sources = sources.iter().map(|source| source.data_set()).collect::<PyResult<Vec<_>>>()?;
        Ok(Input::from(Concat::new(sources).map_err(raise)?).into())
    }

    /// The samples with these indices, in this order.
    fn subset(&self, indices: Vec<u64>) -> PyResult<Self> {
        Ok(Input::from(self.data_set()?.subset(indices).map_err(raise)?).into())
    }

    /// Number of samples; `None` for a stream.
    #[getter]
    fn samples(&self) -> Option<u64> {
        if let Input::DataSet(source) = &self.input { Some(source.len()) } else { None }
    }

    fn __len__(&self) -> PyResult<usize> {
        let samples = self.samples().ok_or_else(|| PyTypeError::new_err("a stream has no length"))?;
        Ok(samples as usize)
    }

    /// Names of the classes, by label.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.input.classes().to_vec()
    }

    /// Whether samples have labels; `None` if a stream's first sample will tell.
    #[getter]
    fn has_labels(&self, py: Python<'_>) -> Option<bool> {
        detached(py, || self.input.has_labels())
    }

    /// The label of each sample; `None` for one without.
    fn labels(&self) -> PyResult<Vec<Option<u32>>> {
        let source = self.data_set()?;
        Ok((0..source.len()).map(|index| source.label(index)).collect())
    }

    /// The number that the data set's own files give to an image, such as COCO's; `None` if they give none.
    fn image_id(&self, index: u64) -> Option<i64> {
        if let Input::DataSet(source) = &self.input { source.image_id(index) } else { None }
    }

    /// The encoded image of a sample.
    fn encoded<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Bound<'py, PyBytes>> {
        let source = self.data_set()?;
        let bytes = detached(py, || source.encoded(index)).map_err(raise)?;
        Ok(PyBytes::new(py, &bytes))
    }
}

fn same_number(images: usize, labels: usize) -> PyResult<()> {
    if images == labels { Ok(()) } else { Err(PyValueError::new_err(format!("{labels} labels for {images} images"))) }
}
