"""Makes boxes and masks for any photographs, in COCO's form: files for the comparison of detection."""

import json
import math
import random

CATEGORIES = 20
MOST_OBJECTS = 8
# Corners of an object's outline.
CORNERS = 12


def without_exif(data):
    """A JPEG without its EXIF segments, so that every loader sees it as it is stored, and its width and height."""
    kept, at = [data[:2]], 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, end = data[at + 1], at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker != 0xE1:
            kept.append(data[at:end])
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (int.from_bytes(data[at + offset : at + offset + 2], "big") for offset in (5, 7))
            return b"".join([*kept, data[end:]]), (width, height)
        at = end
    return None


def outline(draw, width, height):
    """The corners of a round object at a random place: x, y, x, y and so on."""
    across, down = width * draw.uniform(0.05, 0.3), height * draw.uniform(0.05, 0.3)
    x, y = draw.uniform(across, width - across), draw.uniform(down, height - down)
    corners = []
    for corner in range(CORNERS):
        angle, reach = math.tau * corner / CORNERS, draw.uniform(0.7, 1.0)
        corners += [round(x + across * reach * math.cos(angle), 2), round(y + down * reach * math.sin(angle), 2)]
    return corners


def annotate(photos, copies, folder):
    """Fills `folder` with images and annotations.json, so many copies of each photograph, and returns the images' number.
    Each copy has other bytes after its end. Files that are no JPEGs are left out."""
    draw = random.Random(1)
    images, objects = [], []
    (folder / "images").mkdir()
    for photo in photos:
        found = without_exif(photo.read_bytes())
        if found is None:
            continue
        data, (width, height) = found
        for copy in range(copies):
            number = len(images) + 1
            name = f"{number:06}.jpg"
            (folder / "images" / name).write_bytes(data + bytes([copy % 256, copy // 256]))
            images.append({"id": number, "file_name": name, "width": width, "height": height})
            for _ in range(draw.randint(1, MOST_OBJECTS)):
                corners = outline(draw, width, height)
                left, top = min(corners[::2]), min(corners[1::2])
                w, h = max(corners[::2]) - left, max(corners[1::2]) - top
                objects.append(
                    {
                        "id": len(objects) + 1,
                        "image_id": number,
                        "category_id": draw.randint(1, CATEGORIES),
                        "bbox": [left, top, round(w, 2), round(h, 2)],
                        "area": round(0.75 * w * h, 2),
                        "iscrowd": 0,
                        "segmentation": [corners],
                    }
                )
    categories = [{"id": number, "name": f"kind {number}"} for number in range(1, CATEGORIES + 1)]
    text = json.dumps({"images": images, "annotations": objects, "categories": categories})
    (folder / "annotations.json").write_text(text)
    return len(images)
