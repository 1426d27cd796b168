"""Hugging Face's Trainer: transformers_trainer.py FOLDER"""

import sys
import tempfile

import torch
from torch import nn
from transformers import TrainingArguments

from warpfeed import transforms as t
from warpfeed.transformers import LoaderArguments, WarpfeedTrainer


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3 * 32 * 32, 4)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(pixel_values.flatten(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


normalize = t.Normalize((0.5,) * 3, (0.25,) * 3)
train = LoaderArguments(sys.argv[1], transform=[t.RandomResizedCrop(32), t.RandomHorizontalFlip(), normalize])
valid = LoaderArguments(sys.argv[1], transform=[t.Resize(32), t.CenterCrop(32, 32), normalize])
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder, num_train_epochs=2, per_device_train_batch_size=8, use_cpu=True, report_to=[], save_strategy="no"
    )
    trainer = WarpfeedTrainer(Net(), args, train_dataset=train, eval_dataset=valid)
    trainer.train()
    print(f"loss {trainer.evaluate()['eval_loss']:.2f}")
