//! An epoch continues with the next sample, in another pipeline and with other threads.

use crate::common::{self, Delivered, WithBad, all, samples, small, source};
use warpfeed::ops::Resize;
use warpfeed::{Batch, EpochState, LastBatch, OnError, Partition, PipelineBuilder, Result, image::Size};

/// A state as it comes back from a file.
fn written(state: &EpochState) -> EpochState {
    let text = serde_json::to_string(state).unwrap();
    assert!(text.len() < 300, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Takes an epoch batch by batch, each in a pipeline of its own that goes on from the one before.
fn in_pieces(builder: impl Fn(usize) -> PipelineBuilder, take: impl Fn(&Batch) -> Vec<Delivered>) -> Vec<Delivered> {
    let mut delivered = Vec::new();
    let mut state: Option<EpochState> = None;
    for piece in 0.. {
        let pipeline = builder(piece).build().unwrap();
        let mut epoch = match &state {
            Some(state) => pipeline.resume(state).unwrap(),
            None => pipeline.epoch(4),
        };
        let before = epoch.state();
        assert!(state.is_none_or(|state| state == before), "an epoch begins where the state says");
        let Some(batch) = epoch.next() else { break };
        delivered.extend(take(&batch.unwrap()));
        let after = written(&epoch.state());
        // What the threads have prepared meanwhile does not count.
        std::thread::yield_now();
        assert_eq!(epoch.state(), after);
        assert!(after.position() > before.position() && after.epoch() == 4);
        state = Some(after);
    }
    delivered
}

#[test]
fn pieces_make_the_whole() {
    for (last, policy) in [
        (LastBatch::Keep, OnError::Fail),
        (LastBatch::Keep, OnError::Skip),
        (LastBatch::Keep, OnError::Substitute),
        (LastBatch::Drop, OnError::Fail),
        (LastBatch::Drop, OnError::Skip),
        (LastBatch::Pad, OnError::Fail),
        (LastBatch::Pad, OnError::Skip),
    ] {
        for shard in [Partition::WHOLE, Partition::new(1, 2).unwrap()] {
            let builder = |piece: usize| {
                // In one batch all are bad.
                let bad = if policy == OnError::Fail { vec![] } else { vec![0, 3, 9, 11, 17, 21] };
                let builder = small(WithBad { good: source(23), bad });
                builder
                    .partition(shard)
                    .last_batch(last)
                    .on_error(policy)
                    .batch_size(2)
                    .threads(piece % 3)
                    .prefetch(1 + piece)
            };
            let whole = builder(1).build().unwrap();
            let whole: Vec<Delivered> = all(whole.epoch(4));
            assert!(whole.len() > 3);
            assert_eq!(in_pieces(builder, samples), whole, "{last:?}, {policy:?}, shard {shard}");
        }
    }
}

#[test]
fn another_batch_size_goes_on_at_the_same_sample() {
    let builder = |batch_size| small(source(23)).batch_size(batch_size).build().unwrap();
    let whole = all(builder(5).epoch(4));
    let got = in_pieces(|piece| small(source(23)).batch_size([3, 1, 7, 2][piece % 4]), samples);
    assert_eq!(got, whole);
    // A last batch is dropped by the number of remaining samples.
    let mut epoch = builder(5).epoch(4);
    epoch.next().unwrap().unwrap();
    let rest = small(source(23)).batch_size(4).last_batch(LastBatch::Drop).build().unwrap();
    let rest = rest.resume(&epoch.state()).unwrap();
    assert_eq!(rest.images(), Some(16));
    assert_eq!(all(rest), whole[5..21]);
}

#[test]
fn an_error_leaves_the_state_before_its_batch() {
    let order = small(source(23)).build().unwrap().epoch(0).next().unwrap().unwrap().indices().to_vec();
    let builder = || small(WithBad { good: source(23), bad: vec![order[3]] }).batch_size(2);
    let mut epoch = builder().build().unwrap().epoch(0);
    assert!(epoch.next().unwrap().is_ok() && epoch.next().unwrap().is_err() && epoch.next().is_none());
    assert_eq!(epoch.state().position(), 2);
    // Whoever wants to go on all the same may.
    let rest = builder().on_error(OnError::Skip).build().unwrap();
    let rest = all(rest.resume(&epoch.state()).unwrap());
    assert_eq!((rest.len(), rest[0].index), (20, order[2]));
}

#[test]
fn an_epoch_at_its_end_gives_nothing_more() {
    for last in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
        let pipeline = small(source(23)).last_batch(last).build().unwrap();
        let mut epoch = pipeline.epoch(2);
        let batches = epoch.by_ref().map(Result::unwrap).count() as u64;
        assert_eq!((Some(batches), epoch.next().is_none()), (pipeline.batches(), true));
        let mut rest = pipeline.resume(&written(&epoch.state())).unwrap();
        assert_eq!((rest.images(), rest.next().is_none()), (Some(0), true), "{last:?}");
        assert_eq!(rest.state(), epoch.state());
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_differs() {
    let mut epoch = small(source(23)).build().unwrap().epoch(0);
    epoch.next().unwrap().unwrap();
    let state = epoch.state();
    let refused = |builder: PipelineBuilder, state: &EpochState| {
        let error = builder.build().unwrap().resume(state).unwrap_err();
        assert!(error.is_parameter());
        error.to_string()
    };
    let other_labels = || {
        let mut n = 0;
        warpfeed::source::EncodedImages::new(
            std::iter::repeat_with(move || {
                n += 1;
                (common::jpeg(40, 40, n), n as u32 % 3)
            })
            .take(23),
        )
    };
    for (builder, words) in [
        (small(source(24)), &["24 samples", "23 samples", "fingerprint"][..]),
        (small(other_labels()), &["fingerprint"]),
        (small(source(23)).shuffle(8), &["seed 8", "seed 7"]),
        (small(source(23)).partition(Partition::new(0, 2).unwrap()), &["partition 0/2", "partition 0/1"]),
        (small(source(23)).equal_batches(true), &["even partitions", "partitions as they are"]),
        (small(source(23)).shares(4), &["4 shares", "1 shares"]),
        (small(source(23)).limit(4), &["up to 4", "got 5"]),
    ] {
        let message = refused(builder, &state);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        assert!(message.contains("seed") == words.contains(&"seed 8"), "what agrees is not named: {message}");
    }
    let shares = |builder: warpfeed::PipelineBuilder, n| builder.shares(n).build().unwrap_err().to_string();
    assert!(shares(small(source(23)), 0).contains("1 or more"));
    let in_order = warpfeed::Pipeline::builder(source(23)).transform(Resize::new(Size::new(8, 8)));
    assert!(shares(in_order, 2).contains("not shuffled"));
    let chosen = small(source(23)).sampler(warpfeed::Sampler::repeated(2));
    assert!(shares(chosen, 2).contains("a sampler"));
    let unshuffled = warpfeed::Pipeline::builder(source(23)).seed(7).transform(Resize::new(Size::new(8, 8)));
    assert!(refused(unshuffled, &state).contains("(not shuffled), got shuffled"));
    let edited = |field: &str, value: u64| {
        let mut json = serde_json::to_value(&state).unwrap();
        json[field] = value.into();
        serde_json::from_value::<EpochState>(json).unwrap()
    };
    assert!(refused(small(source(23)), &edited("version", 1)).contains("version 2 or 3, got version 1"));
    assert!(refused(small(source(23)), &edited("position", u64::MAX)).contains("up to 23"));
    // Operations, policies and output are the caller's to change.
    let other = small(source(23)).on_error(OnError::Skip).output(warpfeed::DType::U8, warpfeed::Layout::Nhwc);
    assert_eq!(all(other.build().unwrap().resume(&state).unwrap()).len(), 18);
}

/// `warpfeed run --state`, killed and started again.
mod command {
    use crate::common::{Random, image, report};
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    use warpfeed::image::{JpegOptions, encode_jpeg};

    fn images() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..23_u64 {
            let class = folder.path().join(format!("class-{}", i % 3));
            fs::create_dir_all(&class).unwrap();
            let mut bytes = encode_jpeg(&image(60 + i as u32, 80, i), &JpegOptions::default()).unwrap();
            if i % 11 == 7 {
                bytes.truncate(bytes.len() / 2);
            }
            fs::write(class.join(format!("{i:02}.jpg")), bytes).unwrap();
        }
        folder
    }

    fn run(folder: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.arg("run").arg(folder).args(["--json", "--digest", "--batch-size", "3"]).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Kills the run `kills` times at random moments after it got on; its digest is that of an undisturbed one.
    fn killed(kills: u32, epochs: &str, policy: &str) {
        let folder = images();
        let settings = ["--on-error", policy, "--epochs", epochs, "--seed", "5"];
        let undisturbed = report(&run(folder.path(), &settings).output().unwrap());
        let state = folder.path().join("state.json");
        let with_state = [&settings[..], &["--state", state.to_str().unwrap()]].concat();
        let mut random = Random(u64::from(kills) + 1);
        for kill in 0..kills {
            let before = fs::read(&state).ok();
            let threads = random.within(0, 4).to_string();
            let prefetch = random.within(1, 5).to_string();
            let options = [&with_state[..], &["--threads", &threads, "--prefetch", &prefetch]].concat();
            let mut child = run(folder.path(), &options).spawn().unwrap();
            let start = Instant::now();
            while fs::read(&state).ok() == before {
                assert!(child.try_wait().unwrap().is_none(), "kill {kill}: it ended by itself: more epochs are needed");
                assert!(start.elapsed() < Duration::from_secs(60), "kill {kill}: it does not get on");
            }
            std::thread::sleep(Duration::from_micros(random.within(0, 8_000).into()));
            child.kill().unwrap();
            assert!(!child.wait().unwrap().success(), "kill {kill}: it ended by itself: more epochs are needed");
        }
        let resumed = report(&run(folder.path(), &with_state).output().unwrap());
        assert_eq!(resumed["digest"], undisturbed["digest"]);
        for count in ["images", "batches"] {
            let together = resumed[count].as_u64().unwrap() + resumed["earlier"][count].as_u64().unwrap();
            assert_eq!(together, undisturbed[count].as_u64().unwrap(), "{count}");
            assert!(resumed["earlier"][count].as_u64().unwrap() > 0);
        }
        // Done is done.
        let again = report(&run(folder.path(), &with_state).output().unwrap());
        assert_eq!((&again["digest"], &again["images"]), (&undisturbed["digest"], &0.into()));
    }

    #[test]
    fn a_killed_run_goes_on() {
        killed(3, "20", "skip");
        killed(2, "20", "substitute");
    }

    #[test]
    #[ignore = "fifty kills take a minute: cargo test --test integration resume:: -- --ignored"]
    fn a_run_killed_fifty_times_goes_on() {
        killed(50, "300", "skip");
    }

    #[test]
    fn damaged_files_cause_no_panic() {
        use warpfeed_bench::{run::run_with_state, run_state::StateFile};
        let folder = tempfile::tempdir().unwrap();
        let pipeline = super::small(super::source(7)).threads(0).batch_size(2).build().unwrap();
        let file = StateFile { path: folder.path().join("state.json"), settings: "small".to_owned() };
        let synced = folder.path().join(".state.json.synced");
        let mut states = Vec::new();
        let run = |file: &StateFile, seen: &mut dyn FnMut()| {
            run_with_state(&pipeline, 0..2, true, file, Instant::now(), &mut |_progress| seen())
        };
        run(&file, &mut || states.push(fs::read(&file.path).unwrap())).unwrap();
        let mut random = Random(7);
        let mut refused = 0;
        for i in 0..300 {
            let mut text = states[i % states.len()].clone();
            let mut json: serde_json::Value = serde_json::from_slice(&text).unwrap();
            match random.within(0, 3) {
                0 => {
                    json["delivered"]["images"] = (u64::MAX - u64::from(random.within(0, 3))).into();
                    text = json.to_string().into_bytes();
                }
                1 => {
                    // The unfinished digest.
                    let mut digest = json["digest"].as_str().unwrap().as_bytes().to_vec();
                    let at = random.next() as usize % digest.len();
                    digest[at] = b"0123456789abcdefg"[random.within(0, 16) as usize];
                    json["digest"] = String::from_utf8(digest).unwrap().into();
                    text = json.to_string().into_bytes();
                }
                _ => {
                    let at = random.next() as usize % text.len();
                    text[at] ^= 1 << random.within(0, 7);
                }
            }
            fs::write(&file.path, &text).unwrap();
            let _ = fs::remove_file(&synced);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&file, &mut || ())));
            let text = String::from_utf8_lossy(&text);
            match outcome.unwrap_or_else(|_| panic!("{text}")) {
                Ok(_) => {}
                Err(error) => {
                    assert!(error.is_parameter(), "{error}: {text}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 80, "{refused}");
    }

    #[test]
    fn a_file_of_another_run_is_refused_and_left_alone() {
        let folder = images();
        let state = folder.path().join("state.json");
        let state = state.to_str().unwrap();
        let options = |more: &[&'static str]| [&["--on-error", "skip", "--state", state], more].concat();
        report(&run(folder.path(), &options(&["--epochs", "2"])).output().unwrap());
        let written = fs::read(state).unwrap();
        for (more, words) in [
            (&["--preset", "eval"][..], &["preset train", "preset eval"][..]),
            (&["--seed", "1", "--epochs", "3"], &["seed 0", "seed 1"]),
            (&["--no-shuffle", "--epochs", "3"], &["not shuffled"]),
            (&["--dtype", "u8"], &["dtype u8"]),
            (&["--last-batch", "drop"], &["last-batch drop", "batch-size 3"]),
            (&["--epochs", "1"], &["below 1, got epoch 1"]),
        ] {
            let output = run(folder.path(), &options(more)).output().unwrap();
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{more:?}: {message}");
            assert!(words.iter().all(|word| message.contains(word)), "{more:?}: {message}");
            assert_eq!(fs::read(state).unwrap(), written);
        }
        // Each rank has a state file of its own.
        fs::copy(state, format!("{state}.1")).unwrap();
        let output = run(folder.path(), &options(&["--rank", "1/2", "--epochs", "3"])).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("partition 0/1") && message.contains("partition 1/2"), "{message}");
        // More of the same is no other run.
        report(&run(folder.path(), &options(&["--epochs", "3", "--strategy", "sequential"])).output().unwrap());
        for rubbish in ["", "{}", "[1, 2]", "\u{0}"] {
            fs::write(state, rubbish).unwrap();
            let output = run(folder.path(), &options(&[])).output().unwrap();
            let message = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.code() == Some(2) && message.contains("an earlier run wrote"), "{message}");
            assert_eq!(fs::read_to_string(state).unwrap(), rubbish);
        }
    }
}
