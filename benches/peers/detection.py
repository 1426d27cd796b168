"""Times one peer of warpfeed with boxes and masks on the CPU and prints one JSON object.

    python detection.py torchvision-v2|torchvision-v2-tensor|albumentations ssd|mask-rcnn|yolo FOLDER [--threads T]
        [--batch-size B]

FOLDER has `images` and `annotations.json`, as `annotations.py` makes them. The pipelines are those of warpfeed's presets, as
near as each library has them:

- ssd: colors, zoom out, a crop by overlap, mirror, 300 x 300. albumentations has no such crop; it has one that keeps boxes.
- mask-rcnn: a scale of 0.1 to 2, a crop or padding to 1024 x 1024, mirror, with a mask of each object.
- yolo: a mosaic of four on 1280 x 1280, a scale of 0.5 to 1.5 and a shift, the middle 640 x 640, colors, mirror.
  torchvision has no mosaic; here it is pasted from images whose longer side is 640.

torchvision-v2 gets PIL images, as torchvision's references do by default; torchvision-v2-tensor decodes to uint8 tensors. A
worker is a process. `each_epoch` has the images, seconds and user CPU seconds of the first epoch, in which workers are
started, and of the second.
"""

import argparse
import json
import os
import pathlib
import time

import cv2
import numpy as np
import torch
from PIL import Image
from pycocotools import mask as coco_mask
from torch.utils.data import DataLoader, Dataset
from torchvision import io, tv_tensors
from torchvision.transforms import v2

MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]
MEAN_COLOR = (123, 117, 104)
GRAY = (114, 114, 114)
MOSAIC_PX = 640
EPOCHS = 2


