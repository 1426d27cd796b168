//! Fields in records: where they are, and how they are read.
//!
//! A parser only copies them. The worker that decodes the image reads them, because they are compared with its size.

mod features;
mod json;
mod packed;

#[cfg(feature = "parquet")]
pub(in crate::source) use json::stated as stated_size;
pub(crate) use packed::{check_names, packed};

use super::options::RecordOptions;
use crate::decode::Header;
use crate::error::{Error, Result};
use crate::fields::{AuxImage, Field, Fields, Mask, MaskValues, check_objects};
use crate::raster::{DEFAULT_MAX_PIXELS, Size, check_pixels};
use crate::source::frame::Frame;
use crate::targets;

/// Largest size of a sample's fields as they are stored, in bytes.
pub(crate) const MAX_FIELDS_BYTES: u64 = 64 << 20;
/// The part of WebDataset that holds fields.
const JSON: &str = "json";
/// The class of what operations bring into view from outside a mask, where the data do not say: it is ignored.
const IGNORED: u16 = 255;

/// The content of a part of a sample: a WebDataset part is one element of bytes, and a feature of TFRecord any of
/// these.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Bytes(Vec<Vec<u8>>),
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

impl Part {
    /// The only element of bytes.
    fn one(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => bytes.first().filter(|_| bytes.len() == 1).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Whether there is no value.
    fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(list) => list.is_empty(),
            Self::Floats(list) => list.is_empty(),
            Self::Integers(list) => list.is_empty(),
        }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Self::Bytes(list) => list.iter().map(|bytes| bytes.len() as u64).sum(),
            Self::Floats(list) => 4 * list.len() as u64,
            Self::Integers(list) => 8 * list.len() as u64,
        }
    }
}

/// The wanted fields that a record has, as they are stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StoredFields {
    /// Parts or features by their names, each once, or the reason why one is unusable.
    parts: Vec<(String, Result<Part, String>)>,
}

impl StoredFields {
    /// Adds a part, unless there is one of this name.
    pub(super) fn add(&mut self, name: &str, part: Result<Part, String>) {
        if !self.has(name) {
            self.parts.push((name.to_owned(), part));
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.parts.iter().any(|(own, _)| own == name)
    }

    /// Bytes that another part may have.
    pub(super) fn room_bytes(&self) -> u64 {
        MAX_FIELDS_BYTES.saturating_sub(self.len_bytes())
    }

    /// Size in memory, in bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.parts.iter().map(|(name, part)| name.len() as u64 + part.as_ref().map_or(0, Part::len_bytes)).sum()
    }

    fn get(&self, name: &str) -> Result<Option<&Part>, String> {
        let found = self.parts.iter().find(|(own, _)| own == name);
        found.map(|(_, part)| part.as_ref().map_err(|message| format!("{name}: {message}"))).transpose()
    }
}

/// The places where the shards of a format hold fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldStorage {
    None,
    /// JSON, and PNG files for pixels.
    Parts,
    /// TensorFlow's features, or JSON and PNG files in features.
    Features,
}

/// The names of the parts or features that may hold these fields; none for a format that holds no fields.
pub(super) fn part_names(storage: FieldStorage, names: &[String]) -> Vec<String> {
    let mut all = match (storage, names) {
        (_, []) | (FieldStorage::None, _) => Vec::new(),
        (FieldStorage::Parts, names) => {
            [JSON.to_owned()].into_iter().chain(names.iter().map(|name| pixel_part(name))).collect()
        }
        (FieldStorage::Features, names) => features::names(names),
    };
    all.sort_unstable();
    all.dedup();
    all
}

/// The ending of a WebDataset part that holds a mask of the image, or an auxiliary image.
fn pixel_part(name: &str) -> String {
    format!("{}.png", name.to_ascii_lowercase())
}

/// Reason why a field cannot be read.
enum Fault {
    /// The sample is a bad one.
    Wrong(String),
    /// The format of boxes is not known.
    NoFormat,
    /// The sample is too large, or the machine has too little memory.
    Failed(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self::Wrong(message)
    }
}

impl From<&str> for Fault {
    fn from(message: &str) -> Self {
        Self::Wrong(message.to_owned())
    }
}

/// Reads the fields of a record's samples.
#[derive(Clone, Copy)]
pub(crate) struct FieldReader<'a> {
    pub storage: FieldStorage,
    pub options: &'a RecordOptions,
    pub names: &'a [String],
}

