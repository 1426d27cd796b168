//! A logged run's batches are reproduced byte for byte, and a changed log is noticed.

use crate::common::{self, WithBad, jpeg, small, source};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use warpfeed::image::{Image, Size};
use warpfeed::ops::{ErasingNoise, Op, RandomErasing, RandomMosaic, YoloPerspective};
use warpfeed::pack::{PackOptions, pack};
use warpfeed::prelude::*;
use warpfeed::source::{OpenOptions, RecordFormat};
use warpfeed::{
    BatchImages, Error, LogOptions, Mix, OnError, Orientation, Partition, RaggedPipeline, Replay, RunLog, Sampler,
    apply, view,
};

fn options(digests: bool, chain: bool) -> LogOptions {
    let mut options = LogOptions::default();
    (options.digests, options.chain) = (digests, chain);
    options
}

/// The compared parts of a batch.
#[derive(Debug, PartialEq)]
struct Seen {
    receipts: String,
    bytes: Vec<Vec<u8>>,
    targets: Vec<f32>,
    padding: usize,
}

fn seen(batch: &Batch) -> Seen {
    let bytes = (0..).map_while(|i| batch.view(i)).map(|view| view.as_bytes().unwrap().to_vec()).collect();
    let targets = match batch.targets() {
        Some(Targets::Numbers(numbers)) => numbers.as_slice::<f32>().unwrap().to_vec(),
        _ => Vec::new(),
    };
    let receipts = serde_json::to_string(&batch.receipts(true).unwrap()).unwrap();
    Seen { receipts, bytes, targets, padding: batch.padding() }
}

/// Logs two epochs, and returns what they delivered, by step.
fn logged(path: &Path, pipeline: &Pipeline, options: &LogOptions) -> Vec<Seen> {
    let mut log = RunLog::open(path, pipeline, options).unwrap();
    let batches = (3..5).flat_map(|epoch| pipeline.epoch(epoch)).map(Result::unwrap);
    (0..)
        .zip(batches)
        .map(|(step, batch)| {
            log.write(step, &batch).unwrap();
            seen(&batch)
        })
        .collect()
}

/// A log in a folder that goes with it.
fn new_log() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.wlog");
    (folder, path)
}

/// Logs two epochs of a pipeline, and makes all batches again by another one.
fn comes_again(run: PipelineBuilder, again: PipelineBuilder) {
    for digests in [false, true] {
        let (_folder, path) = new_log();
        let want = logged(&path, &run.clone().build().unwrap(), &options(digests, false));
        let (replay, pipeline) = (Replay::open(&path).unwrap(), again.clone().threads(3).prefetch(1).build().unwrap());
        assert!(want.len() > 2);
        for (step, want) in want.iter().enumerate().rev() {
            let made = replay.batch(&pipeline, step as u64).unwrap();
            assert!(seen(&made) == *want, "step {step}: {} and {}", seen(&made).receipts, want.receipts);
        }
        let error = replay.batch(&pipeline, want.len() as u64).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("run.wlog"), "{error}");
    }
}

#[test]
fn every_batch_comes_again() {
    let soft = |builder: PipelineBuilder| builder.targets(TargetSpec::soft(10).smoothing(0.1));
    let both = |builder: PipelineBuilder| comes_again(builder.clone(), builder);
    both(small(source(23)));
    both(small(source(23)).output(DType::U8, Layout::Nhwc).last_batch(LastBatch::Drop));
    both(small(source(23)).last_batch(LastBatch::Pad).partition(Partition::new(1, 2).unwrap()));
    both(small(source(23)).equal_batches(true).batch_size(3).partition(Partition::new(2, 3).unwrap()));
    both(small(source(23)).sampler(Sampler::repeated(3)));
    for mix in ["torchvision=0.4/1", "timm=0.8/1,mode=elem,probability=0.8"] {
        let mixed = soft(small(source(23))).mix(mix.parse().unwrap());
        both(mixed.clone());
        both(mixed.last_batch(LastBatch::Pad).partition(Partition::new(0, 2).unwrap()));
    }
    let views = [view([random_resized_crop(12)]).times(2), view([random_resized_crop(8)])];
    both(Pipeline::builder(source(9)).shuffle(5).batch_size(4).views(views));
}

#[test]
fn batches_of_an_epoch_that_went_on_with_other_ranks_come_again() {
    let of = |rank, ranks| {
        let builder = small(source(23)).targets(TargetSpec::soft(10)).mix("timm=0.8/1,mode=elem".parse().unwrap());
        builder.partition(Partition::new(rank, ranks).unwrap()).build().unwrap()
    };
    let states: Vec<_> = (0..2).map(|rank| of(rank, 2).epoch(3).next().unwrap().unwrap().state()).collect();
    let pipeline = of(1, 3);
    let (_folder, path) = new_log();
    let mut log = RunLog::open(&path, &pipeline, &options(true, false)).unwrap();
    let mut want = Vec::new();
    for (step, batch) in (0..).zip(pipeline.resume(&pipeline.state_after(&states).unwrap()).unwrap()) {
        let batch = batch.unwrap();
        log.write(step, &batch).unwrap();
        want.push(seen(&batch));
    }
    assert!(!want.is_empty());
    let (replay, again) = (Replay::open(&path).unwrap(), of(1, 3));
    for (step, want) in (0..).zip(want) {
        assert_eq!(seen(&replay.batch(&again, step).unwrap()), want);
    }
    drop(log);
    let error = RunLog::open(&path, &of(1, 2), &options(true, false)).unwrap_err();
    assert!(error.to_string().contains("partition [1,3]"), "a log is of one partition: {error}");
}

