import datetime
import gzip
import os
import pickle
import tempfile
import unittest
import warnings
from pathlib import Path

import weir
from command_line import DEMO, EXAMPLES, run_json, run_weir, to_options

TRACE = b"""weir-trace 1
ports 4
coflow 7 arrival=1s weight=2 deadline=3s service=search application=rank job=5 stage=0 wave=1
flow 0 2 10MB
flow 1 2 20MB release=500ms
coflow 9 arrival=2s parents=7 compute-before=1s overlapped-compute=2s compute-after=3s service=search
flow 3 0 5kB
event 5s port=3 side=send rate=0.5
"""

SERVICES = """weir-scenario = 1
end = "2s"
fabric = { kind = "big-switch", hosts = 2, rate = "1Gbit" }

[[service]]
name = "web"
weight = 1

[[demand]]
service = "web"
from = "h0"
to = "h1"
connections = 1
sending = "elastic"
"""


def read(data, **arguments):
    return weir.Trace.from_bytes(data, **arguments)


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def assertInputError(self, call, **attributes):
        with self.assertRaises(weir.InputError) as caught:
            call()
        for name, value in attributes.items():
            self.assertEqual(getattr(caught.exception, name), value, str(caught.exception))
        return str(caught.exception)


class Reading(WithFolder):
    def test_bytes_and_files_give_the_same_trace(self):
        path = self.folder / "t.weir"
        for data in (TRACE, gzip.compress(TRACE)):
            path.write_bytes(data)
            trace = weir.Trace.read(path)
            self.assertEqual((len(trace), trace.ports, trace.name), (2, 4, str(path)))
            self.assertEqual(trace.to_bytes(), read(bytearray(data)).to_bytes())
        self.assertIn("2 coflows, 3 flows, 30.00 MB on 4 ports", repr(trace))
        self.assertIn("2 coflows", trace._repr_html_())

    def test_tables_have_all_properties(self):
        trace = read(TRACE)
        first, second = trace.coflows.to_dicts()
        self.assertEqual(
            first,
            {
                "coflow": 7,
                "job": "5",
                "stage": 0,
                "wave": 1,
                "arrival_s": 1.0,
                "width": 2,
                "bytes": 30e6,
                "service": "search",
                "application": "rank",
                "weight": 2.0,
                "deadline_s": 3.0,
                "parents": None,
                "compute_before_s": 0.0,
                "overlapped_compute_s": 0.0,
                "compute_after_s": 0.0,
            },
        )
        self.assertEqual((second["parents"], second["application"], second["deadline_s"]), ("7", "default", None))
        self.assertEqual([second[f"{name}_s"] for name in ("compute_before", "overlapped_compute", "compute_after")], [1.0, 2.0, 3.0])
        flows = trace.flows
        self.assertEqual(flows["start_s"], [1.0, 1.5, 2.0])
        self.assertEqual(list(zip(flows["coflow"], flows["flow"], flows["src"], flows["dst"])), [(7, 0, 0, 2), (7, 1, 1, 2), (9, 0, 3, 0)])

    def test_written_traces_are_read_as_equal_ones(self):
        trace = read(TRACE)
        path = self.folder / "written.weir"
        trace.write(path)
        self.assertEqual(weir.Trace.read(path).to_bytes(), trace.to_bytes())
        plain = read(b"4 1\n1 1000 2 0 1 1 2:30.0\n")
        path = self.folder / "written.txt"
        plain.write(path)
        self.assertEqual(path.read_bytes(), b"4 1\n1 1000 2 0 1 1 2:30.0\n")
        plain.write(path, unit="MiB")
        self.assertNotEqual(path.read_bytes(), b"4 1\n1 1000 2 0 1 1 2:30.0\n")
        message = self.assertInputError(lambda: trace.write(path))
        self.assertIn("expected the format weir, which can express it", message)
        self.assertInputError(lambda: trace.write(path, to="csv"), field="to", value="csv")
        self.assertEqual(sorted(os.listdir(self.folder)), ["written.txt", "written.weir"])

    def test_unit_is_that_of_the_argument(self):
        data = b"2 1\n1 0 1 0 1 1:1\n"
        self.assertEqual(read(data).flows["bytes"], [1e6])
        self.assertEqual(read(data, unit="MiB").flows["bytes"], [1048576.0])
        self.assertInputError(lambda: read(data, unit="GB"), field="unit", value="GB")
        self.assertIn("sizes have units", self.assertInputError(lambda: read(TRACE, unit="MB")))

    def test_formats_without_a_sign_are_named(self):
        data = b"2 1\n7 0 1 1 1 0 1 3\n"
        self.assertEqual(read(data, format="sincronia").flows["bytes"], [3e6])
        self.assertInputError(lambda: read(data, format="csv"), field="format", value="csv")
        self.assertIn("expected `columns`", self.assertInputError(lambda: read(data, format="flows")))
        self.assertIn("`flows`", self.assertInputError(lambda: read(data, format="weir", columns="src=1,dst=2,bytes=3")))

    def test_tables_of_flows_have_columns_as_text_or_dictionary(self):
        data = b"from,to,kB,at ms\na,b,2,1500\nb,b,3,500\n"
        expected = [(0, 1, 2e3, 1.5), (1, 1, 0.0, 0.5)]
        for columns in (
            "src=from,dst=to,bytes=kB:kB,start=at ms:ms",
            {"src": "from", "dst": "to", "bytes": "kB:kB", "start": ("at ms", "ms")},
        ):
            with self.assertWarnsRegex(UserWarning, "1 flow from a port to itself"):
                trace = read(data, columns=columns)
            flows = trace.flows
            self.assertEqual(list(zip(flows["src"], flows["dst"], flows["bytes"], flows["start_s"])), expected)
            self.assertEqual(flows["dst_name"], ["b", "b"])
            self.assertEqual(trace.port_names, ["a", "b"])
            self.assertEqual(read(data, columns=columns, local_flows="keep").flows["bytes"], [2e3, 3e3])
        self.assertInputError(lambda: read(data, columns="speed=1"), field="columns", value="speed=1")
        self.assertInputError(lambda: read(data, columns={}), field="columns")
        self.assertInputError(lambda: read(data, columns="src=1,dst=2,bytes=3", local_flows="no"), field="local_flows")

    def test_late_times_are_earlier_unless_they_are_kept(self):
        data = b"weir-trace 1\nports 2\ncoflow 1 arrival=2000000.5s\nflow 0 1 1MB\n"
        self.assertEqual(read(data).flows["start_s"], [0.5])
        self.assertEqual(read(data, keep_arrivals=True).flows["start_s"], [2000000.5])

    def test_errors_name_the_line(self):
        self.assertInputError(lambda: read(b"weir-trace 1\nports x\n"), file="bytes", line=2, field="ports", value="x")
        self.assertInputError(lambda: read(b"", name="empty"), file="empty", line=1, value="empty file")
        self.assertInputError(lambda: read(b"2 0\n"), expected="at least one")
        self.assertInputError(lambda: read(TRACE, max_flows=2), line=7, field="flows")
        for flows in (0, -1, 10**9, 2**70):
            self.assertInputError(lambda: read(TRACE, max_flows=flows), field="max_flows", value=str(flows))
        for arguments in ({"max_flows": 1.5}, {"unit": 3}):
            with self.assertRaises(TypeError):
                read(TRACE, **arguments)
        for data in ("text", None, [1]):
            with self.assertRaises(TypeError):
                read(data)
        with self.assertRaisesRegex(weir.InputError, "cannot be read"):
            weir.Trace.read(self.folder / "missing")
        (self.folder / "t.weir").write_bytes(TRACE)
        path = self.folder / "t.weir"
        self.assertIn("both traces", self.assertInputError(lambda: weir.Trace.read(path, path)))

    def test_copies_of_other_processes_are_equal(self):
        late = b"weir-trace 1\nports 2\nport 0 a\nport 1 b\ncoflow 1 arrival=2000000.5s\nflow 0 1 1MB\n"
        for trace in (read(TRACE), read(b"2 1\n1 0 1 0 1 1:1\n", unit="MiB"), read(late), weir.Trace.generate(coflows=3)):
            copy = pickle.loads(pickle.dumps(trace))
            self.assertEqual(copy.to_bytes(), trace.to_bytes())
            self.assertEqual(repr(copy), repr(trace))
            self.assertEqual(copy.port_names, trace.port_names)

    def test_services_are_read_again_in_other_processes_and_have_no_trace(self):
        path = self.folder / "services.toml"
        path.write_text(SERVICES)
        trace = weir.Trace.read(path)
        self.assertEqual(repr(pickle.loads(pickle.dumps(trace))), repr(trace))
        self.assertIn("have no sizes", self.assertInputError(lambda: trace.write(self.folder / "t.weir")))
        self.assertIn("expected a trace alone", self.assertInputError(lambda: weir.Trace.merge([trace])))
        self.assertEqual(len(trace.flows), 0)


