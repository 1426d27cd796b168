//! Packing: the same images in every form, whatever interrupts it.

mod common;

use common::{delivered, image, jpeg, small};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use warpfeed::pack::{PackOptions, pack};
use warpfeed::{
    Decoder, EncodedImages, Error, Image, JpegColor, JpegOptions, RecordFormat, Rect, Size, Source, encode_jpeg, open,
    probe,
};

const FORMATS: [RecordFormat; 3] = [RecordFormat::WebDataset, RecordFormat::RecordIo, RecordFormat::TfRecord];

/// Shards of 1 MB, so that there are some.
fn options(format: RecordFormat) -> PackOptions {
    PackOptions { shard_bytes: 1_000_000, workers: 3, ..PackOptions::new(format) }
}

/// 40 images of about 90 kB in ten classes.
fn large() -> EncodedImages {
    let images = (0..40).map(|i| (jpeg(300 + 5 * i, 320, i.into()), i % 10));
    EncodedImages::new(images).with_classes((0..10).map(|i| format!("class {i}")))
}

/// Each sample's bytes and label.
fn data_set(path: &Path) -> Arc<dyn Source> {
    open(path).unwrap().into_data_set().unwrap()
}

fn contents(source: &dyn Source) -> Vec<(Vec<u8>, u32)> {
    let mut buffer = Vec::new();
    (0..source.len()).map(|i| (source.read(i, &mut buffer).unwrap().to_vec(), source.label(i))).collect()
}

/// The files of a folder that are not hidden.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named.filter(|(name, _)| !name.starts_with('.')).map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

fn decoded(bytes: &[u8]) -> Vec<u8> {
    let (header, mut image) = (probe(bytes).unwrap(), Image::default());
    Decoder::new().unwrap().decode(bytes, &header, Rect::full(header.size), false, &mut image).unwrap();
    image.to_rgb()
}

#[test]
fn every_form_holds_the_same_and_runs_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let source = large();
    let (want, want_run) = (contents(&source), delivered(&small(large()).build().unwrap(), 0));
    let mut before: Option<std::path::PathBuf> = None;
    for format in FORMATS {
        let out = folder.path().join("train");
        let out = out.with_extension(format!("{format:?}"));
        // From memory first, then from the form before.
        let report = match &before {
            None => pack(&source, &out, &options(format), &mut |_| {}),
            Some(before) => pack(&data_set(before), &out, &options(format), &mut |_| {}),
        }
        .unwrap();
        assert_eq!((report.images, report.bad_count, report.resumed_images), (40, 0, 0));
        assert!(report.shards.len() >= 3, "{:?}", report.shards);
        assert_eq!(report.bytes, report.shards.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>());
        assert!(report.shards.iter().all(|path| fs::metadata(path).unwrap().len() <= 1_000_000));
        let packed = data_set(&out);
        assert_eq!(contents(&packed), want, "{format:?}");
        assert_eq!(packed.classes(), source.classes());
        assert_eq!(delivered(&small(packed).build().unwrap(), 0), want_run, "{format:?}");
        before = Some(out);
    }
}

#[test]
fn names_and_bytes_do_not_depend_on_workers() {
    let folder = tempfile::tempdir().unwrap();
    for (format, want) in [
        (RecordFormat::WebDataset, &["train-000000.tar", "train-000001.tar"][..]),
        (RecordFormat::RecordIo, &["train-000000.idx", "train-000000.rec", "train-000001.idx"]),
        (RecordFormat::TfRecord, &["train-00000-of-0000", "train-00001-of-0000"]),
    ] {
        let [one, many] = [1, 5].map(|workers| {
            let out = folder.path().join(format!("{format:?}{workers}/train"));
            pack(&large(), &out, &PackOptions { workers, ..options(format) }, &mut |_| {}).unwrap();
            files(&out)
        });
        assert_eq!(one, many, "{format:?}");
        let names: Vec<&String> = one.keys().filter(|name| *name != "pack.json").collect();
        assert!(names.iter().zip(want).all(|(name, want)| name.starts_with(want)), "{names:?}");
    }
}

#[test]
fn recordio_cuts_at_its_magic_number() {
    let folder = tempfile::tempdir().unwrap();
    let magic = 0xced7_230a_u32.to_le_bytes();
    // Behind the end of a JPEG anything may stand.
    let with = |rest: &[u8]| [&jpeg(16, 16, 1)[..], rest].concat();
    let aligned = with(&magic.repeat(3));
    let images: Vec<_> = (0..4).map(|i| [&aligned[..], &vec![0; i], &magic, &magic, b"end"].concat()).collect();
    let source = EncodedImages::new(images.into_iter().map(|bytes| (bytes, 1)));
    let out = folder.path().join("train");
    pack(&source, &out, &options(RecordFormat::RecordIo), &mut |_| {}).unwrap();
    assert_eq!(contents(&data_set(&out)), contents(&source));
    let parts = fs::read(out.join("train-000000.rec")).unwrap().windows(4).filter(|word| *word == magic).count();
    assert!(parts > 6, "{parts}: some were cut");
}

