//! A pipeline whose images have different sizes.

use warpfeed::{
    Batch, DType, FieldValues, Layout, PaddedImages, Pipeline, PipelineBuilder, Result, Tensor,
    image::Size,
    ops::{Resize, Rotate},
    prelude::{color_jitter, maybe, random_horizontal_flip},
    source::Input,
};

/// A pipeline of bytes; one image in two is turned and grows by it.
pub fn builder(source: impl Into<Input>) -> PipelineBuilder {
    Pipeline::builder(source)
        .shuffle(7)
        .threads(2)
        .batch_size(5)
        .output(DType::U8, Layout::Nhwc)
        .transform(maybe(0.5, [Rotate::new(30.0).expand(true).into()]))
        .transform(Resize::shorter_side(20))
        .transform(random_horizontal_flip(0.5))
        .transform(color_jitter(0.4, 0.4, 0.2, 0.1))
}

/// An image as it was delivered: index, label, shape and bytes.
pub type Delivered = (u64, u32, [usize; 4], Vec<u8>);

/// The images of a batch, padding included.
pub fn images(batch: &Batch<Vec<Tensor>>) -> Vec<Delivered> {
    assert_eq!((batch.images().len(), batch.indices().len()), (batch.len(), batch.len()));
    let image = |i: usize| {
        let image = batch.images()[i].to_host().unwrap();
        (batch.indices()[i], batch.labels().unwrap()[i], image.shape(), image.as_bytes().unwrap().to_vec())
    };
    (0..batch.len()).map(image).collect()
}

/// The images of a padded batch, padding of the batch included, without the zeros to the right of and below them.
pub fn padded_images(batch: &Batch<PaddedImages>, divisor: usize) -> Vec<Delivered> {
    let images = batch.images();
    let (host, mask) = (images.tensor().to_host().unwrap(), images.pixel_mask());
    let (bytes, element) = (host.as_bytes().unwrap(), host.dtype().size_bytes());
    let nchw = host.layout() == Layout::Nchw;
    let [n, a, b, c] = host.shape();
    let (height, width, channels) = if nchw { (b, c, a) } else { (a, b, c) };
    let tensor = images.pixel_mask_tensor();
    assert_eq!(
        (tensor.shape(), tensor.values().unwrap()),
        (&[batch.len(), height, width][..], &FieldValues::U8(mask.clone()))
    );
    let side = |of: fn(&Size) -> u32| images.sizes().iter().map(of).max().unwrap() as usize;
    let sides = [side(|size| size.width), side(|size| size.height)];
    assert_eq!([width, height], sides.map(|side| side.next_multiple_of(divisor)));
    let image = |i: usize| {
        let size = images.sizes()[i];
        let mut own = Vec::new();
        let places = (0..a).flat_map(|a_at| (0..b).flat_map(move |b_at| (0..c).map(move |c_at| [a_at, b_at, c_at])));
        for (at, [a_at, b_at, c_at]) in places.enumerate() {
            let (x, y) = if nchw { (c_at, b_at) } else { (b_at, a_at) };
            let value = &bytes[(i * a * b * c + at) * element..][..element];
            let inside = x < size.width as usize && y < size.height as usize;
            assert_eq!(mask[(i * height + y) * width + x], u8::from(inside));
            if inside {
                own.extend_from_slice(value);
            } else {
                assert!(value.iter().all(|byte| *byte == 0), "image {i}: ({x}, {y})");
            }
        }
        let (width, height) = (size.width as usize, size.height as usize);
        let shape = if nchw { [1, channels, height, width] } else { [1, height, width, channels] };
        (batch.indices()[i], batch.labels().unwrap()[i], shape, own)
    };
    (0..n).map(image).collect()
}

pub fn delivered(epoch: impl Iterator<Item = Result<Batch<Vec<Tensor>>>>) -> Vec<Delivered> {
    epoch.flat_map(|batch| images(&batch.unwrap())).collect()
}
