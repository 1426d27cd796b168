//! The pipeline as a whole: batches, refusals and the end.

use crate::common::{self, Asking, Delivered, Random, WithBad, delivered, jpeg, samples, small, source};
use half::{bf16, f16};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use warpfeed::ops::Resize;
use warpfeed::{
    BadLimit, Batch, DType, Device, Error, IMAGENET_MEAN, IMAGENET_STD, LastBatch, Layout, OnError, Orientation,
    Partition, Pipeline, PipelineBuilder, Result, Strategy, Target, TargetSpec, Tensor, apply,
    image::{ChromaSampling, Image, JpegOptions, Rect, Size, encode_jpeg},
    ops::{
        Brightness, CenterCrop, Contrast, Crop, Custom, CustomTransform, Dilate, Erase, Erode, Fill, GaussianBlur,
        Grayscale, Hflip, Hue, Interpolation, Normalize, Op, RandomResizedCrop, RandomRotation, ResizedCrop, Rotate,
        SampleInfo, SampleRng, Saturation, SizeEffect, Transform, Vflip, color_jitter, maybe, one_of, random_crop,
        random_dilation, random_erasing, random_erosion, random_gaussian_blur, random_grayscale,
        random_horizontal_flip, random_resized_crop, random_rotation, random_vertical_flip, repeat,
    },
    source::{EncodedImages, MAX_ENCODED_BYTES, ReadRequest, Sample, Source, SourceExt},
};
use warpfeed_bench::run::{RunReport, run};

fn report(pipeline: &Pipeline, epochs: std::ops::Range<u64>) -> RunReport {
    run(pipeline, epochs, true, Instant::now(), &mut |_| ()).unwrap()
}

fn digest(pipeline: &Pipeline, epoch: u64) -> String {
    report(pipeline, epoch..epoch + 1).digest.unwrap()
}

// ---- the same whatever the machinery ----

