"""Coflows: traces, jobs and services."""

from __future__ import annotations

import html
import json
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from .. import _native
from .files import write_file
from .table import Table

__all__ = ["Trace"]

#: The columns of a table of flows: from fields (``src``, ``dst``, ``bytes``, and optionally ``start``, ``coflow``, ``service``,
#: ``application``, ``weight`` and ``deadline``) to names of columns. Times and sizes can have a unit: ``"start_ms:ms"`` or
#: ``("start_ms", "ms")``. Text such as ``"src=from,dst=to,bytes=size:kB"`` is the same as for ``weir trace convert --columns``.
Columns = Mapping[str, str | tuple[str, str]] | str

#: The formats of ``weir trace convert --from``.
Format = Literal["coflow-benchmark", "weir", "sunflow", "sincronia", "htsim", "hpcc", "spark", "flows"]

#: The formats in which traces are written.
OutputFormat = Literal["coflow-benchmark", "weir"]

#: Fields, the names of columns that :meth:`Trace.from_frame` finds by itself, and no unit.
FRAME_COLUMNS: list[tuple[str, list[str], str | None]] = [
    ("start", ["start", "start_s"], None),
    ("src", ["src"], None),
    ("dst", ["dst"], None),
    ("bytes", ["bytes"], None),
    ("coflow", ["coflow"], None),
    ("service", ["service"], None),
    ("application", ["application"], None),
    ("weight", ["weight"], None),
    ("deadline", ["deadline", "deadline_s"], None),
]


