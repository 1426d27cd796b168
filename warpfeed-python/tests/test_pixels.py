"""Images of other element types and numbers of channels, from arrays and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpfeed
from warpfeed import transforms as t
from warpfeed.numpy import DataLoader


def images(dtype: Any, channels: int) -> list[Any]:
    rng = np.random.default_rng(7)
    shape = (9, 11, channels)
    if dtype == np.float32:
        return [rng.normal(size=shape).astype(dtype) for _ in range(5)]
    return [rng.integers(0, np.iinfo(dtype).max, shape).astype(dtype) for _ in range(5)]


@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 4), ("uint16", 1), ("uint16", 13), ("float32", 2)])
def test_batches_have_the_values_of_arrays(dtype: str, channels: int) -> None:
    arrays = images(np.dtype(dtype).type, channels)
    short = {"uint8": "u8", "uint16": "u16", "float32": "f32"}[dtype]
    steps = [t.CenterCrop(8, 8), t.Hflip()]
    pairs = [(array, label) for label, array in enumerate(arrays)]
    loader = DataLoader(pairs, 5, transform=steps, pixels=f"{short}x{channels}", dtype=dtype)
    ((batch, labels),) = loader
    left, top = round((11 - 8) / 2), round((9 - 8) / 2)
    want = np.stack([array[top : top + 8, left : left + 8][:, ::-1].transpose(2, 0, 1) for array in arrays])
    assert batch.dtype == np.dtype(dtype) and np.array_equal(batch, want)
    assert labels.tolist() == [0, 1, 2, 3, 4]


def test_values_are_normalized_by_their_largest() -> None:
    (array, *_) = images(np.uint16, 3)
    steps = [t.CenterCrop(11, 9), t.Normalize((0.1, 0.2, 0.3), 0.25)]
    loader = DataLoader([(array, 0)], 1, transform=steps, pixels="own", max_value=10_000)
    ((batch, _),) = loader
    values = array.astype(np.float32) / np.float32(10_000)
    want = (values - np.array([0.1, 0.2, 0.3], np.float32)) / np.float32(0.25)
    assert np.array_equal(batch[0], want.transpose(2, 0, 1))


def test_a_folder_of_arrays(tmp_path: Path) -> None:
    for label, array in enumerate(images(np.uint16, 5)):
        (tmp_path / str(label)).mkdir()
        np.save(tmp_path / str(label) / "image.npy", array)
    loader = DataLoader(tmp_path, 5, transform=[t.CenterCrop(8, 8), t.ToFloat()], pixels="own")
    ((batch, labels),) = loader
    assert batch.shape == (5, 5, 8, 8) and labels.tolist() == [0, 1, 2, 3, 4]


def test_what_has_no_meaning_is_refused() -> None:
    pairs = [(array, 0) for array in images(np.uint16, 5)]
    with pytest.raises(warpfeed.UnsupportedError, match="hue on images of 5 channels of u16"):
        DataLoader(pairs, 5, transform=[t.CenterCrop(8, 8), t.Hue(0.1)], pixels="own")
    with pytest.raises(warpfeed.Error, match="u16"):
        list(DataLoader(pairs, 5, transform=[t.CenterCrop(8, 8)]))


def write_zarr(folder: Path, array: np.ndarray[Any, Any]) -> None:
    """Writes an array as one chunk, which is not compressed."""
    folder.mkdir()
    shape = list(array.shape)
    metadata = {"zarr_format": 2, "shape": shape, "chunks": shape, "dtype": array.dtype.str, "compressor": None}
    (folder / ".zarray").write_text(json.dumps({**metadata, "fill_value": 0, "order": "C", "filters": None}))
    (folder / ".".join("0" for _ in shape)).write_bytes(array.tobytes())


def test_zarr_arrays_are_data_sets(tmp_path: Path) -> None:
    array = np.stack(images(np.uint16, 4)).transpose(0, 3, 1, 2)
    write_zarr(tmp_path / "images.zarr", np.ascontiguousarray(array))
    write_zarr(tmp_path / "labels.zarr", np.arange(5, dtype="<i8")[::-1].copy())
    source = warpfeed.open(tmp_path / "images.zarr", axes="nchw", labels=tmp_path / "labels.zarr")
    loader = DataLoader(source, 5, transform=[t.CenterCrop(9, 9)], pixels="own", dtype="uint16")
    ((batch, labels),) = loader
    assert np.array_equal(batch, array[:, :, :, 1:10])
    assert labels.tolist() == [4, 3, 2, 1, 0]
    with pytest.raises(ValueError, match="a letter for each dimension"):
        warpfeed.open(tmp_path / "images.zarr")
