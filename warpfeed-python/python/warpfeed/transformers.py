"""Hugging Face's Trainer with loaders of warpfeed's."""

from __future__ import annotations

from typing import Any

from transformers import Trainer

from .accelerate import prepare
from .torch import DataLoader

__all__ = ["WarpfeedTrainer", "WarpfeedTrainerMixin"]


class WarpfeedTrainerMixin:
    """Has a Trainer read its data sets by warpfeed: `class MyTrainer(WarpfeedTrainerMixin, Trainer)`.

    `train_dataset`, `eval_dataset` and `test_dataset` are what `warpfeed.torch.DataLoader` takes, or mappings of its
    arguments. Batches are `{"pixel_values": images, "labels": labels}`. Batch sizes, workers and seed are those of the
    TrainingArguments. Training goes on exactly where a checkpoint was written.
    """

    def _warpfeed_loader(self, dataset: Any, batch_size: int, train: bool) -> Any:
        trainer: Any = self
        args = trainer.args
        own = {"dataset": dataset} if not isinstance(dataset, dict) else dataset
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
