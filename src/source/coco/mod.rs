//! COCO's annotations, a JSON file. LVIS and Objects365 have the same form.

mod file;
mod ids;
mod keypoints;
mod loose;
pub(super) mod outline;
mod panoptic;
pub(super) mod runs;
pub(super) mod segmentation;

pub use panoptic::PanopticFiles;

use super::frame::Frame;
use super::{ReadRequest, Sample, Source, no_fields, no_such_sample, read_file};
use crate::decode::{Header, probe};
use crate::error::{Error, Result};
use crate::fields::{BOXES, BoxFormat, Boxes, Fields, KEYPOINTS, KeyPoints, LABELS, MASKS, Mask, check_objects};
use crate::raster::{DEFAULT_MAX_PIXELS, Size, check_pixels};
use crate::targets::{self, Target};
use file::{Annotations, Object, Stated};
use ids::Id;
use loose::Value;
use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The fields that COCO's annotations have.
const FIELDS: [&str; 8] = [BOXES, LABELS, MASKS, KEYPOINTS, "category_ids", "area", "iscrowd", "ids"];
/// The target field with the image's number in the annotations.
const IMAGE_ID: &str = "image_id";
/// Distance from the index of a pixel to its center.
const TO_CENTER_PX: f32 = 0.5;

/// Images of a folder with COCO's annotations of instances and keypoints. Samples come in the order of the images'
/// numbers; images without annotations are samples without objects. Crowds (`iscrowd`) are left out, unless
/// [`crowds`](Self::crowds) asks for them.
///
/// The fields are `boxes` (XYXY), `labels` (0 for the category with the lowest number, without COCO's gaps),
/// `category_ids` (the numbers in the file), `area`, `iscrowd`, `ids`, `masks` (one for each object, with the pixels of
/// pycocotools) and `keypoints`, whose coordinates are 0.5 more than in the file, where they are indices of pixels. A
/// mirror exchanges keypoints whose names tell left from right, or those of [`flip_index`](Self::flip_index). The
/// target field `image_id` has the image's number.
///
/// The size in the file decides whether annotations refer to the stored image or to the image as its EXIF tag turns it.
/// If both have that size, or none is stated, it is the stored one. An image that has neither size is a bad sample; the
/// error has both sizes.
///
/// An object whose category is unknown, whose box is not finite, has a negative side or lies outside its image, or
/// whose mask cannot be made, makes its sample a bad one, and so does a value of another type than COCO's; the error
/// names annotation and entry. Files are read as Python's `json` and pycocotools read them: NaN and Infinity are
/// numbers, 1.0 is 1, and ids may be texts.
///
/// ```
/// use warpfeed::source::{CocoFiles, Source};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("instances.json");
/// let json = r#"{
///     "images": [{"id": 9, "file_name": "a.jpg", "width": 40, "height": 30}],
///     "annotations": [{"id": 1, "image_id": 9, "category_id": 18, "bbox": [4, 5, 10, 10], "area": 100, "iscrowd": 0}],
///     "categories": [{"id": 17, "name": "cat"}, {"id": 18, "name": "dog"}]
/// }"#;
/// std::fs::write(&file, json).unwrap();
/// let coco = CocoFiles::open(folder.path(), &file)?;
/// assert_eq!((coco.len(), coco.classes()), (1, &["cat".to_owned(), "dog".to_owned()][..]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CocoFiles {
    folder: PathBuf,
    /// The annotation file, for messages.
    path: PathBuf,
    annotations: Arc<Annotations>,
    /// The numbers of the images that are samples, in order.
    images: Vec<u32>,
    crowds: bool,
    /// The keypoints that change places in a mirror, if they are given.
    flip_index: Option<Arc<[usize]>>,
}

