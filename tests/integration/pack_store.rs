//! The command packs to and from object stores.

#![cfg(target_os = "linux")]

use crate::common::{self, files, jpeg, report};
use crate::s3::Server;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The command, whose store is at `endpoint`.
fn warpfeed(endpoint: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    command.envs([("AWS_ACCESS_KEY_ID", "none"), ("AWS_SECRET_ACCESS_KEY", "none"), ("AWS_REGION", "us-east-1")]);
    command
        .env("AWS_ENDPOINT_URL", endpoint)
        .env_remove("XDG_CACHE_HOME")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// `warpfeed pack`, in shards of 1 MB unless the options say otherwise.
fn pack(endpoint: &str, source: &str, out: &str, options: &[&str]) -> Command {
    let mut command = warpfeed(endpoint);
    command.args(["pack", source, "-o", out, "--workers", "2", "--json"]).args(options);
    if !options.contains(&"--shard-size") {
        command.args(["--shard-size", "1MB"]);
    }
    command
}

fn packed(mut command: Command) -> Value {
    report(&command.output().unwrap())
}

fn error(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// A folder of 40 images of about 90 kB in four classes.
fn images(folder: &Path) -> String {
    for i in 0..40_u64 {
        let class = folder.join(format!("images/{}", i % 4));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join(format!("{i:02}.jpg")), jpeg(300 + 5 * i as u32, 320, i)).unwrap();
    }
    folder.join("images").to_str().unwrap().to_owned()
}

/// A folder of ten images of 2.1 MB, which need not be encoded.
fn raw_images(folder: &Path) -> String {
    let class = folder.join("raw/class");
    fs::create_dir_all(&class).unwrap();
    for i in 0..10_u64 {
        let mut random = common::Random(i + 1);
        let pixels = (0..1000 * 700 * 3 / 8).flat_map(|_| random.next().to_le_bytes());
        fs::write(
            class.join(format!("{i}.ppm")),
            b"P6 1000 700 255\n".iter().copied().chain(pixels).collect::<Vec<_>>(),
        )
        .unwrap();
    }
    folder.join("raw").to_str().unwrap().to_owned()
}

#[test]
fn a_store_holds_what_a_folder_holds() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let source = images(folder.path());
    for format in ["webdataset", "recordio", "tfrecord"] {
        for (name, rank) in [("alone", &[][..]), ("together", &["--rank", "0/1"])] {
            let options = [&["--format", format][..], rank].concat();
            let local = folder.path().join(format!("{name}/{format}/train"));
            let want = packed(pack(&server.address, &source, local.to_str().unwrap(), &options));
            let place = format!("{name}/{format}/train");
            let url = format!("s3://bucket/{place}");
            let got = packed(pack(&server.address, &source, &url, &options));
            assert!(server.files(&place) == files(&local), "{place}: {:?}", server.files(&place).keys());
            assert_eq!((&got["images"], &got["bytes"]), (&want["images"], &want["bytes"]));
            let first = got["shards"][0].as_str().unwrap();
            assert!(first.starts_with(&format!("{url}/train-00000")), "{first}");
            // Once more changes nothing.
            let again = packed(pack(&server.address, &source, &format!("{url}/"), &options));
            assert_eq!((&again["resumed_images"], again["images"].as_u64()), (&want["images"], Some(40)));
            assert!(server.files(&place) == files(&local));
        }
    }
    assert_eq!(server.state().uploads.len(), 0);
}

