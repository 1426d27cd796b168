//! The pipeline as a whole: what it delivers, what it refuses, and how it ends.

mod common;

use common::{Delivered, Random, WithBad, delivered, jpeg, samples, small, source};
use half::{bf16, f16};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use warpfeed::experiment::run::{RunReport, run};
use warpfeed::*;

fn report(pipeline: &Pipeline, epochs: std::ops::Range<u64>) -> RunReport {
    run(pipeline, epochs, true, Instant::now(), &mut |_| ()).unwrap()
}

fn digest(pipeline: &Pipeline, epoch: u64) -> String {
    report(pipeline, epoch..epoch + 1).digest.unwrap()
}

// ---- the same whatever the machinery ----

#[test]
fn the_machinery_leaves_no_mark() {
    let pictures = source(37);
    let want = digest(&small(pictures.clone()).threads(1).batch_size(1).prefetch(1).build().unwrap(), 3);
    for threads in [1, 2, 3, 8] {
        for batch_size in [1, 5, 32] {
            for prefetch in [1, 2, 5] {
                let builder = small(pictures.clone()).threads(threads).batch_size(batch_size).prefetch(prefetch);
                let pipeline = builder.build().unwrap();
                let case = format!("{threads} threads, batches of {batch_size}, prefetch {prefetch}");
                assert_eq!(digest(&pipeline, 3), want, "{case}");
                // A clone, and a second time with the memory and decoders of the first.
                assert_eq!(digest(&pipeline.clone(), 3), want, "{case}, a clone");
            }
        }
    }
}

#[test]
fn seeds_and_epochs_make_other_orders_and_pixels() {
    let pictures = source(20);
    let pipeline = |seed| small(pictures.clone()).shuffle(seed).build().unwrap();
    let seven = pipeline(7);
    let zero = delivered(&seven, 0);
    assert_eq!(zero, delivered(&pipeline(7), 0));
    for other in [delivered(&seven, 1), delivered(&pipeline(8), 0)] {
        let order = |samples: &[Delivered]| samples.iter().map(|s| s.index).collect::<Vec<_>>();
        assert_ne!(order(&zero), order(&other));
        for sample in &zero {
            let again = other.iter().find(|s| s.index == sample.index).expect("every sample once");
            assert_eq!(again.label, sample.label);
            assert_ne!(again.bytes, sample.bytes, "sample {} looks the same", sample.index);
        }
    }
    // Without shuffling the seed is that of the pixels alone.
    let in_order = |seed| {
        let builder = Pipeline::builder(pictures.clone()).seed(seed).augment(random_resized_crop(24, 20));
        delivered(&builder.build().unwrap(), 0)
    };
    let (one, two) = (in_order(1), in_order(2));
    assert!(one.iter().zip(0..).all(|(s, i)| s.index == i));
    assert!(one.iter().zip(&two).all(|(a, b)| a.index == b.index && a.bytes != b.bytes));
}

#[test]
fn shards_are_parts_of_the_whole() {
    let pictures = source(23);
    let whole = delivered(&small(pictures.clone()).build().unwrap(), 2);
    assert_eq!(whole.iter().map(|s| s.index).collect::<BTreeSet<_>>().len(), 23);
    for count in [1, 2, 3, 5, 23, 30] {
        let mut merged: Vec<Option<Delivered>> = vec![None; whole.len()];
        for index in 0..count {
            let shard = small(pictures.clone()).shard(Shard::new(index, count).unwrap()).build().unwrap();
            let own = delivered(&shard, 2);
            assert_eq!(own.len() as u64, shard.len());
            for (turn, sample) in own.into_iter().enumerate() {
                assert_eq!(merged[turn * count as usize + index as usize].replace(sample), None);
            }
        }
        assert!(merged.iter().flatten().eq(&whole), "{count} shards");
    }
}

// ---- batches ----

