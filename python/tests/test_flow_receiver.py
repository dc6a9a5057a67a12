"""Connections that a receiver accepts, and those that it closes."""

import socket
import unittest

from weir.flow_receiver import MAX_ID_LENGTH, FlowReceiver, first_line


class FlowReceiverTest(unittest.TestCase):
    def setUp(self) -> None:
        self.receiver = FlowReceiver(("127.0.0.1", 0))
        self.addCleanup(self.receiver.close)

    def send(self, data: bytes) -> socket.socket:
        sock = socket.create_connection(self.receiver.address)
        self.addCleanup(sock.close)
        sock.sendall(data)
        return sock

    def read(self, coflow: str, flow: int) -> bytes:
        with self.receiver.receive(coflow, flow, timeout=10) as sock, sock.makefile("rb") as data:
            return data.read()

    def test_flows_arrive_in_any_order_and_data_begins_after_the_line(self) -> None:
        self.send(b"")
        slow = self.send(b"weir-fl")
        self.send(b"weir-flow a 0\nhello\nyou").close()
        self.send(b"weir-flow a 4294967295\n").close()
        slow.sendall(b"ow b 0\nslow")
        slow.close()
        self.assertEqual(self.read("b", 0), b"slow")
        self.assertEqual(self.read("a", 4294967295), b"")
        self.assertEqual(self.read("a", 0), b"hello\nyou")
        with self.assertRaises(TimeoutError):
            self.receiver.receive("a", 0, timeout=0.02)

    def test_connections_with_a_malformed_line_are_closed(self) -> None:
        lines = ["weir-flow a", "weir-flow a 0 0", "weir-flow a -1", "weir-flow a 4294967296", "", "weir-flow a ²"]
        malformed = [self.send(line.encode() + b"\n") for line in lines]
        malformed += [self.send(b"x" * 4096), self.send(f"weir-flow {'x' * (MAX_ID_LENGTH + 1)} 0\n".encode())]
        longest = "x" * MAX_ID_LENGTH
        last = self.send(first_line(longest, 4294967295))
        last.close()
        self.assertEqual(self.read(longest, 4294967295), b"")
        for sock in malformed:
            sock.settimeout(10)
            # The kernel resets a connection with unread bytes.
            try:
                self.assertEqual(sock.recv(1), b"")
            except ConnectionResetError:
                pass

    def test_later_connection_of_a_flow_replaces_the_earlier(self) -> None:
        self.send(b"weir-flow a 0\nfirst")
        self.send(b"weir-flow a 0\nsecond").close()
        self.assertEqual(self.read("a", 0), b"second")

    def test_invalid_ids_are_refused(self) -> None:
        for coflow, flow in [("", 0), ("a b", 0), ("a\n", 0), ("ü", 0), ("x" * 129, 0), ("a", -1), ("a", 1 << 32)]:
            with self.assertRaises(ValueError):
                first_line(coflow, flow)
