"""What runs in Python: the samples of a data set that is not converted, steps on native images, targets and collating.

The native pipeline gives the order, the parts of ranks, and the states. For a data set that Python reads, its images are
nothing, and `dataset[i]` is called for the indices of each batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

Collate = Callable[[list[Any]], Any]


@dataclass
class Job:
    """The samples of a batch that Python makes or finishes."""

    epoch: int
    indices: list[int]
    repetitions: list[int]
    images: Any = None
    """Those of the native pipeline: an array of all, or a list."""
    targets: Any = None
    """Those of the native pipeline, one for each sample; None if samples have none."""


@dataclass
class Made:
    """A batch that Python finished, and the state after it."""

    state: str
    job: Job
    value: Any
    seconds: float
    """What it took in Python."""


@dataclass
class Work:
    """Makes batches of jobs. It can be sent to other processes if its parts can."""

    seed: int
    join: Callable[[list[Any], Any], Any]
    """Collates samples where the user gave no function for it; the second argument: the job's images."""
    dataset: Any = None
    """Makes the samples altogether."""
    steps: Sequence[Callable[[Any], Any]] = ()
    """What the native images go through."""
    gets: str = "own"
    """What the first step gets: "pil", "array" or "hwc" of bytes, "tensor" of torch's, "image" for torchvision's tensor of
    that name, or "own" for the loader's array."""
    target_of: Callable[[int], Any] | None = None
    """The target of a sample by its index, in place of the native one."""
    target_transform: Callable[[Any], Any] | None = None
    name: str | None = None
    """The images' name, where samples are dicts of an image and of `target_of`'s values."""
    collate: Collate | None = None
    seeded: bool = True

    def batch(self, job: Job) -> Any:
        draws = self.dataset is not None or self.steps or self.target_transform or self.collate
        with _generators() if self.seeded and draws else contextlib.nullcontext():
            samples = self.samples(job)
            if self.collate is not None:
                self._seed(job, 0, "batch")
                return self.collate(samples)
        if self.dataset is None and self.target_of is None and job.targets is None:
            return [self.join(samples, job.images), None]
        return self.join(samples, job.images)

    def samples(self, job: Job) -> list[Any]:
        if self.dataset is not None:
            together = getattr(self.dataset, "__getitems__", None)
            if together and not _is_torch_part(self.dataset):
                self._seed(job, 0)
                return list(together(job.indices))
            return [self._sample(job, place, index) for place, index in enumerate(job.indices)]
        images = list(job.images)
        return [self._finished(job, place, images[place]) for place in range(len(images))]

    def finished(self, job: Job) -> Any:
        """The first sample, without seeds."""
        return Work.samples(replace(self, seeded=False), job)[0]

    def _sample(self, job: Job, place: int, index: int) -> Any:
        self._seed(job, place)
        return self.dataset[index]

    def _finished(self, job: Job, place: int, image: Any) -> Any:
        if self.steps or self.target_transform is not None:
            self._seed(job, place)
        if self.steps:
            image = _given(image, self.gets)
            for step in self.steps:
                image = step(image)
        index = job.indices[place]
        if self.target_of is not None:
            target = self.target_of(index)
        elif job.targets is None:
            return image
        else:
            target = job.targets[place]
        if self.target_transform is not None:
            target = self.target_transform(target)
        return (image, target) if self.name is None else {self.name: image, **target}

    def _seed(self, job: Job, place: int, what: str = "") -> None:
        if self.seeded:
            text = f"{self.seed} {job.epoch} {job.indices[place]} {job.repetitions[place]} {what}"
            seed(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def _is_torch_part(dataset: Any) -> bool:
    """Whether a batch of the data set is its samples, one after the other: torch's Subset of one that has no
    `__getitems__` of its own."""
    data = sys.modules.get("torch.utils.data")
    if data is None or type(dataset) is not data.Subset:
        return False
    return not getattr(dataset.dataset, "__getitems__", None) or _is_torch_part(dataset.dataset)


def _given(image: Any, gets: str) -> Any:
    """A native image as a step gets it."""
    if gets == "own":
        return image
    if gets in ("tensor", "image"):
        import torch

        tensor = torch.as_tensor(image)
        if gets == "tensor":
            return tensor
        from torchvision.tv_tensors import Image

        return Image(tensor)
    import numpy

    array = numpy.asarray(image)
    if gets in ("array", "hwc"):
        return array
    from PIL import Image as Pillow

    return Pillow.fromarray(numpy.ascontiguousarray(array[..., 0] if array.shape[-1] == 1 else array))


_seeding = threading.RLock()


def _new_lock() -> None:
    global _seeding
    _seeding = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


def seed(number: int) -> None:
    """Seeds the process's generators for what comes: those of random, of numpy, and of torch on the CPU."""
    import random

    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number & 0xFFFFFFFF)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(number)


