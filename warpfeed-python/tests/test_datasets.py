"""Every data set means what it says: its labels are delivered, or it is refused by name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")
sets = pytest.importorskip("torchvision.datasets")
tv = pytest.importorskip("torchvision.transforms")
datasets = pytest.importorskip("datasets")

from PIL import Image  # noqa: E402

import warpfeed  # noqa: E402
from warpfeed import transforms as t  # noqa: E402
from warpfeed.torch import DataLoader  # noqa: E402

LABELS = [3, 0, 2, 1]
FILES = [
    "ImageFolder",
    "DatasetFolder",
    "ImageNet",
    "EuroSAT",
    "Country211",
    "Imagenette",
    "GTSRB",
    "StanfordCars",
    "RenderedSST2",
]
PARALLEL = ["DTD", "FGVCAircraft", "Flowers102", "Food101", "SUN397", "OxfordIIITPet"]
ARRAYS = ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "KMNIST", "EMNIST", "SVHN", "STL10", "USPS", "SEMEION"]


def labels_of(dataset: Any, **options: Any) -> list[int | None]:
    loader = DataLoader(dataset, 2, device="cpu", transform=[t.CenterCrop(8, 8)], entry_points="none", **options)
    return [
        None if batch is None else int(label)
        for _, batch in loader
        for label in (batch if batch is not None else [0, 0])
    ]


def pictures(folder: Path) -> list[str]:
    paths = []
    for i in range(len(LABELS)):
        paths.append(str(folder / f"{i}.png"))
        Image.new("RGB", (8, 8), (i, i, i)).save(paths[-1])
    return paths


def made(name: str, folder: Path) -> Any:
    """A data set of a class of torchvision's as its constructor leaves it, without the download."""
    own = getattr(sets, name).__new__(getattr(sets, name))
    paths = pictures(folder)
    own.transform = own.target_transform = own.transforms = None
    own.root, own.loader = str(folder), sets.folder.default_loader
    if name in FILES:
        own.samples = own._samples = own.imgs = list(zip(paths, LABELS, strict=True))
        own.targets, own.classes = LABELS, list("abcd")
    elif name in PARALLEL:
        own._image_files = own._images = paths
        own._labels, own.classes, own._loader = LABELS, list("abcd"), sets.folder.default_loader
        own._bin_labels, own._target_types = [1, 0, 0, 1], ["category"]
    elif name in ARRAYS:
        gray = name.endswith("MNIST") or name in ("USPS", "SEMEION")
        shape = (4, 8, 8) if gray else (4, 3, 8, 8) if name in ("SVHN", "STL10") else (4, 8, 8, 3)
        own.data = numpy.zeros(shape, "uint8")
        own.data = torch.from_numpy(own.data) if name.endswith("MNIST") else own.data
        own.targets = torch.tensor(LABELS) if name.endswith("MNIST") else LABELS
        own.labels, own.classes = numpy.array(LABELS), None
    return own


@pytest.mark.parametrize("name", sorted(set(sets.__all__) - {"wrap_dataset_for_transforms_v2"}))
def test_torchvision_data_sets_have_their_labels_or_are_refused(name: str, tmp_path: Path) -> None:
    own = made(name, tmp_path)
    if name in FILES + PARALLEL + ARRAYS:
        if name in FILES + PARALLEL:
            assert [own[i][1] for i in range(4)] == LABELS
        assert labels_of(own) == LABELS
        return
    # Others run in Python, if they can tell their length.
    try:
        len(own)
    except Exception as error:
        with pytest.raises(type(error)):
            DataLoader(own)
    else:
        assert DataLoader(own)._plan is not None


def test_the_target_type_decides(tmp_path: Path) -> None:
    pets = made("OxfordIIITPet", tmp_path)
    pets._segs, to_tensor = pets._images, tv.ToTensor()
    for types in (["binary-category"], ["category", "binary-category"], ["segmentation"], []):
        pets._target_types = types
        if types != ["segmentation"]:
            pets.transform, pets.transforms = to_tensor, sets.vision.StandardTransform(to_tensor)
        else:
            pets.transform, pets.transforms = None, lambda image, mask: (to_tensor(image), to_tensor(mask))
        if not types:
            continue
        loader = DataLoader(pets, 2)
        assert (loader._plan is None) == (types == ["binary-category"])
        for own, other in zip(loader, torch.utils.data.DataLoader(pets, 2), strict=True):
            assert str(own) == str(other), types


