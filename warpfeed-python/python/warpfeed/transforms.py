"""Transforms, which draw random numbers, and operations, which do not: the written forms of the crate's.

Lengths are in pixels, sizes are (width, height) or one number for both, colors are (r, g, b) of 0 to 255, and ranges are
(low, high). docs/operations.md of the project says what each does, and whose bytes it has.
"""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias

from ._arguments import at_least, check, one_of, shown, unknown
from ._compose import Applied
from ._errors import ParameterError

Interpolation: TypeAlias = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
Size: TypeAlias = int | tuple[int, int]
Color: TypeAlias = tuple[int, int, int]
# Red, green and blue; or a number for all channels, or for each; or the edge.
Fill: TypeAlias = Color | float | Sequence[float] | Literal["edge"]
Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Written:
    """What all transforms and operations have in common: a name, and a written form."""

    _tag: ClassVar[tuple[Literal["transform", "op"], str]]
    _hints: ClassVar[dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Written:
        unknown(cls.__name__, kwargs, (field.name for field in fields(cls)))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, getattr(self, field.name), type(self).__name__)

    @classmethod
    def _check(cls, name: str, value: Any, place: str) -> None:
        if "_hints" not in vars(cls):
            cls._hints = typing.get_type_hints(cls)
        declared = next(str(field.type) for field in fields(cls) if field.name == name)
        check(f"{place}: {name}", value, cls._hints[name], declared)

    def written(self) -> dict[str, Any]:
        """The written form, as a file of transforms has it. Parameters that are None keep the crate's defaults."""
        kind, name = self._tag
        values = ((field, getattr(self, field.name)) for field in fields(self))
        # The name of a parameter that Python has a word for ends in _ here.
        own = {
            field.name.removesuffix("_"): _written(value, str(field.type).startswith("Size"))
            for field, value in values
            if value is not None
        }
        return {kind: name, **own}

    def __call__(self, *inputs: Any, key: tuple[int, int, int] | None = None, **named: Any) -> Any:
        """The transform of images in memory: see `Compose`."""
        return Compose([self])(*inputs, key=key, **named)

    def named(self, name: str) -> dict[str, Any]:
        """The written form of a transform whose random numbers have this name, so that another that is added to the list
        does not change its draws. Where any has a name, all of a list draw by name."""
        return {**self.written(), "as": name}


@dataclass(frozen=True)
class View:
    """An image that is made of each sample, with transforms of its own; `times` such images."""

    transforms: Sequence[Transform]
    times: int = 1

    def written(self) -> dict[str, Any]:
        """The written form."""
        return {"transforms": written(self.transforms), "times": self.times}


@dataclass(frozen=True)
class Views:
    """Several images of each sample, as one item of a list of transforms. What stands before and behind it is for all of
    them: `[Views([View([RandomResizedCrop(224)], times=2), View([RandomResizedCrop(96)], times=8)]), RandomHorizontalFlip()]`.
    """

    views: Sequence[View]

    def written(self) -> dict[str, Any]:
        """The written form, as a file of transforms has it."""
        return {"views": [view.written() for view in self.views]}


Transform: TypeAlias = Written | Views | Mapping[str, Any]
"""A transform or an operation, views, or the written form of one of them."""


def written(transforms: Sequence[Transform]) -> list[dict[str, Any]]:
    """The written forms of transforms."""
    done = []
    for number, transform in enumerate(transforms):
        if not isinstance(transform, (Written, Views, Mapping)):
            raise TypeError(
                f"transform {number + 1} of {len(transforms)} must be one of warpfeed.transforms or its written form, got "
                f"{shown(transform)}: give torchvision's in a Compose"
            )
        if isinstance(transform, Mapping):
            _check_written(transform, f"transform {number + 1} of {len(transforms)}")
        done.append(_written(transform))
    return done


def _check_written(written: Mapping[str, Any], place: str) -> None:
    """Checks a written form by the class that it is the form of."""
    kind = next((kind for kind in ("transform", "op") if kind in written), None)
    if kind is None:
        if "views" not in written:
            raise ParameterError(
                f'{place} must have "transform" or "op" with a name, or "views", got {dict(written)!r}'
            )
        return
    classes = {one._tag[1]: one for one in _classes() if one._tag[0] == kind}
    name = written[kind]
    if not isinstance(name, str):
        raise TypeError(f"{place}: {kind} must be a name, got {shown(name)}")
    one_of(f"{place}: {kind}", name, list(classes), "a name that docs/operations.md has")
    own = [field.name.removesuffix("_") for field in fields(classes[name])]
    unknown(f"{place}, {name},", (key for key in written if key not in (kind, "as")), own)


