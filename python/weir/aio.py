"""Flows in programs that use asyncio. A flow of the library waits in a thread of its own, so that no number of waiting flows delays others.

    from weir.aio import receive_flow, send_flow

    async def shuffle() -> None:
        sent, data = await asyncio.gather(
            send_flow(agent, "shuffle-7", 0, route, b"..."),
            receive_flow(receiver, "shuffle-7", 1, timeout=60),
        )
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable, Optional, TypeVar, Union

from .agent import Agent
from .flow_receiver import FlowReceiver
from .flow_sender import FlowSender, Route, SentFlow
from .flow_tls import FlowTls

__all__ = ["receive_flow", "send_flow"]

# Size of a write, in bytes: an acknowledgement of the receiver is awaited between two writes at most.
CHUNK_BYTES = 1 << 20

# The time until a cancelled call of `receive_flow` notices it, in seconds.
RECEIVE_SLICE = 0.5

Result = TypeVar("Result")


async def _run(function: Callable[[], Result], cancel: Callable[[], None]) -> Result:
    """Runs a function in a thread. Calls ``cancel`` if the task is cancelled, and waits for the end of the function."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            set_outcome(outcome)

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            loop.call_soon_threadsafe(settle, future.set_exception, error)
        else:
            loop.call_soon_threadsafe(settle, future.set_result, result)

    threading.Thread(target=run, name="weir-flow", daemon=True).start()
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancel()
        # The outcome of a cancelled flow is of no interest.
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()
        raise


async def send_flow(
    agent: Optional[Agent],
    coflow: str,
    flow: int,
    route: Route,
    data: Union[bytes, bytearray, memoryview],
    tls: Optional[FlowTls] = None,
    timeout: Optional[float] = None,
) -> SentFlow:
    """As :func:`weir.send_flow`. If the task is cancelled, the receiver gets an error."""
    sender = FlowSender(coflow, flow, route, agent, tls, timeout)

    def send() -> SentFlow:
        view = memoryview(data).cast("B")
        with sender:
            for at in range(0, len(view), CHUNK_BYTES):
                sender.write(view[at : at + CHUNK_BYTES])
        return sender.finish()

    return await _run(send, sender.cancel)


async def receive_flow(receiver: FlowReceiver, coflow: str, flow: int, timeout: float) -> bytes:
    """All data of a flow. Raises :class:`TimeoutError` if no sender connects within ``timeout`` seconds. If the task is cancelled while the
    flow is received, the sender fails."""
    cancelled = threading.Event()

    def receive() -> bytes:
        remaining = timeout
        while True:
            wait = min(remaining, RECEIVE_SLICE)
            remaining -= wait
            try:
                incoming = receiver.receive(coflow, flow, wait)
                break
            except TimeoutError:
                if remaining <= 0 or cancelled.is_set():
                    raise
        parts = []
        with incoming:
            while not cancelled.is_set() and (data := incoming.read(CHUNK_BYTES)):
                parts.append(data)
        return b"".join(parts)

    return await _run(receive, cancelled.set)
