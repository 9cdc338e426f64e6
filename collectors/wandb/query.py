"""The GraphQL queries: what they select and filter, how their answers are read, and which projects there are.

The core of each selection is what the official client itself selects. Every other field and argument is
optional: where the server rejects it, the query is written again without it. `api` sends the queries, `runs`
parses a row, `reader` decides what to send.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from collectors.wandb.api import (
    Api,
    FailedRequestError,
    Json,
    RefusedProjectError,
    UnknownFieldsError,
    UnknownProjectError,
)
from collectors.wandb.runs import TERMINAL, Run, RunReader, State, microseconds
from collectors.wandb.settings import Project
from collectors.wandb.slices import Failure, Page, SliceRequest
from common.errors import FleetgaugeError, SourceError
from common.names import normalise_tag
from common.net.http import Reply
from common.net.retry import Deadline, TransientError, persist
from common.times import iso

ORDER = "+created_at"
PROJECTS_PER_PAGE = 200
COUNT_TRIES = 3  # of a page of projects with their numbers of runs

_OFFSET = re.compile(r"arrayconnection:(\d+)")
_REFUSED = re.compile(r"permission|denied|forbidden|unauthori[sz]ed|not found", re.IGNORECASE)

log = logging.getLogger(__name__)

Filter = Mapping[str, object]


class Extra(Enum):
    """What a server may lack: how it is selected, and what is lost without it.

    A self-hosted server may be older than the client, and newer servers drop fields such as `runInfo`.
    """

    COMPUTE_SECONDS = ("computeSeconds", "the duration of a resumed run includes its pauses")
    RUN_INFO = ("runInfo { gpuCount }", "the GPUs of runs of older clients are assumed")
    TOTAL_COUNT = ("totalCount", "hidden runs are not counted (wandb.runs.unseen), and pages come one by one")
    CONFIG_KEYS = ("config(keys:)", "complete configs are read, which is slow")
    SUMMARY_KEYS = ("summaryMetrics(keys:)", "complete summaries are read, which is slow")
    USER = ("user { username }", "the users of runs are unknown (tag user)")
    GROUP = ("group", "the groups of runs are unknown (tag group)")
    JOB_TYPE = ("jobType", "the job types of runs are unknown (tag job_type)")
    TAGS = ("tags", "groups by the tags of runs are unknown")
    SYSTEM_METRICS = ("systemMetrics", "the utilisation of GPUs and idle runs are unknown")
    PROJECT_CREATED = ("createdAt", "of two projects with the same tags, the first by name is read")
    RUN_COUNT = ("runCount(filters: $filters)", "every project of an entity costs a request")

    @property
    def fields(self) -> list[str]:
        """Return the fields by which a server may reject it: an error names a field, never the selection."""
        return re.findall(r"\b[a-z]\w+\b(?!:)", self.value[0].partition("(")[0])

    def __str__(self) -> str:
        return f"{self.fields[0]}: {self.value[1]}"


_GROUPS = {"user": Extra.USER, "group": Extra.GROUP, "job_type": Extra.JOB_TYPE}
_RUN_FIELDS = (Extra.COMPUTE_SECONDS, Extra.RUN_INFO, *_GROUPS.values(), Extra.TAGS, Extra.SYSTEM_METRICS)
_EXTRAS = {name: extra for extra in Extra for name in extra.fields}

# Every query selects `viewer`, which shows whether the key is accepted (`Api.read`).
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


def touched_since(cutoff: int, created_before: int | None = None) -> Filter:
    """Return the filter for runs that were created or had a heartbeat since a time, or have not ended.

    By creation alone, the long runs that end today would be missed; by heartbeat alone, those that never had
    one. A run that has not ended counts whatever its age. A backfill needs none that was created behind it.
    Times are seconds since the epoch.
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
    """Return the parts of the query for runs that need not be selected.

    `group_by` are the parts of a group as in the settings. `systemMetrics` alone is about 10 kB per run.
    """
    needed = {Extra.TAGS if by.startswith("tag:") else _GROUPS.get(by) for by in group_by}
    needed |= {Extra.USER, Extra.SYSTEM_METRICS} if system_metrics else set()
    return frozenset({*_GROUPS.values(), Extra.TAGS, Extra.SYSTEM_METRICS} - needed)


def without(error: UnknownFieldsError, missing: frozenset[Extra], url: str) -> frozenset[Extra]:
    """Return what a server lacks, after it rejected a query; `missing` is what was known before.

    Raises SourceError where a rejected field must be selected, or was left out already.
    """
    found = {_EXTRAS.get(name) for name in error.fields}
    unknown = frozenset(extra for extra in found if extra is not None)
    if None in found or unknown <= missing:
        raise SourceError(f"{url} rejects the query: {error}")
    for extra in sorted(unknown - missing, key=str):
        log.warning("%s does not know %s", url, extra)
    return missing | unknown


