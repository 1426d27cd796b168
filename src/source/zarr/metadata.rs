//! Metadata of an array: `.zarray` of version 2, and `zarr.json` of version 3.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html> and
//! <https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html>. Extensions are refused by name: an array whose
//! extension is ignored would be read as other values.

use super::codecs::{ByteCodec, Codecs, Delta};
use super::shards::Shards;
use crate::error::{Error, Result};
use crate::os::file::{if_there, read_limited};
use crate::source::arrays::DataType;
use serde_json::Value;
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};

/// Largest size of the metadata in bytes: 1 MiB.
const MAX_METADATA_BYTES: u64 = 1 << 20;

/// Largest size of a decoded chunk in bytes: 512 MiB.
pub(super) const MAX_CHUNK_BYTES: u64 = 512 << 20;

/// Largest number of dimensions of an array.
const MAX_DIMENSIONS: usize = 32;

/// The description of an array.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) shape: Vec<u64>,
    /// Shape of the part of the array that a file holds: a chunk, or a shard of chunks.
    pub(super) file_shape: Vec<u64>,
    /// Shape of a chunk.
    pub(super) chunk_shape: Vec<u64>,
    pub(super) data_type: DataType,
    /// The value of what is not stored, little-endian.
    pub(super) fill: [u8; 8],
    pub(super) keys: Keys,
    /// Codecs of a file without shards, or of a chunk in a shard.
    pub(super) codecs: Codecs,
    pub(super) shards: Option<Shards>,
    /// For each dimension, the distance between neighbors in a decoded chunk, in values.
    pub(super) strides: Vec<usize>,
    /// Number of bytes of a decoded chunk.
    pub(super) chunk_bytes: usize,
}

/// The form of the chunks' names.
#[derive(Debug, PartialEq)]
pub(super) struct Keys {
    /// Whether they begin with `c`.
    has_prefix: bool,
    separator: char,
}

impl Keys {
    /// The name of the file with these numbers, relative to the array's folder.
    pub(super) fn key(&self, numbers: &[u64]) -> String {
        let mut key = String::from(if self.has_prefix { "c" } else { "" });
        for number in numbers {
            if !key.is_empty() {
                key.push(self.separator);
            }
            // Writing to text cannot fail.
            let _ = write!(key, "{number}");
        }
        key
    }
}

/// Codecs of a chunk, or of a shard and its chunks, as the metadata list them.
struct Chain {
    codecs: Codecs,
    shards: Option<(Shards, Vec<u64>, Box<Codecs>)>,
}

/// The metadata's file, for messages.
struct File<'a>(&'a Path);

impl File<'_> {
    fn damaged(&self, message: impl Display) -> Error {
        Error::decode("Zarr", format!("{}: {message}", self.0.display()))
    }

    fn unsupported(&self, feature: impl Display, remedy: &str) -> Error {
        Error::Unsupported { feature: format!("{feature} in {}", self.0.display()), remedy: remedy.to_owned() }
    }

    fn entry<'a>(&self, value: &'a Value, name: &str) -> Result<&'a Value> {
        value.get(name).ok_or_else(|| self.damaged(format!("there is no {name}")))
    }

    /// A list of whole numbers.
    fn shape(&self, value: &Value, name: &str) -> Result<Vec<u64>> {
        let numbers = self.entry(value, name)?;
        let shape: Option<Vec<u64>> =
            numbers.as_array().and_then(|numbers| numbers.iter().map(Value::as_u64).collect());
        match shape {
            Some(shape) if shape.len() > MAX_DIMENSIONS => {
                Err(self.damaged(format!("{name} has {} dimensions, more than {MAX_DIMENSIONS}", shape.len())))
            }
            Some(shape) => Ok(shape),
            None => Err(self.damaged(format!("{name} is {numbers:.40}, not a list of whole numbers"))),
        }
    }

    fn separator(&self, value: Option<&Value>, usual: char) -> Result<char> {
        match value.map(Value::as_str) {
            None => Ok(usual),
            Some(Some("/")) => Ok('/'),
            Some(Some(".")) => Ok('.'),
            Some(other) => Err(self.damaged(format!("the separator of chunks' names is {other:?}, not / or ."))),
        }
    }

    fn fill(&self, value: &Value, data_type: DataType) -> Result<[u8; 8]> {
        let fill = data_type.read_json(value);
        fill.ok_or_else(|| self.damaged(format!("fill_value {value:.40} is no value of {}", data_type.name())))
    }
}

