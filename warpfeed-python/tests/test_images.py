"""Images decoded alone, against Pillow."""

import io
import threading

import numpy
import pytest

import warpfeed

PIL = pytest.importorskip("PIL.Image")


def image(width=61, height=47):
    x, y = numpy.meshgrid(numpy.arange(width), numpy.arange(height))
    return PIL.fromarray(numpy.stack([x * 4 % 256, y * 5 % 256, (x + y) * 3 % 256], 2).astype(numpy.uint8))


def encoded(format="JPEG", **options):
    file = io.BytesIO()
    image().save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize("options", [{}, {"quality": 95, "subsampling": 0}, {"progressive": True}, {"format": "PNG"}])
def test_pixels_are_pillows(options, tmp_path):
    data = encoded(**options)
    want = numpy.asarray(PIL.open(io.BytesIO(data)).convert("RGB"))
    path = tmp_path / "image"
    path.write_bytes(data)
    for source in (data, bytearray(data), memoryview(data), numpy.frombuffer(data, numpy.uint8), path, str(path)):
        got = warpfeed.decode(source)
        assert got.dtype == numpy.uint8 and numpy.array_equal(got, want)
    out = numpy.zeros_like(want)
    assert warpfeed.decode(data, out=out) is out and numpy.array_equal(out, want)
    assert numpy.array_equal(warpfeed.decode(data, crop=(7, 5, 40, 30)), want[5:30, 7:40])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_as_pillow_does(orientation):
    exif = PIL.Exif()
    exif[0x112] = orientation
    data = encoded(exif=exif)
    stored = PIL.open(io.BytesIO(data))
    assert numpy.array_equal(warpfeed.decode(data), numpy.asarray(stored))
    from PIL import ImageOps

    want = numpy.asarray(ImageOps.exif_transpose(stored))
    assert numpy.array_equal(warpfeed.decode(data, exif=True), want)
    assert numpy.array_equal(warpfeed.decode(data, exif=True, crop=(3, 2, 30, 40)), want[2:40, 3:30])


def test_what_is_wrong_is_said():
    data = encoded()
    with pytest.raises(warpfeed.DataError, match="truncated|ends|end after"):
        warpfeed.decode(data[: len(data) // 2])
    with pytest.raises(warpfeed.Error):
        warpfeed.decode(b"no image")
    with pytest.raises(TypeError, match="data must be the bytes of an image or its path, got int"):
        warpfeed.decode(7)
    with pytest.raises(FileNotFoundError):
        warpfeed.decode("missing.jpg")
    with pytest.raises(ValueError, match="crop must be"):
        warpfeed.decode(data, crop=(5, 5, 5, 9))
    with pytest.raises(ValueError, match="inside the image"):
        warpfeed.decode(data, crop=(5, 5, 500, 9))
    with pytest.raises(ValueError, match="inside the image"):
        warpfeed.decode(data, crop=(5, 5, 500, 9), exif=True)
    with pytest.raises(ValueError, match=r"an array of the shape \[47, 61, 3\]"):
        warpfeed.decode(data, out=numpy.empty((47, 61), numpy.uint8))
    with pytest.raises(TypeError, match="out must be an array of uint8"):
        warpfeed.decode(data, out=numpy.empty((47, 61, 3), numpy.float32))
    with pytest.raises(ValueError, match="contiguous and writable"):
        warpfeed.decode(data, out=numpy.empty((47, 122, 3), numpy.uint8)[:, ::2])


def test_threads_decode_side_by_side():
    images = [encoded(quality=quality) for quality in range(60, 100, 5)]
    want = [warpfeed.decode(data) for data in images]
    wrong = []

    def work():
        for _ in range(20):
            wrong.extend(i for i, data in enumerate(images) if not numpy.array_equal(warpfeed.decode(data), want[i]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong
