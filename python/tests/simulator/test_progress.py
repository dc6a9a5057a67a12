"""Progress bars in terminals and notebooks."""

import io
import os
import pty
import subprocess
import sys
import unittest
from unittest import mock

import weir
from command_line import DEMO
from weir.simulator import progress

COMPARE = f"import weir; weir.compare({str(DEMO)!r}, [f'aalo:start={{n}}MB' for n in range(1, 11)])"


def run_in_terminal(program, **environment):
    """What a program writes to a terminal."""
    terminal, stream = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stderr=stream, env={**os.environ, "TERM": "xterm", **environment}) as child:
        os.close(stream)
        written = b""
        # The end of a terminal is an error.
        while True:
            try:
                written += os.read(terminal, 65536)
            except OSError:
                break
        os.close(terminal)
        if child.wait() != 0:
            raise AssertionError(written.decode())
    return written.decode()


class Terminals(unittest.TestCase):
    def test_each_policy_has_a_bar_which_is_removed_at_the_end(self):
        program = f"from weir.simulator import progress; progress.DELAY = 0.0; {COMPARE}"
        text = run_in_terminal(program, PYTHONIOENCODING="utf-8")
        self.assertRegex(text, r"aalo:start=1MB +█")
        self.assertRegex(text, r"aalo:start=10MB +[█░]+ +\d+ %")
        self.assertTrue(text.endswith("\x1b[10F\x1b[J"), repr(text[-40:]))
        self.assertIn("#", run_in_terminal(program, PYTHONIOENCODING="ascii"))

    def test_nothing_is_written_without_a_terminal_or_if_it_cannot_move_its_cursor(self):
        child = subprocess.run([sys.executable, "-c", COMPARE], capture_output=True, check=True)
        self.assertEqual((child.stdout, child.stderr), (b"", b""))
        self.assertEqual(run_in_terminal(COMPARE, TERM="dumb"), "")

    def test_lines_are_shorter_than_the_terminal(self):
        stream = io.StringIO()
        terminal = progress.Terminal(stream)
        with mock.patch.object(progress, "_terminal_size", return_value=os.terminal_size((60, 5))):
            terminal.show([("a" * 200, 0.5)] * 9)
        lines = stream.getvalue().strip("\r\n").replace("\x1b[2K", "").split("\n")
        self.assertEqual(len(lines), 4)
        self.assertLess(max(map(len, lines)), 60)

    def test_a_closed_terminal_does_not_end_replays(self):
        stream = io.StringIO()
        stream.close()
        with mock.patch.object(progress, "DELAY", 0.0), mock.patch.object(progress, "find_display", lambda: progress.Terminal(stream)):
            self.assertEqual(len(weir.compare(DEMO, ["aalo"])), 1)


class Notebooks(unittest.TestCase):
    def setUp(self):
        self.shown = []
        handle = mock.Mock()
        handle.update.side_effect = self.shown.append

        def display(content, display_id):
            self.assertTrue(display_id)
            self.shown.append(content)
            return handle

        self.notebook = progress.Notebook(display, lambda text: text)

    def test_one_output_is_updated_in_place_and_emptied(self):
        with mock.patch.object(progress, "DELAY", 0.0), mock.patch.object(progress, "find_display", lambda: self.notebook):
            weir.compare(DEMO, ["aalo", "saath"])
        self.assertIn("<progress", self.shown[0])
        self.assertIn("aalo", self.shown[0])
        self.assertEqual(self.shown[-1], "")

    def test_names_are_escaped(self):
        self.notebook.show([("<b>", 0.25)])
        self.assertIn("&lt;b&gt;", self.shown[0])
        self.assertIn("25 %", self.shown[0])


class Bars(unittest.TestCase):
    def test_many_policies_have_one_bar(self):
        display = mock.Mock()
        bars = progress.Bars(display)
        bars._next = 0
        bars([str(number) for number in range(20)], [100] * 5 + [50] * 15, 100)
        display.show.assert_called_once_with([("5 of 20 policies", 0.625)])

    def test_short_replays_show_nothing(self):
        display = mock.Mock()
        bars = progress.Bars(display)
        bars(["fair"], [50], 100)
        display.show.assert_not_called()


if __name__ == "__main__":
    unittest.main()
