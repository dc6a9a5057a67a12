"""Sweeps of 10,000 replays on Dask and Ray, with a worker that is killed. `tools/test-python-sweep` installs Dask and Ray, and runs it."""

import collections
import os
import signal
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import psutil
import pyarrow.parquet
import weir

TRACE = "10 3\n1 0 2 0 1 1 5:4\n2 10 1 0 2 6:2 7:3\n3 20 1 3 1 5:8\n"
POLICIES = ["fair", "saath"]
SEEDS = range(5_000)
REPLAYS = len(POLICIES) * len(SEEDS)
WORKERS = 2

#: The allowed milliseconds of a sweep for each replay, beyond those of the replays.
MAX_OVERHEAD_MS = 0.5


class Clusters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.trace = self.folder / "trace.txt"
        self.trace.write_text(TRACE)
        self.fabric = self.folder / "fabric.toml"
        weir.leaf_spine(leaves=5, hosts=2, spines=2, rate="1Gbit", oversubscription=2).write(self.fabric)

    def sweep(self, executor, out):
        return weir.sweep(
            {"fabric": self.fabric},
            traces=self.trace,
            policies=POLICIES,
            seeds=SEEDS,
            executor=executor,
            out=self.folder / out,
            progress=False,
        )

    def keys(self, out):
        tables = [pyarrow.parquet.read_table(file) for file in (self.folder / out).glob("*.parquet")]
        return [key for table in tables for key in table["key"].to_pylist()]

    def loop(self):
        """The seconds of the replays in a plain loop, and the rows."""
        trace = weir.Trace.read(self.trace)
        start = time.perf_counter()
        records = []
        for seed in SEEDS:
            records += weir.compare(trace, POLICIES, fabric=self.fabric, path_seed=seed, timing=False, progress=False).summary
        return time.perf_counter() - start, records

    def check_overhead(self, name, executor):
        self.sweep_warm_up(executor)
        before, records = self.loop()
        start = time.perf_counter()
        result = self.sweep(executor, "timed")
        seconds = time.perf_counter() - start
        after, _ = self.loop()
        plain = (before + after) / 2
        overhead = 1e3 * (seconds - plain / WORKERS) / REPLAYS
        print(
            f"{name}: {REPLAYS:,} replays: {plain:.2f} s in a plain loop, {seconds:.2f} s as a sweep on {WORKERS} workers; "
            f"overhead {overhead:.3f} ms a replay"
        )
        self.assertEqual((len(result.table), result.failed), (REPLAYS, 0))
        self.assertEqual(result.table["mean_cct_s"].to_pylist(), [record["mean_cct_s"] for record in records])
        self.assertLessEqual(overhead, MAX_OVERHEAD_MS)

    def sweep_warm_up(self, executor):
        """Workers import Weir."""
        weir.sweep(traces=self.trace, policies=POLICIES, executor=executor, progress=False)

    def check_killed_worker(self, executor, workers):
        """Kills a worker once the folder has a tenth of the rows. No row is lost or doubled."""
        rows_at_kill = []

        def kill():
            while len(self.keys("killed")) < REPLAYS // 10:
                time.sleep(0.01)
            rows_at_kill.append(len(self.keys("killed")))
            os.kill(workers()[0], signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        result = self.sweep(executor, "killed")
        killer.join(timeout=1)
        [rows] = rows_at_kill
        keys = self.keys("killed")
        print(f"a worker was killed after {rows:,} rows; {len(keys):,} rows, {len(set(keys)):,} keys, {result.failed} failed")
        self.assertTrue(0 < rows < REPLAYS)
        self.assertEqual((len(keys), len(set(keys)), result.failed), (REPLAYS, REPLAYS, 0))
        self.assertEqual(self.sweep(executor, "killed").reused, REPLAYS)


class Dask(Clusters):
    def setUp(self):
        super().setUp()
        from distributed import Client, LocalCluster

        cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
        self.addCleanup(cluster.close)
        self.client = Client(cluster)
        self.addCleanup(self.client.close)

    def workers(self):
        return list(self.client.run(os.getpid).values())

    def test_overhead(self):
        self.check_overhead("Dask", self.client)

    def test_killed_worker_loses_and_doubles_nothing(self):
        self.check_killed_worker(self.client, self.workers)

    def test_trace_is_shipped_once_to_each_worker(self):
        self.client.run(_count_received_files)
        self.sweep(self.client, "counted")
        received = self.client.run(_received_files)
        print(f"Dask: files decoded and written by each worker: {list(received.values())}")
        for decoded, written in received.values():
            # The trace and the fabric. The worker that Dask sends them to first decodes them twice, whatever the number of tasks.
            self.assertLessEqual(decoded, 4)
            self.assertEqual(written, 2)

    def test_address_of_the_scheduler_is_an_executor(self):
        address = self.client.cluster.scheduler_address
        result = weir.sweep(traces=self.trace, policies=POLICIES, executor=address, progress=False)
        self.assertEqual((len(result.table), result.failed), (2, 0))


class DaskFailures(Clusters):
    #: Workers exit when they replay Aalo.
    PRELOAD = """
import os
from weir.simulator.sweep import worker

from weir.simulator.compare import compare

def compare_or_exit(trace, policies, **arguments):
    if "aalo" in policies:
        os._exit(1)
    return compare(trace, policies, **arguments)

worker.compare = compare_or_exit
"""

    def test_point_that_ends_its_workers_is_a_row_and_is_repeated(self):
        import dask
        from distributed import Client, LocalCluster

        preload = self.folder / "preload.py"
        preload.write_text(self.PRELOAD)
        with (
            dask.config.set({"distributed.scheduler.allowed-failures": 1}),
            LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, preload=str(preload)) as cluster,
            Client(cluster) as client,
        ):
            arguments = dict(traces=self.trace, out=self.folder / "out", progress=False)
            policies = ["fair", "aalo", "saath"]
            errors = weir.sweep(policies=policies, executor=client, **arguments).table["error"].to_pylist()
        self.assertEqual(errors, [None, "the worker exited (KilledWorker)", None])
        again = weir.sweep(policies=policies, **arguments)
        self.assertEqual((again.reused, again.failed, len(self.keys("out"))), (2, 0, 3))