#[test]
fn stores_are_sources_and_are_verified() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let (source, url) = (images(folder.path()), "s3://bucket/train");
    packed(pack(&server.address, &source, url, &["--format", "webdataset"]));
    let local = folder.path().join("train");
    packed(pack(&server.address, &source, local.to_str().unwrap(), &["--format", "webdataset"]));
    let whole = files(&local);
    // From a store to a store, as from a folder to a folder.
    let options = ["--format", "recordio", "--max-side", "200"];
    let want = folder.path().join("again");
    packed(pack(&server.address, local.to_str().unwrap(), want.to_str().unwrap(), &options));
    for rank in [&[][..], &["--rank", "0/1"]] {
        let kept = folder.path().join("index");
        let mut command =
            pack(&server.address, &format!("{url}/*.tar"), "s3://bucket/again", &[&options[..], rank].concat());
        command.env("XDG_CACHE_HOME", &kept);
        if rank.is_empty() {
            packed(command);
            assert!(server.files("again") == files(&want));
        } else {
            let text = error(command);
            assert!(text.contains("s3://bucket/again") && text.contains("samples a shard"), "{text}");
        }
    }
    let verify = || {
        let mut command = warpfeed(&server.address);
        command.args(["pack", "--verify", url, "--json"]);
        command
    };
    let verified = packed(verify());
    assert_eq!((&verified["images"], &verified["manifest_verified"]), (&40.into(), &true.into()));
    let mut shard = server.files("train")["train-000001.tar"].clone();
    let middle = shard.len() / 2;
    shard[middle] ^= 1;
    server.put("train/train-000001.tar", shard);
    let text = error(verify());
    assert!(text.contains("s3://bucket/train/train-000001.tar") && text.contains("checksum"), "{text}");
    server.state().objects.remove("train/train-000001.tar");
    let text = error(verify());
    assert!(text.contains("train-000001.tar") && text.contains("it is missing"), "{text}");
    // Lost shards are rebuilt, and those after them.
    packed(pack(&server.address, &source, url, &["--format", "webdataset"]));
    assert!(server.files("train") == whole);
}

#[test]
fn large_shards_go_up_in_parts() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let (source, local) = (raw_images(folder.path()), folder.path().join("train"));
    let options = ["--format", "webdataset", "--shard-size", "50MB"];
    packed(pack(&server.address, &source, local.to_str().unwrap(), &options));
    server.state().delay = Duration::from_millis(50);
    packed(pack(&server.address, &source, "s3://bucket/train", &options));
    assert!(server.files("train") == files(&local), "{:?}", server.files("train").keys());
    let state = server.state();
    let parts = state.requests.iter().filter(|line| line.contains("partNumber=")).count();
    assert_eq!((parts, state.uploads.len()), (3, 0), "21 MB in parts of 8 MiB");
    assert!((2..=4).contains(&state.most_open), "{} at once", state.most_open);
}

#[test]
fn an_upload_that_fails_is_given_up() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let source = raw_images(folder.path());
    server.state().forbidden = Some("?partNumber=2");
    let text =
        error(pack(&server.address, &source, "s3://bucket/train", &["--format", "webdataset", "--shard-size", "50MB"]));
    assert!(text.contains("cannot write s3://bucket/train/train-000000.tar") && !text.contains("panicked"), "{text}");
    assert_eq!(server.files("train").keys().collect::<Vec<_>>(), ["pack.json"]);
    assert_eq!(server.state().uploads.len(), 0);
}

#[test]
fn a_server_in_bad_moods_gets_the_same() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let (source, local) = (images(folder.path()), folder.path().join("train"));
    let options = ["--format", "tfrecord", "--rank", "0/1"];
    packed(pack(&server.address, &source, local.to_str().unwrap(), &options));
    server.state().moody = Some(4);
    packed(pack(&server.address, &source, "s3://bucket/train", &options));
    assert!(server.files("train") == files(&local), "{:?}", server.files("train").keys());
    let raw = raw_images(folder.path());
    let options = ["--format", "webdataset", "--shard-size", "50MB"];
    packed(pack(&server.address, &raw, "s3://bucket/raw", &options));
    assert_eq!((server.files("raw")["raw-000000.tar"].len() / 1_000_000, server.state().uploads.len()), (21, 0));
}

