"""Times a peer of warpfeed with its own GPU path and prints one JSON object.

    python3 peers.py dali|torchvision train|trial-a|trial-b FOLDER [--load N] [--epochs E] [--threads T] [--batch-size B]

The clock (`seconds`) runs over all epochs after one warm-up batch, and stops when the device is done. Images are decoded
on the device (torchvision by `decode_jpeg`, DALI by "mixed" decoding); the operations are those of the presets, the
augmentations of torchvision run image by image on the device, as its users write them.
"""

import argparse
import json
import pathlib
import time

MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]
AREA = [0.08, 1.0]
RATIO = [3 / 4, 4 / 3]


def torchvision_batches(args):
    """Sizes of batches that are on the device."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2 as t

    crop = t.RandomResizedCrop(224, scale=AREA, ratio=RATIO, antialias=True)
    if args.pipeline == "train":
        geometry = [crop, t.RandomHorizontalFlip(0.5)]
    elif args.pipeline == "trial-a":
        flips = [t.RandomHorizontalFlip(0.5), t.RandomVerticalFlip(0.5)]
        geometry = (flips + [t.RandomRotation(5)]) * args.load + [crop]
    else:
        raise SystemExit("trial-b is DALI's: torchvision has no part in it")
    transform = t.Compose(geometry + [t.ToDtype(torch.float32, scale=True), t.Normalize(MEAN, STD)])
    files = sorted(path for path in pathlib.Path(args.folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    encoded = [torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8) for path in files]
    while True:
        for start in range(0, len(encoded), args.batch_size):
            some = encoded[start : start + args.batch_size]
            images = decode_jpeg(some, mode=ImageReadMode.RGB, device="cuda")
            torch.stack([transform(image) for image in images])
            if start + args.batch_size >= len(encoded):
                torch.cuda.synchronize()
            yield len(some)


def dali_batches(args):
    from nvidia.dali import fn, pipeline_def, types

    def nearest_rotation(images):
        images = fn.flip(images, horizontal=fn.random.coin_flip(), vertical=fn.random.coin_flip())
        angle = fn.random.uniform(range=[-5.0, 5.0])
        return fn.rotate(images, angle=angle, keep_size=True, fill_value=0, interp_type=types.INTERP_NN)

    def growing_rotation(images):
        return fn.rotate(fn.flip(images, horizontal=1, vertical=1), angle=5)

    @pipeline_def(batch_size=args.batch_size, num_threads=args.threads, device_id=0, seed=1)
    def pipeline():
        encoded, labels = fn.readers.file(file_root=args.folder, random_shuffle=True, name="reader")
        crop = {"random_area": AREA, "random_aspect_ratio": RATIO}
        if args.pipeline == "train":
            images = fn.decoders.image_random_crop(encoded, device="mixed", output_type=types.RGB, **crop)
            images = fn.resize(images, resize_x=224, resize_y=224)
        else:
            images = fn.decoders.image(encoded, device="mixed", output_type=types.RGB)
            step = {"trial-a": nearest_rotation, "trial-b": growing_rotation}[args.pipeline]
            for _ in range(args.load):
                images = step(images)
            images = fn.random_resized_crop(images, size=256 if args.pipeline == "trial-b" else 224, **crop)
        return labels, fn.crop_mirror_normalize(
            images,
            crop=(224, 224),
            mirror=fn.random.coin_flip() if args.pipeline == "train" else 0,
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            dtype=types.FLOAT,
            output_layout="CHW",
        )

    built = pipeline()
    built.build()
    while True:
        images = built.run()[1]
        # Copying one value waits for the batch.
        images[0].as_cpu()
        yield len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["dali", "torchvision"])
    parser.add_argument("pipeline", choices=["train", "trial-a", "trial-b"])
    parser.add_argument("folder")
    parser.add_argument("--load", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--limit-s", type=float, default=10, help="no new batch begins after so many seconds")
    args = parser.parse_args()

    if args.peer == "dali":
        import nvidia.dali as module

        batches = dali_batches(args)
    else:
        import torchvision as module

        batches = torchvision_batches(args)
    total = args.epochs * sum(path.suffix.lower() in (".jpg", ".jpeg") for path in pathlib.Path(args.folder).rglob("*"))
    next(batches)
    start = time.perf_counter()
    images = 0
    while images < total and time.perf_counter() - start < args.limit_s:
        images += next(batches)
    if args.peer == "torchvision":
        import torch

        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    print(
        json.dumps(
            {
                "peer": args.peer,
                "version": module.__version__,
                "pipeline": args.pipeline,
                "load": args.load,
                "threads": args.threads,
                "images": images,
                "seconds": seconds,
                "images_per_s": images / seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
