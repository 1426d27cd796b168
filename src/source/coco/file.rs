//! The annotation file, read from front to back into rows of fixed length.

use super::segmentation::{Segmentation, Shape};
use crate::error::{Error, Result};
use crate::file::open_with_metadata;
use crate::raster::Size;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::BufReader;
use std::ops::Range;
use std::path::Path;

/// Largest side of an image, in pixels.
const MAX_SIDE_PX: u32 = 65_535;
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
    /// What shapes are made of: for each polygon its length, and its corners in fifths of a pixel; or height, width and
    /// run lengths.
    numbers: Vec<i32>,
    /// x, y and visibility of keypoints.
    points: Vec<f32>,
    /// The numbers of the categories, in order.
    categories: Vec<i64>,
    /// The names of the categories, in this order.
    pub(super) classes: Vec<String>,
    keypoints: usize,
    flip_index: Vec<usize>,
}

/// An image, as the file has it.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) id: i64,
    pub(super) size: Size,
    name: Range<usize>,
    /// The number of its first object.
    first: usize,
}

/// An annotation.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) id: i64,
    /// The image's number in the file; in the end, its place among the images.
    image: i64,
    pub(super) category: i64,
    /// Left, top, width, height.
    pub(super) bbox: Option<[f32; 4]>,
    pub(super) area: f32,
    pub(super) is_crowd: bool,
    pub(super) shape: Shape,
    numbers: u32,
    points: u32,
    numbers_start: usize,
    points_start: usize,
}

impl Annotations {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let wrong = |got: String| {
            let expected = "JSON of COCO's form: images, annotations, categories";
            Error::parameter("CocoFiles::open", "annotations", expected, format!("{}: {got}", path.display()))
        };
        let (file, _) = open_with_metadata(path)?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let written: Written = serde_json::from_reader(reader).map_err(|error| match error.is_io() {
            true => Error::io("read", path)(error.into()),
            false => wrong(error.to_string()),
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
    pub(super) fn label(&self, category: i64) -> Option<u32> {
        self.categories.binary_search(&category).ok().map(|label| label as u32)
    }

    /// What an object's shape is made of.
    pub(super) fn numbers(&self, object: &Object) -> &[i32] {
        &self.numbers[object.numbers_start..][..object.numbers as usize]
    }

    /// x, y and visibility of an object's keypoints; empty if it has none.
    pub(super) fn points(&self, object: &Object) -> &[f32] {
        &self.points[object.points_start..][..object.points as usize]
    }

    /// Number of keypoints of an object, and those that change places in a mirror.
    pub(super) fn keypoints(&self) -> (usize, Vec<usize>) {
        (self.keypoints, self.flip_index.clone())
    }
}

/// The file as it is written. Other entries are skipped.
#[derive(Deserialize)]
struct Written {
    images: WrittenImages,
    #[serde(default)]
    annotations: Objects,
    #[serde(default)]
    categories: Vec<WrittenCategory>,
}

#[derive(Deserialize)]
struct WrittenImage {
    id: i64,
    file_name: Option<String>,
    /// LVIS has this and no file name.
    coco_url: Option<String>,
    width: u32,
    height: u32,
}

#[derive(Deserialize)]
struct WrittenCategory {
    id: i64,
    name: String,
    #[serde(default)]
    keypoints: Vec<String>,
}

#[derive(Deserialize)]
struct WrittenObject {
    id: i64,
    image_id: i64,
    category_id: i64,
    #[serde(default)]
    bbox: Option<Vec<f64>>,
    #[serde(default)]
    area: Option<f64>,
    #[serde(default)]
    iscrowd: Flag,
    #[serde(default)]
    segmentation: Segmentation,
    #[serde(default)]
    keypoints: Vec<f32>,
}

/// 0, 1, false or true.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u8),
            Truth(bool),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Number(number) => Self(number != 0),
            Either::Truth(truth) => Self(truth),
        })
    }
}

#[derive(Default)]
struct WrittenImages {
    images: Vec<Image>,
    names: String,
}