class Descriptions(WithFolder):
    def test_traces_are_described_as_by_the_command_line(self):
        path = self.folder / "t.weir"
        path.write_bytes(TRACE)
        self.assertEqual(weir.Trace.read(path).describe(), run_json("trace", "describe", path))
        self.assertEqual(weir.Trace.read(DEMO).describe(), run_json("trace", "describe", DEMO) | {"trace": str(DEMO)})
        path = EXAMPLES / "dag.weir"
        self.assertEqual(weir.Trace.read(path).describe(per_stage=True), run_json("trace", "describe", path, "--per-stage"))

    def test_services_have_no_description(self):
        path = self.folder / "services.toml"
        path.write_text(SERVICES)
        self.assertIn("have no sizes", self.assertInputError(weir.Trace.read(path).describe))

    def test_fabrics_are_described_as_by_the_command_line(self):
        path = self.folder / "leaf-spine"
        fabric = weir.leaf_spine(leaves=3, hosts=4, spines=2, rate="1Gbit", oversubscription=1.5)
        fabric.write(path)
        self.assertEqual(fabric.describe() | {"fabric": str(path)}, run_json("fabric", "describe", path))
        self.assertEqual(fabric.describe()["fabric"], "leaf-spine")
        regions = EXAMPLES / "wide-area/table-1.toml"
        self.assertIn("expected a fabric", self.assertInputError(weir.Fabric.read(regions).describe))


