//! The command `warpfeed`, run as a user runs it.

use crate::common::{self, npy::read_npy};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use warpfeed::image::{JpegOptions, encode_jpeg};

const PROGRAM: &str = env!("CARGO_BIN_EXE_warpfeed");

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The output of a command that succeeds. It says nothing else: standard error is not a terminal here.
fn stdout(args: &[&str]) -> String {
    let output = output(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{args:?}");
    text(&output.stdout)
}

/// The output of `warpfeed recipe`. It says which sample that is.
fn recipe_of(args: &[&str]) -> String {
    let output = output(&[&["recipe"], args].concat());
    let said = text(&output.stderr);
    assert!(output.status.success() && said.starts_with("sample "), "{args:?}: {said}");
    text(&output.stdout)
}

/// The message of a command that fails, with this exit code. It prints no results.
fn failure(args: &[&str], code: i32) -> String {
    let output = output(args);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
    assert_eq!(text(&output.stdout), "", "{args:?}");
    assert!(!message.contains("panicked"), "{args:?}: {message}");
    message
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// 23 images in four classes, small enough to be quick, one turned by its EXIF tag.
fn images() -> &'static str {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..23_u64 {
            let class = folder.path().join(format!("class-{}", i % 4));
            fs::create_dir_all(&class).unwrap();
            let orientation = (i == 5).then_some(6);
            let options = JpegOptions { orientation, ..JpegOptions::default() };
            let image = common::image(90 + 3 * i as u32, 120 - i as u32, i);
            fs::write(class.join(format!("{i:02}.jpg")), encode_jpeg(&image, &options).unwrap()).unwrap();
        }
        folder
    });
    path(folder.path())
}

/// `warpfeed run` over the images, as JSON, with a digest.
fn run(options: &[&str]) -> Value {
    let args = [&["run", images(), "--json", "--digest"], options].concat();
    serde_json::from_str(&stdout(&args)).unwrap()
}

fn digest(options: &[&str]) -> String {
    let report = run(options);
    let digest = report["digest"].as_str().unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()));
    digest.to_owned()
}

#[test]
fn run_reports_what_it_did() {
    let report = run(&["--threads", "2", "--batch-size", "5"]);
    assert_eq!((&report["images"], &report["batches"], &report["epochs"]), (&json!(23), &json!(5), &json!(1)));
    assert_eq!(
        (&report["threads"], &report["strategy"], &report["device"]),
        (&json!(2), &json!("fused"), &json!("cpu"))
    );
    assert_eq!((&report["bad"], &report["bad_count"]), (&json!([]), &json!(0)));
    for field in ["seconds", "images_per_s", "first_batch_s", "peak_rss_bytes", "read_bytes", "prefetch"] {
        assert!(report[field].as_f64().unwrap() > 0.0, "{field}");
    }
    for stage in ["read", "decode", "augment", "consumer_wait", "worker_wait"] {
        assert!(report["stages"][stage].as_f64().unwrap() >= 0.0, "{stage}");
    }
    assert!(report["stages"]["decode"].as_f64().unwrap() > 0.0);
    let threads = report["thread_seconds"].as_array().unwrap();
    assert_eq!(threads.len(), 2);
    let sum = |activity: &str| threads.iter().filter_map(|thread| thread[activity].as_f64()).sum::<f64>();
    assert!(["read", "header", "draw", "decode", "augment", "batch"].into_iter().all(|activity| sum(activity) > 0.0));
    assert!((sum("read") / report["stages"]["read"].as_f64().unwrap() - 1.0).abs() < 0.2, "{report}");
    let rate = report["images"].as_f64().unwrap() / report["seconds"].as_f64().unwrap();
    assert!((report["images_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-6);
    // Without --digest there is none, and without --json the same in words.
    let plain: Value = serde_json::from_str(&stdout(&["run", images(), "--json"])).unwrap();
    assert!(plain.get("digest").is_none());
    let words = stdout(&["run", images(), "--digest"]);
    assert!(words.starts_with("23 images in 1 batches") && words.contains(&digest(&[])), "{words}");
}

#[test]
fn digests_depend_on_what_is_made_alone() {
    let want = digest(&[]);
    for same in [
        &["--threads", "1"][..],
        &["--threads", "7", "--prefetch", "1"],
        &["--prefetch", "5", "--batch-size", "1"],
        &["--batch-size", "100"],
        &["--last-batch", "pad"],
        &["--strategy", "sequential"],
        &["--preset", "train", "--epochs", "1", "--seed", "0", "--rank", "0/1", "--limit", "23", "--dtype", "f32"],
        &["--layout", "nchw", "--on-error", "skip", "--orientation", "apply", "--device", "cpu", "--load", "1"],
        &["--device", "auto", "--accept-truncated"],
    ] {
        assert_eq!(digest(same), want, "{same:?}");
    }
    let mut seen = std::collections::BTreeSet::from([want]);
    for other in [
        &["--seed", "1"][..],
        &["--epochs", "2"],
        &["--no-shuffle"],
        &["--no-shuffle", "--seed", "1"],
        &["--limit", "22"],
        &["--last-batch", "drop", "--batch-size", "5"],
        &["--rank", "0/2"],
        &["--rank", "1/2"],
        &["--dtype", "f16"],
        &["--dtype", "bf16"],
        &["--dtype", "u8"],
        &["--layout", "nhwc"],
        &["--orientation", "ignore"],
        &["--preset", "eval"],
        &["--preset", "trial-a"],
        &["--preset", "trial-a", "--load", "3"],
        &["--preset", "trial-a", "--strategy", "composed"],
        &["--preset", "trial-b"],
    ] {
        assert!(seen.insert(digest(other)), "{other:?} makes no difference");
    }
    assert_eq!(digest(&["--preset", "trial-b"]), digest(&["--preset", "trial-b", "--strategy", "sequential"]));
    // Evaluation draws nothing.
    let eval = |options: &[&str]| digest(&[&["--preset", "eval", "--no-shuffle"], options].concat());
    assert_eq!(eval(&["--seed", "1"]), eval(&["--seed", "2"]));
}

#[test]
fn a_run_says_what_its_source_has() {
    assert_eq!(run(&[])["source"], json!({"images": 23, "labels": true, "classes": 4, "passed_over": 0, "kinds": []}));
    assert!(stdout(&["run", images()]).contains("source        23 images, 4 classes\n"));
    let flat = tempfile::tempdir().unwrap();
    let photo = Path::new(images()).join("class-0/00.jpg");
    for name in ["a.jpg", "b.jpg", "notes.txt", "list.TXT", "LICENSE"] {
        fs::copy(&photo, flat.path().join(name)).unwrap();
    }
    let words = stdout(&["run", path(flat.path())]);
    assert!(words.contains("2 images, no labels, 3 files passed over (2 .txt, 1 without an ending)\n"), "{words}");
}

#[test]
fn images_that_lose_bits_or_alpha_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for (i, (color, depth)) in [
        (png::ColorType::Rgb, png::BitDepth::Eight),
        (png::ColorType::Grayscale, png::BitDepth::Sixteen),
        (png::ColorType::Rgba, png::BitDepth::Eight),
        (png::ColorType::GrayscaleAlpha, png::BitDepth::Sixteen),
    ]
    .into_iter()
    .enumerate()
    {
        let class = folder.path().join("class");
        fs::create_dir_all(&class).unwrap();
        let mut encoder = png::Encoder::new(fs::File::create(class.join(format!("{i}.png"))).unwrap(), 40, 40);
        encoder.set_color(color);
        encoder.set_depth(depth);
        let sample_bytes = color.samples() * if depth == png::BitDepth::Sixteen { 2 } else { 1 };
        encoder.write_header().unwrap().write_image_data(&vec![77; 1600 * sample_bytes]).unwrap();
    }
    let words = stdout(&["run", path(folder.path())]);
    let line = "cut to RGB    2 images had more than 8 bits a sample: the low bits are dropped; 2 images had an alpha";
    assert!(words.contains(line), "{words}");
    let report: Value = serde_json::from_str(&stdout(&["run", path(folder.path()), "--json"])).unwrap();
    assert_eq!((&report["sixteen_bits"], &report["alpha"]), (&json!(2), &json!(2)));
    assert!(run(&[])["sixteen_bits"] == 0 && !stdout(&["run", images()]).contains("cut to RGB"));
}

#[test]
fn images_smaller_than_a_crop_are_counted_or_bad() {
    let large = r#"[{"transform": "random_crop", "size": [500, 500]}]"#;
    let (_folder, file) = transforms(large);
    let options = ["--transforms", path(&file)];
    assert_eq!(run(&options)["smaller_than_crop"], 23);
    let words = stdout(&[&["run", images()], &options[..]].concat());
    assert!(words.contains("padded        23 of 23 images were smaller"), "{words}");
    assert!(run(&[])["smaller_than_crop"] == 0 && !stdout(&["run", images()]).contains("padded"));
    let (_folder, file) = transforms(&large.replace("[500, 500]", "[500, 500], \"pad_if_needed\": false"));
    let message = failure(&["run", images(), "--transforms", path(&file)], 1);
    assert!(message.contains("larger than the padded image") && message.contains("--on-error skip"), "{message}");
}

#[test]
fn wrong_lists_and_sizes_say_what_is_right() {
    for args in [&["tune", "--threads", "1", "2", images()][..], &["bench", "workers", "--batch-sizes", "8", "16"]] {
        let output = output(args);
        let message = text(&output.stderr);
        assert!(!output.status.success() && message.contains("one list without blanks"), "{args:?}: {message}");
    }
    // A list that is right has nothing to do with another error.
    let message = failure(&["run", "--devices", "0,1", "/no/such/folder"], 3);
    assert!(!message.contains("without blanks"), "{message}");
    let message = failure(&["tune", "--threads", "1,2", "/no/such/folder"], 1);
    assert!(message.contains("/no/such/folder") && !message.contains("without blanks"), "{message}");
    for size in ["4", "4G"] {
        let message = failure(&["run", images(), "--image-cache", size], 2);
        assert!(message.contains("GB") && message.contains("GiB"), "{message}");
    }
}

#[test]
fn all_transforms_are_listed() {
    let list: Value = serde_json::from_str(&stdout(&["transforms", "--json"])).unwrap();
    let words = stdout(&["transforms"]);
    for entry in list.as_array().unwrap() {
        assert!(words.contains(entry["constructor"].as_str().unwrap()), "{entry}");
        let (_folder, file) =
            transforms(&format!("[{}, {{\"op\": \"center_crop\", \"width\": 8, \"height\": 8}}]", entry["written"]));
        // Those that come after normalize, that which needs larger images, those which a transform draws with another
        // sample, those which need masks, and that which needs buckets.
        let other = [
            "bucket_crop",
            "normalize",
            "to_float",
            "erase",
            "random_erasing",
            "corner_crop",
            "mix_up",
            "copy_paste",
            "random_copy_paste",
        ];
        let name = entry["name"].as_str().unwrap();
        if !other.contains(&name) && name != "yolo_copy_paste" {
            stdout(&["run", images(), "--limit", "1", "--transforms", path(&file)]);
        }
    }
}

#[test]
fn buckets_are_listed_with_the_steps_of_a_rank() {
    let of = |rank: &str, more: &[&str]| {
        let options = ["buckets", images(), "--buckets", "64x48,48x64,64x64", "--batch-size", "3", "--rank", rank];
        stdout(&[&options[..], more].concat())
    };
    let report = |rank: &str| -> Value { serde_json::from_str(&of(rank, &["--json", "--steps"])).unwrap() };
    let reports = ["0/2", "1/2"].map(report);
    let sum = |name: &str| -> u64 {
        reports[0]["buckets"].as_array().unwrap().iter().map(|bucket| bucket[name].as_u64().unwrap()).sum()
    };
    let steps = reports.each_ref().map(|report| report["steps"].as_array().unwrap());
    let shapes = steps.map(|steps| steps.iter().map(|step| [&step["width"], &step["height"]]).collect::<Vec<_>>());
    assert_eq!(shapes[0], shapes[1], "ranks have the same size in each step");
    let samples: Vec<u64> = steps
        .iter()
        .flat_map(|steps| steps.iter().flat_map(|step| step["indices"].as_array().unwrap()))
        .map(|index| index.as_u64().unwrap())
        .collect();
    let different: std::collections::BTreeSet<u64> = samples.iter().copied().collect();
    assert_eq!((sum("samples"), different.len(), sum("dropped")), (23, 23, 0));
    assert_eq!((samples.len() as u64, steps[0].len() as u64), (23 + sum("repeated"), sum("steps")));
    assert!(of("0/2", &[]).contains("23 images"));
    let lost = failure(
        &["buckets", images(), "--buckets", "64x48,48x64,64x64", "--batch-size", "30", "--last-batch", "drop"],
        1,
    );
    assert!(lost.contains("whole bucket") && lost.contains("lossy"), "{lost}");

    // `run` delivers the same batches with any number of threads.
    let run = |more: &[&str]| {
        let options = ["run", images(), "--buckets", "64x48,48x64,64x64", "--batch-size", "3", "--json", "--digest"];
        serde_json::from_str::<Value>(&stdout(&[&options[..], more].concat())).unwrap()
    };
    assert_eq!(run(&["--threads", "1"])["digest"], run(&["--threads", "3"])["digest"]);
}

#[test]
fn counts_follow_the_options() {
    let counts = |options: &[&str]| {
        let report = run(options);
        (report["images"].as_u64().unwrap(), report["batches"].as_u64().unwrap())
    };
    assert_eq!(counts(&["--batch-size", "5", "--last-batch", "keep"]), (23, 5));
    assert_eq!(counts(&["--batch-size", "5", "--last-batch", "drop"]), (20, 4));
    assert_eq!(counts(&["--batch-size", "5", "--last-batch", "pad"]), (23, 5));
    assert_eq!(counts(&["--batch-size", "5", "--epochs", "3"]), (69, 15));
    assert_eq!(counts(&["--limit", "7", "--batch-size", "5"]), (7, 2));
    assert_eq!(counts(&["--rank", "0/3"]).0 + counts(&["--rank", "1/3"]).0 + counts(&["--rank", "2/3"]).0, 23);
    for zero in ["--epochs", "--limit", "--load"] {
        assert!(failure(&["run", images(), zero, "0"], 2).contains(zero));
    }
    assert!(failure(&["run", images(), "--window", "100"], 2).contains("a folder of images"));
}

/// The same samples as a list file, in the same order, have the same digest.
#[test]
fn a_list_is_as_good_as_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.tsv");
    let mut lines = String::new();
    for class in 0..4 {
        let mut names: Vec<_> = fs::read_dir(Path::new(images()).join(format!("class-{class}")))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.sort();
        names.iter().for_each(|name| lines += &format!("{}\t{class}\n", name.display()));
    }
    fs::write(&list, lines).unwrap();
    let report: Value = serde_json::from_str(&stdout(&["run", path(&list), "--json", "--digest"])).unwrap();
    assert_eq!(report["digest"], digest(&[]));
}

/// The images, one of them cut short; and that one's path.
fn with_a_truncated_one() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    for class in fs::read_dir(images()).unwrap().map(Result::unwrap) {
        fs::create_dir(folder.path().join(class.file_name())).unwrap();
        for file in fs::read_dir(class.path()).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), folder.path().join(class.file_name()).join(file.file_name())).unwrap();
        }
    }
    let bad = folder.path().join("class-2/10.jpg");
    let bytes = fs::read(&bad).unwrap();
    fs::write(&bad, &bytes[..bytes.len() / 2]).unwrap();
    (folder, bad)
}

