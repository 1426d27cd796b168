//! An epoch that goes on with other ranks gives every sample once.

use crate::common::{self, Delivered, Random, WithBad, all, data_set, on_cpu, samples, small, source};
use std::collections::BTreeMap;
use warpfeed::ops::{CenterCrop, random_resized_crop};
use warpfeed::pack::{PackOptions, pack};
use warpfeed::source::{AtEnd, Concat, EncodedImages, Input, OpenOptions, RecordFormat, SourceExt, StreamMix};
use warpfeed::{
    Device, EpochState, Error, LastBatch, Mix, OnError, Partition, Pipeline, PipelineBuilder, PipelineGroup, Sampler,
    five_crop,
};

/// A state as it comes back from a file.
fn written(state: &EpochState) -> EpochState {
    serde_json::from_str(&serde_json::to_string(state).unwrap()).unwrap()
}

fn rank(builder: PipelineBuilder, rank: u32, ranks: u32) -> Pipeline {
    on_cpu(builder.partition(Partition::new(rank, ranks).unwrap()))
}

/// Delivered samples, by epoch.
type Epochs = BTreeMap<u64, Vec<Delivered>>;

/// Each of `ranks` ranks continues from what `states` have left, or begins the epochs, and delivers `batches` batches
/// or less, independently of the others. Returns their states.
fn go_on(
    builder: &dyn Fn() -> PipelineBuilder,
    ranks: u32,
    epochs: u64,
    states: &[EpochState],
    batches: &mut dyn FnMut() -> usize,
    delivered: &mut Epochs,
) -> Vec<EpochState> {
    let mut after = Vec::new();
    for number in 0..ranks {
        let pipeline = rank(builder(), number, ranks);
        let begin = if states.is_empty() { None } else { Some(pipeline.state_after(states).unwrap()) };
        let start = begin.as_ref().map_or(0, EpochState::epoch);
        let (mut left, mut state) = (batches(), None);
        for epoch in start..epochs {
            let mut running = match &begin {
                Some(begin) => pipeline.resume(&begin.for_epoch(epoch)).unwrap(),
                None => pipeline.epoch(epoch),
            };
            for batch in running.by_ref().take(left) {
                left -= 1;
                delivered.entry(epoch).or_default().extend(samples(&batch.unwrap()));
            }
            state = Some(written(&running.state()));
            if left == 0 {
                break;
            }
        }
        after.push(state.unwrap());
    }
    after
}

fn sorted(mut delivered: Vec<Delivered>) -> Vec<Delivered> {
    delivered.sort_by(|a, b| (a.index, &a.bytes).cmp(&(b.index, &b.bytes)));
    delivered
}

/// Delivers epochs with these numbers of ranks: each delivers a part at random, the last one the rest.
fn changed(
    random: &mut Random,
    builder: &dyn Fn() -> PipelineBuilder,
    worlds: &[u32],
    epochs: u64,
    (least, most): (u32, u32),
) -> Epochs {
    let (mut delivered, mut states) = (Epochs::new(), Vec::new());
    for (place, &ranks) in worlds.iter().enumerate() {
        let is_last = place + 1 == worlds.len();
        let mut batches = || if is_last { usize::MAX } else { random.within(least, most) as usize };
        states = go_on(builder, ranks, epochs, &states, &mut batches, &mut delivered);
    }
    delivered
}

fn same(random: &mut Random, builder: &dyn Fn() -> PipelineBuilder, worlds: &[u32], epochs: u64, most: u32) {
    let delivered = changed(random, builder, worlds, epochs, (0, most));
    let undisturbed = on_cpu(builder());
    assert_eq!(delivered.len() as u64, epochs);
    for (epoch, delivered) in delivered {
        let want = sorted(common::delivered(&undisturbed, epoch));
        let got = sorted(delivered);
        assert_eq!(got.len(), want.len(), "epoch {epoch}, {worlds:?}");
        assert!(got == want, "epoch {epoch}, {worlds:?}");
    }
}

const WORLDS: [&[u32]; 5] = [&[2, 1, 3, 8], &[8, 6], &[1, 5], &[3, 3, 2], &[2, 4, 2, 7, 1]];

#[test]
fn folders_shards_and_mixes_have_every_sample_once() {
    let mut random = Random(11);
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("shards");
    pack(&source(53), &shards, &PackOptions::new(RecordFormat::TfRecord), &mut |_| {}).unwrap();
    let images = folder.path().join("images");
    for i in 0..31_u64 {
        let class = images.join(format!("class-{}", i % 3));
        std::fs::create_dir_all(&class).unwrap();
        std::fs::write(class.join(format!("{i:02}.jpg")), common::jpeg(30 + i as u32, 40, i)).unwrap();
    }
    let mixed = || Concat::mix([(source(40).into_source(), 3.0), (source(9).into_source(), 1.0)], 47, 5).unwrap();
    let builders: [&dyn Fn() -> PipelineBuilder; 3] =
        [&|| small(data_set(&images)).batch_size(2), &|| small(data_set(&shards)).batch_size(3), &|| {
            small(mixed()).batch_size(2)
        }];
    for builder in builders {
        for worlds in WORLDS {
            same(&mut random, builder, worlds, 1, 5);
        }
        same(&mut random, &|| builder().equal_batches(true), WORLDS[0], 1, 5);
        same(&mut random, &|| builder().shares(4), WORLDS[0], 1, 5);
    }
}

