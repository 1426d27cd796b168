"""Compares samples of a converted data set with those that the data set itself gives."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from . import _warpfeed
from ._datasets import Found, with_transform
from ._errors import DataError
from ._plan import Plan
from ._python import Batches, seeded_apart
from ._torchvision import Converted

# What decides about pixels.
_SETTINGS = ("channels", "orientation", "accept_truncated", "max_pixels", "pass_order", "strategy")
_NEAR = 0.02
"""The largest difference of two images, as a share of the largest value: decoders may differ in the last bits."""


def compare(loader: Any, found: Found, converted: Converted, given: Mapping[str, Any], plan: Plan | None) -> None:
    """Raises DataError if one of three samples is not the data set's own. Where it draws, only labels and structure count.
    The user's functions are left out: they may count their calls."""
    if found.like is None or not found.source.samples or "numpy" not in sys.modules or given["settings"].get("fields"):
        return
    last = found.source.samples - 1
    indices = sorted({0, last // 2, last})
    like = found.like
    if converted.rest or found.target_transform is not None:
        like = with_transform(like, _Each(converted.native) if converted.rest else found.transform)
    ours = _ours(loader, found, converted, given, plan, indices)
    draws = not all("op" in step for step in json.loads(given["transforms"] or "[]"))
    for index, own in zip(indices, ours, strict=True):
        seed = index + 1
        if own is _FAILED:
            continue
        try:
            with seeded_apart(seed):
                mine = own(seed) if callable(own) else own
            with seeded_apart(seed):
                theirs = like[index]
            difference = _difference(mine, theirs, draws)
            if difference is None:
                continue
            with seeded_apart(seed):
                again = like[index]
        except Exception:
            # It is raised again when the sample is read.
            continue
        if _difference(again, theirs, False) is None:
            raise DataError(
                f"sample {index} of {type(found.like).__name__} differs from what the loader makes of it ({difference}): it "
                f"gives {_shown(theirs)}, the loader {_shown(mine)}. check=False leaves out this comparison"
            )


class _Each:
    """Transforms, one after the other."""

    def __init__(self, transforms: list[Any]) -> None:
        self._transforms = transforms

    def __call__(self, image: Any) -> Any:
        for one in self._transforms:
            image = one(image)
        return image


_FAILED = object()


def _ours(
    loader: Any, found: Found, converted: Converted, given: Mapping[str, Any], plan: Plan | None, indices: list[int]
) -> list[Any]:
    """The loader's samples, or functions that finish them."""
    is_last = plan is not None and plan.is_last
    settings = {name: value for name, value in given["settings"].items() if name in _SETTINGS}
    settings |= {"threads": "0", "batch_size": "1", "dtype": "u8" if converted.dtype == "uint8" or is_last else "f32"}
    settings["layout"] = "nhwc" if is_last else "nchw"
    # Of targets that were asked for, images are compared.
    alone = {"settings": settings, "transforms": given["transforms"]}
    nothing = {
        "preset": None,
        "pad_to": None,
        "sampler": None,
        "cache": None,
        "entry_points": {"place": "none", "bytes": None, "dense": None},
    }
    pipeline = _warpfeed.Pipeline(found.source.subset(indices), json.dumps(alone | nothing))
    epoch = pipeline.epoch(0)
    made: list[Any] = []
    jobs = Batches(loader, 0, True)
    for index in indices:
        try:
            job = jobs(next(epoch))
        except Exception:
            made.append(_FAILED)
            continue
        job.indices = [index]
        if plan is None:
            made.append((job.images[0], None if job.targets is None else job.targets[0]))
        else:
            steps = (_as_it_is,) if plan.work.steps else ()
            work = replace(plan.work, steps=steps, target_transform=None)
            made.append(lambda seed, job=job, work=work: work.finished(job))
    epoch.close()
    return made


def _as_it_is(image: Any) -> Any:
    return image


def _difference(ours: Any, theirs: Any, draws: bool) -> str | None:
    """What is not equal; None if all is."""
    import numpy

    if isinstance(theirs, Mapping):
        if not isinstance(ours, Mapping) or set(ours) != set(theirs):
            return "its form"
        return next((d for d in (_difference(ours[name], theirs[name], draws) for name in theirs) if d), None)
    if isinstance(theirs, (tuple, list)):
        if not isinstance(ours, (tuple, list)) or len(ours) != len(theirs):
            return "its form"
        return next((d for d in (_difference(a, b, draws) for a, b in zip(ours, theirs, strict=True)) if d), None)
    if isinstance(theirs, (int, float, str)) or theirs is None:
        # Data sets write -1 for no label.
        same = ours == theirs or ours is None and theirs == -1
        return None if same else "its target"
    if hasattr(theirs, "convert") and hasattr(theirs, "mode"):
        # No tensor was asked for: the loader makes one.
        theirs = numpy.asarray(theirs)
        theirs = (theirs[..., None] if theirs.ndim == 2 else theirs).transpose(2, 0, 1)
        theirs = theirs.astype(numpy.float32) / 255
        if hasattr(ours, "convert"):
            ours = numpy.asarray(ours, numpy.float32) / 255
            ours = (ours[..., None] if ours.ndim == 2 else ours).transpose(2, 0, 1)
    if not hasattr(theirs, "shape"):
        return None
    if isinstance(ours, int) and theirs.shape == () and str(theirs.dtype) in ("int64", "torch.int64"):
        return None if ours == int(theirs) else "its target"
    if not hasattr(ours, "shape"):
        return "its form"
    a, b = numpy.asarray(ours), numpy.asarray(theirs)
    if draws:
        return None if a.ndim == b.ndim and a.dtype == b.dtype else "its shape"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"shape {a.shape} of {a.dtype} in place of {b.shape} of {b.dtype}"
    if not a.size:
        return None
    apart = numpy.abs(a.astype(numpy.float64) - b).max()
    return None if apart <= _NEAR * max(numpy.abs(b).max(), 1e-6) else f"values by up to {apart:.3g}"


def _shown(sample: Any) -> str:
    if isinstance(sample, (tuple, list)):
        return f"({', '.join(map(_shown, sample))})"
    if getattr(sample, "shape", ()):
        import numpy

        values = numpy.asarray(sample)
        return f"{values.dtype} {values.shape}, mean {values.mean():.4g}"
    return repr(sample)