class Photos(Dataset):
    """Images with boxes (XYXY), labels from 0 on, and masks if they are wanted."""

    def __init__(self, folder, with_masks):
        self.folder = pathlib.Path(folder, "images")
        about = json.loads(pathlib.Path(folder, "annotations.json").read_text())
        self.images, self.with_masks = about["images"], with_masks
        objects = {image["id"]: [] for image in self.images}
        for one in about["annotations"]:
            objects[one["image_id"]].append(one)
        self.objects = [objects[image["id"]] for image in self.images]

    def __len__(self):
        return len(self.images)

    def path(self, index):
        return str(self.folder / self.images[index]["file_name"])

    def annotations(self, index):
        image, objects = self.images[index], self.objects[index]
        boxes = np.array([one["bbox"] for one in objects], np.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels = np.array([one["category_id"] - 1 for one in objects], np.int64)
        if not self.with_masks:
            return boxes, labels, None
        height, width = image["height"], image["width"]
        planes = [coco_mask.decode(coco_mask.frPyObjects(one["segmentation"], height, width)) for one in objects]
        return boxes, labels, np.stack([plane.max(axis=2) for plane in planes])


class TorchvisionPhotos(Photos):
    """The same through transforms.v2."""

    def __init__(self, folder, pipeline, tensors):
        super().__init__(folder, pipeline == "mask-rcnn")
        self.tensors, self.mosaic = tensors, pipeline == "yolo"
        if pipeline == "ssd":
            geometry = [
                v2.RandomPhotometricDistort(),
                v2.RandomZoomOut(fill=list(MEAN_COLOR)),
                v2.RandomIoUCrop(),
                v2.RandomHorizontalFlip(0.5),
                v2.Resize((300, 300)),
            ]
        elif pipeline == "mask-rcnn":
            geometry = [
                v2.ScaleJitter((1024, 1024), antialias=True),
                v2.RandomCrop(1024, pad_if_needed=True, fill={tv_tensors.Mask: 0, "others": list(MEAN_COLOR)}),
                v2.RandomHorizontalFlip(0.5),
            ]
        else:
            geometry = [
                v2.RandomAffine(0, translate=(0.05, 0.05), scale=(0.5, 1.5), fill=list(GRAY)),
                v2.CenterCrop(MOSAIC_PX),
                v2.ColorJitter(brightness=0.4, saturation=0.7, hue=0.015),
                v2.RandomHorizontalFlip(0.5),
            ]
        normalize = v2.Normalize([0.0] * 3, [1.0] * 3) if pipeline == "yolo" else v2.Normalize(MEAN, STD)
        floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), normalize, v2.SanitizeBoundingBoxes()]
        self.transform = v2.Compose(geometry + floats)

    def read(self, index):
        path = self.path(index)
        if self.tensors:
            image = tv_tensors.Image(io.decode_image(path, mode="RGB"))
            height, width = image.shape[-2:]
        else:
            image = Image.open(path).convert("RGB")
            width, height = image.size
        boxes, labels, masks = self.annotations(index)
        boxes = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=(height, width))
        target = {"boxes": boxes, "labels": torch.from_numpy(labels)}
        if masks is not None:
            target["masks"] = tv_tensors.Mask(torch.from_numpy(masks))
        return image, target

    def read_mosaic(self, index):
        """Four images around a random point, each cut off at the canvas."""
        side = 2 * MOSAIC_PX
        middle = [int(torch.randint(side // 4, 3 * side // 4, ())) for _ in range(2)]
        if self.tensors:
            canvas = torch.full((3, side, side), GRAY[0], dtype=torch.uint8)
        else:
            canvas = Image.new("RGB", (side, side), GRAY)
        indices = [index] + torch.randint(len(self), (3,)).tolist()
        boxes, labels = [], []
        for place, own in enumerate(indices):
            image, target = self.read(own)
            size = v2.functional.get_size(image)
            ratio = MOSAIC_PX / max(size)
            height, width = (min(round(length * ratio), MOSAIC_PX) for length in size)
            image, own_boxes = v2.Resize((height, width))(image, target["boxes"])
            left = middle[0] - (width if place % 2 == 0 else 0)
            top = middle[1] - (height if place < 2 else 0)
            if self.tensors:
                x, y = max(left, 0), max(top, 0)
                part = image[:, y - top : side - top, x - left : side - left]
                canvas[:, y : y + part.shape[1], x : x + part.shape[2]] = part
            else:
                canvas.paste(image, (left, top))
            boxes.append(own_boxes.as_subclass(torch.Tensor) + torch.tensor([left, top, left, top]))
            labels.append(target["labels"])
        boxes = tv_tensors.BoundingBoxes(torch.cat(boxes).clamp(0, side), format="XYXY", canvas_size=(side, side))
        image = tv_tensors.Image(canvas) if self.tensors else canvas
        return image, {"boxes": boxes, "labels": torch.cat(labels)}

    def __getitem__(self, index):
        image, target = self.read_mosaic(index) if self.mosaic else self.read(index)
        image, target = self.transform(image, target)
        return image.as_subclass(torch.Tensor), target


class AlbumentationsPhotos(Photos):
    """The same through albumentations, with images that OpenCV decodes."""

    def __init__(self, folder, pipeline):
        import albumentations as a

        super().__init__(folder, pipeline == "mask-rcnn")
        self.mosaic = pipeline == "yolo"
        normalize = [0.0] * 3, [1.0] * 3
        if pipeline == "ssd":
            transforms = [
                a.ColorJitter((0.875, 1.125), (0.5, 1.5), (0.5, 1.5), (-0.05, 0.05), p=0.5),
                a.CropAndPad(percent=(0.0, 1.5), sample_independently=False, keep_size=False, fill=MEAN_COLOR, p=0.5),
                a.RandomSizedBBoxSafeCrop(300, 300),
                a.HorizontalFlip(p=0.5),
            ]
            normalize = MEAN, STD
        elif pipeline == "mask-rcnn":
            transforms = [
                a.LongestMaxSize(max_size=list(range(102, 2049, 2))),
                a.PadIfNeeded(1024, 1024, position="top_left", fill=MEAN_COLOR),
                a.RandomCrop(1024, 1024),
                a.HorizontalFlip(p=0.5),
            ]
            normalize = MEAN, STD
        else:
            side = 2 * MOSAIC_PX
            transforms = [
                a.Mosaic(
                    target_size=(side, side),
                    cell_shape=(MOSAIC_PX, MOSAIC_PX),
                    center_range=(0.25, 0.75),
                    fit_mode="contain",
                    fill=GRAY,
                    p=1.0,
                ),
                a.Affine(scale=(0.5, 1.5), translate_percent=(-0.05, 0.05), fill=GRAY, p=1.0),
                a.CenterCrop(MOSAIC_PX, MOSAIC_PX),
                a.HueSaturationValue(3, 178, 0, p=1.0),
                a.RandomBrightnessContrast(0.4, 0.0, p=1.0),
                a.HorizontalFlip(p=0.5),
            ]
        transforms += [a.Normalize(*normalize), a.ToTensorV2()]
        self.transform = a.Compose(transforms, bbox_params=a.BboxParams(format="pascal_voc", label_fields=["labels"]))

    def read(self, index):
        image = cv2.cvtColor(cv2.imread(self.path(index)), cv2.COLOR_BGR2RGB)
        boxes, labels, masks = self.annotations(index)
        return {"image": image, "bboxes": boxes, "labels": labels, **({} if masks is None else {"masks": masks})}

    def __getitem__(self, index):
        sample = self.read(index)
        if self.mosaic:
            others = [self.read(int(other)) for other in torch.randint(len(self), (3,))]
            names = {"bboxes": "bboxes", "labels": "labels", "image": "image"}
            sample["mosaic_metadata"] = [{names[key]: value for key, value in other.items()} for other in others]
        done = self.transform(**sample)
        target = {"boxes": torch.from_numpy(done["bboxes"]), "labels": torch.as_tensor(np.asarray(done["labels"]))}
        if self.with_masks:
            target["masks"] = torch.as_tensor(np.asarray(done["masks"]))
        return done["image"], target


def together(samples):
    images, targets = zip(*samples, strict=True)
    return torch.stack(images), list(targets)


def one_thread(_):
    cv2.setNumThreads(0)


def user_seconds(processes):
    """User CPU seconds of this process and of these so far."""
    ticks = 0
    for process in [os.getpid(), *processes]:
        # The fields after the name, which ends with the last bracket; utime is the 14th of all.
        ticks += int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11])
    return ticks / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["torchvision-v2", "torchvision-v2-tensor", "albumentations"])
    parser.add_argument("pipeline", choices=["ssd", "mask-rcnn", "yolo"])
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    if args.peer == "albumentations":
        photos = AlbumentationsPhotos(args.folder, args.pipeline)
    else:
        photos = TorchvisionPhotos(args.folder, args.pipeline, args.peer.endswith("tensor"))
    loader = DataLoader(
        photos,
        batch_size=args.batch_size,
        num_workers=args.threads,
        persistent_workers=True,
        shuffle=True,
        collate_fn=together,
        worker_init_fn=one_thread,
    )
    each_epoch, before = [], 0.0
    for _ in range(EPOCHS):
        begin, images, objects = time.perf_counter(), 0, 0
        batches = iter(loader)
        workers = [worker.pid for worker in batches._workers]
        for batch, targets in batches:
            images += len(batch)
            objects += sum(len(target["boxes"]) for target in targets)
        seconds, user_s = time.perf_counter() - begin, user_seconds(workers)
        epoch = {"images": images, "objects": objects, "seconds": seconds, "user_s": user_s - before}
        each_epoch.append({**epoch, "shape": list(batch.shape)})
        before = user_s
    print(json.dumps({"peer": args.peer, "pipeline": args.pipeline, "each_epoch": each_epoch}))


if __name__ == "__main__":
    main()
