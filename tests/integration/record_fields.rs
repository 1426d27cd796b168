//! Fields in shards: packed, written by other programs, and damaged.

use crate::common::{data_set, delivered_fields, jpeg, report};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use warpfeed::Result;
use warpfeed::fields::{
    AuxImage, BoxFormat, Boxes, Clamping, Field, Fields, KeyPoints, Mask, MaskValues, PointConvention,
};
use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
use warpfeed::ops::Interpolation;
use warpfeed::pack::{PackOptions, pack, verify};
use warpfeed::prelude::*;
use warpfeed::source::{
    Described, EncodedImages, Input, OpenOptions, RecordFormat, RecordOptions, SourceExt, WithFields,
};

const SIZE: Size = Size::new(20, 10);
const FORMATS: [RecordFormat; 2] = [RecordFormat::WebDataset, RecordFormat::TfRecord];
const NAMES: [&str; 11] =
    ["boxes", "labels", "area", "keypoints", "points", "masks", "mask", "ids-2", "depth", "range", "high"];

/// Fields of every kind, with numbers whose last bits are easily lost.
fn made(index: u64) -> Result<Fields> {
    let objects = index as usize % 4;
    let odd = |i: usize| f32::from_bits(0.1_f32.to_bits() + 977 * i as u32 + index as u32);
    let format = [BoxFormat::Cxcywh, BoxFormat::Xywh, BoxFormat::Xyxy][index as usize % 3];
    let row =
        |i: usize| Boxes::new(BoxFormat::Xyxy, vec![[odd(i), odd(i) * 3.0, 7.0 + odd(i), 9.5]]).to(format).rows()[0];
    let clamping = if index.is_multiple_of(2) { Clamping::Soft } else { Clamping::None };
    let area = [-0.0, f32::MIN_POSITIVE / 3.0, f32::MAX, 16_777_217.0];
    let points = (0..2 * objects).map(|i| [odd(i), -odd(i) * 1e-20]).collect();
    let visibility = (0..2 * objects).map(|i| (i % 3) as u8).collect();
    let pixels = SIZE.area_px() as usize;
    let planes = (0..objects).map(|i| (0..pixels).map(|at| u8::from(at % (i + 3) == 0)).collect());
    Fields::new()
        .with("boxes", Boxes::new(format, (0..objects).map(row).collect()).with_clamping(clamping))?
        .with("labels", [i64::MIN, 0, i64::MAX, 90][..objects].to_vec())?
        .with("area", area[..objects].to_vec())?
        .with("keypoints", KeyPoints::of_objects(2, points, visibility)?.flip_index([1, 0])?)?
        .with("points", KeyPoints::of_image(vec![[odd(1), 4.0]]).with_convention(PointConvention::PixelIndex))?
        .with("masks", Mask::of_objects(SIZE, planes)?.with_fill(1))?
        .with("mask", Mask::new(SIZE, (0..pixels).map(|at| (at * 321) as u16).collect::<Vec<_>>())?.with_fill(65_535))?
        .with("ids-2", vec![index as i64; objects])?
        .with("depth", Mask::new(SIZE, vec![index as u8; pixels])?)?
        .with("range", AuxImage::gray(SIZE, vec![700 + index as u16; pixels])?.with_fill(65_000))?
        .with("high", further(&[index as u8, 7, 200].repeat(4 * pixels))?)
}

/// An image in color of twice the size, with a filter of its own.
fn further(bytes: &[u8]) -> Result<AuxImage> {
    let twice = Size::new(2 * SIZE.width, 2 * SIZE.height);
    Ok(AuxImage::rgb(twice, bytes)?.with_interpolation(Interpolation::Bicubic))
}