impl CocoFiles {
    /// Reads the annotations of `path`; their images are below `folder`, and are not opened.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Parameter`] if it is not JSON of this form, has no image, has
    /// two different categories with one number, or an annotation that names no image.
    pub fn open(folder: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Self> {
        let (folder, path) = (folder.as_ref().to_owned(), path.as_ref().to_owned());
        let annotations = Arc::new(Annotations::read(&path)?);
        let images = (0..annotations.images.len() as u32).collect();
        Ok(Self { folder, path, annotations, images, crowds: false, flip_index: None })
    }

    /// Sets whether crowds are objects too: regions of many objects, whose masks cover them all. Default: false.
    #[must_use]
    pub fn crowds(mut self, crowds: bool) -> Self {
        self.crowds = crowds;
        self
    }

    /// Sets which keypoints change places in a mirror image: [`KeyPoints::flip_index`]. Default: those whose names are
    /// equal but for left and right (`left_eye`, `eye_l`, `L Eye`, `leftEye`).
    ///
    /// # Errors
    /// [`Error::Parameter`] unless it has the number of each keypoint of the categories once.
    pub fn flip_index(mut self, flip_index: impl Into<Arc<[usize]>>) -> Result<Self> {
        let flip_index = flip_index.into();
        let (count, _) = self.annotations.keypoints();
        if count == 0 {
            let expected = "only with categories that have keypoints";
            return Err(Error::parameter("CocoFiles", "flip_index", expected, self.path.display()));
        }
        KeyPoints::of_objects(count, Vec::new(), Vec::new())?.flip_index(Arc::clone(&flip_index))?;
        self.flip_index = Some(flip_index);
        Ok(self)
    }

    /// Leaves out the images without objects.
    ///
    /// # Errors
    /// [`Error::Parameter`] if none is left.
    pub fn annotated_only(mut self) -> Result<Self> {
        let mut images = std::mem::take(&mut self.images);
        images.retain(|image| self.objects(*image).next().is_some());
        if images.is_empty() {
            return Err(Error::parameter(
                "CocoFiles",
                "annotations",
                "objects in an image at least",
                self.path.display(),
            ));
        }
        self.images = images;
        Ok(self)
    }

    /// The objects of an image, crowds left out as asked.
    fn objects(&self, image: u32) -> impl Iterator<Item = &Object> {
        self.annotations.objects_of(image).iter().filter(|object| self.crowds || !object.is_crowd)
    }

    fn image(&self, index: u64) -> Result<u32> {
        let found = usize::try_from(index).ok().and_then(|i| self.images.get(i));
        found.copied().ok_or_else(|| no_such_sample("CocoFiles::read", index, self.len()))
    }

    /// The path of an image. Names that lead out of the folder are refused.
    fn image_path(&self, image: u32) -> Result<PathBuf> {
        let Annotations { images, ids, .. } = &*self.annotations;
        let own = &images[image as usize];
        if let Some(fault) = own.fault {
            return Err(self.wrong(BOXES, format!("image {}: {fault}", ids.show(own.id))));
        }
        let name = self.annotations.name(image);
        let leads_out = || self.wrong(BOXES, format!("its file_name leads out of the folder: {name:?}"));
        inside(&self.folder, name).ok_or_else(leads_out)
    }

    fn wrong(&self, field: &str, message: impl std::fmt::Display) -> Error {
        targets::wrong(Some(field), format!("{}: {message}", self.path.display()))
    }

    /// The wanted fields of an image with this header.
    fn fields_of(&self, image: u32, header: &Header, names: &[String]) -> Result<Fields> {
        let [first, ..] = names else { return Ok(Fields::new()) };
        let own = &self.annotations.images[image as usize];
        let of_image =
            |message: &str| self.wrong(first, format!("image {}: {message}", self.annotations.ids.show(own.id)));
        let stated = match own.size {
            Stated::Missing => None,
            Stated::Of(size) => Some(size),
            Stated::Wrong => return Err(of_image("its width and height are not two whole numbers above 0")),
        };
        // Masks are made for as many pixels as the header claims.
        check_pixels(header.size, DEFAULT_MAX_PIXELS)?;
        let frame = Frame::of_stated(header, stated).map_err(|message| of_image(&message))?;
        let size = frame.size;
        let bad = |field: &str, object: &Object, message: String| {
            let message = format!("annotation {}: {message}", self.annotations.ids.show(object.id));
            self.wrong(field, message)
        };
        for object in self.annotations.objects_of(image) {
            if let Some(message) = object.fault.message() {
                return Err(bad(first, object, message.to_owned()));
            }
        }
        let objects: Vec<&Object> = self.objects(image).collect();
        let numbers = |name: &str, entry: &str, of: fn(&Object) -> Id| -> Result<Vec<i64>> {
            let number = |object: &&Object| {
                let wrong = || bad(name, object, format!("its {entry} is no whole number"));
                of(object).number().ok_or_else(wrong)
            };
            objects.iter().map(number).collect()
        };
        let mut fields = Fields::new();
        for name in names {
            match &**name {
                BOXES => {
                    let row =
                        |object: &&Object| checked(object.bbox, size).map_err(|message| bad(name, object, message));
                    let rows = objects.iter().map(row).collect::<Result<Vec<_>>>()?;
                    fields.insert(BOXES, Boxes::new(BoxFormat::Xywh, rows).to(BoxFormat::Xyxy))?;
                }
                LABELS => {
                    let label = |object: &&Object| {
                        let category = self.annotations.ids.show(object.category);
                        let unknown = || bad(name, object, format!("category {category} is none of the file's"));
                        self.annotations.label(object.category).map(i64::from).ok_or_else(unknown)
                    };
                    fields.insert(LABELS, objects.iter().map(label).collect::<Result<Vec<i64>>>()?)?;
                }
                MASKS => {
                    check_objects(objects.len(), size)?;
                    let plane = |object: &&Object| {
                        let plane = object.shape.plane(self.annotations.numbers(object), size);
                        plane.map_err(|without| without.or(|message| bad(name, object, message)))
                    };
                    let planes = objects.iter().map(plane).collect::<Result<Vec<_>>>()?;
                    fields.insert(MASKS, Mask::of_objects(size, planes)?)?;
                }
                KEYPOINTS => {
                    let keypoints = self.keypoints(&objects, |object, message| bad(name, object, message))?;
                    fields.insert(KEYPOINTS, keypoints)?;
                }
                "category_ids" => {
                    fields.insert("category_ids", numbers(name, "category_id", |object| object.category)?)?;
                }
                "area" => {
                    let area = |object: &&Object| {
                        let wrong = || bad(name, object, "its area is missing, or no finite number".to_owned());
                        Some(object.area).filter(|area| area.is_finite()).ok_or_else(wrong)
                    };
                    fields.insert("area", objects.iter().map(area).collect::<Result<Vec<f32>>>()?)?;
                }
                "iscrowd" => {
                    let rows: Vec<i64> = objects.iter().map(|object| object.is_crowd.into()).collect();
                    fields.insert("iscrowd", rows)?;
                }
                "ids" => fields.insert("ids", numbers(name, "id", |object| object.id)?)?,
                _ => {}
            }
        }
        frame.to_stored(fields)
    }

    fn keypoints(&self, objects: &[&Object], bad: impl Fn(&Object, String) -> Error) -> Result<KeyPoints> {
        let (count, by_names) = self.annotations.keypoints();
        let (mut points, mut visibility) = (Vec::new(), Vec::new());
        for object in objects {
            let Some(own) = self.annotations.points(object) else {
                return Err(bad(object, "its keypoints are no list of numbers".to_owned()));
            };
            if own.len() != 3 * count && !own.is_empty() {
                return Err(bad(object, format!("its keypoints are {} numbers for {count} keypoints", own.len())));
            }
            for i in 0..count {
                // An object of a category without keypoints has none that are labeled.
                let [x, y, seen] = own.get(3 * i..3 * i + 3).map_or([0.0; 3], |own| [own[0], own[1], own[2]]);
                let labeled = seen > 0.0;
                if seen.is_nan() || labeled && !(x.is_finite() && y.is_finite()) {
                    return Err(bad(object, format!("number {i} of its keypoints is not finite")));
                }
                points.push(if labeled { [x + TO_CENTER_PX, y + TO_CENTER_PX] } else { [0.0; 2] });
                visibility.push(if labeled { (seen as u8).clamp(1, 2) } else { 0 });
            }
        }
        let flip_index = self.flip_index.clone().unwrap_or_else(|| by_names.into());
        KeyPoints::of_objects(count, points, visibility)?.flip_index(flip_index)
    }
}

/// The size of two sides; `None` unless they are whole numbers above 0.
fn sides(width: &Value, height: &Value) -> Option<Size> {
    let side = |side: &Value| side.whole().and_then(|side| u32::try_from(side).ok()).filter(|side| *side > 0);
    Some(Size::new(side(width)?, side(height)?))
}

/// The path of a file in a folder; `None` for a name that leads out of it.
fn inside(folder: &Path, name: &str) -> Option<PathBuf> {
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    Path::new(name).components().all(is_inside).then(|| folder.join(name))
}

/// A box as stored, if it is one.
fn checked(bbox: Option<[f32; 4]>, size: Size) -> Result<[f32; 4], String> {
    let Some([x, y, width, height]) = bbox else { return Err("it has no bbox of 4 numbers".to_owned()) };
    let row = [x, y, width, height];
    if !row.iter().all(|value| value.is_finite()) || width < 0.0 || height < 0.0 {
        return Err(format!("its bbox {row:?} is no box"));
    }
    let [right, bottom] = [size.width as f32, size.height as f32];
    if x > right || y > bottom || x + width < 0.0 || y + height < 0.0 {
        return Err(format!("its bbox {row:?} lies outside the image of {size}"));
    }
    Ok(row)
}

impl Source for CocoFiles {
    fn len(&self) -> u64 {
        self.images.len() as u64
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let image = self.image(index)?;
        if let Some(field) = want.target {
            if field != IMAGE_ID {
                return Err(no_fields(IMAGE_ID, field));
            }
            let Annotations { images, ids, .. } = &*self.annotations;
            let id = images[image as usize].id;
            let number = id.number().map(|number| Target::Integers(vec![number]));
            let target = number.or_else(|| ids.written(id).map(|text| Target::Bytes(text.into())));
            sample.set_target(target.ok_or_else(|| self.wrong(field, "the image's id is no whole number"))?);
        }
        // The size of the image is in its header.
        if want.image || !want.fields.is_empty() {
            read_file(&self.image_path(image)?, sample.buffer())?;
        }
        if !want.fields.is_empty() {
            let header = probe(sample.bytes())?;
            sample.set_fields(self.fields_of(image, &header, want.fields)?);
        }
        Ok(())
    }