#[test]
fn samplers_substitutes_and_views_have_every_sample_once() {
    let mut random = Random(5);
    let bad = || WithBad { good: source(41), bad: vec![3, 4, 17, 40] };
    let builders: [&dyn Fn() -> PipelineBuilder; 8] = [
        &|| small(source(23)).sampler(Sampler::repeated(3).positions(61)).equal_batches(true),
        &|| small(source(23)).sampler(Sampler::weighted((0..23).map(f64::from), true)),
        &|| small(source(23)).sampler(Sampler::class_balanced().positions(50)),
        &|| small(bad()).on_error(OnError::Substitute).equal_batches(true),
        &|| small(bad()).on_error(OnError::Skip),
        &|| small(source(41)).last_batch(LastBatch::Pad).equal_batches(true),
        &|| Pipeline::builder(source(41)).shuffle(9).last_batch(LastBatch::Pad).views([five_crop(16)]),
        &|| Pipeline::builder(source(41)).seed(9).transform(CenterCrop::new(16)),
    ];
    for builder in builders {
        for worlds in WORLDS {
            same(&mut random, &|| builder().batch_size(3), worlds, 1, 4);
        }
    }
}

#[test]
fn a_limit_is_of_each_rank_that_began_and_of_each_that_goes_on() {
    let limited = |batch_size| small(source(41)).limit(9).batch_size(batch_size);
    let want = sorted([0, 1].map(|number| all(rank(limited(4), number, 2).epoch(0))).concat());
    assert_eq!(want.len(), 18);
    let mut delivered = Epochs::new();
    let states = go_on(&|| limited(4), 2, 1, &[], &mut || 1, &mut delivered);
    for (ranks, count) in [(3, 10), (5, 10), (1, 9)] {
        // Batches are larger than the limit, for which their memory is made.
        let mut together = Epochs::new();
        go_on(&|| limited(16), ranks, 1, &states, &mut || usize::MAX, &mut together);
        let rest = together.remove(&0).unwrap();
        assert_eq!(rest.len(), count, "{ranks} ranks");
        let together = sorted([&delivered[&0][..], &rest].concat());
        assert!(together.windows(2).all(|pair| pair[0].index != pair[1].index));
        assert!(together.iter().all(|sample| want.contains(sample)));
    }
}

/// Processes that do not wait for each other, as those of `run`.
#[test]
fn ranks_in_different_epochs_have_every_sample_of_each_once() {
    let mut random = Random(7);
    for worlds in WORLDS {
        same(&mut random, &|| small(source(29)).batch_size(2), worlds, 5, 25);
        same(&mut random, &|| small(source(29)).batch_size(2).equal_batches(true), worlds, 5, 25);
    }
}

#[test]
fn less_than_a_batch_of_each_new_rank_is_dropped() {
    let mut random = Random(3);
    for even in [false, true] {
        for worlds in WORLDS {
            let builder = || small(source(101)).batch_size(4).last_batch(LastBatch::Drop).equal_batches(even);
            let delivered = sorted(changed(&mut random, &builder, worlds, 1, (0, 2)).remove(&0).unwrap());
            let want = common::delivered(&on_cpu(small(source(101)).batch_size(4)), 0);
            assert!(delivered.windows(2).all(|pair| pair[0].index != pair[1].index), "{worlds:?}");
            assert!(delivered.iter().all(|sample| want.contains(sample)));
            let ranks = *worlds.last().unwrap() as usize;
            assert!(101 - delivered.len() < 4 * ranks + ranks, "{worlds:?}: {} delivered", delivered.len());
        }
    }
}

