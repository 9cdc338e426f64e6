"""How requests leave the process: through the proxy where one is set, and never through it to loopback.

Sorts every failure into what may succeed next time (`TransientError`) and what will not (`RejectedError`,
`TooLargeError`, `SourceError`). Whether to try again is the caller's to decide, with `persist`.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it
from weakref import WeakSet

from common.config.settings import CoreSettings, is_loopback
from common.errors import ConfigurationError, SourceError
from common.net.retry import RETRIED_STATUSES, Deadline, TransientError, requested_wait
from common.text import excerpt

if TYPE_CHECKING:
    from urllib3 import PoolManager, Timeout
    from urllib3.exceptions import HTTPError, ProxyError

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 45.0
MAX_ANSWER_BYTES = 16 * 2**20
CHUNK = 2**18

log = logging.getLogger(__name__)


class RequestCounter(Protocol):
    """Whoever wants to know how many requests were made."""

    requests: int


@dataclass(frozen=True)
class Proxy:
    """A proxy's address without credentials, and the header that carries them."""

    url: str
    headers: dict[str, str] = field(repr=False)


def proxy_for(url: str, core: CoreSettings | None) -> Proxy | None:
    """The proxy to use for a URL, or None to go straight."""
    host = urlsplit(url).hostname or ""
    if core is None or core.proxy is None or is_loopback(host):
        return None
    if proxy_bypass_environment(host, {"no": core.no_proxy}):
        return None
    parts = urlsplit(core.proxy.get_secret_value())
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if parts.username is None:
        return Proxy(address, {})
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(address, {"proxy-authorization": "Basic " + b64encode(credentials.encode()).decode()})


class UnavailableError(TransientError):
    """An answer that asks for another try: 408, 429 or any 5xx."""

    def __init__(self, status: int, said: str, wait: float | None) -> None:
        super().__init__(f"answered {status}" + (f": {said}" if said else ""), wait)
        self.status = status


class TimedOutError(TransientError):
    """A server that was reached and did not answer in time."""


class RejectedError(SourceError):  # the caller decides whether it is an error
    """An answer that will stay the same however often one asks."""

    def __init__(self, url: str, status: int, body: bytes) -> None:
        said = _excerpt(body)
        super().__init__(f"{url} answered {status}" + (f": {said}" if said else ""))
        self.status = status
        self.body = body


class TooLargeError(SourceError):  # answered by asking for less
    """An answer longer than was allowed; asking for less may help."""


class Reply(NamedTuple):
    """An answer: its body, decompressed, and its headers."""

    body: bytes
    headers: Mapping[str, str]


class Http:
    """A pool of connections for the requests of one collector to one service; threads may share it.

    Redirects are not followed: they would carry the key to wherever the answer says.
    """

    def __init__(
        self,
        proxy: Proxy | None,
        counter: RequestCounter,
        *,
        connections: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sockets = _Sockets()
        self._pool = _pool(proxy, connections, self._sockets)
        self._counter = counter
        self._counting = threading.Lock()
        self._clock = clock

    def close(self) -> None:
        """Cut off what is under way in other threads, for good."""
        self._sockets.shut_down()
        self._pool.clear()

    def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        deadline: Deadline,
        largest: int = MAX_ANSWER_BYTES,
    ) -> Reply:
        """Send one request. Anything but a 2xx answer raises."""
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        limits = Timeout(connect=deadline.timeout(CONNECT_TIMEOUT), read=deadline.timeout(READ_TIMEOUT))
        with self._counting:
            self._counter.requests += 1
        try:
            named = {"Accept-Encoding": "gzip", "User-Agent": "fleetgauge", **headers}
            status, reply = exchange(self._pool, "POST", url, body, named, limits, deadline, largest)
        except HTTPError as error:
            raise sort_failure(error, url) from None
        if status in RETRIED_STATUSES:
            wait = requested_wait(reply.headers, self._clock())
            raise UnavailableError(status, _excerpt(reply.body), wait)
        if not 200 <= status < 300:
            raise RejectedError(url, status, reply.body)
        return reply


