//! Semantic segmentation: a PNG of classes for each image.

use super::frame::Frame;
use super::names::read_names;
use super::read_limited;
use super::{ImageFolder, MAX_ENCODED_BYTES, ReadRequest, Sample, Source, no_fields, no_such_sample, path_from_bytes};
use crate::decode::{Header, probe};
use crate::error::{Error, Result};
use crate::fields::{Fields, MASK, Mask, MaskValues};
use crate::raster::DEFAULT_MAX_PIXELS;
use crate::targets;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Numbers that a mask of 16 bits can have.
const NUMBERS: usize = 1 << 16;
/// The 19 of Cityscapes' 34 ids that are trained, and their classes.
const CITYSCAPES: [(u16, u16); 19] = [
    (7, 0),
    (8, 1),
    (11, 2),
    (12, 3),
    (13, 4),
    (17, 5),
    (19, 6),
    (20, 7),
    (21, 8),
    (22, 9),
    (23, 10),
    (24, 11),
    (25, 12),
    (26, 13),
    (27, 14),
    (28, 15),
    (31, 16),
    (32, 17),
    (33, 18),
];

/// Meaning of the numbers in mask files.
///
/// ```
/// use warpfeed::source::MaskIds;
///
/// assert_eq!("reduce-zero".parse::<MaskIds>()?, MaskIds::ReduceZero);
/// assert_eq!("7:0, 8:1".parse::<MaskIds>()?, MaskIds::Map(vec![(7, 0), (8, 1)]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MaskIds {
    /// They are classes.
    #[default]
    Classes,
    /// 0 is to be ignored, and n is class n - 1, as in ADE20K. The ignored value stays ignored.
    ReduceZero,
    /// Pairs of a number in files and its class. All other numbers are to be ignored.
    Map(Vec<(u16, u16)>),
}

impl MaskIds {
    /// The classes of Cityscapes' `labelIds`: 19 `trainIds` of its 34 ids.
    #[must_use]
    pub fn cityscapes() -> Self {
        Self::Map(CITYSCAPES.to_vec())
    }
}

impl FromStr for MaskIds {
    type Err = Error;

    /// Reads `classes`, `reduce-zero`, `cityscapes`, or pairs of a number and its class: `7:0,8:1`.
    fn from_str(text: &str) -> Result<Self> {
        let pair = |pair: &str| {
            let (id, class) = pair.split_once(':')?;
            Some((id.trim().parse().ok()?, class.trim().parse().ok()?))
        };
        match text {
            "classes" => Ok(Self::Classes),
            "reduce-zero" => Ok(Self::ReduceZero),
            "cityscapes" => Ok(Self::cityscapes()),
            _ => text.split(',').map(pair).collect::<Option<_>>().map(Self::Map).ok_or_else(|| {
                let expected = "classes, reduce-zero, cityscapes, or pairs of a number and its class: 7:0,8:1";
                Error::parameter("MaskFolder::open", "ids", expected, text)
            }),
        }
    }
}

/// Names of masks, and the way in which they are read.
///
/// ```
/// use warpfeed::source::{MaskIds, MaskOptions};
///
/// let ade20k = MaskOptions { ids: MaskIds::ReduceZero, ..MaskOptions::default() };
/// assert_eq!((ade20k.ignored, MaskOptions::cityscapes().image_suffix), (255, "_leftImg8bit".to_owned()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskOptions {
    /// The end of an image's name, before `.jpg` or the like, that its mask's name lacks. Default: nothing.
    pub image_suffix: String,
    /// The end of a mask's name in its place, before `.png`. Default: nothing.
    pub mask_suffix: String,
    /// The meaning of the numbers in masks. Default: classes.
    pub ids: MaskIds,
    /// The class of pixels that a training ignores: those without a class, and those that operations bring into view
    /// from outside the image. Default: 255.
    pub ignored: u16,
    /// File with the images to take, one a line, in this order: their paths from the folder of images, without suffix
    /// and ending, as in VOC's `ImageSets`. Default: all images.
    pub list: Option<PathBuf>,
}

impl Default for MaskOptions {
    fn default() -> Self {
        let (image_suffix, mask_suffix) = (String::new(), String::new());
        Self { image_suffix, mask_suffix, ids: MaskIds::default(), ignored: 255, list: None }
    }
}

impl MaskOptions {
    /// The names and classes of Cityscapes: `a_leftImg8bit.png` and `a_gtFine_labelIds.png`, and
    /// [`MaskIds::cityscapes`].
    #[must_use]
    pub fn cityscapes() -> Self {
        Self {
            image_suffix: "_leftImg8bit".to_owned(),
            mask_suffix: "_gtFine_labelIds".to_owned(),
            ids: MaskIds::cityscapes(),
            ..Self::default()
        }
    }
}