#[test]
fn the_machinery_leaves_no_mark() {
    let images = source(37);
    let want = digest(&small(images.clone()).threads(1).batch_size(1).prefetch(1).build().unwrap(), 3);
    for threads in [0, 1, 2, 3, 8] {
        for batch_size in [1, 5, 32] {
            for prefetch in [1, 2, 5] {
                let builder = small(images.clone()).threads(threads).batch_size(batch_size).prefetch(prefetch);
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
    let images = source(20);
    let pipeline = |seed| small(images.clone()).shuffle(seed).build().unwrap();
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
        let builder = Pipeline::builder(images.clone()).seed(seed).transform(random_resized_crop(Size::new(24, 20)));
        delivered(&builder.build().unwrap(), 0)
    };
    let (one, two) = (in_order(1), in_order(2));
    assert!(one.iter().zip(0..).all(|(s, i)| s.index == i));
    assert!(one.iter().zip(&two).all(|(a, b)| a.index == b.index && a.bytes != b.bytes));
}

#[test]
fn shards_are_parts_of_the_whole() {
    let images = source(23);
    let whole = delivered(&small(images.clone()).build().unwrap(), 2);
    assert_eq!(whole.iter().map(|s| s.index).collect::<BTreeSet<_>>().len(), 23);
    for count in [1, 2, 3, 5, 23, 30] {
        let mut merged: Vec<Option<Delivered>> = vec![None; whole.len()];
        for index in 0..count {
            let partition = small(images.clone()).partition(Partition::new(index, count).unwrap()).build().unwrap();
            let own = delivered(&partition, 2);
            assert_eq!(Some(own.len() as u64), partition.num_samples());
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
    let images = source(13);
    let with = |last| small(images.clone()).last_batch(last).build().unwrap();
    let sizes = |pipeline: &Pipeline| pipeline.epoch(0).map(|b| b.map(|b| (b.len(), b.padding())).unwrap()).collect();
    let (keep, drop, pad) = (with(LastBatch::Keep), with(LastBatch::Drop), with(LastBatch::Pad));
    for (pipeline, want) in
        [(&keep, vec![(5, 0), (5, 0), (3, 0)]), (&drop, vec![(5, 0), (5, 0)]), (&pad, vec![(5, 0), (5, 0), (5, 2)])]
    {
        let got: Vec<(usize, usize)> = sizes(pipeline);
        assert_eq!(got, want);
        assert_eq!(pipeline.batches(), Some(want.len() as u64));
    }
    assert_eq!(digest(&keep, 0), digest(&pad, 0), "padding is not in the digest");
    assert_ne!(digest(&keep, 0), digest(&drop, 0));
    let reports = [&keep, &drop, &pad].map(|pipeline| report(pipeline, 0..2));
    assert_eq!(reports.map(|r| (r.images, r.batches)), [(26, 6), (20, 4), (26, 6)]);
    let last = pad.epoch(0).last().unwrap().unwrap();
    for i in 3..5 {
        assert_eq!(last.images().image_bytes(i).unwrap(), last.images().image_bytes(2).unwrap());
        assert_eq!((last.labels().unwrap()[i], last.indices()[i]), (last.labels().unwrap()[2], last.indices()[2]));
    }
    // Fewer samples than a batch; where that is dropped there would be none.
    let few = |last| small(source(2)).last_batch(last).build();
    assert!(few(LastBatch::Drop).unwrap_err().is_parameter());
    let padded = few(LastBatch::Pad).unwrap().epoch(0).next().unwrap().unwrap();
    assert_eq!((padded.len(), padded.padding(), padded.images().shape()), (5, 3, [5, 3, 20, 24]));
}

#[test]
fn a_limit_ends_epochs_early() {
    let images = source(13);
    let whole = delivered(&small(images.clone()).build().unwrap(), 0);
    for limit in [0, 1, 5, 7, 13, 14, u64::MAX] {
        let pipeline = small(images.clone()).limit(limit).build().unwrap();
        let count = limit.min(13);
        assert_eq!((pipeline.num_samples(), pipeline.is_empty()), (Some(count), count == 0));
        assert_eq!(delivered(&pipeline, 0), whole[..count as usize], "limit {limit}");
        let dropping = small(images.clone()).limit(limit).last_batch(LastBatch::Drop).build();
        match dropping {
            Ok(dropping) => assert_eq!(delivered(&dropping, 0).len() as u64, count / 5 * 5),
            Err(error) => assert!(count < 5 && error.is_parameter(), "limit {limit}: {error}"),
        }
    }
    let partition = small(images).partition(Partition::new(1, 2).unwrap()).limit(3).build().unwrap();
    let want: Vec<_> = whole.into_iter().skip(1).step_by(2).take(3).collect();
    assert_eq!(delivered(&partition, 0), want);
}

#[test]
fn an_empty_source_is_refused_and_an_empty_partition_has_empty_epochs() {
    let error = small(EncodedImages::default()).build().unwrap_err();
    assert!(error.is_parameter() && error.to_string().contains("without any"), "{error}");
    let pipeline = small(source(2)).partition(Partition::new(2, 3).unwrap()).build().unwrap();
    let mut epoch = pipeline.epoch(0);
    assert_eq!((epoch.images(), epoch.batches(), epoch.size_hint()), (Some(0), Some(0), (0, Some(0))));
    assert!(epoch.next().is_none() && epoch.next().is_none());
    assert_eq!(epoch.stats().images, 0);
}

#[test]
fn an_epoch_knows_how_many_batches_are_left() {
    let mut epoch = small(source(23)).build().unwrap().epoch(0);
    assert_eq!(epoch.batches(), Some(5));
    for left in (0..5).rev() {
        assert_eq!(epoch.size_hint(), (1, Some(left + 1)));
        epoch.next().unwrap().unwrap();
    }
    assert_eq!(epoch.size_hint(), (0, Some(0)));
    assert!(epoch.next().is_none());
    let skipping = small(source(23)).on_error(OnError::Skip).build().unwrap();
    assert_eq!(skipping.epoch(0).size_hint(), (0, Some(5)));
}

#[test]
fn a_batch_has_no_more_memory_than_an_epoch_has_samples() {
    let memory = |change: fn(PipelineBuilder) -> PipelineBuilder| {
        let builder =
            Pipeline::builder(source(10)).transform(Resize::new(Size::new(8, 8))).output(DType::U8, Layout::Nhwc);
        change(builder.batch_size(1 << 20)).build().unwrap().memory().batch_bytes
    };
    assert_eq!(memory(|builder| builder), 10 * 192);
    assert_eq!(memory(|builder| builder.limit(3)), 3 * 192);
    assert_eq!(memory(|builder| builder.batch_size(7)), 7 * 192);
    assert_eq!(memory(|builder| builder.last_batch(LastBatch::Pad).batch_size(64)), 64 * 192);
}

#[test]
fn types_and_layouts_are_forms_of_the_same_numbers() {
    let images = source(7);
    let batch = |normalize: bool, dtype, layout| {
        let builder = small(images.clone()).batch_size(7);
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
    let raw = planes(bytes.images(), bytes.images().as_bytes().unwrap().iter().map(|&v| v.into()).collect());
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
        for threads in [0, 1, 3] {
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
            assert_eq!(epoch.stats().images, before as u64 * 5);
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
            assert_eq!((stats.bad, stats.images, stats.batches), (bad_count, good_count, want.len() as u64));
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
        for (threads, batch_size) in [(1, 5), (2, 23), (8, 1), (3, 5), (0, 5)] {
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
            assert_eq!((stats.bad, stats.images), (bad.len() as u64, 23));
            assert!(epoch.bad().iter().map(|b| b.index).eq(bad));
            assert_eq!(first.get_or_insert_with(|| got.clone()), &got);
        }
    }
}

#[test]
fn where_all_are_bad_there_is_nothing_to_give() {
    let all = || WithBad { good: source(12), bad: (0..12).collect() };
    let mut skipping = small(all()).on_error(OnError::Skip).build().unwrap().epoch(0);
    let error = skipping.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::TooManyBad { bad: 12, samples: 12, .. }), "{error}");
    assert!(error.to_string().contains("folder/") && skipping.next().is_none(), "{error}");
    assert_eq!((skipping.stats().bad, skipping.stats().images, skipping.bad().len()), (12, 0, 12));
    let allowed = small(all()).on_error(OnError::Skip).max_bad(BadLimit::Share(1.0)).build().unwrap();
    assert!(allowed.epoch(0).next().is_none());
    let mut substituting = small(all()).on_error(OnError::Substitute).build().unwrap().epoch(0);
    let error = substituting.next().unwrap().unwrap_err();
    assert!(!error.is_bad_sample() && error.to_string().contains("check the data set"), "{error}");
    let Error::Sample { source: all_bad, .. } = error else { panic!("{error}") };
    let Error::NoSubstitute { tried: 16, source: own } = *all_bad else { panic!("{all_bad}") };
    assert!(matches!(*own, Error::Decode { .. }), "the sample's own error is kept: {own}");
    assert!(substituting.next().is_none());
    // One sample has none to stand in for it.
    let alone = WithBad { good: source(1), bad: vec![0] };
    let error = small(alone).on_error(OnError::Substitute).build().unwrap().epoch(0).next().unwrap().unwrap_err();
    assert!(error.to_string().contains("no other sample"), "{error}");
}

#[test]
fn too_many_bad_samples_end_the_epoch_at_the_same_batch_for_any_number_of_threads() {
    let bad: Vec<u64> = vec![1, 4, 9, 13, 14];
    for (limit, batches) in [
        (BadLimit::Count(4), Some(2)),
        (BadLimit::Count(5), None),
        (BadLimit::Share(0.1), Some(1)),
        (BadLimit::Share(0.22), None),
        (BadLimit::Count(0), Some(0)),
    ] {
        for policy in [OnError::Skip, OnError::Substitute] {
            for threads in [0, 1, 3] {
                let source = WithBad { good: source(23), bad: bad.clone() };
                let builder = Pipeline::builder(source).transform(CenterCrop::new(8)).batch_size(5).threads(threads);
                let mut epoch = builder.on_error(policy).max_bad(limit).build().unwrap().epoch(0);
                let good = epoch.by_ref().take_while(Result::is_ok).count();
                assert_eq!(good, batches.unwrap_or(5), "{limit:?} {policy:?}, {threads} threads");
            }
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_every_sample_would_meet_is_no_samples_fault() {
    let end = |number, at: fn(u64) -> bool, policy| {
        let source = Asking(source(20), move |index, _: &ReadRequest<'_>| match at(index) {
            true => Err(common::cannot_open(index, number)),
            false => Ok(()),
        });
        let pipeline =
            Pipeline::builder(source).transform(CenterCrop::new(8)).batch_size(5).threads(1).on_error(policy).build();
        let mut epoch = pipeline.unwrap().epoch(0);
        let error = epoch.find_map(Result::err).map(|error| error.to_string());
        (error, epoch.stats())
    };
    for policy in [OnError::Skip, OnError::Substitute] {
        // No more open files, a stale share, no memory: the first ends the epoch.
        for (number, word) in [(24, "ulimit -n"), (116, "check the network"), (12, "memory")] {
            let (error, stats) = end(number, |index| index == 7, policy);
            assert!(error.as_ref().is_some_and(|text| text.contains("7.jpg") && text.contains(word)), "{error:?}");
            assert_eq!((stats.bad, stats.images), (0, 5), "{policy:?}");
        }
        // A missing file is a bad sample.
        let (error, stats) = end(2, |index| index % 3 == 1, policy);
        assert_eq!((error, stats.bad), (None, 7));
        // So are files that the disk fails at, but not three in a row.
        let (error, stats) = end(5, |index| index % 3 > 0, OnError::Skip);
        assert_eq!((error, stats.bad), (None, 13));
        let (error, stats) = end(5, |index| index % 10 > 6, OnError::Skip);
        let error = error.unwrap();
        assert!(error.contains("one after the other") && error.contains("7.jpg") || error.contains("9.jpg"), "{error}");
        assert_eq!(stats.images, 5);
    }
}

/// A wrong parameter is a fault of the pipeline, whatever the policy.
#[test]
fn a_wrong_parameter_is_not_skipped() {
    let outside = ResizedCrop::new(Rect { x: 0, y: 0, width: 60, height: 60 }, 8);
    for policy in [OnError::Fail, OnError::Skip, OnError::Substitute] {
        let pipeline = Pipeline::builder(EncodedImages::new([(jpeg(50, 70, 1), 0)]))
            .transform(outside)
            .on_error(policy)
            .build()
            .unwrap();
        let error = pipeline.epoch(0).next().unwrap().unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("inside the image of 50 x 70"), "{error}");
    }
}

// ---- foreign code ----

/// Faults of a source of the caller's own.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Panic {
    Read,
    Label,
    Name,
}

/// Panics at every third sample while it is armed.
struct Panicking {
    good: EncodedImages,
    panic: Panic,
    armed: Arc<AtomicBool>,
}

impl Panicking {
    fn at(&self, panic: Panic, index: u64) {
        if self.panic == panic && index.is_multiple_of(3) && self.armed.load(SeqCst) {
            panic!("{panic:?} of {index}");
        }
    }
}

impl Source for Panicking {
    fn len(&self) -> u64 {
        self.good.len()
    }
    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        self.at(Panic::Read, index);
        self.good.read(index, want, sample)?;
        // A name is asked for only where something is wrong.
        if self.panic == Panic::Name && self.armed.load(SeqCst) {
            sample.keep(0..10);
        }
        Ok(())
    }
    fn label(&self, index: u64) -> Option<u32> {
        self.at(Panic::Label, index);
        self.good.label(index)
    }
    fn name(&self, index: u64) -> Cow<'_, str> {
        self.at(Panic::Name, index);
        self.good.name(index)
    }
}

/// Runs an epoch to its error, then, disarmed, another that must be right.
fn ends_in_an_error_and_works_again(
    builder: impl Fn() -> PipelineBuilder,
    armed: &AtomicBool,
    want: &[Delivered],
) -> Error {
    let pipeline = builder().build().unwrap();
    let mut error = None;
    for turn in 0..3 {
        armed.store(true, SeqCst);
        let mut epoch = pipeline.epoch(0);
        error = epoch.find_map(Result::err);
        assert!(error.is_some(), "no error in turn {turn}");
        assert!(epoch.next().is_none());
        armed.store(false, SeqCst);
        assert_eq!(delivered(&pipeline, 0), want, "turn {turn}");
    }
    error.unwrap()
}

#[test]
fn a_panicking_source_is_an_error() {
    let good = source(17);
    let want = delivered(&small(good.clone()).build().unwrap(), 0);
    for panic in [Panic::Read, Panic::Label, Panic::Name] {
        for (threads, policy) in [(0, OnError::Fail), (1, OnError::Fail), (3, OnError::Skip), (2, OnError::Substitute)]
        {
            if panic == Panic::Name && policy == OnError::Skip {
                continue; // No error then: the reports lack their names, see below.
            }
            let armed = Arc::new(AtomicBool::new(false));
            let builder = || {
                let source = Panicking { good: good.clone(), panic, armed: Arc::clone(&armed) };
                small(source).threads(threads).on_error(policy)
            };
            let error = ends_in_an_error_and_works_again(builder, &armed, &want);
            let Error::Sample { index, source, .. } = &error else { panic!("{error}") };
            if panic != Panic::Name {
                assert!(matches!(**source, Error::Panic { .. }), "{error}");
                assert!(error.to_string().contains(&format!("{panic:?} of {index}")), "{error}");
                assert!(!error.is_bad_sample(), "a defect in code is not the sample's fault");
            }
        }
    }
    let source = Panicking { good, panic: Panic::Name, armed: Arc::new(AtomicBool::new(true)) };
    let mut epoch = small(source).on_error(OnError::Skip).build().unwrap().epoch(0);
    assert!(epoch.next().unwrap().is_err() && epoch.next().is_none());
    let bad = epoch.bad();
    assert_eq!(bad.len(), 17);
    for bad in bad {
        assert_eq!(bad.path.contains("cannot be had"), bad.index.is_multiple_of(3), "{bad:?}");
    }
}

type DrawOps = fn() -> Vec<Op>;

/// An augmentation of the caller's own that does something wrong while it is armed.
struct Wrong {
    armed: Arc<AtomicBool>,
    ops: DrawOps,
}

impl CustomTransform for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }
    fn draw(&self, _rng: &mut SampleRng, _sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
        Ok(if self.armed.load(SeqCst) { (self.ops)() } else { Vec::new() })
    }
}

