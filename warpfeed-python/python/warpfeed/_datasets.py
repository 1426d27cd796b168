"""Data sets of many kinds as sources of the native module."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import _warpfeed
from ._errors import ParameterError, UnsupportedError


@dataclass
class Found:
    """A source, and what a data set of torchvision's or Hugging Face's has beside it."""

    source: _warpfeed.Source
    transform: Any = None
    """Its transform, of torchvision's kind."""
    ignores_exif: bool = False
    """Whether it opens images as they are stored."""
    channels: int = 3
    target: str | None = None
    """The field with targets that are no labels."""


def open_source(path: str | os.PathLike[str], **options: Any) -> _warpfeed.Source:
    """Opens a folder of class folders, a list, shards, Parquet files, or a URL. `options` are those of `warpfeed.open`."""
    given = {name: value for name, value in options.items() if value is not None}
    return _warpfeed.Source.open(os.fspath(path), json.dumps(given, default=os.fspath))


def find(dataset: Any) -> Found:
    """Recognizes a data set. Raises TypeError, which says what can be given."""
    if isinstance(dataset, _warpfeed.Source):
        return Found(dataset)
    if isinstance(dataset, (str, os.PathLike)):
        return Found(open_source(dataset))
    for kind in (_torch_part, _hugging_face, _reader, _torchvision, _pairs):
        found = kind(dataset)
        if found is not None:
            return found
    name = type(dataset).__name__
    if hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"{name} gives decoded samples, and warpfeed decodes by itself: give a folder, a list of (path, label), or an "
            f"object with __len__ and read(i) -> (bytes or path, target)"
        )
    raise TypeError(
        f"{name} is no data set that warpfeed knows: give a path, a list of (path or bytes, label), one of torchvision's or "
        "Hugging Face's, or an object with __len__ and read(i) -> (bytes or path, target)"
    )


def _torch_part(dataset: Any) -> Found | None:
    """torch's Subset and ConcatDataset."""
    name = type(dataset).__name__
    if name == "Subset" and hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        whole = find(dataset.dataset)
        return replace(whole, source=whole.source.subset([int(i) for i in dataset.indices]))
    if name == "ConcatDataset" and hasattr(dataset, "datasets"):
        parts = [find(part) for part in dataset.datasets]
        if any(repr(part.transform) != repr(parts[0].transform) for part in parts):
            raise UnsupportedError(
                "the parts of the ConcatDataset have different transforms: give the loader transform="
            )
        return replace(parts[0], source=_warpfeed.Source.concat([part.source for part in parts]))
    return None


def _hugging_face(dataset: Any) -> Found | None:
    """A `datasets.Dataset` with an Image column, read from its Arrow buffers."""
    features, table = getattr(dataset, "features", None), getattr(dataset, "data", None)
    if features is None or table is None or not hasattr(dataset, "_indices"):
        return None
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    if len(images) != 1:
        raise TypeError(f"the data set must have one Image column, and has {len(images)}: select columns first")
    labels_of = [name for name, feature in features.items() if type(feature).__name__ == "ClassLabel"]
    column = table.column(images[0])
    rows = column.length()
    classes = list(features[labels_of[0]].names) if len(labels_of) == 1 else []
    labels = [0] * rows
    if len(labels_of) == 1:
        labels = [int(label) for label in table.column(labels_of[0]).to_pylist()]
    chunks, paths = [], []
    for chunk in column.chunks:
        encoded = chunk.field("bytes")
        if encoded.null_count or chunk.null_count:
            paths += [item and item["path"] for item in chunk.to_pylist()]
            continue
        _, offsets, values = encoded.buffers()
        large = str(encoded.type) == "large_binary"
        chunks.append((offsets, large, values if values is not None else b"", encoded.offset, len(encoded)))
    if paths and (chunks or not all(paths)):
        raise TypeError(f"some images of the column {images[0]} are neither bytes nor paths")
    if paths:
        source = _warpfeed.Source.files(paths, labels, classes)
    else:
        name = getattr(dataset, "builder_name", None) or images[0]
        source = _warpfeed.Source.arrow(chunks, labels, classes, str(name))
    if dataset._indices is not None:
        source = source.subset(dataset._indices.column(0).to_pylist())
    return Found(source)


def _reader(dataset: Any) -> Found | None:
    """Any object with `__len__` and `read(i)`."""
    if not callable(getattr(dataset, "read", None)) or not hasattr(dataset, "__len__"):
        return None
    targets = getattr(dataset, "targets", None)
    labels = None if targets is None else _labels(targets, len(dataset))
    source = _warpfeed.Source.objects(dataset, labels, [str(name) for name in getattr(dataset, "classes", None) or []])
    return Found(source, transform=getattr(dataset, "transform", None), target="target")


