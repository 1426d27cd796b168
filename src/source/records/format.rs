//! The list of shard formats, the trait that each implements in its own file, and the errors that name them.

use super::fields::{FieldStorage, Part, StoredFields, check_names};
use super::options::RecordOptions;
use super::parser::Records;
use super::{recordio, tar, tfrecord};
use crate::error::{Error, Result};
use crate::source::ReadRequest;
use crate::source::window::ReadAt;
use crate::targets::Target;
use std::fmt::Display;
use std::ops::Range;

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
    /// All formats.
    pub const ALL: &'static [Self] = &[Self::WebDataset, Self::RecordIo, Self::TfRecord];

    /// The format's name in the command and in pack.json: `webdataset`, `recordio` or `tfrecord`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Description of the shards that `pack` makes.
    #[doc(hidden)]
    #[must_use]
    pub fn packed(self) -> &'static str {
        self.facts().packed
    }

    /// The format of the files whose names have this ending.
    pub(in crate::source) fn by_ending(ending: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.facts().endings.contains(&ending))
    }

    /// The format's names and fixed properties.
    pub(crate) fn facts(self) -> &'static Facts {
        self.rules().facts()
    }

    /// How the format's records are read and written.
    pub(crate) fn rules(self) -> &'static dyn ShardFormat {
        match self {
            Self::WebDataset => &tar::WebDataset,
            Self::RecordIo => &recordio::RecordIo,
            Self::TfRecord => &tfrecord::TfRecord,
        }
    }

    /// Rejects a field of targets that could not be read again after packing.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the format's limits.
    pub(crate) fn check_packed_field(self, field: &str) -> Result<()> {
        self.rules().can_pack(field).map_err(|expected| Error::parameter("pack", "target", expected, field))
    }

    /// Rejects fields that could not be read again after packing, alone or together with the field `target` of targets.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the format's limits.
    pub(crate) fn check_packed_fields(self, names: &[String], target: Option<&str>) -> Result<()> {
        let part = target.map(|field| self.rules().part_of(field));
        check_names(self.facts().field_storage, names, target.zip(part.as_deref()))
    }
}

/// Names and fixed properties of a format.
pub(crate) struct Facts {
    /// The name in messages.
    pub title: &'static str,
    /// The name in options.
    pub name: &'static str,
    /// Description of packed shards.
    pub packed: &'static str,
    /// The endings of files' names. Packed shards have the first.
    pub endings: &'static [&'static str],
    /// Smallest number of bytes that a record can take.
    pub min_record_bytes: u64,
    /// Bytes after a record that are read with it, to verify it.
    pub trailer_bytes: u64,
    /// The bytes that end a shard.
    pub end: &'static [u8],
    /// The names of the fields that hold labels where no field is named, and a description of them.
    pub labels: (&'static [&'static str], &'static str),
    /// The parts of a sample that hold its fields.
    pub field_storage: FieldStorage,
    /// Whether images have names in a shard, which [`ShardFormat::member`] reads.
    pub has_members: bool,
    /// Whether the names of packed shards have the number of shards.
    pub names_have_count: bool,
    /// Whether packed shards have an index file for other programs.
    pub has_index: bool,
}

/// A format of shards: its properties, and how its records are read and written.
pub(crate) trait ShardFormat: Sync {
    fn facts(&self) -> &'static Facts;

    /// Description of the records that hold an image, in the part `image` if one is named.
    fn images(&self, image: Option<&str>) -> String;

    /// Refuses options that the format ignores.
    fn check_options(&self, _options: &RecordOptions) -> Result<()> {
        Ok(())
    }

    /// Refuses a field of targets, or fields, that no record can have.
    fn check_wanted(&self, _field: Option<&str>, _fields: &[String]) -> Result<()> {
        Ok(())
    }

    /// Makes a parser from the record at byte `at` on, which also returns the target `field` and the wanted `parts`.
    fn parser(&self, options: &RecordOptions, field: Option<&str>, parts: Vec<String>, at: u64) -> Records;

    /// The start of the record with an image at `offset`, or in several parts. `None` if only a scan finds it.
    fn start(&self, _offset: u64, _is_split: bool) -> Option<u64> {
        None
    }

    /// Whether `file` still has an image of `len_bytes` at `offset`, as far as the bytes before it tell.
    fn is_there(&self, _file: &dyn ReadAt, _offset: u64, _len_bytes: u64) -> Result<bool> {
        Ok(true)
    }

    /// The name that the image at `offset` has in the shard.
    fn member(&self, _file: &dyn ReadAt, _offset: u64) -> Option<String> {
        None
    }

    /// Whether nothing is verified in a record, which is nothing but an image.
    fn is_image_alone(&self) -> bool {
        true
    }

    /// Verifies a record and returns the wanted parts. `None` if a record is nothing but an image.
    fn checked(
        &self,
        _record: &[u8],
        _image: Option<&str>,
        _want: &ReadRequest<'_>,
    ) -> Result<Option<Checked>, String> {
        Ok(None)
    }

    /// Appends a sample to a shard.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a label that the format cannot hold.
    fn write(&self, sample: &NewSample<'_>, out: &mut Vec<u8>) -> Result<()>;

    /// Checks that a field of targets can be read again after packing. The error describes the fields that can.
    fn can_pack(&self, field: &str) -> Result<(), &'static str>;

    /// Checks that packing does not change a target.
    fn check_packed(&self, _field: &str, _target: &Target, _label: Option<u32>) -> Result<(), String> {
        Ok(())
    }

    /// The part that holds a field of targets.
    fn part_of(&self, field: &str) -> String {
        field.to_owned()
    }
}

/// A record that was read and verified.
pub(crate) struct Checked {
    /// The place of the image in the record.
    pub image: Range<usize>,
    pub target: Option<Result<Target, String>>,
    pub fields: StoredFields,
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
    Error::decode(format.facts().title, format!("{shard} at byte {offset}: {message}"))
}

/// The error for `shards` shards, the first named `first`, that hold no sample and `others` other records.
pub(in crate::source) fn no_samples(
    format: RecordFormat,
    options: &RecordOptions,
    (shards, first): (usize, &str),
    others: u64,
) -> Error {
    let expected = format!("{} files with {}", format.facts().title, format.rules().images(options.image.as_deref()));
    let got = format!("{shards} shards, the first {first}, with {others} other records");
    Error::parameter("open", "shards", expected, got)
}
