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
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
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
METADATA_PATH = "/api/v1/metrics"
# Characters. Datadog cuts a tag at 200, and a key without its second would be unknown to the next push.
MAX_INSTANCE = 100
# Of the application key, as Datadog's documentation names them.
PERMISSIONS = (
    "dashboards_read, dashboards_write, monitors_read, monitors_write, metrics_read, metrics_metadata_write"
)

DASHBOARD, MONITOR = "dashboard", "monitor"  # kinds of documents, by their names in the API

_KEY = re.compile(r"fleetgauge:([^\s:]+):(\S+):(\d{1,12})")


class Owned(NamedTuple):
    """A document of this instance, as Datadog shows it; dates are seconds since the epoch."""

    document: str
    id: str
    created: float
    modified: float
    edited: bool
    content: Mapping[str, Any]  # Any: JSON


class Step(NamedTuple):
    """What to do with one document: create, update, remove, or nothing (unchanged, edited, failed).

    `declared` is None where it is to be removed, `owned` is None where it is to be created. `title` is what
    people see now, `changes` are the differing fields, `reason` is why it is removed, or could not be read.
    """

    kind: str
    document: str
    title: str
    action: str
    declared: Document | None
    owned: Owned | None = None
    changes: Sequence[Change] = ()
    reason: str = ""


def instance_name(service: str, instance: str) -> str:
    """Return the part of a key that identifies an installation, spelled as Datadog stores tags.

    Raises ConfigurationError where it is too long for a key.
    """
    joined = f"{service}/{instance}" if instance else service
    # Tags are normalised from their first letter on: the prefix preserves a name that begins with a digit.
    spelled = normalise_tag(f"i:{joined}").removeprefix("i:")
    if len(spelled) > MAX_INSTANCE:
        raise ConfigurationError(
            f"DD_SERVICE and FLEETGAUGE_INSTANCE have {len(joined)} characters together; shorten them to "
            f"{MAX_INSTANCE}, so that Datadog does not cut the keys of dashboards and monitors"
        )
    return spelled


