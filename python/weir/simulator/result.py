"""The results of policies."""

from __future__ import annotations

import html
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _native
from .errors import InputError
from .policy import spec_text
from .table import Table

if TYPE_CHECKING:
    from .plot import Plots


class Explanation:
    """Why a coflow took as long as it did."""

    def __init__(self, native: _native.Explanation) -> None:
        self._text = native.text
        #: The record that ``weir explain --format json`` prints; times in seconds.
        self.record: dict[str, Any] = json.loads(native.json)

    @property
    def segments(self) -> list[dict[str, Any]]:
        """The entries of the time line: state, pace, queue, contention, rule, cause and link; times in seconds.

        The contention of a coflow is the number of coflows in its queue with which it shares a port (Saath, CoNEXT '17, section 3).
        """
        segments: list[dict[str, Any]] = self.record["segments"]
        return segments

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


#: The tables of a result, and the detail that the comparison keeps for some of them.
TABLES = {
    "coflows": None,
    "flows": "flows",
    "bins": None,
    "groups": None,
    "jobs": None,
    "demands": None,
    "links": None,
    "link_times": "links",
    "schedules": None,
}


@dataclass(frozen=True)
class StoredComparison:
    """What another process needs of a comparison. It does not have the trace, so it explains nothing."""

    policies: list[str]
    baseline: str
    missing: list[str]
    problem: str | None
    records: str
    short_text: str
    wide_text: str
    tables: dict[str, Table]

    @classmethod
    def of(cls, native: _native.Comparison | StoredComparison, kept: Collection[str]) -> StoredComparison:
        """The stored results of a comparison that kept these details."""
        if isinstance(native, StoredComparison):
            return native
        names = [name for name, detail in TABLES.items() if detail is None or detail in kept]
        return cls(
            native.policies,
            native.baseline,
            native.missing,
            native.problem,
            native.records_json(),
            native.text(False),
            native.text(True),
            {name: Table(native.table(name)) for name in names},
        )

    def records_json(self) -> str:
        return self.records

    def text(self, wide: bool) -> str:
        return self.wide_text if wide else self.short_text

    def table(self, name: str) -> _native.Table:
        return self.tables[name]._native

    def explain(self, policy: str, coflow: int, all: bool) -> _native.Explanation:
        expected = "the result in the process that compared"
        raise InputError(f"explain: a result that was pickled does not have the trace; expected {expected}", expected=expected)

    def __len__(self) -> int:
        return len(self.policies)


