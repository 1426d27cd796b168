//! Batches of images of different sizes.

use crate::common::ragged::{builder, delivered, images, padded_images};
use crate::common::{WithBad, as_made, jpeg, source};
use std::collections::BTreeSet;
use warpfeed::ops::Resize;
use warpfeed::{
    DType, Error, ImageCache, LastBatch, Layout, Mix, OnError, Orientation, Partition, Pipeline, PipelineBuilder,
    RaggedPipeline, Result, Strategy, TargetSpec, apply, prelude::random_resized_crop, source::EncodedImages,
    source::Source, view,
};

#[test]
fn every_image_is_its_recipe_alone() {
    let source = source(23);
    for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
        let pipeline = builder(source.clone()).strategy(strategy).build_ragged().unwrap();
        let all = delivered(pipeline.epoch(3));
        let mut shapes = BTreeSet::new();
        for (index, label, shape, bytes) in &all {
            let recipe = pipeline.recipe(3, *index).unwrap();
            let options = as_made(&recipe).strategy(strategy).orientation(Orientation::Ignore);
            let want = apply(&source.encoded(*index).unwrap(), &recipe, &options).unwrap();
            assert_eq!((*label, *shape), ((*index % 10) as u32, want.shape()));
            assert!(want.as_bytes().unwrap() == bytes, "{strategy:?}, sample {index}");
            shapes.insert(*shape);
        }
        assert_eq!(all.len(), 23);
        assert!(shapes.len() > 5, "{shapes:?}");
    }
}

#[test]
fn threads_batches_partitions_states_and_caches_do_not_matter() {
    let of = |pipeline: Result<RaggedPipeline>| delivered(pipeline.unwrap().epoch(1));
    let want = of(builder(source(23)).build_ragged());
    for (threads, batch_size, prefetch) in [(0, 7, 1), (1, 1, 3), (4, 23, 2), (3, 5, 4)] {
        let other = builder(source(23)).threads(threads).batch_size(batch_size).prefetch(prefetch);
        assert!(of(other.build_ragged()) == want, "{threads} threads, batches of {batch_size}");
    }
    let rank = |rank| of(builder(source(23)).partition(Partition::new(rank, 2).unwrap()).build_ragged());
    let (even, odd) = (rank(0), rank(1));
    let together: Vec<_> = (0..23).map(|i| [&even, &odd][i % 2][i / 2].clone()).collect();
    assert!(together == want);
    let cached = builder(source(23)).cache(ImageCache::memory(1 << 20)).build_ragged().unwrap();
    assert!(delivered(cached.epoch(0)).len() == 23 && delivered(cached.epoch(1)) == want);

    let pipeline = builder(source(23)).build_ragged().unwrap();
    let mut epoch = pipeline.epoch(1);
    let batches: Vec<_> = epoch.by_ref().take(2).map(Result::unwrap).collect();
    let state = epoch.state();
    assert_eq!(serde_json::to_string(&state).unwrap(), serde_json::to_string(&batches[1].state()).unwrap());
    drop(epoch);
    let front: Vec<_> = batches.iter().flat_map(images).collect();
    assert!([front, delivered(pipeline.resume(&state).unwrap())].concat() == want);
}

#[test]
fn bad_samples_targets_and_channels_are_as_in_other_batches() {
    let bad = || WithBad { good: source(13), bad: vec![0, 4, 5, 12] };
    let pipeline = builder(bad()).on_error(OnError::Skip).build_ragged().unwrap();
    let mut epoch = pipeline.epoch(0);
    let all = delivered(epoch.by_ref());
    assert_eq!((all.len(), epoch.bad().len(), epoch.stats().bad), (9, 4, 4));
    let substituted = builder(bad()).on_error(OnError::Substitute).build_ragged().unwrap();
    assert_eq!(delivered(substituted.epoch(0)).len(), 13);

    let gray = builder(source(6)).channels(1).output(DType::F16, Layout::Nchw).targets(TargetSpec::class(10));
    for batch in gray.build_ragged().unwrap().epoch(0) {
        let mut batch = batch.unwrap();
        assert!(batch.images().iter().all(|image| image.shape()[1] == 1 && image.dtype() == DType::F16));
        assert!(batch.take_targets().is_some() && batch.targets().is_none());
    }
}

#[test]
fn a_padded_batch_is_the_ragged_images_in_one_tensor() {
    let forms = [(DType::U8, Layout::Nhwc, 3), (DType::F32, Layout::Nchw, 3), (DType::F16, Layout::Nhwc, 1)];
    for (dtype, layout, channels) in forms {
        let of = || {
            let builder = builder(source(23)).output(dtype, layout).channels(channels);
            if dtype == DType::U8 { builder } else { builder.normalize([0.4; 3], [0.2; 3]) }
        };
        let want = delivered(of().build_ragged().unwrap().epoch(1));
        for divisor in [1, 8] {
            let pipeline = of().build_padded(divisor).unwrap();
            let got = |epoch| pipeline.epoch(epoch).flat_map(|batch| padded_images(&batch.unwrap(), divisor as usize));
            // Twice: memory is used again, for images of other sizes.
            assert_eq!(got(0).count(), 23);
            assert!(got(1).eq(want.iter().cloned()), "{dtype:?} {layout:?} {divisor}");
        }
    }
    // The last image of an epoch fills the last batch.
    let pipeline = builder(source(7)).last_batch(LastBatch::Pad).build_padded(1).unwrap();
    let last = pipeline.epoch(0).last().unwrap().unwrap();
    let all = padded_images(&last, 1);
    assert_eq!((last.padding(), all.len()), (3, 5));
    assert!(all[2..].iter().all(|image| *image == all[1]));

    for divisor in [0, 65_537] {
        let error = builder(source(7)).build_padded(divisor).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("divisor"), "{error}");
    }
    // Both images are small, but not the tensor that holds a wide one and a high one.
    let long = EncodedImages::new([(jpeg(65_000, 8, 1), 0), (jpeg(8, 65_000, 2), 1)]);
    let pipeline = Pipeline::builder(long).build_padded(1).unwrap();
    let error = pipeline.epoch(0).next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Limits { .. }) && error.to_string().contains("batch_size"), "{error}");
}

#[test]
fn what_needs_one_size_is_refused() {
    let refused = |builder: PipelineBuilder, what: &str| {
        let error = builder.build_ragged().unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(what), "{error}");
    };
    refused(builder(source(6)).mix(Mix::torchvision(0.2, 1.0)), "mix");
    refused(builder(source(6)).last_batch(LastBatch::Pad), "last_batch");
    refused(builder(source(6)).views([view([random_resized_crop(8)]).times(2)]), "views");
    let error = builder(source(6)).build().unwrap_err();
    assert!(error.to_string().contains("build_ragged"), "{error}");
    // An image that grows beyond the limit is a bad sample.
    let grown =
        Pipeline::builder(source(1)).transform(Resize::shorter_side(3_000)).max_pixels(100_000).build_ragged().unwrap();
    let error = grown.epoch(0).next().unwrap().unwrap_err();
    assert!(matches!(&error, Error::Sample { source, .. } if matches!(**source, Error::Limits { .. })), "{error}");
}
