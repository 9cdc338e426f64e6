"""The intake every delivery test trusts, tested with the real client and with urllib3."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import urllib3
from datadog_api_client import ApiClient, Configuration
from datadog_api_client.exceptions import ApiException
from datadog_api_client.v1.api.authentication_api import AuthenticationApi
from datadog_api_client.v2.api.metrics_api import MetricsApi

from common.records.compression import zstd
from support.servers.datadog import Intake, PointKey, Write
from support.servers.series import POINT_LIMIT, RAW_LIMIT, WIRE_LIMIT

NOW = 1_800_000_000
KEY = "test-api-key"
# Without the time, because bytes are part of the names of tests, which all workers must agree on.
zip_bytes = partial(gzip.compress, mtime=0)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": zip_bytes, "zstd1": zstd.compress}
SERIES = "/api/v2/series"
OTHERS = [{"timestamp": NOW, "value": 1}] * POINT_LIMIT


def one(value: float = 1, at: int = NOW, metric: str = "host.load", **fields: Any) -> dict[str, Any]:
    return {"metric": metric, "type": 3, "points": [{"timestamp": at, "value": value}], **fields}


def push(pool: urllib3.PoolManager, intake: Intake, *series: object) -> urllib3.BaseHTTPResponse:
    return send(pool, intake, json.dumps({"series": series}).encode())


def send(
    pool: urllib3.PoolManager, intake: Intake, body: bytes, encoding: str = "identity"
) -> urllib3.BaseHTTPResponse:
    headers = {"DD-API-KEY": KEY, "Content-Encoding": encoding}
    return pool.request("POST", intake.url + SERIES, body=body, headers=headers)


def official(intake: Intake, **keys: str) -> MetricsApi:
    """Return the official client, with both keys unless others are given."""
    configuration = Configuration(
        host=intake.url,
        api_key={"apiKeyAuth": KEY, "appKeyAuth": intake.app_key, **keys},
        check_input_type=False,
    )
    for verb in ("create", "get"):
        configuration.unstable_operations[f"{verb}_historical_metrics_configuration"] = True
    return MetricsApi(ApiClient(configuration))


def test_the_official_client_is_understood(intake: Intake) -> None:
    tagged = one(0.5, tags=["env:dev"], resources=[{"type": "host", "name": "node-1"}])
    payload: Any = {"series": [tagged]}  # plain dictionaries, which its annotations do not admit
    encoding: Any = "gzip"
    api = official(intake)
    assert api.submit_metrics(payload, content_encoding=encoding).errors == []
    assert AuthenticationApi(api.api_client).validate().valid is True
    assert intake.points == {PointKey("host.load", ("env:dev",), "node-1", NOW): 0.5}
    assert (intake.payloads, intake.types) == ([payload], {"host.load": "gauge"})


@pytest.mark.filterwarnings("ignore:Using unstable operation")
def test_old_points_are_stored_once_historical_ingestion_is_on(
    intake: Intake, pool: urllib3.PoolManager
) -> None:
    def call(verb: str, argument: object, **keys: str) -> object:
        operation = getattr(official(intake, **keys), f"{verb}_historical_metrics_configuration")
        try:
            return operation(argument).data.id
        except ApiException as error:
            return error.status

    load: Any = {"data": {"id": "host.load", "type": "historical_metrics_configurations"}}
    push(pool, intake, one(at=NOW - 3601))
    assert (call("create", load), intake.points) == (404, {})  # a metric without a point does not exist
    push(pool, intake, one())
    assert call("get", "host.load") == 404
    assert [call("create", load), call("create", load), call("get", "host.load")] == ["host.load"] * 3
    push(pool, intake, one(at=NOW - 86_400), one(at=NOW - 86_400, metric="jobs.done"), one(at=NOW + 601))
    assert {key.second for key in intake.points} == {NOW, NOW - 86_400}
    assert [request.dropped for request in intake.requests if request.path == SERIES] == [1, 0, 2]
    for keys in ({"appKeyAuth": "wrong"}, {"apiKeyAuth": "wrong"}):
        assert [call("create", load, **keys), call("get", "host.load", **keys)] == [403, 403]
    assert call("create", {"data": {"id": "host.load", "type": "metrics"}}) == 400
    intake.tag_configured.add("jobs.done")
    assert call("create", {"data": {**load["data"], "id": "jobs.done"}}) == 422
    intake.permissions.clear()
    assert [call("create", load), call("get", "host.load")] == [403, 403]


@pytest.mark.parametrize(("method", "path"), [("POST", SERIES), ("GET", "/api/v1/validate")])
@pytest.mark.parametrize("headers", [{"DD-API-KEY": "wrong"}, {}])
def test_a_wrong_or_missing_key_is_forbidden(
    intake: Intake, pool: urllib3.PoolManager, method: str, path: str, headers: dict[str, str]
) -> None:
    body = json.dumps({"series": [one()]})
    answer = pool.request(method, intake.url + path, body=body, headers=headers)
    assert (answer.status, answer.json(), intake.points) == (403, {"errors": ["Forbidden"]}, {})


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


def test_the_last_write_wins_for_counts_too(intake: Intake, pool: urllib3.PoolManager) -> None:
    push(pool, intake, one(5, type=1))
    push(pool, intake, one(7, type=1))
    key = PointKey("host.load", (), None, NOW)
    assert intake.points == {key: 7}
    assert intake.write_log == [Write(key, 5, None), Write(key, 7, 5)]


def test_points_outside_the_window_vanish_without_a_word(intake: Intake, pool: urllib3.PoolManager) -> None:
    for at, dropped in ((NOW - 3600, 0), (NOW - 3601, 1), (NOW + 600, 1), (NOW + 601, 2)):
        answer = push(pool, intake, one(at=at))
        assert (answer.status, answer.json(), intake.dropped) == (202, {"errors": []}, dropped)
    assert answer.headers["Date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
    intake.clock = lambda: NOW + 7200
    assert push(pool, intake, one()).headers["Date"] == "Fri, 15 Jan 2027 10:00:00 GMT"
    assert (intake.dropped, len(intake.points)) == (3, 2)


def test_tags_are_stored_as_datadog_spells_them(intake: Intake, pool: urllib3.PoolManager) -> None:
    push(pool, intake, one(tags=["Run:A b", "env:dev", "42"]))
    assert ([key.tags for key in intake.points], len(intake.notes)) == ([("env:dev", "run:a_b")], 2)
