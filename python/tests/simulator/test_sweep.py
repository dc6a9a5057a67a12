import concurrent.futures
import contextlib
import functools
import importlib
import io
import itertools
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import weakref
from pathlib import Path

import pyarrow.parquet
import weir
from command_line import EXAMPLES, STOP_WITHIN
from weir.__main__ import main
from weir.simulator.sweep.file import read_sweep
from weir.simulator.sweep.inputs import Content

TRACE = "10 3\n1 0 2 0 1 1 5:4\n2 10 1 0 2 6:2 7:3\n3 20 1 3 1 5:8\n"

#: A trace with a coflow that never completes.
STALLS = "weir-trace 1\nports 3\nevent 1ms port=1 side=both rate=0\ncoflow 1\nflow 0 1 10MB\ncoflow 2\nflow 0 2 10MB\n"

#: Numbers of a row that replays determine.
STATISTICS = ("coflows", "mean_cct_s", "p99_cct_s", "makespan_s", "over_bound", "schedules")


class FlakyExecutor(concurrent.futures.Executor):
    """Executes tasks at once, and raises an exception in place of the task with number ``at``."""

    _max_workers = 1

    def __init__(self, at, exception, change=lambda outcome: outcome):
        self.tasks = 0
        self.at = at
        self.exception = exception
        self.change = change

    def submit(self, function, *arguments):
        self.tasks += 1
        if self.tasks == self.at:
            raise self.exception
        future = concurrent.futures.Future()
        future.set_result(self.change(function(*arguments)))
        return future


class SweepTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.trace = self.write("trace.txt", TRACE)
        self.out = self.folder / "out"

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def fabrics(self):
        return {ratio: weir.leaf_spine(leaves=5, hosts=2, spines=2, rate="1Gbit", oversubscription=ratio) for ratio in (1, 2)}

    def sweep(self, policies=("fair", "saath"), out=True, **arguments):
        arguments = {"traces": self.trace, "grid": {"interval": ["0", "8ms"]}, **arguments}
        return weir.sweep(policies=list(policies), out=self.out if out else None, progress=False, **arguments)

    def keys(self):
        """The keys of all rows in the folder."""
        tables = [pyarrow.parquet.read_table(file) for file in self.out.glob("*.parquet")]
        return [key for table in tables for key in table["key"].to_pylist()]


