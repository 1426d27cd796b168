"""Hugging Face's Trainer with loaders of warpfeed's."""

from __future__ import annotations

from typing import Any

from transformers import Trainer

from . import _datasets
from .accelerate import prepare
from .torch import DataLoader

__all__ = ["LoaderArguments", "WarpfeedTrainer", "WarpfeedTrainerMixin"]


class LoaderArguments:
    """A data set with arguments of its loader. A mapping would mean several data sets to a Trainer."""

    def __init__(self, dataset: Any, **options: Any) -> None:
        """The arguments of `warpfeed.torch.DataLoader`."""
        self.arguments = {"dataset": dataset, **options}

    def __len__(self) -> int:
        samples = _datasets.find(self.arguments["dataset"]).source.samples
        if samples is None:
            raise TypeError("a stream has no length")
        return samples


class WarpfeedTrainerMixin:
    """Has a Trainer read its data sets by warpfeed: `class MyTrainer(WarpfeedTrainerMixin, Trainer)`.

    `train_dataset`, `eval_dataset` and `test_dataset` are what `warpfeed.torch.DataLoader` takes, or
    `LoaderArguments`. Batches are `{"pixel_values": images, "labels": labels}`. Batch sizes, workers and seed are
    those of the TrainingArguments. Training goes on exactly where a checkpoint was written.
    """

    def _warpfeed_loader(self, dataset: Any, batch_size: int, train: bool) -> Any:
        trainer: Any = self
        args = trainer.args
        own = dataset.arguments if isinstance(dataset, LoaderArguments) else {"dataset": dataset}
        arguments = {
            "batch_size": batch_size,
            "shuffle": train,
            "seed": args.data_seed if args.data_seed is not None else args.seed,
            "num_workers": args.dataloader_num_workers or None,
            "drop_last": args.dataloader_drop_last and train,
            "pin_memory": args.dataloader_pin_memory,
            "output": "dict",
            "distributed": True if args.world_size > 1 else None,
            **own,
        }
        return prepare(trainer.accelerator, DataLoader(**arguments))

    def get_train_dataloader(self) -> Any:
        trainer: Any = self
        return self._warpfeed_loader(trainer.train_dataset, trainer._train_batch_size, True)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        trainer: Any = self
        dataset = trainer.eval_dataset if eval_dataset is None else eval_dataset
        dataset = trainer.eval_dataset[dataset] if isinstance(dataset, str) else dataset
        return self._warpfeed_loader(dataset, trainer.args.eval_batch_size, False)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        trainer: Any = self
        return self._warpfeed_loader(test_dataset, trainer.args.eval_batch_size, False)


class WarpfeedTrainer(WarpfeedTrainerMixin, Trainer):
    """Hugging Face's Trainer, whose data sets warpfeed reads."""
