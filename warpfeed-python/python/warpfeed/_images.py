"""Single images: headers, decoding to arrays, encoding."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _warpfeed
from ._arguments import shown
from ._errors import DataError, ParameterError

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    Data = bytes | bytearray | memoryview | str | os.PathLike[str] | NDArray[uint8]

SUBSAMPLINGS = {"4:4:4": (1, 1), "4:2:2": (2, 1), "4:2:0": (2, 2), "4:4:0": (1, 2), "4:1:1": (4, 1)}


class ImageHeader(NamedTuple):
    """What the header of an image says."""

    format: str
    """JPEG, PNG, WebP, PNM, TIFF, NPY or NPZ."""
    width: int
    """Pixels of a row, as stored."""
    height: int
    """Rows, as stored."""
    channels: int
    """Values of a pixel, alpha included; a palette's colors are 3."""
    dtype: str
    """The values' type where mode is "own": uint8, uint16 or float32."""
    orientation: int
    """EXIF orientation, 1 to 8."""
    bits: int
    """Bits of a stored value."""
    progressive: bool
    """Whether a JPEG comes in scans of rising quality."""
    has_alpha: bool
    """Whether there is an alpha channel, or a transparent color."""


def probe(data: Data) -> ImageHeader:
    """Reads the header of an image: its bytes, anything with a buffer of them, or its path.

    Of a file only the beginning is read, and of a TIFF its directory. An unknown or damaged header is a `DataError`.
    """
    if isinstance(data, (str, os.PathLike)):
        with _of_file(data):
            return ImageHeader(*_warpfeed.image_header(None, data))
    return ImageHeader(*_warpfeed.image_header(data, None))


def decode(
    data: Data,
    mode: Literal["RGB", "BGR", "L", "luma", "own"] = "RGB",
    *,
    exif: bool = False,
    size: tuple[int, int] | None = None,
    crop: tuple[int, int, int, int] | None = None,
    layout: Literal["HWC", "CHW"] = "HWC",
    array: Literal["numpy", "torch"] = "numpy",
    out: Any = None,
) -> Any:
    """Decodes an image to an array of uint8, by default [height, width, 3] of NumPy's, with Pillow's pixels.

    data: an image of any format that warpfeed reads: its bytes, anything with a buffer of them, or its path.
    mode: "RGB"; "BGR", as OpenCV has it; "L", luma as by Pillow's `convert("L")`, without a dimension for channels;
        "luma", that which a JPEG stores, as OpenCV and torchvision decode it to gray; or "own": the file's values and
        channels as they are stored, uint8, uint16 or float32.
    exif: turns the image as its EXIF orientation says; otherwise it is as stored, as in Pillow and torchvision.
    size: (width, height) that will do: a JPEG is decoded at 1/2, 1/4 or 1/8 of its size if that is no smaller, as by
        Pillow's `draft`. Other formats keep their size.
    crop: only the rectangle (left, top, right, bottom) of that image; a JPEG is decoded only there.
    layout: "HWC", or "CHW" for [channels, height, width].
    array: "numpy", or "torch" for a tensor on the CPU.
    out: a contiguous array or tensor of the result's shape and type, which is filled and returned.

    Threads may decode at the same time: the GIL is released. A damaged image is a `DataError`.
    """
    if isinstance(data, (str, os.PathLike)):
        with _of_file(data):
            with open(data, "rb") as file:
                content = file.read()
            return decode(content, mode, exif=exif, size=size, crop=crop, layout=layout, array=array, out=out)
    if layout not in ("HWC", "CHW"):
        raise ParameterError(f'layout must be "HWC" or "CHW", got {shown(layout)}')
    if array not in ("numpy", "torch"):
        raise ParameterError(f'array must be "numpy" or "torch", got {shown(array)}')
    if size is not None and (len(size) != 2 or min(size) < 1):
        raise ParameterError(f"size must be (width, height), at least a pixel wide and high, got {shown(size)}")
    part = None
    if crop is not None:
        left, top, right, bottom = crop
        if not (0 <= left < right and 0 <= top < bottom):
            raise ParameterError(
                f"crop must be (left, top, right, bottom), at least a pixel wide and high, got {shown(crop)}"
            )
        part = (left, top, right - left, bottom - top)
    width, height, channels, dtype = _warpfeed.decoded_shape(data, mode, exif, size)
    if part is not None:
        if right > width or bottom > height:
            raise ParameterError(f"crop must be inside the image of {width} x {height} pixels, got {shown(crop)}")
        width, height = part[2:]
    shape: tuple[int, ...] = (height, width, channels) if layout == "HWC" else (channels, height, width)
    if mode in ("L", "luma"):
        shape = (height, width)
    if out is None:
        out = _empty(array, shape, dtype)
    elif tuple(getattr(out, "shape", ())) != shape or str(getattr(out, "dtype", "")).split(".")[-1] != dtype:
        got = f"{getattr(out, 'dtype', type(out).__name__)} of the shape {list(getattr(out, 'shape', ()))}"
        raise ParameterError(f"out must be {dtype} of the shape {list(shape)}, got {got}")
    _warpfeed.decode(data, _bytes(out), mode, exif, size, part, layout == "CHW")
    return out


