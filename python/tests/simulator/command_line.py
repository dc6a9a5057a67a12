"""The command `weir`, and the files of the repository, for tests."""

import csv
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
DEMO = EXAMPLES / "demo.txt"

#: Tables of a result by the options of the command line that write them.
TABLES = {
    "--per-coflow": "coflows",
    "--per-flow": "flows",
    "--per-bin": "bins",
    "--per-group": "groups",
    "--per-job": "jobs",
    "--per-demand": "demands",
    "--per-link": "links",
    "--per-link-time": "link_times",
}

#: The time in which Ctrl-C ends replays, in seconds. A machine with other load needs more.
STOP_WITHIN = 0.2 if os.environ.get("WEIR_TEST_LENGTH") == "long" else 1.0


def find_weir():
    """The command that the environment names, or that of a build in the profile `dev`.

    :raises unittest.SkipTest: without such a command.
    """
    command = Path(os.environ.get("WEIR_BINARY", ROOT / "target/debug/weir"))
    if not command.exists():
        raise unittest.SkipTest(f"{command} does not exist; `cargo build -p weir-cli` builds it")
    return command


def run_weir(*arguments):
    """Runs the command in the folder of the repository, and returns the completed process."""
    return subprocess.run([find_weir(), *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)


def run_json(*arguments):
    """The JSON that the command prints."""
    done = run_weir(*arguments, "--format", "json")
    if done.returncode != 0:
        raise AssertionError(f"weir {' '.join(map(str, arguments))}: {done.stderr}")
    return json.loads(done.stdout)


def to_options(arguments):
    """Keyword arguments as options."""
    options = []
    for name, value in arguments.items():
        option = f"--{name.replace('_', '-')}"
        options += [option] if value is True else [option, str(value)]
    return options


def read_csv(file):
    """The header and the rows of a file, as texts."""
    with open(file, newline="") as lines:
        header, *rows = csv.reader(lines)
    return header, rows


def write_long_trace(folder):
    """Writes a trace with ten times the coflows of the demo trace, in the same time, and returns its file."""
    header, *lines = DEMO.read_text().splitlines()
    ports, count = map(int, header.split())
    rows = [line.split(maxsplit=2) for line in lines]
    repeated = [f"{int(row[0]) + number * count} {int(row[1]) + number} {row[2]}" for row in rows for number in range(10)]
    file = Path(folder) / "long.txt"
    file.write_text("\n".join([f"{ports} {len(repeated)}", *repeated, ""]))
    return file


def first_coflows(file, count):
    """The first coflows of a trace in the public format."""
    header, *lines = file.read_text().splitlines()
    return "\n".join([f"{header.split()[0]} {count}", *lines[:count], ""])


class CommandLineCase(unittest.TestCase):
    """Tests with the command, a folder, and a trace of 60 coflows in it."""

    @classmethod
    def setUpClass(cls):
        find_weir()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.trace = self.write("small.txt", first_coflows(DEMO, 60))

    def write(self, name, text):
        file = self.folder / name
        file.write_text(text)
        return file
