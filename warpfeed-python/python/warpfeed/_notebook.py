"""How a notebook shows a loader."""

from __future__ import annotations

import base64
import html
import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

from . import _warpfeed

if TYPE_CHECKING:
    from ._loader import Loader

_IMAGES = 8
_HEIGHT_PX = 96


def facts(loader: Loader[Any]) -> dict[str, str]:
    """What a loader is, in a few words each."""
    given, source = loader._given_to_native, loader._source
    settings = given["settings"]
    kind = "a stream" if source.samples is None else f"{source.samples} samples"
    if source.classes:
        kind += f" of {len(source.classes)} classes"
    try:
        batches = f"{len(loader)} of "
    except TypeError:
        batches = ""
    steps = given["preset"] or ", ".join(_names(json.loads(given["transforms"] or "[]"))) or "none"
    plan = loader._plan
    drawn = "torch's generator" if not loader._seeded else f"seed {settings['seed']}"
    return {
        "data": f"{kind} ({type(loader.dataset).__name__})",
        "batches": f"{batches}{settings['batch_size']} images, {settings['layout']}, {settings.get('dtype', 'f32')}",
        "device": ", ".join(loader._devices or [settings["device"]]),
        "native": f"decoding and transforms in {settings['threads']} threads: {steps}",
        "python": f"in Python: {'nothing' if plan is None else plan.said()}",
        "order": (
            "shuffled"
            if settings["shuffle"] == "true"
            else "by " + loader._listing.name
            if loader._listing
            else "in order"
        )
        + f"; {drawn} decides about draws",
    }


def _names(steps: list[dict[str, Any]]) -> list[str]:
    return [str(step.get("transform") or step.get("op") or "views") for step in steps]


def page(loader: Loader[Any]) -> str:
    """A table of facts, and a strip of the first images as the loader delivers them."""
    rows = facts(loader)
    try:
        picture, rows["shape"] = _strip(loader)
    except Exception as error:  # A notebook must show the rest.
        picture, rows["images"] = "", f"{type(error).__name__}: {error}"
    lines = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items())
    return f"<b>{type(loader).__module__}.{type(loader).__name__}</b><table>{lines}</table>{picture}"


def _strip(loader: Loader[Any]) -> tuple[str, str]:
    import numpy

    if loader._plan is not None and loader._plan.is_all:
        return "", "as Python makes it"
    given = json.loads(json.dumps(loader._given_to_native))
    given |= {"sampler": None, "cache": None, "entry_points": None}
    for name in ("partition", "mix", "lanes", "targets"):
        given["settings"].pop(name, None)
    first = {
        "shuffle": "false",
        "equal_batches": "false",
        "limit": str(_IMAGES),
        "batch_size": str(_IMAGES),
        "threads": "0",
    }
    given["settings"] |= first | {"last_batch": "keep"}
    epoch = _warpfeed.Pipeline(loader._source, json.dumps(given)).epoch(0)
    batch = next(epoch)
    epoch.close()
    view = batch.views[0]
    images = [one for tensor in (view if isinstance(view, list) else [view]) for one in numpy.asarray(tensor)]
    shape = list(images[0].shape) if len({image.shape for image in images}) == 1 else "of different sizes"
    nchw = given["settings"]["layout"] == "nchw"
    strip = numpy.concatenate([_small(numpy, image.transpose(1, 2, 0) if nchw else image) for image in images], axis=1)
    data = base64.b64encode(_png(strip.shape[1], strip.shape[0], strip.tobytes())).decode()
    return f'<img src="data:image/png;base64,{data}">', f"each image {shape}"


def _small(numpy: Any, image: Any) -> Any:
    """RGB of 0 to 255, so high as the strip. Normalized values are spread over what there is."""
    values = image.astype("float32")
    if image.dtype != numpy.uint8:
        low, high = values.min(), values.max()
        values = (values - low) / max(float(high - low), 1e-6) * 255
    values = numpy.repeat(values, 3, axis=2) if values.shape[2] == 1 else values
    height, width = values.shape[:2]
    rows = numpy.arange(_HEIGHT_PX) * height // _HEIGHT_PX
    columns = numpy.arange(max(1, width * _HEIGHT_PX // height)) * height // _HEIGHT_PX
    return values[rows][:, columns.clip(0, width - 1)].astype("uint8")


def _png(width: int, height: int, rgb: bytes) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + rgb[3 * width * y : 3 * width * (y + 1)] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