    fn image_file(&self, index: u64) -> Option<PathBuf> {
        self.image_path(self.image(index).ok()?).ok()
    }

    /// `None`: objects have labels, and images have none.
    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        let name = self.annotations.name(self.images[index as usize]);
        self.folder.join(name).to_string_lossy().into_owned().into()
    }

    fn image_id(&self, index: u64) -> Option<i64> {
        self.annotations.images[self.images[index as usize] as usize].id.number()
    }

    /// The names of the categories, by the field `labels`.
    fn classes(&self) -> &[String] {
        &self.annotations.classes
    }

    fn warnings(&self) -> Vec<String> {
        let sides = self.annotations.unknown_sides.iter().filter(|_| self.flip_index.is_none());
        let warnings = self.annotations.warnings.iter().chain(sides);
        warnings.map(|warning| format!("{}: {warning}", self.path.display())).collect()
    }

    fn checked_fields(&self) -> Vec<String> {
        let keypoints = (self.annotations.keypoints().0 > 0).then_some(KEYPOINTS);
        [BOXES, LABELS].into_iter().chain(keypoints).map(str::to_owned).collect()
    }

    fn check_field(&self, field: &str) -> Result<()> {
        let keypoints = field != KEYPOINTS || self.annotations.keypoints().0 > 0;
        if field == IMAGE_ID || FIELDS.contains(&field) && keypoints {
            return Ok(());
        }
        Err(no_fields(format!("{} and {IMAGE_ID}", FIELDS.join(", ")), field))
    }
}

#[cfg(test)]
mod tests;
