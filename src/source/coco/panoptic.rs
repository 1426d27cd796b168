//! COCO's panoptic annotations: a JSON file of segments, and a PNG for each image.

use super::inside;
use super::loose::{Numbers, PythonJson, Value, entries};
use super::sides;
use crate::decode::{Decoder, Format, Header, probe};
use crate::error::{Error, Result};
use crate::fields::{
    BOXES, BoxFormat, Boxes, Fields, LABELS, MASK, MASKS, Mask, MaskValues, check_objects, empty_plane,
};
use crate::os::file::open_with_metadata;
use crate::os::memory;
use crate::raster::{DEFAULT_MAX_PIXELS, Image, Rect, Size, check_pixels};
use crate::source::frame::Frame;
use crate::source::{ReadRequest, Sample, Source, no_fields, no_such_sample, read_file};
use crate::targets;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The fields that panoptic annotations have.
const FIELDS: [&str; 9] = [BOXES, LABELS, MASKS, MASK, "category_ids", "area", "iscrowd", "isthing", "ids"];
/// The number of pixels that belong to no segment.
const VOID: u32 = 0;

/// Images of a folder with COCO's panoptic annotations: a JSON file, and a folder of PNG files. Samples come in the
/// order of the images' numbers. Crowds (`iscrowd`) are not objects, unless [`crowds`](Self::crowds) asks for them.
///
/// Each segment is an object: of a thing, or all pixels of a kind of stuff. The fields are `boxes` (XYXY), `labels` (0
/// for the category with the lowest number, without COCO's gaps), `category_ids`, `area`, `iscrowd`, `isthing` (1 for a
/// thing, 0 for stuff), `ids`, `masks` (one for each object), and `mask`: the label of each pixel, crowds among them,
/// of 8 bits, or 16 for more than 255 categories. Pixels without a segment, and those that operations bring into view
/// from outside, are the highest number, 255 or 65,535. The size in the file decides whether they refer to the stored
/// image or to the image as its EXIF tag turns it; if both have that size, to the stored one.
///
/// A segment whose category is unknown or whose box lies outside its image, a PNG file that is missing, damaged or of
/// another size, pixels with a number that no segment has, and a segment without pixels make the sample a bad one; the
/// error names file and segment.
///
/// ```
/// use warpfeed::source::{PanopticFiles, Source};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("panoptic_val2017.json");
/// let json = r#"{
///     "images": [{"id": 9, "file_name": "a.jpg", "width": 40, "height": 30}],
///     "annotations": [{"image_id": 9, "file_name": "a.png", "segments_info":
///         [{"id": 1972, "category_id": 184, "iscrowd": 0, "bbox": [0, 0, 40, 30], "area": 1200}]}],
///     "categories": [{"id": 184, "name": "tree-merged", "isthing": 0}]
/// }"#;
/// std::fs::write(&file, json).unwrap();
/// let coco = PanopticFiles::open(folder.path(), &file, file.with_extension(""))?;
/// assert_eq!((coco.len(), coco.classes()), (1, &["tree-merged".to_owned()][..]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PanopticFiles {
    folder: PathBuf,
    masks: PathBuf,
    /// The annotation file, for messages.
    path: PathBuf,
    images: Arc<[Annotated]>,
    /// The numbers of the categories and whether they are things, in order.
    categories: Vec<(i64, bool)>,
    classes: Vec<String>,
    crowds: bool,
}

/// An image with its segments.
#[derive(Debug)]
struct Annotated {
    id: i64,
    size: Size,
    name: String,
    /// The name of the PNG file.
    mask: String,
    segments: Vec<Segment>,
}

#[derive(Debug)]
struct Segment {
    id: u32,
    category: Option<i64>,
    /// Left, top, width, height; NaN where the file has no number.
    bbox: [f32; 4],
    /// NaN if there is none.
    area: f32,
    is_crowd: bool,
    /// A fault that makes the segment, and with it its sample, a bad one.
    fault: Option<&'static str>,
}