#[test]
fn baseline_keeps_every_pixel_of_progressive_images() {
    let folder = tempfile::tempdir().unwrap();
    let encode = |options| encode_jpeg(&image(90, 61, 3), &options).unwrap();
    let plain = JpegOptions::default();
    let progressive = JpegOptions { progressive: true, orientation: Some(6), ..plain.clone() };
    let grey = JpegOptions { progressive: true, color: JpegColor::Gray, ..plain.clone() };
    let cmyk = JpegOptions { color: JpegColor::Cmyk, quality: 95, orientation: Some(3), ..plain.clone() };
    let images = [plain, progressive, grey, cmyk].map(encode);
    let truncated = images[1][..images[1].len() / 2].to_vec();
    let all = images.iter().cloned().chain([truncated]).map(|bytes| (bytes, 0));
    let out = folder.path().join("train");
    let packing = PackOptions { baseline: true, quality: 95, ..options(RecordFormat::WebDataset) };
    let report = pack(&EncodedImages::new(all), &out, &packing, &mut |_| {}).unwrap();
    assert_eq!((report.images, report.made_baseline, report.made_ycc, report.bad_count), (4, 2, 1, 1));
    assert!(report.bad[0].index == 4 && report.bad[0].path.contains("image 4"), "{:?}", report.bad);
    let packed = contents(&data_set(&out));
    assert_eq!(packed[0].0, images[0], "what is baseline is copied");
    for i in 1..3 {
        let header = probe(&packed[i].0).unwrap();
        assert!(!header.progressive);
        assert_eq!(header.orientation, probe(&images[i]).unwrap().orientation);
        assert_eq!(header.sampling, probe(&images[i]).unwrap().sampling);
        assert_eq!(decoded(&packed[i].0), decoded(&images[i]), "image {i}");
    }
    let header = probe(&packed[3].0).unwrap();
    assert_eq!((header.components, header.orientation, header.sampling[1]), (3, 3, (1, 1)));
    let (want, got) = (decoded(&images[3]), decoded(&packed[3].0));
    let apart: u64 = want.iter().zip(&got).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    assert!(apart < 4 * want.len() as u64, "{apart} over {} values: what encoding at 95 costs", want.len());
}

#[test]
fn shrinking_bounds_the_longer_side_and_leaves_small_images_alone() {
    let folder = tempfile::tempdir().unwrap();
    let turned = JpegOptions { orientation: Some(6), ..JpegOptions::default() };
    let images = [jpeg(100, 40, 1), jpeg(64, 64, 2), encode_jpeg(&image(200, 100, 3), &turned).unwrap()];
    let out = folder.path().join("train");
    let packing = PackOptions { max_side_px: Some(64), ..options(RecordFormat::TfRecord) };
    let source = EncodedImages::new(images.clone().map(|bytes| (bytes, 0)));
    assert_eq!(pack(&source, &out, &packing, &mut |_| {}).unwrap().shrunk, 2);
    let packed = contents(&data_set(&out));
    let sizes: Vec<Size> = packed.iter().map(|(bytes, _)| probe(bytes).unwrap().size).collect();
    assert_eq!(sizes, [Size::new(64, 25), Size::new(64, 64), Size::new(32, 64)]);
    assert_eq!(packed[1].0, images[1]);
}

