//! Labels of YOLO: a text file for each image.

use super::coco::outline;
use super::{ImageFolder, Sample, Source, Want, as_in, no_fields, read_limited};
use crate::decode::probe;
use crate::error::{Error, Result};
use crate::fields::{BOXES, BoxFormat, Boxes, Fields, LABELS, MASKS, Mask};
use crate::raster::Size;
use crate::targets;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The fields that labels have.
const FIELDS: [&str; 3] = [BOXES, LABELS, MASKS];
/// Largest file of labels, in bytes.
const MAX_LABELS_BYTES: u64 = 16 << 20;
/// How far a coordinate may lie outside the image, as a share of its side.
const TOLERANCE: f64 = 0.01;

/// Images of a folder with labels in YOLO's text form: for `.../images/a/1.jpg` the file `.../labels/a/1.txt`. Each row is
/// `class cx cy w h` or, for an outline, `class x1 y1 x2 y2 x3 y3 ...`, in shares of the sides of the image as its EXIF
/// tag turns it. One row of more than 5 numbers makes all rows outlines; their boxes are those around them. An image
/// without a file has no objects. Rows that are there twice count once.
///
/// The fields are `boxes` (XYXY), `labels`, and `masks` of outlines, with the pixels that pycocotools makes of them;
/// Ultralytics fills outlines by OpenCV. A row that is none, or that reaches outside the image by more than 1 % of a side,
/// makes its sample a bad one.
///
/// ```
/// use warpfeed::source::{Source, YoloFolder};
///
/// # let folder = tempfile::tempdir().unwrap();
/// let images = folder.path().join("images/train");
/// std::fs::create_dir_all(&images).unwrap();
/// std::fs::write(images.join("1.jpg"), "").unwrap();
/// let yolo = YoloFolder::open(&images, ["cat", "dog"])?;
/// assert_eq!((yolo.len(), yolo.labels_path(0)), (1, folder.path().join("labels/train/1.txt")));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct YoloFolder {
    images: ImageFolder,
    classes: Vec<String>,
}

/// A row of a file of labels.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    class: i64,
    /// Center and sides, or the corners of an outline, in shares of the sides.
    numbers: Vec<f64>,
}

impl YoloFolder {
    /// Lists the images below `root`. `classes` are the names of the classes, class 0 first; with none, every class is
    /// allowed.
    ///
    /// # Errors
    /// The errors of [`ImageFolder::open`]; [`Error::Parameter`] if no folder of the path is called `images`.
    pub fn open(root: impl AsRef<Path>, classes: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let images = ImageFolder::open(root.as_ref())?;
        let found = Self { images, classes: classes.into_iter().map(Into::into).collect() };
        if beside(&found.images.path(0)).is_none() {
            let expected = "a folder images, beside which labels lies";
            return Err(Error::parameter("YoloFolder::open", "root", expected, root.as_ref().display()));
        }
        Ok(found)
    }

    /// The path of the labels of image `index`.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    #[must_use]
    pub fn labels_path(&self, index: u64) -> PathBuf {
        let path = self.images.path(index);
        beside(&path).unwrap_or(path).with_extension("txt")
    }

