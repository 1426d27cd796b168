"""Operations on the images, masks, boxes and points that Python's libraries have.

Neither torch nor numpy is imported before an argument is one of theirs.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from . import _cuda, _rotated, _warpfeed
from ._arguments import shown
from ._errors import ParameterError, UnsupportedError

Kind = Literal["pil", "array", "tensor", "mask", "boxes", "points"]

IMAGES = "a PIL image, a NumPy array [H, W, C] or [H, W], or a tensor [..., C, H, W]"
MODES = {"L": 1, "RGB": 3}
# Elements that arithmetic is defined for.
NUMBERS = ("uint8", "uint16", "float32")


def kind(inpt: Any) -> Kind | None:
    """What an argument is: a PIL image, an array, a tensor of images, or one of torchvision's tv_tensors."""
    return _kind_of_class(inpt.__class__)


@functools.lru_cache(maxsize=256)
def _kind_of_class(cls: type) -> Kind | None:
    """The kind of a class's objects. It stays the same: there are no objects of a class before its module is imported."""
    if (pil := sys.modules.get("PIL.Image")) and issubclass(cls, pil.Image):
        return "pil"
    if (tv := sys.modules.get("torchvision.tv_tensors")) and issubclass(cls, tv.TVTensor):
        _plain.see(sys.modules["torch"])
        for name, known in (("mask", "Mask"), ("boxes", "BoundingBoxes"), ("points", "KeyPoints")):
            if issubclass(cls, getattr(tv, known, ())):
                return name  # type: ignore[return-value]
        return "tensor"
    if (torch := sys.modules.get("torch")) and issubclass(cls, torch.Tensor):
        _plain.see(torch)
        return "tensor"
    if (numpy := sys.modules.get("numpy")) and issubclass(cls, numpy.ndarray):
        return "array"
    return None


@functools.lru_cache(maxsize=256)
def name_of(dtype: Any) -> str:
    """The name of an array's type, which numpy makes anew each time."""
    return str(dtype.name)


def kind_of(inpt: Any) -> Kind:
    """As `kind`, of an argument that must be one."""
    found = kind(inpt)
    if found is None:
        raise TypeError(f"inpt must be {IMAGES}, or one of torchvision's tv_tensors, got {shown(inpt)}")
    return found


def size_of(inpt: Any) -> tuple[int, int]:
    """Height and width of an image, or of the image that boxes or points are of."""
    found = kind_of(inpt)
    if found == "pil":
        return inpt.height, inpt.width
    if found == "array":
        return inpt.shape[0], inpt.shape[1]
    if found in ("boxes", "points"):
        return inpt.canvas_size[0], inpt.canvas_size[1]
    return inpt.shape[-2], inpt.shape[-1]


def channels_of(inpt: Any) -> int:
    """Number of an image's channels."""
    found = kind_of(inpt)
    if found == "pil":
        return len(inpt.getbands())
    if found == "array":
        return 1 if inpt.ndim == 2 else int(inpt.shape[2])
    if found == "tensor":
        return int(inpt.shape[-3])
    raise TypeError(f"{type(inpt).__name__} has no channels")


def most_of(image: Any) -> float:
    """The value that stands for white: the largest of a type, and 1 for floating-point numbers."""
    if kind_of(image) == "pil":
        return 255
    name = str(image.dtype).removeprefix("torch.")
    return {"uint8": 255, "uint16": 65535, "bool": 1}.get(name, 1 if "float" in name else 2**31 - 1)


@functools.lru_cache(maxsize=1024)
def _native(written: str) -> Any:
    """The native form of an operation. That of the same operation is made once."""
    return _warpfeed.Operation(written)


@functools.lru_cache(maxsize=1024, typed=True)
def _native_of(**op: Any) -> Any:
    """As `_native`, of an operation without lists. Finding it again costs less than writing it."""
    return _native(json.dumps(op))