#[test]
fn errors_name_the_address_and_the_remedy() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let source = images(folder.path());
    let tar = ["--format", "webdataset"];
    let refused = |out: &str, options: &[&str], words: &[&str]| {
        let text = error(pack(&server.address, &source, out, options));
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!text.contains("panicked"), "{text}");
    };
    refused("s3://missing/train", &tar, &["s3://missing/train", "check that the bucket"]);
    refused("https://host/train", &tar, &["https://host/train", "s3://"]);
    refused("s3://bucket/train-{0..3}", &tar, &["has no pattern"]);
    refused("s3://key:secret@bucket/train", &tar, &["without a login"]);
    refused("s3://bucket/.train", &tar, &["does not start with a dot"]);
    refused(
        "s3://bucket/train",
        &["--format", "webdataset", "--shard-size", "100GB"],
        &["at most 67108864000 at a store"],
    );
    refused(
        "s3://bucket/train",
        &["--format", "tfrecord", "--shard-size", "6GB"],
        &["at most 5000000000 for TFRecord"],
    );
    server.put("full/notes.txt", b"mine".to_vec());
    refused("s3://bucket/full", &tar, &["an empty or new folder", "notes.txt"]);
    assert_eq!(server.state().objects.len(), 1, "nothing was written");
    // Writing is forbidden, then all is.
    let secret = "AWS_SECRET";
    server.state().forbidden = Some("train-000002.tar");
    refused("s3://bucket/train", &tar, &["cannot write s3://bucket/train/train-000002.tar", "check the credentials"]);
    assert_eq!(server.state().objects.keys().filter(|key| key.contains(".pack")).count(), 0, "it cleans up");
    server.state().forbidden = Some("/bucket");
    refused("s3://bucket/other", &tar, &["s3://bucket/other", "check the credentials"]);
    server.state().forbidden = None;
    // What was not finished does not open.
    let mut run = warpfeed(&server.address);
    run.args(["run", "s3://bucket/train/"]);
    let text = error(run);
    assert!(text.contains("a folder that `warpfeed pack` has finished") && !text.contains(secret), "{text}");
    packed(pack(&server.address, &source, "s3://bucket/train", &tar));
    let mut run = warpfeed(&server.address);
    run.args(["run", "s3://bucket/train/", "--json"]);
    assert_eq!(packed(run)["images"], 40);
}

#[test]
fn what_is_complete_may_be_where_nothing_may_be_written() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let source = images(folder.path());
    for (url, rank) in [("s3://bucket/alone", &[][..]), ("s3://bucket/together", &["--rank", "1/3"])] {
        let start = || pack(&server.address, &source, url, &[&["--format", "webdataset"], rank].concat());
        packed(start());
        server.state().forbidden = Some("PUT ");
        let again = packed(start());
        assert_eq!((&again["images"], &again["resumed_images"]), (&40.into(), &40.into()));
        server.state().forbidden = None;
    }
}

/// Killed while parts of its shards are on their way, and started again.
#[test]
fn killed_runs_leave_nothing_but_whole_shards_and_go_on() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let (source, local) = (raw_images(folder.path()), folder.path().join("train"));
    let start = |out: &str| {
        let mut command = pack(&server.address, &source, out, &["--format", "tfrecord", "--shard-size", "10MB"]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    assert!(start(local.to_str().unwrap()).wait().unwrap().success());
    let want = files(&local);
    server.state().delay = Duration::from_millis(60);
    let (mut random, mut kills) = (common::Random(5), 0);
    loop {
        let mut child = start("s3://bucket/train");
        std::thread::sleep(Duration::from_millis(random.within(50, 400).into()));
        if child.try_wait().unwrap().is_some() || kills == 8 {
            assert!(child.wait().unwrap().success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        for (name, bytes) in server.files("train") {
            let shard = name.strip_prefix('.').unwrap_or(&name).split("-of-").next().unwrap();
            let shard = shard.strip_suffix(".tfrecord").unwrap_or(shard);
            let whole = want.iter().find(|(name, _)| name.starts_with("train-") && name.starts_with(shard));
            assert!(whole.is_none_or(|(_, whole)| *whole == bytes), "{name} after kill {kills}");
        }
    }
    assert!(kills > 1, "{kills}");
    assert!(server.files("train") == want, "{:?} after {kills} kills", server.files("train").keys());
    // One that was begun as its process died, before it was written down, is left, but has no parts.
    let sent = server.state().uploads.values().filter(|(_, parts)| !parts.is_empty()).count();
    assert_eq!(sent, 0, "what killed runs had sent is given up");
}

/// Three processes; one after the other is killed, until all is packed.
#[test]
fn shards_of_killed_processes_are_taken_up() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let (source, local) = (images(folder.path()), folder.path().join("train"));
    let start = |out: &str, rank: usize| -> Child {
        let rank = format!("{rank}/3");
        let mut command = pack(&server.address, &source, out, &["--format", "recordio", "--rank", &rank]);
        command.args(["--max-side", "280"]).stdout(Stdio::null()).spawn().unwrap()
    };
    assert!(start(local.to_str().unwrap(), 0).wait().unwrap().success());
    let mut random = common::Random(4);
    for kill in 0..4 {
        let mut ranks: Vec<Child> = (0..3).map(|rank| start("s3://bucket/train", rank)).collect();
        std::thread::sleep(Duration::from_millis(random.within(50, 300).into()));
        ranks[kill % 3].kill().unwrap();
        // The others go on, and make the shards of the one that is gone.
        for (rank, child) in ranks.into_iter().enumerate() {
            let ended = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success() || rank == kill % 3, "rank {rank}: {text}");
        }
        let got = server.files("train");
        assert!(got == files(&local), "after kill {kill}: {:?}", got.keys());
        server.state().objects.clear();
    }
}

/// Has a process stop, or go on.
fn signal(name: &str, child: &Child) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(sent.unwrap().success());
}

