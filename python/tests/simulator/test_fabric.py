import os
import pickle
import tempfile
import unittest
from pathlib import Path

import weir

REGIONS = """weir-wide-area = 1
regions = ["east", "west"]

[[link]]
from = "east"
to = "west"
samples = ["90Mbit", "60Mbit"]

[[link]]
from = "west"
to = "east"
rate = "1Gbit"
"""

WITH_EVENT = """weir-fabric = 1
kind = "leaf-spine"
spines = 2
leaves = 2
hosts = 1
rate = "1Gbit"
oversubscription = 1.0

[[event]]
at = "1s"
cable = ["leaf0", "spine0"]
change = "down"
"""


def leaf_spine(**changes):
    parameters = dict(leaves=2, hosts=3, spines=2, rate="1Gbit", oversubscription=3)
    return weir.leaf_spine(**{**parameters, **changes})


class Fabrics(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, text, name="fabric.toml"):
        path = self.folder / name
        path.write_text(text)
        return path

    def test_leaf_spine_has_hosts_in_the_order_of_ports_and_cables_with_rates(self):
        fabric = leaf_spine()
        self.assertEqual(fabric.hosts, [f"h{port}" for port in range(6)])
        self.assertEqual(dict(fabric.switches), {"spine0": 2, "spine1": 2, "leaf0": 1, "leaf1": 1})
        cables = {(start, end): rate for start, end, rate in fabric.cables}
        self.assertEqual(cables[("h0", "leaf0")], 1e9)
        self.assertEqual(cables[("leaf1", "spine0")], 3 * 1e9 / (2 * 3))
        self.assertEqual(len(cables), 10)
        self.assertEqual(repr(fabric), "<weir.Fabric leaf-spine: 6 hosts, 4 switches, 10 cables>")

    def test_fat_tree_has_k_ports_for_each_switch(self):
        fabric = weir.fat_tree(k=4, rate="10Gbit")
        self.assertEqual((len(fabric.hosts), len(fabric.switches), len(fabric.cables)), (16, 20, 48))

    def test_each_template_of_the_format_can_be_created(self):
        sizes = {
            "saba-tiers": 1944,
            "netshare-fig1": 12,
            "netshare-fig3": 8,
            "netshare-fig6": 12,
            "netshare-fig7": 12,
        }
        for kind, hosts in sizes.items():
            self.assertEqual(len(weir.Fabric.template(kind).hosts), hosts, kind)
        self.assertEqual(len(weir.Fabric.template("netshare-fig16", services=3).hosts), 24)
        single = weir.Fabric.template("big-switch", hosts=1, rate="1Gbit")
        self.assertEqual(repr(single), "<weir.Fabric big-switch: 1 host, 1 switch, 1 cable>")

    def test_written_fabrics_are_read_as_equal_ones(self):
        path = self.folder / "written.toml"
        odd = leaf_spine(rate="123456789.123B/s", oversubscription=1.7)
        for fabric in (leaf_spine(), odd, weir.Fabric.template("netshare-fig3")):
            for cables in (False, True):
                fabric.write(path, cables=cables)
                self.assertEqual(weir.Fabric.read(path), fabric)
        self.assertIn("[[link]]", path.read_text())
        self.assertNotEqual(leaf_spine(), leaf_spine(rate="2Gbit"))
        self.assertNotEqual(leaf_spine(), "leaf-spine")
        self.assertEqual(os.listdir(self.folder), ["written.toml"])

    def test_copies_of_other_processes_are_equal_and_keep_their_name(self):
        for fabric in (leaf_spine(), weir.Fabric.read(self.write(REGIONS)), weir.Fabric.read(self.write(WITH_EVENT))):
            copy = pickle.loads(pickle.dumps(fabric))
            self.assertEqual(copy, fabric)
            self.assertEqual(repr(copy), repr(fabric))

    def test_regions_have_links_with_samples(self):
        fabric = weir.Fabric.read(str(self.write(REGIONS)))
        self.assertEqual(fabric.regions, ["east", "west"])
        self.assertEqual(fabric.region_links, [("east", "west", [60e6, 90e6]), ("west", "east", [1e9])])
        self.assertEqual((fabric.hosts, fabric.switches, fabric.cables), ([], [], []))
        self.assertIn("2 regions, 2 links", repr(fabric))
        self.assertIn("<td>60 Mbit/s</td><td>90 Mbit/s</td>", fabric._repr_html_())
        path = self.folder / "written.toml"
        fabric.write(path)
        self.assertEqual(weir.Fabric.read(path), fabric)
        with self.assertRaisesRegex(weir.InputError, "regions have links, not cables"):
            fabric.write(path, cables=True)

    def test_events_of_cables_are_kept(self):
        fabric = weir.Fabric.read(self.write(WITH_EVENT))
        self.assertIn("1 event", repr(fabric))
        path = self.folder / "written.toml"
        fabric.write(path)
        self.assertEqual(weir.Fabric.read(path), fabric)
        with self.assertRaisesRegex(weir.InputError, "events"):
            fabric.write(path, cables=True)

    def test_notebooks_show_tiers_and_cables(self):
        shown = leaf_spine()._repr_html_()
        self.assertIn("<td>hosts</td><td>tier 1</td><td>6</td><td>1 Gbit/s</td><td>6 Gbit/s</td>", shown)
        self.assertIn("<td>tier 1</td><td>2</td><td>3</td>", shown)

    def test_names_are_escaped_in_notebooks(self):
        fabric = weir.Fabric.read(self.write(WITH_EVENT, "<b>&.toml"))
        self.assertNotIn("<b>&.toml", fabric._repr_html_())
        self.assertIn("&lt;b&gt;&amp;.toml", fabric._repr_html_())

    def test_fabrics_have_no_constructor_and_no_hash(self):
        with self.assertRaisesRegex(TypeError, "Fabric.read"):
            weir.Fabric()
        with self.assertRaises(TypeError):
            hash(leaf_spine())


