"""Times loaders on a folder of class folders, in turn: speed.py FOLDER OUT.json

`train` (random resized crop 224, flip, normalize) in batches of 32 of torch's float tensors, with as many workers as
processors. Each loader has had warm-up epochs; warpfeed is timed in its first epoch too. `warpfeed run` is timed beside
them: the package should lose nothing against the command. A loader whose package is missing is left out by name.

OUT.json is written after every round, and speed_table.py makes the table and the plot of it. CPU time is that of all
processes of a loader, user and system, so it says something on a machine that is not quiet too. 960 photographs on two
processors take about four minutes. WARPFEED_ROUNDS is the number of rounds.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torchvision.transforms as tv
from torchvision.datasets import ImageFolder

from warpfeed.torch import DataLoader

ROUNDS = int(os.environ.get("WARPFEED_ROUNDS", "7"))
BATCH = 32
WORKERS = len(os.sched_getaffinity(0))
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CROP = tv.RandomResizedCrop(224)
TRAIN = tv.Compose([CROP, tv.RandomHorizontalFlip(), tv.ToTensor(), tv.Normalize(MEAN, STD)])
# Epochs before warpfeed's entry points are all there and other loaders' memory is warm.
WARM_UP = 2
# Seconds that a loader is timed in a round at least, in whole epochs.
LEAST_S = 1.5


@dataclass
class Speed:
    """What some epochs took."""

    images_per_s: float
    cpu_ms_per_image: float


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


def ffcv(folder: str) -> Any:
    """FFCV reads a file of its own. It decodes the images and encodes them anew for it, here as JPEG of the usual quality."""
    import numpy
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
    from ffcv.writer import DatasetWriter

    written = os.path.join(tempfile.mkdtemp(), "images.beton")
    fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    DatasetWriter(written, fields, num_workers=WORKERS).from_indexed_dataset(ImageFolder(folder))
    mean, std = 255 * numpy.array(MEAN), 255 * numpy.array(STD)
    image = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]
    image += [NormalizeImage(mean, std, numpy.float32), ToTensor(), ToTorchImage()]
    pipelines = {"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]}
    return Loader(written, BATCH, num_workers=WORKERS, order=OrderOption.RANDOM, os_cache=True, pipelines=pipelines)


class Spdl:
    """SPDL has no random resized crop: torchvision draws it, and FFmpeg's filters do it."""

    def __init__(self, folder: str) -> None:
        import spdl.io
        import spdl.pipeline

        spdl.io.demux_image(ImageFolder(folder).samples[0][0])  # it finds out here that FFmpeg is missing
        self.samples = ImageFolder(folder).samples
        self.pool = ThreadPoolExecutor(WORKERS)
        mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
        self.scale, self.shift = 1 / (255 * std), mean / std

    def image(self, sample: tuple[str, int]) -> tuple[Any, int]:
        import spdl.io

        packets = spdl.io.demux_image(sample[0])
        # get_params asks for the size alone.
        empty = torch.empty(0, packets.height, packets.width)
        top, left, height, width = CROP.get_params(empty, CROP.scale, CROP.ratio)
        steps = [f"crop={width}:{height}:{left}:{top}:exact=1", "scale=224:224:flags=bilinear", "format=pix_fmts=rgb24"]
        steps += ["hflip"] if random.random() < 0.5 else []
        return spdl.io.decode_packets(packets, filter_desc=",".join(steps)), sample[1]

    def batch(self, images: list[tuple[Any, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        import spdl.io

        pixels = spdl.io.to_torch(spdl.io.convert_frames([frames for frames, _ in images]))
        planes = pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return planes.mul_(self.scale).sub_(self.shift), torch.tensor([label for _, label in images])

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder

        order = random.sample(self.samples, len(self.samples))
        builder: Any = PipelineBuilder().add_source(order).pipe(self.image, concurrency=WORKERS, executor=self.pool)
        pipeline = builder.aggregate(BATCH).pipe(self.batch).add_sink(2).build(num_threads=WORKERS)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)


def cpu_s() -> float:
    """The CPU time of this process and of all that it started."""
    processes: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            # The parent; user and system time, its own and that of its children that have ended.
            processes[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    own, found = {os.getpid()}, True
    while found:
        more = {process for process, (parent, _) in processes.items() if parent in own} - own
        own, found = own | more, bool(more)
    return sum(processes[process][1] for process in own)


def epochs(loader: Iterable[Any], least_s: float = 0.0) -> Speed:
    """One epoch, and more of them until so many seconds have passed."""
    start, cpu, images = time.perf_counter(), cpu_s(), 0
    while not images or time.perf_counter() - start < least_s:
        for batch in loader:
            images += len(batch[0]["data"] if isinstance(batch[0], dict) else batch[0])
    return Speed(images / (time.perf_counter() - start), 1000 * (cpu_s() - cpu) / images)


def command(folder: str) -> Speed:
    """Epochs of `warpfeed run` after its warm-up."""
    given = ["run", folder, "--preset", "train", "--orientation", "ignore", "--device", "cpu"]
    given += ["--entry-points", "memory", "--batch-size", str(BATCH), "--threads", str(WORKERS), "--json", "--epochs"]

    def run(epochs: int) -> tuple[Any, float]:
        cpu = cpu_s()
        ran = [str(Path(sys.executable).with_name("warpfeed")), *given, str(epochs)]
        done = subprocess.run(ran, check=True, capture_output=True, text=True)
        return json.loads(done.stdout), cpu_s() - cpu

    (_, before), (report, all_of_it) = run(WARM_UP), run(WARM_UP + 8)
    each = report["each_epoch"][WARM_UP:]
    images = sum(one["images"] for one in each)
    return Speed(images / sum(one["seconds"] for one in each), 1000 * (all_of_it - before) / images)


def conditions(folder: str) -> dict[str, Any]:
    names = [line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": names[0] if names else platform.machine(),
        "load_average_1min": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), "commit": commit(), **installed()},
        "images": len(ImageFolder(folder)),
        "workers": WORKERS,
        "batch_size": BATCH,
    }


def commit() -> str:
    """What the wheel was built of: this checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def installed() -> dict[str, str]:
    versions = {}
    for name in ("warpfeed", "torch", "torchvision", "nvidia-dali-cuda130", "ffcv", "spdl"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def main(folder: str, out: str) -> None:
    torch.set_num_threads(1)
    result: dict[str, Any] = {**conditions(folder), "rounds": 0, "left_out": {}, "loaders": {}}
    loaders = {}
    kinds = {"warpfeed": warpfeed, "torch": torchs, "DALI": dali, "FFCV": ffcv, "SPDL": Spdl}
    for name, make in kinds.items():
        try:
            loaders[name] = make(folder)
            for _ in range(WARM_UP):
                epochs(loaders[name])
        except Exception as error:  # whatever a foreign loader raises, the others are timed
            if name in ("warpfeed", "torch"):
                raise
            loaders.pop(name, None)
            result["left_out"][name] = f"{type(error).__name__}: {error}"
            print(f"{name} is left out: {error}", file=sys.stderr)
    rows: dict[str, list[dict[str, float]]] = result["loaders"]

    def add(name: str, speed: Speed) -> None:
        rows.setdefault(name, []).append(vars(speed))

    for turn in range(ROUNDS):
        add("warpfeed (first epoch)", epochs(warpfeed(folder)))
        for name, loader in loaders.items():
            add(name, epochs(loader, LEAST_S))
        add("the command", command(folder))
        result["rounds"] = turn + 1
        Path(out).write_text(json.dumps(result, indent=1) + "\n")
        print(f"round {turn + 1} of {ROUNDS}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
