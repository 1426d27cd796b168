//! Usual pipelines by name, and published recipes that models were trained with and are evaluated with, each with a
//! link to its source. Targets have as many classes as the source has names, or are left out.

mod detection;
mod published;

use crate::error::{Error, Result};
use crate::mix::Mix;
use crate::ops::transform::{Transform, random_horizontal_flip, random_resized_crop};
use crate::ops::{
    AugMix, AutoAugment, AutoAugmentPolicy, Interpolation, Normalize, RandAugment, TransformFile, TrivialAugment,
};
use crate::targets::TargetSpec;
use std::fmt;
use std::str::FromStr;

/// Means of red, green and blue over ImageNet, for values of 0 to 1.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Standard deviations of red, green and blue over ImageNet, for values of 0 to 1.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

macro_rules! presets {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $link:expr, $description:literal;)*) => {
        /// A usual pipeline, or one that published models were trained with and are evaluated with.
        ///
        /// The usual pipelines end in 224 x 224 pixels, normalized with ImageNet's mean and standard deviation. A
        /// published pipeline has all parts of its recipe that concern data: transforms, views, mixing, and how often
        /// each sample is repeated. [`link`](Self::link) names its source. The variant with `Eval` is the one for
        /// published accuracies. Recipes of detection and segmentation end with the published model's own
        /// preprocessing: a resize, and normalization. The trained model must not repeat it.
        ///
        /// ```
        /// use warpfeed::{Pipeline, Preset, source::EncodedImages, image::Size};
        ///
        /// let images = EncodedImages::new([(Vec::new(), 0)]).with_classes(["cat", "dog"]);
        /// let pipeline = Pipeline::builder(images.clone()).preset(Preset::Train).build()?;
        /// assert_eq!(pipeline.image_size(), Size::new(224, 224));
        ///
        /// let pipeline = Pipeline::builder(images).preset("resnet50-v2".parse()?).build()?;
        /// assert_eq!(pipeline.image_size(), Size::new(176, 176));
        /// assert_eq!(Preset::ResNet50V2.mix().unwrap().to_string(), "torchvision=0.2/1");
        /// # Ok::<(), warpfeed::Error>(())
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Preset {
            $($(#[$doc])* #[doc = concat!(" Written `", $name, "`.")] $variant,)*
        }

        impl Preset {
            /// All presets.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The preset's name, as the command reads it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// A description in one line.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => $description,)*
                }
            }

            /// The source of a published recipe. `None` for the usual pipelines.
            #[must_use]
            pub const fn link(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => $link,)*
                }
            }
        }
    };
}

const TORCHVISION_V1: Option<&str> =
    Some("https://github.com/pytorch/vision/tree/main/references/classification#resnet");
const TORCHVISION_V2: Option<&str> = Some("https://github.com/pytorch/vision/issues/3995#issuecomment-1013906621");
const DEIT: Option<&str> = Some("https://github.com/facebookresearch/deit/blob/main/README_deit.md");
const DEIT3: Option<&str> = Some("https://github.com/facebookresearch/deit/blob/main/README_revenge.md");
const CONVNEXT: Option<&str> = Some("https://github.com/facebookresearch/ConvNeXt/blob/main/TRAINING.md");
const STRIKES_BACK: Option<&str> = Some("https://arxiv.org/abs/2110.00476");
const DINO: Option<&str> = Some("https://github.com/facebookresearch/dino/blob/main/main_dino.py");
const SIMCLR: Option<&str> = Some("https://arxiv.org/abs/2002.05709");

const DETECTION: Option<&str> = Some("https://github.com/pytorch/vision/tree/main/references/detection");
const RETINANET_V2: Option<&str> = Some("https://github.com/pytorch/vision/pull/5756");
const MASK_RCNN_V2: Option<&str> = Some("https://github.com/pytorch/vision/pull/5773");
const SEGMENTATION: Option<&str> = Some("https://github.com/pytorch/vision/tree/main/references/segmentation");
const DETR: Option<&str> = Some("https://github.com/facebookresearch/detr/blob/main/datasets/coco.py");
const ULTRALYTICS_TRAINING: Option<&str> = Some("https://docs.ultralytics.com/usage/cfg/#augmentation-settings");
const ULTRALYTICS: Option<&str> = Some("https://docs.ultralytics.com/modes/val/");

