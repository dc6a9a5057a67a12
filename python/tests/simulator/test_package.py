import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import weir
import weir.simulator


def run(program):
    """The output of a program in a new interpreter."""
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Package(unittest.TestCase):
    def test_names_of_the_simulator_are_those_of_the_package(self):
        self.assertEqual(set(weir._SIMULATOR), set(weir.simulator.__all__))
        for name in weir.simulator.__all__:
            self.assertIs(getattr(weir, name), getattr(weir.simulator, name))
            self.assertIn(name, weir.__all__)
            self.assertIn(name, dir(weir))
        self.assertIn("Coordinator", weir.__all__)

    def test_each_public_name_has_a_docstring(self):
        for name in weir.__all__:
            self.assertTrue(getattr(weir, name).__doc__, name)

    def test_unknown_name_is_an_attribute_error(self):
        self.assertFalse(hasattr(weir, "no_such_name"))

    def test_client_does_not_load_the_native_module(self):
        loaded = run("import sys, weir; weir.Coordinator; print(*sys.modules)").split()
        self.assertIn("weir.coordinator", loaded)
        self.assertNotIn("weir._native", loaded)
        self.assertNotIn("weir.simulator", loaded)

    def test_simulator_needs_no_optional_package(self):
        loaded = run("import sys, weir; weir.Fabric; print(*sys.modules)").split()
        self.assertIn("weir._native", loaded)
        for package in ("numpy", "pandas", "polars", "pyarrow", "matplotlib", "networkx"):
            self.assertNotIn(package, loaded)

    def test_client_alone_names_the_missing_simulator(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (client := Path(folder.name) / "weir").mkdir()
        for module in Path(weir.__file__).parent.glob("*.py"):
            shutil.copy(module, client)
        shown = run(
            f"import sys\nsys.path.insert(0, {folder.name!r})\n"
            "import weir\nfrom weir import *\nprint('Fabric' in dir(), 'Coordinator' in dir())\n"
            "try:\n    weir.Fabric\nexcept ImportError as error:\n    print(error)\n"
        )
        self.assertEqual(shown.splitlines()[0], "False True")
        self.assertIn("weir.Fabric is part of the simulator", shown)
        self.assertIn("weir-network", shown)


if __name__ == "__main__":
    unittest.main()
