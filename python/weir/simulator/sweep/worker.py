"""Replays points of a sweep, in the process of a worker."""

from __future__ import annotations

import multiprocessing.util
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..._native import __version__
from ..compare import compare
from ..errors import Interrupted, ReplayError
from ..policy import spec_text
from ..result import Result
from ..trace import Trace, restore_trace
from .inputs import Content

#: Bytes of files that a worker keeps, and a cluster. A trace needs about ten times the memory of its file.
KEPT_BYTES = 128 << 20

#: Errors that the inputs determine: a later run does not repeat the replay. Others, such as a lack of memory, depend on the worker.
_FINAL_ERRORS = (ValueError, TypeError, OverflowError, ReplayError)


@dataclass(frozen=True)
class PolicyRef:
    """A policy as workers need it: a specification, the checksum of the file of a tree, and the classes that these name."""

    spec: str
    tree: str | None = None
    classes: tuple[type, ...] = ()


@dataclass(frozen=True)
class Replay:
    """A policy to replay, and the key of its row."""

    key: str
    policy: PolicyRef


@dataclass(frozen=True)
class Group:
    """Replays of one trace that share a call of ``compare``."""

    options: dict[str, Any]
    #: Options whose values are files, as checksums.
    files: dict[str, str]
    replays: tuple[Replay, ...]


@dataclass(frozen=True)
class Task:
    """What a worker does at a time: groups of one trace."""

    version: str
    #: The sweep: an interrupted worker starts no more of its tasks.
    run: str
    trace: str
    baseline: PolicyRef | None
    groups: tuple[Group, ...]

    def __len__(self) -> int:
        return sum(len(group.replays) for group in self.groups)

    def checksums(self) -> list[str]:
        """The checksums of all files that the task needs."""
        policies = [self.baseline, *(replay.policy for group in self.groups for replay in group.replays)]
        trees = [policy.tree for policy in policies if policy is not None and policy.tree is not None]
        files = [checksum for group in self.groups for checksum in group.files.values()]
        return list(dict.fromkeys([self.trace, *files, *trees]))


@dataclass(frozen=True)
class Row:
    """The result of a replay."""

    key: str
    #: The record of :attr:`Result.summary`; ``None`` if the replay failed.
    record: dict[str, Any] | None
    error: str | None = None
    #: Whether a later run has to repeat the replay.
    again: bool = False


@dataclass
class Outcome:
    """The results of a task."""

    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    #: Whether Ctrl-C has stopped the task, which has rows of the finished replays then.
    interrupted: bool = False
    #: Checksums of files that this worker does not have. The task did nothing.
    missing: list[str] = field(default_factory=list)


class LocalFiles:
    """Files on this machine. Those of a temporary folder exist as long as this object."""

    def __init__(self, paths: Sequence[str], nbytes: int, trace: Trace | None = None) -> None:
        self.paths = list(paths)
        self.nbytes = nbytes
        #: The temporary folder, which no message needs.
        self.folder: str | None = None
        self._trace = trace
        self._lock = threading.Lock()

    @classmethod
    def of_content(cls, content: Content) -> LocalFiles:
        if content.state is not None:
            name, data = content.files[0]
            return cls([], content.nbytes, restore_trace(data, name, content.state))
        folder = tempfile.mkdtemp(prefix="weir-")
        files = cls(content.write(folder), content.nbytes)
        files.folder = folder
        remove = weakref.finalize(files, _remove_folder, folder, os.getpid())
        # A worker of a pool exits without the functions of atexit.
        multiprocessing.util.Finalize(None, remove, exitpriority=0)
        return files

    def trace(self) -> Trace:
        """The coflows of the files, which are parsed once."""
        with self._lock:
            if self._trace is None:
                self._trace = Trace.read(*self.paths)
            return self._trace