def _classes() -> Iterator[type[Written]]:
    return iter(Written.__subclasses__())


@dataclass(frozen=True)
class Compose(Applied):
    """Transforms of images in memory, with a loader's draws and values.

    Called with a sample, of any structure of dicts, lists and tuples: PIL images and torchvision's Image and Video in it
    are images; without one, the first tensor or array is. A further tensor or array of the image's size is refused,
    because it may be a mask. torchvision's masks, boxes and points go along, and so does what a dict has under a name of
    `follow`, row by row with the boxes. Anything else is passed on.
    Called by keywords, `compose(image=image, mask=mask, bboxes=boxes, keypoints=points, labels=labels)` gives a dict.

    All images of a sample have one size and one draw, but each image of a tensor with further dimensions (not of a Video)
    has draws of its own, unless `per_batch`.

    key: (seed, epoch, index), whose draws are those of a loader with that seed for that sample; a batch has the samples
        from there on, or a list of keys. Without it, the seed comes from torch's generator, or `generator`; from Python's
        where torch is not imported.
    threads: so many share the images of a batch. torch's number of threads changes nothing.
    sanitize: drops objects whose boxes are no longer valid.
    bbox_format: what the numbers of `bboxes` mean.
    """

    transforms: Sequence[Transform]
    per_batch: bool = False
    threads: int = 1
    generator: Any = None
    sanitize: bool = True
    follow: Sequence[str] = ("labels", "area", "iscrowd")
    bbox_format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"

    def __post_init__(self) -> None:
        at_least(1, threads=self.threads)

    @functools.cached_property
    def _text(self) -> str:
        return json.dumps(written(self.transforms))


@dataclass(frozen=True)
class Python:
    """A function among the transforms, which runs in Python. Others that come after it run in Python too.

    gets: what it gets: "tensor", `[3, H, W]` of float32 in the loader's arrays, after Normalize if that comes before;
    "array", numpy's `[H, W, 3]` of uint8; "pil", an image of Pillow's. It may return another form.
    """

    function: Callable[[Any], Any]
    gets: Literal["tensor", "array", "pil"] = "tensor"


def _written(value: Any, both: bool = False) -> Any:
    if both and isinstance(value, int):
        return [value, value]
    if isinstance(value, (Written, View, Views)):
        return value.written()
    if isinstance(value, Mapping):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in value]
    return value


# A test makes the classes from the crate's catalog: src/ops/tests/catalog.rs.


@dataclass(frozen=True)
class RandomHorizontalFlip(Written):
    """Mirrors left and right with a probability."""

    _tag = ("transform", "random_horizontal_flip")

    p: float = 0.5


@dataclass(frozen=True)
class RandomVerticalFlip(Written):
    """Mirrors top and bottom with a probability."""

    _tag = ("transform", "random_vertical_flip")

    p: float = 0.5


@dataclass(frozen=True)
class RandomRotation(Written):
    """Rotates about the center by a random angle."""

    _tag = ("transform", "random_rotation")

    degrees: tuple[float, float]
    expand: bool = False
    fill: Fill = (0, 0, 0)
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = "nearest"
    center: Point | None = None


@dataclass(frozen=True)
class RandomAffine(Written):
    """Rotates, translates, scales and shears by random amounts."""

    _tag = ("transform", "random_affine")

    degrees: tuple[float, float]
    fill: Fill = (0, 0, 0)
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = "nearest"
    scale: tuple[float, float] = (1.0, 1.0)
    shear_x: tuple[float, float] = (0.0, 0.0)
    shear_y: tuple[float, float] = (0.0, 0.0)
    translate: tuple[float, float] = (0.0, 0.0)
    center: Point | None = None


@dataclass(frozen=True)
class RandomCrop(Written):
    """Pads every side, then cuts out a rectangle at a random place."""

    _tag = ("transform", "random_crop")

    size: Size
    fill: Fill = (0, 0, 0)
    padding: int = 0
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"] | None = None
    pad_if_needed: bool | None = None


