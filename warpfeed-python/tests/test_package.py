"""What holds without torch: arrays, semantics, threads, processes, signals, and the end of the interpreter."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import http.server
import inspect
import json
import keyword
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import warpfeed
from warpfeed import transforms as t
from warpfeed.numpy import DataLoader

COMMAND = str(Path(sys.executable).with_name("warpfeed"))
SMALL = [t.RandomResizedCrop(32), t.RandomHorizontalFlip(0.5), t.Normalize((0.5,) * 3, (0.25,) * 3)]


def python(code: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def labels(loader: DataLoader) -> list[int]:
    return [int(label) for _, batch in loader for label in batch]


def batches(loader: DataLoader) -> list[tuple[bytes, bytes]]:
    return [(images.tobytes(), batch.tobytes()) for images, batch in loader]


class Objects:
    """A data set in Python."""

    def __init__(self, folder: Path, delay: float = 0.0) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))
        self.delay = delay

    def __len__(self) -> int:
        return len(self.files)

    def read(self, i: int) -> tuple[bytes | Path, int]:
        time.sleep(self.delay)
        file = self.files[i]
        return (file.read_bytes() if i % 2 else file), i


def test_importing_the_package_imports_neither_numpy_nor_torch() -> None:
    done = python("import sys, warpfeed; print([name for name in ('numpy', 'torch', 'jax') if name in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_batches_are_arrays(photos: Path) -> None:
    loader = DataLoader(photos, 16, transform=SMALL, num_workers=2)
    shapes = [(images.shape, images.dtype, batch.shape, batch.dtype) for images, batch in loader]
    assert shapes == [((n, 3, 32, 32), np.float32, (n,), np.int64) for n in (16, 16, 8)]
    assert (len(loader), loader.classes, sorted(set(labels(loader)))) == (
        3,
        ["class_00", "class_01", "class_02", "class_03"],
        [0, 1, 2, 3],
    )
    last = DataLoader(photos, 16, transform=[t.CenterCrop(8, 8)], dtype="uint8", channels_last=True, drop_last=True)
    assert [images.shape for images, _ in last] == [(16, 8, 8, 3)] * 2 and len(last) == 2


def test_pixels_do_not_depend_on_threads(photos: Path) -> None:
    all_batches = [batches(DataLoader(photos, 16, True, transform=SMALL, num_workers=n, seed=4)) for n in (0, 1, 3)]
    assert all_batches[0] == all_batches[1] == all_batches[2]


def test_each_epoch_has_an_order_of_its_own_and_all_samples(photos: Path) -> None:
    loader = DataLoader(Objects(photos), 7, shuffle=True, transform=SMALL)
    first, second = labels(loader), labels(loader)
    assert first != second and sorted(first) == sorted(second) == list(range(40))
    loader.set_epoch(0)
    assert labels(loader) == first


def test_taking_an_iterator_begins_nothing(photos: Path) -> None:
    loader = DataLoader(photos, 8, shuffle=True, transform=SMALL)
    before = len(os.listdir("/proc/self/task"))
    unused = [iter(loader) for _ in range(3)]
    assert len(os.listdir("/proc/self/task")) == before
    assert batches(loader) == batches(DataLoader(photos, 8, shuffle=True, transform=SMALL)), "epoch 0"
    del unused


def test_a_state_resumes_with_the_batches_that_were_left(photos: Path) -> None:
    def loader() -> DataLoader:
        return DataLoader(photos, 6, shuffle=True, transform=SMALL, seed=1)

    whole = loader()
    undisturbed = batches(whole) + batches(whole)
    for taken in (0, 1, 4, 7, 8, 13):
        first = loader()
        states, got = first.state_dict(), []
        while len(got) < taken:
            for images, batch in first:
                got.append((images.tobytes(), batch.tobytes()))
                states = first.state_dict()
                if len(got) == taken:
                    break
        states = json.loads(json.dumps(states))
        second = loader()
        second.load_state_dict(states)
        rest: list[tuple[bytes, bytes]] = []
        while len(got) + len(rest) < 14:
            rest += batches(second)
        assert got + rest == undisturbed, taken


def test_several_iterators_live_side_by_side(photos: Path) -> None:
    loader = DataLoader(photos, 8, transform=SMALL)
    pairs = list(zip(loader, loader, strict=True))
    assert len(pairs) == 5 and all((a[1] == b[1]).all() for a, b in pairs)


def test_sixteen_threads_on_one_iterator_get_each_sample_once(photos: Path) -> None:
    loader = DataLoader(Objects(photos), 1, shuffle=True, transform=SMALL, num_workers=3)
    iterator, got, lock = iter(loader), [], threading.Lock()

    def work() -> None:
        for _, batch in iterator:
            with lock:
                got.append(int(batch[0]))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(40))


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs free-threaded Python")
def test_free_threaded_python_stays_without_its_lock(photos: Path) -> None:
    code = """
        import sys
        from warpfeed.numpy import DataLoader
        crop = [{"op": "center_crop", "width": 8, "height": 8}]
        assert sum(len(labels) for _, labels in DataLoader(sys.argv[1], 4, transform=crop)) == 40
        print(sys._is_gil_enabled())
    """
    done = python(code, str(photos))
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_memory_and_threads_are_flat_over_abandoned_iterators(photos: Path) -> None:
    loader = DataLoader(photos, 2, shuffle=True, transform=SMALL, num_workers=2)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def abandon(times: int) -> None:
        for _ in range(times):
            for _ in loader:
                break

    abandon(50)
    gc.collect()
    threads, before = len(os.listdir("/proc/self/task")), resident()
    abandon(200)
    gc.collect()
    assert len(os.listdir("/proc/self/task")) == threads
    assert resident() - before < 8 << 20


def test_bad_images_are_errors_of_python(photos: Path, tmp_path: Path) -> None:
    good = sorted(photos.glob("*/*.jpg"))[0]
    broken, missing = tmp_path / "broken.jpg", tmp_path / "missing.jpg"
    broken.write_bytes(good.read_bytes()[:300])
    with pytest.raises(ValueError, match="broken.jpg") as caught:
        list(DataLoader([(good, 0), (broken, 1)], transform=SMALL))
    assert isinstance(caught.value, warpfeed.DataError) and (caught.value.index, caught.value.name) == (1, str(broken))
    with pytest.raises(FileNotFoundError) as gone:
        list(DataLoader([(missing, 0)], transform=SMALL))
    assert (gone.value.errno, gone.value.filename) == (2, str(missing)) and isinstance(gone.value, warpfeed.Error)
    loader = DataLoader([(good, 0), (broken, 1), (missing, 2)], transform=SMALL, on_error="skip", max_bad=2)
    assert labels(loader) == [0] and [bad[0] for bad in loader.bad()] == [1, 2]
    with pytest.raises(ValueError, match="batch_size"):
        DataLoader(photos, 0, transform=SMALL)
    with pytest.raises(ValueError, match="transform 1 of 1: op must be a name .* got 'hflop': did you mean 'hflip'"):
        DataLoader(photos, transform=[{"op": "hflop"}])


def test_exceptions_of_a_data_set_keep_type_and_traceback(photos: Path) -> None:
    class Broken(Objects):
        def read(self, i: int) -> tuple[bytes | Path, int]:
            if i == 3:
                raise LookupError("row 3 is gone")
            return super().read(i)

    with pytest.raises(LookupError, match="row 3 is gone") as caught:
        list(DataLoader(Broken(photos), 4, transform=SMALL))
    assert any(entry.name == "read" for entry in caught.traceback)
    assert "sample 3" in "".join(caught.value.__notes__)
    loader = DataLoader(Broken(photos), 4, transform=SMALL, on_error="skip", max_bad=1)
    assert labels(loader) == [i for i in range(40) if i != 3]


def test_targets_of_objects_are_numbers_too(photos: Path) -> None:
    class Boxes(Objects):
        def read(self, i: int) -> tuple[bytes | Path, list[float]]:
            return super().read(i)[0], [i, i + 0.5]

    (_, targets), *_ = DataLoader(Boxes(photos), 4, transform=SMALL, targets="float=2")
    assert targets.tolist() == [[0, 0.5], [1, 1.5], [2, 2.5], [3, 3.5]]


def test_images_of_objects_are_anything_with_bytes(photos: Path) -> None:
    class Forms(Objects):
        def read(self, i: int) -> tuple[Any, int]:
            data = self.files[i].read_bytes()
            return [data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8), str(self.files[i]), 7][
                i % 6
            ], i

    loader = DataLoader(Forms(photos), 5, transform=SMALL)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(TypeError, match="read\\(5\\) of .*Forms must return an encoded image as bytes"):
        next(iterator)


def test_entry_points_are_kept_as_close_as_wanted(photos: Path, tmp_path: Path) -> None:
    def kept(density: str) -> int:
        folder = tmp_path / density
        loader = DataLoader(photos, 8, transform=SMALL, num_workers=1, entry_points=(folder, 1 << 20, density))
        for _ in range(3):
            batches(loader)
        return sum(file.stat().st_size for file in folder.glob("*.points"))

    assert 0 < kept("sparse") < kept("dense")


def test_thumbnails_come_before_transforms(photos: Path) -> None:
    crop = [t.CenterCrop(16, 16)]
    whole = DataLoader(photos, 8, transform=crop, thumbnail=(24, 24))
    assert whole.recipe(0)[0]["reducing_gap"] == 2.0
    assert (
        "reducing_gap" not in DataLoader(photos, 8, transform=crop, thumbnail=(24, 24), reducing_gap=None).recipe(0)[0]
    )
    assert [images.shape[1:] for images, _ in whole][0] == (3, 16, 16)


def test_a_mix_and_views(photos: Path) -> None:
    (images, targets), *_ = DataLoader(photos, 8, transform=SMALL, mix="torchvision=0.2/1", targets="soft=4")
    assert images.shape == (8, 3, 32, 32) and np.allclose(targets.sum(1), 1)
    views = [{"views": [{"transforms": [{"op": "center_crop", "width": side, "height": side}]} for side in (16, 8)]}]
    (both, _), *_ = DataLoader(photos, 8, transform=views)
    assert [view.shape for view in both] == [(8, 3, 16, 16), (8, 3, 8, 8)]


def test_recipes_say_what_was_done(photos: Path) -> None:
    loader = DataLoader(photos, 8, transform=SMALL, num_workers=0)
    assert [step["op"] for step in loader.recipe(5)][0] == "resized_crop"
    list(loader)
    stats = loader.stats()
    assert stats["images"] == 40 and stats["decode"] > 0


def test_python_and_json_of_the_table_of_transforms_are_the_same() -> None:
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    rows = re.findall(r"^\| \w+ \| `.*` \| `(.*)` \| `(.*)` \|$", page, re.MULTILINE)
    assert len(rows) > 90
    for call, written in rows:
        assert json.loads(json.dumps(eval(call, vars(t)).written())) == json.loads(written), call


def test_a_named_transform_draws_alike_beside_others(photos: Path) -> None:
    turn = t.RandomRotation((-9, 9)).named("turn")
    policies = [[turn, t.RandomCrop(16)], [t.RandomInvert(1.0), turn, t.RandomCrop(16)]]
    one, other = (DataLoader(photos, 8, transform=policy, num_workers=0).recipe(5) for policy in policies)
    assert [step for step in other if step["op"] != "invert"] == one


def test_a_preprocessor_has_the_bytes_of_the_loader(photos: Path) -> None:
    files = sorted(photos.glob("*/*.jpg"))[:3]
    loader = DataLoader([(file, 0) for file in files], 3, preset="eval")
    (images, _), *_ = loader
    for preprocessor in (loader.preprocessor(), warpfeed.Preprocessor("eval")):
        assert preprocessor.image_size == (224, 224)
        assert (np.asarray(preprocessor([file.read_bytes() for file in files])) == images).all()


def test_a_preprocessor_keeps_a_contract(photos: Path, tmp_path: Path) -> None:
    contract, file = tmp_path / "contract.json", tmp_path / "steps.json"
    steps = [t.Resize(size=36), t.CenterCrop(32, 32), t.Normalize((0.5,) * 3, (0.25,) * 3)]
    file.write_text(json.dumps([step.written() for step in steps]))
    command = [COMMAND, "contract", "write", "-o", str(contract), "--transforms", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    images = [next(photos.glob("*/*.jpg")).read_bytes()]
    kept = warpfeed.Preprocessor.from_contract(contract)
    assert np.asarray(kept(images)).tobytes() == np.asarray(warpfeed.Preprocessor(steps)(images)).tobytes()
    text = contract.read_text()
    assert '"size": 36' in text
    contract.write_text(text.replace('"size": 36', '"size": 35'))
    with pytest.raises(warpfeed.Error, match="operation 1, resize"):
        warpfeed.Preprocessor.from_contract(contract)


def test_a_tensor_is_given_away_once(photos: Path) -> None:
    tensor = warpfeed.Preprocessor("eval")([next(photos.glob("*/*.jpg")).read_bytes()])
    assert (tensor.shape, tensor.dtype, tensor.device) == ([1, 3, 224, 224], "float32", "cpu")
    np.from_dlpack(tensor)
    with pytest.raises(BufferError):
        np.from_dlpack(tensor)


class Lines(DataLoader):
    """A loader whose batches are in arrays that Python makes, as torch's pinned memory is."""

    beside = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.made: list[weakref.ref[Any]] = []
        super().__init__(*arguments, **options)

    def _memory(self) -> Callable[[int], tuple[int, object]]:
        made, beside = self.made, self.beside

        def memory(len_bytes: int) -> tuple[int, object]:
            if beside < 0:
                raise LookupError("no memory is left")
            array = np.full(len_bytes + 128, 0xA5, np.uint8)
            made.append(weakref.ref(array))
            start = -array.ctypes.data % 64 + beside
            return array.ctypes.data + start, array[start:]

        return memory


