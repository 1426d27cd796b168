"""Transforms of images in memory: the loader's draws, and what goes along."""

import copy
import pickle
import threading
from collections import namedtuple

import numpy
import pytest
from test_functional import pixels

from warpfeed.numpy import DataLoader
from warpfeed.transforms import (
    ColorJitter,
    Compose,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomHorizontalFlip,
    RandomIouCrop,
    RandomMosaic,
    RandomResizedCrop,
    RandomRotation,
    Resize,
)

PIL = pytest.importorskip("PIL.Image")

LIST = [
    RandomResizedCrop((40, 32)),
    RandomHorizontalFlip(),
    RandAugment(),
    RandomRotation((-20, 20), interpolation="bilinear"),
]
KEY = (7, 3, 5)


def test_draws_and_values_are_the_loaders(tmp_path):
    images = [pixels(47 + 3 * i, 61 - 2 * i) for i in range(6)]
    for i, image in enumerate(images):
        (tmp_path / "a").mkdir(exist_ok=True)
        PIL.fromarray(image).save(tmp_path / "a" / f"{i}.png")
    for steps, dtype in ((LIST, "uint8"), ([*LIST, Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))], "float32")):
        compose = Compose(steps)
        loader = DataLoader(tmp_path, 6, transform=steps, seed=42, dtype=dtype)
        for epoch in (0, 1, 5):
            loader.set_epoch(epoch)
            batch, _ = next(iter(loader))
            assert batch.dtype == dtype
            for i, image in enumerate(images):
                got = compose(image, key=(42, epoch, i))
                assert got.dtype == batch.dtype and numpy.array_equal(got.transpose(2, 0, 1), batch[i])


def test_types_of_images_have_the_same_draws():
    array, compose = pixels(), Compose(LIST)
    want = compose(array, key=KEY)
    assert numpy.array_equal(numpy.asarray(compose(PIL.fromarray(array), key=KEY)), want)
    assert numpy.array_equal(compose(array[::-1][::-1], key=KEY), want)
    gray = compose(PIL.fromarray(array).convert("L"), key=KEY)
    assert gray.mode == "L" and gray.size == (40, 32)
    assert numpy.array_equal(compose(numpy.asarray(PIL.fromarray(array).convert("L")), key=KEY), numpy.asarray(gray))
    bands = pixels(channels=5, dtype=numpy.uint16)
    moved = Compose([RandomCrop(32), RandomHorizontalFlip()])
    got = moved(bands, key=KEY)
    assert got.shape == (32, 32, 5) and got.dtype == numpy.uint16
    assert numpy.array_equal(got[..., 2], moved(bands[..., 2], key=KEY))


def test_structures_are_kept():
    pair = namedtuple("pair", "image name")
    array, compose = pixels(), Compose(LIST)
    want = compose(array, key=KEY)
    image = PIL.fromarray(array)
    rows = numpy.zeros((5, 4))
    sample = {"a": [image, "text"], "b": pair(image, 7), "c": None, "d": rows}
    got = compose(sample, key=KEY)
    assert numpy.array_equal(numpy.asarray(got["a"][0]), want) and got["a"][1] == "text" and got["c"] is None
    assert isinstance(got["b"], pair) and got["b"].name == 7 and numpy.array_equal(numpy.asarray(got["b"].image), want)
    assert got["d"] is rows
    first, label = compose(array, 3, key=KEY)
    assert numpy.array_equal(first, want) and label == 3
    with pytest.raises(ValueError, match="must have one size"):
        compose([image, PIL.fromarray(array[1:])], key=KEY)
    for sample in ({"image": array, "mask": array[..., 0]}, (image, array)):
        with pytest.raises(TypeError, match="is a mask or an image: say which"):
            compose(sample, key=KEY)


