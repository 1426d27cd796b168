//! Several devices of one process deliver the batches of ranks in processes.

use crate::common::{Delivered, WithBad, all as rest, delivered, samples, small, source};
use std::thread;
use warpfeed::source::{Input, OpenOptions};
use warpfeed::{
    BadLimit, Device, Epoch, EpochState, Error, ImageCache, LastBatch, Mix, OnError, Partition, PipelineBuilder,
    PipelineGroup, Sampler,
};

fn group(builder: PipelineBuilder, devices: usize) -> PipelineGroup {
    builder.build_group(vec![Device::Cpu; devices]).unwrap()
}

fn rank(builder: PipelineBuilder, rank: usize, ranks: usize) -> Vec<Delivered> {
    let partition = Partition::new(rank as u32, ranks as u32).unwrap();
    delivered(&builder.device(Device::Cpu).partition(partition).equal_batches(true).build().unwrap(), 1)
}

/// The batches of each epoch, each taken by a thread of its own.
fn each(epochs: Vec<Epoch>) -> Vec<Vec<Delivered>> {
    let threads: Vec<_> = epochs.into_iter().map(|epoch| thread::spawn(|| rest(epoch))).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn devices_deliver_what_ranks_deliver() {
    for devices in 1..=3 {
        for (threads, prefetch) in [(0, 1), (1, 1), (3, 2)] {
            let builder = || small(source(23)).threads(threads).prefetch(prefetch);
            let got = each(group(builder(), devices).epochs(1));
            let want: Vec<_> = (0..devices).map(|i| rank(builder(), i, devices)).collect();
            assert_eq!(got, want, "{devices} devices, {threads} threads");
        }
        for builder in [
            || small(source(23)).last_batch(LastBatch::Drop),
            || small(source(23)).sampler(Sampler::repeated(3).positions(31)),
            || small(source(23)).mix(Mix::timm(0.8, 1.0).hard_labels(true)),
        ] {
            let (got, mut batches) = (group(builder(), devices), Vec::new());
            batches.extend(got.epochs(1).iter().map(Epoch::batches));
            assert!(batches.iter().all(|count| *count == batches[0]), "{batches:?}");
            let want: Vec<_> = (0..devices).map(|i| rank(builder(), i, devices)).collect();
            assert_eq!(each(got.epochs(1)), want);
        }
    }
    // Two processes of three devices are six ranks.
    let second = small(source(23)).partition(Partition::new(1, 2).unwrap());
    let want: Vec<_> = (3..6).map(|i| rank(small(source(23)), i, 6)).collect();
    assert_eq!(each(group(second, 3).epochs(1)), want);
}

#[test]
fn they_share_threads_and_cache_and_their_bounds_add_up() {
    let group = group(small(source(24)).threads(2).cache(ImageCache::memory(1 << 24)), 3);
    let mut epochs = group.epochs(0);
    for epoch in &mut epochs {
        assert_eq!((epoch.stats().threads, epoch.by_ref().count()), (2, 2));
    }
    assert!(group.pipelines().iter().all(|pipeline| pipeline.cache_usage().unwrap().images == 24));
    let again = group.epochs(1);
    let cached: u64 = again
        .into_iter()
        .map(|mut epoch| {
            assert!(epoch.all(|batch| batch.is_ok()));
            epoch.stats().cached
        })
        .sum();
    assert_eq!(cached, 24);
    let (one, all) = (group.pipelines()[0].memory(), group.memory());
    assert_eq!((all.batch_bytes, all.batches_bytes), (one.batch_bytes, 3 * one.batches_bytes));
    assert_eq!((all.images_bytes, all.cache_bytes), (3 * one.images_bytes, one.cache_bytes));
    assert_eq!(all.order_bytes, 3 * one.order_bytes);
}

#[test]
fn who_takes_nothing_or_goes_away_holds_nobody_up() {
    for threads in [1, 2, 5] {
        let builder = || small(source(40)).threads(threads).prefetch(1);
        let want: Vec<_> = (0..3).map(|i| rank(builder(), i, 3)).collect();
        let group = group(builder(), 3);
        let [stalled, mut dropped, taken]: [Epoch; 3] = group.epochs(1).try_into().unwrap();
        assert_eq!(samples(&dropped.next().unwrap().unwrap()), want[1][..5]);
        drop(dropped);
        assert_eq!(rest(taken), want[2]);
        assert_eq!(rest(stalled), want[0]);
        // All at once, while threads are at work.
        drop(group.epochs(2));
    }
}

#[test]
fn a_bad_sample_ends_the_epoch_of_its_device_alone() {
    let bad = || WithBad { good: source(40), bad: vec![17] };
    let want: Vec<_> = (0..2).map(|i| rank(small(source(40)), i, 2)).collect();
    let hit = want.iter().position(|own| own.iter().any(|sample| sample.index == 17)).unwrap();
    for threads in [0, 2] {
        let epochs = group(small(bad()).threads(threads), 2).epochs(1);
        for (i, mut epoch) in epochs.into_iter().enumerate() {
            let errors = epoch.by_ref().filter_map(Result::err).count();
            assert_eq!(errors, usize::from(i == hit), "device {i}");
            assert!(i == hit || epoch.stats().images == 20);
        }
    }
    let substituted = || small(bad()).on_error(OnError::Substitute).max_bad(BadLimit::Count(1));
    let want: Vec<_> = (0..2).map(|i| rank(substituted(), i, 2)).collect();
    assert_eq!(each(group(substituted(), 2).epochs(1)), want);
}

#[test]
fn devices_are_resumed_together() {
    let builder = || small(source(43));
    let want: Vec<_> = (0..2).map(|i| rank(builder(), i, 2)).collect();
    let whole = group(builder(), 2);
    let mut epochs = whole.epochs(1);
    // One is a batch further than the other.
    let taken = [1, 2].map(|batches| batches * 5);
    let states: Vec<EpochState> = epochs
        .iter_mut()
        .zip(taken)
        .map(|(epoch, taken)| {
            (0..taken / 5).for_each(|_| drop(epoch.next().unwrap().unwrap()));
            serde_json::from_str(&serde_json::to_string(&epoch.state()).unwrap()).unwrap()
        })
        .collect();
    drop(epochs);
    let got = each(group(builder().threads(1), 2).resume(&states).unwrap());
    assert_eq!(got, [&want[0][taken[0]..], &want[1][taken[1]..]]);
    // The state of a device is that of a rank.
    let partition = Partition::new(1, 2).unwrap();
    let process = builder().device(Device::Cpu).partition(partition).equal_batches(true).build().unwrap();
    assert_eq!(rest(process.resume(&states[1]).unwrap()), want[1][taken[1]..]);
    let swapped = [states[1].clone(), states[0].clone()];
    assert!(whole.resume(&swapped).unwrap_err().to_string().contains("partition"));
    assert!(whole.resume(&states[..1]).unwrap_err().to_string().contains("one for each device"));
    let other = [states[0].clone(), whole.epochs(2)[1].state()];
    assert!(whole.resume(&other).unwrap_err().to_string().contains("of one epoch"));
}

#[test]
fn what_several_devices_cannot_do_is_refused() {
    for (devices, says) in [
        (vec![], "none"),
        (vec![Device::Auto], "auto"),
        (vec![Device::Cuda(0), Device::Cuda(1), Device::Cuda(0)], "cuda:0 twice"),
    ] {
        let error = small(source(9)).build_group(devices).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(says), "{error}");
    }
    let error = small(source(9)).on_error(OnError::Skip).build_group([Device::Cpu; 2]).unwrap_err();
    assert!(error.to_string().contains("equally many batches"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let options = warpfeed::pack::PackOptions::new(warpfeed::source::RecordFormat::WebDataset);
    warpfeed::pack::pack(&source(3), &folder.path().join("a"), &options, &mut |_| {}).unwrap();
    let stream: Input = OpenOptions::default().window(Some(2)).open(folder.path().join("a")).unwrap();
    let error = small(stream).build_group([Device::Cpu; 2]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn the_command_feeds_several_devices() {
    let folder = tempfile::tempdir().unwrap();
    let options = warpfeed::pack::PackOptions::new(warpfeed::source::RecordFormat::TfRecord);
    warpfeed::pack::pack(&source(9), &folder.path().join("a"), &options, &mut |_| {}).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.arg("run").arg(folder.path().join("a")).args(["--json", "--digest", "--epochs", "2"]);
        command.args(arguments).output().unwrap()
    };
    let report = |arguments: &[&str]| crate::common::report(&run(arguments));
    let both = report(&["--devices", "cpu,cpu"]);
    assert_eq!(both["images"], 18);
    for rank in 0..2 {
        let alone = report(&["--device", "cpu", "--equal-batches", "--rank", &format!("{rank}/2")]);
        assert_eq!(both["devices"][rank]["digest"], alone["digest"], "device {rank}");
    }
    for refused in [&["--devices", "0,0"][..], &["--devices", "cpu", "--state", "x"], &["--devices", "x"]] {
        assert!(!run(refused).status.success(), "{refused:?}");
    }
}