class Frames(WithFolder):
    COLUMNS = {"src": "from", "dst": "to", "bytes": "size", "start": "at:ms", "coflow": "shuffle"}
    LISTS = {
        "from": ["a", "b", "a"],
        "to": ["b", "c", "c"],
        "size": [1000, 2500, 3],
        "at": [10.5, 2.0, 7.0],
        "shuffle": ["x", "x", "y"],
        "unused": [None, None, None],
    }

    def frames(self):
        """Frames of each installed library with the same rows."""
        yield self.LISTS
        for library, make in {
            "pandas": lambda pandas: pandas.DataFrame(self.LISTS),
            "polars": lambda polars: polars.DataFrame(self.LISTS),
            "pyarrow": lambda pyarrow: pyarrow.table(self.LISTS),
        }.items():
            try:
                yield make(__import__(library))
            except ImportError:
                pass

    def test_frames_of_all_libraries_give_the_trace_of_the_same_csv(self):
        rows = [",".join(map(str, row)) for row in zip(*list(self.LISTS.values())[:5])]
        data = "\n".join(["from,to,size,at,shuffle", *rows]).encode()
        expected = read(data, columns=self.COLUMNS)
        for frame in self.frames():
            trace = weir.Trace.from_frame(frame, columns=self.COLUMNS)
            self.assertEqual(trace.to_bytes(), expected.to_bytes(), type(frame))
            self.assertEqual(trace.port_names, ["a", "b", "c"])
            self.assertEqual(trace.name, "frame")

    def test_flows_of_a_trace_give_the_trace_again(self):
        trace = weir.Trace.generate(coflows=20, services=3, applications=2, seed=4)
        flows = trace.flows
        conversions = {
            "": lambda _: flows,
            "lists": lambda _: {name: flows[name] for name in flows.columns},
            "pyarrow": lambda _: flows.to_pyarrow(),
            "pandas": lambda _: flows.to_pandas(),
            "polars": lambda _: flows.to_polars(),
            "duckdb": lambda duckdb, flows=flows: duckdb.sql("SELECT * FROM flows ORDER BY coflow, flow"),
        }
        for library, convert in conversions.items():
            with self.subTest(library):
                frame = convert(self.require(library) if library not in ("", "lists") else None)
                copy = weir.Trace.from_frame(frame, local_flows="keep")
                self.assertEqual(copy.to_bytes(), trace.to_bytes(), type(frame))

    def require(self, library):
        try:
            return __import__(library)
        except ImportError:
            self.skipTest(f"{library} is not installed")

    def test_timestamps_have_their_unit(self):
        pyarrow = self.require("pyarrow")
        start = datetime.datetime(2024, 1, 1)
        times = [start, start + datetime.timedelta(milliseconds=1500)]
        for unit in ("ms", "us", "ns"):
            table = pyarrow.table({"src": [0, 1], "dst": [1, 0], "bytes": [1, 2], "start": pyarrow.array(times, pyarrow.timestamp(unit))})
            self.assertEqual(weir.Trace.from_frame(table).flows["start_s"], [0.0, 1.5])
            columns = {"src": "src", "dst": "dst", "bytes": "bytes", "start": "start:ms"}
            self.assertInputError(lambda: weir.Trace.from_frame(table, columns=columns), field="start", value="ms")

    def test_missing_values_are_defaults_or_errors_with_the_row(self):
        lists = {"src": [0, 1], "dst": [1, 0], "bytes": [1.0, 2.0], "deadline": [None, 2.5], "weight": [float("nan"), 3]}
        trace = weir.Trace.from_frame(lists)
        self.assertEqual(trace.coflows["deadline_s"], [None, 2.5])
        self.assertEqual(trace.coflows["weight"], [1.0, 3.0])
        for values in ([1.0, None], [1.0, float("nan")]):
            self.assertInputError(lambda: weir.Trace.from_frame({**lists, "bytes": values}), file="frame", line=2, field="bytes")

    def test_invalid_values_name_row_and_field(self):
        valid = {"src": ["a", "b"], "dst": ["b", "a"], "bytes": [1, 2], "start": [0, 1], "coflow": [1, 2]}
        for field, value in {
            "bytes": -1,
            "start": float("inf"),
            "src": "a b",
            "dst": "",
            "coflow": "one\nline",
        }.items():
            lists = {**valid, field: [valid[field][0], value]}
            self.assertInputError(lambda: weir.Trace.from_frame(lists, name="rows"), file="rows", line=2, field=field)
        self.assertInputError(lambda: weir.Trace.from_frame({**valid, "bytes": [2**80, 1]}), line=1, field="bytes")
        for value in (True, [1], object(), 3j, b"3"):
            self.assertInputError(lambda: weir.Trace.from_frame({**valid, "bytes": [1, value]}), field="bytes")
        self.assertInputError(lambda: weir.Trace.from_frame({**valid, "bytes": [1]}), field="bytes", value="1 values")
        with self.assertRaises(TypeError):
            weir.Trace.from_frame({**valid, "bytes": 3})

    def test_quotes_and_separators_are_part_of_names(self):
        lists = {"src": ['a"x', "b,y"], "dst": ["b,y", "#c"[1:]], "bytes": [1, 2], "coflow": ["#1", 'say "2"']}
        trace = weir.Trace.from_frame(lists)
        self.assertEqual(trace.port_names, ['a"x', "b,y", "c"])
        self.assertEqual(len(trace), 2)

    def test_missing_values_name_the_column(self):
        valid = {"src": [1, 2], "dst": [2, 1], "size": [1.0, 2.0], "at": [0.0, 1.0]}
        columns = {"src": "src", "dst": "dst", "bytes": "size", "start": "at"}
        for field, column in (("bytes", "size"), ("start", "at")):
            for value in (float("nan"), None, ""):
                table = {**valid, column: [1.0, value]}
                error = (weir.Trace.from_frame, table, columns)
                message = self.assertInputError(
                    lambda error=error: error[0](error[1], columns=error[2]), file="frame", line=2, field=field, value="missing value"
                )
                self.assertIn(f"column `{column}`", message)

    def test_values_of_wrong_types_name_column_and_row(self):
        valid = {"src": [0, 1], "dst": [1, 0], "bytes": [1, 2]}
        for value in ([3], {"a": 1}, True):
            table = {**valid, "bytes": [1, value]}
            self.assertInputError(lambda table=table: weir.Trace.from_frame(table), file="frame", line=2, field="bytes", value=str(value))
        for values in (3, "12", None):
            with self.assertRaisesRegex(TypeError, "`bytes`: expected a list with a value for each row"):
                weir.Trace.from_frame({**valid, "bytes": values})
        self.assertIn("a table with columns", self.assertInputError(lambda: weir.Trace.from_frame({}), field="src"))

    def test_frames_with_lists_or_without_columns_are_refused(self):
        pandas, polars = self.require("pandas"), self.require("polars")
        for library in (pandas, polars):
            frame = library.DataFrame({"src": [0], "dst": [1], "bytes": [[1, 2]]})
            message = self.assertInputError(lambda frame=frame: weir.Trace.from_frame(frame), field="bytes")
            self.assertRegex(message, "text(, numbers or times| or a number)")
            series = library.Series([1, 2])
            with self.assertRaisesRegex(TypeError, "expected a (table|frame).* not Series"):
                weir.Trace.from_frame(series)
        mixed = pandas.DataFrame({"src": [0, "a"], "dst": [1, 1], "bytes": [5, 6]})
        self.assertEqual(weir.Trace.from_frame(mixed).port_names, ["0", "1", "a"])
        twice = pandas.DataFrame([[0, 0, 1, 5]], columns=["src", "src", "dst", "bytes"])
        with self.assertRaises(TypeError):
            weir.Trace.from_frame(twice)

    def test_names_that_are_the_same_number_are_different_hosts(self):
        lists = {"src": ["1", "01"], "dst": ["2", "2"], "bytes": [5, 6]}
        trace = weir.Trace.from_frame(lists)
        self.assertEqual(trace.port_names, ["1", "2", "01"])
        self.assertEqual((trace.flows["src"], trace.flows["dst"]), ([0, 2], [1, 1]))
        self.assertEqual(weir.Trace.from_frame({**lists, "src": ["1", "03"]}).flows["src"], [1, 3])

    def test_hosts_of_a_fabric_are_found_by_name(self):
        fabric = weir.leaf_spine(leaves=2, hosts=2, spines=1, rate="1Gbit", oversubscription=4)
        # Over one leaf, and over both, which share a link.
        flows = {"src": ["h3", "h0", "h1"], "dst": ["h2", "h2", "h3"], "bytes": [5_000_000] * 3}
        ports = {name: [int(host[1:]) for host in flows[name]] for name in ("src", "dst")}
        expected = weir.compare(weir.Trace.from_frame({**flows, **ports}), ["fair", "saath"], fabric=fabric, flows=True)
        trace = weir.Trace.from_frame(flows)
        self.assertEqual(trace.port_names, ["h3", "h2", "h0", "h1"])
        found = weir.compare(trace, ["fair", "saath"], fabric=fabric, flows=True)
        self.assertEqual((found.coflows.to_dicts(), found.flows["path"]), (expected.coflows.to_dicts(), expected.flows["path"]))
        self.assertEqual(found.explain(2).record, expected.explain(2).record)
        self.assertEqual(trace.flows["src"], [0, 2, 3])
        self.assertEqual(found.flows["src"][:3], [3, 0, 1])
        unknown = weir.Trace.from_frame({**flows, "dst": ["h2", "web", "h3"]})
        message = self.assertInputError(lambda: weir.compare(unknown, ["fair"], fabric=fabric))
        self.assertIn("has the name `web`, which no host has", message)

    def test_missing_columns_are_errors(self):
        self.assertIn("no column `dst` for `dst`", self.assertInputError(lambda: weir.Trace.from_frame({"src": [1], "bytes": [1]})))
        columns = {"src": "a", "dst": "b", "bytes": "c", "start": "d"}
        message = self.assertInputError(lambda: weir.Trace.from_frame({"a": [1], "b": [2], "c": [3]}, columns=columns))
        self.assertIn("no column `d` for `start`; expected one of a, b, c", message)
        self.assertInputError(lambda: weir.Trace.from_frame({"a": [1], "b": [2]}, columns={"src": "a", "dst": "b"}), field="columns")
        self.assertInputError(lambda: weir.Trace.from_frame({1: [1]}))
        self.assertInputError(lambda: weir.Trace.from_frame({"src": [], "dst": [], "bytes": []}), value="no rows")
        for frame in (None, 3, [1], "frame"):
            with self.assertRaisesRegex(TypeError, "dictionary of lists"):
                weir.Trace.from_frame(frame)

    def test_frames_that_need_a_missing_library_are_read_as_lists(self):
        class Frame:
            columns = ["src", "dst", "bytes"]

            def __arrow_c_stream__(self, requested_schema=None):
                raise ImportError("no pyarrow")

            def __getitem__(self, name):
                return {"src": [0], "dst": [1], "bytes": [5]}[name]

        self.assertEqual(weir.Trace.from_frame(Frame()).flows["bytes"], [5.0])


