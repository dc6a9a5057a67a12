"""Comparisons in the kernel of a notebook: bars, and interrupts. `tools/notebooks` installs what this needs."""

import tempfile
import time
import unittest

from command_line import STOP_WITHIN, write_long_trace

try:
    import ipykernel  # noqa: F401
    from jupyter_client.manager import start_new_kernel
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

TIMEOUT = 60


class Kernel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.manager, self.client = start_new_kernel(kernel_name="python3")
        self.addCleanup(self.manager.shutdown_kernel, now=True)
        self.addCleanup(self.client.stop_channels)
        self.run_cell(f"import weir; trace = weir.Trace.read({str(write_long_trace(folder.name))!r})")

    def message(self, kind, request):
        """The next message of a kind that a cell causes."""
        while True:
            message = self.client.get_iopub_msg(timeout=TIMEOUT)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == kind:
                return message["content"]

    def run_cell(self, program):
        """The texts that a cell prints, and shows."""
        request, texts = self.client.execute(program), []
        while True:
            message = self.client.get_iopub_msg(timeout=TIMEOUT)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "error":
                self.fail("\n".join(content["traceback"]))
            if message["msg_type"] == "stream":
                texts.append(content["text"])
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return "".join(texts)

    def test_bars_are_updated_in_place_and_an_interrupt_stops_replays_soon(self):
        request = self.client.execute("weir.compare(trace, ['fair', 'aalo', 'saath'])")
        shown = self.message("display_data", request)
        self.assertIn("<progress", shown["data"]["text/html"])
        self.assertIn("aalo", shown["data"]["text/html"])
        display = shown["transient"]["display_id"]
        self.assertEqual(self.message("update_display_data", request)["transient"]["display_id"], display)

        sent = time.monotonic()
        self.manager.interrupt_kernel()
        last, error = None, None
        while error is None:
            message = self.client.get_iopub_msg(timeout=TIMEOUT)
            if message["msg_type"] == "update_display_data":
                last = message["content"]["data"]["text/html"]
            if message["msg_type"] == "error":
                error = message["content"]
        # With the time that the kernel takes to format the traceback and to send it.
        self.assertLess(time.monotonic() - sent, STOP_WITHIN + 1)
        self.assertEqual(error["ename"], "Interrupted")
        self.assertEqual(last, "")
        # The kernel drops cells that arrive before the one with the error has ended.
        while self.message("status", request)["execution_state"] != "idle":
            pass
        self.assertEqual(self.run_cell("print(len(weir.compare(trace, ['fair'], progress=False)))"), "1\n")

    def test_results_have_html(self):
        text = self.run_cell("result = weir.compare(trace, ['fair'], progress=False); print(result.coflows._repr_html_()[:3])")
        self.assertEqual(text, "<p>\n")


if __name__ == "__main__":
    unittest.main()