#[test]
fn one_state_is_enough_for_even_ranks() {
    let builder = || small(source(43)).equal_batches(true).batch_size(4);
    let (mut states, mut delivered) = (Vec::new(), Vec::new());
    for number in 0..3 {
        let mut epoch = rank(builder(), number, 3).epoch(2);
        (0..2).for_each(|_| delivered.extend(samples(&epoch.next().unwrap().unwrap())));
        states.push(written(&epoch.state()));
    }
    for ranks in [1, 2, 5] {
        let mut together = delivered.clone();
        let mut counts = Vec::new();
        for number in 0..ranks {
            let pipeline = rank(builder(), number, ranks);
            let state = pipeline.state_after(&states[1..2]).unwrap();
            assert_eq!(pipeline.state_after(&states).unwrap(), state);
            let text = serde_json::to_string(&state).unwrap();
            assert!(
                text.contains(r#""version":3"#) && text.contains(r#""segments":{"2":[{"ranks":3,"delivered":[8]}]}"#)
            );
            let epoch = pipeline.resume(&state).unwrap();
            counts.push(epoch.batches());
            together.extend(all(epoch));
        }
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        assert!(sorted(together) == sorted(common::delivered(&on_cpu(small(source(43))), 2)));
    }
    // With as many ranks each has its own state, or that of another which has come as far.
    let pipeline = rank(builder(), 2, 3);
    assert_eq!(pipeline.state_after(&states).unwrap(), states[2]);
    assert_eq!(pipeline.state_after(&states[..1]).unwrap(), states[2]);
    let text = serde_json::to_string(&states[2]).unwrap();
    assert!(text.contains(r#""version":2"#) && !text.contains("segments"), "{text}");
}

#[test]
fn devices_continue_what_processes_began_and_processes_what_devices_began() {
    let builder = || small(source(43)).batch_size(4).equal_batches(true);
    let group = |devices| -> PipelineGroup { builder().build_group(vec![Device::Cpu; devices]).unwrap() };
    let mut delivered = Epochs::new();
    let mut batches = [1, 2, 2].into_iter();
    let states = go_on(&builder, 3, 1, &[], &mut || batches.next().unwrap(), &mut delivered);
    let two = group(2);
    let mut epochs = two.resume(&two.states_after(&states).unwrap()).unwrap();
    let mut together = delivered.remove(&0).unwrap();
    for epoch in &mut epochs {
        together.extend(samples(&epoch.next().unwrap().unwrap()));
    }
    let states: Vec<EpochState> = epochs.iter().map(|epoch| written(&epoch.state())).collect();
    let mut again = Epochs::new();
    go_on(&builder, 5, 1, &states, &mut || usize::MAX, &mut again);
    together.extend(again.remove(&0).unwrap());
    assert!(sorted(together) == sorted(common::delivered(&on_cpu(small(source(43))), 0)));
}

#[test]
fn mixed_batches_draw_by_numbers_of_their_own() {
    let builder = || small(source(61)).batch_size(4).mix("timm=0.8/1,mode=elem,hard-labels".parse::<Mix>().unwrap());
    let run = |threads: usize| {
        let (mut shares, mut indices, mut states) = (Vec::new(), Vec::new(), Vec::new());
        for (ranks, batches) in [(2, 2), (3, 1), (2, usize::MAX)] {
            let mut after = Vec::new();
            for number in 0..ranks {
                let pipeline = rank(builder().threads(threads), number, ranks);
                let mut epoch = match &states[..] {
                    [] => pipeline.epoch(0),
                    states => pipeline.resume(&pipeline.state_after(states).unwrap()).unwrap(),
                };
                for batch in epoch.by_ref().take(batches) {
                    let batch = batch.unwrap();
                    indices.extend_from_slice(batch.indices());
                    shares.push(batch.mixed().unwrap().shares().to_vec());
                }
                after.push(epoch.state());
            }
            states = after;
        }
        (shares, indices)
    };
    let (shares, mut indices) = run(2);
    assert_eq!(run(0), (shares.clone(), indices.clone()));
    indices.sort_unstable();
    assert_eq!(indices, (0..61).collect::<Vec<_>>());
    let mut drawn: Vec<u32> =
        shares.iter().map(|shares| shares[0].to_bits()).filter(|&bits| bits != 1.0_f32.to_bits()).collect();
    let count = drawn.len();
    drawn.sort_unstable();
    drawn.dedup();
    assert!(count > 10 && drawn.len() == count, "no two batches have the same draws");
}

#[test]
fn states_that_are_no_run_are_refused() {
    let builder = || small(source(43));
    let states: Vec<EpochState> = (0..3)
        .map(|number| {
            let mut epoch = rank(builder(), number, 3).epoch(1);
            epoch.next().unwrap().unwrap();
            epoch.state()
        })
        .collect();
    let refused = |builder: PipelineBuilder, states: &[EpochState], words: &[&str]| {
        let error = rank(builder, 1, 2).state_after(states).unwrap_err();
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        error
    };
    assert!(refused(builder(), &states[..2], &["3 ranks", "rank 0, 1"]).is_parameter());
    refused(builder(), &[], &["none"]);
    refused(builder(), &[states[0].clone(), states[0].clone(), states[2].clone()], &["rank 0, 0, 2"]);
    let other = rank(builder(), 1, 4).epoch(1).state();
    refused(builder(), &[states[0].clone(), other, states[2].clone()], &["3 ranks", "1/4"]);
    refused(small(source(44)), &states, &["43 samples", "44 samples"]);
    refused(builder().shuffle(8), &states, &["seed 7", "seed 8"]);
    refused(builder().equal_batches(true), &states, &["even"]);
    let edited = |state: &EpochState, edit: &dyn Fn(&mut serde_json::Value)| -> EpochState {
        let mut json = serde_json::to_value(state).unwrap();
        edit(&mut json);
        serde_json::from_value(json).unwrap()
    };
    let far = edited(&states[1], &|json| json["epoch"] = (1_u64 << 60).into());
    refused(builder(), &[states[0].clone(), far, states[2].clone()], &["apart"]);
    let beyond = edited(&states[1], &|json| json["position"] = 15.into());
    refused(builder(), &[states[0].clone(), beyond, states[2].clone()], &["up to 14"]);

    // Segments that are not segments, and segments in a state whose version has none.
    let after = rank(builder(), 1, 2).state_after(&states).unwrap();
    let edits: [&dyn Fn(&mut serde_json::Value); 3] =
        [&|json| json["version"] = 2.into(), &|json| json["segments"]["1"][0]["ranks"] = 0.into(), &|json| {
            json["segments"]["1"][0]["delivered"] = vec![1, 2].into()
        }];
    for edit in edits {
        let error = rank(builder(), 1, 2).resume(&edited(&after, edit)).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }
    let mut of_two: Vec<EpochState> =
        (0..2).map(|number| rank(builder(), number, 2).state_after(&states).unwrap()).collect();
    assert!(rank(builder(), 0, 5).state_after(&of_two).is_ok());
    of_two[1] = edited(&of_two[1], &|json| json["segments"]["1"][0]["delivered"] = vec![4].into());
    let error = rank(builder(), 0, 5).state_after(&of_two).unwrap_err().to_string();
    assert!(error.contains("several runs"), "{error}");
}

/// Eight processes become six: each partition of the stream goes on from its state, two of them in one process.
#[test]
fn a_process_continues_several_partitions_of_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    pack(&source(97), &folder.path().join("a"), &PackOptions::new(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    let stream = || OpenOptions::default().window(Some(7)).open(folder.path().join("a")).unwrap();
    let builder = || small(stream()).batch_size(3).threads(1);
    let (mut delivered, mut states) = (Vec::<Vec<Delivered>>::new(), Vec::new());
    for number in 0..8 {
        let mut epoch = rank(builder(), number, 8).epoch(1);
        delivered.push((0..number % 3).flat_map(|_| samples(&epoch.next().unwrap().unwrap())).collect());
        states.push(written(&epoch.state()));
    }
    for process in 0..6 {
        let own: Vec<_> = (process..8).step_by(6).map(|i| (i, rank(builder(), i as u32, 8))).collect();
        let mut epochs: Vec<_> = own.iter().map(|(i, own)| (*i, own.resume(&states[*i]).unwrap())).collect();
        // In turn, as a trainer takes them.
        while !epochs.is_empty() {
            epochs.retain_mut(|(i, epoch)| {
                epoch.next().map(|batch| delivered[*i].extend(samples(&batch.unwrap()))).is_some()
            });
        }
    }
    for (number, got) in (0..).zip(delivered) {
        assert!(common::delivered(&rank(builder(), number, 8), 1) == got, "partition {number}");
    }
}

/// A shuffled stream of `shards` shards, which are made if they are not there.
fn stream(folder: &std::path::Path, images: u64, shards: u64) -> Input {
    for shard in 0..shards {
        let path = folder.join(format!("{shard}"));
        if !path.exists() {
            let own = (0..images / shards).map(|i| (common::jpeg(20 + i as u32, 24, 100 * shard + i), shard as u32));
            pack(&EncodedImages::new(own), &path, &PackOptions::new(RecordFormat::WebDataset), &mut |_| {}).unwrap();
        }
    }
    let open = |shard: u64| {
        let options = OpenOptions::default().window(Some(7));
        options.open(folder.join(format!("{shard}/{shard}-000000.tar"))).unwrap()
    };
    if shards == 1 {
        return open(0);
    }
    StreamMix::by_weight((0..shards).map(|shard| (open(shard), 1.0 + shard as f64)), AtEnd::GoOn, 3).unwrap().into()
}

#[test]
fn streams_have_every_sample_once_with_the_pixels_of_the_ranks_that_began() {
    let mut random = Random(3);
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("packed");
    drop(stream(&folder.path().join("nine"), 99, 9));
    std::fs::create_dir(&packed).unwrap();
    for shard in 0..9 {
        let path = folder.path().join(format!("nine/{shard}/{shard}-000000.tar"));
        std::fs::copy(path, packed.join(format!("{shard}.tar"))).unwrap();
    }
    let many = || OpenOptions::default().window(Some(7)).open(packed.join("*.tar")).unwrap();
    let builders: [&dyn Fn() -> PipelineBuilder; 4] = [
        &|| small(many()).batch_size(3).threads(2),
        // Each rank reads all of the only shard.
        &|| small(stream(&folder.path().join("one"), 40, 1)).batch_size(2).threads(1),
        &|| small(stream(&folder.path().join("mix"), 90, 3)).batch_size(3).threads(0),
        // Without shuffling there are no cursors: what was delivered is read again and skipped.
        &|| Pipeline::builder(many()).seed(9).transform(random_resized_crop(16)).batch_size(2).threads(1),
    ];
    for builder in builders {
        for worlds in WORLDS {
            // Ranks that have delivered nothing have not decided whose pixels the epoch has.
            let delivered = changed(&mut random, builder, worlds, 1, (1, 4)).remove(&0).unwrap();
            let began = (0..worlds[0]).map(|number| common::delivered(&rank(builder(), number, worlds[0]), 0));
            let want = sorted(began.collect::<Vec<_>>().concat());
            assert!(sorted(delivered) == want, "{worlds:?}");
        }
    }
    // Ranks in different epochs. Which ranks begin an epoch is random, so the pixels are not compared.
    let labels = |delivered: Vec<Delivered>| {
        let mut labels: Vec<u32> = delivered.into_iter().map(|sample| sample.label).collect();
        labels.sort_unstable();
        labels
    };
    let builder: &dyn Fn() -> PipelineBuilder = &|| small(many()).batch_size(3).threads(1);
    let want = labels(all(on_cpu(builder()).epoch(0)));
    for worlds in WORLDS {
        for (epoch, delivered) in changed(&mut random, builder, worlds, 3, (0, 30)) {
            let mut indices: Vec<u64> = delivered.iter().map(|sample| sample.index).collect();
            indices.sort_unstable();
            indices.dedup();
            assert_eq!(indices.len(), want.len(), "epoch {epoch}, {worlds:?}");
            assert_eq!(labels(delivered), want, "epoch {epoch}, {worlds:?}");
        }
    }
}

#[test]
fn the_number_of_lanes_decides_the_order_of_a_stream() {
    let mut random = Random(8);
    let folder = tempfile::tempdir().unwrap();
    let builder = || small(stream(folder.path(), 80, 1)).batch_size(3).lanes(8);
    let alone = || on_cpu(builder());
    let want = sorted(common::delivered(&alone(), 0));
    assert_eq!(want.len(), 80);
    let few: Vec<Delivered> = all(on_cpu(small(stream(folder.path(), 80, 1)).batch_size(3).lanes(1)).epoch(0));
    let plain: Vec<Delivered> = all(on_cpu(small(stream(folder.path(), 80, 1)).batch_size(3)).epoch(0));
    assert!(few == plain && sorted(few) != want);
    for worlds in [&[2, 1, 3, 8][..], &[8, 6], &[3], &[1, 5, 2]] {
        let delivered = changed(&mut random, &builder, worlds, 2, (0, 4));
        assert!(sorted(delivered[&0].clone()) == want, "{worlds:?}");
        assert!(sorted(delivered[&1].clone()) == sorted(common::delivered(&alone(), 1)), "{worlds:?}");
    }
    // The windows of all lanes of a rank are counted.
    let encoded = |lanes: u32| on_cpu(small(stream(folder.path(), 80, 1)).lanes(lanes)).memory().encoded_bytes;
    assert!(encoded(8) > 7 * (encoded(2) - encoded(1)), "{} {} {}", encoded(8), encoded(2), encoded(1));
    let refused = |builder: PipelineBuilder| builder.build().unwrap_err().to_string();
    assert!(refused(builder().partition(Partition::new(0, 9).unwrap())).contains("9, the number of ranks"));
    assert!(refused(builder().lanes(0)).contains("lanes") && refused(builder().lanes(70_000)).contains("65536"));
    assert!(refused(small(source(5)).lanes(4)).contains("a stream"));
}

#[test]
fn lanes_of_a_stream_that_were_edited_or_belong_to_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let builder = || small(stream(folder.path(), 40, 1)).batch_size(2).threads(1);
    let states = [0, 1, 2].map(|number| {
        let mut epoch = rank(builder(), number, 3).epoch(1);
        epoch.next().unwrap().unwrap();
        written(&epoch.state())
    });
    let two = rank(builder(), 1, 2);
    let state = two.state_after(&states).unwrap();
    assert!(two.resume(&written(&state)).is_ok());
    let text = serde_json::to_string(&state).unwrap();
    assert!(text.contains(r#""version":3"#) && text.contains(r#""count":3"#), "{text}");
    for (part, other) in [
        (r#""delivered":2"#, r#""delivered":3"#),
        (r#""lane":1"#, r#""lane":0"#),
        (r#""count":3"#, r#""count":5"#),
        (r#""count":3"#, r#""count":0"#),
        (r#""version":3"#, r#""version":2"#),
    ] {
        let edited = text.replacen(part, other, 1);
        assert_ne!(edited, text, "{part}");
        let error = two.resume(&serde_json::from_str(&edited).unwrap()).unwrap_err();
        assert!(error.is_parameter(), "{part}: {error}");
    }
    let cut = text.replacen(r#""cursor":""#, r#""cursor":"x"#, 1);
    assert!(serde_json::from_str::<EpochState>(&cut).is_err());
    // A rank without a lane has nothing left.
    let seven = rank(builder(), 6, 7);
    let nothing = seven.state_after(&states).unwrap();
    assert_eq!(all(seven.resume(&nothing).unwrap()).len(), 0);
    assert!(!all(seven.resume(&nothing.for_epoch(2)).unwrap()).is_empty());
    // No rank has begun the next epoch.
    let next = states.clone().map(|state| state.for_epoch(2));
    let text = serde_json::to_string(&two.state_after(&next).unwrap()).unwrap();
    assert!(!text.contains("lane"), "{text}");
    assert!(two.state_after(&states[..2]).unwrap_err().is_parameter());
    assert!(rank(builder(), 0, 5).state_after(&[state.clone(), state]).unwrap_err().is_parameter());
}

#[test]
fn mixed_batches_of_a_stream_draw_by_numbers_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let builder = || {
        small(stream(folder.path(), 40, 1)).batch_size(4).threads(1).mix("torchvision=1/0,hard-labels".parse().unwrap())
    };
    let share = |batch: &warpfeed::Batch| batch.mixed().unwrap().shares().to_vec();
    let (mut shares, mut states) = (Vec::new(), Vec::new());
    for number in 0..2 {
        let mut epoch = rank(builder(), number, 2).epoch(0);
        shares.extend((0..2).map(|_| share(&epoch.next().unwrap().unwrap())));
        states.push(epoch.state());
    }
    let one = rank(builder(), 0, 1);
    let rest = one.resume(&one.state_after(&states).unwrap()).unwrap();
    shares.extend(rest.map(|batch| share(&batch.unwrap())));
    assert_eq!(shares.len(), 10);
    let different: std::collections::BTreeSet<String> = shares.iter().map(|share| format!("{share:?}")).collect();
    assert_eq!(different.len(), shares.len(), "{shares:?}");
}

#[test]
fn what_is_made_for_one_number_of_ranks_is_refused() {
    let both = || Concat::new([source(23).into_source(), source(5).into_source()]).unwrap();
    let shares = || small(both()).batch_size(5).sampler(both().shares([4, 1]).unwrap());
    let states = [0, 1].map(|number| rank(shares(), number, 2).epoch(0).next().unwrap().unwrap().state());
    let error = rank(shares(), 0, 3).state_after(&states).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("with 2 partitions"), "{error}");
    // As ever with as many.
    assert_eq!(rank(shares(), 1, 2).state_after(&states).unwrap(), states[1]);
}

/// Runs with state files; any of them may be as an earlier process left it.
mod files {
    use super::*;
    use serde_json::Value;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};
    use warpfeed_bench::digest::Digest;
    use warpfeed_bench::run::{RunReport, run_with_state};
    use warpfeed_bench::run_state::StateFile;

    const EPOCHS: u64 = 2;
    const IMAGES: u64 = 43;

    fn pipeline(number: u32, ranks: u32) -> Pipeline {
        rank(small(source(IMAGES)).threads(0).batch_size(4), number, ranks)
    }

    /// Runs a rank. Returns its report, and what its file was after every batch.
    fn run(folder: &Path, number: u32, ranks: u32) -> warpfeed::Result<(RunReport, Vec<Vec<u8>>)> {
        let file = StateFile { path: folder.join("state"), settings: "small".to_owned() };
        let own = own_file(folder, number, ranks);
        let mut written = Vec::new();
        let pipeline = pipeline(number, ranks);
        let report = run_with_state(&pipeline, 0..EPOCHS, true, &file, Instant::now(), &mut |_progress| {
            written.extend(fs::read(&own));
        })?;
        Ok((report, written))
    }

    fn own_file(folder: &Path, number: u32, ranks: u32) -> PathBuf {
        folder.join(if ranks == 1 { "state".to_owned() } else { format!("state.{number}") })
    }

    /// A folder with state files as they once were.
    fn with(files: &[(&str, &Vec<u8>)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    /// Images that the state files of `ranks` ranks say were delivered in all, and how often the number of ranks
    /// changed.
    fn delivered(folder: &Path, ranks: u32) -> (u64, u64) {
        let read =
            |number| -> Value { serde_json::from_slice(&fs::read(own_file(folder, number, ranks)).unwrap()).unwrap() };
        let files: Vec<Value> = (0..ranks).map(read).collect();
        let own: u64 = files.iter().map(|file| file["delivered"]["images"].as_u64().unwrap()).sum();
        let before = &files[0]["change"]["before"]["images"];
        assert!(files.iter().all(|file| file["change"]["before"]["images"] == *before));
        (own + before.as_u64().unwrap_or(0), files[0]["change"]["changes"].as_u64().unwrap_or(0))
    }

    /// State files of two ranks after every batch.
    fn of_two_ranks() -> [Vec<Vec<u8>>; 2] {
        let folder = tempfile::tempdir().unwrap();
        [0, 1].map(|number| run(folder.path(), number, 2).unwrap().1)
    }

    #[test]
    fn a_rank_begins_alike_whatever_the_others_have_written() {
        let two = of_two_ranks();
        // The first is in its second epoch, the other in its first.
        let old = [("state.0", &two[0][7]), ("state.1", &two[1][2])];
        let alone: Vec<_> = (0..3).map(|number| run(with(&old).path(), number, 3).unwrap()).collect();
        for (report, _) in &alone {
            let before = report.other_ranks.unwrap();
            assert_eq!((before.ranks, before.images, before.batches), (2, 30 + 12, 8 + 3));
            assert!(report.earlier.is_none() && report.images > 0);
        }
        let images: u64 = alone.iter().map(|(report, _)| report.images).sum();
        assert_eq!(images + 42, EPOCHS * IMAGES);
        // Some have written, the rest begins, and whoever was killed goes on.
        for (place, first) in [(0, [0, 1, 2]), (2, [2, 0, 1]), (1, [1, 2, 0])] {
            let folder = with(&old);
            for (turn, number) in first.into_iter().enumerate() {
                let (report, written) = run(folder.path(), number, 3).unwrap();
                assert!(written == alone[number as usize].1, "rank {number} after {turn} others");
                assert_eq!(report.digest, alone[number as usize].0.digest);
                // It is killed after its first batch, and goes on when the others are done.
                fs::write(own_file(folder.path(), number, 3), &written[0]).unwrap();
            }
            let (report, _) = run(folder.path(), place, 3).unwrap();
            assert_eq!(report.digest, alone[place as usize].0.digest);
            assert_eq!(report.earlier.unwrap().batches, 1);
        }
    }

    #[test]
    fn the_number_changes_again_before_all_ranks_have_begun() {
        let two = of_two_ranks();
        let old = [("state.0", &two[0][3]), ("state.1", &two[1][7])];
        let three = run(with(&old).path(), 1, 3).unwrap().1;
        for ranks in [1, 2, 4, 8] {
            // Only rank 1 of 3 has written; the file of rank 0 is of before.
            let folder = with(&[("state.0", &two[0][3]), ("state.1", &three[2])]);
            for number in (0..ranks).rev() {
                assert_eq!(run(folder.path(), number, ranks).unwrap().0.other_ranks.unwrap().ranks, 3);
            }
            assert_eq!(delivered(folder.path(), ranks), (EPOCHS * IMAGES, 2), "{ranks} ranks");
            // Done is done, for any number of ranks: an older file is not read.
            for number in 0..3 {
                let (report, _) = run(folder.path(), number, 3).unwrap();
                assert_eq!((report.images, report.other_ranks.unwrap().images), (0, EPOCHS * IMAGES));
            }
        }
    }

    #[test]
    fn one_rank_delivers_in_order_what_two_have_left() {
        let two = of_two_ranks();
        let folder = with(&[("state.0", &two[0][2]), ("state.1", &two[1][0])]);
        let states = [&two[0][2], &two[1][0]].map(|text| -> EpochState {
            let json: Value = serde_json::from_slice(text).unwrap();
            serde_json::from_value(json["epoch"].clone()).unwrap()
        });
        let one = pipeline(0, 1);
        let state = one.state_after(&states).unwrap();
        let mut digest = Digest::default();
        for batch in (0..EPOCHS).flat_map(|epoch| one.resume(&state.for_epoch(epoch)).unwrap()) {
            digest.add(&batch.unwrap()).unwrap();
        }
        assert_eq!(run(folder.path(), 0, 1).unwrap().0.digest, Some(digest.finish()));
    }

    #[test]
    fn files_that_are_no_whole_run_are_refused() {
        let two = of_two_ranks();
        let refused = |files: &[(&str, &Vec<u8>)], words: &[&str]| {
            let folder = with(files);
            let error = run(folder.path(), 0, 3).unwrap_err();
            let text = error.to_string();
            assert!(error.is_parameter() && words.iter().all(|word| text.contains(word)), "{text}");
            assert!(files.iter().all(|(name, text)| fs::read(folder.path().join(name)).unwrap() == **text));
        };
        refused(&[("state.0", &two[0][2])], &["each of 2 ranks", "state.1", "begin anew"]);
        refused(&[("state.1", &two[1][2])], &["each of 2 ranks", "state.0"]);
        refused(&[("state.0", &two[0][2]), ("state.1", &b"torn".to_vec())], &["state.1"]);
        let (_, one) = run(tempfile::tempdir().unwrap().path(), 0, 1).unwrap();
        refused(&[("state", &one[2]), ("state.0", &two[0][2]), ("state.1", &two[1][2])], &["of 1", "of 2", "remove"]);
        let other = String::from_utf8(two[1][2].clone()).unwrap().replace("\"small\"", "\"large\"").into_bytes();
        refused(&[("state.0", &two[0][2]), ("state.1", &other)], &["run with small", "large", "state.1"]);
        // A file that belongs to no rank is left alone.
        let folder =
            with(&[("state.0", &two[0][2]), ("state.1", &two[1][2]), ("state.01", &two[1][2]), ("state.x", &one[0])]);
        assert!(run(folder.path(), 0, 3).is_ok());
    }

    /// A rank's process over a folder of images.
    fn start(folder: &Path, epochs: &str, number: u32, ranks: u32) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.arg("run").arg(folder.join("images")).args(["--device", "cpu", "--batch-size", "2", "--threads", "1"]);
        command.args(["--epochs", epochs, "--rank", &format!("{number}/{ranks}"), "--state"]).arg(folder.join("state"));
        command
            .env("WARPFEED_ENTRY_POINTS", "memory")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn killed_processes_go_on_in_other_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("images/class");
        fs::create_dir_all(&class).unwrap();
        (0..IMAGES).for_each(|i| fs::write(class.join(format!("{i:02}.jpg")), common::jpeg(60, 80, i)).unwrap());
        let mut random = Random(21);
        let mut changes = 0;
        for (turn, ranks) in [2, 1, 3, 3, 8, 2].into_iter().enumerate() {
            let processes: Vec<Child> = (0..ranks).map(|number| start(folder.path(), "12", number, ranks)).collect();
            // Before the first change each rank must have a file.
            let all_have = || (0..ranks).all(|number| own_file(folder.path(), number, ranks).exists());
            let begun = Instant::now();
            while turn == 0 && !all_have() {
                assert!(begun.elapsed() < Duration::from_secs(60), "they do not get on");
            }
            std::thread::sleep(Duration::from_millis(random.within(20, 400).into()));
            for mut process in processes {
                let _ = process.kill();
                let output = process.wait_with_output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.code().is_none_or(|code| code == 0), "{ranks} ranks: {said}");
            }
            changes += 1;
        }
        for (number, process) in (0..5).map(|number| (number, start(folder.path(), "12", number, 5))) {
            let output = process.wait_with_output().unwrap();
            assert!(output.status.success(), "rank {number}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let (images, counted) = delivered(folder.path(), 5);
        assert_eq!(images, 12 * IMAGES);
        assert!((1..=changes).contains(&counted), "{counted} changes");
    }

    #[test]
    fn a_state_and_a_log_have_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("images/class");
        fs::create_dir_all(&class).unwrap();
        (0..IMAGES).for_each(|i| fs::write(class.join(format!("{i:02}.jpg")), common::jpeg(60, 80, i)).unwrap());
        let wait_for = |file: &Path| {
            let begun = Instant::now();
            while !file.exists() {
                assert!(begun.elapsed() < Duration::from_secs(60), "it does not get on");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let refused = |process: Child, holder: &Child| {
            let output = process.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(&format!("process {}", holder.id())), "{said}");
        };
        let logged = |state: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
            command.arg("run").arg(folder.path().join("images")).args(["--device", "cpu", "--batch-size", "2"]);
            command.args(["--epochs", "1000000", "--log"]).arg(folder.path().join("log"));
            command.arg("--state").arg(folder.path().join(state));
            command.env("WARPFEED_ENTRY_POINTS", "memory").stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut two = [0, 1].map(|number| start(folder.path(), "1000000", number, 2));
        (0..2).for_each(|number| wait_for(&own_file(folder.path(), number, 2)));
        // The same rank, and another number of ranks while one of these is still there.
        refused(start(folder.path(), "1000000", 1, 2), &two[1]);
        refused(start(folder.path(), "1000000", 0, 1), &two[0]);
        two[0].kill().unwrap();
        two[0].wait().unwrap();
        refused(start(folder.path(), "1000000", 0, 1), &two[1]);
        two[1].kill().unwrap();
        two[1].wait().unwrap();
        // A killed process has no lock any more.
        let mut one = start(folder.path(), "1000000", 0, 1);
        wait_for(&own_file(folder.path(), 0, 1));
        refused(start(folder.path(), "1000000", 1, 2), &one);
        one.kill().unwrap();
        one.wait().unwrap();
        let mut log = logged("one");
        wait_for(&folder.path().join("one"));
        refused(logged("other"), &log);
        log.kill().unwrap();
        log.wait().unwrap();
    }
}
