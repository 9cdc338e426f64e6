"""HTTP over urllib3: proxies, timeouts, size limits, and errors classified by what can resolve them.

A failure is a `TransientError` (another attempt may succeed: refused and reset connections, timeouts,
temporary DNS failures, 408, 429, 5xx), a `ConfigurationError` (the host name does not exist, its certificate
is for another host, the proxy refuses) or a `SourceError`. Retrying is the caller's decision, with `persist`.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

from common.config.settings import CoreSettings, is_loopback
from common.errors import ConfigurationError, FleetgaugeError, SourceError
from common.logs import redact, remember_secret
from common.net.retry import RETRIED_STATUSES, Deadline, TransientError, persist, requested_wait
from common.outcome import Report
from common.text import visible

if TYPE_CHECKING:
    from urllib3 import PoolManager
    from urllib3.exceptions import HTTPError

# Seconds per attempt; both are cut to what is left of the deadline.
HTTP_CONNECT_TIMEOUT = 10.0
HTTP_READ_TIMEOUT = 45.0
# Of the decompressed body: a small gzip body can expand a thousand times.
MAX_RESPONSE_BYTES = 16 * 2**20
READ_SIZE = 2**18

# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_OTHER_HOST = frozenset({62, 64})

log = logging.getLogger(__name__)


class NotConnectedError(TransientError):
    """There was no connection to the server, which received nothing of the request."""


class TimedOutError(TransientError):
    """A server that accepted the connection and did not respond in time."""


class RejectedError(SourceError):
    """A final status that is not 2xx; the caller decides whether it is an error.

    `status` is its number and `body` the response, decompressed.
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.status = reply.status
        self.body = reply.body


class TooLargeError(SourceError):
    """A response longer than was allowed; a request for less may succeed."""


class Reply(NamedTuple):
    """A response of any status to a request of `url`; its body is decompressed."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"{self.url} answered {self.status}" + (f": {self.text}" if self.text else "")

    @property
    def text(self) -> str:
        """The start of the body, for messages."""
        return quote(self.body[: 2**20].decode("utf-8", "replace"))

    @property
    def document(self) -> object:
        """The body as JSON; None where it is not JSON, or is nested too deep to be parsed."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def checked(self) -> Reply:
        """Return the response where its status is 2xx; otherwise raise TransientError or RejectedError."""
        if self.status in RETRIED_STATUSES:
            raise TransientError(str(self), requested_wait(self.headers), self.status)
        if not 200 <= self.status < 300:
            raise RejectedError(self)
        return self


class Http:
    """Requests to one service over a pool of connections; threads may share it.

    `url` is the address of the service and `setting` the variable that holds it, for messages. HTTPS_PROXY
    and NO_PROXY are those of `core`, and `connections` is how many are reused. `report` counts the requests,
    failed ones included. Redirects are not followed: they would carry the key to another host.
    """

    def __init__(
        self, url: str, core: CoreSettings, report: Report, *, setting: str, connections: int = 1
    ) -> None:
        self._pool = pool_for(url, core, connections)
        self._report = report
        self._counting = threading.Lock()
        self._setting = setting

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._pool.clear()

    def request(
        self, method: str, url: str, deadline: Deadline, headers: Mapping[str, str], body: bytes | None = None
    ) -> Reply:
        """Return the 2xx response to a request, which is retried with backoff until the deadline.

        Raises SourceError where it still fails, RejectedError, which has the status, where it is refused,
        ConfigurationError and DeadlineExceededError.
        """
        try:
            return persist(lambda: self.send(method, url, body, headers, deadline).checked(), deadline)
        except TransientError as error:
            raise SourceError(str(error)) from error

    def send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: Deadline,
        *,
        read_timeout: float = HTTP_READ_TIMEOUT,
        largest: int = MAX_RESPONSE_BYTES,
    ) -> Reply:
        """Send one request and return its response, whatever its status.

        Raises TransientError, ConfigurationError or SourceError where there is no response, TooLargeError for
        one of more than `largest` bytes, and DeadlineExceededError.
        """
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        awaited = f"an answer from {url}"
        # Raises before anything is sent where the deadline has passed.
        connect = deadline.timeout(HTTP_CONNECT_TIMEOUT, awaited)
        limits = Timeout(connect=connect, read=deadline.timeout(read_timeout, awaited))
        # `+=` on an attribute is not atomic, and threads share the counter.
        with self._counting:
            self._report.requests += 1
        started = time.monotonic()
        log.debug("%s %s: sending %s bytes", method, url, f"{len(body or b''):,}")
        try:
            # Retries are the caller's, under one deadline. urllib3's own would add to it, and hide the
            # attempts. Closing a response that was read to its end leaves the connection in the pool.
            with self._pool.request(
                method,
                url,
                body=body,
                headers={"Accept-Encoding": "gzip", "User-Agent": "fleetgauge", **headers},
                timeout=limits,
                retries=False,
                redirect=False,
                preload_content=False,
            ) as response:
                # In chunks as they arrive, so that a slow or an endless response is cut off.
                content = bytearray()
                while chunk := response.read1(READ_SIZE, decode_content=True):
                    content += chunk
                    if len(content) > largest:
                        content.clear()  # the traceback of the error refers to it
                        raise TooLargeError(f"{url} sent more than {largest:,} bytes")
                    # A read timeout of urllib3 restarts with each chunk: a server that sends a byte now and
                    # then would never reach it.
                    deadline.timeout(read_timeout, awaited)
            took = 1000 * (time.monotonic() - started)
            log.debug("%s %s: %d after %.0f ms, %d bytes", method, url, response.status, took, len(content))
            return Reply(url, response.status, response.headers, bytes(content))
        except HTTPError as error:
            raise _connection_error(error, url, self._setting) from None


