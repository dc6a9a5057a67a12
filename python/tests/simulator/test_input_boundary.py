"""Traces and fabrics take any value or raise: no panic of the native module, which would not be an ordinary exception."""

import inspect
import os
import random
import tempfile
import unittest
import warnings
from pathlib import Path

import test_boundary
import weir
from command_line import DEMO

VALUES = [*test_boundary.VALUES, test_boundary.Hostile()]

TABLE = {"src": [0, 1], "dst": [1, 2], "bytes": [5, 6], "start": [0.5, 1]}

LEAF_SPINE = dict(leaves=2, hosts=2, spines=1, rate="1Gbit", oversubscription=1)


def keywords(function):
    """The names of the keyword arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]


class Inputs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.raised = 0

    def call(self, function, *arguments, **named):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return function(*arguments, **named)
        except Exception:
            self.raised += 1
            return None
        except BaseException as error:
            self.fail(f"{type(error).__name__}: {error}")

    def test_each_keyword_argument(self):
        data = DEMO.read_bytes()
        for function, arguments, named in (
            (weir.Trace.from_bytes, (data,), {}),
            (weir.Trace.from_frame, (TABLE,), {}),
            (weir.Trace.generate, (), {"coflows": 2}),
            (weir.Trace.merge, ([weir.Trace.from_frame(TABLE)],), {}),
            (weir.leaf_spine, (), LEAF_SPINE),
            (weir.fat_tree, (), {"k": 2, "rate": "1Gbit"}),
            (weir.Trace.from_frame(TABLE).to_bytes, (), {}),
            (weir.Trace.from_frame(TABLE).describe, (), {}),
        ):
            names = keywords(function)
            self.assertTrue(names, function)
            for name in names:
                for value in VALUES:
                    self.call(function, *arguments, **{**named, name: value})
        self.assertGreater(self.raised, 0)

    def test_each_positional_argument(self):
        fabric, trace = weir.leaf_spine(**LEAF_SPINE), weir.Trace.from_frame(TABLE)
        for value in VALUES:
            for function in (weir.Trace.from_bytes, weir.Trace.from_frame, weir.Trace.merge, weir.Fabric.template, weir.Fabric.from_networkx):
                self.call(function, value)
            if not isinstance(value, (str, os.PathLike)):
                self.call(weir.Fabric.read, value)
                self.call(fabric.write, value)
                self.call(trace.write, value)
            self.call(weir.Trace.merge, [trace, value])
            self.call(weir.Fabric.template, "fat-tree", ports=value, rate="1Gbit")
            valid = (["a"], [("s", 1)], [("a", "s", "1Gbit")])
            for position in range(3):
                self.call(weir.Fabric.from_cables, *valid[:position], value, *valid[position + 1 :])
                self.call(weir.Fabric.from_cables, *valid[:position], [value], *valid[position + 1 :])
            for column in TABLE:
                self.call(weir.Trace.from_frame, {**TABLE, column: value})
                self.call(weir.Trace.from_frame, {**TABLE, column: [1, value]})
                self.call(weir.Trace.from_frame, TABLE, columns={"src": "src", "dst": "dst", "bytes": "bytes", "start": value})
                self.call(weir.Trace.from_frame, TABLE, columns={"src": "src", "dst": "dst", "bytes": ("bytes", value)})
        self.assertGreater(self.raised, 0)

    def test_malformed_fabrics(self):
        generator = random.Random(int(os.environ.get("WEIR_SEED", 1)))
        path = self.folder / "fabric.toml"
        weir.leaf_spine(**LEAF_SPINE).write(path, cables=True)
        good = path.read_bytes()
        for _ in range(300):
            changed = bytearray(good)
            for _ in range(generator.randint(1, 4)):
                changed[generator.randrange(len(changed))] = generator.choice(b'0 9=,.:"-\n[]ezx\xff')
            path.write_bytes(changed)
            fabric = self.call(weir.Fabric.read, path)
            if fabric is not None:
                self.assertIn("hosts", fabric._repr_html_() + repr(fabric))
        self.assertGreater(self.raised, 0)

    def test_random_tables(self):
        generator = random.Random(int(os.environ.get("WEIR_SEED", 1)))
        cells = [0, 1, 65535, 65536, "a", "b,c", 'd"', "#", "-1", "1e3", 0.25, 1e308, None, float("nan"), "", "\n", 2**53, "é", "\x00"]
        done = 0
        for _ in range(1000):
            rows = generator.randint(0, 4)
            names = ["src", "dst", "bytes", "start", "coflow", "service", "application", "weight", "deadline"]
            table = {name: [generator.choice(cells[:5] if generator.random() < 0.9 else cells) for _ in range(rows)] for name in names}
            for name in names[3:]:
                if generator.random() < 0.7:
                    del table[name]
            table["bytes"] = [generator.choice([0, 1, 2.5, "3", 1e9]) for _ in range(rows)]
            trace = self.call(weir.Trace.from_frame, table)
            if trace is not None:
                done += 1
                self.assertEqual(weir.Trace.from_bytes(trace.to_bytes()).to_bytes(), trace.to_bytes())
        self.assertGreater(done, 200)
        self.assertGreater(self.raised, 50)

    def test_native_objects_do_not_change(self):
        for native in (weir.leaf_spine(**LEAF_SPINE)._native, weir.Trace.from_frame(TABLE)._native):
            for name in ("name", "ports", "_native", "new"):
                with self.assertRaises(AttributeError):
                    setattr(native, name, 1)
            with self.assertRaises(TypeError):
                type(native)()


if __name__ == "__main__":
    unittest.main()
