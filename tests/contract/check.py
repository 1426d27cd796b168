#!/usr/bin/env python3
"""Contracts against programs that are not ours: each preprocesses the probe images as it should, and then with one or two
mistakes. `warpfeed contract check --against` must find the first to be equal, and the others' mistakes by name.

    check.py WARPFEED [--need PROGRAM]...

What is not installed is reported as ignored, or, if it is needed, a failure. Exit code 0: everything was found."""

import argparse
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
SIDE, CROP = 256, 224
# Images that Pillow and the others read in their own way, mistake or not.
GRAY_16 = "cut off at 255"


def shorter(width, height, side):
    return (side, int(side * height / width)) if width <= height else (int(side * width / height), side)


def place(width, height, crop):
    return round((width - crop) / 2), round((height - crop) / 2)


def normalized(pixels, mean=MEAN, std=STD, scale=np.float32(255)):
    return ((pixels.astype(np.float32) / scale - mean) / std).transpose(2, 0, 1)


def pillow(path, exif=True, filter=None, side=SIDE, shift=(0, 0), size=None, background=None, draft=False, end=normalized):
    from PIL import Image, ImageOps

    image = Image.open(path)
    if draft:
        image.draft("RGB", (SIDE, SIDE))
    if exif:
        image = ImageOps.exif_transpose(image)
    if background and image.mode in ("RGBA", "LA", "PA") or background and "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, background), image)
    image = image.convert("RGB")
    image = image.resize(size or shorter(*image.size, side), filter or Image.Resampling.BILINEAR)
    left, top = place(*image.size, CROP)
    left, top = left + shift[0], top + shift[1]
    return end(np.asarray(image.crop((left, top, left + CROP, top + CROP))))


def opencv(path, filter, flags=None, rgb=True):
    import cv2

    image = cv2.imread(str(path), cv2.IMREAD_COLOR if flags is None else flags)
    height, width = image.shape[:2]
    image = cv2.resize(image, shorter(width, height, SIDE), interpolation=filter)
    left, top = place(image.shape[1], image.shape[0], CROP)
    image = image[top : top + CROP, left : left + CROP]
    return normalized(image[..., ::-1] if rgb else image)


