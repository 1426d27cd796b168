"""warpfeed.functional, against Pillow, and against torchvision where that is installed."""

import os
import pickle
import subprocess
import sys
import threading
import types

import numpy
import pytest

import warpfeed.functional as F

PIL = pytest.importorskip("PIL.Image")


def pixels(height=47, width=61, channels=3, dtype=numpy.uint8):
    y, x, c = numpy.meshgrid(*map(numpy.arange, (height, width, channels)), indexing="ij")
    values = (x * 7919 + y * 104_729 + c * 40_503 + x * y * (c + 3)) % 65_521
    if dtype == numpy.float32:
        return (values / 65_521).astype(dtype)
    return (values % (1 << 8 * numpy.dtype(dtype).itemsize)).astype(dtype)


OPS = {
    "horizontal_flip": (),
    "vertical_flip": (),
    "hflip": (),
    "vflip": (),
    "resize": ([30, 40],),
    "rotate": (30,),
    "affine": (20, [3, -4], 1.2, [5, 3]),
    "perspective": ([[0, 0], [60, 0], [60, 46], [0, 46]], [[3, 2], [55, 4], [58, 40], [1, 44]]),
    "crop": (-3, 4, 20, 60),
    "center_crop": ([20, 33],),
    "resized_crop": (5, 6, 30, 40, [20, 25]),
    "pad": ([1, 2, 3, 4],),
    "gaussian_blur": (5, 1.3),
    "adjust_brightness": (1.3,),
    "adjust_contrast": (0.7,),
    "adjust_saturation": (1.6,),
    "adjust_hue": (0.2,),
    "adjust_sharpness": (2.0,),
    "adjust_gamma": (0.6,),
    "posterize": (3,),
    "solarize": (100,),
    "invert": (),
    "equalize": (),
    "autocontrast": (),
    "jpeg": (60,),
    "permute_channels": ([2, 0, 1],),
    "rgb_to_grayscale": (3,),
}
# Of 8 bits and three channels alone.
COLORS = {
    "adjust_contrast",
    "adjust_saturation",
    "adjust_hue",
    "adjust_sharpness",
    "equalize",
    "autocontrast",
    "jpeg",
    "rgb_to_grayscale",
    "perspective",
}


@pytest.mark.parametrize("name", OPS)
def test_all_types_of_images_have_the_same_values(name):
    array, run = pixels(), lambda image: getattr(F, name)(image, *OPS[name])
    before = array.copy()
    want = run(array)
    assert want.dtype == numpy.uint8 and numpy.array_equal(array, before)
    assert numpy.array_equal(numpy.asarray(run(PIL.fromarray(array))), want)
    wide = numpy.zeros((94, 130, 3), numpy.uint8)
    wide[::2, 5:66] = array
    assert numpy.array_equal(run(wide[::2, 5:66]), want)
    assert numpy.array_equal(run(wide[::-1][1::2, 5:66][::-1]), want)
    torch = pytest.importorskip("torch")
    planes = torch.from_numpy(array).permute(2, 0, 1)
    for tensor in (planes, planes.contiguous(), planes[None, None], planes.expand(2, 3, -1, -1, -1)):
        got = run(tensor)
        assert got.shape[:-3] == tensor.shape[:-3]
        for image in got.reshape(-1, *got.shape[-3:]):
            assert numpy.array_equal(image.permute(1, 2, 0).numpy(), want)
    last = planes[None].contiguous(memory_format=torch.channels_last)
    assert run(last).stride(-3) == 1 or name == "rgb_to_grayscale"
    assert run(planes.new_empty((0, *planes.shape))).shape[0] == 0


