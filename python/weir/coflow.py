"""Coflows: frameworks register them, and programs send their flows (Saath, section 5)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, BinaryIO, Dict, List, Optional, Sequence, Union

from .agent import Agent
from .coordinator import Coordinator, path
from .flow_sender import FlowSender, Route, SentFlow
from .flow_tls import FlowTls

# Size of a read, in bytes.
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Flow:
    """A flow of a coflow, identified by its index: the sending and the receiving host, by the names in the coordinator's configuration.

    ``bytes`` is None if the size is unknown. Policies that use sizes refuse such flows.
    """

    from_host: str
    to_host: str
    bytes: Optional[int] = None


class Coflow:
    """A registered coflow."""

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
        """Registers a coflow as ``id``: 1 to 128 printable characters without spaces. Registering the same coflow again changes nothing.

        Without ``service``, the service is the framework's own, or ``default``. ``application`` is one of that service. ``weight`` is above
        0, and 1 by default. ``deadline`` is in seconds after the registration. Raises
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
        """Replaces the coflow's flows, for tasks that moved or restarted. Flows with the same index and the same hosts continue."""
        self._coordinator.put(f"{path('coflows', self.id)}/flows", _bodies(flows))

    def deregister(self) -> None:
        """Deregisters the coflow, even if it has not completed."""
        self._coordinator.delete(path("coflows", self.id))


def _bodies(flows: Sequence[Flow]) -> List[Dict[str, Any]]:
    return [{"from": flow.from_host, "to": flow.to_host, "bytes": flow.bytes} for flow in flows]


def send_flow(
    agent: Optional[Agent],
    coflow: str,
    flow: int,
    route: Route,
    data: Union[bytes, bytearray, memoryview, BinaryIO],
    tls: Optional[FlowTls] = None,
    timeout: Optional[float] = None,
) -> SentFlow:
    """Sends all of ``data`` as a flow of a coflow to a :class:`FlowReceiver <weir.FlowReceiver>`. Returns when the receiver has read it.

    Relays pace the flow if the route has a relay. The agent, if there is one, paces direct connections, from the first byte on. ``timeout``
    limits the time of each call of :class:`FlowSender <weir.FlowSender>`. Raises :class:`OSError` if the receiver cannot be reached or
    refuses the flow, and the exceptions of reading ``data``; the receiver then gets an error.
    """
    source = io.BytesIO(data) if isinstance(data, (bytes, bytearray, memoryview)) else data
    with FlowSender(coflow, flow, route, agent, tls, timeout) as sender:
        while chunk := source.read(CHUNK_BYTES):
            sender.write(chunk)
    return sender.finish()
