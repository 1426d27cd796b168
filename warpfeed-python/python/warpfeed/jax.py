"""A data loader of JAX's arrays."""

from __future__ import annotations

from typing import Any

import jax

from . import _python, _warpfeed
from ._loader import Loader

__all__ = ["DataLoader"]


class DataLoader(Loader[tuple[Any, Any]]):
    """Batches `(images, labels)`: images `[N, H, W, 3]`, labels `[N]`, which JAX makes int32 by default; None if
    the data set has none.

    The arguments are those of `warpfeed.torch.DataLoader`, with dtypes by name. Arrays are on JAX's CPU without a copy;
    `sharding` puts them on other devices.
    """

    def __init__(
        self, dataset: Any, batch_size: int = 1, shuffle: bool = False, *, sharding: Any = None, **options: Any
    ) -> None:
        self._sharding = sharding
        super().__init__(dataset, batch_size, shuffle, **{"channels_last": True, **options})
        self._arguments = {
            "dataset": dataset,
            "batch_size": batch_size,
            "shuffle": shuffle,
            "sharding": sharding,
            **options,
        }

    def _group(self) -> tuple[int, int] | None:
        return int(jax.process_index()), int(jax.process_count())

    def _array(self, tensor: _warpfeed.Tensor) -> Any:
        array = jax.dlpack.from_dlpack(tensor)
        return array if self._sharding is None else jax.device_put(array, self._sharding)

    def _arrays(self, value: Any) -> Any:
        """numpy's arrays in tuples, lists and dicts as JAX's."""
        if isinstance(value, dict):
            return {name: self._arrays(one) for name, one in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._arrays, value))
        if not hasattr(value, "shape"):
            return value
        array = jax.numpy.asarray(value)
        return array if self._sharding is None else jax.device_put(array, self._sharding)

    def _deliver_made(self, made: _python.Made) -> Any:
        return self._arrays(made.value)

    def _deliver(self, batch: _warpfeed.Batch) -> tuple[Any, Any]:
        images = self._images(batch, self._array, jax.numpy.concatenate)
        if self._fields:
            return images, [self._arrays(one) for one in self._field_dicts(batch)]
        targets = batch.labels if batch.targets is None else batch.targets
        return images, targets if targets is None or isinstance(targets, list) else self._array(targets)