class Provisioner:
    """Plans and applies the documents of one instance, through a client that has an application key.

    All methods raise DeliveryError, RefusedError and DeadlineExceededError.
    """

    def __init__(self, client: DatadogClient, instance: str) -> None:
        self._client = client
        self._instance = instance

    def plan(self, kind: str, declared: Mapping[str, Document]) -> Iterator[Step]:
        """Yield a step for each declared document, then for what this instance has besides them.

        `declared` maps the name of a document to its content. Nothing is written. Of several copies of a
        document the oldest is used; younger ones are to be removed if unedited. A document that cannot be
        read, such as a restricted dashboard, has failed: no copy of it is created, updated or removed.
        """
        copies: dict[str, list[Owned]] = {name: [] for name in declared}
        unreadable = set()
        # The rows of a listing lack the content of dashboards.
        for identifier, name in self._client.retry(lambda: self._listed(kind)).items():
            try:
                owned = self._client.retry(partial(self._read, kind, identifier))
            except DeliveryError as error:
                unreadable.add(name)
                yield Step(kind, name, identifier, "failed", None, reason=str(error))
            else:
                copies.setdefault(name, []).extend([owned] if owned else [])
        for name, found in copies.items():
            if name in unreadable:
                continue
            found.sort(key=lambda owned: (owned.created, owned.id))
            if name in declared:
                content = declared[name]
                if not found:
                    yield Step(kind, name, _title(content), "create", content)
                    continue
                used = found.pop(0)
                differing = [*changes(_without_key(used.content), content)]
                action = "unchanged" if not differing else "edited" if used.edited else "update"
                yield Step(kind, name, _title(used.content), action, content, used, differing)
            reason = f"a younger copy of {used.id}" if name in declared else "no longer declared"
            for owned in found:
                action = "edited" if owned.edited else "remove"
                yield Step(kind, name, _title(owned.content), action, None, owned, reason=reason)

    def apply(self, step: Step, *, overwrite: bool = False) -> bool:
        """Do a step; return False where the document was edited or removed since it was planned.

        With `overwrite` an edited document is updated, unless it was modified since it was planned: what a
        person confirmed is the edit that the plan showed.
        """
        planned = step.owned
        if planned is None:
            self._create(step)
            return True
        path = f"{_path(step.kind)}/{planned.id}"

        def write() -> bool:
            # Datadog has no conditional writes. Reading just before leaves only moments in which an edit can
            # be lost.
            owned = self._read(step.kind, planned.id)
            if owned is None:
                # A removal is done, perhaps by an attempt whose response was lost; an update is not.
                return step.action == "remove"
            if owned.edited and not (overwrite and owned.modified == planned.modified):
                return False
            if step.action == "remove":
                self._request("DELETE", path)
            else:
                self._request("PUT", path, self._stamped(step), "id")
            return True

        return self._client.retry(write)

    def validate(self, monitor: Document) -> None:
        """Let Datadog validate a monitor without storing it; RefusedError where it is not valid."""
        self._client.retry(lambda: self._request("POST", f"{_path(MONITOR)}/validate", monitor))

    def metadata(self, metric: str) -> Document | None:
        """Return a metric's metadata as Datadog has it; None where Datadog has no such metric."""
        return self._client.retry(lambda: self._get(f"{METADATA_PATH}/{metric}"))

    def write_metadata(self, metric: str, fields: Document) -> None:
        """Write fields of a metric's metadata; it exists once a point of it was sent."""
        self._client.retry(lambda: self._request("PUT", f"{METADATA_PATH}/{metric}", fields))

    def _listed(self, kind: str) -> dict[str, str]:
        """Return the names of this instance's documents by id, from a listing read to its last page."""
        found: dict[str, str] = {}
        page = start = 0
        # Only an empty page is the end: a server may return fewer rows than requested on any page.
        while rows := self._page(kind, page, start):
            for row in rows:
                if owned := read_owned(row, self._instance):
                    found[owned.id] = owned.document
            page, start = page + 1, start + len(rows)
        return found

    def _page(self, kind: str, page: int, start: int) -> list[Document]:
        """Return the rows of a page: monitors are listed by its number, dashboards by that of a row."""
        query = f"count={PAGE}&start={start}"
        if kind == MONITOR:
            query = f"monitor_tags={MANAGED.replace(':', '%3A')}&page={page}&page_size={PAGE}"
        shown = self._client.request("GET", f"{_path(kind)}?{query}").document
        rows = shown.get("dashboards") if isinstance(shown, dict) else shown
        if not isinstance(rows, list):
            raise TypeError
        return rows

    def _read(self, kind: str, identifier: str) -> Owned | None:
        """Return a document of this instance by its id; None where it is absent or not ours any more."""
        shown = self._get(f"{_path(kind)}/{identifier}", "id")
        return read_owned(shown, self._instance) if shown is not None else None

    def _get(self, path: str, field: str = "") -> Document | None:
        """Return the object at a path; None where Datadog itself reports it as absent."""
        try:
            return self._request("GET", path, None, field)
        except RefusedError as refused:
            # The 404 of a proxy has no error document.
            if refused.status == 404 and refused.problems:
                return None
            raise

    def _request(self, method: str, path: str, body: Document | None = None, field: str = "") -> Document:
        """Send a request once and return the object of its response, which has this field.

        Raises TypeError for any other response, which is not Datadog's: `DatadogClient.retry` repeats it.
        """
        document = self._client.request(method, path, body).document
        if not isinstance(document, dict) or (field and field not in document):
            raise TypeError
        return document

    def _create(self, step: Step) -> None:
        """Create a document; where the response is lost, list once more and never create it again.

        A POST is not idempotent: a second one would create a second dashboard. Raises DeliveryError where it
        is not known whether the document exists.
        """
        sent = False

        def attempt() -> None:
            nonlocal sent
            if not sent:
                sent = True
                try:
                    self._request("POST", _path(step.kind), self._stamped(step), "id")
                except TransientError as error:
                    sent = error.status != 429  # which is not applied
                    raise
            elif step.document not in self._listed(step.kind).values():
                raise DeliveryError(
                    "no answer to its creation, and it is not listed: it may still appear; "
                    "run this again in a few minutes"
                )

        self._client.retry(attempt)

    def _stamped(self, step: Step) -> Document:
        """Return the document with its key, whose second is taken anew for each attempt."""
        declared = step.declared or {}
        second = int(self._client.server_time())
        key = normalise_tag(f"fleetgauge:{step.document}:{self._instance}:{second}")
        if step.kind == MONITOR:
            return {**declared, "tags": [*declared["tags"], MANAGED, key]}
        return {**declared, "description": f"{declared['description']}\n\n{key}"}


def read_owned(shown: Mapping[str, Any], instance: str) -> Owned | None:
    """Return a dashboard or monitor as this instance's; None where it is not, or is a clone by a person.

    Raises LookupError, TypeError, ValueError or AttributeError for what is no document of Datadog's.
    """
    texts = [*(shown.get("tags") or ()), *str(shown.get("description") or "").split()]
    keys = [key for text in texts if (key := _KEY.fullmatch(str(text)))]
    if not keys or keys[-1][2] != instance:
        return None
    # A monitor has `created_at` too, in milliseconds.
    created, modified = (
        _time(shown[name] if name in shown else shown[f"{name}_at"]) for name in ("created", "modified")
    )
    latest = int(keys[-1][3]) + DATE_TOLERANCE
    # A clone copies the description and the tags, and with them the key, but is created later.
    if created > latest:
        return None
    return Owned(keys[-1][1], str(shown["id"]), created, modified, modified > latest, shown)


def _without_key(content: Mapping[str, Any]) -> Document:
    """Return the content as it was before its key was added, to compare it with a declaration."""
    tags = [tag for tag in content.get("tags") or () if tag != MANAGED and not _KEY.fullmatch(tag)]
    return {**content, "tags": tags, "description": _KEY.sub("", str(content.get("description"))).strip()}


def _path(kind: str) -> str:
    return f"/api/v1/{kind}"


def _title(content: Mapping[str, Any]) -> str:
    return str(content.get("title") or content.get("name"))


def _time(text: str) -> float:
    """Return the time of an ISO date, in UTC where it names no zone."""
    date = datetime.fromisoformat(text)
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
