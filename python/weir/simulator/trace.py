"""Coflows: traces, jobs and services."""

from __future__ import annotations

import os
import warnings

from .. import _native


class Trace:
    """The coflows of a trace, of jobs, of services, or of several of these."""

    def __init__(self, native: _native.Trace) -> None:
        self._native = native

    @classmethod
    def read(
        cls,
        *files: str | os.PathLike[str],
        unit: str | None = None,
        max_flows: int | None = None,
        keep_arrivals: bool = False,
    ) -> Trace:
        """Reads a trace in any format of ``weir trace convert``, a file of jobs, one of services, or several of these.

        :param unit: the unit of sizes in a coflow-benchmark trace: ``"MB"`` (default) or ``"MiB"``.
        :param max_flows: the maximum number of flows.
        :param keep_arrivals: keep times such as Unix times; by default late times are counted from an earlier origin.
        :raises InputError: if a file is invalid; its attributes name file, line, value and expectation.
        """
        native = _native.Trace.read(list(files), unit=unit, max_flows=max_flows, keep_arrivals=keep_arrivals)
        for warning in native.warnings:
            warnings.warn(warning, stacklevel=2)
        return cls(native)

    @property
    def name(self) -> str:
        """The names of the files."""
        return self._native.name

    @property
    def ports(self) -> int:
        """Number of ports."""
        return self._native.ports

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        return f"weir.Trace: {self._native.caption}"