presets! {
    /// Training: random resized crop, horizontal flip with probability 0.5.
    Train = "train", None, "Random resized crop 224, random horizontal flip, normalize";
    /// Like [`Train`](Self::Train), followed by [`AutoAugment`] for ImageNet.
    AutoAugment = "auto-augment", None, "As train, with AutoAugment for ImageNet before normalize";
    /// Like [`Train`](Self::Train), followed by [`RandAugment`].
    RandAugment = "rand-augment", None, "As train, with RandAugment (2 operations of magnitude 9) before normalize";
    /// Like [`Train`](Self::Train), followed by [`TrivialAugment`].
    TrivialAugment = "trivial-augment", None, "As train, with TrivialAugment before normalize";
    /// Like [`Train`](Self::Train), followed by [`AugMix`].
    AugMix = "aug-mix", None, "As train, with AugMix before normalize";
    /// Evaluation: shorter side 256, center crop.
    Eval = "eval", None, "Shorter side to 256, center crop 224, normalize";
    /// Training of torchvision's first weights of ResNet-50: the same as [`Train`](Self::Train).
    ResNet50V1 = "resnet50-v1", TORCHVISION_V1, "Training of torchvision's ResNet-50, V1 weights";
    /// Evaluation of these weights: the same as [`Eval`](Self::Eval).
    ResNet50V1Eval = "resnet50-v1-eval", TORCHVISION_V1, "Evaluation of the same";
    /// Training of torchvision's second weights of ResNet-50: random resized crop 176, flip, TrivialAugment, erasing;
    /// MixUp or CutMix; each image four times.
    ResNet50V2 = "resnet50-v2", TORCHVISION_V2, "Training of torchvision's ResNet-50, V2 weights";
    /// Evaluation of these weights: shorter side 232, center crop 224.
    ResNet50V2Eval = "resnet50-v2-eval", TORCHVISION_V2, "Evaluation of the same";
    /// Training of DeiT: random resized crop 224, flip, timm's `rand-m9-mstd0.5-inc1`, erasing with noise; MixUp or
    /// CutMix; each image three times.
    DeiT = "deit", DEIT, "Training of DeiT";
    /// Evaluation of DeiT: shorter side 256, bicubic, center crop 224.
    DeiTEval = "deit-eval", DEIT, "Evaluation of DeiT";
    /// Training of DeiT III at 224 pixels: random resized crop, flip, 3-Augment, color jitter; MixUp or CutMix; each
    /// image three times.
    DeiT3 = "deit3", DEIT3, "Training of DeiT III (ViT-S at 224)";
    /// Evaluation of DeiT III: shorter side 224, bicubic, center crop 224.
    DeiT3Eval = "deit3-eval", DEIT3, "Evaluation of DeiT III";
    /// Training of ConvNeXt: like [`DeiT`](Self::DeiT), but each image once.
    ConvNeXt = "convnext", CONVNEXT, "Training of ConvNeXt";
    /// Evaluation of ConvNeXt: shorter side 256, bicubic, center crop 224.
    ConvNeXtEval = "convnext-eval", CONVNEXT, "Evaluation of ConvNeXt";
    /// Training of ResNet strikes back, procedure A1: random resized crop 224, flip, timm's `rand-m7-mstd0.5-inc1`;
    /// MixUp or CutMix; each image three times.
    ResNet50A1 = "resnet50-a1", STRIKES_BACK, "Training of ResNet-50 by ResNet strikes back, A1";
    /// Evaluation of A1: shorter side 235, bicubic, center crop 224.
    ResNet50A1Eval = "resnet50-a1-eval", STRIKES_BACK, "Evaluation of the same";
    /// Training of ResNet strikes back, procedure A2: like [`ResNet50A1`](Self::ResNet50A1), with less MixUp and no
    /// smoothing.
    ResNet50A2 = "resnet50-a2", STRIKES_BACK, "Training of ResNet-50 by ResNet strikes back, A2";
    /// Evaluation of A2: the same as [`ResNet50A1Eval`](Self::ResNet50A1Eval).
    ResNet50A2Eval = "resnet50-a2-eval", STRIKES_BACK, "Evaluation of the same";
    /// Training of ResNet strikes back, procedure A3: random resized crop 160, flip, timm's `rand-m6-mstd0.5-inc1`;
    /// MixUp or CutMix.
    ResNet50A3 = "resnet50-a3", STRIKES_BACK, "Training of ResNet-50 by ResNet strikes back, A3";
    /// Evaluation of A3: the same as [`ResNet50A1Eval`](Self::ResNet50A1Eval).
    ResNet50A3Eval = "resnet50-a3-eval", STRIKES_BACK, "Evaluation of the same";
    /// Training of DINO with the defaults of its code: two views of 224 pixels and eight of 96. The second view of 224
    /// pixels has another blur and is sometimes solarized.
    Dino = "dino", DINO, "Training of DINO: two global views and eight local ones";
    /// Evaluation of DINO: shorter side 256, bicubic, center crop 224.
    DinoEval = "dino-eval", DINO, "Evaluation of DINO";
    /// Training of SimCLR: two views of 224 pixels with strong color jitter, gray and blur; values of 0 to 1.
    SimClr = "simclr", SIMCLR, "Training of SimCLR: two views";
    /// Evaluation of SimCLR: shorter side 256, bicubic, center crop 224; values of 0 to 1.
    SimClrEval = "simclr-eval", SIMCLR, "Evaluation of SimCLR";
    /// Training of torchvision's SSD300: distortion of colors, zoom out, IoU crop, flip, 300 x 300.
    Ssd = "ssd", DETECTION, "Training of torchvision's SSD300";
    /// Evaluation of SSD300: 300 x 300.
    SsdEval = "ssd-eval", DETECTION, "Evaluation of the same";
    /// Training of torchvision's SSDlite320: IoU crop, flip, 320 x 320.
    SsdLite = "ssdlite", DETECTION, "Training of torchvision's SSDlite320";
    /// Evaluation of SSDlite320: 320 x 320.
    SsdLiteEval = "ssdlite-eval", DETECTION, "Evaluation of the same";
    /// Training of torchvision's RetinaNet, V2 weights: shorter side 480 to 800 in steps of 32, longer side 1333 at
    /// most, flip. Images differ in size.
    RetinaNet = "retinanet", RETINANET_V2, "Training of torchvision's RetinaNet, V2 weights; images differ in size";
    /// Evaluation of RetinaNet: shorter side 800, longer side 1333 at most. Images differ in size.
    RetinaNetEval = "retinanet-eval", RETINANET_V2, "Evaluation of the same; images differ in size";
    /// Training of torchvision's Faster R-CNN, V1 weights: flip, shorter side 800, longer side 1333 at most. Images
    /// differ in size. The V2 weights have the recipe [`MaskRcnn`](Self::MaskRcnn), without masks.
    FasterRcnn = "faster-rcnn", DETECTION, "Training of torchvision's Faster R-CNN, V1 weights; images differ in size";
    /// Evaluation of Faster R-CNN: the same as [`RetinaNetEval`](Self::RetinaNetEval).
    FasterRcnnEval = "faster-rcnn-eval", DETECTION, "Evaluation of the same; images differ in size";
    /// Training of torchvision's Mask R-CNN, V2 weights: scale jitter, crop of 1024 x 1024, flip.
    MaskRcnn = "mask-rcnn", MASK_RCNN_V2, "Training of torchvision's Mask R-CNN, V2 weights";
    /// Evaluation of Mask R-CNN: the same as [`RetinaNetEval`](Self::RetinaNetEval).
    MaskRcnnEval = "mask-rcnn-eval", MASK_RCNN_V2, "Evaluation of the same; images differ in size";
    /// Training of torchvision's Keypoint R-CNN: flip, shorter side 640 to 800 in steps of 32, longer side 1333 at
    /// most. Images differ in size.
    KeypointRcnn = "keypoint-rcnn", DETECTION, "Training of torchvision's Keypoint R-CNN; images differ in size";
    /// Evaluation of Keypoint R-CNN: the same as [`RetinaNetEval`](Self::RetinaNetEval).
    KeypointRcnnEval = "keypoint-rcnn-eval", DETECTION, "Evaluation of the same; images differ in size";
    /// Training of torchvision's models of segmentation: shorter side 260 to 1040, flip, crop 480, padded.
    Segmentation = "segmentation", SEGMENTATION, "Training of torchvision's segmentation";
    /// Evaluation of segmentation: shorter side 520. Images differ in size.
    SegmentationEval = "segmentation-eval", SEGMENTATION, "Evaluation of the same; images differ in size";
    /// Training of DETR: flip; for half of the images shorter side 400, 500 or 600 and a crop with sides of 384 to 600;
    /// shorter side 480 to 800 in steps of 32, longer side 1333 at most. Images differ in size.
    Detr = "detr", DETR, "Training of DETR; images differ in size";
    /// Evaluation of DETR: shorter side 800, longer side 1333 at most. Images differ in size.
    DetrEval = "detr-eval", DETR, "Evaluation of DETR; images differ in size";
    /// Training of Ultralytics' YOLO: mosaics until 10 of its 100 epochs are left, its perspective, jitter of colors,
    /// flip, 640 x 640; values of 0 to 1.
    Yolo = "yolo", ULTRALYTICS_TRAINING, "Training of Ultralytics' YOLO on squares of 640, 100 epochs";
    /// Evaluation of Ultralytics' YOLO on squares: letterbox 640; values of 0 to 1.
    YoloEval = "yolo-eval", ULTRALYTICS, "Evaluation of Ultralytics' YOLO on squares of 640";
    /// Training on satellites' images, as SSL4EO-S12's and EuroSAT's: random resized crop 224 of 20 to 100 % of the area,
    /// flips; values divided by [`max_value`](crate::PipelineBuilder::max_value), which is 10,000 for Sentinel-2. It takes
    /// any number of bands ([`pixels`](crate::PipelineBuilder::pixels)).
    Satellite = "satellite", None, "Training on satellites' images of any number of bands";
    /// Evaluation of the same: shorter side 256, center crop 224.
    SatelliteEval = "satellite-eval", None, "Evaluation of the same";
    /// Training on X-rays, as TorchXRayVision's: the central square, 224; rotation by up to 45 degrees, moves by up to 15
    /// %, scales of 0.85 to 1.15; values from -1,024 to 1,024. It takes 16 bits
    /// ([`pixels`](crate::PipelineBuilder::pixels)); [`max_value`](crate::PipelineBuilder::max_value) is 4,095 for 12 bits.
    XRay = "xray", None, "Training on X-rays of 8 or 16 bits";
    /// Evaluation of the same, without rotation, moves and scales.
    XRayEval = "xray-eval", None, "Evaluation of the same";
}