@dataclass(frozen=True)
class BucketCrop(Written):
    """Resizes to cover the batch's bucket, and cuts it out."""

    _tag = ("transform", "bucket_crop")

    interpolation: Interpolation = "bilinear"
    random: bool = False


@dataclass(frozen=True)
class SequenceResize(Written):
    """Resizes to fill a sequence of patches."""

    _tag = ("transform", "sequence_resize")

    patch: int
    interpolation: Interpolation = "bilinear"
    seq_len: int | None = None
    max_ratio: float | None = None


@dataclass(frozen=True)
class RandomSequenceCrop(Written):
    """Cuts out a rectangle of random area and aspect, then resizes it to fill a sequence of patches."""

    _tag = ("transform", "random_sequence_crop")

    patch: int
    interpolation: Interpolation = "bilinear"
    ratio: tuple[float, float] = (0.75, 1.3333333333333333)
    scale: tuple[float, float] = (0.08, 1.0)
    seq_len: int | None = None
    max_ratio: float | None = None


@dataclass(frozen=True)
class CornerCrop(Written):
    """Cuts out a corner."""

    _tag = ("transform", "corner_crop")

    corner: Literal["upper_left", "upper_right", "lower_left", "lower_right"]
    size: Size


@dataclass(frozen=True)
class RandomResizedCrop(Written):
    """Cuts out a rectangle of random area and aspect, then resizes it."""

    _tag = ("transform", "random_resized_crop")

    size: Size
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = "bilinear"
    ratio: tuple[float, float] = (0.75, 1.3333333333333333)
    scale: tuple[float, float] = (0.08, 1.0)


@dataclass(frozen=True)
class ColorJitter(Written):
    """Changes brightness, contrast, saturation and hue by random factors in random order."""

    _tag = ("transform", "color_jitter")

    brightness: tuple[float, float] = (1.0, 1.0)
    contrast: tuple[float, float] = (1.0, 1.0)
    hue: tuple[float, float] = (0.0, 0.0)
    saturation: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class RandomGrayscale(Written):
    """Replaces each pixel by its luma with a probability."""

    _tag = ("transform", "random_grayscale")

    p: float = 0.1


@dataclass(frozen=True)
class RandomChannelPermutation(Written):
    """Puts the channels in random order."""

    _tag = ("transform", "random_channel_permutation")


@dataclass(frozen=True)
class RandomPhotometricDistort(Written):
    """Changes brightness, contrast, saturation, hue and the channels' order, each with a probability."""

    _tag = ("transform", "random_photometric_distort")

    brightness: tuple[float, float] = (0.875, 1.125)
    contrast: tuple[float, float] = (0.5, 1.5)
    hue: tuple[float, float] = (-0.05, 0.05)
    p: float = 0.5
    saturation: tuple[float, float] = (0.5, 1.5)


@dataclass(frozen=True)
class RandomGaussianBlur(Written):
    """Gaussian blur with a random standard deviation."""

    _tag = ("transform", "random_gaussian_blur")

    kernel: int
    sigma: tuple[float, float] = (0.1, 2.0)
    kernel_y: int | None = None


@dataclass(frozen=True)
class RandomGaussianNoise(Written):
    """Adds fresh normal noise."""

    _tag = ("transform", "random_gaussian_noise")

    clip: bool = True
    mean: float = 0.0
    sigma: float = 0.1


@dataclass(frozen=True)
class RandomDilation(Written):
    """Replaces each value by the largest in a square of random size around it."""

    _tag = ("transform", "random_dilation")

    kernel: tuple[int, int]


@dataclass(frozen=True)
class RandomErosion(Written):
    """Replaces each value by the smallest in a square of random size around it."""

    _tag = ("transform", "random_erosion")

    kernel: tuple[int, int]


@dataclass(frozen=True)
class RandomInvert(Written):
    """Replaces each value v by 255 - v with a probability."""

    _tag = ("transform", "random_invert")

    p: float = 0.5


@dataclass(frozen=True)
class RandomPosterize(Written):
    """Keeps the upper bits of each value with a probability."""

    _tag = ("transform", "random_posterize")

    bits: int
    p: float = 0.5


@dataclass(frozen=True)
class RandomSolarize(Written):
    """Inverts the values from a threshold on with a probability."""

    _tag = ("transform", "random_solarize")

    threshold: float
    p: float = 0.5


