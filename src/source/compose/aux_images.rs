//! Auxiliary images in other folders: depth maps, stereo pairs.

use crate::decode::Format;
use crate::error::{Error, Result};
use crate::fields::{AuxImage, Field};
use crate::interpolation::Interpolation;
use crate::raster::DEFAULT_MAX_PIXELS;
use crate::source::{MAX_ENCODED_BYTES, ReadRequest, Sample, Source, as_in, path_from_bytes, read_limited};
use crate::targets;
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Endings that auxiliary images may have, if they have not their image's. Most are PNG.
fn endings<'a>() -> impl Iterator<Item = &'a str> {
    let others = Format::ALL.iter().filter(|format| **format != Format::Png && !format.is_array());
    std::iter::once(&Format::Png).chain(others).flat_map(|format| format.extensions()).copied()
}

/// A folder of auxiliary images, which have the names of the images in another folder: `depth/a/1.png` for
/// `left/a/1.jpg`.
///
/// ```
/// use warpfeed::{ops::Interpolation, source::AuxFolder};
///
/// let right = AuxFolder::new("right", "scenes/right").interpolation(Interpolation::Bicubic);
/// assert_eq!("right=scenes/right,bicubic".parse::<AuxFolder>()?, right);
/// // Cityscapes: disparity/a_disparity.png for leftImg8bit/a_leftImg8bit.png.
/// let disparity = AuxFolder::new("disparity", "disparity").suffixes("_leftImg8bit", "_disparity");
/// assert_eq!("disparity=disparity,_leftImg8bit:_disparity".parse::<AuxFolder>()?, disparity);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuxFolder {
    field: String,
    folder: PathBuf,
    image_suffix: String,
    suffix: String,
    interpolation: Option<Interpolation>,
    fill: u16,
}

impl AuxFolder {
    /// The field's name, and the folder of its images.
    pub fn new(field: impl Into<String>, folder: impl Into<PathBuf>) -> Self {
        let (image_suffix, suffix) = (String::new(), String::new());
        Self { field: field.into(), folder: folder.into(), image_suffix, suffix, interpolation: None, fill: 0 }
    }

    /// The folder of the images.
    #[doc(hidden)]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets the suffix of images' names before their ending, and the suffix that names of auxiliary images have in its
    /// place. Default: both empty.
    #[must_use]
    pub fn suffixes(self, image: impl Into<String>, further: impl Into<String>) -> Self {
        Self { image_suffix: image.into(), suffix: further.into(), ..self }
    }

    /// Sets the filter that moves the images ([`AuxImage::with_interpolation`]). Default: the operations' own, and the
    /// nearest pixel for 16 bits.
    #[must_use]
    pub fn interpolation(self, interpolation: Interpolation) -> Self {
        Self { interpolation: Some(interpolation), ..self }
    }

    /// Sets the value outside the images. Default: 0.
    #[must_use]
    pub fn fill(self, fill: u16) -> Self {
        Self { fill, ..self }
    }

    /// The path of the auxiliary image of `image`, which is below `root`, without its ending; `None` if `image` lies
    /// elsewhere, or its name lacks the suffix.
    fn stem_beside(&self, root: &Path, image: &Path) -> Option<PathBuf> {
        let below = image.strip_prefix(root).ok()?;
        let shared = below.file_stem()?.as_encoded_bytes().strip_suffix(self.image_suffix.as_bytes())?;
        let name = [shared, self.suffix.as_bytes()].concat();
        Some(self.folder.join(below.with_file_name(path_from_bytes(&name).as_os_str())))
    }

    /// Reads the auxiliary image of `image`.
    fn read(&self, root: &Path, image: &Path) -> Result<AuxImage> {
        let wrong = |place: &Path, message: &str| {
            let message = format!("{}, beside {}: {message}", place.display(), image.display());
            targets::wrong(Some(&self.field), message)
        };
        let Some(stem) = self.stem_beside(root, image) else {
            let expected =
                format!("the image is not below {}, or does not end in {:?}", root.display(), self.image_suffix);
            return Err(wrong(&self.folder, &expected));
        };
        let own = image.extension().and_then(|ending| ending.to_str());
        for ending in own.into_iter().chain(endings().filter(|ending| Some(*ending) != own)) {
            let mut path = stem.clone().into_os_string();
            path.push(format!(".{ending}"));
            let path = PathBuf::from(path);
            let bytes = match read_limited(&path, MAX_ENCODED_BYTES) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            let found = AuxImage::from_encoded(&bytes, DEFAULT_MAX_PIXELS);
            let found = found.map_err(|error| wrong(&path, &error.to_string()))?.with_fill(self.fill);
            return Ok(match self.interpolation {
                Some(interpolation) => found.with_interpolation(interpolation),
                None => found,
            });
        }
        Err(wrong(
            &stem,
            &format!("there is no such file with the ending {}", endings().collect::<Vec<_>>().join(", ")),
        ))
    }
}

impl FromStr for AuxFolder {
    type Err = Error;

    /// Reads the command's form: `depth=scenes/depth`, then, after commas, a filter (`nearest`, `bilinear`, `bicubic`,
    /// `lanczos`), or both suffixes with a colon: `_left:_depth`.
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (field, rest) = text.split_once('=')?;
            let mut parts = rest.split(',');
            let folder = parts.next().filter(|folder| !folder.is_empty() && !field.is_empty())?;
            parts.try_fold(Self::new(field, folder), |own, part| match part.split_once(':') {
                Some((image, further)) => Some(own.suffixes(image, further)),
                None => {
                    let filter = serde_json::from_value(part.into()).ok()?;
                    Some(own.interpolation(filter))
                }
            })
        };
        let expected =
            "NAME=FOLDER, and after commas a filter, or two suffixes with a colon: depth=scenes/depth,nearest";
        parse().ok_or_else(|| Error::parameter("open", "aux", expected, text))
    }
}

