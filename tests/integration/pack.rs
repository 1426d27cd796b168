//! Packing: the same images in every form, whatever interrupts it.

use crate::common::{self, Asking, data_set, delivered, image, jpeg, small};
#[cfg(target_os = "linux")]
use crate::kept_points::FAULTS;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use warpfeed::ops::random_resized_crop;
use warpfeed::pack::{PackOptions, PackReport, pack, verify};
use warpfeed::{
    BadLimit, EntryPoints, Error, PipelineBuilder, Rank,
    image::{Decoder, Image, JpegColor, JpegOptions, Rect, Size, encode_jpeg, probe},
    source::{EncodedImages, ReadRequest, RecordFormat, Source, open},
};

/// Shards of 1 MB, so that there are some.
fn options(format: RecordFormat) -> PackOptions {
    PackOptions::new(format).shard_bytes(1_000_000).workers(3)
}

/// 40 images of about 90 kB in ten classes.
fn large() -> EncodedImages {
    let images = (0..40).map(|i| (jpeg(300 + 5 * i, 320, i.into()), i % 10));
    EncodedImages::new(images).with_classes((0..10).map(|i| format!("class {i}")))
}

/// Each sample's bytes and label.
fn contents(source: &dyn Source) -> Vec<(Vec<u8>, u32)> {
    (0..source.len()).map(|i| (source.encoded(i).unwrap(), source.label(i).unwrap())).collect()
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
    for &format in RecordFormat::ALL {
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
            pack(&large(), &out, &options(format).workers(workers), &mut |_| {}).unwrap();
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
    // Anything may follow the end of a JPEG.
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
    let gray = JpegOptions { progressive: true, color: JpegColor::Gray, ..plain.clone() };
    let cmyk = JpegOptions { color: JpegColor::Cmyk, quality: 95, orientation: Some(3), ..plain.clone() };
    let images = [plain, progressive, gray, cmyk].map(encode);
    let truncated = images[1][..images[1].len() / 2].to_vec();
    let all = images.iter().cloned().chain([truncated]).map(|bytes| (bytes, 0));
    let out = folder.path().join("train");
    let packing = options(RecordFormat::WebDataset).baseline(true).quality(95);
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
fn restarts_keep_every_pixel() {
    let folder = tempfile::tempdir().unwrap();
    let encode = |options| encode_jpeg(&image(90, 161, 3), &options).unwrap();
    let plain = JpegOptions::default();
    let progressive = JpegOptions { progressive: true, orientation: Some(6), ..plain.clone() };
    let cmyk = JpegOptions { color: JpegColor::Cmyk, ..plain.clone() };
    let reference = |name| fs::read(Path::new("../tests/reference/images").join(name)).unwrap();
    let mut images = [plain.clone(), progressive, cmyk].map(encode).to_vec();
    images.push(reference("grey-2x2.jpg"));
    let marked = images.len();
    // What cannot be written so: no JPEG, other processes, and data that are damaged, though they have their end.
    let mut damaged = images[0].clone();
    let len = damaged.len();
    damaged.drain(len / 2..len - 2);
    let (mut twelve_bits, mut arithmetic) = (images[0].clone(), images[0].clone());
    let frame = images[0].windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    (twelve_bits[frame + 4], arithmetic[frame + 1]) = (12, 0xC9);
    images.extend([reference("rgb.png"), reference("lossless-rgb.jpg"), damaged, twelve_bits, arithmetic]);

    let packing = options(RecordFormat::WebDataset).restarts(true);
    let out = folder.path().join("train");
    let source = EncodedImages::new(images.iter().cloned().map(|bytes| (bytes, 0)));
    let report = pack(&source, &out, &packing, &mut |_| {}).unwrap();
    assert_eq!((report.images, report.restarts, report.made_baseline), (9, 4, 1));
    let packed = contents(&data_set(&out));
    for (i, (want, (got, _))) in images.iter().zip(&packed).enumerate() {
        if i < marked {
            let header = probe(got).unwrap();
            assert!(header.restart_interval_mcus > 0 && !header.progressive, "image {i}");
            assert_eq!(header.orientation, probe(want).unwrap().orientation);
            assert_eq!(decoded(got), decoded(want), "image {i}");
        } else {
            assert!(got == want, "image {i} is copied");
        }
    }

    // Packed again, they stay as they are; without restarts another folder is needed.
    let again = folder.path().join("again");
    let report = pack(&*data_set(&out), &again, &packing, &mut |_| {}).unwrap();
    assert_eq!((report.images, report.restarts), (9, 4));
    assert_eq!(contents(&data_set(&again)), packed);
    let error = pack(&source, &out, &options(RecordFormat::WebDataset), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("restarts true, not false"), "{error}");
}

/// libjpeg makes up coefficients that a progressive image lacks, and would not for a baseline one.
#[test]
fn restarts_leave_smoothed_images_alone() {
    let folder = tempfile::tempdir().unwrap();
    let options_ = JpegOptions { progressive: true, quality: 30, ..JpegOptions::default() };
    let whole = encode_jpeg(&image(90, 161, 4), &options_).unwrap();
    // Only its first scan, that of the DC coefficients.
    let scans: Vec<usize> =
        whole.windows(2).enumerate().filter(|(_, pair)| *pair == [0xFF, 0xC4]).map(|(at, _)| at).collect();
    let scan = whole.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap();
    let next = *scans.iter().find(|&&at| at > scan).unwrap();
    let first = [&whole[..next], &[0xFF, 0xD9]].concat();
    let packing = options(RecordFormat::WebDataset).restarts(true);
    let source = EncodedImages::new([(first.clone(), 0), (whole, 0)]);
    let out = folder.path().join("train");
    assert_eq!(pack(&source, &out, &packing, &mut |_| {}).unwrap().restarts, 1);
    assert_eq!(contents(&data_set(&out))[0].0, first);
}

/// An epoch of crops over the same images, with restarts and without.
#[test]
fn crops_are_decoded_by_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let packed = |name: &str, packing: PackOptions| {
        let out = folder.path().join(name);
        pack(&large(), &out, &packing, &mut |_| {}).unwrap();
        // Entry points would serve from the second epoch on.
        small(data_set(&out)).entry_points(EntryPoints::none()).build().unwrap()
    };
    for max_side_px in [None, Some(200)] {
        let plain = options(RecordFormat::TfRecord).max_side_px(max_side_px);
        let side = max_side_px.unwrap_or_default();
        let with = packed(&format!("with-{side}"), plain.clone().restarts(true));
        let without = packed(&format!("without-{side}"), plain);
        assert_eq!(delivered(&with, 0), delivered(&without, 0));
        let restarts = |pipeline: &warpfeed::Pipeline| {
            let mut epoch = pipeline.epoch(0);
            assert!(epoch.by_ref().all(|batch| batch.is_ok()));
            epoch.stats().decoded.restarts
        };
        assert!(restarts(&with) > 20, "{}", restarts(&with));
        assert_eq!(restarts(&without), 0);
    }
}

#[test]
fn entry_points_travel_in_the_images() {
    let folder = tempfile::tempdir().unwrap();
    let packed = |name: &str, packing: PackOptions| {
        let out = folder.path().join(name);
        let report = pack(&large(), &out, &packing, &mut |_| {}).unwrap();
        (report, data_set(&out))
    };
    for (max_side_px, restarts, share) in [(None, false, 0.013), (Some(280), false, 0.013), (None, true, 0.015)] {
        let plain = options(RecordFormat::TfRecord).max_side_px(max_side_px).restarts(restarts);
        let name = format!("{max_side_px:?}-{restarts}");
        let (report, with) = packed(&format!("with-{name}"), plain.clone().entry_points(true));
        let (before, without) = packed(&format!("without-{name}"), plain);
        assert_eq!((report.entry_points, before.entry_points), (40, 0));
        let bytes: [usize; 2] =
            [&with, &without].map(|source| contents(&**source).iter().map(|(bytes, _)| bytes.len()).sum());
        assert!(bytes[0] > bytes[1] && bytes[0] as f64 <= bytes[1] as f64 * (1.0 + share), "{bytes:?}");
        for ((with, _), (without, _)) in contents(&*with).iter().zip(&contents(&*without)) {
            let at = with.iter().zip(without).position(|(a, b)| a != b).unwrap();
            let rest = with.len() - without.len() + at;
            assert!(without[at..] == with[rest..], "all other bytes are the same");
            assert_eq!(decoded(with), decoded(without));
        }
        let epoch = |source: &dyn Fn() -> PipelineBuilder, points: EntryPoints| {
            let pipeline = source().entry_points(points).build().unwrap();
            let batches = delivered(&pipeline, 0);
            let mut epoch = pipeline.epoch(3);
            assert!(epoch.by_ref().all(|batch| batch.is_ok()));
            (batches, epoch.stats().decoded.entry_points)
        };
        let crops = |source: &Arc<dyn Source>| small(Arc::clone(source)).transform(random_resized_crop(200));
        let (want, _) = epoch(&|| crops(&without), EntryPoints::none());
        let (got, used) = epoch(&|| crops(&with), EntryPoints::memory());
        assert!(got == want);
        // They are trusted, so no vectors are needed.
        assert!(used > 30, "{used}");
    }
}

/// Points are replaced, and packing leaves alone what cannot have any.
#[test]
fn entry_points_are_packed_once_and_only_where_they_fit() {
    let folder = tempfile::tempdir().unwrap();
    let encode = |options| encode_jpeg(&image(200, 361, 3), &options).unwrap();
    let progressive = JpegOptions { progressive: true, orientation: Some(6), ..JpegOptions::default() };
    let images = [encode(JpegOptions::default()), encode(progressive), jpeg(30, 20, 1), b"P5 2 1 255 ab".to_vec()];
    let source = EncodedImages::new(images.iter().cloned().map(|bytes| (bytes, 0)));
    let packing = options(RecordFormat::WebDataset).entry_points(true);
    let out = folder.path().join("train");
    let report = pack(&source, &out, &packing, &mut |_| {}).unwrap();
    assert_eq!((report.images, report.entry_points, report.made_baseline), (4, 2, 1));
    let packed = contents(&*data_set(&out));
    assert!(packed[0].0.len() > images[0].len() && packed[2].0 == images[2] && packed[3].0 == images[3]);
    let header = probe(&packed[1].0).unwrap();
    assert_eq!((header.progressive, header.orientation), (false, 6));
    for (want, (got, _)) in images.iter().zip(&packed) {
        assert_eq!(decoded(got), decoded(want));
    }
    let again = folder.path().join("again");
    let report = pack(&*data_set(&out), &again, &packing, &mut |_| {}).unwrap();
    assert_eq!(report.entry_points, 2);
    assert_eq!(contents(&*data_set(&again)), packed);
    let error = pack(&source, &out, &options(RecordFormat::WebDataset), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("entry points true, not false"), "{error}");
}

#[test]
fn shrinking_bounds_the_longer_side_and_leaves_small_images_alone() {
    let folder = tempfile::tempdir().unwrap();
    let turned = JpegOptions { orientation: Some(6), ..JpegOptions::default() };
    let images = [jpeg(100, 40, 1), jpeg(64, 64, 2), encode_jpeg(&image(200, 100, 3), &turned).unwrap()];
    let out = folder.path().join("train");
    let packing = options(RecordFormat::TfRecord).max_side_px(Some(64));
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
    assert!(error.to_string().contains("1 of 1 samples") && error.to_string().contains("no JPEG"), "{error}");
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
    refused(&source, "a", &tar.clone().shard_bytes(999_999), "1 MB or more");
    refused(&source, "a", &tar.clone().quality(0), "quality");
    refused(&source, "a", &tar.clone().workers(0), "workers");
    refused(&source, "a", &tar.clone().workers(1025), "workers must be 1 to 1024");
    refused(&source, ".hidden", &tar, "does not start with a dot");
    pack(&source, &folder.path().join("a"), &tar, &mut |_| {}).unwrap();
    pack(&source, &folder.path().join("a"), &tar, &mut |_| {}).unwrap();
    refused(&source, "a", &tar.clone().quality(80), "quality 90, not 80");
    refused(&large(), "a", &tar, "source fingerprint");
    fs::create_dir(folder.path().join("full")).unwrap();
    fs::write(folder.path().join("full/file"), "").unwrap();
    refused(&source, "full", &tar, "an empty or new folder");
}

#[test]
fn what_is_lost_afterwards_is_packed_again() {
    let folder = tempfile::tempdir().unwrap();
    for &format in RecordFormat::ALL {
        let out = folder.path().join(format!("{format:?}/train"));
        let report = pack(&large(), &out, &options(format), &mut |_| {}).unwrap();
        let whole = files(&out);
        fs::remove_file(&report.shards[1]).unwrap();
        let shard = report.shards[1].file_name().unwrap().to_str().unwrap();
        let left = out.join(format!(".{shard}.0123456789abcdef.tmp"));
        fs::write(&left, "left over").unwrap();
        if format == RecordFormat::TfRecord {
            assert!(open(&out).err().unwrap().is_parameter(), "a shard is missing");
        }
        let report = pack(&large(), &out, &options(format), &mut |_| {}).unwrap();
        assert!((1..40).contains(&report.resumed_images), "{}", report.resumed_images);
        assert_eq!(files(&out), whole, "{format:?}");
        assert!(!left.exists());
    }
}

/// The samples of `large`; one is not usable, and one has other contents of the same length.
fn changed(broken: u64, other: u64) -> EncodedImages {
    let images = (0..40).map(|i| {
        let mut bytes = jpeg(300 + 5 * i, 320, i.into());
        match u64::from(i) {
            i if i == broken => bytes = b"no image".to_vec(),
            // The comment that the encoder leaves out, in the JFIF header's version.
            i if i == other => bytes[12] ^= 1,
            _ => {}
        }
        (bytes, i % 10)
    });
    EncodedImages::new(images).with_classes((0..10).map(|i| format!("class {i}")))
}

#[test]
fn shards_of_samples_that_have_changed_are_packed_again() {
    let folder = tempfile::tempdir().unwrap();
    for (format, ranks) in [
        (RecordFormat::WebDataset, false),
        (RecordFormat::WebDataset, true),
        (RecordFormat::RecordIo, false),
        (RecordFormat::TfRecord, false),
        (RecordFormat::TfRecord, true),
    ] {
        let mut options = options(format);
        options.rank = ranks.then(|| Rank::new(0, 1).unwrap());
        let whole = |source: &EncodedImages, name: &str| {
            let out = folder.path().join(format!("{format:?} {ranks} {name}/train"));
            pack(source, &out, &options, &mut |_| {}).unwrap();
            files(&out)
        };
        let out = folder.path().join(format!("{format:?} {ranks}/train"));
        let broken = changed(17, 99);
        let report = pack(&broken, &out, &options, &mut |_| {}).unwrap();
        assert_eq!((report.bad_count, report.images), (1, 39));
        // As it was, everything is taken over.
        let report = pack(&broken, &out, &options, &mut |_| {}).unwrap();
        assert_eq!((report.resumed_images, report.bad_count), (39, 1));
        // The image was repaired.
        let report = pack(&large(), &out, &options, &mut |_| {}).unwrap();
        assert!((1..39).contains(&report.resumed_images), "{report:?}");
        assert_eq!((report.bad_count, report.images), (0, 40));
        assert_eq!(files(&out), whole(&large(), "repaired"), "{format:?}, ranks: {ranks}");
        // Another was replaced, and its shard is the last one to be lost.
        let report = pack(&changed(99, 30), &out, &options, &mut |_| {}).unwrap();
        assert!((1..40).contains(&report.resumed_images), "{report:?}");
        assert_eq!(files(&out), whole(&changed(99, 30), "replaced"), "{format:?}, ranks: {ranks}");
    }
}

#[test]
fn an_interrupted_run_goes_on_only_from_shards_of_the_same_samples() {
    let folder = tempfile::tempdir().unwrap();
    let (out, options) = (folder.path().join("train"), options(RecordFormat::WebDataset));
    assert!(pack(&breaks(changed(3, 99), 30), &out, &options, &mut |_| {}).is_err());
    let report = pack(&large(), &out, &options, &mut |_| {}).unwrap();
    assert_eq!((report.resumed_images, report.images, report.bad_count), (0, 40, 0));
    let whole = folder.path().join("whole/train");
    pack(&large(), &whole, &options, &mut |_| {}).unwrap();
    assert_eq!(files(&out), files(&whole));
}

/// A source that cannot be read on after some samples, as if the process had been killed there.
fn breaks(images: EncodedImages, after: u64) -> impl Source {
    Asking(images, move |index, _: &ReadRequest<'_>| match index < after {
        true => Ok(()),
        false => Err(Error::Unsupported { feature: "reading on".into(), remedy: "call again".into() }),
    })
}

