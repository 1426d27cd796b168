"""Data sets of many kinds as sources of the native module."""

from __future__ import annotations

import copy
import io
import json
import operator
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import _warpfeed
from ._errors import ParameterError, UnsupportedError
from ._identity import is_function, is_list, known, replaced


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
    target_of: Callable[[int], Any] | None = None
    """Gives a sample's target by its index, if the source has none for it."""
    target_transform: Callable[[Any], Any] | None = None
    image: str | None = None
    """The images' name, where samples are dicts."""
    dataset: Any = None
    """The data set itself, if Python makes its samples."""
    why: str = ""
    """Why Python makes them."""
    like: Any = None
    """The data set whose samples the converted ones must equal."""


def open_source(path: str | os.PathLike[str], **options: Any) -> _warpfeed.Source:
    """Opens a folder of class folders, a list, shards, Parquet files, or a URL. `options` are those of `warpfeed.open`."""
    given = {name: value for name, value in options.items() if value is not None}
    return _warpfeed.Source.open(os.fspath(path), json.dumps(given, default=os.fspath))


def find(
    dataset: Any, columns: Mapping[str, str] | None = None, has_target: bool = False, rows_of: str | None = None
) -> Found:
    """Recognizes a data set by its class. One that is not known, but has samples by index, is read in Python.

    columns: those of a data set of Hugging Face's, by their names in the batches. has_target: whether the targets' form was
    said. rows_of: what takes the rows of a data set of Hugging Face's as they are, if something does; "" stands for its
    format. Raises TypeError, which says what can be given.
    """
    if columns is not None and known(dataset, "datasets") != "Dataset":
        raise ParameterError(f"columns= is for data sets of Hugging Face's, and {type(dataset).__name__} is none")
    if isinstance(dataset, _warpfeed.Source):
        return Found(dataset)
    if isinstance(dataset, (str, os.PathLike)):
        return Found(open_source(dataset))
    if known(dataset, "datasets") == "Dataset":
        if rows_of or rows_of is not None and dataset.format["type"] not in (None, "custom"):
            return _python(dataset, f"{rows_of or 'its format ' + dataset.format['type']} takes its rows")
        return _hugging_face(dataset, columns)
    if type(dataset) in (list, tuple):
        found = _pairs(dataset, has_target)
        return _python(dataset, "a list of other things than (path or bytes, target)") if found is None else found
    found = _torch_part(dataset, rows_of) or _torchvision(dataset) or _timm(dataset)
    if found is not None:
        function = replaced() if found.dataset is None and found.ignores_exif else None
        return found if function is None else _python(dataset, f"{function} was replaced")
    name = type(dataset).__name__
    if _has_samples(dataset):
        return _python(dataset, f"{type(dataset).__qualname__} is no class that is converted")
    if callable(getattr(dataset, "read", None)) and hasattr(dataset, "__len__"):
        return _reader(dataset)
    if isinstance(dataset, getattr(sys.modules.get("torch.utils.data"), "IterableDataset", ())):
        raise TypeError(
            f"{name} is an IterableDataset: give shards by their path, or samples by index with __getitem__"
        )
    raise TypeError(
        f"{name} is no data set that warpfeed knows: give a path, a list of (path or bytes, label), one of torchvision's or "
        "Hugging Face's, or an object with __len__ and __getitem__, or with __len__ and read(i) -> (bytes or path, target)"
    )


def _has_samples(dataset: Any) -> bool:
    """Whether it has `__len__` and a `__getitem__` of its own: torch's base class has one that only raises an error."""
    get = getattr(type(dataset), "__getitem__", None) or getattr(type(dataset), "__getitems__", None)
    base = getattr(sys.modules.get("torch.utils.data"), "Dataset", None)
    if get is None or not hasattr(type(dataset), "__len__"):
        return False
    # A set of splits has items too, by name.
    return get is not getattr(base, "__getitem__", None) and not isinstance(dataset, Mapping)


