//! The annotation file, read from front to back into rows of fixed length.
//!
//! A fault of an image or an annotation makes its sample a bad one. The file is refused if classes contradict each
//! other or an annotation names no image.

use super::ids::{Id, Ids};
use super::keypoints::flip_index;
use super::loose::{Numbers, PythonJson, Value, entries};
use super::segmentation::{Segmentation, Shape};
use super::sides;
use crate::error::{Error, Result};
use crate::os::file::open_with_metadata;
use crate::raster::Size;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::io::{BufReader, ErrorKind};
use std::ops::Range;
use std::path::Path;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// The annotations of all images.
#[derive(Debug)]
pub(super) struct Annotations {
    /// In the order of their numbers.
    pub(super) images: Vec<Image>,
    names: String,
    /// In the order of their images, and of the file.
    objects: Vec<Object>,
    /// Numbers that shapes consist of: for each polygon its length, and its corners in fifths of a pixel; or height,
    /// width and run lengths.
    numbers: Vec<i32>,
    /// x, y and visibility of keypoints.
    points: Vec<f32>,
    /// The numbers of the categories, in order.
    categories: Vec<Id>,
    /// The names of the categories, in this order.
    pub(super) classes: Vec<String>,
    /// The texts among all numbers.
    pub(super) ids: Ids,
    keypoints: usize,
    flip_index: Vec<usize>,
    /// Oddities of the file that are not faults of a sample.
    pub(super) warnings: Vec<String>,
    /// Description of unknown sides of keypoints.
    pub(super) unknown_sides: Option<String>,
}

/// An image, as the file has it.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) id: Id,
    pub(super) size: Stated,
    name: Range<usize>,
    /// A fault that makes every read of the image an error.
    pub(super) fault: Option<&'static str>,
    /// The number of its first object.
    first: usize,
}

/// The size that the file states for an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stated {
    Missing,
    Of(Size),
    /// Width and height are not two whole numbers above 0.
    Wrong,
}

/// An annotation.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) id: Id,
    /// The image's number in the file; in the end, its place among the images.
    image: Id,
    pub(super) category: Id,
    /// Left, top, width, height.
    pub(super) bbox: Option<[f32; 4]>,
    /// NaN if there is none.
    pub(super) area: f32,
    pub(super) is_crowd: bool,
    pub(super) fault: Fault,
    pub(super) shape: Shape,
    numbers: u32,
    /// Number of values of keypoints.
    points: u32,
    numbers_start: usize,
    points_start: usize,
}

/// A fault that makes an annotation, and with it its sample, a bad one, whichever fields are requested.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    None,
    NoId,
    Twice,
    Crowd,
    /// The image's number is a text here and a number there.
    OtherKind,
}

impl Fault {
    /// The field and its fault.
    pub(super) fn message(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::NoId => "its id is missing, or neither a number nor a text",
            Self::Twice => "its id is also that of another annotation",
            Self::Crowd => "its iscrowd is not 0 or 1",
            Self::OtherKind => "its image_id is a text where the image's id is a number, or the other way round",
        })
    }
}

/// Number of values for keypoints that are not a list of numbers.
const NO_POINTS: u32 = u32::MAX;