fn custom(apply: fn(&mut Image)) -> Op {
    Custom::new("custom", apply).into()
}

#[test]
fn a_wrong_custom_operation_is_an_error() {
    let good = source(9);
    let want = delivered(&small(good.clone()).build().unwrap(), 0);
    let cases: [(&str, DrawOps); 7] = [
        ("drawn badly", || panic!("drawn badly")),
        ("size must be unchanged", || vec![CenterCrop::new(Size::new(3, 4)).into()]),
        ("made badly", || vec![custom(|_| panic!("made badly"))]),
        ("of the same size as before", || vec![custom(|image| *image = Image::new(Size::new(1, 1)))]),
        ("of the same size as before", || vec![custom(|image| *image = Image::new(Size::new(200, 300)))]),
        ("kernel must be odd", || vec![GaussianBlur::new(2, 1.0).into()]),
        ("only 8-bit", || vec![Normalize::new([0.5; 3], [1.0; 3]).into()]),
    ];
    for (words, ops) in cases {
        for (strategy, policy) in [(Strategy::Fused, OnError::Skip), (Strategy::Sequential, OnError::Fail)] {
            let armed = Arc::new(AtomicBool::new(false));
            // At the end, where a wrong size would meet the batch, and in the middle.
            for at_end in [false, true] {
                let builder = || {
                    let wrong = Wrong { armed: Arc::clone(&armed), ops };
                    let builder = small(good.clone()).strategy(strategy).on_error(policy);
                    if at_end { builder.transform(wrong) } else { before(wrong, good.clone(), strategy, policy) }
                };
                let error = if at_end {
                    ends_in_an_error_and_works_again(builder, &armed, &want)
                } else {
                    let want = delivered(&builder().build().unwrap(), 0);
                    ends_in_an_error_and_works_again(builder, &armed, &want)
                };
                let text = error.to_string();
                assert!(text.contains(words), "{strategy:?}: {text}");
                assert!(!error.is_bad_sample(), "{text}");
            }
        }
    }
}

fn before(op: impl Into<Transform>, source: EncodedImages, strategy: Strategy, policy: OnError) -> PipelineBuilder {
    let builder = Pipeline::builder(source).batch_size(4).threads(2).strategy(strategy).on_error(policy);
    builder.transform(op).transform(random_resized_crop(Size::new(24, 20)))
}

/// One that does it right: its pixels are those of its operations, whatever the strategy, and its draws are its own.
#[test]
fn a_custom_operation_does_its_work() {
    struct Darken;
    impl CustomTransform for Darken {
        fn name(&self) -> &'static str {
            "darken"
        }
        fn draw(&self, rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
            assert!(sample.size.width >= 30 || sample.size == Size::new(24, 20));
            let by = rng.below(100) as u8;
            let apply = move |image: &mut Image| {
                image.pixels_mut().iter_mut().for_each(|p| p.iter_mut().for_each(|v| *v = v.saturating_sub(by)));
            };
            Ok(vec![Custom::new("darken", apply).into(), Hflip.into()])
        }
    }
    let build = |strategy, custom: bool| {
        let builder = Pipeline::builder(source(9)).strategy(strategy).transform(random_rotation(-9.0..=9.0));
        let builder = if custom { builder.transform(Darken) } else { builder };
        let builder = builder.transform(random_resized_crop(Size::new(24, 20)));
        let builder = if custom { builder.transform(Darken) } else { builder };
        builder.build().unwrap()
    };
    let fused = digest(&build(Strategy::Fused, true), 1);
    assert_eq!(fused, digest(&build(Strategy::Sequential, true), 1));
    assert_ne!(fused, digest(&build(Strategy::Fused, false), 1));
}

/// Recipes depend on what the transform sees, and they are the same when they are drawn again, from the batch without
/// its targets and from the source.
#[test]
fn a_custom_transform_sees_index_label_and_target() {
    struct Told;
    impl CustomTransform for Told {
        fn name(&self) -> &'static str {
            "told"
        }
        fn draw(&self, _rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
            let Some(Target::Floats(target)) = sample.target else { return Ok(Vec::new()) };
            Ok(vec![Brightness::new(told(sample.index, sample.label.unwrap(), target[0])).into()])
        }
    }
    fn told(index: u64, label: u32, target: f32) -> f64 {
        0.1 + index as f64 / 100.0 + f64::from(label) / 10.0 + f64::from(target)
    }
    let target = |index: u64| index as f32 / 16.0;
    let images =
        source(10).targets("weight", move |sample| Ok(Target::Floats(vec![target(sample.index)]))).into_source();
    let labels: Vec<u32> = (0..10).filter_map(|index| images.label(index)).collect();
    for transform in [Transform::from(Told), maybe(1.0, [Told.into()])] {
        let builder = small(Arc::clone(&images)).shuffle(3).batch_size(4).last_batch(LastBatch::Pad);
        let builder = builder.transform(transform).targets(TargetSpec::floats(1).field("weight"));
        let pipeline = builder.build().unwrap();
        for batch in pipeline.epoch(1) {
            let mut batch = batch.unwrap();
            drop(batch.take_targets());
            for (i, &index) in batch.indices().iter().enumerate() {
                let recipe = batch.recipes(i).unwrap().remove(0);
                assert_eq!(recipe, pipeline.recipe(1, index).unwrap());
                let want = told(index, labels[index as usize], target(index));
                assert!(
                    matches!(recipe.last(), Some(Op::Brightness(drawn)) if drawn.factor == want),
                    "{index}: {recipe:?}"
                );
            }
        }
    }
}

