//! Fault injection: each call that may fail fails once. The result is the same, or an error names the call.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use crate::common;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use warpfeed::pack::{PackOptions, pack};
use warpfeed::{
    image::{JpegOptions, encode_jpeg},
    source::{EncodedImages, RecordFormat},
};

/// Time after which a run counts as hanging. Runs take a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Largest number of calls of a kind that are tried; of more calls, as many are tried, spread evenly.
const MOST_CALLS: usize = 60;

/// Each kind of call, and what an error says whose call it was.
const KINDS: [(&str, &str); 7] = [
    ("alloc", "memory"),
    ("open", "Too many open files"),
    ("read", "Input/output error"),
    ("write", "No space left on device"),
    ("rename", "Input/output error"),
    ("thread", "thread"),
    ("sync", "Input/output error"),
];

/// A command that is tried. It runs in a folder of its own with `images` and `shards` in it.
struct Work {
    args: &'static [&'static str],
    /// Whether an image that cannot be read is left out, and counted.
    skips: bool,
    /// Whether keys and entry points are kept in folders, which cargo's settings for tests turn off.
    keeps: bool,
    /// The result that must be the same, from the folder and from the output.
    result: fn(&Path, &str) -> String,
}

const RUN: Work = Work { args: &["run", "images", "--seed", "3"], skips: false, keeps: false, result: digest };

const RUN_SHARDS: Work =
    Work { args: &["run", "shards/shards-000000.tar", "--seed", "3"], skips: false, keeps: false, result: digest };

const RUN_SKIPPING: Work =
    Work { args: &["run", "images", "--seed", "3", "--on-error", "skip"], skips: true, keeps: false, result: digest };

const RUN_STATE: Work = Work {
    args: &["run", "images", "--seed", "3", "--state", "state", "--log", "run.wlog", "--chain"],
    skips: false,
    keeps: false,
    result: digest,
};

const PACK: Work = Work {
    args: &[
        "pack",
        "images",
        "--output",
        "out",
        "--format",
        "webdataset",
        "--workers",
        "2",
        "--max-side",
        "200",
        "--json",
    ],
    skips: true,
    keeps: false,
    result: |folder, _| {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder.join("out")).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        let hash = |path: &PathBuf| format!("{} {:x?}\n", path.display(), Sha256::digest(fs::read(path).unwrap()));
        let relative = |text: String| text.replace(folder.to_str().unwrap(), "");
        paths.iter().map(hash).map(relative).collect()
    },
};

fn skipped(stdout: &str) -> u64 {
    let report: Value = serde_json::from_str(stdout).unwrap();
    report["bad_count"].as_u64().unwrap()
}

fn digest(_: &Path, stdout: &str) -> String {
    let report: Value = serde_json::from_str(stdout).unwrap();
    report["digest"].as_str().unwrap().to_owned()
}

/// The result of a command; without a status if it did not end.
struct Ended {
    status: Option<ExitStatus>,
    stdout: String,
    stderr: String,
}

/// Runs the command in `folder`, with the library that fails calls and these variables.
fn attempt(work: &Work, folder: &Path, library: &Path, variables: &[(&str, &str)]) -> Ended {
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| folder.join(name));
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    command.args(work.args).current_dir(folder).stdin(Stdio::null());
    if work.args[0] == "run" {
        command.args(["--device", "cpu", "--json", "--digest", "--threads", "2", "--batch-size", "2"]);
    }
    command.env("LD_PRELOAD", library).envs(variables.iter().copied());
    // Nothing of this user's: indexes are next to shards.
    command.env("XDG_CACHE_HOME", folder).env("XDG_CONFIG_HOME", folder.join("settings"));
    if work.keeps {
        command.env_remove("WARPFEED_ENTRY_POINTS").env_remove("WARPFEED_PACK_KEY");
    }
    command.stdout(fs::File::create(&stdout).unwrap()).stderr(fs::File::create(&stderr).unwrap());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            None if Instant::now() > deadline => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
            ended => break ended,
        }
    };
    let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    Ended { status, stdout: text(stdout), stderr: text(stderr) }
}

/// A new folder with six images, one of them progressive, and a shard of them.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut jpegs: Vec<(Vec<u8>, u32)> = (0..6).map(|i| (common::jpeg(300, 220, i), i as u32 % 2)).collect();
    let progressive = JpegOptions { progressive: true, ..JpegOptions::default() };
    jpegs[5].0 = encode_jpeg(&common::image(300, 220, 5), &progressive).unwrap();
    for (i, (jpeg, label)) in jpegs.iter().enumerate() {
        let class = folder.path().join(format!("images/class-{label}"));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join(format!("{i}.jpg")), jpeg).unwrap();
    }
    let options = PackOptions::new(RecordFormat::WebDataset);
    pack(&EncodedImages::new(jpegs), &folder.path().join("shards"), &options, &mut |_| {}).unwrap();
    folder
}

