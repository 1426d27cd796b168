"""The loader that those for torch, numpy and jax have in common: PyTorch's arguments and meanings, any arrays."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import threading
import time
import warnings
import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from . import _checks, _datasets, _devices, _mixing, _notebook, _plan, _python, _torchvision, _warpfeed
from ._arguments import at_least, checked, fits, one_of, shown
from ._buckets import buckets_text
from ._errors import Error, ParameterError
from ._preprocessor import Preprocessor
from ._sampling import Listing, knows_ranks, packed, unpacked
from .transforms import Transform

T = TypeVar("T")
A = TypeVar("A")

DTypeName = Literal["float32", "float16", "bfloat16", "uint8", "uint16"]
# "none", "memory", "dense", "sparse", a folder, or the most bytes.
EntryPoints: TypeAlias = str | os.PathLike[str] | int
_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint8": "u8", "uint16": "u16"}

_DETECTION = {name for name in _warpfeed.presets() if _warpfeed.preset(name)[2]}


class _NoBatches:
    """The epoch of a sampler that yields nothing."""

    def __next__(self) -> _warpfeed.Batch:
        raise StopIteration

    def wait(self, seconds: float) -> bool:
        return True

    def close(self) -> None:
        pass

    def stats(self) -> str:
        return "{}"

    def bad(self) -> list[tuple[int, str, str]]:
        return []


AnyEpoch: TypeAlias = Any
"""A native epoch, those of several devices, one that Python finishes, or one without batches."""
AnyBatch = _warpfeed.Batch | _devices.Batches | _python.Made

_live: weakref.WeakSet[AnyEpoch] = weakref.WeakSet()


CROPS = {
    "original_sizes": slice(0, 2),
    "crop_top_lefts": slice(2, 4),
    "target_sizes": slice(4, 6),
    "add_time_ids": slice(0, 6),
}
"""What SDXL is conditioned on, by its columns in the crops of a batch."""


class _Beginnings:
    """The epochs that threads are beginning. None begins once the interpreter ends."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._ended = False

    def begin(self, make: Callable[[], AnyEpoch]) -> AnyEpoch:
        with self._changed:
            if self._ended:
                raise RuntimeError("the interpreter is ending: no epoch begins any more")
            self._count += 1
        try:
            epoch = make()
            _live.add(epoch)
            return epoch
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: self._count == 0)


_beginnings = _Beginnings()


def _begin_in_child() -> None:
    # The parent's threads, which may have been beginning an epoch, do not exist here.
    global _beginnings
    _beginnings = _Beginnings()


os.register_at_fork(after_in_child=_begin_in_child)


@atexit.register
def _close_all() -> None:
    """Threads that call Python must not outlive the interpreter."""
    _beginnings.end()
    for epoch in list(_live):
        try:
            epoch.close()
        except RuntimeError:
            pass  # a forked child's
    _warpfeed.end()
    if threading.active_count() > 1:
        # Daemon threads that are on their way back to Python get there.
        time.sleep(0.02)


def threads_by_default() -> int:
    """The processors of this process, shared with the other processes that the launcher started on this machine."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    beside = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return max(1, own // max(1, beside))


class Iteration(Generic[T]):
    """One pass over a loader. The epoch begins with its first batch: taking an iterator costs nothing and skips nothing."""

    def __init__(self, loader: Loader[T]) -> None:
        self._loader = loader
        self._lock = threading.Lock()
        self._epoch: AnyEpoch | None = None
        self._process = os.getpid()
        self._done = False

    def __iter__(self) -> Iteration[T]:
        return self

    def __next__(self) -> T:
        if self._process != os.getpid():
            raise RuntimeError("this iterator was made before the process was forked: take a new one of the loader")
        with self._lock:
            if self._epoch is None and not self._done:
                self._epoch = _beginnings.begin(lambda: self._loader._begin(self))
            epoch = self._epoch
        if self._done or epoch is None:
            raise StopIteration
        timeout = self._loader._timeout
        if timeout and not epoch.wait(timeout):
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
        try:
            batch = epoch.__next__()
        except StopIteration:
            self._done = True
            self._loader._ended(self, epoch)
            epoch.close()
            raise
        self._loader._given(self, batch, epoch)
        delivered: T = self._loader._delivered(batch)
        return delivered

    def __len__(self) -> int:
        return len(self._loader)

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        # At the interpreter's end parts of it are gone, and Python prints what is raised here. Nobody could do anything
        # about it: the epoch's threads have been stopped by then, or belong to a parent.
        try:
            if self._epoch is not None and self._process == getpid() and not self._done:
                self._epoch.close()
        except Exception:
            pass


class Sampler:
    """What trainers look for under `loader.sampler`."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch."""
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        loader = self._loader()
        samples = loader._one().samples if loader is not None else None
        if samples is None:
            raise TypeError("a stream has no length")
        return samples


@dataclass
class _Saved:
    """A state that was loaded, from which the next epoch goes on."""

    number: int
    states: list[dict[str, Any]]
    """The states of ranks."""
    order: list[int] | None
    """What the sampler yielded for this rank; None if it must be asked again, or if there is no sampler."""
    size: int | list[int] | None
    given: dict[str, Any]


