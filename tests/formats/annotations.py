#!/usr/bin/env python3
"""Made annotations with what their formats' own readers read in them, a JSON object a line: tables of metadata.csv
(Python's csv module, and pandas where it is installed), label files of YOLO (the rules of Ultralytics'
`verify_image_label`), and files of COCO (Python's json module and pycocotools).

    annotations.py --cases N [--seed S] > FILE

Tests of the readers go through `annotations.jsonl`, which is `--cases 100 --seed 1`, or the file that the variable
WARPFEED_CASES names. Where a reference reads what is no annotation (a box of NaN), `None` stands for the error."""

import argparse
import contextlib
import csv
import io
import json
import math
import random

import numpy as np
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO

try:
    import pandas
except ImportError:
    pandas = None

WIDTH, HEIGHT = 60, 40


def csv_case(rng):
    """A table of two or three columns, with texts as programs and people write them."""
    columns = ["file_name", "text", "more"][: rng.choice([2, 2, 2, 3])]
    pieces = ["a", "b c", '"', '""', ",", " ", "5\" x", "é", "'", "\n", "\r", "\r\n", "\\", "\t", ""]
    weights = [6, 3, 4, 2, 2, 2, 2, 1, 1, 0.5, 0.3, 0.5, 1, 1, 1]
    end = rng.choice(["\n", "\n", "\r\n", "\r"])

    def raw():
        return "".join(rng.choices(pieces, weights)[0] for _ in range(rng.randint(0, 5)))

    def cell():
        kind = rng.random()
        text = raw()
        if kind < 0.45:
            # As csv.writer writes it.
            made = io.StringIO()
            csv.writer(made, lineterminator="").writerow([text, ""])
            return made.getvalue()[:-1]
        if kind < 0.55:
            return '"' + text.replace('"', '""') + '"' + rng.choice(["", "", "x", " "])
        return text

    rows = [",".join(columns)]
    for i in range(rng.randint(1, 4)):
        rows.append(",".join([f"{i}.png"] + [cell() for _ in columns[1:]]))
        if rng.random() < 0.1:
            rows.append("")
    text = end.join(rows) + (end if rng.random() < 0.7 else "")
    # A quoted cell without an end takes the rest of the file, the mark too; pandas refuses that, and so do we.
    mark = "the end of the file"
    read = list(csv.reader(io.StringIO(text + "\n" + mark, newline="")))
    want = None
    if read[-1] == [mark]:
        want = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    if pandas is not None:
        compare_pandas(text, want)
    return {"kind": "csv", "text": text, "rows": want}


def compare_pandas(text, want):
    # After an empty line that ends with \r alone, pandas loses a comma.
    if want is None or "\r" in text.replace("\r\n", ""):
        return
    if any(len(row) != len(want[0]) for row in want):
        return
    try:
        read = pandas.read_csv(io.StringIO(text, newline=""), dtype=str, keep_default_na=False, header=None)
    except pandas.errors.ParserError as error:
        raise SystemExit(f"pandas: {text!r}: {error}")
    rows = read.values.tolist()
    # pandas skips lines of blanks.
    want = [row for row in want if len(row) > 1 or row[0].strip()]
    if rows != want:
        raise SystemExit(f"csv and pandas differ: {text!r}: {want}, {rows}")


def yolo_case(rng):
    """A label file, and the class and box of each row: None if Ultralytics leaves the image out."""
    poses = rng.choice([None, None, None, (2, 3), (1, 2)])
    classes = rng.choice([1, 3, 80])

    def number():
        kind = rng.random()
        if kind < 0.9:
            value = rng.choice([rng.random(), round(rng.random(), 2), 0, 1, 0.5])
        elif kind < 0.97:
            value = rng.choice([1.01, 1.005, -0.01, 1.0100000001, -0.0, 1e-9])
        else:
            value = rng.choice([1.02, -0.02, float("nan"), float("inf"), 7])
        return rng.choice([str, repr, "{:.6f}".format, "{:.3e}".format])(value)

    def row():
        kind = rng.choices(["box", "outline", "odd"], [12, 3 if poses is None else 0, 0.3])[0]
        label = rng.choice([str(rng.randrange(classes))] * 30 + ["0.0", "-1", str(classes), "x"])
        if kind == "outline":
            count = 2 * rng.randint(3, 6)
        else:
            count = 4 if kind == "box" else rng.choice([3, 5, 7])
        numbers = [number() for _ in range(count)]
        if poses is not None:
            for _ in range(poses[0]):
                numbers += [number(), number()] + ([rng.choice(["0", "1", "2"])] if poses[1] == 3 else [])
        return rng.choice([" ", " ", "\t", "  "]).join([label, *numbers])

    lines = [row() for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 12]))]
    while lines and rng.random() < 0.4:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines + [""]))
    end = rng.choice(["\n", "\n", "\n", "\r\n", "\r"])
    text = ("\ufeff" if rng.random() < 0.05 else "") + end.join(lines) + rng.choice(["", end, end + end])
    return {"kind": "yolo", "text": text, "classes": classes, "poses": poses, "rows": yolo_rows(text, classes, poses)}


