//! The private native module `_warpfeed` of the Python package `warpfeed`.

mod arrow;
mod batch;
mod buckets;
mod cuda;
mod ending;
mod epoch;
mod error;
mod forks;
mod group;
mod images;
mod memory;
mod objects;
mod operation;
mod panics;
mod pillow;
mod pipeline;
mod positions;
mod preprocessor;
mod source;
mod tensor;
mod torch_tensors;
mod transforms;
mod views;

use crate::ending::detached;
use pyo3::prelude::*;
use std::ffi::OsString;
use warpfeed::Preset;

/// The written form of a preset's transforms, as JSON; what it delivers and how it samples besides.
#[pyfunction]
fn preset(name: &str) -> PyResult<(String, Option<String>, Vec<&'static str>)> {
    let preset: Preset = name.parse().map_err(error::raise)?;
    let transforms = serde_json::to_string(&preset.ops()).unwrap_or_default();
    Ok((transforms, preset.mix().map(|mix| mix.to_string()), preset.fields().to_vec()))
}

/// Names of all settings that a text can give.
#[pyfunction]
fn settings() -> Vec<&'static str> {
    warpfeed::Setting::ALL.iter().map(|setting| setting.name).collect()
}

/// Names of all presets.
#[pyfunction]
fn presets() -> Vec<&'static str> {
    Preset::ALL.iter().map(|preset| preset.name()).collect()
}

/// Explicit operations for timm's data configuration, as JSON.
#[pyfunction]
fn timm_ops(text: &str) -> PyResult<String> {
    let ops = warpfeed::timm_ops(text).map_err(error::raise)?;
    Ok(serde_json::to_string(&ops).unwrap_or_default())
}

/// Explicit operations for the configuration of an image processor of Hugging Face's, as JSON.
#[pyfunction]
fn hugging_face_ops(text: &str) -> PyResult<String> {
    let ops = warpfeed::hugging_face_ops(text).map_err(error::raise)?;
    Ok(serde_json::to_string(&ops).unwrap_or_default())
}

/// Runs the command and returns its exit code.
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    detached(py, || warpfeed_cli::command(arguments))
}

#[pymodule]
mod _warpfeed {
    #[pymodule_export]
    use super::batch::{Batch, Fields};
    #[pymodule_export]
    use super::buckets::BucketPlan;
    #[pymodule_export]
    use super::cuda::CudaTransforms;
    #[pymodule_export]
    use super::ending::end;
    #[pymodule_export]
    use super::epoch::Epoch;
    #[pymodule_export]
    use super::group::Group;
    #[pymodule_export]
    use super::images::{decode, decoded_shape, encode, image_header};
    #[pymodule_export]
    use super::operation::{Operation, displace};
    #[pymodule_export]
    use super::pillow::PillowPixels;
    #[pymodule_export]
    use super::pipeline::Pipeline;
    #[pymodule_export]
    use super::preprocessor::Preprocessor;
    #[pymodule_export]
    use super::source::Source;
    #[pymodule_export]
    use super::tensor::Tensor;
    #[pymodule_export]
    use super::torch_tensors::TorchTensors;
    #[pymodule_export]
    use super::transforms::{Recipe, Transforms, run_each};
    #[pymodule_export]
    use super::{command, hugging_face_ops, preset, presets, settings, timm_ops};

    #[pymodule_init]
    fn init(module: &super::Bound<'_, super::PyModule>) -> super::PyResult<()> {
        use super::PyModuleMethods;
        super::panics::print_once();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
