"""timm's transforms and its `create_loader`, by timm's own arguments."""

from __future__ import annotations

from typing import Any

import torch
from timm.data import create_transform

from . import _datasets, _torchvision
from ._errors import ParameterError, UnsupportedError
from ._identity import known
from .torch import DataLoader

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
    interpolation: str = "bilinear",
    mean: tuple[float, ...] = (0.485, 0.456, 0.406),
    std: tuple[float, ...] = (0.229, 0.224, 0.225),
    num_workers: int = 1,
    distributed: bool = False,
    crop_pct: float | None = None,
    crop_mode: str | None = None,
    pin_memory: bool = False,
    img_dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cuda",
    mixup: Any = None,
    seed: int = 0,
    **options: Any,
) -> DataLoader:
    """A loader with timm's arguments: batches `[images, labels]`, normalized, in host memory. EXIF orientation is ignored,
    as in timm, also of a path's images.

    `mixup`: timm's Mixup, which is applied to the loader's batches. `options`: other arguments of the loader. Arguments of
    timm's that concern its processes (`use_prefetcher`, `worker_seeding`, `fp16` and others) are passed over.
    """
    for name in (
        "use_prefetcher",
        "fp16",
        "img_dtype",
        "use_multi_epochs_loader",
        "persistent_workers",
        "worker_seeding",
        "tf_preprocessing",
    ):
        options.pop(name, None)
    if options.pop("collate_fn", None) is not None:
        raise ParameterError("collate_fn is not supported: give mixup=, or output= for another form of the batches")
    arguments: dict[str, Any] = dict(
        input_size=input_size, is_training=is_training, no_aug=no_aug, re_prob=re_prob, re_mode=re_mode, re_count=re_count, scale=scale,
        ratio=ratio, hflip=hflip, vflip=vflip, color_jitter=color_jitter, color_jitter_prob=color_jitter_prob,
        grayscale_prob=grayscale_prob, gaussian_blur_prob=gaussian_blur_prob, auto_augment=auto_augment,
        interpolation=interpolation, mean=mean, std=std, crop_pct=crop_pct, crop_mode=crop_mode,
    )  # fmt: skip
    if _datasets.find(dataset).dataset is None:
        # timm ignores EXIF.
        options = {"transform": transform(**arguments), "orientation": "ignore", **options}
    elif hasattr(dataset, "transform"):
        # As timm does, for a data set that makes its samples itself.
        dataset.transform = create_transform(use_prefetcher=False, **arguments)
    sampler: Any = "repeated" if is_training and num_aug_repeats else None
    return DataLoader(
        dataset,
        batch_size,
        shuffle=is_training,
        num_workers=num_workers,
        drop_last=is_training,
        pin_memory=pin_memory,
        dtype=img_dtype,
        distributed=True if distributed else None,
        mix=mixup,
        seed=seed,
        repeats=num_aug_repeats if sampler else None,
        **options,
    )
