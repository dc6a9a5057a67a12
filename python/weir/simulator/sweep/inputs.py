"""Files of a sweep as bytes, which travel to workers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from ..errors import InputError

#: Files that another file names, relative to itself: a fabric, or the table for Saba.
_REFERENCE = re.compile(rb"\b(?:fabric|sensitivity)\s*=\s*(?:\"([^\"\n]+)\"|'([^'\n]+)')")

#: Files that name others are smaller.
_MAX_REFERRING_BYTES = 8 << 20


#: Bytes of files that a worker keeps, a cluster, and the program that sweeps. A trace needs about ten times the memory of its file.
KEPT_BYTES = 32 << 20

Kept = TypeVar("Kept")


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


#: Returns the files with a checksum.
Files = Callable[[str], Content]


class RecentFiles(Generic[Kept]):
    """What belongs to files, by their checksum, the most recently used last."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Kept, int]] = {}

    def get(self, checksum: str) -> Kept | None:
        """What belongs to the files, if it is kept."""
        found = self._kept.pop(checksum, None)
        if found is None:
            return None
        self._kept[checksum] = found
        return found[0]

    def add(self, checksum: str, value: Kept, nbytes: int) -> Kept:
        """Keeps a value for files of this size."""
        self._kept[checksum] = value, nbytes
        return value

    def drop_oldest(self, needed: int) -> None:
        """Keeps the ``needed`` most recently used files, and others as long as all have at most :data:`KEPT_BYTES`."""
        while len(self._kept) > needed and sum(size for _, size in self._kept.values()) > KEPT_BYTES:
            del self._kept[next(iter(self._kept))]


def _references(path: Path, data: bytes) -> list[Path]:
    if len(data) > _MAX_REFERRING_BYTES:
        return []
    names = [os.fsdecode(match[1] or match[2]) for match in _REFERENCE.finditer(data)]
    paths = [Path(os.path.abspath(path.parent / name)) for name in names]
    return [path for path in paths if path.is_file()]
