"""Transforms, which draw random numbers, and operations, which do not: the written forms of the crate's.

Lengths are in pixels, sizes are (width, height) or one number for both, colors are (r, g, b) of 0 to 255, and ranges are
(low, high). docs/operations.md of the project says what each does, and whose bytes it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias

Interpolation: TypeAlias = Literal["nearest", "bilinear", "bicubic", "lanczos"]
Size: TypeAlias = int | tuple[int, int]
Color: TypeAlias = tuple[int, int, int]
Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Written:
    """What all transforms and operations have in common: a name, and a written form."""

    _name: ClassVar[str]
    _kind: ClassVar[Literal["transform", "op"]]

    def written(self) -> dict[str, Any]:
        """The written form, as a file of transforms has it. Parameters that are None keep the crate's defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        both = () if isinstance(self, Resize) else ("size", "target")
        # The name of a parameter that Python has a word for ends in _ here.
        own = {
            name.removesuffix("_"): _written(value, name in both) for name, value in values.items() if value is not None
        }
        return {self._kind: self._name, **own}

    def named(self, name: str) -> dict[str, Any]:
        """The written form of a transform whose random numbers have this name, so that another that is added to the list
        does not change its draws. Where any has a name, all of a list draw by name."""
        return {**self.written(), "as": name}


Transform: TypeAlias = Written | Mapping[str, Any]
"""A transform or an operation, or its written form."""


def written(transforms: Sequence[Transform]) -> list[dict[str, Any]]:
    """The written forms of transforms."""
    return [transform.written() if isinstance(transform, Written) else dict(transform) for transform in transforms]


def _written(value: Any, both: bool = False) -> Any:
    if both and isinstance(value, int):
        return [value, value]
    if isinstance(value, Written):
        return value.written()
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in value]
    return value


@dataclass(frozen=True)
class RandomHorizontalFlip(Written):
    _name = "random_horizontal_flip"
    _kind = "transform"

    p: float = 0.5


@dataclass(frozen=True)
class RandomVerticalFlip(Written):
    _name = "random_vertical_flip"
    _kind = "transform"

    p: float = 0.5


@dataclass(frozen=True)
class RandomRotation(Written):
    _name = "random_rotation"
    _kind = "transform"

    degrees: tuple[float, float]
    expand: bool = False
    fill: Color | Literal["edge"] = (0, 0, 0)
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = "nearest"
    center: Point | None = None


@dataclass(frozen=True)
class RandomAffine(Written):
    _name = "random_affine"
    _kind = "transform"

    degrees: tuple[float, float]
    fill: Color = (0, 0, 0)
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = "nearest"
    scale: tuple[float, float] = (1.0, 1.0)
    shear_x: tuple[float, float] = (0.0, 0.0)
    shear_y: tuple[float, float] = (0.0, 0.0)
    translate: tuple[float, float] = (0.0, 0.0)
    center: Point | None = None


@dataclass(frozen=True)
class RandomCrop(Written):
    _name = "random_crop"
    _kind = "transform"

    size: Size
    fill: Color | Literal["edge"] = (0, 0, 0)
    padding: int = 0
    pad_if_needed: bool | None = None


@dataclass(frozen=True)
class CornerCrop(Written):
    _name = "corner_crop"
    _kind = "transform"

    corner: Literal["upper_left", "upper_right", "lower_left", "lower_right"]
    size: Size


@dataclass(frozen=True)
class RandomResizedCrop(Written):
    _name = "random_resized_crop"
    _kind = "transform"

    size: Size
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = "bilinear"
    ratio: tuple[float, float] = (0.75, 1.3333333333333333)
    scale: tuple[float, float] = (0.08, 1.0)


@dataclass(frozen=True)
class ColorJitter(Written):
    _name = "color_jitter"
    _kind = "transform"

    brightness: tuple[float, float] = (1.0, 1.0)
    contrast: tuple[float, float] = (1.0, 1.0)
    hue: tuple[float, float] = (0.0, 0.0)
    saturation: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class RandomGrayscale(Written):
    _name = "random_grayscale"
    _kind = "transform"

    p: float = 0.1


