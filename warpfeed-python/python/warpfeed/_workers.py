"""Python's steps in processes: those of torch's DataLoader, with its shared memory and its handling of errors and signals."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import data

from ._errors import ParameterError
from ._python import Job, Jobs, Made, Native, Work


class _Work(data.Dataset[Any]):
    """A data set whose "indices" are jobs. torch's workers fetch batches of one."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __getitems__(self, jobs: list[Job]) -> tuple[Any, float]:
        began = time.perf_counter()
        return self._work.batch(jobs[0]), time.perf_counter() - began


def _as_it_is(batch: Any) -> Any:
    return batch


class _Jobs:
    """The jobs of the epoch that runs, as a batch sampler. The states after them wait for their batches."""

    def __init__(self) -> None:
        self.native: Native | None = None
        self.jobs: Jobs | None = None
        self.waiting: deque[tuple[str, Job]] = deque()

    def __iter__(self) -> Iterator[list[Job]]:
        if self.native is None or self.jobs is None:
            return
        native, of, waiting = self.native, self.jobs, self.waiting
        while True:
            try:
                batch = next(native)
            except StopIteration:
                return
            job = of(batch)
            waiting.append((batch.state, job))
            yield [job]


class Pool:
    """Worker processes, which live for an epoch, or as long as the loader."""

    def __init__(
        self, work: Work, processes: int, ahead: int, timeout: float, context: Any, init: Any, persistent: bool
    ) -> None:
        if context == "forkserver":
            context = multiprocessing.get_context("forkserver")
            # Processes start faster if their parent has imported what they need.
            context.set_forkserver_preload(["__main__", "torch", "torchvision", "warpfeed"])
        self.busy = False
        self.process = os.getpid()
        self.jobs = _Jobs()
        self._loader: data.DataLoader[Any] = data.DataLoader(
            _Work(work),
            batch_sampler=self.jobs,
            collate_fn=_as_it_is,
            num_workers=processes,
            prefetch_factor=ahead,
            timeout=timeout,
            worker_init_fn=init,
            multiprocessing_context=context,
            persistent_workers=persistent,
            generator=torch.Generator(),
        )

    def begin(self, native: Native, jobs: Jobs) -> Iterator[Any]:
        self.jobs.native, self.jobs.jobs, self.jobs.waiting = native, jobs, deque()
        try:
            return iter(self._loader)
        except (AttributeError, TypeError, OSError) as error:
            if "pickle" not in f"{error} {type(error)}":
                raise
            raise ParameterError(
                f"python_workers sends the data set and its functions to processes, and one cannot be sent ({error}): "
                'define it in a module, or give multiprocessing_context="fork" or no python_workers'
            ) from error


class Epoch:
    """An epoch whose batches processes finish."""

    def __init__(self, native: Native, jobs: Jobs, pool: Pool) -> None:
        self._native, self._jobs, self._pool, self._process = native, jobs, pool, os.getpid()
        self._lock = threading.Lock()
        pool.busy = True
        self._batches: Iterator[Any] = pool.begin(native, jobs)
        self._waiting = pool.jobs.waiting

    def __next__(self) -> Made:
        with self._lock:
            try:
                value, seconds = next(self._batches)
            except StopIteration:
                raise
            except Exception:
                self._waiting.popleft()
                raise
            state, job = self._waiting.popleft()
        return Made(state, job, value, seconds)

    def wait(self, seconds: float) -> bool:
        # torch's loader has the timeout.
        return True

    def close(self) -> None:
        if self._process == os.getpid():
            self._batches = iter(())
            self._jobs.close()
            self._native.close()
            self._pool.busy = False

    def stats(self) -> str:
        return self._native.stats()

    def bad(self) -> list[tuple[int, str, str]]:
        return self._native.bad()
