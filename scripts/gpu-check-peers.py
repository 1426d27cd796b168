"""Times a peer of warpfeed with its own GPU path and prints one JSON object.

    python3 peers.py dali|torchvision train|trial-a|trial-b FOLDER [--load N] [--limit-s S] [--threads T] [--batch-size B]

The clock (`seconds`) starts when an epoch has been made, and stops when the device is done. Images are decoded on the
device (torchvision by `decode_jpeg`, DALI by "mixed" decoding); the operations are those of the presets, the
augmentations of torchvision run image by image on the device, as its users write them. DALI decodes only the crop of
`train`, or with --decode whole the image; --hardware-load is the share that it leaves to the hardware decoder.
"""

import argparse
import json
import pathlib
import sys
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
    transform = t.Compose(geometry + [t.ToDtype(torch.float16, scale=True), t.Normalize(MEAN, STD)])
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
        mixed = {"device": "mixed", "output_type": types.RGB, "hw_decoder_load": args.hardware_load}
        if args.pipeline == "train" and args.decode == "crop":
            images = fn.decoders.image_random_crop(encoded, **mixed, **crop)
            images = fn.resize(images, resize_x=224, resize_y=224)
        else:
            images = fn.decoders.image(encoded, **mixed)
            steps = {"train": None, "trial-a": nearest_rotation, "trial-b": growing_rotation}
            for _ in range(args.load if steps[args.pipeline] else 0):
                images = steps[args.pipeline](images)
            images = fn.random_resized_crop(images, size=256 if args.pipeline == "trial-b" else 224, **crop)
        return labels, fn.crop_mirror_normalize(
            images,
            crop=(224, 224),
            mirror=fn.random.coin_flip() if args.pipeline == "train" else 0,
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            dtype=types.FLOAT16,
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
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--limit-s", type=float, default=2, help="no new batch begins after so many seconds")
    parser.add_argument("--decode", choices=["crop", "whole"], default="crop")
    parser.add_argument("--hardware-load", type=float, default=0.65)
    parser.add_argument("--packages", help="a folder to import from what is not installed")
    args = parser.parse_args()
    if args.packages:
        # Last: what is installed fits this Python, what was brought along may not.
        sys.path.append(args.packages)

    if args.peer == "dali":
        import nvidia.dali as module

        batches = dali_batches(args)
    else:
        import torchvision as module

        batches = torchvision_batches(args)
    # Memory of the device is taken and files are read for the first time in the first epoch.
    epoch = sum(path.suffix.lower() in (".jpg", ".jpeg") for path in pathlib.Path(args.folder).rglob("*"))
    images, start = 0, time.perf_counter()
    while images < epoch and time.perf_counter() - start < 2 * args.limit_s:
        images += next(batches)
    if args.peer == "torchvision":
        import torch

        torch.cuda.synchronize()
    images, start = 0, time.perf_counter()
    while time.perf_counter() - start < args.limit_s:
        images += next(batches)
    if args.peer == "torchvision":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    print(
        json.dumps(
            {
                "peer": args.peer,
                "version": module.__version__,
                "pipeline": args.pipeline,
                "load": args.load,
                "decode": args.decode,
                "hardware_load": args.hardware_load,
                "threads": args.threads,
                "images": images,
                "seconds": seconds,
                "images_per_s": images / seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
