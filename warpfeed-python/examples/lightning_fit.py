"""Lightning, with a data module: lightning_fit.py FOLDER"""

import sys

import lightning
import torch
from torch import nn

from warpfeed import transforms as t
from warpfeed.lightning import DataModule


class Model(lightning.LightningModule):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, classes))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        images, labels = batch
        self.log("accuracy", (self.net(images).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


normalize = t.Normalize((0.5,) * 3, (0.25,) * 3)
data = DataModule(
    {"dataset": sys.argv[1], "transform": [t.RandomResizedCrop(32), t.RandomHorizontalFlip(), normalize]},
    {"dataset": sys.argv[1], "transform": [t.Resize(32), t.CenterCrop(32, 32), normalize]},
    batch_size=8,
)
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(Model(4), data)
print(f"accuracy {trainer.callback_metrics['accuracy'].item():.2f}")
