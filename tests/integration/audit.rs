//! Audits find planted faults, and nothing else.

use crate::common::{self, Asking};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use warpfeed::apply;
use warpfeed::image::{Image, JpegColor, JpegOptions, Size, encode_jpeg, write_png};
use warpfeed::ops::{Op, Resize, Rotate};
use warpfeed::source::{EncodedImages, ImageFolder, ListFile, Source};
use warpfeed_bench::synth;
use warpfeed_cli::audit::{Audit, AuditOptions, Finding, Split, audit};

/// A scene like a photograph; every number gives another.
fn scene(number: u64) -> Image {
    synth::image(7, number, (number % 10) as u32, 10)
}

fn jpeg(image: &Image, quality: u8) -> Vec<u8> {
    encode_jpeg(image, &JpegOptions { quality, ..JpegOptions::default() }).unwrap()
}

/// An encoded image after an operation.
fn changed(bytes: &[u8], op: impl Into<Op>) -> Image {
    let made = apply(bytes, &[op.into()], &common::as_made(&[])).unwrap();
    let size = Size::new(made.shape()[2] as u32, made.shape()[1] as u32);
    Image::from_rgb(size, made.as_slice::<u8>().unwrap()).unwrap()
}

fn half(bytes: &[u8]) -> Image {
    let Size { width, height } = warpfeed::image::probe(bytes).unwrap().size;
    changed(bytes, Resize::new(Size::new(width / 2, height / 2)))
}

/// A PNG of these colors and bits, from the upper left of a scene.
fn png(number: u64, color: png::ColorType, depth: png::BitDepth) -> Vec<u8> {
    let scene = scene(number);
    let (side, mut data, mut bytes) = (100, Vec::new(), Vec::new());
    for y in 0..side {
        for pixel in &scene.row(y)[..side as usize] {
            let samples = if color == png::ColorType::Rgba { &pixel[..] } else { &pixel[..3] };
            for sample in samples {
                data.extend(std::iter::repeat_n(*sample, if depth == png::BitDepth::Sixteen { 2 } else { 1 }));
            }
        }
    }
    let mut encoder = png::Encoder::new(&mut bytes, side, side);
    encoder.set_color(color);
    encoder.set_depth(depth);
    encoder.write_header().unwrap().write_image_data(&data).unwrap();
    bytes
}

