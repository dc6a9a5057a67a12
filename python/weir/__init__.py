"""Client library of Weir: classes for connections of programs, and rates for coflows of frameworks.

Saba's interface (section 6 of the paper): register, create connection, destroy connection, deregister.

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
has the same interface for Rust, and the two exchange flows. Times are in seconds, sizes in bytes. The module needs Linux, and no
package outside Python's standard library.
"""

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
