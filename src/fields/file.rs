//! Fields as JSON files, with masks as PNG files next to them.

use super::{
    AuxImage, BOXES, BoxFormat, Boxes, Clamping, Field, Fields, KEYPOINTS, KeyPoints, LABELS, MASK, Mask,
    PointConvention,
};
use crate::error::{Error, Result};
use crate::interpolation::Interpolation;
use crate::os::atomic;
use crate::os::file::read_limited;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Largest file of fields, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The written form. Numbers are those of f32 as doubles, so that reading gives the same f32.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Width and height of the image, for people and other programs; not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<[u32; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boxes: Option<WrittenBoxes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<Vec<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keypoints: Option<WrittenKeyPoints>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<WrittenMask>,
    /// Auxiliary images, by the names of their fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    images: BTreeMap<String, WrittenImage>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenBoxes {
    format: BoxFormat,
    values: Vec<[f64; 4]>,
    #[serde(default = "soft")]
    clamping: Option<WrittenClamping>,
    /// Whether each box is valid after the operations; not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    valid: Option<Vec<bool>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenClamping {
    Soft,
}

fn soft() -> Option<WrittenClamping> {
    Some(WrittenClamping::Soft)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKeyPoints {
    values: Vec<[f64; 2]>,
    #[serde(default)]
    convention: PointConvention,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMask {
    /// Relative to the folder of the JSON file.
    path: PathBuf,
    #[serde(default)]
    fill: u16,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenImage {
    /// Relative to the folder of the JSON file.
    path: PathBuf,
    /// The filter of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interpolation: Option<Interpolation>,
    #[serde(default)]
    fill: u16,
}

/// Reads fields of a JSON file of the form `{"boxes": {"format": "XYXY", "values": [[x1, y1, x2, y2]], "clamping":
/// "soft"}, "labels": [3], "keypoints": {"values": [[x, y]], "convention": "corner"}, "mask": {"path": "mask.png",
/// "fill": 255}}`. Each part may be missing. They become the fields `boxes`, `labels`, `keypoints` and `mask`;
/// keypoints belong to no object. Auxiliary images are another part, `"images": {"depth": {"path": "depth.png",
/// "interpolation": "nearest", "fill": 0}}`, and become fields of their own names. Paths are relative to the file's
/// folder, and images have at most `max_pixels` pixels.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read, [`Error::Parameter`] if it has another form, the errors of
/// [`Mask::from_png`].
pub fn read_fields(path: impl AsRef<Path>, max_pixels: u64) -> Result<Fields> {
    let path = path.as_ref();
    let wrong = |error: serde_json::Error| {
        let expected = "JSON with boxes, labels, keypoints, mask and images, or some of them";
        Error::parameter("read_fields", "file", expected, format!("{}: {error}", path.display()))
    };
    let Written { boxes, labels, keypoints, mask, images, .. } =
        serde_json::from_slice(&read_limited(path, MAX_FILE_BYTES)?).map_err(wrong)?;
    let mut fields = Fields::new();
    if let Some(WrittenBoxes { format, values, clamping, .. }) = boxes {
        let clamping = if clamping.is_some() { Clamping::Soft } else { Clamping::None };
        let rows = values.into_iter().map(|row| row.map(|value| value as f32)).collect();
        fields.insert(BOXES, Boxes::new(format, rows).with_clamping(clamping))?;
    }
    if let Some(labels) = labels {
        fields.insert(LABELS, labels)?;
    }
    if let Some(WrittenKeyPoints { values, convention }) = keypoints {
        let points = values.into_iter().map(|point| point.map(|value| value as f32)).collect();
        fields.insert(KEYPOINTS, KeyPoints::of_image(points).with_convention(convention))?;
    }
    let read = |own: PathBuf| {
        let own = path.parent().unwrap_or(Path::new("")).join(own);
        read_limited(&own, max_pixels.saturating_mul(4).saturating_add(MAX_FILE_BYTES))
    };
    if let Some(WrittenMask { path: own, fill }) = mask {
        fields.insert(MASK, Mask::from_png(&read(own)?, max_pixels)?.with_fill(fill))?;
    }
    for (name, WrittenImage { path: own, interpolation, fill }) in images {
        if let Some(taken) = fields.get(&name).map(|_| &name) {
            let got = format!("{}: the field {taken} twice", path.display());
            return Err(Error::parameter("read_fields", "images", "names of their own", got));
        }
        let mut image = AuxImage::from_encoded(&read(own)?, max_pixels)?.with_fill(fill);
        if let Some(interpolation) = interpolation {
            image = image.with_interpolation(interpolation);
        }
        fields.insert(name, image)?;
    }
    Ok(fields)
}

/// Writes the fields of an image of size `size`, as [`read_fields`] reads them, with whether each box is valid by
/// torchvision's measure ([`Boxes::valid`]: sides of a pixel at least). The field `mask` becomes the PNG file
/// `mask_path`, as `out.mask.png`, and an auxiliary image `depth` the file `out.depth.png` next to it. Other fields are
/// not written.
///
/// # Errors
/// [`Error::Io`] if a file cannot be written.
pub fn write_fields(fields: &Fields, size: Size, path: impl AsRef<Path>, mask_path: impl AsRef<Path>) -> Result<()> {
    let (path, mask_path) = (path.as_ref(), mask_path.as_ref());
    let mut written = Written { size: Some([size.width, size.height]), ..Written::default() };
    if let Some(boxes) = fields.boxes() {
        written.boxes = Some(WrittenBoxes {
            format: boxes.format(),
            values: boxes.rows().iter().map(|row| row.map(f64::from)).collect(),
            clamping: (boxes.clamping() == Clamping::Soft).then_some(WrittenClamping::Soft),
            valid: Some(boxes.valid(size, 1.0, 1.0)),
        });
    }
    if let Some(Field::Integers(labels)) = fields.get(LABELS) {
        written.labels = Some(labels.clone());
    }
    if let Some(Field::KeyPoints(points)) = fields.get(KEYPOINTS) {
        let values = points.points().iter().map(|point| point.map(f64::from)).collect();
        written.keypoints = Some(WrittenKeyPoints { values, convention: points.convention() });
    }
    if let Some(Field::Mask(mask)) = fields.get(MASK) {
        let png = mask.to_png(0)?;
        atomic::write_output(mask_path, |file| file.write_all(&png))?;
        written.mask = Some(WrittenMask { path: relative(mask_path, path), fill: mask.fill() });
    }
    for (name, field) in fields.iter() {
        let Field::Image(image) = field else { continue };
        if name.contains(['/', '\\']) {
            return Err(Error::parameter("write_fields", "images", "names without slashes", name));
        }
        // From out.mask.png to out.
        let mut own = mask_path.with_extension("").with_extension("").into_os_string();
        own.push(format!(".{name}.png"));
        let own = PathBuf::from(own);
        let png = image.to_png()?;
        atomic::write_output(&own, |file| file.write_all(&png))?;
        let interpolation = image.interpolation();
        let image = WrittenImage { path: relative(&own, path), interpolation, fill: image.fill() };
        written.images.insert(name.to_owned(), image);
    }
    atomic::write_output(path, |file| {
        serde_json::to_writer(&mut *file, &written)?;
        file.write_all(b"\n")
    })
}

/// `path` as the file `from` names it: relative to its folder if it lies there, absolute elsewhere.
fn relative(path: &Path, from: &Path) -> PathBuf {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (path, from) = (absolute(path), absolute(from));
    let inside = from.parent().and_then(|folder| path.strip_prefix(folder).ok()).map(Path::to_owned);
    inside.unwrap_or(path)
}