@dataclass(frozen=True)
class RandomChannelPermutation(Written):
    _name = "random_channel_permutation"
    _kind = "transform"


@dataclass(frozen=True)
class RandomPhotometricDistort(Written):
    _name = "random_photometric_distort"
    _kind = "transform"

    brightness: tuple[float, float] = (0.875, 1.125)
    contrast: tuple[float, float] = (0.5, 1.5)
    hue: tuple[float, float] = (-0.05, 0.05)
    p: float = 0.5
    saturation: tuple[float, float] = (0.5, 1.5)


@dataclass(frozen=True)
class RandomGaussianBlur(Written):
    _name = "random_gaussian_blur"
    _kind = "transform"

    kernel: int
    sigma: tuple[float, float] = (0.1, 2.0)


@dataclass(frozen=True)
class RandomGaussianNoise(Written):
    _name = "random_gaussian_noise"
    _kind = "transform"

    clip: bool = True
    mean: float = 0.0
    sigma: float = 0.1


@dataclass(frozen=True)
class RandomDilation(Written):
    _name = "random_dilation"
    _kind = "transform"

    kernel: tuple[int, int]


@dataclass(frozen=True)
class RandomErosion(Written):
    _name = "random_erosion"
    _kind = "transform"

    kernel: tuple[int, int]


@dataclass(frozen=True)
class RandomInvert(Written):
    _name = "random_invert"
    _kind = "transform"

    p: float = 0.5


@dataclass(frozen=True)
class RandomPosterize(Written):
    _name = "random_posterize"
    _kind = "transform"

    bits: int
    p: float = 0.5


@dataclass(frozen=True)
class RandomSolarize(Written):
    _name = "random_solarize"
    _kind = "transform"

    threshold: float
    p: float = 0.5


@dataclass(frozen=True)
class RandomEqualize(Written):
    _name = "random_equalize"
    _kind = "transform"

    p: float = 0.5


@dataclass(frozen=True)
class RandomAutocontrast(Written):
    _name = "random_autocontrast"
    _kind = "transform"

    p: float = 0.5


@dataclass(frozen=True)
class RandomSharpness(Written):
    _name = "random_sharpness"
    _kind = "transform"

    factor: float
    p: float = 0.5


@dataclass(frozen=True)
class RandomPerspective(Written):
    _name = "random_perspective"
    _kind = "transform"

    distortion: float = 0.5
    fill: Color = (0, 0, 0)
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = "bilinear"
    p: float = 0.5


@dataclass(frozen=True)
class RandomElastic(Written):
    _name = "random_elastic"
    _kind = "transform"

    alpha: tuple[float, float] = (50.0, 50.0)
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "bilinear"
    sigma: float = 5.0


@dataclass(frozen=True)
class RandomPillowGaussianBlur(Written):
    _name = "random_pillow_gaussian_blur"
    _kind = "transform"

    radius: tuple[float, float]


@dataclass(frozen=True)
class RandomJpeg(Written):
    _name = "random_jpeg"
    _kind = "transform"

    quality: tuple[int, int]


@dataclass(frozen=True)
class RandomErasing(Written):
    _name = "random_erasing"
    _kind = "transform"

    count: tuple[int, int] = (1, 1)
    p: float = 0.25
    ratio: tuple[float, float] = (0.3, 3.3)
    scale: tuple[float, float] = (0.02, 0.33)
    std: float = 1.0
    value: Sequence[float] = (0.0, 0.0, 0.0)
    noise: Literal["per_box", "per_pixel"] | None = None


@dataclass(frozen=True)
class RandomIouCrop(Written):
    _name = "random_iou_crop"
    _kind = "transform"

    aspect: tuple[float, float] = (0.5, 2.0)
    options: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    scale: tuple[float, float] = (0.3, 1.0)
    trials: int = 40


