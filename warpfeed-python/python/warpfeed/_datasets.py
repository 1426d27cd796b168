"""Data sets of many kinds as sources of the native module."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
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
        _own_reading(dataset, ("torch",))
        whole = find(dataset.dataset)
        return replace(whole, source=whole.source.subset([int(i) for i in dataset.indices]))
    if name == "ConcatDataset" and hasattr(dataset, "datasets"):
        _own_reading(dataset, ("torch",))
        parts = [find(part) for part in dataset.datasets]
        if any(repr(part.transform) != repr(parts[0].transform) for part in parts):
            raise UnsupportedError(
                "the parts of the ConcatDataset have different transforms: give the loader transform="
            )
        return replace(parts[0], source=_warpfeed.Source.concat([part.source for part in parts]))
    return None


def _own_reading(dataset: Any, packages: tuple[str, ...]) -> None:
    """Refuses a data set whose __getitem__ is none of the packages': what it does with a sample would be bypassed."""
    for method in ("__getitem__", "__getitems__"):
        kind = next((kind for kind in type(dataset).__mro__ if method in vars(kind)), None)
        if kind is not None and kind.__module__.split(".")[0] not in packages:
            raise UnsupportedError(
                f"{kind.__qualname__}.{method} makes the samples, and warpfeed would not call it: give a list of (path or "
                "bytes, label), or an object with __len__ and read(i) -> (bytes or path, target)"
            )


def _hugging_face(dataset: Any) -> Found | None:
    """A `datasets.Dataset` with an Image column, read from its Arrow buffers."""
    features, table = getattr(dataset, "features", None), getattr(dataset, "data", None)
    if features is None or table is None or not hasattr(dataset, "_indices"):
        return None
    if getattr(dataset, "_format_type", None) == "custom":
        raise UnsupportedError(
            "with_transform and set_transform are functions of decoded rows, which warpfeed would not call: give the loader "
            "transform=, and the data set without them (reset_format())"
        )
    shown = getattr(dataset, "_format_columns", None)
    features = {name: feature for name, feature in features.items() if shown is None or name in shown}
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    if len(images) != 1:
        raise TypeError(
            f"the data set must have one Image column, and has {len(images)}, among {', '.join(features)}: select columns first"
        )
    if getattr(features[images[0]], "mode", None) not in (None, "RGB"):
        raise UnsupportedError(
            f"the column {images[0]} converts images to {features[images[0]].mode}: warpfeed makes RGB, or gray with channels=1"
        )
    column = table.column(images[0])
    labels, classes = _hugging_face_labels(features, table)
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


# As in Rust's `label::is_like`.
_LIKE = {"label", "labels", "class", "classes", "cls", "target", "targets", "category", "categories"}


def _sounds_like_labels(name: str) -> bool:
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
    return any(word.lower() in _LIKE for word in words)


def _hugging_face_labels(features: Mapping[str, Any], table: Any) -> tuple[list[int] | None, list[str]]:
    """The labels of all rows, and the names of the classes: of the column `label` or `labels`, or of the only ClassLabel. None
    if no column sounds like one of labels."""
    of_class = [name for name, feature in features.items() if type(feature).__name__ == "ClassLabel"]
    usual = [name for name in ("label", "labels") if name in features]
    if not usual and len(of_class) != 1:
        like = [name for name in features if name in of_class or _sounds_like_labels(name)]
        if like:
            raise UnsupportedError(
                f"no column is called label, and {', '.join(like)} may have the labels: rename_column({like[0]!r}, 'label') says "
                "which, remove_columns that there are none"
            )
        return None, []
    name = usual[0] if usual else of_class[0]
    feature, column = features[name], table.column(name)
    rows = column.to_pylist()
    if type(feature).__name__ == "ClassLabel":
        classes = list(feature.names or [])
    elif getattr(feature, "dtype", None) in ("string", "large_string"):
        if any(row is None for row in rows):
            raise UnsupportedError(f"row {rows.index(None)} of the column {name} has no label: filter such rows out")
        classes = sorted(set(rows))
        numbers = {row: label for label, row in enumerate(classes)}
        return [numbers[row] for row in rows], classes
    elif re.fullmatch(r"u?int\d+|bool", str(getattr(feature, "dtype", None))):
        classes = []
    else:
        raise UnsupportedError(
            f"the column {name} is {feature}, and labels are whole numbers, truth values or texts, one a row: rename the column "
            "of labels to label, or this one to another name"
        )
    return _or_none(rows, f"the column {name}"), classes


