//! Arrays that are written here, and the reference arrays of the folder that `WARPFEED_SHARED` names.

use super::*;
use crate::source::{OpenOptions, SourceFormat};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use tempfile::TempDir;
use warpfeed_image::planes::Element;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// An array of version 2 with these entries in place of the usual ones: `[2, 5, 7, 3]` of `<u2` in chunks of
/// `[1, 2, 4, 2]` without compression.
fn version_2(changes: &[(&str, Value)]) -> TempDir {
    let mut metadata = json!({
        "zarr_format": 2, "shape": [2, 5, 7, 3], "chunks": [1, 2, 4, 2], "dtype": "<u2", "compressor": null,
        "fill_value": 9, "order": "C", "filters": null,
    });
    changes.iter().for_each(|(name, value)| metadata[*name] = value.clone());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(".zarray"), metadata.to_string()).unwrap();
    folder
}

/// A folder with an array of version 3, whose metadata have these changes.
fn version_3(changes: &[(&str, Value)]) -> TempDir {
    let mut metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [2, 5, 7, 3], "data_type": "uint16", "fill_value": 9,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 2, 4, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {},
    });
    changes.iter().for_each(|(name, value)| metadata[*name] = value.clone());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("zarr.json"), metadata.to_string()).unwrap();
    folder
}

/// The value at a place of the array.
fn value([n, y, x, c]: [u64; 4]) -> u16 {
    (n * 10_007 + y * 1_009 + x * 101 + c * 11) as u16
}

/// Numbers of the chunks of the usual array.
fn all_chunks() -> impl Iterator<Item = [u64; 4]> {
    let of = |n, y, x| (0..2).map(move |c| [n, y, x, c]);
    (0..2).flat_map(move |n| (0..3).flat_map(move |y| (0..2).flat_map(move |x| of(n, y, x))))
}

/// The values of a chunk of the usual array, whose dimensions are stored in this order. What is beyond the array's end
/// is 0xFFFF.
fn chunk(numbers: [u64; 4], order: [usize; 4], bytes: impl Fn(u16) -> [u8; 2]) -> Vec<u8> {
    let (shape, sides) = ([2, 5, 7, 3], [1, 2, 4, 2]);
    let mut all = Vec::new();
    for number in 0..16_u64 {
        let (mut rest, mut place) = (number, [0; 4]);
        for dimension in order.into_iter().rev() {
            place[dimension] = numbers[dimension] * sides[dimension] + rest % sides[dimension];
            rest /= sides[dimension];
        }
        let inside = place.iter().zip(shape).all(|(place, side)| *place < side);
        all.extend(bytes(if inside { value(place) } else { u16::MAX }));
    }
    all
}

const C: [usize; 4] = [0, 1, 2, 3];

fn name(numbers: [u64; 4], separator: &str) -> String {
    numbers.map(|number| number.to_string()).join(separator)
}

