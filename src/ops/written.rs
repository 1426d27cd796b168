//! Transforms in JSON. Errors name the place and the cause.

use super::transform::{Tagged, Transform};
use crate::error::{Error, Result};
use crate::os::file;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};
use std::path::Path;

/// Largest file of transforms, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 24;

impl<'de> Deserialize<'de> for Transform {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut written = Map::deserialize(from)?;
        let own_name = written.remove("as");
        let kind = |field| written.get(field).map(|name| name.as_str().unwrap_or("?").to_owned());
        let (name, read) = match (kind("transform"), kind("op")) {
            (Some(name), None) => (name, Tagged::deserialize(Value::Object(written)).map(Self::from)),
            (None, Some(name)) => (name, Deserialize::deserialize(Value::Object(written)).map(Self::Explicit)),
            _ => {
                let expected =
                    r#"expected either "transform", with a random transform's name, or "op", with an operation's"#;
                return Err(D::Error::custom(expected));
            }
        };
        let transform = read.map_err(|error| D::Error::custom(format_args!("{name}: {error}")))?;
        match own_name {
            None => Ok(transform),
            Some(Value::String(own)) => Ok(transform.named(own)),
            Some(other) => Err(D::Error::custom(format_args!("{name}: as: expected a name, got {other}"))),
        }
    }
}

/// Writes two numbers, without a point if they are whole.
pub(super) fn short_pair<S: Serializer>(pair: &[f64; 2], to: S) -> Result<S::Ok, S::Error> {
    pair.map(|number| match number as i32 {
        whole if f64::from(whole) == number => Number::from(whole),
        _ => Number::from_f64(number).unwrap_or_else(|| Number::from(0)),
    })
    .serialize(to)
}

/// Reads a list. Errors name the item.
pub(super) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Transform>, D::Error> {
    let items = Vec::<Value>::deserialize(from)?;
    let count = items.len();
    let read = |(i, item)| {
        Transform::deserialize(item)
            .map_err(|error: serde_json::Error| D::Error::custom(format_args!("item {} of {count}: {error}", i + 1)))
    };
    items.into_iter().enumerate().map(read).collect()
}

/// A pipeline's transforms, as read from a file.
///
/// The file is a JSON list of transforms in the written form of [`Transform`]; each may also be an operation. One item
/// may be `{"views": [{"transforms": [...], "times": 2}, ...]}`: several views of each image, as in
/// [`PipelineBuilder::views`](crate::PipelineBuilder::views).
/// [`PipelineBuilder::transforms`](crate::PipelineBuilder::transforms) takes the result.
///
/// ```
/// use warpfeed::ops::TransformFile;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("flips.json");
/// std::fs::write(&path, r#"[{"transform": "random_horizontal_flip", "p": 0.5}, {"op": "vflip"}]"#)?;
/// assert_eq!(format!("{:?}", TransformFile::read(&path)?.into_transforms()?), "[random_horizontal_flip, vflip]");
///
/// std::fs::write(&path, r#"[{"op": "vflip"}, {"transform": "random_horizontal_flip", "q": 0.5}]"#)?;
/// let error = TransformFile::read(&path).unwrap_err().to_string();
/// assert!(error.contains("flips.json: item 2 of 2: random_horizontal_flip: unknown field `q`, expected `p`"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, Serialize)]
pub struct TransformFile {
    /// Transforms before the views.
    pub(crate) first: Vec<Transform>,
    /// The views, each with its number of repetitions. `None` if the file has no such item.
    pub(crate) views: Option<Vec<WrittenView>>,
    /// Transforms after the views.
    pub(crate) last: Vec<Transform>,
}

/// The written form of a view.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenView {
    #[serde(deserialize_with = "list")]
    pub(crate) transforms: Vec<Transform>,
    #[serde(default = "once")]
    pub(crate) times: u32,
}

const fn once() -> u32 {
    1
}

/// The item of a file that holds the views.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Views {
    views: Vec<WrittenView>,
}

