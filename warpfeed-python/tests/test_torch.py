"""One suite over torch's DataLoader, StatefulDataLoader and ours."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
torchdata = pytest.importorskip("torchdata.stateful_dataloader")
tv = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")

from torch.utils.data import ConcatDataset, RandomSampler, SequentialSampler, Subset, WeightedRandomSampler  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402
from torchvision.datasets import ImageFolder  # noqa: E402
from tqdm import tqdm  # noqa: E402

import warpfeed  # noqa: E402
from warpfeed.torch import DataLoader  # noqa: E402

EVAL = tv.Compose([tv.Resize(40), tv.CenterCrop(32), tv.ToTensor(), tv.Normalize([0.5] * 3, [0.25] * 3)])
TRAIN = tv.Compose(
    [tv.RandomResizedCrop(32), tv.RandomHorizontalFlip(), tv.ToTensor(), tv.Normalize([0.5] * 3, [0.25] * 3)]
)

LOADERS = [torch.utils.data.DataLoader, torchdata.StatefulDataLoader, DataLoader]
STATEFUL = LOADERS[1:]


@pytest.fixture
def data(photos: Path) -> ImageFolder:
    return ImageFolder(str(photos), EVAL)


def labels(loader: Any) -> list[int]:
    return [int(label) for _, batch in loader for label in batch]


each = pytest.mark.parametrize("loader", LOADERS, ids=lambda kind: kind.__module__.split(".")[0])


@each
def test_lengths_and_shapes(loader: Callable[..., Any], data: ImageFolder) -> None:
    for options, batches in (({}, [16, 16, 8]), ({"drop_last": True}, [16, 16])):
        made = loader(data, batch_size=16, **options)
        assert [tuple(images.shape) for images, _ in made] == [(n, 3, 32, 32) for n in batches]
        assert len(made) == len(batches)
    images, batch = next(iter(loader(data)))
    assert (tuple(images.shape), images.dtype, batch.dtype) == ((1, 3, 32, 32), torch.float32, torch.int64)


@each
def test_values_are_torchs(loader: Callable[..., Any], data: ImageFolder) -> None:
    theirs = [data[i] for i in range(8)]
    images, batch = next(iter(loader(data, batch_size=8)))
    assert torch.equal(images, torch.stack([image for image, _ in theirs]))
    assert batch.tolist() == [label for _, label in theirs]


def test_pinned_batches_are_filled_in_torchs_memory(data: ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    # All of it is kept, so that no address comes again.
    places: dict[int, Any] = {}

    class Pinned:
        """Without a GPU torch pins nothing: ordinary memory of torch's."""

        def __init__(self, device: str) -> None:
            assert device in ("", "cuda:1")

        def choose_device(self) -> None:
            pass

        def __call__(self, len_bytes: int) -> tuple[int, Any]:
            memory = torch.empty(len_bytes, dtype=torch.uint8)
            places[memory.data_ptr()] = memory
            return memory.data_ptr(), memory

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("warpfeed.torch._Pinned", Pinned)
    resized = [warpfeed.transforms.RandomResize((20, 40))]
    pinned = {"pin_memory": True, "pin_memory_device": "cuda:1"}
    for options in (
        {},
        {"memory_format": torch.channels_last, "dtype": torch.bfloat16},
        {"transform": resized, "ragged": True},
        {"transform": resized, "pad_to": 32},
        {"transform": [warpfeed.transforms.Resize(size=32)], "batch_size": 1},
        {"targets": "soft=4/0.1"},
    ):
        options = {"batch_size": 8, "seed": 1, **options}
        for want, got in zip(DataLoader(data, **options), DataLoader(data, **options, **pinned), strict=True):
            for theirs, ours in zip(want, got, strict=True):
                for one, other in zip(theirs, ours, strict=True) if isinstance(theirs, list) else [(theirs, ours)]:
                    assert torch.equal(one, other) and one.stride() == other.stride() and one.dtype == other.dtype
                    assert other.data_ptr() in places and one.data_ptr() not in places, options
    places.clear()
    for batch in DataLoader(data, 8, output="batch", **pinned):
        assert batch.views[0].owner() is None
    assert not places, "others than torch do not know when it is free"


