"""Trains ResNet-18 with torch's loader and with warpfeed's, three seeds each: training.py OUT.json

Made images of ten classes, 64 pixels, one thread for each run, seven CPU minutes in all. Models are evaluated by torch's loader.
Both loaders have the same images, transforms and steps, and a seed means the same first weights with both. They draw from
different generators, so their runs differ as two seeds do, and no more: the difference of the means must not be larger than
the range of the seeds with one loader. test_torchvision.py compares the batches themselves, with the same draws.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torchvision.transforms as tv
from torch import nn
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

import warpfeed.torch

TRAINED, HELD_OUT, CLASSES = 800, 500, 10
EPOCHS, BATCH, SIDE, RATE = 10, 32, 64, 0.02
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
    model: nn.Module = resnet18(num_classes=CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * len(batches))
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


def conditions() -> dict[str, Any]:
    cpu = [line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    versions = {name: version(name) for name in ("warpfeed", "torch", "torchvision")}
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": cpu[0] if cpu else platform.machine(),
        "versions": {"python": platform.python_version(), **versions},
        "images": {"trained": TRAINED, "held_out": HELD_OUT, "classes": CLASSES, "side_px": SIDE},
        "training": {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE, "threads": 1},
    }


def run(kind: str, seed: int, trained: Path, held_out: Path) -> dict[str, float]:
    torch.set_num_threads(1)
    start = time.process_time()
    found = evaluate(train(loader(kind, trained, seed), seed), held_out)
    return {"seed": seed, **found, "cpu_s": round(time.process_time() - start, 1)}


def main(out: str) -> None:
    runs: dict[str, list[dict[str, float]]] = {"torch": [], "warpfeed": []}
    result: dict[str, Any] = {**conditions(), "runs": runs}
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(len(os.sched_getaffinity(0)), spawn) as pool:
        trained, held_out = made(Path(folder) / "train", TRAINED, 1), made(Path(folder) / "test", HELD_OUT, 2)
        begun = [(kind, pool.submit(run, kind, seed, trained, held_out)) for seed in SEEDS for kind in runs]
        for kind, future in begun:
            runs[kind].append(future.result())
            print(f"{kind:8} {runs[kind][-1]}", flush=True)
            Path(out).write_text(json.dumps(result, indent=1) + "\n")
    failed = []
    for name in ("accuracy", "loss"):
        values = {kind: [run[name] for run in of] for kind, of in runs.items()}
        means = {kind: statistics.fmean(of) for kind, of in values.items()}
        difference = abs(means["torch"] - means["warpfeed"])
        spread = max(max(of) - min(of) for of in values.values())
        result[name] = {"means": means, "difference": difference, "spread_of_seeds": spread}
        print(f"{name}: the means differ by {difference:.4f}, the seeds by up to {spread:.4f}")
        failed += [name] if difference > spread else []
    Path(out).write_text(json.dumps(result, indent=1) + "\n")
    if failed:
        raise SystemExit(f"The loaders differ more than the seeds: {', '.join(failed)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
