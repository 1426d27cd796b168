//! Files of annotations next to images: COCO's, Pascal VOC's and YOLO's.

use crate::{file, folder, read_all};
use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;
use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
use warpfeed::source::{CocoFiles, PanopticFiles, Source as _, VocFolder, YoloFolder};

/// A folder with images of 40 x 30 pixels, as each format has them.
fn images() -> PathBuf {
    thread_local!(static IMAGES: OnceCell<PathBuf> = const { OnceCell::new() });
    IMAGES.with(|images| {
        let make = || {
            let root = folder().join("annotated");
            let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default()).expect("a JPEG");
            for of in ["a.jpg", "JPEGImages/a.jpg", "images/train/a.jpg", "images/val/b.jpg"] {
                let path = root.join(of);
                fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
                fs::write(path, &jpeg).expect("an image");
            }
            for of in ["Annotations", "ImageSets/Main", "labels/train"] {
                fs::create_dir_all(root.join(of)).expect("a folder");
            }
            fs::write(root.join("ImageSets/Main/train.txt"), "a\n").expect("a list");
            root
        };
        images.get_or_init(make).clone()
    })
}

/// Reads COCO's annotations of instances, and of segments.
pub fn coco(data: &[u8]) {
    let (root, path) = (images(), file("instances.json", data));
    if let Ok(source) = CocoFiles::open(&root, &path) {
        read_all(&source);
        read_all(&source.crowds(true));
    }
    if let Ok(source) = PanopticFiles::open(&root, &path, &root) {
        read_all(&source);
    }
}

/// Reads an image's objects in Pascal VOC's XML.
pub fn voc(data: &[u8]) {
    let root = images();
    fs::write(root.join("Annotations/a.xml"), data).expect("the file can be written");
    let source = VocFolder::open(&root, "train").expect("the list has an image");
    read_all(&source);
    read_all(&source.difficult(true));
}

/// Reads an image's rows of boxes, outlines or keypoints.
pub fn yolo(data: &[u8]) {
    let root = images();
    fs::write(root.join("labels/train/a.txt"), data).expect("the file can be written");
    let open = || YoloFolder::open(root.join("images/train"), ["cat", "dog"]).expect("a folder with an image");
    read_all(&open());
    for numbers in [2, 3] {
        read_all(&open().keypoints([3, numbers]).expect("three keypoints"));
    }
}

/// Reads YOLO's description of a data set.
pub fn yaml(data: &[u8]) {
    let path = images().join("data.yaml");
    fs::write(&path, data).expect("the file can be written");
    for split in ["train", "val"] {
        if let Ok(source) = YoloFolder::from_yaml(&path, split) {
            source.classes();
            source.fingerprint();
        }
    }
}