class Points(SweepTest):
    def test_rows_are_those_of_compare(self):
        fabrics = self.fabrics()
        grid = {"fabric": fabrics, "interval": ["0", "8ms"]}
        rows = self.sweep(grid=grid, seeds=[3, 4], traces={"t": self.trace}, out=False).table.to_pylist()
        self.assertEqual(len(rows), 2 * 2 * 2 * 2)
        for row in rows:
            self.assertEqual((row["trace"], row["error"]), ("t", None))
            expected = weir.compare(
                self.trace, row["policy"], fabric=self.path_of(fabrics[row["fabric"]]), interval=row["interval"], path_seed=row["seed"]
            ).summary[0]
            self.assertEqual([row[name] for name in STATISTICS], [expected[name] for name in STATISTICS])
        self.assertGreater(len({row["mean_cct_s"] for row in rows}), 4)

    def path_of(self, fabric):
        path = self.folder / "fabric.toml"
        fabric.write(path)
        return path

    def test_parameter_is_varied_for_its_policy_only(self):
        table = self.sweep(grid={"saath:start": ["1MB", "10MB"]}).table
        self.assertEqual(table["policy"].to_pylist(), ["fair", "saath", "saath"])
        self.assertEqual(table["saath:start"].to_pylist(), [None, "1MB", "10MB"])
        expected = weir.compare(self.trace, ["saath:start=1MB", "saath:start=10MB"]).summary
        self.assertEqual(table["mean_cct_s"].to_pylist()[1:], [record["mean_cct_s"] for record in expected])

    def test_parameter_without_a_policy_is_varied_for_all_that_have_it(self):
        result = self.sweep(["fair", "saath", "aalo:sharing=turns"], grid={"start": ["1MB", "10MB"], "turn": ["2ms"]})
        rows = [tuple(row[name] for name in ("policy", "start", "turn")) for row in result.table.to_pylist()]
        aalo = "aalo:sharing=turns"
        self.assertEqual(
            rows,
            [("fair", None, None), ("saath", "1MB", None), ("saath", "10MB", None), (aalo, "1MB", "2ms"), (aalo, "10MB", "2ms")],
        )
        specs = ["fair", "saath:start=1MB", "saath:start=10MB", f"{aalo}:start=1MB:turn=2ms", f"{aalo}:start=10MB:turn=2ms"]
        expected = [record["mean_cct_s"] for record in weir.compare(self.trace, specs).summary]
        self.assertEqual(result.table["mean_cct_s"].to_pylist(), expected)

    def test_trees_have_no_parameters(self):
        tree = self.write("tree.toml", 'weir-tree = 1\n[default]\npolicy = "saath"\n')
        table = self.sweep([f"tree:{tree}", "saath"], grid={"start": ["1MB", "10MB"]}, out=False).table
        self.assertEqual(table["start"].to_pylist(), [None, "1MB", "10MB"])

    def test_speedups_need_a_baseline(self):
        self.assertNotIn("speedup_p50", self.sweep(out=False).table.column_names)
        table = self.sweep(["saath"], baseline="fair", out=False).table
        self.assertEqual(table["policy"].to_pylist(), ["saath"] * 2)
        expected = weir.compare(self.trace, ["fair", "saath"]).summary[1]
        self.assertEqual(table["speedup_p50"].to_pylist()[1], expected["speedup_p50"])
        self.assertEqual(set(table["baseline"].to_pylist()), {"fair"})

    def test_grid_does_not_vary_the_parameters_of_the_baseline(self):
        table = self.sweep(["saath"], grid={"start": ["1MB", "10MB"]}, baseline="saath:start=1GB", out=False).table
        expected = weir.compare(self.trace, ["saath:start=1MB", "saath:start=10MB"], baseline="saath:start=1GB").summary[1:]
        self.assertEqual(table["speedup_mean"].to_pylist(), [record["speedup_mean"] for record in expected])

    def test_equal_inputs_are_replayed_once(self):
        copy = self.write("copy.txt", TRACE)
        result = self.sweep(traces={"a": self.trace, "b": copy})
        self.assertEqual((len(result), len(self.keys())), (8, 4))
        self.assertEqual(result.table["trace"].to_pylist(), ["a"] * 4 + ["b"] * 4)

    def test_function_of_the_seed_makes_a_trace_for_each_seed(self):
        def trace(seed):
            return self.write(f"{seed}.txt", TRACE.replace("5:8", f"5:{seed}"))

        table = self.sweep(["fair"], grid={}, traces={"made": trace}, seeds=[8, 9]).table
        self.assertEqual(table["seed"].to_pylist(), [8, 9])
        self.assertEqual(table["mean_cct_s"][0].as_py(), weir.compare(self.trace, "fair").summary[0]["mean_cct_s"])
        self.assertNotEqual(*table["mean_cct_s"].to_pylist())

    def test_traces_in_memory_are_inputs(self):
        def generate(seed):
            return weir.Trace.generate(coflows=5, seed=seed)

        one = self.sweep(["fair"], traces={"one": generate(1)}, grid={})
        each = self.sweep(["fair"], traces={"each": generate}, grid={}, seeds=[1, 2])
        expected = [weir.compare(generate(seed), "fair").summary[0]["mean_cct_s"] for seed in (1, 2)]
        self.assertEqual(one.table["mean_cct_s"].to_pylist(), expected[:1])
        self.assertEqual((each.reused, each.table["mean_cct_s"].to_pylist()), (1, expected))

    def test_jobs_in_memory_have_their_network(self):
        jobs = weir.Trace.read(EXAMPLES / "jobs.toml")
        [row] = self.sweep(["fair"], grid={}, traces={"jobs": jobs}, out=False).table.to_pylist()
        expected = weir.compare(jobs, "fair").summary[0]
        self.assertEqual([row[name] for name in STATISTICS], [expected[name] for name in STATISTICS])
        with self.assertRaisesRegex(weir.InputError, "expected a trace alone"):
            jobs.to_bytes()
        with self.assertRaisesRegex(weir.InputError, "traces: jobs: .*expected their files"):
            self.sweep(["fair"], traces={"jobs": weir.Trace.read(EXAMPLES / "jobs.toml", max_flows=10**6)}, out=False)

    def test_late_times_in_memory_keep_their_shift(self):
        late = weir.Trace.from_frame({"src": [0, 0], "dst": [1, 2], "bytes": [1e6, 1e6], "start": [1764500000.5, 1764500001]})
        [row] = self.sweep(["fair"], grid={}, traces={"late": late}, out=False).table.to_pylist()
        self.assertEqual(row["time_shift_s"], weir.compare(late, "fair").summary[0]["time_shift_s"])
        self.assertGreater(row["time_shift_s"], 1e9)

    def test_seeds_mean_nothing_on_one_switch(self):
        seeds = [1, 2**64 - 1]
        result = self.sweep(["fair"], grid={}, seeds=seeds)
        rows = result.table.to_pylist()
        self.assertEqual(([row["seed"] for row in rows], result.failed, len(self.keys())), (seeds, 0, 1))
        for wrong in ([2**64], [-1], [True], [1.5], [], 3):
            with self.assertRaisesRegex(weir.InputError, "whole numbers"):
                self.sweep(["fair"], seeds=wrong)

    def test_values_are_written_as_those_of_policies(self):
        grid = {"saath:work_conservation": (True, False), "interval": ("0", "8ms")}
        result = self.sweep(("saath",), grid=grid, out=False)
        self.assertEqual((len(result), result.failed), (4, 0))
        expected = weir.compare(self.trace, ["saath:work-conservation=off"], interval="8ms").summary[0]["mean_cct_s"]
        self.assertEqual(result.table["mean_cct_s"].to_pylist()[3], expected)

    def test_file_that_a_trace_names_travels_and_counts(self):
        fabric = self.write("fabric.toml", "weir-fabric = 1\n")
        (self.folder / "jobs").mkdir()
        jobs = self.write("jobs/jobs.toml", 'weir-jobs = 1\nfabric = "../fabric.toml"\n')
        before = Content.read([jobs])
        self.assertEqual([name for name, _ in before.files], ["jobs/jobs.toml", "fabric.toml"])
        fabric.write_text("weir-fabric = 1\n# changed\n")
        self.assertNotEqual(before.checksum, Content.read([jobs]).checksum)
        paths = before.write(self.folder / "copy")
        self.assertEqual(paths, [str(self.folder / "copy/jobs/jobs.toml")])
        self.assertEqual((self.folder / "copy/fabric.toml").read_text(), "weir-fabric = 1\n")

    def test_invalid_inputs_are_named_before_the_first_replay(self):
        for arguments, expected in [
            (dict(grid={"rate": ["1Gbit"]}), "grid: no policy has a parameter `rate`; expected port_rate, interval, arrival, "),
            (dict(grid={"port-rate": ["1Gbit"], "port_rate": ["2Gbit"]}), "grid: port_rate: is repeated"),
            (dict(grid={"interval": []}), "grid: interval: no values"),
            (dict(grid={"interval": ["0", "0"]}), "'0' is repeated"),
            (dict(grid={"aalo:start": ["1MB"]}), "grid: none of the policies has a parameter `aalo:start`; help: .* aalo,"),
            (dict(grid={"saath:start": ["1MB"]}, policies=["saath:start=2MB"]), "`start=1MB` is invalid; expected each parameter once"),
            (dict(grid={"turn": ["2ms"]}, policies=["aalo"]), "grid: policy `aalo`: `turn` has an effect only with"),
            (dict(grid={"path_seed": [1]}, seeds=[1]), "`seeds` sets it"),
            (dict(seeds=[1, 1]), "expected different whole numbers"),
            (dict(executor="mpi"), "executor: 'mpi'; expected none for this process"),
            (dict(traces={"made": lambda seed: self.trace}), "a function of the seed needs seeds"),
            (dict(traces=self.write("bad.txt", "10 1\n1 0 1 99 1 5:4\n")), "bad.txt:2"),
            (dict(policies=["fair", "no-policy"]), "unknown policy `no-policy`"),
            (dict(policies=["fair", "fair:no=1"]), "has no parameter `no`"),
            (dict(policies=["fair", "tree:missing.toml"]), "missing.toml: cannot be read"),
            (dict(grid={"saath:start": ["1MB", "5"]}), "`start=5` is invalid"),
            (dict(grid={"interval": ["8ms", "8"]}), "`interval`: `8`: expected"),
            (dict(grid={"arrival": [1, 0]}), "`arrival`: `0`: expected a factor from 1e-6 to 1e6"),
            (dict(grid={"buffer": [10]}), "`buffer`: .*expected `incast` too"),
            (dict(grid={"fabric": {"small": weir.leaf_spine(leaves=2, hosts=2, spines=2, rate="1Gbit", oversubscription=1)}}), "10 ports; expected at most 4"),
            (dict(baseline="no-policy"), "unknown policy `no-policy`"),
        ]:
            with self.subTest(expected), self.assertRaisesRegex(weir.InputError, expected):
                self.sweep(executor=arguments.pop("executor", FlakyExecutor(1, AssertionError("no replay"))), **arguments)
        for grid in ({"per_stage": ["yes"]}, {"buffer": ["10"]}, {"arrival": ["2"]}, {"fabric": {"a": 7}}, {1: [2]}):
            with self.subTest(grid), self.assertRaises(TypeError):
                self.sweep(grid=grid, executor=FlakyExecutor(1, AssertionError("no replay")))
        with self.assertRaisesRegex(weir.InputError, "missing.txt: cannot be read: No such file") as raised:
            self.sweep(traces="missing.txt")
        self.assertIsInstance(raised.exception.__cause__, FileNotFoundError)
        with self.assertRaisesRegex(TypeError, "expected a policy's name"):
            self.sweep([7])
        self.assertEqual(self.keys(), [])


