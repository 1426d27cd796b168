#!/usr/bin/env python3
"""Writes down what timm makes of levels, and what it draws.

    python tests/reference/timm_tables.py > tests/reference/timm.json

Needs timm (and with it torch and torchvision); a GPU is of no use.

  levels    for each kind and level, the arguments that its operation gets, and with the sign turned
  policies  for each policy, rows of [kind, probability, level]
  sets      for each set of kinds, [kind, weight] or the kind alone
  draws     for each text, of so many images: how many operations they had, how often each kind came and, for rotations and
            changes of color, how often each signed magnitude came, in tenths of 30 degrees and of 0.9, rounded down
"""

import collections
import functools
import json
import math
import random

import numpy
import timm
from PIL import Image
from timm.data import auto_augment as timm_aa

LEVELS = [0, 0.3, 1, 2.5, 3.7, 5, 6.49, 7, 8.8, 9, 9.99, 10, 13]
IMAGES = 20_000
# Without levels that leave an image as it is, which warpfeed does not write down.
TEXTS = ("rand-m9-mstd0.5-inc1", "rand-m7-n3-mstd101-p0.8", "rand-m6-tweights-mstd0.5", "rand-n4-t3aw", "original-mstd0.5", "3a")


def levels():
    turned = {"+": lambda value: value, "-": lambda value: -value}
    table = {}
    for name, function in timm_aa.LEVEL_TO_ARG.items():
        if function is None or name in ("TranslateX", "TranslateY"):
            continue
        table[name] = {}
        for sign, turn in turned.items():
            timm_aa._randomly_negate = turn
            table[name][sign] = [function(level, {"translate_pct": 0.45})[0] for level in LEVELS]
    return table


def policies():
    names = ("v0", "v0r", "original", "originalr", "3a")
    row = lambda ops: [[op.name, op.prob, op.magnitude] for op in ops]
    return {name: [row(ops) for ops in timm_aa.auto_augment_policy(name, {})] for name in names}


def sets():
    return {
        "rand": timm_aa._RAND_TRANSFORMS,
        "inc": timm_aa._RAND_INCREASING_TRANSFORMS,
        "3a": timm_aa._RAND_3A,
        "3aw": list(timm_aa._RAND_WEIGHTED_3A.items()),
        "weights": list(timm_aa._RAND_WEIGHTED_0.items()),
        "augmix": timm_aa._AUGMIX_TRANSFORMS,
    }


def operations(transform):
    rows = transform.policy if hasattr(transform, "policy") else [transform.ops]
    return {id(op): op for row in rows for op in row}.values()


def draws(text):
    random.seed(1)
    numpy.random.seed(1)
    make = timm_aa.rand_augment_transform if text.startswith("rand") else timm_aa.auto_augment_transform
    transform = make(text, {"img_mean": (124, 116, 104)})
    counts = {name: collections.Counter() for name in ("ops", "kinds", "rotations", "colors")}
    drawn = []

    def record(name, image, *arguments, **_):
        drawn.append(name)
        if name == "Rotate":
            counts["rotations"][math.floor(arguments[0] / 3)] += 1
        if name == "ColorIncreasing":
            counts["colors"][math.floor((arguments[0] - 1) / 0.09)] += 1
        return image

    for op in operations(transform):
        op.aug_fn = functools.partial(record, op.name)
    image = Image.new("RGB", (8, 8))
    for _ in range(IMAGES):
        drawn.clear()
        transform(image)
        counts["ops"][len(drawn)] += 1
        counts["kinds"].update(drawn)
    return {name: dict(sorted(count.items())) for name, count in counts.items() if count}


def main():
    drawn = {text: draws(text) for text in TEXTS}
    tables = {"timm": timm.__version__, "levels": LEVELS, "arguments": levels(), "policies": policies(), "sets": sets()}
    print(json.dumps({**tables, "images": IMAGES, "draws": drawn}, separators=(",", ":")).replace('},"', '},\n"'))


if __name__ == "__main__":
    main()