def _remove_folder(folder: str, owner: int) -> None:
    """Removes a temporary folder of the process ``owner``; a forked process inherits the objects that use it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class _Cache:
    """The files of a process by checksum, the most recently used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, LocalFiles] = {}

    def add(self, checksum: str, files: LocalFiles) -> None:
        """Keeps files, and drops the oldest ones beyond the limit."""
        with self._lock:
            self._files[checksum] = files
            self._drop_oldest(1)

    def get(self, checksums: Sequence[str], contents: Sequence[Content]) -> dict[str, LocalFiles]:
        """The files that the process has, or receives here."""
        with self._lock:
            for content in contents:
                if content.checksum not in self._files:
                    self._files[content.checksum] = LocalFiles.of_content(content)
            found = {checksum: self._files.pop(checksum) for checksum in checksums if checksum in self._files}
            self._files.update(found)
            self._drop_oldest(len(found))
            return found

    def _drop_oldest(self, kept: int) -> None:
        excess = sum(files.nbytes for files in self._files.values()) - KEPT_BYTES
        for checksum in list(self._files)[: len(self._files) - kept]:
            if excess <= 0:
                return
            excess -= self._files.pop(checksum).nbytes


#: The files of this process.
CACHE = _Cache()


#: Sweeps that Ctrl-C has stopped in this process. A pool has given it further tasks.
_INTERRUPTED: set[str] = set()


def run_task(task: Task, *contents: Content) -> Outcome:
    """Replays the points of a task. ``contents`` are files that this process may not have."""
    if task.run in _INTERRUPTED:
        return Outcome(interrupted=True)
    if task.version != __version__:
        raise RuntimeError(f"a worker has weir {__version__}, expected {task.version} as in the program that sweeps")
    needed = task.checksums()
    files = CACHE.get(needed, contents)
    missing = [checksum for checksum in needed if checksum not in files]
    if missing:
        return Outcome(missing=missing)
    start = time.perf_counter()
    rows: list[Row] = []
    interrupted = False
    try:
        for group in task.groups:
            for row in _run_group(task, group, files):
                rows.append(row)
    except KeyboardInterrupt:
        interrupted = True
        _INTERRUPTED.add(task.run)
    return Outcome(rows, time.perf_counter() - start, interrupted)


def _run_group(task: Task, group: Group, files: dict[str, LocalFiles]) -> Iterator[Row]:
    try:
        trace = files[task.trace].trace()
        options: dict[str, Any] = group.options | {name: files[checksum].paths[0] for name, checksum in group.files.items()}
        policies = [_local_policy(replay.policy, files) for replay in group.replays]
        baseline = None if task.baseline is None else _local_policy(task.baseline, files)
        result = compare(trace, policies, baseline=baseline, **options, timing=False, progress=False)
    except Interrupted as interrupt:
        if isinstance(interrupt.result, Result):
            yield from _rows(group, files, interrupt.result)
        raise
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # also a panic of the native module
        first, *others = group.replays
        if not others:
            yield _failed_row(first.key, error, files)
            return
        # One policy can fail all of them.
        for replay in group.replays:
            yield from _run_group(task, Group(group.options, group.files, (replay,)), files)
    else:
        yield from _rows(group, files, result)


def _failed_row(key: str, error: BaseException, files: dict[str, LocalFiles]) -> Row:
    is_final = isinstance(error, _FINAL_ERRORS) and not isinstance(error.__cause__, OSError)
    text = str(error) if is_final else f"{type(error).__name__}: {error}"
    for local in files.values():
        text = text if local.folder is None else text.replace(f"{local.folder}/", "")
    return Row(key, None, text, not is_final)


def _local_policy(policy: PolicyRef, files: dict[str, LocalFiles]) -> str:
    for own_class in policy.classes:
        spec_text(own_class)  # registers the class in this process
    return policy.spec if policy.tree is None else f"tree:{files[policy.tree].paths[0]}"


def _rows(group: Group, files: dict[str, LocalFiles], result: Result) -> Iterator[Row]:
    records = {record["policy"]: record for record in result.summary}
    for replay in group.replays:
        record = records.get(_local_policy(replay.policy, files))
        if record is not None:
            yield Row(replay.key, record, record.get("error"))
