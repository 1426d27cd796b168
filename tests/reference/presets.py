#!/usr/bin/env python3
"""Writes down what torchvision's and timm's own factories make of published settings, in warpfeed's words.

    python tests/reference/presets.py > tests/reference/presets.json

Needs timm, torch and torchvision; a GPU is of no use. Evaluation of torchvision's models is that of their weights. Its
recipes of training are not in its packages: they are made here of its classes, with the numbers of the links that
`Preset::link` has, and so with the classes' own defaults. What detectors do with images is read from the models. All
else comes from `timm.data.create_transform`.
"""

import json

import timm
import torchvision
from timm.data import create_transform
from torchvision import transforms as tv
from torchvision.models import ResNet50_Weights, detection
from torchvision.transforms import InterpolationMode, v2

BILINEAR = tv.InterpolationMode.BILINEAR
PILLOW_FILTERS = {2: "bilinear", 3: "bicubic"}


def numbers(values):
    return [round(float(value), 6) for value in values]


def timm_augment(transform, text):
    if text == "3a":
        kinds = {op.name: (op.prob, op.magnitude) for ops in transform.policy for op in ops}
        assert kinds == {"Solarize": (1, 5), "Desaturate": (1, 10), "GaussianBlurRand": (1, 10)}
        blur = {"transform": "random_pillow_gaussian_blur", "radius": [0.1, 2.0]}
        gray = {"transform": "random_grayscale", "p": 1.0}
        return {"transform": "one_of", "transforms": [gray, {"transform": "random_solarize", "threshold": 128.0, "p": 1.0}, blur]}
    style = transform.ops[0].kwargs
    fill, interpolation = list(style["fillcolor"]), PILLOW_FILTERS[int(style["resample"])]
    return {"transform": "timm_augment", "config": text, "fill": fill, "interpolation": interpolation}


def written(transform, text):
    name = type(transform).__name__
    if name in ("RandomResizedCrop", "RandomResizedCropAndInterpolation"):
        scale, ratio, filter = list(transform.scale), list(transform.ratio), transform.interpolation.value
        size = list(reversed(transform.size))
        return {"transform": "random_resized_crop", "size": size, "scale": scale, "ratio": ratio, "interpolation": filter}
    if name == "RandomPhotometricDistort":
        names = ("brightness", "contrast", "saturation", "hue")
        return {"transform": "random_photometric_distort", "p": transform.p, **{name: list(getattr(transform, name)) for name in names}}
    if name == "RandomZoomOut":
        return {"transform": "random_zoom_out", "p": transform.p, "sides": list(transform.side_range), "fill": transform.fill}
    if name == "RandomIoUCrop":
        scale, aspect = [transform.min_scale, transform.max_scale], [transform.min_aspect_ratio, transform.max_aspect_ratio]
        return {"transform": "random_iou_crop", "scale": scale, "aspect": aspect, "options": transform.options, "trials": transform.trials}
    if name == "ScaleJitter":
        target, filter = list(reversed(transform.target_size)), InterpolationMode(transform.interpolation).value
        return {"transform": "scale_jitter", "target": target, "scale": list(transform.scale_range), "interpolation": filter}
    if name == "RandomShortestSize":
        filter = InterpolationMode(transform.interpolation).value
        return {"transform": "random_shortest_size", "sizes": list(transform.min_size), "max_size": transform.max_size, "interpolation": filter}
    if name == "SanitizeBoundingBoxes":
        return {"op": "sanitize", "min_size": transform.min_size, "min_area": transform.min_area}
    if name in ("RandomHorizontalFlip", "RandomGrayscale"):
        kind = "random_horizontal_flip" if "Flip" in name else "random_grayscale"
        return {"transform": kind, "p": transform.p}
    if name in ("RandAugment", "AutoAugment"):
        return timm_augment(transform, text)
    if name == "TrivialAugmentWide":
        bins, filter, fill = transform.num_magnitude_bins, transform.interpolation.value, transform.fill or [0, 0, 0]
        return {"transform": "trivial_augment", "bins": bins, "interpolation": filter, "fill": fill}
    if name == "ColorJitter":
        names = ("brightness", "contrast", "saturation", "hue")
        ranges = {name: list(getattr(transform, name)) for name in names if getattr(transform, name)}
        return {"transform": "color_jitter", **ranges}
    if name == "RandomApply":
        return {"transform": "maybe", "p": transform.p, "transforms": [written(step, text) for step in transform.transforms]}
    if name == "GaussianBlur":
        assert len(set(transform.kernel_size)) == 1
        return {"transform": "random_gaussian_blur", "kernel": transform.kernel_size[0], "sigma": list(transform.sigma)}
    if name == "Normalize":
        return {"op": "normalize", "mean": numbers(transform.mean), "std": numbers(transform.std)}
    if name == "RandomErasing" and hasattr(transform, "p"):
        value = [float(transform.value)] * 3
        return {"transform": "random_erasing", "p": transform.p, "scale": list(transform.scale), "ratio": list(transform.ratio), "value": value}
    if name == "RandomErasing":
        assert transform.mode == "pixel" and transform.log_aspect_ratio[0] == -transform.log_aspect_ratio[1]
        scale, count = [transform.min_area, transform.max_area], [transform.min_count, transform.max_count]
        ratio, noise = [0.3, 1 / 0.3], "per_pixel"
        return {"transform": "random_erasing", "p": transform.probability, "scale": scale, "ratio": ratio, "noise": noise, "count": count}
    if name == "Resize":
        return {"op": "resize", "size": transform.size, "interpolation": transform.interpolation.value}
    if name == "CenterCrop":
        width, height = reversed(transform.size)
        return {"op": "center_crop", "width": width, "height": height}
    assert name in ("ToTensor", "MaybeToTensor"), transform
    return None


