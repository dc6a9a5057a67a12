"""Progress of replays."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

#: Receives the completed coflows of each replay.
OnProgress = Callable[[list[int]], None]


@contextlib.contextmanager
def watch(progress: bool | None, policies: list[str], coflows: int) -> Iterator[OnProgress | None]:
    """Shows the part of all replays that is done, in a line of the terminal."""
    shown = sys.stderr.isatty() if progress is None else progress
    if not shown:
        yield None
        return

    def update(completed: list[int]) -> None:
        total = max(len(completed) * coflows, 1)
        sys.stderr.write(f"\r{100 * sum(completed) // total:3d} % of {len(completed)} replays")
        sys.stderr.flush()

    try:
        yield update
    finally:
        sys.stderr.write("\r" + " " * 40 + "\r")
        sys.stderr.flush()
