#!/usr/bin/env python3
"""Writes down what Pillow, torchvision and OpenCV make of the reference images.

    python tests/reference/make.py

Needs Pillow 13, torch, torchvision, numpy and opencv-python-headless; a GPU is of no use. The JPEGs in images/ come
from `cargo test --test integration -- --ignored make_reference_images`; the PNG and WebP files are made here if missing.

cases.jsonl has one case a line:
  image        file name in images/
  kind         what is tried, for choosing cases and for messages
  ops          the operations, as in a written recipe
  orientation  "apply": the EXIF orientation is applied before the operations; otherwise it is ignored
  draft        [width, height] for Image.draft, which comes before everything else
  thumbnail    the parameters of Image.thumbnail, which comes next: size, interpolation, reducing_gap
  dtype, shape of the result: uint8 [height, width, 3], or float32 [3, height, width] after normalize
  sha256       of the result's bytes in C order, little endian
  compare      "exact", or {"max_abs": n}: no element differs by more than n; with "share" all but so many of them
  array        the result itself, in arrays/, where compare is not exact
"""

import hashlib
import itertools
import json
import pathlib
import random
import statistics
import unittest.mock

import cv2
import numpy
import torch
import torchvision.transforms.functional as tv
import torchvision.transforms.v2.functional as v2
from PIL import Image, ImageFile, ImageOps

HERE = pathlib.Path(__file__).resolve().parent
IMAGES = HERE / "images"
ARRAYS = HERE / "arrays"
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
FILTERS = ("nearest", "bilinear", "bicubic", "lanczos")


def make_lossless():
    """PNG and WebP images from the pixels of a JPEG, with what PNG and WebP can have besides."""
    rgb = Image.open(IMAGES / "baseline-444.jpg").convert("RGB").resize((53, 37))
    alpha = Image.linear_gradient("L").resize(rgb.size)
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    grey_alpha = rgb.convert("L").convert("LA")
    grey_alpha.putalpha(alpha)
    palette = rgb.quantize(60)
    deep = cv2.cvtColor(numpy.asarray(rgb), cv2.COLOR_RGB2BGR).astype(numpy.uint16) * 257 + 3
    exif = Image.Exif()
    exif[0x0112] = 6
    made = {
        "rgb.png": lambda path: rgb.save(path),
        "rgba.png": lambda path: rgba.save(path),
        "palette.png": lambda path: palette.save(path),
        "palette-transparent.png": lambda path: palette.save(path, transparency=bytes(range(0, 240, 4))),
        "grey.png": lambda path: rgb.convert("L").save(path),
        "grey-alpha.png": lambda path: grey_alpha.save(path),
        "one-bit.png": lambda path: rgb.convert("1").save(path),
        "rgb16.png": lambda path: cv2.imwrite(str(path), numpy.clip(deep, 0, 65535).astype(numpy.uint16)),
        "orientation-6.png": lambda path: rgb.save(path, exif=exif),
        "lossy.webp": lambda path: rgb.save(path, quality=70),
        "lossless.webp": lambda path: rgb.save(path, lossless=True),
        "alpha.webp": lambda path: rgba.save(path, lossless=True, exact=True),
        "orientation-6.webp": lambda path: rgb.save(path, quality=70, exif=exif),
    }
    for name, save in made.items():
        if not (IMAGES / name).exists():
            save(IMAGES / name)


def interpolation(op, default):
    return tv.InterpolationMode(op.get("interpolation", default))


def square(op):
    return numpy.ones((op["kernel"], op["kernel"]), numpy.uint8)


def words(key, width, height):
    """The four words of each pixel: Philox4x32-10 with the column and the row as counter."""
    low, high, mask = key & 0xFFFFFFFF, key >> 32, numpy.uint64(0xFFFFFFFF)
    y, x = numpy.mgrid[:height, :width].astype(numpy.uint64)
    state = [x, y, numpy.zeros_like(x), numpy.zeros_like(x)]
    for _ in range(10):
        first, third = state[0] * numpy.uint64(0xD2511F53), state[2] * numpy.uint64(0xCD9E8D57)
        upper = lambda product: product >> numpy.uint64(32)
        state = [upper(third) ^ state[1] ^ numpy.uint64(low), third & mask,
                 upper(first) ^ state[3] ^ numpy.uint64(high), first & mask]
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return numpy.stack(state)


