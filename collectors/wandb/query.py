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
from enum import Enum
from typing import NamedTuple

from collectors.wandb.api import (
    Api,
    FailedRequestError,
    RefusedProjectError,
    Response,
    UnknownFieldsError,
)
from collectors.wandb.groups import Json
from collectors.wandb.runs import TERMINAL, Run, RunReader, State, microseconds
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.slices import LATEST, Failure, Page, SliceRequest
from common.collector import Context
from common.errors import FleetgaugeError, SourceError
from common.names import normalise_tag
from common.net.retry import TransientError, persist
from common.times import EARLIEST, iso

ORDER = "+created_at"
PROJECTS_PER_PAGE = 200
COUNT_TRIES = 3  # of a page of projects with their numbers of runs

_REFUSED = re.compile(r"permission|denied|forbidden|unauthori[sz]ed|not found", re.IGNORECASE)

log = logging.getLogger(__name__)

Filter = Mapping[str, object]


class Extra(Enum):
    """What a server may lack: the part of a query's text that selects it, and what is lost without it.

    A self-hosted server may be older than the client, and newer servers drop fields such as `runInfo`.
    """

    COMPUTE_SECONDS = ("computeSeconds", "computeSeconds: the duration of a resumed run includes its pauses")
    RUN_INFO = ("runInfo { gpuCount }", "runInfo: the GPUs of runs of older clients are assumed")
    TOTAL_COUNT = ("totalCount", "totalCount: hidden runs are not counted, and pages come one by one")
    CONFIG_KEYS = ("(keys: %(config)s)", "config: complete configs are read, which is slow")
    SUMMARY_KEYS = (
        "(keys: %(summaryMetrics)s)",
        "summaryMetrics: complete summaries are read, which is slow",
    )
    USER = ("user { username }", "user: the users of runs are unknown (tag user)")
    GROUP = ("group", "group: the groups of runs are unknown (tag group)")
    JOB_TYPE = ("jobType", "jobType: the job types of runs are unknown (tag job_type)")
    TAGS = ("tags", "tags: groups by the tags of runs are unknown")
    SYSTEM_METRICS = ("systemMetrics", "systemMetrics: the utilisation of GPUs and idle runs are unknown")
    PROJECT_CREATED = ("created: createdAt", "createdAt: of colliding projects, the first by name is read")
    RUN_COUNT = ("runCount(filters: $filters)", "runCount: every project of an entity costs a request")

    @property
    def names(self) -> set[str]:
        """Return the names by which a server may reject it: an error names a field, never the selection."""
        return set(re.findall(r"\w+", self.value[0]))

    def __str__(self) -> str:
        return str(self.value[1])


_GROUPS = {"user": Extra.USER, "group": Extra.GROUP, "job_type": Extra.JOB_TYPE}