pub(crate) fn library(folder: &Path) -> PathBuf {
    let library = folder.join("fail.so");
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/faults/fail.c");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
    assert!(compiler.arg(&library).arg(source).arg("-ldl").status().unwrap().success());
    library
}

/// Has each call fail once. The names of what went wrong are the test's result.
fn inject(work: &Work) {
    let build = tempfile::tempdir().unwrap();
    let library = &library(build.path());
    let scratch = folder();
    let counts = scratch.path().join("counts");
    let good = attempt(work, scratch.path(), library, &[("FAULT_COUNTS", counts.to_str().unwrap())]);
    assert!(good.status.unwrap().success(), "{}", good.stderr);
    let want = (work.result)(scratch.path(), &good.stdout);
    let counts = fs::read_to_string(counts).unwrap();
    let counts: BTreeMap<&str, usize> = counts
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(kind, count)| (kind, count.parse().unwrap()))
        .collect();
    assert!(counts["open"] > 6 && counts["alloc"] > 4 && counts["thread"] > 0, "the library is at work: {counts:?}");

    let (mut wrong, mut failed) = (Vec::new(), 0);
    for (kind, word) in KINDS {
        let tried = counts[kind].min(MOST_CALLS);
        for at in (0..tried).map(|nth| nth * counts[kind] / tried + 1) {
            let scratch = folder();
            let log = scratch.path().join("log");
            let number = at.to_string();
            let variables = [("FAULT_KIND", kind), ("FAULT_AT", &number), ("FAULT_LOG", log.to_str().unwrap())];
            let ended = attempt(work, scratch.path(), library, &variables);
            // Threads make the number of calls differ a little: the last ones may not come.
            let call = fs::read_to_string(&log).unwrap_or_else(|_| "no call\n".to_owned());
            let verdict = match ended.status.map(|status| status.code()) {
                None => Some("it hangs".to_owned()),
                Some(Some(0)) if (work.result)(scratch.path(), &ended.stdout) == want => None,
                Some(Some(0)) if kind == "read" && work.skips && skipped(&ended.stdout) == 1 => None,
                Some(Some(0)) => Some("it succeeds with another result".to_owned()),
                Some(Some(1 | 2)) if !ended.stderr.contains(word) => Some("the error does not name it".to_owned()),
                Some(Some(1 | 2)) if ended.stderr.contains("panicked") => Some("it panics".to_owned()),
                Some(Some(1 | 2)) => {
                    failed += 1;
                    // Another run, without the fault, has the work done.
                    let again = attempt(work, scratch.path(), library, &[]);
                    match again.status.is_some_and(|status| status.success()) {
                        false => Some(format!("the next run fails too: {}", again.stderr)),
                        // A run that goes on has the rest alone for its digest.
                        true if work.args.contains(&"--state") => None,
                        true if (work.result)(scratch.path(), &again.stdout) == want => None,
                        true => Some("the next run has another result".to_owned()),
                    }
                }
                _ => Some(format!("it ends by {}", ended.status.unwrap())),
            };
            if let Some(verdict) = verdict {
                wrong.push(format!("{kind} {at} of {}, {}: {verdict}\n{}", counts[kind], call.trim(), ended.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "{} faults go wrong:\n\n{}", wrong.len(), wrong.join("\n"));
    assert!(failed > 10, "only {failed} faults were noticed");
}

/// All files whose path has this text, with their contents.
pub(crate) fn files_of(folder: &Path, text: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.to_str().unwrap().contains(text) => {
                    _ = files.insert(path.clone(), fs::read(path).unwrap())
                }
                false => {}
            }
        }
    }
    files
}

