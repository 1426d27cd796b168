//! The annotation file, read from front to back into rows of fixed length.

use super::outline::fifths;
use super::runs::decompress;
use crate::error::{Error, Result};
use crate::file::open_with_metadata;
use crate::raster::Size;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
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

/// The form of an object's outline.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Missing,
    Polygons,
    Runs,
    Bad(&'static str),
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
#[derive(Default, Clone, Copy)]
struct Flag(bool);

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

/// An object's outline, with what it is made of.
struct Segmentation {
    shape: Shape,
    numbers: Vec<i32>,
}

impl Default for Segmentation {
    fn default() -> Self {
        Self::bare(Shape::Missing)
    }
}

impl Segmentation {
    fn bare(shape: Shape) -> Self {
        Self { shape, numbers: Vec::new() }
    }

    fn polygons(polygons: &[Vec<f64>]) -> Self {
        let mut numbers = Vec::new();
        for polygon in polygons {
            // An odd last number is ignored, as by pycocotools.
            let corners = &polygon[..polygon.len() / 2 * 2];
            if corners.len() < 6 {
                return Self::bare(Shape::Bad("it has a polygon of fewer than 3 corners"));
            }
            numbers.push(corners.len() as i32);
            for corner in corners {
                match fifths(*corner) {
                    Some(corner) => numbers.push(corner),
                    None => return Self::bare(Shape::Bad("it has a polygon that reaches too far from the image")),
                }
            }
        }
        Self { shape: if polygons.is_empty() { Shape::Missing } else { Shape::Polygons }, numbers }
    }

    fn runs([height, width]: [i32; 2], runs: Vec<i32>) -> Self {
        Self { shape: Shape::Runs, numbers: [height, width].into_iter().chain(runs).collect() }
    }
}

impl<'de> Deserialize<'de> for Segmentation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Segmentation;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of polygons, or size and counts of run lengths")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Segmentation, E> {
                Ok(Segmentation::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Segmentation, A::Error> {
                let mut polygons: Vec<Vec<f64>> = Vec::new();
                while let Some(polygon) = seq.next_element()? {
                    polygons.push(polygon);
                }
                Ok(Segmentation::polygons(&polygons))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Segmentation, A::Error> {
                let (mut size, mut counts) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match &*key {
                        "size" => size = Some(map.next_value::<[i32; 2]>()?),
                        "counts" => counts = Some(map.next_value::<Counts>()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let (Some(size), Some(counts)) = (size, counts) else {
                    return Ok(Segmentation::bare(Shape::Bad("its segmentation has no size or no counts")));
                };
                Ok(match counts {
                    Counts::Runs(runs) if runs.iter().all(|run| *run >= 0) => Segmentation::runs(size, runs),
                    Counts::Runs(_) => Segmentation::bare(Shape::Bad("it has a negative run length")),
                    Counts::Text(text) => match decompress(text.as_bytes()) {
                        Ok(runs) => Segmentation::runs(size, runs),
                        Err(message) => Segmentation::bare(Shape::Bad(message)),
                    },
                })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Counts {
    Text(String),
    Runs(Vec<i32>),
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
