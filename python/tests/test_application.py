"""Saba's interface with a real coordinator, and the marks of packets."""

import ctypes
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import unittest
from typing import Any, Dict, List, Tuple

from weir import Application, Coordinator, CoordinatorError

from .beds import Bed, openssl

ETH_P_ALL = 3
SO_ATTACH_FILTER = 26
SYN, ACK = 0x02, 0x10


def capture(port: int) -> socket.socket:
    """A socket with the TCP packets to a port on loopback. A filter in the kernel drops other packets, which could fill the buffer."""
    # Classic BPF; packets begin with the header of IP. Jumps are relative to the next instruction.
    program = [
        (0x30, 0, 0, 0),  # 0: A = the byte of the version
        (0x54, 0, 0, 0xF0),  # 1: A &= 0xf0
        (0x15, 4, 0, 0x60),  # 2: IPv6: to 7
        (0x30, 0, 0, 9),  # 3: A = the protocol of IPv4
        (0x15, 0, 7, socket.IPPROTO_TCP),  # 4: not TCP: to 12
        (0xB1, 0, 0, 0),  # 5: X = the length of the header of IPv4
        (0x05, 0, 0, 3),  # 6: to 10
        (0x30, 0, 0, 6),  # 7: A = the protocol after the header of IPv6
        (0x15, 0, 3, socket.IPPROTO_TCP),  # 8: not TCP: to 12
        (0x01, 0, 0, 40),  # 9: X = the length of the header of IPv6
        (0x48, 0, 0, 2),  # 10: A = the destination port
        (0x15, 1, 0, port),  # 11: this port: to 13
        (0x06, 0, 0, 0),  # 12: drop
        (0x06, 0, 0, 65535),  # 13: accept
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    # Without a protocol, no packets arrive before `bind`.
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    packets.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code)))
    packets.bind(("lo", ETH_P_ALL))
    return packets


def marks_of(source_port: int, packets: socket.socket) -> List[Tuple[int, bool]]:
    """The DSCPs of the captured packets of a connection, in order, and whether each opens it.

    Another program may have the same port at another address of loopback, so the destination alone does not identify them.
    """
    packets.settimeout(0.2)
    marks: List[Tuple[int, bool]] = []
    while True:
        try:
            packet, (_, _, kind, *_) = packets.recvfrom(65535)
        except TimeoutError:
            return marks
        version = packet[0] >> 4
        head = (packet[0] & 15) * 4 if version == 4 else 40
        traffic = packet[1] if version == 4 else (packet[0] & 15) << 4 | packet[1] >> 4
        # A capture on loopback contains each packet twice: sent and received.
        if kind != socket.PACKET_OUTGOING and int.from_bytes(packet[head : head + 2], "big") == source_port:
            marks.append((traffic >> 2, packet[head + 13] & (SYN | ACK) == SYN))


def receive_three_bytes(server: socket.socket) -> bytes:
    """Returns the first three bytes of the next connection."""
    sock, _ = server.accept()
    with sock:
        return sock.recv(3)


