"""Tables of results in Arrow's columns."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from .. import _native

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

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        names = self.columns
        return [dict(zip(names, row, strict=True)) for row in zip(*(self[name] for name in names), strict=True)]

    def to_pyarrow(self) -> pyarrow.Table:
        """The table of pyarrow, which shares the memory."""
        import pyarrow

        return pyarrow.table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """The frame of pandas; needs pyarrow."""
        return self.to_pyarrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The frame of polars."""
        import polars

        return polars.DataFrame(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def _shown(self) -> list[list[str]]:
        def cell(value: object) -> str:
            return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

        shown = self._native.head(SHOWN_ROWS)
        columns = [[name, *map(cell, shown.column(name))] for name in self.columns]
        return [list(row) for row in zip(*columns, strict=True)]

    def __repr__(self) -> str:
        rows = self._shown()
        widths = [max(len(row[at]) for row in rows) for at in range(len(self.columns))]
        lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([f"weir.Table: {len(self)} rows", *lines, *(["..."] if len(self) > SHOWN_ROWS else [])])

    def _repr_html_(self) -> str:
        def line(row: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row) + "</tr>"

        first, *rest = self._shown()
        body = "".join(line(row, "td") for row in rest)
        return f"<p>{len(self)} rows</p><table><thead>{line(first, 'th')}</thead><tbody>{body}</tbody></table>"