@dataclass(frozen=True)
class MinIouCrop(Written):
    _name = "min_iou_crop"
    _kind = "transform"

    min_ious: Sequence[float]
    min_side: float = 0.3


@dataclass(frozen=True)
class RandomBboxCrop(Written):
    _name = "random_bbox_crop"
    _kind = "transform"

    thresholds: Sequence[float]
    all_boxes: bool = True
    allow_no_crop: bool = True
    aspect_ratio: tuple[float, float] = (1.0, 1.0)
    attempts: int = 1
    overlap: bool = False
    scaling: tuple[float, float] = (1.0, 1.0)
    prune: float | None = None


@dataclass(frozen=True)
class RandomZoomOut(Written):
    _name = "random_zoom_out"
    _kind = "transform"

    fill: Color = (0, 0, 0)
    p: float = 0.5
    sides: tuple[float, float] = (1.0, 4.0)


@dataclass(frozen=True)
class Letterbox(Written):
    _name = "letterbox"
    _kind = "transform"

    size: Size
    fill: Color = (114, 114, 114)
    interpolation: Interpolation = "bilinear"
    scale_up: bool = True
    stride: int = 0


@dataclass(frozen=True)
class YoloPerspective(Written):
    _name = "yolo_perspective"
    _kind = "transform"

    size: Size
    degrees: float = 0.0
    fill: Color = (114, 114, 114)
    min_area: float = 0.1
    perspective: float = 0.0
    scale: float = 0.5
    shear: float = 0.0
    translate: float = 0.1


@dataclass(frozen=True)
class RandomMosaic(Written):
    _name = "random_mosaic"
    _kind = "transform"

    side: int
    fill: Color = (114, 114, 114)
    tiles: Literal[4, 9] | None = None


@dataclass(frozen=True)
class RandomMixUp(Written):
    _name = "random_mix_up"
    _kind = "transform"

    alpha: float = 32.0


@dataclass(frozen=True)
class RandomCopyPaste(Written):
    _name = "random_copy_paste"
    _kind = "transform"

    blending: bool = True
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True)
class YoloCopyPaste(Written):
    _name = "yolo_copy_paste"
    _kind = "transform"

    share: float
    mode: Literal["flip", "mixup"] = "flip"


@dataclass(frozen=True)
class ScaleJitter(Written):
    _name = "scale_jitter"
    _kind = "transform"

    target: Size
    interpolation: Interpolation = "bilinear"
    scale: tuple[float, float] = (0.1, 2.0)


@dataclass(frozen=True)
class RandomShortestSize(Written):
    _name = "random_shortest_size"
    _kind = "transform"

    sizes: Sequence[int]
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None


@dataclass(frozen=True)
class FixedSizeCrop(Written):
    _name = "fixed_size_crop"
    _kind = "transform"

    size: Size
    fill: Color = (0, 0, 0)


@dataclass(frozen=True)
class RandomResize(Written):
    _name = "random_resize"
    _kind = "transform"

    sizes: tuple[int, int]
    interpolation: Interpolation = "bilinear"
    step: int = 1
    max_size: int | None = None


@dataclass(frozen=True)
class RandomSizeCrop(Written):
    _name = "random_size_crop"
    _kind = "transform"

    sides: tuple[int, int]


@dataclass(frozen=True)
class SegmentationCrop(Written):
    _name = "segmentation_crop"
    _kind = "transform"

    size: Size
    fill: Color = (0, 0, 0)
    ignored: int = 255
    tries: int = 10
    max_class_share: float | None = None


@dataclass(frozen=True)
class AutoAugment(Written):
    _name = "auto_augment"
    _kind = "transform"

    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet"


@dataclass(frozen=True)
class RandAugment(Written):
    _name = "rand_augment"
    _kind = "transform"

    bins: int = 31
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    magnitude: int = 9
    ops: int = 2


@dataclass(frozen=True)
class TrivialAugment(Written):
    _name = "trivial_augment"
    _kind = "transform"

    bins: int = 31
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "nearest"


