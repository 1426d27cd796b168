//! Errors of this crate, one variant for each kind of fault.

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, by who is at fault. A further variant would be a breaking change, so a match needs no wildcard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The image's bytes are damaged, truncated, or not an image.
    #[error("cannot decode {format}: {message}")]
    Decode {
        /// The format as far as it was recognized: `"JPEG"`, `"PNG"`, `"WebP"`, `"image"`.
        format: &'static str,
        /// The decoder's message.
        message: String,
    },
    /// A parameter given by the caller is out of range or does not fit the others.
    #[error("{operation}: {parameter} must be {expected}, got {got}")]
    Parameter {
        /// The function.
        operation: &'static str,
        /// The parameter's name.
        parameter: &'static str,
        /// The values that are allowed.
        expected: String,
        /// The value that was given.
        got: String,
    },
    /// An image is larger than the caller's limit.
    #[error("{what} of {got} is over the limit of {limit}: {remedy}")]
    Limits {
        /// The quantity that is too large, with its unit.
        what: &'static str,
        /// The quantity's value.
        got: u64,
        /// The limit in force.
        limit: u64,
        /// The way to raise the limit.
        remedy: &'static str,
    },
    /// The system has too little memory.
    #[error("cannot allocate {bytes} bytes for {what}: {remedy}")]
    OutOfMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// Number of bytes that were asked for.
        bytes: u64,
        /// The way to need less memory, or get more.
        remedy: &'static str,
    },
    /// A valid request that this build cannot serve.
    #[error("{feature} is not supported: {remedy}")]
    Unsupported {
        /// The feature that was asked for.
        feature: String,
        /// The alternative.
        remedy: String,
    },
}

impl Error {
    /// Whether the image is at fault, and not the caller, the build or the machine: it is damaged, or over a limit.
    /// Other images may be fine.
    ///
    /// ```
    /// assert!(warpfeed_image::probe(b"no image").unwrap_err().is_bad_image());
    /// ```
    #[must_use]
    pub fn is_bad_image(&self) -> bool {
        matches!(self, Self::Decode { .. } | Self::Limits { .. })
    }

    pub(crate) fn parameter(
        operation: &'static str,
        parameter: &'static str,
        expected: impl Into<String>,
        got: impl ToString,
    ) -> Self {
        Self::Parameter { operation, parameter, expected: expected.into(), got: got.to_string() }
    }

    pub(crate) fn decode(format: &'static str, message: impl Into<String>) -> Self {
        Self::Decode { format, message: message.into() }
    }
}
