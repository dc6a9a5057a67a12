"""Replays a trace under policies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import _native
from .errors import InputError, Interrupted
from .fabric import Fabric
from .policy import Policy, spec_text
from .progress import Progress, watch
from .result import Result
from .trace import Trace

#: A file, several files, or coflows in memory.
Source = Trace | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: Keyword arguments of :func:`compare` about the network.
_NETWORK = ("port_rate", "interval", "incast", "buffer", "fabric", "decide_over", "path_seed", "bandwidth_seed")


def compare(
    trace: Source,
    policies: Iterable[object] | str | Policy | None = None,
    *,
    baseline: object = None,
    fabric: Fabric | str | os.PathLike[str] | None = None,
    port_rate: str | None = None,
    interval: str | None = None,
    arrival: float | None = None,
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
    :param arrival: the factor by which coflows arrive faster than in the trace, from 1e-6 to 1e6; by default 1 (Saath, Fig. 14d).
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
    options = {
        "port_rate": port_rate,
        "interval": interval,
        "incast": incast,
        "buffer": buffer,
        "fabric": fabric,
        "decide_over": decide_over,
        "path_seed": path_seed,
        "bandwidth_seed": bandwidth_seed,
        "arrival": arrival,
    }
    arguments = _native_arguments(policies, baseline, options)
    with watch(progress) as on_progress:
        native, interruption = _native.compare(
            trace._native,
            arguments,
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


def check(trace: Trace, policies: Iterable[object], baseline: object, options: Mapping[str, Any]) -> None:
    """Checks arguments of :func:`compare` without replays, with the same errors."""
    _native.check(trace._native, _native_arguments(policies, baseline, options), per_stage=options.get("per_stage", False))


def _native_arguments(policies: Iterable[object] | str | Policy | None, baseline: object, options: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(policies, (str, Policy)):
        policies = [policies]
    specs = None if policies is None else [spec_text(policy) for policy in policies]
    if specs == []:
        raise InputError("policies: none; expected at least one", field="policies", expected="at least one")
    network = {name: options.get(name) for name in _NETWORK}
    fabric = network["fabric"]
    network["fabric"] = fabric._native if isinstance(fabric, Fabric) else fabric
    base = None if baseline is None else spec_text(baseline)
    return {"policies": specs, "baseline": base, "network": network, "arrival": options.get("arrival")}
