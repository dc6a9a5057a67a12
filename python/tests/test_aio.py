"""Flows of asyncio programs."""

import asyncio
import unittest

from weir import FlowReceiver, Route
from weir.aio import receive_flow, send_flow

TIMEOUT = 20.0


class AioTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.receiver = FlowReceiver(("127.0.0.1", 0))
        self.addCleanup(self.receiver.close)
        self.route = Route(self.receiver.address)

    async def test_many_flows_wait_for_each_other(self) -> None:
        count = 100
        receiving = [asyncio.create_task(receive_flow(self.receiver, "c", flow, TIMEOUT)) for flow in range(count)]
        sending = [send_flow(None, "c", flow, self.route, bytes([flow]) * 100_000) for flow in reversed(range(count))]
        sent = await asyncio.gather(*sending)
        self.assertEqual({flow.bytes for flow in sent}, {100_000})
        for flow, data in enumerate(await asyncio.gather(*receiving)):
            self.assertEqual(data, bytes([flow]) * 100_000)

    async def test_cancelled_sender_is_an_error_at_the_receiver(self) -> None:
        sending = asyncio.create_task(send_flow(None, "c", 0, self.route, bytes(20 << 20)))
        incoming = await asyncio.to_thread(self.receiver.receive, "c", 0, TIMEOUT)
        incoming.reconnect_timeout = 0.05
        sending.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await sending
        with self.assertRaises(TimeoutError):
            await asyncio.to_thread(incoming.read)
        incoming.close()

    async def test_errors_and_cancellation_of_a_receiver(self) -> None:
        with self.assertRaisesRegex(TimeoutError, "did not arrive"):
            await receive_flow(self.receiver, "c", 1, 0.02)
        receiving = asyncio.create_task(receive_flow(self.receiver, "c", 1, TIMEOUT))
        await asyncio.sleep(0.02)
        receiving.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await asyncio.wait_for(receiving, TIMEOUT)