/// Remedy for types that no pixels or labels have.
const OTHER_TYPE: &str = "write the array with numbers: uint8, uint16 or float32 for images, whole numbers for labels";

/// Remedy for codecs.
const OTHER_CODEC: &str = "write the array again with zstd, gzip, blosc (lz4, zstd) or without compression";

impl Metadata {
    /// Reads the metadata of the array in a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let read = |name: &str| -> Result<Option<(PathBuf, Value)>> {
            let path = folder.join(name);
            let Some(bytes) = if_there(read_limited(&path, MAX_METADATA_BYTES))? else { return Ok(None) };
            let value = serde_json::from_slice(&bytes);
            let value = value.map_err(|error| File(&path).damaged(format!("it is not JSON: {error}")))?;
            Ok(Some((path, value)))
        };
        if let Some((path, value)) = read("zarr.json")? {
            return Self::version_3(&File(&path), &value);
        }
        if let Some((path, value)) = read(".zarray")? {
            return Self::version_2(&File(&path), &value);
        }
        let got = if folder.join(".zgroup").exists() { "a group of arrays: name one of them" } else { "neither" };
        let expected = "the folder of an array, with zarr.json or .zarray in it";
        Err(Error::parameter("ZarrArray::open", "path", expected, format!("{got}, in {}", folder.display())))
    }

    fn version_2(file: &File<'_>, value: &Value) -> Result<Self> {
        if value.get("zarr_format").and_then(Value::as_u64) != Some(2) {
            return Err(file.damaged("zarr_format is not 2"));
        }
        let dtype = file.entry(value, "dtype")?;
        let Some(text) = dtype.as_str() else {
            return Err(file.unsupported(format!("the data type {dtype:.60}"), OTHER_TYPE));
        };
        let Some((data_type, is_big)) = DataType::by_numpy(text) else {
            return Err(file.unsupported(format!("the data type {text:.60}"), OTHER_TYPE));
        };
        let fill = match value.get("fill_value") {
            // Any value may stand where nothing is stored. Zarr's own readers give zeros.
            None | Some(Value::Null) => [0; 8],
            Some(fill) => file.fill(fill, data_type)?,
        };
        let name = |codec: &Value| codec.get("id").and_then(Value::as_str).unwrap_or("without a name").to_owned();
        let mut delta = None;
        match value.get("filters") {
            None | Some(Value::Null) => {}
            Some(Value::Array(filters)) => {
                for filter in filters {
                    let own = |entry: &str| filter.get(entry).and_then(Value::as_str).is_none_or(|own| own == text);
                    let is_delta = name(filter) == "delta" && !data_type.is_float() && data_type != DataType::Bool;
                    if !is_delta || delta.is_some() || !own("dtype") || !own("astype") {
                        let feature = format!("the filter {:.60} on {}", name(filter), data_type.name());
                        return Err(file.unsupported(feature, "write the array again without filters"));
                    }
                    delta = Some(Delta { value_bytes: data_type.size_bytes(), is_big });
                }
            }
            Some(other) => return Err(file.damaged(format!("filters is {other:.40}, not a list"))),
        }
        let bytes = match value.get("compressor") {
            None | Some(Value::Null) => Vec::new(),
            Some(compressor) => match name(compressor).as_str() {
                "zlib" => vec![ByteCodec::Zlib],
                "gzip" => vec![ByteCodec::Gzip],
                "zstd" => vec![ByteCodec::Zstd],
                "lz4" => vec![ByteCodec::Lz4],
                "blosc" => vec![blosc(file, compressor)?],
                other => return Err(file.unsupported(format!("the compressor {other:.60}"), OTHER_CODEC)),
            },
        };
        let (shape, chunks) = (file.shape(value, "shape")?, file.shape(value, "chunks")?);
        let order = match value.get("order").and_then(Value::as_str) {
            None | Some("C") => (0..shape.len()).collect(),
            Some("F") => (0..shape.len()).rev().collect(),
            Some(other) => return Err(file.damaged(format!("order is {other:.40}, not C or F"))),
        };
        let keys = Keys { has_prefix: false, separator: file.separator(value.get("dimension_separator"), '.')? };
        let chain = Chain { codecs: Codecs { order, is_big, delta, bytes }, shards: None };
        Self::new(file, shape, chunks, data_type, fill, keys, chain)
    }

    fn version_3(file: &File<'_>, value: &Value) -> Result<Self> {
        if value.get("zarr_format").and_then(Value::as_u64) != Some(3) {
            return Err(file.damaged("zarr_format is not 3"));
        }
        match value.get("node_type").and_then(Value::as_str) {
            Some("array") => {}
            Some("group") => {
                let (expected, folder) = ("the folder of an array", file.0.parent().unwrap_or(file.0));
                let got = format!("a group of arrays: name one of them, in {}", folder.display());
                return Err(Error::parameter("ZarrArray::open", "path", expected, got));
            }
            other => return Err(file.damaged(format!("node_type is {other:.40?}, not array"))),
        }
        /// Entries that this reader knows.
        const KNOWN: [&str; 11] = [
            "zarr_format",
            "node_type",
            "shape",
            "data_type",
            "chunk_grid",
            "chunk_key_encoding",
            "fill_value",
            "codecs",
            "attributes",
            "dimension_names",
            "storage_transformers",
        ];
        for (name, extension) in value.as_object().into_iter().flatten() {
            let may_be_ignored = extension.get("must_understand") == Some(&Value::Bool(false));
            if !KNOWN.contains(&name.as_str()) && !may_be_ignored {
                return Err(file.unsupported(format!("the extension {name:.60}"), "write the array without it"));
            }
        }
        if let Some(transformer) =
            value.get("storage_transformers").and_then(Value::as_array).and_then(|all| all.first())
        {
            let feature = format!("the storage transformer {:.60}", name(transformer));
            return Err(file.unsupported(feature, "write the array without it"));
        }
        let data_type = file.entry(value, "data_type")?;
        let Some(data_type) = data_type.as_str().and_then(DataType::by_name) else {
            let name = if data_type.is_string() { data_type.as_str().unwrap_or_default() } else { name(data_type) };
            return Err(file.unsupported(format!("the data type {name:.60}"), OTHER_TYPE));
        };
        let fill = file.fill(file.entry(value, "fill_value")?, data_type)?;
        let shape = file.shape(value, "shape")?;
        let grid = file.entry(value, "chunk_grid")?;
        if name(grid) != "regular" {
            let feature = format!("the chunk grid {:.60}", name(grid));
            return Err(file.unsupported(feature, "write the array with chunks of one shape (regular)"));
        }
        let file_shape = file.shape(settings(grid), "chunk_shape")?;
        let encoding = file.entry(value, "chunk_key_encoding")?;
        let separator = settings(encoding).get("separator");
        let keys = match name(encoding) {
            "default" => Keys { has_prefix: true, separator: file.separator(separator, '/')? },
            "v2" => Keys { has_prefix: false, separator: file.separator(separator, '.')? },
            other => {
                let feature = format!("the chunk key encoding {other:.60}");
                return Err(file.unsupported(feature, "write the array with the default one"));
            }
        };
        let chain = chain(file, file.entry(value, "codecs")?, data_type, file_shape.len(), true)?;
        Self::new(file, shape, file_shape, data_type, fill, keys, chain)
    }

    fn new(
        file: &File<'_>,
        shape: Vec<u64>,
        file_shape: Vec<u64>,
        data_type: DataType,
        fill: [u8; 8],
        keys: Keys,
        chain: Chain,
    ) -> Result<Self> {
        let Chain { mut codecs, shards } = chain;
        if file_shape.len() != shape.len() || file_shape.contains(&0) {
            return Err(file.damaged(format!("chunks of {file_shape:?} do not fit the shape {shape:?}")));
        }
        let mut chunk_shape = file_shape.clone();
        let shards = match shards {
            None => None,
            Some((mut shards, inner, inner_codecs)) => {
                let fits = |(stored, inner): (&usize, &u64)| *inner > 0 && file_shape[*stored].is_multiple_of(*inner);
                if inner.len() != shape.len() || !codecs.order.iter().zip(&inner).all(fits) {
                    return Err(file.damaged(format!("chunks of {inner:?} do not fit shards of {file_shape:?}")));
                }
                codecs.order.iter().zip(&inner).for_each(|(stored, inner)| chunk_shape[*stored] = *inner);
                shards.counts = codecs.order.iter().map(|&stored| file_shape[stored] / chunk_shape[stored]).collect();
                shards.order = codecs.order.clone();
                let order = inner_codecs.order.iter().map(|stored| codecs.order[*stored]).collect();
                codecs = Codecs { order, ..*inner_codecs };
                if shards.index_bytes().is_none() {
                    return Err(file.damaged(format!("shards of {file_shape:?} have too many chunks of {inner:?}")));
                }
                Some(shards)
            }
        };
        let bytes =
            |shape: &[u64]| shape.iter().try_fold(data_type.size_bytes() as u64, |all, side| all.checked_mul(*side));
        let chunk_bytes = bytes(&chunk_shape).unwrap_or(u64::MAX);
        if chunk_bytes > MAX_CHUNK_BYTES {
            return Err(Error::Limits {
                what: "a Zarr chunk in bytes",
                got: chunk_bytes,
                limit: MAX_CHUNK_BYTES,
                remedy: "write the array with smaller chunks",
            });
        }
        let (mut strides, mut stride) = (vec![0; shape.len()], 1);
        for &dimension in codecs.order.iter().rev() {
            strides[dimension] = stride;
            stride *= chunk_shape[dimension] as usize;
        }
        // Their numbers are counted in 64 bits.
        let counts = shape.iter().zip(&chunk_shape).map(|(side, chunk)| side.div_ceil(*chunk));
        if counts.clone().try_fold(1_u64, |all, count| all.checked_mul(count.max(1))).is_none() {
            return Err(file.damaged(format!("the shape {shape:?} has more chunks of {chunk_shape:?} than can be")));
        }
        let chunk_bytes = chunk_bytes as usize;
        Ok(Self { shape, file_shape, chunk_shape, data_type, fill, keys, codecs, shards, strides, chunk_bytes })
    }
}

