//! Transforms as they are written down, in JSON: read with errors that say where and what.

use super::transform::{Tagged, Transform};
use crate::error::{Error, Result};
use crate::file;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::io::Read;
use std::path::Path;

/// Largest file of transforms, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 24;

impl<'de> Deserialize<'de> for Transform {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = Map::deserialize(from)?;
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
        read.map_err(|error| D::Error::custom(format_args!("{name}: {error}")))
    }
}

/// Reads a list; an error says which item is meant.
pub(super) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Transform>, D::Error> {
    let items = Vec::<Value>::deserialize(from)?;
    let count = items.len();
    let read = |(i, item)| {
        Transform::deserialize(item)
            .map_err(|error: serde_json::Error| D::Error::custom(format_args!("item {} of {count}: {error}", i + 1)))
    };
    items.into_iter().enumerate().map(read).collect()
}

/// Reads a file of transforms: a JSON list of them as [`Transform`] is written down, of which any may be an operation.
/// All are valid.
///
/// ```
/// use warpfeed::ops::read_transforms;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("flips.json");
/// std::fs::write(&path, r#"[{"transform": "random_horizontal_flip", "p": 0.5}, {"op": "vflip"}]"#)?;
/// assert_eq!(format!("{:?}", read_transforms(&path)?), "[random_horizontal_flip, vflip]");
///
/// std::fs::write(&path, r#"[{"op": "vflip"}, {"transform": "random_horizontal_flip", "q": 0.5}]"#)?;
/// let error = read_transforms(&path).unwrap_err().to_string();
/// assert!(error.contains("flips.json: item 2 of 2: random_horizontal_flip: unknown field `q`, expected `p`"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Io`] if it cannot be read; [`Error::Parameter`] with the file, the item, the field and what is allowed.
pub fn read_transforms(path: impl AsRef<Path>) -> Result<Vec<Transform>> {
    let path = path.as_ref();
    let mut text = String::new();
    file::open_regular(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(Error::io("read", path))?;
    let wrong = |what: String| {
        let expected = "a JSON list of transforms and operations (see docs/operations.md)";
        Error::parameter("transforms", "FILE", expected, format!("{}: {what}", path.display()))
    };
    let mut json = serde_json::Deserializer::from_str(&text);
    let transforms = list(&mut json).and_then(|read| json.end().map(|()| read)).map_err(|e| wrong(e.to_string()))?;
    for (i, transform) in transforms.iter().enumerate() {
        let at = |error| wrong(format!("item {} of {}: {error}", i + 1, transforms.len()));
        transform.validate().map_err(at)?;
    }
    Ok(transforms)
}
