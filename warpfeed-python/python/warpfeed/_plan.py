"""Decides what of a loader's work runs in Python, and where."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _datasets, _python, _torchvision, _warpfeed
from ._arguments import shown
from ._errors import ParameterError, UnsupportedError
from .transforms import Python, Views, Written, written

_INSTEAD = {
    "mix": "collate_fn= may mix the batch",
    "transform": "The data set has to apply it",
    "preset": "The data set has to apply its transforms",
    "targets": "The data set gives its targets",
    'output="batch"': "Batches of Python are not native",
}
_told: set[str] = set()
"""What warnings have said."""


def of_list(transforms: Sequence[Any]) -> _torchvision.Converted:
    """A list of written transforms, and of functions behind them."""
    place = next(
        (i for i, one in enumerate(transforms) if not isinstance(one, (Written, Views, Mapping))), len(transforms)
    )
    native, rest = written(transforms[:place]), list(transforms[place:])
    if not rest:
        return _torchvision.Converted(native, "float32")
    names = [_name(one) for one in rest]
    for number, (name, one) in enumerate(zip(names, rest, strict=True), place + 1):
        if isinstance(one, (Written, Views, Mapping)):
            raise ParameterError(
                f"{name} comes after {names[0]}, which runs in Python: put it before, or in Python too"
            )
        if not callable(one) and not isinstance(one, Python):
            raise TypeError(
                f"transform {number} of {len(transforms)} must be one of warpfeed.transforms, its written form, or a function, got "
                f"{shown(one)}"
            )
    gets = {"tensor": "own", "array": "hwc", "pil": "pil"}[rest[0].gets if isinstance(rest[0], Python) else "tensor"]
    rest = [one.function if isinstance(one, Python) else one for one in rest]
    why = f"transform {place + 1} of {len(transforms)}, {names[0]}"
    return _torchvision.Converted(native, "float32" if gets == "own" else "uint8", rest, gets, why)


def _name(function: Any) -> str:
    if isinstance(function, Mapping):
        return str(function.get("transform") or function.get("op"))
    function = function.function if isinstance(function, Python) else function
    return getattr(function, "__name__", None) or type(function).__qualname__


class Plan:
    """What runs in Python."""

    def __init__(self, work: _python.Work, what: list[str], given: Mapping[str, Any], has_processes: bool) -> None:
        """has_processes: whether this loader can start some."""
        self.work, self.what = work, what
        self.is_all = work.dataset is not None
        """Whether the native pipeline only gives the order."""
        self.asked = given["dtype"]
        """The dtype that images get at the end."""
        # Workers are processes for what torch's would do altogether.
        as_torch = given["num_workers"] if self.is_all and has_processes else None
        self.processes = given["python_workers"] or as_torch or 0
        remedy = "num_workers" if self.is_all else "python_workers"
        self._remedy = f"; {remedy}=4 runs it in 4 processes" if has_processes else ""
        self._ahead = given["prefetch_factor"]
        self._pools: list[Any] = []
        self._samples, self._seconds = 0, 0.0

    @property
    def dtype(self) -> Any:
        """The dtype of the native images."""
        return "uint8" if self.is_last else None

    @property
    def is_last(self) -> bool:
        """Whether the native images have their channels last."""
        return self.work.gets in ("pil", "hwc")

    def counting(self, given: Mapping[str, Any], batches: int) -> _warpfeed.Pipeline:
        """A pipeline that counts so many batches, for their states."""
        settings = {name: value for name, value in given["settings"].items() if name in ("seed", "prefetch")}
        settings |= {"batch_size": "1", "shuffle": "false", "threads": "0"}
        nothing = {
            "preset": None,
            "transforms": "[]",
            "pad_to": None,
            "cache": None,
            "entry_points": None,
            "sampler": None,
        }
        counted = _warpfeed.Source.positions(batches, "the batches of a batch sampler")
        return _warpfeed.Pipeline(counted, json.dumps({**given, "settings": settings, **nothing}))

    def begin(self, loader: Any, native: Any, drawn: int, groups: list[list[int]] | None) -> Any:
        """An epoch that finishes the batches of a native one, whose draws a number decides. `groups`: the indices of each
        batch, if the native one only counts them."""
        jobs: _python.Jobs
        if groups is None:
            jobs = _python.Batches(loader, drawn, not self.is_all)
        else:
            jobs = _python.Groups(loader, drawn, groups, None if self.is_all else self._single(loader, drawn))
        if not self.processes:
            # The process's generators are the training's too: they are seeded while it waits.
            threads = 0 if self.work.seeded else loader.num_workers
            return _python.Epoch(native, jobs, self.work.batch, threads, self._ahead + threads)
        from . import _workers

        # A forked child leaves those of its parent alone.
        free = next((pool for pool in self._pools if not pool.busy and pool.process == os.getpid()), None)
        if free is None:
            free = _workers.Pool(self.work, self.processes, self._ahead, **loader._worker_options)
            self._pools.append(free)
        return _workers.Epoch(native, jobs, free)

    def _single(self, loader: Any, drawn: int) -> Callable[[list[int], int], Any]:
        """Begins epochs of single images."""

        def begin(indices: list[int], before: int) -> Any:
            given = loader._given_to_native
            settings = {**given["settings"], "batch_size": "1", "shuffle": "false", "last_batch": "keep"}
            listed = {"listed": {"name": "a batch sampler", "samples": len(indices)}}
            pipeline = _warpfeed.Pipeline(
                loader._source, json.dumps({**given, "settings": settings, "sampler": listed})
            )
            if not before:
                return pipeline.epoch(drawn, indices)
            first = pipeline.epoch(drawn, indices)
            state = json.loads(next(first).state)
            first.close()
            return pipeline.resume(json.dumps({**state, "position": before}), indices)

        return begin

    def tell(self, made: _python.Made) -> None:
        """Counts a batch, and warns at the first one."""
        self._samples += len(made.job.indices)
        self._seconds += made.seconds
        text = ", ".join(self.what)
        if text and text not in _told:
            _told.add(text)
            how = "in processes" if self.processes else f"one sample at a time{self._remedy}"
            warnings.warn(f"in Python, {how}: {self.said()}", stacklevel=4)

    def said(self) -> str:
        """What runs in Python, and what it took so far."""
        what = "; ".join(self.what) or "targets"
        return f"{what} ({self._seconds / self._samples * 1e3:.2g} ms a sample)" if self._samples else what


def of(loader: Any, found: _datasets.Found, converted: _torchvision.Converted, given: Mapping[str, Any]) -> Plan | None:
    """What of a loader with these arguments runs in Python; None if nothing does."""
    what = [f"the data set, since {found.why}"] if found.dataset is not None else []
    what += [converted.why] if converted.rest else []
    what += ["target_transform"] if found.target_transform is not None else []
    what += ["collate_fn"] if given["collate_fn"] is not None else []
    # Targets of fields and forms that were asked for are native.
    target_of = None if given["fields"] else found.target_of
    if not what and target_of is None:
        if given["python_workers"] is not None:
            raise ParameterError("python_workers is for what runs in Python, and nothing does")
        return None
    own: tuple[str, ...] = ()
    several = not isinstance(given["device"], str)
    refused = {"mix": given["mix"], "several devices": several, 'output="batch"': loader._gives_native()}
    if found.dataset is not None:
        own = (
            *(() if isinstance(found.dataset, _datasets.Rows) else ("transform",)),
            "preset",
            "targets",
            "fields",
            "pad_to",
            "channels",
            "cache",
            "entry_points",
            "draft",
            "thumbnail",
        )
        refused |= {name: given[name] for name in own}
    for name, value in refused.items():
        if value:
            raise UnsupportedError(
                f"{name} cannot be given with steps that run in Python: {'; '.join(what) or 'targets'}. {_INSTEAD.get(name, '')}"
            )
    if given["python_workers"] and not loader._has_processes:
        raise ParameterError("python_workers needs warpfeed.torch's loader")
    work = _python.Work(
        seed=given["seed"] or 0, join=loader.join, dataset=found.dataset, steps=converted.rest, gets=converted.gets,
        target_of=target_of, target_transform=found.target_transform, name=found.image, collate=given["collate_fn"],
        seeded=given["python_seeds"],
    )  # fmt: skip
    return Plan(work, what, given, loader._has_processes)


def of_batches(loader: Any, given: Mapping[str, Any]) -> Plan:
    """Only puts batches of different sizes together."""
    for name, value in {"mix": given["mix"], "limit": given["limit"], 'output="batch"': loader._gives_native()}.items():
        if value:
            raise UnsupportedError(f"{name} cannot be given with a batch_sampler whose batches differ in size")
    return Plan(_python.Work(seed=given["seed"] or 0, join=loader.join), [], given, loader._has_processes)