class Generation(WithFolder):
    def test_seed_decides_the_trace(self):
        first = weir.Trace.generate(seed=3)
        self.assertEqual(first.to_bytes(), weir.Trace.generate(seed=3).to_bytes())
        self.assertNotEqual(first.to_bytes(), weir.Trace.generate(seed=4).to_bytes())
        self.assertEqual((first.name, len(first), first.ports), ("small, seed 3", 200, 50))
        self.assertEqual(weir.Trace.generate(cdf="hadoop", name="mine").name, "mine")
        self.assertEqual(weir.Trace.generate(cdf="hadoop").name, "hadoop, seed 1")

    def test_options_have_their_effect(self):
        trace = weir.Trace.generate(ports=8, coflows=12, mappers="constant:2", reducers="constant:3", size="constant:1", arrival="every:1s")
        self.assertEqual(trace.ports, 8)
        self.assertEqual(trace.coflows["width"], [6] * 12)
        self.assertEqual(trace.coflows["arrival_s"], [float(second) for second in range(12)])
        incasts = weir.Trace.generate(ports=8, coflows=50, cdf="web-search", load=0.5, incast_degree=4, incast_load=0.1, incast_size="10kB")
        self.assertIn(4, incasts.coflows["width"])
        services = weir.Trace.generate(coflows=12, services=3, applications=2)
        self.assertEqual(len(set(zip(services.coflows["service"], services.coflows["application"]))), 6)
        file = self.folder / "sizes.txt"
        file.write_text("1000 100\n")
        self.assertEqual(set(weir.Trace.generate(cdf=file, coflows=5).flows["bytes"]), {1000.0})

    def test_invalid_options_are_errors(self):
        for arguments, field in (
            ({"preset": "huge"}, "preset"),
            ({"seed": -1}, "seed"),
            ({"ports": 0}, "ports"),
            ({"ports": 2**40}, "ports"),
            ({"coflows": -3}, "coflows"),
            ({"mappers": "uniform:3"}, "mappers"),
            ({"size": "constant:NaN"}, "size"),
            ({"skew": "zipf"}, "skew"),
            ({"arrival": "poisson:3"}, "arrival"),
            ({"cdf": "no-such-file"}, "cdf"),
            ({"load": float("nan")}, "load"),
            ({"load": 0}, "load"),
            ({"port_rate": "1"}, "port_rate"),
            ({"port_rate": 1e9}, "port_rate"),
            ({"incast_degree": 3}, "incast_load"),
            ({"incast_load": 0.5}, "incast_degree"),
            ({"incast_size": "1MB"}, "incast_degree"),
            ({"incast_degree": 3, "incast_load": 0.1, "incast_size": "1"}, "incast_size"),
            ({"services": 0}, "services"),
            ({"applications": 0}, "applications"),
            ({"unit": "KB"}, "unit"),
            ({"max_flows": 3}, "coflows"),
            ({"to": "csv"}, "to"),
            ({"preset": "small", "mappers": "constant:1"}, "mappers"),
            ({"preset": "small", "cdf": "hadoop"}, "cdf"),
            ({"size": "constant:1", "cdf": "hadoop"}, "size"),
        ):
            with self.subTest(arguments):
                message = self.assertInputError(lambda: weir.Trace.generate(**arguments), field=field)
                self.assertIn("expected ", message)
        for arguments in ({"seed": 1.5}, {"mappers": 3}, {"load": "0.5"}, {"services": None, "ports": "8"}, {"preset": 1}):
            with self.subTest(arguments), self.assertRaises(TypeError):
                weir.Trace.generate(**arguments)
        with self.assertRaises(TypeError):
            weir.Trace.generate(colour="red")

    def test_the_command_line_writes_the_same_bytes(self):
        for arguments in (
            {},
            {"preset": "facebook", "seed": 7, "coflows": 40},
            {"ports": 9, "mappers": "uniform:1,4", "skew": "zipf:1.2", "services": 2, "applications": 3},
            {"cdf": "web-search", "load": 0.5, "coflows": 50, "ports": 16, "port_rate": "10Gbit"},
            {"cdf": "hadoop", "load": 0.5, "incast_degree": 3, "incast_load": 0.1},
        ):
            for to in ("weir", "coflow-benchmark"):
                if to == "coflow-benchmark" and "services" in arguments:
                    continue
                written = run_weir("trace", "generate", "--to", to, *to_options(arguments)).stdout
                self.assertEqual(weir.Trace.generate(to=to, **arguments).to_bytes(to=to).decode(), written, arguments)


