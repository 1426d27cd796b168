#!/usr/bin/env python3
"""Shards against programs that are not ours: they read what `warpfeed pack` wrote, and warpfeed reads what they wrote;
the same number of samples, labels and bytes. For every form the digest of a run is that over the folder.

    check.py WARPFEED [--need PROGRAM]...

What is not installed is reported as ignored, or, if it is needed, a failure. Exit code 0: everything agrees."""

import argparse
import importlib
import json
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile

IMAGES = 40
CLASSES = 4


def warpfeed(*args):
    done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"warpfeed {' '.join(map(str, args))}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def digest(source, *options):
    report = json.loads(warpfeed("run", source, *options, "--preset", "eval", "--seed", 3, "--digest", "--json"))
    return report["images"], report["digest"]


def expect(what, got, want):
    got, want = list(got), list(want)
    if got != want:
        at = next((i for i, (g, w) in enumerate(zip(got, want)) if g != w), min(len(got), len(want)))
        sys.exit(f"{what}: {len(got)} samples, {len(want)} wanted; they differ from sample {at} on")
    print(f"{what}: {len(got)} samples, equal bytes and labels")


def same_run(what, source, want):
    got = digest(source)
    if got != want:
        sys.exit(f"{what}: {got[0]} images with the digest {got[1]}, wanted {want[0]} with {want[1]}")
    print(f"{what}: {got[0]} images, equal digest")


def dali_pipeline(reader, count=IMAGES):
    """The bytes and labels that a reader of DALI gives, on the CPU. `reader` is called inside the pipeline."""
    from nvidia.dali import Pipeline

    pipeline = Pipeline(batch_size=count, num_threads=2, device_id=None)
    with pipeline:
        pipeline.set_outputs(*reader())
    pipeline.build()
    images, labels = pipeline.run()
    return [(images.at(i).tobytes(), labels.at(i)) for i in range(count)]


class WebDataset:
    format, needs = "webdataset", "webdataset"

    def read(self, shards):
        import webdataset

        data = webdataset.WebDataset([str(path) for path in shards], shardshuffle=False)
        return [(sample["jpg"], int(sample["cls"])) for sample in data]

    def write(self, samples, folder):
        import webdataset

        with webdataset.ShardWriter(str(folder / "theirs-%03d.tar"), maxcount=15, verbose=0) as writer:
            for i, (image, label) in enumerate(samples):
                # Longer than a header has room for.
                key = "/".join(["a folder with a name", "ä" * 60, f"{i:050}"])
                writer.write({"__key__": key, "jpg": image, "cls": label})
        return folder / "theirs-{000..002}.tar"

    def dali(self, shards):
        from nvidia.dali import fn

        paths = [str(path) for path in shards]
        return [
            (image, int(label.tobytes()))
            for image, label in dali_pipeline(lambda: fn.readers.webdataset(paths=paths, ext=["jpg", "cls"]))
        ]


class TfRecord:
    format, needs = "tfrecord", "tfrecord"

    def read(self, shards):
        from tfrecord import tfrecord_loader

        names = {"image/encoded": "byte", "image/class/label": "int"}
        for path in shards:
            for sample in tfrecord_loader(str(path), None, names):
                yield bytes(sample["image/encoded"]), int(sample["image/class/label"][0])

    def write(self, samples, folder):
        from tfrecord import TFRecordWriter

        writer = TFRecordWriter(str(folder / "theirs.tfrecord"))
        for i, (image, label) in enumerate(samples):
            name = (f"{i}.jpg".encode(), "byte")
            box = ([0.25, 0.5], "float")
            features = {"image/filename": name, "image/encoded": (image, "byte"), "image/class/label": (label, "int")}
            writer.write(features | {"image/box": box})
        writer.close()
        return folder / "theirs.tfrecord"

    def dali(self, shards):
        from nvidia.dali import fn, tfrecord
        from tfrecord.tools import tfrecord2idx

        indices = [f"{path}.idx" for path in shards]
        for path, index in zip(shards, indices):
            tfrecord2idx.create_index(str(path), index)

        def reader():
            read = fn.readers.tfrecord(
                path=[str(path) for path in shards],
                index_path=indices,
                features={
                    "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
                    "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
                },
            )
            return read["image/encoded"], read["image/class/label"]

        samples = [(image, int(label[0])) for image, label in dali_pipeline(reader)]
        for index in indices:
            pathlib.Path(index).unlink()
        return samples


class RecordIo:
    format, needs = "recordio", "mxnet"

    def read(self, shards):
        from mxnet import recordio

        for path in shards:
            records = recordio.MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "r")
            for key in records.keys:
                header, image = recordio.unpack(records.read_idx(key))
                yield image, int(header.label)

    def write(self, samples, folder):
        from mxnet import recordio

        records = recordio.MXIndexedRecordIO(str(folder / "theirs.idx"), str(folder / "theirs.rec"), "w")
        for i, (image, label) in enumerate(samples):
            several = [label, 0.5, 7.0] if i % 2 else float(label)
            records.write_idx(i, recordio.pack(recordio.IRHeader(0, several, i, 0), image))
        records.close()
        return folder / "theirs.rec"

    def dali(self, shards):
        from nvidia.dali import fn

        # It takes one index a pipeline.
        for path in shards:
            index = path.with_suffix(".idx")
            count = len(index.read_text().splitlines())
            read = dali_pipeline(lambda: fn.readers.mxnet(path=[str(path)], index_path=[str(index)]), count)
            yield from ((image, int(label[0])) for image, label in read)


