"""Checks the inputs of a sweep before its first replay."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ..compare import check
from ..trace import Trace
from .points import Grid, Point, TraceInput
from .worker import CACHE, LocalFiles


def check_points(inputs: Grid, points: Iterable[Point]) -> None:
    """Reads the files of traces, and checks all options and policies with them. Of a function's traces in memory, the first one counts.

    :raises InputError: as :func:`weir.compare` before the first replay; errors name the files of the caller.
    """
    groups: dict[str, tuple[Point, list[str]]] = {}
    for point in points:
        groups.setdefault(point.group, (point, []))[1].append(point.policy.spec)
    checked: dict[Hashable, set[Hashable]] = {}
    for point, policies in groups.values():
        item = inputs.traces[point.trace]
        # Seeds of the sweep are valid on all networks.
        has_seed = point.labels["seed"] is not None
        options = [(name, value) for name, value in point.options.items() if not (has_seed and name.endswith("_seed"))]
        case = (repr(options), *point.files.items(), *policies)
        done = checked.setdefault(item.paths or item.label, set())
        if case not in done:
            check(_local_trace(inputs, item), policies, inputs.baseline and inputs.baseline.spec, inputs.options_of(point))
            done.add(case)


def _local_trace(inputs: Grid, item: TraceInput) -> Trace:
    """A trace, which workers in this process do not read again."""
    if not item.paths:
        return CACHE.get([item.checksum], [inputs.content(item.checksum)])[item.checksum].trace()
    kept = CACHE.get([item.checksum], []).get(item.checksum)
    if kept is None or kept.paths != list(item.paths):
        kept = LocalFiles(item.paths, item.nbytes, Trace.read(*item.paths))
        CACHE.add(item.checksum, kept)
    return kept.trace()
