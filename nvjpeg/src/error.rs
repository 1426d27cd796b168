//! Errors: a missing library or function, or a status other than success.

use std::fmt;
use std::path::PathBuf;

use nvjpeg_sys::bindings::nvjpegStatus_t;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, by who is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shared library was not found, or was found and cannot be loaded.
    #[error("{library} cannot be loaded; {remedy}. Looked for:{}", Attempts(attempts))]
    NotLoaded {
        /// The library: `"nvJPEG"` or `"libnvcuvid"`.
        library: &'static str,
        /// The attempts, in order.
        attempts: Vec<Attempt>,
        /// The remedy.
        remedy: &'static str,
    },
    /// The library lacks functions that every nvJPEG since CUDA 11.0 has.
    #[error("{} is no nvJPEG of CUDA 11 or later: it lacks {}", library.display(), functions.join(", "))]
    MissingFunctions {
        /// The file that was loaded.
        library: PathBuf,
        /// The missing functions.
        functions: Vec<&'static str>,
    },
    /// The library lacks one function, which other versions have.
    #[error("{} has no {function}: those since CUDA {since} do; install a later nvJPEG", library.display())]
    MissingFunction {
        /// The file that was loaded.
        library: PathBuf,
        /// The function.
        function: &'static str,
        /// The first CUDA version that is known to have it.
        since: &'static str,
    },
    /// A call returned a status other than success.
    #[error("{call}: {} ({}): {}", status.name(), status.code(), status.meaning())]
    Status {
        /// The function of nvJPEG.
        call: &'static str,
        /// The status.
        status: Status,
    },
    /// A parameter is out of range or does not fit the others. nvJPEG was not called.
    #[error("{call}: {parameter} must be {expected}, got {got}")]
    Parameter {
        /// The function of nvJPEG that was not called.
        call: &'static str,
        /// The parameter's name.
        parameter: &'static str,
        /// The values that are allowed.
        expected: String,
        /// The value that was given.
        got: String,
    },
}

impl Error {
    /// The status that nvJPEG returned, if any.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(crate) fn parameter(
        call: &'static str,
        parameter: &'static str,
        expected: impl Into<String>,
        got: impl ToString,
    ) -> Self {
        Self::Parameter { call, parameter, expected: expected.into(), got: got.to_string() }
    }
}

/// An attempt to load a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The file, or the name given to the system's loader.
    pub path: PathBuf,
    /// The reason why it was not loaded, in the loader's words.
    pub reason: String,
}

struct Attempts<'a>(&'a [Attempt]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|attempt| write!(out, "\n  {}: {}", attempt.path.display(), attempt.reason))
    }
}

/// The status of an nvJPEG call that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// `NVJPEG_STATUS_NOT_INITIALIZED`
    NotInitialized,
    /// `NVJPEG_STATUS_INVALID_PARAMETER`
    InvalidParameter,
    /// `NVJPEG_STATUS_BAD_JPEG`
    BadJpeg,
    /// `NVJPEG_STATUS_JPEG_NOT_SUPPORTED`
    JpegNotSupported,
    /// `NVJPEG_STATUS_ALLOCATOR_FAILURE`
    AllocatorFailure,
    /// `NVJPEG_STATUS_EXECUTION_FAILED`
    ExecutionFailed,
    /// `NVJPEG_STATUS_ARCH_MISMATCH`
    ArchMismatch,
    /// `NVJPEG_STATUS_INTERNAL_ERROR`
    InternalError,
    /// `NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED`
    ImplementationNotSupported,
    /// `NVJPEG_STATUS_INCOMPLETE_BITSTREAM`
    IncompleteBitstream,
    /// A status of a later nvJPEG, which this crate does not know.
    Unknown(u32),
}

impl Status {
    /// The status for nvJPEG's number; `None` for success.
    pub(crate) fn from_raw(raw: nvjpegStatus_t) -> Option<Self> {
        Some(match raw {
            nvjpegStatus_t::NVJPEG_STATUS_SUCCESS => return None,
            nvjpegStatus_t::NVJPEG_STATUS_NOT_INITIALIZED => Self::NotInitialized,
            nvjpegStatus_t::NVJPEG_STATUS_INVALID_PARAMETER => Self::InvalidParameter,
            nvjpegStatus_t::NVJPEG_STATUS_BAD_JPEG => Self::BadJpeg,
            nvjpegStatus_t::NVJPEG_STATUS_JPEG_NOT_SUPPORTED => Self::JpegNotSupported,
            nvjpegStatus_t::NVJPEG_STATUS_ALLOCATOR_FAILURE => Self::AllocatorFailure,
            nvjpegStatus_t::NVJPEG_STATUS_EXECUTION_FAILED => Self::ExecutionFailed,
            nvjpegStatus_t::NVJPEG_STATUS_ARCH_MISMATCH => Self::ArchMismatch,
            nvjpegStatus_t::NVJPEG_STATUS_INTERNAL_ERROR => Self::InternalError,
            nvjpegStatus_t::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED => Self::ImplementationNotSupported,
            nvjpegStatus_t::NVJPEG_STATUS_INCOMPLETE_BITSTREAM => Self::IncompleteBitstream,
            nvjpegStatus_t(code) => Self::Unknown(code),
        })
    }