def _python(dataset: Any, why: str) -> Found:
    kind = type(dataset)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return Found(_warpfeed.Source.positions(len(dataset), name), dataset=dataset, why=why)


def _torch_part(dataset: Any, rows_of: str | None) -> Found | None:
    """torch's Subset and ConcatDataset."""
    name = known(dataset, "torch.utils.data")
    if name == "Subset":
        whole = find(dataset.dataset, rows_of=rows_of)
        if whole.dataset is not None:
            return _python(dataset, whole.why)
        if not is_list(dataset.indices):
            return _python(dataset, f"its indices are a {type(dataset.indices).__name__}")
        samples = whole.source.samples or 0
        indices = [int(i) + samples if int(i) < 0 else int(i) for i in dataset.indices]
        target_of = None if whole.target_of is None else _Through(whole.target_of, indices)
        return replace(whole, source=whole.source.subset(indices), target_of=target_of, like=whole.like and dataset)
    if name == "ConcatDataset":
        parts = [find(part, rows_of=rows_of) for part in dataset.datasets]
        why = next((part.why for part in parts if part.dataset is not None), "")
        first = parts[0]
        why = why or ("" if is_list(dataset.datasets) else f"its parts are a {type(dataset.datasets).__name__}")
        if why:
            return _python(dataset, why)
        if any(part.target_of is not None for part in parts) or not all(_alike(first, part) for part in parts):
            return _python(dataset, "the parts of the ConcatDataset have different transforms or targets")
        like = dataset if all(part.like is not None for part in parts) else None
        return replace(first, source=_warpfeed.Source.concat([part.source for part in parts]), like=like)
    return None


def _alike(one: Found, other: Found) -> bool:
    """Whether all is the same but for the samples."""
    if one.transform is not other.transform:
        both = [_torchvision_of(part.transform) for part in (one, other)]
        if None in both or both[0] != both[1]:
            return False
    mine, theirs = ((part.ignores_exif, part.channels, part.target, part.target_transform) for part in (one, other))
    return mine == theirs


def _torchvision_of(transform: Any) -> Any:
    """What a transform is converted to; None if it is not."""
    from . import _torchvision

    if transform is None:
        return None
    converted = _torchvision.convert(transform)
    return None if converted.rest else (converted.steps, converted.dtype)


@dataclass
class _Through:
    """Targets of a part's samples."""

    of: Callable[[int], Any]
    indices: list[int]

    def __call__(self, index: int) -> Any:
        return self.of(self.indices[index])


@dataclass
class _Columns:
    """Columns of a data set of Hugging Face's, without its images."""

    rows: Any
    names: dict[str, str]
    numbers: dict[str, list[Any]] = field(default_factory=dict)
    """Columns of numbers, which take long to read one by one."""

    def __post_init__(self) -> None:
        for column in set(self.names.values()) if self.rows is not None else ():
            kind = str(getattr(self.rows.features[column], "dtype", None))
            if re.fullmatch(r"u?int\d+|float\d+|bool", kind) and self.rows.format["type"] is None:
                self.numbers[column] = list(self.rows[column])

    def __call__(self, index: int) -> dict[str, Any]:
        rest = set(self.names.values()) - set(self.numbers)
        row = self.rows[index] if rest else {}
        row = row | {column: numbers[index] for column, numbers in self.numbers.items()}
        return {name: row[column] for name, column in self.names.items()}


@dataclass
class Rows:
    """Columns with several images of a data set of Hugging Face's. Each image goes through the transform."""

    rows: Any
    names: dict[str, str]
    transform: Any = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[index]
        return {name: self._made(row[column]) for name, column in self.names.items()}

    def _made(self, value: Any) -> Any:
        if not hasattr(value, "convert") or self.transform is None:
            return value
        return self.transform(value.convert("RGB"))


