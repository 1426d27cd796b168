//! YOLO: a text file for each image, and a file of folders and classes.

mod yaml;

use super::coco::outline;
use super::names::read_names;
use super::{ImageFolder, ReadRequest, Sample, Source, most_frequent, no_fields, no_such_sample};
use super::{read_file, read_limited, read_text_limited};
use crate::decode::probe;
use crate::error::{Error, Result};
use crate::fields::{
    BOXES, BoxFormat, Boxes, Fields, KEYPOINTS, KeyPoints, LABELS, MASKS, Mask, check_objects, empty_plane,
};
use crate::raster::Size;
use crate::targets;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use yaml::DataFile;

/// The fields that labels have; keypoints only with [`YoloFolder::keypoints`].
const FIELDS: [&str; 4] = [BOXES, LABELS, MASKS, KEYPOINTS];
/// Largest file of labels, in bytes.
const MAX_LABELS_BYTES: u64 = 16 << 20;
/// Largest `data.yaml`, in bytes.
const MAX_DATA_FILE_BYTES: u64 = 4 << 20;
/// Coordinates as shares of the sides: they may lie outside the image by a hundredth of its side. Compared in f32, as
/// Ultralytics compares them.
const SHARES: std::ops::RangeInclusive<f32> = -0.01..=1.01;

/// Images with labels in YOLO's text form: for `.../images/a/1.jpg` the file `.../labels/a/1.txt`. Each row is
/// `class cx cy w h` or, for an outline, `class x1 y1 x2 y2 x3 y3 ...`, in shares of the sides of the image as its EXIF
/// tag turns it. One row of more than 5 numbers makes all rows outlines; their boxes are those around them. With
/// [`keypoints`](Self::keypoints), rows are poses: `class cx cy w h x1 y1 v1 x2 y2 v2 ...`. An image without a file has
/// no objects; if no image has one, that is a [warning](Source::warnings). Duplicate rows count once.
///
/// Images of a folder are taken in any depth, without hidden files and folders, in the order of their paths, as
/// Ultralytics finds them. Their endings are those of [`ImageFolder`].
///
/// The fields are `boxes` (XYXY), `labels`, `keypoints` of poses, and `masks` of outlines, with the pixels that
/// pycocotools makes of them; Ultralytics fills outlines by OpenCV. A row of another form, or one that reaches outside
/// the image by more than 1 % of a side, makes its sample a bad one.
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
    parts: Vec<Images>,
    classes: Vec<String>,
    poses: Option<Poses>,
    /// Whether an image has a file of labels.
    is_labeled: bool,
}

/// Images of a folder or of a list.
#[derive(Debug, Clone)]
enum Images {
    Folder(ImageFolder),
    List(Vec<PathBuf>),
}

/// The form of keypoints in rows.
#[derive(Debug, Clone)]
struct Poses {
    /// Keypoints of an object.
    count: usize,
    /// Numbers of a keypoint: 2, or 3 with its visibility.
    numbers: usize,
    /// For each keypoint in a mirror image, the number of the one that it was.
    flip_index: Option<Arc<[usize]>>,
}

/// A row of a file of labels.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    class: i64,
    /// Center and sides, or the corners of an outline, in shares of the sides.
    numbers: Vec<f64>,
    /// The numbers of the keypoints of a pose.
    keypoints: Vec<f64>,
    /// Its line in the file, counted from 1.
    line: usize,
}

impl Row {
    /// Key that equal rows share: all numbers, in f32, as Ultralytics compares them.
    fn key(&self) -> Vec<u32> {
        // 0 and -0 are equal.
        let bits = |value: &f64| (*value as f32 + 0.0).to_bits();
        [self.class as u32].into_iter().chain(self.numbers.iter().chain(&self.keypoints).map(bits)).collect()
    }
}

impl Images {
    fn len(&self) -> u64 {
        match self {
            Self::Folder(images) => images.len(),
            Self::List(paths) => paths.len() as u64,
        }
    }