@dataclass(frozen=True)
class AugMix(Written):
    _name = "aug_mix"
    _kind = "transform"

    all_ops: bool = True
    alpha: float = 1.0
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "bilinear"
    severity: int = 3
    width: int = 3
    depth: int | None = None


@dataclass(frozen=True)
class OneOf(Written):
    _name = "one_of"
    _kind = "transform"

    transforms: Sequence[Transform]
    weights: Sequence[float] | None = None


@dataclass(frozen=True)
class RandomOrder(Written):
    _name = "random_order"
    _kind = "transform"

    transforms: Sequence[Transform]


@dataclass(frozen=True)
class Maybe(Written):
    _name = "maybe"
    _kind = "transform"

    p: float
    transforms: Sequence[Transform]


@dataclass(frozen=True)
class Repeat(Written):
    _name = "repeat"
    _kind = "transform"

    n: int
    transforms: Sequence[Transform]


@dataclass(frozen=True)
class ByEpoch(Written):
    _name = "by_epoch"
    _kind = "transform"

    transforms: Sequence[Transform]
    from_: Sequence[int] = ()


@dataclass(frozen=True)
class TimmAugment(Written):
    _name = "timm_augment"
    _kind = "transform"

    config: str
    fill: Color = (124, 116, 104)
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = ("bilinear", "bicubic")
    translate: float | None = None


@dataclass(frozen=True)
class Hflip(Written):
    _name = "hflip"
    _kind = "op"


@dataclass(frozen=True)
class Vflip(Written):
    _name = "vflip"
    _kind = "op"


@dataclass(frozen=True)
class Rotate(Written):
    _name = "rotate"
    _kind = "op"

    degrees: float
    expand: bool = False
    fill: Color | Literal["edge"] = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    center: Point | None = None


@dataclass(frozen=True)
class Affine(Written):
    _name = "affine"
    _kind = "op"

    degrees: float = 0.0
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    scale: float = 1.0
    shear: tuple[float, float] = (0.0, 0.0)
    translate: tuple[int, int] = (0, 0)
    center: Point | None = None


@dataclass(frozen=True)
class AffineMatrix(Written):
    _name = "affine_matrix"
    _kind = "op"

    matrix: Sequence[float]
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    size: Size | None = None


@dataclass(frozen=True)
class Perspective(Written):
    _name = "perspective"
    _kind = "op"

    startpoints: Sequence[Point]
    endpoints: Sequence[Point]
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "bilinear"
    size: Size | None = None


@dataclass(frozen=True)
class Elastic(Written):
    _name = "elastic"
    _kind = "op"

    key: int
    alpha: tuple[float, float] = (50.0, 50.0)
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "bilinear"
    sigma: float = 5.0


@dataclass(frozen=True)
class Resize(Written):
    """To (width, height), or the shorter side to `size`; with `max_size` the longer side is at most that."""

    _name = "resize"
    _kind = "op"

    size: int | None = None
    width: int | None = None
    height: int | None = None
    max_size: int | None = None
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True)
class ResizedCrop(Written):
    _name = "resized_crop"
    _kind = "op"

    x: int
    y: int
    width: int
    height: int
    out_width: int
    out_height: int
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True)
class Crop(Written):
    _name = "crop"
    _kind = "op"

    x: int
    y: int
    width: int
    height: int
    fill: Color | Literal["edge"] = (0, 0, 0)


@dataclass(frozen=True)
class CenterCrop(Written):
    _name = "center_crop"
    _kind = "op"

    width: int
    height: int


@dataclass(frozen=True)
class Pad(Written):
    _name = "pad"
    _kind = "op"

    left: int
    top: int
    right: int
    bottom: int
    fill: Color = (0, 0, 0)
    mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"


@dataclass(frozen=True)
class Brightness(Written):
    _name = "brightness"
    _kind = "op"

    factor: float


@dataclass(frozen=True)
class Contrast(Written):
    _name = "contrast"
    _kind = "op"

    factor: float


@dataclass(frozen=True)
class Saturation(Written):
    _name = "saturation"
    _kind = "op"

    factor: float


