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
from typing import TYPE_CHECKING, Any

from ..._native import __version__
from ..compare import compare
from ..errors import Interrupted, ReplayError
from ..optional import load
from ..policy import spec_text
from ..result import Result
from ..trace import Trace, restore_trace
from .inputs import Content, RecentFiles

if TYPE_CHECKING:
    import pyarrow

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
    #: Once this file exists, workers of the same machine stop.
    stop_file: str
    trace: str
    baseline: PolicyRef | None
    #: Whether rows have their coflows.
    coflows: bool
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
    #: The rows of coflows, if the task asks for them.
    coflows: pyarrow.Table | None = None


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
    """The files of a process by checksum."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: RecentFiles[LocalFiles] = RecentFiles()

    def add(self, checksum: str, files: LocalFiles) -> None:
        """Keeps files."""
        with self._lock:
            self._files.add(checksum, files, files.nbytes)
            self._files.drop_oldest(1)

    def get(self, checksums: Sequence[str], contents: Sequence[Content]) -> dict[str, LocalFiles]:
        """The files that the process has, or receives here."""
        received = {content.checksum: content for content in contents}
        found = {}
        with self._lock:
            for checksum in checksums:
                files = self._files.get(checksum)
                if files is None and checksum in received:
                    content = received[checksum]
                    files = self._files.add(checksum, LocalFiles.of_content(content), content.nbytes)
                if files is not None:
                    found[checksum] = files
            self._files.drop_oldest(len(found))
        return found


#: The files of this process.
CACHE = _Cache()


def run_task(task: Task, *contents: Content) -> Outcome:
    """Replays the points of a task. ``contents`` are files that this process may not have."""
    if os.path.exists(task.stop_file):
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
            _check_stop(task)
            for row in _run_group(task, group, files):
                rows.append(row)
    except KeyboardInterrupt:
        interrupted = True
    return Outcome(rows, time.perf_counter() - start, interrupted)


def _check_stop(task: Task) -> None:
    if os.path.exists(task.stop_file):
        raise KeyboardInterrupt


def _run_group(task: Task, group: Group, files: dict[str, LocalFiles]) -> Iterator[Row]:
    try:
        trace = files[task.trace].trace()
        options: dict[str, Any] = group.options | {name: files[checksum].paths[0] for name, checksum in group.files.items()}
        policies = [_local_policy(replay.policy, files) for replay in group.replays]
        baseline = None if task.baseline is None else _local_policy(task.baseline, files)

        def check_stop(policies: list[str], completed: list[int], coflows: int) -> None:
            _check_stop(task)

        result = compare(trace, policies, baseline=baseline, **options, timing=False, progress=check_stop)
    except Interrupted as interrupt:
        if isinstance(interrupt.result, Result):
            yield from _rows(task, group, files, interrupt.result)
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
        yield from _rows(task, group, files, result)


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


def _rows(task: Task, group: Group, files: dict[str, LocalFiles], result: Result) -> Iterator[Row]:
    records = {record["policy"]: record for record in result.summary}
    coflows = result.coflows.to_pyarrow() if task.coflows else None
    for replay in group.replays:
        policy = _local_policy(replay.policy, files)
        record = records.get(policy)
        if record is not None:
            yield Row(replay.key, record, record.get("error"), coflows=None if coflows is None else _coflows_of(policy, coflows))


def _coflows_of(policy: str, coflows: pyarrow.Table) -> pyarrow.Table:
    """The rows of a policy, as a copy, so that it travels without those of others."""
    compute = load("pyarrow.compute", "weir.sweep", "sweep")
    return coflows.filter(compute.equal(coflows.column("policy"), policy)).drop_columns(["policy"])
