//! Texts that people and programs write: targets, transforms and contracts.

use crate::{MAX_AREA_PX, file};
use std::fs;
use warpfeed::ops::CenterCrop;
use warpfeed::{
    BadLimit, OnError, Pipeline, Target, TargetSpec,
    contract::Contract,
    image::{Image, JpegOptions, Size, encode_jpeg},
    ops::TransformFile,
    source::{EncodedImages, ImageFolder, Source},
};

/// Limit of the memory for a pipeline's batches.
const MAX_BATCHES_BYTES: u64 = 1 << 24;

fn jpeg() -> Vec<u8> {
    encode_jpeg(&Image::new(Size::new(20, 15)), &JpegOptions::default()).expect("a JPEG")
}

/// Reads the first line as a description of targets and the rest as a sample's target. The target must have that form,
/// or make the sample a bad one.
pub fn targets(data: &[u8]) {
    let (spec, target) = data.split_at(data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len()));
    let Ok(Ok(spec)) = std::str::from_utf8(spec).map(str::parse::<TargetSpec>) else { return };
    assert_eq!(spec.to_string().parse::<TargetSpec>().as_ref().ok(), Some(&spec), "{spec}");
    let target = Target::Bytes(target.get(1..).unwrap_or_default().to_vec());
    let source = EncodedImages::new([(jpeg(), 0)]).with_targets("field", [target]).expect("as many as images");
    let pipeline = Pipeline::builder(source)
        .threads(0)
        .batch_size(1)
        .transform(CenterCrop::new(8))
        .on_error(OnError::Skip)
        .max_bad(BadLimit::Count(2));
    let pipeline = pipeline.targets(spec.field("field")).build().expect("a good pipeline");
    if pipeline.memory().batches_bytes > MAX_BATCHES_BYTES {
        return;
    }
    let mut epoch = pipeline.epoch(0);
    let given = epoch.by_ref().map(|batch| batch.expect("a bad target ends no epoch").len() as u64).sum::<u64>();
    assert_eq!(given + epoch.stats().bad, 1);
}

/// Reads tables next to the images of a folder, as CSV and as JSON lines.
pub fn metadata(data: &[u8]) {
    let folder = file("a.jpg", b"").with_file_name("table");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("a.jpg"), b"").expect("an image");
    for name in ["metadata.csv", "metadata.jsonl"] {
        fs::write(folder.join(name), data).expect("the file can be written");
        let source = ImageFolder::open(&folder).expect("a folder with an image");
        for field in ["file_name", "box"] {
            if let Err(error) = source.target(0, field) {
                assert!(error.is_bad_sample() || error.is_parameter(), "{error}");
            }
        }
        fs::remove_file(folder.join(name)).expect("the file is ours");
    }
}

/// Reads a contract. Whatever is read is written and read again as the same.
pub fn contract(data: &[u8]) {
    let Ok(Ok(contract)) = std::str::from_utf8(data).map(|text| Contract::parse(text, "input")) else { return };
    let text = contract.to_json().expect("what was read can be written");
    assert_eq!(Contract::parse(&text, "output").ok().as_ref(), Some(&contract));
}

/// Reads a file of transforms. A pipeline then draws and runs them.
pub fn transforms(data: &[u8]) {
    let Ok(written) = TransformFile::read(file("transforms.json", data)) else { return };
    let source = EncodedImages::new([(jpeg(), 0), (jpeg(), 1)]);
    let pipeline = Pipeline::builder(source)
        .threads(0)
        .batch_size(2)
        .max_pixels(MAX_AREA_PX)
        .on_error(OnError::Skip)
        .max_bad(BadLimit::Count(2));
    let Ok(pipeline) = pipeline.transforms(written).build() else { return };
    if pipeline.memory().batches_bytes > MAX_BATCHES_BYTES {
        return;
    }
    for batch in pipeline.epoch(0).take_while(Result::is_ok) {
        assert!(batch.is_ok_and(|batch| batch.len() <= 2));
    }
}
