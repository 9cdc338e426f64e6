"""One request: what comes back, what is worth another try, and what never leaves or arrives."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from common.config.settings import CoreSettings
from common.errors import DeadlineExceededError, FleetgaugeError, SourceError
from common.net.http import Http, RejectedError, TimedOutError, TooLargeError
from common.net.retry import Deadline
from common.outcome import Report
from support.certificates import self_signed, server_context
from support.servers.faults import Fault
from support.servers.loopback import Answer, LoopbackServer, Request
from support.standins import Time

MEBIBYTE = 2**20


class Echo(LoopbackServer[Request]):
    """Answers with what came."""

    request_type = Request

    def respond(self, request: Request) -> Answer:
        return Answer(200, request.body)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        yield server


def post(server: LoopbackServer[Request], seconds: float = 10) -> None:
    connected().send("POST", f"{server.url}/x", b"hello", {}, Deadline(seconds)).checked()


def connected(report: Report | None = None) -> Http:
    return Http("http://127.0.0.1", CoreSettings(), report or Report(), setting="WANDB_BASE_URL")


class TestAnswers:
    def test_the_body_comes_back_and_the_request_is_counted(self, echo: Echo) -> None:
        report = Report()
        http = connected(report)
        for _ in range(3):
            assert http.send("POST", f"{echo.url}/x", b"hello", {"X-Key": "k"}, Deadline(10)).body == b"hello"
        assert (report.requests, echo.connections) == (3, 1), "the connection is used again"
        assert echo.requests[0].headers["X-Key"] == "k"
        assert echo.requests[0].headers["Accept-Encoding"] == "gzip"

    def test_sixteen_mebibytes_are_the_most_and_released_with_the_error(self, echo: Echo) -> None:
        errors = []
        http = connected()
        for more in (0, 1, 1, 1):
            body = gzip.compress(b"z" * (16 * MEBIBYTE + more), 1)
            echo.faults.add(Fault(body=body, headers={"Content-Encoding": "gzip"}))
        assert len(http.send("POST", f"{echo.url}/x", b"", {}, Deadline(10)).body) == 16 * MEBIBYTE
        tracemalloc.start()
        for _ in range(3):
            with pytest.raises(TooLargeError) as caught:
                http.send("POST", f"{echo.url}/x", b"", {}, Deadline(10))
            errors.append(caught.value)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < len(errors) * 16 * MEBIBYTE / 2

    @pytest.mark.parametrize("status", [302, 307, 400, 403, 413])
    def test_everything_else_is_final(self, echo: Echo, status: int) -> None:
        echo.faults.add(Fault(status=status, body="no\n way", headers={"Location": f"{echo.url}/y"}))
        with pytest.raises(RejectedError, match=f"answered {status}: no way") as caught:
            post(echo)
        assert (caught.value.status, caught.value.body) == (status, b"no\n way")
        assert len(echo.requests) == 1


class TestRetriedRequest:
    @pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", b"hello")])
    def test_request_is_retried_until_it_succeeds(
        self, echo: Echo, time: Time, method: str, body: bytes | None
    ) -> None:
        report = Report()
        http = Http(echo.url, CoreSettings(), report, setting="FLEETGAUGE_QUEUE_URL")
        for _ in range(2):
            echo.faults.add(Fault(status=503, headers={"Retry-After": "7"}))
        echo.faults.add(Fault(body='{"a": 1}'))
        deadline = Deadline(1000, time, time.sleep)
        reply = http.request(method, f"{echo.url}/x?y=1", deadline, {"X-Key": "k"}, body)
        assert (reply.status, reply.document, report.requests) == (200, {"a": 1}, 3)
        assert all(7 <= nap <= 7.5 for nap in time.naps)
        [_, _, last] = echo.requests
        assert (last.method, last.target, last.headers["X-Key"]) == (method, "/x?y=1", "k")
        assert last.body == (body or b"")

    def test_failure_until_the_deadline_is_an_error_of_the_source(self, echo: Echo, time: Time) -> None:
        echo.close()
        with pytest.raises(SourceError, match=r"refused\); check WANDB_BASE_URL \(tried \d+ times\)$"):
            connected().request("GET", echo.url, Deadline(20, time, time.sleep), {})
        assert sum(time.naps) < 20


class TestBounds:
    def test_a_server_that_hangs_costs_no_more_than_the_deadline(self, echo: Echo) -> None:
        echo.faults.add(Fault(hang=True))
        with pytest.raises(TimedOutError, match=r"read timeout=0\.[12]"):
            post(echo, seconds=0.2)

    def test_a_server_that_drips_is_cut_off_at_the_deadline(self) -> None:
        stop = threading.Event()
        with closing(socket.create_server(("127.0.0.1", 0))) as listening:

            def drip() -> None:
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                    while not stop.wait(0.01):
                        try:
                            connection.sendall(b"x")
                        except OSError:
                            return

            dripping = threading.Thread(target=drip)
            dripping.start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            with pytest.raises(DeadlineExceededError):
                connected().send("POST", url, b"", {}, Deadline(0.3))
            stop.set()
            dripping.join()

    def test_once_the_time_is_over_nothing_is_sent(self, echo: Echo) -> None:
        report = Report()
        with pytest.raises(DeadlineExceededError):
            connected(report).send("POST", f"{echo.url}/x", b"", {}, Deadline(-1))
        assert (report.requests, echo.requests) == (0, [])


class TestCertificates:
    @pytest.mark.parametrize(
        ("name", "is_trusted", "configuration", "reason"),
        [("127.0.0.1", False, False, "self.signed certificate"), ("other.invalid", True, True, "mismatch")],
    )
    def test_a_wrong_certificate_is_final_and_for_another_host_configuration(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        is_trusted: bool,
        configuration: bool,
        reason: str,
    ) -> None:
        certificate = self_signed(tmp_path, name)
        if is_trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        context = server_context(certificate)
        with closing(socket.create_server(("127.0.0.1", 0))) as listening:

            def greet() -> None:
                connection, _ = listening.accept()
                with connection, suppress(ssl.SSLError):
                    context.wrap_socket(connection, server_side=True)

            greeting = threading.Thread(target=greet)
            greeting.start()
            host = f"127.0.0.1:{listening.getsockname()[1]}"
            expected = rf"^cannot reach {host} \(TLS: .*{reason}.*\); check WANDB_BASE_URL$"
            with pytest.raises(FleetgaugeError, match=expected) as caught:
                connected().send("POST", f"https://{host}/", b"", {}, Deadline(10))
            assert caught.value.configuration is configuration
            greeting.join()
