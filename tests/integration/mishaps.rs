//! Processes are killed, stopped, forked and starved at random. The next one completes the work.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use crate::common::Random;
use crate::faults::{files_of, folder, library};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// Time after which a process counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command, and what must be the same at its end, whatever befell it before.
struct Job {
    args: &'static [&'static str],
    result: fn(&Path, &Place) -> String,
}

/// The state that all processes share.
struct Place<'a> {
    library: &'a Path,
    /// The user's folder, with caches and keys.
    home: &'a Path,
}

const RUN: &[&str] = &["--device", "cpu", "--seed", "3", "--batch-size", "2", "--threads", "2", "--epochs", "3"];
const LOGGED: &[&str] = &["--state", "state", "--log", "run.wlog", "--chain"];

const JOBS: [Job; 5] = [
    Job { args: &["run", "images", "--image-cache", "1GB", "--image-cache-dir", "cached"], result: logged },
    Job { args: &["run", "shards/shards-000000.tar", "--random-access"], result: logged },
    Job { args: &["run", "shards/shards-000000.tar", "--window", "3"], result: logged },
    Job {
        args: &["pack", "images", "--output", "out", "--format", "webdataset", "--entry-points", "--workers", "2"],
        result: |folder, _| {
            let bytes = |(path, bytes): (_, Vec<u8>)| (path, crate::common::sha256(&bytes));
            let files: BTreeMap<_, _> = files_of(&folder.join("out"), "").into_iter().map(bytes).collect();
            format!("{files:?}").replace(folder.to_str().unwrap(), "")
        },
    },
    Job {
        args: &["audit", "images", "--out", "audited", "--resume"],
        result: |folder, _| {
            let text = fs::read_to_string(folder.join("audited/audit.jsonl")).unwrap();
            let records = text.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
            let mut images: Vec<_> = records.map(|record| record["image"].as_u64().unwrap()).collect();
            images.sort_unstable();
            format!("{images:?}")
        },
    },
];

/// The samples and digests of each step of the log, after its chain and all batches have been checked.
fn logged(folder: &Path, place: &Place) -> String {
    let mut replay = command(&["replay", "--log", "run.wlog", "--verify"], folder, place);
    let status = replay.stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "the log is not one of a whole run: {}", said(folder));
    let text = fs::read_to_string(folder.join("run.wlog")).unwrap();
    let lines = text.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
    // A step that is written again counts with its later line.
    let steps: BTreeMap<_, _> = lines
        .filter(|line| line["step"].is_u64())
        .map(|line| (line["step"].as_u64().unwrap(), format!("{}{}", line["indices"], line["digests"])))
        .collect();
    format!("{steps:?}")
}

fn command(args: &[&str], folder: &Path, place: &Place) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -v "$MEMORY"; ulimit -n "$FILES"; exec "$@""#, "sh", env!("CARGO_BIN_EXE_warpfeed")]);
    command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    command.env("HOME", place.home).env("XDG_CACHE_HOME", place.home).env("XDG_CONFIG_HOME", place.home);
    command.env_remove("WARPFEED_ENTRY_POINTS").env_remove("WARPFEED_PACK_KEY");
    command.env("MEMORY", "unlimited").env("FILES", "1024");
    command.stderr(fs::File::options().append(true).create(true).open(folder.join("said")).unwrap());
    command
}

/// The last output of processes of this folder.
fn said(folder: &Path) -> String {
    let text = fs::read(folder.join("said")).unwrap();
    String::from_utf8_lossy(&text[text.len().saturating_sub(3_000)..]).into_owned()
}

/// Sends a signal to a process, which may have ended by itself.
fn send(signal: &str, child: &Child) {
    let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).stderr(Stdio::null()).status();
    kill.expect("a program `kill`");
}

