"""Tensors on a GPU go through `warpfeed.functional` and `Compose` where they are, with the CPU's bytes.

torch may have no CUDA here, so a tensor on the host stands for one on the simulated device: it says where its copy lies.
"""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.utils.dlpack")
tv = pytest.importorskip("torchvision.tv_tensors")

from warpfeed import UnsupportedError  # noqa: E402
from warpfeed import functional as F  # noqa: E402
from warpfeed import transforms as t  # noqa: E402

pytestmark = pytest.mark.skipif(os.environ.get("WARPFEED_TEST_DEVICE") != "cuda", reason="needs the simulated GPU")


class Driver:
    """Another library's memory and stream on device 0."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.cuda.cuInit(0) == 0
        assert self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.cuda.cuCtxSetCurrent(context) == 0
        assert self.cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
        self.stream = stream.value or 0

    def put(self, values: Any) -> int:
        """Copies values in the order of the stream."""
        address = ctypes.c_uint64()
        assert self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(len(values))) == 0
        stream, source = ctypes.c_void_p(self.stream), ctypes.c_void_p(values.ctypes.data)
        assert self.cuda.cuMemcpyHtoDAsync_v2(address, source, ctypes.c_size_t(len(values)), stream) == 0
        return address.value


class OnDevice(torch.Tensor):
    """A tensor whose memory has a copy on the device."""

    driver: Any
    base: int

    @property
    def device(self) -> Any:  # type: ignore[override]
        return torch.device("cuda:0")

    def data_ptr(self) -> int:
        return OnDevice.base + self.storage_offset() * self.element_size()


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Any:
    driver = Driver()
    from_dlpack = torch.utils.dlpack.from_dlpack

    def on_device(tensor: Any) -> Any:
        storage = np.frombuffer(bytes(tensor.untyped_storage()), np.uint8).copy()
        OnDevice.base = driver.put(storage)
        return tensor.as_subclass(OnDevice)

    def received(made: Any) -> Any:
        assert made.__dlpack_device__() == (2, 0)
        return from_dlpack(np.asarray(made))

    monkeypatch.setattr(torch.utils.dlpack, "from_dlpack", received)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=driver.stream))
    return on_device


def images(*shape: int) -> Any:
    return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(sum(shape)))


FORMS: dict[str, Any] = {
    "an image": images(3, 41, 33),
    "gray": images(1, 20, 31),
    "a batch": images(4, 3, 29, 30),
    "of two leading dimensions": images(2, 2, 3, 17, 19),
    "channels last": images(2, 3, 24, 25).contiguous(memory_format=torch.channels_last),
    "part of a larger one": images(3, 3, 60, 70)[1:, :, 5:40, 7:41],
    "every second image": images(6, 3, 20, 21)[::2],
}
CALLS: dict[str, Any] = {
    "hflip": F.hflip,
    "resize": lambda image: F.resize(image, [16, 14]),
    "rotate": lambda image: F.rotate(image, 30, interpolation="bilinear", fill=[7]),
    "crop": lambda image: F.crop(image, -3, 2, 20, 15),
    "blur": lambda image: F.gaussian_blur(image, 5),
    "invert": F.invert,
    "equalize": F.equalize,
}


@pytest.mark.parametrize("form", FORMS)
def test_functionals_have_the_cpus_bytes(put: Any, form: str) -> None:
    image = FORMS[form]
    for name, call in CALLS.items():
        want, got = call(image), call(put(image))
        assert got.shape == want.shape and got.dtype == want.dtype and torch.equal(torch.Tensor(got), want), name
        assert got.stride()[-3:] == want.stride()[-3:], name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("per_batch", [False, True])
def test_lists_have_the_cpus_bytes(put: Any, form: str, per_batch: bool) -> None:
    image = FORMS[form]
    jitter = t.ColorJitter(brightness=(0.7, 1.3), contrast=(0.8, 1.2))
    steps: list[Any] = [t.RandomResizedCrop(12), t.RandomHorizontalFlip(), jitter]
    for more in [], [t.Normalize([0.5] * 3, [0.25] * 3)]:
        compose = t.Compose(steps + more, per_batch=per_batch)
        for epoch in range(3):
            want, got = compose(image, key=(5, epoch, 3)), compose(put(image), key=(5, epoch, 3))
            assert got.shape == want.shape and got.dtype == want.dtype and torch.equal(got, want)


def test_boxes_follow_and_types_stay(put: Any) -> None:
    image = images(3, 40, 50)
    boxes = tv.BoundingBoxes([[5, 6, 20, 30], [1, 1, 4, 4]], format="XYXY", canvas_size=(40, 50))
    compose = t.Compose([t.RandomIouCrop(), t.Resize(width=20, height=20)])
    for index in range(4):
        key = (1, 0, index)
        want = compose(tv.Image(image), {"boxes": boxes, "labels": torch.tensor([3, 4])}, key=key)
        got = compose(put(image), {"boxes": boxes, "labels": torch.tensor([3, 4])}, key=key)
        assert torch.equal(got[0], want[0].as_subclass(torch.Tensor))
        assert torch.equal(got[1]["boxes"], want[1]["boxes"]) and torch.equal(got[1]["labels"], want[1]["labels"])


def test_what_is_not_done_is_refused_by_name(put: Any) -> None:
    image = put(images(3, 20, 20))
    with pytest.raises(UnsupportedError, match="float32 with 3 channels on cuda:0"):
        F.hflip(torch.rand(3, 20, 20).as_subclass(OnDevice))
    with pytest.raises(UnsupportedError, match="uint8 with 4 channels on cuda:0"):
        t.Compose([t.RandomHorizontalFlip()])(put(images(4, 20, 20)))
    with pytest.raises(UnsupportedError, match="jpeg on a GPU"):
        F.jpeg(image, 50)
    mask = images(20, 20).as_subclass(OnDevice)
    with pytest.raises(UnsupportedError, match="masks on cuda:0"):
        t.Compose([t.RandomHorizontalFlip()])(image=image, mask=mask)
