//! Masks and auxiliary images of a batch, both called masks here, on their way through the kernels that move images. A
//! mask is uploaded with 1 to 3 bytes a pixel (`carried`), one kernel makes an image of it, its plan's calls join the
//! batch's launches, and one kernel writes the values.

use super::arena::Arena;
use super::in_flight::{InFlight, Prepared};
use super::kernel::{Call, FIELD_STORE};
use super::lower::{self, DeviceImage, Lowering, descriptors_bytes, packed_bytes, stages_bytes};
use super::worker::Worker;
use crate::backend::{End, MAX_BATCH_BYTES, MasksOfView, OutputForm, PlannedMask, RunOptions, StageRunner};
use crate::cuda::driver::Stream;
use crate::cuda::{Buffer, CudaBuffer, Pool};
use crate::error::{Error, Result};
use crate::fields::carried::{self, Carried};
use crate::fields::{MaskKind, MaskOnDevice};
use crate::ops::descriptors::{FieldStoreSample, SourceImage};
use crate::ops::kernel::Descriptor;
use crate::raster::Size;
use std::sync::Arc;

/// A mask whose plan has been lowered to calls.
pub(super) struct MovedMask {
    image: usize,
    field: usize,
    size: Size,
    is_wide: bool,
    kind: MaskKind,
    fill: u16,
    groups: Vec<MovedGroup>,
}

/// Planes of a mask that are moved together.
struct MovedGroup {
    /// All calls but the last, which writes the values.
    calls: Vec<Call>,
    /// The image that they make.
    made: SourceImage,
    planes: usize,
    form: u32,
    /// The pixel outside the image.
    fill: [u8; 3],
}

/// Lowers the plan of a mask to calls.
///
/// # Errors
/// [`Error::OutOfDeviceMemory`] if the batch's share has no room for the mask.
pub(super) fn lowered(
    planned: &PlannedMask<'_>,
    (stages, worker): (&mut StageRunner, &mut Worker),
    arena: &Arena,
) -> Result<MovedMask> {
    let &PlannedMask { image, field, mask, ref plan } = planned;
    let group = |group: Carried<'_>| {
        let form = match group {
            Carried::Bytes(_) => FieldStoreSample::BYTES,
            Carried::Word(_) => FieldStoreSample::WORDS,
            Carried::Bits(_) => FieldStoreSample::BITS,
        };
        let Worker { staging, taps, .. } = &mut *worker;
        let (calls, made) = if !lower::has_kernels(plan) {
            let mut made = arena.piece(packed_bytes(plan.size))?;
            stages.run_group(&group, mask.size(), plan, made.bytes_mut())?;
            let Size { width, height } = plan.size;
            let (pixels, pitch_bytes) = (made.address(), 3 * width);
            let made = SourceImage {
                pixels,
                pitch_bytes,
                width,
                height,
                whole_width: width,
                whole_height: height,
                ..SourceImage::default()
            };
            (Vec::new(), made)
        } else {
            let (part, pixel_bytes) = (plan.decode, group.pixel_bytes());
            let mut packed = arena.piece(pixel_bytes * part.size().area_px() as usize)?;
            group.pack(mask.size(), part, packed.bytes_mut());
            let pixel_bytes = pixel_bytes as u32;
            let pitch_bytes = pixel_bytes * part.width;
            let image = DeviceImage { address: packed.address(), pitch_bytes, whole: mask.size(), part };
            Lowering::new(arena, staging, taps, plan.order, image, false, None).run_carried(plan, pixel_bytes)?
        };
        Ok(MovedGroup { calls, made, planes: group.planes(), form, fill: carried::fill(mask) })
    };
    let groups = carried::groups(mask).map(group).collect::<Result<Vec<_>>>()?;
    let is_wide = groups.iter().any(|group| group.form == FieldStoreSample::WORDS);
    Ok(MovedMask { image, field, size: plan.size, is_wide, kind: mask.kind(), fill: mask.fill(), groups })
}