def sort_failure(error: HTTPError, url: str) -> Exception:
    """What it means that a request got no answer: whether another try can help, and what to do if not."""
    from urllib3.exceptions import ProxyError, ReadTimeoutError, SSLError

    if isinstance(error, ProxyError) and (refusal := _refused_by_proxy(error, url)):
        return refusal
    if isinstance(error, SSLError):
        if isinstance(error.args[0], ssl.SSLCertVerificationError):
            return SourceError(f"the certificate of {url} is not to be trusted: {error}")
        return TransientError(f"TLS with {url} failed: {error}")
    kind = TimedOutError if isinstance(error, ReadTimeoutError) else TransientError
    return kind(f"no answer: {type(error).__name__}: {error}")


def _refused_by_proxy(error: ProxyError, url: str) -> ConfigurationError | None:
    """A proxy that answers CONNECT with a 4xx will do so again; any other failure of it may pass."""
    found = re.fullmatch(r"Tunnel connection failed: (4\d\d)\b\s*(.*)", str(error.original_error))
    if found is None or int(found[1]) in RETRIED_STATUSES:
        return None
    fix = (
        "check the user and the password in HTTPS_PROXY"
        if found[1] == "407"
        else f"have it allow {urlsplit(url).hostname}, or set HTTPS_PROXY or NO_PROXY otherwise"
    )
    return ConfigurationError(
        f"the proxy of HTTPS_PROXY refused to connect to {url}: {found[1]} {excerpt(found[2], 300)}; {fix}"
    )


class _Sockets:
    """The open sockets of a pool. urllib3 lends its connections out and forgets them until they return."""

    def __init__(self) -> None:
        self._open: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def add(self, opened: socket.socket) -> None:
        with self._lock:
            if self._closed:
                raise OSError("no more requests are made")
            self._open.add(opened)

    def shut_down(self) -> None:
        """Make every read and write on them return at once; closing alone would not."""
        with self._lock:
            self._closed = True
            for opened in self._open:
                with suppress(OSError):
                    socket.socket.shutdown(opened, socket.SHUT_RDWR)  # below TLS, which another thread uses


def _pool(proxy: Proxy | None, connections: int, sockets: _Sockets) -> PoolManager:
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, ProxyManager
    from urllib3.connection import HTTPConnection, HTTPSConnection

    def kept(pool: type[HTTPConnectionPool], connection: type[HTTPConnection]) -> type[HTTPConnectionPool]:
        class Kept(connection):  # type: ignore[misc,valid-type]  # either of two
            def connect(self) -> None:
                super().connect()
                sockets.add(self.sock)

        return type(pool.__name__, (pool,), {"ConnectionCls": Kept})

    options: dict[str, Any] = {"cert_reqs": "CERT_REQUIRED", "maxsize": connections}
    manager = (
        PoolManager(**options)
        if proxy is None
        else ProxyManager(proxy.url, proxy_headers=proxy.headers, **options)
    )
    manager.pool_classes_by_scheme = {
        "http": kept(HTTPConnectionPool, HTTPConnection),
        "https": kept(HTTPSConnectionPool, HTTPSConnection),
    }
    return manager


def exchange(
    pool: PoolManager,
    method: str,
    url: str,
    body: bytes | str | None,
    headers: Mapping[str, str] | None,
    limits: Timeout,
    deadline: Deadline,
    largest: int,
) -> tuple[int, Reply]:
    """Send a request once, and read the whole answer as it comes: a server that drips or floods is cut off.

    What was read by then is let go of at once: the error that is raised holds on to this call.
    """
    started = time.monotonic()
    log.debug("%s %s: sending %s bytes", method, url, f"{len(body or b''):,}")
    response = pool.request(
        method,
        url,
        body=body,
        headers=headers,
        timeout=limits,
        retries=False,
        redirect=False,
        preload_content=False,
    )
    content = bytearray()
    try:
        while chunk := response.read1(CHUNK, decode_content=True):
            content += chunk
            if len(content) > largest:
                raise TooLargeError(f"{response.url} sent more than {largest:,} bytes")
            deadline.timeout(READ_TIMEOUT)
        response.release_conn()
        took = 1000 * (time.monotonic() - started)
        log.debug(
            "%s %s: %d after %.0f ms, %s bytes", method, url, response.status, took, f"{len(content):,}"
        )
        return response.status, Reply(bytes(content), response.headers)
    finally:
        content.clear()
        response.close()  # does nothing to a connection that went back to the pool


def _excerpt(body: bytes) -> str:
    """The start of an answer, on one line, for an error message."""
    return excerpt(body[:300].decode("utf-8", "replace"), 300)
