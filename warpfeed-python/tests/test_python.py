"""What is not converted runs in Python: equal to torch's DataLoader, sample by sample."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")
tv = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
sets = pytest.importorskip("torchvision.datasets")

from PIL import Image, ImageOps  # noqa: E402
from torch.utils import data  # noqa: E402

import warpfeed  # noqa: E402
from warpfeed import transforms as t  # noqa: E402
from warpfeed.torch import DataLoader  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:in Python")
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 small images of 3 classes: JPEG, PNG, gray, with alpha, BMP, TIFF."""
    root = tmp_path_factory.mktemp("pictures")
    generator = numpy.random.default_rng(4)
    kinds = [
        ("RGB", "jpg"),
        ("RGB", "png"),
        ("L", "jpg"),
        ("RGBA", "png"),
        ("RGB", "bmp"),
        ("RGB", "tif"),
        ("L", "png"),
    ]
    for i, (mode, ending) in enumerate(kinds + [("RGB", "jpg")] * 3):
        folder = root / "abc"[i % 3]
        folder.mkdir(exist_ok=True)
        pixels = generator.integers(0, 256, (5, 6, 3), dtype="uint8")
        image = Image.fromarray(pixels).resize((30 + 5 * i, 40), Image.Resampling.BICUBIC).convert(mode)
        image.save(folder / f"{i}.{ending}")
    return root


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name in value:
            yield name
            yield from flat(value[name])
    elif isinstance(value, (list, tuple)):
        yield len(value)
        for one in value:
            yield from flat(one)
    else:
        yield value


def assert_equal(ours: Any, theirs: Any, near: float = 0.0) -> None:
    for one, other in itertools.zip_longest(flat(ours), flat(theirs)):
        if isinstance(other, torch.Tensor):
            assert one.dtype == other.dtype and one.shape == other.shape
            assert torch.equal(one, other) or near and torch.allclose(one, other, rtol=0, atol=near)
        else:
            assert type(one) is type(other) and one == other


OURS = ("num_workers", "python_workers", "check", "multiprocessing_context")


def assert_torchs(dataset: Any, near: float = 0.0, **options: Any) -> DataLoader:
    """The loader's batches are those of torch's loader."""
    ours = DataLoader(dataset, **{"batch_size": 4, "num_workers": 2, **options})
    options = {name: value for name, value in options.items() if name not in OURS}
    theirs = data.DataLoader(dataset, **{"batch_size": 4, **options})
    assert len(ours) == len(theirs)
    for own, other in zip(ours, theirs, strict=True):
        assert_equal(own, other, near)
    return ours


# One thing is overridden: in each way that users have, at each place.


def inverted(value: Any) -> Any:
    if isinstance(value, Image.Image):
        return ImageOps.invert(value.convert("RGB"))
    return value.flip(-2) * 2


class Function:
    def __call__(self, value: Any) -> Any:
        return inverted(value)


