"""Trains ResNet-18 with torch's loader and with warpfeed's, three seeds each: training.py OUT.json

Made images of ten classes, 64 pixels, on one thread, a few CPU minutes in all. Models are evaluated by torch's loader. The
loaders draw from different generators, so their runs differ as two seeds do, and no more: the difference of the means must
not be larger than the range of the seeds with one loader.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torchvision.transforms as tv
from torch import nn
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

import warpfeed.torch

TRAINED, HELD_OUT, CLASSES = 320, 200, 10
EPOCHS, BATCH, SIDE = 6, 16, 64
SEEDS = (0, 1, 2)
NORMALIZE = [tv.ToTensor(), tv.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
TRAIN = tv.Compose([tv.RandomResizedCrop(SIDE, (0.3, 1.0)), tv.RandomHorizontalFlip(), *NORMALIZE])
EVALUATE = tv.Compose([tv.Resize(72), tv.CenterCrop(SIDE), *NORMALIZE])


def made(folder: Path, count: int, seed: int) -> Path:
    command = [str(Path(sys.executable).with_name("warpfeed")), "synth", str(folder), "--count", str(count)]
    command += ["--classes", str(CLASSES), "--seed", str(seed), "--megapixels", "0.05"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def loader(kind: str, folder: Path, seed: int) -> Any:
    data = ImageFolder(str(folder), TRAIN)
    if kind == "torch":
        order = torch.Generator().manual_seed(seed)
        return torch.utils.data.DataLoader(data, BATCH, shuffle=True, drop_last=True, generator=order)
    return warpfeed.torch.DataLoader(data, BATCH, shuffle=True, drop_last=True, num_workers=0, seed=seed)


def train(batches: Any, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = resnet18(num_classes=CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=EPOCHS * len(batches))
    for _ in range(EPOCHS):
        for images, labels in batches:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model


@torch.no_grad()
def evaluate(model: nn.Module, folder: Path) -> dict[str, float]:
    model.eval()
    right, loss = 0, 0.0
    for images, labels in torch.utils.data.DataLoader(ImageFolder(str(folder), EVALUATE), 50):
        scores = model(images)
        right += int((scores.argmax(1) == labels).sum())
        loss += float(nn.functional.cross_entropy(scores, labels, reduction="sum"))
    return {"accuracy": right / HELD_OUT, "loss": loss / HELD_OUT}


def main(out: str) -> None:
    torch.set_num_threads(1)
    runs: dict[str, list[dict[str, float]]] = {"torch": [], "warpfeed": []}
    with tempfile.TemporaryDirectory() as folder:
        trained, held_out = made(Path(folder) / "train", TRAINED, 1), made(Path(folder) / "test", HELD_OUT, 2)
        for seed in SEEDS:
            for kind, of in runs.items():
                start = time.process_time()
                result = evaluate(train(loader(kind, trained, seed), seed), held_out)
                of.append({"seed": seed, **result, "cpu_s": time.process_time() - start})
                print(f"{kind:8} {of[-1]}", flush=True)
                Path(out).write_text(json.dumps(runs, indent=1) + "\n")
    for name in ("accuracy", "loss"):
        values = {kind: [run[name] for run in of] for kind, of in runs.items()}
        difference = abs(sum(values["torch"]) - sum(values["warpfeed"])) / len(SEEDS)
        spread = max(max(of) - min(of) for of in values.values())
        print(f"{name}: the means differ by {difference:.4f}, the seeds by up to {spread:.4f}")
        assert difference <= spread, name


if __name__ == "__main__":
    main(*sys.argv[1:])
