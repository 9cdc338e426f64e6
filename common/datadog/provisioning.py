"""Create, update and remove dashboards, monitors and metadata in Datadog, with one write per document.

Each document carries a key, a dashboard as the last line of its description and a monitor as a tag:
`fleetgauge:<document>:<instance>:<second>`, where the second is that of the write on Datadog's clock. It is
ours if it was created no later than a minute after that second (a clone is created later), and edited if it
was modified more than a minute after it. A process may be killed at any request: the next run reads what is
there and continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeVar

from common.datadog.diff import Change, changes
from common.datadog.documents import Document
from common.errors import ConfigurationError, DeliveryError, RefusedError
from common.names import normalise_tag
from common.net.retry import Deadline, TransientError, persist

GRACE = 60  # seconds from the second in a key to the dates that Datadog gives the write
PAGE = 100  # documents per page of a listing
MANAGED = "managed_by:fleetgauge"  # tag of every monitor, by which they are listed
MAX_INSTANCE = 100  # characters
METADATA_PATH = "/api/v1/metrics"

_KEY = re.compile(r"fleetgauge:([^\s:]+):(\S+):(\d+)")
_DESCRIBED = re.compile(r"(.*) \[fleetgauge:([0-9a-f]{8})\]", re.DOTALL)
T = TypeVar("T")


class LostAnswerError(TransientError):
    """A request without a usable answer: it may have been applied."""


class Api(Protocol):
    """Datadog's API: one request, tried once.

    `read` checks the answer's JSON and returns what is needed of it. Raises RefusedError for a final status,
    LostAnswerError where the request may have been applied, TransientError where it was not.
    """

    address: str

    def request(
        self, method: str, path: str, body: Document | None, read: Callable[[Any], T]
    ) -> tuple[T, float | None]:
        """Return the answer and the time of its `Date` header."""


class Resource(NamedTuple):
    """A kind of document: its path, and the fields with its title and its dates."""

    name: str
    path: str
    title: str
    created: str
    modified: str


DASHBOARD = Resource("dashboard", "/api/v1/dashboard", "title", "created_at", "modified_at")
MONITOR = Resource("monitor", "/api/v1/monitor", "name", "created", "modified")


class Owned(NamedTuple):
    """A document of this instance, as Datadog shows it."""

    document: str
    id: str
    title: str
    created: float
    modified: float
    edited: bool
    content: Mapping[str, Any]  # Any: JSON


class Step(NamedTuple):
    """What to do with one document: create, update, remove, or nothing (unchanged, edited)."""

    resource: Resource
    document: str
    title: str
    action: str
    wanted: Document
    id: str = ""
    modified: float = 0.0
    changes: Sequence[Change] = ()
    reason: str = ""


def instance_name(service: str, instance: str) -> str:
    """Return the part of a key that identifies an installation, spelled as Datadog stores tags."""
    joined = f"{service}/{instance}" if instance else service
    if len(joined) > MAX_INSTANCE:
        raise ConfigurationError(
            f"DD_SERVICE and FLEETGAUGE_INSTANCE have {len(joined)} characters together; "
            f"the key of a dashboard has room for {MAX_INSTANCE}"
        )
    return normalise_tag(f"i:{joined}").removeprefix("i:")


class Provisioner:
    """Plans and applies the documents of one instance."""

    def __init__(self, api: Api, instance: str, deadline: Deadline) -> None:
        self._api = api
        self._instance = instance
        self._deadline = deadline
        self._server_time: tuple[float, float] | None = None  # the last Date, and when it came

    def request(
        self, method: str, path: str, body: Document | None = None, read: Callable[[Any], Any] = dict
    ) -> Any:
        """Send a request until it is answered; DeliveryError where that fails."""
        return self._retry(lambda: self._once(method, path, body, read))

    def plan(self, resource: Resource, wanted: Mapping[str, Document]) -> Iterator[Step]:
        """Yield a step for each wanted document, then for what this instance has besides them.

        Of several copies of a document the oldest is used; younger ones are to be removed if unedited.
        """
        owned = self._owned(resource)
        used = {one.document: one for one in reversed(owned)}
        for document, content in wanted.items():
            if document in used:
                yield _update(resource, used[document], content)
            else:
                yield Step(resource, document, content[resource.title], "create", content)
        for one in owned:
            if one.document not in wanted:
                yield _removal(resource, one, "no longer declared")
            elif one is not used[one.document]:
                yield _removal(resource, one, f"a younger copy of {used[one.document].id}")

    def plan_removal(self, resource: Resource) -> Iterator[Step]:
        """Yield a step that removes each document of this instance; edited ones stay."""
        for one in self._owned(resource):
            yield _removal(resource, one, "")

    def apply(self, step: Step, *, overwrite: bool = False) -> bool:
        """Do a step; False where the document was edited or taken away since it was planned.

        With `overwrite` an edited document is updated, unless it was modified since it was planned.
        """
        if step.action == "create":
            self._retry(self._creation(step))
            return True
        return self._retry(lambda: self._write(step, overwrite=overwrite))

    def metadata(self, metric: str, wanted: Document) -> Document | None:
        """Return the fields of a metric's metadata to write; None where Datadog has no such metric.

        Empty fields are filled in, and of fields with a value only a description that we wrote is replaced.
        """
        try:
            found = self.request("GET", f"{METADATA_PATH}/{metric}")
        except RefusedError as refused:
            if _is_gone(refused):
                return None
            raise
        text = str(found.get("description") or "")
        ours = _DESCRIBED.fullmatch(text)
        fields = {key: value for key, value in wanted.items() if not found.get(key)}
        if ours and ours[2] == _digest(ours[1]) and ours[1] != wanted["description"]:
            fields["description"] = wanted["description"]
        return fields

    def write_metadata(self, metric: str, fields: Document) -> None:
        """Write fields of a metric's metadata."""
        text = fields.get("description")
        stamped = {"description": f"{text} [fleetgauge:{_digest(text)}]"} if text else {}
        self.request("PUT", f"{METADATA_PATH}/{metric}", {**fields, **stamped})

    def _once(self, method: str, path: str, body: Document | None, read: Callable[[Any], Any]) -> Any:
        answer, date = self._api.request(method, path, body, read)
        if date is not None:
            self._server_time = date, self._deadline.elapsed()
        return answer

    def _retry(self, attempt: Callable[[], T]) -> T:
        try:
            return persist(attempt, self._deadline, self._deadline.sleep)
        except TransientError as error:
            raise DeliveryError(f"{self._api.address}: {error}") from error

    def _owned(self, resource: Resource) -> list[Owned]:
        """Return the documents of this instance, oldest first, each read by its id."""
        owned = []
        for identifier in self._retry(lambda: self._listed(resource)):
            try:
                shown = self.request("GET", f"{resource.path}/{identifier}", read=_read_document)
            except RefusedError as refused:
                if _is_gone(refused):
                    continue
                raise
            owned.append(read_owned(resource, shown, self._instance))
        return sorted(filter(None, owned), key=lambda one: (one.created, one.id))

    def _listed(self, resource: Resource) -> dict[str, str]:
        """Return the names of this instance's documents by id, from a listing read to its last page."""
        found: dict[str, str] = {}
        start = 0
        for page in count():
            query = f"count={PAGE}&start={start}"
            if resource is MONITOR:
                query = f"monitor_tags={MANAGED.replace(':', '%3A')}&page={page}&page_size={PAGE}"
            rows = self._once("GET", f"{resource.path}?{query}", None, _read_page)
            owned = (read_owned(resource, row, self._instance) for row in rows)
            found |= {one.id: one.document for one in owned if one is not None}
            start += len(rows)
            if not rows:
                break
        return found

    def _creation(self, step: Step) -> Callable[[], None]:
        """Return an attempt to create; after a lost answer it lists once more and never creates again."""
        lost = False

        def attempt() -> None:
            nonlocal lost
            if not lost:
                try:
                    self._once("POST", step.resource.path, self._stamped(step), _read_document)
                except LostAnswerError:
                    lost = True
                    raise
            elif step.document not in self._listed(step.resource).values():
                raise DeliveryError(
                    "no answer to its creation, and it is not listed: it may still appear; "
                    "run this again in a few minutes"
                )

        return attempt

    def _write(self, step: Step, *, overwrite: bool) -> bool:
        """Read the document, and update or remove it if it is still what was planned."""
        path = f"{step.resource.path}/{step.id}"
        try:
            shown = self._once("GET", path, None, _read_document)
            owned = read_owned(step.resource, shown, self._instance)
            if owned is None or owned.document != step.document:
                return False
            if owned.edited and not (overwrite and owned.modified == step.modified):
                return False
            if step.action == "remove":
                self._once("DELETE", path, None, dict)
            else:
                self._once("PUT", path, self._stamped(step), _read_document)
        except RefusedError as refused:
            if _is_gone(refused):
                return step.action == "remove"
            raise
        return True

    def _stamped(self, step: Step) -> Document:
        """Return the document with its key, whose second is taken anew for each attempt."""
        if self._server_time is None:
            raise DeliveryError("Datadog's answers have no Date header; check HTTPS_PROXY")
        date, at = self._server_time
        second = int(date + self._deadline.elapsed() - at)
        key = normalise_tag(f"fleetgauge:{step.document}:{self._instance}:{second}")
        if step.resource is MONITOR:
            return {**step.wanted, "tags": [*step.wanted["tags"], MANAGED, key]}
        return {**step.wanted, "description": f"{step.wanted['description']}\n\n{key}"}