/// The name of an extension point of version 3, which may stand alone or with a configuration.
fn name(extension: &Value) -> &str {
    extension.as_str().or_else(|| extension.get("name")?.as_str()).unwrap_or("without a name")
}

/// The configuration of an extension point; null if there is none.
fn settings(extension: &Value) -> &Value {
    extension.get("configuration").unwrap_or(&Value::Null)
}

/// The codecs of version 3 for an array with so many dimensions.
fn chain(file: &File<'_>, list: &Value, data_type: DataType, dimensions: usize, may_shard: bool) -> Result<Chain> {
    let list = list.as_array().ok_or_else(|| file.damaged("codecs are not a list"))?;
    let mut codecs = Codecs { order: (0..dimensions).collect(), is_big: false, delta: None, bytes: Vec::new() };
    let mut rest = list.iter();
    let shards = loop {
        let codec = rest.next().ok_or_else(|| file.damaged("no codec makes bytes of the values"))?;
        match name(codec) {
            "transpose" => codecs.order = transposed(file, settings(codec), &codecs.order)?,
            "bytes" => {
                codecs.is_big = is_big_endian(file, settings(codec), data_type.size_bytes())?;
                break None;
            }
            "sharding_indexed" if may_shard => {
                let settings = settings(codec);
                let inner_shape = file.shape(settings, "chunk_shape")?;
                let inner = chain(file, file.entry(settings, "codecs")?, data_type, inner_shape.len(), false)?;
                break Some((index(file, settings)?, inner_shape, Box::new(inner.codecs)));
            }
            "sharding_indexed" => {
                return Err(file.unsupported("shards in shards", "write the array with shards of chunks"));
            }
            other => return Err(file.unsupported(format!("the codec {other:.60}"), OTHER_CODEC)),
        }
    };
    for codec in rest {
        if shards.is_some() {
            let feature = format!("the codec {:.60} over whole shards", name(codec));
            return Err(file.unsupported(feature, "compress the chunks in the shards"));
        }
        codecs.bytes.push(match name(codec) {
            "gzip" => ByteCodec::Gzip,
            "zstd" => ByteCodec::Zstd,
            "blosc" => blosc(file, settings(codec))?,
            "crc32c" => ByteCodec::Crc32c,
            other => return Err(file.unsupported(format!("the codec {other:.60}"), OTHER_CODEC)),
        });
    }
    Ok(Chain { codecs, shards })
}