fn source(count: u64) -> WithFields {
    EncodedImages::new((0..count).map(|i| (jpeg(SIZE.width, SIZE.height, i), 0)))
        .fields(NAMES, |sample: Described<'_>| made(sample.index))
}

fn packing(format: RecordFormat, names: &[&str]) -> PackOptions {
    PackOptions::new(format).fields(names.iter().map(|name| (*name).to_owned()).collect()).workers(2)
}

/// A pipeline that leaves images and fields as they are.
fn unchanged(source: impl Into<Input>, names: &[&str]) -> PipelineBuilder {
    unchanged_of(source, names, SIZE)
}

/// A pipeline that leaves images of this size and their fields as they are.
fn unchanged_of(source: impl Into<Input>, names: &[&str], size: Size) -> PipelineBuilder {
    Pipeline::builder(source).fields(names.iter().copied()).sanitize(false).transform(Resize::new(size)).batch_size(4)
}

#[test]
fn all_fields_are_packed_and_read_again_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let want: Vec<Fields> = (0..9).map(|index| made(index).unwrap()).collect();
    for format in FORMATS {
        let out = folder.path().join(format!("{format:?}/train"));
        let packed = pack(&source(9), &out, &packing(format, &NAMES), &mut |_| {}).unwrap();
        assert_eq!((packed.images, packed.bad_count), (9, 0), "{:?}", packed.bad);
        assert_eq!(delivered_fields(unchanged(data_set(&out), &NAMES)).unwrap(), want, "{format:?}");
        // Any of them alone, and together with a target.
        for name in NAMES {
            let alone = delivered_fields(unchanged(data_set(&out), &[name])).unwrap();
            assert!(alone.iter().zip(&want).all(|(a, b)| a.get(name) == b.get(name)), "{format:?} {name}");
        }
        // From front to back, in order and through a window.
        let options = |window| OpenOptions::default().window(Some(window));
        let stream = || options(1).open(&out).unwrap();
        assert_eq!(delivered_fields(unchanged(stream(), &NAMES)).unwrap(), want, "{format:?}");
        let shuffled = delivered_fields(unchanged(options(5).open(&out).unwrap(), &NAMES).shuffle(3)).unwrap();
        assert!(shuffled != want && want.iter().all(|fields| shuffled.contains(fields)), "{format:?}");
        // Packed again from the packed set, in the other format and back.
        let (other, again) = (out.with_extension("other"), out.with_extension("again"));
        let to = if format == FORMATS[0] { FORMATS[1] } else { FORMATS[0] };
        pack(&*data_set(&out), &other, &packing(to, &NAMES), &mut |_| {}).unwrap();
        pack(&*data_set(&other), &again, &packing(format, &NAMES), &mut |_| {}).unwrap();
        assert_eq!(delivered_fields(unchanged(data_set(&again), &NAMES)).unwrap(), want, "{format:?}");
    }
}

#[test]
fn the_memory_bound_counts_fields() {
    let memory = |names: &[&str]| unchanged(source(9), names).build().unwrap().memory();
    let (none, two) = (memory(&[]), memory(&["mask", "depth"]));
    let batches = two.batches_bytes / two.batch_bytes;
    assert_eq!((none.fields_bytes, two.fields_bytes), (0, batches * 4 * 2 * 2 * SIZE.area_px()));
}

#[test]
fn verify_finds_damage_in_fields() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("train");
    let packed = pack(&source(3), &out, &packing(RecordFormat::WebDataset, &["boxes", "mask"]), &mut |_| {}).unwrap();
    assert!(verify(&out, &mut |_| {}).unwrap().damaged.is_empty());
    let mut bytes = fs::read(&packed.shards[0]).unwrap();
    let at = bytes.windows(8).position(|part| part == b"\"values\"").unwrap();
    bytes[at + 12] ^= 1;
    fs::write(&packed.shards[0], bytes).unwrap();
    assert_eq!(verify(&out, &mut |_| {}).unwrap().damaged[0].path, packed.shards[0]);
}

#[test]
fn fields_follow_images_that_are_shrunk() {
    let folder = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let out = folder.path().join(format!("{format:?}"));
        let options = packing(format, &["boxes", "masks"]).max_side_px(Some(10));
        assert_eq!(pack(&source(4), &out, &options, &mut |_| {}).unwrap().shrunk, 4);
        let builder = Pipeline::builder(data_set(&out)).fields(["boxes", "masks"]).sanitize(false);
        let shrunk = delivered_fields(builder.transform(Resize::new(Size::new(10, 5)))).unwrap();
        let want = delivered_fields(unchanged(source(4), &["boxes", "masks"]).transform(Resize::new(Size::new(10, 5))))
            .unwrap();
        assert_eq!(shrunk, want);
    }
}

