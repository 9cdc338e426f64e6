"""Faults, hooks and connections of every test server, tried on the intake with urllib3 and bare sockets."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import closing, suppress
from typing import Any

import pytest
import urllib3

from support.servers.datadog import Intake
from support.servers.faults import Fault

NOW = 1_800_000_000
KEY = "test-api-key"


def payload(value: float, *tags: str, at: int = NOW) -> bytes:
    points = [{"timestamp": at, "value": value}]
    series = {"metric": "host.load", "type": 3, "points": points, "tags": tags}
    return json.dumps({"series": [series]}).encode()


def push(
    pool: urllib3.PoolManager, intake: Intake, value: float = 1, *tags: str, at: int = NOW
) -> urllib3.BaseHTTPResponse:
    url = f"{intake.url}/api/v2/series"
    return pool.request("POST", url, body=payload(value, *tags, at=at), headers={"DD-API-KEY": KEY})


def connected(intake: Intake) -> socket.socket:
    host, _, port = intake.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=5)


class TestFaults:
    def test_they_come_in_order_and_end(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        intake.faults.add(Fault())
        intake.faults.add(Fault(status=429, headers={"Retry-After": "2"}), times=2)
        answers = [push(pool, intake, value) for value in range(4)]
        assert [answer.status for answer in answers] == [202, 429, 429, 202]
        assert answers[1].headers["Retry-After"] == "2"
        assert answers[1].json() == {"errors": ["Too Many Requests"]}
        assert [write.value for write in intake.write_log] == [0, 3]
        assert [request.status for request in intake.requests] == [202, 429, 429, 202]

    def test_one_without_end_lasts_until_cleared(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        intake.faults.add(Fault(status=599), times=None, match="/api/v2/series")
        assert [push(pool, intake).status for _ in range(3)] == [599] * 3
        answer = pool.request("GET", f"{intake.url}/api/v1/validate", headers={"DD-API-KEY": KEY})
        assert answer.status == 200
        intake.faults.clear()
        assert push(pool, intake).status == 202

    def test_headers_and_body_can_be_changed_in_a_true_answer(
        self, intake: Intake, pool: urllib3.PoolManager
    ) -> None:
        intake.faults.add(Fault(headers={"date": None, "content-type": "text/html"}, body="<html>"))
        answer = push(pool, intake, 3)
        assert (answer.status, answer.data, answer.headers["Content-Type"]) == (202, b"<html>", "text/html")
        assert "Date" not in answer.headers
        assert intake.value("host.load") == 3

    @pytest.mark.parametrize("applied", [False, True])
    def test_a_request_that_failed_may_have_taken_effect(
        self, intake: Intake, pool: urllib3.PoolManager, applied: bool
    ) -> None:
        intake.faults.add(Fault(status=500, applied=applied))
        assert push(pool, intake, 3).status == 500
        assert intake.value("host.load") == (3 if applied else None)

    @pytest.mark.parametrize("applied", [False, True])
    def test_a_request_that_was_reset_may_have_taken_effect(
        self, intake: Intake, pool: urllib3.PoolManager, applied: bool
    ) -> None:
        intake.faults.add(Fault(reset="after", applied=applied))
        with pytest.raises(urllib3.exceptions.ProtocolError):
            push(pool, intake, 3)
        assert intake.value("host.load") == (3 if applied else None)
        assert intake.requests[0].status is None

    @pytest.mark.parametrize("applied", [False, True])
    def test_a_request_that_hung_may_have_taken_effect(self, intake: Intake, applied: bool) -> None:
        intake.faults.add(Fault(hang=True, applied=applied))
        reached = threading.Event()
        intake.on("applied" if applied else "read", lambda request: reached.set())
        with (
            urllib3.PoolManager(retries=False, timeout=0.1) as impatient,
            pytest.raises(urllib3.exceptions.ReadTimeoutError),
        ):
            push(impatient, intake, 3)
        assert reached.wait(5)
        assert intake.value("host.load") == (3 if applied else None)
        assert intake.requests[0].status is None

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_reset_is_a_reset_and_the_next_request_succeeds(
        self, intake: Intake, pool: urllib3.PoolManager, when: Any
    ) -> None:
        intake.faults.add(Fault(reset=when))
        with pytest.raises(urllib3.exceptions.ProtocolError) as caught:
            push(pool, intake)
        assert isinstance(caught.value.args[1], ConnectionResetError | BrokenPipeError)
        assert (intake.requests[0].wire_size > 0) == (when == "after")
        assert push(pool, intake).status == 202

    def test_a_reset_of_a_read_request_says_nothing_else(self, intake: Intake) -> None:
        intake.faults.add(Fault(reset="after"))
        with closing(connected(intake)) as raw:
            raw.sendall(b"GET /api/v1/validate HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                raw.recv(1)

    def test_an_answer_can_stop_behind_its_head(self, intake: Intake) -> None:
        intake.faults.add(Fault(stall=True))
        with closing(connected(intake)) as connection:
            body = payload(1)
            head = f"POST /api/v2/series HTTP/1.1\r\nDD-API-KEY: {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            connection.settimeout(0.2)
            received = b""
            with suppress(TimeoutError):
                while chunk := connection.recv(4096):
                    received += chunk
        assert received.startswith(b"HTTP/1.1 202 ")
        assert received.endswith(b"\r\n\r\n")
        assert intake.points

    @pytest.mark.parametrize("status", [403, 407])
    def test_a_server_taken_for_a_proxy_can_refuse_to_connect(self, intake: Intake, status: int) -> None:
        intake.faults.add(Fault(status=status))
        proxy = urllib3.ProxyManager(intake.url, retries=False, timeout=5)
        with pytest.raises(urllib3.exceptions.ProxyError, match=str(status)):
            proxy.request("GET", "https://api.datadoghq.invalid/")
        assert [(request.method, request.target) for request in intake.requests] == [
            ("CONNECT", "api.datadoghq.invalid:443")
        ]

    def test_a_truncated_answer_promises_more_than_it_sends(
        self, intake: Intake, pool: urllib3.PoolManager
    ) -> None:
        intake.faults.add(Fault(truncate=True))
        with pytest.raises(urllib3.exceptions.ProtocolError, match="7 bytes read, 7 more expected"):
            push(pool, intake, 3)
        assert intake.value("host.load") == 3

    def test_a_delayed_answer_comes(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        intake.faults.add(Fault(delay=0.05))
        started = time.monotonic()
        assert push(pool, intake).status == 202
        assert time.monotonic() - started >= 0.05

    @pytest.mark.parametrize("fault", [Fault(hang=True), Fault(delay=60)])
    def test_closing_ends_a_hanging_request_at_once(
        self, intake: Intake, pool: urllib3.PoolManager, fault: Fault
    ) -> None:
        intake.faults.add(fault)
        reached = threading.Event()
        intake.on("read", lambda request: reached.set())
        failures: list[Exception] = []

        def hang() -> None:
            try:
                push(pool, intake)
            except urllib3.exceptions.ProtocolError as error:
                failures.append(error)

        client = threading.Thread(target=hang)
        client.start()
        assert reached.wait(5)
        started = time.monotonic()
        intake.close()
        client.join(5)
        assert time.monotonic() - started < 1
        assert len(failures) == 1

    def test_a_plan_that_cannot_happen_is_refused(self, intake: Intake) -> None:
        with pytest.raises(ValueError, match="cannot have been applied"):
            Fault(reset="before", applied=True)
        with pytest.raises(ValueError, match="at least once"):
            intake.faults.add(Fault(), times=0)


class TestHooks:
    def test_each_point_sees_the_request_as_far_as_it_came(
        self, intake: Intake, pool: urllib3.PoolManager
    ) -> None:
        seen: list[tuple[str, bool, float | None, int | None]] = []
        done = threading.Event()
        for point in ("received", "read", "applied", "answered"):

            def note(request: Any, point: str = point) -> None:
                seen.append((point, bool(request.body), intake.value("host.load"), request.status))

            intake.on(point, note)
        intake.on("answered", lambda request: done.set())
        push(pool, intake, 3)
        assert done.wait(5)
        assert seen == [
            ("received", False, None, None),
            ("read", True, None, None),
            ("applied", True, 3, None),
            ("answered", True, 3, 202),
        ]

    def test_one_blocked_request_holds_up_neither_another_nor_the_end(
        self, intake: Intake, pool: urllib3.PoolManager
    ) -> None:
        entered, released = threading.Event(), threading.Event()

        def block_the_first(request: object) -> None:
            if not entered.is_set():
                entered.set()
                released.wait(10)

        def push_first() -> None:
            with pytest.raises(urllib3.exceptions.ProtocolError):
                push(pool, intake, 1)

        intake.on("applied", block_the_first)
        first = threading.Thread(target=push_first)
        first.start()
        assert entered.wait(5)
        assert push(pool, intake, 2).status == 202
        assert [write.value for write in intake.write_log] == [1, 2]
        started = time.monotonic()
        intake.close()
        first.join(5)
        assert time.monotonic() - started < 1
        assert [request.status for request in intake.requests] == [None, 202]
        released.set()

    def test_a_sender_that_dies_in_the_middle_of_its_body_changes_nothing(self, intake: Intake) -> None:
        body = payload(1)
        head = f"POST /api/v2/series HTTP/1.1\r\nDD-API-KEY: {KEY}\r\nContent-Length: {len(body) + 1}\r\n\r\n"
        with closing(connected(intake)) as raw:
            raw.sendall(head.encode() + body)
            raw.shutdown(socket.SHUT_WR)
            assert raw.recv(1) == b""
        assert (intake.points, intake.requests[0].status) == ({}, None)


class TestConnections:
    def test_one_connection_serves_many_requests(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        for value in range(3):
            push(pool, intake, value)
        assert pool.connection_from_url(intake.url).num_connections == 1

    def test_writers_at_once_lose_nothing(self, intake: Intake) -> None:
        def write(writer: int) -> None:
            with urllib3.PoolManager(retries=False) as own:
                for second in range(20):
                    push(own, intake, writer, f"writer:w{writer}", at=NOW - second)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(30)
        assert len(intake.points) == len(intake.write_log) == 80

    def test_a_closed_intake_refuses_connections(self, intake: Intake) -> None:
        intake.close()
        intake.close()
        with pytest.raises(ConnectionRefusedError):
            connected(intake)