class Result:
    """The results of policies on one trace and network.

    Printed, it is the table of ``weir compare``. Tables have the columns of the command line's files (``--per-coflow`` and the like),
    which the page about output describes: times in seconds, sizes in bytes. A table is made when it is read.

    A result that was pickled has all tables in memory, and no trace: it cannot :meth:`explain`.
    """

    def __init__(self, native: _native.Comparison | StoredComparison, kept: Collection[str] = ()) -> None:
        self._native = native
        #: The details that the comparison kept: ``"flows"`` and ``"links"``.
        self._kept = kept

    @property
    def policies(self) -> list[str]:
        """The policies with results, as specifications."""
        return self._native.policies

    @property
    def baseline(self) -> str:
        """The policy that speedups refer to."""
        return self._native.baseline

    @property
    def missing(self) -> list[str]:
        """The policies whose replays an interrupt stopped."""
        return self._native.missing

    @property
    def problem(self) -> str | None:
        """The problem of replays, such as coflows that cannot complete; ``None`` without one."""
        return self._native.problem

    @property
    def summary(self) -> list[dict[str, Any]]:
        """A record of statistics for each policy, as ``weir compare --format json`` prints them."""
        records: list[dict[str, Any]] = json.loads(self._native.records_json())
        return records

    @property
    def coflows(self) -> Table:
        """A row for each policy and coflow: the columns of ``--per-coflow``.

        ``slowdown`` is the completion time divided by ``alone_s``, the shortest time alone on the network: for one switch, the load of the
        busiest port divided by its rate (Varys, SIGCOMM '14, section 5). It is not the slowdown of Saba (EuroSys '23, section 2.1), which
        compares with full bandwidth. ``deadline_s`` counts from the release; ``deadline`` is its outcome, ``rejected`` by the admission
        control of Varys (section 5).
        """
        return self._table("coflows")

    @property
    def flows(self) -> Table:
        """A row for each policy and flow: the columns of ``--per-flow``. Needs ``compare(..., flows=True)``.

        :raises InputError: without it.
        """
        self._check_kept("flows")
        return self._table("flows")

    @property
    def bins(self) -> Table:
        """Times and slowdowns by size, width and length: the columns of ``--per-bin``; flows by size need ``flows=True``.

        A bin has values from a power of ten to less than the next. Width is the number of flows, and length the size of the largest one
        (Varys, SIGCOMM '14, section 5.3). HPCC (SIGCOMM '19, section 5) and Homa (SIGCOMM '18, section 5) report percentiles of slowdowns by
        flow size. Saath's four bins are in :meth:`Trace.describe`.
        """
        return self._table("bins")

    @property
    def groups(self) -> Table:
        """A row for each policy and service, application, weight and deadline: the columns of ``--per-group``."""
        return self._table("groups")

    @property
    def jobs(self) -> Table:
        """A row for each policy and job: the columns of ``--per-job``."""
        return self._table("jobs")

    @property
    def demands(self) -> Table:
        """A row for each policy and active interval of a service's demand: the columns of ``--per-demand``."""
        return self._table("demands")

    @property
    def links(self) -> Table:
        """A row for each policy and link: the columns of ``--per-link``. The peak needs ``compare(..., links=True)``."""
        return self._table("links")

    @property
    def link_times(self) -> Table:
        """The utilization of links over time: the columns of ``--per-link-time``. Needs ``compare(..., links=True)``.

        :raises InputError: without it.
        """
        self._check_kept("links")
        return self._table("link_times")

    @property
    def schedules(self) -> Table:
        """A row for each policy and schedule, with the wall time of its computation in nanoseconds."""
        return self._table("schedules")

    @property
    def plot(self) -> Plots:
        """Figures, such as ``result.plot.cdf()``; need the extra ``plot``: matplotlib and numpy."""
        from .plot import Plots

        return Plots(self)

    def explain(self, coflow: int, policy: object = None, *, all: bool = False) -> Explanation:
        """Replays the trace under ``policy`` again (by default the last one), and explains the time of a coflow.

        :param coflow: the coflow's number in the trace.
        :param all: show every segment of the time line instead of merging short ones.
        :raises InputError: if the coflow or the policy does not exist, or the result was pickled.
        """
        if not 0 <= coflow < 2**64:
            expected = "the number of a coflow"
            raise InputError(f"coflow: `{coflow}`: expected {expected}", field="coflow", value=str(coflow), expected=expected)
        spec = self.policies[-1] if policy is None else spec_text(policy)
        return Explanation(self._native.explain(spec, coflow, all))

    def wide(self) -> str:
        """All columns, as ``weir compare --wide`` prints them."""
        return self._native.text(True)

    def __reduce__(self) -> tuple[object, tuple[StoredComparison, Collection[str]]]:
        return Result, (StoredComparison.of(self._native, self._kept), self._kept)

    def _check_kept(self, detail: str) -> None:
        if detail not in self._kept:
            expected = f"compare(..., {detail}=True)"
            raise InputError(f"{detail}: the comparison has not kept them; expected {expected}", field=detail, expected=expected)

    def _table(self, name: str) -> Table:
        return Table(self._native.table(name))

    def __str__(self) -> str:
        return self._native.text(False).rstrip()

    def __repr__(self) -> str:
        missing = f"Interrupted; without results: {', '.join(self.missing)}" if self.missing else None
        return "\n\n".join(filter(None, [str(self), missing, self.problem]))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def __len__(self) -> int:
        return len(self._native)
