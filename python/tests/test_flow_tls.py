"""Flows over TLS."""

import os
import random
import shutil
import socket
import tempfile
import threading
import time
import unittest
from typing import Tuple
from unittest import mock

from weir import Coordinator, FlowReceiver, FlowSender, FlowTls, Route
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

    def test_connections_end_with_a_certificate(self) -> None:
        tls = self.tls("ads")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname(), TIMEOUT)
            accepted = tls.accept(listener.accept()[0])
            self.addCleanup(accepted.close)
            thread = threading.Thread(target=accepted.recv, args=(1,))
            thread.start()
            connection = tls.connect(client, to_relay=False)
            self.addCleanup(connection.close)
            self.assertEqual(connection.send(b"x"), 1)
            thread.join()
        with mock.patch("time.time", return_value=time.time() + 86_400 * 365_000):
            for call in (lambda: connection.send(b"x"), lambda: connection.recv(1), lambda: accepted.recv(1)):
                with self.assertRaises(ConnectionResetError):
                    call()

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

    def test_sender_refuses_a_receiver_of_another_service_at_once(self) -> None:
        with FlowReceiver(("127.0.0.1", 0), self.tls("search")) as receiver:
            sender = FlowSender("c", 1, Route(receiver.address), tls=self.tls("ads"))
            reason = "has the name weir://framework/search; expected weir://framework/ads"
            with self.assertRaisesRegex(PermissionError, f"flow 1 of coflow 'c': the sender refuses the receiver: .*{reason}$"):
                sender.write(b"secret")
                sender.finish()

    def test_unusable_files_are_refused_by_name(self) -> None:
        own = self.files("ads")
        with open(f"{self.folder}/text", "w") as text:
            text.write("no PEM")
        for files, named in (
            (("/none", *own[1:]), "'/none'"),
            ((own[0], own[1], text.name), f"^{text.name}: cannot be used; expected certificates of authorities"),
            ((own[0], *self.files("search")[1:]), f"^{own[0]} with key {self.folder}/search.key: .*key values mismatch"),
            (self.files("host"), f"^{self.folder}/host.pem: "),
            (self.files("ads", "other"), f"^{own[0]}: .*{self.folder}/other.pem"),
        ):
            with self.assertRaisesRegex(OSError, named):
                FlowTls(*files)
            if named.startswith("^") and "host" not in named and "other" not in named:
                with self.assertRaisesRegex(OSError, named):
                    Coordinator("localhost:1", certificate=files[0], key=files[1], authority=files[2])

    def test_local_tls_is_set_by_1_and_other_words_are_refused(self) -> None:
        variables = dict(zip(("WEIR_CERTIFICATE", "WEIR_KEY", "WEIR_AUTHORITY"), self.files("ads")))
        for value, expected in (("", False), ("0", False), ("1", True)):
            with mock.patch.dict(os.environ, {**variables, "WEIR_TLS_LOCAL": value}):
                tls = FlowTls.from_environment()
                assert tls is not None
                self.assertEqual(tls._include_local, expected, value)
        for value in ("yes", "true", "2"):
            with mock.patch.dict(os.environ, {**variables, "WEIR_TLS_LOCAL": value}):
                with self.assertRaisesRegex(ValueError, f"^WEIR_TLS_LOCAL: '{value}' is invalid; expected 1 or 0$"):
                    FlowTls.from_environment()

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
