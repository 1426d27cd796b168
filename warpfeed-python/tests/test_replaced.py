"""What was replaced somewhere else than in the data set's or the transform's class is run too, as torch's loader runs it."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")
tv = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
sets = pytest.importorskip("torchvision.datasets")
datasets = pytest.importorskip("datasets")

import torchvision.transforms._functional_pil as on_pil  # noqa: E402
import torchvision.transforms.functional as functional  # noqa: E402
import torchvision.transforms.transforms as v1  # noqa: E402
from PIL import Image, ImageFile, ImageOps  # noqa: E402
from test_python import STEPS, assert_torchs, cifar  # noqa: E402
from test_python import pictures as pictures  # noqa: E402
from torch.utils import data  # noqa: E402
from torchvision.datasets import folder  # noqa: E402
from torchvision.transforms.v2 import functional as v2_functional  # noqa: E402
from torchvision.transforms.v2.functional import _utils as v2_utils  # noqa: E402

import warpfeed  # noqa: E402
from warpfeed.torch import DataLoader  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:in Python")
# They draw, though always the same, so that no comparison of pixels finds the difference when a loader is made.
MIRROR = [tv.RandomHorizontalFlip(1.0), *STEPS]


def made(root: Path, steps: list[Any] = MIRROR, **options: Any) -> Any:
    return sets.ImageFolder(root, tv.Compose(list(steps)), **options)


@contextmanager
def put(of: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of, name, value, raising=False)
        yield


def then(function: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *args, **options: change(function(*args, **options))


class Called:
    """An object in a function's place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **options: Any) -> Any:
        return ImageOps.invert(self.function(*args, **options))


class Vertical:
    def __getattr__(self, name: str) -> Any:
        return functional.vflip if name == "hflip" else getattr(functional, name)


def collated(batch: list[Any]) -> Any:
    return [torch.stack([image for image, _ in batch]) * 2, torch.tensor([label for _, label in batch])]


