#!/usr/bin/env python3
"""Labels of made shards, as warpfeed packs them, against the formats' own readers: webdataset groups the parts of samples,
protobuf parses examples, pyarrow reads columns.

    labels.py WARPFEED [--samples N] [--seed S]

What a label may be is decided here once more: all samples have one, or none; -1 and null stand for none; a label without
an image, or an image without a label where others have one, is left out. Exit code 0: everything agrees."""

import argparse
import io
import json
import pathlib
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

import pyarrow
import pyarrow.parquet
import webdataset.tariterators
from tfrecord import TFRecordWriter, example_pb2

IMAGES = ("jpg", "jpeg", "png", "webp", "pgm", "ppm")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(number):
    """An image of one pixel, and bytes that no other one has."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    text = chunk(b"tEXt", b"n\0%d" % number)
    return b"\x89PNG\r\n\x1a\n" + head + text + chunk(b"IDAT", zlib.compress(bytes([0, number % 256]))) + chunk(b"IEND", b"")


def packed(program, source, folder, options=()):
    """The bytes and labels of the good samples; None if the set is refused."""
    out = folder / "packed"
    command = [program, "pack", source, "-o", out, "--format", "webdataset", "--workers", "2", *options]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr
    images, labels = {}, {}
    for shard in sorted(out.glob("*.tar")):
        with tarfile.open(shard) as archive:
            for member in archive:
                key, ending = member.name.split(".", 1)
                content = archive.extractfile(member).read()
                (labels if ending == "cls" else images)[key] = content
    classes = json.loads((out / "pack.json").read_text()).get("classes") or []
    name = lambda label: classes[int(label)] if classes else str(int(label))
    return [(image, name(labels[key]) if key in labels else None) for key, image in images.items()], done.stderr


def all_or_none(samples):
    """Of pairs of image and label, those that can be read."""
    labeled = any(label is not None for _, label in samples)
    return [(image, label) for image, label in samples if not labeled or label is not None]


def agree(what, got, want):
    if got != want:
        at = next((i for i, (g, w) in enumerate(zip(got or [], want or [])) if g != w), -1)
        sys.exit(f"{what}: they differ from sample {at} on: {(got or [None])[at]} and {(want or [None])[at]}")


def number(text):
    """A label that is written as a number, as Python reads it."""
    value = int(text)
    return None if value == -1 else str(value)


def tar(random, count, folder):
    """Groups of parts in all orders, some without an image, a label, or a neighbor."""
    path, named = folder / "made.tar", random.random() < 0.5
    names = [random.choice(["cat", "dog", "Größe 2", "a b", "x.y", "e5x"]) for _ in range(4)]
    label = lambda: random.choice(names) if named else str(random.randrange(1000))
    # A part with the ending of another begins the next sample in warpfeed, and webdataset refuses the shard.
    with tarfile.open(path, "w") as archive:
        for i in range(count):
            key = random.choice(["", "a/", "a.b/", "deep/er/"]) + f"{i:07}"
            parts = []
            if random.random() < 0.95:
                parts.append((random.choice(["png", "PNG", "png", "jpg"]), png(i)))
            if random.random() < 0.95:
                parts.append(random.choice([("cls", label().encode()), ("json", json.dumps({"label": label(), "n": i}).encode())]))
            if random.random() < 0.3:
                parts.append(("txt", b"a text"))
            if random.random() < 0.05:
                parts.append(("seg.cls.npy", b"no label"))
            random.shuffle(parts)
            if random.random() < 0.02:
                parts.insert(random.randrange(len(parts) + 1), (None, b"a file without an ending"))
            for ending, content in parts:
                info = tarfile.TarInfo(f"{key}.{ending}" if ending else f"folder/without{i}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    with open(path, "rb") as stream:
        files = webdataset.tariterators.tar_file_iterator(stream)
        groups = list(webdataset.tariterators.group_by_keys(dict(file, __url__="") for file in files))
    samples = []
    for group in groups:
        image = next((group[ending] for ending in group if ending in IMAGES), None)
        text = group["cls"].decode() if "cls" in group else json.loads(group["json"])["label"] if "json" in group else None
        if image is not None:
            samples.append((image, text if named or text is None else number(text)))
    return path, all_or_none(samples)


def tfrecord(random, count, folder):
    """Examples whose label is a number, a text, a list, or missing."""
    path = folder / "made.tfrecord"
    writer = TFRecordWriter(str(path))
    for i in range(count):
        features = {"image/encoded": (png(i), "byte"), "image/height": (random.randrange(9), "int")}
        kind = random.random()
        if kind < 0.8:
            features["image/class/label"] = (random.randrange(1000), "int")
        elif kind < 0.85:
            features["image/class/label"] = (str(random.randrange(1, 1000)).encode(), "byte")
        elif kind < 0.9:
            features["image/class/label"] = (random.choice([[1, 2], [-1], [-5], [1 << 40]]), "int")
        elif kind < 0.93:
            features["image/class/label"] = ([0.5], "float")
        if random.random() < 0.3:
            features["image/object/class/label"] = ([1, 2, 3], "int")
        items = list(features.items())
        random.shuffle(items)
        writer.write(dict(items))
    writer.close()
    samples = []
    data, at = path.read_bytes(), 0
    while at < len(data):
        length = struct.unpack_from("<Q", data, at)[0]
        example = example_pb2.Example.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length
        feature = example.features.feature
        image, label = feature["image/encoded"].bytes_list.value[0], None
        if "image/class/label" in feature:
            own = feature["image/class/label"]
            values = list(getattr(own, own.WhichOneof("kind")).value)
            value = values[0] if len(values) == 1 else None
            if isinstance(value, bytes):
                label = number(value)
            elif isinstance(value, int) and 0 <= value < 1 << 32:
                label = str(value)
        samples.append((image, label))
    return path, all_or_none(samples)


def parquet(random, count, folder):
    """A column of each type, nulls in it, in row groups and pages of any size."""
    path = folder / "made.parquet"
    integers = [pyarrow.int8(), pyarrow.int16(), pyarrow.int32(), pyarrow.int64(), pyarrow.uint8(), pyarrow.uint16(), pyarrow.uint32()]
    texts = [pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())]
    kind = random.choice([*integers, *texts, pyarrow.bool_()])
    nulls = random.choice([0, 0.1])
    value = lambda: random.choice(["cat", "dog", "elk"]) if kind in texts else random.choice([True, False])
    if kind in integers:
        lowest = -2 if str(kind).startswith("int") else 0
        value = lambda: random.randrange(lowest, 100)
    labels = [None if random.random() < nulls else value() for _ in range(count)]
    images = [{"bytes": png(i), "path": None} for i in range(count)]
    struct_of = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    table = pyarrow.table({"image": pyarrow.array(images, struct_of), "label": pyarrow.array(labels, kind)})
    compression = random.choice(["snappy", "none", "zstd", "gzip"])
    pyarrow.parquet.write_table(
        table, path, row_group_size=random.choice([7, 1000, count]), data_page_size=random.choice([100, 1 << 20]),
        compression=compression, use_dictionary=random.random() < 0.5, data_page_version=random.choice(["1.0", "2.0"]),
    )  # fmt: skip
    rows = pyarrow.parquet.read_table(path).column("label").to_pylist()
    name = lambda row: row if isinstance(row, str) else None if row is None or row < 0 else str(int(row))
    return path, all_or_none([(png(i), name(row)) for i, row in enumerate(rows)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("warpfeed")
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = pathlib.Path(arguments.warpfeed).resolve()
    for make in (tar, tfrecord, parquet):
        done, good, shards = 0, 0, 0
        while done < arguments.samples:
            count = min(arguments.samples - done, 20_000 if arguments.samples > 100_000 else 500)
            own = random.Random(f"{arguments.seed} {make.__name__} {done}")
            with tempfile.TemporaryDirectory() as folder:
                source, want = make(own, count, pathlib.Path(folder))
                got, said = packed(program, source, pathlib.Path(folder))
                if got is None:
                    sys.exit(f"{make.__name__} from sample {done} on: {said}")
                agree(f"{make.__name__}, seed {arguments.seed}, from sample {done} on", got, want)
            done, good, shards = done + count, good + len(want), shards + 1
        print(f"{make.__name__}: {done} samples in {shards} shards, {good} of them good, equal bytes and labels")


if __name__ == "__main__":
    main()
