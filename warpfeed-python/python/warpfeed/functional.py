"""Operations on single images and batches: torchvision's functionals with warpfeed's arithmetic.

Names, order of arguments and defaults are those of `torchvision.transforms.v2.functional`. Images are PIL images,
NumPy arrays [H, W, C] or [H, W], or tensors [..., C, H, W]; a result has the type of its input. All of them have the
same values, those of torchvision on PIL images. No input is changed; where nothing is to be done, it is the result, and a crop
inside of a tensor is a view of it.
What is not done is an `UnsupportedError`, which is a NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._arguments import shown
from ._elastic import Displacement
from ._errors import ParameterError, UnsupportedError
from ._kinds import (
    applied,
    apply,
    channels_of,
    checked_fill,
    is_pillows,
    kind,
    kind_of,
    most_of,
    part_of,
    size_of,
    wrapped,
)

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "affine",
    "autocontrast",
    "center_crop",
    "clamp_bounding_boxes",
    "crop",
    "elastic",
    "equalize",
    "erase",
    "five_crop",
    "gaussian_blur",
    "gaussian_noise",
    "get_dimensions",
    "get_num_channels",
    "get_size",
    "grayscale_to_rgb",
    "hflip",
    "horizontal_flip",
    "invert",
    "jpeg",
    "normalize",
    "pad",
    "permute_channels",
    "perspective",
    "posterize",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rotate",
    "solarize",
    "ten_crop",
    "to_dtype",
    "vertical_flip",
    "vflip",
]

# Pillow's number, whose enumeration is not imported.
_FLIP_TOP_BOTTOM = 1
_PILLOW = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def _filter(value: Any, inpt: Any, *, of: str, allowed: Sequence[str]) -> str:
    """A filter by its name: torchvision's enumeration, Pillow's number, or a text."""
    if kind(inpt) == "mask":
        return "nearest"
    name = _PILLOW[value] if isinstance(value, int) and 0 <= value < 6 else getattr(value, "value", value)
    name = "nearest" if name == "nearest-exact" else name
    if name not in _PILLOW:
        raise ParameterError(f"interpolation must be one of {', '.join(_PILLOW)}, got {shown(value)}")
    if name not in allowed:
        raise UnsupportedError(f"{of} with the filter {name} is not supported: use {', '.join(allowed)}")
    return name


def _sides(size: Any, of: str) -> list[int]:
    """Height and width of one number or two."""
    sides = [size] if isinstance(size, int) else list(map(int, size))
    if len(sides) not in (1, 2):
        raise ParameterError(f"{of} must have one or two numbers, got {shown(size)}")
    return sides * 2 if len(sides) == 1 else sides


def get_size(inpt: Any) -> list[int]:
    """[height, width] of an image, or of the image that boxes or points are of."""
    return list(size_of(inpt))


def get_num_channels(inpt: Any) -> int:
    """Number of an image's channels."""
    return channels_of(inpt)


def get_dimensions(inpt: Any) -> list[int]:
    """[channels, height, width] of an image."""
    return [channels_of(inpt), *size_of(inpt)]