    fn path(&self, index: u64) -> PathBuf {
        match self {
            Self::Folder(images) => images.path(index),
            Self::List(paths) => paths[index as usize].clone(),
        }
    }
}

impl YoloFolder {
    /// Lists the images below `root`. `classes` are the names of the classes, class 0 first; if empty, every class is
    /// allowed.
    ///
    /// # Errors
    /// The errors of [`ImageFolder::open`]; [`Error::Parameter`] if no folder of the path is called `images`.
    pub fn open(root: impl AsRef<Path>, classes: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let parts = vec![Images::Folder(ImageFolder::below(root.as_ref())?)];
        Self { parts, classes: classes.into_iter().map(Into::into).collect(), poses: None, is_labeled: true }
            .checked("YoloFolder::open")
    }

    /// Reads a `data.yaml` and lists the images of its split: `train`, `val` or `test`, each a folder, a file with the
    /// path of an image on each line, or a list of these. They start at the folder `path`, and `path` starts at the
    /// folder of the file; paths in a list start at the folder of the list. `names` are the classes, or `nc` their
    /// number; `kpt_shape` and `flip_idx` are those of [`keypoints`](Self::keypoints) and
    /// [`flip_index`](Self::flip_index). Other keys are skipped.
    ///
    /// Of YAML, values without or in quotes are read, and lists and maps of them in either form. Anchors, tags, text of
    /// several lines and lists within lists are refused where they matter. As Ultralytics does, `../` at the beginning
    /// of a split's path is left out if that is where its images are.
    ///
    /// ```
    /// use warpfeed::source::{Source, YoloFolder};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::fs::create_dir_all(folder.path().join("images/val")).unwrap();
    /// # std::fs::write(folder.path().join("images/val/1.jpg"), "").unwrap();
    /// # let path = folder.path().join("data.yaml");
    /// std::fs::write(&path, "path: .\nval: images/val\nnames:\n  0: cat\n  1: dog\n").unwrap();
    /// let yolo = YoloFolder::from_yaml(&path, "val")?;
    /// assert_eq!((yolo.len(), yolo.classes()), (1, &["cat".to_owned(), "dog".to_owned()][..]));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if a file or a folder cannot be read; [`Error::Parameter`] with the line if the file is not
    /// understood, if it does not have the split, or if no folder of an image's path is called `images`.
    pub fn from_yaml(path: impl AsRef<Path>, split: &str) -> Result<Self> {
        const CALL: &str = "YoloFolder::from_yaml";
        let path = path.as_ref();
        let wrong = |message: String| {
            let got = format!("{}: {message}", path.display());
            Error::parameter(CALL, "path", "the data.yaml of a data set", got)
        };
        let data = DataFile::read(&read_text_limited(path, MAX_DATA_FILE_BYTES)?).map_err(wrong)?;
        let Some((_, places)) = data.splits.iter().find(|(name, _)| name == split) else {
            let there = data.splits.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            let expected = format!("one of {}, which has {there}", path.display());
            return Err(Error::parameter(CALL, "split", expected, split));
        };
        let root = path.parent().unwrap_or(Path::new("")).join(data.path.unwrap_or_default());
        let part = |place: &String| {
            let mut own = root.join(place);
            if let (false, Some(inner)) = (own.exists(), place.strip_prefix("../"))
                && root.join(inner).exists()
            {
                own = root.join(inner);
            }
            if own.is_dir() {
                return ImageFolder::below(&own).map(Images::Folder);
            }
            let folder = own.parent().unwrap_or(Path::new(""));
            let listed = |(_, name): (usize, String)| folder.join(name.strip_prefix("./").unwrap_or(&name));
            Ok(Images::List(read_names(&own)?.into_iter().map(listed).collect()))
        };
        let parts = places.iter().map(part).collect::<Result<_>>()?;
        let mut found = Self { parts, classes: data.names, poses: None, is_labeled: true }.checked(CALL)?;
        if let Some(shape) = data.kpt_shape {
            found = found.keypoints(shape)?;
            if let Some(flip_index) = data.flip_idx {
                found = found.flip_index(flip_index)?;
            }
        }
        Ok(found)
    }

