"""warpfeed.v2 against torchvision.transforms.v2: the same draws, and the values of its PIL images for all types."""

import copy
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from test_functional import pixels
from torchvision import tv_tensors
from torchvision.transforms import v2 as theirs

import warpfeed
from warpfeed import v2 as ours
from warpfeed.torch import Module
from warpfeed.transforms import Compose, RandomCrop, RandomHorizontalFlip


def made(v2: Any) -> dict[str, Any]:
    return {
        "crop": v2.RandomResizedCrop(32),
        "padded": v2.RandomCrop(40, padding=6, padding_mode="reflect"),
        "mirrors": v2.Compose([v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()]),
        "colors": v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
        "rotation": v2.RandomRotation(30, expand=True, fill=9),
        "affine": v2.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 5, interpolation=theirs.InterpolationMode.BILINEAR),
        "rand": v2.RandAugment(),
        "trivial": v2.TrivialAugmentWide(),
        "auto": v2.AutoAugment(),
        "distort": v2.RandomPhotometricDistort(),
        "zoom": v2.RandomZoomOut(fill=(1, 2, 3)),
        "erase": v2.RandomErasing(1.0),
        "tables": v2.RandomOrder(
            [v2.RandomPosterize(3), v2.RandomSolarize(99), v2.RandomInvert(), v2.RandomEqualize()]
        ),
        "choice": v2.RandomChoice([v2.RandomAutocontrast(1.0), v2.RandomAdjustSharpness(2, 1.0), v2.Grayscale(3)]),
        "sizes": v2.Compose([v2.Resize(40), v2.CenterCrop(50), v2.Pad(3), v2.RandomShortestSize(30)]),
        "five": v2.FiveCrop(30),
        "jpeg": v2.JPEG(50),
        "channels": v2.RandomChannelPermutation(),
        "floats": v2.Compose(
            [v2.RandomCrop(30), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]
        ),
    }


def numbers(value: Any) -> Any:
    if isinstance(value, tuple):
        return numpy.stack([numbers(part) for part in value])
    array = numpy.asarray(value)
    return array.transpose(1, 2, 0) if isinstance(value, torch.Tensor) else array


@pytest.mark.parametrize("name", made(theirs))
def test_draws_and_values_are_torchvisions_for_all_types(name: str) -> None:
    array = pixels()
    image, tensor = Image.fromarray(array), torch.from_numpy(array).permute(2, 0, 1)
    own, peer = made(ours)[name], made(theirs)[name]
    assert repr(own) == repr(peer)
    own = pickle.loads(pickle.dumps(copy.deepcopy(own)))
    for seed in range(8):
        results = []
        for transform, inpt in ((peer, image), (own, image), (own, tensor)):
            torch.manual_seed(seed)
            results.append(numbers(torch.nn.Sequential(transform)(inpt)))
        differences = numpy.abs(results[0].astype(float) - results[1].astype(float))
        # A sine of another mathematical library moves a value that lies halfway between two.
        assert differences.max() <= (name == "affine") and (differences > 0).mean() < 1e-3, seed
        assert numpy.array_equal(results[1], results[2]), seed


def test_objects_move_as_torchvisions() -> None:
    sample = {
        "image": tv_tensors.Image(torch.from_numpy(pixels()).permute(2, 0, 1)),
        "boxes": tv_tensors.BoundingBoxes(
            torch.tensor([[5.0, 6, 30, 40], [20, 10, 60, 30]]), format="XYXY", canvas_size=(47, 61)
        ),
        "labels": torch.tensor([3, 4]),
        "masks": tv_tensors.Mask(torch.ones(2, 47, 61, dtype=torch.uint8)),
        "name": "text",
    }
    results = []
    for v2 in (theirs, ours):
        torch.manual_seed(1)
        steps = [v2.RandomZoomOut(p=1.0), v2.RandomIoUCrop(), v2.RandomHorizontalFlip(1.0), v2.SanitizeBoundingBoxes()]
        results.append(v2.Compose(steps)(sample))
    peer, own = results
    assert torch.allclose(own["boxes"], peer["boxes"], atol=1e-3) and torch.equal(own["labels"], peer["labels"])
    assert torch.equal(own["masks"], peer["masks"]) and torch.equal(own["image"], peer["image"])
    assert own["name"] == "text" and own["boxes"].canvas_size == peer["boxes"].canvas_size