class Executors(SweepTest):
    def test_processes_give_the_rows_of_a_loop(self):
        grid = {"fabric": self.fabrics()}
        context = multiprocessing.get_context("forkserver")  # without the caller's files
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            parallel = self.sweep(grid=grid, seeds=range(20), executor=pool)
        self.assertEqual((len(parallel), parallel.reused, parallel.failed), (80, 0, 0))
        alone = self.sweep(grid=grid, seeds=range(20), out=False)
        self.assertTrue(parallel.table.equals(alone.table))

    def test_threads_give_the_rows_of_a_loop(self):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            parallel = self.sweep(executor=pool)
        self.assertTrue(parallel.table.equals(self.sweep(out=False).table))

    def test_worker_of_another_version_ends_the_sweep(self):
        class Other(FlakyExecutor):
            def submit(self, function, task):
                object.__setattr__(task, "version", "0.0")
                return super().submit(function, task)

        with self.assertRaisesRegex(RuntimeError, "a worker has weir .*, expected 0.0"):
            self.sweep(executor=Other(0, None))


class Folder(SweepTest):
    def test_second_sweep_repeats_nothing(self):
        first = self.sweep()
        self.assertEqual(repr(first), f"weir.Sweep: 4 points: 4 replayed, 0 reused, 0 failed\nfolder: {self.out}")
        second = self.sweep(executor=FlakyExecutor(1, AssertionError("nothing to replay")))
        self.assertEqual((second.reused, len(self.keys())), (4, 4))
        self.assertTrue(second.table.equals(first.table))

    def test_extended_sweep_replays_what_is_new(self):
        self.sweep()
        executor = FlakyExecutor(0, None)
        result = self.sweep(["fair", "saath", "aalo"], grid={"interval": ["0", "8ms", "80ms"]}, executor=executor)
        self.assertEqual((len(result), result.reused, len(self.keys()), len(set(self.keys()))), (9, 4, 9, 9))
        self.assertEqual(result.table["interval"].to_pylist(), [interval for interval in ("0", "8ms", "80ms") for _ in range(3)])

    def test_changed_inputs_are_replayed_and_renamed_ones_are_not(self):
        self.sweep()
        self.trace.rename(self.folder / "renamed.txt")
        result = self.sweep(traces={"other": self.folder / "renamed.txt"})
        self.assertEqual((result.reused, result.table["trace"].to_pylist()), (4, ["other"] * 4))
        changed = self.write("changed.txt", TRACE.replace("5:8", "5:9"))
        self.assertEqual(self.sweep(traces=changed).reused, 0)

    def test_error_of_the_executor_keeps_finished_points(self):
        with self.assertRaisesRegex(OSError, "the network is gone"):
            self.sweep(executor=FlakyExecutor(3, OSError("the network is gone")))
        kept = len(self.keys())
        self.assertGreater(kept, 0)
        result = self.sweep()
        self.assertEqual((result.reused, len(result.table), sorted(self.keys())), (kept, 4, sorted(set(self.keys()))))

    def test_interrupt_keeps_finished_points(self):
        with self.assertRaises(weir.SweepInterrupted) as raised:
            self.sweep(executor=FlakyExecutor(3, KeyboardInterrupt()))
        result = raised.exception.result
        self.assertEqual((len(result.table), result.missing), (len(self.keys()), 4 - len(self.keys())))
        self.assertGreater(len(result.table), 0)
        self.assertIn("missing", str(raised.exception))

    def test_signal_keeps_finished_points(self):
        program = f"""
import weir
try:
    weir.sweep({{"interval": [f"{{n}}us" for n in range(1, 100000)]}}, traces={str(self.trace)!r}, policies="saath", out={str(self.out)!r})
except weir.SweepInterrupted as interrupt:
    print(len(interrupt.result.table), interrupt.result.missing)
"""
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 60
            while not list(self.out.glob("*.parquet")) and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            shown, _ = process.communicate(timeout=60)
        kept, missing = map(int, shown.split())
        self.assertEqual((len(self.keys()), len(set(self.keys())), kept + missing), (kept, kept, 99_999))
        self.assertGreater(kept, 0)

    def test_incomplete_and_damaged_files_are_ignored(self):
        first = self.sweep()
        [file] = self.out.glob("*.parquet")
        (self.out / ".incomplete-1").write_bytes(b"PAR1")
        file.write_bytes(file.read_bytes()[:-10])
        with self.assertWarnsRegex(UserWarning, "damaged"):
            second = self.sweep()
        self.assertEqual((second.reused, len(self.keys())), (0, 4))
        self.assertTrue(second.table.equals(first.table))
        self.assertFalse((self.out / ".incomplete-1").exists())

    def test_one_sweep_at_a_time_writes_to_a_folder(self):
        outer = self

        class Nested(FlakyExecutor):
            def submit(self, function, *arguments):
                with outer.assertRaisesRegex(BlockingIOError, "another sweep writes to this folder"):
                    outer.sweep()
                return super().submit(function, *arguments)

        self.assertEqual(len(self.sweep(executor=Nested(0, None)).table), 4)