def _hugging_face(dataset: Any, columns: Mapping[str, str] | None) -> Found:
    """A `datasets.Dataset` with an Image column, read from its Arrow buffers."""
    features, table = dataset.features, dataset.data
    if getattr(dataset, "_format_type", None) == "custom":
        if columns is not None:
            raise ParameterError(
                "columns= cannot be given for a data set with with_transform, whose function names its own"
            )
        return _python(dataset, "with_transform and set_transform are functions of decoded rows")
    shown = getattr(dataset, "_format_columns", None)
    features = {name: feature for name, feature in features.items() if shown is None or name in shown}
    wanted = None if columns is None else dict(columns)
    for column in (wanted or {}).values():
        if column not in features:
            raise ParameterError(f"columns: there is no column {column}, but {', '.join(features)}")
    images = [name for name, feature in features.items() if known(feature, "datasets") == "Image"]
    if wanted is not None:
        images = [column for column in wanted.values() if column in images]
    elif not images:
        return _python(dataset, "the data set has no Image column")
    if wanted is not None and len(images) > 1:
        return _python(Rows(dataset, wanted), "it has several images a sample")
    if len(images) != 1:
        raise TypeError(
            f"the data set must have one Image column, and has {len(images)}, among {', '.join(features)}: choose by columns="
            '{"pixel_values": "image", "labels": "label"}, or give with_transform a function that makes one tensor of several'
        )
    if getattr(features[images[0]], "mode", None) not in (None, "RGB"):
        raise UnsupportedError(
            f"the column {images[0]} converts images to {features[images[0]].mode}: warpfeed makes RGB, or gray with channels=1"
        )
    column = table.column(images[0])
    labels, classes = (None, []) if wanted is not None else _hugging_face_labels(features, table)
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
    if wanted is None:
        return Found(source)
    image = next(name for name, column in wanted.items() if column == images[0])
    others = {name: column for name, column in wanted.items() if name != image}
    rows = dataset.select_columns(list(dict.fromkeys(others.values()))) if others else None
    return Found(source, target_of=_Columns(rows, others), image=image)


# As in Rust's `label::is_like`.
_LIKE = {"label", "labels", "class", "classes", "cls", "target", "targets", "category", "categories"}


def _sounds_like_labels(name: str) -> bool:
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
    return any(word.lower() in _LIKE for word in words)


def _hugging_face_labels(features: Mapping[str, Any], table: Any) -> tuple[list[int] | None, list[str]]:
    """The labels of all rows, and the names of the classes: of the column `label` or `labels`, or of the only ClassLabel. None
    if no column sounds like one of labels."""
    of_class = [name for name, feature in features.items() if known(feature, "datasets") == "ClassLabel"]
    usual = [name for name in ("label", "labels") if name in features]
    if not usual and len(of_class) != 1:
        like = [name for name in features if name in of_class or _sounds_like_labels(name)]
        if like:
            raise UnsupportedError(
                f"no column is called label, and {', '.join(like)} may have the labels: columns={{'images': ..., 'labels': "
                f"{like[0]!r}}} or rename_column({like[0]!r}, 'label') says which, remove_columns that there are none"
            )
        return None, []
    name = usual[0] if usual else of_class[0]
    feature, column = features[name], table.column(name)
    rows = column.to_pylist()
    if known(feature, "datasets") == "ClassLabel":
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


def _reader(dataset: Any) -> Found:
    """Any object with `__len__` and `read(i)`."""
    targets = getattr(dataset, "targets", None)
    labels = None if targets is None else _labels(targets, len(dataset))
    source = _warpfeed.Source.objects(dataset, labels, [str(name) for name in getattr(dataset, "classes", None) or []])
    return Found(source, transform=getattr(dataset, "transform", None), target="target")


