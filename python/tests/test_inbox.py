"""Connections that an inbox accepts, and those that it closes."""

import socket
import unittest

from weir.inbox import LONGEST_ID, Inbox, head


class InboxTest(unittest.TestCase):
    def setUp(self) -> None:
        self.inbox = Inbox(("127.0.0.1", 0))
        self.addCleanup(self.inbox.close)

    def say(self, data: bytes) -> socket.socket:
        sock = socket.create_connection(self.inbox.address)
        self.addCleanup(sock.close)
        sock.sendall(data)
        return sock

    def read(self, coflow: str, flow: int) -> bytes:
        with self.inbox.get(coflow, flow, patience=10) as sock, sock.makefile("rb") as data:
            return data.read()

    def test_flows_come_in_any_order_and_data_begins_after_the_line(self) -> None:
        self.say(b"")
        slow = self.say(b"weir-fl")
        self.say(b"weir-flow a 0\nhello\nyou").close()
        self.say(b"weir-flow a 4294967295\n").close()
        slow.sendall(b"ow b 0\nslow")
        slow.close()
        self.assertEqual(self.read("b", 0), b"slow")
        self.assertEqual(self.read("a", 4294967295), b"")
        self.assertEqual(self.read("a", 0), b"hello\nyou")
        with self.assertRaises(TimeoutError):
            self.inbox.get("a", 0, patience=0.02)

    def test_what_is_no_flow_is_let_go_of(self) -> None:
        lines = ["weir-flow a", "weir-flow a 0 0", "weir-flow a -1", "weir-flow a 4294967296", "", "weir-flow a ²"]
        wrong = [self.say(line.encode() + b"\n") for line in lines]
        wrong += [self.say(b"x" * 4096), self.say(f"weir-flow {'x' * (LONGEST_ID + 1)} 0\n".encode())]
        longest = "x" * LONGEST_ID
        last = self.say(head(longest, 4294967295))
        last.close()
        self.assertEqual(self.read(longest, 4294967295), b"")
        for sock in wrong:
            sock.settimeout(10)
            # The kernel resets a connection with unread bytes.
            try:
                self.assertEqual(sock.recv(1), b"")
            except ConnectionResetError:
                pass

    def test_the_later_one_counts(self) -> None:
        self.say(b"weir-flow a 0\nfirst")
        self.say(b"weir-flow a 0\nsecond").close()
        self.assertEqual(self.read("a", 0), b"second")

    def test_names_that_are_none_are_refused(self) -> None:
        for coflow, flow in [("", 0), ("a b", 0), ("a\n", 0), ("ü", 0), ("x" * 129, 0), ("a", -1), ("a", 1 << 32)]:
            with self.assertRaises(ValueError):
                head(coflow, flow)
