//! Pascal VOC: an XML file for each image, and lists of splits.

mod xml;

use super::folder::is_image;
use super::frame::Frame;
use super::names::read_names;
use super::{ReadRequest, Sample, Source, no_fields, no_such_sample, read_file, read_text_limited};
use crate::decode::{Header, probe};
use crate::error::{Error, Result};
use crate::fields::{BOXES, BoxFormat, Boxes, Fields, LABELS};
use crate::raster::Size;
use crate::targets;
use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};
use xml::{Annotation, Object};

/// The fields that annotations have.
const FIELDS: [&str; 4] = [BOXES, LABELS, "difficult", "truncated"];
/// VOC's classes.
const CLASSES: [&str; 20] = [
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
];
/// Largest annotation file, in bytes.
const MAX_ANNOTATION_BYTES: u64 = 4 << 20;

/// A folder of Pascal VOC (`VOCdevkit/VOC2012`), or of a data set in its form: the names in `ImageSets/Main/SPLIT.txt`,
/// for each the image `JPEGImages/NAME.jpg` and the objects in `Annotations/NAME.xml`. A name in the list may have an
/// image's ending, such as `.png`. Objects marked as difficult are left out, unless [`difficult`](Self::difficult) asks
/// for them.
///
/// The fields are `boxes` (XYXY), `labels`, `difficult` and `truncated` (0 or 1). VOC counts pixels from 1, and both
/// corners lie in the box: so 1 is subtracted from `xmin` and `ymin`, and `xmax` and `ymax` stay, as they are the far
/// edges of the last pixels. Parts outside the image are cut off. A file that states the size of the image as its EXIF
/// tag turns it has boxes of that image; otherwise they belong to the stored image.
///
/// A missing or damaged annotation file, one of another size than its image, and an object of an unknown class, without
/// a box or with one that lies outside the image make the sample a bad one; the error names file and object.
///
/// ```
/// use warpfeed::source::{Source, VocFolder};
///
/// # let folder = tempfile::tempdir().unwrap();
/// let lists = folder.path().join("ImageSets/Main");
/// std::fs::create_dir_all(&lists).unwrap();
/// std::fs::write(lists.join("train.txt"), "2008_000008\n2008_000015\n").unwrap();
/// let voc = VocFolder::open(folder.path(), "train")?;
/// assert_eq!((voc.len(), voc.classes()[11].as_str()), (2, "dog"));
/// assert_eq!(voc.annotation_path(1), folder.path().join("Annotations/2008_000015.xml"));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct VocFolder {
    root: PathBuf,
    /// The names of images, with their endings.
    names: Vec<String>,
    classes: Vec<String>,
    difficult: bool,
}

impl VocFolder {
    /// Reads the list of a split. Images and annotations are not opened. Classes are VOC's 20.
    ///
    /// # Errors
    /// [`Error::Io`] if the list cannot be read; [`Error::Parameter`] if a line is not the name of an image alone, or
    /// leads out of the folder.
    pub fn open(root: impl AsRef<Path>, split: &str) -> Result<Self> {
        let root = root.as_ref().to_owned();
        let list = root.join("ImageSets/Main").join(format!("{split}.txt"));
        let name = |(line, mut name): (usize, String)| {
            let inside = Path::new(&name).components().all(|part| matches!(part, Component::Normal(_)));
            if !inside || name.contains(char::is_whitespace) {
                let got = format!("{name:?} in {} line {line}", list.display());
                return Err(Error::parameter("VocFolder::open", "list", "the name of an image on each line", got));
            }
            if !is_image(name.as_bytes()) {
                name += ".jpg";
            }
            Ok(name)
        };
        let names = read_names(&list)?.into_iter().map(name).collect::<Result<_>>()?;
        Ok(Self { root, names, classes: CLASSES.map(str::to_owned).into(), difficult: false })
    }

