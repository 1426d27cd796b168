//! The settings that Hugging Face publishes with a model.

use super::{object, side, three, unsupported};
use crate::error::{Error, Result};
use crate::ops::{CenterCrop, Interpolation, Normalize, Op, Resize};
use crate::raster::Size;
use serde_json::{Map, Value};

const NAME: &str = "preprocessor_config.json";

/// Settings that say nothing about the pixels: names of classes, and what holds of every pipeline here.
const OTHERS: [&str; 8] = [
    "auto_map",
    "data_format",
    "do_convert_rgb",
    "feature_extractor_type",
    "image_processor_type",
    "input_data_format",
    "processor_class",
    "_valid_processor_keys",
];

/// The operations of a `preprocessor_config.json`: resize, center crop and normalize, if `do_resize`, `do_center_crop`
/// and `do_normalize` ask for them. Sizes must be written as `shortest_edge`, or as `height` and `width`, because the
/// meaning of a single number depends on the processor's class.
///
/// transformers has two processors for such a file. Images resized by these operations have the bytes of its PIL
/// processor (backend `pil`, formerly `use_fast=False`). Its torchvision processor, the default in current versions,
/// resizes tensors, with other bytes: [contracts](crate::contract) were compared with both processors of ViT and CLIP,
/// transformers 5.23. Some things differ, and the first of them was found in this comparison; the others are from the
/// source of transformers 5:
///
/// - The center crop is torchvision's `CenterCrop`, which rounds half to even where transformers rounds down. If 3, 7,
///   11, ... rows or columns are cut off, the crop begins one later.
/// - If the image is smaller than the crop by an odd number of pixels, the smaller border is on the left and top. That
///   is as in the torchvision processor; the PIL processor has the larger border there.
/// - Values are scaled and normalized as by torchvision's `ToTensor` and `Normalize` in f32. transformers multiplies by
///   `rescale_factor` first (PIL), or puts it into mean and standard deviation (torchvision), so the last digits may
///   differ.
///
/// A [`Preprocessor`](crate::Preprocessor) also applies the EXIF orientation, which both processors leave to the
/// caller.
///
/// ```
/// use warpfeed::{Preprocessor, PreprocessorOptions, hugging_face_ops};
///
/// let vit = r#"{"do_normalize": true, "do_rescale": true, "do_resize": true, "image_mean": [0.5, 0.5, 0.5],
///     "image_processor_type": "ViTImageProcessor", "image_std": [0.5, 0.5, 0.5], "resample": 2,
///     "rescale_factor": 0.00392156862745098, "size": {"height": 224, "width": 224}}"#;
/// let preprocessor = Preprocessor::new(hugging_face_ops(vit)?, &PreprocessorOptions::default())?;
/// assert_eq!(preprocessor.image_size().height, 224);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// [`Error::Parameter`] for a setting that is missing or has a senseless value, [`Error::Unsupported`] for one that is
/// not known or not supported.
pub fn hugging_face_ops(text: &str) -> Result<Vec<Op>> {
    let mut settings = object(NAME, text)?;
    settings.retain(|setting, value| !value.is_null() && !OTHERS.contains(&setting.as_str()));
    let mut ops = Vec::new();
    let resample = settings.remove("resample");
    let size = settings.remove("size");
    if flag(&mut settings, "do_resize", true)? {
        let interpolation = match &resample {
            None => Interpolation::Bilinear,
            Some(number) => match number.as_u64() {
                Some(0) => Interpolation::Nearest,
                Some(1) => Interpolation::Lanczos,
                Some(2) => Interpolation::Bilinear,
                Some(3) => Interpolation::Bicubic,
                Some(4) => Interpolation::Box,
                Some(5) => Interpolation::Hamming,
                _ => return Err(unsupported(NAME, "resample", number)),
            },
        };
        let size = size.ok_or_else(|| Error::parameter(NAME, "size", "given with do_resize", "none"))?;
        let resize = match &size {
            Value::Object(sides) if sides.len() == 1 && sides.contains_key("shortest_edge") => {
                Resize::shorter_side(side(NAME, "size", &sides["shortest_edge"])?)
            }
            size => Resize::new(sides("size", size)?),
        };
        ops.push(resize.interpolation(interpolation).into());
    }
    let crop_size = settings.remove("crop_size");
    if flag(&mut settings, "do_center_crop", false)? {
        let size = match crop_size {
            None => return Err(Error::parameter(NAME, "crop_size", "given with do_center_crop", "none")),
            // Here a single number is a square, whichever the class.
            Some(number) if number.is_number() => side(NAME, "crop_size", &number)?.into(),
            Some(size) => sides("crop_size", &size)?,
        };
        ops.push(CenterCrop::new(size).into());
    }
    let factor = settings.remove("rescale_factor");
    let (mean, std) = (settings.remove("image_mean"), settings.remove("image_std"));
    if !flag(&mut settings, "do_rescale", true)? {
        return Err(unsupported(NAME, "do_rescale", &false.into()));
    }
    if let Some(factor) = factor.filter(|factor| factor.as_f64().is_none_or(|f| (f * 255.0 - 1.0).abs() > 1e-6)) {
        return Err(unsupported(NAME, "rescale_factor", &factor));
    }
    if flag(&mut settings, "do_normalize", true)? {
        let given = |setting, value: Option<Value>| {
            let value = value.ok_or_else(|| Error::parameter(NAME, setting, "given with do_normalize", "none"))?;
            three(NAME, setting, &value)
        };
        ops.push(Normalize::new(given("image_mean", mean)?, given("image_std", std)?).into());
    }
    // Settings that are switched off have no effect.
    settings.retain(|setting, value| !(setting.starts_with("do_") && *value == false));
    match settings.iter().next() {
        Some((setting, value)) => Err(unsupported(NAME, setting, value)),
        None => Ok(ops),
    }
}

fn flag(settings: &mut Map<String, Value>, setting: &'static str, usual: bool) -> Result<bool> {
    let value = settings.remove(setting).unwrap_or_else(|| usual.into());
    value.as_bool().ok_or_else(|| Error::parameter(NAME, setting, "true or false", &value))
}

/// A height and a width.
fn sides(setting: &'static str, value: &Value) -> Result<Size> {
    match value {
        Value::Object(sides) if sides.len() == 2 && sides.contains_key("height") && sides.contains_key("width") => {
            Ok(Size::new(side(NAME, setting, &sides["width"])?, side(NAME, setting, &sides["height"])?))
        }
        value => Err(unsupported(NAME, setting, value)),
    }
}