impl Preset {
    /// The preset's transforms, and its views if it has several.
    #[must_use]
    pub fn transforms(self) -> TransformFile {
        let bilinear = Interpolation::Bilinear;
        let ops = match self {
            Self::Train | Self::ResNet50V1 => train_with(None),
            Self::AutoAugment | Self::RandAugment | Self::TrivialAugment | Self::AugMix => train_with(self.suite()),
            Self::Eval | Self::ResNet50V1Eval => published::eval(256, bilinear),
            Self::ResNet50V2 => published::resnet50_v2(),
            Self::ResNet50V2Eval => published::eval(232, bilinear),
            Self::DeiT | Self::ConvNeXt => published::deit(),
            Self::DeiT3 => published::deit3(),
            Self::DeiT3Eval => published::eval(224, Interpolation::Bicubic),
            Self::ResNet50A1 | Self::ResNet50A2 => published::timm(224, "rand-m7-mstd0.5-inc1"),
            Self::ResNet50A3 => published::timm(160, "rand-m6-mstd0.5-inc1"),
            Self::ResNet50A1Eval | Self::ResNet50A2Eval | Self::ResNet50A3Eval => {
                published::eval(235, Interpolation::Bicubic)
            }
            Self::DeiTEval | Self::ConvNeXtEval | Self::DinoEval => published::eval(256, Interpolation::Bicubic),
            Self::SimClrEval => published::simclr_eval(),
            Self::Ssd => detection::ssd(),
            Self::SsdEval => detection::ssd300(),
            Self::SsdLite => detection::ssdlite(),
            Self::SsdLiteEval => detection::ssdlite320(),
            Self::RetinaNet => detection::retinanet(),
            Self::FasterRcnn => detection::faster_rcnn(),
            Self::MaskRcnn => detection::mask_rcnn(),
            Self::KeypointRcnn => detection::keypoint_rcnn(),
            Self::RetinaNetEval | Self::FasterRcnnEval | Self::MaskRcnnEval | Self::KeypointRcnnEval => {
                detection::rcnn([800])
            }
            Self::Segmentation => detection::segmentation(),
            Self::SegmentationEval => detection::segmentation_eval(),
            Self::Detr => detection::detr(),
            Self::DetrEval => detection::detr_eval(),
            Self::Yolo => detection::yolo(),
            Self::YoloEval => detection::yolo_eval(),
            Self::Satellite => published::satellite(),
            Self::SatelliteEval => published::satellite_eval(),
            Self::XRay => published::xray(true),
            Self::XRayEval => published::xray(false),
            Self::Dino => return published::dino(),
            Self::SimClr => return published::simclr(),
        };
        ops.into()
    }

