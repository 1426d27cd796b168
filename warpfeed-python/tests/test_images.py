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


def test_what_is_wrong_is_said(tmp_path):
    data = encoded()
    path = tmp_path / "half.jpg"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(warpfeed.DataError, match="half.jpg: "):
        warpfeed.decode(path)
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
    with pytest.raises(ValueError, match=r"out must be uint8 of the shape \[47, 61, 3\]"):
        warpfeed.decode(data, out=numpy.empty((47, 61), numpy.uint8))
    with pytest.raises(ValueError, match="out must be uint8 of the shape .* got float32"):
        warpfeed.decode(data, out=numpy.empty((47, 61, 3), numpy.float32))
    with pytest.raises(ValueError, match='mode must be "RGB", "BGR", "L", "luma" or "own", got "CMYK"'):
        warpfeed.decode(data, "CMYK")
    with pytest.raises(ValueError, match="size must be"):
        warpfeed.decode(data, size=(0, 9))
    with pytest.raises(ValueError, match="contiguous and writable"):
        warpfeed.decode(data, out=numpy.empty((47, 122, 3), numpy.uint8)[:, ::2])


def test_modes_and_layouts_are_pillows():
    turned = PIL.Exif()
    turned[0x112] = 8
    for data in (encoded(), encoded("PNG"), encoded(exif=turned)):
        stored = PIL.open(io.BytesIO(data))
        want = numpy.asarray(stored.convert("RGB"))
        assert numpy.array_equal(warpfeed.decode(data, "BGR"), want[:, :, ::-1])
        assert numpy.array_equal(warpfeed.decode(data, layout="CHW"), want.transpose(2, 0, 1))
        gray = numpy.asarray(stored.convert("L"))
        for layout in ("HWC", "CHW"):
            assert numpy.array_equal(warpfeed.decode(data, "L", layout=layout), gray)
        assert numpy.array_equal(warpfeed.decode(data, "own", crop=(3, 4, 50, 40)), want[4:40, 3:50])
    from PIL import ImageOps

    want = numpy.asarray(ImageOps.exif_transpose(stored))
    for mode, layout in (("RGB", "CHW"), ("BGR", "HWC"), ("own", "HWC"), ("own", "CHW")):
        got = warpfeed.decode(data, mode, exif=True, layout=layout)
        got = got.transpose(1, 2, 0) if layout == "CHW" else got
        assert numpy.array_equal(got[:, :, ::-1] if mode == "BGR" else got, want), (mode, layout)


def test_luma_is_what_a_jpeg_stores():
    """Pillow's `draft("L")` has libjpeg give gray."""
    for options in ({}, {"quality": 95, "subsampling": 0}, {"progressive": True}, {"subsampling": 1, "quality": 30}):
        data = encoded(**options)
        stored = PIL.open(io.BytesIO(data))
        stored.draft("L", stored.size)
        want = numpy.asarray(stored)
        assert want.ndim == 2 and numpy.array_equal(warpfeed.decode(data, "luma"), want)
        assert numpy.array_equal(warpfeed.decode(data, "luma", crop=(3, 4, 50, 40)), want[4:40, 3:50])
        assert numpy.array_equal(warpfeed.decode(data), numpy.asarray(PIL.open(io.BytesIO(data))))
        small = PIL.open(io.BytesIO(data))
        small.draft("L", (31, 24))
        assert numpy.array_equal(warpfeed.decode(data, "luma", size=(31, 24)), numpy.asarray(small))
    file = io.BytesIO()
    image().convert("L").save(file, "JPEG")
    assert numpy.array_equal(warpfeed.decode(file.getvalue(), "luma"), warpfeed.decode(file.getvalue(), "L"))
    file = io.BytesIO()
    image().convert("CMYK").save(file, "JPEG")
    for data, name in ((encoded("PNG"), "PNG"), (file.getvalue(), "CMYK")):
        with pytest.raises(NotImplementedError, match=f"luma of a {name}"):
            warpfeed.decode(data, "luma")


def test_own_values_are_the_files():
    gray = numpy.arange(60 * 40, dtype=numpy.uint16).reshape(40, 60) * 27
    file = io.BytesIO()
    PIL.fromarray(gray).save(file, "PNG")
    got = warpfeed.decode(file.getvalue(), "own")
    assert got.dtype == numpy.uint16 and numpy.array_equal(got, gray[:, :, None])
    assert numpy.array_equal(
        warpfeed.decode(file.getvalue(), "own", crop=(5, 6, 9, 12), layout="CHW")[0], gray[6:12, 5:9]
    )
    with pytest.raises(ValueError, match="out must be uint16"):
        warpfeed.decode(file.getvalue(), "own", out=numpy.zeros((40, 60, 1), numpy.uint8))
    bands = numpy.arange(5 * 4 * 7, dtype=numpy.float32).reshape(5, 4, 7)
    file = io.BytesIO()
    numpy.save(file, bands)
    assert numpy.array_equal(warpfeed.decode(file.getvalue(), "own"), bands)
    alpha = image().convert("RGBA")
    alpha.putalpha(77)
    file = io.BytesIO()
    alpha.save(file, "PNG")
    assert numpy.array_equal(warpfeed.decode(file.getvalue(), "own"), numpy.asarray(alpha))