def test_warnings_are_torchvisions() -> None:
    boxes = tv_tensors.BoundingBoxes(torch.tensor([[5.0, 6, 30, 40]]), format="XYXY", canvas_size=(47, 61))
    sample = (torch.from_numpy(pixels()).permute(2, 0, 1), boxes)
    for v2 in (theirs, ours):
        with pytest.warns(UserWarning, match="RandomErasing() is currently passing through".replace("()", r"\(\)")):
            assert v2.RandomErasing(1.0)(sample)[1] is boxes


def test_what_has_no_values_here_is_refused() -> None:
    assert ours.functional.resize is warpfeed.functional.resize
    with pytest.raises(warpfeed.UnsupportedError, match="mode CMYK"):
        ours.RandomVerticalFlip(1.0)(Image.new("CMYK", (4, 4)))


def test_lists_are_modules() -> None:
    steps = [RandomCrop(32), RandomHorizontalFlip()]
    chain = torch.nn.Sequential(Module(steps), Module(RandomHorizontalFlip(p=1.0)))
    batch = torch.from_numpy(pixels()).permute(2, 0, 1).expand(5, 3, 47, 61)
    torch.manual_seed(3)
    want = chain(batch)
    torch.manual_seed(3)
    assert torch.equal(pickle.loads(pickle.dumps(chain))(batch), want) and want.shape == (5, 3, 32, 32)
    assert "RandomCrop" in repr(chain) and len(want.unique(dim=0)) > 1


class Drawn(torch.utils.data.Dataset[Any]):
    """One image many times, each crop drawn anew or by its key."""

    def __init__(self, compose: Compose, keyed: bool) -> None:
        self.compose, self.keyed, self.epoch = compose, keyed, 0
        self.image = torch.from_numpy(pixels()).permute(2, 0, 1).contiguous()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.compose(self.image, key=(7, self.epoch, index) if self.keyed else None)


def epochs(keyed: bool, workers: int, context: str | None = None, number: int = 2) -> list[torch.Tensor]:
    torch.manual_seed(11)
    data = Drawn(Compose([RandomCrop(24), RandomHorizontalFlip()]), keyed)
    loader: Any = torch.utils.data.DataLoader(
        data, 4, num_workers=workers, multiprocessing_context=context, persistent_workers=workers > 0
    )
    return [torch.cat(list(loader)) for _ in range(number)]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_draws_in_worker_processes(context: str) -> None:
    first, second = epochs(False, 2, context)
    again, _ = epochs(False, 2, context)
    assert torch.equal(first, again), "the seed of torch decides"
    assert not torch.equal(first, second), "another epoch draws anew, in workers that stay"
    # Batch 0 is the first worker's, batch 1 the second's.
    assert not torch.equal(first[:4], first[4:8])
    assert len(first.flatten(1).unique(dim=0)) > 8
    alone = epochs(True, 0)[0]
    assert torch.equal(alone, epochs(True, 1, context, 1)[0])
    assert torch.equal(alone, epochs(True, 4, context, 1)[0])


def test_draws_in_threads() -> None:
    compose = Compose([RandomCrop(24), RandomHorizontalFlip()])
    image = pixels()
    want = [compose(image, key=(1, 2, i)) for i in range(64)]
    with ThreadPoolExecutor(16) as threads:
        for _ in range(5):
            got = list(threads.map(lambda i: compose(image, key=(1, 2, i)), range(64)))
            assert all(numpy.array_equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize(
    "settings",
    [
        {"color_jitter": 0.4, "re_prob": 0.25, "interpolation": "bilinear"},
        {"auto_augment": "rand-m9-mstd0.5-inc1", "interpolation": "bicubic", "re_prob": 0.5, "re_mode": "pixel"},
        {"vflip": 0.5, "grayscale_prob": 0.3, "color_jitter": (0.4, 0.4, 0.4, 0.1)},
        {"is_training": False, "crop_pct": 0.9, "interpolation": "bicubic"},
    ],
)
def test_timms_transforms_by_one_changed_import(monkeypatch, settings):
    """timm's `create_transform`, whose module has `from torchvision import transforms`."""
    factory = pytest.importorskip("timm.data.transforms_factory")
    image = Image.fromarray(pixels()).resize((320, 240))

    def results():
        transform = factory.create_transform(**{"input_size": (3, 96, 96), "is_training": True, **settings})
        for module in (torch, random, numpy.random):
            (module.manual_seed if module is torch else module.seed)(3)
        return torch.stack([transform(image) for _ in range(12)])

    want = results()
    monkeypatch.setattr(factory, "transforms", ours)
    assert torch.equal(results(), want)
