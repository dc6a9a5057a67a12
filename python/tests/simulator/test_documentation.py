"""Runs the Python blocks of docs/python.md in order, as a reader does. A `text` block right after one is its output."""

import ast
import contextlib
import io
import os
import re
import unittest

from command_line import ROOT

PAGES = ["docs/python.md"]


def blocks(page):
    """The line, the program and the expected output, if there is one, of each block."""
    pattern = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
    for found in pattern.finditer(page):
        yield page[: found.start()].count("\n") + 1, found[1], found[2]


def run(program, names, file):
    """Runs a program, and returns its output with the value of a last expression, as a notebook shows it."""
    tree = ast.parse(program)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(tree, file, "exec"), names)
        value = eval(compile(ast.Expression(last.value), file, "eval"), names) if last else None
        if value is not None:
            print(value)
    return output.getvalue()


def matches(expected, output):
    """Whether a text is as expected; `...` stands for any text of a line."""
    pattern = "".join(".*" if part == "..." else re.escape(part) for part in re.split(r"(\.\.\.)", expected.strip()))
    return re.fullmatch(pattern, output.strip()) is not None


class Pages(unittest.TestCase):
    def setUp(self):
        try:
            import matplotlib
            import pandas  # noqa: F401
        except ImportError as error:
            self.skipTest(str(error))
        matplotlib.use("agg")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(ROOT)

    def test_blocks_run_and_print_what_the_page_shows(self):
        for page in PAGES:
            names, found = {"__name__": page}, list(blocks((ROOT / page).read_text()))
            self.assertGreater(len(found), 3)
            for line, program, expected in found:
                with self.subTest(page=page, line=line):
                    output = run(program, names, f"{page}:{line}")
                    if expected is not None:
                        self.assertTrue(matches(expected, output), f"expected\n{expected}\nbut the block prints\n{output}")


if __name__ == "__main__":
    unittest.main()
