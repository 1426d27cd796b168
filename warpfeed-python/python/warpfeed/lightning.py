"""A data module for Lightning. Loaders also work without it: `trainer.fit(model, loader)`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Unpack

import torch
from lightning import LightningDataModule

from ._arguments import unknown
from .torch import DataLoader, Options

__all__ = ["DataModule"]


class DataModule(LightningDataModule):
    """Loaders of data sets, made when Lightning asks for them: then its processes are known, and each reads its own part.

    train, val, test, predict: the arguments of each loader of `warpfeed.torch`, with `dataset` among them. Those of `train`
    are shuffled unless they say otherwise. Lightning saves where the training loader is, and goes on there.
    """

    def __init__(
        self,
        train: Mapping[str, Any],
        val: Mapping[str, Any] | None = None,
        test: Mapping[str, Any] | None = None,
        predict: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """options: for all loaders, such as batch_size."""
        super().__init__()
        names = inspect.signature(DataLoader.__init__).parameters
        for name, given in {
            "train": train,
            "val": val,
            "test": test,
            "predict": predict,
            "DataModule": options,
        }.items():
            unknown(name, given or {}, names)
        self._train, self._others, self._options = train, {"val": val, "test": test, "predict": predict}, options

    def _loader(self, arguments: Mapping[str, Any]) -> DataLoader:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        return DataLoader(**{"distributed": True if distributed else None, **self._options, **arguments})

    def train_dataloader(self) -> Any:
        return self._loader({"shuffle": True, **self._train})

    def _other(self, name: str) -> Any:
        arguments = self._others[name]
        return [] if arguments is None else self._loader(arguments)

    def val_dataloader(self) -> Any:
        return self._other("val")

    def test_dataloader(self) -> Any:
        return self._other("test")

    def predict_dataloader(self) -> Any:
        # Lightning shares samples out by itself, such that each is predicted once.
        arguments = self._others["predict"]
        return [] if arguments is None else self._loader({"distributed": None, **arguments})