# Every query selects `viewer`, which shows whether the key is accepted (`Api.post`).
_RUNS = """\
query Runs(
  $entity: String!, $project: String!, $filters: JSONString, $order: String, $first: Int, $after: String
) {
  viewer { id }
  project(name: $project, entityName: $entity) {
    runs(filters: $filters, order: $order, first: $first, after: $after) {
      totalCount
      pageInfo { hasNextPage }
      edges {
        node {
          id name displayName state createdAt heartbeatAt sweepName computeSeconds runInfo { gpuCount }
          user { username } group jobType tags systemMetrics
          config(keys: %(config)s) summaryMetrics(keys: %(summaryMetrics)s)
        }
      }
    }
  }
}
"""
_PROJECTS = """\
query Projects($entity: String!, $first: Int, $after: String, $filters: JSONString) {
  viewer { id }
  models(entityName: $entity, first: $first, after: $after) {
    pageInfo { hasNextPage endCursor }
    edges { node { name created: createdAt runCount(filters: $filters) } }
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


def without(error: UnknownFieldsError, missing: frozenset[Extra]) -> frozenset[Extra]:
    """Return what a server lacks, after it rejected a query; `missing` is what was known before.

    Raises SourceError where a rejected field must be selected, or was left out already.
    """
    unknown = frozenset(extra for extra in Extra if extra.names & error.fields)
    if unknown <= missing or not error.fields <= set[str]().union(*(extra.names for extra in unknown)):
        raise SourceError(f"W&B rejects the query: {error}")
    for extra in sorted(unknown - missing, key=str):
        log.warning("W&B does not know %s", extra)
    return missing | unknown


def _without(query: str, missing: Collection[Extra]) -> str:
    for extra in missing:
        query = query.replace(extra.value[0], "")
    return query


def runs_query(
    project: Project, filters: Filter, request: SliceRequest, missing: Collection[Extra], reading: RunReader
) -> tuple[str, dict[str, Json]]:
    """Return the query for the runs of a slice that pass a filter, and its variables.

    `missing` are the parts to leave out, `reading` knows the keys of config and summary to select.
    """
    keys = {
        "config": json.dumps(reading.config_keys),
        "summaryMetrics": json.dumps(reading.summary_keys),
    }
    # Half-open and in whole seconds: neighbouring slices share no run and leave none out.
    created = {"$gte": iso(request.since)} if request.since > EARLIEST else {}
    created |= {"$lt": iso(request.until)} if request.until < LATEST else {}
    # W&B's cursor is the offset of the last row in base64, so that any offset can be requested without paging
    # to it.
    after = f"arrayconnection:{request.offset - 1}".encode()
    return _without(_RUNS, missing) % keys, {
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


def read_runs(project: Project, response: Response, reading: RunReader) -> RunPage:
    """Return the page of runs in an answer, or raise what it means that there is none.

    A row that cannot be read is None in the page: it was seen, and counts for completeness. Raises
    RefusedProjectError, FailedRequestError, or SourceError for an unknown shape.
    """
    found, errors = response.data.get("project"), response.errors
    if found is None and not errors:
        raise _unknown(f"project {project}")
    if found is None and _REFUSED.search(errors):
        raise RefusedProjectError(f"W&B refused {project}: {errors}")
    if found is None:
        raise FailedRequestError(f"W&B did not answer for {project}: {errors}")
    rows: dict[str, Run | None] = {}
    times: list[float] = []
    flaws: dict[str, list[str]] = {}
    with _known_shape(str(project)):
        runs = found["runs"]
        # By the schema a row that cannot be served makes the complete list null; it also happens under load.
        if runs is None and errors:
            raise FailedRequestError(f"W&B could not list runs: {errors}")
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
        total, more = runs.get("totalCount"), bool(runs["pageInfo"]["hasNextPage"])
        # `type` and not `isinstance`: JSON's true is no count.
        return RunPage(Page(rows, times, total if type(total) is int else None, more), flaws, errors)


def _unknown(what: str) -> RefusedProjectError:
    return RefusedProjectError(
        f"W&B knows no {what}, or the key may not see it; "
        "check WANDB_PROJECTS, or WANDB_ENTITY and WANDB_PROJECT"
    )


@contextmanager
def _known_shape(subject: str) -> Iterator[None]:
    """Raise SourceError for an answer that does not follow the schema."""
    try:
        yield
    except (TypeError, KeyError, AttributeError) as error:
        raise SourceError(f"W&B answered for {subject} in an unknown shape: {error!r}") from None


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


class Projects:
    """The projects that the settings name and this shard reads: `selected`.

    `found` are those in the listing of an entity, `lost` entities that cannot be listed, and projects that
    have the tags of another. `filters` select the runs to be read, which are counted per project. `missing`
    is what the server does not know.
    """

    def __init__(self, api: Api, context: Context[WandbSettings], filters: Filter) -> None:
        """List each entity whose name is followed by *, and select every project once."""
        self.filters = filters
        self.missing: frozenset[Extra] = frozenset()
        self.found: dict[Project, ProjectInfo] = {}
        self.lost: dict[Project, FleetgaugeError] = {}
        self._api, self._deadline, self._pause = api, context.deadline, context.settings.pause
        self._failures = 0
        named, chosen = context.settings.chosen(), dict[Project, None]()
        for project in named:
            if project.name != "*":
                chosen[project] = None
                continue
            context.progress("listing projects", 0, None)
            try:
                # Twice: a listing is read in pages, and may miss a project that exists.
                found = self._list(project.entity) | self._list(project.entity)
                if not found:
                    raise RefusedProjectError(f"{project} matches no project; check WANDB_PROJECTS")
            except FleetgaugeError as error:
                self.lost[project] = error
                continue
            self.found |= found
            chosen |= dict.fromkeys(found)
        self._lose_collisions(named, chosen)
        # After collisions are resolved: two projects with the same tags may belong to different shards.
        owns = context.shard.owns
        self.selected = [each for each in chosen if each not in self.lost and owns(str(each))]
        self.lost = {each: error for each, error in self.lost.items() if each.name == "*" or owns(str(each))}

    @property
    def with_runs(self) -> list[Project]:
        """The selected projects without those that have no runs to read, by the listing of their entity."""
        return [each for each in self.selected if self.found.get(each, ProjectInfo()).runs != 0]

    def _list(self, entity: str) -> dict[Project, ProjectInfo]:
        """Return the projects of an entity. Raises FleetgaugeError where it cannot be listed."""
        listed: dict[Project, ProjectInfo] = {}
        after: str | None = None
        while True:
            try:
                page, after = persist(lambda: self._page(entity, after), self._deadline)  # noqa: B023
            except TransientError as error:
                raise SourceError(f"cannot list the projects of {entity}: {error}") from None
            if self._pause:
                self._deadline.sleep(self._deadline.timeout(self._pause))
            if after is None:
                return listed | page
            # A server that repeats a page with a next cursor would be read forever.
            if page.keys() <= listed.keys():
                raise SourceError(f"the listing of the projects of {entity} does not end")
            listed |= page

    def _page(self, entity: str, after: str | None) -> tuple[dict[Project, ProjectInfo], str | None]:
        """Return a page of projects, and the cursor behind which there are more; None where there are none.

        Counting runs may be too much for the server: after a few failures it is not requested.
        """
        # A count per project saves a request for every project without runs to read.
        text = _without(_PROJECTS, self.missing)
        if Extra.RUN_COUNT in self.missing:  # a variable must be used
            text = text.replace(", $filters: JSONString", "")
        variables = {"entity": entity, "first": PROJECTS_PER_PAGE, "after": after}
        variables["filters"] = json.dumps(self.filters)
        try:
            data, errors, _ = self._api.post(text, variables, self._deadline)
            models: Json = data.get("models")
            if models is None and not errors:
                raise _unknown(f"entity {entity}")
            with _known_shape(f"the projects of {entity}"):
                nodes = [None] if models is None else [edge["node"] for edge in models["edges"]]
                if errors and None in nodes:  # a project whose runs cannot be counted
                    raise FailedRequestError(f"W&B could not list projects: {errors}")
                page = {
                    Project(entity, str(node["name"])): ProjectInfo(
                        _microseconds(node.get("created")), node.get("runCount")
                    )
                    for node in nodes
                    if node
                }
                information = models["pageInfo"]
                return page, information["endCursor"] if information["hasNextPage"] else None
        except UnknownFieldsError as error:
            self.missing = without(error, self.missing)
            return self._page(entity, after)
        except FailedRequestError as error:
            self._failures += error.failure in (Failure.HEAVY, Failure.QUICK)
            if self._failures >= COUNT_TRIES:
                self.missing |= {Extra.RUN_COUNT}
            raise

    def _lose_collisions(self, named: list[Project], chosen: Iterable[Project]) -> None:
        """Of projects that Datadog stores under the same tags, lose all but the one that was created first.

        Where that is unknown of any of them, it is the one named first, then the first by name. Sent under
        the same tags, points of both would overwrite each other.
        """
        order = {project: number for number, project in enumerate(named)}
        groups: dict[tuple[str, str], list[Project]] = defaultdict(list)
        for project in sorted(chosen, key=lambda each: (order.get(each, len(order)), each)):
            tags = (normalise_tag(f"entity:{project.entity}"), normalise_tag(f"project:{project.name}"))
            groups[tags].append(project)
        for group in groups.values():
            created = [self.found.get(project, ProjectInfo()).created for project in group]
            first = group[0 if None in created else created.index(min(time or 0 for time in created))]
            error = CollidingProjectError(
                f"Datadog stores its tags as those of {first}; rename it in W&B, or leave it out"
            )
            self.lost |= {project: error for project in group if project != first}