impl From<WrittenSegment> for Segment {
    fn from(written: WrittenSegment) -> Self {
        let WrittenSegment { id, category_id, bbox, area, iscrowd } = written;
        let id = id.whole().and_then(|id| u32::try_from(id).ok());
        let bbox = match bbox {
            Value::List(Numbers::All(bbox)) => <[f64; 4]>::try_from(bbox).ok(),
            _ => None,
        };
        let crowd = match iscrowd {
            Value::Missing | Value::Null => Some(0.0),
            value => value.number().filter(|crowd| [0.0, 1.0].contains(crowd)),
        };
        let fault = match () {
            () if id.is_none() => Some("its id is missing, or no whole number of 24 bits"),
            () if crowd.is_none() => Some("its iscrowd is not 0 or 1"),
            () => None,
        };
        Self {
            id: id.unwrap_or(VOID),
            category: category_id.whole(),
            bbox: bbox.map_or([f32::NAN; 4], |bbox| bbox.map(|value| value as f32)),
            area: area.number().map_or(f32::NAN, |area| area as f32),
            is_crowd: crowd == Some(1.0),
            fault,
        }
    }
}

entries! {
    struct WrittenSegment("an object for each segment") {
        id: Value,
        category_id: Value,
        bbox: Value,
        area: Value,
        iscrowd: Value,
    }
}

/// The file as it is written. Other entries are skipped.
#[derive(Deserialize)]
struct Written {
    images: Vec<WrittenImage>,
    annotations: Vec<WrittenAnnotation>,
    categories: Vec<WrittenCategory>,
}

entries! {
    struct WrittenImage("an object for each image") {
        id: Value,
        file_name: Value,
        width: Value,
        height: Value,
    }
}

entries! {
    struct WrittenAnnotation("an object for each image's annotation") {
        image_id: Value,
        file_name: Value,
        segments_info: Vec<WrittenSegment>,
    }
}

entries! {
    struct WrittenCategory("an object for each category") {
        id: Value,
        name: Value,
        isthing: Value,
    }
}

