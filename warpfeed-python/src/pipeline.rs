//! Pipelines, by settings that Python writes as JSON.

use crate::ending::detached;
use crate::epoch::Epoch;
use crate::error::raise;
use crate::forks::OfProcess;
use crate::memory::Memory;
use crate::preprocessor::Preprocessor;
use crate::source::Source;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use warpfeed::ops::TransformFile;
use warpfeed::{
    EntryPoints, EpochOrder, EpochState, ImageCache, PaddedPipeline, PipelineBuilder, Preset, RaggedPipeline,
};

/// The settings of a pipeline. Those that are absent keep the crate's defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Those that [`warpfeed::Setting`] lists, as text.
    settings: BTreeMap<String, String>,
    preset: Option<String>,
    /// The text of a file of transforms.
    transforms: Option<String>,
    /// Padding to the batch's largest image: the divisor of its sides.
    pad_to: Option<u32>,
    sampler: Option<SamplerSetting>,
    cache: Option<Cache>,
    entry_points: Option<Points>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SamplerSetting {
    Repeated(u32),
    Weighted {
        weights: Vec<f64>,
        replacement: bool,
        samples: Option<u64>,
    },
    ClassBalanced(Option<u64>),
    /// An order that Python lists for each epoch.
    Listed {
        name: String,
        samples: u64,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cache {
    folder: Option<PathBuf>,
    bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Points {
    /// "none", "memory", or a folder.
    place: Option<String>,
    bytes: Option<u64>,
    /// Whether places between entry points are kept.
    dense: Option<bool>,
}

/// The order of the epoch that is begun next, as Python lists it.
pub(crate) type Order = Arc<Mutex<Vec<u64>>>;

/// Sets the order of the epoch that begins, if Python lists it.
pub(crate) fn list(order: &Order, listed: Option<Vec<u64>>) {
    if let Some(listed) = listed {
        *order.lock().unwrap_or_else(PoisonError::into_inner) = listed;
    }
}

/// A sampler whose order Python lists.
struct Listed {
    name: String,
    samples: u64,
    order: Order,
}

impl EpochOrder for Listed {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn positions(&self, _samples: u64) -> u64 {
        self.samples
    }

    fn order(&self, _samples: u64, _seed: u64, _epoch: u64) -> Vec<u64> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Settings {
    fn builder(self, source: &Source, order: &Order) -> warpfeed::Result<(PipelineBuilder, Option<u32>)> {
        let mut builder = warpfeed::Pipeline::builder(source.input()?);
        let is_u8 = self.settings.get("dtype").is_some_and(|dtype| dtype == "u8");
        // First: a preset takes targets and fields into account that were asked for.
        for (name, text) in &self.settings {
            builder = builder.set(name, text)?;
        }
        if let Some(Cache { folder, bytes }) = self.cache {
            builder = builder.cache(folder.map_or(ImageCache::memory(bytes), |folder| ImageCache::disk(folder, bytes)));
        }
        if let Some(Points { place, bytes, dense }) = self.entry_points {
            let points = match place.as_deref() {
                None => EntryPoints::default(),
                Some("none") => EntryPoints::none(),
                Some("memory") => EntryPoints::memory(),
                Some(folder) => EntryPoints::folder(folder),
            };
            let points = dense.into_iter().fold(points, EntryPoints::dense);
            builder = builder.entry_points(bytes.into_iter().fold(points, EntryPoints::limit));
        }
        if let Some(preset) = self.preset {
            let preset: Preset = preset.parse()?;
            builder = builder.preset(preset);
            if is_u8 {
                return Err(warpfeed::Error::Parameter {
                    operation: "preset",
                    parameter: "dtype",
                    expected: "float32, float16 or bfloat16, since presets normalize".to_owned(),
                    got: "uint8".to_owned(),
                });
            }
        }
        if let Some(transforms) = self.transforms {
            builder = builder.transforms(TransformFile::parse(&transforms, "transform")?);
        }
        // A preset sets its own.
        if let Some(mix) = self.settings.get("mix") {
            builder = builder.set("mix", mix)?;
        }
        if let Some(sampler) = self.sampler {
            let of = |sampling: warpfeed::Sampler, samples: Option<u64>| {
                samples.into_iter().fold(sampling, warpfeed::Sampler::positions)
            };
            builder = builder.sampler(match sampler {
                SamplerSetting::Repeated(times) => warpfeed::Sampler::repeated(times),
                SamplerSetting::Weighted { weights, replacement, samples } => {
                    of(warpfeed::Sampler::weighted(weights, replacement), samples)
                }
                SamplerSetting::ClassBalanced(samples) => of(warpfeed::Sampler::class_balanced(), samples),
                SamplerSetting::Listed { name, samples } => {
                    warpfeed::Sampler::own(Listed { name, samples, order: Arc::clone(order) })
                }
            });
        }
        Ok((builder, self.pad_to))
    }
}

/// A pipeline, by the form of its batches' images.
enum Built {
    One(warpfeed::Pipeline),
    Ragged(RaggedPipeline),
    Padded(PaddedPipeline),
}

macro_rules! each {
    ($built:expr, $pipeline:ident => $value:expr) => {
        match $built {
            Built::One($pipeline) => $value,
            Built::Ragged($pipeline) => $value,
            Built::Padded($pipeline) => $value,
        }
    };
}

/// A pipeline: built once, asked for epochs.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct Pipeline {
    built: OfProcess<Built>,
    order: Order,
}

impl Pipeline {
    /// A pipeline of a group, whose epochs have this order.
    pub(crate) fn of(pipeline: warpfeed::Pipeline, order: &Order) -> Self {
        Self { built: OfProcess::new(Built::One(pipeline)), order: Arc::clone(order) }
    }
}

/// Builds by the settings, which are JSON. `memory` gives the memory of batches, as [`Memory`] says; `build` also gets
/// the divisor of the sides to which images are padded.
pub(crate) fn prepared<T: Send>(
    py: Python<'_>,
    source: &Bound<'_, Source>,
    settings: &str,
    order: &Order,
    memory: Option<Py<PyAny>>,
    build: impl FnOnce(PipelineBuilder, Option<u32>) -> warpfeed::Result<T> + Send,
) -> PyResult<T> {
    let settings: Settings =
        serde_json::from_str(settings).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let source = source.get();
    let built = detached(py, || {
        let (builder, pad_to) = settings.builder(source, order)?;
        build(memory.into_iter().fold(builder, |builder, own| builder.batch_memory(Memory(own))), pad_to)
    });
    built.map_err(raise)
}

#[pymethods]
impl Pipeline {
    /// `settings` and `memory` are those of [`prepared`].
    #[new]
    #[pyo3(signature = (source, settings, memory=None))]
    fn new(py: Python<'_>, source: &Bound<'_, Source>, settings: &str, memory: Option<Py<PyAny>>) -> PyResult<Self> {
        let order = Order::default();
        let built = prepared(py, source, settings, &order, memory, |builder, pad_to| match pad_to {
            Some(divisor) => builder.build_padded(divisor).map(Built::Padded),
            None if builder.is_ragged() => builder.build_ragged().map(Built::Ragged),
            None => builder.build().map(Built::One),
        })?;
        Ok(Self { built: OfProcess::new(built), order })
    }

    /// Begins an epoch; `order`: the samples' indices, for a listed sampler.
    #[pyo3(signature = (epoch, order=None))]
    fn epoch(&self, py: Python<'_>, epoch: u64, order: Option<Vec<u64>>) -> PyResult<Epoch> {
        let built = self.built.get()?;
        Ok(detached(py, || {
            list(&self.order, order);
            each!(built, pipeline => Epoch::new(pipeline.epoch(epoch)))
        }))
    }

    /// The state in which this rank goes on after the ranks of a run, from their states or, of even partitions, from
    /// one of them. States are JSON.
    #[pyo3(signature = (states, order=None))]
    fn state_after(&self, py: Python<'_>, states: Vec<String>, order: Option<Vec<u64>>) -> PyResult<String> {
        let states = states.iter().map(|state| parsed(state)).collect::<PyResult<Vec<_>>>()?;
        let built = self.built.get()?;
        let state = detached(py, || {
            list(&self.order, order);
            each!(built, pipeline => pipeline.state_after(&states))
        });
        text(&state.map_err(raise)?)
    }

    /// Number of batches that are left after a state; `None` for a stream.
    fn batches_left(&self, state: &str) -> PyResult<Option<u64>> {
        let state = parsed(state)?;
        each!(self.built.get()?, pipeline => pipeline.batches_left(&state)).map_err(raise)
    }

    /// Goes on after a state, which is JSON.
    #[pyo3(signature = (state, order=None))]
    fn resume(&self, py: Python<'_>, state: &str, order: Option<Vec<u64>>) -> PyResult<Epoch> {
        let state = parsed(state)?;
        let built = self.built.get()?;
        detached(py, || {
            list(&self.order, order);
            each!(built, pipeline => pipeline.resume(&state).map(Epoch::new))
        })
        .map_err(raise)
    }

    /// Number of samples in an epoch of this rank; `None` for a stream.
    #[getter]
    fn samples(&self) -> PyResult<Option<u64>> {
        Ok(each!(self.built.get()?, pipeline => pipeline.num_samples()))
    }

    /// Number of batches in an epoch of this rank; `None` for a stream.
    #[getter]
    fn batches(&self) -> PyResult<Option<u64>> {
        Ok(each!(self.built.get()?, pipeline => pipeline.batches()))
    }

    /// Names of the classes, by label.
    #[getter]
    fn classes(&self) -> PyResult<Vec<String>> {
        Ok(each!(self.built.get()?, pipeline => pipeline.classes().to_vec()))
    }

    /// Number of worker threads.
    #[getter]
    fn threads(&self) -> PyResult<usize> {
        Ok(each!(self.built.get()?, pipeline => pipeline.threads()))
    }

    /// The device that runs the operations, for people.
    #[getter]
    fn device_name(&self) -> PyResult<String> {
        Ok(each!(self.built.get()?, pipeline => pipeline.device_name()))
    }

    /// The explicit operations of each image that a batch has of a sample, as JSON.
    #[pyo3(signature = (epoch, index, repetition=0))]
    fn recipes(&self, py: Python<'_>, epoch: u64, index: u64, repetition: u32) -> PyResult<String> {
        let built = self.built.get()?;
        let recipes = detached(py, || each!(built, pipeline => pipeline.recipes_of(epoch, index, repetition)));
        let wrong = |error: serde_json::Error| PyValueError::new_err(error.to_string());
        serde_json::to_string(&recipes.map_err(raise)?).map_err(wrong)
    }

    /// The path or key of a sample.
    fn name(&self, index: u64) -> PyResult<Option<String>> {
        Ok(each!(self.built.get()?, pipeline => pipeline.name(index)))
    }

    /// A preprocessor with the operations of this pipeline.
    fn preprocessor(&self, py: Python<'_>) -> PyResult<Preprocessor> {
        let Built::One(pipeline) = self.built.get()? else {
            return Err(PyTypeError::new_err("a preprocessor makes images of one size, and these differ"));
        };
        detached(py, || pipeline.preprocessor()).map(Preprocessor::new).map_err(raise)
    }
}

/// A state as JSON.
pub(crate) fn text(state: &EpochState) -> PyResult<String> {
    serde_json::to_string(state).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A state from its JSON.
pub(crate) fn parsed(state: &str) -> PyResult<EpochState> {
    serde_json::from_str(state).map_err(|error| PyValueError::new_err(format!("this is no state of an epoch: {error}")))
}