@dataclass(frozen=True)
class RandomEqualize(Written):
    """Spreads each channel's values evenly with a probability."""

    _tag = ("transform", "random_equalize")

    p: float = 0.5


@dataclass(frozen=True)
class RandomAutocontrast(Written):
    """Stretches each channel's values to 0 to 255 with a probability."""

    _tag = ("transform", "random_autocontrast")

    p: float = 0.5


@dataclass(frozen=True)
class RandomSharpness(Written):
    """Sharpens or smooths with a probability."""

    _tag = ("transform", "random_sharpness")

    factor: float
    p: float = 0.5


@dataclass(frozen=True)
class RandomPerspective(Written):
    """Moves the corners inwards by random amounts with a probability."""

    _tag = ("transform", "random_perspective")

    distortion: float = 0.5
    fill: Fill = (0, 0, 0)
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = "bilinear"
    p: float = 0.5


@dataclass(frozen=True)
class RandomElastic(Written):
    """Moves pixels by fresh noise."""

    _tag = ("transform", "random_elastic")

    alpha: tuple[float, float] = (50.0, 50.0)
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "bilinear"
    sigma: float = 5.0


@dataclass(frozen=True)
class RandomPillowGaussianBlur(Written):
    """Pillow's Gaussian blur with a random radius."""

    _tag = ("transform", "random_pillow_gaussian_blur")

    radius: tuple[float, float]


@dataclass(frozen=True)
class RandomJpeg(Written):
    """Encodes as JPEG with a random quality and decodes again."""

    _tag = ("transform", "random_jpeg")

    quality: tuple[int, int]


@dataclass(frozen=True)
class RandomErasing(Written):
    """Overwrites random rectangles with a probability."""

    _tag = ("transform", "random_erasing")

    count: tuple[int, int] = (1, 1)
    p: float = 0.25
    ratio: tuple[float, float] = (0.3, 3.3)
    scale: tuple[float, float] = (0.02, 0.33)
    std: float = 1.0
    value: float | Sequence[float] = (0.0, 0.0, 0.0)
    noise: Literal["per_box", "per_pixel"] | None = None


@dataclass(frozen=True)
class RandomIouCrop(Written):
    """Cuts out a random rectangle that overlaps at least one object enough."""

    _tag = ("transform", "random_iou_crop")

    aspect: tuple[float, float] = (0.5, 2.0)
    options: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    scale: tuple[float, float] = (0.3, 1.0)
    trials: int = 40


@dataclass(frozen=True)
class MinIouCrop(Written):
    """Cuts out a random rectangle that overlaps every object enough."""

    _tag = ("transform", "min_iou_crop")

    min_ious: Sequence[float]
    min_side: float = 0.3


@dataclass(frozen=True)
class RandomBboxCrop(Written):
    """Cuts out a random rectangle that boxes overlap enough."""

    _tag = ("transform", "random_bbox_crop")

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
    """Places the image at random on a larger canvas with a probability."""

    _tag = ("transform", "random_zoom_out")

    fill: Fill = (0, 0, 0)
    p: float = 0.5
    sides: tuple[float, float] = (1.0, 4.0)


@dataclass(frozen=True)
class Letterbox(Written):
    """Resizes the image so that it fits a canvas, and pads the rest on both sides."""

    _tag = ("transform", "letterbox")

    size: Size
    fill: Fill = (114, 114, 114)
    interpolation: Interpolation = "bilinear"
    scale_up: bool = True
    stride: int = 0


@dataclass(frozen=True)
class YoloPerspective(Written):
    """Rotates, scales, shears, moves and tilts the image by random amounts."""

    _tag = ("transform", "yolo_perspective")

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
    """Places four or nine samples on a canvas."""

    _tag = ("transform", "random_mosaic")

    side: int
    fill: Color = (114, 114, 114)
    tiles: Literal[4, 9] | None = None


@dataclass(frozen=True)
class RandomMixUp(Written):
    """Blends with another sample by a random share."""

    _tag = ("transform", "random_mix_up")

    alpha: float = 32.0


@dataclass(frozen=True)
class RandomCopyPaste(Written):
    """Pastes random objects of another sample."""

    _tag = ("transform", "random_copy_paste")

    blending: bool = True
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True)
class YoloCopyPaste(Written):
    """Pastes objects where they cover little of the existing objects."""

    _tag = ("transform", "yolo_copy_paste")

    share: float
    mode: Literal["flip", "mixup"] = "flip"


