"""Hugging Face's Trainer with loaders of warpfeed's."""

from __future__ import annotations

import inspect
import os
from typing import Any, Unpack

from torch.utils import data
from transformers import Trainer

from . import _datasets
from ._arguments import unknown
from ._errors import ParameterError
from .accelerate import prepare
from .torch import DataLoader, Options

__all__ = ["LoaderArguments", "WarpfeedTrainer", "WarpfeedTrainerMixin"]


class LoaderArguments(data.Dataset[Any]):
    """A data set with arguments of its loader. A mapping would mean several data sets to a Trainer."""

    def __init__(self, dataset: Any, **options: Unpack[Options]) -> None:
        """The arguments of `warpfeed.torch.DataLoader`."""
        unknown("LoaderArguments", options, inspect.signature(DataLoader.__init__).parameters)
        self.dataset = _datasets.open_source(dataset) if isinstance(dataset, (str, os.PathLike)) else dataset
        self.options = options

    def __len__(self) -> int:
        return len(self.dataset)


class WarpfeedTrainerMixin:
    """Has a Trainer read its data sets by warpfeed: `class MyTrainer(WarpfeedTrainerMixin, Trainer)`.

    `train_dataset`, `eval_dataset` and `test_dataset` are what `warpfeed.torch.DataLoader` takes, or
    `LoaderArguments`. Batches are `{"pixel_values": images, "labels": labels}`. Batch sizes, workers, seed and order are
    those of the TrainingArguments: with the same ones, a Trainer with torch's loader reads the same batches. Training goes
    on exactly where a checkpoint was written.
    """

    def _warpfeed_loader(self, dataset: Any, batch_size: int, train: bool) -> Any:
        trainer: Any = self
        args = trainer.args
        strategy = getattr(args, "train_sampling_strategy", "random")
        if strategy not in ("random", "sequential") or getattr(args, "group_by_length", False):
            raise ParameterError(
                f"train_sampling_strategy={strategy!r} needs lengths of texts, which images do not have"
            )
        if dataset is None:
            raise ParameterError(f"the Trainer has no {'train' if train else 'eval'}_dataset")
        own = dataset if isinstance(dataset, LoaderArguments) else LoaderArguments(dataset)
        arguments: dict[str, Any] = {
            "batch_size": batch_size,
            "seed": args.data_seed if args.data_seed is not None else args.seed,
            "num_workers": args.dataloader_num_workers or None,
            "drop_last": args.dataloader_drop_last,
            "pin_memory": args.dataloader_pin_memory,
            "persistent_workers": args.dataloader_persistent_workers and args.dataloader_num_workers > 0,
            "prefetch_factor": args.dataloader_prefetch_factor,
            "output": "dict",
        }
        if not {"sampler", "batch_sampler", "distributed", "shuffle"} & set(own.options):
            sampler = trainer._get_train_sampler(own.dataset) if train else trainer._get_eval_sampler(own.dataset)
            # Only a stream has none; its shards are shared out here.
            stream = sampler is None and train
            arguments |= {"sampler": sampler} if not stream else {"shuffle": True}
            arguments |= {"distributed": True} if stream and args.world_size > 1 else {}
        return prepare(trainer.accelerator, DataLoader(own.dataset, **{**arguments, **own.options}))

    def get_train_dataloader(self) -> Any:
        trainer: Any = self
        return self._warpfeed_loader(trainer.train_dataset, trainer._train_batch_size, True)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        trainer: Any = self
        dataset = trainer.eval_dataset if eval_dataset is None else eval_dataset
        # A path is a data set itself, unless it is the name of one of several.
        several = isinstance(trainer.eval_dataset, dict)
        dataset = trainer.eval_dataset[dataset] if several and isinstance(dataset, str) else dataset
        return self._warpfeed_loader(dataset, trainer.args.eval_batch_size, False)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        trainer: Any = self
        return self._warpfeed_loader(test_dataset, trainer.args.eval_batch_size, False)


class WarpfeedTrainer(WarpfeedTrainerMixin, Trainer):
    """Hugging Face's Trainer, whose data sets warpfeed reads."""
