"""Single images as arrays."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import _warpfeed
from ._arguments import shown

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray


def decode(
    data: bytes | bytearray | memoryview | str | os.PathLike[str] | NDArray[uint8],
    *,
    exif: bool = False,
    crop: tuple[int, int, int, int] | None = None,
    out: NDArray[uint8] | None = None,
) -> NDArray[uint8]:
    """Decodes an image to a NumPy array [H, W, 3] of uint8: red, green, blue, with Pillow's pixels.

    data: a JPEG, PNG, WebP or PNM: its bytes, anything with a buffer of them, or its path.
    exif: turns the image as its EXIF orientation says; otherwise it is as stored, as in Pillow and torchvision.
    crop: only the rectangle (left, top, right, bottom); a JPEG is decoded only there.
    out: a contiguous array of the result's shape, which is filled and returned.

    Threads may decode at the same time: the GIL is released. A damaged image is a `DataError`.
    """
    import numpy

    if isinstance(data, (str, os.PathLike)):
        with open(data, "rb") as file:
            data = file.read()
    part = None
    if crop is not None:
        left, top, right, bottom = crop
        if not (0 <= left < right and 0 <= top < bottom):
            raise ValueError(
                f"crop must be (left, top, right, bottom), at least a pixel wide and high, got {shown(crop)}"
            )
        part = (left, top, right - left, bottom - top)
    if out is None:
        height, width = (part[3], part[2]) if part else _warpfeed.image_size(data, exif)
        out = numpy.empty((height, width, 3), numpy.uint8)
    _warpfeed.decode(data, out, exif, part)
    return out
