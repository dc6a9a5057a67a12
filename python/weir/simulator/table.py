"""Tables of results in Arrow's columns."""

from __future__ import annotations

import html
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import _native
from .optional import load

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: The number of rows that a table shows.
SHOWN_ROWS = 10


class Table:
    """A table that does not change.

    Libraries such as polars, pandas, pyarrow and DuckDB read it without a copy by Arrow's PyCapsule interface:
    ``polars.DataFrame(table)``, ``pyarrow.table(table)``. Texts are dictionary-encoded.
    """

    def __init__(self, native: _native.Table) -> None:
        self._native = native

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._native.columns

    @property
    def nbytes(self) -> int:
        """The bytes of all columns in memory."""
        return self._native.nbytes

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column as a list, with ``None`` where a value is missing.

        :raises KeyError: if there is no such column; the message lists the columns.
        """
        return self._native.column(column)

    def __contains__(self, column: object) -> bool:
        return column in self.columns

    def __iter__(self) -> Iterator[str]:
        """The names of the columns, as of a dictionary."""
        return iter(self.columns)

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        names = self.columns
        return [dict(zip(names, row, strict=True)) for row in zip(*(self[name] for name in names), strict=True)]

    def to_pyarrow(self) -> pyarrow.Table:
        """The table of pyarrow, which shares the memory."""
        table: pyarrow.Table = load("pyarrow", "Table.to_pyarrow").table(self)
        return table

    def to_pandas(self) -> pandas.DataFrame:
        """The frame of pandas; needs pyarrow. Texts are categories, and whole numbers with missing values have the type ``UInt64``."""
        arrays = load("pandas", "Table.to_pandas")
        table = self.to_pyarrow()
        frame: pandas.DataFrame = table.to_pandas()
        for field, column in zip(table.schema, table.columns, strict=True):
            # pandas would round these to floating-point numbers.
            if str(field.type) == "uint64" and column.null_count > 0:
                frame[field.name] = arrays.array(column.to_pylist(), dtype="UInt64")
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The frame of polars."""
        frame: polars.DataFrame = load("polars", "Table.to_polars").DataFrame(self)
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def __reduce__(self) -> tuple[object, tuple[object]]:
        return restore_table, (self._native.state(),)

    def _shown(self) -> tuple[list[list[str]], list[str]]:
        """The first rows as texts, each column with its name, and the names of the columns that have no value in them."""
        first = self._native.head(SHOWN_ROWS)
        columns, empty = [], []
        for name in self.columns:
            values = first.column(name)
            if values and all(value is None for value in values):
                empty.append(name)
            else:
                columns.append([name, *map(_cell, values)])
        return columns, empty

    def __repr__(self) -> str:
        columns, empty = self._shown()
        widths = [max(map(len, column)) for column in columns]
        # As many columns as a line of the terminal has room for.
        room, shown = shutil.get_terminal_size((140, 24)).columns, 1
        while shown < len(columns) and sum(widths[: shown + 1]) + 2 * shown <= room:
            shown += 1
        rows = zip(*([text.rjust(width) for text in column] for column, width in zip(columns[:shown], widths, strict=False)), strict=True)
        lines = ["  ".join(row).rstrip() for row in rows]
        if len(self) > SHOWN_ROWS:
            lines.append("...")
        hidden = [column[0] for column in columns[shown:]]
        lines += [f"more columns: {', '.join(hidden)}"] if hidden else []
        lines += [f"columns without values in these rows: {', '.join(empty)}"] if empty else []
        return "\n".join([f"weir.Table: {_rows(len(self))}", *lines])

    def _repr_html_(self) -> str:
        columns, empty = self._shown()
        first, *rest = [[html.escape(text) for text in row] for row in zip(*columns, strict=True)]
        head = "".join(f"<th>{text}</th>" for text in first)
        body = "".join("<tr>" + "".join(f"<td>{text}</td>" for text in row) + "</tr>" for row in rest)
        caption = _rows(len(self)) + (f"; the first {SHOWN_ROWS}:" if len(self) > SHOWN_ROWS else "")
        note = f"<p>Columns without values in these rows: {', '.join(map(html.escape, empty))}</p>" if empty else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<p>{caption}</p><div style='overflow-x:auto'>{table}</div>{note}"


def restore_table(columns: list[tuple[str, str, list[Any]]]) -> Table:
    """The table of columns, each with name, type (``"text"``, ``"integer"`` or ``"number"``) and values."""
    return Table(_native.Table.restore(columns))


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
