"""Runs the examples of docstrings in the root of the repository."""

import doctest
import importlib
import os
import pkgutil
import unittest
from pathlib import Path

import weir.simulator

ROOT = Path(__file__).parents[3]


class Docstrings(unittest.TestCase):
    def test_examples_print_what_they_show(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(ROOT)
        examples = 0
        for module in pkgutil.walk_packages(weir.simulator.__path__, "weir.simulator."):
            results = doctest.testmod(importlib.import_module(module.name))
            self.assertEqual(results.failed, 0, module.name)
            examples += results.attempted
        self.assertGreater(examples, 0)


if __name__ == "__main__":
    unittest.main()