impl<'de> Deserialize<'de> for WrittenImages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        each(deserializer, "a list of images", Self::default(), |all, image: WrittenImage| {
            let WrittenImage { id, file_name, coco_url, width, height } = image;
            let url = coco_url.as_deref().and_then(|url| url.rsplit('/').next());
            let Some(name) = file_name.as_deref().or(url).filter(|name| !name.is_empty()) else {
                return Err(format!("image {id} has no file_name"));
            };
            if !(1..=MAX_SIDE_PX).contains(&width) || !(1..=MAX_SIDE_PX).contains(&height) {
                return Err(format!("image {id} has {width} x {height} pixels"));
            }
            let start = all.names.len();
            all.names.push_str(name);
            let name = start..all.names.len();
            all.images.push(Image { id, size: Size::new(width, height), name, first: 0 });
            Ok(())
        })
    }
}

#[derive(Default)]
struct Objects {
    objects: Vec<Object>,
    numbers: Vec<i32>,
    points: Vec<f32>,
}

impl<'de> Deserialize<'de> for Objects {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        each(deserializer, "a list of annotations", Self::default(), |all, written: WrittenObject| {
            let Segmentation { shape, numbers } = written.segmentation;
            let bbox = written.bbox.and_then(|bbox| <[f64; 4]>::try_from(bbox).ok());
            let too_long = || format!("annotation {} has an outline of too many numbers", written.id);
            all.objects.push(Object {
                id: written.id,
                image: written.image_id,
                category: written.category_id,
                bbox: bbox.map(|bbox| bbox.map(|value| value as f32)),
                area: written.area.unwrap_or(0.0) as f32,
                is_crowd: written.iscrowd.0,
                shape,
                numbers: u32::try_from(numbers.len()).map_err(|_| too_long())?,
                points: u32::try_from(written.keypoints.len()).map_err(|_| too_long())?,
                numbers_start: all.numbers.len(),
                points_start: all.points.len(),
            });
            all.numbers.extend(numbers);
            all.points.extend(written.keypoints);
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
        let Self { images: WrittenImages { mut images, names }, annotations, mut categories } = self;
        let Objects { mut objects, numbers, points } = annotations;
        images.sort_by_key(|image| image.id);
        if let Some(twice) = images.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(format!("image {} is there twice", twice[0].id));
        }
        if images.is_empty() {
            return Err("there is no image".to_owned());
        }
        let mut ids = HashSet::with_capacity(objects.len());
        if let Some(twice) = objects.iter().find(|object| !ids.insert(object.id)) {
            return Err(format!("annotation {} is there twice", twice.id));
        }
        drop(ids);
        for object in &mut objects {
            let place = images.binary_search_by_key(&object.image, |image| image.id);
            let missing = |_| format!("annotation {} is of image {}, which is not there", object.id, object.image);
            object.image = place.map_err(missing)? as i64;
        }
        objects.sort_by_key(|object| object.image);
        objects.shrink_to_fit();
        let mut first = 0;
        for (place, image) in images.iter_mut().enumerate() {
            image.first = first;
            first += objects[first..].iter().take_while(|object| object.image == place as i64).count();
        }
        categories.sort_by_key(|category| category.id);
        if let Some(twice) = categories.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(format!("category {} is there twice", twice[0].id));
        }
        // Categories with keypoints have the same ones in all data sets that are known.
        let named = categories.iter().map(|category| &category.keypoints).find(|names| !names.is_empty());
        let named = named.cloned().unwrap_or_default();
        Ok(Annotations {
            flip_index: flip_index(&named),
            keypoints: named.len(),
            categories: categories.iter().map(|category| category.id).collect(),
            classes: categories.into_iter().map(|category| category.name).collect(),
            images,
            names,
            objects,
            numbers,
            points,
        })
    }
}

/// For each keypoint, the one that it was before the image was mirrored: `left_eye` for `right_eye`.
fn flip_index(names: &[String]) -> Vec<usize> {
    let places: HashMap<&str, usize> = names.iter().enumerate().map(|(i, name)| (&**name, i)).collect();
    let other = |name: &str| {
        let mirrored = match (name.strip_prefix("left_"), name.strip_prefix("right_")) {
            (Some(rest), _) => format!("right_{rest}"),
            (_, Some(rest)) => format!("left_{rest}"),
            _ => return None,
        };
        places.get(&*mirrored).copied()
    };
    names.iter().enumerate().map(|(i, name)| other(name).unwrap_or(i)).collect()
}
