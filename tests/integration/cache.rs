//! The image cache and entry points change no batch.

use crate::common::recipes::recipe;
use crate::common::{self, Delivered, Random, WithBad, delivered, jpeg, small, source};
use std::fs;
use std::path::{Path, PathBuf};
use warpfeed::ops::{CenterCrop, Resize};
use warpfeed::pack::{PackOptions, pack};
use warpfeed::{
    CacheUsage, EntryPoints, ImageCache, OnError, Orientation, Partition, Pipeline, PipelineBuilder, Preset, Strategy,
    image::Size,
    ops::{Op, random_erasing, random_horizontal_flip, random_resized_crop, random_rotation},
    source::{EncodedImages, OpenOptions, RecordFormat},
};
use warpfeed_bench::trial::Trial;

const ROOMY: u64 = 1 << 30;

/// The batches of two epochs, and the state of the cache after them.
fn epochs(builder: PipelineBuilder) -> (Vec<Delivered>, Option<CacheUsage>) {
    let pipeline = builder.build().unwrap();
    let all = (0..2).flat_map(|epoch| delivered(&pipeline, epoch)).collect();
    (all, pipeline.cache_usage())
}

fn assert_same(builder: impl Fn() -> PipelineBuilder, what: &str) {
    let (want, none) = epochs(builder());
    let (got, usage) = epochs(builder().cache(ImageCache::memory(ROOMY)));
    assert!(want == got, "{what}");
    assert!(none.is_none() && usage.is_some_and(|usage| usage.images > 0 && !usage.full), "{what}");
}

/// Every kept file.
fn files(folder: &Path) -> Vec<PathBuf> {
    let list = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    list(folder).iter().filter(|path| path.is_dir()).flat_map(|part| list(part)).collect()
}

#[test]
fn presets_are_the_same_in_each_strategy() {
    let images = EncodedImages::new((0..6).map(|i| (jpeg(140 + 9 * i, 120 + 7 * i, i.into()), i)));
    for (name, ops) in [
        ("train", Preset::Train.ops()),
        ("eval", Preset::Eval.ops()),
        ("trial A", Trial::A { load: 2 }.ops()),
        ("trial B", Trial::B { load: 1 }.ops()),
    ] {
        for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
            let builder = || {
                let builder = Pipeline::builder(images.clone()).shuffle(3).threads(2).strategy(strategy);
                ops.iter().cloned().fold(builder, PipelineBuilder::transform)
            };
            assert_same(builder, &format!("{name} {strategy:?}"));
        }
    }
}

#[test]
fn entry_points_serve_later_epochs_within_their_budget() {
    // Large enough to have some, each unlike the others.
    let images = EncodedImages::new((0..6).map(|i| (jpeg(300 + 40 * i, 340 + 30 * i, i.into()), i)));
    let epochs = |bytes| {
        let builder = Pipeline::builder(images.clone()).preset(Preset::Train).shuffle(3).threads(2).batch_size(4);
        let pipeline = builder.entry_points(EntryPoints::memory().limit(bytes)).build().unwrap();
        assert_eq!(pipeline.memory().entry_points_bytes, bytes);
        let batches: Vec<_> = (0..4).map(|epoch| delivered(&pipeline, epoch)).collect();
        let mut last = pipeline.epoch(4);
        last.by_ref().for_each(|batch| drop(batch.unwrap()));
        (batches, last.stats().decoded.entry_points)
    };
    let (want, none) = epochs(0);
    let (got, all) = epochs(1 << 20);
    assert!(want == got);
    assert_eq!((none, all), (0, 6));
    // One has 67 to 125 points of 6 to 7 bytes.
    let (got, some) = epochs(3_000);
    assert!(want == got);
    assert!((1..5).contains(&some), "{some}");
}

