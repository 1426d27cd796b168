//! A list of all transforms and operations, for people.

use super::*;
use serde_json::Value;

/// A transform or an operation in the list of all ([`catalog`]).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CatalogEntry {
    /// The name in the written form.
    pub name: &'static str,
    /// Whether it draws random numbers: a transform. Otherwise it is an explicit operation.
    pub random: bool,
    /// A constructor in Rust, with example parameters. Methods of the type change the parameters that are not given.
    pub constructor: &'static str,
    /// The written form of the constructor's result, as in a file of transforms. Parameters that the constructor does
    /// not have are at their defaults.
    pub written: Value,
}

macro_rules! entries {
    ($($constructor:expr,)*) => {
        [$((stringify!($constructor), Transform::from($constructor)),)*]
    };
}

/// Lists every transform, then every explicit operation, by their order in the documentation.
///
/// ```
/// let rotation = warpfeed::ops::catalog().into_iter().find(|entry| entry.name == "random_rotation").unwrap();
/// assert_eq!(rotation.constructor, "RandomRotation::new(-5.0..=5.0)");
/// assert_eq!(rotation.written["degrees"], serde_json::json!([-5.0, 5.0]));
/// ```
#[must_use]
pub fn catalog() -> Vec<CatalogEntry> {
    let points = [[0.0, 0.0], [99.0, 0.0], [99.0, 99.0], [0.0, 99.0]];
    let moved = [[5.0, 2.0], [99.0, 0.0], [95.0, 99.0], [0.0, 97.0]];
    let rect = Rect { x: 10, y: 20, width: 100, height: 80 };
    let timm = |text| TimmAugment::parse(text).ok().map(Transform::from);
    let random = entries![
        RandomHorizontalFlip::new(0.5),
        RandomVerticalFlip::new(0.5),
        RandomRotation::new(-5.0..=5.0),
        RandomAffine::new(-5.0..=5.0),
        RandomCrop::new(224),
        CornerCrop::new(Corner::UpperLeft, 224),
        RandomResizedCrop::new(224),
        ColorJitter::new(),
        RandomGrayscale::new(0.1),
        RandomChannelPermutation::new(),
        RandomPhotometricDistort::new(0.5),
        RandomGaussianBlur::new(9, 0.1..=2.0),
        RandomGaussianNoise::new(0.1),
        RandomDilation::new(2..=3),
        RandomErosion::new(2..=3),
        RandomInvert::new(0.5),
        RandomPosterize::new(4, 0.5),
        RandomSolarize::new(128.0, 0.5),
        RandomEqualize::new(0.5),
        RandomAutocontrast::new(0.5),
        RandomSharpness::new(2.0, 0.5),
        RandomPerspective::new(0.5, 0.5),
        RandomElastic::new(),
        RandomPillowGaussianBlur::new(0.1..=2.0),
        RandomJpeg::new(50..=95),
        RandomErasing::new(0.25),
        RandomIouCrop::new(),
        MinIouCrop::new([0.1, 0.3, 0.5, 0.7, 0.9]),
        RandomBboxCrop::new([0.0, 0.1, 0.3]),
        RandomZoomOut::new(0.5),
        Letterbox::new(640),
        YoloPerspective::new(640),
        RandomMosaic::new(640),
        RandomMixUp::new(32.0),
        RandomCopyPaste::new(),
        YoloCopyPaste::new(0.5),
        ScaleJitter::new(1024),
        RandomShortestSize::new([480, 512]),
        FixedSizeCrop::new(1024),
        RandomResize::new(260..=1040),
        RandomSizeCrop::new(384..=600),
        SegmentationCrop::new(480),
        AutoAugment::new(AutoAugmentPolicy::ImageNet),
        RandAugment::new(),
        TrivialAugment::new(),
        AugMix::new(),
        OneOf::new([Hflip.into(), Vflip.into()]),
        RandomOrder::new([Hflip.into(), Vflip.into()]),
        Maybe::new(0.5, [Hflip.into()]),
        Repeat::new(2, [random_rotation(-5.0..=5.0)]),
        ByEpoch::new(Hflip).then(90, Vflip),
    ];
    let explicit = entries![
        Hflip,
        Vflip,
        Rotate::new(5.0),
        Affine::new(),
        AffineMatrix::new([1.0, 0.1, 0.0, 0.0, 1.0, 0.0]),
        Perspective::new(points, moved),
        Elastic::new(1),
        Resize::new(Size::new(320, 240)),
        ResizedCrop::new(rect, 224),
        Crop::new(10, 20, 224),
        CenterCrop::new(224),
        Pad::new(4),
        Brightness::new(1.2),
        Contrast::new(1.2),
        Saturation::new(1.2),
        Hue::new(0.1),
        Grayscale,
        Invert,
        Posterize::new(4),
        Solarize::new(128.0),
        SolarizeAdd::new(20),
        Equalize,
        Autocontrast,
        Sharpness::new(2.0),
        PermuteChannels::new([2, 1, 0]),
        GaussianBlur::new(9, 1.5),
        PillowGaussianBlur::new(1.5),
        GaussianNoise::new(0.1, 1),
        Dilate::new(3),
        Erode::new(3),
        Jpeg::new(75),
        WeightedSum::new(0.5),
        Erase::new(rect),
        Clamp,
        Sanitize::new(),
        SelectObjects::centered_in(rect),
        KeepObjects::new([0, 2]),
        Mosaic::new(320).at([10, 20]),
        MixUp::new(0.5, Part::new(17)),
        CopyPaste::new(Part::new(17)),
        UnlabelKeypoints,
        Normalize::new([0.5; 3], [0.25; 3]),
    ];
    let entry = |(constructor, transform): (&'static str, Transform)| {
        let written = serde_json::to_value(&transform).unwrap_or_default();
        let random = !matches!(transform, Transform::Explicit(_));
        CatalogEntry { name: transform.name(), random, constructor, written }
    };
    let timm = timm("rand-m9-mstd0.5-inc1").map(|timm| (r#"TimmAugment::parse("rand-m9-mstd0.5-inc1")?"#, timm));
    random.into_iter().chain(timm).chain(explicit).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const MARKS: [&str; 2] = ["<!--transforms-->\n", "<!--/transforms-->"];

    /// The table of docs/operations.md.
    fn table() -> String {
        let mut table = String::new();
        for (random, title) in [(true, "transform"), (false, "operation")] {
            let _ = write!(table, "| {title} | in Rust | as JSON |\n| --- | --- | --- |\n");
            for entry in catalog().into_iter().filter(|entry| entry.random == random) {
                let _ = writeln!(table, "| {} | `{}` | `{}` |", entry.name, entry.constructor, entry.written);
            }
            table.push('\n');
        }
        table
    }

    #[test]
    fn every_name_is_in_the_list_once_and_its_written_form_is_read() {
        let mut listed: Vec<&str> = catalog().iter().map(|entry| entry.name).collect();
        let mut names = [Transform::NAMES, Op::NAMES].concat();
        listed.sort_unstable();
        names.sort_unstable();
        assert_eq!(listed, names);
        for entry in catalog() {
            let read: Transform = serde_json::from_value(entry.written.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), entry.written, "{}", entry.constructor);
            read.validate().unwrap();
        }
    }

    #[test]
    fn the_documentation_has_the_list() {
        let text = include_str!("../../docs/operations.md");
        let (_, rest) = text.split_once(MARKS[0]).expect("the table begins");
        let (found, _) = rest.split_once(MARKS[1]).expect("the table ends");
        let want = table();
        assert!(found == want, "write this between the marks in docs/operations.md:\n{want}");
    }
}
