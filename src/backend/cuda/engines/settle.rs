//! The end of a batch: waits for its images on the engines, and decodes the refused ones on the CPU.
#![allow(unsafe_code)]

use crate::backend::cuda::in_flight::InFlight;
use crate::backend::cuda::streams::Streams;
use crate::backend::cuda::worker::Worker;
use crate::backend::{Decoded, Executor, Settled};
use crate::decode::DecodeOptions;
use crate::error::Result;
use crate::raster::Rect;

/// Has all images of a batch queued that were left to the engines, and decodes those on the CPU that they refuse.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) or [`Error::Cuda`](crate::Error::Cuda); the batch must then be abandoned.
pub(in crate::backend::cuda) fn settle(
    (host, worker): (&mut Executor, &mut Worker),
    batch: &mut InFlight,
    streams: &Streams,
    how: DecodeOptions<'_>,
) -> Result<Settled> {
    let Some(tracker) = batch.engines_mut().cloned() else { return Ok(Settled::default()) };
    let (mut places, refused) = tracker.wait()?;
    if places.is_empty() {
        return Ok(Settled::default());
    }
    places.retain(|place| !refused.iter().any(|(other, _)| other == place));
    // Threads queue images in any order.
    places.sort_unstable();
    batch.on_hardware = places.len();
    let mut bad = Vec::new();
    if !refused.is_empty() {
        // The engines may still write what they have begun of these images.
        tracker.ended().synchronize()?;
    }
    for (place, job) in refused {
        let (bytes, part) = (job.encoded.bytes(), Rect::full(job.size));
        // SAFETY: the destination belongs to the batch and is as large as the image, and the engines have been waited
        // for.
        let decoded = unsafe { worker.decode_instead(host, (bytes, how), part, job.destination, &streams.copy) };
        if let Err(error) = decoded {
            bad.push((place, error));
        }
    }
    bad.sort_unstable_by_key(|(place, _)| *place);
    let mut decoded = worker.take_decoded();
    decoded += Decoded { hardware: places.len() as u64, ..Decoded::default() };
    Ok(Settled { bad, approximate: places, decoded })
}