def torch_tensors(path, antialias=True, interpolation="bilinear", floats=False):
    import torch
    from PIL import Image, ImageOps
    from torchvision.transforms import v2

    image = v2.functional.pil_to_tensor(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
    if floats:
        image = image.float() / 255
        size = shorter(image.shape[2], image.shape[1], SIDE)[::-1]
        image = torch.nn.functional.interpolate(image[None], size, mode=interpolation, antialias=antialias)[0]
    else:
        image = v2.functional.resize(image, [SIDE], v2.InterpolationMode(interpolation), antialias=antialias)
        image = image.float() / 255
    image = v2.functional.center_crop(image, [CROP, CROP])
    return v2.functional.normalize(image, MEAN.tolist(), STD.tolist()).numpy()


def torchvision_pil(path):
    from PIL import Image, ImageOps
    from torchvision import transforms

    of = transforms.Compose(
        [
            transforms.Resize(SIDE),
            transforms.CenterCrop(CROP),
            transforms.ToTensor(),
            transforms.Normalize(MEAN.tolist(), STD.tolist()),
        ]
    )
    return of(ImageOps.exif_transpose(Image.open(path)).convert("RGB")).numpy()


def mistakes():
    """Name, program, function of a path, and what must be found: a part of the operation's name and of the cause."""

    def scaled(pixels):
        return pixels.astype(np.float32)

    if have("PIL"):
        from PIL import Image

        filters = Image.Resampling

        def end(name, mean=MEAN, std=STD, **more):
            return name, "pillow", lambda path: pillow(path, end=lambda pixels: normalized(pixels, mean, std, **more))

        yield "as it should", "pillow", pillow, []
        yield "bicubic for bilinear", "pillow", lambda p: pillow(p, filter=filters.BICUBIC), [("resize", "bicubic, not bilinear")]
        yield "Lanczos for bilinear", "pillow", lambda p: pillow(p, filter=filters.LANCZOS), [("resize", "Lanczos, not")]
        yield "EXIF ignored", "pillow", lambda p: pillow(p, exif=False), [("decoding", "EXIF orientation is ignored")]
        yield (
            "BGR",
            "pillow",
            lambda p: pillow(p, end=lambda pixels: normalized(pixels[..., ::-1])),
            [("decoding", "BGR")],
        )
        yield "BGR at the end", "pillow", lambda p: pillow(p)[::-1], [("decoding", "BGR")]
        for shift, text in [((1, 0), "1 pixel to the right"), ((0, -1), "1 pixel up"), ((-1, 1), "left and 1 pixel down")]:
            yield f"crop off by {shift}", "pillow", lambda p, shift=shift: pillow(p, shift=shift), [("center_crop", text)]
        yield *end("mean and std swapped", STD, MEAN), [("normalize", "swapped")]
        yield *end("mean in the order BGR", MEAN[::-1], STD[::-1]), [("normalize", "blue, green, red")]
        yield *end("other mean", np.float32([0.5, 0.4, 0.3]), STD), [("normalize", "0.5000, 0.4000, 0.3000")]
        yield *end("mean and std 0.5", np.float32([0.5] * 3), np.float32([0.5] * 3)), [("normalize", "-1 to 1")]
        yield *end("normalized before scaling", scale=np.float32(1)), [("normalize", "before scaling")]
        yield *end("scaled twice", scale=np.float32(255 * 255)), [("normalize", "twice")]
        yield (
            "not normalized",
            "pillow",
            lambda p: pillow(p, end=lambda pixels: pixels.astype(np.float32).transpose(2, 0, 1) / 255),
            [("normalize", "0 to 1, not normalized")],
        )
        yield (
            "values of 0 to 255",
            "pillow",
            lambda p: pillow(p, end=lambda pixels: scaled(pixels).transpose(2, 0, 1)),
            [("normalize", "0 to 255, not normalized")],
        )
        yield "channels last", "pillow", lambda p: pillow(p).transpose(1, 2, 0), [("tensor", "another order")]
        yield "shorter side 232", "pillow", lambda p: pillow(p, side=232), [("resize", "shorter side to 232")]
        yield "shorter side 255", "pillow", lambda p: pillow(p, side=255), [("resize", "shorter side to 255")]
        yield "squashed", "pillow", lambda p: pillow(p, size=(SIDE, SIDE)), [("resize", "to exactly 256")]
        yield "over white", "pillow", lambda p: pillow(p, background="white"), [("decoding", "over white")]
        yield "over black", "pillow", lambda p: pillow(p, background="black"), [("decoding", "over black")]
        yield "draft", "pillow", lambda p: pillow(p, draft=True), [("decoding", "smaller scale")]
        yield (
            "bicubic, BGR and EXIF ignored",
            "pillow",
            lambda p: pillow(p, exif=False, filter=filters.BICUBIC, end=lambda pixels: normalized(pixels[..., ::-1])),
            [("resize", "bicubic, not bilinear"), ("decoding", "BGR"), ("decoding", "EXIF")],
        )
    if have("cv2"):
        import cv2

        linear = ("resize", "without antialiasing (cv2.INTER_LINEAR")
        yield "INTER_LINEAR", "opencv", lambda p: opencv(p, cv2.INTER_LINEAR), [linear]
        yield "INTER_CUBIC", "opencv", lambda p: opencv(p, cv2.INTER_CUBIC), [("resize", "cv2.INTER_CUBIC")]
        yield "INTER_AREA", "opencv", lambda p: opencv(p, cv2.INTER_AREA), [("resize", "cv2.INTER_AREA")]
        yield "INTER_LANCZOS4", "opencv", lambda p: opencv(p, cv2.INTER_LANCZOS4), [("resize", "cv2.INTER_LANCZOS4")]
        yield "INTER_NEAREST", "opencv", lambda p: opencv(p, cv2.INTER_NEAREST), [("resize", "nearest as of OpenCV")]
        yield "BGR, INTER_LINEAR", "opencv", lambda p: opencv(p, cv2.INTER_LINEAR, rgb=False), [linear, ("decoding", "BGR")]
        flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
        yield (
            "INTER_AREA, EXIF ignored",
            "opencv",
            lambda p: opencv(p, cv2.INTER_AREA, flags),
            [("resize", "cv2.INTER_AREA"), ("decoding", "EXIF orientation is ignored")],
        )
    if have("torchvision"):
        yield "as it should, transforms v1", "torch", torchvision_pil, []
        rounding = ("resize", "by rounding only")
        yield "tensors", "torch", torch_tensors, [rounding]
        yield "tensors of floats", "torch", lambda p: torch_tensors(p, floats=True), [rounding]
        no_antialias = ("resize", "without antialiasing")
        yield "no antialiasing", "torch", lambda p: torch_tensors(p, antialias=False), [no_antialias]
        yield "interpolate", "torch", lambda p: torch_tensors(p, antialias=False, floats=True), [no_antialias]
        bicubic = ("resize", "bicubic with a = -0.75 without antialiasing")
        yield (
            "bicubic interpolate",
            "torch",
            lambda p: torch_tensors(p, antialias=False, interpolation="bicubic", floats=True),
            [bicubic],
        )
        yield "bicubic tensors", "torch", lambda p: torch_tensors(p, interpolation="bicubic"), [("resize", "bicubic, not")]


def have(module):
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def check(contract, probes, make, folder):
    for probe in probes:
        try:
            output = make(probe)
        except Exception as error:
            # Only what the program itself cannot read.
            if not probe.name.startswith(("odd-truncated", "jpeg-ycck", "jpeg-cmyk")):
                raise RuntimeError(probe.name) from error
            continue
        np.save(folder / f"{probe.stem}.npy", output)
    command = [PROGRAM, "contract", "check", contract, "--against", folder, "--json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"warpfeed contract check: exit code {done.returncode}: {done.stderr}")
    return done.returncode, json.loads(done.stdout)


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        contract = folder / "contract.json"
        for arguments in (["write", "--preset", "eval", "-o", contract], ["probes", "-o", folder / "probes"]):
            subprocess.run([PROGRAM, "contract", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
        probes = sorted((folder / "probes").iterdir())
        wrong = 0
        for number, (name, program, make, wanted) in enumerate(mistakes()):
            if ONLY and ONLY not in f"{program}: {name}":
                continue
            outputs = folder / str(number)
            outputs.mkdir()
            code, found = check(contract, probes, make, outputs)
            causes = [(cause["stage"], cause["text"]) for cause in found["causes"]]
            # What a program does with a file that has nothing to do with the mistake.
            own = [GRAY_16, "inks of CMYK", "16 bits", "truncated files", "over black", "interpolated in another way"]
            if any("over" in text for _, text in wanted):
                own.remove("over black")
            left = [cause for cause in causes if not any(text in cause[1] for text in own)]
            missing = [want for want in wanted if not any(want[0] in stage and want[1] in text for stage, text in left)]
            false = [cause for cause in left if not any(want[0] in cause[0] and want[1] in cause[1] for want in wanted)]
            good = not missing and not false and not found["unexplained"] and (code == 0) == found_equal(found)
            wrong += not good
            print(f"{'found' if good else 'WRONG'}  {program}: {name}: {causes}")
            if not good:
                print(f"       missing {missing}, false {false}, unexplained {found['unexplained']}")
        return wrong


def found_equal(found):
    return found["differing"] + found["missing"] == 0


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("warpfeed")
parser.add_argument("--need", action="append", default=[], choices=["pillow", "opencv", "torch"])
parser.add_argument("--only", default="", help="only the mistakes whose names have this text")
arguments = parser.parse_args()
PROGRAM, ONLY = arguments.warpfeed, arguments.only
for program, module in [("pillow", "PIL"), ("opencv", "cv2"), ("torch", "torchvision")]:
    if not have(module):
        if program in arguments.need:
            sys.exit(f"{program} is needed and not installed")
        print(f"ignored  {program}: not installed")
sys.exit(1 if main() else 0)
