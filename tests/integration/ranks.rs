//! Several processes share an epoch: each sample comes in one of them.

use crate::common::{self, samples, small, source};
use std::collections::BTreeMap;
use warpfeed::{LastBatch, OnError, Partition, Pipeline};
use warpfeed_bench::synth::{SynthSettings, write_folder};

fn pipeline(partition: &str, last: LastBatch, count: u64) -> Pipeline {
    let partition: Partition = partition.parse().unwrap();
    small(source(count)).partition(partition).equal_batches(true).last_batch(last).batch_size(4).build().unwrap()
}

#[test]
fn even_shards_give_as_many_batches() {
    let whole = common::delivered(&small(source(33)).build().unwrap(), 1);
    for (last, want) in [(LastBatch::Keep, 33), (LastBatch::Pad, 33), (LastBatch::Drop, 2 * 4 * 4)] {
        let (mut seen, mut batches) = (BTreeMap::new(), Vec::new());
        for partition in ["0/4", "1/4", "2/4", "3/4"] {
            let pipeline = pipeline(partition, last, 33);
            let mut epoch = pipeline.epoch(1);
            let (mut count, mut images, mut padding) = (0, 0, 0);
            for batch in epoch.by_ref() {
                let batch = batch.unwrap();
                count += 1;
                padding += batch.padding();
                images += batch.len() - batch.padding();
                assert!(last == LastBatch::Keep || batch.len() == 4);
                for sample in samples(&batch) {
                    assert!(whole.contains(&sample), "the pixels do not depend on the partition");
                    assert!(seen.insert(sample.index, sample).is_none(), "{last:?}: in two partitions");
                }
            }
            let expected = match last {
                LastBatch::Keep => usize::from(partition != "0/4"),
                LastBatch::Pad => 3 + usize::from(partition != "0/4"),
                LastBatch::Drop => 0,
            };
            assert_eq!(padding, expected, "{last:?} {partition}");
            assert_eq!((pipeline.batches(), epoch.stats().images), (Some(count), images as u64));
            assert_eq!(epoch.images(), Some(images as u64));
            batches.push(count);
        }
        assert_eq!(seen.len(), want, "{last:?}");
        assert!(batches.iter().all(|&count| count == if last == LastBatch::Drop { 2 } else { 3 }), "{batches:?}");
    }
}

#[test]
fn more_ranks_than_samples_get_padding_alone() {
    let pipeline = pipeline("2/4", LastBatch::Keep, 1);
    let batches: Vec<_> = pipeline.epoch(0).map(Result::unwrap).collect();
    assert_eq!((batches.len(), batches[0].len(), batches[0].padding()), (1, 1, 1));
    assert!(pipeline.is_empty());
}

#[test]
fn an_even_shard_is_resumed_before_and_after_its_padding() {
    let pipeline = pipeline("3/4", LastBatch::Keep, 33);
    let mut epoch = pipeline.epoch(1);
    let paddings: Vec<usize> = std::iter::from_fn(|| {
        let rest = pipeline.resume(&epoch.state()).unwrap();
        let padding = rest.map(|batch| batch.unwrap().padding()).sum();
        epoch.next().map(|batch| batch.map(|_| padding).unwrap())
    })
    .collect();
    assert_eq!(paddings, [1, 1, 1]);
    assert_eq!(pipeline.resume(&epoch.state()).unwrap().count(), 0);
}

#[test]
fn even_shards_cannot_lose_a_batch() {
    let error = small(source(9)).equal_batches(true).on_error(OnError::Skip).build().unwrap_err();
    assert!(error.is_parameter() && error.to_string().contains("even"), "{error}");
}

/// The command under a launcher that sets these variables.
fn run(folder: &std::path::Path, variables: &[(&str, &str)], options: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    command.arg("run").arg(folder).args(["--json", "--digest", "--preset", "eval"]).args(options);
    for name in ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn the_command_takes_its_rank_from_the_launcher() {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &SynthSettings { seed: 1, ..SynthSettings::new(9, 2) }, |_| {}).unwrap();
    let digest = |variables: &[(&str, &str)], options: &[&str]| {
        let report = common::report(&run(folder.path(), variables, options));
        (report["digest"].as_str().unwrap().to_owned(), report["threads"].as_u64().unwrap())
    };
    let torchrun = [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")];
    let want = digest(&[], &["--rank", "1/2"]).0;
    assert_ne!(want, digest(&[], &["--rank", "0/2"]).0);
    assert_eq!(digest(&torchrun, &["--rank", "auto"]).0, want);
    assert_eq!(digest(&[], &["--rank", "auto"]).0, digest(&[], &[]).0, "alone, all is its own");
    assert_eq!(digest(&torchrun, &[]).0, digest(&[], &[]).0, "nothing is looked at unasked");
    let processors = std::thread::available_parallelism().unwrap().get() as u64;
    assert_eq!(digest(&[], &["--rank", "0/2"]).1, (processors / 2).saturating_sub(1).max(1));
    assert_eq!(digest(&[], &["--rank", "0/2", "--threads", "3"]).1, 3);
    // Each rank keeps a state of its own.
    let state = folder.path().join("state");
    assert_eq!(digest(&[], &["--rank", "1/2", "--state", state.to_str().unwrap()]).0, want);
    assert!(!state.exists() && folder.path().join("state.1").exists());
    for wrong in [&["--rank", "2/2"][..], &["--rank", "x"], &["--rank", "0/2", "--shard", "0/2"]] {
        assert_eq!(run(folder.path(), &[], wrong).status.code(), Some(2), "{wrong:?}");
    }
}
