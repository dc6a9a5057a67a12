"""Gives the points of a sweep to workers, and keeps their results as they come."""

from __future__ import annotations

import atexit
import functools
import json
import math
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from itertools import groupby
from pathlib import Path
from typing import Any

from ..._native import __version__
from .dataset import CoflowRows, Results
from .executors import Workers
from .points import Grid, Label, Point
from .worker import Group, Outcome, Replay, Row, Task

#: The intended duration of a task in seconds: long against the cost of a task, short against the work that a lost worker loses.
_TASK_SECONDS = 0.5

#: Concurrent tasks for each slot of a worker, so that none idles while results are written.
_TASKS_PER_SLOT = 2

#: Seconds to wait for interrupted workers. Those of this machine need less, unless they read a large trace.
_INTERRUPT_SECONDS = 2.0

#: Bytes of coflows that wait in memory to be written.
_COFLOW_BYTES = 64 << 20


class Run:
    """The execution of the points that have no results yet."""

    def __init__(
        self,
        points: Iterable[Point],
        inputs: Grid,
        workers: Workers,
        results: Results,
        on_rows: Callable[[int], object],
    ) -> None:
        #: Workers of this machine stop once this file exists.
        self._stop_file = Path(tempfile.gettempdir(), f"weir-stop-{uuid.uuid4().hex}")
        self._waiting = deque(points)
        self._points = {point.key: point for point in self._waiting}
        self._inputs = inputs
        self._baseline = inputs.baseline
        self._coflows = results.has_coflows
        self._workers = workers
        self._on_rows = on_rows
        #: Points of tasks whose worker exited. They are replayed last and one by one, so that the next exit shows its point.
        self._suspects: deque[Point] = deque()
        self._suspect: Future[Outcome] | None = None
        self._running: dict[Future[Outcome], Task] = {}
        self._buffer = _Buffer(results)
        #: Seconds of a replay for each byte of its trace.
        self._pace: float | None = None
        self._interrupted = False

    def run(self) -> None:
        """Replays all points. Results are kept whatever ends the sweep.

        :raises KeyboardInterrupt: after Ctrl-C.
        """
        try:
            while self._waiting or self._suspects or self._running:
                self._submit()
                done, _ = wait(self._running, return_when=FIRST_COMPLETED)
                for future in done:
                    self._take(future)
                if self._interrupted:
                    raise KeyboardInterrupt
                self._buffer.write_if_due()
        finally:
            try:
                self._stop()
            finally:
                self._buffer.write()

    def _submit(self) -> None:
        slots = self._workers.slots
        while self._waiting and len(self._running) < slots * _TASKS_PER_SLOT:
            self._start(self._next_task(slots))
            if slots == 1 and all(future.done() for future in self._running):
                return
        if self._suspects and not self._running:
            self._suspect = self._start(self._task([self._suspects.popleft()]))

    def _start(self, task: Task) -> Future[Outcome]:
        future = self._workers.submit(task, self._inputs.content)
        self._running[future] = task
        return future

    def _next_task(self, slots: int) -> Task:
        """The next points of one trace; with a baseline, whole groups, which replay it once."""
        first = self._waiting[0]
        count = 1
        if self._pace is not None:
            seconds = self._pace * self._inputs.traces[first.trace].nbytes
            count = math.ceil(min(_TASK_SECONDS / max(seconds, 1e-9), len(self._waiting) / (2 * slots)))
        batch: list[Point] = []
        while self._waiting and self._waiting[0].trace == first.trace:
            is_whole = self._baseline is None or not batch or batch[-1].group != self._waiting[0].group
            if len(batch) >= count and is_whole:
                break
            batch.append(self._waiting.popleft())
        return self._task(batch)

    def _task(self, batch: Sequence[Point]) -> Task:
        groups = []
        for _, members in groupby(batch, key=lambda point: point.group):
            points = list(members)
            replays = tuple(Replay(point.key, point.policy) for point in points)
            groups.append(Group(points[0].options, points[0].files, replays))
        return Task(__version__, str(self._stop_file), batch[0].trace, self._baseline, self._coflows, tuple(groups))

    def _take(self, future: Future[Outcome]) -> None:
        """Keeps the results of a task that has ended, or starts it again."""
        task = self._running.pop(future)
        try:
            outcome = future.result()
        except self._workers.lost as error:
            self._suspect_points(task, error, is_alone=future is self._suspect)
            return
        except CancelledError:
            raise RuntimeError("the executor cancelled a task; help: run the sweep again, which repeats no finished replay") from None
        if outcome.missing:
            self._running[self._workers.resubmit(task, self._inputs.content)] = task
            return
        self._keep(outcome.rows)
        self._interrupted |= outcome.interrupted
        if outcome.rows:
            pace = outcome.seconds / len(outcome.rows) / self._inputs.traces[task.trace].nbytes
            self._pace = pace if self._pace is None else (self._pace + pace) / 2

    def _suspect_points(self, task: Task, error: BaseException, is_alone: bool) -> None:
        """One of the points may have ended its worker; it has if nothing else was running."""
        keys = [replay.key for group in task.groups for replay in group.replays]
        if is_alone:
            self._keep([Row(keys[0], None, f"the worker exited ({type(error).__name__})", again=True)])
        else:
            self._suspects.extend(self._points[key] for key in keys)

    def _keep(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._buffer.add(_columns(self._points[row.key], row, self._baseline is not None), row)
        self._on_rows(len(rows))

    def _stop(self) -> None:
        """Stops the tasks that an interrupt or an error leaves, and keeps the results of those that end soon."""
        if not self._running:
            return
        self._stop_file.touch()
        # A worker that needs longer stops at its next replay.
        atexit.register(self._stop_file.unlink, missing_ok=True)
        for future in self._running:
            future.cancel()
        started = [future for future in self._running if not future.cancelled()]
        done, others = wait(started, timeout=_INTERRUPT_SECONDS)
        for future in done:
            if not future.cancelled() and future.exception() is None:
                self._keep(future.result().rows)
        self._running.clear()
        if not others:
            self._stop_file.unlink()


class _Buffer:
    """Rows that are not written yet. Files get larger with time, so that a long sweep does not make many."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._clear()
        self._start = self._written = time.monotonic()

    def _clear(self) -> None:
        self._rows: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
        self._coflows: list[CoflowRows] = []
        self._coflow_bytes = 0

    def add(self, columns: dict[str, Any], row: Row) -> None:
        self._rows[row.again].append(columns)
        if row.coflows is not None:
            self._coflows.append((row.key, row.coflows))
            self._coflow_bytes += row.coflows.nbytes

    def write_if_due(self) -> None:
        now = time.monotonic()
        if now - self._written >= max(1.0, 0.01 * (now - self._start)) or self._coflow_bytes >= _COFLOW_BYTES:
            self.write()

    def write(self) -> None:
        self._results.write(*self._rows, self._coflows)
        self._clear()
        self._written = time.monotonic()


#: Columns that the same input does not repeat, or that replays with problems alone have.
_LEFT_OUT = frozenset(("schedule_mean_us", "schedule_p90_us", "schedule_p99_us", "wall_s", "processor_s", "completed", "stalled_coflows"))

#: Columns of a row in a file that describe its point.
_DESCRIPTION = ("trace", "policy", "seed")


def _columns(point: Point, row: Row, has_baseline: bool) -> dict[str, Any]:
    """The columns of a row in a file; speedups need a baseline of the sweep."""
    trace, policy, seed = (point.labels[name] for name in _DESCRIPTION)
    options = _options_text(tuple(item for item in point.labels.items() if item[0] not in _DESCRIPTION))
    columns = {"key": row.key, "trace": str(trace), "policy": str(policy), "seed": seed, "options": options, "error": row.error}
    for name, value in (row.record or {}).items():
        if name not in columns and _is_kept(name, has_baseline):
            columns[name] = json.dumps(value) if isinstance(value, (list, dict)) else value
    return columns


@functools.cache
def _is_kept(name: str, has_baseline: bool) -> bool:
    return name not in _LEFT_OUT and (has_baseline or not (name == "baseline" or name.startswith("speedup")))


@functools.lru_cache(maxsize=1024)
def _options_text(labels: tuple[tuple[str, Label], ...]) -> str:
    return json.dumps(dict(labels))