/// Images of a folder with masks in another: for `IMAGES/a/1.jpg` the mask `MASKS/a/1.png`. The images are all those
/// below the folder, without hidden files and folders, in the order of their paths, or those that [`MaskOptions::list`]
/// names. Endings are those of [`ImageFolder`].
///
/// The field is `mask`, of 8 bits, or of 16 if the file or a class needs them. Gray values and indices of palettes are
/// read as they are stored; [`MaskOptions::ids`] gives their meaning. A mask with the size of the image as its EXIF tag
/// turns it belongs to that image; otherwise it belongs to the stored image.
///
/// A mask that is missing, is not a PNG of gray values or indices, has another size than its image, or a class without
/// a name makes its sample a bad one; the error names both files.
///
/// ```
/// use warpfeed::source::{MaskFolder, MaskIds, MaskOptions, Source};
///
/// # let folder = tempfile::tempdir().unwrap();
/// let (images, masks) = (folder.path().join("images/training"), folder.path().join("annotations/training"));
/// std::fs::create_dir_all(&images).unwrap();
/// std::fs::write(images.join("1.jpg"), "").unwrap();
/// let ade20k = MaskFolder::open(&images, &masks, MaskOptions { ids: MaskIds::ReduceZero, ..MaskOptions::default() })?;
/// assert_eq!((ade20k.len(), ade20k.mask_path(0)), (1, masks.join("1.png")));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MaskFolder {
    images: ImageFolder,
    /// The numbers of the images that are samples, in order; `None` for all.
    listed: Option<Vec<u64>>,
    /// The folder of images, below which names are the masks' too.
    root: PathBuf,
    masks: PathBuf,
    options: MaskOptions,
    /// The class of each number in a file.
    table: Arc<[u16]>,
    classes: Vec<String>,
}

impl MaskFolder {
    /// Lists the images below `images`. Their masks are below `masks`, and are not opened.
    ///
    /// # Errors
    /// The errors of [`ImageFolder::open`]; [`Error::Parameter`] if an image's name lacks the suffix, a number has two
    /// classes, or a name of the list is not an image's; [`Error::Io`] if the list cannot be read.
    pub fn open(images: impl AsRef<Path>, masks: impl AsRef<Path>, options: MaskOptions) -> Result<Self> {
        let (root, masks) = (images.as_ref().to_owned(), masks.as_ref().to_owned());
        let (images, table) = (ImageFolder::below(&root)?, table(&options)?.into());
        let mut found = Self { images, listed: None, root, masks, options, table, classes: Vec::new() };
        let mut numbers = HashMap::new();
        for image in 0..found.images.len() {
            let path = found.images.path(image);
            let Some(name) = found.shared_name(&path) else {
                let expected = format!("images whose names end in {}", found.options.image_suffix);
                return Err(Error::parameter("MaskFolder::open", "images", expected, path.display()));
            };
            if found.options.list.is_some() {
                numbers.insert(name, image);
            }
        }
        if let Some(list) = &found.options.list {
            let number = |(line, name): (usize, String)| {
                let got = || format!("{name} in {} line {line}", list.display());
                let expected = format!("the names of images in {}", found.root.display());
                let number = numbers.get(Path::new(&name)).copied();
                number.ok_or_else(|| Error::parameter("MaskFolder::open", "list", expected, got()))
            };
            found.listed = Some(read_names(list)?.into_iter().map(number).collect::<Result<_>>()?);
        }
        Ok(found)
    }

    /// Names the classes, class 0 first. Then a pixel of another class that is not ignored makes its sample a bad one.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a class of [`MaskIds::Map`] has no name.
    pub fn with_classes(mut self, classes: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        self.classes = classes.into_iter().map(Into::into).collect();
        if let MaskIds::Map(pairs) = &self.options.ids
            && let Some((id, class)) = pairs.iter().find(|(_, class)| !self.is_class(*class))
        {
            let expected = format!("names of all classes, of which there are {}", self.classes.len());
            return Err(Error::parameter("MaskFolder", "classes", expected, format!("class {class} of {id}")));
        }
        Ok(self)
    }

    /// The path of the mask of image `index`.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    #[must_use]
    pub fn mask_path(&self, index: u64) -> PathBuf {
        self.mask_of(&self.path(index))
    }

