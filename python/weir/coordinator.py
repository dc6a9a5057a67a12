"""A client of the coordinator's API over HTTP/1.1; see docs/api.md."""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
from typing import Any, Iterator, Optional
from urllib.parse import quote

from .flow_tls import load_files

# Maximum time to connect to a coordinator.
CONNECT_TIMEOUT = 2.0

# Maximum time for an answer.
ANSWER_TIMEOUT = 15.0

# Maximum time between two lines of a stream.
STREAM_TIMEOUT = 30.0

# Maximum size of an answer, in bytes.
MAX_ANSWER_BYTES = 10 << 20


class CoordinatorError(Exception):
    """A failed request: ``detail`` is the reason, ``status`` the HTTP status of the answer, or None without an answer."""

    def __init__(self, detail: str, status: Optional[int] = None) -> None:
        super().__init__(detail if status is None else f"{status}: {detail}")
        self.detail = detail
        self.status = status


class Coordinator:
    """A coordinator at a host and a port, such as ``127.0.0.1:7701``.

    ``authority``, ``certificate`` and ``key`` are files in PEM: the authority of the coordinator's certificate, and the client's
    certificate with its key. Without them, the coordinator must be on this host.
    """

    def __init__(
        self,
        address: str,
        *,
        certificate: Optional[str] = None,
        key: Optional[str] = None,
        authority: Optional[str] = None,
    ) -> None:
        host, colon, port = address.rpartition(":")
        if not (colon and host and port.isdecimal() and int(port) < 1 << 16):
            raise ValueError(f"address {address!r} is invalid; expected a host and a port, such as 127.0.0.1:7701")
        self._address = address
        self._host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        self._port = int(port)
        self._tls: Optional[ssl.SSLContext] = None
        if certificate is not None and key is not None and authority is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_3
            load_files(self._tls, certificate, key, authority)
        elif (certificate, key, authority) != (None, None, None):
            raise ValueError("certificate, key and authority: some are missing; expected all three, or none")
        elif not _is_loopback(self._host):
            raise ValueError(f"{address}: a coordinator on another host needs TLS; help: pass a certificate, its key and an authority")

    def get(self, path: str) -> Any:
        """Returns the object at a path, such as ``/v1/hosts``."""
        return self._request("GET", path)

    def put(self, path: str, body: Any) -> Any:
        """Puts a body at a path, and returns the answer, or None without one. Repeating a request changes nothing."""
        return self._request("PUT", path, json.dumps(body).encode())

    def delete(self, path: str) -> None:
        """Deletes the object at a path."""
        self._request("DELETE", path)

    def stream_lines(self, path: str) -> Iterator[bytes]:
        """Yields the lines of a stream of events. The coordinator sends a line at least every 10 s."""
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(STREAM_TIMEOUT)
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status != 200:
                raise CoordinatorError(f"{self._address}: {path}: no stream", answer.status)
            while True:
                line = answer.readline(MAX_ANSWER_BYTES)
                if not line:
                    return
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise CoordinatorError(f"{self._address}: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        # One connection for each request, since an idle connection may have been closed.
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_TIMEOUT)
        return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_TIMEOUT, context=self._tls)

    def _request(self, method: str, path: str, body: Optional[bytes] = None) -> Any:
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(ANSWER_TIMEOUT)
            connection.request(method, path, body, {} if body is None else {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise CoordinatorError(f"{self._address}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if len(text) > MAX_ANSWER_BYTES:
            raise CoordinatorError(f"{self._address}: answer is too long; expected at most {MAX_ANSWER_BYTES} bytes")
        try:
            found = json.loads(text) if text else None
        except ValueError:
            found = None
        if 200 <= answer.status < 300:
            return found
        detail = found.get("detail") if isinstance(found, dict) else None
        raise CoordinatorError(detail or text.decode(errors="replace"), answer.status)


def path(collection: str, name: str) -> str:
    """The path of an object with an id."""
    return f"/v1/{collection}/{quote(name, safe='')}"


def _is_loopback(host: str) -> bool:
    """Whether a host is this one, without name resolution."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
