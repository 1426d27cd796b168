#!/usr/bin/env python3
"""Write what torchvision's MixUp and CutMix and timm's Mixup make of small batches, one batch a case.

    python mix.py > mix.jsonl

Needs: torch, torchvision (0.16 or later), timm and numpy (CPU is enough). mix.jsonl is of torchvision 0.16.2, timm 1.0.31
and torch 1.13. Elements are `(31 * image + 7 * element) % 256 / 100 - 1.2` in f32. A case has what was drawn (lambda before
it was corrected, and the center of the rectangle), what came of it for each image (lambda, rectangle), the SHA-256 of the
images' bytes, and the soft targets.
"""
import hashlib
import json

import numpy as np
import torch
from timm.data import mixup as timm_mixup
from torchvision.transforms import v2

CLASSES = 5


def batch(images, width, height):
    elements = torch.arange(3 * width * height).reshape(1, 3, height, width)
    whole = (31 * torch.arange(images).reshape(-1, 1, 1, 1) + 7 * elements) % 256
    return (whole.to(torch.float32) / 100 - 1.2).contiguous()


def write(style, mode, size, smoothing, drawn, each, images, targets):
    case = {
        "style": style,
        "mode": mode,
        "width": size[0],
        "height": size[1],
        "smoothing": smoothing,
        "drawn": drawn,
        "images": each,
        "sha256": hashlib.sha256(images.contiguous().numpy().astype("<f4").tobytes()).hexdigest(),
        "targets": [round(float(value), 9) for value in targets.flatten()],
    }
    print(json.dumps(case))


def torchvision_case(kind, alpha, images, size, seed):
    torch.manual_seed(seed)
    transform = kind(alpha=alpha, num_classes=CLASSES)
    drawn, found = [], []
    sample, randint = transform._dist.sample, torch.randint
    transform._dist.sample = lambda shape: drawn.append(float(sample(shape))) or torch.tensor(drawn[-1])

    def recorded(*args, **keywords):
        number = randint(*args, **keywords)
        drawn.append(int(number))
        return number

    torch.randint = recorded
    name = "make_params" if hasattr(transform, "make_params") else "_get_params"
    params = getattr(transform, name)
    setattr(transform, name, lambda inputs: found.append(params(inputs)) or found[-1])
    mixed, targets = transform(batch(images, *size), torch.arange(images) % CLASSES)
    torch.randint = randint
    lam = found[0].get("lam", found[0].get("lam_adjusted"))
    one = {"lambda": lam, "rect": list(found[0]["box"]) if "box" in found[0] else None}
    write("torchvision", "batch", size, 0, drawn, [one] * images, mixed, targets)


def timm_case(options, images, size, seed):
    np.random.seed(seed)
    mixup = timm_mixup.Mixup(num_classes=CLASSES, **options)
    boxes, drawn, shares = [], [], []
    make, randint = timm_mixup.cutmix_bbox_and_lam, np.random.randint

    def recorded(shape, lam, **keywords):
        box, corrected = make(shape, lam, **keywords)
        boxes.append((float(lam), box, float(corrected)))
        return box, corrected

    def recorded_randint(*args, **keywords):
        number = randint(*args, **keywords)
        drawn.append(int(number))
        return number

    for name in ("_params_per_elem", "_params_per_batch"):
        params = getattr(mixup, name)
        setattr(mixup, name, lambda *args, params=params: shares.append(params(*args)) or (np.copy(shares[-1][0]), shares[-1][1]))
    timm_mixup.cutmix_bbox_and_lam, np.random.randint = recorded, recorded_randint
    mode = options.get("mode", "batch")
    if mode == "batch":
        original = mixup._params_per_batch
        mixup._params_per_batch = lambda: (float(original()[0]), shares[-1][1])
    mixed = batch(images, *size)
    lam = {"batch": mixup._mix_batch, "pair": mixup._mix_pair, "elem": mixup._mix_elem}[mode](mixed)
    timm_mixup.cutmix_bbox_and_lam, np.random.randint = make, randint
    labels = torch.arange(images) % CLASSES
    targets = timm_mixup.mixup_target(labels, CLASSES, lam=lam, smoothing=mixup.label_smoothing)
    first, cutmix = np.atleast_1d(shares[-1][0]), np.atleast_1d(shares[-1][1])
    each, at = [], iter(boxes)
    for share, cut in zip(first, cutmix):
        if share == 1 or not cut:
            each.append({"lambda": float(share), "rect": None})
            continue
        _, (top, bottom, left, right), corrected = next(at)
        each.append({"lambda": float(corrected), "rect": [int(left), int(top), int(right), int(bottom)]})
    if mode == "batch":
        each = each * images
    elif mode == "pair":
        each = each + each[::-1]
    before = [box[0] for box in boxes[:1]]
    write("timm", mode, size, mixup.label_smoothing, before + drawn[:2], each, mixed, targets)


if __name__ == "__main__":
    for seed in range(4):
        torchvision_case(v2.MixUp, 0.4, 4, (7, 5), seed)
        torchvision_case(v2.MixUp, 1.0, 5, (4, 6), seed)
        torchvision_case(v2.CutMix, 1.0, 5, (17, 11), seed)
        for mode in ("batch", "pair", "elem"):
            timm_case({"mixup_alpha": 0.8, "cutmix_alpha": 0.0, "mode": mode}, 4, (7, 5), seed)
            timm_case({"mixup_alpha": 0.0, "cutmix_alpha": 1.0, "mode": mode, "label_smoothing": 0.1}, 6, (17, 11), seed)
        timm_case({"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "mode": "elem", "prob": 0.7, "label_smoothing": 0.1}, 8, (7, 5), seed)
