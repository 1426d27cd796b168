//! How fast nvJPEG decodes when nothing else is done.

use crate::backend::cuda::decode_only::decode_only;
use crate::device::{DecodePath, Device};
use crate::error::{Error, Result};
use crate::source::{EncodedImages, Source};
use std::time::Duration;

/// How many images a second nvJPEG decodes, whole, when nothing else is done: what bounds a pipeline that leaves
/// decoding to it. `decode` is [`DecodePath::Hybrid`], on `threads` threads, [`DecodePath::Hardware`], or
/// [`DecodePath::Auto`] for both at the same time. The first `limit` images are read before the clock starts, and decoded
/// again and again for `duration`.
///
/// # Errors
/// [`Error::Device`] if `device` is no GPU or has no such decoder, or fails; what reading an image fails with.
///
/// ```no_run
/// use std::time::Duration;
/// use warpfeed::{DecodePath, Device, experiment::gpu_check::decoding_bound, source::open};
///
/// let photos = open("photos")?.into_data_set()?;
/// let per_s = decoding_bound(Device::Cuda(0), DecodePath::Hybrid, &*photos, 200, 16, Duration::from_secs(2))?;
/// println!("{per_s:.0} images/s");
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn decoding_bound(
    device: Device,
    decode: DecodePath,
    images: &dyn Source,
    limit: u64,
    threads: usize,
    duration: Duration,
) -> Result<f64> {
    let ordinal = device.resolve()?.ok_or_else(|| Error::parameter("decoding_bound", "device", "a GPU", "the CPU"))?;
    let mut buffer = Vec::new();
    let encoded = (0..images.len().min(limit))
        .map(|index| Ok((images.read(index, &mut buffer)?.to_vec(), 0)))
        .collect::<Result<Vec<_>>>()?;
    decode_only(ordinal, decode, EncodedImages::new(encoded), threads, duration)
}