def _native_for(op: Mapping[str, Any]) -> Any:
    try:
        return _native_of(**op)
    except TypeError:
        # Lists cannot be found again so.
        return _native(json.dumps(op))


class _PlainTensors:
    """Operations on tensors without gaps of torch's own class, which is known once there has been a tensor."""

    tensor: type | None = None
    apply: Callable[[Any, Any], Any]

    def see(self, torch: Any) -> None:
        if self.tensor is None:
            # The result, or `None` for a tensor that needs the way by arrays.
            self.apply = _warpfeed.TorchTensors(torch).apply
            self.tensor = torch.Tensor


_plain = _PlainTensors()


def apply(inpt: Any, op: Mapping[str, Any], *, copies: bool = False, fills: bool = False, colors: bool = False) -> Any:
    """The result of an operation in its written form, of the input's own type.

    copies: the operation copies values, so these may be of any type.
    fills: the result has a color or value that is no pixel of the input.
    colors: the operation is on colors, so masks, boxes and points stay as they are.
    """
    if inpt.__class__ is _plain.tensor:
        made = _plain.apply(_native_for(op), inpt)
        if made is not None:
            return made
    if colors and kind_of(inpt) in ("mask", "boxes", "points"):
        return inpt
    return applied(inpt, op["op"], _native_for(op), copies, fills)


def applied(inpt: Any, name: str, native: Any, copies: bool, fills: bool) -> Any:
    """As `apply`, by an operation of this name in its native form."""
    found = kind_of(inpt)
    if found == "pil":
        return _pil(inpt, native)
    if found == "array":
        return _array(inpt, native, copies, fills)
    if found == "boxes":
        return _boxes(inpt, name, native)
    if found == "points":
        return _points(inpt, native)
    return _tensor(inpt, native, found == "mask", copies or found == "mask", fills)


def part_of(inpt: Any, height: int, width: int, corner: tuple[int, int] | None = None) -> Any:
    """A rectangle of a tensor or mask as a view of its memory, as torchvision's crops are: at (top, left), or at the
    center. `None` for others, and for a rectangle that is empty or reaches outside."""
    is_plain = inpt.__class__ is _plain.tensor
    if not (is_plain or kind(inpt) in ("tensor", "mask")) or inpt.ndim < 2:
        return None
    rows, columns = inpt.shape[-2:]
    top, left = corner or (round((rows - height) / 2), round((columns - width) / 2))
    if not (0 <= top < top + height <= rows and 0 <= left < left + width <= columns):
        return None
    plain = inpt if is_plain else inpt.as_subclass(sys.modules["torch"].Tensor)
    view = plain[..., top : top + height, left : left + width]
    return view if is_plain else wrapped(view, inpt)


def is_pillows(inpt: Any) -> bool:
    """Whether this is a PIL image that Pillow's own copies are for."""
    return kind(inpt) == "pil" and inpt.mode in MODES


def of_pillow(image: Any, native: Any) -> Any:
    """The result of an operation or recipe on a PIL image by Pillow's own memory. `None` if that is not to be had."""
    made = native.on_pillow(image, image.mode == "L", *image.size)
    return made and sys.modules["PIL.Image"].fromarrow(made[0], image.mode, made[1])


def _pil(image: Any, native: Any) -> Any:
    if image.mode not in MODES:
        raise UnsupportedError(f'images of the mode {image.mode} are not supported: use image.convert("RGB")')
    if isinstance(native, _warpfeed.Operation) and (made := of_pillow(image, native)):
        return made
    import numpy
    from PIL import Image

    pixels = numpy.asarray(image)
    height, width = native.output_size(*pixels.shape[:2])
    made = numpy.empty((height, width, *pixels.shape[2:]), numpy.uint8)
    _run(native, pixels.reshape(1, *pixels.shape[:2], -1), made.reshape(1, height, width, -1), False)
    return Image.fromarray(made)


