"""Commands: ``python -m weir sweep FILE``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .simulator import Sweep

EXAMPLE = """A file:
  policies = ["fair", "aalo", "saath"]
  seeds = "1..20"              # of paths over a fabric, bandwidths between regions, and generated traces
  baseline = "fair"            # of speedups; none without it
  coflows = true               # also keep a row for each replay and coflow
  out = "results"

  [traces]                     # files are relative to this file
  demo = "demo.txt"
  generated = { preset = "small" }   # arguments of weir.Trace.generate; another trace for each seed

  [fabrics]                    # files, or templates of the fabric format
  "4" = { kind = "leaf-spine", leaves = 10, hosts = 5, spines = 4, rate = "1Gbit", oversubscription = 4 }

  [grid]                       # as `weir sweep --vary`: options, and parameters of all policies or of one
  arrival = [0.5, 1, 2]
  "saath:start" = ["1MB", "10MB"]

Exit status: 0, 1 if a replay failed, 2 if an input is invalid, 130 after Ctrl-C.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m weir")
    commands = parser.add_subparsers(title="commands", required=True)
    command = commands.add_parser(
        "sweep",
        help="replay all combinations of traces, policies, seeds and options",
        description="Replays all combinations of the traces, policies, seeds and options in a TOML file. Results are kept in a folder of "
        "Parquet files. Run the same or an extended sweep again to replay only what the folder lacks.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("file", metavar="FILE", help="the TOML file")
    command.add_argument(
        "--executor",
        metavar="WHERE",
        help="`processes` of this machine, the address of a Dask scheduler such as tcp://10.0.0.1:8786, `ray`, or ray://HOST:PORT "
        "[default: this process]",
    )
    command.add_argument("--out", metavar="DIR", help="the folder of results [default: `out` of the file]")
    parsed = parser.parse_args(arguments)
    try:
        return _sweep(parsed.file, parsed.executor, parsed.out)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _sweep(file: str, executor: str | None, out: str | None) -> int:
    import weir

    sweep = weir.sweep  # names the simulator's distribution if only the client is installed
    from .simulator.sweep.file import read_sweep

    settings = read_sweep(file)
    if out is not None:
        settings["out"] = out
    if "out" not in settings:
        raise weir.InputError("--out: expected the folder of results, here or as `out` in the file")
    try:
        result = sweep(**settings, executor=executor)
    except weir.SweepInterrupted as interrupt:
        print(interrupt, file=sys.stderr)
        return 130
    print(result)
    columns = [name for name in ("mean_cct_s", "speedup_p50") if name in result.table.column_names]
    if columns:
        print(_means(result, columns))
    return 1 if result.failed else 0


def _means(result: Sweep, columns: list[str]) -> str:
    """A table of the means of columns, for each policy and combination of values of the grid."""
    by = [name for name in result.columns if name not in ("trace", "seed")]
    rows = [[*by, *(title for column in columns for title in (column, "95 % interval")), "samples"]]
    for means in zip(*(result.mean(column, by=by) for column in columns), strict=True):
        row = ["-" if means[0][name] is None else str(means[0][name]) for name in by]
        for mean in means:
            row += [f"{mean['mean']:.4g}", f"{mean['low']:.4g} to {mean['high']:.4g}" if mean["samples"] > 1 else "-"]
        rows.append([*row, str(means[0]["samples"])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


if __name__ == "__main__":
    sys.exit(main())