#[test]
fn last_batches_are_kept_dropped_or_padded() {
    let pictures = source(13);
    let with = |last| small(pictures.clone()).last_batch(last).build().unwrap();
    let sizes = |pipeline: &Pipeline| pipeline.epoch(0).map(|b| b.map(|b| (b.len(), b.padding())).unwrap()).collect();
    let (keep, drop, pad) = (with(LastBatch::Keep), with(LastBatch::Drop), with(LastBatch::Pad));
    for (pipeline, want) in
        [(&keep, vec![(5, 0), (5, 0), (3, 0)]), (&drop, vec![(5, 0), (5, 0)]), (&pad, vec![(5, 0), (5, 0), (5, 2)])]
    {
        let got: Vec<(usize, usize)> = sizes(pipeline);
        assert_eq!(got, want);
        assert_eq!(pipeline.batches(), want.len() as u64);
    }
    assert_eq!(digest(&keep, 0), digest(&pad, 0), "padding is not in the digest");
    assert_ne!(digest(&keep, 0), digest(&drop, 0));
    let reports = [&keep, &drop, &pad].map(|pipeline| report(pipeline, 0..2));
    assert_eq!(reports.map(|r| (r.pictures, r.batches)), [(26, 6), (20, 4), (26, 6)]);
    let last = pad.epoch(0).last().unwrap().unwrap();
    for i in 3..5 {
        assert_eq!(last.images().picture_bytes(i), last.images().picture_bytes(2));
        assert_eq!((last.labels()[i], last.indices()[i]), (last.labels()[2], last.indices()[2]));
    }
    // Fewer samples than a batch.
    let few = |last| small(source(2)).last_batch(last).build().unwrap();
    assert_eq!(few(LastBatch::Drop).epoch(0).count(), 0);
    let padded = few(LastBatch::Pad).epoch(0).next().unwrap().unwrap();
    assert_eq!((padded.len(), padded.padding(), padded.images().shape()), (5, 3, [5, 3, 20, 24]));
}

#[test]
fn a_limit_ends_epochs_early() {
    let pictures = source(13);
    let whole = delivered(&small(pictures.clone()).build().unwrap(), 0);
    for limit in [0, 1, 5, 7, 13, 14, u64::MAX] {
        let pipeline = small(pictures.clone()).limit(limit).build().unwrap();
        let count = limit.min(13);
        assert_eq!((pipeline.len(), pipeline.is_empty()), (count, count == 0));
        assert_eq!(delivered(&pipeline, 0), whole[..count as usize], "limit {limit}");
        let dropping = small(pictures.clone()).limit(limit).last_batch(LastBatch::Drop).build().unwrap();
        assert_eq!(delivered(&dropping, 0).len() as u64, count / 5 * 5);
    }
    let shard = small(pictures).shard(Shard::new(1, 2).unwrap()).limit(3).build().unwrap();
    let want: Vec<_> = whole.into_iter().skip(1).step_by(2).take(3).collect();
    assert_eq!(delivered(&shard, 0), want);
}

#[test]
fn an_empty_source_has_empty_epochs() {
    let pipeline = small(EncodedPictures::default()).build().unwrap();
    let mut epoch = pipeline.epoch(0);
    assert!(epoch.next().is_none() && epoch.next().is_none());
    assert_eq!((epoch.pictures(), epoch.stats().pictures), (0, 0));
}

