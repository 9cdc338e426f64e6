"""The intake every delivery test trusts: the official client is understood, and what is wrong is refused."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import urllib3
from datadog_api_client import ApiClient, Configuration
from datadog_api_client.v1.api.authentication_api import AuthenticationApi
from datadog_api_client.v2.api.metrics_api import MetricsApi
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from common.records.compression import zstd
from support.servers.datadog import Intake, PointKey
from support.servers.faults import Fault
from support.servers.series import POINT_LIMIT, RAW_LIMIT, WIRE_LIMIT

NOW = 1_800_000_000
KEY = "test-api-key"
# Without the time, because bytes are part of the names of tests, which all workers must agree on.
zip_bytes = partial(gzip.compress, mtime=0)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": zip_bytes, "zstd1": zstd.compress}
SERIES = "/api/v2/series"
OTHERS = [{"timestamp": NOW, "value": 1}] * POINT_LIMIT


@pytest.fixture
def intake() -> Iterator[Intake]:
    """An intake at a fixed second."""
    with Intake(KEY, clock=lambda: NOW) as running:
        yield running


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=5) as manager:
        yield manager


def one(value: float = 1, at: int = NOW, metric: str = "host.load", **fields: Any) -> dict[str, Any]:
    return {"metric": metric, "type": 3, "points": [{"timestamp": at, "value": value}], **fields}


def push(pool: urllib3.PoolManager, intake: Intake, *series: object) -> urllib3.BaseHTTPResponse:
    return send(pool, intake, json.dumps({"series": series}).encode())


def send(
    pool: urllib3.PoolManager, intake: Intake, body: bytes, encoding: str = "identity"
) -> urllib3.BaseHTTPResponse:
    headers = {"DD-API-KEY": KEY, "Content-Encoding": encoding}
    return pool.request("POST", intake.url + SERIES, body=body, headers=headers)


@pytest.mark.filterwarnings("ignore:Using unstable operation")
def test_the_official_client_is_understood(intake: Intake) -> None:
    keys = {"apiKeyAuth": KEY, "appKeyAuth": intake.app_key}
    configuration = Configuration(host=intake.url, api_key=keys, check_input_type=False)
    for verb in ("create", "get"):
        configuration.unstable_operations[f"{verb}_historical_metrics_configuration"] = True
    api = MetricsApi(ApiClient(configuration))
    tagged = one(0.5, tags=["env:dev"], resources=[{"type": "host", "name": "node-1"}])
    payload: Any = {"series": [tagged]}  # plain dictionaries, which its annotations do not admit
    encoding: Any = "gzip"
    assert api.submit_metrics(payload, content_encoding=encoding).errors == []
    assert AuthenticationApi(api.api_client).validate().valid is True
    assert intake.points == {PointKey("host.load", ("env:dev",), "node-1", NOW): 0.5}
    assert (intake.payloads, intake.types) == ([payload], {"host.load": "gauge"})
    load: Any = {"data": {"id": "host.load", "type": "historical_metrics_configurations"}}
    assert api.create_historical_metrics_configuration(load).data.id == "host.load"
    assert api.get_historical_metrics_configuration("host.load").data.id == "host.load"


def padded(size: int) -> bytes:
    return json.dumps({"series": [one()]}).encode().ljust(size)


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b"x" * WIRE_LIMIT, "identity", 400),
        (b"x" * (WIRE_LIMIT + 1), "identity", 413),
        *((COMPRESS[name](padded(RAW_LIMIT)), name, 202) for name in COMPRESS),
        *((COMPRESS[name](padded(RAW_LIMIT + 1)), name, 413) for name in COMPRESS),
        *(
            (zip_bytes(json.dumps({"series": [one() | {"points": points}]}).encode()), "gzip", status)
            for points, status in ((OTHERS, 202), ([*OTHERS, OTHERS[0]], 413))
        ),
        *((b'{"series": []}', name, 400) for name in (*COMPRESS, "br")),
        (zip_bytes(padded(99))[:-1], "gzip", 400),
        (b"{", "identity", 400),
        (b'{"series": [\xff]}', "identity", 400),
        (b"[]", "identity", 400),
        *((b'{"series": [{"metric": %s}]}' % name, "identity", 400) for name in (b"NaN", b"-Infinity")),
        (padded(99).replace(b'"value": 1', b'"value": 1e999'), "identity", 400),
    ],
)
def test_limits_and_encodings_are_enforced(
    intake: Intake, pool: urllib3.PoolManager, body: bytes, encoding: str, status: int
) -> None:
    assert send(pool, intake, body, encoding).status == status


@pytest.mark.parametrize(
    ("series", "problem"),
    [
        ("host.load", "not an object"),
        ({"type": 3, "points": []}, "missing fields: metric"),
        (one(tag=["env:dev"]), "unknown fields: tag"),
        (one(metric="1st"), "'1st' is not a metric name"),
        (one(metric="a" * 201), f"'{'a' * 201}' is not a metric name"),
        (one(type=0), "0 is not a type: 1 count, 2 rate, 3 gauge"),
        (one(tags="env:dev"), "tags are not a list of strings"),
        (one(unit="point"), "'point' is not a unit of Datadog's catalogue"),
        (one(points=[]), "points are not a list of at least one"),
        (one(points=[[NOW, 1]]), "a point is not an object with timestamp and value"),
        (one(at=NOW + 0.5), f"{NOW}.5 is not a timestamp in whole seconds"),  # type: ignore[arg-type]
        (one("1"), "'1' is not a finite number"),  # type: ignore[arg-type]
        (one(10**400), "int too large to convert to float"),
        (one(resources=["node-1"]), "resources are not a host with a name"),
        (one(resources=[{"type": "host", "name": ""}]), "resources are not a host with a name"),
    ],
)
def test_what_is_not_a_series_is_named_and_nothing_is_stored(
    intake: Intake, pool: urllib3.PoolManager, series: object, problem: str
) -> None:
    answer = push(pool, intake, one(), series)
    assert (answer.status, answer.json()) == (400, {"errors": [f"series[1]: {problem}"]})
    assert (intake.points, intake.payloads, intake.types) == ({}, [], {})


def test_points_outside_the_window_vanish_without_a_word(intake: Intake, pool: urllib3.PoolManager) -> None:
    for at, dropped in ((NOW - 3600, 0), (NOW - 3601, 1), (NOW + 600, 1), (NOW + 601, 2)):
        answer = push(pool, intake, one(at=at))
        assert (answer.status, answer.json(), intake.dropped) == (202, {"errors": []}, dropped)


def test_tags_are_stored_as_datadog_spells_them(intake: Intake, pool: urllib3.PoolManager) -> None:
    push(pool, intake, one(tags=["Run:A b", "env:dev", "42"]))
    assert ([key.tags for key in intake.points], len(intake.notes)) == ([("env:dev", "run:a_b")], 2)


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
    with urllib3.PoolManager(retries=False, timeout=0.1 if "hang" in fault else 5) as pool:
        if error is None:
            assert push(pool, intake, one(3)).status == 500
        else:
            with pytest.raises(error):
                push(pool, intake, one(3))
    assert reached.wait(5)
    assert intake.value("host.load") == (3 if applied else None)
    assert intake.requests[0].status == fault.get("status")
