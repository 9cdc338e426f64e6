"""The part of Datadog's API that keeps dashboards, monitors and metadata, as far as it is known to behave.

Adds ids, dates, authors and defaults, drops what is null, answers in another order than it was given, and
refuses what the official client's models do not understand. Everything needs both keys.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

from datadog_api_client.v1.model.dashboard import Dashboard
from datadog_api_client.v1.model.metric_metadata import MetricMetadata
from datadog_api_client.v1.model.monitor import Monitor

from support.monitor_queries import Query
from support.servers.loopback import Answer, LoopbackServer, Request
from support.strict_models import findings

NUMBERS = count(1000)  # of ids: no two servers give one twice, so that state can go from one to another
CHANGING = {"POST", "PUT", "DELETE"}
MODELS = {"dashboard": Dashboard, "monitor": Monitor, "metrics": MetricMetadata}
PERMISSIONS = {
    "dashboard": ("dashboards_read", "dashboards_write"),
    "monitor": ("monitors_read", "monitors_write"),
    "metrics": ("metrics_read", "metrics_metadata_write"),
}


class ProvisioningApi(LoopbackServer[Request]):
    """Dashboards and monitors by id, metadata by metric. `permissions` are those of the application key."""

    request_type = Request

    def __init__(self, key: str, app_key: str, clock: Callable[[], float] = time.time) -> None:
        self.key, self.app_key = key, app_key
        self.permissions = {
            *("dashboards_read", "dashboards_write", "monitors_read", "monitors_write"),
            *("metrics_read", "metrics_metadata_write"),
        }
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.monitors: dict[str, dict[str, Any]] = {}
        self.metadata: dict[str, dict[str, Any]] = {}
        self._lock = threading.RLock()
        super().__init__(clock)

    def changes(self) -> list[str]:
        """Every request so far that was to change anything, but for validations."""
        return [
            f"{one.method} {one.path}"
            for one in self.requests
            if one.method in CHANGING and not one.path.endswith("/validate")
        ]

    def respond(self, request: Request) -> Answer:
        with self._lock:
            if request.headers.get("DD-API-KEY") != self.key:
                return _refused(403, "Forbidden")
            if request.path == "/api/v1/validate":
                return Answer.json(200, {"valid": True})
            if request.headers.get("DD-APPLICATION-KEY") != self.app_key:
                return _refused(403, "Forbidden")
            body = json.loads(request.body) if request.body else None
            query = {key: values[0] for key, values in parse_qs(urlsplit(request.target).query).items()}
            kind, _, name = request.path.removeprefix("/api/v1/").partition("/")
            if PERMISSIONS[kind][request.method != "GET"] not in self.permissions:
                return _refused(403, "Forbidden")
            return {"dashboard": self._dashboard, "monitor": self._monitor, "metrics": self._metric}[kind](
                request.method, name, body, query
            )

    def add_dashboard(self, document: dict[str, Any]) -> str:
        """Keep a dashboard as somebody at the screen would have made it; its id."""
        return str(json.loads(self._dashboard("POST", "", document, {}).body)["id"])

    def _dashboard(self, method: str, name: str, body: Any, query: dict[str, str]) -> Answer:
        if method == "GET" and not name:
            start, size = int(query.get("start", 0)), int(query.get("count", 100))
            listed = (
                "id",
                "title",
                "description",
                "layout_type",
                "url",
                "created_at",
                "modified_at",
                "author_handle",
            )
            newest_first = sorted(self.dashboards.values(), key=lambda one: one["created_at"], reverse=True)
            rows = [{key: one.get(key) for key in listed} for one in newest_first]
            return Answer.json(200, {"dashboards": rows[start : start + size]})
        if method == "DELETE" and name in self.dashboards:
            del self.dashboards[name]
            return Answer.json(200, {"deleted_dashboard_id": name})
        if name and name not in self.dashboards:
            return _refused(404, f"Dashboard with ID {name} not found")
        if method in {"POST", "PUT"}:
            if wrong := _wrong("dashboard", body):
                return _refused(400, *wrong)
            number = next(NUMBERS)
            made = name or f"abc-{number:03}-xyz"
            kept = self.dashboards.get(
                name, {"id": made, "created_at": _date(number), "author_handle": "a@b.c"}
            )
            defaults = {
                "notify_list": [],
                "template_variable_presets": [],
                "restricted_roles": [],
                "is_read_only": False,
            }
            self.dashboards[made] = {
                **defaults,
                **_kept(body),
                **{key: kept[key] for key in ("id", "created_at", "author_handle")},
                "widgets": [*self._numbered(body["widgets"])],
                "modified_at": _date(number),
                "url": f"/dashboard/{made}/x",
            }
            name = made
        return Answer.json(200, _reordered(self.dashboards[name]))

    def _numbered(self, widgets: list[Any]) -> Iterator[dict[str, Any]]:
        """Widgets with ids and defaults, as deep as they go."""
        for one in widgets:
            kept = _kept(one)
            definition = kept["definition"]
            if "widgets" in definition:
                definition = {**definition, "widgets": [*self._numbered(definition["widgets"])]}
            elif "requests" in definition:
                definition = {"title_size": "16", "title_align": "left", **definition}
            yield {**kept, "definition": definition, "id": next(NUMBERS)}

    def _monitor(self, method: str, name: str, body: Any, query: dict[str, str]) -> Answer:
        if method == "GET" and not name:
            wanted = query.get("monitor_tags")
            found = [one for one in self.monitors.values() if not wanted or wanted in one["tags"]]
            if "page" in query:
                size = int(query.get("page_size", 100))
                found = found[int(query["page"]) * size :][:size]
            return Answer.json(200, [_reordered(one) for one in found])
        if name and name != "validate" and name not in self.monitors:
            return _refused(404, "Monitor not found")
        if method == "DELETE":
            del self.monitors[name]
            return Answer.json(200, {"deleted_monitor_id": int(name)})
        if method in {"POST", "PUT"}:
            if wrong := _wrong("monitor", body) or _unlike(body):
                return _refused(400, *wrong)
            if name == "validate":
                return Answer.json(200, {})
            number = next(NUMBERS)
            made = name or str(number)
            before = self.monitors.get(
                name, {"id": number, "created": _date(number), "creator": {"email": "a@b.c"}}
            )
            options = {"silenced": {}, "new_host_delay": 300, "on_missing_data": None, **body["options"]}
            self.monitors[made] = {
                **_kept(body),
                **{key: before[key] for key in ("id", "created", "creator")},
                "options": _kept(options),
                "multi": True,
                "overall_state": "No Data",
                "modified": _date(number),
                "tags": sorted({tag.lower() for tag in body["tags"]}),
            }
            name = made
        return Answer.json(200, _reordered(self.monitors[name]))

    def _metric(self, method: str, name: str, body: Any, query: dict[str, str]) -> Answer:
        if name not in self.metadata:
            return _refused(404, f"Metric {name} not found")
        if method == "PUT":
            if wrong := _wrong("metrics", body):
                return _refused(400, *wrong)
            self.metadata[name] |= body
        return Answer.json(200, {"type": "gauge", "integration": None, **self.metadata[name]})


def _refused(status: int, *errors: str) -> Answer:
    return Answer.json(status, {"errors": [*errors]})


def _wrong(kind: str, body: Any) -> list[str]:
    """What the models do not understand, looked for once: with another mark a document is no other."""
    return _judged(kind, re.sub(r"fleetgauge_mark:[\w/-]+", "", json.dumps(body)))


@lru_cache(maxsize=1000)
def _judged(kind: str, text: str) -> list[str]:
    return findings(json.loads(text), MODELS[kind])


def _unlike(body: Any) -> list[str]:
    """What Datadog's own validation says of a query."""
    try:
        query = Query.read(body["query"])
    except ValueError as error:
        return [f"The value provided for parameter 'query' is invalid: {error}"]
    if query.limit != body["options"]["thresholds"]["critical"]:
        return ["Alert threshold does not match that used in the query."]
    return []


def _kept(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None}


def _date(number: int) -> str:
    return f"2026-11-16T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000000+00:00"


# Any: JSON
def _reordered(value: Any) -> Any:
    """Keys in another order, and tags as well."""
    if isinstance(value, dict):
        return {key: _reordered(value[key]) for key in sorted(value, reverse=True)}
    if isinstance(value, list):
        plain = all(isinstance(one, str) for one in value)
        return (
            sorted(value, reverse=True)
            if plain and all(map(re.compile(r"\w+:").match, value))
            else [*map(_reordered, value)]
        )
    return value