#[test]
fn types_and_layouts_are_forms_of_the_same_numbers() {
    let pictures = source(7);
    let batch = |normalize: bool, dtype, layout| {
        let builder = small(pictures.clone()).batch_size(7);
        let builder = if normalize { builder.normalize(IMAGENET_MEAN, IMAGENET_STD) } else { builder };
        builder.output(dtype, layout).build().unwrap().epoch(0).next().unwrap().unwrap()
    };
    // NHWC numbers put in the order of NCHW.
    let planes = |tensor: &Tensor, values: Vec<u32>| -> Vec<u32> {
        let [n, ..] = tensor.shape();
        let (channels, pixels) = (3, 24 * 20);
        (0..n * channels * pixels)
            .map(|i| (i / (channels * pixels), i / pixels % channels, i % pixels))
            .map(|(n, c, p)| values[(n * pixels + p) * channels + c])
            .collect()
    };
    let bytes = batch(false, DType::U8, Layout::Nhwc);
    assert_eq!(bytes.images().shape(), [7, 20, 24, 3]);
    let raw = planes(bytes.images(), bytes.images().as_bytes().iter().map(|&v| v.into()).collect());
    let u8_planes = batch(false, DType::U8, Layout::Nchw);
    assert_eq!(u8_planes.images().shape(), [7, 3, 20, 24]);
    assert!(u8_planes.images().as_slice::<u8>().unwrap().iter().map(|&v| u32::from(v)).eq(raw.iter().copied()));
    for normalize in [false, true] {
        let want: Vec<f32> = (raw.iter().enumerate())
            .map(|(i, &v)| {
                let (c, v) = (i / (24 * 20) % 3, v as f32 / 255.0);
                if normalize { (v - IMAGENET_MEAN[c]) / IMAGENET_STD[c] } else { v }
            })
            .collect();
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let order = |tensor: &Tensor, values: Vec<u32>| match layout {
                Layout::Nchw => values,
                Layout::Nhwc => planes(tensor, values),
            };
            let case = format!("normalize {normalize}, {layout:?}");
            let full = batch(normalize, DType::F32, layout);
            let got = full.images().as_slice::<f32>().unwrap().iter().map(|v| v.to_bits()).collect();
            assert!(order(full.images(), got).into_iter().eq(want.iter().map(|v| v.to_bits())), "f32, {case}");
            let half = batch(normalize, DType::F16, layout);
            let got = half.images().as_slice::<f16>().unwrap().iter().map(|v| v.to_bits().into()).collect();
            let nearest = want.iter().map(|&v| u32::from(f16::from_f32(v).to_bits()));
            assert!(order(half.images(), got).into_iter().eq(nearest), "f16, {case}");
            let brain = batch(normalize, DType::Bf16, layout);
            let got = brain.images().as_slice::<bf16>().unwrap().iter().map(|v| v.to_bits().into()).collect();
            // Written out: the upper half, rounded to nearest, ties to even.
            let nearest = want.iter().map(|v| (v.to_bits() + 0x7FFF + (v.to_bits() >> 16 & 1)) >> 16);
            assert!(order(brain.images(), got).into_iter().eq(nearest), "bf16, {case}");
            assert!(brain.images().as_slice::<f16>().unwrap_err().is_parameter());
        }
    }
}

// ---- bad samples ----

/// Positions of the epoch's order at which a sample is bad; there are 23 samples in batches of 5.
const BAD_POSITIONS: [&[usize]; 7] =
    [&[0], &[22], &[11], &[4, 5], &[10, 11, 12, 13, 14], &[1, 2, 8, 20, 21], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]];

fn with_bad(positions: &[usize]) -> (Vec<Delivered>, WithBad, BTreeSet<u64>) {
    let good = source(23);
    let whole = delivered(&small(good.clone()).build().unwrap(), 0);
    let bad: BTreeSet<u64> = positions.iter().map(|&position| whole[position].index).collect();
    let source = WithBad { good, bad: bad.iter().copied().collect() };
    (whole, source, bad)
}

#[test]
fn failing_delivers_what_comes_before() {
    for positions in BAD_POSITIONS {
        for threads in [1, 3] {
            let (whole, source, _) = with_bad(positions);
            let pipeline = small(source).threads(threads).build().unwrap();
            let mut epoch = pipeline.epoch(0);
            let before = positions[0] / 5;
            for batch in 0..before {
                let got = samples(&epoch.next().unwrap().unwrap());
                assert_eq!(got, whole[batch * 5..][..5], "{positions:?}");
            }
            let error = epoch.next().unwrap().unwrap_err();
            let index = whole[positions[0]].index;
            assert!(error.is_bad_sample() && !error.is_parameter());
            assert!(matches!(&error, Error::Sample { index: i, .. } if *i == index), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("sample {index} (folder/{index}.jpg)")), "{text}");
            assert!(text.contains("truncated"), "{text}");
            assert!(epoch.next().is_none() && epoch.next().is_none(), "an error ends the epoch");
            assert_eq!(epoch.stats().pictures, before as u64 * 5);
        }
    }
}

