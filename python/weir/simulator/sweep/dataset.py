"""Rows of results, and those of their coflows: in memory, or in a folder of Parquet files."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..optional import load

if TYPE_CHECKING:
    import pyarrow

#: A row by columns.
Columns = Mapping[str, Any]

#: The key of a replay, and the rows of its coflows.
CoflowRows = tuple[str, "pyarrow.Table"]

#: The prefix of files with rows that a later run replaces.
_AGAIN = "again-"

#: The folder of coflows in a folder of results. Readers of a dataset leave out folders whose names begin so.
COFLOWS = "_coflows"

#: The metadata of a file of coflows: its replays in their order, as a list of keys and numbers of rows.
_REPLAYS = b"weir.replays"


class Results(Protocol):
    """Where rows are kept."""

    #: Whether the rows of coflows are kept.
    has_coflows: bool

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other sweeps from writing."""
        ...

    def finished(self, keys: Collection[str]) -> set[str]:
        """The keys among ``keys`` whose replays are not to be repeated."""
        ...

    def write(self, rows: Sequence[Columns], again: Sequence[Columns], coflows: Sequence[CoflowRows]) -> None:
        """Adds rows; a later run repeats the replays of ``again``."""
        ...

    def read(self) -> pyarrow.Table:
        """All rows, also those of other sweeps."""
        ...

    def read_coflows(self, keys: Collection[str]) -> Iterator[CoflowRows]:
        """The coflows of replays."""
        ...



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

    def __init__(self, *, coflows: bool) -> None:
        arrow()
        self.has_coflows = coflows
        self._tables: list[pyarrow.Table] = []
        self._coflows: list[CoflowRows] = []

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def finished(self, keys: Collection[str]) -> set[str]:
        return set()

    def write(self, rows: Sequence[Columns], again: Sequence[Columns], coflows: Sequence[CoflowRows]) -> None:
        self._tables += [to_table(part) for part in (rows, again) if part]
        self._coflows += coflows

    def read(self) -> pyarrow.Table:
        return _concatenated(self._tables)

    def read_coflows(self, keys: Collection[str]) -> Iterator[CoflowRows]:
        return ((key, rows) for key, rows in self._coflows if key in keys)


class FolderResults:
    """Rows in Parquet files of a folder. A file gets its name once it is complete."""

    def __init__(self, folder: str | os.PathLike[str], *, coflows: bool) -> None:
        arrow()
        self.has_coflows = coflows
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        #: The keys of rows, and of coflows, that the folder has. A replay that lacks coflows only is repeated for these.
        self._kept: set[str] = set()
        self._kept_coflows: set[str] = set()

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
            for file in [*self.folder.glob(".incomplete-*"), *self.folder.glob(f"{COFLOWS}/.incomplete-*")]:
                file.unlink()
            yield

    def finished(self, keys: Collection[str]) -> set[str]:
        """The keys among ``keys`` whose replays are not to be repeated. Removes the rows of those that are to be."""
        self._remove_rows_to_repeat(set(keys))
        failed: set[str] = set()
        for file in self._files():
            table = self._table_of(file, ["key", "error"])
            if table is not None:
                self._kept.update(table.column("key").to_pylist())
                if "error" in table.column_names:
                    failed.update(table.filter(table.column("error").is_valid()).column("key").to_pylist())
        finished = self._kept.intersection(keys)
        if self.has_coflows:
            self._kept_coflows.update(key for file in self._coflow_files() for key, _ in self._replays_of(file))
            finished &= self._kept_coflows | failed
        return finished

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

    def write(self, rows: Sequence[Columns], again: Sequence[Columns], coflows: Sequence[CoflowRows]) -> None:
        """Writes a file for each kind of rows, those of coflows first: a replay is finished once its row is there."""
        new = [(key, table) for key, table in coflows if key not in self._kept_coflows]
        if new:
            (self.folder / COFLOWS).mkdir(exist_ok=True)
            self._write_file(self.folder / COFLOWS, "", [key for key, _ in new], _coflow_table(new))
        for prefix, part in (("", [row for row in rows if row["key"] not in self._kept]), (_AGAIN, again)):
            if part:
                self._write(prefix, part)

    def _write(self, prefix: str, rows: Sequence[Columns]) -> None:
        self._write_file(self.folder, prefix, [row["key"] for row in rows], to_table(rows))

    @staticmethod
    def _write_file(folder: Path, prefix: str, keys: Sequence[str], table: pyarrow.Table) -> None:
        digest = hashlib.sha256("".join(keys).encode()).hexdigest()[:24]
        incomplete = folder / f".incomplete-{digest}"
        with open(incomplete, "wb") as file:
            arrow().parquet.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(incomplete, folder / f"{prefix}{digest}.parquet")

    def read(self) -> pyarrow.Table:
        tables = [self._table_of(file) for file in self._files()]
        return _concatenated([table for table in tables if table is not None])

    def read_coflows(self, keys: Collection[str]) -> Iterator[CoflowRows]:
        for file in self._coflow_files():
            replays = self._replays_of(file)
            table = self._table_of(file) if any(key in keys for key, _ in replays) else None
            if table is None:
                continue
            start = 0
            for key, count in replays:
                if key in keys:
                    yield key, table.slice(start, count).drop_columns(["key"])
                start += count

    def _coflow_files(self) -> list[Path]:
        return _parquet_files(self.folder / COFLOWS)

    def _replays_of(self, file: Path) -> list[tuple[str, int]]:
        """The replays in a file of coflows, and the numbers of their rows."""
        schema = self._read_or_rename(file, lambda parquet: parquet.schema_arrow)
        return [] if schema is None else [(key, count) for key, count in json.loads(schema.metadata[_REPLAYS])]

    def _files(self, prefix: str = "") -> list[Path]:
        return _parquet_files(self.folder, prefix)

    def _table_of(self, file: Path, columns: list[str] | None = None) -> pyarrow.Table | None:
        table: pyarrow.Table | None = self._read_or_rename(file, lambda parquet: parquet.read(columns))
        return table

    @staticmethod
    def _read_or_rename(file: Path, read: Callable[[Any], Any]) -> Any:
        """What ``read`` returns. A damaged file gets another name, so that its points are replayed again."""
        pa = arrow()
        try:
            return read(pa.parquet.ParquetFile(file))
        except pa.ArrowInvalid as error:
            damaged = file.with_name(f".{file.name}.damaged")
            os.replace(file, damaged)
            warnings.warn(f"{file}: damaged ({error}); renamed to {damaged.name}, and its points are replayed again", stacklevel=2)
            return None


def _parquet_files(folder: Path, prefix: str = "") -> list[Path]:
    return sorted(file for file in folder.glob("*.parquet") if file.name.startswith(prefix) and file.name[0] != ".")


def _coflow_table(coflows: Sequence[CoflowRows]) -> pyarrow.Table:
    """The coflows of all replays, with the keys of these."""
    pa = arrow()
    replays = [(key, len(table)) for key, table in coflows]
    indices = pa.array([number for number, (_, count) in enumerate(replays) for _ in range(count)], pa.int32())
    keys = pa.DictionaryArray.from_arrays(indices, pa.array([key for key, _ in replays], pa.string()))
    rows = pa.concat_tables([table for _, table in coflows])
    return rows.add_column(0, "key", keys).replace_schema_metadata({_REPLAYS: json.dumps(replays).encode()})


def _concatenated(tables: Sequence[pyarrow.Table]) -> pyarrow.Table:
    pa = arrow()
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({"key": pa.array([], pa.string())})
