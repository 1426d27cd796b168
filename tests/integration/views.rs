//! Several views of each image are the images of pipelines with one view.

use crate::common::views::{builder, delivered, samples, views};
use crate::common::{self, WithBad, source};
use warpfeed::{
    DType, Error, IMAGENET_MEAN, IMAGENET_STD, ImageCache, LastBatch, Layout, OnError, Orientation, Partition,
    Pipeline, PipelineBuilder, Strategy, View, apply, five_crop,
    image::Size,
    ops::{ErasingNoise, Hflip, Normalize, Op, RandomErasing, Resize},
    prelude::{random_horizontal_flip, random_resized_crop},
    source::{EncodedImages, Source},
    ten_crop, view,
};

#[test]
fn every_image_is_its_recipe_alone() {
    let images = source(11);
    for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
        let pipeline = builder(images.clone()).strategy(strategy).build().unwrap();
        let sizes = [
            (Size::new(24, 20), 2),
            (Size::new(9, 9), 3),
            (Size::new(12, 10), 1),
            (Size::new(7, 8), 1),
            (Size::new(6, 5), 1),
        ];
        assert_eq!(pipeline.view_sizes(), sizes);
        let all = delivered(pipeline.epoch(3));
        assert_eq!(all.len(), 11);
        for (index, made) in all {
            let bytes = images.encoded(index).unwrap();
            let recipes = pipeline.recipes(3, index).unwrap();
            assert_eq!((recipes.len(), made.len()), (8, 8));
            for (i, (recipe, image)) in recipes.iter().zip(made).enumerate() {
                let options = common::as_made(recipe).strategy(strategy).orientation(Orientation::Ignore);
                let want = apply(&bytes, recipe, &options).unwrap();
                assert!(want.as_bytes().unwrap() == image, "{strategy:?}, sample {index}, image {i}: {recipe:?}");
            }
        }
    }
}

#[test]
fn the_first_image_has_the_draws_of_one_view_and_every_other_its_own() {
    let one = |view: View| Pipeline::builder(source(6)).seed(5).views([view]).build().unwrap();
    let plain = Pipeline::builder(source(6)).seed(5).transform(random_resized_crop(8)).build().unwrap();
    let both = Pipeline::builder(source(6))
        .seed(5)
        .views([view([random_resized_crop(8)]).times(3), view([random_resized_crop(8)]).times(2)]);
    let both = both.build().unwrap();
    for index in 0..6 {
        let recipes = both.recipes(2, index).unwrap();
        assert_eq!(plain.recipe(2, index).unwrap(), recipes[0]);
        // How often a view comes changes no other's numbers.
        assert_eq!(one(view([random_resized_crop(8)]).times(2)).recipes(2, index).unwrap(), recipes[..2]);
        for (i, recipe) in recipes.iter().enumerate() {
            assert!(recipes[..i].iter().all(|other| other != recipe), "{recipes:?}");
        }
    }
}

#[test]
fn threads_batches_partitions_and_states_do_not_matter() {
    let want = delivered(builder(source(23)).build().unwrap().epoch(1));
    for (threads, batch_size, prefetch) in [(0, 7, 1), (1, 1, 3), (4, 23, 2), (3, 5, 4)] {
        let other = builder(source(23)).threads(threads).batch_size(batch_size).prefetch(prefetch).build().unwrap();
        assert!(delivered(other.epoch(1)) == want, "{threads} threads, batches of {batch_size}");
    }
    let ranks = (0..3).map(|rank| builder(source(23)).partition(Partition::new(rank, 3).unwrap()).build().unwrap());
    let parts: Vec<_> = ranks.map(|pipeline| delivered(pipeline.epoch(1))).collect();
    let together: Vec<_> = (0..23).map(|i| parts[i % 3][i / 3].clone()).collect();
    assert!(together == want);
    let pipeline = builder(source(23)).build().unwrap();
    let mut epoch = pipeline.epoch(1);
    let front: Vec<_> = epoch.by_ref().take(2).flat_map(|batch| samples(&batch.unwrap())).collect();
    let rest = delivered(pipeline.resume(&epoch.state()).unwrap());
    assert!([front, rest].concat() == want);
}

#[test]
fn cached_images_make_the_same_views() {
    let first = |cache: Option<ImageCache>| {
        let builder =
            Pipeline::builder(source(9)).shuffle(7).transform(Resize::shorter_side(40)).output(DType::U8, Layout::Nhwc);
        let builder = builder.views(views()).transform(random_horizontal_flip(0.5));
        cache.into_iter().fold(builder, PipelineBuilder::cache).build().unwrap()
    };
    let (plain, cached) = (first(None), first(Some(ImageCache::memory(1 << 20))));
    for epoch in 0..3 {
        assert!(delivered(cached.epoch(epoch)) == delivered(plain.epoch(epoch)));
    }
    assert_eq!(cached.cache_usage().unwrap().images, 9);
    // What only one of the views begins with is not done before an image is cached.
    let plain = builder(source(9)).build().unwrap();
    let cached = builder(source(9)).cache(ImageCache::memory(1 << 20)).build().unwrap();
    for epoch in 0..2 {
        assert!(delivered(cached.epoch(epoch)) == delivered(plain.epoch(epoch)));
    }
    assert_eq!(cached.cache_usage().unwrap().images, 9);
}