class Trace:
    """The coflows of a trace, of jobs, of services, or of several of these. They do not change.

    >>> import weir
    >>> weir.Trace.read("examples/demo.txt")
    weir.Trace: examples/demo.txt: 200 coflows, 15301 flows, 364.0 GB on 50 ports (coflow-benchmark format, MB = 1000000 bytes)
    """

    def __init__(self, native: _native.Trace) -> None:
        if not isinstance(native, _native.Trace):
            raise TypeError("expected Trace.read, Trace.generate, Trace.from_frame or Trace.from_bytes in place of Trace")
        self._native = native
        #: The files and the arguments of :meth:`read`, for other processes.
        self._read: tuple[tuple[str, ...], dict[str, Any]] | None = None

    @classmethod
    def read(
        cls,
        *files: str | os.PathLike[str],
        unit: str | None = None,
        max_flows: int | None = None,
        keep_arrivals: bool = False,
        format: Format | None = None,
        columns: Columns | None = None,
        local_flows: Literal["keep", "drop"] | None = None,
    ) -> Trace:
        """Reads a trace in any format of ``weir trace convert``, a file of jobs, one of services, or several of these.

        :param unit: the unit of sizes in a coflow-benchmark trace: ``"MB"`` (default) or ``"MiB"``.
        :param max_flows: the maximum number of flows; 5 million by default.
        :param keep_arrivals: keep the times of coflows that all arrive after 10^6 s, up to 10^9 s; by default, late times such as Unix
            times are counted from an earlier origin.
        :param format: the format, if the first lines do not show it: ``"sincronia"``.
        :param columns: the columns of a table of flows, such as CSV.
        :param local_flows: flows from a port to itself: ``"keep"`` (default in the coflow-benchmark format and in Weir's own), so that they
            use the port in both directions, or ``"drop"`` (default in formats of other programs), which sets their bytes to 0.
        :raises InputError: if a file is invalid or cannot be read; its attributes name file, line, value and expectation.
        """
        arguments = _read_arguments(unit, max_flows, keep_arrivals, format, columns, local_flows)
        trace = cls(_native.Trace.read(list(files), arguments))
        trace._warn()
        trace._read = tuple(os.fspath(file) for file in files), arguments
        return trace

    @classmethod
    def from_bytes(
        cls,
        data: bytes | bytearray,
        *,
        name: str = "bytes",
        unit: str | None = None,
        max_flows: int | None = None,
        keep_arrivals: bool = False,
        format: Format | None = None,
        columns: Columns | None = None,
        local_flows: Literal["keep", "drop"] | None = None,
    ) -> Trace:
        """Reads a trace as :meth:`read`, from the bytes of a file, which can be compressed by gzip or Zstandard.

        :param name: the name in errors and results.
        :raises InputError: if the bytes are no valid trace.
        """
        arguments = _read_arguments(unit, max_flows, keep_arrivals, format, columns, local_flows)
        trace = cls(_native.Trace.from_bytes(data, name, arguments))
        trace._warn()
        return trace

    @classmethod
    def from_frame(
        cls,
        frame: object,
        *,
        columns: Columns | None = None,
        name: str = "frame",
        max_flows: int | None = None,
        keep_arrivals: bool = False,
        local_flows: Literal["keep", "drop"] | None = None,
    ) -> Trace:
        """Reads a table with a flow in each row: a frame of pandas or polars, a table of pyarrow or DuckDB, or a dictionary of lists.

        Flows with the same value in ``coflow`` are one coflow, which arrives with the first of them; without that column each flow is
        one. If all hosts are different whole numbers, these are the ports; otherwise the trace keeps their names (``1`` and ``01`` are two
        hosts), and over a fabric whose hosts have these names, ports are matched by name. Times (``start``, ``deadline``) are in seconds
        and ``bytes`` in bytes, unless their column states a unit; columns of timestamps have a unit. ``deadline`` is the time from the
        release of the coflow (Saath, CoNEXT '17, section 4.2, and Varys, SIGCOMM '14, section 5, have deadlines of coflows). Missing values
        (also NaN) of ``service``, ``application``, ``weight`` and ``deadline`` are defaults; other columns have a value in each row.

        >>> flows = {"src": ["a", "a"], "dst": ["b", "c"], "size": [20, 30]}
        >>> Trace.from_frame(flows, columns={"src": "src", "dst": "dst", "bytes": "size:kB"})
        weir.Trace: frame: 2 coflows, 2 flows, 50.00 kB on 3 ports (a table of flows)

        :param columns: the names of the columns; by default those named as the fields, such as ``src``, and ``start_s`` and
            ``deadline_s``: those of :attr:`flows`.
        :param name: the name in errors and results.
        :param max_flows: the maximum number of flows; 5 million by default.
        :param keep_arrivals: keep times up to 10^9 s; by default, late times such as Unix times are counted from an earlier origin.
        :param local_flows: ``"keep"`` the bytes of flows from a host to itself, or ``"drop"`` them (default).
        :raises InputError: if a value is invalid; ``line`` is its row, from 1, and ``field`` its field.
        :raises TypeError: if the frame is no table.
        """
        if not isinstance(frame, dict) and not hasattr(frame, "__arrow_c_stream__"):
            expected = "a frame of pandas or polars, another table with Arrow's PyCapsule interface, or a dictionary of lists"
            raise TypeError(f"expected {expected}, not {type(frame).__name__}")
        fields = None if columns is None else [(field, [column], unit) for field, column, unit in _field_columns(columns)]
        arguments = _read_arguments(None, max_flows, keep_arrivals, None, None, local_flows)
        try:
            native = _native.Trace.from_frame(frame, fields or FRAME_COLUMNS, fields is None, name, arguments)
        except (ImportError, TypeError):
            # pandas gives Arrow's columns only with pyarrow, and polars gives columns without a type in another layout than Arrow's.
            lists = _lists(frame)
            if lists is None:
                raise
            native = _native.Trace.from_frame(lists, fields or FRAME_COLUMNS, fields is None, name, arguments)
        trace = cls(native)
        trace._warn()
        return trace

    @classmethod
    def generate(
        cls,
        *,
        preset: Literal["facebook", "small"] | None = None,
        seed: int = 1,
        ports: int | None = None,
        coflows: int | None = None,
        mappers: str | None = None,
        reducers: str | None = None,
        size: str | None = None,
        skew: str | None = None,
        arrival: str | None = None,
        cdf: str | os.PathLike[str] | None = None,
        load: float | None = None,
        port_rate: str = "1Gbit",
        incast_degree: int | None = None,
        incast_load: float | None = None,
        incast_size: str | None = None,
        services: int = 1,
        applications: int = 1,
        unit: str | None = None,
        max_flows: int | None = None,
        to: OutputFormat = "weir",
        name: str | None = None,
    ) -> Trace:
        """Generates a random trace: that of ``weir trace generate`` with the same options. The same seed gives the same trace.

        :param preset: ``"facebook"`` resembles the public trace, ``"small"`` (default) has the same shape on 50 ports.
        :param ports: the number of ports; that of the preset, or 50.
        :param coflows: the number of coflows; that of the preset, or 100.
        :param mappers: the distribution of the number of mappers of a coflow: ``constant:V``, ``uniform:MIN,MAX``, ``exponential:MEAN``,
            ``pareto:SHAPE,MIN,MAX`` or ``lognormal:MEDIAN,SIGMA,MIN,MAX``; by default ``uniform:1,10``.
        :param reducers: the distribution of the number of reducers, as ``mappers``.
        :param size: the distribution of the mean size of a coflow's reducers, in megabytes; by default ``lognormal:10,1.5,1,1000``.
        :param skew: the differences between a coflow's reducers: ``none`` (default), ``spread:FRACTION`` or ``zipf:EXPONENT``.
        :param arrival: ``poisson:MEAN``, ``every:GAP``, ``lognormal:MEDIAN,SIGMA`` or ``burst``, with units of times.
        :param cdf: the distribution of sizes: ``web-search``, ``data-mining``, ``cache-follower``, ``hadoop``
            (sources: ``docs/results/weir.md``), or a file with a size in bytes and a cumulative percentage in each line.
        :param load: the mean load of ports as a fraction of ``port_rate``, to which all gaps between arrivals are scaled.
        :param incast_degree: the number of senders of incasts, at times of a Poisson process with the mean load ``incast_load``.
        :param incast_size: what each sender of an incast sends, with a unit; by default ``500kB``.
        :param services: the number of services, of ``applications`` each, among which coflows are distributed.
        :param unit: the megabyte: ``"MB"`` (default) or ``"MiB"``.
        :param max_flows: the maximum number of flows; 5 million by default.
        :param to: the format whose resolution of sizes and arrivals the trace has, as ``--to`` of the command line.
        :param name: the name in results; by default such as ``small, seed 1``.
        :raises InputError: if a value is invalid, or arguments exclude each other.
        """
        # The native function takes arguments of the same names.
        arguments = {key: value for key, value in locals().items() if key not in ("cls", "name")}
        is_own = mappers is not None or reducers is not None or size is not None or skew is not None
        kind = cdf or ("generated" if is_own else preset or "small")
        return cls(_native.Trace.generate(f"{kind}, seed {seed}" if name is None else name, arguments))

    @classmethod
    def merge(cls, traces: Iterable[Trace], *, name: str | None = None, max_flows: int | None = None) -> Trace:
        """All coflows and events of several traces at their times, as ``weir trace merge``.

        Ports with the same name are the same; without names, those with the same number. Numbers of coflows and jobs that two traces have
        in common increase in the later one.

        :param name: the name in results; by default the names of the traces.
        :param max_flows: the maximum number of flows in total; 5 million by default.
        :raises InputError: if only some traces have names of ports, or a trace has jobs or services.
        """
        traces = list(traces)
        name = ", ".join(trace.name for trace in traces) if name is None else name
        return cls(_native.Trace.merge([trace._native for trace in traces], name, max_flows))

    def write(self, file: str | os.PathLike[str], *, to: OutputFormat | None = None, unit: str | None = None) -> None:
        """Writes the trace so that :meth:`read` and the command line read an equal one. The file appears once it is complete.

        :param to: the format; by default ``"weir"`` for files named ``*.weir``, else ``"coflow-benchmark"``.
        :param unit: the megabyte of the coflow-benchmark format: ``"MB"`` (default) or ``"MiB"``.
        :raises InputError: if the format cannot express the trace.
        :raises OSError: if the file cannot be written.
        """
        if to is None:
            to = "weir" if os.fspath(file).endswith(".weir") else "coflow-benchmark"
        write_file(file, self.to_bytes(to=to, unit=unit))

    def to_bytes(self, *, to: OutputFormat = "weir", unit: str | None = None) -> bytes:
        """The bytes of the file that :meth:`write` writes."""
        return self._native.to_bytes(to, unit)

    def describe(self, *, per_stage: bool = False) -> dict[str, Any]:
        """The record of ``weir trace describe --format json``: numbers, sizes, widths, bins and loads, as papers report them.

        Times are in seconds, sizes in bytes. The fields ``bin1`` to ``bin4`` are the fractions of coflows in the bins of Saath (CoNEXT '17,
        Table 1): at most 10 flows and 100 MB, more flows, more bytes, more of both. The page about output defines all fields.

        :param per_stage: first merge the coflows of each job, stage and wave (Saath, section 4.3).
        :raises InputError: if services send, whose connections have no sizes.
        """
        description: dict[str, Any] = json.loads(self._native.describe(per_stage))
        return description

    @property
    def coflows(self) -> Table:
        """A row for each coflow: number, job, stage, arrival in s, width in flows, size in bytes, service, weight, deadline in s, parents,
        and computing times in s."""
        return Table(self._native.coflows)

    @property
    def flows(self) -> Table:
        """A row for each flow: coflow, number in it, ports, size in bytes, start in s, and the service, weight and deadline of the coflow.

        :meth:`from_frame` with ``local_flows="keep"`` reads it. The start of a coflow with parents is the earliest one.
        """
        return Table(self._native.flows)

    @property
    def name(self) -> str:
        """The names of the files, or that of the trace."""
        return self._native.name

    @property
    def ports(self) -> int:
        """Number of ports."""
        return self._native.ports

    @property
    def port_names(self) -> list[str]:
        """The names of the ports, in their order; empty without names."""
        return self._native.port_names

    def __len__(self) -> int:
        """Number of coflows."""
        return len(self._native)

    def __repr__(self) -> str:
        return f"weir.Trace: {self._native.caption}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self._native.caption)}</p>{self.coflows._repr_html_()}"

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        state = self._native.state
        if state is not None:
            return restore_trace, (self.to_bytes(), self.name, state)
        # Jobs and services are more than their coflows.
        return _read_again, (self._read,)

    def _warn(self) -> None:
        for warning in self._native.warnings:
            # The caller of the function that calls this one.
            warnings.warn(warning, stacklevel=3)


