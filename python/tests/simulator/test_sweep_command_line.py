"""`weir.sweep` returns what the command `weir sweep` prints and writes."""

import json
import unittest

import weir
from command_line import DEMO, EXAMPLES, CommandLineCase, first_coflows, read_csv, run_json
from test_command_line import RICH_TRACE, is_same

#: Columns of the command line that Python does not have, or that name the point in another way.
POINT_COLUMNS = {"policy", "trace"}


class SweepCommandLine(CommandLineCase):
    def sweep_both(self, traces, policies, vary, *options, **arguments):
        """Sweeps with both, and checks that statistics and coflows are equal. Returns the result of Python."""
        file = self.folder / "coflows.csv"
        varied = [text for key, values in vary.items() for text in ("--vary", f"{key}={','.join(map(str, values))}")]
        named = ("--policies", ",".join(policies), "--per-coflow", file, "--no-timing")
        records = run_json("sweep", *traces, *named, *varied, *options)
        result = weir.sweep({**vary, **arguments.pop("grid", {})}, traces=traces, policies=policies, coflows=True, progress=False, **arguments)
        self.assertEqual(result.failed, 0)

        header, lines = read_csv(file)
        keys = header[: header.index("policy")]
        cells = [dict(zip(header, line, strict=True)) for line in lines]
        rows, coflows = result.table.to_pylist(), result.coflows.to_pylist()
        self.assertGreater(len(records), 0)
        for record in records:
            given = {key: str(record["trace"] if key == "trace" else record[key]) for key in keys}
            policy = record["policy"].partition(":")[0]
            if policy not in policies:
                continue  # the baseline
            label = f"{policy}, {given}"
            [row] = [row for row in rows if self.is_point(row, policy, given, "")]
            for name in record.keys() - POINT_COLUMNS - set(keys) - {"fixed_baseline"}:
                expected = json.dumps(record[name]) if isinstance(record[name], list) else record[name]
                self.assertEqual(row.get(name), expected, f"{label}: {name}")
            expected = [cell for cell in cells if cell["policy"] == policy and all(cell[key] == given[key] for key in keys)]
            found = [row for row in coflows if self.is_point(row, policy, given, "vary_")]
            self.assertGreater(len(expected), 0, label)
            self.assertEqual(len(found), len(expected), label)
            for line, row in zip(expected, found, strict=True):
                for name in header[len(keys) + 1 :]:
                    self.assertTrue(is_same(line[name], row[name]), f"{label}: coflow {row['coflow']}: {name}")
        return result

    def is_point(self, row, policy, given, prefix):
        """Whether a row of Python is that of a policy and values of the command line. Policies without a parameter have one row."""
        for key, text in given.items():
            name = key.removeprefix("vary_")
            column = "seed" if name == "path-seed" else "trace" if name == "trace" else prefix + name.replace("-", "_")
            if row[column] is not None and not is_same(text, row[column]):
                return False
        return row["policy"] == policy

    def test_options(self):
        vary = {"interval": ["0", "8ms", "80ms"], "arrival": [0.5, 2]}
        result = self.sweep_both([self.trace], ["fair", "saath", "aalo"], vary, "--baseline", "aalo", baseline="aalo")
        self.assertEqual(len(result), 18)
        self.sweep_both([self.trace], ["fair", "saath"], {"port-rate": ["1Gbit", "10Gbit"]}, baseline="fair")

    def test_parameters_of_all_policies(self):
        vary = {"start": ["1MB", "10MB"], "aalo:queues": [3, 10]}
        result = self.sweep_both([self.trace], ["fair", "saath", "aalo"], vary, baseline="fair")
        self.assertEqual(len(result), 1 + 2 + 4)

    def test_baseline_keeps_its_parameters(self):
        options = ("--baseline", "aalo", "--fixed-baseline")
        self.sweep_both([self.trace], ["saath"], {"start": ["1MB", "10MB"]}, *options, baseline="aalo")

    def test_seeds_of_paths(self):
        fabric = self.folder / "fabric.toml"
        weir.leaf_spine(leaves=5, hosts=10, spines=2, rate="1Gbit", oversubscription=2).write(fabric)
        options = ("--fabric", fabric, "--seeds", "1..3")
        arguments = {"grid": {"fabric": fabric}, "seeds": [1, 2, 3], "baseline": "fair"}
        result = self.sweep_both([self.trace], ["fair", "saath"], {}, *options, **arguments)
        self.assertEqual(len(result), 6)

    def test_several_traces_and_their_intervals(self):
        traces = [self.trace, self.write("fewer.txt", first_coflows(DEMO, 40))]
        policies, vary = ["fair", "saath"], {"arrival": [1, 4]}
        result = self.sweep_both(traces, policies, vary, baseline="fair")
        options = ["--policies", ",".join(policies), "--vary", "arrival=1,4", "--no-timing", "--confidence"]
        for record in run_json("sweep", *traces, *options):
            for column in ("mean_cct_s", "speedup_p50"):
                [mean] = [
                    mean
                    for mean in result.mean(column, by=["policy", "arrival"])
                    if (mean["policy"], str(mean["arrival"])) == (record["policy"], record["vary_arrival"])
                ]
                self.assertEqual(mean["mean"], record[column])
                self.assertEqual(mean["high"], mean["mean"] + record[f"{column}_ci95"])

    def test_events_jobs_and_merged_stages(self):
        trace = self.write("rich.weir", RICH_TRACE)
        vary = {"arrival": [0.5, 1, 3]}
        self.sweep_both([trace], ["fair", "saath"], vary, baseline="fair")
        self.sweep_both([EXAMPLES / "jobs.toml"], ["fair", "saath"], vary, baseline="fair")
        self.sweep_both([EXAMPLES / "dag.weir"], ["fair", "saath"], vary, "--per-stage", grid={"per_stage": True}, baseline="fair")


if __name__ == "__main__":
    unittest.main()
