"""Errors of the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Result

__all__ = ["InputError", "Interrupted", "ReplayError"]


class InputError(ValueError):
    """A file, a parameter or a value is invalid.

    The message is that of the command line. Attributes are ``None`` if the message has no such part. If a file cannot be read, the
    :class:`OSError` is the ``__cause__``.
    """

    file: str | None
    """The file, or the name of another input, such as ``frame``."""

    line: int | None
    """The line of the file, or the row of a table, from 1."""

    field: str | None
    """The field, the parameter or the column."""

    value: str | None
    """The invalid value as text, shortened to 60 characters."""

    expected: str | None
    """The expected value."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        value: str | None = None,
        expected: str | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.field = field
        self.value = value
        self.expected = expected


class ReplayError(RuntimeError):
    """A replay failed: a policy of one's own decided something invalid, or coflows cannot complete.

    If a policy written in Python raised, its exception is the ``__cause__``.
    """


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a comparison."""

    result: Result | None
    """The policies that had finished; ``None`` if none had."""

    def __init__(self, result: Result | None) -> None:
        missing = f"; without results: {', '.join(result.missing)}" if result and result.missing else ""
        super().__init__(f"interrupted{missing}")
        self.result = result

    def __reduce__(self) -> tuple[object, tuple[Result | None]]:
        return Interrupted, (self.result,)
