//! The settings that timm publishes with a model.

use super::{object, side, three, unsupported};
use crate::error::{Error, Result};
use crate::ops::{CenterCrop, Interpolation, Normalize, Op, Resize};
use crate::preset::{IMAGENET_MEAN, IMAGENET_STD};
use crate::raster::Size;
use serde_json::Value;

const NAME: &str = "timm's pretrained_cfg";

/// Settings that say nothing about images.
const OTHERS: [&str; 27] = [
    "architecture",
    "classifier",
    "custom_load",
    "description",
    "file",
    "first_conv",
    "fixed_input_size",
    "hf_hub_filename",
    "hf_hub_id",
    "label_descriptions",
    "label_names",
    "label_offset",
    "license",
    "min_input_size",
    "notes",
    "num_classes",
    "origin_url",
    "paper_ids",
    "paper_name",
    "pool_size",
    "source",
    "state_dict",
    "tag",
    "test_crop_pct",
    "test_input_size",
    "test_pool_size",
    "url",
];

/// The operations of timm's evaluation for a model, from its `pretrained_cfg` or a `config.json` that has one, without
/// the larger size for tests: resize to `floor(size / crop_pct)`, center crop, normalize.
///
/// ```
/// use warpfeed::ops::{Interpolation, Op, Resize};
/// use warpfeed::{Preprocessor, PreprocessorOptions, timm_ops};
///
/// let config = r#"{"architecture": "resnet50", "num_classes": 1000, "pretrained_cfg": {
///     "input_size": [3, 224, 224], "interpolation": "bicubic", "crop_pct": 0.95, "crop_mode": "center",
///     "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]
/// }}"#;
/// let ops = timm_ops(config)?;
/// assert_eq!(ops[0], Op::from(Resize::shorter_side(235).interpolation(Interpolation::Bicubic)));
/// assert_eq!(Preprocessor::new(ops, &PreprocessorOptions::default())?.image_size().width, 224);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// [`Error::Parameter`] for a setting with a senseless value, [`Error::Unsupported`] for one that is not known or not
/// supported.
pub fn timm_ops(text: &str) -> Result<Vec<Op>> {
    let mut settings = object(NAME, text)?;
    if let Some(setup) = settings.remove("pretrained_cfg") {
        settings = serde_json::from_value(setup)
            .map_err(|error| Error::parameter(NAME, "pretrained_cfg", "a JSON object", error))?;
    }
    settings.retain(|setting, value| !value.is_null() && !OTHERS.contains(&setting.as_str()));
    let (width, height) = match settings.remove("input_size").as_ref().map(Value::as_array) {
        None => (224, 224),
        Some(Some(sides)) if sides.len() == 3 => {
            if sides[0] != 3 {
                return Err(unsupported(NAME, "input_size", &sides.clone().into()));
            }
            (side(NAME, "input_size", &sides[2])?, side(NAME, "input_size", &sides[1])?)
        }
        Some(_) => return Err(Error::parameter(NAME, "input_size", "channels, height and width", "another value")),
    };
    let crop_pct = match settings.remove("crop_pct") {
        None => 0.875,
        Some(value) => value
            .as_f64()
            .filter(|share| *share > 0.0 && share.is_finite())
            .ok_or_else(|| Error::parameter(NAME, "crop_pct", "a number above 0", &value))?,
    };
    let interpolation = match settings.remove("interpolation") {
        None => Interpolation::Bicubic,
        Some(value) => match value.as_str() {
            Some("nearest") => Interpolation::Nearest,
            Some("bilinear") => Interpolation::Bilinear,
            Some("bicubic") => Interpolation::Bicubic,
            Some("lanczos") => Interpolation::Lanczos,
            _ => return Err(unsupported(NAME, "interpolation", &value)),
        },
    };
    let whole = |side: u32| (f64::from(side) / crop_pct).floor() as u32;
    let crop_mode = settings.remove("crop_mode").unwrap_or_else(|| "center".into());
    let resize = match crop_mode.as_str() {
        Some("center") if width == height => Resize::shorter_side(whole(width)),
        Some("center") => return Err(unsupported(NAME, "input_size", &format!("{width} x {height}").into())),
        Some("squash") => Resize::new(Size::new(whole(width), whole(height))),
        _ => return Err(unsupported(NAME, "crop_mode", &crop_mode)),
    };
    let mut values = |setting, usual| settings.remove(setting).map_or(Ok(usual), |value| three(NAME, setting, &value));
    let normalize = Normalize::new(values("mean", IMAGENET_MEAN)?, values("std", IMAGENET_STD)?);
    if let Some((setting, value)) = settings.iter().next() {
        return Err(unsupported(NAME, setting, value));
    }
    let crop = CenterCrop::new(Size::new(width, height));
    Ok(vec![resize.interpolation(interpolation).into(), crop.into(), normalize.into()])
}