    /// The path of image `index`.
    fn path(&self, index: u64) -> PathBuf {
        self.images.path(self.listed.as_ref().map_or(index, |listed| listed[index as usize]))
    }

    /// The path of an image from the folder of images, without suffix and ending; `None` if it lacks the suffix.
    fn shared_name(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        let name = below.file_stem()?.as_encoded_bytes().strip_suffix(self.options.image_suffix.as_bytes())?;
        Some(below.with_file_name(path_from_bytes(name).as_os_str()))
    }

    fn mask_of(&self, image: &Path) -> PathBuf {
        let mut path = self.masks.join(self.shared_name(image).unwrap_or_default()).into_os_string();
        path.push(&self.options.mask_suffix);
        path.push(".png");
        path.into()
    }

    fn is_class(&self, class: u16) -> bool {
        self.classes.is_empty() || usize::from(class) < self.classes.len() || class == self.options.ignored
    }

    /// Reads the mask of an image with this header.
    fn fields_of(&self, image: &Path, header: &Header) -> Result<Fields> {
        let path = self.mask_of(image);
        let wrong = |message: &str| {
            let message = format!("{}, the mask of {}: {message}", path.display(), image.display());
            targets::wrong(Some(MASK), message)
        };
        let bytes = match read_limited(&path, MAX_ENCODED_BYTES) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(wrong("there is no such file"));
            }
            bytes => bytes?,
        };
        let size = probe(&bytes).map_err(|error| wrong(&error.to_string()))?.size;
        let frame = Frame::of(header, size).map_err(|message| wrong(&message))?;
        let stored = Mask::from_png(&bytes, DEFAULT_MAX_PIXELS).map_err(|error| wrong(&error.to_string()))?;
        let values = &stored.planes()[0];
        let classes = self.classes_of(values);
        let of_no_name = |class: &u16| !self.is_class(*class);
        let unknown = match &classes {
            MaskValues::U8(classes) => classes.iter().map(|class| u16::from(*class)).find(of_no_name),
            MaskValues::U16(classes) => classes.iter().copied().find(of_no_name),
        };
        if let Some(class) = unknown {
            return Err(wrong(&format!("it has class {class}, of {} classes", self.classes.len())));
        }
        let mask = Mask::new(size, classes)?.with_fill(self.options.ignored);
        frame.to_stored(Fields::new().with(MASK, mask)?)
    }

    /// The classes of a file's numbers, in 8 bits if all fit.
    fn classes_of(&self, values: &MaskValues) -> MaskValues {
        let class = |number: usize| self.table[number];
        let most = match &self.options.ids {
            MaskIds::Map(pairs) => pairs.iter().map(|(_, class)| *class).max().unwrap_or(0),
            MaskIds::Classes | MaskIds::ReduceZero => 0,
        };
        match values {
            MaskValues::U16(values) => values.iter().map(|value| class((*value).into())).collect::<Vec<_>>().into(),
            MaskValues::U8(values) if most.max(self.options.ignored) > u8::MAX.into() => {
                values.iter().map(|value| class((*value).into())).collect::<Vec<_>>().into()
            }
            MaskValues::U8(values) => {
                values.iter().map(|value| class((*value).into()) as u8).collect::<Vec<_>>().into()
            }
        }
    }
}

/// The class of each number in a file.
fn table(options: &MaskOptions) -> Result<Vec<u16>> {
    let numbers = 0..=u16::MAX;
    Ok(match &options.ids {
        MaskIds::Classes => numbers.collect(),
        MaskIds::ReduceZero => {
            let kept = |number: u16| number.checked_sub(1).filter(|_| number != options.ignored);
            numbers.map(|number| kept(number).unwrap_or(options.ignored)).collect()
        }
        MaskIds::Map(pairs) => {
            let mut table = vec![options.ignored; NUMBERS];
            let mut before = HashMap::new();
            for (id, class) in pairs {
                if let Some(other) = before.insert(*id, *class) {
                    let got = format!("{id} as {other} and as {class}");
                    return Err(Error::parameter("MaskFolder::open", "ids", "one class for each number", got));
                }
                table[usize::from(*id)] = *class;
            }
            table
        }
    })
}