impl PanopticFiles {
    /// Reads the annotations of `path`. Their images are below `folder`, and the PNG files below `masks`; neither are
    /// opened. COCO's PNG files of `panoptic_val2017.json` are in the folder `panoptic_val2017` next to it.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Parameter`] if it is not JSON of this form, has no image, has
    /// an image, a category or an image's annotation twice, or not as many annotations as images.
    pub fn open(folder: impl AsRef<Path>, path: impl AsRef<Path>, masks: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let wrong = |got: String| {
            let expected = "JSON of COCO's panoptic form: images, annotations with segments_info, categories";
            Error::parameter("PanopticFiles::open", "annotations", expected, format!("{}: {got}", path.display()))
        };
        let (file, _) = open_with_metadata(&path)?;
        let reader = BufReader::new(PythonJson::new(file));
        let written: Written = serde_json::from_reader(reader).map_err(|error| match error.io_error_kind() {
            Some(kind) if kind != ErrorKind::InvalidData => Error::io("read", &path)(error.into()),
            _ => wrong(error.to_string()),
        })?;
        let Written { images, annotations, categories } = written;
        let images = settle(images, annotations).map_err(wrong)?;
        let category = |WrittenCategory { id, name, isthing }: WrittenCategory| match (id.whole(), name) {
            (Some(id), Value::Text(name)) => {
                let isthing = if isthing == Value::Missing { Some(0.0) } else { isthing.number() };
                let isthing = isthing.filter(|isthing| [0.0, 1.0].contains(isthing));
                let isthing = isthing.ok_or_else(|| wrong(format!("category {id}: its isthing is not 0 or 1")))?;
                Ok((id, isthing == 1.0, name))
            }
            (id, name) => Err(wrong(format!("a category has the id {id:?} and the name {name:?}"))),
        };
        let mut categories = categories.into_iter().map(category).collect::<Result<Vec<_>>>()?;
        categories.sort();
        categories.dedup();
        if let Some(twice) = categories.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(wrong(format!("category {} is there twice", twice[0].0)));
        }
        let numbers = categories.iter().map(|(id, isthing, _)| (*id, *isthing)).collect();
        let classes = categories.into_iter().map(|(.., name)| name).collect();
        let (folder, masks) = (folder.as_ref().to_owned(), masks.as_ref().to_owned());
        Ok(Self { folder, masks, path, images: images.into(), categories: numbers, classes, crowds: false })
    }

    /// Sets whether crowds are objects too. Default: false.
    #[must_use]
    pub fn crowds(mut self, crowds: bool) -> Self {
        self.crowds = crowds;
        self
    }

    fn wrong(&self, field: &str, message: impl std::fmt::Display) -> Error {
        targets::wrong(Some(field), format!("{}: {message}", self.path.display()))
    }

    /// The label of each segment.
    fn labels(&self, segments: &[Segment]) -> Result<Vec<u16>, String> {
        let label = |segment: &Segment| {
            let find = |category: i64| self.categories.binary_search_by_key(&category, |(id, _)| *id).ok();
            let unknown = || match segment.category {
                Some(category) => format!("segment {}: category {category} is none of the file's", segment.id),
                None => format!("segment {}: its category_id is missing, or no whole number", segment.id),
            };
            let label = segment.category.and_then(find).and_then(|label| u16::try_from(label).ok());
            label.ok_or_else(unknown)
        };
        segments.iter().map(label).collect()
    }

    /// The wanted fields of an image with this header.
    fn fields_of(&self, image: &Annotated, header: &Header, names: &[String]) -> Result<Fields> {
        let [first, ..] = names else { return Ok(Fields::new()) };
        let of_image = |message: &str| self.wrong(first, format!("image {}: {message}", image.id));
        let frame = Frame::of(header, image.size).map_err(|message| of_image(&message))?;
        check_pixels(header.size, DEFAULT_MAX_PIXELS)?;
        let all = &image.segments[..];
        if let Some((segment, fault)) = all.iter().find_map(|segment| Some((segment, segment.fault?))) {
            return Err(of_image(&format!("segment {}: {fault}", segment.id)));
        }
        let objects: Vec<usize> = (0..all.len()).filter(|i| self.crowds || !all[*i].is_crowd).collect();
        let numbers = |of: &dyn Fn(usize) -> i64| objects.iter().map(|i| of(*i)).collect::<Vec<i64>>();
        let labels = |name: &str| {
            let bad = |message: String| self.wrong(name, format!("image {}: {message}", image.id));
            self.labels(all).map_err(bad)
        };
        let wants = |wanted: &[&str]| names.iter().any(|name| wanted.contains(&&**name));
        let pixels = if wants(&[MASK, MASKS]) { self.pixels(image)? } else { Vec::new() };
        let mut fields = Fields::new();
        for name in names {
            match &**name {
                BOXES => {
                    let rows = objects.iter().map(|i| all[*i].bbox).collect();
                    let boxes = Boxes::new(BoxFormat::Xywh, rows).to(BoxFormat::Xyxy);
                    let bad = |message: String| self.wrong(name, format!("image {}: {message}", image.id));
                    boxes.check(image.size).map_err(bad)?;
                    fields.insert(BOXES, boxes)?;
                }
                LABELS => {
                    let labels = labels(name)?;
                    fields.insert(LABELS, numbers(&|i| labels[i].into()))?;
                }
                "isthing" => {
                    let labels = labels(name)?;
                    fields.insert("isthing", numbers(&|i| self.categories[usize::from(labels[i])].1.into()))?;
                }
                MASKS => {
                    check_objects(objects.len(), image.size)?;
                    let plane = |i: &usize| {
                        let mut plane = empty_plane(image.size)?;
                        plane.iter_mut().zip(&pixels).for_each(|(to, own)| *to = u8::from(*own == *i as u32 + 1));
                        Ok(plane)
                    };
                    let planes = objects.iter().map(plane).collect::<Result<Vec<_>>>()?;
                    fields.insert(MASKS, Mask::of_objects(image.size, planes)?)?;
                }
                MASK => {
                    let labels = labels(name)?;
                    let label = |own: &u32| own.checked_sub(1).map(|i| labels[i as usize]);
                    let (values, ignored): (MaskValues, u16) = if self.classes.len() <= 255 {
                        let values = pixels.iter().map(|own| label(own).map_or(255, |label| label as u8));
                        (values.collect::<Vec<u8>>().into(), 255)
                    } else {
                        let values = pixels.iter().map(|own| label(own).unwrap_or(u16::MAX));
                        (values.collect::<Vec<u16>>().into(), u16::MAX)
                    };
                    fields.insert(MASK, Mask::new(image.size, values)?.with_fill(ignored))?;
                }
                "category_ids" => {
                    labels(name)?;
                    fields.insert("category_ids", numbers(&|i| all[i].category.unwrap_or_default()))?;
                }
                "iscrowd" => fields.insert("iscrowd", numbers(&|i| all[i].is_crowd.into()))?,
                "ids" => fields.insert("ids", numbers(&|i| all[i].id.into()))?,
                "area" => {
                    let area = |i: &usize| {
                        let Segment { id, area, .. } = all[*i];
                        let wrong = || of_image(&format!("segment {id}: its area is missing, or no finite number"));
                        Some(area).filter(|area| area.is_finite()).ok_or_else(wrong)
                    };
                    fields.insert("area", objects.iter().map(area).collect::<Result<Vec<_>>>()?)?;
                }
                _ => {}
            }
        }
        frame.to_stored(fields)
    }

    /// For each pixel the number of its segment, counted from 1; 0 if it belongs to none.
    fn pixels(&self, image: &Annotated) -> Result<Vec<u32>> {
        let path = inside(&self.masks, &image.mask);
        let path =
            path.ok_or_else(|| self.wrong(MASK, format!("a file_name leads out of the folder: {:?}", image.mask)))?;
        let wrong = |message: String| targets::wrong(Some(MASK), format!("{}: {message}", path.display()));
        let mut buffer = Vec::new();
        let bytes = read_file(&path, &mut buffer)?;
        let header = probe(bytes).map_err(|error| wrong(error.to_string()))?;
        if header.format != Format::Png || header.components != 3 || header.precision_bits != 8 {
            return Err(wrong("it is no PNG file with 8 bits of red, green and blue".to_owned()));
        }
        if header.size != image.size {
            return Err(wrong(format!("it has {} pixels, and image {} has {}", header.size, image.id, image.size)));
        }
        check_pixels(header.size, DEFAULT_MAX_PIXELS)?;
        let mut decoded = Image::default();
        let whole = Rect::full(header.size);
        Decoder::new()?.decode(bytes, &header, whole, false, &mut decoded).map_err(|error| wrong(error.to_string()))?;
        let numbers = image.segments.iter().map(|segment| segment.id).zip(1..);
        let mut numbers: HashMap<u32, u32> = numbers.collect();
        numbers.insert(VOID, 0);
        let mut seen = vec![false; image.segments.len() + 1];
        let (mut last, mut pixels) = ((VOID, 0), Vec::new());
        memory::reserve(&mut pixels, decoded.pixels().len(), "a mask", memory::FEWER_IMAGES)?;
        for &[red, green, blue, _] in decoded.pixels() {
            let id = u32::from_le_bytes([red, green, blue, 0]);
            if id != last.0 {
                let unknown =
                    || wrong(format!("a pixel has the number {id}, which no segment of image {} has", image.id));
                last = (id, *numbers.get(&id).ok_or_else(unknown)?);
            }
            seen[last.1 as usize] = true;
            pixels.push(last.1);
        }
        match image.segments.iter().zip(&seen[1..]).find(|(_, seen)| !**seen) {
            Some((segment, _)) => Err(wrong(format!("segment {} of image {} has no pixel", segment.id, image.id))),
            None => Ok(pixels),
        }
    }
}

