"""The GraphQL queries: what they select and filter, how their answers are read, and which projects there are.

The core of each selection is what the official client itself selects; every other part is optional
(`api.Extra`). `api` sends the queries, `runs` parses a row, `reader` decides what to send.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from collectors.wandb.api import Api, Extra, FailedRequestError, GraphqlQuery, RefusedProjectError, Response
from collectors.wandb.groups import Json
from collectors.wandb.runs import TERMINAL, Run, RunReader, State, microseconds
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.slices import LATEST, Failure, Page, SliceRequest
from common.collector import Context
from common.errors import FleetgaugeError, SourceError
from common.logs import redact
from common.names import normalise_tag
from common.net.retry import MAX_ATTEMPTS, backoff
from common.times import EARLIEST, iso

ORDER = "+created_at"
PROJECTS_PER_PAGE = 200
COUNT_TRIES = 3  # in a row that fail quickly, of a page of projects with their numbers of runs

_REFUSED = re.compile(r"permission|denied|forbidden|unauthori[sz]ed|not found", re.IGNORECASE)

Filter = Mapping[str, object]

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
          user { username } group jobType tags
          config(keys: %(config)s) summaryMetrics(keys: %(summaryMetrics)s)
        }
      }
    }
  }
}
"""
# System metrics alone are about 10 kB per run.
_ACTIVE_RUNS = _RUNS.replace("tags\n", "tags systemMetrics\n")
_PROJECTS = """\
query Projects($entity: String!, $first: Int, $after: String) {
  viewer { id }
  models(entityName: $entity, first: $first, after: $after) {
    pageInfo { hasNextPage endCursor }
    edges { node { name created: createdAt runCount(filters: %(filters)s) } }
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


def runs_query(
    project: Project, filters: Filter, reading: RunReader, system_metrics: bool, request: SliceRequest
) -> GraphqlQuery:
    """Return the query for the runs of a slice that pass a filter, also for their `system_metrics`.

    `reading` knows the keys of config and summary to select.
    """
    # Half-open and in whole seconds: neighbouring slices share no run and leave none out.
    created = {"$gte": iso(request.since)} if request.since > EARLIEST else {}
    created |= {"$lt": iso(request.until)} if request.until < LATEST else {}
    # W&B's cursor is the offset of the last row in base64, so that any offset can be requested without paging
    # to it.
    after = f"arrayconnection:{request.offset - 1}".encode()
    variables = {
        "entity": project.entity,
        "project": project.name,
        "filters": json.dumps({"$and": [filters, {"createdAt": created}]} if created else filters),
        "order": ORDER,
        "first": request.rows,
        "after": base64.b64encode(after).decode() if request.offset else None,
    }
    keys = {
        "config": json.dumps(reading.config_keys),
        "summaryMetrics": json.dumps(reading.summary_keys),
    }
    return GraphqlQuery(_ACTIVE_RUNS if system_metrics else _RUNS, variables, keys)


class Row(NamedTuple):
    """A run that was shown; None where it cannot be read. `flaws` has a reason for each dropped value."""

    run: Run | None
    flaws: tuple[str, ...] = ()


def read_runs(project: Project, response: Response, reading: RunReader, request: SliceRequest) -> Page[Row]:
    """Return the page of runs in the answer to a request, or raise what it means that there is none.

    A row that cannot be read is part of it: it was seen, and counts for completeness. Raises
    RefusedProjectError, FailedRequestError, or SourceError for an unknown shape.
    """
    found, errors = response.data.get("project"), response.errors
    if found is None and not errors:
        raise _unknown(f"project {project}")
    if found is None and _REFUSED.search(errors):
        raise RefusedProjectError(f"W&B refused {project}: {errors}")
    if found is None:
        raise FailedRequestError(f"W&B did not answer for {project}: {errors}", response.failure)
    rows: dict[str, Row] = {}
    times: list[float] = []
    with _known_shape(str(project)):
        runs = found["runs"]
        # By the schema a row that cannot be served makes the complete list null; it also happens under load.
        if runs is None and errors:
            raise FailedRequestError(f"W&B could not list runs: {errors}", response.failure)
        nodes, more = _nodes(runs)
        for offset, node in enumerate(nodes, request.offset):
            if not isinstance(node, dict) or not isinstance(node.get("id"), str):
                # Without an id only its place tells it from others.
                place = f"at offset {offset} since {iso(request.since)}"
                rows[f"{place}: {redact(repr(node))[:200]}"] = Row(None, ("malformed_run",))
                continue
            flaws: list[str] = []
            run = reading.read(node, flaws)
            rows[node["id"]] = Row(run, tuple(flaws))
            created = microseconds(node.get("createdAt")) if run is None else run.start
            if created is not None:
                times.append(created / 1e6)
        return Page(rows, times, _count(runs.get("totalCount")), more)


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


def _nodes(connection: Json) -> tuple[list[Json], bool]:
    """Return the nodes of a page, and whether there are more behind it.

    Raises TypeError or KeyError for anything else: what is unreadable must not pass for the last page.
    """
    edges, more = connection["edges"], connection["pageInfo"]["hasNextPage"]
    if not isinstance(edges, list) or not isinstance(more, bool):
        raise TypeError(f"edges: {type(edges).__name__}, hasNextPage: {more!r:.20}")
    return [edge["node"] for edge in edges], more


def _count(value: Json) -> int | None:
    """Return a number of rows; None for anything else, such as JSON's true."""
    return value if type(value) is int and value >= 0 else None


