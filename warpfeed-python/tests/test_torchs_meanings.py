"""Arguments of torch's with the meanings that they have in torch: each test asks torch's own loader for the same."""

from __future__ import annotations

import inspect
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tv = pytest.importorskip("torchvision.transforms")
pil = pytest.importorskip("PIL.Image")

from ranks import on_two_ranks  # noqa: E402
from torch.utils import data as torch_data  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402
from torchvision.datasets import ImageFolder  # noqa: E402

from warpfeed import transforms as t  # noqa: E402
from warpfeed.torch import DataLoader, Options  # noqa: E402

SAMPLES = 41


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> ImageFolder:
    """41 images whose labels are their numbers."""
    folder = tmp_path_factory.mktemp("numbered")
    (folder / "class").mkdir()
    for i in range(SAMPLES):
        pixels = np.random.default_rng(i).integers(0, 256, (12, 16, 3), "uint8")
        pil.fromarray(pixels).save(folder / "class" / f"{i:02}.png")
    data = ImageFolder(str(folder), tv.Compose([tv.Resize((8, 8)), tv.ToTensor()]))
    data.samples = data.imgs = [(path, i) for i, (path, _) in enumerate(data.samples)]
    data.targets = list(range(SAMPLES))
    return data


def batches(loader: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in loader]


class Own(torch_data.Sampler[int]):
    """A sampler of one's own, which draws by numpy and by Python."""

    def __init__(self, samples: int) -> None:
        self.samples, self.random = samples, np.random.default_rng(3)

    def __iter__(self) -> Iterator[int]:
        order = self.random.permutation(self.samples)
        random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return self.samples