def _selection(extras: Iterable[Extra], missing: Collection[Extra]) -> str:
    return " ".join(extra.value[0] for extra in extras if extra not in missing)


def runs_query(
    project: Project, filters: Filter, request: SliceRequest, missing: Collection[Extra], reading: RunReader
) -> tuple[str, dict[str, Json]]:
    """Return the query for the runs of a slice that pass a filter, and its variables.

    `missing` are the parts to leave out, `reading` knows the keys of config and summary to select.
    """
    config, summary = (
        "" if extra in missing else f"(keys: {json.dumps(keys)})"
        for extra, keys in (
            (Extra.CONFIG_KEYS, reading.config_keys),
            (Extra.SUMMARY_KEYS, reading.summary_keys),
        )
    )
    total, more = _selection([Extra.TOTAL_COUNT], missing), _selection(_RUN_FIELDS, missing)
    # Half-open and in whole seconds: neighbouring slices share no run and leave none out.
    limits = {"$gte": request.since, "$lt": request.until}
    created = {key: iso(limit) for key, limit in limits.items() if limit is not None}
    # W&B's cursor is the offset of the last row in base64, so that any offset can be requested without paging
    # to it.
    after = f"arrayconnection:{request.offset - 1}".encode()
    return _RUNS % {"total": total, "config": config, "summary": summary, "more": more}, {
        "entity": project.entity,
        "project": project.name,
        "filters": json.dumps({"$and": [filters, {"createdAt": created}]} if created else filters),
        "order": ORDER,
        "first": request.rows,
        "after": base64.b64encode(after).decode() if request.offset else None,
    }


class RunPage(NamedTuple):
    """A page of runs; by id, what could not be read of a run; and the errors beside the data."""

    page: Page[Run | None]
    flaws: dict[str, list[str]]
    errors: str


def read_runs(api: Api, project: Project, reply: Reply, reading: RunReader) -> RunPage:
    """Return the page of runs in an answer, or raise what it means that there is none.

    A row that cannot be read is None in the page: it was seen, and counts for completeness. Raises
    UnknownProjectError, RefusedProjectError, FailedRequestError, or SourceError for an unknown shape.
    """
    data, errors = api.read(reply)
    found = data.get("project")
    if found is None and not errors:
        raise api.unknown(f"project {project}")
    if found is None and _REFUSED.search(errors):
        raise RefusedProjectError(f"{api.url} refused {project}: {errors}")
    if found is None:
        raise FailedRequestError(f"{api.url} did not answer for {project}: {errors}")
    rows: dict[str, Run | None] = {}
    times: list[float] = []
    flaws: dict[str, list[str]] = {}
    with _known_shape(str(project)):
        runs = found["runs"]
        # By the schema a row that cannot be served makes the complete list null; it also happens under load.
        if runs is None and errors:
            raise FailedRequestError(f"{api.url} could not list runs: {errors}", Failure.QUICK)
        information, total = runs["pageInfo"], runs.get("totalCount")
        for edge in runs["edges"]:
            node = edge["node"]
            of_run: list[str] = []
            if isinstance(node, dict) and isinstance(node.get("id"), str):
                key, run = node["id"], reading.read(node, of_run)
                created = _microseconds(node.get("createdAt")) if run is None else run.start
                if created is not None:
                    times.append(created / 1e6)
            else:
                key, run, of_run = f"malformed {node!r:.200}", None, ["malformed_run"]
            rows[key] = run
            if of_run:
                flaws[key] = of_run
        # `type` and not `isinstance`: JSON's true is no count.
        count = total if type(total) is int else None
        end = _offset(information.get("endCursor"))
        return RunPage(Page(rows, times, count, bool(information["hasNextPage"]), end), flaws, errors)


@contextmanager
def _known_shape(subject: str) -> Iterator[None]:
    """Raise SourceError for an answer that does not follow the schema."""
    try:
        yield
    except (TypeError, KeyError, AttributeError) as error:
        raise SourceError(f"W&B answered for {subject} in an unknown shape: {error!r}") from None


def _offset(cursor: Json) -> int | None:
    """Return the offset in a cursor; None where it is something else."""
    try:
        found = _OFFSET.fullmatch(base64.b64decode(cursor, validate=True).decode())
    except (TypeError, ValueError):
        return None
    return int(found[1]) if found else None


def _microseconds(text: Json) -> int | None:
    try:
        return microseconds(text)
    except ValueError:
        return None


class CollidingProjectError(SourceError):
    """Datadog stores the tags of a project as those of another, which is read."""


class ProjectInfo(NamedTuple):
    """When a project was created, in microseconds, and how many runs it has to read; None if unknown."""

    created: int | None = None
    runs: int | None = None