#[test]
fn bad_images_follow_the_policy() {
    let (folder, bad) = with_a_truncated_one();
    let folder = path(folder.path());
    for options in [&[][..], &["--on-error", "fail"], &["--json", "--digest"]] {
        let message = failure(&[&["run", folder], options].concat(), 1);
        assert!(message.starts_with("warpfeed: ") && message.contains(path(&bad)), "{message}");
        assert!(message.contains("truncated"), "{message}");
    }
    for (policy, images) in [("skip", 22), ("substitute", 23)] {
        let args = ["run", folder, "--json", "--digest", "--on-error", policy, "--epochs", "2", "--threads"];
        let report = |threads| -> Value { serde_json::from_str(&stdout(&[&args[..], &[threads]].concat())).unwrap() };
        let (one, three) = (report("1"), report("3"));
        assert_eq!(one["digest"], three["digest"]);
        assert_eq!((&one["images"], &one["bad_count"]), (&json!(2 * images), &json!(2)));
        let listed = one["bad"].as_array().unwrap();
        assert_eq!(listed.len(), 2);
        for entry in listed {
            assert_eq!((&entry["path"], &entry["index"]), (&json!(path(&bad)), &json!(14)));
            assert!(entry["error"].as_str().unwrap().contains("truncated"));
        }
        let words = stdout(&["run", folder, "--on-error", policy]);
        assert!(words.contains("not usable    1 images") && words.contains(path(&bad)), "{words}");
    }
    let limited = |limit| output(&["run", folder, "--on-error", "skip", "--max-bad", limit]).status.code();
    assert_eq!(["0", "1", "4%", "5%", "101%", "few"].map(limited), [1, 0, 1, 0, 2, 2].map(Some));
    let accepted: Value = serde_json::from_str(&stdout(&["run", folder, "--json", "--accept-truncated"])).unwrap();
    assert_eq!((&accepted["images"], &accepted["bad_count"]), (&json!(23), &json!(0)));
}

#[test]
fn crops_of_images_with_restarts_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("train");
    let packing = ["pack", images(), "-o", path(&out), "--format", "webdataset", "--restarts"];
    assert!(stdout(&packing).contains("23 with restart markers"));
    let crops = ["--preset", "train", "--seed", "5"];
    let plain = run(&crops);
    let args = [&["run", path(&out), "--json", "--digest"], &crops[..]].concat();
    let packed: Value = serde_json::from_str(&stdout(&args)).unwrap();
    assert_eq!(packed["digest"], plain["digest"]);
    assert_eq!(plain["decoded"]["restarts"], 0);
    let restarts = packed["decoded"]["restarts"].as_u64().unwrap();
    assert!(restarts > 10, "{restarts}");
    let line = format!("restarts      {restarts} of 23 images");
    assert!(stdout(&[&["run", path(&out)], &crops[..]].concat()).contains(&line));
}

/// Shards damaged at random: whatever is left of them comes, the rest is counted and named with shard and place.
#[test]
fn damaged_shards_are_told_from_whole_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (mut skipped, mut refused) = (0, 0);
    for (format, ending) in [("webdataset", "tar"), ("recordio", "rec"), ("tfrecord", "tfrecord")] {
        let packed = folder.path().join(format);
        stdout(&["pack", images(), "-o", path(&packed), "--format", format]);
        let shards = fs::read_dir(&packed).unwrap().map(|entry| entry.unwrap().path());
        let [shard] =
            &shards.filter(|path| path.extension().is_some_and(|found| found == ending)).collect::<Vec<_>>()[..]
        else {
            panic!("one shard")
        };
        let whole = fs::read(shard).unwrap();
        let damaged = folder.path().join(format!("damaged.{ending}"));
        for seed in 1..=12_u64 {
            let mut random = common::Random(seed);
            let mut bytes = whole.clone();
            let at = random.next() as usize % bytes.len();
            match seed % 3 {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << (random.next() % 8),
                // A block of nothing, longer than any header.
                _ => bytes[at..].iter_mut().take(3000).for_each(|byte| *byte = 0xff),
            }
            fs::write(&damaged, bytes).unwrap();
            let damaged = path(&damaged);
            let args = ["run", damaged, "--json", "--no-shuffle", "--on-error", "skip"];
            let output = output(&args);
            let message = text(&output.stderr);
            if output.status.success() {
                let report: Value = serde_json::from_slice(&output.stdout).unwrap();
                let (images, bad) = (report["images"].as_u64().unwrap(), report["bad_count"].as_u64().unwrap());
                assert!(images + bad <= 24 && (seed % 3 == 0 || images + bad > 0), "{format}, seed {seed}: {report}");
                for entry in report["bad"].as_array().unwrap() {
                    let named = entry["path"].as_str().unwrap().contains(damaged);
                    assert!(named && !entry["error"].as_str().unwrap().is_empty(), "{format}, seed {seed}: {entry}");
                }
                if bad > 0 {
                    let message = failure(&[&args[..4], &["--on-error", "fail"]].concat(), 1);
                    assert!(message.contains(damaged), "{format}, seed {seed}: {message}");
                }
                skipped += bad;
            } else {
                assert_eq!(output.status.code(), Some(1), "{format}, seed {seed}: {message}");
                assert!(message.contains(damaged) && !message.contains("panicked"), "{format}, seed {seed}: {message}");
                refused += 1;
            }
        }
    }
    assert!(skipped > 10, "{skipped} bad, {refused} refused");
}