class ApplicationTest(Bed):
    def setUp(self) -> None:
        super().setUp()
        self.set_table()
        self.coordinator = Coordinator(self.api)

    def listen(self, host: str = "127.0.0.1") -> socket.socket:
        server = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.addCleanup(server.close)
        return server

    def test_connections_are_counted_while_they_exist(self) -> None:
        server = self.listen()
        application = Application.register(self.coordinator, "lr", model="LR")
        again = Application.register(self.coordinator, "lr", model="LR")
        self.assertEqual(application.level, again.level)
        self.assertEqual(application.level, self.coordinator.get("/v1/applications/lr")["level"])
        self.assertEqual(self.coordinator.get("/v1/queues"), [])
        with application.connect("a", "b", server.getsockname()) as connection:
            self.assertIsNone(connection.registration_error)
            connection.socket.sendall(b"abc")
            self.assertEqual(receive_three_bytes(server), b"abc")
            ports = [(port["host"], port["direction"]) for port in self.coordinator.get("/v1/queues")]
            self.assertEqual(ports, [("a", "out"), ("a", "in"), ("b", "out"), ("b", "in")])
            with self.assertRaises(CoordinatorError) as raised:
                application.deregister()
            self.assertEqual(raised.exception.status, 409)
        self.assertEqual(self.coordinator.get("/v1/queues"), [])
        connection.destroy()
        application.deregister()
        self.assertEqual(self.coordinator.get("/v1/applications"), [])
        with self.assertRaises(CoordinatorError) as raised:
            Application.register(self.coordinator, "lr", model="unknown")
        self.assertEqual(raised.exception.status, 422)

    def test_connections_are_registered_with_their_weight(self) -> None:
        server = self.listen()
        application = Application.register(self.coordinator, "lr", model="LR")

        def weights() -> List[Any]:
            return [connection["weight"] for connection in self.coordinator.get("/v1/connections")["connections"]]

        with application.connect("a", "b", server.getsockname()) as connection:
            self.assertEqual((connection.registration_error, weights()), (None, [None]))
        with application.connect("a", "b", server.getsockname(), weight=2.5) as connection:
            self.assertEqual((connection.registration_error, weights()), (None, [2.5]))
        with application.connect("a", "b", server.getsockname(), weight=0) as connection:
            assert connection.registration_error is not None
            self.assertEqual((connection.registration_error.status, weights()), (422, []))
        accepted = self.listen()
        with socket.create_connection(accepted.getsockname()), application.accept("b", accepted, weight=4):
            self.assertEqual(weights(), [4.0])
        application.deregister()

    def test_open_connections_follow_their_level(self) -> None:
        try:
            socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()
        except PermissionError as error:
            self.skipTest(f"packets cannot be captured: {error}")
        server = self.listen()
        port = server.getsockname()[1]
        moved = []
        for first, second in [("LR", "flat"), ("flat", "LR")]:
            application = Application.register(self.coordinator, first, model=first)
            before = application.level
            with application.connect("a", "b", ("127.0.0.1", port)) as connection:
                # Levels are in the order of sensitivity, so one of the two applications moves when the other one arrives.
                other = Application.register(self.coordinator, second, model=second)
                self.wait_for("the level", lambda: application.level == self.level_of(first))
                with capture(port) as packets:
                    connection.socket.sendall(b"abc")
                    self.assertEqual(receive_three_bytes(server), b"abc")
                    marks = marks_of(connection.socket.getsockname()[1], packets)
                self.assertEqual(marks[0], (application.level + 1, False), marks)
                moved.append(application.level != before)
            other.deregister()
            application.deregister()
        self.assertIn(True, moved)

    def test_accepted_connections_mark_what_they_send(self) -> None:
        try:
            socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()
        except PermissionError as error:
            self.skipTest(f"packets cannot be captured: {error}")
        Application.register(self.coordinator, "flat", model="flat")
        application = Application.register(self.coordinator, "lr", model="LR")
        for host in ["127.0.0.1", "::1", "::"]:
            server = self.listen(host)
            family = server.family
            # The reader of a pull shuffle is no program of the application.
            reader = socket.socket(family)
            reader.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
            with reader, capture(reader.getsockname()[1]) as packets:
                reader.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", server.getsockname()[1]))
                with application.accept("a", server) as connection:
                    self.assertIsNone(connection.registration_error)
                    (registered,) = self.connections()
                    self.assertEqual((registered["from"], registered["to"]), ("a", reader.getsockname()[0]))
                    # Traffic inside a host crosses no link.
                    self.assertEqual(self.coordinator.get("/v1/queues"), [])
                    connection.socket.sendall(b"abc")
                    self.assertEqual(reader.recv(3), b"abc")
                    marks = marks_of(server.getsockname()[1], packets)
                # The first packet answers before the program accepts: it has the mark that the listener had.
                self.assertGreaterEqual(len(marks), 2)
                self.assertEqual({dscp for dscp, _ in marks[1:]}, {application.level + 1}, (host, marks))

    def test_connections_of_a_killed_program_end(self) -> None:
        server = self.listen()
        Application.register(self.coordinator, "lr", model="LR")
        program = (
            "import sys, time; from weir import Application, Coordinator\n"
            "application = Application.register(Coordinator(sys.argv[1]), 'lr', model='LR')\n"
            "held = [application.connect('a', 'b', ('127.0.0.1', int(sys.argv[2]))) for _ in range(3)]\n"
            "print('ready', flush=True); time.sleep(600)"
        )
        words = [sys.executable, "-c", program, self.api, str(server.getsockname()[1])]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            self.addCleanup(process.kill)
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), b"ready\n")
            own = Application.register(self.coordinator, "lr", model="LR").connect("a", "b", server.getsockname())
            self.addCleanup(own.destroy)
            # Longer than the lease: a program with a stream keeps its connections.
            time.sleep(12)
            self.assertEqual(len(self.connections()), 4)
            process.kill()
        self.assertEqual(len(self.connections()), 4)
        self.wait_for("the end of the lease", lambda: len(self.connections()) == 1)
        (rest,) = self.connections()
        self.assertIsNone(rest["ends_in_seconds"])

    def test_a_restart_of_the_coordinator_ends_no_live_connection(self) -> None:
        server = self.listen()
        application = Application.register(self.coordinator, "lr", model="LR")
        with application.connect("a", "b", server.getsockname()):
            self.wait_for("a stream", lambda: self.connections()[0]["ends_in_seconds"] is None)
            self.restart()
            self.wait_for("a stream", lambda: self.connections()[0]["ends_in_seconds"] is None)
            time.sleep(12)
            self.assertEqual(len(self.connections()), 1)
        self.assertEqual(self.connections(), [])

    def test_a_forked_process_has_connections_of_its_own(self) -> None:
        server = self.listen()
        application = Application.register(self.coordinator, "lr", model="LR")
        with application.connect("a", "b", server.getsockname()):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    with application.connect("b", "a", server.getsockname()) as own:
                        self.assertIsNone(own.registration_error)
                        self.assertEqual(len({entry["program"] for entry in self.connections()}), 2)
                        self.wait_for("streams", lambda: all(entry["ends_in_seconds"] is None for entry in self.connections()))
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual([entry["from"] for entry in self.connections()], ["a"])

    def level_of(self, application: str) -> int:
        return int(self.coordinator.get(f"/v1/applications/{application}")["level"])

    def connections(self) -> List[Dict[str, Any]]:
        found = self.coordinator.get("/v1/connections")["connections"]
        assert isinstance(found, list)
        return found

    def test_all_packets_carry_the_class(self) -> None:
        try:
            socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()
        except PermissionError as error:
            self.skipTest(f"packets cannot be captured: {error}")
        levels = set()
        # Levels with both applications registered.
        Application.register(self.coordinator, "flat", model="flat")
        for name, model in [("lr", "LR"), ("flat", "flat")]:
            application = Application.register(self.coordinator, name, model=model)
            levels.add(application.level)
            for host in ["127.0.0.1", "::1", "::ffff:127.0.0.1"]:
                server = self.listen(host.replace("::ffff:", ""))
                port = server.getsockname()[1]
                with capture(port) as packets:
                    with application.connect("a", "b", (host, port)) as connection:
                        connection.socket.sendall(b"abc")
                        self.assertEqual(receive_three_bytes(server), b"abc")
                        source_port = connection.socket.getsockname()[1]
                    marks = marks_of(source_port, packets)
                self.assertEqual([syn for _, syn in marks][:2], [True, False], marks)
                # The last packets may be answers of the kernel for a closed socket, which have no mark.
                self.assertEqual({dscp for dscp, _ in marks[:3]}, {application.level + 1}, (host, marks))
        self.assertEqual(len(levels), 2)

    def test_connections_open_without_a_coordinator(self) -> None:
        server = self.listen()
        application = Application.register(self.coordinator, "lr", model="LR")
        self.end(self.serving)
        with application.connect("a", "b", server.getsockname()) as connection:
            assert connection.registration_error is not None
            self.assertIsNone(connection.registration_error.status)
            connection.socket.sendall(b"abc")
            self.assertEqual(receive_three_bytes(server), b"abc")
            mark = connection.socket.getsockopt(socket.IPPROTO_IP, socket.IP_TOS)
            self.assertEqual(mark, (application.level + 1) << 2)


