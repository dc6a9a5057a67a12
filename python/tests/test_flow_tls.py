"""Flows over TLS."""

import os
import random
import shutil
import socket
import tempfile
import threading
import unittest
from typing import Tuple
from unittest import mock

from weir import FlowReceiver, FlowSender, FlowTls, Route
from weir.flow_sender import SentFlow

from .beds import openssl

TIMEOUT = 20.0


@unittest.skipIf(shutil.which("openssl") is None, "openssl is not installed")
class FlowTlsTest(unittest.TestCase):
    folder = ""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        openssl(cls.folder, "authority", None)
        for name in ("ads", "search"):
            openssl(cls.folder, name, f"URI:weir://framework/{name}")
        openssl(cls.folder, "relay", "URI:weir://relay/west")
        openssl(cls.folder, "host", "DNS:localhost")
        openssl(cls.folder, "other", None)

    def files(self, name: str, authority: str = "authority") -> Tuple[str, str, str]:
        return f"{self.folder}/{name}.pem", f"{self.folder}/{name}.key", f"{self.folder}/{authority}.pem"

    def tls(self, name: str) -> FlowTls:
        return FlowTls(*self.files(name), include_local=True)

    def test_data_arrives_complete(self) -> None:
        data = random.Random(1).randbytes(3_000_000)
        sent = []
        with FlowReceiver(("127.0.0.1", 0), self.tls("ads")) as receiver:

            def send() -> None:
                with FlowSender("c", 1, Route(receiver.address), tls=self.tls("ads")) as sender:
                    sender.write(data)
                sent.append(sender.finish())

            thread = threading.Thread(target=send)
            thread.start()
            with receiver.receive("c", 1, TIMEOUT) as flow:
                self.assertEqual(flow.read(), data)
            thread.join()
        self.assertEqual(sent, [SentFlow(len(data), None)])

    def first_answer(self, receiver: FlowReceiver, tls: FlowTls) -> bytes:
        """The answer to a first line; empty if the receiver closes the connection."""
        connection = tls._client.wrap_socket(socket.create_connection(receiver.address, TIMEOUT))
        with connection:
            connection.sendall(b"weir-flow/2 c 1 0 0 127.0.0.1:9\n")
            return connection.recv(100)

    def test_receiver_accepts_relays_and_its_service_only(self) -> None:
        for name, answer in (("ads", b"ack 0\n"), ("relay", b"ack 0\n"), ("search", b"")):
            with FlowReceiver(("127.0.0.1", 0), self.tls("ads")) as receiver:
                self.assertEqual(self.first_answer(receiver, self.tls(name)), answer, name)

    def test_receiver_refuses_plain_text(self) -> None:
        with FlowReceiver(("127.0.0.1", 0), self.tls("ads")) as receiver:
            with socket.create_connection(receiver.address, TIMEOUT) as plain:
                plain.sendall(b"weir-flow/2 c 1 0 0 127.0.0.1:9\n")
                try:
                    answer = plain.recv(1)
                except ConnectionResetError:
                    answer = b""
                # At most an alert of TLS.
                self.assertIn(answer, (b"", b"\x15"))

    def test_sender_checks_the_name_of_the_other_end(self) -> None:
        for name, to_relay, expected in (("ads", True, "weir://relay/NAME"), ("search", False, "weir://framework/ads")):
            with FlowReceiver(("127.0.0.1", 0), self.tls(name)) as receiver:
                with socket.create_connection(receiver.address, TIMEOUT) as sock:
                    with self.assertRaisesRegex(OSError, f"has the name weir://framework/{name}; expected {expected}"):
                        self.tls("ads").connect(sock, to_relay)

    def test_unusable_files_are_refused(self) -> None:
        for certificate, key, authority in (
            ("/none", *self.files("ads")[1:]),
            (self.files("ads")[0], *self.files("search")[1:]),
            self.files("host"),
            self.files("ads", "other"),
        ):
            with self.assertRaises(OSError):
                FlowTls(certificate, key, authority)

    def test_files_are_read_from_the_environment(self) -> None:
        variables = dict(zip(("WEIR_CERTIFICATE", "WEIR_KEY", "WEIR_AUTHORITY"), self.files("ads")))
        with mock.patch.dict(os.environ, variables):
            tls = FlowTls.from_environment()
            assert tls is not None
            self.assertEqual(tls._name, "weir://framework/ads")
        self.check_addresses(tls)
        with mock.patch.dict(os.environ, {**variables, "WEIR_KEY": ""}), self.assertRaises(ValueError):
            FlowTls.from_environment()
        with mock.patch.dict(os.environ, dict.fromkeys(variables, "")):
            self.assertIsNone(FlowTls.from_environment())

    def check_addresses(self, tls: FlowTls) -> None:
        """Connections inside a host are exempt."""
        inside = [("127.0.0.1", "127.1.2.3"), ("10.0.0.1", "127.0.0.1"), ("::1", "::1")]
        inside += [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1")]
        outside = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")]
        for addresses in inside + outside:
            sock = mock.Mock()
            sock.getsockname.return_value, sock.getpeername.return_value = [(address, 80) for address in addresses]
            self.assertEqual(tls._applies_to(sock), addresses in outside, addresses)
