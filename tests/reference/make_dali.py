#!/usr/bin/env python3
"""Writes down what DALI's rotate (on the CPU) makes of images/rgb.png: dali.jsonl, and the results in arrays/.

    python tests/reference/make_dali.py

Needs nvidia-dali-cuda130 and numpy; a GPU is of no use. Bilinear, without a fill value, which repeats the nearest pixel
of the edge. A PNG, so that decoders cannot differ. The fields are those of cases.jsonl (make.py says which).
"""

import json
import pathlib

import numpy
from nvidia.dali import fn, pipeline_def, types

HERE = pathlib.Path(__file__).resolve().parent
IMAGE = "rgb.png"
TOLERANCE = 2
# Angles of rotations one after the other, each after both flips where `flips`; whether the canvas grows.
CASES = [([5], True, True), ([5, 5], True, True), ([5] * 4, True, True), ([-40], True, False), ([100], True, False), ([17], False, False)]


def rotated(angles, expand, flips):
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        encoded, _ = fn.readers.file(files=[str(HERE / "images" / IMAGE)])
        image = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        for angle in angles:
            if flips:
                image = fn.flip(image, horizontal=1, vertical=1)
            image = fn.rotate(image, angle=angle, keep_size=not expand)
        return image

    built = pipeline()
    built.build()
    return numpy.asarray(built.run()[0].at(0))


def main():
    with open(HERE / "dali.jsonl", "w") as out:
        for number, (angles, expand, flips) in enumerate(CASES):
            array = rotated(angles, expand, flips)
            ops = []
            for angle in angles:
                ops += [{"op": "hflip"}, {"op": "vflip"}] if flips else []
                ops += [{"op": "rotate", "degrees": angle, "interpolation": "bilinear", "expand": expand, "fill": "edge"}]
            name = f"dali-{number}.npy"
            numpy.save(HERE / "arrays" / name, array)
            case = {"image": IMAGE, "kind": "dali-rotate", "ops": ops, "dtype": "uint8", "shape": list(array.shape)}
            out.write(json.dumps(case | {"compare": {"max_abs": TOLERANCE}, "array": name}) + "\n")
    print(len(CASES), "cases")


if __name__ == "__main__":
    main()
