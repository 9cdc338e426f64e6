"""The GraphQL queries: what they select and filter, how their answers are read, and which projects there are.

The core of each selection is what the official client itself selects. Every other field and argument is
optional: where the server rejects it, the query is written again without it.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from collectors.wandb.api import (
    Api,
    Data,
    FailedPageError,
    Json,
    OverloadedError,
    RejectedQueryError,
    Response,
    UnknownProjectError,
    summary,
    unknown_shape,
)
from collectors.wandb.runs import TERMINAL, Run, RunReader, State, microseconds
from collectors.wandb.settings import Project
from collectors.wandb.slices import Page, Row
from common.errors import FleetgaugeError, SourceError
from common.names import normalise_tag
from common.net.http import MAX_RESPONSE_BYTES
from common.net.retry import Deadline, TransientError, persist
from common.times import iso

ORDER = "+created_at"
PROJECTS_PER_PAGE = 200
MAX_PROJECTS = 100_000
COUNT_TRIES = 3  # of a page of projects with their numbers of runs

_OFFSET = re.compile(r"arrayconnection:(\d+)")
_UNKNOWN_FIELD = re.compile(r"Cannot query field [\"'`]?(\w+)")
_UNKNOWN_ARGUMENT = re.compile(r"Unknown argument [\"'`]?\w+[\"'`]? on field [\"'`]?(?:\w+\.)?(\w+)")

log = logging.getLogger(__name__)

Filter = Mapping[str, object]


class Extra(Enum):
    """What a server may lack, and what is lost without it."""

    COMPUTE_SECONDS = "computeSeconds: the duration of a resumed run includes its pauses"
    RUN_INFO = "runInfo: the GPUs of runs of older clients are assumed"
    TOTAL_COUNT = "totalCount: hidden runs are not counted (wandb.runs.unseen), and pages come one by one"
    CONFIG_KEYS = "config(keys:): complete configs are read, which is slow"
    SUMMARY_KEYS = "summaryMetrics(keys:): complete summaries are read, which is slow"
    USER = "user: the users of runs are unknown (tag user)"
    GROUP = "group: the groups of runs are unknown (tag group)"
    JOB_TYPE = "jobType: the job types of runs are unknown (tag job_type)"
    TAGS = "tags: groups by the tags of runs are unknown"
    SYSTEM_METRICS = "systemMetrics: the utilisation of GPUs and idle runs are unknown"
    PROJECT_CREATED = "createdAt of projects: of two with the same tags, the first by name is read"
    RUN_COUNT = "runCount: every project of an entity costs a request"


WIDE = frozenset({Extra.CONFIG_KEYS, Extra.SUMMARY_KEYS})  # without them a row may have 100 kB
_FIELDS = {
    Extra.COMPUTE_SECONDS: "computeSeconds",
    Extra.RUN_INFO: "runInfo { gpuCount }",
    Extra.USER: "user { username }",
    Extra.GROUP: "group",
    Extra.JOB_TYPE: "jobType",
    Extra.TAGS: "tags",
    Extra.SYSTEM_METRICS: "systemMetrics",
}
_GROUPS = {"user": Extra.USER, "group": Extra.GROUP, "job_type": Extra.JOB_TYPE}
_RUN_PARTS = {
    **{name: part for part, text in _FIELDS.items() for name in re.findall(r"\w+", text)},
    "totalCount": Extra.TOTAL_COUNT,
    "config": Extra.CONFIG_KEYS,
    "summaryMetrics": Extra.SUMMARY_KEYS,
}
_PROJECT_PARTS = {"createdAt": Extra.PROJECT_CREATED, "runCount": Extra.RUN_COUNT}

_RUNS = """\
query Runs(
  $entity: String!, $project: String!, $filters: JSONString, $order: String, $first: Int, $after: String
) {
  viewer { id }
  project(name: $project, entityName: $entity) {
    runs(filters: $filters, order: $order, first: $first, after: $after) {
      %(total)s
      pageInfo { hasNextPage endCursor }
      edges {
        node {
          id name displayName state createdAt heartbeatAt sweepName
          config%(config)s summaryMetrics%(summary)s %(more)s
        }
      }
    }
  }
}
"""
_PROJECTS = """\
query Projects($entity: String!, $first: Int, $after: String%(variable)s) {
  viewer { id }
  models(entityName: $entity, first: $first, after: $after) {
    pageInfo { hasNextPage endCursor }
    edges { node { name %(more)s } }
  }
}
"""


class UnknownPartsError(Exception):  # resolved by requesting less
    """The server does not know some optional parts of a query."""

    def __init__(self, parts: frozenset[Extra], text: str) -> None:
        super().__init__(text)
        self.parts = parts


def touched_since(cutoff: int, created_before: int | None = None) -> Filter:
    """Return the filter for runs that were created or had a heartbeat since a time, or have not ended.

    By creation alone, the long runs that end today would be missed; by heartbeat alone, those that never had
    one. A run that has not ended counts whatever its age. A backfill needs none that was created behind it.
    """
    since = {"$gte": iso(cutoff)}
    unended = [{"state": state.value} for state in State if state not in TERMINAL]
    touched: Filter = {"$or": [{"heartbeatAt": since}, {"createdAt": since}, *unended]}
    if created_before is None:
        return touched
    return {"$and": [touched, {"createdAt": {"$lt": iso(created_before)}}]}


def active_since(time: int) -> Filter:
    """Return the filter for runs that are running and had a heartbeat since a time."""
    running = [{"state": state.value} for state in (State.RUNNING, State.PREEMPTING)]
    return {"$and": [{"$or": running}, {"heartbeatAt": {"$gte": iso(time)}}]}


def unneeded(group_by: Iterable[str], *, system_metrics: bool) -> frozenset[Extra]:
    """Return the parts of the query for runs that need not be selected."""
    needed = {Extra.TAGS if by.startswith("tag:") else _GROUPS.get(by) for by in group_by}
    needed |= {Extra.USER, Extra.SYSTEM_METRICS} if system_metrics else set()
    return frozenset({*_GROUPS.values(), Extra.TAGS, Extra.SYSTEM_METRICS} - needed)


@dataclass(frozen=True)
class PageRequest:
    """Up to `rows` runs of a project that pass a filter and were created in `[since, until)`."""

    project: Project
    filters: Filter
    rows: int
    since: int | None = None
    until: int | None = None
    offset: int = 0
    cursor: str | None = None
    missing: frozenset[Extra] = frozenset()
    largest: int = MAX_RESPONSE_BYTES

    @property
    def variables(self) -> dict[str, Json]:
        """Return the variables of the query."""
        limits = {"$gte": self.since, "$lt": self.until}
        created = {key: iso(limit) for key, limit in limits.items() if limit is not None}
        filters = {"$and": [self.filters, {"createdAt": created}]} if created else self.filters
        after = self.cursor
        if after is None and self.offset:
            after = base64.b64encode(f"arrayconnection:{self.offset - 1}".encode()).decode()
        return {
            "entity": self.project.entity,
            "project": self.project.name,
            "filters": json.dumps(filters),
            "order": ORDER,
            "first": self.rows,
            "after": after,
        }


class RunPage(NamedTuple):
    """A page of runs; by id, what could not be read of a run; and how many errors are beside the data."""

    page: Page[Run | None]
    flaws: Mapping[str, list[str]]
    errors: int


def fetch_runs(api: Api, request: PageRequest, reading: RunReader, deadline: Deadline) -> Response[RunPage]:
    """Return a page of runs; UnknownPartsError where the server lacks optional parts."""
    missing = request.missing
    text = _RUNS % {
        "total": "" if Extra.TOTAL_COUNT in missing else "totalCount",
        "config": "" if Extra.CONFIG_KEYS in missing else f"(keys: {json.dumps(reading.config_keys)})",
        "summary": "" if Extra.SUMMARY_KEYS in missing else f"(keys: {json.dumps(reading.summary_keys)})",
        "more": " ".join(text for part, text in _FIELDS.items() if part not in missing),
    }

    def read(data: Data, errors: list[str]) -> RunPage:
        runs = api.runs_of(request.project, data, errors)
        try:
            return _page(runs, reading, len(errors))
        except (TypeError, KeyError, AttributeError) as error:
            raise unknown_shape(str(request.project), error) from None

    try:
        return api.execute(text, request.variables, read, deadline, request.largest)
    except RejectedQueryError as error:
        raise _unknown_parts(error, _RUN_PARTS, missing, api.url) from None


def _page(runs: Data, reading: RunReader, errors: int) -> RunPage:
    total, information = runs.get("totalCount"), runs["pageInfo"]
    more, cursor = bool(information["hasNextPage"]), information.get("endCursor")
    end = _offset(cursor)
    rows: list[Row[Run | None]] = []
    flaws: dict[str, list[str]] = {}
    for edge in runs["edges"]:
        node = edge["node"]
        found: list[str] = []
        if isinstance(node, dict) and isinstance(node.get("id"), str):
            key, run = node["id"], reading.read(node, found)
            created = _seconds(node.get("createdAt")) if run is None else run.start / 1e6
        else:
            key, run, created = f"malformed {node!r:.200}", None, None
            found.append("malformed_run")
        rows.append(Row(key, created, run))
        if found:
            flaws[key] = found
    is_opaque = more and end is None and isinstance(cursor, str)
    count = total if isinstance(total, int) and not isinstance(total, bool) else None
    return RunPage(Page(rows, count, more, end, cursor if is_opaque else None), flaws, errors)


def _offset(cursor: Json) -> int | None:
    """Return the offset in a cursor; None where it is something else."""
    try:
        found = _OFFSET.fullmatch(base64.b64decode(cursor, validate=True).decode())
    except (TypeError, ValueError):
        return None
    return int(found[1]) if found else None


def _seconds(text: Json) -> float | None:
    try:
        return microseconds(text) / 1e6
    except ValueError:
        return None


def _unknown_parts(
    error: RejectedQueryError, known: Mapping[str, Extra], missing: Collection[Extra], url: str
) -> Exception:
    """Return the optional parts that a server does not know as an error; SourceError for other parts."""
    parts: set[Extra | None] = set()
    for message in error.messages:
        searches = (pattern.search(message) for pattern in (_UNKNOWN_FIELD, _UNKNOWN_ARGUMENT))
        parts |= {known.get(found[1]) for found in searches if found}
    if not parts or None in parts or parts <= {*missing}:
        return SourceError(f"{url} rejects the query: {error}")
    unknown = frozenset(part for part in parts if part is not None)
    for part in sorted(unknown - {*missing}, key=lambda part: part.name):
        log.warning("%s does not know %s", url, part.value)
    return UnknownPartsError(unknown, str(error))


class CollidingProjectError(SourceError):
    """Datadog stores the tags of a project as those of another, which is read."""


class ProjectInfo(NamedTuple):
    """When a project was created, in microseconds, and how many runs it has to read; None if unknown."""

    created: int | None = None
    runs: int | None = None


_ProjectPage = tuple[dict[str, ProjectInfo], str | None]


@dataclass
class Projects:
    """The projects to read. `lost` are entities that cannot be listed, and projects with another's tags.

    Those that were `found` in an entity's listing may go at any time: that is not an error.
    """

    api: Api
    deadline: Deadline
    filters: Filter  # of the runs to be read
    pause: float = 0.0
    missing: frozenset[Extra] = frozenset()
    selected: list[Project] = field(default_factory=list)
    found: dict[Project, ProjectInfo] = field(default_factory=dict)
    lost: dict[Project, FleetgaugeError] = field(default_factory=dict)
    listings: dict[str, list[dict[str, ProjectInfo]]] = field(default_factory=lambda: defaultdict(list))
    _first: int = PROJECTS_PER_PAGE
    _failures: int = 0

    def select(self, named: list[Project], remembered: Collection[Project] = ()) -> None:
        """List each entity whose name is followed by *, and select every project once.

        Where a listing lacks a `remembered` project, the entity is listed again.
        """
        for project in named:
            if project.name != "*":
                self.selected.append(project)
                continue
            try:
                listed = self.list_entity(project.entity)
                if any(each.entity == project.entity and each.name not in listed for each in remembered):
                    listed = {**listed, **self.list_entity(project.entity)}
                if not listed:
                    raise UnknownProjectError(f"{project} matches no project; check WANDB_PROJECTS")
            except FleetgaugeError as error:
                self.lost[project] = error
                continue
            found = {Project(project.entity, name): about for name, about in listed.items()}
            self.selected += found
            self.found |= found
        self.selected = list(dict.fromkeys(self.selected))
        self._lose_collisions(named)

    def has_no_runs(self, project: Project) -> bool:
        """Return whether a project has no runs to read, by the listing of its entity."""
        return self.found.get(project, ProjectInfo()).runs == 0

    def is_deleted(self, project: Project) -> bool:
        """Return whether the last two listings of an entity lack a project; it is listed up to twice more."""
        if project.entity not in self.listings:
            return False
        listings = self.listings[project.entity]
        try:
            for _ in range(2):
                if all(project.name not in listing for listing in listings[-2:]) and len(listings) > 1:
                    return True
                self.list_entity(project.entity)
        except FleetgaugeError as error:
            log.info("whether %s is deleted is unknown: %s", project, error)
            return False
        return all(project.name not in listing for listing in listings[-2:])

    def list_entity(self, entity: str) -> dict[str, ProjectInfo]:
        """Return the projects of an entity by name; an error where it cannot be listed."""
        listed: dict[str, ProjectInfo] = {}
        after: str | None = None
        while True:
            before = len(listed)
            try:
                page, following = persist(
                    lambda: self._page(entity, after),  # noqa: B023
                    self.deadline,
                    self.deadline.sleep,
                )
            except TransientError as error:
                raise SourceError(f"cannot list the projects of {entity}: {error}") from None
            listed |= page
            if following is None:
                self.listings[entity].append(listed)
                return listed
            if following == after or len(listed) == before or len(listed) > MAX_PROJECTS:
                raise SourceError(f"the listing of the projects of {entity} does not end")
            after = following
            if self.pause:
                self.deadline.sleep(min(self.pause, max(0.0, self.deadline.remaining())))

    def _page(self, entity: str, after: str | None) -> _ProjectPage:
        """Return a page of projects, and the cursor behind which there are more.

        Counting runs may be too much for the server: fewer projects are requested then, in the end without.
        """
        while True:
            counts, created = Extra.RUN_COUNT not in self.missing, Extra.PROJECT_CREATED not in self.missing
            more = f"{'createdAt' if created else ''} {'runCount(filters: $filters)' if counts else ''}"
            text = _PROJECTS % {"variable": ", $filters: JSONString" if counts else "", "more": more}
            variables: dict[str, Json] = {"entity": entity, "first": self._first, "after": after}
            if counts:
                variables["filters"] = json.dumps(self.filters)
            try:
                return self.api.execute(text, variables, self._reader(entity), self.deadline).content
            except RejectedQueryError as error:
                unknown = _unknown_parts(error, _PROJECT_PARTS, self.missing, self.api.url)
                if not isinstance(unknown, UnknownPartsError):
                    raise unknown from None
                self.missing |= unknown.parts
            except (OverloadedError, FailedPageError):
                self._failures += 1
                self._first = max(1, self._first // 2) if counts else PROJECTS_PER_PAGE
                if self._failures >= COUNT_TRIES and counts:
                    self.missing |= {Extra.RUN_COUNT}
                    self._first = PROJECTS_PER_PAGE
                raise

    def _reader(self, entity: str) -> Callable[[Data, list[str]], _ProjectPage]:
        def read(data: Data, errors: list[str]) -> _ProjectPage:
            models = data.get("models")
            if models is None and not errors:
                raise self.api.unknown(f"entity {entity}")
            try:
                nodes = [edge["node"] for edge in models["edges"]] if models is not None else [None]
                if models is None or (errors and None in nodes):  # a project whose runs cannot be counted
                    raise FailedPageError(
                        f"{self.api.url} could not list the projects of {entity}: {summary(errors)}"
                    )
                page = {
                    str(node["name"]): ProjectInfo(_time(node.get("createdAt")), _count(node.get("runCount")))
                    for node in nodes
                    if node
                }
                information = models["pageInfo"]
                return page, information["endCursor"] if information["hasNextPage"] else None
            except (TypeError, KeyError, AttributeError) as error:
                raise unknown_shape(f"the projects of {entity}", error) from None

        return read

    def _lose_collisions(self, named: list[Project]) -> None:
        """Of projects that Datadog stores under the same tags, keep the one that was created first.

        Where that is unknown of any of them, it is the one named first, then the first by name.
        """
        groups: dict[tuple[str, str], list[Project]] = defaultdict(list)
        for project in self.selected:
            tags = (normalise_tag(f"entity:{project.entity}"), normalise_tag(f"project:{project.name}"))
            groups[tags].append(project)
        order = {project: number for number, project in enumerate(named)}
        for group in groups.values():
            created = [self.found.get(project, ProjectInfo()).created for project in group]
            times = [0 if None in created else time or 0 for time in created]
            ranks = [order.get(project, len(order)) for project in group]
            first, *others = [project for *_, project in sorted(zip(times, ranks, group, strict=True))]
            for project in others:
                self.lost[project] = CollidingProjectError(
                    f"Datadog stores its tags as those of {first}; rename it in W&B, or leave it out"
                )
        self.selected = [project for project in self.selected if project not in self.lost]


def _time(text: Json) -> int | None:
    try:
        return microseconds(text)
    except ValueError:
        return None


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
