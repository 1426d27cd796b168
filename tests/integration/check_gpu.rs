//! `warpfeed check-gpu` and scripts/gpu-check-run, simulated:
//! `cuda-sim/run cargo test --test integration check_gpu:: -- --ignored`.
#![cfg(unix)]

use crate::common;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Checks nvJPEG's decoders with a simulated nvJPEG that is broken in this way: the exit code, what was found, and what
/// was said.
fn check(broken: &str) -> (Option<i32>, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    command.args(["check-gpu", "--parts", "decoders", "--json"]).env("CUDA_SIM_NVJPEG", broken);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{broken}: {said}"));
    (output.status.code(), found, said)
}

fn faults(decoder: &Value) -> Vec<&str> {
    decoder["faults"].as_array().unwrap().iter().map(|fault| fault.as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs the simulated device: cuda-sim/run cargo test --test integration check_gpu:: -- --ignored"]
fn whole_decoders_are_told_from_broken_ones() {
    let (code, found, said) = check("");
    assert_eq!((code, &*said), (Some(0), ""), "{found}");
    let [hybrid, hardware] = [&found["decoders"][0], &found["decoders"][1]];
    let count = |decoder: &Value, field: &str| decoder[field].as_u64().unwrap();
    for (decoder, images) in [(hybrid, 7), (hardware, 5)] {
        assert_eq!((count(decoder, "images"), count(decoder, "decoded")), (images, images), "{decoder}");
        assert_eq!((count(decoder, "fault_count"), count(decoder, "max")), (0, 0), "{decoder}");
    }
    assert_eq!((count(&hybrid["pipeline"], "hybrid"), count(&hardware["pipeline"], "hardware")), (7, 5));

    // What decoders give is wrong, and they say that all is well.
    for (broken, meant) in [("wrong", "in the mean of the block at"), ("nothing", "were not written")] {
        let (code, found, said) = check(broken);
        assert_eq!(code, Some(1), "{broken}: {found}");
        for (decoder, name) in found["decoders"].as_array().unwrap().iter().zip(["hybrid", "hardware"]) {
            assert!(said.contains(&format!("decode {name}: ")), "{said}");
            assert!(faults(decoder).iter().any(|fault| fault.contains(meant)), "{broken}: {decoder}");
            assert!(faults(decoder).iter().any(|fault| fault.contains("in a pipeline")), "{broken}: {decoder}");
        }
    }

    // The CPU decodes what they refuse, to the right bytes.
    let (code, found, said) = check("refuse");
    assert_eq!(code, Some(1), "{found}");
    assert!(said.contains("alone it decoded 0 of 7 images that are for it"), "{said}");
    assert!(said.contains("alone it decoded 0 of 5 images that are for it"), "{said}");
    for (decoder, images) in found["decoders"].as_array().unwrap().iter().zip([7, 5]) {
        let pipeline = format!("in a pipeline it decoded 0 of {images} images that are for it");
        assert!(faults(decoder).contains(&&*pipeline) && faults(decoder).len() == 2, "{decoder}");
        assert_eq!((count(&decoder["pipeline"], "cpu"), count(decoder, "max")), (7, 0), "{decoder}");
    }
}

/// A folder as scripts/gpu-check makes it, but for the wheels.
struct Bundle(tempfile::TempDir);

impl Bundle {
    fn new() -> Self {
        let bundle = Self(tempfile::tempdir().unwrap());
        let scripts = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("scripts");
        fs::copy(scripts.join("gpu-check-run"), bundle.path("run")).unwrap();
        fs::copy(scripts.join("gpu-check-peers.py"), bundle.path("peers.py")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_warpfeed"), bundle.path("warpfeed")).unwrap();
        for i in 0..4 {
            let class = bundle.path(&format!("photos/class-{}", i % 2));
            fs::create_dir_all(&class).unwrap();
            fs::write(class.join(format!("{i}.jpg")), common::jpeg(250, 240, i)).unwrap();
        }
        bundle
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs it, with a compute-sanitizer that is this script and a nvJPEG that is broken in this way.
    fn run(&self, arguments: &[&str], sanitizer: Option<&str>, broken: &str) -> (Option<i32>, String) {
        let mut command = Command::new("python3");
        command.arg(self.path("run")).args(arguments).env("CUDA_SIM_NVJPEG", broken);
        command.env_remove("COMPUTE_SANITIZER").env_remove("SANITIZER_INJECTION_PATH");
        if let Some(script) = sanitizer {
            let tool = self.path("compute-sanitizer");
            fs::write(&tool, format!("#!/bin/sh\necho \"$@\" >>'{}'\n{script}\n", self.path("asked").display()))
                .unwrap();
            fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
            command.env("COMPUTE_SANITIZER", tool).env("SANITIZER_INJECTION_PATH", "/where/libraries/are");
        }
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "");
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    /// Puts a wheel in two parts into the folder, of a DALI that only says what it is.
    fn bring_dali(&self) {
        let package = self.path("package/nvidia/dali");
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("__init__.py"), "raise RuntimeError('this is DALI')\n").unwrap();
        let wheel = self.path("dali.whl");
        let mut zip = Command::new("python3");
        zip.args(["-m", "zipfile", "-c"]).arg(&wheel).arg("nvidia").current_dir(self.path("package"));
        assert!(zip.status().unwrap().success());
        let bytes = fs::read(wheel).unwrap();
        fs::create_dir(self.path("dali")).unwrap();
        for (part, bytes) in bytes.chunks(bytes.len().div_ceil(2)).enumerate() {
            fs::write(self.path(&format!("dali/nvidia_dali.whl.{part:02}")), bytes).unwrap();
        }
    }

    /// Puts a program in the place of warpfeed, of DALI and of compute-sanitizer that finds nothing wrong. At its
    /// second call of the stages in the variable KILL it kills the process of the stage; in those of STOP it stops it,
    /// so that it hangs.
    fn play_all(&self) {
        let script = r#"#!/bin/sh
        stage=$(tr '\0' '\n' <"/proc/$PPID/cmdline" | sed -n '/^--stage$/{n;p}')
        here=$(dirname "$0")
        if [ -n "$stage" ] && ! mkdir "$here/first-$stage" 2>/dev/null; then
            case " $KILL " in *" $stage "*) kill -KILL "$PPID" ;; esac
            case " $STOP " in *" $stage "*) echo "$PPID $$" >"$here/stopped"; kill -STOP "$PPID"; exec sleep 300 ;; esac
        fi
        case $1 in
        doctor) echo 'ok  device  simulated device' ;;
        --tool) echo '========= ERROR SUMMARY: 0 errors' ;;
        peer) echo ModuleNotFoundError >&2; exit 1 ;;
        check-gpu)
            echo '{"kernels": {"cases": 1, "different": []}, "decoders": [], "bounds": [], "sharing": []}' ;;
        run)
            echo '{"images_per_s": 9.0, "first_batch_s": 0.1, "seconds": 1.0, "digest": "a",'
            echo '"each_epoch": [{"images_per_s": 9.0}], "stages": {"consumer_wait": 0.0}}' ;;
        *) echo '{}' ;;
        esac
        "#;
        fs::remove_file(self.path("warpfeed")).unwrap();
        fs::write(self.path("warpfeed"), script).unwrap();
        fs::set_permissions(self.path("warpfeed"), fs::Permissions::from_mode(0o755)).unwrap();
        let peers =
            "import os, sys\nos.execv(os.path.join(os.path.dirname(__file__), 'warpfeed'), ['warpfeed', 'peer'])\n";
        fs::write(self.path("peers.py"), peers).unwrap();
    }

    /// Outcomes and words of a stage's steps.
    fn steps(&self, stage: &str) -> Vec<(String, String)> {
        let found = fs::read(self.path(&format!("results/{stage}.json"))).unwrap();
        let found: Value = serde_json::from_slice(&found).unwrap();
        assert_eq!((&found["stage"], &found["card"]), (&stage.into(), &"simulated device".into()));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        found["steps"].as_array().unwrap().iter().map(|step| (text(&step["outcome"]), text(&step["words"]))).collect()
    }
}

