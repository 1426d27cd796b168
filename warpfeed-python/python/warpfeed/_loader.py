"""The loader that those for torch, numpy and jax have in common: PyTorch's arguments and meanings, any arrays."""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from . import _checks, _datasets, _devices, _mixing, _plan, _python, _torchvision, _warpfeed
from ._errors import ParameterError
from ._preprocessor import Preprocessor
from .transforms import Transform

T = TypeVar("T")
A = TypeVar("A")

DTypeName = Literal["float32", "float16", "bfloat16", "uint8"]
# "none", "memory", "dense", "sparse", a folder, or the most bytes.
EntryPoints: TypeAlias = str | os.PathLike[str] | int
_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint8": "u8"}

_DETECTION = {name for name in _warpfeed.presets() if _warpfeed.preset(name)[2]}

AnyEpoch: TypeAlias = Any
"""A native epoch, those of several devices, or one that Python finishes."""
AnyBatch = _warpfeed.Batch | _devices.Batches | _python.Made

_live: weakref.WeakSet[AnyEpoch] = weakref.WeakSet()


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


class Loader(Generic[T]):
    """Delivers batches of a data set. Subclasses say what of."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Any = None,
        num_workers: int | None = None,
        drop_last: bool = False,
        *,
        transform: Sequence[Transform] | Any = None,
        preset: str | None = None,
        seed: int = 0,
        prefetch_factor: int = 2,
        distributed: bool | tuple[int, int] | None = None,
        device: str | Sequence[str] = "cpu",
        jpeg_decoder: str | None = None,
        dtype: DTypeName | None = None,
        channels_last: bool = False,
        channels: int | None = None,
        pad_to: int | None = None,
        ragged: bool | None = None,
        targets: str | None = None,
        fields: Sequence[str] | None = None,
        columns: Mapping[str, str] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        batch_sampler: Any = None,
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
        lanes: int | None = None,
        accept_truncated: bool = False,
        max_pixels: int | None = None,
        pass_order: Literal["pillow13", "horizontal_first"] | None = None,
        device_memory: int | None = None,
        pinned: bool = True,
        stream_priority: Literal["low", "high"] | None = None,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        if preset is not None and transform is not None:
            raise ParameterError("give transform or preset, not both")
        self._devices = None if isinstance(device, str) else list(device)
        if self._devices is not None and (pad_to is not None or ragged):
            raise ParameterError("with several devices all images of a batch must have one size: no pad_to, no ragged")
        found = _datasets.find(dataset, columns, targets is not None)
        self._fields, self._label_base = tuple(fields or ()), label_base
        # The files' numbers of images are no fields of objects.
        fields = [name for name in self._fields if name != "image_id"]
        has_own = found.dataset is not None or found.target_of is not None
        if not has_own and found.source.has_labels is False and targets is None and not fields:
            warnings.warn(
                "the data set has no labels: batches have None in their place. Where it has some, name their field "
                "(warpfeed.open(path, label_field=...)), or give pairs of image and label",
                stacklevel=3,
            )
        converted = self._steps(found, transform, preset)
        self._plan = plan = _plan.of(self, found, converted, self._arguments)
        self._device = device
        if plan is not None:
            device, dtype = "cpu", plan.dtype
            channels_last = plan.is_last or plan.work.gets == "own" and channels_last and not self._has_processes
            if plan.listed is not None:
                batch_size, shuffle = 1, False
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_workers = threads_by_default() if num_workers is None else num_workers
        order, rank = self._sampling(sampler)
        if repeats is not None:
            order = {"repeated": repeats}
        if mix is not None:
            mix, needed = _mixing.convert(mix)
            targets = targets or needed
        said = rank is not None
        if distributed is not None or rank is None:
            rank, said = self._rank(distributed, shuffle or order is not None)
        alone = rank == (0, 1)
        # Of one rank it makes a difference to those that go on after it. Nobody knows how many batches a stream has.
        even = said and found.source.samples is not None and not (alone and on_error == "skip")
        rank = None if alone else rank
        self.is_distributed = rank is not None
        if order is not None and "shuffle" in order:
            shuffle, seed = order["shuffle"], order.get("seed", seed)
            order = None
        if targets is not None and found.target is not None and ":" not in targets:
            targets = f"{targets}:{found.target}"
        settings = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "threads": 0 if plan is not None and plan.is_all else self.num_workers,
            "prefetch": prefetch_factor,
            "last_batch": "drop" if drop_last else "keep",
            "partition": None if rank is None else f"{rank[0]}/{rank[1]}",
            "equal_batches": even,
            "limit": limit,
            "lanes": lanes,
            "device": device if isinstance(device, str) else "cpu",
            "jpeg_decoder": jpeg_decoder,
            "device_memory": device_memory,
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
            "accept_truncated": accept_truncated,
            "max_pixels": max_pixels,
            "targets": targets,
            "fields": fields or None,
            "mix": mix,
            "on_error": "fail" if on_error == "raise" else on_error,
            "max_bad": max_bad,
        }
        given = {
            "settings": {name: _text(value) for name, value in settings.items() if value is not None},
            "preset": preset,
            "transforms": None if preset is not None else json.dumps(converted.steps),
            "pad_to": pad_to,
            "sampler": order,
            "cache": _cache(cache),
            "entry_points": _entry_points(entry_points),
        }
        self._source, self._settings = found.source, json.dumps(given)
        if plan is not None and plan.listed is not None:
            self._source, self._settings = plan.counted(found.source, given)
        # Boxes and masks come with images of any size; other batches are one array, as torch's are.
        self._ragged = bool(fields or preset in _DETECTION) if ragged is None else ragged
        self._of_sampler = sampler if order is not None and "listed" in order else None
        self._lock = threading.RLock()
        self._made: _warpfeed.Pipeline | _devices.Group | None = None
        self._process = 0
        self._number = 0
        """The epoch that begins next."""
        self._resume: list[dict[str, Any]] | None = None
        """The states of ranks that the next epoch goes on from."""
        self._state: dict[str, Any] | None = None
        """The state after the batch given last."""
        self._latest: weakref.ref[Iteration[T]] | None = None
        self._running: AnyEpoch | None = None
        self.sampler = Sampler(self)
        self.batch_sampler = batch_sampler
        self._pipeline()
        if check and transform is None and preset is None and not (draft or thumbnail or channels):
            _checks.compare(self, found, converted, given, plan)

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
        return _torchvision.convert(transform) if ops is None else _torchvision.Converted(json.loads(ops), "float32")

    def _sampling(self, sampler: Any) -> tuple[dict[str, Any] | None, tuple[int, int] | None]:
        """The written sampler, and the rank that a DistributedSampler has."""
        if sampler is None:
            return None, None
        name = type(sampler).__name__
        if name == "SequentialSampler":
            return None, None
        if name == "RandomSampler" and not sampler.replacement and getattr(sampler, "_num_samples", None) is None:
            return {"shuffle": True}, None
        if name == "DistributedSampler":
            own = {"shuffle": sampler.shuffle, "seed": sampler.seed}
            return own, (sampler.rank, sampler.num_replicas)
        if name == "WeightedRandomSampler":
            weights = [float(weight) for weight in sampler.weights]
            own = {"weights": weights, "replacement": sampler.replacement, "samples": int(sampler.num_samples)}
            return {"weighted": own}, None
        if name == "RepeatAugSampler":
            return {"repeated": int(sampler.num_repeats)}, (sampler.rank, sampler.num_replicas)
        if not hasattr(sampler, "__iter__") or not hasattr(sampler, "__len__"):
            raise TypeError(f"{name} is no sampler: it needs __iter__, which gives indices, and __len__")
        return {"listed": {"name": name, "samples": len(sampler)}}, None

    def _rank(self, distributed: bool | tuple[int, int] | None, shuffles: bool) -> tuple[tuple[int, int] | None, bool]:
        """The rank and the number of ranks, and whether they were asked for."""
        if isinstance(distributed, tuple):
            return distributed, True
        group = self._group()
        if distributed is None and shuffles and group is not None and group[1] > 1:
            raise ParameterError(
                f"torch.distributed has {group[1]} ranks: say distributed=True for a part of the samples for each, or "
                "distributed=False for all samples on every rank"
            )
        if distributed:
            if group is None:
                raise ParameterError(
                    "distributed=True needs torch.distributed's group: initialize it first, or give (rank, ranks)"
                )
            return group, True
        return None, False

    def _group(self) -> tuple[int, int] | None:
        """The rank and the number of ranks of the framework's processes."""
        return None

    def _pipeline(self) -> _warpfeed.Pipeline | _devices.Group:
        with self._lock:
            if self._made is None or self._process != os.getpid():
                if self._devices is None:
                    self._made = _warpfeed.Pipeline(self._source, self._settings, self._memory())
                else:
                    self._made = _devices.Group(self._source, self._settings, self._devices, self._memory())
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

    def images(self, batch: _warpfeed.Batch) -> Any:
        if len(batch.views) != 1:
            raise ParameterError("several views cannot go through steps in Python")
        (view,) = batch.views
        return [self.array(one)[0] for one in view] if isinstance(view, list) else self.array(view)

    def targets(self, batch: _warpfeed.Batch) -> Any:
        if self._fields:
            return self._field_dicts(batch)
        if batch.targets is not None:
            return batch.targets if isinstance(batch.targets, list) else list(self.array(batch.targets))
        return None if batch.labels is None else self.numbers(batch.labels)

    def _beside(self, batch: _warpfeed.Batch | _python.Job) -> dict[str, Callable[[], Any]]:
        """What can be delivered of a batch's samples beside images and labels."""
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
            "recipes": lambda: [recipe(*which) for which in zip(indices, repetitions, strict=True)],
        }

    def many(self, numbers: list[int]) -> Any:
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
        batches = self._one().batches
        if batches is None:
            raise TypeError("the number of batches of a stream is not known")
        return batches

    # What an iteration tells.

    def _begin(self, iteration: Iteration[T]) -> AnyEpoch:
        with self._lock:
            pipeline = self._pipeline()
            resume, self._resume = self._resume, None
            number = self._number if resume is None else int(resume[0]["epoch"])
            self._number = number + 1
            order, state = self._order(number), None
            epoch: AnyEpoch
            if resume is None:
                epoch = pipeline.epoch(number, order)
            else:
                after = pipeline.state_after([json.dumps(one) for one in resume], order)
                epoch, state = pipeline.resume(after, order), json.loads(after)
            if self._plan is not None:
                epoch = self._plan.begin(self, epoch, number)
            self._latest, self._state, self._running = weakref.ref(iteration), state, epoch
            return epoch

    def _order(self, number: int) -> list[int] | None:
        if self._of_sampler is None:
            return None
        if hasattr(self._of_sampler, "set_epoch"):
            self._of_sampler.set_epoch(number)
        return [int(index) for index in self._of_sampler]

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
        """Sets the number of the next epoch. A state that was loaded for this epoch stays."""
        with self._lock:
            if self._resume is not None and self._resume[0]["epoch"] == epoch:
                return
            self._resume, self._number = None, epoch

    def state_dict(self) -> dict[str, Any]:
        """The state after the batch that the last begun iteration gave last. It is JSON."""
        with self._lock:
            state = self._state
            if self._resume is not None:
                state = json.loads(self._pipeline().state_after([json.dumps(one) for one in self._resume]))
            if state is not None and self._pipeline().batches_left(json.dumps(state)) == 0:
                state = None
            return {"version": 1, "epoch": self._number if state is None else state["epoch"], "state": state}

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Goes on after a state: the next iteration gives the batches that were left of its epoch. The number of ranks may
        have changed: what is left is shared by the new ones. Of ranks that read a stream, give the states of all, in a
        list; otherwise that of any rank is enough."""
        states = [state_dict] if isinstance(state_dict, Mapping) else list(state_dict)
        if not states:
            raise ParameterError("there is no state to go on from")
        for one in states:
            if one.get("version") != 1:
                raise ParameterError(f"the state has version {one.get('version')}, and this package knows version 1")
        if len({int(one["epoch"]) for one in states}) > 1 or len({one["state"] is None for one in states}) > 1:
            raise ParameterError("the states are of different epochs: go on with as many ranks until all are in one")
        with self._lock:
            self._number = int(states[0]["epoch"])
            self._resume = None
            if states[0]["state"] is not None:
                self._resume = [rank for one in states for rank in _devices.ranks(dict(one["state"]))]
            self._state = None

    def recipe(self, index: int, epoch: int = 0, repetition: int = 0) -> list[dict[str, Any]]:
        """The explicit operations that a sample goes through in an epoch, EXIF orientation included."""
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
        source = type(self.dataset).__name__ if not isinstance(self.dataset, str) else repr(self.dataset)
        python = "nothing" if self._plan is None else self._plan.said()
        return f"{type(self).__module__}.{type(self).__name__}({source}, batch_size={self.batch_size}, in Python: {python})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its arguments: a pipeline has threads and memory of its process, and a state is saved by itself."""
        return _again, (type(self), self._arguments)


def _seconds(stats: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value["secs"] + value["nanos"] / 1e9 if isinstance(value, dict) and "secs" in value else value
        for name, value in stats.items()
    }


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
