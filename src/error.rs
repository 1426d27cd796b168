//! Errors of this crate, one variant for each kind of fault.

use crate::address::without_secrets;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, by who is at fault.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write. If the machine is at fault and not the file, the text ends in a
    /// remedy.
    #[error("cannot {action} {}: {source}{}", without_secrets(&path.to_string_lossy()), MachineFault::of(source).map_or("", MachineFault::remedy))]
    Io {
        /// The action that failed: `"read"`, `"open"`, `"write"`, ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// The image's bytes are damaged, truncated, or not an image.
    #[error("cannot decode {format}: {message}")]
    Decode {
        /// The format as far as it was recognized: `"JPEG"`, `"PNG"`, `"WebP"`, `"image"`.
        format: &'static str,
        /// The decoder's message.
        message: String,
    },
    /// The sample's image does not fit an operation, such as a crop that is larger than the image.
    #[error("{operation}: {message}")]
    Unfit {
        /// The operation or transform.
        operation: &'static str,
        /// The reason.
        message: String,
    },
    /// A sample's target is missing, or does not fit the [`TargetSpec`](crate::TargetSpec).
    #[error("target {field}: {message}")]
    Target {
        /// The target's field; `label` for the label.
        field: String,
        /// The fault of the target.
        message: String,
    },
    /// A parameter given by the caller is out of range or does not fit the others.
    #[error("{operation}: {parameter} must be {expected}, got {got}")]
    Parameter {
        /// The operation or builder method.
        operation: &'static str,
        /// The parameter's name.
        parameter: &'static str,
        /// The values that are allowed.
        expected: String,
        /// The value that was given.
        got: String,
    },
    /// An image or file is larger than the configured limit.
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
    /// The device has too little memory for a batch, or the batch would exceed its share.
    #[error("{needed_bytes} bytes of device memory are needed for {what}, {available_bytes} are available: {remedy}")]
    OutOfDeviceMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// Number of bytes that were asked for.
        needed_bytes: u64,
        /// Number of bytes that are left, on the device or of the batch's share.
        available_bytes: u64,
        /// The way to need less memory, or get more.
        remedy: &'static str,
    },
    /// Too many samples cannot be used: the data set or the machine is at fault, not the samples
    /// ([`PipelineBuilder::max_bad`](crate::PipelineBuilder::max_bad)).
    #[error("{bad} of {samples} samples cannot be used: {remedy}; the first is {first}")]
    TooManyBad {
        /// Number of samples that cannot be used.
        bad: u64,
        /// Number of samples that were tried.
        samples: u64,
        /// The cause to look for.
        remedy: &'static str,
        /// The error of the first sample that could not be used.
        first: Box<Error>,
    },
    /// A sample cannot be used, and no other sample can take its place.
    #[error("{source}; {}: check the data set", no_substitute(*tried))]
    NoSubstitute {
        /// Number of other samples that were tried; 0 if the source has no other.
        tried: u32,
        /// The error of the sample itself.
        source: Box<Error>,
    },
    /// A valid request that this build or back end cannot serve.
    #[error("{feature} is not supported: {remedy}")]
    Unsupported {
        /// The feature that was asked for.
        feature: String,
        /// The alternative.
        remedy: String,
    },
    /// An error of the caller's own code, such as a source's database ([`Error::foreign`], [`Error::foreign_sample`]).
    #[error("{source}")]
    Foreign {
        /// The caller's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
        /// Whether a sample is at fault, as the caller said.
        bad_sample: bool,
    },
    /// A stream broke off and could not be resumed.
    #[error("{shard} broke off at byte {offset}: {message}")]
    Stream {
        /// The shard's path or address.
        shard: String,
        /// Number of bytes of the shard that had been read.
        offset: u64,
        /// The cause.
        message: String,
    },
    /// The device, its driver or its libraries are missing or have failed.
    #[error("{call}: {message}")]
    Device {
        /// The call or step that failed.
        call: String,
        /// The value found, the expected value, and the remedy.
        message: String,
    },
    /// A call to the CUDA driver failed.
    #[error("{call}: {name} ({code}): {message}")]
    Cuda {
        /// The driver's status.
        code: u32,
        /// The status's name: `"CUDA_ERROR_INVALID_VALUE"`, ...
        name: String,
        /// The call.
        call: String,
        /// The driver's sentence for the status, and the remedy where there is one.
        message: String,
    },
    /// The system refused to start a thread.
    #[error("cannot start thread {name}: {source}: allow more (ulimit -u, or the container's limit), or ask for fewer")]
    Thread {
        /// The thread's name.
        name: String,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// Code run by a worker thread panicked: a custom operation or source, or a defect of this crate.
    #[error("a worker thread panicked: {message}")]
    Panic {
        /// The panic's message.
        message: String,
    },
    /// Preprocessing does not make the pixels of a [`Contract`](crate::contract::Contract).
    #[error(
        "{stage}: the pixels of the probe image {image} are not the contract's; this machine, version or decoder makes other \
         pixels than the one that wrote it, so write it anew only if that is meant"
    )]
    Contract {
        /// The probe image's name.
        image: String,
        /// The first step that differs.
        stage: String,
    },
    /// An error on one sample of an epoch.
    #[error("sample {index} ({name}): {source}")]
    Sample {
        /// The sample's index in its source.
        index: u64,
        /// The sample's path or name.
        name: String,
        /// The error on this sample.
        source: Box<Error>,
    },
}