/// Checks all values, some parts and channels of the usual array.
fn check(source: &ZarrArray, missing: Option<[u64; 4]>) {
    assert_eq!((source.len(), source.image_size()), (2, Some(Size::new(7, 5))));
    let want = |place: [u64; 4]| {
        let of = [place[0], place[1] / 2, place[2] / 4, place[3] / 2];
        if missing == Some(of) { 9 } else { value(place) }
    };
    let mut planes = Planes::default();
    for n in 0..2 {
        let image = ZarrImage::new(&source.images, n);
        for (x, y, width, height) in [(0, 0, 7, 5), (3, 1, 2, 3), (4, 4, 3, 1), (6, 0, 1, 5), (0, 2, 4, 2)] {
            for bands in [&[0, 1, 2][..], &[2], &[1, 2, 1], &[0]] {
                image.decode(Rect { x, y, width, height }, bands, &mut planes).unwrap();
                for (to, &band) in bands.iter().enumerate() {
                    let plane = planes.plane::<u16>(to);
                    for at in 0..width * height {
                        let place = [n, (y + at / width).into(), (x + at % width).into(), band.into()];
                        assert_eq!(plane[at as usize], want(place), "{place:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn chunks_of_both_versions() {
    for order in [C, [3, 2, 1, 0]] {
        for separator in [".", "/"] {
            let changes =
                [("order", json!(if order == C { "C" } else { "F" })), ("dimension_separator", json!(separator))];
            let folder = version_2(&[&changes[..], &[("compressor", json!({"id": "gzip", "level": 1}))]].concat());
            for numbers in all_chunks() {
                let path = folder.path().join(name(numbers, separator));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, gzip(&chunk(numbers, order, u16::to_le_bytes))).unwrap();
            }
            let source = ZarrArray::open(folder.path(), "nhwc").unwrap();
            check(&source, None);
            fs::remove_file(folder.path().join(name([1, 1, 1, 0], separator))).unwrap();
            check(&ZarrArray::open(folder.path(), "nhwc").unwrap(), Some([1, 1, 1, 0]));
            // The first source has kept it.
            check(&source, None);
        }
    }
    let transpose = |order: [usize; 4]| json!({"name": "transpose", "configuration": {"order": order}});
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    for (prefix, encoding) in
        [("c.", json!({"name": "default", "configuration": {"separator": "."}})), ("", json!("v2"))]
    {
        // The second transposition applies to the result of the first.
        let codecs = json!([transpose([1, 0, 2, 3]), transpose([2, 1, 0, 3]), big]);
        let folder = version_3(&[("codecs", codecs), ("chunk_key_encoding", encoding)]);
        for numbers in all_chunks() {
            let path = folder.path().join(format!("{prefix}{}", name(numbers, ".")));
            fs::write(path, chunk(numbers, [2, 0, 1, 3], u16::to_be_bytes)).unwrap();
        }
        check(&ZarrArray::open(folder.path(), "nhwc").unwrap(), None);
    }
}

/// A shard of all chunks of a sample, in this order of dimensions.
fn shard(n: u64, order: [usize; 4], at_start: bool, missing: Option<[u64; 4]>) -> Vec<u8> {
    let counts = [1, 3, 2, 2];
    let index_bytes = 12 * 16 + 4;
    let (mut index, mut chunks) = (Vec::new(), Vec::new());
    for number in 0..12_u64 {
        let (mut rest, mut numbers) = (number, [n, 0, 0, 0]);
        for dimension in order.into_iter().rev() {
            numbers[dimension] += rest % counts[dimension];
            rest /= counts[dimension];
        }
        if missing == Some(numbers) {
            index.extend([0xFF; 16]);
            continue;
        }
        let bytes = gzip(&chunk(numbers, order, u16::to_le_bytes));
        let start = chunks.len() + if at_start { index_bytes } else { 0 };
        [start, bytes.len()].iter().for_each(|number| index.extend((*number as u64).to_le_bytes()));
        chunks.extend(bytes);
    }
    index.extend(crc32c::crc32c(&index).to_le_bytes());
    if at_start { [index, chunks].concat() } else { [chunks, index].concat() }
}

fn sharded(order: [usize; 4], at_start: bool) -> TempDir {
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let mut codecs = vec![json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": order.map(|dimension| [1, 2, 4, 2][dimension]),
        "codecs": [little, {"name": "gzip", "configuration": {"level": 5}}],
        "index_codecs": [little, {"name": "crc32c"}],
        "index_location": if at_start { "start" } else { "end" },
    }})];
    if order != C {
        codecs.insert(0, json!({"name": "transpose", "configuration": {"order": order}}));
    }
    let grid = json!({"name": "regular", "configuration": {"chunk_shape": [1, 6, 8, 4]}});
    version_3(&[("chunk_grid", grid), ("codecs", json!(codecs))])
}

#[test]
fn chunks_of_shards() {
    for (order, at_start) in [(C, false), (C, true), ([3, 0, 2, 1], false)] {
        for missing in [None, Some([1, 2, 0, 1])] {
            let folder = sharded(order, at_start);
            for n in 0..2 {
                fs::create_dir_all(folder.path().join(format!("c/{n}/0/0"))).unwrap();
                fs::write(folder.path().join(format!("c/{n}/0/0/0")), shard(n, order, at_start, missing)).unwrap();
            }
            check(&ZarrArray::open(folder.path(), "nhwc").unwrap(), missing);
        }
    }
}

#[test]
fn damaged_shards_name_their_file() {
    let folder = sharded(C, false);
    fs::create_dir_all(folder.path().join("c/0/0/0")).unwrap();
    let path = folder.path().join("c/0/0/0/0");
    let sound = shard(0, C, false, None);
    let mut planes = Planes::default();
    let mut decode = |bytes: &[u8], part: Rect| {
        fs::write(&path, bytes).unwrap();
        let source = ZarrArray::open(folder.path(), "nhwc").unwrap();
        ZarrImage::new(&source.images, 0).decode(part, &[0], &mut planes)
    };
    let corner = Rect { x: 0, y: 0, width: 3, height: 2 };
    decode(&sound, corner).unwrap();
    // A chunk elsewhere, whose start is not that of gzip any more.
    let second = 16 * 2;
    let index = sound.len() - 4 - 12 * 16;
    let start = u64::from_le_bytes(sound[index + second..][..8].try_into().unwrap()) as usize;
    let mut damaged = sound.clone();
    damaged[start] ^= 0xFF;
    decode(&damaged, corner).unwrap();
    let error = decode(&damaged, Rect { x: 4, ..corner }).unwrap_err();
    assert!(error.is_bad_image() && error.to_string().contains("c/0/0/0/0: gzip"), "{error}");
    // The index.
    damaged = sound.clone();
    damaged[index] ^= 1;
    assert!(decode(&damaged, corner).unwrap_err().to_string().contains("c/0/0/0/0: crc32c"));
    for (at, number) in [(0, u64::MAX - 5), (8, 1 << 40), (8, sound.len() as u64)] {
        let mut entries = sound[index..sound.len() - 4].to_vec();
        entries[at..at + 8].copy_from_slice(&number.to_le_bytes());
        let sum = crc32c::crc32c(&entries).to_le_bytes();
        let damaged = [&sound[..index], &entries, &sum].concat();
        assert!(decode(&damaged, corner).unwrap_err().to_string().contains("c/0/0/0/0"));
    }
    for len in [0, 1, 195, 196, sound.len() - 1] {
        assert!(decode(&sound[..len], corner).is_err(), "{len}");
    }
}

#[test]
fn other_types_become_floats_and_files_of_numpy() {
    let images = |dtype: &str, chunk: &[u8]| {
        let shape = json!([1, 2, 1]);
        let folder = version_2(&[
            ("shape", shape.clone()),
            ("chunks", shape),
            ("dtype", json!(dtype)),
            ("fill_value", json!(0)),
        ]);
        fs::write(folder.path().join("0.0.0"), chunk).unwrap();
        ZarrArray::open(folder.path(), "hwc").map(|source| (source.encoded(0).unwrap(), source))
    };
    let floats = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
    for (dtype, chunk, want) in [
        ("|b1", vec![1, 0], vec![1, 0]),
        ("|u1", vec![7, 255], vec![7, 255]),
        ("|i1", vec![7, 255], floats([7.0, -1.0])),
        (">u2", vec![1, 2, 3, 4], vec![2, 1, 4, 3]),
        ("<i2", vec![0, 0x80, 1, 0], floats([-32_768.0, 1.0])),
        (">i2", vec![0x80, 0, 0, 1], floats([-32_768.0, 1.0])),
        ("<f2", vec![0, 0x3C, 1, 0], floats([1.0, 2.0_f32.powi(-24)])),
        (">f2", vec![0x3C, 0, 0xFC, 0], floats([1.0, f32::NEG_INFINITY])),
        (">f4", [1.5_f32, -0.0].map(f32::to_be_bytes).concat(), floats([1.5, -0.0])),
        ("<f4", floats([1e-42, 3.0]), floats([1e-42, 3.0])),
    ] {
        let (file, source) = images(dtype, &chunk).unwrap();
        assert!(file.ends_with(&want), "{dtype}");
        let header = warpfeed_image::probe(&file).unwrap();
        assert_eq!((header.size, header.kind), (Size::new(2, 1), source.images.header.kind), "{dtype}");
        assert_eq!(want.len(), 2 * header.kind.element.size_bytes());
        // The name tells the folder and the sample.
        assert!(source.name(0).ends_with(" sample 0"));
    }
    for (dtype, says) in [("<i4", "int32"), ("<u4", "uint32"), ("<f8", "float64"), ("<i8", "int64")] {
        let error = images(dtype, &[]).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("float32"), "{error}");
    }
}

#[test]
fn what_is_not_stored_is_the_fill_value() {
    for (dtype, fill, want) in [
        ("<f4", json!("NaN"), f32::NAN.to_le_bytes().to_vec()),
        ("<f4", json!("-Infinity"), f32::NEG_INFINITY.to_le_bytes().to_vec()),
        ("<f4", json!(null), vec![0; 4]),
        (">i2", json!(-2), (-2.0_f32).to_le_bytes().to_vec()),
        ("<f2", json!(0.5), 0.5_f32.to_le_bytes().to_vec()),
        ("|i1", json!(-3), (-3.0_f32).to_le_bytes().to_vec()),
        (">u2", json!(258), vec![2, 1]),
        ("|b1", json!(true), vec![1]),
    ] {
        let folder = version_2(&[("dtype", json!(dtype)), ("fill_value", fill.clone())]);
        let source = ZarrArray::open(folder.path(), "nhwc").unwrap();
        assert!(source.encoded(1).unwrap().ends_with(&want.repeat(5 * 7 * 3)), "{dtype} {fill}");
    }
}

#[test]
fn labels_are_whole_numbers_of_an_array() {
    let images = version_2(&[]);
    let labels = |dtype: &str, shape: Value, chunks: &[&[u8]]| {
        let folder =
            version_2(&[("dtype", json!(dtype)), ("shape", shape), ("chunks", json!([1])), ("fill_value", json!(1))]);
        for (number, bytes) in chunks.iter().enumerate() {
            fs::write(folder.path().join(number.to_string()), bytes).unwrap();
        }
        ZarrArray::open(images.path(), "nhwc").unwrap().with_labels(folder.path())
    };
    let two = || json!([2]);
    for (dtype, chunks, want) in [
        ("<i8", &[&7_i64.to_le_bytes()[..], &u64::from(u32::MAX).to_le_bytes()][..], [7, u32::MAX]),
        (">u2", &[&[1, 2]], [258, 1]),
        ("|b1", &[&[1], &[0]], [1, 0]),
    ] {
        let source = labels(dtype, two(), chunks).unwrap();
        assert_eq!([source.label(0), source.label(1)], want.map(Some), "{dtype}");
    }
    for (dtype, shape, chunks, says) in [
        ("<f4", two(), &[][..], "float32"),
        ("<i8", json!([3]), &[], "[3]"),
        ("<i8", two(), &[&(-1_i64).to_le_bytes()[..]], "-1 for sample 0"),
        ("<u8", two(), &[&[1; 8]], "72340172838076673"),
        ("<i8", two(), &[&[1; 7]], "7 bytes"),
    ] {
        let error = labels(dtype, shape, chunks).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(ZarrArray::open(images.path(), "nhwc").unwrap().label(0), None);
}

#[test]
fn metadata_that_are_not_understood_are_refused_by_name() {
    let v2 = |name: &str, value: Value| version_2(&[(name, value)]);
    let v3 = |name: &str, value: Value| version_3(&[(name, value)]);
    let codecs = |list: Value| v3("codecs", list);
    let bytes = || json!({"name": "bytes", "configuration": {"endian": "little"}});
    let shards = |inner: Value, rest: Value| {
        let sharding = json!({"name": "sharding_indexed", "configuration": inner});
        let mut list = vec![sharding];
        list.extend(rest.as_array().unwrap().iter().cloned());
        codecs(json!(list))
    };
    let inner =
        |shape: Value, list: Value, index: Value| json!({"chunk_shape": shape, "codecs": list, "index_codecs": index});
    let fine = || inner(json!([1, 1, 2, 1]), json!([bytes()]), json!([bytes()]));
    let mut refused = vec![
        (v2("compressor", json!({"id": "../../etc/x"})), "compressor ../../etc/x"),
        (v2("compressor", json!({"id": "bz2"})), "bz2"),
        (v2("compressor", json!({"id": "blosc", "cname": "snappy"})), "snappy"),
        (v2("filters", json!([{"id": "shuffle"}])), "filter shuffle"),
        (v2("filters", json!([{"id": "delta", "dtype": "<u2", "astype": "|u1"}])), "delta on uint16"),
        (v2("dtype", json!([["a", "<u2"]])), "[[\"a\""),
        (v2("dtype", json!("<c8")), "<c8"),
        (v2("dtype", json!("|S3")), "|S3"),
        (v2("order", json!("K")), "order is K"),
        (v2("dimension_separator", json!("..")), "separator"),
        (v2("fill_value", json!(65_536)), "fill_value 65536"),
        (v2("shape", json!([2, 5, 7])), "do not fit"),
        (v2("chunks", json!([1, 0, 4, 2])), "do not fit"),
        (v2("shape", json!([-2, 5, 7, 3])), "not a list of whole numbers"),
        (v2("shape", json!(vec![1; 33])), "33 dimensions"),
        (v2("zarr_format", json!(1)), "zarr_format"),
        (v3("zarr_format", json!(4)), "zarr_format"),
        (v3("node_type", json!("group")), "group of arrays"),
        (v3("data_type", json!("complex64")), "complex64"),
        (v3("data_type", json!({"name": "numpy.datetime64", "configuration": {}})), "numpy.datetime64"),
        (v3("fill_value", json!(null)), "fill_value null"),
        (v3("chunk_grid", json!({"name": "rectilinear"})), "rectilinear"),
        (v3("chunk_key_encoding", json!({"name": "fanout"})), "fanout"),
        (v3("storage_transformers", json!([{"name": "hash"}])), "storage transformer hash"),
        (v3("new_thing", json!({"name": "x"})), "extension new_thing"),
        (codecs(json!([bytes(), {"name": "numcodecs.bz2"}])), "numcodecs.bz2"),
        (codecs(json!([{"name": "vlen-utf8"}])), "vlen-utf8"),
        (codecs(json!([{"name": "transpose", "configuration": {"order": [0, 1, 2, 2]}}, bytes()])), "transpose"),
        (codecs(json!([{"name": "transpose", "configuration": {"order": [0, 1, 3, 2]}}])), "no codec makes bytes"),
        (codecs(json!([{"name": "bytes"}])), "endian"),
        (codecs(json!([])), "no codec makes bytes"),
        (codecs(json!([bytes(), {"name": "blosc", "configuration": {"cname": "snappy"}}])), "snappy"),
        (shards(fine(), json!([{"name": "zstd"}])), "zstd over whole shards"),
        (shards(inner(json!([1, 1, 3, 1]), json!([bytes()]), json!([bytes()])), json!([])), "do not fit shards"),
        (shards(inner(json!([1, 1, 0, 1]), json!([bytes()]), json!([bytes()])), json!([])), "do not fit shards"),
        (shards(inner(json!([1, 1]), json!([bytes()]), json!([bytes()])), json!([])), "do not fit shards"),
        (shards(inner(json!([1, 1, 1, 1]), json!([bytes()]), json!([bytes(), "zstd"])), json!([])), "shard index"),
        (
            shards(inner(json!([1, 1, 1, 1]), json!([{"name": "sharding_indexed"}]), json!([bytes()])), json!([])),
            "shards in",
        ),
    ];
    let huge = 1_u64 << 40;
    let grid = |side: u64| json!({"name": "regular", "configuration": {"chunk_shape": [1, side, side, 1]}});
    let shape = |side: u64| ("shape", json!([2, side, side, 3]));
    refused.push((version_3(&[shape(huge), ("chunk_grid", grid(huge))]), "limit of 536870912"));
    refused.push((version_3(&[shape(u64::MAX), ("chunk_grid", grid(1))]), "more chunks"));
    refused.push((version_3(&[shape(1 << 31), ("chunk_grid", grid(u64::MAX))]), "limit of 536870912"));
    refused.push((version_3(&[shape(1 << 32), ("chunk_grid", grid(1 << 12))]), "rows and columns"));
    refused.push((v3("shape", json!([2, 5, 0, 3])), "rows and columns"));
    refused.push((v3("shape", json!([0, 5, 7, 3])), "with samples"));
    refused.push((v3("shape", json!([2, 5, 7, 65])), "1 to 64 channels"));
    for (folder, says) in refused {
        let error = ZarrArray::open(folder.path(), "nhwc").unwrap_err().to_string();
        assert!(error.contains(says), "{says} is not in: {error}");
    }
    let sound = v3("must_not", json!({"must_understand": false, "name": "x"}));
    assert!(ZarrArray::open(sound.path(), "nhwc").is_ok());
    for text in ["", "{", "[]", "7", "{\"zarr_format\": 3}", &"[".repeat(1 << 16)] {
        fs::write(sound.path().join("zarr.json"), text).unwrap();
        assert!(ZarrArray::open(sound.path(), "nhwc").is_err(), "{text:.20}");
    }
    fs::write(sound.path().join("zarr.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(ZarrArray::open(sound.path(), "nhwc").unwrap_err().to_string().contains("more than 1048576 bytes"));
    let empty = tempfile::tempdir().unwrap();
    assert!(ZarrArray::open(empty.path(), "nhwc").unwrap_err().is_parameter());
    fs::write(empty.path().join(".zgroup"), "{}").unwrap();
    assert!(ZarrArray::open(empty.path(), "nhwc").unwrap_err().to_string().contains("group"));
}

#[test]
fn huge_shapes_take_no_memory() {
    let side = u64::from(u32::MAX);
    let changes = [("shape", json!([1_u64 << 40, side, side])), ("chunks", json!([1, 64, 64]))];
    // More chunks than there are numbers.
    assert!(ZarrArray::open(version_2(&changes).path(), "nhw").is_err());
    let changes = [("shape", json!([1_u64 << 20, side, 64])), ("chunks", json!([1, 64, 64]))];
    let folder = version_2(&changes);
    let source = ZarrArray::open(folder.path(), "nhw").unwrap();
    assert_eq!(source.len(), 1 << 20);
    let mut planes = Planes::default();
    let corner = Rect { x: 60, y: u32::MAX - 2, width: 4, height: 2 };
    ZarrImage::new(&source.images, 1_048_575).decode(corner, &[0], &mut planes).unwrap();
    assert_eq!(planes.plane::<u16>(0), [9; 8]);
    assert!(matches!(source.encoded(0), Err(Error::Limits { .. })));
    assert!(source.with_labels(folder.path()).is_err());
}

#[test]
fn damaged_chunks_are_bad_samples_that_name_their_file() {
    let folder = version_2(&[]);
    let path = folder.path().join("0.1.0.0");
    let source = || ZarrArray::open(folder.path(), "nhwc").unwrap();
    for bytes in [&[0; 31][..], &[0; 33], &[], &[0; 5_000]] {
        fs::write(&path, bytes).unwrap();
        let error = source().encoded(0).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains("0.1.0.0: "), "{error}");
        assert!(source().encoded(1).is_ok());
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = source().encoded(0).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("0.1.0.0: "), "{error}");
    assert!(source().encoded(2).unwrap_err().is_parameter());
}

#[test]
fn folders_are_recognized_and_ask_for_axes() {
    let parent = version_2(&[]);
    let named = parent.path().join("x.zarr");
    fs::create_dir(&named).unwrap();
    fs::copy(parent.path().join(".zarray"), named.join(".zarray")).unwrap();
    for path in [parent.path(), &named] {
        let error = OpenOptions::default().open(path).err().unwrap().to_string();
        assert!(error.contains("axes") && error.contains("[2, 5, 7, 3]") && error.contains("nhwc"), "{error}");
        let source = OpenOptions::default().axes(Some("nhwc".to_owned())).open(path).unwrap().into_data_set().unwrap();
        assert_eq!((source.len(), source.has_labels()), (2, false));
    }
    let zarr = OpenOptions::default().axes(Some("nhwc".to_owned())).format(Some(SourceFormat::Zarr));
    assert!(zarr.open(&named).is_ok());
    for (options, says) in [
        (zarr.clone().window(Some(5)), "window"),
        (zarr.clone().split(Some("train".to_owned())), "split"),
        (zarr.clone().format(Some(SourceFormat::List)), "axes"),
        (zarr.clone().labels(Some(named.clone())), "one dimension"),
    ] {
        let error = options.open(&named).err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
    let error = zarr.open("s3://bucket/x.zarr").err().unwrap().to_string();
    assert!(error.contains("copy the array"), "{error}");
    let other = tempfile::tempdir().unwrap();
    let error = OpenOptions::default().labels(Some(named)).open(other.path()).err().unwrap().to_string();
    assert!(error.contains("labels") && error.contains("Zarr"), "{error}");
}

/// The hash of an array's values in their own type, from the images of a source.
fn hashed(source: &ZarrArray, dtype: &str) -> Result<String> {
    let mut hash = Sha256::new();
    for index in 0..source.len() {
        let (mut planes, image) = (Planes::default(), ZarrImage::new(&source.images, index));
        image.decode(Rect::full(image.header().size), all_bands(image.header().kind), &mut planes)?;
        let mut bytes = Vec::new();
        arrays::pixels(&planes, &mut bytes);
        if planes.kind().element == Element::F32 && dtype != "float32" {
            let floats = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
            bytes = match dtype {
                "int16" => floats.flat_map(|value| (value as i16).to_le_bytes()).collect(),
                "int8" => floats.flat_map(|value| (value as i8).to_le_bytes()).collect(),
                "float16" => floats.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
                other => panic!("{other}"),
            };
        }
        hash.update(bytes);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_arrays() {
    let shared = PathBuf::from(std::env::var_os("WARPFEED_SHARED").expect("WARPFEED_SHARED names a folder"));
    let folder = shared.join("reference/dtypes");
    let cases = fs::read_to_string(folder.join("files.jsonl")).unwrap();
    let cases = cases.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut seen = 0;
    for case in cases.filter(|case| case["file"].as_str().is_some_and(|file| file.ends_with(".zarr"))) {
        let path = folder.join(case["file"].as_str().unwrap());
        let metadata = Metadata::read(&path);
        // The form of a case with one image is [H, W, 1].
        let axes = metadata.as_ref().map_or("hw", |metadata| if metadata.shape.len() == 3 { "nhw" } else { "hw" });
        let dtype = case["want"]["dtype"].as_str().unwrap_or_default();
        let got = ZarrArray::open(&path, axes).and_then(|source| hashed(&source, dtype));
        match got {
            Ok(got) => assert_eq!(got, case["want"]["sha256"].as_str().unwrap_or("an error"), "{case}"),
            Err(error) => assert_eq!(case["kind"], "bad", "{case}: {error}"),
        }
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}