#[test]
fn what_a_format_cannot_hold_is_refused_or_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |options: PackOptions, message: &str| {
        let error = pack(&source(2), &folder.path().join("refused"), &options, &mut |_| {}).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(message), "{error}");
    };
    refused(packing(RecordFormat::RecordIo, &["boxes"]), "none for RecordIO");
    refused(packing(RecordFormat::TfRecord, &["boxes", "boxes"]), "each field once");
    refused(packing(RecordFormat::TfRecord, &["Boxes"]), "lower-case");
    for (format, target) in [
        (RecordFormat::WebDataset, "json.tags"),
        (RecordFormat::WebDataset, "mask.png"),
        (RecordFormat::TfRecord, "image/width"),
        (RecordFormat::TfRecord, "image/segmentation/class/encoded"),
    ] {
        refused(packing(format, &["mask"]).target(Some(target.into())), target);
    }
    for (name, field, message) in [
        ("area", Field::Floats(vec![f32::NAN]), "NaN"),
        ("boxes", Boxes::new(BoxFormat::Xyxy, vec![[1.0, 1.0, 0.5, 2.0]]).into(), "no box"),
        ("boxes", Boxes::new(BoxFormat::Xyxy, vec![[21.0, 1.0, 22.0, 2.0]]).into(), "outside the image"),
        ("mask", Mask::new(Size::new(2, 2), vec![0_u8; 4]).unwrap().into(), "2 x 2 pixels"),
    ] {
        let of = move |sample: Described<'_>| match sample.index {
            1 => Fields::new().with(name, field.clone()),
            index => made(index + 1),
        };
        let images = EncodedImages::new((0..3).map(|i| (jpeg(SIZE.width, SIZE.height, i), 0)));
        let out = folder.path().join(format!("{name} {message}"));
        let packed = pack(&images.fields([name], of), &out, &packing(RecordFormat::TfRecord, &[name]), &mut |_| {});
        let packed = packed.unwrap();
        assert_eq!((packed.images, packed.bad[0].index), (2, 1));
        assert!(packed.bad[0].error.contains(message), "{:?}", packed.bad);
    }
}

fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block.extend(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// A tar shard with one image of 20 x 10 pixels and these parts.
fn tar(folder: &Path, parts: &[(&str, Vec<u8>)]) -> PathBuf {
    let path = folder.join("shard.tar");
    let mut bytes = member("a.jpg", &jpeg(SIZE.width, SIZE.height, 1));
    for (ending, content) in parts {
        bytes.extend(member(&format!("a.{ending}"), content));
    }
    bytes.extend([0; 1024]);
    fs::write(&path, bytes).unwrap();
    path
}

fn opened(path: &Path, boxes: Option<BoxFormat>) -> Input {
    let classes = vec!["cat".to_owned(), "dog".to_owned()];
    let label = Some("none".to_owned());
    let records = RecordOptions::default().boxes(boxes).classes(classes).label(label).keep_index(false);
    OpenOptions::default().records(records).open(path).unwrap()
}

/// The fields of the only sample, by index and from front to back, which must agree.
fn only(path: &Path, boxes: Option<BoxFormat>, names: &[&str]) -> Result<Fields> {
    only_of(path, boxes, names, SIZE)
}

/// The fields of the only sample, whose upright image has this size.
fn only_of(path: &Path, boxes: Option<BoxFormat>, names: &[&str], size: Size) -> Result<Fields> {
    let by_index = delivered_fields(unchanged_of(opened(path, boxes), names, size));
    let classes = vec!["cat".to_owned(), "dog".to_owned()];
    let records = RecordOptions::default().boxes(boxes).classes(classes).label(Some("none".to_owned()));
    let stream = OpenOptions::default().records(records).window(Some(1)).open(path).unwrap();
    match (by_index, delivered_fields(unchanged_of(stream, names, size))) {
        (Ok(mut a), Ok(b)) => {
            assert_eq!(a, b);
            Ok(a.remove(0))
        }
        (Err(a), Err(b)) => {
            assert_eq!(a.to_string(), b.to_string());
            Err(a)
        }
        (a, b) => panic!("{a:?} {b:?}"),
    }
}

fn png(size: Size, values: impl Into<MaskValues>) -> Vec<u8> {
    Mask::new(size, values).unwrap().to_png(0).unwrap()
}

#[test]
fn lists_in_json_and_mask_parts_are_fields() {
    let folder = tempfile::tempdir().unwrap();
    let square = json!([[1, 1, 4, 1, 4, 3, 1, 3]]);
    let runs = json!({"size": [10, 20], "counts": [21, 3, 176]});
    let text = json!({
        "label": 0, "boxes": [[2, 2, 6, 4], [0.5, 0, 1, 1]], "labels": ["dog", "cat"], "area": [1, 2.5], "ids": [7, -8],
        "masks": [square, runs], "keypoints": {"per_object": 1, "values": [[1, 2], [3.5, 4]], "visibility": [2, 1]},
        "caption": "two",
    });
    let mask = png(SIZE, vec![9_u8; 200]);
    let path = tar(folder.path(), &[("json", text.to_string().into_bytes()), ("mask.png", mask)]);
    let names = ["boxes", "labels", "area", "ids", "masks", "keypoints", "mask"];
    let found = only(&path, Some(BoxFormat::Xywh), &names).unwrap();
    assert_eq!(found.boxes().unwrap().to(BoxFormat::Xyxy).rows(), [[2.0, 2.0, 8.0, 6.0], [0.5, 0.0, 1.5, 1.0]]);
    assert_eq!(found.get("labels"), Some(&Field::Integers(vec![1, 0])));
    assert_eq!(found.get("area"), Some(&Field::Floats(vec![1.0, 2.5])));
    assert_eq!(found.get("ids"), Some(&Field::Integers(vec![7, -8])));
    let (Some(Field::Mask(mask)), Some(Field::Mask(masks))) = (found.get("mask"), found.get("masks")) else {
        panic!("{found:?}")
    };
    assert_eq!((mask.fill(), &*mask.planes()[0]), (255, &MaskValues::U8(vec![9; 200])));
    let count = |i: usize| match &*masks.planes()[i] {
        MaskValues::U8(values) => (values.iter().position(|v| *v == 1), values.iter().filter(|v| **v == 1).count()),
        other => panic!("{other:?}"),
    };
    assert_eq!([count(0), count(1)], [(Some(21), 6), (Some(22), 3)]);
    let Some(Field::KeyPoints(points)) = found.get("keypoints") else { panic!("{found:?}") };
    assert_eq!((points.points()[1], points.visibility()), ([3.5, 4.0], &[2, 1][..]));
    // The data do not say what their boxes mean.
    let error = only(&path, None, &["boxes"]).unwrap_err();
    assert!(!error.is_bad_sample() && error.to_string().contains("CXCYWH"), "{error}");
    let error = only(&path, None, &["depth"]).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("has none"), "{error}");
}