class Coflows(SweepTest):
    def coflow_keys(self):
        """The keys of all replays with coflows in the folder."""
        files = (self.out / "_coflows").glob("*.parquet")
        return sorted(key for file in files for key in set(pyarrow.parquet.read_table(file)["key"].to_pylist()))

    def test_rows_are_those_of_compare(self):
        for out in (True, False):
            result = self.sweep(traces={"a": self.trace, "b": self.write("copy.txt", TRACE)}, coflows=True, out=out)
            rows = result.coflows.to_pylist()
            self.assertEqual(list(rows[0])[:5], ["trace", "seed", "vary_interval", "policy", "coflow"])
            for trace, interval in itertools.product("ab", ("0", "8ms")):
                found = [row for row in rows if (row["trace"], row["vary_interval"]) == (trace, interval)]
                expected = weir.compare(self.trace, ["fair", "saath"], interval=interval).coflows.to_dicts()
                self.assertEqual([{name: row[name] for name in expected[0]} for row in found], expected)
            self.assertEqual(len(rows), 2 * 2 * 2 * 3)

    def test_sweep_without_coflows_has_none(self):
        with self.assertRaisesRegex(weir.InputError, r"coflows: .*expected sweep\(..., coflows=True\)"):
            _ = self.sweep().coflows
        self.assertFalse((self.out / "_coflows").exists())

    def test_folder_stays_a_dataset_of_replays(self):
        self.sweep(coflows=True)
        self.assertEqual(pyarrow.parquet.read_table(self.out).num_rows, 4)
        self.assertEqual(pyarrow.parquet.read_table(self.out / "_coflows").num_rows, 12)

    def test_second_sweep_repeats_nothing(self):
        first = self.sweep(coflows=True)
        second = self.sweep(coflows=True, executor=FlakyExecutor(1, AssertionError("nothing to replay")))
        self.assertEqual(second.reused, 4)
        self.assertTrue(second.coflows.equals(first.coflows))

    def test_coflows_of_earlier_replays_are_added_without_a_second_row(self):
        before = self.sweep(["fair"])
        result = self.sweep(coflows=True)
        self.assertEqual((before.reused, result.reused, len(result.coflows)), (0, 0, 12))
        self.assertEqual((len(self.keys()), self.coflow_keys()), (4, sorted(self.keys())))

    def test_coflows_without_a_row_are_not_doubled(self):
        self.sweep(coflows=True)
        for file in self.out.glob("*.parquet"):
            file.unlink()
        result = self.sweep(coflows=True)
        self.assertEqual((result.reused, len(result.coflows), self.coflow_keys()), (0, 12, sorted(self.keys())))

    def test_coflows_are_written_as_they_come(self):
        written = []

        class Watched(FlakyExecutor):
            def submit(self, function, *arguments):
                written.append(len(outer.coflow_keys()))
                return super().submit(function, *arguments)

        outer = self
        with unittest.mock.patch("weir.simulator.sweep.run._COFLOW_BYTES", 1):
            self.sweep(coflows=True, grid={"interval": [f"{number}ms" for number in range(4)]}, executor=Watched(0, None))
        # Two tasks per slot run while a third one waits.
        self.assertGreaterEqual(written[-1], 2 * 3)

    def test_processes_send_coflows(self):
        context = multiprocessing.get_context("forkserver")
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            result = self.sweep(coflows=True, executor=pool)
        self.assertTrue(result.coflows.equals(self.sweep(coflows=True, out=False).coflows))


