"""Transforms of images in memory, with what belongs to them."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _cuda, _warpfeed
from ._arguments import shown
from ._errors import ParameterError, UnsupportedError
from ._kinds import MODES, NUMBERS, kind, name_of, of_pillow, size_of, wrapped

Key = tuple[int, int, int]
Path = tuple[Any, ...]
IMAGES = ("pil", "array", "tensor")


@functools.lru_cache(maxsize=256)
def _native(written: str, pixels: str, channels: int, sanitize: bool) -> Any:
    """The native form of a list for a kind of images. That of the same list is made once."""
    return _warpfeed.Transforms(written, pixels, channels, sanitize)


@dataclass
class _Sample:
    """The parts of a sample by what they are, with their places."""

    images: list[tuple[Path, Any]] = field(default_factory=list)
    masks: list[tuple[Path, Any]] = field(default_factory=list)
    boxes: list[tuple[Path, Any]] = field(default_factory=list)
    points: list[tuple[Path, Any]] = field(default_factory=list)
    following: list[tuple[Path, Any]] = field(default_factory=list)
    others: list[tuple[Path, Any]] = field(default_factory=list)


class Applied:
    """Calls a list of transforms."""

    per_batch: bool
    threads: int
    generator: Any
    sanitize: bool
    follow: Sequence[str]
    bbox_format: str

    @property
    def _text(self) -> str:
        """The written form of the list."""
        raise NotImplementedError

    def __call__(self, *inputs: Any, key: Key | Sequence[Key] | None = None, **named: Any) -> Any:
        if bool(inputs) == bool(named):
            raise TypeError("give a sample, or image= with mask=, masks=, bboxes=, keypoints= and others by name")
        # An image alone needs no look for what else a sample has.
        if len(inputs) == 1 and kind(inputs[0]) in IMAGES:
            return _image_alone(inputs[0], self._text, self._key(key), self)[0]
        if len(named) == 1 and kind(named.get("image")) in IMAGES:
            return {"image": _image_alone(named["image"], self._text, self._key(key), self)[0]}
        if named:
            return self._by_keywords(named, key)
        made = self._transformed(inputs, key)
        return made[0] if len(inputs) == 1 else made

    def _transformed(self, sample: Any, key: Key | Sequence[Key] | None) -> Any:
        parts = _parts(sample, self.follow)
        if not parts.images:
            raise TypeError("a sample must have an image: a PIL image, a NumPy array or a tensor")
        _check_others(parts)
        make = _with_objects if parts.masks or parts.boxes or parts.points else _images_alone
        results = make(parts, self._text, self._key(key), self)
        return _replaced(sample, results, ())

    def _key(self, key: Key | Sequence[Key] | None) -> Key | Sequence[Key]:
        if key is not None:
            return key
        torch = sys.modules.get("torch")
        if torch is None:
            return (random.getrandbits(63), 0, 0)
        return (int(torch.randint(2**63 - 1, (), generator=self.generator)), 0, 0)

    def _by_keywords(self, named: dict[str, Any], key: Key | Sequence[Key] | None) -> dict[str, Any]:
        """albumentations' way to call: masks, boxes and points without types of their own."""
        if kind(named.get("image")) not in IMAGES:
            raise TypeError(f"image must be a PIL image, a NumPy array or a tensor, got {shown(named.get('image'))}")
        plain: dict[str, Callable[[Any], Any]] = {
            "mask": _PlainMask,
            "masks": lambda masks: [_PlainMask(mask) for mask in masks],
            "bboxes": lambda rows: _PlainBoxes(rows, self.bbox_format),
            "keypoints": _PlainPoints,
        }
        known = {name: plain[name](value) if name in plain else value for name, value in named.items()}
        made = self._transformed(known, key)
        return {
            name: [_bare(mask) for mask in value] if name == "masks" else _bare(value) for name, value in made.items()
        }


def _bare(value: Any) -> Any:
    return value.value if isinstance(value, _Plain) else value


@dataclass
class _Plain:
    """An argument whose name says what it is."""

    value: Any


class _PlainMask(_Plain):
    pass


