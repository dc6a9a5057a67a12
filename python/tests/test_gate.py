"""Senders that an agent pauses."""

import math
import os
import signal
import socket
import tempfile
import threading
import time
import unittest
import urllib.request
from typing import List, Optional

from weir import Agent, AgentError, Coflow, Coordinator, Flow, FlowReceiver, FlowSender, Route, SendTimeout, SentFlow, UnscheduledReason, send_flow
from weir.gate import PAUSED, AgentMessage, Permission

from .beds import Bed

TIMEOUT = 20.0

DATA = bytes(300_000)


class FakeAgent:
    """Accepts one program, and pushes what a test says. Pushes ``state`` before it answers `open`."""

    def __init__(self, path: str, state: str) -> None:
        self.messages: List[str] = []
        self._state = state
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.path.exists(path):
            os.unlink(path)
        self._listener.bind(path)
        self._listener.listen(8)
        self._program: Optional[socket.socket] = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._program, _ = self._listener.accept()
        while True:
            try:
                data, sockets, _, _ = socket.recv_fds(self._program, 256, 1)
            except OSError:
                return
            if not data:
                return
            for descriptor in sockets:
                os.close(descriptor)
            words = data.decode().split(" ")
            if words[0] == "open":
                command, value = self._state.split(" ", 1)
                self.push(f"{command} {words[1]} {words[2]} {value}")
            if words[0] in ("open", "done"):
                self.push("ok")
            self.messages.append(data.decode())

    def push(self, text: str) -> None:
        assert self._program is not None
        try:
            self._program.send(text.encode())
        except OSError:
            pass

    def wait_for(self, message: str, count: int = 1) -> None:
        deadline = time.monotonic() + TIMEOUT
        while self.messages.count(message) < count:
            assert time.monotonic() < deadline, (message, self.messages)
            time.sleep(0.001)

    def close(self) -> None:
        if self._program is not None and self._program.fileno() >= 0:
            self._program.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT)
        if self._program is not None:
            self._program.close()
        self._listener.close()


class Sending(threading.Thread):
    def __init__(self, agent: Agent, coflow: str, receiver: FlowReceiver, data: bytes = DATA) -> None:
        super().__init__(daemon=True)
        self._agent, self._coflow, self._route, self._data = agent, coflow, Route(receiver.address), data
        self.sent: Optional[SentFlow] = None
        self.start()

    def run(self) -> None:
        self.sent = send_flow(self._agent, self._coflow, 0, self._route, self._data)


class Reading(threading.Thread):
    """Reads flow 0 of a coflow."""

    def __init__(self, receiver: FlowReceiver, coflow: str = "c") -> None:
        super().__init__(daemon=True)
        self._receiver, self._coflow = receiver, coflow
        self.bytes = 0
        self.first_byte = self.end = 0.0
        self.start()

    def run(self) -> None:
        with self._receiver.receive(self._coflow, 0, TIMEOUT) as flow:
            flow.reconnect_timeout = 0.01
            try:
                while data := flow.read(50_000):
                    self.first_byte = self.first_byte or time.monotonic()
                    self.bytes += len(data)
            except TimeoutError:
                pass
        self.end = time.monotonic()


class GateTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = f"{folder.name}/agent.sock"
        self.receiver = FlowReceiver(("127.0.0.1", 0))
        self.addCleanup(self.receiver.close)

    def start_agent(self, state: str) -> FakeAgent:
        fake = FakeAgent(self.path, state)
        self.addCleanup(fake.close)
        return fake

    def connect(self) -> Agent:
        agent = Agent(self.path)
        self.addCleanup(agent.close)
        return agent

    def test_messages_are_permissions_renewals_or_answers(self) -> None:
        for text, expected in [
            ("pause c 7 80", AgentMessage(("c", 7), PAUSED, 0.08)),
            ("go c 7 1250", AgentMessage(("c", 7), Permission(rate=1250), None)),
            ("go c 7 free", AgentMessage(("c", 7), Permission(), None)),
            ("go c 7 free no order", AgentMessage(("c", 7), Permission(message="no order"), None)),
            ("go c 7 free unknown-flow", AgentMessage(("c", 7), Permission(message="unknown-flow"), None)),
            ("go c 7 free other: no order", AgentMessage(("c", 7), Permission(message="other: no order"), None)),
            (
                "go c 7 free unknown-flow: no flow; help: none",
                AgentMessage(("c", 7), Permission(message="no flow; help: none", reason=UnscheduledReason.UNKNOWN_FLOW), None),
            ),
            ("renew 80", AgentMessage(None, PAUSED, 0.08)),
        ]:
            self.assertEqual(AgentMessage.parse(text), expected)
        for answer in ["ok", "no: renew 80", "", "renew", "renew x", "go c 7", "go c 7 -1", "go c x free", "pause c 7 1 2"]:
            self.assertIsNone(AgentMessage.parse(answer), answer)

    def test_paused_sender_writes_nothing_until_go(self) -> None:
        fake = self.start_agent("pause 60000")
        sending, reading = Sending(self.connect(), "c", self.receiver), Reading(self.receiver)
        fake.wait_for("data c 0")
        time.sleep(0.15)
        go = time.monotonic()
        fake.push("go c 0 125000000")
        sending.join(TIMEOUT)
        reading.join(TIMEOUT)
        self.assertGreater(reading.first_byte, go)
        self.assertEqual((reading.bytes, sending.sent), (len(DATA), SentFlow(len(DATA), None)))
        fake.wait_for("done c 0")
        self.assertEqual((fake.messages.count("open c 0 gated"), fake.messages.count("data c 0")), (1, 1))

    def test_pause_ends_with_its_lease_unless_renewed(self) -> None:
        fake = self.start_agent("pause 60000")
        sending, reading = Sending(self.connect(), "c", self.receiver), Reading(self.receiver)
        fake.wait_for("data c 0")
        for _ in range(20):
            fake.push("renew 200")
            time.sleep(0.02)
        last_renewal = time.monotonic()
        reading.join(TIMEOUT)
        sending.join(TIMEOUT)
        self.assertGreater(reading.first_byte, last_renewal)
        assert sending.sent is not None
        self.assertIn("not renewed", str(sending.sent.unpaced))

    def test_pause_ends_with_the_agents_connection_and_returns_with_the_next_one(self) -> None:
        first = self.start_agent("go 1000000")
        agent = self.connect()
        sender = FlowSender("c", 0, Route(self.receiver.address), agent)
        sender.write(b"a")
        sender.flush()
        first.wait_for("open c 0 gated")
        first.close()
        sender.write(b"b")
        sender.flush()
        second = self.start_agent("pause 60000")
        second.wait_for("open c 0 gated")
        # Requests succeed again when all sockets are handed over.
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                agent.mark_done("other", 0)
                break
            except AgentError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.001)
        reading = Reading(self.receiver)
        sender.write(b"c")
        finishing = threading.Thread(target=sender.finish)
        finishing.start()
        second.wait_for("data c 0")
        second.push("go c 0 free no reason but this")
        reading.join(TIMEOUT)
        finishing.join(TIMEOUT)
        self.assertEqual(reading.bytes, 3)
        self.assertIn("no reason but this", str(sender.finish().unpaced))

    def test_calls_of_a_paused_sender_end_in_time_or_when_cancelled(self) -> None:
        self.start_agent("pause 60000")
        sender = FlowSender("c", 0, Route(self.receiver.address), self.connect(), timeout=0.05)
        self.assertEqual(sender.write(b"hello"), 5)
        with self.assertRaisesRegex(SendTimeout, "flow 0 of coflow 'c'"):
            sender.flush()
        with self.assertRaises(SendTimeout) as raised:
            sender.write(bytes(9 << 20))
        self.assertTrue(7 << 20 < raised.exception.taken < 8 << 20, raised.exception.taken)
        threading.Timer(0.05, sender.cancel).start()
        sender._timeout = TIMEOUT
        with self.assertRaises(ConnectionAbortedError):
            sender.flush()
        with self.assertRaises(ConnectionAbortedError):
            sender.write(b"more")