/// Waits for a process. One that was stopped goes on after a while. `None`: it hung, and was killed.
fn ended(child: &mut Child, stopped_for: Duration) -> Option<ExitStatus> {
    let (begun, mut goes_on) = (Instant::now(), stopped_for);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        if begun.elapsed() > goes_on {
            send("CONT", child);
            goes_on += stopped_for;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn one_of<T: Copy>(all: &[T], random: &mut Random) -> T {
    all[random.within(0, all.len() as u32 - 1) as usize]
}

/// Starts a process that something befalls. Returns how many processes that were, and what they did wrong.
fn befall(args: &[&str], folder: &Path, place: &Place, random: &mut Random) -> (u64, Option<String>) {
    let mut process = command(args, folder, place);
    let mut what = vec![format!("{args:?}")];
    let mut befalls = |name: &str, value: &str| {
        what.push(format!("{name}={value}"));
        process.env(name, value);
    };
    let (mut signal, mut rivals, mut is_starved) = (None, 0, false);
    match random.within(0, 9) {
        // A call fails, once or from there on, or is the one at which the process is killed, stopped or forks.
        0..=5 => {
            befalls("LD_PRELOAD", place.library.to_str().unwrap());
            befalls("FAULT_KIND", one_of(&["alloc", "open", "read", "write", "rename", "thread", "sync"], random));
            let last = one_of(&[9, 60, 300], random);
            befalls("FAULT_AT", &random.within(1, last).to_string());
            if random.within(0, 2) == 0 {
                let paths = ["key", ".points", "pack.json", "state", "run.wlog", "cached/", "out/", "audit.jsonl"];
                befalls("FAULT_PATH", one_of(&paths, random));
            }
            let action = one_of(&["", "", "", "kill", "kill", "stop", "fork"], random);
            is_starved = action.is_empty();
            if is_starved {
                befalls("FAULT_TIMES", one_of(&["1", "3", "1000000"], random));
            } else {
                befalls("FAULT_ACTION", action);
            }
        }
        6 => {
            befalls("MEMORY", &random.within(90_000, 500_000).to_string());
            is_starved = true;
        }
        7 => befalls("FILES", &random.within(8, 40).to_string()),
        8 => signal = Some("KILL"),
        _ => signal = Some("STOP"),
    }
    if random.within(0, 5) == 0 {
        rivals = 1;
    }
    let at_ms = random.within(1, 120);
    let mut processes = vec![process.spawn().unwrap()];
    if let Some(signal) = signal {
        what.push(format!("{signal} after {at_ms} ms"));
        std::thread::sleep(Duration::from_millis(at_ms.into()));
        send(signal, &processes[0]);
    }
    if rivals > 0 {
        what.push("another at once".to_owned());
        processes.push(command(args, folder, place).spawn().unwrap());
    }
    let stopped_for = Duration::from_millis(300);
    let endings: Vec<_> = processes.iter_mut().rev().map(|process| ended(process, stopped_for)).collect();
    let wrong = endings.into_iter().find_map(|ending| {
        let Some(status) = ending else { return Some("it hangs".to_owned()) };
        match (status.code(), status.signal()) {
            (Some(0..=2), _) | (_, Some(9)) => None,
            // Rust and the C library end processes that have no memory for a few bytes.
            (_, Some(6)) | (Some(127), _) if is_starved => None,
            _ => Some(format!("it ends by {status}")),
        }
    });
    let wrong = wrong.or_else(|| said(folder).contains("panicked").then(|| "it panics".to_owned()));
    (1 + rivals, wrong.map(|wrong| format!("{}: {wrong}\n{}", what.join(" "), said(folder))))
}

/// Has at least this many processes befallen by something.
fn try_processes(most: u64, seed: u64) {
    let build = tempfile::tempdir().unwrap();
    let (library, home) = (library(build.path()), build.path().join("home"));
    fs::create_dir(&home).unwrap();
    let place = &Place { library: &library, home: &home };
    let args = |job: &Job| -> Vec<&str> {
        let is_run = job.args[0] == "run";
        job.args.iter().chain(if is_run { [RUN, LOGGED].concat() } else { Vec::new() }.iter()).copied().collect()
    };
    let wanted = JOBS.map(|job| {
        let scratch = folder();
        let status = command(&args(&job), scratch.path(), place).status().unwrap();
        assert!(status.success(), "{}", said(scratch.path()));
        (job.result)(scratch.path(), place)
    });
    let keys = files_of(&home, "key");
    assert_eq!(keys.len(), 2, "keys of entry points and of packing: {keys:?}");
    let (begun, done, wrong) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Vec::new()));
    let sequence = || {
        while done.load(Ordering::Relaxed) < most {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            let mut random = Random((seed << 32 | number) + 1);
            let at = random.within(0, JOBS.len() as u32 - 1) as usize;
            let (scratch, args) = (folder(), args(&JOBS[at]));
            for _ in 0..random.within(1, 6) {
                let (processes, fault) = befall(&args, scratch.path(), place, &mut random);
                done.fetch_add(processes, Ordering::Relaxed);
                wrong.lock().unwrap().extend(fault.map(|fault| format!("sequence {number}: {fault}")));
            }
            // The last one has no mishap.
            let mut last = command(&args, scratch.path(), place).spawn().unwrap();
            done.fetch_add(1, Ordering::Relaxed);
            let is_good = ended(&mut last, PATIENCE).is_some_and(|status| status.success());
            let (send, receive) = mpsc::channel();
            // What asserts is noted with the number of its sequence.
            let _ = std::panic::catch_unwind(|| send.send((JOBS[at].result)(scratch.path(), place)));
            let verdict = match receive.try_recv() {
                _ if !is_good => "the last process fails",
                Ok(result) if result == wanted[at] => continue,
                Ok(_) => "the result is another",
                Err(_) => "there is no result",
            };
            wrong.lock().unwrap().push(format!("sequence {number}, {args:?}: {verdict}\n{}", said(scratch.path())));
        }
    };
    std::thread::scope(|scope| {
        (0..2).for_each(|_| _ = scope.spawn(sequence));
    });
    assert_eq!(files_of(&home, "key"), keys, "no key is ever replaced");
    let (wrong, done) = (wrong.into_inner().unwrap(), done.into_inner());
    println!("{done} processes, {} sequences", begun.into_inner());
    assert!(wrong.is_empty(), "{} of {done} processes go wrong:\n\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_befalls_processes_changes_no_result() {
    try_processes(60, 1);
}

#[test]
#[ignore = "ten thousand processes take half an hour: cargo test --test integration ten_thousand -- --ignored"]
fn what_befalls_ten_thousand_processes_changes_no_result() {
    try_processes(10_000, 2);
}