impl Error {
    /// Whether one sample's data are at fault: the sample cannot be read or decoded, is over a limit, or has a wrong
    /// target. [`OnError`](crate::OnError) decides what happens with such samples.
    ///
    /// A file that is missing, may not be read, or ends too early is the sample's fault. Too many open files, too
    /// little memory, a full disk or a server that does not answer are the machine's fault, because every sample would
    /// meet them.
    #[must_use]
    pub fn is_bad_sample(&self) -> bool {
        match self {
            Self::Sample { source, .. } => source.is_bad_sample(),
            Self::Io { source, .. } => MachineFault::of(source).is_none(),
            Self::Decode { .. }
            | Self::Unfit { .. }
            | Self::Target { .. }
            | Self::Limits { .. }
            | Self::Foreign { bad_sample: true, .. } => true,
            _ => false,
        }
    }

    /// Whether the device, its driver or its libraries are at fault.
    #[must_use]
    pub fn is_device(&self) -> bool {
        match self {
            Self::Sample { source, .. } => source.is_device(),
            Self::Device { .. } | Self::Cuda { .. } => true,
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

    /// Whether the system reports a read failure of a device. One such sample is a bad sample; several in a row are the
    /// fault of a disk or a network.
    pub(crate) fn is_io_failure(&self) -> bool {
        match self {
            Self::Sample { source, .. } => source.is_io_failure(),
            Self::Io { source, .. } => cfg!(unix) && source.raw_os_error() == Some(EIO),
            _ => false,
        }
    }

    /// Wraps an error of the caller's own code that ends the epoch, such as that of a lost connection.
    ///
    /// ```
    /// use warpfeed::Error;
    ///
    /// let lost = std::io::Error::other("the database is gone");
    /// let error = Error::foreign(lost);
    /// assert!(error.to_string() == "the database is gone" && !error.is_bad_sample());
    /// let error = Error::foreign_sample("row 7 has no image");
    /// assert!(error.is_bad_sample());
    /// ```
    pub fn foreign(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Foreign { source: Arc::from(error.into()), bad_sample: false }
    }

    /// Wraps an error of the caller's own code that is a sample's fault. The policy for bad samples decides about it.
    pub fn foreign_sample(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Foreign { source: Arc::from(error.into()), bad_sample: true }
    }

    #[doc(hidden)]
    pub fn parameter(
        operation: &'static str,
        parameter: &'static str,
        expected: impl Into<String>,
        got: impl ToString,
    ) -> Self {
        Self::Parameter { operation, parameter, expected: expected.into(), got: got.to_string() }
    }

    pub(crate) fn unfit(operation: &'static str, message: impl Into<String>) -> Self {
        Self::Unfit { operation, message: message.into() }
    }

    #[doc(hidden)]
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source: source.into() }
    }

    /// An error with the message of a caught panic.
    #[doc(hidden)]
    pub fn panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panic { message: message.unwrap_or_else(|| "no message".to_owned()) }
    }

    #[doc(hidden)]
    pub fn decode(format: &'static str, message: impl Into<String>) -> Self {
        Self::Decode { format, message: message.into() }
    }
}

/// Converts an error of `warpfeed-image` to the variant of the same name, with the same text.
impl From<warpfeed_image::Error> for Error {
    fn from(error: warpfeed_image::Error) -> Self {
        use warpfeed_image::Error as Image;
        match error {
            Image::Decode { format, message } => Self::Decode { format, message },
            Image::Parameter { operation, parameter, expected, got } => {
                Self::Parameter { operation, parameter, expected, got }
            }
            Image::Limits { what, got, limit, remedy } => Self::Limits { what, got, limit, remedy },
            Image::OutOfMemory { what, bytes, remedy } => Self::OutOfMemory { what, bytes, remedy },
            Image::Unsupported { feature, remedy } => Self::Unsupported { feature, remedy },
        }
    }
}

