"""One run as W&B tells it, read into a typed record.

Knows every odd form a field may have; knows no clock and no window. What cannot be read costs itself: a
timestamp its run, a summary value that value. Times are whole microseconds, so that sums of them are exact.
"""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, TypeGuard

import orjson

from collectors.wandb.metrics import THROUGHPUT
from collectors.wandb.owners import NOBODY, Owner, Owners
from collectors.wandb.utilization import Look, read_system_metrics

SECOND = 1_000_000
HOUR = 3600 * SECOND
MAX_GPUS = 1_000_000
MAX_SECONDS = 10**11  # seconds; anything beyond is not a duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NOTHING: Mapping[str, float] = {}

Json = Any  # what a JSON document may hold; every use checks what it got


class State(StrEnum):
    """The states W&B knows. Being preempted is still running; having been is not."""

    RUNNING = "running"
    PREEMPTING = "preempting"
    PENDING = "pending"
    FINISHED = "finished"
    FAILED = "failed"
    CRASHED = "crashed"
    KILLED = "killed"
    PREEMPTED = "preempted"


TERMINAL = frozenset({State.FINISHED, State.FAILED, State.CRASHED, State.KILLED, State.PREEMPTED})
_STATES = {state.value: state for state in State}


class RunKind(IntEnum):
    """What a run is for. Push-to-main wins over sweep."""

    OTHER = 0
    PUSH_TO_MAIN = 1
    SWEEP = 2


_KIND_NAMES = {kind: kind.name.lower() for kind in RunKind}


class Target(NamedTuple):
    """What a push-to-main run measured: the branch or any pull request, with which configuration."""

    ref: str
    config: str


class Run(NamedTuple):
    """A run. `seen` is its last heartbeat, or its start where it had none; the end, once it is terminal.

    `worked_from` is where its work begins at the earliest: a resumed or edited run keeps its start, and its
    heartbeat moves on over pauses in which nothing was computed.

    A named tuple, because a backfill holds hundreds of thousands. Times are microseconds since the epoch.
    """

    id: str
    state: State
    kind: RunKind
    start: int
    seen: int
    worked_from: int
    duration: int | None
    gpus: int
    gpus_assumed: bool
    sweep: str | None
    target: Target | None
    throughput: Mapping[str, float]
    owner: Owner = NOBODY
    look: Look | None = None  # only where it was asked how busy its GPUs are


class RunReader:
    """How runs of one project are read: what names mean, where GPUs are counted, whose they are."""

    def __init__(
        self, push_to_main: str, gpu_count_key: str | None, assumed_gpus: int, owners: Owners | None = None
    ) -> None:
        self._push_to_main = re.compile(fnmatch.translate(push_to_main)).match
        # <prefix>main.<commit>.<config>.<timestamp>, the prefix being what comes before the pattern's star
        prefix = re.escape(re.split(r"[*?\[]", push_to_main)[0])
        self._target = re.compile(prefix + r"(?:(main)|pr\d+)\.[^.]+\.(.+)\.[^.]+").fullmatch
        self._gpu_count_key = gpu_count_key
        self._assumed_gpus = assumed_gpus
        self._owners = owners

    @property
    def summary_keys(self) -> list[str]:
        """The summary keys to ask for, with their parents: a nested summary has only those."""
        keys = [*THROUGHPUT, *([self._gpu_count_key] if self._gpu_count_key else [])]
        return [*_with_parents(keys), "_wandb"]

    @property
    def config_keys(self) -> list[str]:
        """The config keys to ask for."""
        return ["_wandb", *_with_parents([self._gpu_count_key] if self._gpu_count_key else [])]

    def read(self, node: Mapping[str, Json], flaws: list[str]) -> Run | None:
        """The run of one row, or None; `flaws` gains a reason for everything that was lost."""
        state = _STATES.get(str(node.get("state")).lower())
        if state is None:
            flaws.append("unknown_state")
            return None
        try:
            start = microseconds(node.get("createdAt"))
            seen = start if node.get("heartbeatAt") is None else microseconds(node["heartbeatAt"])
        except ValueError:
            flaws.append("bad_timestamp")
            return None
        kind, target = self._classify(node)
        ended = state in TERMINAL
        computed = _computed(node.get("computeSeconds"))
        needs_summary = not (ended and computed) or kind is RunKind.PUSH_TO_MAIN or self._gpu_count_key
        summary = _document(node.get("summaryMetrics"), "bad_summary", flaws) if needs_summary else {}
        if not (ended and computed):
            # Whether the server's figure keeps up while a run lasts is not known, so the larger one counts.
            computed = max(computed, _computed(find(summary, "_wandb.runtime")))
        known, gpu = self._gpus(node, summary, flaws)
        gpus = self._assumed_gpus if known is None else known
        return Run(
            id=str(node["id"]),
            state=state,
            kind=kind,
            start=start,
            seen=seen,
            worked_from=max(start, seen - computed) if computed else start,
            duration=(computed or _span(start, seen, flaws)) if ended else None,
            gpus=gpus,
            gpus_assumed=known is None,
            sweep=str(node["sweepName"]) if node.get("sweepName") else None,
            target=target,
            throughput=_throughput(summary, flaws) if kind is RunKind.PUSH_TO_MAIN else _NOTHING,
            owner=self._owners.read(node, gpu, _KIND_NAMES[kind]) if self._owners else NOBODY,
            look=_look(self._owners, node, gpus, flaws) if self._owners and "systemMetrics" in node else None,
        )

    def _classify(self, node: Mapping[str, Json]) -> tuple[RunKind, Target | None]:
        name = str(node.get("displayName") or node.get("name") or "")
        if self._push_to_main(name):
            parts = self._target(name)
            return RunKind.PUSH_TO_MAIN, parts and Target(parts[1] or "pr", parts[2])
        if node.get("sweepName") or ".sweep" in name.lower():
            return RunKind.SWEEP, None
        return RunKind.OTHER, None

    def _gpus(
        self, node: Mapping[str, Json], summary: Mapping[str, Json], flaws: list[str]
    ) -> tuple[int | None, str | None]:
        """GPUs of the run, by the first source that says so, and what they are called; None if unknown."""
        config = _document(node.get("config"), "bad_config", flaws)
        config = {key: _unwrapped(value) for key, value in config.items()}
        writer = _largest_writer(config.get("_wandb"))
        said: list[Json] = []
        if self._gpu_count_key is not None:
            said += [find(config, self._gpu_count_key), _last(find(summary, self._gpu_count_key))]
        said.append(_gpus_seen(writer))
        information = node.get("runInfo")
        said.append(information.get("gpuCount") if isinstance(information, dict) else None)
        for value in said:
            if value is None:
                continue
            if is_number(value) and 0 <= value <= MAX_GPUS and value == int(value):
                return int(value), _gpu_name(writer)
            flaws.append("bad_gpu_count")
        return None, _gpu_name(writer)