#[test]
fn images_are_kept_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let cache = path(folder.path());
    let args = ["--epochs", "2", "--resize-first", "64"];
    let want = digest(&args);
    assert_ne!(want, digest(&args[..2]));
    let in_memory = run(&[&args[..], &["--image-cache", "100MB"]].concat());
    assert_eq!((&in_memory["digest"], &in_memory["cached"]), (&json!(want), &json!(23)));
    let on_disk = [&args[..], &["--image-cache", "100MB", "--image-cache-dir", cache]].concat();
    for cached in [23, 46] {
        let report = run(&on_disk);
        assert_eq!((&report["digest"], &report["cached"]), (&json!(want), &json!(cached)));
        assert_eq!((&report["cache"]["images"], &report["cache"]["full"]), (&json!(23), &json!(false)));
    }
    let words = stdout(&["run", images(), "--image-cache", "0"]);
    assert!(words.contains("image cache   0 of 23 images came from it") && words.contains("no room"), "{words}");
    assert!(failure(&["run", images(), "--image-cache-dir", cache], 2).contains("--image-cache"));
}

// ---- apply ----

struct Applied {
    folder: tempfile::TempDir,
    image: PathBuf,
}

impl Applied {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image.jpg");
        let options = JpegOptions { orientation: Some(6), ..JpegOptions::default() };
        fs::write(&image, encode_jpeg(&common::image(50, 40, 3), &options).unwrap()).unwrap();
        Self { folder, image }
    }

    fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `apply` with the operations on standard input.
    fn run(&self, ops: &str, out: &str, options: &[&str]) -> Output {
        let out = self.out(out);
        let args = [&["apply", path(&self.image), "--ops", "-", "-o", path(&out)], options].concat();
        let mut child =
            command(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that refuses its options reads nothing.
        let _ = child.stdin.take().unwrap().write_all(ops.as_bytes());
        child.wait_with_output().unwrap()
    }

    fn array(&self, ops: &str, options: &[&str]) -> (String, Vec<u64>, Vec<f32>) {
        let output = self.run(ops, "out.npy", options);
        assert!(output.status.success(), "{ops}: {}", text(&output.stderr));
        assert_eq!((text(&output.stdout), text(&output.stderr)), (String::new(), String::new()));
        read_npy(&self.out("out.npy"))
    }
}

