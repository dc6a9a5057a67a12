"""How programs hand the sockets of their flows to the agent on their host; docs/live.md has the messages."""

from __future__ import annotations

import socket
import threading
from typing import List

# Where an agent is if nobody says.
DOOR = "/run/weir/agent.sock"

# How long an agent may take to answer.
PATIENCE = 5.0


class AgentError(Exception):
    """Why a socket is not paced."""


class Agent:
    """A way to the agent of this host, by the path of its Unix socket. Any thread may use it.

    Raises :class:`AgentError` if it is not there. When it is closed, or its program ends, all flows that were handed over here are done.
    """

    def __init__(self, door: str = DOOR) -> None:
        self._turn = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(PATIENCE)
        try:
            self._socket.connect(door)
        except OSError as error:
            self._socket.close()
            raise AgentError(f"{door}: {error}") from error

    def open(self, coflow: str, flow: int, sock: socket.socket) -> None:
        """Hands over the socket of a flow: TCP, or UDP over IPv4 where the agent has an interface, and connected.

        ``flow`` is its place in the coflow's registration.

        The agent has a duplicate of it, so closing it is not enough to end the connection: shut it down for writing, or say
        :meth:`done`.
        """
        self._ask(f"open {coflow} {flow}", [sock.fileno()])

    def done(self, coflow: str, flow: int) -> None:
        """Nothing more will be written to a flow: when what was written has arrived, the agent lets go of its socket."""
        self._ask(f"done {coflow} {flow}", [])

    def close(self) -> None:
        """Goes away from the agent."""
        self._socket.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, text: str, sockets: List[int]) -> None:
        # One question at a time: an answer does not say to which.
        with self._turn:
            try:
                socket.send_fds(self._socket, [text.encode()], sockets)
                answer = self._socket.recv(512).decode(errors="replace")
            except OSError as error:
                # An answer that comes late would be taken for the next one.
                self._socket.close()
                raise AgentError(f"the agent cannot be asked: {error}") from error
        if answer == "ok":
            return
        if answer.startswith("no: "):
            raise AgentError(f"the agent says no: {answer[4:]}")
        raise AgentError(f"the agent answered {answer!r}: expected ok, or no and a reason")
