"""TLS for flows (docs/flow-protocol.md)."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import threading
import time
from typing import Any, Dict, Optional, Tuple, Union

# The environment variables with the files in PEM, and with 1 to apply TLS inside a host, too.
FILE_VARIABLES = ("WEIR_CERTIFICATE", "WEIR_KEY", "WEIR_AUTHORITY")
LOCAL_VARIABLE = "WEIR_TLS_LOCAL"

_PROTOCOL = "weir-flow"
_SCHEME = "weir://"
_RELAY = "weir://relay/"


class TlsSocket:
    """A TLS connection with the methods of a socket that does not block. Threads may share it. Calls raise
    :class:`ConnectionResetError` once a certificate of one end has expired."""

    def __init__(self, sock: ssl.SSLSocket, own_expiry: float) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self._own_expiry = own_expiry
        # The time at which the first certificate of both ends expires, after the handshake.
        self._expiry: Optional[float] = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def recv(self, length: int) -> bytes:
        with self._lock:
            try:
                self._check_expiry()
                return self._socket.recv(length)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError from None

    def send(self, data: Union[bytes, memoryview]) -> int:
        with self._lock:
            try:
                self._check_expiry()
                return self._socket.send(data)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError from None

    def _check_expiry(self) -> None:
        # None during the handshake, which has its own check.
        if self._expiry is None and self._socket.version() is not None:
            self._expiry = min(self._own_expiry, _certificate_expiry(self._socket.getpeercert()))
        if self._expiry is not None and time.time() >= self._expiry:
            raise ConnectionResetError("a certificate of the connection has expired")

    def pending(self) -> int:
        """The number of decrypted bytes, which make no socket readable."""
        with self._lock:
            return self._socket.pending()

    def peer_name(self) -> str:
        """The name in the certificate of the other end, after the handshake."""
        with self._lock:
            return _name(self._socket.getpeercert())

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(flag)

    def shutdown(self, how: int) -> None:
        # The method of an SSLSocket would make later reads return encrypted bytes.
        socket.socket.shutdown(self._socket, how)

    def close(self) -> None:
        with self._lock:
            self._socket.close()


FlowSocket = Union[socket.socket, TlsSocket]


class FlowTls:
    """TLS for flows, with files in PEM: the authority of relays and programs, and the program's certificate with its key. The certificate
    has the name ``weir://framework/SERVICE``, with the service of its coflows.

    Connections inside a host use plain text, unless ``include_local`` is set; the relays then need ``--tls-local``.
    """

    def __init__(self, certificate: str, key: str, authority: str, *, include_local: bool = False) -> None:
        self._include_local = include_local
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Names in certificates take the place of host names.
        self._client.check_hostname = False
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.num_tickets = 0
        for context in (self._client, self._server):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            load_files(context, certificate, key, authority)
            context.set_alpn_protocols([_PROTOCOL])
        try:
            certificate_fields = self._own_certificate()
            self._name, self._expiry = _name(certificate_fields), _certificate_expiry(certificate_fields)
        except ssl.SSLError as error:
            text = f"{certificate}: cannot be used with the authority in {authority}: {_reason(error)}"
            raise _tls_error(text) from error

    @classmethod
    def from_environment(cls) -> Optional[FlowTls]:
        """TLS with the files in ``WEIR_CERTIFICATE``, ``WEIR_KEY`` and ``WEIR_AUTHORITY``; None without all of them.
        ``WEIR_TLS_LOCAL=1`` applies it inside a host, too; 0 is the default. Raises :class:`ValueError` for other values."""
        local = os.environ.get(LOCAL_VARIABLE, "")
        if local not in ("", "0", "1"):
            raise ValueError(f"{LOCAL_VARIABLE}: {local!r} is invalid; expected 1 or 0")
        files = [os.environ.get(name, "") for name in FILE_VARIABLES]
        if not any(files):
            return None
        if not all(files):
            raise ValueError(f"{', '.join(FILE_VARIABLES)}: some are missing; expected all three, or none")
        return cls(*files, include_local=local == "1")

    def _own_certificate(self) -> Optional[Dict[str, Any]]:
        """The fields of the own certificate, from a handshake in memory: the module `ssl` reads certificates of other ends only."""
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self._client.wrap_bio(to_client, to_server)
        server = self._server.wrap_bio(to_server, to_client, server_side=True)
        for end in (client, server, client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
        return client.getpeercert()

    def connect(self, sock: socket.socket, to_relay: bool) -> FlowSocket:
        """The connection of a connected socket. Blocks until the end of the handshake. Raises :class:`ssl.SSLCertVerificationError` if
        the certificate of the other end is refused."""
        if not self._applies_to(sock):
            return sock
        try:
            connection = TlsSocket(self._client.wrap_socket(sock), self._expiry)
        except ssl.SSLCertVerificationError as error:
            raise _tls_error(f"the certificate is refused: {_reason(error)}") from error
        try:
            name = connection.peer_name()
            if not (name.startswith(_RELAY) if to_relay else name == self._name):
                expected = f"{_RELAY}NAME" if to_relay else self._name
                raise _tls_error(f"the certificate has the name {name}; expected {expected}")
        except BaseException:
            connection.close()
            raise
        return connection

    def accept(self, sock: socket.socket) -> FlowSocket:
        """The connection of an accepted socket that does not block. Its handshake is part of the first calls of `recv`."""
        if not self._applies_to(sock):
            return sock
        wrapped = self._server.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return TlsSocket(wrapped, self._expiry)

    def check_sender(self, connection: TlsSocket) -> None:
        """Raises :class:`OSError` unless the other end is a relay, or a program of the same service."""
        name = connection.peer_name()
        if not (name.startswith(_RELAY) or name == self._name):
            raise _tls_error(f"the certificate has the name {name}; expected {_RELAY}NAME or {self._name}")

    def _applies_to(self, sock: socket.socket) -> bool:
        """Whether a connection uses TLS. Equal addresses are those of one host. Both ends get the same result."""
        local, remote = _ip(sock.getsockname()[0]), _ip(sock.getpeername()[0])
        return self._include_local or not (local.is_loopback or remote.is_loopback or local == remote)


def load_files(context: ssl.SSLContext, certificate: str, key: str, authority: str) -> None:
    """Loads files in PEM. Raises :class:`OSError` with the name of the file that cannot be used."""
    for path in (certificate, key, authority):
        # An error of the module `ssl` names no file.
        with open(path, "rb"):
            pass
    try:
        context.load_verify_locations(cafile=authority)
    except ssl.SSLError as error:
        raise _tls_error(f"{authority}: cannot be used; expected certificates of authorities in PEM ({_reason(error)})") from error
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        expected = "expected a certificate and its private key in PEM"
        raise _tls_error(f"{certificate} with key {key}: cannot be used; {expected} ({_reason(error)})") from error


def _tls_error(message: str) -> ssl.SSLCertVerificationError:
    # With one argument only, the text of the exception would be a tuple.
    return ssl.SSLCertVerificationError(ssl.SSL_ERROR_SSL, message)


def _reason(error: ssl.SSLError) -> str:
    """The reason of an error of OpenSSL."""
    verify_message, reason = getattr(error, "verify_message", ""), getattr(error, "reason", "")
    return verify_message or (reason.lower().replace("_", " ") if reason else str(error))


def _ip(text: str) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address]:
    ip = ipaddress.ip_address(text.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return mapped or ip


def _certificate_expiry(certificate: Optional[Dict[str, Any]]) -> float:
    """The first second after the validity of a certificate; 0 without one."""
    return ssl.cert_time_to_seconds(certificate["notAfter"]) + 1 if certificate else 0


def _name(certificate: Optional[Dict[str, Any]]) -> str:
    names: Tuple[Tuple[str, str], ...] = (certificate or {}).get("subjectAltName", ())
    found = [value for kind, value in names if kind == "URI" and value.startswith(_SCHEME)]
    if len(found) != 1:
        raise _tls_error(f"the certificate has {len(found)} names `weir://ROLE/NAME`; expected one")
    return found[0]
