"""Figures of results."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .optional import load
from .policy import spec_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .result import Result
    from .table import Table

#: Colours that people with any kind of colour blindness distinguish (Okabe and Ito, 2008), without its yellow, which is faint on white.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000"]
#: Lines of the same colour have different styles.
LINE_STYLES = ["-", "--", ":", "-."]
#: Bars of the same colour have different patterns.
PATTERNS = ["", "//", "..", "xx"]

#: Bins of the table ``bins`` by the argument ``by``: their kind, and the label of their axis.
BINS = {
    "size": ("coflow-bytes", "bytes of a coflow"),
    "width": ("coflow-width", "flows of a coflow"),
    "length": ("coflow-length", "bytes of a coflow's largest flow"),
    "flow-size": ("flow-bytes", "bytes of a flow"),
}
#: Groups of the table ``groups``.
GROUPS = ("service", "application", "weight", "deadline")

#: Columns that :meth:`Plots.cdf` shows, with the labels of their axes.
DISTRIBUTIONS = {
    "cct_s": ("coflows", "coflow completion time, s"),
    "fct_s": ("flows", "flow completion time, s"),
    "slowdown": ("coflows", "slowdown: time divided by the time alone on the network"),
}


class Plots:
    """Figures of a result. Each returns its ``Axes``, and draws in those of the argument ``ax`` if there are any.

    ``policies`` selects policies. A policy has the same colour in all figures of a result.
    """

    def __init__(self, result: Result) -> None:
        self._result = result

    def cdf(self, column: str = "cct_s", *, policies: Iterable[object] | None = None, ax: Axes | None = None) -> Axes:
        """The cumulative distribution of a column over coflows or flows.

        :param column: ``"cct_s"``, coflow completion times in seconds; ``"slowdown"`` of coflows; ``"fct_s"``, flow completion times
            in seconds, which need ``compare(..., flows=True)``.
        """
        if column not in DISTRIBUTIONS:
            raise ValueError(f"column: {column!r}; expected one of {', '.join(DISTRIBUTIONS)}")
        name, label = DISTRIBUTIONS[column]
        table: Table = getattr(self._result, name)
        ax = _axes(ax)
        values: dict[str, list[float]] = {policy: [] for policy in self._selected(policies)}
        for policy, value in zip(table["policy"], table[column], strict=True):
            if policy in values and value is not None:
                values[policy].append(value)
        positive = [value for of_policy in values.values() for value in of_policy if value > 0]
        for policy, of_policy in values.items():
            if of_policy:
                colour, style = self._style(policy, LINE_STYLES)
                ax.ecdf(of_policy, label=_short(policy), color=colour, linestyle=style)
        _set_time_scale(ax, positive, has_zero=any(0.0 in of_policy for of_policy in values.values()))
        ax.set(xlabel=label, ylabel=f"fraction of {name}", ylim=(0, 1.01))
        return _finish(ax)

    def speedup(
        self, by: str = "size", *, statistic: str = "mean", policies: Iterable[object] | None = None, ax: Axes | None = None
    ) -> Axes:
        """The completion time under the baseline divided by that under each policy, by bin or group: above 1, the policy is faster.

        :param by: ``"size"``, ``"width"`` or ``"length"`` (of the largest flow) of coflows; ``"flow-size"``, which needs
            ``compare(..., flows=True)``; ``"service"``, ``"application"``, ``"weight"`` or ``"deadline"`` (its outcome).
        :param statistic: ``"mean"``, ``"p50"`` or ``"p99"`` of the times in a bin or group; the ratio is that of the two statistics.
        """
        if by not in BINS and by not in GROUPS:
            raise ValueError(f"by: {by!r}; expected one of {', '.join([*BINS, *GROUPS])}")
        if statistic not in ("mean", "p50", "p99"):
            raise ValueError(f"statistic: {statistic!r}; expected mean, p50 or p99")
        baseline = self._result.baseline
        if baseline not in self._result.policies:
            raise ValueError(f"the baseline {baseline!r} has no results, so there are no speedups")
        times, label = self._times(by, statistic)
        groups = list(dict.fromkeys(group for _, group in times))
        if not groups:
            help_text = "; help: compare(..., flows=True)" if by == "flow-size" else ""
            raise ValueError(f"by: {by!r} has no times{help_text}")
        chosen = self._selected(policies)
        others = [policy for policy in chosen if policy != baseline] or chosen
        ax = _axes(ax)
        width = 0.8 / len(others)
        drawn: list[float] = []
        for number, policy in enumerate(others):
            places, ratios = [], []
            for place, group in enumerate(groups):
                ratio = _ratio(times.get((baseline, group)), times.get((policy, group)))
                if ratio is not None:
                    places.append(place + (number - (len(others) - 1) / 2) * width)
                    ratios.append(ratio)
            colour, pattern = self._style(policy, PATTERNS)
            ax.bar(
                places,
                [ratio - 1 for ratio in ratios],
                width,
                bottom=1,
                label=_short(policy),
                color=colour,
                hatch=pattern,
                edgecolor="white",
                linewidth=0.5,
            )
            drawn += ratios
        _set_ratio_scale(ax, drawn)
        ax.set_xticks(range(len(groups)), groups)
        if max(map(len, groups)) * len(groups) > 56:
            ax.tick_params(axis="x", rotation=30)
        ax.set(xlabel=label, ylabel=f"{statistic} time under {_short(baseline)} / under the policy")
        return _finish(ax)

    def timeline(
        self, coflows: int | Sequence[int] = 30, *, policies: Iterable[object] | None = None, ax: Axes | None = None
    ) -> Axes:
        """Coflows over time, from their release to their end: a row for each coflow, and in it a bar for each policy.

        :param coflows: the ids of coflows, or a number: that of the coflows with the most bytes. Rows are in the order of arrival.
        """
        table = self._result.coflows
        chosen = self._selected(policies)
        rows = list(zip(table["policy"], table["coflow"], table["released_s"], table["end_s"], table["bytes"], strict=True))
        size = {coflow: size for _, coflow, _, _, size in rows}
        if isinstance(coflows, int):
            shown = set(sorted(size, key=lambda coflow: -size[coflow])[: max(coflows, 1)])
        else:
            shown = set(coflows)
            if unknown := sorted(shown - set(size)):
                raise ValueError(f"coflows: no coflow {unknown[0]} has completed")
        arrival = {coflow: number for number, coflow in enumerate(coflow for coflow in size if coflow in shown)}
        ax = _axes(ax, inches=max(4.2, 0.2 * len(arrival)))
        height = 0.8 / len(chosen)
        for number, policy in enumerate(chosen):
            bars = [(arrival[coflow], start, end) for of, coflow, start, end, _ in rows if of == policy and coflow in shown]
            places = [row + (number - (len(chosen) - 1) / 2) * height for row, _, _ in bars]
            colour, pattern = self._style(policy, PATTERNS)
            ax.barh(
                places,
                [end - start for _, start, end in bars],
                height,
                left=[start for _, start, _ in bars],
                label=_short(policy),
                color=colour,
                hatch=pattern,
                edgecolor="white",
                linewidth=0.3,
            )
        ax.set_yticks(range(len(arrival)), [str(coflow) for coflow in arrival], fontsize="small")
        ax.invert_yaxis()
        part = "" if len(shown) == len(size) else f" ({len(shown)} of {len(size)})"
        ax.set(xlabel="time since the start of the trace, s", ylabel=f"coflow{part}")
        return _finish(ax)

    def _times(self, by: str, statistic: str) -> tuple[dict[tuple[str, str], float | None], str]:
        """The statistic of times by policy and by bin or group, and the label of bins or groups."""
        if by in GROUPS:
            table, kind, label, column = self._result.groups, by, by, f"{statistic}_cct_s"
            names = [str(name) for name in table["group"]]
        else:
            table, column = self._result.bins, f"{statistic}_s"
            kind, label = BINS[by]
            names = [_bin_name(*bounds) for bounds in zip(table["from"], table["to"], strict=True)]
        rows = zip(table["policy"], table["kind"], names, table[column], strict=True)
        return {(policy, name): value for policy, of_kind, name, value in rows if of_kind == kind}, label

    def _selected(self, policies: Iterable[object] | None) -> list[str]:
        known = list(dict.fromkeys(self._result.policies))
        if policies is None:
            return known
        names = [spec_text(policy) for policy in ([policies] if isinstance(policies, str) else policies)]
        for name in names:
            if name not in known:
                raise ValueError(f"policies: {name!r} has no results; expected some of {', '.join(known)}")
        if not names:
            raise ValueError(f"policies: none; expected some of {', '.join(known)}")
        return names

    def _style(self, policy: str, variants: list[str]) -> tuple[str, str]:
        number = self._result.policies.index(policy)
        return COLOURS[number % len(COLOURS)], variants[number // len(COLOURS) % len(variants)]


def _axes(ax: Axes | None, inches: float = 4.2) -> Axes:
    if ax is not None:
        return ax
    axes: Axes = load("matplotlib.pyplot", "a figure", "plot").subplots(figsize=(7, inches), layout="constrained")[1]
    return axes


def _set_time_scale(ax: Axes, positive: list[float], *, has_zero: bool) -> None:
    if not positive:
        return
    if has_zero:
        ax.set_xscale("symlog", linthresh=min(positive))
    else:
        ax.set_xscale("log")


def _set_ratio_scale(ax: Axes, ratios: list[float]) -> None:
    """A logarithmic axis: half and double are equally far from 1, where bars begin."""
    ticker = importlib.import_module("matplotlib.ticker")
    ax.set_yscale("log")
    ax.set_ylim(min([0.8, *ratios]) / 1.1, max([1.25, *ratios]) * 1.1)
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if max(ratios, default=1) < 1000 else (1,)))
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(ticker.NullLocator())
    ax.axhline(1, color="#555555", linewidth=1)


def _finish(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    labels = ax.get_legend_handles_labels()[1]
    if labels:
        # Many or long names are legible only outside of the figure.
        if len(labels) > 6 or max(map(len, labels)) > 24:
            ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
        else:
            ax.legend(fontsize="small", framealpha=0.9)
    return ax


def _ratio(above: float | None, below: float | None) -> float | None:
    if above is None or below is None:
        return None
    if above == below:
        return 1.0
    return above / below if below > 0 else None


def _short(policy: str) -> str:
    """The name of a policy without the folder of its file."""
    name, separator, file = policy.partition("tree:")
    return f"tree:{file.rsplit('/', 1)[-1]}" if separator and not name else policy


def _bin_name(start: Any, end: Any) -> str:
    return f"{_quantity(start)} to {_quantity(end)}"


def _quantity(value: Any) -> str:
    if value is None:
        return ""
    for power, prefix in itertools.takewhile(lambda unit: unit[0] > 1, _PREFIXES):
        if value >= power:
            return f"{value / power:g}{prefix}"
    return f"{value:g}"


_PREFIXES = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]
