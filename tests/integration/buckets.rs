//! Batches by shape.

use crate::common::{self, Random, WithBad, as_made, image, jpeg, samples};
use std::collections::{BTreeMap, BTreeSet};
use warpfeed::image::{JpegOptions, Size, encode_jpeg};
use warpfeed::ops::{BucketCrop, Hflip, RandomSequenceCrop};
use warpfeed::prelude::{random_horizontal_flip, random_resized_crop};
use warpfeed::shapes::{BatchShape, Buckets, Patches};
use warpfeed::source::{EncodedImages, ImageSizes, Source};
use warpfeed::{
    Batch, DType, Device, LastBatch, Layout, Mix, OnError, Orientation, Partition, Pipeline, PipelineBuilder, Sampler,
    Strategy, TargetSpec, apply, view,
};

/// Images of many shapes.
pub(crate) fn shapes(count: u64) -> EncodedImages {
    let mut random = Random(11);
    let one = |index| {
        let (width, height) = (random.within(8, 60), random.within(8, 60));
        (encode_jpeg(&image(width, height, index), &JpegOptions::default()).unwrap(), (index % 10) as u32)
    };
    EncodedImages::new((0..count).map(one))
}

const BUCKETS: &str = "32x32,48x24,24x48,40x28,28x40";

pub(crate) fn builder(source: impl Into<warpfeed::source::Input>) -> PipelineBuilder {
    Pipeline::builder(source)
        .device(Device::Cpu)
        .threads(2)
        .batch_size(3)
        .shuffle(5)
        .output(DType::U8, Layout::Nhwc)
        .buckets(BUCKETS.parse().unwrap())
        .transform(BucketCrop::new().random(true))
        .transform(random_horizontal_flip(0.5))
}

fn size_of(batch: &Batch) -> (usize, usize) {
    let [_, height, width, _] = batch.images().shape();
    (width, height)
}

/// A batch's size, its samples, and how many of them are padding.
type Step = ((usize, usize), Vec<u64>, usize);

/// Each step of each rank.
fn steps(builder: &PipelineBuilder, ranks: u32, epoch: u64) -> Vec<Vec<Step>> {
    let rank = |rank| {
        let pipeline = builder.clone().partition(Partition::new(rank, ranks).unwrap()).build().unwrap();
        let batches: Vec<_> = pipeline
            .epoch(epoch)
            .map(|batch| {
                let batch = batch.unwrap();
                (size_of(&batch), batch.indices().to_vec(), batch.padding())
            })
            .collect();
        assert_eq!(pipeline.batches(), Some(batches.len() as u64));
        let said: Vec<_> = pipeline.steps(epoch).unwrap().unwrap();
        let said: Vec<_> = said.into_iter().map(|step| ((step.width, step.height), step.indices)).collect();
        let made: Vec<_> =
            batches.iter().map(|(size, indices, _)| ((size.0 as u32, size.1 as u32), indices.clone())).collect();
        assert_eq!(said, made);
        let real: usize = batches.iter().map(|(_, indices, padding)| indices.len() - padding).sum();
        assert_eq!(pipeline.num_samples(), Some(real as u64));
        batches
    };
    (0..ranks).map(rank).collect()
}