#[test]
fn bad_samples_of_the_run_stay_out_whether_or_not_they_are_bad_now() {
    let bad = vec![0, 3, 9, 11, 17, 21];
    for mix in [None, Some(Mix::timm(0.8, 1.0).hard_labels(true))] {
        for last in [LastBatch::Keep, LastBatch::Pad] {
            for policy in [OnError::Skip, OnError::Substitute] {
                let with = |builder: PipelineBuilder| {
                    let builder = builder.on_error(policy).last_batch(last);
                    mix.clone().into_iter().fold(builder, PipelineBuilder::mix)
                };
                let run = with(small(WithBad { good: source(23), bad: bad.clone() }));
                // The same names, so that it is the same source.
                comes_again(run, with(small(WithBad { good: source(23), bad: Vec::new() })));
            }
        }
    }
    // A sample that is bad now and was not is an error, whatever the policy.
    let (_folder, path) = new_log();
    logged(&path, &small(WithBad { good: source(23), bad: Vec::new() }).build().unwrap(), &options(false, false));
    let worse = small(WithBad { good: source(23), bad }).on_error(OnError::Skip).build().unwrap();
    let error = Replay::open(&path).unwrap().verify(&worse, 100, 0).unwrap_err();
    assert!(matches!(error, Error::Sample { .. }) && error.to_string().contains(".jpg"), "{error}");
}

#[test]
fn receipts_say_what_each_image_is() {
    let builder = small(WithBad { good: source(23), bad: vec![3, 9] })
        .on_error(OnError::Substitute)
        .mix(Mix::timm(0.8, 1.0).hard_labels(true))
        .normalize(IMAGENET_MEAN, IMAGENET_STD);
    let (pipeline, mut instead) = (builder.build().unwrap(), Vec::new());
    for batch in pipeline.epoch(1) {
        let batch = batch.unwrap();
        let (receipts, mixed) = (batch.receipts(true).unwrap(), batch.mixed().unwrap());
        assert_eq!(receipts.len(), batch.len());
        for (i, receipt) in receipts.iter().enumerate() {
            assert_eq!((receipt.index, receipt.label), (batch.indices()[i], Some(batch.labels().unwrap()[i])));
            assert_eq!(receipt.name.as_deref(), Some(&*format!("folder/{}.jpg", receipt.index)));
            assert_eq!((receipt.partner, receipt.share), (Some(mixed.partners()[i]), Some(mixed.shares()[i])));
            assert_eq!(vec![receipt.recipe.clone()], batch.recipes(i).unwrap());
            let digest = common::sha256(batch.images().image_bytes(i).unwrap());
            assert_eq!((receipt.digest.as_deref(), receipt.by_nvjpeg), (Some(&*digest), false));
            instead.extend(receipt.instead_of);
        }
        assert!(batch.receipts(false).unwrap().iter().all(|receipt| receipt.digest.is_none()));
    }
    instead.sort_unstable();
    assert_eq!(instead, [3, 9]);

    let views = [view([random_resized_crop(12)]).times(2), view([random_resized_crop(8)])];
    let pipeline = Pipeline::builder(source(5)).batch_size(3).last_batch(LastBatch::Pad).views(views).build().unwrap();
    let batch = pipeline.epoch(0).nth(1).unwrap().unwrap();
    let receipts = batch.receipts(true).unwrap();
    let places: Vec<_> = receipts.iter().map(|r| (r.view, r.image, r.index, r.padding)).collect();
    let of = |view, image| [(view, image, 3, false), (view, image, 4, false), (view, image, 4, true)];
    assert_eq!(places, [of(0, 0), of(0, 1), of(1, 0)].concat());
    assert_eq!(receipts[4].recipe, batch.recipes(1).unwrap()[1]);
    assert_eq!(receipts[7].recipe, batch.recipes(1).unwrap()[2]);
    let second_view = common::sha256(batch.view(1).unwrap().image_bytes(1).unwrap());
    assert_eq!(receipts[7].digest.as_ref(), Some(&second_view));
}

fn mosaics() -> PipelineBuilder {
    Pipeline::builder(source(9))
        .shuffle(5)
        .batch_size(4)
        .transform(RandomMosaic::new(32))
        .transform(YoloPerspective::new(32))
        .transform(random_horizontal_flip(0.5))
}

#[test]
fn samples_made_of_several_come_again() {
    comes_again(mosaics(), mosaics());
}