# The features of detection, by the names that TensorFlow's programs have, with the types of tfrecord.
DETECTION = {
    **{f"image/object/bbox/{side}": "float" for side in ("xmin", "ymin", "xmax", "ymax")},
    "image/object/class/label": "int",
    "image/object/keypoint/x": "float",
    "image/object/keypoint/y": "float",
    "image/object/keypoint/visibility": "int",
    "image/object/keypoint/num": "int",
}
FIELDS = "boxes,labels,keypoints"


def detection_of(count):
    """Values of the features for so many objects of two keypoints, the second of which is not labeled. As shares they are
    powers of two, so that no product with a side is rounded."""
    left, top, right, bottom, label, x, y, visibility, labeled = DETECTION
    objects = range(count)
    return {
        left: [0.125 for _ in objects],
        top: [0.25 for _ in objects],
        right: [0.5 for _ in objects],
        bottom: [0.75 for _ in objects],
        label: [i % 2 for i in objects],
        x: [share for _ in objects for share in (0.25, 0.0)],
        y: [share for _ in objects for share in (0.5, 0.0)],
        visibility: [seen for _ in objects for seen in (1, 0)],
        labeled: [1 for _ in objects],
    }


def check_detection(samples, folder):
    """Boxes, labels and keypoints: packed from COCO and read by tfrecord, and written by tfrecord and read by us."""
    import io

    from PIL import Image
    from tfrecord import TFRecordWriter, tfrecord_loader

    (folder / "images").mkdir(parents=True)
    (folder / "json").mkdir()
    writer = TFRecordWriter(str(folder / "theirs.tfrecord"))
    images, annotations, want = [], [], []
    for i, (data, _) in enumerate(samples):
        width, height = Image.open(io.BytesIO(data)).size
        features = detection_of(1 + i % 3)
        want.append(features)
        (folder / "images" / f"{i:03}.jpg").write_bytes(data)
        images.append({"id": i, "file_name": f"{i:03}.jpg", "width": width, "height": height})
        labels = features["image/object/class/label"]
        for label in labels:
            # COCO's keypoints are indices of pixels, whose centers lie half a pixel further.
            seen = [width / 4 - 0.5, height / 2 - 0.5, 1]
            box = [width / 8, height / 4, 3 * width / 8, height / 2]
            annotations.append({"id": len(annotations), "image_id": i, "category_id": label, "iscrowd": 0, "bbox": box})
            annotations[-1] |= {"area": box[2] * box[3], "keypoints": [*seen, 0, 0, 0]}
        writer.write(
            {"image/encoded": (data, "byte")}
            | {name: (features[name], kind) for name, kind in DETECTION.items()}
        )
        # The same fields in the form that WebDataset has.
        box = [width / 8, height / 4, width / 2, 3 * height / 4]
        points = [[width / 4, height / 2], [0, 0]] * len(labels)
        fields = {
            "boxes": {"format": "XYXY", "values": [box] * len(labels)},
            "labels": labels,
            "keypoints": {"per_object": 2, "values": points, "visibility": [1, 0] * len(labels)},
        }
        (folder / "json" / f"{i:03}.jpg").write_bytes(data)
        (folder / "json" / f"{i:03}.json").write_text(json.dumps(fields))
    writer.close()
    with tarfile.open(folder / "same.tar", "w") as tar:
        for path in sorted((folder / "json").iterdir()):
            tar.add(path, path.name)
    names = ["nose", "tail"]
    categories = [{"id": id, "name": f"kind {id}", "keypoints": names} for id in range(2)]
    coco = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "coco.json").write_text(json.dumps(coco))
    warpfeed(
        *("pack", folder / "images", "--from", "coco", "--annotations", folder / "coco.json", "--fields", FIELDS),
        *("--format", "tfrecord", "-o", folder / "ours"),
    )
    read = []
    for path in sorted((folder / "ours").glob("*.tfrecord")):
        read += [{name: list(sample[name]) for name in DETECTION} for sample in tfrecord_loader(str(path), None, DETECTION)]
    expect("boxes and keypoints in our TFRecord read by tfrecord", read, want)
    same = digest(folder / "same.tar", "--fields", FIELDS)
    theirs = digest(folder / "theirs.tfrecord", "--fields", FIELDS)
    if theirs != same:
        sys.exit(f"tfrecord's boxes and keypoints: {theirs[0]} images with the digest {theirs[1]}, wanted {same}")
    print(f"tfrecord's boxes and keypoints: {theirs[0]} images, equal digest")


