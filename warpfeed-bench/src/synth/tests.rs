//! Tests of synthetic images.

use super::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Mutex;
use warpfeed::Pipeline;
use warpfeed::fields::{BoxFormat, Field, MaskValues};
use warpfeed::source::{CocoFiles, ImageFolder, Source};

fn settings(count: u64, classes: u32, seed: u64) -> SynthSettings {
    SynthSettings { seed, ..SynthSettings::new(count, classes) }
}

/// If the images change, `VERSION` must be increased.
#[test]
fn the_images_are_the_same_everywhere() {
    let mut hash = Sha256::new();
    for index in 0..6 {
        let image = image(42, index, index as u32, 10);
        hash.update(image.size().width.to_le_bytes());
        hash.update(image.to_rgb());
    }
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((VERSION, &hash[..]), (1, GOLDEN_HASH));
}

const GOLDEN_HASH: &str = "bfbe49c833c6ea2dd48561e92fc12804fea11829abe9acf076c9a442883a68c3";

#[test]
fn images_differ_and_their_sizes_are_those_of_photographs() {
    let mut standing = 0;
    let mut area = 0;
    for index in 0..200 {
        let size = size(SampleRng::new(3, 0, Domain::Synth, index).at(0), 1.0);
        assert!((120_000..280_000).contains(&size.area_px()) && size.width.max(size.height) < 660, "{size}");
        standing += u64::from(size.height > size.width);
        area += size.area_px();
    }
    assert!((30..100).contains(&standing), "{standing} standing of 200");
    assert!((190_000..210_000).contains(&(area / 200)), "{} px in the mean", area / 200);
    let images = [image(1, 0, 0, 2), image(1, 0, 1, 2), image(1, 1, 0, 2), image(2, 0, 0, 2)];
    for (i, a) in images.iter().enumerate() {
        assert!(images[..i].iter().all(|b| a.pixels() != b.pixels()));
        assert!(a.pixels().iter().all(|pixel| pixel[3] == 255));
    }
}

#[test]
fn the_class_decides_the_color() {
    // Class 0 of 3 is red, 1 green, 2 blue: the ground covers most of each image.
    for class in 0..3_u32 {
        for index in 0..3 {
            let image = image(9, index, class, 3);
            let mut sums = [0_u64; 3];
            for pixel in image.pixels() {
                (0..3).for_each(|c| sums[c] += u64::from(pixel[c]));
            }
            let strongest = (0..3).max_by_key(|&c| sums[c]).unwrap();
            assert_eq!(strongest, class as usize, "image {index}: {sums:?}");
        }
    }
}

fn encode(image: &Image) -> Result<Vec<u8>> {
    Ok(encode_jpeg(image, &JpegOptions { quality: QUALITY, ..JpegOptions::default() })?)
}

#[test]
fn a_folder_is_written_completely_and_can_grow() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("new/set");
    let calls = Mutex::new(Vec::new());
    let first = write_folder(&folder, &settings(5, 2, 7), |done| calls.lock().unwrap().push(done)).unwrap();
    let mut calls = calls.into_inner().unwrap();
    calls.sort_unstable();
    assert_eq!(calls, [1, 2, 3, 4, 5]);
    assert_eq!((first.written, first.kept), (5, 0));
    // An interrupted call is continued, and a larger count adds images.
    fs::remove_file(folder.join("class_01/00000.jpg")).unwrap();
    let second = write_folder(&folder, &settings(6, 2, 7), |_| {}).unwrap();
    assert_eq!((second.written, second.kept), (2, 4));

    let source = ImageFolder::open(&folder).unwrap();
    assert_eq!((source.len(), source.skipped_files()), (6, 0));
    let names =
        ["class_00/00000", "class_00/00001", "class_00/00002", "class_01/00000", "class_01/00001", "class_01/00002"];
    let mut total = 0;
    for (position, name) in (0_u64..).zip(names) {
        assert_eq!(source.path(position), folder.join(format!("{name}.jpg")));
        let index = position % 3 * 2 + position / 3;
        let want = encode(&image(7, index, (index % 2) as u32, 2)).unwrap();
        assert_eq!(source.encoded(position).unwrap(), want);
        total += u64::from(index < 5) * want.len() as u64;
    }
    assert_eq!(first.bytes, total);
}