#[test]
fn images_of_their_own_sizes_come_again() {
    let build = |threads| -> RaggedPipeline {
        let resize = warpfeed::ops::Resize::shorter_side_within(16, 64);
        let builder = Pipeline::builder(source(11)).shuffle(3).batch_size(4).threads(threads);
        builder.transform(random_horizontal_flip(0.5)).transform(resize).build_ragged().unwrap()
    };
    let (_folder, path) = new_log();
    let pipeline = build(2);
    let mut log = RunLog::open(&path, &pipeline, &options(true, false)).unwrap();
    let mut want = Vec::new();
    for (step, batch) in (0..).zip(pipeline.epoch(1)) {
        let batch = batch.unwrap();
        log.write(step, &batch).unwrap();
        want.push(batch.images().iter().map(|image| image.as_bytes().unwrap().to_vec()).collect::<Vec<_>>());
    }
    let (replay, other) = (Replay::open(&path).unwrap(), build(1));
    for (step, want) in want.iter().enumerate() {
        let batch = replay.batch(&other, step as u64).unwrap();
        let made: Vec<_> = batch.images().iter().map(|image| image.as_bytes().unwrap().to_vec()).collect();
        assert!(made == *want, "step {step}");
    }
}

/// More batches than there are between two places in the stream that a log has.
#[test]
fn batches_of_a_stream_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let pack_options = PackOptions::new(RecordFormat::WebDataset);
    pack(&source(150), &folder.path().join("shards"), &pack_options, &mut |_| {}).unwrap();
    for window in [1, 20] {
        let build = |threads| {
            let options = OpenOptions::default().window(Some(window));
            let builder = small(options.open(folder.path().join("shards")).unwrap()).batch_size(2).threads(threads);
            if window > 1 { builder } else { builder.shuffle(0).seed(7) }.build().unwrap()
        };
        let path = folder.path().join(format!("{window}.wlog"));
        let want = logged(&path, &build(2), &options(true, true));
        assert_eq!(want.len(), 150);
        let (replay, other) = (Replay::open(&path).unwrap(), build(1));
        for step in [0, 1, 63, 64, 65, 74, 75, 76, 130, 149] {
            assert!(seen(&replay.batch(&other, step).unwrap()) == want[step as usize], "window {window}, step {step}");
        }
        // Places in the stream are in few lines.
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter(|line| line.contains("\"state\"")).count(), 3);
    }
}