def yolo_rows(text, classes, poses):
    """ultralytics/data/utils.py, `verify_image_label`, with these exceptions: a mark at the beginning, lines of blanks,
    equal rows that keep their order, outlines as equal as all their numbers, and not as their boxes."""
    # Text files are read with \r and \r\n as \n.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    rows = [line.split() for line in text.strip().splitlines() if line.split()]
    if not rows:
        return []
    try:
        rows = [[np.float32(word) for word in row] for row in rows]
        is_outlines = poses is None and any(len(row) > 6 for row in rows)
        if is_outlines:
            assert all(len(row) > 6 and len(row) % 2 == 1 for row in rows)
            made = []
            for row in rows:
                made.append(row)
        else:
            wanted = 5 if poses is None else 5 + poses[0] * poses[1]
            assert all(len(row) == wanted for row in rows)
        for row in rows:
            points = np.array(row[1:], np.float32)
            if poses is not None:
                assert np.array(row[1:5], np.float32).max() <= 1.01
                points = np.array(row[5:], np.float32).reshape(-1, poses[1])[:, :2]
            assert points.max() <= 1.01
            assert np.array(row, np.float32).min() >= -0.01
            assert row[0] < classes and row[0] >= 0 and row[0] == int(row[0])
    except (ValueError, AssertionError):
        return None
    found = []
    for row in rows:
        # 0 and -0 are equal.
        row = [float(value) + 0.0 for value in row]
        if row not in found:
            found.append(row)
    return found


BAD_BOXES = [None, [1, 2, 3], ["1", 2, 3, 4], [1, 2, float("nan"), 4], [1, 2, 3, float("inf")], {"x": 1}, "box", [], 7]
BAD_BOXES += [[5, 5, -1, 4], [200, 5, 4, 4], [5, 5, [4], 4], [5, None, 4, 4]]
BAD_SEGMENTATIONS = [None, [], [5, 5, 25, 5, 25, 15], [[5, 5, 9, 9]], "none", {"size": [HEIGHT, WIDTH]}, 7, [[5, 5, None, 9, 9, 9]]]
BAD_SEGMENTATIONS += [[[1, 1, 5, 1, 5, float("nan")]], {"size": [HEIGHT, WIDTH], "counts": [7, 5]}, [{"a": 1}], [[]]]
MISSING = object()


def coco_case(rng):
    """A COCO file, and for each image its boxes, categories and areas of masks; `None` for what makes its sample bad."""
    style = rng.choice(["int", "int", "float", "text"])

    def key(number):
        return {"int": number, "float": float(number), "text": f"k{number}"}[style]

    def maybe(good, bad, share=0.05):
        return rng.choice(bad) if rng.random() < share else good

    numbers = rng.sample(range(100), rng.randint(1, 4))
    images = [{"id": key(number), "file_name": f"im{i}.jpg", "width": WIDTH, "height": float(HEIGHT)} for i, number in enumerate(numbers)]
    classes = [{"id": number, "name": f"class {number}"} for number in rng.sample(range(50), rng.randint(1, 4))]
    annotations = []
    for i in range(rng.randint(0, 8)):
        image = key(rng.choice(numbers))
        x, y = rng.uniform(0, WIDTH - 10), rng.uniform(0, HEIGHT - 10)
        w, h = rng.uniform(0, 10), rng.uniform(0, 10)
        box = rng.choice([[x, y, w, h], [int(x), int(y), int(w), int(h)], [x, y, w, 40.0]])
        polygon = [rng.uniform(0, WIDTH if k % 2 == 0 else HEIGHT) for k in range(2 * rng.randint(3, 6))]
        category = rng.choice(classes)["id"]
        row = {
            "id": maybe(rng.choice([i + 1, float(i + 1), f"a{i}"]), [1, MISSING, None], 0.04),
            "image_id": maybe(image, [1000, f"{image}", str(image), MISSING, None, float("nan")], 0.02),
            "category_id": maybe(rng.choice([category, float(category)]), [MISSING, None, 999, f"{category}"]),
            "bbox": maybe(box, BAD_BOXES + [MISSING]),
            "iscrowd": maybe(rng.choice([0, 0, 0, 1, False, True, 0.0, None, MISSING]), ["0", 2, float("nan"), [0]], 0.03),
            "segmentation": maybe(rng.choice([[polygon], [polygon, polygon[::-1]], run_lengths(rng)]), BAD_SEGMENTATIONS + [MISSING]),
            "area": rng.choice([5, 5.5, float("nan"), None, MISSING]),
            "keypoints": rng.choice([None, MISSING, []]),
            "extra": {"a": [1, {"b": "NaN, \" Infinity"}]},
        }
        entries = [(name, value) for name, value in row.items() if value is not MISSING]
        rng.shuffle(entries)
        annotations.append(dict(entries))
    parts = [("images", images), ("annotations", annotations), ("categories", classes), ("info", {"year": float("nan")})]
    rng.shuffle(parts)
    for _, part in parts[:3]:
        if isinstance(part, list) and part is not annotations:
            rng.shuffle(part)
    dump = rng.choice([json.dumps, lambda value: json.dumps(value, indent=1), lambda value: json.dumps(value, separators=(",", ":"))])
    text = dump(dict(parts))
    want = coco_read(json.loads(text))
    return {"kind": "coco", "text": ("\ufeff" if rng.random() < 0.1 else "") + text, "images": want}