#[test]
fn ranks_have_equal_shapes_in_every_step_and_each_sample_as_promised() {
    let source = shapes(150);
    let buckets: Buckets = BUCKETS.parse().unwrap();
    let sizes: Vec<Size> =
        (0..150).map(|i| warpfeed::image::probe(&source.encoded(i).unwrap()).unwrap().size).collect();
    for (last, ranks) in [(LastBatch::Keep, 1), (LastBatch::Keep, 4), (LastBatch::Pad, 2), (LastBatch::Drop, 2)] {
        let builder = builder(source.clone()).last_batch(last).buckets(buckets.clone().lossy(true));
        let (mut first_order, mut dropped) = (None, Vec::new());
        for epoch in 0..2 {
            let all = steps(&builder, ranks, epoch);
            let (mut seen, mut padding) = (BTreeMap::<u64, u32>::new(), 0);
            for step in 0..all[0].len() {
                assert!(all.iter().all(|rank| rank.len() == all[0].len() && rank[step].0 == all[0][step].0));
                assert!(all.iter().all(|rank| rank[step].1.len() == all[0][step].1.len()));
                for (size, indices, repeated) in all.iter().map(|rank| &rank[step]) {
                    padding += repeated;
                    for &index in indices {
                        *seen.entry(index).or_default() += 1;
                        let bucket = buckets.bucket(sizes[index as usize]).unwrap();
                        assert_eq!((bucket.width as usize, bucket.height as usize), *size);
                    }
                }
            }
            let times: u32 = seen.values().sum();
            assert_eq!(times as usize - padding, seen.len(), "{last}: only padding repeats samples");
            if last == LastBatch::Drop {
                assert!(padding == 0 && seen.len() < 150 && all.iter().flatten().all(|step| step.1.len() == 3));
                dropped.push((0..150).filter(|index| !seen.contains_key(index)).collect::<BTreeSet<u64>>());
            } else {
                assert_eq!(seen.len(), 150, "{last}");
            }
            let order: Vec<_> = all.concat();
            assert_ne!(first_order.replace(order.clone()), Some(order), "epochs have other orders");
        }
        assert!(dropped.len() < 2 || dropped[0] != dropped[1], "other samples are dropped in each epoch");
    }
}

#[test]
fn images_are_their_recipes_whatever_makes_them() {
    let source = shapes(40);
    for strategy in [Strategy::Fused, Strategy::Sequential] {
        let pipeline = builder(source.clone()).strategy(strategy).build().unwrap();
        for batch in pipeline.epoch(1) {
            let batch = batch.unwrap();
            let delivered = samples(&batch);
            for (i, (sample, crop)) in delivered.iter().zip(batch.crops().unwrap()).enumerate() {
                let recipe = pipeline.recipe(1, sample.index).unwrap();
                assert_eq!(recipe, batch.recipes(i).unwrap()[0]);
                let options = as_made(&recipe).orientation(Orientation::Ignore);
                let want = apply(&source.encoded(sample.index).unwrap(), &recipe, &options).unwrap();
                assert!(want.as_bytes().unwrap() == sample.bytes, "{strategy:?}: {}", sample.index);
                assert_eq!((crop.size.width as usize, crop.size.height as usize), size_of(&batch));
                assert_eq!(crop.original, batch.stored_sizes()[i]);
                assert!(crop.left >= 0 && crop.left as u32 + crop.size.width <= crop.resized.width);
                assert!(crop.top >= 0 && crop.top as u32 + crop.size.height <= crop.resized.height);
                assert!(crop.resized.width == crop.size.width || crop.resized.height == crop.size.height);
            }
        }
    }
}

/// The shape and the samples of each batch.
pub(crate) fn batches(
    batches: impl Iterator<Item = warpfeed::Result<Batch>>,
) -> Vec<([usize; 4], Vec<common::Delivered>)> {
    batches.map(|batch| batch.unwrap()).map(|batch| (batch.images().shape(), samples(&batch))).collect()
}

#[test]
fn threads_prefetch_and_resuming_do_not_matter() {
    for last in [LastBatch::Keep, LastBatch::Pad] {
        let builder = builder(shapes(50)).last_batch(last);
        let whole = |builder: &PipelineBuilder| batches(builder.clone().build().unwrap().epoch(2));
        let all = whole(&builder);
        assert!(whole(&builder.clone().threads(0)) == all);
        assert!(whole(&builder.clone().threads(4).prefetch(5)) == all);
        let pipeline = builder.build().unwrap();
        let states: Vec<_> = pipeline.epoch(2).map(|batch| batch.unwrap().state()).collect();
        for (number, state) in (1..).zip(&states) {
            let rest = pipeline.resume(state).unwrap();
            assert_eq!(rest.batches(), pipeline.batches_left(state).unwrap());
            assert!(batches(rest) == all[number..]);
        }
    }
}

#[test]
fn an_epoch_goes_on_with_other_ranks_where_they_share_its_units() {
    let of = |ranks: u32, batch: usize| {
        let builder = builder(shapes(120)).batch_size(batch).unit(12).last_batch(LastBatch::Pad);
        let rank = move |rank| builder.clone().partition(Partition::new(rank, ranks).unwrap()).build().unwrap();
        (0..ranks).map(rank).collect::<Vec<Pipeline>>()
    };
    // The global order is the same for every number of ranks.
    let global = |pipelines: &[Pipeline]| {
        let ranks: Vec<Vec<u64>> = pipelines
            .iter()
            .map(|pipeline| pipeline.steps(0).unwrap().unwrap().into_iter().flat_map(|step| step.indices).collect())
            .collect();
        (0..ranks[0].len()).flat_map(|row| ranks.iter().map(move |rank| rank[row])).collect::<Vec<_>>()
    };
    let order = global(&of(1, 4));
    for (ranks, batch) in [(2, 3), (3, 4), (4, 3), (6, 2)] {
        assert_eq!(global(&of(ranks, batch)), order);
    }
    for (ranks, batch, delivered) in [(2, 3, 3), (4, 3, 1), (2, 2, 1)] {
        let states: Vec<_> = of(ranks, batch)
            .iter()
            .map(|pipeline| pipeline.epoch(0).nth(delivered - 1).unwrap().unwrap().state())
            .collect();
        let done = states[0].position() as usize * ranks as usize;
        for (ranks, batch) in [(1, 12), (2, 6), (4, 3), (1, 4)] {
            let after = of(ranks, batch);
            if !(12 - done % 12).is_multiple_of(ranks as usize) {
                let state = after[0].state_after(&states).unwrap();
                assert!(after[0].resume(&state).is_err(), "what is left of a unit is not shared equally");
                continue;
            }
            let mut parts = Vec::new();
            for pipeline in &after {
                let state = pipeline.state_after(&states).unwrap();
                let rest: Result<Vec<Batch>, _> = pipeline.resume(&state).unwrap().collect();
                parts.push(rest.unwrap());
            }
            for step in 0..parts[0].len() {
                assert!(parts.iter().all(|part| part.len() == parts[0].len()));
                assert!(parts.iter().all(|part| part[step].images().shape() == parts[0][step].images().shape()));
            }
            let rank: Vec<Vec<u64>> =
                parts.iter().map(|part| part.iter().flat_map(|batch| batch.indices().to_vec()).collect()).collect();
            let rest: Vec<u64> = (0..rank[0].len()).flat_map(|row| rank.iter().map(move |rank| rank[row])).collect();
            assert_eq!(rest, order[done..], "{ranks} ranks after {delivered} batches");
        }
    }
    // Five ranks cannot share what is left of twelve.
    let states: Vec<_> = of(2, 3).iter().map(|pipeline| pipeline.epoch(0).next().unwrap().unwrap().state()).collect();
    let builder = builder(shapes(120)).batch_size(2).unit(12).last_batch(LastBatch::Pad);
    assert!(builder.clone().partition(Partition::new(0, 5).unwrap()).build().is_err());
    let other = builder.clone().unit(8).build().unwrap();
    assert!(other.state_after(&states).is_err(), "other units are another order");
    let other = builder.buckets("32x32".parse().unwrap()).build().unwrap();
    assert!(other.state_after(&states).unwrap_err().to_string().contains("buckets and units"));
}

#[test]
fn a_substitute_is_of_the_same_bucket() {
    let bad = WithBad { good: shapes(60), bad: (0..60).step_by(7).collect() };
    let pipeline = builder(bad).image_sizes(ImageSizes::scan(&shapes(60), Orientation::Apply, 1).unwrap());
    let pipeline = pipeline.on_error(OnError::Substitute).build().unwrap();
    let mut epoch = pipeline.epoch(0);
    let mut delivered = 0;
    for batch in epoch.by_ref() {
        delivered += batch.unwrap().len();
    }
    assert_eq!((delivered, epoch.stats().bad), (60, 9));
}

#[test]
fn batches_are_mixed_and_have_views_and_targets() {
    let builder = builder(shapes(40)).targets(TargetSpec::soft(10)).mix(Mix::torchvision(0.2, 1.0));
    let pipeline = builder.output(DType::F32, Layout::Nchw).build().unwrap();
    let mut mixed = 0;
    for batch in pipeline.epoch(0) {
        mixed += usize::from(batch.unwrap().mixed().is_some());
    }
    assert_eq!(mixed as u64, pipeline.batches().unwrap());

    let two = Pipeline::builder(shapes(20))
        .device(Device::Cpu)
        .batch_size(4)
        .buckets(BUCKETS.parse().unwrap())
        .views([view([BucketCrop::new().into()]), view([BucketCrop::new().random(true).into(), Hflip.into()]).times(2)])
        .build()
        .unwrap();
    for batch in two.epoch(0) {
        let batch = batch.unwrap();
        let [n, c, h, w] = batch.images().shape();
        assert_eq!(batch.view(1).unwrap().shape(), [2 * n, c, h, w]);
    }
}

