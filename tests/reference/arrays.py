#!/usr/bin/env python3
"""Write what Pillow, torchvision and OpenCV make of small images, one operation a case.

    python arrays.py > arrays.jsonl

Needs: torch torchvision pillow>=13 numpy opencv-python-headless (CPU is enough). The images are made by a formula that
the tests share, so a case is only a size, a seed, the operation as a recipe has it, and the SHA-256 of the result's bytes
(RGB, row by row). Gaussian blur is left out: torchvision's sums are in single precision, in no fixed order.
"""
import hashlib
import json
import random

import cv2
import numpy as np
from PIL import Image
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
        return F.rotate(image, op["degrees"], mode, op["expand"], fill=op["fill"])
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


def main():
    rng = random.Random(7)
    for seed, (width, height) in enumerate(((1, 1), (5, 3), (97, 64), (40, 131), (33, 2))):
        image = image(width, height, seed)
        for op in operations(width, height, rng):
            digest = hashlib.sha256(apply(image, op).tobytes()).hexdigest()
            print(json.dumps({"width": width, "height": height, "seed": seed, "op": op, "sha256": digest}))


if __name__ == "__main__":
    main()