class Merging(WithFolder):
    def test_merged_traces_have_all_coflows(self):
        first, second = weir.Trace.generate(coflows=3), weir.Trace.generate(coflows=4, ports=60)
        merged = weir.Trace.merge([first, second])
        self.assertEqual((len(merged), merged.ports), (7, 60))
        self.assertEqual(merged.coflows["coflow"], [1, 2, 3, 5, 6, 7, 8])
        self.assertEqual(merged.name, "small, seed 1, small, seed 1")
        self.assertEqual(weir.Trace.merge(iter([first]), name="one").to_bytes(), first.to_bytes())

    def test_impossible_merges_are_errors(self):
        first = weir.Trace.generate(coflows=3)
        named = weir.Trace.from_frame({"src": ["a"], "dst": ["b"], "bytes": [1]})
        self.assertIn("names of ports", self.assertInputError(lambda: weir.Trace.merge([first, named])))
        self.assertInputError(lambda: weir.Trace.merge([]))
        self.assertInputError(lambda: weir.Trace.merge([first], max_flows=1), field="flows")
        for traces in (None, 3, [1], ["file"]):
            with self.assertRaises((TypeError, AttributeError)):
                weir.Trace.merge(traces)


if __name__ == "__main__":
    warnings.simplefilter("error")
    unittest.main()