def test_what_a_data_set_opens_itself_is_not_bypassed(tmp_path: Path) -> None:
    for i, path in enumerate(pictures(tmp_path)):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        Path(path).rename(tmp_path / "ab"[i % 2] / f"{i}.png")
    plain = sets.ImageFolder(tmp_path)
    assert labels_of(torch.utils.data.Subset(plain, [0, 3])) == [0, 1]

    def pil_loader(path: str) -> Any:
        return Image.open(path)

    with pytest.raises(warpfeed.UnsupportedError, match="pil_loader"):
        labels_of(sets.ImageFolder(tmp_path, loader=pil_loader))
    drawn = iter(range(100))
    counted = sets.ImageFolder(tmp_path, tv.ToTensor(), target_transform=lambda label: next(drawn))
    got = [int(label) for _, labels in DataLoader(counted, 2, num_workers=0, check=False) for label in labels]
    assert got == [0, 1, 2, 3]


def test_no_label_is_none_and_said(tmp_path: Path) -> None:
    stl = made("STL10", tmp_path)
    stl.labels = stl.targets = numpy.array([-1] * 4)
    with pytest.warns(UserWarning, match="no labels"):
        assert labels_of(stl) == [None] * 4
    stl.labels = stl.targets = numpy.array([1, -1, 0, 2])
    with pytest.raises(warpfeed.UnsupportedError, match="row 1"):
        labels_of(stl)
    with pytest.warns(UserWarning, match="no labels"):
        assert labels_of([(path, None) for path in pictures(tmp_path)]) == [None] * 4
    with pytest.warns(UserWarning, match="no labels"):
        loader = DataLoader(str(tmp_path), 4, device="cpu", transform=[t.CenterCrop(8, 8)], output="dict")
    assert list(next(iter(loader))) == ["pixel_values"]

    class Reads:
        def __init__(self, target: Any) -> None:
            self.target = target

        def __len__(self) -> int:
            return 2

        def read(self, i: int) -> Any:
            return str(tmp_path / f"{i}.png"), self.target

    assert labels_of(Reads(5)) == [5, 5]
    with pytest.warns(UserWarning, match="no labels"):
        assert labels_of(Reads(None)) == [None, None]


pytestmark = pytest.mark.filterwarnings("ignore:in Python")
C, V = datasets.ClassLabel(names=list("abcd")), datasets.Value


def table(**columns: tuple[Any, list[Any]]) -> Any:
    images = [Image.new("RGB", (8, 8), (i, i, i)) for i in range(4)]
    values = {"image": images} | {name: values for name, (_, values) in columns.items()}
    features = {"image": datasets.Image()} | {name: feature for name, (feature, _) in columns.items()}
    return datasets.Dataset.from_dict(values, features=datasets.Features(features))


@pytest.mark.parametrize(
    ("columns", "want"),
    [
        ({"label": (C, LABELS)}, LABELS),
        ({"kind": (C, LABELS)}, LABELS),
        ({"label": (V("int64"), LABELS)}, LABELS),
        ({"labels": (V("int32"), LABELS)}, LABELS),
        ({"label": (V("uint8"), LABELS)}, LABELS),
        ({"label": (V("string"), list("dbac"))}, LABELS[:0] + [3, 1, 0, 2]),
        ({"label": (V("bool"), [True, False, True, False])}, [1, 0, 1, 0]),
        ({"label": (C, LABELS), "coarse_label": (C, [0] * 4)}, LABELS),
        ({"label": (C, [-1] * 4)}, [None] * 4),
        ({"text": (V("string"), list("dbac"))}, [None] * 4),
        ({"fine_label": (C, LABELS), "coarse_label": (C, [0] * 4)}, "fine_label, coarse_label"),
        ({"target": (V("int64"), LABELS)}, "target"),
        ({"label": (datasets.Sequence(V("int64")), [[1]] * 4)}, "the column label"),
        ({"label": (V("float32"), [0.5] * 4)}, "the column label"),
        ({"label": (C, [0, -1, 2, 3])}, "row 1"),
        ({"label": (V("string"), ["a", None, "b", "c"])}, "row 1"),
        ({"label": (V("int64"), [0, None, 2, 3])}, "row 1"),
        ({"label": (V("int64"), [0, -2, 2, 3])}, "has -2"),
    ],
    ids=str,
)
def test_columns_of_hugging_face_are_labels_or_asked_for(columns: Any, want: Any) -> None:
    if isinstance(want, str):
        with pytest.raises(warpfeed.UnsupportedError, match=want):
            labels_of(table(**columns))
    elif want[0] is None:
        with pytest.warns(UserWarning, match="no labels"):
            assert labels_of(table(**columns)) == want
    else:
        assert labels_of(table(**columns)) == want


