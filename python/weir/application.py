"""Saba's library (section 6): an application registers, creates and destroys connections, and deregisters."""

from __future__ import annotations

import ipaddress
import socket
import uuid
from typing import Any, Optional, Tuple

from .coordinator import Coordinator, CoordinatorError, path

# Maximum time to connect.
CONNECT_TIMEOUT = 30.0

# Levels start at 0. A DSCP has six bits, and 0 means no class: level 0 is DSCP 1.
MAX_LEVEL = 62


class Application:
    """A registered application. Several programs on several hosts may register it by the same id.

    ``level`` is its last known priority level, from 0. Each new connection updates it.
    """

    def __init__(self, coordinator: Coordinator, id: str, level: int) -> None:
        self.id = id
        self.level = level
        self._coordinator = coordinator

    @classmethod
    def register(
        cls, coordinator: Coordinator, id: str, *, model: Optional[str] = None, service: Optional[str] = None
    ) -> Application:
        """Registers the application ``id`` (1 to 128 printable characters without spaces), with a ``model`` of the sensitivity table.

        A model is optional if the coordinator has queues by service. Without ``service``, the service is the framework's own, or
        ``default``. Registering the same again changes nothing. Raises :class:`CoordinatorError`.
        """
        answer = coordinator.put(path("applications", id), {"service": service, "model": model})
        return cls(coordinator, id, _read_level(answer))

    @property
    def dscp(self) -> int:
        """The mark of its packets: level 0 is DSCP 1, level 1 is DSCP 2, and so on."""
        return self.level + 1

    def connect(self, from_host: str, to_host: str, address: Tuple[str, int]) -> Connection:
        """Creates a TCP connection from ``from_host``, which is this host, to ``address`` on ``to_host``.

        Hosts have the names of the coordinator's configuration. All packets have the application's class, including the first one. If
        the level has changed, this connection continues with the new class, and earlier connections keep their class. Raises
        :class:`OSError` if the other end does not accept within 30 s. If the coordinator does not answer, there is no exception: see
        :attr:`Connection.registration_error`.
        """
        sock = self._dial(address)
        connection_path = path("connections", uuid.uuid4().hex)
        body = {"application": self.id, "from": from_host, "to": to_host}
        try:
            level = _read_level(self._coordinator.put(connection_path, body))
        except CoordinatorError as error:
            return Connection(sock, registration_error=error)
        try:
            if level != self.level:
                self.level = level
                _mark(sock, self.dscp)
        except OSError:
            Connection(sock, (self._coordinator, connection_path)).destroy()
            raise
        return Connection(sock, (self._coordinator, connection_path))

    def _dial(self, address: Tuple[str, int]) -> socket.socket:
        last: OSError = OSError(f"{address}: the name has no addresses")
        for family, kind, protocol, _, found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            target: Any = found
            if family == socket.AF_INET6:
                # Packets to an IPv4-mapped IPv6 address need the mark of IPv4.
                mapped = ipaddress.IPv6Address(str(found[0]).partition("%")[0]).ipv4_mapped
                if mapped is not None:
                    family, target = socket.AF_INET, (str(mapped), found[1])
            sock = socket.socket(family, kind, protocol)
            try:
                _mark(sock, self.dscp)
                sock.settimeout(CONNECT_TIMEOUT)
                sock.connect(target)
                sock.settimeout(None)
                return sock
            except OSError as error:
                sock.close()
                last = error
        raise last

    def deregister(self) -> None:
        """Deregisters the application. Destroy all of its connections first, also those of other hosts."""
        self._coordinator.delete(path("applications", self.id))


class Connection:
    """A connection of an application.

    ``socket`` is the socket. ``registration_error`` is the error if the coordinator did not register the connection, else None. An unregistered
    connection has the application's class, but does not count for the weights of queues.
    """

    def __init__(
        self,
        sock: socket.socket,
        told: Optional[Tuple[Coordinator, str]] = None,
        registration_error: Optional[CoordinatorError] = None,
    ) -> None:
        self.socket = sock
        self.registration_error = registration_error
        self._told = told

    def destroy(self) -> None:
        """Closes the connection, and removes it at the coordinator. Raises :class:`CoordinatorError` if the removal fails."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The connection has already ended.
            pass
        self.socket.close()
        told, self._told = self._told, None
        if told is not None:
            coordinator, target = told
            coordinator.delete(target)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


def _read_level(answer: Any) -> int:
    level = answer.get("level") if isinstance(answer, dict) else None
    if isinstance(level, int) and 0 <= level <= MAX_LEVEL:
        return level
    raise CoordinatorError(
        f"answer of the coordinator is malformed ({str(answer)[:200]!r}); expected an object with a level from 0 to {MAX_LEVEL}"
    )


def _mark(sock: socket.socket, dscp: int) -> None:
    # The two bits below the DSCP are ECN, which the kernel sets.
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
