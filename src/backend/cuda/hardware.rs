//! Decodes the hardware decoder's images of a batch, and on the CPU the refused ones.
#![allow(unsafe_code)]

use super::in_flight::InFlight;
use super::nvjpeg::{HardwareBatch, HardwareDecoder, HardwareJob};
use super::streams::Streams;
use super::worker::Worker;
use crate::backend::{Decoded, Executor, Settled};
use crate::decode::DecodeOptions;
use crate::error::Result;
use crate::raster::Rect;

/// Decodes the images that were left to the hardware decoder, and on the CPU those that it refuses.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) or [`Error::Cuda`](crate::Error::Cuda); the batch must then be abandoned.
pub(super) fn settle(
    hardware: &HardwareDecoder,
    (host, worker): (&mut Executor, &mut Worker),
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
    // SAFETY: the state's last work has been waited for. The jobs' bytes and destinations belong to the batch, whose
    // memory is reused only after the hardware decoder has been waited for. Destinations have been idle since the batch
    // began.
    if unsafe { state.decode(hardware, &borrowed) }.is_ok() {
        batch.on_hardware = jobs.len();
        let decoded = Decoded { hardware: jobs.len() as u64, ..Decoded::default() };
        let approximate = jobs.iter().map(|(place, _)| *place).collect();
        return Ok(Settled { approximate, decoded, ..Settled::default() });
    }
    let mut refused = Vec::new();
    narrow_down(hardware, state, &jobs, &mut refused)?;
    worker.decoded.hardware += (jobs.len() - refused.len()) as u64;
    let is_refused = |place: &usize| refused.iter().any(|(other, _)| other == place);
    let approximate = jobs.iter().map(|(place, _)| *place).filter(|place| !is_refused(place)).collect();
    let mut bad = Vec::new();
    for (place, job) in refused {
        let (bytes, part) = (job.encoded.bytes(), Rect::full(job.size));
        // SAFETY: the destination belongs to the batch and is as large as the image, and the hardware decoder has been
        // waited for.
        let decoded = unsafe { worker.decode_instead(host, (bytes, how), part, job.destination, &streams.copy) };
        if let Err(error) = decoded {
            bad.push((*place, error));
        }
    }
    Ok(Settled { bad, approximate, decoded: worker.take_decoded() })
}

/// Finds the jobs of a batch that the hardware decoder refuses. nvJPEG does not name them, so they are decoded again by
/// halves.
///
/// # Synchronization
/// The accepted images are decoded when this returns.
fn narrow_down<'a>(
    hardware: &HardwareDecoder,
    state: &mut HardwareBatch,
    jobs: &'a [(usize, HardwareJob)],
    refused: &mut Vec<&'a (usize, HardwareJob)>,
) -> Result<()> {
    // Some jobs may still be running.
    hardware.stream.synchronize()?;
    if let [job] = jobs {
        refused.push(job);
        return Ok(());
    }
    let (front, back) = jobs.split_at(jobs.len() / 2);
    for half in [front, back] {
        let borrowed: Vec<&HardwareJob> = half.iter().map(|(_, job)| job).collect();
        // SAFETY: as in `settle`; all work that was queued before has been waited for.
        if unsafe { state.decode(hardware, &borrowed) }.is_err() {
            narrow_down(hardware, state, half, refused)?;
        }
        hardware.stream.synchronize()?;
    }
    Ok(())
}