def of(transform, text=None):
    steps = [written(step, text) for step in transform.transforms]
    return [step for step in steps if step]


def weights(weights):
    """The evaluation that belongs to weights of torchvision's."""
    preset = weights.transforms()
    (resize,), (crop,) = preset.resize_size, preset.crop_size
    steps = [tv.Resize(resize, preset.interpolation), tv.CenterCrop(crop), tv.Normalize(preset.mean, preset.std)]
    return of(tv.Compose(steps))


def model(make, training, resizes=True):
    """What a detector does with images."""
    own = make(weights=None, weights_backbone=None).transform
    steps = []
    if own.fixed_size:
        width, height = own.fixed_size
        steps.append({"op": "resize", "width": width, "height": height})
    elif resizes:
        sizes = own.min_size if training else own.min_size[-1:]
        steps.append({"transform": "random_shortest_size", "sizes": list(sizes), "max_size": own.max_size})
    return [*steps, {"op": "normalize", "mean": numbers(own.image_mean), "std": numbers(own.image_std)}]


def detectors():
    flip, mean = v2.RandomHorizontalFlip(0.5), [123, 117, 104]
    ssd = [v2.RandomPhotometricDistort(), v2.RandomZoomOut(fill=mean), v2.RandomIoUCrop(), flip]
    several = v2.RandomShortestSize(min_size=tuple(range(480, 801, 32)), max_size=1333)
    jitter = v2.ScaleJitter(target_size=(1024, 1024))
    for name, steps, make, resizes in (
        ("ssd", ssd, detection.ssd300_vgg16, True),
        ("ssdlite", [v2.RandomIoUCrop(), flip], detection.ssdlite320_mobilenet_v3_large, True),
        ("retinanet", [several, flip], detection.retinanet_resnet50_fpn_v2, False),
        ("faster-rcnn", [flip], detection.fasterrcnn_resnet50_fpn, True),
        ("mask-rcnn", [jitter, flip], detection.maskrcnn_resnet50_fpn_v2, False),
        ("keypoint-rcnn", [flip], detection.keypointrcnn_resnet50_fpn, True),
    ):
        steps = of(tv.Compose([*steps, v2.SanitizeBoundingBoxes()]))
        if name == "mask-rcnn":
            # The crop is in the references, not in the package.
            steps.insert(1, {"transform": "fixed_size_crop", "size": [1024, 1024], "fill": mean})
        yield name, steps + model(make, True, resizes)
        yield name + "-eval", model(make, False)


def timms(size, text, **settings):
    made = create_transform(size, is_training=True, auto_augment=text, interpolation="bicubic", **settings)
    return of(made, text)


def timms_eval(size, crop_pct, **settings):
    return of(create_transform(size, interpolation="bicubic", crop_pct=crop_pct, **settings))


def presets():
    v1, v2 = ResNet50_Weights.IMAGENET1K_V1, ResNet50_Weights.IMAGENET1K_V2
    normalize = tv.Normalize(v1.transforms().mean, v1.transforms().std)
    flip = tv.RandomHorizontalFlip()
    yield "resnet50-v1", of(tv.Compose([tv.RandomResizedCrop(224), flip, normalize]))
    yield "resnet50-v1-eval", weights(v1)
    wide = tv.TrivialAugmentWide(interpolation=BILINEAR)
    yield "resnet50-v2", of(tv.Compose([tv.RandomResizedCrop(176), flip, wide, normalize, tv.RandomErasing(0.1)]))
    yield "resnet50-v2-eval", weights(v2)
    erasing = {"re_prob": 0.25, "re_mode": "pixel", "re_count": 1}
    for name in ("deit", "convnext"):
        yield name, timms(224, "rand-m9-mstd0.5-inc1", color_jitter=0.4, **erasing)
        yield name + "-eval", timms_eval(224, 224 / 256)
    yield "deit3", timms(224, "3a", color_jitter=0.3)
    yield "deit3-eval", timms_eval(224, 1.0)
    for name, size, text in (
        ("a1", 224, "rand-m7-mstd0.5-inc1"),
        ("a2", 224, "rand-m7-mstd0.5-inc1"),
        ("a3", 160, "rand-m6-mstd0.5-inc1"),
    ):
        crop_pct = timm.get_pretrained_cfg(f"resnet50.{name}_in1k").crop_pct
        yield "resnet50-" + name, timms(size, text)
        yield f"resnet50-{name}-eval", timms_eval(224, crop_pct)
    yield "dino-eval", timms_eval(224, 224 / 256)
    values = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    jitter = {"color_jitter": (0.8, 0.8, 0.8, 0.2), "color_jitter_prob": 0.8}
    yield "simclr", timms(224, None, **jitter, grayscale_prob=0.2, gaussian_blur_prob=0.5, **values)
    yield "simclr-eval", timms_eval(224, 224 / 256, **values)
    yield from detectors()


def main():
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(steps)}" for name, steps in presets())
    print(f'{{"timm": "{timm.__version__}", "torchvision": "{torchvision.__version__}", "presets": {{\n{rows}\n}}}}')


if __name__ == "__main__":
    main()