def read_owned(resource: Resource, shown: Mapping[str, Any], instance: str) -> Owned | None:
    """Return a document of Datadog's as this instance's; None where it is not."""
    texts = shown.get("tags") if resource is MONITOR else str(shown.get("description") or "").split()
    keys = [key for text in texts or () if (key := _KEY.fullmatch(str(text)))]
    if not keys or keys[-1][2] != instance:
        return None
    created = _time(shown[resource.created])
    modified = _time(shown.get(resource.modified) or shown[resource.created])
    latest = int(keys[-1][3]) + GRACE
    if created > latest:
        return None
    title = str(shown.get(resource.title))
    return Owned(keys[-1][1], str(shown["id"]), title, created, modified, modified > latest, shown)


def _update(resource: Resource, owned: Owned, wanted: Document) -> Step:
    differing = changes(_without_key(owned.content), wanted)
    action = "unchanged" if not differing else "edited" if owned.edited else "update"
    return Step(resource, owned.document, owned.title, action, wanted, owned.id, owned.modified, differing)


def _removal(resource: Resource, owned: Owned, reason: str) -> Step:
    action = "edited" if owned.edited else "remove"
    return Step(resource, owned.document, owned.title, action, {}, owned.id, reason=reason)


def _without_key(content: Mapping[str, Any]) -> Document:
    """Return the content as it was before its key was added."""
    tags = [tag for tag in content.get("tags") or () if tag != MANAGED and not _KEY.fullmatch(tag)]
    return {**content, "tags": tags, "description": _KEY.sub("", str(content.get("description"))).strip()}


def _is_gone(refused: RefusedError) -> bool:
    """Return whether Datadog itself says that an object is absent; a proxy has no error document."""
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
