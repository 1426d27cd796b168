"""torchvision's transforms as written transforms. Their arithmetic is that on PIL images."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ._errors import UnsupportedError
from ._identity import is_list, known, replaced

Steps = list[dict[str, Any]]

_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
_FILTERS = ("nearest", "bilinear", "bicubic", "lanczos")
# What gives the same values on tensors as on PIL images.
_EXACT_ON_TENSORS = {
    "CenterCrop", "RandomCrop", "RandomHorizontalFlip", "RandomVerticalFlip", "RandomErasing", "Pad", "Normalize", "Identity",
    "ToDtype", "ToPureTensor", "ConvertImageDtype", "ConvertDtype", "RandomApply", "RandomChoice", "RandomOrder",
    "SanitizeBoundingBoxes", "ClampBoundingBoxes",
}  # fmt: skip
# What may come after Normalize, where the native pipeline has floats.
_AFTER_NORMALIZE = {"RandomErasing", "Identity", "ToPureTensor"}
# What is PIL's business, or makes a tensor of a PIL image.
_ON_IMAGES = {"ToTensor", "MaybeToTensor", "ToNumpy", "PILToTensor", "MaybePILToTensor", "ToImage", "RGB"}
_PACKAGES = ("torchvision.transforms", "timm.data", "torch.nn.modules")


@dataclass
class Converted:
    """Written transforms, the dtype that the images have after them, and what is left for Python."""

    steps: Steps
    dtype: str
    rest: list[Any] = field(default_factory=list)
    """The transforms from the first one on that is not converted."""
    gets: str = "own"
    """What these get, as `_python.Work` says."""
    why: str = ""
    native: list[Any] = field(default_factory=list)
    """The transforms before these."""


def convert(transform: Any, own: Callable[[Any], Steps | None] = lambda one: None) -> Converted:
    """Converts the transforms of torchvision's or timm's, of a Compose or a Sequential or alone, up to the first one that
    is not converted. `own` may know the steps of others."""
    state, steps = _State(), Steps()
    all_of = list(_flat(transform))
    function = replaced()
    if function is not None:
        return Converted(steps, state.dtype, all_of, state.kind, f"{function} was replaced")
    for place, one in enumerate(all_of):
        before = replace(state)
        try:
            known_steps = own(one)
            steps += _step(one, state) if known_steps is None else known_steps
        except UnsupportedError as error:
            where = f"transform {place + 1} of {len(all_of)}, " if len(all_of) > 1 else ""
            return Converted(steps, before.dtype, all_of[place:], before.kind, f"{where}{error}", all_of[:place])
    return Converted(steps, state.dtype)


def _flat(transform: Any) -> Iterator[Any]:
    name = known(transform, *_PACKAGES)
    if name == "Sequential" or name == "Compose" and is_list(transform.transforms):
        for child in transform.transforms if name == "Compose" else transform:
            yield from _flat(child)
    else:
        yield transform


@dataclass
class _State:
    kind: str = "pil"
    """What torchvision has here: "pil", "array", "tensor" or "image"."""
    scaled: bool = False
    normalized: bool = False

    @property
    def dtype(self) -> str:
        return "uint8" if self.kind != "pil" and not self.scaled else "float32"


def _list(transforms: Any, state: _State) -> list[Steps]:
    """The steps of each child of a transform. They must leave the kind of image as it is."""
    if not is_list(transforms):
        raise UnsupportedError(f"{type(transforms).__name__} within it is no list of transforms")
    before = replace(state)
    children = [[step for one in _flat(child) for step in _step(one, state)] for child in transforms]
    if state != before:
        raise UnsupportedError("a conversion to a tensor within it cannot be converted")
    return children


def _step(transform: Any, state: _State) -> Steps:
    name = known(transform, *_PACKAGES)
    own = name or getattr(transform, "__name__", None) or type(transform).__qualname__
    if name is None:
        raise UnsupportedError(f"{own}: neither torchvision's nor timm's own")
    if name not in _STEPS or (type(transform).__module__, name) in _OTHERS:
        raise UnsupportedError(f"{own}: {_INSTEAD.get(name, 'it is not converted')}")
    if state.kind != "pil" and (name in _ON_IMAGES or name not in _EXACT_ON_TENSORS):
        raise UnsupportedError(f"{own}: on tensors torchvision computes in another way than on PIL images")
    if state.kind == "pil" and name in _ONLY_ON_TENSORS:
        raise UnsupportedError(f"{own}: it is for tensors")
    if state.normalized and name not in _AFTER_NORMALIZE:
        raise UnsupportedError(f"{own}: it comes after Normalize")
    try:
        return _STEPS[name](transform, state)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnsupportedError(f"{own}: its parameters are not converted ({error})") from error


_INSTEAD = {
    "Lambda": "a function",
    "FiveCrop": "as views it is native: [{'views': [{'transforms': [{'transform': 'corner_crop', ...}]}, ...]}]",
    "TenCrop": "as views it is native: [{'views': [{'transforms': [{'transform': 'corner_crop', ...}]}, ...]}]",
    "MixUp": "give mix='torchvision=ALPHA/0', which mixes the loader's batches",
    "CutMix": "give mix='torchvision=0/ALPHA', which mixes the loader's batches",
}


def _refuse(transform: Any, what: str) -> UnsupportedError:
    return UnsupportedError(f"{type(transform).__name__}: {what}")


def _filter(transform: Any, attribute: str = "interpolation") -> str | list[str]:
    value = getattr(transform, attribute)
    if isinstance(value, (list, tuple)):
        return [_one_filter(transform, item) for item in value]
    return _one_filter(transform, value)


def _one_filter(transform: Any, value: Any) -> str:
    name = _PILLOW.get(value) if isinstance(value, int) else getattr(value, "value", value)
    if name not in _FILTERS:
        raise _refuse(transform, f"interpolation {name} is not supported, which must be one of {', '.join(_FILTERS)}")
    return str(name)


def _size(transform: Any, attribute: str = "size") -> list[int]:
    """(height, width) or one number as [width, height]."""
    value = getattr(transform, attribute)
    if isinstance(value, numbers.Integral):
        return [int(value), int(value)]
    sides = [int(side) for side in value]
    return [sides[0], sides[0]] if len(sides) == 1 else [sides[1], sides[0]]


def _range(value: Sequence[float]) -> list[float]:
    return [float(v) for v in value]


def _fill(transform: Any, value: Any) -> list[int]:
    if isinstance(value, dict):
        raise _refuse(transform, "fills of several kinds are not converted")
    if value is None:
        value = 0
    if isinstance(value, numbers.Number):
        value = [value] * 3
    color = list(value)
    color = color * 3 if len(color) == 1 else color
    if len(color) != 3 or any(v != int(v) or not 0 <= v <= 255 for v in color):
        raise _refuse(transform, f"fill {value} is not supported, which must be whole numbers of 0 to 255")
    return [int(v) for v in color]


def _probably(p: float, steps: Steps) -> Steps:
    return [{"transform": "maybe", "p": float(p), "transforms": steps}]


def _nothing(transform: Any, state: _State) -> Steps:
    return []


def _to_tensor(transform: Any, state: _State) -> Steps:
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_default_dtype() != torch.float32:
        raise _refuse(transform, f"it makes {torch.get_default_dtype()}, torch's default dtype")
    state.kind, state.scaled = "tensor", True
    return []


def _to_bytes(kind: str) -> Callable[[Any, _State], Steps]:
    def step(transform: Any, state: _State) -> Steps:
        state.kind = kind
        return []

    return step


def _to_pure_tensor(transform: Any, state: _State) -> Steps:
    if state.kind == "image":
        state.kind = "tensor"
    return []


def _to_dtype(transform: Any, state: _State) -> Steps:
    dtype, scale = transform.dtype, getattr(transform, "scale", True)
    if isinstance(dtype, dict):
        raise _refuse(transform, "dtypes of several kinds are not converted")
    name = str(dtype).removeprefix("torch.")
    if state.scaled or name not in ("float32", "uint8"):
        raise _refuse(
            transform, f"{name} is not converted: the loader's dtype= makes float16, bfloat16 or uint8 at the end"
        )
    if name == "float32" and not scale:
        raise _refuse(transform, "without scale=True it is not converted")
    state.scaled = name == "float32"
    return []


def _resize(transform: Any, state: _State) -> Steps:
    filter = _filter(transform)
    size = transform.size
    if size is None:
        raise _refuse(transform, "size=None with max_size is not supported: give a size")
    if isinstance(size, numbers.Integral) or len(size) == 1:
        side = int(size if isinstance(size, numbers.Integral) else size[0])
        step = {"op": "resize", "size": side, "interpolation": filter}
        return [step | ({"max_size": int(transform.max_size)} if transform.max_size else {})]
    height, width = (int(side) for side in size)
    return [{"op": "resize", "width": width, "height": height, "interpolation": filter}]


def _center_crop(transform: Any, state: _State) -> Steps:
    width, height = _size(transform)
    return [{"op": "center_crop", "width": width, "height": height}]


def _random_resized_crop(transform: Any, state: _State) -> Steps:
    return [{
        "transform": "random_resized_crop", "size": _size(transform), "scale": _range(transform.scale),
        "ratio": _range(transform.ratio), "interpolation": _filter(transform),
    }]  # fmt: skip


def _random_crop(transform: Any, state: _State) -> Steps:
    padding = transform.padding
    mode = transform.padding_mode
    steps: Steps = []
    if mode != "constant" and transform.pad_if_needed:
        # v1 and v2 pad small images in different ways.
        raise _refuse(transform, f"pad_if_needed with padding_mode {mode} is not converted")
    if padding:
        steps = [_pad_step(transform, padding, mode, state)]
    if any(_fill(transform, transform.fill)) and state.kind != "pil":
        raise _refuse(transform, "a fill of tensors is not converted")
    crop = {
        "transform": "random_crop", "size": _size(transform), "fill": _fill(transform, transform.fill),
        "pad_if_needed": bool(transform.pad_if_needed),
    }  # fmt: skip
    return [*steps, crop]


def _pad_step(transform: Any, padding: Any, mode: Any, state: _State) -> dict[str, Any]:
    sides = [padding] * 4 if isinstance(padding, numbers.Integral) else list(padding)
    if len(sides) == 1:
        sides = sides * 4
    if len(sides) == 2:
        sides = sides * 2
    left, top, right, bottom = (int(side) for side in sides)
    fill = _fill(transform, transform.fill)
    if any(fill) and state.kind != "pil":
        raise _refuse(transform, "a fill of tensors is not converted")
    mode = getattr(mode, "value", mode)
    return {"op": "pad", "left": left, "top": top, "right": right, "bottom": bottom, "fill": fill, "mode": mode}


def _pad(transform: Any, state: _State) -> Steps:
    return [_pad_step(transform, transform.padding, transform.padding_mode, state)]


def _flip(name: str) -> Callable[[Any, _State], Steps]:
    return lambda transform, state: [{"transform": name, "p": float(transform.p)}]


def _rotation(transform: Any, state: _State) -> Steps:
    step = {
        "transform": "random_rotation", "degrees": _range(transform.degrees), "interpolation": _filter(transform),
        "expand": bool(transform.expand), "fill": _fill(transform, transform.fill),
    }  # fmt: skip
    return [step | ({"center": _range(transform.center)} if transform.center is not None else {})]


def _affine(transform: Any, state: _State) -> Steps:
    shear = [0.0] * 4
    if transform.shear is not None:
        shear = [*_range(transform.shear), 0.0, 0.0][:4]
    step = {
        "transform": "random_affine", "degrees": _range(transform.degrees),
        "translate": _range(transform.translate or (0.0, 0.0)), "scale": _range(transform.scale or (1.0, 1.0)),
        "shear_x": shear[:2], "shear_y": shear[2:], "interpolation": _filter(transform),
        "fill": _fill(transform, transform.fill),
    }  # fmt: skip
    return [step | ({"center": _range(transform.center)} if transform.center is not None else {})]


def _color_jitter(transform: Any, state: _State) -> Steps:
    names = ("brightness", "contrast", "saturation", "hue")
    ranges = {name: _range(getattr(transform, name)) for name in names if getattr(transform, name) is not None}
    return [{"transform": "color_jitter", **ranges}]


def _grayscale(transform: Any, state: _State) -> Steps:
    if transform.num_output_channels != 3:
        raise _refuse(transform, "one channel: the loader's channels=1 makes native gray images")
    return [{"op": "grayscale"}]


def _gaussian_blur(transform: Any, state: _State) -> Steps:
    width, height = (int(side) for side in transform.kernel_size)
    made = {"transform": "random_gaussian_blur", "kernel": width, "sigma": _range(transform.sigma)}
    return [made if width == height else {**made, "kernel_y": height}]


def _elastic(transform: Any, state: _State) -> Steps:
    alpha, sigma = _range(transform.alpha), _range(transform.sigma)
    if len(set(sigma)) != 1:
        raise _refuse(transform, "sigma must be the same in both directions")
    return [{
        "transform": "random_elastic", "alpha": alpha, "sigma": sigma[0], "interpolation": _filter(transform),
        "fill": _fill(transform, transform.fill),
    }]  # fmt: skip


def _perspective(transform: Any, state: _State) -> Steps:
    return [{
        "transform": "random_perspective", "distortion": float(transform.distortion_scale), "p": float(transform.p),
        "interpolation": _filter(transform), "fill": _fill(transform, transform.fill),
    }]  # fmt: skip


def _erasing(transform: Any, state: _State) -> Steps:
    if not state.scaled:
        raise _refuse(transform, "on bytes it is not converted")
    step: dict[str, Any] = {
        "transform": "random_erasing", "p": float(transform.p), "scale": _range(transform.scale), "ratio": _range(transform.ratio),
    }  # fmt: skip
    value = transform.value
    if value == "random" or value is None:
        return [step | {"noise": "per_pixel"}]
    value = [float(v) for v in value] if isinstance(value, (list, tuple)) else [float(value)]
    return [step | {"value": value * 3 if len(value) == 1 else value}]


def _timm_erasing(transform: Any, state: _State) -> Steps:
    if transform.num_splits:
        raise _refuse(transform, "num_splits is not supported: a view without erasing does the same")
    low, high = transform.log_aspect_ratio
    import math

    step: dict[str, Any] = {
        "transform": "random_erasing", "p": float(transform.probability), "scale": [transform.min_area, transform.max_area],
        "ratio": [math.exp(low), math.exp(high)], "count": [transform.min_count, transform.max_count],
    }  # fmt: skip
    mode = {"const": {}, "rand": {"noise": "per_box"}, "pixel": {"noise": "per_pixel"}}[transform.mode]
    return [step | mode]


def _normalize(transform: Any, state: _State) -> Steps:
    if not state.scaled:
        raise _refuse(transform, "it is for values of 0 to 1")
    mean, std = (_three(values) for values in (transform.mean, transform.std))
    state.normalized = True
    return [{"op": "normalize", "mean": mean, "std": std}]


def _three(values: Any) -> list[float]:
    own = [float(v) for v in values]
    return own * 3 if len(own) == 1 else own


def _policy(name: str, *arguments: tuple[str, str]) -> Callable[[Any, _State], Steps]:
    def step(transform: Any, state: _State) -> Steps:
        own = {written: getattr(transform, attribute) for written, attribute in arguments}
        fill = _fill(transform, transform.fill)
        return [{"transform": name, **own, "interpolation": _filter(transform), "fill": fill}]

    return step


def _auto_augment(transform: Any, state: _State) -> Steps:
    policy = {"imagenet": "imagenet", "cifar10": "cifar10", "svhn": "svhn"}[transform.policy.value]
    made = getattr(transform, "policies", None) or getattr(transform, "_policies", None)
    if made != transform._get_policies(transform.policy):
        raise _refuse(transform, "policies of one's own are not converted")
    return [{
        "transform": "auto_augment", "policy": policy, "interpolation": _filter(transform),
        "fill": _fill(transform, transform.fill),
    }]  # fmt: skip


def _aug_mix(transform: Any, state: _State) -> Steps:
    step = {
        "transform": "aug_mix", "severity": transform.severity, "width": transform.mixture_width, "alpha": float(transform.alpha),
        "all_ops": bool(transform.all_ops), "interpolation": _filter(transform), "fill": _fill(transform, transform.fill),
    }  # fmt: skip
    depth = transform.chain_depth
    return [step | ({"depth": depth} if depth > 0 else {})]


def _apply(transform: Any, state: _State) -> Steps:
    return _probably(transform.p, [step for child in _list(transform.transforms, state) for step in child])


def _each(transform: Any, state: _State) -> Steps:
    """A step for each child."""
    steps = _list(transform.transforms, state)
    return [part[0] if len(part) == 1 else {"transform": "maybe", "p": 1.0, "transforms": part} for part in steps]


def _choice(transform: Any, state: _State) -> Steps:
    weights = getattr(transform, "p", None) or getattr(transform, "probabilities", None)
    weighted = {"weights": [float(p) for p in weights]} if weights else {}
    return [{"transform": "one_of", "transforms": _each(transform, state), **weighted}]


def _order(transform: Any, state: _State) -> Steps:
    return [{"transform": "random_order", "transforms": _each(transform, state)}]


def _with_p(name: str, **attributes: str) -> Callable[[Any, _State], Steps]:
    def step(transform: Any, state: _State) -> Steps:
        return [
            {
                "transform": name,
                "p": float(transform.p),
                **{key: getattr(transform, of) for key, of in attributes.items()},
            }
        ]

    return step


def _timm_augment(transform: Any, state: _State) -> Steps:
    raise _refuse(
        transform,
        "the made transform has lost its settings: use warpfeed.timm.transform(**arguments of create_transform)",
    )


def _classification(preset: Any, state: _State) -> Steps:
    filter = _filter(preset)
    (resize,), (crop,) = preset.resize_size, preset.crop_size
    state.kind, state.scaled, state.normalized = "tensor", True, True
    return [
        {"op": "resize", "size": resize, "interpolation": filter},
        {"op": "center_crop", "width": crop, "height": crop},
        {"op": "normalize", "mean": _range(preset.mean), "std": _range(preset.std)},
    ]


def _solarize(transform: Any, state: _State) -> Steps:
    return [{"transform": "random_solarize", "p": float(transform.p), "threshold": float(transform.threshold)}]


def _photometric(transform: Any, state: _State) -> Steps:
    names = ("brightness", "contrast", "saturation", "hue")
    return [
        {
            "transform": "random_photometric_distort",
            "p": transform.p,
            **{name: _range(getattr(transform, name)) for name in names},
        }
    ]


def _zoom_out(transform: Any, state: _State) -> Steps:
    fill = _fill(transform, transform.fill)
    return [{"transform": "random_zoom_out", "p": transform.p, "sides": _range(transform.side_range), "fill": fill}]


def _iou_crop(transform: Any, state: _State) -> Steps:
    return [{
        "transform": "random_iou_crop", "scale": [transform.min_scale, transform.max_scale],
        "aspect": [transform.min_aspect_ratio, transform.max_aspect_ratio], "options": list(transform.options),
        "trials": transform.trials,
    }]  # fmt: skip


def _scale_jitter(transform: Any, state: _State) -> Steps:
    target = _size(transform, "target_size")
    return [
        {
            "transform": "scale_jitter",
            "target": target,
            "scale": _range(transform.scale_range),
            "interpolation": _filter(transform),
        }
    ]


def _shortest_size(transform: Any, state: _State) -> Steps:
    step = {"transform": "random_shortest_size", "sizes": list(transform.min_size), "interpolation": _filter(transform)}
    return [step | ({"max_size": transform.max_size} if transform.max_size else {})]


def _sanitize(transform: Any, state: _State) -> Steps:
    return [{"op": "sanitize", "min_size": float(transform.min_size), "min_area": float(transform.min_area)}]


def _jpeg(transform: Any, state: _State) -> Steps:
    low, high = transform.quality if isinstance(transform.quality, (list, tuple)) else (transform.quality,) * 2
    return [{"transform": "random_jpeg", "quality": [int(low), int(high)]}]


_RAND_AUGMENT = _policy("rand_augment", ("ops", "num_ops"), ("magnitude", "magnitude"), ("bins", "num_magnitude_bins"))

_STEPS: dict[str, Callable[[Any, _State], Steps]] = {
    "Identity": _nothing,
    "RGB": _nothing,
    "ToPureTensor": _to_pure_tensor,
    "MaybeToTensor": _to_tensor,
    "ToTensor": _to_tensor,
    "ToNumpy": _to_bytes("array"),
    "PILToTensor": _to_bytes("tensor"),
    "ToImage": _to_bytes("image"),
    "MaybePILToTensor": _to_bytes("tensor"),
    "ToDtype": _to_dtype,
    "ConvertImageDtype": _to_dtype,
    "ConvertDtype": _to_dtype,
    "Resize": _resize,
    "CenterCrop": _center_crop,
    "RandomResizedCrop": _random_resized_crop,
    "RandomResizedCropAndInterpolation": _random_resized_crop,
    "RandomCrop": _random_crop,
    "Pad": _pad,
    "RandomHorizontalFlip": _flip("random_horizontal_flip"),
    "RandomVerticalFlip": _flip("random_vertical_flip"),
    "RandomRotation": _rotation,
    "RandomAffine": _affine,
    "ColorJitter": _color_jitter,
    "Grayscale": _grayscale,
    "RandomGrayscale": _with_p("random_grayscale"),
    "GaussianBlur": _gaussian_blur,
    "ElasticTransform": _elastic,
    "RandomPerspective": _perspective,
    "RandomInvert": _with_p("random_invert"),
    "RandomPosterize": _with_p("random_posterize", bits="bits"),
    "RandomSolarize": _solarize,
    "RandomEqualize": _with_p("random_equalize"),
    "RandomAutocontrast": _with_p("random_autocontrast"),
    "RandomAdjustSharpness": lambda transform, state: [
        {"transform": "random_sharpness", "p": float(transform.p), "factor": float(transform.sharpness_factor)}
    ],
    "RandomChannelPermutation": lambda transform, state: [{"transform": "random_channel_permutation"}],
    "RandomErasing": lambda transform, state: (_erasing if hasattr(transform, "p") else _timm_erasing)(
        transform, state
    ),
    "Normalize": _normalize,
    "RandAugment": lambda transform, state: (_timm_augment if hasattr(transform, "ops") else _RAND_AUGMENT)(
        transform, state
    ),
    "AutoAugment": lambda transform, state: (_auto_augment if hasattr(transform.policy, "value") else _timm_augment)(
        transform, state
    ),
    "AugMixAugment": _timm_augment,
    "TrivialAugmentWide": _policy("trivial_augment", ("bins", "num_magnitude_bins")),
    "AugMix": _aug_mix,
    "RandomApply": _apply,
    "RandomChoice": _choice,
    "RandomOrder": _order,
    "JPEG": _jpeg,
    "RandomPhotometricDistort": _photometric,
    "RandomZoomOut": _zoom_out,
    "RandomIoUCrop": _iou_crop,
    "ScaleJitter": _scale_jitter,
    "RandomShortestSize": _shortest_size,
    "SanitizeBoundingBoxes": _sanitize,
    "ClampBoundingBoxes": lambda transform, state: [{"op": "clamp"}],
    "ImageClassification": _classification,
}
_ONLY_ON_TENSORS = {"ToDtype", "ConvertImageDtype", "ConvertDtype", "Normalize", "RandomErasing"}
# Classes with another class's name and other values.
_OTHERS = {("timm.data.transforms", "ToTensor")}