def _array(array: Any, native: Any, copies: bool, fills: bool) -> Any:
    import numpy

    if array.ndim not in (2, 3):
        raise TypeError(f"an array must be [H, W, C] or [H, W], got the shape {list(array.shape)}")
    source = array if array.ndim == 3 else array[:, :, None]
    height, width = native.output_size(*source.shape[:2])
    if name_of(array.dtype) in NUMBERS:
        made = numpy.empty((height, width, source.shape[2]), array.dtype)
        _run(native, source[None], made[None], False)
    else:
        _check_copies(name_of(array.dtype), copies, fills)
        bits, channels = _bits(numpy.ascontiguousarray(source)), source.shape[2]
        made = numpy.empty((height, width, bits.shape[2]), bits.dtype)
        _run(native, bits[None], made[None], False)
        made = made.view(array.dtype).reshape(height, width, channels)
    return made if array.ndim == 3 else made[:, :, 0]


def _tensor(tensor: Any, native: Any, is_mask: bool, copies: bool, fills: bool) -> Any:
    torch = sys.modules["torch"]
    plain = tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)
    on_device = tensor.device.type != "cpu"
    if plain is not tensor and not on_device and not is_mask and isinstance(native, _warpfeed.Operation):
        made = _plain.apply(native, plain)
        if made is not None:
            return wrapped(made, tensor)
    inner = 2 if is_mask else 3
    if plain.ndim < inner:
        form = "[..., H, W]" if is_mask else "[..., C, H, W]"
        raise TypeError(f"a tensor must be {form}, got the shape {list(plain.shape)}")
    if on_device and is_mask:
        raise _cuda.refuse("masks", tensor)
    if plain.requires_grad:
        raise UnsupportedError("operations have no gradient: use .detach()")
    if on_device and plain.numel():
        return wrapped(_cuda.Images(tensor).operation(native), tensor)
    lead, (height, width) = plain.shape[:-inner], plain.shape[-2:]
    channels = 1 if is_mask else plain.shape[-3]
    size = native.output_size(height, width) if height and width else (height, width)
    shape = (*lead, *size) if is_mask else (*lead, channels, *size)
    if shape == plain.shape and plain.is_contiguous():
        made = torch.empty_like(plain)
    elif is_mask or plain.is_contiguous() or plain.stride(-3) != 1:
        made = torch.empty(shape, dtype=plain.dtype, device=plain.device)
    else:
        # The input's channels lie next to each other, so the result's do.
        made = torch.empty((*lead, *size, channels), dtype=plain.dtype).movedim(-1, -3)
    if plain.numel():
        _fill_tensor(plain, made, native, channels, copies, fills)
    return wrapped(made, tensor)


def _fill_tensor(plain: Any, made: Any, native: Any, channels: int, copies: bool, fills: bool) -> None:
    """Runs an operation on all images of a tensor."""
    import torch

    name = str(plain.dtype).removeprefix("torch.")
    if name in NUMBERS:
        _run(native, _images(plain, channels), _images(made, channels), True)
        return
    if name in ("int16", "int32", "int64") and copies and 0 <= plain.min() and plain.max() < 1 << 16:
        # Fills are numbers, so the values are such too.
        source = plain.to(torch.uint16)
        target = torch.empty(made.shape, dtype=torch.uint16)
        _run(native, _images(source, channels), _images(target, channels), True)
        made.copy_(target)
        return
    if name == "bool":
        _run(native, _images(plain.view(torch.uint8), channels), _images(made.view(torch.uint8), channels), True)
        return
    if name in ("float16", "bfloat16"):
        source = plain.float()
        target = torch.empty(made.shape)
        _run(native, _images(source, channels), _images(target, channels), True)
        made.copy_(target)
        return
    _check_copies(name, copies, fills)
    if plain.element_size() == 8:
        parts = [(plain.contiguous().view(torch.float32)[..., i::2], i) for i in (0, 1)]
        halves = made.view(torch.float32) if made.is_contiguous() else None
        if halves is None:
            raise UnsupportedError(f"{name} with the memory format channels_last is not supported: use .contiguous()")
        for part, i in parts:
            _run(native, _images(part, channels), _images(halves[..., i::2], channels), True)
        return
    own = {1: torch.uint8, 2: torch.uint16, 4: torch.float32}[plain.element_size()]
    _run(native, _images(plain.view(own), channels), _images(made.view(own), channels), True)