@each
def test_shuffled_epochs_differ_and_are_whole(loader: Callable[..., Any], data: ImageFolder) -> None:
    pairs = [(path, i) for i, (path, _) in enumerate(data.samples)]
    data.samples = pairs
    made = loader(data, batch_size=7, shuffle=True)
    first, second = labels(made), labels(made)
    assert first != second and sorted(first) == sorted(second) == list(range(40))


@each
def test_breaks_several_iterators_and_tqdm(loader: Callable[..., Any], data: ImageFolder) -> None:
    made = loader(data, batch_size=8)
    for _ in made:
        break
    assert len(labels(made)) == 40
    assert sum(1 for _ in zip(loader(data, batch_size=8), loader(data, batch_size=8), strict=True)) == 5
    assert sum(1 for _ in tqdm(made, disable=True)) == 5
    assert sum(1 for _ in enumerate(made)) == 5


@each
def test_exceptions_come_out(loader: Callable[..., Any], data: ImageFolder, tmp_path: Path) -> None:
    data.samples = [*data.samples[:3], (str(tmp_path / "missing.jpg"), 0)]
    with pytest.raises(FileNotFoundError):
        list(loader(data, batch_size=2))


@each
def test_parts_and_samplers(loader: Callable[..., Any], data: ImageFolder) -> None:
    data.samples = [(path, i) for i, (path, _) in enumerate(data.samples)]
    data.targets = list(range(40))
    part = Subset(data, [5, 3, 3, 39])
    assert labels(loader(part, batch_size=2)) == [5, 3, 3, 39]
    assert labels(loader(ConcatDataset([part, Subset(data, [0])]), batch_size=2)) == [5, 3, 3, 39, 0]
    assert labels(loader(data, batch_size=9, sampler=SequentialSampler(data))) == list(range(40))
    assert sorted(labels(loader(data, batch_size=9, sampler=RandomSampler(data)))) == list(range(40))
    assert labels(loader(data, batch_size=2, sampler=[7, 1, 7])) == [7, 1, 7]
    weights = [0.0] * 40
    weights[11] = weights[13] = 1.0
    drawn = labels(loader(data, batch_size=9, sampler=WeightedRandomSampler(weights, 30)))
    assert len(drawn) == 30 and set(drawn) == {11, 13}
    ranks = [labels(loader(data, batch_size=4, sampler=DistributedSampler(data, 3, rank))) for rank in range(3)]
    assert {len(rank) for rank in ranks} == {14} and set().union(*ranks) == set(range(40))


@pytest.mark.parametrize("loader", STATEFUL, ids=lambda kind: kind.__module__.split(".")[0])
def test_states(loader: Callable[..., Any], data: ImageFolder) -> None:
    data.samples = [(path, i) for i, (path, _) in enumerate(data.samples)]
    whole = labels(loader(data, batch_size=6))
    for taken in (0, 1, 4):
        first = loader(data, batch_size=6)
        iterator = iter(first)
        got = [int(label) for _ in range(taken) for label in next(iterator)[1]]
        state = copy.deepcopy(first.state_dict())
        second = loader(data, batch_size=6)
        second.load_state_dict(state)
        assert got + labels(second) == whole, taken
        assert labels(second) == whole, "the epoch after"


def test_a_state_at_the_end_begins_the_next_epoch(data: ImageFolder) -> None:
    loader = DataLoader(data, 8, shuffle=True, seed=2)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    second = DataLoader(data, 8, shuffle=True, seed=2)
    second.load_state_dict(loader.state_dict())
    third = DataLoader(data, 8, shuffle=True, seed=2)
    third.set_epoch(1)
    assert labels(second) == labels(third)


def test_set_epoch_of_the_same_epoch_keeps_a_loaded_state(data: ImageFolder) -> None:
    loader = DataLoader(data, 8, shuffle=True, seed=3)
    iterator = iter(loader)
    next(iterator)
    state, rest = loader.state_dict(), [int(label) for _, batch in iterator for label in batch]
    second = DataLoader(data, 8, shuffle=True, seed=3)
    second.load_state_dict(state)
    second.sampler.set_epoch(0)
    assert labels(second) == rest
    second.load_state_dict(state)
    second.set_epoch(5)
    assert len(labels(second)) == 40


