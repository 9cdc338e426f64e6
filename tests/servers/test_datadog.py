"""The intake every delivery test trusts, tested with the real client and with urllib3."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import urllib3
from datadog_api_client import ApiClient, Configuration
from datadog_api_client.v1.api.authentication_api import AuthenticationApi
from datadog_api_client.v2.api.metrics_api import MetricsApi

from common.records.compression import zstd
from support.servers.datadog import Intake, PointKey, Write
from support.servers.series import POINT_LIMIT, RAW_LIMIT, WIRE_LIMIT, normalised

NOW = 1_800_000_000
KEY = "test-api-key"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


def one(value: float = 1, at: int = NOW, metric: str = "host.load", **fields: Any) -> dict[str, Any]:
    return {"metric": metric, "type": 3, "points": [{"timestamp": at, "value": value}], **fields}


def push(pool: urllib3.PoolManager, intake: Intake, *series: object) -> urllib3.BaseHTTPResponse:
    return send(pool, intake, json.dumps({"series": series}).encode())


def send(
    pool: urllib3.PoolManager, intake: Intake, body: bytes, encoding: str | None = None
) -> urllib3.BaseHTTPResponse:
    headers = {"DD-API-KEY": KEY} | ({"Content-Encoding": encoding} if encoding else {})
    return pool.request("POST", f"{intake.url}/api/v2/series", body=body, headers=headers)


class TestAcceptance:
    @pytest.mark.parametrize("encoding", ["gzip", "deflate", None])
    def test_the_official_client_is_understood_in_every_encoding_it_brings(
        self, intake: Intake, encoding: str | None
    ) -> None:
        configuration = Configuration(host=intake.url, api_key={"apiKeyAuth": KEY}, check_input_type=False)
        tagged = one(0.5, tags=["env:dev"], resources=[{"type": "host", "name": "node-1"}])
        options: dict[str, Any] = {"content_encoding": encoding} if encoding else {}
        payload: Any = {"series": [tagged]}  # plain dictionaries, which its annotations do not admit
        with ApiClient(configuration) as client:
            metrics = MetricsApi(client)
            assert metrics.submit_metrics(payload, **options).errors == []
            authentication = AuthenticationApi(client)
            assert authentication.validate().valid is True
        assert intake.points == {PointKey("host.load", ("env:dev",), "node-1", NOW): 0.5}
        assert [(each.method, each.path, each.status) for each in intake.requests] == [
            ("POST", "/api/v2/series", 202),
            ("GET", "/api/v1/validate", 200),
        ]
        assert intake.payloads == [payload]
        assert intake.types == {"host.load": "gauge"}

    def test_sizes_and_points_of_a_request_are_recorded(
        self, intake: Intake, pool: urllib3.PoolManager
    ) -> None:
        raw = json.dumps({"series": [one(), one(at=NOW - 3601)]}).encode()
        body = zstd.compress(raw)
        assert send(pool, intake, body, "zstd1").status == 202
        (request,) = intake.requests
        assert (request.wire_size, request.raw_size) == (len(body), len(raw))
        assert (request.points, request.dropped) == (2, 1)
        assert request.headers["dd-api-key"] == KEY

    @pytest.mark.parametrize(("method", "path"), [("POST", "/api/v2/series"), ("GET", "/api/v1/validate")])
    @pytest.mark.parametrize("headers", [{"DD-API-KEY": "wrong"}, {}])
    def test_a_wrong_or_missing_key_is_forbidden(
        self, intake: Intake, pool: urllib3.PoolManager, method: str, path: str, headers: dict[str, str]
    ) -> None:
        body = json.dumps({"series": [one()]})
        answer = pool.request(method, intake.url + path, body=body, headers=headers)
        assert (answer.status, answer.json()) == (403, {"errors": ["Forbidden"]})
        assert intake.points == {}

    def test_a_202_can_carry_errors(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        intake.accepted_errors = ["one series was odd"]
        answer = push(pool, intake, one())
        assert (answer.status, answer.json()) == (202, {"errors": ["one series was odd"]})

    def test_another_path_is_not_found(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        answer = pool.request("POST", f"{intake.url}/api/v1/series", headers={"DD-API-KEY": KEY})
        assert answer.status == 404

    def test_it_serves_as_its_own_proxy(self, intake: Intake) -> None:
        with urllib3.ProxyManager(intake.url, retries=False) as proxy:
            url = "http://api.datadoghq.test/api/v1/validate"
            assert proxy.request("GET", url, headers={"DD-API-KEY": KEY}).status == 200
        assert [(each.path, each.target) for each in intake.requests] == [("/api/v1/validate", url)]


class TestLimits:
    @pytest.mark.parametrize(("over", "status"), [(0, 400), (1, 413)])
    def test_wire_bytes(self, intake: Intake, pool: urllib3.PoolManager, over: int, status: int) -> None:
        assert send(pool, intake, b"x" * (WIRE_LIMIT + over)).status == status

    @pytest.mark.parametrize(("over", "status"), [(0, 202), (1, 413)])
    @pytest.mark.parametrize("encoding", sorted(COMPRESS))
    def test_decompressed_bytes(
        self, intake: Intake, pool: urllib3.PoolManager, encoding: str, over: int, status: int
    ) -> None:
        raw = json.dumps({"series": [one()]}).encode().ljust(RAW_LIMIT + over)
        assert send(pool, intake, COMPRESS[encoding](raw), encoding).status == status

    @pytest.mark.parametrize(("count", "status"), [(POINT_LIMIT, 202), (POINT_LIMIT + 1, 413)])
    def test_points(self, intake: Intake, pool: urllib3.PoolManager, count: int, status: int) -> None:
        points = [{"timestamp": NOW, "value": 1}] * (count - 1)
        raw = json.dumps({"series": [one(), {"metric": "a", "type": 1, "points": points}]}).encode()
        assert send(pool, intake, gzip.compress(raw), "gzip").status == status

    def test_a_refused_payload_leaves_nothing(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        assert push(pool, intake, one(), one(metric="1st")).status == 400
        assert (intake.points, intake.payloads, intake.types) == ({}, [], {})


class TestShape:
    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            (b"{", "Unable to parse payload: Expecting property name"),
            (b'{"series": [\xff]}', "Unable to parse payload: 'utf-8'"),
            (b"[]", "Payload is not an object with a list named series"),
            (b'{"series": [{"metric": NaN}]}', "Unable to parse payload: NaN is not JSON"),
            (b'{"series": [{"metric": -Infinity}]}', "Unable to parse payload: -Infinity is not JSON"),
        ],
    )
    def test_what_is_not_a_payload_is_refused(
        self, intake: Intake, pool: urllib3.PoolManager, body: bytes, problem: str
    ) -> None:
        answer = send(pool, intake, body)
        assert answer.status == 400
        assert answer.json()["errors"][0].startswith(problem)

    @pytest.mark.parametrize(
        ("series", "problem"),
        [
            ("host.load", "not an object"),
            ({"type": 3, "points": []}, "missing fields: metric"),
            (one(tag=["env:dev"]), "unknown fields: tag"),
            (one(metric="1st"), "'1st' is not a metric name"),
            (one(metric="a" * 201), f"'{'a' * 201}' is not a metric name"),
            (one(type=0), "0 is not a type: 1 count, 2 rate, 3 gauge"),
            (one(type=True), "True is not a type: 1 count, 2 rate, 3 gauge"),
            (one(tags="env:dev"), "tags are not a list of strings"),
            (one(interval=0), "0 is not an interval in whole seconds"),
            (one(unit="point"), "'point' is not a unit of Datadog's catalogue"),
            (one(points=[]), "points are not a list of at least one"),
            (one(points=[[NOW, 1]]), "a point is not an object with timestamp and value"),
            (one(at=NOW + 0.5), f"{NOW}.5 is not a timestamp in whole seconds"),  # type: ignore[arg-type]
            (one("1"), "'1' is not a finite number"),  # type: ignore[arg-type]
            (one(True), "True is not a finite number"),
            (one(10**400), "int too large to convert to float"),
            (one(resources=["node-1"]), "resources are not a list of objects with type and name"),
            (
                one(resources=[{"type": "host", "name": ""}]),
                "resources are not a list of objects with type and name",
            ),
            (one(resources=[{"type": "host", "name": "a"}] * 2), "more than one resource is a host"),
        ],
    )
    def test_what_is_not_a_series_is_named(
        self, intake: Intake, pool: urllib3.PoolManager, series: object, problem: str
    ) -> None:
        answer = push(pool, intake, one(), series)
        assert (answer.status, answer.json()) == (400, {"errors": [f"series[1]: {problem}"]})

    def test_a_number_too_large_for_a_float_is_refused(
        self, intake: Intake, pool: urllib3.PoolManager
    ) -> None:
        body = json.dumps({"series": [one(7)]}).replace('"value": 7', '"value": 1e999').encode()
        assert send(pool, intake, body).json() == {"errors": ["series[0]: inf is not a finite number"]}

    @pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "br"])
    def test_a_body_that_is_not_in_its_encoding_is_refused(
        self, intake: Intake, pool: urllib3.PoolManager, encoding: str
    ) -> None:
        assert send(pool, intake, b'{"series": []}', encoding).status == 400

    def test_a_compressed_body_cut_short_is_refused(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        body = gzip.compress(json.dumps({"series": [one()]}).encode())
        answer = send(pool, intake, body[:-1], "gzip")
        assert answer.json() == {"errors": ["Unable to decompress: the stream is cut short"]}

    def test_a_metric_does_not_change_its_type(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        push(pool, intake, one(1))
        answer = push(pool, intake, one(2, type=1))
        assert (answer.status, answer.json()["errors"]) == (400, intake.notes)
        assert intake.notes == ["host.load is a gauge and came as a count"]
        assert intake.value("host.load") == 1


class TestState:
    def test_the_last_write_wins_for_counts_too(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        push(pool, intake, one(5, type=1))
        push(pool, intake, one(7, type=1))
        key = PointKey("host.load", (), None, NOW)
        assert intake.points == {key: 7}
        assert intake.write_log == [Write(key, 5, None), Write(key, 7, 5)]

    @pytest.mark.parametrize(
        ("at", "dropped"), [(NOW - 3600, 0), (NOW - 3601, 1), (NOW + 600, 0), (NOW + 601, 1)]
    )
    def test_points_outside_the_window_vanish_without_a_word(
        self, intake: Intake, pool: urllib3.PoolManager, at: int, dropped: int
    ) -> None:
        answer = push(pool, intake, one(at=at))
        assert (answer.status, answer.json()) == (202, {"errors": []})
        assert (intake.dropped, len(intake.points)) == (dropped, 1 - dropped)

    def test_the_window_and_the_date_follow_the_clock(
        self, intake: Intake, pool: urllib3.PoolManager
    ) -> None:
        assert push(pool, intake, one()).headers["Date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
        intake.clock = lambda: NOW + 7200
        assert push(pool, intake, one()).headers["Date"] == "Fri, 15 Jan 2027 10:00:00 GMT"
        assert intake.dropped == 1

    def test_questions_a_dashboard_would_ask(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        on_a: dict[str, Any] = {"resources": [{"type": "host", "name": "a"}]}
        push(pool, intake, one(1, NOW, tags=["gpu:0", "env:dev"], **on_a), one(3, metric="up"))
        push(pool, intake, one(2, NOW - 60, tags=["env:dev", "gpu:0"], **on_a), one(4, tags=["gpu:1"]))
        assert intake.names() == ["host.load", "up"]
        assert intake.series("host.load") == {
            (("env:dev", "gpu:0"), "a"): {NOW - 60: 2, NOW: 1},
            (("gpu:1",), None): {NOW: 4},
        }
        assert intake.value("host.load", ["gpu:0"]) == 1
        assert intake.value("host.load", host="a", at=NOW - 60) == 2
        assert intake.value("host.load", ["gpu:1"], at=NOW - 60) is None
        assert intake.value("host.load", ["gpu:2"]) is None
        with pytest.raises(LookupError, match="several series"):
            intake.value("host.load")

    def test_tags_that_differ_only_in_case_collapse(self, intake: Intake, pool: urllib3.PoolManager) -> None:
        push(pool, intake, one(1, tags=["run:a_b"]), one(2, tags=["Run:A b"]))
        assert intake.points == {PointKey("host.load", ("run:a_b",), None, NOW): 2}
        assert intake.notes == ["host.load: tag 'Run:A b' is stored as 'run:a_b'"]

    @pytest.mark.parametrize(
        ("wire", "stored"),
        [
            ("env:dev", "env:dev"),
            ("path:/a-b.c_d", "path:/a-b.c_d"),
            ("1_env:dev", "env:dev"),
            ("env:", "env"),
            ("env:" + "x" * 300, "env:" + "x" * 196),
            ("x" * 199 + ":y", "x" * 199),
            ("42", ""),
        ],
    )
    def test_tags_are_stored_as_datadog_spells_them(self, wire: str, stored: str) -> None:
        assert normalised(wire) == stored