@dataclass(frozen=True)
class ScaleJitter(Written):
    """Resizes the image so that it fits a target, times a random factor."""

    _tag = ("transform", "scale_jitter")

    target: Size
    interpolation: Interpolation = "bilinear"
    scale: tuple[float, float] = (0.1, 2.0)


@dataclass(frozen=True)
class RandomShortestSize(Written):
    """Resizes the shorter side to one of several lengths."""

    _tag = ("transform", "random_shortest_size")

    sizes: Sequence[int]
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None


@dataclass(frozen=True)
class FixedSizeCrop(Written):
    """Cuts out a rectangle at a random place and pads it to a fixed size."""

    _tag = ("transform", "fixed_size_crop")

    size: Size
    fill: Fill = (0, 0, 0)


@dataclass(frozen=True)
class RandomResize(Written):
    """Resizes the shorter side to a random length."""

    _tag = ("transform", "random_resize")

    sizes: tuple[int, int]
    interpolation: Interpolation = "bilinear"
    step: int = 1
    max_size: int | None = None


@dataclass(frozen=True)
class RandomSizeCrop(Written):
    """Cuts out a rectangle with random sides at a random place."""

    _tag = ("transform", "random_size_crop")

    sides: tuple[int, int]


@dataclass(frozen=True)
class SegmentationCrop(Written):
    """Cuts out a rectangle at a random place and pads it to a fixed size, for segmentation."""

    _tag = ("transform", "segmentation_crop")

    size: Size
    fill: Fill = (0, 0, 0)
    ignored: int = 255
    tries: int = 10
    max_class_share: float | None = None


@dataclass(frozen=True)
class AutoAugment(Written):
    """Runs a random pair of a policy's operations."""

    _tag = ("transform", "auto_augment")

    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet"


@dataclass(frozen=True)
class RandAugment(Written):
    """Runs several operations of random kinds with the same magnitude."""

    _tag = ("transform", "rand_augment")

    bins: int = 31
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    magnitude: int = 9
    ops: int = 2


@dataclass(frozen=True)
class TrivialAugment(Written):
    """Runs one operation of a random kind with a random magnitude."""

    _tag = ("transform", "trivial_augment")

    bins: int = 31
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "nearest"


@dataclass(frozen=True)
class AugMix(Written):
    """Mixes the image and several chains of operations by random weights."""

    _tag = ("transform", "aug_mix")

    all_ops: bool = True
    alpha: float = 1.0
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "bilinear"
    severity: int = 3
    width: int = 3
    depth: int | None = None


@dataclass(frozen=True)
class TimmAugment(Written):
    """Runs timm's RandAugment, AutoAugment, AugMix or 3-Augment, described by the text of timm's `--aa`."""

    _tag = ("transform", "timm_augment")

    config: str
    fill: Color = (124, 116, 104)
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = ("bilinear", "bicubic")
    translate: float | None = None


@dataclass(frozen=True)
class OneOf(Written):
    """Runs one of several transforms."""

    _tag = ("transform", "one_of")

    transforms: Sequence[Transform]
    weights: Sequence[float] | None = None


@dataclass(frozen=True)
class RandomOrder(Written):
    """Runs several transforms in random order."""

    _tag = ("transform", "random_order")

    transforms: Sequence[Transform]


@dataclass(frozen=True)
class Maybe(Written):
    """Runs several transforms in order with a probability."""

    _tag = ("transform", "maybe")

    p: float
    transforms: Sequence[Transform]


@dataclass(frozen=True)
class ByEpoch(Written):
    """Runs one transform, and others from later epochs on."""

    _tag = ("transform", "by_epoch")

    transforms: Sequence[Transform]
    from_: Sequence[int] = ()


@dataclass(frozen=True)
class Repeat(Written):
    """Runs transforms in order several times, each time with fresh draws."""

    _tag = ("transform", "repeat")

    n: int
    transforms: Sequence[Transform]


@dataclass(frozen=True)
class Hflip(Written):
    """Mirrors left and right."""

    _tag = ("op", "hflip")


@dataclass(frozen=True)
class Vflip(Written):
    """Mirrors top and bottom."""

    _tag = ("op", "vflip")