    /// Checks that all labels have a place.
    fn checked(self, operation: &'static str) -> Result<Self> {
        let lost = |part: &Images| match part {
            // All paths of a folder have its folders.
            Images::Folder(images) => Some(images.path(0)).filter(|path| beside(path).is_none()),
            Images::List(paths) => paths.iter().find(|path| beside(path).is_none()).cloned(),
        };
        match self.parts.iter().find_map(lost) {
            None => Ok(Self { is_labeled: self.finds_labels(), ..self }),
            Some(path) => {
                let expected = "a folder images, beside which labels lies";
                Err(Error::parameter(operation, "root", expected, path.display()))
            }
        }
    }

    /// Whether any image has a file of labels. Ends at the first one.
    fn finds_labels(&self) -> bool {
        // Where there is no folder, its files need not be looked for.
        let mut folders: HashMap<PathBuf, bool> = HashMap::new();
        (0..self.len()).any(|index| {
            let path = self.labels_path(index);
            let folder = path.parent().unwrap_or(Path::new(""));
            let is_there = match folders.get(folder) {
                Some(is_there) => *is_there,
                None => *folders.entry(folder.to_owned()).or_insert(folder.is_dir()),
            };
            is_there && path.exists()
        })
    }

    /// Makes rows poses: each has this many keypoints, of 2 numbers or of 3, as `kpt_shape` says. The third is the
    /// visibility: 0 not labeled, 1 hidden, 2 visible. Without it keypoints are visible unless they are negative.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no keypoints, and for other than 2 or 3 numbers.
    pub fn keypoints(mut self, [count, numbers]: [usize; 2]) -> Result<Self> {
        if !(1..=10_000).contains(&count) || !(2..=3).contains(&numbers) {
            let expected = "1 to 10,000 keypoints of 2 or 3 numbers";
            return Err(Error::parameter("YoloFolder", "kpt_shape", expected, format!("[{count}, {numbers}]")));
        }
        self.poses = Some(Poses { count, numbers, flip_index: None });
        Ok(self)
    }

    /// Sets which keypoints change places in a mirror image, as `flip_idx` says: [`KeyPoints::flip_index`].
    ///
    /// # Errors
    /// [`Error::Parameter`] unless it has the number of each of the [`keypoints`](Self::keypoints) once.
    pub fn flip_index(mut self, flip_index: impl Into<Arc<[usize]>>) -> Result<Self> {
        let flip_index = flip_index.into();
        let Some(poses) = &mut self.poses else {
            return Err(Error::parameter("YoloFolder", "flip_idx", "only with kpt_shape", format!("{flip_index:?}")));
        };
        KeyPoints::of_objects(poses.count, Vec::new(), Vec::new())?.flip_index(Arc::clone(&flip_index))?;
        poses.flip_index = Some(flip_index);
        Ok(self)
    }

    /// The folders among the parts.
    fn folders(&self) -> impl Iterator<Item = &ImageFolder> {
        self.parts.iter().filter_map(|part| if let Images::Folder(images) = part { Some(images) } else { None })
    }

    /// The path of image `index`.
    fn path(&self, mut index: u64) -> PathBuf {
        for part in &self.parts {
            match index.checked_sub(part.len()) {
                None => return part.path(index),
                Some(rest) => index = rest,
            }
        }
        panic!("no sample {index} beyond the last");
    }

    /// The path of the labels of image `index`.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    #[must_use]
    pub fn labels_path(&self, index: u64) -> PathBuf {
        labels_of(&self.path(index))
    }