def normals(key, width, height):
    """The normal deviates of each pixel, as src/ops/noise.rs describes them: [3, height, width]."""
    exact = lambda octave, part: -statistics.NormalDist().inv_cdf((1 + part / 32) * 2.0 ** (octave - 33))
    table = numpy.array([round(exact(place // 32, place % 32) * 2**20) for place in range(1024)] + [0])
    word = words(key, width, height)[:3].astype(numpy.int64)
    probability = word << 1 & 0xFFFFFFFF | 1
    octave = numpy.floor(numpy.log2(probability)).astype(numpy.int64)
    mantissa = probability << (31 - octave)
    place, part = octave * 32 + (mantissa >> 26 & 31), mantissa >> 10 & 0xFFFF
    size = table[place] + ((table[place + 1] - table[place]) * part >> 16)
    return numpy.where(word >> 31, -size, size).astype(numpy.float32) * numpy.float32(2.0**-20)


def gaussian_noise(image, op):
    """torchvision's, with the deviates of the operation's key."""
    deviates = torch.from_numpy(normals(op["key"], *image.size))
    with unittest.mock.patch("torch.randn_like", lambda *_, **__: deviates):
        made = v2.gaussian_noise(v2.pil_to_tensor(image), op["mean"], op["sigma"], op["clip"])
    return v2.to_pil_image(made)


def elastic(image, op):
    """torchvision's, with the displacements that its ElasticTransform makes of the noise of the operation's key."""
    width, height = image.size
    noise = (words(op["key"], width, height)[:2] >> numpy.uint64(8)).astype(numpy.float32) / numpy.float32(2**23) - 1
    kernel = int(8 * op["sigma"] + 1) // 2 * 2 + 1
    fields = []
    for field, alpha, side in zip(noise, op["alpha"], (width, height)):
        field = torch.from_numpy(field)[None, None]
        if op["sigma"] > 0:
            field = v2.gaussian_blur(field, [kernel, kernel], [op["sigma"]] * 2)
        fields.append(field * alpha / side)
    displacement = torch.concat(fields, 1).permute([0, 2, 3, 1])
    return v2.elastic(image, displacement, interpolation(op, "bilinear"), [float(value) for value in op["fill"]])


def resize(image, op):
    if "reducing_gap" in op or "shown" in op:
        box = (0, 0, *op["shown"]) if "shown" in op else None
        filter = Image.Resampling[op["interpolation"].upper()]
        return image.resize((op["width"], op["height"]), filter, box, op.get("reducing_gap"))
    if "width" in op:
        return tv.resize(image, [op["height"], op["width"]], interpolation(op, "bilinear"))
    return v2.resize(image, op.get("size"), interpolation(op, "bilinear"), op.get("max_size"))


OPERATIONS = {
    "hflip": lambda p, o: tv.hflip(p),
    "vflip": lambda p, o: tv.vflip(p),
    "rotate": lambda p, o: tv.rotate(
        p, o["degrees"], interpolation(o, "nearest"), o.get("expand", False), fill=o.get("fill", [0, 0, 0])
    ),
    "resize": resize,
    "crop": lambda p, o: tv.crop(p, o["y"], o["x"], o["height"], o["width"]),
    "center_crop": lambda p, o: tv.center_crop(p, [o["height"], o["width"]]),
    "resized_crop": lambda p, o: tv.resized_crop(
        p, o["y"], o["x"], o["height"], o["width"], [o["out_height"], o["out_width"]], interpolation(o, "bilinear")
    ),
    "gaussian_blur": lambda p, o: tv.gaussian_blur(p, o["kernel"], o["sigma"]),
    "dilate": lambda p, o: Image.fromarray(cv2.dilate(numpy.asarray(p), square(o))),
    "erode": lambda p, o: Image.fromarray(cv2.erode(numpy.asarray(p), square(o))),
    "brightness": lambda p, o: tv.adjust_brightness(p, o["factor"]),
    "contrast": lambda p, o: tv.adjust_contrast(p, o["factor"]),
    "saturation": lambda p, o: tv.adjust_saturation(p, o["factor"]),
    "hue": lambda p, o: tv.adjust_hue(p, o["factor"]),
    "grayscale": lambda p, o: tv.rgb_to_grayscale(p, 3),
    "invert": lambda p, o: tv.invert(p),
    "posterize": lambda p, o: tv.posterize(p, o["bits"]),
    "solarize": lambda p, o: tv.solarize(p, o["threshold"]),
    "permute_channels": lambda p, o: v2.permute_channels(p, o["order"]),
    "gaussian_noise": gaussian_noise,
    "elastic": elastic,
    "perspective": lambda p, o: tv.perspective(
        p, o["startpoints"], o["endpoints"], interpolation(o, "bilinear"), o["fill"]
    ),
    "normalize": lambda p, o: tv.normalize(tv.to_tensor(p), o["mean"], o["std"]),
}


def result(name, ops, orientation=None, truncated=False, draft=None, thumbnail=None):
    ImageFile.LOAD_TRUNCATED_IMAGES = truncated
    image = Image.open(IMAGES / name)
    if draft:
        image.draft(None, draft)
    if thumbnail:
        filter = Image.Resampling[thumbnail["interpolation"].upper()]
        image.thumbnail(thumbnail["size"], filter, thumbnail["reducing_gap"])
    if orientation == "apply":
        image = ImageOps.exif_transpose(image)
    image = image.convert("RGB")
    for op in ops:
        image = OPERATIONS[op["op"]](image, op)
    array = image.numpy() if isinstance(image, torch.Tensor) else numpy.asarray(image)
    return numpy.ascontiguousarray(array)


def rectangle(draw, width, height, least=0.3):
    w = draw.randint(max(1, int(least * width)), width)
    h = draw.randint(max(1, int(least * height)), height)
    return {"x": draw.randint(0, width - w), "y": draw.randint(0, height - h), "width": w, "height": h}


def geometry(draw, width, height):
    """(kind, operations) for an image of this size: everything that moves pixels."""
    normalize = {"op": "normalize", **IMAGENET}

    def resized_crop(interpolation="bilinear", out=(48, 40)):
        size = {"out_width": out[0], "out_height": out[1]}
        return {"op": "resized_crop", **rectangle(draw, width, height), **size, "interpolation": interpolation}

    def load(count):
        for _ in range(count):
            yield from ({"op": flip} for flip in ("hflip", "vflip") if draw.random() < 0.5)
            yield {"op": "rotate", "degrees": draw.uniform(-5, 5), "interpolation": "nearest"}

    yield "hflip", [{"op": "hflip"}]
    yield "vflip", [{"op": "vflip"}]
    yield "crop", [{"op": "crop", **rectangle(draw, width, height)}]
    yield "crop-outside", [{"op": "crop", "x": -3, "y": height - 2, "width": width + 5, "height": 9}]
    yield "center-crop", [{"op": "center_crop", "width": max(1, width // 2), "height": max(1, height // 2)}]
    yield "center-crop-larger", [{"op": "center_crop", "width": width + 5, "height": height + 2}]
    for name in FILTERS:
        to = {"width": draw.randint(1, 2 * width), "height": draw.randint(1, 2 * height)}
        yield f"resize-{name}", [{"op": "resize", **to, "interpolation": name}]
        to = {"width": 5 * width + 3, "height": 4 * height + 1}
        yield f"upscale-{name}", [{"op": "resize", **to, "interpolation": name}]
        to = {"width": max(1, width // 9), "height": max(1, height // 7)}
        yield f"downscale-{name}", [{"op": "resize", **to, "interpolation": name}]
        yield f"resized-crop-{name}", [resized_crop(name)]
    yield "resize-width-only", [{"op": "resize", "width": 2 * width + 1, "height": height}]
    yield "resize-height-only", [{"op": "resize", "width": width, "height": 3 * height + 1}]
    yield "resize-shorter-side", [{"op": "resize", "size": 31}]
    yield "eval", [{"op": "resize", "size": 64}, {"op": "center_crop", "width": 56, "height": 56}, normalize]
    yield "train", [{"op": "hflip"}, resized_crop(), normalize]
    for name in ("nearest", "bilinear"):
        turn = {"op": "rotate", "degrees": draw.uniform(-180, 180), "interpolation": name}
        yield f"rotate-{name}", [turn]
        yield f"rotate-{name}-fill", [{**turn, "degrees": draw.uniform(-45, 45), "fill": [9, 99, 199]}]
        yield f"rotate-{name}-expand", [{**turn, "expand": True}]
        for degrees in (0, 90, 180, 270, 360, -90, 450):
            for expand in (False, True):
                quarter = {"op": "rotate", "degrees": degrees, "interpolation": name, "expand": expand}
                yield f"rotate-{name}-quarter", [quarter]
    for count in (1, 4, 12):
        yield f"load-{count}", [*load(count), resized_crop(), normalize]
    yield "normalize", [normalize]


def color(draw):
    """(kind, operations): everything that changes values."""
    for kernel in (1, 2, 3, 5):
        yield "dilate", [{"op": "dilate", "kernel": kernel}]
        yield "erode", [{"op": "erode", "kernel": kernel}]
    for name in ("brightness", "contrast", "saturation"):
        for factor in (0, 1, draw.uniform(0.2, 0.9), draw.uniform(1.1, 2.5)):
            yield name, [{"op": name, "factor": factor}]
    for factor in (-0.5, -0.1, 0, 0.5, draw.uniform(-0.4, 0.4), draw.uniform(-0.4, 0.4)):
        yield "hue", [{"op": "hue", "factor": factor}]
    yield "grayscale", [{"op": "grayscale"}]


def blur(draw):
    for kernel in (3, 5, 9):
        yield "gaussian-blur", [{"op": "gaussian_blur", "kernel": kernel, "sigma": draw.uniform(0.3, 3)}]


def tables():
    """(kind, operations): values made anew one by one."""
    yield "invert", [{"op": "invert"}]
    for bits in (1, 3, 4, 8):
        yield "posterize", [{"op": "posterize", "bits": bits}]
    for threshold in (0, 64.5, 128, 255):
        yield "solarize", [{"op": "solarize", "threshold": threshold}]
    yield "tables", [{"op": "posterize", "bits": 4}, {"op": "invert"}, {"op": "solarize", "threshold": 100.0}]


def others(draw, width, height):
    """(kind, operations, tolerance): noise, displacements, other ways to say a size."""
    short, long = sorted((width, height))
    sizes = [{"size": short + 3, "max_size": max(short + 4, long + 2)}, {"size": short, "max_size": 5 * long}]
    # Of a sliver nothing would be left.
    sizes += [{"max_size": 41}, {"size": short // 2, "max_size": short // 2 + 1}] if 1 < short and long < 9 * short else []
    for to in sizes:
        yield "resize-max-size", [{"op": "resize", **to, "interpolation": draw.choice(FILTERS[1:])}], 0
    for order in ([2, 0, 1], [0, 2, 1], [2, 1, 0]):
        yield "permute-channels", [{"op": "permute_channels", "order": order}], 0
    key = lambda: draw.randrange(2**53)
    for mean, sigma, clip in ((0.0, 0.1, True), (0.3, 0.5, True), (-0.2, draw.uniform(0, 0.4), True), (0.1, 0.7, False)):
        noise = {"op": "gaussian_noise", "mean": mean, "sigma": sigma, "clip": clip, "key": key()}
        yield "gaussian-noise", [noise], 0
    # torchvision's blur reflects no further than the image reaches.
    for alpha, sigma in (([50.0, 50.0], 5.0), ([200.0, 90.0], 4.3), ([12.0, 7.0], 0.0), ([30.0, 30.0], 1.0)):
        if int(8 * sigma + 1) // 2 < short:
            for name in ("bilinear", "nearest"):
                moved = {"op": "elastic", "alpha": alpha, "sigma": sigma, "interpolation": name, "fill": [9, 99, 199]}
                # A pixel whose displacement is about a half goes either way.
                tolerance = {"max_abs": 1} if name == "bilinear" else {"max_abs": 0, "share": 0.002}
                yield f"elastic-{name}", [{**moved, "key": key()}], tolerance
    if short > 8:
        start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        inwards = lambda at, side: at + (1 if at == 0 else -1) * draw.randint(0, side // 3)
        end = [[inwards(x, width), inwards(y, height)] for x, y in start]
        seen = {"startpoints": start, "endpoints": end, "fill": [9, 99, 199]}
        yield "perspective-bicubic", [{"op": "perspective", **seen, "interpolation": "bicubic"}], {"max_abs": 2, "share": 0.002}


def drafts(names):
    """(image, kind, operations, orientation, draft): all JPEGs at all scales, whole and in part."""
    draw = random.Random(21)
    for name in names:
        # Pillow drafts lossless JPEGs to a size that its decoder cannot deliver. Coefficients that no encoder writes come
        # out otherwise in Pillow's libjpeg than in ours at smaller scales.
        if not name.endswith(".jpg") or "lossless" in name or "absurd" in name:
            continue
        width, height = Image.open(IMAGES / name).size
        kind = "draft-truncated" if name.startswith("truncated") else "draft"
        for scale in (2, 4, 8):
            to = (width // scale, height // scale)
            if 0 in to:
                continue
            orientation = "apply" if name.startswith("orientation") else None
            yield name, kind, [], orientation, to
            if kind == "draft-truncated" or orientation:
                continue
            # Draft scales by no more than both sides allow, and rounds up.
            small = (-(-width // scale), -(-height // scale))
            crop = {"op": "crop", **rectangle(draw, *small, 0.1)}
            resized = {"op": "resized_crop", **rectangle(draw, *small), "out_width": 24, "out_height": 17}
            yield name, kind + "-crop", [crop], None, to
            yield name, kind + "-resized-crop", [{**resized, "interpolation": "bilinear"}], None, to
            yield name, kind + "-eval", [{"op": "resize", "size": 16}, {"op": "center_crop", "width": 12, "height": 9}], None, to


def reductions():
    """(image, kind, operations): resizes with a reducing gap, and of a part of the image."""
    draw = random.Random(22)
    for name in ("baseline-420.jpg", "orientation-6.jpg", "rgb.png", "quality-100.jpg", "size-7x5.jpg", "size-1x37.jpg"):
        width, height = Image.open(IMAGES / name).size
        for filter in FILTERS:
            for gap in (1, 1.5, 3.0):
                to = {"width": max(1, width // draw.randint(2, 9)), "height": max(1, height // draw.randint(2, 9))}
                resized = {"op": "resize", **to, "interpolation": filter, "reducing_gap": gap}
                yield name, f"reduced-{filter}", [resized]
                shown = [width - draw.choice((0, 0.25, 0.5, 0.875)), height - draw.choice((0, 0.25, 0.5, 0.875))]
                yield name, f"reduced-part-{filter}", [{**resized, "shown": shown}]
            to = {"width": draw.randint(1, 2 * width), "height": draw.randint(1, 2 * height)}
            shown = [draw.uniform(0.4, 1) * width, draw.uniform(0.4, 1) * height]
            yield name, f"part-{filter}", [{"op": "resize", **to, "interpolation": filter, "shown": shown}]
            same = {"op": "resize", "width": width, "height": height, "interpolation": filter}
            yield name, f"part-{filter}-same-size", [{**same, "shown": [width, 0.9 * height]}]
        some = {"op": "resize", "width": max(1, width // 5), "height": max(1, height // 4), "interpolation": "bilinear"}
        half = {"width": max(1, width // 10), "height": max(1, height // 8)}
        after = [{"op": "hflip"}, {"op": "center_crop", **half}]
        yield name, "reduced-crop", [{**some, "reducing_gap": 1.2}, *after]
        yield name, "reduced-turned", [{"op": "vflip"}, {"op": "invert"}, {**some, "reducing_gap": 2}]


def thumbnails(names):
    """(image, kind, operations, orientation, draft, thumbnail): images that Pillow does not convert for a resize."""
    draw = random.Random(23)
    for name in names:
        image = Image.open(IMAGES / name)
        # As for drafts. Pillow makes thumbnails of inks, palettes and premultiplied colors.
        if image.mode not in ("RGB", "L") or any(word in name for word in ("lossless", "absurd", "truncated")):
            continue
        width, height = image.size
        for gap in (None, 1.0, 2.0, 3.0):
            for scale in (draw.choice((0.9, 2.1)), draw.choice((4.3, 9))):
                size = [max(1, int(width / scale * draw.uniform(0.8, 1.2))), max(1, int(height / scale))]
                filter = draw.choice(FILTERS)
                thumbnail = {"size": size, "interpolation": filter, "reducing_gap": gap}
                yield name, f"thumbnail-{filter}", [], "apply" if name.startswith("orientation") else None, None, thumbnail
        thumbnail = {"size": [40, 40], "interpolation": "bicubic", "reducing_gap": 1.5}
        if min(width, height) > 16:
            crop = [{"op": "crop", "x": 2, "y": 1, "width": 9, "height": 7}, {"op": "hflip"}]
            yield name, "thumbnail-crop", crop, None, None, thumbnail
            yield name, "thumbnail-of-draft", [], None, [width // 2, height // 2], thumbnail


def cases():
    """(image, kind, operations, orientation, tolerance)."""
    names = sorted(path.name for path in IMAGES.iterdir())
    for name in names:
        yield name, "decode-truncated" if name.startswith("truncated") else "decode", [], None, 0
        if name.startswith("orientation"):
            yield name, "orientation", [], "apply", 0
    draw = random.Random(20)
    everything = ("baseline-420.jpg", "baseline-422.jpg", "baseline-440.jpg", "size-1x1.jpg", "size-7x5.jpg",
                  "size-1x37.jpg", "size-33x1.jpg")
    for name in everything:
        for kind, ops in geometry(draw, *Image.open(IMAGES / name).size):
            yield name, kind, ops, None, 0
        for kind, ops in color(draw):
            yield name, kind, ops, None, 0
    for name in ("orientation-5.jpg", "orientation-6.jpg", "orientation-7.jpg", "orientation-3.jpg"):
        transposed = ImageOps.exif_transpose(Image.open(IMAGES / name)).size
        for kind, ops in geometry(draw, *transposed):
            if kind in ("crop", "resized-crop-bilinear", "train", "load-4"):
                yield name, "orientation-" + kind, ops, "apply", 0
    for name in ("quality-100.jpg", "baseline-3x2.jpg", "orientation-1.jpg"):
        for kind, ops in blur(draw):
            yield name, kind, ops, None, {"max_abs": 1}
    for name in ("baseline-420.jpg", "baseline-422.jpg", "size-1x1.jpg", "size-7x5.jpg"):
        for kind, ops in tables():
            yield name, kind, ops, None, 0
    for name in ("baseline-420.jpg", "baseline-422.jpg", "size-1x1.jpg", "size-7x5.jpg", "size-1x37.jpg", "quality-100.jpg"):
        for kind, ops, tolerance in others(draw, *Image.open(IMAGES / name).size):
            yield name, kind, ops, None, tolerance


def main():
    make_lossless()
    ARRAYS.mkdir(exist_ok=True)
    for old in ARRAYS.glob("[0-9]*.npy"):
        old.unlink()
    count = 0
    names = sorted(path.name for path in IMAGES.iterdir())
    all_cases = itertools.chain(
        ((*case, None, None) for case in cases()),
        ((*case[:4], 0, case[4], None) for case in drafts(names)),
        ((*case, None, 0, None, None) for case in reductions()),
        ((*case[:4], 0, *case[4:]) for case in thumbnails(names)),
    )
    with open(HERE / "cases.jsonl", "w") as out:
        for name, kind, ops, orientation, tolerance, draft, thumbnail in all_cases:
            truncated = kind.endswith("truncated")
            array = result(name, ops, orientation, truncated, draft, thumbnail)
            case = {"image": name, "kind": kind, "ops": ops}
            if orientation:
                case["orientation"] = orientation
            if draft:
                case["draft"] = draft
            if thumbnail:
                case["thumbnail"] = thumbnail
            case |= {"dtype": str(array.dtype), "shape": list(array.shape)}
            case["sha256"] = hashlib.sha256(array.tobytes()).hexdigest()
            case["compare"] = tolerance or "exact"
            if tolerance:
                case["array"] = f"{count:03}-{kind}.npy"
                numpy.save(ARRAYS / case["array"], array)
            out.write(json.dumps(case) + "\n")
            count += 1
    print(f"{count} cases")


if __name__ == "__main__":
    main()