/// Joins images and their annotations, in the order of the images' numbers.
fn settle(images: Vec<WrittenImage>, annotations: Vec<WrittenAnnotation>) -> Result<Vec<Annotated>, String> {
    let mut found = HashMap::with_capacity(annotations.len());
    let text = |value: Value| if let Value::Text(text) = value { text } else { String::new() };
    for annotation in annotations {
        let id = annotation.image_id.whole().ok_or("an annotation has no image_id")?;
        if found.insert(id, annotation).is_some() {
            return Err(format!("image {id} has two annotations"));
        }
    }
    let mut all = Vec::with_capacity(images.len());
    for WrittenImage { id, file_name: name, width, height } in images {
        let id = id.whole().ok_or("an image has no whole number as its id")?;
        let size = sides(&width, &height).ok_or_else(|| format!("image {id} has no width and height above 0"))?;
        let annotation = found.remove(&id).ok_or_else(|| format!("image {id} is there twice, or has no annotation"))?;
        let WrittenAnnotation { file_name: mask, segments_info, .. } = annotation;
        let mut segments: Vec<Segment> = segments_info.into_iter().map(Segment::from).collect();
        let mut ids: Vec<u32> = segments.iter().map(|segment| segment.id).collect();
        ids.sort_unstable();
        let twice: Vec<u32> = ids.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        for segment in segments.iter_mut().filter(|segment| segment.id == VOID || twice.contains(&segment.id)) {
            segment.fault.get_or_insert("its id is 0, or that of another segment of the image");
        }
        all.push(Annotated { id, size, name: text(name), mask: text(mask), segments });
    }
    if let Some(id) = found.keys().next() {
        return Err(format!("an annotation is of image {id}, which is not there"));
    }
    if all.is_empty() {
        return Err("there is no image".to_owned());
    }
    all.sort_by_key(|image| image.id);
    Ok(all)
}