def resize(
    inpt: Any,
    size: int | Sequence[int] | None,
    interpolation: Any = "bilinear",
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """Resizes to (height, width), or the shorter side to one number."""
    how = _filter(interpolation, inpt, of="resize", allowed=_PILLOW)
    height, width = size_of(inpt)
    sides = None if size is None else [size] if isinstance(size, int) else [int(side) for side in size]
    if sides is None:
        if not isinstance(max_size, int):
            raise ValueError(f"max_size must be an integer when size is None, but got {max_size} instead.")
        long, short = max(height, width), min(height, width)
        sides = [max_size if side == long else int(max_size * short / long) for side in (height, width)]
        max_size = None
    elif len(sides) == 1:
        short, long = sorted((height, width))
        new_short, new_long = sides[0], int(sides[0] * long / short)
        if max_size is not None:
            if max_size <= sides[0]:
                raise ValueError(
                    f"max_size = {max_size} must be strictly greater than the requested size for the smaller edge size "
                    f"= {size}"
                )
            if new_long > max_size:
                new_short, new_long = int(max_size * new_short / new_long), max_size
        sides = [new_long, new_short] if height > width else [new_short, new_long]
    elif len(sides) == 2:
        if max_size is not None:
            raise ValueError(
                "max_size should only be passed if size is None or specifies the length of the smaller edge, i.e. size "
                "should be an int or a sequence of length 1 in torchscript mode."
            )
    else:
        raise ValueError(f"size must be an int or a sequence of one or two, got {shown(size)}")
    if sides == [height, width]:
        return inpt
    if not antialias and how in ("bilinear", "bicubic") and kind(inpt) in ("tensor", "array"):
        if sides[0] < height or sides[1] < width:
            raise UnsupportedError("resize with antialias=False is not supported: leave it out")
    op = {"op": "resize", "height": sides[0], "width": sides[1], "interpolation": how}
    return apply(inpt, op, copies=how == "nearest")


def horizontal_flip(inpt: Any) -> Any:
    """Mirrors left and right."""
    return apply(inpt, {"op": "hflip"}, copies=True)


def vertical_flip(inpt: Any) -> Any:
    """Mirrors top and bottom."""
    if is_pillows(inpt):
        return inpt.transpose(_FLIP_TOP_BOTTOM)
    return apply(inpt, {"op": "vflip"}, copies=True)


hflip, vflip = horizontal_flip, vertical_flip

_MAPS = ("nearest", "bilinear", "bicubic")


def rotate(
    inpt: Any,
    angle: float,
    interpolation: Any = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = None,
) -> Any:
    """Rotates counterclockwise by degrees."""
    how = _filter(interpolation, inpt, of="rotate", allowed=_MAPS)
    op: dict[str, Any] = {"op": "rotate", "degrees": float(angle), "expand": bool(expand), "interpolation": how}
    if center is not None:
        op["center"] = [float(c) for c in center]
    op["fill"] = checked_fill(fill, inpt)
    return apply(inpt, op, copies=how == "nearest", fills=op["fill"] != 0)


def affine(
    inpt: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: Any = "nearest",
    fill: Any = None,
    center: Sequence[float] | None = None,
) -> Any:
    """Rotates clockwise by degrees, moves by pixels, scales and shears."""
    if not isinstance(angle, (int, float)):
        raise TypeError("Argument angle should be int or float")
    if not isinstance(translate, (list, tuple)):
        raise TypeError("Argument translate should be a sequence")
    if len(translate) != 2:
        raise ValueError("Argument translate should be a sequence of length 2")
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    if not isinstance(shear, (int, float, list, tuple)):
        raise TypeError("Shear should be either a single value or a sequence of two values")
    leans = [float(shear), 0.0] if isinstance(shear, (int, float)) else [float(s) for s in shear]
    leans = leans * 2 if len(leans) == 1 else leans
    if len(leans) != 2:
        raise ValueError(f"Shear should be a sequence containing two values. Got {shear}")
    if center is not None and not isinstance(center, (list, tuple)):
        raise TypeError("Argument center should be a sequence")
    how = _filter(interpolation, inpt, of="affine", allowed=_MAPS)
    op: dict[str, Any] = {
        "op": "affine",
        "degrees": float(angle),
        "translate": [t if t != int(t) else int(t) for t in translate],
        "scale": float(scale),
        "shear": leans,
        "interpolation": how,
        "fill": checked_fill(fill, inpt),
    }
    if center is not None:
        op["center"] = [float(c) for c in center]
    return apply(inpt, op, copies=how == "nearest", fills=op["fill"] != 0)


def perspective(
    inpt: Any,
    startpoints: Sequence[Sequence[int]] | None,
    endpoints: Sequence[Sequence[int]] | None,
    interpolation: Any = "bilinear",
    fill: Any = None,
    coefficients: Sequence[float] | None = None,
) -> Any:
    """Moves four points (x, y) of the image to four others; or takes pixel (x, y) from ((a x + b y + c) / (g x + h y + 1),
    (d x + e y + f) / (g x + h y + 1)) by the coefficients a to h."""
    if coefficients is not None:
        if startpoints is not None and endpoints is not None:
            raise ValueError("The startpoints/endpoints and the coefficients shouldn't be defined concurrently.")
        if len(coefficients) != 8:
            raise ValueError("Argument coefficients should have 8 float values")
        if kind_of(inpt) in ("boxes", "points") and not _turns_back(coefficients):
            raise RuntimeError(f"the map of {list(coefficients)} has no inverse: Denominator is zero")
        end, start = _points_of(coefficients)
    elif startpoints is None or endpoints is None:
        raise ValueError("Either the startpoints/endpoints or the coefficients must have non `None` values.")
    else:
        start, end = ([[float(x), float(y)] for x, y in points] for points in (startpoints, endpoints))
    how = _filter(interpolation, inpt, of="perspective", allowed=_MAPS)
    op: dict[str, Any] = {"op": "perspective", "startpoints": start, "endpoints": end, "interpolation": how}
    op["fill"] = checked_fill(fill, inpt)
    return apply(inpt, op, copies=how == "nearest", fills=op["fill"] != 0)


def _turns_back(coefficients: Sequence[float]) -> bool:
    """Whether the map by these coefficients has an inverse as torchvision computes it."""
    a, b, _, d, e, _, _, _ = coefficients
    return a * e - b * d != 0


def _points_of(coefficients: Sequence[float]) -> tuple[list[list[float]], list[list[float]]]:
    """Four points of a result, and the points of the image that a map by eight coefficients takes them from."""
    a, b, c, d, e, f, g, h = (float(value) for value in coefficients)
    square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    divisors = [g * x + h * y + 1.0 for x, y in square]
    if any(divisor == 0.0 for divisor in divisors):
        raise UnsupportedError("coefficients that move the first pixel to infinity are not supported: give four points")
    points = [
        [(a * x + b * y + c) / divisor, (d * x + e * y + f) / divisor]
        for (x, y), divisor in zip(square, divisors, strict=True)
    ]
    return square, points


def elastic(inpt: Any, displacement: Any, interpolation: Any = "bilinear", fill: Any = None) -> Any:
    """Takes each pixel from its place plus a displacement [1, H, W, 2], (x, y) in halves of the image's sides."""
    how = _filter(interpolation, inpt, of="elastic", allowed=("nearest", "bilinear"))
    color = None if fill is None else checked_fill(fill, inpt)
    moves = Displacement(displacement, size_of(inpt), how == "bilinear", color)
    found = kind_of(inpt)
    if found == "boxes":
        return moves.boxes(inpt)
    if found == "points":
        return moves.points(inpt)
    return applied(inpt, "elastic", moves, how == "nearest", bool(color))


def crop(inpt: Any, top: int, left: int, height: int, width: int) -> Any:
    """Cuts out a rectangle. Outside of the image it is 0. Inside of a tensor, the result is a view of its memory, as it is
    in torchvision."""
    if is_pillows(inpt) and width > 0 and height > 0:
        return inpt.crop((left, top, left + width, top + height))
    view = part_of(inpt, height, width, (top, left))
    if view is not None:
        return view
    return apply(inpt, {"op": "crop", "x": left, "y": top, "width": width, "height": height}, copies=True)


def center_crop(inpt: Any, output_size: int | Sequence[int]) -> Any:
    """Cuts out (height, width) pixels at the center. A smaller image is padded with 0 first."""
    height, width = _sides(output_size, "output_size")
    view = part_of(inpt, height, width)
    if view is not None:
        return view
    return apply(inpt, {"op": "center_crop", "height": height, "width": width}, copies=True)


def resized_crop(
    inpt: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: Any = "bilinear",
    antialias: bool | None = True,
) -> Any:
    """Cuts out a rectangle, and resizes it to (height, width)."""
    rows, columns = size_of(inpt)
    is_inside = 0 <= top <= top + height <= rows and 0 <= left <= left + width <= columns
    how, sides = _filter(interpolation, inpt, of="resized_crop", allowed=_PILLOW), _sides(size, "size")
    if is_inside and antialias and kind(inpt) in ("pil", "array", "tensor") and sides != [height, width]:
        op = {"op": "resized_crop", "x": left, "y": top, "width": width, "height": height, "interpolation": how}
        return apply(inpt, {**op, "out_height": sides[0], "out_width": sides[1]}, copies=how == "nearest")
    return resize(crop(inpt, top, left, height, width), sides, interpolation, antialias=antialias)


def pad(inpt: Any, padding: int | Sequence[int], fill: Any = None, padding_mode: str = "constant") -> Any:
    """Adds pixels at all sides, at (left and right, top and bottom), or at (left, top, right, bottom)."""
    if not isinstance(padding, (int, list, tuple)):
        raise TypeError(f"`padding` should be an integer or tuple or list of integers, but got {padding}")
    sides = [padding] if isinstance(padding, int) else [int(side) for side in padding]
    if len(sides) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element of tuple or list, got {padding}")
    left, top, right, bottom = sides * (4 // len(sides))
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError(
            f"`padding_mode` should be either `'constant'`, `'edge'`, `'reflect'` or `'symmetric'`, but got "
            f"`'{padding_mode}'`."
        )
    if padding_mode != "constant" and kind_of(inpt) in ("boxes", "points"):
        # What such padding repeats has no boxes.
        raise ValueError(f"Padding mode '{padding_mode}' is not supported with bounding boxes")
    if kind(inpt) == "mask" and isinstance(fill, (list, tuple)):
        raise ValueError("Non-scalar fill value is not supported")
    color = checked_fill(fill, inpt)
    height, width = size_of(inpt)
    if min(left, top, right, bottom) < 0:
        if padding_mode != "constant":
            raise UnsupportedError("negative padding is supported with padding_mode='constant' alone")
        rect = {"x": -left, "y": -top, "width": width + left + right, "height": height + top + bottom}
        return apply(inpt, {"op": "crop", "fill": color, **rect}, copies=True, fills=color != 0)
    op = {"op": "pad", "left": left, "top": top, "right": right, "bottom": bottom, "mode": padding_mode, "fill": color}
    return apply(inpt, op, copies=True, fills=color != 0)


def five_crop(inpt: Any, size: int | Sequence[int]) -> tuple[Any, Any, Any, Any, Any]:
    """The four corners and the center."""
    if not isinstance(size, int) and len(size) > 2:
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    crop_height, crop_width = _sides(size, "size")
    height, width = size_of(inpt)
    if crop_width > width or crop_height > height:
        raise ValueError(f"Requested crop size {(crop_height, crop_width)} is bigger than input size {(height, width)}")
    right, bottom = width - crop_width, height - crop_height
    corners = [crop(inpt, top, left, crop_height, crop_width) for top in (0, bottom) for left in (0, right)]
    return (*corners, center_crop(inpt, [crop_height, crop_width]))


def ten_crop(inpt: Any, size: int | Sequence[int], vertical_flip: bool = False) -> tuple[Any, ...]:
    """The crops of `five_crop`, and those of the mirror image."""
    mirrored = vflip(inpt) if vertical_flip else hflip(inpt)
    return five_crop(inpt, size) + five_crop(mirrored, size)


def erase(inpt: Any, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Any:
    """Overwrites the rectangle of h rows and w columns at row i and column j with a value, or with values [C, h, w]."""
    found = kind_of(inpt)
    if found in ("mask", "boxes", "points"):
        return inpt
    if found == "tensor":
        import torch

        plain = inpt.as_subclass(torch.Tensor)
        out = plain if inplace else plain.clone()
        out[..., i : i + h, j : j + w] = v
        return inpt if inplace else wrapped(out, inpt)
    import numpy

    pixels = numpy.array(inpt) if found == "pil" or not inplace else inpt
    value = numpy.asarray(v)
    if value.ndim == 3 and pixels.ndim == 3:
        # torchvision's values have their channels first.
        value = value.transpose(1, 2, 0)
    pixels[i : i + h, j : j + w] = value
    if found == "array":
        return pixels
    from PIL import Image

    return Image.fromarray(pixels)


def gaussian_blur(inpt: Any, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None) -> Any:
    """Blurs by a kernel of odd (width, height), by default with the standard deviations that fit it."""
    if kind_of(inpt) in ("mask", "boxes", "points"):
        return inpt
    kernel = [kernel_size] if isinstance(kernel_size, int) else list(kernel_size)
    if len(kernel) not in (1, 2):
        raise ValueError(f"If kernel_size is a sequence its length should be 2. Got {len(kernel)}")
    if any(k % 2 == 0 or k < 0 for k in kernel):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {kernel}")
    if sigma is None:
        deviations = [k * 0.15 + 0.35 for k in kernel]
    elif isinstance(sigma, (int, float)):
        deviations = [float(sigma)]
    elif isinstance(sigma, (list, tuple)):
        if len(sigma) not in (1, 2):
            raise ValueError(f"If sigma is a sequence, its length should be 2. Got {len(sigma)}")
        deviations = [float(s) for s in sigma]
    else:
        raise TypeError(f"sigma should be either float or sequence of floats, got {shown(sigma)}")
    if any(s <= 0 for s in deviations):
        raise ValueError(f"sigma should have positive values. Got {deviations}")
    op = {"op": "gaussian_blur", "kernel": kernel[0], "sigma": deviations[0]}
    return apply(inpt, {**op, "kernel_y": kernel[-1], "sigma_y": deviations[-1]})


def gaussian_noise(inpt: Any, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Any:
    """Adds normally distributed noise of torch's generator to a tensor. Its numbers are for values of 0 to 1."""
    found = kind_of(inpt)
    if found in ("mask", "boxes", "points"):
        return inpt
    if found != "tensor":
        raise UnsupportedError("noise of torch's generator is for tensors: use to_image, or a tensor")
    import torch

    if sigma < 0:
        raise ValueError(f"sigma shouldn't be negative. Got {sigma}")
    plain = inpt.as_subclass(torch.Tensor)
    if plain.is_floating_point():
        made = plain + mean + torch.randn_like(plain) * sigma
        return wrapped(made.clamp_(0, 1) if clip else made, inpt)
    if plain.dtype != torch.uint8:
        raise ValueError(f"Input tensor is expected to be in uint8 or float dtype, got dtype={plain.dtype}")
    noise = (mean * 255 + torch.randn_like(plain, dtype=torch.float32) * (sigma * 255)).to(torch.int16)
    made = plain.to(torch.int16) + noise
    return wrapped((made.clamp_(0, 255) if clip else made).to(torch.uint8), inpt)


def adjust_brightness(inpt: Any, brightness_factor: float) -> Any:
    """Multiplies by a factor. Floating-point numbers stay within 0 to 1."""
    made = apply(inpt, {"op": "brightness", "factor": _factor("brightness_factor", brightness_factor)}, colors=True)
    if "float" not in str(getattr(made, "dtype", "")) or kind(inpt) not in ("array", "tensor"):
        return made
    return made.clip(0, 1) if kind(inpt) == "array" else wrapped(made.clamp(0, 1), inpt)


def adjust_contrast(inpt: Any, contrast_factor: float) -> Any:
    """Blends with the mean gray."""
    return apply(inpt, {"op": "contrast", "factor": _factor("contrast_factor", contrast_factor)}, colors=True)


def adjust_saturation(inpt: Any, saturation_factor: float) -> Any:
    """Blends with the gray image."""
    if kind(inpt) in ("pil", "tensor", "array") and channels_of(inpt) == 1:
        return inpt
    return apply(inpt, {"op": "saturation", "factor": _factor("saturation_factor", saturation_factor)}, colors=True)


def adjust_hue(inpt: Any, hue_factor: float) -> Any:
    """Turns the hue by a part of a circle, -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if kind(inpt) in ("pil", "tensor", "array") and channels_of(inpt) == 1:
        return inpt
    return apply(inpt, {"op": "hue", "factor": float(hue_factor)}, colors=True)


def adjust_sharpness(inpt: Any, sharpness_factor: float) -> Any:
    """Blends with a smoothed image."""
    return apply(inpt, {"op": "sharpness", "factor": _factor("sharpness_factor", sharpness_factor)}, colors=True)


def _factor(name: str, value: float) -> float:
    if value < 0:
        raise ValueError(f"{name} ({value}) is not non-negative.")
    return float(value)


def adjust_gamma(inpt: Any, gamma: float, gain: float = 1) -> Any:
    """Raises to a power, where 1 is the largest value, and multiplies by `gain`."""
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")
    return apply(inpt, {"op": "gamma", "gamma": float(gamma), "gain": float(gain)}, colors=True)


def posterize(inpt: Any, bits: int) -> Any:
    """Keeps the high bits of each value."""
    if not isinstance(bits, int) or not 0 <= bits <= 8:
        raise TypeError(f"bits must be a positive integer in the range [0, 8], got {bits} instead.")
    if bits == 8:
        return inpt
    return apply(inpt, {"op": "posterize", "bits": int(bits)}, colors=True)


def solarize(inpt: Any, threshold: float) -> Any:
    """Inverts all values from a threshold on."""
    if kind(inpt) in ("tensor", "array", "pil") and threshold > most_of(inpt):
        raise TypeError(f"Threshold should be less or equal the maximum value of the dtype, but got {threshold}")
    return apply(inpt, {"op": "solarize", "threshold": threshold}, colors=True)


def invert(inpt: Any) -> Any:
    """Subtracts each value from the largest one."""
    return apply(inpt, {"op": "invert"}, colors=True)


def equalize(inpt: Any) -> Any:
    """Equalizes the histogram of each channel."""
    return apply(inpt, {"op": "equalize"}, colors=True)


def autocontrast(inpt: Any) -> Any:
    """Stretches the values of each channel to the whole range."""
    return apply(inpt, {"op": "autocontrast"}, colors=True)


def jpeg(inpt: Any, quality: int) -> Any:
    """The image after it was a JPEG of this quality."""
    if not isinstance(quality, int) or not 1 <= quality <= 100:
        raise ValueError(f"quality must be an integer from 1 to 100, got {shown(quality)}")
    return apply(inpt, {"op": "jpeg", "quality": quality}, colors=True)


def permute_channels(inpt: Any, permutation: Sequence[int]) -> Any:
    """Puts channel `permutation[i]` in the place of channel i."""
    if kind_of(inpt) in ("mask", "boxes", "points"):
        return inpt
    channels = channels_of(inpt)
    if len(permutation) != channels:
        raise ValueError(f"Length of permutation does not match number of channels: {len(permutation)} != {channels}")
    return apply(inpt, {"op": "permute_channels", "order": [int(c) for c in permutation]}, copies=True)


def rgb_to_grayscale(inpt: Any, num_output_channels: int = 1) -> Any:
    """Luma in one channel, or in three."""
    if num_output_channels not in (1, 3):
        raise ValueError(f"num_output_channels must be 1 or 3, got {num_output_channels}.")
    found = kind_of(inpt)
    if found in ("mask", "boxes", "points"):
        return inpt
    gray = inpt if channels_of(inpt) == 1 else apply(inpt, {"op": "grayscale"})
    if found == "pil":
        return gray.convert("L" if num_output_channels == 1 else "RGB")
    if found == "array":
        if num_output_channels == 1:
            return gray if gray.ndim == 2 else gray[:, :, :1].copy()
        return (gray if gray.ndim == 3 else gray[:, :, None]).repeat(3 // (1 if gray.ndim == 2 else gray.shape[2]), 2)
    import torch

    plain = gray.as_subclass(torch.Tensor)
    if num_output_channels == 1:
        return wrapped(plain[..., :1, :, :].clone(), inpt)
    if plain.shape[-3] == 1:
        plain = plain.expand(*plain.shape[:-3], 3, *plain.shape[-2:]).clone(memory_format=torch.contiguous_format)
    return wrapped(plain, inpt)


def grayscale_to_rgb(inpt: Any) -> Any:
    """Three equal channels of one. An image with three is itself."""
    if kind_of(inpt) in ("mask", "boxes", "points") or channels_of(inpt) >= 3:
        return inpt
    return rgb_to_grayscale(inpt, 3)


def normalize(inpt: Any, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Any:
    """(value - mean) / std for each channel of a tensor of floating-point numbers."""
    found = kind_of(inpt)
    if found in ("mask", "boxes", "points"):
        return inpt
    if found != "tensor":
        raise TypeError(f"normalize takes a tensor of floating-point numbers, got {shown(inpt)}")
    import torch

    plain = inpt.as_subclass(torch.Tensor)
    if not plain.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {plain.dtype}.")
    if plain.ndim < 3:
        raise ValueError(f"Expected tensor to be a tensor image of size (..., C, H, W). Got {plain.shape}.")
    own = {"dtype": plain.dtype, "device": plain.device}
    means, deviations = (torch.as_tensor(value, **own) for value in (mean, std))
    if (deviations == 0).any():
        raise ValueError("std evaluated to zero, leading to division by zero.")
    means, deviations = (value.view(-1, 1, 1) if value.ndim == 1 else value for value in (means, deviations))
    made = plain.sub_(means) if inplace else plain.sub(means)
    made = made.div_(deviations)
    return inpt if inplace else wrapped(made, inpt)


def to_dtype(inpt: Any, dtype: Any = None, scale: bool = False) -> Any:
    """Converts a tensor. With `scale`, an image's largest value becomes that of the new type, which is 1 for
    floating-point numbers."""
    import torch

    dtype = torch.float32 if dtype is None else dtype
    found = kind_of(inpt)
    if found in ("pil", "array"):
        raise TypeError(f"to_dtype takes tensors, got {shown(inpt)}")
    plain = inpt.as_subclass(torch.Tensor)
    if plain.dtype == dtype:
        return inpt
    if found != "tensor" or not scale:
        return wrapped(plain.to(dtype), inpt)
    return wrapped(_scaled(plain, dtype), inpt)


def _scaled(plain: Any, dtype: Any) -> Any:
    """An image of another type, as torchvision's `to_dtype` scales it."""
    import torch

    most = {torch.bool: 1}
    is_float, to_float = plain.dtype.is_floating_point, dtype.is_floating_point
    if is_float and to_float:
        return plain.to(dtype)
    if is_float:
        if (
            plain.dtype == torch.float32
            and dtype in (torch.int32, torch.int64)
            or (plain.dtype == torch.float64 and dtype == torch.int64)
        ):
            raise RuntimeError(f"The conversion from {plain.dtype} to {dtype} cannot be performed safely.")
        # Each value of the new type gets an equal share of 0 to 1.
        top = most.get(dtype) or torch.iinfo(dtype).max
        return plain.mul(top + 1.0 - 1e-3).to(dtype)
    own = most.get(plain.dtype) or torch.iinfo(plain.dtype).max
    if to_float:
        return plain.to(dtype).mul_(1.0 / own)
    bits = (int(own) + 1).bit_length() - 1
    new_bits = (int(most.get(dtype) or torch.iinfo(dtype).max) + 1).bit_length() - 1
    if bits > new_bits:
        return plain.bitwise_right_shift(bits - new_bits).to(dtype)
    return plain.to(dtype).bitwise_left_shift_(new_bits - bits)


def clamp_bounding_boxes(inpt: Any, format: Any = None, canvas_size: Any = None, clamping_mode: Any = "auto") -> Any:
    """Cuts boxes at the edges of their image."""
    if kind_of(inpt) != "boxes" or format is not None or clamping_mode not in ("auto", "soft"):
        raise UnsupportedError("clamping is supported for BoundingBoxes alone, by the mode that they have")
    return apply(inpt, {"op": "clamp"})