/// Two splits with two classes each, and the expected findings of each file.
fn planted(root: &Path) -> BTreeMap<String, Vec<Finding>> {
    use Finding::*;
    let mut wanted = BTreeMap::new();
    let mut put = |name: &str, bytes: &[u8], found: &[Finding]| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        wanted.insert(name.to_owned(), found.to_vec());
    };
    let of = |number| jpeg(&scene(number), 92);
    for number in 0..16 {
        let class = if number % 2 == 0 { "cat" } else { "dog" };
        let found: &[Finding] = match number {
            // Their copies are below.
            4 | 10 => &[OtherLabel],
            5 => &[OtherSplit],
            6 => &[OtherSplit],
            _ => &[],
        };
        put(&format!("train/{class}/{number:02}.jpg"), &of(number), found);
    }
    let whole = of(20);
    put("train/cat/cut.jpg", &whole[..whole.len() * 2 / 3], &[Truncated]);
    put("train/cat/cut-in-header.jpg", &of(20)[..100], &[Truncated]);
    let painted = png(21, png::ColorType::Rgb, png::BitDepth::Eight);
    put("train/cat/cut.png", &painted[..painted.len() / 2], &[Truncated]);
    put("train/cat/rubbish.jpg", b"no image at all", &[Unreadable]);
    put("train/cat/empty.jpg", b"", &[Unreadable]);
    put("train/cat/page.jpg", b"<!DOCTYPE html><html>not found</html>", &[Unreadable, Extension]);
    put("train/cat/painted.jpg", &painted, &[Extension]);
    let mut options = JpegOptions { color: JpegColor::Cmyk, ..JpegOptions::default() };
    put("train/dog/inks.jpg", &encode_jpeg(&scene(22), &options).unwrap(), &[Cmyk]);
    options.color = JpegColor::Gray;
    put("train/dog/gray.jpg", &encode_jpeg(&scene(23), &options).unwrap(), &[Gray]);
    put("train/dog/alpha.png", &png(24, png::ColorType::Rgba, png::BitDepth::Eight), &[Alpha]);
    put("train/dog/deep.png", &png(25, png::ColorType::Rgb, png::BitDepth::Sixteen), &[SixteenBits]);
    let small = changed(&of(26), Resize::new(Size::new(30, 40)));
    put("train/dog/small.jpg", &jpeg(&small, 92), &[Tiny]);
    let narrow = changed(&of(27), Resize::new(Size::new(400, 50)));
    put("train/dog/narrow.jpg", &jpeg(&narrow, 92), &[Ratio]);
    // Images without content are not copies of each other.
    put("train/dog/black.jpg", &jpeg(&Image::new(Size::new(800, 700)), 92), &[Huge]);
    put("train/dog/black-too.jpg", &jpeg(&Image::new(Size::new(90, 80)), 92), &[]);

    put("train/cat/99-copy.jpg", &of(2), &[Duplicate]);
    put("train/dog/99-of-cat.jpg", &of(4), &[Duplicate, OtherLabel]);
    put("train/cat/99-half.jpg", &jpeg(&half(&of(8)), 85), &[NearDuplicate]);
    put("train/dog/99-less.jpg", &jpeg(&scene(3), 70), &[NearDuplicate]);
    put("train/dog/99-less-of-cat.jpg", &jpeg(&scene(10), 70), &[NearDuplicate, OtherLabel]);
    let turned = changed(&of(12), Rotate::new(90.0).expand(true));
    let turned = encode_jpeg(&turned, &JpegOptions { orientation: Some(6), ..JpegOptions::default() }).unwrap();
    put("train/cat/99-turned.jpg", &turned, &[Turned, NearDuplicate]);

    for number in 30..34 {
        put(&format!("val/cat/{number}.jpg"), &of(number), &[]);
    }
    put("val/dog/same.jpg", &of(5), &[OtherSplit]);
    put("val/cat/less.jpg", &jpeg(&half(&of(6)), 80), &[OtherSplit]);
    wanted
}

fn split(root: &Path, name: &str) -> Split {
    Split { name: name.to_owned(), images: Arc::new(ImageFolder::open(root.join(name)).unwrap()) }
}

/// The findings about each file.
fn found(audited: &Audit, splits: &[Split], root: &Path) -> BTreeMap<String, Vec<Finding>> {
    let all = splits.iter().enumerate().flat_map(|(number, split)| (0..split.images.len()).map(move |i| (number, i)));
    let name = |number: usize, index| {
        let name = splits[number].images.name(index).into_owned();
        Path::new(&name).strip_prefix(root).unwrap().to_str().unwrap().to_owned()
    };
    all.map(|(number, index)| (name(number, index), audited.findings(number, index))).collect()
}

fn options() -> AuditOptions {
    let mut options = AuditOptions::default();
    options.huge_px = 500_000;
    options
}