class Memory(SweepTest):
    def test_number_of_live_traces_is_bounded(self):
        live, most = weakref.WeakSet(), []
        make = weir.Trace.__init__

        def counted_make(trace, native):
            make(trace, native)
            live.add(trace)
            most.append(len(live))

        def generate(seed):
            return weir.Trace.generate(coflows=20, seed=seed)

        limit = 3 * len(generate(1).to_bytes())
        sweep = functools.partial(self.sweep, traces={"made": generate}, seeds=range(30), out=False)
        expected = sweep()
        with (
            unittest.mock.patch("weir.simulator.sweep.inputs.KEPT_BYTES", limit),
            unittest.mock.patch.object(weir.Trace, "__init__", counted_make),
        ):
            result = sweep()
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                threads = sweep(executor=pool)
        self.assertTrue(result.table.equals(expected.table))
        self.assertTrue(threads.table.equals(expected.table))
        self.assertGreater(len(most), 2 * 30)
        # The kept ones, those of running tasks, and one that is being made.
        self.assertLess(max(most), 10)

    def test_function_that_returns_another_trace_is_an_error(self):
        seeds = iter(range(1000))

        def generate(seed):
            return weir.Trace.generate(coflows=20, seed=next(seeds))

        with unittest.mock.patch("weir.simulator.sweep.inputs.KEPT_BYTES", 1):
            with self.assertRaisesRegex(weir.InputError, "traces: made: changed during the sweep"):
                self.sweep(traces={"made": generate}, seeds=range(3))