def test_crops_inside_tensors_are_views_as_torchvisions_are():
    torch = pytest.importorskip("torch")
    torchvision = pytest.importorskip("torchvision.transforms.v2.functional")
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    planes = torch.from_numpy(pixels().transpose(2, 0, 1).copy())
    inputs = planes, planes.double(), tv_tensors.Image(planes), tv_tensors.Mask(planes[0])
    for tensor in (*inputs, planes[None].contiguous(memory_format=torch.channels_last)):
        for name, arguments in (
            ("crop", (5, 6, 20, 30)),
            ("crop", (0, 0, 47, 61)),
            ("center_crop", ([20, 33],)),
            ("center_crop", ([21, 30],)),
            ("five_crop", ([9, 8],)),
        ):
            if name == "five_crop" and isinstance(tensor, tv_tensors.Mask):
                continue
            got, want = (getattr(module, name)(tensor, *arguments) for module in (F, torchvision))
            for ours, theirs in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
                assert type(ours) is type(theirs) is type(tensor)
                assert (ours.data_ptr(), ours.shape, ours.stride()) == (
                    theirs.data_ptr(),
                    theirs.shape,
                    theirs.stride(),
                )
    # Other results have memory of their own, as all results of arrays have.
    array = pixels()
    assert not numpy.shares_memory(F.crop(array, 5, 6, 20, 30), array)
    assert F.crop(planes, -1, 0, 20, 30).data_ptr() != planes.data_ptr()


def test_tensors_that_are_not_only_memory_have_their_values():
    torch = pytest.importorskip("torch")
    values = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(1))
    negative = torch.complex(values, values).conj().imag
    assert negative.is_neg() and torch.equal(F.hflip(negative), -values.flip(-1))
    with pytest.raises(NotImplementedError, match="no gradient"):
        F.hflip(values.requires_grad_())
    with pytest.raises(TypeError, match="a tensor must be"):
        F.hflip(torch.zeros(7, dtype=torch.uint8))
    # Sides of 1 may have any strides.
    planes = torch.arange(12, dtype=torch.uint8).reshape(3, 4).as_strided((1, 3, 1, 4), (99, 4, 77, 1))
    assert torch.equal(F.hflip(planes), planes.flip(-1))


def test_results_of_pil_images_are_images_like_others(tmp_path):
    PIL.fromarray(pixels()).save(tmp_path / "image.png")
    with PIL.open(tmp_path / "image.png") as opened:
        made = F.hflip(opened)
    want = numpy.ascontiguousarray(pixels()[:, ::-1])
    assert numpy.array_equal(numpy.asarray(made), want) and made.size == (61, 47)
    copy = pickle.loads(pickle.dumps(made))
    made.putpixel((0, 0), (1, 2, 3))
    made.paste((9, 9, 9), (5, 5, 10, 10))
    assert made.getpixel((0, 0)) == (1, 2, 3) and numpy.array_equal(numpy.asarray(copy), want)
    rgba = F.invert(PIL.fromarray(want)).convert("RGBA")
    assert rgba.getchannel("A").getextrema() == (255, 255)
    gray = F.adjust_brightness(PIL.fromarray(want[..., 0]), 0.5)
    assert gray.mode == "L" and numpy.array_equal(numpy.asarray(gray), F.adjust_brightness(want, 0.5)[..., 0])
    # Pillow has such an image in several blocks.
    large = numpy.tile(pixels(), (50, 50, 1))
    assert large.nbytes > 16 << 20
    assert numpy.array_equal(numpy.asarray(F.hflip(PIL.fromarray(large))), large[:, ::-1])


