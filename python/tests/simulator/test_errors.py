import os
import pickle
import tempfile
import unittest
from pathlib import Path

import weir


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class InputErrors(WithFolder):
    def read(self, data):
        path = self.folder / "fabric.toml"
        path.write_bytes(data)
        with self.assertRaises(weir.InputError) as caught:
            weir.Fabric.read(path)
        self.assertEqual(caught.exception.file, str(path))
        return caught.exception

    def test_invalid_field_has_file_line_value_and_expectation(self):
        error = self.read(b'weir-fabric = 1\nkind = "big-switch"\nhosts = 2\nrate = 5\n')
        self.assertEqual((error.line, error.field, error.value), (4, "rate", "5"))
        self.assertEqual(str(error), f"{error.file}:4: field `rate`: `5`: expected {error.expected}")
        self.assertIsInstance(error, ValueError)

    def test_malformed_files_are_input_errors(self):
        for data in (b"", b"\xff\xfe", b"weir-fabric = 1", b"weir-fabric = 99\n", b"[", b"0" * (9 << 20)):
            error = self.read(data)
            self.assertIsNotNone(error.expected, data[:20])
            self.assertIsNotNone(error.line, data[:20])

    def test_file_of_another_kind_is_named(self):
        error = self.read(b"weir-trace 1\nports 2\n")
        self.assertIn("trace", error.value)
        self.assertEqual(error.expected, "a fabric or regions")
        self.assertIn("help:", str(error))

    def test_errors_of_policies_have_parameter_value_and_expectation(self):
        trace = weir.Trace.generate(coflows=2)
        for policies, field, value in (
            (["saath:start=5"], "start", "5"),
            ([weir.Policy("saath", lcof=3)], "lcof", "3"),
            (["saath:no-key=5"], "policies", "no-key"),
            (["saath:start"], "policies", "start"),
            (["saht"], "policies", "saht"),
            (["fair:detours=on"], "policies", "fair:detours=on"),
            (["fair", "fair"], "policies", "fair"),
        ):
            with self.assertRaises(weir.InputError) as caught:
                weir.compare(trace, policies)
            error = caught.exception
            self.assertEqual((error.field, error.value), (field, value), str(error))
            self.assertTrue(error.expected and error.expected in str(error), str(error))

    def test_errors_of_options_name_the_keyword(self):
        trace = weir.Trace.generate(coflows=2)
        fabric = weir.fat_tree(k=2, rate="1Gbit")
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as incast:
            for arguments, field, value in (
                ({"path_seed": 3}, "path_seed", "3"),
                ({"decide_over": "ports"}, "decide_over", "ports"),
                ({"decide_over": "all"}, "decide_over", "all"),
                ({"port_rate": "5"}, "port_rate", "5"),
                ({"port_rate": "5Gbit", "fabric": fabric}, "port_rate", "5Gbit"),
                ({"bandwidth_seed": 7}, "bandwidth_seed", "7"),
                ({"bandwidth_seed": 7, "fabric": fabric}, "bandwidth_seed", "7"),
                ({"buffer": 7}, "buffer", "7"),
                ({"incast": incast.name}, "incast", incast.name),
                ({"interval": "-1ms"}, "interval", "-1ms"),
            ):
                with self.assertRaises(weir.InputError) as caught:
                    weir.compare(trace, ["fair"], **arguments)
                error = caught.exception
                self.assertEqual((error.field, error.value), (field, value), str(error))
                self.assertTrue(error.expected and error.expected in str(error), str(error))
                self.assertTrue(str(error).startswith(f"`{field}`: ") and "--" not in str(error), str(error))
        with self.assertRaises(weir.InputError) as caught:
            weir.compare(trace, ["fair"]).explain(99)
        self.assertEqual((caught.exception.field, caught.exception.value), ("coflow", "99"))
        with self.assertRaisesRegex(weir.InputError, r"`max_flows` raises this limit"):
            weir.Trace.from_frame({"src": [0, 1], "dst": [1, 0], "bytes": [1, 1]}, max_flows=1)

    def test_files_that_cannot_be_read_have_the_error_of_the_system_as_cause(self):
        for path, cause in ((self.folder / "missing.toml", FileNotFoundError), (self.folder, IsADirectoryError)):
            with self.assertRaisesRegex(weir.InputError, "cannot be read: ") as caught:
                weir.Fabric.read(path)
            self.assertEqual((caught.exception.file, caught.exception.line), (str(path), None))
            self.assertIsInstance(caught.exception.__cause__, cause)

    def test_files_that_cannot_be_written_are_errors_of_the_system(self):
        fabric = weir.fat_tree(k=2, rate="1Gbit")
        with self.assertRaises(FileNotFoundError) as caught:
            fabric.write(self.folder / "missing" / "fabric.toml")
        self.assertEqual(caught.exception.filename, str(self.folder / "missing" / "fabric.toml"))
        with self.assertRaises(IsADirectoryError):
            fabric.write(self.folder)
        self.assertEqual(os.listdir(self.folder), [])

    def test_paths_of_wrong_types_are_type_errors(self):
        for path in (None, 3, ["fabric.toml"]):
            with self.assertRaises(TypeError):
                weir.Fabric.read(path)

    def test_errors_keep_their_attributes_in_other_processes(self):
        invalid = self.read(b'weir-fabric = 1\nkind = "ring"\n')
        for error in (invalid, weir.ReplayError("stalled"), weir.Interrupted(None)):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), str(copy), vars(copy)), (type(error), str(error), vars(error)))

    def test_interruption_is_no_exception_that_programs_catch_by_accident(self):
        self.assertTrue(issubclass(weir.Interrupted, KeyboardInterrupt))
        self.assertFalse(issubclass(weir.Interrupted, Exception))


class Files(WithFolder):
    def test_links_and_permissions_stay(self):
        fabric = weir.fat_tree(k=2, rate="1Gbit")
        target, link = self.folder / "target.toml", self.folder / "link.toml"
        target.write_text("")
        target.chmod(0o640)
        link.symlink_to(target)
        fabric.write(link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(weir.Fabric.read(target), fabric)
        self.assertEqual(target.stat().st_mode & 0o777, 0o640)

    def test_new_files_have_the_permissions_of_the_umask(self):
        old = os.umask(0o027)
        self.addCleanup(os.umask, old)
        path = self.folder / "new.toml"
        weir.fat_tree(k=2, rate="1Gbit").write(path)
        self.assertEqual(path.stat().st_mode & 0o777, 0o640)

    def test_names_of_compressed_files_are_refused(self):
        for extension in ("gz", "zst"):
            path = self.folder / f"fabric.toml.{extension}"
            with self.assertRaisesRegex(weir.InputError, "no output is compressed") as caught:
                weir.fat_tree(k=2, rate="1Gbit").write(path)
            self.assertEqual(caught.exception.expected, f"a name such as {self.folder / 'fabric.toml'}")
        self.assertEqual(os.listdir(self.folder), [])

    def test_devices_are_written_directly(self):
        weir.fat_tree(k=2, rate="1Gbit").write("/dev/null")
        self.assertFalse(Path("/dev/null").is_file())


if __name__ == "__main__":
    unittest.main()