def test_copies_and_threads():
    array, compose = pixels(), Compose(LIST)
    want, wrong = compose(array, key=KEY), []
    for other in (pickle.loads(pickle.dumps(compose)), copy.deepcopy(compose), Compose(LIST)):
        assert other == compose and numpy.array_equal(other(array, key=KEY), want)
    assert "RandomResizedCrop" in repr(compose)

    def work():
        wrong.extend(not numpy.array_equal(compose(array, key=KEY), want) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(wrong) == 160 and not any(wrong)


def test_by_keywords_boxes_take_their_rows_along():
    array = pixels()
    compose = Compose([RandomIouCrop(), RandomHorizontalFlip(), Resize(width=30, height=30)])
    mask = (pixels(channels=1)[..., 0] % 5).astype(numpy.int64)
    fewer = 0
    for seed in range(30):
        boxes = [(3.0, 4.0, 30.0, 40.0), (50.0, 10.0, 60.0, 46.0), (0.0, 0.0, 9.0, 9.0)]
        got = compose(image=array, mask=mask, bboxes=boxes, labels=["a", "b", "c"], id=9, key=(seed, 0, 0))
        assert set(got) == {"image", "mask", "bboxes", "labels", "id"} and got["id"] == 9
        assert got["image"].shape == (30, 30, 3) and got["mask"].shape == (30, 30) and got["mask"].dtype == mask.dtype
        assert len(got["bboxes"]) == len(got["labels"]) and set(got["mask"].ravel()) <= set(range(5))
        fewer += len(got["labels"]) < 3
        single = compose(image=array, bboxes=boxes[1:2], labels=["b"], key=(seed, 0, 0))
        assert len(single["bboxes"]) == len(single["labels"])
    assert fewer > 5
    flip = Compose([RandomHorizontalFlip(1.0)])
    got = flip(
        image=array, bboxes=numpy.array([[1.0, 2, 3, 4]] * 2), keypoints=numpy.array([[5.0, 6.0]]), masks=[mask, mask]
    )
    assert got["bboxes"].tolist() == [[58, 2, 60, 4]] * 2 and got["keypoints"].tolist() == [[55, 6]]
    assert all(numpy.array_equal(one, mask[:, ::-1]) for one in got["masks"])
    assert Compose([RandomHorizontalFlip(1.0)], bbox_format="xywh")(image=array, bboxes=[[1, 2, 3, 4]])["bboxes"] == [
        [57, 2, 3, 4]
    ]


def test_what_is_wrong_is_said():
    array = pixels()
    flip = Compose([RandomHorizontalFlip(1.0)])
    for error, text, call in (
        (TypeError, "a sample must have an image", lambda: flip({"a": 3})),
        (TypeError, "give a sample, or image=", lambda: flip()),
        (TypeError, "image must be", lambda: flip(image="photo.jpg")),
        (NotImplementedError, "mode CMYK", lambda: flip(PIL.fromarray(array).convert("CMYK"))),
        (NotImplementedError, "values of float64", lambda: flip(array / 1.0)),
        (
            NotImplementedError,
            "holds no floating-point",
            lambda: Compose([Normalize((0.5,) * 3, (0.5,) * 3)])(PIL.fromarray(array)),
        ),
        (NotImplementedError, "mosaic", lambda: Compose([RandomMosaic(64)])(array)),
        (
            ValueError,
            "one row for each of 1 boxes, got 2",
            lambda: flip(image=array, bboxes=[(1, 2, 3, 4)], labels=[1, 2]),
        ),
        (ValueError, "the image's size", lambda: flip(image=array, mask=array[1:, :, 0])),
        (NotImplementedError, "above 65535", lambda: flip(image=array, mask=numpy.full((47, 61), 70_000))),
        (ValueError, "p", lambda: Compose([RandomHorizontalFlip(2.0)])(array)),
    ):
        with pytest.raises(error, match=text):
            call()
    assert numpy.array_equal(RandomHorizontalFlip(1.0)(array), array[:, ::-1])


def test_tensors_and_torchs_generator():
    torch = pytest.importorskip("torch")
    array, compose = pixels(), Compose(LIST)
    want = compose(array, key=KEY)
    planes = torch.from_numpy(array).permute(2, 0, 1)
    assert numpy.array_equal(compose(planes, key=KEY).permute(1, 2, 0).numpy(), want)
    rows = torch.zeros(5, 4)
    assert compose((planes, rows), key=KEY)[1] is rows
    with pytest.raises(TypeError, match="is a mask or an image"):
        compose((planes, planes[0]), key=KEY)
    batch = compose(planes.expand(4, 3, 47, 61), key=KEY)
    for i in range(4):
        assert numpy.array_equal(batch[i].permute(1, 2, 0).numpy(), compose(array, key=(7, 3, 5 + i)))
    shared = Compose(LIST, per_batch=True)(planes.expand(4, 3, 47, 61), key=KEY)
    assert all(torch.equal(image, batch[0]) for image in shared)
    torch.manual_seed(3)
    first, second = compose(array), compose(array)
    torch.manual_seed(3)
    assert numpy.array_equal(compose(array), first) and not numpy.array_equal(first, second)
    own = Compose(LIST, generator=torch.Generator().manual_seed(3))
    assert numpy.array_equal(own(array), first)


def test_tv_tensors_follow():
    torch = pytest.importorskip("torch")
    tv = pytest.importorskip("torchvision.tv_tensors")
    image = tv.Image(torch.from_numpy(pixels()).permute(2, 0, 1))
    boxes = tv.BoundingBoxes(torch.tensor([[3.0, 4, 30, 40], [50, 10, 60, 46]]), format="XYXY", canvas_size=(47, 61))
    masks = tv.Mask(torch.zeros(2, 47, 61, dtype=torch.uint8))
    for mask, box in zip(masks, boxes, strict=True):
        left, top, right, bottom = box.int().tolist()
        mask[top:bottom, left:right] = 1
    points = tv.KeyPoints(torch.tensor([[5.0, 6.0]]), canvas_size=(47, 61))
    compose = Compose([RandomIouCrop(), RandomHorizontalFlip()])
    for seed in range(20):
        target = {"boxes": boxes, "labels": torch.tensor([1, 2]), "masks": masks, "image_id": 9}
        got, moved = compose(image, target, key=(seed, 0, 0))
        count = len(moved["boxes"])
        assert type(got) is tv.Image and type(moved["boxes"]) is tv.BoundingBoxes and type(moved["masks"]) is tv.Mask
        assert moved["boxes"].canvas_size == tuple(got.shape[-2:]) and moved["masks"].shape == (count, *got.shape[-2:])
        assert moved["image_id"] == 9 and len(moved["labels"]) == count
        for box, mask in zip(moved["boxes"], moved["masks"], strict=True):
            ys, xs = torch.nonzero(mask, as_tuple=True)
            want = torch.tensor([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]).float()
            assert torch.equal(box.as_subclass(torch.Tensor), want)
    got = Compose([RandomHorizontalFlip(1.0)])({"image": image, "points": points})
    assert got["points"].tolist() == [[55, 6]]
    video = tv.Video(torch.stack([image.as_subclass(torch.Tensor)] * 3))
    frames = Compose(LIST)(video, key=KEY)
    assert type(frames) is tv.Video and all(torch.equal(frame, frames[0]) for frame in frames)


def test_frames_of_a_batch_have_keys_and_threads():
    """Eight stacks of four gray frames, as agents see games."""
    torch = pytest.importorskip("torch")
    frames = torch.from_numpy(numpy.stack([pixels(84, 84, 4) for _ in range(8)])).permute(0, 3, 1, 2).contiguous()
    steps = [RandomCrop(84, padding=4, padding_mode="edge"), RandomHorizontalFlip()]
    keys = [(3, i % 3, 7 * i) for i in range(8)]
    want = torch.stack([Compose(steps)(frame, key=key) for frame, key in zip(frames, keys, strict=True)])
    assert want.shape == (8, 4, 84, 84) and len(want.flatten(1).unique(dim=0)) == 8
    for threads in (1, 2, 3, 20):
        assert torch.equal(Compose(steps, threads=threads)(frames, key=keys), want)
    last = frames.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert torch.equal(Compose(steps, threads=2)(last, key=keys), want)
    assert torch.equal(
        Compose(steps, threads=2)(frames, key=(3, 1, 5)), Compose(steps)(frames, key=[(3, 1, 5 + i) for i in range(8)])
    )
    shared = Compose(steps, threads=3, per_batch=True)(frames, key=keys[:1])
    assert torch.equal(shared[5], Compose(steps)(frames[5], key=keys[0]))
    with pytest.raises(ValueError, match="one for each of 8 images, got 3"):
        Compose(steps)(frames, key=keys[:3])
    with pytest.raises(ValueError, match="threads must be 1 or more"):
        Compose(steps, threads=0)
    with pytest.raises(NotImplementedError, match="color_jitter on images of 4 channels"):
        Compose([ColorJitter(saturation=(0.5, 1.5))], threads=2)(frames)