/// A process of a machine that sleeps or is cut off, from the middle of a shard on until another has done all the work.
#[test]
fn a_process_that_was_held_up_undoes_nothing() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let source = raw_images(folder.path());
    for rank in [&[][..], &["--rank", "1/2"]] {
        let start = |out: &str, rank: &[&str]| -> Child {
            let options = [&["--format", "webdataset", "--shard-size", "10MB"], rank].concat();
            pack(&server.address, &source, out, &options).spawn().unwrap()
        };
        let local = folder.path().join(rank.concat().replace('/', "of")).join("train");
        assert!(start(local.to_str().unwrap(), rank).wait().unwrap().success());
        server.state().held = Some("train-000001.tar?partNumber");
        let held_up = start("s3://bucket/train", rank);
        while !server.state().requests.iter().any(|line| line.contains("train-000001.tar?partNumber")) {
            std::thread::sleep(Duration::from_millis(10));
        }
        signal("STOP", &held_up);
        server.state().held = None;
        let other: &[&str] = if rank.is_empty() { &[] } else { &["--rank", "0/2"] };
        let ended = start("s3://bucket/train", other).wait_with_output().unwrap();
        assert_eq!(report(&ended)["images"], 10);
        let whole = server.state().objects.clone();
        assert!(server.files("train") == files(&local), "{:?}", server.files("train").keys());
        signal("CONT", &held_up);
        let ended = held_up.wait_with_output().unwrap();
        if rank.is_empty() {
            let text = String::from_utf8_lossy(&ended.stderr);
            assert!(!ended.status.success() && text.contains("no other run"), "{text}");
        } else {
            assert_eq!(report(&ended)["images"], 10);
        }
        // Nothing is written again, as it may be read by now.
        let tags = |objects: &std::collections::BTreeMap<String, crate::s3::Object>| {
            objects.values().map(|object| object.tag.clone()).collect()
        };
        let (now, then): (Vec<String>, Vec<String>) = (tags(&server.state().objects), tags(&whole));
        assert!(now == then && server.files("train") == files(&local), "{:?}", server.files("train").keys());
        assert_eq!(server.state().uploads.len(), 0);
        server.state().objects.clear();
        server.state().requests.clear();
    }
}

#[test]
fn two_runs_at_once_do_not_mix() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let source = images(folder.path());
    for formats in [["webdataset", "webdataset"], ["webdataset", "recordio"]] {
        for _ in 0..4 {
            let start =
                |format| pack(&server.address, &source, "s3://bucket/train", &["--format", format]).spawn().unwrap();
            let ended = formats.map(start).map(|child| child.wait_with_output().unwrap());
            let done: Vec<&str> = formats
                .into_iter()
                .zip(&ended)
                .filter(|(_, ended)| ended.status.success())
                .map(|(format, _)| format)
                .collect();
            let local = folder.path().join(done[0]).join("train");
            packed(pack(&server.address, &source, local.to_str().unwrap(), &["--format", done[0]]));
            assert!(server.files("train") == files(&local), "{formats:?}: {:?}", server.files("train").keys());
            for ended in ended.iter().filter(|ended| !ended.status.success()) {
                let text = String::from_utf8_lossy(&ended.stderr);
                assert!(
                    ["no other run", "the same source and options", "an empty or new"]
                        .iter()
                        .any(|words| text.contains(words)),
                    "{text}"
                );
            }
            server.state().objects.clear();
        }
    }
}

/// Where two processes make the same shard, one is the first to complete it.
#[test]
fn a_shard_that_another_process_has_completed_is_no_error() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    let (source, local) = (raw_images(folder.path()), folder.path().join("train"));
    let options = ["--format", "webdataset", "--shard-size", "50MB"];
    packed(pack(&server.address, &source, local.to_str().unwrap(), &options));
    server.state().forestalled = true;
    packed(pack(&server.address, &source, "s3://bucket/train", &options));
    assert!(server.files("train") == files(&local), "{:?}", server.files("train").keys());
    assert_eq!(server.state().uploads.len(), 0);
}