class Cables(unittest.TestCase):
    def test_fabric_of_cables_has_their_nodes(self):
        cables = [("a", "s", "1Gbit"), ("b", "s", "2Gbit"), ("s", "t", "500Mbit")]
        fabric = weir.Fabric.from_cables(["a", "b"], [("s", 1), ("t", 2)], cables)
        self.assertEqual(fabric.switches, [("s", 1), ("t", 2)])
        self.assertEqual(fabric.cables, [("a", "s", 1e9), ("b", "s", 2e9), ("s", "t", 5e8)])
        self.assertEqual(weir.Fabric.from_cables(["a"], ["s"], [("a", "s", "1Gbit")]).switches, [("s", 1)])

    def test_invalid_cables_are_errors(self):
        for cables, message in {
            (("a", "x", "1Gbit"),): "node `x` does not exist",
            (("a", "a", "1Gbit"),): "to itself",
            (("a", "b", "1Gbit"),): "hosts do not forward",
            (("a", "s", "1Gbit"),): "node `b` has no cable",
            (("a", "s", "1bps"), ("b", "s", "1Gbit")): "`rate`: `1bps`: expected a rate",
        }.items():
            with self.assertRaisesRegex(weir.InputError, message):
                weir.Fabric.from_cables(["a", "b"], ["s"], list(cables))
        with self.assertRaisesRegex(weir.InputError, "0 hosts"):
            weir.Fabric.from_cables([], [], [])
        for switches, cables in ((["s"], [("a", "s")]), ([("s", 1, 2)], []), ([("s", 256)], []), ([("s", -1)], []), (["s"], [3])):
            with self.assertRaises((TypeError, ValueError, OverflowError)):
                weir.Fabric.from_cables(["a"], switches, cables)


