"""Sweeps: replays of all combinations of traces, policies, seeds and options, in one process or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from ..progress import OnProgress, Progress, watch
from ..trace import Trace
from .dataset import FolderResults, MemoryResults
from .executors import open_workers
from .points import Grid, Point
from .result import Sweep, SweepInterrupted
from .run import Run
from .worker import CACHE, LocalFiles

__all__ = ["Sweep", "SweepInterrupted", "sweep"]


def sweep(
    grid: Mapping[str, object] | None = None,
    *,
    traces: object,
    policies: object,
    seeds: Iterable[int] | None = None,
    baseline: object = None,
    executor: object = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress = None,
) -> Sweep:
    """Replays all combinations of traces, seeds, values of a grid and policies.

        result = weir.sweep(
            {"interval": ["0", "8ms"], "saath:start": ["1MB", "10MB"]},
            traces={"demo": "demo.txt"},
            policies=["fair", "aalo", "saath"],
            out="results",
        )
        result.mean("mean_cct_s", by=["policy", "interval"])

    With ``out``, each finished replay is kept in this folder, also if the sweep fails or is interrupted. Later sweeps do not repeat a
    replay with the same inputs: the bytes of the trace, the fabric and other files, the policy, options, and the version of Weir. The
    folder is a Parquet dataset that other programs can read.

    Lists can be dictionaries, whose keys are the labels in results: ``{"fabric": {1: "1.toml", 4: "4.toml"}}``. A value alone is a list of
    one.

    :param grid: keyword arguments of :func:`compare` and their values: ``port_rate``, ``interval``, ``fabric``, ``per_stage``, ``incast``,
        ``buffer``, ``decide_over``, ``path_seed``, ``bandwidth_seed``. A key such as ``saath:start`` is a parameter of this policy only.
    :param traces: files, tuples of files that share one network, :class:`Trace` objects, or functions that return one of these for a seed.
    :param policies: as in :func:`compare`. Workers import the module of a class, so define classes of policies in a module that they can
        import. Dask and Ray also accept a class of the main program or a notebook. A change of the class's file repeats its replays.
    :param seeds: seeds of paths over a fabric, of bandwidths between regions, and of traces that are functions.
    :param baseline: the policy that speedups refer to, which is replayed in each group that lacks results. Without it, there are none.
    :param executor: where to replay: by default in this process; ``"processes"`` of this machine; an executor of
        :mod:`concurrent.futures`; a client of Dask, or its scheduler's address such as ``"tcp://10.0.0.1:8786"``; ``"ray"``, or
        ``"ray://HOST:PORT"``. Workers need this version of Weir.
    :param out: the folder of results; without it, results are lost with the program.
    :param progress: show the part of the points that is finished; by default in terminals and notebooks. Or a function as in
        :func:`compare`, which receives ``["points"]``, the number of finished points in a list, and that of all to replay.
    :returns: the results. A replay that fails is a row with the text of the error. If the error can depend on the worker, such as a lack of
        memory, the next sweep repeats the replay.
    :raises InputError: if an input is invalid.
    :raises SweepInterrupted: after Ctrl-C; its attribute ``result`` has the finished points.
    """
    inputs = Grid(grid or {}, traces, policies, seeds, baseline)
    points = list(inputs.points())
    results = MemoryResults() if out is None else FolderResults(out)
    with results.locked():
        finished = results.finished({point.key for point in points})
        waiting = list({point.key: point for point in points if point.key not in finished}.values())
        result = Sweep(points, inputs.columns, results, sum(point.key in finished for point in points))
        try:
            if waiting:
                with open_workers(executor) as workers, watch(progress) as on_progress:
                    _use_local_files(inputs, waiting)
                    on_rows = _count_rows(on_progress, len(waiting))
                    Run(waiting, inputs.contents, inputs.baseline, workers, results, on_rows).run()
        except KeyboardInterrupt as interrupt:
            raise SweepInterrupted(result) from interrupt
    return result


def _use_local_files(inputs: Grid, points: Iterable[Point]) -> None:
    """Reads the traces that are replayed: errors name their files, and workers in this process do not read them again."""
    for checksum in dict.fromkeys(point.trace for point in points):
        item = inputs.traces[checksum]
        if item.paths:
            CACHE.add(checksum, LocalFiles(item.paths, item.content.nbytes, Trace.read(*item.paths)))


def _count_rows(on_progress: OnProgress | None, points: int) -> Callable[[int], None]:
    """The function that receives the number of new rows."""
    finished = 0

    def count(rows: int) -> None:
        nonlocal finished
        finished += rows
        if on_progress is not None:
            on_progress(["points"], [finished], points)

    return count
