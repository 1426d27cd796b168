//! Data sets that are Python objects with `__len__` and `read(i)`.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyException, PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use warpfeed::source::{ReadRequest, Sample, Source, read_limited};
use warpfeed::{Error, Result, Target};

/// An object whose `read(i)` returns `(bytes or path, target)`, under the GIL.
pub(crate) struct Objects {
    object: Py<PyAny>,
    labels: Labels,
    /// Whether samples have labels, once that is known.
    labeled: OnceLock<bool>,
    classes: Vec<String>,
    name: String,
}

/// Labels that samples had when they were read, or that were given. What an object says of its length is only believed:
/// a part of the labels takes memory once one of its samples has a label.
struct Labels {
    len: u64,
    parts: Vec<OnceLock<Box<[AtomicI64]>>>,
}

/// No label.
const NONE: i64 = -1;

/// Labels of a part.
const PART: usize = 4096;

impl Labels {
    fn new(len: usize) -> PyResult<Self> {
        let mut parts = Vec::new();
        let count = len.div_ceil(PART);
        parts.try_reserve_exact(count).map_err(|_| {
            PyMemoryError::new_err(format!("labels of {len} samples, the data set's __len__, do not fit into memory"))
        })?;
        parts.resize_with(count, OnceLock::new);
        Ok(Self { len: len as u64, parts })
    }

    fn get(&self, index: u64) -> Option<u32> {
        let part = self.parts.get(usize::try_from(index).ok()? / PART)?.get()?;
        u32::try_from(part[index as usize % PART].load(Relaxed)).ok()
    }

    fn set(&self, index: u64, label: u32) {
        if let Some(part) = self.parts.get(index as usize / PART) {
            let part = part.get_or_init(|| (0..PART).map(|_| AtomicI64::new(NONE)).collect());
            part[index as usize % PART].store(label.into(), Relaxed);
        }
    }
}

/// Samples that are read to find out whether samples have labels: the first may be bad ones.
const TRIED: u64 = 8;

enum Encoded {
    Bytes(Vec<u8>),
    Path(PathBuf),
}

impl Objects {
    pub(crate) fn new(object: Bound<'_, PyAny>, labels: Option<Vec<u32>>, classes: Vec<String>) -> PyResult<Self> {
        let len = object.len()?;
        let name = object.get_type().fully_qualified_name()?.to_string();
        let has_labels = labels.is_some();
        let given = labels.unwrap_or_default();
        let labeled = if has_labels { OnceLock::from(true) } else { OnceLock::new() };
        let labels = Labels::new(if has_labels { given.len() } else { len })?;
        (0..).zip(given).for_each(|(index, label)| labels.set(index, label));
        Ok(Self { object: object.unbind(), labels, labeled, classes, name })
    }

    fn call(&self, py: Python<'_>, index: u64, as_target: bool) -> PyResult<(Encoded, Option<Target>)> {
        let wrong = |what: &str, got: &Bound<'_, PyAny>| {
            let kind = got.get_type().name().map(|name| name.to_string()).unwrap_or_default();
            PyTypeError::new_err(format!("read({index}) of {} must return {what}, got {kind}", self.name))
        };
        let read = self.object.bind(py).call_method1("read", (index,))?;
        let pair: &Bound<'_, PyTuple> = read.cast().map_err(|_| wrong("(bytes or path, target)", &read))?;
        let (image, target) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let encoded = if let Ok(bytes) = image.cast::<PyBytes>() {
            Encoded::Bytes(bytes.as_bytes().to_vec())
        } else if let Ok(path) = image.extract::<PathBuf>() {
            Encoded::Path(path)
        } else if PyUntypedBuffer::get(&image).is_ok() {
            // A bytearray, a memoryview, an array.
            Encoded::Bytes(py.get_type::<PyBytes>().call1((&image,))?.extract()?)
        } else {
            return Err(wrong("an encoded image as bytes, or its path, first", &image));
        };
        if as_target {
            return Ok((
                encoded,
                Some(target_of(&target).ok_or_else(|| wrong("a number, numbers or bytes second", &target))?),
            ));
        }
        if !target.is_none() {
            let label: u32 = target.extract().map_err(|_| wrong("a label of 0 or more second", &target))?;
            self.labels.set(index, label);
        }
        Ok((encoded, None))
    }
}

fn target_of(target: &Bound<'_, PyAny>) -> Option<Target> {
    if let Ok(class) = target.extract() {
        Some(Target::Class(class))
    } else if let Ok(bytes) = target.extract::<Vec<u8>>()
        && target.is_instance_of::<PyBytes>()
    {
        Some(Target::Bytes(bytes))
    } else if let Ok(number) = target.extract::<f32>() {
        Some(Target::Floats(vec![number]))
    } else {
        target.extract::<Vec<f32>>().ok().map(Target::Floats)
    }
}

/// An exception as an error: that of a sample, but for those that end a program.
fn foreign(py: Python<'_>, error: PyErr) -> Error {
    if error.is_instance_of::<PyException>(py) && !error.is_instance_of::<PyMemoryError>(py) {
        Error::foreign_sample(error)
    } else {
        Error::foreign(error)
    }
}

impl Source for Objects {
    fn len(&self) -> u64 {
        self.labels.len
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let as_target = want.target.is_some();
        let attached = Python::try_attach(|py| self.call(py, index, as_target).map_err(|error| foreign(py, error)));
        let (encoded, target) = attached.unwrap_or_else(|| Err(Error::foreign("Python has ended")))?;
        match encoded {
            Encoded::Bytes(bytes) => {
                let buffer = sample.buffer();
                buffer.clear();
                buffer.extend_from_slice(&bytes);
            }
            Encoded::Path(path) => *sample.buffer() = read_limited(path, warpfeed::source::MAX_ENCODED_BYTES)?,
        }
        if let Some(target) = target {
            sample.set_target(target);
        }
        Ok(())
    }

    /// The label that the sample had when it was read.
    fn label(&self, index: u64) -> Option<u32> {
        self.labels.get(index)
    }

    /// Reads the first sample that can be read, unless labels were given.
    fn has_labels(&self) -> bool {
        *self.labeled.get_or_init(|| {
            let read = |index| Python::try_attach(|py| self.call(py, index, false).is_ok()) == Some(true);
            (0..self.len().min(TRIED)).find(|&index| read(index)).is_some_and(|index| self.label(index).is_some())
        })
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("{}.read({index})", self.name).into()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Fingerprint of the class and the length: labels are not known before samples are read.
    fn fingerprint(&self) -> u64 {
        let digest = Sha256::digest(format!("{} {}", self.name, self.len()));
        digest.iter().take(8).fold(0, |value, &byte| value << 8 | u64::from(byte))
    }
}