@pytest.mark.parametrize("size", [(15, 11), (30, 23), (31, 23), (61, 47), (7, 5), (1, 1)])
def test_reduced_sizes_are_pillows_drafts(size):
    data = encoded()
    stored = PIL.open(io.BytesIO(data))
    stored.draft("RGB", size)
    want = numpy.asarray(stored)
    assert numpy.array_equal(warpfeed.decode(data, size=size), want)
    height, width = want.shape[:2]
    part = (width // 3, height // 4, width, height)
    assert numpy.array_equal(warpfeed.decode(data, size=size, crop=part), want[part[1] :, part[0] :])


def test_headers(tmp_path):
    exif = PIL.Exif()
    exif[0x112] = 6
    data = encoded(progressive=True, exif=exif)
    header = warpfeed.probe(data)
    assert header == ("JPEG", 61, 47, 3, "uint8", 6, 8, True, False) and header.width == 61
    path = tmp_path / "padded.png"
    path.write_bytes(encoded("PNG") + bytes(200_000))
    assert warpfeed.probe(path)[:6] == ("PNG", 61, 47, 3, "uint8", 1)
    with pytest.raises(FileNotFoundError):
        warpfeed.probe(tmp_path / "missing.jpg")
    path = tmp_path / "text.jpg"
    path.write_bytes(b"no image")
    with pytest.raises(warpfeed.DataError, match="text.jpg"):
        warpfeed.probe(path)


def test_headers_of_tiffs_are_anywhere(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    path = tmp_path / "large.tif"
    large = numpy.arange(300 * 400, dtype=numpy.uint16).reshape(300, 400)
    tifffile.imwrite(path, large)
    assert warpfeed.probe(str(path))[:5] == ("TIFF", 400, 300, 1, "uint16")
    assert numpy.array_equal(warpfeed.decode(path, "own")[:, :, 0], large)


@pytest.mark.parametrize("quality", [30, 75, 95])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_encoded_pixels_are_pillows(quality, subsampling):
    pixels = numpy.asarray(image())
    want = encoded(quality=quality, subsampling=subsampling)
    got = warpfeed.encode(pixels, quality=quality, subsampling=subsampling)
    assert numpy.array_equal(warpfeed.decode(got), warpfeed.decode(want))
    assert warpfeed.encode(pixels.transpose(2, 0, 1), layout="CHW", quality=quality, subsampling=subsampling) == got
    assert warpfeed.encode(image(), quality=quality, subsampling=subsampling) == got


def test_encoded_gray_and_png():
    pixels = numpy.asarray(image())
    assert numpy.array_equal(warpfeed.decode(warpfeed.encode(pixels, "PNG")), pixels)
    gray = numpy.asarray(image().convert("L"))
    file = io.BytesIO()
    PIL.fromarray(gray).save(file, "JPEG")
    got = warpfeed.encode(gray)
    assert warpfeed.probe(got).channels == 1
    assert numpy.array_equal(warpfeed.decode(got), warpfeed.decode(file.getvalue()))
    assert numpy.array_equal(warpfeed.decode(warpfeed.encode(gray, "PNG"), "L"), gray)
    assert warpfeed.probe(warpfeed.encode(pixels, progressive=True)).progressive
    for wrong, of in (
        ({"quality": 0}, pixels),
        ({"subsampling": "4:3:2"}, pixels),
        ({}, pixels[..., :2]),
        ({}, pixels / 2),
    ):
        with pytest.raises(ValueError):
            warpfeed.encode(of, **wrong)
    with pytest.raises(ValueError, match="at least one pixel"):
        warpfeed.encode(pixels[:0])


def test_tensors():
    torch = pytest.importorskip("torch")
    data = encoded()
    want = numpy.asarray(PIL.open(io.BytesIO(data)))
    got = warpfeed.decode(data, array="torch", layout="CHW")
    assert got.dtype == torch.uint8 and numpy.array_equal(got.numpy(), want.transpose(2, 0, 1))
    out = torch.empty((47, 61, 3), dtype=torch.uint8)
    assert warpfeed.decode(data, out=out) is out and numpy.array_equal(out.numpy(), want)
    with pytest.raises(ValueError, match="contiguous"):
        warpfeed.decode(data, out=torch.empty((3, 47, 61), dtype=torch.uint8).permute(1, 2, 0))
    assert warpfeed.encode(got, layout="CHW") == warpfeed.encode(want)
    torchvision = pytest.importorskip("torchvision")
    bytes_ = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    assert torch.equal(
        torchvision.io.decode_image(bytes_), warpfeed.decode(bytes_.numpy(), array="torch", layout="CHW")
    )


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