#[test]
fn a_sampler_decides_what_is_batched() {
    let repeated = builder(shapes(20)).sampler(Sampler::repeated(3).positions(60)).build().unwrap();
    let epoch = repeated.epoch(0);
    assert_eq!(epoch.batches(), repeated.batches());
    let count = |mut epoch: warpfeed::Epoch| {
        let mut counts = BTreeMap::<u64, u32>::new();
        for batch in epoch.by_ref() {
            batch.unwrap().indices().iter().for_each(|index| *counts.entry(*index).or_default() += 1);
        }
        counts
    };
    assert!(count(epoch).values().all(|&times| times == 3));

    let drawn = builder(shapes(20)).sampler(Sampler::class_balanced()).last_batch(LastBatch::Drop);
    let drawn = drawn.buckets(BUCKETS.parse::<Buckets>().unwrap().lossy(true)).build().unwrap();
    assert_eq!(drawn.batches(), None, "it differs from epoch to epoch");
    for epoch in 0..3 {
        let batches = drawn.epoch(epoch).batches().unwrap();
        assert_eq!(drawn.epoch(epoch).filter(|batch| batch.is_ok()).count() as u64, batches);
    }
}

#[test]
fn a_budget_gives_each_bucket_a_batch_size() {
    let buckets: Buckets = "16x16,32x32,budget=2048".parse().unwrap();
    let sources = EncodedImages::new((0..40).map(|i| {
        let side = if i % 2 == 0 { 16 } else { 40 };
        (jpeg(side, side, i), 0)
    }));
    let pipeline = builder(sources).buckets(buckets.nearest("ratio".parse().unwrap())).build().unwrap();
    assert!(pipeline.buckets().iter().all(|bucket| bucket.batch_size == 8), "squares go to the first bucket");
    let buckets: Buckets = "16x16,32x32,no-upscale,budget=2048".parse().unwrap();
    let pipeline = builder(shapes(60)).buckets(buckets.lossy(true)).build().unwrap();
    let all: BTreeSet<(usize, usize)> =
        pipeline.epoch(0).map(|batch| batch.unwrap()).map(|batch| (size_of(&batch).0, batch.len())).collect();
    assert!(all.contains(&(16, 8)) && all.contains(&(32, 2)), "{all:?}");
    assert!(all.iter().all(|(side, len)| side * side * len <= 2048));
    assert!(!pipeline.lost().is_empty(), "some are smaller than 16 x 16");
}

#[test]
fn nothing_is_lost_in_silence() {
    let text = |builder: PipelineBuilder| builder.build().map(|_| ()).unwrap_err().to_string();
    let drop =
        |spec: &str| builder(shapes(30)).last_batch(LastBatch::Drop).batch_size(12).buckets(spec.parse().unwrap());
    assert!(text(drop(BUCKETS)).contains("whole bucket"), "{}", text(drop(BUCKETS)));
    let merged = drop(&format!("{BUCKETS},merge")).build().unwrap();
    assert!(!merged.merged_buckets().is_empty() && merged.buckets().iter().all(|bucket| bucket.steps > 0));
    let lossy = drop(&format!("{BUCKETS},lossy")).build().unwrap();
    let lost = lossy.lost();
    assert!(!lost.is_empty());
    let come: BTreeSet<u64> =
        (0..20).flat_map(|epoch| lossy.steps(epoch).unwrap().unwrap()).flat_map(|step| step.indices).collect();
    assert_eq!((0..30).filter(|index| !come.contains(index)).collect::<Vec<u64>>(), lost);

    let cut = EncodedImages::new([(jpeg(20, 30, 1)[..40].to_vec(), 0), (jpeg(20, 30, 1), 1)]);
    let error = text(builder(cut.clone()));
    assert!(error.contains("1 images whose headers cannot be read"), "{error}");
    let left = builder(cut).buckets("32x32,lossy".parse().unwrap()).build().unwrap();
    assert_eq!((left.lost(), left.num_samples()), (vec![0], Some(1)));
    let error = text(builder(shapes(9)).buckets("50x50,no-upscale".parse().unwrap()));
    assert!(error.contains("go to no bucket"), "{error}");
}