impl Source for MaskFolder {
    fn len(&self) -> u64 {
        self.listed.as_ref().map_or(self.images.len(), |listed| listed.len() as u64)
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("MaskFolder::read", index, self.len()));
        }
        if let Some(field) = want.target {
            return Err(no_fields("no targets", field));
        }
        let path = self.path(index);
        // The size of the image is in its header.
        super::read_file(&path, sample.buffer())?;
        if !want.fields.is_empty() {
            let fields = self.fields_of(&path, &probe(sample.bytes())?)?;
            sample.set_fields(fields);
        }
        Ok(())
    }

    fn image_file(&self, index: u64) -> Option<PathBuf> {
        (index < self.len()).then(|| self.path(index))
    }

    /// `None`: objects have labels, and images have none.
    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.path(index).to_string_lossy().into_owned().into()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn skipped_files(&self) -> u64 {
        self.images.skipped_files()
    }

    fn skipped_kinds(&self) -> Vec<(String, u64)> {
        self.images.skipped_kinds()
    }

    fn checked_fields(&self) -> Vec<String> {
        vec![MASK.to_owned()]
    }

    fn check_field(&self, field: &str) -> Result<()> {
        if field == MASK { Ok(()) } else { Err(no_fields(MASK, field)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{JpegOptions, encode_jpeg};
    use crate::raster::{Image, Size};
    use std::fs;

    fn write(path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn jpeg(width: u32, height: u32, orientation: u16) -> Vec<u8> {
        let options = JpegOptions { orientation: Some(orientation), ..JpegOptions::default() };
        encode_jpeg(&Image::new(Size::new(width, height)), &options).unwrap()
    }

    fn read(source: &MaskFolder, index: u64) -> Result<Mask> {
        let names = [MASK.to_owned()];
        let (mut sample, want) = (Sample::default(), ReadRequest::IMAGE.without_image().and_fields(&names));
        source.read(index, &want, &mut sample)?;
        let found = sample.take_found(&want)?.fields.unwrap();
        let Some(crate::fields::Field::Mask(mask)) = found.get(MASK) else { panic!("{found:?}") };
        Ok(mask.clone())
    }

    /// An image of 3 x 2 pixels with a mask of these bytes.
    fn with_mask(mask: &[u8], orientation: u16, options: MaskOptions) -> (tempfile::TempDir, MaskFolder) {
        let folder = tempfile::tempdir().unwrap();
        let (images, masks) = (folder.path().join("images"), folder.path().join("masks"));
        write(&images.join("a/1.jpg"), &jpeg(3, 2, orientation));
        write(&masks.join("a/1.png"), mask);
        let source = MaskFolder::open(images, masks, options).unwrap();
        (folder, source)
    }

    fn png(values: impl Into<MaskValues>) -> Vec<u8> {
        Mask::new(Size::new(3, 2), values).unwrap().to_png(0).unwrap()
    }

    #[test]
    fn numbers_become_classes_and_the_rest_is_ignored() {
        let with = |ids, ignored, values: MaskValues| {
            let (_folder, source) = with_mask(&png(values), 1, MaskOptions { ids, ignored, ..MaskOptions::default() });
            let mask = read(&source, 0).unwrap();
            assert_eq!((mask.fill(), mask.is_of_objects()), (ignored, false));
            (*mask.planes()[0]).clone()
        };
        let stored = || MaskValues::from(vec![0_u8, 1, 2, 7, 33, 255]);
        assert_eq!(with(MaskIds::Classes, 255, stored()), stored());
        assert_eq!(with(MaskIds::ReduceZero, 255, stored()), vec![255_u8, 0, 1, 6, 32, 255].into());
        assert_eq!(with(MaskIds::cityscapes(), 255, stored()), vec![255_u8, 255, 255, 0, 18, 255].into());
        // Classes that do not fit in 8 bits make a mask of 16, and masks of 16 bits stay so.
        let wide = MaskIds::Map(vec![(2, 1000)]);
        assert_eq!(with(wide, 255, stored()), vec![255_u16, 255, 1000, 255, 255, 255].into());
        assert_eq!(with(MaskIds::Classes, 65_535, stored()), vec![0_u16, 1, 2, 7, 33, 255].into());
        let instances = vec![0_u16, 26_001, 26_002, 7, 255, 65_535];
        assert_eq!(with(MaskIds::Classes, 0, instances.clone().into()), instances.into());
    }

    #[test]
    fn names_of_masks_have_another_suffix_and_lists_choose() {
        let folder = tempfile::tempdir().unwrap();
        let (images, masks) = (folder.path().join("leftImg8bit/train"), folder.path().join("gtFine/train"));
        for (i, name) in ["ulm/a", "ulm/b", "bonn/c"].iter().enumerate() {
            write(&images.join(format!("{name}_leftImg8bit.jpg")), &jpeg(3, 2, 1));
            write(&masks.join(format!("{name}_gtFine_labelIds.png")), &png(vec![i as u8 + 7; 6]));
        }
        let all = MaskFolder::open(&images, &masks, MaskOptions::cityscapes()).unwrap();
        assert_eq!((all.len(), all.mask_path(0)), (3, masks.join("bonn/c_gtFine_labelIds.png")));
        assert_eq!(*read(&all, 2).unwrap().planes()[0], vec![1_u8; 6].into());
        let list = folder.path().join("val.txt");
        fs::write(&list, "ulm/b\n\n  bonn/c\r\n").unwrap();
        let options = MaskOptions { list: Some(list.clone()), ..MaskOptions::cityscapes() };
        let listed = MaskFolder::open(&images, &masks, options.clone()).unwrap();
        assert_eq!((listed.len(), listed.name(0)), (2, images.join("ulm/b_leftImg8bit.jpg").to_string_lossy()));
        assert_eq!(*read(&listed, 0).unwrap().planes()[0], vec![1_u8; 6].into());
        assert!(read(&listed, 2).unwrap_err().is_parameter() && listed.check_field("boxes").is_err());
        for (text, message) in [("ulm/b\nulm/z\n", "val.txt line 2"), ("\n", "a name on each line")] {
            fs::write(&list, text).unwrap();
            let error = MaskFolder::open(&images, &masks, options.clone()).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains(message), "{error}");
        }
        write(&images.join("ulm/plain.jpg"), &jpeg(3, 2, 1));
        let error = MaskFolder::open(&images, &masks, MaskOptions::cityscapes()).unwrap_err();
        assert!(error.to_string().contains("plain.jpg"), "{error}");
    }

    #[test]
    fn masks_of_the_upright_image_are_turned_to_the_stored_one() {
        let upright = Mask::new(Size::new(2, 3), vec![0_u8, 1, 2, 3, 4, 5]).unwrap().to_png(0).unwrap();
        let (_folder, source) = with_mask(&upright, 6, MaskOptions::default());
        let mask = read(&source, 0).unwrap();
        assert_eq!((mask.size(), &*mask.planes()[0]), (Size::new(3, 2), &vec![1_u8, 3, 5, 0, 2, 4].into()));
    }

    #[test]
    fn masks_that_are_none_make_their_sample_bad_and_both_files_are_named() {
        let gray = |width, height| {
            let size = Size::new(width, height);
            Mask::new(size, vec![1_u8; size.area_px() as usize]).unwrap().to_png(0).unwrap()
        };
        let color = crate::encode::encode_png(&Image::new(Size::new(3, 2))).unwrap();
        let whole = gray(3, 2);
        for (mask, orientation, message) in [
            (gray(6, 4), 1, "it is of an image of 6 x 4 pixels, which has 3 x 2"),
            (gray(4, 6), 6, "which has 3 x 2, 2 x 3 upright"),
            (color, 1, "in color"),
            (jpeg(3, 2, 1), 1, "PNG"),
            (whole[..whole.len() - 20].to_vec(), 1, "PNG"),
            (b"no image".to_vec(), 1, "1.png"),
            (Vec::new(), 1, "1.png"),
            (png(vec![0_u8, 1, 2, 3, 255, 0]), 1, "class 3, of 3 classes"),
        ] {
            let (_folder, source) = with_mask(&mask, orientation, MaskOptions::default());
            let error = read(&source.with_classes(["a", "b", "c"]).unwrap(), 0).unwrap_err();
            let text = error.to_string();
            assert!(error.is_bad_sample() && text.contains(message), "{message}: {text}");
            assert!(text.contains("1.png") && text.contains("1.jpg"), "{text}");
        }
        let (folder, source) = with_mask(&gray(3, 2), 1, MaskOptions::default());
        fs::remove_file(folder.path().join("masks/a/1.png")).unwrap();
        let error = read(&source, 0).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains("there is no such file"), "{error}");
        assert!(error.to_string().contains("1.png") && error.to_string().contains("1.jpg"), "{error}");
    }

    #[test]
    fn maps_that_contradict_themselves_are_refused() {
        assert!(table(&MaskOptions { ids: "7:0,7:1".parse().unwrap(), ..MaskOptions::default() }).is_err());
        for text in ["", "7", "7:x", "7:0,", "-1:0", "70000:1"] {
            assert!(text.parse::<MaskIds>().unwrap_err().is_parameter(), "{text}");
        }
        let (_folder, source) = with_mask(b"", 1, MaskOptions { ids: MaskIds::cityscapes(), ..MaskOptions::default() });
        assert!(source.with_classes(["road", "sidewalk"]).unwrap_err().to_string().contains("class 2 of 11"));
    }
}