class Interrupts(SweepTest):
    PROGRAM = """
import time
import numpy
import weir
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

class SlowToEnd(weir.BlindPolicy):
    def schedule(self, view):
        open(STARTED, "w").close()
        time.sleep(0.01)
        return view.in_order(numpy.argsort(view.coflows.sent_bytes))

    def next_wakeup(self, view):
        return view.now + 1e-5

if __name__ == "__main__":
    executor = EXECUTOR
    try:
        weir.sweep({"interval": ["0", "8ms"]}, traces=TRACE, policies=["fair", "saath", SlowToEnd], executor=executor, out=OUT, coflows=True)
    except weir.SweepInterrupted as interrupt:
        print(len(interrupt.result.table), interrupt.result.missing, flush=True)
"""

    def test_signal_to_the_program_alone_ends_it_and_its_workers(self):
        for number, executor in enumerate(("None", "'processes'", "ProcessPoolExecutor(2)", "ThreadPoolExecutor(2)")):
            with self.subTest(executor):
                out = self.folder / f"out-{number}"
                program = self.PROGRAM.replace("EXECUTOR", executor)
                started = self.folder / f"started-{number}"
                for name, value in (("TRACE", self.trace), ("OUT", out), ("STARTED", started)):
                    program = program.replace(name, repr(str(value)))
                self.check_interrupt(self.write(f"program_{number}.py", program), started)

    def check_interrupt(self, program, started):
        with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            self.addCleanup(process.kill)
            while process.poll() is None and not started.exists():
                time.sleep(0.05)
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            shown = process.stdout.readline()
            seconds = time.monotonic() - start
            process.wait(timeout=60)
        kept, missing = map(int, shown.split())
        self.assertGreater(kept, 0)
        self.assertEqual(kept + missing, 6)
        # The table is read after the replays have ended.
        self.assertLess(seconds, STOP_WITHIN + 0.3)
        self.assertEqual(_processes_of_session(process.pid), [])


def _processes_of_session(session):
    """The processes of a session that still run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(status.parent.name))
    return found


class Failures(SweepTest):
    def test_failed_replay_is_a_row_and_the_others_of_its_group_have_results(self):
        class Broken(weir.BlindPolicy):
            def schedule(self, view):
                raise KeyError("of a test")

        result = self.sweep(["fair", Broken, "saath"], grid={}, coflows=True)
        errors = result.table["error"].to_pylist()
        self.assertEqual([error is None for error in errors], [True, False, True])
        self.assertIn("of a test", errors[1])
        self.assertEqual(result.table["mean_cct_s"].null_count, 1)
        self.assertIn("first error: trace=", repr(result))
        self.assertEqual(result.mean(by=["policy"])[1]["missing"], 1)
        self.assertEqual(result.coflows["policy"].to_pylist(), ["fair"] * 3 + ["saath"] * 3)
        self.assertEqual(self.sweep(["fair", Broken, "saath"], grid={}, coflows=True).reused, 3)

    def test_error_that_can_depend_on_the_worker_is_repeated(self):
        def no_memory(outcome):
            outcome.rows = [type(row)(row.key, None, "MemoryError: no memory", True) for row in outcome.rows]
            return outcome

        failed = self.sweep(executor=FlakyExecutor(0, None, no_memory))
        self.assertEqual((failed.failed, failed.table["error"].to_pylist()), (4, ["MemoryError: no memory"] * 4))
        self.sweep(["fair"])
        again = self.sweep()
        self.assertEqual((again.reused, again.failed, len(self.keys())), (2, 0, 4))


class OwnPolicies(SweepTest):
    SOURCE = """import numpy
import weir


class MostSentFirst(weir.BlindPolicy):
    def __init__(self, sign: int = -1):
        self.sign = sign

    def schedule(self, view):
        return view.in_order(numpy.argsort(self.sign * view.coflows.sent_bytes, kind="stable"))
