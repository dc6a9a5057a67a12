"""`weir.compare` returns what `weir compare` prints and writes: every policy, every option, every format."""

import json
import pickle
import re
import unittest
import warnings

import weir
from command_line import DEMO, EXAMPLES, ROOT, TABLES, CommandLineCase, first_coflows, read_csv, run_json, run_weir, to_options

FABRIC_WITH_EVENTS = """weir-fabric = 1
kind = "leaf-spine"
spines = 2
leaves = 5
hosts = 10
rate = "1Gbit"
oversubscription = 2.0

[[event]]
at = "1s"
cable = ["leaf0", "spine0"]
change = "down"

[[event]]
at = "2s"
cable = ["leaf1", "spine1"]
change = "rate"
rate = "100Mbit"

[[event]]
at = "4s"
cable = ["leaf0", "spine0"]
change = "up"
"""

#: Coflows with weights, deadlines, services, applications, jobs with stages, computing, and events.
RICH_TRACE = """weir-trace 1
ports 4
coflow 1 weight=3 deadline=2s service=web application=search job=1 stage=0 wave=0
shuffle 0,1 2:60MB,3:40MB
coflow 2 weight=3 service=web application=search job=1 stage=0 wave=1 parents=1 compute-before=10ms compute-after=20ms
flow 1 3 30MB release=50ms
coflow 3 arrival=10ms deadline=100ms service=batch
flow 0 2 50MB
coflow 4 arrival=1s service=batch application=sort overlapped-compute=30ms transfer-limit=100ms
shuffle 2,3 0:1GB,1:1B
event 500ms port=2 side=receive rate=0.5
event 700ms port=2 side=receive rate=1
event 1100ms late coflow=4 flow=1 until=1150ms
event 300ms restart coflow=1 flow=1
"""


