"""Pipelines of several devices with the methods of one. A batch is one of each device, a state that of all."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import _warpfeed


class Batches:
    """A batch of each device."""

    def __init__(self, each: list[_warpfeed.Batch]) -> None:
        self.each = each

    @property
    def state(self) -> str:
        """The state of all devices after these batches, as JSON."""
        return _joined([batch.state for batch in self.each])


class Epochs:
    """An epoch on each device. They have equally many batches."""

    def __init__(self, each: list[_warpfeed.Epoch]) -> None:
        self._each = each
        self._lock = threading.Lock()
        self._got: list[_warpfeed.Batch] = []
        """Batches of the first devices, which an interruption must not lose."""

    def __next__(self) -> Batches:
        with self._lock:
            while len(self._got) < len(self._each):
                self._got.append(next(self._each[len(self._got)]))
            got, self._got = self._got, []
        return Batches(got)

    def wait(self, seconds: float) -> bool:
        """Waits at most so many seconds for the next batch of each device. Returns whether all are there."""
        until = time.monotonic() + seconds
        with self._lock:
            return all(epoch.wait(max(0.0, until - time.monotonic())) for epoch in self._each[len(self._got) :])

    def close(self) -> None:
        """Stops and joins the threads."""
        for epoch in self._each:
            epoch.close()

    def stats(self) -> str:
        """Counts and times of each device, as JSON."""
        return json.dumps([json.loads(epoch.stats()) for epoch in self._each])

    def bad(self) -> list[tuple[int, str, str]]:
        """Samples of all devices that were substituted."""
        return [bad for epoch in self._each for bad in epoch.bad()]


class Group:
    """A pipeline for each device. They share threads and an image cache."""

    def __init__(
        self,
        source: _warpfeed.Source,
        settings: str,
        devices: Sequence[str],
        memory: Callable[[int], tuple[int, object]] | None,
    ) -> None:
        self._group = _warpfeed.Group(source, settings, devices, memory)
        self.first = self._group.pipelines()[0]
        """That of the first device, which knows what all have in common."""

    def epoch(self, number: int, order: Sequence[int] | None = None) -> Epochs:
        """Begins an epoch."""
        return Epochs(self._group.epochs(number, order))

    def state_after(self, states: Sequence[str], order: Sequence[int] | None = None) -> str:
        """The state in which the devices go on after the ranks of a run."""
        return _joined(self._group.states_after(states, order))

    def resume(self, state: str, order: Sequence[int] | None = None) -> Epochs:
        """Goes on after a state."""
        return Epochs(self._group.resume([json.dumps(one) for one in ranks(json.loads(state))], order))

    def batches_left(self, state: str) -> int | None:
        """Number of batches that each device has left after a state."""
        return self.first.batches_left(json.dumps(ranks(json.loads(state))[0]))


def ranks(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The states of ranks in the state of a loader: each device of several is one."""
    return list(state["devices"]) if "devices" in state else [state]


def _joined(states: list[str]) -> str:
    each = [json.loads(state) for state in states]
    return json.dumps({"epoch": each[0]["epoch"], "devices": each})
