"""timm's transforms and its `create_loader`, by timm's own arguments."""

from __future__ import annotations

import os
from typing import Any

import torch
from timm.data import FastCollateMixup, Mixup, create_transform
from timm.data.distributed_sampler import OrderedDistributedSampler, RepeatAugSampler
from torch.utils.data.distributed import DistributedSampler

from . import _datasets, _torchvision
from ._errors import ParameterError, UnsupportedError
from ._identity import known
from .torch import DataLoader, Options

__all__ = ["create_loader", "transform"]

_PILLOW = {2: "bilinear", 3: "bicubic"}


def transform(input_size: Any, **arguments: Any) -> list[dict[str, Any]]:
    """The transforms that `timm.data.create_transform` makes of the same arguments, for a loader's `transform`."""
    if arguments.get("separate") or arguments.get("re_num_splits"):
        raise ParameterError("separate and re_num_splits are not supported: views do the same")
    arguments["use_prefetcher"] = False
    text = arguments.get("auto_augment")
    made = create_transform(input_size, **arguments)

    def own(one: Any) -> list[dict[str, Any]] | None:
        is_augment = known(one, "timm.data.auto_augment") in ("RandAugment", "AutoAugment", "AugMixAugment")
        return [_augment(one, text)] if text and is_augment else None

    converted = _torchvision.convert(made, own)
    if converted.rest:
        raise UnsupportedError(converted.why)
    return converted.steps


def _augment(made: Any, text: str) -> dict[str, Any]:
    ops = getattr(made, "ops", None) or [op for policy in made.policy for op in policy]
    style = ops[0].kwargs
    step: dict[str, Any] = {"transform": "timm_augment", "config": text, "fill": [int(v) for v in style["fillcolor"]]}
    filters = style.get("resample")
    if filters is not None:
        both = filters if isinstance(filters, (list, tuple)) else [filters]
        names = [_PILLOW[int(one)] for one in both]
        step["interpolation"] = names[0] if len(names) == 1 else names
    if style.get("translate_pct") is not None:
        step["translate"] = float(style["translate_pct"])
    return step