    /// The preset's transforms and views on 8-bit images: those before normalization.
    #[must_use]
    pub fn pixel_transforms(self) -> TransformFile {
        self.transforms().before_normalize()
    }

    /// The preset's transforms. If it has several views, the transforms of the first.
    #[must_use]
    pub fn ops(self) -> Vec<Transform> {
        self.transforms().into_first_view()
    }

    /// The preset's transforms on 8-bit images: those before normalization. If it has several views, the transforms of
    /// the first.
    #[must_use]
    pub fn pixel_ops(self) -> Vec<Transform> {
        self.pixel_transforms().into_first_view()
    }

    /// The fields that the recipe's models are trained with, in addition to the images; empty for recipes of
    /// classification. With fields, the recipe drops objects itself where it should, and not at its end
    /// ([`PipelineBuilder::sanitize`](crate::PipelineBuilder::sanitize)).
    #[must_use]
    pub const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Ssd
            | Self::SsdEval
            | Self::SsdLite
            | Self::SsdLiteEval
            | Self::RetinaNet
            | Self::RetinaNetEval
            | Self::FasterRcnn
            | Self::FasterRcnnEval
            | Self::Detr
            | Self::DetrEval
            | Self::Yolo
            | Self::YoloEval => detection::DETECTION,
            Self::MaskRcnn | Self::MaskRcnnEval => detection::INSTANCES,
            Self::KeypointRcnn | Self::KeypointRcnnEval => detection::PERSONS,
            Self::Segmentation | Self::SegmentationEval => detection::SEGMENTATION,
            _ => &[],
        }
    }

    /// The automatic augmentation that the preset has in addition to [`Train`](Self::Train).
    #[must_use]
    pub fn suite(self) -> Option<Transform> {
        match self {
            Self::AutoAugment => Some(AutoAugment::new(AutoAugmentPolicy::ImageNet).into()),
            Self::RandAugment => Some(RandAugment::new().into()),
            Self::TrivialAugment => Some(TrivialAugment::new().into()),
            Self::AugMix => Some(AugMix::new().into()),
            _ => None,
        }
    }

    /// The mixing of a batch's images.
    #[must_use]
    pub fn mix(self) -> Option<Mix> {
        match self {
            Self::ResNet50V2 => Some(Mix::torchvision(0.2, 1.0)),
            Self::DeiT | Self::DeiT3 | Self::ConvNeXt => Some(Mix::timm(0.8, 1.0)),
            Self::ResNet50A1 => Some(Mix::timm(0.2, 1.0)),
            Self::ResNet50A2 | Self::ResNet50A3 => Some(Mix::timm(0.1, 1.0)),
            _ => None,
        }
    }

    /// Targets of `classes` classes, with a probability for each class and the recipe's label smoothing. `None` if the
    /// recipe does not mix images.
    #[must_use]
    pub fn targets(self, classes: u32) -> Option<TargetSpec> {
        let smoothing = match self {
            Self::ResNet50V2 | Self::DeiT | Self::ConvNeXt | Self::ResNet50A1 => 0.1,
            _ => 0.0,
        };
        self.mix().map(|_| TargetSpec::soft(classes).smoothing(smoothing))
    }

    /// Number of times that each sample comes in a row. If it is more than 1, pass it to
    /// [`Sampler::repeated`](crate::Sampler::repeated).
    #[must_use]
    pub const fn repetitions(self) -> u32 {
        match self {
            Self::ResNet50V2 => 4,
            Self::DeiT | Self::DeiT3 | Self::ResNet50A1 | Self::ResNet50A2 => 3,
            _ => 1,
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|preset| preset.name() == text);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|preset| preset.name()).collect();
            Error::parameter("preset", "name", names.join(", "), text)
        })
    }
}

