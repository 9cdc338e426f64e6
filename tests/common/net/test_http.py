"""The proxy: used where one is set, never to loopback, its password in one header and nowhere else."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from urllib3 import ProxyManager

from common.datadog.client import DatadogClient
from common.datadog.intake import DatadogSink
from common.errors import ConfigurationError, DeliveryError, RefusedError
from common.logs import redact
from common.metric import gauge
from common.net.http import pool_for
from common.net.retry import Deadline
from support.sinks import send
from support.standins import KEY, NOW, Time, core_settings, datadog_settings, everything

HOST = "api.datadoghq.invalid"
SITE = f"https://{HOST}"
LOAD = gauge("host.load", "process", "x")
PASSWORD = "canary p@ss/word€"
QUOTED = "canary%20p%40ss%2Fword%E2%82%AC"


class ConnectProxy:
    """A proxy on loopback that notes each request's head and answers as told."""

    def __init__(self, answer: Callable[[socket.socket], object]) -> None:
        self.heads: list[str] = []
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with connection, suppress(OSError):
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        head += connection.recv(1)
                    self.heads.append(head.decode())
                    self._answer(connection)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


def answering(status: str) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())


def connect_and_hang_up(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    connection.recv(1)


Proxies = Callable[[Callable[[socket.socket], object]], ConnectProxy]


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    running: list[ConnectProxy] = []

    def start(answer: Callable[[socket.socket], object]) -> ConnectProxy:
        running.append(ConnectProxy(answer))
        return running[-1]

    yield start
    for proxy in running:
        proxy.close()


def sink_through(proxy: str, time: Time, seconds: float = 5, **environ: str) -> DatadogSink:
    settings = datadog_settings(**{"DD_SITE": "datadoghq.invalid", **environ})
    core = core_settings(HTTPS_PROXY=proxy)
    return DatadogSink(DatadogClient(settings, core, Deadline(seconds, time, time.sleep), clock=time), core)


class TestOnTheWire:
    @pytest.mark.parametrize(
        ("user", "password", "status"),
        [("user", "", "403 Forbidden"), (f"user:{QUOTED}", PASSWORD, "407 Proxy Authentication Required")],
    )
    def test_the_proxy_gets_its_password_in_its_header_only(
        self, proxies: Proxies, time: Time, user: str, password: str, status: str
    ) -> None:
        proxy = proxies(answering(status))
        sink = sink_through(f"http://{user}@{proxy.address}", time)
        with pytest.raises(ConfigurationError) as caught:
            send(sink, [LOAD(1, NOW)])
        first, *headers = proxy.heads[0].splitlines()
        assert first.split()[:2] == ["CONNECT", "api.datadoghq.invalid:443"]
        credentials = b64encode(f"user:{password}".encode()).decode()
        named = {name.lower(): value for name, _, value in (header.partition(": ") for header in headers)}
        assert named["proxy-authorization"] == f"Basic {credentials}"
        assert KEY not in "".join(proxy.heads)
        seen = everything(caught.value)
        reason = f"Tunnel connection failed: {status}"
        expected = f"cannot reach {HOST} through the proxy ({reason}); check HTTPS_PROXY and NO_PROXY"
        assert (str(caught.value), len(proxy.heads)) == (expected, 1)
        assert redact(credentials) == "[redacted]"
        for secret in (PASSWORD, QUOTED, credentials, KEY):
            assert secret not in seen

    @pytest.mark.parametrize(
        "answer",
        [answering("429 Too Many Requests"), answering("502 Bad Gateway"), connect_and_hang_up],
        ids=["429", "502", "TLS breaks off"],
    )
    def test_a_proxy_that_cannot_connect_now_is_asked_again(
        self, proxies: Proxies, time: Time, answer: Callable[[socket.socket], object]
    ) -> None:
        proxy = proxies(answer)
        with pytest.raises(DeliveryError, match=r"\(tried 12 times\)$") as caught:
            send(sink_through(f"http://{proxy.address}", time, seconds=1000), [LOAD(1, NOW)])
        assert not isinstance(caught.value, RefusedError)
        assert len(proxy.heads) == 12


@pytest.mark.parametrize(
    ("url", "exceptions", "direct"),
    [
        *((url, "", True) for url in ("http://127.0.0.1:8080", "http://localhost", "http://[::1]:80")),
        *((SITE, names, True) for names in ("datadoghq.invalid", "*")),
        *((SITE, names, False) for names in ("", ".other.invalid")),
    ],
)
def test_loopback_and_no_proxy_are_reached_directly(url: str, exceptions: str, direct: bool) -> None:
    core = core_settings(HTTPS_PROXY="http://proxy:3128", NO_PROXY=exceptions)
    assert isinstance(pool_for(url, core, 1), ProxyManager) is not direct
