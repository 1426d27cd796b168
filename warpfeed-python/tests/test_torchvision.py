"""Each class of torchvision's is converted, with the bytes that it gives on PIL images, or refused by name."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
tv = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")

from torchvision.datasets import ImageFolder  # noqa: E402
from torchvision.transforms import InterpolationMode as Filter  # noqa: E402

from warpfeed.torch import DataLoader  # noqa: E402

BICUBIC = Filter.BICUBIC
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SQUARE = [tv.Resize((48, 40))]

# Transforms that draw nothing, or whose draw is certain: the bytes must be equal.
EXACT: dict[str, list[Any]] = {
    "resize": [tv.Resize(40), tv.CenterCrop(40)],
    "resize bicubic": [tv.Resize(40, BICUBIC), tv.CenterCrop(40)],
    "resize to both sides": [tv.Resize((31, 47))],
    "resize, longer side": [tv.Resize(40, max_size=64), tv.CenterCrop(64)],
    "nearest": [tv.Resize((31, 47), Filter.NEAREST)],
    "lanczos": [tv.Resize((31, 47), Filter.LANCZOS)],
    "center crop, larger": [*SQUARE, tv.CenterCrop(64)],
    "pad": [*SQUARE, tv.Pad((3, 5, 7, 9), fill=(10, 20, 30))],
    "pad, reflect": [*SQUARE, tv.Pad(6, padding_mode="reflect")],
    "pad, edge": [*SQUARE, tv.Pad((4, 2), padding_mode="edge")],
    "flip": [*SQUARE, tv.RandomHorizontalFlip(1.0)],
    "vertical flip": [*SQUARE, tv.RandomVerticalFlip(1.0)],
    "rotation": [*SQUARE, tv.RandomRotation((17, 17))],
    "rotation, bilinear, filled": [*SQUARE, tv.RandomRotation((33, 33), Filter.BILINEAR, fill=(9, 8, 7))],
    "rotation, canvas grows": [*SQUARE, tv.RandomRotation((33, 33), expand=True)],
    "rotation about a point": [*SQUARE, tv.RandomRotation((20, 20), center=(5, 9))],
    "affine": [*SQUARE, tv.RandomAffine((10, 10), scale=(1.2, 1.2), shear=(4, 4, 2, 2), interpolation=Filter.BILINEAR)],
    "jitter of brightness": [*SQUARE, tv.ColorJitter(brightness=(1.3, 1.3))],
    "jitter of contrast": [*SQUARE, tv.ColorJitter(contrast=(0.7, 0.7))],
    "jitter of saturation": [*SQUARE, tv.ColorJitter(saturation=(1.6, 1.6))],
    "jitter of hue": [*SQUARE, tv.ColorJitter(hue=(0.2, 0.2))],
    "gray": [*SQUARE, tv.Grayscale(3)],
    "random gray": [*SQUARE, tv.RandomGrayscale(1.0)],
    "invert": [*SQUARE, tv.RandomInvert(1.0)],
    "posterize": [*SQUARE, tv.RandomPosterize(3, 1.0)],
    "solarize": [*SQUARE, tv.RandomSolarize(130, 1.0)],
    "equalize": [*SQUARE, tv.RandomEqualize(1.0)],
    "autocontrast": [*SQUARE, tv.RandomAutocontrast(1.0)],
    "sharpness": [*SQUARE, tv.RandomAdjustSharpness(2.5, 1.0)],
    "apply": [*SQUARE, tv.RandomApply([tv.RandomVerticalFlip(1.0), tv.RandomInvert(1.0)], 1.0)],
    "crop of everything": [*SQUARE, tv.RandomCrop((48, 40))],
    "v2 resize": [v2.RGB(), v2.Resize(40), v2.CenterCrop(40), v2.Identity()],
    "v2 apply": [*SQUARE, v2.RandomApply([v2.RandomHorizontalFlip(1.0)], 1.0)],
}
ENDS: dict[str, list[Any]] = {
    "ToTensor": [tv.ToTensor()],
    "normalize": [tv.ToTensor(), tv.Normalize(MEAN, STD)],
    "PILToTensor": [tv.PILToTensor()],
    "ConvertImageDtype": [tv.PILToTensor(), tv.ConvertImageDtype(torch.float32), tv.Normalize(MEAN, STD)],
}
# Transforms whose draws are others: they run, and their parameters arrive.
RANDOM: list[Any] = [
    tv.RandomResizedCrop((24, 32), scale=(0.3, 0.9), ratio=(0.5, 2.0), interpolation=BICUBIC), tv.RandomCrop(32, padding=4),
    tv.RandomCrop(32, padding=4, padding_mode="reflect"), tv.ColorJitter(0.4, 0.4, 0.4, 0.1), tv.GaussianBlur((3, 9), (0.1, 2.0)),
    tv.ElasticTransform(), tv.RandomPerspective(0.4, 0.5), tv.RandAugment(3, 7), tv.AutoAugment(),
    tv.AutoAugment(tv.AutoAugmentPolicy.CIFAR10), tv.TrivialAugmentWide(), tv.AugMix(), tv.RandomAffine(10, (0.1, 0.2)),
    tv.RandomChoice([tv.RandomInvert(1.0), tv.RandomEqualize(1.0)], p=[1, 3]), tv.RandomOrder([tv.RandomInvert(), tv.RandomEqualize()]),
    v2.RandomPhotometricDistort(), v2.RandAugment(), v2.JPEG((50, 90)), v2.RandomChannelPermutation(), v2.RandomZoomOut(fill=3),
]  # fmt: skip


def both(photos: Path, steps: list[Any]) -> tuple[Any, Any]:
    data = ImageFolder(str(photos), tv.Compose(steps))
    images, _ = next(iter(DataLoader(data, 12)))
    return images, torch.stack([data[i][0] for i in range(12)])


@pytest.mark.parametrize("name", EXACT)
def test_bytes_are_torchvisions(photos: Path, name: str) -> None:
    ours, theirs = both(photos, [*EXACT[name], tv.PILToTensor()])
    assert ours.dtype == theirs.dtype == torch.uint8 and torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ENDS)
def test_values_are_torchvisions(photos: Path, name: str) -> None:
    ours, theirs = both(photos, [*EXACT["resize"], *ENDS[name]])
    assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def test_scaling_by_v2_differs_in_the_last_bit(photos: Path) -> None:
    """v2 multiplies by 1/255, where ToTensor and this package divide by 255."""
    steps = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), v2.ToPureTensor()]
    ours, theirs = both(photos, [*EXACT["resize"], *steps])
    assert torch.allclose(ours, theirs, rtol=0, atol=5e-7)


def test_images_of_different_sizes(photos: Path, tmp_path: Path) -> None:
    from PIL import Image

    for i, size in enumerate(((40, 30), (20, 60))):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.new("RGB", size, (i, 2, 3)).save(tmp_path / "a" / f"{i}.png")
    data = ImageFolder(str(tmp_path), tv.ToTensor())
    with pytest.raises(ValueError, match="ragged=True"):
        next(iter(DataLoader(data, 2)))
    images, _ = next(iter(DataLoader(data, 2, ragged=True)))
    assert [tuple(image.shape) for image in images] == [(3, 30, 40), (3, 60, 20)]
    padded, _ = next(iter(DataLoader(data, 2, pad_to=32)))
    assert padded.shape == (2, 3, 64, 64)


@pytest.mark.parametrize("transform", RANDOM, ids=lambda transform: type(transform).__name__)
def test_random_transforms_are_converted(photos: Path, transform: Any) -> None:
    data = ImageFolder(str(photos), tv.Compose([tv.Resize((48, 40)), transform, tv.Resize((24, 32)), tv.ToTensor()]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images, _ = next(iter(DataLoader(data, 8)))
    assert images.shape == (8, 3, 24, 32)


def test_batches_of_a_training_are_torchvisions_with_the_same_draws(photos: Path) -> None:
    """The loaders draw from different generators. With what this one has drawn, torchvision makes the same bytes."""
    steps = [tv.RandomResizedCrop(40, (0.3, 1.0)), tv.RandomHorizontalFlip(), tv.ToTensor(), tv.Normalize(MEAN, STD)]
    data = ImageFolder(str(photos), tv.Compose(steps))
    plain = ImageFolder(str(photos))
    orders, flips = set(), 0
    loader = DataLoader(data, 12, shuffle=True, drop_last=True, output="batch", seed=5)
    for epoch in range(3):
        order: list[int] = []
        for batch in loader:
            indices = torch.from_dlpack(batch.indices).tolist()
            want, want_labels = [], []
            for index in indices:
                image, label = plain[index]
                for step in loader.recipe(index, epoch):
                    if step["op"] == "resized_crop":
                        part = step["y"], step["x"], step["height"], step["width"]
                        image = tv.functional.resized_crop(image, *part, [40, 40])
                    elif step["op"] == "hflip":
                        image, flips = tv.functional.hflip(image), flips + 1
                    else:
                        assert step["op"] == "normalize"
                        image = steps[3](steps[2](image))
                want.append(image)
                want_labels.append(label)
            assert torch.equal(torch.from_dlpack(batch.views[0]), torch.stack(want))
            assert torch.from_dlpack(batch.labels).tolist() == want_labels
            order += indices
        assert len(order) == len(set(order)) == 36
        orders.add(tuple(order))
    assert len(orders) == 3 and 30 < flips < 78


def test_erasing_comes_after_normalization(photos: Path) -> None:
    steps = [*EXACT["resize"], tv.ToTensor(), tv.Normalize(MEAN, STD), tv.RandomErasing(1.0, value="random")]
    data = ImageFolder(str(photos), tv.Compose(steps))
    images, _ = next(iter(DataLoader(data, 8)))
    plain, _ = next(iter(DataLoader(ImageFolder(str(photos), tv.Compose(steps[:-1])), 8)))
    assert 0.01 < (images != plain).float().mean() < 0.4


def test_evaluations_of_weights(photos: Path) -> None:
    from torchvision.models import ResNet50_Weights, ViT_B_16_Weights

    for weights in (ResNet50_Weights.IMAGENET1K_V1, ResNet50_Weights.IMAGENET1K_V2, ViT_B_16_Weights.IMAGENET1K_V1):
        data = ImageFolder(str(photos), weights.transforms())
        images, _ = next(iter(DataLoader(data, 6)))
        assert torch.equal(images, torch.stack([data[i][0] for i in range(6)]))


@pytest.mark.filterwarnings("ignore:in Python")
@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (tv.Compose([tv.Resize(8), tv.Lambda(lambda image: image)]), "transform 3 of 4, Lambda: a function"),
        (tv.FiveCrop(8), "FiveCrop: as views"),
        (tv.Grayscale(1), "Grayscale: one channel"),
        (tv.Resize(8, Filter.BOX), "interpolation box"),
        (tv.RandomCrop(40, padding=2, pad_if_needed=True, padding_mode="reflect"), "pad_if_needed"),
        (v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32)]), "scale=True"),
        (v2.Compose([v2.ToImage(), v2.ToDtype(torch.float16, scale=True)]), "float16"),
        (tv.Compose([tv.PILToTensor(), tv.ConvertImageDtype(torch.float16)]), "float16"),
        (v2.Compose([v2.ToImage(), v2.Resize((8, 8))]), "Resize: on tensors"),
        (tv.Compose([tv.ToTensor(), tv.Resize((8, 8))]), "Resize: on tensors"),
        (tv.Compose([tv.ToTensor(), tv.ColorJitter(0.4)]), "ColorJitter: on tensors"),
        (
            tv.Compose([tv.ToTensor(), tv.Normalize(MEAN, STD), tv.CenterCrop(8)]),
            "CenterCrop: it comes after Normalize",
        ),
        (tv.Compose([tv.ToTensor(), tv.Normalize(MEAN, STD), tv.Normalize(MEAN, STD)]), "Normalize: it comes after"),
        (tv.Compose([tv.ToTensor(), tv.Pad(2, fill=1)]), "fill of tensors"),
        (v2.Pad(2, fill={torch.Tensor: 3, "others": 0}), "fills of several kinds"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_not_converted_is_named_and_run(photos: Path, transform: Any, says: str) -> None:
    steps = [tv.Resize((20, 24)), transform]
    if not any(kind in str(transform) for kind in ("Tensor", "Image", "FiveCrop")):
        steps.append(tv.ToTensor())
    data = ImageFolder(str(photos), tv.Compose(steps))
    loader = DataLoader(data, 4)
    assert says in repr(loader)
    if "FiveCrop" not in says:
        images, _ = next(iter(loader))
        random = any(word in says for word in ("kernel", "Jitter", "pad_if"))
        assert random or torch.equal(images, torch.stack([data[i][0] for i in range(4)]))


def test_arrays_of_cifar_and_mnist(tmp_path: Path) -> None:
    import numpy
    from torchvision.datasets import CIFAR10, MNIST

    cifar, mnist = CIFAR10.__new__(CIFAR10), MNIST.__new__(MNIST)
    pixels = numpy.random.default_rng(3).integers(0, 256, (9, 32, 32, 3), dtype=numpy.uint8)
    for data, array, targets in (
        (cifar, pixels, list(range(9))),
        (mnist, torch.from_numpy(pixels[:, 2:30, 2:30, 0].copy()), torch.arange(9)),
    ):
        data.data, data.targets, data.transform, data.target_transform = array, targets, tv.ToTensor(), None
        images, labels = next(iter(DataLoader(data, 9)))
        assert torch.equal(images, torch.stack([data[i][0] for i in range(9)]))
        assert labels.tolist() == list(range(9))


@pytest.mark.skipif("WARPFEED_PHOTOS" not in os.environ, reason="WARPFEED_PHOTOS names folders of class folders")
@pytest.mark.parametrize("evaluation", ["V1", "V2"])
def test_evaluations_of_photographs_are_torchvisions(evaluation: str) -> None:
    """All bytes, for torchvision's own evaluations."""
    from torchvision.models import ResNet50_Weights

    transform = ResNet50_Weights[f"IMAGENET1K_{evaluation}"].transforms()
    images_seen = 0
    for folder in os.environ["WARPFEED_PHOTOS"].split(os.pathsep):
        theirs = ImageFolder(folder, transform)
        first = 0
        for images, labels in DataLoader(theirs, 32):
            for place, (image, label) in enumerate(zip(images, labels, strict=True)):
                want, want_label = theirs[first + place]
                assert torch.equal(image, want) and label == want_label, theirs.samples[first + place]
            first += len(labels)
        assert first == len(theirs)
        images_seen += first
    print(f"{images_seen} photographs")