/// The first process was killed before it wrote a state, the second one after it had written more lines.
#[test]
fn batches_of_a_stream_come_again_after_kills() {
    let (folder, path) = new_log();
    let shards = folder.path().join("shards");
    pack(&source(40), &shards, &PackOptions::new(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    let stream = OpenOptions::default().window(Some(5)).open(&shards).unwrap();
    let pipeline = small(stream).batch_size(2).threads(1).build().unwrap();
    let mut saved = None;
    let mut want = BTreeMap::new();
    for (begins, batches) in [(0, 7), (0, 9), (5, 11), (11, 20)] {
        let epoch = match begins {
            0 => pipeline.epoch(0),
            _ => pipeline.resume(&saved.take().unwrap()).unwrap(),
        };
        let mut log = RunLog::open(&path, &pipeline, &options(true, true)).unwrap();
        for (step, batch) in (begins..batches).zip(epoch) {
            let batch = batch.unwrap();
            if [4, 10].contains(&step) {
                saved = Some(batch.state());
            }
            log.write(step, &batch).unwrap();
            want.insert(step, seen(&batch));
        }
    }
    let replay = Replay::open(&path).unwrap();
    assert_eq!(replay.verify(&pipeline, 100, 0).unwrap().len(), 7 + 9 + 6 + 9);
    for (step, want) in want {
        assert!(seen(&replay.batch(&pipeline, step).unwrap()) == want, "step {step}");
    }
}

/// The rank goes on in the lanes of two others, whose batches another log has.
#[test]
fn batches_of_a_stream_come_again_after_a_change_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("shards");
    pack(&source(60), &shards, &PackOptions::new(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    let build = |rank, ranks| {
        let stream = OpenOptions::default().window(Some(9)).open(&shards).unwrap();
        let builder = small(stream).batch_size(2).threads(1).partition(Partition::new(rank, ranks).unwrap());
        builder.build().unwrap()
    };
    let states = [0, 1].map(|rank| {
        let mut epoch = build(rank, 2).epoch(0);
        assert_eq!(epoch.by_ref().take(2 + rank as usize).map(Result::unwrap).count(), 2 + rank as usize);
        epoch.state()
    });
    let (pipeline, path) = (build(0, 1), folder.path().join("run.wlog"));
    let mut log = RunLog::open(&path, &pipeline, &options(true, false)).unwrap();
    let rest = pipeline.resume(&pipeline.state_after(&states).unwrap()).unwrap();
    let want: Vec<_> = (0..)
        .zip(rest.chain(pipeline.epoch(1)))
        .map(|(step, batch)| {
            let batch = batch.unwrap();
            log.write(step, &batch).unwrap();
            seen(&batch)
        })
        .collect();
    assert_eq!(want.len(), 25 + 30);
    let (replay, other) = (Replay::open(&path).unwrap(), build(0, 1));
    for step in [0, 1, 24, 25, 26, 54] {
        assert!(seen(&replay.batch(&other, step).unwrap()) == want[step as usize], "step {step}");
    }
    // One line says where the lanes began.
    assert_eq!(fs::read_to_string(&path).unwrap().matches("\"before\"").count(), 1);
}

#[test]
fn another_pipeline_is_refused_with_what_differs() {
    let (_folder, path) = new_log();
    let builder = || small(source(23)).normalize(IMAGENET_MEAN, IMAGENET_STD);
    logged(&path, &builder().build().unwrap(), &options(false, false));
    let replay = Replay::open(&path).unwrap();
    let with_mean = |mean| small(source(23)).normalize(mean, IMAGENET_STD);
    for (other, differs) in [
        (builder().shuffle(8), "seed 7"),
        (builder().batch_size(4), "batch_size 5"),
        (builder().output(DType::F16, Layout::Nchw), "dtype \"f32\""),
        (builder().mix(Mix::timm(0.8, 1.0).hard_labels(true)), "mix null"),
        (builder().partition(Partition::new(0, 2).unwrap()), "partition [0,1]"),
        (builder().orientation(Orientation::Ignore), "orientation"),
        (with_mean([0.5; 3]), "0.485"),
        (small(source(22)).normalize(IMAGENET_MEAN, IMAGENET_STD), "source"),
    ] {
        let other = other.build().unwrap();
        let error = replay.batch(&other, 0).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(differs), "{differs}: {error}");
        assert!(replay.verify(&other, 1, 0).is_err() && replay.check(&other).is_err());
        assert!(RunLog::open(&path, &other, &options(false, false)).unwrap_err().is_parameter(), "{differs}");
    }
    let same = builder().threads(1).prefetch(4).on_error(OnError::Skip).build().unwrap();
    replay.check(&same).unwrap();
    let error = RunLog::open(&path, &same, &options(true, false)).unwrap_err().to_string();
    assert!(error.contains("digests false, chain false") && error.contains("run.wlog"), "{error}");
}

#[test]
fn a_log_goes_on_after_a_kill_and_the_later_line_counts() {
    for chain in [false, true] {
        let (_folder, path) = new_log();
        let pipeline = small(source(23)).build().unwrap();
        let want = logged(&path, &pipeline, &options(true, chain));
        let whole = fs::read(&path).unwrap();
        // The run was killed within a line; its state counts two batches less than the log.
        fs::write(&path, &whole[..whole.len() - 7]).unwrap();
        let mut epoch = pipeline.epoch(4);
        epoch.next().unwrap().unwrap();
        let state = epoch.state();
        let mut log = RunLog::open(&path, &pipeline, &options(true, chain)).unwrap();
        for (step, batch) in (6..).zip(pipeline.resume(&state).unwrap()) {
            log.write(step, &batch.unwrap()).unwrap();
        }
        let (replay, lines) = (Replay::open(&path).unwrap(), fs::read_to_string(&path).unwrap());
        assert_eq!(lines.matches("{\"run\":").count(), 2);
        // 10 of the first process but the last, and 4 of the second.
        let summary = replay.summary().unwrap();
        assert_eq!((summary.batches, summary.chain), (13, log.chain()));
        for (step, want) in want.iter().enumerate() {
            assert!(seen(&replay.batch(&pipeline, step as u64).unwrap()) == *want, "step {step}");
        }
        assert_eq!(replay.verify(&pipeline, 100, 0).unwrap().len(), 13);
    }
}

#[test]
fn what_is_no_log_is_refused_with_its_name() {
    let (_folder, path) = new_log();
    let pipeline = small(source(5)).build().unwrap();
    let says = |error: Error, words: &str| {
        let text = error.to_string();
        assert!(text.contains("run.wlog") && text.contains(words), "{text}");
    };
    says(Replay::open(&path).unwrap_err(), "cannot open");
    fs::write(&path, "").unwrap();
    says(Replay::open(&path).unwrap_err(), "no line");
    for text in ["\n", "12\n", "{}\n", "{\"run\":{\"log\":1}}\n", "\u{0}\u{0}\n"] {
        fs::write(&path, text).unwrap();
        says(Replay::open(&path).unwrap_err(), "no log");
        says(RunLog::open(&path, &pipeline, &options(false, false)).unwrap_err(), "no log");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "another's file stays as it was");
    }
    // An empty file, and one that a power loss has filled with zeros, are begun anew.
    for text in ["", "\u{0}\u{0}\u{0}"] {
        fs::write(&path, text).unwrap();
        logged(&path, &pipeline, &options(false, false));
        assert_eq!(Replay::open(&path).unwrap().summary().unwrap().batches, 2);
    }
    let text = fs::read_to_string(&path).unwrap().replacen("\"log\":1", "\"log\":9", 1);
    fs::write(&path, text).unwrap();
    says(Replay::open(&path).unwrap_err(), "version 9");
}

#[test]
fn a_chain_shows_every_change() {
    let (_folder, path) = new_log();
    let pipeline = small(source(13)).build().unwrap();
    logged(&path, &pipeline, &options(false, true));
    let whole = fs::read(&path).unwrap();
    let last = Replay::open(&path).unwrap().summary().unwrap().chain.unwrap();
    let is_refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let result = Replay::open(&path).and_then(|replay| replay.summary());
        result.is_err_and(|error| error.to_string().contains("run.wlog"))
    };
    let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap();
    // The end of the first line is where a chain begins.
    for at in (first_line - 60..whole.len() - 1).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert!(is_refused(&changed), "byte {at}");
    }
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    for at in 1..lines.len() - 1 {
        let mut without = lines.clone();
        without.remove(at);
        assert!(is_refused(&without.concat()), "without line {at}");
        let mut swapped = lines.clone();
        swapped.swap(at, at + 1);
        assert!(is_refused(&swapped.concat()), "line {at} after the next");
    }
    // Lines that are missing at the end show in the last hash alone.
    fs::write(&path, lines[..3].concat()).unwrap();
    let cut = Replay::open(&path).unwrap().summary().unwrap();
    assert!(cut.batches == 2 && cut.chain.is_some_and(|chain| chain != last));
}

