"""Weir: the simulator of coflows and services that share a network, and the client of coordinators and agents.

The simulator is part of the distribution ``weir-network``, and needs its native module. The distribution ``weir-network-client`` has the
client alone: without a compiler, for hosts of a cluster. Both give this package, so install only one of them.

Client: Saba's interface (section 6 of the paper): register, create connection, destroy connection, deregister.

    from weir import Application, Coordinator

    coordinator = Coordinator("127.0.0.1:7701")
    application = Application.register(coordinator, "sort-17", model="sort")
    with application.connect("node-1", "node-3", ("10.0.0.3", 7000)) as connection:
        connection.socket.sendall(b"...")
    application.deregister()

Coflows (Saath, section 5): a framework registers, updates and deregisters them; its programs send and receive their flows.

    from weir import Agent, Coflow, Flow, FlowReceiver, Route, send_flow

    coflow = Coflow.register(coordinator, "shuffle-7", [Flow("node-1", "node-3", 3)])

    receiver = FlowReceiver(("10.0.0.3", 7000))                    # the receiver of flow 0, on node-3
    data = receiver.receive("shuffle-7", 0, timeout=60).read()

    route = Route.from_environment(("10.0.0.3", 7000))             # its sender, on node-1
    send_flow(Agent(), "shuffle-7", 0, route, b"...")

    coflow.deregister()

A flow goes over the relay in the environment variable ``WEIR_RELAY``, or directly without the variable. Several relays of the region are
separated by commas, and each flow uses one. All data arrives once and in order, also if a relay fails; :class:`FlowSender` sends data piece
by piece. :class:`FlowTls` encrypts flows. The module :mod:`weir.aio` sends and receives flows in programs that use asyncio.

Without a coordinator or an agent, data is sent without class or rate: their errors do not prevent sending. The crate ``weir-client``
has the same interface for Rust, and the two exchange flows. Times are in seconds, sizes in bytes. The client needs Linux, and no
package outside Python's standard library.
"""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .agent import Agent, AgentError
from .application import Application, Connection
from .coflow import Coflow, CoflowState, Flow, FlowState, send_flow
from .coordinator import Coordinator, CoordinatorError
from .flow_receiver import FlowReceiver, IncomingFlow
from .flow_sender import FlowSender, Route, SendTimeout, SentFlow
from .flow_tls import FlowTls
from .gate import UnscheduledReason

__all__ = [
    "Agent",
    "AgentError",
    "Application",
    "Coflow",
    "CoflowState",
    "Connection",
    "Coordinator",
    "CoordinatorError",
    "Flow",
    "FlowReceiver",
    "FlowSender",
    "FlowState",
    "FlowTls",
    "IncomingFlow",
    "Route",
    "SendTimeout",
    "SentFlow",
    "UnscheduledReason",
    "send_flow",
]

_CLIENT = frozenset(__all__)

__all__ += [
    "Allocation",
    "BlindPolicy",
    "ClairvoyantPolicy",
    "Explanation",
    "Fabric",
    "InputError",
    "Interrupted",
    "Policy",
    "ReplayError",
    "Result",
    "Sweep",
    "SweepInterrupted",
    "Table",
    "Trace",
    "compare",
    "fat_tree",
    "leaf_spine",
    "sweep",
]

# The simulator is imported with the first of its names: the client starts fast and without the native module.
_SIMULATOR = frozenset(__all__) - _CLIENT

if TYPE_CHECKING:
    from .simulator import *
elif find_spec("weir._native") is None:
    # With the client alone, `import *` gives only its names.
    __all__ = sorted(_CLIENT)


def __getattr__(name: str) -> object:
    if name not in _SIMULATOR:
        raise AttributeError(f"module 'weir' has no attribute {name!r}")
    try:
        simulator = importlib.import_module("weir.simulator")
    except ImportError as error:
        if error.name not in ("weir.simulator", "weir._native"):
            raise
        raise ImportError(
            f"weir.{name} is part of the simulator, which the client alone does not have; help: install the distribution weir-network "
            "(`pip install .` in the repository) in place of weir-network-client",
            name=error.name,
        ) from error
    return getattr(simulator, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
