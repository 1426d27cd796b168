"""Times training on a GPU with each loader: gpu_training.py FOLDER OUT.json [LOADER...]

ResNet-50 and ResNet-18 on 224 x 224 crops (random resized crop, flip, normalize) of a folder of class folders, batches of
256, in bfloat16 with channels last, SGD. `steps` trains on one batch that stays on the GPU: what the GPU can do if no
images are fed. Each loader has a process of its own, and as many workers as there are processors. A loader whose package
is missing is left out by name. OUT.json is written after each loader.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

BATCH = 256
WORKERS = len(os.sched_getaffinity(0))
MODELS = ("resnet50", "resnet18")
LOADERS = (
    "steps",
    "warpfeed on the GPU",
    "warpfeed on the GPU, the CPU decodes",
    "warpfeed on the CPU",
    "DALI",
    "DALI without hardware decoder",
    "torch",
)
# Seconds before the clock starts, in which memory is taken and entry points are found, and seconds that are timed.
WARM_UP_S, TIMED_S = 2.5, 3.0
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def warpfeed(folder: str, device: str, decode: str) -> Any:
    from warpfeed.torch import DataLoader

    # torch's own default for pinned memory and the GPU's default for everything else.
    pinned = {"pin_memory": True} if device == "cpu" else {}
    return DataLoader(
        folder,
        BATCH,
        shuffle=True,
        preset="train",
        num_workers=WORKERS,
        drop_last=True,
        device=device,
        jpeg_decoder=decode,
        entry_points="memory",
        **pinned,
    )


def torchs(folder: str) -> Any:
    import torchvision.transforms as t
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    steps = [t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)]
    options: dict[str, Any] = {
        "num_workers": WORKERS,
        "persistent_workers": True,
        "pin_memory": True,
        "drop_last": True,
    }
    return DataLoader(ImageFolder(folder, t.Compose(steps)), BATCH, shuffle=True, **options)


def dali(folder: str, hardware_load: float) -> Any:
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=0, seed=1)
    def pipeline() -> Any:
        encoded, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="reader")
        images = fn.decoders.image_random_crop(
            encoded,
            device="mixed",
            output_type=types.RGB,
            hw_decoder_load=hardware_load,
            random_area=[0.08, 1.0],
            random_aspect_ratio=[3 / 4, 4 / 3],
        )
        images = fn.crop_mirror_normalize(
            fn.resize(images, resize_x=224, resize_y=224),
            mirror=fn.random.coin_flip(),
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            dtype=types.FLOAT,
            output_layout="CHW",
        )
        return images, labels.gpu()

    built = pipeline()
    built.build()
    return built


def dali_batches(pipeline: Any) -> Iterator[Any]:
    import torch

    while True:
        images, labels = pipeline.run()
        # As DALI's own iterator does: its memory is used again by the next run.
        yield torch.from_dlpack(images.as_tensor()).clone(), torch.from_dlpack(labels.as_tensor()).clone()


def batches(name: str, folder: str) -> Iterator[Any]:
    import torch

    if name == "steps":
        images = torch.randn(BATCH, 3, 224, 224, device="cuda")
        labels = torch.randint(10, (BATCH,), device="cuda")
        while True:
            yield images, labels
    elif name.startswith("DALI"):
        yield from dali_batches(dali(folder, 0.0 if "without" in name else 0.65))
    else:
        device, decode = "cuda:0" if "GPU" in name else "cpu", "cpu" if "CPU decodes" in name else "auto"
        loader = torchs(folder) if name == "torch" else warpfeed(folder, device, decode)
        while True:
            yield from loader


def timed(model_name: str, feed: Iterator[Any]) -> float:
    """Images per second of the training."""
    import torch
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.get_model(model_name, num_classes=1000).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)

    def train_for(seconds: float) -> float:
        torch.cuda.synchronize()
        images_seen, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            images, labels = next(feed)
            images = images.to("cuda", memory_format=torch.channels_last, non_blocking=True)
            labels = labels.to("cuda", non_blocking=True).view(-1).long()
            with torch.autocast("cuda", torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            images_seen += len(images)
            # A trainer looks at its loss now and then; without it the host would queue seconds ahead.
            if images_seen // BATCH % 16 == 0:
                loss.item()
        torch.cuda.synchronize()
        return images_seen / (time.perf_counter() - start)

    train_for(WARM_UP_S)
    return train_for(TIMED_S)


def one(name: str, folder: str) -> dict[str, Any]:
    import torch

    feed = batches(name, folder)
    found: dict[str, Any] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    for model in MODELS:
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        found[model] = timed(model, feed)
        after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - start
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        # Of this process; torch's workers are others.
        found[f"{model}_cpus"] = round(used / seconds, 2)
    return found


def main() -> None:
    if sys.argv[1] == "--one":
        name, folder = sys.argv[2:]
        print(json.dumps(one(name, folder)), flush=True)
        # Loaders' threads and processes need not be waited for.
        os._exit(0)
    folder, out, *names = sys.argv[1:]
    found: dict[str, Any] = {"workers": WORKERS, "batch": BATCH, "loaders": {}}
    for name in names or LOADERS:
        if name.startswith("DALI") and importlib.util.find_spec("nvidia.dali") is None:
            print(f"{name}: not installed")
            continue
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, folder], capture_output=True, text=True, timeout=90
        )
        if done.returncode != 0:
            print(f"{name}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
            continue
        found["loaders"][name] = result = json.loads(done.stdout.strip().splitlines()[-1])
        rates = [f"{model} {result[model]:7.0f} images/s ({result[model + '_cpus']} CPUs)" for model in MODELS]
        print(f"{name:36} {', '.join(rates)}", flush=True)
        with open(out, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