    /// The rows of an image. No file means none.
    fn rows(&self, path: &Path) -> Result<Vec<Row>> {
        let bytes = match read_limited(path, MAX_LABELS_BYTES) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes?,
        };
        let wrong = |line: usize, message: &str| {
            targets::wrong(Some(LABELS), format!("{} line {line}: {message}", path.display()))
        };
        let is_share = |value: &f64| SHARES.contains(&(*value as f32));
        let (mut rows, mut seen): (Vec<Row>, HashSet<Vec<u32>>) = (Vec::new(), HashSet::new());
        let text = String::from_utf8_lossy(&bytes);
        for (number, line) in (1..).zip(lines(text.trim_start_matches('\u{feff}'))) {
            let parsed: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
            let Some(numbers) = parsed else { return Err(wrong(number, "it has a word that is no number")) };
            let [class, numbers @ ..] = &numbers[..] else { continue };
            let most = if self.classes.is_empty() { u32::MAX as usize } else { self.classes.len() };
            if class.fract() != 0.0 || !(0.0..most as f64).contains(class) {
                return Err(wrong(number, &format!("{class} is not the number of a class")));
            }
            let (numbers, keypoints) = match &self.poses {
                Some(poses) if numbers.len() == 4 + poses.count * poses.numbers => numbers.split_at(4),
                Some(poses) => {
                    let Poses { count, numbers, .. } = poses;
                    let message = format!("it is not a class, a box and {count} keypoints of {numbers} numbers");
                    return Err(wrong(number, &message));
                }
                None if numbers.len() != 4 && (numbers.len() < 6 || !numbers.len().is_multiple_of(2)) => {
                    return Err(wrong(number, "it is neither a class and a box nor a class and an outline"));
                }
                None => (numbers, &[][..]),
            };
            for keypoint in self.poses.iter().flat_map(|poses| keypoints.chunks_exact(poses.numbers)) {
                if !keypoint[..2].iter().all(is_share) {
                    return Err(wrong(number, "a keypoint lies outside the image"));
                }
                if keypoint.get(2).is_some_and(|seen| ![0.0, 1.0, 2.0].contains(seen)) {
                    return Err(wrong(number, "the visibility of a keypoint is not 0, 1 or 2"));
                }
            }
            if !numbers.iter().all(is_share) {
                return Err(wrong(number, "it reaches outside the image"));
            }
            let class = *class as i64;
            let row = Row { class, numbers: numbers.to_vec(), keypoints: keypoints.to_vec(), line: number };
            if seen.insert(row.key()) {
                rows.push(row);
            }
        }
        if rows.iter().any(|row| row.numbers.len() > 4)
            && let Some(row) = rows.iter().find(|row| row.numbers.len() < 6)
        {
            return Err(wrong(row.line, "it has too few corners, where other rows are outlines"));
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
                KEYPOINTS => {
                    if let Some(poses) = &self.poses {
                        fields.insert(KEYPOINTS, poses.of(&rows, px, tag)?)?;
                    }
                }
                MASKS => {
                    check_objects(rows.len(), size)?;
                    let plane = |row: &Row| {
                        if row.numbers.len() == 4 {
                            let message = format!("{}: boxes have no masks", path.display());
                            return Err(targets::wrong(Some(MASKS), message));
                        }
                        let mut plane = empty_plane(size)?;
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

impl Poses {
    /// The keypoints of rows in an image that is stored with these sides in pixels and this orientation tag.
    fn of(&self, rows: &[Row], px: [f64; 2], tag: u8) -> Result<KeyPoints> {
        let mut points = vec![[0.0; 2]; rows.len() * self.count];
        let mut visibility = vec![0; points.len()];
        for (row, first) in rows.iter().zip((0..).step_by(self.count)) {
            for (i, keypoint) in row.keypoints.chunks_exact(self.numbers).enumerate() {
                let [x, y] = [keypoint[0], keypoint[1]];
                let usual = if x < 0.0 || y < 0.0 { 0 } else { 2 };
                let seen = keypoint.get(2).map_or(usual, |seen| *seen as u8);
                // Tags 2 and 7 turn the image by a mirror, which exchanges left and right: labels are of the upright
                // image.
                let flipped = self.flip_index.as_ref().filter(|_| matches!(tag, 2 | 7));
                let place = first + flipped.map_or(i, |flip_index| flip_index[i]);
                visibility[place] = seen;
                if seen > 0 {
                    let [x, y] = stored([x, y], tag);
                    points[place] = [(x * px[0]) as f32, (y * px[1]) as f32];
                }
            }
        }
        let points = KeyPoints::of_objects(self.count, points, visibility)?;
        match &self.flip_index {
            Some(flip_index) => points.flip_index(Arc::clone(flip_index)),
            None => Ok(points),
        }
    }
}

/// The lines of a text, as Python's `str.splitlines` finds them.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text).filter(|text| !text.is_empty());
    let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    std::iter::from_fn(move || {
        let text = rest?;
        let (line, after) = match text.find(ends) {
            Some(end) if text[end..].starts_with("\r\n") => (&text[..end], &text[end + 2..]),
            Some(end) => (&text[..end], text[end..].strip_prefix(ends).unwrap_or_default()),
            None => (text, ""),
        };
        rest = Some(after).filter(|after| !after.is_empty());
        Some(line)
    })
}

/// The path of the labels of an image.
pub(super) fn labels_of(image: &Path) -> PathBuf {
    beside(image).unwrap_or_else(|| image.to_owned()).with_extension("txt")
}

/// The path in which the last folder `images` is `labels`.
fn beside(path: &Path) -> Option<PathBuf> {
    let parts: Vec<&OsStr> = path.iter().collect();
    let images = parts[..parts.len().saturating_sub(1)].iter().rposition(|part| *part == "images")?;
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
    fn len(&self) -> u64 {
        self.parts.iter().map(Images::len).sum()
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("YoloFolder::read", index, self.len()));
        }
        if let Some(field) = want.target {
            return Err(no_fields("no targets", field));
        }
        // The size and the orientation of the image are in its header.
        let path = self.path(index);
        read_file(&path, sample.buffer())?;
        if !want.fields.is_empty() {
            let header = probe(sample.bytes())?;
            sample.set_fields(self.fields_of(&labels_of(&path), header.size, header.orientation, want.fields)?);
        }
        Ok(())
    }

    fn image_file(&self, index: u64) -> Option<PathBuf> {
        (index < self.len()).then(|| self.path(index))
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.path(index).to_string_lossy().into_owned().into()
    }

    fn skipped_files(&self) -> u64 {
        self.folders().map(ImageFolder::skipped_files).sum()
    }

    fn skipped_kinds(&self) -> Vec<(String, u64)> {
        most_frequent(self.folders().flat_map(ImageFolder::skipped_kinds))
    }

    fn warnings(&self) -> Vec<String> {
        let first = || self.labels_path(0).display().to_string();
        let warning = || {
            format!(
                "none of {} images has a file of labels, such as {}: all are images without objects",
                self.len(),
                first()
            )
        };
        if self.is_labeled || self.is_empty() { Vec::new() } else { vec![warning()] }
    }

    fn checked_fields(&self) -> Vec<String> {
        let keypoints = self.poses.as_ref().map(|_| KEYPOINTS);
        [BOXES, LABELS].into_iter().chain(keypoints).map(str::to_owned).collect()
    }

    /// `None`: objects have labels, and images have none.
    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn check_field(&self, field: &str) -> Result<()> {
        let there = if self.poses.is_some() { &FIELDS[..] } else { &FIELDS[..3] };
        if there.contains(&field) { Ok(()) } else { Err(no_fields(there.join(", "), field)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{JpegOptions, encode_jpeg};
    use crate::fields::{Field, MaskValues};
    use crate::raster::Image;

    fn read(labels: Option<&str>, orientation: u16, names: &[&str]) -> Result<Fields> {
        read_as(labels, orientation, names, Ok)
    }

    fn read_as(
        labels: Option<&str>,
        orientation: u16,
        names: &[&str],
        with: fn(YoloFolder) -> Result<YoloFolder>,
    ) -> Result<Fields> {
        let folder = tempfile::tempdir().unwrap();
        let (images, texts) = (folder.path().join("images"), folder.path().join("labels"));
        std::fs::create_dir_all(&images).unwrap();
        std::fs::create_dir_all(&texts).unwrap();
        let options = JpegOptions { orientation: Some(orientation), ..JpegOptions::default() };
        std::fs::write(images.join("1.jpg"), encode_jpeg(&Image::new(Size::new(20, 10)), &options).unwrap()).unwrap();
        if let Some(text) = labels {
            std::fs::write(texts.join("1.txt"), text).unwrap();
        }
        let yolo = with(YoloFolder::open(&images, ["cat", "dog"]).unwrap()).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (mut sample, want) = (Sample::default(), ReadRequest::IMAGE.without_image().and_fields(&names));
        yolo.read(0, &want, &mut sample)?;
        sample.take_found(&want).map(|found| (*found.fields.unwrap()).clone())
    }

    #[test]
    fn boxes_and_outlines_are_in_pixels_of_the_stored_image() {
        let found =
            read(Some("1 0.5 0.5 0.5 0.4\n\n0 0.1 0.1 0.2 0.2\n1 0.5 0.5 0.5 0.4\n"), 1, &[BOXES, LABELS]).unwrap();
        assert_eq!(found.boxes().unwrap().rows(), [[5.0, 3.0, 15.0, 7.0], [0.0, 0.0, 4.0, 2.0]]);
        assert_eq!(found.get(LABELS), Some(&Field::Integers(vec![1, 0])));
        // Turned by 90 degrees: the upper right corner was stored at the upper left.
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
            ("0 0.1 0.1 0.2 0.1 0.2 0.2\n0 0.5 0.5 0.1 0.1", "line 2: it has too few corners"),
            // Blank lines and rows that are there twice are lines too.
            ("0 .1 .1 .2 .1 .2 .2\n\n\n0 .1 .1 .2 .1 .2 .2\n0 .5 .5 .1 .1\n", "line 5: it has too few corners"),
            ("0 .5 .5 .1 .1\r\n0 .5 .5 .1 .1\r0 .5 .5 .1 x", "line 3: it has a word"),
        ] {
            let error = read(Some(text), 1, &[BOXES]).unwrap_err();
            assert!(error.is_bad_sample() && error.to_string().contains(message), "{text}: {error}");
            assert!(error.to_string().contains("1.txt"), "{error}");
        }
        assert!(read(Some("0 0.5 0.5 0.1 0.1"), 1, &[MASKS]).unwrap_err().to_string().contains("no masks"));
    }

    #[test]
    fn lines_are_pythons_and_equal_rows_are_found_at_once() {
        let rows = |text: &str| read(Some(text), 1, &[LABELS]).unwrap().objects();
        assert_eq!(rows("\u{feff}0 .5 .5 .1 .1\n"), 1);
        assert_eq!(rows("0 .5 .5 .1 .1\r1 .5 .5 .1 .1\r\n0 .2 .5 .1 .1\u{2028}0 .3 .5 .1 .1"), 4);
        // Equal in f32, and 0 and -0.
        assert_eq!(rows("0 0.5 0.5 0.1 0.1\n0 0.5 0.50000000001 0.1 0.1\n0 0 .5 0 0\n0 -0 .5 0 0"), 2);
        assert_eq!(rows("0 1.0100000001 .5 .1 .1\n0 -0.01 .5 .1 .1"), 2, "compared in f32");
        let row = |i: u32| format!("0 .5 .5 .1 0.{:07}\n", i % 15_000);
        assert_eq!(rows(&(0..20_000).map(row).collect::<String>()), 15_000);
        let lines: Vec<&str> = lines("a\n\r\nb\x0bc\u{85}").collect();
        assert_eq!(lines, ["a", "", "b", "c"]);
    }

    #[test]
    fn made_label_files_are_read_as_ultralytics_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.txt");
        let mut cases = 0;
        for case in super::super::folder::tests::made_cases("yolo") {
            let text = case["text"].as_str().unwrap();
            let classes = (0..case["classes"].as_u64().unwrap()).map(|class| class.to_string()).collect();
            let plain = YoloFolder { parts: Vec::new(), classes, poses: None, is_labeled: true };
            let shape: Option<[usize; 2]> = serde_json::from_value(case["poses"].clone()).unwrap();
            let yolo = shape.map_or_else(|| plain.clone(), |shape| plain.clone().keypoints(shape).unwrap());
            std::fs::write(&path, text).unwrap();
            let rows = yolo.rows(&path).ok().map(|rows| {
                let row = |row: Row| {
                    let numbers = row.numbers.into_iter().chain(row.keypoints);
                    [row.class as f32].into_iter().chain(numbers.map(|value| value as f32 + 0.0)).collect()
                };
                rows.into_iter().map(row).collect::<Vec<Vec<f32>>>()
            });
            let want: Option<Vec<Vec<f32>>> = serde_json::from_value(case["rows"].clone()).unwrap();
            assert_eq!(rows, want, "{text:?}, {shape:?}: {:?}", yolo.rows(&path));
            cases += 1;
        }
        assert!(cases >= 100, "{cases}");
        println!("{cases} label files");
    }

    #[test]
    fn images_below_are_found_and_a_set_without_labels_is_said() {
        let tree = super::super::folder::tests::tree;
        let folder = tree(&["images/1.jpg", "images/a/2.jpg", "images/.x/3.jpg", "labels/a/9.txt"]);
        let open = || YoloFolder::open(folder.path().join("images"), ["cat"]).unwrap();
        let warnings = open().warnings();
        assert!(open().len() == 2 && warnings[0].contains("none of 2 images has a file of labels"), "{warnings:?}");
        assert!(warnings[0].contains("labels/1.txt"), "{warnings:?}");
        std::fs::write(folder.path().join("labels/a/2.txt"), "").unwrap();
        assert!(open().warnings().is_empty());
    }

    fn pose(yolo: YoloFolder) -> Result<YoloFolder> {
        yolo.keypoints([2, 3])?.flip_index([1, 0])
    }

    fn points(fields: &Fields) -> &KeyPoints {
        let Some(Field::KeyPoints(points)) = fields.get(KEYPOINTS) else { panic!("{fields:?}") };
        points
    }

    #[test]
    fn keypoints_of_poses_are_in_pixels_with_their_visibility() {
        let text = "1 0.5 0.5 0.5 0.4 0.25 0.5 2 0.9 0.9 0\n0 0.5 0.5 0.1 0.1 0 0 1 1.005 1 2\n";
        let found = read_as(Some(text), 1, &[BOXES, LABELS, KEYPOINTS], pose).unwrap();
        assert_eq!(found.boxes().unwrap().rows()[0], [5.0, 3.0, 15.0, 7.0]);
        assert_eq!(points(&found).points(), [[5.0, 5.0], [0.0, 0.0], [0.0, 0.0], [20.1, 10.0]]);
        assert_eq!((points(&found).visibility(), points(&found).per_object()), (&[2, 0, 1, 2][..], 2));
        // Without visibility, a negative keypoint is not labeled.
        let text = "0 0.5 0.5 0.1 0.1 0.5 0.5 -0.005 0.5";
        let found = read_as(Some(text), 1, &[KEYPOINTS], |yolo| yolo.keypoints([2, 2])).unwrap();
        assert_eq!((points(&found).visibility(), points(&found).points()[0]), (&[2, 0][..], [10.0, 5.0]));
        for (text, message) in [
            ("0 0.5 0.5 0.1 0.1", "line 1: it is not a class, a box and 2 keypoints of 3 numbers"),
            ("0 0.5 0.5 0.1 0.1 0 0 1 0 0 3", "visibility"),
            ("0 0.5 0.5 0.1 0.1 0 0 1 0 1.1 1", "keypoint lies outside"),
        ] {
            let error = read_as(Some(text), 1, &[KEYPOINTS], pose).unwrap_err();
            assert!(error.is_bad_sample() && error.to_string().contains(message), "{error}");
        }
        let folder = super::super::folder::tests::tree(&["images/1.jpg"]);
        let plain = || YoloFolder::open(folder.path().join("images"), ["cat"]).unwrap();
        assert!(plain().check_field(KEYPOINTS).is_err() && pose(plain()).unwrap().check_field(KEYPOINTS).is_ok());
        assert!(plain().keypoints([0, 3]).is_err() && plain().keypoints([2, 4]).is_err());
        assert!(plain().flip_index([0]).is_err() && plain().keypoints([2, 3]).unwrap().flip_index([1, 1]).is_err());
    }

    #[test]
    fn data_files_name_folders_lists_and_several_of_them() {
        let folder =
            super::super::folder::tests::tree(&["set/images/a/1.jpg", "set/images/a/2.txt", "set/images/b/2.jpg"]);
        let file = folder.path().join("data.yaml");
        std::fs::write(folder.path().join("set/list.txt"), "./images/b/2.jpg\n\nimages/a/9.jpg\n").unwrap();
        let text = "path: set\ntrain: images/a\nval: [list.txt, ../images/a]\nnames: {0: cat}\n\
                    kpt_shape: [2, 3]\nflip_idx: [1, 0]";
        std::fs::write(&file, text).unwrap();
        let train = YoloFolder::from_yaml(&file, "train").unwrap();
        assert_eq!((train.len(), train.skipped_files(), train.classes()), (1, 1, &["cat".to_owned()][..]));
        assert!(train.check_field(KEYPOINTS).is_ok());
        let val = YoloFolder::from_yaml(&file, "val").unwrap();
        let set = folder.path().join("set");
        let names: Vec<String> = (0..val.len()).map(|i| val.name(i).into_owned()).collect();
        let want = ["images/b/2.jpg", "images/a/9.jpg", "images/a/1.jpg"].map(|name| set.join(name));
        assert_eq!(names, want.map(|path| path.to_string_lossy().into_owned()));
        assert_eq!(val.labels_path(1), set.join("labels/a/9.txt"));
        assert_eq!(val.encoded(2).unwrap(), b"set/images/a/1.jpg");
        assert!(val.encoded(1).unwrap_err().is_bad_sample() && val.encoded(3).unwrap_err().is_parameter());
        let error = YoloFolder::from_yaml(&file, "test").unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("which has train, val"), "{error}");
        for (text, message) in [
            ("train: nowhere\nnames: [a]", "nowhere"),
            ("train: |\n  a\nnames: [a]", "data.yaml: line 1: train"),
            ("train: set/other.txt\nnames: [a]", "a folder images"),
            ("train: set/images/a\nnames: [a]\nkpt_shape: [2, 3]\nflip_idx: [0]", "flip_index"),
        ] {
            std::fs::write(folder.path().join("set/other.txt"), "photos/1.jpg\n").unwrap();
            std::fs::write(&file, text).unwrap();
            let error = YoloFolder::from_yaml(&file, "train").unwrap_err();
            assert!(error.to_string().contains(message), "{message}: {error}");
        }
    }
}