const STAGES: [&str; 12] = [
    "correctness",
    "sanitizer",
    "decoding",
    "load",
    "device_cache",
    "gpu_direct",
    "routes",
    "bounds",
    "peers",
    "priority",
    "experiments",
    "engines",
];

/// These stages; some of them are killed, and some hang. The program that plays all commands is the compute-sanitizer
/// too.
fn disturbed(bundle: &Bundle, stages: &[&str], options: &[&str], kill: &str, stop: &str) {
    bundle.play_all();
    let mut command = Command::new("python3");
    command.arg(bundle.path("run")).args(stages).args(options);
    command.env("KILL", kill).env("STOP", stop).env("COMPUTE_SANITIZER", bundle.path("warpfeed"));
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(1), "".into()));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("NOT ALL IS WELL"), "{printed}");
    for &stage in stages {
        let mut steps = bundle.steps(stage);
        let words = match [kill, stop].map(|stages| stages.split(' ').any(|other| other == stage)) {
            [true, _] => Some("killed by signal 9"),
            [_, true] => Some("did not end in 6 s"),
            _ => None,
        };
        if let Some(words) = words {
            // What it had found before is there.
            assert_eq!(steps.pop(), Some(("failed".to_owned(), words.to_owned())), "{stage}: {printed}");
            assert_eq!(steps.len(), 1, "{stage}: {printed}");
        }
        assert_eq!(printed.contains(&format!("{stage}: {stage}: failed: ")), words.is_some(), "{stage}: {printed}");
        let right = |(outcome, _): &(String, String)| outcome == "ok" || outcome == "left out";
        assert!(!steps.is_empty() && steps.iter().all(right), "{stage}: {steps:?} {printed}");
    }
}