/// A folder serves the first epoch of the next pipeline, for other parts of the data set too. What becomes of it
/// changes no batch.
#[test]
fn entry_points_in_a_folder_serve_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let points = folder.path().join("points");
    let images = EncodedImages::new((0..12).map(|i| (jpeg(300 + 20 * i, 340 + 10 * i, i.into()), i)));
    let run = |epochs: u64, points: EntryPoints, rank| {
        let builder = Pipeline::builder(images.clone()).preset(Preset::Train).shuffle(3).threads(2).batch_size(4);
        let pipeline = builder.partition(Partition::new(rank, 2).unwrap()).entry_points(points).build().unwrap();
        let batches: Vec<_> = (0..epochs).map(|epoch| delivered(&pipeline, epoch)).collect();
        let mut first = pipeline.epoch(0);
        first.by_ref().for_each(|batch| drop(batch.unwrap()));
        (batches, first.stats().decoded.entry_points)
    };
    let kept = || EntryPoints::folder(&points);
    let want = [0, 1].map(|rank| run(4, EntryPoints::none(), rank).0);
    for (rank, want) in want.iter().enumerate() {
        assert!(run(4, kept(), rank as u32).0 == *want);
    }
    for rank in [0, 1] {
        assert!(run(0, kept(), rank).1 == 6, "what both ranks have found serves each of them");
    }
    // Somebody removes the folder, or damages it, between runs.
    for damage in 0..4 {
        for entry in fs::read_dir(&points).unwrap() {
            let path = entry.unwrap().path();
            // A damaged key is an error, and is left as it is.
            if damage < 2 && path.ends_with("key") {
                continue;
            }
            match damage {
                0 => fs::write(&path, [7; 1000]).unwrap(),
                1 => fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap(),
                2 => fs::remove_file(&path).unwrap(),
                _ => {}
            }
        }
        if damage == 3 {
            fs::remove_dir_all(&points).unwrap();
        }
        assert!(run(4, kept(), 0).0 == want[0], "damage {damage}");
        assert_eq!(run(0, kept(), 0).1, 6, "damage {damage}");
    }
    // A key that is none is never replaced: entry points are in memory.
    let key = points.join("key");
    fs::write(&key, "none").unwrap();
    assert!(run(4, kept(), 0) == (want[0].clone(), 6));
    assert_eq!(fs::read(&key).unwrap(), b"none");
    // A folder that cannot be made is an error if it was asked for.
    let file = folder.path().join("file");
    fs::write(&file, []).unwrap();
    let builder = Pipeline::builder(images.clone()).preset(Preset::Train);
    let builder = builder.entry_points(EntryPoints::folder(file.join("points")));
    let error = builder.build().unwrap_err().to_string();
    assert!(error.contains("keep entry points in") && error.contains("points"), "{error}");
}

#[test]
fn whatever_comes_first_is_done_once_and_the_same() {
    let mut random = Random(31);
    let (mut kept, mut cases) = (0, 0);
    while cases < 150 {
        let size = Size::new(random.within(1, 90), random.within(1, 90));
        let images = EncodedImages::new((0..3).map(|i| (jpeg(size.width, size.height, 7 * i + 1), i as u32)));
        let first = recipe(&mut random, size);
        let first: Vec<Op> = first.into_iter().take_while(|op| !matches!(op, Op::Normalize(_))).collect();
        for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
            let builder = || {
                let builder = Pipeline::builder(images.clone()).strategy(strategy).threads(1);
                let builder = first.iter().cloned().fold(builder, PipelineBuilder::transform);
                builder
                    .transform(random_horizontal_flip(0.5))
                    .transform(random_rotation(-20.0..=20.0))
                    .transform(random_resized_crop(Size::new(24, 20)))
                    .normalize([0.4; 3], [0.2; 3])
                    .transform(random_erasing(0.5))
            };
            assert_same(builder, &format!("{strategy:?} {size} {first:?}"));
        }
        kept += first.len();
        cases += 1;
    }
    assert!(kept > 200);
}

#[test]
fn orientation_is_kept_too() {
    // The smallest EXIF block: one entry, the orientation.
    let tagged = |tag: u8| {
        let mut bytes = jpeg(50, 40, 3);
        let exif =
            [&b"\xff\xe1\x00\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"[..], &[tag, 0, 0, 0, 0, 0, 0]];
        bytes.splice(2..2, exif.concat());
        bytes
    };
    let images = EncodedImages::new((1..=8).map(|tag| (tagged(tag), tag.into())));
    for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
        for orientation in [Orientation::Apply, Orientation::Ignore] {
            let builder = || small(images.clone()).strategy(strategy).orientation(orientation);
            assert_same(builder, &format!("{strategy:?} {orientation:?}"));
        }
    }
    let different = |orientation| epochs(small(images.clone()).orientation(orientation)).0;
    assert!(different(Orientation::Apply) != different(Orientation::Ignore), "the tags are read");
}

