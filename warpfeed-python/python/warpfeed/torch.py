"""A data loader with the arguments and the meanings of torch.utils.data.DataLoader, whose batches warpfeed makes."""

from __future__ import annotations

import base64
import math
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias, TypedDict

import torch
from torch.utils import data
from torch.utils._pytree import tree_map
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.dlpack import from_dlpack
from typing_extensions import TypeVar

from . import _python, _warpfeed
from ._arguments import at_least, checked
from ._errors import ParameterError, UnsupportedError
from ._identity import is_function
from ._loader import CROPS, AnyEpoch, DTypeName, EntryPoints, Iteration, Loader
from .transforms import Compose, Transform

__all__ = ["DataLoader", "Module", "Options"]

_DTYPES: dict[torch.dtype, DTypeName] = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
}
_REPLACED = {
    "worker_init_fn": "there are no worker processes here; seed=, generator= or torch.manual_seed decides about draws",
    "multiprocessing_context": "there are no worker processes here",
}

_PATCHES = ("patches", "patch_coord", "patch_valid", "pixel_attention_mask", "spatial_shapes")
_PARTS = ("images", "labels", "names", "indices", "recipes", *CROPS, *_PATCHES)

B = TypeVar("B", default=Any)
"""What a batch is, for those who annotate it: `loader: DataLoader[list[torch.Tensor]] = DataLoader(...)`."""

Output: TypeAlias = Literal["tuple", "dict", "batch"] | Mapping[str, str] | Callable[[torch.Tensor, Any], Any]


class Options(TypedDict, total=False):
    """The arguments of DataLoader without the data set, for functions that hand them on."""

    batch_size: int | None
    shuffle: bool | None
    sampler: Any
    batch_sampler: Any
    num_workers: int | None
    collate_fn: Any
    pin_memory: bool
    drop_last: bool
    timeout: float
    worker_init_fn: Any
    multiprocessing_context: Any
    generator: torch.Generator | None
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool
    transform: Sequence[Transform] | Any
    preset: str | None
    seed: int | None
    distributed: bool | tuple[int, int] | None
    device: str | Sequence[str]
    jpeg_decoder: str | None
    hardware_share: float | None
    channels: int | None
    pad_to: int | None
    ragged: bool | None
    targets: str | None
    fields: Sequence[str] | None
    columns: Mapping[str, str] | None
    python_workers: int | None
    python_seeds: bool
    check: bool
    label_base: int
    mix: Any
    repeats: int | None
    on_error: Literal["raise", "skip", "substitute"]
    max_bad: int | float | None
    orientation: Literal["apply", "ignore"] | None
    draft: tuple[int, int] | None
    thumbnail: tuple[int, int] | None
    reducing_gap: float | None
    strategy: Literal["fused", "sequential", "composed"] | None
    cache: int | tuple[str | os.PathLike[str], int] | None
    entry_points: EntryPoints | tuple[EntryPoints, ...] | None
    limit: int | None
    shares: int | None
    lanes: int | None
    accept_truncated: bool
    max_pixels: int | None
    pixels: str | None
    max_value: float | None
    pass_order: Literal["pillow13", "horizontal_first"] | None
    device_memory: int | None
    device_cache: int | None
    gpu_direct: bool
    pinned: bool
    stream_priority: Literal["low", "high"] | None
    dtype: torch.dtype | DTypeName | None
    memory_format: torch.memory_format
    output: Output


class Module(torch.nn.Module):
    """A transform, or a list of them, of `warpfeed.transforms` as a module for `nn.Sequential`."""

    def __init__(self, transform: Callable[..., Any] | Sequence[Transform]) -> None:
        super().__init__()
        self.transform: Callable[..., Any] = Compose(transform) if isinstance(transform, Sequence) else transform

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.transform(*inputs, **named)

    def extra_repr(self) -> str:
        return repr(self.transform)


def join(samples: list[Any], images: Any) -> Any:
    """A batch of samples, as torch's default_collate makes it. Images that are still where the native batch has them are
    not copied."""
    if isinstance(images, torch.Tensor) and all(type(sample) is dict for sample in samples):
        name = next((name for name, one in samples[0].items() if _is_still(one, images[0])), None)
        if name is not None and all(
            _is_still(sample.get(name), of) for sample, of in zip(samples, images, strict=True)
        ):
            others = data.default_collate([{**sample, name: 0} for sample in samples])
            return {**others, name: images}
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


