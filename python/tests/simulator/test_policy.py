import contextlib
import csv
import importlib.util
import os
import random
import signal
import tempfile
import threading
import time
import unittest
from itertools import groupby
from pathlib import Path

import numpy as np

import weir
from weir.simulator.own_policy import Event
from weir.simulator.view import LinkKind

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(__file__).resolve().parent / "data"
SHUFFLES = str(DATA / "shuffles.weir")
LEAF_SPINE = str(DATA / "leaf-spine.toml")

# 1 Gbit/s are 125 MB/s.
RATE = 125e6

# Coflow 7 needs the sending side of port 0 for 20 ms, coflow 9 for 8 ms.
TWO_COFLOWS = """weir-trace 1
ports 3
coflow 7
flow 0 1 1MB
flow 0 2 1.5MB
coflow 9 arrival=4ms weight=2 deadline=30ms
flow 0 1 1MB
"""


def trace_of(text):
    """A trace of this text in Weir's format."""
    with tempfile.NamedTemporaryFile("w", suffix=".weir") as file:
        file.write(text)
        file.flush()
        return weir.Trace.read(file.name)


def rows(table, *columns):
    """The rows of a table, of these columns."""
    return list(zip(*(table[column] for column in columns)))


def completion_times(trace, policy, **options):
    """By coflow: its completion time under a policy in seconds."""
    result = weir.compare(trace, [policy], progress=False, **options)
    return dict(rows(result.coflows, "coflow", "cct_s"))