impl FieldReader<'_> {
    /// The wanted fields that a sample with this image has.
    ///
    /// # Errors
    /// [`Error::Target`] with the sample's name for fields that are damaged, contradict each other, or do not fit the
    /// image; [`Error::Limits`] for an image that claims too many pixels; [`Error::Parameter`] for boxes without a
    /// format.
    pub fn read(&self, stored: &StoredFields, header: &Header, name: impl Fn() -> String) -> Result<Fields> {
        let failed = |field: &str, fault| match fault {
            Fault::Wrong(message) => targets::wrong(Some(field), format!("{}: {message}", name())),
            Fault::Failed(error) => error,
            Fault::NoFormat => {
                let expected = "the format of the boxes, which the data do not say: XYXY, XYWH or CXCYWH";
                Error::parameter("open", "boxes", expected, format!("none, for {}", name()))
            }
        };
        let mut fields = Fields::new();
        let Some(first) = self.names.first() else { return Ok(fields) };
        // Masks are made for as many pixels as the header claims.
        check_pixels(header.size, DEFAULT_MAX_PIXELS)?;
        let mut document = json::Document::read(self.json(stored).map_err(|fault| failed(first, fault))?)
            .map_err(|message| failed(first, message.into()))?;
        let stated = match (document.size, self.storage) {
            (None, FieldStorage::Features) => features::size(stored).map_err(|fault| failed(first, fault))?,
            (size, _) => size,
        };
        let frame = Frame::of_stated(header, stated).map_err(|message| failed(first, message.into()))?;
        let size = frame.size;
        for wanted in self.names {
            let field = match document.take(wanted) {
                Some(value) => self.json_field(wanted, value, stored, size).map(Some),
                None => self.part_field(wanted, stored, size),
            };
            let Some(field) = field.map_err(|fault| failed(wanted, fault))? else { continue };
            // A mask has a size of its own.
            let own = match &field {
                Field::Mask(mask) => {
                    Frame::of(header, mask.size()).map_err(|message| failed(wanted, message.into()))?
                }
                _ => frame,
            };
            if let Field::Boxes(boxes) = &field {
                boxes.check(size).map_err(|message| failed(wanted, message.into()))?;
            }
            let rows = (field.objects(), fields.objects());
            let turned = own.to_stored(Fields::new().with(wanted.clone(), field)?)?;
            turned.into_named().try_for_each(|(name, field)| fields.insert(name, field)).map_err(|error| {
                let message = match rows {
                    (Some(own), others) if own != others => {
                        format!("it has {own} rows, and other fields have {others}")
                    }
                    _ => error.to_string(),
                };
                failed(wanted, message.into())
            })?;
        }
        Ok(fields)
    }

    /// The JSON of a sample; none if it has none.
    fn json<'a>(&self, stored: &'a StoredFields) -> Result<Option<&'a [u8]>, Fault> {
        let name = if self.storage == FieldStorage::Features { features::JSON } else { JSON };
        let Some(part) = stored.get(name)? else { return Ok(None) };
        part.one().map(Some).ok_or_else(|| format!("{name} is no text").into())
    }

    fn json_field(
        &self,
        name: &str,
        value: serde_json::Value,
        stored: &StoredFields,
        size: Size,
    ) -> Result<Field, Fault> {
        // Pixels are in parts of their own.
        let in_features = self.storage == FieldStorage::Features;
        let part_name = if in_features { features::alias(name).to_owned() } else { pixel_part(name) };
        let part = || {
            let kind = if in_features { "feature" } else { "part" };
            stored.get(&part_name)?.ok_or_else(|| format!("there is no {kind} {part_name}"))
        };
        Ok(match json::read(name, value, size, self.options)? {
            json::Read::Whole(field) => field,
            json::Read::Mask { of_objects: true, .. } if !in_features => return Err("it has no values".into()),
            json::Read::Mask { of_objects: true, fill } => masks(part()?, &part_name, size)?.with_fill(fill).into(),
            json::Read::Mask { of_objects: false, fill } => mask(part()?, &part_name)?.with_fill(fill).into(),
            json::Read::Image { interpolation, fill } => {
                let image = aux_image(part()?, &part_name)?.with_fill(fill);
                match interpolation {
                    Some(interpolation) => image.with_interpolation(interpolation).into(),
                    None => image.into(),
                }
            }
        })
    }

    /// A field that no JSON has.
    fn part_field(&self, name: &str, stored: &StoredFields, size: Size) -> Result<Option<Field>, Fault> {
        if self.storage == FieldStorage::Features {
            return features::read(name, stored, size);
        }
        let name = pixel_part(name);
        let Some(part) = stored.get(&name)? else { return Ok(None) };
        Ok(Some(mask(part, &name)?.with_fill(IGNORED).into()))
    }
}

/// The mask of an image in the part `name`, a PNG file.
fn mask(part: &Part, name: &str) -> Result<Mask, Fault> {
    let bytes = part.one().ok_or_else(|| format!("{name} is not one PNG file"))?;
    Mask::from_png(bytes, DEFAULT_MAX_PIXELS).map_err(|error| format!("{name}: {error}").into())
}

/// The auxiliary image in the part `name`, a PNG file.
fn aux_image(part: &Part, name: &str) -> Result<AuxImage, Fault> {
    let bytes = part.one().ok_or_else(|| format!("{name} is not one PNG file"))?;
    AuxImage::from_encoded(bytes, DEFAULT_MAX_PIXELS).map_err(|error| format!("{name}: {error}").into())
}

/// The masks of an image's objects in the part `name`, a PNG file for each.
fn masks(part: &Part, name: &str, size: Size) -> Result<Mask, Fault> {
    let files = match part {
        Part::Bytes(files) => &files[..],
        other if other.is_empty() => &[],
        _ => return Err(format!("{name} has numbers, not PNG files").into()),
    };
    check_objects(files.len(), size)?;
    let plane = |(i, bytes): (usize, &Vec<u8>)| {
        let mask = Mask::from_png(bytes, DEFAULT_MAX_PIXELS).map_err(|error| format!("{name}, object {i}: {error}"))?;
        if mask.size() != size {
            return Err(format!("{name}, object {i}: it has {} pixels, the image {size}", mask.size()));
        }
        Ok(match mask.planes().first().map(|plane| &**plane) {
            Some(MaskValues::U8(values)) => values.clone(),
            Some(MaskValues::U16(values)) => values.iter().map(|value| u8::from(*value != 0)).collect(),
            None => Vec::new(),
        })
    };
    let planes = files.iter().enumerate().map(plane).collect::<Result<Vec<_>, String>>()?;
    Mask::of_objects(size, planes).map_err(|error| error.to_string().into())
}