class DataLoader(Loader[B], data.DataLoader[B]):  # type: ignore[misc]
    """Batches `[images, labels]` as torch's tensors: images `[N, 3, H, W]`, labels `[N]` of int64, None if the data
    set has none.

    It is a `torch.utils.data.DataLoader`, with its arguments and attributes. They have torch's meaning, with these
    differences: `num_workers` are threads, by default one for each processor; with 0 the caller's thread makes the batches.
    `prefetch_factor` counts batches of all threads together. `persistent_workers` costs and saves nothing but with processes:
    threads and memory are kept anyway. Batches always come in order, also with `in_order=False`.

    What is converted runs in native threads: known classes of data sets and transforms, by identity (docs/python.md lists
    them). Anything else runs in Python, and gives what torch's loader gives: `repr` and a warning say what and how long it
    takes. Python's generators (random, numpy's, torch's on the CPU) are seeded for each sample from seed, epoch and index.

    dataset: a path or URL; a list of (path or bytes, target); torchvision's ImageFolder and others with files or arrays; a
        Subset or ConcatDataset of them; timm's ImageDataset; Hugging Face's; an object with `__len__` and `read(i) -> (bytes
        or path, target)`; any other with `__len__` and `__getitem__`, which runs in Python.
    sampler, batch_sampler: what they yield is listed when an epoch begins, and kept in the loader's state. As with torch,
        `set_epoch` of a DistributedSampler is the caller's, and a sampler that knows ranks decides what a rank reads.
    batch_size: None gives single samples, as with torch.
    collate_fn: makes a batch of samples, in Python.
    generator: decides order and draws; without it and without `seed`, torch's global generator does, as with torch. Both are
        a part of the loader's state.
    transform: the data set's own by default. torchvision's transforms are converted up to the first one that is not. A list
        of `warpfeed.transforms`, or of their written forms, is taken as it is; functions may stand at its end.
    columns: columns of a data set of Hugging Face's by their names in the batch: {"pixel_values": "image", "text": "text"}.
    python_workers: processes for what runs in Python. By default a data set that Python makes altogether has `num_workers`
        processes as torch starts them, and steps on native images run where the loader is iterated, one sample at a time.
        `worker_init_fn`, `multiprocessing_context` ("forkserver" with python_workers) and `persistent_workers` are theirs.
    python_seeds: whether Python's generators are seeded. Without, steps run in threads, several at once.
    check: whether three samples of a converted data set are compared with `dataset[i]`.
    preset: a published recipe instead, such as "train", "eval" or "deit".
    seed: makes order and draws depend on it and on the number of the epoch alone. Every epoch has its own order.
    distributed: a part of the samples for each rank of torch.distributed, with equally many batches; or (rank, ranks). With
        several ranks and `shuffle=True` it must be said, or left to a trainer that shares out by itself. Without `seed` it
        has 0, as torch's DistributedSampler.
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
    buckets: batches by shape: "sdxl", "flux", "kohya=1024x1024", ..., "area=1024x1024,step=64", or a list of (width, height).
        Each image is resized and cropped to its bucket by `transforms.BucketCrop`; all ranks have the same shape in each
        step. Images that would never come are refused, unless the text ends in ",lossy".
    unit: images that share a shape, one after the other in the order of all ranks; it makes that order independent of the
        number of ranks. By default those of a batch of all ranks.
    sizes_file: keeps the images' sizes, which are read from their headers.
    sizes: images whose size changes over the epochs: "128,192,224/90", or "drawn=128,192,224/90" as timm;
        ",budget=PIXELS" may follow. `transforms.RandomResizedCrop` and `BucketCrop` take the size of the batch.
    sequences: batches of sequences of patches (NaFlex): lengths and tokens, as "128,256,576/16384". Transforms have
        `RandomSequenceCrop` or `SequenceResize`; images come as {"patches", "patch_coord", "patch_valid"}, as timm's models
        take them, with "pixel_attention_mask" and "spatial_shapes" for SigLIP2's. `patch`: the side of a patch.
    output: "tuple" for [images, labels]; "dict" for {"pixel_values", "labels"}; a mapping of names to what they are, as in
        {"pixel_values": "images", "labels": "labels", "path": "names"}, where "names" are files or keys, "indices" places in
        the data set, and "recipes" each image's operations; with buckets "original_sizes", "crop_top_lefts" and
        "target_sizes" `[N, 2]` (height, width and top, left), or all six as "add_time_ids"; a function of images and labels;
        "batch" for the native batch, with views, indices, mixing and state.
    on_error: "raise", "skip", or "substitute" for a bad image; `bad()` lists them.
    orientation: whether EXIF orientation is applied: by default not for torchvision's and timm's data sets, as these ignore
        it; for paths, lists and Hugging Face's yes.
    cache: bytes of decoded images to keep, or (folder, bytes).
    entry_points: "none", "memory", a folder, the most bytes, "dense" (with places for a GPU) or "sparse", or several in
        a tuple; they make later epochs faster.

    `state_dict` and `load_state_dict` resume in the middle of an epoch with the batches that were left.
    """

    _has_generator = True

    @checked
    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | None = None,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Sequence[Transform] | Any = None,
        preset: str | None = None,
        seed: int | None = None,
        distributed: bool | tuple[int, int] | None = None,
        device: str | Sequence[str] = "cpu",
        jpeg_decoder: str | None = None,
        hardware_share: float | None = None,
        channels: int | None = None,
        pad_to: int | None = None,
        ragged: bool | None = None,
        buckets: str | Sequence[tuple[int, int]] | None = None,
        unit: int | None = None,
        sizes_file: str | os.PathLike[str] | None = None,
        sizes: str | None = None,
        sequences: str | None = None,
        patch: int = 16,
        targets: str | None = None,
        fields: Sequence[str] | None = None,
        columns: Mapping[str, str] | None = None,
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
        dtype: torch.dtype | DTypeName | None = None,
        memory_format: torch.memory_format = torch.contiguous_format,
        output: Output = "tuple",
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        collate_fn = _collate(collate_fn, batch_size is None and batch_sampler is None)
        # Lightning's seeds its workers, and draws are seeded here anyway.
        of = getattr(getattr(worker_init_fn, "func", None), "__module__", "")
        init = None if of.startswith(("lightning.", "pytorch_lightning.")) else worker_init_fn
        context = multiprocessing_context or ("forkserver" if python_workers else None)
        self._worker_options = {
            "timeout": timeout, "context": context, "init": init, "persistent": persistent_workers
        }  # fmt: skip
        _check_as_torch(batch_size, shuffle, sampler, batch_sampler, num_workers, drop_last, timeout, prefetch_factor)
        if persistent_workers and num_workers == 0:
            raise ParameterError("persistent_workers needs threads, and num_workers=0 has none: leave it out")
        if memory_format not in (torch.contiguous_format, torch.channels_last):
            raise ParameterError(
                f"memory_format must be torch.contiguous_format or torch.channels_last, got {memory_format}"
            )
        if isinstance(dtype, torch.dtype) and dtype not in _DTYPES:
            raise ParameterError(f"dtype must be {', '.join(map(str, _DTYPES))}, got {dtype}")
        if output == "batch" and batch_size is None:
            raise ParameterError(
                'output="batch" gives native batches, and batch_size=None single samples: leave one out'
            )
        if isinstance(output, Mapping) and not set(output.values()) <= set(_PARTS):
            raise ParameterError(f"output: a mapping of names in the batch to {', '.join(_PARTS)}, got {dict(output)}")
        if sequences is None and isinstance(output, Mapping) and set(output.values()) & set(_PATCHES):
            raise ParameterError("output: patches are those of sequences=, as in sequences='128,256,576/16384'")
        if sequences is not None and memory_format != torch.contiguous_format:
            raise ParameterError("memory_format=torch.channels_last is for images, and sequences= gives patches")
        self._output = output
        self._patch = patch if sequences is not None else None
        self._channels_last = memory_format is torch.channels_last
        self._pins = pin_memory and torch.cuda.is_available()
        self._pinned = _Pinned(pin_memory_device)
        self._timeout = timeout
        self.generator = generator
        self._draws: dict[int, int] = {}
        """The numbers that decide the draws of the epochs that have begun, where no seed does."""
        super().__init__(
            dataset,
            _size(batch_size, batch_sampler),
            bool(shuffle),
            sampler,
            num_workers,
            drop_last,
            batch_sampler=batch_sampler,
            prefetch_factor=prefetch_factor or 2,
            dtype=_DTYPES[dtype] if isinstance(dtype, torch.dtype) else dtype,
            channels_last=self._channels_last,
            transform=transform,
            preset=preset,
            seed=seed,
            distributed=distributed,
            device=device,
            jpeg_decoder=jpeg_decoder,
            hardware_share=hardware_share,
            channels=channels,
            pad_to=pad_to,
            ragged=ragged,
            buckets=buckets,
            unit=unit,
            sizes_file=sizes_file,
            sizes=sizes,
            sequences=sequences,
            targets=targets,
            fields=fields,
            columns=columns,
            collate_fn=collate_fn,
            python_workers=python_workers,
            python_seeds=python_seeds,
            check=check,
            label_base=label_base,
            mix=mix,
            repeats=repeats,
            on_error=on_error,
            max_bad=max_bad,
            orientation=orientation,
            draft=draft,
            thumbnail=thumbnail,
            reducing_gap=reducing_gap,
            strategy=strategy,
            cache=cache,
            entry_points=entry_points,
            limit=limit,
            shares=shares,
            lanes=lanes,
            accept_truncated=accept_truncated,
            max_pixels=max_pixels,
            pixels=pixels,
            max_value=max_value,
            pass_order=pass_order,
            device_memory=device_memory,
            device_cache=device_cache,
            gpu_direct=gpu_direct,
            pinned=pinned,
            stream_priority=stream_priority,
        )
        self._arguments = arguments
        if self._plan is None or not self._plan.processes:
            for name, value in {"worker_init_fn": init, "multiprocessing_context": multiprocessing_context}.items():
                if value is not None:
                    raise ParameterError(f"{name} is not supported: {_REPLACED[name]}")
        if self._plan is not None and batch_size is None and batch_sampler is None:
            self._plan.work.collate = _One(collate_fn or data.default_convert)
        self._as_torchs(arguments)

    def _as_torchs(self, arguments: dict[str, Any]) -> None:
        """Sets the attributes of torch's loader, and those by which Lightning makes a loader once more: all arguments."""
        own = {"dataset", "num_workers", "sampler", "batch_sampler", "multiprocessing_context", "shuffle"}
        vars(self).update({name: value for name, value in arguments.items() if name not in own})
        batch_size, sampler, batch_sampler = (arguments[name] for name in ("batch_size", "sampler", "batch_sampler"))
        if batch_sampler is not None:
            batch_size = None
        if sampler is None:
            sampler = self._native_sampler(bool(arguments["shuffle"]))
        if batch_size is not None:
            batch_sampler = data.BatchSampler(sampler, batch_size, self.drop_last)
        self.sampler, self.batch_sampler, self.batch_size = sampler, batch_sampler, batch_size
        own_collate = data.default_convert if batch_sampler is None else data.default_collate
        self.collate_fn = arguments["collate_fn"] or own_collate
        self.prefetch_factor = arguments["prefetch_factor"] or (2 if self.num_workers else None)
        self.multiprocessing_context = None
        self._dataset_kind = 0 if self._source.samples is not None else 1
        self._IterableDataset_len_called = None
        self._iterator = None
        # From here on torch's loader refuses to set what could not change any more.
        self._DataLoader__initialized = True

    @property
    def _shuffles(self) -> bool:
        return bool(self._given_to_native["settings"]["shuffle"] == "true")

    @property
    def _is_plain(self) -> bool:
        """Whether it is a data set, in an order of torch's kinds."""
        return self._source.samples is not None and (
            self._listing is not None or self._given_to_native["sampler"] is None
        )

    def _with(self, batch_sampler: Any) -> DataLoader[B]:
        """This loader with other batches of indices."""
        own = {"batch_size": 1, "shuffle": None, "sampler": None, "drop_last": False, "dataset": self.dataset}
        return type(self)(**self._arguments | own | {"batch_sampler": batch_sampler})

    def _native_sampler(self, shuffle: bool) -> Any:
        """What `sampler` is where none was passed."""
        if self._listing is not None:
            return data.SequentialSampler(self.dataset) if self._listing.batches else self._listing.sampler
        if self._source.samples is None:
            return _Stream(self)
        if self._partition is not None:
            return _Part(self, shuffle)
        if self._source.samples == 0 or self._one().samples != self._source.samples:
            return _Samples(self)
        return _Shuffled(self) if shuffle else data.SequentialSampler(self.dataset)

    def _shuffling(self) -> tuple[Any, Any] | None:
        return data.RandomSampler(self.dataset, generator=self.generator), None

    def _draw(self, number: int) -> int:
        # As torch's iterators do; workers that persist are seeded once.
        last = self._draws.get(self._begun)
        persist = self.persistent_workers and self.num_workers and last is not None
        base = _scrambled(last or 0) if persist else _drawn(self.generator)
        said = self._told if self._sampler_epoch is None else self._sampler_epoch
        # With the same seed after a resume, a later epoch has its own draws.
        return (base + _scrambled(said)) % _DRAWS if said else base

    def _begins(self, number: int, drawn: int) -> None:
        if not self._seeded:
            # Those of the last epochs are enough to ask for their recipes.
            self._draws = {**dict(list(self._draws.items())[-15:]), number: drawn}

    @contextmanager
    def _drawing_alike(self, number: int) -> Iterator[None]:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(_scrambled(number + _scrambled(self._arguments["seed"] or 0)))
            yield

    def _random(self) -> dict[str, Any]:
        own: dict[str, Any] = {}
        if self.generator is not None:
            own["generator"] = _text(self.generator.get_state())
        of_sampler = None if self._listing is None else self._listing.generator
        if of_sampler is not None and of_sampler is not self.generator:
            own["sampler_generator"] = _text(of_sampler.get_state())
        if not self._seeded or self._listing is not None:
            group = self._group()
            own |= {"random": _text(torch.get_rng_state()), "random_of": None if group is None else list(group)}
        return own

    def _restore(self, state: Mapping[str, Any]) -> None:
        group = self._group()
        # Ranks that draw alike would be as one.
        if "random" in state and state.get("random_of") == (None if group is None else list(group)):
            torch.set_rng_state(_bytes(state["random"]))
        if "generator" in state and self.generator is not None:
            self.generator.set_state(_bytes(state["generator"]))
        of_sampler = None if self._listing is None else self._listing.generator
        if "sampler_generator" in state and of_sampler is not None:
            of_sampler.set_state(_bytes(state["sampler_generator"]))

    def recipe(self, index: int, epoch: int = 0, repetition: int = 0) -> list[dict[str, Any]]:
        """The explicit operations that a sample goes through in an epoch, EXIF orientation included. Without `seed` the
        epoch must have begun: then its draws are known."""
        if self._seeded:
            return super().recipe(index, epoch, repetition)
        if epoch not in self._draws and super().recipe(index, 0) != super().recipe(index, 1):
            raise ParameterError(
                f"epoch {epoch} has not begun: torch's generator decides its draws when it does. With seed= they are known"
            )
        return super().recipe(index, self._draws.get(epoch, 0), repetition)

    def _group(self) -> tuple[int, int] | None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return None

    def _memory(self) -> Callable[[int], tuple[int, object]] | None:
        # The native batch goes to consumers that know nothing of torch's memory.
        return self._pinned if self._pins and self._output != "batch" and self._plan is None else None

    def _begin(self, iteration: Iteration[B]) -> AnyEpoch:
        if self._pins:
            self._pinned.choose_device()
        return super()._begin(iteration)

    def _tensor(self, tensor: _warpfeed.Tensor) -> torch.Tensor:
        shape, dtype = tensor.shape, getattr(torch, tensor.dtype)
        memory = tensor.owner() if self._pins else None
        own = from_dlpack(tensor) if memory is None else _view(memory, shape, dtype)
        if memory is None and self._pins and own.device.type == "cpu":
            own = _view(self._pinned(own.nbytes)[1], shape, dtype).copy_(own)
        return own.permute(0, 3, 1, 2) if self._channels_last and own.dim() == 4 else own

    def _joined(self, images: list[torch.Tensor]) -> torch.Tensor:
        joined = torch.cat(images)
        if not self._pins or joined.device.type != "cpu":
            return joined
        return _view(self._pinned(joined.nbytes)[1], joined.shape, joined.dtype).copy_(joined)

    def _deliver(self, batch: _warpfeed.Batch) -> Any:
        if self._output == "batch":
            return batch
        images = self._images(batch, self._tensor, self._joined)
        labels = self._targets(batch)
        if self._patch is not None:
            images = _patches(images, self._patch, batch.seq_len)
        if self._auto_collation is False:
            images, labels = _single(images), _single(labels)
            labels = labels.item() if isinstance(labels, torch.Tensor) and labels.dim() == 0 else labels
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
        if self._patch is not None:
            values |= {name: partial(images.__getitem__, name) for name in _PATCHES}
        return {name: values[what]() for name, what in self._output.items() if what != "labels" or labels is not None}

    # What Python's steps get, and what becomes of what they give.

    join = staticmethod(join)
    _has_processes = True

    def _gives_native(self) -> bool:
        return self._output == "batch"

    def _rows_of(self, given: Mapping[str, Any]) -> str | None:
        found = super()._rows_of(given)
        names = ("transform", "preset", "targets", "fields", "columns")
        # torch's loader gives the rows of a data set with_format("torch") as dicts.
        is_plain = self._output == "tuple" and all(given[name] is None for name in names)
        return "" if found is None and is_plain else found

    def array(self, tensor: _warpfeed.Tensor) -> Any:
        return from_dlpack(tensor)

    def many(self, numbers: list[Any]) -> Any:
        return torch.tensor(numbers)

    def images_of(self, batch: _warpfeed.Batch) -> Any:
        images = super().images_of(batch)
        # Only of batches that a batch sampler makes unequal, with nothing in Python besides.
        if self._given_to_native["settings"]["layout"] != "nhwc" or self._plan is None or self._plan.is_last:
            return images
        return [one.permute(2, 0, 1) for one in images]

    def targets_of(self, batch: _warpfeed.Batch) -> Any:
        if self._fields or batch.targets is not None:
            return self._targets(batch)
        # Labels are numbers, as torchvision's data sets have them.
        return None if batch.labels is None else self.numbers(batch.labels)

    def _deliver_made(self, made: _python.Made) -> Any:
        value = made.value
        if self._pins:
            # torch's loader pins objects with a method pin_memory too.
            value = pin_memory(value)
        if self._device != "cpu":
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
        device: Any = self._device
        return value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value

    def _targets(self, batch: _warpfeed.Batch) -> Any:
        if self._fields:
            return self._field_dicts(batch)
        if batch.targets is None:
            return None if batch.labels is None else self._tensor(batch.labels)
        if isinstance(batch.targets, list):
            return batch.targets
        targets = self._tensor(batch.targets)
        return targets[:, 0].to(torch.int64) if targets.dtype == torch.uint32 else targets

    @property
    def _is_accelerate_prepared(self) -> bool:
        # accelerate asks for it before it makes a loader of torch's own out of this one's attributes.
        raise UnsupportedError(
            "accelerator.prepare would read the data set by torch's loader: use warpfeed.accelerate.prepare(accelerator, ...), "
            "which also takes models and optimizers"
        )


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


