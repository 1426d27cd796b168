//! The digest of everything that a run delivers.

use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest as _, Sha256};
use warpfeed::fields::{Field, Fields, MaskValues};
use warpfeed::internal::HostImages;
use warpfeed::internal::hex::{hex, unhex};
use warpfeed::{Batch, BatchImages, Error, Result, TargetBytes, TargetTensor, Targets};

/// SHA-256 over samples in the order of delivery, without padding. It covers each sample's label (`u32`, little
/// endian), its target if there are targets (numbers in little endian; bytes after their length as `u64`), and for each
/// of its images the output bytes, and the fields if there are fields: each field's name, its number of values, and the
/// values. So it does not depend on threads, prefetch, batch size, or the format in which the samples are stored.
#[derive(Debug, Clone, Default)]
pub struct Digest {
    hash: Sha256,
}

impl Digest {
    /// Adds the samples of a batch.
    ///
    /// # Errors
    /// [`Error::Device`] if the batch is on a device and cannot be copied.
    pub fn add<I: BatchImages>(&mut self, batch: &Batch<I>) -> Result<()> {
        let targets = batch.targets().map(HostTargets::new).transpose()?;
        let views = batch.tensors().map(HostImages::new).collect::<Result<Vec<_>>>()?;
        let fields = batch.host_fields()?;
        for i in 0..batch.len() - batch.padding() {
            if let Ok(labels) = batch.labels() {
                self.hash.update(labels[i].to_le_bytes());
            }
            if let Some(targets) = &targets {
                targets.add(i, &mut self.hash)?;
            }
            for (number, view) in views.iter().enumerate() {
                for image in (i..view.count()).step_by(batch.len()) {
                    self.hash.update(view.image_bytes(image)?);
                    if let Some(fields) = fields.get(number).and_then(|fields| fields.image(image)) {
                        add_fields(fields, &mut self.hash)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The digest as 64 hexadecimal digits.
    #[must_use]
    pub fn finish(self) -> String {
        hex(&self.hash.finalize())
    }

    /// The unfinished state of SHA-256, for a file.
    pub(super) fn unfinished(&self) -> String {
        hex(&self.hash.serialize())
    }

    /// The digest of a state from a file; `None` if the text is no such state.
    pub(super) fn from_unfinished(text: &str) -> Option<Self> {
        let bytes = unhex(text)?;
        // The number of blocks of 64 bytes follows SHA-256's eight words. With more the number of bits would overflow.
        let blocks = u64::from_le_bytes(*bytes.get(32..)?.first_chunk()?);
        let hash = Sha256::deserialize(&bytes.as_slice().try_into().ok()?).ok().filter(|_| blocks < 1 << 54)?;
        Some(Self { hash })
    }
}

/// A batch's targets in host memory.
enum HostTargets<'a> {
    Numbers(TargetTensor),
    Bytes(&'a TargetBytes),
}

impl<'a> HostTargets<'a> {
    fn new(targets: &'a Targets) -> Result<Self> {
        Ok(match targets {
            Targets::Numbers(numbers) => Self::Numbers(numbers.to_host()?),
            Targets::Bytes(bytes) => Self::Bytes(bytes),
        })
    }

    /// Adds the target of image `i`.
    fn add(&self, i: usize, hash: &mut Sha256) -> Result<()> {
        match self {
            Self::Numbers(numbers) => {
                let row_bytes = 4 * numbers.shape()[1];
                let words = numbers.as_bytes()?[i * row_bytes..][..row_bytes].as_chunks::<4>().0;
                words.iter().for_each(|&word| hash.update(u32::from_ne_bytes(word).to_le_bytes()));
            }
            Self::Bytes(bytes) => {
                let bytes = bytes.get(i).unwrap_or_default();
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
        Ok(())
    }
}

fn add(hash: &mut Sha256, len: usize, values: &mut dyn Iterator<Item = [u8; 8]>) {
    hash.update((len as u64).to_le_bytes());
    values.for_each(|value| hash.update(value));
}

fn add_plane(plane: &MaskValues, hash: &mut Sha256) -> Result<()> {
    match plane {
        MaskValues::U8(values) => {
            add(hash, values.len(), &mut std::iter::empty());
            hash.update(values);
        }
        MaskValues::U16(values) => {
            add(hash, values.len(), &mut values.iter().map(|value| u64::from(*value).to_le_bytes()));
        }
        _ => return Err(unknown("a mask")),
    }
    Ok(())
}

/// The error of what a newer version of the library has.
fn unknown(what: &str) -> Error {
    let remedy = "take versions of warpfeed and warpfeed-bench that belong together".to_owned();
    Error::Unsupported { feature: format!("a digest of {what} of a new kind"), remedy }
}

fn add_fields(fields: &Fields, hash: &mut Sha256) -> Result<()> {
    for (name, field) in fields.iter() {
        hash.update(name.as_bytes());
        let float = |value: &f32| u64::from(value.to_bits()).to_le_bytes();
        match field {
            Field::Boxes(boxes) => add(hash, boxes.len(), &mut boxes.rows().as_flattened().iter().map(float)),
            Field::KeyPoints(points) => {
                add(hash, points.points().len(), &mut points.points().as_flattened().iter().map(float));
                add(hash, points.points().len(), &mut points.visibility().iter().map(|v| u64::from(*v).to_le_bytes()));
            }
            Field::Integers(rows) => add(hash, rows.len(), &mut rows.iter().map(|value| value.to_le_bytes())),
            Field::Floats(rows) => add(hash, rows.len(), &mut rows.iter().map(float)),
            Field::Mask(mask) => mask.planes().iter().try_for_each(|plane| add_plane(plane, hash))?,
            Field::Image(image) => image.planes().iter().try_for_each(|plane| add_plane(plane, hash))?,
            _ => return Err(unknown("a field")),
        }
    }
    Ok(())
}