#[test]
fn later_epochs_neither_read_nor_decode() {
    let pipeline = small(source(20)).cache(ImageCache::memory(ROOMY)).build().unwrap();
    for number in 0..3 {
        let mut epoch = pipeline.epoch(number);
        assert_eq!(epoch.by_ref().map(|batch| batch.unwrap().len()).sum::<usize>(), 20);
        let stats = epoch.stats();
        let want = if number == 0 { (20, 0) } else { (0, 20) };
        assert_eq!((stats.decoded.cpu, stats.cached), want);
        assert_eq!(stats.read_bytes == 0, number > 0);
    }
    assert_eq!(pipeline.memory().cache_bytes, ROOMY);
}

#[test]
fn a_folder_serves_the_next_process_and_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    // All of one size.
    let images = || EncodedImages::new((0..20).map(|i| (jpeg(60, 50, i), 0)));
    let builder = || small(images()).cache(ImageCache::disk(folder.path(), ROOMY));
    let (want, _) = epochs(small(images()));
    let run = |cached: u64, what: &str| {
        let pipeline = builder().build().unwrap();
        let mut epoch = pipeline.epoch(0);
        let got: Vec<Delivered> = epoch.by_ref().flat_map(|batch| common::samples(&batch.unwrap())).collect();
        assert!(got == want[..20], "{what}");
        assert_eq!(epoch.stats().cached, cached, "{what}");
        assert_eq!(pipeline.cache_usage().unwrap().images, 20, "{what}");
    };
    run(0, "the first");
    run(20, "the second");
    let kept = files(folder.path());
    assert_eq!(kept.len(), 20);
    let change = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    };
    change(&kept[0], &|bytes| bytes[40] ^= 4);
    change(&kept[1], &|bytes| bytes.truncate(bytes.len() / 2));
    change(&kept[2], &Vec::clear);
    // Another image, whole and with its checksum, under this one's name.
    fs::copy(&kept[4], &kept[3]).unwrap();
    run(20 - 4, "after damage");
    run(20, "after repair");
    // It has the files' bytes and something for each.
    let usage = builder().build().unwrap().cache_usage().unwrap();
    let bytes: u64 = files(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(usage.bytes >= bytes && usage.bytes < bytes + 20 * 1000);
    // Other programs show the files.
    assert!(fs::read(&kept[0]).unwrap().starts_with(b"P6\n"));
}

#[test]
fn changed_images_and_other_operations_find_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |builder: PipelineBuilder| builder.cache(ImageCache::disk(folder.path(), ROOMY));
    let changed = || EncodedImages::new((0..20).map(|i| (jpeg(60, 50, 100 + i), 0)));
    epochs(kept(small(source(20))));
    assert_eq!(files(folder.path()).len(), 20);
    assert!(epochs(kept(small(changed()))).0 == epochs(small(changed())).0);
    assert_eq!(files(folder.path()).len(), 40);
    let resized = || {
        let builder = Pipeline::builder(source(20)).transform(Resize::shorter_side(32)).transform(CenterCrop::new(24));
        builder.pass_order(warpfeed::ops::PassOrder::HorizontalFirst)
    };
    assert!(epochs(kept(resized())).0 == epochs(resized()).0);
    assert_eq!(files(folder.path()).len(), 60);
}