fn normalize() -> Transform {
    Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into()
}

/// The transforms of [`Preset::Train`], with one more before normalization.
fn train_with(augment: Option<Transform>) -> Vec<Transform> {
    let geometry = [random_resized_crop(224), random_horizontal_flip(0.5)];
    geometry.into_iter().chain(augment).chain([normalize()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{
        BOXES, BatchFields, BoxFormat, Boxes, Fields, KEYPOINTS, KeyPoints, LABELS, MASK, MASKS, Mask,
    };
    use crate::pipeline::Pipeline;
    use crate::raster::{Image, Size};
    use crate::source::{Described, EncodedImages, SourceExt};
    use serde_json::Value;

    /// Whether two written forms are equal, except for the last digits of numbers.
    fn equal(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
            }
            (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
            (Value::Number(a), Value::Number(b)) => (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-6,
            _ => a == b,
        }
    }

    /// The factories' transforms come from `tests/reference/presets.py`.
    #[test]
    fn published_presets_are_what_the_factories_make() {
        let file: Value = serde_json::from_str(include_str!("../../tests/reference/presets.json")).unwrap();
        let factories = file["presets"].as_object().unwrap();
        for (name, made) in factories {
            // Reading and writing again fills in defaults.
            let want: Vec<Transform> = serde_json::from_value(made.clone()).unwrap();
            let (want, got) = (serde_json::to_value(want).unwrap(), name.parse::<Preset>().unwrap().ops());
            let got = serde_json::to_value(got).unwrap();
            assert!(equal(&got, &want), "{name}:\n{got}\n{want}");
        }
        // No package has the others' transforms.
        let published = Preset::ALL.iter().filter(|preset| preset.link().is_some());
        let missing: Vec<_> = published.filter(|preset| !factories.contains_key(preset.name())).copied().collect();
        let references = [Preset::Segmentation, Preset::SegmentationEval, Preset::Detr, Preset::DetrEval];
        assert_eq!(missing, [&[Preset::Dino][..], &references, &[Preset::Yolo, Preset::YoloEval]].concat());
    }

    fn builder() -> crate::PipelineBuilder {
        let jpeg = crate::encode::encode_jpeg(&Image::new(Size::new(300, 260)), &Default::default()).unwrap();
        let images = EncodedImages::new((0..6).map(|label| (jpeg.clone(), label % 3))).with_classes(["a", "b", "c"]);
        let names = [BOXES, LABELS, MASKS, KEYPOINTS, MASK];
        let images = images.fields(names, |_: Described<'_>| {
            let size = Size::new(300, 260);
            // The sides of the second object are below 1 pixel at any scale.
            let boxes = vec![[90.0, 80.0, 210.0, 190.0], [20.0, 20.0, 20.1, 20.1]];
            let masks = [vec![1_u8; size.area_px() as usize], vec![1; size.area_px() as usize]];
            Fields::new()
                .with(BOXES, Boxes::new(BoxFormat::Xyxy, boxes))?
                .with(LABELS, vec![3, 4])?
                .with(MASKS, Mask::of_objects(size, masks)?)?
                .with(KEYPOINTS, KeyPoints::of_objects(1, vec![[100.0, 100.0]; 2], vec![2; 2])?)?
                .with(MASK, Mask::new(size, vec![1_u8; size.area_px() as usize])?.with_fill(255))
        });
        Pipeline::builder(images).device(crate::Device::Cpu).shuffle(1).batch_size(6)
    }

    #[test]
    fn presets_mix_and_repeat_as_they_say() {
        for &preset in Preset::ALL {
            assert_eq!(preset.name().parse::<Preset>().unwrap(), preset);
            if builder().preset(preset).is_ragged() {
                continue;
            }
            let pipeline = builder().preset(preset).build().unwrap();
            let batch = pipeline.epoch(0).next().unwrap().unwrap();
            assert_eq!(batch.mixed().is_some(), preset.mix().is_some(), "{preset}");
            assert_eq!(batch.targets().is_some(), preset.mix().is_some(), "{preset}");
            let first = batch.indices()[0];
            let times = batch.indices().iter().take_while(|index| **index == first).count() as u32;
            assert_eq!(times, preset.repetitions(), "{preset}");
        }
        assert!("resnet50-v3".parse::<Preset>().unwrap_err().to_string().contains("resnet50-v2-eval"));
    }

    #[test]
    fn recipes_of_detection_deliver_their_fields_and_sizes() {
        let sizes = |preset: Preset| -> (Vec<Size>, Vec<usize>) {
            let builder = builder().batch_size(1).preset(preset);
            let of = |fields: &BatchFields, sizes: &mut Vec<Size>, objects: &mut Vec<usize>| {
                let found: Vec<&str> = fields.image(0).unwrap().iter().map(|(name, _)| name).collect();
                assert_eq!(found, preset.fields(), "{preset}");
                sizes.extend(fields.sizes());
                objects.push(fields.image(0).unwrap().objects());
            };
            let (mut sizes, mut objects) = (Vec::new(), Vec::new());
            if builder.is_ragged() {
                assert!(builder.clone().build().unwrap_err().to_string().contains("build_ragged"), "{preset}");
                for batch in builder.build_ragged().unwrap().epoch(0) {
                    of(batch.unwrap().fields(0).unwrap(), &mut sizes, &mut objects);
                }
            } else {
                for batch in builder.build().unwrap().epoch(0) {
                    of(batch.unwrap().fields(0).unwrap(), &mut sizes, &mut objects);
                }
            }
            (sizes, objects)
        };
        for &preset in Preset::ALL.iter().filter(|preset| !preset.fields().is_empty()) {
            let (sizes, objects) = sizes(preset);
            let all = |size: Size| sizes.iter().all(|own| *own == size);
            let shorter: Vec<u32> = sizes.iter().map(|size| size.width.min(size.height)).collect();
            // int(800 x 300 / 260) is 923. An evaluation has all objects, however small they are.
            let right = match preset {
                Preset::Ssd => all(Size::new(300, 300)) && objects.iter().all(|n| *n <= 1),
                Preset::SsdLite => all(Size::new(320, 320)) && objects.iter().all(|n| *n <= 1),
                Preset::SsdEval => all(Size::new(300, 300)) && objects == [2; 6],
                Preset::SsdLiteEval => all(Size::new(320, 320)) && objects == [2; 6],
                Preset::RetinaNet => shorter.iter().all(|px| (479..=800).contains(px)) && objects == [1; 6],
                Preset::FasterRcnn => all(Size::new(923, 800)) && objects == [1; 6],
                Preset::MaskRcnn => all(Size::new(1024, 1024)),
                Preset::KeypointRcnn => shorter.iter().all(|px| (639..=800).contains(px)) && objects == [1; 6],
                Preset::RetinaNetEval
                | Preset::FasterRcnnEval
                | Preset::MaskRcnnEval
                | Preset::KeypointRcnnEval
                | Preset::DetrEval => all(Size::new(923, 800)) && objects == [2; 6],
                Preset::Segmentation => all(Size::new(480, 480)),
                Preset::SegmentationEval => all(Size::new(600, 520)),
                Preset::Detr => shorter.iter().all(|px| px % 32 == 0 && (480..=800).contains(px)),
                // Each image has one object that is not too small, and a mosaic has four images.
                Preset::Yolo => {
                    all(Size::new(640, 640)) && objects.iter().all(|n| *n <= 4) && objects.iter().any(|n| *n > 1)
                }
                Preset::YoloEval => all(Size::new(640, 640)) && objects == [2; 6],
                _ => false,
            };
            assert!(right, "{preset}: {sizes:?} {objects:?}");
        }
    }

    #[test]
    fn fields_that_are_asked_for_replace_the_recipes() {
        let named = builder().fields([BOXES]).preset(Preset::Ssd).build().unwrap();
        let later = builder().preset(Preset::Ssd).fields([BOXES]).build().unwrap();
        for pipeline in [named, later] {
            let batch = pipeline.epoch(0).next().unwrap().unwrap();
            assert!(batch.fields(0).unwrap().integers(LABELS).is_err());
        }
        assert!(builder().preset(Preset::Train).build().unwrap().epoch(0).next().unwrap().unwrap().fields(0).is_none());
    }

    #[test]
    fn the_number_of_classes_is_the_sources_unless_targets_say_otherwise() {
        let images = EncodedImages::new((0..6).map(|label| (vec![0xff, 0xd8], label)));
        let unnamed = || Pipeline::builder(images.clone()).preset(Preset::DeiT);
        let refused = unnamed().build().unwrap_err().to_string();
        assert!(refused.contains("TargetSpec::soft") && refused.contains("labels alone"), "{refused}");
        let hard = Preset::DeiT.mix().unwrap().hard_labels(true);
        let unnamed = unnamed().mix(hard).build().unwrap();
        let asked = builder().targets(TargetSpec::soft(1000)).preset(Preset::DeiT).build().unwrap();
        let named = builder().preset(Preset::DeiT).build().unwrap();
        let bytes = |pipeline: &Pipeline| pipeline.memory().batch_bytes - 6 * 3 * 224 * 224 * 4;
        assert!(bytes(&asked) - bytes(&named) == 6 * 4 * 997 && bytes(&named) - bytes(&unnamed) == 6 * 4 * 3);
    }

    #[test]
    fn views_of_self_supervision_have_their_sizes() {
        let sizes = |preset| builder().preset(preset).build().unwrap().view_sizes();
        let side = |side| Size::new(side, side);
        assert_eq!(sizes(Preset::Dino), [(side(224), 1), (side(224), 1), (side(96), 8)]);
        assert_eq!(sizes(Preset::SimClr), [(side(224), 2)]);
        assert_eq!(format!("{:?}", Preset::SimClr.pixel_ops().last().unwrap()), "maybe");
    }
}