#[test]
fn a_bad_sample_is_bad_in_all_views() {
    let with_bad = || WithBad { good: source(23), bad: vec![2, 3, 11, 22] };
    let good = delivered(builder(source(23)).build().unwrap().epoch(1));
    let skipped = builder(with_bad()).on_error(OnError::Skip).build().unwrap();
    let mut epoch = skipped.epoch(1);
    let got = delivered(epoch.by_ref());
    let want: Vec<_> = good.iter().filter(|(index, _)| ![2, 3, 11, 22].contains(index)).cloned().collect();
    assert!(got == want);
    assert_eq!(epoch.stats().bad, 4);
    let substituted = builder(with_bad()).on_error(OnError::Substitute).build().unwrap();
    let got = delivered(substituted.epoch(1));
    assert_eq!(got.len(), 23);
    for (got, want) in got.iter().zip(&good) {
        // A substitute is another sample, all of it.
        assert!(got == want || ([2, 3, 11, 22].contains(&want.0) && good.contains(got)));
    }
    let failed = builder(with_bad()).build().unwrap();
    assert!(failed.epoch(1).any(|batch| matches!(batch, Err(Error::Sample { .. }))));
}

#[test]
fn padding_repeats_the_last_sample_in_every_repetition() {
    let kept = delivered(builder(source(8)).build().unwrap().epoch(1));
    let padded = builder(source(8)).last_batch(LastBatch::Pad).build().unwrap();
    let batches: Vec<_> = padded.epoch(1).map(Result::unwrap).collect();
    assert_eq!(batches[1].padding(), 2);
    assert_eq!(batches[1].view(1).unwrap().shape(), [15, 9, 9, 3]);
    let got: Vec<_> = batches.iter().flat_map(samples).collect();
    let last = kept.last().unwrap().clone();
    assert!(got == [kept, vec![last.clone(), last]].concat());
}

#[test]
fn crops_of_five_and_ten_are_where_torchvision_has_them() {
    let images = EncodedImages::new([(common::jpeg(30, 25, 3), 0)]);
    let crops = |view| {
        let builder = Pipeline::builder(images.clone()).views([view]).output(DType::U8, Layout::Nhwc);
        builder.build().unwrap().recipes(0, 0).unwrap()
    };
    let ten = crops(ten_crop(Size::new(12, 10)));
    assert_eq!(ten[..5], crops(five_crop(Size::new(12, 10))));
    let place = |recipe: &[Op]| match recipe {
        [Op::Crop(crop)] => Some((crop.x, crop.y)),
        _ => None,
    };
    assert_eq!(
        ten[..4].iter().map(|recipe| place(recipe).unwrap()).collect::<Vec<_>>(),
        [(0, 0), (18, 0), (0, 15), (18, 15)]
    );
    assert!(matches!(ten[4][..], [Op::CenterCrop(_)]));
    for (mirrored, plain) in ten[5..].iter().zip(&ten) {
        assert_eq!(mirrored[0], Hflip.into());
        assert_eq!(mirrored[1..], plain[..]);
    }
    let small = Pipeline::builder(images).views([five_crop(26)]).build().unwrap();
    let error = small.epoch(0).next().unwrap().unwrap_err();
    assert!(error.to_string().contains("30 x 25: resize it first"), "{error}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |builder: PipelineBuilder| builder.build().unwrap_err().to_string();
    let plain = || Pipeline::builder(source(3));
    assert!(refused(plain().views([])).contains("at least one view"));
    assert!(refused(plain().views([view([]).times(2)])).contains("such that every image ends in the same size"));
    assert!(refused(plain().views([five_crop(8).times(0)])).contains("times must be 1 to 1000"));
    let normalized = |mean| view([random_resized_crop(8), warpfeed::ops::Normalize::new([mean; 3], [1.0; 3]).into()]);
    assert!(refused(plain().views([normalized(0.0), normalized(0.5)])).contains("one for all views"));
    assert!(plain().views([normalized(0.5), normalized(0.5)]).build().is_ok());
    // All views count.
    let bytes =
        |times| plain().batch_size(3).views([view([random_resized_crop(8)]).times(times)]).build().unwrap().memory();
    assert_eq!(bytes(1).batch_bytes, 3 * 3 * 64 * 4);
    assert_eq!(bytes(7).batch_bytes, 7 * bytes(1).batch_bytes);
    assert!(bytes(2).images_bytes > bytes(1).images_bytes);
}

/// timm's splits: the clean part of a batch is a view that does not erase.
#[test]
fn a_view_without_erasing_stays_clean() {
    let clean = || view([Resize::new(Size::new(20, 16)).into(), Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into()]);
    let erasing = || RandomErasing::new(1.0).noise(ErasingNoise::PerPixel).into();
    let erased =
        view([Resize::new(Size::new(20, 16)).into(), Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into(), erasing()]);
    let build = |views: Vec<View>| Pipeline::builder(source(6)).seed(5).batch_size(4).views(views).build().unwrap();
    let (alone, split) = (build(vec![clean()]), build(vec![clean(), erased]));
    let (alone, images) = (delivered(alone.epoch(0)), delivered(split.epoch(0)));
    for ((index, want), (_, got)) in alone.iter().zip(&images) {
        assert!(got[0] == want[0], "{index}");
        let values = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|v| f32::from_le_bytes(*v)).collect::<Vec<_>>();
        let changed = values(&got[1]).iter().zip(values(&want[0])).filter(|(a, b)| *a != b).count();
        let recipe = &split.recipes(0, *index).unwrap()[1];
        let Some(Op::Erase(erase)) = recipe.last() else { panic!("{recipe:?}") };
        assert_eq!(changed as u32, 3 * erase.width * erase.height);
    }
}