def _patches(images: Sequence[torch.Tensor], side: int, seq_len: int | None) -> dict[str, torch.Tensor]:
    """Images `[C, H, W]` as timm's NaFlex models and SigLIP2's take them: patches `[N, seq_len, side * side * C]`, their
    rows and columns, whether there is a patch, and numbers of rows and columns."""
    length = seq_len or 0
    channels = images[0].shape[0]
    patches = images[0].new_zeros((len(images), length, side * side * channels))
    coord = torch.zeros((len(images), length, 2), dtype=torch.int64)
    valid = torch.zeros((len(images), length), dtype=torch.bool)
    shapes = torch.zeros((len(images), 2), dtype=torch.int64)
    for i, image in enumerate(images):
        rows, columns = image.shape[1] // side, image.shape[2] // side
        if (rows * side, columns * side) != tuple(image.shape[1:]):
            raise ParameterError(
                f"patch: images have {image.shape[2]} x {image.shape[1]} pixels, which are no whole patches of {side}: say the patch "
                "of RandomSequenceCrop or SequenceResize"
            )
        count = rows * columns
        cut = image.reshape(channels, rows, side, columns, side).permute(1, 3, 2, 4, 0)
        patches[i, :count] = cut.reshape(count, -1)
        at = torch.arange(count)
        coord[i, :count] = torch.stack((at // columns, at % columns), 1)
        valid[i, :count] = True
        shapes[i] = torch.tensor([rows, columns])
    mask = valid.to(torch.int32)
    names = {"patches": patches, "patch_coord": coord, "patch_valid": valid}
    return names | {"pixel_attention_mask": mask, "spatial_shapes": shapes}


def _view(memory: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """The elements at the beginning of the memory."""
    return memory[: math.prod(shape) * dtype.itemsize].view(dtype).view(*shape)


_DRAWS = 1 << 63


def _drawn(generator: torch.Generator | None) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _scrambled(value: int) -> int:
    """Another number for each number, as splitmix64 makes them."""
    value = (value + 1) * 0x9E3779B97F4A7C15 % (1 << 64)
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
    value = (value ^ value >> 27) * 0x94D049BB133111EB % (1 << 64)
    return (value ^ value >> 31) % _DRAWS


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(bytes(state.numpy())).decode()


def _bytes(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


class _One:
    """Collates the only sample of a batch."""

    def __init__(self, of: Callable[[Any], Any]) -> None:
        self._of = of

    def __call__(self, samples: list[Any]) -> Any:
        return self._of(samples[0])


def _single(value: Any) -> Any:
    """The first and only one of a batch, or of each view of it."""
    if isinstance(value, list) and value and isinstance(value[0], torch.Tensor) and value[0].dim() == 4:
        return value[0][0] if len(value) == 1 else [view[0] for view in value]
    return None if value is None else value[0]


def _collate(given: Any, is_single: bool) -> Any:
    """What collates samples in Python; None if torch's own function does, for which the native pipeline stands."""
    own, name = data._utils.collate, "default_convert" if is_single else "default_collate"
    given = getattr(own, name) if given is None else given
    if not is_function(given, own.__name__, name):
        return given
    table = own.default_collate_fn_map
    parts = {torch.Tensor: "collate_tensor_fn", int: "collate_int_fn", float: "collate_float_fn", str: "collate_str_fn"}
    is_own = all(is_function(table.get(kind), own.__name__, part) for kind, part in parts.items())
    return None if is_single or is_own else given


def _size(batch_size: int | None, batch_sampler: Any) -> int:
    """The batch size of the native pipeline, which a batch sampler's batches correct."""
    size = batch_size if batch_sampler is None else getattr(batch_sampler, "batch_size", None)
    return size if isinstance(size, int) and size else 1


def _check_as_torch(
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    num_workers: int | None,
    drop_last: bool,
    timeout: float,
    prefetch_factor: int | None,
) -> None:
    """Refuses what torch's loader refuses."""
    if sampler is not None and shuffle:
        raise ParameterError("sampler and shuffle=True exclude each other: the sampler makes the order")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ParameterError("batch_sampler makes the batches: leave out batch_size, shuffle, sampler and drop_last")
    if batch_size is None and batch_sampler is None and drop_last:
        raise ParameterError("drop_last=True needs batches, and batch_size=None gives single samples")
    at_least(1, batch_size=batch_size, prefetch_factor=prefetch_factor)
    at_least(0, num_workers=num_workers, timeout=timeout)
    if num_workers == 0 and prefetch_factor is not None:
        raise ParameterError("prefetch_factor needs threads, and num_workers=0 has none: leave it out")
    if num_workers == 0 and timeout:
        raise ParameterError("timeout needs threads, and num_workers=0 has none: leave it out")


class _Samples(data.Sampler[int]):
    """What is under `loader.sampler` where warpfeed makes the order by itself."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch."""
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        loader = self._loader()
        return 0 if loader is None else loader._one().samples or 0

    def __iter__(self) -> Iterator[int]:
        raise UnsupportedError(
            'warpfeed makes this order when an epoch begins: the indices of batches are in output="batch", or pass a sampler'
        )


class _Stream(data.Sampler[int]):
    """That of a stream, which has no length."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.set_epoch = loader.set_epoch


class _Shuffled(_Samples, data.RandomSampler):
    """That of `shuffle=True` with a seed: trainers ask whether it is torch's RandomSampler."""

    replacement, generator, _num_samples = False, None, None

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self.data_source = loader.dataset


class _Part(_Samples, data.DistributedSampler[int]):
    """That of `distributed`: trainers ask whether it is torch's DistributedSampler."""

    drop_last, epoch = False, 0

    def __init__(self, loader: DataLoader[Any], shuffle: bool) -> None:
        super().__init__(loader)
        self.dataset, self.shuffle, self.seed = loader.dataset, shuffle, loader._arguments["seed"] or 0
        self.rank, self.num_replicas = loader._partition or (0, 1)
        self.num_samples = len(self)
        self.total_size = self.num_samples * self.num_replicas