impl Annotations {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let wrong = |got: String| {
            let expected = "JSON of COCO's form: images, annotations, categories";
            Error::parameter("CocoFiles::open", "annotations", expected, format!("{}: {got}", path.display()))
        };
        let (file, _) = open_with_metadata(path)?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, PythonJson::new(file));
        let written: Written = serde_json::from_reader(reader).map_err(|error| match error.io_error_kind() {
            Some(kind) if kind != ErrorKind::InvalidData => Error::io("read", path)(error.into()),
            _ => wrong(error.to_string()),
        })?;
        written.settle().map_err(wrong)
    }

    pub(super) fn objects_of(&self, image: u32) -> &[Object] {
        let start = self.images[image as usize].first;
        let end = self.images.get(image as usize + 1).map_or(self.objects.len(), |next| next.first);
        &self.objects[start..end]
    }

    pub(super) fn name(&self, image: u32) -> &str {
        &self.names[self.images[image as usize].name.clone()]
    }

    /// The label of a category: its place in the order of the categories' numbers.
    pub(super) fn label(&self, category: Id) -> Option<u32> {
        let place = self.categories.binary_search_by(|own| self.ids.compare(*own, category));
        place.ok().filter(|_| category != Id::NONE).map(|label| label as u32)
    }

    /// The numbers that an object's shape consists of.
    pub(super) fn numbers(&self, object: &Object) -> &[i32] {
        &self.numbers[object.numbers_start..][..object.numbers as usize]
    }

    /// x, y and visibility of an object's keypoints; empty if it has none, `None` if they are not a list of numbers.
    pub(super) fn points(&self, object: &Object) -> Option<&[f32]> {
        (object.points != NO_POINTS).then(|| &self.points[object.points_start..][..object.points as usize])
    }

    /// Number of keypoints of an object, and those that change places in a mirror.
    pub(super) fn keypoints(&self) -> (usize, Vec<usize>) {
        (self.keypoints, self.flip_index.clone())
    }
}

entries! {
    /// The file as it is written.
    struct Written("an object with images, annotations and categories") {
        images: WrittenImages,
        annotations: Objects,
        categories: Categories,
    }
}

entries! {
    struct WrittenImage("an object for each image") {
        id: Value,
        file_name: Value,
        /// LVIS has this and no file name.
        coco_url: Value,
        width: Value,
        height: Value,
    }
}

entries! {
    struct WrittenCategory("an object for each category") {
        id: Value,
        name: Value,
        keypoints: serde_json::Value,
    }
}

entries! {
    struct WrittenObject("an object for each annotation") {
        id: Value,
        image_id: Value,
        category_id: Value,
        bbox: Value,
        area: Value,
        iscrowd: Value,
        segmentation: Segmentation,
        keypoints: Value,
    }
}

#[derive(Default)]
struct WrittenImages {
    images: Vec<Image>,
    names: String,
    ids: Ids,
}

impl<'de> Deserialize<'de> for WrittenImages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        each(deserializer, "a list of images", Self::default(), |all, image: WrittenImage| {
            let WrittenImage { id, file_name, coco_url, width, height } = image;
            let id = all.ids.of(&id);
            let name = match (&file_name, &coco_url) {
                (Value::Text(name), _) if !name.is_empty() => name,
                (Value::Missing | Value::Null, Value::Text(url)) => url.rsplit('/').next().unwrap_or(""),
                _ => "",
            };
            let fault = match () {
                () if id == Id::NONE => Some("its id is missing, or neither a number nor a text"),
                () if name.is_empty() => Some("its file_name is missing, or no text"),
                () => None,
            };
            let start = all.names.len();
            all.names.push_str(name);
            let size = match sides(&width, &height) {
                Some(size) => Stated::Of(size),
                None if [&width, &height].iter().all(|side| matches!(side, Value::Missing | Value::Null)) => {
                    Stated::Missing
                }
                None => Stated::Wrong,
            };
            all.images.push(Image { id, size, name: start..all.names.len(), fault, first: 0 });
            Ok(())
        })
    }
}

#[derive(Default)]
struct Objects {
    objects: Vec<Object>,
    numbers: Vec<i32>,
    points: Vec<f32>,
    ids: Ids,
}