@dataclass(frozen=True)
class Hue(Written):
    _name = "hue"
    _kind = "op"

    factor: float


@dataclass(frozen=True)
class Grayscale(Written):
    _name = "grayscale"
    _kind = "op"


@dataclass(frozen=True)
class Invert(Written):
    _name = "invert"
    _kind = "op"


@dataclass(frozen=True)
class Posterize(Written):
    _name = "posterize"
    _kind = "op"

    bits: int


@dataclass(frozen=True)
class Solarize(Written):
    _name = "solarize"
    _kind = "op"

    threshold: float


@dataclass(frozen=True)
class SolarizeAdd(Written):
    _name = "solarize_add"
    _kind = "op"

    add: int
    threshold: int = 128


@dataclass(frozen=True)
class Equalize(Written):
    _name = "equalize"
    _kind = "op"


@dataclass(frozen=True)
class Autocontrast(Written):
    _name = "autocontrast"
    _kind = "op"


@dataclass(frozen=True)
class Sharpness(Written):
    _name = "sharpness"
    _kind = "op"

    factor: float


@dataclass(frozen=True)
class PermuteChannels(Written):
    _name = "permute_channels"
    _kind = "op"

    order: tuple[int, int, int]


@dataclass(frozen=True)
class GaussianBlur(Written):
    _name = "gaussian_blur"
    _kind = "op"

    kernel: int
    sigma: float


@dataclass(frozen=True)
class PillowGaussianBlur(Written):
    _name = "pillow_gaussian_blur"
    _kind = "op"

    radius: float


@dataclass(frozen=True)
class GaussianNoise(Written):
    _name = "gaussian_noise"
    _kind = "op"

    sigma: float
    key: int
    clip: bool = True
    mean: float = 0.0


@dataclass(frozen=True)
class Dilate(Written):
    _name = "dilate"
    _kind = "op"

    kernel: int


@dataclass(frozen=True)
class Erode(Written):
    _name = "erode"
    _kind = "op"

    kernel: int


@dataclass(frozen=True)
class Jpeg(Written):
    _name = "jpeg"
    _kind = "op"

    quality: int


@dataclass(frozen=True)
class WeightedSum(Written):
    _name = "weighted_sum"
    _kind = "op"

    weight: float
    chains: Sequence[Sequence[Transform]]


@dataclass(frozen=True)
class Erase(Written):
    _name = "erase"
    _kind = "op"

    x: int
    y: int
    width: int
    height: int
    value: Sequence[float] = (0.0, 0.0, 0.0)
    std: float | None = None
    key: int | None = None


@dataclass(frozen=True)
class Clamp(Written):
    _name = "clamp"
    _kind = "op"


@dataclass(frozen=True)
class Sanitize(Written):
    _name = "sanitize"
    _kind = "op"

    min_area: float = 1.0
    min_size: float = 1.0
    min_visibility: float | None = None


@dataclass(frozen=True)
class SelectObjects(Written):
    _name = "select_objects"
    _kind = "op"

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class KeepObjects(Written):
    _name = "keep_objects"
    _kind = "op"

    rows: Sequence[int]


@dataclass(frozen=True)
class Mosaic(Written):
    _name = "mosaic"
    _kind = "op"

    width: int
    height: int
    at: tuple[int, int] = (0, 0)
    fill: Color = (114, 114, 114)
    parts: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class MixUp(Written):
    _name = "mix_up"
    _kind = "op"

    share: float
    part: Mapping[str, Any]


@dataclass(frozen=True)
class CopyPaste(Written):
    _name = "copy_paste"
    _kind = "op"

    part: Mapping[str, Any]
    margin: int = 0
    refit: bool = True


@dataclass(frozen=True)
class UnlabelKeypoints(Written):
    _name = "unlabel_keypoints"
    _kind = "op"


@dataclass(frozen=True)
class Normalize(Written):
    _name = "normalize"
    _kind = "op"

    mean: Sequence[float]
    std: Sequence[float]
