#!/usr/bin/env python3
"""Times warpfeed.decode and other decoders of Python on whole JPEGs in memory, one thread, in turn, and prints a table.

    benches/peers/decoders.py PHOTOS [--rounds N] [--limit N]

It measures what imread-benchmark's protocol `decode-memory` does: bytes in memory become an array [H, W, 3] of uint8. Those
that are not installed are left out. CPU time is measured, so that what else the machine does counts for little; the table
has the least of the rounds. "Others" are images whose pixels are not Pillow's, and "refused" those that raise an error.
"""

import argparse
import io
import pathlib
import time

import numpy


def pillow():
    from PIL import Image

    return lambda data: numpy.array(Image.open(io.BytesIO(data)).convert("RGB"))


def warpfeed():
    import warpfeed

    return warpfeed.decode


def simplejpeg():
    import simplejpeg

    return lambda data: simplejpeg.decode_jpeg(data, colorspace="RGB")


def turbojpeg():
    import turbojpeg

    decoder = turbojpeg.TurboJPEG()
    return lambda data: decoder.decode(data, pixel_format=turbojpeg.TJPF_RGB)


def opencv():
    import cv2

    cv2.setNumThreads(1)
    flags = cv2.IMREAD_COLOR_RGB
    return lambda data: cv2.imdecode(numpy.frombuffer(data, numpy.uint8), flags)


def torchvision():
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)

    def decode(data):
        tensor = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)
        return numpy.ascontiguousarray(tensor.numpy().transpose(1, 2, 0))

    return decode


def imagecodecs():
    from imagecodecs import jpeg8_decode

    return jpeg8_decode


def kornia_rs():
    import kornia_rs

    decoder = getattr(kornia_rs, "io", kornia_rs)
    return lambda data: numpy.asarray(decoder.decode_image_jpeg(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=200)
    options = parser.parse_args()
    paths = sorted(path for path in options.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    images = [path.read_bytes() for path in paths[: options.limit]]
    decoders, reference = {}, pillow()
    for make in (warpfeed, simplejpeg, turbojpeg, opencv, torchvision, imagecodecs, kornia_rs, pillow):
        try:
            decoders[make.__name__] = make()
        except (ImportError, RuntimeError, OSError, AttributeError) as error:
            print(f"{make.__name__} is left out: {error}")
    others, refused, sound = dict.fromkeys(decoders, 0), dict.fromkeys(decoders, 0), []
    for data in images:
        want, fine = reference(data), True
        for name, decode in decoders.items():
            try:
                others[name] += not numpy.array_equal(decode(data), want)
            except Exception:
                refused[name] += 1
                fine = False
        sound += [data] if fine else []
    seconds = {name: [] for name in decoders}
    for _ in range(options.rounds):
        for name, decode in decoders.items():
            begin = time.process_time()
            for data in sound:
                decode(data)
            seconds[name].append(time.process_time() - begin)
    slowest = min(seconds["pillow"])
    print(f"\n{len(sound)} images, CPU time, one thread:\n")
    print("| decoder | images/s | times Pillow | others | refused |\n| --- | ---: | ---: | ---: | ---: |")
    for name, times in sorted(seconds.items(), key=lambda item: min(item[1])):
        rate, ratio = len(sound) / min(times), slowest / min(times)
        print(f"| {name} | {rate:.0f} | {ratio:.2f} | {others[name]} | {refused[name]} |")


if __name__ == "__main__":
    main()