#[test]
fn bad_samples_are_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = jpeg(40, 30, 1);
    let without_end = good[..good.len() - 2].to_vec();
    let bad = [b"no image".to_vec(), good[..good.len() / 2].to_vec(), Vec::new()];
    let order = [&bad[0], &good, &bad[1], &without_end, &bad[2]];
    let source = EncodedImages::new(order.into_iter().cloned().zip(0..));
    let out = folder.path().join("train");
    let report = pack(&source, &out, &options(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    assert_eq!(report.bad.iter().map(|bad| bad.index).collect::<Vec<_>>(), [0, 2, 4]);
    assert_eq!((report.bad_count, report.images), (3, 2));
    // A JPEG that lacks only its end marker decodes whole.
    assert_eq!(contents(&data_set(&out)), [(good.clone(), 1), (without_end, 3)]);
    let none = EncodedImages::new([(bad[0].clone(), 0)]);
    let error = pack(&none, &folder.path().join("none"), &options(RecordFormat::TfRecord), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("1 bad samples") && error.to_string().contains("no JPEG"), "{error}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = EncodedImages::new([(jpeg(20, 20, 1), 1 << 25)]);
    let refused = |source: &EncodedImages, out: &str, packing: &PackOptions, says: &str| {
        let error = pack(source, &folder.path().join(out), packing, &mut |_| {}).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(says), "{error}");
    };
    let tar = options(RecordFormat::WebDataset);
    refused(&source, "rec", &options(RecordFormat::RecordIo), "labels up to 16777216");
    refused(&source, "a", &PackOptions { shard_bytes: 999_999, ..tar.clone() }, "1 MB or more");
    refused(&source, "a", &PackOptions { quality: 0, ..tar.clone() }, "quality");
    refused(&source, "a", &PackOptions { workers: 0, ..tar.clone() }, "workers");
    refused(&source, ".hidden", &tar, "does not start with a dot");
    pack(&source, &folder.path().join("a"), &tar, &mut |_| {}).unwrap();
    pack(&source, &folder.path().join("a"), &tar, &mut |_| {}).unwrap();
    refused(&source, "a", &PackOptions { quality: 80, ..tar.clone() }, "quality 90, not 80");
    refused(&large(), "a", &tar, "source fingerprint");
    fs::create_dir(folder.path().join("full")).unwrap();
    fs::write(folder.path().join("full/file"), "").unwrap();
    refused(&source, "full", &tar, "an empty or new folder");
}

#[test]
fn what_is_lost_afterwards_is_packed_again() {
    let folder = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let out = folder.path().join(format!("{format:?}/train"));
        let report = pack(&large(), &out, &options(format), &mut |_| {}).unwrap();
        let whole = files(&out);
        fs::remove_file(&report.shards[1]).unwrap();
        fs::write(out.join(".train-000001.tar.1-0.tmp"), "left over").unwrap();
        if format == RecordFormat::TfRecord {
            assert!(open(&out).err().unwrap().is_parameter(), "a shard is missing");
        }
        let report = pack(&large(), &out, &options(format), &mut |_| {}).unwrap();
        assert!((1..40).contains(&report.resumed_images), "{}", report.resumed_images);
        assert_eq!(files(&out), whole, "{format:?}");
        assert!(!out.join(".train-000001.tar.1-0.tmp").exists());
    }
}

/// A source that cannot be read on after some samples, as if the process had been killed there.
struct Breaks(EncodedImages, u64);

impl Source for Breaks {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read<'a>(&'a self, index: u64, buffer: &'a mut Vec<u8>) -> warpfeed::Result<&'a [u8]> {
        if index >= self.1 {
            return Err(Error::Unsupported { feature: "reading on".into(), remedy: "call again".into() });
        }
        self.0.read(index, buffer)
    }
    fn label(&self, index: u64) -> u32 {
        self.0.label(index)
    }
    fn name(&self, index: u64) -> std::borrow::Cow<'_, str> {
        self.0.name(index)
    }
    fn classes(&self) -> &[String] {
        self.0.classes()
    }
}

#[test]
fn an_interrupted_run_goes_on_and_its_folder_is_no_source_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let whole = folder.path().join(format!("whole/{format:?}/train"));
        pack(&large(), &whole, &options(format), &mut |_| {}).unwrap();
        let out = folder.path().join(format!("{format:?}/train"));
        for until in [0, 15, 30] {
            let error = pack(&Breaks(large(), until), &out, &options(format), &mut |_| {}).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(open(&out).is_err(), "{format:?} after {until} samples");
            // What has its name is whole.
            let want = files(&whole);
            assert!(files(&out).iter().all(|(name, bytes)| name == "pack.json" || want[name] == *bytes));
        }
        let report = pack(&large(), &out, &options(format), &mut |_| {}).unwrap();
        assert!(report.resumed_images > 10);
        assert_eq!(files(&out), files(&whole), "{format:?}");
    }
}

/// The command, killed at random moments, until it is done.
#[test]
#[cfg(all(unix, feature = "cli"))]
fn a_killed_command_leaves_no_shard_that_looks_whole() {
    use std::process::{Command, Stdio};
    use std::time::Duration;
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    for (i, (bytes, label)) in contents(&large()).iter().enumerate() {
        let class = images.join(format!("class {label}"));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join(format!("{i:02}.jpg")), bytes).unwrap();
    }
    let command = |out: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.args(["pack", "--format", "tfrecord", "--shard-size", "1MB", "--max-side", "300", "--workers", "1"]);
        command.arg(&images).arg("-o").arg(out).stdout(Stdio::null());
        command
    };
    let whole = folder.path().join("whole/train");
    assert!(command(&whole).status().unwrap().success());
    let (want, out) = (files(&whole), folder.path().join("killed/train"));
    let (mut random, mut kills) = (common::Random(9), 0);
    loop {
        let mut child = command(&out).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.within(5, 120).into()));
        if child.try_wait().unwrap().is_some() || kills == 12 {
            assert!(child.wait().unwrap().success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        if out.exists() {
            let found = files(&out);
            assert!(
                found.iter().all(|(name, bytes)| name == "pack.json" || want[name] == *bytes),
                "{:?}",
                found.keys()
            );
        }
    }
    assert!(kills > 0);
    assert_eq!(files(&out), want, "after {kills} kills");
    let left =
        fs::read_dir(&out).unwrap().filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "tmp"));
    assert_eq!(left.count(), 0, "nothing is left over");
}
