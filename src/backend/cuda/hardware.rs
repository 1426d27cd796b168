//! The hardware decoder's share of a batch, and the CPU's where the hardware decoder refuses images.
#![allow(unsafe_code)]

use super::in_flight::InFlight;
use super::nvjpeg::{HardwareBatch, HardwareDecoder, HardwareJob};
use super::streams::Streams;
use super::worker::Worker;
use crate::backend::{Decoded, Settled};
use crate::decode::DecodeOptions;
use crate::error::Result;
use crate::raster::Rect;

/// Has the hardware decoder decode what was left to it, and the CPU what that refuses.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) or [`Error::Cuda`](crate::Error::Cuda), after which the batch is to be
/// abandoned.
pub(super) fn settle(
    hardware: &HardwareDecoder,
    worker: &mut Worker,
    batch: &mut InFlight,
    streams: &Streams,
    how: DecodeOptions<'_>,
) -> Result<Settled> {
    let mut jobs = Vec::new();
    for (place, sample) in batch.samples_mut().iter_mut().enumerate() {
        if let Some(job) = sample.as_mut().and_then(|sample| sample.hardware_job.take()) {
            jobs.push((place, job));
        }
    }
    if jobs.is_empty() {
        return Ok(Settled::default());
    }
    let state = match batch.hardware_mut() {
        Some(state) => state,
        none => none.insert(hardware.batch(&streams.context)?),
    };
    let borrowed: Vec<&HardwareJob> = jobs.iter().map(|(_, job)| job).collect();
    // SAFETY: what the state was last used for has been waited for. The jobs' bytes and destinations are the batch's,
    // whose memory is used again only after the hardware decoder has been waited for; destinations are idle since the
    // batch began.
    if unsafe { state.decode(hardware, &borrowed) }.is_ok() {
        batch.on_hardware = jobs.len();
        let decoded = Decoded { hardware: jobs.len() as u64, ..Decoded::default() };
        return Ok(Settled { bad: Vec::new(), decoded });
    }
    let mut refused = Vec::new();
    narrow_down(hardware, state, &jobs, &mut refused)?;
    worker.decoded.hardware += (jobs.len() - refused.len()) as u64;
    let mut bad = Vec::new();
    for (place, job) in refused {
        let (bytes, part) = (job.encoded.bytes(), Rect::full(job.size));
        // SAFETY: the destination is the batch's and as large as the image, and the hardware decoder has been waited for.
        if let Err(error) = unsafe { worker.decode_instead(how, bytes, part, job.destination, &streams.copy) } {
            bad.push((*place, error));
        }
    }
    Ok(Settled { bad, decoded: worker.take_decoded() })
}

/// Finds out which of the jobs of a batch the hardware decoder refuses, as nvJPEG does not say: it decodes them again by
/// halves.
///
/// # Synchronization
/// The others are decoded when it returns.
fn narrow_down<'a>(
    hardware: &HardwareDecoder,
    state: &mut HardwareBatch,
    jobs: &'a [(usize, HardwareJob)],
    refused: &mut Vec<&'a (usize, HardwareJob)>,
) -> Result<()> {
    // Some of them may be under way.
    hardware.stream.synchronize()?;
    if let [job] = jobs {
        refused.push(job);
        return Ok(());
    }
    let (front, back) = jobs.split_at(jobs.len() / 2);
    for half in [front, back] {
        let borrowed: Vec<&HardwareJob> = half.iter().map(|(_, job)| job).collect();
        // SAFETY: as in `settle`; what was queued before has been waited for.
        if unsafe { state.decode(hardware, &borrowed) }.is_err() {
            narrow_down(hardware, state, half, refused)?;
        }
        hardware.stream.synchronize()?;
    }
    Ok(())
}
