//! Annotations that a reader of class folders would not see.

use super::ImageFolder;
use super::folder::is_image;
use super::yolo::labels_of;
use crate::error::{Error, Result};
use crate::os::file;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Number of images that are checked, evenly spread.
const IMAGES: u64 = 64;
/// Bytes that are read at each end of a JSON file.
const ENDS_BYTES: u64 = 64 << 10;
/// Largest number of JSON files that are checked in a folder.
const MAX_FILES: usize = 64;

/// Refuses a folder as one of class folders if annotations of its images lie next to them.
///
/// # Errors
/// [`Error::Parameter`] that names what was found and the format that reads it.
pub(super) fn refuse_annotated(images: &ImageFolder, root: &Path) -> Result<()> {
    let Some((format, found)) = beside(images, root) else { return Ok(()) };
    let remedy = match format {
        "coco" => "--format coco --annotations FILE",
        "voc" => "--format voc --split NAME on the folder above",
        _ => "--format yolo with a data.yaml, or with the folder images and --classes FILE",
    };
    let expected = format!("given for images with annotations beside them ({remedy}), or folder to take class folders");
    let got = format!("none, for {} and {}", root.display(), found.display());
    Err(Error::parameter("open", "format", expected, got))
}

/// The format of annotations next to images, and where they are.
fn beside(images: &ImageFolder, root: &Path) -> Option<(&'static str, PathBuf)> {
    let len = super::Source::len(images);
    let step = (len / IMAGES).max(1);
    let listed = (0..len).step_by(step as usize).map(|index| images.path(index));
    // Next to folders, these files are not samples.
    let top = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let top = top.filter(|path| path.file_name().is_some_and(|name| is_image(name.as_encoded_bytes())));
    for path in listed.chain(top.take(IMAGES as usize)) {
        let labels = labels_of(&path);
        if labels != path.with_extension("txt") && labels.is_file() {
            return Some(("yolo", labels));
        }
        if let (Some(folder), Some(stem)) = (path.parent().and_then(Path::parent), path.file_stem()) {
            let xml = folder.join("Annotations").join(format!("{}.xml", stem.to_string_lossy()));
            if xml.is_file() {
                return Some(("voc", xml));
            }
        }
    }
    let whole = fs::canonicalize(root).ok()?;
    let above = whole.parent().into_iter().flat_map(|above| [above.to_owned(), above.join("annotations")]);
    let further = whole.ancestors().nth(2).map(|above| above.join("annotations"));
    let folders = [whole.clone(), whole.join("annotations")].into_iter().chain(above).chain(further);
    let coco = folders.flat_map(|folder| json_files(&folder)).find(|file| is_of(file, images))?;
    Some(("coco", coco))
}

/// The JSON files in a folder, sorted.
fn json_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort_unstable();
    files.truncate(MAX_FILES);
    files
}

/// Whether a file has COCO's form and names one of the images, as far as its two ends tell.
fn is_of(path: &Path, images: &ImageFolder) -> bool {
    let ends = |mut file: File| {
        let mut ends = Vec::new();
        file.by_ref().take(ENDS_BYTES).read_to_end(&mut ends)?;
        let len = file.metadata()?.len();
        if len > 2 * ENDS_BYTES {
            file.seek(SeekFrom::Start(len - ENDS_BYTES))?;
        }
        file.take(ENDS_BYTES).read_to_end(&mut ends)?;
        Ok::<_, std::io::Error>(ends)
    };
    // A file that cannot be read is of no concern here.
    let Ok(ends) = file::open(path).and_then(|(file, _)| ends(file)) else { return false };
    let text = String::from_utf8_lossy(&ends);
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    if !has("images") || !has("annotations") && !has("categories") {
        return false;
    }
    let name = |part: &str| {
        let value = part.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
        let name = value.split('"').next()?;
        Some(name.rsplit('/').next().unwrap_or(name).to_owned())
    };
    let names: HashSet<String> = text.split("\"file_name\"").skip(1).filter_map(name).collect();
    let is_named = |index: u64| {
        let path = images.path(index);
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| names.contains(name))
    };
    !names.is_empty() && (0..super::Source::len(images)).any(is_named)
}

#[cfg(test)]
mod tests {
    use super::super::folder::tests::tree;
    use super::super::{OpenOptions, SourceFormat};
    use super::*;

    #[test]
    fn annotations_beside_images_are_named_with_their_format() {
        let json = r#"{"info": {}, "images": [{"id": 1, "file_name": "train/1.jpg"}], "annotations": []}"#;
        for (files, open, want) in [
            (&["set/images/1.jpg", "set/labels/1.txt"][..], "set/images", Some("yolo")),
            (&["set/images/1.jpg", "set/labels/1.txt"], "set", Some("yolo")),
            (&["images/train/1.jpg", "images/train/2.jpg", "labels/train/2.txt"], "images/train", Some("yolo")),
            (&["images/1.jpg", "images/a/2.jpg", "labels/1.txt"], "images", Some("yolo")),
            (&["images/a/1.jpg", "labels/train.txt"], "images", None),
            (&["VOC/JPEGImages/1.jpg", "VOC/Annotations/1.xml"], "VOC", Some("voc")),
            (&["VOC/JPEGImages/1.jpg", "VOC/Annotations/1.xml"], "VOC/JPEGImages", Some("voc")),
            (&["a/JPEGImages/1.jpg", "a/Annotations/2.xml"], "a", None),
            (&["img/1.jpg", "coco.json"], "img", Some("coco")),
            (&["img/1.jpg", "img/_annotations.coco.json"], "img", Some("coco")),
            (&["set/train2017/1.jpg", "set/annotations/instances.json"], "set/train2017", Some("coco")),
            (&["set/train2017/1.jpg", "set/annotations/instances.json"], "set", Some("coco")),
            (&["img/2.jpg", "coco.json"], "img", None),
            (&["cat/1.jpg", "dog/2.jpg", "notes.json"], ".", None),
        ] {
            let root = tree(files);
            for file in files.iter().filter(|file| file.ends_with(".json") && !file.starts_with("notes")) {
                fs::write(root.path().join(file), json).unwrap();
            }
            let folder = root.path().join(open);
            let opened = OpenOptions::default().open(&folder).map(|input| input.classes().len());
            match want {
                None => assert!(opened.is_ok(), "{files:?}"),
                Some(format) => {
                    let error = opened.unwrap_err();
                    let text = error.to_string();
                    assert!(error.is_parameter() && text.contains(&format!("--format {format}")), "{files:?}: {text}");
                }
            }
            let folders = OpenOptions { format: Some(SourceFormat::Folder), ..OpenOptions::default() };
            assert!(folders.open(&folder).is_ok(), "{files:?}");
        }
    }
}