impl<'de> Deserialize<'de> for Objects {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        each(deserializer, "a list of annotations", Self::default(), |all, written: WrittenObject| {
            let Segmentation { shape, numbers } = written.segmentation;
            let [id, image, category] =
                [&written.id, &written.image_id, &written.category_id].map(|value| all.ids.of(value));
            if image == Id::NONE {
                let message = "has no image_id: nothing says which image lacks it. Remove it, or name its image";
                return Err(format!("annotation {} {message}", all.ids.show(id)));
            }
            let (is_crowd, fault) = match &written.iscrowd {
                Value::Missing | Value::Null => (false, Fault::None),
                value => match value.number() {
                    Some(0.0) => (false, Fault::None),
                    Some(1.0) => (true, Fault::None),
                    _ => (false, Fault::Crowd),
                },
            };
            let bbox = match &written.bbox {
                Value::List(Numbers::All(bbox)) => <[f64; 4]>::try_from(&bbox[..]).ok(),
                _ => None,
            };
            let points = match written.keypoints {
                Value::Missing | Value::Null => Some(Vec::new()),
                Value::List(Numbers::All(points)) => Some(points),
                _ => None,
            };
            let too_long = || format!("annotation {} has an outline of too many numbers", all.ids.show(id));
            let points_len = points.as_ref().map_or(Ok(NO_POINTS), |points| u32::try_from(points.len()));
            all.objects.push(Object {
                id,
                image,
                category,
                bbox: bbox.map(|bbox| bbox.map(|value| value as f32)),
                area: written.area.number().map_or(f32::NAN, |area| area as f32),
                is_crowd,
                fault: if id == Id::NONE { Fault::NoId } else { fault },
                shape,
                numbers: u32::try_from(numbers.len()).map_err(|_| too_long())?,
                points: points_len.map_err(|_| too_long())?,
                numbers_start: all.numbers.len(),
                points_start: all.points.len(),
            });
            all.numbers.extend(numbers);
            all.points.extend(points.unwrap_or_default().into_iter().map(|value| value as f32));
            Ok(())
        })
    }
}

#[derive(Default)]
struct Categories {
    categories: Vec<Category>,
    ids: Ids,
}

/// A category, as the file has it.
#[derive(PartialEq)]
struct Category {
    id: Id,
    name: String,
    keypoints: Vec<String>,
}

impl<'de> Deserialize<'de> for Categories {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        each(deserializer, "a list of categories", Self::default(), |all, category: WrittenCategory| {
            let id = all.ids.of(&category.id);
            let name = match category.name {
                Value::Text(name) => name,
                _ => return Err(format!("category {} has no name", all.ids.show(id))),
            };
            if id == Id::NONE {
                return Err(format!("category {name:?} has no id"));
            }
            let text = |name: &serde_json::Value| name.as_str().map_or_else(|| name.to_string(), str::to_owned);
            let keypoints = category.keypoints.as_array().map(|names| names.iter().map(text).collect());
            all.categories.push(Category { id, name, keypoints: keypoints.unwrap_or_default() });
            Ok(())
        })
    }
}

/// Adds each row of a list to `all`, so that the list itself is never in memory.
fn each<'de, D: Deserializer<'de>, R: Deserialize<'de>, T>(
    deserializer: D,
    expected: &'static str,
    all: T,
    add: impl FnMut(&mut T, R) -> Result<(), String>,
) -> Result<T, D::Error> {
    struct Rows<T, F, R>(&'static str, T, F, std::marker::PhantomData<R>);

    impl<'de, T, R: Deserialize<'de>, F: FnMut(&mut T, R) -> Result<(), String>> Visitor<'de> for Rows<T, F, R> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<T, A::Error> {
            while let Some(row) = seq.next_element()? {
                (self.2)(&mut self.1, row).map_err(de::Error::custom)?;
            }
            Ok(self.1)
        }
    }

    deserializer.deserialize_seq(Rows(expected, all, add, std::marker::PhantomData))
}