def test_batches_are_filled_in_memory_of_pythons(photos: Path) -> None:
    options: dict[str, Any] = {"transform": SMALL, "num_workers": 2, "prefetch_factor": 3}
    loader, want = Lines(photos, 16, **options), batches(DataLoader(photos, 16, **options))
    assert not loader.made, "none before it is needed"
    for batch, (images, _) in zip(loader._pipeline().epoch(0), want, strict=True):
        (tensor,) = batch.views
        assert isinstance(tensor, warpfeed.Tensor)
        owner = tensor.owner()
        assert owner is not None and owner[: len(images)].tobytes() == images
        with pytest.raises(BufferError):
            np.from_dlpack(tensor)
    del owner
    # Read without asking for the owner, the array keeps it.
    assert batches(loader) == want
    images, _ = next(iter(loader))
    gc.collect()
    assert [made() is not None for made in loader.made].count(True) == 1
    del images, batch, tensor
    gc.collect()
    assert all(made() is None for made in loader.made), "batches that were given up"
    # Labels are the package's own.
    labels = next(loader._pipeline().epoch(0)).labels
    assert labels.owner() is None and len(np.asarray(labels)) == 16


def test_memory_that_does_not_fit_is_refused(photos: Path) -> None:
    class Beside(Lines):
        beside = 16

    class Nothing(Lines):
        beside = -1

    with pytest.raises(warpfeed.ParameterError, match="batch_memory: block must be an address that 64 divides"):
        list(Beside(photos, 4, transform=SMALL))
    with pytest.raises(LookupError, match="no memory is left"):
        list(Nothing(photos, 4, transform=SMALL))


