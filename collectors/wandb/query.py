"""The GraphQL queries, and how that for runs gets by on a server that lacks some of what it asks for.

The core of the selection is what the official client itself asks for. Every other field and argument is
optional: where the server rejects one, the query is written again without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import Enum

from collectors.wandb.owners import FIXED
from collectors.wandb.runs import TERMINAL, State
from common.times import iso

_UNKNOWN_FIELD = re.compile(r"Cannot query field [\"'`]?(\w+)")
_UNKNOWN_ARGUMENT = re.compile(r"Unknown argument [\"'`]?(\w+)[\"'`]? on field [\"'`]?(?:\w+\.)?(\w+)")


class Extra(Enum):
    """What may be missing on a server, and what is lost without it."""

    COMPUTE_SECONDS = "computeSeconds: the duration of a resumed run includes its pauses"
    RUN_INFO = "runInfo: the GPUs of runs of older clients are assumed"
    TOTAL_COUNT = "totalCount: hidden runs are not counted (wandb.runs.unseen), and pages come one by one"
    CURSORS = "edges { cursor }: where runs are hidden, pages overlap by more than one row"
    CONFIG_KEYS = "config(keys:): whole configs are read, which is slow"
    SUMMARY_KEYS = "summaryMetrics(keys:): whole summaries are read, which is slow"
    USER = "user: whose runs they are is unknown (tag user)"
    GROUP = "group: the groups of runs are unknown (tag group)"
    JOB_TYPE = "jobType: the job types of runs are unknown (tag job_type)"
    TAGS = "tags: what is grouped by tags of runs is unknown"
    SYSTEM_METRICS = "systemMetrics: how busy GPUs are is not told, nor which runs are idle"


_ARGUMENTS = {
    ("keys", "config"): Extra.CONFIG_KEYS,
    ("keys", "summaryMetrics"): Extra.SUMMARY_KEYS,
}
WIDE = frozenset({Extra.CONFIG_KEYS, Extra.SUMMARY_KEYS})
_OF_RUNS = {  # what is asked of each run
    Extra.COMPUTE_SECONDS: "computeSeconds",
    Extra.RUN_INFO: "runInfo { gpuCount }",
    Extra.USER: "user { username }",
    Extra.GROUP: "group",
    Extra.JOB_TYPE: "jobType",
    Extra.TAGS: "tags",
    Extra.SYSTEM_METRICS: "systemMetrics",
}
_FIELDS = {
    **{word: part for part, text in _OF_RUNS.items() for word in re.findall(r"\w+", text)},
    "totalCount": Extra.TOTAL_COUNT,
    "cursor": Extra.CURSORS,
}
_OF_GROUPS = {"user": Extra.USER, "group": Extra.GROUP, "job_type": Extra.JOB_TYPE}

_QUERY = """\
query Runs(
  $entity: String!, $project: String!, $filters: JSONString, $order: String, $first: Int, $after: String
) {
  viewer { id }
  project(name: $project, entityName: $entity) {
    runs(filters: $filters, order: $order, first: $first, after: $after) {
      %(total)s
      pageInfo { hasNextPage endCursor }
      edges {
        %(cursor)s
        node {
          id name displayName state createdAt heartbeatAt sweepName
          config%(config)s summaryMetrics%(summary)s %(more)s
        }
      }
    }
  }
}
"""

VIEWER = "query Viewer { viewer { id } }"

PROJECTS = """\
query Projects($entity: String!, $first: Int, $after: String) {
  viewer { id }
  models(entityName: $entity, first: $first, after: $after) {
    pageInfo { hasNextPage endCursor }
    edges { node { name } }
  }
}
"""


def query(config_keys: list[str], summary_keys: list[str], missing: Iterable[Extra]) -> str:
    """The query's text, without what is missing on the server."""
    parts = {
        Extra.TOTAL_COUNT: ("total", "totalCount"),
        Extra.CURSORS: ("cursor", "cursor"),
        Extra.CONFIG_KEYS: ("config", f"(keys: {json.dumps(config_keys)})"),
        Extra.SUMMARY_KEYS: ("summary", f"(keys: {json.dumps(summary_keys)})"),
    }
    texts = {place: "" if part in missing else text for part, (place, text) in parts.items()}
    more = " ".join(text for part, text in _OF_RUNS.items() if part not in missing)
    return _QUERY % {**texts, "more": more}


def unasked(group_by: Iterable[str], *, looking: bool) -> frozenset[Extra]:
    """The parts that nobody needs: what runs are not grouped by, and how busy GPUs are, unless looking."""
    needed = {_OF_GROUPS.get(by) if by in FIXED else Extra.TAGS for by in group_by}
    needed |= {Extra.USER, Extra.SYSTEM_METRICS} if looking else set()
    return frozenset({*_OF_GROUPS.values(), Extra.TAGS, Extra.SYSTEM_METRICS} - needed)


def unknown_parts(messages: Iterable[str]) -> set[Extra]:
    """The optional parts that a server's errors say it does not know."""
    parts: set[Extra | None] = set()
    for message in messages:
        if field := _UNKNOWN_FIELD.search(message):
            parts.add(_FIELDS.get(field[1]))
        if argument := _UNKNOWN_ARGUMENT.search(message):
            parts.add(_ARGUMENTS.get((argument[1], argument[2])))
    return {part for part in parts if part is not None}


def touched_since(cutoff: int, created_before: int | None = None) -> str:
    """The filter for runs that were created or seen since an instant, or that have not ended.

    By creation alone, the long runs that end today would be missed; by heartbeat alone, those that never
    had one. What runs or waits is asked for whatever its age, so that how much of it there is does not
    depend on the cutoff. For a span of the past, what was created behind it does not matter.
    """
    since = {"$gte": iso(cutoff)}
    unended = [{"state": state.value} for state in State if state not in TERMINAL]
    touched: dict[str, object] = {"$or": [{"heartbeatAt": since}, {"createdAt": since}, *unended]}
    if created_before is not None:
        touched = {"$and": [touched, {"createdAt": {"$lt": iso(created_before)}}]}
    return json.dumps(touched)


def seen_running_since(moment: int) -> str:
    """The filter for runs that are running and had a heartbeat since an instant."""
    running = [{"state": state.value} for state in (State.RUNNING, State.PREEMPTING)]
    return json.dumps({"$and": [{"$or": running}, {"heartbeatAt": {"$gte": iso(moment)}}]})
