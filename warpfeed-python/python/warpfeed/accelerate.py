"""Hugging Face accelerate, which takes only torch's own loaders: loaders of warpfeed's inside one that it knows."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard

from ._errors import ParameterError
from .torch import DataLoader, _Batches

__all__ = ["prepare"]


def prepare(accelerator: Accelerator, *objects: Any) -> Any:
    """`accelerator.prepare`, for models, optimizers and loaders of warpfeed's.

    With several processes a loader must have been made with `distributed`, since each process reads its own part. The last
    step of an accumulation is taken with the last batch, as with torch's loaders.
    """
    prepared = tuple(_loader(accelerator, one) if isinstance(one, DataLoader) else one for one in objects)
    rest = [one for one in prepared if not isinstance(one, DataLoaderShard)]
    done = accelerator.prepare(*rest) if rest else ()
    others = iter(done if isinstance(done, tuple) else (done,))
    result = tuple(one if isinstance(one, DataLoaderShard) else next(others) for one in prepared)
    return result[0] if len(result) == 1 else result


def _loader(accelerator: Accelerator, loader: DataLoader) -> DataLoaderShard:
    if accelerator.num_processes > 1 and not loader.is_distributed:
        raise ParameterError(
            f"{accelerator.num_processes} processes: make the loader with distributed=True, after the Accelerator"
        )
    shard = DataLoaderShard(_Batches(loader), device=accelerator.device, batch_size=None)
    # accelerate wraps what is not marked once more, and deals the batches of rank 0 out.
    shard._is_accelerate_prepared = True
    accelerator._dataloaders.append(shard)
    return shard
