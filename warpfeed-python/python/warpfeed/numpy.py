"""A data loader of numpy's arrays."""

from __future__ import annotations

from typing import Any

import numpy

from . import _warpfeed
from ._loader import Loader

__all__ = ["DataLoader"]


class DataLoader(Loader[tuple[Any, Any]]):
    """Batches `(images, labels)`: images `[N, 3, H, W]`, labels `[N]` of int64, or the targets that were asked for.

    Several views are a list of arrays. The arguments are those of `warpfeed.torch.DataLoader`, with dtypes by name and
    `channels_last=True` for `[N, H, W, 3]`. numpy has no bfloat16.
    """

    def _deliver(self, batch: _warpfeed.Batch) -> tuple[Any, Any]:
        views = [[_array(one) for one in view] if isinstance(view, list) else _array(view) for view in batch.views]
        targets = batch.labels if batch.targets is None else batch.targets
        return views[0] if len(views) == 1 else views, targets if isinstance(targets, list) else _array(targets)


def _array(tensor: _warpfeed.Tensor) -> Any:
    return numpy.asarray(tensor)
