"""Connections that a receiver accepts, and its answers."""

import resource
import socket
import threading
import time
import unittest
from typing import List

from weir.flow_protocol import MAX_NAME_BYTES, FirstLine, check_flow, encode_chunk
from weir.flow_receiver import FlowReceiver

TIMEOUT = 20.0


class FlowReceiverTest(unittest.TestCase):
    def setUp(self) -> None:
        self.receiver = FlowReceiver(("127.0.0.1", 0))
        self.addCleanup(self.receiver.close)
        self.files: List[socket.SocketIO] = []

    def send(self, data: bytes) -> socket.SocketIO:
        """Connects and sends bytes. Returns a file of the answers, to which more can be written."""
        sock = socket.create_connection(self.receiver.address, TIMEOUT)
        file = sock.makefile("rwb", buffering=0)
        sock.close()
        self.addCleanup(file.close)
        self.files.append(file)
        file.write(data)
        return file

    def connect(self, generation: int, offset: int, chunks: bytes = b"") -> socket.SocketIO:
        return self.send(FirstLine("c", 0, generation, offset, "127.0.0.1:1").encode() + chunks)

    def test_later_generation_replaces_the_connection_and_continues(self) -> None:
        first = self.connect(1, 0, encode_chunk(b"hello"))
        flow = self.receiver.receive("c", 0, TIMEOUT)
        self.assertEqual(flow.read(5), b"hello")
        self.assertEqual([first.readline(), first.readline()], [b"ack 0\n", b"ack 13\n"])
        for generation in (0, 1):
            self.assertEqual(self.connect(generation, 0).read(), b"reset replaced\n")
        self.assertEqual(self.connect(2, 14).read(), b"reset gap\n")
        received = []
        # The program waits for data of the first connection.
        thread = threading.Thread(target=lambda: received.append(flow.read()))
        thread.start()
        second = self.connect(2, 0)
        self.assertEqual((second.readline(), first.read()), (b"ack 13\n", b"reset replaced\n"))
        for data in (b"hello", b"world", b""):
            second.write(encode_chunk(data))
        thread.join(TIMEOUT)
        self.assertEqual((received, second.read()), ([b"world"], b"ack 26\nack 34\n"))
        # The sender did not get the last acknowledgement.
        self.assertEqual(self.connect(3, 26, encode_chunk(b"")).read(), b"ack 34\n")
        flow.close()

    def test_malformed_first_lines_are_invalid_and_other_flows_continue(self) -> None:
        self.send(b"")
        slow = self.send(b"weir-flow/2 " + b"x" * MAX_NAME_BYTES)
        rests = ["c", "c 0 0 0 1.2.3.4:1 x", "c -1 0 0 1.2.3.4:1", "c 4294967296 0 0 1.2.3.4:1", "c 0 65536 0 1.2.3.4:1"]
        rests += ["c 0 0 4611686018427387905 1.2.3.4:1", "c 0 0 0 host:1", "c 0 0 0 1.2.3.4:01", "c \N{SUPERSCRIPT TWO} 0 0 1.2.3.4:1"]
        rests += ["x" * 129 + " 0 0 0 1.2.3.4:1", "x" * 4096]
        for line in ["weir-flow c 0"] + [f"weir-flow/2 {rest}" for rest in rests]:
            self.assertEqual(self.send(line.encode() + b"\n").read(), b"reset invalid\n", line)
        slow.write(b" 4294967295 0 0 [fd00::3]:7000\n" + encode_chunk(b"hello") + encode_chunk(b""))
        with self.receiver.receive("x" * MAX_NAME_BYTES, 4294967295, TIMEOUT) as flow:
            self.assertEqual(flow.read(), b"hello")
        with self.assertRaises(TimeoutError):
            self.receiver.receive("c", 0, timeout=0.02)

    def test_wrong_checksum_is_corrupt_and_a_lost_sender_is_an_error(self) -> None:
        chunk = bytearray(encode_chunk(b"hello"))
        chunk[-1] ^= 1
        first = self.connect(0, 0, bytes(chunk))
        with self.receiver.receive("c", 0, TIMEOUT) as flow:
            flow.reconnect_timeout = 0.05
            with self.assertRaises(TimeoutError):
                flow.read()
            self.assertEqual(first.read(), b"ack 0\nreset corrupt\n")
            self.connect(1, 0, encode_chunk(b"hello")).close()
            self.assertEqual(flow.read(5), b"hello")
            with self.assertRaises(TimeoutError):
                flow.read()
            self.connect(2, 13, encode_chunk(b""))
            self.assertEqual(flow.read(), b"")

    def test_dropped_flow_is_replaced(self) -> None:
        first = self.connect(0, 0)
        self.receiver.receive("c", 0, TIMEOUT).close()
        self.assertEqual(first.read(), b"ack 0\nreset replaced\n")
        self.assertEqual(self.connect(1, 0).read(), b"reset replaced\n")

    def test_port_closes_with_the_receiver(self) -> None:
        address = self.receiver.address
        waiting = self.connect(0, 0)
        self.assertEqual(waiting.readline(), b"ack 0\n")
        self.receiver.close()
        with self.assertRaises(OSError):
            socket.create_connection(address)
        self.assertEqual(waiting.read(), b"")
        other = FlowReceiver(("127.0.0.1", 0))
        address = other.address
        del other
        deadline = time.monotonic() + TIMEOUT
        with self.assertRaises(OSError):
            while time.monotonic() < deadline:
                socket.create_connection(address).close()

    def test_thousands_of_flows_are_received_in_any_order(self) -> None:
        count = 1500
        current, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The connections of this test have two ends in this process. The receiver raises a lower limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(current, min(3 * count, maximum)), maximum))
        for number in range(count):
            line = FirstLine("many", number, 0, 0, "127.0.0.1:1").encode()
            self.send(line + encode_chunk(number.to_bytes(4, "big")) + encode_chunk(b""))
        for number in reversed(range(count)):
            with self.receiver.receive("many", number, TIMEOUT) as flow:
                self.assertEqual(flow.read(), number.to_bytes(4, "big"))

    def test_errors_name_their_cause(self) -> None:
        self.connect(0, 0, encode_chunk(b"hello"))
        flow = self.receiver.receive("c", 0, TIMEOUT)
        with self.assertRaisesRegex(FileExistsError, "received before"):
            self.receiver.receive("c", 0, TIMEOUT)
        errors: List[OSError] = []

        def receive() -> None:
            try:
                self.receiver.receive("c", 1, TIMEOUT)
            except OSError as error:
                errors.append(error)

        thread = threading.Thread(target=receive)
        thread.start()
        time.sleep(0.05)
        self.receiver.close()
        thread.join(TIMEOUT)
        self.assertEqual([type(error) for error in errors], [ConnectionAbortedError])
        # The flow that the program reads keeps its connection, and gets no other one.
        self.assertEqual(flow.read(5), b"hello")
        for file in self.files:
            file.close()
        with self.assertRaisesRegex(ConnectionAbortedError, "receiver was closed"):
            flow.read(1)
        flow.close()

    def test_invalid_names_and_numbers_are_refused(self) -> None:
        for coflow, flow in [("", 0), ("a b", 0), ("a\n", 0), ("ü", 0), ("x" * 129, 0), ("a", -1), ("a", 1 << 32)]:
            with self.assertRaises(ValueError):
                check_flow(coflow, flow)
