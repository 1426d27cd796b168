//! Errors of the crate as Python's exceptions, which `warpfeed._errors` defines.

use pyo3::prelude::*;
use std::path::Path;
use warpfeed::Error;

/// The exception for an error: one of a caller's own code as it was raised, any other by its kind.
pub(crate) fn raise(error: Error) -> PyErr {
    Python::attach(|py| raised(py, error).unwrap_or_else(|failed| failed))
}

fn raised(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let (index, name) = match &error {
        Error::Sample { index, name, .. } => (Some(*index), Some(name.clone())),
        _ => (None, None),
    };
    let cause = cause(&error);
    if let Error::Foreign { source, .. } = cause
        && let Some(own) = source.downcast_ref::<PyErr>()
    {
        let own = own.clone_ref(py);
        if let (Some(index), Some(name)) = (index, name) {
            own.add_note(py, format!("while reading sample {index} ({name})"))?;
        }
        return Ok(own);
    }
    let (number, file) = match cause {
        Error::Io { path, source, .. } => (source.raw_os_error(), Some(path.as_path())),
        _ => (None, None),
    };
    let make = py.import("warpfeed._errors")?.getattr("make")?;
    let made = make.call1((kind(cause), error.to_string(), index, name, number, file.map(Path::as_os_str)))?;
    Ok(PyErr::from_value(made))
}

/// The error below those that say which samples it was met on.
fn cause(error: &Error) -> &Error {
    match error {
        Error::Sample { source, .. } | Error::NoSubstitute { source, .. } => cause(source),
        Error::TooManyBad { first, .. } => cause(first),
        other => other,
    }
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } | Error::Stream { .. } => "os",
        Error::Parameter { .. } => "parameter",
        Error::Decode { .. } | Error::Unfit { .. } | Error::Target { .. } | Error::Limits { .. } => "data",
        Error::OutOfMemory { .. } | Error::OutOfDeviceMemory { .. } => "memory",
        Error::Unsupported { .. } => "unsupported",
        Error::Device { .. } | Error::Cuda { .. } => "device",
        _ => "other",
    }
}
