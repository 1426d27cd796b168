"""Batches by shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import _warpfeed
from ._arguments import at_least, checked
from ._errors import ParameterError


def buckets_text(buckets: str | Sequence[tuple[int, int]]) -> str:
    """The written form of buckets."""
    return buckets if isinstance(buckets, str) else ",".join(f"{width}x{height}" for width, height in buckets)


class BucketBatchSampler:
    """Batches of indices by shape, for `batch_sampler` of torch's own DataLoader.

    sizes: (width, height) of each image.
    buckets: as in `warpfeed.torch.DataLoader`.
    batch_size: images in a batch of one rank.
    last: "keep" for shorter last batches of a bucket, "drop", or "pad" with the bucket's first images.
    unit: images that share a shape, one after the other in the order of all ranks.

    Each epoch has an order of its own, by `set_epoch` or one after the other. All ranks have the same bucket in each step
    and equally many batches, so accelerate (`dispatch_batches=False, split_batches=False`, without `prepare`) and Lightning
    (`use_distributed_sampler=False`) must not share them out again. `state_dict` resumes in the middle of an epoch.
    """

    @checked
    def __init__(
        self,
        sizes: Sequence[tuple[int, int]],
        buckets: str | Sequence[tuple[int, int]],
        batch_size: int,
        rank: int = 0,
        ranks: int = 1,
        seed: int = 0,
        *,
        shuffle: bool = True,
        last: str = "keep",
        unit: int | None = None,
    ) -> None:
        at_least(1, batch_size=batch_size, ranks=ranks, unit=unit)
        at_least(0, rank=rank, seed=seed)
        if last not in ("keep", "drop", "pad"):
            raise ParameterError(f"last must be keep, drop or pad, got {last!r}")
        settings = {
            "buckets": buckets_text(buckets),
            "batch_size": str(batch_size),
            "partition": f"{rank}/{ranks}",
            "seed": str(seed),
            "shuffle": str(shuffle).lower(),
            "last_batch": last,
        }
        if unit is not None:
            settings["unit"] = str(unit)
        self.batch_size = batch_size
        self._plan = _warpfeed.BucketPlan([(int(width), int(height)) for width, height in sizes], settings)
        self._epoch = 0
        self._given = 0

    @property
    def buckets(self) -> list[dict[str, Any]]:
        """The buckets in use: width, height, samples, steps, dropped, repeated, the share that is cropped."""
        return self._plan.buckets()

    def bucket_of(self, index: int) -> tuple[int, int]:
        """Width and height of the bucket of an image."""
        bucket = self._plan.bucket_of(index)
        if bucket is None:
            raise ParameterError(f"image {index} goes to no bucket")
        return bucket

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that begins next."""
        self._epoch, self._given = epoch, 0

    def __len__(self) -> int:
        return self._plan.batches

    def __iter__(self) -> Iterator[list[int]]:
        steps = self._plan.steps(self._epoch)
        while self._given < len(steps):
            self._given += 1
            yield steps[self._given - 1]
        self._epoch, self._given = self._epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """The epoch, and the number of batches that were taken of it. Workers that read ahead have taken more than the
        trainer: count the trainer's own steps, and load {"epoch": ..., "batches": steps}."""
        return {"epoch": self._epoch, "batches": self._given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on after a state."""
        self._epoch, self._given = state["epoch"], state["batches"]