class CollidingProjectError(SourceError):
    """Datadog stores the tags of a project as those of another, which is read."""


class ProjectInfo(NamedTuple):
    """When a project was created, in microseconds, and how many runs it has to read; None if unknown."""

    created: int | None = None
    runs: int | None = None


class Projects(NamedTuple):
    """The projects that the settings name and this shard reads: `selected`.

    `found` are those in the listing of an entity, `lost` entities that cannot be listed, and projects that
    have the tags of another.
    """

    selected: list[Project]
    found: dict[Project, ProjectInfo]
    lost: dict[Project, FleetgaugeError]


def select_projects(api: Api, context: Context[WandbSettings], filters: Filter) -> Projects:
    """List each entity whose name is followed by *, and select every project once.

    `filters` select the runs to be read, which are counted per project.
    """
    named, chosen = context.settings.chosen(), dict[Project, None]()
    found: dict[Project, ProjectInfo] = {}
    lost: dict[Project, FleetgaugeError] = {}
    for project in named:
        if project.name != "*":
            chosen[project] = None
            continue
        context.progress("listing projects", 0, None)
        try:
            # Twice: a listing is read in pages, and may miss a project that exists.
            listed, unreadable = _list(project.entity, filters, api, context)
            again, errors = _list(project.entity, filters, api, context)
            listed |= again
            # A project that one listing could not read may be one that the other has missed.
            if unreadable := errors or unreadable:
                lost[project] = SourceError(f"W&B could not list all of its projects: {unreadable}")
            elif not listed:
                raise RefusedProjectError(f"{project} matches no project; check WANDB_PROJECTS")
        except FleetgaugeError as error:
            lost[project] = error
            continue
        found |= listed
        chosen |= dict.fromkeys(listed)
    lost |= _collisions(named, chosen, found)
    # After collisions are resolved: two projects with the same tags may belong to different shards.
    owns = context.shard.owns
    selected = [each for each in chosen if each not in lost and owns(str(each))]
    lost = {each: error for each, error in lost.items() if each.name == "*" or owns(str(each))}
    return Projects(selected, found, lost)