class Graphs(unittest.TestCase):
    def setUp(self):
        try:
            import networkx
        except ImportError:
            self.skipTest("networkx is not installed")
        self.networkx = networkx

    def test_graphs_are_read_as_equal_fabrics(self):
        for fabric in (
            leaf_spine(oversubscription=1.7),
            weir.fat_tree(k=4, rate="10Gbit"),
            weir.Fabric.template("netshare-fig16", services=2),
        ):
            copy = weir.Fabric.from_networkx(fabric.to_networkx())
            self.assertEqual((copy.hosts, copy.switches, copy.cables), (fabric.hosts, fabric.switches, fabric.cables))

    def test_capacities_are_those_of_cables(self):
        graph = leaf_spine().to_networkx()
        self.assertEqual(graph.nodes["h4"], {"kind": "host", "port": 4})
        self.assertEqual(graph.nodes["spine0"], {"kind": "switch", "tier": 2})
        edge = graph.edges["h0", "leaf0"]
        self.assertEqual((edge["rate"], edge["capacity"]), ("1Gbit", 1e9))
        # All three hosts of a leaf send over its two cables to spines.
        graph.add_edges_from([("all", f"h{port}") for port in range(3)], capacity=1e9)
        self.assertEqual(self.networkx.maximum_flow_value(graph, "all", "leaf1"), 1e9)

    def test_regions_are_a_directed_graph(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "regions.toml"
        path.write_text(REGIONS)
        graph = weir.Fabric.read(path).to_networkx()
        self.assertEqual(graph.edges["east", "west"], {"samples": [60e6, 90e6], "capacity": 75e6})

    def test_random_regular_graphs_become_fabrics(self):
        graph = self.networkx.random_regular_graph(3, 8, seed=1)
        hosts = [(f"host{switch}", switch) for switch in list(graph.nodes)]
        graph.add_nodes_from((host for host, _ in hosts), kind="host")
        graph.add_edges_from(hosts)
        fabric = weir.Fabric.from_networkx(graph, rate="10Gbit")
        self.assertEqual((len(fabric.hosts), len(fabric.switches), len(fabric.cables)), (8, 8, 20))
        with self.assertRaisesRegex(weir.InputError, "attribute `rate`") as caught:
            weir.Fabric.from_networkx(graph)
        self.assertEqual(caught.exception.field, "rate")
        with self.assertRaisesRegex(weir.InputError, "networkx.Graph"):
            weir.Fabric.from_networkx(self.networkx.DiGraph())
        with self.assertRaisesRegex(TypeError, "expected a networkx.Graph, not list"):
            weir.Fabric.from_networkx([graph])

    def test_invalid_tiers_name_the_switch(self):
        graph = weir.leaf_spine(leaves=2, hosts=2, spines=1, rate="1Gbit", oversubscription=1).to_networkx()
        for tier in (-1, 256, 10**30):
            graph.nodes["spine0"]["tier"] = tier
            with self.assertRaises(weir.InputError) as caught:
                weir.Fabric.from_networkx(graph)
            error = caught.exception
            self.assertEqual((error.field, error.value), ("tier of spine0", str(tier)))
            self.assertEqual(error.expected, "a whole number from 0 to 255")
        for tier in (None, "top", 1.5, [1]):
            graph.nodes["spine0"]["tier"] = tier
            with self.assertRaisesRegex(TypeError, "`tier of spine0`: expected a whole number"):
                weir.Fabric.from_networkx(graph)


class InvalidParameters(unittest.TestCase):
    def test_rates_need_units(self):
        texts = ("1", "1bps", "40M", "-1Gbit", "NaNGbit", "1e400Gbit", "", "0bit")
        for rate in (*texts, 1_000_000_000, 1e9, float("nan")):
            with self.assertRaises(weir.InputError) as caught:
                leaf_spine(rate=rate)
            error = caught.exception
            self.assertEqual(str(error), f"`rate`: `{rate}`: expected {error.expected}")
            self.assertEqual((error.field, error.value, error.file, error.line), ("rate", str(rate), None, None))
            self.assertIn("1Gbit", error.expected)

    def test_values_out_of_range_name_the_parameter(self):
        for parameter, value in {"leaves": 0, "spines": -1, "hosts": 2**40, "oversubscription": float("nan")}.items():
            with self.assertRaises(weir.InputError) as caught:
                leaf_spine(**{parameter: value})
            error = caught.exception
            self.assertEqual(error.field, parameter)
            self.assertEqual(error.value.lower(), str(value))
            self.assertIn("expected " + error.expected, str(error))
        for value in (0, -1.0, float("inf"), 1e300):
            with self.assertRaisesRegex(weir.InputError, "oversubscription"):
                leaf_spine(oversubscription=value)
        with self.assertRaisesRegex(weir.InputError, "an even number"):
            weir.fat_tree(k=3, rate="1Gbit")
        with self.assertRaisesRegex(weir.InputError, "65536"):
            leaf_spine(hosts=65536)

    def test_wrong_types_are_type_errors(self):
        for changes in (
            {"leaves": 1.0},
            {"leaves": "1"},
            {"leaves": True},
            {"rate": None},
            {"rate": b"1Gbit"},
            {"oversubscription": "3"},
            {"oversubscription": None},
        ):
            with self.assertRaisesRegex(TypeError, "expected"):
                leaf_spine(**changes)
        with self.assertRaisesRegex(TypeError, "missing parameter `rate`"):
            weir.Fabric.template("big-switch", hosts=3)
        with self.assertRaisesRegex(TypeError, "unexpected parameter `spines`"):
            weir.Fabric.template("big-switch", hosts=3, rate="1Gbit", spines=2)
        with self.assertRaisesRegex(weir.InputError, "`kind`: `ring`: expected big-switch"):
            weir.Fabric.template("ring")

    def test_integers_of_other_packages_are_accepted(self):
        class Three:
            def __index__(self):
                return 3

        self.assertEqual(len(leaf_spine(leaves=Three()).hosts), 9)


if __name__ == "__main__":
    unittest.main()