#[test]
fn a_budget_is_kept_and_what_finds_no_room_is_decoded() {
    let want = epochs(small(source(40))).0;
    let folder = tempfile::tempdir().unwrap();
    let limit = 60_000;
    for cache in [ImageCache::memory(limit), ImageCache::disk(folder.path(), limit), ImageCache::memory(0)] {
        let (got, usage) = epochs(small(source(40)).cache(cache.clone()));
        assert!(got == want, "{cache:?}");
        let usage = usage.unwrap();
        assert!(usage.full && usage.images < 40 && usage.failed.is_none(), "{usage:?}");
        assert!(usage.bytes <= usage.limit_bytes, "{usage:?}");
    }
    let bytes: u64 = files(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!((limit / 2..=limit).contains(&bytes), "{bytes}");
    // A second process finds the images and adds nothing.
    let before = files(folder.path()).len();
    let (got, usage) = epochs(small(source(40)).cache(ImageCache::disk(folder.path(), limit)));
    assert!(got == want);
    assert_eq!((files(folder.path()).len(), usage.unwrap().images), (before, before as u64));
}

#[test]
fn a_stream_is_read_and_not_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("train");
    pack(&source(40), &out, &PackOptions::new(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    let stream = || OpenOptions::default().window(Some(10)).open(&out).unwrap();
    for size_bytes in [ROOMY, 60_000] {
        let (want, _) = epochs(small(stream()));
        let pipeline = small(stream()).cache(ImageCache::memory(size_bytes)).build().unwrap();
        assert!(delivered(&pipeline, 0) == want[..40]);
        let mut epoch = pipeline.epoch(1);
        let got: Vec<Delivered> = epoch.by_ref().flat_map(|batch| common::samples(&batch.unwrap())).collect();
        assert!(got == want[40..]);
        let stats = epoch.stats();
        assert_eq!(stats.cached, pipeline.cache_usage().unwrap().images);
        assert_eq!(stats.cached + stats.decoded.cpu, 40);
        assert!(stats.read_bytes > 0);
    }
}

#[test]
fn bad_images_stay_bad_and_are_not_kept() {
    let bad = || WithBad { good: source(20), bad: vec![2, 7, 11] };
    for policy in [OnError::Skip, OnError::Substitute] {
        let builder = || small(bad()).on_error(policy);
        let (want, _) = epochs(builder());
        let (got, usage) = epochs(builder().cache(ImageCache::memory(ROOMY)));
        assert!(got == want, "{policy:?}");
        assert_eq!(usage.unwrap().images, 17);
    }
    let pipeline = small(bad()).cache(ImageCache::memory(ROOMY)).build().unwrap();
    let error = pipeline.epoch(0).find_map(Result::err).unwrap();
    assert!(error.is_bad_sample() && error.to_string().contains("folder/"), "{error}");
    // The room that was taken for them is given back.
    let usage = pipeline.cache_usage().unwrap();
    assert!(usage.bytes < (usage.images + 1) * (90 * 90 * 3 + 300), "{usage:?}");
}

#[test]
fn a_folder_that_cannot_be_used_is_named_and_one_that_fails_later_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = small(source(3)).cache(ImageCache::disk(file.join("cache"), ROOMY)).build().unwrap_err();
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    // Files stand where folders are needed.
    let cache = folder.path().join("cache");
    let pipeline = small(source(20)).cache(ImageCache::disk(&cache, ROOMY)).build().unwrap();
    for i in 0..=255 {
        fs::write(cache.join(format!("{i:02x}")), "").unwrap();
    }
    assert!(delivered(&pipeline, 0) == delivered(&small(source(20)).build().unwrap(), 0));
    let usage = pipeline.cache_usage().unwrap();
    assert!(usage.failed.as_ref().is_some_and(|why| why.contains(cache.to_str().unwrap())), "{usage:?}");
    assert_eq!((usage.images, usage.bytes), (0, 0));
}

#[test]
#[cfg(target_os = "linux")]
fn few_files_may_be_open_and_the_cache_folder_is_busy() {
    let folder = tempfile::tempdir().unwrap();
    let [points, shards] = ["points", "shards"].map(|name| folder.path().join(name));
    // Files of other images, as other data sets leave them.
    let images = EncodedImages::new((0..4).map(|i| (jpeg(300 + 20 * i, 340, i.into()), i)));
    let builder =
        Pipeline::builder(images).preset(Preset::Train).batch_size(4).entry_points(EntryPoints::folder(&points));
    builder.build().unwrap().epoch(0).for_each(|batch| drop(batch.unwrap()));
    let is_points = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "points");
    let written = fs::read_dir(&points).unwrap().map(|entry| entry.unwrap().path()).find(is_points).unwrap();
    for i in 0..100 {
        fs::copy(&written, points.join(format!("{i:016x}.points"))).unwrap();
    }
    fs::create_dir(&shards).unwrap();
    for i in 0..122_u32 {
        let image = crate::records::member("1.jpg", b'0', &jpeg(60, 80, i.into()));
        let tar = [image, crate::records::member("1.cls", b'0', b"1"), vec![0; 1024]].concat();
        fs::write(shards.join(format!("{i:03}.tar")), tar).unwrap();
    }
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_warpfeed"), "run"]).arg(&shards);
    command.args([
        "--device",
        "cpu",
        "--preset",
        "train",
        "--threads",
        "4",
        "--epochs",
        "3",
        "--seed",
        "1",
        "--entry-points",
    ]);
    let output = command.arg(&points).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