class _PlainPoints(_Plain):
    pass


@dataclass
class _PlainBoxes(_Plain):
    format: str


def _leaves(sample: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(sample, Mapping):
        for name, value in sample.items():
            yield from _leaves(value, (*path, name))
    elif isinstance(sample, (list, tuple)):
        for i, value in enumerate(sample):
            yield from _leaves(value, (*path, i))
    else:
        yield path, sample


def _parts(sample: Any, follow: Sequence[str]) -> _Sample:
    """What the leaves of a sample are. Of plain tensors and arrays the first is an image, if there is no other."""
    parts = _Sample()
    leaves = list(_leaves(sample, ()))
    for path, leaf in leaves:
        found = kind(leaf)
        if found == "mask" or isinstance(leaf, _PlainMask):
            parts.masks.append((path, leaf))
        elif found == "boxes" or isinstance(leaf, _PlainBoxes):
            parts.boxes.append((path, leaf))
        elif found == "points" or isinstance(leaf, _PlainPoints):
            parts.points.append((path, leaf))
        elif path and path[-1] in follow:
            parts.following.append((path, leaf))
        elif found == "pil" or found == "tensor" and type(leaf).__name__ in ("Image", "Video"):
            parts.images.append((path, leaf))
        elif found in ("tensor", "array"):
            parts.others.append((path, leaf))
    if not parts.images:
        parts.images, parts.others = parts.others[:1], parts.others[1:]
    # Lists of numbers under these names have their numbers as leaves.
    names = {path[:-1] for path, _ in leaves if len(path) > 1 and path[-2] in follow}
    parts.following += [(path, _at(sample, path)) for path in sorted(names, key=str)]
    return parts


def _check_others(parts: _Sample) -> None:
    """Refuses what looks like a mask or a further image, but does not say which."""
    sides = size_of(parts.images[0][1])
    for path, other in parts.others:
        shape = tuple(other.shape)
        if sides in (shape[-2:], shape[:2]):
            name = ", ".join(map(str, path))
            raise TypeError(
                f"an array of the image's size ({name}) is a mask or an image: say which by torchvision's Mask or Image, or "
                "call by keywords, as compose(image=image, mask=mask)"
            )


def _at(sample: Any, path: Path) -> Any:
    for step in path:
        sample = sample[step]
    return sample


def _replaced(sample: Any, results: Mapping[Path, Any], path: Path) -> Any:
    """The sample with results in their places."""
    if path in results:
        return results[path]
    if isinstance(sample, Mapping):
        made = {name: _replaced(value, results, (*path, name)) for name, value in sample.items()}
        return made if type(sample) is dict else type(sample)(made)  # type: ignore[call-arg]
    if isinstance(sample, (list, tuple)):
        values = [_replaced(value, results, (*path, i)) for i, value in enumerate(sample)]
        if isinstance(sample, tuple) and hasattr(sample, "_fields"):
            return type(sample)(*values)
        return type(sample)(values)
    return sample


class _Pillow:
    """A PIL image, as an array [1, H, W, C] of its pixels, which is not made before it is needed."""

    def __init__(self, image: Any) -> None:
        self.shape = (1, image.height, image.width, MODES[image.mode])
        self.size = image.height * image.width

    @property
    def dtype(self) -> Any:
        import numpy

        return numpy.dtype("uint8")

    def __len__(self) -> int:
        return 1


def _array_of(image: Any) -> tuple[Any, bool]:
    """An image's memory as an array [N, H, W, C], or [N, C, H, W] if the second is true."""
    found = kind(image)
    if found == "pil":
        if image.mode not in MODES:
            raise UnsupportedError(f'images of the mode {image.mode} are not supported: use image.convert("RGB")')
        return _Pillow(image), False
    if found == "array":
        array, channels_first = (image if image.ndim == 3 else image[:, :, None])[None], False
    else:
        if image.ndim < 3:
            raise TypeError(f"a tensor must be [..., C, H, W], got the shape {list(image.shape)}")
        if image.requires_grad:
            raise UnsupportedError("tensors with gradients are not supported: use .detach()")
        if image.device.type != "cpu":
            return _cuda.Images(image), True
        array, channels_first = _plain(image).resolve_neg().numpy().reshape(-1, *image.shape[-3:]), True
    if name_of(array.dtype) not in NUMBERS:
        raise UnsupportedError(f"values of {name_of(array.dtype)} are not supported: use uint8, uint16 or float32")
    return (array.copy() if min(array.strides) < 0 else array), channels_first


def _plain(tensor: Any) -> Any:
    plain = sys.modules["torch"].Tensor
    return tensor if type(tensor) is plain else tensor.as_subclass(plain)


def _transforms_for(array: Any, channels_first: bool, text: str, options: Applied) -> Any:
    channels = array.shape[1 if channels_first else 3]
    if isinstance(array, _cuda.Images):
        return _native(text, "rgb", channels, options.sanitize)
    if name_of(array.dtype) == "uint8" and channels in MODES.values():
        return _native(text, "rgb", channels, options.sanitize)
    element = {"uint8": "u8", "uint16": "u16", "float32": "f32"}[name_of(array.dtype)]
    return _native(text, f"{element}x{channels}", channels, options.sanitize)


def _sides(array: Any, channels_first: bool) -> tuple[int, int]:
    return tuple(array.shape[2:4] if channels_first else array.shape[1:3])


def _result(image: Any, array: Any, channels_first: bool, recipes: Sequence[Any], text: str, options: Applied) -> Any:
    """What recipes, one for each image of the array or one for all, make of an image, in its own type."""
    import numpy

    sides = {recipe.output_size(*_sides(array, channels_first)) for recipe in recipes}
    if len(sides) > 1:
        raise ParameterError(
            "images of a tensor must end in one size: end with a crop or a resize to a width and height"
        )
    if isinstance(array, _cuda.Images):
        return wrapped(array.recipes(text, recipes), image)
    (height, width), number = sides.pop(), len(array)
    channels = array.shape[1 if channels_first else 3]
    floats = recipes[0].makes_floats() and array.dtype != numpy.float32
    if floats and kind(image) == "pil":
        raise UnsupportedError("an image of Pillow's holds no floating-point numbers: give an array or a tensor")
    if isinstance(array, _Pillow):
        if own := of_pillow(image, recipes[0]):
            return own
        array = numpy.asarray(image).reshape(array.shape)
    shape = (number, channels, height, width) if channels_first else (number, height, width, channels)
    made = numpy.empty(shape, numpy.float32 if floats else array.dtype)
    if len(recipes) == 1 and number == 1:
        recipes[0].run(array, made, channels_first)
    else:
        _warpfeed.run_each(recipes, array, made, channels_first, options.threads)
    found = kind(image)
    if found == "tensor":
        import torch

        return wrapped(torch.from_numpy(made).reshape(*image.shape[:-2], height, width), image)
    made = made[0] if channels > 1 or getattr(image, "ndim", 2) == 3 else made[0, :, :, 0]
    if found == "pil":
        from PIL import Image

        return Image.fromarray(made)
    return made


def _image_alone(image: Any, text: str, key: Key | Sequence[Key], options: Applied) -> tuple[Any, tuple[int, int]]:
    """The result of an image without boxes, points and masks, and the image's height and width."""
    array, channels_first = _array_of(image)
    if not array.size:
        raise ParameterError("an image must have a pixel")
    sides = _sides(array, channels_first)
    native = _transforms_for(array, channels_first, text, options)
    is_shared = options.per_batch or type(image).__name__ == "Video"
    number = 1 if is_shared else len(array)
    recipes = [native.draw(*sides, None, None, [], own) for own in _keys(key, number)]
    return _result(image, array, channels_first, recipes, text, options), sides


def _images_alone(parts: _Sample, text: str, key: Key | Sequence[Key], options: Applied) -> dict[Path, Any]:
    results, first_sides = {}, None
    for path, image in parts.images:
        results[path], sides = _image_alone(image, text, key, options)
        first_sides = first_sides or sides
        if sides != first_sides:
            raise ParameterError(
                f"images of a sample must have one size, got {first_sides} and {sides} (height, width)"
            )
    return results


def _keys(key: Key | Sequence[Key], number: int) -> Sequence[Key]:
    """A key for each image of a batch: those that were given, or the samples from one on."""
    if isinstance(key[0], int):
        seed, epoch, index = key
        return [(seed, epoch, index + i) for i in range(number)]  # type: ignore[operator, misc]
    if len(key) != number:
        raise ParameterError(f"key must be one key, or one for each of {number} images, got {len(key)}")
    return key  # type: ignore[return-value]


def _one(parts: Sequence[tuple[Path, Any]], what: str) -> tuple[Path, Any] | None:
    if len(parts) > 1:
        raise UnsupportedError(f"a sample with more than one set of {what} is not supported: call once for each")
    return parts[0] if parts else None


def _with_objects(parts: _Sample, text: str, key: Key | Sequence[Key], options: Applied) -> dict[Path, Any]:
    path, image = parts.images[0]
    array, channels_first = _array_of(image)
    if len(array) != 1 and not (options.per_batch or type(image).__name__ == "Video"):
        raise UnsupportedError("masks, boxes and points of a batch are not supported: call once for each image")
    sides = _sides(array, channels_first)
    boxes, points = _one(parts.boxes, "boxes"), _one(parts.points, "points")
    rows = None if boxes is None else _rows_of_boxes(boxes[1], sides)
    count = 0 if rows is None else len(rows[0])
    masks = [_planes(mask, sides, count if boxes is not None else None) for _, mask in parts.masks]
    # A mask of several planes that are not of objects is several masks.
    groups = [
        group
        for planes, of_objects in masks
        for group in ([(planes, True)] if of_objects else [([p], False) for p in planes])
    ]
    native = _transforms_for(array, channels_first, text, options)
    point_rows = None if points is None else _rows_of_points(points[1], count if boxes is not None else None)
    (own,) = _keys(key, 1)
    recipe = native.draw(*sides, rows, point_rows, groups, own)
    after, kept = recipe.output_size(*sides), recipe.rows()
    results: dict[Path, Any] = {path: _result(image, array, channels_first, [recipe], text, options)}
    for other, value in parts.images[1:]:
        own, first = _array_of(value)
        if _sides(own, first) != sides:
            raise ParameterError("images of a sample must have one size")
        on_device = isinstance(own, _cuda.Images), isinstance(array, _cuda.Images)
        if any(on_device) and (not all(on_device) or own.shape != array.shape):
            raise UnsupportedError(
                "further images on another device, or of another shape, are not supported: call once for each"
            )
        if not any(on_device) and own.dtype != array.dtype or own.shape != array.shape and first == channels_first:
            raise UnsupportedError("further images of another kind are not supported: call once for each")
        results[other] = _result(value, own, first, [recipe], text, options)
    if boxes is not None:
        results[boxes[0]] = _moved(boxes[1], recipe.boxes(), after, 4)
        for other, value in parts.following:
            if len(value) != count:
                raise ParameterError(f"{other[-1]} must have one row for each of {count} boxes, got {len(value)}")
            results[other] = _kept(value, kept)
    if points is not None:
        results[points[0]] = _moved(points[1], recipe.points(), after, 2)
    number = 0
    for (other, mask), (planes, of_objects) in zip(parts.masks, masks, strict=True):
        used = 1 if of_objects else len(planes)
        moved = [plane for i in range(number, number + used) for plane in recipe.mask(i)]
        results[other], number = _moved_mask(mask, moved, of_objects, after), number + used
    return results


def _kept(values: Any, rows: Sequence[int]) -> Any:
    """The rows that are left of a list, an array or a tensor. If all are, it is the same object."""
    if len(rows) == len(values):
        return values
    if isinstance(values, (list, tuple)):
        return type(values)(values[row] for row in rows)
    return values[list(rows)]


def _rows_of_boxes(boxes: Any, sides: tuple[int, int]) -> tuple[list[list[float]], str, str | None]:
    if isinstance(boxes, _PlainBoxes):
        rows = boxes.value.tolist() if hasattr(boxes.value, "tolist") else [list(row) for row in boxes.value]
        if any(len(row) != 4 for row in rows):
            raise ParameterError("bboxes must have four numbers each: give classes as labels=")
        return rows, boxes.format, "soft"
    if boxes.format.name not in ("XYXY", "XYWH", "CXCYWH"):
        raise UnsupportedError(f"rotated boxes ({boxes.format.name}) are not supported: use XYXY, XYWH or CXCYWH")
    if tuple(boxes.canvas_size) != sides:
        raise ParameterError(
            f"boxes are of an image of {tuple(boxes.canvas_size)}, but the image is {sides} (height, width)"
        )
    return (
        _plain(boxes).reshape(-1, 4).tolist(),
        boxes.format.name.lower(),
        getattr(boxes, "clamping_mode", "soft") and "soft",
    )


def _rows_of_points(points: Any, objects: int | None) -> tuple[list[list[float]], int]:
    """Points, and their number for each object; 0 if they belong to none."""
    value = points.value if isinstance(points, _PlainPoints) else _plain(points)
    if not hasattr(value, "tolist"):
        import numpy

        value = numpy.asarray(value, dtype="float32").reshape(-1, 2)
    per_object = value.shape[1] if objects is not None and value.ndim == 3 and len(value) == objects else 0
    return value.reshape(-1, 2).tolist(), per_object


def _moved(part: Any, rows: Sequence[Sequence[float]], canvas: tuple[int, int], numbers: int) -> Any:
    """Rows in the type of the boxes or points that they were."""
    if isinstance(part, _Plain):
        value = part.value
        if not hasattr(value, "tolist"):
            made: Any = [type(value[0])(row) if len(value) else row for row in rows]
        elif kind(value) == "tensor":
            made = (
                sys.modules["torch"].tensor(rows, dtype=value.dtype, device=value.device).reshape(-1, *value.shape[1:])
            )
        else:
            made = sys.modules["numpy"].asarray(rows, dtype=value.dtype).reshape(-1, *value.shape[1:])
        return type(part)(**{**vars(part), "value": made})
    import torch

    made = torch.tensor(rows, dtype=torch.float32).reshape(-1, *part.shape[1:]) if rows else part[:0]
    return wrapped(_plain(made).to(part.device, part.dtype), part, canvas_size=canvas)


def _planes(mask: Any, sides: tuple[int, int], objects: int | None) -> tuple[list[bytes], bool]:
    """A mask's planes as uint16, and whether they are planes of the boxes' objects: [N, H, W] for N boxes."""
    import numpy

    like = _bare(mask)
    if kind(like) in ("mask", "tensor") and like.device.type != "cpu":
        raise _cuda.refuse("masks", like)
    values = numpy.asarray(_plain(like) if kind(like) in ("mask", "tensor") else like)
    if values.ndim < 2 or values.shape[-2:] != tuple(sides):
        raise ParameterError(f"a mask must have the image's size {sides} (height, width), got {values.shape[-2:]}")
    of_objects = objects is not None and values.ndim == 3 and len(values) == objects
    most = 255 if of_objects else 65_535
    if values.size and not 0 <= values.min() <= values.max() <= most:
        raise UnsupportedError(f"masks with values below 0 or above {most} are not supported")
    return [plane.astype(numpy.uint16).tobytes() for plane in values.reshape(-1, *sides)], of_objects


def _moved_mask(mask: Any, planes: Sequence[bytes], of_objects: bool, after: tuple[int, int]) -> Any:
    """Planes in the type of the mask that they were."""
    import numpy

    like = _bare(mask)
    lead = (len(planes),) if of_objects else like.shape[:-2]
    array = numpy.frombuffer(b"".join(planes), numpy.uint16).reshape(*lead, *after)
    if kind(like) == "array":
        made: Any = array.astype(like.dtype)
    else:
        import torch

        made = wrapped(torch.from_numpy(array.astype(numpy.int32)).to(like.dtype), like)
    return _PlainMask(made) if isinstance(mask, _PlainMask) else made