#[test]
fn annotations_that_are_wrong_make_their_sample_bad_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let boxes = |rows: Value| json!({ "boxes": { "format": "XYXY", "values": rows } });
    for (text, field, message) in [
        (json!({"boxes": [[1, 2, 3]]}), "boxes", "object 0: its box is not of 4 numbers"),
        (boxes(json!([[1, 1, 0, 2]])), "boxes", "object 0: [1.0, 1.0, 0.0, 2.0] is no box"),
        (boxes(json!([[1, 1, 1e60, 2]])), "boxes", "is no box"),
        (boxes(json!([[0, 0, 1, 1], [21, 1, 22, 2]])), "boxes", "object 1: the box [21.0"),
        (boxes(json!([[1, 1, null, 2]])), "boxes", "null"),
        (json!({"labels": ["cat", "zebra"]}), "labels", "object 1: \"zebra\" is not among"),
        (json!({"labels": [1, true]}), "labels", "object 1: true"),
        (json!({"labels": 7}), "labels", "neither a list"),
        (json!({"masks": [[[1, 2, 3, 4]]]}), "masks", "object 0: it has a polygon of fewer"),
        (json!({"masks": [{"size": [20, 10], "counts": [200]}]}), "masks", "object 0: its run lengths are of 10 x 20"),
        (json!({"mask": {"fill": 1}}), "mask", "no part mask.png"),
        (json!({"keypoints": {"per_object": 2, "values": [[1, 2]]}}), "keypoints", "points"),
        (json!({"keypoints": {"values": [[1, 2]], "visibility": [3]}}), "keypoints", "visibility"),
        (json!({"warpfeed": {"size": [10, 20]}, "labels": []}), "labels", "of an image of 10 x 20 pixels"),
    ] {
        let path = tar(folder.path(), &[("json", text.to_string().into_bytes())]);
        let error = only(&path, Some(BoxFormat::Xyxy), &[field]).unwrap_err();
        let said = error.to_string();
        assert!(error.is_bad_sample() && said.contains(message) && said.contains("shard.tar/a.jpg"), "{text}: {said}");
    }
    // Fields that contradict each other, and parts that are damaged.
    let rows = json!({"labels": [1, 2, 3], "ids": [1, 2]}).to_string().into_bytes();
    for (parts, names, message) in [
        (vec![("json", rows)], vec!["labels", "ids"], "it has 2 rows, and other fields have 3"),
        (vec![("json", b"{\"labels\": [".to_vec())], vec!["labels"], "its JSON is damaged"),
        (
            vec![("mask.png", png(Size::new(10, 20), vec![0_u8; 200]))],
            vec!["mask"],
            "an image of 10 x 20 pixels, which has 20 x 10",
        ),
        (vec![("mask.png", b"no PNG".to_vec())], vec!["mask"], "mask.png"),
    ] {
        // The label comes first, so that it is not looked for in the JSON.
        let path = tar(folder.path(), &[vec![("cls", b"0".to_vec())], parts].concat());
        let error = only(&path, None, &names).unwrap_err();
        let said = error.to_string();
        assert!(error.is_bad_sample() && said.contains(message) && said.contains("shard.tar/a.jpg"), "{said}");
    }
}

#[test]
fn tensorflows_features_are_fields() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("train");
    pack(&source(4), &out, &packing(RecordFormat::TfRecord, &NAMES), &mut |_| {}).unwrap();
    // Without its own JSON a record has what other programs read.
    let shard = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let shard = shard.into_iter().find(|path| path.extension().is_some_and(|end| end == "tfrecord")).unwrap();
    let without = foreign(&fs::read(&shard).unwrap(), b"warpfeed/fields");
    let path = folder.path().join("foreign.tfrecord");
    fs::write(&path, without).unwrap();
    let names = ["boxes", "labels", "area", "keypoints", "masks", "mask", "depth"];
    let found = delivered_fields(unchanged(data_set(&path), &names)).unwrap();
    for (index, fields) in found.iter().enumerate() {
        let want = made(index as u64).unwrap();
        assert_eq!(fields.get("labels"), want.get("labels"));
        assert_eq!(fields.get("area"), want.get("area"));
        let (own, all) = (fields.boxes().unwrap(), want.boxes().unwrap().to(BoxFormat::Xyxy));
        assert_eq!((own.len(), own.format()), (index, BoxFormat::Xyxy));
        let near = |(a, b): (&[f32; 4], &[f32; 4])| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(own.rows().iter().zip(all.rows()).all(near), "{own:?}");
        let (Some(Field::KeyPoints(own)), Some(Field::KeyPoints(all))) =
            (fields.get("keypoints"), want.get("keypoints"))
        else {
            panic!("{fields:?}")
        };
        assert_eq!((own.objects(), own.visibility()), (all.objects(), all.visibility()));
        for ((own, want), seen) in own.points().iter().zip(all.points()).zip(all.visibility()) {
            let want = if *seen == 0 { [0.0; 2] } else { *want };
            assert!(own.iter().zip(want).all(|(own, want)| (own - want).abs() < 1e-5), "{own:?} {want:?}");
        }
        for name in ["masks", "mask", "depth"] {
            let (Some(Field::Mask(own)), Some(Field::Mask(want))) = (fields.get(name), want.get(name)) else {
                panic!("{fields:?}")
            };
            assert_eq!((own.planes(), own.is_of_objects()), (want.planes(), want.is_of_objects()), "{name}");
            assert_eq!(own.fill(), if name == "masks" { 0 } else { 255 });
        }
    }
    // A column too few.
    let without = foreign(&fs::read(&path).unwrap(), b"image/object/bbox/ymax");
    fs::write(&path, without).unwrap();
    let error = delivered_fields(unchanged(data_set(&path), &["boxes"])).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("no feature image/object/bbox/ymax"), "{error}");
}