#[test]
fn a_changed_image_is_named_with_its_step() {
    let (_folder, path) = new_log();
    let images = |changed: Option<u64>| {
        let seed = |i| if Some(i) == changed { 99 } else { i };
        small(EncodedImages::new((0..13).map(|i| (jpeg(40, 30, seed(i)), i as u32)))).build().unwrap()
    };
    let pipeline = images(None);
    logged(&path, &pipeline, &options(true, false));
    let replay = Replay::open(&path).unwrap();
    assert_eq!(replay.verify(&pipeline, 100, 5).unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(replay.verify(&pipeline, 2, 5).unwrap().len(), 2);
    let batch = pipeline.epoch(3).nth(1).unwrap().unwrap();
    let error = replay.batch(&images(Some(batch.indices()[2])), 1).unwrap_err().to_string();
    let named = format!("step 1: image 2 (sample {}, ", batch.indices()[2]);
    assert!(error.contains(&named) && error.contains("digest"), "{error}");
    assert!(replay.verify(&images(Some(0)), 100, 5).is_err());
}

#[test]
fn a_line_of_another_run_is_refused_and_causes_no_panic() {
    let (_folder, path) = new_log();
    let pipeline = small(source(13)).build().unwrap();
    logged(&path, &pipeline, &options(false, false));
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().nth(2).unwrap();
    let (before, rest) = line.split_once("\"indices\":[").unwrap();
    let (indices, after) = rest.split_once(']').unwrap();
    let with = |indices: &str, first: &str| {
        let before = before.replace("\"first\":5", &format!("\"first\":{first}"));
        format!("{before}\"indices\":[{indices}]{after}")
    };
    assert_eq!(with(indices, "5"), line);
    for changed in [
        with("", "5"),
        with("13", "5"),
        with("18446744073709551615", "5"),
        with("1,2,3,4,5,6", "5"),
        with(indices, "14"),
        with(indices, "18446744073709551615"),
        with(indices, "-1"),
        line.replacen("\"indices\"", "\"padding\":6,\"indices\"", 1),
        line.replacen("\"indices\"", "\"partners\":[0],\"indices\"", 1),
        "{\"step\":1}".to_owned(),
        "nonsense".to_owned(),
    ] {
        fs::write(&path, text.replacen(line, &changed, 1)).unwrap();
        let error = Replay::open(&path).unwrap().batch(&pipeline, 1).unwrap_err();
        assert!(error.to_string().contains("run.wlog"), "{changed}: {error}");
    }
    fs::write(&path, text.replacen("\"partition\"", "\"part\"", 1)).unwrap();
    let replay = Replay::open(&path).unwrap();
    assert_eq!(replay.partition(), "0/1");
    let error = replay.batch(&pipeline, 1).unwrap_err().to_string();
    assert!(error.contains("run.wlog") && error.contains("part"), "{error}");
}

#[test]
fn what_nvjpeg_decoded_is_refused_unless_approximate_pixels_will_do() {
    let (_folder, path) = new_log();
    let pipeline = small(source(13)).build().unwrap();
    let want = logged(&path, &pipeline, &options(true, false));
    let text = fs::read_to_string(&path).unwrap();
    // As if nvJPEG had made other pixels of the second image.
    let digests = text.lines().nth(2).unwrap().split_once("\"digests\":[").unwrap().1;
    let digest = digests.split('"').nth(3).unwrap();
    let marked =
        text.replacen(digest, &"0".repeat(64), 1).replacen("\"digests\":[\"", "\"nvjpeg\":[1],\"digests\":[\"", 2);
    fs::write(&path, marked.replacen("\"nvjpeg\":[1],", "", 1)).unwrap();
    let replay = Replay::open(&path).unwrap();
    replay.batch(&pipeline, 0).unwrap();
    let error = replay.batch(&pipeline, 1).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("--approximate"), "{error}");
    assert!(replay.approximate(true).batch(&pipeline, 1).map(|batch| seen(&batch)).unwrap() == want[1]);
}

