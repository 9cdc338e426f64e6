"""Brings dashboards, monitors and metadata in Datadog to what is declared, and touches nothing else.

What is ours is known by its mark (`common/datadog/marks.py`). Every write is one that may have been cut off
or answered in vain before: what was begun is found again and finished, never made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from common.datadog.client import ApplicationClient
from common.datadog.documents import OURS, Document, metadata_document
from common.datadog.marks import MONITOR, OPEN, TAG, Kind, Mark, bare, difference, digest
from common.errors import RefusedError
from common.metric import Metric
from common.net.retry import TransientError

if TYPE_CHECKING:
    from common.datadog.transport import Client

PAGE = 100  # dashboards of one answer
_FORBIDDEN = {401, 403}


class Step(NamedTuple):
    """One object, what is to become of it, and what a person should know of it."""

    kind: Kind
    key: str
    title: str
    action: str  # create, change, finish, keep (changed by hand), leave, remove or foreign
    wanted: Document | None = None
    id: str = ""
    differs: Sequence[str] = ()
    note: str = ""


class Provisioning(ApplicationClient):
    """Asks what there is and writes what differs; `owner` is who: the service and the instance."""

    purpose = "Dashboards, monitors and metadata need an application key"
    owner = ""

    def request(self, method: str, path: str, body: Document | None = None) -> Any:  # Any: JSON
        """Ask until there is an answer in JSON."""
        found: list[Any] = []
        self.ask(lambda client: found.append(self._document(client, method, path, body)))
        return found[-1]

    def _document(self, client: Client, method: str, path: str, body: Document | None = None) -> Any:
        answer = client.ask(method, path, body=body)
        if not isinstance(answer.document, dict | list):
            raise self._strange(answer, garbled=True)
        return answer.document

    def plan(self, kind: Kind, wanted: Mapping[str, Document], *, force: bool) -> Iterator[Step]:
        """What has to be done to have these objects by key, and what is left, without changing anything."""
        every = self._allowed(kind, lambda: self._list(kind))
        ours = self._ours(kind, every)
        for key, document in wanted.items():
            title = document[kind.title]
            if key in ours:
                yield self._compared(kind, key, document, ours[key], force=force)
            else:
                yield Step(
                    kind, key, title, "create", document, note=self._namesakes(kind, title, every, ours)
                )
        for key in ours.keys() - wanted.keys():
            found = ours[key]
            text = "no longer declared; --remove takes it away"
            yield Step(kind, key, found[kind.title], "leave", id=str(found["id"]), note=text)

    def removal(self, kind: Kind, *, force: bool) -> Iterator[Step]:
        """What would be taken away."""
        for key, found in self._ours(kind, self._allowed(kind, lambda: self._list(kind))).items():
            whole = self._whole(kind, found)
            mark = kind.mark(whole)
            by_hand = mark is not None and mark.answered not in {OPEN, kind.digest(whole)}
            action = "keep" if by_hand and not force else "remove"
            yield Step(kind, key, whole[kind.title], action, id=str(found["id"]))

    def apply(self, step: Step) -> None:
        """Do what a step says."""
        path = f"{step.kind.path}/{step.id}"
        if step.action == "remove":
            self._allowed(step.kind, lambda: self._gone(path))
        elif step.wanted is not None and step.action in {"create", "change", "finish"}:
            wanted = step.wanted
            self._allowed(step.kind, lambda: self._write(step.kind, step.key, wanted, step.id))

    def _write(self, kind: Kind, key: str, wanted: Document, known: str) -> None:
        """Write twice: what Datadog makes of it is only known once it has answered."""
        mark = Mark(key, self.owner, known or OPEN, digest(wanted), OPEN)
        body = kind.marked(wanted, mark)
        answer = (
            self.request("PUT", f"{kind.path}/{known}", body) if known else self._create(kind, mark, body)
        )
        made = str(answer["id"])
        closed = mark._replace(id=made, answered=kind.digest(answer))
        self.request("PUT", f"{kind.path}/{made}", kind.marked(wanted, closed))

    def _create(self, kind: Kind, mark: Mark, body: Document) -> Any:
        """Create one, and no second one where the answer to the first was lost."""
        tries = count()
        found: list[Any] = []

        def call(client: Client) -> None:
            if next(tries):
                listed = self._pages(kind, lambda path: self._document(client, "GET", path))
                found.extend(one for one in listed if kind.mark(one) == mark)
            found.append(found[0] if found else self._document(client, "POST", kind.path, body))

        self.ask(call)
        return found[-1]

    def _gone(self, path: str) -> None:
        try:
            self.request("DELETE", path)
        except RefusedError as refused:
            if refused.status != 404 or not refused.problems:  # otherwise somebody else took it away
                raise

    def _list(self, kind: Kind) -> list[Any]:
        return [*self._pages(kind, lambda path: self.request("GET", path))]

    def _pages(self, kind: Kind, get: Callable[[str], Any]) -> Iterator[Any]:
        """Every dashboard, or the monitors of ours."""
        if kind is MONITOR:
            yield from _objects(get(f"{kind.path}?monitor_tags={TAG.replace(':', '%3A')}"))
            return
        for start in count(0, PAGE):
            page = _objects(get(f"{kind.path}?count={PAGE}&start={start}").get("dashboards"))
            yield from page
            if len(page) < PAGE:
                return

    def _ours(self, kind: Kind, every: Iterable[Any]) -> dict[str, Any]:
        """What this owner made, by key; of two with one key the finished one, and then the older one."""
        found: dict[str, Any] = {}
        for one in sorted(every, key=lambda one: str(one.get("created_at") or one.get("created") or "")):
            mark = kind.mark(one)
            if mark and mark.owner == self.owner and mark.id in {OPEN, str(one["id"])}:
                before = kind.mark(found[mark.key]) if mark.key in found else None
                if before is None or (before.id == OPEN and mark.id != OPEN):
                    found[mark.key] = one
        return found

    def _whole(self, kind: Kind, found: Any) -> Any:
        """A listed dashboard is only named; a listed monitor is all there."""
        return found if kind is MONITOR else self.request("GET", f"{kind.path}/{found['id']}")

    def _compared(self, kind: Kind, key: str, wanted: Document, found: Any, *, force: bool) -> Step:
        whole = self._whole(kind, found)
        mark = kind.mark(whole)
        if mark is None or mark.answered == OPEN:
            action = "finish"
        elif kind.digest(whole) != mark.answered:
            action = "change" if force else "keep"
        else:
            action = "leave" if mark.asked == digest(wanted) else "change"
        shown = () if action == "leave" else difference(bare(whole), bare(wanted))
        return Step(kind, key, wanted[kind.title], action, wanted, str(found["id"]), shown)

    def _namesakes(self, kind: Kind, title: str, every: Iterable[Any], ours: Mapping[str, Any]) -> str:
        mine = {str(one["id"]) for one in ours.values()}
        same = [
            str(one["id"]) for one in every if one.get(kind.title) == title and str(one["id"]) not in mine
        ]
        return f"not ours, and left alone, though of the same name: {', '.join(same)}" if same else ""

    def metadata(self, metric: Metric, *, force: bool) -> tuple[str, Document]:
        """What is to become of a metric's metadata: `absent`, `leave`, `foreign` or `change`, and to what."""
        wanted = metadata_document(metric)
        try:
            found = self.request("GET", f"/api/v1/metrics/{metric.name}")
        except RefusedError as refused:
            if refused.status == 404 and refused.problems:
                return "absent", wanted
            raise self._blamed(refused, "metrics_read") from None
        said = str(found.get("description") or "")
        if said and not said.endswith(OURS) and not force:
            return "foreign", wanted
        same = all((found.get(key) or "") == value for key, value in wanted.items())
        return ("leave" if same else "change"), wanted

    def write_metadata(self, name: str, document: Document) -> None:
        """Write a metric's metadata."""
        try:
            self.request("PUT", f"/api/v1/metrics/{name}", document)
        except RefusedError as refused:
            raise self._blamed(refused, "metrics_metadata_write") from None

    def validate_monitor(self, document: Document) -> None:
        """Let Datadog judge a monitor without making it; raises RefusedError with what is wrong."""
        self._allowed(MONITOR, lambda: self.request("POST", f"{MONITOR.path}/validate", document))

    def _allowed(self, kind: Kind, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except RefusedError as refused:
            raise self._blamed(refused, kind.permission) from None

    def _blamed(self, refused: RefusedError, permission: str) -> Exception:
        return self.blame(refused, permission) if refused.status in _FORBIDDEN else refused


def _objects(listed: Any) -> list[Any]:
    """The objects of a list; anything else is no answer of Datadog's."""
    if not isinstance(listed, list) or not all(isinstance(one, dict) and "id" in one for one in listed):
        raise TransientError("an answer that is no list of objects")
    return listed