def _list(
    entity: str, filters: Filter, api: Api, context: Context[WandbSettings]
) -> tuple[dict[Project, ProjectInfo], str]:
    """Return the projects of an entity, and the errors beside others that cannot be read.

    Raises FleetgaugeError where it cannot be listed.
    """
    deadline, pause = context.deadline, context.settings.pause
    variables: dict[str, Json] = {"entity": entity, "first": PROJECTS_PER_PAGE, "after": None}
    # A count per project saves a request for every project without runs to read.
    query = GraphqlQuery(_PROJECTS, variables, {"filters": json.dumps(json.dumps(filters))})
    listed: dict[Project, ProjectInfo] = {}
    unreadable = ""
    failures = outages = 0  # in a row
    while True:
        try:
            response = api.post(query, deadline)
            is_counted = Extra.RUN_COUNT not in api.missing
            page, cursor, errors = _read_projects(entity, response, is_counted=is_counted)
        except FailedRequestError as error:
            # A server that serves nobody says nothing about the query, and is waited for.
            if error.failure in (Failure.UNAVAILABLE, Failure.RATE_LIMITED):
                outages += 1
            else:
                failures += 1
            # Counting runs may be too much for the server, and slow failures leave no time for others.
            if failures >= COUNT_TRIES or error.failure is Failure.HEAVY:
                api.missing |= {Extra.RUN_COUNT}
            delay = backoff(failures + outages)
            if error.wait is not None:
                delay = error.wait + random.uniform(0, 0.5)  # noqa: S311
            if failures == MAX_ATTEMPTS or delay >= deadline.remaining():
                tries = f"{failures + outages} failures in a row"
                raise SourceError(f"cannot list the projects of {entity}: {error} ({tries})") from None
            deadline.sleep(delay)
            continue
        except SourceError:
            # It may be too complex with the count of runs.
            if Extra.RUN_COUNT in api.missing:
                raise
            api.missing |= {Extra.RUN_COUNT}
            continue
        failures = outages = 0
        deadline.sleep(deadline.timeout(pause))
        listed |= page
        unreadable = errors or unreadable
        if cursor is None:
            return listed, unreadable
        # A server that repeats a page would be read forever. An empty page may have others behind it.
        if cursor == variables["after"]:
            raise SourceError(f"the listing of the projects of {entity} does not end")
        variables["after"] = cursor


def _read_projects(
    entity: str, response: Response, *, is_counted: bool
) -> tuple[dict[Project, ProjectInfo], str | None, str]:
    """Return a page of projects, the cursor behind which there are more, and the errors beside others.

    The cursor is None where there are no more. Raises FailedRequestError for a project that cannot be read
    where runs were counted: that may be why. Otherwise it is left out.
    """
    models: Json = response.data.get("models")
    errors = response.errors
    if models is None and errors:
        raise FailedRequestError(f"W&B could not list projects: {errors}", response.failure)
    if models is None:
        raise _unknown(f"entity {entity}")
    with _known_shape(f"the projects of {entity}"):
        nodes, more = _nodes(models)
        named = [node for node in nodes if isinstance(node, dict) and isinstance(node.get("name"), str)]
        unreadable = "" if len(named) == len(nodes) else errors or "some have no name"
        if unreadable and is_counted:
            raise FailedRequestError(f"W&B could not list all projects: {unreadable}", response.failure)
        page = {
            Project(entity, node["name"]): ProjectInfo(
                microseconds(node.get("created")), _count(node.get("runCount"))
            )
            for node in named
        }
        return page, str(models["pageInfo"]["endCursor"] or "") if more else None, unreadable


def _collisions(
    named: list[Project], chosen: Iterable[Project], found: Mapping[Project, ProjectInfo]
) -> dict[Project, FleetgaugeError]:
    """Of projects that Datadog stores under the same tags, return all but the one that was created first.

    Where that is unknown of any of them, it is the one named first, then the first by name. Sent under the
    same tags, points of both would overwrite each other.
    """
    order = {project: number for number, project in enumerate(named)}
    groups: dict[tuple[str, str], list[Project]] = defaultdict(list)
    for project in sorted(chosen, key=lambda each: (order.get(each, len(order)), each)):
        tags = (normalise_tag(f"entity:{project.entity}"), normalise_tag(f"project:{project.name}"))
        groups[tags].append(project)
    lost: dict[Project, FleetgaugeError] = {}
    for group in groups.values():
        created = [found.get(project, ProjectInfo()).created for project in group]
        first = group[0 if None in created else created.index(min(time or 0 for time in created))]
        for project in group:
            if project != first:
                lost[project] = CollidingProjectError(
                    f"Datadog stores its tags as those of {first}; rename it in W&B, or leave it out"
                )
    return lost