def write_parquet(samples, folder):
    import pyarrow
    from pyarrow import parquet

    images = [{"bytes": image, "path": f"{i}.jpg"} for i, (image, _) in enumerate(samples)]
    table = pyarrow.table({"image": images, "label": [label for _, label in samples]})
    parquet.write_table(table, folder / "theirs.parquet", row_group_size=15)
    return folder / "theirs.parquet"


def write_idx(folder):
    """Raw images as MNIST has them, and what a run gives over the same pixels in PNG files."""
    from PIL import Image

    images, labels = folder / "t10k-images-idx3-ubyte", bytes([0, 0, 1])
    pixels = [bytes((i * 7 + j * j) % 251 for j in range(28 * 28)) for i in range(len(labels))]
    images.write_bytes(struct.pack(">IIII", 0x803, len(labels), 28, 28) + b"".join(pixels))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, len(labels)) + labels)
    for i, label in enumerate(labels):
        (folder / "png" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.frombytes("L", (28, 28), pixels[i]).save(folder / "png" / str(label) / f"{i}.png")
    return images, digest(folder / "png")


def check_images(folder, count=2000):
    """Orientations and animated WebPs: a run over made images gives the pixels of PNGs that Pillow turned upright."""
    import images

    kinds = {}
    for i, (kind, data, upright) in enumerate(images.cases(count, 1)):
        made, wanted = [folder / kind / name / "class" for name in ("made", "wanted")]
        made.mkdir(parents=True, exist_ok=True)
        wanted.mkdir(parents=True, exist_ok=True)
        ending = {"jpeg": "jpg", "png": "png"}.get(kind, "webp")
        (made / f"{i:05}.{ending}").write_bytes(data)
        upright.save(wanted / f"{i:05}.png")
        kinds[kind] = made.parent, wanted.parent
    whole = '[{"op": "crop", "x": 0, "y": 0, "width": 64, "height": 64}]'

    def digest(source):
        return json.loads(warpfeed("run", source, "--transforms", whole, "--digest", "--json"))["digest"]

    for kind, (made, wanted) in kinds.items():
        if digest(made) != digest(wanted):
            sys.exit(f"{kind}: other pixels or another orientation than Pillow's; images.py says which")
    print(f"{count} images of {len(kinds)} kinds: equal to Pillow's, upright")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("warpfeed")
    parser.add_argument("--need", action="append", default=[], metavar="PROGRAM")
    options = parser.parse_args()
    global PROGRAM
    PROGRAM = options.warpfeed

    def there(program, what):
        try:
            importlib.import_module({"dali": "nvidia.dali"}.get(program, program))
            return True
        except ImportError as error:
            if program in options.need:
                sys.exit(f"{program} is needed: {error}")
            print(f"ignored: {what}: {error}")
            return False

    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        folder = temporary / "images"
        warpfeed("synth", folder, "--count", IMAGES, "--classes", CLASSES, "--seed", 1)
        classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        files = [path for name in classes for path in sorted((folder / name).iterdir())]
        samples = [(path.read_bytes(), classes.index(path.parent.name)) for path in files]
        want = digest(folder)
        assert want[0] == IMAGES, want
        for kind in [WebDataset(), TfRecord(), RecordIo()]:
            ours, theirs = temporary / kind.format / "ours", temporary / kind.format / "theirs"
            warpfeed("pack", folder, "-o", ours, "--format", kind.format, "--shard-size", "1MB")
            same_run(f"a run over our {kind.format}", ours, want)
            shards = sorted(path for path in ours.iterdir() if path.suffix in (".tar", ".rec", ".tfrecord"))
            if there(kind.needs, f"our {kind.format} read by {kind.needs}, and the reverse"):
                expect(f"our {kind.format} read by {kind.needs}", kind.read(shards), samples)
                theirs.mkdir()
                written = kind.write(samples, theirs)
                same_run(f"a run over {kind.needs}'s {kind.format}", written, want)
            if there("dali", f"our {kind.format} read by DALI"):
                expect(f"our {kind.format} read by DALI", kind.dali(shards), samples)
        if there("tfrecord", "boxes and keypoints in TFRecord") and there("PIL", "boxes and keypoints in TFRecord"):
            check_detection(samples, temporary / "detection")
        if there("pyarrow", "a run over pyarrow's Parquet"):
            written = write_parquet(samples, temporary)
            run = subprocess.run([PROGRAM, "run", written], capture_output=True, text=True)
            if "build with the feature" in run.stderr:
                print("ignored: a run over pyarrow's Parquet: this build lacks the feature parquet")
            else:
                same_run("a run over pyarrow's Parquet", written, want)
        if there("PIL", "orientations and animated WebPs"):
            check_images(temporary / "made")
        # As PNG files in a folder, the same pixels.
        if there("PIL", "a run over an IDX pair"):
            same_run("a run over an IDX pair", *write_idx(temporary))
    print("Everything agrees.")


if __name__ == "__main__":
    main()
