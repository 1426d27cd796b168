"""A data loader with the arguments and the meanings of torch.utils.data.DataLoader, whose batches warpfeed makes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.utils import data
from torch.utils._pytree import tree_map
from torch.utils.dlpack import from_dlpack

from . import _python, _warpfeed
from ._errors import ParameterError
from ._identity import known
from ._loader import AnyEpoch, DTypeName, Iteration, Loader
from .transforms import Transform

__all__ = ["DataLoader"]

_DTYPES: dict[torch.dtype, DTypeName] = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.uint8: "uint8",
}
_REPLACED = {
    "worker_init_fn": "there are no worker processes without python_workers=, and draws depend on seed, epoch and sample alone",
    "generator": "give seed=",
    "multiprocessing_context": "there are no worker processes without python_workers=",
}

_PARTS = ("images", "labels", "names", "indices", "recipes")

Output = Literal["tuple", "dict", "batch"] | Mapping[str, str] | Callable[[torch.Tensor, Any], Any]


def join(samples: list[Any], images: Any) -> Any:
    """A batch of samples, as torch's default_collate makes it. Images that are still where the native batch has them are
    not copied."""
    pairs = all(type(sample) is tuple and len(sample) == 2 for sample in samples)
    found = [sample[0] for sample in samples] if pairs else samples
    if not isinstance(images, torch.Tensor) or not all(map(_is_still, found, images)):
        return data.default_collate(samples)
    return [images, data.default_collate([sample[1] for sample in samples])] if pairs else images


def _is_still(image: Any, of: torch.Tensor) -> bool:
    """Whether an image is where another was, in the same form."""
    if not isinstance(image, torch.Tensor) or image.data_ptr() != of.data_ptr():
        return False
    return image.shape == of.shape and image.stride() == of.stride() and image.dtype == of.dtype


class DataLoader(Loader[Any]):
    """Batches `[images, labels]` as torch's tensors: images `[N, 3, H, W]`, labels `[N]` of int64, None if the data
    set has none.

    Arguments of torch's loader have torch's meaning, with these differences: `num_workers` are threads, by default one for
    each processor; with 0 the caller's thread makes the batches. `prefetch_factor` counts batches of all threads together.
    `persistent_workers` has no effect: threads and memory are kept anyway.

    What is converted runs in native threads: known classes of data sets and transforms, by identity (docs/python.md lists
    them). Anything else runs in Python, and gives what torch's loader gives: `repr` and a warning say what and how long it
    takes. Python's generators (random, numpy's, torch's on the CPU) are seeded for each sample from seed, epoch and index.

    dataset: a path or URL; a list of (path or bytes, target); torchvision's ImageFolder and others with files or arrays; a
        Subset or ConcatDataset of them; timm's ImageDataset; Hugging Face's; an object with `__len__` and `read(i) -> (bytes
        or path, target)`; any other with `__len__` and `__getitem__`, which runs in Python.
    transform: the data set's own by default. torchvision's transforms are converted up to the first one that is not. A list
        of `warpfeed.transforms`, or of their written forms, is taken as it is; functions may stand at its end.
    columns: columns of a data set of Hugging Face's by their names in the batch: {"pixel_values": "image", "text": "text"}.
    collate_fn: makes a batch of samples, in Python.
    batch_sampler: gives the indices of each batch. torch's BatchSampler is converted.
    python_workers: processes for what runs in Python, as torch starts them; by default it runs in the loader's threads, one
        sample at a time. `worker_init_fn` and `multiprocessing_context` ("forkserver" by default) are theirs.
    python_seeds: whether Python's generators are seeded. Without, threads do not wait for one another.
    check: whether three samples of a converted data set are compared with `dataset[i]`.
    preset: a published recipe instead, such as "train", "eval" or "deit".
    seed: of order and draws. Every epoch has its own order.
    distributed: a part of the samples for each rank of torch.distributed, with equally many batches; or (rank, ranks). With
        several ranks and shuffled data it must be said.
    device: "cpu", or "cuda:0" for batches that are made on a GPU. A list of devices makes a batch on each: the loader then
        gives lists of batches. Devices get what ranks get: different samples, and equally many batches.
    label_base: what is added to the `labels` among fields: 1 for torchvision's detection models, whose 0 is background.
    targets: what is delivered beside labels, as in "soft=1000/0.1", "multi-hot=80", "float=4:json.box".
    fields: fields of samples, such as ("boxes", "labels", "masks"), as a list of dicts in place of the labels. They are on
        the images' device, as labels and targets are. "image_id" is the annotation file's number of the image, or else its
        index.
    mix: MixUp and CutMix of batches, as in "torchvision=0.2/1" or "timm=0.8/1,mode=elem".
    ragged: whether images may differ in size, and come as a list. By default only with fields or a preset of detection.
    pad_to: pads the images of a batch to the largest one, with sides that are multiples of this.
    output: "tuple" for [images, labels]; "dict" for {"pixel_values", "labels"}; a mapping of names to what they are, as in
        {"pixel_values": "images", "labels": "labels", "path": "names"}, where "names" are files or keys, "indices" places in
        the data set, and "recipes" each image's operations; a function of images and labels; "batch" for the native batch,
        with views, indices, mixing and state.
    on_error: "raise", "skip", or "substitute" for a bad image; `bad()` lists them.
    orientation: whether EXIF orientation is applied: by default not for torchvision's and timm's data sets, as these ignore
        it; for paths, lists and Hugging Face's yes.
    cache: bytes of decoded images to keep, or (folder, bytes).
    entry_points: "none", "memory", a folder, the most bytes, "dense" (with places for a GPU) or "sparse", or several in
        a tuple; they make later epochs faster.

    `state_dict` and `load_state_dict` resume in the middle of an epoch with the batches that were left.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool | None = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | None = None,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        transform: Sequence[Transform] | Any = None,
        dtype: torch.dtype | DTypeName | None = None,
        memory_format: torch.memory_format = torch.contiguous_format,
        output: Output = "tuple",
        **options: Any,
    ) -> None:
        given = {"generator": generator}
        if not options.get("python_workers"):
            given |= {"worker_init_fn": worker_init_fn, "multiprocessing_context": multiprocessing_context}
        self._worker_options = {"timeout": timeout, "context": multiprocessing_context, "init": worker_init_fn}
        for name, value in given.items():
            if value is not None:
                raise ParameterError(f"{name} is not supported: {_REPLACED[name]}")
        if sampler is not None and shuffle:
            raise ParameterError("sampler and shuffle exclude each other")
        if memory_format not in (torch.contiguous_format, torch.channels_last):
            raise ParameterError(
                f"memory_format must be torch.contiguous_format or torch.channels_last, got {memory_format}"
            )
        if isinstance(output, Mapping) and not set(output.values()) <= set(_PARTS):
            raise ParameterError(f"output: a mapping of names in the batch to {', '.join(_PARTS)}, got {dict(output)}")
        if isinstance(output, str) and output not in ("tuple", "dict", "batch"):
            raise ParameterError(f'output must be "tuple", "dict", "batch", a mapping or a function, got {output!r}')
        # torch's own are what the native pipeline does.
        own_collate = None if collate_fn is data.default_collate else collate_fn
        own_batches = batch_sampler
        if known(batch_sampler, "torch.utils.data") == "BatchSampler":
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ParameterError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
            batch_size, drop_last = batch_sampler.batch_size, batch_sampler.drop_last
            sampler, own_batches = batch_sampler.sampler, None
        self._output = output
        self._channels_last = memory_format is torch.channels_last
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self._pinned = _Pinned(pin_memory_device)
        self.timeout, self.persistent_workers = timeout, persistent_workers
        self.prefetch_factor = prefetch_factor or 2
        super().__init__(
            dataset,
            batch_size,
            bool(shuffle),
            sampler,
            num_workers,
            drop_last,
            transform=transform,
            prefetch_factor=self.prefetch_factor,
            dtype=_DTYPES.get(dtype) if isinstance(dtype, torch.dtype) else dtype,
            channels_last=self._channels_last,
            collate_fn=own_collate,
            batch_sampler=own_batches,
            **options,
        )
        self._arguments = {
            "dataset": dataset, "batch_size": batch_size, "shuffle": shuffle, "sampler": sampler, "num_workers": num_workers,
            "batch_sampler": own_batches, "collate_fn": collate_fn, "worker_init_fn": worker_init_fn,
            "multiprocessing_context": multiprocessing_context,
            "pin_memory": pin_memory, "pin_memory_device": pin_memory_device, "drop_last": drop_last,
            "timeout": timeout, "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers, "transform": transform, "dtype": dtype, "memory_format": memory_format,
            "output": output, **options,
        }  # fmt: skip

    def _group(self) -> tuple[int, int] | None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return None

    def _memory(self) -> Callable[[int], tuple[int, object]] | None:
        # The native batch goes to consumers that know nothing of torch's memory.
        return self._pinned if self.pin_memory and self._output != "batch" and self._plan is None else None

    def _begin(self, iteration: Iteration[Any]) -> AnyEpoch:
        if self.pin_memory:
            self._pinned.choose_device()
        return super()._begin(iteration)

    def _tensor(self, tensor: _warpfeed.Tensor) -> torch.Tensor:
        shape, dtype = tensor.shape, getattr(torch, tensor.dtype)
        memory = tensor.owner() if self.pin_memory else None
        own = from_dlpack(tensor) if memory is None else _view(memory, shape, dtype)
        if memory is None and self.pin_memory and own.device.type == "cpu":
            own = _view(self._pinned(own.nbytes)[1], shape, dtype).copy_(own)
        return own.permute(0, 3, 1, 2) if self._channels_last and own.dim() == 4 else own

    def _joined(self, images: list[torch.Tensor]) -> torch.Tensor:
        joined = torch.cat(images)
        if not self.pin_memory or joined.device.type != "cpu":
            return joined
        return _view(self._pinned(joined.nbytes)[1], joined.shape, joined.dtype).copy_(joined)

    def _deliver(self, batch: _warpfeed.Batch) -> Any:
        if self._output == "batch":
            return batch
        images = self._images(batch, self._tensor, self._joined)
        labels = self._targets(batch)
        return self._form(images, labels, batch)

    def _form(self, images: Any, labels: Any, batch: _warpfeed.Batch | _python.Job) -> Any:
        if callable(self._output):
            return self._output(images, labels)
        if self._output == "tuple":
            return [images, labels]
        if not isinstance(self._output, Mapping):
            # Models of Hugging Face compute no loss without labels.
            return {"pixel_values": images} if labels is None else {"pixel_values": images, "labels": labels}
        values = {"images": lambda: images, "labels": lambda: labels} | self._beside(batch)
        return {name: values[what]() for name, what in self._output.items() if what != "labels" or labels is not None}

    # What Python's steps get, and what becomes of what they give.

    join = staticmethod(join)
    _has_processes = True

    def _gives_native(self) -> bool:
        return self._output == "batch"

    def array(self, tensor: _warpfeed.Tensor) -> Any:
        return from_dlpack(tensor)

    def many(self, numbers: list[int]) -> Any:
        return torch.tensor(numbers)

    def targets(self, batch: _warpfeed.Batch) -> Any:
        if self._fields or batch.targets is not None:
            return self._targets(batch)
        # Labels are numbers, as torchvision's data sets have them.
        return None if batch.labels is None else self.numbers(batch.labels)

    def _deliver_made(self, made: _python.Made) -> Any:
        value = made.value
        if self._device != "cpu" or self.pin_memory:
            value = tree_map(self._placed, value)
        if self._output == "tuple" and not self._channels_last and self._plan is not None and not self._plan.asked:
            return value
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            if isinstance(value, Mapping) and self._output in ("tuple", "dict"):
                return value
            raise ParameterError(
                f"output= and memory_format= are for batches of images and labels, and these are {type(value)}"
            )
        images, labels = value
        if isinstance(images, torch.Tensor) and self._plan is not None and self._plan.asked:
            images = images.to(getattr(torch, self._plan.asked))
        if self._channels_last and images.dim() == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        return self._form(images, labels, made.job)

    def _placed(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value.pin_memory() if self.pin_memory else value
        return value if self._device == "cpu" else value.to(self._device, non_blocking=True)

    def _targets(self, batch: _warpfeed.Batch) -> Any:
        if self._fields:
            return self._field_dicts(batch)
        if batch.targets is None:
            return None if batch.labels is None else self._tensor(batch.labels)
        if isinstance(batch.targets, list):
            return batch.targets
        targets = self._tensor(batch.targets)
        return targets[:, 0].to(torch.int64) if targets.dtype == torch.uint32 else targets

    def as_torch(self) -> data.DataLoader[Any]:
        """This loader inside a real torch DataLoader, for trainers that take no other: HF's Trainer, StatefulDataLoader."""
        return data.DataLoader(_Batches(self), batch_size=None)


class _Pinned:
    """Makes pinned memory of torch's. torch gives it to nobody else before copies from it are done. It does so for no other
    memory, so each batch is filled in memory of its own."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device).index if device else None

    def choose_device(self) -> None:
        """The device of the calling thread: that of a native thread is always the first."""
        if self._device is None:
            self._device = torch.cuda.current_device()

    def __call__(self, len_bytes: int) -> tuple[int, torch.Tensor]:
        with torch.cuda.device(self._device):
            memory = torch.empty(len_bytes, dtype=torch.uint8, pin_memory=True)
        return memory.data_ptr(), memory


def _view(memory: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """The elements at the beginning of the memory."""
    return memory[: math.prod(shape) * dtype.itemsize].view(dtype).view(*shape)


class _Batches(data.IterableDataset[Any]):
    """The batches of a loader as a data set of torch's."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._loader.load_state_dict(state_dict)