#[test]
fn other_folders_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let try_with = |count, classes, seed| write_folder(folder.path(), &settings(count, classes, seed), |_| {});
    assert!(try_with(0, 1, 1).unwrap_err().is_parameter() && try_with(1, 0, 1).unwrap_err().is_parameter());
    fs::write(folder.path().join("thesis.tex"), "").unwrap();
    let error = try_with(1, 1, 1).unwrap_err();
    assert!(error.is_parameter() && error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    fs::remove_file(folder.path().join("thesis.tex")).unwrap();

    try_with(3, 2, 1).unwrap();
    for (count, classes, seed) in [(2, 2, 1), (3, 3, 1), (3, 2, 2)] {
        let error = try_with(count, classes, seed).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("classes 2, seed 1, count 3"), "{error}");
    }
    assert_eq!(try_with(3, 2, 1).unwrap().kept, 3);
}

#[test]
fn annotations_are_of_what_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let settings = SynthSettings { megapixels: 0.05, ..SynthSettings::detection(12) };
    write_folder(folder.path(), &settings, |_| {}).unwrap();
    let annotations = folder.path().join("annotations.json");
    let coco = CocoFiles::open(folder.path().join("images"), &annotations).unwrap();
    assert_eq!((coco.len(), coco.classes().len()), (12, 6));
    let (mut all, mut objects, mut kinds, mut hidden) = (Vec::new(), 0, BTreeSet::new(), 0);
    let builder = Pipeline::builder(coco).fields(["boxes", "masks", "labels"]).sanitize(false);
    for batch in builder.build_ragged().unwrap().epoch(0) {
        let batch = batch.unwrap();
        let fields = (0..batch.len()).map(|i| batch.fields(0).unwrap().image(i).unwrap().clone());
        all.extend(fields);
    }
    assert_eq!(all.len(), 12);
    for fields in all {
        let (boxes, Some(Field::Mask(masks))) = (fields.boxes().unwrap(), fields.get("masks")) else { panic!() };
        let Some(Field::Integers(labels)) = fields.get("labels") else { panic!() };
        kinds.extend(labels.iter().copied());
        let planes = masks.planes().iter().map(|plane| match &**plane {
            MaskValues::U8(plane) => plane.clone(),
            _ => panic!(),
        });
        let mut sum = vec![0; masks.size().area_px() as usize];
        for (plane, row) in planes.zip(boxes.to(BoxFormat::Xyxy).rows()) {
            let width = masks.size().width as usize;
            let seen =
                || plane.iter().enumerate().filter(|(_, value)| **value == 1).map(|(at, _)| [at % width, at / width]);
            let most = |axis: usize| seen().map(|place| place[axis]).max().unwrap() as f32 + 1.0;
            let least = |axis: usize| seen().map(|place| place[axis]).min().unwrap() as f32;
            assert_eq!(*row, [least(0), least(1), most(0), most(1)]);
            sum.iter_mut().zip(&plane).for_each(|(sum, value)| *sum += value);
            objects += 1;
            // Something hides a part of it, or the edge of the image does, or it is a ring or a cross.
            hidden += usize::from(seen().count() * 3 < ((most(0) - least(0)) * (most(1) - least(1))) as usize);
        }
        assert!(sum.iter().all(|sum| *sum <= 1), "a pixel shows one object");
    }
    assert!(objects > 24 && kinds.len() == 6 && hidden > 0, "{objects} {kinds:?} {hidden}");
    let before = fs::read(&annotations).unwrap();
    let more = SynthSettings { count: 13, ..settings.clone() };
    assert_eq!(write_folder(folder.path(), &more, |_| {}).unwrap().kept, 12);
    assert!(fs::read(&annotations).unwrap().len() > before.len());
    let error = write_folder(folder.path(), &SynthSettings { detection: false, ..more }, |_| {}).unwrap_err();
    assert!(error.to_string().contains("with annotations"), "{error}");
    let many = SynthSettings { classes: 7, ..SynthSettings::detection(1) };
    assert!(write_folder(folder.path(), &many, |_| {}).unwrap_err().to_string().contains("classes"));
}

#[test]
fn a_panic_ends_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let once = AtomicBool::new(true);
    let progress = |_| assert!(!once.swap(false, Ordering::Relaxed), "once");
    let error = write_folder(folder.path(), &settings(1_000_000, 2, 1), progress).unwrap_err();
    assert!(matches!(&error, Error::Panic { message } if message == "once"), "{error}");
}