def _check_copies(name: str, copies: bool, fills: bool) -> None:
    if not copies:
        raise UnsupportedError(f"values of {name} are not supported: use uint8, uint16 or float32")
    if fills:
        raise UnsupportedError(f"a fill among values of {name} is not supported: use uint8, uint16 or float32")


def _bits(array: Any) -> Any:
    """The same bits, as values that are copied."""
    import numpy

    own = {1: numpy.uint8, 2: numpy.uint16, 4: numpy.float32, 8: numpy.float32}[array.dtype.itemsize]
    return array.view(own)


def _images(tensor: Any, channels: int) -> Any:
    """A tensor's memory as an array [N, C, H, W]."""
    height, width = tensor.shape[-2:]
    return tensor.resolve_neg().numpy().reshape(-1, channels, height, width)


def _run(native: Any, source: Any, target: Any, channels_first: bool) -> None:
    """Runs an operation on arrays of the same type."""
    if min(source.strides) < 0:
        source = source.copy()
    if not source.dtype.isnative:
        raise UnsupportedError("values of another byte order are not supported: use array.astype")
    native.run(source, target, channels_first)


def wrapped(made: Any, like: Any, **changes: Any) -> Any:
    """A tensor of the type of another one, if that is one of torchvision's."""
    tv = sys.modules.get("torchvision.tv_tensors")
    if tv is None or not isinstance(like, tv.TVTensor):
        return made
    return tv.wrap(made, like=like, **changes)


def _boxes(boxes: Any, op: str, native: Any) -> Any:
    import torch

    format = boxes.format.name
    if format in _rotated.FORMATS:
        values, after = _rotated.moved(boxes, op, native)
        return wrapped(values, boxes, canvas_size=after)
    # torchvision's "hard" differs from "soft" for rotated boxes alone.
    clamping = "soft" if getattr(boxes, "clamping_mode", "soft") else None
    plain = boxes.as_subclass(torch.Tensor)
    size = tuple(boxes.canvas_size)
    rows = plain.reshape(-1, 4).tolist()
    moved, after = native.boxes(rows, format.lower(), clamping, *size)
    values = torch.tensor(moved, dtype=torch.float32).reshape(plain.shape)
    return wrapped(values.to(plain.device, plain.dtype), boxes, canvas_size=after)


def _points(points: Any, native: Any) -> Any:
    import torch

    plain = points.as_subclass(torch.Tensor)
    moved, after = native.points(plain.reshape(-1, 2).tolist(), *points.canvas_size)
    values = torch.tensor(moved, dtype=torch.float32).reshape(plain.shape)
    return wrapped(values.to(plain.device, plain.dtype), points, canvas_size=after)


def checked_fill(fill: Any, inpt: Any) -> Any:
    """A fill as the operations have it: a number, or one for each channel."""
    if fill is None:
        return 0
    if isinstance(fill, Mapping):
        raise UnsupportedError("a fill for each type of input is not supported by a functional: give the value")
    values = [float(v) for v in fill] if isinstance(fill, Sequence) or hasattr(fill, "__len__") else [float(fill)]
    if kind(inpt) in ("boxes", "points"):
        return 0
    if len(values) > 1 and kind(inpt) != "mask" and len(values) != channels_of(inpt):
        raise ParameterError(
            f"fill must be a number, or one for each of {channels_of(inpt)} channels, got {shown(fill)}"
        )
    values = [int(v) if v == int(v) else v for v in values]
    return values[0] if len(values) == 1 else values