@dataclass(frozen=True)
class Rotate(Written):
    """Rotates about the center."""

    _tag = ("op", "rotate")

    degrees: float
    expand: bool = False
    fill: Fill = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    center: Point | None = None


@dataclass(frozen=True)
class Affine(Written):
    """Rotates, scales, shears and translates."""

    _tag = ("op", "affine")

    degrees: float = 0.0
    fill: Fill = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    scale: float = 1.0
    shear: tuple[float, float] = (0.0, 0.0)
    translate: tuple[float, float] = (0, 0)
    center: Point | None = None


@dataclass(frozen=True)
class AffineMatrix(Written):
    """Samples through an affine matrix."""

    _tag = ("op", "affine_matrix")

    matrix: Sequence[float]
    fill: Fill = (0, 0, 0)
    interpolation: Interpolation = "nearest"
    size: Size | None = None


@dataclass(frozen=True)
class Resize(Written):
    """Resizes to a width and a height, or the shorter side to `size`; with `max_size` the longer side is at most that."""

    _tag = ("op", "resize")

    size: int | None = None
    width: int | None = None
    height: int | None = None
    max_size: int | None = None
    interpolation: Interpolation = "bilinear"
    reducing_gap: float | None = None
    shown: tuple[float, float] | None = None


@dataclass(frozen=True)
class Crop(Written):
    """Cuts out a rectangle, which may reach beyond the image."""

    _tag = ("op", "crop")

    x: int
    y: int
    width: int
    height: int
    fill: Fill = (0, 0, 0)


@dataclass(frozen=True)
class CenterCrop(Written):
    """Cuts out the center."""

    _tag = ("op", "center_crop")

    width: int
    height: int


@dataclass(frozen=True)
class ResizedCrop(Written):
    """Cuts out a rectangle, then resizes it."""

    _tag = ("op", "resized_crop")

    x: int
    y: int
    width: int
    height: int
    out_width: int
    out_height: int
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True)
class GaussianBlur(Written):
    """Gaussian blur."""

    _tag = ("op", "gaussian_blur")

    kernel: int
    sigma: float
    kernel_y: int | None = None
    sigma_y: float | None = None


@dataclass(frozen=True)
class Dilate(Written):
    """Replaces each value by the largest in a square around it."""

    _tag = ("op", "dilate")

    kernel: int


@dataclass(frozen=True)
class Erode(Written):
    """Replaces each value by the smallest in a square around it."""

    _tag = ("op", "erode")

    kernel: int


@dataclass(frozen=True)
class Brightness(Written):
    """Blends with black."""

    _tag = ("op", "brightness")

    factor: float


@dataclass(frozen=True)
class Gamma(Written):
    """Raises values of 0 to 1 to a power."""

    _tag = ("op", "gamma")

    gamma: float
    gain: float = 1.0


@dataclass(frozen=True)
class Contrast(Written):
    """Blends with the image's mean gray."""

    _tag = ("op", "contrast")

    factor: float


@dataclass(frozen=True)
class Saturation(Written):
    """Blends with the image's gray version."""

    _tag = ("op", "saturation")

    factor: float


@dataclass(frozen=True)
class Hue(Written):
    """Shifts the hue."""

    _tag = ("op", "hue")

    factor: float


@dataclass(frozen=True)
class Grayscale(Written):
    """Replaces each pixel by its luma."""

    _tag = ("op", "grayscale")


@dataclass(frozen=True)
class PermuteChannels(Written):
    """Puts the channels in another order."""

    _tag = ("op", "permute_channels")

    order: Sequence[int]


@dataclass(frozen=True)
class SelectChannels(Written):
    """Takes some of the channels."""

    _tag = ("op", "select_channels")

    channels: Sequence[int]


@dataclass(frozen=True)
class GaussianNoise(Written):
    """Adds normal noise."""

    _tag = ("op", "gaussian_noise")

    sigma: float
    key: int
    clip: bool = True
    mean: float = 0.0


@dataclass(frozen=True)
class Invert(Written):
    """Replaces each value v by 255 - v."""

    _tag = ("op", "invert")


@dataclass(frozen=True)
class Posterize(Written):
    """Keeps the upper bits of each value."""

    _tag = ("op", "posterize")

    bits: int


@dataclass(frozen=True)
class Solarize(Written):
    """Inverts the values from a threshold on."""

    _tag = ("op", "solarize")

    threshold: float


