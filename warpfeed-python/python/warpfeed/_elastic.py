"""Images, boxes and points that each move by a displacement of their own: torchvision's `elastic`."""

from __future__ import annotations

from typing import Any

from . import _warpfeed
from ._arguments import shown
from ._kinds import kind, wrapped


class Displacement:
    """Displacements of pixels, used as an operation of `_kinds.applied`."""

    def __init__(self, given: Any, size: tuple[int, int], bilinear: bool, fill: Any) -> None:
        if kind(given) not in ("tensor", "array"):
            raise TypeError(f"Argument displacement should be a Tensor, got {shown(given)}")
        if tuple(given.shape) != (1, *size, 2):
            raise ValueError(f"Argument displacement shape should be {(1, *size, 2)}, but given {tuple(given.shape)}")
        import numpy

        array = given.detach().cpu().float().numpy() if kind(given) == "tensor" else given
        # torchvision counts in halves of the image's sides.
        halves = numpy.array([size[1] / 2, size[0] / 2], numpy.float32)
        self.pairs = numpy.ascontiguousarray(array[0] * halves, numpy.float32)
        self.bilinear, self.fill = bilinear, [fill] if isinstance(fill, (int, float)) else fill

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        return height, width

    def run(self, images: Any, out: Any, channels_first: bool) -> None:
        _warpfeed.displace(images, out, channels_first, self.pairs, self.bilinear, self.fill)

    def _moved(self, places: Any) -> Any:
        """Whole places (x, y) less the displacements there, which is nearly where the result has them."""
        import torch

        height, width = self.pairs.shape[:2]
        x, y = places[:, 0].clamp(0, width - 1), places[:, 1].clamp(0, height - 1)
        return torch.stack((x, y), dim=1) - torch.from_numpy(self.pairs)[y, x]

    def points(self, points: Any) -> Any:
        """KeyPoints after the displacement."""
        import torch

        plain = points.as_subclass(torch.Tensor)
        moved = self._moved(plain.reshape(-1, 2).cpu().long())
        return wrapped(moved.to(plain.device, plain.dtype).reshape(plain.shape), points)

    def boxes(self, boxes: Any) -> Any:
        """BoundingBoxes around their displaced corners. Rotated ones move with their centers."""
        import torch
        from torchvision.transforms.v2 import functional as tv

        plain, formats = boxes.as_subclass(torch.Tensor), type(boxes.format)
        is_rotated = boxes.format.name not in ("XYXY", "XYWH", "CXCYWH")
        form = formats.CXCYWHR if is_rotated else formats.XYXY
        rows = tv.convert_bounding_box_format(plain.reshape(-1, plain.shape[-1]).cpu(), boxes.format, form).clone()
        if is_rotated:
            rows[:, :2] = self._moved(rows[:, :2].ceil().long()).to(rows.dtype)
        elif len(rows):
            corners = rows[:, [[0, 1], [2, 1], [2, 3], [0, 3]]].reshape(-1, 2)
            moved = self._moved(corners.ceil().long()).reshape(-1, 4, 2)
            rows = torch.cat((moved.amin(dim=1), moved.amax(dim=1)), dim=1).to(rows.dtype)
        if len(rows):
            rows = tv.clamp_bounding_boxes(rows, form, tuple(boxes.canvas_size), boxes.clamping_mode)
        made = tv.convert_bounding_box_format(rows, form, boxes.format)
        return wrapped(made.reshape(plain.shape).to(plain.device), boxes)