    /// nvJPEG's number for the status.
    #[must_use]
    pub fn code(self) -> u32 {
        let raw = match self {
            Self::NotInitialized => nvjpegStatus_t::NVJPEG_STATUS_NOT_INITIALIZED,
            Self::InvalidParameter => nvjpegStatus_t::NVJPEG_STATUS_INVALID_PARAMETER,
            Self::BadJpeg => nvjpegStatus_t::NVJPEG_STATUS_BAD_JPEG,
            Self::JpegNotSupported => nvjpegStatus_t::NVJPEG_STATUS_JPEG_NOT_SUPPORTED,
            Self::AllocatorFailure => nvjpegStatus_t::NVJPEG_STATUS_ALLOCATOR_FAILURE,
            Self::ExecutionFailed => nvjpegStatus_t::NVJPEG_STATUS_EXECUTION_FAILED,
            Self::ArchMismatch => nvjpegStatus_t::NVJPEG_STATUS_ARCH_MISMATCH,
            Self::InternalError => nvjpegStatus_t::NVJPEG_STATUS_INTERNAL_ERROR,
            Self::ImplementationNotSupported => nvjpegStatus_t::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED,
            Self::IncompleteBitstream => nvjpegStatus_t::NVJPEG_STATUS_INCOMPLETE_BITSTREAM,
            Self::Unknown(code) => return code,
        };
        raw.0
    }

    /// nvJPEG's name for the status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotInitialized => "NVJPEG_STATUS_NOT_INITIALIZED",
            Self::InvalidParameter => "NVJPEG_STATUS_INVALID_PARAMETER",
            Self::BadJpeg => "NVJPEG_STATUS_BAD_JPEG",
            Self::JpegNotSupported => "NVJPEG_STATUS_JPEG_NOT_SUPPORTED",
            Self::AllocatorFailure => "NVJPEG_STATUS_ALLOCATOR_FAILURE",
            Self::ExecutionFailed => "NVJPEG_STATUS_EXECUTION_FAILED",
            Self::ArchMismatch => "NVJPEG_STATUS_ARCH_MISMATCH",
            Self::InternalError => "NVJPEG_STATUS_INTERNAL_ERROR",
            Self::ImplementationNotSupported => "NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED",
            Self::IncompleteBitstream => "NVJPEG_STATUS_INCOMPLETE_BITSTREAM",
            Self::Unknown(_) => "a status that this crate does not know",
        }
    }

    /// The meaning of the status, and the remedy.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::NotInitialized => "the handle or an object passed to it was not created; report this as a defect",
            Self::InvalidParameter => {
                "a parameter is wrong, or the objects passed belong to different handles; check sizes, pitches, output \
                 format and back end"
            }
            Self::BadJpeg => "the image is damaged or no JPEG; another decoder may still read part of it",
            Self::JpegNotSupported => {
                "the image is of a kind that this back end does not decode (progressive, CMYK, 12 bits, odd \
                 subsampling); decode it with another back end or on the CPU"
            }
            Self::AllocatorFailure => {
                "device or pinned memory could not be had, or the allocator passed in refused; lower the batch size or \
                 the number of workers"
            }
            Self::ExecutionFailed => {
                "a CUDA call failed: there is no driver or no device, or earlier work on the device faulted; see \
                 whether nvidia-smi lists the device"
            }
            Self::ArchMismatch => "the device is too old, or has no unit for this back end; choose another back end",
            Self::InternalError => "nvJPEG failed inside; try another back end, and report the image to NVIDIA",
            Self::ImplementationNotSupported => {
                "this back end does not exist here: no hardware decoder on the device, or a library without it; choose \
                 another back end"
            }
            Self::IncompleteBitstream => "the image ends too early; another decoder may still read part of it",
            Self::Unknown(_) => "it is newer than this crate; see the documentation of the nvJPEG that is installed",
        }
    }
}

/// Fails unless the status is success.
pub(crate) fn check(call: &'static str, raw: nvjpegStatus_t) -> Result<()> {
    Status::from_raw(raw).map_or(Ok(()), |status| Err(Error::Status { call, status }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_keeps_its_code_and_has_a_name_of_its_own() {
        assert_eq!(Status::from_raw(nvjpegStatus_t(0)), None);
        let mut names = std::collections::HashSet::new();
        for code in 1..=11 {
            let status = Status::from_raw(nvjpegStatus_t(code)).unwrap();
            assert_eq!(status.code(), code);
            assert!(names.insert(status.name()), "{} twice", status.name());
            assert_eq!(matches!(status, Status::Unknown(_)), code == 11);
        }
    }

    #[test]
    fn a_status_reads_as_call_name_code_and_sentence() {
        let error = check("nvjpegDecodeBatched", nvjpegStatus_t::NVJPEG_STATUS_BAD_JPEG).unwrap_err();
        assert_eq!(
            error.to_string(),
            "nvjpegDecodeBatched: NVJPEG_STATUS_BAD_JPEG (3): the image is damaged or no JPEG; another decoder may still \
             read part of it"
        );
    }
}