impl Written {
    /// Puts images, objects and categories in order, and checks that their numbers fit each other.
    fn settle(self) -> Result<Annotations, String> {
        let Self { images: WrittenImages { mut images, names, mut ids }, annotations, categories } = self;
        let Objects { mut objects, numbers, points, ids: of_objects } = annotations;
        let Categories { mut categories, ids: of_categories } = categories;
        let (of_objects, of_categories) = (ids.join(of_objects), ids.join(of_categories));
        images.sort_by(|a, b| ids.compare(a.id, b.id));
        // Of equal rows one counts.
        images.dedup_by(|image, before| {
            let same = image.id == before.id && image.id != Id::NONE;
            if same && (image.size != before.size || names[image.name.clone()] != names[before.name.clone()]) {
                before.fault = Some("its id is also that of another image");
            }
            same
        });
        if images.is_empty() {
            return Err("there is no image".to_owned());
        }
        let mut warnings = Vec::new();
        let (all, mut lost) = (objects.len(), None);
        let place = |id: Id| images.binary_search_by(|image| ids.compare(image.id, id)).ok().filter(|_| id != Id::NONE);
        objects.retain_mut(|object| {
            [object.id, object.image, object.category] = [object.id, object.image, object.category].map(&of_objects);
            let mut own = place(object.image);
            if own.is_none() {
                own = ids.of_other_kind(object.image).and_then(place);
                object.fault = Fault::OtherKind;
            }
            match own {
                Some(place) => object.image = Id::at(place),
                None => drop(lost.get_or_insert((object.id, object.image))),
            }
            own.is_some()
        });
        if let Some((id, image)) = lost {
            let (id, image, lost) = (ids.show(id), ids.show(image), all - objects.len());
            let them = format!("{lost} of {all} annotations are of images that are not among the file's");
            let such = format!("such as annotation {id} of image {image}");
            if objects.is_empty() {
                return Err(format!("{them}, {such}"));
            }
            warnings.push(format!("{them} and are left out, {such}"));
        }
        mark_twice(&mut objects);
        objects.sort_by_key(|object| object.image.number());
        objects.shrink_to_fit();
        let mut first = 0;
        for (place, image) in images.iter_mut().enumerate() {
            image.first = first;
            first += objects[first..].iter().take_while(|object| object.image == Id::at(place)).count();
        }
        categories.iter_mut().for_each(|category| category.id = of_categories(category.id));
        categories.sort_by(|a, b| ids.compare(a.id, b.id));
        categories.dedup();
        if let Some(twice) = categories.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(format!("category {} is there twice, and differs", ids.show(twice[0].id)));
        }
        // Categories with keypoints have the same ones in all data sets that are known.
        let all_named: Vec<_> =
            categories.iter().map(|category| &category.keypoints).filter(|names| !names.is_empty()).collect();
        let named: Vec<String> = all_named.first().map_or_else(Vec::new, |names| (*names).clone());
        let sides = flip_index(&named);
        let differ = |names: &&Vec<String>| names.len() == named.len() && flip_index(names).pairs != sides.pairs;
        let unknown_sides = match all_named.iter().copied().any(|names| differ(&names)) {
            true => {
                Some("categories have keypoints with other sides: a mirror exchanges those of the first".to_owned())
            }
            false => sides.warning,
        };
        Ok(Annotations {
            flip_index: sides.pairs,
            keypoints: named.len(),
            categories: categories.iter().map(|category| category.id).collect(),
            classes: categories.into_iter().map(|category| category.name).collect(),
            ids,
            images,
            names,
            objects,
            numbers,
            points,
            warnings,
            unknown_sides,
        })
    }
}

/// Marks the annotations whose number another one has.
fn mark_twice(objects: &mut [Object]) {
    let mut ids = HashSet::with_capacity(objects.len());
    let twice: HashSet<Id> = objects.iter().map(|object| object.id).filter(|id| !ids.insert(*id)).collect();
    drop(ids);
    if !twice.is_empty() {
        let theirs = objects.iter_mut().filter(|object| object.fault == Fault::None && twice.contains(&object.id));
        theirs.for_each(|object| object.fault = Fault::Twice);
    }
}
