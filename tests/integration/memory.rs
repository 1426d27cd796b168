//! Without memory from the system there is an error, never an abort or a bad sample.

#![cfg(target_os = "linux")]

use crate::common;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};

/// `warpfeed run` on the CPU, with this many KiB of address space. It fails after a minute.
fn run(limit_kib: u64, source: &Path, options: &[&str]) -> Output {
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -v $0 && exec \"$@\"", &limit_kib.to_string(), env!("CARGO_BIN_EXE_warpfeed"), "run"])
        .arg(source)
        .args(["--device", "cpu", "--digest", "--json"])
        .args(options)
        // One heap for all threads: what they reserve does not depend on which of them comes first.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it hangs with {limit_kib} KiB: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The least address space, in KiB, with which `options` succeed on `source`.
fn least(source: &Path, options: &[&str]) -> u64 {
    (1..).map(|i| i * (16 << 10)).find(|&limit| run(limit, source, options).status.success()).unwrap()
}

/// A folder with one image, and a list that names it so often.
fn list(image: &Image, times: usize) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("image.jpg"), encode_jpeg(image, &JpegOptions::default()).unwrap()).unwrap();
    let list = folder.path().join("list.tsv");
    fs::write(&list, "image.jpg\t1\n".repeat(times)).unwrap();
    (folder, list)
}

#[test]
fn a_batch_without_memory_is_an_error() {
    let (_folder, list) = list(&common::image(90, 70, 1), 150);
    let options = |batch_size| ["--threads", "4", "--batch-size", batch_size];
    let room = 16 << 10;
    let enough_for_one = least(&list, &options("1")) + room;
    // 50 images of 224 x 224 pixels: 29,400 KiB a batch, up to three at a time.
    let mut refused = 0;
    let mut digests = Vec::new();
    for half_batches in 0..8 {
        let output = run(enough_for_one + half_batches * 14_700, &list, &options("50"));
        let text = stderr(&output);
        if output.status.success() {
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            digests.push(report["digest"].as_str().unwrap().to_owned());
        } else {
            assert_eq!(output.status.code(), Some(1), "{half_batches}: {output:?}");
            assert!(text.contains("cannot allocate") && text.contains("batch_size"), "{half_batches}: {text}");
            assert!(!text.contains("panicked"), "{text}");
            refused += 1;
        }
    }
    digests.dedup();
    assert!(refused > 0 && digests.len() == 1, "{refused} refused, {digests:?}");
}

#[test]
fn an_image_without_memory_ends_the_epoch_under_each_policy() {
    // As large as it is in memory, some 75,000 KiB, it is small as a file.
    let (_folder, large) = list(&Image::new(Size::new(5_000, 5_000)), 4);
    let (_other, small) = list(&Image::new(Size::new(50, 50)), 4);
    for threads in ["0", "2"] {
        let options = |policy| ["--threads", threads, "--preset", "eval", "--on-error", policy];
        // The least is found in steps of 16 MiB, and what a thread needs that has not begun yet is free too.
        let limit = least(&small, &options("fail")) + (24 << 10);
        for policy in ["fail", "skip", "substitute"] {
            let output = run(limit, &large, &options(policy));
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{policy}: {output:?}");
            // Whichever is refused first.
            let what = [" bytes for an image", " bytes for a JPEG decoder"];
            let refused = what.iter().any(|what| text.contains(what));
            assert!(text.contains("cannot allocate ") && refused, "{policy}: {text}");
            assert!(text.contains("sample ") && text.contains("max_pixels"), "{policy}: {text}");
        }
    }
}

/// A PNG of 16 bits is decoded row by row: it takes the memory of its pixels, and not twice its samples in addition.
#[test]
fn a_png_takes_no_more_than_its_pixels() {
    // 3,000 x 2,000 pixels of a byte each take 23,400 KiB decoded, and 46,900 KiB in their 16 bits with alpha.
    let encoded = |color, depth, sample_bytes: usize| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 3_000, 2_000);
        encoder.set_color(color);
        encoder.set_depth(depth);
        let rows = vec![7; 3_000 * 2_000 * sample_bytes];
        encoder.write_header().unwrap().write_image_data(&rows).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("image.png"), bytes).unwrap();
        let list = folder.path().join("list.tsv");
        fs::write(&list, "image.png\t1\n".repeat(4)).unwrap();
        (folder, list)
    };
    let options = ["--threads", "1", "--preset", "eval", "--batch-size", "1"];
    let (_folder, plain) = encoded(png::ColorType::Grayscale, png::BitDepth::Eight, 1);
    let (_other, wide) = encoded(png::ColorType::Rgba, png::BitDepth::Sixteen, 8);
    let output = run(least(&plain, &options) + (16 << 10), &wide, &options);
    assert!(output.status.success(), "{}", stderr(&output));
}