class Delegates:
    """Looks like the transform within it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __call__(self, value: Any) -> Any:
        return inverted(self.inner(value))


def by_subclass(inner: Any) -> Any:
    method = "forward" if isinstance(inner, torch.nn.Module) else "__call__"
    whole = getattr(type(inner), method)

    def call(self: Any, value: Any) -> Any:
        return inverted(whole(self, value))

    kind = type(type(inner).__name__, (type(inner),), {method: call})
    own = kind.__new__(kind)
    own.__dict__.update(inner.__dict__)
    return own


def on_instance(inner: Any) -> Any:
    if not isinstance(inner, torch.nn.Module):
        return by_subclass(inner)
    whole = inner.forward
    inner.forward = lambda value: inverted(whole(value))
    return inner


def by_hook(inner: Any) -> Any:
    if isinstance(inner, torch.nn.Module):
        inner.register_forward_hook(lambda module, given, made: inverted(made))
        return inner
    return by_subclass(inner)


def by_class(inner: Any) -> Any:
    """Another class is set, with the same name."""
    own = by_subclass(inner)
    inner.__class__ = type(own)
    return inner


TRANSFORMS: dict[str, Callable[[], list[Any]]] = {
    "v1": lambda: [tv.Resize((24, 20)), tv.CenterCrop(16), tv.ToTensor(), tv.Normalize(MEAN, STD)],
    "v1 flip": lambda: [tv.Resize((24, 20)), tv.Grayscale(3), tv.Pad(2), tv.ToTensor()],
    "bytes": lambda: [tv.Resize((24, 20)), tv.PILToTensor(), tv.ConvertImageDtype(torch.float32)],
    "v2": lambda: [v2.Resize((24, 20)), v2.CenterCrop(16), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
    "v2 normalized": lambda: [
        v2.CenterCrop(16), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
    ],
}  # fmt: skip
CHANGES: dict[str, Callable[[Any], Any]] = {
    "subclass": by_subclass, "instance": on_instance, "hook": by_hook, "wrapper": Delegates, "class": by_class,
}  # fmt: skip
INSERTED: dict[str, Callable[[], Any]] = {
    "function": lambda: inverted, "object": Function, "Lambda": lambda: tv.Lambda(inverted), "v2 Lambda": lambda: v2.Lambda(inverted),
    "nested": lambda: tv.Compose([tv.Lambda(inverted)]), "applied": lambda: tv.RandomApply([tv.Lambda(inverted)], 1.0),
    "module": lambda: torch.nn.Sequential(torch.nn.Identity(), by_hook(torch.nn.Identity())),
}  # fmt: skip
CASES = [
    (f"{name}, {change} of {place}", name, change, place)
    for name, steps in TRANSFORMS.items()
    for change in CHANGES
    for place in range(len(steps()))
] + [
    (f"{name}, {added} at {place}", name, added, place)
    for name, steps in TRANSFORMS.items()
    for added in INSERTED
    for place in range(len(steps()) + 1)
]


def changed(name: str, how: str, place: int) -> list[Any]:
    steps = TRANSFORMS[name]()
    if how in CHANGES:
        steps[place] = CHANGES[how](steps[place])
    else:
        steps.insert(place, INSERTED[how]())
    return steps


@pytest.mark.parametrize(("name", "how", "place"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_changed_transform_is_run(pictures: Path, name: str, how: str, place: int) -> None:
    compose = v2.Compose if name.startswith("v2") else tv.Compose
    # v2 multiplies by 1/255 where the native scaling divides.
    near = 4e-6 if name.startswith("v2") else 0.0
    loader = assert_torchs(sets.ImageFolder(pictures, compose(changed(name, how, place))), near)
    assert loader._plan is not None
    plain = DataLoader(sets.ImageFolder(pictures, compose(TRANSFORMS[name]())), 4)
    assert plain._plan is None
    pairs = list(zip(loader, plain, strict=True))
    assert any(a.shape != b.shape or not torch.equal(a, b) for (a, _), (b, _) in pairs), "the change shows"


STEPS = [tv.Resize((20, 24)), tv.ToTensor(), tv.Normalize(MEAN, STD)]


def folder(root: Path, **options: Any) -> Any:
    return sets.ImageFolder(root, tv.Compose(STEPS), **options)


class Indexed(sets.ImageFolder):
    def __getitem__(self, i: int) -> Any:
        return super().__getitem__(i)[0], i


class Rows(sets.ImageFolder):
    def __getitem__(self, i: int) -> Any:
        image, label = super().__getitem__(i)
        return {"image": image, "label": label, "name": self.samples[i][0], "both": (label, float(label))}


class Short(sets.ImageFolder):
    def __len__(self) -> int:
        return 5


class Loads(sets.ImageFolder):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.loader = lambda path: Image.open(path).convert("L").convert("RGB")


class Part(data.Subset):
    def __getitem__(self, i: Any) -> Any:
        image, label = self.dataset[self.indices[i]]
        return image.flip(2), label

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[i] for i in indices]


class Together(data.Subset):
    def __getitems__(self, indices: list[int]) -> Any:
        return [(self.dataset[self.indices[i]][0] + len(indices), 0) for i in indices]


class Wrapped:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, i: int) -> Any:
        image, label = self.inner[i]
        return image.flip(1), label + 10


class Gray(data.Dataset):
    """A class with the attributes of others."""

    def __init__(self, root: Path) -> None:
        self.samples, self.transform, self.data = (
            folder(root).samples,
            tv.Compose(STEPS),
            numpy.zeros((10, 8, 8, 3), "uint8"),
        )
        self.targets = self.labels = [0] * 10

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Any:
        path, label = self.samples[i]
        return self.transform(Image.open(path).convert("L").convert("RGB")), label

    def read(self, i: int) -> Any:
        raise AssertionError("it is no reader")


class Own(tv.Compose):
    def __call__(self, image: Any) -> Any:
        return super().__call__(image.rotate(90))


class ImageFolder(sets.ImageFolder):
    """A class with torchvision's name."""

    def __getitem__(self, i: int) -> Any:
        return super().__getitem__(-1 - i)


class Joint(sets.VisionDataset):
    def __init__(self, root: Path, transforms: Any) -> None:
        super().__init__(str(root), transforms=transforms)
        self.samples = sets.ImageFolder(root).samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Any:
        path, label = self.samples[i]
        return self.transforms(
            Image.open(path).convert("RGB"), {"boxes": torch.tensor([[1.0, 2, 3, 4]]), "label": label}
        )


