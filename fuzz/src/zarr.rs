//! Zarr arrays: metadata, chunks, shards.

use super::{MAX_AREA_PX, crc32c, folder};
use serde_json::Value;
use std::fs;
use std::path::Path;
use warpfeed::ops::CenterCrop;
use warpfeed::source::{EncodedImages, Source, SourceExt as _, ZarrArray};
use warpfeed::{DType, Device, Layout, Pipeline, Pixels, Result};

/// Largest size of a chunk and of a shard's index. Larger ones would take time and reach no other code.
const MAX_CHUNK_BYTES: u64 = 1 << 20;

/// The meanings that are given to the dimensions of arrays, by their number.
const AXES: [&[&str]; 5] = [&[], &[], &["hw", "wh"], &["nhw", "hwc", "chw"], &["nchw", "nhwc", "cwhn"]];

/// Reads an array, as images and as the labels of four others. The first byte chooses the axes, the next two say how
/// many bytes of metadata follow. The rest is the content of every second chunk; the others are not stored. An index at
/// the end of a shard gets a correct checksum, which no fuzzer guesses.
pub fn zarr(data: &[u8]) {
    let Some((&[choice, low, high], rest)) = data.split_first_chunk() else { return };
    let (metadata, chunk) = rest.split_at(rest.len().min(u16::from_le_bytes([low, high]).into()));
    let Ok(value) = serde_json::from_slice::<Value>(metadata) else { return };
    let is_third = value["zarr_format"] == 3;
    let chunks = if is_third { &value["chunk_grid"]["configuration"]["chunk_shape"] } else { &value["chunks"] };
    let chunk_shape = numbers(chunks);
    if product(&chunk_shape) > MAX_CHUNK_BYTES {
        return;
    }
    let path = folder().join("array.zarr");
    fs::create_dir(&path).expect("a folder for the array");
    fs::write(path.join(if is_third { "zarr.json" } else { ".zarray" }), metadata).expect("a file for the metadata");
    write_chunks(&path, &value, is_third, &sealed(&value, &chunk_shape, chunk));
    read(&path, choice, numbers(&value["shape"]).len());
    fs::remove_dir_all(path).expect("the folder is ours");
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

fn product(numbers: &[u64]) -> u64 {
    numbers.iter().fold(1, |product: u64, number| product.saturating_mul((*number).max(1)))
}

/// Writes the content to every second of the first chunks.
fn write_chunks(path: &Path, metadata: &Value, is_third: bool, chunk: &[u8]) {
    let encoding = &metadata["chunk_key_encoding"];
    let (prefix, separator, usual) = match encoding["name"].as_str() {
        _ if !is_third => ("", &metadata["dimension_separator"], "."),
        Some("v2") => ("", &encoding["configuration"]["separator"], "."),
        _ => ("c", &encoding["configuration"]["separator"], "/"),
    };
    let separator = separator.as_str().filter(|separator| [".", "/"].contains(separator)).unwrap_or(usual);
    let dimensions = numbers(&metadata["shape"]).len().min(4);
    for at in (0..1_u32 << dimensions).filter(|at| at.count_ones().is_multiple_of(2)) {
        let numbers = (0..dimensions).map(|dimension| (at >> dimension & 1).to_string());
        let first = (!prefix.is_empty()).then(|| prefix.to_owned());
        let key = first.into_iter().chain(numbers).collect::<Vec<String>>().join(separator);
        let file = path.join(if key.is_empty() { "0" } else { &key });
        fs::create_dir_all(file.parent().expect("a folder of the array")).expect("a folder for the chunk");
        fs::write(file, chunk).expect("a file for the chunk");
    }
}

/// The content of a shard with a correct checksum of its index, if it has one at its end.
fn sealed(metadata: &Value, shard_shape: &[u64], chunk: &[u8]) -> Vec<u8> {
    let mut chunk = chunk.to_vec();
    let codecs = metadata["codecs"].as_array().into_iter().flatten();
    let Some(shards) = codecs.into_iter().find(|codec| codec["name"] == "sharding_indexed") else { return chunk };
    let chunk_shape = numbers(&shards["configuration"]["chunk_shape"]);
    let counts: Vec<u64> = shard_shape.iter().zip(&chunk_shape).map(|(shard, chunk)| shard / (*chunk).max(1)).collect();
    let index_bytes = product(&counts).saturating_mul(16) as usize;
    if let Some((body, sum)) = chunk.split_last_chunk_mut::<4>()
        && let Some(start) = body.len().checked_sub(index_bytes)
    {
        *sum = crc32c(&body[start..]).to_le_bytes();
    }
    chunk
}

/// Reads whole samples, and crops of them, which must have the same values.
fn read(path: &Path, choice: u8, dimensions: usize) {
    if dimensions == 1 {
        let images = folder().join("images.zarr");
        let four = br#"{"zarr_format": 2, "shape": [4, 1, 1], "chunks": [4, 1, 1], "dtype": "|u1", "compressor": null,
            "fill_value": 0, "order": "C", "filters": null}"#;
        fs::create_dir_all(&images).expect("a folder for the images");
        fs::write(images.join(".zarray"), four).expect("a file for the metadata");
        let images = ZarrArray::open(images, "nhw").expect("four images");
        if let Ok(labeled) = images.with_labels(path) {
            assert!((0..4).all(|index| labeled.label(index).is_some()));
        }
        return;
    }
    let Some(axes @ [_, ..]) = AXES.get(dimensions) else {
        assert!(ZarrArray::open(path, "hw").is_err());
        return;
    };
    let Ok(source) = ZarrArray::open(path, axes[usize::from(choice) % axes.len()]) else { return };
    if source.image_size().is_none_or(|size| size.area_px() > MAX_AREA_PX) {
        return;
    }
    for index in 0..source.len().min(3) {
        let (whole, stored) = (source.encoded(index), crop(source.clone(), index));
        match whole {
            Ok(whole) => {
                let want = crop(EncodedImages::new([(whole, 0)]), 0).expect("a crop of the image");
                let stored = stored.expect("a crop of a good sample");
                assert!(stored == want, "the part differs from the whole, sample {index}");
            }
            Err(error) => assert!(error.is_bad_sample(), "{error}"),
        }
    }
}

/// The values of the middle of an image.
fn crop(source: impl Source + 'static, index: u64) -> Result<Vec<u8>> {
    let source = source.subset([index])?;
    let builder = Pipeline::builder(source).threads(0).device(Device::Cpu).pixels(Pixels::Own).batch_size(1);
    let pipeline = builder.transform(CenterCrop::new(3)).output(DType::F32, Layout::Nchw).build()?;
    let batch = pipeline.epoch(0).next().expect("a batch")?;
    batch.images().as_bytes().map(<[u8]>::to_vec)
}