class Loader(Generic[T]):
    """Delivers batches of a data set. Subclasses say what of."""

    _timeout: float = 0
    _has_generator = False
    """Whether a generator of the framework's decides where there is no seed; otherwise the seed is 0."""

    @checked
    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Any = None,
        num_workers: int | None = None,
        drop_last: bool = False,
        *,
        batch_sampler: Any = None,
        transform: Sequence[Transform] | Any = None,
        preset: str | None = None,
        seed: int | None = None,
        prefetch_factor: int = 2,
        distributed: bool | tuple[int, int] | None = None,
        device: str | Sequence[str] = "cpu",
        jpeg_decoder: str | None = None,
        hardware_share: float | None = None,
        dtype: DTypeName | None = None,
        channels_last: bool = False,
        channels: int | None = None,
        pad_to: int | None = None,
        ragged: bool | None = None,
        buckets: str | Sequence[tuple[int, int]] | None = None,
        unit: int | None = None,
        sizes_file: str | os.PathLike[str] | None = None,
        sizes: str | None = None,
        sequences: str | None = None,
        targets: str | None = None,
        fields: Sequence[str] | None = None,
        columns: Mapping[str, str] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        python_workers: int | None = None,
        python_seeds: bool = True,
        check: bool = True,
        label_base: int = 0,
        mix: Any = None,
        repeats: int | None = None,
        on_error: Literal["raise", "skip", "substitute"] = "raise",
        max_bad: int | float | None = None,
        orientation: Literal["apply", "ignore"] | None = None,
        draft: tuple[int, int] | None = None,
        thumbnail: tuple[int, int] | None = None,
        reducing_gap: float | None = 2.0,
        strategy: Literal["fused", "sequential", "composed"] | None = None,
        cache: int | tuple[str | os.PathLike[str], int] | None = None,
        entry_points: EntryPoints | tuple[EntryPoints, ...] | None = None,
        limit: int | None = None,
        shares: int | None = None,
        lanes: int | None = None,
        accept_truncated: bool = False,
        max_pixels: int | None = None,
        pixels: str | None = None,
        max_value: float | None = None,
        pass_order: Literal["pillow13", "horizontal_first"] | None = None,
        device_memory: int | None = None,
        device_cache: int | None = None,
        gpu_direct: bool = False,
        pinned: bool = True,
        stream_priority: Literal["low", "high"] | None = None,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        if preset is not None and transform is not None:
            raise ParameterError("give transform or preset, not both")
        if preset is not None:
            one_of("preset", preset, _warpfeed.presets())
        at_least(1, batch_size=batch_size, prefetch_factor=prefetch_factor, limit=limit, shares=shares, lanes=lanes)
        at_least(1, repeats=repeats, unit=unit)
        at_least(0, num_workers=num_workers, seed=seed, max_bad=max_bad)
        at_least(0, device_memory=device_memory, device_cache=device_cache)
        at_least(1, pad_to=pad_to, max_pixels=max_pixels)
        self._devices = None if isinstance(device, str) else list(device)
        if self._devices is not None and (pad_to is not None or ragged):
            raise ParameterError("with several devices all images of a batch must have one size: no pad_to, no ragged")
        found = _datasets.find(dataset, columns, targets is not None, self._rows_of(self._arguments))
        self._fields, self._label_base = tuple(fields or ()), label_base
        # The files' numbers of images are no fields of objects.
        fields = [name for name in self._fields if name != "image_id"]
        has_own = found.dataset is not None or found.target_of is not None
        if not has_own and found.source.has_labels is False and targets is None and not fields:
            warnings.warn(
                "the data set has no labels: batches have None in their place. Where it has some, name their field "
                "(warpfeed.open(path, label_field=...)), or give pairs of image and label",
                # Of the caller, behind the check of arguments.
                stacklevel=3 if type(self).__init__ is Loader.__init__ else 5,
            )
        converted = self._steps(found, transform, preset)
        self._found, self._converted, self._contents = found, converted, _datasets.contents(dataset)
        self._given_to_plan = self._arguments
        self._plan = plan = _plan.of(self, found, converted, self._given_to_plan)
        self._device = device
        if plan is not None:
            device, dtype = "cpu", plan.dtype
            channels_last = plan.is_last or plan.work.gets == "own" and channels_last and not self._has_processes
        # A path has no length: what it opens has.
        self.dataset: Any = found.source if isinstance(dataset, (str, os.PathLike)) else dataset
        self.batch_size: Any = batch_size
        self.drop_last = drop_last
        self.num_workers = threads_by_default() if num_workers is None else num_workers
        self._positions_limit = limit
        said = self._rank(distributed)
        self._partition = None if said == (0, 1) else said
        # Equal batches of one rank matter to those that go on with more. The number of batches of a stream is not known.
        even = said is not None and found.source.samples is not None and not (said == (0, 1) and on_error == "skip")
        self.is_distributed = self._partition is not None
        group = self._group()
        self._unsaid = shuffle and distributed is None and group is not None and group[1] > 1
        """Whether each of several ranks would read all samples without being told to."""
        shaped = next((name for name, value in (("sizes", sizes), ("sequences", sequences)) if value is not None), None)
        if shaped is not None and (sampler is not None or batch_sampler is not None):
            raise ParameterError(
                f"{shaped} make the batches: leave sampler and batch_sampler out, and say shuffle=True"
            )
        if buckets is not None and (sampler is not None or batch_sampler is not None):
            raise ParameterError(
                "buckets make the batches: leave sampler and batch_sampler out, say shuffle=True, or take "
                "warpfeed.BucketBatchSampler for torch's own loader"
            )
        if repeats is not None and (sampler is not None or batch_sampler is not None):
            raise ParameterError("repeats and a sampler exclude each other: both make the order")
        own = None if sampler is None and batch_sampler is None else (sampler, batch_sampler)
        if (
            own is None
            and shuffle
            and repeats is None
            and buckets is None
            and shaped is None
            and found.source.samples is not None
            and seed is None
        ):
            own = None if said is not None else self._shuffling()
        order, self._listing = (
            (None, None)
            if own is None
            else self._sampling(*own, found.source.samples, isinstance(distributed, (tuple, list)))
        )
        if repeats is not None:
            order = {"repeated": repeats}
        if order is not None and "shuffle" in order:
            shuffle, order = True, None
        shuffle = shuffle and self._listing is None
        self._seeded = seed is not None or said is not None or not self._has_generator
        """Whether draws depend on the seed and the number of the epoch alone."""
        if mix is not None:
            mix, needed = _mixing.convert(mix)
            targets = targets or needed
        if targets is not None and found.target is not None and ":" not in targets:
            targets = f"{targets}:{found.target}"
        settings = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed or 0,
            "threads": 0 if plan is not None and plan.is_all else self.num_workers,
            "prefetch": prefetch_factor,
            "last_batch": "drop" if drop_last else "keep",
            "partition": None if self._partition is None else "{}/{}".format(*self._partition),
            "equal_batches": even,
            "buckets": None if buckets is None else buckets_text(buckets),
            "unit": unit,
            "sizes_file": None if sizes_file is None else os.fspath(sizes_file),
            "sizes": sizes,
            "sequences": sequences,
            "limit": limit,
            "shares": shares,
            "lanes": lanes,
            "device": device if isinstance(device, str) else "cpu",
            "jpeg_decoder": jpeg_decoder,
            "hardware_share": hardware_share,
            "device_memory": device_memory,
            "device_cache": device_cache,
            "gpu_direct": gpu_direct,
            "pinned": pinned,
            "stream_priority": stream_priority,
            "strategy": strategy,
            "pass_order": pass_order,
            "dtype": _DTYPES.get(dtype or converted.dtype, dtype),
            "layout": "nhwc" if channels_last else "nchw",
            "channels": channels or (found.channels if found.channels != 3 else None),
            "orientation": orientation or ("ignore" if found.ignores_exif else None),
            "draft": None if draft is None else "x".join(map(str, draft)),
            "thumbnail": None if thumbnail is None else f"{thumbnail[0]}x{thumbnail[1]}/{str(reducing_gap).lower()}",
            "accept_truncated": accept_truncated or found.ignores_exif and _datasets.takes_truncated(),
            "max_pixels": max_pixels,
            "pixels": pixels,
            "max_value": max_value,
            "targets": targets,
            "fields": fields or None,
            "mix": mix,
            "on_error": "fail" if on_error == "raise" else on_error,
            "max_bad": max_bad,
        }
        self._given_to_native: dict[str, Any] = {
            "settings": {name: _text(value) for name, value in settings.items() if value is not None},
            "preset": preset,
            "transforms": None if preset is not None else json.dumps(converted.steps),
            "pad_to": pad_to,
            "sampler": order,
            "cache": _cache(cache),
            "entry_points": _entry_points(entry_points),
        }
        self._source = found.source
        # Boxes and masks come with images of any size; other batches are one array, as torch's are.
        self._ragged = bool(fields or sequences or preset in _DETECTION) if ragged is None else ragged
        self._lock = threading.RLock()
        self._made: _warpfeed.Pipeline | _devices.Group | None = None
        self._process = 0
        self._number = 0
        """The epoch that begins next."""
        self._begun = 0
        """The epoch that was begun last."""
        self._told: int | None = None
        """The epoch that was set last, if one was."""
        self._sampler_epoch = None if self._listing is None else self._listing.epoch
        """The epoch that the sampler was at when the last epoch began."""
        self._order: array[int] | None = None
        """What the sampler yielded for the epoch that was begun last."""
        self._packed: str | None = None
        self._sizes: list[int] | None = None
        """The sizes of that epoch's batches, if a batch sampler varies them."""
        self._saved: _Saved | None = None
        self._state: dict[str, Any] | None = None
        """The state after the batch given last."""
        self._latest: weakref.ref[Iteration[T]] | None = None
        self._running: AnyEpoch | None = None
        self._counts: _warpfeed.Pipeline | None = None
        """Counts the batches of an epoch whose sizes a batch sampler varies."""
        self.sampler: Any = Sampler(self) if sampler is None else sampler
        self.batch_sampler: Any = batch_sampler
        self._pipeline()
        if check and transform is None and preset is None and not (draft or thumbnail or channels):
            _checks.compare(self, found, converted, self._given_to_native, plan)

    def _rows_of(self, given: Mapping[str, Any]) -> str | None:
        """What takes the rows of a data set of Hugging Face's, as `_datasets.find` says."""
        if any(given[name] is not None for name in ("transform", "preset", "targets", "fields", "columns")):
            return None
        return None if given["collate_fn"] is None else "collate_fn"

    def _steps(self, found: _datasets.Found, transform: Any, preset: str | None) -> _torchvision.Converted:
        transform = found.transform if transform is None else transform
        if isinstance(found.dataset, _datasets.Rows):
            found.dataset.transform = transform
            return _torchvision.Converted([], "float32")
        if preset is not None or transform is None:
            return _torchvision.Converted([], "float32")
        if isinstance(transform, (list, tuple)):
            return _plan.of_list(transform)
        ops = None
        if isinstance(transform, Mapping) and "input_size" in transform:
            ops = _warpfeed.timm_ops(json.dumps(transform))
        elif isinstance(transform, Mapping) and "do_resize" in transform:
            ops = _warpfeed.hugging_face_ops(json.dumps(transform))
        elif hasattr(transform, "to_json_string") and hasattr(transform, "do_resize"):
            ops = _warpfeed.hugging_face_ops(transform.to_json_string())
        elif not callable(transform):
            raise TypeError(
                "transform must be a list of warpfeed.transforms, a transform of torchvision's, an image processor of Hugging "
                f"Face's, timm's data configuration, or a function, got {shown(transform)}"
            )
        return _torchvision.convert(transform) if ops is None else _torchvision.Converted(json.loads(ops), "float32")

    def _shuffling(self) -> tuple[Any, Any] | None:
        """The sampler, or the batch sampler, that shuffles as the framework does without a seed; None: warpfeed shuffles."""
        return None

    def _sampling(
        self, sampler: Any, batch_sampler: Any, samples: int | None, told: bool
    ) -> tuple[dict[str, Any] | None, Listing | None]:
        """The order as it is written for the native module, and the sampler that lists it. `told`: this rank was told."""
        one = sampler if batch_sampler is None else batch_sampler
        listing = Listing(one, batch_sampler is not None, samples)
        if self._devices is not None and batch_sampler is not None:
            raise ParameterError("batch_sampler: with several devices each gets batches of its own: give sampler")
        if self._partition is None:
            if _is_torchs(sampler, "SequentialSampler") and batch_sampler is None:
                return None, None
        elif batch_sampler is not None:
            raise ParameterError(
                "batch_sampler and distributed exclude each other: batches are not shared out: leave distributed out"
            )
        elif listing.rank or not told and knows_ranks(len(listing), samples or 0, self._partition[1]):
            raise ParameterError(
                f"distributed: {listing.name} yields {len(listing)} of {samples} samples, as if it knew the ranks, and distributed "
                "would share these out once more: leave distributed out"
                + ("" if listing.rank else ", or say distributed=(rank, ranks) to share them out")
            )
        # All ranks must know the same order.
        elif _is_torchs(sampler, "RandomSampler") and not sampler.replacement and len(sampler) == samples:
            return {"shuffle": True}, None
        elif _is_torchs(sampler, "SequentialSampler"):
            return None, None
        elif _is_torchs(sampler, "WeightedRandomSampler"):
            weights = [float(weight) for weight in sampler.weights]
            own = {"weights": weights, "replacement": sampler.replacement, "samples": int(sampler.num_samples)}
            return {"weighted": own}, None
        positions = len(listing) if batch_sampler is None else len(listing) * self.batch_size
        return {"listed": {"name": listing.name, "samples": max(1, positions)}}, listing

    def _rank(self, distributed: bool | tuple[int, int] | None) -> tuple[int, int] | None:
        """The rank and the number of ranks, if they were asked for."""
        if isinstance(distributed, (tuple, list)):
            rank, ranks = (int(number) for number in distributed)
            if not 0 <= rank < ranks:
                raise ParameterError(f"distributed must be (rank, ranks) with a rank below ranks, got {distributed}")
            return rank, ranks
        if not distributed:
            return None
        group = self._group()
        if group is None:
            raise ParameterError(
                "distributed=True needs torch.distributed's group: initialize it first, or give (rank, ranks)"
            )
        return group

    def _group(self) -> tuple[int, int] | None:
        """The rank and the number of ranks of the framework's processes."""
        return None

    def _pipeline(self) -> _warpfeed.Pipeline | _devices.Group:
        with self._lock:
            if self._made is None or self._process != os.getpid():
                settings = json.dumps(self._given_to_native)
                if self._devices is None:
                    self._made = _warpfeed.Pipeline(self._source, settings, self._memory())
                else:
                    self._made = _devices.Group(self._source, settings, self._devices, self._memory())
                self._process = os.getpid()
            return self._made

    def _one(self) -> _warpfeed.Pipeline:
        """The pipeline, or that of the first device of several."""
        pipeline = self._pipeline()
        return pipeline.first if isinstance(pipeline, _devices.Group) else pipeline

    def _memory(self) -> Callable[[int], tuple[int, object]] | None:
        """A function of a number of bytes that makes memory for a batch: its address, which 64 divides, and its owner."""
        return None

    def _deliver(self, batch: _warpfeed.Batch) -> T:
        raise NotImplementedError

    def _delivered(self, batch: AnyBatch) -> Any:
        """A batch as the subclass delivers it; of several devices, a list with that of each."""
        if isinstance(batch, _python.Made):
            assert self._plan is not None
            self._plan.tell(batch)
            return self._deliver_made(batch)
        if isinstance(batch, _devices.Batches):
            return [self._deliver(one) for one in batch.each]
        return self._deliver(batch)

    def _deliver_made(self, made: _python.Made) -> Any:
        """A batch that Python finished, as the subclass delivers it."""
        return made.value

    # What Python's steps get of native batches, as `_python.Arrays` says.

    join: Callable[[list[Any], Any], Any] = staticmethod(_python.stacked)
    _has_processes = False
    _worker_options: Mapping[str, Any] = {}

    def _gives_native(self) -> bool:
        """Whether it delivers native batches."""
        return False

    def array(self, tensor: _warpfeed.Tensor) -> Any:
        import numpy

        return numpy.asarray(tensor)

    def _field_dicts(self, batch: _warpfeed.Batch) -> list[dict[str, Any]]:
        """The fields of each image."""
        fields = batch.fields[0]
        offsets = fields.offsets()
        parts = list(zip(offsets, offsets[1:], strict=False))

        def of(name: str) -> list[Any]:
            if name == "image_id":
                indices = batch.index_list
                given = [self._source.image_id(index) for index in indices]
                return [index if own is None else own for index, own in zip(indices, given, strict=True)]
            if name in ("mask", "masks"):
                return [self.array(planes) for planes in fields.masks_of_each(name)]
            if name == "boxes":
                rows = self.array(fields.boxes())
            elif name == "keypoints":
                rows = self.array(fields.keypoints(name))
            else:
                try:
                    rows = self.array(fields.numbers(name))
                except ParameterError:
                    return [self.array(image)[0] for image in fields.images_of_each(name)]
            if name == "labels" and self._label_base:
                rows = rows + self._label_base
            return [rows[first:end] for first, end in parts]

        values = zip(*map(of, self._fields), strict=True)
        return [dict(zip(self._fields, each, strict=True)) for each in values]

    def numbers(self, tensor: _warpfeed.Tensor) -> list[int]:
        return [int(number) for number in self.array(tensor).tolist()]

    def images_of(self, batch: _warpfeed.Batch) -> Any:
        if len(batch.views) != 1:
            raise ParameterError("several views cannot go through steps in Python")
        (view,) = batch.views
        return [self.array(one)[0] for one in view] if isinstance(view, list) else self.array(view)

    def targets_of(self, batch: _warpfeed.Batch) -> Any:
        if self._fields:
            return self._field_dicts(batch)
        if batch.targets is not None:
            return batch.targets if isinstance(batch.targets, list) else list(self.array(batch.targets))
        return None if batch.labels is None else self.numbers(batch.labels)

    def _beside(self, batch: _warpfeed.Batch | _python.Job) -> dict[str, Callable[[], Any]]:
        """What can be delivered of a batch's samples next to images and labels."""
        if isinstance(batch, _python.Job):
            epoch, indices, repetitions = batch.epoch, batch.indices, batch.repetitions
        else:
            epoch, repetitions = int(json.loads(batch.state)["epoch"]), batch.repetitions
            indices = batch.index_list

        def recipe(index: int, repetition: int) -> Any:
            return json.loads(self._one().recipes(epoch, index, repetition))[0]

        return {
            "names": lambda: [self._one().name(index) for index in indices],
            "indices": lambda: self.many(indices),
            **{name: partial(self._crops, batch, columns) for name, columns in CROPS.items()},
            "recipes": lambda: [recipe(*which) for which in zip(indices, repetitions, strict=True)],
        }

    def _crops(self, batch: _warpfeed.Batch | _python.Job, columns: slice) -> Any:
        crops = None if isinstance(batch, _python.Job) else batch.crops
        if crops is None:
            raise ParameterError(
                "output: sizes and crops are those of batches with buckets whose images are resized, cropped and flipped by "
                "warpfeed"
            )
        return self.many([crop[columns] for crop in crops])

    def many(self, numbers: list[Any]) -> Any:
        """An array of numbers."""
        import numpy

        return numpy.asarray(numbers)

    def _images(
        self, batch: _warpfeed.Batch, array: Callable[[_warpfeed.Tensor], A], join: Callable[[list[A]], A]
    ) -> Any:
        """The images of a batch: an array, or a list of them for several views, and if they may differ in size."""
        views = []
        for view in batch.views:
            if not isinstance(view, list):
                views.append(array(view))
            elif self._ragged:
                each: list[Any] = [array(one) for one in view]
                return [one[0] for one in each]
            elif len({tuple(one.shape) for one in view}) == 1:
                views.append(join([array(one) for one in view]))
            else:
                sizes = ", ".join(sorted({str(tuple(one.shape[1:])) for one in view})[:3])
                raise ParameterError(
                    f"images of a batch differ in size ({sizes}): resize or crop them, pad them with pad_to=32, or take a "
                    "list with ragged=True"
                )
        return views[0] if len(views) == 1 else views

    def __iter__(self) -> Iterator[T]:
        return Iteration(self)

    def __len__(self) -> int:
        if self._listing is not None and self._devices is None and self._partition is None:
            if self._listing.batches:
                return len(self._listing)
            positions = (
                len(self._listing) if self._positions_limit is None else min(len(self._listing), self._positions_limit)
            )
            size = self.batch_size or 1
            return positions // size if self.drop_last else -(-positions // size)
        batches = self._one().batches
        if batches is None:
            what = "a stream" if self._source.samples is None else "every epoch"
            raise TypeError(f"the number of batches of {what} is not known")
        return batches

    # What an iteration tells.

    def _follow(self) -> None:
        """Converts the data set and its transform again, if they were changed since the loader was made."""
        given = self._arguments
        contents = _datasets.contents(given["dataset"])
        converted = self._steps(self._found, given["transform"], given["preset"])
        if contents == self._contents and converted == self._converted:
            return
        again = type(self)(**given)
        if "mix" not in self._given_to_native["settings"]:
            again._given_to_native["settings"].pop("mix", None)
        for name in ("_found", "_converted", "_contents", "_plan", "_source", "_given_to_native", "_ragged"):
            setattr(self, name, getattr(again, name))
        if self._listing is not None:
            self._listing.samples = self._source.samples
        self._made = None

    def _begin(self, iteration: Iteration[T]) -> AnyEpoch:
        with self._lock:
            self._follow()
            if self._unsaid:
                _, ranks = self._group() or (0, 1)
                raise ParameterError(
                    f"torch.distributed has {ranks} ranks: say distributed=True for a part of the samples for each, or "
                    "distributed=False for all samples on every rank"
                )
            at = None if self._listing is None else self._listing.epoch
            if at is not None and at != self._sampler_epoch:
                # The caller has set it.
                self._number = at
            self._sampler_epoch = at
            number, saved = self._number, self._saved
            if saved is not None and saved.number != number:
                saved = None
            order, size, state = None, None, None
            if saved is None:
                running = iter(()) if self._listing is None else iter(self._listing)
                drawn = number if self._seeded else self._draw(number)
                if self._listing is not None:
                    order, size = self._listed(running, number)
            elif self._listing is not None:
                order, size = saved.order, saved.size
                if order is None:
                    order, size = self._listed(iter(self._listing), number)
                    if self._listed(iter(self._listing), number) != (order, size):
                        raise ParameterError(
                            f"the state is of another rank, and {self._listing.name} draws: give each rank its own state"
                        )
            pipeline = self._fitting(order, size)
            listed = order
            if isinstance(size, list):
                # The native order is that of the batches.
                listed = None
            epoch: AnyEpoch
            if order == []:
                epoch = _NoBatches()
            elif saved is None:
                epoch = pipeline.epoch(drawn, listed)
            else:
                after = pipeline.state_after([json.dumps(one) for one in saved.states], listed)
                epoch, state = pipeline.resume(after, listed), json.loads(after)
                drawn = int(state["epoch"])
            self._begins(number, drawn)
            self._number, self._begun, self._saved = number + 1, number, None
            self._order, self._packed = None if order is None else array("Q", order), None
            self._sizes = size if isinstance(size, list) else None
            if self._plan is not None:
                epoch = self._plan.begin(self, epoch, drawn, _groups(order, size))
            self._latest, self._state, self._running = weakref.ref(iteration), state, epoch
            return epoch

    def _draw(self, number: int) -> int:
        """The number that decides the draws of an epoch, where no seed was given."""
        return number

    def _begins(self, number: int, drawn: int) -> None:
        """An epoch begins, whose draws a number decides."""

    def _listed(self, running: Iterator[Any], number: int) -> tuple[list[int], int | list[int] | None]:
        """The indices that the sampler yields for an epoch, and of a batch sampler the size of its batches, or their sizes."""
        listing = self._listing
        assert listing is not None
        if self._partition is None:
            return listing.indices(running)
        # All ranks share out one order, so each must be able to list it.
        own = None if listing.generator is None else listing.generator.get_state()
        with self._drawing_alike(number):
            listed = listing.indices(running)
        if own is not None:
            listing.generator.set_state(own)
        with self._drawing_alike(number):
            if listing.indices(iter(listing)) != listed:
                raise ParameterError(
                    f"distributed: {listing.name} yields another order when it is asked again, and all ranks must share out one: "
                    "have it draw from torch's generators, or yield the part of a rank, and leave distributed out"
                )
        return listed

    def _drawing_alike(self, number: int) -> AbstractContextManager[Any]:
        """Within it, the framework's generator draws alike on all ranks."""
        return nullcontext()

    def _fitting(self, order: list[int] | None, size: int | list[int] | None) -> _warpfeed.Pipeline | _devices.Group:
        """The pipeline for an order: most samplers yield as many indices in each epoch. If batches differ in size, it counts
        them, and Python puts them together."""
        self._counts = None
        if isinstance(size, list):
            self._plan = self._plan or _plan.of_batches(self, self._given_to_plan)
            self._counts = self._plan.counting(self._given_to_native, len(size))
            return self._counts
        if order:
            listed, settings = self._given_to_native["sampler"]["listed"], self._given_to_native["settings"]
            if listed["samples"] != len(order) or size is not None and settings["batch_size"] != str(size):
                listed["samples"] = len(order)
                settings["batch_size"] = settings["batch_size"] if size is None else str(size)
                self._made = None
        return self._pipeline()

    def _who(self) -> list[int] | None:
        """The rank and the number of ranks, where a sampler yields what this rank reads."""
        if self._listing is None or self._partition is not None:
            return None
        group = self._group()
        return self._listing.rank or (None if group is None or group[1] == 1 else list(group))

    def _is_latest(self, iteration: Iteration[T]) -> bool:
        return self._latest is not None and self._latest() is iteration

    def _given(self, iteration: Iteration[T], batch: AnyBatch, epoch: AnyEpoch) -> None:
        with self._lock:
            if self._is_latest(iteration):
                self._state = json.loads(batch.state)

    def _ended(self, iteration: Iteration[T], epoch: AnyEpoch) -> None:
        with self._lock:
            if self._is_latest(iteration):
                self._state = None

    # What trainers ask for.

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, and that of a sampler which has one. A state that was loaded for this epoch
        stays."""
        if not fits(epoch, int):
            raise TypeError(f"epoch must be int, got {shown(epoch)}")
        at_least(0, epoch=epoch)
        with self._lock:
            if self._listing is not None:
                self._listing.set_epoch(epoch)
                self._sampler_epoch = self._listing.epoch
            self._told = epoch
            if self._number != epoch:
                self._saved, self._number = None, epoch

    def state_dict(self) -> dict[str, Any]:
        """The state after the batch that the last begun iteration gave last. It is JSON. With a sampler it has the indices
        of the epoch."""
        with self._lock:
            state, number = self._state, self._begun
            if self._saved is not None:
                if self._listing is not None or not self._seeded:
                    return dict(self._saved.given)
                state = json.loads(self._pipeline().state_after([json.dumps(one) for one in self._saved.states]))
                number = self._saved.number
            if state is not None and (self._counts or self._pipeline()).batches_left(json.dumps(state)) == 0:
                state = None
            saved = {"version": 1, "epoch": self._number if state is None else number, "state": state}
            own: dict[str, Any] = self._random()
            if self._listing is not None:
                own |= {"sampler": self._listing.name, "sampler_epoch": self._sampler_epoch, "rank": self._who()}
                if state is not None and self._order is not None:
                    self._packed = self._packed or packed(self._order)
                    own |= {"order": self._packed}
                    own |= {"batch_size": self._sizes or int(self._given_to_native["settings"]["batch_size"])}
            return saved | {"version": 2} | own if own else saved

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Goes on after a state: the next iteration gives the batches that were left of its epoch. The number of ranks may
        have changed: what is left is shared by the new ones. Of ranks that read a stream, give the states of all, in a
        list; otherwise that of any rank is enough. A sampler that yields the part of a rank goes on with as many ranks; if
        it draws, each rank needs its own state."""
        states: list[Any] = list(state_dict) if isinstance(state_dict, (list, tuple)) else [state_dict]
        if not states:
            raise ParameterError("there is no state to go on from")
        for one in states:
            if not isinstance(one, Mapping) or not {"version", "epoch", "state"} <= set(one):
                raise ParameterError(f"this is no state of a loader: {shown(one)}")
            if one["version"] not in (1, 2):
                raise ParameterError(f"the state has version {one['version']}, and this package knows versions 1 and 2")
        for rank in [rank for one in states if one["state"] is not None for rank in _devices.ranks(one["state"])]:
            try:
                self._one().batches_left(json.dumps(rank))
            except Error:
                pass  # Of another pipeline: what differs is said when the epoch begins.
            except (TypeError, ValueError) as error:
                text = str(error).removeprefix("this is no state of an epoch: ")
                raise ParameterError(f"this is no state of a loader: {text}") from None
        if len({int(one["epoch"]) for one in states}) > 1 or len({one["state"] is None for one in states}) > 1:
            raise ParameterError("the states are of different epochs: go on with as many ranks until all are in one")
        who, number = self._who(), int(states[0]["epoch"])
        first = dict(next((one for one in states if one.get("rank") == who), states[0]))
        theirs = first.get("rank")
        name = None if self._listing is None else self._listing.name
        if first.get("sampler") != name and first["state"] is not None:
            raise ParameterError(
                f"the state is of a loader with {first.get('sampler') or 'no sampler'}, and this one has {name or 'none'}"
                + ("" if name != "RandomSampler" else ": where shuffle=True had a seed, give the same seed=")
            )
        if first["state"] is not None and theirs != who and (theirs is None or who is None or theirs[1] != who[1]):
            ranks = [1 if one is None else one[1] for one in (theirs, who)]
            raise ParameterError(
                f"the state is of {ranks[0]} ranks, and this loader of {ranks[1]}: {name} yields the parts of ranks itself, so go "
                "on with as many, or with the next epoch (set_epoch), or give distributed=True instead of the sampler"
            )
        with self._lock:
            if self._listing is not None and first.get("sampler_epoch") is not None:
                self._listing.set_epoch(first["sampler_epoch"])
            self._sampler_epoch = None if self._listing is None else self._listing.epoch
            if theirs == who:
                self._restore(first)
            self._number, self._saved, self._state = number, None, None
            if first["state"] is not None:
                order = unpacked(first["order"]) if "order" in first and theirs == who else None
                ranks_of = [rank for one in states for rank in _devices.ranks(dict(one["state"]))]
                self._saved = _Saved(
                    number, ranks_of, order, first.get("batch_size") if self._batched() else None, first
                )

    def _batched(self) -> bool:
        return self._listing is not None and self._listing.batches

    def _random(self) -> dict[str, Any]:
        """The states of the framework's generators that decide about later epochs."""
        return {}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Sets the framework's generators as `_random` gave them."""

    def recipe(self, index: int, epoch: int = 0, repetition: int = 0) -> list[dict[str, Any]]:
        """The explicit operations that a sample goes through in an epoch, EXIF orientation included."""
        at_least(0, index=index, epoch=epoch, repetition=repetition)
        recipe = list(json.loads(self._one().recipes(epoch, index, repetition))[0])
        return recipe if self._plan is None else recipe + [{"python": what} for what in self._plan.what]

    def stats(self) -> dict[str, Any]:
        """Counts and times of the epoch that was begun last, times in seconds; of several devices, under "devices"."""
        stats = {} if self._running is None else json.loads(self._running.stats())
        return {"devices": [_seconds(one) for one in stats]} if isinstance(stats, list) else _seconds(stats)

    def bad(self) -> list[tuple[int, str, str]]:
        """Samples of the epoch begun last that were skipped or substituted: index, name, error."""
        return [] if self._running is None else self._running.bad()

    @property
    def classes(self) -> list[str]:
        """Names of the classes, by label; empty if they have none."""
        return self._one().classes

    def preprocessor(self) -> Preprocessor:
        """The same operations for single images, for serving. They must draw nothing at random."""
        return Preprocessor._of(self._one().preprocessor())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'; '.join(_notebook.facts(self).values())})"

    def _repr_html_(self) -> str:
        return _notebook.page(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its arguments: a pipeline has threads and memory of its process, and a state is saved by itself."""
        return _again, (type(self), self._arguments)


def _seconds(stats: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value["secs"] + value["nanos"] / 1e9 if isinstance(value, dict) and "secs" in value else value
        for name, value in stats.items()
    }


def _is_torchs(sampler: Any, name: str) -> bool:
    """Whether a sampler's class is torch's own: one that is derived from it may yield something else."""
    kind = type(sampler)
    return kind.__name__ == name and kind.__module__ == "torch.utils.data.sampler"


def _groups(order: list[int] | None, size: int | list[int] | None) -> list[list[int]] | None:
    """The indices of each batch, if batches differ in size."""
    if order is None or not isinstance(size, list):
        return None
    ends = list(itertools.accumulate(size))
    return [order[end - one : end] for one, end in zip(size, ends, strict=True)]


def _again(kind: type[Loader[Any]], arguments: dict[str, Any]) -> Loader[Any]:
    return kind(**arguments)


def _text(value: Any) -> str:
    """The value of a setting as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else ",".join(value) if isinstance(value, Sequence) else str(value)


def _cache(cache: int | tuple[str | os.PathLike[str], int] | None) -> dict[str, Any] | None:
    if cache is None:
        return None
    folder, size = (None, cache) if isinstance(cache, int) else cache
    return {"folder": None if folder is None else os.fspath(folder), "bytes": size}


def _entry_points(entry_points: EntryPoints | tuple[EntryPoints, ...] | None) -> dict[str, Any] | None:
    if entry_points is None:
        return None
    found: dict[str, Any] = {"place": None, "bytes": None, "dense": None}
    for value in entry_points if isinstance(entry_points, tuple) else (entry_points,):
        if isinstance(value, int):
            found["bytes"] = value
        elif value in ("dense", "sparse"):
            found["dense"] = value == "dense"
        else:
            found["place"] = os.fspath(value)
    return found