class Replaced(sets.CIFAR10):
    def __getitem__(self, i: int) -> Any:
        image, label = super().__getitem__(i)
        return 1 - image, label


def cifar(kind: Any) -> Any:
    own = kind.__new__(kind)
    own.data = numpy.random.default_rng(3).integers(0, 256, (9, 32, 32, 3), dtype="uint8")
    own.targets, own.classes, own.transform, own.target_transform = list(range(9)), None, tv.ToTensor(), None
    return own


class Flipping:
    def __getitem__(self, i: int) -> Any:
        image, label = super().__getitem__(i)  # type: ignore[misc]
        return image.flip(2), label


class Both(Flipping, sets.ImageFolder):
    pass


def gray(path: str) -> Any:
    return Image.open(path).convert("L").convert("RGB")


DATASETS: dict[str, Callable[[Path], Any]] = {
    "index in place of a label": lambda root: Indexed(root, tv.Compose(STEPS)),
    "rows": lambda root: Rows(root, tv.Compose(STEPS)),
    "shorter": lambda root: Short(root, tv.Compose(STEPS)),
    "a loader of its own": lambda root: Loads(root, tv.Compose(STEPS)),
    "a loader as argument": lambda root: folder(root, loader=gray),
    "the same name": lambda root: ImageFolder(root, tv.Compose(STEPS)),
    "a mix-in": lambda root: Both(root, tv.Compose(STEPS)),
    "a subset's subclass": lambda root: Part(folder(root), range(7)),
    "samples together": lambda root: Together(folder(root), range(7)),
    "a part of a subclass": lambda root: data.Subset(Indexed(root, tv.Compose(STEPS)), [3, 1, 8, 8, 0]),
    "a part of samples together": lambda root: data.Subset(Together(folder(root), range(7)), [3, 1, 2]),
    "one after another": lambda root: data.ConcatDataset([folder(root), Indexed(root, tv.Compose(STEPS))]),
    "other transforms": lambda root: data.ConcatDataset(
        [folder(root), sets.ImageFolder(root, tv.Compose([tv.Lambda(inverted), *STEPS]))]
    ),
    "a wrapper": lambda root: Wrapped(folder(root)),
    "an own class with usual names": Gray,
    "Compose's subclass": lambda root: sets.ImageFolder(root, Own(STEPS)),
    "targets": lambda root: folder(root, target_transform=lambda label: label * 2 + 1),
    "vectors as targets": lambda root: folder(root, target_transform=lambda label: torch.eye(3)[label]),
    "words as targets": lambda root: folder(root, target_transform="xyz".__getitem__),
    "tensors": lambda root: data.TensorDataset(torch.arange(30.0).view(10, 3), torch.arange(10)),
    "a list of tensors": lambda root: [(torch.full((3,), float(i)), i) for i in range(6)],
    "arrays": lambda root: cifar(Replaced),
    "a part of arrays": lambda root: data.Subset(cifar(Replaced), [4, 2, 8, 1]),
    "together with targets": lambda root: Joint(
        root, v2.Compose([v2.Resize((16, 16)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    ),
    "fake": lambda root: sets.FakeData(9, (3, 12, 12), 5, tv.ToTensor()),
    "stacked": lambda root: data.StackDataset(folder(root), list(range(10))),
}


@pytest.mark.parametrize("options", [{}, {"num_workers": 0}, {"drop_last": True, "batch_size": 3}], ids=str)
@pytest.mark.parametrize("name", DATASETS)
def test_a_data_set_of_ones_own_is_run(pictures: Path, name: str, options: dict[str, Any]) -> None:
    assert assert_torchs(DATASETS[name](pictures), **options)._plan is not None


def test_there_are_three_hundred() -> None:
    assert len(CASES) + 3 * len(DATASETS) >= 300


def test_what_is_known_is_converted(pictures: Path) -> None:
    timm_data = pytest.importorskip("timm.data")
    endings = (".jpg", ".png", ".bmp")
    for dataset in (
        folder(pictures), data.Subset(folder(pictures), [1, 3]), data.ConcatDataset([folder(pictures), folder(pictures)]),
        cifar(sets.CIFAR10), timm_data.ImageDataset(str(pictures), transform=tv.Compose(STEPS)),
        sets.DatasetFolder(pictures, sets.folder.default_loader, endings, transform=tv.Compose(STEPS)),
    ):  # fmt: skip
        assert assert_torchs(dataset)._plan is None


def test_a_class_whose_method_was_replaced_is_run(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, get = tv.Resize.forward, sets.DatasetFolder.__getitem__
    with monkeypatch.context() as patch:
        patch.setattr(tv.Resize, "forward", lambda self, image: whole(self, image.rotate(90)))
        assert assert_torchs(folder(pictures))._plan is not None
    with monkeypatch.context() as patch:
        patch.setattr(sets.DatasetFolder, "__getitem__", lambda self, i: get(self, -1 - i))
        assert assert_torchs(folder(pictures))._plan is not None
    assert assert_torchs(folder(pictures))._plan is None


def listed(batch: list[Any]) -> Any:
    return [image for image, _ in batch], tuple(label for _, label in batch)


def test_collating_is_the_users(pictures: Path) -> None:
    ragged = sets.ImageFolder(pictures, tv.Compose([tv.Resize(20), tv.ToTensor()]))
    for workers in (0, 2):
        assert assert_torchs(ragged, collate_fn=listed, num_workers=workers)._plan is not None
        assert assert_torchs(Rows(pictures, tv.ToTensor()), collate_fn=list, num_workers=workers)._plan is not None
    assert assert_torchs(folder(pictures), collate_fn=data.default_collate)._plan is None


def test_batches_are_the_batch_samplers(pictures: Path) -> None:
    groups = [[0, 5, 5], [2], [9, 8, 7, 1], [5, 0]]
    for dataset in (folder(pictures), Indexed(pictures, tv.Compose(STEPS))):
        for workers in (0, 2):
            ours = DataLoader(dataset, batch_sampler=groups, num_workers=workers)
            theirs = list(data.DataLoader(dataset, batch_sampler=groups))
            assert len(ours) == 4
            state = None
            for place, (own, other) in enumerate(zip(ours, theirs, strict=True)):
                assert_equal(own, other)
                state = ours.state_dict() if place == 1 else state
            again = DataLoader(dataset, batch_sampler=groups, num_workers=workers)
            again.load_state_dict(state)
            for own, other in zip(again, theirs[2:], strict=True):
                assert_equal(own, other)
    sampler = data.BatchSampler(data.SequentialSampler(range(10)), 4, True)
    loader = DataLoader(folder(pictures), batch_sampler=sampler)
    assert loader._plan is None and [len(labels) for _, labels in loader] == [4, 4]


class DrawnBatches:
    """Batches of drawn sizes."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Any:
        for _ in range(5):
            yield torch.randint(10, (int(torch.randint(1, 4, ())),)).tolist()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_batches_that_are_drawn_are_in_the_state(pictures: Path, memory_format: torch.memory_format) -> None:
    for dataset in (folder(pictures), Indexed(pictures, tv.Compose(STEPS))):
        seeded()
        loader = DataLoader(dataset, batch_sampler=DrawnBatches(), memory_format=memory_format)
        taken = iter(loader)
        first = [next(taken), next(taken)]
        state = json.loads(json.dumps(loader.state_dict()))
        rest = list(taken)
        assert len({len(labels) for _, labels in [*first, *rest]}) > 1
        assert all(images.is_contiguous(memory_format=memory_format) for images, _ in rest)
        again = DataLoader(dataset, batch_sampler=DrawnBatches(), memory_format=memory_format)
        again.load_state_dict(state)
        for own, other in zip(again, rest, strict=True):
            assert_equal(own, other)


class Held:
    """A batch of a class of its own, which torch's loader pins by its method."""

    def __init__(self, samples: list[Any]) -> None:
        self.images, self.is_pinned = torch.stack([image for image, _ in samples]), False

    def pin_memory(self) -> Held:
        self.images, self.is_pinned = self.images.pin_memory(), True
        return self


def test_batches_of_python_are_pinned_and_moved(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it can be seen without a GPU: which tensors are pinned, and then moved."""
    calls: list[Any] = []
    to = torch.Tensor.to

    def pinned(tensor: Any, *args: Any) -> Any:
        calls.append(("pinned", tuple(tensor.shape)))
        return tensor

    def moved(tensor: Any, *args: Any, **options: Any) -> Any:
        if args and str(args[0]).startswith("cuda"):
            calls.append(("moved", tuple(tensor.shape), args[0], options))
            return tensor
        return to(tensor, *args, **options)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    monkeypatch.setattr(torch.Tensor, "to", moved)
    noisy_steps = sets.ImageFolder(pictures, tv.Compose([*STEPS, noisy]))
    for dataset in Indexed(pictures, tv.Compose(STEPS)), noisy_steps:
        for options in {"pin_memory": True}, {"device": "cuda:0"}, {"pin_memory": True, "device": "cuda:0"}:
            calls.clear()
            next(iter(DataLoader(dataset, 4, num_workers=0, check=False, **options)))
            want = [("pinned", (4, 3, 20, 24)), ("pinned", (4,))] if "pin_memory" in options else []
            if "device" in options:
                want += [("moved", shape, "cuda:0", {"non_blocking": True}) for shape in ((4, 3, 20, 24), (4,))]
            assert calls == want
    rows = next(iter(DataLoader(Rows(pictures, tv.Compose(STEPS)), 4, num_workers=0, device="cuda:0")))
    assert [call[1] for call in calls[-4:]] == [(4, 3, 20, 24), (4,), (4,), (4,)] and len(rows["name"]) == 4
    held = next(iter(DataLoader(noisy_steps, 4, collate_fn=Held, check=False, pin_memory=True)))
    assert held.is_pinned


# Random numbers.


class Draws(data.Dataset):
    """Draws from all generators."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> Any:
        return i, random.random(), float(numpy.random.rand()), float(torch.rand(()))


def drawn(loader: Any) -> dict[int, Any]:
    return {int(i): tuple(map(float, rest)) for batch in loader for i, *rest in zip(*batch, strict=True)}


def seeded() -> None:
    torch.manual_seed(5)
    random.seed(5)
    numpy.random.seed(5)


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 3}, {"python_workers": 2}], ids=str)
def test_draws_are_those_of_seed_epoch_and_index(options: dict[str, Any]) -> None:
    plain = drawn(DataLoader(Draws(), 5, num_workers=0, seed=0))
    assert len(set(plain.values())) == 24
    loader = DataLoader(Draws(), 7, shuffle=True, seed=0, **options)
    seeded()
    assert drawn(loader) == plain
    after = torch.rand(()), random.random(), numpy.random.rand()
    seeded()
    assert after == (torch.rand(()), random.random(), numpy.random.rand()), "the caller's generators are as they were"
    second = drawn(loader)
    assert not set(second.values()) & set(plain.values()), "another epoch"
    assert drawn(DataLoader(Draws(), 7, seed=1, **options)) != plain
    taken = iter(loader)
    next(taken)
    state, rest = loader.state_dict(), drawn(taken)
    again = DataLoader(Draws(), 7, shuffle=True, seed=0, **options)
    again.load_state_dict(state)
    assert drawn(again) == rest and len(rest) == 17


def noisy(image: Any) -> Any:
    return image + torch.rand_like(image)


def test_draws_of_steps_do_not_depend_on_threads(pictures: Path) -> None:
    dataset = sets.ImageFolder(pictures, tv.Compose([tv.RandomResizedCrop(16), tv.ToTensor(), noisy]))
    runs = [
        list(DataLoader(dataset, 3, shuffle=True, seed=4, **options))
        for options in ({"num_workers": 0}, {"num_workers": 3}, {"num_workers": 1, "python_workers": 1})
    ]
    for run in runs[1:]:
        for own, other in zip(run, runs[0], strict=True):
            assert_equal(own, other)


def test_a_training_draws_what_it_draws_with_torch(pictures: Path) -> None:
    """Steps and data sets in Python have generators of their own, whatever the training draws meanwhile."""

    def drawn(loader: Any) -> list[float]:
        torch.manual_seed(5)
        return [torch.rand(400).sum().item() for _ in range(2) for _ in loader for _ in range(50)]

    step = sets.ImageFolder(pictures, tv.Compose([*STEPS, noisy]))
    for dataset in (step, Indexed(pictures, tv.Compose([*STEPS, noisy]))):
        theirs = drawn(data.DataLoader(dataset, 2, shuffle=True, num_workers=2))
        assert drawn(DataLoader(dataset, 2, shuffle=True, num_workers=2)) == theirs
        assert drawn(DataLoader(dataset, 2, shuffle=True, num_workers=0)) == theirs


class Meets:
    """Returns once two threads are in it."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=20)

    def __call__(self, image: Any) -> Any:
        self.barrier.wait()
        return image


def test_steps_without_seeds_run_in_several_threads_at_once(pictures: Path) -> None:
    def loader(**options: Any) -> DataLoader:
        dataset = data.Subset(sets.ImageFolder(pictures, tv.Compose([*STEPS, Meets()])), range(8))
        return DataLoader(dataset, 1, check=False, num_workers=2, **options)

    theirs = list(data.DataLoader(data.Subset(folder(pictures), range(8)), 1))
    for own, other in zip(loader(python_seeds=False), theirs, strict=True):
        assert_equal(own, other)
    alone = loader()
    alone.dataset.dataset.transform.transforms[-1].barrier = threading.Barrier(2, timeout=0.2)
    with pytest.raises(threading.BrokenBarrierError):
        next(iter(alone))


def test_steps_compute_in_one_thread(pictures: Path) -> None:
    """As in torch's workers; the training has its own number again."""
    seen = set()

    def step(image: Any) -> Any:
        seen.add(torch.get_num_threads())
        return image

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        list(DataLoader(sets.ImageFolder(pictures, tv.Compose([*STEPS, step])), 4, check=False))
        assert seen == {1} and torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_path_without_what_pillow_opens_is_refused_or_said(tmp_path: Path) -> None:
    """torchvision's ImageFolder has BMP and TIFF, a path has not."""
    (tmp_path / "class").mkdir()
    for name in "1.png", "2.bmp":
        Image.new("RGB", (9, 9)).save(tmp_path / "class" / name)
    with pytest.warns(UserWarning, match=r"1 \.bmp left out"):
        assert len(DataLoader(str(tmp_path), 2).dataset) == 1
    Image.new("RGB", (9, 9)).save(tmp_path / "class" / "3.tif")
    with pytest.raises(warpfeed.UnsupportedError, match="torchvision's ImageFolder as the data set reads") as refused:
        DataLoader(str(tmp_path), 2)
    assert "::" not in str(refused.value)
    assert len(folder(tmp_path)) == len(assert_torchs(folder(tmp_path)).dataset) == 3


class Told(data.Dataset):
    """Gives the number that it was told last."""

    number = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        return self.number


def test_workers_of_an_epoch_have_the_data_set_of_that_time() -> None:
    for persistent in (False, True):
        for kind in (data.DataLoader, DataLoader):
            dataset = Told()
            loader = kind(dataset, 2, num_workers=1, persistent_workers=persistent)
            got = []
            for dataset.number in (1, 2):
                got += [batch.tolist() for batch in loader]
            assert got == [[1, 1], [1, 1]] + [[1, 1] if persistent else [2, 2]] * 2


def test_processes_give_what_torchs_give(pictures: Path) -> None:
    for name in ("rows", "index in place of a label", "samples together"):
        assert_torchs(DATASETS[name](pictures), python_workers=2)
    loader = assert_torchs(folder(pictures), collate_fn=listed, python_workers=2)
    first, second = iter(loader), iter(loader)
    assert len(list(zip(first, second, strict=True))) == 3, "two epochs at once"
    with pytest.raises(warpfeed.ParameterError, match="python_workers"):
        DataLoader(folder(pictures), python_workers=2)
    local = folder(pictures, target_transform=lambda label: label)
    with pytest.raises(warpfeed.ParameterError, match="cannot be sent"):
        next(iter(DataLoader(local, python_workers=1)))
    assert_torchs(local, python_workers=1, multiprocessing_context="fork")


class Fails(data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        if i == 5:
            raise LookupError("sample five")
        return i


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 2}, {"python_workers": 2}], ids=str)
def test_exceptions_keep_type_and_traceback(options: dict[str, Any]) -> None:
    loader = iter(DataLoader(Fails(), 2, **options))
    assert next(loader).tolist() == [0, 1] and next(loader).tolist() == [2, 3]
    with pytest.raises(LookupError) as caught:
        next(loader)
    text = "".join(traceback.format_exception(caught.value))
    assert "sample five" in text and "__getitem__" in text
    assert next(loader).tolist() == [6, 7]


