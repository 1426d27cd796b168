"""Wrong arguments: errors of Python's that name the argument, what was passed, and what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import warpfeed
from warpfeed import transforms as t
from warpfeed.numpy import DataLoader

SMALL = [t.CenterCrop(width=8, height=8)]

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"sed": 3}, TypeError, "DataLoader has no argument 'sed': did you mean 'seed'?"),
    ({"batch_size": "8"}, TypeError, "batch_size must be int, got '8' (str)"),
    ({"batch_size": None}, TypeError, "batch_size must be int, got None (NoneType)"),
    ({"batch_size": 0}, ValueError, "batch_size must be 1 or more, got 0"),
    ({"seed": "a"}, TypeError, "seed must be int | None, got 'a' (str)"),
    ({"drop_last": "yes"}, TypeError, "drop_last must be bool, got 'yes' (str)"),
    ({"on_error": "substitue"}, ValueError, "got 'substitue': did you mean 'substitute'?"),
    ({"targets": ("bytes:txt", "float=1:x")}, TypeError, "targets must be str | None, got ('bytes:txt', 'float=1:x')"),
    ({"fields": "boxes"}, TypeError, "fields must be Sequence[str] | None, got 'boxes' (str)"),
    ({"limit": -1}, ValueError, "limit must be 1 or more, got -1"),
    ({"pad_to": 0}, ValueError, "pad_to must be 1 or more, got 0"),
    ({"cache": "10GB"}, TypeError, "cache must be int | tuple[str | os.PathLike[str], int] | None, got '10GB' (str)"),
    ({"distributed": (2, 2)}, ValueError, "distributed must be (rank, ranks) with a rank below ranks, got (2, 2)"),
    ({"sampler": 3}, TypeError, "sampler must yield indices, got 3 (int)"),
    ({"sampler": iter(range(3))}, TypeError, "range_iterator has no __len__"),
    ({"transform": 5}, TypeError, "transform must be a list of warpfeed.transforms"),
    ({"transform": [5]}, TypeError, "must be one of warpfeed.transforms, its written form, or a function, got 5 (int)"),
    ({"transform": [{"transform": "random_cropp"}]}, ValueError, "did you mean 'random_crop'?"),
    ({"transform": [{"op": "resize", "heigth": 8}]}, TypeError, "resize, has no argument 'heigth': did you mean 'height'?"),
    ({"transform": [{}]}, ValueError, 'transform 1 of 1 must have "transform" or "op"'),
    ({"transform": [t.RandomCrop(0)]}, ValueError, "width must be 1 to 65535 pixels, got 0"),
    ({"transform": None, "preset": "trian"}, ValueError, "got 'trian': did you mean 'train'?"),
    ({"mix": "foo"}, ValueError, 'mix must be torchvision=A/B or timm=A/B'),
    ({"repeats": 2, "sampler": [1]}, ValueError, "repeats and a sampler exclude each other"),
    ({"batch_sampler": [[1, 2], [3]], "distributed": (0, 2)}, ValueError, "leave distributed out"),
]  # fmt: skip


@pytest.mark.parametrize("arguments, error, text", WRONG, ids=[str(next(iter(one[0].items()))) for one in WRONG])
def test_a_wrong_argument_is_named(photos: Path, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        DataLoader(photos, **{"transform": SMALL, **arguments})
    assert text in str(raised.value)
    for word in ("usize", "u32", "JSON", "serde", "line 1 column", "::"):
        assert word not in str(raised.value)


def test_what_a_sampler_yields_is_checked(photos: Path) -> None:
    for sampler, error, text in (
        ([40], ValueError, "list yields the index 40, and the data set has those of 0 to 39"),
        ([-1], ValueError, "list yields the index -1"),
        (["a"], TypeError, "list must yield whole numbers, got 'a' (str)"),
    ):
        with pytest.raises(error) as raised:
            next(iter(DataLoader(photos, transform=SMALL, sampler=sampler)))
        assert text in str(raised.value)
    assert list(DataLoader(photos, transform=SMALL, sampler=[])) == []
    uneven = DataLoader(photos, transform=SMALL, batch_sampler=[[1], [2, 3]])
    assert [len(images) for images, _ in uneven] == [1, 2]


def test_other_functions_name_arguments_too(photos: Path) -> None:
    loader = DataLoader(photos, transform=SMALL)
    preprocessor = warpfeed.Preprocessor("eval")
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: t.RandomHorizontalFlip(q=2), TypeError, "RandomHorizontalFlip has no argument 'q'"),
        (lambda: t.RandomCrop("a"), TypeError, "RandomCrop: size must be Size, got 'a' (str)"),
        (lambda: warpfeed.open(photos, fromat="folder"), TypeError, "did you mean 'format'?"),
        (lambda: warpfeed.open(photos, window=-1), ValueError, "window must be 1 or more, got -1"),
        (lambda: warpfeed.open(5), TypeError, "path must be str | os.PathLike[str], got 5 (int)"),
        (lambda: warpfeed.Preprocessor("evl"), ValueError, "did you mean 'eval'?"),
        (lambda: preprocessor(["a.jpg"]), TypeError, "images must be a list of the bytes of encoded images, got 'a.jpg'"),
        (lambda: loader.load_state_dict({}), ValueError, "this is no state of a loader: {}"),
        (lambda: loader.load_state_dict({"version": 1, "epoch": 0, "state": {"a": 1}}), ValueError, "no state of a loader"),
        (lambda: loader.set_epoch(-1), ValueError, "epoch must be 0 or more, got -1"),
        (lambda: loader.recipe(-1), ValueError, "index must be 0 or more, got -1"),
    ]  # fmt: skip
    for call, error, text in wrong:
        with pytest.raises(error) as raised:
            call()
        assert text in str(raised.value)


def test_views_have_a_class(photos: Path) -> None:
    views = t.Views([t.View(SMALL, times=2), t.View([t.CenterCrop(width=4, height=4)])])
    (large, small), _ = next(iter(DataLoader(photos, 4, transform=[views, t.RandomHorizontalFlip()])))
    assert (large.shape, small.shape) == ((8, 3, 8, 8), (4, 3, 4, 4)), "two of each sample, and one"
    # Classes in the written form too.
    written = [{"views": [{"transforms": SMALL}, {"transforms": [t.CenterCrop(width=4, height=4)]}]}]
    (_, small), _ = next(iter(DataLoader(photos, 4, transform=written)))
    assert small.shape == (4, 3, 4, 4)


def test_classes_with_names_of_others_are_not_taken_for_them(photos: Path) -> None:
    class MixUp:
        alpha, num_classes = 0.2, 4

    with pytest.raises(NotImplementedError, match="MixUp"):
        DataLoader(photos, transform=SMALL, mix=MixUp())

    class SequentialSampler:
        def __iter__(self) -> Any:
            return iter([3, 1])

        def __len__(self) -> int:
            return 2

    batches = [len(labels) for _, labels in DataLoader(photos, transform=SMALL, sampler=SequentialSampler())]
    assert batches == [1, 1]


def test_a_loader_says_what_it_is(photos: Path) -> None:
    loader = DataLoader(photos, 8, True, transform=SMALL, num_workers=2)
    assert "40 samples of 4 classes" in repr(loader) and "center_crop" in repr(loader)
    page = loader._repr_html_()
    assert "data:image/png;base64," in page and "[3, 8, 8]" in page
    missing = DataLoader([(photos / "missing.jpg", 0)], transform=SMALL)
    assert "FileMissingError" in missing._repr_html_()
