//! One image that the device is to decode with the others of its batch.

use super::lower::Lowered;
use super::params::JpegImage;
use crate::backend::Encoded;
use crate::backend::cuda::arena::CHUNK_BYTES;
use crate::backend::cuda::decode::{By, Source};
use crate::backend::cuda::gpu::Gpu;
use crate::backend::cuda::in_flight::InFlight;
use crate::backend::cuda::lower::{DeviceImage, Spare, packed_bytes, stages_bytes};
use crate::backend::cuda::worker::Worker;
use crate::decode::{Baseline, Header, Reason};
use crate::error::{Error, Result};
use crate::plan::{Plan, decoded_by};
use crate::raster::Rect;

/// An image whose data are in the batch's staging memory.
pub(in crate::backend::cuda) struct Job {
    pub(super) image: JpegImage,
    /// For the CPU, if the device flags the image.
    pub(in crate::backend::cuda) encoded: Encoded,
    pub(super) part: Rect,
}

/// An image that the CPU is to decode, and device memory that was taken for it.
pub(in crate::backend::cuda) type LeftToCpu = (Encoded, Option<Spare>);

impl Gpu {
    /// Has the device decode the part of an image that its recipes need, or gives it back.
    pub(in crate::backend::cuda) fn to_device(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        encoded: Encoded,
        header: &Header,
        plans: &[Plan<'_>],
    ) -> Result<std::result::Result<Source, LeftToCpu>> {
        let (bytes, part) = (encoded.bytes(), decoded_by(plans));
        let found = if self.options.accept_truncated { Err(Reason::Tolerant) } else { Baseline::new(bytes, header) };
        let image = match found {
            Ok(image) => image,
            Err(reason) => {
                worker.decoded.left.add(reason);
                return Ok(Err((encoded, None)));
            }
        };
        let lowered = Lowered::new(&image, bytes, header, part, &mut worker.row_starts);
        // What is left to the other samples, as if the CPU decoded them, and to this one's recipes.
        let made_bytes: usize = plans.iter().map(|plan| packed_bytes(plan.decode.size())).sum();
        let each_bytes = packed_bytes(part.size()) + made_bytes;
        let writable_bytes = if plans.len() > 1 { 0 } else { packed_bytes(part.size()) };
        let stages_bytes: usize = plans.iter().map(|plan| stages_bytes(plan, writable_bytes)).sum();
        let own_bytes = stages_bytes + lowered.staged_bytes();
        // Small tables: of each worker, and of the decoder's and the batch's end.
        let tables_bytes = (self.options.threads + 2) * CHUNK_BYTES;
        let left_bytes = batch.unprepared().saturating_mul(each_bytes) + own_bytes + tables_bytes;
        let mut taken = None;
        let placed = batch.arena.scratch_sparing(lowered.len_bytes, left_bytes).and_then(|memory| {
            taken = Some((memory, lowered.len_bytes));
            Ok((memory, lowered.place(&batch.arena, &mut worker.staging, memory)?))
        });
        match placed {
            Ok((address, image)) => {
                let decoded = DeviceImage { address, pitch_bytes: 3 * part.width, whole: header.size, part };
                // By the time a stage writes there, the decoder is done with it.
                let (own, len_bytes) = (lowered.pixels_end, lowered.len_bytes);
                let spare = Some((address + own as u64, len_bytes - own));
                Ok(Ok(Source { image: decoded, by: By::Device(Box::new(Job { image, encoded, part })), spare }))
            }
            Err(Error::OutOfDeviceMemory { .. }) => {
                worker.decoded.left.add(Reason::Memory);
                worker.decoded.for_memory += 1;
                Ok(Err((encoded, taken)))
            }
            Err(error) => Err(error),
        }
    }
}