/// A transform that says that it changes the size may do so; other behavior than stated is an error.
#[test]
fn a_custom_transform_may_change_the_size() {
    struct Thumbnail {
        size: Size,
    }
    impl CustomTransform for Thumbnail {
        fn name(&self) -> &'static str {
            "thumbnail"
        }
        fn draw(&self, _rng: &mut SampleRng, _sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
            let apply = |image: &mut Image| {
                let mut thumbnail = Image::new(Size::new(8, 6));
                thumbnail.pixels_mut().fill(image.pixels()[0]);
                *image = thumbnail;
            };
            Ok(vec![Custom::new("thumbnail", apply).output_size(|_| Size::new(8, 6)).into()])
        }
        fn size_effect(&self) -> SizeEffect {
            SizeEffect::Becomes(self.size)
        }
    }
    let build = |size, strategy| {
        let builder = Pipeline::builder(source(9)).strategy(strategy);
        builder.transform(Thumbnail { size }).transform(random_horizontal_flip(0.5)).build().unwrap()
    };
    for strategy in [Strategy::Sequential, Strategy::Fused, Strategy::Composed] {
        let pipeline = build(Size::new(8, 6), strategy);
        assert_eq!(pipeline.image_size(), Size::new(8, 6));
        let batch = pipeline.epoch(0).next().unwrap().unwrap();
        assert_eq!(batch.images().shape(), [9, 3, 6, 8]);
        let error = build(Size::new(8, 7), strategy).epoch(0).next().unwrap().unwrap_err();
        assert!(error.to_string().contains("thumbnail: size must be 8 x 7, as it says"), "{error}");
    }
}

// ---- threads, memory, time ----

/// Counts reads, notes the reading threads, and takes its time.
struct Watched {
    good: EncodedImages,
    reads: Arc<AtomicU64>,
    readers: Arc<std::sync::Mutex<BTreeSet<std::path::PathBuf>>>,
    /// Number of reads that may have begun by now, and whether more have.
    allowed: Arc<(AtomicU64, AtomicBool)>,
    delay: Duration,
}

impl Watched {
    fn new(count: u64, delay: Duration) -> Self {
        let allowed = Arc::new((AtomicU64::new(u64::MAX), AtomicBool::new(false)));
        Self { good: source(count), reads: Arc::default(), readers: Arc::default(), allowed, delay }
    }
}

impl Source for Watched {
    fn len(&self) -> u64 {
        self.good.len() * 1000
    }
    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if self.reads.fetch_add(1, SeqCst) >= self.allowed.0.load(SeqCst) {
            self.allowed.1.store(true, SeqCst);
        }
        if let Ok(task) = std::fs::read_link("/proc/thread-self") {
            self.readers.lock().unwrap().insert(std::path::Path::new("/proc").join(task));
        }
        std::thread::sleep(self.delay);
        self.good.read(index % self.good.len(), want, sample)
    }
    fn label(&self, index: u64) -> Option<u32> {
        self.good.label(index % self.good.len())
    }
    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("{index}").into()
    }
}