#[test]
fn what_was_planted_is_found_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let wanted = planted(root);
    let splits = || vec![split(root, "train"), split(root, "val")];
    let mut done = 0;
    for threads in [1, 3] {
        let mut options = options();
        options.threads = threads;
        let audited = audit(splits(), &options, &mut |count| done = count).unwrap();
        let mut got = found(&audited, &splits(), root);
        // The clock decides about these.
        got.values_mut().for_each(|findings| findings.retain(|finding| *finding != Finding::Slow));
        assert_eq!(got, wanted);
        assert_eq!(done, wanted.len() as u64);
        assert!(audited.findings(0, 1_000).is_empty() && audited.findings(2, 0).is_empty());
    }

    // The remainder has no dropped image, and the labels that it had.
    let mut options = options();
    let drop =
        [Finding::Unreadable, Finding::Truncated, Finding::Duplicate, Finding::NearDuplicate, Finding::OtherSplit];
    (options.kept, options.drop) = (Some(root.join("clean.tsv")), drop.to_vec());
    audit(splits(), &options, &mut |_| {}).unwrap();
    let list = ListFile::open(root.join("clean.tsv")).unwrap();
    let is_dropped = |findings: &Vec<Finding>| findings.iter().any(|finding| drop.contains(finding));
    let of_train = wanted.iter().filter(|(name, findings)| name.starts_with("train") && !is_dropped(findings));
    let names: Vec<String> = of_train.map(|(name, _)| name.clone()).collect();
    let listed: Vec<String> =
        (0..list.len()).map(|i| list.path(i).strip_prefix(root).unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(listed, names);
    assert!((0..list.len()).all(|i| list.label(i).unwrap() == u32::from(listed[i as usize].contains("dog"))));
    assert!(!fs::read_to_string(root.join("clean.tsv")).unwrap().contains(root.to_str().unwrap()), "relative paths");
    let again = vec![Split { name: "clean".to_owned(), images: Arc::new(list.clone()) }, split(root, "val")];
    let again = audit(again, &AuditOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(again.kept(&drop).count() as u64, list.len());
}

#[test]
fn splits_of_other_classes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["train/cat/1.jpg", "train/dog/2.jpg", "val/dog/3.jpg", "val/elk/4.jpg", "flat/5.jpg"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, jpeg(&scene(name.len() as u64), 90)).unwrap();
    }
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let said = |against: &str| {
        let output = command(&["audit", &path("train"), "--against", &path(against)]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let words = said("val");
    let want = "train and val have different classes; only train has cat; only val has elk; 1 classes of both have other labels.";
    assert!(words.contains(want), "{words}");
    assert!(said("flat").contains("train has labels, and flat has none."));
    assert!(!said("train").contains("classes;"));
}

#[test]
fn an_interrupted_audit_goes_on() {
    let images: Vec<(Vec<u8>, u32)> = (0..12).map(|i| (jpeg(&scene(i % 11), 80), (i % 2) as u32)).collect();
    let source = EncodedImages::new(images);
    // Images that are gone.
    let gone = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&gone);
    let asking = Arc::new(Asking(source.clone(), move |index, _: &warpfeed::source::ReadRequest<'_>| {
        const NO_SUCH_FILE: i32 = 2;
        if asked.lock().unwrap().contains(&index) { Err(common::cannot_open(index, NO_SUCH_FILE)) } else { Ok(()) }
    }));
    let splits = || vec![Split { name: "train".to_owned(), images: Arc::clone(&asking) as Arc<dyn Source> }];
    let folder = tempfile::tempdir().unwrap();
    let mut options = AuditOptions::default();
    options.folder = Some(folder.path().join("out"));
    let file = folder.path().join("out/audit.jsonl");
    // The clock decides about slow ones.
    let findings = |audited: &Audit| -> Vec<Vec<Finding>> {
        let of = |i| audited.findings(0, i).into_iter().filter(|finding| *finding != Finding::Slow).collect();
        (0..12).map(of).collect()
    };
    let wanted = findings(&audit(splits(), &options, &mut |_| {}).unwrap());
    assert_eq!(wanted[11], [Finding::Duplicate, Finding::OtherLabel]);
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 13);

    // The process was killed while it wrote the sixth record.
    let cut = lines[..6].join("\n") + "\n" + &lines[6][..50];
    fs::write(&file, &cut).unwrap();
    let refused = audit(splits(), &options, &mut |_| {}).unwrap_err();
    assert!(refused.is_parameter() && refused.to_string().contains("resume it"), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), cut);
    // The images that have a record are not read again.
    let number = |line: &&str| serde_json::from_str::<Value>(line).unwrap()["image"].as_u64().unwrap();
    *gone.lock().unwrap() = lines[1..6].iter().map(number).collect();
    options.resume = true;
    let mut begun = None;
    let resumed = audit(splits(), &options, &mut |done| _ = begun.get_or_insert(done)).unwrap();
    assert_eq!((findings(&resumed), begun), (wanted.clone(), Some(5)));
    let text = fs::read_to_string(&file).unwrap();
    let mut numbers: Vec<u64> = text.lines().skip(1).collect::<Vec<_>>().iter().map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..12).collect::<Vec<_>>());

    // A finished audit is taken as it is, or made anew.
    assert_eq!(findings(&audit(splits(), &options, &mut |_| {}).unwrap()), wanted);
    options.resume = false;
    gone.lock().unwrap().clear();
    assert_eq!(findings(&audit(splits(), &options, &mut |_| {}).unwrap()), wanted);
    let other = vec![Split { name: "train".to_owned(), images: Arc::new(common::source(12)) }];
    options.resume = true;
    assert!(audit(other, &options, &mut |_| {}).unwrap_err().to_string().contains("the same images"));
}

