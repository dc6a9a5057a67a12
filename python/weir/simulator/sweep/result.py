"""The results of a sweep."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ... import _native
from .dataset import FolderResults, Results, arrow, to_array
from .inputs import invalid
from .points import Label, Point

if TYPE_CHECKING:
    import pyarrow

#: Columns of files that describe a point.
_DESCRIPTION = ("key", "trace", "policy", "seed", "options", "error")


class Sweep:
    """The results of a sweep: a row for each point, in the order of traces, seeds, values of the grid and policies."""

    def __init__(
        self,
        points: Sequence[Point],
        columns: Sequence[str],
        results: Results,
        reused: int,
    ) -> None:
        self._points = points
        #: The labels of each row: ``trace``, ``policy``, ``seed`` and the keys of the grid.
        self.columns = list(columns)
        self._results = results
        self._table: pyarrow.Table | None = None
        #: Points whose results the folder had before.
        self.reused = reused

    @property
    def table(self) -> pyarrow.Table:
        """The rows: labels of the point, ``error`` (null without one), and the statistics of ``weir compare --format json``.

        Times are in seconds and sizes in bytes. Without measured times, the same inputs give the same values. The table contains this
        sweep alone; the folder can have rows of others.
        """
        if self._table is None:
            self._table = self._read()
        return self._table

    def _read(self) -> pyarrow.Table:
        pa = arrow()
        rows = self._results.read()
        position: dict[str, int] = {}
        for number, key in enumerate(rows.column("key").to_pylist()):
            position.setdefault(key, number)
        points = [point for point in self._points if point.key in position]
        rows = rows.take(pa.array([position[point.key] for point in points], pa.int64()))
        columns = {name: to_array([point.labels.get(name) for point in points]) for name in self.columns}
        errors = rows.column("error") if "error" in rows.column_names else pa.nulls(len(points), pa.string())
        columns["error"] = errors
        columns |= {name: rows.column(name) for name in rows.column_names if name not in {*columns, *_DESCRIPTION}}
        return pa.table(columns)

    @property
    def coflows(self) -> pyarrow.Table:
        """A row for each replay and coflow, read at each access: those of ``weir sweep --per-coflow``. Needs ``sweep(..., coflows=True)``.

        Labels of the point are ``trace``, ``seed``, ``vary_KEY`` for each key of the grid, and ``policy``. The other columns are those of
        :attr:`Result.coflows`: times in seconds and sizes in bytes. Texts are dictionary-encoded.

        :raises InputError: without it.
        """
        if not self._results.has_coflows:
            raise invalid("coflows", "the sweep has not kept them", "sweep(..., coflows=True)")
        pa = arrow()
        found = dict(self._results.read_coflows({point.key for point in self._points}))
        points = [point for point in self._points if point.key in found]
        indices = pa.array([number for number, point in enumerate(points) for _ in range(len(found[point.key]))], pa.int32())
        names = {"trace": "trace", "seed": "seed"} | {f"vary_{name}": name for name in self.columns[3:]} | {"policy": "policy"}
        columns = {}
        for column, name in names.items():
            labels = to_array([point.labels.get(name) for point in points])
            is_text = pa.types.is_string(labels.type)
            columns[column] = pa.DictionaryArray.from_arrays(indices, labels) if is_text else labels.take(indices)
        rows = pa.concat_tables([found[point.key] for point in points]) if points else pa.table({})
        return pa.table(columns | dict(zip(rows.column_names, rows.columns, strict=True)))

    def __len__(self) -> int:
        return len(self._points)

    @property
    def failed(self) -> int:
        """Points with an error."""
        return len(self.table) - int(self.table.column("error").null_count)

    @property
    def missing(self) -> int:
        """Points without results, after an interrupt."""
        return len(self) - len(self.table)

    def mean(self, column: str = "mean_cct_s", *, by: str | Sequence[str] = ("policy",)) -> list[dict[str, Any]]:
        """The means of a column with 95 % confidence intervals (Student's t), for each combination of the columns ``by``.

        As ``weir sweep --confidence``, samples are traces, each averaged over its seeds first; with one trace, its seeds. Values of grids
        that are not in ``by`` are averaged before too. The distribution of the mean over samples is taken for normal.

        :returns: for each combination its labels, ``mean``, ``low``, ``high`` (ends of the interval; infinite with one sample),
            ``samples``, and ``missing``, the rows without a value.
        :raises KeyError: if there is no such column; the message lists the columns.
        """
        by = [by] if isinstance(by, str) else by
        for name in (column, *by):
            if name not in self.table.column_names:
                raise KeyError(f"{name}: no such column; expected one of {', '.join(self.table.column_names)}")
        pa = arrow()
        kind = self.table.schema.field(column).type
        if column in (*self.columns, "error") or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise invalid("column", f"{column} has no numbers to average", "a column with statistics, such as mean_cct_s")
        groups: dict[tuple[Label, ...], list[dict[str, Any]]] = {}
        for row in self.table.select(list(dict.fromkeys([*by, "trace", "seed", "error", column]))).to_pylist():
            groups.setdefault(tuple(row[name] for name in by), []).append(row)
        means = []
        for labels, rows in groups.items():
            # A replay with a problem is no sample.
            values = [row for row in rows if row[column] is not None and row["error"] is None]
            unit = "trace" if len({row["trace"] for row in rows}) > 1 else "seed"
            samples = [sum(sample) / len(sample) for sample in _by_unit(values, unit, column)]
            means.append(dict(zip(by, labels, strict=True)) | _interval(samples) | {"missing": len(rows) - len(values)})
        return means

    def __repr__(self) -> str:
        replayed = len(self.table) - self.reused
        parts = [f"{len(self):,} points", f"{replayed:,} replayed", f"{self.reused:,} reused", f"{self.failed:,} failed"]
        missing = f", {self.missing:,} missing" if self.missing else ""
        lines = [f"weir.Sweep: {parts[0]}: {', '.join(parts[1:])}{missing}"]
        if isinstance(self._results, FolderResults):
            lines.append(f"folder: {self._results.folder}")
        if self.failed:
            row = self.table.filter(self.table.column("error").is_valid()).slice(0, 1).to_pylist()[0]
            labels = ", ".join(f"{name}={row[name]}" for name in self.columns if row[name] is not None)
            lines.append(f"first error: {labels}: {row['error']}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C stopped a sweep. ``result`` has the points that had finished."""

    def __init__(self, result: Sweep) -> None:
        super().__init__(f"interrupted; {result}")
        self.result = result


def _by_unit(rows: Sequence[dict[str, Any]], unit: str, column: str) -> Iterator[list[float]]:
    """The values of each unit; a trace's are means over its seeds."""
    units: dict[Label, dict[Label, list[float]]] = {}
    for row in rows:
        units.setdefault(row[unit], {}).setdefault(row["seed"], []).append(row[column])
    for seeds in units.values():
        yield [sum(values) / len(values) for values in seeds.values()]


def _interval(samples: Sequence[float]) -> dict[str, Any]:
    mean, half = _native.confidence_interval(samples) or (math.nan, math.nan)
    return {"mean": mean, "low": mean - half, "high": mean + half, "samples": len(samples)}
