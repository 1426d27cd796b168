"""Tensors on a GPU: images of uint8 with 1 or 3 channels, transformed where they are."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from . import _warpfeed
from ._errors import ParameterError, UnsupportedError


@functools.lru_cache(maxsize=64)
def _native(written: str, device: int, channels: int, floats: bool, channels_last: bool) -> Any:
    """The native form of a list on a device. That of the same list is made once."""
    return _warpfeed.CudaTransforms(written, device, channels, floats, channels_last)


@contextlib.contextmanager
def _renewed() -> Iterator[None]:
    """After a failure of the device, lists are made anew: what they have there may be of no use any more."""
    try:
        yield
    except (ParameterError, UnsupportedError):
        raise
    except BaseException:
        _native.cache_clear()
        raise


def refuse(what: str, tensor: Any) -> UnsupportedError:
    """The error for what is done on the CPU only."""
    return UnsupportedError(f"{what} on {tensor.device} are not supported: use .cpu()")


class Images:
    """The images of a tensor [..., C, H, W], as an array [N, C, H, W] has them."""

    def __init__(self, tensor: Any) -> None:
        name, channels = str(tensor.dtype).removeprefix("torch."), tensor.shape[-3]
        if tensor.device.type != "cuda":
            raise refuse("tensors", tensor)
        if name != "uint8" or channels not in (1, 3):
            raise UnsupportedError(
                f"images of {name} with {channels} channels on {tensor.device} are not supported: use uint8 with 1 or 3 "
                "channels, or .cpu()"
            )
        self._tensor = tensor
        # Where leading dimensions do not lie as one, this copies on the device.
        self._images = tensor.reshape(-1, *tensor.shape[-3:])
        self.shape, self.size = tuple(self._images.shape), self._images.numel()

    def __len__(self) -> int:
        return int(self.shape[0])

    def _described(self) -> tuple[int, Sequence[int], Sequence[int], int]:
        import torch

        stream = torch.cuda.current_stream(self._tensor.device).cuda_stream
        return self._images.data_ptr(), self.shape, self._images.stride(), stream

    def _result(self, made: Any, channels_last: bool) -> Any:
        from torch.utils.dlpack import from_dlpack

        images = from_dlpack(made)
        images = images.permute(0, 3, 1, 2) if channels_last else images
        return images.reshape(*self._tensor.shape[:-3], *images.shape[1:])

    def operation(self, operation: Any) -> Any:
        """The result of an operation, in the memory format of the images."""
        if not isinstance(operation, _warpfeed.Operation):
            raise refuse("displacements of tensors", self._tensor)
        channels_last = self.shape[1] == 3 and not self._tensor.is_contiguous() and self._tensor.stride(-3) == 1
        with _renewed():
            native = _native("[]", self._tensor.device.index, self.shape[1], False, channels_last)
            return self._result(native.operation(self._described(), operation), channels_last)

    def recipes(self, text: str, recipes: Sequence[Any]) -> Any:
        """The results of recipes that were drawn for the list with this text, one for each image or one for all."""
        floats = recipes[0].makes_floats()
        with _renewed():
            native = _native(text, self._tensor.device.index, self.shape[1], floats, False)
            return self._result(native.recipes(self._described(), list(recipes)), False)
