"""Rows of results: in memory, or in a folder of Parquet files."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..optional import load

if TYPE_CHECKING:
    import pyarrow

#: A row by columns.
Columns = Mapping[str, Any]

#: The prefix of files with rows that a later run replaces.
_AGAIN = "again-"


def arrow() -> Any:
    """The module pyarrow."""
    load("pyarrow.parquet", "weir.sweep", "sweep")
    return load("pyarrow", "weir.sweep", "sweep")


def to_table(rows: Sequence[Columns]) -> pyarrow.Table:
    """The table of rows. Columns without values are left out, so that a column has one type in all files of a folder."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    return arrow().table({name: to_array([row.get(name) for row in rows]) for name in names})


def to_array(values: Sequence[Any]) -> pyarrow.Array:
    """The values as texts, truth values, integers or floats, whichever holds all of them."""
    pa = arrow()
    types = {type(value) for value in values if value is not None}
    if types == {bool}:
        return pa.array(values, pa.bool_())
    if types and types <= {int, bool}:
        numbers = [None if value is None else int(value) for value in values]
        is_large = any(number is not None and number >= 2**63 for number in numbers)
        return pa.array(numbers, pa.uint64() if is_large else pa.int64())
    if types and types <= {int, float, bool}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


class MemoryResults:
    """Rows that are lost with the program."""

    def __init__(self) -> None:
        arrow()
        self._tables: list[pyarrow.Table] = []

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def finished(self, keys: Collection[str]) -> set[str]:
        """The keys among ``keys`` whose replays are not to be repeated."""
        return set()

    def write(self, rows: Sequence[Columns], again: Sequence[Columns]) -> None:
        """Adds rows; a later run repeats the replays of ``again``."""
        self._tables += [to_table(part) for part in (rows, again) if part]

    def read(self) -> pyarrow.Table:
        """All rows."""
        return _concatenated(self._tables)


class FolderResults:
    """Rows in Parquet files of a folder. A file gets its name once it is complete."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        arrow()
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other sweeps from writing to the folder, and removes incomplete files of those that ended early."""
        with open(self.folder / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(
                    f"out: {self.folder}: another sweep writes to this folder; help: wait for its end, or choose another folder"
                ) from None
            for file in self.folder.glob(".incomplete-*"):
                file.unlink()
            yield

    def finished(self, keys: Collection[str]) -> set[str]:
        """The keys among ``keys`` whose replays are not to be repeated. Removes the rows of those that are to be."""
        self._remove_rows_to_repeat(set(keys))
        found: set[str] = set()
        for file in self._files():
            table = self._table_of(file, ["key"])
            found.update(table.column("key").to_pylist() if table is not None else [])
        return found.intersection(keys)

    def _remove_rows_to_repeat(self, keys: set[str]) -> None:
        for file in self._files(_AGAIN):
            table = self._table_of(file)
            if table is None:
                continue
            others = [row for row in table.to_pylist() if row["key"] not in keys]
            if len(others) < len(table):
                if others:
                    self._write(_AGAIN, others)
                file.unlink()

    def write(self, rows: Sequence[Columns], again: Sequence[Columns]) -> None:
        """Writes a file for each kind of rows; a later run repeats the replays of ``again``."""
        for prefix, part in (("", rows), (_AGAIN, again)):
            if part:
                self._write(prefix, part)

    def _write(self, prefix: str, rows: Sequence[Columns]) -> None:
        digest = hashlib.sha256("".join(row["key"] for row in rows).encode()).hexdigest()[:24]
        incomplete = self.folder / f".incomplete-{digest}"
        with open(incomplete, "wb") as file:
            arrow().parquet.write_table(to_table(rows), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(incomplete, self.folder / f"{prefix}{digest}.parquet")

    def read(self) -> pyarrow.Table:
        """All rows of the folder, also those of other sweeps."""
        tables = [self._table_of(file) for file in self._files()]
        return _concatenated([table for table in tables if table is not None])

    def _files(self, prefix: str = "") -> list[Path]:
        return sorted(file for file in self.folder.glob("*.parquet") if file.name.startswith(prefix) and file.name[0] != ".")

    def _table_of(self, file: Path, columns: list[str] | None = None) -> pyarrow.Table | None:
        """The rows of a file. A damaged file gets another name, so that its points are replayed again."""
        pa = arrow()
        try:
            return pa.parquet.ParquetFile(file).read(columns)
        except pa.ArrowInvalid as error:
            damaged = file.with_name(f".{file.name}.damaged")
            os.replace(file, damaged)
            warnings.warn(f"{file}: damaged ({error}); renamed to {damaged.name}, and its points are replayed again", stacklevel=2)
            return None


def _concatenated(tables: Sequence[pyarrow.Table]) -> pyarrow.Table:
    pa = arrow()
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({"key": pa.array([], pa.string())})