@dataclass
class Projects:
    """The projects to read. `lost` are entities that cannot be listed, and projects with another's tags.

    Those that were `found` in an entity's listing may go at any time: that is not an error. `filters` select
    the runs that are counted per project; `pause` is the wait between two pages, in seconds.
    """

    api: Api
    deadline: Deadline
    filters: Filter  # of the runs to be read
    pause: float = 0.0
    missing: frozenset[Extra] = frozenset()
    selected: list[Project] = field(default_factory=list)
    found: dict[Project, ProjectInfo] = field(default_factory=dict)
    lost: dict[Project, FleetgaugeError] = field(default_factory=dict)
    _failures: int = 0

    def select(self, named: list[Project], remembered: Collection[Project] = ()) -> None:
        """List each entity whose name is followed by *, and select every project once.

        A listing is read in pages and may miss a project that exists: where it lacks a `remembered` one, the
        entity is listed again. An entity that cannot be listed is `lost`, with its error.
        """
        for project in named:
            if project.name != "*":
                self.selected.append(project)
                continue
            try:
                found = self._list(project.entity)
                if any(each.entity == project.entity and each not in found for each in remembered):
                    found |= self._list(project.entity)
                if not found:
                    raise UnknownProjectError(f"{project} matches no project; check WANDB_PROJECTS")
            except FleetgaugeError as error:
                self.lost[project] = error
                continue
            self.selected += found
            self.found |= found
        self.selected = list(dict.fromkeys(self.selected))
        self._lose_collisions(named)

    def has_no_runs(self, project: Project) -> bool:
        """Return whether a project has no runs to read, by the listing of its entity."""
        return project in self.found and self.found[project].runs == 0

    def is_deleted(self, project: Project) -> bool:
        """Return whether two more listings of its entity lack a project that an earlier one had.

        False where that cannot be found out.
        """
        try:
            return project in self.found and all(project not in self._list(project.entity) for _ in range(2))
        except FleetgaugeError as error:
            log.info("whether %s is deleted is unknown: %s", project, error)
            return False

    def _list(self, entity: str) -> dict[Project, ProjectInfo]:
        """Return the projects of an entity. Raises FleetgaugeError where it cannot be listed."""
        listed: dict[Project, ProjectInfo] = {}
        after: str | None = None
        while True:
            try:
                page, after = persist(
                    lambda: self._page(entity, after),  # noqa: B023
                    self.deadline,
                    self.deadline.sleep,
                )
            except TransientError as error:
                raise SourceError(f"cannot list the projects of {entity}: {error}") from None
            # A server that repeats a page with a next cursor would be read forever.
            is_new = not page.keys() <= listed.keys()
            listed |= page
            if after is None:
                return listed
            if not is_new:
                raise SourceError(f"the listing of the projects of {entity} does not end")
            if self.pause:
                self.deadline.sleep(min(self.pause, max(0.0, self.deadline.remaining())))

    def _page(self, entity: str, after: str | None) -> tuple[dict[Project, ProjectInfo], str | None]:
        """Return a page of projects, and the cursor behind which there are more; None where there are none.

        Counting runs may be too much for the server: after a few failures it is not requested.
        """
        # A count per project saves a request for every project without runs to read.
        counts = Extra.RUN_COUNT not in self.missing
        text = _PROJECTS % {
            "variable": ", $filters: JSONString" if counts else "",
            "more": _selection([Extra.PROJECT_CREATED, Extra.RUN_COUNT], self.missing),
        }
        variables = {"entity": entity, "first": PROJECTS_PER_PAGE, "after": after}
        if counts:
            variables["filters"] = json.dumps(self.filters)
        try:
            data, errors = self.api.read(self.api.post(text, variables, self.deadline))
            models: Json = data.get("models")
            if models is None and not errors:
                raise self.api.unknown(f"entity {entity}")
            with _known_shape(f"the projects of {entity}"):
                nodes = [None] if models is None else [edge["node"] for edge in models["edges"]]
                if errors and None in nodes:  # a project whose runs cannot be counted
                    raise FailedRequestError(
                        f"{self.api.url} could not list the projects of {entity}: {errors}", Failure.QUICK
                    )
                page = {
                    Project(entity, str(node["name"])): ProjectInfo(
                        _microseconds(node.get("createdAt")), node.get("runCount")
                    )
                    for node in nodes
                    if node
                }
                information = models["pageInfo"]
                return page, information["endCursor"] if information["hasNextPage"] else None
        except UnknownFieldsError as error:
            self.missing = without(error, self.missing, self.api.url)
            return self._page(entity, after)
        except FailedRequestError as error:
            self._failures += error.failure in (Failure.HEAVY, Failure.QUICK)
            if self._failures >= COUNT_TRIES:
                self.missing |= {Extra.RUN_COUNT}
            raise

    def _lose_collisions(self, named: list[Project]) -> None:
        """Of projects that Datadog stores under the same tags, keep the one that was created first.

        Where that is unknown of any of them, it is the one named first, then the first by name. Sent under
        the same tags, points of both would overwrite each other.
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
