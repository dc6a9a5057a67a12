"""Figures show the values of the tables."""

import subprocess
import sys
import unittest

import weir
from command_line import DEMO, EXAMPLES

try:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

POLICIES = ["fair", "saath", "varys"]


class Figures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.result = weir.compare(DEMO, POLICIES, flows=True)

    def tearDown(self):
        pyplot.close("all")

    def values(self, table, column, **where):
        rows = (row for row in table.to_dicts() if all(row[name] == value for name, value in where.items()))
        return [row[column] for row in rows]

    def labels(self, ax):
        return [text.get_text() for text in ax.get_legend().get_texts()]

    def test_cdf_shows_the_times_of_all_coflows(self):
        ax = self.result.plot.cdf()
        self.assertEqual(self.labels(ax), POLICIES)
        self.assertEqual(ax.get_xlabel(), "coflow completion time, s")
        for policy, line in zip(POLICIES, ax.get_lines(), strict=True):
            times = sorted(self.values(self.result.coflows, "cct_s", policy=policy))
            self.assertEqual(sorted(line.get_xdata())[1:], times)

    def test_cdf_of_flows_and_of_slowdowns(self):
        ax = self.result.plot.cdf("fct_s", policies=["saath"])
        self.assertEqual(len(ax.get_lines()[0].get_xdata()) - 1, len(self.values(self.result.flows, "fct_s", policy="saath")))
        self.assertEqual(self.labels(self.result.plot.cdf("slowdown", policies=["varys", "fair"])), ["varys", "fair"])

    def test_speedup_is_the_ratio_of_the_times_in_each_bin(self):
        for by, kind in (("size", "coflow-bytes"), ("width", "coflow-width"), ("length", "coflow-length"), ("flow-size", "flow-bytes")):
            for statistic in ("mean", "p50", "p99"):
                with self.subTest(by=by, statistic=statistic):
                    ax = self.result.plot.speedup(by=by, statistic=statistic)
                    self.assertEqual(self.labels(ax), ["saath", "varys"])
                    fair, saath = (
                        self.values(self.result.bins, f"{statistic}_s", policy=policy, kind=kind) for policy in ("fair", "saath")
                    )
                    heights = [bar.get_y() + bar.get_height() for bar in ax.containers[0]]
                    for height, ratio in zip(heights, (a / b for a, b in zip(fair, saath, strict=True)), strict=True):
                        self.assertAlmostEqual(height, ratio, places=12)
                    pyplot.close("all")

    def test_speedup_by_group(self):
        result = weir.compare(EXAMPLES / "dag.weir", ["fair", "saath"])
        ax = result.plot.speedup(by="weight")
        weights = self.values(result.groups, "group", policy="fair", kind="weight")
        self.assertGreater(len(weights), 1)
        self.assertEqual([label.get_text() for label in ax.get_xticklabels()], weights)

    def test_timeline_has_a_bar_from_release_to_end_for_each_coflow(self):
        ax = self.result.plot.timeline(coflows=[148, 112], policies=["saath"])
        self.assertEqual([label.get_text() for label in ax.get_yticklabels()], ["112", "148"])
        bar = ax.containers[0][1]
        released, end = (self.values(self.result.coflows, name, policy="saath", coflow=148)[0] for name in ("released_s", "end_s"))
        self.assertAlmostEqual(bar.get_x(), released, places=12)
        self.assertAlmostEqual(bar.get_x() + bar.get_width(), end, places=9)
        self.assertEqual(len(self.result.plot.timeline().containers[0]), 30)

    def test_figures_draw_in_given_axes(self):
        figure, (first, second, third) = pyplot.subplots(1, 3)
        plot = self.result.plot
        self.assertIs(plot.cdf(ax=first), first)
        self.assertIs(plot.speedup(ax=second), second)
        self.assertIs(plot.timeline(ax=third), third)
        figure.canvas.draw()
        self.assertEqual(pyplot.get_fignums(), [figure.number])

    def test_a_policy_keeps_its_colour(self):
        all_lines, some = self.result.plot.cdf().get_lines(), self.result.plot.cdf(policies=["varys"]).get_lines()
        self.assertEqual(some[0].get_color(), all_lines[2].get_color())
        self.assertEqual(len({line.get_color() for line in all_lines}), 3)

    def test_many_policies_differ_in_colour_or_style(self):
        result = weir.compare(EXAMPLES / "dag.weir", [f"saath:start={number}MB" for number in range(1, 21)])
        lines = result.plot.cdf().get_lines()
        self.assertEqual(len({(line.get_color(), line.get_linestyle()) for line in lines}), 20)
        result.plot.speedup().figure.canvas.draw()

    def test_completion_times_of_zero_are_shown(self):
        result = weir.compare(DEMO, ["fair", "mrtf"], fabric=EXAMPLES / "wide-area/private-cloud.toml")
        self.assertIn(0.0, result.coflows["cct_s"])
        for ax in (result.plot.cdf(), result.plot.speedup(), result.plot.timeline()):
            ax.figure.canvas.draw()

    def test_invalid_arguments_name_what_is_expected(self):
        plot, without_flows = self.result.plot, weir.compare(EXAMPLES / "dag.weir", ["fair"]).plot
        cases = [
            (lambda: plot.cdf("bytes"), "cct_s"),
            (lambda: plot.speedup(by="colour"), "width"),
            (lambda: plot.speedup(statistic="p1"), "p50"),
            (lambda: plot.cdf(policies=["aalo"]), "saath"),
            (lambda: plot.cdf(policies=[]), "saath"),
            (lambda: plot.timeline(coflows=[10**9]), "1000000000"),
            (lambda: without_flows.cdf("fct_s"), "flows=True"),
            (lambda: without_flows.speedup(by="flow-size"), "flows=True"),
        ]
        for call, expected in cases:
            with self.subTest(expected=expected), self.assertRaisesRegex(ValueError, expected):
                call()

    def test_missing_matplotlib_is_named_with_its_extra(self):
        program = f"""
import sys
sys.modules["matplotlib"] = None
import weir
try:
    weir.compare({str(EXAMPLES / "dag.weir")!r}, ["fair"]).plot.cdf()
except ImportError as error:
    print(error)
"""
        printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        self.assertIn("pip install 'weir-network[plot]'", printed)


if __name__ == "__main__":
    unittest.main()