def least_attained_service():
    """The policy of examples/python/least_attained.py."""
    spec = importlib.util.spec_from_file_location("least_attained", ROOT / "examples/python/least_attained.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LeastAttainedService


class InOrder(weir.BlindPolicy):
    """Coflows in order of release."""

    def schedule(self, view):
        return view.in_order(range(len(view.coflows)))


def tearDownModule():
    """Replaces the policies of this module, so that a comparison of all policies in another one runs without them."""
    bases = [weir.BlindPolicy, weir.ClairvoyantPolicy]
    while bases:
        base = bases.pop()
        bases += base.__subclasses__()
        if base.__module__ in (__name__, "least_attained") and base is not InOrder:
            with contextlib.suppress(weir.InputError, TypeError):
                type(base.__name__, (InOrder,), {"name": base.name, "__module__": "tests"})


class LeastAttainedService(unittest.TestCase):
    def test_completion_times_equal_those_of_the_policy_in_rust(self):
        policy = least_attained_service()
        with open(DATA / "least-attained.csv") as file:
            expected = list(csv.DictReader(file))
        compared = {key: list(group) for key, group in groupby(expected, lambda row: row["options"])}
        self.assertEqual(len(compared), 6)
        for options, coflows in compared.items():
            file, _, interval, *fabric = options.split(" ")
            network = {"fabric": ROOT / fabric[1]} if fabric else {}
            found = completion_times(ROOT / file, policy, interval=interval, **network)
            self.assertEqual(len(found), len(coflows))
            for row in coflows:
                self.assertAlmostEqual(found[int(row["coflow"])], float(row["cct_s"]), delta=1e-9, msg=options)

    def test_policy_runs_in_a_comparison_an_explanation_and_a_tree(self):
        policy = least_attained_service()
        result = weir.compare(SHUFFLES, ["fair", policy, "saath"], progress=False)
        self.assertEqual(result.policies, ["fair", "least-attained-service", "saath"])
        self.assertIn("\nleast-attained-service ", str(result))
        explanation = result.explain(coflow=12, policy=policy)
        self.assertIn("Coflow 12 under least-attained-service", str(explanation))
        self.assertIn("all-or-none", {segment["rule"] for segment in explanation.segments})
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree.toml"
            tree.write_text("weir-tree = 1\n[default]\npolicy = 'least-attained-service'\n")
            trace = trace_of(TWO_COFLOWS)
            self.assertEqual(completion_times(trace, weir.Policy.tree(tree)), completion_times(trace, policy))

    def test_page_shows_the_code(self):
        page = (ROOT / "docs/adding-a-policy.md").read_text()
        block = page.split("```python\n")[1].split("```")[0]
        self.assertIn(block, (ROOT / "examples/python/least_attained.py").read_text())


class Orders(unittest.TestCase):
    """Policies that are an order, next to the same ones in Rust."""

    def test_orders_of_clairvoyant_policies_equal_those_of_weir(self):
        class Ordered(weir.ClairvoyantPolicy):
            def __init__(self, by: str = "release"):
                self.by = by

            def schedule(self, view):
                keys = {
                    "release": lambda: view.coflows.released_at,
                    "size": lambda: view.coflows.size,
                    "remaining": lambda: view.coflows.remaining_bytes,
                    "flows": lambda: view.coflows.width,
                }
                return view.in_order(np.argsort(keys[self.by](), kind="stable"))

        for by, policy in [("release", "fifo"), ("size", "scf"), ("remaining", "lcf"), ("flows", "ncf")]:
            for options in [{"interval": "0"}, {"interval": "8ms", "fabric": LEAF_SPINE}]:
                found = completion_times(SHUFFLES, weir.Policy("ordered", by=by), **options)
                for coflow, seconds in completion_times(SHUFFLES, policy, **options).items():
                    self.assertAlmostEqual(found[coflow], seconds, delta=1e-9, msg=(policy, options))

    def test_leaves_of_a_tree_equal_leaves_with_the_same_policy_of_weir(self):
        class Release(weir.ClairvoyantPolicy):
            def schedule(self, view):
                return view.in_order(np.arange(len(view.coflows)), rules=["first-come"] * len(view.coflows))

        with tempfile.TemporaryDirectory() as folder:
            trees = []
            for policy in ("release", "fifo"):
                tree = Path(folder) / f"{policy}.toml"
                services = [f"[service.service-{number}]\npolicy = '{policy}'\n" for number in (1, 2)]
                tree.write_text("weir-tree = 1\n" + "".join(services))
                trees.append(weir.Policy.tree(tree))
            result = weir.compare(SHUFFLES, trees, interval="0", progress=False)
            explanation = result.explain(coflow=12, policy=trees[0])
        found, expected = np.array(result.coflows["cct_s"]).reshape(2, -1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
        self.assertIn("first-come", {segment["rule"] for segment in explanation.segments})

    def test_rates_by_numpy_equal_max_min_of_one_link(self):
        class EvenRates(weir.BlindPolicy):
            def schedule(self, view):
                flows = np.bincount(view.flows.sending_link, minlength=len(view.links))
                return weir.Allocation(RATE / flows[view.flows.sending_link])

        trace = trace_of(TWO_COFLOWS)
        found = completion_times(trace, EvenRates, interval="0")
        for coflow, seconds in completion_times(trace, "fair", interval="0").items():
            self.assertAlmostEqual(found[coflow], seconds, delta=1e-12)

    def test_common_rates_and_backfilling_give_times_computed_by_hand(self):
        class Even(weir.BlindPolicy):
            def schedule(self, view):
                return weir.Allocation(equal_rates=RATE / 3 * np.ones(len(view.coflows)))

        class Slow(weir.ClairvoyantPolicy):
            def schedule(self, view):
                # Twice the time on an idle network; nothing for the second coflow until the first one has completed.
                seconds = 2 * view.coflows.remaining_bytes / RATE
                return weir.Allocation(completion_times=np.where(np.arange(len(seconds)) == 0, seconds, np.inf))

        class Strict(weir.BlindPolicy):
            def schedule(self, view):
                return view.in_order([0], backfill=False)

        # A third of the link: 1.5 MB after 36 ms, and 1 MB after 24 ms.
        trace = trace_of(TWO_COFLOWS)
        for policy, expected in [(Even, (0.036, 0.024)), (Strict, (0.020, 0.024))]:
            found = completion_times(trace, policy, interval="0")
            self.assertAlmostEqual(found[7], expected[0], delta=1e-12, msg=policy.name)
            self.assertAlmostEqual(found[9], expected[1], delta=1e-12, msg=policy.name)
        # At 4 ms, a tenth of the bytes is gone: 36 ms more.
        found = completion_times(trace, Slow, interval="0")
        self.assertAlmostEqual(found[7], 0.040, delta=1e-12)
        self.assertAlmostEqual(found[9], 0.036 + 0.016, delta=1e-12)


class Registration(unittest.TestCase):
    def setUp(self):
        self.trace = trace_of(TWO_COFLOWS)

    def test_default_names_are_in_lower_case_with_hyphens(self):
        for name, expected in [("Las", "las"), ("FooBar2", "foo-bar2"), ("SRTFByLength", "srtf-by-length"), ("_Own_X", "own-x")]:
            cls = type(name, (InOrder,), {})
            self.assertEqual(cls.name, expected)
            self.assertEqual(weir.compare(self.trace, [cls], progress=False).policies, [expected])

    def test_invalid_names_are_refused(self):
        for name, reason in [("saath", "`saath` exists"), ("tree", "`tree` exists"), ("a:b", "`a:b` is invalid"), ("", "invalid")]:
            with self.assertRaisesRegex(weir.InputError, reason):
                type("Named", (InOrder,), {"name": name})
        with self.assertRaises(TypeError):
            type("Named", (InOrder,), {"name": 3})

    def test_class_that_is_defined_again_replaces_the_former(self):
        def define(seconds):
            class Redefined(weir.ClairvoyantPolicy):
                def schedule(self, view):
                    # The first coflow ends at this time, and the other one after it.
                    left = np.where(view.coflows.id == 7, seconds - view.now, np.inf if 7 in view.coflows.id else 1)
                    return weir.Allocation(completion_times=left)

            return Redefined

        first, second = define(0.1), define(0.2)
        for policy, expected in [("redefined", 0.2), (first, 0.1), ("redefined", 0.1), (second, 0.2)]:
            self.assertAlmostEqual(completion_times(self.trace, policy, interval="0")[7], expected, delta=1e-9)

    def test_parameters_become_arguments_of_a_new_object_for_each_replay(self):
        made = []

        class Configured(InOrder):
            name = "configured"

            def __init__(self, levels: int = 3, *, is_strict=False, part=0.5, key_name: str = "x"):
                made.append((self, levels, is_strict, part, key_name))

        policy = weir.Policy("configured", levels=4, is_strict=True, part=0.25, key_name="a b")
        weir.compare(self.trace, [Configured, policy], progress=False)
        # One of each is built to check its parameters before the first replay.
        values = {made[1:] for made in made}
        self.assertEqual(values, {(3, False, 0.5, "x"), (4, True, 0.25, "a b")})
        self.assertEqual(len({id(object) for object, *_ in made}), len(made))
        for spec, reason in [
            ("configured:level=1", " has no parameter `level`; expected one of levels, is-strict, part, key-name"),
            ("configured:levels=1.5", ": `levels=1.5` is invalid; expected a whole number"),
            ("configured:part=x", ": `part=x` is invalid; expected a number"),
            ("configured:is-strict=yes", ": `is-strict=yes` is invalid; expected `on` or `off`"),
            ("configured:levels=1:levels=2", ": `levels=2` is invalid; expected each parameter once"),
            ("in-order:x=1", " has no parameter `x`; expected none"),
        ]:
            with self.assertRaisesRegex(weir.InputError, f"policy `{spec.split(':')[0]}`{reason}"):
                weir.compare(self.trace, [spec], progress=False)

    def test_parameters_without_a_default_value_are_refused(self):
        def without_default(self, levels):
            pass

        def with_list(self, levels=[]):
            pass

        def positional(self, levels=1, /):
            pass

        for init in (without_default, with_list, positional):
            with self.assertRaisesRegex(TypeError, "Refused: parameter `levels` is invalid; expected a keyword with a default"):
                type("Refused", (InOrder,), {"__init__": init})

    def test_objects_that_are_no_policy_are_refused(self):
        for wrong in (InOrder(), weir.BlindPolicy, int, 3, None, b"fair"):
            with self.assertRaisesRegex(TypeError, "the class of a policy"):
                weir.compare(self.trace, [wrong], progress=False)


class Views(unittest.TestCase):
    def replay(self, base, look, trace=None, **options):
        """Serves coflows in order of release, and calls `look` with each view."""

        class Looking(base):
            def schedule(self, view):
                look(view)
                return view.in_order(np.arange(len(view.coflows)))

        weir.compare(trace or trace_of(TWO_COFLOWS), [Looking], progress=False, **options)

    def test_values_of_a_small_network(self):
        views = []

        def look(view):
            flows, coflows = view.flows, view.coflows
            views.append(
                {
                    "now": view.now,
                    "interval": view.interval,
                    **{name: getattr(coflows, name).tolist() for name in (
                        "id", "service", "application", "weight", "released_at", "deadline", "width", "live_flows", "sent_bytes",
                        "max_sent_bytes", "rate", "contention", "size", "remaining_bytes")},
                    **{f"flow_{name}": getattr(flows, name).tolist() for name in (
                        "coflow", "number", "sent_bytes", "rate", "size", "remaining_bytes", "path_starts")},
                    "flow_paths": [flows.path_links[start:end].tolist() for start, end in zip(flows.path_starts, flows.path_starts[1:])],
                    "flow_ends": list(zip(flows.sending_link.tolist(), flows.receiving_link.tolist())),
                }
            )  # fmt: skip
            self.assertEqual(view.links.capacity.tolist(), [RATE] * 6)
            self.assertEqual([LinkKind(kind).name for kind in view.links.kind], ["SENDER"] * 3 + ["RECEIVER"] * 3)

        self.replay(weir.ClairvoyantPolicy, look, interval="0")
        first, second = views[:2]
        self.assertEqual([view["now"] for view in views[:2]], [0, 0.004])
        for name, expected in {
            "interval": 0,
            "id": [7, 9],
            "service": [0, 0],
            "application": [0, 0],
            "weight": [1, 2],
            "released_at": [0, 0.004],
            "deadline": [np.inf, 0.034],
            "width": [2, 1],
            "live_flows": [2, 1],
            "contention": [1, 1],
            "size": [2.5e6, 1e6],
            "flow_coflow": [0, 0, 1],
            "flow_number": [0, 1, 0],
            "flow_size": [1e6, 1.5e6, 1e6],
            "flow_path_starts": [0, 2, 4, 6],
        }.items():
            self.assertEqual(second[name], expected, name)
        self.assertEqual((first["contention"], first["sent_bytes"], first["rate"]), ([0], [0], [0]))
        self.assertEqual(second["flow_paths"], [list(ends) for ends in second["flow_ends"]])
        # MADD: two fifths of the link for the first flow.
        for name, expected in {
            "sent_bytes": [0.5e6, 0],
            "max_sent_bytes": [0.3e6, 0],
            "remaining_bytes": [2e6, 1e6],
            "rate": [RATE, 0],
            "flow_sent_bytes": [0.2e6, 0.3e6, 0],
            "flow_remaining_bytes": [0.8e6, 1.2e6, 1e6],
            "flow_rate": [0.4 * RATE, 0.6 * RATE, 0],
        }.items():
            np.testing.assert_allclose(second[name], expected, rtol=1e-12, err_msg=name)

    def test_values_of_blind_and_clairvoyant_views_are_consistent(self):
        for base in (weir.BlindPolicy, weir.ClairvoyantPolicy):
            for fabric in (None, LEAF_SPINE):
                self.replay(base, self.check_consistency, SHUFFLES, fabric=fabric)

    def check_consistency(self, view):
        flows, coflows, links = view.flows, view.coflows, view.links
        count, live = len(coflows), coflows.live_flows
        self.assertEqual(np.bincount(flows.coflow, minlength=count).tolist(), live.tolist())
        self.assertTrue(np.all(np.diff(coflows.released_at) >= 0))
        np.testing.assert_allclose(np.bincount(flows.coflow, flows.rate, count), coflows.rate, rtol=1e-9, atol=1)
        starts = flows.path_starts
        self.assertEqual((starts[0], starts[-1]), (0, len(flows.path_links)))
        self.assertEqual(flows.path_links[starts[:-1]].tolist(), flows.sending_link.tolist())
        self.assertEqual(flows.path_links[starts[:-1] + 1].tolist(), flows.receiving_link.tolist())
        trunks = links.kind[flows.path_links] == LinkKind.TRUNK
        self.assertTrue(np.all(np.diff(starts) >= 2) and trunks.sum() == len(flows.path_links) - 2 * len(flows))
        rates = np.bincount(flows.path_links, np.repeat(flows.rate, np.diff(starts)), len(links))
        self.assertTrue(np.all(rates <= links.capacity * (1 + 1e-9)))
        sent = np.bincount(flows.coflow, flows.sent_bytes, count)
        whole = live == coflows.width
        np.testing.assert_allclose(coflows.sent_bytes[whole], sent[whole], rtol=1e-9, atol=1)
        self.assertTrue(np.all(coflows.sent_bytes >= sent - 1))
        most = np.zeros(count)
        np.maximum.at(most, flows.coflow, flows.sent_bytes)
        np.testing.assert_allclose(coflows.max_sent_bytes[whole], most[whole], rtol=1e-9, atol=1)
        if not np.any(links.kind == LinkKind.TRUNK):
            uses = np.zeros((count, len(links)), bool)
            uses[flows.coflow, flows.sending_link] = uses[flows.coflow, flows.receiving_link] = True
            shared = (uses.astype(int) @ uses.T.astype(int) > 0).sum(axis=1) - (live > 0)
            self.assertEqual(coflows.contention.tolist(), shared.tolist())
        if isinstance(view.flows, weir.simulator.view.SizedFlows):
            np.testing.assert_allclose(flows.size - flows.sent_bytes, flows.remaining_bytes, rtol=1e-9, atol=1)
            left = np.bincount(flows.coflow, flows.remaining_bytes, count)
            np.testing.assert_allclose(coflows.remaining_bytes, left, rtol=1e-9, atol=1)

    def test_blind_views_have_no_sizes(self):
        def look(view):
            for group in (view.coflows, view.flows):
                for name in ("size", "remaining_bytes"):
                    with self.assertRaisesRegex(AttributeError, "unknown to a blind policy; derive the class from weir.Clair"):
                        getattr(group, name)
            for group in (view.coflows, view.flows, view.links):
                with self.assertRaisesRegex(AttributeError, "`sizes` is no attribute"):
                    group.sizes
            native = view.coflows._fields.native
            for field in ("coflows.size", "flows.size", "coflows.remaining_bytes", "flows.remaining_bytes"):
                with self.assertRaisesRegex(AttributeError, "sizes are unknown"):
                    native.read(field)
            for field in ("", "coflows", "coflows.", "coflows.sizes", "links.size", "x.size", "flows.contention"):
                with self.assertRaisesRegex(AttributeError, "no field"):
                    native.read(field)

        self.replay(weir.BlindPolicy, look)

    def test_arrays_are_read_only_copies(self):
        kept = []

        def look(view):
            for array in (view.coflows.sent_bytes, view.flows.sent_bytes, view.links.capacity):
                with self.assertRaises(ValueError):
                    array[:] = 1
            self.assertIs(view.coflows.sent_bytes, view.coflows.sent_bytes)
            kept.append(view.links.capacity)

        self.replay(weir.BlindPolicy, look)
        self.assertEqual({tuple(capacity) for capacity in kept}, {(RATE,) * 6})

    def test_views_of_earlier_calls_raise(self):
        kept = []

        def look(view):
            view.coflows.sent_bytes
            kept.append((view, view.coflows, view.flows, view.links, view.coflows._fields.native))
            for view, coflows, flows, links, native in kept[:-1]:
                for access in (
                    lambda: view.now,
                    lambda: view.interval,
                    lambda: coflows.sent_bytes,
                    lambda: flows.rate,
                    lambda: links.kind,
                    lambda: len(coflows),
                    lambda: view.in_order([]),
                    lambda: native.read("coflows.id"),
                    lambda: native.times(),
                ):
                    with self.assertRaisesRegex(RuntimeError, "valid until the method that received it returns"):
                        access()

        self.replay(weir.BlindPolicy, look)
        self.assertGreater(len(kept), 2)

    def test_threads_of_a_policy_can_read_its_view(self):
        def look(view):
            found = []
            threads = [threading.Thread(target=lambda: found.append(view.flows.rate.sum())) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            self.assertEqual(found, [view.coflows.rate.sum()] * 4)

        self.replay(weir.BlindPolicy, look)

    def test_events_name_coflows_and_flows(self):
        events, wakeups = [], []

        class Listening(InOrder):
            name = "listening"

            def on_event(self, event, view):
                self.seen = [*getattr(self, "seen", []), (event, view.now, len(view.coflows))]
                events[:] = self.seen

            def next_wakeup(self, view):
                wakeups.append((view.now, view.coflows.rate.tolist()))
                return 0.002 if view.now < 0.002 else None

        weir.compare(trace_of(TWO_COFLOWS), [Listening], interval="0", progress=False)
        self.assertEqual(
            [(event.kind, event.coflow, event.flow, count) for event, _, count in events],
            [
                ("coflow-released", 7, None, 1),
                ("coflow-released", 9, None, 2),
                ("flow-completed", 7, 0, 2),
                ("flow-completed", 7, 1, 2),
                ("coflow-completed", 7, None, 2),
                ("flow-completed", 9, 0, 1),
                ("coflow-completed", 9, None, 1),
            ],
        )
        self.assertIsInstance(events[0][0], Event)
        self.assertEqual([now for now, _ in wakeups[:3]], [0, 0.002, 0.004])
        self.assertEqual(wakeups[2][1], [RATE, 0])


class Faults(unittest.TestCase):
    """What ends a replay, and with which error."""

    def setUp(self):
        self.trace = trace_of(TWO_COFLOWS)

    def fail(self, schedule, base=weir.BlindPolicy, **methods):
        """The error of a policy with these methods."""
        faulty = type("Faulty", (base,), {"schedule": schedule, "__doc__": None, **methods})
        with self.assertRaises(weir.ReplayError) as caught:
            weir.compare(self.trace, ["fair", faulty, "saath"], progress=False, interval="0")
        return caught.exception

    def test_exceptions_are_the_cause_of_the_error(self):
        def divide(self, view):
            return 1 / 0 if view.now > 0 else view.in_order([0])

        def divide_at_once(self, *_):
            return 1 / 0

        for methods, moment in [
            ({"schedule": divide}, "4ms"),
            ({"schedule": InOrder.schedule, "on_event": divide_at_once}, "0s"),
            ({"schedule": InOrder.schedule, "next_wakeup": divide_at_once}, "0s"),
        ]:
            error = self.fail(**methods)
            self.assertRegex(str(error), f"policy `faulty` at {moment}: ZeroDivisionError: division by zero")
            self.assertIsInstance(error.__cause__, ZeroDivisionError)
            frames = []
            traceback = error.__cause__.__traceback__
            while traceback:
                frames.append(traceback.tb_frame.f_code.co_name)
                traceback = traceback.tb_next
            self.assertIn(frames[-1], ("divide", "divide_at_once"))

    def test_failure_of_one_of_concurrent_policies_has_its_own_cause(self):
        class Failing(weir.BlindPolicy):
            def __init__(self, number: int = 0):
                self.number = number

            def schedule(self, view):
                raise IndexError(f"number {self.number}")

        policies = [weir.Policy("failing", number=number) for number in range(4)]
        with self.assertRaisesRegex(weir.ReplayError, "policy `failing:number=0` at 0s: IndexError: number 0") as caught:
            weir.compare(self.trace, policies, jobs=4, progress=False)
        self.assertEqual(str(caught.exception.__cause__), "number 0")

    def test_exception_during_an_explanation_is_the_cause_of_its_error(self):
        calls = []

        class Failing(InOrder):
            def schedule(self, view):
                calls.append(view.now)
                if len(calls) > completed:
                    raise IndexError("again")
                return super().schedule(view)

        completed = float("inf")
        result = weir.compare(self.trace, [Failing], progress=False)
        completed = len(calls)
        with self.assertRaisesRegex(weir.ReplayError, "policy `failing` at 0s: IndexError: again") as caught:
            result.explain(coflow=9)
        self.assertIsInstance(caught.exception.__cause__, IndexError)

    def test_exceptions_of_any_class_end_the_replay(self):
        class Unprintable(Exception):
            def __str__(self):
                raise ValueError

        for exception, text in [
            (SystemExit(3), "SystemExit: 3"),
            (Unprintable(), "Unprintable"),
            (StopIteration(), "StopIteration"),
            (ValueError("a\nb"), "ValueError: a b"),
            (GeneratorExit("a", 1), r"GeneratorExit: ('a', 1)"),
        ]:

            def schedule(self, view, exception=exception):
                raise exception

            error = self.fail(schedule)
            self.assertIs(error.__cause__, exception)
            self.assertIn(f"at 0s: {text}", str(error))

    def test_exception_of_the_constructor_is_the_cause_of_the_error(self):
        def refuse(self, levels=3):
            if levels != 3:
                raise LookupError("levels")

        type("Faulty", (InOrder,), {"__init__": refuse})
        weir.compare(self.trace, ["faulty"], progress=False)
        with self.assertRaisesRegex(weir.InputError, "policy `faulty`: LookupError: levels") as caught:
            weir.compare(self.trace, ["faulty:levels=4"], progress=False)
        self.assertIsInstance(caught.exception.__cause__, LookupError)

    def test_invalid_decisions_name_time_and_coflow(self):
        nan, full = float("nan"), RATE
        n = lambda view: len(view.coflows)
        f = lambda view: len(view.flows)
        A = weir.Allocation
        blind = [
            (lambda v: None, "TypeError: `schedule` returned None; expected a weir.Allocation"),
            (lambda v: [1.0] * f(v), r"TypeError: `schedule` returned \[1.0, 1.0, 1.0\]; expected a weir.Allocation"),
            (lambda v: A([nan] * f(v)), "coflow 7: rate of flow 0: NaN; expected a finite rate of at least 0"),
            (lambda v: A([0.0] * (f(v) - 1) + [-1]), "coflow 9: rate of flow 0: -1; expected a finite rate"),
            (lambda v: A([np.inf] * f(v)), "coflow 7: rate of flow 0: inf; expected a finite rate"),
            (lambda v: A([full] * f(v)), r"coflow 7, port 0 \(sending\): the rates on the link sum to .*; expected at most its"),
            (lambda v: A([1.0] * (f(v) + 1)), "rates of flows: 4 values; expected 3"),
            (lambda v: A([]), "rates of flows: 0 values; expected 3"),
            (lambda v: A(equal_rates=[1.0]), "rates of coflows: 1 values; expected 2"),
            (lambda v: A(equal_rates=[0.0, nan]), "coflow 9: NaN; expected a finite rate"),
            (lambda v: A(equal_rates=[full] * n(v)), "coflow 7, .*the rates on the link sum to"),
            (lambda v: A(completion_times=[1.0] * n(v)), "ValueError: completion_times of a blind policy"),
            (lambda v: A(np.ones((f(v), 1))), r"ValueError: rates: an array of shape \(3, 1\); expected one dimension"),
            (lambda v: A(1.0), "ValueError: rates: an array of shape"),
            (lambda v: A(["a"] * f(v)), "TypeError: rates: an array of <U1; expected numbers"),
            (lambda v: A([True] * f(v)), "TypeError: rates: an array of bool; expected numbers"),
            (lambda v: A([1j] * f(v)), "TypeError: rates: an array of complex128; expected numbers"),
            (lambda v: A([None] * f(v)), "TypeError: rates: an array of object; expected numbers"),
            (lambda v: A([10**400] * f(v)), "TypeError: rates: an array of object; expected numbers"),
            (lambda v: A([[1], [1, 2]]), "ValueError"),
            (lambda v: A(queues=[0]), "queues: 1 values; expected 2"),
            (lambda v: A(queues=[0, -1]), "coflow 9: queue -1; expected 0 to 65535"),
            (lambda v: A(queues=[65536, 0]), "coflow 7: queue 65536; expected 0 to 65535"),
            (lambda v: A(queues=[0.5, 0]), "TypeError: queues: an array of float64; expected integers"),
            (lambda v: A(queues=np.array([2**63, 0], np.uint64)), "ValueError: queues: 9223372036854775808; expected a number below"),
            (lambda v: A(rules=["a"]), "rules: 1 values; expected 2"),
            (lambda v: A(rules="ab"), "TypeError: rules: 'ab'; expected a name for each coflow"),
            (lambda v: A(rules=[1, 2]), "TypeError: rules: 1; expected text"),
            (lambda v: A(rules=3), "TypeError"),
            (lambda v: v.in_order([0, 0]), "coflow 7: order: position 0 twice; expected each coflow once"),
            (lambda v: v.in_order([2]), "order: position 2; expected positions of coflows, 0 to 1"),
            (lambda v: v.in_order([-1]), "order: position -1; expected positions of coflows"),
            (lambda v: v.in_order([2**62]), "order: position 4611686018427387904; expected"),
            (lambda v: v.in_order(["7"]), "TypeError: order: an array of <U1; expected integers"),
            (lambda v: v.in_order([0.0]), "TypeError: order: an array of float64; expected integers"),
            (lambda v: v.in_order(None), r"ValueError: order: an array of shape \(\); expected one dimension"),
        ]
        clairvoyant = [
            (lambda v: A(equal_rates=[1.0] * n(v)), "ValueError: equal_rates of a clairvoyant policy"),
            (lambda v: A(completion_times=[np.inf, 0]), "coflow 9: 0; expected a time above 0 seconds"),
            (lambda v: A(completion_times=[-1, 1]), "coflow 7: -1; expected a time above 0 seconds"),
            (lambda v: A(completion_times=[nan, 1]), "coflow 7: NaN; expected a time above 0 seconds"),
            (lambda v: A(completion_times=[1e-9, 1]), "coflow 7, .*the rates on the link sum to"),
        ]
        for base, decisions in [(weir.BlindPolicy, blind), (weir.ClairvoyantPolicy, clairvoyant)]:
            for decide, expected in decisions:

                def schedule(self, view, decide=decide):
                    # Both coflows are active from 4 ms on.
                    return decide(view) if len(view.coflows) == 2 else view.in_order([0])

                with self.subTest(expected):
                    self.assertRegex(str(self.fail(schedule, base)), f"^policy `faulty` at 4ms: {expected}")

    def test_wakeups_in_the_past_or_of_other_types_end_the_replay(self):
        for returned, expected in [
            (float("nan"), "a wake-up at NaN s; expected a later time"),
            (-1.0, "a wake-up at -1 s; expected a later time"),
            ("soon", "TypeError: `next_wakeup` returned 'soon'; expected a time in seconds, or None"),
            ([1.0], r"TypeError: `next_wakeup` returned \[1.0\]"),
            (1 + 1j, "TypeError: `next_wakeup` returned"),
        ]:
            error = self.fail(InOrder.schedule, next_wakeup=lambda self, view, returned=returned: returned)
            self.assertRegex(str(error), f"policy `faulty` at 0s: {expected}")

    def test_wakeup_at_the_present_time_is_a_microsecond_later(self):
        class Awake(InOrder):
            def next_wakeup(self, view):
                return view.now if view.now < 1e-5 else np.float32(np.inf)

        result = weir.compare(self.trace, [Awake], progress=False, interval="0")
        self.assertLess(10, result.summary[0]["schedules"])

    def test_random_decisions_end_with_an_error_or_valid_results(self):
        generator = random.Random(7)
        values = [0, 1, -1, 0.0, 1e6, 1e300, -0.0, 5e-324, np.nan, np.inf, -np.inf, 2**40, None, "x", True, 1j, [], np.float32(3)]

        def array(count):
            count = generator.choice([count, count, count, 0, 1, count + 1, 1000])
            if generator.random() < 0.3:
                return generator.choice(values)
            kind = generator.choice(values)
            return [generator.choice([kind, kind, generator.choice(values)]) for _ in range(count)]

        def schedule(self, view):
            if generator.random() < 0.2:
                return view.in_order(array(len(view.coflows)), queues=array(len(view.coflows)))
            names = ["rates", "equal_rates", "completion_times", "queues", "rules"]
            chosen = generator.sample(names, generator.randint(0, 3))
            counts = {"rates": len(view.flows)}
            return weir.Allocation(**{name: array(counts.get(name, len(view.coflows))) for name in chosen})

        outcomes = {True: 0, False: 0}
        for base in (weir.BlindPolicy, weir.ClairvoyantPolicy):
            for _ in range(300):
                faulty = type("Faulty", (base,), {"schedule": schedule})
                try:
                    found = completion_times(self.trace, faulty, interval="0")
                    outcomes[True] += 1
                    self.assertTrue(all(seconds is None or seconds > 0 for seconds in found.values()))
                except weir.ReplayError as error:
                    outcomes[False] += 1
                    self.assertRegex(str(error), "^policy `faulty` at ")
        self.assertGreater(outcomes[False], 100)


class Interrupts(unittest.TestCase):
    def setUp(self):
        self.trace = trace_of(TWO_COFLOWS)

    def test_keyboard_interrupt_in_a_policy_keeps_finished_policies(self):
        def schedule(self, view):
            raise KeyboardInterrupt

        faulty = type("Faulty", (weir.BlindPolicy,), {"schedule": schedule})
        with self.assertRaises(weir.Interrupted) as caught:
            weir.compare(self.trace, ["fair", faulty, "saath"], progress=False)
        self.assertEqual(caught.exception.result.policies, ["fair"])
        self.assertEqual(caught.exception.result.missing, ["faulty", "saath"])

    def interrupt(self, schedule):
        """Sends Ctrl-C when the policy decides; returns the exception, and the seconds until it was raised."""
        decides = threading.Event()
        faulty = type("Faulty", (weir.BlindPolicy,), {"schedule": lambda self, view: schedule(view, decides)})

        def press():
            decides.wait()
            sent_at.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        sent_at = []
        thread = threading.Thread(target=press)
        thread.start()
        with self.assertRaises(weir.Interrupted) as caught:
            weir.compare(self.trace, ["fair", faulty], progress=False)
        seconds = time.monotonic() - sent_at[0]
        thread.join()
        return caught.exception, seconds

    def test_ctrl_c_ends_an_endless_loop_of_a_policy(self):
        def schedule(view, decides):
            decides.set()
            while True:
                pass

        exception, seconds = self.interrupt(schedule)
        self.assertEqual(exception.result.policies, ["fair"])
        self.assertLess(seconds, 2)

    def test_ctrl_c_ends_a_policy_that_continues_after_it(self):
        def schedule(view, decides):
            try:
                decides.set()
                while True:
                    pass
            except KeyboardInterrupt:
                return view.in_order([0])

        exception, seconds = self.interrupt(schedule)
        self.assertEqual(exception.result.policies, ["fair"])
        self.assertLess(seconds, 2)

    def test_comparisons_after_an_interrupt_have_their_results(self):
        def schedule(view, decides):
            decides.set()
            while True:
                pass

        self.interrupt(schedule)
        self.assertEqual(len(completion_times(self.trace, InOrder)), 2)


class Concurrency(unittest.TestCase):
    def test_policy_can_compare_policies_inside_a_schedule(self):
        found = []

        class Nested(InOrder):
            def schedule(self, view):
                if not found:
                    found.append(completion_times(trace_of(TWO_COFLOWS), InOrder))
                return super().schedule(view)

        times = completion_times(trace_of(TWO_COFLOWS), Nested)
        self.assertEqual(found, [times])

    def test_concurrent_replays_equal_those_one_after_the_other(self):
        class Counting(InOrder):
            def __init__(self, number: int = 0):
                self.number, self.calls = number, 0

            def schedule(self, view):
                self.calls += 1
                # Depends on the state of this object alone.
                order = np.roll(np.arange(len(view.coflows)), self.calls % (2 + self.number))
                return view.in_order(order)

        policies = [weir.Policy("counting", number=number) for number in range(6)]
        alone = [weir.compare(SHUFFLES, policies, jobs=jobs, timing=False, progress=False).summary for jobs in (1, 4)]
        self.assertEqual(alone[0], alone[1])
        self.assertGreater(len({record["mean_cct_s"] for record in alone[0]}), 1)

    def test_comparisons_in_several_threads_do_not_wait_for_each_other(self):
        results = []
        threads = [threading.Thread(target=lambda: results.append(completion_times(SHUFFLES, InOrder))) for _ in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(results, [results[0]] * 3)


if __name__ == "__main__":
    unittest.main()