def test_forms_of_batches(data: ImageFolder) -> None:
    as_dict = next(iter(DataLoader(data, 4, output="dict")))
    assert set(as_dict) == {"pixel_values", "labels"}
    parts = {"image": "images", "label": "labels", "path": "names", "place": "indices", "done": "recipes"}
    named = next(iter(DataLoader(data, 4, shuffle=True, output=parts)))
    assert set(named) == set(parts) and named["image"].shape == (4, 3, 32, 32)
    for place, path, label, done in zip(named["place"], named["path"], named["label"], named["done"], strict=True):
        assert data.samples[int(place)] == (path, int(label)) and done[-1]["op"] == "normalize"
    with pytest.raises(ValueError, match="names in the batch to images, labels"):
        DataLoader(data, 4, output={"pixel_values": "image"})
    assert next(iter(DataLoader(data, 4, output=lambda images, labels: len(labels)))) == 4
    native = next(iter(DataLoader(data, 4, output="batch")))
    assert (len(native), native.padding, native.repetitions) == (4, 0, [0] * 4)
    assert torch.from_dlpack(native.indices).tolist() == [0, 1, 2, 3]


def test_types_and_memory_formats(data: ImageFolder) -> None:
    plain, _ = next(iter(DataLoader(data, 4)))
    last, _ = next(iter(DataLoader(data, 4, memory_format=torch.channels_last)))
    assert torch.equal(plain, last) and last.is_contiguous(memory_format=torch.channels_last)
    half, _ = next(iter(DataLoader(data, 4, dtype=torch.bfloat16)))
    assert torch.equal(half, plain.to(torch.bfloat16))
    data.transform = v2.Compose([v2.Resize(40), v2.CenterCrop(32), v2.ToImage()])
    images, _ = next(iter(DataLoader(data, 4)))
    assert images.dtype == torch.uint8


def test_what_would_mislead_is_refused(data: ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"worker_init_fn": print, "multiprocessing_context": "spawn"}.items():
        with pytest.raises(ValueError, match=name):
            DataLoader(data, **{name: value})
    with pytest.raises(TypeError, match="read"):
        DataLoader(iter([1, 2]))
    with pytest.raises(NotImplementedError, match="preset cannot be given with steps that run in Python: the data set"):
        DataLoader(torch.utils.data.TensorDataset(torch.zeros(3)), preset="eval")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    data.transform = EVAL
    with pytest.raises(ValueError, match="distributed=True"):
        next(iter(DataLoader(data, shuffle=True)))
    assert len(DataLoader(data, shuffle=True, distributed=True)) == 20
    assert len(DataLoader(data, shuffle=True, distributed=False)) == 40


def test_torchs_forked_workers_beside_a_running_epoch(data: ImageFolder) -> None:
    iterator = iter(DataLoader(data, 4, num_workers=2))
    next(iterator)
    theirs = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(64)), 4, num_workers=2)
    assert sum(len(batch[0]) for batch in theirs) == 64
    assert sum(len(batch) for _, batch in iterator) == 36


def test_detection_targets_are_torchvisions(scenes: Path) -> None:
    source = warpfeed.open(scenes / "images", format="coco", annotations=scenes / "annotations.json")
    loader = DataLoader(source, 4, preset="ssd", fields=("boxes", "labels", "masks"))
    for images, targets in loader:
        assert images.shape[1:] == (3, 300, 300) and len(targets) == len(images)
        for target in targets:
            objects = len(target["labels"])
            assert target["boxes"].shape == (objects, 4) and target["boxes"].dtype == torch.float32
            assert target["masks"].shape == (objects, 300, 300) and target["labels"].dtype == torch.int64
    ragged = DataLoader(source, 4, preset="faster-rcnn", fields=("boxes", "labels"))
    images, targets = next(iter(ragged))
    assert isinstance(images, list) and len(images) == len(targets) == 4


def test_mixes_are_converted(data: ImageFolder) -> None:
    mix = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=4), v2.CutMix(alpha=1.0, num_classes=4)])
    _, targets = next(iter(DataLoader(data, 8, mix=mix)))
    assert targets.shape == (8, 4) and torch.allclose(targets.sum(1), torch.ones(8))


def test_a_loader_is_pickled_with_its_generators(data: ImageFolder) -> None:
    data.samples = [(path, i) for i, (path, _) in enumerate(data.samples)]
    for options in (
        {"shuffle": True, "generator": torch.Generator().manual_seed(3)},
        {"sampler": RandomSampler(data, generator=torch.Generator().manual_seed(3))},
    ):
        loader = DataLoader(data, 8, **options)
        again = pickle.loads(pickle.dumps(loader))
        assert labels(again) == labels(loader)
