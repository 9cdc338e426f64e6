"""A Datadog intake: the door metrics are pushed through, and what a dashboard would show afterwards.

Takes what the real one takes, refuses what it refuses, and drops points outside the time window without a
word as it does, counting them. With the application key: historical ingestion, `documents`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote

from support.servers.documents import Documents
from support.servers.loopback import Answer, LoopbackServer, Request
from support.servers.series import RejectedError, Series, decoded, normalised, parsed, series_of

MAX_AGE = 3600
MAX_AHEAD = 600
HISTORICAL = "/api/v2/metrics/historical-metrics-configurations"


class PointKey(NamedTuple):
    """The identity of a point: a second write to it replaces the first. `tags` are sorted."""

    metric: str
    tags: tuple[str, ...]
    host: str | None
    second: int


class Write(NamedTuple):
    """One write of one point, with the value it replaced."""

    key: PointKey
    value: float
    replaced: float | None


@dataclass(slots=True)
class Push(Request):
    """A request to the intake, with what was found in its body: points and how many were dropped."""

    points: int = 0
    dropped: int = 0


class Intake(LoopbackServer[Push]):
    """`POST /api/v2/series`, `GET /api/v1/validate` and historical ingestion, for one pair of keys.

    `clock` may be set at any time: the time window and the `Date` header follow it. Points older than the
    window are kept for the names in `historical`; those in `tag_configured` cannot be turned on.
    """

    request_type = Push

    def __init__(
        self,
        key: str = "test-api-key",
        clock: Callable[[], float] = time.time,
        app_key: str = "test-app-key",
    ) -> None:
        self.key = key
        self.app_key = app_key
        self.historical: set[str] = set()
        self.tag_configured: set[str] = set()
        self.points: dict[PointKey, float] = {}
        self.write_log: list[Write] = []
        self.payloads: list[dict[str, Any]] = []  # as decoded from JSON, each of them accepted
        self.types: dict[str, str] = {}
        self.dropped = 0
        self.notes: list[str] = []
        self.documents = Documents(lambda: self.clock())
        self._lock = threading.RLock()
        super().__init__(clock)

    def names(self) -> list[str]:
        """Name the metrics that have a point, sorted."""
        with self._lock:
            return sorted({key.metric for key in self.points})

    def series(self, metric: str) -> dict[tuple[tuple[str, ...], str | None], dict[int, float]]:
        """Return values by second for each (tags, host) of a metric."""
        found: dict[tuple[tuple[str, ...], str | None], dict[int, float]] = {}
        with self._lock:
            for key, value in sorted(self.points.items(), key=lambda item: item[0].second):
                if key.metric == metric:
                    found.setdefault((key.tags, key.host), {})[key.second] = value
        return found

    def value(
        self, metric: str, tags: Iterable[str] = (), host: str | None = None, at: int | None = None
    ) -> float | None:
        """Return the latest value, or the one at a second, of the one series with these tags and host.

        Tags not given and a host of None match any. None is no such point; several such series are an error.
        """
        matching = [
            values
            for (found_tags, found_host), values in self.series(metric).items()
            if {*tags} <= {*found_tags} and host in (None, found_host)
        ]
        if len(matching) > 1:
            raise LookupError(f"{metric} with {sorted(tags)} is {len(matching)} series")
        for values in matching:
            return values.get(max(values) if at is None else at)
        return None

    def respond(self, request: Push) -> Answer:
        # Datadog documents one status, 403, for a wrong key and for none at all.
        if request.headers.get("DD-API-KEY") != self.key:
            return Answer.json(403, {"errors": ["Forbidden"]})
        if request.path.startswith(HISTORICAL):
            with self._lock:
                return self._configure(request, unquote(request.path.removeprefix(HISTORICAL)).lstrip("/"))
        match request.method, request.path:
            case "GET", "/api/v1/validate":
                return Answer.json(200, {"valid": True})
            case "POST", "/api/v2/series":
                try:
                    self._accept(request)
                except RejectedError as rejected:
                    return Answer.json(rejected.status, {"errors": list(rejected.errors)})
                return Answer.json(202, {"errors": []})
        if not request.path.startswith(("/api/v1/dashboard", "/api/v1/monitor", "/api/v1/metrics/")):
            return Answer.json(404, {"errors": ["Not Found"]})
        if request.headers.get("DD-APPLICATION-KEY") != self.app_key:
            return Answer.json(403, {"errors": ["Forbidden"]})
        with self._lock:
            for name in self.names():
                self.documents.metadata.setdefault(name, {})
            body = json.loads(request.body) if request.body else None
            return Answer.json(*self.documents.handle(request.method, request.target, body))

    def _configure(self, request: Push, name: str) -> Answer:
        """Answer for a configuration, whose existence is the switch."""
        # That a key is refused is documented for no operation here: it is what the API does everywhere.
        if request.headers.get("DD-APPLICATION-KEY") != self.app_key:
            return _refused(403, "The application key is missing or invalid")
        status = 200
        if request.method == "POST":
            match json.loads(request.body):
                case {"data": {"id": str(name), "type": "historical_metrics_configurations"}}:
                    pass
                case _:
                    return _refused(400, "Payload is not a historical metrics configuration")
            # 400 and 422 are both documented; which is answered is not.
            if name in self.tag_configured:
                return _refused(422, f"{name} has a tag configuration")
            if name not in {*self.historical, *self.names()}:
                return _refused(404, f"Metric {name} does not exist")
            status = 200 if name in self.historical else 201
            self.historical.add(name)
        if name not in self.historical:
            return _refused(404, f"Historical metrics ingestion is not enabled for {name}")
        return Answer.json(status, {"data": {"id": name, "type": "historical_metrics_configurations"}})

    def _accept(self, push: Push) -> None:
        raw = decoded(push.body, push.headers.get("Content-Encoding", "identity"))
        document = parsed(raw)
        series = series_of(document)
        push.points = sum(len(one.points) for one in series)
        with self._lock:
            self._check_types(series)
            self.payloads.append(document)
            for one in series:
                push.dropped += self._store(one)
            self.dropped += push.dropped

    def _check_types(self, series: list[Series]) -> None:
        types = dict(self.types)
        changes = [
            f"{one.metric} is a {types[one.metric]} and came as a {one.type}"
            for one in series
            if types.setdefault(one.metric, one.type) != one.type
        ]
        self.notes += changes
        if changes:
            raise RejectedError(400, *changes)
        self.types = types

    def _store(self, series: Series) -> int:
        tags = tuple(sorted({normalised(tag) for tag in series.tags} - {""}))
        self.notes += [f"{series.metric}: tag {tag!r} is respelt" for tag in {*series.tags} - {*tags}]
        now = self.clock()
        oldest = float("-inf") if series.metric in self.historical else now - MAX_AGE
        dropped = 0
        for second, value in series.points:
            if not oldest <= second <= now + MAX_AHEAD:
                dropped += 1
                continue
            key = PointKey(series.metric, tags, series.host, second)
            self.write_log.append(Write(key, value, self.points.get(key)))
            self.points[key] = value
        return dropped


def _refused(status: int, detail: str) -> Answer:
    error = {"status": str(status), "title": HTTPStatus(status).phrase, "detail": detail}
    return Answer.json(status, {"errors": [error]})