"""

    def setUp(self):
        super().setUp()
        sys.path.insert(0, str(self.folder))
        self.addCleanup(sys.path.remove, str(self.folder))
        self.addCleanup(sys.modules.pop, "own_policy_of_test", None)
        self.own_class = self.define(self.SOURCE)

    def define(self, source):
        self.write("own_policy_of_test.py", source)
        sys.modules.pop("own_policy_of_test", None)
        importlib.invalidate_caches()
        return importlib.import_module("own_policy_of_test").MostSentFirst

    def test_class_runs_on_other_processes(self):
        expected = [record["mean_cct_s"] for record in weir.compare(self.trace, ["fair", self.own_class]).summary]
        context = multiprocessing.get_context("forkserver")
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            result = self.sweep(["fair", self.own_class], grid={}, executor=pool)
        self.assertEqual(result.table["policy"].to_pylist(), ["fair", "most-sent-first"])
        self.assertEqual(result.table["mean_cct_s"].to_pylist(), expected)

    def test_class_is_found_by_its_name_in_specifications_and_trees(self):
        tree = self.write("tree.toml", 'weir-tree = 1\n[default]\npolicy = "most-sent-first"\n')
        context = multiprocessing.get_context("forkserver")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            result = self.sweep(
                ["most-sent-first", f"tree:{tree}"], grid={"most-sent-first:sign": [-1, 1]}, executor=pool
            )
        self.assertEqual(result.table["error"].to_pylist(), [None] * 3)
        expected = weir.compare(self.trace, ["most-sent-first:sign=-1", "most-sent-first:sign=1"]).summary
        self.assertEqual(result.table["mean_cct_s"].to_pylist()[:2], [record["mean_cct_s"] for record in expected])

    def test_changed_module_is_replayed(self):
        self.sweep(["fair", self.own_class], grid={})
        self.assertEqual(self.sweep(["fair", self.own_class], grid={}).reused, 2)
        changed = self.define(self.SOURCE + "# changed\n")
        self.assertEqual(self.sweep(["fair", changed], grid={}).reused, 1)

    def test_exception_of_a_policy_is_an_error_of_its_row(self):
        failing = self.define(self.SOURCE.replace("return view.in_order", "raise KeyError"))
        errors = self.sweep(["fair", failing], grid={}).table["error"].to_pylist()
        self.assertIsNone(errors[0])
        self.assertIn("most-sent-first", errors[1])


class Means(SweepTest):
    def test_interval_of_one_trace_is_over_its_seeds(self):
        result = self.sweep(["fair"], grid={"fabric": self.fabrics()}, seeds=range(5))
        for mean in result.mean("makespan_s", by=["fabric"]):
            rows = [row["makespan_s"] for row in result.table.to_pylist() if row["fabric"] == mean["fabric"]]
            expected = sum(rows) / 5
            half = 2.7764 * math.sqrt(sum((row - expected) ** 2 for row in rows) / 4 / 5)
            self.assertEqual(mean["samples"], 5)
            self.assertAlmostEqual(mean["mean"], expected)
            self.assertAlmostEqual(mean["high"] - mean["mean"], half, places=4)

    def test_interval_of_traces_averages_their_seeds_first(self):
        other = self.write("other.txt", TRACE.replace("5:8", "5:80"))
        traces = {"a": self.trace, "b": other}
        result = self.sweep(["fair"], grid={"fabric": self.fabrics()}, traces=traces, seeds=range(5))
        [mean] = result.mean(by=["policy"])
        by_trace = {each["trace"]: each["mean"] for each in result.mean(by=["trace"])}
        self.assertEqual(mean["samples"], 2)
        self.assertAlmostEqual(mean["mean"], (by_trace["a"] + by_trace["b"]) / 2)
        self.assertAlmostEqual(mean["mean"] - mean["low"], 12.7062 * abs(by_trace["a"] - by_trace["b"]) / 2, places=4)

    def test_replays_with_a_problem_are_no_samples(self):
        traces = {"a": self.trace, "b": self.write("other.txt", TRACE.replace("5:8", "5:80")), "stalls": self.write("s.weir", STALLS)}
        result = self.sweep(["fair"], grid={}, traces=traces)
        [mean] = result.mean(by="policy")
        self.assertEqual((result.failed, mean["samples"], mean["missing"]), (1, 2, 1))
        with self.assertRaisesRegex(weir.InputError, "no numbers"):
            result.mean("port_rate")

    def test_unknown_column_lists_the_columns(self):
        result = self.sweep()
        with self.assertRaisesRegex(KeyError, "expected one of trace, policy"):
            result.mean("cct")
        with self.assertRaisesRegex(weir.InputError, "expected a column with statistics"):
            result.mean("interval")


class File(SweepTest):
    TEXT = """policies = ["fair", "saath"]