class AddressTest(unittest.TestCase):
    def test_plain_text_stays_on_this_host(self) -> None:
        for place in ["127.0.0.1:1", "[::1]:1", "localhost:1"]:
            Coordinator(place)
        for place in ["192.0.2.1:1", "weir.example:1", "127.0.0.1", "localhost:x", "localhost:65536", ":1", ""]:
            with self.assertRaises(ValueError):
                Coordinator(place)
        with self.assertRaises(ValueError):
            Coordinator("localhost:1", certificate="ann.pem")


@unittest.skipIf(shutil.which("openssl") is None, "openssl is not installed")
class RolesTest(Bed):
    tls = '[tls]\ncertificate = "coordinator.pem"\nkey = "coordinator.key"\nclients = "authority.pem"\n'

    def prepare(self) -> None:
        openssl(self.folder, "authority", None)
        openssl(self.folder, "coordinator", "DNS:localhost")
        openssl(self.folder, "ads", "URI:weir://framework/ads")
        openssl(self.folder, "ann", "URI:weir://operator/ann")
        openssl(self.folder, "other", None)

    def coordinator(self, client: str, authority: str = "authority") -> Coordinator:
        files = {"certificate": client, "authority": authority}
        pems = {option: f"{self.folder}/{name}.pem" for option, name in files.items()}
        return Coordinator(f"localhost:{self.api.split(':')[1]}", key=f"{self.folder}/{client}.key", **pems)

    def test_a_framework_has_its_own_service(self) -> None:
        ads = self.coordinator("ads")
        self.assertEqual([host["name"] for host in ads.get("/v1/hosts")], ["a", "b"])
        flows = [{"from": "a", "to": "b"}]
        self.assertEqual(ads.put("/v1/coflows/c", {"flows": flows})["service"], "ads")
        with self.assertRaises(CoordinatorError) as raised:
            ads.put("/v1/coflows/d", {"service": "search", "flows": flows})
        self.assertEqual(raised.exception.status, 403)
        self.coordinator("ann").delete("/v1/coflows/c")

    def test_unknown_client_and_unknown_authority_are_refused(self) -> None:
        for coordinator in [self.coordinator("other"), self.coordinator("ads", authority="other")]:
            with self.assertRaises(CoordinatorError) as raised:
                coordinator.get("/v1/hosts")
            self.assertIsNone(raised.exception.status)