/// A source of image files with auxiliary images in folders next to theirs. Made by
/// [`SourceExt::aux_images`](super::SourceExt::aux_images).
pub struct WithImages {
    source: Arc<dyn Source>,
    root: PathBuf,
    folders: Vec<AuxFolder>,
}

impl WithImages {
    pub(super) fn new(source: Arc<dyn Source>, root: PathBuf, folders: Vec<AuxFolder>) -> Result<Self> {
        for (i, AuxFolder { field, folder, .. }) in folders.iter().enumerate() {
            if folders[..i].iter().any(|other| other.field == *field) {
                return Err(Error::parameter("aux_images", "folders", "each field once", field));
            }
            if !folder.is_dir() {
                let missing = io::Error::new(io::ErrorKind::NotFound, "there is no such folder");
                return Err(Error::io("open", folder)(missing));
            }
        }
        Ok(Self { source, root, folders })
    }

    fn of_field(&self, field: &str) -> Option<&AuxFolder> {
        self.folders.iter().find(|folder| folder.field == field)
    }
}

impl Source for WithImages {
    // Fields do not decide which samples come, so the fingerprint is the source's.
    as_in!(|self| self.source; len prefetch ahead_bytes label name classes image_size skipped fingerprint);

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let (own, others): (Vec<String>, Vec<String>) =
            want.fields.iter().cloned().partition(|name| self.of_field(name).is_some());
        let rest = want.and_fields(&others);
        if own.is_empty() || !rest.is_nothing() {
            self.source.read(index, &rest, sample)?;
        }
        if own.is_empty() {
            return Ok(());
        }
        let (mut fields, name) = (sample.take_fields(), self.source.name(index));
        for folder in own.iter().filter_map(|name| self.of_field(name)) {
            fields.insert(folder.field.clone(), Field::from(folder.read(&self.root, Path::new(&*name))?))?;
        }
        sample.set_fields(fields);
        Ok(())
    }

    fn checked_fields(&self) -> Vec<String> {
        let own = self.folders.iter().map(|folder| folder.field.clone());
        self.source.checked_fields().into_iter().chain(own).collect()
    }

    fn check_field(&self, field: &str) -> Result<()> {
        if self.of_field(field).is_some() { Ok(()) } else { self.source.check_field(field) }
    }
}

impl std::fmt::Debug for WithImages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.folders.iter().map(|folder| &*folder.field).collect();
        write!(f, "{} samples with the images {}", self.len(), names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raster::Size;
    use crate::source::{ImageFolder, SourceExt};
    use std::fs;

    fn write(path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn png(value: u16) -> Vec<u8> {
        AuxImage::gray(Size::new(2, 2), vec![value; 4]).unwrap().to_png().unwrap()
    }

    #[test]
    fn the_image_of_the_same_name_is_found_and_what_is_wrong_names_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["left/a/1_left.jpg", "left/a/2_left.png", "left/b/1_left.jpg"] {
            write(&path(name), &png(1));
        }
        write(&path("depth/a/1_d.png"), &png(100));
        write(&path("depth/a/2_d.png"), &png(200));
        // The image's own ending comes first.
        write(&path("depth/a/1_d.jpg"), &png(101));
        write(&path("depth/b/1_d.png"), b"no PNG");
        let depth = AuxFolder::new("depth", path("depth")).suffixes("_left", "_d").fill(7);
        let open = |folders: Vec<AuxFolder>| ImageFolder::open(path("left")).unwrap().aux_images(path("left"), folders);
        let source = open(vec![depth.clone()]).unwrap();
        let names = ["depth".to_owned()];
        let read = |source: &WithImages, index| {
            let mut sample = Sample::default();
            source.read(index, &ReadRequest::IMAGE.without_image().and_fields(&names), &mut sample)?;
            let fields = sample.take_fields();
            let Some(Field::Image(image)) = fields.get("depth") else { panic!("{fields:?}") };
            let crate::fields::MaskValues::U16(values) = &*image.planes()[0] else { panic!("{image:?}") };
            Ok::<_, Error>((values[0], image.fill()))
        };
        assert_eq!([read(&source, 0).unwrap(), read(&source, 1).unwrap()], [(101, 7), (200, 7)]);
        let error = read(&source, 2).unwrap_err();
        assert!(error.is_bad_sample(), "{error}");
        assert!(error.to_string().contains("b/1_d.png") && error.to_string().contains("b/1_left.jpg"), "{error}");
        fs::remove_file(path("depth/b/1_d.png")).unwrap();
        let error = read(&source, 2).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains("no such file with the ending png"), "{error}");
        assert!(source.check_field("depth").is_ok() && source.check_field("mask").is_err());
        let other = open(vec![depth.clone().suffixes("_x", "_d")]).unwrap();
        assert!(read(&other, 0).unwrap_err().to_string().contains("\"_x\""));
        assert!(open(vec![depth.clone(), depth]).unwrap_err().to_string().contains("each field once"));
        assert!(open(vec![AuxFolder::new("depth", path("none"))]).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn the_commands_form_is_read() {
        let all = "d=a/b,_l:_d,bicubic".parse::<AuxFolder>().unwrap();
        assert_eq!(all, AuxFolder::new("d", "a/b").suffixes("_l", "_d").interpolation(Interpolation::Bicubic));
        for wrong in ["", "depth", "=a", "d=", "d=a,cubic", "d=a,"] {
            assert!(wrong.parse::<AuxFolder>().unwrap_err().is_parameter(), "{wrong}");
        }
    }
}
