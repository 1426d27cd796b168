//! Pipelines over folders of masks, VOC and YOLO.

use crate::common::{delivered_fields as delivered, jpeg};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use warpfeed::fields::{Field, Fields, Mask, MaskValues};
use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
use warpfeed::ops::Pad;
use warpfeed::prelude::*;
use warpfeed::source::{CocoFiles, MaskFolder, MaskIds, MaskOptions, OpenOptions, VocFolder, YoloFolder};

fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn mask_of(fields: &Fields) -> &[u8] {
    let Some(Field::Mask(mask)) = fields.get("mask") else { panic!("{fields:?}") };
    let MaskValues::U8(values) = &*mask.planes()[0] else { panic!("{mask:?}") };
    values
}

/// Images of 20 x 10 pixels; the mask of image i has i in its left half and 1 in its right.
fn masks(count: u8) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (images, masks) = (folder.path().join("images"), folder.path().join("masks"));
    for i in 0..count {
        write(&images.join(format!("{i}.jpg")), jpeg(20, 10, i.into()));
        let values: Vec<u8> = (0..200).map(|at| if at % 20 < 10 { i } else { 1 }).collect();
        let mask = Mask::new(Size::new(20, 10), values).unwrap().to_png(0).unwrap();
        write(&masks.join(format!("{i}.png")), mask);
    }
    (folder, images, masks)
}

#[test]
fn masks_beside_images_follow_and_are_ignored_outside() {
    let (_folder, images, masks) = masks(3);
    let options = MaskOptions { ids: MaskIds::ReduceZero, ..MaskOptions::default() };
    let source = MaskFolder::open(images, masks, options).unwrap();
    let pad = Pad::sides([1, 0, 0, 0]);
    let builder = Pipeline::builder(source).fields(["mask"]).transform(random_horizontal_flip(1.0)).transform(pad);
    let made = delivered(builder.transform(Resize::new(Size::new(21, 10)))).unwrap();
    for (i, fields) in made.iter().enumerate() {
        // Mirrored: what was in the right half is left.
        let row = |at: usize| [255, 0, (i as u8).wrapping_sub(1)][(at % 21).div_ceil(10).min(2)];
        assert_eq!(mask_of(fields), (0..210).map(row).collect::<Vec<u8>>(), "{i}");
    }
    assert_eq!(made.len(), 3);
}

#[test]
fn samples_without_a_mask_are_bad_ones_under_the_policy() {
    let (_folder, images, masks) = masks(4);
    fs::remove_file(masks.join("2.png")).unwrap();
    let source = MaskFolder::open(images, masks, MaskOptions::default()).unwrap();
    let builder = Pipeline::builder(source).fields(["mask"]).batch_size(4).transform(Resize::new(Size::new(20, 10)));
    let error = delivered(builder.clone()).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("2.png") && error.to_string().contains("2.jpg"));
    let kept = delivered(builder.on_error(OnError::Skip)).unwrap();
    assert_eq!(kept.iter().map(|fields| mask_of(fields)[0]).collect::<Vec<_>>(), [0, 1, 3]);
}

#[test]
fn vocs_boxes_follow_and_difficult_objects_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let object = |name: &str, left: u32, difficult: u8| {
        format!(
            "<object><name>{name}</name><difficult>{difficult}</difficult><bndbox><xmin>{left}</xmin><ymin>1</ymin>\
             <xmax>{}</xmax><ymax>10</ymax></bndbox></object>",
            left + 3
        )
    };
    for (name, objects) in [("a", [object("dog", 1, 0), object("cat", 9, 1)].concat()), ("b", object("zebra", 1, 0))] {
        write(&folder.path().join(format!("JPEGImages/{name}.jpg")), jpeg(20, 10, 1));
        write(&folder.path().join(format!("Annotations/{name}.xml")), format!("<annotation>{objects}</annotation>"));
    }
    write(&folder.path().join("ImageSets/Main/train.txt"), "a\nb\n");
    let voc = VocFolder::open(folder.path(), "train").unwrap();
    let builder = |voc: &VocFolder| {
        let builder = Pipeline::builder(voc.clone()).fields(["boxes", "labels"]).batch_size(2);
        builder.transform(random_horizontal_flip(1.0)).transform(Resize::new(Size::new(40, 10)))
    };
    let error = delivered(builder(&voc)).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("b.xml: object 1 (zebra)"), "{error}");
    let made = delivered(builder(&voc).on_error(OnError::Skip)).unwrap();
    assert_eq!(made[0].boxes().unwrap().rows(), [[32.0, 0.0, 40.0, 10.0]]);
    assert_eq!((made.len(), made[0].get("labels")), (1, Some(&Field::Integers(vec![11]))));
    let all = delivered(builder(&voc.difficult(true)).on_error(OnError::Skip)).unwrap();
    assert_eq!(all[0].boxes().unwrap().rows()[1], [16.0, 0.0, 24.0, 10.0]);
}