class CommandLine(CommandLineCase):
    maxDiff = 2000

    def compare_both(self, files, policies, *, read=None, code=0, **arguments):
        """Compares policies with both, and checks that all results are equal. Returns the result of Python."""
        outputs = {option: self.folder / f"{table}.csv" for option, table in TABLES.items()}
        if not any(file.name == "services.toml" for file in files):
            del outputs["--per-demand"]
        options = to_options({**(read or {}), **arguments})
        options += [text for option, file in outputs.items() for text in (option, str(file))]
        if policies is not None:
            options += ["--policies", ",".join(policies)]
        done = run_weir("compare", *files, *options, "--no-timing", "--format", "json", "--out", self.folder / "summary.json")
        self.assertEqual(done.returncode, code, done.stderr)

        unit = {"unit": value for name, value in (read or {}).items() if name == "trace_unit"}
        others = {name: value for name, value in (read or {}).items() if name != "trace_unit"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = weir.Trace.read(*files, **unit, **others)
        result = weir.compare(trace, policies, **arguments, flows=True, links=True, timing=False, progress=False)
        self.check_summary(result)
        for option, file in outputs.items():
            self.check_table(getattr(result, TABLES[option]), file, option)
        return result

    def check_summary(self, result):
        expected = json.loads((self.folder / "summary.json").read_text(), object_pairs_hook=list)
        found = json.loads(json.dumps(result.summary), object_pairs_hook=list)
        self.assertEqual(found, expected)

    def check_table(self, table, file, option):
        header, rows = read_csv(file)
        self.assertEqual(table.columns, header, option)
        self.assertEqual(len(table), len(rows), option)
        for position, name in enumerate(header):
            for text, value in zip((row[position] for row in rows), table[name], strict=True):
                if not is_same(text, value):
                    self.fail(f"{option}: column {name}: the file has {text!r}, the table {value!r}")


def is_same(text, value):
    """Whether a value is that of a cell, exactly."""
    if value is None:
        return text == ""
    if isinstance(value, str):
        return text == value
    return type(value)(text) == value


class Policies(CommandLine):
    def test_every_policy_of_the_command_line(self):
        names = list(dict.fromkeys(row["policy"] for row in run_json("policies")))
        self.assertGreater(len(names), 15)
        trace = self.write("rich.weir", RICH_TRACE)
        result = self.compare_both([trace], names)
        self.assertEqual(result.policies, names)
        self.compare_both([EXAMPLES / "dag.weir"], names, interval="0")

    def test_parameters_as_keyword_arguments(self):
        turns = weir.Policy("aalo", sharing="turns", turn="2ms")
        policies = [weir.Policy("saath", start="1MB", lcof=False), turns, weir.Policy("weir", sizes="known")]
        self.compare_both([self.trace], [policy.spec for policy in policies], baseline=policies[1].spec)
        result = weir.compare(self.trace, policies, baseline=policies[1])
        self.assertEqual(result.policies, ["saath:start=1MB:lcof=off", "aalo:sharing=turns:turn=2ms", "weir:sizes=known"])
        self.assertEqual(result.baseline, result.policies[1])

    def test_policies_in_python_are_no_defaults(self):
        class NeverChosen(weir.BlindPolicy):
            def schedule(self, view):
                raise AssertionError("of a test")

        self.assertNotIn(NeverChosen.name, weir.compare(self.trace).policies)

    def test_default_policies_and_a_baseline_that_is_not_among_the_others(self):
        self.compare_both([self.trace], None)
        result = self.compare_both([self.trace], ["saath", "weir"], baseline="varys")
        self.assertIn("varys", result.policies)

    def test_policy_tree(self):
        trace = self.folder / "shared.weir"
        options = ["--services", 2, "--applications", 2, "--seed", 7, "--coflows", 60]
        self.assertEqual(run_weir("trace", "generate", *options, "--out", trace).returncode, 0)
        tree = weir.Policy.tree(EXAMPLES / "tree.toml")
        result = self.compare_both([trace], ["fair", tree.spec])
        self.assertEqual({row["kind"] for row in result.groups.to_dicts()}, {"service", "application", "weight", "deadline"})


class Networks(CommandLine):
    policies = ["fair", "saath", "varys", "aalo", "django"]

    def test_intervals_and_port_rates(self):
        for arguments in ({"interval": "0"}, {"interval": "8ms"}, {"interval": "50ms"}, {"port_rate": "10Gbit"}, {"port_rate": "40MB/s"}):
            with self.subTest(arguments):
                self.compare_both([self.trace], self.policies, **arguments)

    def test_fabric_with_events(self):
        fabric = self.write("fabric.toml", FABRIC_WITH_EVENTS)
        for arguments in ({}, {"path_seed": 3}, {"decide_over": "ports"}, {"decide_over": "links", "interval": "0"}):
            with self.subTest(arguments):
                self.compare_both([self.trace], ["fair", "saath", "varys"], fabric=fabric, **arguments)

    def test_fabrics_of_the_examples(self):
        for name in ("leaf-spine-16", "fat-tree-4", "five-regions"):
            with self.subTest(name):
                fabric = EXAMPLES / "fabrics" / f"{name}.toml"
                self.compare_both([EXAMPLES / "dag.weir"], ["fair", "saath", "siphon"], fabric=fabric)

    def test_regions(self):
        fabric = EXAMPLES / "wide-area/private-cloud.toml"
        for arguments in ({}, {"bandwidth_seed": 7}, {"interval": "100ms"}):
            with self.subTest(arguments):
                self.compare_both([self.trace], ["fair:detours=on", "siphon:groups=on", "mrtf", "saath"], fabric=fabric, **arguments)

    def test_incast(self):
        incast = EXAMPLES / "incast/cost-512kB-marks.csv"
        self.compare_both([self.trace], self.policies, incast=incast, buffer=100)
        fabric = self.write("fabric.toml", FABRIC_WITH_EVENTS)
        self.compare_both([self.trace], ["fair", "saath"], incast=incast, buffer=25, fabric=fabric)

    def test_concurrent_replays_change_no_result(self):
        self.compare_both([self.trace], self.policies, jobs=4)

    def test_stalled_coflows_are_a_problem_of_the_result(self):
        trace = self.write("stalled.weir", RICH_TRACE + "event 20ms port=1 side=both rate=0\n")
        result = self.compare_both([trace], ["fair", "saath"], code=1)
        message = run_weir("compare", trace, "--policies", "fair,saath").stderr
        self.assertIn(result.problem, message.replace("weir: ", ""))
        self.assertIn(result.problem, repr(result))


class Inputs(CommandLine):
    def test_jobs(self):
        result = self.compare_both([EXAMPLES / "jobs.toml"], ["fair", "saath", "netshare"])
        self.assertEqual(len(result.jobs), 15)

    def test_services_with_a_trace(self):
        trace = self.write("few.txt", first_coflows(DEMO, 9))
        result = self.compare_both([trace, EXAMPLES / "services.toml"], ["fair", "saath", "netshare"])
        self.assertGreater(len(result.demands), 0)

    def test_services_alone(self):
        self.compare_both([EXAMPLES / "services.toml"], ["fair", "netshare"])

    def test_merged_stages(self):
        trace = self.write("rich.weir", RICH_TRACE)
        for file in (EXAMPLES / "dag.weir", trace):
            with self.subTest(file):
                self.compare_both([file], ["fair", "saath"], per_stage=True)

    def test_units_and_late_times(self):
        late = self.write("late.weir", "weir-trace 1\nports 2\ncoflow 1 arrival=900000000.123s\nflow 0 1 30MB\n")
        self.compare_both([self.trace], ["fair", "saath"], read={"trace_unit": "MiB"})
        self.compare_both([late], ["fair", "saath"], read={"keep_arrivals": True})
        for interval in ("0", "8ms", "13ms"):
            with self.subTest(interval):
                result = self.compare_both([late], ["fair", "saath"], interval=interval)
                self.check_in_memory(late, result, interval)

    def check_in_memory(self, file, expected, interval):
        """Checks that a trace that was not read from a file has the results of the file, also in another process."""
        of_bytes = weir.Trace.from_bytes(file.read_bytes(), name=str(file))
        flows = {"start": ["900000000.123"], "src": [0], "dst": [1], "bytes": [30_000_000]}
        for trace in (of_bytes, pickle.loads(pickle.dumps(of_bytes)), weir.Trace.from_frame(flows)):
            found = weir.compare(trace, ["fair", "saath"], interval=interval, timing=False, progress=False)
            self.assertEqual(found.coflows.to_dicts(), expected.coflows.to_dicts())
            self.assertEqual([row["time_shift_s"] for row in found.summary], [row["time_shift_s"] for row in expected.summary])

    def test_messages_are_those_of_the_command_line_with_keywords(self):
        done = run_weir("compare", DEMO, "--policies", "fair", "--path-seed", 3)
        self.assertIn("--path-seed: `3`: one switch has no links between switches; expected --fabric FILE", done.stderr)
        with self.assertRaises(weir.InputError) as caught:
            weir.compare(DEMO, ["fair"], path_seed=3)
        self.assertEqual(str(caught.exception), "`path_seed`: `3`: one switch has no links between switches; expected `fabric`")

    def test_every_format_that_its_first_lines_show(self):
        folder = ROOT / "crates/trace/tests/import"
        files = [file for file in sorted(folder.iterdir()) if not file.name.startswith("flows")]
        self.assertGreater(len(files), 4)
        for file in files:
            with self.subTest(file.name):
                self.compare_both([file], ["fair", "saath", "varys"], port_rate="10Gbit")

    def test_errors_have_the_text_of_the_command_line(self):
        cases = [
            (["missing.txt"], ["fair"], {}),
            ([self.trace], ["saath:no-such-parameter=1"], {}),
            ([self.trace], ["saath:start=5"], {}),
            ([self.trace], ["fair"], {"fabric": EXAMPLES / "fabrics/leaf-spine-16.toml"}),
            ([DEMO, DEMO], ["fair"], {}),
            ([EXAMPLES / "tree.toml"], ["fair"], {}),
        ]
        for files, policies, arguments in cases:
            with self.subTest(files=files, policies=policies, arguments=arguments):
                done = run_weir("compare", *files, "--policies", ",".join(policies), *to_options(arguments))
                self.assertEqual(done.returncode, 2, done.stderr)
                with self.assertRaises(ValueError) as caught:
                    weir.compare(files, policies, **arguments)
                # Only this process knows the policies in Python that other tests define.
                message = re.sub(r"mrtf, .*tree:FILE", "mrtf, tree:FILE", str(caught.exception))
                self.assertIn(message, done.stderr)


class Texts(CommandLine):
    def test_result_prints_the_tables_of_the_command_line(self):
        policies = ["fair", "saath", "varys"]
        result = weir.compare(self.trace, policies, timing=False)
        for text, options in ((str(result), []), (result.wide(), ["--wide"])):
            printed = run_weir("compare", self.trace, "--policies", ",".join(policies), "--no-timing", *options).stdout
            self.assertEqual(text.strip(), printed.strip())

    def test_explanation_is_that_of_the_command_line(self):
        result = weir.compare(DEMO, ["fair", "saath"])
        for policy in result.policies:
            explanation = result.explain(coflow=148, policy=policy)
            self.assertEqual(explanation.record, run_json("explain", DEMO, "--policy", policy, "--coflow", 148))
            printed = run_weir("explain", DEMO, "--policy", policy, "--coflow", 148).stdout
            # The command prints the trace and the network above.
            self.assertTrue(printed.strip().endswith(str(explanation).strip()), printed)


if __name__ == "__main__":
    unittest.main()
