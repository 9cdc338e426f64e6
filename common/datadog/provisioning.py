"""Brings dashboards, monitors and metadata in Datadog to what is declared, and touches nothing else.

What is ours is known by its mark (`common/datadog/marks.py`). Every write is one that may have been cut off
or answered in vain before: what was begun is found again and finished, never made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from common.config.settings import CoreSettings, DatadogSettings
from common.datadog.client import DatadogClient
from common.datadog.documents import OURS, Document, metadata_document
from common.datadog.marks import METADATA, MONITOR, OPEN, TAG, Kind, Mark, bare, difference, digest
from common.errors import RefusedError
from common.metric import Metric
from common.net.http import Reply
from common.net.retry import Deadline

PAGE = 100  # objects of one answer
_PERMISSIONS = {
    "dashboard": ("dashboards_read", "dashboards_write"),
    "monitor": ("monitors_read", "monitors_write"),
    "metrics": ("metrics_read", "metrics_metadata_write"),
}

Read = Callable[[Any], Any]  # makes of a document what was asked for, or raises where it is something else
Ours = list[tuple[Mark, Any]]  # Any: JSON


class Step(NamedTuple):
    """One object, what is to become of it, and what a person should know of it."""

    kind: Kind
    key: str
    title: str
    action: str  # create, change, finish, remove; keep (changed by hand), leave, foreign, absent
    wanted: Document | None = None
    id: str = ""
    differs: Sequence[str] = ()
    note: str = ""


class Provisioning:
    """Asks what there is and writes what differs; `owner` is who: the service and the instance."""

    owner = ""

    def __init__(self, settings: DatadogSettings, core: CoreSettings, deadline: Deadline) -> None:
        purpose = "Dashboards, monitors and metadata need an application key"
        self.client = DatadogClient(settings, core, deadline, purpose=purpose)

    def request(self, method: str, path: str, body: Document | None = None, read: Read | None = None) -> Any:
        """Ask until there is an answer that can be read."""
        return self._asked(method, path, lambda ask: (read or _fields)(ask(method, path, body=body).document))

    def _asked(self, method: str, path: str, read: Read) -> Any:
        """What `read` makes of asking, by what it is given to ask with."""
        try:
            return self.client.retry(lambda: read(self.client.request))
        except RefusedError as refused:
            permission = _PERMISSIONS[path.split("/")[3].partition("?")[0]][method != "GET"]
            raise self.client.explain_refusal(refused, permission) from None

    def plan(self, kind: Kind, wanted: Mapping[str, Document], *, force: bool) -> Iterator[Step]:
        """What has to be done to have these objects by key, and what is left, without changing anything."""
        every = [*_pages(kind, lambda path, read: self.request("GET", path, read=read))]
        ours = self._ours(kind, every)
        first = {mark.key: (mark, found) for mark, found in reversed(ours)}
        mine = {str(found["id"]) for _, found in ours}
        for key, document in wanted.items():
            if key in first:
                yield self._compared(kind, document, *first[key], force=force)
                continue
            title = document[kind.title]
            same = [one["id"] for one in every if one.get(kind.title) == title and str(one["id"]) not in mine]
            note = f"not ours, and left alone, though of the same name: {', '.join(map(str, same))}"
            yield Step(kind, key, title, "create", document, note=note if same else "")
        for mark, found in ours:
            if mark.key not in wanted or found is not first[mark.key][1]:
                why = "there is another one of it" if mark.key in wanted else "no longer declared"
                note = f"{why}; --remove takes it away"
                yield Step(kind, mark.key, str(found.get(kind.title)), "leave", note=note)

    def removal(self, kind: Kind, *, force: bool) -> Iterator[Step]:
        """What would be taken away."""
        every = _pages(kind, lambda path, read: self.request("GET", path, read=read))
        for mark, found in self._ours(kind, every):
            whole = self._whole(kind, found)
            by_hand = mark.answered not in {OPEN, kind.digest(whole)}
            action = "keep" if by_hand and not force else "remove"
            yield Step(kind, mark.key, str(whole.get(kind.title)), action, id=str(found["id"]))

    def apply(self, step: Step) -> None:
        """Do what a step says."""
        if step.action == "remove":
            self._remove(f"{step.kind.path}/{step.id}")
        elif step.kind is METADATA:
            self.request("PUT", f"{step.kind.path}/{step.key}", step.wanted)
        elif step.wanted is not None and step.action in {"create", "change", "finish"}:
            self._write(step.kind, step.key, step.wanted, step.id)

    def _write(self, kind: Kind, key: str, wanted: Document, known: str) -> None:
        """Write twice: what Datadog makes of it is only known once it has answered."""
        mark = Mark(key, self.owner, known or OPEN, digest(wanted), OPEN)
        body = kind.marked(wanted, mark)
        if known:
            answer = self.request("PUT", f"{kind.path}/{known}", body, _object)
        else:
            answer = self._create(kind, mark, body)
        made = str(answer["id"])
        if kind.mark(answer) != mark:  # never write to what somebody on the way takes for ours
            raise RefusedError(
                f"{self.client.address} answered with another {kind.name} than was written: {made}"
            )
        closed = mark._replace(id=made, answered=kind.digest(answer))
        self.request("PUT", f"{kind.path}/{made}", kind.marked(wanted, closed))

    def _create(self, kind: Kind, mark: Mark, body: Document) -> Any:
        """Create one; where the answer to that was lost, write what it made once more instead."""
        tries = count()

        def create(ask: Callable[..., Reply]) -> Any:
            method, path = "POST", kind.path
            if next(tries):
                for one in _pages(kind, lambda path, read: read(ask("GET", path).document)):
                    if kind.mark(one) == mark:
                        method, path = "PUT", f"{kind.path}/{one['id']}"
            return _object(ask(method, path, body=body).document)

        return self._asked("POST", kind.path, create)

    def _remove(self, path: str) -> None:
        try:
            self.request("DELETE", path)
        except RefusedError as refused:
            if refused.status != 404 or not refused.problems:  # otherwise somebody else took it away
                raise

    def _ours(self, kind: Kind, every: Iterable[Any]) -> Ours:
        """What this owner made: before others what is finished, and then the older ones."""
        marked = [(mark, one) for one in every if (mark := kind.mark(one)) is not None]
        ours = [
            (mark, one)
            for mark, one in marked
            if mark.owner == self.owner and mark.id in {OPEN, str(one["id"])}
        ]
        return sorted(ours, key=lambda pair: (pair[0].id == OPEN, _created(pair[1])))

    def _whole(self, kind: Kind, found: Any) -> Any:
        """A listed dashboard is only named; a listed monitor is all there."""
        return found if kind is MONITOR else self.request("GET", f"{kind.path}/{found['id']}", read=_object)

    def _compared(self, kind: Kind, wanted: Document, mark: Mark, found: Any, *, force: bool) -> Step:
        whole = self._whole(kind, found)
        if mark.answered == OPEN:
            action = "finish"
        elif kind.digest(whole) != mark.answered:
            action = "change" if force else "keep"
        else:
            action = "leave" if mark.asked == digest(wanted) else "change"
        shown = () if action == "leave" else difference(bare(whole), bare(kind.marked(wanted, mark)))
        return Step(kind, mark.key, wanted[kind.title], action, wanted, str(found["id"]), shown)

    def metadata(self, metric: Metric, *, force: bool, remove: bool) -> Step:
        """What is to become of a metric's metadata; what is removed loses its words and keeps its unit."""
        step = Step(METADATA, metric.name, "", "leave", metadata_document(metric))
        try:
            found = self.request("GET", f"{METADATA.path}/{metric.name}")
        except RefusedError as refused:
            if refused.status == 404 and refused.problems:
                return step._replace(action="absent")
            raise
        said = str(found.get("description") or "")
        ours = said.endswith(OURS)
        if remove and not ours:
            return step
        if said and not ours and not force:
            return step._replace(action="foreign")
        wanted = metadata_document(metric) | ({"description": "", "short_name": ""} if remove else {})
        shown = difference({key: found.get(key) or "" for key in wanted}, wanted)
        return step._replace(action="change", wanted=wanted, differs=shown) if shown else step


def _pages(kind: Kind, get: Callable[[str, Read], list[Any]]) -> Iterator[Any]:
    """Every dashboard, or the monitors of ours."""

    def read(document: Any) -> list[Any]:
        listed = document if kind is MONITOR else document["dashboards"]
        if not isinstance(listed, list):
            raise TypeError
        return [*map(_object, listed)]

    for number in count():
        asked = f"count={PAGE}&start={number * PAGE}"
        if kind is MONITOR:
            asked = f"monitor_tags={TAG.replace(':', '%3A')}&page={number}&page_size={PAGE}"
        page = get(f"{kind.path}?{asked}", read)
        yield from page
        if len(page) < PAGE:
            return


def _fields(document: Any) -> Any:
    if not isinstance(document, dict):
        raise TypeError
    return document


def _object(document: Any) -> Any:
    """An object of Datadog's: whatever has no id is none."""
    if not isinstance(_fields(document)["id"], str | int):
        raise TypeError
    return document


def _created(found: Any) -> str:
    return str(found.get("created_at") or found.get("created") or "")