/// Files that are kept from one run to the next cannot be opened or read, once or for good. None of them is replaced or
/// removed for that, and the next run has them.
#[test]
fn faults_that_repeat_destroy_nothing_that_is_kept() {
    const CACHED: &[&str] = &["run", "images", "--image-cache", "1GB", "--image-cache-dir", "cached", "--epochs", "2"];
    const STATE: &[&str] = &["run", "images", "--state", "state", "--log", "run.wlog", "--chain"];
    const PACKED: &[&str] =
        &["pack", "images", "--output", "out", "--format", "webdataset", "--entry-points", "--json"];
    const AUDIT: &[&str] = &["audit", "images", "--out", "audited", "--resume"];
    let kept: [(&'static [&'static str], &str); 10] = [
        (&["run", "images", "--epochs", "2"], "entry-points/key"),
        (&["run", "images", "--epochs", "2"], ".points"),
        (PACKED, "pack-key/key"),
        (PACKED, "out/pack.json"),
        (PACKED, "out/"),
        (CACHED, "cached/"),
        (&["run", "shards/shards-000000.tar"], ".warpfeed-index"),
        (STATE, "state"),
        (STATE, "run.wlog"),
        (AUDIT, "audited/audit.jsonl"),
    ];
    let build = tempfile::tempdir().unwrap();
    let library = &library(build.path());
    let mut wrong = Vec::new();
    for (args, path) in kept {
        let work = Work { args, skips: false, keeps: true, result: |_, _| String::new() };
        let scratch = folder();
        let first = attempt(&work, scratch.path(), library, &[]);
        assert!(first.status.is_some_and(|status| status.success()), "{args:?}: {}", first.stderr);
        let before = files_of(scratch.path(), path);
        assert!(!before.is_empty(), "{args:?} keeps no {path}");
        for (kind, errno) in [("open", "24"), ("open", "5"), ("open", "13"), ("read", "5")] {
            for (at, times) in [("1", "1"), ("1", "1000000"), ("2", "1000000")] {
                let variables =
                    [("FAULT_KIND", kind), ("FAULT_AT", at), ("FAULT_TIMES", times), ("FAULT_ERRNO", errno)];
                let variables = [&variables[..], &[("FAULT_PATH", path)]].concat();
                let ended = attempt(&work, scratch.path(), library, &variables);
                let code = ended.status.and_then(|status| status.code());
                let after = files_of(scratch.path(), path);
                let changed: Vec<_> = before.iter().filter(|(path, bytes)| after.get(*path) != Some(bytes)).collect();
                let changed: Vec<_> = changed.into_iter().map(|(path, _)| path).collect();
                if !matches!(code, Some(0..=2)) || ended.stderr.contains("panicked") || !changed.is_empty() {
                    let fault = format!("{path}: {kind} {at} {times} {errno} of {args:?}");
                    wrong.push(format!("{fault}: {code:?}, changed {changed:?}\n{}", ended.stderr));
                }
            }
        }
        let last = attempt(&work, scratch.path(), library, &[]);
        if !last.status.is_some_and(|status| status.success()) {
            wrong.push(format!("{path}: {args:?} ends with an error afterwards\n{}", last.stderr));
        }
    }
    assert!(wrong.is_empty(), "{} faults go wrong:\n\n{}", wrong.len(), wrong.join("\n"));
}

/// Without its key, nothing is packed as if there were none; a run says once what it does without.
#[test]
fn a_key_that_cannot_be_read_is_said() {
    let build = tempfile::tempdir().unwrap();
    let library = &library(build.path());
    let scratch = folder();
    let works: [&'static [&'static str]; 3] = [
        &["pack", "images", "--output", "out", "--format", "webdataset", "--entry-points"],
        &["pack", "images", "--output", "again", "--format", "webdataset", "--entry-points"],
        &["run", "images", "--epochs", "2"],
    ];
    let [first, second, run] = works.map(|args| Work { args, skips: false, keeps: true, result: digest });
    assert!(attempt(&first, scratch.path(), library, &[]).status.unwrap().success());
    let want = attempt(&run, scratch.path(), library, &[]);
    for errno in ["5", "13", "24"] {
        let fault = [("FAULT_KIND", "open"), ("FAULT_AT", "1"), ("FAULT_TIMES", "99"), ("FAULT_ERRNO", errno)];
        let ended =
            attempt(&second, scratch.path(), library, &[&fault[..], &[("FAULT_PATH", "pack-key/key")]].concat());
        assert!(
            ended.status.unwrap().code() == Some(1) && ended.stderr.contains("WARPFEED_PACK_KEY"),
            "{}",
            ended.stderr
        );
        let ended =
            attempt(&run, scratch.path(), library, &[&fault[..], &[("FAULT_PATH", "entry-points/key")]].concat());
        assert!(ended.status.unwrap().success(), "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("entry points are not kept").count(), 1, "{}", ended.stderr);
        assert_eq!(digest(scratch.path(), &ended.stdout), digest(scratch.path(), &want.stdout));
    }
}

#[test]
fn faults_of_a_run_over_a_folder() {
    inject(&RUN);
}

#[test]
fn faults_of_a_run_over_shards() {
    inject(&RUN_SHARDS);
}

#[test]
fn faults_of_a_run_that_skips_bad_samples() {
    inject(&RUN_SKIPPING);
}

#[test]
fn faults_of_a_run_that_writes_its_state_and_a_log() {
    inject(&RUN_STATE);
}

#[test]
fn faults_of_packing() {
    inject(&PACK);
}
