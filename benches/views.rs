//! DINO's ten views of each image from one decoding, compared with ten pipelines.

mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use warpfeed::ops::{RandomResizedCrop, Transform};
use warpfeed::prelude::*;
use warpfeed::source::EncodedImages;
use warpfeed::view;

fn main() {
    divan::main();
}

/// The views: two of 224 pixels, eight of 96.
const VIEWS: [(u32, std::ops::RangeInclusive<f64>, u32); 2] = [(224, 0.4..=1.0, 2), (96, 0.05..=0.4, 8)];

fn crop(side: u32, scale: std::ops::RangeInclusive<f64>) -> Transform {
    RandomResizedCrop::new(side).scale(scale).interpolation(Interpolation::Bicubic).into()
}

fn builder() -> PipelineBuilder {
    let source = EncodedImages::new(common::images().iter().map(|bytes| (bytes.clone(), 0)));
    Pipeline::builder(source).shuffle(1).threads(1)
}

fn finish(builder: PipelineBuilder) -> Pipeline {
    let builder = builder.transform(random_horizontal_flip(0.5));
    let builder = builder.transform(maybe(0.8, [color_jitter(0.4, 0.4, 0.2, 0.1)])).transform(random_grayscale(0.2));
    builder.normalize(IMAGENET_MEAN, IMAGENET_STD).build().expect("the views are valid")
}

fn epochs(bencher: Bencher<'_, '_>, pipelines: &[Pipeline]) {
    let mut number = 0;
    bencher.counter(ItemsCount::new(common::images().len())).bench_local(|| {
        for batch in pipelines.iter().flat_map(|pipeline| pipeline.epoch(number)) {
            divan::black_box(batch.expect("the images are whole"));
        }
        number += 1;
    });
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn ten_views(bencher: Bencher<'_, '_>) {
    let views = VIEWS.map(|(side, scale, times)| view([crop(side, scale)]).times(times));
    epochs(bencher, &[finish(builder().views(views))]);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn ten_pipelines(bencher: Bencher<'_, '_>) {
    let alone = |(side, scale, times): (u32, std::ops::RangeInclusive<f64>, u32)| {
        (0..times).map(move |_| finish(builder().transform(crop(side, scale.clone()))))
    };
    epochs(bencher, &VIEWS.into_iter().flat_map(alone).collect::<Vec<_>>());
}