#[test]
fn a_folder_has_one_audit_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let splits = || vec![Split { name: "train".to_owned(), images: Arc::new(common::source(3)) }];
    let mut options = AuditOptions::default();
    options.folder = Some(folder.path().to_owned());
    let mut refused = Vec::new();
    let mut meanwhile = |_| refused.extend(audit(splits(), &options, &mut |_| {}).err().map(|error| error.to_string()));
    audit(splits(), &options, &mut meanwhile).unwrap();
    assert!(!refused.is_empty());
    let holder = format!("process {}", std::process::id());
    assert!(refused.iter().all(|text| text.contains(&holder) && text.contains("audit.jsonl")), "{refused:?}");
    audit(splits(), &options, &mut |_| {}).unwrap();
    assert!(!folder.path().join(".audit.jsonl.lock").exists());
}

#[test]
#[cfg(unix)]
fn an_image_that_was_replaced_is_looked_at_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join("images/a").join(name);
    fs::create_dir_all(file("")).unwrap();
    for i in 0..3 {
        fs::write(file(&format!("{i}.jpg")), common::jpeg(40 + i, 30, i.into())).unwrap();
    }
    let is_unreadable = |options: &AuditOptions| {
        let images = Arc::new(ImageFolder::open(folder.path().join("images")).unwrap());
        let audited = audit(vec![Split { name: "train".to_owned(), images }], options, &mut |_| {}).unwrap();
        audited.findings(0, 1).contains(&Finding::Unreadable)
    };
    let mut options = AuditOptions::default();
    options.folder = Some(folder.path().join("out"));
    options.resume = true;
    assert!(!is_unreadable(&options));
    // Of the same length, with the same time.
    let bytes = fs::read(file("1.jpg")).unwrap();
    let modified = fs::metadata(file("1.jpg")).unwrap().modified().unwrap();
    fs::write(file("1.jpg"), vec![b'x'; bytes.len()]).unwrap();
    fs::File::options().write(true).open(file("1.jpg")).unwrap().set_modified(modified).unwrap();
    for _ in 0..2 {
        assert!(is_unreadable(&options));
    }
    fs::write(file("1.jpg"), bytes).unwrap();
    assert!(!is_unreadable(&options));
}

