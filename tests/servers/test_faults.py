"""Faults, hooks and connections of every test server, tried on the intake with urllib3 and bare sockets."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing, suppress
from typing import Any

import pytest
import urllib3
from urllib3.exceptions import ProtocolError, ProxyError, ReadTimeoutError

from support.servers.datadog import Intake
from support.servers.faults import Fault

NOW = 1_800_000_000
KEY = "test-api-key"
Pool = urllib3.PoolManager


def payload(value: float, *tags: str, at: int = NOW) -> bytes:
    points = [{"timestamp": at, "value": value}]
    series = {"metric": "host.load", "type": 3, "points": points, "tags": tags}
    return json.dumps({"series": [series]}).encode()


def push(pool: Pool, intake: Intake, value: float = 1, *tags: str, at: int = NOW) -> urllib3.BaseHTTPResponse:
    url = f"{intake.url}/api/v2/series"
    return pool.request("POST", url, body=payload(value, *tags, at=at), headers={"DD-API-KEY": KEY})


def exchange(intake: Intake, length: int | None = None, value: float = 1) -> bytes:
    """Send a push byte by byte as it is, end the sending if it is not all, and return what comes back."""
    body = payload(value)
    head = (
        f"POST /api/v2/series HTTP/1.1\r\nDD-API-KEY: {KEY}\r\nContent-Length: {length or len(body)}\r\n\r\n"
    )
    received = b""
    with closing(connected(intake)) as connection:
        connection.sendall(head.encode() + body)
        if length is not None:
            connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.2)
        with suppress(TimeoutError):
            while chunk := connection.recv(4096):
                received += chunk
    return received


def connected(intake: Intake) -> socket.socket:
    host, _, port = intake.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def test_faults_come_in_order_and_end(intake: Intake, pool: Pool) -> None:
    intake.faults.add(Fault())
    intake.faults.add(Fault(status=429, headers={"Retry-After": "2"}), times=2)
    answers = [push(pool, intake, value) for value in range(4)]
    assert [answer.status for answer in answers] == [202, 429, 429, 202]
    assert answers[1].headers["Retry-After"] == "2"
    assert answers[1].json() == {"errors": ["Too Many Requests"]}
    assert [write.value for write in intake.write_log] == [0, 3]
    assert [request.status for request in intake.requests] == [202, 429, 429, 202]


def test_fault_without_end_lasts_until_cleared_where_it_matches(intake: Intake, pool: Pool) -> None:
    intake.faults.add(Fault(status=599), times=None, match="/api/v2/series")
    assert [push(pool, intake).status for _ in range(3)] == [599] * 3
    answer = pool.request("GET", f"{intake.url}/api/v1/validate", headers={"DD-API-KEY": KEY})
    assert answer.status == 200
    intake.faults.clear()
    assert push(pool, intake).status == 202
    with pytest.raises(ValueError, match="cannot have been applied"):
        Fault(reset="before", applied=True)
    with pytest.raises(ValueError, match="at least once"):
        intake.faults.add(Fault(), times=0)


def test_headers_and_body_can_be_changed_in_a_true_answer(intake: Intake, pool: Pool) -> None:
    intake.faults.add(Fault(headers={"date": None, "content-type": "text/html"}, body="<html>", delay=0.01))
    answer = push(pool, intake, 3)
    assert (answer.status, answer.data, answer.headers["Content-Type"]) == (202, b"<html>", "text/html")
    assert "Date" not in answer.headers
    assert intake.value("host.load") == 3


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(
    ("fault", "error"),
    [({"status": 500}, None), ({"reset": "after"}, ProtocolError), ({"hang": True}, ReadTimeoutError)],
)
def test_failed_request_may_have_taken_effect(
    intake: Intake, fault: dict[str, Any], error: type[Exception] | None, applied: bool
) -> None:
    intake.faults.add(Fault(**fault, applied=applied))
    reached = threading.Event()
    intake.on("applied" if applied else "read", lambda request: reached.set())
    with Pool(retries=False, timeout=0.1 if "hang" in fault else 5) as pool:
        if error is None:
            assert push(pool, intake, 3).status == 500
        else:
            with pytest.raises(error):
                push(pool, intake, 3)
    assert reached.wait(5)
    assert intake.value("host.load") == (3 if applied else None)
    assert intake.requests[0].status == fault.get("status")


@pytest.mark.parametrize("when", ["before", "after"])
def test_reset_is_a_reset_and_the_next_request_succeeds(intake: Intake, pool: Pool, when: Any) -> None:
    intake.faults.add(Fault(reset=when), times=2)
    with pytest.raises(ProtocolError) as caught:
        push(pool, intake)
    assert isinstance(caught.value.args[1], ConnectionResetError | BrokenPipeError)
    assert (intake.requests[0].wire_size > 0) == (when == "after")
    with pytest.raises(ConnectionError):
        exchange(intake)
    assert push(pool, intake).status == 202


def test_answer_can_stop_behind_its_head_or_in_the_middle(intake: Intake, pool: Pool) -> None:
    intake.faults.add(Fault(stall=True))
    received = exchange(intake)
    assert received.startswith(b"HTTP/1.1 202 ")
    assert received.endswith(b"\r\n\r\n")
    intake.faults.add(Fault(truncate=True))
    with pytest.raises(ProtocolError, match="7 bytes read, 7 more expected"):
        push(pool, intake, 3)
    assert [write.value for write in intake.write_log] == [1, 3]


def test_server_taken_for_a_proxy_can_refuse_to_connect(intake: Intake) -> None:
    intake.faults.add(Fault(status=407))
    proxy = urllib3.ProxyManager(intake.url, retries=False, timeout=5)
    with pytest.raises(ProxyError, match="407"):
        proxy.request("GET", "https://api.datadoghq.invalid/")
    [request] = intake.requests
    assert (request.method, request.target) == ("CONNECT", "api.datadoghq.invalid:443")


def test_each_hook_sees_the_request_as_far_as_it_came(intake: Intake, pool: Pool) -> None:
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


@pytest.mark.parametrize("fault", [Fault(), Fault(hang=True), Fault(delay=60)])
def test_blocked_request_holds_up_neither_another_nor_the_end(intake: Intake, fault: Fault) -> None:
    intake.faults.add(fault)
    entered, released = threading.Event(), threading.Event()

    def block_the_first(request: object) -> None:
        if not entered.is_set():
            entered.set()
            released.wait(0 if fault.hang or fault.delay else 30)

    failures: list[Exception] = []

    def push_first() -> None:
        try:
            push(pool, intake)
        except ProtocolError as error:
            failures.append(error)

    intake.on("read", block_the_first)
    with Pool(retries=False, timeout=30) as pool:
        first = threading.Thread(target=push_first)
        first.start()
        assert entered.wait(5)
        assert push(pool, intake, 2).status == 202
        intake.close()
        first.join(5)
    assert len(failures) == 1
    assert [request.status for request in intake.requests] == [None, 202]
    released.set()
    with pytest.raises(ConnectionRefusedError):
        connected(intake)
    intake.close()


def test_sender_that_dies_in_the_middle_of_its_body_changes_nothing(intake: Intake) -> None:
    assert exchange(intake, length=1000) == b""
    assert (intake.points, intake.requests[0].status) == ({}, None)


def test_connection_serves_many_requests_and_writers_at_once_lose_nothing(intake: Intake) -> None:
    connections = []

    def write(writer: int) -> None:
        with Pool(retries=False) as own:
            for second in range(20):
                push(own, intake, writer, f"writer:w{writer}", at=NOW - second)
            connections.append(own.connection_from_url(intake.url).num_connections)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert connections == [1] * 4
    assert len(intake.points) == len(intake.write_log) == 80
