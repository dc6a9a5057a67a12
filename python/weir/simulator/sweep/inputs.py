"""Files of a sweep as bytes, which travel to workers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError

#: Files that another file names, relative to itself: a fabric, or the table for Saba.
_REFERENCE = re.compile(rb"\b(?:fabric|sensitivity)\s*=\s*(?:\"([^\"\n]+)\"|'([^'\n]+)')")

#: Files that name others are smaller.
_MAX_REFERRING_BYTES = 8 << 20


def invalid(field: str, problem: str, expected: str) -> InputError:
    """The error for an argument or a key with an invalid value."""
    return InputError(f"{field}: {problem}; expected {expected}", field=field, expected=expected)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file.

    :raises InputError: if the file cannot be read; the :class:`OSError` is the cause.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: cannot be read: {error.strerror}", file=os.fspath(path)) from error


#: The format of a trace, its unit and the shift of its times in seconds.
TraceState = tuple[str, str | None, float]


class Content:
    """The bytes of one or several files, and of the files that these name."""

    def __init__(self, files: Sequence[tuple[str, bytes]], count: int, state: TraceState | None = None) -> None:
        #: Paths relative to a common folder, and bytes. The first ``count`` are those that a caller names.
        self.files = tuple(files)
        self.count = count
        #: What a trace in memory has in addition to the bytes of its only file.
        self.state = state
        digest = hashlib.sha256(f"{count};{state or ''}".encode())
        for _, data in self.files:
            digest.update(b"%d;" % len(data))
            digest.update(data)
        #: The SHA-256 checksum of the bytes; names do not change results.
        self.checksum = digest.hexdigest()
        self.nbytes = sum(len(data) for _, data in self.files)

    @classmethod
    def read(cls, paths: Sequence[str | os.PathLike[str]]) -> Content:
        """Reads files, and those that they name.

        :raises InputError: if a file cannot be read.
        """
        data = {Path(os.path.abspath(path)): read_file(path) for path in paths}
        named = list(data)
        for path in named:
            for reference in _references(path, data[path]):
                data.setdefault(reference, read_file(reference))
        base = os.path.commonpath([path.parent for path in data])
        return cls([(os.path.relpath(path, base), data[path]) for path in data], len(named))

    def write(self, folder: str | os.PathLike[str]) -> list[str]:
        """Writes the files to a folder, and returns the paths of those that the caller has named."""
        paths = [Path(folder, name) for name, _ in self.files]
        for path, (_, data) in zip(paths, self.files, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return [str(path) for path in paths[: self.count]]


def _references(path: Path, data: bytes) -> list[Path]:
    if len(data) > _MAX_REFERRING_BYTES:
        return []
    names = [os.fsdecode(match[1] or match[2]) for match in _REFERENCE.finditer(data)]
    paths = [Path(os.path.abspath(path.parent / name)) for name in names]
    return [path for path in paths if path.is_file()]
