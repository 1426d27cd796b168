"""Times loaders on a folder of class folders, in turn: speed.py FOLDER [OUT.json]

`train` (random resized crop 224, flip, normalize) in batches of 32 of torch's tensors, with as many workers as processors.
Each loader has a warm-up epoch behind it; warpfeed is timed in its first epoch too. Medians of the rounds and their range.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torchvision.transforms as tv
from torchvision.datasets import ImageFolder

from warpfeed.torch import DataLoader

ROUNDS = 7
BATCH = 32
WORKERS = len(os.sched_getaffinity(0))
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TRAIN = tv.Compose([tv.RandomResizedCrop(224), tv.RandomHorizontalFlip(), tv.ToTensor(), tv.Normalize(MEAN, STD)])


def warpfeed(folder: str) -> Any:
    return DataLoader(ImageFolder(folder, TRAIN), BATCH, shuffle=True, num_workers=WORKERS, entry_points="memory")


def torchs(folder: str) -> Any:
    options: dict[str, Any] = {"num_workers": WORKERS, "persistent_workers": True}
    return torch.utils.data.DataLoader(ImageFolder(folder, TRAIN), BATCH, shuffle=True, **options)


def dali(folder: str) -> Any:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIClassificationIterator

    @pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None)
    def pipeline() -> Any:
        encoded, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="files")
        images = fn.decoders.image_random_crop(encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
        images = fn.resize(images, size=[224, 224], interp_type=types.INTERP_LINEAR, antialias=True)
        mirror = fn.random.coin_flip()
        mean, std = [255 * v for v in MEAN], [255 * v for v in STD]
        return fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std, mirror=mirror
        ), labels

    built = pipeline()
    built.build()
    return DALIClassificationIterator(built, reader_name="files", auto_reset=True)


def epoch(loader: Iterator[Any]) -> float:
    """Images per second of an epoch."""
    start, images = time.perf_counter(), 0
    for batch in loader:
        images += len(batch[0]["data"] if isinstance(batch[0], dict) else batch[0])
    return images / (time.perf_counter() - start)


def main(folder: str, out: str | None = None) -> None:
    torch.set_num_threads(1)
    kinds: dict[str, Callable[[str], Any]] = {"warpfeed": warpfeed, "torch": torchs, "DALI": dali}
    rows: dict[str, list[float]] = {}
    loaders = {}
    for name, make in kinds.items():
        try:
            loaders[name] = make(folder)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    for _ in range(ROUNDS):
        rows.setdefault("warpfeed (first epoch)", []).append(epoch(warpfeed(folder)))
        for name, loader in loaders.items():
            if name not in rows:
                for _ in range(2):
                    epoch(loader)
            rows.setdefault(name, []).append(epoch(loader))
    images = len(ImageFolder(folder))
    print(
        f"train, images/s of {images} photographs, {WORKERS} workers, batches of {BATCH}; median of {ROUNDS} rounds (least to most)"
    )
    for name, speeds in rows.items():
        print(f"{name:24} {statistics.median(speeds):8.0f}   ({min(speeds):.0f} to {max(speeds):.0f})")
    if out is not None:
        result = {"images": images, "workers": WORKERS, "batch_size": BATCH, "rounds": ROUNDS, "images_per_s": rows}
        Path(out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