impl Source for PanopticFiles {
    fn len(&self) -> u64 {
        self.images.len() as u64
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let found = usize::try_from(index).ok().and_then(|i| self.images.get(i));
        let image = found.ok_or_else(|| no_such_sample("PanopticFiles::read", index, self.len()))?;
        if let Some(field) = want.target {
            return Err(no_fields("no targets", field));
        }
        // The size of the image is in its header.
        if want.image || !want.fields.is_empty() {
            let path = inside(&self.folder, &image.name);
            let leads_out = || self.wrong(BOXES, format!("a file_name leads out of the folder: {:?}", image.name));
            read_file(&path.ok_or_else(leads_out)?, sample.buffer())?;
        }
        if !want.fields.is_empty() {
            let header = probe(sample.bytes())?;
            sample.set_fields(self.fields_of(image, &header, want.fields)?);
        }
        Ok(())
    }

    fn image_file(&self, index: u64) -> Option<PathBuf> {
        inside(&self.folder, &self.images.get(usize::try_from(index).ok()?)?.name)
    }

    /// `None`: objects have labels, and images have none.
    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.folder.join(&self.images[index as usize].name).to_string_lossy().into_owned().into()
    }

    /// The names of the categories, by the field `labels`.
    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn checked_fields(&self) -> Vec<String> {
        [BOXES, LABELS, MASK].map(str::to_owned).into()
    }

    fn check_field(&self, field: &str) -> Result<()> {
        if FIELDS.contains(&field) { Ok(()) } else { Err(no_fields(FIELDS.join(", "), field)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode_png;
    use crate::fields::Field;
    use std::fs;

    /// A folder with one image of 4 x 2 pixels, whose PNG file has these numbers, and these segments.
    fn opened(numbers: [u32; 8], segments: &str) -> (tempfile::TempDir, Result<PanopticFiles>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("panoptic.json");
        fs::create_dir(folder.path().join("panoptic")).unwrap();
        let mut image = Image::new(Size::new(4, 2));
        for (pixel, number) in image.pixels_mut().iter_mut().zip(numbers) {
            let [red, green, blue, _] = number.to_le_bytes();
            *pixel = [red, green, blue, 255];
        }
        fs::write(folder.path().join("panoptic/a.png"), encode_png(&image).unwrap()).unwrap();
        fs::write(folder.path().join("a.jpg"), encode_png(&image).unwrap()).unwrap();
        let json = format!(
            r#"{{"images": [{{"id": 5, "file_name": "a.jpg", "width": 4, "height": 2}}],
            "annotations": [{{"image_id": 5, "file_name": "a.png", "segments_info": [{segments}]}}],
            "categories": [{{"id": 200, "name": "sky", "isthing": 0}}, {{"id": 3, "name": "car", "isthing": 1}}]}}"#
        );
        fs::write(&file, json).unwrap();
        let coco = PanopticFiles::open(folder.path(), &file, file.with_extension(""));
        (folder, coco)
    }

    fn segment(id: u32, category: i64, crowd: u8) -> String {
        format!(r#"{{"id": {id}, "category_id": {category}, "iscrowd": {crowd}, "bbox": [0, 0, 2, 1], "area": 2}}"#)
    }

    fn read(coco: &PanopticFiles, names: &[&str]) -> Result<Fields> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (mut sample, want) = (Sample::default(), ReadRequest::IMAGE.without_image().and_fields(&names));
        coco.read(0, &want, &mut sample)?;
        sample.take_found(&want).map(|found| (*found.fields.unwrap()).clone())
    }

    fn planes(fields: &Fields, name: &str) -> Vec<Vec<u8>> {
        let Some(Field::Mask(mask)) = fields.get(name) else { panic!("{fields:?}") };
        let plane = |plane: &Arc<MaskValues>| match &**plane {
            MaskValues::U8(values) => values.clone(),
            MaskValues::U16(_) => panic!("{mask:?}"),
        };
        mask.planes().iter().map(plane).collect()
    }

    #[test]
    fn colors_are_numbers_of_segments() {
        // R + 256 G + 65536 B.
        let (a, b, c) = (1 + 256 * 2 + 65_536 * 3, 255 + 256 * 255 + 65_536 * 255, 65_536);
        let segments = [segment(a, 3, 0), segment(b, 200, 0), segment(c, 3, 1)].join(",");
        let (_folder, coco) = opened([a, a, b, b, 0, a, c, b], &segments);
        let coco = coco.unwrap();
        assert_eq!((coco.classes(), coco.len()), (&["car".to_owned(), "sky".to_owned()][..], 1));
        let found = read(&coco, &FIELDS).unwrap();
        assert_eq!(planes(&found, MASKS), [[1, 1, 0, 0, 0, 1, 0, 0], [0, 0, 1, 1, 0, 0, 0, 1]]);
        assert_eq!(planes(&found, MASK), [[0, 0, 1, 1, 255, 0, 0, 1]], "crowds have a class, void has none");
        assert_eq!(found.boxes().unwrap().rows(), [[0.0, 0.0, 2.0, 1.0]; 2]);
        for (name, want) in [
            (LABELS, vec![0, 1]),
            ("category_ids", vec![3, 200]),
            ("isthing", vec![1, 0]),
            ("iscrowd", vec![0, 0]),
            ("ids", vec![i64::from(a), i64::from(b)]),
        ] {
            assert_eq!(found.get(name), Some(&Field::Integers(want)), "{name}");
        }
        let all = read(&coco.crowds(true), &[MASKS, "iscrowd"]).unwrap();
        assert_eq!((planes(&all, MASKS).len(), all.get("iscrowd")), (3, Some(&Field::Integers(vec![0, 0, 1]))));
    }

    #[test]
    fn annotations_that_are_wrong_make_their_sample_bad_or_are_refused() {
        let outside = segment(1, 3, 0).replace("[0, 0", "[5, 0");
        for (numbers, segments, name, message) in [
            ([1, 1, 1, 1, 1, 1, 1, 2], segment(1, 3, 0), MASK, "the number 2, which no segment of image 5"),
            ([1; 8], [segment(1, 3, 0), segment(2, 3, 0)].join(","), MASKS, "segment 2 of image 5 has no pixel"),
            ([1; 8], segment(1, 4, 0), LABELS, "segment 1: category 4"),
            ([1; 8], outside, BOXES, "outside the image"),
            ([1; 8], segment(1, 3, 0).replace("[0, 0", "[NaN, 0"), BOXES, "is no box"),
            ([1; 8], segment(1, 3, 7), BOXES, "segment 1: its iscrowd is not 0 or 1"),
        ] {
            let (_folder, coco) = opened(numbers, &segments);
            let error = read(&coco.unwrap(), &[name]).unwrap_err();
            assert!(error.is_bad_sample() && error.to_string().contains(message), "{message}: {error}");
        }
        let (folder, coco) = opened([1; 8], &segment(1, 3, 0));
        let (coco, png) = (coco.unwrap(), folder.path().join("panoptic/a.png"));
        let gray = Mask::new(Size::new(4, 2), vec![1_u8; 8]).unwrap().to_png(0).unwrap();
        for (bytes, message) in [
            (gray, "red, green and blue"),
            (encode_png(&Image::new(Size::new(2, 4))).unwrap(), "2 x 4 pixels"),
            (b"no image".to_vec(), "a.png"),
        ] {
            fs::write(&png, bytes).unwrap();
            let error = read(&coco, &[MASK]).unwrap_err();
            assert!(error.is_bad_sample() && error.to_string().contains(message), "{message}: {error}");
        }
        fs::remove_file(&png).unwrap();
        assert!(read(&coco, &[MASK]).unwrap_err().is_bad_sample() && read(&coco, &[BOXES]).is_ok());
        let (folder, coco) = opened([1; 8], &[segment(1, 3, 0), segment(1, 3, 0)].join(","));
        let error = read(&coco.unwrap(), &[BOXES]).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains("segment 1: its id is 0, or that of"), "{error}");
        let file = folder.path().join("panoptic.json");
        let open = || PanopticFiles::open(folder.path(), &file, folder.path()).unwrap_err();
        let text = fs::read_to_string(&file).unwrap().replace("\"image_id\": 5", "\"image_id\": 6");
        fs::write(&file, text).unwrap();
        assert!(open().is_parameter() && open().to_string().contains("image 5"), "{}", open());
    }
}
