"""The boundary between Python and the simulator: nothing that a program passes ends it or blocks it."""

import itertools
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from pathlib import Path

import weir
from command_line import DEMO, EXAMPLES, STOP_WITHIN, write_long_trace

DAG = EXAMPLES / "dag.weir"

#: Values of wrong types, and values out of bounds of right ones.
VALUES = [
    None, True, 0, 1, -1, 2**31, 2**32, 2**63, 2**64, 10**30, 0.0, -1.5, 1e308, math.nan, math.inf, -math.inf, 1j,
    "", " ", "\0", "saath", "8ms", "1Gbit", "nan", "inf", "-1ms", "1e400Gbit", "9" * 400 + "Gbit", "\U0001f40c", "x" * 100_000, "\ud800",
    b"", b"\xff", bytearray(b"1"), [], [None], ["saath"], [[]], (), {}, {"saath"}, range(3), object(), object, print, Exception("x"),
    Path(), Path("/"), Path("/dev/null"), DAG, weir.Policy("fair"), weir.Policy(""), weir.Policy("tree:/"), memoryview(b"x"),
]  # fmt: skip


class Hostile:
    """An object whose methods fail."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __iter__(self):
        yield "fair"
        raise RuntimeError("iteration")

    def __index__(self):
        raise RuntimeError("index")

    def __fspath__(self):
        raise RuntimeError("path")

    def __str__(self):
        raise RuntimeError("text")

    __repr__ = __str__


class Boundary(unittest.TestCase):
    def call(self, function, *arguments, **named):
        """Calls a function, which may fail with an ordinary exception. A panic of the native module is none."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return function(*arguments, **named)
        except Exception:
            return None
        except BaseException as error:
            self.fail(f"{type(error).__name__}: {error}")

    def test_each_argument_of_compare_takes_any_value_or_raises(self):
        names = [
            "policies", "baseline", "fabric", "port_rate", "interval", "arrival", "per_stage", "incast", "buffer", "decide_over", "path_seed",
            "bandwidth_seed", "jobs", "flows", "links", "timing", "progress",
        ]  # fmt: skip
        trace = weir.Trace.read(DAG)
        for name, value in itertools.product(names, [*VALUES, Hostile()]):
            with self.subTest(name=name, value=repr(value)[:60] if not isinstance(value, Hostile) else "Hostile"):
                arguments = {"policies": ["fair"], name: value}
                result = self.call(weir.compare, trace, **arguments)
                if result is not None:
                    self.assertGreater(len(result.coflows), 0)

    def test_invalid_values_raise(self):
        cases = [
            {"port_rate": 5}, {"port_rate": "5"}, {"interval": -1}, {"interval": "-1ms"}, {"interval": math.nan},
            {"buffer": -1}, {"buffer": "1"}, {"path_seed": -1}, {"path_seed": 2**64}, {"bandwidth_seed": 1.5},
            {"arrival": 0}, {"arrival": "2"}, {"arrival": math.nan}, {"jobs": 0}, {"jobs": -1}, {"jobs": 10**6}, {"decide_over": "x"},
            {"fabric": "missing.toml"}, {"fabric": 5}, {"policies": []}, {"policies": [None]}, {"policies": 5}, {"policies": [""]},
            {"baseline": ""}, {"baseline": 5}, {"per_stage": None}, {"incast": 5}, {"no_such_argument": 1},
        ]  # fmt: skip
        for case in cases:
            with self.subTest(case), self.assertRaises((ValueError, TypeError, OverflowError)):
                weir.compare(DAG, **{"policies": ["fair"], **case})

    def test_random_combinations(self):
        generator = random.Random(int(os.environ.get("WEIR_SEED", 1)))
        choices = {
            "policies": [["fair"], ["saath", "saath"], ["fair", "tree:x"], "weir", ["aalo:queues=1"], ["saath:d=inf"]],
            "baseline": [None, "varys", "x"],
            "fabric": [None, EXAMPLES / "fabrics/leaf-spine-16.toml", EXAMPLES / "wide-area/table-1.toml", DAG],
            "port_rate": [None, "1bit", "8000Tbit", "1Gbit"],
            "interval": [None, "0", "1us", "1e9s"],
            "arrival": [None, 1e-6, 2, 1e6],
            "per_stage": [False, True],
            "incast": [None, EXAMPLES / "incast/cost-512kB-marks.csv"],
            "buffer": [None, 0, 100, 2**32 - 1],
            "decide_over": [None, "links", "ports"],
            "path_seed": [None, 0, 2**64 - 1],
            "jobs": [1, 3],
            "flows": [False, True],
            "links": [False, True],
        }
        traces = [weir.Trace.read(DAG), weir.Trace.read(EXAMPLES / "dag.weir", EXAMPLES / "jobs.toml")]
        done = 0
        for _ in range(150):
            arguments = {name: generator.choice(values) for name, values in choices.items() if generator.random() < 0.3}
            if arguments.get("port_rate") == "1bit":
                # Schedules at each interval of centuries would take as long.
                arguments["interval"] = "0"
            result = self.call(weir.compare, generator.choice(traces), **{"policies": ["fair", "saath"], **arguments})
            if result is not None:
                done += 1
                kept = [name for name, argument in (("flows", "flows"), ("link_times", "links")) if arguments.get(argument)]
                for name in ("coflows", "bins", "groups", "jobs", "demands", "links", "schedules", *kept):
                    getattr(result, name).to_dicts()
                self.call(result.explain, coflow=1)
        self.assertGreater(done, 30)

    def test_reading_takes_any_value_or_raises(self):
        for value in [*VALUES, Hostile()]:
            for name in ("unit", "max_flows", "keep_arrivals"):
                self.call(weir.Trace.read, DAG, **{name: value})
            self.call(weir.Trace.read, value)
            self.call(weir.Trace.read, DAG, value)
            self.call(weir.compare, value, ["fair"])
            self.call(weir.Policy, value)
            self.call(weir.Policy, "saath", start=value)
            self.call(weir.Policy.tree, value)
            self.call(lambda value=value: weir.compare(DAG, [weir.Policy("saath", start=value)]))

    def test_malformed_files_raise(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        good = DAG.read_bytes()
        generator = random.Random(int(os.environ.get("WEIR_SEED", 1)))
        contents = [
            b"", b"\0", b"\xff" * 999, b"1 1\n1 nan 1 0 1 0:1\n", b"1 1\n1 0 1 0 1 0:inf\n", b"1 1\n1 0 1 0 1 0:1e308\n",
            b"99999999999 1\n", b"2 1\n1 0 1 0 99999999 1:1\n", b"weir-trace 1\nports 65537\n", b"weir-trace 1\n" + b"(" * 99,
        ]  # fmt: skip
        for _ in range(150):
            changed = bytearray(good)
            for _ in range(generator.randint(1, 4)):
                changed[generator.randrange(len(changed))] = generator.choice(b"0 9=,.:-\nezx\xff")
            contents.append(bytes(changed))
        for content in contents:
            file = Path(folder.name) / "trace"
            file.write_bytes(content)
            self.call(weir.compare, file, ["fair", "saath"], flows=True)

    def test_results_take_any_value_or_raise(self):
        result = weir.compare(DAG, ["fair", "saath"])
        for value in [*VALUES, Hostile()]:
            self.call(result.explain, coflow=value)
            self.call(result.explain, coflow=1, policy=value)
            self.call(result.explain, coflow=1, all=value)
            self.call(result.coflows.__getitem__, value)
            self.call(result.coflows.__arrow_c_stream__, value)
        for name in ("policies", "summary", "coflows", "_native"):
            with self.assertRaises(AttributeError):
                setattr(result._native, name, 1)
        with self.assertRaises(TypeError):
            type(result._native)()


class Threads(unittest.TestCase):
    def test_concurrent_comparisons_have_the_results_of_one(self):
        trace = weir.Trace.read(DEMO)
        policies = ["fair", "saath", "weir"]
        expected = weir.compare(trace, policies, timing=False)
        found, lock = [], threading.Lock()

        def work():
            result = weir.compare(trace, policies, timing=False, jobs=2, progress=lambda *_: None)
            with lock:
                found.append((result.summary, result.coflows.to_dicts(), result.explain(148).record))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        of_one = (expected.summary, expected.coflows.to_dicts(), expected.explain(148).record)
        self.assertEqual(found, [of_one] * len(threads))

    def test_other_threads_run_during_a_replay(self):
        counts, stop = [0], threading.Event()

        def count():
            while not stop.wait(0.001):
                counts[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        try:
            before = counts[0]
            weir.compare(DEMO, ["fair", "aalo", "saath", "weir", "varys"])
            self.assertGreater(counts[0], before + 5)
        finally:
            stop.set()
            thread.join()


class Reentrance(unittest.TestCase):
    def test_progress_receives_policies_and_counts_and_may_compare_itself(self):
        trace, calls, inner = weir.Trace.read(DEMO), [], []

        def progress(policies, completed, coflows):
            calls.append((policies, completed, coflows))
            if len(inner) < 2:
                inner.append(weir.compare(DAG, ["fair"], progress=lambda *_: weir.compare(DAG, ["saath"])))
                inner[-1].explain(1)

        policies = [f"aalo:start={megabytes}MB" for megabytes in range(1, 13)]
        result = weir.compare(trace, policies, progress=progress)
        self.assertEqual(len(inner), 2)
        self.assertTrue(all(names == result.policies and coflows == 200 for names, _, coflows in calls))
        counts = [sum(completed) for _, completed, _ in calls]
        self.assertEqual(counts, sorted(counts))

    def test_exception_of_progress_ends_the_replays_and_reaches_the_caller(self):
        def progress(*_):
            raise ZeroDivisionError("of a test")

        with self.assertRaisesRegex(ZeroDivisionError, "of a test"):
            weir.compare(DEMO, [f"aalo:start={megabytes}MB" for megabytes in range(1, 50)], progress=progress)


INTERRUPTED = """
import sys, time, weir
trace = weir.Trace.read(sys.argv[1])

def progress(policies, completed, coflows):
    # The first policy has finished, and a later one replays.
    if completed[0] == coflows and 0 < completed[1] < coflows:
        print("replaying", flush=True)

try:
    weir.compare(trace, ["fair", "aalo", "saath"], progress=progress)
except weir.Interrupted as interrupted:
    print("stopped", time.monotonic(), flush=True)
    result = interrupted.result
assert (result.policies, result.missing) == (["fair"], ["aalo", "saath"]), (result.policies, result.missing)
assert len(result.coflows) == len(trace)
assert "without results" in repr(result)
result.explain(1)
assert len(weir.compare(trace, ["fair"]).coflows) == len(trace)
print("usable", flush=True)
"""

class Interrupts(unittest.TestCase):
    def test_signal_stops_replays_soon_and_keeps_finished_policies(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        command = [sys.executable, "-c", INTERRUPTED, write_long_trace(folder.name)]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "replaying\n")
        sent = time.monotonic()
        program.send_signal(signal.SIGINT)
        lines = [line for line in program.stdout if line != "replaying\n"]
        self.assertEqual(program.wait(), 0, lines)
        word, stopped = lines[0].split()
        self.assertEqual((word, lines[1:]), ("stopped", ["usable\n"]))
        self.assertLess(float(stopped) - sent, STOP_WITHIN)


if __name__ == "__main__":
    unittest.main()