def microseconds(text: Json) -> int:
    """An ISO 8601 time, with any offset, fraction or neither (UTC then), since the epoch."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a timestamp")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def is_number(value: Json) -> TypeGuard[int | float]:
    """Whether a value is a finite number; a truth value is none."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def find(values: Mapping[str, Json], key: str) -> Json:
    """The value of a key written flat (`a/b`), or nested along its slashes or dots; None where absent."""
    if key in values:
        return values[key]
    for separator in "/.":
        place: Json = values
        for part in key.split(separator):
            place = place.get(part) if isinstance(place, dict) else None
        if place is not None:
            return place
    return None


def _with_parents(keys: list[str]) -> list[str]:
    return list(dict.fromkeys([*keys, *(re.split("[/.]", key)[0] for key in keys)]))


def _document(text: Json, flaw: str, flaws: list[str]) -> dict[str, Json]:
    """A JSON object that came as a string; nothing at all is an empty one."""
    if text is None or text == "":
        return {}
    try:
        found = _parsed(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    flaws.append(flaw)
    return {}


def _parsed(text: str) -> Json:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)  # which knows NaN and Infinity, as W&B's own client writes them


def _unwrapped(value: Json) -> Json:
    """A config value without the `{"value": …, "desc": …}` around it."""
    return value["value"] if isinstance(value, dict) and "value" in value else value


def _largest_writer(internal: Json) -> Mapping[str, Json]:
    """Who saw most GPUs. A resumed run has several writers on the same GPUs: they do not add up."""
    writers = internal.get("e") if isinstance(internal, dict) else None
    found = [one for one in writers.values() if isinstance(one, dict)] if isinstance(writers, dict) else []
    return max(found, key=lambda one: _gpus_seen(one) or 0, default=_NOTHING)


def _gpus_seen(writer: Mapping[str, Json]) -> float | None:
    count = writer.get("gpu_count")
    return count if is_number(count) else None


def _gpu_name(writer: Mapping[str, Json]) -> str | None:
    """What the driver calls its first GPU."""
    name = writer.get("gpu")
    if not name:
        devices = writer.get("gpu_nvidia") or writer.get("gpu_amd")
        first = devices[0] if isinstance(devices, list) and devices else None
        name = (first.get("name") or first.get("series")) if isinstance(first, dict) else None
    return name if isinstance(name, str) else None


def _look(owners: Owners, node: Mapping[str, Json], gpus: int, flaws: list[str]) -> Look:
    run_id = str(node.get("name") or node["id"])
    name = str(node.get("displayName") or run_id)
    row = _document(node["systemMetrics"], "bad_system_metrics", flaws)
    reported = read_system_metrics(row, gpus, flaws)
    return Look(run_id, name, owners.user(node), reported)


def _last(value: Json) -> Json:
    """A summary value without the `{"last": …, "max": …}` around it, which `define_metric` asks for."""
    return value["last"] if isinstance(value, dict) and "last" in value else value


def _computed(seconds: Json) -> int:
    """How long a run computed, as W&B says; 0 where it does not."""
    seconds = _last(seconds)
    return round(seconds * SECOND) if is_number(seconds) and 0 < seconds < MAX_SECONDS else 0


def _span(start: int, end: int, flaws: list[str]) -> int | None:
    """From start to end; None where clocks disagree."""
    if end < start:
        flaws.append("negative_duration")
        return None
    return end - start


def _throughput(summary: Mapping[str, Json], flaws: list[str]) -> Mapping[str, float]:
    values = {}
    for key in THROUGHPUT:
        value = _last(find(summary, key))
        if is_number(value):
            values[key] = value
        elif value is not None:
            flaws.append("bad_summary_value")
    return values