class AgentGateTest(Bed):
    """Senders with a coordinator and an agent."""

    lease = "1s"

    def setUp(self) -> None:
        super().setUp()
        self.path = self.start_agent()
        self.agent = Agent(self.path)
        self.addCleanup(self.agent.close)
        self.coordinator = Coordinator(self.api)

    def receiver(self) -> FlowReceiver:
        receiver = FlowReceiver(("127.0.0.1", 0))
        self.addCleanup(receiver.close)
        return receiver

    def start_flow(self, coflow: str) -> Reading:
        """Starts a flow that sends until the end of the test."""
        Coflow.register(self.coordinator, coflow, [Flow("a", "b")])
        self.wait_for("an order", lambda: self.rate_of(coflow) is not None)
        receiver = self.receiver()
        sender = FlowSender(coflow, 0, Route(receiver.address), self.agent)

        def send() -> None:
            try:
                while True:
                    sender.write(bytes(1 << 16))
            except ConnectionAbortedError:
                pass

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        reading = Reading(receiver, coflow)
        self.addCleanup(reading.join, TIMEOUT)
        self.addCleanup(thread.join, TIMEOUT)
        self.addCleanup(sender.cancel)
        return reading

    def rate_of(self, coflow: str) -> Optional[float]:
        rate = self.coordinator.get(f"/v1/coflows/{coflow}")["flows"][0]["rate"]
        if rate is None:
            return None
        return math.inf if rate == "unlimited" else float(rate["bytes_per_second"])

    def start_flows(self) -> Reading:
        """Starts a flow that takes the link, and one that waits, which is returned."""
        first = self.start_flow("first")
        self.wait_for("data of the first flow", lambda: first.bytes > 100_000)
        second = self.start_flow("second")
        self.wait_for("a pause", lambda: self.rate_of("second") == 0)
        return second

    def test_paused_sender_writes_freely_after_its_agent_is_stopped_and_waits_again_when_it_continues(self) -> None:
        second = self.start_flows()

        def is_paused(seconds: float) -> bool:
            before = second.bytes
            time.sleep(seconds)
            return second.bytes == before

        # Two leases. A busy machine may renew a pause late.
        self.wait_for("a renewed pause", lambda: is_paused(2))
        before = second.bytes
        self.agent_process.send_signal(signal.SIGSTOP)
        stop = time.monotonic()
        self.wait_for("data of the paused flow", lambda: second.bytes > before + 1_000_000)
        self.assertGreater(time.monotonic() - stop, 0.5)
        self.agent_process.send_signal(signal.SIGCONT)
        self.wait_for("a pause", lambda: is_paused(0.2))

    def test_sender_writes_freely_after_its_agent_is_killed_and_waits_for_the_next_one(self) -> None:
        second = self.start_flows()
        before = second.bytes
        self.end(self.agent_process)
        self.wait_for("data of the paused flow", lambda: second.bytes > before + 1_000_000)
        self.start_agent()

        def has_rate_of_the_link() -> bool:
            before = second.bytes
            time.sleep(0.5)
            return second.bytes - before < 1.2 * 2e6 * 0.5

        self.wait_for("the rate of the link", has_rate_of_the_link)
        with self.assertRaisesRegex(AgentError, "refused"):
            self.agent.mark_done("third", 0)

    def test_unscheduled_flow_has_a_reason(self) -> None:
        Coflow.register(self.coordinator, "known", [Flow("a", "b"), Flow("b", "a")])
        self.wait_for("an order", lambda: self.rate_of("known") is not None)
        for coflow, flow, reason, help_text in [
            ("unknown", 0, UnscheduledReason.UNKNOWN_COFLOW, "register the coflow"),
            ("known", 1, UnscheduledReason.FOREIGN_FLOW, "another host"),
            ("known", 2, UnscheduledReason.UNKNOWN_FLOW, "beyond the flows of the registration"),
        ]:
            receiver = self.receiver()

            def read() -> None:
                with receiver.receive(coflow, flow, TIMEOUT) as incoming:
                    incoming.read()

            thread = threading.Thread(target=read)
            thread.start()
            sender = FlowSender(coflow, flow, Route(receiver.address), self.agent)
            sender.write(bytes(1000))
            sender.flush()
            # The agent reports the flow within an interval, and the coordinator answers within another one.
            time.sleep(0.2)
            sent = sender.finish()
            thread.join(TIMEOUT)
            assert sent.unpaced is not None
            self.assertIs(sent.unpaced.reason, reason)
            self.assertIn(help_text, str(sent.unpaced))


class MatchingTest(Bed):
    """Receivers decide which flows send."""

    policy = "django:connections=1"
    lease = "2s"

    def test_flows_take_turns_at_their_receiver(self) -> None:
        self.start_agent("b")
        coordinator, agent = Coordinator(self.api), Agent(self.start_agent("a"))
        self.addCleanup(agent.close)
        receiver = FlowReceiver(("127.0.0.1", 0))
        self.addCleanup(receiver.close)
        # The largest coflow starts first, and a flow of each later one is smaller.
        data = {name: bytes(length) for name, length in [("large", 30_000_000), ("middle", 20_000_000), ("small", 10_000_000)]}
        for name, flow in data.items():
            Coflow.register(coordinator, name, [Flow("a", "b", len(flow))])
        reading = [Reading(receiver, name) for name in data]
        sending = [Sending(agent, name, receiver, flow) for name, flow in data.items()]
        for thread in sending + reading:
            thread.join(TIMEOUT)
        self.assertEqual([thread.bytes for thread in reading], [len(flow) for flow in data.values()])
        self.assertEqual([thread.sent for thread in sending], [SentFlow(len(flow), None) for flow in data.values()])
        text = urllib.request.urlopen(f"http://{self.api}/metrics", timeout=15).read().decode()
        (chosen,) = [line for line in text.splitlines() if line.startswith('weir_matching_messages_total{message="REPLY_CHOSEN"}')]
        # A smaller coflow takes the connection of a larger one, which gets it back later.
        self.assertGreaterEqual(int(chosen.split(" ")[1]), 3)
