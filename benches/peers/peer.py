"""Times one peer of warpfeed on the CPU and prints one JSON object.

    python peer.py dali|torchvision|torchvision-v2 PIPELINE FOLDER [--load N] [--full-decode] [--step-ms M] [--threads T]
        [--batch-size B]

PIPELINE is train, rand-augment or trivial-augment (train with RandAugment(2, 9) or TrivialAugmentWide), eval (shorter
side to 256, center crop), trial-a or trial-b.
torchvision has PIL images, as its ImageFolder gives them; torchvision-v2 has uint8 tensors that torchvision.io decodes, and
transforms.v2. The clock (`seconds`) runs from the first request for a batch to the last batch; imports and building the
pipeline are before it, and so is the warm-up: a batch of DALI's, and an epoch of torchvision's, whose workers are kept
alive. With --step-ms the program sleeps so long after each batch, as if it waited for a GPU that trains. `first_batch_s`
runs from before building to the first batch. `peak_rss_bytes` sums the peaks of the main process and of its workers.
"""

import argparse
import json
import multiprocessing
import os
import time

MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]
AREA = [0.08, 1.0]
RATIO = [3 / 4, 4 / 3]


def torchvision_loader(args):
    """Two iterables of batch sizes: a warm-up epoch, then the epoch. Each worker is a process that both have."""
    import torch
    from torch.utils.data import DataLoader
    from torchvision import datasets, io

    if args.peer == "torchvision-v2":
        from torchvision.transforms import v2 as t

        reader = {"loader": lambda path: io.decode_image(path, mode="RGB")}
        as_floats = t.ToDtype(torch.float32, scale=True)
    else:
        from torchvision import transforms as t

        reader = {}
        as_floats = t.ToTensor()
    crop = t.RandomResizedCrop(224, scale=AREA, ratio=RATIO)
    suites = {"train": [], "rand-augment": [t.RandAugment()], "trivial-augment": [t.TrivialAugmentWide()]}
    if args.pipeline in suites:
        geometry = [crop, t.RandomHorizontalFlip(0.5)] + suites[args.pipeline]
    elif args.pipeline == "eval":
        geometry = [t.Resize(256), t.CenterCrop(224)]
    elif args.pipeline == "trial-a":
        flips = [t.RandomHorizontalFlip(0.5), t.RandomVerticalFlip(0.5)]
        geometry = (flips + [t.RandomRotation(5)]) * args.load + [crop]
    else:
        raise SystemExit("trial-b is DALI's: torchvision has no part in it")
    transform = t.Compose(geometry + [as_floats, t.Normalize(MEAN, STD)])
    loader = DataLoader(
        datasets.ImageFolder(args.folder, transform, **reader),
        batch_size=args.batch_size,
        num_workers=args.threads,
        persistent_workers=args.threads > 0,
        shuffle=True,
    )

    def sizes():
        for images, _ in loader:
            yield images.shape[0]

    return sizes(), sizes()


def dali_loader(args):
    """Two iterables of batch sizes: the warm-up batch, then the epoch."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.auto_aug import rand_augment, trivial_augment

    def nearest_rotation(images):
        images = fn.flip(images, horizontal=fn.random.coin_flip(), vertical=fn.random.coin_flip())
        angle = fn.random.uniform(range=[-5.0, 5.0])
        return fn.rotate(images, angle=angle, keep_size=True, fill_value=0, interp_type=types.INTERP_NN)

    def growing_rotation(images):
        return fn.rotate(fn.flip(images, horizontal=1, vertical=1), angle=5)

    settings = {"batch_size": args.batch_size, "num_threads": args.threads, "device_id": None, "seed": 1}
    suites = {
        "rand-augment": lambda images: rand_augment.rand_augment(images, n=2, m=9, shape=(224, 224)),
        "trivial-augment": lambda images: trivial_augment.trivial_augment_wide(images, shape=(224, 224)),
    }

    # Suites draw by conditions, which the others have no need to pay for.
    @pipeline_def(**settings, enable_conditionals=args.pipeline in suites)
    def pipeline():
        encoded, labels = fn.readers.file(
            file_root=args.folder, random_shuffle=True, pad_last_batch=True, name="reader"
        )
        crop = {"random_area": AREA, "random_aspect_ratio": RATIO}
        if args.pipeline in ("train", *suites) and not args.full_decode:
            images = fn.decoders.image_random_crop(encoded, output_type=types.RGB, **crop)
            images = fn.resize(images, resize_x=224, resize_y=224)
            if args.pipeline in suites:
                images = suites[args.pipeline](fn.flip(images, horizontal=fn.random.coin_flip()))
        elif args.pipeline == "eval":
            images = fn.resize(fn.decoders.image(encoded, output_type=types.RGB), resize_shorter=256)
        else:
            images = fn.decoders.image(encoded, output_type=types.RGB)
            step = {"train": None, "trial-a": nearest_rotation, "trial-b": growing_rotation}[args.pipeline]
            for _ in range(args.load if step else 0):
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
    batches = -(-built.epoch_size("reader") // args.batch_size)
    return (len(built.run()[1]) for _ in range(1)), (len(built.run()[1]) for _ in range(batches))


def peak_rss_bytes():
    total = 0
    for pid in [os.getpid()] + [child.pid for child in multiprocessing.active_children()]:
        with open(f"/proc/{pid}/status") as status:
            total += sum(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["dali", "torchvision", "torchvision-v2"])
    parser.add_argument("pipeline", choices=["train", "rand-augment", "trivial-augment", "eval", "trial-a", "trial-b"])
    parser.add_argument("folder")
    parser.add_argument("--load", type=int, default=1)
    parser.add_argument("--full-decode", action="store_true", help="DALI: decode all of the image, then crop")
    parser.add_argument("--step-ms", type=float, default=0, help="milliseconds that training on a batch takes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    if args.peer == "dali":
        import nvidia.dali  # noqa: F401
    else:
        import torchvision  # noqa: F401

    begin = time.perf_counter()
    warm_up, epoch = (dali_loader if args.peer == "dali" else torchvision_loader)(args)
    next(warm_up)
    first_batch_s = time.perf_counter() - begin
    for _ in warm_up:
        pass

    start = time.perf_counter()
    images, rss = 0, 0
    for size in epoch:
        images += size
        time.sleep(args.step_ms / 1000)
        end = time.perf_counter()
        # A worker leaves as soon as its work is done, so its peak has to be read before.
        rss = max(rss, peak_rss_bytes())
    seconds = end - start

    print(
        json.dumps(
            {
                "peer": args.peer,
                "pipeline": args.pipeline,
                "load": args.load,
                "threads": args.threads,
                "images": images,
                "seconds": seconds,
                "images_per_s": images / seconds,
                "first_batch_s": first_batch_s,
                "peak_rss_bytes": rss,
            }
        )
    )


if __name__ == "__main__":
    main()
