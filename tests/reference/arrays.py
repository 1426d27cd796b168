#!/usr/bin/env python3
"""Write what Pillow, torchvision and OpenCV make of small images, one operation a case.

    python arrays.py > arrays.jsonl

Needs: torch torchvision pillow>=13 numpy opencv-python-headless (CPU is enough). The images are made by a formula that
the tests share, so a case is only a size, a seed, the operation as a recipe has it, and the SHA-256 of the result's bytes
(RGB, row by row). Gaussian blur is left out: torchvision's sums are in single precision, in no fixed order.
"""
import hashlib
import io
import json
import random

import cv2
import numpy as np
from PIL import Image, ImageFilter
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

FILTERS = ("nearest", "bilinear", "bicubic", "lanczos")


def image(width, height, seed):
    """Gradients, noise, flat areas and saturated bytes."""
    state = (seed * 2654435761 + 1) % 2**32 | 1
    array = np.zeros((height, width, 3), np.uint8)
    for y in range(height):
        for x in range(width):
            state ^= state << 13 & 0xFFFFFFFF
            state ^= state >> 17
            state ^= state << 5 & 0xFFFFFFFF
            noise = state >> 24
            array[y, x] = (
                (noise, state >> 16 & 255, state >> 8 & 255),
                (x * 3 + y & 255, y * 5 & 255, x + 2 * y + noise // 32 & 255),
                (255, noise // 2, 0),
                (100, 100, 100 + noise // 128),
            )[(x // 8 + y // 8) % 4]
    return Image.fromarray(array)


def apply(image, op):
    name = op["op"]
    mode = InterpolationMode(op.get("interpolation", "bilinear"))
    array = np.asarray(image)
    if name in ("hflip", "vflip"):
        return getattr(F, name)(image)
    if name == "rotate":
        return F.rotate(image, op["degrees"], mode, op["expand"], op.get("center"), op["fill"])
    if name == "resize":
        return F.resize(image, op["size"] if "size" in op else [op["height"], op["width"]], mode)
    if name == "crop":
        return F.crop(image, op["y"], op["x"], op["height"], op["width"])
    if name == "center_crop":
        return F.center_crop(image, [op["height"], op["width"]])
    if name == "resized_crop":
        size = [op["out_height"], op["out_width"]]
        return F.resized_crop(image, op["y"], op["x"], op["height"], op["width"], size, mode)
    if name in ("dilate", "erode"):
        kernel = np.ones((op["kernel"], op["kernel"]), np.uint8)
        return Image.fromarray(getattr(cv2, name)(array, kernel).reshape(array.shape))
    if name == "affine":
        shift, shear = op["translate"], op["shear"]
        return F.affine(image, op["degrees"], shift, op["scale"], shear, mode, op["fill"], op.get("center"))
    if name == "affine_matrix":
        resample = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}[mode.value]
        size = tuple(op.get("size", image.size))
        return image.transform(size, Image.AFFINE, op["matrix"], resample, fillcolor=tuple(op["fill"]))
    if name == "mosaic":
        canvas = Image.new("RGB", (op["width"], op["height"]), tuple(op["fill"]))
        canvas.paste(image, tuple(op["at"]))
        return canvas
    if name in ("equalize", "autocontrast", "invert"):
        return getattr(F, name)(image)
    if name == "pad":
        sides = [op["left"], op["top"], op["right"], op["bottom"]]
        return F.pad(image, sides, tuple(op["fill"]), op["mode"])
    if name == "pillow_gaussian_blur":
        return image.filter(ImageFilter.GaussianBlur(op["radius"]))
    if name == "solarize_add":
        return image.point(lambda value: min(255, value + op["add"]) if value < op["threshold"] else value)
    if name == "jpeg":
        encoded = io.BytesIO()
        image.save(encoded, "JPEG", quality=op["quality"])
        return Image.open(encoded).convert("RGB")
    if name == "perspective":
        return F.perspective(image, op["startpoints"], op["endpoints"], mode, op["fill"])
    if name == "mix":
        # As torchvision's AugMix: products and sums in single precision, cut to bytes.
        total = np.float32(op["weight"]) * array.astype(np.float32)
        for chain in op["chains"]:
            made = image
            for step in chain["ops"]:
                made = apply(made, step)
            total += np.float32(chain["weight"]) * np.asarray(made, np.float32)
        return Image.blend(image, Image.fromarray(total.astype(np.uint8)), op.get("blend", 1.0))
    if name == "gamma":
        return F.adjust_gamma(image, op["gamma"])
    if name == "select_channels":
        return Image.fromarray(np.ascontiguousarray(array[..., op["channels"]]))
    if name == "grayscale":
        return F.rgb_to_grayscale(image, num_output_channels=3)
    return getattr(F, "adjust_" + name)(image, op["factor"])


def operations(w, h, rng):
    def box():
        width, height = rng.randint(1, w), rng.randint(1, h)
        return {"x": rng.randint(0, w - width), "y": rng.randint(0, h - height), "width": width, "height": height}

    fill = [9, 99, 199]
    for interpolation in ("nearest", "bilinear"):
        for degrees in (rng.uniform(-180, 180), rng.uniform(-5, 5), rng.choice((90, 180, 270)), rng.choice((1e-9, 45))):
            expand = rng.random() < 0.5
            yield {"op": "rotate", "degrees": degrees, "interpolation": interpolation, "expand": expand, "fill": fill}
    for interpolation in FILTERS:
        size = {"width": rng.randint(1, 2 * w), "height": rng.randint(1, 2 * h)}
        yield {"op": "resize", **size, "interpolation": interpolation}
        size = {"out_width": rng.randint(1, 99), "out_height": rng.randint(1, 99)}
        yield {"op": "resized_crop", **box(), **size, "interpolation": interpolation}
    yield {"op": "resize", "width": w, "height": 2 * h + 1, "interpolation": "bilinear"}
    yield {"op": "resize", "size": 5 + min(w, h), "interpolation": "bilinear"}
    x, y = rng.randint(-w, w), rng.randint(-h, h)
    yield {"op": "crop", "x": x, "y": y, "width": rng.randint(1, 2 * w), "height": rng.randint(1, 2 * h)}
    yield {"op": "center_crop", "width": rng.randint(1, 2 * w), "height": rng.randint(1, 2 * h)}
    for name in ("dilate", "erode"):
        yield {"op": name, "kernel": rng.choice((2, 3, 4, 5))}
        yield {"op": name, "kernel": rng.randint(6, 40)}
    for name in ("brightness", "contrast", "saturation"):
        yield {"op": name, "factor": rng.uniform(0, 1)}
        yield {"op": name, "factor": rng.uniform(1, 3)}
    yield {"op": "hue", "factor": rng.uniform(-0.5, 0.5)}
    yield {"op": "grayscale"}
    yield {"op": "hflip"}
    yield {"op": "vflip"}


def augmentations(w, h, rng):
    """The operations of AutoAugment and its kin."""
    fill = [9, 99, 199]
    still = {"degrees": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0], "fill": fill}
    u = rng.uniform
    for interpolation in ("nearest", "bilinear", "bicubic"):
        center = [u(0, w), u(0, h)]
        free = {"degrees": u(-180, 180), "scale": u(0.4, 1.8), "shear": [u(-30, 30), u(-30, 30)]}
        moved = {"translate": [rng.randint(-w, w), rng.randint(-h, h)]}
        for change in (free, {**free, **moved, "center": center}, moved, {"scale": u(0.3, 2.5)}, {"degrees": 180.0}):
            yield {"op": "affine", **still, **change, "interpolation": interpolation}
        for shear in ([u(-45, 45), 0.0], [0.0, u(-45, 45)]):
            yield {"op": "affine", **still, "shear": shear, "center": [0, 0], "interpolation": interpolation}
        for degrees in (u(-180, 180), 0, 90, 180):
            turn = {"degrees": degrees, "interpolation": interpolation, "expand": rng.random() < 0.5, "fill": fill}
            yield {"op": "rotate", **turn, "center": center}
    yield {"op": "rotate", "degrees": u(-180, 180), "interpolation": "bicubic", "expand": True, "fill": fill}
    for factor in (0.0, u(0, 1), u(1, 2.5)):
        yield {"op": "sharpness", "factor": factor}
    for name in ("equalize", "autocontrast"):
        yield {"op": name}
    turned = {"op": "affine", **still, "shear": [9.0, -4.0], "interpolation": "nearest"}
    chains = [{"weight": 0.25, "ops": [{"op": "hflip"}, turned]}, {"weight": 0.4, "ops": []}]
    yield {"op": "weighted_sum", "weight": 0.31, "chains": chains}
    yield {"op": "weighted_sum", "weight": 0.1, "chains": [*chains, {"weight": 0.25, "ops": [{"op": "invert"}, {"op": "equalize"}]}]}


def others(w, h, rng):
    """Padding, Pillow's blur, JPEG, perspective."""
    sides = {side: rng.randint(0, 2 * max(w, h)) for side in ("left", "top", "right", "bottom")}
    for mode in ("constant", "edge", "reflect", "symmetric"):
        yield {"op": "pad", **sides, "mode": mode, "fill": [9, 99, 199]}
    for radius in (0.0, rng.uniform(0, 0.7), rng.uniform(0.7, 3), rng.uniform(3, 30)):
        yield {"op": "pillow_gaussian_blur", "radius": radius}
    yield {"op": "solarize_add", "add": rng.randint(0, 110), "threshold": 128}
    for quality in (1, rng.randint(2, 99), 100):
        yield {"op": "jpeg", "quality": quality}
    if min(w, h) > 3:
        inwards = lambda side: rng.randint(0, side // 3)
        start = [[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]]
        end = [[x + (1 if x == 0 else -1) * inwards(w), y + (1 if y == 0 else -1) * inwards(h)] for x, y in start]
        yield {"op": "perspective", "startpoints": start, "endpoints": end, "interpolation": "nearest", "fill": [9, 99, 199]}


def timms(w, h, rng):
    """What timm's augmentations have beside those."""
    u = rng.uniform
    for interpolation in ("nearest", "bilinear", "bicubic"):
        shears = [1.0, u(-1, 1), 0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.24, 1.0, 0.0]
        moves = [1.0, 0.0, u(-w, w), 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0, 1.0, u(-h, h)], [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
        for matrix in (*shears, *moves, [u(-2, 2), u(-2, 2), u(-w, w), u(-2, 2), u(-2, 2), u(-h, h)]):
            yield {"op": "affine_matrix", "matrix": matrix, "interpolation": interpolation, "fill": [9, 99, 199]}
    # A generator of its own, so that the other cases stay as they are.
    u = random.Random(w + h).uniform
    for interpolation in ("nearest", "bilinear", "bicubic"):
        matrix, size = [u(-2, 2), u(-2, 2), u(-w, w), u(-2, 2), u(-2, 2), u(-h, h)], [w // 2 + 1, h + 9]
        yield {"op": "affine_matrix", "matrix": matrix, "interpolation": interpolation, "fill": [9, 99, 199], "size": size}
    chains = [{"weight": 0.7, "ops": [{"op": "invert"}]}, {"weight": 0.3, "ops": [{"op": "hflip"}, {"op": "equalize"}]}]
    for blend in (0.0, rng.uniform(0, 1), rng.uniform(0, 1)):
        yield {"op": "weighted_sum", "weight": 0.0, "chains": chains, "blend": blend}
    yield {"op": "mosaic", "width": w + 7, "height": h + 5, "at": [3, 5], "fill": [9, 99, 199]}


def newer(w, h, rng):
    """Filters, gamma, channels."""
    for interpolation in ("box", "hamming"):
        for size in ({"width": rng.randint(1, 2 * w), "height": rng.randint(1, 2 * h)} for _ in range(3)):
            yield {"op": "resize", **size, "interpolation": interpolation}
    yield {"op": "gamma", "gamma": rng.uniform(0, 1)}
    yield {"op": "gamma", "gamma": rng.uniform(1, 3)}
    yield {"op": "select_channels", "channels": [rng.randint(0, 2) for _ in range(3)]}


def main():
    kinds_of = ((operations, random.Random(7)), (augmentations, random.Random(8)), (others, random.Random(9)))
    kinds_of += ((timms, random.Random(10)), (newer, random.Random(11)))
    for kinds, rng in kinds_of:
        for seed, (width, height) in enumerate(((1, 1), (5, 3), (97, 64), (40, 131), (33, 2))):
            made = image(width, height, seed)
            for op in kinds(width, height, rng):
                digest = hashlib.sha256(apply(made, op).tobytes()).hexdigest()
                print(json.dumps({"width": width, "height": height, "seed": seed, "op": op, "sha256": digest}))


if __name__ == "__main__":
    main()
