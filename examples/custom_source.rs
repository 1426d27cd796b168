//! A custom source: many images packed into one block of memory.

use std::borrow::Cow;
use std::ops::Range;
use warpfeed::ops::random_resized_crop;
use warpfeed::{
    DType, Error, Layout, Pipeline, Result,
    image::{Image, JpegOptions, Size, encode_jpeg},
    source::{ReadRequest, Sample, Source},
};

/// Encoded images one after the other, and their places.
struct Packed {
    bytes: Vec<u8>,
    places: Vec<(Range<usize>, u32)>,
    classes: Vec<String>,
}

impl Packed {
    fn push(&mut self, image: &[u8], label: u32) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(image);
        self.places.push((start..self.bytes.len(), label));
    }
}

impl Source for Packed {
    fn len(&self) -> u64 {
        self.places.len() as u64
    }

    /// Lends the bytes of the block. A source that must read into memory uses [`Sample::buffer`].
    fn read<'a>(&'a self, index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let (place, _) = self.places.get(index as usize).ok_or_else(|| Error::Parameter {
            operation: "Packed::read",
            parameter: "index",
            expected: format!("below {}", self.len()),
            got: index.to_string(),
        })?;
        sample.lend(&self.bytes[place.clone()]);
        Ok(())
    }

    fn label(&self, index: u64) -> Option<u32> {
        Some(self.places[index as usize].1)
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("packed image {index}").into()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }
}

fn main() -> Result<()> {
    let classes = ["disc", "box", "triangle"];
    let mut packed = Packed { bytes: Vec::new(), places: Vec::new(), classes: classes.map(str::to_owned).into() };
    for index in 0..12 {
        let label = index % 3;
        let image = Image::new(Size::new(120 + index, 100));
        packed.push(&encode_jpeg(&image, &JpegOptions::default())?, label);
    }
    let pipeline = Pipeline::builder(packed)
        .batch_size(4)
        .shuffle(1)
        .transform(random_resized_crop(96))
        .output(DType::U8, Layout::Nhwc)
        .build()?;
    let mut seen = 0;
    for batch in pipeline.epoch(0) {
        let batch = batch?;
        for (index, &label) in batch.indices().iter().zip(batch.labels()?) {
            println!("packed image {index} is a {}", pipeline.classes()[label as usize]);
        }
        seen += batch.len();
    }
    println!("{seen} images of {}", pipeline.image_size());
    Ok(())
}