def _torchvision(dataset: Any) -> Found | None:
    """Data sets of torchvision's classes of images, and others that keep files and labels under the same names."""
    classes = getattr(dataset, "classes", None)
    classes = [str(name) for name in classes] if isinstance(classes, (list, tuple)) else []
    transform, to_target = getattr(dataset, "transform", None), getattr(dataset, "target_transform", None)
    data, targets = getattr(dataset, "data", None), getattr(dataset, "targets", None)
    if targets is None:
        targets = getattr(dataset, "labels", None)
    if getattr(dataset, "transforms", None) is not None and transform is None and to_target is None:
        raise UnsupportedError(
            "transforms of image and target together cannot be converted: give the loader transform="
        )
    if data is not None and targets is not None and hasattr(data, "shape"):
        array, channels = _array(data)
        labels = _mapped(_labels(targets, len(array)), to_target)
        return Found(
            _warpfeed.Source.pixels(array, labels, classes if to_target is None else []), transform, True, channels
        )
    samples = getattr(dataset, "samples", None) or getattr(dataset, "_samples", None)
    if samples is None:
        files = getattr(dataset, "_image_files", None) or getattr(dataset, "_images", None)
        labels_of = getattr(dataset, "_labels", None)
        samples = list(zip(files, labels_of, strict=True)) if files is not None and labels_of is not None else None
    if samples is None:
        return None
    loader = getattr(dataset, "loader", None)
    if loader is not None and getattr(loader, "__name__", "") not in (
        "default_loader",
        "pil_loader",
        "accimage_loader",
    ):
        raise UnsupportedError(
            f"the loader {getattr(loader, '__name__', loader)} of the data set cannot be used: warpfeed decodes"
        )
    paths = [os.fspath(path) for path, _ in samples]
    labels = _mapped([int(label) for _, label in samples], to_target)
    source = _warpfeed.Source.files(paths, labels, classes if to_target is None else [])
    return Found(source, transform, ignores_exif=True)


def _pairs(dataset: Any) -> Found | None:
    """A list of (path or bytes, label)."""
    if not isinstance(dataset, Sequence):
        return None
    if not dataset:
        raise ParameterError("the list of samples is empty")
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in dataset):
        raise TypeError("a list of samples must have pairs of a path, or the bytes of an encoded image, and a label")
    images, labels = [pair[0] for pair in dataset], [pair[1] for pair in dataset]
    if not all(_is_label(label) for label in labels):
        return Found(_warpfeed.Source.objects(_Pairs(dataset), None, []), target="target")
    labels = [int(label) for label in labels]
    if all(isinstance(image, (str, os.PathLike)) for image in images):
        return Found(_warpfeed.Source.files([os.fspath(image) for image in images], labels, []))
    if all(isinstance(image, (bytes, bytearray, memoryview)) for image in images):
        return Found(_warpfeed.Source.memory([bytes(image) for image in images], labels, []))
    raise TypeError("images of a list must be all paths, or all bytes of encoded images")


class _Pairs:
    """Pairs whose targets are no labels."""

    def __init__(self, pairs: Sequence[Any]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def read(self, i: int) -> tuple[Any, Any]:
        image, target = self._pairs[i]
        return image, target


def _is_label(value: Any) -> bool:
    try:
        return not isinstance(value, float) and int(value) == value and value >= 0
    except (TypeError, ValueError):
        return False


def _labels(targets: Any, samples: int) -> list[int]:
    labels = targets.tolist() if hasattr(targets, "tolist") else list(targets)
    if len(labels) != samples:
        raise ParameterError(f"the data set has {len(labels)} targets for {samples} samples")
    if not all(_is_label(label) for label in labels):
        raise UnsupportedError("targets of the data set are no labels: give an object with read(i), and targets=")
    return [int(label) for label in labels]


def _mapped(labels: list[int], of: Callable[[int], Any] | None) -> list[int]:
    if of is None:
        return labels
    each = {label: of(label) for label in set(labels)}
    if not all(_is_label(label) for label in each.values()):
        raise UnsupportedError("target_transform does not give labels: give an object with read(i), and targets=")
    return [int(each[label]) for label in labels]


def _array(data: Any) -> tuple[Any, int]:
    """Pixels as a contiguous array `[N, H, W, 3]` or `[N, H, W]`, and their channels."""
    import numpy

    array = numpy.asarray(data)
    if array.dtype != numpy.uint8:
        raise TypeError(f"pixels must be uint8, got {array.dtype}")
    if array.ndim == 4 and array.shape[1] == 3 and array.shape[3] != 3:
        array = array.transpose(0, 2, 3, 1)
    return numpy.ascontiguousarray(array), 3 if array.ndim == 4 else 1