@contextlib.contextmanager
def _generators() -> Iterator[None]:
    """Has the process's generators for this thread, and sets them back afterwards."""
    import random

    with _seeding:
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        own = random.getstate()
        of_numpy = numpy and numpy.random.get_state()
        of_torch = torch and torch.default_generator.get_state()
        try:
            yield
        finally:
            random.setstate(own)
            if numpy is not None:
                numpy.random.set_state(of_numpy)
            if torch is not None:
                torch.default_generator.set_state(of_torch)


@contextlib.contextmanager
def seeded_apart(number: int) -> Iterator[None]:
    """Has generators with this seed, and sets them back afterwards."""
    with _generators():
        seed(number)
        yield


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Has torch compute in the calling thread alone, as its workers do: an image is too small for several."""
    torch = sys.modules.get("torch")
    threads = 1 if torch is None else torch.get_num_threads()
    if torch is None or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Native(Protocol):
    """An epoch of the native pipeline."""

    def __next__(self) -> Any: ...
    def wait(self, seconds: float) -> bool: ...
    def close(self) -> None: ...
    def stats(self) -> str: ...
    def bad(self) -> list[tuple[int, str, str]]: ...


class Jobs(Protocol):
    """Makes jobs of an epoch's native batches, which come in their order."""

    def __call__(self, batch: Any) -> Job: ...
    def close(self) -> None: ...


