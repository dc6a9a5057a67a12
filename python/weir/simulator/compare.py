"""Replays a trace under policies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from .. import _native
from .errors import InputError, Interrupted
from .fabric import Fabric
from .policy import Policy, spec_text
from .progress import Progress, watch
from .result import Result
from .trace import Trace

#: A file, several files, or coflows in memory.
Source = Trace | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def compare(
    trace: Source,
    policies: Iterable[object] | str | Policy | None = None,
    *,
    baseline: object = None,
    fabric: Fabric | str | os.PathLike[str] | None = None,
    port_rate: str | None = None,
    interval: str | None = None,
    per_stage: bool = False,
    incast: str | os.PathLike[str] | None = None,
    buffer: int | None = None,
    decide_over: str | None = None,
    path_seed: int | None = None,
    bandwidth_seed: int | None = None,
    jobs: int = 1,
    flows: bool = False,
    links: bool = False,
    timing: bool = True,
    progress: Progress = None,
) -> Result:
    """Replays ``trace`` under each of the policies, and compares them as ``weir compare`` does.

    :param trace: a :class:`Trace`, or the files that ``weir compare`` takes: a trace, jobs, services.
    :param policies: names with parameters (``"saath:start=1MB"``), :class:`Policy` objects, or classes of policies of one's own;
        by default those that ``weir compare`` chooses.
    :param baseline: the policy that speedups refer to; by default the first one.
    :param fabric: a :class:`Fabric`, or a file with links between switches or regions; by default one switch.
    :param port_rate: the rate of each port in each direction, with a unit; by default ``"1Gbit"``.
    :param interval: the scheduling interval, with a unit; by default ``"8ms"``, and ``"0"`` between regions.
    :param per_stage: merge the coflows of each job, stage and wave (Saath, section 4.3).
    :param incast: a file of incast measurements, with ``buffer``, the buffer of each port in packets.
    :param decide_over: ``"links"`` or ``"ports"`` of a fabric.
    :param path_seed: the seed of the hash that selects paths.
    :param bandwidth_seed: the seed of random bandwidths between regions.
    :param jobs: the number of concurrent replays.
    :param flows: keep the end and the path of each flow, for :attr:`Result.flows`.
    :param links: keep the utilization of links over time, for :attr:`Result.link_times`.
    :param timing: keep measured times in the summary; without them the same input gives the same values.
    :param progress: show a bar for each policy; by default in terminals and notebooks. Or a function, which receives the policies, the
        number of coflows that each has completed, and the number of all coflows, about 20 times a second. Its exceptions end replays.
    :raises InputError: if an input is invalid.
    :raises ReplayError: if a replay fails.
    :raises Interrupted: after Ctrl-C; its attribute ``result`` has the policies that had finished.
    """
    trace = trace if isinstance(trace, Trace) else Trace.read(*([trace] if isinstance(trace, (str, os.PathLike)) else trace))
    if not 1 <= jobs <= 1024:
        raise InputError(f"jobs: `{jobs}`: expected 1 to 1024", field="jobs", value=str(jobs), expected="1 to 1024")
    if isinstance(policies, (str, Policy)):
        policies = [policies]
    specs = None if policies is None else [spec_text(policy) for policy in policies]
    if specs == []:
        raise InputError("policies: none; expected at least one", field="policies", expected="at least one")
    network = {
        "port_rate": port_rate,
        "interval": interval,
        "incast": incast,
        "buffer": buffer,
        "fabric": fabric._native if isinstance(fabric, Fabric) else fabric,
        "decide_over": decide_over,
        "path_seed": path_seed,
        "bandwidth_seed": bandwidth_seed,
    }
    base = None if baseline is None else spec_text(baseline)
    with watch(progress) as on_progress:
        native, interruption = _native.compare(
            trace._native,
            specs,
            base,
            network,
            per_stage=per_stage,
            jobs=jobs,
            flows=flows,
            links=links,
            timing=timing,
            on_progress=on_progress,
        )
    kept = [name for name, is_kept in (("flows", flows), ("links", links)) if is_kept]
    result = None if native is None else Result(native, kept)
    if isinstance(interruption, KeyboardInterrupt):
        raise Interrupted(result or None) from interruption
    if interruption is not None:
        raise interruption
    assert result is not None
    return result
