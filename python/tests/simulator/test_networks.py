import tempfile
import unittest
from pathlib import Path

import weir

REGIONS = """weir-wide-area = 1
regions = ["east", "west"]

[[link]]
from = "east"
to = "west"
samples = ["900Mbit", "600Mbit"]

[[link]]
from = "west"
to = "east"
rate = "1Gbit"
"""


def records(result):
    """The records without the name of the fabric."""
    return [{key: value for key, value in record.items() if key != "fabric"} for record in result.summary]


class Networks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.trace = weir.Trace.generate(coflows=20, ports=8, mappers="constant:3", reducers="constant:2")

    def compare(self, **arguments):
        return weir.compare(self.trace, ["saath", "fair"], timing=False, progress=False, **arguments)

    def test_fabrics_in_memory_are_as_those_of_files(self):
        path = self.folder / "fabric.toml"
        path.write_text(REGIONS)
        fabrics = [
            weir.leaf_spine(leaves=2, hosts=4, spines=2, rate="1Gbit", oversubscription=3),
            weir.fat_tree(k=4, rate="1Gbit"),
            weir.Fabric.read(path),
        ]
        means = set()
        for fabric in fabrics:
            fabric.write(path)
            result = self.compare(fabric=fabric)
            self.assertEqual(records(result), records(self.compare(fabric=path)))
            self.assertEqual(result.summary[0]["fabric"], fabric.name)
            means.add(result.summary[0]["mean_cct_s"])
        self.assertEqual(len(means), len(fabrics))

    def test_arguments_have_their_effect(self):
        slow, fast = self.compare(port_rate="1Gbit"), self.compare(port_rate="10Gbit")
        self.assertGreater(slow.summary[0]["mean_cct_s"], 5 * fast.summary[0]["mean_cct_s"])
        self.assertEqual(self.compare(interval=0).summary[0]["interval_s"], 0.0)
        self.assertEqual(self.compare(interval="2ms").summary[0]["interval_s"], 0.002)

    def test_invalid_arguments_name_the_parameter(self):
        fabric = weir.fat_tree(k=4, rate="1Gbit")
        for arguments, field in (
            ({"port_rate": "1"}, "port_rate"),
            ({"port_rate": 1e9}, "port_rate"),
            ({"interval": 8}, "interval"),
            ({"interval": "8"}, "interval"),
            ({"interval": -1}, "interval"),
            ({"interval": "2e9s"}, "interval"),
            ({"decide_over": "switches"}, "decide_over"),
            ({"path_seed": -1, "fabric": fabric}, "path_seed"),
            ({"bandwidth_seed": 2**64}, "bandwidth_seed"),
            ({"buffer": -1}, "buffer"),
        ):
            with self.subTest(arguments), self.assertRaises(weir.InputError) as caught:
                self.compare(**arguments)
            self.assertEqual(caught.exception.field, field)
            self.assertIn("expected " + caught.exception.expected, str(caught.exception))
        for arguments in ({"port_rate": "1Gbit", "fabric": fabric}, {"decide_over": "ports"}, {"path_seed": 3}):
            with self.subTest(arguments), self.assertRaisesRegex(weir.InputError, "expected "):
                self.compare(**arguments)
        for arguments in ({"fabric": 3}, {"port_rate": [1]}, {"path_seed": 1.5, "fabric": fabric}, {"buffer": "3"}):
            with self.subTest(arguments), self.assertRaises(TypeError):
                self.compare(**arguments)
        with self.assertRaisesRegex(weir.InputError, "expected at most 4, one for each host"):
            self.compare(fabric=weir.Fabric.template("big-switch", hosts=4, rate="1Gbit"))
        with self.assertRaisesRegex(weir.InputError, "cannot be read"):
            self.compare(fabric=self.folder / "missing.toml")
        with self.assertRaises(weir.InputError) as caught:
            self.compare(fabric=__file__)
        self.assertEqual(caught.exception.file, __file__)


if __name__ == "__main__":
    unittest.main()
