"""Hands sockets of flows to the agent of the host. docs/live.md lists the messages."""

from __future__ import annotations

import socket
import threading
from typing import List

# Default path of an agent's local socket.
DEFAULT_SOCKET = "/run/weir/agent.sock"

# Maximum time for an agent's answer.
TIMEOUT = 5.0


class AgentError(Exception):
    """The reason why a socket is not paced."""


class Agent:
    """A connection to the agent of this host, by the path of its Unix socket. Any thread may use it.

    Raises :class:`AgentError` if there is no agent. When the connection is closed, or the program exits, all flows that were handed over
    through it are done.
    """

    def __init__(self, socket_path: str = DEFAULT_SOCKET) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(TIMEOUT)
        try:
            self._socket.connect(socket_path)
        except OSError as error:
            self._socket.close()
            raise AgentError(f"{socket_path}: {error}") from error

    def hand_over(self, coflow: str, flow: int, sock: socket.socket) -> None:
        """Hands over the connected socket of a flow: TCP, or UDP over IPv4 if the agent has an interface.

        ``flow`` is its index in the coflow's registration.

        The agent keeps a duplicate, so closing the socket does not end the connection: shut it down for writing, or call
        :meth:`mark_done`.
        """
        self._request(f"open {coflow} {flow}", [sock.fileno()])

    def mark_done(self, coflow: str, flow: int) -> None:
        """Declares that no more data follows: the agent closes its duplicate when all written data has arrived."""
        self._request(f"done {coflow} {flow}", [])

    def close(self) -> None:
        """Closes the connection to the agent."""
        self._socket.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, text: str, sockets: List[int]) -> None:
        # One request at a time, since an answer does not identify its request.
        with self._lock:
            try:
                socket.send_fds(self._socket, [text.encode()], sockets)
                answer = self._socket.recv(512).decode(errors="replace")
            except OSError as error:
                # A late answer would be read as the answer to the next request.
                self._socket.close()
                raise AgentError(f"request to the agent failed: {error}") from error
        if answer == "ok":
            return
        if answer.startswith("no: "):
            raise AgentError(f"the agent refused: {answer[4:]}")
        raise AgentError(f"answer of the agent is malformed ({answer!r}); expected `ok`, or `no:` and a reason")