/// Labels are of the upright image: its left eye is the left one, though tags 2 and 7 mirror the stored image.
#[test]
fn poses_keep_their_sides_whatever_the_exif_tag() {
    let folder = tempfile::tempdir().unwrap();
    for tag in 1..=8_u16 {
        // Upright, all images have 40 x 20 pixels.
        let stored = if tag >= 5 { Size::new(20, 40) } else { Size::new(40, 20) };
        let options = JpegOptions { orientation: Some(tag), ..JpegOptions::default() };
        let image = encode_jpeg(&Image::new(stored), &options).unwrap();
        write(&folder.path().join(format!("pose/images/{tag}.jpg")), image);
        let row = "0 0.5 0.5 0.5 0.5 0.25 0.25 2 0.75 0.5 1 0 0 0\n";
        write(&folder.path().join(format!("pose/labels/{tag}.txt")), row);
    }
    let file = folder.path().join("pose.yaml");
    write(&file, "path: pose\ntrain: images\nkpt_shape: [3, 3]\nflip_idx: [1, 0, 2]\nnames:\n  0: person\n");
    let made = |mirrored: f64| {
        let builder = Pipeline::builder(YoloFolder::from_yaml(&file, "train").unwrap()).fields(["boxes", "keypoints"]);
        delivered(builder.transform(random_horizontal_flip(mirrored)).transform(Resize::new(Size::new(40, 20))))
            .unwrap()
    };
    let check = |fields: &Fields, points: [[f32; 2]; 3], visibility: [u8; 3]| {
        let Some(Field::KeyPoints(found)) = fields.get("keypoints") else { panic!("{fields:?}") };
        assert_eq!(found.visibility(), visibility);
        for (found, point) in found.points().iter().zip(points).filter(|(_, point)| *point != [0.0; 2]) {
            assert!((found[0] - point[0]).abs() < 1e-4 && (found[1] - point[1]).abs() < 1e-4, "{found:?} {point:?}");
        }
    };
    let (upright, mirrored) = (made(0.0), made(1.0));
    assert_eq!((upright.len(), mirrored.len()), (8, 8));
    for (fields, mirrored) in upright.iter().zip(&mirrored) {
        check(fields, [[10.0, 5.0], [30.0, 10.0], [0.0, 0.0]], [2, 1, 0]);
        check(mirrored, [[10.0, 10.0], [30.0, 5.0], [0.0, 0.0]], [1, 2, 0]);
    }
}