/// A source whose samples in a range meet an error of the system's.
fn faulty(images: EncodedImages, at: std::ops::Range<u64>, number: i32) -> impl Source {
    Asking(images, move |index, _: &ReadRequest<'_>| match at.contains(&index) {
        true => Err(common::cannot_open(index, number)),
        false => Ok(()),
    })
}

#[test]
#[cfg(unix)]
fn faults_of_the_machine_end_packing_and_leave_nothing_out() {
    const EIO: i32 = 5;
    const EMFILE: i32 = 24;
    const EACCES: i32 = 13;
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole/train");
    pack(&large(), &whole, &options(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    let out = folder.path().join("train");
    let error = pack(&faulty(large(), 25..26, EMFILE), &out, &options(RecordFormat::WebDataset), &mut |_| {});
    let text = error.unwrap_err().to_string();
    assert!(text.contains("images/25.jpg") && text.contains("ulimit -n"), "{text}");
    let report = pack(&large(), &out, &options(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    assert!((1..25).contains(&report.resumed_images) && report.bad_count == 0, "{report:?}");
    assert_eq!(files(&out), files(&whole));
    // A disk that fails at one sample, or at several in a row.
    let out = folder.path().join("disk/train");
    let error = pack(&faulty(large(), 20..23, EIO), &out, &options(RecordFormat::WebDataset), &mut |_| {});
    let text = error.unwrap_err().to_string();
    assert!(text.contains("images/22.jpg") && text.contains("check the disk"), "{text}");
    let report = pack(&faulty(large(), 20..22, EIO), &out, &options(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    assert_eq!((report.bad_count, report.images), (2, 38));
    // A file that may not be read is a bad sample, as ever.
    let out = folder.path().join("denied/train");
    let report = pack(&faulty(large(), 25..26, EACCES), &out, &options(RecordFormat::WebDataset), &mut |_| {});
    assert_eq!(report.unwrap().bad_count, 1);
}

#[test]
fn a_source_of_bad_samples_alone_is_refused_early() {
    let folder = tempfile::tempdir().unwrap();
    let good = jpeg(40, 30, 1);
    let samples = |bad| {
        let all = (0..300).map(|i| (if i < bad { b"no image".to_vec() } else { good.clone() }, 0));
        EncodedImages::new(all)
    };
    let tar = options(RecordFormat::WebDataset);
    let mut most = 0;
    let error = pack(&samples(100), &folder.path().join("bad/train"), &tar, &mut |done| most = most.max(done));
    let text = error.unwrap_err().to_string();
    assert!(text.contains("100") && text.contains("no JPEG"), "{text}");
    assert!(most < 100, "{most}: it ends at the hundredth");
    let report = pack(&samples(99), &folder.path().join("good/train"), &tar, &mut |_| {}).unwrap();
    assert_eq!((report.images, report.bad_count), (201, 99));
    // As many as the caller says.
    for (limit, fits) in [
        (BadLimit::Count(9), false),
        (BadLimit::Count(10), true),
        (BadLimit::Share(0.033), false),
        (BadLimit::Share(0.034), true),
    ] {
        let out = folder.path().join(format!("{limit:?}/train"));
        let limited = tar.clone().max_bad(Some(limit));
        let packed = pack(&samples(10), &out, &limited, &mut |_| {});
        assert_eq!(packed.is_ok(), fits, "{limit:?}");
        assert!(packed.is_ok_and(|report| report.bad_count == 10) || open(&out).is_err());
    }
    let wrong = tar.max_bad(Some(BadLimit::Share(2.0)));
    assert!(pack(&samples(10), &folder.path().join("wrong"), &wrong, &mut |_| {}).unwrap_err().is_parameter());
}

#[test]
fn verifying_finds_what_is_not_as_it_was_packed() {
    let folder = tempfile::tempdir().unwrap();
    for &format in RecordFormat::ALL {
        let out = folder.path().join(format!("{format:?}/train"));
        let packed = pack(&large(), &out, &options(format), &mut |_| {}).unwrap();
        let whole = files(&out);
        let mut done = Vec::new();
        let report = verify(&out, &mut |images| done.push(images)).unwrap();
        assert!(report.damaged.is_empty() && report.complete, "{report:?}");
        assert_eq!((report.images, report.bytes, report.shards), (40, packed.bytes, packed.shards.len() as u64));
        assert_eq!((done.len(), done.last()), (packed.shards.len(), Some(&40)));

        let (shard, len_bytes) = (&packed.shards[1], whole.values().next().unwrap().len());
        let flipped = |mut bytes: Vec<u8>| {
            bytes[len_bytes / 2] ^= 1;
            bytes
        };
        let contents = fs::read(shard).unwrap();
        for (damage, words) in [
            (Some(flipped(contents.clone())), "checksum"),
            (Some(vec![0; contents.len()]), "checksum"),
            (Some(contents[1..].to_vec()), "bytes where"),
            (None, "it is missing"),
        ] {
            match damage {
                Some(bytes) => fs::write(shard, bytes).unwrap(),
                None => fs::remove_file(shard).unwrap(),
            }
            let report = verify(&out, &mut |_| {}).unwrap();
            let [damaged] = &report.damaged[..] else { panic!("{report:?}") };
            assert!(damaged.path == *shard && damaged.error.contains(words), "{damaged:?}");
        }
        // It was removed last: that is the remedy.
        pack(&large(), &out, &options(format), &mut |_| {}).unwrap();
        assert_eq!(files(&out), whole);
        assert!(verify(&out, &mut |_| {}).unwrap().damaged.is_empty());
        if format == RecordFormat::RecordIo {
            let index = shard.with_extension("idx");
            fs::write(&index, vec![0; whole["train-000001.idx"].len()]).unwrap();
            assert_eq!(verify(&out, &mut |_| {}).unwrap().damaged[0].path, index);
        }
    }
    let error = verify(folder.path(), &mut |_| {}).unwrap_err();
    assert!(error.is_parameter() && error.to_string().contains("without pack.json"), "{error}");
}

/// Its counts cannot be compared with the shards, so it has a checksum of itself.
#[test]
fn every_flipped_bit_of_the_manifest_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("train");
    // With a bad sample, and by two runs.
    let mut images = contents(&large());
    images[7].0.clear();
    let source = EncodedImages::new(images).with_classes((0..10).map(|i| format!("class {i}")));
    let tar = options(RecordFormat::WebDataset);
    pack(&breaks(source.clone(), 25), &out, &tar, &mut |_| {}).unwrap_err();
    assert!(verify(&out, &mut |_| {}).unwrap().manifest_verified);
    assert!(pack(&source, &out, &tar, &mut |_| {}).unwrap().resumed_images > 0);
    let (whole, manifest) = (files(&out), out.join("pack.json"));
    let report = verify(&out, &mut |_| {}).unwrap();
    assert!(report.damaged.is_empty() && report.complete && report.manifest_verified, "{report:?}");
    let text = &whole["pack.json"];
    // Written in place: file systems sync a file that is truncated and written anew.
    let mut file = fs::File::options().write(true).open(&manifest).unwrap();
    let mut put = |at: usize, byte: u8| {
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&[byte]).unwrap();
    };
    for bit in 0..8 * text.len() {
        let (at, byte) = (bit / 8, text[bit / 8]);
        put(at, byte ^ 1 << (bit % 8));
        let error = verify(&out, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(manifest.to_str().unwrap()) && error.contains("damaged ("), "bit {bit}: {error}");
        put(at, byte);
    }
    let text = String::from_utf8(text.clone()).unwrap();
    fs::write(&manifest, text.replace(r#""quality": 90"#, r#""quality": 80"#)).unwrap();
    assert!(open(&out).is_err());
    let report = pack(&source, &out, &tar, &mut |_| {}).unwrap();
    assert!(report.damaged_manifest.unwrap().contains("checksum"));
    assert_eq!(files(&out), whole);
    // An earlier version wrote none.
    fs::write(&manifest, format!("{}\n}}\n", text.rsplit_once(",\n").unwrap().0)).unwrap();
    assert_eq!(data_set(&out).len(), 39);
    assert_eq!(pack(&source, &out, &tar, &mut |_| {}).unwrap().resumed_images, 39);
    let report = verify(&out, &mut |_| {}).unwrap();
    assert!(report.damaged.is_empty() && !report.manifest_verified, "{report:?}");
    // The checksum comes with the next write.
    fs::remove_file(out.join("train-000001.tar")).unwrap();
    pack(&source, &out, &tar, &mut |_| {}).unwrap();
    assert_eq!(files(&out), whole);
}

/// A manifest may be somebody else's: it names files in its folder alone.
#[test]
fn names_in_a_manifest_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let (out, other) = (folder.path().join("train"), folder.path().join("secret"));
    let tar = options(RecordFormat::WebDataset);
    pack(&large(), &out, &tar, &mut |_| {}).unwrap();
    let text = fs::read_to_string(out.join("pack.json")).unwrap();
    let absolute = other.to_str().unwrap();
    for name in ["../secret", "..", ".", "", "a/../../secret", absolute] {
        fs::write(&other, "mine").unwrap();
        let (text, _) = text.rsplit_once(",\n").unwrap();
        // Without a checksum, as an earlier version wrote it: an attacker need not compute one.
        let evil = text.replacen("\"train-000000.tar\"", &format!("\"{name}\""), 1) + "\n}\n";
        fs::write(out.join("pack.json"), evil).unwrap();
        for error in [open(&out).err().unwrap(), verify(&out, &mut |_| {}).unwrap_err()] {
            assert!(error.to_string().contains("no name of a file in its folder"), "{name}: {error}");
        }
        pack(&large(), &out, &tar, &mut |_| {}).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"mine", "{name}");
    }
    // A shard that claims to end anywhere is rebuilt.
    let whole = files(&out);
    for end in [0, 1 << 40, u64::MAX] {
        let (text, _) = text.rsplit_once(",\n").unwrap();
        let (before, after) = text.split_once("\"end\": ").unwrap();
        let evil = format!("{before}\"end\": {end}{}\n}}\n", after.trim_start_matches(|c: char| c.is_ascii_digit()));
        fs::write(out.join("pack.json"), evil).unwrap();
        pack(&large(), &out, &tar, &mut |_| {}).unwrap();
        assert_eq!(files(&out), whole, "{end}");
    }
}

#[test]
fn a_damaged_manifest_is_named_and_everything_packed_anew() {
    let folder = tempfile::tempdir().unwrap();
    for &format in RecordFormat::ALL {
        let out = folder.path().join(format!("{format:?}/train"));
        pack(&large(), &out, &options(format), &mut |_| {}).unwrap();
        let whole = files(&out);
        let manifest = out.join("pack.json");
        let text = &whole["pack.json"];
        for torn in [Vec::new(), text[..text.len() / 2].to_vec(), vec![0; text.len()]] {
            fs::write(&manifest, &torn).unwrap();
            let message = open(&out).err().unwrap().to_string();
            assert!(message.contains(manifest.to_str().unwrap()) && message.contains("warpfeed pack"), "{message}");
            assert!(verify(&out, &mut |_| {}).is_err());
            let report = pack(&large(), &out, &options(format), &mut |_| {}).unwrap();
            assert_eq!((report.resumed_images, report.damaged_manifest.is_some()), (0, true));
            assert_eq!(files(&out), whole, "{format:?}");
        }
        // Not even by accident is a folder emptied that holds anything else.
        fs::write(&manifest, "").unwrap();
        fs::write(out.join("thesis.tex"), "").unwrap();
        let error = pack(&large(), &out, &options(format), &mut |_| {}).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("thesis.tex"), "{error}");
        assert_eq!(files(&out).len(), whole.len() + 1);
    }
    let report = pack(&large(), &folder.path().join("new"), &options(RecordFormat::RecordIo), &mut |_| {}).unwrap();
    assert_eq!(report.damaged_manifest, None);
}

#[test]
#[cfg(target_os = "linux")]
fn two_runs_do_not_pack_into_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("train");
    let barrier = std::sync::Barrier::new(2);
    let waits = Asking(large(), |index, _: &ReadRequest<'_>| {
        if index == 0 {
            barrier.wait(); // It has begun,
            barrier.wait(); // and may go on.
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| pack(&waits, &out, &options(RecordFormat::WebDataset), &mut |_| {}));
        barrier.wait();
        let error = pack(&large(), &out, &options(RecordFormat::RecordIo), &mut |_| {}).unwrap_err();
        barrier.wait();
        let text = error.to_string();
        assert!(error.is_parameter() && text.contains("no other run") && text.contains("as webdataset"), "{text}");
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
        assert_eq!(first.join().unwrap().unwrap().images, 40);
    });
    let again = || pack(&large(), &out, &options(RecordFormat::WebDataset), &mut |_| {}).unwrap().resumed_images;
    assert_eq!(again(), 40);
    assert!(!out.join(".pack.lock").exists());
    // A process was killed after its last shard, before it removed the file.
    fs::write(out.join(".pack.lock"), "process 1").unwrap();
    assert_eq!(again(), 40);
    assert!(!out.join(".pack.lock").exists());
}

#[test]
#[cfg(target_os = "linux")]
fn a_pipe_in_the_place_of_the_manifest_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("train");
    fs::create_dir(&out).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(out.join("pack.json")).status().unwrap().success());
    fs::write(out.join("train-000000.tar"), "").unwrap();
    let packed = pack(&large(), &out, &options(RecordFormat::WebDataset), &mut |_| {}).err();
    for error in [packed, open(&out).err(), verify(&out, &mut |_| {}).err()] {
        let text = error.unwrap().to_string();
        assert!(text.contains("pack.json") && text.contains("not a regular file"), "{text}");
    }
}

