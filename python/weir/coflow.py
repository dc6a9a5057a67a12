"""Coflows: frameworks register them, and their programs send their flows (Saath, section 5)."""

from __future__ import annotations

import io
import socket
from dataclasses import dataclass
from typing import Any, BinaryIO, Dict, List, Optional, Sequence, Tuple, Union

from .agent import Agent, AgentError
from .coordinator import Coordinator, path
from .inbox import head

# Bytes that are read and written at a time.
PIECE = 1 << 16


@dataclass(frozen=True)
class Flow:
    """A flow of a coflow, which is called by its place there: the hosts that send and receive, as the coordinator calls them.

    ``bytes`` is None if nobody knows how many, which policies that go by sizes refuse.
    """

    from_host: str
    to_host: str
    bytes: Optional[int] = None


class Coflow:
    """A coflow that is registered."""

    def __init__(self, coordinator: Coordinator, id: str) -> None:
        self.id = id
        self._coordinator = coordinator

    @classmethod
    def register(
        cls,
        coordinator: Coordinator,
        id: str,
        flows: Sequence[Flow],
        *,
        service: Optional[str] = None,
        application: Optional[str] = None,
        weight: Optional[float] = None,
        deadline: Optional[float] = None,
    ) -> Coflow:
        """Registers a coflow as ``id``: 1 to 128 printable characters without spaces. The same again changes nothing.

        The service is a framework's own, or ``default``, if there is none given; the application is one of its own; the weight is above 0,
        and 1 if it is not given; the deadline is in seconds from its registration on. Raises
        :class:`CoordinatorError <weir.CoordinatorError>`.
        """
        body = {
            "service": service,
            "application": application,
            "weight": weight,
            "deadline": None if deadline is None else f"{deadline:.9f}s",
            "flows": _bodies(flows),
        }
        coordinator.put(path("coflows", id), body)
        return cls(coordinator, id)

    def update(self, flows: Sequence[Flow]) -> None:
        """Gives it other flows, for tasks that moved or were started anew. Those in the same place with the same ends go on."""
        self._coordinator.put(f"{path('coflows', self.id)}/flows", _bodies(flows))

    def deregister(self) -> None:
        """Deregisters it, whatever is left of it."""
        self._coordinator.delete(path("coflows", self.id))


def _bodies(flows: Sequence[Flow]) -> List[Dict[str, Any]]:
    return [{"from": flow.from_host, "to": flow.to_host, "bytes": flow.bytes} for flow in flows]


@dataclass(frozen=True)
class Put:
    """What was sent: bytes of data, and why it was not paced, if so. Then it went as fast as TCP does."""

    bytes: int
    unpaced: Optional[AgentError]


def put(
    agent: Agent, coflow: str, flow: int, address: Tuple[str, int], data: Union[bytes, bytearray, memoryview, BinaryIO]
) -> Put:
    """Sends all of ``data`` as a flow of a coflow to the :class:`Inbox <weir.Inbox>` at ``address``.

    It goes at the pace that the agent has for it from the first byte on. It ends when all is handed to the kernel; the connection goes on
    until it has arrived. Raises :class:`OSError` if the other end does not take it, or what reading ``data`` raises; then the other end gets
    what was sent until then.
    """
    first = head(coflow, flow)
    source = io.BytesIO(data) if isinstance(data, (bytes, bytearray, memoryview)) else data
    unpaced: Optional[AgentError] = None
    sent = 0
    with socket.create_connection(address) as sock:
        try:
            agent.open(coflow, flow, sock)
        except AgentError as error:
            unpaced = error
        try:
            sock.sendall(first)
            while piece := source.read(PIECE):
                sock.sendall(piece)
                sent += len(piece)
        finally:
            # The agent has a duplicate, so that closing it would not end it.
            sock.shutdown(socket.SHUT_WR)
    return Put(sent, unpaced)
