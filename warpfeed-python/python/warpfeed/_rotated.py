"""torchvision's rotated boxes under operations on their image."""

from __future__ import annotations

from typing import Any

FORMATS = ("XYWHR", "CXCYWHR", "XYXYXYXY")


def moved(boxes: Any, op: str, native: Any) -> tuple[Any, tuple[int, int]]:
    """Rotated boxes after the operation of this name, and the height and width of the image that they are of then.

    The corners go where the operation moves them. What is no rectangle then becomes one with the same center and the
    longer edge's direction. Boxes are cut at the image's edges by torchvision, whose types they are.
    """
    import torch
    from torchvision.transforms.v2 import functional as tv

    plain, canvas = boxes.as_subclass(torch.Tensor), tuple(boxes.canvas_size)
    rows = plain.reshape(-1, plain.shape[-1]).cpu()
    if op in ("hflip", "vflip"):
        made = _mirrored(rows, boxes.format.name, canvas, op == "hflip")
        return made.reshape(plain.shape).to(plain.device), canvas
    if op in ("crop", "center_crop", "pad", "clamp"):
        # Only places change, so the form stays as it is.
        (offset,), after = native.points([[0.0, 0.0]], *canvas) if op != "clamp" else ([[0.0, 0.0]], canvas)
        corners, form = rows.clone(), boxes.format
        places = corners.shape[1] if form.name == "XYXYXYXY" else 2
        corners[:, :places] += corners.new_tensor(offset * (places // 2))
    else:
        corners, form = tv.convert_bounding_box_format(rows, boxes.format, "XYXYXYXY"), type(boxes.format).XYXYXYXY
        points, after = native.points(corners.reshape(-1, 2).tolist(), *canvas)
        corners = _rectangles(torch.tensor(points, dtype=corners.dtype).reshape(-1, 4, 2))
    if len(rows):
        corners = tv.clamp_bounding_boxes(corners, form, after, boxes.clamping_mode)
    made = tv.convert_bounding_box_format(corners, form, boxes.format)
    return made.reshape(plain.shape).to(plain.device, plain.dtype), after


def _mirrored(rows: Any, format: str, canvas: tuple[int, int], along: bool) -> Any:
    """Boxes in a mirror. The first two corners change places, so that they still follow each other clockwise."""
    import torch

    made, axis = rows.clone(), 0 if along else 1
    side = canvas[1 - axis]
    if format == "XYXYXYXY":
        made[:, axis::2] = side - made[:, axis::2]
        return made[:, [2, 3, 0, 1, 6, 7, 4, 5]]
    if format == "XYWHR":
        radians = made[:, 4] * torch.pi / 180
        made[:, 0] += made[:, 2] * radians.cos()
        made[:, 1] -= made[:, 2] * radians.sin()
    made[:, axis] = side - made[:, axis]
    made[:, 4] = -made[:, 4] if along else 180 - made[:, 4]
    return made


def _rectangles(corners: Any) -> Any:
    """The rectangles [N, 8] for parallelograms [N, 4, 2]: torchvision's, by their longer edges."""
    import torch

    center = (corners[:, 0] + corners[:, 2]) / 2
    top, left = corners[:, 1] - corners[:, 0], corners[:, 3] - corners[:, 0]
    top_length, left_length = top.norm(dim=1), left.norm(dim=1)
    tiny = torch.finfo(corners.dtype).tiny
    tops, lefts = top_length.clamp_min(tiny), left_length.clamp_min(tiny)
    cross = top[:, 0] * left[:, 1] - top[:, 1] * left[:, 0]
    overlap = (top * left).sum(dim=1).abs()
    width = torch.where(top_length < left_length, cross / lefts, top_length + overlap / tops)
    height = torch.where(top_length > left_length, cross / tops, left_length + overlap / lefts)
    across = torch.stack((left[:, 1], -left[:, 0]), dim=1) / lefts[:, None]
    along = torch.where((left_length > top_length)[:, None], across, top / tops[:, None])
    along = torch.where(along.any(dim=1, keepdim=True), along, along.new_tensor([1, 0]))
    down = torch.stack((-along[:, 1], along[:, 0]), dim=1)
    half_width, half_height = along * width[:, None] / 2, down * height[:, None] / 2
    made = (-half_width - half_height, half_width - half_height, half_width + half_height, half_height - half_width)
    return torch.cat([center + offset for offset in made], dim=1)
