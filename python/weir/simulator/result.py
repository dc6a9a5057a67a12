"""The results of policies."""

from __future__ import annotations

import html
import json
from collections.abc import Collection
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
        """The entries of the time line: state, pace, queue, rule, cause and link; times in seconds."""
        segments: list[dict[str, Any]] = self.record["segments"]
        return segments

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


class Result:
    """The results of policies on one trace and network.

    Printed, it is the table of ``weir compare``. Tables have the columns of the command line's files (``--per-coflow`` and the like),
    which the page about output describes: times in seconds, sizes in bytes. A table is made when it is read.
    """

    def __init__(self, native: _native.Comparison, kept: Collection[str] = ()) -> None:
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
        """A row for each policy and coflow: the columns of ``--per-coflow``."""
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
        """Times and slowdowns by size, width and length: the columns of ``--per-bin``; flows by size need ``flows=True``."""
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
        :raises InputError: if the coflow or the policy does not exist.
        """
        if not 0 <= coflow < 2**64:
            expected = "the number of a coflow"
            raise InputError(f"coflow: `{coflow}`: expected {expected}", field="coflow", value=str(coflow), expected=expected)
        spec = self.policies[-1] if policy is None else spec_text(policy)
        return Explanation(self._native.explain(spec, coflow, all))

    def wide(self) -> str:
        """All columns, as ``weir compare --wide`` prints them."""
        return self._native.text(True)

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