#[test]
fn faults_of_the_machine_end_an_audit() {
    const TOO_MANY_OPEN_FILES: i32 = 24;
    let failing = Asking(common::source(30), |index, _: &warpfeed::source::ReadRequest<'_>| match index {
        20 => Err(common::cannot_open(index, TOO_MANY_OPEN_FILES)),
        _ => Ok(()),
    });
    let splits = vec![Split { name: "train".to_owned(), images: Arc::new(failing) }];
    let error = audit(splits, &AuditOptions::default(), &mut |_| {}).unwrap_err();
    assert!(!error.is_bad_sample() && error.to_string().contains("images/20.jpg"), "{error}");

    let panicking = Asking(common::source(30), |index, _: &warpfeed::source::ReadRequest<'_>| {
        assert_ne!(index, 20, "a defect of the caller's");
        Ok(())
    });
    let splits = vec![Split { name: "train".to_owned(), images: Arc::new(panicking) }];
    let error = audit(splits, &AuditOptions::default(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(audit(Vec::new(), &AuditOptions::default(), &mut |_| {}).unwrap_err().is_parameter());
}

fn command(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpfeed")).args(args).output().unwrap()
}

#[test]
fn the_command_reports_what_it_found() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    planted(root);
    let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let (train, val, out, list) = (at("train"), at("val"), at("out"), at("lists/clean.tsv"));
    fs::create_dir(root.join("lists")).unwrap();
    let dropped = "unreadable,truncated,duplicate,near-duplicate,other-split,other-label";
    let args = [
        "audit",
        &train,
        "--against",
        &val,
        "--out",
        &out,
        "--kept",
        &list,
        "--drop",
        dropped,
        "--json",
        "--huge",
        "1",
    ];
    let report = common::report(&command(&args));
    let findings = &report["figures"]["findings"];
    assert_eq!(findings["truncated"], serde_json::json!([3, 0]));
    assert_eq!(findings["other-split"], serde_json::json!([2, 2]));
    assert_eq!(findings["animated"], serde_json::json!([0, 0]));
    let kept = report["figures"]["kept"].as_u64().unwrap();
    assert_eq!(kept, ListFile::open(&list).unwrap().len());
    // A list elsewhere names the same files.
    assert_eq!(ListFile::open(&list).unwrap().encoded(0).unwrap(), fs::read(at("train/cat/00.jpg")).unwrap());
    let copies = report["figures"]["copies"].as_array().unwrap();
    assert_eq!(copies.len(), 8);
    assert!(copies.iter().any(|pair| {
        pair["copy"]["name"].as_str().unwrap().ends_with("99-half.jpg")
            && pair["of"]["name"].as_str().unwrap().ends_with("08.jpg")
    }));

    let page = fs::read_to_string(root.join("out/report.html")).unwrap();
    assert!(page.contains("<h1>warpfeed audit</h1>") && page.matches("data:image/jpeg;base64,").count() > 20);
    assert!(page.contains("near-duplicate: shows what an earlier image shows, 4 in all"));
    let found = fs::read_to_string(root.join("out/found.jsonl")).unwrap();
    let cut = found.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let cut: Vec<Value> = cut.filter(|found| found["findings"] == serde_json::json!(["truncated"])).collect();
    assert_eq!(cut.len(), 3);
    assert_eq!((&cut[0]["split"], &cut[0]["class"]), (&"train".into(), &"cat".into()));

    let words = command(&["audit", &val, "--out", &out, "--resume"]);
    assert_eq!(words.status.code(), Some(2), "other images");
    let words = command(&["audit", &train, "--against", &val, "--out", &out, "--resume"]);
    let words = String::from_utf8(words.stdout).unwrap();
    assert!(words.contains("\ntruncated       ends before the image is complete"), "{words}");
    for (wrong, says) in [
        (vec!["audit", &train, "--drop", "truncated"], "--kept"),
        (vec!["audit", &train, "--kept", &list, "--drop", "ugly"], "near-duplicate"),
        (vec!["audit", &train, "--resume"], "--out"),
        (vec!["audit", &train, "--threads", "0"], "threads"),
        (vec!["audit", &train, "--ratio", "nan"], "max_ratio"),
    ] {
        let output = command(&wrong);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(says), "{wrong:?}: {said}");
    }
    // Images of shards are not files.
    let shards = at("shards");
    assert!(command(&["pack", &val, "-o", &shards, "--format", "webdataset"]).status.success());
    let report = common::report(&command(&["audit", &train, "--against", &shards, "--json"]));
    assert_eq!(report["figures"]["findings"]["other-split"], serde_json::json!([2, 2]));
    let output = command(&["audit", &shards, "--kept", &list]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("audit.jsonl"));
    write_png(&Image::new(Size::new(40, 40)), root.join("lists/one.png")).unwrap();
    assert!(String::from_utf8(command(&["audit", &at("lists")]).stdout).unwrap().contains("Nothing was found about 1"));
}