#[test]
fn the_stated_size_says_which_image_fields_are_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shard.tar");
    let options = JpegOptions { orientation: Some(6), ..JpegOptions::default() };
    let image = encode_jpeg(&Image::new(SIZE), &options).unwrap();
    let found = |stated: Value, mask: Size| {
        let mut text = json!({"boxes": [[1, 2, 4, 8]], "masks": [[[1, 2, 4, 2, 4, 8, 1, 8]]], "keypoints":
            {"per_object": 1, "values": [[1, 2]]}});
        for (name, side) in stated.as_object().unwrap() {
            text[name] = side.clone();
        }
        let mask = png(mask, (0..200).map(|at| at as u8).collect::<Vec<u8>>());
        let parts =
            [member("a.jpg", &image), member("a.json", text.to_string().as_bytes()), member("a.mask.png", &mask)];
        fs::write(&path, [&parts.concat()[..], &[0; 1024]].concat()).unwrap();
        only_of(&path, Some(BoxFormat::Xyxy), &["boxes", "masks", "keypoints", "mask"], Size::new(10, 20))
    };
    // The pipeline turns all to the upright image, 10 x 20 pixels, where they lie as written.
    let upright = Size::new(10, 20);
    let turned = found(json!({"width": 10, "height": 20.0}), upright).unwrap();
    assert_eq!(turned.boxes().unwrap().rows(), [[1.0, 2.0, 4.0, 8.0]]);
    let (Some(Field::KeyPoints(points)), Some(Field::Mask(mask)), Some(Field::Mask(masks))) =
        (turned.get("keypoints"), turned.get("mask"), turned.get("masks"))
    else {
        panic!("{turned:?}")
    };
    assert_eq!((points.points(), mask.size()), (&[[1.0, 2.0]][..], upright));
    assert_eq!(*mask.planes()[0], MaskValues::U8((0..200).collect()));
    let inside = |at: u8| u8::from((1..4).contains(&(at % 10)) && (2..8).contains(&(at / 10)));
    assert_eq!(*masks.planes()[0], MaskValues::U8((0..200).map(inside).collect()));
    // The stored image's (x, y) is at (10 - y, x) in the upright one. A mask has a size of its own.
    for stated in [json!({"width": 20, "height": 10}), json!({}), json!({"width": null, "height": [10]})] {
        for size in [SIZE, upright] {
            let stored = found(stated.clone(), size).unwrap();
            assert_eq!(stored.boxes().unwrap().rows(), [[2.0, 1.0, 8.0, 4.0]], "{stated}");
            let Some(Field::Mask(mask)) = stored.get("mask") else { panic!("{stored:?}") };
            assert_eq!(mask.size(), upright);
        }
    }
    for (stated, message) in [
        (json!({"width": 40, "height": 20}), "of 40 x 20 pixels, which has 20 x 10, 10 x 20 upright"),
        (json!({"width": 0, "height": 20}), "of an image of 0 x 20 pixels"),
        (json!({"warpfeed": {"size": [10, 10]}, "width": 20, "height": 10}), "of 10 x 10 pixels"),
    ] {
        let error = found(stated, SIZE).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains(message), "{error}");
        assert!(error.to_string().contains("shard.tar/a.jpg"), "{error}");
    }
}

/// TFRecords in which the feature `name` has another name of the same length.
fn foreign(records: &[u8], name: &[u8]) -> Vec<u8> {
    let masked = |data: &[u8]| {
        let crc = !data.iter().fold(!0_u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
        });
        crc.rotate_right(15).wrapping_add(0xa282_ead8)
    };
    let (mut rest, mut out) = (records, Vec::new());
    while let Some((head, after)) = rest.split_first_chunk::<12>() {
        let len = u64::from_le_bytes(head[..8].try_into().unwrap()) as usize;
        let mut data = after[..len].to_vec();
        let at = data.windows(name.len()).position(|part| part == name).unwrap();
        data[at] = b'x';
        out.extend(head);
        out.extend(&data);
        out.extend(masked(&data).to_le_bytes());
        rest = &after[len + 4..];
    }
    out
}

