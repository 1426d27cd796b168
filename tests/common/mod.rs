//! Images, random numbers and readers that the tests share.

#![allow(dead_code)]

pub mod npy;
pub mod ragged;
pub mod recipes;
pub mod views;

use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use warpfeed::{
    ApplyOptions, Batch, DType, Device, Error, Layout, Pipeline, PipelineBuilder, Result,
    fields::Fields,
    image::{ChromaSampling, Image, JpegOptions, Size, encode_jpeg},
    ops::{Op, random_horizontal_flip, random_resized_crop, random_rotation},
    source::{EncodedImages, Input, ReadRequest, Sample, Source, open},
};

/// The SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A small generator for tests: xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A whole number in a range, its end included.
    pub fn within(&mut self, low: u32, high: u32) -> u32 {
        low + (self.next() >> 32) as u32 % (high - low + 1)
    }

    pub fn real(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Gradients and noise.
pub fn image(width: u32, height: u32, seed: u64) -> Image {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut image = Image::new(Size::new(width, height));
    for y in 0..height {
        for (x, pixel) in (0..width).zip(image.row_mut(y)) {
            let noise = random.next();
            let at = |v: u32| (v as u64 * (seed % 5 + 1)) as u8;
            *pixel = [
                at(x).wrapping_add(noise as u8 & 31),
                at(y).wrapping_add((noise >> 8) as u8 & 31),
                at(x + y).wrapping_add((noise >> 16) as u8 & 63),
                255,
            ];
        }
    }
    image
}

pub fn jpeg(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let sampling = if seed.is_multiple_of(2) { ChromaSampling::S420 } else { ChromaSampling::S444 };
    encode_jpeg(&image(width, height, seed), &JpegOptions { quality: 90, sampling, ..JpegOptions::default() }).unwrap()
}

/// Options for results as operations make them: bytes `[1, H, W, 3]`, or, if `ops` normalize, f32 `[1, 3, H, W]`.
pub fn as_made(ops: &[Op]) -> ApplyOptions {
    let normalize = ops.iter().any(|op| matches!(op, Op::Normalize(_) | Op::ToFloat(_)));
    let (dtype, layout) = if normalize { (DType::F32, Layout::Nchw) } else { (DType::U8, Layout::Nhwc) };
    ApplyOptions::default().dtype(dtype).layout(layout)
}

/// `count` small JPEGs of various sizes, ten labels.
pub fn source(count: u64) -> EncodedImages {
    EncodedImages::new((0..count).map(|i| {
        let mut random = Random(i + 1);
        (jpeg(random.within(30, 90), random.within(30, 90), i), (i % 10) as u32)
    }))
}

/// A pipeline over `source` that exercises order, random draws and pixels at little cost: 24 x 20 pixels.
pub fn small(source: impl Into<Input>) -> PipelineBuilder {
    Pipeline::builder(source)
        .shuffle(7)
        .threads(2)
        .batch_size(5)
        .transform(random_horizontal_flip(0.5))
        .transform(random_rotation(-20.0..=20.0))
        .transform(random_resized_crop(Size::new(24, 20)))
}

/// A cheap pipeline with random draws, in the source's own order.
pub fn in_order(source: impl Into<Input>) -> PipelineBuilder {
    Pipeline::builder(source)
        .seed(7)
        .threads(2)
        .batch_size(4)
        .transform(random_horizontal_flip(0.5))
        .transform(random_resized_crop(Size::new(24, 20)))
}

pub fn on_cpu(builder: PipelineBuilder) -> Pipeline {
    builder.device(Device::Cpu).build().unwrap()
}

pub fn data_set(path: &Path) -> Arc<dyn Source> {
    open(path).unwrap().into_data_set().unwrap()
}

/// A sample as it was delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivered {
    pub index: u64,
    pub label: u32,
    pub bytes: Vec<u8>,
}

/// The samples of a batch, padding left out.
pub fn samples(batch: &Batch) -> Vec<Delivered> {
    let images = batch.images().to_host().unwrap();
    (0..batch.len() - batch.padding())
        .map(|i| Delivered {
            index: batch.indices()[i],
            label: batch.labels().unwrap()[i],
            bytes: images.image_bytes(i).unwrap().to_vec(),
        })
        .collect()
}

/// Every sample of these batches, in order.
pub fn all(batches: impl Iterator<Item = Result<Batch>>) -> Vec<Delivered> {
    batches.flat_map(|batch| samples(&batch.unwrap())).collect()
}

/// Every sample of an epoch, in order.
pub fn delivered(pipeline: &Pipeline, epoch: u64) -> Vec<Delivered> {
    all(pipeline.epoch(epoch))
}

/// Every sample of an epoch of the pipeline that a builder makes.
pub fn built_epoch(builder: PipelineBuilder, epoch: u64) -> Vec<Delivered> {
    delivered(&builder.build().unwrap(), epoch)
}

/// The batches' fields of epoch 0, unshuffled, sample by sample.
pub fn delivered_fields(builder: PipelineBuilder) -> Result<Vec<Fields>> {
    let pipeline = builder.build()?;
    let mut all = Vec::new();
    for batch in pipeline.epoch(0) {
        let batch = batch?;
        let fields = batch.fields(0).unwrap();
        all.extend((0..fields.len()).map(|i| fields.image(i).unwrap().clone()));
    }
    Ok(all)
}

/// The JSON that a command printed, which must have succeeded.
pub fn report(output: &std::process::Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The files of a folder, by their names.
pub fn files(folder: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

/// Images; a function is called before each is read, and may fail.
pub struct Asking<F>(pub EncodedImages, pub F);

impl<F: Fn(u64, &ReadRequest<'_>) -> Result<()> + Send + Sync> Source for Asking<F> {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        (self.1)(index, want)?;
        self.0.read(index, want, sample)
    }
    fn label(&self, index: u64) -> Option<u32> {
        self.0.label(index)
    }
    fn name(&self, index: u64) -> Cow<'_, str> {
        self.0.name(index)
    }
    fn classes(&self) -> &[String] {
        self.0.classes()
    }
}

/// The error of the operating system with this number, met when an image's file was opened.
pub fn cannot_open(index: u64, number: i32) -> Error {
    let source = std::io::Error::from_raw_os_error(number);
    Error::Io { action: "open", path: format!("images/{index}.jpg").into(), source: source.into() }
}

/// A source whose samples at some positions cannot be decoded.
pub struct WithBad {
    pub good: EncodedImages,
    pub bad: Vec<u64>,
}

impl Source for WithBad {
    fn len(&self) -> u64 {
        self.good.len()
    }
    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        self.good.read(index, want, sample)?;
        if self.bad.contains(&index) {
            sample.keep(0..sample.bytes().len() / 2);
        }
        Ok(())
    }
    fn label(&self, index: u64) -> Option<u32> {
        self.good.label(index)
    }
    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("folder/{index}.jpg").into()
    }
}
