"""Datadog's dashboards, monitors and metric metadata, as its API is known to treat them.

Adds ids, dates, authors and defaults, leaves out null, answers in another order than it was given, and
refuses what the official client's models do not understand. `lag` makes listings show an earlier state.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from support.queries import MonitorQuery

PERMISSIONS = {
    "dashboard": ("dashboards_read", "dashboards_write"),
    "monitor": ("monitors_read", "monitors_write"),
    "metrics": ("metrics_read", "metrics_metadata_write"),
}
SUMMARY = ("id", "title", "description", "layout_type", "url", "created_at", "modified_at", "author_handle")
DEFAULTS = {"notify_list": [], "template_variable_presets": [], "restricted_roles": [], "is_read_only": False}

Document = dict[str, Any]  # Any: JSON


class Documents:
    """Dashboards and monitors by id, metadata by metric. `permissions` are those of the application key.

    `strict` judges documents by the official models, which takes most of the time of a request.
    """

    def __init__(self, clock: Callable[[], float], *, strict: bool = True) -> None:
        self.clock = clock
        self.strict = strict
        self.lag = 0.0
        self.permissions = {permission for pair in PERMISSIONS.values() for permission in pair}
        self.dashboards: dict[str, Document] = {}
        self.monitors: dict[str, Document] = {}
        self.metadata: dict[str, Document] = {}
        self.restricted: set[tuple[str, str]] = set()  # methods and ids that are forbidden
        self.numbers = count(1000)  # of ids
        self._history: list[tuple[float, dict[str, Document]]] = []

    def handle(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        """Return the status and the document with which a request to `/api/v1/…` is answered."""
        path = urlsplit(target).path
        kind, _, name = path.removeprefix("/api/v1/").partition("/")
        if kind not in PERMISSIONS:
            return refused(404, "Not Found")
        allowed = PERMISSIONS[kind][method != "GET"] in self.permissions
        if not allowed or (method, name) in self.restricted:
            return refused(403, "Forbidden")
        if kind == "metrics":
            return self._metric(method, name, body)
        stored = self.dashboards if kind == "dashboard" else self.monitors
        query = dict(parse_qsl(urlsplit(target).query))
        if method == "GET" and not name:
            return self._list(kind, query)
        if name and name != "validate" and name not in stored:
            return refused(404, f"{kind} {name} not found")
        if method == "DELETE":
            del stored[name]
            self.remember()
            return 200, {f"deleted_{kind}_id": name}
        if method in {"POST", "PUT"}:
            if self.strict and (wrong := _judge(kind, _KEY.sub("", json.dumps(body)))):
                return refused(400, *wrong)
            if name == "validate":
                return 200, {}
            name = self.store(kind, name, body)
        return 200, _reordered(stored[name])

    def store(self, kind: str, name: str, body: Document) -> str:
        """Store a document as the API or a person at the screen does; without a name it is new."""
        number = next(self.numbers)
        stored = self.dashboards if kind == "dashboard" else self.monitors
        now = datetime.fromtimestamp(self.clock(), UTC).isoformat()
        document = {key: value for key, value in body.items() if value is not None}
        if kind == "dashboard":
            new: Document = {
                "id": f"abc-{number}-xyz",
                "created_at": now,
                "author_handle": "a@b.c",
                "url": "/x",
            }
            widgets = [*self._numbered(document["widgets"])]
            document = {**DEFAULTS, **document, "modified_at": now, "widgets": widgets}
        else:
            milliseconds = int(self.clock()) * 1000
            new = {"id": number, "created": now, "created_at": milliseconds, "creator": {"email": "a@b.c"}}
            options = {"silenced": {}, "new_host_delay": 300, **document.get("options", {})}
            tags = sorted({tag.lower() for tag in document.get("tags", ())})
            state = {"multi": True, "overall_state": "No Data", "modified": now}
            document = {**document, **state, "options": options, "tags": tags}
        before = stored.get(name, new)
        identifier = str(before["id"])
        stored[identifier] = copy.deepcopy({**document, **{key: before[key] for key in new}})
        self.remember()
        return identifier

    def remember(self) -> None:
        """Keep the present state for listings that lag behind it."""
        if self.lag:
            state = copy.deepcopy({"dashboard": self.dashboards, "monitor": self.monitors})
            self._history.append((self.clock(), state))

    def _list(self, kind: str, query: dict[str, str]) -> tuple[int, Any]:
        stored = self.dashboards if kind == "dashboard" else self.monitors
        if self.lag:
            shown = [state for at, state in self._history if at <= self.clock() - self.lag]
            stored = shown[-1][kind] if shown else {}
        if kind == "dashboard":
            start, size = int(query.get("start", 0)), int(query.get("count", 100))
            newest = sorted(stored.values(), key=lambda one: one["created_at"], reverse=True)
            rows = [{key: one.get(key) for key in SUMMARY} for one in newest]
            return 200, {"dashboards": rows[start : start + size]}
        tag = query.get("monitor_tags")
        found = [_reordered(one) for one in stored.values() if not tag or tag in one["tags"]]
        if "page" in query:
            size = int(query.get("page_size", 100))
            found = found[int(query["page"]) * size :][:size]
        return 200, found

    def _numbered(self, widgets: list[Any]) -> Iterator[Document]:
        """Yield widgets with ids and defaults, at every depth."""
        for widget in widgets:
            definition = dict(widget["definition"])
            if "widgets" in definition:
                definition["widgets"] = [*self._numbered(definition["widgets"])]
            elif "requests" in definition:
                definition = {"title_size": "16", "title_align": "left", **definition}
            yield {**widget, "definition": definition, "id": next(self.numbers)}

    def _metric(self, method: str, name: str, body: Any) -> tuple[int, Any]:
        if name not in self.metadata:
            return refused(404, f"Metric {name} not found")
        if method == "PUT":
            if wrong := _judge("metrics", json.dumps(body)):
                return refused(400, *wrong)
            self.metadata[name] |= body
        return 200, {"type": "gauge", "integration": None, **self.metadata[name]}


def refused(status: int, *errors: str) -> tuple[int, Document]:
    return status, {"errors": [*errors]}


# A document with another key is no other to the models.
_KEY = re.compile(r"fleetgauge:[^\s:\"]+:[^\s\"]+:\d+")


@lru_cache(maxsize=1000)
def _judge(kind: str, text: str) -> tuple[str, ...]:
    """Return what the official models, and for monitors the query language, have against a document."""
    from datadog_api_client.v1.model.dashboard import Dashboard
    from datadog_api_client.v1.model.metric_metadata import MetricMetadata
    from datadog_api_client.v1.model.monitor import Monitor

    from support.strict_models import findings

    body = json.loads(text)
    model = {"dashboard": Dashboard, "monitor": Monitor, "metrics": MetricMetadata}[kind]
    if wrong := findings(body, model):
        return tuple(wrong)
    if kind == "monitor":
        try:
            limit = MonitorQuery.read(body["query"]).limit
        except ValueError as error:
            return (f"The value provided for parameter 'query' is invalid: {error}",)
        if limit != body["options"]["thresholds"]["critical"]:
            return ("Alert threshold does not match that used in the query.",)
    return ()


def _reordered(value: Any) -> Any:
    """Return JSON with its keys, and tags, in another order."""
    if isinstance(value, dict):
        return {key: _reordered(value[key]) for key in sorted(value, reverse=True)}
    if isinstance(value, list):
        tags = all(isinstance(one, str) and re.match(r"\w+:", one) for one in value)
        return sorted(value, reverse=True) if tags else [*map(_reordered, value)]
    return value