def encode(
    image: Any,
    format: Literal["JPEG", "PNG"] = "JPEG",
    *,
    quality: int = 75,
    subsampling: Literal["4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1"] = "4:2:0",
    progressive: bool = False,
    layout: Literal["HWC", "CHW"] = "HWC",
) -> bytes:
    """Encodes an image as a JPEG or PNG file.

    image: a NumPy array, a tensor on the CPU or a PIL image: uint8, red, green and blue ([height, width, 3], or
        [3, height, width] with the layout "CHW"), or gray ([height, width]).
    quality, subsampling: of a JPEG, in libjpeg's scale, 1 to 100. The defaults are Pillow's.
    progressive: a JPEG in scans of rising quality.
    """
    import numpy

    pixels = numpy.asarray(image)
    if pixels.ndim == 3 and layout == "CHW":
        pixels = pixels.transpose(1, 2, 0)
    if pixels.dtype != numpy.uint8 or pixels.ndim not in (2, 3) or pixels.ndim == 3 and pixels.shape[2] not in (1, 3):
        raise ParameterError(
            f"image must be uint8 of the shape [height, width] or [height, width, 3], got {pixels.dtype} of the shape "
            f"{list(pixels.shape)}"
        )
    if format not in ("JPEG", "PNG"):
        raise ParameterError(f'format must be "JPEG" or "PNG", got {shown(format)}')
    if not 1 <= quality <= 100:
        raise ParameterError(f"quality must be 1 to 100, got {shown(quality)}")
    if subsampling not in SUBSAMPLINGS:
        raise ParameterError(f"subsampling must be one of {', '.join(SUBSAMPLINGS)}, got {shown(subsampling)}")
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    sampling = SUBSAMPLINGS[subsampling] if channels == 3 else (1, 1)
    pixels = numpy.ascontiguousarray(pixels)
    return _warpfeed.encode(pixels, width, height, channels, format, quality, sampling, progressive)


@contextlib.contextmanager
def _of_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of damaged images name the file."""
    try:
        yield
    except DataError as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error.__cause__


def _empty(array: str, shape: tuple[int, ...], dtype: str) -> Any:
    if array == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype))
    import numpy

    return numpy.empty(shape, dtype)


def _bytes(out: Any) -> Any:
    """The memory of a contiguous array or tensor, as bytes."""
    if hasattr(out, "numpy"):
        out = out.numpy()
    flags = getattr(out, "flags", None)
    if flags is None or not (flags.c_contiguous and flags.writeable):
        raise ParameterError("out must be contiguous and writable")
    return out.reshape(-1).view("uint8")