/// The codec blosc. Whatever else its settings say is in the chunks too.
fn blosc(file: &File<'_>, settings: &Value) -> Result<ByteCodec> {
    match settings.get("cname").and_then(Value::as_str) {
        Some("snappy") => Err(file.unsupported("blosc with the compressor snappy", OTHER_CODEC)),
        _ => Ok(ByteCodec::Blosc),
    }
}

/// The order of stored dimensions after the codec `transpose`.
fn transposed(file: &File<'_>, settings: &Value, order: &[usize]) -> Result<Vec<usize>> {
    let wanted = file.shape(settings, "order")?;
    let mut sorted = wanted.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..order.len() as u64) {
        return Err(file.damaged(format!("transpose has the order {wanted:?} for {} dimensions", order.len())));
    }
    Ok(wanted.into_iter().map(|dimension| order[dimension as usize]).collect())
}

/// Whether the codec `bytes` writes the most significant byte first.
fn is_big_endian(file: &File<'_>, settings: &Value, value_bytes: usize) -> Result<bool> {
    match settings.get("endian").map(Value::as_str) {
        Some(Some("little")) => Ok(false),
        Some(Some("big")) => Ok(true),
        None | Some(None) if value_bytes == 1 => Ok(false),
        other => Err(file.damaged(format!("the codec bytes has endian {other:?}, not little or big"))),
    }
}

/// The index of shards, which the codec `sharding_indexed` describes.
fn index(file: &File<'_>, sharding: &Value) -> Result<Shards> {
    let at_start = match sharding.get("index_location").map(Value::as_str) {
        None | Some(Some("end")) => false,
        Some(Some("start")) => true,
        Some(other) => return Err(file.damaged(format!("index_location is {other:?}, not start or end"))),
    };
    let codecs = file.entry(sharding, "index_codecs")?.as_array();
    let codecs = codecs.ok_or_else(|| file.damaged("index_codecs are not a list"))?;
    let names: Vec<&str> = codecs.iter().map(name).collect();
    let is_checked = match names[..] {
        ["bytes"] => false,
        ["bytes", "crc32c"] => true,
        _ => {
            let feature = format!("a shard index with the codecs {names:.60?}");
            return Err(file.unsupported(feature, "write the array with bytes and crc32c for the index"));
        }
    };
    let is_big = is_big_endian(file, settings(&codecs[0]), 8)?;
    Ok(Shards { at_start, is_big, is_checked, counts: Vec::new(), order: Vec::new() })
}