#[test]
fn skipping_leaves_out_the_bad_alone() {
    for positions in BAD_POSITIONS {
        for last in [LastBatch::Keep, LastBatch::Pad] {
            let (whole, source, bad) = with_bad(positions);
            let pipeline = small(source).on_error(OnError::Skip).last_batch(last).build().unwrap();
            let mut epoch = pipeline.epoch(0);
            let mut batches: Vec<Vec<Delivered>> = Vec::new();
            for batch in epoch.by_ref() {
                let batch = batch.unwrap();
                assert!(last == LastBatch::Keep || batch.len() == 5);
                batches.push(samples(&batch));
            }
            let want: Vec<Vec<Delivered>> = (whole.chunks(5))
                .map(|batch| batch.iter().filter(|s| !bad.contains(&s.index)).cloned().collect::<Vec<_>>())
                .filter(|batch| !batch.is_empty())
                .collect();
            assert_eq!(batches, want, "{positions:?}");
            let stats = epoch.stats();
            let (bad_count, good_count) = (bad.len() as u64, 23 - bad.len() as u64);
            assert_eq!((stats.bad, stats.pictures, stats.batches), (bad_count, good_count, want.len() as u64));
            let reported = epoch.bad();
            assert!(reported.iter().map(|b| b.index).eq(bad.iter().copied()), "in the source's order");
            assert!(reported.iter().all(|b| b.path == format!("folder/{}.jpg", b.index)));
            assert!(reported.iter().all(|b| b.error.contains("truncated")));
        }
    }
}

#[test]
fn substitutes_are_the_same_for_any_number_of_threads() {
    for positions in BAD_POSITIONS {
        let mut first: Option<Vec<Delivered>> = None;
        for (threads, batch_size) in [(1, 5), (2, 23), (8, 1), (3, 5)] {
            let (whole, source, bad) = with_bad(positions);
            let builder = small(source).threads(threads).batch_size(batch_size).on_error(OnError::Substitute);
            let pipeline = builder.build().unwrap();
            let mut epoch = pipeline.epoch(0);
            let got: Vec<Delivered> = epoch.by_ref().flat_map(|batch| samples(&batch.unwrap())).collect();
            assert_eq!(got.len(), 23);
            for (got, want) in got.iter().zip(&whole) {
                if bad.contains(&want.index) {
                    // Another sample, with its own pixels and label.
                    let own = whole.iter().find(|s| s.index == got.index).unwrap();
                    assert!(!bad.contains(&got.index));
                    assert_eq!(got, own);
                } else {
                    assert_eq!(got, want);
                }
            }
            let stats = epoch.stats();
            assert_eq!((stats.bad, stats.pictures), (bad.len() as u64, 23));
            assert!(epoch.bad().iter().map(|b| b.index).eq(bad));
            assert_eq!(first.get_or_insert_with(|| got.clone()), &got);
        }
    }
}

#[test]
fn where_all_are_bad_there_is_nothing_to_give() {
    let all = || WithBad { good: source(12), bad: (0..12).collect() };
    let mut skipping = small(all()).on_error(OnError::Skip).build().unwrap().epoch(0);
    assert!(skipping.next().is_none());
    assert_eq!((skipping.stats().bad, skipping.stats().pictures, skipping.bad().len()), (12, 0, 12));
    let mut substituting = small(all()).on_error(OnError::Substitute).build().unwrap().epoch(0);
    let error = substituting.next().unwrap().unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("check the data set"), "{error}");
    assert!(substituting.next().is_none());
    // One sample has none to stand in for it.
    let alone = WithBad { good: source(1), bad: vec![0] };
    let error = small(alone).on_error(OnError::Substitute).build().unwrap().epoch(0).next().unwrap().unwrap_err();
    assert!(error.to_string().contains("no other sample"), "{error}");
}

/// What is wrong about a parameter is wrong about the pipeline, whatever the policy.
#[test]
fn a_wrong_parameter_is_not_skipped() {
    let outside = Op::ResizedCrop {
        x: 0,
        y: 0,
        width: 60,
        height: 60,
        out_width: 8,
        out_height: 8,
        interpolation: Interpolation::Bilinear,
    };
    for policy in [OnError::Fail, OnError::Skip, OnError::Substitute] {
        let pipeline = Pipeline::builder(EncodedPictures::new([(jpeg(50, 70, 1), 0)]))
            .augment(outside.clone())
            .on_error(policy)
            .build()
            .unwrap();
        let error = pipeline.epoch(0).next().unwrap().unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("inside the picture of 50 x 70"), "{error}");
    }
}