# Classes of torchvision.datasets (0.29) that are converted, and the attributes with their files, labels or arrays.
_FILES = {
    "ImageFolder": "samples", "DatasetFolder": "samples", "ImageNet": "samples", "EuroSAT": "samples", "Country211": "samples",
    "Imagenette": "_samples", "GTSRB": "_samples", "StanfordCars": "_samples", "RenderedSST2": "_samples",
    "DTD": "_image_files", "FGVCAircraft": "_image_files", "Flowers102": "_image_files", "Food101": "_image_files",
    "SUN397": "_image_files", "OxfordIIITPet": "_images",
}  # fmt: skip
_ARRAYS = {
    "CIFAR10": "targets", "CIFAR100": "targets", "MNIST": "targets", "FashionMNIST": "targets", "KMNIST": "targets",
    "EMNIST": "targets", "USPS": "targets", "SVHN": "labels", "STL10": "labels", "SEMEION": "labels",
}  # fmt: skip
_NATIVE = {"", ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".ppm", ".pgm", ".pnm"}


def _torchvision(dataset: Any) -> Found | None:
    """Data sets of torchvision's with files or arrays. Others, and what theirs do beyond that, run in Python."""
    kind = known(dataset, "torchvision.datasets")
    if kind not in _FILES and kind not in _ARRAYS:
        return None
    transform, to_target = dataset.transform, dataset.target_transform
    if kind == "OxfordIIITPet" and not _is_standard(dataset.transforms, transform, to_target):
        return _python(dataset, "its transforms take image and target together")
    classes = getattr(dataset, "classes", None)
    classes = [str(name) for name in classes] if isinstance(classes, (list, tuple)) and to_target is None else []
    if kind in _ARRAYS:
        array, channels = _array(dataset.data)
        targets = getattr(dataset, _ARRAYS[kind])
        own = None if kind not in ("CIFAR10", "CIFAR100") or _are_numbers(targets) else targets.__getitem__
        labels = None if own is not None else _or_none(_labels(targets, len(array)), "the targets")
        source = _warpfeed.Source.pixels(array, labels, classes)
        return Found(source, transform, True, channels, target_of=own, target_transform=to_target, like=dataset)
    loader = getattr(dataset, "loader", None)
    if loader is not None and not _is_pillows(loader):
        return _python(dataset, f"it opens images by {getattr(loader, '__name__', loader)}")
    samples = getattr(dataset, _FILES[kind])
    if not is_list(samples) or not is_list(getattr(dataset, "_labels", [])):
        return _python(dataset, f"its samples are a {type(samples).__name__}")
    if kind == "OxfordIIITPet":
        types = list(dataset._target_types)
        if types not in (["category"], ["binary-category"]):
            return _python(dataset, f"its targets are {', '.join(types) or 'none'}")
        samples = list(zip(samples, dataset._labels if types == ["category"] else dataset._bin_labels, strict=True))
    elif _FILES[kind] == "_image_files":
        samples = list(zip(samples, dataset._labels, strict=True))
    if not all(isinstance(path, (str, os.PathLike)) for path, *_ in samples):
        return _python(dataset, "it holds images that are no files")
    targets = [label for _, label in samples]
    own = None if _are_numbers(targets) else targets.__getitem__
    labels = None if own is not None else _or_none(_labels(targets, len(samples)), "the samples")
    source = _files([os.fspath(path) for path, *_ in samples], labels, classes)
    return Found(source, transform, ignores_exif=True, target_of=own, target_transform=to_target, like=dataset)


def with_transform(dataset: Any, transform: Any) -> Any:
    """A copy of a converted data set, with another transform and no other functions."""
    own = copy.copy(dataset)
    kind = known(dataset, "torch.utils.data")
    if kind == "Subset":
        own.dataset = with_transform(dataset.dataset, transform)
    elif kind == "ConcatDataset":
        own.datasets = [with_transform(part, transform) for part in dataset.datasets]
    else:
        own.transform, own.target_transform = transform, None
        if getattr(dataset, "transforms", None) is not None:
            own.transforms = sys.modules["torchvision.datasets.vision"].StandardTransform(transform)
    return own