def test_functions_of_hugging_face_are_not_dropped(tmp_path: Path) -> None:
    own = table(label=(C, LABELS), other_label=(C, [0] * 4))
    to_tensor = tv.ToTensor()
    changed = own.with_transform(
        lambda rows: {"pixels": [to_tensor(image) for image in rows["image"]], "x": rows["label"]}
    )
    for ours, theirs in zip(DataLoader(changed, 3), torch.utils.data.DataLoader(changed, 3), strict=True):
        assert torch.equal(ours["pixels"], theirs["pixels"]) and torch.equal(ours["x"], theirs["x"])
    assert labels_of(own.with_format("torch")) == LABELS
    assert labels_of(own.with_format("torch", columns=["image", "other_label"])) == [0] * 4
    assert labels_of(own.select([2, 0])) == [2, 3]
    assert labels_of(own.rename_column("label", "x").rename_column("other_label", "label")) == [0] * 4
    gray = own.cast_column("image", datasets.Image(mode="L"))
    with pytest.raises(warpfeed.UnsupportedError, match="converts images to L"):
        labels_of(gray)
    own.remove_columns("other_label").to_parquet(tmp_path / "x.parquet")
    assert pickle.loads(pickle.dumps(warpfeed.Error)) is warpfeed.Error


def test_columns_of_hugging_face_are_delivered_by_name() -> None:
    F = V("float32")
    own = table(
        label=(C, LABELS),
        text=(V("string"), list("dbac")),
        weight=(F, [0.5, 1, 2, 4]),
        tags=(datasets.Sequence(F), [[0, 1]] * 4),
    )
    columns = {"pixel_values": "image", "labels": "label", "caption": "text", "weight": "weight"}
    for options in ({}, {"num_workers": 0}):
        loader = DataLoader(own.select([2, 0, 3]), 2, columns=columns, shuffle=True, **options)
        assert set(loader._found.target_of.numbers) == {"label", "weight"}, "the others are read row by row"
        got = list(loader)
        assert sum(len(batch["labels"]) for batch in got) == 3
        for batch in got:
            assert list(batch) == list(columns) and batch["pixel_values"].shape[1:] == (3, 8, 8)
            for image, label, caption, weight in zip(*batch.values(), strict=True):
                row = LABELS.index(int(label))
                assert round(float(image.max()) * 255) == row and caption == "dbac"[row]
                assert weight == [0.5, 1, 2, 4][row]
    several = own.with_format("torch", columns=["image", "tags"])
    (batch,) = DataLoader(several, 4, columns={"image": "image", "tags": "tags"})
    assert torch.equal(batch["tags"], torch.tensor([[0.0, 1.0]] * 4))
    rows: list[Any] = []
    (kept,) = DataLoader(
        own, 4, columns={"image": "image", "tags": "tags"}, collate_fn=lambda batch: rows.extend(batch) or 5
    )
    assert kept == 5 and rows[0]["tags"] == [0.0, 1.0]
    with pytest.raises(warpfeed.ParameterError, match="no column x"):
        DataLoader(own, columns={"image": "image", "y": "x"})
    with pytest.raises(warpfeed.ParameterError, match="Hugging Face"):
        DataLoader([("a.jpg", 1)], columns={"image": "image"})
    second = own.select_columns("image").rename_column("image", "other")
    both = datasets.concatenate_datasets([own, second], axis=1)
    with pytest.raises(TypeError, match="columns="):
        DataLoader(both)
    names = {"left": "image", "right": "other", "label": "label"}
    (batch,) = DataLoader(both, 4, columns=names, transform=tv.ToTensor())
    assert torch.equal(batch["left"], batch["right"]) and batch["left"].shape == (4, 3, 8, 8)


def test_targets_of_pairs_are_anything(tmp_path: Path) -> None:
    paths = pictures(tmp_path)
    for targets in (list("dbac"), [0.5, 1.5, 2.5, 3.5], [torch.ones(2) * i for i in range(4)]):
        pairs = list(zip(paths, targets, strict=True))
        got = [target for _, batch in DataLoader(pairs, 3, num_workers=1) for target in batch]
        theirs = [one for batch in torch.utils.data.DataLoader(targets, 3) for one in batch]
        assert all(str(one) == str(other) for one, other in zip(got, theirs, strict=True))
    floats = DataLoader(list(zip(paths, [[0.5, 1]] * 4, strict=True)), 4, targets="float=2")
    assert next(iter(floats))[1].tolist() == [[0.5, 1]] * 4


