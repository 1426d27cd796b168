"""A data loader for training on images: decoding, augmentation and batching in native threads.

`from warpfeed.torch import DataLoader` takes the place of torch's. `warpfeed.jax` and `warpfeed.numpy` have loaders for
those; `warpfeed.transforms` has all transforms; `warpfeed.open` opens what a path does not tell enough about.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from . import _warpfeed
from ._arguments import at_least as _at_least
from ._arguments import checked as _checked
from ._buckets import BucketBatchSampler
from ._datasets import open_source as _open_source
from ._errors import (
    DataError,
    DeviceError,
    Error,
    FileError,
    FileMissingError,
    OtherError,
    OutOfMemoryError,
    ParameterError,
    UnsupportedError,
)
from ._images import ImageHeader, decode, encode, probe
from ._preprocessor import Preprocessor
from ._warpfeed import Source, Tensor, __version__

__all__ = [
    "BucketBatchSampler",
    "DataError",
    "DeviceError",
    "Error",
    "FileError",
    "FileMissingError",
    "ImageHeader",
    "OtherError",
    "OutOfMemoryError",
    "ParameterError",
    "Preprocessor",
    "Source",
    "Tensor",
    "UnsupportedError",
    "__version__",
    "decode",
    "encode",
    "open",
    "presets",
    "probe",
]


@_checked
def open(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    split: str | None = None,
    annotations: str | os.PathLike[str] | None = None,
    image_field: str | None = None,
    label_field: str | None = None,
    classes: Sequence[str] | None = None,
    window: int | None = None,
    random_access: bool | None = None,
    mask_ids: str | None = None,
    box_format: Literal["xyxy", "xywh", "cxcywh"] | None = None,
    flip_index: Sequence[int] | None = None,
    aux: Sequence[str] = (),
    bands: Sequence[str] = (),
    axes: str | None = None,
    labels: str | os.PathLike[str] | None = None,
) -> Source:
    """Opens a data set or a stream for a loader, where its path alone does not tell enough.

    path: a folder of class folders, a list file, shards (.tar, .rec, .tfrecord, .parquet), a pattern of them, a Zarr
        array, or a URL.
    format: "folder", "list", "webdataset", "recordio", "tfrecord", "parquet", "coco", "voc", "yolo", "masks", "zarr" and
        others.
    split: "train", "val" or "test" of a folder with several.
    annotations: COCO's file, or the folder of masks.
    window: reads shards from front to back, and shuffles among so many samples.
    mask_ids: what the numbers in masks mean: "classes", "reduce-zero", "cityscapes", or pairs such as "7:0,8:1".
    box_format: what the numbers of boxes mean, where shards and Parquet files do not say.
    flip_index: for each keypoint of COCO, the one that it is in a mirror image; by default told by their names.
    random_access: reads remote shards in any order.
    bands: names whose files are one image, in the order of its channels: patch_B02.tif and patch_B03.tif for ["B02", "B03"].
    axes: a letter for each dimension of a Zarr array: n samples, c channels, h rows, w columns, such as "nhwc". Images
        that are lists in Parquet have no n: "hwc" or "chw".
    labels: the Zarr array with the labels of another one.
    aux: folders of auxiliary images under the images' paths, such as "depth=scenes/depth" or "right=scenes/right,bicubic".
    """
    _at_least(1, window=window)
    return _open_source(
        path,
        format=format,
        split=split,
        annotations=annotations,
        image_field=image_field,
        label_field=label_field,
        classes=None if classes is None else list(classes),
        window=window,
        random_access=random_access,
        mask_ids=mask_ids,
        box_format=box_format,
        flip_index=None if flip_index is None else list(flip_index),
        aux=list(aux),
        bands=list(bands),
        axes=axes,
        labels=labels,
    )


def presets() -> list[str]:
    """Names of the presets: usual pipelines, published recipes, and their evaluations."""
    return _warpfeed.presets()
