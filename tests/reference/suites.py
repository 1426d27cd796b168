#!/usr/bin/env python3
"""Runs recipes that warpfeed drew for photographs with torchvision's or timm's functions on PIL images, and compares all bytes.

    WARPFEED_SHARED=FOLDER tests/reference/suites.py [torchvision|timm] [--drawn]

With --drawn it takes the recipes that were drawn last time.

Needs Pillow 13, torchvision, numpy and, for timm's, timm; a GPU is of no use. FOLDER has data/photos/. The recipes are
those of a random resized crop, a flip, and an automatic augmentation (tests/integration/suites.rs draws them): 1,000 of
torchvision's RandAugment, TrivialAugment, AutoAugment and AugMix together, or 1,000 of each of seven of timm's. AugMix's
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
CARGO = ["cargo", "test", "--workspace", "--features", "warpfeed/full", "--locked", "--test", "integration", "--"]
FACTORS = ("brightness", "contrast", "saturation", "sharpness")
FILTERS = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
WHOSE = "timm" if "timm" in sys.argv else "torchvision"


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
    # Image by image as torchvision adds them up, and blended with the image as timm does.
    total = numpy.float32(op["weight"]) * numpy.asarray(image, numpy.float32)
    for chain in op["chains"]:
        total += numpy.float32(chain["weight"]) * numpy.asarray(applied(image, chain["ops"]), numpy.float32)
    made = Image.fromarray(total.astype(numpy.uint8))
    return Image.blend(image, made, op["blend"]) if "blend" in op else made


def timms(image, op):
    """The same by timm's own functions; None where the operation is no step of an augmentation of timm's."""
    from timm.data import auto_augment as timm_aa

    name, factor = op["op"], op.get("factor")
    style = {"resample": FILTERS[op.get("interpolation", "nearest")], "fillcolor": tuple(op.get("fill", ()))}
    if name == "affine_matrix":
        _, shear_x, x, shear_y, _, y = op["matrix"]
        if shear_x or shear_y:
            return timm_aa.shear_x(image, shear_x, **style) if shear_x else timm_aa.shear_y(image, shear_y, **style)
        return timm_aa.translate_x_abs(image, x, **style) if x else timm_aa.translate_y_abs(image, y, **style)
    if name == "rotate":
        return timm_aa.rotate(image, op["degrees"], **style)
    if name == "posterize" and op["bits"]:
        return timm_aa.posterize(image, op["bits"])
    if name == "solarize":
        return timm_aa.solarize(image, op["threshold"])
    if name == "solarize_add":
        return timm_aa.solarize_add(image, op["add"], op["threshold"])
    if name == "pillow_gaussian_blur":
        return timm_aa.gaussian_blur(image, op["radius"])
    if name == "saturation":
        return timm_aa.color(image, factor) if factor else timm_aa.desaturate(image, 1.0)
    if name in ("brightness", "contrast", "sharpness"):
        return getattr(timm_aa, name)(image, factor)
    if name in ("equalize", "invert"):
        return getattr(timm_aa, name)(image)
    return timm_aa.auto_contrast(image) if name == "autocontrast" else None


def applied(image, ops):
    for op in ops:
        made = timms(image, op) if WHOSE == "timm" else None
        image = apply(image, op) if made is None else made
    return image


def main():
    if "--drawn" not in sys.argv:
        subprocess.run([*CARGO, "--ignored", "--exact", f"suites::recipes_for_{WHOSE}"], cwd=ROOT, check=True)
    drawn = "timm-recipes.jsonl" if WHOSE == "timm" else "recipes.jsonl"
    lines = (ROOT / "target/tmp" / drawn).read_text().splitlines()
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