def test_classes_give_the_written_forms_of_the_command() -> None:
    listed = subprocess.run(
        [COMMAND, "transforms", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    for entry in json.loads(listed.stdout):
        name = "".join(part.capitalize() for part in entry["name"].split("_"))
        kind = "transform" if entry["random"] else "op"
        own = {key: value for key, value in entry["written"].items() if key != kind}
        made = getattr(t, name)(**{f"{key}_" if keyword.iskeyword(key) else key: value for key, value in own.items()})
        assert json.loads(json.dumps(made.written())) == entry["written"], name


def test_every_setting_has_an_argument() -> None:
    # Those that PyTorch has names for. The loader itself decides about equal batches.
    torchs = {
        "threads": "num_workers", "prefetch": "prefetch_factor", "last_batch": "drop_last", "partition": "distributed",
        "layout": "channels_last", "equal_batches": "distributed",
    }  # fmt: skip
    arguments = set(inspect.signature(DataLoader.__init__).parameters)
    assert {torchs.get(name, name) for name in warpfeed._warpfeed.settings()} - arguments == set()


def test_settings_are_checked(photos: Path) -> None:
    with pytest.raises(warpfeed.ParameterError, match="strategy must be .fused., .sequential. or .composed."):
        DataLoader(photos, 8, transform=SMALL, strategy="quick")  # type: ignore[arg-type]
    with pytest.raises(warpfeed.Error, match="over the limit of 100"):
        next(iter(DataLoader(photos, 8, transform=SMALL, max_pixels=100)))


def test_ranks_get_different_samples_and_equally_many_batches(photos: Path) -> None:
    parts = [DataLoader(Objects(photos), 4, True, transform=SMALL, distributed=(rank, 3), seed=9) for rank in range(3)]
    got = [labels(part) for part in parts]
    assert {len(part) for part in parts} == {4} and set().union(*got) == set(range(40))


def test_other_numbers_of_ranks_share_what_is_left(photos: Path) -> None:
    def loader(rank: int, ranks: int) -> DataLoader:
        return DataLoader(Objects(photos), 4, True, transform=SMALL, distributed=(rank, ranks), seed=9)

    got: list[int] = []
    states = []
    for rank in range(2):
        first = loader(rank, 2)
        got += [int(label) for _, (_, batch) in zip(range(2), first, strict=False) for label in batch]
        states.append(json.loads(json.dumps(first.state_dict())))
    assert len(got) == 16
    # Of even ranks the state of one is enough, but those of all are as good.
    for state in [states[0], states[1], states]:
        rest: list[int] = []
        for rank in range(3):
            part = loader(rank, 3)
            part.load_state_dict(state)
            rest += labels(part)
            assert part.state_dict() == {"version": 1, "epoch": 1, "state": None}
            assert len(labels(part)) == 14
        assert sorted(got + rest) == list(range(40))
    # After the last batch nothing of the epoch is left, whoever asks.
    part = loader(1, 3)
    part.load_state_dict(states[0])
    iterator = iter(part)
    next(iterator), next(iterator)
    assert part.state_dict()["state"] is None
    with pytest.raises(warpfeed.ParameterError, match="different epochs"):
        part.load_state_dict([states[0], {"version": 1, "epoch": 1, "state": None}])


def test_ranks_share_a_stream(photos: Path, tmp_path: Path) -> None:
    pack = [
        COMMAND,
        "pack",
        "-o",
        str(tmp_path / "packed"),
        "--format",
        "webdataset",
        "--shard-size",
        "1MB",
        str(photos),
    ]
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
    crop = [t.CenterCrop(8, 8)]

    def loader(rank: int, ranks: int) -> DataLoader:
        stream = warpfeed.open(tmp_path / "packed" / "*.tar", window=8)
        return DataLoader(stream, 4, True, transform=crop, distributed=(rank, ranks), seed=9)

    whole = [[images for images, _ in loader(rank, 2)] for rank in range(2)]
    assert sum(len(images) for part in whole for images in part) == 40 and min(map(len, whole)) > 1
    with pytest.raises(TypeError, match="not known"):
        len(loader(0, 2))
    states, given = [], 0
    for rank in range(2):
        part = loader(rank, 2)
        given += len(next(iter(part))[1])
        states.append(json.loads(json.dumps(part.state_dict())))
    alone = loader(0, 1)
    alone.load_state_dict(states)
    assert given + len(labels(alone)) == 40


def test_several_devices_get_what_ranks_get(photos: Path) -> None:
    def bytes_of(each: list[tuple[Any, Any]]) -> list[tuple[bytes, bytes]]:
        return [(images.tobytes(), batch.tobytes()) for images, batch in each]

    options: dict[str, Any] = {"shuffle": True, "transform": SMALL, "seed": 3}
    group = DataLoader(Objects(photos), 4, device=["cpu", "cpu"], **options)
    parts = [batches(DataLoader(Objects(photos), 4, distributed=(rank, 2), **options)) for rank in range(2)]
    want = [list(each) for each in zip(*parts, strict=True)]
    assert [bytes_of(each) for each in group] == want and len(group) == 5
    assert [one["images"] for one in group.stats()["devices"]] == [20, 20] and group.bad() == []
    assert group.recipe(7) == DataLoader(Objects(photos), 4, **options).recipe(7)
    # Two batches are taken of each device; then the devices go on, or another number of them.
    taken = DataLoader(Objects(photos), 4, device=["cpu", "cpu"], **options)
    iterator = iter(taken)
    given = [int(label) for _ in range(2) for _, batch in next(iterator) for label in batch]
    state = json.loads(json.dumps(taken.state_dict()))
    del iterator
    again = pickle.loads(pickle.dumps(taken))
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert [bytes_of(each) for each in again] == want[2:]
    assert again.state_dict() == {"version": 1, "epoch": 1, "state": None}
    for more in ({"distributed": (0, 1)}, {"device": ["cpu"] * 3}):
        other = DataLoader(Objects(photos), 4, **more, **options)
        other.load_state_dict(state)
        rest = [each if isinstance(each, list) else [each] for each in other]
        left = [int(label) for each in rest for _, batch in each for label in batch]
        assert set(given + left) == set(range(40)) and len(left) == 24
    for wrong, options_too in ((["cpu"], {"pad_to": 8}), ([], {}), (["auto", "cpu"], {})):
        with pytest.raises(warpfeed.ParameterError, match="devices"):
            DataLoader(photos, 4, device=wrong, transform=SMALL, **options_too)


@pytest.mark.skipif(os.environ.get("WARPFEED_TEST_DEVICE") != "cuda", reason="needs a GPU, or the simulated one")
def test_batches_on_a_device_are_the_cpus(photos: Path) -> None:
    options: dict[str, Any] = {"shuffle": True, "transform": SMALL, "seed": 2}
    loader = DataLoader(photos, 8, device="cuda:0", jpeg_decoder="auto", **options)
    assert batches(loader) == batches(DataLoader(photos, 8, **options))
    tensor = next(loader._pipeline().epoch(0)).views[0]
    assert isinstance(tensor, warpfeed.Tensor) and tensor.__dlpack_device__() == (2, 0)


@pytest.mark.skipif(os.environ.get("WARPFEED_TEST_DEVICE") != "cuda", reason="needs a GPU, or the simulated one")
def test_labels_and_fields_on_a_device_are_where_the_images_are(scenes: Path, photos: Path) -> None:
    coco = warpfeed.open(scenes / "images", format="coco", annotations=scenes / "annotations.json")
    crop = [t.CenterCrop(64, 64), t.RandomHorizontalFlip(0.5)]

    def values(device: str, place: tuple[int, int]) -> list[list[Any]]:
        loader = DataLoader(
            coco, 4, transform=crop, fields=("boxes", "labels", "masks"), device=device, jpeg_decoder="auto"
        )
        got = []
        for batch in loader._pipeline().epoch(0):
            np.asarray(batch.views[0])
            fields = batch.fields[0]
            tensors = [fields.boxes("cxcywh", True), fields.numbers("labels"), fields.masks("masks")]
            assert batch.labels is None and [tensor.__dlpack_device__() for tensor in tensors] == [place] * 3
            got.append([np.asarray(tensor) for tensor in tensors])
        for batch in (
            DataLoader(photos, 4, transform=crop, device=device, jpeg_decoder="auto", limit=8)._pipeline().epoch(0)
        ):
            np.asarray(batch.views[0])
            assert batch.labels.__dlpack_device__() == place
            got.append([np.asarray(batch.labels)])
        return got

    for on_device, on_host in zip(values("cuda:0", (2, 0)), values("cpu", (1, 0)), strict=True):
        for got, want in zip(on_device, on_host, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape and (got == want).all() and len(want)


class Driver:
    """Another library's streams on device 0."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        assert self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.cuda.cuCtxSetCurrent(context) == 0

    def stream(self) -> int:
        stream = ctypes.c_void_p()
        assert self.cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
        return stream.value or 0

    def begin_capture(self, stream: int) -> None:
        assert self.cuda.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 2) == 0

    def end_capture(self, stream: int) -> None:
        graph = ctypes.c_void_p()
        assert self.cuda.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)) == 0


def name_of(capsule: object) -> str:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return name(capsule).decode()


def is_copy(capsule: object) -> bool:
    """The flag of a capsule of DLPack 1, which follows the version, the context and the deleter."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    start = pointer(capsule, b"dltensor_versioned")
    return bool(ctypes.c_uint64.from_address(start + 8 + 2 * ctypes.sizeof(ctypes.c_void_p)).value & 2)


STREAM = object()
# How each consumer calls __dlpack__ for a tensor on device 0, as in docs/gpu.md. STREAM stands for a handle.
CONSUMERS: dict[str, tuple[dict[str, Any], str]] = {
    "torch to 2.8": ({"stream": 1}, "dltensor"),
    "torch to 2.8, a stream of its own": ({"stream": STREAM}, "dltensor"),
    "torch from 2.9": ({"stream": STREAM, "max_version": (1, 0)}, "dltensor_versioned"),
    "torch from 2.9, all arguments": (
        {"stream": 1, "max_version": (1, 0), "dl_device": (2, 0), "copy": False},
        "dltensor_versioned",
    ),
    "JAX": ({"stream": STREAM}, "dltensor"),
    "JAX with DLPack 1": ({"stream": STREAM, "max_version": (1, 1), "copy": None}, "dltensor_versioned"),
    "CuPy to 13": ({"stream": 1}, "dltensor"),
    "CuPy from 14": (
        {"stream": STREAM, "max_version": (1, 2), "dl_device": None, "copy": None},
        "dltensor_versioned",
    ),
    "CuPy on each thread's stream": ({"stream": 2}, "dltensor"),
    "no arguments": ({}, "dltensor"),
    "a consumer that waits by itself": ({"stream": -1, "max_version": (1, 0)}, "dltensor_versioned"),
    "DLPack 0.8": ({"max_version": (0, 8)}, "dltensor"),
    "DLPack 1.0": ({"max_version": (1, 0)}, "dltensor_versioned"),
    "DLPack 1.1": ({"max_version": (1, 1)}, "dltensor_versioned"),
    "DLPack 1.2": ({"max_version": (1, 2)}, "dltensor_versioned"),
    "DLPack 2": ({"max_version": (2, 0)}, "dltensor_versioned"),
    "a copy": ({"max_version": (1, 0), "copy": True}, "dltensor_versioned"),
    "a copy, before DLPack 1": ({"copy": True}, "dltensor"),
}


def tensors_on_a_device(photos: Path) -> list[Any]:
    """The images, the labels and the targets of a batch."""
    loader = DataLoader(photos, 4, transform=SMALL, device="cuda:0", jpeg_decoder="auto", limit=4)
    batch = next(loader._pipeline().epoch(0))
    return [batch.views[0], batch.labels]


@pytest.mark.skipif(os.environ.get("WARPFEED_TEST_DEVICE") != "cuda", reason="needs a GPU, or the simulated one")
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_tensor_on_a_device_goes_to_each_consumer(photos: Path, consumer: str) -> None:
    arguments, name = CONSUMERS[consumer]
    stream = Driver().stream()
    arguments = {key: stream if value is STREAM else value for key, value in arguments.items()}
    for tensor in tensors_on_a_device(photos):
        assert tensor.__dlpack_device__() == (2, 0) and not hasattr(tensor, "__cuda_array_interface__")
        capsule = tensor.__dlpack__(**arguments)
        assert name_of(capsule) == name
        if name == "dltensor_versioned":
            assert is_copy(capsule) == (arguments.get("copy") is True)
        with pytest.raises(BufferError, match="given away"):
            tensor.__dlpack__(**arguments)


@pytest.mark.skipif(os.environ.get("WARPFEED_TEST_DEVICE") != "cuda", reason="needs a GPU, or the simulated one")
def test_a_refusal_leaves_a_tensor_on_a_device_as_it_was(photos: Path) -> None:
    driver = Driver()
    free, capturing = driver.stream(), driver.stream()
    want = [np.asarray(tensor) for tensor in tensors_on_a_device(photos)]
    for with_version in ({}, {"max_version": (1, 0)}):
        driver.begin_capture(capturing)
        refused: list[tuple[dict[str, Any], type[Exception]]] = [
            ({"stream": 0}, ValueError),
            ({"stream": -2}, ValueError),
            ({"stream": -(2**63)}, ValueError),
            ({"stream": 0x7FFF0010}, warpfeed.Error),
            ({"stream": capturing}, ValueError),
            ({"stream": "default"}, TypeError),
            ({"stream": 2**70}, OverflowError),
            ({"dl_device": (1, 0)}, BufferError),
            ({"dl_device": (2, 1)}, BufferError),
            ({"dl_device": (2, -1)}, ValueError),
            ({"copy": "yes"}, TypeError),
        ]
        tensors = tensors_on_a_device(photos)
        for tensor in tensors:
            for arguments, error in refused:
                with pytest.raises(error):
                    tensor.__dlpack__(**{**with_version, **arguments})
        driver.end_capture(capturing)
        for tensor, values in zip(tensors, want, strict=True):
            with pytest.raises(BufferError):
                np.from_dlpack(tensor, device="cpu")
            assert (np.asarray(tensor) == values).all()
        for tensor in tensors_on_a_device(photos):
            assert tensor.__dlpack__(stream=free, **with_version)


@pytest.mark.skipif(os.environ.get("WARPFEED_TEST_DEVICE") != "cuda", reason="needs a GPU, or the simulated one")
def test_cupys_stream_lives_as_long_as_its_tensor_on_a_device(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, gone = Driver(), []

    class Stream:
        """As CuPy's, which is destroyed with its last object."""

        def __init__(self) -> None:
            self.ptr = driver.stream()

        def __del__(self) -> None:
            assert driver.cuda.cuStreamDestroy_v2(ctypes.c_void_p(self.ptr)) == 0
            gone.append(self.ptr)

    for tensor in tensors_on_a_device(photos):
        stream = Stream()
        handle = stream.ptr
        cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda current=stream: current))
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "cupy", cupy)
            capsule = tensor.__dlpack__(stream=handle)
        del stream, cupy
        gc.collect()
        assert handle not in gone
        del capsule
        gc.collect()
        # Objects that are dropped outside of the package's calls go at its next call.
        repr(tensor)
        assert gone.pop() == handle


@pytest.mark.skipif(os.environ.get("WARPFEED_TEST_DEVICE") != "cuda", reason="needs a GPU, or the simulated one")
def test_a_forked_child_drops_what_it_has_of_tensors_on_a_device(photos: Path) -> None:
    loader = DataLoader(photos, 4, transform=SMALL, device="cuda:0", jpeg_decoder="auto", shuffle=True, num_workers=2)
    for _ in range(8):
        epoch = loader._pipeline().epoch(0)
        batch = next(epoch)
        capsules = [batch.views[0].__dlpack__(), batch.labels.__dlpack__(max_version=(1, 0))]
        child = os.fork()
        if child == 0:
            del epoch, batch, capsules
            gc.collect()
            os._exit(0)
        until = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
            time.sleep(0.01)
        if ended == (0, 0):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert ended == (child, 0)
        epoch.close()


@pytest.mark.skipif(os.environ.get("CUDA_SIM_DEVICES") != "2", reason="needs two simulated GPUs")
def test_batches_on_a_device_of_two_are_those_of_ranks(photos: Path) -> None:
    options: dict[str, Any] = {"shuffle": True, "transform": SMALL, "seed": 2, "limit": 8}
    group = DataLoader(photos, 4, device=["cuda:0", "cuda:1"], jpeg_decoder="auto", **options)
    parts = [batches(DataLoader(photos, 4, distributed=(rank, 2), **options)) for rank in range(2)]
    got = [[(images.tobytes(), labels.tobytes()) for images, labels in each] for each in group]
    assert got == [list(each) for each in zip(*parts, strict=True)] and len(got) == 2
    places = [batch.views[0].__dlpack_device__() for batch in next(group._pipeline().epoch(0)).each]
    assert places == [(2, 0), (2, 1)]


def test_ctrl_c_comes_within_a_fifth_of_a_second(photos: Path) -> None:
    code = """
        import os, signal, sys, threading, time
        from warpfeed.numpy import DataLoader
        # Programs that a shell starts in the background ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        slow = [{"op": "resize", "width": 400, "height": 400}] + 9 * [{"op": "gaussian_blur", "kernel": 23, "sigma": 2}]
        loader = DataLoader(sys.argv[1], 400, transform=slow, dtype="uint8", sampler=[0] * 400, num_workers=1)
        def interrupt():
            global at
            at = time.perf_counter()
            os.kill(os.getpid(), signal.SIGINT)
        try:
            # On a machine that is busy, it may come before the loop.
            threading.Timer(0.5, interrupt).start()
            for _ in loader: pass
        except KeyboardInterrupt:
            print(time.perf_counter() - at)
    """
    done = python(code, str(photos))
    assert done.stdout, done.stderr
    assert float(done.stdout) < 0.2


@pytest.mark.parametrize("workers", [0, 2])
def test_the_interpreter_ends_with_a_live_loader(photos: Path, workers: int) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from warpfeed.numpy import DataLoader
        class Objects:
            def __init__(self, folder): self.files = sorted(Path(folder).glob("*/*.jpg"))
            def __len__(self): return len(self.files)
            def read(self, i): time.sleep(0.001); return self.files[i], i
        crop = [{"op": "center_crop", "width": 8, "height": 8}]
        loader = DataLoader(Objects(sys.argv[1]), 4, transform=crop, num_workers=int(sys.argv[2]))
        iterator = iter(loader)
        next(iterator)
        sys.keep = iterator
        class Cycle: pass
        cycle = Cycle(); cycle.me = cycle; cycle.iterator = iter(loader); next(cycle.iterator)
    """
    for _ in range(int(os.environ.get("WARPFEED_EXITS", "5"))):
        done = python(code, str(photos), str(workers))
        assert (done.returncode, done.stderr) == (0, "")


def test_an_iterator_that_outlives_the_modules_prints_nothing(photos: Path) -> None:
    code = """
        import os, sys
        import warpfeed._loader as module
        from warpfeed.numpy import DataLoader
        loader = DataLoader(sys.argv[1], 4, transform=[{"op": "center_crop", "width": 8, "height": 8}])
        iterator = iter(loader)
        next(iterator)
        # As at the interpreter's end, which clears modules in an order of its own.
        module.os = None
        del iterator
        unfinished = module.Iteration.__new__(module.Iteration)
        del unfinished
        module.os = os
    """
    done = python(code, str(photos))
    assert (done.returncode, done.stderr) == (0, "")


def test_lengths_that_fit_no_memory_are_errors(photos: Path) -> None:
    code = """
        import resource, sys
        from pathlib import Path
        from warpfeed.numpy import DataLoader
        resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
        class Long:
            def __init__(self, length): self.length, self.files = length, sorted(Path(sys.argv[1]).glob("*/*.jpg"))
            def __len__(self): return self.length
            def read(self, i): return self.files[i % len(self.files)], i % 7
        crop = [{"op": "center_crop", "width": 8, "height": 8}]
        def refused(length, **settings):
            try:
                next(iter(DataLoader(Long(length), 4, transform=crop, num_workers=1, **settings)))
            except MemoryError as error:
                return str(error)
        # Only an order that is shuffled is as long as the data set.
        assert next(iter(DataLoader(Long(2**33), 4, transform=crop, num_workers=1)))[1].tolist() == [0, 1, 2, 3]
        assert "shuffle" in refused(2**33, shuffle=True)
        assert str(2**62) in refused(2**62)
    """
    done = python(code, str(photos))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_beside_a_thread_that_never_does(photos: Path) -> None:
    code = """
        import sys, threading, time
        from warpfeed.numpy import DataLoader
        loader = DataLoader(sys.argv[1], 4, transform=[{"op": "center_crop", "width": 8, "height": 8}])
        seen = 0
        def consume():
            global seen
            while True:
                for images, labels in loader:
                    seen += 1
        threading.excepthook = lambda args: None
        threading.Thread(target=consume, daemon=True).start()
        while seen < 30: time.sleep(0.001)
    """
    for _ in range(int(os.environ.get("WARPFEED_EXITS", "5"))):
        done = python(code, str(photos))
        assert (done.returncode, done.stderr) == (0, "")


def test_forked_children(photos: Path) -> None:
    code = """
        import os, signal, sys, warnings
        warnings.simplefilter("ignore")
        from warpfeed.numpy import DataLoader
        loader = DataLoader(sys.argv[1], 4, transform=[{"op": "center_crop", "width": 8, "height": 8}], num_workers=2)
        iterator = iter(loader)
        images, _ = next(iterator)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                next(iterator)
                os._exit(1)
            except RuntimeError as error:
                assert "forked" in str(error)
            got = sum(len(labels) for _, labels in loader)
            del images, iterator, loader
            os._exit(0 if got == 40 else 2)
        assert os.waitpid(child, 0)[1] == 0, "the child"
        assert 4 + sum(len(labels) for _, labels in iterator) == 40
    """
    done = python(code, str(photos))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_that_outlives_its_parent_keeps_no_state_locked(photos: Path, tmp_path: Path) -> None:
    code = """
        import os, sys, threading, time
        from warpfeed import _warpfeed
        threading.Thread(target=_warpfeed.command, args=(sys.argv[2:],), daemon=True).start()
        while not os.path.exists(sys.argv[1]): time.sleep(0.01)
        child = os.fork()
        if child == 0:
            for stream in (0, 1, 2): os.close(stream)
            time.sleep(60)
            os._exit(0)
        sys.stderr.write(f"child {child}")
        sys.stderr.flush()
        os._exit(0)
    """
    state = str(tmp_path / "state")
    run = ["run", str(photos), "--preset", "eval", "--device", "cpu", "--batch-size", "4", "--state", state]
    done = python(code, state, *run, "--epochs", "1000000")
    child = int(done.stderr.rpartition("child ")[2])
    try:
        again = subprocess.run([COMMAND, *run], capture_output=True, text=True, timeout=60)
        assert "written by" not in again.stderr, again.stderr
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_loaders_go_to_processes_of_multiprocessing(photos: Path, method: str, tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent("""
        import multiprocessing, sys, warnings
        warnings.simplefilter("ignore")
        from warpfeed.numpy import DataLoader

        def count(loader):
            return sum(len(labels) for _, labels in loader)

        if __name__ == "__main__":
            loader = DataLoader(sys.argv[1], 4, transform=[{"op": "center_crop", "width": 8, "height": 8}], num_workers=1)
            next(iter(loader))
            with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
                print(pool.map(count, [loader] * 2))
    """)
    )
    done = subprocess.run(
        [sys.executable, str(script), str(photos), method], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[40, 40]", done.stderr


class Ranges(http.server.BaseHTTPRequestHandler):
    """Serves one file, in the ranges that are asked for."""

    protocol_version = "HTTP/1.1"
    data = b""

    def do_HEAD(self) -> None:
        self.answer(b"", len(self.data), 200)

    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "bytes=0-"))
        assert asked is not None
        part = self.data[int(asked[1]) : int(asked[2] or len(self.data)) + 1]
        self.answer(part, len(part), 206, f"bytes {asked[1]}-{int(asked[1]) + len(part) - 1}/{len(self.data)}")

    def answer(self, body: bytes, length: int, status: int, content_range: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"1"')
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def test_a_forked_child_opens_a_url_again(photos: Path, tmp_path: Path) -> None:
    """The thread that fetches, and its connections, are the parent's."""
    pack = [COMMAND, "pack", "-o", str(tmp_path / "packed"), "--format", "webdataset", str(photos)]
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
    (shard,) = (tmp_path / "packed").glob("*.tar")
    handler = type("Shard", (Ranges,), {"data": shard.read_bytes()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/{shard.name}"
    try:
        warpfeed.open(url)
    except warpfeed.UnsupportedError:
        pytest.skip("this build reads no URLs")
    code = """
        import os, pickle, signal, sys, warnings
        warnings.simplefilter("ignore")
        import warpfeed
        from warpfeed.numpy import DataLoader
        source = warpfeed.open(sys.argv[1])
        crop = [{"op": "center_crop", "width": 8, "height": 8}]
        loader = DataLoader(source, 4, transform=crop)
        count = lambda loader: sum(len(labels) for _, labels in loader)
        assert count(loader) == 40
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            got = [count(loader), count(DataLoader(source, 4, transform=crop))]
            os._exit(0 if got == [40, 40] else 2)
        assert os.waitpid(child, 0)[1] == 0, "the child"
        assert count(loader) == count(pickle.loads(pickle.dumps(loader))) == 40
    """
    done = python(code, url)
    server.shutdown()
    assert (done.returncode, done.stderr) == (0, "")


def test_a_source_is_pickled_as_what_it_was_opened_by(photos: Path) -> None:
    loader = DataLoader(warpfeed.open(photos, format="folder"), 8, transform=SMALL)
    assert batches(pickle.loads(pickle.dumps(loader))) == batches(loader)


def test_the_command_comes_along(photos: Path) -> None:
    done = subprocess.run(
        [COMMAND, "run", str(photos), "--preset", "eval", "--device", "cpu", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0 and json.loads(done.stdout)["images"] == 40
    wrong = subprocess.run([COMMAND, "run", str(photos), "--preset", "evil"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "evil" in wrong.stderr


def test_ctrl_c_ends_the_command(photos: Path) -> None:
    command = [COMMAND, "run", str(photos), "--epochs", "100000", "--device", "cpu"]
    # A program that a shell starts in the background ignores it.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=heed)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=5) != 0


class Squares:
    """Samples that Python makes."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> Any:
        if i == 17:
            raise LookupError("seventeen")
        self.asked.append(i)
        return {"image": np.full((3, 2, 2), i, "float32"), "square": i * i, "draw": random.random(), "name": str(i)}


@pytest.mark.parametrize("workers", [0, 3])
def test_a_data_set_of_python_is_batched_and_resumed(workers: int) -> None:
    def rows(loader: Any) -> list[Any]:
        return [row for batch in loader for row in zip(*batch.values(), strict=True)]

    with pytest.warns(UserWarning, match="Squares is no class") if workers == 0 else contextlib.nullcontext():
        loader = DataLoader(Squares(), 3, limit=17, num_workers=workers)
        whole = rows(loader)
    for i, (image, square, _, name) in enumerate(whole):
        assert image.shape == (3, 2, 2) and (image == i).all() and square == i * i and name == str(i)
    assert len({draw for _, _, draw, _ in whole}) == 17 == len(whole)
    shuffled = DataLoader(Squares(), 3, shuffle=True, num_workers=workers, seed=9)
    ranks = [DataLoader(Squares(), 2, shuffle=True, distributed=(rank, 2), num_workers=workers) for rank in (0, 1)]
    assert len(shuffled) == 7 and {len(rank) for rank in ranks} == {5}
    iterator = iter(loader)
    next(iterator)
    again = DataLoader(Squares(), 3, limit=17, num_workers=workers)
    again.load_state_dict(loader.state_dict())
    second = [draw for _, _, draw, _ in rows(iterator)]
    assert [draw for _, _, draw, _ in rows(again)] == second and len(second) == 14
    with pytest.raises(LookupError, match="seventeen"):
        rows(DataLoader(Squares(), 3, num_workers=workers))


def test_functions_stand_behind_transforms(photos: Path) -> None:
    steps = [t.Resize(width=8, height=8)]
    plain, _ = next(iter(DataLoader(photos, 4, transform=steps)))
    doubled, labels = next(iter(DataLoader(photos, 4, transform=[*steps, lambda image: image * 2])))
    assert (doubled == plain * 2).all() and labels.shape == (4,)
    total, _ = next(iter(DataLoader(photos, 4, transform=[*steps, t.Python(lambda image: image.shape, "array")])))
    assert [side.tolist() for side in total] == [[8] * 4, [8] * 4, [3] * 4]
    assert next(iter(DataLoader(photos, 4, transform=steps, collate_fn=len))) == 4
