"""Workers of a sweep: this process, an executor, Dask or Ray."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from ..optional import load
from .inputs import Content, Files, RecentFiles, invalid
from .worker import Outcome, Task, run_task


class Workers:
    """Executes tasks in this process, one by one."""

    #: The number of concurrent tasks.
    slots = 1
    #: Exceptions of a task whose worker exited. Its points are replayed again, one by one.
    lost: tuple[type[BaseException], ...] = ()

    def submit(self, task: Task, files: Files) -> Future[Outcome]:
        """Starts a task. ``files`` returns the files that it needs."""
        outcome = run_task(task)
        if outcome.missing:
            outcome = run_task(task, *map(files, task.checksums()))
        future: Future[Outcome] = Future()
        future.set_result(outcome)
        return future

    def resubmit(self, task: Task, files: Files) -> Future[Outcome]:
        """Starts a task again whose worker did not have its files."""
        raise AssertionError("these workers have all files")


class PoolWorkers(Workers):
    """Any executor of :mod:`concurrent.futures`. A worker without a trace reports it, and receives the task again with the trace."""

    def __init__(self, executor: concurrent.futures.Executor) -> None:
        self._executor = executor
        self.slots = getattr(executor, "_max_workers", None) or os.cpu_count() or 1

    def submit(self, task: Task, files: Files) -> Future[Outcome]:
        return self._executor.submit(run_task, task)

    def resubmit(self, task: Task, files: Files) -> Future[Outcome]:
        return self._executor.submit(run_task, task, *map(files, task.checksums()))


class _ClusterFiles:
    """References to files on a cluster. A cluster keeps the files of running tasks without them too."""

    def __init__(self, send: Callable[[Content], Any]) -> None:
        self._send = send
        self._references: RecentFiles[Any] = RecentFiles()

    def of_task(self, task: Task, files: Files) -> dict[str, Any]:
        """The references to the files of a task, by checksum."""
        found = {}
        for checksum in task.checksums():
            reference = self._references.get(checksum)
            if reference is None:
                content = files(checksum)
                reference = self._references.add(checksum, self._send(content), content.nbytes)
            found[checksum] = reference
        self._references.drop_oldest(len(found))
        return found


class DaskWorkers(Workers):
    """A client of Dask. A file is the result of a task: a worker fetches it once, and Dask restores it when a worker exits."""

    def __init__(self, client: Any) -> None:
        from distributed import KilledWorker

        self.lost = (KilledWorker,)
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._files = _ClusterFiles(lambda content: client.submit(_same, content, key=f"weir-{content.checksum}"))

    @property
    def slots(self) -> int:  # type: ignore[override]
        """The threads of all workers at this time."""
        return sum(self._client.nthreads().values()) or 1

    def submit(self, task: Task, files: Files) -> Future[Outcome]:
        references = self._files.of_task(task, files)
        future: Future[Outcome] = self._executor.submit(run_task, task, *references.values())
        return future


def _same(content: Content) -> Content:
    return content


class RayWorkers(Workers):
    """Tasks of Ray. A file is an object of its store, which a worker reads once."""

    def __init__(self, ray: Any) -> None:
        self.lost = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError)
        self.slots = int(ray.cluster_resources().get("CPU", 1)) or 1
        self._ray = ray
        self._run = ray.remote(_run_on_ray)
        self._files = _ClusterFiles(ray.put)

    def submit(self, task: Task, files: Files) -> Future[Outcome]:
        reference = self._run.remote(task, self._files.of_task(task, files))
        future: Future[Outcome] = reference.future()
        future.add_done_callback(lambda done: self._ray.cancel(reference) if done.cancelled() else None)
        return future


def _run_on_ray(task: Task, files: dict[str, Any]) -> Outcome:
    """Runs a task. Reads only objects that the worker lacks: Ray does not replace references inside a dictionary by their objects."""
    outcome = run_task(task)
    if not outcome.missing:
        return outcome
    import ray

    return run_task(task, *ray.get([files[checksum] for checksum in outcome.missing]))


@contextlib.contextmanager
def open_workers(executor: object) -> Iterator[Workers]:
    """The workers of ``executor``; see :func:`weir.sweep`. Clients and pools that this function opens are closed."""
    distributed = sys.modules.get("distributed")
    if executor is None:
        yield Workers()
    elif isinstance(executor, concurrent.futures.Executor):
        yield PoolWorkers(executor)
    elif distributed is not None and isinstance(executor, distributed.Client):
        yield DaskWorkers(executor)
    elif executor == "processes":
        # Ctrl-C in a terminal reaches all processes. The others ignore it: this one stops them, and receives their finished replays.
        with concurrent.futures.ProcessPoolExecutor(initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
            yield PoolWorkers(pool)
    elif isinstance(executor, str) and executor.startswith(("tcp://", "tls://", "ws://", "wss://")):
        distributed = load("distributed", "this executor", "dask")
        with distributed.Client(executor) as client:
            yield DaskWorkers(client)
    elif isinstance(executor, str) and (executor == "ray" or executor.startswith("ray://")):
        yield RayWorkers(_started_ray(executor))
    else:
        raise invalid(
            "executor",
            repr(executor),
            "none for this process, 'processes', an executor of concurrent.futures, a client of Dask or its scheduler's address such as "
            "'tcp://10.0.0.1:8786', or 'ray' or 'ray://HOST:PORT'",
        )


def _started_ray(address: str) -> Any:
    ray = load("ray", "this executor", "ray")
    if not ray.is_initialized():
        ray.init(address if address != "ray" else None)
    return ray
