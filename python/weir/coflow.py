"""Coflows: frameworks register them, and programs send their flows (Saath, section 5)."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from typing import Any, BinaryIO, Dict, List, Optional, Sequence, Tuple, Union

from .agent import Agent
from .coordinator import Coordinator, CoordinatorError, path
from .flow_sender import FlowSender, Route, SentFlow
from .flow_tls import FlowTls

# The wait between two queries of `Coflow.wait`, which doubles up to a maximum, in seconds.
MIN_QUERY_WAIT = 0.01
MAX_QUERY_WAIT = 0.5

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


@dataclass(frozen=True)
class FlowState:
    """What the coordinator knows of a flow: the sent bytes, partly estimated, and whether it has completed."""

    sent_bytes: float
    is_done: bool


@dataclass(frozen=True)
class CoflowState:
    """What the coordinator knows of a coflow: whether all flows have completed, and the flows in the order of the registration."""

    is_completed: bool
    flows: Tuple[FlowState, ...]


class Coflow:
    """A registered coflow. A ``with`` block deregisters it at its end."""

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

    def state(self) -> CoflowState:
        """Queries what the coordinator knows. Raises :class:`CoordinatorError <weir.CoordinatorError>` with status 404 if it does not know
        the coflow: it was deregistered, or completed a while ago."""
        answer = self._coordinator.get(path("coflows", self.id))
        try:
            flows = tuple(FlowState(float(flow["sent_bytes"]), bool(flow["done"])) for flow in answer["flows"])
            return CoflowState(bool(answer["completed"]), flows)
        except (KeyError, TypeError, ValueError) as error:
            raise CoordinatorError(f"answer is malformed: {error!r}") from error

    def wait(self, timeout: float) -> CoflowState:
        """Waits until the coflow has completed, or for ``timeout`` seconds. Returns the last state."""
        deadline = time.monotonic() + timeout
        wait = MIN_QUERY_WAIT
        while True:
            state = self.state()
            remaining = deadline - time.monotonic()
            if state.is_completed or remaining <= 0:
                return state
            time.sleep(min(wait, remaining))
            wait = min(2 * wait, MAX_QUERY_WAIT)

    def __enter__(self) -> Coflow:
        return self

    def __exit__(self, *_: object) -> None:
        self.deregister()

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
