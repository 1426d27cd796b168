//! The examples run, and print what their heads say.

use std::path::Path;
use std::process::Command;
use std::sync::Once;

static BUILT: Once = Once::new();

/// Builds all examples if they are not there: `cargo test` has done so before, unless it was told which test to build.
fn build(profile: &Path, name: &str) {
    if profile.join("examples").join(name).exists() {
        return;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--quiet",
        "--examples",
        "--workspace",
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"),
    ]);
    // With the features of this test, so that nothing is built twice.
    cargo.args(["--features", "warpfeed-cli/full"]);
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "{cargo:?}");
}

/// The output of an example.
fn run(name: &str) -> String {
    run_with(name, &[])
}

fn run_with(name: &str, args: &[&str]) -> String {
    // target/PROFILE/deps/examples-HASH is this; the examples are in target/PROFILE/examples.
    let this = std::env::current_exe().unwrap();
    let profile = this.ancestors().nth(2).unwrap();
    BUILT.call_once(|| build(profile, name));
    let mut command = Command::new(profile.join("examples").join(name));
    // Tests run side by side, and candle's threads wait for one another without sleeping.
    command.args(args).env("RAYON_NUM_THREADS", "1");
    // glibc leaves the memory of large tensors to the next ones.
    command.env("MALLOC_MMAP_THRESHOLD_", "1073741824").env("MALLOC_TRIM_THRESHOLD_", "4294967296");
    command.env("MALLOC_ARENA_MAX", "1");
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{name}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn quick_start() {
    let text = run("quick_start");
    assert_eq!(text.lines().count(), 6, "{text}");
    assert_eq!(text.matches("[16, 3, 224, 224]").count(), 4, "{text}");
    assert_eq!(text.matches("[8, 3, 224, 224]").count(), 2, "{text}");
    assert_eq!(text, run("quick_start"), "the same at every run");
}

#[test]
fn own_step() {
    let text = run("own_step");
    let losses: Vec<f64> = text.lines().filter_map(|line| line.split("loss ").nth(1)?.parse().ok()).collect();
    assert_eq!(losses.len(), 4, "{text}");
    assert!(losses[3] < 0.2 * losses[0], "{text}");
    assert!(text.ends_with(" % of the time\n"), "{text}");
}

#[test]
fn train_cnn() {
    let text = run("train_cnn");
    let losses: Vec<f64> = text.lines().map(|line| line.split([' ', ',']).nth(3).unwrap().parse().unwrap()).collect();
    assert_eq!(losses.len(), 8, "{text}");
    assert!(losses[7] < 0.8 * losses[0], "{text}");
}

#[test]
fn train_own_images() {
    let text = run("train_own_images");
    let accuracy: Vec<f64> =
        text.lines().map(|line| line.split("accuracy ").nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!(accuracy.len(), 4, "{text}");
    assert!(accuracy[3] > 0.9, "{text}");
}

#[test]
fn train_patches() {
    let text = run("train_patches");
    let number = |line: &str, name: &str| {
        let (_, rest) = line.split_once(name).unwrap();
        rest.split(',').next().unwrap().trim().parse::<f32>().unwrap()
    };
    let epochs: Vec<[f32; 2]> = text.lines().map(|line| ["loss", "accuracy"].map(|name| number(line, name))).collect();
    assert_eq!(epochs.len(), 8, "{text}");
    // Weights begin at random: nearly always 97 % and more are right, at times 92 %. A third is by chance.
    assert!(epochs[7][0] < 0.6 * epochs[0][0] && epochs[7][1] > 0.8, "{text}");
}

#[test]
fn train_resume() {
    let [undisturbed, interrupted] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let path = |folder: &tempfile::TempDir| folder.path().to_str().unwrap().to_owned();
    // The same first weights.
    assert!(run_with("train_resume", &[&path(&undisturbed), "0"]).starts_with("stopped in epoch 0 after 0 batches"));
    let weights = |folder: &tempfile::TempDir| folder.path().join("weights-0.safetensors");
    std::fs::copy(weights(&undisturbed), weights(&interrupted)).unwrap();
    let whole = run_with("train_resume", &[&path(&undisturbed)]);
    assert_eq!(whole.lines().count(), 3, "{whole}");
    assert!(whole.lines().all(|line| line.contains("images/s; the step waited ")), "{whole}");
    // Twelve batches an epoch: stopped in the second, three batches after a checkpoint, and again in the third.
    let mut text = run_with("train_resume", &[&path(&interrupted), "19"]);
    assert!(text.ends_with("stopped in epoch 1 after 7 batches\n"), "{text}");
    text += &run_with("train_resume", &[&path(&interrupted), "12"]);
    text += &run_with("train_resume", &[&path(&interrupted)]);
    // The times differ, and no figure else.
    let figures = |text: &str| -> Vec<String> {
        let epochs = text.lines().filter(|line| line.starts_with("epoch"));
        epochs.map(|line| line.split(" (").next().unwrap().to_owned()).collect()
    };
    assert_eq!(figures(&text), figures(&whole));
    // Both have logged all steps: a batch is the same image file for image file.
    let look = |folder| {
        run_with("train_resume", &[&path(folder), "look", "20"]);
        crate::common::files(&folder.path().join("step-20"))
    };
    let (one, other) = (look(&undisturbed), look(&interrupted));
    assert_eq!((one.len(), one.contains_key("sheet.png")), (11, true));
    // Receipts have the images' paths.
    assert!(one.iter().filter(|(name, _)| *name != "receipts.json").all(|(name, bytes)| other[name] == *bytes));
}

/// Output of an example that trains on images which it makes, for a few steps or in full.
fn train(example: &str, short: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let text = run_with(example, &["--short", folder.path().to_str().unwrap()][usize::from(!short)..]);
    assert_eq!(text.ends_with(" on 300 images\n"), !short, "{text}");
    text
}

/// The number after these words in each line that has them.
fn numbers(text: &str, after: &str) -> Vec<f64> {
    let number = |line: &str| Some(line.split_once(after)?.1.split(' ').next()?.parse().unwrap());
    text.lines().filter_map(number).collect()
}

/// Trains the detector. Returns the losses of its epochs, and the mAP.
fn train_detector(short: bool) -> (Vec<f64>, f64) {
    let text = train("train_detector", short);
    let (precisions, mean) = (numbers(&text, ": AP "), numbers(&text, "mAP@0.5 "));
    assert!(precisions.len() == 6 && precisions.iter().all(|share| (0.0..=1.0).contains(share)), "{text}");
    assert!(mean.len() == 1 && (precisions.iter().sum::<f64>() / 6.0 - mean[0]).abs() < 1e-3, "{text}");
    (numbers(&text, ": loss "), mean[0])
}

#[test]
fn a_detector_learns_within_a_few_steps() {
    let (losses, _) = train_detector(true);
    assert!(losses.len() == 4 && losses[3] < 0.95 * losses[0], "{losses:?}");
}

#[test]
#[ignore = "trains for minutes: cargo test --release --features full --test integration a_detector -- --ignored"]
fn a_detector_reaches_an_map_of_0_7() {
    let (losses, mean) = train_detector(false);
    assert!(mean >= 0.7, "{mean}, {losses:?}");
}

/// Trains the segmentation network. Returns the losses of its epochs, and the mean IoU.
fn train_segmentation(short: bool) -> (Vec<f64>, f64) {
    let text = train("train_segmentation", short);
    // The ground, and six kinds of objects.
    let (shares, mean) = (numbers(&text, ": IoU "), numbers(&text, "mean IoU "));
    assert!(shares.len() == 7 && shares.iter().all(|share| (0.0..=1.0).contains(share)), "{text}");
    assert!(mean.len() == 1 && (shares.iter().sum::<f64>() / 7.0 - mean[0]).abs() < 1e-3, "{text}");
    (numbers(&text, ": loss "), mean[0])
}

#[test]
fn a_segmentation_network_learns_within_a_few_steps() {
    let (losses, _) = train_segmentation(true);
    assert!(losses.len() == 3 && losses[2] < 0.95 * losses[0], "{losses:?}");
}

#[test]
#[ignore = "trains for minutes: cargo test --release --features full --test integration a_segmentation -- --ignored"]
fn a_segmentation_network_reaches_a_mean_iou_of_0_8() {
    let (losses, mean) = train_segmentation(false);
    assert!(mean >= 0.8, "{mean}, {losses:?}");
}

#[test]
fn custom_source() {
    let text = run("custom_source");
    assert!(text.ends_with("12 images of 96 x 96\n"), "{text}");
    for class in ["disc", "box", "triangle"] {
        assert_eq!(text.matches(class).count(), 4, "{text}");
    }
}

#[test]
fn custom_operation() {
    let text = run("custom_operation");
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.matches("Custom(salt)").count() == 6 && text.matches("Rotate").count() == 6, "{text}");
    let grains = |line: &str| line.split(' ').nth(2).unwrap().parse::<u32>().unwrap();
    assert!(text.lines().map(grains).sum::<u32>() > 100, "{text}");
    assert_eq!(text, run("custom_operation"), "the same at every run");
}

#[test]
fn ranks() {
    let text = run("ranks");
    assert!(text.starts_with("rank 0 of 1, cuda:0, 6 batches of 2, 2, 2, 2, 2, 1, 0 repeated, samples "), "{text}");
    assert_eq!(text, run("ranks"), "the same at every run");
}

#[test]
#[ignore = "needs mpirun (Debian's openmpi-bin): cargo test --test integration examples:: -- --ignored"]
fn ranks_under_open_mpi_are_disjoint_complete_and_repeatable() {
    let this = std::env::current_exe().unwrap();
    let profile = this.ancestors().nth(2).unwrap();
    BUILT.call_once(|| build(profile, "ranks"));
    let launch = || {
        let mut command = Command::new("mpirun");
        command.args(["-n", "4", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]);
        let output = command.arg(profile.join("examples/ranks")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let lines = launch();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let mut all = Vec::new();
    for (rank, line) in lines.iter().enumerate() {
        let (last, repeated) = if rank == 3 { (0, 1) } else { (1, 0) };
        let start = format!("rank {rank} of 4, cuda:{rank}, 2 batches of 2, {last}, {repeated} repeated, samples ");
        let indices = line.strip_prefix(&start).unwrap_or_else(|| panic!("{line}"));
        all.extend(indices.split(' ').map(|index| index.parse::<u64>().unwrap()));
    }
    all.sort_unstable();
    assert_eq!(all, (0..11).collect::<Vec<_>>(), "every sample in one rank");
    assert_eq!(launch(), lines, "the same at every run");
}

#[test]
fn train_bands() {
    let accuracy = |line: &str| line.rsplit(' ').next().unwrap().parse::<f32>().unwrap();
    // Weights begin at random: nearly always all images are right, and now and then four epochs are too few.
    let is_right = |_| {
        let text = run("train_bands");
        assert_eq!(text.lines().count(), 4, "{text}");
        accuracy(text.lines().last().unwrap()) > 0.95
    };
    assert!((0..3).any(is_right));
}

#[test]
fn train_buckets() {
    let text = run("train_buckets");
    let losses: Vec<f32> = text.lines().filter_map(|line| line.split_once("loss ")?.1.parse().ok()).collect();
    assert!(losses.len() == 6 && losses[5] < 0.5 * losses[0], "{text}");
    let colors = |class: &str| -> Vec<Vec<f32>> {
        let lines = text.lines().filter_map(|line| line.split_once(&format!(", {class}: ")));
        lines.map(|(_, colors)| colors.split(' ').map(|color| color.parse().unwrap()).collect()).collect()
    };
    // Days are blue, evenings are red, and nights are dark, in each bucket.
    let (days, evenings, nights) = (colors("day"), colors("evening"), colors("night"));
    assert!(days.len() > 1 && days.len() == evenings.len() && days.len() == nights.len(), "{text}");
    assert!(days.iter().all(|color| color[2] > color[0]), "{text}");
    assert!(evenings.iter().all(|color| color[0] > color[2]), "{text}");
    assert!(nights.iter().zip(&days).all(|(night, day)| night[1] < 0.7 * day[1]), "{text}");
}

#[test]
fn train_depth() {
    let text = run("train_depth");
    let wrong = |line: &str| line.rsplit(' ').nth(1).unwrap().parse::<f32>().unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
    // Weights begin at random: 12 to 16 % after the last epoch.
    assert!(text.lines().last().is_some_and(|line| wrong(line) < 30.0), "{text}");
}
