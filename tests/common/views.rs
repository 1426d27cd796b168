//! Views that begin in each possible way.

use warpfeed::{
    Batch, DType, Layout, Pipeline, PipelineBuilder, Tensor, View,
    image::Size,
    ops::{Contrast, Invert, RandomResizedCrop, Resize, Transform, Vflip},
    prelude::{
        color_jitter, maybe, random_gaussian_blur, random_horizontal_flip, random_resized_crop, random_rotation,
    },
    source::Input,
    view,
};

/// Views whose recipes begin with a resize, with passes in place, and with a mirror.
pub fn views() -> [View; 5] {
    let crop = |size| -> Transform { RandomResizedCrop::new(size).scale(0.05..=0.4).into() };
    [
        view([random_resized_crop(Size::new(24, 20)), color_jitter(0.4, 0.4, 0.2, 0.1)]).times(2),
        view([crop(Size::new(9, 9)), maybe(0.5, [random_gaussian_blur(5, 0.1..=2.0)])]).times(3),
        view([Contrast::new(0.5).into(), random_rotation(-20.0..=20.0), Resize::new(Size::new(12, 10)).into()]),
        view([Vflip.into(), Resize::new(Size::new(7, 8)).into()]),
        view([Invert.into(), Resize::new(Size::new(6, 5)).into()]),
    ]
}

/// A pipeline of these views, as bytes.
pub fn builder(source: impl Into<Input>) -> PipelineBuilder {
    let builder = Pipeline::builder(source).shuffle(7).threads(2).batch_size(5).output(DType::U8, Layout::Nhwc);
    builder.views(views()).transform(random_horizontal_flip(0.5))
}

/// A sample as it was delivered: its index and all of its images.
pub type Delivered = (u64, Vec<Vec<u8>>);

/// The samples of a batch, padding included.
pub fn samples(batch: &Batch) -> Vec<Delivered> {
    let views: Vec<Tensor> = (0..).map_while(|i| batch.view(i)).map(|view| view.to_host().unwrap()).collect();
    let images = |place: usize| {
        let of_view = |tensor: &Tensor| -> Vec<Vec<u8>> {
            let places = (place..tensor.shape()[0]).step_by(batch.len());
            places.map(|place| tensor.image_bytes(place).unwrap().to_vec()).collect()
        };
        views.iter().flat_map(of_view).collect()
    };
    (0..batch.len()).map(|place| (batch.indices()[place], images(place))).collect()
}

pub fn delivered(epoch: impl Iterator<Item = warpfeed::Result<Batch>>) -> Vec<Delivered> {
    epoch.flat_map(|batch| samples(&batch.unwrap())).collect()
}