def _connection_error(error: HTTPError, url: str, setting: str) -> FleetgaugeError | TransientError:
    """Return the error for a request without a response: `cannot reach HOST (REASON); check SETTING`.

    ConfigurationError where the name does not exist, the certificate is for another host or the proxy
    refuses; SourceError for a certificate that is not trusted; NotConnectedError where the server did not
    accept the connection, TimedOutError where it did not respond in time; TransientError for everything else.
    `setting` becomes HTTPS_PROXY where the proxy is what cannot be reached.
    """
    from urllib3.exceptions import (
        ConnectTimeoutError,
        NameResolutionError,
        ProxyError,
        ReadTimeoutError,
        SSLError,
    )

    host = urlsplit(url).netloc
    cause: Exception = error
    kind: type[FleetgaugeError | TransientError] = TransientError
    if isinstance(error, ProxyError):
        host, setting, cause = f"{host} through the proxy", "HTTPS_PROXY and NO_PROXY", error.original_error
        # http.client reports the status of CONNECT only in the text of its OSError.
        refused = re.match(r"Tunnel connection failed: (4\d\d)\b", str(cause))
        if refused and int(refused[1]) not in RETRIED_STATUSES:
            kind = ConfigurationError
    elif isinstance(error, ConnectTimeoutError):  # the base class of all failures to connect
        kind = NotConnectedError
    reason = _reason(cause)
    if isinstance(cause, NameResolutionError):
        resolution = cause.__cause__
        # EAI_AGAIN and others are failures of the resolver, which may be over at the next attempt.
        if isinstance(resolution, socket.gaierror) and resolution.errno == socket.EAI_NONAME:
            kind, reason = ConfigurationError, "no such host"
        reason = f"DNS: {reason}"
    elif isinstance(cause, SSLError) and isinstance(cause.args[0], ssl.SSLCertVerificationError):
        failed = cause.args[0]
        # An untrusted or expired certificate may be repaired by the service; a wrong host name is ours.
        kind = ConfigurationError if failed.verify_code in _OTHER_HOST else SourceError
        reason = f"TLS: {quote(failed.verify_message)}"
    elif isinstance(cause, ReadTimeoutError):
        kind = TimedOutError
    return kind(f"cannot reach {host} ({reason}); check {setting}")


def _reason(error: BaseException) -> str:
    """Return the operating system's text for a failure, or the library's where there is none."""
    nested = next((each for each in error.args if isinstance(each, Exception)), error.__cause__)
    if isinstance(nested, OSError) and nested.strerror:
        return nested.strerror.lower()
    source = error if nested is None or isinstance(nested, TimeoutError) else nested
    text = next((each for each in reversed(source.args) if isinstance(each, str)), str(source))
    return quote(re.sub(r"^\w+\(.*?\): ", "", text)).rstrip(".")  # without the repr of a pool


def pool_for(url: str, core: CoreSettings, connections: int) -> PoolManager:
    """Return a pool of connections to a URL, through the proxy of the settings; directly to loopback.

    urllib3 reads no environment variables, and the settings may be from a file.
    """
    from urllib3 import PoolManager, ProxyManager

    host = urlsplit(url).hostname or ""
    if core.proxy is None or is_loopback(host) or proxy_bypass_environment(host, {"no": core.no_proxy}):
        return PoolManager(cert_reqs="CERT_REQUIRED", maxsize=connections)
    proxy = urlsplit(core.proxy.get_secret_value())
    headers = {}
    if proxy.username is not None:
        # In a URL they are percent-encoded, in the header they are not.
        user_and_password = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        credentials = b64encode(user_and_password.encode()).decode()
        remember_secret(credentials)
        headers["proxy-authorization"] = f"Basic {credentials}"
    address = f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}"
    return ProxyManager(address, proxy_headers=headers, cert_reqs="CERT_REQUIRED", maxsize=connections)


def quote(text: str) -> str:
    """Return the start of a server's text on one line, without a secret that it may have repeated."""
    # Redacted first: a secret that was cut is not recognised any more.
    return visible(" ".join(redact(text).split()))[:300]
