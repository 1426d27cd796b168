"""Hugging Face accelerate, which makes a loader of torch's own out of each one: warpfeed's stay inside what it makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard, SeedableRandomSampler
from torch.utils import data

from ._errors import ParameterError, UnsupportedError
from .torch import DataLoader

__all__ = ["prepare"]


def prepare(accelerator: Accelerator, *objects: Any) -> Any:
    """`accelerator.prepare`, for models, optimizers, schedulers and loaders, those of warpfeed's among them.

    A loader is shared out among the processes as accelerate shares out torch's: the same samples, batches and steps. One
    that was made with `distributed` stays as it is.
    """
    # A prepared loader calls itself one of warpfeed's.
    prepared = [_loader(accelerator, one) if issubclass(type(one), DataLoader) else one for one in objects]
    rest = [one for one in prepared if not issubclass(type(one), DataLoaderShard)]
    done = accelerator.prepare(*rest) if rest else ()
    others = iter(done if isinstance(done, tuple) else (done,))
    result = tuple(one if issubclass(type(one), DataLoaderShard) else next(others) for one in prepared)
    return result[0] if len(result) == 1 else result


def _loader(accelerator: Accelerator, loader: DataLoader) -> DataLoaderShard:
    if accelerator.dispatch_batches:
        raise UnsupportedError("dispatch_batches=True reads on the first process alone: leave it out")
    several = accelerator.num_processes > 1
    if loader.is_distributed or loader._listing is None and (loader._shuffles or not loader._is_plain) and not several:
        shard = DataLoaderShard([], device=accelerator.device, _drop_last=loader.drop_last)
        accelerator._dataloaders.append(shard)
        _check_remainder(accelerator, loader)
        if loader.batch_sampler is not None:
            # As accelerate's own: it counts the samples of all processes' batches.
            loader.batch_sampler.num_processes = accelerator.num_processes
    elif not loader._is_plain:
        raise ParameterError(
            f"{accelerator.num_processes} processes cannot share out a stream or repeats=: make the loader with "
            "distributed=True, after the Accelerator"
        )
    else:
        shard = accelerator.prepare_data_loader(_order_of(loader))
        if loader._listing is None and loader._shuffles:
            shard.set_sampler(SeedableRandomSampler(loader.dataset, data_seed=loader._arguments["seed"]))
        loader = loader._with(batch_sampler=shard.batch_sampler)
    shard.base_dataloader = loader
    # `skip_first_batches` makes a loader of torch's out of these.
    shard.dataset, shard.batch_size, shard.collate_fn = _Batches(loader), None, data.default_convert
    shard.num_workers, shard.prefetch_factor, shard.persistent_workers = 0, None, False
    shard.drop_last, shard.pin_memory, shard.timeout = False, False, 0
    shard._is_accelerate_prepared = True
    return shard


def _order_of(loader: DataLoader) -> data.DataLoader[Any]:
    """A loader of torch's with the same order, which accelerate shares out."""
    if loader.batch_size is None:
        return data.DataLoader(loader.dataset, batch_sampler=loader.batch_sampler)
    return data.DataLoader(
        loader.dataset,
        loader.batch_size,
        sampler=loader.sampler,
        drop_last=loader.drop_last,
        generator=loader.generator,
    )


def _check_remainder(accelerator: Accelerator, loader: DataLoader) -> None:
    """accelerate takes what is too much in the last batches for that of the last process."""
    samples = loader._source.samples
    if (
        samples is not None
        and not loader._shuffles
        and not loader.drop_last
        and -samples % accelerator.num_processes > 1
    ):
        raise ParameterError(
            f"{samples} samples are no multiple of {accelerator.num_processes} processes: leave distributed out, and accelerate "
            "shares them out such that gather_for_metrics has each once"
        )


class _Batches(data.IterableDataset[Any]):
    """The batches of a loader. It has the length and the attributes of the loader's data set."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader.dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader.dataset, name)

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)
