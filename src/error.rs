//! What can go wrong, split by who is at fault.

use std::io;
use std::path::PathBuf;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by who is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: `"read"`, `"open"`, `"write"`, ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The image's bytes are damaged, truncated, or not an image.
    #[error("cannot decode {format}: {message}")]
    Decode {
        /// The format as far as it was recognised: `"JPEG"`, `"PNG"`, `"WebP"`, `"image"`.
        format: &'static str,
        /// What the decoder met.
        message: String,
    },
    /// A parameter given by the caller is out of range or does not fit the others.
    #[error("{operation}: {parameter} must be {expected}, got {got}")]
    Parameter {
        /// The operation or builder method.
        operation: &'static str,
        /// The parameter's name.
        parameter: &'static str,
        /// What is allowed.
        expected: String,
        /// What came.
        got: String,
    },
    /// An image or file is larger than the configured limit.
    #[error("{what} of {got} is over the limit of {limit}: {remedy}")]
    Limits {
        /// What is too large, with its unit.
        what: &'static str,
        /// Its size.
        got: u64,
        /// The limit in force.
        limit: u64,
        /// How to raise the limit.
        remedy: &'static str,
    },
    /// A valid request that this build or back end cannot serve.
    #[error("{feature} is not supported: {remedy}")]
    Unsupported {
        /// What was asked for.
        feature: String,
        /// What to do instead.
        remedy: String,
    },
    /// A stream broke off and could not be taken up again.
    #[error("{shard} broke off at byte {offset}: {message}")]
    Stream {
        /// The shard's path or address.
        shard: String,
        /// How many bytes of it had been read.
        offset: u64,
        /// What went wrong.
        message: String,
    },
    /// The device, its driver or its libraries are missing or have failed.
    #[error("{call}: {message}")]
    Device {
        /// The call or step that failed.
        call: String,
        /// What was found, what was looked for, and the remedy.
        message: String,
    },
    /// The system refused a thread.
    #[error("cannot start thread {name}: {source}: allow more (ulimit -u, or the container's limit), or ask for fewer")]
    Thread {
        /// The thread's name.
        name: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// Code run by a worker thread panicked: a custom operation or source, or a defect of this crate.
    #[error("a worker thread panicked: {message}")]
    Panic {
        /// The panic's message.
        message: String,
    },
    /// An error on one sample of an epoch.
    #[error("sample {index} ({name}): {source}")]
    Sample {
        /// The sample's index in its source.
        index: u64,
        /// The sample's path or name.
        name: String,
        /// What went wrong with it.
        source: Box<Error>,
    },
}

impl Error {
    /// Whether one sample's data are at fault: it cannot be read, decoded, or is over a limit. Such samples are what
    /// [`OnError`](crate::OnError) decides about.
    #[must_use]
    pub fn is_bad_sample(&self) -> bool {
        match self {
            Self::Sample { source, .. } => source.is_bad_sample(),
            Self::Io { .. } | Self::Decode { .. } | Self::Limits { .. } => true,
            _ => false,
        }
    }

    /// Whether the device, its driver or its libraries are at fault.
    #[must_use]
    pub fn is_device(&self) -> bool {
        match self {
            Self::Sample { source, .. } => source.is_device(),
            Self::Device { .. } => true,
            _ => false,
        }
    }

    /// Whether the caller's parameters are at fault.
    #[must_use]
    pub fn is_parameter(&self) -> bool {
        match self {
            Self::Sample { source, .. } => source.is_parameter(),
            Self::Parameter { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn parameter(
        operation: &'static str,
        parameter: &'static str,
        expected: impl Into<String>,
        got: impl ToString,
    ) -> Self {
        Self::Parameter { operation, parameter, expected: expected.into(), got: got.to_string() }
    }

    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// What a caught panic said.
    pub(crate) fn panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panic { message: message.unwrap_or_else(|| "no message".to_owned()) }
    }

    pub(crate) fn decode(format: &'static str, message: impl Into<String>) -> Self {
        Self::Decode { format, message: message.into() }
    }
}
