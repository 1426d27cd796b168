"""A data loader of numpy's arrays."""

from __future__ import annotations

from typing import Any

import numpy

from . import _warpfeed
from ._loader import Loader

__all__ = ["DataLoader"]


class DataLoader(Loader[tuple[Any, Any]]):
    """Batches `(images, labels)`: images `[N, 3, H, W]`, labels `[N]` of int64, or the targets or fields that were asked for;
    None if the data set has neither.

    Several views are a list of arrays. The arguments are those of `warpfeed.torch.DataLoader`, with dtypes by name and
    `channels_last=True` for `[N, H, W, 3]`. numpy has no bfloat16.
    """

    def _deliver(self, batch: _warpfeed.Batch) -> tuple[Any, Any]:
        images = self._images(batch, _array, numpy.concatenate)
        if self._fields:
            return images, self._field_dicts(batch)
        targets = batch.labels if batch.targets is None else batch.targets
        return images, targets if targets is None or isinstance(targets, list) else _array(targets)


def _array(tensor: _warpfeed.Tensor) -> Any:
    return numpy.asarray(tensor)