def restore_trace(data: bytes, name: str, state: tuple[str, str | None, float]) -> Trace:
    """The trace of bytes in Weir's format, with the format, unit and shift of times in seconds of its original."""
    return Trace(_native.Trace.restore(data, name, state))


def _read_again(read: tuple[tuple[str, ...], dict[str, Any]]) -> Trace:
    files, arguments = read
    trace = Trace(_native.Trace.read(files, arguments))
    trace._read = read
    return trace


def _read_arguments(
    unit: str | None,
    max_flows: int | None,
    keep_arrivals: bool,
    format: str | None,
    columns: Columns | None,
    local_flows: str | None,
) -> dict[str, Any]:
    if columns is not None and not isinstance(columns, str):
        parts = [f"{field}={column}" + ("" if unit is None else f":{unit}") for field, column, unit in _field_columns(columns)]
        columns = ",".join(parts)
    return {
        "unit": unit,
        "max_flows": max_flows,
        "keep_arrivals": keep_arrivals,
        "format": format,
        "columns": columns,
        "local_flows": local_flows,
    }


def _field_columns(columns: Columns) -> list[tuple[str, str, str | None]]:
    """Fields, columns and units."""
    if isinstance(columns, str):
        pairs: list[tuple[str, str | tuple[str, str]]] = []
        for part in columns.split(","):
            field, _, column = part.partition("=")
            pairs.append((field, column))
    else:
        pairs = list(columns.items())
    found: list[tuple[str, str, str | None]] = []
    for field, value in pairs:
        if not isinstance(value, str):
            found.append((field, *value))
            continue
        # Only these fields have units, so that names of other columns can contain a colon.
        column, colon, unit = value.rpartition(":") if field in ("start", "bytes", "deadline") else ("", "", value)
        found.append((field, column, unit) if colon else (field, value, None))
    return found


def _lists(frame: Any) -> dict[str, list[Any]] | None:
    """The columns of a frame of pandas or polars as lists; ``None`` for another object."""
    names = getattr(frame, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return None
    return {name: list(frame[name]) for name in names}
