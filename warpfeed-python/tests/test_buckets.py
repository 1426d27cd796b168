"""Batches by shape, beside what they should be by the sizes of the images alone."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy
import pytest

import warpfeed
from warpfeed.numpy import DataLoader
from warpfeed.transforms import BucketCrop, Normalize, RandomHorizontalFlip

SIZES = [(40, 30), (30, 40), (32, 32), (64, 20), (20, 64), (48, 36)]
BUCKETS = [(32, 24), (24, 32), (28, 28), (40, 16), (16, 40)]


def picture(width: int, height: int, seed: int, orientation: int = 1) -> bytes:
    image = pytest.importorskip("PIL.Image")
    pixels = numpy.random.default_rng(seed).integers(0, 256, (height, width, 3), numpy.uint8)
    file, exif = io.BytesIO(), image.Exif()
    exif[0x0112] = orientation
    image.fromarray(pixels).save(file, "JPEG", exif=exif)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    for index in range(60):
        width, height = SIZES[index * index % len(SIZES)]
        # Every fourth is stored on its side.
        turned = index % 4 == 0
        sides = (height, width) if turned else (width, height)
        (tmp_path / "a" / f"{index:03}.jpg").write_bytes(picture(*sides, index, 6 if turned else 1))
    return tmp_path


def steps(folder: Path, rank: int, ranks: int, **more: object) -> list[tuple[tuple[int, ...], list[str]]]:
    from warpfeed.torch import DataLoader as Torchs

    transform = [BucketCrop(random=True), RandomHorizontalFlip(), Normalize(0.5, 0.5)]
    output = {"images": "images", "names": "names"}
    given = {"shuffle": True, "seed": 3, "distributed": (rank, ranks), "output": output, "orientation": "apply"}
    loader = Torchs(folder, 4, buckets=BUCKETS, transform=transform, **given, **more)
    batches = [(tuple(batch["images"].shape[2:]), batch["names"]) for batch in loader]
    assert len(loader) == len(batches)
    return batches


def test_ranks_have_equal_shapes_and_every_image_comes(folder: Path) -> None:
    pytest.importorskip("torch")
    ranks = [steps(folder, rank, 3) for rank in range(3)]
    assert len({len(rank) for rank in ranks}) == 1
    for step in zip(*ranks, strict=True):
        assert len({shape for shape, _ in step}) == 1 and len({len(names) for _, names in step}) == 1
    names = Counter(name for rank in ranks for _, names in rank for name in names)
    assert len(names) == 60
    # Only what fills a bucket's last batch up to a multiple of the ranks comes twice.
    assert sum(names.values()) - 60 <= 2 * len(BUCKETS)


def test_crops_are_those_that_models_are_told(folder: Path) -> None:
    pytest.importorskip("torch")
    from warpfeed.torch import DataLoader as Torchs

    names = ("images", "names", "original_sizes", "crop_top_lefts", "target_sizes", "add_time_ids", "recipes")
    transform = [BucketCrop(random=True), RandomHorizontalFlip(0.5)]
    given = {"transform": transform, "orientation": "apply", "output": {name: name for name in names}, "dtype": "uint8"}
    image = pytest.importorskip("PIL.Image")
    ops = pytest.importorskip("PIL.ImageOps")
    flipped = 0
    for batch in Torchs(folder, 3, shuffle=True, seed=1, buckets=BUCKETS, **given):
        height, width = batch["images"].shape[2:]
        for i, name in enumerate(batch["names"]):
            upright = ops.exif_transpose(image.open(name))
            assert batch["original_sizes"][i].tolist() == [upright.height, upright.width]
            assert batch["target_sizes"][i].tolist() == [height, width]
            top, left = batch["crop_top_lefts"][i].tolist()
            assert batch["add_time_ids"][i].tolist() == [upright.height, upright.width, top, left, height, width]
            # The same part, cut out of the whole resized image by Pillow.
            scale = max(width / upright.width, height / upright.height)
            sides = [int(side * scale + 0.5) for side in upright.size]
            whole = upright.resize(sides, image.Resampling.BILINEAR)
            is_flipped = any(
                op.get("op") == "hflip"
                for op in batch["recipes"][i][1 if "turn" in str(batch["recipes"][i][0]) else 0 :]
            )
            flipped += is_flipped
            whole = ops.mirror(whole) if is_flipped else whole
            part = numpy.asarray(whole.crop((left, top, left + width, top + height)))
            assert (batch["images"][i].permute(1, 2, 0).numpy() == part).all(), name
    assert 10 < flipped < 50


def test_what_buckets_exclude_is_said(folder: Path) -> None:
    with pytest.raises(warpfeed.ParameterError, match="bucket_crop"):
        DataLoader(folder, 4, buckets="sdxl", transform=[RandomHorizontalFlip()])
    with pytest.raises(warpfeed.ParameterError, match="sampler"):
        DataLoader(folder, 4, buckets="sdxl", transform=[BucketCrop()], sampler=range(60))
    with pytest.raises(warpfeed.UnsupportedError, match="whole bucket"):
        DataLoader(folder, 32, buckets=BUCKETS, transform=[BucketCrop()], drop_last=True)
    loader = DataLoader(
        folder, 32, buckets="32x24,24x32,merge", transform=[BucketCrop()], drop_last=True, dtype="uint8"
    )
    assert {images.shape[0] for images, _ in loader} == {32}


def test_the_batch_sampler_has_the_loaders_batches(folder: Path) -> None:
    pytest.importorskip("torch")
    files = sorted(folder.glob("a/*"))
    image = pytest.importorskip("PIL.Image")
    ops = pytest.importorskip("PIL.ImageOps")
    sizes = [ops.exif_transpose(image.open(file)).size for file in files]
    for last, drop in (("keep", False), ("drop", True)):
        buckets = "32x24,24x32,28x28,40x16,16x40,lossy"
        for rank in range(2):
            sampler = warpfeed.BucketBatchSampler(sizes, buckets, 4, rank, 2, seed=3, last=last)
            own = list(sampler)
            assert len(own) == len(sampler)
            theirs = steps_of(folder, buckets, rank, drop)
            assert [[str(files[index]) for index in batch] for batch in own] == theirs
            assert {sampler.bucket_of(index) for batch in own[:1] for index in batch} <= {(w, h) for w, h in BUCKETS}
            assert sum(bucket["steps"] for bucket in sampler.buckets) == len(own)
            again = list(sampler)
            assert again != own, "the next epoch"
            sampler.set_epoch(0)
            iterator = iter(sampler)
            assert [next(iterator), next(iterator)] == own[:2]
            other = warpfeed.BucketBatchSampler(sizes, buckets, 4, rank, 2, seed=3, last=last)
            other.load_state_dict(sampler.state_dict())
            assert list(other) == own[2:]


def steps_of(folder: Path, buckets: str, rank: int, drop: bool) -> list[list[str]]:
    from warpfeed.torch import DataLoader as Torchs

    given = {"distributed": (rank, 2), "output": {"names": "names"}, "orientation": "apply", "drop_last": drop}
    loader = Torchs(folder, 4, shuffle=True, seed=3, buckets=buckets, transform=[BucketCrop()], **given)
    return [batch["names"] for batch in loader]


def test_wrong_arguments_of_the_batch_sampler() -> None:
    for arguments in ({"last": "some"}, {"batch_size": 0}, {"buckets": "nothing"}, {"rank": 2, "ranks": 2}):
        given = {"sizes": [(8, 8)], "buckets": "8x8", "batch_size": 1} | arguments
        with pytest.raises(warpfeed.ParameterError):
            warpfeed.BucketBatchSampler(**given)


def test_sizes_change_over_the_epochs(folder: Path) -> None:
    from warpfeed.transforms import RandomResizedCrop

    loader = DataLoader(folder, 8, shuffle=True, sizes="16,24/2", transform=[RandomResizedCrop(99)])
    sides = []
    for _ in range(2):
        sides.append({images.shape[2:] for images, _ in loader})
    assert sides == [{(16, 16)}, {(24, 24)}]


def test_sequences_are_timms(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    from warpfeed.torch import DataLoader as Torchs
    from warpfeed.transforms import SequenceResize

    given = {"shuffle": True, "seed": 1, "sequences": "16,36/144,divisor=1", "patch": 4, "dtype": "uint8"}
    names = ("patches", "patch_coord", "patch_valid", "pixel_attention_mask", "spatial_shapes", "names", "images")
    transform = [SequenceResize(4, interpolation="bicubic")]
    loader = Torchs(folder, transform=transform, orientation="apply", output={name: name for name in names}, **given)
    image = pytest.importorskip("PIL.Image")
    ops = pytest.importorskip("PIL.ImageOps")
    lengths, seen = set(), 0
    assert len(loader) == len(list(loader))
    for batch in loader:
        count, length, values = batch["patches"].shape
        lengths.add(length)
        assert count * length <= 144 and values == 48
        for i, name in enumerate(batch["names"]):
            rows, columns = batch["spatial_shapes"][i].tolist()
            valid = batch["patch_valid"][i]
            assert valid.sum() == rows * columns == batch["pixel_attention_mask"][i].sum() and rows * columns <= length
            whole = ops.exif_transpose(image.open(name)).resize((columns * 4, rows * 4), image.Resampling.BICUBIC)
            want = torch.from_numpy(numpy.asarray(whole).copy())
            for at in range(rows * columns):
                y, x = batch["patch_coord"][i, at].tolist()
                patch = want[4 * y : 4 * y + 4, 4 * x : 4 * x + 4].reshape(-1)
                assert (batch["patches"][i, at] == patch).all()
            seen += 1
    assert seen == 60 and len(lengths) == 2
    with pytest.raises(warpfeed.ParameterError, match="patch"):
        next(iter(Torchs(folder, transform=transform, **(given | {"patch": 5}))))