def test_orientation_is_applied_only_by_paths(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm.data")
    from warpfeed.timm import create_loader

    (tmp_path / "a").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 4)).save(tmp_path / "a" / "0.jpg", exif=exif)
    to_tensor, path = tv.ToTensor(), str(tmp_path)
    for own, turned in (
        (DataLoader(path, 1), True),
        (DataLoader(path, 1, orientation="ignore"), False),
        (DataLoader(sets.ImageFolder(path, to_tensor), 1), False),
        (DataLoader(timm.ImageDataset(path, transform=to_tensor), 1), False),
    ):
        assert next(iter(own))[0].shape == ((1, 3, 8, 4) if turned else (1, 3, 4, 8))
    ours = next(iter(create_loader(path, (3, 4, 4), 1, crop_pct=1.0)))[0]
    theirs = next(iter(create_loader(timm.ImageDataset(path), (3, 4, 4), 1, crop_pct=1.0)))[0]
    assert torch.equal(ours, theirs)


def test_detection_fields_have_image_ids_and_a_base(scenes: Path) -> None:
    import json

    from warpfeed.numpy import DataLoader as Numpy

    annotations = json.loads((scenes / "annotations.json").read_text())
    ids = {str(scenes / "images" / image["file_name"]): image["id"] for image in annotations["images"]}
    own = warpfeed.open(scenes / "images", format="coco", annotations=scenes / "annotations.json")
    output = {"images": "images", "targets": "labels", "path": "names"}
    options = {"preset": "faster-rcnn", "seed": 0, "fields": ("boxes", "labels", "image_id")}
    from_0, from_1 = ([*DataLoader(own, 5, output=output, label_base=base, **options)] for base in (0, 1))
    for one, other in zip(from_0, from_1, strict=True):
        for path, target, second in zip(one["path"], one["targets"], other["targets"], strict=True):
            assert target["image_id"] == ids[path]
            assert torch.equal(target["labels"] + 1, second["labels"]) and torch.equal(target["boxes"], second["boxes"])
        assert all(image.dim() == 3 for image in one["images"])
    images, targets = next(iter(Numpy(own, 5, **options)))
    assert numpy.array_equal(targets[0]["boxes"], from_0[0]["targets"][0]["boxes"]) and len(images) == 5


def changes(dataset: Any) -> dict[str, Any]:
    """What a training script may change after its loader was made."""
    return {
        "another transform": lambda: setattr(dataset, "transform", tv.Compose([tv.Resize((6, 4)), tv.ToTensor()])),
        "a transform's size": lambda: setattr(dataset.transform.transforms[0], "size", (4, 6)),
        "a further transform": lambda: dataset.transform.transforms.append(tv.Normalize([0.5] * 3, [0.5] * 3)),
        "a target_transform": lambda: setattr(dataset, "target_transform", lambda label: label + 10),
        "the samples": lambda: dataset.samples.reverse(),
        "a label": lambda: dataset.samples.__setitem__(0, (dataset.samples[0][0], 9)),
    }


@pytest.mark.parametrize("change", changes(None))
@pytest.mark.parametrize("part", [False, True])
def test_what_is_changed_after_the_loader_was_made_counts(tmp_path: Path, change: str, part: bool) -> None:
    (tmp_path / "class").mkdir()
    pictures(tmp_path / "class")
    dataset = sets.ImageFolder(str(tmp_path), tv.Compose([tv.Resize((5, 5)), tv.ToTensor()]))
    whole = torch.utils.data.Subset(dataset, [3, 1, 0]) if part else dataset
    loader, theirs = DataLoader(whole, 2), torch.utils.data.DataLoader(whole, 2)
    assert [images.shape for images, _ in loader] == [images.shape for images, _ in theirs]
    changes(dataset)[change]()
    for (images, labels), (torchs, torchs_labels) in zip(loader, theirs, strict=True):
        assert torch.equal(labels, torchs_labels) and torch.equal(images, torchs)


def test_an_epoch_that_goes_on_is_the_same_without_changes(tmp_path: Path) -> None:
    """Only a change has the data set converted again."""
    (tmp_path / "class").mkdir()
    pictures(tmp_path / "class")
    loader = DataLoader(sets.ImageFolder(str(tmp_path), tv.Compose([tv.RandomCrop(5), tv.ToTensor()])), 2)
    source = loader._source
    assert len(list(loader)) == len(list(loader)) == 2 and loader._source is source