def _or_none(labels: Sequence[Any], place: str) -> list[int] | None:
    """Labels, or None if all are None or -1, which stands for none."""
    absent = [i for i, label in enumerate(labels) if label is None or label == -1]
    if absent and len(absent) == len(labels):
        return None
    if absent:
        raise UnsupportedError(
            f"row {absent[0]} of {place} has {labels[absent[0]]}, which is no label, and others have labels: leave such rows out"
        )
    wrong = next((label for label in labels if not 0 <= int(label) < 1 << 32), None)
    if wrong is not None:
        raise UnsupportedError(f"{place} has {wrong}, and labels are whole numbers of 0 to 4294967295")
    return [int(label) for label in labels]


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
    samples = getattr(dataset, "samples", None) or getattr(dataset, "_samples", None)
    files = getattr(dataset, "_image_files", None) or getattr(dataset, "_images", None)
    known = samples is not None or files is not None and hasattr(dataset, "_labels")
    if not known and not hasattr(getattr(dataset, "data", None), "shape"):
        return None
    _own_reading(dataset, ("torchvision",))
    if hasattr(dataset, "video_clips"):
        raise UnsupportedError("videos cannot be read: warpfeed reads images")
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
        labels = _mapped(_or_none(_labels(targets, len(array)), "the targets"), to_target)
        return Found(
            _warpfeed.Source.pixels(array, labels, classes if to_target is None else []), transform, True, channels
        )
    if samples is None and files is not None:
        samples = list(zip(files, _of_type(dataset), strict=True))
    if samples is None:
        return None
    loader = getattr(dataset, "loader", None)
    if loader is not None and not getattr(loader, "__module__", "").startswith("torchvision."):
        raise UnsupportedError(
            f"the loader {getattr(loader, '__name__', loader)} of the data set cannot be used: warpfeed decodes"
        )
    if not all(isinstance(path, (str, os.PathLike)) for path, *_ in samples):
        raise UnsupportedError(f"{type(dataset).__name__} holds images that are no files: give an object with read(i)")
    paths = [os.fspath(path) for path, *_ in samples]
    labels = _mapped(_or_none(_labels([label for _, label in samples], len(paths)), "the samples"), to_target)
    source = _warpfeed.Source.files(paths, labels, classes if to_target is None else [])
    return Found(source, transform, ignores_exif=True)


def _of_type(dataset: Any) -> Any:
    """The labels of the target type that the data set was made with."""
    types = getattr(dataset, "_target_types", None) or getattr(dataset, "target_type", None)
    types = [types] if isinstance(types, str) else list(types or [])
    if types in ([], ["category"]):
        return dataset._labels
    if types == ["binary-category"] and hasattr(dataset, "_bin_labels"):
        return dataset._bin_labels
    raise UnsupportedError(
        f"target_types {', '.join(map(str, types))} of {type(dataset).__name__} cannot be read: category alone, or an object with "
        "read(i) and targets="
    )


def _pairs(dataset: Any) -> Found | None:
    """A list of (path or bytes, label)."""
    if not isinstance(dataset, Sequence):
        return None
    if not dataset:
        raise ParameterError("the list of samples is empty")
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in dataset):
        raise TypeError("a list of samples must have pairs of a path, or the bytes of an encoded image, and a label")
    images, labels = [pair[0] for pair in dataset], [pair[1] for pair in dataset]
    if not all(label is None or label == -1 for label in labels) and not all(_is_label(label) for label in labels):
        return Found(_warpfeed.Source.objects(_Pairs(dataset), None, []), target="target")
    own = _or_none(labels, "the list")
    if all(isinstance(image, (str, os.PathLike)) for image in images):
        return Found(_warpfeed.Source.files([os.fspath(image) for image in images], own, []))
    if all(isinstance(image, (bytes, bytearray, memoryview)) for image in images):
        return Found(_warpfeed.Source.memory([bytes(image) for image in images], own, []))
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
    if not all(label == -1 or _is_label(label) for label in labels):
        raise UnsupportedError("targets of the data set are no labels: give an object with read(i), and targets=")
    return [int(label) for label in labels]


def _mapped(labels: list[int] | None, of: Callable[[int], Any] | None) -> list[int] | None:
    if of is None or labels is None:
        return labels
    each = {label: of(label) for label in set(labels)}
    if not all(_is_label(label) for label in each.values()):
        raise UnsupportedError("target_transform does not give labels: give an object with read(i), and targets=")
    if any(of(label) != each[label] for label in each):
        raise UnsupportedError(
            "target_transform gives other labels when it is called again: give an object with read(i)"
        )
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
