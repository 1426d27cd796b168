#!/usr/bin/env python3
"""Runs recipes that warpfeed drew for 1,000 photographs with torchvision on PIL images, and compares all bytes.

    WARPFEED_SHARED=FOLDER tests/reference/suites.py [--drawn]

With --drawn it takes the recipes that were drawn last time.

Needs Pillow 13, torchvision and numpy; a GPU is of no use. FOLDER has data/photos/. The recipes are those of a random
resized crop, a flip, and RandAugment, TrivialAugment, AutoAugment or AugMix (tests/suites.rs draws them). AugMix's
chains run on PIL images here; torchvision itself runs them on tensors, whose bytes differ.
"""

import hashlib
import json
import pathlib
import subprocess
import sys

import numpy
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO = ["cargo", "test", "--workspace", "--features", "warpfeed/full", "--locked", "--test", "suites", "--"]
FACTORS = ("brightness", "contrast", "saturation", "sharpness")


def apply(image, op):
    name = op["op"]
    mode = InterpolationMode(op.get("interpolation", "nearest"))
    if name == "affine":
        shift, shear = op["translate"], op["shear"]
        return F.affine(image, op["degrees"], shift, op["scale"], shear, mode, op["fill"], op.get("center"))
    if name == "rotate":
        return F.rotate(image, op["degrees"], mode, op["expand"], op.get("center"), op["fill"])
    if name == "resized_crop":
        size = [op["out_height"], op["out_width"]]
        return F.resized_crop(image, op["y"], op["x"], op["height"], op["width"], size, mode)
    if name in FACTORS:
        return getattr(F, "adjust_" + name)(image, op["factor"])
    if name == "posterize":
        # Pillow refuses 0 bits, which leave nothing of an image.
        return F.posterize(image, op["bits"]) if op["bits"] else image.point(lambda value: 0)
    if name == "solarize":
        return F.solarize(image, op["threshold"])
    if name == "mix":
        return mixed(image, op)
    return getattr(F, name)(image)


def mixed(image, op):
    """As AugMix adds up: float32 products and sums, cut to bytes."""
    total = numpy.float32(op["weight"]) * numpy.asarray(image, numpy.float32)
    for chain in op["chains"]:
        total += numpy.float32(chain["weight"]) * numpy.asarray(applied(image, chain["ops"]), numpy.float32)
    return Image.fromarray(total.astype(numpy.uint8))


def applied(image, ops):
    for op in ops:
        image = apply(image, op)
    return image


def main():
    if "--drawn" not in sys.argv:
        subprocess.run([*CARGO, "--ignored", "--exact", "recipes_for_torchvision"], cwd=ROOT, check=True)
    lines = (ROOT / "target/tmp/recipes.jsonl").read_text().splitlines()
    wrong, ops = 0, 0
    for line in lines:
        case = json.loads(line)
        image = applied(Image.open(case["image"]).convert("RGB"), case["ops"])
        ops += len(case["ops"])
        if hashlib.sha256(image.tobytes()).hexdigest() != case["sha256"]:
            wrong += 1
            print("differs:", line)
    print(f"{len(lines)} recipes of {ops} operations, {wrong} with other bytes.")
    return 1 if wrong or not lines else 0


if __name__ == "__main__":
    sys.exit(main())