class _Same:
    """An object that equals itself alone."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.of is self.of


def contents(dataset: Any) -> Any:
    """What a converted data set has now: another value means that it was changed. Transforms count by identity."""
    if known(dataset, "torch.utils.data") == "Subset":
        return list(dataset.indices), contents(dataset.dataset)
    if known(dataset, "torch.utils.data") == "ConcatDataset":
        return [contents(part) for part in dataset.datasets]
    if known(dataset, "datasets") == "Dataset":
        return _Same(dataset.data), _Same(dataset._indices), dataset.format["type"], list(dataset.format["columns"])
    name = type(dataset).__name__
    labels: Any = ()
    if known(dataset, "timm.data") == "ImageDataset":
        labels = list(dataset.reader.samples)
    elif known(dataset, "torchvision.datasets") in _FILES:
        labels = list(getattr(dataset, _FILES[name])), list(getattr(dataset, "_labels", ()))
    elif known(dataset, "torchvision.datasets") in _ARRAYS:
        targets = getattr(dataset, _ARRAYS[name])
        labels = _Same(dataset.data), [one if type(one) is int else repr(one) for one in targets]
    else:
        return None
    own = (getattr(dataset, name, None) for name in ("transform", "target_transform", "transforms", "loader"))
    return [labels, *map(_Same, own)]


def _is_standard(transforms: Any, transform: Any, to_target: Any) -> bool:
    """Whether transforms of image and target are one for each."""
    if transforms is None:
        return transform is None and to_target is None
    is_own = known(transforms, "torchvision.datasets.vision") == "StandardTransform"
    return is_own and transforms.transform is transform and transforms.target_transform is to_target


def _is_pillows(loader: Any) -> bool:
    """Whether images are opened by Pillow, as RGB."""
    place = "torchvision.datasets.folder"
    if is_function(loader, place, "pil_loader"):
        return True
    return is_function(loader, place, "default_loader") and sys.modules["torchvision"].get_image_backend() == "PIL"


def takes_truncated() -> bool:
    """Whether Pillow was told to open truncated images."""
    return bool(getattr(sys.modules.get("PIL.ImageFile"), "LOAD_TRUNCATED_IMAGES", False))


def _files(paths: list[str], labels: list[int] | None, classes: list[str]) -> _warpfeed.Source:
    """Files. Pillow opens those of formats that are not native, such as BMP and TIFF."""
    if all(os.path.splitext(path)[1].lower() in _NATIVE for path in paths):
        return _warpfeed.Source.files(paths, labels, classes)
    return _warpfeed.Source.objects(_Opened(paths), labels, classes)


class _Opened:
    """Files. Some are opened here."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, i: int) -> tuple[bytes | str, None]:
        path = self._paths[i]
        if os.path.splitext(path)[1].lower() in _NATIVE:
            return path, None
        from PIL import Image

        pixels = io.BytesIO()
        with Image.open(path) as image:
            image.convert("RGB").save(pixels, "PPM")
        return pixels.getvalue(), None


def _timm(dataset: Any) -> Found | None:
    """timm's ImageDataset of a folder."""
    if known(dataset, "timm.data") != "ImageDataset":
        return None
    reader = dataset.reader
    if known(reader, "timm.data.readers") != "ReaderImageFolder" or dataset.load_bytes or dataset.additional_features:
        return _python(dataset, f"its reader {type(reader).__name__} is not converted")
    if dataset.input_img_mode != "RGB":
        return _python(dataset, f"it converts images to {dataset.input_img_mode}")
    labels = _labels([label for _, label in reader.samples], len(reader.samples))
    classes = sorted(reader.class_to_idx, key=reader.class_to_idx.get)
    consecutive = [reader.class_to_idx[name] for name in classes] == list(range(len(classes)))
    source = _files([path for path, _ in reader.samples], labels, classes if consecutive else [])
    own = dataset.target_transform
    return Found(source, dataset.transform, ignores_exif=True, target_transform=own, like=dataset)


