"""Senders and receivers over paths that fail."""

import os
import random
import socket
import threading
import unittest
from typing import List, Optional, Tuple
from unittest import mock

from weir import FlowReceiver, FlowSender, Route
from weir.flow_protocol import REASONS, FirstLine
from weir.flow_sender import _RELAYS, WINDOW_BYTES, _RelayCounter

TIMEOUT = 20.0

# How a connection fails: `close`, `corrupt` or a reason of a reset, after a number of bytes of the stream.
Fault = Tuple[str, int]


class Proxy:
    """Forwards connections to a target, or to the receivers in their first lines. Each connection takes the next fault; connections after
    the last fault succeed."""

    def __init__(self, faults: List[Fault], target: Optional[Tuple[str, int]] = None) -> None:
        self.connections = 0
        self._faults = faults
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                sender, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            fault = self._faults.pop(0) if self._faults else None
            threading.Thread(target=self._forward, args=(sender, fault), daemon=True).start()

    def _forward(self, sender: socket.socket, fault: Optional[Fault]) -> None:
        line = b""
        while not line.endswith(b"\n"):
            line += sender.recv(1)
        first_line = FirstLine.parse(line[:-1])
        assert first_line is not None
        host, _, port = first_line.receiver.rpartition(":")
        with sender, socket.create_connection(self._target or (host, int(port))) as receiver:
            receiver.sendall(line)
            answers = threading.Thread(target=self._copy, args=(receiver, sender))
            answers.start()
            kind, left = fault or ("none", 1 << 62)
            try:
                while left > 0 and (data := sender.recv(min(65536, left))):
                    receiver.sendall(data)
                    left -= len(data)
                if kind == "corrupt" and (data := sender.recv(1)):
                    receiver.sendall(bytes([data[0] ^ 16]))
                    self._copy(sender, receiver)
                if kind in REASONS:
                    sender.sendall(f"reset {kind}\n".encode())
                    sender.shutdown(socket.SHUT_WR)
                    # The kernel drops the line if it gets data after the socket is closed.
                    while sender.recv(65536):
                        pass
            except OSError:
                pass
            for sock in (sender, receiver):
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            answers.join()

    @staticmethod
    def _copy(source: socket.socket, destination: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                destination.sendall(data)
        except OSError:
            pass


class Sending(threading.Thread):
    """Sends data in pieces of random length."""

    def __init__(self, flow: int, route: Route, data: bytes) -> None:
        super().__init__(daemon=True)
        self.flow, self.route, self.data = flow, route, data
        self.error: Optional[OSError] = None
        self.start()

    def run(self) -> None:
        rng = random.Random(len(self.data))
        at = 0
        try:
            with FlowSender("c", self.flow, self.route) as sender:
                while at < len(self.data):
                    at += sender.write(self.data[at : at + rng.randrange(1, 100_000)])
                    if rng.randrange(4) == 0:
                        sender.flush()
        except OSError as error:
            self.error = error


class FlowSenderTest(unittest.TestCase):
    def setUp(self) -> None:
        self.receiver = FlowReceiver(("127.0.0.1", 0))
        self.addCleanup(self.receiver.close)

    def proxy(self, faults: List[Fault], target: Optional[Tuple[str, int]] = None) -> Proxy:
        proxy = Proxy(faults, target)
        self.addCleanup(proxy.close)
        return proxy

    def read(self, flow: int) -> bytes:
        with self.receiver.receive("c", flow, TIMEOUT) as incoming:
            return incoming.read()

    def test_data_arrives_once_and_in_order_over_failing_paths(self) -> None:
        sendings = []
        for seed in range(12):
            rng = random.Random(seed)
            kinds = ["close", "corrupt", "lost", "close"]
            # All faults are before the last chunk, whose wrong length would be noticed late.
            faults = [(rng.choice(kinds), rng.randrange(60_000)) for _ in range(rng.randrange(1, 5))]
            # Half of the senders know the proxy as a relay, the others as the receiver.
            if seed % 2 == 0:
                route = Route(self.receiver.address, self.proxy(faults).address)
            else:
                route = Route(self.proxy(faults, self.receiver.address).address)
            sendings.append(Sending(seed, route, rng.randbytes(rng.randrange(400_000, 800_000))))
        for sending in sendings:
            self.assertTrue(self.read(sending.flow) == sending.data, sending.flow)
            sending.join(TIMEOUT)
            self.assertIsNone(sending.error)

    def test_sender_reacts_to_resets_of_a_relay_by_reason(self) -> None:
        for flow, reason in enumerate(REASONS):
            proxy = self.proxy([(reason, 0)] * 9)
            sending = Sending(flow, Route(self.receiver.address, proxy.address), bytes(300_000))
            if reason in ("gap", "replaced", "invalid"):
                sending.join(TIMEOUT)
                self.assertIsInstance(sending.error, ConnectionResetError)
                self.assertIn(reason, str(sending.error))
            else:
                self.assertEqual(self.read(flow), bytes(300_000))
                sending.join(TIMEOUT)
                self.assertIsNone(sending.error)
            self.assertEqual(proxy.connections, 4 if reason in ("lost", "unknown-coflow") else 1, reason)

    def test_sender_goes_directly_if_the_relay_is_absent(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            address = unused.getsockname()
        sending = Sending(0, Route(self.receiver.address, address), b"hello")
        self.assertEqual(self.read(0), b"hello")
        sending.join(TIMEOUT)

    def test_slow_reader_blocks_the_writer(self) -> None:
        sender = FlowSender("c", 0, Route(self.receiver.address))
        written = 0

        def write() -> None:
            nonlocal written
            with sender:
                for _ in range(32):
                    written += sender.write(bytes(1 << 20))

        thread = threading.Thread(target=write)
        thread.start()
        with self.receiver.receive("c", 0, TIMEOUT) as flow:
            thread.join(0.5)
            self.assertLess(written, WINDOW_BYTES)
            self.assertEqual(len(flow.read()), 32 << 20)
        thread.join(TIMEOUT)

    def test_closed_sender_is_an_error_at_the_receiver(self) -> None:
        sender = FlowSender("c", 0, Route(self.receiver.address))
        sender.write(b"hello")
        sender.flush()
        with self.receiver.receive("c", 0, TIMEOUT) as flow:
            flow.reconnect_timeout = 0.05
            self.assertEqual(flow.read(5), b"hello")
            sender.close()
            with self.assertRaises(TimeoutError):
                flow.read()
        with self.assertRaises(ConnectionAbortedError):
            sender.finish()

    def test_relay_is_an_address_a_name_or_absent(self) -> None:
        for text, relay in [
            ("", None),
            ("10.0.0.1:7710", ("10.0.0.1", 7710)),
            ("[fd00::1]:7710", ("fd00::1", 7710)),
            ("relay.example:7710", ("relay.example", 7710)),
        ]:
            with mock.patch.dict(os.environ, WEIR_RELAY=text):
                self.assertEqual(Route.from_environment(("a", 1)), Route(("a", 1), relay))
        with mock.patch.dict(os.environ, WEIR_RELAY="10.0.0.1:7710,10.0.0.2:7711"):
            relays = [Route.from_environment(("a", 1)).relay for _ in range(4)]
        self.assertCountEqual(relays, [("10.0.0.1", 7710)] * 2 + [("10.0.0.2", 7711)] * 2)
        firsts = {_RelayCounter().next() % 2 for _ in range(64)}
        self.assertEqual(firsts, {0, 1})
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, b"%d" % _RELAYS.next())
            os._exit(0)
        os.wait()
        # Each of the two draws one of 2^30 numbers.
        self.assertNotEqual(int(os.read(reader, 20)), _RELAYS.next())
        os.close(reader)
        os.close(writer)
        for text in ["10.0.0.1", "relay", "relay:0", "relay:65536", "[::1:1", ":7710", " ", "10.0.0.1:1,", "10.0.0.1:1, 10.0.0.2:1"]:
            with mock.patch.dict(os.environ, WEIR_RELAY=text), self.assertRaises(ValueError):
                Route.from_environment(("a", 1))