#[test]
fn the_command_packs_fields_and_the_digest_stays() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    for i in 0..3_u64 {
        fs::write(images.join(format!("{i}.jpg")), jpeg(30 + i as u32, 20, i)).unwrap();
    }
    let image = |i: u32| json!({"id": i, "file_name": format!("{i}.jpg"), "width": 30 + i, "height": 20});
    let outline = json!([[2, 2, 8.3, 2, 8.3, 6.7, 2, 6.7]]);
    let object = |id: u32, image: u32, category: u32| {
        let bbox = [2.0, 2.0, 6.3, 4.7];
        json!({"id": id, "image_id": image, "category_id": category, "bbox": bbox, "area": 29.61, "segmentation": outline,
            "keypoints": [3, 3, 2, 5, 5, 1]})
    };
    let annotations = folder.path().join("instances.json");
    let all = json!({"images": [image(0), image(1), image(2)], "annotations": [object(5, 1, 9), object(6, 1, 3), object(7, 2, 9)],
        "categories": [{"id": 3, "name": "cat"}, {"id": 9, "name": "dog", "keypoints": ["left_eye", "right_eye"]}]});
    fs::write(&annotations, all.to_string()).unwrap();
    let command = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_warpfeed")).args(args).output().unwrap();
    let [images, annotations] = [&images, &annotations].map(|path| path.to_str().unwrap());
    // Depth images, and images of another resolution with a filter of their own.
    for i in 0..3_u8 {
        let (size, name) = (Size::new(30 + u32::from(i), 20), format!("{i}.png"));
        let depth = AuxImage::gray(size, vec![900 + u16::from(i); size.area_px() as usize]).unwrap();
        let twice = Size::new(2 * size.width, 2 * size.height);
        let high = AuxImage::rgb(twice, &[i, 40, 9].repeat(twice.area_px() as usize)).unwrap();
        for (name, image) in [(format!("depth/{i}.png"), depth), (format!("high/{name}"), high)] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, image.to_png().unwrap()).unwrap();
        }
    }
    let beside = |name: &str, more: &str| format!("{name}={}{more}", folder.path().join(name).display());
    let (depth, high) = (beside("depth", ""), beside("high", ",lanczos"));
    let fields = "boxes,labels,masks,keypoints,area,ids,category_ids,depth,high";
    let run = ["--preset", "ssd", "--fields", fields, "--digest", "--json"];
    let coco = ["--annotations", annotations, "--aux", &depth, "--aux", &high];
    let want = report(&command(&[&["run", images, "--format", "coco"], &coco[..], &run[..]].concat()));
    for format in ["webdataset", "tfrecord"] {
        let out = folder.path().join(format);
        let out = out.to_str().unwrap();
        let packing = ["pack", images, "-o", out, "--from", "coco", "--format", format, "--fields", fields, "--json"];
        assert_eq!(report(&command(&[&packing[..], &coco[..]].concat()))["images"], 3);
        let got = report(&command(&[&["run", out], &run[..]].concat()));
        assert_eq!((&got["digest"], &got["images"]), (&want["digest"], &want["images"]), "{format}");
        let source = OpenOptions::default().open(out).unwrap();
        assert_eq!(source.classes(), ["cat", "dog"]);
        assert!(command(&["pack", "--verify", out]).status.success());
    }
    // They are not fields of shards to come.
    let refused = command(&["run", folder.path().join("tfrecord").to_str().unwrap(), "--aux", &depth]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("files in a folder"), "{message}");
    // An image without depth is a bad sample, which names both files.
    fs::remove_file(folder.path().join("depth/1.png")).unwrap();
    let run = ["--preset", "eval", "--fields", "depth", "--json", "--on-error", "skip"];
    let report = report(&command(&[&["run", images, "--format", "coco"], &coco[..], &run[..]].concat()));
    let bad = report["bad"][0]["error"].as_str().unwrap().to_owned();
    assert!(report["bad_count"] == 1 && bad.contains("depth/1") && bad.contains("images/1.jpg"), "{report}");
}