/// Takes the number form of a builder's batches back to bytes.
#[test]
fn numbers_become_the_bytes_that_they_were_made_of() {
    let builder = || small(source(7)).normalize(IMAGENET_MEAN, IMAGENET_STD);
    let rgb = |builder: PipelineBuilder| -> Vec<Vec<u8>> {
        let views = builder.build().unwrap().epoch(2).next().unwrap().unwrap().to_rgb().unwrap();
        assert_eq!(views.len(), 1);
        views[0].iter().map(Image::to_rgb).collect()
    };
    let want = rgb(small(source(7)).output(DType::U8, Layout::Nhwc));
    assert!(want.len() == 5 && want.iter().all(|image| image.len() == 24 * 20 * 3));
    for layout in [Layout::Nchw, Layout::Nhwc] {
        assert!(rgb(small(source(7)).output(DType::U8, layout)) == want, "{layout:?}");
        assert!(rgb(small(source(7)).output(DType::F32, layout)) == want, "{layout:?}");
        for dtype in [DType::F32, DType::F16] {
            assert!(rgb(builder().output(dtype, layout)) == want, "{dtype}, {layout:?}");
        }
        // bf16 has 8 digits of the 8 that a byte needs.
        for (image, want) in rgb(builder().output(DType::Bf16, layout)).iter().zip(&want) {
            assert!(image.iter().zip(want).all(|(a, b)| a.abs_diff(*b) <= 1), "{layout:?}");
        }
        let gray = small(source(7)).normalize([0.4; 3], [0.2; 3]).channels(1);
        let gray = rgb(gray.output(DType::F32, layout));
        assert!(gray == rgb(small(source(7)).channels(1).output(DType::U8, layout)));
        assert!(gray[0].as_chunks::<3>().0.iter().all(|[r, g, b]| r == g && g == b));
    }
}

/// The last stage is the image of the batch, and each stage is its part of the recipe.
fn stages_lead_to_the_image<I: BatchImages>(pipeline: &Pipeline<I>, epoch: u64) {
    let batch = pipeline.epoch(epoch).next().unwrap().unwrap();
    let images = batch.to_rgb().unwrap();
    for (i, (&index, repetition)) in batch.indices().iter().zip(batch.repetitions()).enumerate() {
        let mut stages = Vec::new();
        let recipes = pipeline
            .stages(epoch, index, repetition, &mut |stage| {
                stages.push(stage);
                Ok(())
            })
            .unwrap();
        assert_eq!(recipes, batch.recipes(i).unwrap());
        let images: Vec<&Image> = images.iter().flat_map(|view| view.iter().skip(i).step_by(batch.len())).collect();
        for (number, (recipe, want)) in recipes.iter().zip(images).enumerate() {
            let own: Vec<_> = stages.iter().filter(|stage| stage.image == number).collect();
            let names: Vec<&str> = own[1..].iter().map(|stage| stage.operation).collect();
            let shown: Vec<&str> = recipe.iter().map(Op::name).filter(|name| *name != "normalize").collect();
            assert_eq!((own[0].operation, names), ("decoded", shown));
            assert!(own.last().unwrap().pixels.to_rgb() == want.to_rgb(), "sample {index}, image {number}: {recipe:?}");
        }
    }
}

#[test]
fn stages_are_the_recipe_step_by_step() {
    let erasing = RandomErasing::new(1.0).noise(ErasingNoise::PerPixel);
    let erased = small(source(9)).normalize(IMAGENET_MEAN, IMAGENET_STD).transform(erasing);
    for builder in [small(source(9)), erased, mosaics(), small(source(9)).sampler(Sampler::repeated(2))] {
        stages_lead_to_the_image(&builder.build().unwrap(), 2);
    }
    let views = [view([random_resized_crop(12)]).times(2), view([random_resized_crop(8)])];
    stages_lead_to_the_image(&Pipeline::builder(source(5)).views(views).build().unwrap(), 2);

    let pipeline = small(source(9)).build().unwrap();
    let recipe = pipeline.recipe(2, 4).unwrap();
    let encoded = warpfeed::source::Source::encoded(&source(9), 4).unwrap();
    let stages = pipeline.stages(2, 4, 0, &mut |stage| {
        let done = &recipe[..stage.number];
        let want = apply(&encoded, done, &common::as_made(done).orientation(Orientation::Ignore)).unwrap();
        let [_, height, width, _] = want.shape().map(|side| side as u32);
        assert_eq!(stage.pixels.size(), Size::new(width, height));
        assert!(stage.pixels.to_rgb() == want.as_bytes().unwrap(), "stage {}", stage.number);
        Ok(())
    });
    assert_eq!(stages.unwrap()[0], recipe);
    assert!(pipeline.stages(2, 9, 0, &mut |_| Ok(())).unwrap_err().is_parameter());
}

/// The output of a command, which must have this exit code.
fn command(arguments: &[&str], code: i32) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_warpfeed")).args(arguments).output().unwrap();
    let (out, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    if code == 0 { out } else { said }
}

/// A folder with twelve images in three class folders.
fn image_folder(root: &Path) -> PathBuf {
    for i in 0..12 {
        let class = root.join(format!("images/{}", i % 3));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join(format!("{i:02}.jpg")), jpeg(60 + i as u32, 50, i)).unwrap();
    }
    root.join("images")
}