def _count_received_files():
    """Counts in a worker how often it decodes files, and writes them."""
    from weir.simulator.sweep import inputs

    write = inputs.Content.write
    inputs.counts = [0, 0]

    def counted_setstate(self, state):
        inputs.counts[0] += 1
        self.__dict__.update(state)

    def counted_write(self, folder):
        inputs.counts[1] += 1
        return write(self, folder)

    inputs.Content.__setstate__ = counted_setstate
    inputs.Content.write = counted_write


def _received_files():
    from weir.simulator.sweep import inputs

    return inputs.counts


#: The variable with the log of received files.
RECEIVED_FILES = "WEIR_RECEIVED_FILES"


def _log_received_files():
    """Appends the worker's process to a log whenever it decodes files."""
    from weir.simulator.sweep.inputs import Content

    def logged_setstate(self, state):
        with open(os.environ[RECEIVED_FILES], "a") as file:
            file.write(f"{os.getpid()}\n")
        self.__dict__.update(state)

    Content.__setstate__ = logged_setstate


class Ray(Clusters):
    def setUp(self):
        super().setUp()
        import ray

        self.received = self.folder / "received"
        os.environ[RECEIVED_FILES] = str(self.received)
        # Workers cannot import this module.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        hook = {"worker_process_setup_hook": _log_received_files}
        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, runtime_env=hook)
        self.addCleanup(ray.shutdown)

    def workers(self):
        """The processes of workers, those with tasks first; Ray shows the task in the title of the process."""
        titles = {process.pid: "".join(process.cmdline()[:1]) for process in psutil.Process().children(recursive=True)}
        workers = [pid for pid, title in titles.items() if title.startswith("ray::")]
        return sorted(workers, key=lambda pid: "_run_on_ray" not in titles[pid])

    def test_overhead(self):
        self.check_overhead("Ray", "ray")

    def test_trace_is_shipped_once_to_each_worker(self):
        self.sweep("ray", "counted")
        received = collections.Counter(self.received.read_text().split())
        print(f"Ray: files decoded by each worker: {list(received.values())}")
        self.assertEqual(set(received.values()), {2})  # the trace and the fabric

    def test_killed_worker_loses_and_doubles_nothing(self):
        self.check_killed_worker("ray", self.workers)


if __name__ == "__main__":
    unittest.main()