fn no_substitute(tried: u32) -> String {
    match tried {
        0 => "there is no other sample to take its place".to_owned(),
        _ => format!("{tried} others drawn in its place cannot be used either"),
    }
}

/// Faults that the operating system reports for the machine, whichever file it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MachineFault {
    OpenFiles,
    Memory,
    DiskFull,
    ReadOnly,
    Network,
    Device,
}

/// Numbers of errors that have no [`io::ErrorKind`]. They are the same on all Unix systems.
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

impl MachineFault {
    /// The machine's fault that an error reports; `None` if the file is at fault.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        use io::ErrorKind as Kind;
        Some(match error.kind() {
            Kind::OutOfMemory => Self::Memory,
            Kind::StorageFull | Kind::QuotaExceeded => Self::DiskFull,
            Kind::ReadOnlyFilesystem => Self::ReadOnly,
            Kind::StaleNetworkFileHandle
            | Kind::NotConnected
            | Kind::TimedOut
            | Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown => Self::Network,
            _ => match error.raw_os_error().filter(|_| cfg!(unix)) {
                Some(ENFILE | EMFILE) => Self::OpenFiles,
                Some(ENODEV | ENXIO) => Self::Device,
                _ => return None,
            },
        })
    }

    /// The remedy, as the end of a message.
    fn remedy(self) -> &'static str {
        match self {
            Self::OpenFiles => "; allow more open files (ulimit -n), or use fewer threads",
            Self::Memory => "; allow the process more memory, or use fewer threads",
            Self::DiskFull => "; free space there, or choose another place",
            Self::ReadOnly => "; mount it for writing, or choose another place",
            Self::Network => "; check the network and that the share or server is up, then go on from the last state",
            Self::Device => "; check that the disk or share is still attached and mounted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: io::Error) -> Error {
        let error = Error::io("read", "a/1.jpg")(source);
        Error::Sample { index: 1, name: "a/1.jpg".to_owned(), source: Box::new(error) }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_machines_faults_are_no_samples() {
        // EMFILE, ENFILE, ENOMEM, ESTALE, ENOSPC, EDQUOT, ENOTCONN, ETIMEDOUT, EROFS, ENODEV, ENXIO, ECONNRESET.
        for number in [24, 23, 12, 116, 28, 122, 107, 110, 30, 19, 6, 104] {
            let error = read(io::Error::from_raw_os_error(number));
            assert!(!error.is_bad_sample(), "{error}");
            assert!(error.to_string().contains(&format!("(os error {number}); ")), "{error} without a remedy");
        }
        // ENOENT, EACCES, EISDIR, ENAMETOOLONG, ELOOP, EIO.
        for number in [2, 13, 21, 36, 40, 5] {
            let error = read(io::Error::from_raw_os_error(number));
            assert!(error.is_bad_sample() && error.is_io_failure() == (number == 5), "{error}");
            assert!(error.to_string().ends_with(&format!("(os error {number})")), "{error}");
        }
    }

    #[test]
    fn errors_of_images_keep_their_text_and_blame() {
        use warpfeed_image::{Decoder, Image, JpegOptions, Rect, Size, check_pixels, encode_jpeg, memory, probe};
        let jpeg = encode_jpeg(&Image::new(Size::new(8, 8)), &JpegOptions::default()).unwrap();
        let (header, outside) = (probe(&jpeg).unwrap(), Rect { x: 8, y: 0, width: 1, height: 1 });
        let unsupported =
            warpfeed_image::Error::Unsupported { feature: "a kind".to_owned(), remedy: "convert it".to_owned() };
        for error in [
            probe(b"no image").unwrap_err(),
            check_pixels(Size::new(9, 9), 80).unwrap_err(),
            Decoder::new().unwrap().decode(&jpeg, &header, outside, false, &mut Image::default()).unwrap_err(),
            memory::refused::<u8>("an image", 1, memory::FEWER_IMAGES),
            unsupported,
        ] {
            let converted = Error::from(error.clone());
            assert_eq!(converted.to_string(), error.to_string());
            assert_eq!(converted.is_bad_sample(), error.is_bad_image(), "{error}");
            assert_eq!(converted.is_parameter(), matches!(error, warpfeed_image::Error::Parameter { .. }), "{error}");
        }
    }

    #[test]
    fn data_that_end_or_are_wrong_are_the_samples() {
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData, io::ErrorKind::Other] {
            assert!(read(io::Error::new(kind, "cut off")).is_bad_sample(), "{kind}");
        }
    }
}