#[test]
fn apply_knows_every_operation() {
    let applied = Applied::new();
    let plain = applied.array("[]", &[]);
    assert_eq!((plain.0.as_str(), &plain.1[..]), ("|u1", &[50, 40, 3][..]), "upright: 40 wide, 50 high");
    let mut seen = Vec::new();
    for (op, shape) in [
        (r#"{"op": "hflip"}"#, [50, 40, 3]),
        (r#"{"op": "vflip"}"#, [50, 40, 3]),
        (r#"{"op": "rotate", "degrees": 5}"#, [50, 40, 3]),
        (r#"{"op": "rotate", "degrees": 5, "interpolation": "bilinear", "fill": [1, 2, 3]}"#, [50, 40, 3]),
        (r#"{"op": "rotate", "degrees": 90, "expand": true, "fill": "edge"}"#, [40, 50, 3]),
        (r#"{"op": "resize", "width": 10, "height": 20, "interpolation": "bicubic"}"#, [20, 10, 3]),
        (r#"{"op": "resize", "size": 20, "interpolation": "lanczos"}"#, [25, 20, 3]),
        (r#"{"op": "resize", "size": 20, "interpolation": "nearest"}"#, [25, 20, 3]),
        (r#"{"op": "crop", "x": 3, "y": 4, "width": 10, "height": 20}"#, [20, 10, 3]),
        (r#"{"op": "center_crop", "width": 10, "height": 20}"#, [20, 10, 3]),
        (
            r#"{"op": "resized_crop", "x": 1, "y": 2, "width": 30, "height": 31, "out_width": 8, "out_height": 9}"#,
            [9, 8, 3],
        ),
        (r#"{"op": "gaussian_blur", "kernel": 5, "sigma": 1.5}"#, [50, 40, 3]),
        (r#"{"op": "dilate", "kernel": 3}"#, [50, 40, 3]),
        (r#"{"op": "erode", "kernel": 3}"#, [50, 40, 3]),
        (r#"{"op": "brightness", "factor": 0.5}"#, [50, 40, 3]),
        (r#"{"op": "contrast", "factor": 0.5}"#, [50, 40, 3]),
        (r#"{"op": "saturation", "factor": 0.5}"#, [50, 40, 3]),
        (r#"{"op": "hue", "factor": 0.2}"#, [50, 40, 3]),
        (r#"{"op": "grayscale"}"#, [50, 40, 3]),
        (r#"{"op": "erase", "x": 1, "y": 2, "width": 5, "height": 6, "value": [9, 8, 7]}"#, [50, 40, 3]),
    ] {
        let ops = format!("[{op}]");
        let got = applied.array(&ops, &[]);
        assert_eq!(got.1, shape, "{op}");
        assert_eq!(applied.array(&ops, &["--strategy", "sequential", "--device", "cpu"]), got, "{op}");
        assert_ne!(got, plain, "{op} does nothing");
        assert!(!seen.contains(&got), "{op} does what another does");
        seen.push(got);
    }
    let normalized = applied.array(r#"[{"op": "normalize", "mean": [0.5, 0, 0], "std": [2, 1, 0.5]}]"#, &[]);
    assert_eq!((normalized.0.as_str(), &normalized.1[..]), ("<f4", &[3, 50, 40][..]));
    for (i, value) in normalized.2.iter().enumerate() {
        let (c, at) = (i / 2000, i % 2000);
        let v = plain.2[3 * at + c] / 255.0;
        assert_eq!(*value, (v - [0.5, 0.0, 0.0][c]) / [2.0, 1.0, 0.5][c]);
    }
    let two = r#"[{"op": "rotate", "degrees": 3}, {"op": "rotate", "degrees": 4}]"#;
    assert_ne!(applied.array(two, &["--strategy", "composed"]), applied.array(two, &[]));
    assert_eq!(applied.array("[]", &["--orientation", "ignore"]).1, [40, 50, 3]);
    assert_eq!(applied.array("[]", &["--orientation", "apply"]), plain);
}

#[test]
fn apply_reads_files_and_writes_images() {
    let applied = Applied::new();
    let ops = applied.out("ops.json");
    fs::write(&ops, r#"[{"op": "center_crop", "width": 20, "height": 10}]"#).unwrap();
    let (png, image) = (applied.out("out.PNG"), path(&applied.image));
    assert_eq!(stdout(&["apply", image, "--ops", path(&ops), "--output", path(&png)]), "");
    let array = applied.array(&fs::read_to_string(&ops).unwrap(), &[]);
    // A PNG is an image that can be read again.
    let again = Applied { image: png, ..applied };
    assert_eq!(again.array("[]", &[]), array);
    let cut = again.out("cut.jpg");
    let bytes = fs::read(again.out("image.jpg")).unwrap();
    fs::write(&cut, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let truncated = Applied { image: cut.clone(), ..again };
    let refused = truncated.run("[]", "no.npy", &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains(path(&cut)) && text(&refused.stderr).contains("truncated"));
    assert!(!truncated.out("no.npy").exists());
    assert_eq!(truncated.array("[]", &["--accept-truncated"]).1, [50, 40, 3]);
}

#[test]
fn apply_says_what_is_wrong_with_the_operations() {
    let applied = Applied::new();
    for (ops, words) in [
        ("", &["--ops", "JSON list"][..]),
        ("{}", &["JSON list"]),
        ("[{}]", &["missing field `op`"]),
        (r#"[{"op": "turn"}]"#, &["unknown variant `turn`", "rotate", "center_crop"]),
        (r#"[{"op": "rotate"}]"#, &["missing field `degrees`"]),
        (r#"[{"op": "rotate", "degrees": 5, "speed": 1}]"#, &["unknown field `speed`", "interpolation"]),
        (r#"[{"op": "rotate", "degrees": 5, "interpolation": "cubic"}]"#, &["`cubic`", "nearest"]),
        (r#"[{"op": "rotate", "degrees": 5, "interpolation": "lanczos"}]"#, &["nearest, bilinear or bicubic"]),
        (r#"[{"op": "rotate", "degrees": 5, "fill": [1, 2, 300]}]"#, &["fill must be numbers from 0 to 255"]),
        (r#"[{"op": "rotate", "degrees": 5, "fill": "red"}]"#, &["0 to 255", "edge"]),
        (r#"[{"op": "resize", "width": 5}]"#, &["width and height, or size"]),
        (r#"[{"op": "resize", "width": 0, "height": 5}]"#, &["1 to 65535"]),
        (r#"[{"op": "gaussian_blur", "kernel": 4, "sigma": 1}]"#, &["odd"]),
        (r#"[{"op": "hue", "factor": 0.7}]"#, &["-0.5 to 0.5"]),
        (r#"[{"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}, {"op": "hflip"}]"#, &["before normalize"]),
        (r#"[{"op": "erase", "x": 39, "y": 0, "width": 5, "height": 5}]"#, &["inside the image of 40 x 50"]),
    ] {
        let output = applied.run(ops, "out.npy", &[]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{ops}: {message}");
        assert!(words.iter().all(|word| message.contains(word)), "{ops}: {message}");
        assert!(!applied.out("out.npy").exists());
    }
    let normalize = r#"[{"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}]"#;
    for (ops, out, words) in [(normalize, "out.png", ".npy"), ("[]", "out.gif", ".png or .npy"), ("[]", "out", ".npy")]
    {
        let output = applied.run(ops, out, &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

// ---- transforms from a file ----

/// A file of transforms, in a folder of its own.
fn transforms(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("transforms.json");
    fs::write(&file, text).unwrap();
    (folder, file)
}

const TRAIN: &str = r#"[
    {"transform": "random_resized_crop", "size": [224, 224]},
    {"transform": "random_horizontal_flip", "p": 0.5},
    {"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
]"#;

#[test]
fn transforms_from_a_file_are_as_good_as_a_preset() {
    let (folder, file) = transforms(TRAIN);
    for dtype in ["f32", "u8"] {
        assert_eq!(digest(&["--dtype", dtype, "--transforms", path(&file)]), digest(&["--dtype", dtype]));
    }
    let sheet = |name: &str, options: &[&str]| {
        let out = folder.path().join(name);
        stdout(&[&["preview", images(), "--columns", "2", "--rows", "1", "-o", path(&out)], options].concat());
        fs::read(out).unwrap()
    };
    assert_eq!(sheet("a.png", &["--transforms", path(&file)]), sheet("b.png", &[]));
    // A state is of one run.
    let state = folder.path().join("state.json");
    let run = ["run", images(), "--dtype", "u8", "--state", path(&state)];
    let with = |text: &str, code| {
        let (_folder, file) = transforms(text);
        output(&[&run[..], &["--transforms", path(&file)]].concat()).status.code() == Some(code)
    };
    assert!(with(TRAIN, 0) && with(&TRAIN.replace("0.5}", "0.50}"), 0) && with(&TRAIN.replace("0.5}", "0.6}"), 2));
    for bench in ["workers", "configurations", "diagnose"] {
        let (_folder, wrong) = transforms(r#"[{"op": "vflap"}]"#);
        let message = failure(&["bench", bench, images(), "--transforms", path(&wrong)], 2);
        assert!(message.contains("unknown variant `vflap`"), "{bench}: {message}");
    }
}

#[test]
fn a_recipe_replayed_gives_the_pipelines_pixels() {
    let text = r#"[
        {"transform": "repeat", "n": 2, "transforms": [{"transform": "random_rotation", "degrees": [-9, 9]}]},
        {"transform": "maybe", "p": 0.5, "transforms": [{"op": "vflip"}]},
        {"transform": "random_resized_crop", "size": [20, 24]},
        {"transform": "color_jitter", "brightness": [0.6, 1.4], "contrast": [0.6, 1.4]},
        {"op": "normalize", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    ]"#;
    let (folder, file) = transforms(text);
    let source = warpfeed::source::ImageFolder::open(images()).unwrap();
    let transforms = warpfeed::ops::TransformFile::read(&file).unwrap().without_normalize();
    let builder = warpfeed::Pipeline::builder(source).seed(3).batch_size(1).transforms(transforms);
    let pipeline = builder.output(warpfeed::DType::U8, warpfeed::Layout::Nhwc).build().unwrap();
    let classes = |i: u64| format!("{}/class-{}/{i:02}.jpg", images(), i % 4);
    let names = (0..23).map(classes).collect::<std::collections::BTreeSet<_>>();
    let options = ["--epoch", "1", "--seed", "3", "--dtype", "u8", "--transforms", path(&file)];
    for (index, (batch, name)) in pipeline.epoch(1).zip(names).enumerate() {
        let recipe = recipe_of(&[&[images(), "--index", &index.to_string()], &options[..]].concat());
        let (ops, out) = (folder.path().join("ops.json"), folder.path().join("out.npy"));
        fs::write(&ops, recipe).unwrap();
        stdout(&["apply", &name, "--ops", path(&ops), "--orientation", "ignore", "-o", path(&out)]);
        let (_, shape, values) = read_npy(&out);
        let want: Vec<f32> = batch.unwrap().images().as_bytes().unwrap().iter().map(|&byte| byte.into()).collect();
        assert_eq!(shape, [24, 20, 3]);
        assert!(values == want, "{name}");
    }
    let message = failure(&["recipe", images(), "--index", "23"], 2);
    assert!(message.contains("below 23"), "{message}");
}

#[test]
fn a_sample_of_any_source_is_replayed_by_index_or_name() {
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("shards");
    stdout(&["pack", images(), "-o", path(&shards), "--format", "webdataset"]);
    let names: Vec<_> = (0..23).map(|i| format!("class-{}/{i:02}.jpg", i % 4)).collect();
    let first = names.iter().min().unwrap();
    let applied = |source: &str, sample: &[&str]| {
        let recipe = recipe_of(&[&[source, "--seed", "3", "--dtype", "u8"], sample].concat());
        let (ops, out) = (folder.path().join("ops.json"), folder.path().join("out.npy"));
        fs::write(&ops, recipe).unwrap();
        let options = ["--ops", path(&ops), "--orientation", "ignore", "-o", path(&out)];
        stdout(&[&["apply", source], sample, &options].concat());
        read_npy(&out).2
    };
    let want = applied(images(), &["--index", "0"]);
    assert!(applied(images(), &["--name", first]) == want && applied(path(&shards), &["--index", "0"]) == want);
    // Each occurrence of a sample has a recipe of its own.
    let repeated = |n: &str| recipe_of(&[images(), "--preset", "deit", "--index", "1", "--repetition", n]);
    assert!(repeated("0") == repeated("0") && repeated("0") != repeated("1"));
    assert!(failure(&["recipe", images(), "--name", "nobody.jpg"], 2).contains("nobody.jpg"));
    failure(&["recipe", images()], 2);
}

const VIEWS: &str = r#"[
    {"op": "resize", "size": 60},
    {"views": [
        {"transforms": [{"transform": "random_resized_crop", "size": [20, 24]}], "times": 2},
        {"transforms": [{"op": "center_crop", "width": 9, "height": 9}]}
    ]},
    {"transform": "random_horizontal_flip", "p": 0.5},
    {"op": "normalize", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
]"#;

#[test]
fn a_file_may_have_views() {
    let (_folder, file) = transforms(VIEWS);
    let recipe = |index: &str, extra: &[&str]| -> Value {
        let args = [&[images(), "--index", index, "--transforms", path(&file)], extra].concat();
        serde_json::from_str(&recipe_of(&args)).unwrap()
    };
    let recipes = recipe("0", &[]);
    assert_eq!(recipes.as_array().unwrap().len(), 3, "{recipes}");
    for (recipe, last) in recipes.as_array().unwrap().iter().zip(["resized_crop", "resized_crop", "center_crop"]) {
        assert_eq!((&recipe[0]["op"], &recipe[1]["op"]), (&json!("resize"), &json!(last)), "{recipe}");
        assert_eq!(recipe.as_array().unwrap().last().unwrap()["op"], "normalize");
    }
    assert_ne!(recipes[0], recipes[1]);
    assert!(!recipe("0", &["--dtype", "u8"]).to_string().contains("normalize"));
    // All views are in the digest: that of a view alone is another.
    let with = |file: &Path| digest(&["--transforms", path(file)]);
    let all = with(&file);
    assert_eq!(with(&file), all);
    for (from, to) in [(r#""times": 2"#, r#""times": 1"#), (r#""width": 9"#, r#""width": 8"#)] {
        let (_folder, other) = transforms(&VIEWS.replace(from, to));
        assert_ne!(with(&other), all);
    }
    for (from, to, words) in [
        (r#""times": 2"#, r#""times": 0"#, "view: times must be 1 to 1000, got 0"),
        (r#""times": 2"#, r#""number": 2"#, "item 2 of 4: views: unknown field `number`"),
        (r#""width": 9"#, r#""width": 0"#, "item 2 of 4: center_crop: width"),
    ] {
        let (_folder, wrong) = transforms(&VIEWS.replace(from, to));
        let message = failure(&["run", images(), "--transforms", path(&wrong)], 2);
        assert!(message.contains(words), "{message}");
    }
    // A sheet shows all views of an image in a row.
    let sheet = file.with_file_name("views.png");
    stdout(&["preview", images(), "-o", path(&sheet), "--transforms", path(&file)]);
    assert!(sheet.metadata().unwrap().len() > 1_000);
}

#[test]
fn wrong_transforms_are_told_by_file_place_and_field() {
    let flip = r#"{"transform": "random_horizontal_flip", "p": 0.5}"#;
    for (text, words) in [
        ("[", &["EOF"][..]),
        ("{}", &["a JSON list"]),
        ("[{}]", &["item 1 of 1", "\"transform\"", "\"op\""]),
        (&format!("[{flip}] []"), &["trailing"]),
        (
            &format!(r#"[{flip}, {{"transform": "random_flip"}}]"#),
            &["item 2 of 2", "`random_flip`", "`random_vertical_flip`"],
        ),
        (&format!(r#"[{flip}, {{"op": "rotate", "degree": 5}}]"#), &["item 2 of 2: rotate", "`degree`", "`degrees`"]),
        (r#"[{"transform": "random_rotation"}]"#, &["item 1 of 1: random_rotation: missing field `degrees`"]),
        (
            r#"[{"transform": "random_vertical_flip", "p": 2}]"#,
            &["item 1 of 1", "p must be a probability, 0 to 1, got 2"],
        ),
        (
            r#"[{"transform": "one_of", "transforms": [{"op": "hflip"}, {"op": "hue", "by": 1}]}]"#,
            &["item 1 of 1: one_of: item 2 of 2: hue: unknown field `by`, expected `factor`"],
        ),
    ] {
        let (_folder, file) = transforms(text);
        let message = failure(&["run", images(), "--transforms", path(&file)], 2);
        assert!(message.contains(path(&file)), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{text}: {message}");
    }
    let message = failure(&["run", images(), "--transforms", "no/such.json"], 1);
    assert!(message.contains("no/such.json"), "{message}");
    let (_folder, file) = transforms(TRAIN);
    failure(&["run", images(), "--transforms", path(&file), "--preset", "eval"], 2);
}

// ---- the others ----

#[test]
fn diff_shows_what_a_policy_changes() {
    let crop = r#"{"transform": "random_resized_crop", "size": [32, 32]}"#;
    let (_a, a) =
        transforms(&format!(r#"[{crop}, {{"transform": "random_rotation", "degrees": [-9, 9], "as": "turn"}}]"#));
    let jitter = r#"{"transform": "random_invert", "p": 0.5}"#;
    let (_b, b) = transforms(&format!(
        r#"[{crop}, {jitter}, {{"transform": "random_rotation", "degrees": [-9, 9], "as": "turn"}}]"#
    ));
    let sheets = tempfile::tempdir().unwrap();
    let sheet = sheets.path().join("s.png");
    let args = ["diff", path(&a), path(&b), images(), "--rows", "3"];
    let words = stdout(&[&args[..], &["-o", path(&sheet)]].concat());
    assert!(words.contains(" of 23 images differ") && words.contains("invert in B"), "{words}");
    assert_eq!(warpfeed::image::probe(&fs::read(&sheet).unwrap()).unwrap().size.width, 2 * 32 + 3 * 4);
    let found: Value = serde_json::from_str(&stdout(&[&args[..], &["--json"]].concat())).unwrap();
    let changed = found["changed"].as_u64().unwrap();
    assert!((4..20).contains(&changed), "half of 23 are inverted, and no other differs: {found}");
    assert_eq!(found["most"][0]["first"][1]["op"], "invert");
    // Without the name, the rotation of every image is another one.
    let plain = |file: &Path| transforms(&fs::read_to_string(file).unwrap().replace(r#", "as": "turn""#, ""));
    let ((_c, c), (_d, d)) = (plain(&a), plain(&b));
    let all: Value = serde_json::from_str(&stdout(&["diff", path(&c), path(&d), images(), "--json"])).unwrap();
    assert_eq!(all["changed"], 23);
    // Presets, and faults.
    assert!(stdout(&["diff", "train", "train", images(), "--limit", "4"]).starts_with("0 of 4 images"));
    assert!(failure(&["diff", "trian", "train", images()], 1).contains("trian"));
    failure(&["diff", "train", "eval", images(), "--rows", "0"], 2);
}

#[test]
fn preview_writes_a_sheet() {
    let folder = tempfile::tempdir().unwrap();
    let sheet = |name: &str, options: &[&str]| {
        let out = folder.path().join(name);
        let words = stdout(&[&["preview", images(), "-o", path(&out)], options].concat());
        assert!(words.contains(path(&out)), "{words}");
        let bytes = fs::read(out).unwrap();
        assert!(bytes.starts_with(b"\x89PNG"));
        (warpfeed::image::probe(&bytes).unwrap().size, bytes)
    };
    let few = ["--columns", "3", "--rows", "2"];
    let (size, want) = sheet("a.png", &few);
    // 224 pixels an image, gaps between them.
    assert!((3 * 224..3 * 224 + 40).contains(&size.width) && (2 * 224..2 * 224 + 40).contains(&size.height), "{size}");
    assert_eq!(sheet("b.png", &[&few[..], &["--preset", "train", "--seed", "0", "--epoch", "0"]].concat()).1, want);
    for other in [&["--seed", "1"][..], &["--epoch", "1"], &["--preset", "trial-a", "--load", "2"]] {
        assert_ne!(sheet("c.png", &[&few[..], other].concat()).1, want, "{other:?}");
    }
    let jpeg = folder.path().join("s.jpg");
    let json: Value =
        serde_json::from_str(&stdout(&[&["preview", images(), "--json", "-o", path(&jpeg)], &few[..]].concat()))
            .unwrap();
    let bytes = fs::read(jpeg).unwrap();
    let size = warpfeed::image::probe(&bytes).unwrap().size;
    assert!(bytes.starts_with(b"\xff\xd8") && json["width"] == size.width, "{json}");
    let samples = json["samples"].as_array().unwrap();
    assert_eq!((samples.len(), &samples[4]["row"], &samples[4]["column"]), (6, &json!(2), &json!(2)));
    let names_its_class = |sample: &Value| {
        let class = sample["classes"][0].as_str().unwrap();
        class.starts_with("class-") && sample["name"].as_str().unwrap().contains(&format!("/{class}/"))
    };
    assert!(samples.iter().all(names_its_class), "{json}");
    failure(&["preview", images(), "-o", path(&folder.path().join("s.gif"))], 2);
    // A sample with views is a row.
    let (_views, file) = transforms(VIEWS);
    let views = ["preview", images(), "--json", "--rows", "2", "--transforms", path(&file), "-o"];
    let json: Value =
        serde_json::from_str(&stdout(&[&views[..], &[path(&folder.path().join("v.png"))]].concat())).unwrap();
    let places = |key: &str| json["samples"].as_array().unwrap().iter().map(|sample| sample[key].clone()).collect();
    assert_eq!((places("row"), places("column")), (vec![json!(1), json!(2)], vec![json!(1); 2]));
    let (wide, _) = sheet("d.png", &["--columns", "1", "--rows", "1", "--preset", "eval"]);
    assert!(wide.width < 300);
    let message = failure(&["preview", images(), "-o", "/no/such/folder/s.png", "--columns", "1", "--rows", "1"], 1);
    assert!(message.contains("/no/such/folder/s.png"), "{message}");
    let message = failure(&["preview", images(), "-o", path(&folder.path().join("e.png")), "--rows", "0"], 2);
    assert!(message.contains("rows"), "{message}");
}

#[test]
fn published_recipes_mix_repeat_and_have_views() {
    let recipe = |options: &[&str]| {
        let text = stdout(&[&["run", images(), "--preset", "resnet50-v2", "--limit", "8"], options].concat());
        text.lines().find_map(|line| line.strip_prefix("recipe ")).unwrap().trim().to_owned()
    };
    let own = "resnet50-v2 mixes torchvision=0.2/1, each image comes 4 times in a row, targets are soft=4/0.1";
    assert_eq!(recipe(&[]), own);
    let given = recipe(&["--mix", "timm=1/0", "--targets", "soft=10"]);
    assert!(given.contains("mixes timm=1/0") && given.ends_with("targets are soft=10"), "{given}");
    let digest =
        |options: &[&str]| run(&[&["--preset", "resnet50-v2", "--limit", "8"], options].concat())["digest"].clone();
    assert_eq!(digest(&[]), digest(&["--targets", "soft=4/0.1", "--mix", "torchvision=0.2/1"]));
    assert_ne!(digest(&[]), digest(&["--targets", "soft=4"]));
    assert_ne!(
        run(&["--preset", "rand-augment"])["digest"],
        run(&["--preset", "rand-augment", "--load", "2"])["digest"]
    );
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("views.png");
    stdout(&["preview", images(), "-o", path(&out), "--preset", "dino", "--columns", "10", "--rows", "1"]);
    let size = warpfeed::image::probe(&fs::read(out).unwrap()).unwrap().size;
    assert_eq!((size.width, size.height), (10 * 228 + 4, 224 + 8));
}

#[test]
fn synth_makes_the_same_images_again() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
    let make = |dir: &Path, options: &[&str]| stdout(&[&["synth", path(dir), "--count", "5"], options].concat());
    let words = make(&one, &["--classes", "2"]);
    assert!(words.contains("5 images made") && words.contains("2 classes"), "{words}");
    make(&two, &["--classes", "2", "--seed", "0"]);
    make(&three, &["--classes", "2", "--seed", "9"]);
    let digest = |dir: &Path| {
        let report: Value = serde_json::from_str(&stdout(&["run", path(dir), "--json", "--digest"])).unwrap();
        assert_eq!(report["images"], 5);
        report["digest"].clone()
    };
    assert_eq!(digest(&one), digest(&two));
    assert_ne!(digest(&one), digest(&three));
    let words = make(&one, &["--classes", "2"]);
    assert!(words.contains("0 images made, 5 were there already"), "{words}");
    // Another folder's images stay untouched.
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("mine.txt"), "mine").unwrap();
    let output = output(&["synth", path(&foreign), "--count", "5"]);
    assert!(matches!(output.status.code(), Some(1 | 2)) && text(&output.stderr).contains("foreign"));
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);
}

#[test]
fn doctor_and_demo_report() {
    let report: Value = serde_json::from_str(&stdout(&["doctor", "--json"])).unwrap();
    let checks = report["checks"].as_array().unwrap();
    for name in ["warpfeed", "processors", "JPEG decoder", "NVIDIA driver", "CUDA kernels"] {
        let check = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(check["ok"] == true, check.get("remedy").is_none(), "{check}");
    }
    assert!(stdout(&["doctor"]).lines().count() >= checks.len());

    let sheet = tempfile::tempdir().unwrap();
    let sheet = sheet.path().join("sheet.png");
    let args = ["demo", images(), "-o", path(&sheet), "--threads", "2", "--device", "cpu", "--json"];
    let report: Value = serde_json::from_str(&stdout(&args)).unwrap();
    assert_eq!((&report["source"], &report["sheet"]), (&json!(images()), &json!(path(&sheet))));
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 5);
    assert!(runs.iter().all(|run| run["images_per_s"].as_f64().unwrap() > 0.0 && run["threads"] == 2));
    assert!(fs::read(&sheet).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn wrong_use_is_told_from_failed_work() {
    for args in [
        &[][..],
        &["fly"],
        &["run"],
        &["run", images(), "--wings", "2"],
        &["run", images(), "--threads", "many"],
        &["run", images(), "--preset", "best"],
        &["run", images(), "--dtype", "f64"],
        &["run", images(), "--load", "1001"],
        &["apply", "x.jpg", "-o", "y.png"],
        &["synth", "/tmp/never-made"],
        &["synth", "/tmp/never-made", "--count", "1", "--classes", "0"],
    ] {
        assert!(failure(args, 2).contains("Usage") || failure(args, 2).contains("invalid value"), "{args:?}");
    }
    for (args, words) in [
        (&["--threads", "5000"][..], "threads must be 0 to 1024"),
        (&["--batch-size", "0"], "batch_size must be 1 to"),
        (&["--prefetch", "0"], "prefetch must be 1 to"),
        (&["--rank", "2/2"], "the rank (from 0) below the world size"),
        (&["--device", "gpu"], "auto, cpu, cuda or cuda:I"),
    ] {
        let message = failure(&[&["run", images()], args].concat(), 2);
        assert!(message.contains(words), "{message}");
    }
    for args in
        [&["run", "/no/such/folder"][..], &["preview", "/no/such/folder", "-o", "x.png"], &["demo", "/no/such/folder"]]
    {
        assert!(failure(args, 1).contains("/no/such/folder"));
    }
    let empty = tempfile::tempdir().unwrap();
    let message = failure(&["run", path(empty.path())], 1);
    assert!(message.contains(path(empty.path())) && message.contains("class folders"), "{message}");
    let message = failure(&["run", path(&Path::new(images()).join("class-0/00.jpg"))], 2);
    assert!(
        message.contains("an image itself") && message.contains("warpfeed apply") && message.is_ascii(),
        "{message}"
    );
    let applied = Applied::new();
    for (image, ops, word) in
        [("/no/such.jpg", path(&applied.image), "image.jpg"), (path(&applied.image), "/no/such.json", "/no/such.json")]
    {
        let output = output(&["apply", image, "--ops", ops, "-o", path(&applied.out("x.png"))]);
        assert!(matches!(output.status.code(), Some(1 | 2)) && text(&output.stderr).contains(word));
    }
    let ops = applied.out("none.json");
    fs::write(&ops, "[]").unwrap();
    assert!(failure(&["apply", "/no/such.jpg", "--ops", path(&ops), "-o", "x.png"], 1).contains("/no/such.jpg"));
    let unwritable = ["apply", path(&applied.image), "--ops", path(&ops), "-o", "/no/such/folder/x.npy"];
    assert!(failure(&unwritable, 1).contains("/no/such/folder/x.npy"));
    assert!(stdout(&["--version"]).starts_with("warpfeed "));
    assert!(stdout(&["--help"]).contains("Exit codes"));
}

#[test]
fn a_device_that_is_not_there_has_its_own_exit_code() {
    let applied = Applied::new();
    let ops = applied.out("ops.json");
    fs::write(&ops, "[]").unwrap();
    let out = applied.out("out.npy");
    for device in ["cuda", "cuda:0", "cuda:7"] {
        for args in [
            &["run", images()][..],
            &["run", "/no/such/folder"],
            &["demo", images()],
            &["apply", path(&applied.image), "--ops", path(&ops), "-o", path(&out)],
        ] {
            let output = output(&[args, &["--device", device]].concat());
            if output.status.success() {
                continue; // There is such a device.
            }
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{args:?} {device}: {message}");
            assert!(message.contains("CUDA") && message.contains("--device cpu"), "{message}");
            assert!(!out.exists());
        }
    }
}

// ---- what is in the way ----

/// The program as a shell runs it after `before`, with "$@" for its arguments, stopped after a minute.
#[cfg(target_os = "linux")]
fn after(before: &str, args: &[&str]) -> Output {
    let script = format!("{before}; exec timeout 60 \"$0\" \"$@\"");
    Command::new("sh").args(["-c", &script, PROGRAM]).args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_run_of_the_same_process_number_is_not_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let file = |name: &str| folder.path().join(name);
    // In a container every process is number 1. The shell here passes its own on to the program; `timeout` would not.
    let script = "cd \"$0\" && for i in $(seq 0 99); do echo x >.state.$$-$i.tmp; done && exec \"$@\"";
    fs::write(file(".state.0123456789abcdef.tmp"), "left over long ago").unwrap();
    fs::write(file(".state.fedcba9876543210.tmp"), "in the making").unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    let old = fs::File::options().write(true).open(file(".state.0123456789abcdef.tmp")).unwrap();
    old.set_modified(long_ago).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script, path(folder.path()), PROGRAM, "run", images(), "--batch-size", "1", "--state"]);
    let output = command.arg(&state).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let left: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".tmp"))
        .collect();
    assert_eq!(left.len(), 101, "what is not its own or may still be written to stays: {left:?}");
    assert!(!left.contains(&".state.0123456789abcdef.tmp".to_owned()));
}

#[test]
fn a_torn_state_is_replaced_by_the_last_that_was_synced() {
    let (folder, bad) = with_a_truncated_one();
    let state = folder.path().join("state");
    let args = ["run", path(folder.path()), "--batch-size", "1", "--no-shuffle", "--json", "--state", path(&state)];
    // It ends at the bad image, as if it had been killed.
    assert!(failure(&args, 1).contains(path(&bad)));
    let synced = folder.path().join(".state.synced");
    assert!(synced.exists());
    let skipping = [&args[..], &["--on-error", "skip"]].concat();
    for torn in [&b""[..], b"{\"version\": 1, \"sett", &[0; 100]] {
        fs::write(&state, torn).unwrap();
        // The settings differ, which only a state that was read can tell.
        assert!(failure(&skipping, 2).contains("of a run with preset train, load 1, on-error skip"));
    }
    fs::copy(Path::new(images()).join("class-2/10.jpg"), &bad).unwrap();
    let report: Value = serde_json::from_str(&stdout(&args)).unwrap();
    let earlier = report["earlier"]["images"].as_u64().unwrap();
    assert!((1..=14).contains(&earlier), "{report}");
    assert_eq!(report["images"].as_u64().unwrap() + earlier, 23);
    assert!(!synced.exists());
    fs::write(&state, "").unwrap();
    assert!(failure(&args, 2).contains("remove the file to begin anew"));
}

#[test]
#[cfg(target_os = "linux")]
fn threads_that_cannot_start_are_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    // Each thread takes more memory than there is.
    let limits = "export RUST_MIN_STACK=8589934592; ulimit -v 6000000";
    let made = folder.path().join("made");
    let output = after(limits, &["synth", path(&made), "--count", "4", "--classes", "2"]);
    assert!(output.status.success() && text(&output.stdout).contains("4 images made"), "{}", text(&output.stderr));
    let output = after(limits, &["bench", "diagnose", images(), "--threads", "4", "--seconds", "0.1"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("cannot start thread") && !message.contains("panicked"), "{message}");
    let message = failure(&["bench", "diagnose", images(), "--threads", "5000", "--seconds", "0.1"], 2);
    assert!(message.contains("threads must be 0 to 1024"), "{message}");
}

#[test]
#[cfg(target_os = "linux")]
fn strange_files_in_an_image_cache_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let cache = path(folder.path());
    let args = ["run", images(), "--json", "--digest", "--image-cache", "100MB", "--image-cache-dir", cache];
    let want: Value = serde_json::from_str(&stdout(&args)).unwrap();
    let entries = || {
        let parts = fs::read_dir(cache).unwrap().flat_map(|part| fs::read_dir(part.unwrap().path()).unwrap());
        parts.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let number = entries().len();
    assert_eq!(number, 23);
    let huge = |entry: &Path| fs::File::create(entry).unwrap().set_len(40_000_000_000).unwrap();
    let pipe = |entry: &Path| {
        fs::remove_file(entry).unwrap();
        assert!(Command::new("mkfifo").arg(entry).status().unwrap().success());
    };
    for strange in [&huge as &dyn Fn(&Path), &pipe] {
        entries().iter().for_each(|entry| strange(entry));
        let output = after("ulimit -v 8000000", &args);
        assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["digest"], &report["cached"]), (&want["digest"], &json!(0)));
    }
    // Leftovers of killed runs are removed once they are old.
    let left = entries()[0].with_file_name(".00000000000000000000000000000000.ppm.0123456789abcdef.tmp");
    fs::write(&left, "left over").unwrap();
    stdout(&args);
    assert!(left.exists());
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    fs::File::options().write(true).open(&left).unwrap().set_modified(long_ago).unwrap();
    stdout(&args);
    assert!(!left.exists());
}

#[test]
#[cfg(target_os = "linux")]
fn files_of_no_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [huge, pipe, ops, out] = ["huge", "pipe", "ops", "out.png"].map(|name| folder.path().join(name));
    fs::File::create(&huge).unwrap().set_len(3_000_000_000).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(&ops, "[]").unwrap();
    let (ops, out, image) = (path(&ops), path(&out), &format!("{}/class-0/00.jpg", images()));
    // Less than the file has.
    let limit = "ulimit -v 2500000";
    for (strange, says) in
        [(path(&huge), "it has more than "), (path(&pipe), "not a regular file"), ("/dev/zero", "not a regular file")]
    {
        for args in [
            &["apply", strange, "--ops", ops, "-o", out][..],
            &["apply", image, "--ops", strange, "-o", out],
            &["run", images(), "--classes", strange],
            &["run", images(), "--transforms", strange],
            &["run", images(), "--state", strange],
            &["compare", strange, ops],
            &["bench", "peers", "--from", strange],
            &["bench", "supply", images(), "--from", strange, "--models", "1"],
            &["bench", "augment-load", images(), "--steps", strange, "--models", "own"],
        ] {
            let output = after(limit, args);
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{args:?}: {message}");
            assert!(message.contains(says) && message.contains(strange), "{args:?}: {message}");
        }
    }
    let endless = Stdio::from(fs::File::open("/dev/zero").unwrap());
    let output = command(&["apply", image, "--ops", "-", "-o", out]).stdin(endless).output().unwrap();
    let message = text(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains("standard input: it has more than"), "{message}");
    let marked = folder.path().join("synth");
    fs::create_dir(&marked).unwrap();
    std::os::unix::fs::symlink(&huge, marked.join(".warpfeed-synth")).unwrap();
    let output = after(limit, &["synth", path(&marked), "--count", "4", "--classes", "2"]);
    assert!(text(&output.stderr).contains("it has more than 4096 bytes"), "{output:?}");
}

#[test]
fn options_that_another_programs_figures_cannot_follow_are_refused() {
    let (peers, from) = (["--peers"].as_slice(), ["--from", "rounds.json"].as_slice());
    for measured in [peers, from] {
        for option in [["--preset", "train"], ["--limit", "4"], ["--seed", "1"], ["--device", "cpu"]] {
            let message = failure(&[&["bench", "supply", images()], measured, &option].concat(), 2);
            assert!(message.contains("cannot be used with"), "{measured:?} {option:?}: {message}");
        }
    }
    let message = failure(&[&["bench", "supply", images(), "--cores", "1"], from].concat(), 2);
    assert!(message.contains("cannot be used with"), "{message}");
    for price in ["-1", "NaN", "inf"] {
        let prices = [format!("--price-core={price}"), "--price-gpu=1".to_owned()];
        let message = failure(&["bench", "supply", images(), &prices[0], &prices[1]], 2);
        assert!(message.contains("a number, 0 or more"), "{price}: {message}");
    }
}

#[test]
fn a_variable_that_stands_alone_is_some_other_programs() {
    let mut command = command(&["run", images(), "--rank", "auto", "--json"]);
    for name in ["WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"] {
        command.env_remove(name);
    }
    let output = command.env("RANK", "gold").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn the_demo_keeps_its_files_with_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let occupied = folder.path().join("cache");
    fs::write(&occupied, "no folder").unwrap();
    let output = command(&["demo", "--device", "cpu"]).env("XDG_CACHE_HOME", &occupied).output().unwrap();
    let message = text(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains(path(&occupied)), "{message}");
    let mut homeless = command(&["demo", "--device", "cpu"]);
    let output = homeless.env_remove("XDG_CACHE_HOME").env_remove("HOME").env_remove("LOCALAPPDATA").output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("XDG_CACHE_HOME"));
}

// ---- where the output goes ----

#[test]
#[cfg(target_os = "linux")]
fn standard_error_that_cannot_be_written_changes_nothing() {
    for (args, code) in [
        (&["run", "/no/such/folder"][..], 1),
        (&["run", images(), "--batch-size", "0"], 2),
        (&["fly"], 2),
        (&["run", images()], 0),
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(command(args).stderr(full).output().unwrap().status.code(), Some(code), "{args:?}");
        let script = "\"$0\" \"$@\" 2> >(exec 0<&-; sleep 0.2)";
        let output = Command::new("bash").args(["-c", script, PROGRAM]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
    let report = tempfile::tempdir().unwrap();
    let args = ["bench", "diagnose", images(), "--seconds", "0.1", "--out", path(report.path())];
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    assert!(command(&args).stderr(full).output().unwrap().status.success());
    assert!(report.path().join("report.html").exists());
}

/// A terminal obeys these characters: a name must not clear the screen or look like another line.
#[test]
#[cfg(unix)]
fn control_characters_are_escaped() {
    const NAME: &str = "\u{1b}[31mred\u{9b}2J\u{7f}\nsecond line";
    const ESCAPED: &str = "\\u001b[31mred\\u009b2J\\u007f\\nsecond line";
    let folder = tempfile::tempdir().unwrap();
    let strange = folder.path().join(NAME);
    let good = encode_jpeg(&common::image(40, 30, 1), &JpegOptions::default()).unwrap();
    let printed = |output: &Output| {
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(all.chars().all(|c| !c.is_control() || c == '\n'), "{all:?}");
        all
    };
    let is_clean = |output: &Output| {
        let all = printed(output);
        assert!(all.contains(ESCAPED) && !all.contains("\nsecond"), "{all}");
    };
    is_clean(&output(&["run", path(&strange)]));
    is_clean(&output(&["synth", path(&strange), "--count", "1"]));
    assert!(printed(&output(&["run", "images", path(&strange)])).contains("unexpected argument"));
    let sheet = folder.path().join(format!("{NAME}.png"));
    is_clean(&output(&["preview", path(&strange), "-o", path(&sheet), "--rows", "1", "--columns", "1"]));
    let class = folder.path().join("images").join(NAME);
    fs::create_dir_all(&class).unwrap();
    fs::write(class.join("good.jpg"), &good).unwrap();
    fs::write(class.join("bad.jpg"), &good[..good.len() / 2]).unwrap();
    let source = folder.path().join("images");
    for options in [&[][..], &["--on-error", "skip"], &["--on-error", "skip", "--json"]] {
        is_clean(&output(&[&["run", path(&source)], options].concat()));
    }
    let report = stdout(&["run", path(&source), "--on-error", "skip", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(report["bad"][0]["path"].as_str().unwrap().contains(NAME), "programs read the name itself");
    let out = folder.path().join("packed");
    for options in [&[][..], &["--json"]] {
        is_clean(&output(&[&["pack", path(&source), "-o", path(&out), "--format", "recordio"], options].concat()));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_clear_error() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let help = [&["--help"][..], &["run", "--help"], &["--version"]];
    for args in
        [&["run", images(), "--json"][..], &["run", images()], &["doctor"], &["doctor", "--json"]].iter().chain(&help)
    {
        let output = command(args).stdout(full()).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("cannot write standard output") && message.contains("No space left"), "{message}");
    }
    let applied = Applied::new();
    for name in ["full.png", "full.npy"] {
        std::os::unix::fs::symlink("/dev/full", applied.out(name)).unwrap();
        let output = applied.run("[]", name, &[]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(name) && message.contains("No space left"), "{message}");
    }
}

#[test]
#[cfg(unix)]
fn a_reader_that_has_gone_is_no_error() {
    for args in ["run \"$1\" --json", "run \"$1\"", "doctor", "--help"] {
        let script = format!("set -o pipefail; \"$0\" {args} | true");
        let output = Command::new("bash").args(["-c", &script, PROGRAM, images()]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{args}");
    }
    let output = Command::new("bash").args(["-c", "\"$0\" doctor | head -1", PROGRAM]).output().unwrap();
    assert_eq!(text(&output.stdout).lines().count(), 1);
    assert_eq!(text(&output.stderr), "");
}

/// Vector code makes the bytes of plain code, on whatever processor this runs.
#[test]
fn vector_code_is_limited_by_the_environment_and_changes_no_byte() {
    let with = |limit: &str, args: &[&str]| command(args).env("WARPFEED_SIMD", limit).output().unwrap();
    for preset in ["train", "trial-a", "rand-augment"] {
        let args = ["run", images(), "--json", "--digest", "--epochs", "3", "--preset", preset];
        let digests = ["none", "avx2", "avx512", ""].map(|limit| {
            let output = with(limit, &args);
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            report["digest"].as_str().unwrap().to_owned()
        });
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{preset}: {digests:?}");
    }
    let refused = with("sse", &["run", images()]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("WARPFEED_SIMD must be none, avx2 or avx512"), "{}", text(&refused.stderr));
    assert!(text(&with("none", &["doctor"]).stdout).contains("(WARPFEED_SIMD=none)"));
}

/// Two images of 20 x 10 pixels with COCO's annotations, and the arguments that name them.
fn coco() -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    for (i, name) in ["a.jpg", "b.jpg"].iter().enumerate() {
        fs::write(folder.path().join(name), common::jpeg(20, 10, i as u64)).unwrap();
    }
    let annotations = folder.path().join("instances.json");
    let json = json!({
        "images": [{"id": 1, "file_name": "a.jpg", "width": 20, "height": 10}, {"id": 2, "file_name": "b.jpg", "width": 20, "height": 10}],
        "annotations": [{"id": 5, "image_id": 1, "category_id": 9, "bbox": [2, 2, 6, 4], "segmentation": [[2, 2, 8, 2, 8, 6, 2, 6]]}],
        "categories": [{"id": 9, "name": "thing"}]
    });
    fs::write(&annotations, json.to_string()).unwrap();
    let named = [path(folder.path()), "--format", "coco", "--annotations", path(&annotations)].map(str::to_owned);
    (folder, named.into())
}

#[test]
fn fields_follow_the_command() {
    let (folder, named) = coco();
    let file = |name: &str| folder.path().join(name);
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    // apply: the boxes, points and the mask of a JSON file.
    let mask = warpfeed::fields::Mask::new(warpfeed::image::Size::new(20, 10), vec![7_u8; 200]).unwrap();
    fs::write(file("in.mask.png"), mask.to_png(0).unwrap()).unwrap();
    let depth = warpfeed::fields::AuxImage::gray(warpfeed::image::Size::new(40, 20), vec![700_u16; 800]).unwrap();
    fs::write(file("in.depth.png"), depth.to_png().unwrap()).unwrap();
    let given = json!({
        "images": {"depth": {"path": "in.depth.png", "fill": 900}},
        "boxes": {"format": "XYWH", "values": [[2.1, 2.0, 6.0, 4.0], [15.0, 4.0, 9.0, 9.0]], "clamping": null},
        "keypoints": {"values": [[0.0, 0.0]], "convention": "pixel_index"},
        "mask": {"path": "in.mask.png", "fill": 255}
    });
    fs::write(file("in.json"), given.to_string()).unwrap();
    fs::write(file("ops.json"), r#"[{"op": "hflip"}, {"op": "pad", "left": 4, "top": 0, "right": 0, "bottom": 0}]"#)
        .unwrap();
    let [image, ops, fields, out, out_fields] =
        ["a.jpg", "ops.json", "in.json", "out.png", "out.json"].map(|name| path(&file(name)).to_owned());
    let args = ["apply", &image, "--ops", &ops, "--fields", &fields, "-o", &out, "--fields-out", &out_fields, "--draw"];
    assert_eq!(stdout(&args), "");
    let made: Value = serde_json::from_slice(&fs::read(&out_fields).unwrap()).unwrap();
    let row = made["boxes"]["values"][0].as_array().unwrap();
    let x = -((2.1_f32 + 6.0) - 20.0) + 4.0;
    assert_eq!((row[0].as_f64().unwrap(), row[2].as_f64().unwrap()), (f64::from(x), 6.0));
    assert_eq!((&made["size"], &made["boxes"]["valid"]), (&json!([24, 10]), &json!([true, false])));
    assert_eq!((&made["boxes"]["clamping"], &made["keypoints"]["values"]), (&Value::Null, &json!([[23.0, 0.0]])));
    assert_eq!(made["mask"], json!({"path": "out.mask.png", "fill": 255}));
    let moved = warpfeed::fields::Mask::from_png(&fs::read(file("out.mask.png")).unwrap(), 1_000).unwrap();
    let warpfeed::fields::MaskValues::U8(values) = &*moved.planes()[0] else { panic!("{moved:?}") };
    assert_eq!(values[..6], [255, 255, 255, 255, 7, 7]);
    // An image of twice the size is padded by twice as many pixels.
    assert_eq!(made["images"]["depth"], json!({"path": "out.depth.png", "interpolation": "nearest", "fill": 900}));
    let moved = warpfeed::fields::AuxImage::from_encoded(&fs::read(file("out.depth.png")).unwrap(), 10_000).unwrap();
    let warpfeed::fields::MaskValues::U16(values) = &*moved.planes()[0] else { panic!("{moved:?}") };
    assert_eq!((moved.size(), values[6..10].to_vec()), (warpfeed::image::Size::new(48, 20), vec![900, 900, 700, 700]));
    // run and preview: COCO's.
    let run = |more: &[&str]| {
        let fixed = ["--preset", "eval", "--epochs", "1", "--threads", "1", "--device", "cpu", "--digest", "--json"];
        let args = [&["run"], &named[..], &fixed, more].concat();
        common::report(&output(&args))["digest"].as_str().unwrap().to_owned()
    };
    let digests = [run(&[]), run(&["--fields", "boxes"]), run(&["--fields", "boxes,labels,masks"])];
    assert!(digests[0] != digests[1] && digests[1] != digests[2], "{digests:?}");
    let sheet = |name: &str, more: &[&str]| {
        let sheet = path(&file(name)).to_owned();
        let args = [&["preview"], &named[..], &["--columns", "2", "--rows", "1", "-o", &sheet], more];
        stdout(&args.concat());
        fs::read(sheet).unwrap()
    };
    let eval = ["--preset", "eval"];
    assert!(
        sheet("plain.png", &eval) != sheet("drawn.png", &[&eval[..], &["--fields", "boxes,labels,masks"]].concat()),
        "nothing is drawn"
    );
    let message = failure(&["run", path(folder.path()), "--format", "coco"], 2);
    assert!(message.contains("annotations"), "{message}");
    // Presets of detection ask for their fields, and may give images different sizes.
    let preset = |preset: &str, more: &[&str]| {
        let fixed = ["--preset", preset, "--threads", "1", "--device", "cpu", "--digest", "--json"];
        common::report(&output(&[&["run"], &named[..], &fixed, more].concat()))
    };
    for name in ["ssd", "faster-rcnn", "mask-rcnn", "detr", "yolo", "yolo-eval"] {
        let report = preset(name, &[]);
        let fields = if name == "mask-rcnn" { "boxes,labels,masks" } else { "boxes,labels" };
        assert_eq!((&report["images"], &report["bad_count"]), (&json!(2), &json!(0)), "{name}");
        assert_eq!(report["digest"], preset(name, &["--fields", fields, "--batch-size", "1"])["digest"], "{name}");
        assert_ne!(report["digest"], preset(name, &["--fields", "boxes"])["digest"], "{name}");
    }
    let recipe = recipe_of(&[&named[..], &["--preset", "faster-rcnn", "--index", "0"]].concat());
    let recipe: Vec<warpfeed::ops::Op> = serde_json::from_str(&recipe).unwrap();
    assert_eq!(
        recipe.iter().rev().map(|op| op.name()).take(3).collect::<Vec<_>>(),
        ["normalize", "resize", "sanitize"]
    );
    assert_ne!(
        sheet("detr.png", &["--preset", "detr-eval"]),
        sheet("detr-bare.png", &["--preset", "detr-eval", "--fields", "labels"])
    );
}

/// Runs a source's epoch, its recipe and its preview with these fields; each changes the digest and the sheet.
fn check_fields(folder: &Path, named: &[&str], fields: &str) {
    let run = |more: &[&str]| {
        let fixed = ["--preset", "eval", "--epochs", "1", "--threads", "1", "--device", "cpu", "--digest", "--json"];
        common::report(&output(&[&["run"], named, &fixed, more].concat()))["digest"].as_str().unwrap().to_owned()
    };
    assert!(run(&[]) != run(&["--fields", fields]), "{named:?}");
    let sheet = |name: &str, more: &[&str]| {
        let sheet = path(&folder.join(name)).to_owned();
        let fixed = ["--preset", "eval", "--columns", "2", "--rows", "1", "-o", &sheet];
        stdout(&[&["preview"], named, &fixed, more].concat());
        fs::read(sheet).unwrap()
    };
    assert!(sheet("plain.png", &[]) != sheet("drawn.png", &["--fields", fields]), "{named:?}: nothing is drawn");
    let recipe = recipe_of(&[named, &["--index", "1", "--fields", fields, "--preset", "eval"]].concat());
    assert!(recipe.contains("resize"), "{recipe}");
}

#[test]
fn masks_beside_images_are_a_format() {
    let folder = tempfile::tempdir().unwrap();
    for folder in ["images", "masks"].map(|name| folder.path().join(name)) {
        fs::create_dir(folder).unwrap();
    }
    for i in 0..3_u8 {
        let mask = warpfeed::fields::Mask::new(warpfeed::image::Size::new(20, 10), vec![i + 7; 200]).unwrap();
        fs::write(folder.path().join(format!("images/{i}_rgb.jpg")), common::jpeg(20, 10, i.into())).unwrap();
        fs::write(folder.path().join(format!("masks/{i}_ids.png")), mask.to_png(0).unwrap()).unwrap();
    }
    let (list, images, masks) =
        (folder.path().join("val.txt"), folder.path().join("images"), folder.path().join("masks"));
    fs::write(&list, "1\n0\n").unwrap();
    let named = [path(&images), "--format", "masks", "--annotations", path(&masks), "--image-suffix", "_rgb"];
    let named = [&named[..], &["--mask-suffix", "_ids", "--mask-ids", "cityscapes", "--list", path(&list)]].concat();
    check_fields(folder.path(), &named, "mask");
    for (args, message) in [
        (vec!["run", path(&images), "--format", "masks"], "the folder of masks"),
        (vec!["run", path(&images), "--mask-ids", "7"], "pairs of a number and its class"),
        (vec!["run", path(&images), "--mask-ids", "cityscapes"], "only with the format masks"),
    ] {
        let error = failure(&args, 2);
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn voc_is_a_format() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for i in 0..2 {
        file(&format!("JPEGImages/{i}.jpg"), &common::jpeg(20, 10, i));
        let corners = "<xmin>3</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax>";
        let object = format!("<object><name>dog</name><bndbox>{corners}</bndbox></object>");
        file(&format!("Annotations/{i}.xml"), format!("<annotation>{object}</annotation>").as_bytes());
    }
    file("ImageSets/Main/train.txt", b"0\n1\n");
    check_fields(folder.path(), &[path(folder.path()), "--format", "voc", "--split", "train"], "boxes,labels");
    let error = failure(&["run", path(folder.path()), "--format", "voc"], 2);
    assert!(error.contains("ImageSets/Main"), "{error}");
}

#[test]
fn data_yaml_is_a_source() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["images", "labels"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    for i in 0..2 {
        fs::write(folder.path().join(format!("images/{i}.jpg")), common::jpeg(20, 10, i)).unwrap();
        fs::write(folder.path().join(format!("labels/{i}.txt")), "1 0.5 0.5 0.5 0.5 0.5 0.5 2\n").unwrap();
    }
    let file = folder.path().join("data.yaml");
    fs::write(&file, "train: images # all\nnc: 2\nnames:\n- cat\n- dog\nkpt_shape: [1, 3]\n").unwrap();
    let named = [path(&file), "--format", "yolo", "--split", "train"];
    check_fields(folder.path(), &named, "boxes,labels,keypoints");
    assert!(failure(&["run", path(&file), "--format", "yolo"], 2).contains("train, val or test"));
    fs::write(&file, "train: images\nnames: &all [cat]\n").unwrap();
    let error = failure(&[&["run"], &named[..]].concat(), 2);
    assert!(error.contains("data.yaml: line 2: names"), "{error}");
}

/// A URL that was given in the wrong place keeps its secrets, and no name makes a terminal do something.
#[test]
fn urls_given_by_mistake_keep_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let images = crate::pack::image_folder(folder.path(), 2);
    let url = "https://me:hunter2@example.invalid/a/b?X-Amz-Signature=hunter2";
    let field = format!("depth={url}");
    for arguments in [
        &["run", &*images, "--log", url][..],
        &["run", &images, "--state", url],
        &["run", &images, "--classes", url],
        &["run", &images, "--transforms", url],
        &["run", &images, "--aux", &field, "--fields", "depth"],
        &["run", &images, "--format", "coco", "--annotations", url],
        &["run", &images, "--format", "masks", "--annotations", &images, "--list", url],
        &["run", &images, "--image-cache", "1GB", "--image-cache-dir", url],
        &["run", &images, "--preset", url],
        &["run", &images, url],
        &["pack", &images, "--output", &images, "--format", url],
        &["compare", url, url],
        &["replay", "--log", url, "--verify"],
        &["audit", &images, "--out", url],
        &["recipe", &images, "--name", url],
        &["apply", &images, "--ops", url, "-o", url],
        &["contract", "check", url],
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_warpfeed"))
            .args(arguments)
            .current_dir(&folder)
            .env("XDG_CACHE_HOME", folder.path())
            .output()
            .unwrap();
        for text in [&output.stdout, &output.stderr] {
            assert!(
                !String::from_utf8_lossy(text).contains("hunter2"),
                "{arguments:?}: {}",
                String::from_utf8_lossy(text)
            );
        }
    }
}