    /// Names other classes than VOC's, class 0 first.
    #[must_use]
    pub fn with_classes(mut self, classes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.classes = classes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether objects that are marked as difficult are objects too. Default: false.
    #[must_use]
    pub fn difficult(mut self, difficult: bool) -> Self {
        self.difficult = difficult;
        self
    }

    /// The path of the annotations of image `index`.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    #[must_use]
    pub fn annotation_path(&self, index: u64) -> PathBuf {
        self.root.join("Annotations").join(&self.names[index as usize]).with_extension("xml")
    }

    fn image_path(&self, index: u64) -> PathBuf {
        self.root.join("JPEGImages").join(&self.names[index as usize])
    }

    /// The wanted fields of an image with this header.
    fn fields_of(&self, index: u64, header: &Header, names: &[String]) -> Result<Fields> {
        let path = self.annotation_path(index);
        let wrong =
            |field: &str, message: String| targets::wrong(Some(field), format!("{}: {message}", path.display()));
        let found = Annotation::read(&read_text_limited(&path, MAX_ANNOTATION_BYTES)?)
            .map_err(|message| wrong(BOXES, message))?;
        let stated = match found.size {
            [Some(width), Some(height)] if width.min(height) > 0.0 => Some(Size::new(width as u32, height as u32)),
            _ => None,
        };
        let frame = Frame::of_stated(header, stated).map_err(|message| wrong(BOXES, message))?;
        let numbered = found.objects.iter().zip(1..);
        let objects: Vec<(&Object, usize)> =
            numbered.filter(|(object, _)| self.difficult || object.difficult != Some(true)).collect();
        let bad = |field: &str, (object, number): &(&Object, usize), message: &str| {
            let name = object.name.as_deref().unwrap_or("without a name");
            wrong(field, format!("object {number} ({name}): {message}"))
        };
        let flags = |of: fn(&Object) -> Option<bool>| -> Vec<i64> {
            objects.iter().map(|(object, _)| of(object).unwrap_or(false).into()).collect()
        };
        let mut fields = Fields::new();
        for name in names {
            match &**name {
                BOXES => {
                    let row = |own: &(&Object, usize)| {
                        corners(own.0, frame.size).map_err(|message| bad(BOXES, own, &message))
                    };
                    let rows = objects.iter().map(row).collect::<Result<_>>()?;
                    fields.insert(BOXES, Boxes::new(BoxFormat::Xyxy, rows))?;
                }
                LABELS => {
                    let label = |own: &(&Object, usize)| {
                        let class = self.classes.iter().position(|class| own.0.name.as_ref() == Some(class));
                        class.map(|class| class as i64).ok_or_else(|| bad(LABELS, own, "its name is that of no class"))
                    };
                    fields.insert(LABELS, objects.iter().map(label).collect::<Result<Vec<_>>>()?)?;
                }
                "difficult" => fields.insert("difficult", flags(|object| object.difficult))?,
                "truncated" => fields.insert("truncated", flags(|object| object.truncated))?,
                _ => {}
            }
        }
        frame.to_stored(fields)
    }
}

/// The box of an object in an image of this size, counted from its corner.
fn corners(object: &Object, size: Size) -> Result<[f32; 4], String> {
    let [Some(left), Some(top), Some(right), Some(bottom)] = object.corners else {
        return Err("it has no bndbox with xmin, ymin, xmax and ymax".to_owned());
    };
    let row = [left - 1.0, top - 1.0, right, bottom];
    if row[2] < row[0] || row[3] < row[1] {
        return Err(format!("its bndbox {:?} is no box", [left, top, right, bottom]));
    }
    let [width, height] = [f64::from(size.width), f64::from(size.height)];
    if row[0] >= width || row[1] >= height || right <= 0.0 || bottom <= 0.0 {
        return Err(format!("its bndbox {:?} lies outside the image of {size}", [left, top, right, bottom]));
    }
    Ok([row[0].max(0.0), row[1].max(0.0), right.min(width), bottom.min(height)].map(|value| value as f32))
}

impl Source for VocFolder {
    fn len(&self) -> u64 {
        self.names.len() as u64
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("VocFolder::read", index, self.len()));
        }
        if let Some(field) = want.target {
            return Err(no_fields("no targets", field));
        }
        // The size of the image is in its header.
        read_file(&self.image_path(index), sample.buffer())?;
        if !want.fields.is_empty() {
            let header = probe(sample.bytes())?;
            sample.set_fields(self.fields_of(index, &header, want.fields)?);
        }
        Ok(())
    }

    fn image_file(&self, index: u64) -> Option<PathBuf> {
        (index < self.len()).then(|| self.image_path(index))
    }

    /// `None`: objects have labels, and images have none.
    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.image_path(index).to_string_lossy().into_owned().into()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn checked_fields(&self) -> Vec<String> {
        [BOXES, LABELS].map(str::to_owned).into()
    }

    fn check_field(&self, field: &str) -> Result<()> {
        if FIELDS.contains(&field) { Ok(()) } else { Err(no_fields(FIELDS.join(", "), field)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{JpegOptions, encode_jpeg};
    use crate::fields::Field;
    use crate::raster::Image;
    use std::fs;

    /// An image of 20 x 10 pixels with this annotation, in a split of one.
    fn opened(annotation: &str, orientation: u16) -> (tempfile::TempDir, VocFolder) {
        let folder = tempfile::tempdir().unwrap();
        for part in ["ImageSets/Main", "JPEGImages", "Annotations"] {
            fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        let options = JpegOptions { orientation: Some(orientation), ..JpegOptions::default() };
        let image = encode_jpeg(&Image::new(Size::new(20, 10)), &options).unwrap();
        fs::write(folder.path().join("JPEGImages/a.jpg"), image).unwrap();
        fs::write(folder.path().join("ImageSets/Main/train.txt"), "a\n").unwrap();
        fs::write(folder.path().join("Annotations/a.xml"), format!("<annotation>{annotation}</annotation>")).unwrap();
        let voc = VocFolder::open(folder.path(), "train").unwrap();
        (folder, voc)
    }

    fn read(voc: &VocFolder, names: &[&str]) -> Result<Fields> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (mut sample, want) = (Sample::default(), ReadRequest::IMAGE.without_image().and_fields(&names));
        voc.read(0, &want, &mut sample)?;
        sample.take_found(&want).map(|found| (*found.fields.unwrap()).clone())
    }

    fn object(name: &str, [left, top, right, bottom]: [&str; 4], more: &str) -> String {
        format!(
            "<object><name>{name}</name><bndbox><xmin>{left}</xmin><ymin>{top}</ymin><xmax>{right}</xmax>\
             <ymax>{bottom}</ymax></bndbox>{more}</object>"
        )
    }

    #[test]
    fn boxes_count_from_the_corner_and_difficult_objects_are_an_option() {
        let objects = [
            object("dog", ["1", "1", "20", "10"], "<truncated>1</truncated><difficult>0</difficult>"),
            object("cat", ["3", "4", "3", "4"], "<difficult>1</difficult>"),
            object("cat", ["0", "2.5", "20.5", "4"], ""),
        ];
        let size = "<size><width>20</width><height>10</height><depth>3</depth></size>";
        let (_folder, voc) = opened(&format!("{size}{}", objects.concat()), 1);
        let found = read(&voc, &FIELDS).unwrap();
        assert_eq!(found.boxes().unwrap().rows(), [[0.0, 0.0, 20.0, 10.0], [0.0, 1.5, 20.0, 4.0]]);
        assert_eq!(found.get(LABELS), Some(&Field::Integers(vec![11, 7])));
        assert_eq!(found.get("truncated"), Some(&Field::Integers(vec![1, 0])));
        let all = read(&voc.clone().difficult(true), &FIELDS).unwrap();
        assert_eq!(all.boxes().unwrap().rows()[1], [2.0, 3.0, 3.0, 4.0], "one pixel");
        assert_eq!(all.get("difficult"), Some(&Field::Integers(vec![0, 1, 0])));
        let own = read(&voc.with_classes(["cat", "dog"]), &[LABELS]).unwrap();
        assert_eq!(own.get(LABELS), Some(&Field::Integers(vec![1, 0])));
        assert_eq!(read(&opened("", 1).1, &[BOXES]).unwrap().objects(), 0);
    }

    #[test]
    fn boxes_of_the_upright_image_are_turned_to_the_stored_one() {
        let annotation = |width, height| {
            let size = format!("<size><width>{width}</width><height>{height}</height></size>");
            size + &object("dog", ["1", "1", "4", "2"], "")
        };
        let rows = |annotation: &str, tag| {
            read(&opened(annotation, tag).1, &[BOXES]).map(|found| found.boxes().unwrap().rows()[0])
        };
        assert_eq!(rows(&annotation(10, 20), 6).unwrap(), [0.0, 6.0, 2.0, 10.0]);
        assert_eq!(rows(&annotation(20, 10), 6).unwrap(), [0.0, 0.0, 4.0, 2.0]);
        let error = rows(&annotation(10, 20), 3).unwrap_err().to_string();
        assert!(error.contains("an image of 10 x 20 pixels, which has 20 x 10"), "{error}");
    }

    #[test]
    fn annotations_that_are_wrong_make_their_sample_bad_and_are_named() {
        let second = |object: String| format!("<object><name>dog</name><difficult>1</difficult></object>{object}");
        for (annotation, field, message) in [
            (second(object("zebra", ["1"; 4], "")), LABELS, "object 2 (zebra): its name"),
            (second("<object><name>dog</name></object>".to_owned()), BOXES, "object 2 (dog): it has no bndbox"),
            (second("<object/>".to_owned()), LABELS, "object 2 (without a name)"),
            (second(object("dog", ["5", "1", "3", "2"], "")), BOXES, "object 2 (dog): its bndbox [5.0"),
            (second(object("dog", ["21", "1", "23", "2"], "")), BOXES, "lies outside the image of 20 x 10"),
            (second(object("dog", ["x", "1", "23", "2"], "")), BOXES, "object 2: <xmin> is \"x\""),
            ("<size><width>40</width><height>20</height></size>".to_owned(), BOXES, "an image of 40 x 20 pixels"),
        ] {
            let error = read(&opened(&annotation, 6).1, &[field]).unwrap_err();
            let text = error.to_string();
            assert!(error.is_bad_sample() && text.contains(message) && text.contains("a.xml"), "{message}: {text}");
        }
        let (folder, voc) = opened("", 1);
        fs::remove_file(folder.path().join("Annotations/a.xml")).unwrap();
        let error = read(&voc, &[BOXES]).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains("a.xml"), "{error}");
        assert!(voc.encoded(0).is_ok() && voc.encoded(1).unwrap_err().is_parameter());
    }

    #[test]
    fn lists_have_names_alone() {
        let (folder, _) = opened("", 1);
        let list = folder.path().join("ImageSets/Main/train.txt");
        for (text, line) in [("a\nb -1\n", 2), ("../a\n", 1), ("/a\n", 1)] {
            fs::write(&list, text).unwrap();
            let error = VocFolder::open(folder.path(), "train").unwrap_err();
            assert!(error.is_parameter() && error.to_string().ends_with(&format!("train.txt line {line}")), "{error}");
        }
        fs::write(&list, "a.b\nc.png\n").unwrap();
        let voc = VocFolder::open(folder.path(), "train").unwrap();
        assert_eq!(voc.name(0), folder.path().join("JPEGImages/a.b.jpg").to_string_lossy());
        assert_eq!(voc.annotation_path(0), folder.path().join("Annotations/a.b.xml"));
        assert_eq!(voc.name(1), folder.path().join("JPEGImages/c.png").to_string_lossy());
        assert!(VocFolder::open(folder.path(), "val").unwrap_err().to_string().contains("val.txt"));
    }
}
