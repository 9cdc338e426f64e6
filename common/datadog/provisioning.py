"""Create, update and remove dashboards, monitors and metadata in Datadog, with one write per document.

Each document carries a key, a dashboard as the last line of its description and a monitor as a tag:
`fleetgauge:<document>:<instance>:<second>`, where the second is that of the write on Datadog's clock. It is
ours if it was created no later than a minute after that second (a clone is created later), and edited if it
was modified more than a minute after it. A process may be killed at any request: the next run reads what is
there and continues.

`documents.py` makes the documents, `diff.py` compares them, `scripts/provision.py` shows the plan and applies
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple

from common.datadog.client import DatadogClient
from common.datadog.diff import Change, changes
from common.datadog.documents import Document
from common.errors import ConfigurationError, DeliveryError, RefusedError
from common.names import normalise_tag
from common.net.retry import TransientError

DATE_TOLERANCE = 60  # seconds from the second in a key to the dates that Datadog gives the write
# Documents per page of a listing; the server may return fewer.
PAGE = 100
# Tag of every monitor, by which they are listed. Dashboards have no such tag: Datadog allows only `team:`
# tags on them, so that their key is in the description.
MANAGED = "managed_by:fleetgauge"
MAX_INSTANCE = 100  # characters
METADATA_PATH = "/api/v1/metrics"
# By the part of the path after `/api/v1/`: what the application key needs for reading and for writing.
PERMISSIONS = {
    "dashboard": ("dashboards_read", "dashboards_write"),
    "monitor": ("monitors_read", "monitors_write"),
    "metrics": ("metrics_read", "metrics_metadata_write"),
}

_KEY = re.compile(r"fleetgauge:([^\s:]+):(\S+):(\d+)")
# A description that we wrote ends with its own digest: without it, or with another one, a person edited it.
_DESCRIBED = re.compile(r"(.*) \[fleetgauge:([0-9a-f]{8})\]", re.DOTALL)


class Resource(NamedTuple):
    """A kind of document: its path in the API, and the fields with its title and its dates."""

    name: str
    path: str
    title: str
    created: str
    modified: str


DASHBOARD = Resource("dashboard", "/api/v1/dashboard", "title", "created_at", "modified_at")
MONITOR = Resource("monitor", "/api/v1/monitor", "name", "created", "modified")


class Owned(NamedTuple):
    """A document of this instance, as Datadog shows it; dates are seconds since the epoch."""

    document: str
    id: str
    created: float
    modified: float
    edited: bool
    content: Mapping[str, Any]  # Any: JSON


class Step(NamedTuple):
    """What to do with one document: create, update, remove, or nothing (unchanged, edited).

    `declared` is None where it is to be removed, `owned` is None where it is to be created. `changes` are the
    differing fields, `reason` is why it is removed.
    """

    resource: Resource
    document: str
    action: str
    declared: Document | None
    owned: Owned | None = None
    changes: Sequence[Change] = ()
    reason: str = ""

    @property
    def title(self) -> str:
        """The title that people see now."""
        return str((self.owned.content if self.owned else self.declared or {}).get(self.resource.title))


def instance_name(service: str, instance: str) -> str:
    """Return the part of a key that identifies an installation, spelled as Datadog stores tags.

    Raises ConfigurationError where it is too long for a tag with the other parts of a key.
    """
    joined = f"{service}/{instance}" if instance else service
    if len(joined) > MAX_INSTANCE:
        raise ConfigurationError(
            f"DD_SERVICE and FLEETGAUGE_INSTANCE have {len(joined)} characters together; "
            f"the key of a dashboard has room for {MAX_INSTANCE}"
        )
    # Tags are normalised from their first letter on: the prefix preserves a name that begins with a digit.
    return normalise_tag(f"i:{joined}").removeprefix("i:")


class Provisioner:
    """Plans and applies the documents of one instance.

    Its state is the time of Datadog's last response: the second in a key must be on Datadog's clock, because
    it is compared with the dates that Datadog gives a document.
    """

    def __init__(self, client: DatadogClient, instance: str) -> None:
        self._client = client
        self._instance = instance
        self._server_time: tuple[float, float] | None = None  # the last Date, and when it was read

    def plan(self, resource: Resource, declared: Mapping[str, Document]) -> Iterator[Step]:
        """Yield a step for each declared document, then for what this instance has besides them.

        `declared` maps the name of a document to its content. Nothing is written. Of several copies of a
        document the oldest is used; younger ones are to be removed if unedited. Raises DeliveryError,
        RefusedError, ConfigurationError and DeadlineExceededError, as all methods do.
        """
        found = self._owned(resource)
        # Oldest first, reversed: of copies the oldest one is written last, and used.
        used = {owned.document: owned for owned in reversed(found)}
        for document, content in declared.items():
            owned = used.get(document)
            if owned is None:
                yield Step(resource, document, "create", content)
                continue
            differing = changes(_without_key(owned.content), content)
            action = "unchanged" if not differing else "edited" if owned.edited else "update"
            yield Step(resource, document, action, content, owned, differing)
        for owned in found:
            if owned.document not in declared:
                reason = "no longer declared"
            elif owned is not used[owned.document]:
                reason = f"a younger copy of {used[owned.document].id}"
            else:
                continue
            action = "edited" if owned.edited else "remove"
            yield Step(resource, owned.document, action, None, owned, reason=reason)

    def apply(self, step: Step, *, overwrite: bool = False) -> bool:
        """Do a step; return False where the document was edited or removed since it was planned.

        With `overwrite` an edited document is updated, unless it was modified since it was planned: what a
        person confirmed is the edit that the plan showed.
        """
        planned = step.owned
        if planned is None:
            return self._create(step)
        return self._client.retry(lambda: self._write(step, planned, overwrite=overwrite))

    def validate(self, monitor: Document) -> None:
        """Let Datadog validate a monitor without storing it; RefusedError where it is not valid."""
        self._client.retry(lambda: self._request("POST", f"{MONITOR.path}/validate", monitor, dict))

    def metadata(self, metric: str, declared: Document) -> Document | None:
        """Return the fields of a metric's metadata to write; None where Datadog has no such metric.

        Empty fields are filled in, and of fields with a value only a description that we wrote is replaced:
        people edit metadata in Datadog as well.
        """
        try:
            found = self._client.retry(lambda: self._request("GET", f"{METADATA_PATH}/{metric}", read=dict))
        except RefusedError as refused:
            if _is_absent(refused):
                return None
            raise
        fields = {key: value for key, value in declared.items() if not found.get(key)}
        ours = _DESCRIBED.fullmatch(str(found.get("description")))
        if ours and ours[2] == _digest(ours[1]) and ours[1] != declared["description"]:
            fields["description"] = declared["description"]
        return fields

    def write_metadata(self, metric: str, fields: Document) -> None:
        """Write fields of a metric's metadata, a description with its digest.

        The metric must exist, which it does once a point of it was sent.
        """
        text = fields.get("description")
        body = {**fields, "description": f"{text} [fleetgauge:{_digest(text)}]"} if text else fields
        self._client.retry(lambda: self._request("PUT", f"{METADATA_PATH}/{metric}", body, dict))

    def _request(
        self, method: str, path: str, body: object = None, read: Callable[[Any], Any] | None = None
    ) -> Any:
        """Send a request once and return what `read` makes of its JSON, by default a document with an id.

        Raises TypeError or KeyError for another document, which `DatadogClient.retry` treats as transient,
        and otherwise as `DatadogClient.request`, with the permission that a refused key lacks.
        """
        try:
            response = self._client.request(method, path, body)
        except RefusedError as refused:
            resource = re.split(r"[/?]", path)[3]
            raise self._client.explain_refusal(refused, PERMISSIONS[resource][method != "GET"]) from None
        if self._client.server_time is not None:
            self._server_time = self._client.server_time, self._client.deadline.elapsed()
        return (read or _read_document)(response.document)

    def _owned(self, resource: Resource) -> list[Owned]:
        """Return the documents of this instance, oldest first, each read by its id.

        The rows of a listing lack the content of dashboards.
        """
        found = []
        for identifier in self._client.retry(lambda: self._listed(resource)):
            path = f"{resource.path}/{identifier}"
            try:
                shown = self._client.retry(lambda path=path: self._request("GET", path))  # type: ignore[misc]
            # A person may have removed it since it was listed.
            except RefusedError as refused:
                if _is_absent(refused):
                    continue
                raise
            found.append(read_owned(resource, shown, self._instance))
        return sorted(filter(None, found), key=lambda owned: (owned.created, owned.id))

    def _listed(self, resource: Resource) -> dict[str, str]:
        """Return the names of this instance's documents by id, from a listing read to its last page."""
        found: dict[str, str] = {}
        start = 0
        for page in count():
            query = f"count={PAGE}&start={start}"
            if resource is MONITOR:
                query = f"monitor_tags={MANAGED.replace(':', '%3A')}&page={page}&page_size={PAGE}"
            rows = self._request("GET", f"{resource.path}?{query}", read=_read_page)
            owned = (read_owned(resource, row, self._instance) for row in rows)
            found |= {row.id: row.document for row in owned if row is not None}
            start += len(rows)
            # Only an empty page is the end: a server may return fewer rows than requested on any page.
            if not rows:
                break
        return found

    def _create(self, step: Step) -> bool:
        """Create a document; where the response is lost, list once more and never create it again.

        A POST is not idempotent: a second one would create a second dashboard. Returns True; raises
        DeliveryError where it is not known whether the document exists.
        """
        sent = False

        def attempt() -> None:
            nonlocal sent
            if not sent:
                sent = True
                try:
                    self._request("POST", step.resource.path, self._stamped(step))
                except TransientError as error:
                    sent = getattr(error, "status", None) != 429  # which is not applied
                    raise
            elif step.document not in self._listed(step.resource).values():
                raise DeliveryError(
                    "no answer to its creation, and it is not listed: it may still appear; "
                    "run this again in a few minutes"
                )

        self._client.retry(attempt)
        return True

    def _write(self, step: Step, planned: Owned, *, overwrite: bool) -> bool:
        """Update or remove a document if it is still as it was planned; return whether that was done.

        Datadog has no conditional writes. Reading just before leaves only moments in which an edit can be
        lost.
        """
        path = f"{step.resource.path}/{planned.id}"
        try:
            owned = read_owned(step.resource, self._request("GET", path), self._instance)
            if owned is None or owned.document != step.document:
                return False
            if owned.edited and not (overwrite and owned.modified == planned.modified):
                return False
            if step.action == "remove":
                self._request("DELETE", path, read=dict)
            else:
                self._request("PUT", path, self._stamped(step))
        except RefusedError as refused:
            if _is_absent(refused):
                # Absent: a removal is done, perhaps by an attempt whose response was lost; an update is not.
                return step.action == "remove"
            raise
        return True

    def _stamped(self, step: Step) -> Document:
        """Return the document with its key, whose second is taken anew for each attempt.

        Raises DeliveryError where Datadog's time is not known.
        """
        if self._server_time is None or step.declared is None:
            raise DeliveryError("Datadog's responses have no Date header; check HTTPS_PROXY")
        # Datadog's clock now: its last Date plus what has passed since on the monotonic clock of the
        # deadline.
        date, at = self._server_time
        second = int(date + self._client.deadline.elapsed() - at)
        key = normalise_tag(f"fleetgauge:{step.document}:{self._instance}:{second}")
        if step.resource is MONITOR:
            return {**step.declared, "tags": [*step.declared["tags"], MANAGED, key]}
        return {**step.declared, "description": f"{step.declared['description']}\n\n{key}"}