def doubled(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
    return torch.stack(batch) * 2


invert, mirror, collate = ImageOps.invert, ImageOps.mirror, data._utils.collate
REPLACED: dict[str, Callable[[], Any]] = {
    "resize": lambda: put(functional, "resize", then(functional.resize, invert)),
    "resize by an object": lambda: put(functional, "resize", Called(functional.resize)),
    "resize by a partial function": lambda: put(
        functional, "resize", functools.partial(lambda of, *args, **options: invert(of(*args)), functional.resize)
    ),
    "to_tensor": lambda: put(functional, "to_tensor", then(functional.to_tensor, lambda image: image * 2)),
    "hflip by vflip": lambda: put(functional, "hflip", functional.vflip),
    "Pillow's part of resize": lambda: put(on_pil, "resize", then(on_pil.resize, invert)),
    "the module of functions": lambda: put(v1, "F", Vertical()),
    "Image.open": lambda: put(Image, "open", then(Image.open, mirror)),
    "Image.resize": lambda: put(Image.Image, "resize", then(Image.Image.resize, mirror)),
    "pil_loader": lambda: put(folder, "pil_loader", then(folder.pil_loader, mirror)),
    "a method by another class's": lambda: put(tv.RandomHorizontalFlip, "forward", tv.RandomVerticalFlip.forward),
    "a property": lambda: put(tv.Resize, "size", property(lambda self: (9, 12), lambda self, size: None)),
    "all attributes": lambda: put(
        tv.Resize, "__getattribute__", lambda self, name: (9, 12) if name == "size" else object.__getattribute__(self, name)
    ),
    "default_collate": lambda: put(collate, "default_collate", collated),
    "collating tensors": lambda: pytest.MonkeyPatch.context(),
    "torch.rand": lambda: put(torch, "rand", then(torch.rand, lambda drawn: drawn + 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLACED)
def test_a_replaced_function_is_called(pictures: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = made(pictures)
    with REPLACED[name]():
        if name == "collating tensors":
            monkeypatch.setitem(collate.default_collate_fn_map, torch.Tensor, doubled)
        loader = assert_torchs(dataset)
        assert loader._plan is not None
        changed = next(iter(loader))[0]
        monkeypatch.undo()
    plain = DataLoader(dataset, 4)
    assert plain._plan is None
    images = next(iter(plain))[0]
    assert images.shape != changed.shape or not torch.equal(images, changed), "the change shows"


def test_a_replaced_kernel_of_v2_is_called(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [v2.RandomHorizontalFlip(1.0), v2.Resize((20, 24)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    dataset = sets.ImageFolder(pictures, v2.Compose(steps))
    assert assert_torchs(dataset, 4e-6)._plan is None
    kernels = v2_utils._KERNEL_REGISTRY[v2_functional.resize]
    monkeypatch.setitem(kernels, Image.Image, then(kernels[Image.Image], invert))
    assert assert_torchs(dataset, 4e-6)._plan is not None


def test_functions_that_are_passed_are_the_users(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "default_loader", lambda path: mirror(folder.pil_loader(path)))
    assert assert_torchs(made(pictures, loader=folder.default_loader))._plan is not None
    monkeypatch.setattr(data, "default_collate", collated)
    assert assert_torchs(made(pictures), collate_fn=data.default_collate)._plan is not None


class Rolling(list[Any]):
    """A list that gives other items than those in it."""

    def __getitem__(self, i: Any) -> Any:
        return super().__getitem__((i + 1) % len(self) if isinstance(i, int) else i)


class Backwards(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([list.__getitem__(self, i) for i in range(len(self) - 1, -1, -1)])


def fetching_together(dataset: Any) -> Any:
    dataset.__getitems__ = lambda indices: [(dataset[i][0] + 5, dataset[i][1]) for i in indices]
    return dataset


def with_list(dataset: Any, name: str, kind: type) -> Any:
    of = dataset.transform if name == "transforms" else dataset
    setattr(of, name, kind(getattr(of, name)[:: -1 if kind is Backwards else 1]))
    return dataset


OBJECTS: dict[str, Callable[[Path], Any]] = {
    "__getitems__": lambda root: fetching_together(made(root)),
    "__getitems__ of arrays": lambda root: fetching_together(cifar(sets.CIFAR10)),
    "samples": lambda root: with_list(made(root), "samples", Rolling),
    "transforms": lambda root: with_list(made(root), "transforms", Backwards),
    "indices": lambda root: data.Subset(made(root), Rolling([4, 1, 2, 7])),
    "a subset's subset": lambda root: data.Subset(data.Subset(made(root), Rolling([4, 1, 2, 7])), [2, 0]),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_methods_and_lists_of_an_object_are_its_own(pictures: Path, name: str) -> None:
    assert assert_torchs(OBJECTS[name](pictures))._plan is not None


TARGETS: dict[str, Callable[[int], Any]] = {
    "floats": lambda label: label + 0.5,
    "truth values": bool,
    "texts": str,
    "pairs": lambda label: (label, 2.0 * label),
    "dicts": lambda label: {"label": label},
    "below zero": lambda label: label - 1,
    "ignored": lambda label: -100 if label == 1 else label,
    "numpy's int32": numpy.int32,
    "numpy's int64": numpy.int64,
    "tensors": torch.tensor,
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_of_any_kind(pictures: Path, name: str) -> None:
    dataset = made(pictures)
    dataset.samples = [(path, TARGETS[name](label)) for path, label in dataset.samples]
    loader = assert_torchs(dataset)
    assert (loader._plan is None) == (name in ("numpy's int64", "tensors"))
    assert loader._found.dataset is None, "images are native"
    assert_torchs(data.Subset(dataset, [3, -1, 0]))
    arrays = cifar(sets.CIFAR10)
    arrays.targets = [TARGETS[name](label % 3) for label in arrays.targets]
    assert_torchs(arrays)
    for own in (numpy.arange(9), numpy.arange(9, dtype="int32"), torch.arange(9), torch.eye(9)):
        arrays.targets = own
        assert_torchs(arrays)


def test_parts_count_from_the_end(pictures: Path) -> None:
    assert assert_torchs(data.Subset(made(pictures), [-1, -10, 0]))._plan is None


def test_the_default_dtype_is_torchs(pictures: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert_torchs(made(pictures))
    finally:
        torch.set_default_dtype(torch.float32)


def test_files_that_only_pillow_opens(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    for ending in "gif", "tga", "ppm", "jpg":
        Image.effect_noise((30, 40), 60).convert("RGB").save(tmp_path / "class" / f"a.{ending}")
    dataset = sets.DatasetFolder(
        tmp_path, folder.default_loader, (".gif", ".tga", ".ppm", ".jpg"), transform=tv.Compose(MIRROR)
    )
    assert assert_torchs(dataset)._plan is None


def test_truncated_files_are_pillows_to_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "class").mkdir()
    file = io.BytesIO()
    Image.effect_noise((200, 200), 80).convert("RGB").save(file, "JPEG", quality=95)
    (tmp_path / "class" / "a.jpg").write_bytes(file.getvalue()[: file.tell() // 2])
    with pytest.raises(warpfeed.DataError, match=r"a\.jpg.*truncated"):
        list(DataLoader(made(tmp_path)))
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert assert_torchs(made(tmp_path))._plan is None


class Counts:
    """A transform that knows how often it was called."""

    calls = 0

    def __call__(self, image: Any) -> Any:
        self.calls += 1
        return image + self.calls


def test_the_users_functions_are_called_once_a_sample(pictures: Path) -> None:
    """The comparison when a loader is made leaves them out."""
    for own in (
        made,
        lambda root, steps: data.Subset(made(root, steps), [0, 1, 2]),
        lambda root, steps: data.ConcatDataset([made(root, steps)]),
    ):
        ours, theirs = (own(pictures, [*STEPS, Counts()]) for _ in range(2))
        for one, other in zip(DataLoader(ours, 4, num_workers=0), data.DataLoader(theirs, 4), strict=True):
            assert torch.equal(one[0], other[0])


def rows() -> Any:
    images = [Image.new("RGB", (8, 8), (i, i, i)) for i in range(6)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=6)})
    return datasets.Dataset.from_dict({"image": images, "label": list(range(6))}, features=features)


def as_dict(batch: list[dict[str, Any]]) -> Any:
    return {
        "pixels": torch.stack([functional.to_tensor(row["image"]) for row in batch]),
        "labels": [row["label"] for row in batch],
    }


def test_rows_of_hugging_face_are_those_of_torchs_loader() -> None:
    for dataset in (rows().with_format("torch"), data.Subset(rows().with_format("torch"), [3, 1])):
        assert_torchs(dataset, num_workers=0)
    assert_torchs(rows(), collate_fn=as_dict, num_workers=0)
    images, _ = next(iter(DataLoader(rows().with_format("torch"), 4, transform=tv.ToTensor())))
    assert images.dtype == torch.float32, "asked for a transform, the loader makes images"


def test_a_replaced_feature_of_hugging_face_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = datasets.Image.decode_example
    monkeypatch.setattr(datasets.Image, "decode_example", then(decode, lambda image: image.rotate(90)))
    loader = DataLoader(rows(), 4, collate_fn=as_dict)
    assert loader._found.dataset is not None
    with pytest.raises(warpfeed.UnsupportedError, match="no Image column"):
        DataLoader(rows(), 4, transform=tv.ToTensor())


def test_a_stream_of_torchs_is_named() -> None:
    class Stream(data.IterableDataset):
        def __iter__(self) -> Any:
            yield 1

    with pytest.raises(TypeError, match="Stream is an IterableDataset"):
        DataLoader(Stream())