def drawing(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


SAMPLERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "none": lambda data: {},
    "shuffle": lambda data: {"shuffle": True},
    "drop_last": lambda data: {"shuffle": True, "drop_last": True},
    "generator": lambda data: {"shuffle": True, "generator": drawing(5)},
    "sequential": lambda data: {"sampler": torch_data.SequentialSampler(data)},
    "random": lambda data: {"sampler": torch_data.RandomSampler(data)},
    "random_of_generator": lambda data: {"sampler": torch_data.RandomSampler(data, generator=drawing(6))},
    "replacement": lambda data: {"sampler": torch_data.RandomSampler(data, replacement=True, num_samples=19)},
    "more": lambda data: {"sampler": torch_data.RandomSampler(data, num_samples=90)},
    "subset": lambda data: {"sampler": torch_data.SubsetRandomSampler(range(3, 30))},
    "weighted": lambda data: {"sampler": torch_data.WeightedRandomSampler(list(range(SAMPLES)), 50)},
    "list": lambda data: {"sampler": [5, 3, 3, 40]},
    "own": lambda data: {"sampler": Own(SAMPLES)},
    "distributed": lambda data: {"sampler": DistributedSampler(data, 3, 1), "drop_last": True},
    "batches": lambda data: {
        "batch_sampler": torch_data.BatchSampler(torch_data.RandomSampler(data), 6, False), "batch_size": 1
    },
    "lists": lambda data: {"batch_sampler": [[1, 2, 3], [4, 5, 6], [7]], "batch_size": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("persistent", [False, True])
def test_orders_are_torchs(numbered: ImageFolder, name: str, persistent: bool) -> None:
    got = []
    workers = 1 if persistent else 0
    for kind in (torch_data.DataLoader, DataLoader):
        torch.manual_seed(11)
        random.seed(4)
        options = {"batch_size": 7, **SAMPLERS[name](numbered)}
        loader = kind(numbered, num_workers=workers, persistent_workers=persistent, **options)
        lengths = [len(loader), len(loader.sampler), len(loader.batch_sampler), len(loader.dataset)]
        got.append((lengths, [batches(loader) for _ in range(3)]))
    assert got[0] == got[1]


def pixels(loader: DataLoader) -> bytes:
    return b"".join(images.numpy().tobytes() for images, _ in loader)


def test_seeds_of_torch_decide_draws(photos: Path) -> None:
    def made(**options: Any) -> DataLoader:
        return DataLoader(photos, 8, transform=[t.RandomResizedCrop(16)], **options)

    def seeded(loader: DataLoader, seed: int) -> bytes:
        torch.manual_seed(seed)
        return pixels(loader)

    loader = made()
    first, same, other = (seeded(loader, seed) for seed in (1, 1, 2))
    assert first == same != other != pixels(loader)
    first, same, other = (pixels(made(generator=drawing(seed))) for seed in (1, 1, 2))
    assert first == same != other
    first, other = (seeded(made(seed=7), seed) for seed in (1, 2))
    assert first == other, "a seed of its own depends on nothing else"


@pytest.mark.parametrize("seed", [None, 9])
@pytest.mark.parametrize("name", SAMPLERS)
def test_any_sampler_resumes_exactly(numbered: ImageFolder, name: str, seed: int | None) -> None:
    """The rest of the epoch; where torch's generators draw, the epochs after it too."""

    def made() -> DataLoader:
        steps = [t.RandomResizedCrop(8)]
        options = {"batch_size": 7, **SAMPLERS[name](numbered)}
        return DataLoader(numbered, num_workers=1, transform=steps, seed=seed, **options)

    def digest(loader: Any) -> list[Any]:
        return [(labels.tolist(), images.numpy().tobytes()) for images, labels in loader]

    torch.manual_seed(1)
    loader = made()
    whole = [digest(loader) for _ in range(3)]
    for taken in (0, 1, len(loader) - 1, len(loader)):
        torch.manual_seed(1)
        loader = made()
        assert digest(loader) == whole[0] or name == "own"
        iterator = iter(loader)
        got = digest(next(iterator) for _ in range(taken))
        state = json.loads(json.dumps(loader.state_dict()))
        rest = digest(iterator)
        torch.manual_seed(99)
        again = made()
        again.load_state_dict(state)
        assert name == "own" or got == whole[1][:taken]
        if 0 < taken < len(loader):
            assert again.state_dict() == state
            assert digest(again) == rest
            assert name == "own" or digest(again) == whole[2]
        elif name != "own":
            # Nothing is known of an epoch that has not begun.
            assert digest(again) == whole[2 if taken else 1]


def test_set_epoch_is_the_samplers(numbered: ImageFolder) -> None:
    """The idiom of most training scripts, with a resume between epochs."""

    def epochs(kind: Any, begin: int) -> list[list[list[int]]]:
        sampler = DistributedSampler(numbered, 2, 0)
        loader = kind(numbered, 8, sampler=sampler)
        got = []
        for epoch in range(begin, 4):
            sampler.set_epoch(epoch)
            got.append(batches(loader))
        return got

    assert epochs(DataLoader, 0) == epochs(torch_data.DataLoader, 0)
    assert epochs(DataLoader, 2) == epochs(torch_data.DataLoader, 2)
    # Draws go on too.
    for seed in (None, 3):
        got = []
        for epoch in range(2):
            sampler = DistributedSampler(numbered, 2, 0, shuffle=False)
            loader = DataLoader(numbered, 41, sampler=sampler, transform=[t.RandomResizedCrop(8)], seed=seed)
            torch.manual_seed(0)
            sampler.set_epoch(epoch)
            got.append(pixels(loader))
        assert got[0] != got[1]


def test_attributes_are_torchs(numbered: ImageFolder) -> None:
    for options in (
        {},
        {"batch_size": 8, "shuffle": True, "generator": drawing(1), "drop_last": True, "num_workers": 2, "timeout": 30},
        {"batch_size": None, "num_workers": 1, "prefetch_factor": 3},
        {"batch_sampler": torch_data.BatchSampler(torch_data.SequentialSampler(numbered), 4, True)},
        {"sampler": torch_data.SubsetRandomSampler([1, 2]), "num_workers": 0, "in_order": False},
    ):
        theirs, ours = torch_data.DataLoader(numbered, **options), DataLoader(numbered, **options)
        assert isinstance(ours, torch_data.DataLoader)
        for name, value in vars(theirs).items():
            # By default there are threads here.
            if name.startswith("_") or name in ("num_workers", "prefetch_factor") and "num_workers" not in options:
                continue
            mine = getattr(ours, name)
            if name in ("sampler", "batch_sampler") and name not in options:
                assert type(mine) is type(value)
            else:
                assert mine == value, name
        assert ours.multiprocessing_context is None and len(ours.dataset) == SAMPLES
        with pytest.raises(ValueError, match="should not be set"):
            ours.batch_size = 3
    path = DataLoader(numbered.root, transform=[t.Resize(size=8)])
    assert len(path.dataset) == len(path.sampler) == SAMPLES, "a path has a length"


def test_what_torch_refuses_is_refused(numbered: ImageFolder) -> None:
    wrong: list[dict[str, Any]] = [
        {"batch_size": 0},
        {"batch_size": None, "drop_last": True},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_sampler": [[1]], "drop_last": True},
        {"sampler": [1], "shuffle": True},
        {"num_workers": -1},
        {"timeout": -1},
        {"num_workers": 0, "prefetch_factor": 2},
        {"num_workers": 0, "persistent_workers": True},
        {"num_workers": 1, "prefetch_factor": -1},
    ]
    for options in wrong:
        for kind in (torch_data.DataLoader, DataLoader):
            with pytest.raises(ValueError):
                kind(numbered, **options)


def test_single_samples_are_torchs(numbered: ImageFolder) -> None:
    theirs = torch_data.DataLoader(numbered, None, shuffle=True, generator=drawing(3))
    ours = DataLoader(numbered, None, shuffle=True, generator=drawing(3))
    assert len(ours) == len(theirs) == SAMPLES
    for (image, label), (own_image, own_label) in zip(theirs, ours, strict=True):
        assert torch.equal(image, own_image) and (label, type(label)) == (own_label, type(own_label))


def test_timeouts_are_torchs(numbered: ImageFolder) -> None:
    class Slow:
        def __len__(self) -> int:
            return 4

        def read(self, i: int) -> Any:
            time.sleep(3 if i == 2 else 0)
            return numbered.samples[i]

    loader = DataLoader(Slow(), timeout=0.5, num_workers=1, transform=[t.Resize(size=8)])
    iterator, begun = iter(loader), time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0.5 seconds"):
        list(iterator)
    assert time.monotonic() - begun < 2


def test_options_are_the_loaders_arguments() -> None:
    parameters = list(inspect.signature(DataLoader.__init__).parameters)
    assert list(Options.__annotations__) == [name for name in parameters if name not in ("self", "dataset")]


RANKS = """
    import json, math, sys
    import torch, torch.distributed as dist
    from torch.utils import data as torch_data
    from torch.utils.data.distributed import DistributedSampler
    from torchvision import transforms as tv
    from torchvision.datasets import ImageFolder
    from warpfeed.torch import DataLoader
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    numbered = ImageFolder(sys.argv[1], tv.Compose([tv.Resize((8, 8)), tv.ToTensor()]))
    numbered.samples = [(path, i) for i, (path, _) in enumerate(numbered.samples)]
    n = len(numbered)

    class Repeated(torch_data.Sampler):  # torchvision's references/classification/sampler.py, for few samples
        def __init__(self, dataset, shuffle=True, seed=0, repetitions=3):
            self.dataset, self.num_replicas, self.rank, self.epoch = dataset, ranks, rank, 0
            self.num_samples = int(math.ceil(len(dataset) * float(repetitions) / ranks))
            self.total_size = self.num_samples * ranks
            self.num_selected_samples = int(math.floor(len(dataset) // 8 * 8 / ranks))
            self.shuffle, self.seed, self.repetitions = shuffle, seed, repetitions
        def __iter__(self):
            g = torch.Generator()
            g.manual_seed(self.seed + self.epoch)
            indices = torch.randperm(len(self.dataset), generator=g).tolist()
            indices = [ele for ele in indices for i in range(self.repetitions)]
            indices += indices[: (self.total_size - len(indices))]
            indices = indices[self.rank : self.total_size : self.num_replicas]
            return iter(indices[: self.num_selected_samples])
        def __len__(self): return self.num_selected_samples
        def set_epoch(self, epoch): self.epoch = epoch

    class Part:  # knows the ranks, and has none of the usual names
        def __iter__(self): return iter(range(rank, n, ranks))
        def __len__(self): return len(range(rank, n, ranks))

    cases = {
        f"{shuffle} {drops} {drop_last}":
            (lambda shuffle=shuffle, drops=drops: DistributedSampler(numbered, shuffle=shuffle, drop_last=drops), drop_last)
        for shuffle in (False, True) for drops in (False, True) for drop_last in (False, True)
    }
    cases |= {"repeated": (lambda: Repeated(numbered), False), "part": (Part, False)}
    cases |= {"random": (lambda: torch_data.RandomSampler(numbered), True)}
    cases |= {"subset": (lambda: torch_data.SubsetRandomSampler(range(rank, 20)), False)}
    wrong = []
    for name, (make, drop_last) in cases.items():
        each = []
        for kind in (torch_data.DataLoader, DataLoader):
            torch.manual_seed(rank)
            sampler = make()
            loader = kind(numbered, 8, sampler=sampler, drop_last=drop_last)
            epochs = []
            for epoch in range(2):
                if hasattr(sampler, "set_epoch"): sampler.set_epoch(epoch)
                epochs.append([labels.tolist() for _, labels in loader])
            each.append((len(loader), len(loader.sampler), len(loader.batch_sampler), epochs))
        if each[0] != each[1]: wrong.append((name, rank, each))

    # Of a DistributedSampler the state of one rank is enough; one that draws is refused.
    def resumed(make, state_of):
        torch.manual_seed(rank)
        sampler = make()
        loader = DataLoader(numbered, 4, sampler=sampler)
        if hasattr(sampler, "set_epoch"): sampler.set_epoch(3)
        iterator = iter(loader)
        next(iterator), next(iterator)
        states = [None] * ranks
        dist.all_gather_object(states, loader.state_dict())
        rest = [labels.tolist() for _, labels in iterator]
        sampler = make()
        again = DataLoader(numbered, 4, sampler=sampler)
        again.load_state_dict(states[state_of(rank)])
        return [labels.tolist() for _, labels in again] == rest and again.state_dict()["epoch"]
    if resumed(lambda: DistributedSampler(numbered), lambda rank: 0) != 4: wrong.append("state of rank 0")
    if resumed(lambda: torch_data.SubsetRandomSampler(range(20)), lambda rank: rank) != 1: wrong.append("own states")
    try:
        resumed(lambda: torch_data.SubsetRandomSampler(range(20)), lambda rank: 0)
        refused = rank == 0
    except ValueError as error:
        refused = rank == 1 and "SubsetRandomSampler draws" in str(error)
    if not refused: wrong.append("one that draws")

    # What would be shared out twice is refused, however the sampler is called.
    for make in (Part, lambda: Repeated(numbered), lambda: DistributedSampler(numbered)):
        try:
            DataLoader(numbered, 8, sampler=make(), distributed=True)
            wrong.append("shared out twice")
        except ValueError as error:
            if "leave distributed out" not in str(error): wrong.append(str(error))
    own = DataLoader(numbered, 8, sampler=torch_data.SubsetRandomSampler(range(40)), distributed=True)
    got = [None] * ranks
    dist.all_gather_object(got, [int(label) for _, labels in own for label in labels])
    if sorted(got[0] + got[1]) != list(range(40)): wrong.append(got)
    print(json.dumps(wrong))
"""


def test_two_ranks_read_what_they_read_with_torch(numbered: ImageFolder, tmp_path: Path) -> None:
    assert on_two_ranks(tmp_path, RANKS, numbered.root) == ["[]", "[]"]


def test_ranks_share_out_one_order_or_none(numbered: ImageFolder) -> None:
    def read(sampler: Callable[[], Any], rank: int) -> list[int]:
        torch.manual_seed(rank)
        loader = DataLoader(numbered, 8, sampler=sampler(), distributed=(rank, 2))
        return [label for batch in batches(loader) for label in batch]

    for sampler in (
        lambda: torch_data.SubsetRandomSampler(range(30, 40)),
        lambda: torch_data.RandomSampler(numbered, replacement=True, num_samples=60, generator=drawing(2)),
        lambda: [7, 7, 8, 9],
    ):
        torch.manual_seed(0)
        whole = batches(torch_data.DataLoader(numbered, 100, sampler=sampler()))[0]
        both = read(sampler, 0) + read(sampler, 1)
        assert len(both) == len(whole) and (len(whole) == 60 or sorted(both) == sorted(whole))
    for rank in range(2):
        with pytest.raises(ValueError, match="Own yields another order"):
            read(lambda: Own(SAMPLES), rank)
