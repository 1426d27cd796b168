//! Pipelines for several devices, which share threads and an image cache.

use crate::ending::detached;
use crate::epoch::Epoch;
use crate::error::raise;
use crate::forks::OfProcess;
use crate::pipeline::{Order, Pipeline, list, parsed, prepared, text};
use crate::source::Source;
use pyo3::prelude::*;
use warpfeed::{Device, PipelineGroup};

/// A pipeline for each device. Their epochs are begun together, and have equally many batches.
#[pyclass(frozen, module = "warpfeed")]
pub(crate) struct Group {
    group: OfProcess<PipelineGroup>,
    order: Order,
}

#[pymethods]
impl Group {
    /// `settings` and `memory` are those of a pipeline; the device of the settings is not used.
    #[new]
    #[pyo3(signature = (source, settings, devices, memory=None))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, Source>,
        settings: &str,
        devices: Vec<String>,
        memory: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let order = Order::default();
        let group = prepared(py, source, settings, &order, memory, |builder, _| {
            let devices = devices.iter().map(|device| device.parse()).collect::<warpfeed::Result<Vec<Device>>>()?;
            builder.build_group(devices)
        })?;
        Ok(Self { group: OfProcess::new(group), order })
    }

    /// The pipeline of each device, to ask what it is like.
    fn pipelines(&self) -> PyResult<Vec<Pipeline>> {
        let pipelines = self.group.get()?.pipelines().iter();
        Ok(pipelines.map(|pipeline| Pipeline::of(pipeline.clone(), &self.order)).collect())
    }

    /// Begins an epoch on each device; `order`: the samples' indices, for a listed sampler.
    #[pyo3(signature = (epoch, order=None))]
    fn epochs(&self, py: Python<'_>, epoch: u64, order: Option<Vec<u64>>) -> PyResult<Vec<Epoch>> {
        let group = self.group.get()?;
        Ok(detached(py, || {
            list(&self.order, order);
            group.epochs(epoch).into_iter().map(Epoch::new).collect()
        }))
    }

    /// The states in which the devices go on after the ranks of a run. States are JSON.
    #[pyo3(signature = (states, order=None))]
    fn states_after(&self, py: Python<'_>, states: Vec<String>, order: Option<Vec<u64>>) -> PyResult<Vec<String>> {
        let states = states.iter().map(|state| parsed(state)).collect::<PyResult<Vec<_>>>()?;
        let group = self.group.get()?;
        let after = detached(py, || {
            list(&self.order, order);
            group.states_after(&states)
        });
        after.map_err(raise)?.iter().map(text).collect()
    }

    /// Goes on after the state of each device.
    #[pyo3(signature = (states, order=None))]
    fn resume(&self, py: Python<'_>, states: Vec<String>, order: Option<Vec<u64>>) -> PyResult<Vec<Epoch>> {
        let states = states.iter().map(|state| parsed(state)).collect::<PyResult<Vec<_>>>()?;
        let group = self.group.get()?;
        let epochs = detached(py, || {
            list(&self.order, order);
            group.resume(&states)
        });
        Ok(epochs.map_err(raise)?.into_iter().map(Epoch::new).collect())
    }
}