#[test]
fn dropping_an_epoch_midway_ends_its_threads_at_once() {
    for (threads, taken) in [(1, 0), (64, 0), (64, 3), (200, 1)] {
        // The batches ahead take 3,200 reads.
        let source = Watched::new(7, Duration::from_millis(20));
        let (readers, reads) = (Arc::clone(&source.readers), Arc::clone(&source.reads));
        let pipeline = small(source).threads(threads).batch_size(8).prefetch(400).build().unwrap();
        let mut epoch = pipeline.epoch(0);
        for _ in 0..taken {
            epoch.next().unwrap().unwrap();
        }
        let start = Instant::now();
        let begun = reads.load(SeqCst);
        drop(epoch);
        let more = reads.load(SeqCst) - begun;
        assert!(more < 1_600, "{threads} threads read {more} samples more");
        let readers = readers.lock().unwrap();
        assert!(readers.len() <= threads);
        assert!(taken == 0 || !readers.is_empty() || !cfg!(target_os = "linux"));
        for task in readers.iter() {
            // The system may list a thread for a moment after it was joined.
            while task.exists() {
                assert!(start.elapsed() < Duration::from_secs(60), "{} is still there", task.display());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn a_consumer_that_stalls_holds_the_workers() {
    for (threads, prefetch) in [(1, 1), (4, 1), (3, 2), (8, 5)] {
        let source = Watched::new(7, Duration::ZERO);
        let (reads, allowed) = (Arc::clone(&source.reads), Arc::clone(&source.allowed));
        let pipeline = small(source).threads(threads).batch_size(6).prefetch(prefetch).build().unwrap();
        allowed.0.store(prefetch as u64 * 6, SeqCst);
        let mut epoch = pipeline.epoch(0);
        let mut held = Vec::new();
        for taken in 0..4 {
            let want = (prefetch as u64 + taken) * 6;
            while reads.load(SeqCst) < want {
                std::thread::yield_now();
            }
            allowed.0.store(want + 6, SeqCst);
            held.push(epoch.next().unwrap().unwrap());
            let ahead = allowed.1.load(SeqCst);
            assert!(!ahead, "{threads} threads, prefetch {prefetch}: they read more than {want} before batch {taken}");
        }
        // Again and again, the threads find the queue full before the next batch is taken.
        while epoch.stats().worker_wait == Duration::ZERO {
            std::thread::sleep(Duration::from_millis(1));
            allowed.0.fetch_add(6, SeqCst);
            held.push(epoch.next().unwrap().unwrap());
        }
    }
}

#[test]
fn epochs_run_side_by_side() {
    let pipeline = small(source(31)).build().unwrap();
    let (want_0, want_1) = (delivered(&pipeline, 0), delivered(&pipeline, 1));
    let (mut zero, mut one, mut again) = (pipeline.epoch(0), pipeline.epoch(1), pipeline.epoch(0));
    let mut got: [Vec<Delivered>; 3] = Default::default();
    for _ in 0..7 {
        for (epoch, got) in [&mut zero, &mut one, &mut again].into_iter().zip(&mut got) {
            got.extend(samples(&epoch.next().unwrap().unwrap()));
        }
    }
    assert!(zero.next().is_none() && one.next().is_none() && again.next().is_none());
    assert_eq!(got, [want_0.clone(), want_1, want_0.clone()]);
    // An epoch does not need its pipeline.
    let epoch = pipeline.epoch(0);
    drop(pipeline);
    let alone: Vec<Delivered> = epoch.flat_map(|batch| samples(&batch.unwrap())).collect();
    assert_eq!(alone, want_0);
}

#[test]
fn batches_may_all_be_held() {
    let pipeline = small(source(31)).prefetch(1).build().unwrap();
    let want = delivered(&pipeline, 0);
    let mut epoch = pipeline.epoch(0);
    let held: Vec<Batch> = epoch.by_ref().map(Result::unwrap).collect();
    drop(epoch);
    drop(pipeline);
    assert_eq!(held.iter().flat_map(samples).collect::<Vec<_>>(), want);
    let starts: BTreeSet<usize> =
        held.iter().map(|batch| batch.images().as_bytes().unwrap().as_ptr() as usize).collect();
    assert_eq!(starts.len(), held.len(), "two batches share memory");
    assert!(starts.iter().all(|start| start.is_multiple_of(64)));
}

#[test]
fn statistics_add_up() {
    let images = source(23);
    let bytes: u64 = (0..23).map(|i| images.encoded(i).unwrap().len() as u64).sum();
    let pipeline = small(images).build().unwrap();
    let mut epoch = pipeline.epoch(4);
    assert_eq!((epoch.number(), epoch.images()), (4, Some(23)));
    let mut sum = 0;
    while let Some(batch) = epoch.next() {
        sum += batch.unwrap().len() as u64;
        assert_eq!(epoch.stats().images, sum);
    }
    let stats = epoch.stats();
    assert_eq!((stats.images, stats.batches, stats.bad, stats.read_bytes), (23, 5, 0, bytes));
    assert!(stats.read > Duration::ZERO && stats.decode > Duration::ZERO && stats.augment > Duration::ZERO);
    let report = report(&pipeline, 2..5);
    assert_eq!((report.images, report.batches, report.epochs, report.read_bytes), (69, 15, 3, 3 * bytes));
    assert!(report.seconds > 0.0 && report.first_batch_s.unwrap() > 0.0);
    assert!((report.images_per_s * report.seconds - 69.0).abs() < 1e-6);
    let stages = report.stages;
    assert!(stages.read > 0.0 && stages.decode > 0.0 && stages.augment > 0.0);
    // Two threads cannot have worked longer than twice the time that went by.
    assert!(stages.read + stages.decode + stages.augment + stages.worker_wait <= 2.0 * report.seconds + 0.05);
}

#[test]
fn without_threads_the_consumer_makes_each_batch_when_it_asks() {
    let source = Watched::new(7, Duration::ZERO);
    let (reads, readers) = (Arc::clone(&source.reads), Arc::clone(&source.readers));
    let pipeline = small(source).threads(0).batch_size(5).prefetch(4).limit(13).build().unwrap();
    assert_eq!(pipeline.threads(), 0);
    let mut epoch = pipeline.epoch(0);
    for (images, read) in [(5, 5), (5, 10), (3, 13)] {
        assert_eq!(epoch.next().unwrap().unwrap().len(), images);
        assert_eq!(reads.load(SeqCst), read, "nothing is made ahead");
    }
    assert!(epoch.next().is_none());
    if let Ok(own) = std::fs::read_link("/proc/thread-self") {
        assert_eq!(*readers.lock().unwrap(), BTreeSet::from([std::path::Path::new("/proc").join(own)]));
    }
    let stats = epoch.stats();
    assert!(stats.consumer_wait >= stats.read + stats.decode + stats.augment, "{stats:?}");
    assert_eq!(stats.worker_wait, Duration::ZERO);
}

// ---- what build() refuses ----

/// A change to a builder, and words about the refused and the allowed value.
type Refused = (fn(PipelineBuilder) -> PipelineBuilder, &'static str, &'static str);

#[test]
fn wrong_parameters_are_refused_with_what_is_allowed() {
    const NAN: f64 = f64::NAN;
    let blank = || Pipeline::builder(source(3));
    let cases: [Refused; 38] = [
        (|b| b.threads(5000), "threads", "0 to 1024"),
        (|b| b.batch_size(0), "batch_size", "1 to 1048576"),
        (|b| b.prefetch(0), "prefetch", "1 to "),
        (|b| b.max_pixels(0), "max_pixels", "1 or more"),
        (|b| b.transform(Resize::shorter_side(32)), "operations", "end with a resize to a width and height"),
        (|b| b.transform(maybe(0.5, [CenterCrop::new(4).into()])), "operations", "the same size"),
        (
            |b| b.transform(one_of([random_resized_crop(4), random_crop(Size::new(5, 4), 0)])),
            "operations",
            "the same size",
        ),
        (|b| b.transform(turn(true)), "operations", "the same size"),
        (|b| b.normalize([0.0; 3], [1.0; 3]).transform(Hflip), "hflip", "before normalize"),
        (|b| b.normalize([0.0; 3], [1.0; 3]).normalize([0.0; 3], [1.0; 3]), "normalize", "once"),
        (|b| b.normalize([0.0; 3], [1.0; 3]).output(DType::U8, Layout::Nhwc), "u8", "f32, f16 or bf16"),
        (|b| b.normalize([0.0; 3], [1.0, 0.0, 1.0]), "std", "above 0"),
        (|b| b.normalize([0.5; 3], [1.0, -1.0, 1.0]), "std", "above 0"),
        (|b| b.normalize([123.7, 116.3, 103.5], [0.5; 3]), "mean", "for values of 0 to 1"),
        (|b| b.normalize([0.5; 3], [58.4, 57.1, 57.4]), "std", "for values of 0 to 1"),
        (|b| b.last_batch(LastBatch::Drop).batch_size(4), "batch_size", "at most 3"),
        (|b| b.max_bad(BadLimit::Share(f64::NAN)), "max_bad", "a share of 0 to 1"),
        (|b| b.normalize([f32::NAN, 0.0, 0.0], [1.0; 3]), "mean", "from -3 to 3"),
        (|b| b.transform(repeat(2, [Normalize::new([0.0; 3], [1.0; 3]).into()])), "normalize", "outside"),
        (|b| b.transform(random_horizontal_flip(2.0)), "random_horizontal_flip: p", "0 to 1"),
        (|b| b.transform(random_vertical_flip(-0.1)), "random_vertical_flip: p", "0 to 1"),
        (|b| b.transform(random_grayscale(NAN)), "random_grayscale: p", "0 to 1"),
        (|b| b.transform(random_rotation(-5.0..=NAN)), "degrees", "rising range"),
        (|b| b.transform(random_rotation(5.0..=-5.0)), "degrees", "rising range"),
        (|b| b.transform(random_rotation(0.0..=f64::INFINITY)), "degrees", "rising range"),
        (|b| b.transform(random_gaussian_blur(4, 0.1..=2.0)), "kernel", "odd"),
        (|b| b.transform(random_gaussian_blur(0, 0.1..=2.0)), "kernel", "odd"),
        (|b| b.transform(random_gaussian_blur(5, 0.0..=2.0)), "sigma", "rising range"),
        (|b| b.transform(random_dilation(0..=3)), "kernel", "1 to 255"),
        (|b| b.transform(random_erosion(3..=256)), "kernel", "1 to 255"),
        (|b| b.transform(color_jitter(0.1, 0.1, 0.1, 0.6)), "hue", "-0.5 to 0.5"),
        (|b| b.transform(color_jitter(NAN, 0.0, 0.0, 0.0)), "brightness", "rising range"),
        (|b| b.transform(random_erasing(1.5)), "random_erasing: p", "0 to 1"),
        (|b| b.transform(one_of([])), "one_of", "at least one"),
        (|b| b.transform(maybe(7.0, [])), "maybe: p", "0 to 1"),
        (|b| b.transform(repeat(1001, [Hflip.into()])), "repeat: n", "0 to 1000"),
        (
            |b| b.transform(repeat(1000, [repeat(1000, [repeat(1000, [Hflip.into()])])])),
            "operations",
            "100000 operations",
        ),
        (|b| b.transform(random_resized_crop(0)), "width", "1 to 65535"),
    ];
    for (number, (change, what, allowed)) in cases.into_iter().enumerate() {
        let builder =
            change(if (4..=7).contains(&number) { blank() } else { blank().transform(Resize::new(Size::new(8, 8))) });
        let error = builder.build().expect_err(what);
        assert!(error.is_parameter(), "{error}");
        let text = error.to_string();
        assert!(text.contains(what) && text.contains(allowed), "case {number}: {text}");
    }
    let error = blank().batch_size(1 << 20).transform(Resize::new(Size::new(60_000, 60_000))).build().unwrap_err();
    assert!(matches!(error, Error::Limits { .. }) && error.to_string().contains("smaller batch_size"), "{error}");
    let error = blank().build().unwrap_err().to_string();
    assert!(error.contains("end with a resize"), "{error}");
    for index in [0, 3] {
        let error = blank().transform(Resize::new(Size::new(8, 8))).device(Device::Cuda(index)).build().unwrap_err();
        assert!(error.is_device() && error.to_string().contains(&format!("CUDA device {index}")), "{error}");
    }
}

fn turn(expand: bool) -> Transform {
    RandomRotation::new(0.0..=90.0).expand(expand).into()
}

#[test]
fn memory_is_stated_exactly() {
    for (dtype, bytes) in [(DType::F32, 4), (DType::F16, 2), (DType::Bf16, 2), (DType::U8, 1)] {
        let builder = Pipeline::builder(source(10))
            .transform(Resize::new(Size::new(31, 17)))
            .batch_size(7)
            .prefetch(3)
            .threads(2);
        let pipeline = builder.max_pixels(1000).output(dtype, Layout::Nhwc).shuffle(1).build().unwrap();
        let memory = pipeline.memory();
        assert_eq!(memory.batch_bytes, 7 * 31 * 17 * 3 * bytes);
        assert_eq!(memory.batches_bytes, 4 * memory.batch_bytes);
        // Of each thread: two images of four bytes a pixel, coefficients of eight, and one encoded file.
        assert_eq!(memory.images_bytes, 2 * (2 * 4 + 8) * 1000);
        assert_eq!(memory.encoded_bytes, 2 * MAX_ENCODED_BYTES);
        assert_eq!(memory.order_bytes, 40);
    }
    let builder = Pipeline::builder(source(10)).transform(Resize::new(Size::new(31, 17))).batch_size(7);
    let pipeline = builder.build().unwrap();
    assert_eq!(pipeline.memory().order_bytes, 0);
    let batch = pipeline.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.images().as_bytes().unwrap().len() as u64, pipeline.memory().batch_bytes);
}

// ---- images ----

#[test]
fn images_over_the_limit_are_bad_samples() {
    let images = || EncodedImages::new([(jpeg(50, 40, 1), 0), (jpeg(51, 40, 1), 1), (jpeg(40, 50, 1), 2)]);
    let builder = || Pipeline::builder(images()).transform(Resize::new(Size::new(8, 8))).max_pixels(2000);
    let error = builder().build().unwrap().epoch(0).next().unwrap().unwrap_err();
    let text = error.to_string();
    assert!(error.is_bad_sample() && text.contains("2040") && text.contains("2000") && text.contains("max_pixels"));
    let mut skipping = builder().on_error(OnError::Skip).build().unwrap().epoch(0);
    assert_eq!(skipping.next().unwrap().unwrap().labels().unwrap(), [0, 2]);
    // On the way too, before the memory is taken, and the same for all strategies.
    for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
        let builder = Pipeline::builder(EncodedImages::new([(jpeg(40, 40, 1), 0)])).strategy(strategy);
        let growing = builder
            .max_pixels(1 << 16)
            .transform(repeat(7, [grow()]))
            .transform(Resize::new(Size::new(8, 8)))
            .build()
            .unwrap();
        let error = growing.epoch(0).next().unwrap().unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains("max_pixels"), "{strategy:?}: {error}");
    }
}

fn grow() -> Transform {
    Rotate::new(45.0).interpolation(Interpolation::Bilinear).expand(true).into()
}

#[test]
fn truncated_images_are_bad_unless_accepted() {
    let whole = jpeg(60, 50, 2);
    let cut = whole[..whole.len() * 2 / 3].to_vec();
    let images = || EncodedImages::new([(whole.clone(), 0), (cut.clone(), 1)]);
    let builder =
        || Pipeline::builder(images()).transform(Resize::new(Size::new(60, 50))).output(DType::U8, Layout::Nhwc);
    let error = builder().build().unwrap().epoch(0).next().unwrap().unwrap_err().to_string();
    assert!(error.contains("sample 1") && error.contains("truncated"), "{error}");
    let batch = builder().accept_truncated(true).build().unwrap().epoch(0).next().unwrap().unwrap();
    let (good, bad) = (batch.images().image_bytes(0).unwrap(), batch.images().image_bytes(1).unwrap());
    let row = 3 * 60;
    assert_eq!(good[..row * 8], bad[..row * 8], "the top is there");
    assert_ne!(good[row * 49..], bad[row * 49..], "the bottom is not");
    // Also where the recipe needs nothing of the missing part.
    let top = Crop::new(0, 0, Size::new(16, 4));
    let strict = Pipeline::builder(images()).transform(top);
    assert!(strict.build().unwrap().epoch(0).next().unwrap().is_err());
}

#[test]
fn orientation_is_applied_unless_ignored() {
    let image = common::image(30, 20, 5);
    let tagged = |tag| {
        let options = JpegOptions { orientation: Some(tag), sampling: ChromaSampling::S444, ..JpegOptions::default() };
        (encode_jpeg(&image, &options).unwrap(), u32::from(tag))
    };
    let pixels = |orientation, width, height| -> Vec<Vec<u8>> {
        let builder = Pipeline::builder(EncodedImages::new((1..=8).map(tagged))).orientation(orientation);
        let pipeline = builder
            .transform(CenterCrop::new(20))
            .transform(Resize::new(Size::new(width, height)))
            .output(DType::U8, Layout::Nhwc)
            .build()
            .unwrap();
        delivered(&pipeline, 0).into_iter().map(|s| s.bytes).collect()
    };
    let (applied, ignored) = (pixels(Orientation::Apply, 20, 20), pixels(Orientation::Ignore, 20, 20));
    assert!(ignored.iter().all(|bytes| *bytes == ignored[0]));
    let at = |x: usize, y: usize| &ignored[0][3 * (20 * y + x)..][..3];
    for (tag, bytes) in (1..=8).zip(&applied) {
        for (i, got) in bytes.chunks_exact(3).enumerate() {
            // Where the pixel at (x, y) of the upright square lies in the stored one: the TIFF standard's table.
            let (x, y) = (i % 20, i / 20);
            let (right, down) = (19 - x, 19 - y);
            let want = match tag {
                1 => at(x, y),
                2 => at(right, y),
                3 => at(right, down),
                4 => at(x, down),
                5 => at(y, x),
                6 => at(y, right),
                7 => at(down, right),
                _ => at(down, x),
            };
            assert_eq!(got, want, "tag {tag} at ({x}, {y})");
        }
    }
}

// ---- draws ----

/// The recipes of one image in many epochs.
fn recipes(size: Size, ops: impl IntoIterator<Item = Transform>, count: u64) -> Vec<Vec<Op>> {
    let images = EncodedImages::new([(jpeg(size.width, size.height, 1), 0)]);
    let builder = ops.into_iter().fold(Pipeline::builder(images), PipelineBuilder::transform);
    let pipeline = builder.transform(Resize::new(Size::new(4, 4))).build().unwrap();
    let mut recipes: Vec<Vec<Op>> = (0..count).map(|epoch| pipeline.recipe(epoch, 0).unwrap()).collect();
    for recipe in &mut recipes {
        assert_eq!(recipe.pop().map(|op| op.name()), Some("resize"));
    }
    recipes
}

/// Whether a count is what a probability leads one to expect, within five standard deviations.
fn likely(count: usize, of: usize, p: f64) {
    let (expected, deviation) = (of as f64 * p, (of as f64 * p * (1.0 - p)).sqrt());
    assert!((count as f64 - expected).abs() <= 5.0 * deviation, "{count} of {of} where {expected} are expected");
}

const MANY: u64 = 4000;

#[test]
fn probabilities_are_what_they_say() {
    for p in [0.0, 0.1, 0.5, 1.0] {
        for (op, name) in [
            (random_horizontal_flip(p), "hflip"),
            (random_vertical_flip(p), "vflip"),
            (random_grayscale(p), "grayscale"),
            (random_erasing(p), "erase"),
            (maybe(p, [Hflip.into(), Vflip.into()]), "hflip"),
        ] {
            let recipes = recipes(Size::new(60, 50), [op], MANY);
            let count = recipes.iter().filter(|recipe| recipe.first().is_some_and(|op| op.name() == name)).count();
            likely(count, MANY as usize, p);
            assert!(recipes.iter().all(|recipe| recipe.len() < 2 || recipe[1].name() == "vflip"));
        }
    }
    let choices: [Op; 3] = [Hflip.into(), Vflip.into(), Grayscale.into()];
    let recipes = recipes(Size::new(9, 9), [one_of(choices.clone().map(Transform::from))], MANY);
    for choice in choices {
        likely(recipes.iter().filter(|recipe| ***recipe == [choice.clone()]).count(), MANY as usize, 1.0 / 3.0);
    }
}

/// Ten equal parts of a range are hit equally often.
fn even(values: &[f64], low: f64, high: f64) {
    let mut counts = [0; 10];
    for value in values {
        assert!((low..=high).contains(value), "{value} is not in {low}..={high}");
        counts[(((value - low) / (high - low) * 10.0) as usize).min(9)] += 1;
    }
    counts.into_iter().for_each(|count| likely(count, values.len(), 0.1));
}

#[test]
fn parameters_are_drawn_evenly_from_their_ranges() {
    let size = Size::new(60, 50);
    let numbers = |op, number: fn(&Op) -> f64| -> Vec<f64> {
        recipes(size, [op], MANY).iter().map(|recipe| number(&recipe[0])).collect()
    };
    let degrees = numbers(random_rotation(-30.0..=10.0), |op| match op {
        Op::Rotate(Rotate { degrees, .. }) => *degrees,
        _ => panic!("{op:?}"),
    });
    even(&degrees, -30.0, 10.0);
    let sigmas = numbers(random_gaussian_blur(5, 0.5..=2.5), |op| match op {
        Op::GaussianBlur(GaussianBlur { kernel: 5, sigma, .. }) => *sigma,
        _ => panic!("{op:?}"),
    });
    even(&sigmas, 0.5, 2.5);
    // Five sides of a kernel, two parts each.
    for op in [random_dilation(1..=5), random_erosion(1..=5)] {
        let kernels = numbers(op, |op| match op {
            Op::Dilate(Dilate { kernel, .. }) | Op::Erode(Erode { kernel, .. }) => f64::from(*kernel),
            _ => panic!("{op:?}"),
        });
        for kernel in 1..=5 {
            likely(kernels.iter().filter(|k| **k == f64::from(kernel)).count(), MANY as usize, 0.2);
        }
    }
    // 60 x 50 with 4 more on every side: 29 places across, 9 down.
    let places: Vec<(i32, i32)> = (recipes(size, [random_crop(Size::new(40, 50), 4)], MANY).iter())
        .map(|recipe| match recipe[0] {
            Op::Crop(Crop { x, y, width: 40, height: 50, fill: Fill::BLACK, .. }) => (x, y),
            ref op => panic!("{op:?}"),
        })
        .collect();
    for x in -4..=24 {
        likely(places.iter().filter(|place| place.0 == x).count(), MANY as usize, 1.0 / 29.0);
    }
    for y in -4..=4 {
        likely(places.iter().filter(|place| place.1 == y).count(), MANY as usize, 1.0 / 9.0);
    }
    // Larger than the padded image: it lies wholly inside the rectangle.
    for recipe in recipes(size, [random_crop(Size::new(100, 90), 3)], 500) {
        let Op::Crop(Crop { x, y, width: 100, height: 90, .. }) = recipe[0] else { panic!("{recipe:?}") };
        assert!((-40..=0).contains(&x) && (-40..=0).contains(&y), "at ({x}, {y})");
    }
}

#[test]
fn random_rectangles_have_the_area_and_aspect_asked_for() {
    let size = Size::new(200, 150);
    let area = f64::from(size.width) * f64::from(size.height);
    let (mut shares, mut aspects) = (Vec::new(), Vec::new());
    let op = RandomResizedCrop::new(Size::new(24, 20)).scale(0.2..=0.4).ratio(0.5..=2.0);
    for recipe in recipes(size, [op.interpolation(Interpolation::Bicubic).into()], MANY) {
        let Op::ResizedCrop(ResizedCrop { x, y, width, height, out_width: 24, out_height: 20, interpolation, .. }) =
            recipe[0]
        else {
            panic!("{recipe:?}")
        };
        assert_eq!(interpolation, Interpolation::Bicubic);
        assert!(x + width <= 200 && y + height <= 150);
        shares.push(f64::from(width) * f64::from(height) / area);
        aspects.push((f64::from(width) / f64::from(height)).ln());
    }
    // Rounding to whole pixels moves area and aspect a little.
    assert!(shares.iter().all(|share| (0.19..=0.41).contains(share)));
    assert!(aspects.iter().all(|aspect| (0.49_f64.ln()..=2.05_f64.ln()).contains(aspect)));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    assert!((mean(&shares) - 0.3).abs() < 0.005, "{}", mean(&shares));
    assert!(mean(&aspects).abs() < 0.04, "{}", mean(&aspects));
    // A strip of an image has no such rectangle: the fallback is the center at the nearest aspect.
    for recipe in recipes(Size::new(300, 3), [random_resized_crop(8)], 200) {
        if let Op::ResizedCrop(ResizedCrop { height: 3, width, x, .. }) = recipe[0] {
            assert!(width == 4 && (x == 148 || x < 297), "{recipe:?}");
        }
    }
    for recipe in recipes(size, [random_erasing(1.0)], MANY) {
        let Op::Erase(Erase { x, y, width, height, value, .. }) = recipe[0] else { panic!("{recipe:?}") };
        assert!(x + width <= 200 && y + height <= 150 && value == [0.0; 3].into());
        let share = f64::from(width) * f64::from(height) / area;
        let aspect = f64::from(height) / f64::from(width);
        assert!((0.018..=0.34).contains(&share) && (0.28..=3.5).contains(&aspect), "{recipe:?}");
    }
}

#[test]
fn jitter_draws_four_factors_in_random_order() {
    let mut firsts = std::collections::BTreeMap::new();
    let mut orders = BTreeSet::new();
    let mut factors: [Vec<f64>; 4] = Default::default();
    for recipe in recipes(Size::new(9, 9), [color_jitter(0.4, 0.3, 1.5, 0.1)], MANY) {
        let names: Vec<&str> = recipe.iter().map(Op::name).collect();
        *firsts.entry(names[0]).or_insert(0) += 1;
        orders.insert(names.join(" "));
        for op in recipe {
            match op {
                Op::Brightness(Brightness { factor, .. }) => factors[0].push(factor),
                Op::Contrast(Contrast { factor, .. }) => factors[1].push(factor),
                Op::Saturation(Saturation { factor, .. }) => factors[2].push(factor),
                Op::Hue(Hue { factor, .. }) => factors[3].push(factor),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((firsts.len(), orders.len()), (4, 24));
    firsts.into_values().for_each(|count| likely(count, MANY as usize, 0.25));
    // 1 - 1.5 is cut at 0.
    for (factors, (low, high)) in factors.iter().zip([(0.6, 1.4), (0.7, 1.3), (0.0, 2.5), (-0.1, 0.1)]) {
        assert_eq!(factors.len(), MANY as usize);
        even(factors, low, high);
    }
    // Left out operations do not change the numbers of others.
    let all = recipes(Size::new(9, 9), [color_jitter(0.4, 0.3, 1.5, 0.1)], 50);
    let two = recipes(Size::new(9, 9), [color_jitter(0.4, 0.0, 1.5, 0.0)], 50);
    for (mut all, two) in all.into_iter().zip(two) {
        all.retain(|op| matches!(op, Op::Brightness(_) | Op::Saturation(_)));
        assert_eq!(all, two);
    }
}

#[test]
fn what_is_drawn_moves_no_later_draw() {
    let tail = || [random_rotation(-9.0..=9.0), color_jitter(0.1, 0.1, 0.1, 0.1)];
    let rest = |p: f64| {
        let nested = maybe(p, [random_crop(30, 2), random_erasing(p)]);
        let flips = [random_horizontal_flip(p), nested, repeat(3, [random_vertical_flip(p)])];
        let recipes = recipes(Size::new(30, 30), flips.into_iter().chain(tail()), 100);
        recipes.into_iter().map(|recipe| recipe[recipe.len() - 5..].to_vec()).collect::<Vec<_>>()
    };
    let want = rest(0.0);
    assert!([0.3, 0.5, 1.0].into_iter().all(|p| rest(p) == want));
    // Which of several is chosen, neither.
    let chosen = |ops: [Transform; 2]| {
        let recipes = recipes(Size::new(30, 30), [one_of(ops)].into_iter().chain(tail()), 100);
        recipes.into_iter().map(|recipe| recipe[recipe.len() - 5..].to_vec()).collect::<Vec<_>>()
    };
    let one = chosen([Hflip.into(), Vflip.into()]);
    assert_eq!(one, chosen([random_horizontal_flip(0.5), random_grayscale(0.1)]));
}

#[test]
fn repetitions_draw_afresh() {
    let recipes = recipes(Size::new(20, 20), [repeat(12, [random_rotation(-5.0..=5.0), Hflip.into()])], 20);
    let mut seen = BTreeSet::new();
    for recipe in recipes {
        assert_eq!(recipe.len(), 24);
        for op in recipe.iter().step_by(2) {
            let Op::Rotate(Rotate { degrees, .. }) = op else { panic!("{op:?}") };
            assert!(seen.insert(degrees.to_bits()), "an angle came twice");
        }
    }
}

// ---- pipelines at random ----

fn random_op(random: &mut Random, depth: u32) -> Transform {
    let p = f64::from(random.within(0, 4)) / 4.0;
    let some = |random: &mut Random| -> Vec<Transform> {
        (0..random.within(1, 3)).map(|_| random_op(random, depth + 1)).collect()
    };
    match random.within(0, if depth < 2 { 17 } else { 14 }) {
        0 => random_horizontal_flip(p),
        1 => random_vertical_flip(p),
        2 | 3 => random_rotation(-f64::from(random.within(0, 90))..=20.0),
        4 => RandomRotation::new(-30.0..=30.0)
            .interpolation(if p < 0.5 { Interpolation::Bilinear } else { Interpolation::Nearest })
            .expand(p < 0.3)
            .fill(if p > 0.6 { Fill::EDGE } else { Fill::Color([9, 99, 199]) })
            .into(),
        5 => random_crop(Size::new(random.within(1, 60), random.within(1, 60)), random.within(0, 9)),
        6 => random_resized_crop(Size::new(random.within(1, 60), random.within(1, 60))),
        7 => color_jitter(p, p, p, p / 2.0),
        8 => random_grayscale(p),
        9 => random_gaussian_blur(1 + 2 * random.within(0, 3), 0.3..=2.0),
        10 => random_dilation(1..=random.within(1, 5)),
        11 => random_erosion(1..=random.within(1, 5)),
        12 => random_erasing(p),
        13 => CenterCrop::new(Size::new(random.within(1, 60), random.within(1, 60))).into(),
        14 => Contrast::new(2.0 * p).into(),
        15 => one_of(some(random)),
        16 => maybe(p, some(random)),
        _ => repeat(random.within(0, 3), some(random)),
    }
}

/// Leftovers of a resize of columns once met a resize of rows alone with a crop.
#[test]
fn a_resize_of_rows_after_one_of_columns() {
    let images = EncodedImages::new([(jpeg(40, 30, 1), 0), (jpeg(20, 60, 2), 1)]);
    let crop = Crop::new(10, 3, 8);
    let build = |strategy| {
        let builder = Pipeline::builder(images.clone()).threads(1).strategy(strategy);
        builder.transform(Resize::new(Size::new(20, 30))).transform(crop).build().unwrap()
    };
    assert_eq!(delivered(&build(Strategy::Fused), 0), delivered(&build(Strategy::Sequential), 0));
}

/// A recipe replayed by hand gives the batch's bytes, whatever the pipeline; and so does the other strategy.
#[test]
fn any_pipeline_can_be_replayed() {
    let mut random = Random(11);
    let images = EncodedImages::new((0..6).map(|i| {
        let image = common::image(random.within(1, 80), random.within(1, 80), i);
        let orientation = (i > 2).then_some(i as u16 + 2);
        let options = JpegOptions { orientation, progressive: i == 1, ..JpegOptions::default() };
        (encode_jpeg(&image, &options).unwrap(), i as u32)
    }));
    for case in 0..150 {
        let ops: Vec<Transform> = (0..random.within(0, 5)).map(|_| random_op(&mut random, 0)).collect();
        let orientation = if case % 3 == 0 { Orientation::Ignore } else { Orientation::Apply };
        let end = random.within(0, 1);
        let build = |strategy| {
            let builder = Pipeline::builder(images.clone()).seed(case).batch_size(4).threads(2).strategy(strategy);
            let builder = ops.iter().cloned().fold(builder.orientation(orientation), PipelineBuilder::transform);
            let builder = if end == 0 {
                builder.transform(Resize::new(Size::new(13, 11)))
            } else {
                builder.transform(random_resized_crop(12))
            };
            let builder = if case % 2 == 0 {
                builder.output(DType::U8, Layout::Nhwc)
            } else {
                builder.normalize(IMAGENET_MEAN, IMAGENET_STD).transform(random_erasing(0.5))
            };
            builder.build().unwrap()
        };
        let (fused, sequential) = (build(Strategy::Fused), build(Strategy::Sequential));
        let got = delivered(&fused, 1);
        assert!(got == delivered(&sequential, 1), "case {case}: {ops:?} differs between strategies");
        for sample in got {
            let recipe = fused.recipe(1, sample.index).unwrap();
            let bytes = images.encoded(sample.index).unwrap();
            // The recipe holds the orientation already.
            let options = common::as_made(&recipe).orientation(Orientation::Ignore);
            let replayed = apply(&bytes, &recipe, &options).unwrap();
            let written = serde_json::to_string(&recipe).unwrap();
            assert!(replayed.as_bytes().unwrap() == sample.bytes, "case {case}, sample {}: {written}", sample.index);
            let read: Vec<Op> = serde_json::from_str(&written).unwrap();
            assert_eq!(read, recipe, "{written}");
        }
    }
}

#[test]
fn a_transform_of_the_callers_own_draws_others() {
    use std::sync::{Arc, Mutex};
    use warpfeed::fields::{BoxFormat, Boxes, Fields, Mask, MaskValues};
    use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    use warpfeed::ops::{
        CustomTransform, Hflip, Op, RandomMosaic, Rotate, SampleInfo, SampleRng, SizeEffect, Transform, repeat,
    };
    use warpfeed::prelude::*;

    struct Draws(Transform);
    impl CustomTransform for Draws {
        fn name(&self) -> &'static str {
            "draws"
        }
        fn draw(&self, rng: &mut SampleRng, sample: &SampleInfo<'_>) -> warpfeed::Result<Vec<Op>> {
            let ops = self.0.draw(rng, sample)?;
            // Whatever was drawn, the numbers after it are the same.
            let rotate = Rotate::new(rng.uniform(0.0, 9.0));
            Ok(ops.into_iter().chain([rotate.into()]).collect())
        }
        fn size_effect(&self) -> SizeEffect {
            SizeEffect::Varies
        }
        fn fields_follow(&self) -> bool {
            true
        }
    }
    let size = Size::new(64, 48);
    let jpeg = encode_jpeg(&Image::new(size), &JpegOptions::default()).unwrap();
    let source = || EncodedImages::new([(jpeg.clone(), 0)]);
    let drawn = |transform: Transform| {
        let builder = Pipeline::builder(source()).device(Device::Cpu).transform(CenterCrop::new(30));
        builder.transform(Draws(transform)).transform(CenterCrop::new(8)).build().unwrap().recipe(0, 0)
    };
    let turns = || drawn(repeat(2, [random_rotation(-9.0..=9.0)])).unwrap();
    assert!(matches!(&turns()[1..4], [Op::Rotate(a), Op::Rotate(b), Op::Rotate(_)] if a != b), "{:?}", turns());
    let crop = drawn(random_resized_crop(20)).unwrap();
    assert!(matches!(&crop[1..3], [Op::ResizedCrop(crop), _] if crop.width <= 30 && crop.height <= 30), "{crop:?}");
    assert!(turns()[3] == crop[2] && turns() == turns());
    assert!(drawn(random_horizontal_flip(1.5)).unwrap_err().is_parameter());
    let error = drawn(RandomMosaic::new(20).into()).unwrap_err().to_string();
    assert!(error.contains("other samples"), "{error}");

    /// Size, fields and masks of a sample.
    type Seen = (Size, Option<Fields>, Fields);

    /// Keeps what it sees.
    #[derive(Clone, Default)]
    struct Sees(Arc<Mutex<Vec<Seen>>>);
    impl CustomTransform for Sees {
        fn name(&self) -> &'static str {
            "sees"
        }
        fn draw(&self, _rng: &mut SampleRng, sample: &SampleInfo<'_>) -> warpfeed::Result<Vec<Op>> {
            self.0.lock().unwrap().push((sample.size, sample.fields.cloned(), sample.masks()?));
            Ok(Vec::new())
        }
        fn fields_follow(&self) -> bool {
            true
        }
    }
    let seen = |nested: bool| {
        let source = source().fields(["boxes", "mask"], move |_| {
            let mask = Mask::new(size, MaskValues::U8((0..64 * 48).map(|i| (i % 251) as u8).collect()))?;
            let boxes = Boxes::new(BoxFormat::Xyxy, vec![[21.0, 12.0, 33.0, 24.0]]);
            Fields::new().with("boxes", boxes)?.with("mask", mask)
        });
        let (sees, crop) = (Sees::default(), Transform::from(CenterCrop::new(40)));
        let last = sees.clone().into();
        let builder = Pipeline::builder(source).device(Device::Cpu).fields(["boxes", "mask"]).transform(Hflip);
        let builder = match nested {
            true => builder.transform(Draws(repeat(1, [crop, last]))),
            false => builder.transform(crop).transform(last),
        };
        builder.transform(CenterCrop::new(30)).build().unwrap().epoch(0).next().unwrap().unwrap();
        sees.0.lock().unwrap().pop().unwrap()
    };
    assert_eq!(seen(false), seen(true), "in a list, and within another transform");
    let (size, fields, masks) = seen(true);
    assert!(size == Size::new(40, 40) && fields.unwrap().boxes().is_some() && masks.get("mask").is_some());
}