/// Stages are killed in turn, so that each has one before it and one after it that end as usual.
#[test]
fn a_stage_that_is_killed_or_hangs_takes_no_other_along() {
    let kill = |first| STAGES.into_iter().skip(first).step_by(2).collect::<Vec<_>>().join(" ");
    std::thread::scope(|scope| {
        scope.spawn(|| disturbed(&Bundle::new(), &STAGES, &[], &kill(0), ""));
        scope.spawn(|| disturbed(&Bundle::new(), &STAGES, &[], &kill(1), ""));
        let bundle = Bundle::new();
        disturbed(&bundle, &["bounds", "priority"], &["--stage-limit-s", "6"], "", "bounds");
        // The stage that hung and its command are gone, or soon will be: the command is not waited for.
        let stopped = fs::read_to_string(bundle.path("stopped")).unwrap();
        let is_alive = |pid: &str| Path::new("/proc").join(pid).exists();
        let begin = Instant::now();
        while stopped.split_whitespace().any(is_alive) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{stopped}");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

const SUMMARY: &str = "echo '========= ERROR SUMMARY:";

#[test]
#[ignore = "needs the simulated device: cuda-sim/run cargo test --test integration check_gpu:: -- --ignored"]
fn what_compute_sanitizer_finds_counts_and_so_does_its_hanging() {
    let bundle = Bundle::new();
    let cases = [
        (format!("{SUMMARY} 0 errors'"), 0, "ok", "no errors"),
        (format!("{SUMMARY} 2 errors'; exit 99"), 1, "failed", "2 errors found"),
        // Errors with any exit code, any exit code without errors, and no word about errors.
        (
            "echo '========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)'".to_owned(),
            1,
            "failed",
            "3 errors found",
        ),
        ("echo '========= Error: no exit code'; exit 255".to_owned(), 1, "failed", "========= Error: no exit code"),
        ("true".to_owned(), 1, "failed", "it ended without a summary"),
        (format!("echo $$ >'{}'; sleep 300; true", bundle.path("pid").display()), 1, "timed out", "stopped after 3 s"),
    ];
    for (script, code, outcome, words) in cases {
        let limit_s = if outcome == "timed out" { "3" } else { "60" };
        let (got, printed) = bundle.run(&["sanitizer", "--step-limit-s", limit_s], Some(&script), "");
        assert_eq!(got, Some(code), "{script}: {printed}");
        assert_eq!(bundle.steps("sanitizer"), vec![(outcome.to_owned(), words.to_owned()); 4], "{script}");
    }
    let pid = fs::read_to_string(bundle.path("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid}");
    let asked = fs::read_to_string(bundle.path("asked")).unwrap();
    let first = "--injection-path /where/libraries/are --tool memcheck --error-exitcode 99";
    assert!(asked.starts_with(first) && asked.contains("--parts kernels"), "{asked}");
    // One that is merely on PATH has nothing to check here.
    assert_eq!(bundle.run(&["sanitizer"], None, "").0, Some(0));
}

#[test]
#[ignore = "needs the simulated device: cuda-sim/run cargo test --test integration check_gpu:: -- --ignored"]
fn every_stage_is_gone_through_and_written() {
    let bundle = Bundle::new();
    bundle.bring_dali();
    let (code, printed) = bundle.run(&[], None, "");
    assert_eq!(code, Some(0), "{printed}");
    let outcomes = |stage| bundle.steps(stage).into_iter().map(|(outcome, _)| outcome).collect::<Vec<_>>();
    assert_eq!(outcomes("correctness"), ["ok", "ok", "ok", "ok", "ok", "left out"]);
    assert_eq!(outcomes("bounds"), ["ok", "ok"]);
    let shares = &bundle.steps("bounds")[1].1;
    assert!(
        shares.starts_with("of a step's GPU, for images/s: device ") && shares.contains("device, crops"),
        "{shares}"
    );
    // The photographs are packed, and read by four decoders in batches of two sizes, and packed by two of them.
    assert_eq!(outcomes("decoding"), ["ok"; 1 + 2 * (4 + 2)]);
    // Two decoders, each with one and with twelve of each operation, and what that comes to.
    assert_eq!(outcomes("load"), ["ok"; 6]);
    // Packed, three digests and what they come to, and two ways with the page cache warm and cold.
    assert_eq!(outcomes("gpu_direct"), ["ok"; 1 + 3 + 1 + 2 * 2]);
    assert_eq!(outcomes("routes"), ["ok"; 9]);
    // All images on the engines have the CPU's bytes if our kernels convert their planes, gray ones too.
    let factors = &bundle.steps("engines")[0].1;
    assert!(
        factors.contains("pipeline ") && factors.ends_with("equal planes: [9, 1] of [9, 1] in color, gray"),
        "{factors}"
    );
    // The cases, how one compares with the other, two shares, and DALI's.
    let [.., dali] = &*outcomes("engines") else { panic!("{printed}") };
    assert_eq!((&outcomes("engines")[..4], &**dali), (&["ok"; 4].map(String::from)[..], "left out"), "{printed}");
    assert_eq!(outcomes("experiments"), ["ok"; 3]);
    assert!(!outcomes("sanitizer").is_empty() && !outcomes("priority").is_empty(), "{printed}");
    // Its parts were joined, and what it says then keeps nothing from going on.
    let dali = bundle.steps("peers").into_iter().filter(|(_, words)| words == "RuntimeError: this is DALI").count();
    assert!(dali == 14 && outcomes("peers").iter().all(|outcome| outcome == "left out"), "{printed}");

    // A fault ends neither the stage nor the check.
    let (code, printed) = bundle.run(&["correctness", "priority"], None, "nothing");
    assert_eq!(code, Some(1), "{printed}");
    assert_eq!(outcomes("correctness"), ["ok", "failed", "ok", "ok", "ok", "left out"]);
    assert_eq!(outcomes("priority"), ["ok", "ok"]);
    assert!(printed.contains("NOT ALL IS WELL"), "{printed}");

    // What there was no time for was not checked.
    let (code, printed) = bundle.run(&["correctness", "--limit-s", "0"], None, "");
    assert_eq!(code, Some(1), "{printed}");
    assert_eq!(outcomes("correctness"), ["no time", "no time", "no time", "no time", "left out"]);
}
