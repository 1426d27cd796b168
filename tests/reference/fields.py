#!/usr/bin/env python3
"""Writes down what torchvision v2 makes of boxes and keypoints, and Pillow of masks.

    python tests/reference/fields.py

Needs torch, torchvision with KeyPoints, Pillow 13 and numpy. fields.jsonl has one case a line:
  size, size_out        [width, height] before and after
  ops                   the operations, as in a written recipe
  format, clamping      of the boxes: XYXY, XYWH or CXCYWH; "soft" or null
  boxes, boxes_out      rows of 4 numbers
  points, points_out    rows of x and y, by torchvision's convention (pixel_index)
  fill                  of the mask, whose values are those of mask()
  sha256                of the mask afterwards, row by row; Pillow's nearest, as torchvision's reference trainings do it
  mask_out              instead of it, if some pixels may differ: rows of values in hexadecimal

Growing rotations and center crops to a larger size are left out: there torchvision's boxes leave its own pixels.
"""

import hashlib
import json
import pathlib
import random

import numpy
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20261123


def product(points, matrix):
    """A product of matrices whose products and sums are each rounded. torch promises no order: on some processors it has
    this one, on others it fuses, and last digits differ."""
    return (points[:, :1] * matrix[:1] + points[:, 1:2] * matrix[1:2]) + points[:, 2:] * matrix[2:]


torch.matmul = product


def operation(draw, width, height):
    wide, high = draw.randint(4, width), draw.randint(4, height)
    rect = {"x": draw.randint(0, width - wide), "y": draw.randint(0, height - high), "width": wide, "height": high}
    angle = draw.choice([draw.uniform(-180, 180), draw.uniform(-15, 15), 90.0, 180.0])
    points = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    inwards = lambda side: draw.randint(0, side // 4)
    moved = [[abs(x - inwards(width)), abs(y - inwards(height))] for x, y in points]
    return draw.choice([
        {"op": "hflip"},
        {"op": "vflip"},
        {"op": "resize", "width": draw.randint(5, 2 * width), "height": draw.randint(5, 2 * height)},
        {"op": "resize", "size": draw.randint(8, 60)},
        {"op": "crop", **rect},
        {"op": "crop", "x": draw.randint(-9, 9), "y": draw.randint(-9, 9), "width": width, "height": height},
        {"op": "center_crop", "width": wide, "height": high},
        {"op": "resized_crop", **rect, "out_width": draw.randint(8, 60), "out_height": draw.randint(8, 60)},
        {"op": "pad", **{side: draw.randint(0, 9) for side in ("left", "top", "right", "bottom")}},
        {"op": "rotate", "degrees": angle, "interpolation": "bilinear"},
        {"op": "rotate", "degrees": angle, "center": [draw.uniform(0, width), draw.uniform(0, height)]},
        {"op": "affine", "degrees": angle, "translate": [draw.randint(-9, 9), draw.randint(-9, 9)],
         "scale": draw.uniform(0.5, 2), "shear": [draw.uniform(-20, 20), draw.uniform(-20, 20)]},
        {"op": "perspective", "startpoints": points, "endpoints": moved},
        {"op": "gaussian_blur", "kernel": 3, "sigma": 1.0},
        {"op": "erase", **rect},
    ])


def run(op, thing, fill):
    """torchvision's result for a tv_tensor or, with a fill, for a mask as a PIL image."""
    pillow = isinstance(thing, Image.Image)
    sampled = {"interpolation": InterpolationMode.NEAREST, "fill": fill} if pillow else {}
    nearest = {"interpolation": InterpolationMode.NEAREST} if pillow else {}
    name = op["op"]
    if name == "hflip":
        return F.horizontal_flip(thing)
    if name == "vflip":
        return F.vertical_flip(thing)
    if name == "resize":
        return F.resize(thing, [op["height"], op["width"]] if "width" in op else [op["size"]], **nearest)
    if name == "crop":
        left, top = op["x"], op["y"]
        if pillow:
            # The mask's own fill, as where a training pads before it crops.
            canvas = Image.new("L", (op["width"], op["height"]), fill)
            canvas.paste(thing, (-left, -top))
            return canvas
        return F.crop(thing, top, left, op["height"], op["width"])
    if name == "center_crop":
        return F.center_crop(thing, [op["height"], op["width"]])
    if name == "resized_crop":
        rect = op["y"], op["x"], op["height"], op["width"]
        return F.resized_crop(thing, *rect, [op["out_height"], op["out_width"]], **nearest)
    if name == "pad":
        sides = [op[side] for side in ("left", "top", "right", "bottom")]
        return F.pad(thing, sides, **({"fill": fill} if pillow else {}))
    if name == "rotate":
        return F.rotate(thing, op["degrees"], center=op.get("center"), **sampled)
    if name == "affine":
        return F.affine(thing, op["degrees"], op["translate"], op["scale"], op["shear"], **sampled)
    if name == "perspective":
        return F.perspective(thing, op["startpoints"], op["endpoints"], **sampled)
    return thing


def mask(width, height):
    y, x = numpy.mgrid[:height, :width]
    return Image.fromarray(((37 * x + 101 * y + x * y) % 256).astype(numpy.uint8))


def masked(ops, mask):
    """What a case says of its mask."""
    values = numpy.asarray(mask)
    if any(op["op"] == "perspective" for op in ops):
        return {"mask_out": [bytes(row).hex() for row in values]}
    return {"sha256": hashlib.sha256(values.tobytes()).hexdigest()}


def main():
    draw = random.Random(SEED)
    cases = []
    while len(cases) < 300:
        width, height = draw.randint(12, 50), draw.randint(12, 50)
        format, clamping = draw.choice(["XYXY", "XYWH", "CXCYWH"]), draw.choice(["soft", "soft", None])
        x, y = (lambda: draw.uniform(-0.2, 1.2) * width), (lambda: draw.uniform(-0.2, 1.2) * height)
        given = [[x(), y(), x(), y()] for _ in range(draw.randint(0, 4))] + [[0.0, 0.0, width, height]]
        canvas = (height, width)
        boxes = tv_tensors.BoundingBoxes(torch.tensor(given), format="XYXY", canvas_size=canvas, clamping_mode=clamping)
        boxes = F.convert_bounding_box_format(boxes, new_format=format)
        points = tv_tensors.KeyPoints(torch.tensor([[x(), y()] for _ in range(4)]), canvas_size=canvas)
        moved = mask(width, height)
        fill = draw.choice([0, 255])
        case = {"size": [width, height], "ops": [], "format": format, "clamping": clamping, "boxes": boxes.tolist(),
                "points": points.tolist(), "fill": fill}
        for _ in range(draw.randint(1, 3)):
            if min(moved.size) < 5:
                break
            op = operation(draw, *moved.size)
            case["ops"].append(op)
            boxes, points, moved = run(op, boxes, None), run(op, points, None), run(op, moved, fill)
        if torch.isfinite(boxes).all() and torch.isfinite(points).all():
            case |= {"size_out": list(moved.size), "boxes_out": boxes.tolist(), "points_out": points.tolist(),
                     **masked(case["ops"], moved)}
            cases.append(json.dumps(case, separators=(",", ":")))
    (HERE / "fields.jsonl").write_text("\n".join(cases) + "\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
