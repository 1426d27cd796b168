//! Pipelines with samples that come several times or not at all.

use crate::common::{self, Delivered, WithBad, delivered, on_cpu, small, source};
use std::collections::BTreeMap;
use warpfeed::prelude::random_resized_crop;
use warpfeed::source::{Concat, Input, OpenOptions, Source, SourceExt};
use warpfeed::{
    DType, ImageCache, LastBatch, Layout, OnError, Orientation, Partition, Pipeline, PipelineBuilder, Sampler, apply,
    five_crop, view,
};

fn samplers() -> [Sampler; 4] {
    [
        Sampler::repeated(3).positions(31),
        Sampler::weighted((0..23).map(f64::from), true),
        Sampler::weighted((0..23).map(f64::from), false),
        Sampler::class_balanced(),
    ]
}

#[test]
fn the_first_time_a_sample_is_what_it_is_in_any_order_and_then_another() {
    let usual: BTreeMap<u64, Delivered> =
        delivered(&on_cpu(small(source(23))), 1).into_iter().map(|sample| (sample.index, sample)).collect();
    for sampler in samplers() {
        let mut seen = BTreeMap::<u64, Vec<Vec<u8>>>::new();
        for sample in delivered(&on_cpu(small(source(23)).sampler(sampler.clone())), 1) {
            seen.entry(sample.index).or_default().push(sample.bytes);
        }
        for (index, mut images) in seen {
            assert_eq!(images[0], usual[&index].bytes, "{sampler:?}: {index}");
            let count = images.len();
            images.sort();
            images.dedup();
            assert_eq!(images.len(), count, "{sampler:?}: {index} is the same again");
        }
    }
}

#[test]
fn threads_batches_ranks_resuming_and_caches_do_not_matter() {
    for sampler in samplers() {
        let builder = || small(source(23)).sampler(sampler.clone());
        let whole = delivered(&on_cpu(builder()), 1);
        assert_eq!(delivered(&on_cpu(builder().threads(0).batch_size(7)), 1), whole, "{sampler:?}");
        let part = |rank| delivered(&on_cpu(builder().partition(Partition::new(rank, 3).unwrap())), 1);
        for (rank, part) in (0..3).map(|rank| (rank as usize, part(rank))) {
            assert!(part.iter().eq(whole.iter().skip(rank).step_by(3)), "{sampler:?}");
        }
        let pipeline = on_cpu(builder());
        let first = pipeline.epoch(1).next().unwrap().unwrap();
        let rest = pipeline.resume(&first.state()).unwrap();
        let rest: Vec<Delivered> = rest.flat_map(|batch| common::samples(&batch.unwrap())).collect();
        assert_eq!(rest, whole[5..], "{sampler:?}");
        let cached = on_cpu(builder().cache(ImageCache::memory(1 << 24)));
        delivered(&cached, 0);
        assert_eq!(delivered(&cached, 1), whole, "{sampler:?}");
        assert_eq!(pipeline.num_samples(), Some(whole.len() as u64));
        assert!(pipeline.memory().order_bytes >= 8 * whole.len() as u64);
    }
}

#[test]
fn batches_have_a_fixed_share_of_each_source() {
    let both = || Concat::new([source(23).into_source(), source(5).into_source()]).unwrap();
    let builder = || small(both()).batch_size(5).sampler(both().shares([4, 1]).unwrap());
    let whole = delivered(&on_cpu(builder()), 1);
    // Six batches of 4 for the first source, which has 23: none is left out.
    assert_eq!(whole.len(), 30);
    let shares = |samples: &[Delivered]| {
        assert!(samples.chunks(5).all(|batch| batch.iter().filter(|sample| sample.index >= 23).count() == 1));
    };
    shares(&whole);
    assert_eq!(delivered(&on_cpu(builder().threads(0)), 1), whole);
    let ranks: Vec<Vec<Delivered>> =
        (0..3).map(|rank| delivered(&on_cpu(builder().partition(Partition::new(rank, 3).unwrap())), 1)).collect();
    ranks.iter().for_each(|own| shares(own));
    let mut once: Vec<u64> = ranks.concat().iter().map(|sample| sample.index).filter(|&index| index < 23).collect();
    once.sort_unstable();
    assert_eq!(once.len(), 24, "two batches for each rank");
    once.dedup();
    assert_eq!(once.len(), 23);
    // A bad sample's place is taken by one of the same source.
    let with_bad = |source| WithBad { good: source, bad: vec![1, 2] }.into_source();
    let both_bad = Concat::new([with_bad(source(23)), with_bad(source(5))]).unwrap();
    let sampler = both_bad.shares([4, 1]).unwrap();
    shares(&delivered(&on_cpu(small(both_bad).sampler(sampler).on_error(OnError::Substitute)), 1));
    let error = builder().batch_size(6).build().unwrap_err().to_string();
    assert!(error.contains("batch_size must be 5"), "{error}");
    for counts in [vec![4], vec![4, 0]] {
        assert!(both().shares(counts).unwrap_err().is_parameter());
    }
    let pipeline = on_cpu(builder());
    let state = pipeline.epoch(1).next().unwrap().unwrap().state();
    let rest: Vec<Delivered> = pipeline.resume(&state).unwrap().flat_map(|b| common::samples(&b.unwrap())).collect();
    assert_eq!(rest, whole[5..]);
}