#[test]
fn what_buckets_cannot_have_is_refused_by_name() {
    let text = |builder: PipelineBuilder| builder.build().map(|_| ()).unwrap_err().to_string();
    assert!(text(builder(shapes(9)).on_error(OnError::Skip)).contains("on_error"));
    assert!(text(builder(shapes(9)).unit(4)).contains("a multiple of 3"));
    assert!(text(Pipeline::builder(shapes(9)).unit(3).transform(Hflip)).contains("unit"));
    assert!(text(builder(shapes(9)).transform(warpfeed::ops::CenterCrop::new(8))).contains("keep the size"));
    let without = Pipeline::builder(shapes(9)).buckets(Buckets::sdxl()).transform(Hflip);
    assert!(text(without).contains("bucket_crop"));
    assert!(builder(shapes(9)).build_padded(1).is_err() && builder(shapes(9)).build_ragged().is_err());
    let alone = Pipeline::builder(shapes(9)).device(Device::Cpu).transform(BucketCrop::new());
    assert!(alone.build_ragged().unwrap().epoch(0).next().unwrap().unwrap_err().to_string().contains("buckets"));
    let wrong = builder(shapes(9)).image_sizes(ImageSizes::from_sizes(vec![Size::new(30, 20); 9])).build().unwrap();
    let error = wrong.epoch(0).next().unwrap().unwrap_err().to_string();
    assert!(error.contains("had 30 x 20 before") || error.contains("30"), "{error}");
}

/// Each batch of each rank: its shape, and its samples.
fn planned(builder: &PipelineBuilder, ranks: u32, epoch: u64) -> Vec<Vec<(BatchShape, Vec<u64>)>> {
    let is_ragged = builder.is_ragged();
    let rank = |rank| {
        let builder = builder.clone().partition(Partition::new(rank, ranks).unwrap());
        if is_ragged {
            let pipeline = builder.build_ragged().unwrap();
            let batches = pipeline.epoch(epoch).map(|batch| batch.unwrap());
            return batches.map(|batch| (batch.shape().unwrap(), batch.indices().to_vec())).collect::<Vec<_>>();
        }
        let pipeline = builder.build().unwrap();
        let batches = pipeline.epoch(epoch).map(|batch| batch.unwrap()).map(|batch| {
            let (width, height) = size_of(&batch);
            assert_eq!(batch.shape(), Some(BatchShape::Size(Size::new(width as u32, height as u32))));
            (batch.shape().unwrap(), batch.indices().to_vec())
        });
        batches.collect()
    };
    let all: Vec<Vec<_>> = (0..ranks).map(rank).collect();
    let whole = builder.clone().partition(Partition::new(0, ranks).unwrap());
    let batches = if is_ragged { whole.build_ragged().unwrap().batches() } else { whole.build().unwrap().batches() };
    assert!(batches.is_none_or(|batches| batches == all[0].len() as u64));
    for step in 0..all[0].len() {
        assert!(all.iter().all(|rank| rank.len() == all[0].len() && rank[step].0 == all[0][step].0));
        assert!(all.iter().all(|rank| rank[step].1.len() == all[0][step].1.len()));
    }
    all
}

pub(crate) fn sized(spec: &str) -> PipelineBuilder {
    Pipeline::builder(shapes(61))
        .device(Device::Cpu)
        .threads(2)
        .batch_size(4)
        .shuffle(5)
        .output(DType::U8, Layout::Nhwc)
        .sizes(spec.parse().unwrap())
        .transform(random_resized_crop(99))
}