seeds = "1..3"
baseline = "fair"
coflows = true
out = "out"

[traces]
t = "trace.txt"

[fabrics]
"2" = { kind = "leaf-spine", leaves = 5, hosts = 2, spines = 2, rate = "1Gbit", oversubscription = 2 }

[grid]
"saath:start" = ["1MB", "10MB"]
"""

    def run_main(self, *arguments):
        shown, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(errors):
            status = main(["sweep", *map(os.fspath, arguments)])
        return status, shown.getvalue(), errors.getvalue()

    def test_command_sweeps_and_prints_means(self):
        status, shown, _ = self.run_main(self.write("sweep.toml", self.TEXT))
        self.assertEqual(status, 0)
        lines = shown.splitlines()
        self.assertEqual(lines[0], "weir.Sweep: 9 points: 9 replayed, 0 reused, 0 failed")
        self.assertEqual(lines[2].split()[:4], ["policy", "saath:start", "fabric", "mean_cct_s"])
        self.assertEqual(lines[2].split()[7:], ["speedup_p50", "95", "%", "interval", "samples"])
        self.assertEqual([line.split()[:3] for line in lines[3:]], [["fair", "-", "2"], ["saath", "1MB", "2"], ["saath", "10MB", "2"]])
        self.assertEqual(lines[3].split()[7:], ["1", "1", "to", "1", "3"])
        self.assertEqual(len(self.keys()), 9)
        self.assertEqual(pyarrow.parquet.read_table(self.out / "_coflows").num_rows, 27)
        _, shown, _ = self.run_main(self.folder / "sweep.toml", "--executor", "processes")
        self.assertIn("0 replayed, 9 reused", shown)

    def test_generated_traces_have_the_seed_of_the_sweep_or_their_own(self):
        generated = 'made = { coflows = 5 }\nfixed = { coflows = 5, seed = 2 }\n'
        settings = read_sweep(self.write("sweep.toml", self.TEXT.replace('t = "trace.txt"\n', generated)))
        made, fixed = settings["traces"]["made"], settings["traces"]["fixed"]
        self.assertEqual(made(2).to_bytes(), fixed.to_bytes())
        self.assertNotEqual(made(1).to_bytes(), fixed.to_bytes())

    def test_command_reports_failures_by_its_status(self):
        self.write("stalls.weir", STALLS)
        file = self.write("sweep.toml", self.TEXT.replace("trace.txt", "stalls.weir"))
        status, shown, _ = self.run_main(file, "--out", self.folder / "other")
        self.assertEqual(status, 1)
        self.assertIn("9 failed", shown)
        self.assertIn("first error: trace=t", shown)
        file = self.write("sweep.toml", self.TEXT.replace('"saath"]', '"saath", "no-policy"]'))
        status, _, errors = self.run_main(file, "--out", self.folder / "other")
        self.assertEqual(status, 2)
        self.assertIn("unknown policy `no-policy`", errors)

    def test_errors_name_file_key_and_expectation(self):
        for old, new, expected in [
            ("seeds", "seed", r"`seed`: unknown key; expected one of traces, policies"),
            ('"1..3"', '"3..1"', r"`seeds`: '3..1'; expected a list of whole numbers"),
            ('["fair", "saath"]', "7", r"`policies`: 7; expected a list of policies"),
            ('t = "trace.txt"', "t = 7", r"`traces.t`: 7; expected a list of files"),
            ('t = "trace.txt"', "t = { flows = 7 }", r"`traces.t.flows`: unknown key; expected one of preset, seed"),
            ("spines = 2", "spines = 0", r"`fabrics.2`: .*spines"),
            ('["1MB", "10MB"]', '"1MB"', r"`grid.saath:start`: '1MB'; expected a table of options"),
            ("coflows = true", "coflows = 1", r"`coflows`: 1; expected true to keep"),
            ("policies", "[", r"sweep.toml: .*line 1"),
        ]:
            file = self.write("sweep.toml", self.TEXT.replace(old, new, 1))
            with self.subTest(new):
                with self.assertRaisesRegex(weir.InputError, "sweep.toml: " + expected.replace("sweep.toml: ", "")) as raised:
                    read_sweep(file)
                self.assertEqual(raised.exception.file, str(file))
                self.assertEqual(self.run_main(file)[0], 2)
        without_folder = self.write("sweep.toml", self.TEXT.replace('out = "out"\n', ""))
        self.assertIn("--out: expected the folder", self.run_main(without_folder)[2])


if __name__ == "__main__":
    unittest.main()