#[test]
fn the_command_logs_and_makes_a_batch_again_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (images, base, file) = (image_folder(folder.path()), path("run.wlog"), path("transforms.json"));
    let transforms = r#"[
        {"transform": "random_resized_crop", "size": [24, 24]},
        {"transform": "random_horizontal_flip", "p": 0.5},
        {"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    ]"#;
    fs::write(&file, transforms).unwrap();
    let run =
        ["run", images.to_str().unwrap(), "--transforms", &file, "--batch-size", "5", "--epochs", "2", "--seed", "7"];
    let mixed = [
        "--mix",
        "timm=0.8/1,mode=elem,hard-labels",
        "--rank",
        "1/2",
        "--equal-batches",
        "--log",
        &base,
        "--chain",
        "--json",
    ];
    let report: serde_json::Value = serde_json::from_str(&command(&[&run[..], &mixed].concat(), 0)).unwrap();
    assert_eq!(report["batches"], 4);
    // A rank's own file, which is not written over.
    let log = path("run.wlog.1");
    assert!(command(&[&run[..], &mixed].concat(), 2).contains("run.wlog.1"));
    command(&[&run[..], &["--chain"]].concat(), 2);

    // Elsewhere, and without the file of transforms.
    let moved = path("moved");
    fs::rename(&images, &moved).unwrap();
    fs::remove_file(&file).unwrap();
    let out = path("out");
    let step = ["replay", "--log", &log, "--step", "3", "-o", &out];
    assert!(command(&step, 1).contains("images"), "the source is not where it was");
    let replay = [&step[..], &["--source", &moved]].concat();
    let text = command(&replay, 0);
    assert!(text.starts_with("step 3, epoch 1: 1 images in ") && text.contains("000.png: sample "), "{text}");
    let step = ["replay", "--log", &log, "--step", "2", "-o", &out, "--source", &moved];
    let json: serde_json::Value = serde_json::from_str(&command(&[&step[..], &["--json"]].concat(), 0)).unwrap();
    let receipts: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path("out/receipts.json")).unwrap()).unwrap();
    assert_eq!(json, receipts);
    assert_eq!(receipts["tensors"][0]["shape"], serde_json::json!([5, 3, 24, 24]));

    // The bytes of the file are those whose digests the run has logged.
    let text = fs::read_to_string(&log).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().nth(3).unwrap()).unwrap();
    let file = fs::read(path("out/tensor.npy")).unwrap();
    let image_bytes = 4 * 3 * 24 * 24;
    for (i, image) in file[file.len() - 5 * image_bytes..].chunks(image_bytes).enumerate() {
        let receipt = &receipts["images"][i];
        assert_eq!(line["digests"][i], common::sha256(image));
        assert_eq!((&receipt["digest"], &receipt["index"]), (&line["digests"][i], &line["indices"][i]));
        assert_eq!((&receipt["partner"], &receipt["share"]), (&line["partners"][i], &line["shares"][i]));
        assert_eq!(receipt["recipe"][0]["op"], "resized_crop");
        assert!(fs::read(path(&format!("out/{i:03}.png"))).unwrap().starts_with(b"\x89PNG"));
    }
    assert!(fs::metadata(path("out/sheet.png")).unwrap().len() > 0);

    // One sample, as `warpfeed recipe` prints it.
    let stages = path("stages");
    let index = ["replay", "--log", &log, "--index", "4", "--epoch", "1", "-o", &stages, "--source", &moved];
    let text = command(&index, 0);
    assert!(
        text.starts_with("sample 4, epoch 1: ") && text.contains("\n00-decoded.png\n01-resized-crop.png\n"),
        "{text}"
    );
    let written = fs::read_to_string(path("stages/recipe.json")).unwrap();
    let recipe = ["recipe", &moved, "--index", "4", "--epoch", "1", "--seed", "7", "--transforms", transforms];
    assert_eq!(written, command(&recipe, 0));

    // The chain and all batches; then a changed image; then a changed log.
    let verify = ["replay", "--log", &log, "--verify", "--source", &moved, "--samples"];
    let text = command(&[&verify[..], &["9", "--seed", "3"]].concat(), 0);
    let chain = report["log_chain"].as_str().unwrap();
    assert!(text.contains(chain) && text.contains("4 batches again, drawn with --seed 3"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&command(&[&verify[..], &["2", "--json"]].concat(), 0)).unwrap();
    assert_eq!((json["steps"].as_array().unwrap().len(), &json["log"]["batches"]), (2, &serde_json::json!(4)));
    fs::write(format!("{moved}/1/04.jpg"), jpeg(64, 50, 99)).unwrap();
    let said = command(&[&verify[..], &["9"]].concat(), 1);
    assert!(said.contains("cannot replay") && said.contains("sample ") && said.contains("step "), "{said}");
    let lines: Vec<&str> = fs::read_to_string(&log).unwrap().leak().lines().collect();
    fs::write(&log, [lines[0], lines[2], lines[3], lines[4], ""].join("\n")).unwrap();
    let said = command(&[&verify[..4], &["--samples", "0"]].concat(), 1);
    assert!(said.contains("line 2 does not continue the chain"), "{said}");
}