def _pairs(dataset: Sequence[Any], has_target: bool) -> Found | None:
    """A list of (path, bytes or array, target)."""
    if not dataset:
        raise ParameterError("the list of samples is empty")
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in dataset):
        return None
    images, targets = [pair[0] for pair in dataset], [pair[1] for pair in dataset]
    if all(_is_array(image) for image in images):
        images = [_npy(image) for image in images]
    are_paths = all(isinstance(image, (str, os.PathLike)) for image in images)
    if not are_paths and not all(isinstance(image, (bytes, bytearray, memoryview)) for image in images):
        if any(isinstance(image, (str, os.PathLike, bytes)) for image in images):
            raise TypeError("images of a list must be all paths, or all bytes of encoded images")
        return None
    are_labels = all(_is_label(one) or one is None or isinstance(one, int) and one == -1 for one in targets)
    if has_target and not are_labels:
        return Found(_warpfeed.Source.objects(_Pairs(dataset), None, []), target="target")
    own = _or_none(targets, "the list") if are_labels else None
    if are_paths:
        source = _warpfeed.Source.files([os.fspath(image) for image in images], own, [])
    else:
        source = _warpfeed.Source.memory([bytes(image) for image in images], own, [])
    return Found(source, target_of=None if are_labels else targets.__getitem__)


class _Pairs:
    """Pairs whose targets are no labels."""

    def __init__(self, pairs: Sequence[Any]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def read(self, i: int) -> tuple[Any, Any]:
        image, target = self._pairs[i]
        return image, target


def _are_numbers(targets: Any) -> bool:
    """Whether a batch of the targets is one of int64 from 0 on, as native labels are."""
    if type(targets) not in (list, tuple):
        return bool(targets.ndim == 1 and _is_int64(targets) and (targets >= 0).all())
    return all((type(one) is int or _is_int64(one) and not one.ndim) and one >= 0 for one in targets)


def _is_int64(value: Any) -> bool:
    return str(getattr(value, "dtype", None)) in ("int64", "torch.int64")


def _is_label(value: Any) -> bool:
    try:
        return not getattr(value, "ndim", 0) and operator.index(value) >= 0
    except (TypeError, ValueError, RuntimeError):
        return False


def _labels(targets: Any, samples: int) -> list[int]:
    labels = targets.tolist() if hasattr(targets, "tolist") else list(targets)
    if len(labels) != samples:
        raise ParameterError(f"the data set has {len(labels)} targets for {samples} samples")
    if not all(label == -1 or _is_label(label) for label in labels):
        raise UnsupportedError("targets of the data set are no labels: give an object with read(i), and targets=")
    return [int(label) for label in labels]


def _is_array(image: Any) -> bool:
    """Whether this is an image as an array of numpy's, `[H, W]` or `[H, W, C]`."""
    return type(image).__module__ == "numpy" and getattr(image, "ndim", 0) in (2, 3)


def _npy(array: Any) -> bytes:
    """The array as a file of numpy's."""
    import numpy

    file = io.BytesIO()
    numpy.save(file, array, allow_pickle=False)
    return file.getvalue()


def _array(data: Any) -> tuple[Any, int]:
    """Pixels as a contiguous array `[N, H, W, 3]` or `[N, H, W]`, and their channels."""
    import numpy

    array = numpy.asarray(data)
    if array.dtype != numpy.uint8:
        raise TypeError(f"pixels must be uint8, got {array.dtype}")
    if array.ndim == 4 and array.shape[1] == 3 and array.shape[3] != 3:
        array = array.transpose(0, 2, 3, 1)
    return numpy.ascontiguousarray(array), 3 if array.ndim == 4 else 1