def run_lengths(rng):
    mask = np.zeros((HEIGHT, WIDTH), np.uint8, order="F")
    for _ in range(rng.randint(0, 3)):
        x, y = rng.randrange(WIDTH), rng.randrange(HEIGHT)
        mask[y : y + rng.randint(1, HEIGHT), x : x + rng.randint(1, 9)] ^= 1
    made = coco_masks.encode(mask)
    if rng.random() < 0.5:
        return {"size": made["size"], "counts": made["counts"].decode()}
    flat, counts, inside = mask.flatten(order="F"), [0], 0
    for value in flat:
        if value != inside:
            counts.append(0)
            inside = value
        counts[-1] += 1
    return {"size": [HEIGHT, WIDTH], "counts": counts}


def is_number(value):
    return isinstance(value, (int, float))


def is_key(value):
    return isinstance(value, str) or is_number(value) and math.isfinite(value)


def coco_read(data):
    images = {image["id"]: image for image in data["images"]}
    bad, rows, lost = set(), [], 0
    other_kind = {str(id): id for id in images} | {float(id): id for id in images if isinstance(id, str) and id.isdigit()}
    for row in data["annotations"]:
        image = row.get("image_id")
        if not is_key(image):
            return None
        if image not in images:
            if isinstance(image, str) and image in other_kind and not isinstance(other_kind[image], str) and "." not in image:
                bad.add(other_kind[image])
                rows.append(row | {"image_id": other_kind[image]})
            else:
                lost += 1
            continue
        rows.append(row)
    if lost and not rows:
        return None
    ids = [row["id"] for row in rows if is_key(row.get("id"))]
    for row in rows:
        crowd = row.get("iscrowd")
        if not is_key(row.get("id")) or ids.count(row["id"]) > 1 or not (crowd is None or is_number(crowd) and crowd in (0, 1)):
            bad.add(row["image_id"])
    labels = sorted(category["id"] for category in data["categories"])
    # What pycocotools cannot hold belongs to images that are bad.
    data = data | {"annotations": [row | {"category_id": row.get("category_id")} for row in rows if row["image_id"] not in bad]}
    coco = COCO()
    coco.dataset = data
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
    found = []
    for id in sorted(coco.imgs):
        if id in bad:
            found.append({"boxes": None, "labels": None, "masks": None})
            continue
        objects = [row for row in coco.loadAnns(coco.getAnnIds(imgIds=[id])) if not row.get("iscrowd")]
        boxes, masks = [], []
        for row in objects:
            box = row.get("bbox")
            good = isinstance(box, list) and len(box) == 4 and all(is_number(value) and math.isfinite(value) for value in box)
            good = good and box[2] >= 0 and box[3] >= 0 and box[0] <= WIDTH and box[1] <= HEIGHT
            boxes.append([float(value) for value in box] if good else None)
            masks.append(mask_area(coco, row))
        categories = [labels.index(row["category_id"]) if row["category_id"] in labels else None for row in objects]
        whole = lambda rows: None if None in rows else rows
        found.append({"boxes": whole(boxes), "labels": whole(categories), "masks": whole(masks)})
    return found


def mask_area(coco, row):
    shape = row.get("segmentation")
    if isinstance(shape, list):
        good = len(shape) > 0 and all(isinstance(part, list) and len(part) >= 6 for part in shape)
        good = good and all(is_number(value) and math.isfinite(value) for part in shape for value in part)
    else:
        good = isinstance(shape, dict) and "counts" in shape
        good = good and (isinstance(shape["counts"], str) or sum(shape["counts"]) == WIDTH * HEIGHT)
    return int(coco.annToMask(row).sum()) if good else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, required=True, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for make in (csv_case, yolo_case, coco_case):
        for _ in range(options.cases):
            print(json.dumps(make(rng)))


if __name__ == "__main__":
    main()
