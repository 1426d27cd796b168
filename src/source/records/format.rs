//! The formats of shards, and the errors that name them.

use super::fields::{Part, check_names};
use super::options::RecordOptions;
use super::{recordio, tar, tfrecord};
use crate::error::{Error, Result};
use crate::source::no_fields;
use crate::targets::{self, Target};
use std::fmt::Display;

/// The formats of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordFormat {
    /// Tar archives in the manner of WebDataset: consecutive files whose names agree up to the first dot are the parts
    /// of one sample. The image is the first part that ends in .jpg, .jpeg, .png, .webp, .pgm or .ppm. The label is the
    /// part .cls (a number or a name; -1 for none), otherwise the field `label` of .json. An image or a label with an
    /// ending that the sample already has begins the next sample. POSIX pax headers and GNU long names are understood.
    /// Links and devices are skipped.
    WebDataset,
    /// MXNet's RecordIO, as its im2rec writes it. Of several labels the first counts; -1 stands for none. Records come
    /// in the order of the .rec file; the .idx file is not needed.
    RecordIo,
    /// TensorFlow's TFRecord files of `tf.train.Example`: the image is the feature `image/encoded`, the label
    /// `image/class/label`, taken as it stands (some data sets count from 1). The checksums are checked.
    TfRecord,
}

impl RecordFormat {
    /// Returns the format of files with this ending.
    pub(in crate::source) fn by_ending(ending: &str) -> Option<Self> {
        match ending {
            "tar" => Some(Self::WebDataset),
            "rec" => Some(Self::RecordIo),
            "tfrecord" | "tfrecords" => Some(Self::TfRecord),
            _ => None,
        }
    }

    /// Rejects a field of targets that no record can have.
    pub(in crate::source) fn check_field(self, field: Option<&str>) -> Result<()> {
        match (self, field) {
            (Self::RecordIo, Some(field)) if field != recordio::LABELS => {
                Err(no_fields("the array of labels as `label`", field))
            }
            _ => Ok(()),
        }
    }

    /// Rejects fields of a format that holds none.
    pub(in crate::source) fn check_fields(self, names: &[String]) -> Result<()> {
        match (self, names) {
            (Self::RecordIo, [first, ..]) => Err(no_fields("labels alone", first)),
            _ => Ok(()),
        }
    }

    /// Returns the smallest number of bytes that a record can take.
    pub(super) fn min_record_bytes(self) -> u64 {
        match self {
            Self::WebDataset => tar::BLOCK_BYTES,
            Self::RecordIo => recordio::HEAD_BYTES,
            Self::TfRecord => tfrecord::MIN_BYTES,
        }
    }

    /// Appends a sample to a shard.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a label that the format cannot hold.
    pub(crate) fn write(self, sample: &NewSample<'_>, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::WebDataset => tar::write(sample, out),
            Self::RecordIo => recordio::write(sample, out)?,
            Self::TfRecord => tfrecord::write(sample, out),
        }
        Ok(())
    }

    /// Rejects a field of targets that could not be read again after packing.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the format's limits.
    pub(crate) fn check_packed_field(self, field: &str) -> Result<()> {
        let (is_kept, expected) = match self {
            Self::WebDataset => (tar::can_name(field), tar::NAMED),
            Self::RecordIo => (field == recordio::LABELS, "`label`, RecordIO's array of numbers"),
            Self::TfRecord => (tfrecord::can_name(field), tfrecord::NAMED),
        };
        if is_kept { Ok(()) } else { Err(Error::parameter("pack", "target", expected, field)) }
    }

    /// Rejects fields that could not be read again after packing, alone or together with the field `target` of targets.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the format's limits.
    pub(crate) fn check_packed_fields(self, names: &[String], target: Option<&str>) -> Result<()> {
        let part = target.map(|field| if self == Self::WebDataset { tar::part_of(field) } else { field.to_owned() });
        check_names(self, names, target.zip(part.as_deref()))
    }

    /// Rejects a target that packing would change.
    ///
    /// # Errors
    /// [`Error::Target`], which makes the sample bad.
    pub(crate) fn check_packed(self, field: &str, target: &Target, label: Option<u32>) -> Result<()> {
        match self {
            Self::WebDataset => tar::check(field, target),
            Self::RecordIo => recordio::check(target, label),
            Self::TfRecord => Ok(()),
        }
        .map_err(|message| targets::wrong(Some(field), message))
    }

    /// Returns the bytes that end a shard.
    pub(crate) fn end(self) -> &'static [u8] {
        match self {
            Self::WebDataset => tar::END,
            Self::RecordIo | Self::TfRecord => &[],
        }
    }

    /// Returns the format's name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WebDataset => "tar",
            Self::RecordIo => "RecordIO",
            Self::TfRecord => "TFRecord",
        }
    }
}

/// A sample to be written.
pub(crate) struct NewSample<'a> {
    pub(crate) index: u64,
    /// The label; `None` if the samples have none.
    pub(crate) label: Option<u32>,
    pub(crate) image: &'a [u8],
    /// The ending of the image's file name.
    pub(crate) ending: &'a str,
    /// The name of the packed field of targets, and its target.
    pub(crate) target: Option<(&'a str, &'a Target)>,
    /// The parts or features that hold its fields.
    pub(crate) fields: &'a [(String, Part)],
}

/// The error for damage in a shard.
pub(in crate::source) fn damaged(format: RecordFormat, shard: impl Display, offset: u64, message: &str) -> Error {
    Error::decode(format.name(), format!("{shard} at byte {offset}: {message}"))
}

/// The error for `shards` shards, the first named `first`, that hold no sample and `others` other records.
pub(in crate::source) fn no_samples(
    format: RecordFormat,
    options: &RecordOptions,
    (shards, first): (usize, &str),
    others: u64,
) -> Error {
    let image = match (format, &options.image) {
        (RecordFormat::WebDataset, None) => "parts ending in .jpg, .jpeg, .png, .webp, .pgm or .ppm".to_owned(),
        (RecordFormat::WebDataset, Some(ending)) => format!("parts ending in .{ending}"),
        (RecordFormat::RecordIo, _) => "records that hold an image".to_owned(),
        (RecordFormat::TfRecord, name) => {
            format!("examples with the feature {}", name.as_deref().unwrap_or(tfrecord::IMAGE))
        }
    };
    let got = format!("{shards} shards, the first {first}, with {others} other records");
    Error::parameter("open", "shards", format!("{} files with {image}", format.name()), got)
}