impl TransformFile {
    /// Reads a file and checks all transforms.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::Parameter`] with the file, the item, the field and the
    /// allowed values.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::parse(&file::read_text_limited(path, MAX_FILE_BYTES)?, &path.display().to_string())
    }

    /// Reads the text of such a file and checks all transforms. Errors call it `name`.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the name, the item, the field and the allowed values.
    ///
    /// ```
    /// use warpfeed::ops::TransformFile;
    ///
    /// let flip = TransformFile::parse(r#"[{"transform": "random_horizontal_flip", "p": 0.5}]"#, "my flip")?;
    /// assert_eq!(flip.into_transforms()?.len(), 1);
    /// let error = TransformFile::parse(r#"[{"op": "hflop"}]"#, "my flip").unwrap_err().to_string();
    /// assert!(error.contains("my flip: item 1 of 1: hflop: unknown variant"), "{error}");
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let wrong = |what: String| {
            let expected = "a JSON list of transforms and operations (see docs/operations.md)";
            Error::parameter("transforms", "FILE", expected, format!("{name}: {what}"))
        };
        let items: Vec<Value> = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let (count, mut all) = (items.len(), Self::default());
        for (i, item) in items.into_iter().enumerate() {
            all.add(item).map_err(|what| wrong(format!("item {} of {count}: {what}", i + 1)))?;
        }
        Ok(all)
    }

    /// Adds an item. The error describes the item's fault.
    fn add(&mut self, item: Value) -> Result<(), String> {
        let valid = |transforms: &[Transform]| {
            transforms.iter().try_for_each(Transform::validate).map_err(|error| error.to_string())
        };
        if item.get("views").is_some() {
            if self.views.is_some() {
                return Err("a file has views once".to_owned());
            }
            let Views { views } = Views::deserialize(item).map_err(|error| format!("views: {error}"))?;
            views.iter().try_for_each(|view| valid(&view.transforms))?;
            self.views = Some(views);
            return Ok(());
        }
        let transform = Transform::deserialize(item).map_err(|error| error.to_string())?;
        valid(std::slice::from_ref(&transform))?;
        let place = if self.views.is_some() { &mut self.last } else { &mut self.first };
        place.push(transform);
        Ok(())
    }

    /// Removes normalization, for pipelines whose batches are bytes.
    #[must_use]
    pub fn without_normalize(mut self) -> Self {
        self.lists().for_each(|transforms| transforms.retain(|transform| !is_normalize(transform)));
        self
    }

    /// Removes normalization and everything after it in the same list.
    pub(crate) fn before_normalize(mut self) -> Self {
        for transforms in self.lists() {
            transforms.truncate(transforms.iter().position(is_normalize).unwrap_or(transforms.len()));
        }
        self
    }

    fn lists(&mut self) -> impl Iterator<Item = &mut Vec<Transform>> {
        let views = self.views.iter_mut().flatten().map(|view| &mut view.transforms);
        views.chain([&mut self.first, &mut self.last])
    }

    /// The transforms of the first view. If there are no views, all transforms.
    #[must_use]
    pub fn into_first_view(self) -> Vec<Transform> {
        let view = self.views.into_iter().flatten().next();
        let own = view.map(|view| view.transforms).unwrap_or_default();
        [self.first, own, self.last].concat()
    }

    /// All transforms, if there are no views.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there are views.
    pub fn into_transforms(self) -> Result<Vec<Transform>> {
        match self.views {
            None => Ok(self.first),
            Some(_) => Err(Error::Unsupported {
                feature: "several views".to_owned(),
                remedy: "write the transforms of one view down in a file, without the item \"views\"".to_owned(),
            }),
        }
    }
}

impl From<Vec<Transform>> for TransformFile {
    fn from(transforms: Vec<Transform>) -> Self {
        Self { first: transforms, ..Self::default() }
    }
}

fn is_normalize(transform: &Transform) -> bool {
    transform.explicit().is_some_and(|op| op.normalization().is_some())
}

/// The written form of a range: `[low, high]`.
pub(super) mod range {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ops::RangeInclusive;

    pub(crate) fn serialize<T: Serialize, S: Serializer>(range: &RangeInclusive<T>, to: S) -> Result<S::Ok, S::Error> {
        (range.start(), range.end()).serialize(to)
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<RangeInclusive<T>, D::Error>
    where
        T: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        <(T, T)>::deserialize(from).map(|(low, high)| low..=high)
    }
}

/// The written form of a size: `[width, height]`.
pub(crate) mod size {
    use crate::raster::Size;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(size: &Size, to: S) -> Result<S::Ok, S::Error> {
        (size.width, size.height).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        <(u32, u32)>::deserialize(from).map(|(width, height)| Size { width, height })
    }
}

/// The written form of a size that may be missing.
pub(super) mod optional_size {
    use crate::raster::Size;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(size: &Option<Size>, to: S) -> Result<S::Ok, S::Error> {
        size.map(|size| (size.width, size.height)).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Size>, D::Error> {
        let size = Option::<(u32, u32)>::deserialize(from)?;
        Ok(size.map(|(width, height)| Size { width, height }))
    }
}