def create_loader(
    dataset: Any,
    input_size: int | tuple[int, int] | tuple[int, int, int],
    batch_size: int,
    is_training: bool = False,
    no_aug: bool = False,
    re_prob: float = 0.0,
    re_mode: str = "const",
    re_count: int = 1,
    re_split: bool = False,
    train_crop_mode: str | None = None,
    scale: tuple[float, float] | None = None,
    ratio: tuple[float, float] | None = None,
    hflip: float = 0.5,
    vflip: float = 0.0,
    color_jitter: float | tuple[float, ...] | None = 0.4,
    color_jitter_prob: float | None = None,
    grayscale_prob: float = 0.0,
    gaussian_blur_prob: float = 0.0,
    auto_augment: str | None = None,
    num_aug_repeats: int = 0,
    num_aug_splits: int = 0,
    interpolation: str = "bilinear",
    mean: tuple[float, ...] = (0.485, 0.456, 0.406),
    std: tuple[float, ...] = (0.229, 0.224, 0.225),
    num_workers: int = 1,
    distributed: bool = False,
    crop_pct: float | None = None,
    crop_mode: str | None = None,
    crop_border_pixels: int | None = None,
    collate_fn: Any = None,
    pin_memory: bool = False,
    fp16: bool = False,
    img_dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    use_prefetcher: bool = True,
    use_multi_epochs_loader: bool = False,
    persistent_workers: bool = True,
    worker_seeding: str = "all",
    tf_preprocessing: bool = False,
    input_size_choices: Any = None,
    batch_size_choices: Any = None,
    batch_choice_weights: Any = None,
    batch_choice_seed: int = 0,
    batch_choice_schedule: str = "constant",
    batch_schedule_epochs: int | None = None,
    batch_schedule_spread: float = 0.65,
    batch_schedule_random_mix: float = 0.1,
    num_batches: int | None = None,
    *,
    mixup: Any = None,
    seed: int | None = None,
    options: Options | None = None,
) -> DataLoader:
    """A loader with timm's arguments: batches `[images, labels]`, normalized, in host memory, or on `device` if it is given.
    EXIF orientation is ignored, as in timm, also of a path's images.

    With `distributed` timm's and torch's samplers share the samples out. `mixup`, or `collate_fn`: timm's Mixup or
    FastCollateMixup, which is applied to the loader's batches. `seed` is the loader's: without it, torch's generator decides
    about order and draws. `options`: other arguments of `warpfeed.torch.DataLoader`.

    `use_multi_epochs_loader`, `persistent_workers` and `worker_seeding` have no effect, since there are no processes.
    """
    refused = {
        "re_split": re_split, "num_aug_splits": num_aug_splits, "tf_preprocessing": tf_preprocessing,
        "input_size_choices": input_size_choices is not None, "batch_size_choices": batch_size_choices is not None,
        "num_batches": num_batches is not None,
    }  # fmt: skip
    for name, value in refused.items():
        if value:
            raise UnsupportedError(f"{name} is not supported: leave it out")
    if collate_fn is not None:
        if type(collate_fn) not in (Mixup, FastCollateMixup) or mixup is not None:
            raise ParameterError(
                "collate_fn must be timm's FastCollateMixup, and mixup left out: or give options={'output': ...}"
            )
        mixup = collate_fn
    of_transform: dict[str, Any] = dict(
        input_size=input_size, is_training=is_training, no_aug=no_aug, re_prob=re_prob, re_mode=re_mode, re_count=re_count, scale=scale,
        ratio=ratio, hflip=hflip, vflip=vflip, color_jitter=color_jitter, color_jitter_prob=color_jitter_prob,
        grayscale_prob=grayscale_prob, gaussian_blur_prob=gaussian_blur_prob, auto_augment=auto_augment,
        interpolation=interpolation, mean=mean, std=std, crop_pct=crop_pct, crop_mode=crop_mode,
        train_crop_mode=train_crop_mode, crop_border_pixels=crop_border_pixels,
    )  # fmt: skip
    data: Any = _datasets.open_source(dataset) if isinstance(dataset, (str, os.PathLike)) else dataset
    own: dict[str, Any] = {}
    if _datasets.find(data).dataset is None:
        own = {"transform": transform(**of_transform), "orientation": "ignore"}
    elif hasattr(data, "transform"):
        # As timm does, for a data set that makes its samples itself.
        data.transform = create_transform(use_prefetcher=False, **of_transform)
    sampler: Any = None
    if distributed and not is_training:
        sampler = OrderedDistributedSampler(data)
    elif distributed:
        sampler = RepeatAugSampler(data, num_repeats=num_aug_repeats) if num_aug_repeats else DistributedSampler(data)
    arguments: dict[str, Any] = {
        "shuffle": is_training and sampler is None,
        "sampler": sampler,
        "repeats": num_aug_repeats if is_training and num_aug_repeats and sampler is None else None,
        "num_workers": num_workers,
        "drop_last": is_training,
        "pin_memory": pin_memory,
        "persistent_workers": persistent_workers and num_workers > 0,
        "dtype": torch.float16 if fp16 else img_dtype,
        "mix": mixup,
        "seed": seed,
        "output": "tuple" if device is None or not use_prefetcher else _To(torch.device(device)),
    }
    return _Loader(data, batch_size, **{**arguments, **own, **(options or {})})


class _Loader(DataLoader):
    """With the attribute of timm's loaders by which a training ends mixing."""

    @property
    def mixup_enabled(self) -> bool:
        """Whether batches are mixed. It may be set to False between epochs."""
        return "mix" in self._given_to_native["settings"]

    @mixup_enabled.setter
    def mixup_enabled(self, enabled: bool) -> None:
        if enabled != self.mixup_enabled:
            if enabled:
                raise UnsupportedError("mixing can be switched off, and not on again: make another loader")
            with self._lock:
                del self._given_to_native["settings"]["mix"]
                self._made = None


class _To:
    """Puts batches on a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(self, images: Any, labels: Any) -> list[Any]:
        return [one if one is None else one.to(self._device, non_blocking=True) for one in (images, labels)]