    /// The rows of an image. No file means none.
    fn rows(&self, path: &Path) -> Result<Vec<Row>> {
        let bytes = match read_limited(path, MAX_LABELS_BYTES) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes?,
        };
        let wrong = |number: usize, message: &str| {
            targets::wrong(Some(LABELS), format!("{} line {}: {message}", path.display(), number + 1))
        };
        let mut rows: Vec<Row> = Vec::new();
        for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            let parsed: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
            let Some(numbers) = parsed else { return Err(wrong(number, "it has a word that is no number")) };
            let [class, numbers @ ..] = &numbers[..] else { continue };
            let most = if self.classes.is_empty() { u32::MAX as usize } else { self.classes.len() };
            if class.fract() != 0.0 || !(0.0..most as f64).contains(class) {
                return Err(wrong(number, &format!("{class} is not the number of a class")));
            }
            if numbers.len() != 4 && (numbers.len() < 6 || !numbers.len().is_multiple_of(2)) {
                return Err(wrong(number, "it is neither a class and a box nor a class and an outline"));
            }
            if !numbers.iter().all(|value| (-TOLERANCE..=1.0 + TOLERANCE).contains(value)) {
                return Err(wrong(number, "it reaches outside the image"));
            }
            let row = Row { class: *class as i64, numbers: numbers.to_vec() };
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        if rows.iter().any(|row| row.numbers.len() > 4)
            && let Some(number) = rows.iter().position(|row| row.numbers.len() < 6)
        {
            return Err(wrong(number, "it has too few corners, where other rows are outlines"));
        }
        Ok(rows)
    }

    /// The fields of an image that is stored with this size and this orientation tag.
    fn fields_of(&self, path: &Path, size: Size, tag: u8, names: &[String]) -> Result<Fields> {
        let rows = self.rows(path)?;
        let px = [f64::from(size.width), f64::from(size.height)];
        let corners = |row: &Row| -> Vec<[f64; 2]> {
            let upright: Vec<[f64; 2]> = match row.numbers[..] {
                [x, y, w, h] => vec![[x - w / 2.0, y - h / 2.0], [x + w / 2.0, y + h / 2.0]],
                _ => row.numbers.as_chunks::<2>().0.to_vec(),
            };
            upright.into_iter().map(|point| stored(point, tag)).map(|[x, y]| [x * px[0], y * px[1]]).collect()
        };
        let mut fields = Fields::new();
        for name in names {
            match &**name {
                BOXES => {
                    let around = |row: &Row| {
                        let corners = corners(row);
                        let least = |axis: usize| corners.iter().fold(f64::INFINITY, |low, at| low.min(at[axis]));
                        let most = |axis: usize| corners.iter().fold(0.0, |high: f64, at| high.max(at[axis]));
                        [least(0).max(0.0), least(1).max(0.0), most(0).min(px[0]), most(1).min(px[1])]
                            .map(|value| value as f32)
                    };
                    fields.insert(BOXES, Boxes::new(BoxFormat::Xyxy, rows.iter().map(around).collect()))?;
                }
                LABELS => fields.insert(LABELS, rows.iter().map(|row| row.class).collect::<Vec<_>>())?,
                MASKS => {
                    let plane = |row: &Row| {
                        if row.numbers.len() == 4 {
                            let message = format!("{}: boxes have no masks", path.display());
                            return Err(targets::wrong(Some(MASKS), message));
                        }
                        let mut plane = vec![0; size.area_px() as usize];
                        let fifths: Vec<i32> =
                            corners(row).as_flattened().iter().filter_map(|px| outline::fifths(*px)).collect();
                        outline::fill(&fifths, size, &mut plane);
                        Ok(plane)
                    };
                    let planes = rows.iter().map(plane).collect::<Result<Vec<_>>>()?;
                    fields.insert(MASKS, Mask::of_objects(size, planes)?)?;
                }
                _ => {}
            }
        }
        Ok(fields)
    }
}

/// The path in which the last folder `images` is `labels`.
fn beside(path: &Path) -> Option<PathBuf> {
    let parts: Vec<&OsStr> = path.iter().collect();
    let images = parts[..parts.len() - 1].iter().rposition(|part| *part == "images")?;
    Some(parts.iter().enumerate().map(|(i, part)| if i == images { OsStr::new("labels") } else { part }).collect())
}

/// The place in the stored image of a point of the upright one, both in shares of the sides.
fn stored([x, y]: [f64; 2], tag: u8) -> [f64; 2] {
    match tag {
        2 => [1.0 - x, y],
        3 => [1.0 - x, 1.0 - y],
        4 => [x, 1.0 - y],
        5 => [y, x],
        6 => [y, 1.0 - x],
        7 => [1.0 - y, 1.0 - x],
        8 => [1.0 - y, x],
        _ => [x, y],
    }
}

impl Source for YoloFolder {
    as_in!(|self| self.images; len name skipped);