class Epoch:
    """An epoch whose batches threads finish in Python, or with none the caller."""

    def __init__(self, native: Native, jobs: Jobs, work: Callable[[Job], Any], threads: int, ahead: int) -> None:
        self._line = _Line(native, jobs, work, ahead)
        self._given = 0
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._threads = [threading.Thread(target=self._line.run, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def __next__(self) -> Made:
        with self._lock:
            if not self._threads:
                batch = next(self._line.native)
                with _one_thread():
                    return self._line.make(batch, self._line.jobs(batch))
            made = self._line.take(self._given)
            self._given += 1
        if isinstance(made, BaseException):
            raise made
        return made

    def wait(self, seconds: float) -> bool:
        """Waits for the next batch. Returns whether it is there."""
        if not self._threads:
            return bool(self._line.native.wait(seconds))
        return self._line.wait(self._given, seconds)

    def close(self) -> None:
        """Stops and joins the threads."""
        if self._process != os.getpid():
            return
        self._line.stop()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._line.jobs.close()
        self._line.native.close()

    def stats(self) -> str:
        return self._line.native.stats()

    def bad(self) -> list[tuple[int, str, str]]:
        return self._line.native.bad()


@dataclass
class _Line:
    """Batches in the native order, which threads finish."""

    native: Native
    jobs: Jobs
    work: Callable[[Job], Any]
    ahead: int
    _pull: threading.Lock = field(default_factory=threading.Lock)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _done: dict[int, Made | BaseException] = field(default_factory=dict)
    _pulled: int = 0
    _taken: int = 0
    _end: int | None = None
    _stopped: bool = False

    def make(self, batch: Any, job: Job) -> Made:
        began = time.perf_counter()
        value = self.work(job)
        return Made(batch.state, job, value, time.perf_counter() - began)

    def run(self) -> None:
        while True:
            made: Made | BaseException
            with self._pull:
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._stopped or self._end is not None or self._pulled < self._taken + self.ahead
                    )
                    if self._stopped or self._end is not None:
                        return
                number, failed = self._pulled, None
                try:
                    batch = next(self.native)
                    job = self.jobs(batch)
                except StopIteration:
                    with self._changed:
                        self._end = number
                        self._changed.notify_all()
                    return
                except BaseException as error:
                    failed = error
                self._pulled += 1
            try:
                made = failed if failed is not None else self.make(batch, job)
            except BaseException as error:
                made = error
            with self._changed:
                self._done[number] = made
                self._changed.notify_all()

    def wait(self, number: int, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: number in self._done or self._stopped or self._end == number, seconds)

    def take(self, number: int) -> Made | BaseException:
        with self._changed:
            self._changed.wait_for(lambda: number in self._done or self._stopped or self._end == number)
            if number not in self._done:
                raise StopIteration
            self._taken = number + 1
            self._changed.notify_all()
            return self._done.pop(number)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


@dataclass
class Batches:
    """The jobs of native batches."""

    arrays: Arrays
    epoch: int
    has_images: bool

    def __call__(self, batch: Any) -> Job:
        indices = batch.index_list
        if not self.has_images:
            return Job(self.epoch, indices, batch.repetitions)
        return Job(self.epoch, indices, batch.repetitions, self.arrays.images_of(batch), self.arrays.targets_of(batch))

    def close(self) -> None:
        pass


class Groups:
    """The jobs of batches that a batch sampler lists. The native batches only count them; a second epoch makes the
    images, one by one."""

    def __init__(
        self, arrays: Arrays, epoch: int, listed: list[list[int]], images: Callable[[list[int], int], Any] | None
    ):
        """images: begins an epoch of images with these indices behind so many."""
        self._arrays, self._epoch, self._listed, self._images = arrays, epoch, listed, images
        self._starts = [0, *itertools.accumulate(map(len, listed))]
        self._running: Any = None
        self._counts: list[int] = []
        counts: dict[int, int] = {}
        for index in itertools.chain.from_iterable(listed):
            self._counts.append(counts.get(index, 0))
            counts[index] = self._counts[-1] + 1

    def __call__(self, batch: Any) -> Job:
        (number,) = batch.index_list
        own = self._listed[number]
        before = self._starts[number]
        job = Job(self._epoch, own, self._counts[before : before + len(own)])
        if self._images is None:
            return job
        if self._running is None:
            self._running = self._images(list(itertools.chain.from_iterable(self._listed)), before)
        singles = [next(self._running) for _ in own]
        job.images = [image for single in singles for image in self._arrays.images_of(single)]
        targets = [self._arrays.targets_of(single) for single in singles]
        job.targets = None if None in targets else [target for each in targets for target in each]
        return job

    def close(self) -> None:
        if self._running is not None:
            self._running.close()


class Arrays(Protocol):
    """A framework's arrays of native batches."""

    def images_of(self, batch: Any) -> Any: ...
    def targets_of(self, batch: Any) -> Any: ...


def stacked(samples: list[Any], images: Any = None) -> Any:
    """numpy's arrays of samples: of numbers and arrays, and of tuples, lists and dicts of these. Other things are a list."""
    import numpy

    first = samples[0]
    if isinstance(first, dict):
        return {name: stacked([sample[name] for sample in samples]) for name in first}
    if isinstance(first, (tuple, list)):
        return tuple(stacked(list(part)) for part in zip(*samples, strict=True))
    if hasattr(first, "__array__") or isinstance(first, (int, float)):
        return numpy.stack([numpy.asarray(sample) for sample in samples])
    return samples