/// Largest memory of a batch's share that a mask takes on its way.
pub(super) fn most_bytes(&PlannedMask { mask, ref plan, .. }: &PlannedMask<'_>) -> usize {
    let decoded_bytes = packed_bytes(plan.decode.size());
    let made_bytes = stages_bytes(plan, 0) + packed_bytes(plan.size);
    // One more call loads the mask.
    let described_bytes = 2 * (descriptors_bytes(plan) + Descriptor::MOST_BYTES);
    carried::groups(mask).count() * (2 * decoded_bytes + made_bytes + described_bytes)
}

impl MovedMask {
    /// Number of its calls, with those that write the values.
    pub(super) fn calls(&self) -> usize {
        self.groups.iter().map(|group| group.calls.len() + 1).sum()
    }

    fn planes(&self) -> usize {
        self.groups.iter().map(|group| group.planes).sum()
    }

    /// Moves the calls out, with those that write the values to planes of size `room` at a device address.
    fn store(&mut self, address: u64, room: Size, calls: &mut Vec<Vec<Call>>) {
        let mut elements = address;
        for group in &mut self.groups {
            let [red, green, blue] = group.fill;
            let sample = FieldStoreSample {
                source: group.made,
                elements,
                width: room.width,
                height: room.height,
                planes: group.planes as u32,
                form: group.form,
                fill: u32::from_le_bytes([red, green, blue, 0]),
                reserved: 0,
            };
            let mut own = std::mem::take(&mut group.calls);
            own.push(Call { kernel: FIELD_STORE, descriptor: Descriptor::new(&sample), extent: room });
            calls.push(own);
            // Only planes of objects are in several groups, and these have 8 bits.
            elements += group.planes as u64 * room.area_px();
        }
    }
}

/// The mask of a field of a sample's image.
fn find(samples: &mut [Option<Prepared>], field: usize, image: usize, place: usize) -> Option<&mut MovedMask> {
    let sample = samples.get_mut(place).and_then(Option::as_mut)?;
    sample.masks.iter_mut().find(|mask| mask.image == image && mask.field == field)
}

/// The masks of a batch in their places.
#[derive(Default)]
pub(super) struct PlacedMasks {
    /// The calls that move and write them.
    pub(super) calls: Vec<Vec<Call>>,
    /// Copies for padding once they have run: to, from, and the number of bytes.
    pub(super) copies: Vec<(u64, u64, usize)>,
    /// Memory, and the number of its bytes that masks take.
    memory: Vec<(Buffer, usize)>,
    /// As `MasksOfView`, with places.
    views: Vec<Vec<Vec<Option<Place>>>>,
}

/// The place of a mask.
struct Place {
    /// Number of the memory.
    memory: usize,
    offset_bytes: usize,
    room: Size,
    planes: usize,
    size: Size,
    is_wide: bool,
    kind: MaskKind,
    fill: u16,
}

impl PlacedMasks {
    /// Takes memory for the masks of a batch: one piece for each field of each view, in the order of the images, or one
    /// for each mask if each image is a tensor by itself.
    ///
    /// # Errors
    /// [`Error::Limits`] if masks are larger than the largest batch; [`Error::Device`] if there is no memory.
    pub(super) fn place(
        batch: &mut InFlight,
        end: &End<'_>,
        options: &RunOptions,
        (pool, stream): (&Pool, &Stream),
    ) -> Result<Self> {
        let mut placed = Self::default();
        if options.fields == 0 {
            return Ok(placed);
        }
        let samples = batch.samples_mut();
        let mut first = 0;
        for output in &options.outputs {
            let images = first..first + output.times;
            first = images.end;
            // All first images of the view come before all second ones. Padding repeats the last sample.
            let padding = || std::iter::repeat_n(end.places.last(), end.padding).flatten().map(|place| (place, true));
            let of_samples = || end.places.iter().map(|place| (place, false)).chain(padding());
            let order: Vec<_> = images.flat_map(|image| of_samples().map(move |of| (image, of))).collect();
            let mut view = Vec::with_capacity(options.fields);
            for field in 0..options.fields {
                view.push(placed.place_field(samples, field, &order, output, (pool, stream))?);
            }
            placed.views.push(view);
        }
        Ok(placed)
    }

