"""Sweeps: replays of all combinations of traces, policies, seeds and options, in one process or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from ..progress import OnProgress, Progress, watch
from .checks import check_points
from .dataset import FolderResults, MemoryResults, Results
from .executors import open_workers
from .points import Grid
from .result import Sweep, SweepInterrupted
from .run import Run

__all__ = ["Sweep", "SweepInterrupted", "sweep"]


def sweep(
    grid: Mapping[str, object] | None = None,
    *,
    traces: object,
    policies: object,
    seeds: Iterable[int] | None = None,
    baseline: object = None,
    coflows: bool = False,
    executor: object = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress = None,
) -> Sweep:
    """Replays all combinations of traces, seeds, values of a grid and policies.

        result = weir.sweep(
            {"arrival": [0.5, 1, 2], "saath:start": ["1MB", "10MB"]},
            traces={"demo": "demo.txt"},
            policies=["fair", "aalo", "saath"],
            baseline="fair",
            out="results",
        )
        result.mean("speedup_p50", by=["policy", "arrival"])

    With ``out``, each finished replay is kept in this folder, also if the sweep fails or is interrupted. Later sweeps do not repeat a
    replay with the same inputs: the bytes of the trace, the fabric and other files, the policy, options, and the version of Weir. The
    folder is a Parquet dataset that other programs can read.

    Lists can be dictionaries, whose keys are the labels in results: ``{"fabric": {1: "1.toml", 4: "4.toml"}}``. A value alone is a list of
    one.

    Invalid inputs are errors before the first replay, as in :func:`compare`. Of a function's traces, the first one is checked so.

    :param grid: keyword arguments of :func:`compare` and their values: ``port_rate``, ``interval``, ``arrival``, ``fabric``, ``per_stage``,
        ``incast``, ``buffer``, ``decide_over``, ``path_seed``, ``bandwidth_seed``; with hyphens too, as ``weir sweep --vary``. Another key,
        such as ``start``, is a parameter of all policies that have it, and ``saath:start`` one of this policy only. A policy without the
        parameter is replayed once.
    :param traces: files, tuples of files that share one network, :class:`Trace` objects, or functions that return one of these for a seed.
        Of files and functions, only the most recent traces are in memory: a function is called again when a worker needs the trace, and
        has to return an equal one.
    :param policies: as in :func:`compare`. Workers import the module of a class, so define classes of policies in a module that they can
        import. Dask and Ray also accept a class of the main program or a notebook. A change of the class's file repeats its replays.
    :param seeds: seeds of paths over a fabric, of bandwidths between regions, and of traces that are functions.
    :param baseline: the policy that speedups refer to, with the parameters that it has here: the grid does not vary these. It is replayed
        with the same trace and options wherever results are missing. Without a baseline, there are no speedups.
    :param coflows: keep a row for each replay and coflow, for :attr:`Sweep.coflows`; with ``out``, in its folder ``_coflows``, where the
        column ``key`` identifies the replay. Workers need pyarrow.
    :param executor: where to replay: by default in this process; ``"processes"`` of this machine; an executor of
        :mod:`concurrent.futures`; a client of Dask, or its scheduler's address such as ``"tcp://10.0.0.1:8786"``; ``"ray"``, or
        ``"ray://HOST:PORT"``. Workers need this version of Weir.
    :param out: the folder of results; without it, results are lost with the program.
    :param progress: show the part of the points that is finished; by default in terminals and notebooks. Or a function as in
        :func:`compare`, which receives ``["points"]``, the number of finished points in a list, and that of all to replay.
    :returns: the results. A replay that fails is a row with the text of the error. If the error can depend on the worker, such as a lack of
        memory, the next sweep repeats the replay.
    :raises InputError: if an input is invalid.
    :raises TypeError: if a value has the wrong type.
    :raises SweepInterrupted: after Ctrl-C; its attribute ``result`` has the finished points. Workers of this machine stop their replays
        within 0.2 s. Those of other machines end the replays that they have started.
    """
    inputs = Grid(grid or {}, traces, policies, seeds, baseline)
    points = list(inputs.points())
    results: Results = MemoryResults(coflows=coflows) if out is None else FolderResults(out, coflows=coflows)
    with results.locked():
        finished = results.finished({point.key for point in points})
        waiting = list({point.key: point for point in points if point.key not in finished}.values())
        result = Sweep(points, inputs.columns, results, sum(point.key in finished for point in points))
        try:
            if waiting:
                check_points(inputs, waiting)
                with open_workers(executor) as workers, watch(progress) as on_progress:
                    Run(waiting, inputs, workers, results, _count_rows(on_progress, len(waiting))).run()
        except KeyboardInterrupt as interrupt:
            raise SweepInterrupted(result) from interrupt
    return result


def _count_rows(on_progress: OnProgress | None, points: int) -> Callable[[int], None]:
    """The function that receives the number of new rows."""
    finished = 0

    def count(rows: int) -> None:
        nonlocal finished
        finished += rows
        if on_progress is not None:
            on_progress(["points"], [finished], points)

    return count