MEMORY = """
import numpy
import warpfeed.functional as F
from PIL import Image

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

array = numpy.zeros((2000, 3000, 3), numpy.uint8)
for tiny in (array[:8, :8], Image.fromarray(array[:8, :8])):
    F.hflip(tiny)
before = resident()
for _ in range(3):
    for name, arguments in OPS.items():
        getattr(F, name)(array, *arguments)
    F.adjust_hue(Image.fromarray(array), 0.1)
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_more_memory_than_two_images_is_kept():
    ops = {
        name: OPS[name] for name in ("rotate", "gaussian_blur", "adjust_sharpness", "resize", "perspective", "equalize")
    }
    code = MEMORY.replace("OPS", repr(ops))
    # Without it glibc keeps large blocks that were freed.
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    image = 2000 * 3000 * 4
    assert image < int(done.stdout) < 2 * image + (8 << 20)


def test_memory_of_pil_images_is_freed():
    resource = pytest.importorskip("resource")
    image = PIL.fromarray(numpy.tile(pixels(), (10, 10, 1)))
    for _ in range(20):
        F.hflip(image)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # All results together have 680 MB.
    for _ in range(600):
        F.hflip(F.hflip(image))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + (100 << 10)


def test_after_a_failure_of_a_device_lists_are_made_anew(monkeypatch):
    from warpfeed import _cuda, _warpfeed

    made = []

    class Failing:
        def __init__(self, *form):
            made.append(form)

        def operation(self, images, operation):
            raise RuntimeError("an illegal memory access") if len(made) == 1 else ValueError("another")

    monkeypatch.setattr(_warpfeed, "CudaTransforms", Failing)
    monkeypatch.setattr(_cuda.Images, "_described", lambda self: None)
    images = object.__new__(_cuda.Images)
    images.shape = (1, 1, 4, 5)
    images._tensor = types.SimpleNamespace(device=types.SimpleNamespace(index=77))
    flip = _warpfeed.Operation('{"op": "hflip"}')
    with pytest.raises(RuntimeError, match="illegal memory access"):
        images.operation(flip)
    with pytest.raises(ValueError, match="another"):
        images.operation(flip)
    assert len(made) == 2


def test_values_are_pillows():
    from PIL import Image, ImageEnhance, ImageOps

    image = PIL.fromarray(pixels())
    for got, want in (
        (F.resize(image, [30, 40]), image.resize((40, 30), Image.BILINEAR)),
        (F.resize(image, [30, 40], "lanczos"), image.resize((40, 30), Image.LANCZOS)),
        (F.resize(image, 20, Image.BICUBIC), image.resize((25, 20), Image.BICUBIC)),
        (F.rotate(image, 30, fill=9), image.rotate(30, fillcolor=(9, 9, 9))),
        (F.rotate(image, 30, Image.BILINEAR, expand=True), image.rotate(30, Image.BILINEAR, expand=True)),
        (F.adjust_brightness(image, 1.3), ImageEnhance.Brightness(image).enhance(1.3)),
        (F.adjust_contrast(image, 0.4), ImageEnhance.Contrast(image).enhance(0.4)),
        (F.adjust_saturation(image, 1.7), ImageEnhance.Color(image).enhance(1.7)),
        (F.adjust_sharpness(image, 2.0), ImageEnhance.Sharpness(image).enhance(2.0)),
        (F.posterize(image, 3), ImageOps.posterize(image, 3)),
        (F.solarize(image, 100), ImageOps.solarize(image, 100)),
        (F.equalize(image), ImageOps.equalize(image)),
        (F.rgb_to_grayscale(image), image.convert("L")),
        (F.pad(image, [1, 2, 3, 4], fill=[9, 8, 7]), ImageOps.expand(image, (1, 2, 3, 4), (9, 8, 7))),
        (F.hflip(image.convert("L")), ImageOps.mirror(image.convert("L"))),
        (F.rotate(image.convert("L"), 77, fill=200), image.convert("L").rotate(77, fillcolor=200)),
    ):
        assert got.mode == want.mode and numpy.array_equal(numpy.asarray(got), numpy.asarray(want))


@pytest.mark.parametrize("dtype", [numpy.uint8, numpy.uint16, numpy.float32])
@pytest.mark.parametrize("channels", [1, 2, 4, 13])
def test_channels_are_images_of_their_own(dtype, channels):
    array = pixels(channels=channels, dtype=dtype)
    for name, arguments in OPS.items():
        bytes_alone = name in ("permute_channels", "adjust_gamma") or name in COLORS
        if bytes_alone or dtype == numpy.float32 and name in ("posterize", "solarize"):
            continue
        got = getattr(F, name)(array, *arguments)
        assert got.dtype == dtype and got.shape[2] == channels, name
        for channel in range(channels):
            own = getattr(F, name)(numpy.ascontiguousarray(array[:, :, channel]), *arguments)
            assert numpy.array_equal(got[:, :, channel], own), name


@pytest.mark.parametrize("dtype", [numpy.uint8, numpy.uint16, numpy.float32])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("sides", [(47, 61), (1, 130), (130, 1), (64, 200)])
def test_copies_are_numpys(dtype, channels, sides):
    torch = pytest.importorskip("torch")
    array = numpy.stack([pixels(*sides, channels, dtype), pixels(*sides, channels, dtype)[::-1]]).transpose(0, 3, 1, 2)
    height, width = sides
    gaps = numpy.zeros((2, channels, height + 3, width + 2), dtype)
    gaps[:, :, 1:-2, :-2] = array
    for planes in (torch.from_numpy(array.copy()), torch.from_numpy(array), torch.from_numpy(gaps)[:, :, 1:-2, :-2]):
        for got, want in (
            (F.hflip(planes), array[..., ::-1]),
            (F.vflip(planes), array[..., ::-1, :]),
            (F.rotate(planes, 90, expand=True), numpy.rot90(array, 1, (2, 3))),
            (F.rotate(planes, 180, expand=True), numpy.rot90(array, 2, (2, 3))),
            (F.rotate(planes, 270, expand=True), numpy.rot90(array, 3, (2, 3))),
            (F.crop(planes, 0, 0, height, width - width // 2), array[..., : width - width // 2]),
            (F.crop(planes, -2, -3, height + 3, width + 4), numpy.pad(array, [(0, 0)] * 2 + [(2, 1), (3, 1)])),
            (F.pad(planes, [3, 1], fill=7), numpy.pad(array, [(0, 0)] * 2 + [(1, 1), (3, 3)], constant_values=7)),
            (F.pad(planes, 5, padding_mode="edge"), numpy.pad(array, [(0, 0)] * 2 + [(5, 5)] * 2, "edge")),
            (F.pad(planes, 5, padding_mode="symmetric"), numpy.pad(array, [(0, 0)] * 2 + [(5, 5)] * 2, "symmetric")),
        ):
            assert got.dtype == planes.dtype and numpy.array_equal(got.numpy(), want)


@pytest.mark.parametrize("dtype", ["int8", "bool", "int16", "float16", "int32", "int64", "float64"])
def test_values_of_any_type_are_copied(dtype):
    array = (pixels(dtype=numpy.uint16).astype(numpy.int64) - 30_000).astype(dtype)
    assert numpy.array_equal(F.hflip(array), array[:, ::-1])
    assert numpy.array_equal(F.crop(array, 5, 6, 20, 30), array[5:25, 6:36])
    assert numpy.array_equal(
        F.pad(array, [2, 3], padding_mode="reflect"), numpy.pad(array, ((3, 3), (2, 2), (0, 0)), "reflect")
    )
    with pytest.raises(NotImplementedError, match=f"values of {dtype} are not supported"):
        F.adjust_brightness(array, 0.5)
    with pytest.raises(NotImplementedError, match=f"a fill among values of {dtype}"):
        F.pad(array, 2, fill=7)


def test_floats_and_16_bits_have_torchvisions_ranges():
    floats, wide = pixels(dtype=numpy.float32), pixels(dtype=numpy.uint16)
    assert numpy.array_equal(F.adjust_brightness(floats, 1.7), numpy.minimum(floats * numpy.float32(1.7), 1))
    assert numpy.array_equal(F.invert(floats), 1 - floats) and numpy.array_equal(F.invert(wide), 65535 - wide)
    assert numpy.array_equal(F.solarize(floats, 0.25), numpy.where(floats >= 0.25, 1 - floats, floats))
    assert numpy.array_equal(F.solarize(wide, 30_000), numpy.where(wide >= 30_000, 65535 - wide, wide))


def test_nothing_to_do_gives_the_input():
    array = pixels()
    assert F.resize(array, [47, 61]) is array and F.posterize(array, 8) is array and F.grayscale_to_rgb(array) is array


def test_parts_of_a_pixel_and_coefficients():
    from PIL import Image

    image = PIL.fromarray(pixels())
    want = image.transform(image.size, Image.AFFINE, (1, 0, -2.25, 0, 1, 1.5), Image.BILINEAR)
    got = F.affine(image, 0, [2.25, -1.5], 1.0, 0, Image.BILINEAR)
    assert numpy.array_equal(numpy.asarray(got), numpy.asarray(want))
    start, end = OPS["perspective"]
    rows = []
    for (x, y), (u, v) in zip(end, start, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    coefficients = numpy.linalg.solve(numpy.array(rows, float), numpy.array(start, float).ravel())
    got = F.perspective(image, None, None, coefficients=coefficients.tolist())
    assert numpy.array_equal(numpy.asarray(got), numpy.asarray(F.perspective(image, start, end)))


def test_what_is_wrong_is_said():
    array = pixels()
    for error, text, call in (
        (TypeError, "inpt must be a PIL image", lambda: F.hflip("photo.jpg")),
        (TypeError, r"an array must be \[H, W, C\] or \[H, W\]", lambda: F.hflip(array[None])),
        (NotImplementedError, "mode CMYK.*convert", lambda: F.hflip(PIL.fromarray(array).convert("CMYK"))),
        (NotImplementedError, "values of float64", lambda: F.resize(array / 1.0, 20)),
        (NotImplementedError, "another byte order", lambda: F.hflip(array.astype(">u2"))),
        (ValueError, "interpolation must be one of", lambda: F.resize(array, 20, "cubic")),
        (NotImplementedError, "rotate with the filter lanczos", lambda: F.rotate(array, 5, "lanczos")),
        (ValueError, "one for each of 3 channels", lambda: F.pad(array, 1, fill=[1, 2])),
        (ValueError, "not in", lambda: F.adjust_hue(array, 0.7)),
        (ValueError, "bigger than input", lambda: F.five_crop(array, 90)),
        (TypeError, "displacement", lambda: F.elastic(array, None)),
        (ValueError, "size", lambda: F.resize(array, 0)),
    ):
        with pytest.raises(error, match=text):
            call()


def test_threads_and_imports():
    array = pixels()
    want, wrong = F.rotate(array, 20), []

    def work():
        for _ in range(30):
            wrong.append(not numpy.array_equal(F.rotate(array, 20), want))

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(wrong) == 240 and not any(wrong)
    assert pickle.loads(pickle.dumps(F.hflip)) is F.hflip
    loaded = "import sys, warpfeed.functional; print([m for m in ('numpy', 'torch', 'PIL') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True).stdout.strip() == "[]"


def test_masks_boxes_and_points_are_torchvisions():
    torch = pytest.importorskip("torch")
    tv = pytest.importorskip("torchvision.tv_tensors")
    import torchvision.transforms.v2.functional as T

    torch.manual_seed(1)
    boxes = tv.BoundingBoxes(torch.tensor([[3.0, 4, 30, 40], [20, 10, 60, 46]]), format="XYXY", canvas_size=(47, 61))
    points = tv.KeyPoints(torch.rand(5, 2) * 40, canvas_size=(47, 61))
    mask = tv.Mask(torch.randint(0, 300, (2, 47, 61)))
    for name in ("horizontal_flip", "vertical_flip", "resize", "rotate", "affine", "perspective", "crop", "pad"):
        for inpt in (boxes, points, mask):
            got, want = (getattr(library, name)(inpt, *OPS[name]) for library in (F, T))
            assert type(got) is type(want) and got.dtype == want.dtype
            assert getattr(got, "canvas_size", None) == getattr(want, "canvas_size", None), name
            if inpt is not mask:
                assert torch.allclose(got.as_subclass(torch.Tensor), want.as_subclass(torch.Tensor), atol=1e-3), name
            elif name != "resize":
                # torchvision's values of tensors are not those of its PIL images; here they are.
                assert (got != want).float().mean() < 0.03, name
    assert F.gaussian_blur(boxes, 3) is boxes and F.adjust_hue(mask, 0.1) is mask
    filled = F.rotate(mask, 20, fill=255)
    image = PIL.fromarray((mask[0] % 256).numpy().astype(numpy.uint8))
    assert numpy.array_equal(filled[0].numpy() % 256, numpy.asarray(image.rotate(20, fillcolor=255)))
    assert filled.dtype == torch.int64


@pytest.mark.parametrize("clamping", ["soft", "hard", None])
@pytest.mark.parametrize("form", ["XYXY", "CXCYWH", "XYWHR", "CXCYWHR", "XYXYXYXY"])
def test_boxes_of_all_forms_are_torchvisions(form, clamping):
    torch = pytest.importorskip("torch")
    tv = pytest.importorskip("torchvision.tv_tensors")
    T = pytest.importorskip("torchvision.transforms.v2.functional")
    torch.manual_seed(3)
    if len(form) in (5, 7, 8):
        rows = torch.rand(20, 5) * torch.tensor([20, 15, 20, 15, 80]) + torch.tensor([15, 15, 4, 4, 3])
        source = "CXCYWHR"
    else:
        rows, source = torch.rand(20, 4) * 20 + torch.tensor([0, 0, 20, 20]), "XYXY"
    boxes = tv.BoundingBoxes(
        T.convert_bounding_box_format(rows, source, form), format=form, canvas_size=(47, 61), clamping_mode=clamping
    )
    moves = (torch.rand(1, 47, 61, 2) - 0.5) * 0.2
    cases = {name: OPS[name] for name in ("hflip", "vflip", "resize", "rotate", "affine", "perspective", "crop", "pad")}
    for name, arguments in {**cases, "elastic": (moves,)}.items():
        got, want = (getattr(library, name)(boxes, *arguments) for library in (F, T))
        assert got.canvas_size == want.canvas_size and got.format == want.format, name
        assert got.clamping_mode == clamping
        assert torch.allclose(got.as_subclass(torch.Tensor), want.as_subclass(torch.Tensor), atol=2e-2), name
    empty = tv.wrap(boxes[:0], like=boxes)
    assert F.rotate(empty, 20).shape == empty.shape and F.elastic(empty, moves).shape == empty.shape


def test_displacements_are_torchvisions():
    torch = pytest.importorskip("torch")
    T = pytest.importorskip("torchvision.transforms.v2.functional")
    torch.manual_seed(5)
    moves = (torch.rand(1, 47, 61, 2) - 0.5) * 0.3
    for dtype, most in ((numpy.uint8, 1), (numpy.float32, 1e-5)):
        for channels in (1, 3, 5):
            image = torch.from_numpy(pixels(channels=channels, dtype=dtype)).movedim(-1, 0).contiguous()
            for how in ("bilinear", "nearest"):
                fill = None if channels == 5 else [9 if dtype == numpy.uint8 else 0.5] * channels
                got, want = (library.elastic(image, moves, T.InterpolationMode(how), fill) for library in (F, T))
                differences = (got.float() - want.float()).abs()
                # A place halfway between two pixels may be rounded to either.
                assert (differences <= most).float().mean() > (0.995 if how == "nearest" else 0.9999), (dtype, how)
                assert differences.float().mean() < 0.2
    array = pixels()
    assert numpy.array_equal(
        F.elastic(array, moves), F.elastic(torch.from_numpy(array).movedim(-1, 0), moves).movedim(0, -1)
    )
    assert numpy.array_equal(F.elastic(array, numpy.zeros((1, 47, 61, 2), numpy.float32)), array)
    with pytest.raises(ValueError, match="displacement shape"):
        F.elastic(array, moves[:, 1:])
    with pytest.raises(TypeError, match="displacement"):
        F.elastic(array, [1, 2])


def test_blurs_of_two_sides_and_gains_are_torchvisions():
    torch = pytest.importorskip("torch")
    T = pytest.importorskip("torchvision.transforms.v2.functional")
    for dtype, most in ((numpy.uint8, 1), (numpy.float32, 1e-5)):
        image = torch.from_numpy(pixels(dtype=dtype)).movedim(-1, 0).contiguous()
        for kernel, sigma in (([3, 9], [0.8, 2.5]), ([9, 1], [2.0, 0.5]), ([5, 5], [0.4, 3.0]), (7, [1.0, 2.0])):
            sides = kernel if isinstance(kernel, list) else [kernel] * 2
            got, want = F.gaussian_blur(image, kernel, sigma), T.gaussian_blur(image, sides, sigma)
            assert (got.float() - want.float()).abs().max() <= most, (kernel, sigma)
    image = PIL.fromarray(pixels())
    for gain in (0.5, 1, 1.7):
        assert numpy.array_equal(F.adjust_gamma(image, 0.7, gain), T.adjust_gamma(image, 0.7, gain)), gain