/// The command's exit code, and all that it prints.
fn command(args: &[&str]) -> (Option<i32>, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_warpfeed")).args(args).output().unwrap();
    (ran.status.code(), [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat())
}

/// Three images of 20 x 10 pixels that a tag turns: the file has the stored size of the first, the upright one of the
/// second, and neither of the third.
#[test]
fn every_way_to_read_judges_sizes_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let options = JpegOptions { orientation: Some(6), ..JpegOptions::default() };
    let image = encode_jpeg(&Image::new(Size::new(20, 10)), &options).unwrap();
    let sizes = [[20, 10], [10, 20], [40, 20]];
    let images = sizes.iter().enumerate().map(|(i, [width, height])| {
        write(Path::new(&path(&format!("images/{i}.jpg"))), &image);
        json!({"id": i, "file_name": format!("{i}.jpg"), "width": width, "height": height})
    });
    let images: Vec<_> = images.collect();
    let object = |i: usize, bbox: [u32; 4]| json!({"id": i, "image_id": i, "category_id": 4, "bbox": bbox});
    // The first two boxes lie at one place.
    let objects = [object(0, [2, 6, 6, 3]), object(1, [1, 2, 3, 6]), object(2, [1, 1, 2, 2])];
    let all = json!({"images": images, "annotations": objects, "categories": [{"id": 4, "name": "cat"}]});
    write(Path::new(&path("coco.json")), all.to_string());
    let coco = CocoFiles::open(path("images"), path("coco.json")).unwrap();
    let builder = Pipeline::builder(coco)
        .fields(["boxes"])
        .batch_size(1)
        .on_error(OnError::Skip)
        .transform(Resize::new(Size::new(10, 20)));
    let made = delivered(builder).unwrap();
    let rows: Vec<_> = made.iter().map(|fields| fields.boxes().unwrap().rows()).collect();
    assert_eq!(rows, [[[1.0, 2.0, 4.0, 8.0]], [[1.0, 2.0, 4.0, 8.0]]]);
    let (images, annotations) = (path("images"), path("coco.json"));
    let source = ["--annotations", &*annotations];
    let fields = ["--fields", "boxes,labels"];
    let names = |text: &str| {
        let (one, line) =
            (text.contains("2.jpg"), "it is of an image of 40 x 20 pixels, which has 20 x 10, 10 x 20 upright");
        assert!(one && text.contains(line) && !text.contains("1.jpg") && !text.contains("0.jpg"), "{text}");
    };
    let run = ["--preset", "yolo-eval", "--on-error", "skip"];
    let (code, said) = command(&[&["run", &images, "--format", "coco"], &source[..], &fields, &run].concat());
    assert_eq!(code, Some(0), "{said}");
    names(&said);
    let (out, sheet, audit) = (path("out"), path("sheet.png"), path("audit"));
    let pack = ["pack", &images, "--from", "coco", "--format", "webdataset", "-o", &out];
    let (_, said) = command(&[&pack[..], &source, &fields].concat());
    names(&said);
    let packed = Pipeline::builder(OpenOptions::default().open(&out).unwrap().into_data_set().unwrap());
    let again = delivered(packed.fields(["boxes"]).batch_size(1).transform(Resize::new(Size::new(10, 20)))).unwrap();
    assert_eq!(again, made);
    let preview = ["preview", &images, "--format", "coco", "--preset", "yolo-eval", "-o", &sheet];
    let (_, said) = command(&[&preview[..], &source, &fields].concat());
    assert!(said.contains("1.jpg") && !said.contains("2.jpg"), "{said}");
    let (code, said) = command(&[&["audit", &images, "--format", "coco", "--out", &audit], &source[..]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 have annotations that cannot be used"), "{said}");
    let found = fs::read_to_string(path("audit/found.jsonl")).unwrap();
    let wrong: Vec<&str> = found.lines().filter(|line| line.contains("\"annotations\"")).collect();
    assert!(wrong.len() == 1 && wrong[0].contains("2.jpg") && !wrong[0].contains("class"), "{found}");
    let records = fs::read_to_string(path("audit/audit.jsonl")).unwrap();
    assert!(records.contains("40 x 20 pixels, which has 20 x 10, 10 x 20 upright"), "{records}");
    // Objects are counted, and images have no classes.
    let report = fs::read_to_string(path("audit/report.json")).unwrap();
    assert!(report.contains("object-classes") && !report.contains("Classes, in images"), "{report}");
}

#[test]
fn what_is_odd_about_a_source_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for name in ["images/1.jpg", "images/a/2.jpg", "images/.hidden/3.jpg"] {
        write(Path::new(&path(name)), jpeg(20, 10, 1));
    }
    write(Path::new(&path("classes.txt")), "cat\n");
    let (images, classes) = (path("images"), path("classes.txt"));
    let yolo = [&*images, "--format", "yolo", "--classes", &*classes];
    let warning = "none of 2 images has a file of labels";
    let run = ["--fields", "boxes,labels", "--preset", "yolo-eval"];
    let (code, said) = command(&[&["run"], &yolo[..], &run].concat());
    assert!(code == Some(0) && said.contains(warning) && said.contains("2 images in 1 batches"), "{said}");
    let (code, said) = command(&[&["audit"], &yolo[..]].concat());
    assert!(code == Some(0) && said.matches(warning).count() == 1, "{said}");
    write(Path::new(&path("labels/a/2.txt")), "0 .5 .5 .1 .1\n");
    let (_, said) = command(&[&["audit"], &yolo[..]].concat());
    assert!(!said.contains(warning), "{said}");
    // As class folders, they are refused.
    let (code, said) = command(&["run", &images]);
    assert!(code == Some(2) && said.contains("--format yolo") && said.contains("2.txt"), "{said}");
}