    /// Places the masks of a field. `order`: for each image of the view its number among those of its sample, the
    /// sample's place in the batch, and whether it is padding.
    fn place_field(
        &mut self,
        samples: &mut [Option<Prepared>],
        field: usize,
        order: &[(usize, (&usize, bool))],
        output: &OutputForm,
        (pool, stream): (&Pool, &Stream),
    ) -> Result<Vec<Option<Place>>> {
        let (before, mut bytes) = (self.memory.len(), Vec::<u64>::new());
        let each = output.shared_size().is_none() && output.padded_to.is_none();
        let sizes = order.iter().filter_map(|(image, (sample, _))| Some(find(samples, field, *image, **sample)?.size));
        let sizes: Vec<Size> = sizes.collect();
        let padded = output.padded_to.map(|_| output.common_size(&sizes, order.len())).transpose()?;
        let mut place = |mask: &mut MovedMask| {
            if each || bytes.is_empty() {
                bytes.push(0);
            }
            let (memory, room, planes) = (before + bytes.len() - 1, padded.unwrap_or(mask.size), mask.planes());
            let value_bytes = if mask.is_wide { 2 } else { 1 };
            let taken = &mut bytes[memory - before];
            let offset = taken.next_multiple_of(value_bytes);
            *taken = offset.saturating_add(room.area_px().saturating_mul(planes as u64 * value_bytes));
            let &mut MovedMask { size, is_wide, kind, fill, .. } = mask;
            Place { memory, offset_bytes: offset as usize, room, planes, size, is_wide, kind, fill }
        };
        let places: Vec<_> =
            order.iter().map(|(image, (sample, _))| find(samples, field, *image, **sample).map(&mut place)).collect();
        for got in bytes {
            if got > MAX_BATCH_BYTES {
                let remedy = "use a smaller batch_size or max_pixels";
                return Err(Error::Limits { what: "masks of a batch in bytes", got, limit: MAX_BATCH_BYTES, remedy });
            }
            self.memory.push((pool.take(stream, (got as usize).max(1))?, got as usize));
        }
        let mut last = 0;
        for (place, (image, (sample, is_padding))) in places.iter().zip(order) {
            let (Some(place), Some(mask)) = (place, find(samples, field, *image, **sample)) else { continue };
            let address = self.memory[place.memory].0.address() + place.offset_bytes as u64;
            if *is_padding {
                let value_bytes = if place.is_wide { 2 } else { 1 };
                let len_bytes = place.planes * place.room.area_px() as usize * value_bytes;
                if len_bytes > 0 {
                    self.copies.push((address, last, len_bytes));
                }
            } else {
                mask.store(address, place.room, &mut self.calls);
                last = address;
            }
        }
        Ok(places)
    }

    /// The memory that is written.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.memory.iter().map(|(buffer, _)| buffer)
    }

    /// Hands the masks over, whose work is queued.
    pub(super) fn finish(self, pool: &Arc<Pool>) -> Vec<MasksOfView> {
        let memory = |(buffer, len_bytes)| Arc::new(CudaBuffer::new(buffer, Arc::clone(pool), len_bytes));
        let memory: Vec<_> = self.memory.into_iter().map(memory).collect();
        let mask = |place: Place| {
            let Place { memory: number, offset_bytes, room, planes, size, is_wide, kind, fill } = place;
            let memory = Arc::clone(&memory[number]);
            MaskOnDevice { memory, offset_bytes, size, room, planes, is_wide, kind, fill }
        };
        let field = |masks: Vec<Option<Place>>| masks.into_iter().map(|place| place.map(mask)).collect();
        self.views.into_iter().map(|view| view.into_iter().map(field).collect()).collect()
    }
}