#[test]
fn the_command_goes_on_with_a_log_by_its_state_and_refuses_what_makes_no_sense() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (images, log, state) = (image_folder(folder.path()), path("run.wlog"), path("state"));
    let run = |epochs: &str| {
        let options = ["--preset", "eval", "--batch-size", "5", "--log", &log, "--state", &state, "--epochs", epochs];
        command(&[&["run", images.to_str().unwrap()][..], &options].concat(), 0)
    };
    run("1");
    run("2");
    let out = path("out");
    let step = |step: &str, code| command(&["replay", "--log", &log, "--step", step, "-o", &out], code);
    assert!(step("5", 0).starts_with("step 5, epoch 1: 2 images in "));
    assert!(step("6", 2).contains("run.wlog"));
    assert!(command(&["replay", "--log", &log, "--verify"], 2).contains("--digests or --chain"));
    for wrong in [
        &["--step", "1"][..],
        &["--step", "1", "--index", "1", "-o", &out],
        &["--step", "1", "--verify"],
        &["--step", "1", "--epoch", "1", "-o", &out],
        &["-o", &out],
        &["--verify", "-o", &out],
    ] {
        command(&[&["replay", "--log", &log], wrong].concat(), 2);
    }
    // A log of another program has no command line.
    let line = fs::read_to_string(&log).unwrap();
    let (before, rest) = line.split_once("\"arguments\":[").unwrap();
    fs::write(&log, format!("{before}\"arguments\":[{}", &rest[rest.find(']').unwrap()..])).unwrap();
    assert!(step("1", 1).contains("warpfeed::Replay"));
}

/// A log is somebody else's. It decides about the batches, and where images are read; no file or server else is used.
#[test]
fn a_log_decides_about_no_file_but_the_source() {
    use std::process::Command;
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images/class");
    fs::create_dir_all(&images).unwrap();
    (0..6).for_each(|i| fs::write(images.join(format!("{i}.jpg")), jpeg(300, 200, i)).unwrap());
    let evil = folder.path().join("evil");
    let (evil, cache) = (evil.to_str().unwrap(), folder.path().join("cache"));
    let warpfeed = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.args(arguments).current_dir(&folder).env("XDG_CACHE_HOME", &cache);
        command.env("WARPFEED_ENTRY_POINTS", folder.path().join("kept")).output().unwrap()
    };
    let run = ["run", "images", "--epochs", "2", "--batch-size", "4", "--entry-points", "none", "--device", "cpu"];
    let written = warpfeed(&[&run[..], &["--log", "run.wlog", "--digests"]].concat());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let good = fs::read_to_string(folder.path().join("run.wlog")).unwrap();
    let verify = |source: &str, others: &[&str], options: &[&str]| {
        let (first, rest) = good.split_once('\n').unwrap();
        let mut line: serde_json::Value = serde_json::from_str(first).unwrap();
        let arguments = [&["run", source, "--batch-size", "4"][..], others].concat();
        line["run"]["arguments"] = serde_json::to_value(arguments).unwrap();
        fs::write(folder.path().join("evil.wlog"), format!("{line}\n{rest}")).unwrap();
        warpfeed(&[&["replay", "--log", "evil.wlog", "--verify", "--samples", "99"], options].concat())
    };
    let (points, file) = (format!("{evil}/"), format!("{evil}/file"));
    for others in [
        &["--entry-points", &points][..],
        &["--entry-points", "1GiB", "--entry-points", &points],
        &["--image-cache", "1GB", "--image-cache-dir", evil],
        &["--shard-cache", evil, "--shard-cache-size", "1GB"],
        &["--state", &file, "--log", &file],
        &["--threads", "100000", "--prefetch", "100000"],
        &["--device", "cuda:7", "--jpeg-decoder", "hardware", "--device-memory", "1"],
        &["--devices", "0,1"],
    ] {
        let output = verify("images", others, &[]);
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(output.status.success() && stdout.contains("all as logged"), "{others:?}: {stderr}");
        assert!(stdout.contains("read     images (the place that the log names)"), "{stdout}");
        assert!(!Path::new(evil).exists(), "{others:?}");
    }
    // No entry points of anybody are used, and none are kept.
    assert!(!folder.path().join("kept").exists() && !cache.exists());
    let given = verify("elsewhere", &[], &["--source", "images"]);
    assert!(String::from_utf8_lossy(&given.stdout).contains("read     images (given by --source)"));

    // A request would go where the log says, with whatever keys this machine has.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let url = format!("http://me:secret@{}/a.tar", server.local_addr().unwrap());
    for source in [&*url, "s3://bucket/a.tar", "-"] {
        let output = verify(source, &[], &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("--source") && !stderr.contains("secret"), "{stderr}");
    }
    assert_eq!(server.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    fs::write(folder.path().join("transforms.json"), "[]").unwrap();
    let output = verify("images", &["--transforms", "transforms.json"], &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("names a file of transforms"));
}