#[test]
fn sizes_change_over_time_alike_on_all_ranks() {
    let sides = |builder: &PipelineBuilder, epoch| -> BTreeSet<u32> {
        let all = planned(builder, 3, epoch);
        let samples: BTreeSet<u64> = all.iter().flatten().flat_map(|(_, indices)| indices.clone()).collect();
        assert_eq!(samples.len(), 61);
        all[0].iter().map(|(shape, _)| shape.size().unwrap().width).collect()
    };
    let progressive = sized("16,24,32/6");
    let stages: Vec<_> = (0..8).map(|epoch| sides(&progressive, epoch)).collect();
    assert!(stages.iter().all(|sides| sides.len() == 1));
    let stages: Vec<u32> = stages.into_iter().flatten().collect();
    assert_eq!(stages, [16, 16, 24, 24, 32, 32, 32, 32]);
    let drawn = sized("drawn=16,24,32/4").batch_size(1);
    assert!(sides(&drawn, 1).len() > 1, "sizes differ within an epoch");

    let budget = sized("16,32/2,budget=4096").last_batch(LastBatch::Drop);
    for (epoch, len) in [(0, 16), (1, 4)] {
        assert!(planned(&budget, 1, epoch)[0].iter().all(|(_, indices)| indices.len() == len));
    }
    // Batches come again after each state.
    let pipeline = sized("drawn=16,24,32/4").build().unwrap();
    let all = batches(pipeline.epoch(2));
    for (number, batch) in (1..).zip(pipeline.epoch(2)) {
        let batch = batch.unwrap();
        assert!(batches(pipeline.resume(&batch.state()).unwrap()) == all[number..]);
        let recipe = &batch.recipes(0).unwrap()[0];
        let source = shapes(61).encoded(batch.indices()[0]).unwrap();
        let options = as_made(recipe).orientation(Orientation::Ignore);
        assert!(apply(&source, recipe, &options).unwrap().as_bytes().unwrap() == samples(&batch)[0].bytes);
    }
    let other = sized("drawn=16,24,32/5").build().unwrap();
    let state = pipeline.epoch(0).next().unwrap().unwrap().state();
    assert!(other.resume(&state).unwrap_err().to_string().contains("shapes"));
}

#[test]
fn sequences_of_patches_have_the_batchs_length_alike_on_all_ranks() {
    let builder = Pipeline::builder(shapes(61))
        .device(Device::Cpu)
        .threads(2)
        .shuffle(5)
        .sequences("16,36,64/288,divisor=2".parse().unwrap())
        .transform(RandomSequenceCrop::new(4));
    for epoch in 0..2 {
        let all = planned(&builder, 2, epoch);
        let lens: BTreeSet<String> = all[0].iter().map(|(shape, _)| format!("{shape:?}")).collect();
        assert!(lens.len() > 1, "{lens:?}");
        let samples: BTreeSet<u64> = all.iter().flatten().flat_map(|(_, indices)| indices.clone()).collect();
        assert_eq!(samples.len(), 61);
    }
    let pipeline = builder.clone().build_ragged().unwrap();
    let mut seen = 0;
    for batch in pipeline.epoch(0) {
        let batch = batch.unwrap();
        let Some(BatchShape::SeqLen(seq_len)) = batch.shape() else { panic!("it has a length") };
        assert!(batch.len() * seq_len as usize <= 288);
        let patches = batch.patches::<f32>(Patches::new(4), None).unwrap();
        assert_eq!(patches.patches().len(), batch.len() * seq_len as usize * 4 * 4 * 3);
        for (i, image) in batch.images().iter().enumerate() {
            let [_, _, height, width] = image.shape();
            let [rows, columns] = [height / 4, width / 4];
            assert!(height % 4 == 0 && width % 4 == 0 && rows * columns <= seq_len as usize);
            assert_eq!(patches.spatial_shapes()[2 * i..2 * i + 2], [rows as i64, columns as i64]);
            let valid = &patches.valid()[i * seq_len as usize..][..seq_len as usize];
            assert!(valid.iter().enumerate().all(|(at, valid)| *valid == (at < rows * columns)));
            // The first pixel of each patch.
            let values = image.to_host().unwrap();
            let values = values.as_slice::<f32>().unwrap();
            for at in 0..rows * columns {
                let (y, x) = (at / columns * 4, at % columns * 4);
                let patch = &patches.patches()[(i * seq_len as usize + at) * 48..][..3];
                let want = [0, 1, 2].map(|c| values[(c * height + y) * width + x]);
                assert_eq!(patch, want);
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 61);
    let text = |builder: PipelineBuilder| builder.build_ragged().map(|_| ()).unwrap_err().to_string();
    assert!(text(builder.clone().on_error(OnError::Skip)).contains("on_error"));
    assert!(text(builder.clone().sizes("16/1".parse().unwrap())).contains("sizes"));
    assert!(builder.build().is_err());
}
