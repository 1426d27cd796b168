//! The transforms of published detectors and of segmentation. A preset ends with the model's own resize and
//! normalization.

use super::normalize;
use crate::fields::{BOXES, KEYPOINTS, LABELS, MASK, MASKS};
use crate::ops::transform::{Transform, color_jitter, maybe, random_horizontal_flip};
use crate::ops::{
    ByEpoch, FixedSizeCrop, Letterbox, Normalize, RandomIouCrop, RandomMosaic, RandomPhotometricDistort, RandomResize,
    RandomShortestSize, RandomSizeCrop, RandomZoomOut, Resize, Sanitize, ScaleJitter, SegmentationCrop,
    YoloPerspective,
};
use crate::raster::Size;

/// The fields that detectors are trained with.
pub(super) const DETECTION: &[&str] = &[BOXES, LABELS];
/// The fields that Mask R-CNN is trained with.
pub(super) const INSTANCES: &[&str] = &[BOXES, LABELS, MASKS];
/// The fields that Keypoint R-CNN is trained with.
pub(super) const PERSONS: &[&str] = &[BOXES, LABELS, KEYPOINTS];
/// The fields that models of segmentation are trained with.
pub(super) const SEGMENTATION: &[&str] = &[MASK];

/// Means of COCO's images of 0 to 255, as torchvision's references round them.
const MEAN_COLOR: [u8; 3] = [123, 117, 104];
/// Largest longer side of the images of Faster R-CNN and its relatives, and of DETR.
const MAX_SIDE_PX: u32 = 1333;

/// The transforms before a model, objects without a valid box dropped, and the model's own.
fn before<const N: usize>(transforms: [Transform; N], model: Vec<Transform>) -> Vec<Transform> {
    transforms.into_iter().chain([Sanitize::new().into()]).chain(model).collect()
}

/// Preprocessing of torchvision's SSD300: values of 0 to 255, less COCO's means.
pub(super) fn ssd300() -> Vec<Transform> {
    let values = Normalize::new([0.48235, 0.45882, 0.40784], [1.0 / 255.0; 3]);
    vec![Resize::new(Size::new(300, 300)).into(), values.into()]
}

/// Preprocessing of torchvision's SSDlite320: values of -1 to 1.
pub(super) fn ssdlite320() -> Vec<Transform> {
    vec![Resize::new(Size::new(320, 320)).into(), Normalize::new([0.5; 3], [0.5; 3]).into()]
}

/// Preprocessing of torchvision's Faster R-CNN and its relatives, for these lengths of the shorter side.
pub(super) fn rcnn(shorter_sides: impl IntoIterator<Item = u32>) -> Vec<Transform> {
    vec![RandomShortestSize::new(shorter_sides).max_size(MAX_SIDE_PX).into(), normalize()]
}

pub(super) fn ssd() -> Vec<Transform> {
    let distort = RandomPhotometricDistort::new(0.5).into();
    let zoom = RandomZoomOut::new(0.5).fill(MEAN_COLOR).into();
    before([distort, zoom, RandomIouCrop::new().into(), random_horizontal_flip(0.5)], ssd300())
}

pub(super) fn ssdlite() -> Vec<Transform> {
    before([RandomIouCrop::new().into(), random_horizontal_flip(0.5)], ssdlite320())
}

/// The recipe `multiscale`, with which the model does not resize.
pub(super) fn retinanet() -> Vec<Transform> {
    let resize = RandomShortestSize::new((480..=800).step_by(32)).max_size(MAX_SIDE_PX);
    before([resize.into(), random_horizontal_flip(0.5)], vec![normalize()])
}

pub(super) fn faster_rcnn() -> Vec<Transform> {
    before([random_horizontal_flip(0.5)], rcnn([800]))
}

/// The recipe `lsj`, with which the model does not resize.
pub(super) fn mask_rcnn() -> Vec<Transform> {
    let crop = FixedSizeCrop::new(1024).fill(MEAN_COLOR);
    before([ScaleJitter::new(1024).into(), crop.into(), random_horizontal_flip(0.5)], vec![normalize()])
}

pub(super) fn keypoint_rcnn() -> Vec<Transform> {
    before([random_horizontal_flip(0.5)], rcnn((640..=800).step_by(32)))
}

/// The shorter side of the images of torchvision's segmentation references.
const SEGMENTATION_PX: u32 = 520;

pub(super) fn segmentation() -> Vec<Transform> {
    vec![
        RandomResize::new(SEGMENTATION_PX / 2..=2 * SEGMENTATION_PX).into(),
        random_horizontal_flip(0.5),
        SegmentationCrop::new(480).into(),
        normalize(),
    ]
}

pub(super) fn segmentation_eval() -> Vec<Transform> {
    vec![Resize::shorter_side(SEGMENTATION_PX).into(), normalize()]
}

/// DETR resizes either at once, or after a resize to another size and a crop.
pub(super) fn detr() -> Vec<Transform> {
    let cropped = [RandomResize::new(400..=600).step(100).into(), RandomSizeCrop::new(384..=600).into()];
    let resize = RandomResize::new(480..=800).step(32).max_size(MAX_SIDE_PX);
    vec![random_horizontal_flip(0.5), maybe(0.5, cropped), resize.into(), normalize()]
}

pub(super) fn detr_eval() -> Vec<Transform> {
    vec![RandomResize::new(800..=800).max_size(MAX_SIDE_PX).into(), normalize()]
}

/// The epochs of Ultralytics' training that have mosaics: all but the last 10 of 100.
const MOSAIC_EPOCHS: u64 = 90;

/// Values of 0 to 1.
fn shares() -> Transform {
    Normalize::new([0.0; 3], [1.0; 3]).into()
}

pub(super) fn yolo() -> Vec<Transform> {
    let tiles = ByEpoch::new(RandomMosaic::new(640)).then(MOSAIC_EPOCHS, Letterbox::new(640));
    let colors = color_jitter(0.4, 0.0, 0.7, 0.015);
    vec![tiles.into(), YoloPerspective::new(640).into(), colors, random_horizontal_flip(0.5), shares()]
}

/// Values of 0 to 1 on Ultralytics' canvas.
pub(super) fn yolo_eval() -> Vec<Transform> {
    vec![Letterbox::new(640).into(), shares()]
}
