"""An API server of Kubernetes on loopback: enough of one for Helm to install, upgrade and uninstall.

It stores objects, selects them by label, and refuses what a real server refuses of this chart: changes of a
Job's pods. Every Job succeeds.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.servers.loopback import Answer, LoopbackServer, Request

Object = dict[str, Any]  # Any: a Kubernetes object, or a part of one
KINDS = {
    "v1": {
        "secrets": "Secret",
        "serviceaccounts": "ServiceAccount",
        "namespaces": "Namespace",
    },
    "batch/v1": {"jobs": "Job", "cronjobs": "CronJob"},
    "apps/v1": {"daemonsets": "DaemonSet"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
}
_OBJECT = re.compile(
    r"/(?:api|apis)/(?P<version>.+)/namespaces/(?P<space>[^/]+)/(?P<kind>[a-z]+)(?:/(?P<name>.+))?"
)
_NAMESPACE = re.compile(r"/api/v1/namespaces/([^/]+)")


class Kubernetes(LoopbackServer[Request]):
    """Objects by kind and name, and a record of what was done to them, but for what Helm keeps for itself."""

    request_type = Request

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.done: list[tuple[str, str]] = []  # what was done, and to what: ("created", "CronJob/fleetgauge")
        self._lock = threading.Lock()
        self._version = 0
        super().__init__()

    @property
    def names(self) -> list[str]:
        """What is there now."""
        return sorted(f"{kind}/{name}" for kind, name in self.objects if kind != "Secret")

    def take_done(self) -> list[tuple[str, str]]:
        """What was done since this was last asked."""
        found, self.done = self.done, []
        return found

    def respond(self, request: Request) -> Answer:
        if space := _NAMESPACE.fullmatch(request.path):
            known = self.objects.get(("Namespace", space[1]))
            return Answer.json(200, known) if known else _refused(404, "NotFound", space[1])
        found = _OBJECT.fullmatch(request.path)
        if found is None or found["version"] not in KINDS:
            return _discovery(request.path)
        kind = KINDS[found["version"]][found["kind"]]
        with self._lock:
            if found["name"] is None and request.method == "GET":
                return self._listed(kind, found["version"], request.target)
            content = _read(request.body)
            name = found["name"] or content["metadata"]["name"]
            known = self.objects.get((kind, name))
            if request.method == "POST":
                return (
                    _refused(409, "AlreadyExists", name)
                    if known
                    else self._store("created", kind, name, content)
                )
            if known is None:
                return _refused(404, "NotFound", name)
            if request.method == "DELETE":
                del self.objects[kind, name]
                self._note("deleted", kind, name)
                return Answer.json(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
            if request.method == "GET":
                return Answer.json(200, known)
            changed = content if request.method == "PUT" else _patched(known, content)
            if _fixed(changed) != _fixed(known):
                return _refused(422, "Invalid", f"{kind}/{name}: field is immutable")
            return self._store("changed", kind, name, changed)

    def _store(self, verb: str, kind: str, name: str, content: Object) -> Answer:
        self._version += 1
        content["metadata"] |= {"resourceVersion": str(self._version), "uid": f"uid-{name}"}
        if kind == "Job":
            content["status"] = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1}
        self.objects[kind, name] = content
        self._note(verb, kind, name)
        return Answer.json(201 if verb == "created" else 200, content)

    def _note(self, verb: str, kind: str, name: str) -> None:
        if kind != "Secret":
            self.done.append((verb, f"{kind}/{name}"))

    def _listed(self, kind: str, version: str, target: str) -> Answer:
        query = parse_qs(urlsplit(target).query)
        if "watch" in query:
            return Answer(200, b"", {"Content-Type": "application/json"})
        selector = ",".join(query.get("labelSelector", []))
        labels = dict(part.split("=", 1) for part in selector.split(",") if part)
        name = query.get("fieldSelector", [""])[0].removeprefix("metadata.name=")
        items = [
            item
            for (its_kind, its_name), item in self.objects.items()
            if its_kind == kind
            and labels.items() <= item["metadata"].get("labels", {}).items()
            and name in {"", its_name}
        ]
        metadata = {"resourceVersion": str(self._version)}
        return Answer.json(
            200, {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata, "items": items}
        )


def _read(body: bytes) -> Object:
    """An object as it came: JSON, or Helm's memory of a release, which comes as protobuf."""
    if not body.startswith(b"k8s\0"):
        return dict(json.loads(body)) if body else {}
    envelope = _fields(body[4:])
    if b"DeleteOptions" in envelope[1][0]:
        return {}
    secret = _fields(envelope[2][0])
    metadata = _fields(secret[1][0])
    labels = {key.decode(): value.decode() for key, value in map(_entry, metadata[11])}
    data = {key.decode(): base64.b64encode(value).decode() for key, value in map(_entry, secret[2])}
    return {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {"name": metadata[1][0].decode(), "namespace": "monitoring", "labels": labels},
        "type": secret[3][0].decode(),
        "data": data,
    }


def _entry(pair: bytes) -> tuple[bytes, bytes]:
    fields = _fields(pair)
    return fields[1][0], fields[2][0]


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """The fields of a message of protobuf that are bytes, by number."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        value, at = _number(message, at)
        if tag & 7 == 2:
            found.setdefault(tag >> 3, []).append(message[at : at + value])
            at += value
    return found


def _number(message: bytes, at: int) -> tuple[int, int]:
    """A number of as many bytes as it needs, and where it ends."""
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return value, at


def _fixed(content: Object) -> object:
    """What of an object can never change."""
    return content["spec"]["template"] if content["kind"] == "Job" else None


def _patched(known: Object, patch: Mapping[str, Any]) -> Object:
    """An object with a strategic merge patch applied: lists of named things are merged by name."""
    found = copy.deepcopy(known)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            found[key] = _patched(found.get(key) or {}, value)
        elif (
            isinstance(value, list)
            and value
            and all(isinstance(item, dict) and "name" in item for item in value)
        ):
            named = {item["name"]: item for item in found.get(key, [])}
            for item in value:
                named[item["name"]] = _patched(named.get(item["name"], {}), item)
            deleted = {item["name"] for item in value if item.get("$patch") == "delete"}
            found[key] = [item for name, item in named.items() if name not in deleted]
        else:
            found[key] = value
    return found


def _refused(status: int, reason: str, message: str) -> Answer:
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status}
    return Answer.json(status, {**document, "message": message})


def _discovery(path: str) -> Answer:
    """What the server says of itself."""
    version = path.removeprefix("/apis/").removeprefix("/api/")
    if path == "/version":
        return Answer.json(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
    if path == "/openapi/v2":  # a document of protobuf that describes nothing, so that Helm validates nothing
        return Answer(
            200, b"", {"Content-Type": "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"}
        )
    if path == "/api":
        return Answer.json(200, {"kind": "APIVersions", "versions": ["v1"]})
    if path == "/apis":
        groups = [
            {"name": each.split("/")[0], "versions": [_group(each)], "preferredVersion": _group(each)}
            for each in list(KINDS)[1:]
        ]
        return Answer.json(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    if version in KINDS:
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        kinds = KINDS[version].items()
        resources = [
            {
                "name": name,
                "singularName": "",
                "kind": kind,
                "verbs": verbs,
                "namespaced": kind != "Namespace",
            }
            for name, kind in kinds
        ]
        return Answer.json(
            200,
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources},
        )
    return _refused(404, "NotFound", path)


def _group(version: str) -> dict[str, str]:
    return {"groupVersion": version, "version": version.split("/")[1]}
