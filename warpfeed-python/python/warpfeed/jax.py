"""A data loader of JAX's arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax

from . import _python, _warpfeed
from ._arguments import checked
from ._loader import DTypeName, EntryPoints, Loader
from .transforms import Transform

__all__ = ["DataLoader"]


class DataLoader(Loader[tuple[Any, Any]]):
    """Batches `(images, labels)`: images `[N, H, W, 3]`, labels `[N]`, which JAX makes int32 by default; None if
    the data set has none.

    The arguments are those of `warpfeed.torch.DataLoader`, with dtypes by name. Arrays are on JAX's CPU without a copy;
    `sharding` puts them on other devices.
    """

    @checked
    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Any = None,
        num_workers: int | None = None,
        drop_last: bool = False,
        *,
        batch_sampler: Any = None,
        transform: Sequence[Transform] | Any = None,
        preset: str | None = None,
        seed: int | None = None,
        prefetch_factor: int = 2,
        distributed: bool | tuple[int, int] | None = None,
        device: str | Sequence[str] = "cpu",
        jpeg_decoder: str | None = None,
        hardware_share: float | None = None,
        dtype: DTypeName | None = None,
        channels_last: bool = True,
        channels: int | None = None,
        pad_to: int | None = None,
        ragged: bool | None = None,
        buckets: str | Sequence[tuple[int, int]] | None = None,
        unit: int | None = None,
        sizes_file: str | os.PathLike[str] | None = None,
        sizes: str | None = None,
        sequences: str | None = None,
        targets: str | None = None,
        fields: Sequence[str] | None = None,
        columns: Mapping[str, str] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        python_seeds: bool = True,
        check: bool = True,
        label_base: int = 0,
        mix: Any = None,
        repeats: int | None = None,
        on_error: Literal["raise", "skip", "substitute"] = "raise",
        max_bad: int | float | None = None,
        orientation: Literal["apply", "ignore"] | None = None,
        draft: tuple[int, int] | None = None,
        thumbnail: tuple[int, int] | None = None,
        reducing_gap: float | None = 2.0,
        strategy: Literal["fused", "sequential", "composed"] | None = None,
        cache: int | tuple[str | os.PathLike[str], int] | None = None,
        entry_points: EntryPoints | tuple[EntryPoints, ...] | None = None,
        limit: int | None = None,
        shares: int | None = None,
        lanes: int | None = None,
        accept_truncated: bool = False,
        max_pixels: int | None = None,
        pixels: str | None = None,
        max_value: float | None = None,
        pass_order: Literal["pillow13", "horizontal_first"] | None = None,
        device_memory: int | None = None,
        device_cache: int | None = None,
        gpu_direct: bool = False,
        pinned: bool = True,
        stream_priority: Literal["low", "high"] | None = None,
        sharding: Any = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self._sharding = sharding
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            num_workers,
            drop_last,
            batch_sampler=batch_sampler,
            transform=transform,
            preset=preset,
            seed=seed,
            prefetch_factor=prefetch_factor,
            distributed=distributed,
            device=device,
            jpeg_decoder=jpeg_decoder,
            hardware_share=hardware_share,
            dtype=dtype,
            channels_last=channels_last,
            channels=channels,
            pad_to=pad_to,
            ragged=ragged,
            buckets=buckets,
            unit=unit,
            sizes_file=sizes_file,
            sizes=sizes,
            sequences=sequences,
            targets=targets,
            fields=fields,
            columns=columns,
            collate_fn=collate_fn,
            python_seeds=python_seeds,
            check=check,
            label_base=label_base,
            mix=mix,
            repeats=repeats,
            on_error=on_error,
            max_bad=max_bad,
            orientation=orientation,
            draft=draft,
            thumbnail=thumbnail,
            reducing_gap=reducing_gap,
            strategy=strategy,
            cache=cache,
            entry_points=entry_points,
            limit=limit,
            shares=shares,
            lanes=lanes,
            accept_truncated=accept_truncated,
            max_pixels=max_pixels,
            pixels=pixels,
            max_value=max_value,
            pass_order=pass_order,
            device_memory=device_memory,
            device_cache=device_cache,
            gpu_direct=gpu_direct,
            pinned=pinned,
            stream_priority=stream_priority,
        )
        self._arguments = arguments

    def _group(self) -> tuple[int, int] | None:
        return int(jax.process_index()), int(jax.process_count())

    def _array(self, tensor: _warpfeed.Tensor) -> Any:
        array = jax.dlpack.from_dlpack(tensor)
        return array if self._sharding is None else jax.device_put(array, self._sharding)

    def _arrays(self, value: Any) -> Any:
        """numpy's arrays in tuples, lists and dicts as JAX's."""
        if isinstance(value, dict):
            return {name: self._arrays(one) for name, one in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._arrays, value))
        if not hasattr(value, "shape"):
            return value
        array = jax.numpy.asarray(value)
        return array if self._sharding is None else jax.device_put(array, self._sharding)

    def _deliver_made(self, made: _python.Made) -> Any:
        return self._arrays(made.value)

    def _deliver(self, batch: _warpfeed.Batch) -> tuple[Any, Any]:
        images = self._images(batch, self._array, jax.numpy.concatenate)
        if self._fields:
            return images, [self._arrays(one) for one in self._field_dicts(batch)]
        targets = batch.labels if batch.targets is None else batch.targets
        return images, targets if targets is None or isinstance(targets, list) else self._array(targets)