def read_owned(resource: Resource, shown: Mapping[str, Any], instance: str) -> Owned | None:
    """Return a document of Datadog's as this instance's; None where it is not, or is a clone by a person.

    Raises LookupError, TypeError or ValueError for a document without an id or dates.
    """
    texts = shown.get("tags") if resource is MONITOR else str(shown.get("description") or "").split()
    keys = [key for text in texts or () if (key := _KEY.fullmatch(str(text)))]
    if not keys or keys[-1][2] != instance:
        return None
    created = _time(shown[resource.created])
    modified = _time(shown.get(resource.modified) or shown[resource.created])
    latest = int(keys[-1][3]) + DATE_TOLERANCE
    # A clone copies the description and the tags, and with them the key, but is created later.
    if created > latest:
        return None
    return Owned(keys[-1][1], str(shown["id"]), created, modified, modified > latest, shown)


def _without_key(content: Mapping[str, Any]) -> Document:
    """Return the content as it was before its key was added, to compare it with a declaration."""
    tags = [tag for tag in content.get("tags") or () if tag != MANAGED and not _KEY.fullmatch(tag)]
    return {**content, "tags": tags, "description": _KEY.sub("", str(content.get("description"))).strip()}


def _is_absent(refused: RefusedError) -> bool:
    """Return whether Datadog itself reports an object as absent; a proxy has no error document."""
    return refused.status == 404 and bool(refused.problems)


def _time(text: str) -> float:
    """Return the time of an ISO date, in UTC where it names no zone."""
    date = datetime.fromisoformat(text)
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


def _read_page(document: Any) -> list[Any]:
    rows = document["dashboards"] if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise TypeError
    return [_read_document(row) for row in rows]


def _read_document(document: Any) -> Any:
    if not isinstance(document, dict) or not isinstance(document["id"], str | int):
        raise TypeError
    return document
