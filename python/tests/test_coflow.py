"""Coflows with a real coordinator and a real agent."""

import io
import threading
import time

from weir import Agent, AgentError, Coflow, Coordinator, CoordinatorError, Flow, FlowReceiver, Route, send_flow

from .beds import Bed

# At 99 % of a link of 2 MB/s, this takes one second.
DATA = bytes(range(256)) * 8192


class CoflowTest(Bed):
    def test_coflows_are_registered_updated_and_deregistered(self) -> None:
        coordinator = Coordinator(self.api)
        flows = [Flow("a", "b", 1000), Flow("b", "a")]
        Coflow.register(coordinator, "job/7", flows, service="ads", weight=2.0, deadline=10.0)
        coflow = Coflow.register(coordinator, "job/7", flows, service="ads", weight=2.0, deadline=10.0)
        state = coordinator.get("/v1/coflows/job%2F7")
        self.assertEqual((state["service"], state["weight"], state["deadline"]), ("ads", 2.0, "10s"))
        self.assertEqual([(f["from"], f["to"], f["bytes"]) for f in state["flows"]], [("a", "b", 1000), ("b", "a", None)])
        with self.assertRaises(CoordinatorError) as raised:
            Coflow.register(coordinator, "job/7", flows[:1])
        self.assertEqual(raised.exception.status, 409)
        coflow.update(flows[1:])
        self.assertEqual(len(coordinator.get("/v1/coflows/job%2F7")["flows"]), 1)
        coflow.deregister()
        with self.assertRaises(CoordinatorError) as raised:
            coflow.deregister()
        self.assertEqual(raised.exception.status, 404)
        with self.assertRaises(CoordinatorError) as raised:
            Coflow.register(coordinator, "c", [Flow("a", "nowhere")])
        self.assertIn("`nowhere`", raised.exception.detail)

    def test_put_data_arrives_at_the_ordered_rate(self) -> None:
        coordinator = Coordinator(self.api)
        local_socket = self.start_agent()
        coflow = Coflow.register(coordinator, "shuffle", [Flow("a", "b", len(DATA)), Flow("a", "b", 3)])
        received = {}
        with FlowReceiver(("127.0.0.1", 0)) as receiver, Agent(local_socket) as agent:

            def receive() -> None:
                for flow in (1, 0):
                    with receiver.receive("shuffle", flow, timeout=20) as data:
                        received[flow] = data.read()

            thread = threading.Thread(target=receive)
            thread.start()
            route = Route(receiver.address)
            self.wait_for("a rate", lambda: coordinator.get("/v1/coflows/shuffle")["flows"][1]["rate"] is not None)
            small = send_flow(agent, "shuffle", 1, route, b"abc")
            # Wait for the host's order, so that the first byte is paced.
            self.wait_for("a rate", lambda: coordinator.get("/v1/coflows/shuffle")["flows"][0]["rate"] is not None)
            # A competing coflow, which counts as one with data for a lease: a coflow without competition has no rate.
            Coflow.register(coordinator, "waiting", [Flow("a", "b")])
            self.wait_for(
                "a rate", lambda: coordinator.get("/v1/coflows/shuffle")["flows"][0]["rate"] != "unlimited"
            )
            began = time.monotonic()
            large = send_flow(agent, "shuffle", 0, route, io.BytesIO(DATA))
            thread.join(30)
            elapsed = time.monotonic() - began
            self.assertEqual((small.bytes, small.unpaced, large.bytes, large.unpaced), (3, None, len(DATA), None))
            self.assertEqual(received, {0: DATA, 1: b"abc"})
            # The kernel's first burst and the headers are small in comparison.
            self.assertGreater(elapsed, 0.7 * len(DATA) / 2e6)
            state = coflow.wait(timeout=20)
            self.assertTrue(state.is_completed and all(flow.is_done for flow in state.flows), state)
            # The agent has closed its duplicate of the flow.
            with self.assertRaises(AgentError):
                agent.mark_done("shuffle", 0)
        coflow.deregister()

    def test_coflow_is_deregistered_at_the_end_of_its_block(self) -> None:
        coordinator = Coordinator(self.api)
        with Coflow.register(coordinator, "c", [Flow("a", "b")]) as coflow:
            state = coflow.wait(timeout=0.02)
            self.assertEqual((state.is_completed, [flow.sent_bytes for flow in state.flows]), (False, [0.0]))
        with self.assertRaises(CoordinatorError) as raised:
            coflow.state()
        self.assertEqual(raised.exception.status, 404)

    def test_data_is_sent_unpaced_without_an_agent(self) -> None:
        agent = Agent(self.start_agent())
        # The connection to the agent is closed.
        agent.close()
        received = []
        with FlowReceiver(("127.0.0.1", 0)) as receiver:
            thread = threading.Thread(target=lambda: received.append(receiver.receive("c", 0, timeout=10).read()))
            thread.start()
            sent = send_flow(agent, "c", 0, Route(receiver.address), b"abc")
            thread.join(10)
            self.assertEqual((sent.bytes, received), (3, [b"abc"]))
            self.assertIsInstance(sent.unpaced, AgentError)
            thread = threading.Thread(target=lambda: received.append(receiver.receive("c", 1, timeout=10).read()))
            thread.start()
            self.assertEqual(send_flow(None, "c", 1, Route(receiver.address), b"abc").bytes, 3)
            thread.join(10)
            self.assertEqual(received, [b"abc", b"abc"])
        with self.assertRaises(AgentError):
            Agent(f"{self.folder}/missing.sock")