    fn read<'a>(&'a self, index: u64, want: &Want<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if let Some(field) = want.field {
            return Err(no_fields("no targets", field));
        }
        // The size and the orientation of the image are in its header.
        self.images.read(index, &want.with_image(), sample)?;
        if !want.fields.is_empty() {
            let header = probe(sample.bytes())?;
            let path = self.labels_path(index);
            sample.set_fields(self.fields_of(&path, header.size, header.orientation, want.fields)?);
        }
        Ok(())
    }

    /// 0: objects have labels, and images have none.
    fn label(&self, _index: u64) -> u32 {
        0
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn check_field(&self, field: &str) -> Result<()> {
        if FIELDS.contains(&field) { Ok(()) } else { Err(no_fields(FIELDS.join(", "), field)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{JpegOptions, encode_jpeg};
    use crate::fields::{Field, MaskValues};
    use crate::raster::Image;

    fn read(labels: Option<&str>, orientation: u16, names: &[&str]) -> Result<Fields> {
        let folder = tempfile::tempdir().unwrap();
        let (images, texts) = (folder.path().join("images"), folder.path().join("labels"));
        std::fs::create_dir_all(&images).unwrap();
        std::fs::create_dir_all(&texts).unwrap();
        let options = JpegOptions { orientation: Some(orientation), ..JpegOptions::default() };
        std::fs::write(images.join("1.jpg"), encode_jpeg(&Image::new(Size::new(20, 10)), &options).unwrap()).unwrap();
        if let Some(text) = labels {
            std::fs::write(texts.join("1.txt"), text).unwrap();
        }
        let yolo = YoloFolder::open(&images, ["cat", "dog"]).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (mut sample, want) = (Sample::default(), Want::IMAGE.without_image().and_fields(&names));
        yolo.read(0, &want, &mut sample)?;
        sample.take_found(&want).map(|found| (*found.fields.unwrap()).clone())
    }

    #[test]
    fn boxes_and_outlines_are_in_pixels_of_the_stored_image() {
        let found =
            read(Some("1 0.5 0.5 0.5 0.4\n\n0 0.1 0.1 0.2 0.2\n1 0.5 0.5 0.5 0.4\n"), 1, &[BOXES, LABELS]).unwrap();
        assert_eq!(found.boxes().unwrap().rows(), [[5.0, 3.0, 15.0, 7.0], [0.0, 0.0, 4.0, 2.0]]);
        assert_eq!(found.get(LABELS), Some(&Field::Integers(vec![1, 0])));
        // Turned by 90 degrees: what is at the upper right was stored at the upper left.
        let turned = read(Some("0 0.95 0.05 0.1 0.1"), 6, &[BOXES]).unwrap();
        assert!(turned.boxes().unwrap().rows()[0].iter().zip([0.0, 0.0, 2.0, 1.0]).all(|(a, b)| (a - b).abs() < 1e-5));
        let outline = read(Some("0 0.1 0.2 0.4 0.2 0.4 0.6 0.1 0.6"), 1, &[BOXES, MASKS]).unwrap();
        assert_eq!(outline.boxes().unwrap().rows(), [[2.0, 2.0, 8.0, 6.0]]);
        let Some(Field::Mask(mask)) = outline.get(MASKS) else { panic!("{outline:?}") };
        let MaskValues::U8(values) = &*mask.planes()[0] else { panic!("{mask:?}") };
        assert_eq!((values.iter().filter(|v| **v == 1).count(), values[2 * 20 + 2]), (6 * 4, 1));
        assert_eq!(read(None, 1, &[BOXES]).unwrap().objects(), 0);
    }

    #[test]
    fn rows_that_are_none_are_named() {
        for (text, message) in [
            ("0 0.5 0.5 0.1 x", "line 1: it has a word"),
            ("0 0.5 0.5 0.1 0.1\n2 0.5 0.5 0.1 0.1", "line 2: 2 is not the number of a class"),
            ("0 0.5 0.5 0.1", "neither"),
            ("0 0.5 1.02 0.1 0.1", "outside the image"),
            ("0 0.5 0.5 nan 0.1", "outside the image"),
            ("0 0.1 0.1 0.2 0.1 0.2 0.2\n0 0.5 0.5 0.1 0.1", "too few corners"),
        ] {
            let error = read(Some(text), 1, &[BOXES]).unwrap_err();
            assert!(error.is_bad_sample() && error.to_string().contains(message), "{text}: {error}");
            assert!(error.to_string().contains("1.txt"), "{error}");
        }
        assert!(read(Some("0 0.5 0.5 0.1 0.1"), 1, &[MASKS]).unwrap_err().to_string().contains("no masks"));
    }
}
