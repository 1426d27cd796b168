"""Orders of samples that Python's samplers yield."""

from __future__ import annotations

import array
import base64
import operator
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from ._arguments import shown
from ._errors import ParameterError, UnsupportedError


class Listing:
    """A sampler, or a batch sampler: an epoch's indices are listed when the epoch begins."""

    def __init__(self, sampler: Any, batches: bool, samples: int | None) -> None:
        self.sampler, self.batches, self.samples = sampler, batches, samples
        self.name = type(sampler).__name__
        argument = "batch_sampler" if batches else "sampler"
        if not hasattr(sampler, "__iter__"):
            raise TypeError(f"{argument} must yield indices, got {shown(sampler)}")
        if not hasattr(sampler, "__len__"):
            raise TypeError(
                f"{argument}: {self.name} has no __len__, and an epoch's indices are listed when it begins: give it one"
            )
        if samples is None:
            raise UnsupportedError(
                f"{argument}: a stream is read in its own order: leave it out, or give random_access=True"
            )

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def indices(self, running: Iterator[Any]) -> tuple[list[int], int | list[int] | None]:
        """The indices of an epoch, and of a batch sampler the size of its batches; if not only the last is smaller, the size
        of each."""
        listed: list[int] = []
        size: int | list[int] | None = None
        if self.batches:
            lens = []
            for batch in running:
                listed += batch
                lens.append(len(batch))
            size = lens[0] if lens else 1
            if any(one != size for one in lens[:-1]) or lens and lens[-1] > size:
                size = lens
        else:
            listed = list(running)
        try:
            order = [operator.index(index) for index in listed]
        except TypeError:
            wrong = next(index for index in listed if not hasattr(index, "__index__"))
            raise TypeError(f"{self.name} must yield whole numbers, got {shown(wrong)}") from None
        if order and not 0 <= min(order) <= max(order) < (self.samples or 0):
            wrong = next(index for index in order if not 0 <= index < (self.samples or 0))
            raise ParameterError(
                f"{self.name} yields the index {wrong}, and the data set has those of 0 to {(self.samples or 0) - 1}"
            )
        return order, size

    def _with(self, attribute: str) -> Any:
        """The object among this sampler and those inside it that has an attribute."""
        inside: Any = self.sampler
        for _ in range(4):
            if inside is None or getattr(inside, attribute, None) is not None:
                return inside
            inside = getattr(inside, "batch_sampler", None) or getattr(inside, "sampler", None)
        return None

    @property
    def epoch(self) -> int | None:
        """The epoch that a sampler with `set_epoch` is at, as torch's DistributedSampler keeps it."""
        inside = self._with("set_epoch")
        epoch = getattr(inside, "epoch", None)
        return epoch if isinstance(epoch, int) else None

    def set_epoch(self, epoch: int) -> bool:
        """Sets the epoch, if the sampler has one. Returns whether it has."""
        inside = self._with("set_epoch")
        if inside is not None:
            inside.set_epoch(epoch)
        return inside is not None

    @property
    def generator(self) -> Any:
        """The generator that the sampler draws from, if it has its own."""
        inside = self._with("generator")
        return None if inside is None else inside.generator

    @property
    def rank(self) -> list[int] | None:
        """The rank and the number of ranks of a sampler that keeps them as torch's DistributedSampler does."""
        inside = self._with("num_replicas")
        return None if inside is None or not hasattr(inside, "rank") else [int(inside.rank), int(inside.num_replicas)]


def knows_ranks(positions: int, samples: int, ranks: int) -> bool:
    """Whether a sampler yields no more than one rank's part of the samples."""
    return ranks > 1 and positions < samples and positions <= -(-samples // ranks)


def packed(order: Sequence[int]) -> str:
    """An order as text: its bytes, little-endian and compressed, behind their number for each index."""
    kind = next(kind for kind in "HIQ" if max(order, default=0) < 1 << 8 * array.array(kind).itemsize)
    values = array.array(kind, order)
    if sys.byteorder == "big":
        values.byteswap()
    return f"{values.itemsize}:{base64.b64encode(zlib.compress(values.tobytes(), 1)).decode()}"


def unpacked(text: str) -> list[int]:
    """The order of a text of `packed`."""
    size, _, rest = text.partition(":")
    try:
        kind = {array.array(kind).itemsize: kind for kind in "HIQ"}[int(size)]
        values = array.array(kind, zlib.decompress(base64.b64decode(rest, validate=True)))
    except (ValueError, KeyError, zlib.error):
        raise ParameterError("the state's order is damaged") from None
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