@dataclass(frozen=True)
class Equalize(Written):
    """Spreads each channel's values evenly."""

    _tag = ("op", "equalize")


@dataclass(frozen=True)
class Autocontrast(Written):
    """Stretches each channel's values to 0 to 255."""

    _tag = ("op", "autocontrast")


@dataclass(frozen=True)
class Sharpness(Written):
    """Blends with a smoothed version."""

    _tag = ("op", "sharpness")

    factor: float


@dataclass(frozen=True)
class WeightedSum(Written):
    """Adds up the image and the results of chains of operations."""

    _tag = ("op", "weighted_sum")

    weight: float
    chains: Sequence[Mapping[str, Any]]
    blend: float | None = None


@dataclass(frozen=True)
class Pad(Written):
    """Adds rows and columns on each side."""

    _tag = ("op", "pad")

    left: int
    top: int
    right: int
    bottom: int
    fill: Fill = (0, 0, 0)
    mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"


@dataclass(frozen=True)
class Perspective(Written):
    """Moves four points to four others."""

    _tag = ("op", "perspective")

    startpoints: Sequence[Point]
    endpoints: Sequence[Point]
    fill: Fill = (0, 0, 0)
    interpolation: Interpolation = "bilinear"
    size: Size | None = None


@dataclass(frozen=True)
class Elastic(Written):
    """Moves each pixel by a displacement of its own."""

    _tag = ("op", "elastic")

    key: int
    alpha: tuple[float, float] = (50.0, 50.0)
    fill: Color = (0, 0, 0)
    interpolation: Interpolation = "bilinear"
    sigma: float = 5.0


@dataclass(frozen=True)
class PillowGaussianBlur(Written):
    """Pillow's Gaussian blur."""

    _tag = ("op", "pillow_gaussian_blur")

    radius: float


@dataclass(frozen=True)
class SolarizeAdd(Written):
    """Adds a number to dark values."""

    _tag = ("op", "solarize_add")

    add: int
    threshold: int = 128


@dataclass(frozen=True)
class Jpeg(Written):
    """Encodes as JPEG and decodes again."""

    _tag = ("op", "jpeg")

    quality: int


@dataclass(frozen=True)
class Erase(Written):
    """Overwrites a rectangle."""

    _tag = ("op", "erase")

    x: int
    y: int
    width: int
    height: int
    value: float | Sequence[float] = (0.0, 0.0, 0.0)
    std: float | None = None
    key: int | None = None


@dataclass(frozen=True)
class Clamp(Written):
    """Cuts boxes at the edges of the image."""

    _tag = ("op", "clamp")


@dataclass(frozen=True)
class Sanitize(Written):
    """Drops objects whose boxes are no longer valid."""

    _tag = ("op", "sanitize")

    min_area: float = 1.0
    min_size: float = 1.0
    min_visibility: float | None = None


@dataclass(frozen=True)
class SelectObjects(Written):
    """Drops objects whose centers lie outside a rectangle."""

    _tag = ("op", "select_objects")

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Mosaic(Written):
    """Places several samples on a canvas."""

    _tag = ("op", "mosaic")

    width: int
    height: int
    at: tuple[int, int] = (0, 0)
    fill: Color = (114, 114, 114)
    parts: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class MixUp(Written):
    """Blends with another sample."""

    _tag = ("op", "mix_up")

    share: float
    part: Mapping[str, Any]


@dataclass(frozen=True)
class CopyPaste(Written):
    """Pastes objects of another sample."""

    _tag = ("op", "copy_paste")

    part: Mapping[str, Any]
    margin: int = 0
    refit: bool = True


@dataclass(frozen=True)
class KeepObjects(Written):
    """Drops objects by their numbers."""

    _tag = ("op", "keep_objects")

    rows: Sequence[int]


@dataclass(frozen=True)
class UnlabelKeypoints(Written):
    """Marks keypoints outside the image as not labeled."""

    _tag = ("op", "unlabel_keypoints")


@dataclass(frozen=True)
class ToFloat(Written):
    """Converts to `f32`, with values of 0 to 1."""

    _tag = ("op", "to_float")


@dataclass(frozen=True)
class Normalize(Written):
    """Converts to `f32` and normalizes."""

    _tag = ("op", "normalize")

    mean: float | Sequence[float]
    std: float | Sequence[float]