#[test]
fn an_interrupted_run_goes_on_and_its_folder_is_no_source_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    for &format in RecordFormat::ALL {
        let whole = folder.path().join(format!("whole/{format:?}/train"));
        pack(&large(), &whole, &options(format), &mut |_| {}).unwrap();
        let out = folder.path().join(format!("{format:?}/train"));
        for until in [0, 15, 30] {
            let error = pack(&breaks(large(), until), &out, &options(format), &mut |_| {}).unwrap_err();
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
#[cfg(unix)]
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

/// `warpfeed` as a shell runs it, with limits or a library of our own, stopped after a minute.
#[cfg(target_os = "linux")]
fn under(limits: &str, args: &[&str]) -> std::process::Output {
    let script = format!("{limits}; exec timeout 60 \"$0\" \"$@\"");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_warpfeed")]).args(args).output().unwrap()
}

/// A folder of `count` images, as many as there are in a class.
#[cfg(target_os = "linux")]
pub(crate) fn image_folder(folder: &Path, count: u64) -> String {
    let class = folder.join("images/class");
    fs::create_dir_all(&class).unwrap();
    for i in 0..count {
        fs::write(class.join(format!("{i:02}.jpg")), jpeg(400, 300, i)).unwrap();
    }
    folder.join("images").to_str().unwrap().to_owned()
}

/// A library of this text in C, to be preloaded.
#[cfg(target_os = "linux")]
pub(crate) fn library(folder: &Path, text: &str) -> std::path::PathBuf {
    let (source, library) = (folder.join("library.c"), folder.join("library.so"));
    fs::write(&source, text).unwrap();
    let compiled =
        std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.unwrap().success());
    library
}

/// Root may write to a folder without write permission, so a library refuses what a disk that is mounted read-only
/// refuses.
#[test]
#[cfg(target_os = "linux")]
fn what_is_complete_may_be_on_a_read_only_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (images, library) = (image_folder(folder.path(), 20), library(folder.path(), FAULTS));
    for rank in [&[][..], &["--rank", "0/1"], &["--rank", "1/3"]] {
        let out = folder.path().join(format!("{}/train", rank.concat().replace('/', "of")));
        let args = ["pack", &images, "-o", out.to_str().unwrap(), "--format", "tfrecord", "--json"];
        let args = [&args[..], rank].concat();
        assert!(under(":", &args).status.success());
        let whole = files(&out);
        let read_only = format!("export LD_PRELOAD={} FAULT=read-only FOLDER={}", library.display(), out.display());
        let output = under(&read_only, &args);
        assert!(output.status.success(), "{rank:?}: {}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["images"], &report["resumed_images"]), (&20.into(), &20.into()));
        assert_eq!(files(&out), whole);
        // An incomplete folder cannot be completed.
        fs::remove_file(out.join("train-00000-of-00001.tfrecord")).unwrap();
        let output = under(&read_only, &args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains("Read-only file system"), "{rank:?}: {text}");
        assert!(text.contains(out.to_str().unwrap()), "{text}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn too_few_file_descriptors_or_threads_are_clear_errors() {
    let folder = tempfile::tempdir().unwrap();
    // More than workers read ahead, so that some are read while the shard is open.
    let images = image_folder(folder.path(), 300);
    let out = folder.path().join("train");
    let args = ["pack", &images, "-o", out.to_str().unwrap(), "--format", "webdataset", "--workers", "64"];
    // Standard input, output and error, the lock and the shard take five. A thread takes a gigabyte here, of five.
    for (limits, words) in [
        ("ulimit -n 5", "ulimit -n"),
        ("export RUST_MIN_STACK=1073741824; ulimit -v 5000000", "cannot start thread warpfeed-pack-"),
    ] {
        let output = under(limits, &args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{limits}: {text}");
        assert!(text.contains(words) && !text.contains("panicked"), "{limits}: {text}");
        assert!(output.stdout.is_empty() && open(&out).is_err());
    }
    let output = under(":", &args);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("300 images in 1 shards"), "{text}");
    assert!(!text.contains("were there already") && !text.contains("left out"), "{text}");
    // A complete folder is reported to users who may not write there.
    let output = under(":", &["pack", "--verify", out.to_str().unwrap()]);
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("checksum"), "{output:?}");
    let manifest = fs::read_to_string(out.join("pack.json")).unwrap();
    fs::write(out.join("pack.json"), format!("{}\n}}\n", manifest.rsplit_once(",\n").unwrap().0)).unwrap();
    let output = under(":", &["pack", "--verify", out.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("pack.json has no checksum of itself"), "{text}");
    fs::write(out.join("train-000000.tar"), "").unwrap();
    let output = under(":", &["pack", "--json", "--verify", out.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("train-000000.tar") && text.contains("remove it and run"), "{text}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["damaged"].as_array().unwrap().len(), 1);
    fs::write(out.join("pack.json"), "{").unwrap();
    let output = under(":", &args);
    assert!(output.status.success() && String::from_utf8(output.stderr).unwrap().contains("packed anew"));
    for wrong in
        [&["pack", "--verify", "x", "--workers", "1"][..], &["pack"], &["pack", "--verify"], &["pack", &images]]
    {
        assert_eq!(under(":", wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Before a file takes its name it is on the disk, and the name is before the manifest says so.
#[test]
#[cfg(target_os = "linux")]
fn what_the_manifest_names_is_on_the_disk() {
    const SPY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static void note(const char *call, const char *path) {
    int log = open(getenv("SPY_LOG"), O_WRONLY | O_APPEND | O_CREAT, 0644);
    dprintf(log, "%s %s\n", call, path);
    close(log);
}
int fsync(int fd) {
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) return -1;
    note("sync", path);
    return syscall(SYS_fsync, fd);
}
int rename(const char *from, const char *to) {
    note("name", to);
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
"#;
    let temporary = tempfile::tempdir().unwrap();
    let folder = fs::canonicalize(temporary.path()).unwrap();
    let images = image_folder(&folder, 20);
    let (library, log) = (library(&folder, SPY), folder.join("log"));
    let spied = |args: &[&str]| {
        let _ = fs::remove_file(&log);
        let spy = format!("export LD_PRELOAD={} SPY_LOG={}", library.display(), log.display());
        let output = under(&spy, args);
        assert!(output.status.success(), "{output:?}");
        // The names of temporary files are random.
        let lines = fs::read_to_string(&log).unwrap().replace(folder.to_str().unwrap(), "");
        let name = |line: &str| match line.strip_suffix(".tmp").and_then(|line| line.rsplit_once('.')) {
            Some((line, _random)) => line.replace("/.", "/"),
            None => line.to_owned(),
        };
        lines.lines().map(name).collect::<Vec<_>>()
    };
    for (format, files) in
        [("webdataset", &["train-000000.tar"][..]), ("recordio", &["train-000000.rec", "train-000000.idx"])]
    {
        let out = folder.join(format).join("train");
        let calls = spied(&["pack", &images, "-o", out.to_str().unwrap(), "--format", format]);
        let files = [&["pack.json"], files, &["pack.json"]].concat();
        let each = |file: &&str| {
            let (file, folder) = (format!("/{format}/train/{file}"), format!("sync /{format}/train"));
            [format!("sync {file}"), format!("name {file}"), folder]
        };
        let mut want: Vec<String> = files.iter().flat_map(each).collect();
        // First the name of the folder itself, and at the end the names and once more the manifest.
        want.insert(0, format!("sync /{format}"));
        want.push(format!("sync /{format}/train"));
        want.extend(each(&"pack.json"));
        assert_eq!(calls, want);
    }
    // A state is on the disk at the start, once a second, and at the end.
    let state = folder.join("state");
    let args = ["run", &images, "--batch-size", "1", "--epochs", "3", "--state", state.to_str().unwrap(), "--json"];
    let started = std::time::Instant::now();
    let calls = spied(&args);
    let seconds = started.elapsed().as_secs() as usize;
    let count = |call: &str| calls.iter().filter(|line| *line == call).count();
    assert!((1..=1 + seconds).contains(&count("sync /.state.synced")), "{calls:?}");
    assert_eq!((count("name /state"), count("sync /state")), (63, 1), "after each batch and each epoch; at the end");
    assert_eq!(calls[calls.len() - 2..], ["sync /state", "sync "].map(str::to_owned));
    assert!(!folder.join(".state.synced").exists());
}

/// The result of `count` processes with a rank that pack a source together; threads here, which flock excludes too.
fn together(source: &impl Source, out: &Path, format: RecordFormat, count: u32) -> Vec<PackReport> {
    std::thread::scope(|scope| {
        let rank = |rank| {
            let options = options(format).rank(Some(Rank::new(rank, count).unwrap()));
            scope.spawn(move || pack(source, out, &options, &mut |_| {}).unwrap())
        };
        let ranks: Vec<_> = (0..count).map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn shards_do_not_depend_on_the_number_of_processes() {
    let folder = tempfile::tempdir().unwrap();
    for &format in RecordFormat::ALL {
        let alone = folder.path().join(format!("{format:?}/1/train"));
        let want = together(&large(), &alone, format, 1).remove(0);
        assert!(want.shards.len() >= 4 && want.images == 40 && want.resumed_images == 0, "{want:?}");
        assert_eq!(contents(&data_set(&alone)), contents(&large()));
        let verified = verify(&alone, &mut |_| {}).unwrap();
        assert!(verified.damaged.is_empty() && verified.manifest_verified);
        for count in [2, 5] {
            let out = folder.path().join(format!("{format:?}/{count}/train"));
            let reports = together(&large(), &out, format, count);
            assert_eq!(files(&out), files(&alone), "{format:?}, {count} processes");
            let own: u64 = reports.iter().map(|report| report.images - report.resumed_images).sum();
            assert_eq!((own, reports[0].images), (40, 40), "each image was packed once");
            assert!(!out.join(".pack").exists() && !out.join(".pack.lock").exists());
        }
        // Lost shards are rebuilt, and nothing else is.
        fs::remove_file(&want.shards[2]).unwrap();
        let again = together(&large(), &alone, format, 2);
        let own: u64 = again.iter().map(|report| report.images - report.resumed_images).sum();
        assert!(own > 0 && own < 20, "{own}");
        assert_eq!(files(&alone), files(&folder.path().join(format!("{format:?}/2/train"))));
        // Shards of another kind are not mixed with these.
        let error = pack(&large(), &alone, &options(format), &mut |_| {}).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("samples a shard"), "{error}");
    }
}

#[test]
fn bad_samples_move_no_boundary() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = |which: std::ops::Range<usize>| {
        let mut images = contents(&large());
        images[which].iter_mut().for_each(|(bytes, _)| bytes.clear());
        EncodedImages::new(images)
    };
    let out = |name: &str| folder.path().join(name).join("train");
    together(&damaged(3..4), &out("one"), RecordFormat::WebDataset, 3);
    let report = together(&damaged(20..38), &out("many"), RecordFormat::WebDataset, 3).remove(0);
    assert_eq!((report.images, report.bad_count), (22, 18));
    assert_eq!(contents(&data_set(&out("many"))).len(), 22);
    let error = pack(
        &damaged(0..40),
        &out("none"),
        &options(RecordFormat::WebDataset).rank(Some(Rank::default())),
        &mut |_| {},
    )
    .unwrap_err();
    assert!(matches!(error, Error::TooManyBad { .. } | Error::Parameter { .. }), "{error}");
    assert!(open(out("none")).is_err());
}

/// Three processes; one after the other is killed, until all is packed.
#[test]
#[cfg(target_os = "linux")]
fn shards_of_killed_processes_are_taken_up() {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;
    let folder = tempfile::tempdir().unwrap();
    let images = image_folder(folder.path(), 120);
    let start = |out: &Path, rank: u32| -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.args(["pack", "--format", "tfrecord", "--shard-size", "1MB", "--max-side", "300", "--workers", "1"]);
        command.args(["--rank", &format!("{rank}/3")]).arg(&images).arg("-o").arg(out);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let (alone, out) = (folder.path().join("alone/train"), folder.path().join("killed/train"));
    assert!(start(&alone, 0).wait().unwrap().success());
    let mut random = common::Random(4);
    for kill in 0..9 {
        let mut ranks: Vec<Child> = (0..3).map(|rank| start(&out, rank)).collect();
        std::thread::sleep(Duration::from_millis(random.within(20, 150).into()));
        ranks[kill % 3].kill().unwrap();
        if kill % 2 == 0 {
            // The others go on, and make the shards of the one that is gone.
            for (rank, child) in ranks.iter_mut().enumerate() {
                let ended = child.wait().unwrap();
                assert!(ended.success() || rank == kill % 3, "rank {rank}: {ended}");
            }
            assert_eq!(files(&out), files(&alone), "after kill {kill}");
            fs::remove_dir_all(&out).unwrap();
        } else {
            for child in &mut ranks {
                let _ = child.kill();
                child.wait().unwrap();
            }
        }
    }
}