#[test]
fn a_state_of_another_sampler_is_refused() {
    let state = |sampler: Option<Sampler>| {
        let builder = sampler.into_iter().fold(small(source(23)), PipelineBuilder::sampler);
        on_cpu(builder).epoch(1).next().unwrap().unwrap().state()
    };
    let states = samplers().map(|sampler| state(Some(sampler)));
    for (i, sampler) in samplers().into_iter().enumerate() {
        let pipeline = on_cpu(small(source(23)).sampler(sampler));
        for (j, state) in states.iter().enumerate() {
            let resumed = pipeline.resume(state).map(drop);
            assert_eq!(resumed.is_ok(), i == j, "{i} {j}: {resumed:?}");
        }
        let error = pipeline.resume(&state(None)).unwrap_err().to_string();
        assert!(error.contains("sampler"), "{error}");
    }
    assert!(on_cpu(small(source(23))).resume(&states[0]).is_err());
}

#[test]
fn bad_samples_are_substituted_by_any_other() {
    let bad = || WithBad { good: source(23), bad: vec![3, 4, 5] };
    let builder = || small(bad()).sampler(Sampler::repeated(3).positions(69)).on_error(OnError::Substitute);
    let all = delivered(&on_cpu(builder()), 1);
    assert_eq!(all.len(), 69);
    assert!(all.iter().all(|sample| !(3..6).contains(&sample.index)));
    assert_eq!(delivered(&on_cpu(builder().threads(0)), 1), all);
}

#[test]
fn a_stream_has_no_sampler() {
    let folder = tempfile::tempdir().unwrap();
    let options = warpfeed::pack::PackOptions::new(warpfeed::source::RecordFormat::WebDataset);
    warpfeed::pack::pack(&source(3), &folder.path().join("a"), &options, &mut |_| {}).unwrap();
    let stream: Input = OpenOptions::default().window(Some(2)).open(folder.path().join("a")).unwrap();
    let error = small(stream).sampler(Sampler::repeated(2)).build().unwrap_err().to_string();
    assert!(error.contains("sampler over a stream"), "{error}");
}

#[test]
fn each_occurrence_is_replayed_from_its_batch() {
    let bad = WithBad { good: source(23), bad: vec![3] };
    let pipelines = [
        small(source(23)).sampler(Sampler::repeated(3).positions(31)),
        small(bad).on_error(OnError::Substitute),
        small(source(23)).cache(ImageCache::memory(1 << 20)),
        Pipeline::builder(source(23))
            .shuffle(5)
            .batch_size(4)
            .last_batch(LastBatch::Pad)
            .views([view([random_resized_crop(8)]).times(2), five_crop(16)]),
    ];
    for pipeline in pipelines.map(|builder| on_cpu(builder.output(DType::U8, Layout::Nhwc))) {
        for batch in (0..2).flat_map(|_| pipeline.epoch(1)).map(Result::unwrap) {
            let (repetitions, sizes) = (batch.repetitions(), batch.stored_sizes());
            assert_eq!((repetitions.len(), sizes.len()), (batch.len(), batch.len()));
            for i in 0..batch.len() {
                let (index, recipes) = (batch.indices()[i], batch.recipes(i).unwrap());
                assert_eq!(pipeline.recipes_of(1, index, repetitions[i]).unwrap(), recipes);
                let encoded = source(23).encoded(index).unwrap();
                assert_eq!(warpfeed::image::probe(&encoded).unwrap().size, sizes[i]);
                let mut recipes = recipes.iter();
                for (view, (_, times)) in pipeline.view_sizes().into_iter().enumerate() {
                    for place in (0..times).map(|time| time * batch.len() + i) {
                        let recipe = recipes.next().unwrap();
                        let options = common::as_made(recipe).orientation(Orientation::Ignore);
                        let replayed = apply(&encoded, recipe, &options).unwrap();
                        assert!(batch.view(view).unwrap().image_bytes(place).unwrap() == replayed.as_bytes().unwrap());
                    }
                }
            }
            assert!(batch.recipes(batch.len()).unwrap_err().is_parameter());
        }
    }
}
