"""Single images, for serving."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Literal

from . import _warpfeed
from ._arguments import at_least, checked, one_of, shown
from ._warpfeed import Tensor
from .transforms import Transform, written


class Preprocessor:
    """Turns encoded images into a tensor for a model that serves, with the bytes of the loaders' evaluation."""

    @checked
    def __init__(
        self,
        transform: str | Sequence[Transform],
        *,
        dtype: Literal["float32", "float16", "bfloat16", "uint8", "uint16"] = "float32",
        channels_last: bool = False,
        max_batch: int = 32,
        num_workers: int = 0,
    ) -> None:
        """transform: the name of a preset, such as "eval", or operations that draw nothing at random."""
        at_least(1, max_batch=max_batch)
        at_least(0, num_workers=num_workers)
        if isinstance(transform, str):
            one_of("transform", transform, _warpfeed.presets())
        ops = _warpfeed.preset(transform)[0] if isinstance(transform, str) else json.dumps(written(transform))
        short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint8": "u8", "uint16": "u16"}
        layout = "nhwc" if channels_last else "nchw"
        self._native = _warpfeed.Preprocessor(ops, short.get(dtype, dtype), layout, max_batch, num_workers)

    @classmethod
    def from_contract(cls, path: str | os.PathLike[str], *, max_batch: int = 32, num_workers: int = 0) -> Preprocessor:
        """One with the operations of a contract, which `warpfeed contract write` makes. It raises an error, which names the
        first operation that differs, unless the contract's probe images become the contract's pixels."""
        return cls._of(_warpfeed.Preprocessor.from_contract(os.fspath(path), max_batch, num_workers))

    @classmethod
    def _of(cls, native: _warpfeed.Preprocessor) -> Preprocessor:
        own = cls.__new__(cls)
        own._native = native
        return own

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images in a tensor."""
        return self._native.image_size

    def __call__(self, images: Sequence[bytes]) -> Tensor:
        """Decodes images and makes a tensor of them, in their order."""
        wrong = images if isinstance(images, (bytes, str)) or not isinstance(images, Sequence) else None
        wrong = wrong or next((image for image in images if not isinstance(image, bytes)), None)
        if wrong is not None:
            raise TypeError(f"images must be a list of the bytes of encoded images, got {shown(wrong)}")
        return self._native.run(list(images))
