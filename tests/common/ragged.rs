//! A pipeline whose images each keep the size that the operations give them.

use warpfeed::{
    Batch, Builder, DType, Layout, Pipeline, Result, Tensor,
    ops::{Resize, Rotate},
    prelude::{color_jitter, maybe, random_horizontal_flip},
    source::Input,
};

/// Of bytes; one in two is turned and grows by it.
pub fn builder(source: impl Into<Input>) -> Builder {
    Pipeline::builder(source)
        .shuffle(7)
        .threads(2)
        .batch_size(5)
        .output(DType::U8, Layout::Nhwc)
        .augment(maybe(0.5, [Rotate::new(30.0).expand(true).into()]))
        .augment(Resize::shorter_side(20))
        .augment(random_horizontal_flip(0.5))
        .augment(color_jitter(0.4, 0.4, 0.2, 0.1))
}

/// An image as it was delivered: index, label, shape and bytes.
pub type Delivered = (u64, u32, [usize; 4], Vec<u8>);

/// The images of a batch, padding included.
pub fn images(batch: &Batch<Vec<Tensor>>) -> Vec<Delivered> {
    assert_eq!((batch.images().len(), batch.indices().len()), (batch.len(), batch.len()));
    let image = |i: usize| {
        let image = batch.images()[i].to_host().unwrap();
        (batch.indices()[i], batch.labels()[i], image.shape(), image.as_bytes().unwrap().to_vec())
    };
    (0..batch.len()).map(image).collect()
}

pub fn delivered(epoch: impl Iterator<Item = Result<Batch<Vec<Tensor>>>>) -> Vec<Delivered> {
    epoch.flat_map(|batch| images(&batch.unwrap())).collect()
}