def test_it_is_said_once_what_runs_in_python(pictures: Path) -> None:
    class Unheard(Indexed):
        pass

    loader = DataLoader(Unheard(pictures, tv.Compose(STEPS)), 4)
    assert "Unheard" in repr(loader)
    with pytest.warns(UserWarning, match="in Python.*Unheard.*ms a sample"):
        list(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(DataLoader(Unheard(pictures, tv.Compose(STEPS)), 4))
    assert "ms a sample" in repr(loader)
    assert "in Python: nothing" in repr(DataLoader(folder(pictures)))


def test_functions_among_written_transforms(photos: Path) -> None:
    seen: list[Any] = []

    def look(value: Any) -> Any:
        seen.append(value)
        return value

    def first(steps: list[Any]) -> Any:
        return next(iter(DataLoader(str(photos), 3, transform=steps, num_workers=0)))

    steps = [t.Resize(width=20, height=24)]
    plain = first(steps)
    for own in ([look], [t.Python(look, gets="pil"), tv.ToTensor()], [t.Python(look, gets="array"), tv.ToTensor()]):
        assert_equal(first([*steps, *own]), plain)
    assert [type(one).__name__ for one in seen[::3]] == ["Tensor", "Image", "ndarray"]
    with pytest.raises(warpfeed.ParameterError, match="Resize comes after look"):
        DataLoader(str(photos), 3, transform=[look, *steps])


def test_samples_are_compared_with_the_data_sets_own(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from warpfeed import _datasets, _torchvision

    crop = sets.ImageFolder(pictures, tv.Compose([tv.Resize(24), tv.CenterCrop(16), tv.ToTensor()]))
    drawing = sets.ImageFolder(pictures, tv.Compose([tv.RandomResizedCrop(8), tv.ToTensor()]))
    with monkeypatch.context() as patch:
        corner = [{"op": "crop", "x": 0, "y": 0, "width": 16, "height": 16}]
        patch.setitem(_torchvision._STEPS, "CenterCrop", lambda transform, state: corner)
        with pytest.raises(
            warpfeed.DataError, match=r"sample 0 of ImageFolder differs .*values by.*float32 \(3, 16, 16\)"
        ):
            DataLoader(crop, 4)
        DataLoader(crop, 4, check=False)
        DataLoader(drawing, 4)
    of = _datasets._labels
    with monkeypatch.context() as patch:
        patch.setattr(_datasets, "_labels", lambda targets, samples: of(targets, samples)[::-1])
        for dataset in (crop, drawing):
            with pytest.raises(warpfeed.DataError, match="its target"):
                DataLoader(dataset, 4)
    assert DataLoader(drawing, 4)._plan is None and DataLoader(crop, 4)._plan is None


def test_wrapped_data_sets_of_v2(pictures: Path) -> None:
    both = v2.Compose([v2.Resize((12, 12)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    wrapped = sets.wrap_dataset_for_transforms_v2(sets.ImageFolder(pictures, both))
    assert assert_torchs(wrapped)._plan is not None
    assert assert_torchs(wrapped, collate_fn=listed)._plan is not None


def annotated(pictures: Path, folder: Path, has_masks: bool = True) -> Path:
    """Annotations of the pictures in COCO's form."""
    files = sorted(str(path.relative_to(pictures)) for path in pictures.rglob("*.*"))
    images = [{"id": 10 + i, "file_name": name, "width": 20, "height": 16} for i, name in enumerate(files)]
    objects = [
        {
            "id": i * 2 + j,
            "image_id": 10 + i,
            "category_id": 1 + j,
            "bbox": [1 + i % 4, 2, 5, 4],
            "area": 20,
            "iscrowd": 0,
        }
        | ({"segmentation": [[1, 2, 9, 2, 9, 8, 1, 8]]} if has_masks else {})
        for i in range(len(files))
        for j in range(i % 3)
    ]
    categories = [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]
    path = folder / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
    return path


def test_torchvisions_detection_sets(pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("pycocotools")
    both = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1.0), v2.ToDtype(torch.float32, scale=True)])
    file = annotated(pictures, tmp_path)
    coco = sets.CocoDetection(pictures, str(file), transform=tv.Compose(STEPS))
    joint = sets.wrap_dataset_for_transforms_v2(sets.CocoDetection(pictures, str(file), transforms=both))
    captions = json.loads(file.read_text())
    for one in captions["annotations"]:
        one["caption"] = f"number {one['id']}"
    file.write_text(json.dumps(captions))
    for dataset in coco, joint, sets.CocoCaptions(pictures, str(file), transform=tv.Compose(STEPS)):
        for options in {}, {"num_workers": 0}, {"shuffle": False, "python_workers": 1}:
            assert_torchs(dataset, collate_fn=listed, **options)


def test_torchvisions_sets_of_voc_and_pets(pictures: Path, tmp_path: Path) -> None:
    base = tmp_path / "VOCdevkit" / "VOC2012"
    pets = tmp_path / "oxford-iiit-pet"
    for folder in "JPEGImages", "Annotations", "SegmentationClass", "ImageSets/Main", "ImageSets/Segmentation":
        (base / folder).mkdir(parents=True)
    for folder in "images", "annotations/trimaps":
        (pets / folder).mkdir(parents=True)
    names = []
    for i, path in enumerate(sorted(pictures.rglob("*.*"))):
        names.append(f"pet_{i}")
        image = Image.open(path).convert("RGB")
        image.save(base / "JPEGImages" / f"pet_{i}.jpg")
        image.save(pets / "images" / f"pet_{i}.jpg")
        for mask in base / "SegmentationClass" / f"pet_{i}.png", pets / "annotations" / "trimaps" / f"pet_{i}.png":
            image.convert("L").point(lambda value: value // 100).save(mask)
        box = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
        text = f"<annotation><filename>pet_{i}.jpg</filename><object><name>cat</name>{box}</object></annotation>"
        (base / "Annotations" / f"pet_{i}.xml").write_text(text)
    for kind in "Main", "Segmentation":
        (base / "ImageSets" / kind / "train.txt").write_text("\n".join(names))
    (pets / "annotations" / "trainval.txt").write_text("".join(f"{name} 1 1 1\n" for name in names))
    steps, both = tv.Compose(STEPS), v2.Compose([v2.ToImage(), v2.Resize((8, 8))])
    mask = tv.Compose([tv.Resize((8, 8)), tv.PILToTensor()])
    voc = {"root": str(tmp_path), "image_set": "train"}
    wrapped = sets.wrap_dataset_for_transforms_v2
    assert_torchs(sets.VOCDetection(**voc, transform=steps), collate_fn=listed)
    assert_torchs(wrapped(sets.VOCDetection(**voc, transforms=both)), collate_fn=listed)
    assert_torchs(sets.VOCSegmentation(**voc, transform=steps, target_transform=mask))
    assert_torchs(wrapped(sets.VOCSegmentation(**voc, transforms=both)), collate_fn=listed)
    for types in "category", "binary-category", "segmentation", ["category", "segmentation"]:
        to_target = None
        if "segmentation" in types:
            to_target = mask if types == "segmentation" else lambda both: (both[0], mask(both[1]))
        own = sets.OxfordIIITPet(tmp_path, target_types=types, transform=steps, target_transform=to_target)
        assert (assert_torchs(own)._plan is None) == (types in ("category", "binary-category"))


def test_a_training_has_torchs_losses(pictures: Path) -> None:
    def losses(loader: Any) -> list[float]:
        torch.manual_seed(3)
        net = torch.nn.Linear(3 * 20 * 24, 3)
        optimizer, got = torch.optim.SGD(net.parameters(), 0.01), []
        for _ in range(3):
            for images, labels in loader:
                loss = torch.nn.functional.cross_entropy(net(images.flatten(1)), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                got.append(loss.item())
        return got

    turned = sets.ImageFolder(pictures, tv.Compose([tv.Lambda(lambda image: image.rotate(90)), *STEPS]))
    for dataset, options in (
        (folder(pictures), {}),
        (turned, {}),
        (turned, {"num_workers": 0}),
        (Part(folder(pictures), range(9)), {}),
    ):
        assert losses(DataLoader(dataset, 4, **options)) == losses(data.DataLoader(dataset, 4))


def test_other_frameworks_loaders_run_python_too(pictures: Path) -> None:
    from warpfeed.numpy import DataLoader as Numpy

    for dataset in (Indexed(pictures, tv.Compose(STEPS)), sets.ImageFolder(pictures, tv.Compose([*STEPS, noisy]))):
        theirs = list(DataLoader(dataset, 4, seed=0))
        for (images, labels), (theirs_images, theirs_labels) in zip(Numpy(dataset, 4), theirs, strict=True):
            assert numpy.array_equal(images, theirs_images) and numpy.array_equal(labels, theirs_labels)


class Slow(data.Dataset):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, i: int) -> Any:
        time.sleep(0.01)
        return torch.zeros(3, 8, 8), i


ENDS = """
    import os, signal, sys, threading
    sys.path.insert(0, sys.argv[1])
    from test_python import DataLoader, Slow
    if __name__ == "__main__":
        own = iter(DataLoader(Slow(), 8, **{sys.argv[2]: 2}))
        next(own)
        if sys.argv[3] == "interrupted":
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                list(own)
            except KeyboardInterrupt:
                print("interrupted")
"""


@pytest.mark.parametrize("how", ["interrupted", "left"])
@pytest.mark.parametrize("workers", ["num_workers", "python_workers"])
def test_a_program_ends_and_is_interrupted(workers: str, how: str, tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(textwrap.dedent(ENDS))
    command = [sys.executable, "-W", "ignore", str(script), str(Path(__file__).parent), workers, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and ("interrupted" in done.stdout) == (how == "interrupted"), done.stderr


def test_processes_outlive_an_epoch_that_is_left(pictures: Path) -> None:
    loader = DataLoader(Indexed(pictures, tv.Compose(STEPS)), 2, python_workers=2)
    for _ in loader:
        break
    assert [labels.tolist() for _, labels in loader] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert len(loader._plan._pools) == 1


def test_jax_runs_python_too(pictures: Path) -> None:
    jax = pytest.importorskip("jax")
    from warpfeed.jax import DataLoader as Jax

    for dataset in (Rows(pictures, tv.Compose(STEPS)), folder(pictures, target_transform=lambda label: label + 1)):
        for own, other in zip(Jax(dataset, 4), DataLoader(dataset, 4), strict=True):
            for one, two in zip(flat(own), flat(other), strict=True):
                assert isinstance(one, jax.Array) == isinstance(two, torch.Tensor)
                assert numpy.array_equal(one, two) or numpy.array_equal(numpy.moveaxis(one, 3, 1), two)
